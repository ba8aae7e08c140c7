//! Graphs and signatures: names, kinds of inputs and outputs, symbols, and what is refused.

use serde_json::{Value, json};
use vkdelegate::base::{Range, Value as HostValue};
use vkdelegate::ir::{Method, OutputKind, OutputSource};

use super::common::program::{self, node, tensor};
use super::{load_method, refusal};

fn changed(change: impl FnOnce(&mut Value)) -> Vec<u8> {
    let mut parts = program::parts();
    change(&mut parts.program);
    parts.pack()
}

fn method(change: impl FnOnce(&mut Value)) -> Method {
    load_method(changed(change)).unwrap()
}

fn graph(program: &mut Value) -> &mut Value {
    &mut program["graph_module"]["graph"]
}

fn signature(program: &mut Value) -> &mut Value {
    &mut program["graph_module"]["signature"]
}

#[test]
fn names_must_be_defined_before_use_and_once() {
    let dangling = changed(|p| graph(p)["nodes"][0]["inputs"][0]["arg"] = tensor("nowhere"));
    let text = refusal(dangling);
    assert!(text.contains("add, operand `self`") && text.contains("`nowhere`"), "{text}");
    let cycle = changed(|p| graph(p)["nodes"][0]["inputs"][0]["arg"] = tensor("relu"));
    assert!(refusal(cycle).contains("`relu`"));
    let twice = changed(|p| {
        let nodes = graph(p)["nodes"].as_array_mut().unwrap();
        let mut again = nodes[1].clone();
        again["name"] = json!("again");
        nodes.push(again);
    });
    assert!(refusal(twice).contains("`relu` is defined twice"));
    let same_node_name = changed(|p| graph(p)["nodes"][1]["name"] = json!("add"));
    assert!(refusal(same_node_name).contains("two nodes"));
    for name in ["", "a b", "x\u{1b}[31m", "%a"] {
        assert!(refusal(changed(|p| graph(p)["nodes"][0]["name"] = json!(name))).contains("identifier"));
    }
}

#[test]
fn nodes_without_a_name_take_that_of_their_output() {
    let method = method(|p| graph(p)["nodes"][0]["name"] = Value::Null);
    assert_eq!(method.graph.nodes().next().unwrap().1.name, "add");
}

#[test]
fn graph_and_signature_must_agree() {
    let renamed = changed(|p| signature(p)["input_specs"][1] = json!({"user_input": {"arg": tensor("add")}}));
    assert!(refusal(renamed).contains("disagree"));
    let fewer = changed(|p| signature(p)["output_specs"] = json!([]));
    assert!(refusal(fewer).contains("the signature 0"));
    let swapped = changed(|p| signature(p)["output_specs"][0]["user_output"]["arg"] = tensor("add"));
    assert!(refusal(swapped).contains("disagree"));
}

#[test]
fn outputs_of_every_kind() {
    let outputs = [
        tensor("x"),
        tensor("p_w"),
        json!({"as_int": 7}),
        json!({"as_float": "-Infinity"}),
        json!({"as_bool": true}),
        json!({"as_none": true}),
    ];
    let method = method(|p| {
        graph(p)["outputs"].as_array_mut().unwrap().extend(outputs.clone());
        let specs = outputs.iter().map(|arg| json!({"user_output": {"arg": arg}}));
        signature(p)["output_specs"].as_array_mut().unwrap().extend(specs);
    });
    let sources: Vec<_> = method.graph.outputs().iter().map(|output| output.source.clone()).collect();
    let value = |name| OutputSource::Value(method.graph.value_named(name).unwrap());
    assert_eq!(sources[..3], [value("relu"), value("x"), value("p_w")]);
    let texts: Vec<_> = method
        .graph
        .to_string()
        .lines()
        .filter(|line| line.starts_with("output"))
        .map(str::to_owned)
        .collect();
    assert_eq!(texts[3..], ["output 7", "output -inf", "output true", "output none"]);
    let text = changed(|p| {
        graph(p)["outputs"][0] = json!({"as_string": "s"});
        signature(p)["output_specs"][0]["user_output"]["arg"] = json!({"as_string": "s"});
    });
    assert!(refusal(text).contains("of the kind str"));
}

