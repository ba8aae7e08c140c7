//! The little that the gate reads out of ir3 assembly.

/// Instructions that add a dot product of packed bytes to a sum: `dp4acc` of 4 bytes, `dp2acc` of 2.
pub fn packed_dots(assembly: &str) -> usize {
    assembly.lines().filter(|line| is_packed_dot(line)).count()
}

/// A line is flags in brackets, the mnemonic, operands and perhaps a comment after `;`.
fn is_packed_dot(line: &str) -> bool {
    let mut rest = line.split(';').next().unwrap_or_default().trim_start();
    while let Some(flag) = rest.strip_prefix('(') {
        rest = flag.split_once(')').map_or("", |(_, rest)| rest.trim_start());
    }
    let mnemonic = rest.split(|c: char| c.is_whitespace() || c == '.').next().unwrap_or_default();
    mnemonic == "dp4acc" || mnemonic == "dp2acc"
}

#[cfg(test)]
mod tests {
    use super::packed_dots;

    #[test]
    fn counts_mnemonics_and_nothing_else() {
        let assembly = "\
            ; dp4acc in a comment\n\
            dp4acc_helper:\n\
            dp4acc.unsigned.low r1.x, r0.y, c2.x, r1.x\n\
            \t(sy)(ss)(rpt1)dp2acc.mixed.low r2.x, r0.z, r0.w, r2.x\t; 3 uses\n\
            (nop3) dp4acc.unsigned.low r1.y, r0.y, c2.y, r1.y\n\
            mad.u16 r0.x, r0.y, r0.z, r0.w ; was dp4acc\n\
            mov.u32u32 r0.x, dp4acc\n";
        assert_eq!(packed_dots(assembly), 3);
        assert_eq!(packed_dots(""), 0);
    }
}
