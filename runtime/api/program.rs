//! A loaded program and what its methods take.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::Arc,
};

use super::graph::GraphBuilder;
use crate::{
    base::{Error, HostTensor, Result, Value},
    import,
    ir::{Method, Type},
    passes::{self, Int4PackLayout},
};

/// The name under which a program with one method may be asked for, whatever the archive calls it.
const ALIAS: &str = "forward";

/// What `torch.export.save` calls the only program of an archive.
const ONLY: &str = "model";

/// A loaded program: one or more methods, with their constants still in the file.
///
/// Clones are cheap. Opening refuses only what cannot be read; what a device cannot run is refused by
/// [`DelegateBuilder::build`](crate::DelegateBuilder::build).
#[derive(Clone, Debug)]
pub struct Program {
    methods: Arc<[Method]>,
    int4pack_layout: Option<Int4PackLayout>,
}

impl Program {
    /// Opens a `.pt2` file by mapping it; weights are read only when a delegate needs them.
    ///
    /// The file must not be changed or truncated while the program or a delegate of it is in use.
    ///
    /// # Errors
    /// [`ErrorKind::Io`](crate::ErrorKind::Io), [`ErrorKind::BadFile`](crate::ErrorKind::BadFile), or
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) with how to export the model again.
    pub fn open(path: impl AsRef<Path>) -> Result<Program> {
        Ok(Program::of(import::open(path.as_ref())?.methods))
    }

    /// Reads a `.pt2` file that is in memory already, such as an asset of an app.
    ///
    /// # Errors
    /// As [`Program::open`].
    pub fn from_bytes(bytes: impl Into<Arc<[u8]>>) -> Result<Program> {
        Ok(Program::of(import::from_bytes(bytes.into())?.methods))
    }

    /// A program whose methods are built in Rust; see [`graph`](crate::graph).
    ///
    /// # Errors
    /// [`ErrorKind::InvalidGraph`](crate::ErrorKind::InvalidGraph) when there is no method, two have one name, or one
    /// breaks a rule of graphs: a write-back to what is no buffer, for one.
    pub fn from_graphs(graphs: impl IntoIterator<Item = GraphBuilder>) -> Result<Program> {
        let methods = graphs.into_iter().map(GraphBuilder::into_method).collect::<Result<Vec<_>>>()?;
        let names: BTreeSet<&str> = methods.iter().map(|method| method.graph.name()).collect();
        if methods.is_empty() || names.len() < methods.len() {
            return Err(Error::invalid_graph("a program has methods, each with a name of its own"));
        }
        Ok(Program::of(methods))
    }

    fn of(methods: Vec<Method>) -> Program {
        Program { methods: methods.into(), int4pack_layout: None }
    }

    /// Says how the weights of `aten._weight_int4pack_mm_for_cpu` lie, which depends on the machine that packed them and
    /// is not in the file. Without it, a program with such weights is refused by build; with the wrong one, its results
    /// are wrong.
    #[must_use]
    pub fn int4pack_layout(mut self, layout: Int4PackLayout) -> Program {
        self.int4pack_layout = Some(layout);
        self
    }

    /// The methods, in the order of the file.
    pub fn methods(&self) -> impl Iterator<Item = MethodInfo<'_>> {
        self.methods.iter().map(|method| MethodInfo { method, int4pack_layout: self.int4pack_layout })
    }

    /// The method `name`, as the archive calls it. `forward` also means the only program, which torch calls `model`.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](crate::ErrorKind::InvalidInput) with the names there are.
    pub fn method(&self, name: &str) -> Result<MethodInfo<'_>> {
        let named = |name: &str| self.methods().find(|method| method.name() == name);
        let only = || self.methods.len() == 1 && name == ALIAS;
        named(name).or_else(|| if only() { named(ONLY) } else { None }).ok_or_else(|| {
            Error::invalid_input(format!("there is no method `{name}`; the program has: {}", self.names()))
        })
    }

    /// The only method.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](crate::ErrorKind::InvalidInput) with the names when there are several.
    pub fn only_method(&self) -> Result<MethodInfo<'_>> {
        let mut methods = self.methods();
        match (methods.next(), methods.next()) {
            (Some(method), None) => Ok(method),
            _ => Err(Error::invalid_input(format!(
                "the program has several methods, name one of them (`--method`, `DelegateBuilder::method`): {}",
                self.names()
            ))),
        }
    }

    fn names(&self) -> String {
        self.methods().map(|method| method.name()).collect::<Vec<_>>().join(", ")
    }
}

/// The first few names, and how many more there are.
fn listed(names: &[String]) -> String {
    const SHOWN: usize = 6;
    let shown: Vec<String> = names.iter().take(SHOWN).map(|name| format!("`{name}`")).collect();
    match names.len() {
        0 => "none".to_string(),
        1..=SHOWN => shown.join(", "),
        count => format!("{} and {} more", shown.join(", "), count - SHOWN),
    }
}

