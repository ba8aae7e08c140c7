//! The JSON of a program as torch 2.9 to 2.15 writes it (schema 8.x), field by field.
//!
//! Plain mirrors of `torch/_export/serde/schema.py`: names are torch's, unknown fields are ignored
//! (a newer minor version adds some), unknown union members are errors. No type is recursive:
//! what only higher-order operators use is read as [`IgnoredAny`] and refused by `convert`.

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::json::{Float, UniqueMap};

/// Major version of the schema that this module mirrors; torch changes it for breaking changes.
pub const SCHEMA_MAJOR: i64 = 8;

#[derive(Debug, Deserialize)]
pub struct ExportedProgram {
    pub graph_module: GraphModule,
    #[serde(default)]
    pub range_constraints: UniqueMap<RangeConstraint>,
    pub schema_version: SchemaVersion,
    #[serde(default)]
    pub torch_version: Option<String>,
}

/// Read alone first, so that a file of another version is refused as such and not for its fields.
#[derive(Debug, Deserialize)]
pub struct VersionOnly {
    pub schema_version: SchemaVersion,
    #[serde(default)]
    pub torch_version: Option<String>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
pub struct SchemaVersion {
    pub major: i64,
    pub minor: i64,
}

#[derive(Clone, Copy, Debug, Deserialize)]
pub struct RangeConstraint {
    #[serde(default)]
    pub min_val: Option<i64>,
    #[serde(default)]
    pub max_val: Option<i64>,
}

#[derive(Debug, Deserialize)]
pub struct GraphModule {
    pub graph: Graph,
    pub signature: GraphSignature,
}

#[derive(Debug, Deserialize)]
pub struct Graph {
    pub inputs: Vec<Argument>,
    pub outputs: Vec<Argument>,
    pub nodes: Vec<Node>,
    pub tensor_values: UniqueMap<TensorMeta>,
    pub sym_int_values: UniqueMap<SymInt>,
    pub sym_bool_values: UniqueMap<SymBool>,
    #[serde(default)]
    pub sym_float_values: UniqueMap<SymFloat>,
}

#[derive(Debug, Deserialize)]
pub struct Node {
    pub target: String,
    pub inputs: Vec<NamedArgument>,
    pub outputs: Vec<Argument>,
    #[serde(default)]
    pub name: Option<String>,
}

#[derive(Debug, Deserialize)]
pub struct NamedArgument {
    pub name: String,
    pub arg: Argument,
}

/// An operand, attribute or result of a node.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Argument {
    AsNone(bool),
    AsTensor(TensorArgument),
    AsTensors(Vec<TensorArgument>),
    AsInt(i64),
    AsInts(Vec<i64>),
    AsFloat(Float),
    AsFloats(Vec<Float>),
    AsString(String),
    AsStrings(Vec<String>),
    AsSymInt(SymIntArgument),
    AsSymInts(Vec<SymIntArgument>),
    AsScalarType(i64),
    AsMemoryFormat(i64),
    AsLayout(i64),
    AsDevice(Device),
    AsBool(bool),
    AsBools(Vec<bool>),
    AsSymBool(SymBoolArgument),
    AsSymBools(Vec<SymBoolArgument>),
    AsGraph(GraphArgument),
    AsOptionalTensor(OptionalTensorArgument),
    AsOptionalTensors(Vec<OptionalTensorArgument>),
    AsCustomObj(CustomObjArgument),
    AsOperator(String),
    AsSymFloat(SymFloatArgument),
    AsSymFloats(Vec<SymFloatArgument>),
    AsComplex(IgnoredAny),
    AsNestedTensors(IgnoredAny),
    AsIntLists(IgnoredAny),
    AsFloatLists(IgnoredAny),
    AsStringToArgument(IgnoredAny),
}

#[derive(Debug, Deserialize)]
pub struct TensorArgument {
    pub name: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OptionalTensorArgument {
    AsTensor(TensorArgument),
    AsNone(bool),
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SymIntArgument {
    AsName(String),
    AsInt(i64),
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SymFloatArgument {
    AsName(String),
    AsFloat(Float),
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SymBoolArgument {
    AsName(String),
    AsBool(bool),
}

/// The sub-graph itself is skipped: programs with higher-order operators are refused.
#[derive(Debug, Deserialize)]
pub struct GraphArgument {
    pub name: String,
}

#[derive(Debug, Deserialize)]
pub struct CustomObjArgument {
    pub name: String,
    pub class_fqn: String,
}

#[derive(Debug, Deserialize)]
pub struct Device {
    #[serde(rename = "type")]
    pub kind: String,
}

/// Metadata of a tensor value or of a stored tensor. Strides and offset count elements.
#[derive(Debug, Deserialize)]
pub struct TensorMeta {
    pub dtype: i64,
    pub sizes: Vec<SymInt>,
    pub strides: Vec<SymInt>,
    pub storage_offset: SymInt,
    pub layout: i64,
}

/// `TensorMeta::layout` of an ordinary dense tensor.
pub const LAYOUT_STRIDED: i64 = 7;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SymInt {
    AsExpr(SymExpr),
    AsInt(i64),
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SymFloat {
    AsExpr(SymExpr),
    AsFloat(Float),
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SymBool {
    AsExpr(SymExpr),
    AsBool(bool),
}

#[derive(Debug, Deserialize)]
pub struct SymExpr {
    pub expr_str: String,
}

#[derive(Debug, Deserialize)]
pub struct GraphSignature {
    pub input_specs: Vec<InputSpec>,
    pub output_specs: Vec<OutputSpec>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InputSpec {
    UserInput { arg: Argument },
    Parameter { arg: TensorArgument, parameter_name: String },
    Buffer { arg: TensorArgument, buffer_name: String, persistent: bool },
    TensorConstant { arg: TensorArgument, tensor_constant_name: String },
    CustomObj { arg: CustomObjArgument, custom_obj_name: String },
    Token { arg: TokenArgument },
    ConstantInput { name: String, value: ConstantValue },
}

#[derive(Debug, Deserialize)]
pub struct TokenArgument {
    pub name: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConstantValue {
    AsNone(bool),
    AsInt(i64),
    AsFloat(Float),
    AsString(String),
    AsBool(bool),
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutputSpec {
    UserOutput { arg: Argument },
    LossOutput { arg: TensorArgument },
    BufferMutation { arg: TensorArgument, buffer_name: String },
    ParameterMutation { arg: TensorArgument, parameter_name: String },
    GradientToParameter { arg: TensorArgument, parameter_name: String },
    GradientToUserInput { arg: TensorArgument, user_input_name: String },
    UserInputMutation { arg: TensorArgument, user_input_name: String },
    Token { arg: TokenArgument },
}

/// Table of the stored tensors of one method: FQN to payload.
#[derive(Debug, Deserialize)]
pub struct PayloadConfig {
    pub config: UniqueMap<PayloadMeta>,
}

#[derive(Debug, Deserialize)]
pub struct PayloadMeta {
    /// File name of the payload within the table's folder; several tensors may share one.
    pub path_name: String,
    pub use_pickle: bool,
    pub tensor_meta: Option<TensorMeta>,
}
