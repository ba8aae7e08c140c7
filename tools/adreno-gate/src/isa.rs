//! The little that the gate reads out of ir3 assembly.

use std::collections::BTreeMap;

/// Instructions that add a dot product of packed bytes to a sum: `dp4acc` of 4 bytes, `dp2acc` of 2.
pub fn packed_dots(assembly: &str) -> usize {
    Code::parse(assembly).instructions.iter().filter(|instruction| instruction.is_packed_dot()).count()
}

/// One trip through a loop, by issue slots: a repeat takes one each, and so does every cycle of a `nop`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loop {
    /// Slots of all instructions.
    pub slots: u64,
    /// Slots of multiply-adds (`mad`) and of sums of packed products.
    pub multiply_adds: u64,
}

/// Of the loops that hold no other loop, the one with the most multiply-adds; `None` where none has any.
///
/// What a branch within the loop skips is counted, and waits for loads are not: this is a static cost.
pub fn hot_loop(assembly: &str) -> Option<Loop> {
    let code = Code::parse(assembly);
    let spans = code.loops();
    let is_innermost = |&(start, end): &(usize, usize)| {
        !spans.iter().any(|&(s, e)| (s, e) != (start, end) && start <= s && e <= end)
    };
    spans
        .iter()
        .filter(|span| is_innermost(span))
        .map(|&(start, end)| code.cost(start, end))
        .filter(|found| found.multiply_adds > 0)
        .max_by_key(|found| (found.multiply_adds, std::cmp::Reverse(found.slots)))
}

/// One instruction.
struct Instruction<'a> {
    mnemonic: &'a str,
    /// The label that it names, as of a branch.
    target: Option<&'a str>,
    /// Times that it is issued.
    issues: u64,
    /// Empty slots that it waits before it.
    waits: u64,
}

impl Instruction<'_> {
    fn is_packed_dot(&self) -> bool {
        matches!(self.mnemonic, "dp4acc" | "dp2acc")
    }

    /// `madsh` is a step of an integer product, as in addresses, and no multiply-add of data.
    fn is_multiply_add(&self) -> bool {
        self.mnemonic == "mad" || self.is_packed_dot()
    }
}

/// Instructions in order, and where labels point.
struct Code<'a> {
    instructions: Vec<Instruction<'a>>,
    labels: BTreeMap<&'a str, usize>,
}

impl<'a> Code<'a> {
    fn parse(assembly: &'a str) -> Self {
        let mut code = Code { instructions: Vec::new(), labels: BTreeMap::new() };
        for line in assembly.lines() {
            let line = line.split(';').next().unwrap_or_default().trim();
            if let Some(label) = line.strip_suffix(':') {
                code.labels.insert(label, code.instructions.len());
            } else if let Some(instruction) = instruction_of(line) {
                code.instructions.push(instruction);
            }
        }
        code
    }

    /// First and last instruction of every loop: a label and the last branch back to it.
    fn loops(&self) -> Vec<(usize, usize)> {
        let mut ends = BTreeMap::new();
        for (at, instruction) in self.instructions.iter().enumerate() {
            let start = instruction.target.and_then(|target| self.labels.get(target));
            if let Some(&start) = start
                && start <= at
            {
                ends.insert(start, at);
            }
        }
        ends.into_iter().collect()
    }

    fn cost(&self, start: usize, end: usize) -> Loop {
        let mut cost = Loop { slots: 0, multiply_adds: 0 };
        for instruction in self.instructions.iter().take(end + 1).skip(start) {
            cost.slots += instruction.issues + instruction.waits;
            if instruction.is_multiply_add() {
                cost.multiply_adds += instruction.issues;
            }
        }
        cost
    }
}

/// A line is flags in brackets, the mnemonic with its types after dots, and operands. Declarations begin with `@`.
fn instruction_of(line: &str) -> Option<Instruction<'_>> {
    let (mut issues, mut waits) = (1, 0);
    let mut rest = line;
    while let Some(flag) = rest.strip_prefix('(') {
        let (flag, after) = flag.split_once(')')?;
        let count = |name: &str| flag.strip_prefix(name).and_then(|digits| digits.parse::<u64>().ok());
        issues += count("rpt").unwrap_or(0);
        waits += count("nop").unwrap_or(0);
        rest = after.trim_start();
    }
    let (word, operands) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
    let mnemonic = word.split('.').next().unwrap_or_default();
    if !mnemonic.starts_with(|c: char| c.is_ascii_lowercase()) {
        return None;
    }
    let target = operands.split('#').nth(1).filter(|target| target.starts_with('l'));
    Some(Instruction { mnemonic, target: target.map(str::trim_end), issues, waits })
}

#[cfg(test)]
mod tests {
    use super::{Loop, hot_loop, packed_dots};

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

    #[test]
    fn a_loop_costs_repeats_and_nops() {
        // 1 + 1 + 3 + (3 + 1) + 2 + 1 slots, of them 3 + 1 multiply-adds.
        let assembly = "\
            @in(r48.x)\tin0 (wrmask=0x7)\n\
            mad.f32 r9.x, r9.y, r9.z, r9.w\n\
            l2:\n\
            cmps.s.eq p0.x, r0.x, 0\n\
            br p0.x, #l9\n\
            (sy)(rpt2)mad.f32 r1.x, r2.x, r3.x, (last)r1.x\n\
            (nop3) mad.f16 hr1.x, hr2.x, hr3.x, hr1.x\n\
            (rpt1)nop\n\
            jump #l2\n\
            l9:\n\
            end\n";
        assert_eq!(hot_loop(assembly), Some(Loop { slots: 12, multiply_adds: 4 }));
    }

    #[test]
    fn the_hot_loop_is_innermost_and_has_the_most_multiply_adds() {
        let assembly = "\
            l0:\n\
            (rpt7)mad.f32 r1.x, r2.x, r3.x, r1.x\n\
            l1:\n\
            madsh.m16 r0.x, r0.y, r0.z, r0.w\n\
            mad.f32 r1.x, r2.x, r3.x, r1.x\n\
            br p0.x, #l1\n\
            l4:\n\
            (rpt1)dp4acc.unsigned.low r1.x, r0.y, c2.x, r1.x\n\
            br p0.x, #l4\n\
            br p0.y, #l0\n\
            end\n";
        assert_eq!(hot_loop(assembly), Some(Loop { slots: 3, multiply_adds: 2 }));
    }

    #[test]
    fn a_second_way_back_makes_no_second_loop() {
        let assembly = "\
            l0:\n\
            mad.f32 r1.x, r2.x, r3.x, r1.x\n\
            br p0.x, #l0\n\
            nop\n\
            (ss)br !p0.y, #l0\n\
            end\n";
        assert_eq!(hot_loop(assembly), Some(Loop { slots: 4, multiply_adds: 1 }));
    }

    #[test]
    fn code_without_such_a_loop_has_none() {
        assert_eq!(hot_loop(""), None);
        assert_eq!(hot_loop("br p0.x, #l2\nmad.f32 r1.x, r2.x, r3.x, r1.x\nl2:\nend\n"), None);
        assert_eq!(hot_loop("l0:\nadd.u r0.x, r0.x, 1\nbr p0.x, #l0\nend\n"), None);
    }
}
