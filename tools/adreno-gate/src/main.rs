//! Compiles the committed shaders, or the SPIR-V files that are named, with the Vulkan driver at hand (turnip on its Adreno shim, see
//! `scripts/adreno_gate.sh`), prints what the compiler made of each, and exits 1 when one spills registers, or asks for
//! dot products of packed bytes and is given none of the instructions for them.
//!
//! A shader that needs what the device lacks is no fault: the planner does not pick it there either.

mod device;
mod isa;
mod jobs;
mod spirv;

use std::io::Write;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};

use device::{Compiled, Compiler};

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

/// Compiles everything; false when something fails.
fn run() -> Result<bool> {
    let files: Vec<String> = std::env::args().skip(1).collect();
    let jobs = if files.is_empty() { jobs::of_library()? } else { jobs::of_files(&files)? };
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
        match fault_of(&compiled, job.module.asks_for_packed_dots()) {
            Some(fault) => {
                failed += 1;
                eprintln!("{}: {} {fault}", compiler.device_name(), job.name);
            }
            None => passed += 1,
        }
    }
    eprintln!("{}: {passed} pass, {failed} fail, {absent} not for this device", compiler.device_name());
    if passed + failed == 0 {
        bail!("no shader was compiled for {}", compiler.device_name());
    }
    Ok(failed == 0)
}

/// Why a phone should not run the pipeline.
fn fault_of(compiled: &Compiled, asks_for_packed_dots: bool) -> Option<String> {
    if compiled.spills() > 0 {
        return Some(format!("spills {} times", compiled.spills()));
    }
    (asks_for_packed_dots && compiled.packed_dots == 0)
        .then(|| "multiplies packed bytes without the instruction for it".to_string())
}

/// One line of the table.
struct Row<'a> {
    name: &'a str,
    compiled: &'a Compiled,
}

impl Row<'_> {
    const HEADER: &'static str = "variant                                                      \
                                  instr  regs  waves  threads  spills   dots";
}

impl std::fmt::Display for Row<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let c = self.compiled;
        write!(
            f,
            "{:60} {:5} {:5} {:6} {:8} {:7} {:6}",
            self.name,
            c.stat("Instruction Count"),
            c.stat("Registers used"),
            c.stat("Max Waves Per Core"),
            c.stat("Max Waves Per Core") * u64::from(c.subgroup_size),
            c.spills(),
            c.packed_dots
        )
    }
}
