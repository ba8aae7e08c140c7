//! Stored tensors: where they are found, how they lie in their payload, and pickles.

use serde_json::{Value, json};
use vkdelegate::base::Result;

use super::common::program::{self, Parts, payload_meta, tensor_meta};
use super::{load_method, refusal};

fn with_table(change: impl FnOnce(&mut Value)) -> Vec<u8> {
    let mut parts = program::parts();
    change(&mut parts.weights["config"]["w"]);
    parts.pack()
}

/// The values of `w`.
fn read_w(bytes: Vec<u8>) -> Result<Vec<f32>> {
    let graph = load_method(bytes)?.graph;
    let input = graph.inputs()[0];
    Ok(graph.constant(input.kind.constant().unwrap())?.to_tensor()?.to_f32s())
}

fn strided(parts: &mut Parts, sizes: Value, strides: Value, offset: i64) {
    let ints = |values: Value| -> Value {
        values.as_array().unwrap().iter().map(|value| json!({"as_int": value})).collect()
    };
    let sizes = ints(sizes);
    parts.program["graph_module"]["graph"]["tensor_values"]["p_w"]["sizes"] = sizes.clone();
    let meta = &mut parts.weights["config"]["w"]["tensor_meta"];
    (meta["sizes"], meta["strides"], meta["storage_offset"]) =
        (sizes, ints(strides), json!({"as_int": offset}));
}

#[test]
fn strides_and_offset_of_the_table_are_followed() {
    for (sizes, strides, offset, expected) in [
        (json!([2, 3]), json!([3, 1]), 0, &[0., 1., 2., 3., 4., 5.][..]),
        (json!([2, 3]), json!([1, 2]), 0, &[0., 2., 4., 1., 3., 5.]),
        (json!([2]), json!([1]), 4, &[4., 5.]),
        (json!([2, 2]), json!([0, 1]), 3, &[3., 4., 3., 4.]),
        (json!([]), json!([]), 5, &[5.]),
        (json!([1, 2, 3, 1]), json!([6, 1, 2, 2]), 0, &[0., 2., 4., 1., 3., 5.]),
    ] {
        let mut parts = program::parts();
        strided(&mut parts, sizes.clone(), strides, offset);
        assert_eq!(read_w(parts.pack()).unwrap(), expected, "{sizes}");
    }
}

#[test]
fn sizes_that_do_not_fit_are_refused() {
    for (sizes, strides, offset) in [
        (json!([1i64 << 62, 4]), json!([4, 1]), 0),
        (json!([1i64 << 32, 1i64 << 32]), json!([1i64 << 32, 1]), 0),
        (json!([-1, 5]), json!([5, 1]), 0),
        (json!([i64::MAX, 2]), json!([2, 1]), 0),
        (json!([2, 3]), json!([i64::MAX, 1]), 0),
        (json!([2, 3]), json!([3, -1]), 0),
        (json!([2, 3]), json!([3, 1]), -1),
        (json!([2, 3]), json!([3, 1]), 1),
        (json!([(1i64 << 62) - 4]), json!([1]), 0),
        (json!(vec![1; 1000]), json!(vec![1; 1000]), 0),
    ] {
        let mut parts = program::parts();
        strided(&mut parts, sizes.clone(), strides, offset);
        let text = refusal(parts.pack());
        assert!(text.contains("tensor `w`") || text.contains("`p_w`"), "{sizes}: {text}");
    }
}

#[test]
fn absurd_sizes_of_values_are_refused() {
    for sizes in [json!([{"as_int": 1i64 << 32}, {"as_int": 1i64 << 32}]), json!([{"as_int": -5}])] {
        let mut parts = program::parts();
        parts.program["graph_module"]["graph"]["tensor_values"]["add"]["sizes"] = sizes;
        assert!(refusal(parts.pack()).contains("`add`"));
    }
}

#[test]
fn graph_and_table_must_agree() {
    let mut parts = program::parts();
    parts.program["graph_module"]["graph"]["tensor_values"]["p_w"] = tensor_meta(7, &[3, 2]);
    assert!(refusal(parts.pack()).contains("`p_w`"));
    parts.program["graph_module"]["graph"]["tensor_values"]["p_w"] = tensor_meta(4, &[2, 3]);
    assert!(refusal(parts.pack()).contains("`p_w`"));
}

#[test]
fn a_buffer_is_found_in_either_table_or_named() {
    for persistent in [true, false] {
        for in_constants in [true, false] {
            let mut parts = program::parts();
            parts.program["graph_module"]["signature"]["input_specs"][0] =
                json!({"buffer": {"arg": {"name": "p_w"}, "buffer_name": "w", "persistent": persistent}});
            if in_constants {
                parts.weights = json!({"config": {}});
                parts.constants = json!({"config": {"w": payload_meta("tensor_0", tensor_meta(7, &[2, 3]))}});
                parts.payloads[0].0 = "constants/tensor_0".into();
            }
            assert_eq!(read_w(parts.pack()).unwrap(), [0., 1., 2., 3., 4., 5.]);
        }
    }
    let mut parts = program::parts();
    parts.weights = json!({"config": {}});
    let text = refusal(parts.pack());
    assert!(text.contains("tensor `w`") && text.contains("neither"), "{text}");
}

#[test]
fn pickles_are_refused_unread() {
    let crafted = b"\x80\x02cos\nsystem\nq\x00X\x04\x00\x00\x00exitq\x01\x85q\x02Rq\x03.".to_vec();
    let mut parts = program::parts();
    parts.weights["config"]["w"]["use_pickle"] = json!(true);
    parts.payloads[0].1 = crafted;
    let text = refusal(parts.pack());
    assert!(text.contains("`w` is stored as a pickle"), "{text}");
}

#[test]
fn payload_names_stay_in_their_folder() {
    for path in [
        "../../x",
        "/etc/passwd",
        "model_weights_config.json",
        "weight_9",
        "weight_0/../weight_0",
        "",
        "weight_",
        "tensor_0",
    ] {
        let text = refusal(with_table(|meta| meta["path_name"] = json!(path)));
        assert!(text.contains("`w` has the payload"), "{path}: {text}");
    }
}

#[test]
fn a_stored_tensor_needs_its_metadata() {
    assert!(refusal(with_table(|meta| meta["tensor_meta"] = Value::Null)).contains("tensor_meta"));
    let symbolic = json!([{"as_expr": {"expr_str": "s0", "hint": null}}, {"as_int": 3}]);
    assert!(refusal(with_table(|meta| meta["tensor_meta"]["sizes"] = symbolic)).contains("is not a number"));
    assert!(
        refusal(with_table(|meta| meta["tensor_meta"]["layout"] = json!(1))).contains("not a dense tensor")
    );
    assert!(refusal(with_table(|meta| meta["tensor_meta"]["dtype"] = json!(10))).contains("complex64"));
}
