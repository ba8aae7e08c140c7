//! One call of quantise, dequantise or fake-quantise: which elements share a scale, and what is refused.

use crate::{
    base::{DType, Error, Result, Scalar, shape},
    ops::{ArgValue, Args, operands::Typed},
};

/// A scale or zero point.
#[derive(Debug)]
pub enum Param<'a, T> {
    /// One number for all elements.
    Number(f64),
    /// A tensor, whose elements in row-major order are those of [`Call::param_sizes`].
    Tensor(&'a T),
}

impl<T> Clone for Param<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Param<'_, T> {}

/// One call.
pub struct Call<'a, T> {
    /// What is quantised or dequantised.
    pub x: &'a T,
    /// The factor.
    pub scale: Param<'a, T>,
    /// The code of 0.0.
    pub zero: Param<'a, T>,
    /// x's sizes with each dim that has several blocks split into blocks and what is within one.
    pub grouped: Vec<usize>,
    /// Sizes of scale and zero point, which broadcast to `grouped`.
    pub param_sizes: Vec<usize>,
    /// Whether the zero point is added before the rounding.
    pub rounds_sum: bool,
    /// Whether the scale keeps its dtype in the arithmetic.
    multiplies_as_is: bool,
    /// Whether a dequantise subtracts the zero point before it converts the codes to floats.
    subtracts_integers: bool,
    /// The range that the call gives.
    low: Option<f64>,
    high: Option<f64>,
}

