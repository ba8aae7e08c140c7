//! Programs built in Rust: what is prepacked of them, what is refused, and that they run.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod common;

use common::{compare, device, one_op};
use vkdelegate::{
    DType, Delegate, ErrorKind, Gpu, HostTensor, Precision, Program, Value,
    delegate::{BuildOptions, Session},
    graph::{GraphBuilder, SymExpr, TensorType, Type, ValueId},
    ir::parse_graph,
    ops::{States, interpret},
};

fn ramp(sizes: &[usize], seed: usize) -> HostTensor {
    let count = sizes.iter().product();
    let values: Vec<f32> = (0..count).map(|i| ((7 * i + 5 * seed) % 17) as f32 / 8.0 - 1.0).collect();
    HostTensor::from_f32(sizes, &values).unwrap()
}

fn build(program: &Program, method: &str) -> Delegate {
    let gpu = Gpu::from_context(device::context());
    Delegate::builder(&gpu).method(method).build(program).unwrap()
}

/// Runs `delegate` on inputs of `sizes` several times, and holds outputs to the host's run of what was built.
fn check_runs(program: &Program, delegate: &mut Delegate, sizes: &[&[usize]]) {
    let method = program.method(&delegate.report().method).unwrap().ir();
    let mut states = States::new();
    for run in 0..4 {
        let inputs: Vec<Value> = sizes.iter().map(|sizes| ramp(sizes, run).into()).collect();
        let want = interpret(method, &inputs, &mut states).unwrap();
        let got = delegate.run(&inputs).unwrap();
        assert_eq!(got.user.len(), want.user.len());
        for (got, want) in got.user.iter().zip(&want.user) {
            let (got, want) = (got.as_tensor().unwrap(), want.as_tensor().unwrap());
            compare::tensors(got, want, 1e-4, 1e-4).unwrap();
        }
    }
    assert_eq!(device::validation_messages(), Vec::<String>::new());
}

/// A style vector becomes the weight of a product; both products with parameters are prepacked.
fn style_program() -> Program {
    let mut graph = GraphBuilder::new("forward");
    let x = graph.input("x", DType::F32, &[2, 6]).unwrap();
    let style = graph.input("style", DType::F32, &[1, 5]).unwrap();
    let parameter = |graph: &mut GraphBuilder, name: &str, sizes: &[usize]| {
        graph.parameter(name, ramp(sizes, name.len())).unwrap()
    };
    let (w1, b1) =
        (parameter(&mut graph, "style_weight", &[5, 24]), parameter(&mut graph, "style_bias", &[24]));
    let (w2, b2) = (parameter(&mut graph, "out_weight", &[4, 3]), parameter(&mut graph, "out_bias", &[3]));
    let addmm = |graph: &mut GraphBuilder, bias: ValueId, x: ValueId, weight: ValueId| {
        let args = [("self", bias.into()), ("mat1", x.into()), ("mat2", weight.into())];
        graph.call("aten.addmm.default", args).unwrap()
    };
    let styled = addmm(&mut graph, b1, style, w1);
    let args = [("self", styled.into()), ("size", [1, 4, 6].into())];
    let view = graph.call("aten.view.default", args).unwrap();
    let squeeze = graph.call("aten.squeeze.dim", [("self", view.into()), ("dim", 0.into())]).unwrap();
    let args = [("self", squeeze.into()), ("dims", [1, 0].into())];
    let permute = graph.call("aten.permute.default", args).unwrap();
    let product = graph.call("aten.mm.default", [("self", x.into()), ("mat2", permute.into())]).unwrap();
    let y = addmm(&mut graph, b2, product, w2);
    graph.output(y);
    graph.build().unwrap()
}

#[test]
fn a_weight_computed_at_run_time_stays_a_product() {
    let _turn = device::turn();
    let program = style_program();
    let mut delegate = build(&program, "forward");
    let report = delegate.report();
    assert_eq!((report.ops["linear"], report.ops["mm"]), (2, 1), "{:?}", report.ops);
    let mm = report.decisions.iter().find(|decision| decision.op == "mm").unwrap();
    let chain = "mm: kept mm: mat2 = permute <- squeeze <- view <- addmm <- user input \"style\"";
    assert_eq!(mm.reason, chain);
    check_runs(&program, &mut delegate, &[&[2, 6], &[1, 5]]);
}

#[test]
fn without_a_signature_nothing_is_constant() {
    let _turn = device::turn();
    let mut graph = GraphBuilder::without_signature("forward");
    let x = graph.input("x", DType::F32, &[2, 3]).unwrap();
    let weight = graph.parameter("weight", ramp(&[4, 3], 1)).unwrap();
    let y = graph.call("aten.linear.default", [("input", x.into()), ("weight", weight.into())]).unwrap();
    graph.output(y);
    let program = graph.build().unwrap();
    let mut delegate = build(&program, "forward");
    let report = delegate.report();
    assert!(!report.ops.contains_key("linear") && report.ops["mm"] == 1, "{:?}", report.ops);
    let reason = "linear: became mm: weight = input \"weight\" of a program without signature";
    assert_eq!(report.decisions[0].reason, reason);
    assert_eq!(report.warnings.iter().filter(|warning| warning.contains("no signature")).count(), 1);
    check_runs(&program, &mut delegate, &[&[2, 3]]);
    // As nothing is known of it, it may be set like any state.
    delegate.set_state("weight", &HostTensor::from_f32(&[4, 3], &[0.0; 12]).unwrap()).unwrap();
    let outputs = delegate.run(&[ramp(&[2, 3], 0).into()]).unwrap();
    assert_eq!(outputs.tensor(0).unwrap().to_f32s(), [0.0; 8]);
}

