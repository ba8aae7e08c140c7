//! The steps of a chain: their text, the words that the kernel reads, their values on the host, and how calls in a graph
//! become steps. Knows no graph: values are of any type that can be told apart.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use crate::{
    ops::{binary, unary},
    shader::kernels::{
        self,
        pointwise_chain::{Op, Source, Spec},
    },
};

/// Tensors that a chain reads: a kernel binds four buffers, of which the result is one.
pub const MAX_INPUTS: usize = 3;

/// Tensors that a chain reads whose steps do not fit the pipeline: they take a buffer too.
const MAX_INPUTS_BESIDE_STEPS: usize = 2;

/// Steps that a pipeline holds, and their numbers.
const FIXED_STEPS: usize = 16;
const FIXED_NUMBERS: usize = 16;

/// Where inputs are.
const INPUTS: [Source; MAX_INPUTS] = [Source::X, Source::Z, Source::W];

/// Steps of a chain at most, which bounds how long an invocation runs.
pub const MAX_STEPS: usize = 256;

/// Where a result may wait for a later step.
const SLOTS: [Source; 4] = [Source::Slot0, Source::Slot1, Source::Slot2, Source::Slot3];

/// Steps of a chain, at least one.
///
/// As text they are separated by `; `, each `FUNCTION OPERAND [OPERAND] [a=NUMBER] [b=NUMBER] [c=NUMBER] [-> SLOT]`, as in
/// `silu x; mul last z -> slot_0; add last 1.0; clamp last a=0.0 b=6.0`. An operand is `x`, `z` or `w` (an input), `last` (the
/// result of the step before, and `x` before the first), `slot_0` to `slot_3`, or a number.
#[derive(Clone, Debug, PartialEq)]
pub struct Steps(Vec<Step>);

#[derive(Clone, Debug, PartialEq)]
struct Step {
    op: Op,
    left: Source,
    /// Of a function of two operands.
    right: Option<Source>,
    numbers: [f32; 3],
    /// Where the result also goes: a place in [`SLOTS`].
    slot: Option<usize>,
}

/// How a function is computed on the host.
enum Function {
    Unary(kernels::unary::Op),
    Binary(kernels::binary::Op),
}

fn function(op: Op) -> Option<Function> {
    let unary = kernels::unary::Op::named(op.name()).map(Function::Unary);
    unary.or_else(|| kernels::binary::Op::named(op.name()).map(Function::Binary))
}

fn takes_two(op: Op) -> bool {
    matches!(function(op), Some(Function::Binary(_)))
}

/// The numbers of a function that says nothing about them: alpha is 1.
fn default_numbers(op: Op) -> [f32; 3] {
    [if takes_two(op) { 1.0 } else { 0.0 }, 0.0, 0.0]
}

/// An operand of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Term<V> {
    /// A tensor.
    Value(V),
    /// The number b of the call.
    Number,
}

/// One element-wise call as a step takes it.
#[derive(Clone, Debug)]
pub struct Call<V> {
    /// The function; `None` where the result is the operand.
    pub op: Option<Op>,
    /// The numbers a, b and c.
    pub numbers: [f32; 3],
    /// One operand or two.
    pub operands: Vec<Term<V>>,
}

impl<V> Call<V> {
    /// The call that gives its operand.
    pub fn same(value: V) -> Call<V> {
        Call { op: None, numbers: [0.0; 3], operands: vec![Term::Value(value)] }
    }

    /// The same call of other values.
    pub fn map<W>(self, mut map: impl FnMut(V) -> W) -> Call<W> {
        let term = |operand| match operand {
            Term::Value(value) => Term::Value(map(value)),
            Term::Number => Term::Number,
        };
        let operands = self.operands.into_iter().map(term).collect();
        Call { op: self.op, numbers: self.numbers, operands }
    }

    /// The values that it reads.
    pub fn values(&self) -> impl Iterator<Item = V> + '_
    where
        V: Copy,
    {
        self.operands.iter().filter_map(|operand| match operand {
            Term::Value(value) => Some(*value),
            Term::Number => None,
        })
    }
}

