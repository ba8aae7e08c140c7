//! Choices: which way a launch takes on the device, and how much work one launch has.

use crate::{
    base::{Error, Result},
    shader::{Access, ChoiceKey, Chosen, DeviceClass, DeviceProfile, Family, Need, Needs, Way, work_groups},
};

/// Work-group shapes of kernels whose invocations take a tile each.
pub const TILE_SHAPES: &[[u32; 2]] = &[[128, 1], [64, 1], [32, 2], [16, 4], [8, 8], [32, 1], [16, 2]];

/// Work-group shapes of kernels whose lanes share loads: lanes of a subgroup have the same rows.
pub const LANE_SHAPES: &[[u32; 2]] = &[[64, 1], [32, 1], [16, 1], [8, 1]];

/// Lanes of a subgroup that share loads in these kernels, at most.
pub const MAX_LANES: u32 = 8;

/// Invocations that share the terms of a panel of 4 columns in some kernels: a work group has a multiple.
pub const ROW_SPLIT: u32 = 16;

/// Work-group shapes of those kernels.
pub const ROW_SHAPES: &[[u32; 2]] = &[[256, 1], [128, 1], [64, 1], [32, 1], [16, 1]];

/// Shared memory in bytes that an invocation of those kernels takes for a row.
pub const ROW_SHARED_BYTES: u32 = 16;

/// Invocations of a work group that takes a part of the terms, which is a subgroup.
pub const PARTS_LANES: u32 = 8;

/// Columns of such a work group.
pub const PARTS_COLUMNS: usize = 16;

/// Work-group shapes of tiles of 8 rows. More tiles in a group take registers that leave fewer than 768 invocations in
/// flight on Adreno 7xx.
const WIDE_SHAPES: &[[u32; 2]] = &[[128, 1], [64, 1], [32, 2], [32, 1], [16, 2]];

/// Of tiles of texels, for the same reason.
const TEXEL_SHAPES: &[[u32; 2]] = &[[128, 1], [64, 1], [32, 1]];

/// Rows of a tile of the kernel that reads texels, which takes no fewer.
pub const TEXEL_ROWS: usize = 8;

/// How a product is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProductWay {
    /// Each invocation has a panel of 4 columns of so many rows.
    Tile(u32),
    /// The same, of [`TEXEL_ROWS`] rows, and both matrices are read as texels.
    Texels,
    /// The same as `Tile`, and lanes of a subgroup load the rows for each other.
    Lanes(u32),
    /// [`ROW_SPLIT`] invocations share a panel of so many rows.
    Split(u32),
    /// [`ROW_SPLIT`] invocations share a panel of the only row.
    Row,
    /// Work groups share the terms of [`PARTS_COLUMNS`] columns of the only row, and a second dispatch adds those up.
    Parts,
}

impl ProductWay {
    /// Rows of an invocation's tile.
    pub fn rows(self) -> usize {
        match self {
            ProductWay::Tile(rows) | ProductWay::Lanes(rows) | ProductWay::Split(rows) => rows as usize,
            ProductWay::Texels => TEXEL_ROWS,
            ProductWay::Row | ProductWay::Parts => 1,
        }
    }
}

impl Chosen<ProductWay> {
    /// Rows that a work group computes.
    pub fn tile_rows(&self) -> usize {
        self.value.rows() * self.local[1] as usize
    }

    /// Columns that a work group computes.
    pub fn tile_columns(&self) -> usize {
        let sharers = match self.value {
            ProductWay::Parts => return PARTS_COLUMNS,
            ProductWay::Split(_) | ProductWay::Row => ROW_SPLIT,
            ProductWay::Tile(_) | ProductWay::Texels | ProductWay::Lanes(_) => 1,
        };
        4 * (self.local[0] / sharers) as usize
    }
}

/// A way of tiles of `rows` rows.
pub const fn tile_way(name: &'static str, rows: u32, on_phones: bool) -> Way<ProductWay> {
    let needs = Needs::of(&[] as &[Need]);
    let shapes = if rows == 8 { WIDE_SHAPES } else { TILE_SHAPES };
    Way { name, value: ProductWay::Tile(rows), shapes, shared_bytes: 0, needs, on_phones }
}

/// A way of tiles of `rows` rows whose lanes share loads, for Vulkan on the CPU.
pub const fn lanes_way(name: &'static str, rows: u32) -> Way<ProductWay> {
    let (value, needs) = (ProductWay::Lanes(rows), Needs::of(&[Need::ShaderInt64, Need::Subgroup]));
    Way { name, value, shapes: LANE_SHAPES, shared_bytes: 0, needs, on_phones: false }
}

