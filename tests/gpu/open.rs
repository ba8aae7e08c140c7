//! Opening devices: choice, typed errors, forced weakness, the pipeline cache on disk.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use vkdelegate::gpu::{
    Buffer, CapsOverride, DeviceChoice, Features, Gpu, GpuError, GpuOptions, Hooks, Pipeline, Recorder,
    Recording, Submission,
};
use vkdelegate::shader::Access;

use crate::support::*;

#[test]
fn listed_devices_can_be_opened_by_index_name_and_uuid() {
    let devices = Gpu::list(&validated()).unwrap();
    assert!(!devices.is_empty());
    let wanted = &devices.last().unwrap().description;
    let choices = [
        DeviceChoice::Index(wanted.index),
        DeviceChoice::Name(wanted.name.to_uppercase()),
        DeviceChoice::parse(&wanted.uuid_text()),
    ];
    for choice in choices {
        with_gpu(GpuOptions { device: choice, ..validated() }, |gpu| {
            assert_eq!(gpu.info(), devices.last().unwrap());
        });
    }
    let nothing = GpuOptions { device: DeviceChoice::Name("no such device".into()), ..GpuOptions::default() };
    let error = Gpu::open(nothing).unwrap_err();
    assert!(error.to_string().contains(&wanted.name), "{error}");
}

#[test]
fn limits_are_read_and_plausible() {
    with_gpu(validated(), |gpu| {
        let limits = gpu.caps().limits;
        assert!(limits.max_storage_buffer_range_bytes >= 1 << 27);
        assert!(limits.min_storage_buffer_offset_alignment_bytes.is_power_of_two());
        assert!(limits.max_memory_allocation_bytes >= 1 << 30 && limits.max_buffer_bytes >= 1 << 30);
        assert!(limits.max_push_constant_bytes >= 128 && limits.max_storage_buffers >= 4);
        assert!(limits.max_group_invocations >= 128 && limits.max_shared_memory_bytes >= 16 << 10);
        assert!(limits.max_group_count.iter().all(|&count| count >= 65535));
        assert!(limits.device_heap_bytes > 0 && gpu.caps().subgroup_size >= 1);
        if gpu.info().description.driver_name == "llvmpipe" {
            let features = gpu.caps().features;
            assert!(features.storage_16bit && features.shader_float16 && features.buffer_device_address);
        }
    });
}

#[test]
fn a_device_at_the_minimum_of_the_standard_works() {
    with_gpu(GpuOptions { overrides: CapsOverride::spec_minimum(), ..validated() }, |gpu| {
        assert_eq!(gpu.caps().features, Features::default());
        assert_eq!(gpu.caps().limits.max_push_constant_bytes, 128);
        let buffer = device_buffer(gpu, "data", 64);
        assert_eq!(buffer.device_address(), None);
        let other = device_buffer(gpu, "other", 64);
        let kernel = CopyKernel::new(gpu, Access::Ssbo);
        run(gpu, &record(gpu, true, |recorder| kernel.dispatch(recorder, &buffer, &other, 16)));
    });
}

#[test]
fn refused_instances_and_devices_are_typed_errors() {
    let hooks = Hooks::default();
    let options = GpuOptions { hooks: hooks.clone(), ..validated() };
    hooks.fail_instance(1);
    assert!(matches!(Gpu::open(options.clone()), Err(GpuError::InstanceFailed { .. })));
    hooks.fail_device(1);
    assert!(matches!(Gpu::open(options.clone()), Err(GpuError::DeviceFailed { .. })));
    with_gpu(options, |_| ());
}

#[test]
fn an_absent_loader_is_a_typed_error() {
    let options =
        GpuOptions { loader_path: Some("/nonexistent/libvulkan.so".into()), ..GpuOptions::default() };
    assert!(matches!(Gpu::open(options), Err(GpuError::LoaderMissing { .. })));
}

/// Runs itself in a process whose loader sees no driver.
#[test]
fn an_absent_driver_is_a_typed_error_within_a_second() {
    const CHILD: &str = "VKDELEGATE_TEST_WITHOUT_DRIVER";
    if std::env::var_os(CHILD).is_some() {
        let started = Instant::now();
        let error = Gpu::open(GpuOptions::default()).unwrap_err();
        assert!(matches!(error, GpuError::NoDriver { .. } | GpuError::NoDevice), "{error:?}");
        assert!(error.to_string().contains("mesa-vulkan-drivers"));
        assert!(started.elapsed() < Duration::from_secs(1));
        return;
    }
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "open::an_absent_driver_is_a_typed_error_within_a_second"])
        .env(CHILD, "1")
        .env("VK_DRIVER_FILES", "/nonexistent/icd.json")
        .env("VK_ICD_FILENAMES", "/nonexistent/icd.json")
        .output()
        .unwrap();
    let output = String::from_utf8_lossy(&child.stdout);
    assert!(child.status.success() && output.contains("1 passed"), "{output}");
}

#[test]
fn objects_may_go_to_other_threads() {
    fn shared<T: Send + Sync>() {}
    shared::<Gpu>();
    shared::<Buffer>();
    shared::<Pipeline>();
    shared::<Recording>();
    shared::<Submission>();
    fn sent<T: Send>() {}
    sent::<Recorder>();
}

#[test]
fn a_device_can_be_opened_many_times() {
    for _ in 0..10 {
        with_gpu(validated(), |_| ());
    }
}

/// A folder of its own, removed when dropped.
struct TestFolder(PathBuf);

impl TestFolder {
    fn new(name: &str) -> TestFolder {
        TestFolder(std::env::temp_dir().join(format!("vkdelegate-{name}-{}", std::process::id())))
    }
}

impl Drop for TestFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn run_with_cache(folder: &Path) {
    with_gpu(GpuOptions { cache_dir: Some(folder.to_owned()), ..validated() }, |gpu| {
        let kernel = CopyKernel::new(gpu, Access::Ssbo);
        let (x, y) = (device_buffer(gpu, "x", 64), device_buffer(gpu, "y", 64));
        run(gpu, &record(gpu, false, |recorder| kernel.dispatch(recorder, &x, &y, 16)));
    });
}

fn only_file(folder: &Path) -> PathBuf {
    let files: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(files.len(), 1, "{files:?}");
    files[0].clone()
}

#[test]
fn a_damaged_pipeline_cache_is_rebuilt() {
    let folder = TestFolder::new("damaged-cache");
    run_with_cache(&folder.0);
    let path = only_file(&folder.0);
    let good = fs::read(&path).unwrap();
    let mut flipped = good.clone();
    *flipped.last_mut().unwrap() ^= 1;
    let random: Vec<u8> = (0..4096u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    for bad in [Vec::new(), vec![1, 2, 3], random, flipped] {
        fs::write(&path, &bad).unwrap();
        run_with_cache(&folder.0);
        assert_ne!(fs::read(&path).unwrap(), bad, "a damaged file of {} bytes was kept", bad.len());
    }
    run_with_cache(&folder.0);
    assert_eq!(only_file(&folder.0), path);
}

#[test]
fn a_cache_folder_that_cannot_be_written_does_no_harm() {
    let file = TestFolder::new("not-a-folder");
    fs::write(&file.0, "a file").unwrap();
    run_with_cache(&file.0);
    fs::remove_file(&file.0).unwrap();
}