#[test]
fn mutations_name_their_targets() {
    let method = method(|p| {
        graph(p)["outputs"] = json!([tensor("add"), tensor("relu")]);
        signature(p)["output_specs"] = json!([
            {"parameter_mutation": {"arg": {"name": "add"}, "parameter_name": "w"}},
            {"user_input_mutation": {"arg": {"name": "relu"}, "user_input_name": "x"}},
        ]);
    });
    let value = |name| method.graph.value_named(name).unwrap();
    let kinds: Vec<_> = method.graph.outputs().iter().map(|output| output.kind).collect();
    assert_eq!(kinds, [OutputKind::BufferMutation(value("p_w")), OutputKind::InputMutation(value("x"))]);
    for spec in [
        json!({"buffer_mutation": {"arg": {"name": "relu"}, "buffer_name": "nowhere"}}),
        json!({"user_input_mutation": {"arg": {"name": "relu"}, "user_input_name": "nowhere"}}),
        json!({"user_input_mutation": {"arg": {"name": "relu"}, "user_input_name": "add"}}),
        json!({"user_input_mutation": {"arg": {"name": "relu"}, "user_input_name": "p_w"}}),
    ] {
        refusal(changed(|p| signature(p)["output_specs"][0] = spec));
    }
}

#[test]
fn inputs_that_the_exporter_fixed() {
    let values =
        [json!({"as_int": 5}), json!({"as_bool": true}), json!({"as_float": 0.5}), json!({"as_none": true})];
    let names = ["n", "flag", "scale", "mask"];
    let method = method(|p| {
        graph(p)["inputs"].as_array_mut().unwrap().extend(values.clone());
        let specs = names
            .iter()
            .zip(&values)
            .map(|(name, value)| json!({"constant_input": {"name": name, "value": value}}));
        signature(p)["input_specs"].as_array_mut().unwrap().extend(specs);
    });
    let fixed: Vec<_> = names.iter().map(|name| method.fixed_inputs[*name].clone()).collect();
    assert_eq!(fixed, [HostValue::Int(5), HostValue::Bool(true), HostValue::Float(0.5), HostValue::None]);
    assert_eq!(method.graph.user_inputs().count(), 5);
    let text = changed(|p| {
        graph(p)["inputs"][1] = json!({"as_string": "hi"});
        signature(p)["input_specs"][1] =
            json!({"constant_input": {"name": "mode", "value": {"as_string": "hi"}}});
    });
    assert!(refusal(text).contains("`mode` is a str"));
}

#[test]
fn what_is_no_inference_graph_of_tensors_is_refused() {
    let specs = [
        (json!({"loss_output": {"arg": {"name": "relu"}}}), "loss or gradients"),
        (
            json!({"gradient_to_parameter": {"arg": {"name": "relu"}, "parameter_name": "w"}}),
            "loss or gradients",
        ),
        (json!({"token": {"arg": {"name": "relu"}}}), "token"),
    ];
    for (spec, expected) in specs {
        assert!(refusal(changed(|p| signature(p)["output_specs"][0] = spec)).contains(expected));
    }
    let specs = [
        (json!({"token": {"arg": {"name": "x"}}}), "token"),
        (
            json!({"custom_obj": {"arg": {"name": "x", "class_fqn": "C"}, "custom_obj_name": "obj"}}),
            "object of the class C",
        ),
        (json!({"user_input": {"arg": {"as_custom_obj": {"name": "x", "class_fqn": "C"}}}}), "custom object"),
    ];
    for (spec, expected) in specs {
        assert!(refusal(changed(|p| signature(p)["input_specs"][1] = spec)).contains(expected));
    }
    let cond = changed(|p| graph(p)["nodes"][0]["target"] = json!("torch.ops.higher_order.cond"));
    let text = refusal(cond);
    assert!(text.contains("add: ") && text.contains("higher-order"), "{text}");
}

