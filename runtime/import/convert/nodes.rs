//! Nodes: targets, arguments and the values they define.

use super::super::schema::{
    self, Argument, OptionalTensorArgument, SymBoolArgument, SymFloatArgument, SymInt, SymIntArgument,
    TensorArgument,
};
use super::super::{damaged, unsupported};
use super::{Converter, as_bad_file};
use crate::base::{Result, shape};
use crate::ir::{Arg, BASE_IS_VIEW, IntArg, OpName, Type, ValueId};

const HIGHER_ORDER: &str = "torch.ops.higher_order.";

impl Converter<'_> {
    /// Adds node number `index` with the values that it defines.
    pub(super) fn add_node(&mut self, index: usize, node: &schema::Node) -> Result<()> {
        let outputs: Vec<&str> = node.outputs.iter().flat_map(output_names).collect();
        let name = match (&node.name, outputs.first()) {
            (Some(name), _) => name.clone(),
            (None, Some(first)) => (*first).to_owned(),
            (None, None) => format!("node_{index}"),
        };
        self.add_named_node(&name, node).map_err(|e| e.at_node(name))
    }

    fn add_named_node(&mut self, name: &str, node: &schema::Node) -> Result<()> {
        check_name(name)?;
        check_target(&node.target)?;
        let mut args = Vec::with_capacity(node.inputs.len());
        for input in &node.inputs {
            let arg = self.arg(&input.arg).map_err(|e| e.at_operand(&input.name))?;
            args.push((input.name.clone(), arg));
        }
        if node.target.ends_with("aten.as_strided.default") && !self.takes_whole_tensor(node) {
            args.push((BASE_IS_VIEW.to_owned(), Arg::Bool(true)));
        }
        let mut outputs = Vec::with_capacity(node.outputs.len());
        for output in &node.outputs {
            self.add_output_types(name, output, &mut outputs)?;
        }
        self.graph.add_node(name, OpName::new(&node.target), args, outputs).map_err(as_bad_file)?;
        Ok(())
    }

    /// Whether the node's first operand is contiguous in PyTorch and starts its storage.
    fn takes_whole_tensor(&self, node: &schema::Node) -> bool {
        let Some(Argument::AsTensor(tensor)) = node.inputs.first().map(|input| &input.arg) else {
            return false;
        };
        let number = |item: &SymInt| match item {
            SymInt::AsInt(value) => usize::try_from(*value).ok(),
            SymInt::AsExpr(_) => None,
        };
        let numbers = |items: &[SymInt]| items.iter().map(number).collect::<Option<Vec<_>>>();
        // No stride depends on the outermost size, so any stands for one that changes.
        let sizes = |items: &[SymInt]| match items {
            [SymInt::AsExpr(_), inner @ ..] => Some([vec![2], numbers(inner)?].concat()),
            _ => numbers(items),
        };
        self.source.tensor_values.0.get(&tensor.name).is_some_and(|meta| {
            matches!(meta.storage_offset, SymInt::AsInt(0))
                && sizes(&meta.sizes)
                    .zip(numbers(&meta.strides))
                    .is_some_and(|(sizes, strides)| shape::is_contiguous(&sizes, &strides))
        })
    }

    /// Appends name and type of every value that one output stands for.
    fn add_output_types(
        &mut self,
        node: &str,
        output: &Argument,
        values: &mut Vec<(String, Type)>,
    ) -> Result<()> {
        let value = match output {
            Argument::AsTensor(tensor)
            | Argument::AsOptionalTensor(OptionalTensorArgument::AsTensor(tensor)) => {
                (tensor.name.clone(), self.tensor_type(&tensor.name)?)
            }
            Argument::AsTensors(tensors) => {
                for tensor in tensors {
                    check_name(&tensor.name)?;
                    values.push((tensor.name.clone(), self.tensor_type(&tensor.name)?));
                }
                return Ok(());
            }
            Argument::AsSymInt(SymIntArgument::AsName(name)) => (name.clone(), self.int_type(name)?),
            Argument::AsSymFloat(SymFloatArgument::AsName(name)) => (name.clone(), Type::Float),
            Argument::AsSymBool(SymBoolArgument::AsName(name)) => (name.clone(), Type::Bool),
            // A result that the program does not use keeps its position.
            Argument::AsNone(_) | Argument::AsOptionalTensor(_) => {
                let unused = format!("{node}_none_{}", values.len());
                (self.graph.unique_name(&unused), Type::None)
            }
            other => {
                let what = format!("an output of the kind {} is not supported", kind_name(other));
                return Err(unsupported(what, "rewrite this part of the model with tensors"));
            }
        };
        check_name(&value.0)?;
        values.push(value);
        Ok(())
    }

    fn arg(&mut self, arg: &Argument) -> Result<Arg> {
        Ok(match arg {
            Argument::AsNone(_) | Argument::AsOptionalTensor(OptionalTensorArgument::AsNone(_)) => Arg::None,
            Argument::AsTensor(tensor)
            | Argument::AsOptionalTensor(OptionalTensorArgument::AsTensor(tensor)) => {
                Arg::Value(self.value(&tensor.name)?)
            }
            Argument::AsTensors(tensors) => Arg::Values(self.tensors(tensors)?),
            Argument::AsOptionalTensors(tensors) => Arg::Values(self.optional_tensors(tensors)?),
            Argument::AsInt(value) | Argument::AsSymInt(SymIntArgument::AsInt(value)) => Arg::Int(*value),
            Argument::AsSymInt(SymIntArgument::AsName(name)) => Arg::Value(self.value(name)?),
            Argument::AsInts(values) => Arg::Ints(values.iter().map(|&value| IntArg::Const(value)).collect()),
            Argument::AsSymInts(values) => Arg::Ints(self.ints(values)?),
            Argument::AsFloat(value) | Argument::AsSymFloat(SymFloatArgument::AsFloat(value)) => {
                Arg::Float(value.0)
            }
            Argument::AsSymFloat(SymFloatArgument::AsName(name)) => Arg::Value(self.value(name)?),
            Argument::AsFloats(values) => Arg::Floats(values.iter().map(|value| value.0).collect()),
            Argument::AsBool(value) | Argument::AsSymBool(SymBoolArgument::AsBool(value)) => {
                Arg::Bool(*value)
            }
            Argument::AsSymBool(SymBoolArgument::AsName(name)) => Arg::Value(self.value(name)?),
            Argument::AsBools(values) => Arg::Bools(values.clone()),
            Argument::AsString(text) => Arg::Str(text.clone()),
            Argument::AsScalarType(code) => match schema::dtype(*code) {
                Ok(dtype) => Arg::DType(dtype),
                Err(name) => Arg::Opaque(name.to_owned()),
            },
            Argument::AsGraph(graph) => {
                return Err(higher_order(&format!("takes the sub-graph `{:.80}`", graph.name)));
            }
            Argument::AsCustomObj(object) => {
                let what = format!(
                    "it takes `{:.80}`, an object of the class {:.80}",
                    object.name, object.class_fqn
                );
                return Err(unsupported(what, "rewrite this part of the model with tensors"));
            }
            Argument::AsMemoryFormat(code) => Arg::Opaque(schema::memory_format(*code).to_owned()),
            Argument::AsLayout(schema::LAYOUT_STRIDED) => Arg::Opaque("strided".to_owned()),
            Argument::AsLayout(_) => Arg::Opaque("sparse layout".to_owned()),
            Argument::AsDevice(device) => Arg::Opaque(device.kind.clone()),
            // Kinds that no supported op reads; one that does read such an argument refuses it by name.
            other => Arg::Opaque(kind_name(other).to_owned()),
        })
    }

    fn tensors(&self, tensors: &[TensorArgument]) -> Result<Vec<Option<ValueId>>> {
        tensors.iter().map(|tensor| self.value(&tensor.name).map(Some)).collect()
    }

    fn optional_tensors(&self, tensors: &[OptionalTensorArgument]) -> Result<Vec<Option<ValueId>>> {
        let value = |tensor: &OptionalTensorArgument| match tensor {
            OptionalTensorArgument::AsTensor(tensor) => self.value(&tensor.name).map(Some),
            OptionalTensorArgument::AsNone(_) => Ok(None),
        };
        tensors.iter().map(value).collect()
    }

    fn ints(&self, values: &[SymIntArgument]) -> Result<Vec<IntArg>> {
        let int = |value: &SymIntArgument| match value {
            SymIntArgument::AsInt(value) => Ok(IntArg::Const(*value)),
            SymIntArgument::AsName(name) => self.value(name).map(IntArg::Value),
        };
        values.iter().map(int).collect()
    }
}

