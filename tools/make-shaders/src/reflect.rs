//! Reads what the index and the tests need out of SPIR-V words: capabilities, bindings of storage buffers and of texels,
//! push block, spec ids.
//!
//! A plain walk over the instructions. It knows nothing of templates, and names are there only in
//! unoptimised modules.

use std::collections::{BTreeMap, BTreeSet};

/// One member of the push-constant block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Name; empty in optimised modules.
    pub name: String,
    /// `uint`, `int` or `float`; empty for anything else.
    pub scalar: String,
    /// Vector components; 1 for scalars.
    pub components: u32,
    /// Array elements; 0 for no array.
    pub elements: u32,
    /// Byte offset in the block.
    pub offset_bytes: u32,
    /// Size in bytes.
    pub size_bytes: u32,
}

/// One binding, of a storage buffer or of texels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Binding {
    /// Name of the block type, or of the variable of texels; empty in optimised modules.
    pub name: String,
    /// A uniform texel buffer, which is readonly.
    pub texels: bool,
    /// Declared `readonly`.
    pub readonly: bool,
    /// Declared `writeonly`.
    pub writeonly: bool,
}

/// What a module declares.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reflection {
    /// SPIR-V version as `(major, minor)`.
    pub version: (u32, u32),
    /// Capability names, or numbers where the name is unknown here.
    pub capabilities: BTreeSet<String>,
    /// Extensions.
    pub extensions: BTreeSet<String>,
    /// Buffers by binding number.
    pub bindings: BTreeMap<u32, Binding>,
    /// Push-constant members in order.
    pub push: Vec<Member>,
    /// Ids of all spec constants.
    pub spec_ids: BTreeSet<u32>,
    /// Spec ids of the work-group size in x, y, z; `None` where it is fixed.
    pub local_ids: [Option<u32>; 3],
    /// Whether there are variables in shared memory.
    pub has_shared: bool,
}

impl Reflection {
    /// Bytes of the push-constant block.
    pub fn push_bytes(&self) -> u32 {
        self.push.iter().map(|m| m.offset_bytes.saturating_add(m.size_bytes)).max().unwrap_or(0)
    }
}

#[derive(Debug, Clone)]
enum Type {
    Int { signed: bool },
    Float,
    Vector { of: u32, count: u32 },
    Array { of: u32, length_id: u32 },
    Struct { members: Vec<u32> },
    Pointer { to: u32 },
    Texels,
}

/// What the first pass over the module collects.
#[derive(Default)]
struct Tables {
    names: BTreeMap<u32, String>,
    member_names: BTreeMap<(u32, u32), String>,
    decorations: BTreeMap<(u32, u32), u32>,
    member_decorations: BTreeMap<(u32, u32, u32), u32>,
    types: BTreeMap<u32, Type>,
    constants: BTreeMap<u32, u32>,
    composites: BTreeMap<u32, Vec<u32>>,
    variables: Vec<(u32, u32, u32)>,
}

const SPEC_ID: u32 = 1;
const BUILT_IN: u32 = 11;
const NON_WRITABLE: u32 = 24;
const NON_READABLE: u32 = 25;
const BINDING: u32 = 33;
const OFFSET: u32 = 35;
const WORKGROUP_SIZE: u32 = 25;
const DIM_BUFFER: u32 = 5;
const CLASS_UNIFORM_CONSTANT: u32 = 0;
const CLASS_WORKGROUP: u32 = 4;
const CLASS_PUSH_CONSTANT: u32 = 9;
const CLASS_STORAGE_BUFFER: u32 = 12;

/// The instructions of a module as `(opcode, operands)`.
///
/// # Errors
/// When the words are no SPIR-V or end within an instruction.
pub fn instructions(words: &[u32]) -> Result<Vec<(u16, &[u32])>, String> {
    if words.first() != Some(&0x0723_0203) {
        return Err("no SPIR-V magic number".to_owned());
    }
    let mut rest = words.get(5..).ok_or("the SPIR-V header is cut off")?;
    let mut all = Vec::new();
    while let Some(first) = rest.first() {
        let length = (first >> 16) as usize;
        let operands = rest.get(1..length).ok_or("a SPIR-V instruction is cut off")?;
        all.push(((first & 0xffff) as u16, operands));
        rest = rest.get(length..).unwrap_or_default();
    }
    Ok(all)
}

/// Reflects a module.
///
/// # Errors
/// When the words are no SPIR-V.
pub fn reflect(words: &[u32]) -> Result<Reflection, String> {
    let version = words.get(1).copied().unwrap_or(0);
    let mut out =
        Reflection { version: (version >> 16 & 0xff, version >> 8 & 0xff), ..Reflection::default() };
    let mut tables = Tables::default();
    for (opcode, operands) in instructions(words)? {
        match (opcode, operands) {
            (17, [capability]) => drop(out.capabilities.insert(capability_name(*capability))),
            (10, text) => drop(out.extensions.insert(literal(text))),
            _ => tables.take(opcode, operands),
        }
    }
    out.spec_ids =
        tables.decorations.iter().filter(|((_, kind), _)| *kind == SPEC_ID).map(|(_, id)| *id).collect();
    out.local_ids = tables.local_ids();
    for (pointer, id, class) in &tables.variables {
        let Some(Type::Pointer { to }) = tables.types.get(pointer) else { continue };
        match *class {
            CLASS_WORKGROUP => out.has_shared = true,
            CLASS_PUSH_CONSTANT => out.push = tables.members(*to),
            CLASS_UNIFORM_CONSTANT if matches!(tables.types.get(to), Some(Type::Texels)) => {
                let binding = tables.decorations.get(&(*id, BINDING)).copied().unwrap_or(u32::MAX);
                let name = tables.names.get(id).cloned().unwrap_or_default();
                let texels = Binding { name, texels: true, readonly: true, writeonly: false };
                out.bindings.insert(binding, texels);
            }
            CLASS_STORAGE_BUFFER => {
                let binding = tables.decorations.get(&(*id, BINDING)).copied().unwrap_or(u32::MAX);
                out.bindings.entry(binding).or_insert_with(|| tables.binding(*id, *to));
            }
            _ => {}
        }
    }
    Ok(out)
}

