//! The steps of a chain: their text, the words that the kernel reads, their values on the host, and how calls in a graph
//! become steps. Knows no graph: values are of any type that can be told apart.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use super::{
    call::{Call, Term},
    functions::{self, Element, arity, default_numbers, is_rounding, takes_ints},
};
use crate::shader::kernels::pointwise_chain::{Op, Source, Spec};

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
/// As text they are separated by `; `, each `FUNCTION OPERAND... [a=NUMBER] [b=NUMBER] [c=NUMBER] [-> SLOT]`, as in
/// `silu x; mul last z -> slot_0; add last 1.0; clamp last a=0.0 b=6.0`. An operand is `x`, `z` or `w` (an input), `last` (the
/// result of the step before, and `x` before the first), `slot_0` to `slot_3`, or a number (two at most).
#[derive(Clone, Debug, PartialEq)]
pub struct Steps(Vec<Step>);

#[derive(Clone, Debug, PartialEq)]
struct Step {
    op: Op,
    left: Source,
    /// Of a function of two operands or three.
    right: Option<Source>,
    /// Of a function of three operands.
    third: Option<Source>,
    numbers: [f32; 3],
    /// Where the result also goes: a place in [`SLOTS`].
    slot: Option<usize>,
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
        // What is stored is rounded in any case.
        if kept.len() > 1
            && let Some((_, call, result)) = kept.pop_if(|(op, ..)| is_rounding(*op))
        {
            same.insert(result, call.values().next()?);
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
                    Term::NumberC => Source::NumberC,
                    // Ints are in inputs only.
                    Term::Value(value) if takes_ints(*op) && results.contains(&source(value)) => return None,
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
            let mut operands = operands.into_iter();
            let (left, right, third) = (operands.next()?, operands.next(), operands.next());
            steps.push(Step { op: *op, left, right, third, numbers: call.numbers, slot });
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
            for source in step.sources() {
                let is_there = match source {
                    Source::Z => n_inputs > 1,
                    Source::W => n_inputs > 2,
                    Source::Last | Source::Number | Source::NumberC | Source::X => true,
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
            let (op, [left, right, third]) = (step.op as u32, step.encoded(index == 0));
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
            if step.third.is_some() {
                spec.thirds |= 1 << third as u32;
            }
            spec.slots |= step.slot.map_or(0, |slot| 1 << slot);
        }
        spec
    }

    /// Which inputs are read as ints.
    pub fn int_inputs(&self) -> [bool; MAX_INPUTS] {
        let reads = |input| {
            self.0.iter().any(|step| takes_ints(step.op) && step.sources().any(|source| source == input))
        };
        INPUTS.map(reads)
    }

    /// With every number that is chosen or not no larger than `largest`.
    pub fn with_choices_within(mut self, largest: f32) -> Steps {
        for step in self.0.iter_mut().filter(|step| step.op == Op::Choose) {
            step.numbers = step.numbers.map(|v| if v.is_finite() { v.clamp(-largest, largest) } else { v });
        }
        self
    }

    /// The result for one element of each input, every step rounded to float32.
    pub fn eval(&self, [x, z, w]: [Element; MAX_INPUTS]) -> f64 {
        let (mut last, mut slots) = (x, [Element::default(); SLOTS.len()]);
        for step in &self.0 {
            let numbers = step.numbers.map(f64::from);
            let take = |source| match source {
                Source::Last => last,
                Source::Number => numbers[1].into(),
                Source::NumberC => numbers[2].into(),
                Source::X => x,
                Source::Z => z,
                Source::W => w,
                Source::Slot0 => slots[0],
                Source::Slot1 => slots[1],
                Source::Slot2 => slots[2],
                Source::Slot3 => slots[3],
            };
            let operands = [Some(step.left), step.right, step.third].map(|source| source.map_or(x, take));
            last = f64::from(functions::eval(step.op, numbers, operands) as f32).into();
            step.slot.into_iter().for_each(|slot| slots[slot] = last);
        }
        last.float
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

/// The place of the number that an operand is.
fn number_of(source: Source) -> Option<usize> {
    match source {
        Source::Number => Some(1),
        Source::NumberC => Some(2),
        _ => None,
    }
}

impl Step {
    /// Where its operands are.
    fn sources(&self) -> impl Iterator<Item = Source> + use<> {
        [Some(self.left), self.right, self.third].into_iter().flatten()
    }

    /// The function, where its operands are and where its result goes, as the kernel takes them.
    fn head(&self, is_first: bool) -> u32 {
        let slot = self.slot.map_or(0, |slot| slot as u32 + 1);
        let [left, right, third] = self.encoded(is_first).map(|source| source as u32);
        self.op as u32 | left << 8 | right << 12 | slot << 16 | third << 24
    }

    /// The operands as the kernel takes them: x is also what came last before the first step, as a float.
    fn encoded(&self, is_first: bool) -> [Source; 3] {
        let is_last = is_first && !takes_ints(self.op);
        [Some(self.left), self.right, self.third].map(|source| match source {
            Some(Source::X) if is_last => Source::Last,
            source => source.unwrap_or(Source::Last),
        })
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
            } else if let Some(source) = Source::named(word).filter(|source| number_of(*source).is_none()) {
                operands.push(source);
            } else {
                let is_free = |number: &Source| !operands.contains(number);
                let source = [Source::Number, Source::NumberC].into_iter().find(is_free)?;
                numbers[number_of(source)?] = word.parse().ok()?;
                operands.push(source);
            }
        }
        let n_operands = operands.len();
        let mut operands = operands.into_iter();
        let (left, right, third) = (operands.next()?, operands.next(), operands.next());
        if n_operands != arity(op) {
            return None;
        }
        Some(Step { op, left, right, third, numbers, slot })
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.op.name())?;
        for source in self.sources() {
            match number_of(source) {
                Some(number) => write!(f, " {:?}", self.numbers[number])?,
                None => write!(f, " {}", source.name())?,
            }
        }
        let defaults = default_numbers(self.op);
        for (index, name) in ["a", "b", "c"].into_iter().enumerate() {
            let is_operand = self.sources().any(|source| number_of(source) == Some(index));
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
