//! The zip archive of a .pt2 file: its directory, checked once, and its entries, read in place.
//!
//! Entries are looked up by their exact name and never touch the file system, so no name can lead
//! outside the archive. Must never know what an entry means (`layout` and `weights` do).

use std::borrow::Cow;
use std::collections::HashMap;
use std::fs::File;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rawzip::{CompressionMethod, ZipArchive, ZipFileHeaderRecord, ZipSliceArchive};

use super::damaged;
use crate::base::{Error, ErrorKind, Result};

/// Most entries that an archive may have; torch writes one for each stored tensor.
const MAX_ENTRIES: u64 = 1 << 18;
/// Longest entry name, in bytes.
const MAX_NAME_BYTES: usize = 1024;
/// Largest size that a compressed entry may have once inflated. torch itself stores all entries
/// uncompressed, and those have no such limit.
const MAX_INFLATED_BYTES: u64 = 1 << 30;
/// No deflate stream expands further than this (RFC 1951: 258 bytes from 2 bits).
const MAX_DEFLATE_RATIO: u64 = 1032;

/// A file's bytes: mapped, so that a page is read only when something uses it, or owned.
enum Storage {
    Mapped(memmap2::Mmap),
    Owned(Arc<[u8]>),
}

impl AsRef<[u8]> for Storage {
    fn as_ref(&self) -> &[u8] {
        match self {
            Storage::Mapped(map) => map,
            Storage::Owned(bytes) => bytes,
        }
    }
}

/// Index of an entry of one [`Archive`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct EntryId(usize);

struct Entry {
    name: String,
    deflated: bool,
    /// Stored bytes of the entry in the file.
    data: Range<usize>,
    /// Size once inflated; equals the length of `data` for a stored entry.
    size_bytes: usize,
    crc32: u32,
    /// Set once the content has been seen to match `crc32`.
    verified: AtomicBool,
}

/// An open archive whose directory is consistent: unique sound names, disjoint entries, all inside the file.
pub(super) struct Archive {
    storage: Storage,
    entries: Vec<Entry>,
    by_name: HashMap<String, EntryId>,
}

impl std::fmt::Debug for Archive {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Archive").field("entries", &self.entries.len()).finish_non_exhaustive()
    }
}

impl Archive {
    /// Maps the file at `path`. The file must not be changed or truncated while the archive is in use.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let io =
            |e: std::io::Error| Error::new(ErrorKind::Io, format!("cannot read {}: {e}", path.display()));
        let file = File::open(path).map_err(io)?;
        let metadata = file.metadata().map_err(io)?;
        if metadata.is_dir() {
            return Err(io(std::io::Error::other("it is a directory, a .pt2 file is expected")));
        }
        if metadata.len() == 0 {
            return Err(not_a_zip("the file is empty"));
        }
        Self::new(Storage::Mapped(map_file(&file).map_err(io)?))
    }

    /// Reads an archive that is in memory already.
    pub(super) fn from_bytes(bytes: Arc<[u8]>) -> Result<Self> {
        Self::new(Storage::Owned(bytes))
    }

    fn new(storage: Storage) -> Result<Self> {
        let entries = read_directory(storage.as_ref())?;
        let mut by_name = HashMap::with_capacity(entries.len());
        for (index, entry) in entries.iter().enumerate() {
            if by_name.insert(entry.name.clone(), EntryId(index)).is_some() {
                return Err(damaged(&entry.name, "two entries have this name"));
            }
        }
        Ok(Self { storage, entries, by_name })
    }

    /// Names of all entries, in the order of the directory.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().map(|entry| entry.name.as_str())
    }

    /// The entry of exactly this name.
    pub(super) fn find(&self, name: &str) -> Option<EntryId> {
        self.by_name.get(name).copied()
    }

    /// Size of an entry's content in bytes, known without reading it.
    pub(super) fn size_bytes(&self, id: EntryId) -> usize {
        self.entries.get(id.0).map_or(0, |entry| entry.size_bytes)
    }

    /// Content of an entry: in place if it is stored, else inflated. The first read checks the CRC.
    pub(super) fn read(&self, id: EntryId) -> Result<Cow<'_, [u8]>> {
        let entry = self.entries.get(id.0).ok_or_else(|| damaged("archive", "entry of another archive"))?;
        let stored = self
            .storage
            .as_ref()
            .get(entry.data.clone())
            .ok_or_else(|| damaged(&entry.name, "the file has shrunk"))?;
        let content =
            if entry.deflated { Cow::Owned(inflate(entry, stored)?) } else { Cow::Borrowed(stored) };
        if !entry.verified.load(Ordering::Relaxed) {
            let actual = crc32fast::hash(&content);
            if actual != entry.crc32 {
                let reason =
                    format!("the content is corrupt (CRC {actual:08x}, should be {:08x})", entry.crc32);
                return Err(damaged(&entry.name, reason));
            }
            entry.verified.store(true, Ordering::Relaxed);
        }
        Ok(content)
    }
}

