//! The driver whose compiler is asked: one device, opened with every feature that it has, and the statistics of
//! `VK_KHR_pipeline_executable_properties`. Nothing is ever submitted.

use std::collections::BTreeMap;
use std::ffi::CStr;

use anyhow::{Context, Result, bail};
use ash::{khr, vk};

use vkdelegate::shader::DeviceClass;

use crate::isa;
use crate::spirv::Module;

/// Shaders bind at most this many buffers, and take this many bytes of push constants.
const BINDINGS: u32 = 4;
const PUSH_CONSTANT_BYTES: u32 = 128;

/// Statistics without which the tables would be wrong in silence.
const REQUIRED: [&str; 6] = [
    "STP Count",
    "LDP Count",
    "Instruction Count",
    "Registers used",
    "Half-registers used",
    "Max Waves Per Core",
];

/// What the compiler says of one pipeline.
pub struct Compiled {
    statistics: BTreeMap<String, u64>,
    /// Instructions that multiply packed bytes; counted for modules that ask for such products.
    pub packed_dots: usize,
    /// The loop that multiplies and adds most; looked for where asked.
    pub hot_loop: Option<isa::Loop>,
    /// Invocations in one wave.
    pub subgroup_size: u32,
}

impl Compiled {
    /// A statistic by the driver's name for it, 0 when it gives none.
    pub fn stat(&self, name: &str) -> u64 {
        self.statistics.get(name).copied().unwrap_or(0)
    }

    /// Loads and stores of private memory, which exist only where registers ran out.
    pub fn spills(&self) -> u64 {
        self.stat("STP Count") + self.stat("LDP Count")
    }

    /// Invocations in flight on one core.
    pub fn threads(&self) -> u64 {
        self.stat("Max Waves Per Core") * u64::from(self.subgroup_size)
    }
}

/// An open device. It lives as long as the process, so nothing is destroyed but what each compile makes.
pub struct Compiler {
    device: ash::Device,
    executables: khr::pipeline_executable_properties::Device,
    /// Layouts by the mask of the bindings that are texel buffers.
    layouts: [vk::PipelineLayout; 1 << BINDINGS],
    features: Features,
    device_name: String,
    driver: String,
    /// Whether the library takes packed dot products on this device.
    packed_dot: bool,
    _instance: ash::Instance,
    _entry: ash::Entry,
}

/// The features that a shader of ours can ask for.
#[derive(Default)]
struct Features {
    float16: bool,
    int8: bool,
    int16: bool,
    int64: bool,
    storage_8bit: bool,
    storage_16bit: bool,
    buffer_device_address: bool,
    integer_dot_product: bool,
}

impl Compiler {
    /// Opens the first device that the loader finds.
    pub fn open() -> Result<Self> {
        // SAFETY: the loader found is the system's own; nothing else uses it in this process.
        let entry = unsafe { ash::Entry::load() }.context("no Vulkan loader (libvulkan.so.1)")?;
        let application = vk::ApplicationInfo::default().api_version(vk::API_VERSION_1_3);
        let info = vk::InstanceCreateInfo::default().application_info(&application);
        // SAFETY: `info` and what it points to outlive the call.
        let instance = unsafe { entry.create_instance(&info, None) }.context("cannot create an instance")?;
        // SAFETY: `instance` is alive.
        let physical = unsafe { instance.enumerate_physical_devices() }?
            .first()
            .copied()
            .context("no Vulkan device; run through scripts/adreno_gate.sh")?;

        let mut driver = vk::PhysicalDeviceDriverProperties::default();
        let mut dot = vk::PhysicalDeviceShaderIntegerDotProductProperties::default();
        let mut properties =
            vk::PhysicalDeviceProperties2::default().push_next(&mut driver).push_next(&mut dot);
        // SAFETY: `physical` is of `instance`, and the chain is well formed.
        unsafe { instance.get_physical_device_properties2(physical, &mut properties) };
        let device_name = text_of(properties.properties.device_name_as_c_str())?;
        if properties.properties.api_version < vk::API_VERSION_1_3 {
            bail!("{device_name} is older than Vulkan 1.3");
        }
        let driver = text_of(driver.driver_info_as_c_str())?;
        let reports_dot = dot.integer_dot_product4x8_bit_packed_unsigned_accelerated != 0;
        let packed_dot = DeviceClass::of_adreno(&device_name).has_fast_packed_dot(reports_dot);

        let (device, features) = open_device(&instance, physical)?;
        let mut layouts = [vk::PipelineLayout::null(); 1 << BINDINGS];
        for (texels, layout) in (0..).zip(&mut layouts) {
            *layout = create_layout(&device, texels)?;
        }
        let executables = khr::pipeline_executable_properties::Device::new(&instance, &device);
        Ok(Self {
            device,
            executables,
            layouts,
            features,
            device_name,
            driver,
            packed_dot,
            _instance: instance,
            _entry: entry,
        })
    }

    /// The device as its driver calls it.
    pub fn device_name(&self) -> &str {
        &self.device_name
    }

    /// The driver and its version.
    pub fn driver(&self) -> &str {
        &self.driver
    }

