//! What is kept on disk for a device: our own header and checksum around the driver's pipeline cache, and around what a
//! tuner found.
//!
//! Drivers may crash on a blob that is not theirs or is damaged, so a file is handed on only if every field and
//! the checksum agree; on any doubt it is ignored and written anew.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

const MAGIC_BYTES: usize = 8;
const VERSION_BYTES: usize = 16;
const HEADER_BYTES: usize = MAGIC_BYTES + VERSION_BYTES + 3 * 4 + 16 + 8 + 4;
/// Length of the header that Vulkan puts at the start of every blob.
const VULKAN_HEADER_BYTES: u32 = 32;

/// What a file holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The driver's compiled kernels.
    Pipelines,
    /// Which kernels are best.
    Tuning,
}

impl Kind {
    const fn magic(self) -> [u8; MAGIC_BYTES] {
        match self {
            Kind::Pipelines => *b"VKDPIPE\x01",
            Kind::Tuning => *b"VKDTUNE\x01",
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Kind::Pipelines => "pipelines",
            Kind::Tuning => "tuning",
        }
    }
}

/// What a file is valid for, besides this version of the crate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CacheKey {
    pub vendor_id: u32,
    pub device_id: u32,
    pub driver_version: u32,
    pub uuid: [u8; 16],
}

impl CacheKey {
    /// The file of this device in `folder`.
    pub(super) fn path_in(&self, folder: &Path, kind: Kind) -> PathBuf {
        let uuid: String = self.uuid.iter().map(|byte| format!("{byte:02x}")).collect();
        folder.join(format!("{}-{:04x}-{:04x}-{uuid}.bin", kind.name(), self.vendor_id, self.device_id))
    }

    /// The header for a payload, without the checksum that ends it.
    fn header(&self, kind: Kind, payload_bytes: u64) -> Vec<u8> {
        let mut version = [0; VERSION_BYTES];
        version.iter_mut().zip(env!("CARGO_PKG_VERSION").bytes()).for_each(|(to, from)| *to = from);
        let mut header = Vec::with_capacity(HEADER_BYTES);
        header.extend_from_slice(&kind.magic());
        header.extend_from_slice(&version);
        for number in [self.vendor_id, self.device_id, self.driver_version] {
            header.extend_from_slice(&number.to_le_bytes());
        }
        header.extend_from_slice(&self.uuid);
        header.extend_from_slice(&payload_bytes.to_le_bytes());
        header
    }

    /// Whether the blob begins with the header that Vulkan prescribes, for this device.
    fn matches_vulkan_header(&self, payload: &[u8]) -> bool {
        let mut expected = Vec::new();
        for number in [VULKAN_HEADER_BYTES, 1, self.vendor_id, self.device_id] {
            expected.extend_from_slice(&number.to_le_bytes());
        }
        expected.extend_from_slice(&self.uuid);
        payload.starts_with(&expected)
    }
}

/// A file's bytes for a payload.
fn encode(key: &CacheKey, kind: Kind, payload: &[u8]) -> Vec<u8> {
    let mut file = key.header(kind, payload.len() as u64);
    let checksum = checksum(&file, payload);
    file.extend_from_slice(&checksum.to_le_bytes());
    file.extend_from_slice(payload);
    file
}

/// The payload of a file, if nothing about it is in doubt.
fn decode<'a>(key: &CacheKey, kind: Kind, file: &'a [u8]) -> Option<&'a [u8]> {
    let (header, payload) = file.split_at_checked(HEADER_BYTES)?;
    let (fields, sum) = header.split_last_chunk::<4>()?;
    let is_ours = fields == key.header(kind, payload.len() as u64)
        && u32::from_le_bytes(*sum) == checksum(fields, payload)
        && (kind == Kind::Tuning || key.matches_vulkan_header(payload));
    is_ours.then_some(payload)
}

fn checksum(header: &[u8], payload: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(header);
    hasher.update(payload);
    hasher.finalize()
}

/// Reads the payload of the device's file in `folder`; empty if there is none or it is in doubt.
pub(super) fn load(key: &CacheKey, kind: Kind, folder: &Path) -> Vec<u8> {
    let path = key.path_in(folder, kind);
    let file = match fs::read(&path) {
        Ok(file) => file,
        Err(error) => {
            if error.kind() != io::ErrorKind::NotFound {
                log::warn!("{} {}: {error}; starting without", kind.name(), path.display());
            }
            return Vec::new();
        }
    };
    match decode(key, kind, &file) {
        Some(payload) => payload.to_vec(),
        None => {
            log::info!(
                "{} {} is damaged, or of another driver or version; starting anew",
                kind.name(),
                path.display()
            );
            Vec::new()
        }
    }
}

