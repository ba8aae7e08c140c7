//! What a plan collects while its nodes are lowered: storages, constants, and the moves that every op needs.
//!
//! A [`Lowering`] collects what one plan does, node by node, as plain data. It knows the device's profile and
//! no device. Offsets into tensors are 32 bits wide in kernels, so no tensor has more than 2^32 - 1 elements.

use std::collections::{HashMap, HashSet};

use super::{
    Element, Meta, Operand, Tensor,
    packing::{PackKey, Packing, Prepack},
};
use crate::{
    base::{DType, Error, Result, shape},
    ir::{PayloadId, TensorRef},
    shader::{DeviceProfile, Dispatch, Need, Region, StorageId},
};

/// How a program's `float32` is stored and computed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Precision {
    /// `float32` is stored and computed in 32 bits.
    #[default]
    F32,
    /// `float32` is stored in half precision and computed in 32 bits.
    F16,
}

/// What a storage is for, which decides where its memory comes from.
#[derive(Clone, Debug, PartialEq)]
pub enum StorageKind {
    /// Memory that is free before the first and after the last dispatch that touches it.
    Arena,
    /// A constant, packed at build: the index of its [`Prepack`].
    Constant(usize),
    /// A buffer of the program that outlasts a run: the index among the method's states.
    State(usize),
    /// The status words that index kernels report to.
    Status,
}

/// One planned piece of memory.
#[derive(Clone, Debug, PartialEq)]
pub struct Storage {
    /// What it is for.
    pub kind: StorageKind,
    /// Its length.
    pub len_bytes: u64,
    /// The value it was made for.
    pub name: String,
}

/// `round_mode` values of `shaders/lib/round.glsl`.
mod round_mode {
    pub const NONE: u32 = 0;
    pub const F16: u32 = 1;
    pub const BF16: u32 = 2;
    pub const I8: u32 = 3;
    pub const U8: u32 = 4;
    pub const I16: u32 = 5;
    pub const BOOL: u32 = 7;
}

/// The node that is being lowered.
#[derive(Clone, Debug, Default)]
struct Current {
    name: String,
    id: u32,
    pinned_f32: bool,
    place: Option<Tensor>,
}

/// Collects what a plan does.
pub struct Lowering<'p> {
    profile: &'p DeviceProfile,
    precision: Precision,
    storages: Vec<Storage>,
    dispatches: Vec<Dispatch>,
    prepacks: Vec<Prepack>,
    pack_storages: HashMap<PackKey, StorageId>,
    panel_constants: HashSet<LayoutKey>,
    sources: HashMap<StorageId, Vec<Tensor>>,
    status: Option<StorageId>,
    current: Current,
}

/// A constant by its bytes and its layout in them.
type LayoutKey = (PayloadId, Vec<usize>, Vec<usize>, usize);

fn layout_key(constant: &TensorRef) -> LayoutKey {
    let constant = constant.constant();
    let (sizes, strides) = (constant.sizes().to_vec(), constant.strides().to_vec());
    (constant.payload().id(), sizes, strides, constant.offset_elems())
}

/// Everything that a finished [`Lowering`] collected.
#[derive(Clone, Debug, Default)]
pub struct Lowered {
    /// Pieces of memory; a [`StorageId`] is an index here.
    pub storages: Vec<Storage>,
    /// What runs, in order.
    pub dispatches: Vec<Dispatch>,
    /// Constants to pack at build.
    pub prepacks: Vec<Prepack>,
}

impl<'p> Lowering<'p> {
    /// Begins a plan for a device of that profile.
    pub fn new(profile: &'p DeviceProfile, precision: Precision) -> Lowering<'p> {
        Lowering {
            profile,
            precision,
            storages: Vec::new(),
            dispatches: Vec::new(),
            prepacks: Vec::new(),
            pack_storages: HashMap::new(),
            panel_constants: HashSet::new(),
            sources: HashMap::new(),
            status: None,
            current: Current::default(),
        }
    }

    /// Turns to the next node. `id` names it in status words; `place` is where its first output should go,
    /// if the planner has proved that sound.
    pub fn begin_node(&mut self, id: u32, name: &str, pinned_f32: bool, place: Option<Tensor>) {
        self.current = Current { name: name.to_string(), id, pinned_f32, place };
    }

    /// Ends the plan.
    pub fn finish(self) -> Lowered {
        Lowered { storages: self.storages, dispatches: self.dispatches, prepacks: self.prepacks }
    }

    /// The device's profile.
    pub fn profile(&self) -> &'p DeviceProfile {
        self.profile
    }