    /// The first feature that the module needs and the device lacks.
    pub fn missing_feature(&self, module: &Module) -> Option<&'static str> {
        let has = &self.features;
        module.capabilities.iter().find_map(|capability| {
            let (present, name) = match capability {
                9 => (has.float16, "shader_float16"),
                11 => (has.int64, "shader_int64"),
                22 => (has.int16, "shader_int16"),
                39 => (has.int8, "shader_int8"),
                4433 | 4434 => (has.storage_16bit, "storage_16bit"),
                4448 | 4449 => (has.storage_8bit, "storage_8bit"),
                5347 => (has.buffer_device_address, "buffer_device_address"),
                6016..=6019 => (has.integer_dot_product && self.packed_dot, "fast integer_dot_product"),
                _ => (true, ""),
            };
            (!present).then_some(name)
        })
    }

    /// Compiles one module with the given spec constants, and looks for its hot loop if asked.
    pub fn compile(&self, module: &Module, spec: &[(u32, u32)], wants_loop: bool) -> Result<Compiled> {
        let info = vk::ShaderModuleCreateInfo::default().code(&module.words);
        // SAFETY: the words are a SPIR-V module that the caller vouches for, as `make shaders` validated it.
        let shader = unsafe { self.device.create_shader_module(&info, None) }.context("module rejected")?;
        let pipeline = self.create_pipeline(shader, module, spec);
        // SAFETY: the pipeline is made, so nothing uses the module any more.
        unsafe { self.device.destroy_shader_module(shader, None) };
        let pipeline = pipeline?;
        let compiled = self.describe(pipeline, module, wants_loop);
        // SAFETY: the pipeline was never bound.
        unsafe { self.device.destroy_pipeline(pipeline, None) };
        compiled
    }

    fn create_pipeline(
        &self,
        shader: vk::ShaderModule,
        module: &Module,
        spec: &[(u32, u32)],
    ) -> Result<vk::Pipeline> {
        let layout = self.layouts.get(module.texel_bindings as usize);
        let layout = *layout.context("a texel buffer is bound beyond those of a layout")?;
        let mut entries = Vec::with_capacity(spec.len());
        let mut data = Vec::with_capacity(spec.len() * 4);
        for &(id, value) in spec {
            let offset = u32::try_from(data.len())?;
            entries.push(vk::SpecializationMapEntry { constant_id: id, offset, size: 4 });
            data.extend_from_slice(&value.to_ne_bytes());
        }
        let specialization = vk::SpecializationInfo::default().map_entries(&entries).data(&data);
        let stage = vk::PipelineShaderStageCreateInfo::default()
            .stage(vk::ShaderStageFlags::COMPUTE)
            .module(shader)
            .name(c"main")
            .specialization_info(&specialization);
        let info = vk::ComputePipelineCreateInfo::default()
            .flags(
                vk::PipelineCreateFlags::CAPTURE_STATISTICS_KHR
                    | vk::PipelineCreateFlags::CAPTURE_INTERNAL_REPRESENTATIONS_KHR,
            )
            .stage(stage)
            .layout(layout);
        // SAFETY: module, layout and all that `info` points to are alive.
        let made = unsafe { self.device.create_compute_pipelines(vk::PipelineCache::null(), &[info], None) };
        let pipelines = made.map_err(|(_, error)| error).context("pipeline creation failed")?;
        pipelines.first().copied().context("no pipeline was made")
    }

    fn describe(&self, pipeline: vk::Pipeline, module: &Module, wants_loop: bool) -> Result<Compiled> {
        let info = vk::PipelineInfoKHR::default().pipeline(pipeline);
        // SAFETY: `pipeline` is alive, and its statistics were asked for at creation.
        let executables = unsafe { self.executables.get_pipeline_executable_properties(&info) }?;
        let subgroup_size = executables.first().context("the pipeline has no executable")?.subgroup_size;
        let info = vk::PipelineExecutableInfoKHR::default().pipeline(pipeline);
        // SAFETY: as above; executable 0 exists.
        let found = unsafe { self.executables.get_pipeline_executable_statistics(&info) }?;
        let mut statistics = BTreeMap::new();
        for statistic in &found {
            if statistic.format == vk::PipelineExecutableStatisticFormatKHR::UINT64 {
                let name = text_of(statistic.name_as_c_str())?;
                // SAFETY: `format` says which field of the union is set.
                statistics.insert(name, unsafe { statistic.value.u64 });
            }
        }
        // A renamed statistic would read as 0.
        for name in REQUIRED {
            if !statistics.contains_key(name) {
                bail!("this driver gives no '{name}', only {:?}", statistics.keys());
            }
        }
        let asks_for_dots = module.asks_for_packed_dots();
        let assembly = if asks_for_dots || wants_loop { self.assembly(pipeline)? } else { String::new() };
        let packed_dots = if asks_for_dots { isa::packed_dots(&assembly) } else { 0 };
        let hot_loop = if wants_loop { isa::hot_loop(&assembly) } else { None };
        Ok(Compiled { statistics, packed_dots, hot_loop, subgroup_size })
    }

    /// The assembly of the pipeline's only executable.
    fn assembly(&self, pipeline: vk::Pipeline) -> Result<String> {
        let info = vk::PipelineExecutableInfoKHR::default().pipeline(pipeline);
        // SAFETY: `pipeline` is alive, and its representations were asked for at creation; executable 0 exists. Without
        // room for data only names and sizes are written.
        let mut found = unsafe { self.executables.get_pipeline_executable_internal_representations(&info) }?;
        let mut texts: Vec<Vec<u8>> = found.iter().map(|one| vec![0; one.data_size]).collect();
        for (one, text) in found.iter_mut().zip(&mut texts) {
            one.p_data = text.as_mut_ptr().cast();
        }
        let mut count = u32::try_from(found.len())?;
        // The wrapper of ash makes room for none of the texts.
        let read = self.executables.fp().get_pipeline_executable_internal_representations_khr;
        // SAFETY: `found` has `count` elements; each `p_data` points to `data_size` bytes of `texts`, which outlives
        // the call.
        unsafe { read(self.device.handle(), &info, &mut count, found.as_mut_ptr()) }.result()?;
        let mut names = Vec::new();
        for (one, text) in found.iter().zip(&texts) {
            let name = text_of(one.name_as_c_str())?;
            if name.contains("Assembly") {
                return Ok(String::from_utf8_lossy(text).into_owned());
            }
            names.push(name);
        }
        bail!("this driver gives no assembly, only {names:?}")
    }
}

