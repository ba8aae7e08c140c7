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

    /// What a descriptor of the range covers, which starts at a multiple of `alignment_bytes`.
    fn bound(&self, alignment_bytes: u64) -> AbsoluteRange {
        let start = self.start - self.start % alignment_bytes.max(1);
        AbsoluteRange { start, end: self.end.next_multiple_of(4), ..*self }
    }

    /// Whether the two share a byte.
    pub fn overlaps(&self, other: &AbsoluteRange) -> bool {
        self.buffer == other.buffer && self.start < other.end && other.start < self.end
    }
}

/// For each dispatch, whether it must wait for all before it. Status words are written by atomics only, in any
/// order, so they are no hazard.
///
/// A read and a write conflict when the descriptors that reach them do, which begin at multiples of `alignment_bytes`:
/// that is what the validation layer holds us to. Writes conflict only where they share a byte, so that the parts of a
/// join are written side by side.
pub fn barriers(
    dispatches: &[Dispatch],
    storages: &[Storage],
    places: &[Place],
    alignment_bytes: u64,
) -> Vec<bool> {
    let conflict = |(range, writes): &(AbsoluteRange, bool), (earlier, wrote): &(AbsoluteRange, bool)| match (
        writes, wrote,
    ) {
        (false, false) => false,
        (true, true) => range.overlaps(earlier),
        _ => range.bound(alignment_bytes).overlaps(&earlier.bound(alignment_bytes)),
    };
    let mut since_barrier: Vec<(AbsoluteRange, bool)> = Vec::new();
    dispatches
        .iter()
        .map(|dispatch| {
            let ranges = accesses(dispatch, storages, places);
            let hazard =
                ranges.iter().any(|mine| since_barrier.iter().any(|earlier| conflict(mine, earlier)));
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shader::{KernelRef, Operand, OperandAccess, StorageId, TemplateId};

    fn touching(offset_bytes: u64, len_bytes: u64, access: OperandAccess) -> Dispatch {
        let region = Region { storage: StorageId(0), offset_bytes, len_bytes, element_bytes: 4 };
        Dispatch {
            kernel: KernelRef { template: TemplateId(0), variant: 0 },
            operands: vec![Operand { region, access }],
            params: Vec::new(),
            spec: Vec::new(),
            groups: [1; 3],
            label: String::new(),
            ops: 0,
            choice: None,
        }
    }

    #[test]
    fn reads_and_writes_wait_where_their_descriptors_meet() {
        use OperandAccess::{Read, Write};
        let storages = [Storage { kind: StorageKind::Arena, len_bytes: 256, name: "x".into() }];
        let places = [Place::Arena { buffer: 0, offset_bytes: 0 }];
        let waits = |first: (u64, u64, OperandAccess), second: (u64, u64, OperandAccess)| {
            let dispatches = [first, second].map(|(at, len, access)| touching(at, len, access));
            barriers(&dispatches, &storages, &places, 64)[1]
        };
        assert!(waits((0, 8, Write), (4, 8, Read)));
        assert!(waits((12, 8, Read), (0, 8, Write)), "a descriptor of the read starts at 0");
        assert!(!waits((12, 8, Write), (0, 12, Write)), "parts of a join");
        assert!(!waits((64, 8, Read), (0, 64, Write)));
        assert!(!waits((0, 8, Read), (0, 8, Read)));
    }
}
