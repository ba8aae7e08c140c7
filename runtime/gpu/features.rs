//! Device features: read, and enabled at device creation, through one chain of structs.
//!
//! A feature counts only if the core version or extension that brings it is there *and* its bit is set.

use std::collections::HashSet;
use std::ffi::{CStr, CString};

use ash::{khr, vk};

/// Optional abilities of a device that kernels may use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Features {
    /// 16-bit elements in storage buffers.
    pub storage_16bit: bool,
    /// 8-bit elements in storage buffers.
    pub storage_8bit: bool,
    /// Half-precision arithmetic in shaders.
    pub shader_float16: bool,
    /// 8-bit integer arithmetic in shaders.
    pub shader_int8: bool,
    /// 16-bit integer arithmetic in shaders.
    pub shader_int16: bool,
    /// 64-bit integer arithmetic in shaders.
    pub shader_int64: bool,
    /// Buffers reached through 64-bit addresses.
    pub buffer_device_address: bool,
    /// Integer dot product instructions.
    pub integer_dot_product: bool,
    /// Subgroup arithmetic (reductions and scans) in compute shaders.
    pub subgroup_arithmetic: bool,
    /// Subgroup shuffles in compute shaders.
    pub subgroup_shuffle: bool,
}

impl Features {
    /// All features, to switch all off in a [`CapsOverride`](super::CapsOverride).
    pub const ALL: Features = Features {
        storage_16bit: true,
        storage_8bit: true,
        shader_float16: true,
        shader_int8: true,
        shader_int16: true,
        shader_int64: true,
        buffer_device_address: true,
        integer_dot_product: true,
        subgroup_arithmetic: true,
        subgroup_shuffle: true,
    };

    /// What is here and not in `off`.
    pub fn without(&self, off: &Features) -> Features {
        Features {
            storage_16bit: self.storage_16bit && !off.storage_16bit,
            storage_8bit: self.storage_8bit && !off.storage_8bit,
            shader_float16: self.shader_float16 && !off.shader_float16,
            shader_int8: self.shader_int8 && !off.shader_int8,
            shader_int16: self.shader_int16 && !off.shader_int16,
            shader_int64: self.shader_int64 && !off.shader_int64,
            buffer_device_address: self.buffer_device_address && !off.buffer_device_address,
            integer_dot_product: self.integer_dot_product && !off.integer_dot_product,
            subgroup_arithmetic: self.subgroup_arithmetic && !off.subgroup_arithmetic,
            subgroup_shuffle: self.subgroup_shuffle && !off.subgroup_shuffle,
        }
    }

    /// Every feature by its name, for listings.
    pub fn named(&self) -> [(&'static str, bool); 10] {
        [
            ("storage_16bit", self.storage_16bit),
            ("storage_8bit", self.storage_8bit),
            ("shader_float16", self.shader_float16),
            ("shader_int8", self.shader_int8),
            ("shader_int16", self.shader_int16),
            ("shader_int64", self.shader_int64),
            ("buffer_device_address", self.buffer_device_address),
            ("integer_dot_product", self.integer_dot_product),
            ("subgroup_arithmetic", self.subgroup_arithmetic),
            ("subgroup_shuffle", self.subgroup_shuffle),
        ]
    }
}

/// Where a feature struct comes from: a core version, or before that an extension.
#[derive(Clone, Copy)]
pub(super) struct Origin {
    core: u32,
    extension: &'static CStr,
}

pub(super) const STORAGE_8BIT: Origin =
    Origin { core: vk::API_VERSION_1_2, extension: khr::_8bit_storage::NAME };
pub(super) const FLOAT16_INT8: Origin =
    Origin { core: vk::API_VERSION_1_2, extension: khr::shader_float16_int8::NAME };
pub(super) const DEVICE_ADDRESS: Origin =
    Origin { core: vk::API_VERSION_1_2, extension: khr::buffer_device_address::NAME };
pub(super) const DOT_PRODUCT: Origin =
    Origin { core: vk::API_VERSION_1_3, extension: khr::shader_integer_dot_product::NAME };
pub(super) const DRIVER_PROPERTIES: Origin =
    Origin { core: vk::API_VERSION_1_2, extension: khr::driver_properties::NAME };
pub(super) const MAINTENANCE4: Origin =
    Origin { core: vk::API_VERSION_1_3, extension: khr::maintenance4::NAME };
const FLOAT_CONTROLS: Origin =
    Origin { core: vk::API_VERSION_1_2, extension: khr::shader_float_controls::NAME };

/// The version and the extensions that a device may be used with.
pub(super) struct Support {
    /// The lower of the instance's and the device's version.
    pub api_version: u32,
    extensions: HashSet<CString>,
}

impl Support {
    pub(super) fn new(api_version: u32, extensions: &[vk::ExtensionProperties]) -> Support {
        let name = |properties: &vk::ExtensionProperties| {
            properties.extension_name_as_c_str().ok().map(CStr::to_owned)
        };
        Support { api_version, extensions: extensions.iter().filter_map(name).collect() }
    }

