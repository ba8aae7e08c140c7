//! Rows of a quantised table: `y[.., k] = (code[n, k] - zero) * scale` with `n = indices[..]`.
//!
//! | op | |
//! |---|---|
//! | `vkdelegate.embedding_q8` | 8 bits a code on the device |
//! | `vkdelegate.embedding_q4` | 4 bits a code on the device |
//! | `quantized_decomposed.embedding_byte`, `.embedding_4bit`, `.embedding_2bit` | see [`PackedEmbedding`] |
//!
//! No program holds the first two; the quantised rewrite makes them of a lookup and what dequantises its table. Rows
//! that nobody looks up stay codes; the codes lie as those of `linear_q8` and `linear_q4`, so that a linear shares them.
//!
//! | operand or attribute | |
//! |---|---|
//! | `weight` | codes, a constant of int8 or uint8, sizes `[N, K]`; of uint8 and `[N, K * held_bits / 8]` for fewer held bits |
//! | `side` | as for `linear_q8`; biases in it are not read |
//! | `indices` | int64 or int32, any sizes |
//! | `offset` | subtracted from a code so that it fits as a signed number |
//! | `groups`, `has_zeros`, `has_bias` | what `side` holds; K is a multiple of `groups` |
//! | `held_bits` | bits of a code in the program: 8, 4 or 2 |
//! | `wraps` | whether negative indices count from the end |
//! | `dtype` | of the rows: float32, float16, bfloat16, or that of the codes, which are then given as they are |
//! | `rounds_to` | the dtype that products are rounded to first, float16 before float32 |

mod lower;
mod packed;

pub use packed::PackedEmbedding;

use super::{Args, Lowering, Meta, Op, Operand, Packing, Side, Tensor, index, packing::split_code};
use crate::base::{DType, Error, HostTensor, Result};

/// The family.
pub struct EmbeddingQ;

/// Attributes of one call.
struct Call {
    packing: Packing,
    offset: i64,
    side: Side,
    wraps: bool,
    dtype: DType,
    rounds_to: DType,
}

impl Call {
    fn of<T>(args: &Args<T>) -> Result<Call> {
        let bits = if args.op().base() == "embedding_q4" { 4 } else { 8 };
        let offset = args.int_or("offset", 0)?;
        let held_bits = args.int_or("held_bits", 8)?;
        let packing = match (held_bits, u8::try_from(offset)) {
            (8, Ok(offset)) => Packing::Codes { bits, offset },
            (4, Ok(0)) => Packing::Split { bits: 4 },
            (2, Ok(0)) => Packing::Split { bits: 2 },
            _ => {
                let text = format!("{held_bits} bits and an offset of {offset} are no packing");
                return Err(Error::invalid_graph(text).at_operand("held_bits"));
            }
        };
        let groups = usize::try_from(args.int("groups")?).ok().filter(|&groups| groups > 0);
        let groups =
            groups.ok_or_else(|| Error::invalid_graph("there are no groups").at_operand("groups"))?;
        let has_zeros = args.bool_or("has_zeros", false)?;
        let has_bias = args.bool_or("has_bias", false)?;
        let dtype = args.opt_dtype("dtype")?;
        let dtype =
            dtype.ok_or_else(|| Error::invalid_graph("the rows have no dtype").at_operand("dtype"))?;
        Ok(Call {
            packing,
            offset,
            side: Side { groups, has_zeros, has_bias },
            wraps: args.bool_or("wraps", false)?,
            dtype,
            rounds_to: args.opt_dtype("rounds_to")?.unwrap_or(dtype),
        })
    }

    /// Rows and columns of the table.
    fn table_sizes(&self, weight: &Meta) -> Result<[usize; 2]> {
        let is_split = self.packing.codes_a_byte() > 1;
        match (weight.sizes.as_slice(), weight.dtype) {
            (&[n, columns], DType::U8) => Ok([n, columns * self.packing.codes_a_byte()]),
            (&[n, k], DType::I8) if !is_split => Ok([n, k]),
            _ => {
                let what = if is_split { "uint8" } else { "int8 or uint8" };
                let text = format!("is {}{:?}; codes are a matrix of {what}", weight.dtype, weight.sizes);
                Err(Error::unsupported(text).at_operand("weight"))
            }
        }
    }
}

