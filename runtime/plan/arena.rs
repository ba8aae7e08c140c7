//! Puts storages into arena buffers so that those alive at the same time never overlap.

use std::cmp::Reverse;

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

impl Arena {
    fn bytes(&self) -> u64 {
        self.buffer_bytes.iter().sum()
    }
}

struct Block {
    buffer: u32,
    offset_bytes: u64,
    end_bytes: u64,
    first: usize,
    last: usize,
}

/// Rounds of promotion from each order. Each places all lifetimes anew, so few: planning is part of a run.
const PROMOTIONS: usize = 16;

/// An arena may take so many percent more than what is alive at once before promotions are tried.
const SPARE_PERCENT: u64 = 5;

/// Places every lifetime where the first buffer with room has a gap for it, in the order and with the choice among gaps
/// that take the fewest bytes. Offsets are multiples of `alignment_bytes`; no buffer grows beyond `max_buffer_bytes`.
pub fn place(lifetimes: &[Lifetime], alignment_bytes: u64, max_buffer_bytes: u64) -> Arena {
    let aligned: Vec<Lifetime> = lifetimes
        .iter()
        .map(|lifetime| Lifetime {
            len_bytes: lifetime.len_bytes.max(1).next_multiple_of(alignment_bytes.max(1)),
            ..*lifetime
        })
        .collect();
    let live = live_bytes_by_step(&aligned);
    let least_bytes = live.iter().copied().max().unwrap_or(0);
    let spare_bytes = least_bytes + least_bytes / 100 * SPARE_PERCENT;
    let orders = orders(&aligned, &live);
    let ways = || orders.iter().flat_map(|order| [(order, Gap::Lowest), (order, Gap::Tightest)]);
    let mut best = Best::default();
    for (order, gap) in ways() {
        if best.is_within(least_bytes) {
            break;
        }
        best.offer(place_in_order(&aligned, order, gap, max_buffer_bytes));
    }
    for (order, gap) in ways() {
        if best.is_within(spare_bytes) {
            break;
        }
        promote(&aligned, order.clone(), gap, max_buffer_bytes, spare_bytes, &mut best);
    }
    best.0.unwrap_or_default()
}

/// The smallest arena so far.
#[derive(Default)]
struct Best(Option<Arena>);

impl Best {
    fn offer(&mut self, arena: Arena) {
        if self.0.as_ref().is_none_or(|best| arena.bytes() < best.bytes()) {
            self.0 = Some(arena);
        }
    }

    fn is_within(&self, bytes: u64) -> bool {
        self.0.as_ref().is_some_and(|best| best.bytes() <= bytes)
    }
}

/// Places what came to lie at the top before all others, again and again: it had no room below because of some that had a
/// choice.
fn promote(
    lifetimes: &[Lifetime],
    mut order: Vec<usize>,
    gap: Gap,
    max_buffer_bytes: u64,
    enough_bytes: u64,
    best: &mut Best,
) {
    for _ in 0..PROMOTIONS {
        let arena = place_in_order(lifetimes, &order, gap, max_buffer_bytes);
        let end = |&position: &usize| match order
            .get(position)
            .and_then(|&index| Some((arena.places.get(index)?, lifetimes.get(index)?.len_bytes)))
        {
            Some((Place::Arena { buffer, offset_bytes }, len_bytes)) => (*buffer, offset_bytes + len_bytes),
            _ => (0, 0),
        };
        let top = (0..order.len()).max_by_key(end).unwrap_or(0);
        best.offer(arena);
        if top == 0 || best.is_within(enough_bytes) {
            return;
        }
        order[..=top].rotate_right(1);
    }
}

/// Orders worth trying: the largest first; those alive at the fullest steps first; bytes times steps; as they are born.
fn orders(lifetimes: &[Lifetime], live: &[u64]) -> [Vec<usize>; 4] {
    let sorted = |key: &dyn Fn(&Lifetime) -> (u64, u64)| {
        let mut order: Vec<usize> = (0..lifetimes.len()).collect();
        order.sort_by_key(|&index| {
            let lifetime = &lifetimes[index];
            (Reverse(key(lifetime)), lifetime.first, index)
        });
        order
    };
    let fullest =
        |lifetime: &Lifetime| live[lifetime.first..=lifetime.last].iter().copied().max().unwrap_or(0);
    let area =
        |lifetime: &Lifetime| lifetime.len_bytes.saturating_mul((lifetime.last - lifetime.first + 1) as u64);
    [
        sorted(&|lifetime| (lifetime.len_bytes, 0)),
        sorted(&|lifetime| (fullest(lifetime), lifetime.len_bytes)),
        sorted(&|lifetime| (area(lifetime), 0)),
        sorted(&|_| (0, 0)),
    ]
}

/// Which of the gaps that are large enough is taken.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Gap {
    Lowest,
    Tightest,
}

fn place_in_order(lifetimes: &[Lifetime], order: &[usize], gap: Gap, max_buffer_bytes: u64) -> Arena {
    let mut arena = Arena { places: vec![Place::Unused; lifetimes.len()], buffer_bytes: Vec::new() };
    let mut blocks: Vec<Block> = Vec::new();
    for &index in order {
        let lifetime = lifetimes[index];
        let (buffer, offset_bytes) =
            find_room(&blocks, &lifetime, gap, arena.buffer_bytes.len(), max_buffer_bytes);
        if buffer as usize == arena.buffer_bytes.len() {
            arena.buffer_bytes.push(0);
        }
        let end_bytes = offset_bytes + lifetime.len_bytes;
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
    gap: Gap,
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
        let mut end_of_taken = 0u64;
        let mut tightest: Option<(u64, u64)> = None;
        for (start, end) in taken {
            let gap_bytes = start.saturating_sub(end_of_taken);
            let is_better = match (gap, tightest) {
                (_, None) => true,
                (Gap::Lowest, Some(_)) => false,
                (Gap::Tightest, Some((bytes, _))) => gap_bytes < bytes,
            };
            if gap_bytes >= lifetime.len_bytes && is_better {
                tightest = Some((gap_bytes, end_of_taken));
            }
            end_of_taken = end_of_taken.max(end);
        }
        let offset_bytes = tightest.map_or(end_of_taken, |(_, offset_bytes)| offset_bytes);
        if offset_bytes + lifetime.len_bytes <= max_buffer_bytes {
            return (buffer, offset_bytes);
        }
    }
    (buffers as u32, 0)
}

/// The most bytes that are alive at one step: a lower bound of any arena.
pub fn live_bytes(lifetimes: &[Lifetime]) -> u64 {
    live_bytes_by_step(lifetimes).into_iter().max().unwrap_or(0)
}

fn live_bytes_by_step(lifetimes: &[Lifetime]) -> Vec<u64> {
    let steps = lifetimes.iter().map(|lifetime| lifetime.last + 1).max().unwrap_or(0);
    let mut change = vec![0i128; steps + 1];
    for lifetime in lifetimes {
        change[lifetime.first] += i128::from(lifetime.len_bytes);
        change[lifetime.last + 1] -= i128::from(lifetime.len_bytes);
    }
    let mut live = 0i128;
    change.truncate(steps);
    change
        .into_iter()
        .map(|step| {
            live += step;
            u64::try_from(live).unwrap_or(u64::MAX)
        })
        .collect()
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
