//! State on the device: it persists, is a session's own, is written in place only where that is sound, and is refused after a failure.

use std::{collections::HashMap, sync::Arc};

use vkdelegate::{
    base::{DType, ErrorKind, HostTensor, Value},
    delegate::{BuildOptions, Context, Session},
    gpu::GpuError,
    ir::Method,
    ops::Precision,
};

use crate::{common::reference, support::*};

/// Writes row `position` of a cache of 4 rows, and gives the sum over all rows.
pub const CACHE: &str = "graph cache
input %cache: float32[4, 3] = buffer \"cache\"
input %row: float32[1, 3]
input %position: int64[1]
%new: float32[4, 3] = aten.index_put.default(self=%cache, indices=[%position], values=%row)
%sum: float32[3] = aten.sum.dim_IntList(self=%new, dim=[0], keepdim=false)
output %new -> %cache
output %sum
";

/// A cache written at a position that the host knows.
const SLICED: &str = "graph sliced
input %cache: float32[4, 3] = buffer \"cache\"
input %row: float32[1, 3]
input %position: int(s0)
%end: int(s0 + 1) = _operator.add(a=%position, b=1)
%new: float32[4, 3] = aten.slice_scatter.default(self=%cache, src=%row, dim=0, start=%position, end=%end)
output %new -> %cache
output %new
";

/// Runs on the device and on the host side by side, and compares outputs and all states.
struct Twin {
    session: Session,
    states: HashMap<String, HostTensor>,
}

impl Twin {
    fn new(context: &Arc<Context>, method: &Method) -> Twin {
        Twin::with_options(context, method, BuildOptions::default())
    }

    fn with_options(context: &Arc<Context>, method: &Method, options: BuildOptions) -> Twin {
        let session =
            Session::build(context, method.clone(), options).unwrap_or_else(|error| panic!("{error}"));
        Twin { session, states: HashMap::new() }
    }

    fn run(&mut self, inputs: &[Value]) {
        let graph = self.session.method().graph.clone();
        let (want, states) = reference::run(&graph, inputs, &self.states);
        assert_close(&run(&mut self.session, inputs), &want);
        for (name, value) in &states {
            assert_close(&[self.session.state(name).unwrap()], std::slice::from_ref(value));
        }
        self.states = states;
    }
}

fn cache_inputs(position: i64, seed: usize) -> [Value; 2] {
    [floats(&[1, 3], seed), ints(&[position])]
}

#[test]
fn state_persists_resets_and_is_a_sessions_own() {
    let method = program(CACHE);
    on_each_route(|context| {
        let (mut one, mut two) = (Twin::new(context, &method), Twin::new(context, &method));
        let initial = one.session.state("cache").unwrap();
        for position in 0..4 {
            one.run(&cache_inputs(position, position as usize));
        }
        assert_eq!(two.session.state("cache").unwrap(), initial);
        two.run(&cache_inputs(2, 9));
        one.run(&cache_inputs(3, 5));
        one.session.reset().unwrap();
        assert_eq!(one.session.state("cache").unwrap(), initial);
        one.states.clear();
        one.run(&cache_inputs(1, 7));
        let set = ramp(DType::F32, &[4, 3], 3);
        one.session.set_state("cache", &set).unwrap();
        one.states.insert("cache".into(), set);
        one.run(&cache_inputs(0, 8));
        assert_eq!(one.session.state_names().collect::<Vec<_>>(), ["cache"]);
    });
}

#[test]
fn a_refused_call_changes_no_state() {
    let method = program(CACHE);
    on_each_route(|context| {
        let mut twin = Twin::new(context, &method);
        twin.run(&cache_inputs(1, 4));
        let before = twin.session.state("cache").unwrap();
        twin.session.run(&[floats(&[1, 4], 0), ints(&[1])]).unwrap_err();
        twin.session.run(&[floats(&[1, 3], 0)]).unwrap_err();
        let error = twin.session.set_state("cache", &ramp(DType::F32, &[3, 4], 0)).unwrap_err();
        assert!(error.to_string().contains("[4, 3]") && error.to_string().contains("[3, 4]"), "{error}");
        let error = twin.session.set_state("cash", &before).unwrap_err();
        assert!(error.to_string().contains("`cash`") && error.to_string().contains("cache"), "{error}");
        assert_eq!(twin.session.state("cache").unwrap(), before);
        twin.run(&cache_inputs(2, 6));
    });
}

#[test]
fn a_write_past_the_capacity_names_the_node_and_poisons_the_state() {
    let method = program(CACHE);
    on_each_route(|context| {
        for position in [4, -5, i64::from(i32::MAX)] {
            let mut twin = Twin::new(context, &method);
            twin.run(&cache_inputs(1, 4));
            let error = twin.session.run(&cache_inputs(position, 5)).unwrap_err();
            assert_eq!((error.kind(), error.node()), (ErrorKind::BadData, Some("new")));
            assert!(error.to_string().contains(&format!("the index {position} is out of range")), "{error}");
            for error in
                [twin.session.run(&cache_inputs(1, 5)).unwrap_err(), twin.session.state("cache").unwrap_err()]
            {
                assert_eq!(error.kind(), ErrorKind::PoisonedState);
                assert!(
                    error.to_string().contains("new") && error.to_string().contains("reset()"),
                    "{error}"
                );
            }
            if position == 4 {
                twin.session.reset().unwrap();
                twin.states.clear();
            } else {
                let set = ramp(DType::F32, &[4, 3], 3);
                twin.session.set_state("cache", &set).unwrap();
                twin.states.insert("cache".into(), set);
            }
            twin.run(&cache_inputs(-1, 5));
        }
    });
}