impl Op for EmbeddingQ {
    fn targets(&self) -> &'static [&'static str] {
        &["vkdelegate.embedding_q4.default", "vkdelegate.embedding_q8.default"]
    }

    fn infer(&self, args: &Args<Meta>) -> Result<Vec<Meta>> {
        let call = Call::of(args)?;
        let (weight, side, indices) = (args.tensor("weight")?, args.tensor("side")?, args.tensor("indices")?);
        let [n, k] = call.table_sizes(weight)?;
        index::check_dtype(indices, "indices")?;
        if !k.is_multiple_of(call.side.groups) {
            let text = format!("{} groups do not divide {k} columns", call.side.groups);
            return Err(Error::unsupported(text).at_operand("groups"));
        }
        if side.dtype != DType::F32 || side.sizes != call.side.sizes(n) {
            let text = format!("is {}{:?}; takes float32{:?}", side.dtype, side.sizes, call.side.sizes(n));
            return Err(Error::invalid_graph(text).at_operand("side"));
        }
        let is_float = matches!(call.dtype, DType::F32 | DType::F16 | DType::BF16);
        if !is_float && call.dtype != weight.dtype {
            let text = format!("codes of {} give no {}", weight.dtype, call.dtype);
            return Err(Error::unsupported(text).at_operand("dtype"));
        }
        if call.rounds_to != call.dtype && (call.rounds_to, call.dtype) != (DType::F16, DType::F32) {
            let text = format!("rounding to {} before {} has no kernel", call.rounds_to, call.dtype);
            return Err(Error::unsupported(text).at_operand("rounds_to"));
        }
        index::check_rows(n, &indices.sizes).map_err(|error| error.at_operand("weight"))?;
        Ok(vec![Meta::new(call.dtype, [indices.sizes.as_slice(), &[k]].concat())])
    }

    fn eval(&self, args: &Args<HostTensor>, outs: &[Meta]) -> Result<Vec<HostTensor>> {
        let call = Call::of(args)?;
        let (weight, side, indices) = (args.tensor("weight")?, args.tensor("side")?, args.tensor("indices")?);
        let [n, k] = call.table_sizes(&Meta::new(weight.dtype(), weight.sizes()))?;
        let side = call.side.read(&side.to_f32s(), n)?;
        let codes = signed_codes(weight, call.packing, call.offset);
        let group = (k / call.side.groups).max(1);
        let mut values = Vec::with_capacity(indices.len_elems() * k);
        for row in indices.to_i64s() {
            let row = index::position(row, n, call.wraps)?;
            for (column, &code) in codes[row * k..][..k].iter().enumerate() {
                let at = row * call.side.groups + column / group;
                values.push(f64::from((code as f32 - side.zeros[at]) * side.scales[at]));
            }
        }
        let rows = HostTensor::from_f64s(call.rounds_to, outs[0].sizes.clone(), &values)?;
        Ok(vec![rows.cast(outs[0].dtype)?])
    }

    fn lower(&self, args: &Args<Operand>, outs: &[Meta], cx: &mut Lowering<'_>) -> Result<Vec<Tensor>> {
        let call = Call::of(args)?;
        lower::lower(&call, args, &outs[0], cx)
    }
}

/// The codes of a table as the device has them, row-major.
fn signed_codes(weight: &HostTensor, packing: Packing, offset: i64) -> Vec<i64> {
    match packing {
        Packing::Split { bits } => {
            let codes = |&byte: &u8| (0..packing.codes_a_byte()).map(move |at| split_code(byte, bits, at));
            weight.bytes().iter().flat_map(codes).map(|code| i64::from(code) - (1 << (bits - 1))).collect()
        }
        _ => weight.to_i64s().into_iter().map(|code| code - offset).collect(),
    }
}
