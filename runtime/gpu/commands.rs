//! Recording of commands: dispatches, copies, fills and barriers, to be submitted any number of times.

use std::collections::HashMap;
use std::ops::BitOr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use ash::vk;
use ash::vk::Handle;

use super::descriptors::{BufferBinding, DescriptorPools};
use super::device::{Gpu, Shared, c_string, count, uncount};
use super::error::{GpuError, GpuResult};
use super::memory::Buffer;
use super::pipeline::Pipeline;
use super::timing::{Timestamps, Timing};

/// How to record.
#[derive(Clone, Copy, Debug)]
pub struct RecorderDesc<'a> {
    /// Name for messages and debuggers.
    pub name: &'a str,
    /// Whether to time each command; has no effect on devices without timestamps.
    pub timestamps: bool,
}

/// One launch of a kernel.
#[derive(Clone, Copy, Debug)]
pub struct DispatchDesc<'a> {
    /// Label in timings, messages and debuggers: the node and its kernel.
    pub label: &'a str,
    /// The kernel.
    pub pipeline: &'a Pipeline,
    /// Its buffers, by slot; none for kernels that take addresses.
    pub bindings: &'a [BufferBinding<'a>],
    /// Its push constants, exactly `push_bytes` of the pipeline.
    pub push: &'a [u8],
    /// Work-groups per axis; nothing is launched if one is 0.
    pub groups: [u32; 3],
}

/// A range to copy, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyRegion {
    /// Start in the source.
    pub src_offset_bytes: u64,
    /// Start in the destination.
    pub dst_offset_bytes: u64,
    /// Length; nothing is copied if 0.
    pub len_bytes: u64,
}

/// Kinds of commands on one side of a barrier; combine with `|`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scope(u8);

impl Scope {
    /// Reads and writes of kernels.
    pub const COMPUTE: Scope = Scope(1);
    /// Copies and fills.
    pub const TRANSFER: Scope = Scope(2);

    fn contains(self, part: Scope) -> bool {
        self.0 & part.0 == part.0
    }

    fn stages(self) -> vk::PipelineStageFlags {
        let mut stages = vk::PipelineStageFlags::empty();
        if self.contains(Scope::COMPUTE) {
            stages |= vk::PipelineStageFlags::COMPUTE_SHADER;
        }
        if self.contains(Scope::TRANSFER) {
            stages |= vk::PipelineStageFlags::TRANSFER;
        }
        stages
    }

    fn writes(self) -> vk::AccessFlags {
        let mut access = vk::AccessFlags::empty();
        if self.contains(Scope::COMPUTE) {
            access |= vk::AccessFlags::SHADER_WRITE;
        }
        if self.contains(Scope::TRANSFER) {
            access |= vk::AccessFlags::TRANSFER_WRITE;
        }
        access
    }

    fn reads(self) -> vk::AccessFlags {
        let mut access = vk::AccessFlags::empty();
        if self.contains(Scope::COMPUTE) {
            access |= vk::AccessFlags::SHADER_READ;
        }
        if self.contains(Scope::TRANSFER) {
            access |= vk::AccessFlags::TRANSFER_READ;
        }
        access
    }
}

impl BitOr for Scope {
    type Output = Scope;

    fn bitor(self, other: Scope) -> Scope {
        Scope(self.0 | other.0)
    }
}

impl Gpu {
    /// Starts a recording.
    ///
    /// Recordings are ordered: all commands of one see what those submitted before it wrote. *Within* one, only
    /// [`Recorder::barrier`] orders commands.
    ///
    /// # Errors
    /// When the device is lost or out of memory.
    pub fn record(&self, desc: &RecorderDesc<'_>) -> GpuResult<Recorder> {
        self.shared.check_alive()?;
        let mut inner = RecordingInner::new(&self.shared, desc)?;
        inner.begin()?;
        Ok(Recorder { inner, bound: None })
    }
}

/// Commands being recorded. Dropping it throws them away.
pub struct Recorder {
    inner: RecordingInner,
    /// The pipeline bound last.
    bound: Option<vk::Pipeline>,
}

