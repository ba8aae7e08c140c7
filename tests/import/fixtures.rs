//! Every fixture opens, and is what its manifest says.

use std::collections::BTreeMap;

use serde_json::Value;
use vkdelegate::import;
use vkdelegate::ir::{InputKind, OutputKind, parse_graph};

use super::{fixture, read_constants, refusal};

fn manifest() -> serde_json::Map<String, Value> {
    let text = std::fs::read_to_string(fixture("manifest.json")).unwrap();
    let manifest: Value = serde_json::from_str(&text).unwrap();
    manifest["cases"].as_object().unwrap().clone()
}

/// The manifest's op counts as the file has them: Python's operators under their module's name, and no
/// `getitem`, since a call names all its results itself.
fn expected_ops(manifest: &Value) -> BTreeMap<String, u64> {
    let counts = manifest.as_object().unwrap().iter();
    let named = counts.map(|(name, count)| {
        let operator = name.strip_prefix("<built-in function ").and_then(|rest| rest.strip_suffix('>'));
        (operator.map_or(name.clone(), |name| format!("_operator.{name}")), count.as_u64().unwrap())
    });
    named.filter(|(name, _)| name != "_operator.getitem").collect()
}

#[test]
fn every_fixture_has_the_ops_of_its_manifest() {
    let cases = manifest();
    assert!(cases.len() >= 40);
    for (case, entry) in &cases {
        let program = import::open(&fixture(entry["archive"].as_str().unwrap())).unwrap();
        read_constants(&program).unwrap();
        let programs = entry["programs"].as_object().unwrap();
        assert_eq!(program.methods.len(), programs.len(), "{case}");
        for method in &program.methods {
            let expected = &programs[method.graph.name()];
            let mut ops: BTreeMap<String, u64> = BTreeMap::new();
            for (_, node) in method.graph.nodes() {
                *ops.entry(node.op.to_string()).or_default() += 1;
            }
            assert_eq!(ops, expected_ops(&expected["ops"]), "{case}");
            let mutations = method.graph.outputs().iter();
            let mut mutated: Vec<_> = mutations
                .filter_map(|output| match output.kind {
                    OutputKind::BufferMutation(target) => method.graph.input_of(target),
                    _ => None,
                })
                .filter_map(|input| input.kind.constant())
                .map(|id| method.graph.constant(id).unwrap().name().to_owned())
                .collect();
            mutated.sort_unstable();
            assert_eq!(serde_json::to_value(mutated).unwrap(), expected["mutated_buffers"], "{case}");
        }
    }
}

#[test]
fn text_form_of_every_fixture_parses_back() {
    for entry in manifest().values() {
        let archive = entry["archive"].as_str().unwrap();
        for method in import::open(&fixture(archive)).unwrap().methods {
            let text = method.graph.to_string();
            let again = parse_graph(&text).unwrap_or_else(|e| panic!("{archive}: {e}"));
            assert_eq!(again.to_string(), text, "{archive}");
        }
    }
}

#[test]
fn the_older_layout_is_refused_with_the_way_out() {
    let text = refusal(std::fs::read(fixture("legacy/legacy_2_5.pt2")).unwrap());
    assert!(text.contains("older layout") && text.contains("torch.export.save"), "{text}");
}

#[test]
fn a_path_that_cannot_be_read_is_named() {
    for path in [fixture("nothing.pt2"), fixture("legacy")] {
        let error = import::open(&path).unwrap_err();
        assert_eq!(error.kind(), vkdelegate::base::ErrorKind::Io);
        assert!(error.to_string().contains(&path.display().to_string()), "{error}");
    }
}

#[test]
fn non_persistent_buffers_come_from_the_constants_table() {
    let program = import::open(&fixture("kv_cache_decode.pt2")).unwrap();
    let graph = &program.methods[0].graph;
    let mask = graph.input_of(graph.value_named("b_mask").unwrap()).unwrap();
    let InputKind::Buffer(mask) = mask.kind else { panic!("the mask is a buffer") };
    let mask = graph.constant(mask).unwrap().to_tensor().unwrap().to_f32s();
    assert_eq!((mask[0], mask[1]), (0.0, f32::NEG_INFINITY));
}

#[test]
fn tensors_that_share_a_storage_share_its_payload() {
    let program = import::open(&fixture("weight_aliases.pt2")).unwrap();
    let graph = &program.methods[0].graph;
    let ids: Vec<_> = graph.inputs().iter().filter_map(|input| input.kind.constant()).collect();
    let payload = |index: usize| graph.constant(ids[index]).unwrap().payload().id();
    assert_eq!(ids.len(), 4);
    assert!((1..4).all(|index| payload(index) == payload(0)));
    let again = import::open(&fixture("weight_aliases.pt2")).unwrap();
    assert_ne!(again.methods[0].graph.constant(ids[0]).unwrap().payload().id(), payload(0));
}
