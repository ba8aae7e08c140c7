//! `masked_scatter`: the elements of `source`, in order, at the places of `self` that a mask names. Every dtype.
//!
//! The running sums of the mask say which element goes where; too few elements are an error of the run.

use crate::{
    base::{DType, Error, ErrorKind, HostTensor, Result, Scalar, shape},
    ir::OpName,
    ops::{
        ArgValue, Args, InPlace, Lowering, Meta, Op, Operand, Tensor,
        elementwise::LOCAL_X,
        fill::u32_of,
        find,
        view::{Layout, elements},
    },
    shader::kernels::masked_scatter,
};

/// The family of `aten.masked_scatter`.
pub struct MaskedScatter;

impl Op for MaskedScatter {
    fn targets(&self) -> &'static [&'static str] {
        &["aten.masked_scatter.default"]
    }

    fn infer(&self, args: &Args<Meta>) -> Result<Vec<Meta>> {
        let (table, mask, source) = (args.tensor("self")?, args.tensor("mask")?, args.tensor("source")?);
        if mask.dtype != DType::Bool {
            return Err(
                Error::invalid_input(format!("a mask is bool, not {}", mask.dtype)).at_operand("mask")
            );
        }
        if source.dtype != table.dtype {
            let text = format!("elements are {} and the tensor is {}", source.dtype, table.dtype);
            return Err(Error::invalid_input(text).at_operand("source"));
        }
        if shape::numel(&source.sizes)? == 0 && shape::numel(&table.sizes)? > 0 {
            return Err(Error::unsupported("there are no elements to put anywhere").at_operand("source"));
        }
        shape::broadcast_strides(&mask.sizes, &shape::contiguous_strides(&mask.sizes), &table.sizes)
            .map_err(|error| error.at_operand("mask"))?;
        Ok(vec![table.clone()])
    }

    fn eval(&self, args: &Args<HostTensor>, outs: &[Meta]) -> Result<Vec<HostTensor>> {
        let (table, mask, source) = (args.tensor("self")?, args.tensor("mask")?, args.tensor("source")?);
        let own = shape::contiguous_strides(mask.sizes());
        let strides = shape::broadcast_strides(mask.sizes(), &own, table.sizes())?;
        let mask = elements(mask, &Layout { sizes: table.sizes().to_vec(), strides, offset: 0 })?;
        let width = table.dtype().size_bytes();
        let mut bytes = table.bytes().to_vec();
        let mut rest = source.bytes().chunks_exact(width);
        for (slot, _) in bytes.chunks_exact_mut(width).zip(mask.bytes()).filter(|(_, named)| **named != 0) {
            let element = rest.next().ok_or_else(|| {
                let text = format!("the mask names more than the {} elements", source.len_elems());
                Error::new(ErrorKind::BadData, text).at_operand("source")
            })?;
            slot.copy_from_slice(element);
        }
        Ok(vec![HostTensor::new(table.dtype(), outs[0].sizes.clone(), bytes)?])
    }

    fn lower(&self, args: &Args<Operand>, _outs: &[Meta], cx: &mut Lowering<'_>) -> Result<Vec<Tensor>> {
        let base = cx.live(args.tensor("self")?)?;
        let source = cx.live(args.tensor("source")?)?;
        let source = cx.contiguous(&source)?;
        let mask = cx.live(args.tensor("mask")?)?.broadcast_to(&base.sizes)?;
        let out = cx.updated(&base)?;
        let n_elems = out.numel();
        if n_elems == 0 {
            return Ok(vec![out]);
        }
        let counts = running_sums(cx, mask, n_elems)?;
        let params = masked_scatter::Params {
            n_elems: u32_of(n_elems)?,
            bound: u32_of(source.numel())?,
            node: cx.node_id(),
        };
        let operands = masked_scatter::Operands {
            x: source.region(),
            counts: counts.region(),
            y: out.region(),
            status: cx.status(),
        };
        let axes = masked_scatter::Axes { dtype: move_axis!(masked_scatter, out.element) };
        let groups = cx.groups_1d(n_elems, LOCAL_X)?;
        let spec = masked_scatter::Spec::default();
        cx.emit(masked_scatter::dispatch(axes, spec, operands, params, groups, cx.label()))?;
        Ok(vec![out])
    }

    fn in_place(&self, _target: &str) -> InPlace {
        InPlace::Update("self")
    }
}

/// For each element of the mask in row-major order, how many up to it are named.
fn running_sums(cx: &mut Lowering<'_>, mask: Tensor, n_elems: usize) -> Result<Tensor> {
    let sums =
        find("aten.cumsum.default").ok_or_else(|| Error::internal("aten.cumsum.default is in no family"))?;
    let mask = cx.contiguous(&mask)?;
    let flat = mask.restrided(vec![n_elems], vec![1], 0);
    let items = vec![
        ("self".to_string(), ArgValue::Tensor(Operand::Live(flat))),
        ("dim".to_string(), ArgValue::Scalar(Scalar::Int(0))),
        ("dtype".to_string(), ArgValue::DType(DType::I32)),
    ];
    let args = Args::new(OpName::new("aten.cumsum.default"), items);
    let outs = [Meta::new(DType::I32, [n_elems])];
    sums.lower(&args, &outs, cx)?.pop().ok_or_else(|| Error::internal("a running sum without a result"))
}
