//! Plans: all that the GPU will do for one method at one set of concrete shapes, made without a device.
//!
//! A plan is data: dispatches, where every storage lies, which dispatches wait for earlier ones, what goes in and
//! comes out. [`Plan`]'s `Display` prints it; `verify` recomputes its hazards from byte ranges.

mod arena;
mod barriers;
mod bind;
mod build;
mod check;
mod dead;
mod nodes;
mod submissions;
mod text;
mod verify;

pub use bind::{InputMeta, SAMPLE_CAP, ShapeKey, bind_inputs, probe_envs, sample_envs, sample_inputs};
pub use build::{PlanOptions, build};
pub use check::{check, check_all};
pub use nodes::{concrete_sizes, scalar_of_type};
pub use submissions::submissions;
pub use verify::verify;

use barriers::{AbsoluteRange, accesses};

use crate::{
    base::Value,
    ir::{ConstantId, TensorRef},
    ops::{Prepack, Storage, Tensor},
    shader::{Dispatch, StorageId},
};

/// Where a storage lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In arena buffer `buffer`, from `offset_bytes` on.
    Arena {
        /// Which buffer of the arena.
        buffer: u32,
        /// First byte.
        offset_bytes: u64,
    },
    /// In a buffer of its own, given by the storage's kind: a packed constant, a state, the status words.
    Own,
    /// Nowhere: nothing uses it.
    Unused,
}

/// A user input that is uploaded before the first dispatch.
#[derive(Clone, Debug)]
pub struct PlannedInput {
    /// Position among the user inputs.
    pub index: usize,
    /// Where it goes, contiguously.
    pub tensor: Tensor,
}

/// What an output returns.
#[derive(Clone, Debug)]
pub enum PlannedOutput {
    /// The elements of a contiguous tensor, read back after the last dispatch.
    Tensor(Tensor),
    /// A constant of the program, which the host has already.
    Constant(TensorRef),
    /// A host scalar or `None`, known when the plan is made.
    Host(Value),
}

/// A buffer of the program that outlasts a run.
#[derive(Clone, Debug)]
pub struct PlannedState {
    /// Name of the buffer in the program.
    pub name: String,
    /// Its initial value.
    pub constant: ConstantId,
    /// Where it lies, contiguously.
    pub tensor: Tensor,
    /// Whether a run of this plan writes it.
    pub written: bool,
    /// Whether the new value is written where the old one was, without a copy.
    pub in_place: bool,
}

/// All that the GPU does for one run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Name of the method.
    pub method: String,
    /// Launches, in order.
    pub dispatches: Vec<Dispatch>,
    /// Whether dispatch `i` must wait for all earlier ones.
    pub barriers: Vec<bool>,
    /// Pieces of memory; a [`StorageId`] is an index here.
    pub storages: Vec<Storage>,
    /// Where each storage lies.
    pub places: Vec<Place>,
    /// Bytes of each buffer of the arena.
    pub arena_bytes: Vec<u64>,
    /// Bytes that are live at once at most: no arena can be smaller.
    pub live_bytes: u64,
    /// Constants that must be on the device; `StorageKind::Constant(i)` is number `i`.
    pub prepacks: Vec<Prepack>,
    /// Uploads.
    pub inputs: Vec<PlannedInput>,
    /// What the caller gets, in order.
    pub outputs: Vec<PlannedOutput>,
    /// What mutated user inputs hold after the run: position among the user inputs, and the value.
    pub mutated_inputs: Vec<(usize, PlannedOutput)>,
    /// States; `StorageKind::State(i)` is number `i`.
    pub states: Vec<PlannedState>,
    /// The status words, if a kernel reports to them.
    pub status: Option<StorageId>,
    /// Names of nodes by the number that kernels report.
    pub node_names: Vec<String>,
}

impl Plan {
    /// The tensors that are read back after the last dispatch.
    pub fn read_back(&self) -> impl Iterator<Item = &Tensor> {
        let outputs = self.outputs.iter().chain(self.mutated_inputs.iter().map(|(_, output)| output));
        outputs
            .filter_map(|output| if let PlannedOutput::Tensor(tensor) = output { Some(tensor) } else { None })
    }

    /// Positions of the user inputs whose memory a dispatch writes: as their own, or because they are dead by then.
    pub fn overwritten_inputs(&self) -> Vec<usize> {
        let accesses =
            self.dispatches.iter().flat_map(|dispatch| accesses(dispatch, &self.storages, &self.places));
        let written: Vec<AbsoluteRange> =
            accesses.filter_map(|(range, writes)| writes.then_some(range)).collect();
        let is_overwritten = |input: &&PlannedInput| {
            let range = AbsoluteRange::of(&input.tensor.region(), &self.storages, &self.places);
            range.is_some_and(|range| written.iter().any(|other| other.overlaps(&range)))
        };
        self.inputs.iter().filter(is_overwritten).map(|input| input.index).collect()
    }
}
