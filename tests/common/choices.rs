//! What the kernels of a plan could have been instead.

use std::collections::BTreeMap;

use vkdelegate::{
    delegate::Session,
    shader::{Choices, DeviceClass, DeviceProfile, Dispatch},
};

/// The launches of the session's plan.
pub fn dispatches(session: &Session) -> &[Dispatch] {
    &session.plan().unwrap().dispatches
}

/// For each choice of the plan, by name: the candidates of each way that would do. Those of one way give the same bits.
pub fn offers(session: &Session, profile: &DeviceProfile) -> BTreeMap<String, Vec<Vec<String>>> {
    let choices = dispatches(session).iter().filter_map(|dispatch| dispatch.choice);
    let ways = choices.map(|choice| {
        let mut ways: BTreeMap<usize, Vec<String>> = BTreeMap::new();
        for candidate in choice.candidates(profile) {
            ways.entry(candidate.way).or_default().push(choice.name_of(candidate));
        }
        (choice.name(), ways.into_values().collect())
    });
    ways.collect()
}

/// Asserts that `seen` has every way of the family, those that no phone takes left out where plans are made as for one.
pub fn assert_has_ways(seen: &[String], profile: &DeviceProfile, family: &str, ways: &[&str]) {
    let is_phone = !matches!(profile.class, DeviceClass::Cpu | DeviceClass::Desktop);
    let large = ["rows8", "rows16"];
    for way in ways.iter().filter(|way| !is_phone || !large.contains(way)) {
        assert!(seen.contains(&format!("{family} {way}")), "{family} {way} is not in {seen:?}");
    }
}

/// What the plan takes for each choice.
pub fn taken(session: &Session) -> BTreeMap<String, String> {
    let choices = dispatches(session).iter().filter_map(|dispatch| dispatch.choice);
    choices.map(|choice| (choice.name(), choice.name_of(choice.candidate))).collect()
}

/// Runs with each candidate that `default` could have taken, as `run` makes a session of choices and gives its results,
/// and asserts that the shapes of one way give the same. Returns the ways, as `family way`.
pub fn assert_same_in_every_shape<R: PartialEq>(
    default: &Session,
    profile: &DeviceProfile,
    mut run: impl FnMut(Choices) -> (BTreeMap<String, String>, R),
) -> Vec<String> {
    let mut seen = Vec::new();
    for (choice, ways) in offers(default, profile) {
        let family = choice.split(' ').next().unwrap();
        for names in ways {
            let mut first = None;
            for name in &names {
                let mut choices = Choices::default();
                choices.set(&choice, name);
                let (taken, got) = run(choices);
                assert_eq!(&taken[&choice], name);
                let is_same = first.as_ref().is_none_or(|first| *first == got);
                first.get_or_insert(got);
                assert!(is_same, "{choice}: `{name}` gives other bits than `{}`", names[0]);
            }
            seen.push(format!("{family} {}", names[0].split(' ').next().unwrap()));
        }
    }
    seen
}
