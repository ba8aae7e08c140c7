//! What a run costs the host when its shapes were run before: it submits, and records, allocates and compiles nothing.

use vkdelegate::{
    base::Value,
    delegate::{BuildHooks, BuildOptions, Session},
    gpu::Counters,
};

use crate::support::*;

/// Softmaxes do not fuse, so that there are as many dispatches; one node has status words, one writes state.
fn text() -> String {
    let mut text = "graph replayed
input %count: float32[6, 8] = buffer \"count\"
input %w: float32[8, 8] = parameter \"w\"
input %x: float32[s0, 8]
input %ids: int64[6]
%h0: float32[s0, 8] = aten.linear.default(input=%x, weight=%w)
"
    .to_string();
    for step in 0..20 {
        let next = step + 1;
        text += &format!(
            "%h{next}: float32[s0, 8] = aten._softmax.default(self=%h{step}, dim={}, half_to_float=false)\n",
            step % 2
        );
    }
    text + "%rows: float32[6, 8] = aten.index_select.default(self=%h20, dim=0, index=%ids)
%n: float32[6, 8] = aten.add.Tensor(self=%count, other=%rows)
output %n -> %count
output %h20
output %rows
"
}

fn inputs(rows: usize) -> [Value; 2] {
    [floats(&[rows, 8], rows), ints(&[0, 3, 1, 2, 0, 3])]
}

#[test]
fn a_replay_submits_what_was_recorded_and_does_nothing_else() {
    let method = dynamic_program(&text(), &[("s0", 4, 64)]);
    on_each_route(|context| {
        for per_submission in [usize::MAX, 8] {
            let hooks = BuildHooks {
                trusts_lanes: true,
                dispatches_per_submission: Some(per_submission),
                ..BuildHooks::default()
            };
            let options = BuildOptions { hooks, timestamps: true, ..BuildOptions::default() };
            let mut session = Session::build(context, method.clone(), options).unwrap();
            let shapes = [64, 4, 17];
            for rows in shapes {
                run(&mut session, &inputs(rows));
            }
            let dispatches = session.plan().unwrap().dispatches.len();
            assert!(dispatches > 20, "{dispatches}");
            let submissions = dispatches.div_ceil(per_submission) as u64;
            let before = context.gpu().counters();
            for round in 1..=4 {
                for (index, rows) in (1..).zip(shapes) {
                    run(&mut session, &inputs(rows));
                    let runs = (round - 1) * shapes.len() as u64 + index;
                    let want = Counters { submissions: before.submissions + runs * submissions, ..before };
                    assert_eq!(context.gpu().counters(), want);
                }
            }
        }
    });
}
