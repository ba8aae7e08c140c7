//! Recording, submission and memory: results, ordering, limits, lifetimes.

use std::time::Duration;

use vkdelegate::gpu::{
    BufferBinding, BufferDesc, CapsOverride, CopyRegion, DispatchDesc, Gpu, GpuError, GpuOptions,
    RecorderDesc, Scope, StagingDirection, TexelFormat,
};
use vkdelegate::shader::Access;

use crate::support::*;

fn whole(len_bytes: u64) -> [CopyRegion; 1] {
    [CopyRegion { src_offset_bytes: 0, dst_offset_bytes: 0, len_bytes }]
}

#[test]
fn bytes_survive_a_round_trip() {
    with_gpu(validated(), |gpu| {
        let data: Vec<u8> = (0..4096u32).map(|i| (i * 31) as u8).collect();
        let upload = staging(gpu, StagingDirection::Upload, 4096);
        let readback = staging(gpu, StagingDirection::Readback, 4096);
        let buffer = device_buffer(gpu, "data", 4096);
        upload.write(0, &data).unwrap();
        let recording = record(gpu, false, |recorder| {
            recorder.copy(&upload, &buffer, &whole(4096)).unwrap();
            recorder.barrier(Scope::TRANSFER, Scope::TRANSFER);
            recorder.fill(&buffer, 100, 8, 0x0102_0304).unwrap();
            recorder.barrier(Scope::TRANSFER, Scope::TRANSFER);
            recorder.copy(&buffer, &readback, &whole(4096)).unwrap();
        });
        run(gpu, &recording);
        let mut expected = data;
        expected[100..108].copy_from_slice(&[4, 3, 2, 1, 4, 3, 2, 1]);
        readback.read_with(0, 4096, |bytes| assert_eq!(bytes, expected)).unwrap();
    });
}

#[test]
fn a_kernel_runs_with_every_access_and_again_when_resubmitted() {
    with_gpu(validated(), |gpu| {
        for access in accesses(gpu) {
            let kernel = CopyKernel::new(gpu, access);
            let (x, y) = (device_buffer(gpu, "x", 400), device_buffer(gpu, "y", 400));
            let upload = staging(gpu, StagingDirection::Upload, 400);
            let readback = staging(gpu, StagingDirection::Readback, 400);
            let recording = record(gpu, false, |recorder| {
                recorder.copy(&upload, &x, &whole(400)).unwrap();
                recorder.barrier(Scope::TRANSFER, Scope::COMPUTE);
                kernel.dispatch(recorder, &x, &y, 100);
                recorder.barrier(Scope::COMPUTE, Scope::TRANSFER);
                recorder.copy(&y, &readback, &whole(400)).unwrap();
            });
            for round in 0..3u32 {
                let words: Vec<u32> = (0..100).map(|i| i * 7 + round).collect();
                let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
                upload.write(0, &bytes).unwrap();
                run(gpu, &recording);
                assert_eq!(read_u32(&readback), words, "{access}, round {round}");
            }
            assert_eq!(gpu.counters().descriptor_sets, if access == Access::Ssbo { 1 } else { 0 });
        }
    });
}

#[test]
fn recordings_see_what_earlier_ones_wrote_without_a_wait_between() {
    with_gpu(validated(), |gpu| {
        let kernel = CopyKernel::new(gpu, Access::Ssbo);
        let (x, y) = (device_buffer(gpu, "x", 256), device_buffer(gpu, "y", 256));
        let readback = staging(gpu, StagingDirection::Readback, 256);
        let fill = record(gpu, false, |recorder| recorder.fill(&x, 0, 256, 42).unwrap());
        let copy = record(gpu, false, |recorder| kernel.dispatch(recorder, &x, &y, 64));
        let read = record(gpu, false, |recorder| recorder.copy(&y, &readback, &whole(256)).unwrap());
        let pending: Vec<_> = [&fill, &copy, &read].map(|recording| gpu.submit(recording).unwrap()).into();
        for mut submission in pending {
            submission.wait(PATIENCE).unwrap();
        }
        assert_eq!(read_u32(&readback), [42; 64]);
    });
}

