//! Random programs: grown from a list of numbers, each of which picks an op or an operand.
//!
//! A call that the op refuses is left out, so programs shrink with their list. Values are float32 and at most rank 4.
//! Two programs may be methods over the same constants, of which each writes what it likes.

use std::collections::BTreeMap;

use vkdelegate::{
    base::{DType, HostTensor, Scalar, Value},
    ir::{
        self, Arg, Constant, Effect, Graph, InputKind, IntArg, Method, OpName, OutputKind, OutputSource,
        ValueId, effect_of,
    },
    ops::{self, Meta, Resolved},
};

use super::one_op::tensor_type;

/// The numbers that a program is grown from; zeros when they run out.
struct Choices<'a>(std::slice::Iter<'a, u16>);

impl Choices<'_> {
    fn below(&mut self, count: usize) -> usize {
        usize::from(*self.0.next().unwrap_or(&0)) % count
    }

    fn of<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())]
    }
}

/// What the methods of one program share.
struct Constants {
    /// Sizes of the six inputs that an op may pick.
    sizes: [Vec<usize>; 6],
    /// A buffer, a lifted constant and a parameter.
    floats: Vec<Constant>,
    /// A quantised weight with a scale and a zero point per row.
    codes: Vec<Constant>,
}

impl Constants {
    fn choose(choices: &mut Choices<'_>) -> Constants {
        let sizes: [Vec<usize>; 6] = std::array::from_fn(|index| {
            let sizes = vec![choices.of(&[3, 4, 1]), choices.of(&[3, 4])];
            if index == 3 { sizes[1..].to_vec() } else { sizes }
        });
        let floats = [("buffer", 2), ("lifted", 3), ("parameter", 4)];
        let rows = choices.of(&[3, 4]);
        let code_sizes = [rows, choices.of(&[3, 4])];
        let ints = |sizes: &[usize], step: usize| {
            let values: Vec<f64> =
                (0..sizes.iter().product()).map(|i| ((step * i) % 13) as f64 - 6.0).collect();
            (sizes.to_vec(), values)
        };
        let int_tensor = |dtype, (sizes, values): (Vec<usize>, Vec<f64>)| {
            HostTensor::from_f64s(dtype, sizes, &values).unwrap()
        };
        let scales: Vec<f64> = (0..rows).map(|row| 0.0731 * (row + 1) as f64).collect();
        let codes = [
            ("codes", int_tensor(DType::I8, ints(&code_sizes, 5))),
            ("scales", HostTensor::from_f64s(DType::F32, vec![rows], &scales).unwrap()),
            ("zero_points", int_tensor(DType::I64, ints(&[rows], 3))),
        ];
        Constants {
            floats: floats
                .map(|(name, index)| Constant::from_tensor(name, data(&sizes[index], index + 4)))
                .into(),
            codes: codes.map(|(name, tensor)| Constant::from_tensor(name, tensor)).into(),
            sizes,
        }
    }
}

struct Grower<'a> {
    graph: Graph,
    choices: Choices<'a>,
    /// Values that an op may pick; the first six are inputs.
    tensors: Vec<ValueId>,
    products: Vec<ValueId>,
    /// The quantised weight, its scales and its zero points.
    codes: Vec<ValueId>,
}

/// The elements of a constant or an input: all different, small, and not symmetric.
fn data(sizes: &[usize], seed: usize) -> HostTensor {
    let count: usize = sizes.iter().product();
    let values: Vec<f64> = (0..count).map(|i| ((7 * i + 5 * seed) % 17) as f64 / 8.0 - 1.0).collect();
    HostTensor::from_f64s(DType::F32, sizes.to_vec(), &values).unwrap()
}

