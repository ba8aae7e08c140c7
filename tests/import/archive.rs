//! Archives that lie about themselves.

use std::time::{Duration, Instant};

use super::common::program;
use super::common::zip::{ZipEntry, rezip, unzip, zip};
use super::{fixture, load, read_constants, refusal};

fn entries() -> Vec<ZipEntry> {
    unzip(&program::parts().pack()).iter().map(|(name, data)| ZipEntry::stored(name, data)).collect()
}

/// Replaces the program's entry.
fn with_program(change: impl FnOnce(&mut ZipEntry)) -> Vec<u8> {
    let mut entries = entries();
    change(entries.iter_mut().find(|entry| entry.name.ends_with(b"model.json")).unwrap());
    zip(&entries)
}

fn with_entry(entry: ZipEntry) -> Vec<u8> {
    let mut entries = entries();
    entries.push(entry);
    zip(&entries)
}

#[test]
fn lies_about_sizes_are_found_at_once() {
    let huge = 2_200_000_000;
    let start = Instant::now();
    for bytes in [
        with_program(|entry| (entry.size, entry.stored_size) = (huge, huge)),
        with_program(|entry| entry.size = huge),
        with_program(|entry| entry.stored_size = huge),
        with_program(|entry| (entry.method, entry.size) = (8, huge)),
        with_program(|entry| entry.local_offset = Some(u32::MAX - 1)),
        with_program(|entry| entry.local_offset = Some(0)),
        with_program(|entry| (entry.size, entry.stored_size) = (u32::MAX, u32::MAX)),
    ] {
        load(bytes).unwrap_err();
    }
    assert!(start.elapsed() < Duration::from_secs(1));
}

/// The directory's own count, and local headers that say something else than the directory does.
#[test]
fn a_directory_that_does_not_fit_its_entries_is_refused() {
    let sound = program::parts().pack();
    let end = sound.len() - 22;
    for count in [1u16, 65_534, 65_535] {
        let mut bytes = sound.clone();
        for at in [end + 8, end + 10] {
            bytes[at..at + 2].copy_from_slice(&count.to_le_bytes());
        }
        load(bytes).map(|_| ()).unwrap_err();
    }
    let header = sound.windows(19).position(|bytes| bytes == b"p/models/model.json").unwrap() - 30;
    assert_eq!(&sound[header..header + 4], b"PK\x03\x04");
    // Method, checksum, stored size, size, length of the name, and a letter of it.
    for at in [8, 14, 18, 22, 26, 32] {
        let mut bytes = sound.clone();
        bytes[header + at] ^= 4;
        load(bytes).map(|_| ()).unwrap_err();
    }
}

#[test]
fn a_zip64_size_beyond_all_memory_is_refused() {
    let mut extra = vec![1, 0, 16, 0];
    extra.extend_from_slice(&(1u64 << 63).to_le_bytes());
    extra.extend_from_slice(&(1u64 << 63).to_le_bytes());
    let bytes = with_program(|entry| {
        (entry.size, entry.stored_size) = (u32::MAX, u32::MAX);
        entry.extra = extra;
    });
    assert!(refusal(bytes).contains("beyond the file"));
}

#[test]
fn deflated_programs_are_read_and_bombs_are_not() {
    let text = program::program().to_string();
    load(with_program(|entry| *entry = ZipEntry::deflated("p/models/model.json", text.as_bytes()))).unwrap();
    let zeros = vec![b' '; 64 << 20];
    let mut bomb = ZipEntry::deflated("p/models/model.json", &zeros);
    bomb.size = u32::MAX - 1;
    assert!(refusal(with_program(|entry| *entry = bomb)).contains("the limit is"));
}

#[test]
fn names_never_lead_outside() {
    for name in ["../evil", "/etc/passwd", "p\\..\\x", "C:\\x", "p/../../x", "p/\0"] {
        assert!(refusal(with_entry(ZipEntry::stored(name, b"x"))).contains("its name"), "{name}");
    }
    let link = ZipEntry { external_attributes: 0o120777 << 16, ..ZipEntry::stored("p/link", b"/etc/passwd") };
    assert!(refusal(with_entry(link)).contains("symbolic link"));
    assert!(refusal(with_entry(ZipEntry::stored(&"n".repeat(65_000), b"x"))).contains("its name"));
    assert!(refusal(with_entry(ZipEntry::stored("p/models/model.json", b"{}"))).contains("two entries"));
}

#[test]
fn folders_and_foreign_entries_are_left_alone() {
    load(with_entry(ZipEntry::stored("p/data/", b""))).unwrap();
    load(with_entry(ZipEntry::stored("__MACOSX/x", b"whatever"))).unwrap();
}

#[test]
fn a_flipped_payload_byte_is_an_error_on_use() {
    let mut bytes = program::parts().pack();
    let payload: Vec<u8> = (0u8..6).flat_map(|i| f32::from(i).to_le_bytes()).collect();
    let at = bytes.windows(24).position(|window| window == payload).unwrap();
    bytes[at + 7] ^= 0x80;
    let program = load(bytes).unwrap();
    let error = read_constants(&program).unwrap_err().to_string();
    assert!(error.contains("weight_0") && error.contains("corrupt"), "{error}");
}

#[test]
fn sample_inputs_are_never_read() {
    let original = std::fs::read(fixture("linear_const.pt2")).unwrap();
    let mut entries = unzip(&original);
    entries.retain(|(name, _)| !name.contains("sample_inputs"));
    read_constants(&load(rezip(&entries)).unwrap()).unwrap();
}

#[test]
fn every_truncation_is_an_error() {
    let bytes = std::fs::read(fixture("symint_input.pt2")).unwrap();
    for len in (0..bytes.len()).step_by(37) {
        load(&bytes[..len]).unwrap_err();
    }
}