#[test]
fn argument_kinds_arrive() {
    let args = [
        ("a", json!({"as_ints": [1, -2]}), "a=[1, -2]"),
        ("b", json!({"as_floats": [0.5, "NaN"]}), "b=[0.5, NaN]"),
        ("c", json!({"as_bools": [true, false]}), "c=[true, false]"),
        ("d", json!({"as_string": "none"}), "d=\"none\""),
        ("e", json!({"as_scalar_type": 6}), "e=float16"),
        (
            "f",
            json!({"as_optional_tensors": [{"as_none": true}, {"as_tensor": {"name": "x"}}]}),
            "f=[none, %x]",
        ),
        ("g", json!({"as_tensors": [{"name": "x"}, {"name": "p_w"}]}), "g=[%x, %p_w]"),
        ("h", json!({"as_optional_tensor": {"as_tensor": {"name": "x"}}}), "h=%x"),
        ("i", json!({"as_optional_tensor": {"as_none": true}}), "i=none"),
        ("j", json!({"as_sym_int": {"as_int": 4}}), "j=4"),
        ("k", json!({"as_memory_format": 2}), "k=<channels_last>"),
        ("l", json!({"as_device": {"type": "cpu", "index": null}}), "l=<cpu>"),
        ("m", json!({"as_complex": {"real": 1.0, "imag": 2.0}}), "m=<complex number>"),
        ("n", json!({"as_scalar_type": 10}), "n=<complex64>"),
    ];
    let inputs: Vec<_> = args.iter().map(|(name, arg, _)| (*name, arg.clone())).collect();
    let text =
        method(|p| graph(p)["nodes"][0] = node("add", "torch.ops.ns.op.default", &inputs)).graph.to_string();
    for (.., expected) in args {
        assert!(text.contains(expected), "{expected}: {text}");
    }
}

#[test]
fn results_of_every_kind() {
    let method = method(|p| {
        let graph = graph(p);
        graph["nodes"][0]["outputs"] = json!([
            tensor("add"), {"as_none": true}, {"as_tensors": [{"name": "t0"}, {"name": "t1"}]},
            {"as_sym_int": {"as_name": "n"}}, {"as_sym_bool": {"as_name": "b"}}, {"as_sym_float": {"as_name": "f"}},
        ]);
        let meta = graph["tensor_values"]["x"].clone();
        graph["tensor_values"]["t0"] = meta.clone();
        graph["tensor_values"]["t1"] = meta;
        graph["sym_int_values"]["n"] = json!({"as_expr": {"expr_str": "2*s0 + 1", "hint": null}});
    });
    let text = method.graph.to_string();
    let line = "%add: float32[2, 3], %add_none_1: none, %t0: float32[2, 3], %t1: float32[2, 3], %n: int(2*s0 + 1), %b: truth, %f: ";
    assert!(text.contains(line), "{text}");
}

#[test]
fn symbols_and_their_ranges() {
    let with_size = |expr: &str, ranges: Value| {
        changed(|p| {
            let size = json!({"as_expr": {"expr_str": expr, "hint": {"as_int": 4}}});
            graph(p)["tensor_values"]["x"]["sizes"][0] = size;
            p["range_constraints"] = ranges;
        })
    };
    let srepr = "Add(Mul(Integer(2), Symbol('s0', positive=True, integer=True)), Integer(1))";
    let ranges = json!({"s0": {"min_val": 2, "max_val": 9}, "2*s1": {"min_val": 3, "max_val": 9}, "s2": {"min_val": null, "max_val": null}});
    let method = load_method(with_size(srepr, ranges)).unwrap();
    assert!(method.graph.to_string().contains("input %x: float32[2*s0 + 1, 3]"));
    assert_eq!(method.ranges["s0"], Range { min: 2, max: Some(9) });
    assert_eq!(method.ranges["s1"], Range { min: 2, max: Some(4) });
    assert_eq!(method.ranges["s2"], Range { min: i64::MIN, max: None });
    let empty = json!({"s0": {"min_val": 3, "max_val": 2}});
    assert!(refusal(with_size("s0", empty)).contains("range_constraints"));
    assert!(refusal(with_size("2*", json!({}))).contains("it ends too early"));
    assert!(refusal(with_size("2**s0", json!({}))).contains("`x`"));
    let deep = "Add(".repeat(10_000) + &")".repeat(10_000);
    super::on_small_stack(move || {
        refusal(changed(|p| {
            graph(p)["tensor_values"]["x"]["sizes"][0] = json!({"as_expr": {"expr_str": deep, "hint": null}});
        }));
    });
}

#[test]
fn a_program_without_signature_ranges_or_methods_is_an_error() {
    for key in ["graph_module", "schema_version", "range_constraints"] {
        let text = refusal(changed(|p| drop(p.as_object_mut().unwrap().remove(key))));
        assert!(text.contains(key), "{text}");
    }
}
