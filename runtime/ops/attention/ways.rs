//! Choices: which kernel computes attention on the device, and in which work groups.
//!
//! A CPU gives each invocation queries; a GPU gives a work group a tile of queries; few queries share out their keys. By
//! descriptors a CPU takes tiles too: it would compile the many bounds-checked loads of the other for half a minute. Where
//! none of these is right on the device, products and a softmax are left.

use crate::{
    ops::{
        rows,
        ways::{LANE_SHAPES, MAX_LANES, lanes_share},
    },
    shader::{ChoiceKey, Chosen, DeviceProfile, Family, Need, Needs, Way},
};

/// How attention is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttentionWay {
    /// Each invocation has so many queries, and lanes of a subgroup load keys and values for each other.
    Lanes(u32),
    /// A work group has a tile of queries, and shares their scores.
    Tile,
    /// A work group of so many invocations has one query, and shares out its keys.
    Row(u32),
    /// Two products and a softmax, which write the scores.
    Products,
}

static ATTENTION: Family<AttentionWay> = Family {
    name: "attention",
    ways: &[
        lanes("lanes2", 2),
        lanes("lanes1", 1),
        shared("tile", AttentionWay::Tile, TILE_SHAPES),
        shared("row128", AttentionWay::Row(128), &[[128, 1]]),
        shared("row64", AttentionWay::Row(64), &[[64, 1]]),
        shared("row32", AttentionWay::Row(32), &[[32, 1]]),
        shared("products", AttentionWay::Products, &[[rows::LOCAL_X, 1]]),
    ],
};

/// Work-group shapes of tiles.
const TILE_SHAPES: &[[u32; 2]] = &[[128, 1], [64, 1], [32, 1]];

/// Invocations of a work group that shares scores or keys, to begin with.
const WORK_GROUP: u32 = 64;

/// Bytes of shared memory that an invocation of these takes.
const SHARED_BYTES: u32 = 40;

/// Lanes that share loads, at least.
const MIN_LANES: u32 = 4;

/// More queries than these are never computed one by one: each reads all keys and values.
const MAX_ROWS: usize = 8;

/// Scores that are worth writing, at most: what more of them take in memory is no matter of speed alone.
const MAX_SCORES: usize = 1 << 22;

/// Elements of a row of which an invocation takes two: of more, that is more code than a compiler is quick with.
const MAX_WIDTH_OF_TWO: usize = 32;

const fn lanes(name: &'static str, queries: u32) -> Way<AttentionWay> {
    let (value, needs) = (AttentionWay::Lanes(queries), Needs::of(&[Need::ShaderInt64, Need::Subgroup]));
    Way { name, value, shapes: LANE_SHAPES, shared_bytes: 0, needs, on_phones: false }
}

const fn shared(name: &'static str, value: AttentionWay, shapes: &'static [[u32; 2]]) -> Way<AttentionWay> {
    Way { name, value, shapes, shared_bytes: SHARED_BYTES, needs: Needs::of(&[]), on_phones: true }
}

/// The way of attention of `key`: batches and heads, queries, keys, elements of a row. `None` where the device takes none,
/// or a tuner has found all wrong on it.
pub fn choose(profile: &DeviceProfile, key: ChoiceKey) -> Option<Chosen<AttentionWay>> {
    let shares = lanes_share(profile) && profile.subgroup_size >= MIN_LANES;
    let most_of_lanes = if key.n <= MAX_WIDTH_OF_TWO { 2 } else { 1 };
    let (wanted, local_x) = match key.m {
        1 => (AttentionWay::Row(WORK_GROUP), WORK_GROUP),
        _ if shares => (AttentionWay::Lanes(most_of_lanes), profile.subgroup_size.max(MAX_LANES)),
        _ => (AttentionWay::Tile, WORK_GROUP),
    };
    let scores = [key.batch, key.m, key.k].into_iter().fold(1, usize::saturating_mul);
    let computes = |way| match way {
        AttentionWay::Lanes(queries) => shares && key.m > 1 && queries <= most_of_lanes,
        AttentionWay::Tile => true,
        AttentionWay::Row(_) => key.m <= MAX_ROWS,
        AttentionWay::Products => scores <= MAX_SCORES,
    };
    ATTENTION.choose(profile, key, (wanted, [local_x, 1]), computes)
}
