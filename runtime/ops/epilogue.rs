//! A matrix product with what follows it: `y = f(product + residual)`, in one dispatch.
//!
//! No program holds these ops; the epilogue pass makes them of a product, an addition and an activation.
//!
//! | op | product |
//! |---|---|
//! | `vkdelegate.linear` | `aten.linear`, a constant weight |
//! | `vkdelegate.mm`, `vkdelegate.addmm` | the ATen ops of those names |
//!
//! | operand or attribute | |
//! |---|---|
//! | those of the product | as the ATen op has them |
//! | `residual` | added to the product; of the result's sizes and dtype; optional |
//! | `activation` | base name of the ATen function that is applied last; optional |
//! | `approximate`, `min`, `max`, `min_val`, `max_val`, `negative_slope` | arguments of that function |
//! | `other` | the factor, where the function is `mul` |
//!
//! Only the result is rounded to the dtype: where that is half precision, the product and the sum keep the 32 bits
//! that they lose when each is stored on its own.

use super::{
    ArgValue, Args, InPlace, Lowering, Meta, Op, Operand, Tensor, linear::Linear, matmul::Matmul,
    product::Product, unary,
};
use crate::{
    base::{DType, Error, HostTensor, Result},
    ir::OpName,
    shader::kernels::{matmul, matmul_row, unary::Op as Function},
};

/// The family.
pub struct Fused;

/// Arguments of activations.
const ACTIVATION_ARGS: &[&str] =
    &["approximate", "min", "max", "min_val", "max_val", "negative_slope", "other"];

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
            let factor = args.scalar("other")?.as_f64() as f32;
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
        unary::eval_float(self.function, f64::from(self.a), f64::from(self.b), v)
    }

    /// What the tiled kernel calls it.
    pub fn in_matmul(&self) -> Option<matmul::Activation> {
        use matmul::Activation as Kernel;
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

    /// What the kernel for one row calls it.
    pub fn in_matmul_row(&self) -> Option<matmul_row::Activation> {
        use matmul_row::Activation as Kernel;
        Some(match self.in_matmul()? {
            matmul::Activation::None => Kernel::None,
            matmul::Activation::Relu => Kernel::Relu,
            matmul::Activation::Clamp => Kernel::Clamp,
            matmul::Activation::GeluErf => Kernel::GeluErf,
            matmul::Activation::GeluTanh => Kernel::GeluTanh,
            matmul::Activation::Silu => Kernel::Silu,
            matmul::Activation::Sigmoid => Kernel::Sigmoid,
            matmul::Activation::Tanh => Kernel::Tanh,
            matmul::Activation::Hardswish => Kernel::Hardswish,
            matmul::Activation::Hardsigmoid => Kernel::Hardsigmoid,
            matmul::Activation::LeakyRelu => Kernel::LeakyRelu,
            matmul::Activation::Scale => Kernel::Scale,
        })
    }
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
    let family: &dyn Op = if base == "linear" { &Linear } else { &Matmul };
    (family, args.renamed(OpName::new(&format!("aten.{base}.default"))))
}

impl Op for Fused {
    fn targets(&self) -> &'static [&'static str] {
        &["vkdelegate.addmm.default", "vkdelegate.linear.default", "vkdelegate.mm.default"]
    }

    fn infer(&self, args: &Args<Meta>) -> Result<Vec<Meta>> {
        let (family, call) = product(args);
        let outs = family.infer(&call)?;
        Activation::of(args)?;
        if !outs[0].dtype.is_float() {
            return Err(Error::unsupported(format!("a product of {}", outs[0].dtype)));
        }
        match args.opt_tensor("residual")? {
            Some(residual) if *residual != outs[0] => {
                let text = format!("is {residual:?}; takes {:?}, as the product", outs[0]);
                Err(Error::invalid_graph(text).at_operand("residual"))
            }
            _ => Ok(outs),
        }
    }

    fn eval(&self, args: &Args<HostTensor>, outs: &[Meta]) -> Result<Vec<HostTensor>> {
        let activation = Activation::of(args)?;
        let (family, call) = product(args);
        let Meta { dtype, sizes } = outs[0].clone();
        let sums = family.eval(&call, &[Meta::new(DType::F32, sizes.clone())])?;
        let mut values = sums.first().map(HostTensor::to_f64s).unwrap_or_default();
        if let Some(residual) = args.opt_tensor("residual")? {
            values.iter_mut().zip(residual.to_f64s()).for_each(|(value, added)| *value += added);
        }
        values.iter_mut().for_each(|value| *value = activation.apply(*value));
        Ok(vec![HostTensor::from_f64s(dtype, sizes, &values)?])
    }

    fn lower(&self, args: &Args<Operand>, outs: &[Meta], cx: &mut Lowering<'_>) -> Result<Vec<Tensor>> {
        let epilogue = Epilogue {
            activation: Activation::of(args)?,
            residual: args.opt_tensor("residual")?.map(|residual| cx.live(residual)).transpose()?,
        };
        let (_, call) = product(args);
        let y = match args.op().base() {
            "linear" => super::linear::lower(&call, &outs[0], epilogue, cx)?,
            _ => super::matmul::lower(&call, &outs[0], epilogue, cx)?,
        };
        Ok(vec![y])
    }

    fn in_place(&self, _target: &str) -> InPlace {
        InPlace::Update("residual")
    }
}

/// What follows a product.
pub struct Epilogue {
    activation: Activation,
    residual: Option<Tensor>,
}

impl Epilogue {
    /// Nothing.
    pub const NONE: Epilogue = Epilogue { activation: Activation::NONE, residual: None };

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
