//! Compute pipelines from SPIR-V words, with their layouts shared by shape.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ash::vk;

use super::device::{Gpu, Shared, count, uncount};
use super::error::{GpuError, GpuResult, result_text};
use super::lock;

const SPIRV_MAGIC: u32 = 0x0723_0203;

/// What a pipeline is to be.
#[derive(Clone, Copy, Debug)]
pub struct PipelineDesc<'a> {
    /// Name for messages and debuggers: the kernel, its variant, the node.
    pub name: &'a str,
    /// The module; its entry point is `main`.
    pub spirv: &'a [u32],
    /// Specialisation constants, 32 bits each: id and value.
    pub spec: &'a [(u32, u32)],
    /// Bytes of push constants, a multiple of 4.
    pub push_bytes: u32,
    /// What set 0 holds, by slot.
    pub bindings: &'a [BindingKind],
}

/// How a kernel reaches the buffer in one slot of its set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BindingKind {
    /// As a storage buffer.
    Storage,
    /// By fetches of texels, each four floats.
    Texels,
}

impl BindingKind {
    pub(super) fn raw(self) -> vk::DescriptorType {
        match self {
            BindingKind::Storage => vk::DescriptorType::STORAGE_BUFFER,
            BindingKind::Texels => vk::DescriptorType::UNIFORM_TEXEL_BUFFER,
        }
    }
}

/// A compiled kernel. Clones share it; recordings that use it keep it alive.
#[derive(Clone)]
pub struct Pipeline {
    inner: Arc<PipelineInner>,
}

struct PipelineInner {
    shared: Arc<Shared>,
    raw: vk::Pipeline,
    layouts: Layouts,
    name: String,
    push_bytes: u32,
    bindings: Vec<BindingKind>,
    creation_time: Duration,
}

/// Layouts for one list of bindings and bytes of push constants; they live as long as the device.
#[derive(Clone, Copy)]
pub(super) struct Layouts {
    pub set: vk::DescriptorSetLayout,
    pub pipeline: vk::PipelineLayout,
}

impl Layouts {
    pub(super) fn destroy(self, device: &ash::Device) {
        // SAFETY: called when the device goes, after all pipelines.
        unsafe { device.destroy_pipeline_layout(self.pipeline, None) };
        // SAFETY: as above.
        unsafe { device.destroy_descriptor_set_layout(self.set, None) };
    }
}

impl Gpu {
    /// Compiles a kernel. Threads may do so at the same time.
    ///
    /// # Errors
    /// [`GpuError::PipelineFailed`] when the driver refuses; [`GpuError::LimitExceeded`] for too many buffers or
    /// push constants.
    pub fn create_pipeline(&self, desc: &PipelineDesc<'_>) -> GpuResult<Pipeline> {
        let shared = &self.shared;
        shared.check_alive()?;
        check_desc(shared, desc)?;
        let started = Instant::now();
        let layouts = shared.layouts_for(desc.bindings, desc.push_bytes)?;
        let module = shared.create_module(desc)?;
        let created = shared.create_compute_pipeline(desc, module, layouts.pipeline);
        // SAFETY: a module may go as soon as the pipeline is made.
        unsafe { shared.raw.destroy_shader_module(module, None) };
        let raw = created?;
        let creation_time = started.elapsed();
        log::debug!("pipeline `{}` created in {creation_time:?}", desc.name);
        count(&shared.counters.pipelines, 1);
        count(&shared.counters.pipelines_created, 1);
        shared.set_name(raw, desc.name);
        let inner = PipelineInner {
            shared: Arc::clone(shared),
            raw,
            layouts,
            name: desc.name.to_owned(),
            push_bytes: desc.push_bytes,
            bindings: desc.bindings.to_vec(),
            creation_time,
        };
        Ok(Pipeline { inner: Arc::new(inner) })
    }
}

impl Pipeline {
    /// The name it was made with.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// Bytes of push constants that each dispatch gives.
    pub fn push_bytes(&self) -> u32 {
        self.inner.push_bytes
    }

    /// What each dispatch binds, by slot.
    pub fn bindings(&self) -> &[BindingKind] {
        &self.inner.bindings
    }

    /// How long its creation took.
    pub fn creation_time(&self) -> Duration {
        self.inner.creation_time
    }

    pub(super) fn raw(&self) -> vk::Pipeline {
        self.inner.raw
    }

    pub(super) fn layouts(&self) -> Layouts {
        self.inner.layouts
    }

    pub(super) fn is_of(&self, shared: &Arc<Shared>) -> bool {
        Arc::ptr_eq(&self.inner.shared, shared)
    }
}

impl fmt::Debug for Pipeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pipeline({})", self.name())
    }
}

impl Drop for PipelineInner {
    fn drop(&mut self) {
        // SAFETY: recordings hold their pipelines, so no pending work uses this one.
        unsafe { self.shared.raw.destroy_pipeline(self.raw, None) };
        uncount(&self.shared.counters.pipelines, 1);
    }
}

impl Shared {
    fn layouts_for(&self, bindings: &[BindingKind], push_bytes: u32) -> GpuResult<Layouts> {
        let mut layouts = lock(&self.layouts);
        let key = (bindings.to_vec(), push_bytes);
        if let Some(found) = layouts.get(&key) {
            return Ok(*found);
        }
        let made = self.create_layouts(bindings, push_bytes)?;
        layouts.insert(key, made);
        Ok(made)
    }

