//! What to compile: every variant of the library's kernels, or SPIR-V files.

use std::path::Path;

use anyhow::{Context, Result, bail};
use vkdelegate::shader::{KernelRef, Template, TemplateId, kernels, spirv};

use crate::spirv::Module;

/// The largest work group that the library asks for.
const MAX_INVOCATIONS: u32 = 128;

/// Spec constants: id and value.
pub type Spec = Vec<(u32, u32)>;

/// One pipeline to compile.
pub struct Job {
    /// Template, axes and spec constants, for people.
    pub name: String,
    /// The shader.
    pub module: Module,
    /// Spec constants that differ from the shader's own.
    pub spec: Spec,
}

/// Every variant of every kernel, at its own work-group size and at the largest.
pub fn of_library() -> Result<Vec<Job>> {
    let mut jobs = Vec::new();
    for (number, template) in kernels::TEMPLATES.iter().enumerate() {
        let id = TemplateId(u16::try_from(number)?);
        for variant in template.variants {
            let kernel = KernelRef { template: id, variant: variant.point };
            let name = format!("{} {}", template.name, variant.axes);
            for spec in specs_of(template) {
                let module = Module::from_words(spirv(kernel, variant.access)?).context(name.clone())?;
                jobs.push(Job { name: name_of(&name, &spec), module, spec });
            }
        }
    }
    Ok(jobs)
}

/// The template's defaults, and the largest group where one spec constant alone sets its size.
fn specs_of(template: &Template) -> Vec<Spec> {
    let mut specs = vec![Spec::new()];
    if let [id] = template.local_ids {
        let default = template.specs.iter().find(|spec| spec.id == *id).map(|spec| spec.default);
        if default != Some(MAX_INVOCATIONS) {
            specs.push(vec![(*id, MAX_INVOCATIONS)]);
        }
    }
    specs
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
    Ok(Job { name: name_of(&stem, &spec), module, spec })
}

fn spec_of(text: &str) -> Result<Spec> {
    let entry = |word: &str| -> Result<(u32, u32)> {
        let Some((id, value)) = word.split_once('=') else { bail!("'{word}' is not ID=VALUE") };
        Ok((id.parse()?, value.parse()?))
    };
    text.split(',').filter(|word| !word.is_empty()).map(entry).collect()
}

fn name_of(shader: &str, spec: &Spec) -> String {
    let settings: String = spec.iter().map(|(id, value)| format!(" @{id}={value}")).collect();
    format!("{shader}{settings}")
}