impl Recorder {
    /// Records a kernel launch.
    ///
    /// # Errors
    /// When bindings or push constants do not fit the pipeline, a range is misaligned or beyond a limit, or there
    /// are more work-groups than the device allows. Nothing is recorded then.
    pub fn dispatch(&mut self, desc: &DispatchDesc<'_>) -> GpuResult<()> {
        self.check_dispatch(desc)?;
        if desc.groups.contains(&0) {
            return Ok(());
        }
        let set = match desc.bindings {
            [] => None,
            bindings => Some(self.inner.descriptors.bind(desc.pipeline, bindings, desc.label)?),
        };
        self.begin_label(desc.label);
        self.bind(desc.pipeline, set, desc.push);
        let [x, y, z] = desc.groups;
        // SAFETY: pipeline, sets and push constants are bound as its layout wants; group counts are within limits.
        unsafe { self.inner.shared.raw.cmd_dispatch(self.inner.commands, x, y, z) };
        self.inner.count_command();
        self.end_label();
        self.inner.pipelines.entry(desc.pipeline.raw().as_raw()).or_insert_with(|| desc.pipeline.clone());
        desc.bindings.iter().for_each(|binding| self.keep(binding.buffer));
        self.stamp(desc.label)
    }

    /// Records a copy between two buffers, or between parts of one that do not overlap.
    ///
    /// # Errors
    /// When a region is beyond its buffer.
    pub fn copy(&mut self, src: &Buffer, dst: &Buffer, regions: &[CopyRegion]) -> GpuResult<()> {
        self.check_buffer(src)?;
        self.check_buffer(dst)?;
        let mut copies = Vec::with_capacity(regions.len());
        for region in regions.iter().filter(|region| region.len_bytes > 0) {
            src.check_range(region.src_offset_bytes, region.len_bytes)?;
            dst.check_range(region.dst_offset_bytes, region.len_bytes)?;
            let distance = region.src_offset_bytes.abs_diff(region.dst_offset_bytes);
            if src.raw() == dst.raw() && distance < region.len_bytes {
                return Err(GpuError::invalid(src.name(), "a copy within the buffer overlaps itself"));
            }
            copies.push(vk::BufferCopy {
                src_offset: region.src_offset_bytes,
                dst_offset: region.dst_offset_bytes,
                size: region.len_bytes,
            });
        }
        if copies.is_empty() {
            return Ok(());
        }
        // SAFETY: both buffers are of this device and have transfer usage; the regions lie within them.
        unsafe { self.inner.shared.raw.cmd_copy_buffer(self.inner.commands, src.raw(), dst.raw(), &copies) };
        self.inner.count_command();
        self.keep(src);
        self.keep(dst);
        self.stamp(&format!("copy {} to {}", src.name(), dst.name()))
    }

    /// Records a fill with a repeated 32-bit value.
    ///
    /// # Errors
    /// When the range is beyond the buffer or not in whole words.
    pub fn fill(&mut self, dst: &Buffer, offset_bytes: u64, len_bytes: u64, value: u32) -> GpuResult<()> {
        self.check_buffer(dst)?;
        dst.check_range(offset_bytes, len_bytes)?;
        if !offset_bytes.is_multiple_of(4) || !len_bytes.is_multiple_of(4) {
            return Err(GpuError::invalid(dst.name(), "a fill is not in whole 4-byte words"));
        }
        if len_bytes == 0 {
            return Ok(());
        }
        // SAFETY: the buffer is of this device and has transfer usage; the range lies within it, in whole words.
        unsafe {
            self.inner.shared.raw.cmd_fill_buffer(
                self.inner.commands,
                dst.raw(),
                offset_bytes,
                len_bytes,
                value,
            );
        };
        self.inner.count_command();
        self.keep(dst);
        self.stamp(&format!("fill {}", dst.name()))
    }

    /// Orders commands: those of kind `after` recorded later wait for, and see the writes of, those of kind
    /// `before` recorded earlier.
    pub fn barrier(&mut self, before: Scope, after: Scope) {
        let memory = vk::MemoryBarrier::default()
            .src_access_mask(before.writes())
            .dst_access_mask(after.reads() | after.writes());
        self.inner.barrier(before.stages(), after.stages(), memory);
    }

    /// Keeps a buffer alive for the recording: for buffers that kernels reach by address.
    pub fn keep(&mut self, buffer: &Buffer) {
        self.inner.buffers.entry(buffer.raw().as_raw()).or_insert_with(|| buffer.clone());
    }

    /// Ends the recording. What it writes to mapped buffers is visible to the host once it was waited for.
    ///
    /// # Errors
    /// When the driver is out of memory.
    pub fn end(self) -> GpuResult<Recording> {
        let inner = self.inner;
        if inner.buffers.values().any(|buffer| buffer.gate().is_some()) {
            let all = Scope::COMPUTE | Scope::TRANSFER;
            let memory = vk::MemoryBarrier::default()
                .src_access_mask(all.writes())
                .dst_access_mask(vk::AccessFlags::HOST_READ);
            inner.barrier(all.stages(), vk::PipelineStageFlags::HOST, memory);
        }
        // SAFETY: the command buffer is being recorded.
        unsafe { inner.shared.raw.end_command_buffer(inner.commands) }
            .map_err(|result| inner.shared.error("vkEndCommandBuffer", result))?;
        count(&inner.shared.counters.recordings, 1);
        Ok(Recording { inner: Arc::new(inner) })
    }

