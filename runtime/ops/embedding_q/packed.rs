//! Lookups in tables of codes as ExecuTorch's programs hold them.

use super::signed_codes;
use crate::{
    base::{DType, Error, HostTensor, Result},
    ops::{Args, Lowering, Meta, Op, Operand, Packing, Tensor, index, operands::Typed},
};

/// The family of `quantized_decomposed.embedding_byte`, `.embedding_4bit` and `.embedding_2bit`, each with its overload `.dtype`:
/// `(code - zero) * scale` at the rows `indices`.
///
/// | operand or attribute | |
/// |---|---|
/// | `weight` | sizes `[N, K]` of int8 or uint8; `[N, K / 2]` and `[N, K / 4]` of uint8 with 4 and 2 bits a code: the first of 4 bits in the high half, the first of 2 bits in the low ones; codes start at -8 and -2 |
/// | `weight_scales` | float32 or float16, sizes `[N]` or `[N, groups]` |
/// | `weight_zero_points` | none, or of the dtype and as many as the scales |
/// | `indices` | int64 or int32; negative ones are out of range |
/// | `dtype` | of the rows; that of the scales where there is none |
///
/// K is a multiple of the groups, each of 2 codes or more. The table is constant: the quantised rewrite makes
/// `vkdelegate.embedding_q8` or `.embedding_q4` of the call, which reads packed codes.
pub struct PackedEmbedding;

/// One call, its sizes checked.
struct Call {
    packing: Packing,
    rows: usize,
    columns: usize,
    groups: usize,
    dtype: DType,
}

impl Call {
    fn of<T: Typed>(args: &Args<T>) -> Result<Call> {
        let packing = match args.op().base() {
            "embedding_4bit" => Packing::Split { bits: 4 },
            "embedding_2bit" => Packing::Split { bits: 2 },
            _ => Packing::Codes { bits: 8, offset: 0 },
        };
        let weight = args.tensor("weight")?;
        let is_split = packing.codes_a_byte() > 1;
        let (&[rows, bytes], DType::U8 | DType::I8) = (weight.sizes(), weight.dtype()) else {
            let text = format!("is {}{:?}; codes are a matrix of bytes", weight.dtype(), weight.sizes());
            return Err(Error::invalid_graph(text).at_operand("weight"));
        };
        if is_split && weight.dtype() != DType::U8 {
            return Err(Error::unsupported("is int8; codes that share a byte are uint8").at_operand("weight"));
        }
        check_range(args, packing)?;
        let (columns, scales) = (bytes * packing.codes_a_byte(), args.tensor("weight_scales")?);
        let groups = groups_of(scales, [rows, columns])?;
        if let Some(zeros) = args.opt_tensor("weight_zero_points")?
            && (zeros.dtype() != scales.dtype() || numel(zeros)? != numel(scales)?)
        {
            let text = format!(
                "is {}{:?}; scales of {}{:?} take as many of the same dtype",
                zeros.dtype(),
                zeros.sizes(),
                scales.dtype(),
                scales.sizes()
            );
            return Err(Error::invalid_graph(text).at_operand("weight_zero_points"));
        }
        let dtype = args.opt_dtype("dtype")?.unwrap_or(scales.dtype());
        Ok(Call { packing, rows, columns, groups, dtype })
    }
}

fn numel(tensor: &impl Typed) -> Result<usize> {
    crate::base::shape::numel(tensor.sizes())
}

/// The range that codes of less than a byte have.
fn check_range<T>(args: &Args<T>, packing: Packing) -> Result<()> {
    let Packing::Split { bits } = packing else { return Ok(()) };
    let half = 1i64 << (bits - 1);
    for (name, want) in [("weight_quant_min", -half), ("weight_quant_max", half - 1)] {
        let got = args.int(name)?;
        if got != want {
            return Err(
                Error::invalid_graph(format!("is {got}; codes of {bits} bits have {want}")).at_operand(name)
            );
        }
    }
    Ok(())
}

fn groups_of(scales: &impl Typed, [rows, columns]: [usize; 2]) -> Result<usize> {
    let groups = match *scales.sizes() {
        [n] if n == rows => 1,
        [n, groups] if n == rows => groups,
        _ => 0,
    };
    if !matches!(scales.dtype(), DType::F32 | DType::F16) || groups == 0 {
        let text = format!(
            "is {}{:?}; {rows} rows take float32 or float16 of [{rows}] or [{rows}, groups]",
            scales.dtype(),
            scales.sizes()
        );
        return Err(Error::invalid_graph(text).at_operand("weight_scales"));
    }
    if !columns.is_multiple_of(groups) || columns / groups == 1 {
        let text = format!(
            "has {groups} groups; {columns} columns take a divisor of them, with 2 codes a group or more"
        );
        return Err(Error::invalid_graph(text).at_operand("weight_scales"));
    }
    Ok(groups)
}

impl Op for PackedEmbedding {
    fn targets(&self) -> &'static [&'static str] {
        &[
            "quantized_decomposed.embedding_2bit.default",
            "quantized_decomposed.embedding_2bit.dtype",
            "quantized_decomposed.embedding_4bit.default",
            "quantized_decomposed.embedding_4bit.dtype",
            "quantized_decomposed.embedding_byte.default",
            "quantized_decomposed.embedding_byte.dtype",
        ]
    }

    fn infer(&self, args: &Args<Meta>) -> Result<Vec<Meta>> {
        let call = Call::of(args)?;
        if !matches!(call.dtype, DType::F32 | DType::F16 | DType::BF16) {
            return Err(Error::unsupported(format!("gives {}", call.dtype)).at_operand("dtype"));
        }
        let indices = args.tensor("indices")?;
        index::check_dtype(indices, "indices")?;
        index::check_rows(call.rows, &indices.sizes).map_err(|error| error.at_operand("weight"))?;
        Ok(vec![Meta::new(call.dtype, [indices.sizes.as_slice(), &[call.columns]].concat())])
    }

    fn eval(&self, args: &Args<HostTensor>, outs: &[Meta]) -> Result<Vec<HostTensor>> {
        let call = Call::of(args)?;
        let scales = args.tensor("weight_scales")?;
        let zeros = args.opt_tensor("weight_zero_points")?.map(HostTensor::to_f64s);
        let codes = signed_codes(args.tensor("weight")?, call.packing, 0);
        let (k, group) = (call.columns, (call.columns / call.groups).max(1));
        let (mut differences, mut factors) = (Vec::new(), Vec::new());
        let scale_values = scales.to_f64s();
        for row in args.tensor("indices")?.to_i64s() {
            let row = index::position(row, call.rows, false)?;
            for (column, &code) in codes[row * k..][..k].iter().enumerate() {
                let at = row * call.groups + column / group;
                differences.push(code as f64 - zeros.as_ref().map_or(0.0, |zeros| zeros[at]));
                factors.push(scale_values[at]);
            }
        }
        // PyTorch subtracts and multiplies in the dtype of the scales.
        let rounded = |values: &[f64]| HostTensor::from_f64s(scales.dtype(), outs[0].sizes.clone(), values);
        let products: Vec<f64> =
            rounded(&differences)?.to_f64s().into_iter().zip(factors).map(|(v, factor)| v * factor).collect();
        Ok(vec![rounded(&products)?.cast(outs[0].dtype)?])
    }

    fn lower(&self, _: &Args<Operand>, _: &[Meta], _: &mut Lowering<'_>) -> Result<Vec<Tensor>> {
        let text =
            "is run-time data; rows are taken from packed codes, which are constants as their scales are";
        Err(Error::unsupported(text).at_operand("weight"))
    }
}
