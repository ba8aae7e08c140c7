//! Attention on the device: the kernels for CPUs, for GPUs and for one query, on lavapipe alike, against `eval`. Odd
//! sizes, layouts, masks, groups of heads and queries that see nothing.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod common;

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, OnceLock},
};

use common::{
    compare, device,
    one_op::{static_method, tensor_type},
    reference,
};
use vkdelegate::{
    base::{DType, HostTensor, Value},
    delegate::{BuildOptions, Context, Session},
    gpu::{CapsOverride, DeviceClass},
    ir::{Arg, Graph, InputKind, Method, OpName, OutputKind, OutputSource, Type, ValueId},
    ops::Precision,
    plan::{self, InputMeta, PlanOptions},
    shader::Access,
};

/// The device as a CPU or as a phone, which take different kernels.
fn context(class: DeviceClass) -> Arc<Context> {
    static CONTEXTS: [OnceLock<Arc<Context>>; 2] = [OnceLock::new(), OnceLock::new()];
    Arc::clone(CONTEXTS[usize::from(class == DeviceClass::Cpu)].get_or_init(|| device::of_class(class)))
}

const CLASSES: [DeviceClass; 2] = [DeviceClass::Cpu, DeviceClass::Adreno7xx];

#[derive(Clone, Copy, Debug, PartialEq)]
enum Mask {
    None,
    /// Floats for each batch, query and key, some of them -inf.
    Added,
    /// Bools for each batch and key.
    Chosen,
    /// Bools for each query and key, which pick scores to replace.
    Filled(f64),
    Causal,
}

/// How queries, keys and values lie.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Layout {
    /// `[batch, head, row, element]`.
    Plain,
    /// `[batch, row, head, element]`, as linear layers leave them; the result is viewed so too.
    HeadsBeside,
    /// Keys `[batch, head, element, row]`.
    KeysTransposed,
    /// Rows start at odd places.
    Odd,
}

#[derive(Clone, Copy, Debug)]
struct Case {
    batch: usize,
    heads: usize,
    /// Heads of keys and values.
    shared: usize,
    queries: usize,
    keys: usize,
    width: usize,
    mask: Mask,
    layout: Layout,
    dead_is_nan: bool,
}

impl Case {
    fn new(queries: usize, keys: usize, width: usize) -> Case {
        let (mask, layout) = (Mask::None, Layout::Plain);
        Case { batch: 2, heads: 3, shared: 3, queries, keys, width, mask, layout, dead_is_nan: false }
    }

    fn method(&self) -> (Method, Vec<Value>) {
        let &Case { batch, heads, shared, queries, keys, width, .. } = self;
        let mut program = Program { graph: Graph::new("attention"), inputs: Vec::new() };
        let query = program.rows("q", [batch, heads, queries, width], self.layout, false);
        let key = program.rows("k", [batch, shared, keys, width], self.layout, true);
        let value = program.rows("v", [batch, shared, keys, width], self.layout, false);
        let mut args = vec![
            ("query", Arg::Value(query)),
            ("key", Arg::Value(key)),
            ("value", Arg::Value(value)),
            ("scale", Arg::Float(0.3)),
            ("enable_gqa", Arg::Bool(shared != heads)),
            ("dead_is_nan", Arg::Bool(self.dead_is_nan)),
        ];
        match self.mask {
            Mask::None => {}
            Mask::Causal => args.push(("is_causal", Arg::Bool(true))),
            Mask::Added => {
                let sizes = [batch, 1, queries, keys];
                // The last query of the first batch sees nothing.
                let dead = (queries - 1) * keys..queries * keys;
                let value = |index: usize| {
                    let number = number(index, 4);
                    if dead.contains(&index) || number > 1.6 { f64::NEG_INFINITY } else { number }
                };
                args.push(("attn_mask", Arg::Value(program.input("mask", DType::F32, &sizes, value))));
            }
            Mask::Chosen => {
                let sizes = [batch, 1, 1, keys];
                // Nothing counts in the last batch.
                let value = |index: usize| f64::from(index < (batch - 1) * keys && number(index, 5) > -1.0);
                args.push(("attn_mask", Arg::Value(program.input("mask", DType::Bool, &sizes, value))));
            }
            Mask::Filled(fill) => {
                let sizes = [queries, keys];
                let value = |index: usize| f64::from(index < keys || number(index, 6) > 0.5);
                args.push(("attn_mask", Arg::Value(program.input("mask", DType::Bool, &sizes, value))));
                args.push(("fill", Arg::Float(fill)));
            }
        }
        let result =
            program.call("attention", "vkdelegate.attention.default", args, &[batch, heads, queries, width]);
        let result = match self.layout {
            Layout::HeadsBeside => {
                program.permuted("beside", result, [batch, queries, heads, width], [0, 2, 1, 3])
            }
            _ => result,
        };
        program.graph.add_output(OutputSource::Value(result), OutputKind::User);
        (static_method(program.graph), program.inputs)
    }

