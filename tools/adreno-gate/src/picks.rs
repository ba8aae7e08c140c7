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
    shader::{
        Access, ChoiceRecord, Choices, DeviceClass, DeviceProfile, Dispatch, KernelRef, Need, Needs, Variant,
    },
};

use crate::programs;

/// Spec constants that differ from the shader's own: id and value.
pub type Spec = Vec<(u32, u32)>;

/// The pipelines of one device.
pub struct Picks {
    profile: DeviceProfile,
    /// By kernel; whether a model has the pipeline.
    found: HashMap<KernelRef, BTreeMap<Spec, bool>>,
    /// Kernels of ways that plans choose among on other devices; whether phones have one of those ways.
    elsewhere: HashMap<KernelRef, bool>,
}

impl Picks {
    /// What plans for models and for the programs of the tests take on a device.
    ///
    /// # Errors
    /// A program that cannot be read, or that the planner refuses.
    pub fn of(profile: &DeviceProfile) -> Result<Picks> {
        let elsewhere = elsewhere()?;
        let mut picks = Picks { profile: profile.clone(), found: HashMap::new(), elsewhere };
        for (methods, are_models) in [(programs::models()?, true), (programs::tests()?, false)] {
            for method in &methods {
                for plan in plans_of(method, profile, are_models)? {
                    picks.add_plan(&plan, are_models);
                }
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

    /// Whether the kernel is only of ways that phones do not have.
    pub fn no_phone_takes(&self, kernel: KernelRef) -> bool {
        self.elsewhere.get(&kernel) == Some(&false)
    }

    fn add_plan(&mut self, plan: &Plan, is_model: bool) {
        for dispatch in &plan.dispatches {
            let specs = self.found.entry(dispatch.kernel).or_default();
            *specs.entry(spec_of(dispatch)).or_insert(false) |= is_model;
        }
    }
}

/// The plans of a method on a device, at sizes within its ranges and in both precisions; with `has_others` those that a
/// tuner could make of them too.
fn plans_of(method: &Method, profile: &DeviceProfile, has_others: bool) -> Result<Vec<Plan>> {
    plans_at_sizes(method, profile, has_others).with_context(|| method.graph.name().to_string())
}

fn plans_at_sizes(method: &Method, profile: &DeviceProfile, has_others: bool) -> Result<Vec<Plan>> {
    let method = passes::optimise(method, &passes::Options::default())?.method;
    let envs = plan::sample_envs(&method, plan::SAMPLE_CAP);
    let mut plans = Vec::new();
    if !plan::check_all(&method, &envs)?.is_empty() {
        return Ok(plans);
    }
    for env in &envs {
        let inputs = plan::sample_inputs(&method, env)?;
        for precision in [Precision::F32, Precision::F16] {
            let planned = |choices: Choices| {
                let profile = DeviceProfile { choices: Arc::new(choices), ..profile.clone() };
                let pinned_f32 = HashSet::new();
                plan::build(&method, &inputs, &PlanOptions { profile, precision, pinned_f32 })
            };
            // Symbols at the ends of their ranges may be too large for a device.
            let Ok(first) = planned(Choices::default()) else { continue };
            if has_others {
                for choices in others(&first, profile) {
                    plans.push(planned(choices)?);
                }
            }
            plans.push(first);
        }
    }
    Ok(plans)
}

/// Which kernels plans for desktops and CPUs choose, each by whether one of its ways is for phones too.
fn elsewhere() -> Result<HashMap<KernelRef, bool>> {
    use Need::{IntegerDot, ShaderFloat16, ShaderInt64, Storage16Bit, StorageBuffers5, Subgroup};
    let offered = [Storage16Bit, ShaderFloat16, ShaderInt64, IntegerDot, Subgroup, StorageBuffers5];
    let desktop = DeviceProfile {
        class: DeviceClass::Desktop,
        features: Needs::of(&offered),
        max_invocations: 1024,
        max_group_size: [1024; 3],
        max_shared_bytes: 32 << 10,
        subgroup_size: 8,
        ..DeviceProfile::minimum()
    };
    let cpu = DeviceProfile { class: DeviceClass::Cpu, access: Access::Bda, ..desktop.clone() };
    let mut found = HashMap::new();
    for method in programs::models()?.iter().chain(&programs::of_other_devices()?) {
        for profile in [&desktop, &cpu] {
            let plans = plans_of(method, profile, true)?;
            for dispatch in plans.iter().flat_map(|plan| &plan.dispatches) {
                if let Some(choice) = dispatch.choice {
                    *found.entry(dispatch.kernel).or_insert(false) |= choice.is_for_phones();
                }
            }
        }
    }
    Ok(found)
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
    use vkdelegate::shader::{TemplateId, kernels::TEMPLATES};

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
    fn kernels_of_other_devices_are_those_of_no_way_of_phones() {
        let kernels = elsewhere().unwrap();
        let names = |for_phones: bool| -> Vec<String> {
            let found = kernels.iter().filter(|(_, is_for_phones)| **is_for_phones == for_phones);
            let name = |kernel: &KernelRef| {
                let variant = Access::ALL.into_iter().find_map(|access| kernel.variant(access)).unwrap();
                format!("{} {}", kernel.info().unwrap().name, variant.axes)
            };
            found.map(|(kernel, _)| name(kernel)).collect()
        };
        let (others, phones) = (names(false), names(true));
        let has = |names: &[String], start: &str| names.iter().any(|name| name.starts_with(start));
        for kernel in ["matmul_parts", "matmul_lanes", "conv_lanes", "attention_query"] {
            assert!(has(&others, kernel) && !has(&phones, kernel), "{kernel}");
        }
        for axes in ["dtype=f32 out=f32", "dtype=f16 out=f16", "dtype=f16 out=f32"] {
            assert!(has(&others, &format!("matmul_split {axes} tile_m=8")), "{axes}: {others:?}");
            assert!(has(&phones, &format!("matmul_split {axes} tile_m=4")), "{axes}: {phones:?}");
        }
        assert!(has(&phones, "matmul dtype=f32 out=f32 tile_m=4") && has(&phones, "matmul_row"));
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
