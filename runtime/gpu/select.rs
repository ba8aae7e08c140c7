//! Chooses a device: a pure function over descriptions, so that it is tested without Vulkan.

use std::fmt;

use super::error::{GpuError, GpuResult};

/// What kind of hardware a device is, in order of preference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DeviceKind {
    /// A GPU with its own memory.
    Discrete,
    /// A GPU that shares memory with the CPU, as on phones.
    Integrated,
    /// A GPU of the host, seen from a virtual machine.
    Virtual,
    /// A CPU that runs Vulkan in software (lavapipe, SwiftShader).
    Cpu,
    /// Anything else.
    Other,
}

impl DeviceKind {
    /// The word for it in listings.
    pub fn as_str(self) -> &'static str {
        match self {
            DeviceKind::Discrete => "discrete",
            DeviceKind::Integrated => "integrated",
            DeviceKind::Virtual => "virtual",
            DeviceKind::Cpu => "cpu",
            DeviceKind::Other => "other",
        }
    }
}

/// What identifies a device, as read from its driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceDescription {
    /// Position in the driver's list; what [`DeviceChoice::Index`] means.
    pub index: usize,
    /// The device's name.
    pub name: String,
    /// Kind of hardware.
    pub kind: DeviceKind,
    /// Unique id of the device, all zero if the driver has none.
    pub uuid: [u8; 16],
    /// PCI or Khronos vendor id.
    pub vendor_id: u32,
    /// Device id within the vendor's.
    pub device_id: u32,
    /// Name of the driver (`llvmpipe`, `Qualcomm Technologies Inc. Adreno Vulkan Driver`).
    pub driver_name: String,
    /// The driver's own description of its version.
    pub driver_info: String,
    /// The driver's version as the raw number; its encoding is the vendor's.
    pub driver_version: u32,
    /// Vulkan version: major, minor, patch.
    pub api_version: (u32, u32, u32),
}

impl DeviceDescription {
    /// The device's id as text, as [`DeviceChoice::parse`] reads it.
    pub fn uuid_text(&self) -> String {
        let hex: String = self.uuid.iter().map(|byte| format!("{byte:02x}")).collect();
        let at = |from: usize, to: usize| hex.get(from..to).unwrap_or_default();
        format!("{}-{}-{}-{}-{}", at(0, 8), at(8, 12), at(12, 16), at(16, 20), at(20, 32))
    }
}

impl fmt::Display for DeviceDescription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let driver = format!("{} {}", self.driver_name, self.driver_info);
        write!(f, "{}: {} ({}, {})", self.index, self.name, self.kind.as_str(), driver.trim())
    }
}

/// Which device to open.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum DeviceChoice {
    /// Discrete before integrated before virtual before CPU; the first of its kind.
    #[default]
    Best,
    /// By position in the list.
    Index(usize),
    /// By a part of the name, letter case ignored.
    Name(String),
    /// By unique id.
    Uuid([u8; 16]),
}

impl DeviceChoice {
    /// Reads a choice: digits are an index, 32 hex digits (dashes allowed) a unique id, else part of a name.
    pub fn parse(text: &str) -> DeviceChoice {
        let text = text.trim();
        if text.is_empty() {
            return DeviceChoice::Best;
        }
        if let Some(uuid) = parse_uuid(text) {
            return DeviceChoice::Uuid(uuid);
        }
        match text.parse() {
            Ok(index) => DeviceChoice::Index(index),
            Err(_) => DeviceChoice::Name(text.to_owned()),
        }
    }

    fn matches(&self, device: &DeviceDescription) -> bool {
        match self {
            DeviceChoice::Best => true,
            DeviceChoice::Index(index) => device.index == *index,
            DeviceChoice::Name(part) => device.name.to_lowercase().contains(&part.to_lowercase()),
            DeviceChoice::Uuid(uuid) => device.uuid == *uuid,
        }
    }
}

impl fmt::Display for DeviceChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DeviceChoice::Best => write!(f, "the default choice"),
            DeviceChoice::Index(index) => write!(f, "index {index}"),
            DeviceChoice::Name(part) => write!(f, "the name `{part}`"),
            DeviceChoice::Uuid(uuid) => {
                write!(f, "the UUID ")?;
                uuid.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
        }
    }
}

