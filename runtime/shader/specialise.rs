//! Drops from a kernel the code that its spec constants rule out, so that a driver does not have to.
//!
//! A template holds every function of its family, and a pipeline needs one: drivers translate all of it before they see
//! that. Only branches are decided here, on spec constants and what is computed of them; what is left computes what it
//! computed. Whatever the module has that is not understood here stays as it is. Knows SPIR-V and no kernel.

use std::ops::Range;

/// Words before the first instruction.
const HEADER_WORDS: usize = 5;

mod op {
    pub const NAME: u32 = 5;
    pub const CAPABILITY: u32 = 17;
    pub const CONSTANT_TRUE: u32 = 41;
    pub const CONSTANT_FALSE: u32 = 42;
    pub const CONSTANT: u32 = 43;
    pub const SPEC_CONSTANT_TRUE: u32 = 48;
    pub const SPEC_CONSTANT_FALSE: u32 = 49;
    pub const SPEC_CONSTANT: u32 = 50;
    pub const SPEC_CONSTANT_OP: u32 = 52;
    pub const FUNCTION: u32 = 54;
    pub const STORE: u32 = 62;
    pub const COPY_MEMORY: u32 = 63;
    pub const DECORATE: u32 = 71;
    pub const CONTROL_BARRIER: u32 = 224;
    pub const MEMORY_BARRIER: u32 = 225;
    pub const ATOMIC_STORE: u32 = 228;
    pub const PHI: u32 = 245;
    pub const LOOP_MERGE: u32 = 246;
    pub const SELECTION_MERGE: u32 = 247;
    pub const LABEL: u32 = 248;
    pub const BRANCH: u32 = 249;
    pub const BRANCH_CONDITIONAL: u32 = 250;
    pub const SWITCH: u32 = 251;
    pub const RETURN: u32 = 253;
    pub const RETURN_VALUE: u32 = 254;
    pub const UNREACHABLE: u32 = 255;
}

/// Capabilities of operations among the lanes of a subgroup: `GroupNonUniform` and what builds on it.
const AMONG_LANES: Range<u32> = 61..69;

/// The decoration that gives a spec constant its number.
const SPEC_ID: u32 = 1;

/// `spirv` without what the values of `spec`, pairs of id and value, rule out; all of it where something is not
/// understood, and where lanes share values: Mesa on the CPU makes such products seven times slower once they are cut.
pub fn specialise(spirv: Vec<u32>, spec: &[(u32, u32)]) -> Vec<u32> {
    Module::read(&spirv).and_then(|module| module.pruned(spec)).unwrap_or(spirv)
}

/// An instruction: its opcode and where it lies.
#[derive(Clone)]
struct Instruction {
    op: u32,
    at: Range<usize>,
}

struct Module<'a> {
    words: &'a [u32],
    instructions: Vec<Instruction>,
}

/// A basic block by places in the list of instructions.
struct Block {
    /// From its label to the end of its terminator.
    body: Range<usize>,
    merge: Option<usize>,
    targets: Vec<u32>,
    /// What replaces the terminator, and whether the merge instruction before it goes.
    decided: Option<(Vec<u32>, bool)>,
    reached: bool,
}

impl<'a> Module<'a> {
    fn read(words: &'a [u32]) -> Option<Module<'a>> {
        let (mut at, mut instructions) = (HEADER_WORDS, Vec::new());
        while let Some(first) = words.get(at) {
            let end = at + (first >> 16).max(1) as usize;
            words.get(at..end)?;
            instructions.push(Instruction { op: first & 0xffff, at: at..end });
            at = end;
        }
        Some(Module { words, instructions })
    }

    /// The operands of an instruction.
    fn operands(&self, instruction: &Instruction) -> &'a [u32] {
        self.words.get(instruction.at.start + 1..instruction.at.end).unwrap_or_default()
    }

    /// The largest id and one more.
    fn bound(&self) -> usize {
        self.words.get(3).copied().unwrap_or(0).min(1 << 22) as usize
    }