    pub(super) fn has(&self, origin: Origin) -> bool {
        self.is_core(origin) || self.extensions.contains(origin.extension)
    }

    pub(super) fn is_core(&self, origin: Origin) -> bool {
        self.api_version >= origin.core
    }

    /// Extensions to enable for `features`; what is core needs none.
    pub(super) fn extensions_for(&self, features: &Features) -> Vec<&'static CStr> {
        let wanted = [
            (features.storage_8bit, STORAGE_8BIT),
            (features.shader_float16 || features.shader_int8, FLOAT16_INT8),
            (features.buffer_device_address, DEVICE_ADDRESS),
            (features.integer_dot_product, DOT_PRODUCT),
        ];
        let is_needed = |origin: Origin| !self.is_core(origin) && self.extensions.contains(origin.extension);
        let mut names: Vec<&'static CStr> = wanted
            .iter()
            .filter(|(on, origin)| *on && is_needed(*origin))
            .map(|(_, origin)| origin.extension)
            .collect();
        if features.shader_float16 && is_needed(FLOAT_CONTROLS) {
            names.push(FLOAT_CONTROLS.extension);
        }
        // A device that is only a portability implementation must have this one enabled.
        if self.extensions.contains(khr::portability_subset::NAME) {
            names.push(khr::portability_subset::NAME);
        }
        names
    }
}

/// The Vulkan structs that hold the feature bits.
#[derive(Default)]
pub(super) struct FeatureChain {
    core: vk::PhysicalDeviceFeatures,
    storage_16bit: vk::PhysicalDevice16BitStorageFeatures<'static>,
    storage_8bit: vk::PhysicalDevice8BitStorageFeatures<'static>,
    float16_int8: vk::PhysicalDeviceShaderFloat16Int8Features<'static>,
    device_address: vk::PhysicalDeviceBufferDeviceAddressFeatures<'static>,
    dot_product: vk::PhysicalDeviceShaderIntegerDotProductFeatures<'static>,
}

impl FeatureChain {
    /// Reads the bits of a device; subgroup operations are properties, and stay false here.
    pub(super) fn read(
        instance: &ash::Instance,
        physical: vk::PhysicalDevice,
        support: &Support,
    ) -> Features {
        let mut chain = FeatureChain::default();
        let mut root = vk::PhysicalDeviceFeatures2::default().push_next(&mut chain.storage_16bit);
        if support.has(STORAGE_8BIT) {
            root = root.push_next(&mut chain.storage_8bit);
        }
        if support.has(FLOAT16_INT8) {
            root = root.push_next(&mut chain.float16_int8);
        }
        if support.has(DEVICE_ADDRESS) {
            root = root.push_next(&mut chain.device_address);
        }
        if support.has(DOT_PRODUCT) {
            root = root.push_next(&mut chain.dot_product);
        }
        // SAFETY: `physical` belongs to `instance`, and every struct in the chain is known to the device.
        unsafe { instance.get_physical_device_features2(physical, &mut root) };
        let core = root.features;
        Features {
            storage_16bit: chain.storage_16bit.storage_buffer16_bit_access == vk::TRUE,
            storage_8bit: chain.storage_8bit.storage_buffer8_bit_access == vk::TRUE,
            shader_float16: chain.float16_int8.shader_float16 == vk::TRUE,
            shader_int8: chain.float16_int8.shader_int8 == vk::TRUE,
            shader_int16: core.shader_int16 == vk::TRUE,
            shader_int64: core.shader_int64 == vk::TRUE,
            buffer_device_address: chain.device_address.buffer_device_address == vk::TRUE,
            integer_dot_product: chain.dot_product.shader_integer_dot_product == vk::TRUE,
            subgroup_arithmetic: false,
            subgroup_shuffle: false,
        }
    }

