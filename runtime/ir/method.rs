//! A method: a graph with what the program says of its symbols.

use std::{collections::BTreeMap, sync::Arc};

use super::graph::Graph;
use crate::base::{Range, Value};

/// One exported graph with its signature (in the graph's inputs and outputs) and symbol ranges.
#[derive(Clone, Debug)]
pub struct Method {
    /// The graph.
    pub graph: Graph,
    /// The range of each symbol.
    pub ranges: BTreeMap<Arc<str>, Range>,
    /// User inputs whose value the exporter fixed, by name: a run must be given just this value.
    pub fixed_inputs: BTreeMap<String, Value>,
    /// The dialect that the exporter named, such as `ATEN` or `TRAINING`; empty when it named none.
    pub dialect: String,
}
