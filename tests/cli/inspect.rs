//! `devices` and `inspect`.

use crate::support::{fixture, tool};

#[test]
fn devices_are_listed_with_what_they_can_do() {
    let document = tool(&["devices", "--json"]).passes().json();
    let devices = document["devices"].as_array().unwrap();
    assert!(!devices.is_empty());
    for device in devices {
        for key in ["name", "class", "driver", "driver_info", "vulkan", "uuid"] {
            assert!(device[key].is_string(), "{key} in {device}");
        }
        assert!(device["limits"]["max_storage_buffer_range_bytes"].as_u64().unwrap() >= 1 << 27);
        assert!(device["features"]["buffer_device_address"].is_boolean());
    }
    let plain = tool(&["devices"]).passes().stdout;
    assert!(plain.contains(devices[0]["name"].as_str().unwrap()));
}

#[test]
fn rewrites_and_their_reasons_are_told() {
    let document = tool(&["inspect", &fixture("kv_cache_decode.pt2"), "--json"]).passes().json();
    let method = &document["methods"]["model"];
    assert_eq!((&method["ops"]["linear"], &method["ops"]["bmm"]), (&4.into(), &2.into()));
    let decisions = method["decisions"].as_array().unwrap();
    let kept = decisions.iter().find(|decision| decision["became"] == "bmm").unwrap();
    assert_eq!((&kept["op"], &kept["constant"]), (&"bmm".into(), &false.into()));
    assert!(kept["reason"].as_str().unwrap().contains("k_cache"), "{kept}");
    let linear = decisions.iter().find(|decision| decision["became"] == "linear").unwrap();
    assert_eq!(linear["constant"], true);
    for key in ["node", "operand"] {
        assert!(linear[key].is_string(), "{key} in {linear}");
    }
    assert!(method["fusions"].is_array());
    assert_eq!(method["unsupported"].as_array().unwrap().len(), 0);
    assert!(method["memory"]["constant_bytes"].as_u64().unwrap() > 0);
}

#[test]
fn each_method_has_its_name_in_the_archive() {
    let document = tool(&["inspect", &fixture("multimethod_lora.pt2"), "--json"]).passes().json();
    let names: Vec<&String> = document["methods"].as_object().unwrap().keys().collect();
    assert_eq!(names, ["base", "lora"]);
    let document =
        tool(&["inspect", &fixture("linear_const.pt2"), "--method", "forward", "--json"]).passes().json();
    assert!(document["methods"]["model"].is_object());
    tool(&["inspect", &fixture("multimethod_lora.pt2"), "--method", "nope"]).refuses("base, lora");
}

#[test]
fn what_cannot_run_is_listed_and_no_error() {
    let document = tool(&["inspect", &fixture("refused/several_unsupported.pt2"), "--json"]).passes().json();
    let method = &document["methods"]["model"];
    let unsupported = method["unsupported"].as_array().unwrap();
    assert!(unsupported.len() >= 3, "{unsupported:?}");
    for refusal in unsupported {
        assert!(refusal["node"].is_string() && refusal["op"].is_string() && refusal["reason"].is_string());
    }
    assert!(method["memory"].is_null());
}
