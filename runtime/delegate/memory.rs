//! Memory that runs of one delegate share: the arena, the status words, and staging for inputs and outputs.

use std::{collections::HashMap, sync::Arc};

use super::{
    constants::PackedConstant,
    context::Context,
    state::DeviceState,
    transfer::{STATUS_BYTES, TransferLayout},
};
use crate::{
    base::{Error, Result},
    gpu::{Buffer, BufferDesc, StagingDesc, StagingDirection, UnifiedMemory},
    ops::{PackKey, StorageKind},
    plan::{Place, Plan},
    shader::Region,
};

/// Device memory of one delegate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryReport {
    /// Packed constants (each counted once, though other delegates may share it).
    pub constant_bytes: u64,
    /// States.
    pub state_bytes: u64,
    /// The arena in use.
    pub arena_bytes: u64,
    /// The most that run-time tensors hold at once: no arena can do with less.
    pub live_bytes: u64,
    /// Staging for inputs and outputs, where the host does not reach the device's memory.
    pub staging_bytes: u64,
}

impl MemoryReport {
    /// What a delegate that runs `plan` only will use, where the host reaches the device's memory as `reached` says.
    ///
    /// # Errors
    /// A constant beyond the address space.
    pub fn of_plan(plan: &Plan, reached: UnifiedMemory) -> Result<MemoryReport> {
        let mut constants: HashMap<PackKey, u64> = HashMap::new();
        for prepack in &plan.prepacks {
            constants.insert(prepack.key(), prepack.len_bytes()? as u64);
        }
        let layout = TransferLayout::of(plan, reached);
        Ok(MemoryReport {
            constant_bytes: constants.values().sum(),
            state_bytes: plan.states.iter().map(|state| state.tensor.region().len_bytes).sum(),
            arena_bytes: plan.arena_bytes.iter().sum(),
            live_bytes: plan.live_bytes,
            staging_bytes: layout.upload_bytes() + layout.readback_bytes(),
        })
    }

    /// The larger of each.
    #[must_use]
    pub fn max(self, other: MemoryReport) -> MemoryReport {
        MemoryReport {
            constant_bytes: self.constant_bytes.max(other.constant_bytes),
            state_bytes: self.state_bytes.max(other.state_bytes),
            arena_bytes: self.arena_bytes.max(other.arena_bytes),
            live_bytes: self.live_bytes.max(other.live_bytes),
            staging_bytes: self.staging_bytes.max(other.staging_bytes),
        }
    }
}

/// How much memory runs need.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunNeeds {
    /// Bytes of each buffer of the arena.
    arena_bytes: Vec<u64>,
    upload_bytes: u64,
    readback_bytes: u64,
}

impl RunNeeds {
    /// What one run of `plan` needs.
    pub fn of(plan: &Plan, layout: &TransferLayout) -> RunNeeds {
        RunNeeds {
            arena_bytes: plan.arena_bytes.clone(),
            upload_bytes: layout.upload_bytes(),
            readback_bytes: layout.readback_bytes(),
        }
    }

    /// What serves both.
    fn or(&self, other: &RunNeeds) -> RunNeeds {
        let buffers = self.arena_bytes.len().max(other.arena_bytes.len());
        let at = |bytes: &[u64], index: usize| bytes.get(index).copied().unwrap_or(0);
        RunNeeds {
            arena_bytes: (0..buffers)
                .map(|index| at(&self.arena_bytes, index).max(at(&other.arena_bytes, index)))
                .collect(),
            upload_bytes: self.upload_bytes.max(other.upload_bytes),
            readback_bytes: self.readback_bytes.max(other.readback_bytes),
        }
    }
}

/// The memory.
pub struct RunMemory {
    has: RunNeeds,
    /// The buffers of the arena.
    pub arena: Vec<Buffer>,
    /// The status words.
    pub status: Buffer,
    /// Where the host puts inputs that it does not write in place.
    upload: Option<Buffer>,
    /// Where the host finds outputs that it does not read in place.
    readback: Option<Buffer>,
}

