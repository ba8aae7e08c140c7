//! Choices: in which ways a kernel family can launch, and which of them a device gets. Plain data.
//!
//! A [`Family`] lists [`Way`]s, the largest first, and each way the work-group shapes that its kernel takes. Results never
//! depend on the shape. Lowering asks [`Family::choose`]: a tuner's measured choice where there is one, else the way that
//! suits the op in the shape of [`work_groups`]. What limits or features of the device do not allow, and what a tuner has
//! struck out, is never chosen: the next smaller one is. Nothing here opens a device or measures.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use super::{DeviceClass, DeviceProfile, Need, Needs};

/// Work-group shapes to begin with on a class of devices: invocations in x and y.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkGroups {
    /// Of kernels whose invocations take a tile each: x counts panels of columns, y tiles of rows.
    pub tile: [u32; 2],
    /// Of kernels whose invocations share a row.
    pub row: [u32; 2],
}

/// The one table of work-group shapes. Adreno runs waves of 64, which 32 invocations half fill.
pub const fn work_groups(class: DeviceClass) -> WorkGroups {
    match class {
        DeviceClass::Adreno6xx | DeviceClass::Adreno7xx | DeviceClass::Adreno8xx => {
            WorkGroups { tile: [64, 1], row: [64, 1] }
        }
        DeviceClass::Mali | DeviceClass::Desktop => WorkGroups { tile: [32, 2], row: [64, 1] },
        DeviceClass::Cpu => WorkGroups { tile: [32, 1], row: [64, 1] },
    }
}

impl WorkGroups {
    /// The tile shape for `panels` panels of columns: narrow results trade width for height, as far as the class allows,
    /// so that fewer invocations idle. A CPU skips idle ones, and keeps rows of a together.
    pub fn tile_for(self, class: DeviceClass, panels: usize) -> [u32; 2] {
        let [mut x, mut y] = self.tile;
        while class != DeviceClass::Cpu && x > 1 && panels <= x as usize / 2 && suits([x / 2, 2 * y], class) {
            (x, y) = (x / 2, 2 * y);
        }
        [x, y]
    }
}

/// Whether the class takes the shape: Adreno gives wrong results for some that are nearly square.
pub fn suits(local: [u32; 2], class: DeviceClass) -> bool {
    !class.is_adreno() || local[0] >= 4 * local[1]
}

/// One way of a family to compute a result: a variant of a kernel.
#[derive(Debug)]
pub struct Way<T: 'static> {
    /// Name within the family.
    pub name: &'static str,
    /// What lowering needs to know of it. Two ways of a family differ here.
    pub value: T,
    /// Work-group shapes that its kernel takes. All give the same bits.
    pub shapes: &'static [[u32; 2]],
    /// Shared memory in bytes for each invocation of a work group.
    pub shared_bytes: u32,
    /// Features of the device.
    pub needs: Needs,
    /// Whether the registers of a phone hold it.
    pub on_phones: bool,
}

/// A kernel family.
#[derive(Debug)]
pub struct Family<T: 'static> {
    /// Name in reports and tuning files.
    pub name: &'static str,
    /// Its ways, the largest first.
    pub ways: &'static [Way<T>],
}

/// What a choice depends on, besides the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChoiceKey {
    /// Matrix products that run side by side.
    pub batch: usize,
    /// Rows.
    pub m: usize,
    /// Terms of each sum.
    pub k: usize,
    /// Columns.
    pub n: usize,
    /// Dtypes of the operands, in a word.
    pub dtype: &'static str,
}

impl ChoiceKey {
    /// Multiplications and additions of the product.
    pub fn ops(&self) -> u64 {
        [self.batch, self.m, self.k, self.n].iter().fold(2u64, |ops, &size| ops.saturating_mul(size as u64))
    }
}

impl fmt::Display for ChoiceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ChoiceKey { batch, m, k, n, dtype } = self;
        if *batch > 1 { write!(f, "{batch}x{m}x{k}x{n} {dtype}") } else { write!(f, "{m}x{k}x{n} {dtype}") }
    }
}

/// A way in a work-group shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Number of the way in its family.
    pub way: usize,
    /// The work-group shape.
    pub local: [u32; 2],
}

/// What lowering got for one launch.
#[derive(Clone, Copy, Debug)]
pub struct Chosen<T: 'static> {
    /// What the way means to lowering.
    pub value: T,
    /// The work-group shape.
    pub local: [u32; 2],
    /// For the dispatch.
    pub record: ChoiceRecord,
}

impl<T> Chosen<T> {
    /// The same, where lowering takes ways with another order of sums when all of this choice are struck out.
    #[must_use]
    pub fn or_others(self) -> Chosen<T> {
        Chosen { record: ChoiceRecord { has_others: true, ..self.record }, ..self }
    }
}

