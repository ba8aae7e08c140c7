//! Matrix products of run-time tensors.
//!
//! | ATen | result |
//! |---|---|
//! | `mm`, `bmm`, `mv`, `dot`, `matmul` | `a b`; `matmul` takes any ranks from 1 and broadcasts the leading dims |
//! | `addmm`, `baddbmm` | `beta bias + alpha a b`; the bias broadcasts, and with `beta = 0` its values do not count |
//!
//! `_int_mm` multiplies a matrix of `int8` or `uint8` and one of `int8` to `int32`, exactly; with constant codes on the
//! right it becomes an op that keeps them packed.
//!
//! Floats of one dtype, with sums in 32 bits on the device. Products of integers wrap as in PyTorch, and `int64`
//! ones that leave 32 bits on the device are reported; `addmm` and `baddbmm` take floats only. A constant on the
//! right is used as it is: that a product with one becomes `linear` is the rewrite's to decide.

mod eval;
mod integer;

pub use eval::{add_bias, product};

use super::{
    Args, Lowering, Meta, Op, Operand, Tensor,
    epilogue::Epilogue,
    product::{Columns, Product},
};
use crate::base::{DType, Error, HostTensor, Result, shape};

/// The family.
pub struct Matmul;

const TARGETS: &[&str] = &[
    "aten._int_mm.default",
    "aten.addmm.default",
    "aten.baddbmm.default",
    "aten.bmm.default",
    "aten.dot.default",
    "aten.matmul.default",
    "aten.mm.default",
    "aten.mv.default",
];

/// Names of the operands of one member of the family, and the ranks that it takes; 0 stands for any.
struct Member {
    a: &'static str,
    b: &'static str,
    ranks: [usize; 2],
    has_bias: bool,
}

impl Member {
    fn of(target: &str) -> Member {
        let member = |a, b, ranks, has_bias| Member { a, b, ranks, has_bias };
        match target {
            "aten.addmm.default" => member("mat1", "mat2", [2, 2], true),
            "aten.baddbmm.default" => member("batch1", "batch2", [3, 3], true),
            "aten.bmm.default" => member("self", "mat2", [3, 3], false),
            "aten.dot.default" => member("self", "tensor", [1, 1], false),
            "aten._int_mm.default" | "aten.mm.default" => member("self", "mat2", [2, 2], false),
            "aten.mv.default" => member("self", "vec", [2, 1], false),
            _ => member("self", "other", [0, 0], false),
        }
    }
}

/// A product in the form of `matmul`: batches of matrices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Form {
    /// Leading dims of the result, to which both operands' broadcast.
    pub batch: Vec<usize>,
    /// Rows of the result.
    pub m: usize,
    /// Terms of each sum.
    pub k: usize,
    /// Columns of the result.
    pub n: usize,
    /// The result's sizes: without the dim that a vector operand does not have.
    pub out_sizes: Vec<usize>,
}

impl Form {
    /// The form of a product of tensors of sizes `a` and `b`; a vector counts as one row on the left, one column on
    /// the right.
    ///
    /// # Errors
    /// When a size does not fit.
    pub fn new(a: &[usize], b: &[usize]) -> Result<Form> {
        let (a_batch, [m, k]) = matrix(a, true)?;
        let (b_batch, [b_k, n]) = matrix(b, false)?;
        if k != b_k {
            return Err(Error::invalid_graph(format!(
                "sizes {a:?} and {b:?} do not multiply: {k} columns meet {b_k} rows"
            )));
        }
        let batch = shape::broadcast(a_batch, b_batch)?;
        let mut out_sizes = batch.clone();
        out_sizes.extend((a.len() > 1).then_some(m));
        out_sizes.extend((b.len() > 1).then_some(n));
        Ok(Form { batch, m, k, n, out_sizes })
    }

    /// Sizes of the result as batches of matrices.
    pub fn matrices(&self) -> Vec<usize> {
        [&self.batch[..], &[self.m, self.n]].concat()
    }
}

