//! The JSON of a program as torch 2.9 to 2.15 writes it (schema 8.x), field by field.
//!
//! Plain mirrors of `torch/_export/serde/schema.py`: names are torch's, unknown fields are ignored
//! (a newer minor version adds some), unknown union members are errors. No type is recursive:
//! what only higher-order operators use is read as [`IgnoredAny`] and refused by `convert`.

#![allow(clippy::enum_variant_names, reason = "the names are torch's")]

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::json::{self, Float, UniqueMap};
use super::unsupported;
use crate::base::{DType, Result};

/// Major version of the schema that this module mirrors; torch changes it for breaking changes.
const SCHEMA_MAJOR: i64 = 8;

/// Parses the program of the entry `place`. A file of another version is refused as such, and not
/// for what its fields are.
pub(super) fn parse_program(place: &str, text: &[u8]) -> Result<ExportedProgram> {
    let VersionOnly { schema_version: version, torch_version } = json::parse(place, text)?;
    if version.major != SCHEMA_MAJOR {
        let by = torch_version.map_or(String::new(), |v| format!(", written by torch {v:.40}"));
        return Err(unsupported(
            format_args!("{place} has schema version {}.{}{by}", version.major, version.minor),
            "this reader knows versions 8.x: export with torch 2.9 to 2.15",
        ));
    }
    json::parse(place, text)
}

/// The dtype of torch's serialised `ScalarType`, or the name of one that no tensor may have here.
pub(super) fn dtype(code: i64) -> Result<DType, &'static str> {
    Ok(match code {
        1 => DType::U8,
        2 => DType::I8,
        3 => DType::I16,
        4 => DType::I32,
        5 => DType::I64,
        6 => DType::F16,
        7 => DType::F32,
        8 => DType::F64,
        12 => DType::Bool,
        13 => DType::BF16,
        9 => return Err("complex32"),
        10 => return Err("complex64"),
        11 => return Err("complex128"),
        28 => return Err("uint16"),
        29 => return Err("float8_e4m3fn"),
        30 => return Err("float8_e5m2"),
        31 => return Err("float8_e4m3fnuz"),
        32 => return Err("float8_e5m2fnuz"),
        33 => return Err("float8_e8m0fnu"),
        34 => return Err("uint32"),
        35 => return Err("uint64"),
        _ => return Err("(an unknown code)"),
    })
}

