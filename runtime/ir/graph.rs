//! The graph: values, nodes in order, inputs and outputs with their place in the signature.

use std::collections::{HashMap, HashSet};

use super::{
    arg::{Arg, OpName},
    constant::{Constant, ConstantId},
};
use crate::base::{DType, Error, IdVec, Result, Scalar, SymExpr};

crate::typed_id!(
    /// A value: what an input or a node defines, once.
    ValueId,
    "v"
);
crate::typed_id!(
    /// A node: one call of an op.
    NodeId,
    "n"
);

/// Dtype and (possibly symbolic) sizes of a tensor value.
#[derive(Clone, Debug, PartialEq)]
pub struct TensorType {
    /// Element type.
    pub dtype: DType,
    /// Sizes, outermost first.
    pub sizes: Vec<SymExpr>,
}

/// What a value is.
#[derive(Clone, Debug, PartialEq)]
pub enum Type {
    /// A tensor.
    Tensor(TensorType),
    /// A host integer; its expression over the program's symbols, where the program gives one.
    Int(Option<SymExpr>),
    /// A host float.
    Float,
    /// A host truth value.
    Bool,
    /// Python's `None`.
    None,
}

impl Type {
    /// The tensor type, if it is a tensor.
    pub fn as_tensor(&self) -> Option<&TensorType> {
        match self {
            Type::Tensor(tensor) => Some(tensor),
            _ => None,
        }
    }
}

/// Where a value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueDef {
    /// An input of the graph.
    Input,
    /// Output number `index` of a node.
    Output {
        /// The node.
        node: NodeId,
        /// Which of its outputs.
        index: usize,
    },
}

/// A value's name, type and definition.
#[derive(Clone, Debug)]
pub struct ValueData {
    /// Name, unique in the graph.
    pub name: String,
    /// What it is.
    pub ty: Type,
    /// Where it comes from.
    pub def: ValueDef,
}

/// One call of an op.
#[derive(Clone, Debug)]
pub struct Node {
    /// Name in the program, unique among nodes.
    pub name: String,
    /// The target.
    pub op: OpName,
    /// Arguments by schema name, in the order of the file; defaults may be left out.
    pub args: Vec<(String, Arg)>,
    /// Values it defines.
    pub outputs: Vec<ValueId>,
}

impl Node {
    /// The argument called `name`, unless it was left out.
    pub fn arg(&self, name: &str) -> Option<&Arg> {
        self.args.iter().find(|(arg_name, _)| arg_name == name).map(|(_, arg)| arg)
    }

    /// The value given for argument `name`, if it is one value.
    pub fn value_arg(&self, name: &str) -> Option<ValueId> {
        self.arg(name).and_then(Arg::as_value)
    }

    /// Calls `visit` with every value that the node reads.
    pub fn for_each_operand(&self, mut visit: impl FnMut(ValueId)) {
        self.args.iter().for_each(|(_, arg)| arg.for_each_value(&mut visit));
    }
}

/// What an input of the graph is to the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InputKind {
    /// Given by the caller at each run.
    User,
    /// A parameter.
    Parameter(ConstantId),
    /// A buffer; the constant is its initial value. State if the program writes back to it.
    Buffer(ConstantId),
    /// A tensor constant that the exporter lifted out of the code.
    Lifted(ConstantId),
    /// A constant that a pass derived from other constants.
    Derived(ConstantId),
}

impl InputKind {
    /// The constant behind the input; `None` for user inputs.
    pub fn constant(self) -> Option<ConstantId> {
        match self {
            InputKind::User => None,
            InputKind::Parameter(id)
            | InputKind::Buffer(id)
            | InputKind::Lifted(id)
            | InputKind::Derived(id) => Some(id),
        }
    }
}

/// One input of the graph.
#[derive(Clone, Copy, Debug)]
pub struct GraphInput {
    /// The value it defines.
    pub value: ValueId,
    /// What it is to the program.
    pub kind: InputKind,
}

/// What an output of the graph is to the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputKind {
    /// Returned to the caller.
    User,
    /// What the buffer behind this input holds after the run.
    BufferMutation(ValueId),
    /// What this user input holds after the run.
    InputMutation(ValueId),
}

/// What an output returns.
#[derive(Clone, Debug, PartialEq)]
pub enum OutputSource {
    /// A value of the graph.
    Value(ValueId),
    /// A number or truth value fixed in the program.
    Scalar(Scalar),
    /// Python's `None`.
    None,
}

/// One output of the graph.
#[derive(Clone, Debug, PartialEq)]
pub struct GraphOutput {
    /// What it returns.
    pub source: OutputSource,
    /// What it is to the program.
    pub kind: OutputKind,
}

