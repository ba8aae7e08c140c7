//! Finds the first node whose result on the device is wrong.
//!
//! Each node runs alone, unfused, as a program of its own, and its op's `eval` on the host gets the very inputs that
//! the device got: an error of one node is not blamed on those after it. Then the whole method runs, and its outputs
//! are held to those of the single nodes, which shows faults of the plan and of fused nodes.

use std::collections::HashMap;

use super::{
    delegate::Delegate,
    device::Gpu,
    program::Program,
    report,
    single::{self, Operand},
    verify::Mismatch,
};
use crate::{
    base::{Error, HostTensor, Result, Scalar, Value},
    delegate::{BuildOptions, Session},
    ir::{Effect, Graph, GraphInput, Node, OutputKind, OutputSource, ValueId, effect_of},
    ops::{self, ArgValue, Precision, Resolved},
    plan::{self, InputMeta},
};

/// How to compare.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CompareOptions {
    /// The method; not needed when the program has only one.
    pub method: Option<String>,
    /// How `float32` is stored.
    pub precision: Precision,
}

/// A result that differs.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// Name of the node; `None` for an output of the whole method.
    pub node: Option<String>,
    /// ATen target of the node, such as `aten.mm.default`; empty for the whole method.
    pub op: String,
    /// Name of the value, or `out{j}`.
    pub value: String,
    /// What the node read, one line each.
    pub operands: Vec<String>,
    /// The values that differ.
    pub mismatch: Mismatch,
}

/// What [`compare`] found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CompareReport {
    /// Number of nodes that were run, each alone.
    pub nodes: usize,
    /// All that differed, in the order of the program.
    pub differences: Vec<Difference>,
    /// The first value on the device that holds a NaN, whether or not the host agrees.
    pub first_nan: Option<FirstNan>,
}

/// Where a NaN first appears in a run.
#[derive(Clone, Debug, PartialEq)]
pub struct FirstNan {
    /// Name of the node that made it.
    pub node: String,
    /// ATen target of the node, such as `aten.log.default`.
    pub op: String,
    /// Name of the value in the program.
    pub value: String,
}

/// Runs every node of a method alone on `gpu` and on the host, then the whole method; `progress` is told how many
/// nodes are done, and of how many.
///
/// # Errors
/// Inputs that do not fit; nodes that cannot run; what the device fails at.
pub fn compare(
    gpu: &Gpu,
    program: &Program,
    inputs: &[Value],
    options: &CompareOptions,
    mut progress: impl FnMut(usize, usize),
) -> Result<CompareReport> {
    let info = match &options.method {
        Some(name) => program.method(name)?,
        None => program.only_method()?,
    };
    let method = report::prepare_unfused(info)?;
    let metas: Vec<InputMeta> = inputs.iter().map(InputMeta::of).collect();
    let env = plan::bind_inputs(&method, &metas)?;
    let refusals = plan::check_all(&method, &[env])?;
    if !refusals.is_empty() {
        return Err(Error::refused(refusals));
    }
    let mut walk = Walk::new(gpu, &method.graph, options.precision);
    walk.add_inputs(inputs)?;
    let total = method.graph.order().len();
    for (done, (_, node)) in method.graph.nodes().enumerate() {
        progress(done, total);
        walk.run_node(node).map_err(|error| error.at_node(&node.name))?;
    }
    let mut delegate =
        Delegate::builder(gpu).method(info.name()).precision(options.precision).build(program)?;
    let outputs = delegate.run(inputs)?;
    walk.compare_outputs(&outputs.user)?;
    Ok(walk.report)
}

struct Walk<'a> {
    gpu: &'a Gpu,
    graph: &'a Graph,
    precision: Precision,
    values: HashMap<ValueId, Resolved<Operand>>,
    remaining: HashMap<ValueId, usize>,
    report: CompareReport,
}

