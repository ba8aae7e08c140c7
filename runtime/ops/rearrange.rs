//! Elements at other positions: `flip`, `roll`, and padding (`constant_pad_nd`, `pad`, `reflection_pad*`,
//! `replication_pad*`). Every dtype, rank 8 at most.
//!
//! Each dim of the output is made of runs that take the input forwards, backwards, or at one repeated position, so
//! the output is a grid of boxes, each a strided copy; positions in no run are filled.

use super::{
    Args, Lowering, Meta, Op, Operand, Tensor, elementwise,
    fill::{fill, filled},
};
use crate::base::{Error, HostTensor, Result, Scalar, shape};

/// The family of rearrangements.
pub struct Rearrange;

/// A rearrangement of a tensor seen with sizes `from`.
struct Plan {
    from: Vec<usize>,
    dims: Vec<DimRuns>,
    value: Scalar,
    /// The output's sizes as the caller sees them.
    out_sizes: Vec<usize>,
}

/// A dim of the output.
#[derive(Clone, Debug, PartialEq, Eq)]
struct DimRuns {
    size: usize,
    runs: Vec<Run>,
}

impl DimRuns {
    fn new(size: usize, runs: impl IntoIterator<Item = Run>) -> DimRuns {
        DimRuns { size, runs: runs.into_iter().filter(|run| run.len > 0).collect() }
    }

    fn identity(size: usize) -> DimRuns {
        DimRuns::new(size, [Run { start: 0, len: size, from: 0, step: Step::Forwards }])
    }

    /// The input position for an output position; `None` where the fill value stands.
    fn source(&self, position: usize) -> Option<usize> {
        self.runs.iter().find_map(|run| {
            let within = position.checked_sub(run.start).filter(|&within| within < run.len)?;
            Some(match run.step {
                Step::Forwards => run.from + within,
                Step::Backwards => run.from - within,
                Step::Still => run.from,
            })
        })
    }

    fn has_gaps(&self) -> bool {
        self.runs.iter().map(|run| run.len).sum::<usize>() < self.size
    }
}

/// Output positions `start..start + len` of a dim, which come from input position `from` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    start: usize,
    len: usize,
    from: usize,
    step: Step,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Forwards,
    Backwards,
    Still,
}

impl Op for Rearrange {
    fn targets(&self) -> &'static [&'static str] {
        &[
            "aten.constant_pad_nd.default",
            "aten.flip.default",
            "aten.pad.default",
            "aten.reflection_pad1d.default",
            "aten.reflection_pad2d.default",
            "aten.reflection_pad3d.default",
            "aten.replication_pad1d.default",
            "aten.replication_pad2d.default",
            "aten.replication_pad3d.default",
            "aten.roll.default",
        ]
    }

    fn infer(&self, args: &Args<Meta>) -> Result<Vec<Meta>> {
        let operand = args.tensor("self")?;
        if operand.sizes.len() > shape::MAX_RANK {
            let text = format!("rank {} is more than {}", operand.sizes.len(), shape::MAX_RANK);
            return Err(Error::unsupported(text).at_operand("self"));
        }
        Ok(vec![Meta::new(operand.dtype, plan(args, &operand.sizes)?.out_sizes)])
    }

    fn eval(&self, args: &Args<HostTensor>, outs: &[Meta]) -> Result<Vec<HostTensor>> {
        let operand = args.tensor("self")?;
        let metas = args.try_map(|tensor| Ok(Meta::new(tensor.dtype(), tensor.sizes())))?;
        let plan = plan(&metas, operand.sizes())?;
        let strides = shape::contiguous_strides(&plan.from);
        let width = operand.dtype().size_bytes();
        let mut bytes = filled(operand.dtype(), &outs[0].sizes, plan.value)?.bytes().to_vec();
        for (position, slot) in bytes.chunks_exact_mut(width).enumerate() {
            let mut rest = position;
            let mut from = Some(0);
            for (dim, stride) in plan.dims.iter().zip(&strides).rev() {
                from = from.zip(dim.source(rest % dim.size)).map(|(sum, at)| sum + at * stride);
                rest /= dim.size;
            }
            if let Some(from) = from {
                slot.copy_from_slice(&operand.bytes()[from * width..(from + 1) * width]);
            }
        }
        Ok(vec![HostTensor::new(operand.dtype(), outs[0].sizes.clone(), bytes)?])
    }

    fn lower(&self, args: &Args<Operand>, outs: &[Meta], cx: &mut Lowering<'_>) -> Result<Vec<Tensor>> {
        let operand = cx.live(args.tensor("self")?)?;
        let plan = plan(&args.try_map(|operand| Ok(operand.meta()))?, &operand.sizes)?;
        let operand = match operand.viewed(&plan.from) {
            Some(operand) => operand,
            None => {
                let copied = cx.contiguous(&operand)?;
                copied.restrided(plan.from.clone(), shape::contiguous_strides(&plan.from), 0)
            }
        };
        let out = cx.output(&outs[0])?;
        if plan.dims.iter().any(DimRuns::has_gaps) {
            fill(cx, &out, plan.value)?;
        }
        let sizes: Vec<usize> = plan.dims.iter().map(|dim| dim.size).collect();
        let target = out.restrided(sizes.clone(), shape::contiguous_strides(&sizes), 0);
        copy_boxes(cx, &operand, &target, &plan.dims, &mut Vec::new())?;
        Ok(vec![out])
    }
}