/// One method's graph. Nodes run in [`order`](Graph::order).
#[derive(Clone, Debug, Default)]
pub struct Graph {
    name: String,
    has_signature: bool,
    values: IdVec<ValueId, ValueData>,
    nodes: IdVec<NodeId, Node>,
    order: Vec<NodeId>,
    inputs: Vec<GraphInput>,
    outputs: Vec<GraphOutput>,
    constants: IdVec<ConstantId, Constant>,
    names: HashMap<String, ValueId>,
    node_names: HashSet<String>,
}

impl Graph {
    /// An empty graph of a program that comes with a signature.
    pub fn new(name: impl Into<String>) -> Graph {
        Graph { name: name.into(), has_signature: true, ..Graph::default() }
    }

    /// Says that nothing is known of the roles of inputs: then nothing counts as constant.
    pub fn forget_signature(&mut self) {
        self.has_signature = false;
    }

    /// Whether the program says which inputs are parameters, buffers and constants.
    pub fn has_signature(&self) -> bool {
        self.has_signature
    }

    /// The name of the method.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Adds a constant; it becomes part of the graph through [`Graph::add_input`].
    pub fn add_constant(&mut self, constant: Constant) -> ConstantId {
        self.constants.push(constant)
    }

    /// The constant of `id`.
    ///
    /// # Errors
    /// When `id` is of another graph.
    pub fn constant(&self, id: ConstantId) -> Result<&Constant> {
        self.constants.get(id)
    }

    /// Adds an input.
    ///
    /// # Errors
    /// When the name is taken.
    pub fn add_input(&mut self, name: &str, ty: Type, kind: InputKind) -> Result<ValueId> {
        let value = self.add_value(name, ty, ValueDef::Input)?;
        self.inputs.push(GraphInput { value, kind });
        Ok(value)
    }

    /// Adds a constant together with the input that stands for it; its name is made unique.
    ///
    /// # Errors
    /// When the name cannot be made unique.
    pub fn add_constant_input(
        &mut self,
        name: &str,
        constant: Constant,
        kind: fn(ConstantId) -> InputKind,
    ) -> Result<ValueId> {
        let sizes = constant.sizes().iter().map(|&size| SymExpr::Const(size as i64)).collect();
        let ty = Type::Tensor(TensorType { dtype: constant.dtype(), sizes });
        let id = self.add_constant(constant);
        let name = self.unique_name(name);
        self.add_input(&name, ty, kind(id))
    }

    /// Adds a node at the end; `outputs` are names and types of the values it defines.
    ///
    /// # Errors
    /// When the name of an output is taken.
    pub fn add_node(
        &mut self,
        name: &str,
        op: OpName,
        args: Vec<(String, Arg)>,
        outputs: Vec<(String, Type)>,
    ) -> Result<NodeId> {
        let position = self.order.len();
        self.insert_node(position, name, op, args, outputs)
    }

    /// Adds a node before position `position` of the order.
    ///
    /// # Errors
    /// When the name of an output is taken.
    pub fn insert_node(
        &mut self,
        position: usize,
        name: &str,
        op: OpName,
        args: Vec<(String, Arg)>,
        outputs: Vec<(String, Type)>,
    ) -> Result<NodeId> {
        let node = self.nodes.push(Node { name: name.to_string(), op, args, outputs: Vec::new() });
        self.node_names.insert(name.to_string());
        let mut values = Vec::with_capacity(outputs.len());
        for (index, (output_name, ty)) in outputs.into_iter().enumerate() {
            values.push(self.add_value(&output_name, ty, ValueDef::Output { node, index })?);
        }
        self.nodes.get_mut(node)?.outputs = values;
        self.order.insert(position.min(self.order.len()), node);
        Ok(node)
    }

    /// Adds an output.
    pub fn add_output(&mut self, source: OutputSource, kind: OutputKind) {
        self.outputs.push(GraphOutput { source, kind });
    }

    /// Gives the graph other outputs.
    pub fn set_outputs(&mut self, outputs: Vec<GraphOutput>) {
        self.outputs = outputs;
    }

    fn add_value(&mut self, name: &str, ty: Type, def: ValueDef) -> Result<ValueId> {
        if self.names.contains_key(name) {
            return Err(Error::invalid_graph(format!("the name `{name}` is defined twice")));
        }
        let value = self.values.push(ValueData { name: name.to_string(), ty, def });
        self.names.insert(name.to_string(), value);
        Ok(value)
    }

    /// A name that no value and no node has yet: `base`, or `base` with a number behind it.
    pub fn unique_name(&self, base: &str) -> String {
        let is_taken = |name: &str| self.names.contains_key(name) || self.node_names.contains(name);
        let mut name = base.to_string();
        let mut number = 1usize;
        while is_taken(&name) {
            name = format!("{base}_{number}");
            number += 1;
        }
        name
    }

