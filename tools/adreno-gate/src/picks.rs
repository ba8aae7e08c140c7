//! Which pipelines the planner picks on a device: those of the plans that it makes for representative programs, and what a
//! tuner could put in their place. Nothing here names a kernel.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use anyhow::{Context, Result};
use vkdelegate::{
    Precision,
    ir::Method,
    passes,
    plan::{self, Plan, PlanOptions},
    shader::{ChoiceRecord, Choices, DeviceProfile, Dispatch, KernelRef, Variant},
};

use crate::programs;

/// Spec constants that differ from the shader's own: id and value.
pub type Spec = Vec<(u32, u32)>;

/// The pipelines of one device.
pub struct Picks {
    profile: DeviceProfile,
    /// By kernel; whether a model has the pipeline.
    found: HashMap<KernelRef, BTreeMap<Spec, bool>>,
}

impl Picks {
    /// What plans for models and for the programs of the tests take on a device.
    ///
    /// # Errors
    /// A program that cannot be read, or that the planner refuses.
    pub fn of(profile: &DeviceProfile) -> Result<Picks> {
        let mut picks = Picks { profile: profile.clone(), found: HashMap::new() };
        for (methods, are_models) in [(programs::models()?, true), (programs::tests()?, false)] {
            for method in &methods {
                let named = || method.graph.name().to_string();
                picks.add_method(method, are_models).with_context(named)?;
            }
        }
        picks.found.iter_mut().for_each(|(kernel, specs)| thin(*kernel, specs));
        Ok(picks)
    }

    /// The settings with which plans take the variant, and whether a model's do.
    pub fn specs_of(&self, kernel: KernelRef, variant: &Variant) -> impl Iterator<Item = (&Spec, bool)> {
        let found = self.found.get(&kernel).filter(|_| variant.access == self.profile.access);
        found.into_iter().flatten().map(|(spec, &is_of_model)| (spec, is_of_model))
    }

    fn add_method(&mut self, method: &Method, is_model: bool) -> Result<()> {
        let method = passes::optimise(method, &passes::Options::default())?.method;
        let envs = plan::sample_envs(&method, plan::SAMPLE_CAP);
        if !plan::check_all(&method, &envs)?.is_empty() {
            return Ok(());
        }
        for env in &envs {
            let inputs = plan::sample_inputs(&method, env)?;
            for precision in [Precision::F32, Precision::F16] {
                let planned = |choices: Choices| {
                    let profile = DeviceProfile { choices: Arc::new(choices), ..self.profile.clone() };
                    let pinned_f32 = HashSet::new();
                    plan::build(&method, &inputs, &PlanOptions { profile, precision, pinned_f32 })
                };
                // Symbols at the ends of their ranges may be too large for a device.
                let Ok(first) = planned(Choices::default()) else { continue };
                let others = if is_model { others(&first, &self.profile) } else { Vec::new() };
                let others = others.into_iter().map(planned).collect::<vkdelegate::Result<Vec<_>>>()?;
                others.iter().chain([&first]).for_each(|plan| self.add_plan(plan, is_model));
            }
        }
        Ok(())
    }

    fn add_plan(&mut self, plan: &Plan, is_model: bool) {
        for dispatch in &plan.dispatches {
            let specs = self.found.entry(dispatch.kernel).or_default();
            *specs.entry(spec_of(dispatch)).or_insert(false) |= is_model;
        }
    }
}

/// The choices that a tuner could make in a plan: each other way of each product, in the shape of the first choice where
/// it has that.
fn others(plan: &Plan, profile: &DeviceProfile) -> Vec<Choices> {
    let records: BTreeMap<String, ChoiceRecord> = plan
        .dispatches
        .iter()
        .filter_map(|dispatch| dispatch.choice)
        .map(|record| (record.name(), record))
        .collect();
    let mut all = Vec::new();
    for (name, record) in records {
        let mut ways = BTreeMap::new();
        for candidate in record.candidates(profile) {
            let is_alike = candidate.local == record.candidate.local;
            let best = ways.entry(candidate.way).or_insert(candidate);
            if is_alike {
                *best = candidate;
            }
        }
        ways.remove(&record.candidate.way);
        for candidate in ways.into_values() {
            let mut choices = Choices::default();
            choices.set(&name, record.name_of(candidate));
            all.push(choices);
        }
    }
    all
}