fn higher_order(what: &str) -> crate::base::Error {
    unsupported(
        format_args!("it {what}: a higher-order operator (control flow), which is not supported"),
        "rewrite the model without torch.cond, while_loop, map, scan and the like",
    )
}

fn check_target(target: &str) -> Result<()> {
    if let Some(op) = target.strip_prefix(HIGHER_ORDER) {
        return Err(higher_order(&format!("calls {op:.80}")));
    }
    if target.is_empty() || !target.chars().all(|c| c.is_ascii_graphic()) {
        return Err(damaged("target", format_args!("{target:.80?} names no operator")));
    }
    Ok(())
}

/// Names are Python identifiers, so that they can stand in the IR's text form.
pub(super) fn check_name(name: &str) -> Result<()> {
    let plain = !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '.'));
    if plain && name.len() <= 1024 {
        Ok(())
    } else {
        Err(damaged("name", format_args!("{name:.80?} is no identifier")))
    }
}

fn output_names(output: &Argument) -> Vec<&str> {
    match output {
        Argument::AsTensor(tensor) => vec![&tensor.name],
        Argument::AsTensors(tensors) => tensors.iter().map(|tensor| tensor.name.as_str()).collect(),
        Argument::AsSymInt(SymIntArgument::AsName(name))
        | Argument::AsSymFloat(SymFloatArgument::AsName(name))
        | Argument::AsSymBool(SymBoolArgument::AsName(name)) => vec![name],
        _ => Vec::new(),
    }
}