    /// Runs the case on a device of either class.
    fn check(&self, precision: Precision) {
        let (method, inputs) = self.method();
        let (want, _) = reference::run(&method.graph, &inputs, &HashMap::new());
        for class in CLASSES {
            let got = output(&context(class), &method, &inputs, precision);
            // The result is rounded to half, whose last digit is 5e-4 of it.
            let tolerance = if precision == Precision::F16 { 1e-3 } else { 2e-5 };
            if let Err(text) = compare::tensors(&got, &want[0], tolerance, tolerance) {
                panic!("{self:?} {class:?} {precision:?}: {text}");
            }
        }
    }
}

/// A program in the making.
struct Program {
    graph: Graph,
    inputs: Vec<Value>,
}

impl Program {
    fn input(&mut self, name: &str, dtype: DType, sizes: &[usize], value: impl Fn(usize) -> f64) -> ValueId {
        let values: Vec<f64> = (0..sizes.iter().product()).map(value).collect();
        self.inputs.push(HostTensor::from_f64s(dtype, sizes.to_vec(), &values).unwrap().into());
        self.graph.add_input(name, tensor_type(dtype, sizes), InputKind::User).unwrap()
    }

    fn call(&mut self, name: &str, op: &str, args: Vec<(&str, Arg)>, sizes: &[usize]) -> ValueId {
        let args = args.into_iter().map(|(name, arg)| (name.to_string(), arg)).collect();
        let outs: Vec<(String, Type)> = vec![(format!("{name}_out"), tensor_type(DType::F32, sizes))];
        let node = self.graph.add_node(name, OpName::new(op), args, outs).unwrap();
        self.graph.node(node).unwrap().outputs[0]
    }

    fn permuted(&mut self, name: &str, value: ValueId, sizes: [usize; 4], dims: [i64; 4]) -> ValueId {
        let args = vec![("self", Arg::Value(value)), ("dims", dims.into())];
        self.call(name, "aten.permute.default", args, &sizes)
    }

    /// A tensor of those sizes that lies as `layout` says.
    fn rows(&mut self, name: &str, sizes: [usize; 4], layout: Layout, is_key: bool) -> ValueId {
        let [batch, heads, rows, width] = sizes;
        let seed = u64::from(name.as_bytes()[0]);
        let value = |index: usize| number(index, seed);
        let permuted = format!("{name}_permuted");
        match layout {
            Layout::HeadsBeside => {
                let input = self.input(name, DType::F32, &[batch, rows, heads, width], value);
                self.permuted(&permuted, input, sizes, [0, 2, 1, 3])
            }
            Layout::KeysTransposed if is_key => {
                let input = self.input(name, DType::F32, &[batch, heads, width, rows], value);
                self.permuted(&permuted, input, sizes, [0, 1, 3, 2])
            }
            Layout::Odd => {
                let input = self.input(name, DType::F32, &[batch, heads, rows, width + 3], value);
                let args = [("dim", 3), ("start", 1), ("end", width as i64 + 1)];
                let args = args.into_iter().map(|(name, value)| (name, Arg::Int(value)));
                let args = [("self", Arg::Value(input))].into_iter().chain(args).collect();
                self.call(&permuted, "aten.slice.Tensor", args, &sizes)
            }
            _ => self.input(name, DType::F32, &sizes, value),
        }
    }
}

