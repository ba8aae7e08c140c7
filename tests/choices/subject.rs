//! Programs whose kernels have choices.

use std::path::Path;

use vkdelegate::{
    DType, Delegate, Gpu, HostTensor, Outputs, Precision, Program, Value, convolution_program,
    graph::GraphBuilder, linear_program, quantised_linear_program, shader::Choices,
};

/// A program whose kernels have choices, with inputs.
pub struct Subject {
    pub name: String,
    pub program: Program,
    pub precision: Precision,
    pub inputs: Vec<Value>,
}

impl Subject {
    pub fn new(name: impl Into<String>, program: Program, precision: Precision) -> Subject {
        let inputs = program.methods().next().unwrap().sample_inputs().unwrap();
        Subject { name: name.into(), program, precision, inputs }
    }

    pub fn build(&self, gpu: &Gpu, choices: Choices) -> Delegate {
        let builder = Delegate::builder(gpu).precision(self.precision).choices(choices);
        builder.build(&self.program).unwrap_or_else(|error| panic!("{}: {error}", self.name))
    }

    pub fn run(&self, delegate: &mut Delegate) -> Outputs {
        delegate.run(&self.inputs).unwrap_or_else(|error| panic!("{}: {error}", self.name))
    }
}

/// A product of live matrices.
pub fn live(m: usize, k: usize, n: usize) -> Program {
    let mut graph = GraphBuilder::new("live");
    let a = graph.input("a", DType::F32, &[3, m, k]).unwrap();
    let b = graph.input("b", DType::F32, &[3, k, n]).unwrap();
    let y = graph.call("aten.bmm.default", [("self", a.into()), ("mat2", b.into())]).unwrap();
    graph.output(y);
    graph.build().unwrap()
}

/// A sum of two products, of which the second adds to what the first left; the first operand is a result.
pub fn sums(m: usize, k: usize, n: usize) -> Program {
    let mut graph = GraphBuilder::new("sums");
    let x = graph.input("x", DType::F32, &[m, k]).unwrap();
    let b = graph.input("b", DType::F32, &[k, n]).unwrap();
    let a = graph.call("aten.neg.default", [("self", x.into())]).unwrap();
    let first = graph.call("aten.mm.default", [("self", a.into()), ("mat2", b.into())]).unwrap();
    let second = graph.call("aten.mm.default", [("self", x.into()), ("mat2", b.into())]).unwrap();
    let y = graph.call("aten.add.Tensor", [("self", first.into()), ("other", second.into())]).unwrap();
    graph.output(y);
    graph.build().unwrap()
}

/// A product by codes of 4 bits with scales and zero points for each 32 columns, and with all that can follow it.
pub fn coded(m: usize, k: usize, n: usize) -> Program {
    let mut graph = GraphBuilder::new("coded");
    let values = |count: usize, step: usize| (0..count).map(move |i| ((i * step) % 61 % 15) as i64 - 7);
    let floats = |sizes: &[usize], step: usize, unit: f32| {
        let values: Vec<f32> =
            values(sizes.iter().product(), step).map(|v| (v as f32 + 0.5) * unit).collect();
        HostTensor::from_f32(sizes, &values).unwrap()
    };
    let ints = |dtype, sizes: &[usize], step: usize| {
        let values: Vec<i64> = values(sizes.iter().product(), step).collect();
        HostTensor::from_i64s(dtype, sizes.to_vec(), &values).unwrap()
    };
    let input = graph.input("x", DType::F32, &[m, k]).unwrap();
    let residual = graph.input("residual", DType::F32, &[m, n]).unwrap();
    let codes = graph.parameter("codes", ints(DType::I8, &[n, k], 7)).unwrap();
    let scales = graph.parameter("scales", floats(&[n, k / 32], 11, 0.01)).unwrap();
    let zeros = graph.parameter("zeros", ints(DType::I32, &[n, k / 32], 13)).unwrap();
    let bias = graph.parameter("bias", floats(&[n], 3, 0.1)).unwrap();
    let args = [
        ("input", codes.into()),
        ("block_size", [1, 32].into()),
        ("scale", scales.into()),
        ("zero_point", zeros.into()),
        ("input_dtype", DType::I8.into()),
        ("quant_min", (-8i64).into()),
        ("quant_max", 7i64.into()),
    ];
    let weight = graph.call("torchao.dequantize_affine.default", args).unwrap();
    let args = [("input", input.into()), ("weight", weight.into()), ("bias", bias.into())];
    let product = graph.call("aten.linear.default", args).unwrap();
    let sum = graph.call("aten.add.Tensor", [("self", product.into()), ("other", residual.into())]).unwrap();
    let y = graph.call("aten.relu.default", [("self", sum.into())]).unwrap();
    graph.output(y);
    graph.build().unwrap()
}

/// Programs that reach every way of the families for floats, at shapes that fill no tile.
pub fn subjects() -> Vec<Subject> {
    let mut subjects = Vec::new();
    let mut add = |what: &str, program: Program, precision: Precision| {
        subjects.push(Subject::new(format!("{what} {precision:?}"), program, precision));
    };
    for (m, k, n) in [(1, 100, 31), (1, 100, 75), (37, 40, 300)] {
        add("linear", linear_program(m, k, n, 1, DType::F32).unwrap(), Precision::F32);
        add("int8", quantised_linear_program(m, k, n, 1, 8).unwrap(), Precision::F32);
    }
    add("bmm", live(9, 34, 32), Precision::F16);
    // Many positions, few of them, one channel in each group, and the transpose.
    for (input, weight, stride) in [
        ([2, 3, 9, 11], [18, 3, 3, 3], 1),
        ([1, 5, 3, 2], [21, 5, 3, 3], 2),
        ([1, 7, 9, 11], [7, 1, 3, 3], 1),
    ] {
        let (program, _) = convolution_program(&input, &weight, stride, false, DType::F32).unwrap();
        add("conv", program, Precision::F32);
    }
    let (program, _) = convolution_program(&[1, 6, 23], &[6, 19, 4], 2, true, DType::F32).unwrap();
    add("conv transposed", program, Precision::F16);
    subjects
}

/// A program of the fixtures.
pub fn fixture(name: &str) -> Program {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    Program::open(folder.join(name).with_extension("pt2")).unwrap()
}
