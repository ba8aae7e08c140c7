//! The one error type: a kind to branch on, a text to read, and the node it is about where there is one.

use std::fmt;

/// A result whose error is [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What sort of thing went wrong, for callers that branch on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A file could not be opened or read.
    Io,
    /// The bytes of a program are not what `torch.export.save` writes, or are damaged.
    BadFile,
    /// The program is sound, but this runtime or this device cannot run it.
    Unsupported,
    /// A value given by the caller does not fit: a name, a dtype, a shape, an option.
    InvalidInput,
    /// A graph breaks a rule of the IR.
    InvalidGraph,
    /// There is no Vulkan loader or no usable device.
    NoDevice,
    /// Memory of the device ran out.
    OutOfMemory,
    /// The device was lost; it has to be opened anew.
    DeviceLost,
    /// The work did not end within the time allowed; it may still end.
    Timeout,
    /// A kernel met data it cannot process, such as an index out of range.
    BadData,
    /// The state of the delegate is unknown after a failed run: `reset` or `set_state` first.
    PoisonedState,
    /// A Vulkan call failed, or a rule of this crate was broken: a fault to report.
    Internal,
}

impl ErrorKind {
    /// What to do about errors of this kind, as a sentence without a full stop. The error's own text says what is
    /// wrong, and where it can, what to do in its very case.
    pub fn next_step(self) -> &'static str {
        match self {
            ErrorKind::Io => "check the path and its permissions",
            ErrorKind::BadFile => {
                "export the program again with torch.export.save, and compare the file's size with the original"
            }
            ErrorKind::Unsupported => {
                "change the model or its export as the text says; `vkdelegate inspect` names every node that cannot run"
            }
            ErrorKind::InvalidInput => {
                "give what the text says was expected; `vkdelegate inspect` lists methods and inputs, `vkdelegate devices` devices"
            }
            ErrorKind::InvalidGraph => {
                "export the program again; if it was built by hand, compare the node with the op's schema"
            }
            ErrorKind::NoDevice => {
                "install a Vulkan driver, or run on the host with HostDelegate (`vkdelegate run --fallback`)"
            }
            ErrorKind::OutOfMemory => {
                "use smaller inputs, half precision or quantised weights, or call trim() on delegates that rest"
            }
            ErrorKind::DeviceLost => "open the device anew and build the delegate again",
            ErrorKind::Timeout => "raise the timeout, or use smaller inputs",
            ErrorKind::BadData => {
                "check the values that the named node reads, then reset the state where there is any"
            }
            ErrorKind::PoisonedState => "call reset() or set_state() before the next run",
            ErrorKind::Internal => "report it with the program, the device's name and its driver",
        }
    }
}

/// One node that cannot be taken, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Name of the node in the program.
    pub node: String,
    /// ATen target of the node, such as `aten.mm.default`.
    pub op: String,
    /// The operand at fault, where one is.
    pub operand: Option<String>,
    /// Why it is refused, and what to do.
    pub reason: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.node, self.op)?;
        if let Some(operand) = &self.operand {
            write!(f, ", operand `{operand}`")?;
        }
        write!(f, ": {}", self.reason)
    }
}

/// The error of every fallible call of this crate.
///
/// Opaque on purpose: read [`kind`](Error::kind), [`node`](Error::node) and
/// [`refusals`](Error::refusals), print it with `Display`.
#[derive(Clone)]
pub struct Error(Box<Inner>);

#[derive(Clone)]
struct Inner {
    kind: ErrorKind,
    message: String,
    node: Option<String>,
    operand: Option<String>,
    refusals: Vec<Refusal>,
}

impl Error {
    /// An error of `kind` that says `message`.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Error {
        Error(Box::new(Inner {
            kind,
            message: message.into(),
            node: None,
            operand: None,
            refusals: Vec::new(),
        }))
    }

    /// [`ErrorKind::Unsupported`] with `message`.
    pub fn unsupported(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::Unsupported, message)
    }

    /// [`ErrorKind::InvalidInput`] with `message`.
    pub fn invalid_input(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::InvalidInput, message)
    }

    /// [`ErrorKind::InvalidGraph`] with `message`.
    pub fn invalid_graph(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::InvalidGraph, message)
    }

    /// [`ErrorKind::BadFile`] with `message`.
    pub fn bad_file(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::BadFile, message)
    }

    /// [`ErrorKind::Internal`] with `message`.
    pub fn internal(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::Internal, message)
    }

    /// Every node that a build refuses, at once.
    pub fn refused(refusals: Vec<Refusal>) -> Error {
        let mut error = Error::unsupported(match refusals.len() {
            1 => "1 node cannot run".to_string(),
            n => format!("{n} nodes cannot run"),
        });
        error.0.node = refusals.first().map(|refusal| refusal.node.clone());
        error.0.operand = refusals.first().and_then(|refusal| refusal.operand.clone());
        error.0.refusals = refusals;
        error
    }

    /// Names the node the error is about, unless it names one already.
    #[must_use]
    pub fn at_node(mut self, node: impl Into<String>) -> Error {
        self.0.node.get_or_insert_with(|| node.into());
        self
    }

    /// Names the operand the error is about, unless it names one already.
    #[must_use]
    pub fn at_operand(mut self, operand: impl Into<String>) -> Error {
        self.0.operand.get_or_insert_with(|| operand.into());
        self
    }

    /// Puts `context` and a colon before the message.
    #[must_use]
    pub fn context(mut self, context: impl fmt::Display) -> Error {
        self.0.message = format!("{context}: {}", self.0.message);
        self
    }

    /// What sort of error it is.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The node of the program that it is about, if it is about one.
    pub fn node(&self) -> Option<&str> {
        self.0.node.as_deref()
    }

    /// The operand of that node that is at fault, if one is.
    pub fn operand(&self) -> Option<&str> {
        self.0.operand.as_deref()
    }

    /// The text without node and operand.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// All nodes that a build refuses; empty for other errors.
    pub fn refusals(&self) -> &[Refusal] {
        &self.0.refusals
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.0.refusals.is_empty() {
            write!(f, "{}", self.0.message)?;
            return self.0.refusals.iter().try_for_each(|refusal| write!(f, "\n  {refusal}"));
        }
        match (&self.0.node, &self.0.operand) {
            (Some(node), Some(operand)) => write!(f, "{node}, operand `{operand}`: {}", self.0.message),
            (Some(node), None) => write!(f, "{node}: {}", self.0.message),
            (None, Some(operand)) => write!(f, "operand `{operand}`: {}", self.0.message),
            (None, None) => f.write_str(&self.0.message),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {self}", self.0.kind)
    }
}

impl std::error::Error for Error {}