    /// The values of constants of 32 bits and of truth values, by id.
    fn constants(&self, spec: &[(u32, u32)]) -> Vec<Option<u32>> {
        let mut spec_ids = vec![None; self.bound()];
        let mut known = vec![None; self.bound()];
        for instruction in &self.instructions {
            let operands = self.operands(instruction);
            let given = |id: u32, default: u32| {
                let number: Option<u32> = spec_ids.get(id as usize).copied().flatten();
                let value = spec.iter().find(|(spec_id, _)| number == Some(*spec_id));
                value.map_or(default, |(_, value)| *value)
            };
            let (id, value) = match (instruction.op, operands) {
                (op::DECORATE, &[id, SPEC_ID, number]) => {
                    if let Some(slot) = spec_ids.get_mut(id as usize) {
                        *slot = Some(number);
                    }
                    continue;
                }
                (op::CONSTANT_TRUE, &[_, id]) => (id, Some(1)),
                (op::CONSTANT_FALSE, &[_, id]) => (id, Some(0)),
                (op::CONSTANT, &[_, id, value]) => (id, Some(value)),
                (op::SPEC_CONSTANT_TRUE, &[_, id]) => (id, Some(given(id, 1))),
                (op::SPEC_CONSTANT_FALSE, &[_, id]) => (id, Some(given(id, 0))),
                (op::SPEC_CONSTANT, &[_, id, default]) => (id, Some(given(id, default))),
                (op::SPEC_CONSTANT_OP, [_, id, code, operands @ ..]) => {
                    (*id, computed(*code, operands, &known))
                }
                (code, [_, id, operands @ ..]) if is_computed(code) => {
                    (*id, computed(code, operands, &known))
                }
                _ => continue,
            };
            if let Some(slot) = known.get_mut(id as usize) {
                *slot = value;
            }
        }
        known
    }

    fn shares_among_lanes(&self) -> bool {
        let mut capabilities = self.instructions.iter().take_while(|next| next.op == op::CAPABILITY);
        capabilities.any(|next| self.operands(next).first().is_some_and(|id| AMONG_LANES.contains(id)))
    }

    fn pruned(&self, spec: &[(u32, u32)]) -> Option<Vec<u32>> {
        if self.shares_among_lanes() {
            return None;
        }
        let known = self.constants(spec);
        let start = self.instructions.iter().position(|instruction| instruction.op == op::FUNCTION)?;
        let mut block_of = vec![None; self.bound()];
        let mut blocks: Vec<Block> = Vec::new();
        let mut index = start;
        while index < self.instructions.len() {
            if self.instructions[index].op == op::LABEL {
                let block = self.block(index, &known)?;
                *block_of.get_mut(*self.operands(&self.instructions[index]).first()? as usize)? =
                    Some(blocks.len());
                index = block.body.end;
                blocks.push(block);
            } else {
                index += 1;
            }
        }
        let block_at = |label: &u32| block_of.get(*label as usize).copied().flatten();
        self.reach(&mut blocks, block_at)?;
        self.unwrap_switches(&mut blocks, block_at)?;
        if blocks.iter().all(|block| block.reached && block.decided.is_none()) {
            return None;
        }
        let gone = self.gone(&blocks);
        let merged_to = self.merged_to(&blocks)?;
        let mut out = self.words.get(..HEADER_WORDS)?.to_vec();
        let mut index = 0;
        let mut next_block = blocks.iter().peekable();
        while let Some(instruction) = self.instructions.get(index) {
            if next_block.peek().is_some_and(|block| block.body.start == index) {
                let block = next_block.next()?;
                if block.reached {
                    self.write_block(block, &blocks, block_at, &gone, &mut out)?;
                } else if *merged_to.get(*self.operands(instruction).first()? as usize)? {
                    out.extend_from_slice(self.words.get(instruction.at.clone())?);
                    out.push(1 << 16 | op::UNREACHABLE);
                }
                index = block.body.end;
                continue;
            }
            let names = matches!(instruction.op, op::NAME | op::DECORATE);
            let is_gone = |id: &u32| gone.get(*id as usize) == Some(&true);
            if !(names && self.operands(instruction).first().is_some_and(is_gone)) {
                out.extend_from_slice(self.words.get(instruction.at.clone())?);
            }
            index += 1;
        }
        Some(out)
    }

