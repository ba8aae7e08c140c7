//! The arguments of one call with concrete values, by schema name.
//!
//! `T` is what stands for a tensor: [`Meta`](super::Meta) to infer, a host tensor to evaluate, an
//! [`Operand`](super::Operand) to lower.

use crate::{
    base::{DType, Error, Result, Scalar, shape},
    ir::OpName,
};

/// The concrete value of one argument.
#[derive(Clone, Debug, PartialEq)]
pub enum ArgValue<T> {
    /// Python's `None`.
    None,
    /// A tensor.
    Tensor(T),
    /// A list of tensors, some of which may be `None`.
    Tensors(Vec<Option<T>>),
    /// A number or truth value.
    Scalar(Scalar),
    /// A list of integers.
    Ints(Vec<i64>),
    /// A list of floats.
    Floats(Vec<f64>),
    /// A list of truth values.
    Bools(Vec<bool>),
    /// A string.
    Str(String),
    /// A dtype.
    DType(DType),
    /// A layout, device or memory format.
    Opaque(String),
}

/// All arguments of one call.
#[derive(Clone, Debug)]
pub struct Args<T> {
    op: OpName,
    items: Vec<(String, ArgValue<T>)>,
}

impl<T> Args<T> {
    /// The arguments of a call of `op`.
    pub fn new(op: OpName, items: Vec<(String, ArgValue<T>)>) -> Args<T> {
        Args { op, items }
    }

    /// The op that is called; a family tells its members apart by it.
    pub fn op(&self) -> &OpName {
        &self.op
    }

    /// The same arguments for another op.
    pub fn renamed(&self, op: OpName) -> Args<T>
    where
        T: Clone,
    {
        Args { op, items: self.items.clone() }
    }

    /// The same arguments with every tensor mapped.
    ///
    /// # Errors
    /// The first error of `map`, with the operand's name.
    pub fn try_map<U>(&self, mut map: impl FnMut(&T) -> Result<U>) -> Result<Args<U>> {
        let items = self
            .items
            .iter()
            .map(|(name, value)| {
                let mapped = match value {
                    ArgValue::None => ArgValue::None,
                    ArgValue::Tensor(tensor) => {
                        ArgValue::Tensor(map(tensor).map_err(|error| error.at_operand(name))?)
                    }
                    ArgValue::Tensors(tensors) => ArgValue::Tensors(
                        tensors
                            .iter()
                            .map(|tensor| tensor.as_ref().map(&mut map).transpose())
                            .collect::<Result<_>>()
                            .map_err(|error| error.at_operand(name))?,
                    ),
                    ArgValue::Scalar(scalar) => ArgValue::Scalar(*scalar),
                    ArgValue::Ints(items) => ArgValue::Ints(items.clone()),
                    ArgValue::Floats(items) => ArgValue::Floats(items.clone()),
                    ArgValue::Bools(items) => ArgValue::Bools(items.clone()),
                    ArgValue::Str(text) => ArgValue::Str(text.clone()),
                    ArgValue::DType(dtype) => ArgValue::DType(*dtype),
                    ArgValue::Opaque(text) => ArgValue::Opaque(text.clone()),
                };
                Ok((name.clone(), mapped))
            })
            .collect::<Result<_>>()?;
        Ok(Args { op: self.op.clone(), items })
    }

