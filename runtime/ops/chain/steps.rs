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

/// Tensors that a chain reads: a kernel binds four buffers, of which the result and the steps take two.
pub const MAX_INPUTS: usize = 2;

/// Steps of a chain at most, which bounds how long an invocation runs.
pub const MAX_STEPS: usize = 256;

/// Where a result may wait for a later step.
const SLOTS: [Source; 4] = [Source::Slot0, Source::Slot1, Source::Slot2, Source::Slot3];

/// Steps of a chain, at least one.
///
/// As text they are separated by `; `, each `FUNCTION OPERAND [OPERAND] [a=NUMBER] [b=NUMBER] [c=NUMBER] [-> SLOT]`, as in
/// `silu x; mul last z -> slot_0; add last 1.0; clamp last a=0.0 b=6.0`. An operand is `x` or `z` (an input), `last` (the
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
        fits.then_some((registers.inputs, Steps(steps)))
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
        match steps.len() {
            0..=MAX_STEPS => Ok(Steps(steps)),
            n => Err(format!("holds {n} steps; a kernel takes {MAX_STEPS}")),
        }
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// The words that the kernel reads.
    pub fn words(&self) -> Vec<u32> {
        let words = |(index, step): (usize, &Step)| {
            let slot = step.slot.map_or(0, |slot| slot as u32 + 1);
            let (left, right) = step.encoded(index == 0);
            let head = step.op as u32 | (left as u32) << 8 | (right as u32) << 12 | slot << 16;
            let [a, b, c] = step.numbers.map(f32::to_bits);
            [head, a, b, c]
        };
        self.0.iter().enumerate().flat_map(words).collect()
    }

    /// The spec constants that say what occurs in the steps.
    pub fn spec(&self) -> Spec {
        let mut spec = Spec::default();
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
    pub fn eval(&self, x: f64, z: f64) -> f64 {
        let (mut last, mut slots) = (x, [0.0; SLOTS.len()]);
        for step in &self.0 {
            let [a, b, c] = step.numbers.map(f64::from);
            let take = |source| match source {
                Source::Last => last,
                Source::Number => b,
                Source::X => x,
                Source::Z => z,
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
        [Source::X, Source::Z].get(input).copied()
    }

    /// The slot that keeps `value`, if one is free.
    fn keep(&mut self, value: V) -> Option<usize> {
        let free = self.slots.iter().position(Option::is_none)?;
        self.slots[free] = Some(value);
        Some(free)
    }
}

impl Step {
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
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Steps, String> {
        Steps::parse(text, 2)
    }

    #[test]
    fn every_function_of_the_kernel_is_one_of_the_single_kernels() {
        for &op in Op::ALL {
            assert!(function(op).is_some(), "{}", op.name());
        }
        assert!(Op::ALL.len() <= 96, "three words hold a bit for each");
    }

    #[test]
    fn text_round_trips() {
        for text in [
            "silu x",
            "add x z a=0.5; mul last 2.5 -> slot_0; pow 2.0 last",
            "clamp x a=-inf b=6.0; elu last a=1.5 b=1.0 c=0.25 -> slot_3; maximum slot_3 NaN",
            "exp x -> slot_0; neg last; mul slot_0 last",
        ] {
            assert_eq!(parse(text).unwrap().to_string(), text);
        }
    }

    #[test]
    fn what_is_no_chain_is_refused() {
        let fault = |text: &str| parse(text).unwrap_err();
        for text in
            ["", "silu", "silu x z", "add x", "sqrts x", "add x z -> slot_4", "add x number", "add x z d=1"]
        {
            assert!(fault(text).contains("no step"), "{text}");
        }
        assert!(fault("add x slot_0").contains("slot_0"));
        assert!(Steps::parse("add x z", 1).unwrap_err().contains("reads z"));
        let long = vec!["neg last"; MAX_STEPS + 1].join("; ");
        assert!(fault(&long).contains("257 steps"));
    }

    #[test]
    fn words_say_where_operands_are() {
        let steps = parse("add x z; mul last 0.5 -> slot_1").unwrap();
        let (add, mul) = (Op::Add as u32, Op::Mul as u32);
        let words = steps.words();
        assert_eq!(words[..4], [add | 3 << 12, 1f32.to_bits(), 0, 0]);
        assert_eq!(words[4..], [mul | 1 << 12 | 2 << 16, 1f32.to_bits(), 0.5f32.to_bits(), 0]);
        let spec = steps.spec();
        assert_eq!((spec.lefts, spec.rights, spec.slots), (1, 1 << 3 | 1 << 1, 2));
        let bits =
            spec.functions_0.count_ones() + spec.functions_1.count_ones() + spec.functions_2.count_ones();
        assert_eq!(bits, 2);
    }

    fn call(name: &str, operands: &[u32], result: u32) -> (Call<u32>, u32) {
        let op = Op::named(name).unwrap();
        let operands = operands.iter().map(|&value| Term::Value(value)).collect();
        (Call { op: Some(op), numbers: default_numbers(op), operands }, result)
    }

    #[test]
    fn calls_become_steps_with_slots_for_what_is_read_later() {
        let text = |calls: &[(Call<u32>, u32)]| {
            Steps::of(calls).map(|(inputs, steps)| format!("{inputs:?} {steps}"))
        };
        let chain = [call("add", &[1, 2], 3), call("neg", &[3], 4), call("mul", &[4, 4], 5)];
        assert_eq!(text(&chain).unwrap(), "[1, 2] add x z; neg last; mul last last");
        let tree =
            [call("exp", &[1], 3), call("neg", &[2], 4), call("mul", &[3, 4], 5), call("add", &[3, 5], 6)];
        assert_eq!(text(&tree).unwrap(), "[1, 2] exp x -> slot_0; neg z; mul slot_0 last; add slot_0 last");
        let same = [call("exp", &[1], 3), (Call::same(3), 4), call("neg", &[4], 5)];
        assert_eq!(text(&same).unwrap(), "[1] exp x; neg last");
        let three_inputs = [call("add", &[1, 2], 3), call("add", &[3, 9], 4)];
        assert_eq!(text(&three_inputs), None);
    }

    #[test]
    fn slots_run_out_and_are_freed() {
        // Values 10.. each wait for the sum at the end.
        let waiting = |n: u32| {
            let mut calls: Vec<_> = (0..n).map(|i| call("exp", &[1], 10 + i)).collect();
            calls.extend(
                (1..n).map(|i| call("add", &[if i == 1 { 10 } else { 100 + i - 1 }, 10 + i], 100 + i)),
            );
            Steps::of(&calls).is_some()
        };
        assert!(waiting(4) && !waiting(5));
        let mut calls = Vec::new();
        for i in 0..50 {
            let x = if i == 0 { 1 } else { 1000 + i - 1 };
            calls.extend([
                call("exp", &[x], 10 + i),
                call("neg", &[10 + i], 100 + i),
                call("add", &[10 + i, 100 + i], 1000 + i),
            ]);
        }
        assert!(Steps::of(&calls).is_some());
        let long: Vec<_> = (0..MAX_STEPS as u32 + 1).map(|i| call("neg", &[i], i + 1)).collect();
        assert!(Steps::of(&long[..MAX_STEPS]).is_some() && Steps::of(&long).is_none());
    }

    #[test]
    fn steps_round_to_float32() {
        let steps = parse("add x 1.0; add last -1.0").unwrap();
        assert_eq!(steps.eval(1e-9, 0.0), 0.0);
        assert_eq!(parse("add x z a=2.0; mul last x").unwrap().eval(3.0, 4.0), 33.0);
        assert!(parse("relu x").unwrap().eval(f64::NAN, 0.0).is_nan());
    }
}