    /// Number of dispatches so far.
    pub fn dispatch_count(&self) -> usize {
        self.dispatches.len()
    }

    /// What kernels pass to `REPORT` for the node that is being lowered.
    pub fn node_id(&self) -> u32 {
        self.current.id
    }

    /// A label for a dispatch of the node that is being lowered.
    pub fn label(&self) -> String {
        self.current.name.clone()
    }

    /// What an element of `dtype` is in memory, for the node that is being lowered.
    pub fn element_of(&self, dtype: DType) -> Element {
        let has_f16 = self.profile.features.contains(Need::Storage16Bit);
        match dtype {
            DType::F16 if has_f16 => Element::F16,
            DType::F32 if has_f16 && self.precision == Precision::F16 && !self.current.pinned_f32 => {
                Element::F16
            }
            dtype if dtype.is_float() => Element::F32,
            _ => Element::I32,
        }
    }

    /// The `round_mode` of stores to a tensor of `dtype` kept as `element`: what a store must do so that the
    /// value is one that `dtype` can hold.
    pub fn round_mode(&self, dtype: DType, element: Element) -> u32 {
        match (dtype, element) {
            (DType::F16, Element::F32) => round_mode::F16,
            (DType::F32, Element::F32) if self.precision == Precision::F16 && !self.current.pinned_f32 => {
                round_mode::F16
            }
            (DType::BF16, _) => round_mode::BF16,
            (DType::I8, _) => round_mode::I8,
            (DType::U8, _) => round_mode::U8,
            (DType::I16, _) => round_mode::I16,
            (DType::Bool, _) => round_mode::BOOL,
            _ => round_mode::NONE,
        }
    }

    /// Whether values of `dtype` kept as `element` are half-precision numbers.
    pub fn is_half(&self, dtype: DType, element: Element) -> bool {
        element == Element::F16 || self.round_mode(dtype, element) == round_mode::F16
    }

    /// Adds a storage.
    pub fn add_storage(&mut self, kind: StorageKind, len_bytes: u64, name: String) -> StorageId {
        self.storages.push(Storage { kind, len_bytes, name });
        StorageId((self.storages.len() - 1) as u32)
    }

    /// Whether `tensor` is all that lies in its storage, and that storage is memory of this run.
    pub fn owns_its_storage(&self, tensor: &Tensor) -> bool {
        let storage = self.storages.get(tensor.storage.0 as usize);
        storage.is_some_and(|storage| {
            storage.kind == StorageKind::Arena
                && tensor.is_contiguous()
                && tensor.region().len_bytes == storage.len_bytes
        })
    }

    /// Whether `tensor` lies in a packed constant.
    pub fn is_constant(&self, tensor: &Tensor) -> bool {
        let storage = self.storages.get(tensor.storage.0 as usize);
        storage.is_some_and(|storage| matches!(storage.kind, StorageKind::Constant(_)))
    }

    /// A new contiguous tensor with memory of its own in the arena.
    ///
    /// # Errors
    /// When kernels could not address it, or no buffer could hold it.
    pub fn alloc(&mut self, dtype: DType, sizes: &[usize]) -> Result<Tensor> {
        self.alloc_as(dtype, self.element_of(dtype), sizes)
    }

    /// The bytes of a contiguous tensor, if kernels and buffers can take it.
    ///
    /// # Errors
    /// When kernels could not address it, or no buffer could hold it.
    pub fn check_size(&self, sizes: &[usize], element: Element) -> Result<u64> {
        let elems = shape::numel(sizes)?;
        if elems > u32::MAX as usize {
            return Err(Error::unsupported(format!(
                "a tensor of sizes {sizes:?} has {elems} elements; kernels address 2^32 - 1"
            )));
        }
        let len_bytes = elems as u64 * element.size_bytes() as u64;
        if len_bytes > self.profile.max_buffer_bytes {
            return Err(Error::unsupported(format!(
                "a tensor of sizes {sizes:?} takes {len_bytes} bytes; a buffer of this device holds {}",
                self.profile.max_buffer_bytes
            )));
        }
        Ok(len_bytes)
    }

