//! Tests what drivers claim and some of them break: operations among the lanes of a subgroup. Phones' drivers and
//! translation layers have reported shuffles that give wrong values, and subgroups smaller than they say.

use std::sync::Arc;

use super::{
    build::{BuildHooks, BuildOptions},
    context::Context,
    session::Session,
};
use crate::{
    base::{DType, HostTensor, Result, SymExpr, Value},
    ir::{Arg, Graph, InputKind, Method, OpName, OutputKind, OutputSource, TensorType, Type},
    ops,
    shader::{DeviceProfile, Need, Needs},
};

/// Rows, terms and columns of the product that is tried: no multiple of a tile, wide enough for every lane.
const SIZES: [usize; 3] = [3, 44, 71];

impl Context {
    /// Takes operations among lanes out of `profile` where kernels that use them are wrong on the device; whether it did.
    /// They run once, when the first delegate that could take them is built.
    pub fn distrust_lanes(self: &Arc<Context>, profile: &mut DeviceProfile) -> bool {
        if !ops::lanes_share(profile) || *self.lanes_work.get_or_init(|| self.check_lanes()) {
            return false;
        }
        profile.features = profile.features.missing(Needs::of(&[Need::Subgroup]));
        true
    }

    fn check_lanes(self: &Arc<Context>) -> bool {
        let found = self.lanes_are_right();
        match &found {
            Ok(true) => {
                log::debug!("operations among lanes of a subgroup are right on `{}`", self.profile().name)
            }
            Ok(false) => log::warn!(
                "operations among lanes of a subgroup are wrong on `{}`: kernels without them are used",
                self.profile().name
            ),
            Err(error) => {
                log::warn!("operations among lanes of a subgroup cannot be tried, and are not used: {error}")
            }
        }
        found.unwrap_or(false)
    }

    /// Whether a product by a kernel whose lanes share loads gives what it has to, in numbers without rounding.
    fn lanes_are_right(self: &Arc<Context>) -> Result<bool> {
        let [m, k, n] = SIZES;
        let a: Vec<f32> = (0..m * k).map(|index| (index * 7 % 13) as f32 - 6.0).collect();
        let b: Vec<f32> = (0..k * n).map(|index| (index * 5 % 11) as f32 - 5.0).collect();
        let term = |row: usize, column: usize| move |at: usize| (row * k + at, at * n + column);
        let want = (0..m * n).map(|index| {
            let terms = (0..k).map(term(index / n, index % n));
            terms.map(|(in_a, in_b)| a[in_a] * b[in_b]).sum::<f32>()
        });
        let want: Vec<f32> = want.collect();
        let hooks = BuildHooks { trusts_lanes: true, ..BuildHooks::default() };
        let mut session =
            Session::build(self, product()?, BuildOptions { hooks, ..BuildOptions::default() })?;
        let inputs = [HostTensor::from_f32(&[m, k], &a)?, HostTensor::from_f32(&[k, n], &b)?];
        let (outputs, _) = session.run(&inputs.map(Value::Tensor))?;
        Ok(outputs.first().and_then(Value::as_tensor).is_some_and(|got| got.to_f32s() == want))
    }
}

/// A product of two live matrices.
fn product() -> Result<Method> {
    let [m, k, n] = SIZES;
    let matrix = |sizes: [usize; 2]| {
        let sizes = sizes.map(|size| SymExpr::Const(size as i64)).to_vec();
        Type::Tensor(TensorType { dtype: DType::F32, sizes })
    };
    let mut graph = Graph::new("self-check");
    let a = graph.add_input("a", matrix([m, k]), InputKind::User)?;
    let b = graph.add_input("b", matrix([k, n]), InputKind::User)?;
    let args = vec![("self".to_string(), Arg::Value(a)), ("mat2".to_string(), Arg::Value(b))];
    let outputs = vec![("y".to_string(), matrix([m, n]))];
    let node = graph.add_node("mm", OpName::new("aten.mm.default"), args, outputs)?;
    for output in graph.node(node)?.outputs.clone() {
        graph.add_output(OutputSource::Value(output), OutputKind::User);
    }
    Ok(Method { graph, ranges: Default::default(), fixed_inputs: Default::default(), dialect: String::new() })
}