#[derive(Debug, Deserialize)]
pub(super) struct ExportedProgram {
    pub graph_module: GraphModule,
    pub range_constraints: UniqueMap<RangeConstraint>,
    #[serde(default)]
    pub verifiers: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct VersionOnly {
    schema_version: SchemaVersion,
    #[serde(default)]
    torch_version: Option<String>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
struct SchemaVersion {
    major: i64,
    minor: i64,
}

#[derive(Clone, Copy, Debug, Deserialize)]
pub(super) struct RangeConstraint {
    /// `null` where there is no bound; the key itself always stands.
    #[serde(deserialize_with = "Option::deserialize")]
    pub min_val: Option<i64>,
    #[serde(deserialize_with = "Option::deserialize")]
    pub max_val: Option<i64>,
}

#[derive(Debug, Deserialize)]
pub(super) struct GraphModule {
    pub graph: Graph,
    pub signature: GraphSignature,
}

#[derive(Debug, Deserialize)]
pub(super) struct Graph {
    pub inputs: Vec<Argument>,
    pub outputs: Vec<Argument>,
    pub nodes: Vec<Node>,
    pub tensor_values: UniqueMap<TensorMeta>,
    pub sym_int_values: UniqueMap<SymInt>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Node {
    pub target: String,
    pub inputs: Vec<NamedArgument>,
    pub outputs: Vec<Argument>,
    #[serde(default)]
    pub name: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct NamedArgument {
    pub name: String,
    pub arg: Argument,
}

/// An operand, attribute or result of a node.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Argument {
    AsNone(IgnoredAny),
    AsTensor(TensorArgument),
    AsTensors(Vec<TensorArgument>),
    AsInt(i64),
    AsInts(Vec<i64>),
    AsFloat(Float),
    AsFloats(Vec<Float>),
    AsString(String),
    AsStrings(IgnoredAny),
    AsSymInt(SymIntArgument),
    AsSymInts(Vec<SymIntArgument>),
    AsScalarType(i64),
    AsMemoryFormat(i64),
    AsLayout(i64),
    AsDevice(Device),
    AsBool(bool),
    AsBools(Vec<bool>),
    AsSymBool(SymBoolArgument),
    AsSymBools(IgnoredAny),
    AsGraph(GraphArgument),
    AsOptionalTensor(OptionalTensorArgument),
    AsOptionalTensors(Vec<OptionalTensorArgument>),
    AsCustomObj(CustomObjArgument),
    AsOperator(IgnoredAny),
    AsSymFloat(SymFloatArgument),
    AsSymFloats(IgnoredAny),
    AsComplex(IgnoredAny),
    AsNestedTensors(IgnoredAny),
    AsIntLists(IgnoredAny),
    AsFloatLists(IgnoredAny),
    AsStringToArgument(IgnoredAny),
}

#[derive(Debug, Deserialize)]
pub(super) struct TensorArgument {
    pub name: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum OptionalTensorArgument {
    AsTensor(TensorArgument),
    AsNone(IgnoredAny),
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum SymIntArgument {
    AsName(String),
    AsInt(i64),
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum SymFloatArgument {
    AsName(String),
    AsFloat(Float),
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum SymBoolArgument {
    AsName(String),
    AsBool(bool),
}

/// The sub-graph itself is skipped: programs with higher-order operators are refused.
#[derive(Debug, Deserialize)]
pub(super) struct GraphArgument {
    pub name: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct CustomObjArgument {
    pub name: String,
    pub class_fqn: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct Device {
    #[serde(rename = "type")]
    pub kind: String,
}

/// Metadata of a tensor value or of a stored tensor. Strides and offset count elements.
#[derive(Debug, Deserialize)]
pub(super) struct TensorMeta {
    pub dtype: i64,
    pub sizes: Vec<SymInt>,
    pub strides: Vec<SymInt>,
    pub storage_offset: SymInt,
    pub layout: i64,
}

/// PyTorch's name of a serialised memory format.
pub(super) fn memory_format(code: i64) -> &'static str {
    match code {
        1 => "contiguous_format",
        2 => "channels_last",
        3 => "channels_last_3d",
        4 => "preserve_format",
        _ => "unknown memory format",
    }
}

/// `TensorMeta::layout` of an ordinary dense tensor.
pub(super) const LAYOUT_STRIDED: i64 = 7;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum SymInt {
    AsExpr(SymExpr),
    AsInt(i64),
}

#[derive(Debug, Deserialize)]
pub(super) struct SymExpr {
    pub expr_str: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct GraphSignature {
    pub input_specs: Vec<InputSpec>,
    pub output_specs: Vec<OutputSpec>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum InputSpec {
    UserInput { arg: Argument },
    Parameter { arg: TensorArgument, parameter_name: String },
    Buffer { arg: TensorArgument, buffer_name: String, persistent: bool },
    TensorConstant { arg: TensorArgument, tensor_constant_name: String },
    CustomObj { arg: CustomObjArgument, custom_obj_name: String },
    Token { arg: TokenArgument },
    ConstantInput { name: String, value: ConstantValue },
}

#[derive(Debug, Deserialize)]
pub(super) struct TokenArgument {
    pub name: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ConstantValue {
    AsNone(IgnoredAny),
    AsInt(i64),
    AsFloat(Float),
    AsString(IgnoredAny),
    AsBool(bool),
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum OutputSpec {
    UserOutput { arg: Argument },
    LossOutput(IgnoredAny),
    BufferMutation { arg: TensorArgument, buffer_name: String },
    ParameterMutation { arg: TensorArgument, parameter_name: String },
    GradientToParameter(IgnoredAny),
    GradientToUserInput(IgnoredAny),
    UserInputMutation { arg: TensorArgument, user_input_name: String },
    Token { arg: TokenArgument },
}

/// Table of the stored tensors of one method: FQN to payload.
#[derive(Debug, Deserialize)]
pub(super) struct PayloadConfig {
    pub config: UniqueMap<PayloadMeta>,
}

#[derive(Debug, Deserialize)]
pub(super) struct PayloadMeta {
    /// File name of the payload within the table's folder; several tensors may share one.
    pub path_name: String,
    pub use_pickle: bool,
    pub tensor_meta: Option<TensorMeta>,
}
