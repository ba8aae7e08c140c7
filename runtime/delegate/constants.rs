//! Constants on the device: packed piece by piece through a small staging buffer, shared by all that want the same bytes.

use std::{sync::Arc, time::Duration};

use super::context::{Context, lock};
use crate::{
    base::Result,
    gpu::{Buffer, BufferDesc, CopyRegion, RecorderDesc, Scope, StagingDesc, StagingDirection},
    ops::Prepack,
};

/// Bytes of one piece. Bounds what loading a weight of any size takes besides the weight itself.
const PIECE_BYTES: usize = 8 << 20;

/// How long one piece may take to copy before the device counts as hung.
pub(super) const COPY_TIMEOUT: Duration = Duration::from_secs(60);

/// A constant in device memory.
pub struct PackedConstant {
    /// Where it lies.
    pub buffer: Buffer,
    /// Its length.
    pub len_bytes: u64,
}

impl Context {
    /// The packed constant of `prepack`: one that a living delegate holds, or a new one.
    pub(super) fn packed(&self, prepack: &Prepack) -> Result<Arc<PackedConstant>> {
        let key = prepack.key();
        let _packing = lock(&self.packing);
        if let Some(constant) = lock(&self.constants).get(&key).and_then(std::sync::Weak::upgrade) {
            return Ok(constant);
        }
        let len_bytes = prepack.len_bytes()?;
        let name = prepack.constant().constant().name();
        let buffer = self.gpu().create_buffer(&BufferDesc { name, size_bytes: len_bytes.max(4) as u64 })?;
        self.upload(&buffer, len_bytes, |offset, out| prepack.write(offset, out))?;
        let constant = Arc::new(PackedConstant { buffer, len_bytes: len_bytes as u64 });
        let mut constants = lock(&self.constants);
        constants.retain(|_, constant| constant.strong_count() > 0);
        constants.insert(key, Arc::downgrade(&constant));
        Ok(constant)
    }

    /// Fills the first `len_bytes` of `buffer` with what `write(offset, out)` gives for each piece.
    pub(super) fn upload(
        &self,
        buffer: &Buffer,
        len_bytes: usize,
        mut write: impl FnMut(usize, &mut [u8]) -> Result<()>,
    ) -> Result<()> {
        if len_bytes == 0 {
            return Ok(());
        }
        let piece_bytes = len_bytes.min(PIECE_BYTES);
        let mut staging = self.gpu().create_staging(&StagingDesc {
            name: "constant upload",
            size_bytes: piece_bytes.next_multiple_of(4) as u64,
            direction: StagingDirection::Upload,
        })?;
        let mut offset = 0;
        while offset < len_bytes {
            let piece = piece_bytes.min(len_bytes - offset);
            staging.write_with(0, piece, |out| write(offset, out))??;
            let mut recorder =
                self.gpu().record(&RecorderDesc { name: "constant upload", timestamps: false })?;
            let region =
                CopyRegion { src_offset_bytes: 0, dst_offset_bytes: offset as u64, len_bytes: piece as u64 };
            recorder.copy(staging.buffer(), buffer, &[region])?;
            recorder.barrier(Scope::TRANSFER, Scope::COMPUTE);
            self.gpu().submit(&recorder.end()?)?.wait(COPY_TIMEOUT)?;
            offset += piece;
        }
        Ok(())
    }
}
