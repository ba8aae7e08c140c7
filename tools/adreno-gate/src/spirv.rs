//! The little that the gate reads out of a SPIR-V module: its words and its capabilities.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, bail};

const MAGIC: u32 = 0x0723_0203;
const HEADER_WORDS: usize = 5;
const OP_CAPABILITY: u32 = 17;
const OP_DECORATE: u32 = 71;
const OP_TYPE_IMAGE: u32 = 25;
const OP_TYPE_POINTER: u32 = 32;
const OP_VARIABLE: u32 = 59;
const DECORATION_BINDING: u32 = 33;
const DIM_BUFFER: u32 = 5;

/// A SPIR-V module.
pub struct Module {
    /// The module as the driver takes it.
    pub words: Vec<u32>,
    /// Every `OpCapability`, by the number of the SPIR-V standard.
    pub capabilities: Vec<u32>,
    /// A bit for each binding that is a texel buffer.
    pub texel_bindings: u32,
}

impl Module {
    /// Whether it multiplies packed bytes (`DotProduct` and what comes with it).
    pub fn asks_for_packed_dots(&self) -> bool {
        self.capabilities.iter().any(|capability| (6016..=6019).contains(capability))
    }

    /// Reads a little-endian module.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let (chunks, rest) = bytes.as_chunks::<4>();
        if !rest.is_empty() {
            bail!("its length is no multiple of 4");
        }
        Self::from_words(chunks.iter().map(|&word| u32::from_le_bytes(word)).collect())
    }

    /// Takes a module.
    pub fn from_words(words: Vec<u32>) -> Result<Self> {
        if words.first() != Some(&MAGIC) {
            bail!("it does not begin with the magic number");
        }
        let capabilities = capabilities_of(&words)?;
        let texel_bindings = texel_bindings_of(&words);
        Ok(Self { words, capabilities, texel_bindings })
    }
}

/// The bindings of variables whose type is a pointer to an image of the dim `Buffer`. Types stand before variables.
fn texel_bindings_of(words: &[u32]) -> u32 {
    let (mut texel_types, mut bindings) = (BTreeSet::new(), BTreeMap::new());
    let mut found = 0;
    let mut rest = words.get(HEADER_WORDS..).unwrap_or_default();
    while let [first, tail @ ..] = rest {
        let operands = tail.get(..((first >> 16) as usize).saturating_sub(1)).unwrap_or_default();
        match (first & 0xffff, operands) {
            (OP_DECORATE, [id, DECORATION_BINDING, binding]) => drop(bindings.insert(*id, *binding)),
            (OP_TYPE_IMAGE, [id, _, DIM_BUFFER, ..]) => drop(texel_types.insert(*id)),
            (OP_TYPE_POINTER, [id, _, to]) if texel_types.contains(to) => drop(texel_types.insert(*id)),
            (OP_VARIABLE, [kind, id, ..]) if texel_types.contains(kind) => {
                found |= bindings.get(id).map_or(0, |&binding| 1u32.checked_shl(binding).unwrap_or(0));
            }
            _ => {}
        }
        rest = tail.get(operands.len()..).unwrap_or_default();
    }
    found
}

/// Capabilities come first in a module, so the walk ends at the first other instruction.
fn capabilities_of(words: &[u32]) -> Result<Vec<u32>> {
    let mut rest = words.get(HEADER_WORDS..).context("it ends within its header")?;
    let mut capabilities = Vec::new();
    while let [first, capability, tail @ ..] = rest
        && first & 0xffff == OP_CAPABILITY
    {
        capabilities.push(*capability);
        rest = tail;
    }
    Ok(capabilities)
}
