//! Opens devices under validation, and holds each test to silence and to zero live objects.

use std::time::Duration;

use vkdelegate::gpu::{
    Buffer, BufferBinding, BufferDesc, DispatchDesc, Gpu, GpuOptions, Pipeline, PipelineDesc, Recorder,
    RecorderDesc, Recording, StagingBuffer, StagingDesc, StagingDirection, ValidationLog,
};
use vkdelegate::shader::{Access, Region, StorageId, kernels, spirv};

pub const PATIENCE: Duration = Duration::from_secs(60);

/// Options with core and synchronization validation.
pub fn validated() -> GpuOptions {
    GpuOptions { validation: true, sync_validation: true, ..GpuOptions::default() }
}

/// Runs `test` on a device, closes it, and asserts that nothing was left and validation had nothing to say.
pub fn with_gpu(options: GpuOptions, test: impl FnOnce(&Gpu)) {
    let gpu = Gpu::open(options).expect("a Vulkan device and the validation layer are needed");
    test(&gpu);
    assert_eq!(gpu.counters().live_objects(), 0, "{:?}", gpu.counters());
    assert_eq!((gpu.memory_use().device_bytes, gpu.memory_use().host_bytes), (0, 0));
    close_silently(gpu);
}

/// Closes the last handle and asserts that validation had nothing to say, then or before.
pub fn close_silently(gpu: Gpu) {
    let log = gpu.validation_log();
    drop(gpu);
    assert_silent(&log);
}

pub fn assert_silent(log: &ValidationLog) {
    let messages = log.messages();
    assert!(messages.is_empty(), "{}", messages.join("\n"));
}

pub fn device_buffer(gpu: &Gpu, name: &str, size_bytes: u64) -> Buffer {
    gpu.create_buffer(&BufferDesc { name, size_bytes }).unwrap()
}

pub fn staging(gpu: &Gpu, direction: StagingDirection, size_bytes: u64) -> StagingBuffer {
    let name = format!("{direction:?}");
    gpu.create_staging(&StagingDesc { name: &name, size_bytes, direction }).unwrap()
}

pub fn record(gpu: &Gpu, timestamps: bool, commands: impl FnOnce(&mut Recorder)) -> Recording {
    let mut recorder = gpu.record(&RecorderDesc { name: "test", timestamps }).unwrap();
    commands(&mut recorder);
    recorder.end().unwrap()
}

pub fn run(gpu: &Gpu, recording: &Recording) {
    gpu.submit(recording).unwrap().wait(PATIENCE).unwrap();
}

pub fn read_u32(buffer: &StagingBuffer) -> Vec<u32> {
    let mut bytes = vec![0; buffer.buffer().size_bytes() as usize];
    buffer.read(0, &mut bytes).unwrap();
    bytes.chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect()
}

/// The ways in which kernels reach buffers on this device.
pub fn accesses(gpu: &Gpu) -> Vec<Access> {
    match gpu.caps().features.buffer_device_address {
        true => vec![Access::Ssbo, Access::Bda],
        false => vec![Access::Ssbo],
    }
}

/// The 32-bit copy kernel, used to copy whole ranges of words.
pub struct CopyKernel {
    pub pipeline: Pipeline,
    access: Access,
    push_bytes: usize,
    params_at_bytes: usize,
}

impl CopyKernel {
    pub fn new(gpu: &Gpu, access: Access) -> CopyKernel {
        CopyKernel::try_new(gpu, access).unwrap()
    }

    pub fn try_new(gpu: &Gpu, access: Access) -> vkdelegate::gpu::GpuResult<CopyKernel> {
        let kernel = kernels::copy::Axes { dtype: kernels::copy::Dtype::I32 }.kernel();
        let layout = kernel.info().unwrap().push(access).unwrap();
        let pipeline = gpu.create_pipeline(&PipelineDesc {
            name: &format!("copy {access}"),
            spirv: &spirv(kernel, access).unwrap(),
            spec: &[(1, 32)],
            push_bytes: layout.size_bytes,
            storage_buffers: if access == Access::Ssbo { 2 } else { 0 },
        })?;
        let (push_bytes, params_at_bytes) = (layout.size_bytes as usize, layout.params_at_bytes as usize);
        Ok(CopyKernel { pipeline, access, push_bytes, params_at_bytes })
    }

    /// Records a copy of `words` words from the start of `x` to the start of `y`.
    pub fn dispatch(&self, recorder: &mut Recorder, x: &Buffer, y: &Buffer, words: u32) {
        let push = self.push(x, y, words);
        let binding = |buffer| BufferBinding { buffer, offset_bytes: 0, size_bytes: u64::from(words) * 4 };
        let bindings = [binding(x), binding(y)];
        recorder.keep(x);
        recorder.keep(y);
        recorder
            .dispatch(&DispatchDesc {
                label: "copy words",
                pipeline: &self.pipeline,
                bindings: if self.access == Access::Ssbo { &bindings } else { &[] },
                push: &push,
                groups: [words.div_ceil(32), 1, 1],
            })
            .unwrap();
    }

    pub fn push(&self, x: &Buffer, y: &Buffer, words: u32) -> Vec<u8> {
        let mut push = vec![0; self.push_bytes];
        if self.access == Access::Bda {
            push[..8].copy_from_slice(&x.device_address().unwrap().to_le_bytes());
            push[8..16].copy_from_slice(&y.device_address().unwrap().to_le_bytes());
        }
        let mut params = kernels::copy::Params { n_elems: words, sizes: [1; 8], ..Default::default() };
        (params.sizes[7], params.x_strides[7], params.y_strides[7]) = (words, 1, 1);
        let (axes, spec) =
            (kernels::copy::Axes { dtype: kernels::copy::Dtype::I32 }, kernels::copy::Spec::default());
        let region = Region { storage: StorageId(0), offset_bytes: 0, len_bytes: 0, element_bytes: 4 };
        let operands = kernels::copy::Operands { x: region, y: region };
        let bytes = kernels::copy::dispatch(axes, spec, operands, params, [1; 3], "copy words").params;
        push[self.params_at_bytes..][..bytes.len()].copy_from_slice(&bytes);
        push
    }
}
