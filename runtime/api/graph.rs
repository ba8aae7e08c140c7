//! Programs built in Rust: inputs, constants and calls of ATen ops, without a file.
//!
//! ```
//! use vkdelegate::{DType, HostTensor, graph::GraphBuilder};
//!
//! # fn main() -> vkdelegate::Result<()> {
//! let mut graph = GraphBuilder::new("forward");
//! let x = graph.input("x", DType::F32, &[2, 3])?;
//! let weight = graph.parameter("weight", HostTensor::from_f32(&[3, 4], &[0.5; 12])?)?;
//! let product = graph.call("aten.mm.default", [("self", x.into()), ("mat2", weight.into())])?;
//! let y = graph.call("aten.relu.default", [("self", product.into())])?;
//! graph.output(y);
//! let program = graph.build()?;
//!
//! let inspection = program.only_method()?.inspect(None, Default::default())?;
//! assert_eq!(inspection.ops["linear"], 1);
//! assert_eq!(inspection.decisions[0].reason, "mm: became linear: mat2 = parameter \"weight\"");
//! # Ok(())
//! # }
//! ```
//!
//! The rules are those of a program from PyTorch: only what the program never changes is prepacked, and what cannot run
//! is refused when a delegate is built.

use std::{collections::BTreeMap, sync::Arc};

use super::program::Program;
use crate::{
    base::{Error, HostTensor, Range, Result},
    ir::{self, Constant, ConstantId, Graph, InputKind, Method, Node, OutputKind, OutputSource},
    ops::{self, Meta, Resolved},
};

pub use crate::{
    base::SymExpr,
    ir::{Arg, IntArg, OpName, TensorType, Type, ValueId},
};

/// One method in the making.
#[derive(Clone, Debug)]
pub struct GraphBuilder {
    graph: Graph,
    ranges: BTreeMap<Arc<str>, Range>,
}

impl GraphBuilder {
    /// An empty method. What it is given as parameters, buffers and constants is known not to change, unless the
    /// method writes to it.
    pub fn new(name: &str) -> GraphBuilder {
        GraphBuilder { graph: Graph::new(name), ranges: BTreeMap::new() }
    }

    /// An empty method that does not say what changes: nothing counts as constant, no weight is prepacked, and reports
    /// carry one warning. Parameters, buffers and constants are state of its delegates.
    pub fn without_signature(name: &str) -> GraphBuilder {
        let mut builder = GraphBuilder::new(name);
        builder.graph.forget_signature();
        builder
    }

    /// A tensor of fixed sizes that each run is given.
    ///
    /// # Errors
    /// When the name is taken, or a size is too large.
    pub fn input(&mut self, name: &str, dtype: crate::DType, sizes: &[usize]) -> Result<ValueId> {
        self.typed_input(name, tensor_type(&Meta::new(dtype, sizes))?)
    }

    /// An input of any type: a tensor with symbolic sizes, a host scalar.
    ///
    /// # Errors
    /// When the name is taken.
    pub fn typed_input(&mut self, name: &str, ty: Type) -> Result<ValueId> {
        self.graph.add_input(name, ty, InputKind::User)
    }

    /// Says what sizes `symbol` may have. A symbol without a range may have any from 0 on.
    pub fn range(&mut self, symbol: &str, min: i64, max: Option<i64>) {
        self.ranges.insert(Arc::from(symbol), Range { min, max });
    }

    /// A parameter.
    ///
    /// # Errors
    /// When the name is taken.
    pub fn parameter(&mut self, name: &str, tensor: HostTensor) -> Result<ValueId> {
        self.held(name, tensor, InputKind::Parameter)
    }

    /// A buffer: state if the method writes to it, else a constant.
    ///
    /// # Errors
    /// When the name is taken.
    pub fn buffer(&mut self, name: &str, tensor: HostTensor) -> Result<ValueId> {
        self.held(name, tensor, InputKind::Buffer)
    }

    /// A constant of the code.
    ///
    /// # Errors
    /// When the name is taken.
    pub fn constant(&mut self, name: &str, tensor: HostTensor) -> Result<ValueId> {
        self.held(name, tensor, InputKind::Lifted)
    }

    fn held(&mut self, name: &str, tensor: HostTensor, kind: fn(ConstantId) -> InputKind) -> Result<ValueId> {
        if self.graph.value_named(name).is_some() {
            return Err(Error::invalid_graph(format!("the name `{name}` is defined twice")));
        }
        self.graph.add_constant_input(name, Constant::from_tensor(name, tensor), kind)
    }

