//! Writes: a tensor with the elements that a call names replaced, or added to.

use super::{
    launch::{self, Indexing},
    space::{Space, has_mask, index_operands},
    sum,
};
use crate::{
    base::{DType, Error, HostTensor, Result, Scalar, shape},
    ir::OpName,
    ops::{
        ArgValue, Args, InPlace, Lowering, Meta, Op, Operand, Tensor,
        fill::{filled, repeated_scalar},
        find,
        view::{Layout, elements},
    },
};

/// The family of writes at positions that are data.
pub struct IndexWrite;

/// Where the values to write come from.
enum Source<'a, T> {
    Tensor(&'a T),
    Scalar(Scalar),
}

impl Op for IndexWrite {
    fn targets(&self) -> &'static [&'static str] {
        &[
            "aten._unsafe_index_put.default",
            "aten.index_add.default",
            "aten.index_copy.default",
            "aten.index_fill.int_Scalar",
            "aten.index_put.default",
            "aten.scatter.src",
            "aten.scatter.value",
            "aten.scatter_add.default",
        ]
    }

    fn infer(&self, args: &Args<Meta>) -> Result<Vec<Meta>> {
        let table = args.tensor("self")?;
        if has_mask(args) {
            check_mask(args)?;
            return Ok(vec![table.clone()]);
        }
        let space = Space::of(args)?;
        if let Source::Tensor(values) = source(args)? {
            let strides = shape::contiguous_strides(&values.sizes);
            values_strides(args, &values.sizes, &strides, &space)?;
            if values.dtype != table.dtype {
                let text = format!("values are {} and the tensor is {}", values.dtype, table.dtype);
                return Err(Error::invalid_input(text).at_operand(values_name(args)));
            }
        }
        Ok(vec![table.clone()])
    }

    fn eval(&self, args: &Args<HostTensor>, outs: &[Meta]) -> Result<Vec<HostTensor>> {
        let metas = args.try_map(|tensor| Ok(Meta::new(tensor.dtype(), tensor.sizes())))?;
        if has_mask(&metas) {
            return where_family()?.eval(&where_args(args)?, outs);
        }
        let space = Space::of(&metas)?;
        let table = args.tensor("self")?;
        let values = match source(args)? {
            Source::Scalar(value) => filled(table.dtype(), &space.sizes, value)?,
            Source::Tensor(values) => {
                let own = shape::contiguous_strides(values.sizes());
                let strides = values_strides(&metas, values.sizes(), &own, &space)?;
                elements(values, &Layout { sizes: space.sizes.clone(), strides, offset: 0 })?
            }
        };
        let offsets = space.offsets(&index_operands(args)?)?;
        let sizes = outs[0].sizes.clone();
        if !adds(&metas)? {
            let width = table.dtype().size_bytes();
            let mut bytes = table.bytes().to_vec();
            for (offset, value) in offsets.into_iter().zip(values.bytes().chunks_exact(width)) {
                bytes[offset * width..(offset + 1) * width].copy_from_slice(value);
            }
            return Ok(vec![HostTensor::new(table.dtype(), sizes, bytes)?]);
        }
        let scale = args.scalar_or("alpha", Scalar::Int(1))?;
        if table.dtype().is_float() {
            let mut sums = table.to_f64s();
            for (offset, value) in offsets.into_iter().zip(values.to_f64s()) {
                sums[offset] += value * scale.as_f64();
            }
            return Ok(vec![HostTensor::from_f64s(table.dtype(), sizes, &sums)?]);
        }
        let mut sums = table.to_i64s();
        for (offset, value) in offsets.into_iter().zip(values.to_i64s()) {
            sums[offset] = sums[offset].wrapping_add(value.wrapping_mul(scale.as_i64()));
        }
        Ok(vec![HostTensor::from_i64s(table.dtype(), sizes, &sums)?])
    }

    fn lower(&self, args: &Args<Operand>, outs: &[Meta], cx: &mut Lowering<'_>) -> Result<Vec<Tensor>> {
        let metas = args.try_map(|operand| Ok(operand.meta()))?;
        if has_mask(&metas) {
            return where_family()?.lower(&where_args(args)?, outs, cx);
        }
        let space = Space::of(&metas)?;
        let base = cx.live(args.tensor("self")?)?;
        let values = match source(args)? {
            Source::Scalar(value) => repeated_scalar(cx, &base, &space.sizes, value)?,
            Source::Tensor(values) => {
                let values = cx.live(values)?;
                let strides = values_strides(&metas, &values.sizes, &values.strides, &space)?;
                values.restrided(space.sizes.clone(), strides, 0)
            }
        };
        let indices: Vec<Tensor> =
            index_operands(args)?.into_iter().map(|operand| cx.live(operand)).collect::<Result<_>>()?;
        let out = cx.updated(&base)?;
        let indexing = Indexing { table: launch::with_dims(&out), indices, space };
        if adds(&metas)? {
            sum::add(cx, &indexing, &values, args.scalar_or("alpha", Scalar::Int(1))?)?;
        } else {
            launch::scatter(cx, &indexing, &values)?;
        }
        Ok(vec![out])
    }

    fn in_place(&self, _target: &str) -> InPlace {
        InPlace::Update("self")
    }
}

