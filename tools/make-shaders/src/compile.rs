//! Compiles one point of a template with shaderc, and makes every store of a half round to nearest even.

use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};

use crate::header::{ACCESS_AXIS, Header, Point};
use crate::reflect;

/// A shaderc compiler bound to one `shaders/` folder.
pub struct GlslCompiler<'a> {
    compiler: shaderc::Compiler,
    shaders: &'a Path,
}

impl<'a> GlslCompiler<'a> {
    /// Starts shaderc.
    pub fn new(shaders: &'a Path) -> Result<Self> {
        Ok(GlslCompiler { compiler: shaderc::Compiler::new().context("cannot start shaderc")?, shaders })
    }

    /// Name and version of the compiler, as the index records it.
    pub fn version() -> String {
        let (version, revision) = shaderc::get_spirv_version();
        format!("shaderc-rs 0.10.1 spirv {}.{} rev {revision}", version >> 16 & 0xff, version >> 8 & 0xff)
    }

    /// The point's SPIR-V, optimised or with names.
    pub fn compile(
        &self,
        name: &str,
        source: &str,
        header: &Header,
        point: &Point,
        optimise: bool,
    ) -> Result<Vec<u32>> {
        let mut options = shaderc::CompileOptions::new().context("cannot make compile options")?;
        options.set_forced_version_profile(450, shaderc::GlslProfile::Core);
        options.set_target_env(shaderc::TargetEnv::Vulkan, shaderc::EnvVersion::Vulkan1_1 as u32);
        options.set_target_spirv(shaderc::SpirvVersion::V1_3);
        options.set_warnings_as_errors();
        options.set_optimization_level(if optimise {
            shaderc::OptimizationLevel::Performance
        } else {
            shaderc::OptimizationLevel::Zero
        });
        if !optimise {
            options.set_generate_debug_info();
        }
        options.set_include_callback(|path, _, _, _| {
            let content =
                std::fs::read_to_string(self.shaders.join(path)).map_err(|e| format!("{path}: {e}"))?;
            Ok(shaderc::ResolvedInclude { resolved_name: path.to_owned(), content })
        });
        for (macro_name, value) in macros(header, point) {
            options.add_macro_definition(&macro_name, Some(&value));
        }
        let file = format!("{name}.comp");
        let made = self.compiler.compile_into_spirv(
            source,
            shaderc::ShaderKind::Compute,
            &file,
            "main",
            Some(&options),
        )?;
        let words = made.as_binary().to_vec();
        if optimise { round_half_stores(&words) } else { Ok(words) }
    }
}

/// The macros that carry the header and the point into the text.
fn macros(header: &Header, point: &Point) -> Vec<(String, String)> {
    let mut macros = Vec::new();
    for (axis, value) in point {
        macros.push((format!("{}_{}", axis.to_uppercase(), value.to_uppercase()), "1".to_owned()));
        if value.bytes().all(|b| b.is_ascii_digit()) {
            macros.push((axis.to_uppercase(), value.clone()));
        }
    }
    macros.extend(
        header.needs_of(point).iter().map(|need| (format!("NEEDS_{}", need.to_uppercase()), "1".to_owned())),
    );
    for names in &header.names {
        let upper = names.name.to_uppercase();
        let numbered = names.values.iter().enumerate();
        macros
            .extend(numbered.map(|(n, name)| (format!("{upper}_{}", name.to_uppercase()), format!("{n}u"))));
    }
    let mut declarations = String::new();
    for spec in &header.specs {
        let upper = spec.name.to_uppercase();
        macros.push((format!("SPEC_{upper}"), spec.id.to_string()));
        for (value, name) in spec.values.iter().enumerate() {
            macros.push((format!("{upper}_{}", name.to_uppercase()), format!("{value}u")));
        }
        match header.local.iter().position(|name| *name == spec.name).and_then(|n| ["x", "y", "z"].get(n)) {
            Some(axis) => {
                macros.push((spec.name.clone(), format!("gl_WorkGroupSize.{axis}")));
                declarations += &format!(
                    "layout(local_size_{axis} = {}, local_size_{axis}_id = {}) in; ",
                    spec.default, spec.id
                );
            }
            None => {
                declarations += &format!(
                    "layout(constant_id = {}) const uint {} = {}u; ",
                    spec.id, spec.name, spec.default
                );
            }
        }
    }
    macros.push(("SPEC_CONSTANTS".to_owned(), declarations));
    macros
}

/// Decorates each conversion to half that is stored, as the rounding of a bare conversion is the device's choice.
fn round_half_stores(words: &[u32]) -> Result<Vec<u32>> {
    const FLOAT_CONVERT: u16 = 115;
    const STORE: u16 = 62;
    const DECORATE: u16 = 71;
    const FP_ROUNDING_MODE: u32 = 39;
    const TO_NEAREST_EVEN: u32 = 0;
    let all = reflect::instructions(words).map_err(|fault| anyhow!(fault))?;
    let mut halves = std::collections::BTreeSet::new();
    let mut converted = std::collections::BTreeSet::new();
    let mut stored = std::collections::BTreeSet::new();
    let (mut at, mut insert_at) = (5, None);
    for (opcode, operands) in &all {
        match (*opcode, *operands) {
            (22, [id, 16, ..]) => drop(halves.insert(*id)),
            (23, [id, of, _]) if halves.contains(of) => drop(halves.insert(*id)),
            (FLOAT_CONVERT, [kind, id, _]) if halves.contains(kind) => drop(converted.insert(*id)),
            (STORE, [_, object, ..]) if converted.contains(object) => drop(stored.insert(*object)),
            _ => {}
        }
        at += operands.len() + 1;
        if *opcode == DECORATE {
            insert_at = Some(at);
        }
    }
    if stored.is_empty() {
        return Ok(words.to_vec());
    }
    let Some(insert_at) = insert_at else { bail!("a module without decorations stores halves") };
    let mut out = words.to_vec();
    let decorations = stored
        .into_iter()
        .flat_map(|id| [4 << 16 | u32::from(DECORATE), id, FP_ROUNDING_MODE, TO_NEAREST_EVEN]);
    out.splice(insert_at..insert_at, decorations);
    Ok(out)
}

/// The access value of a point.
pub fn access_of(point: &Point) -> &str {
    point.iter().find(|(axis, _)| axis == ACCESS_AXIS).map_or("", |(_, value)| value)
}
