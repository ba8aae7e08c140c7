//! The tensors that an archive stores: tables from name to payload, and payloads read on first use.
//!
//! Parameters and persistent buffers stand in the weights table, lifted constants and non-persistent
//! buffers in the constants table. Several tensors may be views of one payload.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use super::archive::{Archive, EntryId};
use super::layout::{EXPORT_AGAIN, Layout, Table};
use super::schema::{LAYOUT_STRIDED, PayloadConfig, PayloadMeta, SymInt, TensorMeta};
use super::{damaged, json, schema, unsupported};
use crate::base::{Result, shape};
use crate::ir::{Constant, Payload, PayloadId};

/// Highest rank that a stored tensor may have; torch's own limit.
pub(super) const MAX_RANK: usize = 64;

/// Most bytes that a stored tensor may take once its repeated (stride 0) and overlapping elements
/// are written out, where that is more than its payload: a small file must not ask for huge memory.
const MAX_EXPANDED_BYTES: usize = 256 << 20;

/// The content of one entry, shared by every constant that lies in it.
#[derive(Debug)]
struct ArchivePayload {
    id: PayloadId,
    archive: Arc<Archive>,
    entry: EntryId,
    /// Content of a compressed entry once used; stored entries are used in place.
    inflated: OnceLock<Vec<u8>>,
}

impl Payload for ArchivePayload {
    fn id(&self) -> PayloadId {
        self.id
    }

    fn len_bytes(&self) -> usize {
        self.archive.size_bytes(self.entry)
    }

    fn bytes(&self) -> Result<&[u8]> {
        if let Some(content) = self.inflated.get() {
            return Ok(content);
        }
        match self.archive.read(self.entry)? {
            Cow::Borrowed(content) => Ok(content),
            Cow::Owned(content) => Ok(self.inflated.get_or_init(|| content)),
        }
    }
}

/// The payloads of an archive, one object for each entry that a constant lies in.
#[derive(Debug)]
pub(super) struct Payloads {
    archive: Arc<Archive>,
    known: HashMap<EntryId, Arc<ArchivePayload>>,
}

impl Payloads {
    pub(super) fn new(archive: Arc<Archive>) -> Self {
        Self { archive, known: HashMap::new() }
    }

    pub(super) fn archive(&self) -> &Archive {
        &self.archive
    }

    fn get(&mut self, entry: EntryId) -> Arc<ArchivePayload> {
        let new = || ArchivePayload {
            id: PayloadId::unique(),
            archive: Arc::clone(&self.archive),
            entry,
            inflated: OnceLock::new(),
        };
        Arc::clone(self.known.entry(entry).or_insert_with(|| Arc::new(new())))
    }
}

/// Which of a method's two tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TableKind {
    Weights,
    Constants,
}

/// Both tables of one method.
#[derive(Debug)]
pub(super) struct Tables {
    weights: Listing,
    constants: Listing,
}

#[derive(Debug)]
struct Listing {
    config: PayloadConfig,
    /// Payload entries by their `path_name`.
    entries: HashMap<String, EntryId>,
}

impl Tables {
    /// Reads the tables of `method`. Pickles are refused without being read.
    pub(super) fn read(archive: &Archive, layout: &Layout, method: &str) -> Result<Self> {
        Ok(Self {
            weights: Listing::read(archive, layout, &layout.weights(method))?,
            constants: Listing::read(archive, layout, &layout.constants(method))?,
        })
    }

    /// The stored tensor called `fqn`: looked for in `table`, then in the other one.
    pub(super) fn constant(&self, payloads: &mut Payloads, table: TableKind, fqn: &str) -> Result<Constant> {
        let listings = match table {
            TableKind::Weights => [&self.weights, &self.constants],
            TableKind::Constants => [&self.constants, &self.weights],
        };
        let found = listings.iter().find_map(|listing| {
            let meta = listing.config.config.0.get(fqn)?;
            Some((meta, listing.entries.get(&meta.path_name)?))
        });
        let missing =
            || damaged(format_args!("tensor `{fqn}`"), "neither the weights nor the constants table has it");
        let (meta, &entry) = found.ok_or_else(missing)?;
        let tensor = meta.tensor_meta.as_ref();
        let tensor = tensor
            .ok_or_else(|| damaged(format_args!("tensor `{fqn}`"), "the table gives no tensor_meta"))?;
        constant(payloads.get(entry), fqn, tensor).map_err(|e| e.context(format_args!("tensor `{fqn}`")))
    }
}

