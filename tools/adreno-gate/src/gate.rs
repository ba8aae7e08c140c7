//! When a pipeline is at fault: on its own, and against the committed table.

use crate::table::{MIN_THREADS, Row, Table};

/// What is said of a pipeline.
#[derive(Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing.
    Passes,
    /// A fault that no phone meets.
    Excused(String),
    /// Why the gate fails.
    Fails(String),
}

/// Judges one picked pipeline: no lack of threads, and, where the committed table is of the same compiler `mesa`, at most
/// 10 % more instructions or fewer threads than there.
pub fn judge(row: &Row, committed: &Table, mesa: &str) -> Verdict {
    let before = committed.row(&row.gpu, &row.pipeline);
    if let Some(before) = before
        && committed.mesa == mesa
    {
        if row.instructions * 10 > before.instructions * 11 {
            return Verdict::Fails(format!(
                "takes {} instructions, was {}",
                row.instructions, before.instructions
            ));
        }
        if row.threads * 10 < before.threads * 9 {
            return Verdict::Fails(format!("has {} threads in flight, was {}", row.threads, before.threads));
        }
    }
    if row.lacks_threads() {
        let text = format!("has {} threads in flight, and an Adreno 7xx wants {MIN_THREADS}", row.threads);
        return Verdict::Fails(text);
    }
    Verdict::Passes
}

/// How measured rows and the table differ in what they list, for people; `None` when they list the same.
pub fn staleness(listed: &[&Row], gpu: &str, committed: &Table) -> Option<String> {
    let new = listed.iter().filter(|row| committed.row(gpu, &row.pipeline).is_none()).count();
    let rows = committed.rows.iter().filter(|row| row.gpu == gpu);
    let gone = rows.filter(|row| !listed.iter().any(|found| found.pipeline == row.pipeline)).count();
    (new + gone > 0).then(|| {
        format!(
            "benches/adreno.json lacks {new} pipelines and lists {gone} that are gone; run make adreno-report"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::{Verdict, judge, staleness};
    use crate::table::{Table, tests::row};

    fn committed() -> Table {
        Table {
            mesa: "Mesa 1".into(),
            rows: vec![row("730", "good", 100, 1024), row("730", "low", 100, 640)],
        }
    }

    fn fails(verdict: &Verdict) -> bool {
        matches!(verdict, Verdict::Fails(_))
    }

    #[test]
    fn ten_per_cent_are_allowed_and_no_more() {
        let judged =
            |instructions, threads| judge(&row("730", "good", instructions, threads), &committed(), "Mesa 1");
        assert_eq!(judged(110, 1024), Verdict::Passes);
        assert!(fails(&judged(111, 1024)));
        assert_eq!(judged(50, 922), Verdict::Passes);
        assert!(fails(&judged(50, 921)));
    }

    #[test]
    fn another_compiler_is_compared_by_the_floor_alone() {
        let judged = |threads| judge(&row("730", "good", 500, threads), &committed(), "Mesa 2");
        assert_eq!(judged(768), Verdict::Passes);
        assert!(fails(&judged(767)));
    }

    #[test]
    fn a_lack_of_threads_fails_on_7xx_whatever_the_table_names() {
        let judged = |gpu, pipeline| judge(&row(gpu, pipeline, 100, 640), &committed(), "Mesa 1");
        assert!(fails(&judged("730", "low")));
        assert!(fails(&judged("730", "new")));
        assert!(fails(&judged("750", "low")));
        assert_eq!(judged("830", "low"), Verdict::Passes);
    }

    #[test]
    fn a_table_that_lists_other_pipelines_is_stale() {
        let (good, low, new) = (row("730", "good", 1, 1), row("730", "low", 1, 1), row("730", "new", 1, 1));
        assert_eq!(staleness(&[&good, &low], "730", &committed()), None);
        let text = staleness(&[&good, &new], "730", &committed()).unwrap_or_default();
        assert!(text.contains("lacks 1 pipelines and lists 1"), "{text}");
    }
}