/// What a dispatch remembers of its choice.
#[derive(Clone, Copy, Debug)]
pub struct ChoiceRecord {
    /// Who offers the candidates.
    pub family: &'static dyn AnyFamily,
    /// What the choice depends on.
    pub key: ChoiceKey,
    /// What was chosen.
    pub candidate: Candidate,
    /// Ways that compute this very op, bit by bit.
    pub ways: u32,
    /// Whether a tuner has measured it.
    pub tuned: bool,
    /// Whether lowering takes ways with another order of sums where all of these are struck out.
    pub has_others: bool,
}

impl ChoiceRecord {
    /// What else could be chosen on the device: all that limits, features and class allow and no tuner has struck out.
    pub fn candidates(&self, profile: &DeviceProfile) -> Vec<Candidate> {
        self.family.allowed(profile, self.ways)
    }

    /// The name of a candidate.
    pub fn name_of(&self, candidate: Candidate) -> String {
        self.family.candidate_name(candidate)
    }

    /// Whether the registers of a phone hold what was chosen.
    pub fn is_for_phones(&self) -> bool {
        self.family.is_for_phones(self.candidate)
    }

    /// What a tuner's table calls the choice.
    pub fn name(&self) -> String {
        choice_name(self.family.name(), &self.key)
    }
}

impl PartialEq for ChoiceRecord {
    fn eq(&self, other: &ChoiceRecord) -> bool {
        self.family.name() == other.family.name()
            && (self.key, self.candidate, self.ways, self.tuned, self.has_others)
                == (other.key, other.candidate, other.ways, other.tuned, other.has_others)
    }
}

impl Eq for ChoiceRecord {}

fn choice_name(family: &str, key: &ChoiceKey) -> String {
    format!("{family} {key}")
}

/// A family, whatever its ways mean.
pub trait AnyFamily: fmt::Debug + Sync {
    /// Its name.
    fn name(&self) -> &'static str;
    /// Candidates of the ways in `ways` that may run on the device.
    fn allowed(&self, profile: &DeviceProfile, ways: u32) -> Vec<Candidate>;
    /// The name of a candidate: way and shape.
    fn candidate_name(&self, candidate: Candidate) -> String;
    /// Whether the registers of a phone hold a candidate.
    fn is_for_phones(&self, candidate: Candidate) -> bool;
    /// Whether one of its ways needs operations among the lanes of a subgroup.
    fn may_use_subgroups(&self) -> bool;
}

impl<T: Copy + PartialEq + fmt::Debug + Sync> AnyFamily for Family<T> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn allowed(&self, profile: &DeviceProfile, ways: u32) -> Vec<Candidate> {
        let of_way = |way: usize| self.ways[way].shapes.iter().map(move |&local| Candidate { way, local });
        let chosen = (0..self.ways.len()).filter(|way| ways >> way & 1 == 1);
        chosen.flat_map(of_way).filter(|&candidate| self.is_allowed(candidate, profile)).collect()
    }

    fn may_use_subgroups(&self) -> bool {
        self.ways.iter().any(|way| way.needs.contains(Need::Subgroup))
    }

    fn is_for_phones(&self, candidate: Candidate) -> bool {
        self.ways.get(candidate.way).is_some_and(|way| way.on_phones)
    }

    fn candidate_name(&self, candidate: Candidate) -> String {
        let [x, y] = candidate.local;
        format!("{} {x}x{y}", self.ways.get(candidate.way).map_or("?", |way| way.name))
    }
}

impl<T: Copy + PartialEq + fmt::Debug + Sync> Family<T> {
    /// The candidate for an op that the ways for which `computes` holds can compute: the tuned one, else `wanted` in the
    /// shape `local`, else the next smaller one that the device allows. `None` when it allows none.
    pub fn choose(
        &'static self,
        profile: &DeviceProfile,
        key: ChoiceKey,
        (wanted, local): (T, [u32; 2]),
        computes: impl Fn(T) -> bool,
    ) -> Option<Chosen<T>> {
        let fitting = self.ways.iter().enumerate().filter(|(_, way)| computes(way.value));
        let ways = fitting.fold(0, |bits, (index, _)| bits | 1 << index);
        let allowed = self.allowed(profile, ways);
        let tuned = profile.choices.tuned(self.name, &key);
        let tuned = tuned.and_then(|name| allowed.iter().find(|&&c| self.candidate_name(c) == name));
        let first = self.ways.iter().position(|way| way.value == wanted).unwrap_or(0);
        let candidate = match tuned {
            Some(&tuned) => tuned,
            None => *allowed.iter().min_by_key(|candidate| self.distance(**candidate, first, local))?,
        };
        let record =
            ChoiceRecord { family: self, key, candidate, ways, tuned: tuned.is_some(), has_others: false };
        Some(Chosen { value: self.ways[candidate.way].value, local: candidate.local, record })
    }