/// Leaves, of what only tests take, one setting for each work-group shape: the one with the most constants set. Tests take
/// every function that a constant chooses, and compilers make much the same of most.
fn thin(kernel: KernelRef, specs: &mut BTreeMap<Spec, bool>) {
    let local_ids = kernel.info().map_or(&[][..], |template| template.local_ids);
    let shape =
        |spec: &Spec| -> Spec { spec.iter().copied().filter(|(id, _)| local_ids.contains(id)).collect() };
    let mut fullest: BTreeMap<Spec, Spec> = BTreeMap::new();
    for spec in specs.iter().filter(|(_, is_of_model)| !**is_of_model).map(|(spec, _)| spec) {
        let best = fullest.entry(shape(spec)).or_insert_with(|| spec.clone());
        if spec.len() > best.len() {
            *best = spec.clone();
        }
    }
    specs.retain(|spec, is_of_model| *is_of_model || fullest.get(&shape(spec)) == Some(spec));
}

fn spec_of(dispatch: &Dispatch) -> Spec {
    let specs = dispatch.kernel.info().map_or(&[][..], |template| template.specs);
    let is_default =
        |&(id, value): &(u32, u32)| specs.iter().any(|spec| spec.id == id && spec.default == value);
    let mut spec: Spec = dispatch.spec.iter().copied().filter(|setting| !is_default(setting)).collect();
    spec.sort_unstable();
    spec
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests fail by panicking")]
mod tests {
    use super::*;
    use vkdelegate::shader::{Access, DeviceClass, Need, Needs, TemplateId, kernels::TEMPLATES};

    fn picks(class: DeviceClass, packed_dot: bool) -> Picks {
        use Need::{IntegerDot, ShaderFloat16, Storage16Bit, StorageBuffers5, Subgroup};
        let offered = [Storage16Bit, ShaderFloat16, IntegerDot, Subgroup, StorageBuffers5];
        let profile = DeviceProfile {
            class,
            packed_dot,
            features: Needs::of(&offered),
            max_invocations: 1024,
            max_group_size: [1024; 3],
            ..DeviceProfile::minimum()
        };
        Picks::of(&profile).unwrap()
    }

    /// Template, axes, and whether a model takes it.
    fn names(picks: &Picks) -> BTreeMap<String, bool> {
        let mut names = BTreeMap::new();
        for (kernel, specs) in &picks.found {
            let axes = kernel.variant(Access::Ssbo).unwrap().axes;
            let name = format!("{} {axes}", kernel.info().unwrap().name);
            names.insert(name, specs.values().any(|&is_of_model| is_of_model));
        }
        names
    }

    #[test]
    fn phones_take_what_their_class_allows() {
        let names = names(&picks(DeviceClass::Adreno7xx, true));
        let taken = |name: &str| {
            names.range(name.to_string()..).next().is_some_and(|(found, _)| found.starts_with(name))
        };
        for kernel in [
            "matmul_row",
            "matmul dtype=f16",
            "linear_codes ",
            "linear_dot ",
            "attention_tile",
            "conv",
            "sort",
        ] {
            assert!(taken(kernel), "{kernel}");
        }
        for kernel in ["matmul_lanes", "attention_query"] {
            assert!(!taken(kernel), "{kernel}");
        }
        assert!(
            names.keys().all(|name| !name.contains("dot=plain") && !name.contains("tile_m=16")),
            "{names:?}"
        );
        assert!(
            names.values().any(|&is_of_model| is_of_model) && names.values().any(|&is_of_model| !is_of_model)
        );
    }

    #[test]
    fn ways_that_only_a_tuner_takes_are_picked_too() {
        let picks = picks(DeviceClass::Adreno7xx, false);
        let of = |name: &str| {
            names(&picks).into_keys().filter(|found| found.starts_with(name)).collect::<Vec<_>>()
        };
        // Tiles of 8 rows are the first choice for 128 rows, and of 4 what else there is.
        assert!(of("matmul dtype=f32").iter().any(|name| name.contains("tile_m=4")));
        assert!(of("matmul dtype=f32").iter().any(|name| name.contains("tile_m=8")));
        assert!(of("linear_dot").iter().all(|name| name.contains("dot=plain")));
    }

    #[test]
    fn of_what_only_tests_take_the_fullest_of_each_shape_is_left() {
        let number = TEMPLATES.iter().position(|template| template.name == "matmul").unwrap();
        let kernel = KernelRef { template: TemplateId(number as u16), variant: 0 };
        let [local_x, bias, sum] = ["local_x", "has_bias", "adds_y"]
            .map(|name| TEMPLATES[number].specs.iter().find(|spec| spec.name == name).unwrap().id);
        let of_model = vec![(sum, 1)];
        let (small, full, narrow) = (vec![(bias, 1)], vec![(bias, 1), (sum, 1)], vec![(local_x, 16)]);
        let all = [(of_model.clone(), true), (small, false), (full.clone(), false), (narrow.clone(), false)];
        let mut specs = BTreeMap::from(all);
        thin(kernel, &mut specs);
        assert_eq!(specs, BTreeMap::from([(of_model, true), (full, false), (narrow, false)]));
    }
}
