//! The little that the gate reads out of a SPIR-V module: its words and its capabilities.

use anyhow::{Context, Result, bail};

const MAGIC: u32 = 0x0723_0203;
const HEADER_WORDS: usize = 5;
const OP_CAPABILITY: u32 = 17;

/// A SPIR-V module.
pub struct Module {
    /// The module as the driver takes it.
    pub words: Vec<u32>,
    /// Every `OpCapability`, by the number of the SPIR-V standard.
    pub capabilities: Vec<u32>,
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
        Ok(Self { words, capabilities })
    }
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
