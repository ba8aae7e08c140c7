//! Holds every committed shader variant to the rules that lenient drivers do not enforce: valid SPIR-V for
//! Vulkan 1.1, declared needs, the standard's minimum limits, and barriers that all invocations reach.

#![allow(clippy::expect_used, reason = "a surprise in a test is a failure")]

use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use reflect::{Reflection, reflect};
use vkdelegate::shader::{
    Access, KernelRef, Need, OperandAccess, Template, TemplateId, Variant, kernels, spirv,
};

#[path = "../tools/make-shaders/src/reflect.rs"]
mod reflect;

/// Limits that every Vulkan 1.1 device offers, and the work-group size that this crate keeps to by default.
const MAX_PUSH_BYTES: u32 = 128;
const MAX_BUFFERS: usize = 4;
const MAX_SHARED_BYTES: u32 = 16384;
const MAX_INVOCATIONS: u32 = 128;

/// Calls `check` for every variant with its words and what they declare; failures name the variant.
fn for_each_variant(check: impl Fn(&Template, &Variant, &[u32], &Reflection) -> Result<(), String>) {
    let mut faults = Vec::new();
    let mut checked = 0;
    for (number, template) in kernels::TEMPLATES.iter().enumerate() {
        for variant in template.variants {
            let kernel = KernelRef {
                template: TemplateId(u16::try_from(number).expect("a table of less than 65536 templates")),
                variant: variant.point,
            };
            let words = spirv(kernel, variant.access).expect("a variant of the table is in its bundle");
            let module = reflect(&words).expect("a bundle holds SPIR-V");
            if let Err(fault) = check(template, variant, &words, &module) {
                faults.push(format!("{} {}: {fault}", template.name, variant.axes));
            }
            checked += 1;
        }
    }
    assert!(checked > 0, "no variant was checked");
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
}

fn ensure(holds: bool, fault: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(fault()) }
}

#[test]
fn every_variant_is_valid_for_vulkan_1_1() {
    for_each_variant(|_, _, words, _| {
        let mut validator = Command::new("spirv-val")
            .args(["--target-env", "vulkan1.1", "-"])
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|e| format!("cannot start spirv-val ({e}); install the package spirv-tools"))?;
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let sent = validator.stdin.take().expect("stdin is piped").write_all(&bytes);
        let output = validator.wait_with_output().map_err(|e| e.to_string())?;
        let text =
            || String::from_utf8_lossy(&[output.stdout.clone(), output.stderr.clone()].concat()).into_owned();
        ensure(output.status.success() && sent.is_ok(), text)
    });
}

#[test]
fn modules_are_spirv_1_3_at_most() {
    for_each_variant(|_, _, _, module| {
        ensure(module.version <= (1, 3), || format!("version {:?}", module.version))
    });
}

#[test]
fn declared_needs_cover_the_capabilities_exactly() {
    for_each_variant(|_, variant, _, module| {
        for capability in &module.capabilities {
            let Some(need) = need_of(capability)? else { continue };
            ensure(variant.needs.contains(need), || format!("{capability} without `needs {}`", need.name()))?;
        }
        let by_capability = |need: &Need| *need != Need::StorageBuffers5;
        for need in variant.needs.iter().filter(by_capability) {
            let used = module.capabilities.iter().any(|c| need_of(c) == Ok(Some(need)));
            ensure(used, || format!("`needs {}` and no capability that asks for it", need.name()))?;
        }
        let known =
            ["SPV_KHR_physical_storage_buffer", "SPV_KHR_8bit_storage", "SPV_KHR_integer_dot_product"];
        let stranger = module.extensions.iter().find(|e| !known.contains(&e.as_str()));
        ensure(stranger.is_none(), || format!("the extension {stranger:?} is enabled by no need"))
    });
}

/// The need that allows a capability; `None` for what Vulkan 1.1 always has.
fn need_of(capability: &str) -> Result<Option<Need>, String> {
    Ok(Some(match capability {
        "Shader" | "SampledBuffer" => return Ok(None),
        "PhysicalStorageBufferAddresses" => Need::BufferDeviceAddress,
        "StorageBuffer16BitAccess" => Need::Storage16Bit,
        "StorageBuffer8BitAccess" => Need::Storage8Bit,
        "Float16" => Need::ShaderFloat16,
        "Int8" => Need::ShaderInt8,
        "Int16" => Need::ShaderInt16,
        "Int64" => Need::ShaderInt64,
        "CooperativeMatrixKHR" => Need::CooperativeMatrix,
        _ if capability.starts_with("DotProduct") => Need::IntegerDot,
        _ if capability.starts_with("GroupNonUniform") => Need::Subgroup,
        _ => return Err(format!("the capability {capability} belongs to no need")),
    }))
}

