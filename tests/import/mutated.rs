//! Real files, damaged at random: an error or a program, in bounded time, never a panic.

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::common::zip;
use super::{fixture, load, read_constants};

static SEEDS: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    ["symint_input.pt2", "nested_io.pt2", "weight_aliases.pt2", "zero_size.pt2", "running_mean.pt2"]
        .map(|name| std::fs::read(fixture(name)).unwrap())
        .into()
});

/// One damage; positions and lengths are taken modulo what there is.
#[derive(Clone, Debug)]
enum Damage {
    Flip { at: usize, mask: u8 },
    Truncate { at: usize },
    Splice { from: usize, to: usize, len: usize },
    Word { at: usize, value: u64, bytes: usize },
    Insert { at: usize, text: &'static str },
}

fn damage() -> impl Strategy<Value = Damage> {
    let words = prop_oneof![Just(0), Just(u64::MAX), Just(1 << 63), Just(u64::from(u32::MAX)), any::<u64>()];
    let texts = prop_oneof![
        Just("null"),
        Just("-1"),
        Just("{}"),
        Just("[["),
        Just("99999999999999999999"),
        Just("1e400"),
        Just("\"as_graph\":"),
        Just("NaN"),
        Just("\u{fffd}"),
        Just("9223372036854775807")
    ];
    prop_oneof![
        4 => (any::<usize>(), 1u8..).prop_map(|(at, mask)| Damage::Flip { at, mask }),
        1 => any::<usize>().prop_map(|at| Damage::Truncate { at }),
        2 => (any::<usize>(), any::<usize>(), 1usize..200).prop_map(|(from, to, len)| Damage::Splice { from, to, len }),
        2 => (any::<usize>(), words, prop_oneof![Just(2usize), Just(4), Just(8)])
            .prop_map(|(at, value, bytes)| Damage::Word { at, value, bytes }),
        3 => (any::<usize>(), texts).prop_map(|(at, text)| Damage::Insert { at, text }),
    ]
}

fn apply(bytes: &mut Vec<u8>, damage: &Damage) {
    let len = bytes.len().max(1);
    match *damage {
        Damage::Flip { at, mask } => {
            if let Some(byte) = bytes.get_mut(at % len) {
                *byte ^= mask;
            }
        }
        Damage::Truncate { at } => bytes.truncate(at % len),
        Damage::Splice { from, to, len: count } => {
            let from = from % len;
            let piece = bytes[from.min(bytes.len())..(from + count).min(bytes.len())].to_vec();
            let to = (to % len).min(bytes.len());
            bytes.splice(to..(to + piece.len()).min(bytes.len()), piece);
        }
        Damage::Word { at, value, bytes: count } => {
            for (byte, new) in bytes.iter_mut().skip(at % len).zip(value.to_le_bytes()).take(count) {
                *byte = new;
            }
        }
        Damage::Insert { at, text } => {
            let at = (at % len).min(bytes.len());
            bytes.splice(at..(at + text.len()).min(bytes.len()), text.bytes());
        }
    }
}

fn survives(bytes: Vec<u8>) {
    let start = Instant::now();
    if let Ok(program) = load(bytes) {
        let _ = read_constants(&program);
        for method in &program.methods {
            vkdelegate::ir::verify(&method.graph).unwrap();
        }
    }
    assert!(start.elapsed() < Duration::from_secs(10));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    /// Damage anywhere in the file: mostly the archive's own structure, and checksums.
    #[test]
    fn damaged_files(seed in 0usize..5, damages in prop::collection::vec(damage(), 1..4)) {
        let mut bytes = SEEDS[seed].clone();
        damages.iter().for_each(|damage| apply(&mut bytes, damage));
        survives(bytes);
    }

    /// Damage near the end, where the directory is.
    #[test]
    fn damaged_directories(seed in 0usize..5, damages in prop::collection::vec(damage(), 1..4)) {
        let bytes = &SEEDS[seed];
        let (head, tail) = bytes.split_at(bytes.len() - 1500);
        let mut tail = tail.to_vec();
        damages.iter().for_each(|damage| apply(&mut tail, damage));
        survives([head, &tail].concat());
    }

    /// Damage to the content of entries, in an archive with right checksums.
    #[test]
    fn damaged_contents(seed in 0usize..5, entry in any::<usize>(), damages in prop::collection::vec(damage(), 1..4)) {
        let mut entries = zip::unzip(&SEEDS[seed]);
        entries.retain(|(name, _)| name.ends_with(".json") || name.contains("weight_"));
        entries.push(("x/archive_format".into(), b"pt2".to_vec()));
        let prefix = entries[0].0.split('/').next().unwrap().to_owned();
        entries.last_mut().unwrap().0 = format!("{prefix}/archive_format");
        let count = entries.len();
        damages.iter().for_each(|damage| apply(&mut entries[entry % count].1, damage));
        survives(zip::rezip(&entries));
    }
}
