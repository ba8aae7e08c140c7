//! Whether a method does the same after passes as before.

use vkdelegate::{
    base::Value,
    ir::Method,
    ops::{States, interpret},
};

use super::{compare, memory};

/// Runs both methods three times with state; `before` with views and in-place ops as PyTorch has them.
///
/// `Err(Some(text))` names the first difference, `Err(None)` says that `before` cannot run.
pub fn check(
    before: &Method,
    after: &Method,
    inputs: impl Fn(usize) -> Vec<Value>,
) -> Result<(), Option<String>> {
    let (mut states_before, mut states_after) = (States::new(), States::new());
    let initial: States = constants(before);
    for run in 0..3 {
        let inputs = inputs(run);
        let want = memory::run(before, &inputs, &mut states_before).map_err(|_| None)?;
        let differs = |text: String| Some(format!("run {run}, {text}"));
        let got = interpret(after, &inputs, &mut states_after)
            .map_err(|error| differs(format!("what passes made cannot run: {error}")))?;
        for (index, (got, want)) in got.user.iter().zip(&want.user).enumerate() {
            same(got, want).map_err(|text| differs(format!("output {index}: {text}")))?;
        }
        for (index, want) in &want.mutated_inputs {
            let got = got.mutated_inputs.iter().find(|(input, _)| input == index);
            let got =
                got.ok_or_else(|| differs(format!("input {index} is written, and no output says so")))?;
            same(&got.1, want).map_err(|text| differs(format!("mutated input {index}: {text}")))?;
        }
        for (name, want) in &states_before {
            let got = states_after.get(name).unwrap_or(&initial[name]);
            same(&got.clone().into(), &want.clone().into())
                .map_err(|text| differs(format!("state {name}: {text}")))?;
        }
    }
    Ok(())
}

fn constants(method: &Method) -> States {
    let graph = &method.graph;
    let constants = graph.inputs().iter().filter_map(|input| graph.constant(input.kind.constant()?).ok());
    constants.map(|constant| (constant.name().to_string(), constant.to_tensor().unwrap())).collect()
}

/// Relative to the largest value of each tensor, as sums are taken in another order.
fn same(got: &Value, want: &Value) -> Result<(), String> {
    match (got, want) {
        (Value::Tensor(got), Value::Tensor(want)) => {
            let values = want.to_f64s();
            let largest = values.iter().filter(|value| value.is_finite()).fold(1.0f64, |m, v| m.max(v.abs()));
            compare::tensors(got, want, 1e-5, 1e-5 * largest)
        }
        _ if got == want => Ok(()),
        _ => Err(format!("got {got:?}, want {want:?}")),
    }
}
