//! Every fixture after all passes has the counts that the manifest asks for.
//!
//! Where the manifest gives a range, the answer with the most `linear` is the one that is wanted.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::{collections::BTreeMap, path::Path};

use serde_json::Value;
use vkdelegate::{import, passes};

fn fixtures() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures"))
}

/// What is wrong with the counts of one method.
fn wrong_counts(expected: &Value, ops: &BTreeMap<String, usize>) -> Vec<String> {
    let count = |op: &str| ops.get(op).copied().unwrap_or(0) as u64;
    let mut wrong = Vec::new();
    for (op, want) in expected.as_object().unwrap() {
        let got = match op.as_str() {
            "total" => count("linear") + count("mm") + count("addmm"),
            op => count(op),
        };
        let fits = match want {
            Value::Array(range) if op == "linear" => range[1].as_u64() == Some(got),
            Value::Array(range) => (range[0].as_u64()..=range[1].as_u64()).contains(&Some(got)),
            want => want.as_u64() == Some(got),
        };
        if !fits {
            wrong.push(format!("{op}: want {want}, got {got}"));
        }
    }
    wrong
}

#[test]
fn every_fixture_has_the_counts_of_the_manifest() {
    let manifest = std::fs::read_to_string(fixtures().join("manifest.json")).unwrap();
    let manifest: Value = serde_json::from_str(&manifest).unwrap();
    let mut wrong = Vec::new();
    let mut checked = 0;
    for (name, case) in manifest["cases"].as_object().unwrap() {
        let program = import::open(&fixtures().join(case["archive"].as_str().unwrap())).unwrap();
        for method in &program.methods {
            let optimised = passes::optimise(method, &passes::Options::default()).unwrap();
            let expected = &case["programs"][method.graph.name()]["expect_after_rewrite"];
            let reasons: Vec<&str> = optimised.decisions.iter().map(|d| d.reason.as_str()).collect();
            for text in wrong_counts(expected, optimised.ops()) {
                wrong.push(format!("{name}, {}: {text}\n  {}", method.graph.name(), reasons.join("\n  ")));
            }
            checked += 1;
        }
    }
    assert!(checked > 30, "only {checked} programs were found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
