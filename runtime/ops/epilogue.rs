//! A matrix product or convolution with what follows it: `y = f(product + residual)`, in one dispatch.
//!
//! No program holds these ops; the epilogue pass makes them of a product, an addition and an activation.
//!
//! | op | product |
//! |---|---|
//! | `vkdelegate.linear` | `aten.linear`, a constant weight |
//! | `vkdelegate.mm`, `addmm`, `bmm`, `baddbmm`, `matmul` | the ATen ops of those names |
//! | `vkdelegate.convolution`, `conv1d` to `conv3d` (their padding a string too), `conv_transpose1d` to `3d` | the same |
//!
//! | operand or attribute | |
//! |---|---|
//! | those of the product | as the ATen op has them |
//! | `residual` | added to the product; of the result's sizes and dtype; optional |
//! | `activation` | base name of the ATen function that is applied last; optional |
//! | `approximate`, `min`, `max`, `min_val`, `max_val`, `negative_slope` | arguments of that function |
//! | `factor` | what is multiplied by, where the function is `mul` |
//!
//! Quantised linears take the same `residual` and `activation` under their own names: see `linear_q` and `linear_a8`.
//!
//! Only the result is rounded to the dtype: where that is half precision, the product and the sum keep the 32 bits
//! that they lose when each is stored on its own.

use super::{
    ArgValue, Args, InPlace, Lowering, Meta, Op, Operand, Tensor, conv::Conv, linear::Linear, matmul::Matmul,
    product::Product, unary,
};
use crate::{
    base::{DType, Error, HostTensor, Result},
    ir::OpName,
    shader::{
        Dispatch, OperandAccess,
        kernels::{self, unary::Op as Function},
    },
};

/// The family.
pub struct Fused;

/// Arguments of activations.
const ACTIVATION_ARGS: &[&str] = &["approximate", "min", "max", "min_val", "max_val", "negative_slope"];

/// The function that is applied to a product before it is stored.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Activation {
    function: Function,
    /// Low bound, slope or factor.
    pub a: f32,
    /// High bound.
    pub b: f32,
}

impl Activation {
    /// The function that changes nothing.
    pub const NONE: Activation = Activation { function: Function::Identity, a: 0.0, b: 0.0 };

    /// What the `activation` of `args` is.
    ///
    /// # Errors
    /// A function that no kernel of a product has.
    fn of<T>(args: &Args<T>) -> Result<Activation> {
        let Some(base) = args.opt_str("activation")? else { return Ok(Activation::NONE) };
        if base == "mul" {
            let factor = args.scalar("factor")?.as_f64() as f32;
            return Ok(Activation { function: Function::Affine, a: factor, b: 0.0 });
        }
        let items = ACTIVATION_ARGS
            .iter()
            .filter_map(|&name| Some((name.to_string(), without_tensor(args.get(name)?)?)))
            .collect();
        let call: Args<Meta> = Args::new(OpName::new(&format!("aten.{base}.default")), items);
        let unknown = || Error::unsupported(format!("{base} follows no product")).at_operand("activation");
        let (function, a, b) = unary::float_function(&call)?.ok_or_else(unknown)?;
        let activation = match function {
            Function::Relu6 => Activation { function: Function::Clamp, a: 0.0, b: 6.0 },
            function => Activation { function, a: a as f32, b: b as f32 },
        };
        activation.in_matmul().map(|_| activation).ok_or_else(unknown)
    }

    /// The function of `v`.
    pub fn apply(&self, v: f64) -> f64 {
        unary::eval_float(self.function, [self.a, self.b, 0.0].map(f64::from), v)
    }
}

/// What each kernel of a product calls the function.
macro_rules! in_kernels {
    ($($name:ident => $kernel:ident),* $(,)?) => {
        impl Activation {
            $(
                /// The spec constant of the kernel of this name; `None` when it has no such function.
                pub fn $name(&self) -> Option<kernels::$kernel::Activation> {
                    use kernels::$kernel::Activation as Kernel;
                    Some(match self.function {
                        Function::Identity => Kernel::None,
                        Function::Relu => Kernel::Relu,
                        Function::Clamp => Kernel::Clamp,
                        Function::GeluErf => Kernel::GeluErf,
                        Function::GeluTanh => Kernel::GeluTanh,
                        Function::Silu => Kernel::Silu,
                        Function::Sigmoid => Kernel::Sigmoid,
                        Function::Tanh => Kernel::Tanh,
                        Function::Hardswish => Kernel::Hardswish,
                        Function::Hardsigmoid => Kernel::Hardsigmoid,
                        Function::LeakyRelu => Kernel::LeakyRelu,
                        Function::Affine => Kernel::Scale,
                        _ => return None,
                    })
                }
            )*
        }
    };
}