impl<'a> Walk<'a> {
    fn new(gpu: &'a Gpu, graph: &'a Graph, precision: Precision) -> Walk<'a> {
        let remaining = graph.use_counts();
        Walk { gpu, graph, precision, values: HashMap::new(), remaining, report: CompareReport::default() }
    }

    fn add_inputs(&mut self, given: &[Value]) -> Result<()> {
        let mut given = given.iter();
        for &GraphInput { value, kind } in self.graph.inputs() {
            let resolved = match kind.constant() {
                Some(id) if self.is_mutated(value) => {
                    Resolved::Tensor(Operand::Runtime(self.graph.constant(id)?.to_tensor()?))
                }
                Some(id) => Resolved::Tensor(Operand::Constant(self.graph.constant(id)?.clone())),
                None => match given.next() {
                    Some(Value::Tensor(tensor)) => Resolved::Tensor(Operand::Runtime(tensor.clone())),
                    Some(Value::Int(value)) => Resolved::Scalar(Scalar::Int(*value)),
                    Some(Value::Float(value)) => Resolved::Scalar(Scalar::Float(*value)),
                    Some(Value::Bool(value)) => Resolved::Scalar(Scalar::Bool(*value)),
                    Some(Value::None) | None => Resolved::None,
                },
            };
            self.values.insert(value, resolved);
        }
        Ok(())
    }

    fn is_mutated(&self, value: ValueId) -> bool {
        self.graph.outputs().iter().any(|output| output.kind == OutputKind::BufferMutation(value))
    }

    fn lookup(&self, value: ValueId) -> Result<Resolved<Operand>> {
        let known = self.values.get(&value).cloned();
        known.ok_or_else(|| Error::internal(format!("`{}` has no value", self.graph.value_name(value))))
    }

    fn run_node(&mut self, node: &Node) -> Result<()> {
        if effect_of(node) == Effect::Assert {
            return Ok(());
        }
        let args = ops::resolve(node, |value| self.lookup(value))?;
        let metas = args.try_map(|operand| Ok(operand.meta()))?;
        if ops::is_scalar_target(node.op.as_str()) {
            let scalar = ops::eval_scalar(&metas)?;
            self.values.extend(node.outputs.first().map(|&output| (output, Resolved::Scalar(scalar))));
            return Ok(());
        }
        let op = ops::find(node.op.as_str()).ok_or_else(|| Error::unsupported("the op is not supported"))?;
        let outs = op.infer(&metas)?;
        let (method, inputs) = single::program(self.graph, node, &outs, |value| self.lookup(value))?;
        let options = BuildOptions { precision: self.precision, ..BuildOptions::default() };
        let (got, _) = Session::build(self.gpu.context(), method, options)?.run(&inputs)?;
        let host_args = args.try_map(Operand::to_tensor)?;
        let want = op.eval(&host_args, &outs)?;
        self.report.nodes += 1;
        for (index, (value, want)) in got.into_iter().zip(&want).enumerate() {
            let Value::Tensor(got) = value else { continue };
            let Some(&output) = node.outputs.get(index) else { continue };
            if self.report.first_nan.is_none() && has_nan(&got) {
                let (node, op) = (node.name.clone(), node.op.to_string());
                self.report.first_nan = Some(FirstNan { node, op, value: self.graph.value_name(output) });
            }
            if let Some(mismatch) = single::mismatch(self.precision, &got, want) {
                let operands = describe(host_args.values());
                let value = self.graph.value_name(output);
                let (node, op) = (Some(node.name.clone()), node.op.to_string());
                self.report.differences.push(Difference { node, op, value, operands, mismatch });
            }
            self.values.insert(output, Resolved::Tensor(Operand::Runtime(got)));
        }
        self.forget_operands(node);
        Ok(())
    }

    fn forget_operands(&mut self, node: &Node) {
        let mut read = Vec::new();
        node.for_each_operand(|value| read.push(value));
        for value in read {
            if let Some(count) = self.remaining.get_mut(&value) {
                *count = count.saturating_sub(1);
                if *count == 0 {
                    self.values.remove(&value);
                }
            }
        }
    }

    /// Holds the outputs of the whole method to those of the single nodes.
    fn compare_outputs(&mut self, outputs: &[Value]) -> Result<()> {
        let sources = self.graph.outputs().iter().filter(|output| output.kind == OutputKind::User);
        for (index, (output, got)) in sources.zip(outputs).enumerate() {
            let (OutputSource::Value(value), Value::Tensor(got)) = (&output.source, got) else { continue };
            let Resolved::Tensor(want) = self.lookup(*value)? else { continue };
            if let Some(mismatch) = single::mismatch(self.precision, got, &want.to_tensor()?) {
                let (node, op, value) = (None, String::new(), format!("out{index}"));
                let operands = Vec::new();
                self.report.differences.push(Difference { node, op, value, operands, mismatch });
            }
        }
        Ok(())
    }
}

fn has_nan(tensor: &HostTensor) -> bool {
    tensor.dtype().is_float() && tensor.to_f64s().iter().any(|value| value.is_nan())
}

fn describe<'a>(args: impl Iterator<Item = &'a ArgValue<HostTensor>>) -> Vec<String> {
    args.map(|arg| match arg {
        ArgValue::Tensor(tensor) => format!("{tensor:?}"),
        ArgValue::Tensors(tensors) => format!("{tensors:?}"),
        other => format!("{other:?}"),
    })
    .collect()
}
