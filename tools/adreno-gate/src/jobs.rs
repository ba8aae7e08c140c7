//! What to compile: every variant of the library's kernels, or SPIR-V files.

use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;

use anyhow::{Context, Result, bail};
use vkdelegate::shader::{KernelRef, Template, TemplateId, kernels, spirv};

use crate::picks::{Picks, Spec};
use crate::spirv::Module;

/// The largest work group that the library asks for.
const MAX_INVOCATIONS: u32 = 128;

/// One pipeline to compile.
pub struct Job {
    /// Template, axes and spec constants, for people.
    pub name: String,
    /// The shader.
    pub module: Rc<Module>,
    /// Spec constants that differ from the shader's own.
    pub spec: Spec,
    /// Whether the planner picks it on the device.
    pub is_picked: bool,
    /// Whether only devices that are no phones take it, so that what becomes of it here is only reported.
    pub is_for_others: bool,
    /// Whether to look for its hot loop.
    pub wants_loop: bool,
    /// Whether the committed table lists it.
    pub is_listed: bool,
}

/// What the planner picks, and every other variant of every kernel at its own work-group size and at the largest; with
/// `only_picked` nothing else.
pub fn of_library(picks: &Picks, only_picked: bool) -> Result<Vec<Job>> {
    let mut jobs = Vec::new();
    for (number, template) in kernels::TEMPLATES.iter().enumerate() {
        let id = TemplateId(u16::try_from(number)?);
        for variant in template.variants {
            let kernel = KernelRef { template: id, variant: variant.point };
            let mut specs: BTreeMap<Spec, Option<bool>> = picks
                .specs_of(kernel, variant)
                .map(|(spec, is_of_model)| (spec.clone(), Some(is_of_model)))
                .collect();
            if !only_picked {
                let others = largest_group_of(template).into_iter().chain([Spec::new()]);
                others.for_each(|spec| _ = specs.entry(spec).or_insert(None));
            }
            if specs.is_empty() {
                continue;
            }
            let axes = format!("{} {}", template.name, variant.axes);
            let module = Rc::new(Module::from_words(spirv(kernel, variant.access)?).context(axes.clone())?);
            jobs.extend(specs.into_iter().map(|(spec, is_of_model)| Job {
                name: name_in(template, &axes, &spec),
                module: Rc::clone(&module),
                spec,
                is_picked: is_of_model.is_some(),
                is_for_others: picks.no_phone_takes(kernel),
                wants_loop: is_of_model.is_some(),
                is_listed: is_of_model == Some(true),
            }));
        }
    }
    Ok(jobs)
}

/// The largest group, where one spec constant alone sets its size and has another default.
fn largest_group_of(template: &Template) -> Option<Spec> {
    let [id] = template.local_ids else { return None };
    let default = template.specs.iter().find(|spec| spec.id == *id).map(|spec| spec.default);
    (default != Some(MAX_INVOCATIONS)).then(|| vec![(*id, MAX_INVOCATIONS)])
}

/// Reads `FILE.spv` or `FILE.spv@ID=VALUE,ID=VALUE` words.
pub fn of_files(words: &[String]) -> Result<Vec<Job>> {
    words.iter().map(|word| of_file(word)).collect()
}

fn of_file(word: &str) -> Result<Job> {
    let (file, spec) = word.split_once('@').unwrap_or((word, ""));
    let bytes = std::fs::read(file).with_context(|| format!("cannot read {file}"))?;
    let module = Module::from_bytes(&bytes).with_context(|| format!("{file} is no SPIR-V module"))?;
    let stem = Path::new(file).file_stem().unwrap_or_default().to_string_lossy();
    let spec = spec_of(spec)?;
    let name = name_of(&stem, &spec, u32::to_string);
    let module = Rc::new(module);
    let (is_picked, is_for_others, is_listed) = (false, false, false);
    Ok(Job { name, module, spec, is_picked, is_for_others, wants_loop: true, is_listed })
}

fn spec_of(text: &str) -> Result<Spec> {
    let entry = |word: &str| -> Result<(u32, u32)> {
        let Some((id, value)) = word.split_once('=') else { bail!("'{word}' is not ID=VALUE") };
        Ok((id.parse()?, value.parse()?))
    };
    text.split(',').filter(|word| !word.is_empty()).map(entry).collect()
}

/// The name of a pipeline of the library, its spec constants by the names that the template gives them.
fn name_in(template: &Template, axes: &str, spec: &Spec) -> String {
    name_of(axes, spec, |id| {
        let found = template.specs.iter().find(|spec| spec.id == *id);
        found.map_or_else(|| id.to_string(), |spec| spec.name.to_string())
    })
}

fn name_of(shader: &str, spec: &Spec, constant: impl Fn(&u32) -> String) -> String {
    let settings: String = spec.iter().map(|(id, value)| format!(" @{}={value}", constant(id))).collect();
    format!("{shader}{settings}")
}