#[test]
fn a_missing_barrier_is_caught_by_synchronization_validation() {
    let gpu = Gpu::open(validated()).unwrap();
    let log = gpu.validation_log();
    let kernel = CopyKernel::new(&gpu, Access::Ssbo);
    let buffers = [1, 2, 3].map(|i| device_buffer(&gpu, &format!("buffer {i}"), 256));
    let chain = |has_barrier: bool| {
        let recording = record(&gpu, false, |recorder| {
            recorder.fill(&buffers[0], 0, 256, 1).unwrap();
            recorder.barrier(Scope::TRANSFER, Scope::COMPUTE);
            kernel.dispatch(recorder, &buffers[0], &buffers[1], 64);
            if has_barrier {
                recorder.barrier(Scope::COMPUTE, Scope::COMPUTE);
            }
            kernel.dispatch(recorder, &buffers[1], &buffers[2], 64);
        });
        run(&gpu, &recording);
    };
    chain(true);
    assert_silent(&log);
    chain(false);
    let messages = log.messages();
    assert!(messages.iter().any(|message| message.contains("READ_AFTER_WRITE")), "{messages:?}");
}

#[test]
fn each_command_is_timed_under_its_label() {
    with_gpu(validated(), |gpu| {
        let kernel = CopyKernel::new(gpu, Access::Ssbo);
        let (x, y) = (device_buffer(gpu, "x", 1 << 20), device_buffer(gpu, "y", 1 << 20));
        let recording = record(gpu, true, |recorder| {
            recorder.fill(&x, 0, 1 << 20, 3).unwrap();
            for _ in 0..300 {
                recorder.barrier(Scope::COMPUTE | Scope::TRANSFER, Scope::COMPUTE);
                kernel.dispatch(recorder, &x, &y, 64);
            }
        });
        assert!(recording.timings().is_err(), "no times before a run");
        run(gpu, &recording);
        let timings = recording.timings().unwrap();
        assert!(gpu.caps().timestamps.is_some());
        assert_eq!(timings.len(), 301);
        assert_eq!((timings[0].label.as_str(), timings[300].label.as_str()), ("fill x", "copy words"));
        let total_ns: f64 = timings.iter().map(|timing| timing.gpu_ns).sum();
        assert!(total_ns > 0.0 && total_ns < 60e9, "{total_ns}");
        let untimed = record(gpu, false, |recorder| recorder.fill(&x, 0, 4, 3).unwrap());
        run(gpu, &untimed);
        assert_eq!(untimed.timings().unwrap(), []);
    });
}

#[test]
fn pending_work_shuts_the_host_and_a_second_submission_out() {
    with_gpu(validated(), |gpu| {
        let upload = staging(gpu, StagingDirection::Upload, 64);
        let buffer = device_buffer(gpu, "data", 64);
        let recording = record(gpu, false, |recorder| recorder.copy(&upload, &buffer, &whole(64)).unwrap());
        let mut submission = gpu.submit(&recording).unwrap();
        assert!(matches!(upload.write(0, &[1]), Err(GpuError::InvalidUse { .. })));
        assert!(matches!(gpu.submit(&recording), Err(GpuError::InvalidUse { .. })));
        submission.wait(PATIENCE).unwrap();
        submission.wait(PATIENCE).unwrap();
        upload.write(0, &[1]).unwrap();
        let refused = upload.write_with(0, 4, |_| gpu.submit(&recording).is_err()).unwrap();
        assert!(refused, "submitted while the host writes");
        run(gpu, &recording);
    });
}

#[test]
fn a_wait_times_out_and_may_be_repeated() {
    with_gpu(validated(), |gpu| {
        const LEN_BYTES: u64 = 64 << 20;
        let buffer = device_buffer(gpu, "large", LEN_BYTES);
        let readback = staging(gpu, StagingDirection::Readback, 64);
        let recording = record(gpu, false, |recorder| {
            for value in 0..32 {
                recorder.fill(&buffer, 0, LEN_BYTES, value).unwrap();
                recorder.barrier(Scope::TRANSFER, Scope::TRANSFER);
            }
            recorder.copy(&buffer, &readback, &whole(64)).unwrap();
        });
        let timeout = Duration::from_millis(1);
        let mut submission = gpu.submit(&recording).unwrap();
        assert_eq!(submission.wait(timeout), Err(GpuError::Timeout(timeout)));
        submission.wait(PATIENCE).unwrap();
        assert_eq!(read_u32(&readback), [31; 16]);
        drop(gpu.submit(&recording).unwrap());
        assert_eq!(read_u32(&readback), [31; 16], "dropping a submission waits for it");
    });
}