    /// Where the first output goes: the place that the planner proved sound, else new memory.
    ///
    /// # Errors
    /// As [`Lowering::alloc`].
    pub fn output(&mut self, meta: &Meta) -> Result<Tensor> {
        match self.current.place.take() {
            Some(place) if place.meta() == *meta && place.element == self.element_of(meta.dtype) => Ok(place),
            _ => self.alloc(meta.dtype, &meta.sizes),
        }
    }

    /// A tensor that starts out as a copy of `base`, to be overwritten in part: `base` itself where the planner
    /// proved that sound.
    ///
    /// # Errors
    /// As [`Lowering::alloc`].
    pub fn updated(&mut self, base: &Tensor) -> Result<Tensor> {
        if let Some(place) = self.current.place.take()
            && place == *base
        {
            return Ok(place);
        }
        let out = self.alloc(base.dtype, &base.sizes)?;
        self.copy(base, &out)?;
        Ok(out)
    }

    /// `operand` as a live tensor of the element kind that the current node computes with; constants are laid out
    /// contiguously.
    ///
    /// # Errors
    /// When the constant is too large, or a conversion is.
    pub fn live(&mut self, operand: &Operand) -> Result<Tensor> {
        match operand {
            Operand::Constant(constant) => self.packed(constant, Packing::Contiguous),
            Operand::Live(tensor) => {
                let want = self.element_of(tensor.dtype);
                if tensor.element == want { Ok(tensor.clone()) } else { self.converted(tensor, tensor.dtype) }
            }
        }
    }

    /// Says that some node takes `constant` in [`Packing::Panels4`], so that others can share those bytes.
    pub fn expect_panels(&mut self, constant: &TensorRef) {
        self.panel_constants.insert(layout_key(constant));
    }

    /// Whether some node of the plan takes `constant` in [`Packing::Panels4`]: a tied table is then read from the
    /// panels, and held once.
    pub fn has_panels(&self, constant: &TensorRef) -> bool {
        self.panel_constants.contains(&layout_key(constant))
    }

    /// The tensors that a part of `storage` has been made of by the last dispatch that wrote to it, as
    /// [`Lowering::remember_sources`] was told, unless one of them has been overwritten since.
    pub fn sources(&self, storage: StorageId) -> Option<&[Tensor]> {
        self.sources.get(&storage).map(Vec::as_slice)
    }

    /// Remembers what the last dispatch made its part of `storage` of.
    pub fn remember_sources(&mut self, storage: StorageId, sources: Vec<Tensor>) {
        self.sources.insert(storage, sources);
    }

    /// A constant in device memory, packed once for all plans and nodes that ask for the same packing.
    /// The tensor has the constant's sizes; its strides mean something for [`Packing::Contiguous`] only.
    ///
    /// # Errors
    /// When kernels could not address it, or no buffer could hold it.
    pub fn packed(&mut self, constant: &TensorRef, packing: Packing) -> Result<Tensor> {
        let element = self.element_of(constant.dtype());
        let rounds_to_f16 = self.round_mode(constant.dtype(), element) == round_mode::F16;
        let prepack = Prepack::new(constant.clone(), packing, element, rounds_to_f16);
        self.prepacked(prepack, constant.dtype(), element, constant.sizes())
    }

    /// As [`Lowering::packed`], with elements of the kind `element` whatever the precision of the node.
    ///
    /// # Errors
    /// As [`Lowering::packed`].
    pub fn packed_as(&mut self, constant: &TensorRef, packing: Packing, element: Element) -> Result<Tensor> {
        let prepack = Prepack::new(constant.clone(), packing, element, false);
        self.prepacked(prepack, constant.dtype(), element, constant.sizes())
    }

    /// Words in device memory that a kernel of the current node reads besides its operands.
    ///
    /// # Errors
    /// As [`Lowering::packed`].
    pub fn words(&mut self, words: &[u32]) -> Result<Tensor> {
        let prepack = Prepack::Words { name: self.label(), words: words.into() };
        self.prepacked(prepack, DType::I32, Element::I32, &[words.len()])
    }