#[test]
fn limits_of_the_minimum_device_hold() {
    for_each_variant(|template, variant, _, module| {
        let push = template.push(variant.access).ok_or("no push layout")?;
        ensure(module.push_bytes() <= MAX_PUSH_BYTES, || {
            format!("{} bytes of push constants", module.push_bytes())
        })?;
        ensure(module.push_bytes() == push.size_bytes, || {
            format!(
                "the index says {} bytes of push constants, the module {}",
                push.size_bytes,
                module.push_bytes()
            )
        })?;
        ensure(push.params_at_bytes + template.params_bytes == push.size_bytes, || {
            "params miss the end".to_owned()
        })?;
        let bases_bytes = template.operands.len() * variant.access.base_bytes();
        ensure(bases_bytes <= push.params_at_bytes as usize, || {
            "params overlap the operand bases".to_owned()
        })?;
        let binds_5 = variant.needs.contains(Need::StorageBuffers5);
        let max_buffers = if binds_5 { MAX_BUFFERS + 1 } else { MAX_BUFFERS };
        let binds = if variant.access == Access::Bda { 0 } else { template.operands.len() };
        ensure(binds <= max_buffers && binds_5 == (binds > MAX_BUFFERS), || format!("{binds} buffers"))?;
        ensure(template.shared_bytes <= MAX_SHARED_BYTES, || {
            format!("{} shared bytes", template.shared_bytes)
        })?;
        ensure(module.has_shared == (template.shared_bytes > 0), || {
            "shared memory and the `//! shared` line do not go together".to_owned()
        })
    });
}

#[test]
fn bindings_are_the_operands_and_inputs_are_readonly() {
    for_each_variant(|template, variant, _, module| {
        if variant.access == Access::Bda {
            return ensure(module.bindings.is_empty(), || {
                "descriptors in a device-address variant".to_owned()
            });
        }
        for (slot, binding) in &module.bindings {
            let operand =
                template.operands.get(*slot as usize).ok_or(format!("binding {slot} is no operand"))?;
            ensure(binding.readonly != operand.access.writes(), || {
                format!("{} is not as declared", operand.name)
            })?;
            ensure(binding.writeonly != operand.access.reads(), || {
                format!("{} is not as declared", operand.name)
            })?;
            ensure(binding.texels == (operand.access == OperandAccess::ReadTexels), || {
                format!("{} is not as declared", operand.name)
            })?;
        }
        ensure(module.bindings.len() == template.operands.len(), || {
            "an operand that is never used".to_owned()
        })
    });
}

#[test]
fn work_groups_are_small_and_never_near_square() {
    for_each_variant(|template, _, _, module| {
        let ids: Vec<u32> = module.local_ids.iter().flatten().copied().collect();
        ensure(ids == template.local_ids, || format!("local size by spec ids {ids:?}"))?;
        let sizes: Vec<u32> = ids
            .iter()
            .filter_map(|id| template.specs.iter().find(|s| s.id == *id))
            .map(|s| s.default)
            .collect();
        let invocations: u32 = sizes.iter().product();
        ensure((1..=MAX_INVOCATIONS).contains(&invocations), || format!("{invocations} invocations"))?;
        match sizes[..] {
            [x, y, ..] if y > 1 => ensure(x >= 4 * y, || format!("work groups of {x}x{y}")),
            _ => Ok(()),
        }
    });
}

