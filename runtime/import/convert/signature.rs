//! Inputs and outputs: what each is to the program.

use std::collections::HashMap;

use super::super::schema::{
    Argument, ConstantValue, GraphSignature, InputSpec, OutputSpec, SymBoolArgument, SymFloatArgument,
    SymIntArgument,
};
use super::super::weights::TableKind;
use super::super::{damaged, unsupported};
use super::nodes::{check_name, kind_name};
use super::{ConstantSource, Converter, as_bad_file};
use crate::base::{Error, Result, Scalar, SymExpr, Value};
use crate::ir::{ConstantId, InputKind, OutputKind, OutputSource, Type, ValueId};

const TENSORS_INSTEAD: &str = "export a model that takes and returns tensors and numbers only";
const EAGER_TRAINING: &str = "export the model for inference: call model.eval() and do not export a loss";

impl Converter<'_> {
    /// Adds all inputs, in the order of the signature, with the constants behind them.
    pub(super) fn add_inputs(
        &mut self,
        signature: &GraphSignature,
        constants: &mut ConstantSource<'_>,
    ) -> Result<()> {
        let source = self.source;
        for (index, (spec, given)) in signature.input_specs.iter().zip(&source.inputs).enumerate() {
            self.add_input(spec, given, constants).map_err(|e| e.context(format_args!("input {index}")))?;
        }
        Ok(())
    }

    fn add_input(
        &mut self,
        spec: &InputSpec,
        given: &Argument,
        constants: &mut ConstantSource<'_>,
    ) -> Result<()> {
        let (name, fqn, table, kind): (_, _, _, fn(ConstantId) -> InputKind) = match spec {
            InputSpec::UserInput { arg } => return self.add_user_input(arg, given),
            InputSpec::ConstantInput { name, value } => return self.add_fixed_input(name, value),
            InputSpec::Parameter { arg, parameter_name } => {
                (&arg.name, parameter_name, TableKind::Weights, InputKind::Parameter)
            }
            InputSpec::Buffer { arg, buffer_name, persistent } => {
                let table = if *persistent { TableKind::Weights } else { TableKind::Constants };
                (&arg.name, buffer_name, table, InputKind::Buffer)
            }
            InputSpec::TensorConstant { arg, tensor_constant_name } => {
                (&arg.name, tensor_constant_name, TableKind::Constants, InputKind::Lifted)
            }
            InputSpec::CustomObj { custom_obj_name, arg } => {
                let what = format!("`{custom_obj_name:.80}` is an object of the class {:.80}", arg.class_fqn);
                return Err(unsupported(what, TENSORS_INSTEAD));
            }
            InputSpec::Token { arg } => return Err(unsupported_token(&arg.name)),
        };
        check_same_name(name, given)?;
        check_name(name)?;
        let ty = self.tensor_type(name)?;
        let constant = self.graph.add_constant(constants(table, fqn)?);
        self.graph.add_input(name, ty, kind(constant)).map_err(as_bad_file)?;
        Ok(())
    }

    fn add_user_input(&mut self, arg: &Argument, given: &Argument) -> Result<()> {
        let (name, ty) = match arg {
            Argument::AsTensor(tensor) => (&tensor.name, self.tensor_type(&tensor.name)?),
            Argument::AsSymInt(SymIntArgument::AsName(name)) => (name, self.int_type(name)?),
            Argument::AsSymFloat(SymFloatArgument::AsName(name)) => (name, Type::Float),
            Argument::AsSymBool(SymBoolArgument::AsName(name)) => (name, Type::Bool),
            other => {
                return Err(unsupported(
                    format_args!("a user input of the kind {}", kind_name(other)),
                    TENSORS_INSTEAD,
                ));
            }
        };
        check_same_name(name, given)?;
        check_name(name)?;
        self.graph.add_input(name, ty, InputKind::User).map_err(as_bad_file)?;
        Ok(())
    }

    /// A user input whose value the exporter fixed: the graph does not read it.
    fn add_fixed_input(&mut self, name: &str, value: &ConstantValue) -> Result<()> {
        check_name(name)?;
        let (ty, value) = match value {
            ConstantValue::AsNone(_) => (Type::None, Value::None),
            ConstantValue::AsInt(value) => (Type::Int(Some(SymExpr::Const(*value))), Value::Int(*value)),
            ConstantValue::AsFloat(value) => (Type::Float, Value::Float(value.0)),
            ConstantValue::AsBool(value) => (Type::Bool, Value::Bool(*value)),
            ConstantValue::AsString(_) => {
                return Err(unsupported(format_args!("the user input `{name}` is a str"), TENSORS_INSTEAD));
            }
        };
        self.graph.add_input(name, ty, InputKind::User).map_err(as_bad_file)?;
        self.fixed_inputs.insert(name.to_owned(), value);
        Ok(())
    }

    /// Adds all outputs, in the order of the signature.
    pub(super) fn add_outputs(&mut self, signature: &GraphSignature) -> Result<()> {
        let source = self.source;
        let state = state_inputs(self, signature)?;
        for (index, (spec, given)) in signature.output_specs.iter().zip(&source.outputs).enumerate() {
            self.add_output(spec, given, &state).map_err(|e| e.context(format_args!("output {index}")))?;
        }
        Ok(())
    }

    fn add_output(
        &mut self,
        spec: &OutputSpec,
        given: &Argument,
        state: &HashMap<&str, ValueId>,
    ) -> Result<()> {
        let (name, kind) = match spec {
            OutputSpec::UserOutput { arg } => {
                if let Argument::AsTensor(tensor) = arg {
                    check_same_name(&tensor.name, given)?;
                }
                let source = self.output_source(arg)?;
                self.graph.add_output(source, OutputKind::User);
                return Ok(());
            }
            OutputSpec::BufferMutation { arg, buffer_name: fqn }
            | OutputSpec::ParameterMutation { arg, parameter_name: fqn } => {
                let target = state.get(fqn.as_str()).copied();
                let target =
                    target.ok_or_else(|| damaged(format_args!("`{fqn:.80}`"), "no input is this buffer"))?;
                (&arg.name, OutputKind::BufferMutation(target))
            }
            OutputSpec::UserInputMutation { arg, user_input_name } => {
                (&arg.name, OutputKind::InputMutation(self.value(user_input_name)?))
            }
            OutputSpec::LossOutput(_)
            | OutputSpec::GradientToParameter(_)
            | OutputSpec::GradientToUserInput(_) => {
                return Err(unsupported("the program computes a loss or gradients", EAGER_TRAINING));
            }
            OutputSpec::Token { arg } => return Err(unsupported_token(&arg.name)),
        };
        check_same_name(name, given)?;
        let source = OutputSource::Value(self.value(name)?);
        self.graph.add_output(source, kind);
        Ok(())
    }

    fn output_source(&self, arg: &Argument) -> Result<OutputSource> {
        let name = match arg {
            Argument::AsNone(_) => return Ok(OutputSource::None),
            Argument::AsInt(value) | Argument::AsSymInt(SymIntArgument::AsInt(value)) => {
                return Ok(OutputSource::Scalar(Scalar::Int(*value)));
            }
            Argument::AsFloat(value) | Argument::AsSymFloat(SymFloatArgument::AsFloat(value)) => {
                return Ok(OutputSource::Scalar(Scalar::Float(value.0)));
            }
            Argument::AsBool(value) | Argument::AsSymBool(SymBoolArgument::AsBool(value)) => {
                return Ok(OutputSource::Scalar(Scalar::Bool(*value)));
            }
            Argument::AsTensor(tensor) => &tensor.name,
            Argument::AsSymInt(SymIntArgument::AsName(name))
            | Argument::AsSymFloat(SymFloatArgument::AsName(name))
            | Argument::AsSymBool(SymBoolArgument::AsName(name)) => name,
            other => {
                return Err(unsupported(
                    format_args!("a user output of the kind {}", kind_name(other)),
                    TENSORS_INSTEAD,
                ));
            }
        };
        Ok(OutputSource::Value(self.value(name)?))
    }
}