impl Listing {
    fn read(archive: &Archive, layout: &Layout, table: &Table) -> Result<Self> {
        let place = &table.config;
        let entry = layout.find(archive, place).ok_or_else(|| damaged(place, "it is missing"))?;
        let config: PayloadConfig = json::parse(place, &archive.read(entry)?)?;
        let mut entries = HashMap::new();
        for (fqn, meta) in &config.config.0 {
            let entry = find_payload(archive, layout, table, fqn, meta)?;
            entries.insert(meta.path_name.clone(), entry);
        }
        Ok(Self { config, entries })
    }
}

/// The entry that `path_name` names: a payload of the table's own folder, and nothing else.
fn find_payload(
    archive: &Archive,
    layout: &Layout,
    table: &Table,
    fqn: &str,
    meta: &PayloadMeta,
) -> Result<EntryId> {
    if meta.use_pickle {
        return Err(unsupported(
            format_args!("`{fqn}` is stored as a pickle, which could run any code and is never read"),
            "export a model whose parameters and constants are plain tensors",
        ));
    }
    let path = &meta.path_name;
    let known_kind = path.starts_with(table.file_prefix) && !path.contains('/');
    let entry = if known_kind { layout.find(archive, &format!("{}{path}", table.folder)) } else { None };
    entry.ok_or_else(|| {
        damaged(&table.config, format_args!("`{fqn}` has the payload {path:?}, which is not in the archive"))
    })
}

fn constant(payload: Arc<ArchivePayload>, fqn: &str, meta: &TensorMeta) -> Result<Constant> {
    let dtype = schema::dtype(meta.dtype).map_err(|name| {
        unsupported(format_args!("its dtype {name} is not supported"), "convert the tensor before the export")
    })?;
    if meta.layout != LAYOUT_STRIDED {
        return Err(unsupported("it is not a dense tensor", EXPORT_AGAIN));
    }
    if meta.sizes.len() > MAX_RANK {
        return Err(damaged("rank", format_args!("{}, the limit is {MAX_RANK}", meta.sizes.len())));
    }
    let sizes = concrete_all(&meta.sizes, "size")?;
    let strides = concrete_all(&meta.strides, "stride")?;
    let offset = concrete(&meta.storage_offset, "storage_offset")?;
    let len_bytes = payload.len_bytes();
    if !len_bytes.is_multiple_of(dtype.size_bytes()) {
        return Err(damaged(
            "payload",
            format_args!("{len_bytes} bytes are no whole number of {dtype} elements"),
        ));
    }
    let expanded = expanded_bytes(&sizes, dtype.size_bytes());
    if expanded.is_none_or(|bytes| bytes > len_bytes.max(MAX_EXPANDED_BYTES)) {
        return Err(damaged(
            "sizes",
            format_args!("{sizes:?} ask for far more than the payload's {len_bytes} bytes"),
        ));
    }
    Constant::new(fqn, dtype, sizes, strides, offset, payload)
}

/// Bytes of a contiguous tensor of `sizes`; sizes of 0 count as 1, so that no product of some of the
/// sizes overflows either.
fn expanded_bytes(sizes: &[usize], elem_bytes: usize) -> Option<usize> {
    let nonzero: Vec<usize> = sizes.iter().map(|&size| size.max(1)).collect();
    let bytes = shape::numel(&nonzero).ok()?.checked_mul(elem_bytes)?;
    Some(if sizes.contains(&0) { 0 } else { bytes })
}

fn concrete_all(values: &[SymInt], what: &str) -> Result<Vec<usize>> {
    values.iter().map(|value| concrete(value, what)).collect()
}