#[test]
fn wrong_ranges_and_shapes_are_errors_and_never_recorded() {
    with_gpu(validated(), |gpu| {
        let kernel = CopyKernel::new(gpu, Access::Ssbo);
        let buffer = device_buffer(gpu, "data", 256);
        let recording = record(gpu, false, |recorder| {
            let mut dispatch = |offset_bytes, size_bytes, push: &[u8], groups, slots| {
                let bindings = [BufferBinding { buffer: &buffer, offset_bytes, size_bytes, texels: None }; 2];
                recorder.dispatch(&DispatchDesc {
                    label: "node",
                    pipeline: &kernel.pipeline,
                    bindings: &bindings[..slots],
                    push,
                    groups,
                })
            };
            let push = kernel.push(&buffer, &buffer, 0);
            assert!(dispatch(0, 260, &push, [1; 3], 2).is_err(), "beyond the buffer");
            assert!(dispatch(u64::MAX, 4, &push, [1; 3], 2).is_err(), "overflowing");
            assert!(dispatch(4, 4, &push, [1; 3], 2).is_err(), "misaligned");
            assert!(dispatch(0, 0, &push, [1; 3], 2).is_err(), "empty");
            assert!(dispatch(0, 256, &push[4..], [1; 3], 2).is_err(), "too few push constants");
            assert!(dispatch(0, 256, &push, [1; 3], 1).is_err(), "too few buffers");
            assert!(matches!(
                dispatch(0, 256, &push, [1, u32::MAX, 1], 2),
                Err(GpuError::LimitExceeded { requested: 0xffff_ffff, .. })
            ));
            dispatch(0, 256, &push, [0, 1, 1], 2).unwrap();
            assert!(recorder.fill(&buffer, 0, 260, 0).is_err());
            assert!(recorder.fill(&buffer, 2, 4, 0).is_err());
            let overlapping = CopyRegion { src_offset_bytes: 0, dst_offset_bytes: 4, len_bytes: 8 };
            assert!(recorder.copy(&buffer, &buffer, &[overlapping]).is_err());
            assert!(recorder.copy(&buffer, &buffer, &whole(257)).is_err());
            recorder.copy(&buffer, &buffer, &whole(0)).unwrap();
        });
        run(gpu, &recording);
        assert_eq!(gpu.counters().descriptor_sets, 0);
        assert!(gpu.create_buffer(&BufferDesc { name: "none", size_bytes: 0 }).is_err());
        let huge = gpu.create_buffer(&BufferDesc { name: "huge", size_bytes: 1 << 50 });
        assert!(
            matches!(huge, Err(GpuError::LimitExceeded { requested: 0x4_0000_0000_0000, .. })),
            "{huge:?}"
        );
        let upload = staging(gpu, StagingDirection::Upload, 16);
        assert!(upload.write(15, &[1, 2]).is_err());
        assert!(upload.write(u64::MAX, &[1]).is_err());
    });
}

/// Halves come as floats from texels, which a fill just wrote and a second dispatch writes over.
#[test]
fn texels_are_read_as_floats_and_their_views_freed() {
    with_gpu(validated(), |gpu| {
        let kernel = TexelKernel::new(gpu);
        let [a, b, y] = ["a", "b", "y"].map(|name| device_buffer(gpu, name, 1024));
        let readback = staging(gpu, StagingDirection::Readback, 8 * 4 * 4);
        let recording = record(gpu, false, |recorder| {
            recorder.fill(&a, 0, 1024, 0x3f80_0000).unwrap(); // 1
            recorder.fill(&b, 0, 1024, 0x4000_0000).unwrap(); // 2
            recorder.barrier(Scope::TRANSFER, Scope::COMPUTE);
            kernel.dispatch(recorder, [&a, &b, &y]).unwrap();
            recorder.barrier(Scope::COMPUTE, Scope::COMPUTE);
            kernel.dispatch(recorder, [&y, &b, &a]).unwrap();
            recorder.barrier(Scope::COMPUTE, Scope::TRANSFER);
            recorder.copy(&a, &readback, &whole(8 * 4 * 4)).unwrap();
        });
        assert_eq!(gpu.counters().buffer_views, 4);
        run(gpu, &recording);
        assert_eq!(read_u32(&readback), [64f32.to_bits(); 32], "8 times 8");
        drop(recording);
        assert_eq!(gpu.counters().buffer_views, 0);
    });
}

#[test]
fn a_binding_of_another_kind_or_of_part_of_a_texel_is_an_error() {
    with_gpu(validated(), |gpu| {
        let kernel = TexelKernel::new(gpu);
        let buffer = device_buffer(gpu, "data", 1024);
        let y = device_buffer(gpu, "y", 1024);
        let mut recorder = gpu.record(&RecorderDesc { name: "wrong", timestamps: false }).unwrap();
        let mut wrong = |texels, offset_bytes, size_bytes| {
            let first = BufferBinding { buffer: &buffer, offset_bytes, size_bytes, texels };
            kernel.dispatch_bound(&mut recorder, first, [&buffer, &buffer, &y]).unwrap_err().to_string()
        };
        assert!(wrong(None, 0, 1024).contains("Texels"));
        assert!(wrong(Some(TexelFormat::Float4), 0, 1016).contains("whole"));
        assert!(wrong(Some(TexelFormat::Half4), 4, 1016).contains("multiple"));
        assert_eq!(gpu.counters().buffer_views, 0);
    });
}

