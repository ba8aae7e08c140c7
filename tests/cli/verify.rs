//! `verify` and `compare`: what counts as a failure, and how it is told.

use serde_json::Value as Json;
use vkdelegate::HostTensor;

use crate::{
    support::{Folder, Ran, fixture, tool},
    tensors::{self, NamedTensors},
};

fn references() -> NamedTensors {
    tensors::read(fixture("linear_const.safetensors").as_ref()).unwrap()
}

/// Verifies the model of [`references`] against others.
fn verify(folder: &Folder, name: &str, references: &NamedTensors) -> Ran {
    let file = folder.path(&format!("{name}.safetensors"));
    tensors::write(file.as_ref(), references).unwrap();
    tool(&["verify", &fixture("linear_const.pt2"), &file, "--json"])
}

#[test]
fn recorded_calls_pass() {
    let (model, reference) = (fixture("linear_const.pt2"), fixture("linear_const.safetensors"));
    let document = tool(&["verify", &model, &reference, "--json"]).passes().json();
    assert_eq!(document, serde_json::json!({"ok": true, "checked": 2, "failures": []}));
    let plain = tool(&["verify", &model, &reference, "--precision", "f16"]).passes().stdout;
    assert_eq!(plain.lines().count(), 1);
    assert!(plain.starts_with("ok: 2 tensors"), "{plain}");
    let both = (fixture("multimethod_lora.pt2"), fixture("multimethod_lora.safetensors"));
    let all = tool(&["verify", &both.0, &both.1, "--json"]).passes().json()["checked"].as_u64().unwrap();
    let one = tool(&["verify", &both.0, &both.1, "--json", "--method", "lora"]).passes().json();
    assert!(one["checked"].as_u64().unwrap() < all);
}

/// The layout of a weight that was packed before the export is what the user says; nothing guesses it.
#[test]
fn packed_4_bit_weights_lie_as_the_user_says() {
    let (model, reference) = (fixture("refused/int4pack.pt2"), fixture("weight_int4pack_mm.safetensors"));
    tool(&["verify", &model, &reference]).refuses("--int4pack-layout");
    let with = |layout: &str| tool(&["verify", &model, &reference, "--int4pack-layout", layout]);
    assert!(with("avx512").passes().stdout.starts_with("ok: 1 tensor as recorded"));
    with("avx2").fails();
    with("scalar").fails();
    let inspected = tool(&["inspect", &model, "--json", "--int4pack-layout", "avx512"]).passes().json();
    assert_eq!(inspected["methods"]["model"]["fusions"][0]["kind"], "linear_q4");
    let unknown = tool(&["inspect", &model, "--json"]).passes().json();
    assert_eq!(unknown["methods"]["model"]["unsupported"].as_array().unwrap().len(), 1);
}

#[test]
fn a_value_that_differs_is_found() {
    let folder = Folder::new("differs");
    let mut changed = references();
    let out = changed["model.inv1.out0"].clone();
    let mut values = out.to_f32s();
    values[5] += 1.0;
    changed.insert("model.inv1.out0".to_string(), HostTensor::from_f32(out.sizes(), &values).unwrap());
    let document = verify(&folder, "value", &changed).fails().json();
    assert_eq!((&document["ok"], &document["checked"]), (&false.into(), &2.into()));
    let failure = &document["failures"][0];
    assert_eq!(
        (&failure["method"], &failure["inv"], &failure["tensor"], &failure["index"]),
        (&"model".into(), &1.into(), &"out0".into(), &5.into())
    );
    assert!((failure["max_abs"].as_f64().unwrap() - 1.0).abs() < 1e-3, "{failure}");
    let file = folder.path("value.safetensors");
    let plain = tool(&["verify", &fixture("linear_const.pt2"), &file]).fails().stdout;
    assert!(plain.lines().last().unwrap().starts_with("FAILED: 1 failure, 2 tensors compared"), "{plain}");
    tool(&["verify", &fixture("linear_const.pt2"), &file, "--rtol", "0", "--atol", "2"]).passes();
}

#[test]
fn missing_surplus_and_unknown_references_are_failures() {
    let folder = Folder::new("references");
    let without = |name: &str| {
        let mut references = references();
        references.remove(name).unwrap();
        references
    };
    let with = |name: &str| {
        let mut references = references();
        references.insert(name.to_string(), HostTensor::from_f32(&[1], &[0.0]).unwrap());
        references
    };
    let mut other_shape = references();
    let out = other_shape["model.inv0.out0"].clone();
    let flat = out.reshaped(vec![out.len_elems()]).unwrap();
    other_shape.insert("model.inv0.out0".to_string(), flat);
    let cases = [
        ("missing", without("model.inv0.out0"), "no reference"),
        ("no-input", without("model.inv0.in0"), "`input`"),
        ("surplus", with("model.inv0.out9"), "nothing for this reference"),
        ("buffer", with("model.inv0.buf.nope"), "no buffer"),
        ("method", with("other.inv0.out0"), "`other`"),
        ("name", with("nonsense"), "METHOD.inv"),
        ("shape", other_shape, "float32["),
        ("empty", NamedTensors::new(), "nothing was compared"),
    ];
    for (name, references, text) in cases {
        let document: Json = verify(&folder, name, &references).fails().json();
        assert_eq!(document["ok"], false);
        let failures = document["failures"].to_string();
        assert!(failures.contains(text), "{name}: {failures}");
    }
    let unknown = tool(&[
        "verify",
        &fixture("linear_const.pt2"),
        &fixture("linear_const.safetensors"),
        "--method",
        "nope",
    ]);
    assert!(unknown.fails().stdout.contains("nope"));
}

#[test]
fn compare_names_the_node_whose_kernel_is_broken() {
    let model = fixture("kv_cache_decode.pt2");
    let sound = tool(&["compare", &model]).passes().stdout;
    assert!(sound.starts_with("ok: "), "{sound}");
    let broken = tool(&["compare", &model, "--break-kernel", "softmax"]).fails().stdout;
    let first = broken.lines().next().unwrap();
    assert!(first.contains("node _softmax (aten._softmax.default)"), "{broken}");
    assert!(broken.contains("the reference"), "{broken}");
}