    /// How far a candidate is from the wanted one: smaller ones come before larger ones, first in the same way.
    fn distance(&self, candidate: Candidate, way: usize, local: [u32; 2]) -> (bool, usize, bool, u32, u32) {
        let invocations = |[x, y]: [u32; 2]| x * y;
        let (got, wanted) = (invocations(candidate.local), invocations(local));
        (
            candidate.way < way,
            candidate.way.abs_diff(way),
            got > wanted,
            got.abs_diff(wanted),
            candidate.local[0].abs_diff(local[0]),
        )
    }

    fn is_allowed(&self, candidate: Candidate, profile: &DeviceProfile) -> bool {
        let Some(way) = self.ways.get(candidate.way) else { return false };
        let [x, y] = candidate.local;
        let is_phone = !matches!(profile.class, DeviceClass::Desktop | DeviceClass::Cpu);
        x * y <= profile.max_invocations
            && x <= profile.max_group_size[0]
            && y <= profile.max_group_size[1]
            && x * y * way.shared_bytes <= profile.max_shared_bytes
            && way.needs.missing(profile.features).is_empty()
            && (way.on_phones || !is_phone)
            && suits(candidate.local, profile.class)
            && !profile.choices.is_struck_out(self.name, || self.candidate_name(candidate))
    }
}

/// What a tuner found on a device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Choices {
    tuned: BTreeMap<String, String>,
    struck_out: BTreeSet<(String, String)>,
}

impl Choices {
    /// Whether nothing was found.
    pub fn is_empty(&self) -> bool {
        self.tuned.is_empty() && self.struck_out.is_empty()
    }

    /// The candidate for a choice.
    pub fn tuned(&self, family: &str, key: &ChoiceKey) -> Option<&str> {
        if self.tuned.is_empty() {
            return None;
        }
        self.tuned.get(&choice_name(family, key)).map(String::as_str)
    }

    /// Sets the candidate for what [`ChoiceRecord::name`] calls a choice.
    pub fn set(&mut self, choice: impl Into<String>, candidate: impl Into<String>) {
        self.tuned.insert(choice.into(), candidate.into());
    }

    /// Excludes a candidate of a family, which gave wrong results.
    pub fn strike_out(&mut self, family: impl Into<String>, candidate: impl Into<String>) {
        self.struck_out.insert((family.into(), candidate.into()));
    }

    fn is_struck_out(&self, family: &str, candidate: impl FnOnce() -> String) -> bool {
        !self.struck_out.is_empty() && self.struck_out.contains(&(family.to_string(), candidate()))
    }

    /// All tuned choices and their candidates.
    pub fn all_tuned(&self) -> impl Iterator<Item = (&str, &str)> {
        self.tuned.iter().map(|(choice, candidate)| (choice.as_str(), candidate.as_str()))
    }

    /// All candidates that were struck out, behind their families.
    pub fn all_struck_out(&self) -> impl Iterator<Item = (&str, &str)> {
        self.struck_out.iter().map(|(family, candidate)| (family.as_str(), candidate.as_str()))
    }