    /// A call of `op`, such as `aten.mm.default`, with arguments by their schema names; gives its first output. Output
    /// types follow from the operands. The node is named after the op.
    ///
    /// # Errors
    /// An op that is not supported, or that refuses its operands; operands with symbolic sizes and in-place ops, for
    /// which there is [`call_typed`](GraphBuilder::call_typed).
    pub fn call<'a>(&mut self, op: &str, args: impl IntoIterator<Item = (&'a str, Arg)>) -> Result<ValueId> {
        let node = node(op, args);
        let name = self.graph.unique_name(node.op.base());
        let types = self.infer(&node).map_err(|error| error.at_node(&name))?;
        first(self.add(&name, node, types)?)
    }

    /// A call of `op` as the node `name`, with outputs of the types that are given.
    ///
    /// # Errors
    /// When the name of an output is taken.
    pub fn call_typed<'a>(
        &mut self,
        name: &str,
        op: &str,
        args: impl IntoIterator<Item = (&'a str, Arg)>,
        types: impl IntoIterator<Item = Type>,
    ) -> Result<Vec<ValueId>> {
        let name = self.graph.unique_name(name);
        self.add(&name, node(op, args), types.into_iter().collect())
    }

    fn infer(&self, node: &Node) -> Result<Vec<Type>> {
        let op = ops::find(node.op.as_str()).ok_or_else(|| {
            Error::unsupported(format!("{} is not supported; call_typed takes any op", node.op))
        })?;
        let metas = ops::resolve(node, |value| self.meta(value))?;
        op.infer(&metas)?.iter().map(tensor_type).collect()
    }

    fn meta(&self, value: ValueId) -> Result<Resolved<Meta>> {
        let data = self.graph.value(value)?;
        let unknown = || {
            let text = format!("`{}` is {}, known at run time only; use call_typed", data.name, data.ty);
            Error::unsupported(text)
        };
        let Type::Tensor(tensor) = &data.ty else { return Err(unknown()) };
        let sizes = tensor.sizes.iter().map(|size| usize::try_from(size.as_const()?).ok());
        let sizes: Vec<usize> = sizes.collect::<Option<_>>().ok_or_else(unknown)?;
        Ok(Resolved::Tensor(Meta::new(tensor.dtype, sizes)))
    }

    /// The sizes of a tensor whose sizes are fixed.
    pub(super) fn sizes(&self, value: ValueId) -> Result<Vec<usize>> {
        match self.meta(value)? {
            Resolved::Tensor(meta) => Ok(meta.sizes),
            _ => Err(Error::internal("a value with sizes is no tensor")),
        }
    }

    fn add(&mut self, name: &str, node: Node, types: Vec<Type>) -> Result<Vec<ValueId>> {
        let single = types.len() == 1;
        let named = |(index, ty)| (if single { name.to_string() } else { format!("{name}_{index}") }, ty);
        let outputs = types.into_iter().enumerate().map(named).collect();
        let id = self.graph.add_node(name, node.op, node.args, outputs)?;
        Ok(self.graph.node(id)?.outputs.clone())
    }

    /// Returns `value` to the caller, behind what was returned before.
    pub fn output(&mut self, value: ValueId) {
        self.graph.add_output(OutputSource::Value(value), OutputKind::User);
    }

    /// What `buffer`, a parameter, buffer or constant, holds after each run.
    pub fn write_back(&mut self, buffer: ValueId, value: ValueId) {
        self.graph.add_output(OutputSource::Value(value), OutputKind::BufferMutation(buffer));
    }

    /// The program whose only method this is.
    ///
    /// # Errors
    /// As [`Program::from_graphs`].
    pub fn build(self) -> Result<Program> {
        Program::from_graphs([self])
    }

    pub(super) fn into_method(self) -> Result<Method> {
        ir::verify(&self.graph)?;
        let GraphBuilder { graph, ranges } = self;
        Ok(Method { graph, ranges, fixed_inputs: BTreeMap::new(), dialect: String::new() })
    }
}

fn node<'a>(op: &str, args: impl IntoIterator<Item = (&'a str, Arg)>) -> Node {
    let args = args.into_iter().map(|(name, arg)| (name.to_string(), arg)).collect();
    Node { name: String::new(), op: OpName::new(op), args, outputs: Vec::new() }
}

fn first(values: Vec<ValueId>) -> Result<ValueId> {
    values.first().copied().ok_or_else(|| Error::invalid_graph("the op gives nothing"))
}

fn tensor_type(meta: &Meta) -> Result<Type> {
    let size = |&size: &usize| {
        let size = i64::try_from(size);
        size.map(SymExpr::Const).map_err(|_| Error::invalid_graph("a size is larger than any tensor"))
    };
    let sizes = meta.sizes.iter().map(size).collect::<Result<_>>()?;
    Ok(Type::Tensor(TensorType { dtype: meta.dtype, sizes }))
}
