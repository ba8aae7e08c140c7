//! Constants on the device: packed piece by piece, in place or through a small staging buffer, shared by all that want the
//! same bytes.

use std::{collections::HashMap, sync::Arc, time::Duration};

use super::context::{Context, lock};
use crate::{
    base::Result,
    gpu::{
        Buffer, BufferDesc, CopyRegion, RecorderDesc, Scope, StagingDesc, StagingDirection, UnifiedMemory,
    },
    ops::{PackKey, Prepack},
};

/// Bytes of one piece, and of what one submission copies at most. Bounds what loading a program of any size takes besides its weights, and
/// how long the device is busy with one submission: far less than what systems allow before they reset it.
const BATCH_BYTES: usize = 8 << 20;

/// Pieces of a constant begin at multiples of this in the staging buffer and in the constant: 4 elements of any width.
const PIECE_ALIGN: usize = 16;

/// How long one submission may take to copy before the device counts as hung.
const COPY_TIMEOUT: Duration = Duration::from_secs(60);

/// A constant in device memory.
pub struct PackedConstant {
    /// Where it lies.
    pub buffer: Buffer,
    /// Its length.
    pub len_bytes: u64,
}

impl Context {
    /// The packed constants of `prepacks`: those that a living delegate holds, and new ones. Copies of at most
    /// `per_submission` constants go into one submission; as many as fit when that is `None`.
    pub(super) fn packed(
        &self,
        prepacks: &[&Prepack],
        per_submission: Option<usize>,
    ) -> Result<HashMap<PackKey, Arc<PackedConstant>>> {
        let _packing = lock(&self.packing);
        let (mut found, mut missing) = (HashMap::new(), HashMap::new());
        for &prepack in prepacks {
            let key = prepack.key();
            match lock(&self.constants).get(&key).and_then(std::sync::Weak::upgrade) {
                Some(constant) => drop(found.insert(key, constant)),
                None => drop(missing.insert(key, prepack)),
            }
        }
        // In the order of the program, so that each load allocates alike.
        let in_order = prepacks.iter().filter(|prepack| missing.remove(&prepack.key()).is_some());
        let new = self.pack(&in_order.copied().collect::<Vec<_>>(), per_submission)?;
        let mut constants = lock(&self.constants);
        constants.retain(|_, constant| constant.strong_count() > 0);
        constants.extend(new.iter().map(|(key, constant)| (key.clone(), Arc::downgrade(constant))));
        found.extend(new);
        Ok(found)
    }

    fn pack(
        &self,
        prepacks: &[&Prepack],
        per_submission: Option<usize>,
    ) -> Result<Vec<(PackKey, Arc<PackedConstant>)>> {
        let lens = prepacks.iter().map(|prepack| prepack.len_bytes()).collect::<Result<Vec<_>>>()?;
        // Packings write here and there, which memory that the CPU does not cache is slow at.
        let in_place = self.gpu().caps().unified_memory == UnifiedMemory::WrittenAndRead;
        let staged = lens.iter().filter(|_| !in_place);
        let mut batch = Batch::new(self, staged.fold(0, |sum, &len| sum.saturating_add(aligned(len))))?;
        let mut packed = Vec::with_capacity(prepacks.len());
        for (&prepack, len_bytes) in prepacks.iter().zip(lens) {
            let desc = BufferDesc { name: prepack.name(), size_bytes: len_bytes.max(4) as u64 };
            let write = |offset, out: &mut [u8]| prepack.write(offset, out);
            let buffer = if in_place {
                let buffer = self.gpu().create_shared_buffer(&desc)?;
                fill(&buffer, len_bytes, write)?;
                buffer
            } else {
                let buffer = self.gpu().create_buffer(&desc)?;
                batch.add(&buffer, len_bytes, write)?;
                buffer
            };
            packed.push((prepack.key(), Arc::new(PackedConstant { buffer, len_bytes: len_bytes as u64 })));
            if per_submission.is_some_and(|count| packed.len() % count.max(1) == 0) {
                batch.submit()?;
            }
        }
        batch.submit()?;
        Ok(packed)
    }

    /// Fills the first `bytes.len()` bytes of `buffer`.
    pub(super) fn upload(&self, buffer: &Buffer, bytes: &[u8]) -> Result<()> {
        if buffer.is_mapped() {
            return Ok(buffer.write(0, bytes)?);
        }
        let mut batch = Batch::new(self, bytes.len())?;
        batch.add(buffer, bytes.len(), |offset, out| {
            out.copy_from_slice(&bytes[offset..offset + out.len()]);
            Ok(())
        })?;
        batch.submit()
    }

