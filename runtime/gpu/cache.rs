//! The pipeline cache on disk: our own header and checksum around the driver's blob.
//!
//! Drivers may crash on a blob that is not theirs or is damaged, so a file is handed on only if every field and
//! the checksum agree; on any doubt it is ignored and written anew.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

const MAGIC: [u8; 8] = *b"VKDPIPE\x01";
const VERSION_BYTES: usize = 16;
const HEADER_BYTES: usize = MAGIC.len() + VERSION_BYTES + 3 * 4 + 16 + 8 + 4;
/// Length of the header that Vulkan puts at the start of every blob.
const VULKAN_HEADER_BYTES: u32 = 32;

/// What a blob is valid for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CacheKey {
    pub vendor_id: u32,
    pub device_id: u32,
    pub driver_version: u32,
    pub uuid: [u8; 16],
}

impl CacheKey {
    /// The file of this device in `folder`.
    pub(super) fn path_in(&self, folder: &Path) -> PathBuf {
        let uuid: String = self.uuid.iter().map(|byte| format!("{byte:02x}")).collect();
        folder.join(format!("pipelines-{:04x}-{:04x}-{uuid}.bin", self.vendor_id, self.device_id))
    }

    /// The header for a payload, without the checksum that ends it.
    fn header(&self, payload_bytes: u64) -> Vec<u8> {
        let mut version = [0; VERSION_BYTES];
        version.iter_mut().zip(env!("CARGO_PKG_VERSION").bytes()).for_each(|(to, from)| *to = from);
        let mut header = Vec::with_capacity(HEADER_BYTES);
        header.extend_from_slice(&MAGIC);
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

/// A file's bytes for a blob.
fn encode(key: &CacheKey, payload: &[u8]) -> Vec<u8> {
    let mut file = key.header(payload.len() as u64);
    let checksum = checksum(&file, payload);
    file.extend_from_slice(&checksum.to_le_bytes());
    file.extend_from_slice(payload);
    file
}

/// The blob of a file, if nothing about it is in doubt.
fn decode<'a>(key: &CacheKey, file: &'a [u8]) -> Option<&'a [u8]> {
    let (header, payload) = file.split_at_checked(HEADER_BYTES)?;
    let (fields, sum) = header.split_last_chunk::<4>()?;
    let is_ours = fields == key.header(payload.len() as u64)
        && u32::from_le_bytes(*sum) == checksum(fields, payload)
        && key.matches_vulkan_header(payload);
    is_ours.then_some(payload)
}

fn checksum(header: &[u8], payload: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(header);
    hasher.update(payload);
    hasher.finalize()
}

/// Reads the blob at `path`; empty if there is none or it is in doubt.
pub(super) fn load(key: &CacheKey, path: &Path) -> Vec<u8> {
    let file = match fs::read(path) {
        Ok(file) => file,
        Err(error) => {
            if error.kind() != io::ErrorKind::NotFound {
                log::warn!("pipeline cache {}: {error}; starting without", path.display());
            }
            return Vec::new();
        }
    };
    match decode(key, &file) {
        Some(payload) => payload.to_vec(),
        None => {
            log::info!("pipeline cache {} is damaged or for another driver; starting anew", path.display());
            Vec::new()
        }
    }
}

/// Writes the blob to `path` through a temporary file, so that readers see the old file or the new one.
pub(super) fn store(key: &CacheKey, path: &Path, payload: &[u8]) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    static STORES: AtomicU64 = AtomicU64::new(0);
    let number = STORES.fetch_add(1, Ordering::Relaxed);
    let temporary = path.with_extension(format!("{}-{number}.tmp", std::process::id()));
    let written = fs::File::create(&temporary)
        .and_then(|mut file| file.write_all(&encode(key, payload)).and_then(|()| file.sync_all()))
        .and_then(|()| fs::rename(&temporary, path));
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
        assert_eq!(decode(&KEY, &encode(&KEY, &blob())), Some(blob().as_slice()));
    }

    #[test]
    fn short_and_random_files_are_dropped() {
        let random: Vec<u8> = (0..4096u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        for file in [&[][..], &[1, 2, 3], &random] {
            assert_eq!(decode(&KEY, file), None);
        }
        let good = encode(&KEY, &blob());
        for length in 0..good.len() {
            assert_eq!(decode(&KEY, &good[..length]), None, "cut to {length}");
        }
    }

    #[test]
    fn a_blob_of_another_device_or_driver_is_dropped() {
        let file = encode(&KEY, &blob());
        let others = [
            CacheKey { vendor_id: 1, ..KEY },
            CacheKey { device_id: 1, ..KEY },
            CacheKey { driver_version: 4, ..KEY },
            CacheKey { uuid: [8; 16], ..KEY },
        ];
        for other in others {
            assert_eq!(decode(&other, &file), None);
            assert_eq!(decode(&other, &encode(&other, &blob())).is_some(), other.driver_version == 4);
        }
    }

    #[test]
    fn any_flipped_byte_is_caught() {
        let good = encode(&KEY, &blob());
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 0x10;
            assert_eq!(decode(&KEY, &bad), None, "byte {at}");
        }
    }

    #[test]
    fn a_store_is_whole_and_leaves_no_temporary_file() {
        let folder = std::env::temp_dir().join(format!("vkdelegate-cache-{}", std::process::id()));
        let path = KEY.path_in(&folder);
        assert!(load(&KEY, &path).is_empty());
        store(&KEY, &path, &blob()).unwrap();
        store(&KEY, &path, &blob()).unwrap();
        assert_eq!(load(&KEY, &path), blob());
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
        fs::write(&path, [1, 2, 3]).unwrap();
        assert!(load(&KEY, &path).is_empty());
        fs::remove_dir_all(&folder).unwrap();
    }
}