/// A way of tiles of `rows` rows whose terms invocations share.
pub const fn split_way(name: &'static str, rows: u32, on_phones: bool) -> Way<ProductWay> {
    let (value, shared_bytes) = (ProductWay::Split(rows), ROW_SHARED_BYTES * rows);
    Way { name, value, shapes: ROW_SHAPES, shared_bytes, needs: Needs::of(&[]), on_phones }
}

/// Rows of a tile whose terms invocations share, for a product of `rows` rows: one for each class of them, so that few rows
/// waste no lanes and read the other matrix once.
pub fn split_rows(rows: usize) -> u32 {
    match rows {
        0..=2 => 2,
        3..=4 => 4,
        _ => 8,
    }
}

/// Whether a product of `key` leaves a GPU of the profile idle when each tile of `tile` rows has one invocation, and has
/// terms enough for several.
pub fn wants_split(profile: &DeviceProfile, key: &ChoiceKey, tile: usize) -> bool {
    const LEAST_TERMS: usize = 256;
    let invocations =
        [key.batch, key.m.div_ceil(tile), key.n.div_ceil(4)].into_iter().fold(1, usize::saturating_mul);
    key.k >= LEAST_TERMS && invocations < profile.class.invocations_to_split()
}

/// Whether sharing loads among lanes pays on the device: where Vulkan runs on the CPU, each lane's load is one of its own.
/// Through descriptors each load has a bounds check too, and such kernels take seconds to compile: there are none.
pub fn lanes_share(profile: &DeviceProfile) -> bool {
    loads_cost_alike(profile) && profile.features.contains(Need::Subgroup)
}

/// Whether kernels load by words of 64 bits: on a CPU and by device addresses a load costs the same whatever its width.
pub fn loads_cost_alike(profile: &DeviceProfile) -> bool {
    let is_cheap = profile.class == DeviceClass::Cpu && profile.access == Access::Bda;
    is_cheap && profile.features.contains(Need::ShaderInt64)
}

/// The way of tiles that are read as texels.
pub const TEXEL_WAY: Way<ProductWay> = Way {
    name: "texels8",
    value: ProductWay::Texels,
    shapes: TEXEL_SHAPES,
    shared_bytes: 0,
    needs: Needs::of(&[]),
    on_phones: true,
};

/// The way of a kernel for one row.
pub const ROW_WAY: Way<ProductWay> = Way {
    name: "row",
    value: ProductWay::Row,
    shapes: ROW_SHAPES,
    shared_bytes: ROW_SHARED_BYTES,
    needs: Needs::of(&[]),
    on_phones: true,
};

/// The way of one row whose terms work groups share, for Vulkan on the CPU.
pub const PARTS_WAY: Way<ProductWay> = Way {
    name: "parts",
    value: ProductWay::Parts,
    shapes: &[[PARTS_LANES, 1]],
    shared_bytes: 0,
    needs: Needs::of(&[Need::ShaderInt64, Need::Subgroup]),
    on_phones: false,
};

/// The way of a product by `family` that suits `wanted`, on a device of `profile`: see [`Family::choose`].
///
/// # Errors
/// When the device takes none, or a tuner has found all wrong on it.
pub fn choose(
    profile: &DeviceProfile,
    family: &'static Family<ProductWay>,
    key: ChoiceKey,
    wanted: ProductWay,
    computes: impl Fn(ProductWay) -> bool,
) -> Result<Chosen<ProductWay>> {
    let groups = work_groups(profile.class);
    let local = match wanted {
        ProductWay::Tile(_) | ProductWay::Texels => groups.tile_for(profile.class, key.n.div_ceil(4)),
        ProductWay::Lanes(_) => [profile.subgroup_size.max(MAX_LANES), 1],
        ProductWay::Split(_) | ProductWay::Row => groups.row,
        ProductWay::Parts => [PARTS_LANES, 1],
    };
    family.choose(profile, key, (wanted, local), computes).ok_or_else(|| {
        Error::unsupported(format!(
            "no kernel of {} is fit for this device: its limits rule them out, or they gave wrong results when it was tuned",
            family.name
        ))
    })
}

/// Rows of a product that one launch takes: as many as keep it to the work of one submission, in whole tiles of `tile`
/// rows.
pub fn rows_at_once(profile: &DeviceProfile, key: &ChoiceKey, tile: usize) -> usize {
    let ops_a_row = ChoiceKey { m: 1, ..*key }.ops().max(1);
    let rows = usize::try_from(profile.submission_ops / ops_a_row).unwrap_or(usize::MAX);
    (rows / tile * tile).max(tile)
}