/// Leading dims, and rows and columns.
fn matrix(sizes: &[usize], on_the_left: bool) -> Result<(&[usize], [usize; 2])> {
    match sizes {
        [] => Err(Error::invalid_graph("a 0-d tensor has no matrix product")),
        &[k] if on_the_left => Ok((&[], [1, k])),
        &[k] => Ok((&[], [k, 1])),
        [batch @ .., rows, columns] => Ok((batch, [*rows, *columns])),
    }
}

/// Refuses dtypes that a product of floats does not take.
///
/// # Errors
/// When the operands' dtypes differ, or are no floats that a device computes with.
pub fn check_floats(a: DType, b: DType) -> Result<()> {
    if a != b {
        return Err(Error::invalid_graph(format!("multiplies {a} and {b}; both must be of one dtype")));
    }
    if !a.is_float() || a == DType::F64 {
        return Err(Error::unsupported(format!("takes float32, float16 and bfloat16, not {a}")));
    }
    Ok(())
}

impl Op for Matmul {
    fn targets(&self) -> &'static [&'static str] {
        TARGETS
    }

    fn infer(&self, args: &Args<Meta>) -> Result<Vec<Meta>> {
        let member = Member::of(args.op().as_str());
        let (a, b) = (args.tensor(member.a)?, args.tensor(member.b)?);
        let widens = args.op().base() == "_int_mm";
        if widens {
            for (name, meta) in [(member.a, a), (member.b, b)] {
                if meta.dtype != DType::I8 && (meta.dtype != DType::U8 || name == member.b) {
                    let text = format!("is {}; _int_mm takes int8, and uint8 on the left", meta.dtype);
                    return Err(Error::invalid_graph(text).at_operand(name));
                }
            }
        } else if a.dtype.is_int() && a.dtype == b.dtype && !member.has_bias {
            // Integers are exact; nothing more to check.
        } else {
            check_floats(a.dtype, b.dtype).map_err(|error| error.at_operand(member.b))?;
        }
        for (name, meta, rank) in [(member.a, a, member.ranks[0]), (member.b, b, member.ranks[1])] {
            if rank != 0 && meta.sizes.len() != rank {
                let text = format!("has sizes {:?}; {} takes rank {rank}", meta.sizes, args.op().base());
                return Err(Error::invalid_graph(text).at_operand(name));
            }
        }
        if member.ranks == [3, 3] && a.sizes[0] != b.sizes[0] {
            let text = format!("has {} batches, `{}` {}", b.sizes[0], member.a, a.sizes[0]);
            return Err(Error::invalid_graph(text).at_operand(member.b));
        }
        let form = Form::new(&a.sizes, &b.sizes).map_err(|error| error.at_operand(member.b))?;
        if member.has_bias {
            let bias = args.tensor("self")?;
            check_bias(bias, a.dtype, &form).map_err(|error| error.at_operand("self"))?;
        }
        Ok(vec![Meta::new(if widens { DType::I32 } else { a.dtype }, form.out_sizes)])
    }

    fn eval(&self, args: &Args<HostTensor>, outs: &[Meta]) -> Result<Vec<HostTensor>> {
        let member = Member::of(args.op().as_str());
        let (a, b) = (args.tensor(member.a)?, args.tensor(member.b)?);
        let form = Form::new(a.sizes(), b.sizes())?;
        let Meta { dtype, sizes } = outs[0].clone();
        if dtype.is_int() {
            let sums = eval::product_of_ints(&form, a, b)?;
            return Ok(vec![HostTensor::from_i64s(dtype, sizes, &sums)?]);
        }
        let mut sums = eval::product(&form, (&a.to_f64s(), a.sizes()), (&b.to_f64s(), b.sizes()))?;
        if member.has_bias {
            let (beta, alpha) = (args.float_or("beta", 1.0)?, args.float_or("alpha", 1.0)?);
            if alpha == 0.0 {
                sums.fill(0.0);
            }
            sums.iter_mut().for_each(|sum| *sum *= alpha);
            eval::add_bias(&mut sums, &form, args.tensor("self")?, beta)?;
        }
        Ok(vec![HostTensor::from_f64s(dtype, sizes, &sums)?])
    }

    fn lower(&self, args: &Args<Operand>, outs: &[Meta], cx: &mut Lowering<'_>) -> Result<Vec<Tensor>> {
        Ok(vec![lower(args, &outs[0], Epilogue::NONE, cx)?])
    }
}

