//! Every fixture after all passes has the counts that the manifest asks for.
//!
//! Where the manifest gives a range, the answer with the most `linear` is the one that is wanted.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::{collections::BTreeMap, path::Path};

use serde_json::Value;
use vkdelegate::{
    import,
    ir::{Effect, Node, OpName, effect_of},
    ops,
    passes::{self, Fusion},
};

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

/// What is wrong with the fusions of one method, where the manifest tells how many there are of each kind.
fn wrong_fusions(expected: &Value, fusions: &[Fusion]) -> Option<String> {
    let mut got: BTreeMap<&str, u64> = BTreeMap::new();
    for fusion in fusions {
        *got.entry(&fusion.kind).or_insert(0) += 1;
    }
    let expected = expected.as_object()?;
    let want: BTreeMap<&str, u64> =
        expected.iter().map(|(kind, count)| (kind.as_str(), count.as_u64().unwrap())).collect();
    (got != want).then(|| format!("fusions: want {want:?}, got {got:?}"))
}

fn manifest() -> Value {
    serde_json::from_str(&std::fs::read_to_string(fixtures().join("manifest.json")).unwrap()).unwrap()
}

/// Every name in the programs of the fixtures, and every one that has a kernel, is one whose effect is known.
#[test]
fn every_quantise_name_is_in_the_table() {
    let manifest = manifest();
    let cases = manifest["cases"].as_object().unwrap().values();
    let programs = cases.flat_map(|case| case["programs"].as_object().unwrap().values());
    let found: Vec<&str> =
        programs.flat_map(|program| program["ops"].as_object().unwrap().keys()).map(String::as_str).collect();
    let quantised = found.iter().filter(|name| name.contains("quantize_")).count();
    assert!(quantised > 10, "only {quantised} names quantise");
    for name in found.into_iter().chain(ops::supported_targets()) {
        let node = Node { name: String::new(), op: OpName::new(name), args: vec![], outputs: vec![] };
        let effect = effect_of(&node);
        let is_operator = name.starts_with('<');
        assert!(is_operator || !matches!(effect, Effect::Unknown | Effect::Opaque), "{name}: {effect:?}");
        let quantises = node.op.base().starts_with("quantize_");
        assert_eq!(effect == Effect::Quantize, quantises, "{name}: {effect:?}");
        let dequantises = node.op.base().starts_with("dequantize_");
        assert_eq!(effect == Effect::Dequantize, dequantises, "{name}: {effect:?}");
    }
}

#[test]
fn every_fixture_has_the_counts_of_the_manifest() {
    let manifest = manifest();
    let mut wrong = Vec::new();
    let (mut checked, mut told) = (0, 0);
    for (name, case) in manifest["cases"].as_object().unwrap() {
        let program = import::open(&fixtures().join(case["archive"].as_str().unwrap())).unwrap();
        for method in &program.methods {
            // The manifest counts nodes and quantised fusions, not what is fused after them.
            let options = passes::Options { unfused: true, ..passes::Options::default() };
            let optimised = passes::optimise(method, &options).unwrap();
            let expected = &case["programs"][method.graph.name()]["expect_after_rewrite"];
            let reasons: Vec<&str> = optimised.decisions.iter().map(|d| d.reason.as_str()).collect();
            let fusions = &case["programs"][method.graph.name()]["expect_fusions"];
            let fused = wrong_fusions(fusions, &optimised.fusions);
            for text in wrong_counts(expected, optimised.ops()).into_iter().chain(fused) {
                wrong.push(format!("{name}, {}: {text}\n  {}", method.graph.name(), reasons.join("\n  ")));
            }
            checked += 1;
            told += usize::from(fusions.is_object());
        }
    }
    assert!(checked > 30, "only {checked} programs were found");
    assert!(told > 20, "only {told} programs say what is fused");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
