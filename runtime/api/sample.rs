//! Inputs made up for a method, and programs of one op: what benchmarks and comparisons run when nothing is given.

use super::program::{MethodInfo, Program};
use crate::{
    base::{DType, Error, HostTensor, Result, SymExpr, Value, shape},
    ir::{
        Arg, Constant, Graph, InputKind, IntArg, OpName, OutputKind, OutputSource, TensorType, Type, ValueId,
    },
    plan::{self, InputMeta},
};

/// Sizes that symbols get are half of this, where their ranges allow it.
const SAMPLE_CAP: i64 = 32;

/// Numbers that are the same in every run.
struct Numbers(u32);

impl Numbers {
    fn next(&mut self) -> u32 {
        self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        self.0 >> 16
    }

    /// Floats between -1 and 1; integers and truth values 0 or 1, which any table and mask takes.
    fn tensor(&mut self, dtype: DType, sizes: &[usize]) -> Result<HostTensor> {
        let count = shape::numel(sizes)?;
        if dtype.is_float() {
            let values: Vec<f64> = (0..count).map(|_| f64::from(self.next()) / 32768.0 - 1.0).collect();
            HostTensor::from_f64s(dtype, sizes.to_vec(), &values)
        } else {
            let values: Vec<i64> = (0..count).map(|_| i64::from(self.next() & 1)).collect();
            HostTensor::from_i64s(dtype, sizes.to_vec(), &values)
        }
    }
}

impl MethodInfo<'_> {
    /// Made-up inputs: sizes in the middle of the program's ranges, the same values every time.
    ///
    /// # Errors
    /// When no sizes of the right kind can be found.
    pub fn sample_inputs(self) -> Result<Vec<Value>> {
        let method = self.ir();
        let envs = plan::sample_envs(method, SAMPLE_CAP);
        let env = envs.get(2).or(envs.last()).cloned().unwrap_or_default();
        let mut numbers = Numbers(1);
        let metas = plan::sample_inputs(method, &env)?;
        metas
            .into_iter()
            .map(|meta| {
                Ok(match meta {
                    InputMeta::Tensor(dtype, sizes) => Value::Tensor(numbers.tensor(dtype, &sizes)?),
                    InputMeta::Int(value) => Value::Int(value),
                    InputMeta::Float(bits) => Value::Float(f64::from_bits(bits)),
                    InputMeta::Bool(value) => Value::Bool(value),
                    InputMeta::None => Value::None,
                })
            })
            .collect()
    }
}

/// A program of one `linear` of an `[m, k]` input with an `[n, k]` weight and a bias, all of `dtype`.
///
/// # Errors
/// When a size is too large, or `dtype` is no float.
pub fn linear_program(m: usize, k: usize, n: usize, dtype: DType) -> Result<Program> {
    if !dtype.is_float() {
        return Err(Error::invalid_input(format!("a linear program is made of floats, not of {dtype}")));
    }
    let tensor = |sizes: &[usize]| {
        let sizes = sizes.iter().map(|&size| SymExpr::Const(size as i64)).collect();
        Type::Tensor(TensorType { dtype, sizes })
    };
    let mut numbers = Numbers(2);
    let mut graph = Graph::new("linear");
    let x = graph.add_input("x", tensor(&[m, k]), InputKind::User)?;
    let weight = Constant::from_tensor("weight", numbers.tensor(dtype, &[n, k])?);
    let weight = graph.add_constant_input("weight", weight, InputKind::Parameter)?;
    let bias = Constant::from_tensor("bias", numbers.tensor(dtype, &[n])?);
    let bias = graph.add_constant_input("bias", bias, InputKind::Parameter)?;
    let args = [("input", x), ("weight", weight), ("bias", bias)];
    let args = args.map(|(name, value)| (name.to_string(), Arg::Value(value))).to_vec();
    let outputs = vec![("linear".to_string(), tensor(&[m, n]))];
    let node = graph.add_node("linear", OpName::new("aten.linear.default"), args, outputs)?;
    for output in graph.node(node)?.outputs.clone() {
        graph.add_output(OutputSource::Value(output), OutputKind::User);
    }
    Program::from_graph(graph)
}

/// A program of one `linear` of an `[m, k]` input of float32 with an `[n, k]` weight in codes of `bits`, 8 or 4: a scale
/// for each row in 8 bits; in 4 bits one for each 32 columns where those divide K.
///
/// # Errors
/// When a size is too large, or `bits` is neither 8 nor 4.
pub fn quantised_linear_program(m: usize, k: usize, n: usize, bits: u8) -> Result<Program> {
    if bits != 8 && bits != 4 {
        return Err(Error::invalid_input(format!("codes have 8 or 4 bits, not {bits}")));
    }
    let group = if bits == 4 && k.is_multiple_of(32) { 32 } else { k };
    let (low, high) = (-(1i64 << (bits - 1)), (1i64 << (bits - 1)) - 1);
    let mut numbers = Numbers(3);
    let span = 1i64 << bits;
    let codes: Vec<i64> =
        (0..shape::numel(&[n, k])?).map(|_| i64::from(numbers.next()) % span + low).collect();
    let mut graph = Graph::new("linear");
    let float = |sizes: &[usize]| {
        let sizes = sizes.iter().map(|&size| SymExpr::Const(size as i64)).collect();
        Type::Tensor(TensorType { dtype: DType::F32, sizes })
    };
    let x = graph.add_input("x", float(&[m, k]), InputKind::User)?;
    let codes = Constant::from_tensor("weight", HostTensor::from_i64s(DType::I8, vec![n, k], &codes)?);
    let codes = graph.add_constant_input("weight", codes, InputKind::Parameter)?;
    let scales = numbers.tensor(DType::F32, &[n, k / group.max(1)])?;
    let scales =
        graph.add_constant_input("scales", Constant::from_tensor("scales", scales), InputKind::Parameter)?;
    let block = [1, group as i64].map(IntArg::Const).to_vec();
    let args = [
        ("input", Arg::Value(codes)),
        ("block_size", Arg::Ints(block)),
        ("scale", Arg::Value(scales)),
        ("zero_point", Arg::None),
        ("input_dtype", Arg::DType(DType::I8)),
        ("quant_min", Arg::Int(low)),
        ("quant_max", Arg::Int(high)),
    ];
    let weight =
        add_node(&mut graph, "dequantize", "torchao.dequantize_affine.default", &args, float(&[n, k]))?;
    let args = [("input", Arg::Value(x)), ("weight", Arg::Value(weight))];
    let y = add_node(&mut graph, "linear", "aten.linear.default", &args, float(&[m, n]))?;
    graph.add_output(OutputSource::Value(y), OutputKind::User);
    Program::from_graph(graph)
}

/// Adds a node with one output of its own name.
fn add_node(graph: &mut Graph, name: &str, op: &str, args: &[(&str, Arg)], ty: Type) -> Result<ValueId> {
    let args = args.iter().map(|(name, arg)| (name.to_string(), arg.clone())).collect();
    let node = graph.add_node(name, OpName::new(op), args, vec![(name.to_string(), ty)])?;
    let output = graph.node(node)?.outputs.first().copied();
    output.ok_or_else(|| Error::internal("a node has no output"))
}
