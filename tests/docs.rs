//! What the README says of the code is what the code does.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{collections::BTreeMap, fs, path::Path};

use vkdelegate::ops;

const BEGIN: &str = "<!-- supported ops: begin (written by `UPDATE=1 cargo test --test docs`) -->\n";
const END: &str = "<!-- supported ops: end -->";

/// The table of supported ops, from the table of op families: one row a name, with its overloads.
fn supported_ops() -> String {
    let mut rows: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for target in ops::supported_targets().into_iter().chain(ops::SCALAR_TARGETS.iter().copied()) {
        let (name, overload) = match target.match_indices('.').nth(1) {
            Some((dot, _)) => (&target[..dot], &target[dot + 1..]),
            None => (target, ""),
        };
        rows.entry(name).or_default().push(overload);
    }
    let mut table = String::from("\n| op | overloads |\n|---|---|\n");
    for (name, mut overloads) in rows {
        overloads.sort_unstable();
        table.push_str(&format!("| `{name}` | {} |\n", overloads.join(", ")));
    }
    table.push('\n');
    table
}

#[test]
fn the_readme_lists_the_supported_ops() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md");
    let readme = fs::read_to_string(&path).unwrap();
    let start = readme.find(BEGIN).unwrap() + BEGIN.len();
    let end = readme.find(END).unwrap();
    let table = supported_ops();
    if std::env::var_os("UPDATE").is_some() {
        fs::write(&path, format!("{}{table}{}", &readme[..start], &readme[end..])).unwrap();
        return;
    }
    assert!(
        readme[start..end] == table,
        "the README's table is stale: run `UPDATE=1 cargo test --test docs`"
    );
}

#[test]
fn the_readme_names_no_command_that_make_lacks() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let makefile = fs::read_to_string(root.join("Makefile")).unwrap();
    let readme = fs::read_to_string(root.join("README.md")).unwrap();
    let mut missing = Vec::new();
    for (start, _) in readme.match_indices("make ") {
        let target: String =
            readme[start + 5..].chars().take_while(|c| c.is_ascii_lowercase() || *c == '-').collect();
        let named = readme[..start].ends_with(['`', ' ', '\n'])
            && (readme[..start].ends_with('`') || readme[..start].ends_with('\n'));
        if named && !target.is_empty() && !makefile.contains(&format!("\n{target}:")) {
            missing.push(target);
        }
    }
    assert!(missing.is_empty(), "{missing:?}");
}