impl<'a, T: Typed> Call<'a, T> {
    /// Reads the arguments of any op of these families.
    ///
    /// # Errors
    /// Sizes, axes and blocks that do not fit each other, and dtypes that PyTorch does not take.
    pub fn of(args: &'a Args<T>) -> Result<Call<'a, T>> {
        let base = args.op().base();
        let x = args.tensor(if args.has("self") { "self" } else { x_name(args) })?;
        let scale = param(args, if args.has("scales") { "scales" } else { "scale" }, None)?;
        let zero =
            param(args, if args.has("zero_points") { "zero_points" } else { "zero_point" }, Some(0.0))?;
        let (grouped, param_sizes) = blocks(args, base, x.sizes(), &scale)?;
        let bound = |name: &str| args.opt_number(name);
        let rounds_sum = base.ends_with("per_token") || base.ends_with("channel_group");
        let call = Call {
            x,
            scale,
            zero,
            grouped,
            param_sizes,
            rounds_sum,
            multiplies_as_is: rounds_sum || base == "dequantize_per_channel",
            subtracts_integers: rounds_sum || args.has("axis"),
            low: bound("quant_min")?,
            high: bound("quant_max")?,
        };
        call.check_params(args)?;
        Ok(call)
    }

    fn check_params(&self, args: &Args<T>) -> Result<()> {
        let want = shape::numel(&self.param_sizes)?;
        for (name, param) in [("scale", self.scale), ("zero_point", self.zero)] {
            let Param::Tensor(tensor) = param else { continue };
            let name = if args.has(name) { name.to_string() } else { format!("{name}s") };
            let got = shape::numel(tensor.sizes())?;
            if got != want {
                let text = format!(
                    "has {got} elements in sizes {:?}; a tensor of sizes {:?} in these blocks takes {want}",
                    tensor.sizes(),
                    self.x.sizes()
                );
                return Err(Error::invalid_graph(text).at_operand(name));
            }
            let fits = if name.starts_with("scale") {
                tensor.dtype().is_float()
            } else {
                tensor.dtype() != DType::Bool
            };
            if !fits {
                let text = format!("is {}; a scale is a float, a zero point a number", tensor.dtype());
                return Err(Error::invalid_graph(text).at_operand(name));
            }
        }
        Ok(())
    }

    /// Refuses what is not floats.
    ///
    /// # Errors
    /// For integers and float64.
    pub fn check_floats(&self) -> Result<()> {
        match self.x.dtype() {
            DType::F32 | DType::F16 | DType::BF16 => Ok(()),
            other => Err(Error::unsupported(format!(
                "is {other}; float32, float16 and bfloat16 are what is quantised"
            ))
            .at_operand("input")),
        }
    }

    /// Refuses a range that `dtype` cannot hold, as PyTorch does.
    ///
    /// # Errors
    /// For a range beyond the dtype, and a dtype that is no integer of 32 bits or less.
    pub fn check_range(&self, dtype: DType) -> Result<()> {
        let (least, most) = int_range(dtype)?;
        let (low, high) = self.range(dtype)?;
        if low < least || high > most {
            let text = format!("the range {low} to {high} does not fit {dtype}");
            return Err(Error::invalid_graph(text).at_operand(if low < least {
                "quant_min"
            } else {
                "quant_max"
            }));
        }
        Ok(())
    }

    /// Refuses codes of another dtype than the call says, and arithmetic that would wrap.
    ///
    /// # Errors
    /// For codes that are no integers of 32 bits or less, or not of dtype `declared`.
    pub fn check_codes(&self, declared: Option<DType>) -> Result<()> {
        let dtype = self.x.dtype();
        if declared.is_some_and(|declared| declared != dtype) {
            let declared = declared.map_or(String::new(), |declared| declared.to_string());
            return Err(
                Error::invalid_graph(format!("is {dtype}; the op says {declared}")).at_operand("input")
            );
        }
        int_range(dtype).map_err(|error| error.at_operand("input"))?;
        if let Some(product) = self.product_dtype().filter(|_| dtype.size_bytes() > 1) {
            let text = format!("is {product}, in which PyTorch rounds {dtype} codes; make it float32");
            return Err(Error::unsupported(text).at_operand("scales"));
        }
        if let Param::Tensor(zero) = self.zero
            && self.subtracts_integers
            && dtype.promote(zero.dtype()).size_bytes() == 1
        {
            let text = format!("is {}, in which differences wrap; make it int32", zero.dtype());
            return Err(Error::unsupported(text).at_operand("zero_points"));
        }
        Ok(())
    }

    /// The least and the largest code.
    ///
    /// # Errors
    /// For a dtype without codes.
    pub fn range(&self, dtype: DType) -> Result<(f64, f64)> {
        let (least, most) = int_range(dtype)?;
        Ok((self.low.unwrap_or(least), self.high.unwrap_or(most)))
    }

    /// The dtype that a dequantise gives.
    ///
    /// # Errors
    /// For a dtype that is no float that a device computes with.
    pub fn float_dtype(&self, args: &Args<T>) -> Result<DType> {
        let name = if args.has("out_dtype") { "out_dtype" } else { "output_dtype" };
        match args.opt_dtype(name)?.unwrap_or(DType::F32) {
            dtype @ (DType::F32 | DType::F16 | DType::BF16) => Ok(dtype),
            other => Err(Error::unsupported(format!("dequantises to {other}")).at_operand(name)),
        }
    }

    /// The dtype that the ops round differences and products to which multiply by a scale tensor as it is: that of the
    /// scale where it has less than 32 bits.
    pub fn product_dtype(&self) -> Option<DType> {
        match self.scale {
            Param::Tensor(scale) if self.multiplies_as_is => {
                Some(scale.dtype()).filter(|dtype| matches!(dtype, DType::F16 | DType::BF16))
            }
            _ => None,
        }
    }

    /// Whether the scale is a float64 tensor that PyTorch computes with in 64 bits.
    pub fn is_wide(&self) -> bool {
        matches!(self.scale, Param::Tensor(scale) if scale.dtype() == DType::F64 && !self.param_sizes.is_empty())
    }
}

/// `input` in all libraries but ATen, and in `dequantize_per_channel_group`, which has a name of its own.
fn x_name<T>(args: &Args<T>) -> &'static str {
    if args.has("w_int8") { "w_int8" } else { "input" }
}

fn param<'a, T: Typed>(args: &'a Args<T>, name: &str, default: Option<f64>) -> Result<Param<'a, T>> {
    match (args.get(name), default) {
        (Some(ArgValue::Tensor(tensor)), _) => Ok(Param::Tensor(tensor)),
        (Some(ArgValue::Scalar(number)), _) => Ok(Param::Number(number.as_f64())),
        (None, Some(default)) => Ok(Param::Number(default)),
        _ => Err(Error::invalid_graph("is neither a tensor nor a number").at_operand(name)),
    }
}

fn int_range(dtype: DType) -> Result<(f64, f64)> {
    match (dtype, dtype.int_range()) {
        (DType::U8 | DType::I8 | DType::I16 | DType::I32, Some((low, high))) => Ok((low as f64, high as f64)),
        _ => Err(Error::unsupported(format!("{dtype} holds no codes; uint8, int8, int16 and int32 do"))),
    }
}