    fn prepacked(
        &mut self,
        prepack: Prepack,
        dtype: DType,
        element: Element,
        sizes: &[usize],
    ) -> Result<Tensor> {
        let len_bytes = prepack.len_bytes()?;
        self.check_size(&[len_bytes / element.size_bytes()], element)?;
        let key = prepack.key();
        let storage = match self.pack_storages.get(&key) {
            Some(&storage) => storage,
            None => {
                let name = prepack.name().to_string();
                let storage =
                    self.add_storage(StorageKind::Constant(self.prepacks.len()), len_bytes as u64, name);
                self.prepacks.push(prepack);
                self.pack_storages.insert(key, storage);
                storage
            }
        };
        let (sizes, strides) = (sizes.to_vec(), shape::contiguous_strides(sizes));
        Ok(Tensor { storage, dtype, element, sizes, strides, offset_elems: 0 })
    }

    /// A contiguous tensor with the elements of `tensor`: itself where it is contiguous already.
    ///
    /// # Errors
    /// As [`Lowering::alloc`].
    pub fn contiguous(&mut self, tensor: &Tensor) -> Result<Tensor> {
        if tensor.is_contiguous() {
            return Ok(Tensor { strides: shape::contiguous_strides(&tensor.sizes), ..tensor.clone() });
        }
        self.duplicate(tensor)
    }

    /// A contiguous tensor that vector loads of 4 elements may start at; a copy where `tensor` is not one.
    ///
    /// # Errors
    /// As [`Lowering::alloc`].
    pub fn contiguous_aligned4(&mut self, tensor: &Tensor) -> Result<Tensor> {
        if tensor.is_contiguous() && tensor.starts_aligned4() {
            return self.contiguous(tensor);
        }
        self.duplicate(tensor)
    }

    /// A new contiguous tensor whose elements are kept as `element`, where a kernel wants more than the dtype does.
    ///
    /// # Errors
    /// As [`Lowering::alloc`].
    pub fn alloc_as(&mut self, dtype: DType, element: Element, sizes: &[usize]) -> Result<Tensor> {
        let len_bytes = self.check_size(sizes, element)?;
        let name = self.current.name.clone();
        let storage = self.add_storage(StorageKind::Arena, len_bytes, name);
        Ok(Tensor {
            storage,
            dtype,
            element,
            sizes: sizes.to_vec(),
            strides: shape::contiguous_strides(sizes),
            offset_elems: 0,
        })
    }

    /// A contiguous copy of `tensor` as `dtype`, converted as `torch.Tensor.to` does.
    ///
    /// # Errors
    /// As [`Lowering::alloc`].
    pub fn converted(&mut self, tensor: &Tensor, dtype: DType) -> Result<Tensor> {
        let out = self.alloc(dtype, &tensor.sizes)?;
        self.copy(tensor, &out)?;
        Ok(out)
    }

    /// A contiguous copy of `tensor` in memory of its own.
    ///
    /// # Errors
    /// As [`Lowering::alloc`].
    pub fn duplicate(&mut self, tensor: &Tensor) -> Result<Tensor> {
        let out = self.alloc_as(tensor.dtype, tensor.element, &tensor.sizes)?;
        self.copy(tensor, &out)?;
        Ok(out)
    }

    /// Copies element by element from `src` to `dst` (of the same sizes), converting where dtypes differ.
    ///
    /// # Errors
    /// When the sizes differ, or the tensors do not merge to 8 dims.
    pub fn copy(&mut self, src: &Tensor, dst: &Tensor) -> Result<()> {
        super::elementwise::copy(self, src, dst)
    }

    /// The storage of the status words, if some kernel asked for them.
    pub fn status_storage(&self) -> Option<StorageId> {
        self.status
    }

    /// The status buffer, made at the first call.
    pub fn status(&mut self) -> Region {
        const STATUS_BYTES: u64 = 16;
        let storage = match self.status {
            Some(storage) => storage,
            None => {
                let storage = self.add_storage(StorageKind::Status, STATUS_BYTES, "status".to_string());
                self.status = Some(storage);
                storage
            }
        };
        Region { storage, offset_bytes: 0, len_bytes: STATUS_BYTES, element_bytes: 4 }
    }
}

mod launch;
