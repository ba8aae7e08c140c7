//! `bench`: its document holds every key, with null for what is not available.

use serde_json::Value as Json;

use crate::support::{Folder, fixture, tool};

const KEYS: [&str; 18] = [
    "device",
    "driver",
    "shape",
    "dtype",
    "repeat",
    "warm_up",
    "runs",
    "wall_ms",
    "cpu_ms",
    "gpu_ms",
    "gflops",
    "cpu_gflops",
    "gbps",
    "memory",
    "kernels",
    "open_ms",
    "load_ms",
    "warm",
];

fn check(document: &Json) {
    for key in KEYS {
        assert!(document.get(key).is_some(), "{key} is missing in {document}");
    }
    for key in ["min", "p50", "p90"] {
        assert!(document["wall_ms"][key].as_f64().unwrap() > 0.0, "{key} in {document}");
    }
    for load in [document, &document["warm"]] {
        for key in ["open_ms", "load_ms", "first_run_ms"] {
            assert!(load[key].as_f64().unwrap() > 0.0, "{key} in {document}");
        }
    }
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
fn a_convolution_is_benched_by_the_sizes_of_its_operands() {
    for (op, shape, weight_elems) in
        [("conv", "1x4x6x6,8x2x3x3,2", 144), ("conv-transpose", "1x4x9,4x3x4,2", 48)]
    {
        let document =
            tool(&["bench", "--op", op, "--shape", shape, "--runs", "2", "--json"]).passes().json();
        check(&document);
        assert_eq!((&document["op"], &document["shape"]), (&op.into(), &shape.into()));
        assert!(document["memory"]["constant_bytes"].as_u64().unwrap() >= 4 * weight_elems);
    }
    for wrong in [["conv", "4x64x32"], ["linear", "1x4x9,4x3x4"], ["conv", "1x4x9,4x3x4x4"]] {
        assert_eq!(tool(&["bench", "--op", wrong[0], "--shape", wrong[1]]).code, 2, "{wrong:?}");
    }
}

/// Launches of one run, whatever the kernels.
fn launches(document: &Json) -> u64 {
    let kernels = document["kernels"].as_array().unwrap();
    kernels.iter().map(|kernel| kernel["count"].as_u64().unwrap()).sum()
}

#[test]
fn several_ops_go_into_one_submission_each_with_its_weights() {
    for dtype in ["f32", "int4"] {
        let bench = |repeat: &str| {
            let op = ["bench", "--op", "linear", "--shape", "1x64x32", "--dtype", dtype, "--repeat", repeat];
            tool(&[&op[..], &["--runs", "2", "--warm-up", "0", "--json"]].concat()).passes().json()
        };
        let (one, three) = (bench("1"), bench("3"));
        check(&three);
        assert_eq!((&three["repeat"], &three["warm_up"]), (&3.into(), &0.into()));
        assert_eq!(launches(&three), 3 * launches(&one), "{dtype}");
        let constants = |document: &Json| document["memory"]["constant_bytes"].as_u64().unwrap();
        assert!(constants(&three) > 2 * constants(&one), "{dtype}");
    }
    assert_eq!(
        tool(&["bench", &fixture("mini_bert.pt2"), "--repeat", "2"]).code,
        2,
        "models take no --repeat"
    );
}

/// A folder of kernels that is named is kept, one that is not goes away.
#[test]
fn kernels_are_kept_for_the_warm_load() {
    let folder = Folder::new("bench-cache");
    let op = ["bench", "--op", "linear", "--shape", "2x8x8", "--runs", "1", "--json"];
    tool(&[&op[..], &["--cache-dir", &folder.path("kernels")]].concat()).passes();
    assert_eq!(std::fs::read_dir(folder.path("kernels")).unwrap().count(), 1);
}

#[test]
fn a_model_is_timed() {
    let model = fixture("mini_bert.pt2");
    let document = tool(&["bench", &model, "--runs", "2", "--json"]).passes().json();
    check(&document);
    assert_eq!(document["model"], model);
    assert!(document["gflops"].is_null() && document.get("op").is_none());
    let table = tool(&["bench", &model, "--runs", "2"]).passes().stdout;
    for row in ["wall", "cpu", "gpu", "memory", "cold", "warm"] {
        assert!(table.lines().any(|line| line.trim_start().starts_with(row)), "{row} in {table}");
    }
}