    /// The block whose label is at `start`.
    fn block(&self, start: usize, known: &[Option<u32>]) -> Option<Block> {
        let length = self.instructions[start..].iter().position(|instruction| ends_block(instruction.op))?;
        let last = start + length;
        let terminator = &self.instructions[last];
        let operands = self.operands(terminator);
        let before = &self.instructions[last - 1];
        let merge = matches!(before.op, op::SELECTION_MERGE | op::LOOP_MERGE).then_some(last - 1);
        let value = |id: &u32| known.get(*id as usize).copied().flatten();
        let mut block =
            Block { body: start..last + 1, merge, targets: Vec::new(), decided: None, reached: false };
        match (terminator.op, operands) {
            (op::BRANCH, &[target]) => block.targets = vec![target],
            (op::BRANCH_CONDITIONAL, [condition, yes, no, ..]) => match value(condition) {
                Some(holds) => {
                    let target = if holds != 0 { *yes } else { *no };
                    block.targets = vec![target];
                    block.decided =
                        Some((vec![2 << 16 | op::BRANCH, target], before.op == op::SELECTION_MERGE));
                }
                None => block.targets = vec![*yes, *no],
            },
            (op::SWITCH, [selector, default, cases @ ..]) => {
                let (cases, rest) = cases.as_chunks::<2>();
                if !rest.is_empty() {
                    return None;
                }
                match value(selector).filter(|_| !cases.is_empty()) {
                    Some(selected) => {
                        let case = cases.iter().find(|[literal, _]| *literal == selected);
                        let target = case.map_or(*default, |[_, target]| *target);
                        block.targets = vec![target];
                        // It stays a switch, as blocks inside may leave it from any depth: see `unwrap_switches`.
                        block.decided = Some((vec![3 << 16 | op::SWITCH, *selector, target], false));
                    }
                    None => {
                        block.targets =
                            std::iter::once(*default).chain(cases.iter().map(|[_, to]| *to)).collect();
                    }
                }
            }
            (op::RETURN | op::RETURN_VALUE | op::UNREACHABLE, _) => {}
            _ => return None,
        }
        Some(block)
    }

    /// Marks the blocks that can be reached from the start of their function.
    fn reach(&self, blocks: &mut [Block], block_at: impl Fn(&u32) -> Option<usize>) -> Option<()> {
        let mut pending: Vec<usize> = Vec::new();
        for (number, block) in blocks.iter().enumerate() {
            // A function begins with its first block.
            let before = self.instructions.get(block.body.start.checked_sub(1)?)?;
            if !ends_block(before.op) {
                pending.push(number);
            }
        }
        while let Some(number) = pending.pop() {
            let block = blocks.get_mut(number)?;
            if !std::mem::replace(&mut block.reached, true) {
                for target in block.targets.clone() {
                    pending.push(block_at(&target)?);
                }
            }
        }
        // A loop has a block that continues it, whether or not that can be reached. One that only jumps back stays.
        let merges = blocks.iter().filter(|block| block.reached).filter_map(|block| block.merge);
        let loops: Vec<usize> =
            merges.filter(|&merge| self.instructions[merge].op == op::LOOP_MERGE).collect();
        for merge in loops {
            let continues = blocks.get_mut(block_at(self.operands(&self.instructions[merge]).get(1)?)?)?;
            if !continues.reached && continues.body.len() != 2 {
                return None;
            }
            continues.reached = true;
        }
        Some(())
    }

    /// Turns a switch without cases into a jump where what is left of it is one line of blocks up to its merge block.
    /// Compilers write such a switch around a function with several returns, and drivers make a loop of it, which
    /// keeps Mesa from unrolling the loop around it.
    fn unwrap_switches(&self, blocks: &mut [Block], block_at: impl Fn(&u32) -> Option<usize>) -> Option<()> {
        // What lies inside comes later, and is unwrapped first.
        for number in (0..blocks.len()).rev() {
            let block = &blocks[number];
            let terminator = &self.instructions[block.body.end - 1];
            let (Some(merge), &[inside]) = (block.merge, block.targets.as_slice()) else { continue };
            if !block.reached || terminator.op != op::SWITCH {
                continue;
            }
            let end = block_at(self.operands(&self.instructions[merge]).first()?)?;
            let mut at = block_at(&inside)?;
            while at != end {
                let keeps_merge = blocks[at].merge.is_some()
                    && !blocks[at].decided.as_ref().is_some_and(|(_, drops_merge)| *drops_merge);
                match blocks[at].targets.as_slice() {
                    [next] if !keeps_merge => at = block_at(next)?,
                    _ => break,
                }
            }
            if at == end {
                blocks[number].decided = Some((vec![2 << 16 | op::BRANCH, inside], true));
            }
        }
        Some(())
    }