#[test]
fn forced_limits_reach_the_binding_checks() {
    let overrides = CapsOverride {
        min_storage_buffer_offset_alignment_bytes: Some(256),
        max_storage_buffer_range_bytes: Some(1024),
        ..CapsOverride::default()
    };
    with_gpu(GpuOptions { overrides, ..validated() }, |gpu| {
        let kernel = CopyKernel::new(gpu, Access::Ssbo);
        let buffer = device_buffer(gpu, "data", 4096);
        let other = device_buffer(gpu, "other", 4096);
        let mut recorder = gpu.record(&RecorderDesc { name: "limits", timestamps: false }).unwrap();
        let mut bind = |offset_bytes, size_bytes| {
            let binding = |buffer| BufferBinding { buffer, offset_bytes, size_bytes, texels: None };
            recorder.dispatch(&DispatchDesc {
                label: "node",
                pipeline: &kernel.pipeline,
                bindings: &[binding(&buffer), binding(&other)],
                push: &kernel.push(&buffer, &other, 1),
                groups: [1; 3],
            })
        };
        bind(256, 1024).unwrap();
        assert!(bind(64, 1024).is_err());
        assert!(matches!(bind(0, 1028), Err(GpuError::LimitExceeded { limit: 1024, .. })));
    });
}

#[test]
fn objects_may_be_dropped_in_any_order() {
    for order in 0..4 {
        let gpu = Gpu::open(validated()).unwrap();
        let log = gpu.validation_log();
        let kernel = CopyKernel::new(&gpu, Access::Ssbo);
        let (x, y) = (device_buffer(&gpu, "x", 256), device_buffer(&gpu, "y", 256));
        let recording = record(&gpu, true, |recorder| kernel.dispatch(recorder, &x, &y, 64));
        let submission = gpu.submit(&recording).unwrap();
        match order {
            0 => {
                drop(gpu);
                drop((kernel, x, y, recording));
                drop(submission);
            }
            1 => {
                drop((submission, recording));
                drop((y, x, kernel));
                drop(gpu);
            }
            2 => {
                drop((recording, x, gpu));
                drop(submission);
                drop((y, kernel));
            }
            _ => {
                drop((kernel, gpu));
                drop((submission, y, recording));
                drop(x);
            }
        }
        assert_silent(&log);
    }
}

#[test]
fn threads_share_a_device() {
    with_gpu(validated(), |gpu| {
        std::thread::scope(|scope| {
            for thread in 0..4u32 {
                scope.spawn(move || {
                    let kernel = CopyKernel::new(gpu, Access::Ssbo);
                    for round in 0..20 {
                        let (x, y) = (device_buffer(gpu, "x", 256), device_buffer(gpu, "y", 256));
                        let readback = staging(gpu, StagingDirection::Readback, 256);
                        let value = thread * 1000 + round;
                        let recording = record(gpu, false, |recorder| {
                            recorder.fill(&x, 0, 256, value).unwrap();
                            recorder.barrier(Scope::TRANSFER, Scope::COMPUTE);
                            kernel.dispatch(recorder, &x, &y, 64);
                            recorder.barrier(Scope::COMPUTE, Scope::TRANSFER);
                            recorder.copy(&y, &readback, &whole(256)).unwrap();
                        });
                        run(gpu, &recording);
                        assert_eq!(read_u32(&readback), [value; 64]);
                    }
                });
            }
        });
    });
}

#[test]
fn runs_leave_no_objects_behind() {
    with_gpu(validated(), |gpu| {
        let buffer = device_buffer(gpu, "data", 256);
        let recording = record(gpu, true, |recorder| recorder.fill(&buffer, 0, 256, 1).unwrap());
        run(gpu, &recording);
        let before = gpu.counters();
        for _ in 0..500 {
            run(gpu, &recording);
        }
        let after = gpu.counters();
        assert_eq!(after.submissions, before.submissions + 500);
        assert_eq!(
            (after.live_objects(), after.memory_blocks),
            (before.live_objects(), before.memory_blocks)
        );
        assert_eq!((after.recordings, after.allocations), (before.recordings, before.allocations));
    });
}
