//! From the inputs of a run to the values of the program's symbols, with errors that say which input is wrong.

use std::{collections::BTreeMap, sync::Arc};

use crate::{
    base::{DType, Error, Range, Result, SymEnv, SymExpr, Value},
    ir::{Method, Type, ValueId},
};

/// The largest size that symbols are tried with at build: beyond it, no kernel is chosen that is not at it.
pub const SAMPLE_CAP: i64 = 1024;

/// What a plan depends on of one user input.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum InputMeta {
    /// A tensor's dtype and sizes.
    Tensor(DType, Vec<usize>),
    /// An integer.
    Int(i64),
    /// A float, by its bits.
    Float(u64),
    /// A truth value.
    Bool(bool),
    /// Python's `None`.
    None,
}

impl InputMeta {
    /// What a plan depends on of `value`.
    pub fn of(value: &Value) -> InputMeta {
        match value {
            Value::Tensor(tensor) => InputMeta::Tensor(tensor.dtype(), tensor.sizes().to_vec()),
            Value::Int(value) => InputMeta::Int(*value),
            Value::Float(value) => InputMeta::Float(value.to_bits()),
            Value::Bool(value) => InputMeta::Bool(*value),
            Value::None => InputMeta::None,
        }
    }

    fn describe(&self) -> String {
        match self {
            InputMeta::Tensor(dtype, sizes) => format!("a {dtype} tensor of sizes {sizes:?}"),
            InputMeta::Int(value) => format!("the int {value}"),
            InputMeta::Float(bits) => format!("the float {}", f64::from_bits(*bits)),
            InputMeta::Bool(value) => format!("the bool {value}"),
            InputMeta::None => "None".to_string(),
        }
    }
}

/// What tells plans of one method apart.
pub type ShapeKey = Vec<InputMeta>;

/// Checks the inputs of a run against the method and finds the value of every symbol.
///
/// # Errors
/// [`ErrorKind::InvalidInput`](crate::base::ErrorKind::InvalidInput): a wrong number of inputs, or an input's
/// dtype, rank or size, naming the input, what was expected and what was given.
pub fn bind_inputs(method: &Method, inputs: &[InputMeta]) -> Result<SymEnv> {
    let graph = &method.graph;
    let declared: Vec<ValueId> = graph.user_inputs().collect();
    if declared.len() != inputs.len() {
        let names: Vec<String> = declared.iter().map(|&value| graph.value_name(value)).collect();
        return Err(Error::invalid_input(format!(
            "method `{}` takes {} inputs ({}), {} were given",
            graph.name(),
            declared.len(),
            names.join(", "),
            inputs.len()
        )));
    }
    let mut binder = Binder { env: SymEnv::new(), pending: Vec::new() };
    for (index, (&value, given)) in declared.iter().zip(inputs).enumerate() {
        let name = format!("input {index} `{}`", graph.value_name(value));
        if let Some(fixed) = method.fixed_inputs.get(&graph.value_name(value)) {
            let expected = InputMeta::of(fixed);
            if *given != expected {
                let (want, got) = (expected.describe(), given.describe());
                return Err(Error::invalid_input(format!(
                    "{name}: the program was exported for {want} only, got {got}"
                )));
            }
            continue;
        }
        binder.bind_one(name, &graph.value(value)?.ty, given)?;
    }
    binder.solve_pending()?;
    check_ranges(&method.ranges, &binder.env)?;
    Ok(binder.env)
}

struct Pending {
    name: String,
    expr: SymExpr,
    given: i64,
}

struct Binder {
    env: SymEnv,
    pending: Vec<Pending>,
}

impl Binder {
    fn bind_one(&mut self, name: String, declared: &Type, given: &InputMeta) -> Result<()> {
        let wrong = |expected: &str| {
            Error::invalid_input(format!("{name}: expected {expected}, got {}", given.describe()))
        };
        match (declared, given) {
            (Type::Tensor(tensor), InputMeta::Tensor(dtype, sizes)) => {
                let expected = declared.to_string();
                if *dtype != tensor.dtype || sizes.len() != tensor.sizes.len() {
                    return Err(wrong(&expected));
                }
                for (dim, (expr, &size)) in tensor.sizes.iter().zip(sizes).enumerate() {
                    let given = i64::try_from(size).map_err(|_| wrong(&expected))?;
                    self.pending.push(Pending {
                        name: format!("{name}, dim {dim} of {sizes:?} (expected {expected})"),
                        expr: expr.clone(),
                        given,
                    });
                }
                Ok(())
            }
            (Type::Int(Some(expr)), InputMeta::Int(value)) => {
                self.pending.push(Pending { name, expr: expr.clone(), given: *value });
                Ok(())
            }
            (Type::Int(None), InputMeta::Int(_))
            | (Type::Float, InputMeta::Float(_) | InputMeta::Int(_))
            | (Type::Bool, InputMeta::Bool(_))
            | (Type::None, InputMeta::None) => Ok(()),
            (declared, _) => Err(wrong(&declared.to_string())),
        }
    }

