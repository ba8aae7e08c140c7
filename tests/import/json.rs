//! The program's JSON and the tables, key by key: a fault in any of them is an error, never a panic.

use serde_json::{Value, json};
use vkdelegate::import::LoadedProgram;

use super::common::{program, zip};
use super::{fixture, load, on_small_stack, read_constants, refusal};

/// A change to one value of a JSON document.
#[derive(Clone, Copy, Debug)]
enum Change {
    Remove,
    Null,
    WrongType,
    Huge,
    Negative,
}

/// Applies `change` to the value number `target` in document order; false when there are fewer.
fn change_value(value: &mut Value, target: &mut usize, change: Change) -> bool {
    let children: Vec<&mut Value> = match value {
        Value::Object(map) => {
            let keys: Vec<String> = map.keys().cloned().collect();
            for key in keys {
                if *target == 0 && matches!(change, Change::Remove) {
                    map.remove(&key);
                    return true;
                }
                if *target == 0 {
                    map.insert(key.clone(), changed(&map[&key], change));
                    return true;
                }
                *target -= 1;
                if change_value(&mut map[&key], target, change) {
                    return true;
                }
            }
            return false;
        }
        Value::Array(items) => items.iter_mut().collect(),
        _ => return false,
    };
    children.into_iter().any(|child| change_value(child, target, change))
}

fn changed(value: &Value, change: Change) -> Value {
    match (change, value) {
        (Change::Huge, _) => serde_json::from_str("123456789012345678901234567890").unwrap(),
        (Change::Negative, _) => json!(i64::MIN),
        (Change::WrongType, Value::String(_)) => json!(7),
        (Change::WrongType, Value::Array(_)) => json!({"as_int": 1}),
        (Change::WrongType, Value::Object(_)) => json!([1]),
        (Change::WrongType, _) => json!("text"),
        _ => Value::Null,
    }
}

/// Text form without the names of nodes, which a file may leave out.
fn text(program: &LoadedProgram) -> Vec<String> {
    let texts = program.methods.iter().map(|method| method.graph.to_string());
    texts
        .flat_map(|text| {
            text.lines().map(|line| line.split(" as ").next().unwrap().to_owned()).collect::<Vec<_>>()
        })
        .collect()
}

/// Changes every key of the entry `name` of a fixture, one at a time.
fn change_every_key(archive: &str, name: &str) {
    let original = std::fs::read(fixture(archive)).unwrap();
    let expected = text(&load(original.clone()).unwrap());
    let mut entries = zip::unzip(&original);
    let at = entries.iter().position(|(entry, _)| entry.ends_with(name)).unwrap();
    let document: Value = serde_json::from_slice(&entries[at].1).unwrap();
    for change in [Change::Remove, Change::Null, Change::WrongType, Change::Huge, Change::Negative] {
        let mut index = 0;
        loop {
            let mut document = document.clone();
            if !change_value(&mut document, &mut index.clone(), change) {
                break;
            }
            entries[at].1 = document.to_string().into();
            if let Ok(program) = load(zip::rezip(&entries)) {
                let _ = read_constants(&program);
                if matches!(change, Change::Remove | Change::Null | Change::WrongType) {
                    assert_eq!(text(&program), expected, "{archive}: key {index}, {change:?}");
                }
            }
            index += 1;
        }
        assert!(index > 10);
    }
}

#[test]
fn every_key_of_a_program() {
    change_every_key("symint_input.pt2", "models/model.json");
    change_every_key("user_input_mutation.pt2", "models/model.json");
}

#[test]
fn every_key_of_a_program_with_lists_and_symbols() {
    change_every_key("dynamic_batch.pt2", "models/model.json");
}

#[test]
fn every_key_of_a_table() {
    change_every_key("weight_aliases.pt2", "weights_config.json");
    change_every_key("kv_cache_decode.pt2", "constants_config.json");
}

