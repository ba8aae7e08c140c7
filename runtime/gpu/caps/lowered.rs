//! Devices made weaker than they are, for tests.

use super::super::features::Features;
use super::{Caps, DeviceClass, DotProduct, UnifiedMemory};

/// Test hook: makes a device look weaker than it is. Limits are only ever lowered (the alignment raised).
#[doc(hidden)]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CapsOverride {
    /// Features to treat as absent.
    pub features_off: Features,
    /// Treats the device as one of that class.
    pub class: Option<DeviceClass>,
    /// Treats the timestamps as absent.
    pub timestamps_off: bool,
    /// The most that the host may reach of the memory that kernels work in.
    pub unified_memory: Option<UnifiedMemory>,
    /// Whether unsigned packed dot products count as fast, where the device has them.
    pub unsigned_dot_accelerated: Option<bool>,
    /// See [`Limits`], as are those below.
    pub max_storage_buffer_range_bytes: Option<u64>,
    pub min_storage_buffer_offset_alignment_bytes: Option<u64>,
    pub max_memory_allocation_bytes: Option<u64>,
    pub max_buffer_bytes: Option<u64>,
    pub max_texel_buffer_elems: Option<u64>,
    pub min_texel_buffer_offset_alignment_bytes: Option<u64>,
    pub max_storage_buffers: Option<u32>,
    pub max_group_count: Option<[u32; 3]>,
    pub max_group_invocations: Option<u32>,
    pub max_shared_memory_bytes: Option<u32>,
    pub max_push_constant_bytes: Option<u32>,
}

impl CapsOverride {
    /// The least that the standard guarantees, with every optional feature off.
    pub fn spec_minimum() -> CapsOverride {
        CapsOverride {
            features_off: Features::ALL,
            unified_memory: Some(UnifiedMemory::None),
            max_storage_buffer_range_bytes: Some(1 << 27),
            min_storage_buffer_offset_alignment_bytes: Some(256),
            max_storage_buffers: Some(4),
            max_group_count: Some([65535; 3]),
            max_group_invocations: Some(128),
            max_shared_memory_bytes: Some(16 << 10),
            max_push_constant_bytes: Some(128),
            max_texel_buffer_elems: Some(65536),
            min_texel_buffer_offset_alignment_bytes: Some(256),
            ..CapsOverride::default()
        }
    }

    /// Lowers `caps`.
    pub fn apply(&self, caps: &mut Caps) {
        fn lower<T: Ord + Copy>(limit: &mut T, to: Option<T>) {
            *limit = to.map_or(*limit, |to| to.min(*limit));
        }
        caps.features = caps.features.without(&self.features_off);
        caps.class = self.class.unwrap_or(caps.class);
        if let Some(accelerated) = self.unsigned_dot_accelerated {
            caps.dot_product.unsigned_accelerated = accelerated;
        }
        if !caps.features.integer_dot_product {
            caps.dot_product = DotProduct::default();
        }
        if self.timestamps_off {
            caps.timestamps = None;
        }
        lower(&mut caps.unified_memory, self.unified_memory);
        let limits = &mut caps.limits;
        lower(&mut limits.max_storage_buffer_range_bytes, self.max_storage_buffer_range_bytes);
        lower(&mut limits.max_memory_allocation_bytes, self.max_memory_allocation_bytes);
        lower(&mut limits.max_buffer_bytes, self.max_buffer_bytes);
        lower(&mut limits.max_texel_buffer_elems, self.max_texel_buffer_elems);
        lower(&mut limits.max_storage_buffers, self.max_storage_buffers);
        lower(&mut limits.max_group_invocations, self.max_group_invocations);
        lower(&mut limits.max_shared_memory_bytes, self.max_shared_memory_bytes);
        lower(&mut limits.max_push_constant_bytes, self.max_push_constant_bytes);
        let counts = self.max_group_count.unwrap_or(limits.max_group_count);
        limits.max_group_count.iter_mut().zip(counts).for_each(|(limit, to)| lower(limit, Some(to)));
        let sizes = [limits.max_group_invocations; 3];
        limits.max_group_size.iter_mut().zip(sizes).for_each(|(limit, to)| lower(limit, Some(to)));
        let raise = |alignment: &mut u64, to: Option<u64>| *alignment = to.unwrap_or(1).max(*alignment);
        let storage = self.min_storage_buffer_offset_alignment_bytes;
        raise(&mut limits.min_storage_buffer_offset_alignment_bytes, storage);
        let texel = self.min_texel_buffer_offset_alignment_bytes;
        raise(&mut limits.min_texel_buffer_offset_alignment_bytes, texel);
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Limits, TimestampCaps};
    use super::*;

    fn strong_caps() -> Caps {
        Caps {
            class: DeviceClass::Desktop,
            features: Features::ALL,
            limits: Limits {
                max_storage_buffer_range_bytes: 1 << 31,
                min_storage_buffer_offset_alignment_bytes: 16,
                max_memory_allocation_bytes: 1 << 32,
                max_buffer_bytes: 1 << 32,
                max_texel_buffer_elems: 1 << 27,
                min_texel_buffer_offset_alignment_bytes: 16,
                max_storage_buffers: 16,
                max_group_count: [1 << 31, 65535, 65535],
                max_group_size: [1024, 1024, 64],
                max_group_invocations: 1024,
                max_shared_memory_bytes: 48 << 10,
                max_push_constant_bytes: 256,
                non_coherent_atom_bytes: 64,
                device_heap_bytes: 1 << 33,
            },
            dot_product: DotProduct { unsigned_accelerated: true, ..DotProduct::default() },
            subgroup_size: 32,
            timestamps: Some(TimestampCaps { valid_bits: 64, period_ns: 1.0 }),
            unified_memory: UnifiedMemory::WrittenAndRead,
        }
    }

    #[test]
    fn an_override_lowers_what_the_host_reaches() {
        let most = |most| {
            let mut caps = strong_caps();
            CapsOverride { unified_memory: Some(most), ..CapsOverride::default() }.apply(&mut caps);
            caps.unified_memory
        };
        assert_eq!(most(UnifiedMemory::None), UnifiedMemory::None);
        assert_eq!(most(UnifiedMemory::Written), UnifiedMemory::Written);
    }

    #[test]
    fn an_empty_override_changes_nothing() {
        let mut caps = strong_caps();
        CapsOverride::default().apply(&mut caps);
        assert_eq!(caps, strong_caps());
    }

    #[test]
    fn the_spec_minimum_lowers_everything() {
        let mut caps = strong_caps();
        CapsOverride::spec_minimum().apply(&mut caps);
        assert_eq!(caps.features, Features::default());
        assert_eq!(caps.dot_product, DotProduct::default());
        let limits = caps.limits;
        assert_eq!(limits.max_group_count, [65535; 3]);
        assert_eq!(limits.max_group_size, [128, 128, 64]);
        assert_eq!(limits.min_storage_buffer_offset_alignment_bytes, 256);
        assert_eq!(limits.min_texel_buffer_offset_alignment_bytes, 256);
        assert_eq!(limits.max_texel_buffer_elems, 65536);
        assert_eq!((limits.max_push_constant_bytes, limits.max_storage_buffers), (128, 4));
    }

    #[test]
    fn an_override_never_raises_a_limit() {
        let mut caps = strong_caps();
        let over = CapsOverride { max_push_constant_bytes: Some(4096), ..CapsOverride::default() };
        over.apply(&mut caps);
        assert_eq!(caps.limits.max_push_constant_bytes, 256);
    }
}