    /// Solves for one unknown symbol after the other, then checks that every size agrees.
    fn solve_pending(&mut self) -> Result<()> {
        loop {
            let before = self.env.len();
            for pending in &self.pending {
                if let Some((symbol, value)) = pending.expr.solve(pending.given, &self.env) {
                    self.env.insert(symbol, value);
                }
            }
            if self.env.len() == before {
                break;
            }
        }
        for Pending { name, expr, given } in &self.pending {
            let expected = expr.eval(&self.env).map_err(|_| {
                Error::invalid_input(format!("{name}: {given} fits no whole value of `{expr}`"))
            })?;
            if expected != *given {
                return Err(Error::invalid_input(format!("{name}: got {given}, but `{expr}` is {expected}")));
            }
        }
        Ok(())
    }
}

fn check_ranges(ranges: &BTreeMap<Arc<str>, Range>, env: &SymEnv) -> Result<()> {
    for (symbol, &value) in env {
        if let Some(range) = ranges.get(symbol)
            && !range.contains(value)
        {
            return Err(Error::invalid_input(format!(
                "the size `{symbol}` is {value}; the program takes {range}"
            )));
        }
    }
    Ok(())
}

/// Sets of symbol values at the corners of the program's ranges: all at their smallest, all at their largest, and
/// between. Ranges are sampled up to `cap`. A static program gives one empty set.
pub fn sample_envs(method: &Method, cap: i64) -> Vec<SymEnv> {
    let symbols = sampled_ranges(method, cap);
    distinct([
        env_of(&symbols, |_, low, _| low),
        env_of(&symbols, |_, _, high| high),
        env_of(&symbols, |_, low, high| low + (high - low) / 2),
        env_of(&symbols, |_, low, high| (low + 1).min(high)),
    ])
}

/// Sets of symbol values around which ops choose other kernels: sizes that are and are not multiples of a vector or a
/// tile, and each symbol small while the others are large.
pub fn probe_envs(method: &Method, cap: i64) -> Vec<SymEnv> {
    const EDGES: [i64; 11] = [3, 4, 5, 8, 9, 16, 17, 64, 65, 256, 257];
    let symbols = sampled_ranges(method, cap);
    let together = EDGES.iter().map(|&edge| env_of(&symbols, |_, low, high| edge.clamp(low, high)));
    let apart = (0..symbols.len()).filter(|_| symbols.len() > 1).flat_map(|alone| {
        [
            env_of(&symbols, |index, low, high| if index == alone { low } else { high }),
            env_of(&symbols, |index, low, high| if index == alone { high } else { low }),
        ]
    });
    distinct(together.chain(apart))
}

fn distinct(envs: impl IntoIterator<Item = SymEnv>) -> Vec<SymEnv> {
    let mut found: Vec<SymEnv> = Vec::new();
    for env in envs {
        if !found.contains(&env) {
            found.push(env);
        }
    }
    found
}

/// The symbols of the inputs, each with its smallest and largest value up to `cap`.
fn sampled_ranges(method: &Method, cap: i64) -> Vec<(Arc<str>, i64, i64)> {
    let mut symbols: Vec<Arc<str>> = Vec::new();
    let mut note = |name: &Arc<str>| {
        if !symbols.contains(name) {
            symbols.push(Arc::clone(name));
        }
    };
    for value in method.graph.user_inputs() {
        match method.graph.value(value).map(|data| &data.ty) {
            Ok(Type::Tensor(tensor)) => tensor.sizes.iter().for_each(|size| size.for_each_symbol(&mut note)),
            Ok(Type::Int(Some(expr))) => expr.for_each_symbol(&mut note),
            _ => {}
        }
    }
    symbols
        .into_iter()
        .map(|symbol| {
            let range = method.ranges.get(&symbol).copied().unwrap_or(Range { min: 1, max: None });
            let low = range.min.max(0);
            let high = range.max.unwrap_or(i64::MAX).min(cap.max(low)).max(low);
            (symbol, low, high)
        })
        .collect()
}

fn env_of(symbols: &[(Arc<str>, i64, i64)], choose: impl Fn(usize, i64, i64) -> i64) -> SymEnv {
    symbols
        .iter()
        .enumerate()
        .map(|(index, (symbol, low, high))| (Arc::clone(symbol), choose(index, *low, *high)))
        .collect()
}