    /// The chain that enables exactly `features`.
    pub(super) fn enabling(features: &Features) -> FeatureChain {
        FeatureChain {
            core: vk::PhysicalDeviceFeatures::default()
                .shader_int16(features.shader_int16)
                .shader_int64(features.shader_int64),
            storage_16bit: vk::PhysicalDevice16BitStorageFeatures::default()
                .storage_buffer16_bit_access(features.storage_16bit),
            storage_8bit: vk::PhysicalDevice8BitStorageFeatures::default()
                .storage_buffer8_bit_access(features.storage_8bit),
            float16_int8: vk::PhysicalDeviceShaderFloat16Int8Features::default()
                .shader_float16(features.shader_float16)
                .shader_int8(features.shader_int8),
            device_address: vk::PhysicalDeviceBufferDeviceAddressFeatures::default()
                .buffer_device_address(features.buffer_device_address),
            dot_product: vk::PhysicalDeviceShaderIntegerDotProductFeatures::default()
                .shader_integer_dot_product(features.integer_dot_product),
        }
    }

    /// Adds to `info` the structs that enable something.
    pub(super) fn push_to<'a>(&'a mut self, mut info: vk::DeviceCreateInfo<'a>) -> vk::DeviceCreateInfo<'a> {
        info = info.enabled_features(&self.core);
        if self.storage_16bit.storage_buffer16_bit_access == vk::TRUE {
            info = info.push_next(&mut self.storage_16bit);
        }
        if self.storage_8bit.storage_buffer8_bit_access == vk::TRUE {
            info = info.push_next(&mut self.storage_8bit);
        }
        if self.float16_int8.shader_float16 == vk::TRUE || self.float16_int8.shader_int8 == vk::TRUE {
            info = info.push_next(&mut self.float16_int8);
        }
        if self.device_address.buffer_device_address == vk::TRUE {
            info = info.push_next(&mut self.device_address);
        }
        if self.dot_product.shader_integer_dot_product == vk::TRUE {
            info = info.push_next(&mut self.dot_product);
        }
        info
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn support(api_version: u32, names: &[&CStr]) -> Support {
        Support { api_version, extensions: names.iter().map(|&name| name.to_owned()).collect() }
    }

    #[test]
    fn what_is_core_needs_no_extension() {
        assert!(support(vk::API_VERSION_1_3, &[]).extensions_for(&Features::ALL).is_empty());
    }

    #[test]
    fn before_core_only_extensions_of_wanted_features_are_enabled() {
        let names = [khr::_8bit_storage::NAME, khr::buffer_device_address::NAME];
        let support = support(vk::API_VERSION_1_1, &names);
        let wanted = Features { storage_8bit: true, ..Features::default() };
        assert_eq!(support.extensions_for(&wanted), [khr::_8bit_storage::NAME]);
        assert!(support.has(STORAGE_8BIT) && !support.has(DOT_PRODUCT));
    }

    #[test]
    fn a_portability_device_has_its_subset_enabled() {
        let support = support(vk::API_VERSION_1_3, &[khr::portability_subset::NAME]);
        assert_eq!(support.extensions_for(&Features::default()), [khr::portability_subset::NAME]);
    }

    #[test]
    fn masked_features_are_off() {
        let left = Features::ALL.without(&Features { storage_8bit: true, ..Features::default() });
        assert!(!left.storage_8bit && left.storage_16bit);
        assert_eq!(Features::ALL.without(&Features::ALL), Features::default());
    }
}
