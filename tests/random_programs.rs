//! Random programs: all passes keep the values, on the host and on the device, over three runs with state, and no
//! `linear` has a live weight.
//!
//! `make random-long` is the long run: 2,000 programs instead of 100.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod common;

use common::{
    device,
    equivalence::{self, Device, Host, Runner},
    random,
};
use proptest::{prelude::*, test_runner::TestCaseError};
use vkdelegate::{
    ir::{self, Constness, Effect, Graph, Method, effect_of},
    passes::{self, Optimised},
};

/// Every weight of a `linear` is one that only a constant can be.
fn check_weights(graph: &Graph) {
    let constness = Constness::analyse(graph).unwrap();
    for (_, node) in graph.nodes() {
        if node.op.base() == "linear" {
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

/// Holds what `runner` gives to what `method` gives as the program has it.
fn same_values(method: &Method, after: &Method, runner: &mut dyn Runner) -> Result<(), TestCaseError> {
    let same = equivalence::check(method, runner, |run| random::inputs(method, run));
    prop_assert!(same.is_ok(), "{:?}\n{}became\n{}", same, method.graph, after.graph);
    Ok(())
}

fn choices() -> impl Strategy<Value = Vec<u16>> {
    prop::collection::vec(any::<u16>(), 30..300)
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn passes_keep_the_values(choices in choices()) {
        for method in random::grow(&choices) {
            let after = optimise(&method);
            if !is_refused(&after) {
                same_values(&method, &after.method, &mut Host::new(&after.method))?;
            }
        }
    }

    #[test]
    fn passes_and_device_keep_the_values(choices in choices()) {
        let methods = random::grow(&choices);
        let optimised: Vec<Optimised> = methods.iter().map(optimise).collect();
        let _turn = device::turn();
        // All delegates at once, so that what they share is shared.
        let mut delegates = Vec::new();
        for (method, after) in methods.iter().zip(&optimised).filter(|(_, after)| !is_refused(after)) {
            let built = Device::build(&device::context(), &after.method);
            prop_assert!(built.is_ok(), "{}\n{}became\n{}", built.err().unwrap(), method.graph, after.method.graph);
            delegates.push((method, &after.method, built.unwrap()));
        }
        for (method, after, delegate) in &mut delegates {
            same_values(method, after, &mut Host::new(after))?;
            same_values(method, after, delegate)?;
        }
        let messages = device::validation_messages();
        prop_assert!(messages.is_empty(), "{messages:#?}");
    }
}
