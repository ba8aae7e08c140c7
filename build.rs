//! Holds the committed shaders against their sources and generates the Rust side of each kernel.
//!
//! Reads `shaders/*.comp`, their includes, `shaders/index/` and `shaders/bundle/`; writes only
//! `OUT_DIR/kernels.rs`. It never compiles GLSL: a stale index stops the build.

#[path = "shaders/generate.rs"]
mod generate;
#[allow(dead_code)] // The writers serve the shader compiler.
#[path = "runtime/shader/header.rs"]
mod header;
#[allow(dead_code)] // The writers serve the shader compiler.
#[path = "runtime/shader/index.rs"]
mod index;

use std::path::{Path, PathBuf};
use std::{env, fs, process};

use index::{HASH_SEED, Index, OPTIONS, hash_bytes, source_hash, with_includes};

fn main() {
    println!("cargo::rerun-if-changed=shaders");
    for file in ["header", "index"] {
        println!("cargo::rerun-if-changed=runtime/shader/{file}.rs");
    }
    if let Err(fault) = generate_kernels() {
        eprintln!("error: {fault}");
        println!("cargo::error={}", fault.replace('\n', " "));
        process::exit(1);
    }
}

fn generate_kernels() -> Result<(), String> {
    let variable = |name| env::var_os(name).map(PathBuf::from).ok_or(format!("cargo sets no {name}"));
    let shaders = variable("CARGO_MANIFEST_DIR")?.join("shaders");
    let mut checked = Vec::new();
    let mut stale = Vec::new();
    for name in stems(&shaders, "comp")? {
        match fresh_index(&shaders, &name) {
            Ok(index) => checked.push(index),
            Err(fault) => stale.push(format!("shaders/{name}.comp: {fault}")),
        }
    }
    for name in stems(&shaders.join("index"), "txt")? {
        if !shaders.join(format!("{name}.comp")).exists() {
            stale.push(format!("shaders/index/{name}.txt: its template is gone"));
        }
    }
    if !stale.is_empty() {
        return Err(format!("compiled shaders are stale; run `make shaders`:\n  {}", stale.join("\n  ")));
    }
    let out = variable("OUT_DIR")?.join("kernels.rs");
    fs::write(&out, generate::kernels(&checked)?).map_err(|e| format!("cannot write {}: {e}", out.display()))
}

/// The index of a template, when it and the bundle match the sources.
fn fresh_index(shaders: &Path, name: &str) -> Result<Index, String> {
    let mut read = |path: &str| fs::read_to_string(shaders.join(path)).map_err(|e| format!("{path}: {e}"));
    let text = read(&format!("index/{name}.txt"))?;
    let files = with_includes(&format!("{name}.comp"), &mut read)?;
    let index = Index::parse(&text)?;
    if index.options != OPTIONS || index.source_hash != source_hash(&files, OPTIONS, &index.compiler) {
        let includes: Vec<&str> = files.iter().skip(1).map(|(path, _)| path.as_str()).collect();
        return Err(format!("it or one of its includes ({}) changed", includes.join(", ")));
    }
    let bundle = fs::read(shaders.join("bundle").join(format!("{name}.bin")))
        .map_err(|e| format!("its bundle: {e}"))?;
    if index.bundle_hash != hash_bytes(HASH_SEED, &bundle) {
        return Err("its bundle is not the one that its index describes".to_owned());
    }
    Ok(index)
}

/// Names of the files with one extension, without it, sorted.
fn stems(folder: &Path, extension: &str) -> Result<Vec<String>, String> {
    let entries = fs::read_dir(folder).map_err(|e| format!("cannot read {}: {e}", folder.display()))?;
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let wanted = paths.filter(|path| path.extension().is_some_and(|found| found == extension));
    let mut names: Vec<String> =
        wanted.filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned())).collect();
    names.sort();
    Ok(names)
}