/// Copies every box of the grid that the runs of `dims` make; `chosen` are the runs of the dims before.
fn copy_boxes(
    cx: &mut Lowering<'_>,
    from: &Tensor,
    to: &Tensor,
    dims: &[DimRuns],
    chosen: &mut Vec<Run>,
) -> Result<()> {
    if let Some(dim) = dims.get(chosen.len()) {
        for &run in &dim.runs {
            chosen.push(run);
            copy_boxes(cx, from, to, dims, chosen)?;
            chosen.pop();
        }
        return Ok(());
    }
    let sizes: Vec<usize> = chosen.iter().map(|run| run.len).collect();
    let mut strides = from.strides.clone();
    let (mut from_offset, mut to_offset) = (0, 0);
    let mut reversed = Vec::new();
    for (dim, run) in chosen.iter().enumerate() {
        to_offset += run.start * to.strides[dim];
        let lowest = match run.step {
            Step::Backwards => run.from + 1 - run.len,
            _ => run.from,
        };
        from_offset += lowest * from.strides[dim];
        match run.step {
            Step::Still => strides[dim] = 0,
            Step::Backwards => reversed.push(dim),
            Step::Forwards => {}
        }
    }
    let source = from.restrided(sizes.clone(), strides, from_offset);
    let target = to.restrided(sizes, to.strides.clone(), to_offset);
    elementwise::copy_reversed(cx, &source, &target, &reversed)
}

fn plan(args: &Args<Meta>, sizes: &[usize]) -> Result<Plan> {
    match args.op().base() {
        "flip" => flipped(args, sizes),
        "roll" => rolled(args, sizes),
        "constant_pad_nd" => padded(args, sizes, "pad", Mode::Constant),
        "pad" => {
            let mode = match args.opt_str("mode")?.unwrap_or("constant") {
                "constant" => Mode::Constant,
                "reflect" => Mode::Reflect,
                "replicate" => Mode::Replicate,
                "circular" => Mode::Circular,
                other => {
                    return Err(
                        Error::invalid_input(format!("{other} is no way of padding")).at_operand("mode")
                    );
                }
            };
            padded(args, sizes, "pad", mode)
        }
        base if base.starts_with("reflection") => padded(args, sizes, "padding", Mode::Reflect),
        _ => padded(args, sizes, "padding", Mode::Replicate),
    }
}

fn flipped(args: &Args<Meta>, sizes: &[usize]) -> Result<Plan> {
    let mut dims: Vec<DimRuns> = sizes.iter().map(|&size| DimRuns::identity(size)).collect();
    if !args.ints("dims")?.is_empty() {
        for dim in args.dims_or_all("dims", sizes.len())? {
            let len = sizes[dim];
            let run = Run { start: 0, len, from: len.saturating_sub(1), step: Step::Backwards };
            dims[dim] = DimRuns::new(len, [run]);
        }
    }
    Ok(Plan { from: sizes.to_vec(), dims, value: Scalar::Int(0), out_sizes: sizes.to_vec() })
}

fn rolled(args: &Args<Meta>, sizes: &[usize]) -> Result<Plan> {
    let shifts = args.ints("shifts")?;
    let dims = args.opt_ints("dims")?.unwrap_or_default();
    let (from, dims) = if dims.is_empty() {
        (vec![shape::numel(sizes)?], vec![0; shifts.len().min(1)])
    } else {
        let normal =
            |&dim: &i64| shape::normalize_dim(dim, sizes.len()).map_err(|error| error.at_operand("dims"));
        (sizes.to_vec(), dims.iter().map(normal).collect::<Result<Vec<_>>>()?)
    };
    if dims.len() != shifts.len() || dims.is_empty() {
        let text = format!("{} shifts are given for {} dims", shifts.len(), dims.len());
        return Err(Error::invalid_input(text).at_operand("shifts"));
    }
    let roll = |(dim, &len): (usize, &usize)| {
        let modulus = len.max(1) as i64;
        let own = dims.iter().zip(&shifts).filter(|&(&rolled, _)| rolled == dim);
        let right = own.fold(0, |sum, (_, shift)| (sum + shift.rem_euclid(modulus)) % modulus) as usize;
        let wrapped = Run { start: 0, len: right, from: len - right, step: Step::Forwards };
        DimRuns::new(len, [wrapped, Run { start: right, len: len - right, from: 0, step: Step::Forwards }])
    };
    let rolled = from.iter().enumerate().map(roll).collect();
    Ok(Plan { from, dims: rolled, value: Scalar::Int(0), out_sizes: sizes.to_vec() })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Constant,
    Reflect,
    Replicate,
    Circular,
}