in_kernels! {
    in_conv => conv,
    in_conv_lanes => conv_lanes,
    in_matmul => matmul,
    in_matmul_texel => matmul_texel,
    in_matmul_row => matmul_row,
    in_matmul_lanes => matmul_lanes,
    in_matmul_split => matmul_split,
    in_matmul_sums => matmul_sums,
    in_linear_codes => linear_codes,
    in_linear_codes_row => linear_codes_row,
    in_linear_dot => linear_dot,
    in_linear_dot_row => linear_dot_row,
}

/// A function that the call was checked to have.
///
/// # Errors
/// When a kernel does not have it, which is a defect.
pub fn known<T>(activation: Option<T>) -> Result<T> {
    activation.ok_or_else(|| Error::internal("an activation without a kernel"))
}

fn without_tensor<T>(value: &ArgValue<T>) -> Option<ArgValue<Meta>> {
    match value {
        ArgValue::Scalar(scalar) => Some(ArgValue::Scalar(*scalar)),
        ArgValue::Str(text) => Some(ArgValue::Str(text.clone())),
        _ => None,
    }
}

/// The product of a call, as the ATen op.
fn product<T: Clone>(args: &Args<T>) -> (&'static dyn Op, Args<T>) {
    let base = args.op().base();
    let family: &dyn Op = match base {
        "linear" => &Linear,
        base if base.starts_with("conv") => &Conv,
        _ => &Matmul,
    };
    (family, args.renamed(OpName::new(&format!("aten.{base}.default"))))
}

const TARGETS: &[&str] = &[
    "vkdelegate.addmm.default",
    "vkdelegate.baddbmm.default",
    "vkdelegate.bmm.default",
    "vkdelegate.conv1d.default",
    "vkdelegate.conv2d.default",
    "vkdelegate.conv3d.default",
    "vkdelegate.conv_transpose1d.default",
    "vkdelegate.conv_transpose2d.default",
    "vkdelegate.conv_transpose3d.default",
    "vkdelegate.convolution.default",
    "vkdelegate.linear.default",
    "vkdelegate.matmul.default",
    "vkdelegate.mm.default",
];

impl Op for Fused {
    fn targets(&self) -> &'static [&'static str] {
        TARGETS
    }

    fn infer(&self, args: &Args<Meta>) -> Result<Vec<Meta>> {
        let (family, call) = product(args);
        let outs = family.infer(&call)?;
        if !outs[0].dtype.is_float() {
            return Err(Error::unsupported(format!("a product of {}", outs[0].dtype)));
        }
        check(args, &outs[0])?;
        Ok(outs)
    }

    fn eval(&self, args: &Args<HostTensor>, outs: &[Meta]) -> Result<Vec<HostTensor>> {
        let (family, call) = product(args);
        let Meta { dtype, sizes } = outs[0].clone();
        let sums = family.eval(&call, &[Meta::new(DType::F32, sizes.clone())])?;
        let mut values = sums.first().map(HostTensor::to_f64s).unwrap_or_default();
        finish(args, &mut values)?;
        Ok(vec![HostTensor::from_f64s(dtype, sizes, &values)?])
    }

    fn lower(&self, args: &Args<Operand>, outs: &[Meta], cx: &mut Lowering<'_>) -> Result<Vec<Tensor>> {
        let epilogue = Epilogue::of(args, cx)?;
        let (_, call) = product(args);
        let y = match args.op().base() {
            "linear" => super::linear::lower(&call, &outs[0], epilogue, cx)?,
            base if base.starts_with("conv") => super::conv::lower(&call, &outs[0], epilogue, cx)?,
            _ => super::matmul::lower(&call, &outs[0], epilogue, cx)?,
        };
        Ok(vec![y])
    }

    fn in_place(&self, _target: &str) -> InPlace {
        InPlace::Update("residual")
    }
}