impl Grower<'_> {
    fn add_inputs(&mut self, constants: &Constants) {
        for (index, sizes) in [&constants.sizes[0], &constants.sizes[1]].into_iter().enumerate() {
            self.add_user_input(&format!("in{index}"), sizes);
        }
        let floats = [InputKind::Buffer, InputKind::Lifted, InputKind::Parameter];
        for (kind, constant) in floats.into_iter().zip(&constants.floats) {
            let value = self.graph.add_constant_input(constant.name(), constant.clone(), kind).unwrap();
            self.tensors.push(value);
        }
        self.add_user_input("in5", &constants.sizes[5]);
        self.codes = constants
            .codes
            .iter()
            .map(|constant| {
                self.graph.add_constant_input(constant.name(), constant.clone(), InputKind::Buffer).unwrap()
            })
            .collect();
    }

    fn add_user_input(&mut self, name: &str, sizes: &[usize]) {
        let value = self.graph.add_input(name, tensor_type(DType::F32, sizes), InputKind::User).unwrap();
        self.tensors.push(value);
    }

    fn meta(&self, value: ValueId) -> Meta {
        let ty = self.graph.value(value).unwrap().ty.clone();
        let tensor = ty.as_tensor().unwrap();
        let sizes = tensor.sizes.iter().map(|size| size.as_const().unwrap() as usize);
        Meta::new(tensor.dtype, sizes.collect::<Vec<_>>())
    }

    fn tensor(&mut self) -> Arg {
        // Newer values are likelier, so that chains get long.
        let count = self.tensors.len();
        let index = if self.choices.below(3) == 0 {
            self.choices.below(count)
        } else {
            count - 1 - self.choices.below(count.min(4))
        };
        Arg::Value(self.tensors[index])
    }

    /// Whether `view` takes the value: one that is not itself a view.
    fn is_contiguous(&self, value: ValueId) -> bool {
        let node = self.graph.defining_node(value).map(|node| self.graph.node(node).unwrap());
        node.is_none_or(|node| effect_of(node) == Effect::Pure)
    }

    fn ints(items: &[i64]) -> Arg {
        Arg::Ints(items.iter().map(|&item| IntArg::Const(item)).collect())
    }

    fn grow(&mut self) {
        let x = self.tensor();
        let Arg::Value(value) = x else { return };
        let sizes: Vec<i64> = self.meta(value).sizes.iter().map(|&size| size as i64).collect();
        let (op, args): (&str, Vec<(&str, Arg)>) = match self.choices.below(24) {
            0 | 1 => ("aten.t.default", vec![("self", x)]),
            2 => {
                let dims: &[i64] = self.choices.of(&[&[1, 0], &[0, 1], &[1, 2, 0], &[0, 2, 1]]);
                ("aten.permute.default", vec![("self", x), ("dims", Self::ints(dims))])
            }
            3 => (
                "aten.unsqueeze.default",
                vec![("self", x), ("dim", Arg::Int(self.choices.below(3) as i64 - 1))],
            ),
            4 => {
                ("aten.squeeze.dims", vec![("self", x), ("dim", Self::ints(&[self.choices.below(2) as i64]))])
            }
            5 => {
                let count = sizes.iter().product();
                let shapes = [vec![count], vec![4, -1], vec![-1, 3], vec![3, -1], vec![1, -1, 4]];
                (
                    "aten.reshape.default",
                    vec![("self", x), ("shape", Self::ints(&shapes[self.choices.below(5)]))],
                )
            }
            6 => {
                let dim = self.choices.below(2) as i64;
                let start = self.choices.below(2) as i64;
                (
                    "aten.slice.Tensor",
                    vec![
                        ("self", x),
                        ("dim", Arg::Int(dim)),
                        ("start", Arg::Int(start)),
                        ("end", Arg::Int(4)),
                    ],
                )
            }
            7 => ("aten.clone.default", vec![("self", x)]),
            8 => (
                "aten.expand.default",
                vec![("self", x), ("size", Self::ints(&[3, -1, 4][self.choices.below(2)..]))],
            ),
            9 => ("aten.mul.Tensor", vec![("self", x), ("other", Arg::Float(self.choices.of(&[0.5, -1.0])))]),
            10 => ("aten.add.Tensor", vec![("self", x), ("other", self.tensor())]),
            11 if self.is_contiguous(value) => {
                ("aten.view.default", vec![("self", x), ("size", Self::ints(&[-1]))])
            }
            12 => {
                let dim = self.choices.below(2) as i64;
                ("aten.select.int", vec![("self", x), ("dim", Arg::Int(dim)), ("index", Arg::Int(1))])
            }
            11 | 13 => return self.grow_write(x),
            19 => return self.grow_dequantised(),
            20 => return self.grow_quantised(x),
            21 => return self.grow_norm(value),
            22 | 23 => return self.grow_choice(x),
            _ => return self.grow_product(x),
        };
        self.add_call(op, args);
    }

    /// Adds a product of `x` with the first tensor, from a random one on, that fits.
    fn grow_product(&mut self, x: Arg) {
        let kind = self.choices.below(6);
        let bias = self.tensor();
        let factors = (self.choices.of(&[1.0, 0.0, 0.5]), self.choices.of(&[1.0, -0.25]));
        let count = self.tensors.len();
        // Every second product tries the buffer and the constants first.
        let start =
            if self.choices.below(2) == 0 { 2 + self.choices.below(3) } else { self.choices.below(count) };
        for index in 0..count {
            let y = self.tensors[(start + index) % count];
            if kind == 5 {
                match self.grow_repeated_product(&x, y) {
                    true => return,
                    false => continue,
                }
            }
            let (x, y, bias) = (x.clone(), Arg::Value(y), bias.clone());
            let (op, args) = match kind {
                0 => ("aten.matmul.default", vec![("self", x), ("other", y)]),
                1 => ("aten.mm.default", vec![("self", x), ("mat2", y)]),
                2 => {
                    let factors = [("beta", Arg::Float(factors.0)), ("alpha", Arg::Float(factors.1))];
                    (
                        "aten.addmm.default",
                        [vec![("self", bias), ("mat1", x), ("mat2", y)], factors.to_vec()].concat(),
                    )
                }
                3 => ("aten.linear.default", vec![("input", x), ("weight", y)]),
                _ => ("aten.linear.default", vec![("input", x), ("weight", y), ("bias", bias)]),
            };
            if self.add_call(op, args) {
                self.products.extend(self.tensors.last());
                return;
            }
        }
    }

    /// Adds a product of `x` and `y`, both repeated over a batch, if they fit; gives whether they do.
    fn grow_repeated_product(&mut self, x: &Arg, y: ValueId) -> bool {
        let Arg::Value(x) = *x else { return false };
        let (x_sizes, y_sizes) = (self.meta(x).sizes, self.meta(y).sizes);
        if x_sizes.len() != 2 || y_sizes.len() != 2 || x_sizes[1] != y_sizes[0] {
            return false;
        }
        let repeated = [x, y].map(|value| {
            let args = vec![("self", Arg::Value(value)), ("size", Self::ints(&[2, -1, -1]))];
            self.add_call("aten.expand.default", args).then(|| self.tensors.last().copied()).flatten()
        });
        let [Some(x), Some(y)] = repeated else { return false };
        let added = self.add_call("aten.bmm.default", vec![("self", Arg::Value(x)), ("mat2", Arg::Value(y))]);
        self.products.extend(self.tensors.last().filter(|_| added));
        added
    }

    /// Adds an in-place op on `x`. A single value that repeats cannot be written, as in PyTorch.
    fn grow_write(&mut self, x: Arg) {
        let Arg::Value(target) = x else { return };
        let other = self.tensor();
        let (op, args) = match self.choices.below(3) {
            0 => ("aten.mul_.Tensor", vec![("self", x), ("other", Arg::Float(-0.5))]),
            1 => ("aten.add_.Tensor", vec![("self", x), ("other", other)]),
            _ => ("aten.copy_.default", vec![("self", x), ("src", other)]),
        };
        let wanted = self.meta(target);
        self.add_checked(op, args, |out| *out == wanted);
    }

    /// Adds the quantised weight, dequantised.
    fn grow_dequantised(&mut self) {
        let [codes, scales, zero_points] = self.codes[..] else { return };
        let args = vec![
            ("input", Arg::Value(codes)),
            ("scales", Arg::Value(scales)),
            ("zero_points", Arg::Value(zero_points)),
            ("axis", Arg::Int(0)),
            ("quant_min", Arg::Int(-128)),
            ("quant_max", Arg::Int(127)),
            ("dtype", Arg::DType(DType::I8)),
        ];
        assert!(self.add_call("quantized_decomposed.dequantize_per_channel.default", args));
    }

    /// Adds `x`, a little smaller, quantised and dequantised again. The odd factors keep values, also those that come
    /// back as state, from lying half-way between two codes, where the last bit of a sum would decide.
    fn grow_quantised(&mut self, x: Arg) {
        let (factor, scale) = ((-0.1f64).exp(), 0.05 * 0.37f64.exp());
        assert!(self.add_call("aten.mul.Tensor", vec![("self", x), ("other", Arg::Float(factor))]));
        let Some(&smaller) = self.tensors.last() else { return };
        let call = |value: Arg| {
            vec![
                ("input", value),
                ("scale", Arg::Float(scale)),
                ("zero_point", Arg::Int(3)),
                ("quant_min", Arg::Int(-128)),
                ("quant_max", Arg::Int(127)),
                ("dtype", Arg::DType(DType::I8)),
            ]
        };
        if self.add_call("quantized_decomposed.quantize_per_tensor.default", call(Arg::Value(smaller))) {
            // The codes are for the dequantise alone: other ops want floats.
            let Some(codes) = self.tensors.pop() else { return };
            assert!(
                self.add_call("quantized_decomposed.dequantize_per_tensor.default", call(Arg::Value(codes)))
            );
        }
    }

    /// Adds a choice by how `x` compares with a number; or the truth value itself, as a float. No value lies near the odd
    /// numbers, where the last bit of a sum would decide.
    fn grow_choice(&mut self, x: Arg) {
        let number = Arg::Float(self.choices.of(&[0.037_19, -0.411_3]));
        let compare =
            ["aten.gt.Scalar", "aten.le.Scalar", "aten.ne.Scalar", "aten.lt.Scalar"][self.choices.below(4)];
        if !self.add_call(compare, vec![("self", x.clone()), ("other", number)]) {
            return;
        }
        // Truth values are for this choice alone: other ops want floats.
        let Some(mut truth) = self.tensors.pop() else { return };
        if self.choices.below(3) == 0 {
            assert!(self.add_call("aten.logical_not.default", vec![("self", Arg::Value(truth))]));
            truth = self.tensors.pop().unwrap_or(truth);
        }
        let (condition, other) = (Arg::Value(truth), self.tensor());
        let (op, args) = match self.choices.below(5) {
            0 => ("aten.where.self", vec![("condition", condition), ("self", x), ("other", other)]),
            1 => ("aten.where.self", vec![("condition", condition), ("self", other), ("other", x)]),
            2 => {
                let number = ("other", Arg::Float(0.75));
                ("aten.where.ScalarOther", vec![("condition", condition), ("self", x), number])
            }
            3 => {
                let number = ("value", Arg::Float(-0.5));
                ("aten.masked_fill.Scalar", vec![("self", x), ("mask", condition), number])
            }
            _ => ("aten._to_copy.default", vec![("self", condition), ("dtype", Arg::DType(DType::F32))]),
        };
        self.add_call(op, args);
    }

    /// Adds a norm of `x` in pieces, of which others may read each, times another value where that fits.
    fn grow_norm(&mut self, x: ValueId) {
        let other = self.tensor();
        let dim = if self.choices.below(4) == 0 { 0 } else { -1 };
        let steps = [
            ("aten.pow.Tensor_Scalar", vec![("exponent", Arg::Int(2))]),
            ("aten.mean.dim", vec![("dim", Self::ints(&[dim])), ("keepdim", Arg::Bool(true))]),
            ("aten.add.Tensor", vec![("other", Arg::Float(0.5))]),
            ("aten.rsqrt.default", vec![]),
            ("aten.mul.Tensor", vec![("other", Arg::Value(x))]),
            ("aten.mul.Tensor", vec![("other", other)]),
        ];
        let mut value = x;
        for (op, rest) in steps {
            if !self.add_call(op, [vec![("self", Arg::Value(value))], rest].concat()) {
                return;
            }
            value = self.tensors[self.tensors.len() - 1];
        }
    }

    /// Adds the call, unless the op refuses it or its result is large.
    fn add_call(&mut self, op: &str, args: Vec<(&str, Arg)>) -> bool {
        self.add_checked(op, args, |out| out.sizes.len() <= 4 && out.sizes.iter().product::<usize>() <= 512)
    }

    fn add_checked(&mut self, op: &str, args: Vec<(&str, Arg)>, fits: impl Fn(&Meta) -> bool) -> bool {
        let args: Vec<(String, Arg)> = args.into_iter().map(|(name, arg)| (name.to_string(), arg)).collect();
        let node = ir::Node { name: String::new(), op: OpName::new(op), args: args.clone(), outputs: vec![] };
        let resolved = ops::resolve(&node, |value| Ok(Resolved::Tensor(self.meta(value)))).unwrap();
        let Ok(outs) = ops::find(&op.replacen("_.", ".", 1)).unwrap().infer(&resolved) else { return false };
        if !fits(&outs[0]) {
            return false;
        }
        let name = self.graph.unique_name(&format!("{}_{}", node.op.base(), self.tensors.len()));
        let outputs = vec![(name.clone(), tensor_type(outs[0].dtype, &outs[0].sizes))];
        let id = self.graph.add_node(&name, node.op, args, outputs).unwrap();
        self.tensors.push(self.graph.node(id).unwrap().outputs[0]);
        true
    }

    /// Returns the last values and products, and sometimes writes one back to the buffer.
    fn finish(mut self) -> Method {
        let buffer = self.tensors[2];
        let fitting: Vec<ValueId> = self.tensors[6..]
            .iter()
            .copied()
            .filter(|&value| self.meta(value) == self.meta(buffer))
            .collect();
        if !fitting.is_empty() && self.choices.below(2) == 0 {
            let source = OutputSource::Value(self.choices.of(&fitting));
            self.graph.add_output(source, OutputKind::BufferMutation(buffer));
        }
        for &value in self.tensors.iter().rev().take(5).chain(self.products.iter().rev().take(4)) {
            self.graph.add_output(OutputSource::Value(value), OutputKind::User);
        }
        self.graph.add_output(OutputSource::Scalar(Scalar::Int(1)), OutputKind::User);
        Method {
            graph: self.graph,
            ranges: BTreeMap::new(),
            fixed_inputs: BTreeMap::new(),
            dialect: String::new(),
        }
    }
}