    fn create_layouts(&self, kinds: &[BindingKind], push_bytes: u32) -> GpuResult<Layouts> {
        let binding = |(slot, kind): (u32, &BindingKind)| {
            vk::DescriptorSetLayoutBinding::default()
                .binding(slot)
                .descriptor_type(kind.raw())
                .descriptor_count(1)
                .stage_flags(vk::ShaderStageFlags::COMPUTE)
        };
        let bindings: Vec<_> = (0..).zip(kinds).map(binding).collect();
        let info = vk::DescriptorSetLayoutCreateInfo::default().bindings(&bindings);
        // SAFETY: the number of buffers is within the device's limit.
        let set = unsafe { self.raw.create_descriptor_set_layout(&info, None) }
            .map_err(|result| self.error("vkCreateDescriptorSetLayout", result))?;
        let push =
            [vk::PushConstantRange::default().stage_flags(vk::ShaderStageFlags::COMPUTE).size(push_bytes)];
        let sets = [set];
        let mut info = vk::PipelineLayoutCreateInfo::default().set_layouts(&sets);
        if push_bytes > 0 {
            info = info.push_constant_ranges(&push);
        }
        // SAFETY: the set layout is of this device, and the push constants are within its limit.
        let pipeline = unsafe { self.raw.create_pipeline_layout(&info, None) }.map_err(|result| {
            // SAFETY: the set layout was just made and nothing uses it.
            unsafe { self.raw.destroy_descriptor_set_layout(set, None) };
            self.error("vkCreatePipelineLayout", result)
        })?;
        self.set_name(set, &format!("{kinds:?}"));
        self.set_name(pipeline, &format!("{kinds:?}, {push_bytes} push bytes"));
        Ok(Layouts { set, pipeline })
    }

    fn create_module(&self, desc: &PipelineDesc<'_>) -> GpuResult<vk::ShaderModule> {
        let info = vk::ShaderModuleCreateInfo::default().code(desc.spirv);
        // SAFETY: the words are SPIR-V that the crate's build compiled and its tests validate.
        let module = unsafe { self.raw.create_shader_module(&info, None) }
            .map_err(|result| self.pipeline_error(desc, result))?;
        self.set_name(module, desc.name);
        Ok(module)
    }

    fn create_compute_pipeline(
        &self,
        desc: &PipelineDesc<'_>,
        module: vk::ShaderModule,
        layout: vk::PipelineLayout,
    ) -> GpuResult<vk::Pipeline> {
        if self.hooks.pipeline_fails() {
            return Err(self.pipeline_error(desc, vk::Result::ERROR_UNKNOWN));
        }
        let entry = |(index, &(id, _)): (usize, &(u32, u32))| {
            let offset = u32::try_from(index).unwrap_or(u32::MAX).saturating_mul(4);
            vk::SpecializationMapEntry::default().constant_id(id).offset(offset).size(4)
        };
        let entries: Vec<_> = desc.spec.iter().enumerate().map(entry).collect();
        let values: Vec<u8> = desc.spec.iter().flat_map(|(_, value)| value.to_ne_bytes()).collect();
        let spec = vk::SpecializationInfo::default().map_entries(&entries).data(&values);
        let stage = vk::PipelineShaderStageCreateInfo::default()
            .stage(vk::ShaderStageFlags::COMPUTE)
            .module(module)
            .name(c"main")
            .specialization_info(&spec);
        let info = vk::ComputePipelineCreateInfo::default().stage(stage).layout(layout);
        // SAFETY: module, layout and cache are of this device, and all pointers outlive the call.
        let created = unsafe { self.raw.create_compute_pipelines(self.pipeline_cache, &[info], None) };
        let pipelines = created.map_err(|(_, result)| self.pipeline_error(desc, result))?;
        pipelines.first().copied().ok_or_else(|| self.pipeline_error(desc, vk::Result::ERROR_UNKNOWN))
    }

    fn pipeline_error(&self, desc: &PipelineDesc<'_>, result: vk::Result) -> GpuError {
        match result {
            vk::Result::ERROR_DEVICE_LOST => self.lose(),
            _ => GpuError::PipelineFailed {
                name: desc.name.to_owned(),
                device: self.info.description.name.clone(),
                reason: result_text(result),
            },
        }
    }
}

fn check_desc(shared: &Shared, desc: &PipelineDesc<'_>) -> GpuResult<()> {
    let limits = &shared.info.caps.limits;
    let within = |what, requested: u32, limit: u32| match requested <= limit {
        true => Ok(()),
        false => Err(GpuError::LimitExceeded {
            name: desc.name.to_owned(),
            what,
            requested: requested.into(),
            limit: limit.into(),
        }),
    };
    let bindings = desc.bindings.len() as u32;
    within("the number of storage buffers", bindings, limits.max_storage_buffers)?;
    within("the size of the push constants in bytes", desc.push_bytes, limits.max_push_constant_bytes)?;
    if !desc.push_bytes.is_multiple_of(4) {
        return Err(GpuError::invalid(desc.name, "the push constants are not a multiple of 4 bytes"));
    }
    if desc.spirv.first() != Some(&SPIRV_MAGIC) {
        return Err(GpuError::invalid(desc.name, "the module is not SPIR-V"));
    }
    Ok(())
}