impl Steps {
    /// The steps that compute the result of the last of `calls`, each given with the value of its result, and the inputs
    /// that they read. `None` where they need more inputs, slots or steps than there are.
    pub fn of<V: Copy + Ord>(calls: &[(Call<V>, V)]) -> Option<(Vec<V>, Steps)> {
        let mut same = BTreeMap::new();
        let mut kept: Vec<(Op, &Call<V>, V)> = Vec::new();
        for (call, result) in calls {
            match call.op {
                Some(op) => kept.push((op, call, *result)),
                None => drop(same.insert(*result, call.values().next()?)),
            }
        }
        let source = |mut value: V| {
            while let Some(&operand) = same.get(&value) {
                value = operand;
            }
            value
        };
        let mut last_reads = BTreeMap::new();
        for (index, (_, call, _)) in kept.iter().enumerate() {
            last_reads.extend(call.values().map(|value| (source(value), index)));
        }
        let mut registers = Registers { inputs: Vec::new(), slots: [None; SLOTS.len()], last: None };
        let results: BTreeSet<V> = kept.iter().map(|(_, _, result)| *result).collect();
        let mut steps = Vec::with_capacity(kept.len());
        for (index, (op, call, result)) in kept.iter().enumerate() {
            let mut operands = Vec::new();
            for &operand in &call.operands {
                operands.push(match operand {
                    Term::Number => Source::Number,
                    Term::Value(value) => registers.find(source(value), &results)?,
                });
            }
            let read_until = |value: &V| last_reads.get(value).copied().unwrap_or(0);
            registers.slots.iter_mut().for_each(|slot| *slot = slot.filter(|held| read_until(held) > index));
            registers.last = Some(*result);
            let slot = match read_until(result) > index + 1 {
                true => Some(registers.keep(*result)?),
                false => None,
            };
            let (left, right) = (*operands.first()?, operands.get(1).copied());
            steps.push(Step { op: *op, left, right, numbers: call.numbers, slot });
        }
        let fits = !steps.is_empty() && steps.len() <= MAX_STEPS && !registers.inputs.is_empty();
        let steps = Steps(steps);
        let has_place = registers.inputs.len() <= MAX_INPUTS_BESIDE_STEPS || steps.fixed().is_some();
        (fits && has_place).then_some((registers.inputs, steps))
    }