fn padded(args: &Args<Meta>, sizes: &[usize], name: &str, mode: Mode) -> Result<Plan> {
    let pads = args.ints(name)?;
    if !pads.len().is_multiple_of(2) || pads.len() / 2 > sizes.len() {
        let text = format!("{} pads do not fit rank {}", pads.len(), sizes.len());
        return Err(Error::invalid_input(text).at_operand(name));
    }
    let mut dims = Vec::with_capacity(sizes.len());
    for (dim, &size) in sizes.iter().enumerate() {
        let pair = (sizes.len() - 1 - dim) * 2;
        dims.push(match pads.get(pair..pair + 2) {
            Some(&[before, after]) => {
                pad_dim(size, before, after, mode).map_err(|error| error.at_operand(name))?
            }
            _ => DimRuns::identity(size),
        });
    }
    let value = args.scalar_or("value", Scalar::Int(0))?;
    let out_sizes: Vec<usize> = dims.iter().map(|dim| dim.size).collect();
    Ok(Plan { from: sizes.to_vec(), dims, value, out_sizes })
}

/// A dim of `size` with `before` and `after` positions added, or removed where negative.
fn pad_dim(size: usize, before: i64, after: i64, mode: Mode) -> Result<DimRuns> {
    let wrong = || Error::invalid_input(format!("pads {before} and {after} do not suit a dim of {size}"));
    let added = |pad: i64| usize::try_from(pad).unwrap_or(0);
    let removed = |pad: i64| usize::try_from(pad.min(0).unsigned_abs()).unwrap_or(usize::MAX);
    let (left, right) = (added(before), added(after));
    let kept = size.checked_sub(removed(before)).and_then(|kept| kept.checked_sub(removed(after)));
    let kept = kept.ok_or_else(wrong)?;
    let out_size = kept.checked_add(left).and_then(|sum| sum.checked_add(right)).ok_or_else(wrong)?;
    let suits = match mode {
        Mode::Constant => true,
        Mode::Reflect => left.max(right) < size,
        Mode::Replicate => size > 0,
        Mode::Circular => left.max(right) <= size,
    };
    if !suits {
        return Err(wrong());
    }
    let last = size.saturating_sub(1);
    let (left_from, right_from, step) = match mode {
        Mode::Constant => (0, 0, Step::Still),
        Mode::Reflect => (left, last.saturating_sub(1), Step::Backwards),
        Mode::Replicate => (0, last, Step::Still),
        Mode::Circular => (size.saturating_sub(left), 0, Step::Forwards),
    };
    let middle = Run { start: left, len: kept, from: removed(before), step: Step::Forwards };
    if mode == Mode::Constant {
        return Ok(DimRuns::new(out_size, [middle]));
    }
    let first = Run { start: 0, len: left, from: left_from, step };
    let end = Run { start: left + kept, len: right, from: right_from, step };
    Ok(DimRuns::new(out_size, [first, middle, end]))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The input position of every output position, -1 for the fill value.
    fn sources(dim: &DimRuns) -> Vec<i64> {
        (0..dim.size).map(|position| dim.source(position).map_or(-1, |from| from as i64)).collect()
    }

    #[test]
    fn dims_pad_as_in_torch() {
        let pad = |size, before, after, mode| sources(&pad_dim(size, before, after, mode).unwrap());
        assert_eq!(pad(3, 2, 1, Mode::Reflect), [2, 1, 0, 1, 2, 1]);
        assert_eq!(pad(3, 1, 2, Mode::Replicate), [0, 0, 1, 2, 2, 2]);
        assert_eq!(pad(3, 2, 1, Mode::Circular), [1, 2, 0, 1, 2, 0]);
        assert_eq!(pad(3, 1, -1, Mode::Constant), [-1, 0, 1]);
        assert_eq!(pad(5, -2, 2, Mode::Reflect), [2, 3, 4, 3, 2]);
        assert!(pad_dim(3, -2, -2, Mode::Constant).is_err());
        assert!(pad_dim(3, 3, 0, Mode::Reflect).is_err());
        assert!(pad_dim(3, i64::MIN, 0, Mode::Constant).is_err());
    }

    #[test]
    fn gaps_are_what_no_run_covers() {
        assert!(pad_dim(3, 1, 0, Mode::Constant).unwrap().has_gaps());
        assert!(!pad_dim(3, -1, 2, Mode::Replicate).unwrap().has_gaps());
    }
}