/// x's sizes in blocks, and the sizes of what they share.
fn blocks<T: Typed>(
    args: &Args<T>,
    base: &str,
    sizes: &[usize],
    scale: &Param<'_, T>,
) -> Result<(Vec<usize>, Vec<usize>)> {
    let scale_sizes = match scale {
        Param::Tensor(scale) => scale.sizes(),
        Param::Number(_) => &[],
    };
    if args.has("axis") {
        let axis = args.dim_or("axis", 0, sizes.len())?;
        let mut params = vec![1; sizes.len()];
        *params.get_mut(axis).ok_or_else(|| Error::invalid_graph("a 0-d tensor has no channels"))? =
            sizes[axis];
        return Ok((sizes.to_vec(), params));
    }
    if let Some(block) = args.opt_ints("block_size")? {
        return affine_blocks(sizes, &block);
    }
    if base.ends_with("per_token") {
        return token_blocks(sizes, scale_sizes);
    }
    if base.ends_with("channel_group") {
        return group_blocks(sizes, args.int("group_size")?, scale_sizes);
    }
    Ok((sizes.to_vec(), Vec::new()))
}

fn token_blocks(sizes: &[usize], scale_sizes: &[usize]) -> Result<(Vec<usize>, Vec<usize>)> {
    let mut params = sizes.to_vec();
    let last = params.last_mut().ok_or_else(|| Error::invalid_graph("a 0-d tensor has no tokens"))?;
    *last = 1;
    if scale_sizes != params {
        let text = format!("has sizes {scale_sizes:?}; tokens of sizes {sizes:?} take {params:?}");
        return Err(Error::unsupported(text).at_operand("scales"));
    }
    Ok((sizes.to_vec(), params))
}

fn group_blocks(sizes: &[usize], group: i64, scale_sizes: &[usize]) -> Result<(Vec<usize>, Vec<usize>)> {
    let &[n, k] = sizes else {
        return Err(Error::invalid_graph(format!("has sizes {sizes:?}; channel groups take a matrix"))
            .at_operand("input"));
    };
    let whole_row = scale_sizes.last() == Some(&1) && usize::try_from(group).is_ok_and(|group| group > k);
    if !whole_row && group <= 1 {
        return Err(Error::invalid_graph(format!("is {group}; a group has 2 elements or more"))
            .at_operand("group_size"));
    }
    let group = if whole_row { k } else { usize::try_from(group).unwrap_or(0) };
    if group == 0 || !k.is_multiple_of(group) {
        let text = format!("is {group}, which does not divide the {k} columns");
        return Err(Error::invalid_graph(text).at_operand("group_size"));
    }
    Ok((vec![n, k / group, group], vec![n, k / group, 1]))
}

/// As torchao's `_get_reduction_params`.
pub fn affine_blocks(sizes: &[usize], block: &[i64]) -> Result<(Vec<usize>, Vec<usize>)> {
    if block.len() != sizes.len() {
        let text = format!("is {block:?} for a tensor of sizes {sizes:?}; it takes one size a dim");
        return Err(Error::invalid_graph(text).at_operand("block_size"));
    }
    let (mut grouped, mut params) = (Vec::new(), Vec::new());
    for (&size, &block) in sizes.iter().zip(block) {
        match usize::try_from(block) {
            Ok(1) => {
                grouped.push(size);
                params.push(size);
            }
            Ok(block) if block == size => {
                grouped.push(size);
                params.push(1);
            }
            Ok(block) if block > 0 && size.is_multiple_of(block) => {
                grouped.extend([size / block, block]);
                params.extend([size / block, 1]);
            }
            _ => {
                let text = format!("has blocks of {block}, which do not divide the size {size}");
                return Err(Error::invalid_graph(text).at_operand("block_size"));
            }
        }
    }
    Ok((grouped, params))
}

impl<T: Typed> Args<T> {
    /// The number `name`: a host scalar; `None` when it is left out or a tensor.
    fn opt_number(&self, name: &str) -> Result<Option<f64>> {
        match self.get(name) {
            Some(ArgValue::Scalar(number)) => Ok(Some(Scalar::as_f64(*number))),
            Some(ArgValue::Tensor(_)) | None => Ok(None),
            Some(_) => Err(Error::invalid_graph("is no number").at_operand(name)),
        }
    }
}