    /// Reads the text form; the chain has `n_inputs`.
    ///
    /// # Errors
    /// What is wrong with the text.
    pub fn parse(text: &str, n_inputs: usize) -> Result<Steps, String> {
        let mut written = [false; SLOTS.len()];
        let mut steps = Vec::new();
        for part in text.split("; ") {
            let step = Step::parse(part).ok_or_else(|| format!("`{part}` is no step"))?;
            for source in [Some(step.left), step.right].into_iter().flatten() {
                let is_there = match source {
                    Source::Z => n_inputs > 1,
                    Source::W => n_inputs > 2,
                    Source::Last | Source::Number | Source::X => true,
                    slot => SLOTS.iter().zip(written).any(|(known, written)| *known == slot && written),
                };
                if !is_there {
                    return Err(format!("`{part}` reads {}, which holds nothing", source.name()));
                }
            }
            step.slot.into_iter().for_each(|slot| written[slot] = true);
            steps.push(step);
        }
        let steps = Steps(steps);
        match steps.count() {
            n if n > MAX_STEPS => Err(format!("holds {n} steps; a kernel takes {MAX_STEPS}")),
            n if n_inputs > MAX_INPUTS_BESIDE_STEPS && steps.fixed().is_none() => {
                Err(format!("holds {n} steps of {n_inputs} tensors, more than a pipeline does"))
            }
            _ => Ok(steps),
        }
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// The words that the kernel reads from a buffer.
    pub fn words(&self) -> Vec<u32> {
        let words = |(index, step): (usize, &Step)| {
            let [a, b, c] = step.numbers.map(f32::to_bits);
            [step.head(index == 0), a, b, c]
        };
        self.0.iter().enumerate().flat_map(words).collect()
    }

    /// The steps and their numbers as a pipeline holds them; `None` where they are too many.
    fn fixed(&self) -> Option<([u32; FIXED_STEPS], [u32; FIXED_NUMBERS])> {
        let (mut steps, mut numbers) = ([0; FIXED_STEPS], Vec::new());
        for (index, step) in self.0.iter().enumerate() {
            let own = step.numbers.map(f32::to_bits);
            let known = numbers.windows(own.len()).position(|known| known == own);
            let at = known.unwrap_or_else(|| {
                // The last numbers may be the first of these.
                let shared = (0..own.len()).rev().find(|&n| numbers.ends_with(&own[..n])).unwrap_or(0);
                numbers.extend_from_slice(&own[shared..]);
                numbers.len() - own.len()
            });
            *steps.get_mut(index)? = step.head(index == 0) | (at as u32) << 20;
        }
        numbers.resize(numbers.len().max(FIXED_NUMBERS), 0);
        Some((steps, numbers.try_into().ok()?))
    }

    /// Whether a pipeline holds the steps, and no buffer.
    pub fn are_fixed(&self) -> bool {
        self.fixed().is_some()
    }

    /// The spec constants: the steps where they fit, and what occurs in them.
    pub fn spec(&self) -> Spec {
        let mut spec = Spec::default();
        if let Some(fixed) = self.fixed() {
            spec.n_fixed = self.count() as u32;
            put_fixed(&mut spec, fixed);
        }
        for (index, step) in self.0.iter().enumerate() {
            let (op, (left, right)) = (step.op as u32, step.encoded(index == 0));
            let functions = match op / 32 {
                0 => &mut spec.functions_0,
                1 => &mut spec.functions_1,
                _ => &mut spec.functions_2,
            };
            *functions |= 1 << (op % 32);
            spec.lefts |= 1 << left as u32;
            if step.right.is_some() {
                spec.rights |= 1 << right as u32;
            }
            spec.slots |= step.slot.map_or(0, |slot| 1 << slot);
        }
        spec
    }

    /// The result for one element of each input, every step rounded to float32.
    pub fn eval(&self, [x, z, w]: [f64; MAX_INPUTS]) -> f64 {
        let (mut last, mut slots) = (x, [0.0; SLOTS.len()]);
        for step in &self.0 {
            let [a, b, c] = step.numbers.map(f64::from);
            let take = |source| match source {
                Source::Last => last,
                Source::Number => b,
                Source::X => x,
                Source::Z => z,
                Source::W => w,
                Source::Slot0 => slots[0],
                Source::Slot1 => slots[1],
                Source::Slot2 => slots[2],
                Source::Slot3 => slots[3],
            };
            let (left, right) = (take(step.left), step.right.map_or(0.0, take));
            let result = match function(step.op) {
                Some(Function::Unary(op)) => unary::eval_float(op, [a, b, c], left),
                Some(Function::Binary(op)) => binary::eval_float(op, left, right, a),
                None => f64::NAN,
            };
            last = f64::from(result as f32);
            step.slot.into_iter().for_each(|slot| slots[slot] = last);
        }
        last
    }
}

/// Puts steps and their numbers into the spec constants that hold them.
fn put_fixed(spec: &mut Spec, (steps, numbers): ([u32; FIXED_STEPS], [u32; FIXED_NUMBERS])) {
    [
        spec.step_0,
        spec.step_1,
        spec.step_2,
        spec.step_3,
        spec.step_4,
        spec.step_5,
        spec.step_6,
        spec.step_7,
        spec.step_8,
        spec.step_9,
        spec.step_10,
        spec.step_11,
        spec.step_12,
        spec.step_13,
        spec.step_14,
        spec.step_15,
    ] = steps;
    [
        spec.number_0,
        spec.number_1,
        spec.number_2,
        spec.number_3,
        spec.number_4,
        spec.number_5,
        spec.number_6,
        spec.number_7,
        spec.number_8,
        spec.number_9,
        spec.number_10,
        spec.number_11,
        spec.number_12,
        spec.number_13,
        spec.number_14,
        spec.number_15,
    ] = numbers;
}

/// What holds which value while steps are made.
struct Registers<V> {
    inputs: Vec<V>,
    slots: [Option<V>; SLOTS.len()],
    last: Option<V>,
}

impl<V: Copy + Ord> Registers<V> {
    /// Where `value` is: a result of one of the calls, or an input.
    fn find(&mut self, value: V, results: &BTreeSet<V>) -> Option<Source> {
        if self.last == Some(value) {
            return Some(Source::Last);
        }
        if results.contains(&value) {
            let slot = self.slots.iter().position(|held| *held == Some(value))?;
            return SLOTS.get(slot).copied();
        }
        let input = self.inputs.iter().position(|held| *held == value).unwrap_or(self.inputs.len());
        if input == self.inputs.len() {
            self.inputs.push(value);
        }
        INPUTS.get(input).copied()
    }

