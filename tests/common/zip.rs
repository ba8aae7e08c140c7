//! A zip writer for tests that can lie in every field, and a reader to take real archives apart.
#![allow(dead_code)] // Each test binary uses its own part.

/// Name and content of every entry of a sound archive with stored entries, in order.
pub fn unzip(archive: &[u8]) -> Vec<(String, Vec<u8>)> {
    let zip = rawzip::ZipArchive::from_slice(archive).unwrap();
    let entries = zip.entries().map(|record| {
        let record = record.unwrap();
        let name = String::from_utf8(record.file_path().as_bytes().to_vec()).unwrap();
        (name, zip.get_entry(record.wayfinder()).unwrap().data().to_vec())
    });
    entries.collect()
}

/// Writes entries as they are, with right sizes and checksums.
pub fn rezip(entries: &[(String, Vec<u8>)]) -> Vec<u8> {
    let entries: Vec<_> = entries.iter().map(|(name, data)| ZipEntry::stored(name, data)).collect();
    zip(&entries)
}

/// One entry; `size` and `stored_size` are what the headers claim.
#[derive(Clone, Default)]
pub struct ZipEntry {
    pub name: Vec<u8>,
    pub data: Vec<u8>,
    pub method: u16,
    pub flags: u16,
    pub size: u32,
    pub stored_size: u32,
    pub crc32: u32,
    pub external_attributes: u32,
    pub extra: Vec<u8>,
    /// Offset of the local header that the directory claims, if not the true one.
    pub local_offset: Option<u32>,
    /// Leaves out local header and data.
    pub omit_local: bool,
}

impl ZipEntry {
    pub fn stored(name: &str, data: &[u8]) -> Self {
        Self {
            name: name.into(),
            data: data.into(),
            size: data.len() as u32,
            stored_size: data.len() as u32,
            crc32: crc32fast::hash(data),
            ..Self::default()
        }
    }

    pub fn deflated(name: &str, data: &[u8]) -> Self {
        let packed = miniz_oxide::deflate::compress_to_vec(data, 6);
        Self { method: 8, stored_size: packed.len() as u32, data: packed, ..Self::stored(name, data) }
    }
}

/// Writes the entries as a zip archive.
pub fn zip(entries: &[ZipEntry]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut directory = Vec::new();
    for entry in entries {
        let offset = entry.local_offset.unwrap_or(out.len() as u32);
        let mut common = Vec::new();
        for half in [20, entry.flags, entry.method, 0, 0] {
            common.extend_from_slice(&half.to_le_bytes());
        }
        for word in [entry.crc32, entry.stored_size, entry.size] {
            common.extend_from_slice(&word.to_le_bytes());
        }
        common.extend_from_slice(&(entry.name.len() as u16).to_le_bytes());
        common.extend_from_slice(&(entry.extra.len() as u16).to_le_bytes());
        if !entry.omit_local {
            out.extend_from_slice(b"PK\x03\x04");
            out.extend_from_slice(&common);
            out.extend_from_slice(&entry.name);
            out.extend_from_slice(&entry.extra);
            out.extend_from_slice(&entry.data);
        }
        directory.extend_from_slice(b"PK\x01\x02\x14\x03");
        directory.extend_from_slice(&common);
        directory.extend_from_slice(&[0; 6]);
        directory.extend_from_slice(&entry.external_attributes.to_le_bytes());
        directory.extend_from_slice(&offset.to_le_bytes());
        directory.extend_from_slice(&entry.name);
        directory.extend_from_slice(&entry.extra);
    }
    let start = out.len() as u32;
    out.extend_from_slice(&directory);
    out.extend_from_slice(b"PK\x05\x06\0\0\0\0");
    for _ in 0..2 {
        out.extend_from_slice(&(entries.len() as u16).to_le_bytes());
    }
    out.extend_from_slice(&(directory.len() as u32).to_le_bytes());
    out.extend_from_slice(&start.to_le_bytes());
    out.extend_from_slice(&[0, 0]);
    out
}