    /// Calls `visit` with every tensor and its argument's name.
    pub fn for_each_tensor<'a>(&'a self, mut visit: impl FnMut(&'a str, &'a T)) {
        for (name, value) in &self.items {
            match value {
                ArgValue::Tensor(tensor) => visit(name, tensor),
                ArgValue::Tensors(tensors) => tensors.iter().flatten().for_each(|tensor| visit(name, tensor)),
                _ => {}
            }
        }
    }

    /// Every value, in order.
    pub fn values(&self) -> impl Iterator<Item = &ArgValue<T>> {
        self.items.iter().map(|(_, value)| value)
    }

    /// The argument called `name`; `None` when it was left out or is Python's `None`.
    pub fn get(&self, name: &str) -> Option<&ArgValue<T>> {
        self.items
            .iter()
            .find(|(item, _)| item == name)
            .map(|(_, value)| value)
            .filter(|value| !matches!(value, ArgValue::None))
    }

    /// Whether the argument is there and is not Python's `None`.
    pub fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    fn missing(&self, name: &str, what: &str) -> Error {
        Error::invalid_graph(format!("{} needs {what} here", self.op)).at_operand(name)
    }

    /// The tensor `name`.
    ///
    /// # Errors
    /// When it is left out or no tensor.
    pub fn tensor(&self, name: &str) -> Result<&T> {
        self.opt_tensor(name)?.ok_or_else(|| self.missing(name, "a tensor"))
    }

    /// The tensor `name`, or `None` when it is left out.
    ///
    /// # Errors
    /// When it is something else than a tensor.
    pub fn opt_tensor(&self, name: &str) -> Result<Option<&T>> {
        match self.get(name) {
            None => Ok(None),
            Some(ArgValue::Tensor(tensor)) => Ok(Some(tensor)),
            Some(_) => Err(self.missing(name, "a tensor")),
        }
    }

    /// The list of tensors `name`; entries may be `None`.
    ///
    /// # Errors
    /// When it is left out or no list of tensors.
    pub fn tensors(&self, name: &str) -> Result<&[Option<T>]> {
        match self.get(name) {
            Some(ArgValue::Tensors(tensors)) => Ok(tensors),
            Some(ArgValue::Ints(items)) if items.is_empty() => Ok(&[]),
            _ => Err(self.missing(name, "a list of tensors")),
        }
    }

    /// The number `name`.
    ///
    /// # Errors
    /// When it is left out or no number.
    pub fn scalar(&self, name: &str) -> Result<Scalar> {
        match self.get(name) {
            Some(ArgValue::Scalar(scalar)) => Ok(*scalar),
            _ => Err(self.missing(name, "a number")),
        }
    }

    /// The number `name`, or `default` when it is left out.
    ///
    /// # Errors
    /// When it is something else than a number.
    pub fn scalar_or(&self, name: &str, default: Scalar) -> Result<Scalar> {
        if self.has(name) { self.scalar(name) } else { Ok(default) }
    }

    /// The integer `name`.
    ///
    /// # Errors
    /// When it is left out or no integer.
    pub fn int(&self, name: &str) -> Result<i64> {
        match self.scalar(name)? {
            Scalar::Int(value) => Ok(value),
            Scalar::Bool(value) => Ok(i64::from(value)),
            Scalar::Float(_) => Err(self.missing(name, "an integer")),
        }
    }

    /// The integer `name`, or `default` when it is left out.
    ///
    /// # Errors
    /// When it is something else than an integer.
    pub fn int_or(&self, name: &str, default: i64) -> Result<i64> {
        if self.has(name) { self.int(name) } else { Ok(default) }
    }

    /// The float `name` (an integer counts), or `default` when it is left out.
    ///
    /// # Errors
    /// When it is no number.
    pub fn float_or(&self, name: &str, default: f64) -> Result<f64> {
        Ok(self.scalar_or(name, Scalar::Float(default))?.as_f64())
    }

    /// The truth value `name`, or `default` when it is left out.
    ///
    /// # Errors
    /// When it is no number or truth value.
    pub fn bool_or(&self, name: &str, default: bool) -> Result<bool> {
        Ok(self.scalar_or(name, Scalar::Bool(default))?.as_i64() != 0)
    }

    /// The list of integers `name`; one integer counts as a list of one.
    ///
    /// # Errors
    /// When it is left out or no list of integers.
    pub fn ints(&self, name: &str) -> Result<Vec<i64>> {
        self.opt_ints(name)?.ok_or_else(|| self.missing(name, "a list of integers"))
    }

    /// The list of integers `name`, or `None` when it is left out.
    ///
    /// # Errors
    /// When it is no list of integers.
    pub fn opt_ints(&self, name: &str) -> Result<Option<Vec<i64>>> {
        match self.get(name) {
            None => Ok(None),
            Some(ArgValue::Ints(items)) => Ok(Some(items.clone())),
            Some(ArgValue::Scalar(Scalar::Int(value))) => Ok(Some(vec![*value])),
            Some(ArgValue::Tensors(items)) if items.is_empty() => Ok(Some(Vec::new())),
            Some(_) => Err(self.missing(name, "a list of integers")),
        }
    }

    /// The list of floats `name` (integers count), or `None` when it is left out.
    ///
    /// # Errors
    /// When it is no list of numbers.
    pub fn opt_floats(&self, name: &str) -> Result<Option<Vec<f64>>> {
        match self.get(name) {
            None => Ok(None),
            Some(ArgValue::Floats(items)) => Ok(Some(items.clone())),
            Some(ArgValue::Ints(items)) => Ok(Some(items.iter().map(|&item| item as f64).collect())),
            Some(_) => Err(self.missing(name, "a list of floats")),
        }
    }

    /// The dtype `name`, or `None` when it is left out.
    ///
    /// # Errors
    /// When it is no dtype.
    pub fn opt_dtype(&self, name: &str) -> Result<Option<DType>> {
        match self.get(name) {
            None => Ok(None),
            Some(ArgValue::DType(dtype)) => Ok(Some(*dtype)),
            Some(_) => Err(self.missing(name, "a dtype")),
        }
    }

    /// The string `name`, or `None` when it is left out.
    ///
    /// # Errors
    /// When it is no string.
    pub fn opt_str(&self, name: &str) -> Result<Option<&str>> {
        match self.get(name) {
            None => Ok(None),
            Some(ArgValue::Str(text)) => Ok(Some(text)),
            Some(_) => Err(self.missing(name, "a string")),
        }
    }

    /// The dim `name` of a tensor of `rank`, or `default` when it is left out; negative counts from the end.
    ///
    /// # Errors
    /// When it is out of range.
    pub fn dim_or(&self, name: &str, default: i64, rank: usize) -> Result<usize> {
        shape::normalize_dim(self.int_or(name, default)?, rank).map_err(|error| error.at_operand(name))
    }

    /// The dims `name`, normalised and without repeats; all dims when it is left out or empty.
    ///
    /// # Errors
    /// When one is out of range or named twice.
    pub fn dims_or_all(&self, name: &str, rank: usize) -> Result<Vec<usize>> {
        let dims = self.opt_ints(name)?.unwrap_or_default();
        if dims.is_empty() {
            return Ok((0..rank).collect());
        }
        let mut out = Vec::with_capacity(dims.len());
        for dim in dims {
            let dim = shape::normalize_dim(dim, rank).map_err(|error| error.at_operand(name))?;
            if out.contains(&dim) {
                return Err(Error::invalid_graph(format!("dim {dim} appears twice")).at_operand(name));
            }
            out.push(dim);
        }
        out.retain(|&dim| dim < rank);
        Ok(out)
    }
}
