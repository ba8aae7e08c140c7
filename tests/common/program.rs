//! Small exported programs as JSON, to be changed at will and packed into a .pt2.

use serde_json::{Value, json};

use super::zip;

/// Metadata of a contiguous tensor of `dtype` (torch's code) and `sizes`.
pub fn tensor_meta(dtype: i64, sizes: &[i64]) -> Value {
    let ints = |values: &[i64]| values.iter().map(|value| json!({"as_int": value})).collect::<Vec<_>>();
    let mut strides = vec![1i64; sizes.len()];
    for dim in (1..sizes.len()).rev() {
        strides[dim - 1] = strides[dim] * sizes[dim];
    }
    json!({
        "dtype": dtype, "sizes": ints(sizes), "requires_grad": false, "device": {"type": "cpu", "index": null},
        "strides": ints(&strides), "storage_offset": {"as_int": 0}, "layout": 7,
    })
}

/// An argument that is the tensor `name`.
pub fn tensor(name: &str) -> Value {
    json!({"as_tensor": {"name": name}})
}

/// A node whose one output is the tensor `name`.
pub fn node(name: &str, target: &str, inputs: &[(&str, Value)]) -> Value {
    let inputs: Vec<_> =
        inputs.iter().map(|(name, arg)| json!({"name": name, "arg": arg, "kind": 1})).collect();
    json!({"target": target, "inputs": inputs, "outputs": [tensor(name)], "metadata": {}, "name": name})
}

/// `relu(x + w)` over `float32[2, 3]`, `w` being a parameter.
pub fn program() -> Value {
    let add = node("add", "torch.ops.aten.add.Tensor", &[("self", tensor("x")), ("other", tensor("p_w"))]);
    let relu = node("relu", "torch.ops.aten.relu.default", &[("self", tensor("add"))]);
    let meta = tensor_meta(7, &[2, 3]);
    json!({
        "graph_module": {
            "graph": {
                "inputs": [tensor("p_w"), tensor("x")],
                "outputs": [tensor("relu")],
                "nodes": [add, relu],
                "tensor_values": {"p_w": meta, "x": meta, "add": meta, "relu": meta},
                "sym_int_values": {}, "sym_bool_values": {}, "sym_float_values": {},
                "is_single_tensor_return": false, "custom_obj_values": {},
            },
            "signature": {
                "input_specs": [
                    {"parameter": {"arg": {"name": "p_w"}, "parameter_name": "w"}},
                    {"user_input": {"arg": tensor("x")}},
                ],
                "output_specs": [{"user_output": {"arg": tensor("relu")}}],
            },
            "module_call_graph": [], "metadata": {}, "treespec_namedtuple_fields": {},
        },
        "opset_version": {"aten": 10}, "range_constraints": {}, "schema_version": {"major": 8, "minor": 20},
        "verifiers": ["ATEN"], "torch_version": "2.15.0", "guards_code": [],
    })
}

/// A table entry for the stored tensor with `meta`, in the payload `path_name`.
pub fn payload_meta(path_name: &str, meta: Value) -> Value {
    json!({"path_name": path_name, "is_param": true, "use_pickle": false, "tensor_meta": meta})
}

/// What goes into a .pt2 with the one method `model`.
pub struct Parts {
    pub program: Value,
    pub weights: Value,
    pub constants: Value,
    /// Names below `data/`, such as `weights/weight_0`, with their bytes.
    pub payloads: Vec<(String, Vec<u8>)>,
}

/// The parts of [`program`]: `w` is 0, 1, 2, 3, 4, 5.
pub fn parts() -> Parts {
    let data = (0u8..6).flat_map(|i| f32::from(i).to_le_bytes()).collect();
    Parts {
        program: program(),
        weights: json!({"config": {"w": payload_meta("weight_0", tensor_meta(7, &[2, 3]))}}),
        constants: json!({"config": {}}),
        payloads: vec![("weights/weight_0".into(), data)],
    }
}

impl Parts {
    /// The archive.
    pub fn pack(&self) -> Vec<u8> {
        self.pack_with_program(&self.program.to_string())
    }

    /// The archive with other text for the program.
    pub fn pack_with_program(&self, program: &str) -> Vec<u8> {
        let mut entries: Vec<(String, Vec<u8>)> = vec![
            ("p/archive_format".into(), b"pt2".to_vec()),
            ("p/archive_version".into(), b"0".to_vec()),
            ("p/byteorder".into(), b"little".to_vec()),
            ("p/models/model.json".into(), program.into()),
            ("p/data/weights/model_weights_config.json".into(), self.weights.to_string().into()),
            ("p/data/constants/model_constants_config.json".into(), self.constants.to_string().into()),
            ("p/data/sample_inputs/model.pt".into(), b"never read".to_vec()),
        ];
        entries.extend(self.payloads.iter().map(|(name, data)| (format!("p/data/{name}"), data.clone())));
        zip::rezip(&entries)
    }
}