    /// Which labels blocks that stay name as their merge blocks.
    fn merged_to(&self, blocks: &[Block]) -> Option<Vec<bool>> {
        let mut merged_to = vec![false; self.bound()];
        for block in blocks.iter().filter(|block| block.reached) {
            let drops_merge = block.decided.as_ref().is_some_and(|(_, drops_merge)| *drops_merge);
            if let Some(merge) = block.merge.filter(|_| !drops_merge) {
                let label = self.operands(&self.instructions[merge]).first()?;
                *merged_to.get_mut(*label as usize)? = true;
            }
        }
        Some(merged_to)
    }

    fn write_block(
        &self,
        block: &Block,
        blocks: &[Block],
        block_at: impl Fn(&u32) -> Option<usize>,
        gone: &[bool],
        out: &mut Vec<u32>,
    ) -> Option<()> {
        let last = block.body.end - 1;
        let label = *self.operands(&self.instructions[block.body.start]).first()?;
        for index in block.body.clone() {
            let instruction = &self.instructions[index];
            match &block.decided {
                Some((_, true)) if Some(index) == block.merge => continue,
                Some((terminator, _)) if index == last => {
                    out.extend_from_slice(terminator);
                    continue;
                }
                _ => {}
            }
            if instruction.op != op::PHI {
                out.extend_from_slice(self.words.get(instruction.at.clone())?);
                continue;
            }
            let (head, pairs) = self.operands(instruction).split_at_checked(2)?;
            let comes_from = |parent: &u32| {
                let parent = block_at(parent).and_then(|number| blocks.get(number));
                parent.is_some_and(|parent| parent.reached && parent.targets.contains(&label))
            };
            let pairs = pairs.as_chunks::<2>().0.iter().filter(|[_, parent]| comes_from(parent));
            let pairs: Vec<[u32; 2]> = pairs.copied().collect();
            if pairs.iter().any(|[value, _]| gone.get(*value as usize) == Some(&true)) {
                return None;
            }
            out.push(((3 + 2 * pairs.len()) as u32) << 16 | op::PHI);
            out.extend_from_slice(head);
            out.extend(pairs.iter().flatten());
        }
        Some(())
    }

    /// Which ids only blocks that go have defined.
    fn gone(&self, blocks: &[Block]) -> Vec<bool> {
        let mut gone = vec![false; self.bound()];
        for block in blocks.iter().filter(|block| !block.reached) {
            for instruction in &self.instructions[block.body.clone()] {
                if let Some(slot) = self.result(instruction).and_then(|id| gone.get_mut(id as usize)) {
                    *slot = true;
                }
            }
        }
        gone
    }

    /// What an instruction inside a block defines.
    fn result(&self, instruction: &Instruction) -> Option<u32> {
        let operands = self.operands(instruction);
        match instruction.op {
            op::LABEL => operands.first().copied(),
            op::STORE | op::COPY_MEMORY | op::CONTROL_BARRIER | op::MEMORY_BARRIER | op::ATOMIC_STORE => None,
            op::SELECTION_MERGE | op::LOOP_MERGE => None,
            op if ends_block(op) => None,
            _ => operands.get(1).copied(),
        }
    }
}

fn ends_block(op: u32) -> bool {
    matches!(op, op::BRANCH..=op::UNREACHABLE)
}

/// Whether `computed` knows the operation.
fn is_computed(code: u32) -> bool {
    computed(code, &[0, 0, 0], &[Some(0)]).is_some()
}

