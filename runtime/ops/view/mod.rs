//! Views: the same elements in another shape or order, or a part of them.
//!
//! `view`, `reshape`, `_unsafe_view`, `flatten`, `unflatten`, `permute`, `t`, `numpy_T`, `mT`, `transpose`, `movedim`,
//! `squeeze`, `unsqueeze`, `expand`, `slice`, `select`, `narrow`, `diagonal`, `unfold`, `as_strided`, `split`, `chunk`, `unbind`;
//! what a view and a copy make together: `repeat`, `tile`, `repeat_interleave.self_int`, `pixel_shuffle`; and what
//! changes nothing in a graph without writes: `alias`, `detach`, `lift_fresh_copy`, `clone`, `contiguous`.
//!
//! Every dtype, rank 8 at most where a copy is needed. Strides on the device are not PyTorch's, so `view` is a
//! `reshape`: it copies where the strides do not allow a view. `as_strided` takes a tensor that is
//! whole and contiguous in PyTorch, where alone the strides mean the same.

mod copy;
mod layout;
mod look;
mod overwrite;

pub use copy::Copy;
pub use layout::Layout;
pub use look::{View, select_of, slice_of, views};
pub use overwrite::Overwrite;

use super::{Args, Lowering, Meta, Op, Operand, Tensor};
use crate::base::{Error, HostTensor, Result, shape};

/// The family of views of one tensor.
pub struct Views;

const TARGETS: &[&str] = &[
    "aten._reshape_copy.default",
    "aten._unsafe_view.default",
    "aten.alias.default",
    "aten.alias_copy.default",
    "aten.as_strided.default",
    "aten.broadcast_to.default",
    "aten.chunk.default",
    "aten.clone.default",
    "aten.contiguous.default",
    "aten.detach.default",
    "aten.detach_copy.default",
    "aten.diagonal.default",
    "aten.diagonal_copy.default",
    "aten.expand.default",
    "aten.expand_as.default",
    "aten.expand_copy.default",
    "aten.flatten.using_ints",
    "aten.lift.default",
    "aten.lift_fresh.default",
    "aten.lift_fresh_copy.default",
    "aten.mT.default",
    "aten.movedim.int",
    "aten.movedim.intlist",
    "aten.narrow.default",
    "aten.numpy_T.default",
    "aten.permute.default",
    "aten.permute_copy.default",
    "aten.pixel_shuffle.default",
    "aten.pixel_unshuffle.default",
    "aten.repeat.default",
    "aten.repeat_interleave.self_int",
    "aten.reshape.default",
    "aten.reshape_as.default",
    "aten.select.int",
    "aten.select_copy.int",
    "aten.slice.Tensor",
    "aten.slice_copy.Tensor",
    "aten.split.Tensor",
    "aten.split.sizes",
    "aten.split_with_sizes.default",
    "aten.squeeze.default",
    "aten.squeeze.dim",
    "aten.squeeze.dims",
    "aten.squeeze_copy.dims",
    "aten.swapaxes.default",
    "aten.t.default",
    "aten.t_copy.default",
    "aten.tile.default",
    "aten.transpose.int",
    "aten.transpose_copy.int",
    "aten.unbind.int",
    "aten.unflatten.int",
    "aten.unfold.default",
    "aten.unsqueeze.default",
    "aten.unsqueeze_copy.default",
    "aten.view.default",
    "aten.view_as.default",
    "aten.view_copy.default",
];