/// F53 and F54. Shuffles are broken on some drivers, and subgroups have other sizes than they say. Only what shares loads on
/// CPUs needs them, and its family has other kernels (`choices.rs` holds both to each other); no kernel reads what a
/// subgroup is.
#[test]
fn few_kernels_know_of_subgroups() {
    const HEADER_WORDS: usize = 5;
    const OP_DECORATE: u32 = 71;
    const BUILT_IN: u32 = 11;
    const MAY_SHUFFLE: [&str; 4] = ["attention_query", "conv_lanes", "matmul_lanes", "matmul_parts"];
    let is_subgroup_operation = |opcode: u32| (333..=366).contains(&opcode);
    let is_of_subgroups = |built_in: u32| (36..=40).contains(&built_in) || (4416..=4420).contains(&built_in);
    for_each_variant(|template, variant, words, _| {
        let may_shuffle = MAY_SHUFFLE.contains(&template.name);
        ensure(may_shuffle || !variant.needs.contains(Need::Subgroup), || "it needs subgroups".to_owned())?;
        let mut rest = words.get(HEADER_WORDS..).unwrap_or_default();
        while let Some(&first) = rest.first() {
            let (opcode, len) = (first & 0xffff, (first >> 16).max(1) as usize);
            ensure(may_shuffle || !is_subgroup_operation(opcode), || format!("the instruction {opcode}"))?;
            if let (OP_DECORATE, [_, _, BUILT_IN, built_in, ..]) = (opcode, rest) {
                ensure(!is_of_subgroups(*built_in), || format!("the built-in {built_in}"))?;
            }
            rest = rest.get(len..).unwrap_or_default();
        }
        Ok(())
    });
}

#[test]
fn spec_constants_are_declared() {
    for_each_variant(|template, _, _, module| {
        let declared: BTreeSet<u32> = template.specs.iter().map(|spec| spec.id).collect();
        let stranger = module.spec_ids.difference(&declared).next();
        ensure(stranger.is_none(), || format!("spec constant {stranger:?} is undeclared"))
    });
}

/// GLSL files of the templates and of their includes.
fn glsl_files() -> Vec<PathBuf> {
    let shaders = Path::new(env!("CARGO_MANIFEST_DIR")).join("shaders");
    let mut files = Vec::new();
    for folder in [shaders.clone(), shaders.join("lib")] {
        let entries = std::fs::read_dir(&folder).expect("the source tree has its shaders");
        let paths = entries.map(|entry| entry.expect("a readable folder").path());
        files.extend(paths.filter(|path| path.extension().is_some_and(|e| e == "comp" || e == "glsl")));
    }
    files
}

/// Each function of a GLSL text, macros left out: its name, and its body as `(line number, code without comments)`.
fn functions(source: &str) -> Vec<(String, Vec<(usize, String)>)> {
    let mut found: Vec<(String, Vec<(usize, String)>)> = Vec::new();
    let mut depth = 0usize;
    let mut in_macro = false;
    for (number, line) in source.lines().enumerate() {
        let is_macro = in_macro || line.starts_with("#define");
        in_macro = is_macro && line.ends_with('\\');
        if is_macro {
            continue;
        }
        let code = line.split("//").next().unwrap_or_default();
        if depth == 0 && !code.contains('{') {
            continue;
        }
        if depth == 0 {
            let head = code.split('(').next().unwrap_or_default();
            found.push((words(head).last().unwrap_or_default().to_owned(), Vec::new()));
        }
        depth = (depth + code.matches('{').count()).saturating_sub(code.matches('}').count());
        if let Some((_, body)) = found.last_mut() {
            body.push((number + 1, code.to_owned()));
        }
    }
    found
}

fn words(code: &str) -> impl Iterator<Item = &str> {
    code.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}

/// Names that wait for the whole work group: `barrier`, the functions that call it, and those that `ROW_COMBINE` makes.
fn waiting_functions(sources: &[String]) -> BTreeSet<String> {
    let mut waiting = BTreeSet::from(["barrier".to_owned()]);
    let lines = sources.iter().flat_map(|source| source.lines());
    let combined = lines.filter_map(|line| line.strip_prefix("ROW_COMBINE("));
    waiting.extend(combined.filter_map(|rest| words(rest).next()).map(str::to_owned));
    let all: Vec<_> = sources.iter().flat_map(|source| functions(source)).collect();
    loop {
        let known = waiting.len();
        for (name, body) in &all {
            if body.iter().skip(1).any(|(_, code)| words(code).any(|word| waiting.contains(word))) {
                waiting.insert(name.clone());
            }
        }
        if waiting.len() == known {
            return waiting;
        }
    }
}