/// Buffers and parameters by their name in the model.
fn state_inputs<'a>(
    converter: &Converter<'_>,
    signature: &'a GraphSignature,
) -> Result<HashMap<&'a str, ValueId>> {
    let mut inputs = HashMap::new();
    for spec in &signature.input_specs {
        let (arg, fqn) = match spec {
            InputSpec::Buffer { arg, buffer_name, .. } => (arg, buffer_name),
            InputSpec::Parameter { arg, parameter_name } => (arg, parameter_name),
            _ => continue,
        };
        if inputs.insert(fqn.as_str(), converter.value(&arg.name)?).is_some() {
            return Err(damaged(format_args!("`{fqn:.80}`"), "two inputs have this name in the model"));
        }
    }
    Ok(inputs)
}

/// Graph and signature list the same values in the same order.
fn check_same_name(in_signature: &str, given: &Argument) -> Result<()> {
    let in_graph = match given {
        Argument::AsTensor(tensor) => Some(&tensor.name),
        Argument::AsSymInt(SymIntArgument::AsName(name))
        | Argument::AsSymFloat(SymFloatArgument::AsName(name))
        | Argument::AsSymBool(SymBoolArgument::AsName(name)) => Some(name),
        _ => None,
    };
    if in_graph.is_some_and(|name| name == in_signature) {
        return Ok(());
    }
    Err(damaged(format_args!("`{in_signature:.80}`"), "graph and signature disagree on what stands here"))
}

fn unsupported_token(name: &str) -> Error {
    let what = format!("`{name:.80}` is a token, which orders side effects that the program has");
    unsupported(what, "export a model without prints, custom effects and the like")
}