/// Checks what follows a product of the meta `out`.
///
/// # Errors
/// A function that no kernel has, or a residual of other sizes or dtype.
pub fn check(args: &Args<Meta>, out: &Meta) -> Result<()> {
    Activation::of(args)?;
    match args.opt_tensor("residual")? {
        Some(residual) if residual != out => {
            let text = format!("is {residual:?}; takes {out:?}, as the product");
            Err(Error::invalid_graph(text).at_operand("residual"))
        }
        _ => Ok(()),
    }
}

/// Applies to `values`, a product, what follows it.
///
/// # Errors
/// As [`check`].
pub fn finish(args: &Args<HostTensor>, values: &mut [f64]) -> Result<()> {
    let activation = Activation::of(args)?;
    if let Some(residual) = args.opt_tensor("residual")? {
        values.iter_mut().zip(residual.to_f64s()).for_each(|(value, added)| *value += added);
    }
    values.iter_mut().for_each(|value| *value = activation.apply(*value));
    Ok(())
}

/// What follows a product.
pub struct Epilogue {
    activation: Activation,
    residual: Option<Tensor>,
}

/// What follows a product, for a kernel that adds a residual to the result's memory.
#[derive(Clone, Copy)]
pub struct InPlaceEpilogue {
    /// Applied last.
    pub activation: Activation,
    /// Whether the result's memory holds the residual.
    pub adds_y: bool,
}

impl InPlaceEpilogue {
    /// Nothing.
    pub const NONE: InPlaceEpilogue = InPlaceEpilogue { activation: Activation::NONE, adds_y: false };

    /// `dispatch`, whose last operand is the result: read only where it is added to.
    pub fn with_access(self, mut dispatch: Dispatch) -> Dispatch {
        if let Some(y) = dispatch.operands.last_mut().filter(|_| !self.adds_y) {
            y.access = OperandAccess::Write;
        }
        dispatch
    }
}

impl Epilogue {
    /// Nothing.
    pub const NONE: Epilogue = Epilogue { activation: Activation::NONE, residual: None };

    /// What follows the product of a call.
    ///
    /// # Errors
    /// As [`check`], and [`Lowering::live`].
    pub fn of(args: &Args<Operand>, cx: &mut Lowering<'_>) -> Result<Epilogue> {
        let residual = args.opt_tensor("residual")?.map(|residual| cx.live(residual)).transpose()?;
        Ok(Epilogue { activation: Activation::of(args)?, residual })
    }

    /// Gives the memory of the result, which starts out as the residual where there is one, and what a kernel does
    /// then.
    ///
    /// # Errors
    /// As [`Lowering::alloc`].
    pub fn in_place(self, out: &Meta, cx: &mut Lowering<'_>) -> Result<(Tensor, InPlaceEpilogue)> {
        let (activation, adds_y) = (self.activation, self.residual.is_some());
        let y = match self.residual {
            Some(residual) => cx.updated(&residual)?,
            None => cx.output(out)?,
        };
        Ok((y, InPlaceEpilogue { activation, adds_y }))
    }

    /// Makes the epilogue part of `product`; gives the memory of the result, whose matrices have the sizes `matrices`.
    ///
    /// A residual takes the place of a bias that is not there. Beside a bias, which would be a fifth buffer, the result
    /// starts out as the residual, in place where the planner allows that.
    ///
    /// # Errors
    /// As [`Lowering::alloc`].
    pub fn join(
        self,
        product: &mut Product,
        out: &Meta,
        matrices: &[usize],
        cx: &mut Lowering<'_>,
    ) -> Result<Tensor> {
        product.activation = self.activation;
        match self.residual {
            Some(residual) if product.bias.is_some() => {
                product.adds_y = true;
                cx.updated(&residual)
            }
            Some(residual) => {
                let view = residual.viewed(matrices);
                let view = match view {
                    Some(view) => view,
                    None => cx.contiguous(&residual)?.viewed(matrices).ok_or_else(|| {
                        Error::internal("a contiguous residual has no view of the product's sizes")
                    })?,
                };
                (product.bias, product.beta) = (Some(view), 1.0);
                cx.output(out)
            }
            None => cx.output(out),
        }
    }
}
