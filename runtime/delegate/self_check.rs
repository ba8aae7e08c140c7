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
    ir::{Arg, Constant, Graph, InputKind, Method, OpName, OutputKind, OutputSource, TensorType, Type},
    ops,
    shader::{DeviceProfile, Dispatch, Need, Needs, kernels},
};

/// A product that is tried.
struct Trial {
    rows: usize,
    terms: usize,
    columns: usize,
    /// Whether the matrix on the right is a constant `[columns, terms]`, and not live.
    has_weight: bool,
}

/// By a kernel whose lanes load for each other: no multiple of a tile, wide enough for every lane.
const SHARED_LOADS: Trial = Trial { rows: 3, terms: 44, columns: 71, has_weight: false };

/// By the kernel that sums a row in parts: the smallest weight for which it is taken.
const PARTS: Trial = Trial { rows: 1, terms: 1024, columns: 1024, has_weight: true };

impl Context {
    /// Takes operations among lanes out of `profile` where kernels that use them are wrong on the device; whether it did.
    /// They run once, when the first delegate that could take them is built: the one that sums in parts when it is among
    /// `dispatches`, and another in any case.
    pub fn distrust_lanes<'d>(
        self: &Arc<Context>,
        profile: &mut DeviceProfile,
        dispatches: impl IntoIterator<Item = &'d Dispatch>,
    ) -> bool {
        if !ops::lanes_share(profile) {
            return false;
        }
        let parts = kernels::matmul_parts::Axes {}.kernel();
        let has_parts = dispatches.into_iter().any(|dispatch| dispatch.kernel == parts);
        let share_loads = || *self.lanes_share_loads.get_or_init(|| self.check_lanes(&SHARED_LOADS));
        let sum_parts = || *self.lanes_sum_parts.get_or_init(|| self.check_lanes(&PARTS));
        if share_loads() && (!has_parts || sum_parts()) {
            return false;
        }
        profile.features = profile.features.missing(Needs::of(&[Need::Subgroup]));
        true
    }

    fn check_lanes(self: &Arc<Context>, trial: &Trial) -> bool {
        let found = self.lanes_are_right(trial);
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

    /// Whether a product gives what it has to, in numbers without rounding.
    fn lanes_are_right(self: &Arc<Context>, trial: &Trial) -> Result<bool> {
        let &Trial { rows: m, terms: k, columns: n, has_weight } = trial;
        let a: Vec<f32> = (0..m * k).map(|index| (index * 7 % 13) as f32 - 6.0).collect();
        let b: Vec<f32> = (0..k * n).map(|index| (index * 5 % 11) as f32 - 5.0).collect();
        let [along_k, along_n] = if has_weight { [1, k] } else { [n, 1] };
        let want = (0..m * n).map(|index| {
            let (row, column) = (index / n, index % n);
            (0..k).map(|at| a[row * k + at] * b[at * along_k + column * along_n]).sum::<f32>()
        });
        let want: Vec<f32> = want.collect();
        let matrix = HostTensor::from_f32(&if has_weight { [n, k] } else { [k, n] }, &b)?;
        let mut inputs = vec![Value::Tensor(HostTensor::from_f32(&[m, k], &a)?)];
        let method = match has_weight {
            true => trial.program(Some(matrix))?,
            false => {
                inputs.push(Value::Tensor(matrix));
                trial.program(None)?
            }
        };
        let hooks = BuildHooks { trusts_lanes: true, ..BuildHooks::default() };
        let mut session = Session::build(self, method, BuildOptions { hooks, ..BuildOptions::default() })?;
        let (outputs, _) = session.run(&inputs)?;
        Ok(outputs.first().and_then(Value::as_tensor).is_some_and(|got| got.to_f32s() == want))
    }
}

impl Trial {
    /// The product with `weight`, or of two live matrices.
    fn program(&self, weight: Option<HostTensor>) -> Result<Method> {
        let matrix = |sizes: [usize; 2]| {
            let sizes = sizes.map(|size| SymExpr::Const(size as i64)).to_vec();
            Type::Tensor(TensorType { dtype: DType::F32, sizes })
        };
        let mut graph = Graph::new("self-check");
        let a = graph.add_input("a", matrix([self.rows, self.terms]), InputKind::User)?;
        let (op, [first, second], b) = match weight {
            Some(weight) => {
                let constant = Constant::from_tensor("b", weight);
                let b = graph.add_constant_input("b", constant, InputKind::Parameter)?;
                ("aten.linear.default", ["input", "weight"], b)
            }
            None => {
                let b = graph.add_input("b", matrix([self.terms, self.columns]), InputKind::User)?;
                ("aten.mm.default", ["self", "mat2"], b)
            }
        };
        let args = vec![(first.to_string(), Arg::Value(a)), (second.to_string(), Arg::Value(b))];
        let outputs = vec![("y".to_string(), matrix([self.rows, self.columns]))];
        let node = graph.add_node("product", OpName::new(op), args, outputs)?;
        for output in graph.node(node)?.outputs.clone() {
            graph.add_output(OutputSource::Value(output), OutputKind::User);
        }
        Ok(Method {
            graph,
            ranges: Default::default(),
            fixed_inputs: Default::default(),
            dialect: String::new(),
        })
    }
}