/// One method of a [`Program`].
#[derive(Clone, Copy, Debug)]
pub struct MethodInfo<'a> {
    method: &'a Method,
    int4pack_layout: Option<Int4PackLayout>,
}

/// What a method takes in one place.
#[derive(Clone, Debug, PartialEq)]
pub struct InputInfo {
    /// Name of the placeholder in the program.
    pub name: String,
    /// What it has to be, such as `float32[s0, 384]`, `int` or `None`.
    pub expects: String,
    /// The value it must have, where the exporter fixed one.
    pub fixed: Option<Value>,
}

impl<'a> MethodInfo<'a> {
    /// The name in the archive.
    pub fn name(self) -> &'a str {
        self.method.graph.name()
    }

    /// The user inputs, in the order in which a run takes them.
    pub fn inputs(self) -> Vec<InputInfo> {
        let graph = &self.method.graph;
        let inputs = graph.user_inputs().map(|value| {
            let name = graph.value_name(value);
            let expects = graph.value(value).map_or(String::new(), |data| data.ty.to_string());
            InputInfo { fixed: self.method.fixed_inputs.get(&name).cloned(), name, expects }
        });
        inputs.collect()
    }

    /// Input `index` from a file, where everything is a tensor: a 0-d tensor becomes the host scalar that the method
    /// takes there, and nothing becomes `None`.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](crate::ErrorKind::InvalidInput) when the input is missing, or is no scalar
    /// where the method takes one.
    pub fn input_from_tensor(self, index: usize, tensor: Option<HostTensor>) -> Result<Value> {
        let graph = &self.method.graph;
        let value = graph.user_inputs().nth(index);
        let data = value
            .map(|value| graph.value(value))
            .transpose()?
            .ok_or_else(|| Error::invalid_input(format!("method `{}` has no input {index}", self.name())))?;
        let given =
            || tensor.as_ref().map_or("nothing".to_string(), |t| format!("{}{:?}", t.dtype(), t.sizes()));
        let wrong = || {
            Error::invalid_input(format!(
                "input {index} `{}`: expected {}, got {}",
                data.name,
                data.ty,
                given()
            ))
        };
        let number = || tensor.as_ref().filter(|tensor| tensor.len_elems() == 1);
        match &data.ty {
            Type::Tensor(_) => tensor.clone().map(Value::Tensor).ok_or_else(wrong),
            Type::None if tensor.is_none() => Ok(Value::None),
            Type::None => Err(wrong()),
            Type::Int(_) => {
                let number = number().filter(|tensor| !tensor.dtype().is_float()).ok_or_else(wrong)?;
                Ok(Value::Int(number.to_i64s()[0]))
            }
            Type::Float => Ok(Value::Float(number().ok_or_else(wrong)?.to_f64s()[0])),
            Type::Bool => Ok(Value::Bool(number().ok_or_else(wrong)?.to_i64s()[0] != 0)),
        }
    }

    /// All inputs from the tensors of a file: `in{j}`, or the name of the placeholder. `None` and values that the exporter
    /// fixed may be left out.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](crate::ErrorKind::InvalidInput) naming an input that is missing, given twice or
    /// of another kind, or a tensor that is no input.
    pub fn inputs_from_tensors(self, mut tensors: BTreeMap<String, HostTensor>) -> Result<Vec<Value>> {
        let inputs = self.inputs();
        let given: Vec<String> = tensors.keys().cloned().collect();
        let mut values = Vec::with_capacity(inputs.len());
        for (index, input) in inputs.iter().enumerate() {
            let tensor = match (tensors.remove(&format!("in{index}")), tensors.remove(&input.name)) {
                (Some(_), Some(_)) => {
                    let name = &input.name;
                    return Err(Error::invalid_input(format!(
                        "input {index} is given as `in{index}` and as `{name}`"
                    )));
                }
                (by_index, by_name) => by_index.or(by_name),
            };
            values.push(match (&input.fixed, tensor) {
                (Some(fixed), None) => fixed.clone(),
                (_, None) => self.input_from_tensor(index, None).map_err(|error| {
                    let names = listed(&given);
                    Error::invalid_input(format!(
                        "{error}: no tensor is called `in{index}` or `{}`; given are {names}",
                        input.name
                    ))
                })?,
                (_, tensor) => self.input_from_tensor(index, tensor)?,
            });
        }
        if let Some(stranger) = tensors.keys().next() {
            let names: Vec<&str> = inputs.iter().map(|input| input.name.as_str()).collect();
            return Err(Error::invalid_input(format!(
                "`{stranger}` is no input of method `{}`, which takes: {}",
                self.name(),
                names.join(", ")
            )));
        }
        Ok(values)
    }

    /// The method in the IR, as the file has it; for this crate's own tests and tools.
    #[doc(hidden)]
    pub fn ir(self) -> &'a Method {
        self.method
    }

    /// What the user has told passes of the method.
    pub(super) fn pass_options(self) -> passes::Options {
        passes::Options { int4pack_layout: self.int4pack_layout, ..passes::Options::default() }
    }
}