fn parse_uuid(text: &str) -> Option<[u8; 16]> {
    let hex: Vec<u32> = text.chars().filter(|&c| c != '-').map(|c| c.to_digit(16)).collect::<Option<_>>()?;
    if hex.len() != 32 {
        return None;
    }
    let bytes: Vec<u8> =
        hex.chunks(2).filter_map(|pair| u8::try_from(pair.first()? * 16 + pair.last()?).ok()).collect();
    bytes.try_into().ok()
}

/// The device that `choice` means: among those that match, the best kind, then the first.
///
/// # Errors
/// [`GpuError::NoDevice`] when there are none; [`GpuError::UnknownDevice`], with the list, when none matches.
pub fn select<'a>(
    devices: &'a [DeviceDescription],
    choice: &DeviceChoice,
) -> GpuResult<&'a DeviceDescription> {
    if devices.is_empty() {
        return Err(GpuError::NoDevice);
    }
    let matching = devices.iter().filter(|device| choice.matches(device));
    let chosen =
        matching.min_by_key(|device| (device.kind, device.index)).ok_or_else(|| GpuError::UnknownDevice {
            choice: choice.to_string(),
            devices: devices.iter().map(ToString::to_string).collect(),
        })?;
    if chosen.kind == DeviceKind::Cpu && *choice == DeviceChoice::Best {
        log::warn!("no GPU found: running on the CPU device `{}`, which is slow", chosen.name);
    }
    Ok(chosen)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn devices(kinds: &[DeviceKind]) -> Vec<DeviceDescription> {
        let describe = |(index, &kind): (usize, &DeviceKind)| DeviceDescription {
            index,
            name: format!("Mock {} {index}", kind.as_str()),
            kind,
            uuid: [index as u8 + 1; 16],
            vendor_id: 1,
            device_id: 2,
            driver_name: "mock".into(),
            driver_info: "1.0".into(),
            driver_version: 1,
            api_version: (1, 1, 0),
        };
        kinds.iter().enumerate().map(describe).collect()
    }

    fn chosen(kinds: &[DeviceKind], choice: &str) -> usize {
        select(&devices(kinds), &DeviceChoice::parse(choice)).unwrap().index
    }

    use DeviceKind::{Cpu, Discrete, Integrated, Virtual};

    #[test]
    fn the_default_prefers_real_gpus() {
        assert_eq!(chosen(&[Cpu, Integrated], ""), 1);
        assert_eq!(chosen(&[Integrated, Discrete], ""), 1);
        assert_eq!(chosen(&[Cpu, Virtual], ""), 1);
        assert_eq!(chosen(&[Cpu], ""), 0);
        assert_eq!(chosen(&[Discrete, Discrete], ""), 0);
        assert_eq!(select(&[], &DeviceChoice::Best), Err(GpuError::NoDevice));
    }

    #[test]
    fn a_choice_is_an_index_a_name_or_a_uuid() {
        assert_eq!(chosen(&[Discrete, Cpu], "1"), 1);
        assert_eq!(chosen(&[Discrete, Cpu], "mock CPU"), 1);
        assert_eq!(chosen(&[Discrete, Cpu], "02020202-0202-0202-0202-020202020202"), 1);
        assert_eq!(chosen(&[Cpu, Discrete], "mock"), 1, "the best of several matches");
    }

    #[test]
    fn the_text_of_a_uuid_reads_back() {
        let device = devices(&[Cpu]).remove(0);
        assert_eq!(DeviceChoice::parse(&device.uuid_text()), DeviceChoice::Uuid(device.uuid));
    }

    #[test]
    fn an_unknown_choice_lists_the_devices() {
        for choice in ["7", "radeon", "ff020202-0202-0202-0202-020202020202"] {
            let error = select(&devices(&[Discrete, Cpu]), &DeviceChoice::parse(choice)).unwrap_err();
            let text = error.to_string();
            assert!(text.contains("Mock discrete 0") && text.contains("Mock cpu 1"), "{text}");
        }
    }
}