/// Opens the device with every feature that it reports.
fn open_device(instance: &ash::Instance, physical: vk::PhysicalDevice) -> Result<(ash::Device, Features)> {
    let mut executables = vk::PhysicalDevicePipelineExecutablePropertiesFeaturesKHR::default();
    let mut vulkan11 = vk::PhysicalDeviceVulkan11Features::default();
    let mut vulkan12 = vk::PhysicalDeviceVulkan12Features::default();
    let mut vulkan13 = vk::PhysicalDeviceVulkan13Features::default();
    let mut features = vk::PhysicalDeviceFeatures2::default()
        .push_next(&mut executables)
        .push_next(&mut vulkan11)
        .push_next(&mut vulkan12)
        .push_next(&mut vulkan13);
    // SAFETY: `physical` is of `instance`, and the chain is well formed.
    unsafe { instance.get_physical_device_features2(physical, &mut features) };
    features.features.robust_buffer_access = vk::FALSE;
    let core = features.features;

    let extensions = [khr::pipeline_executable_properties::NAME.as_ptr()];
    let queues = [vk::DeviceQueueCreateInfo::default().queue_priorities(&[1.0])];
    let info = vk::DeviceCreateInfo::default()
        .queue_create_infos(&queues)
        .enabled_extension_names(&extensions)
        .push_next(&mut features);
    // SAFETY: `info` and what it points to outlive the call; only reported features are asked for.
    let device =
        unsafe { instance.create_device(physical, &info, None) }.context("cannot open the device")?;

    let found = Features {
        float16: vulkan12.shader_float16 != 0,
        int8: vulkan12.shader_int8 != 0,
        int16: core.shader_int16 != 0,
        int64: core.shader_int64 != 0,
        storage_8bit: vulkan12.storage_buffer8_bit_access != 0,
        storage_16bit: vulkan11.storage_buffer16_bit_access != 0,
        buffer_device_address: vulkan12.buffer_device_address != 0,
        integer_dot_product: vulkan13.shader_integer_dot_product != 0,
    };
    Ok((device, found))
}

/// A layout of storage buffers, and of texel buffers where `texels` has the binding's bit. It serves every such shader:
/// bindings that a shader does not use cost nothing.
fn create_layout(device: &ash::Device, texels: u32) -> Result<vk::PipelineLayout> {
    let kind_of = |binding| match texels >> binding & 1 {
        0 => vk::DescriptorType::STORAGE_BUFFER,
        _ => vk::DescriptorType::UNIFORM_TEXEL_BUFFER,
    };
    let bindings: Vec<_> = (0..BINDINGS)
        .map(|binding| {
            vk::DescriptorSetLayoutBinding::default()
                .binding(binding)
                .descriptor_type(kind_of(binding))
                .descriptor_count(1)
                .stage_flags(vk::ShaderStageFlags::COMPUTE)
        })
        .collect();
    let info = vk::DescriptorSetLayoutCreateInfo::default().bindings(&bindings);
    // SAFETY: `info` and what it points to outlive the call.
    let sets = [unsafe { device.create_descriptor_set_layout(&info, None) }?];
    let push = [vk::PushConstantRange::default()
        .stage_flags(vk::ShaderStageFlags::COMPUTE)
        .size(PUSH_CONSTANT_BYTES)];
    let info = vk::PipelineLayoutCreateInfo::default().set_layouts(&sets).push_constant_ranges(&push);
    // SAFETY: as above.
    Ok(unsafe { device.create_pipeline_layout(&info, None) }?)
}

fn text_of(name: Result<&CStr, std::ffi::FromBytesUntilNulError>) -> Result<String> {
    Ok(name.context("a name without its end")?.to_string_lossy().into_owned())
}
