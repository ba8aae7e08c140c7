//! `devices`: every Vulkan device, its class, features and limits that matter, and its driver.

use anyhow::Result;
use serde_json::{Value as Json, json};
use vkdelegate::{DeviceInfo, Gpu, GpuOptions};

use crate::{Verdict, output};

#[derive(clap::Args)]
pub struct Args {
    /// Print one JSON document.
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args) -> Result<Verdict> {
    let devices = Gpu::devices(&GpuOptions::default())?;
    if args.json {
        output::print_json(&json!({ "devices": devices.iter().map(describe_json).collect::<Vec<_>>() }))?;
    } else {
        for device in &devices {
            output::print(&describe(device))?;
        }
    }
    Ok(Verdict::Passed)
}

fn version((major, minor, patch): (u32, u32, u32)) -> String {
    format!("{major}.{minor}.{patch}")
}

fn describe_json(device: &DeviceInfo) -> Json {
    let (description, caps) = (&device.description, &device.caps);
    let limits = &caps.limits;
    let features: serde_json::Map<String, Json> =
        caps.features.named().into_iter().map(|(name, on)| (name.to_string(), json!(on))).collect();
    json!({
        "index": description.index,
        "name": description.name,
        "kind": description.kind.as_str(),
        "class": caps.class.as_str(),
        "uuid": description.uuid_text(),
        "vendor_id": description.vendor_id,
        "device_id": description.device_id,
        "driver": description.driver_name,
        "driver_info": description.driver_info,
        "driver_version": description.driver_version,
        "vulkan": version(description.api_version),
        "features": features,
        "limits": {
            "max_storage_buffer_range_bytes": limits.max_storage_buffer_range_bytes,
            "min_storage_buffer_offset_alignment_bytes": limits.min_storage_buffer_offset_alignment_bytes,
            "max_texel_buffer_elems": limits.max_texel_buffer_elems,
            "min_texel_buffer_offset_alignment_bytes": limits.min_texel_buffer_offset_alignment_bytes,
            "max_memory_allocation_bytes": limits.max_memory_allocation_bytes,
            "max_buffer_bytes": limits.max_buffer_bytes,
            "max_group_count": limits.max_group_count,
            "max_group_invocations": limits.max_group_invocations,
            "max_shared_memory_bytes": limits.max_shared_memory_bytes,
            "max_push_constant_bytes": limits.max_push_constant_bytes,
            "max_storage_buffers": limits.max_storage_buffers,
            "device_heap_bytes": limits.device_heap_bytes,
        },
        "subgroup_size": caps.subgroup_size,
        "timestamps": caps.timestamps.is_some(),
    })
}

fn describe(device: &DeviceInfo) -> String {
    let (description, caps) = (&device.description, &device.caps);
    let limits = &caps.limits;
    let features: Vec<&str> =
        caps.features.named().into_iter().filter(|(_, on)| *on).map(|(name, _)| name).collect();
    [
        description.to_string(),
        format!("   class {}, Vulkan {}, uuid {}", caps.class.as_str(), version(description.api_version), description.uuid_text()),
        format!("   features: {}", if features.is_empty() { "none".to_string() } else { features.join(", ") }),
        format!(
            "   limits: storage range {}, buffer {}, {} invocations a group, shared memory {}, push constants {} B",
            output::bytes(limits.max_storage_buffer_range_bytes),
            output::bytes(limits.max_buffer_bytes),
            limits.max_group_invocations,
            output::bytes(limits.max_shared_memory_bytes.into()),
            limits.max_push_constant_bytes
        ),
    ]
    .join("\n")
}