/// One method, or two over the same constants.
pub fn grow(choices: &[u16]) -> Vec<Method> {
    let mut shared = Choices(choices.iter());
    let constants = Constants::choose(&mut shared);
    let count = 1 + shared.below(2);
    let rest = shared.0.as_slice();
    let parts = rest.chunks(rest.len().div_ceil(count).max(1)).enumerate();
    parts.map(|(index, choices)| grow_method(&format!("method_{index}"), &constants, choices)).collect()
}

fn grow_method(name: &str, constants: &Constants, choices: &[u16]) -> Method {
    let mut grower = Grower {
        graph: Graph::new(name),
        choices: Choices(choices.iter()),
        tensors: Vec::new(),
        products: Vec::new(),
        codes: Vec::new(),
    };
    grower.add_inputs(constants);
    while grower.choices.0.len() > 4 {
        grower.grow();
    }
    grower.finish()
}

/// The inputs of run number `run`.
pub fn inputs(method: &Method, run: usize) -> Vec<Value> {
    let graph = &method.graph;
    graph
        .user_inputs()
        .map(|value| {
            let ty = graph.value(value).unwrap().ty.clone();
            let sizes = ty.as_tensor().unwrap().sizes.iter().map(|size| size.as_const().unwrap() as usize);
            data(&sizes.collect::<Vec<_>>(), run).into()
        })
        .collect()
}