    /// Makes `value`, which a node computes, an input that stands for `constant`. The node has to go: see
    /// [`Graph::retain_nodes`].
    ///
    /// # Errors
    /// When `value` is an input already, or of another graph.
    pub fn define_as_constant(&mut self, value: ValueId, constant: Constant) -> Result<()> {
        let data = self.values.get_mut(value)?;
        if data.def == ValueDef::Input {
            return Err(Error::internal(format!("`{}` is an input already", data.name)));
        }
        data.def = ValueDef::Input;
        let id = self.add_constant(constant);
        self.inputs.push(GraphInput { value, kind: InputKind::Derived(id) });
        Ok(())
    }

    /// Makes the tensor `value` one of `dtype`. The node that defines it has to give that.
    ///
    /// # Errors
    /// When `value` is no tensor of the graph.
    pub fn retype(&mut self, value: ValueId, dtype: DType) -> Result<()> {
        match &mut self.values.get_mut(value)?.ty {
            Type::Tensor(tensor) => tensor.dtype = dtype,
            _ => return Err(Error::internal(format!("{value} is no tensor"))),
        }
        Ok(())
    }

    /// The value called `name`.
    pub fn value_named(&self, name: &str) -> Option<ValueId> {
        self.names.get(name).copied()
    }

    /// The data of `value`.
    ///
    /// # Errors
    /// When `value` is of another graph.
    pub fn value(&self, value: ValueId) -> Result<&ValueData> {
        self.values.get(value)
    }

    /// The name of `value`, or its id where there is no such value.
    pub fn value_name(&self, value: ValueId) -> String {
        self.values.get(value).map_or_else(|_| value.to_string(), |data| data.name.clone())
    }

    /// The data of `node`.
    ///
    /// # Errors
    /// When `node` is of another graph.
    pub fn node(&self, node: NodeId) -> Result<&Node> {
        self.nodes.get(node)
    }

    /// The data of `node`, to change.
    ///
    /// # Errors
    /// When `node` is of another graph.
    pub fn node_mut(&mut self, node: NodeId) -> Result<&mut Node> {
        self.nodes.get_mut(node)
    }

    /// The node that defines `value`, unless it is an input.
    pub fn defining_node(&self, value: ValueId) -> Option<NodeId> {
        match self.values.get(value).ok()?.def {
            ValueDef::Output { node, .. } => Some(node),
            ValueDef::Input => None,
        }
    }

    /// The input that defines `value`, if one does.
    pub fn input_of(&self, value: ValueId) -> Option<GraphInput> {
        self.inputs.iter().copied().find(|input| input.value == value)
    }

    /// Nodes in the order they run.
    pub fn order(&self) -> &[NodeId] {
        &self.order
    }

    /// Nodes in the order they run, with their data.
    pub fn nodes(&self) -> impl Iterator<Item = (NodeId, &Node)> {
        self.order.iter().filter_map(|&id| self.nodes.get(id).ok().map(|node| (id, node)))
    }

    /// All values that the graph has ever had, including those of removed nodes.
    pub fn values(&self) -> &IdVec<ValueId, ValueData> {
        &self.values
    }

    /// All inputs, in order.
    pub fn inputs(&self) -> &[GraphInput] {
        &self.inputs
    }

    /// The inputs that the caller gives, in order.
    pub fn user_inputs(&self) -> impl Iterator<Item = ValueId> {
        self.inputs.iter().filter(|input| input.kind == InputKind::User).map(|input| input.value)
    }

    /// All outputs, in order.
    pub fn outputs(&self) -> &[GraphOutput] {
        &self.outputs
    }

    /// How many times nodes and outputs read each value.
    pub fn use_counts(&self) -> HashMap<ValueId, usize> {
        let mut counts = HashMap::new();
        for (_, node) in self.nodes() {
            node.for_each_operand(|value| *counts.entry(value).or_insert(0) += 1);
        }
        for output in &self.outputs {
            if let OutputSource::Value(value) = output.source {
                *counts.entry(value).or_insert(0) += 1;
            }
        }
        counts
    }

    /// Makes every reader of `old` read `new` instead.
    ///
    /// # Errors
    /// When a node of the order does not exist.
    pub fn replace_uses(&mut self, old: ValueId, new: ValueId) -> Result<()> {
        for &id in &self.order {
            let node = self.nodes.get_mut(id)?;
            for (_, arg) in &mut node.args {
                arg.map_values(|value| if value == old { new } else { value });
            }
        }
        for output in &mut self.outputs {
            if output.source == OutputSource::Value(old) {
                output.source = OutputSource::Value(new);
            }
        }
        Ok(())
    }

    /// Keeps only the nodes that `keep` says so of. Their values' names stay taken.
    pub fn retain_nodes(&mut self, mut keep: impl FnMut(NodeId) -> bool) {
        self.order.retain(|&id| keep(id));
    }

    /// Keeps only the inputs that `keep` says so of.
    pub fn retain_inputs(&mut self, keep: impl FnMut(&GraphInput) -> bool) {
        self.inputs.retain(keep);
    }

    /// The position of `node` in the order.
    pub fn position(&self, node: NodeId) -> Option<usize> {
        self.order.iter().position(|&id| id == node)
    }
}
