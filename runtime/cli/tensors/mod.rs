//! Named tensors in files: safetensors, npz and npy, chosen by the extension.

mod npy;
mod npz;

use std::{collections::BTreeMap, path::Path};

use anyhow::{Context, Result, anyhow, bail};
use safetensors::{Dtype, SafeTensors, tensor::TensorView};
use vkdelegate::{DType, HostTensor};

/// Tensors by name.
pub type NamedTensors = BTreeMap<String, HostTensor>;

/// The kinds of files that hold tensors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Any number of tensors of any dtype.
    Safetensors,
    /// NumPy's zip of arrays.
    Npz,
    /// One NumPy array, which is input 0.
    Npy,
}

impl Format {
    /// The format that the extension of `path` names.
    ///
    /// # Errors
    /// For any other extension.
    pub fn of(path: &Path) -> Result<Format> {
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("safetensors") => Ok(Format::Safetensors),
            Some("npz") => Ok(Format::Npz),
            Some("npy") => Ok(Format::Npy),
            _ => {
                bail!("{}: the name of a file of tensors ends in .safetensors, .npz or .npy", path.display())
            }
        }
    }
}

/// Reads all tensors of a file; an `.npy` file holds `in0`.
///
/// # Errors
/// A file that cannot be read, is damaged, or holds a dtype that PyTorch programs do not take.
pub fn read(path: &Path) -> Result<NamedTensors> {
    let format = Format::of(path)?;
    let bytes = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    let tensors = match format {
        Format::Safetensors => read_safetensors(&bytes),
        Format::Npz => npz::read(&bytes),
        Format::Npy => npy::read(&bytes).map(|tensor| [("in0".to_string(), tensor)].into()),
    };
    tensors.with_context(|| format!("cannot read {}", path.display()))
}

/// Fails early where [`write`] could not write, whatever the tensors.
///
/// # Errors
/// An extension of no format, or a folder that is not there.
pub fn check_writable(path: &Path) -> Result<()> {
    Format::of(path)?;
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() && !folder.is_dir() => {
            bail!("cannot write {}: there is no folder {}", path.display(), folder.display())
        }
        _ => Ok(()),
    }
}

/// Writes tensors to a file.
///
/// # Errors
/// A dtype that the format does not have, several tensors for an `.npy` file, or what the file system refuses.
pub fn write(path: &Path, tensors: &NamedTensors) -> Result<()> {
    let bytes = match Format::of(path)? {
        Format::Safetensors => write_safetensors(tensors),
        Format::Npz => npz::write(tensors),
        Format::Npy => match tensors.values().next() {
            Some(tensor) if tensors.len() == 1 => npy::write(tensor),
            _ => Err(anyhow!(
                "an .npy file holds one tensor, there are {}; use .npz or .safetensors",
                tensors.len()
            )),
        },
    };
    let bytes = bytes.with_context(|| format!("cannot write {}", path.display()))?;
    std::fs::write(path, bytes).with_context(|| format!("cannot write {}", path.display()))
}

const DTYPES: [(Dtype, DType); 10] = [
    (Dtype::F32, DType::F32),
    (Dtype::F16, DType::F16),
    (Dtype::BF16, DType::BF16),
    (Dtype::F64, DType::F64),
    (Dtype::I64, DType::I64),
    (Dtype::I32, DType::I32),
    (Dtype::I16, DType::I16),
    (Dtype::I8, DType::I8),
    (Dtype::U8, DType::U8),
    (Dtype::BOOL, DType::Bool),
];

fn read_safetensors(bytes: &[u8]) -> Result<NamedTensors> {
    let file = SafeTensors::deserialize(bytes)?;
    let tensors = file.iter().map(|(name, view)| {
        let dtype = DTYPES.iter().find(|(theirs, _)| *theirs == view.dtype()).map(|(_, ours)| *ours);
        let dtype = dtype.ok_or_else(|| anyhow!("tensor `{name}` has the dtype {:?}", view.dtype()))?;
        let tensor = HostTensor::new(dtype, view.shape().to_vec(), view.data().to_vec())?;
        Ok((name.to_string(), tensor))
    });
    tensors.collect()
}

fn write_safetensors(tensors: &NamedTensors) -> Result<Vec<u8>> {
    let views = tensors.iter().map(|(name, tensor)| {
        let dtype = DTYPES.iter().find(|(_, ours)| *ours == tensor.dtype()).map(|(theirs, _)| *theirs);
        let dtype = dtype.ok_or_else(|| anyhow!("tensor `{name}` has the dtype {}", tensor.dtype()))?;
        Ok((name.as_str(), TensorView::new(dtype, tensor.sizes().to_vec(), tensor.bytes())?))
    });
    Ok(safetensors::serialize(views.collect::<Result<Vec<_>>>()?, None)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_format_gives_back_what_it_was_given() {
        let folder = std::env::temp_dir().join(format!("vkdelegate-tensors-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        for (extension, lacks) in
            [("safetensors", None), ("npz", Some(DType::BF16)), ("npy", Some(DType::BF16))]
        {
            for dtype in DType::ALL {
                let tensor = HostTensor::from_i64s(dtype, vec![2, 3], &[0, 1, 1, 0, 1, 1]).unwrap();
                let tensors: NamedTensors = [("in0".to_string(), tensor)].into();
                let path = folder.join(format!("{dtype}.{extension}"));
                let written = write(&path, &tensors);
                if Some(dtype) == lacks {
                    assert!(format!("{:#}", written.unwrap_err()).contains("safetensors"));
                } else {
                    written.unwrap();
                    assert_eq!(read(&path).unwrap(), tensors, "{dtype} as {extension}");
                }
            }
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn unknown_extensions_are_refused() {
        assert!(Format::of(Path::new("x.pt")).unwrap_err().to_string().contains(".safetensors"));
    }
}
