//! Opens devices under validation, and holds each test to silence and to zero live objects.

use std::time::Duration;

use vkdelegate::gpu::{
    BindingKind, Buffer, BufferBinding, BufferDesc, DispatchDesc, Gpu, GpuOptions, GpuResult, Pipeline,
    PipelineDesc, Recorder, RecorderDesc, Recording, StagingDesc, StagingDirection, TexelFormat,
    ValidationLog,
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

pub fn staging(gpu: &Gpu, direction: StagingDirection, size_bytes: u64) -> Buffer {
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

pub fn read_u32(buffer: &Buffer) -> Vec<u32> {
    let mut bytes = vec![0; buffer.size_bytes() as usize];
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

    pub fn try_new(gpu: &Gpu, access: Access) -> GpuResult<CopyKernel> {
        let kernel = kernels::copy::Axes { dtype: kernels::copy::Dtype::I32 }.kernel();
        let layout = kernel.info().unwrap().push(access).unwrap();
        let pipeline = gpu.create_pipeline(&PipelineDesc {
            name: &format!("copy {access}"),
            spirv: &spirv(kernel, access).unwrap(),
            spec: &[(1, 32)],
            push_bytes: layout.size_bytes,
            bindings: if access == Access::Ssbo { &[BindingKind::Storage; 2] } else { &[] },
        })?;
        let (push_bytes, params_at_bytes) = (layout.size_bytes as usize, layout.params_at_bytes as usize);
        Ok(CopyKernel { pipeline, access, push_bytes, params_at_bytes })
    }

    /// Records a copy of `words` words from the start of `x` to the start of `y`.
    pub fn dispatch(&self, recorder: &mut Recorder, x: &Buffer, y: &Buffer, words: u32) {
        let push = self.push(x, y, words);
        let size_bytes = u64::from(words) * 4;
        let binding = |buffer| BufferBinding { buffer, offset_bytes: 0, size_bytes, texels: None };
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

/// A product of float32 matrices that are read as texels: 8 rows of 4 elements times 4 rows of 4.
pub struct TexelKernel {
    pipeline: Pipeline,
    push: Vec<u8>,
}

impl TexelKernel {
    pub fn new(gpu: &Gpu) -> TexelKernel {
        use kernels::matmul_texel::{Axes, Dtype, Operands, Out, Params, Spec, dispatch};
        let params = Params {
            m: 8,
            n: 4,
            k: 4,
            batch_1: 1,
            alpha: 1.0,
            a_strides: [0, 0, 4, 1],
            b_strides: [0, 0, 4, 4],
            y_strides: [0, 0, 4],
            ..Params::default()
        };
        let region = Region { storage: StorageId(0), offset_bytes: 0, len_bytes: 128, element_bytes: 4 };
        let operands = Operands { a: region, b: region, bias: region, y: region };
        let axes = Axes { dtype: Dtype::F32, out: Out::F32 };
        let dispatch = dispatch(axes, Spec::default(), operands, params, [1; 3], "texels");
        let layout = dispatch.kernel.info().unwrap().push(Access::Ssbo).unwrap();
        let (texels, storage) = (BindingKind::Texels, BindingKind::Storage);
        let pipeline = gpu.create_pipeline(&PipelineDesc {
            name: "texels",
            spirv: &spirv(dispatch.kernel, Access::Ssbo).unwrap(),
            spec: &dispatch.spec,
            push_bytes: layout.size_bytes,
            bindings: &[texels, texels, storage, storage],
        });
        let mut push = vec![0; layout.params_at_bytes as usize];
        push.extend(dispatch.params);
        push.resize(layout.size_bytes as usize, 0);
        TexelKernel { pipeline: pipeline.unwrap(), push }
    }

    /// Records `y = a b`.
    pub fn dispatch(&self, recorder: &mut Recorder, operands: [&Buffer; 3]) -> GpuResult<()> {
        let texels = Some(TexelFormat::Float4);
        let a = BufferBinding { buffer: operands[0], offset_bytes: 0, size_bytes: 128, texels };
        self.dispatch_bound(recorder, a, operands)
    }

    /// The same with another binding in the slot of `a`.
    pub fn dispatch_bound(
        &self,
        recorder: &mut Recorder,
        a: BufferBinding<'_>,
        [_, b, y]: [&Buffer; 3],
    ) -> GpuResult<()> {
        let bound =
            |buffer, size_bytes, texels| BufferBinding { buffer, offset_bytes: 0, size_bytes, texels };
        let bindings = [a, bound(b, 64, Some(TexelFormat::Float4)), bound(b, 64, None), bound(y, 128, None)];
        recorder.dispatch(&DispatchDesc {
            label: "texels",
            pipeline: &self.pipeline,
            bindings: &bindings,
            push: &self.push,
            groups: [1; 3],
        })
    }
}
