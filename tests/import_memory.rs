//! How much memory reading takes. A process of its own, as it looks at the peak of the whole process.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "common/program.rs"]
mod program;
#[path = "common/zip.rs"]
mod zip;

use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::time::{Duration, Instant};

use program::{payload_meta, tensor_meta};
use serde_json::json;
use vkdelegate::import;
use zip::ZipEntry;

/// A figure of this process in KiB, from the line `VmHWM: 1234 kB` and the like.
fn process_kib(figure: &str) -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with(figure)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Writes a program with a second parameter of 3 GiB, most of it a hole in the file.
fn write_with_huge_parameter(path: &std::path::Path) {
    const HUGE: u32 = 3 << 30;
    let mut parts = program::parts();
    let graph = &mut parts.program["graph_module"]["graph"];
    graph["inputs"].as_array_mut().unwrap().insert(0, program::tensor("p_dead"));
    graph["tensor_values"]["p_dead"] = tensor_meta(7, &[i64::from(HUGE / 4)]);
    let specs = parts.program["graph_module"]["signature"]["input_specs"].as_array_mut().unwrap();
    specs.insert(0, json!({"parameter": {"arg": {"name": "p_dead"}, "parameter_name": "dead"}}));
    parts.weights["config"]["dead"] = payload_meta("weight_1", tensor_meta(7, &[i64::from(HUGE / 4)]));
    let mut entries: Vec<_> = zip::unzip(&parts_with_empty_payload(parts))
        .iter()
        .map(|(name, data)| ZipEntry::stored(name, data))
        .collect();
    let dead = entries.iter_mut().find(|entry| entry.name.ends_with(b"weight_1")).unwrap();
    (dead.size, dead.stored_size) = (HUGE, HUGE);
    let bytes = zip::zip(&entries);
    // The huge entry is the last one: its hole comes before the directory, whose offset moves with it.
    let offset_at = bytes.len() - 6;
    let directory = u32::from_le_bytes(bytes[offset_at..offset_at + 4].try_into().unwrap());
    let mut file = File::create(path).unwrap();
    file.write_all(&bytes[..directory as usize]).unwrap();
    file.seek(SeekFrom::Current(HUGE.into())).unwrap();
    file.write_all(&bytes[directory as usize..offset_at]).unwrap();
    file.write_all(&(directory + HUGE).to_le_bytes()).unwrap();
    file.write_all(&bytes[offset_at + 4..]).unwrap();
}

fn parts_with_empty_payload(mut parts: program::Parts) -> Vec<u8> {
    parts.payloads.push(("weights/weight_1".into(), Vec::new()));
    parts.pack()
}

#[cfg(target_os = "linux")]
#[test]
fn what_is_not_used_takes_no_memory() {
    let directory = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"));
    let path = directory.join("huge.pt2");
    write_with_huge_parameter(&path);
    let bomb = {
        let mut entries = vec![ZipEntry::stored("p/archive_format", b"pt2")];
        let mut bomb = ZipEntry::deflated("p/models/model.json", &vec![b' '; 1 << 20]);
        bomb.size = 900 << 20;
        entries.push(bomb);
        zip::zip(&entries)
    };
    let before = process_kib("VmHWM");
    let start = Instant::now();

    let program = import::open(&path).unwrap();
    let graph = &program.methods[0].graph;
    let used = graph.input_of(graph.value_named("p_w").unwrap()).unwrap().kind.constant().unwrap();
    assert_eq!(graph.constant(used).unwrap().to_tensor().unwrap().len_elems(), 6);
    import::from_bytes(bomb.into()).unwrap_err();

    assert!(start.elapsed() < Duration::from_secs(1));
    assert!(process_kib("VmHWM") - before < 64 << 10);
    std::fs::remove_file(path).unwrap();
}
