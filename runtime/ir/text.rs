//! Prints a graph. The form is what [`parse_graph`](super::parse_graph) reads, and what golden tests hold.
//!
//! ```text
//! graph model
//! input %p_w: float32[24, 16] = parameter "w"
//! input %x: float32[s0, 16]
//! %permute: float32[16, 24] = aten.permute.default(self=%p_w, dims=[1, 0])
//! %mm: float32[s0, 24] = aten.mm.default(self=%x, mat2=%permute)
//! output %mm
//! ```

use std::fmt;

use super::{
    arg::{Arg, IntArg},
    graph::{Graph, InputKind, Node, OutputKind, OutputSource, Type, ValueId},
};

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Type::Tensor(tensor) => {
                write!(f, "{}[", tensor.dtype)?;
                for (position, size) in tensor.sizes.iter().enumerate() {
                    write!(f, "{}{size}", if position > 0 { ", " } else { "" })?;
                }
                f.write_str("]")
            }
            Type::Int(Some(expr)) => write!(f, "int({expr})"),
            Type::Int(None) => f.write_str("int"),
            Type::Float => f.write_str("float"),
            Type::Bool => f.write_str("truth"),
            Type::None => f.write_str("none"),
        }
    }
}

/// Prints one argument with the names of `graph`.
struct ArgText<'a>(&'a Graph, &'a Arg);

impl fmt::Display for ArgText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fn list<T>(f: &mut fmt::Formatter<'_>, items: &[T], text: impl Fn(&T) -> String) -> fmt::Result {
            write!(f, "[{}]", items.iter().map(text).collect::<Vec<_>>().join(", "))
        }
        let name = |value: &ValueId| format!("%{}", self.0.value_name(*value));
        match self.1 {
            Arg::None => f.write_str("none"),
            Arg::Value(value) => f.write_str(&name(value)),
            Arg::Values(values) => list(f, values, |value| value.as_ref().map_or("none".to_string(), name)),
            Arg::Int(value) => write!(f, "{value}"),
            Arg::Ints(items) => list(f, items, |item| match item {
                IntArg::Const(value) => value.to_string(),
                IntArg::Value(value) => name(value),
            }),
            Arg::Float(value) => write!(f, "{value:?}"),
            Arg::Floats(items) => list(f, items, |value| format!("{value:?}")),
            Arg::Bool(value) => write!(f, "{value}"),
            Arg::Bools(items) => list(f, items, bool::to_string),
            Arg::Str(text) => write!(f, "{text:?}"),
            Arg::DType(dtype) => write!(f, "{dtype}"),
            Arg::Opaque(text) => write!(f, "<{text}>"),
        }
    }
}

impl Graph {
    /// The line of `node` in the text form.
    pub fn node_text(&self, node: &Node) -> String {
        let outputs: Vec<String> = node
            .outputs
            .iter()
            .map(|&value| {
                let ty = self.value(value).map_or("?".to_string(), |data| data.ty.to_string());
                format!("%{}: {ty}", self.value_name(value))
            })
            .collect();
        let args: Vec<String> =
            node.args.iter().map(|(name, arg)| format!("{name}={}", ArgText(self, arg))).collect();
        let equals = if outputs.is_empty() { "" } else { " = " };
        let same_name = node.outputs.first().is_some_and(|&value| self.value_name(value) == node.name);
        let name = if same_name { String::new() } else { format!(" as {}", node.name) };
        format!("{}{equals}{}({}){name}", outputs.join(", "), node.op, args.join(", "))
    }
}

impl fmt::Display for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "graph {}{}", self.name(), if self.has_signature() { "" } else { " without signature" })?;
        for input in self.inputs() {
            let ty = self.value(input.value).map_or("?".to_string(), |data| data.ty.to_string());
            write!(f, "input %{}: {ty}", self.value_name(input.value))?;
            let word = match input.kind {
                InputKind::User => "",
                InputKind::Parameter(_) => "parameter",
                InputKind::Buffer(_) => "buffer",
                InputKind::Lifted(_) => "lifted",
                InputKind::Derived(_) => "derived",
            };
            match input.kind.constant() {
                Some(id) => {
                    let name =
                        self.constant(id).map_or("?".to_string(), |constant| constant.name().to_string());
                    writeln!(f, " = {word} {name:?}")?;
                }
                None => writeln!(f)?,
            }
        }
        for (_, node) in self.nodes() {
            writeln!(f, "{}", self.node_text(node))?;
        }
        for output in self.outputs() {
            let source = match &output.source {
                OutputSource::Value(value) => format!("%{}", self.value_name(*value)),
                OutputSource::Scalar(scalar) => scalar.to_string(),
                OutputSource::None => "none".to_string(),
            };
            match output.kind {
                OutputKind::User => writeln!(f, "output {source}")?,
                OutputKind::BufferMutation(input) | OutputKind::InputMutation(input) => {
                    writeln!(f, "output {source} -> %{}", self.value_name(input))?;
                }
            }
        }
        Ok(())
    }
}