    fn check_dispatch(&self, desc: &DispatchDesc<'_>) -> GpuResult<()> {
        let pipeline = desc.pipeline;
        if !pipeline.is_of(&self.inner.shared) {
            return Err(GpuError::invalid(desc.label, "the pipeline is of another device"));
        }
        desc.bindings.iter().try_for_each(|binding| self.check_buffer(binding.buffer))?;
        let (bindings, push) = (desc.bindings.len(), desc.push.len());
        if bindings != pipeline.bindings().len() || push != pipeline.push_bytes() as usize {
            let reason = format!(
                "`{}` takes {} buffers and {} bytes of push constants, but {bindings} and {push} are given",
                pipeline.name(),
                pipeline.bindings().len(),
                pipeline.push_bytes(),
            );
            return Err(GpuError::invalid(desc.label, reason));
        }
        for (&groups, limit) in desc.groups.iter().zip(self.inner.shared.info.caps.limits.max_group_count) {
            if groups > limit {
                return Err(GpuError::LimitExceeded {
                    name: desc.label.to_owned(),
                    what: "the number of work-groups on one axis",
                    requested: groups.into(),
                    limit: limit.into(),
                });
            }
        }
        Ok(())
    }

    fn check_buffer(&self, buffer: &Buffer) -> GpuResult<()> {
        match buffer.is_of(&self.inner.shared) {
            true => Ok(()),
            false => Err(GpuError::invalid(buffer.name(), "the buffer is of another device")),
        }
    }

    fn bind(&mut self, pipeline: &Pipeline, set: Option<vk::DescriptorSet>, push: &[u8]) {
        let (device, commands) = (&self.inner.shared.raw, self.inner.commands);
        let (point, layout) = (vk::PipelineBindPoint::COMPUTE, pipeline.layouts().pipeline);
        if self.bound != Some(pipeline.raw()) {
            // SAFETY: the commands are being recorded, and the recording holds the pipeline.
            unsafe { device.cmd_bind_pipeline(commands, point, pipeline.raw()) };
            self.bound = Some(pipeline.raw());
        }
        if let Some(set) = set {
            // SAFETY: the set was made from the layout's set layout.
            unsafe { device.cmd_bind_descriptor_sets(commands, point, layout, 0, &[set], &[]) };
        }
        if !push.is_empty() {
            // SAFETY: the bytes are exactly the layout's range.
            unsafe { device.cmd_push_constants(commands, layout, vk::ShaderStageFlags::COMPUTE, 0, push) };
        }
    }

    fn begin_label(&self, label: &str) {
        let Some(debug) = &self.inner.shared.debug else { return };
        let name = c_string(label);
        let info = vk::DebugUtilsLabelEXT::default().label_name(&name);
        // SAFETY: the commands are being recorded; `end_label` closes the label.
        unsafe { debug.cmd_begin_debug_utils_label(self.inner.commands, &info) };
    }

    fn end_label(&self) {
        let Some(debug) = &self.inner.shared.debug else { return };
        // SAFETY: `begin_label` opened one in the same commands.
        unsafe { debug.cmd_end_debug_utils_label(self.inner.commands) };
    }

    fn stamp(&mut self, label: &str) -> GpuResult<()> {
        let commands = self.inner.commands;
        self.inner.timestamps.as_mut().map_or(Ok(()), |timestamps| timestamps.finish(commands, label))
    }
}

/// Commands ready to be submitted, any number of times, one submission at a time. Clones share them.
#[derive(Clone)]
pub struct Recording {
    pub(super) inner: Arc<RecordingInner>,
}

impl Recording {
    /// The name it was recorded with.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// The times of each command in its last execution; empty if not asked for or not available on the device.
    ///
    /// # Errors
    /// When it was never waited for, is pending, or the device is lost.
    pub fn timings(&self) -> GpuResult<Vec<Timing>> {
        self.inner.shared.check_alive()?;
        if !self.inner.has_results() {
            return Err(GpuError::invalid(
                self.name(),
                "there are no times before an execution was waited for",
            ));
        }
        self.inner.timestamps.as_ref().map_or(Ok(Vec::new()), Timestamps::read)
    }
}

