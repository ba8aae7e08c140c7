//! Compiles the committed shaders, or the SPIR-V files that are named, with the Vulkan driver at hand (turnip on its
//! Adreno shim, see `scripts/adreno_gate.sh`), prints what the compiler made of each, and exits 1 when one spills
//! registers, asks for dot products of packed bytes and is given none of the instructions for them, or is worse than
//! the committed table allows.
//!
//! What a phone picks, it picks in plans that are made here for models and for the programs of `tests/`. A shader that
//! needs what the device lacks is no fault: the planner does not pick it there either.
//!
//! ```text
//! adreno-gate FILE.spv...                       these modules
//! adreno-gate --against TABLE.json              all shaders; those that a phone picks against the table
//! adreno-gate --rows ROWS.json                  those that a phone picks; writes the rows of the table
//! adreno-gate --table TABLE.json TABLE.md ROWS.json...   makes the table from rows
//! ```

mod device;
mod gate;
mod isa;
mod jobs;
mod picks;
mod programs;
mod spirv;
mod table;
mod tests_common;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};

use device::{Compiled, Compiler};
use gate::Verdict;
use jobs::Job;
use picks::Picks;
use table::{Row, Table};
use vkdelegate::{Gpu, GpuOptions};

/// What to do.
enum Command {
    Files(Vec<String>),
    Against(PathBuf),
    Rows(PathBuf),
    Table { json: PathBuf, markdown: PathBuf, rows: Vec<PathBuf> },
}

fn main() -> ExitCode {
    match command().and_then(run) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("adreno-gate: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn command() -> Result<Command> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    Ok(match words[..] {
        ["--against", table] => Command::Against(table.into()),
        ["--rows", rows] => Command::Rows(rows.into()),
        ["--table", json, markdown, ref rows @ ..] => Command::Table {
            json: json.into(),
            markdown: markdown.into(),
            rows: rows.iter().map(PathBuf::from).collect(),
        },
        [first, ..] if !first.starts_with("--") => {
            Command::Files(words.iter().map(|&word| word.into()).collect())
        }
        _ => bail!(
            "usage: FILE.spv..., --against TABLE.json, --rows ROWS.json, or --table TABLE.json TABLE.md ROWS.json..."
        ),
    })
}

/// Does it; false when something fails.
fn run(command: Command) -> Result<bool> {
    match command {
        Command::Table { json, markdown, rows } => {
            let tables = rows.iter().map(|path| Table::read(path)).collect::<Result<Vec<_>>>()?;
            write_table(&Table::merged(tables)?, &json, &markdown)?;
            Ok(true)
        }
        Command::Files(files) => {
            Ok(Run::new(Compiler::open()?, None)?.compile(jobs::of_files(&files)?)?.passes())
        }
        Command::Against(path) => {
            let compiler = Compiler::open()?;
            let jobs = jobs::of_library(&picks_here()?, false)?;
            let done = Run::new(compiler, Some(Table::read(&path)?))?.compile(jobs)?;
            done.report_staleness();
            Ok(done.passes())
        }
        Command::Rows(path) => {
            let compiler = Compiler::open()?;
            let jobs = jobs::of_library(&picks_here()?, true)?;
            let done = Run::new(compiler, None)?.compile(jobs)?;
            Table { mesa: done.compiler.driver().to_string(), rows: done.listed.clone() }.write(&path)?;
            Ok(done.passes())
        }
    }
}

/// What plans take on the device that the compiler is for.
fn picks_here() -> Result<Picks> {
    let gpu = Gpu::open(GpuOptions::default())?;
    Picks::of(gpu.context().profile())
}

fn write_table(table: &Table, json: &Path, markdown: &Path) -> Result<()> {
    table.write(json)?;
    std::fs::write(markdown, table.markdown()?)
        .with_context(|| format!("cannot write {}", markdown.display()))
}

/// One device's pipelines.
struct Run {
    compiler: Compiler,
    gpu: String,
    /// What to compare with.
    committed: Option<Table>,
    /// Rows for the table.
    listed: Vec<Row>,
    passed: usize,
    failed: usize,
}

impl Run {
    fn new(compiler: Compiler, committed: Option<Table>) -> Result<Self> {
        let gpu = gpu_of(compiler.device_name())?;
        Ok(Self { compiler, gpu, committed, listed: Vec::new(), passed: 0, failed: 0 })
    }