/// Emits a product and what follows it; nothing follows a product of integers.
pub(super) fn lower(
    args: &Args<Operand>,
    out: &Meta,
    epilogue: Epilogue,
    cx: &mut Lowering<'_>,
) -> Result<Tensor> {
    let member = Member::of(args.op().as_str());
    let a = cx.live(args.tensor(member.a)?)?;
    let b = cx.live(args.tensor(member.b)?)?;
    let form = Form::new(&a.sizes, &b.sizes)?;
    let a = with_batch(&a, true);
    let b = with_batch(&b, false);
    let matrices = form.matrices();
    let as_matrices = |y: &Tensor| y.restrided(matrices.clone(), shape::contiguous_strides(&matrices), 0);
    if out.dtype.is_int() {
        let y = cx.output(out)?;
        integer::emit(cx, &form, &a, &b, &as_matrices(&y))?;
        return Ok(y);
    }
    let mut product = Product::new(a, Columns::Live(b));
    if member.has_bias {
        product.alpha = args.float_or("alpha", 1.0)? as f32;
        product.beta = args.float_or("beta", 1.0)? as f32;
        // A factor of 0 hides NaN, as it does in PyTorch.
        if product.beta != 0.0 {
            product.bias = Some(cx.live(args.tensor("self")?)?);
        }
        if product.alpha == 0.0 {
            product = product.without_terms();
        }
    }
    let y = epilogue.join(&mut product, out, &matrices, cx)?;
    product.emit(cx, &as_matrices(&y))?;
    Ok(y)
}

fn check_bias(bias: &Meta, dtype: DType, form: &Form) -> Result<()> {
    if bias.dtype != dtype {
        return Err(Error::invalid_graph(format!("is {}, the product {dtype}", bias.dtype)));
    }
    let matrices = form.matrices();
    match shape::broadcast(&bias.sizes, &matrices) {
        Ok(sizes) if sizes == matrices => Ok(()),
        _ => Err(Error::invalid_graph(format!(
            "of sizes {:?} does not broadcast to the product's {matrices:?}",
            bias.sizes
        ))),
    }
}

/// A vector as a matrix of one row (on the left) or one column.
fn with_batch(tensor: &Tensor, on_the_left: bool) -> Tensor {
    match (tensor.sizes.as_slice(), on_the_left) {
        (&[k], true) => tensor.restrided(vec![1, k], vec![0, tensor.strides[0]], 0),
        (&[k], false) => tensor.restrided(vec![k, 1], vec![tensor.strides[0], 0], 0),
        _ => tensor.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectors_lose_their_dim_in_the_result() {
        let out = |a: &[usize], b: &[usize]| Form::new(a, b).map(|form| form.out_sizes);
        assert_eq!(out(&[4], &[4]).unwrap(), Vec::<usize>::new());
        assert_eq!(out(&[4], &[2, 4, 5]).unwrap(), [2, 5]);
        assert_eq!(out(&[2, 3, 4], &[4]).unwrap(), [2, 3]);
        assert_eq!(out(&[2, 1, 3, 4], &[3, 4, 5]).unwrap(), [2, 3, 3, 5]);
        assert_eq!(out(&[3, 0], &[0, 5]).unwrap(), [3, 5]);
        assert!(out(&[2, 3], &[4, 2]).is_err());
        assert!(out(&[], &[4]).is_err());
    }
}