/// A command buffer with all that it uses. The pools and the fence go when it does.
pub(super) struct RecordingInner {
    pub shared: Arc<Shared>,
    pub name: String,
    pub commands: vk::CommandBuffer,
    pub fence: vk::Fence,
    pub pending: AtomicBool,
    pub executed: AtomicBool,
    // Holds views of the buffers, and so goes before them.
    descriptors: DescriptorPools,
    pub buffers: HashMap<u64, Buffer>,
    pipelines: HashMap<u64, Pipeline>,
    pool: vk::CommandPool,
    timestamps: Option<Timestamps>,
}

impl RecordingInner {
    fn new(shared: &Arc<Shared>, desc: &RecorderDesc<'_>) -> GpuResult<RecordingInner> {
        let has_timestamps = desc.timestamps && shared.info.caps.timestamps.is_some();
        // Counted here, uncounted in `drop`: both handles may be null there, which Vulkan allows.
        count(&shared.counters.command_pools, 1);
        count(&shared.counters.fences, 1);
        let mut inner = RecordingInner {
            shared: Arc::clone(shared),
            name: desc.name.to_owned(),
            commands: vk::CommandBuffer::null(),
            fence: vk::Fence::null(),
            pending: AtomicBool::new(false),
            executed: AtomicBool::new(false),
            buffers: HashMap::new(),
            pipelines: HashMap::new(),
            pool: vk::CommandPool::null(),
            descriptors: DescriptorPools::new(shared),
            timestamps: has_timestamps.then(|| Timestamps::new(shared)),
        };
        inner.create_objects()?;
        Ok(inner)
    }

    fn create_objects(&mut self) -> GpuResult<()> {
        let device = &self.shared.raw;
        let info = vk::CommandPoolCreateInfo::default().queue_family_index(self.shared.queue_family);
        // SAFETY: the queue family is the one of the device's queue.
        self.pool = unsafe { device.create_command_pool(&info, None) }
            .map_err(|result| self.shared.error("vkCreateCommandPool", result))?;
        // SAFETY: the struct is complete.
        self.fence = unsafe { device.create_fence(&vk::FenceCreateInfo::default(), None) }
            .map_err(|result| self.shared.error("vkCreateFence", result))?;
        let info = vk::CommandBufferAllocateInfo::default().command_pool(self.pool).command_buffer_count(1);
        // SAFETY: the pool is new, and only this recording uses it.
        let buffers = unsafe { device.allocate_command_buffers(&info) }
            .map_err(|result| self.shared.error("vkAllocateCommandBuffers", result))?;
        self.commands = buffers.first().copied().unwrap_or_default();
        self.shared.set_name(self.pool, &self.name);
        self.shared.set_name(self.fence, &self.name);
        self.shared.set_name(self.commands, &self.name);
        Ok(())
    }

    fn begin(&mut self) -> GpuResult<()> {
        let info = vk::CommandBufferBeginInfo::default();
        // SAFETY: the command buffer is new.
        unsafe { self.shared.raw.begin_command_buffer(self.commands, &info) }
            .map_err(|result| self.shared.error("vkBeginCommandBuffer", result))?;
        let all = Scope::COMPUTE | Scope::TRANSFER;
        let memory = vk::MemoryBarrier::default()
            .src_access_mask(all.writes())
            .dst_access_mask(all.reads() | all.writes());
        self.barrier(all.stages(), all.stages(), memory);
        let commands = self.commands;
        self.timestamps.as_mut().map_or(Ok(()), |timestamps| timestamps.start(commands))
    }

    fn barrier(
        &self,
        before: vk::PipelineStageFlags,
        after: vk::PipelineStageFlags,
        memory: vk::MemoryBarrier<'_>,
    ) {
        let flags = vk::DependencyFlags::empty();
        // SAFETY: the commands are being recorded; the stages are those of a compute queue and not empty.
        unsafe {
            self.shared.raw.cmd_pipeline_barrier(self.commands, before, after, flags, &[memory], &[], &[]);
        };
        self.count_command();
    }

    fn count_command(&self) {
        count(&self.shared.counters.commands, 1);
    }
}

impl Drop for RecordingInner {
    fn drop(&mut self) {
        // SAFETY: submissions hold their recording, so it is not pending; its commands go with the pool.
        unsafe { self.shared.raw.destroy_command_pool(self.pool, None) };
        // SAFETY: as above.
        unsafe { self.shared.raw.destroy_fence(self.fence, None) };
        uncount(&self.shared.counters.command_pools, 1);
        uncount(&self.shared.counters.fences, 1);
    }
}