impl Op for Views {
    fn targets(&self) -> &'static [&'static str] {
        TARGETS
    }

    fn infer(&self, args: &Args<Meta>) -> Result<Vec<Meta>> {
        let operand = args.tensor("self")?;
        let views = views(args, &Layout::contiguous(&operand.sizes))?;
        for view in &views {
            let copied_rank = copied_rank(view);
            if copied_rank > shape::MAX_RANK {
                return Err(Error::unsupported(format!(
                    "needs a copy over {copied_rank} dims; {} are the most",
                    shape::MAX_RANK
                ))
                .at_operand("self"));
            }
        }
        Ok(views.into_iter().map(|view| Meta::new(operand.dtype, view.sizes)).collect())
    }

    fn eval(&self, args: &Args<HostTensor>, _outs: &[Meta]) -> Result<Vec<HostTensor>> {
        let operand = args.tensor("self")?;
        views(&metas(args)?, &Layout::contiguous(operand.sizes()))?
            .into_iter()
            .map(|view| elements(operand, &view.layout)?.reshaped(view.sizes))
            .collect()
    }

    fn lower(&self, args: &Args<Operand>, _outs: &[Meta], cx: &mut Lowering<'_>) -> Result<Vec<Tensor>> {
        let metas = args.try_map(|operand| Ok(operand.meta()))?;
        let mut tensor = match args.tensor("self")? {
            Operand::Live(tensor) => tensor.clone(),
            operand @ Operand::Constant(_) => cx.live(operand)?,
        };
        if *args.op() == "aten.as_strided.default" {
            tensor = cx.contiguous(&tensor)?;
        }
        let mut looks = views(&metas, &own_layout(&tensor))?;
        if looks.iter().any(|view| copied_rank(view) > shape::MAX_RANK) {
            tensor = cx.contiguous(&tensor)?;
            looks = views(&metas, &own_layout(&tensor))?;
        }
        looks.iter().map(|view| lower_view(cx, &tensor, view)).collect()
    }
}

fn metas(args: &Args<HostTensor>) -> Result<Args<Meta>> {
    args.try_map(|tensor| Ok(Meta::new(tensor.dtype(), tensor.sizes())))
}

/// Where the elements of a live tensor lie, from its first one on.
fn own_layout(tensor: &Tensor) -> Layout {
    Layout { offset: 0, ..layout_of(tensor) }
}

/// Where the elements of a live tensor lie in its storage.
pub fn layout_of(tensor: &Tensor) -> Layout {
    Layout { sizes: tensor.sizes.clone(), strides: tensor.strides.clone(), offset: tensor.offset_elems }
}

/// The elements of `layout` in the storage of `tensor`.
pub fn tensor_at(tensor: &Tensor, layout: &Layout) -> Tensor {
    Tensor {
        sizes: layout.sizes.clone(),
        strides: layout.strides.clone(),
        offset_elems: layout.offset,
        ..tensor.clone()
    }
}

/// Dims that a copy of the view's elements goes over; 0 where the view needs none.
fn copied_rank(view: &View) -> usize {
    if view.strides().is_some() {
        return 0;
    }
    let contiguous = shape::contiguous_strides(&view.layout.sizes);
    shape::merge_dims(&view.layout.sizes, &[&view.layout.strides, &contiguous]).0.len()
}

fn lower_view(cx: &mut Lowering<'_>, tensor: &Tensor, view: &View) -> Result<Tensor> {
    let layout = &view.layout;
    let elements = tensor.restrided(layout.sizes.clone(), layout.strides.clone(), layout.offset);
    if let Some(strides) = view.strides() {
        return Ok(elements.restrided(view.sizes.clone(), strides, 0));
    }
    let copied = cx.contiguous(&elements)?;
    let strides = shape::contiguous_strides(&view.sizes);
    Ok(copied.restrided(view.sizes.clone(), strides, 0))
}

/// The elements of `layout` in the contiguous `tensor`, as a tensor of the layout's sizes.
///
/// # Errors
/// When the layout leaves the tensor.
pub fn elements(tensor: &HostTensor, layout: &Layout) -> Result<HostTensor> {
    if *layout == Layout::contiguous(tensor.sizes()) {
        return Ok(tensor.clone());
    }
    let width = tensor.dtype().size_bytes();
    let len_bytes = shape::numel(&layout.sizes)?.checked_mul(width);
    let extent = shape::extent_elems(&layout.sizes, &layout.strides)?;
    if len_bytes.is_none()
        || layout.offset.checked_add(extent).is_none_or(|end| extent > 0 && end > tensor.len_elems())
    {
        return Err(Error::internal(format!("{layout:?} leaves a tensor of sizes {:?}", tensor.sizes())));
    }
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(len_bytes.unwrap_or(0)).map_err(|_| {
        Error::unsupported(format!("a tensor of sizes {:?} does not fit this machine's memory", layout.sizes))
    })?;
    shape::for_each_offset(&layout.sizes, &layout.strides, layout.offset, |offset| {
        bytes.extend_from_slice(&tensor.bytes()[offset * width..(offset + 1) * width]);
    });
    HostTensor::new(tensor.dtype(), layout.sizes.clone(), bytes)
}