    /// Adds what `other` found; it wins where both know a choice.
    pub fn extend(&mut self, other: &Choices) {
        self.tuned.extend(other.tuned.iter().map(|(choice, candidate)| (choice.clone(), candidate.clone())));
        self.struck_out.extend(other.struck_out.iter().cloned());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    const KEY: ChoiceKey = ChoiceKey { batch: 1, m: 8, k: 16, n: 32, dtype: "f32" };
    const SHAPES: &[[u32; 2]] = &[[256, 1], [64, 1], [32, 2], [16, 4], [8, 8], [32, 1]];
    static FAMILY: Family<u32> = Family {
        name: "test",
        ways: &[
            Way {
                name: "rows16",
                value: 16,
                shapes: SHAPES,
                shared_bytes: 0,
                needs: Needs::of(&[]),
                on_phones: false,
            },
            Way {
                name: "rows4",
                value: 4,
                shapes: SHAPES,
                shared_bytes: 256,
                needs: Needs::of(&[]),
                on_phones: true,
            },
        ],
    };

    fn profile(class: DeviceClass) -> DeviceProfile {
        DeviceProfile {
            class,
            max_invocations: 1024,
            max_group_size: [1024; 3],
            max_shared_bytes: 1 << 20,
            ..DeviceProfile::minimum()
        }
    }

    fn chosen(profile: &DeviceProfile, wanted: u32, local: [u32; 2]) -> String {
        let chosen = FAMILY.choose(profile, KEY, (wanted, local), |_| true).unwrap();
        assert_eq!(FAMILY.ways[chosen.record.candidate.way].value, chosen.value);
        chosen.record.name_of(chosen.record.candidate)
    }

    #[test]
    fn what_is_wanted_is_chosen_where_it_may_run() {
        let cpu = profile(DeviceClass::Cpu);
        assert_eq!(chosen(&cpu, 16, [64, 1]), "rows16 64x1");
        assert_eq!(chosen(&cpu, 4, [8, 8]), "rows4 8x8");
        let names: Vec<String> =
            FAMILY.allowed(&cpu, 2).into_iter().map(|candidate| FAMILY.candidate_name(candidate)).collect();
        assert_eq!(names.len(), SHAPES.len());
        assert!(names.iter().all(|name| name.starts_with("rows4 ")), "{names:?}");
    }

    /// F55.
    #[test]
    fn a_candidate_beyond_the_limits_falls_to_the_next_smaller() {
        let weak = DeviceProfile { max_invocations: 128, ..profile(DeviceClass::Cpu) };
        assert_eq!(chosen(&weak, 16, [256, 1]), "rows16 64x1");
        let weak = DeviceProfile { max_invocations: 32, ..weak };
        assert_eq!(chosen(&weak, 16, [64, 1]), "rows16 32x1");
        let narrow = DeviceProfile { max_group_size: [32; 3], ..profile(DeviceClass::Cpu) };
        assert_eq!(chosen(&narrow, 16, [64, 1]), "rows16 32x2");
        let few_bytes = DeviceProfile { max_shared_bytes: 32 * 256, ..profile(DeviceClass::Cpu) };
        assert_eq!(chosen(&few_bytes, 4, [64, 1]), "rows4 32x1");
        let none = DeviceProfile { max_invocations: 1, ..weak };
        assert!(FAMILY.choose(&none, KEY, (16, [64, 1]), |_| true).is_none());
    }

    #[test]
    fn phones_take_no_large_tiles_and_adreno_no_square_groups() {
        for class in [DeviceClass::Adreno6xx, DeviceClass::Adreno7xx, DeviceClass::Adreno8xx] {
            assert_eq!(chosen(&profile(class), 16, [8, 8]), "rows4 16x4");
            let first = work_groups(class);
            assert!((1..2000).all(|panels| suits(first.tile_for(class, panels), class)));
        }
        assert_eq!(chosen(&profile(DeviceClass::Mali), 16, [8, 8]), "rows4 8x8");
        assert!(!suits([8, 8], DeviceClass::Adreno7xx) && !suits([4, 16], DeviceClass::Adreno7xx));
    }

    #[test]
    fn narrow_results_get_narrow_groups() {
        let shape = |class, panels| work_groups(class).tile_for(class, panels);
        assert_eq!(shape(DeviceClass::Adreno7xx, 96), [64, 1]);
        assert_eq!(shape(DeviceClass::Adreno7xx, 32), [32, 2]);
        assert_eq!(shape(DeviceClass::Adreno7xx, 1), [16, 4]);
        assert_eq!(shape(DeviceClass::Cpu, 1), [32, 1]);
    }

    #[test]
    fn a_tuned_choice_wins_and_a_struck_out_one_never_comes_back() {
        let mut found = Choices::default();
        assert!(found.is_empty());
        found.set("test 8x16x32 f32", "rows4 16x4");
        let tuned = DeviceProfile { choices: Arc::new(found.clone()), ..profile(DeviceClass::Cpu) };
        assert_eq!(chosen(&tuned, 16, [64, 1]), "rows4 16x4");
        found.strike_out("test", "rows4 16x4");
        found.strike_out("test", "rows16 64x1");
        let struck = DeviceProfile { choices: Arc::new(found), ..profile(DeviceClass::Cpu) };
        assert_eq!(chosen(&struck, 16, [64, 1]), "rows16 32x2");
        let names = FAMILY.allowed(&struck, !0).len();
        assert_eq!(names, 2 * SHAPES.len() - 2);
    }

    #[test]
    fn a_tuned_choice_that_the_device_does_not_take_is_ignored() {
        let mut found = Choices::default();
        found.set("test 8x16x32 f32", "rows16 256x1");
        let choices = Arc::new(found);
        let weak = DeviceProfile { choices, max_invocations: 128, ..profile(DeviceClass::Cpu) };
        assert_eq!(chosen(&weak, 4, [32, 1]), "rows4 32x1");
    }
}