/// The shapes of the inputs at the symbol values of `env`; numbers that no symbol determines get a stand-in.
///
/// # Errors
/// A size that `env` does not determine, or that is negative.
pub fn sample_inputs(method: &Method, env: &SymEnv) -> Result<ShapeKey> {
    let graph = &method.graph;
    graph
        .user_inputs()
        .map(|value| {
            let data = graph.value(value)?;
            if let Some(fixed) = method.fixed_inputs.get(&data.name) {
                return Ok(InputMeta::of(fixed));
            }
            Ok(match &data.ty {
                Type::Tensor(tensor) => {
                    let sizes = tensor.sizes.iter().map(|size| {
                        let size = size.eval(env)?;
                        usize::try_from(size).map_err(|_| {
                            Error::invalid_input(format!("input `{}` has the size {size}", data.name))
                        })
                    });
                    InputMeta::Tensor(tensor.dtype, sizes.collect::<Result<_>>()?)
                }
                Type::Int(expr) => InputMeta::Int(expr.as_ref().map_or(Ok(1), |expr| expr.eval(env))?),
                Type::Float => InputMeta::Float(1.0f64.to_bits()),
                Type::Bool => InputMeta::Bool(true),
                Type::None => InputMeta::None,
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::parse_graph;

    fn method(inputs: &str) -> Method {
        let graph = parse_graph(&format!("graph g\n{inputs}")).unwrap();
        let ranges = [(Arc::from("s0"), Range { min: 2, max: Some(8) })].into();
        Method { graph, ranges, fixed_inputs: BTreeMap::new(), dialect: String::new() }
    }

    fn f32(sizes: &[usize]) -> InputMeta {
        InputMeta::Tensor(DType::F32, sizes.to_vec())
    }

    #[test]
    fn symbols_come_from_sizes_and_must_agree() {
        let method = method("input %x: float32[s0, 3]\ninput %y: float32[2*s0]");
        assert_eq!(bind_inputs(&method, &[f32(&[4, 3]), f32(&[8])]).unwrap().get("s0"), Some(&4));
        let text = |inputs: &[InputMeta]| bind_inputs(&method, inputs).unwrap_err().to_string();
        assert!(text(&[f32(&[4, 3]), f32(&[7])]).contains("`y`"));
        assert!(text(&[f32(&[4, 5]), f32(&[8])]).contains("`x`, dim 1"));
        assert!(text(&[f32(&[9, 3]), f32(&[18])]).contains("2 to 8"));
        assert!(text(&[f32(&[4, 3])]).contains("takes 2 inputs"));
        assert!(text(&[InputMeta::Tensor(DType::I64, vec![4, 3]), f32(&[8])]).contains("float32"));
        assert!(text(&[f32(&[4, 3, 1]), f32(&[8])]).contains("[4, 3, 1]"));
        assert!(text(&[InputMeta::None, f32(&[8])]).contains("None"));
    }

    #[test]
    fn a_symbol_seen_only_in_an_expression_is_solved() {
        let method = method("input %y: float32[2*s0]");
        assert_eq!(bind_inputs(&method, &[f32(&[8])]).unwrap().get("s0"), Some(&4));
        assert!(bind_inputs(&method, &[f32(&[7])]).is_err());
    }

    #[test]
    fn a_fixed_input_takes_its_value_only() {
        let mut method = method("input %flag: truth");
        method.fixed_inputs.insert("flag".to_string(), Value::Bool(true));
        assert!(bind_inputs(&method, &[InputMeta::Bool(true)]).is_ok());
        assert!(bind_inputs(&method, &[InputMeta::Bool(false)]).unwrap_err().to_string().contains("`flag`"));
    }

    #[test]
    fn samples_reach_the_corners() {
        let envs = sample_envs(&method("input %x: float32[s0, s1]"), 64);
        let values: Vec<(i64, i64)> = envs.iter().map(|env| (env["s0"], env["s1"])).collect();
        assert_eq!(values, [(2, 1), (8, 64), (5, 32), (3, 2)]);
        assert_eq!(sample_envs(&method("input %x: float32[3]"), 64), [SymEnv::new()]);
    }

    #[test]
    fn probes_stay_in_range_and_move_symbols_apart() {
        let envs = probe_envs(&method("input %x: float32[s0, s1]"), 64);
        let values: Vec<(i64, i64)> = envs.iter().map(|env| (env["s0"], env["s1"])).collect();
        assert!(values.iter().all(|(s0, s1)| (2..=8).contains(s0) && (1..=64).contains(s1)), "{values:?}");
        for pair in [(3, 3), (8, 17), (2, 64), (8, 1)] {
            assert!(values.contains(&pair), "{pair:?} is not in {values:?}");
        }
        assert_eq!(probe_envs(&method("input %x: float32[3]"), 64), [SymEnv::new()]);
    }
}