/// What kind of argument it is, for people.
pub(super) fn kind_name(arg: &Argument) -> &'static str {
    match arg {
        Argument::AsNone(_) => "None",
        Argument::AsTensor(_) | Argument::AsOptionalTensor(_) => "tensor",
        Argument::AsTensors(_) | Argument::AsOptionalTensors(_) => "list of tensors",
        Argument::AsInt(_) | Argument::AsSymInt(_) => "int",
        Argument::AsInts(_) | Argument::AsSymInts(_) => "list of ints",
        Argument::AsFloat(_) | Argument::AsSymFloat(_) => "float",
        Argument::AsFloats(_) | Argument::AsSymFloats(_) => "list of floats",
        Argument::AsBool(_) | Argument::AsSymBool(_) => "bool",
        Argument::AsBools(_) | Argument::AsSymBools(_) => "list of bools",
        Argument::AsString(_) => "str",
        Argument::AsStrings(_) => "list of strs",
        Argument::AsScalarType(_) => "dtype",
        Argument::AsMemoryFormat(_) => "memory format",
        Argument::AsLayout(_) => "layout",
        Argument::AsDevice(_) => "device",
        Argument::AsGraph(_) => "graph",
        Argument::AsCustomObj(_) => "custom object",
        Argument::AsOperator(_) => "operator",
        Argument::AsComplex(_) => "complex number",
        Argument::AsNestedTensors(_) => "list of lists of tensors",
        Argument::AsIntLists(_) => "list of lists of ints",
        Argument::AsFloatLists(_) => "list of lists of floats",
        Argument::AsStringToArgument(_) => "dict",
    }
}
