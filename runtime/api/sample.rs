//! Inputs made up for a method, and programs of one op: what benchmarks and comparisons run when nothing is given.

use super::program::{MethodInfo, Program};
use crate::{
    base::{DType, Error, HostTensor, Result, SymExpr, Value, shape},
    ir::{Arg, Constant, Graph, InputKind, OpName, OutputKind, OutputSource, TensorType, Type},
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
