//! `make shaders`: compiles the GLSL templates in `shaders/` to `shaders/index/` and `shaders/bundle/`.
//!
//! It stands outside the crate because the crate does not build while an index is stale.

mod compile;
#[path = "../../../runtime/shader/header.rs"]
mod header;
#[path = "../../../runtime/shader/index.rs"]
mod index;
mod make;
mod reflect;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};

const USAGE: &str = "usage: make-shaders [--root DIR] [--all | --check] [TEMPLATE ...]
  compiles the templates that changed, or the named ones, and writes their index and bundle
  --root DIR  the source tree (default: the current folder)
  --all       compiles every template
  --check     compiles every template, writes nothing, and fails when a committed file differs";

struct Arguments {
    root: PathBuf,
    all: bool,
    check: bool,
    templates: Vec<String>,
}

fn arguments() -> Result<Arguments> {
    let mut parsed = Arguments { root: PathBuf::from("."), all: false, check: false, templates: Vec::new() };
    let mut rest = std::env::args().skip(1);
    while let Some(argument) = rest.next() {
        match argument.as_str() {
            "--root" => parsed.root = rest.next().context(USAGE)?.into(),
            "--all" => parsed.all = true,
            "--check" => parsed.check = true,
            flag if flag.starts_with('-') => bail!("{USAGE}"),
            name => parsed.templates.push(name.trim_end_matches(".comp").to_owned()),
        }
    }
    Ok(parsed)
}

fn run() -> Result<()> {
    let arguments = arguments()?;
    let shaders = arguments.root.join("shaders");
    let present = templates(&shaders)?;
    if let Some(name) = arguments.templates.iter().find(|name| !present.contains(name)) {
        bail!("{} has no {name}.comp", shaders.display());
    }
    let compiler = compile::GlslCompiler::new(&shaders)?;
    let mut failed = Vec::new();
    for name in &present {
        let wanted = if arguments.templates.is_empty() {
            arguments.all || arguments.check || !make::is_fresh(&shaders, name)
        } else {
            arguments.templates.contains(name)
        };
        if wanted {
            let done = make::template(&compiler, &shaders, name).and_then(|made| {
                if arguments.check {
                    make::compare(&shaders, name, &made)
                } else {
                    make::write(&shaders, name, &made)
                }
            });
            if let Err(fault) = done {
                eprintln!("{name}.comp: {fault:#}");
                failed.push(name.as_str());
            }
        }
    }
    if arguments.templates.is_empty() {
        make::stray_files(&shaders, &present, arguments.check)?;
    }
    if !failed.is_empty() {
        bail!("{} of {} templates failed: {}", failed.len(), present.len(), failed.join(", "));
    }
    Ok(())
}

/// Names of the templates, sorted.
fn templates(shaders: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(shaders).with_context(|| format!("cannot read {}", shaders.display()))? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "comp") {
            names.extend(path.file_stem().and_then(|stem| stem.to_str()).map(str::to_owned));
        }
    }
    names.sort();
    Ok(names)
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(fault) => {
            eprintln!("make-shaders: {fault:#}");
            ExitCode::FAILURE
        }
    }
}