#[allow(unsafe_code)]
fn map_file(file: &File) -> std::io::Result<memmap2::Mmap> {
    // SAFETY: `Mmap::map` asks that the file is not modified while it is mapped. The mapping is
    // private and read-only, and `Archive::open` hands the duty not to change the file to its caller.
    unsafe { memmap2::Mmap::map(file) }
}

fn not_a_zip(reason: impl std::fmt::Display) -> Error {
    Error::bad_file(format!(
        "this is not a zip archive, so not a .pt2 file ({reason}); write the file with \
         torch.export.save(program, \"model.pt2\"), and copy it in binary mode"
    ))
}

/// Reads and checks the directory. What it returns lies inside `bytes`, and no two entries overlap.
fn read_directory(bytes: &[u8]) -> Result<Vec<Entry>> {
    let zip = ZipArchive::from_slice(bytes).map_err(not_a_zip)?;
    let count = zip.entries_hint();
    if count > MAX_ENTRIES {
        let reason = format!("it claims {count} entries, the limit is {MAX_ENTRIES}");
        return Err(damaged("archive", reason));
    }
    let mut entries = Vec::new();
    let mut spans = Vec::new();
    let mut seen = 0u64;
    for record in zip.entries() {
        let record = record.map_err(|e| damaged("archive directory", e.to_string()))?;
        seen += 1;
        if seen > count {
            break;
        }
        let name = check_name(record.file_path().as_bytes()).map_err(|reason| {
            let name =
                String::from_utf8_lossy(record.file_path().as_bytes()).chars().take(80).collect::<String>();
            damaged(format!("entry {name:?}"), reason)
        })?;
        let (span, entry) = read_entry(&zip, &record, name)?;
        spans.push(span);
        entries.extend(entry);
    }
    if seen != count {
        let reason =
            format!("it claims {count} entries and has {}", if seen > count { "more" } else { "fewer" });
        return Err(damaged("archive directory", reason));
    }
    check_disjoint(spans, zip.directory_offset())?;
    Ok(entries)
}

