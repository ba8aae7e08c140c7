//! `bench`: its document holds every key, with null for what is not available.

use serde_json::Value as Json;

use crate::support::{fixture, tool};

const KEYS: [&str; 14] = [
    "device",
    "driver",
    "shape",
    "dtype",
    "runs",
    "wall_ms",
    "cpu_ms",
    "gpu_ms",
    "gflops",
    "cpu_gflops",
    "gbps",
    "memory",
    "kernels",
    "load_ms",
];

fn check(document: &Json) {
    for key in KEYS {
        assert!(document.get(key).is_some(), "{key} is missing in {document}");
    }
    for key in ["min", "p50", "p90"] {
        assert!(document["wall_ms"][key].as_f64().unwrap() > 0.0, "{key} in {document}");
    }
    assert!(document["first_run_ms"].as_f64().unwrap() > 0.0);
    let kernels = document["kernels"].as_array().unwrap();
    assert!(kernels.iter().all(|kernel| kernel["name"].is_string() && kernel["count"].as_u64().unwrap() > 0));
    assert!(document["memory"]["constant_bytes"].as_u64().unwrap() > 0);
}

#[test]
fn one_op_is_timed() {
    for dtype in ["f32", "f16"] {
        let arguments =
            ["bench", "--op", "linear", "--shape", "4x64x32", "--dtype", dtype, "--runs", "3", "--json"];
        let document = tool(&arguments).passes().json();
        check(&document);
        assert_eq!(
            (&document["op"], &document["shape"], &document["dtype"]),
            (&"linear".into(), &"4x64x32".into(), &dtype.into())
        );
        assert_eq!(document["runs"], 3);
        assert!(document["gflops"].as_f64().unwrap() > 0.0);
        assert!(document.get("model").is_none());
    }
    let ran = tool(&["bench", "--op", "linear", "--shape", "4x64"]);
    assert_eq!(ran.code, 2);
}

#[test]
fn a_model_is_timed() {
    let model = fixture("mini_bert.pt2");
    let document = tool(&["bench", &model, "--runs", "2", "--json"]).passes().json();
    check(&document);
    assert_eq!(document["model"], model);
    assert!(document["gflops"].is_null() && document.get("op").is_none());
    assert!(tool(&["bench", &model, "--runs", "2"]).passes().stdout.contains("wall"));
}