#[test]
fn a_method_that_writes_a_weight_leaves_it_constant_to_others() {
    let _turn = device::turn();
    let method = |name: &str, writes: bool| {
        let mut graph = GraphBuilder::new(name);
        let x = graph.input("x", DType::F32, &[2, 3]).unwrap();
        let weight = graph.buffer("weight", ramp(&[3, 3], 1)).unwrap();
        let y = graph.call("aten.mm.default", [("self", x.into()), ("mat2", weight.into())]).unwrap();
        graph.output(y);
        if writes {
            let half = graph.call("aten.mul.Tensor", [("self", weight.into()), ("other", 0.5.into())]);
            graph.write_back(weight, half.unwrap());
        }
        graph
    };
    let program = Program::from_graphs([method("train", true), method("infer", false)]).unwrap();
    let (mut train, mut infer) = (build(&program, "train"), build(&program, "infer"));
    assert_eq!((train.report().ops["mm"], infer.report().ops["linear"]), (1, 1));
    check_runs(&program, &mut train, &[&[2, 3]]);
    check_runs(&program, &mut infer, &[&[2, 3]]);
    assert_eq!(
        Program::from_graphs([method("a", true), method("a", false)]).unwrap_err().kind(),
        ErrorKind::InvalidGraph
    );
}

#[test]
fn symbolic_sizes_take_types() {
    let _turn = device::turn();
    let rows = |columns: i64| {
        let sizes = vec![SymExpr::symbol("rows"), SymExpr::Const(columns)];
        Type::Tensor(TensorType { dtype: DType::F32, sizes })
    };
    let mut graph = GraphBuilder::new("forward");
    graph.range("rows", 1, Some(8));
    let x = graph.typed_input("x", rows(3)).unwrap();
    let weight = graph.parameter("weight", ramp(&[3, 4], 1)).unwrap();
    let args = [("self", x.into()), ("mat2", weight.into())];
    let error = graph.call("aten.mm.default", args.clone()).unwrap_err();
    assert!(error.to_string().contains("call_typed"), "{error}");
    let y = graph.call_typed("mm", "aten.mm.default", args, [rows(4)]).unwrap()[0];
    graph.output(y);
    let program = graph.build().unwrap();
    let mut delegate = build(&program, "forward");
    assert_eq!(delegate.report().ops["linear"], 1);
    check_runs(&program, &mut delegate, &[&[5, 3]]);
    assert_eq!(delegate.run(&[ramp(&[9, 3], 0).into()]).unwrap_err().kind(), ErrorKind::InvalidInput);
}

#[test]
fn slips_are_named_where_they_are_made() {
    let mut graph = GraphBuilder::new("forward");
    let x = graph.input("x", DType::F32, &[2, 3]).unwrap();
    let error = graph.call("aten.no_such_op.default", [("self", x.into())]).unwrap_err();
    assert!(error.to_string().contains("aten.no_such_op.default"), "{error}");
    let error = graph.call("aten.mm.default", [("self", x.into()), ("mat2", x.into())]).unwrap_err();
    assert_eq!(error.node(), Some("mm"));
    assert!(graph.parameter("x", ramp(&[2], 0)).is_err());
    graph.write_back(x, x);
    assert_eq!(graph.build().unwrap_err().kind(), ErrorKind::InvalidGraph);
}

/// The fault that must be impossible: a `linear` with a live weight that reaches the delegate past the passes.
#[test]
fn a_forced_linear_with_a_live_weight_is_refused_with_its_chain() {
    let _turn = device::turn();
    let cases = [
        (
            "input %style: float32[4, 3]\n%weight: float32[4, 3] = aten.neg.default(self=%style)\n",
            "",
            "weight = weight <- user input \"style\"",
        ),
        (
            "input %weight: float32[4, 3] = buffer \"w\"\n",
            "%neg: float32[4, 3] = aten.neg.default(self=%weight)\noutput %neg -> %weight\n",
            "weight = buffer \"w\", written by output `neg`",
        ),
        (
            "input %w: float32[3, 4] = parameter \"w\"\n%weight: float32[4, 3] = aten.t.default(self=%w)\n",
            "",
            "weight = weight <- parameter \"w\"",
        ),
    ];
    for (before, behind, chain) in cases {
        let text = format!(
            "graph g\ninput %x: float32[2, 3]\n{before}%y: float32[2, 4] = aten.linear.default(input=%x, weight=%weight)\n{behind}output %y\n"
        );
        let method = one_op::static_method(parse_graph(&text).unwrap());
        let Err(error) = Session::build(&device::context(), method, BuildOptions::default()) else {
            panic!("not refused:\n{text}");
        };
        let [refusal] = error.refusals() else { panic!("{error}") };
        assert_eq!((refusal.node.as_str(), refusal.operand.as_deref()), ("y", Some("weight")));
        assert!(refusal.reason.contains(chain), "{}", refusal.reason);
    }
}

#[test]
fn a_built_program_is_inspected_without_a_device() {
    let program = style_program();
    let inspection = program.only_method().unwrap().inspect(None, Precision::F32).unwrap();
    assert_eq!(inspection.ops["linear"], 2);
    assert!(inspection.unsupported.is_empty() && inspection.memory.is_some());
}
