//! NumPy's zip of arrays, as `np.savez` and `np.savez_compressed` write it.

use std::io::Write as _;

use anyhow::{Context, Result, bail};
use rawzip::{CompressionMethod, ZipArchive, ZipArchiveWriter};

use super::{NamedTensors, npy};

/// Largest array that a compressed entry may inflate to.
const MAX_INFLATED_BYTES: u64 = 1 << 32;

/// Reads every array; names lose their `.npy`.
pub fn read(bytes: &[u8]) -> Result<NamedTensors> {
    let archive = ZipArchive::from_slice(bytes).context("not a zip archive")?;
    let mut tensors = NamedTensors::new();
    for record in archive.entries() {
        let record = record?;
        let name = String::from_utf8(record.file_path().as_bytes().to_vec())?;
        let entry = archive.get_entry(record.wayfinder())?;
        let data = match record.compression_method() {
            CompressionMethod::STORE => entry.data().to_vec(),
            CompressionMethod::DEFLATE => {
                let limit = record.uncompressed_size_hint().min(MAX_INFLATED_BYTES);
                miniz_oxide::inflate::decompress_to_vec_with_limit(entry.data(), limit as usize)
                    .map_err(|error| anyhow::anyhow!("entry `{name}` is damaged: {error}"))?
            }
            other => bail!("entry `{name}` is compressed by method {other:?}"),
        };
        let claim = entry.claim_verifier();
        claim
            .valid(rawzip::ZipVerification {
                crc: crc32fast::hash(&data),
                uncompressed_size: data.len() as u64,
            })
            .with_context(|| format!("entry `{name}` is damaged"))?;
        let tensor = npy::read(&data).with_context(|| format!("entry `{name}`"))?;
        let key = name.strip_suffix(".npy").unwrap_or(&name).to_string();
        if tensors.insert(key, tensor).is_some() {
            bail!("two entries are called `{name}`");
        }
    }
    Ok(tensors)
}

/// Writes every tensor as a stored entry.
pub fn write(tensors: &NamedTensors) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    let mut archive = ZipArchiveWriter::new(&mut out);
    for (name, tensor) in tensors {
        let data = npy::write(tensor).with_context(|| format!("tensor `{name}`"))?;
        let path = format!("{name}.npy");
        let (mut entry, config) = archive.new_file(path.as_str()).start()?;
        let mut writer = config.wrap(&mut entry);
        writer.write_all(&data)?;
        let (_, descriptor) = writer.finish()?;
        entry.finish(descriptor)?;
    }
    archive.finish()?;
    Ok(out)
}