/// The line of the first `return` that some later wait of the same function follows.
fn return_before_barrier(source: &str, waiting: &BTreeSet<String>) -> Option<usize> {
    for (_, body) in functions(source) {
        let mut returned = None;
        for (number, code) in body.iter().skip(1) {
            if words(code).any(|word| waiting.contains(word)) && returned.is_some() {
                return returned;
            }
            if words(code).any(|word| word == "return") {
                returned = returned.or(Some(*number));
            }
        }
    }
    None
}

#[test]
fn no_invocation_returns_before_a_barrier() {
    let files = glsl_files();
    assert!(files.len() >= kernels::TEMPLATES.len());
    let sources: Vec<String> = files.iter().map(|path| std::fs::read_to_string(path).unwrap()).collect();
    let waiting = waiting_functions(&sources);
    for (path, source) in files.iter().zip(&sources) {
        if let Some(line) = return_before_barrier(source, &waiting) {
            panic!("{}:{line}: returns before a barrier that the other invocations wait at", path.display());
        }
    }
}

#[test]
fn the_return_check_sees_one() {
    let check = |source: &str| return_before_barrier(source, &waiting_functions(&[source.to_owned()]));
    assert_eq!(check("void main() {\n if (a) return;\n barrier();\n}\n"), Some(2));
    assert_eq!(check("void sum() {\n barrier();\n}\nvoid main() {\n return;\n sum();\n}\n"), Some(5));
    assert_eq!(check("float f() {\n return 1.0;\n}\nvoid main() {\n barrier();\n}\n"), None);
    assert_eq!(check("void main() {\n barrier();\n if (a) return;\n}\n"), None);
    assert_eq!(
        check("ROW_COMBINE(row_sum, float, ADD)\nvoid main() {\n return;\n row_sum(1.0);\n}\n"),
        Some(3)
    );
}

#[test]
fn a_dispatch_carries_operands_parameters_and_spec_constants() {
    use kernels::copy;
    use vkdelegate::shader::{Region, StorageId};
    let region = |id| Region { storage: StorageId(id), offset_bytes: 16, len_bytes: 64, element_bytes: 4 };
    let params =
        copy::Params { n_elems: 5, x_start: 9, sizes: [1, 1, 1, 1, 1, 1, 1, 5], ..Default::default() };
    let dispatch = copy::dispatch(
        copy::Axes { dtype: copy::Dtype::I32 },
        copy::Spec::default(),
        copy::Operands { x: region(1), y: region(2) },
        params,
        [1, 1, 1],
        "copy_1",
    );
    let template = dispatch.kernel.info().expect("the template is in the table");
    assert_eq!(template.name, "copy");
    assert_eq!(dispatch.kernel.variant(Access::Bda).expect("a bda variant").axes, "dtype=i32 access=bda");
    assert_eq!(dispatch.params.len(), template.params_bytes as usize);
    assert_eq!(dispatch.params.get(..12), Some(&[5, 0, 0, 0, 9, 0, 0, 0, 1, 0, 0, 0][..]));
    assert_eq!(dispatch.spec, [(1, 64)]);
    let accesses: Vec<OperandAccess> = dispatch.operands.iter().map(|operand| operand.access).collect();
    assert_eq!(accesses, [OperandAccess::Read, OperandAccess::Write]);
}

/// glslang folds a half made from an integer literal to whatever its memory held: `T(0)` must be written `T(0.0)`.
#[test]
fn no_element_is_made_from_an_integer_literal() {
    for path in glsl_files() {
        let source = std::fs::read_to_string(&path).unwrap();
        for (number, line) in source.lines().enumerate() {
            assert!(!makes_half_of_integer(line), "{}:{}: {line}", path.display(), number + 1);
        }
    }
    assert!(makes_half_of_integer("STORE(y, i, T(0));"));
    assert!(makes_half_of_integer("float16_t(-1u)"));
    assert!(!makes_half_of_integer("STORE(y, i, T(0.0)); T(x); CAST(0)"));
}

fn makes_half_of_integer(line: &str) -> bool {
    ["T(", "float16_t("].into_iter().any(|call| {
        line.match_indices(call).any(|(start, _)| {
            let starts_word = !line[..start].ends_with(|c: char| c.is_alphanumeric() || c == '_');
            let argument = line[start + call.len()..].split(')').next().unwrap_or("").trim();
            let digits = argument.trim_start_matches('-').trim_end_matches(['u', 'U']);
            starts_word && !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
        })
    })
}