#[test]
fn a_slice_is_written_up_to_the_last_position_and_not_past_it() {
    let method = dynamic_program(SLICED, &[("s0", 0, 10)]);
    on_each_route(|context| {
        let error = try_build(context, &method).map(|_| ()).unwrap_err();
        assert_eq!(error.node(), Some("new"), "a range that leaves the cache is refused: {error}");
    });
    let method = dynamic_program(SLICED, &[("s0", 0, 3)]);
    on_each_route(|context| {
        let mut twin = Twin::new(context, &method);
        let inputs = |position| [floats(&[1, 3], 2), Value::Int(position)];
        for position in 0..4 {
            twin.run(&inputs(position));
        }
        let before = twin.session.state("cache").unwrap();
        let error = twin.session.run(&inputs(4)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
        assert_eq!(twin.session.state("cache").unwrap(), before, "a refused run changes nothing");
        twin.run(&inputs(3));
    });
}

/// Programs whose states may or may not be written in place, and how the plan says it is done.
pub fn writers() -> [(&'static str, String, &'static [bool]); 7] {
    let state = |name: &str| format!("input %{name}: float32[6, 6] = buffer \"{name}\"\n");
    let x = "input %x: float32[6, 6]\n";
    let a = state("a");
    let ab = state("a") + &state("b");
    let add = |to: &str, left: &str, right: &str| {
        format!("%{to}: float32[6, 6] = aten.add.Tensor(self=%{left}, other=%{right})\n")
    };
    let transposed = "%t: float32[6, 6] = aten.permute.default(self=%a, dims=[1, 0])\n";
    [
        ("elementwise", format!("{a}{x}{}output %n -> %a\noutput %n\n", add("n", "a", "x")), &[true]),
        ("swap", format!("{ab}{x}output %b -> %a\noutput %a -> %b\noutput %x\n"), &[false, false]),
        ("old_returned", format!("{a}{x}{}output %n -> %a\noutput %a\n", add("n", "a", "x")), &[false]),
        (
            "old_read_later",
            format!("{a}{x}{}{}output %n -> %a\noutput %late\n", add("n", "a", "x"), add("late", "a", "n")),
            &[false],
        ),
        (
            "old_read_through_a_view",
            format!("{a}{x}{transposed}{}output %n -> %a\noutput %n\n", add("n", "a", "t")),
            &[false],
        ),
        (
            "crossed",
            format!(
                "{ab}{x}{}{}output %na -> %a\noutput %nb -> %b\noutput %nb\n",
                add("na", "a", "b"),
                add("nb", "b", "x")
            ),
            &[true, true],
        ),
        ("view_of_itself", format!("{a}{x}{transposed}output %t -> %a\noutput %t\noutput %a\n"), &[false]),
    ]
}

#[test]
fn states_are_written_in_place_only_where_nobody_needs_the_old_value() {
    on_each_route(|context| {
        for (name, text, in_place) in writers() {
            let mut twin = Twin::new(context, &program(&format!("graph {name}\n{text}")));
            let plan = twin.session.plan().unwrap();
            let got: Vec<bool> = plan.states.iter().map(|state| state.in_place).collect();
            assert_eq!(got, in_place, "{name}: {plan}");
            for seed in 0..5 {
                twin.run(&[floats(&[6, 6], seed)]);
            }
        }
    });
}

/// All values here are exact in half precision, whether a node is pinned or not.
#[test]
fn states_in_half_precision_keep_their_values() {
    on_each_route(|context| {
        for pinned in [None, Some("n"), Some("nb")] {
            for (name, text, _) in writers() {
                let options = BuildOptions {
                    precision: Precision::F16,
                    pinned_f32: pinned.iter().map(ToString::to_string).collect(),
                    ..BuildOptions::default()
                };
                let method = program(&format!("graph {name}\n{text}"));
                let mut twin = Twin::with_options(context, &method, options);
                for seed in 0..5 {
                    twin.run(&[floats(&[6, 6], seed)]);
                }
            }
        }
    });
}

#[test]
fn a_lost_device_is_what_a_stateful_session_reports() {
    let method = program(CACHE);
    on_each_access_with_hooks(|context, hooks| {
        let mut session = build(context, &method);
        run(&mut session, &cache_inputs(0, 0));
        hooks.lose_at_wait(1);
        let lost = GpuError::DeviceLost.to_string();
        for error in [
            session.run(&cache_inputs(0, 0)).unwrap_err(),
            session.run(&cache_inputs(0, 0)).unwrap_err(),
            session.state("cache").unwrap_err(),
            session.reset().unwrap_err(),
        ] {
            assert_eq!((error.kind(), error.to_string()), (ErrorKind::DeviceLost, lost.clone()));
        }
    });
}
