//! Where dispatches must wait: exactly at hazards between byte ranges, whatever way kernels reach their buffers.

use super::Place;
use crate::{
    ops::{Storage, StorageKind},
    shader::{Dispatch, Region},
};

/// A byte range in one buffer of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AbsoluteRange {
    /// Which buffer: arena buffers and own buffers have different numbers.
    pub buffer: (u8, u64),
    /// First byte.
    pub start: u64,
    /// One past the last byte.
    pub end: u64,
}

impl AbsoluteRange {
    /// The range of `region`, or `None` where it is empty or has no place.
    pub fn of(region: &Region, storages: &[Storage], places: &[Place]) -> Option<AbsoluteRange> {
        let index = region.storage.0 as usize;
        let (buffer, base) = match (places.get(index)?, &storages.get(index)?.kind) {
            (Place::Arena { buffer, offset_bytes }, _) => ((0, u64::from(*buffer)), *offset_bytes),
            (Place::Own, StorageKind::Constant(number)) => ((1, *number as u64), 0),
            (Place::Own, StorageKind::State(number)) => ((2, *number as u64), 0),
            (Place::Own, _) => ((3, 0), 0),
            (Place::Unused, _) => return None,
        };
        let start = base + region.offset_bytes;
        (region.len_bytes > 0).then_some(AbsoluteRange { buffer, start, end: start + region.len_bytes })
    }

    /// Whether the two share a byte.
    pub fn overlaps(&self, other: &AbsoluteRange) -> bool {
        self.buffer == other.buffer && self.start < other.end && other.start < self.end
    }
}

/// For each dispatch, whether it must wait for all before it. Status words are written by atomics only, in any
/// order, so they are no hazard.
pub fn barriers(dispatches: &[Dispatch], storages: &[Storage], places: &[Place]) -> Vec<bool> {
    let mut since_barrier: Vec<(AbsoluteRange, bool)> = Vec::new();
    dispatches
        .iter()
        .map(|dispatch| {
            let ranges = accesses(dispatch, storages, places);
            let hazard = ranges.iter().any(|(range, writes)| {
                since_barrier.iter().any(|(earlier, wrote)| (*writes || *wrote) && range.overlaps(earlier))
            });
            if hazard {
                since_barrier.clear();
            }
            since_barrier.extend(ranges);
            hazard
        })
        .collect()
}

/// The ranges that a dispatch touches, and whether it writes them.
pub fn accesses(dispatch: &Dispatch, storages: &[Storage], places: &[Place]) -> Vec<(AbsoluteRange, bool)> {
    dispatch
        .operands
        .iter()
        .filter(|operand| {
            !storages
                .get(operand.region.storage.0 as usize)
                .is_some_and(|storage| storage.kind == StorageKind::Status)
        })
        .filter_map(|operand| {
            Some((AbsoluteRange::of(&operand.region, storages, places)?, operand.access.writes()))
        })
        .collect()
}
