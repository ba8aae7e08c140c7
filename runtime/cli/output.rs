//! What goes to standard output and standard error, and in what form.

use std::io::{ErrorKind, Write as _};

use anyhow::Result;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value as Json, json};
use vkdelegate::{DeviceInfo, MemoryReport};

/// Prints to standard output. A reader that has gone away is no error.
pub fn print(text: &str) -> Result<()> {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.write_all(b"\n")) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

/// Prints the one document that a command with `--json` prints.
pub fn print_json(document: &Json) -> Result<()> {
    print(&serde_json::to_string_pretty(document)?)
}

/// A float, or null where JSON has none.
pub fn number(value: f64) -> Json {
    serde_json::Number::from_f64(value).map_or(Json::Null, Json::Number)
}

/// A progress bar on standard error, shown only on a terminal.
pub fn progress_bar(len: u64) -> ProgressBar {
    let bar = ProgressBar::new(len);
    if let Ok(style) = ProgressStyle::with_template("{msg} {bar:30} {pos}/{len} {elapsed}") {
        bar.set_style(style);
    }
    bar
}

/// Name and driver of a device in one line.
pub fn device_line(info: &DeviceInfo) -> String {
    let description = &info.description;
    format!("{} ({} {})", description.name, description.driver_name, description.driver_info)
}

/// Device memory, by what it is for.
pub fn memory_json(memory: &MemoryReport) -> Json {
    let MemoryReport { constant_bytes, state_bytes, arena_bytes, live_bytes, staging_bytes } = *memory;
    json!({
        "constant_bytes": constant_bytes,
        "state_bytes": state_bytes,
        "arena_bytes": arena_bytes,
        "live_bytes": live_bytes,
        "staging_bytes": staging_bytes,
        "total_bytes": constant_bytes + state_bytes + arena_bytes + staging_bytes,
    })
}

/// So many things, in words for people: `1 node`, `2 nodes`.
pub fn count(number: usize, thing: &str) -> String {
    format!("{number} {thing}{}", if number == 1 { "" } else { "s" })
}

/// A size in bytes for people.
pub fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["B", "KiB", "MiB", "GiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{bytes} B") } else { format!("{value:.1} {}", UNITS[unit]) }
}

/// Device memory in one line.
pub fn memory_line(memory: &MemoryReport) -> String {
    format!(
        "constants {}, state {}, arena {} (of which {} alive at once), staging {}",
        bytes(memory.constant_bytes),
        bytes(memory.state_bytes),
        bytes(memory.arena_bytes),
        bytes(memory.live_bytes),
        bytes(memory.staging_bytes)
    )
}