/// Checks one entry against its local header. Gives the bytes of the file that it takes with its
/// name, and the entry itself unless it is a folder.
fn read_entry(
    zip: &ZipSliceArchive<&[u8]>,
    record: &ZipFileHeaderRecord<'_>,
    name: &str,
) -> Result<((u64, u64, String), Option<Entry>)> {
    let fail = |reason: &str| damaged(name, reason);
    let entry = zip.get_entry(record.wayfinder()).map_err(|_| fail("it ends beyond the file"))?;
    let local = entry.local_header();
    check_local_header(record, &local).map_err(fail)?;
    if record.mode().is_symlink() {
        return Err(fail("it is a symbolic link"));
    }
    if record.flags().is_encrypted() {
        return Err(fail("it is encrypted"));
    }
    let (size, stored_size) = (record.uncompressed_size_hint(), record.compressed_size_hint());
    let deflated = match record.compression_method() {
        CompressionMethod::STORE if size != stored_size => return Err(fail("its two sizes disagree")),
        CompressionMethod::STORE => false,
        CompressionMethod::DEFLATE if size > MAX_INFLATED_BYTES => {
            return Err(fail(&format!("it inflates to {size} bytes, the limit is {MAX_INFLATED_BYTES}")));
        }
        CompressionMethod::DEFLATE if size > stored_size.saturating_mul(MAX_DEFLATE_RATIO) => {
            return Err(fail("it claims a size that its data cannot inflate to"));
        }
        CompressionMethod::DEFLATE => true,
        _ => return Err(fail("its compression method is neither stored nor deflated")),
    };
    let (start, end) = entry.compressed_data_range();
    let span = (record.local_header_offset(), end, name.to_owned());
    if record.is_dir() {
        return if size == 0 { Ok((span, None)) } else { Err(fail("it is a folder with content")) };
    }
    let to_usize = |n: u64| usize::try_from(n).map_err(|_| fail("it is larger than the address space"));
    let entry = Entry {
        name: name.to_owned(),
        deflated,
        data: to_usize(start)?..to_usize(end)?,
        size_bytes: to_usize(size)?,
        crc32: record.crc32(),
        verified: AtomicBool::new(false),
    };
    Ok((span, Some(entry)))
}

/// A streaming writer leaves sizes and CRC of the local header zero; anything else must agree.
fn check_local_header(
    record: &ZipFileHeaderRecord<'_>,
    local: &rawzip::ZipLocalFileHeader<'_>,
) -> Result<(), &'static str> {
    let streamed = record.flags().has_data_descriptor();
    let agree = |local: u64, central: u64| local == central || (streamed && local == 0);
    let same = local.file_path().as_bytes() == record.file_path().as_bytes()
        && local.compression_method() == record.compression_method()
        && local.flags().bits() == record.flags().bits()
        && agree(local.crc32().into(), record.crc32().into())
        && agree(local.compressed_size_hint(), record.compressed_size_hint())
        && agree(local.uncompressed_size_hint(), record.uncompressed_size_hint());
    if same { Ok(()) } else { Err("its local header differs from the directory") }
}

fn check_disjoint(mut spans: Vec<(u64, u64, String)>, directory_offset: u64) -> Result<()> {
    spans.sort_unstable();
    let mut end_of_previous = 0;
    for (start, end, name) in &spans {
        if *start < end_of_previous {
            return Err(damaged(name, "it overlaps another entry"));
        }
        end_of_previous = *end;
    }
    match spans.last() {
        Some((_, end, name)) if *end > directory_offset => Err(damaged(name, "it overlaps the directory")),
        _ => Ok(()),
    }
}

/// Names are plain relative paths with forward slashes.
fn check_name(raw: &[u8]) -> Result<&str, &'static str> {
    if raw.len() > MAX_NAME_BYTES {
        return Err("its name is too long");
    }
    let name = std::str::from_utf8(raw).map_err(|_| "its name is not UTF-8")?;
    if name.chars().any(|c| c.is_control() || c == '\\') {
        return Err("its name has a backslash or a control character");
    }
    if matches!(name.as_bytes(), [letter, b':', ..] if letter.is_ascii_alphabetic()) {
        return Err("its name begins with a drive letter");
    }
    let path = name.strip_suffix('/').unwrap_or(name);
    if path.split('/').any(|part| matches!(part, "" | "." | "..")) {
        return Err("its name is not a plain relative path");
    }
    Ok(name)
}

fn inflate(entry: &Entry, stored: &[u8]) -> Result<Vec<u8>> {
    let content = miniz_oxide::inflate::decompress_to_vec_with_limit(stored, entry.size_bytes)
        .map_err(|e| damaged(&entry.name, format!("it does not inflate: {e}")))?;
    if content.len() != entry.size_bytes {
        return Err(damaged(&entry.name, "it inflates to less than its declared size"));
    }
    Ok(content)
}

#[cfg(test)]
mod tests;