    /// Compiles all, with a line for each.
    fn compile(mut self, jobs: Vec<Job>) -> Result<Self> {
        println!("# {} ({})", self.compiler.device_name(), self.compiler.driver());
        println!("{}", line("variant", &Row::HEADER.map(String::from), "dots"));
        let mut absent = 0;
        for job in &jobs {
            if let Some(feature) = self.compiler.missing_feature(&job.module) {
                println!("{:WIDTH$} needs {feature}", job.name);
                absent += 1;
                continue;
            }
            self.compile_one(job).with_context(|| job.name.clone())?;
            // turnip ends the process on some shaders; the table then ends with the last one that went well.
            std::io::stdout().flush()?;
        }
        let name = self.compiler.device_name();
        eprintln!("{name}: {} pass, {} fail, {absent} not for this device", self.passed, self.failed);
        if self.passed + self.failed == 0 {
            bail!("no shader was compiled for {name}");
        }
        Ok(self)
    }

    fn compile_one(&mut self, job: &Job) -> Result<()> {
        let compiled = self.compiler.compile(&job.module, &job.spec, job.wants_loop)?;
        let row = row_of(&self.gpu, &job.name, &compiled);
        println!("{}", line(&job.name, &row.cells(), &compiled.packed_dots.to_string()));
        let verdict = match (fault_of(&compiled, job.module.asks_for_packed_dots()), &self.committed) {
            // A plan that picks it all the same is not excused.
            (Some(fault), _) if job.is_for_others && !job.is_picked => {
                Verdict::Excused(format!("{fault}, and is for other devices"))
            }
            (Some(fault), _) => Verdict::Fails(fault),
            (None, Some(committed)) if job.is_picked => gate::judge(&row, committed, self.compiler.driver()),
            _ => Verdict::Passes,
        };
        let name = self.compiler.device_name();
        match verdict {
            Verdict::Passes => self.passed += 1,
            Verdict::Excused(fault) => {
                self.passed += 1;
                eprintln!("{name}: warning: {} {fault}", job.name);
            }
            Verdict::Fails(fault) => {
                self.failed += 1;
                eprintln!("{name}: {} {fault}", job.name);
            }
        }
        if job.is_listed || job.is_picked && row.lacks_threads() {
            self.listed.push(row);
        }
        Ok(())
    }

    fn passes(&self) -> bool {
        self.failed == 0
    }

    fn report_staleness(&self) {
        let listed: Vec<&Row> = self.listed.iter().collect();
        let stale = self.committed.as_ref().and_then(|table| gate::staleness(&listed, &self.gpu, table));
        if let Some(stale) = stale {
            eprintln!("{}: warning: {stale}", self.compiler.device_name());
        }
    }
}

/// The model number in a device's name.
fn gpu_of(device_name: &str) -> Result<String> {
    let mut numbers = device_name.split(|c: char| !c.is_ascii_digit());
    let model = numbers.rfind(|digits| digits.len() >= 3);
    model.map(String::from).with_context(|| format!("'{device_name}' has no model number"))
}

fn row_of(gpu: &str, name: &str, compiled: &Compiled) -> Row {
    let (slots, multiply_adds) = compiled.hot_loop.map_or((0, 0), |found| (found.slots, found.multiply_adds));
    Row {
        gpu: gpu.to_string(),
        pipeline: name.to_string(),
        instructions: compiled.stat("Instruction Count"),
        full: compiled.stat("Registers used"),
        half: compiled.stat("Half-registers used"),
        threads: compiled.threads(),
        spills: compiled.spills(),
        slots,
        multiply_adds,
    }
}

/// Why a phone should not run the pipeline.
fn fault_of(compiled: &Compiled, asks_for_packed_dots: bool) -> Option<String> {
    if compiled.spills() > 0 {
        return Some(format!("spills {} times", compiled.spills()));
    }
    (asks_for_packed_dots && compiled.packed_dots == 0)
        .then(|| "multiplies packed bytes without the instruction for it".to_string())
}

/// Characters of a name in a line.
const WIDTH: usize = 100;

fn line(name: &str, cells: &[String; 7], dots: &str) -> String {
    let cells: String = cells.iter().map(|cell| format!(" {cell:>13}")).collect();
    format!("{name:WIDTH$}{cells} {dots:>5}")
}

#[cfg(test)]
mod tests {
    use super::gpu_of;

    #[test]
    fn a_device_is_known_by_its_model_number() {
        assert_eq!(gpu_of("Turnip Adreno (TM) 730").ok().as_deref(), Some("730"));
        assert_eq!(gpu_of("Adreno (TM) 830").ok().as_deref(), Some("830"));
        assert!(gpu_of("llvmpipe").is_err());
    }
}
