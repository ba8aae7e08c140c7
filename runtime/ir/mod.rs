//! The intermediate representation: one method as a graph of ATen-level calls in SSA form.
//!
//! Holds the graph and what can be said of it without knowing how any op computes: its text form, the
//! verifier, effects, patches, and which values are constant. Knows no file format and no device.

mod arg;
mod constant;
mod constness;
mod effect_tables;
mod effects;
mod graph;
mod method;
mod parse;
mod patch;
mod text;
mod verify;

pub use arg::{Arg, BASE_IS_VIEW, IntArg, OpName};
pub use constant::{Constant, ConstantId, InlinePayload, Payload, PayloadId};
pub use constness::{Constness, Fact, Reason, TensorRef};
pub use effects::{Effect, effect_of, written_operands};
pub use graph::{
    Graph, GraphInput, GraphOutput, InputKind, Node, NodeId, OutputKind, OutputSource, TensorType, Type,
    ValueData, ValueDef, ValueId,
};
pub use method::Method;
pub use parse::parse_graph;
pub use patch::Patch;
pub use verify::verify;