impl Tables {
    fn take(&mut self, opcode: u16, operands: &[u32]) {
        match (opcode, operands) {
            (5, [id, text @ ..]) => drop(self.names.insert(*id, literal(text))),
            (6, [id, member, text @ ..]) => drop(self.member_names.insert((*id, *member), literal(text))),
            (71, [id, kind, value @ ..]) => {
                self.decorations.insert((*id, *kind), value.first().copied().unwrap_or(0));
            }
            (72, [id, member, kind, value @ ..]) => {
                self.member_decorations.insert((*id, *member, *kind), value.first().copied().unwrap_or(0));
            }
            (21, [id, _, signed]) => drop(self.types.insert(*id, Type::Int { signed: *signed != 0 })),
            (22, [id, ..]) => drop(self.types.insert(*id, Type::Float)),
            (23, [id, of, count]) => drop(self.types.insert(*id, Type::Vector { of: *of, count: *count })),
            (25, [id, _, DIM_BUFFER, ..]) => drop(self.types.insert(*id, Type::Texels)),
            (28, [id, of, length_id]) => {
                self.types.insert(*id, Type::Array { of: *of, length_id: *length_id });
            }
            (30, [id, members @ ..]) => {
                drop(self.types.insert(*id, Type::Struct { members: members.to_vec() }))
            }
            (32, [id, _, to]) => drop(self.types.insert(*id, Type::Pointer { to: *to })),
            (43 | 50, [_, id, value]) => drop(self.constants.insert(*id, *value)),
            (44 | 51, [_, id, parts @ ..]) => drop(self.composites.insert(*id, parts.to_vec())),
            (59, [pointer, id, class, ..]) => self.variables.push((*pointer, *id, *class)),
            _ => {}
        }
    }

    fn local_ids(&self) -> [Option<u32>; 3] {
        let size = self
            .composites
            .iter()
            .find(|(id, _)| self.decorations.get(&(**id, BUILT_IN)) == Some(&WORKGROUP_SIZE));
        let mut ids = [None; 3];
        for (slot, part) in ids.iter_mut().zip(size.map(|(_, parts)| parts.as_slice()).unwrap_or_default()) {
            *slot = self.decorations.get(&(*part, SPEC_ID)).copied();
        }
        ids
    }

    fn binding(&self, variable: u32, block: u32) -> Binding {
        let decorated = |kind| {
            self.decorations.contains_key(&(variable, kind))
                || self.member_decorations.contains_key(&(block, 0, kind))
        };
        Binding {
            name: self.names.get(&block).cloned().unwrap_or_default(),
            texels: false,
            readonly: decorated(NON_WRITABLE),
            writeonly: decorated(NON_READABLE),
        }
    }

    fn members(&self, block: u32) -> Vec<Member> {
        let Some(Type::Struct { members }) = self.types.get(&block) else { return Vec::new() };
        let member = |(number, id): (u32, &u32)| {
            let (element, elements) = match self.types.get(id) {
                Some(Type::Array { of, length_id }) => {
                    (*of, self.constants.get(length_id).copied().unwrap_or(0))
                }
                _ => (*id, 0),
            };
            let (part, components) = match self.types.get(&element) {
                Some(Type::Vector { of, count }) => (*of, *count),
                _ => (element, 1),
            };
            let scalar = match self.types.get(&part) {
                Some(Type::Int { signed: false }) => "uint",
                Some(Type::Int { signed: true }) => "int",
                Some(Type::Float) => "float",
                _ => "",
            };
            Member {
                name: self.member_names.get(&(block, number)).cloned().unwrap_or_default(),
                scalar: scalar.to_owned(),
                components,
                elements,
                offset_bytes: self.member_decorations.get(&(block, number, OFFSET)).copied().unwrap_or(0),
                size_bytes: components.saturating_mul(4).saturating_mul(elements.max(1)),
            }
        };
        (0..).zip(members).map(member).collect()
    }
}

/// A nul-terminated string in little-endian words.
fn literal(words: &[u32]) -> String {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).take_while(|b| *b != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

fn capability_name(number: u32) -> String {
    let name = match number {
        1 => "Shader",
        9 => "Float16",
        10 => "Float64",
        11 => "Int64",
        22 => "Int16",
        39 => "Int8",
        46 => "SampledBuffer",
        50 => "ImageQuery",
        61 => "GroupNonUniform",
        62 => "GroupNonUniformVote",
        63 => "GroupNonUniformArithmetic",
        64 => "GroupNonUniformBallot",
        65 => "GroupNonUniformShuffle",
        4433 => "StorageBuffer16BitAccess",
        4434 => "UniformAndStorageBuffer16BitAccess",
        4448 => "StorageBuffer8BitAccess",
        4449 => "UniformAndStorageBuffer8BitAccess",
        5345 => "VulkanMemoryModel",
        5347 => "PhysicalStorageBufferAddresses",
        6016 => "DotProductInputAll",
        6017 => "DotProductInput4x8Bit",
        6018 => "DotProductInput4x8BitPacked",
        6019 => "DotProduct",
        6022 => "CooperativeMatrixKHR",
        _ => return format!("Capability{number}"),
    };
    name.to_owned()
}
