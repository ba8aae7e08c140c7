//! Names of ops and the arguments of a call.

use std::{fmt, sync::Arc};

use super::graph::ValueId;
use crate::base::DType;

/// The full target of a call, such as `aten.add.Tensor` or `_operator.mul`.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OpName(Arc<str>);

impl OpName {
    /// The op with that target; `torch.ops.` in front is dropped.
    pub fn new(target: &str) -> OpName {
        OpName(Arc::from(target.strip_prefix("torch.ops.").unwrap_or(target)))
    }

    /// The whole target.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The target without its overload: `aten.add` of `aten.add.Tensor`.
    pub fn without_overload(&self) -> &str {
        match self.0.match_indices('.').nth(1) {
            Some((dot, _)) => &self.0[..dot],
            None => &self.0,
        }
    }

    /// The base name: `add` of `aten.add.Tensor`.
    pub fn base(&self) -> &str {
        let name = self.without_overload();
        name.rsplit('.').next().unwrap_or(name)
    }
}

impl fmt::Display for OpName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for OpName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl PartialEq<str> for OpName {
    fn eq(&self, other: &str) -> bool {
        &*self.0 == other
    }
}

impl PartialEq<&str> for OpName {
    fn eq(&self, other: &&str) -> bool {
        &*self.0 == *other
    }
}

/// An argument that the importer adds to `aten.as_strided` when its operand is not a whole contiguous tensor in
/// PyTorch, so that the strides do not mean what they would mean here.
pub const BASE_IS_VIEW: &str = "base_is_view";

/// One integer of an integer list: a number, or a symbolic int of the graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IntArg {
    /// A number.
    Const(i64),
    /// A value of type int.
    Value(ValueId),
}

/// One argument of a call, by the name that the op's schema gives it.
#[derive(Clone, Debug, PartialEq)]
pub enum Arg {
    /// Python's `None`.
    None,
    /// A tensor or a host scalar of the graph.
    Value(ValueId),
    /// A list of tensors, some of which may be `None` (as in `aten.index.Tensor`).
    Values(Vec<Option<ValueId>>),
    /// An integer.
    Int(i64),
    /// A list of integers.
    Ints(Vec<IntArg>),
    /// A float.
    Float(f64),
    /// A list of floats.
    Floats(Vec<f64>),
    /// A truth value.
    Bool(bool),
    /// A list of truth values.
    Bools(Vec<bool>),
    /// A string.
    Str(String),
    /// A dtype.
    DType(DType),
    /// A layout, device or memory format, by name: accepted and without meaning here.
    Opaque(String),
}

macro_rules! from_one {
    ($($from:ty => $kind:ident),*) => {
        $(impl From<$from> for Arg {
            fn from(value: $from) -> Arg {
                Arg::$kind(value)
            }
        })*
    };
}

from_one!(ValueId => Value, i64 => Int, f64 => Float, bool => Bool, DType => DType);

impl<const N: usize> From<[i64; N]> for Arg {
    fn from(items: [i64; N]) -> Arg {
        Arg::Ints(items.map(IntArg::Const).to_vec())
    }
}

impl<const N: usize> From<[ValueId; N]> for Arg {
    fn from(values: [ValueId; N]) -> Arg {
        Arg::Values(values.map(Some).to_vec())
    }
}

impl Arg {
    /// The value, if the argument is one value.
    pub fn as_value(&self) -> Option<ValueId> {
        match self {
            Arg::Value(value) => Some(*value),
            _ => None,
        }
    }

    /// Calls `visit` with every value that the argument reads.
    pub fn for_each_value(&self, mut visit: impl FnMut(ValueId)) {
        match self {
            Arg::Value(value) => visit(*value),
            Arg::Values(values) => values.iter().flatten().for_each(|&value| visit(value)),
            Arg::Ints(items) => items.iter().for_each(|item| {
                if let IntArg::Value(value) = item {
                    visit(*value);
                }
            }),
            _ => {}
        }
    }

    /// Replaces every value by what `map` gives for it.
    pub fn map_values(&mut self, mut map: impl FnMut(ValueId) -> ValueId) {
        match self {
            Arg::Value(value) => *value = map(*value),
            Arg::Values(values) => values.iter_mut().flatten().for_each(|value| *value = map(*value)),
            Arg::Ints(items) => items.iter_mut().for_each(|item| {
                if let IntArg::Value(value) = item {
                    *value = map(*value);
                }
            }),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn op_names_split_at_their_dots() {
        let name = OpName::new("torch.ops.aten.add.Tensor");
        assert_eq!(
            (name.as_str(), name.without_overload(), name.base()),
            ("aten.add.Tensor", "aten.add", "add")
        );
        assert_eq!(OpName::new("_operator.mul").base(), "mul");
        assert_eq!(OpName::new("weird").base(), "weird");
    }
}