/// Numbers between -2 and 2 that halves hold, without symmetry or a short period.
fn number(index: usize, seed: u64) -> f64 {
    let mixed = (index as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(seed << 32);
    let mixed = (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 33;
    (mixed % 257) as f64 / 64.0 - 2.0
}

fn output(context: &Arc<Context>, method: &Method, inputs: &[Value], precision: Precision) -> HostTensor {
    let options = BuildOptions { precision, ..BuildOptions::default() };
    let mut session = Session::build(context, method.clone(), options).unwrap();
    let (first, _) = session.run(inputs).unwrap();
    let (second, _) = session.run(inputs).unwrap();
    let messages = context.gpu().validation_messages();
    assert!(messages.is_empty(), "{messages:#?}");
    let [Value::Tensor(first), Value::Tensor(second)] = [&first[0], &second[0]] else { panic!("no tensor") };
    assert_eq!(first.bytes(), second.bytes(), "two runs differ");
    first.clone()
}

/// The kernels that a device of the context's profile runs.
fn kernels_of(context: &Context, (method, inputs): &(Method, Vec<Value>)) -> Vec<&'static str> {
    let options = PlanOptions {
        profile: context.profile().clone(),
        precision: Precision::F32,
        pinned_f32: HashSet::new(),
    };
    let metas: Vec<InputMeta> = inputs.iter().map(InputMeta::of).collect();
    let plan = plan::build(method, &metas, &options).unwrap();
    plan::verify(&plan).unwrap();
    plan.dispatches.iter().map(|dispatch| dispatch.kernel.info().unwrap().name).collect()
}

#[test]
fn sizes_that_fill_no_tile() {
    let _turn = device::turn();
    for (queries, keys, width) in [
        (1, 1, 32),
        (1, 257, 64),
        (1, 4096, 64),
        (1, 70, 100),
        (2, 3, 4),
        (7, 33, 64),
        (16, 16, 32),
        (33, 15, 32),
        (65, 130, 64),
        (17, 65, 100),
        (9, 4096, 32),
    ] {
        Case::new(queries, keys, width).check(Precision::F32);
    }
    for (queries, keys, width) in [(1, 300, 64), (17, 37, 32)] {
        Case::new(queries, keys, width).check(Precision::F16);
    }
}

#[test]
fn masks_and_queries_that_see_nothing() {
    let _turn = device::turn();
    let masks =
        [Mask::Added, Mask::Chosen, Mask::Filled(-1e9), Mask::Filled(f64::NEG_INFINITY), Mask::Causal];
    for mask in masks {
        for (queries, keys) in [(1, 300), (5, 9), (37, 50)] {
            Case { mask, ..Case::new(queries, keys, 32) }.check(Precision::F32);
        }
        Case { mask, dead_is_nan: true, ..Case::new(1, 7, 32) }.check(Precision::F32);
        Case { mask, dead_is_nan: true, ..Case::new(20, 7, 32) }.check(Precision::F32);
    }
    for mask in [Mask::Added, Mask::Chosen] {
        Case { mask, ..Case::new(10, 21, 32) }.check(Precision::F16);
    }
}

#[test]
fn operands_are_read_where_they_lie() {
    let _turn = device::turn();
    for layout in [Layout::HeadsBeside, Layout::KeysTransposed, Layout::Odd] {
        for (queries, keys, width) in [(1, 40, 32), (3, 20, 32), (19, 21, 32), (10, 33, 128)] {
            Case { layout, ..Case::new(queries, keys, width) }.check(Precision::F32);
        }
        Case { mask: Mask::Added, layout, ..Case::new(19, 21, 32) }.check(Precision::F32);
    }
    let copies = |layout, queries| {
        let kernels = kernels_of(&device::context(), &Case { layout, ..Case::new(queries, 40, 64) }.method());
        kernels.iter().filter(|&&kernel| kernel == "copy" || kernel == "convert").count()
    };
    assert_eq!([copies(Layout::Plain, 9), copies(Layout::HeadsBeside, 9)], [0, 0]);
    assert_eq!([copies(Layout::KeysTransposed, 9), copies(Layout::Odd, 9)], [1, 3]);
}

#[test]
fn heads_share_keys_and_values() {
    let _turn = device::turn();
    for layout in [Layout::Plain, Layout::HeadsBeside] {
        for (queries, mask) in [(1, Mask::None), (1, Mask::Added), (20, Mask::Added), (20, Mask::Causal)] {
            for (batch, heads, shared) in [(2, 6, 2), (1, 6, 3), (2, 4, 1)] {
                let case = Case::new(queries, 33, 32);
                Case { batch, heads, shared, layout, mask, ..case }.check(Precision::F32);
            }
        }
    }
}

#[test]
fn the_device_and_the_sizes_choose_the_kernel() {
    let _turn = device::turn();
    let chosen = |class, case: Case| kernels_of(&context(class), &case.method());
    let (cpu, phone) = (DeviceClass::Cpu, DeviceClass::Adreno7xx);
    let by_address = context(cpu).profile().access == Access::Bda;
    let of_cpu = if by_address { "attention_query" } else { "attention_tile" };
    assert_eq!(chosen(cpu, Case::new(9, 40, 64)), [of_cpu]);
    assert_eq!(chosen(phone, Case::new(9, 40, 64)), ["attention_tile"]);
    assert_eq!(chosen(cpu, Case::new(1, 40, 64)), ["attention_row"]);
    assert_eq!(chosen(phone, Case::new(1, 40, 64)), ["attention_row"]);
    let transposed = Case { layout: Layout::KeysTransposed, ..Case::new(3, 40, 64) };
    for (class, case) in [(cpu, Case::new(9, 40, 6)), (cpu, Case::new(9, 40, 132)), (phone, transposed)] {
        let kernels = chosen(class, case);
        assert!(matches!(kernels[..], [_, "attention_softmax", _]), "{case:?}: {kernels:?}");
    }
}

#[test]
fn four_buffers_are_enough() {
    let _turn = device::turn();
    let overrides = CapsOverride { max_storage_buffers: Some(4), ..CapsOverride::default() };
    let limited = device::opened(overrides, None);
    let case = Case { mask: Mask::Filled(-1e9), ..Case::new(9, 40, 64) };
    let (method, inputs) = case.method();
    let by_descriptors = limited.profile().access == Access::Ssbo;
    let kernels = kernels_of(&limited, &(method.clone(), inputs.clone()));
    assert_eq!(kernels.len(), if by_descriptors { 3 } else { 1 }, "{kernels:?}");
    let (want, _) = reference::run(&method.graph, &inputs, &HashMap::new());
    let got = output(&limited, &method, &inputs, Precision::F32);
    compare::tensors(&got, &want[0], 2e-5, 2e-5).unwrap();
}