/// The name of the operand with the values to write.
fn values_name<T>(args: &Args<T>) -> &'static str {
    match args.op().base() {
        "index_put" | "_unsafe_index_put" => "values",
        "index_copy" | "index_add" => "source",
        _ => "src",
    }
}

fn source<T>(args: &Args<T>) -> Result<Source<'_, T>> {
    match args.op().as_str() {
        "aten.scatter.value" | "aten.index_fill.int_Scalar" => Ok(Source::Scalar(args.scalar("value")?)),
        _ => Ok(Source::Tensor(args.tensor(values_name(args))?)),
    }
}

/// Whether the values are added to what is there.
fn adds(args: &Args<Meta>) -> Result<bool> {
    Ok(matches!(args.op().base(), "index_add" | "scatter_add") || args.bool_or("accumulate", false)?)
}

/// Strides over the space of values of `sizes` and `strides`.
fn values_strides(
    args: &Args<Meta>,
    sizes: &[usize],
    strides: &[usize],
    space: &Space,
) -> Result<Vec<usize>> {
    let broadcasts = matches!(args.op().base(), "index_put" | "_unsafe_index_put");
    if broadcasts {
        return shape::broadcast_strides(sizes, strides, &space.sizes)
            .map_err(|error| error.at_operand("values"));
    }
    let (sizes, strides) = if sizes.is_empty() { (&[1][..], &[1][..]) } else { (sizes, strides) };
    let fits = if args.op().base().starts_with("scatter") {
        sizes.len() == space.sizes.len() && space.sizes.iter().zip(sizes).all(|(want, have)| want <= have)
    } else {
        sizes == space.sizes
    };
    if !fits && !space.sizes.contains(&0) {
        let text = format!("values of sizes {sizes:?} do not fit the named places, {:?}", space.sizes);
        return Err(Error::invalid_input(text).at_operand(values_name(args)));
    }
    Ok(if fits { strides.to_vec() } else { vec![0; space.sizes.len()] })
}

/// Checks a call with a mask, which must be a `where` of one value.
fn check_mask(args: &Args<Meta>) -> Result<()> {
    let (table, values) = (args.tensor("self")?, args.tensor("values")?);
    let is_where = matches!(
        args.tensors("indices")?,
        [Some(mask)] if mask.dtype == DType::Bool && mask.sizes == table.sizes
    );
    let one_value = shape::numel(&values.sizes)? == 1
        && values.sizes.len() <= table.sizes.len()
        && values.dtype == table.dtype;
    if is_where && one_value && !args.bool_or("accumulate", false)? {
        return Ok(());
    }
    Err(Error::unsupported(
        "a mask selects a number of elements that only a run tells; only one value for all of them can be put",
    )
    .at_operand("indices"))
}

/// `where(mask, values, self)`.
fn where_args<T: Clone>(args: &Args<T>) -> Result<Args<T>> {
    let mask = args.tensors("indices")?.iter().flatten().next();
    let mask = mask.ok_or_else(|| Error::internal("a call with a mask lost it"))?;
    let tensor = |name: &str, value: &T| (name.to_string(), ArgValue::Tensor(value.clone()));
    let items = vec![
        tensor("condition", mask),
        tensor("self", args.tensor("values")?),
        tensor("other", args.tensor("self")?),
    ];
    Ok(Args::new(OpName::new("aten.where.self"), items))
}

fn where_family() -> Result<&'static dyn Op> {
    find("aten.where.self").ok_or_else(|| Error::internal("aten.where.self is in no family"))
}