    /// Gives `read` the first `len_bytes` of `buffer`.
    pub(super) fn download<R>(
        &self,
        buffer: &Buffer,
        len_bytes: u64,
        read: impl FnOnce(&[u8]) -> Result<R>,
    ) -> Result<R> {
        if len_bytes == 0 {
            return read(&[]);
        }
        if buffer.is_mapped() && self.gpu().caps().unified_memory == UnifiedMemory::WrittenAndRead {
            return buffer.read_with(0, len_bytes as usize, read)?;
        }
        let staging = self.gpu().create_staging(&StagingDesc {
            name: "read-back",
            size_bytes: len_bytes.next_multiple_of(4),
            direction: StagingDirection::Readback,
        })?;
        let mut recorder = self.gpu().record(&RecorderDesc { name: "read-back", timestamps: false })?;
        let region = CopyRegion { src_offset_bytes: 0, dst_offset_bytes: 0, len_bytes };
        recorder.copy(buffer, &staging, &[region])?;
        self.gpu().submit(&recorder.end()?)?.wait(COPY_TIMEOUT)?;
        staging.read_with(0, len_bytes as usize, read)?
    }
}

fn aligned(len_bytes: usize) -> usize {
    len_bytes.checked_next_multiple_of(PIECE_ALIGN).unwrap_or(usize::MAX)
}

/// Writes the first `len_bytes` of a mapped buffer, piece by piece.
fn fill(
    buffer: &Buffer,
    len_bytes: usize,
    mut write: impl FnMut(usize, &mut [u8]) -> Result<()>,
) -> Result<()> {
    for offset in (0..len_bytes).step_by(BATCH_BYTES) {
        let piece = BATCH_BYTES.min(len_bytes - offset);
        buffer.write_with(offset as u64, piece, |out| write(offset, out))??;
    }
    Ok(())
}

/// Copies to device buffers that go into one submission.
struct Batch<'a> {
    context: &'a Context,
    /// `None` where nothing is to be copied.
    staging: Option<Buffer>,
    size_bytes: usize,
    filled_bytes: usize,
    copies: Vec<(Buffer, CopyRegion)>,
}

impl Batch<'_> {
    /// An empty batch with staging for `total_bytes`, within bounds.
    fn new(context: &Context, total_bytes: usize) -> Result<Batch<'_>> {
        let size_bytes = aligned(total_bytes.min(BATCH_BYTES));
        let desc = StagingDesc {
            name: "constant upload",
            size_bytes: size_bytes as u64,
            direction: StagingDirection::Upload,
        };
        let staging = if size_bytes == 0 { None } else { Some(context.gpu().create_staging(&desc)?) };
        Ok(Batch { context, staging, size_bytes, filled_bytes: 0, copies: Vec::new() })
    }

    /// Adds the first `len_bytes` of `buffer`, with what `write(offset, out)` gives for each piece. Submits whenever the
    /// staging buffer is full.
    fn add(
        &mut self,
        buffer: &Buffer,
        len_bytes: usize,
        mut write: impl FnMut(usize, &mut [u8]) -> Result<()>,
    ) -> Result<()> {
        let mut offset = 0;
        while offset < len_bytes {
            if self.filled_bytes == self.size_bytes {
                self.submit()?;
            }
            let Some(staging) = &self.staging else { break };
            let piece = (self.size_bytes - self.filled_bytes).min(len_bytes - offset);
            staging.write_with(self.filled_bytes as u64, piece, |out| write(offset, out))??;
            let region = CopyRegion {
                src_offset_bytes: self.filled_bytes as u64,
                dst_offset_bytes: offset as u64,
                len_bytes: piece as u64,
            };
            self.copies.push((buffer.clone(), region));
            self.filled_bytes += aligned(piece);
            offset += piece;
        }
        Ok(())
    }

    /// Copies what was added, and waits for it.
    fn submit(&mut self) -> Result<()> {
        let Some(staging) = self.staging.as_ref().filter(|_| !self.copies.is_empty()) else { return Ok(()) };
        let gpu = self.context.gpu();
        let mut recorder = gpu.record(&RecorderDesc { name: "constant upload", timestamps: false })?;
        for (buffer, region) in self.copies.drain(..) {
            recorder.copy(staging, &buffer, &[region])?;
        }
        recorder.barrier(Scope::TRANSFER, Scope::COMPUTE);
        gpu.submit(&recorder.end()?)?.wait(COPY_TIMEOUT)?;
        self.filled_bytes = 0;
        Ok(())
    }
}
