//! Puts storages into arena buffers so that those alive at the same time never overlap.

use super::Place;

/// One storage to be placed.
#[derive(Clone, Copy, Debug)]
pub struct Lifetime {
    /// Index of the storage.
    pub storage: usize,
    /// Its length.
    pub len_bytes: u64,
    /// First step that touches it.
    pub first: usize,
    /// Last step that touches it.
    pub last: usize,
}

/// The result: a place for each lifetime in the order given, and the bytes of each buffer.
#[derive(Clone, Debug, Default)]
pub struct Arena {
    /// Places, in the order of the lifetimes.
    pub places: Vec<Place>,
    /// Bytes of each buffer.
    pub buffer_bytes: Vec<u64>,
}

struct Block {
    buffer: u32,
    offset_bytes: u64,
    end_bytes: u64,
    first: usize,
    last: usize,
}

/// Places every lifetime: largest first, each at the lowest free offset of the first buffer with room.
/// Offsets are multiples of `alignment_bytes`; no buffer grows beyond `max_buffer_bytes`.
pub fn place(lifetimes: &[Lifetime], alignment_bytes: u64, max_buffer_bytes: u64) -> Arena {
    let mut order: Vec<usize> = (0..lifetimes.len()).collect();
    order
        .sort_by_key(|&index| (std::cmp::Reverse(lifetimes[index].len_bytes), lifetimes[index].first, index));
    let mut arena = Arena { places: vec![Place::Unused; lifetimes.len()], buffer_bytes: Vec::new() };
    let mut blocks: Vec<Block> = Vec::new();
    for index in order {
        let lifetime = lifetimes[index];
        let len_bytes = lifetime.len_bytes.max(1).next_multiple_of(alignment_bytes.max(1));
        let (buffer, offset_bytes) =
            find_room(&blocks, &lifetime, len_bytes, arena.buffer_bytes.len(), max_buffer_bytes);
        if buffer as usize == arena.buffer_bytes.len() {
            arena.buffer_bytes.push(0);
        }
        let end_bytes = offset_bytes + len_bytes;
        let size = &mut arena.buffer_bytes[buffer as usize];
        *size = (*size).max(end_bytes);
        blocks.push(Block { buffer, offset_bytes, end_bytes, first: lifetime.first, last: lifetime.last });
        arena.places[index] = Place::Arena { buffer, offset_bytes };
    }
    arena
}

fn find_room(
    blocks: &[Block],
    lifetime: &Lifetime,
    len_bytes: u64,
    buffers: usize,
    max_buffer_bytes: u64,
) -> (u32, u64) {
    for buffer in 0..buffers as u32 {
        let mut taken: Vec<(u64, u64)> = blocks
            .iter()
            .filter(|block| {
                block.buffer == buffer && block.first <= lifetime.last && lifetime.first <= block.last
            })
            .map(|block| (block.offset_bytes, block.end_bytes))
            .collect();
        taken.sort_unstable();
        let mut candidate = 0u64;
        for (start, end) in taken {
            if candidate + len_bytes <= start {
                break;
            }
            candidate = candidate.max(end);
        }
        if candidate + len_bytes <= max_buffer_bytes {
            return (buffer, candidate);
        }
    }
    (buffers as u32, 0)
}

/// The most bytes that are alive at one step: a lower bound of any arena.
pub fn live_bytes(lifetimes: &[Lifetime]) -> u64 {
    let steps = lifetimes.iter().map(|lifetime| lifetime.last + 1).max().unwrap_or(0);
    let mut change = vec![0i128; steps + 1];
    for lifetime in lifetimes {
        change[lifetime.first] += i128::from(lifetime.len_bytes);
        change[lifetime.last + 1] -= i128::from(lifetime.len_bytes);
    }
    let mut live = 0i128;
    let peak = change.iter().fold(0i128, |peak, step| {
        live += step;
        peak.max(live)
    });
    u64::try_from(peak).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn lifetime(storage: usize, len_bytes: u64, first: usize, last: usize) -> Lifetime {
        Lifetime { storage, len_bytes, first, last }
    }

    #[test]
    fn memory_is_reused_once_a_storage_is_dead() {
        let arena =
            place(&[lifetime(0, 100, 0, 1), lifetime(1, 100, 1, 2), lifetime(2, 100, 2, 3)], 4, 1 << 20);
        assert_eq!(arena.buffer_bytes, [200]);
        assert_eq!(arena.places[0], arena.places[2]);
        assert_ne!(arena.places[0], arena.places[1]);
    }

    #[test]
    fn a_full_buffer_opens_another() {
        let arena = place(&[lifetime(0, 600, 0, 9), lifetime(1, 600, 0, 9)], 256, 1000);
        assert_eq!(arena.buffer_bytes, [768, 768]);
    }

    proptest! {
        #[test]
        fn the_living_never_overlap(spec in proptest::collection::vec((1u64..5000, 0usize..40, 0usize..10), 1..60)) {
            let lifetimes: Vec<Lifetime> =
                spec.iter().enumerate().map(|(index, &(len, first, more))| lifetime(index, len, first, first + more)).collect();
            let arena = place(&lifetimes, 64, 16384);
            for (i, a) in lifetimes.iter().enumerate() {
                for (j, b) in lifetimes.iter().enumerate().skip(i + 1) {
                    let (Place::Arena { buffer: x, offset_bytes: p }, Place::Arena { buffer: y, offset_bytes: q }) = (arena.places[i], arena.places[j]) else { panic!() };
                    prop_assert!(p % 64 == 0 && p + a.len_bytes <= arena.buffer_bytes[x as usize]);
                    let together = a.first <= b.last && b.first <= a.last;
                    prop_assert!(!(together && x == y && p < q + b.len_bytes && q < p + a.len_bytes));
                }
            }
            prop_assert!(live_bytes(&lifetimes) <= arena.buffer_bytes.iter().sum());
        }
    }
}
