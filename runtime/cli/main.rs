//! The `vkdelegate` command-line tool.
fn main() {}