impl RunMemory {
    /// Whether a run that needs so much fits.
    pub fn fits(&self, needs: &RunNeeds) -> bool {
        self.has.or(needs) == self.has
    }

    /// What memory must have to serve runs as it does now, and those of `needs`.
    pub fn grown(&self, needs: &RunNeeds) -> RunNeeds {
        self.has.or(needs)
    }

    /// Bytes of the arena, and of the staging buffers.
    pub fn bytes(&self) -> (u64, u64) {
        (self.has.arena_bytes.iter().sum(), self.has.upload_bytes + self.has.readback_bytes)
    }

    /// Allocates what `needs` says.
    ///
    /// # Errors
    /// When the device has no room.
    pub fn new(context: &Context, needs: RunNeeds) -> Result<RunMemory> {
        /// No buffer is smaller.
        const LEAST_BYTES: u64 = 16;
        let gpu = context.gpu();
        let device = |name, size_bytes: u64| {
            gpu.create_shared_buffer(&BufferDesc { name, size_bytes: size_bytes.max(LEAST_BYTES) })
        };
        let staging = |name, size_bytes: u64, direction| {
            let desc = StagingDesc { name, size_bytes, direction };
            (size_bytes > 0).then(|| gpu.create_staging(&desc)).transpose()
        };
        Ok(RunMemory {
            arena: needs.arena_bytes.iter().map(|&bytes| device("arena", bytes)).collect::<Result<_, _>>()?,
            status: device("status", STATUS_BYTES)?,
            upload: staging("inputs", needs.upload_bytes, StagingDirection::Upload)?,
            readback: staging("outputs", needs.readback_bytes, StagingDirection::Readback)?,
            has: needs,
        })
    }
}

/// Where the storages of a plan lie on the device.
#[derive(Clone, Copy)]
pub struct Storages<'a> {
    /// The plan.
    pub plan: &'a Plan,
    /// The arena, the status words, and staging.
    pub memory: &'a RunMemory,
    /// The packed constants, in the plan's order.
    pub constants: &'a [Arc<PackedConstant>],
    /// The states, in the plan's order.
    pub states: &'a [DeviceState],
}

impl<'a> Storages<'a> {
    /// The buffer of a region, and its first byte there.
    ///
    /// # Errors
    /// A region of another plan.
    pub fn locate(&self, region: &Region) -> Result<(&'a Buffer, u64)> {
        let index = region.storage.0 as usize;
        let lost = || Error::internal(format!("storage {index} has no memory"));
        let storage = self.plan.storages.get(index).ok_or_else(lost)?;
        let place = self.plan.places.get(index).ok_or_else(lost)?;
        let (buffer, base) = match (place, &storage.kind) {
            (Place::Arena { buffer, offset_bytes }, _) => {
                (self.memory.arena.get(*buffer as usize).ok_or_else(lost)?, *offset_bytes)
            }
            (_, StorageKind::Constant(number)) => (&self.constants.get(*number).ok_or_else(lost)?.buffer, 0),
            (_, StorageKind::State(number)) => (&self.states.get(*number).ok_or_else(lost)?.buffer, 0),
            (_, StorageKind::Status) => (&self.memory.status, 0),
            _ => return Err(lost()),
        };
        Ok((buffer, base + region.offset_bytes))
    }

    /// The staging buffer of inputs.
    ///
    /// # Errors
    /// When inputs are not staged.
    pub fn upload(&self) -> Result<&'a Buffer> {
        let staging = self.memory.upload.as_ref();
        staging.ok_or_else(|| Error::internal("there is no staging buffer for inputs"))
    }

    /// The staging buffer of outputs.
    ///
    /// # Errors
    /// When outputs are not staged.
    pub fn readback(&self) -> Result<&'a Buffer> {
        let staging = self.memory.readback.as_ref();
        staging.ok_or_else(|| Error::internal("there is no staging buffer for outputs"))
    }
}
