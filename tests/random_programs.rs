//! Random programs: all passes keep the values, over three runs with state, and no `linear` has a live weight.
//!
//! A program is grown from a list of numbers, each of which picks an op or an operand; a call that the op refuses is
//! left out. So programs shrink with the list. `PROPTEST_CASES=2000 cargo test --test random_programs` is the long run.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::collections::BTreeMap;

use proptest::prelude::*;
use vkdelegate::{
    base::{DType, HostTensor, Scalar, SymExpr, Value},
    ir::{
        self, Arg, Constant, Constness, Effect, Graph, InputKind, IntArg, Method, OpName, OutputKind,
        OutputSource, TensorType, Type, ValueId, effect_of,
    },
    ops::{self, Meta, Resolved},
    passes,
};

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

struct Grower<'a> {
    graph: Graph,
    choices: Choices<'a>,
    tensors: Vec<ValueId>,
}

/// The elements of a constant or an input: all different, small, and not symmetric.
fn data(sizes: &[usize], seed: usize) -> HostTensor {
    let count: usize = sizes.iter().product();
    let values: Vec<f64> = (0..count).map(|i| ((7 * i + 5 * seed) % 17) as f64 / 8.0 - 1.0).collect();
    HostTensor::from_f64s(DType::F32, sizes.to_vec(), &values).unwrap()
}

fn tensor_type(sizes: &[usize]) -> Type {
    Type::Tensor(TensorType {
        dtype: DType::F32,
        sizes: sizes.iter().map(|&size| SymExpr::Const(size as i64)).collect(),
    })
}

impl Grower<'_> {
    fn add_inputs(&mut self) {
        for index in 0..6 {
            let sizes = [self.choices.of(&[3, 4, 1]), self.choices.of(&[3, 4])];
            let name = format!("in{index}");
            let value = match index {
                0 | 1 | 5 => self.graph.add_input(&name, tensor_type(&sizes), InputKind::User).unwrap(),
                2 => self.add_constant(&name, &sizes, InputKind::Buffer),
                3 => self.add_constant(&name, &sizes[1..], InputKind::Lifted),
                _ => self.add_constant(&name, &sizes, InputKind::Parameter),
            };
            self.tensors.push(value);
        }
    }

    fn add_constant(
        &mut self,
        name: &str,
        sizes: &[usize],
        kind: fn(ir::ConstantId) -> InputKind,
    ) -> ValueId {
        let constant = Constant::from_tensor(name, data(sizes, name.len() + self.tensors.len()));
        self.graph.add_constant_input(name, constant, kind).unwrap()
    }

    fn meta(&self, value: ValueId) -> Meta {
        let ty = self.graph.value(value).unwrap().ty.clone();
        let sizes = ty.as_tensor().unwrap().sizes.iter().map(|size| size.as_const().unwrap() as usize);
        Meta::new(DType::F32, sizes.collect::<Vec<_>>())
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
        let (op, args): (&str, Vec<(&str, Arg)>) = match self.choices.below(19) {
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
            _ => return self.grow_product(x),
        };
        self.add_call(op, args);
    }

    /// Adds a product of `x` with the first tensor, from a random one on, that fits.
    fn grow_product(&mut self, x: Arg) {
        let kind = self.choices.below(5);
        let bias = self.tensor();
        let factors = (self.choices.of(&[1.0, 0.0, 0.5]), self.choices.of(&[1.0, -0.25]));
        let (start, count) = (self.choices.below(self.tensors.len()), self.tensors.len());
        for index in 0..count {
            let y = Arg::Value(self.tensors[(start + index) % count]);
            let (x, bias) = (x.clone(), bias.clone());
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
                return;
            }
        }
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
        let outputs = vec![(name.clone(), tensor_type(&outs[0].sizes))];
        let id = self.graph.add_node(&name, node.op, args, outputs).unwrap();
        self.tensors.push(self.graph.node(id).unwrap().outputs[0]);
        true
    }

    /// Returns the last values, and sometimes writes one back to the buffer.
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
        for &value in self.tensors.iter().rev().take(5) {
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

fn grow(choices: &[u16]) -> Method {
    let mut grower =
        Grower { graph: Graph::new("random"), choices: Choices(choices.iter()), tensors: Vec::new() };
    grower.add_inputs();
    while grower.choices.0.len() > 4 {
        grower.grow();
    }
    grower.finish()
}

/// Every weight of a `linear` is one that only a constant can be.
fn check_weights(graph: &Graph) {
    let constness = Constness::analyse(graph).unwrap();
    for (_, node) in graph.nodes() {
        if node.op == *"aten.linear.default" {
            constness.tensor_ref(graph, node.value_arg("weight").unwrap()).unwrap();
        }
    }
}

fn inputs(method: &Method, run: usize) -> Vec<Value> {
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

/// 100 programs, or as many as `PROPTEST_CASES` says.
fn config() -> ProptestConfig {
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(100);
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn passes_keep_the_values(choices in prop::collection::vec(any::<u16>(), 30..240)) {
        let method = grow(&choices);
        ir::verify(&method.graph).unwrap();
        let optimised = passes::optimise(&method, &passes::Options::default()).unwrap();
        ir::verify(&optimised.method.graph).unwrap();
        check_weights(&optimised.method.graph);
        if optimised.method.graph.nodes().any(|(_, node)| effect_of(node) == Effect::Write) {
            // Left for the planner to refuse: only with the reason.
            prop_assert!(optimised.warnings.iter().any(|warning| warning.contains("in-place ops stay")));
            return Ok(());
        }
        let same = common::equivalence::check(&method, &optimised.method, |run| inputs(&method, run));
        prop_assert!(same.is_ok(), "{:?}\n{}became\n{}", same, method.graph, optimised.method.graph);
    }
}
