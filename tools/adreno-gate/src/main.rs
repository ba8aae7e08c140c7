//! Compiles SPIR-V compute shaders with the Vulkan driver at hand (turnip on its Adreno shim, see
//! `scripts/adreno_gate.sh`), prints what the compiler made of each, and exits 1 when one spills registers.
//!
//! A shader that needs what the device lacks is no fault: the planner does not pick it there either.

mod device;
mod spirv;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};

use device::{Compiled, Compiler};
use spirv::Module;

/// The spec constants of one compile: id and value.
type Spec = Vec<(u32, u32)>;

/// One pipeline to compile.
struct Job {
    name: String,
    module: Module,
    spec: Spec,
}

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("adreno-gate: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// Compiles everything; false when something spills.
fn run() -> Result<bool> {
    let jobs = jobs_of(std::env::args().skip(1))?;
    let compiler = Compiler::open()?;
    println!("# {} ({})", compiler.device_name(), compiler.driver());
    println!("{}", Row::HEADER);

    let (mut passed, mut absent, mut failed) = (0, 0, 0);
    for job in &jobs {
        if let Some(feature) = compiler.missing_feature(&job.module) {
            println!("{:60} needs {feature}", job.name);
            absent += 1;
            continue;
        }
        let compiled = compiler.compile(&job.module, &job.spec).with_context(|| job.name.clone())?;
        let row = Row { name: &job.name, compiled: &compiled };
        println!("{row}");
        // turnip ends the process on some shaders; the table then ends with the last one that went well.
        std::io::stdout().flush()?;
        if compiled.spills() > 0 {
            failed += 1;
            eprintln!("{}: {} spills {} times", compiler.device_name(), job.name, compiled.spills());
        } else {
            passed += 1;
        }
    }
    eprintln!("{}: {passed} pass, {failed} spill, {absent} not for this device", compiler.device_name());
    if passed + failed == 0 {
        bail!("no shader was compiled for {}", compiler.device_name());
    }
    Ok(failed == 0)
}

/// Reads `FILE.spv` or `FILE.spv@ID=VALUE,ID=VALUE` arguments.
fn jobs_of(arguments: impl Iterator<Item = String>) -> Result<Vec<Job>> {
    let jobs = arguments.map(|argument| job_of(&argument)).collect::<Result<Vec<_>>>()?;
    if jobs.is_empty() {
        bail!("usage: adreno-gate FILE.spv[@ID=VALUE,...]...");
    }
    Ok(jobs)
}

fn job_of(argument: &str) -> Result<Job> {
    let (file, spec) = argument.split_once('@').unwrap_or((argument, ""));
    let path = PathBuf::from(file);
    let bytes = std::fs::read(&path).with_context(|| format!("cannot read {file}"))?;
    let module = Module::parse(&bytes).with_context(|| format!("{file} is no SPIR-V module"))?;
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let name = if spec.is_empty() { stem.into_owned() } else { format!("{stem}@{spec}") };
    Ok(Job { name, module, spec: spec_of(spec)? })
}

fn spec_of(text: &str) -> Result<Spec> {
    let entry = |word: &str| -> Result<(u32, u32)> {
        let (id, value) = word.split_once('=').with_context(|| format!("'{word}' is not ID=VALUE"))?;
        Ok((id.parse()?, value.parse()?))
    };
    text.split(',').filter(|word| !word.is_empty()).map(entry).collect()
}

/// One line of the table.
struct Row<'a> {
    name: &'a str,
    compiled: &'a Compiled,
}

impl Row<'_> {
    const HEADER: &'static str = "variant                                                      \
                                  instr  regs  waves  threads  spills";
}

impl std::fmt::Display for Row<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let c = self.compiled;
        write!(
            f,
            "{:60} {:5} {:5} {:6} {:8} {:7}",
            self.name,
            c.stat("Instruction Count"),
            c.stat("Registers used"),
            c.stat("Max Waves Per Core"),
            c.stat("Max Waves Per Core") * u64::from(c.subgroup_size),
            c.spills()
        )
    }
}
