//! A .pt2 file, as `torch.export.save` of torch 2.9 to 2.15 writes it, becomes methods in the IR.
//!
//! Files are read as hostile: every size, name and offset is checked, a payload's CRC is checked
//! when something first uses it, and nothing in a file is ever executed. Knows nothing of devices,
//! nor of how an op computes.

mod archive;
mod convert;
mod json;
mod layout;
mod pyexpr;
mod schema;
mod symexpr;
#[cfg(test)]
#[path = "../../tests/common/zip.rs"]
mod testing;
mod weights;

use std::path::Path;
use std::sync::Arc;

use crate::base::{Error, ErrorKind, Result};
use crate::ir::Method;

use archive::Archive;
use layout::Layout;
use weights::{Payloads, Tables};

/// A .pt2 file that has been read: its methods, whose constants still lie in the file.
#[derive(Debug)]
pub struct LoadedProgram {
    /// The methods in the order of the file; a graph's name is the method's.
    pub methods: Vec<Method>,
}

/// Opens the file at `path` by mapping it; payloads are read only when something uses them.
///
/// The file must not be changed or truncated while the program is in use.
///
/// # Errors
/// `Io` if the file can't be read, `BadFile` if it is damaged, `Unsupported` if it is something
/// that this reader does not take; the text says how to export it again.
pub fn open(path: &Path) -> Result<LoadedProgram> {
    // What the file system refuses names the path already.
    let name = |e: Error| if e.kind() == ErrorKind::Io { e } else { e.context(path.display()) };
    Archive::open(path).and_then(load).map_err(name)
}

/// Reads a file that is in memory already; see [`open`].
///
/// # Errors
/// As [`open`], but for `Io`.
pub fn from_bytes(bytes: Arc<[u8]>) -> Result<LoadedProgram> {
    load(Archive::from_bytes(bytes)?)
}

fn load(archive: Archive) -> Result<LoadedProgram> {
    let layout = Layout::recognise(&archive)?;
    let mut payloads = Payloads::new(Arc::new(archive));
    let methods = layout.methods.iter().map(|name| load_method(&layout, &mut payloads, name));
    Ok(LoadedProgram { methods: methods.collect::<Result<_>>()? })
}

fn load_method(layout: &Layout, payloads: &mut Payloads, name: &str) -> Result<Method> {
    let place = layout.program(name);
    let program = {
        let entry =
            layout.find(payloads.archive(), &place).ok_or_else(|| damaged(&place, "it is missing"))?;
        schema::parse_program(&place, &payloads.archive().read(entry)?)?
    };
    let tables = Tables::read(payloads.archive(), layout, name)?;
    convert::method(name, &program, &mut |table, fqn| tables.constant(payloads, table, fqn))
        .map_err(|e| e.context(format_args!("method `{name}`")))
}

/// The file is not what torch writes: `place` is an entry of the archive, or what else names the spot.
fn damaged(place: impl std::fmt::Display, reason: impl std::fmt::Display) -> Error {
    Error::bad_file(format!("{place}: {reason}"))
}

/// A sound file of a kind that is not taken, and what to do about it.
fn unsupported(what: impl std::fmt::Display, hint: &str) -> Error {
    Error::unsupported(format!("{what}; {hint}"))
}
