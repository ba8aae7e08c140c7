//! Lowering of `pack_codes` and of the products that read its words.

use super::Call;
use crate::{
    base::{Error, Result},
    ops::{Args, Lowering, Meta, Operand, Tensor},
};

pub(super) fn pack(_args: &Args<Operand>, _cx: &mut Lowering<'_>) -> Result<Vec<Tensor>> {
    Err(Error::unsupported("has no kernel"))
}

pub(super) fn linear(
    _call: &Call,
    _args: &Args<Operand>,
    _out: &Meta,
    _cx: &mut Lowering<'_>,
) -> Result<Vec<Tensor>> {
    Err(Error::unsupported("has no kernel"))
}
