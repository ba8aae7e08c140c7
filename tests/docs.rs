//! What the README says of the code is what the code does.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::{collections::BTreeMap, fs, path::Path, sync::OnceLock};

use common::{
    cases::Case,
    dtypes::{smallest_cases, takes, with_dtype},
};
use vkdelegate::{base::DType, ops};

const BEGIN: &str = "<!-- supported ops: begin (written by `UPDATE=1 cargo test --test docs`) -->\n";
const END: &str = "<!-- supported ops: end -->";

fn cases() -> &'static BTreeMap<String, Case> {
    static CASES: OnceLock<BTreeMap<String, Case>> = OnceLock::new();
    CASES.get_or_init(smallest_cases)
}

/// The table of supported ops: one row for the ops of one family that take the same dtypes.
fn supported_ops() -> String {
    let cases = cases();
    let mut table = String::from("\n| ops | dtypes |\n|---|---|\n");
    for family in ops::OPS {
        let mut rows: BTreeMap<String, Vec<&str>> = BTreeMap::new();
        for target in ops::supported_targets().into_iter().filter(|target| family.targets().contains(target))
        {
            rows.entry(dtypes_of(cases.get(target))).or_default().push(target);
        }
        let mut rows: Vec<_> = rows.into_iter().map(|(dtypes, targets)| (names(&targets), dtypes)).collect();
        rows.sort();
        rows.iter().for_each(|(names, dtypes)| table.push_str(&format!("| {names} | {dtypes} |\n")));
    }
    table.push_str(&format!("| {} | numbers on the host, such as sizes |\n\n", names(ops::SCALAR_TARGETS)));
    table
}

/// The dtypes with which the op of a case can be planned, floats and integers in short where it takes all of them.
fn dtypes_of(case: Option<&Case>) -> String {
    let Some(case) = case else { return "that of the result: it has no tensor operand".to_string() };
    let taken: Vec<DType> = DType::ALL.into_iter().filter(|&dtype| takes(&with_dtype(case, dtype))).collect();
    let floats = [DType::F32, DType::F16, DType::BF16];
    let ints = [DType::I64, DType::I32, DType::I16, DType::I8, DType::U8];
    let mut words = Vec::new();
    for (word, group) in [("float", &floats[..]), ("int", &ints), ("bool", &[DType::Bool])] {
        let held: Vec<_> = group.iter().filter(|dtype| taken.contains(dtype)).map(DType::to_string).collect();
        if held.len() == group.len() { words.push(word.to_string()) } else { words.extend(held) }
    }
    words.join(", ")
}

/// Names of ops in order, each with its overloads unless `default` is its only one.
fn names(targets: &[&str]) -> String {
    let mut overloads: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for target in targets {
        let (name, overload) = match target.match_indices('.').nth(1) {
            Some((dot, _)) => (&target[..dot], &target[dot + 1..]),
            None => (*target, "default"),
        };
        overloads.entry(name).or_default().push(overload);
    }
    let text = overloads.into_iter().map(|(name, mut overloads)| {
        overloads.sort_unstable();
        if overloads == ["default"] {
            format!("`{name}`")
        } else {
            format!("`{name}` ({})", overloads.join(", "))
        }
    });
    text.collect::<Vec<_>>().join(", ")
}

/// The dtypes of an op are known, and tested, through a case of it.
#[test]
fn every_supported_op_has_a_small_case() {
    let cases = cases();
    let creates = [
        "arange",
        "empty",
        "empty_permuted",
        "empty_strided",
        "eye",
        "full",
        "linspace",
        "ones",
        "scalar_tensor",
        "zeros",
    ];
    let has_operands = |target: &str| !creates.contains(&target.split('.').nth(1).unwrap_or(target));
    let mut missing = ops::supported_targets();
    missing.retain(|target| has_operands(target) && !cases.contains_key(*target));
    assert!(missing.is_empty(), "{missing:?}");
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
