//! Injected faults: refused memory, refused pipelines, lost devices, memory that is not coherent.

use vkdelegate::gpu::{
    BufferDesc, CopyRegion, Gpu, GpuError, GpuOptions, GpuResult, Hooks, Scope, StagingDesc, StagingDirection,
};
use vkdelegate::shader::Access;

use crate::support::*;

fn with_hooks(test: impl FnOnce(&Gpu, &Hooks)) {
    let hooks = Hooks::default();
    with_gpu(GpuOptions { hooks: hooks.clone(), ..validated() }, |gpu| test(gpu, &hooks));
}

/// Fills, copies by kernel, reads back; four allocations and one pipeline.
fn small_job(gpu: &Gpu) -> GpuResult<Vec<u32>> {
    let kernel = CopyKernel::try_new(gpu, Access::Ssbo)?;
    let buffers = ["x", "y", "z"].map(|name| gpu.create_buffer(&BufferDesc { name, size_bytes: 256 }));
    let [x, y, _unused] = buffers;
    let (x, y) = (x?, y?);
    let desc = StagingDesc { name: "out", size_bytes: 256, direction: StagingDirection::Readback };
    let readback = gpu.create_staging(&desc)?;
    let recording = record(gpu, false, |recorder| {
        recorder.fill(&x, 0, 256, 5).unwrap();
        recorder.barrier(Scope::TRANSFER, Scope::COMPUTE);
        kernel.dispatch(recorder, &x, &y, 64);
        recorder.barrier(Scope::COMPUTE, Scope::TRANSFER);
        let region = CopyRegion { src_offset_bytes: 0, dst_offset_bytes: 0, len_bytes: 256 };
        recorder.copy(&y, &readback, &[region]).unwrap();
    });
    gpu.submit(&recording)?.wait(PATIENCE)?;
    Ok(read_u32(&readback))
}

#[test]
fn a_refused_allocation_is_an_error_and_leaks_nothing() {
    with_hooks(|gpu, hooks| {
        small_job(gpu).unwrap();
        let mut failures = 0;
        for n in 1..=5 {
            let before = gpu.counters();
            hooks.fail_allocation(n);
            match small_job(gpu) {
                Err(GpuError::OutOfMemory { requested_bytes: 256, heap, .. }) => {
                    assert_eq!(heap, if n == 4 { "host" } else { "device" });
                    failures += 1;
                }
                Err(other) => panic!("allocation {n}: {other}"),
                // The third buffer is not used, and there is no fifth.
                Ok(words) => assert!((n == 3 || n == 5) && words == [5; 64], "allocation {n}"),
            }
            hooks.fail_allocation(0);
            assert_eq!(gpu.counters().live_objects(), before.live_objects(), "allocation {n}");
            assert_eq!(small_job(gpu).unwrap(), [5; 64], "after allocation {n} failed");
        }
        assert_eq!(failures, 3);
    });
}

#[test]
fn a_refused_pipeline_names_the_kernel_and_the_device() {
    with_hooks(|gpu, hooks| {
        hooks.fail_pipeline(1);
        let Err(GpuError::PipelineFailed { name, device, .. }) =
            CopyKernel::try_new(gpu, Access::Ssbo).map(|_| ())
        else {
            panic!("the pipeline was made");
        };
        assert_eq!((name.as_str(), device.as_str()), ("copy ssbo", gpu.info().description.name.as_str()));
        assert_eq!(gpu.counters().live_objects(), 0);
        assert_eq!(small_job(gpu).unwrap(), [5; 64]);
    });
}

#[test]
fn a_lost_device_stays_lost_and_another_can_be_opened() {
    for at_submit in [true, false] {
        let hooks = Hooks::default();
        with_gpu(GpuOptions { hooks: hooks.clone(), ..validated() }, |gpu| {
            let readback = staging(gpu, StagingDirection::Readback, 64);
            let buffer = device_buffer(gpu, "data", 64);
            let recording = record(gpu, true, |recorder| recorder.fill(&buffer, 0, 64, 1).unwrap());
            run(gpu, &recording);
            match at_submit {
                true => hooks.lose_at_submit(1),
                false => hooks.lose_at_wait(1),
            }
            let lost = gpu.submit(&recording).and_then(|mut submission| submission.wait(PATIENCE));
            assert_eq!(lost, Err(GpuError::DeviceLost));
            assert!(gpu.is_lost());
            assert_eq!(gpu.submit(&recording).err(), Some(GpuError::DeviceLost));
            assert_eq!(readback.read(0, &mut [0; 4]), Err(GpuError::DeviceLost), "no stale bytes");
            assert_eq!(readback.write(0, &[0; 4]), Err(GpuError::DeviceLost));
            assert_eq!(recording.timings(), Err(GpuError::DeviceLost));
            assert_eq!(small_job(gpu), Err(GpuError::DeviceLost));
        });
        with_gpu(validated(), |gpu| assert_eq!(small_job(gpu).unwrap(), [5; 64]));
    }
}

#[test]
fn memory_that_is_not_coherent_is_flushed_and_invalidated() {
    with_hooks(|gpu, hooks| {
        hooks.force_non_coherent(true);
        let upload = staging(gpu, StagingDirection::Upload, 100);
        let readback = staging(gpu, StagingDirection::Readback, 100);
        let region = CopyRegion { src_offset_bytes: 0, dst_offset_bytes: 0, len_bytes: 100 };
        let recording = record(gpu, false, |recorder| recorder.copy(&upload, &readback, &[region]).unwrap());
        let data: Vec<u8> = (0..100).collect();
        upload.write(0, &data[..50]).unwrap();
        upload.write(50, &data[50..]).unwrap();
        run(gpu, &recording);
        let mut bytes = [0; 100];
        readback.read(0, &mut bytes).unwrap();
        assert_eq!(bytes, data[..]);
        assert_eq!((gpu.counters().flushes, gpu.counters().invalidations), (2, 1));
        hooks.force_non_coherent(false);
        readback.read(0, &mut bytes).unwrap();
        assert_eq!(gpu.counters().invalidations, 1);
    });
}