    /// The slot that keeps `value`, if one is free.
    fn keep(&mut self, value: V) -> Option<usize> {
        let free = self.slots.iter().position(Option::is_none)?;
        self.slots[free] = Some(value);
        Some(free)
    }
}

impl Step {
    /// The function, where its operands are and where its result goes, as the kernel takes them.
    fn head(&self, is_first: bool) -> u32 {
        let slot = self.slot.map_or(0, |slot| slot as u32 + 1);
        let (left, right) = self.encoded(is_first);
        self.op as u32 | (left as u32) << 8 | (right as u32) << 12 | slot << 16
    }

    /// Both operands as the kernel takes them: x is also what came last before the first step.
    fn encoded(&self, is_first: bool) -> (Source, Source) {
        let encode = |source| if is_first && source == Source::X { Source::Last } else { source };
        (encode(self.left), encode(self.right.unwrap_or(Source::Last)))
    }

    fn parse(text: &str) -> Option<Step> {
        let (text, slot) = match text.split_once(" -> ") {
            Some((text, name)) => (text, Some(SLOTS.iter().position(|slot| slot.name() == name)?)),
            None => (text, None),
        };
        let mut words = text.split(' ');
        let op = Op::named(words.next()?)?;
        let mut numbers = default_numbers(op);
        let mut operands = Vec::new();
        for word in words {
            if let Some((name, number)) = word.split_once('=') {
                numbers[["a", "b", "c"].iter().position(|known| *known == name)?] = number.parse().ok()?;
            } else if let Some(source) = Source::named(word).filter(|source| *source != Source::Number) {
                operands.push(source);
            } else {
                numbers[1] = word.parse().ok()?;
                operands.push(Source::Number);
            }
        }
        let (left, right) = match (operands.as_slice(), takes_two(op)) {
            (&[left, right], true) => (left, Some(right)),
            (&[left], false) => (left, None),
            _ => return None,
        };
        Some(Step { op, left, right, numbers, slot })
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.op.name())?;
        let sources: Vec<Source> = [Some(self.left), self.right].into_iter().flatten().collect();
        for source in &sources {
            match source {
                Source::Number => write!(f, " {:?}", self.numbers[1])?,
                source => write!(f, " {}", source.name())?,
            }
        }
        let defaults = default_numbers(self.op);
        for (index, name) in ["a", "b", "c"].into_iter().enumerate() {
            let is_operand = index == 1 && sources.contains(&Source::Number);
            let number = self.numbers[index];
            if number.to_bits() != defaults[index].to_bits() && !is_operand {
                write!(f, " {name}={number:?}")?;
            }
        }
        self.slot.map_or(Ok(()), |slot| write!(f, " -> {}", SLOTS[slot].name()))
    }
}

impl fmt::Display for Steps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, step) in self.0.iter().enumerate() {
            write!(f, "{}{step}", if index > 0 { "; " } else { "" })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
