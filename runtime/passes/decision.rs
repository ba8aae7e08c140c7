//! What passes report of their work, for people and for `inspect`.

/// What became of one matrix product, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Name of the node in the program.
    pub node: String,
    /// Base name of its op in the program, such as `addmm`.
    pub op: String,
    /// Base name of what it became: `linear`, or what it was; `constant` when it was folded.
    pub became: String,
    /// Name of the second operand, which decides.
    pub operand: String,
    /// Whether that operand is a constant of the program.
    pub constant: bool,
    /// One line: `mm_3: kept mm: mat2 = permute_5 <- addmm_1 <- user input "style"`.
    pub reason: String,
}

/// Nodes that run as one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fusion {
    /// What they are together, such as `attention`.
    pub kind: String,
    /// Names of the nodes in the program.
    pub nodes: Vec<String>,
}

/// What looks like a group that could run as one, and stays as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unfused {
    /// What it would be, such as `attention`.
    pub kind: String,
    /// The node by which it was found.
    pub node: String,
    /// Why not, in one line.
    pub reason: String,
}
