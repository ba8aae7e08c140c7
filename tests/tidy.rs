//! Holds the house in order: the arrows between layers, where unsafe code and Vulkan may stand, that every op is in the
//! table, and that no file grows past reading.
#![allow(clippy::unwrap_used, reason = "a tidy test fails by panicking")]

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

/// Modules by layer: a module imports from smaller numbers and from itself only.
const LAYERS: &[(&str, u8)] = &[
    ("base", 0),
    ("ir", 1),
    ("shader", 1),
    ("gpu", 2),
    ("ops", 2),
    ("import", 3),
    ("passes", 3),
    ("plan", 4),
    ("delegate", 5),
    ("api", 6),
    ("cli", 7),
    ("capi", 7),
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn files_below(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|found| found == extension) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// Every Rust file of the crate with its module (the first folder) and its text.
fn sources() -> Vec<(String, String, String)> {
    let runtime = root().join("runtime");
    files_below(&runtime, "rs")
        .into_iter()
        .filter_map(|path| {
            let relative = path.strip_prefix(&runtime).unwrap().to_path_buf();
            let module = relative.components().next()?.as_os_str().to_str()?.to_string();
            let name = relative.to_str()?.to_string();
            (relative.components().count() > 1).then(|| (module, name, fs::read_to_string(&path).unwrap()))
        })
        .collect()
}

fn layer(module: &str) -> Option<u8> {
    LAYERS.iter().find(|(name, _)| *name == module).map(|(_, layer)| *layer)
}

/// The part of a file that ships: what stands before its unit tests.
fn shipped(text: &str) -> &str {
    text.split("#[cfg(test)]").next().unwrap_or(text)
}

/// Modules that a line of code names by `crate::MODULE`.
fn crate_modules(text: &str) -> BTreeSet<String> {
    let mut modules = BTreeSet::new();
    for (start, _) in text.match_indices("crate::") {
        let rest = &text[start + "crate::".len()..];
        if let Some(group) = rest.strip_prefix('{') {
            // `use crate::{base::.., ir::..}`: names at depth one of the group.
            let mut depth = 0;
            let mut word = String::new();
            let mut at_start = true;
            for c in group.chars() {
                match c {
                    '{' => depth += 1,
                    '}' if depth == 0 => break,
                    '}' => depth -= 1,
                    ',' if depth == 0 => at_start = true,
                    c if depth == 0 && at_start && (c.is_alphanumeric() || c == '_') => word.push(c),
                    _ if !word.is_empty() => {
                        modules.insert(std::mem::take(&mut word));
                        at_start = false;
                    }
                    _ => {}
                }
            }
            if !word.is_empty() {
                modules.insert(word);
            }
        } else {
            modules.insert(rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect());
        }
    }
    modules
}

#[test]
fn layers_point_downwards() {
    let mut wrong = Vec::new();
    for (module, name, text) in sources() {
        let own = layer(&module).unwrap_or_else(|| panic!("runtime/{module} is in no layer"));
        for used in crate_modules(shipped(&text)) {
            if let Some(other) = layer(&used)
                && used != module
                && other >= own
            {
                wrong.push(format!("{name} (layer {own}) uses {used} (layer {other})"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn only_gpu_names_ash() {
    let wrong: Vec<String> = sources()
        .into_iter()
        .filter(|(module, _, text)| module != "gpu" && (text.contains("ash::") || text.contains("vk::")))
        .map(|(_, name, _)| name)
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn unsafe_code_stands_where_it_may_and_says_why() {
    let mut wrong = Vec::new();
    for (module, name, text) in sources() {
        let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
        let blocks = code.filter(|line| line.contains("unsafe {")).count();
        let allowed = matches!(module.as_str(), "gpu" | "capi") || name == "import/archive.rs";
        if blocks > 0 && !allowed {
            wrong.push(format!("{name}: unsafe code"));
        }
        let reasons = text.lines().filter(|line| line.trim_start().starts_with("// SAFETY:")).count();
        if blocks > reasons {
            wrong.push(format!("{name}: {blocks} unsafe blocks, {reasons} SAFETY comments"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn every_op_file_is_in_the_table() {
    let table = fs::read_to_string(root().join("runtime/ops/table.rs")).unwrap();
    let mut missing = Vec::new();
    for (module, name, text) in sources() {
        if module != "ops" {
            continue;
        }
        for line in text.lines().filter(|line| line.starts_with("impl Op for ")) {
            let family = line.trim_start_matches("impl Op for ").trim_end_matches(" {");
            if !table.contains(&format!("::{family},")) {
                missing.push(format!("{name}: {family}"));
            }
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
}

#[test]
fn every_module_says_what_it_does() {
    let silent: Vec<String> = sources()
        .into_iter()
        .filter(|(_, _, text)| !text.starts_with("//!"))
        .map(|(_, name, _)| name)
        .collect();
    assert!(silent.is_empty(), "{silent:#?}");
}

#[test]
fn no_file_outgrows_its_reader() {
    const MAX_LINES: usize = 600;
    let long: Vec<String> = sources()
        .into_iter()
        .filter(|(_, _, text)| text.lines().count() > MAX_LINES)
        .map(|(_, name, text)| format!("{name}: {} lines", text.lines().count()))
        .collect();
    assert!(long.is_empty(), "{long:#?}");
}

#[test]
fn the_reader_of_imports_understands_both_forms() {
    let text = "use crate::{\n    base::{Error, Result},\n    ir::Node,\n    ops,\n};\nlet x = crate::plan::build();";
    let found: Vec<String> = crate_modules(text).into_iter().collect();
    assert_eq!(found, ["base", "ir", "ops", "plan"]);
}
