//! Random programs: all passes keep the values, on the host and on the device, over three runs with state, and no
//! `linear` has a live weight.
//!
//! `make random-long` is the long run: 2,000 programs instead of 100.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod common;

use common::{
    device,
    equivalence::{self, Device, Host},
    random,
};
use proptest::prelude::*;
use vkdelegate::{
    ir::{self, Constness, Effect, Graph, Method, effect_of},
    passes::{self, Optimised},
};

/// Every weight of a `linear` is one that only a constant can be.
fn check_weights(graph: &Graph) {
    let constness = Constness::analyse(graph).unwrap();
    for (_, node) in graph.nodes() {
        if node.op == *"aten.linear.default" {
            constness.tensor_ref(graph, node.value_arg("weight").unwrap()).unwrap();
        }
    }
}

/// 100 programs, or as many as `PROPTEST_CASES` says.
fn config() -> ProptestConfig {
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(100);
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

fn optimise(method: &Method) -> Optimised {
    ir::verify(&method.graph).unwrap();
    let optimised = passes::optimise(method, &passes::Options::default()).unwrap();
    ir::verify(&optimised.method.graph).unwrap();
    check_weights(&optimised.method.graph);
    optimised
}

/// Whether in-place ops are left, which the check before planning refuses: only with the reason.
fn is_refused(optimised: &Optimised) -> bool {
    let writes = optimised.method.graph.nodes().any(|(_, node)| effect_of(node) == Effect::Write);
    assert!(!writes || optimised.warnings.iter().any(|warning| warning.contains("in-place ops stay")));
    writes
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn passes_and_device_keep_the_values(choices in prop::collection::vec(any::<u16>(), 30..300)) {
        let methods = random::grow(&choices);
        let optimised: Vec<Optimised> = methods.iter().map(optimise).collect();
        let _turn = device::turn();
        // All delegates at once, so that what they share is shared.
        let mut delegates = Vec::new();
        for (method, after) in methods.iter().zip(&optimised).filter(|(_, after)| !is_refused(after)) {
            let built = Device::build(&device::context(), &after.method);
            prop_assert!(built.is_ok(), "{}\n{}became\n{}", built.err().unwrap(), method.graph, after.method.graph);
            delegates.push((method, after, built.unwrap()));
        }
        for (method, after, delegate) in &mut delegates {
            let inputs = |run| random::inputs(method, run);
            let on_host = equivalence::check(method, &mut Host::new(&after.method), inputs);
            prop_assert!(on_host.is_ok(), "host: {:?}\n{}became\n{}", on_host, method.graph, after.method.graph);
            let on_device = equivalence::check(method, delegate, inputs);
            prop_assert!(on_device.is_ok(), "device: {:?}\n{}became\n{}", on_device, method.graph, after.method.graph);
        }
        let messages = device::validation_messages();
        prop_assert!(messages.is_empty(), "{messages:#?}");
    }
}