fn concrete(value: &SymInt, what: &str) -> Result<usize> {
    match value {
        SymInt::AsInt(value) => {
            usize::try_from(*value).map_err(|_| damaged(what, format_args!("{value} is negative")))
        }
        SymInt::AsExpr(expr) => {
            Err(damaged(what, format_args!("{:?} of a stored tensor is not a number", expr.expr_str)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{ZipEntry, zip};
    use super::*;

    fn tensor_meta(dtype: i64, sizes: &[i64], strides: &[i64], offset: i64) -> TensorMeta {
        let ints = |values: &[i64]| values.iter().map(|&value| SymInt::AsInt(value)).collect();
        TensorMeta {
            dtype,
            sizes: ints(sizes),
            strides: ints(strides),
            storage_offset: SymInt::AsInt(offset),
            layout: 7,
        }
    }

    fn payload(data: &[u8]) -> Arc<ArchivePayload> {
        let archive = Archive::from_bytes(zip(&[ZipEntry::stored("p/w", data)]).into()).unwrap();
        let entry = archive.find("p/w").unwrap();
        Payloads::new(Arc::new(archive)).get(entry)
    }

    fn floats(count: u8) -> Vec<u8> {
        (0..count).flat_map(|i| f32::from(i).to_le_bytes()).collect()
    }

    fn read(meta: TensorMeta, data: &[u8]) -> Result<Vec<f32>> {
        Ok(constant(payload(data), "w", &meta)?.to_tensor()?.to_f32s())
    }

    #[test]
    fn strides_and_offsets_are_followed() {
        let data = floats(12);
        assert_eq!(read(tensor_meta(7, &[2, 3], &[1, 2], 0), &data).unwrap(), [0., 2., 4., 1., 3., 5.]);
        assert_eq!(read(tensor_meta(7, &[3], &[1], 4), &data).unwrap(), [4., 5., 6.]);
        assert_eq!(read(tensor_meta(7, &[2, 3], &[0, 1], 9), &data).unwrap(), [9., 10., 11., 9., 10., 11.]);
        assert_eq!(read(tensor_meta(7, &[], &[], 11), &data).unwrap(), [11.]);
        assert_eq!(read(tensor_meta(7, &[0, 5], &[5, 1], 0), &[]).unwrap(), [0f32; 0]);
    }

    #[test]
    fn what_reaches_past_the_payload_is_refused() {
        let big = 1 << 62;
        for (sizes, strides, offset) in [
            (&[13][..], &[1][..], 0),
            (&[12], &[1], 1),
            (&[2, 3], &[10, 1], 0),
            (&[big, 4], &[4, 1], 0),
            (&[1 << 32, 1 << 32], &[0, 0], 0),
            (&[1 << 40, 1 << 40, 0], &[0, 0, 0], 0),
            (&[-1, 5], &[5, 1], 0),
            (&[i64::MAX, 2], &[2, 1], 0),
            (&[2, 2], &[i64::MAX, i64::MAX], 0),
            (&[2], &[-1], 1),
            (&[2], &[1], -1),
            (&[2], &[1], i64::MAX),
            (&[1 << 40], &[0], 0),
            (&[2, 2], &[1], 0),
            (&[1; 1000], &[1; 1000], 0),
        ] {
            let error = read(tensor_meta(7, sizes, strides, offset), &floats(12));
            assert!(error.is_err(), "{sizes:?} {strides:?} {offset}");
        }
        assert!(read(tensor_meta(7, &[1], &[1], 0), &[0; 6]).is_err());
        assert!(read(tensor_meta(7, &[1], &[1], 0), &[]).is_err());
    }

    #[test]
    fn dtypes_beyond_the_ten_are_named() {
        let error = read(tensor_meta(10, &[1], &[1], 0), &[0; 8]).unwrap_err().to_string();
        assert!(error.contains("complex64"), "{error}");
        assert!(read(tensor_meta(99, &[1], &[1], 0), &[0; 8]).is_err());
    }

    #[test]
    fn a_payload_is_checked_once_and_shared() {
        let mut bytes = zip(&[ZipEntry::stored("p/w", &floats(4)), ZipEntry::deflated("p/z", &[7; 400])]);
        let archive = Archive::from_bytes(bytes.clone().into()).unwrap();
        let (stored, packed) = (archive.find("p/w").unwrap(), archive.find("p/z").unwrap());
        let mut payloads = Payloads::new(Arc::new(archive));
        assert_eq!(payloads.get(stored).id(), payloads.get(stored).id());
        assert_ne!(payloads.get(stored).id(), payloads.get(packed).id());
        let inflated = payloads.get(packed);
        assert_eq!(inflated.bytes().unwrap().as_ptr(), inflated.bytes().unwrap().as_ptr());
        let at = bytes.windows(4).position(|w| w == 3f32.to_le_bytes()).unwrap();
        bytes[at] ^= 1;
        let archive = Archive::from_bytes(bytes.into()).unwrap();
        let error = Payloads::new(Arc::new(archive)).get(stored).bytes().unwrap_err();
        assert!(error.to_string().contains("corrupt"), "{error}");
    }
}