/// The result of an operation of 32-bit integers or truth values, where its operands are known.
fn computed(code: u32, operands: &[u32], known: &[Option<u32>]) -> Option<u32> {
    let at = |index: usize| known.get(*operands.get(index)? as usize).copied().flatten();
    let two = || Some((at(0)?, at(1)?));
    let all = |holds: fn(u32, u32) -> bool| two().map(|(a, b)| u32::from(holds(a, b)));
    match code {
        128 => two().map(|(a, b)| a.wrapping_add(b)),
        130 => two().map(|(a, b)| a.wrapping_sub(b)),
        132 => two().map(|(a, b)| a.wrapping_mul(b)),
        164 | 170 => all(|a, b| a == b),
        165 | 171 => all(|a, b| a != b),
        166 => all(|a, b| a != 0 || b != 0),
        167 => all(|a, b| a != 0 && b != 0),
        168 => at(0).map(|a| u32::from(a == 0)),
        169 => {
            if at(0)? != 0 {
                at(1)
            } else {
                at(2)
            }
        }
        172 => all(|a, b| a > b),
        174 => all(|a, b| a >= b),
        176 => all(|a, b| a < b),
        178 => all(|a, b| a <= b),
        194 => two().map(|(a, b)| a.checked_shr(b).unwrap_or(0)),
        196 => two().map(|(a, b)| a.checked_shl(b).unwrap_or(0)),
        197 => two().map(|(a, b)| a | b),
        199 => two().map(|(a, b)| a & b),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{Access, Bundle, KernelRef, TemplateId, kernels, spirv},
        *,
    };

    /// Every variant, by its name.
    fn variants() -> Vec<(String, Vec<u32>)> {
        let mut all = Vec::new();
        for (number, template) in (0..).zip(kernels::TEMPLATES) {
            let bundle = Bundle::inflate(template).unwrap();
            for variant in template.variants {
                let kernel = KernelRef { template: TemplateId(number), variant: variant.point };
                let words = bundle.words(kernel, variant.access).unwrap();
                all.push((format!("{} {}", template.name, variant.axes), words));
            }
        }
        all
    }

    #[test]
    fn one_function_of_many_is_left() {
        let unary = kernels::unary::Axes { dtype: kernels::unary::Dtype::F32 };
        let whole = spirv(unary.kernel(), Access::Ssbo).unwrap();
        for &op in kernels::unary::Op::ALL {
            let left = specialise(whole.clone(), &[(2, op as u32)]).len();
            assert!(left < whole.len() / 4, "{}: {left} of {} words", op.name(), whole.len());
        }
    }

    #[test]
    fn what_is_left_is_whole_and_has_nothing_more_to_drop() {
        let mut dropped = 0;
        for (name, words) in variants() {
            for value in 0..3 {
                let spec: Vec<(u32, u32)> = (2..9).map(|id| (id, value)).collect();
                let left = specialise(words.clone(), &spec);
                assert_eq!(left[..HEADER_WORDS], words[..HEADER_WORDS], "{name}");
                let module = Module::read(&left).unwrap_or_else(|| panic!("{name} is cut off"));
                assert!(module.instructions.len() > 10, "{name}");
                assert_eq!(specialise(left.clone(), &spec), left, "{name}");
                dropped += usize::from(left.len() < words.len());
            }
        }
        assert!(dropped > 100, "{dropped} variants");
    }

    #[test]
    fn what_is_not_understood_stays_as_it_is() {
        for words in [vec![], vec![0x0723_0203, 0, 0, 9, 0], vec![0x0723_0203, 0, 0, 9, 0, 7 << 16 | 54, 1]] {
            assert_eq!(specialise(words.clone(), &[]), words);
        }
        // Words of a kernel that were damaged give some module or the same words, and no panic.
        let unary = kernels::unary::Axes { dtype: kernels::unary::Dtype::F32 };
        let whole = spirv(unary.kernel(), Access::Ssbo).unwrap();
        for seed in 0..200u32 {
            let mut words = whole.clone();
            let at = seed.wrapping_mul(2_654_435_761) as usize % words.len();
            words[at] ^= 1 << (seed % 32);
            specialise(words, &[(2, 5)]);
        }
    }
}