/// Writes the device's file in `folder` through a temporary one, so that readers see the old file or the new one.
pub(super) fn store(key: &CacheKey, kind: Kind, folder: &Path, payload: &[u8]) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let path = key.path_in(folder, kind);
    static STORES: AtomicU64 = AtomicU64::new(0);
    let number = STORES.fetch_add(1, Ordering::Relaxed);
    let temporary = path.with_extension(format!("{}-{number}.tmp", std::process::id()));
    let written = fs::File::create(&temporary)
        .and_then(|mut file| file.write_all(&encode(key, kind, payload)).and_then(|()| file.sync_all()))
        .and_then(|()| fs::rename(&temporary, &path));
    if written.is_err() {
        // The rest of a failed write is of no use; that it may not be there is fine.
        let _ = fs::remove_file(&temporary);
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: CacheKey = CacheKey { vendor_id: 0x10005, device_id: 7, driver_version: 3, uuid: [9; 16] };

    fn blob() -> Vec<u8> {
        let mut payload = Vec::new();
        for number in [VULKAN_HEADER_BYTES, 1, KEY.vendor_id, KEY.device_id] {
            payload.extend_from_slice(&number.to_le_bytes());
        }
        payload.extend_from_slice(&KEY.uuid);
        payload.extend((0..500u32).map(|i| (i * 7) as u8));
        payload
    }

    #[test]
    fn what_was_encoded_decodes() {
        assert_eq!(
            decode(&KEY, Kind::Pipelines, &encode(&KEY, Kind::Pipelines, &blob())),
            Some(blob().as_slice())
        );
    }

    #[test]
    fn short_and_random_files_are_dropped() {
        let random: Vec<u8> = (0..4096u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        for file in [&[][..], &[1, 2, 3], &random] {
            assert_eq!(decode(&KEY, Kind::Pipelines, file), None);
        }
        let good = encode(&KEY, Kind::Pipelines, &blob());
        for length in 0..good.len() {
            assert_eq!(decode(&KEY, Kind::Pipelines, &good[..length]), None, "cut to {length}");
        }
    }

    #[test]
    fn a_blob_of_another_device_or_driver_is_dropped() {
        let file = encode(&KEY, Kind::Pipelines, &blob());
        let others = [
            CacheKey { vendor_id: 1, ..KEY },
            CacheKey { device_id: 1, ..KEY },
            CacheKey { driver_version: 4, ..KEY },
            CacheKey { uuid: [8; 16], ..KEY },
        ];
        for other in others {
            assert_eq!(decode(&other, Kind::Pipelines, &file), None);
            assert_eq!(
                decode(&other, Kind::Pipelines, &encode(&other, Kind::Pipelines, &blob())).is_some(),
                other.driver_version == 4
            );
        }
    }

    #[test]
    fn any_flipped_byte_is_caught() {
        let good = encode(&KEY, Kind::Pipelines, &blob());
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 0x10;
            assert_eq!(decode(&KEY, Kind::Pipelines, &bad), None, "byte {at}");
        }
    }

    #[test]
    fn a_file_of_another_kind_is_dropped() {
        let file = encode(&KEY, Kind::Tuning, b"{}");
        assert_eq!(decode(&KEY, Kind::Tuning, &file), Some(&b"{}"[..]));
        assert_eq!(decode(&KEY, Kind::Pipelines, &file), None);
        assert_eq!(decode(&KEY, Kind::Tuning, &encode(&KEY, Kind::Pipelines, &blob())), None);
    }

    #[test]
    fn a_store_is_whole_and_leaves_no_temporary_file() {
        let folder = std::env::temp_dir().join(format!("vkdelegate-cache-{}", std::process::id()));
        assert!(load(&KEY, Kind::Pipelines, &folder).is_empty());
        store(&KEY, Kind::Pipelines, &folder, &blob()).unwrap();
        store(&KEY, Kind::Pipelines, &folder, &blob()).unwrap();
        assert_eq!(load(&KEY, Kind::Pipelines, &folder), blob());
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
        fs::write(KEY.path_in(&folder, Kind::Pipelines), [1, 2, 3]).unwrap();
        assert!(load(&KEY, Kind::Pipelines, &folder).is_empty());
        fs::remove_dir_all(&folder).unwrap();
    }
}