#[test]
fn another_schema_version_is_refused_as_such() {
    let mut parts = program::parts();
    parts.program["schema_version"]["major"] = json!(9);
    parts.program["graph_module"] = json!("of another shape");
    let text = refusal(parts.pack());
    assert!(text.contains("schema version 9.20, written by torch 2.15.0"), "{text}");
}

#[test]
fn newer_fields_are_ignored() {
    let mut parts = program::parts();
    parts.program["schema_version"]["minor"] = json!(99);
    parts.program["graph_module"]["graph"]["new_field"] = json!({"deep": [1, {"x": null}]});
    parts.program["graph_module"]["graph"]["nodes"][0]["new_field"] = json!("text");
    load(parts.pack()).unwrap();
}

#[test]
fn nesting_does_not_use_up_the_stack() {
    on_small_stack(|| {
        let parts = program::parts();
        let text = parts.program.to_string();
        let deep_array = "[".repeat(100_000) + &"]".repeat(100_000);
        let deep_object = "{\"a\":".repeat(100_000) + "1" + &"}".repeat(100_000);
        let graph = "{\"inputs\":[],\"outputs\":[],\"nodes\":[{\"target\":\"t\",\"outputs\":[],\"inputs\":[{\"name\":\"g\",\"arg\":{\"as_graph\":{\"name\":\"g\",\"graph\":";
        let deep_graph = graph.repeat(10_000) + "1" + &"}}}]}]}".repeat(10_000);
        for deep in [&deep_array, &deep_object, &deep_graph] {
            let ignored = text.replacen("\"metadata\":{}", &format!("\"metadata\":{deep}"), 1);
            load(parts.pack_with_program(&ignored)).unwrap();
            let as_arg = text.replacen("\"arg\":{", &format!("\"arg\":{deep},\"x\":{{"), 1);
            load(parts.pack_with_program(&as_arg)).unwrap_err();
            load(parts.pack_with_program(deep)).unwrap_err();
        }
        let as_graph = text.replacen(
            "\"arg\":{",
            &format!("\"arg\":{{\"as_graph\":{{\"name\":\"g\",\"graph\":{deep_graph}}}}},\"x\":{{"),
            1,
        );
        let refused = refusal(parts.pack_with_program(&as_graph));
        assert!(refused.contains("higher-order"), "{refused}");
    });
}

#[test]
fn counts_have_limits() {
    let parts = program::parts();
    let text = parts.program.to_string();
    let many = vec![r#"{"as_none":true}"#; 1_000_000].join(",");
    let inputs = text.replacen("\"inputs\":[", &format!("\"inputs\":[{many},"), 1);
    assert!(refusal(parts.pack_with_program(&inputs)).contains("the limit is"));
}

#[test]
fn non_finite_floats_come_as_strings_or_bare_words() {
    for (word, expected) in [
        ("\"-Infinity\"", "value=-inf"),
        ("\"Infinity\"", "value=inf"),
        ("\"NaN\"", "value=NaN"),
        ("-Infinity", "value=-inf"),
        ("Infinity", "value=inf"),
        ("NaN", "value=NaN"),
        ("0.1", "value=0.1"),
        ("1e-05", "value=1e-5"),
    ] {
        let mut parts = program::parts();
        let nodes = &mut parts.program["graph_module"]["graph"]["nodes"];
        nodes[0]["inputs"][1] = json!({"name": "value", "arg": {"as_float": "HERE"}, "kind": 1});
        let text = parts.program.to_string().replace("\"HERE\"", word);
        let graph = super::load_method(parts.pack_with_program(&text)).unwrap().graph.to_string();
        assert!(graph.contains(expected), "{word}: {graph}");
    }
    let mut parts = program::parts();
    let nodes = &mut parts.program["graph_module"]["graph"]["nodes"];
    nodes[0]["inputs"][1] = json!({"name": "value", "arg": {"as_float": "infinite"}, "kind": 1});
    assert!(refusal(parts.pack()).contains("infinite"));
}
