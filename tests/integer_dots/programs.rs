//! Programs of products of packed rows, written node by node, with their inputs and the host's results.

use vkdelegate::{
    base::{DType, HostTensor, Value},
    ir::{Arg, Constant, Graph, InputKind, Method, OpName, OutputKind, OutputSource, ValueId},
    ops::{DotSide, Side, SideValues, code_sums},
};

use crate::common::one_op::{static_method, tensor_type};

/// Numbers without symmetry or a short period.
fn number(index: usize, seed: u64) -> u64 {
    let mixed = (index as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(seed << 32);
    (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 33
}

pub fn numbers(sizes: &[usize], seed: u64, dtype: DType, low: i64, high: i64, step: f64) -> HostTensor {
    let span = (high - low + 1) as u64;
    let values: Vec<f64> = (0..sizes.iter().product())
        .map(|index| (low + (number(index, seed) % span) as i64) as f64 * step)
        .collect();
    HostTensor::from_f64s(DType::F64, sizes.to_vec(), &values).unwrap().cast(dtype).unwrap()
}

pub fn constant(graph: &mut Graph, name: &str, tensor: HostTensor) -> ValueId {
    graph.add_constant_input(name, Constant::from_tensor(name, tensor), InputKind::Parameter).unwrap()
}

pub fn call(
    graph: &mut Graph,
    name: &str,
    op: &str,
    args: Vec<(&str, Arg)>,
    outs: &[(DType, &[usize])],
) -> Vec<ValueId> {
    let args = args.into_iter().map(|(name, arg)| (name.to_string(), arg)).collect();
    let outs = outs
        .iter()
        .enumerate()
        .map(|(index, (dtype, sizes))| (format!("{name}_{index}"), tensor_type(*dtype, sizes)))
        .collect();
    let node = graph.add_node(name, OpName::new(op), args, outs).unwrap();
    graph.node(node).unwrap().outputs.clone()
}

/// A product of rows that are packed on the device.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    pub m: usize,
    pub k: usize,
    pub n: usize,
    pub bits: u8,
    pub groups: usize,
    pub has_zeros: bool,
    pub has_bias: bool,
    pub per_row: bool,
    pub quantises: bool,
    pub dtype: DType,
}

impl Case {
    pub fn new(m: usize, k: usize, n: usize, bits: u8) -> Case {
        let dtype = DType::I8;
        Case {
            m,
            k,
            n,
            bits,
            groups: 1,
            has_zeros: false,
            has_bias: false,
            per_row: false,
            quantises: false,
            dtype,
        }
    }

    /// Everything that makes a result depend on more than the product.
    pub fn with_all(self) -> Case {
        Case { has_zeros: true, has_bias: true, per_row: true, ..self }
    }

    /// Inputs for the scale and zero point of the activations.
    pub fn factor_inputs(&self, graph: &mut Graph, seed: u64) -> [ValueId; 2] {
        let params = if self.per_row { vec![self.m, 1] } else { vec![1] };
        [("scale", DType::F32), ("zero", DType::I64)].map(|(name, dtype)| {
            let ty = tensor_type(dtype, &params);
            graph.add_input(&format!("{name}{seed}"), ty, InputKind::User).unwrap()
        })
    }

    /// A product of `words` and `sums` with a weight of its own, named by `seed`.
    pub fn product(
        &self,
        graph: &mut Graph,
        packed: &[ValueId],
        [scale, zero]: [ValueId; 2],
        seed: u64,
    ) -> ValueId {
        let &Case { m, k, n, bits, groups, .. } = self;
        let half = 1 << (bits - 1);
        let codes = Constant::from_tensor("codes", numbers(&[n, k], seed, DType::I8, -half, half - 1, 1.0));
        let side = DotSide(Side { groups, has_zeros: self.has_zeros, has_bias: self.has_bias });
        let floats = |count: usize, seed, low, step| {
            numbers(&[count], seed, DType::F32, low, low + 40, step).to_f32s()
        };
        let values = SideValues {
            scales: floats(n * groups, seed + 1, 1, 0.0011),
            zeros: if self.has_zeros {
                floats(n * groups, seed + 2, -20, 0.25)
            } else {
                vec![0.0; n * groups]
            },
            bias: if self.has_bias { floats(n, seed + 3, -20, 0.37) } else { vec![0.0; n] },
        };
        let table = side.table(&values, &code_sums(&codes, 0, groups).unwrap(), n).unwrap();
        let weight = graph.add_constant_input(&format!("codes{seed}"), codes, InputKind::Parameter).unwrap();
        let table = constant(graph, &format!("side{seed}"), table);
        let mut args = vec![
            ("words", Arg::Value(packed[0])),
            ("sums", Arg::Value(packed[1])),
            ("input_scale", Arg::Value(scale)),
            ("input_zero", Arg::Value(zero)),
            ("input_offset", Arg::Int(if self.dtype == DType::I8 { 128 } else { 0 })),
            ("k", Arg::Int(k as i64)),
            ("weight", Arg::Value(weight)),
            ("side", Arg::Value(table)),
            ("groups", Arg::Int(groups as i64)),
            ("has_zeros", Arg::Bool(self.has_zeros)),
            ("has_bias", Arg::Bool(self.has_bias)),
        ];
        let mut dtype = DType::F32;
        if self.quantises {
            let scale =
                constant(graph, &format!("out_scale{seed}"), HostTensor::from_f32(&[1], &[0.37]).unwrap());
            let zero =
                constant(graph, &format!("out_zero{seed}"), HostTensor::from_i64(&[1], &[-7]).unwrap());
            args.extend([("out_scale", Arg::Value(scale)), ("out_zero", Arg::Value(zero))]);
            args.extend([("out_min", Arg::Int(-120)), ("out_max", Arg::Int(127))]);
            args.push(("out_dtype", Arg::DType(DType::I8)));
            dtype = DType::I8;
        }
        let op = format!("vkdelegate.linear_a8w{bits}.default");
        call(graph, &format!("product{seed}"), &op, args, &[(dtype, &[m, n])])[0]
    }

    pub fn packed(&self, graph: &mut Graph) -> Vec<ValueId> {
        let x = graph.add_input("x", tensor_type(self.dtype, &[self.m, self.k]), InputKind::User).unwrap();
        let args = vec![("input", Arg::Value(x)), ("groups", Arg::Int(self.groups as i64))];
        let outs =
            [(DType::I32, &[self.m, self.k.div_ceil(4)][..]), (DType::I32, &[self.m, self.groups][..])];
        call(graph, "pack", "vkdelegate.pack_codes.default", args, &outs)
    }

    pub fn x(&self) -> Value {
        let (low, high) = self.dtype.int_range().unwrap();
        Value::Tensor(numbers(&[self.m, self.k], 5, self.dtype, low, high, 1.0))
    }

    pub fn factors(&self, seed: u64) -> [Value; 2] {
        let params = if self.per_row { vec![self.m, 1] } else { vec![1] };
        let (low, high) = self.dtype.int_range().unwrap();
        let scale = numbers(&params, seed + 4, DType::F32, 1, 30, 0.013);
        [scale, numbers(&params, seed + 5, DType::I64, low, high, 1.0)].map(Value::Tensor)
    }

    /// A program of one product, and its inputs.
    pub fn method(&self) -> (Method, Vec<Value>) {
        let mut graph = Graph::new("dots");
        let packed = self.packed(&mut graph);
        let factors = self.factor_inputs(&mut graph, 11);
        let y = self.product(&mut graph, &packed, factors, 11);
        graph.add_output(OutputSource::Value(y), OutputKind::User);
        (static_method(graph), [vec![self.x()], self.factors(11).to_vec()].concat())
    }

    /// Several groups are added in another order than on the host; a code may then be the next one.
    pub fn assert_near(&self, got: &HostTensor, want: &HostTensor) {
        let (got, want) = (got.to_f64s(), want.to_f64s());
        for (row, (got, want)) in got.chunks(self.n).zip(want.chunks(self.n)).enumerate() {
            let largest = want.iter().fold(0.0f64, |largest, v| largest.max(v.abs()));
            let tolerance = match (self.groups, self.quantises) {
                (1, _) => 0.0,
                (_, true) => 1.0,
                (_, false) => 1e-6 * largest,
            };
            for (column, (got, want)) in got.iter().zip(want).enumerate() {
                let error = (got - want).abs();
                assert!(error <= tolerance, "{self:?}: ({row}, {column}) is {got}, the reference {want}");
            }
        }
    }
}
