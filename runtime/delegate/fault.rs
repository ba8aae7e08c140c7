//! Breaks a kernel on purpose, so that tests can see a wrong result found and named.

use crate::base::{Error, Result};

/// Words before the first instruction of a SPIR-V module.
const HEADER_WORDS: usize = 5;

/// Pairs of SPIR-V opcodes that take the same operands: floating-point addition becomes subtraction, and so on.
const SWAPS: [(u32, u32); 3] = [(OP_F_ADD, OP_F_SUB), (OP_F_MUL, OP_F_ADD), (OP_F_SUB, OP_F_ADD)];
const OP_F_ADD: u32 = 129;
const OP_F_SUB: u32 = 131;
const OP_F_MUL: u32 = 133;

/// Changes every floating-point operation of the first kind that the module has into another. It stays valid.
///
/// # Errors
/// When the module has none.
pub fn break_arithmetic(spirv: &mut [u32]) -> Result<()> {
    let broken = SWAPS.iter().any(|&(from, to)| swap(spirv, from, to));
    if broken { Ok(()) } else { Err(Error::invalid_input("the kernel has no arithmetic that can be broken")) }
}

fn swap(spirv: &mut [u32], from: u32, to: u32) -> bool {
    let (mut at, mut found) = (HEADER_WORDS, false);
    while let Some(word) = spirv.get_mut(at) {
        let (words, opcode) = (*word >> 16, *word & 0xffff);
        if opcode == from {
            *word = words << 16 | to;
            found = true;
        }
        at += words.max(1) as usize;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn additions_become_subtractions() {
        let mut module =
            [0, 0, 0, 0, 0, 2 << 16 | 17, 129, 5 << 16 | 129, 1, 2, 3, 4, 5 << 16 | 133, 1, 5, 3, 4];
        break_arithmetic(&mut module).unwrap();
        assert_eq!(module[7..], [5 << 16 | 131, 1, 2, 3, 4, 5 << 16 | 133, 1, 5, 3, 4]);
        assert_eq!(module[6], 129, "an operand is no opcode");
        assert!(break_arithmetic(&mut [0; 5]).is_err());
    }
}
