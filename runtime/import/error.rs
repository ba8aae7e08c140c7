//! What can go wrong while a file becomes a program, with the place and the next step.

use std::path::PathBuf;

/// Result of everything in `import`.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a file can't be read as a program. Every text names the place, and a refusal says what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file can't be opened or mapped.
    #[error("cannot read {}: {source}", path.display())]
    Io {
        /// The file as the caller named it.
        path: PathBuf,
        /// The system's own reason.
        source: std::io::Error,
    },
    /// The bytes are damaged, truncated or crafted: nothing that `torch.export.save` writes.
    #[error("damaged file: {place}: {reason}")]
    Damaged {
        /// Entry of the archive, or the archive itself.
        place: String,
        /// What is wrong there.
        reason: String,
    },
    /// A sound file of a kind that this reader does not take.
    #[error("{what}; {hint}")]
    Unsupported {
        /// What the file, or the part of it, is.
        what: String,
        /// What to do about it.
        hint: String,
    },
    /// A method's graph contradicts itself.
    #[error("method `{method}`{}: {reason}", node.as_ref().map(|n| format!(", node `{n}`")).unwrap_or_default())]
    Graph {
        /// Method, as the archive names it.
        method: String,
        /// Node, where the fault belongs to one.
        node: Option<String>,
        /// What is wrong, with the operand or value that it concerns.
        reason: String,
    },
}

impl Error {
    pub(crate) fn damaged(place: impl Into<String>, reason: impl Into<String>) -> Self {
        Error::Damaged { place: place.into(), reason: reason.into() }
    }

    pub(crate) fn unsupported(what: impl Into<String>, hint: impl Into<String>) -> Self {
        Error::Unsupported { what: what.into(), hint: hint.into() }
    }
}
