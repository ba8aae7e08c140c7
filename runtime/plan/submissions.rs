//! Where a long plan is cut: systems reset a device that one submission keeps busy for a second or two.

use std::ops::Range;

use crate::shader::Dispatch;

/// Runs of dispatches that go into one submission each: at most `most_ops` estimated operations and `most_dispatches`
/// dispatches, but at least one. There is always a first run, if only an empty one.
pub fn submissions(dispatches: &[Dispatch], most_ops: u64, most_dispatches: usize) -> Vec<Range<usize>> {
    let mut runs = Vec::new();
    let (mut start, mut ops) = (0, 0u64);
    for (index, dispatch) in dispatches.iter().enumerate() {
        let own = dispatch.estimated_ops();
        let is_full = ops.saturating_add(own) > most_ops || index - start >= most_dispatches;
        if index > start && is_full {
            runs.push(start..index);
            (start, ops) = (index, 0);
        }
        ops = ops.saturating_add(own);
    }
    runs.push(start..dispatches.len());
    runs
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shader::{KernelRef, TemplateId};

    fn of_ops(ops: &[u64]) -> Vec<Dispatch> {
        let dispatch = |&ops: &u64| Dispatch {
            kernel: KernelRef { template: TemplateId(0), variant: 0 },
            operands: Vec::new(),
            params: Vec::new(),
            spec: Vec::new(),
            groups: [1; 3],
            label: String::new(),
            ops,
            choice: None,
        };
        ops.iter().map(dispatch).collect()
    }

    /// F65.
    #[test]
    fn a_submission_holds_as_much_as_the_budget_and_at_least_one_dispatch() {
        let dispatches = of_ops(&[3, 4, 10, 1, 2, 3, 50, 1]);
        let cut = |ops, count| submissions(&dispatches, ops, count);
        assert_eq!(cut(u64::MAX, usize::MAX), std::slice::from_ref(&(0..8)));
        assert_eq!(cut(10, usize::MAX), [0..2, 2..3, 3..6, 6..7, 7..8]);
        assert_eq!(cut(u64::MAX, 3), [0..3, 3..6, 6..8]);
        assert_eq!(cut(0, usize::MAX).len(), dispatches.len());
        assert_eq!(submissions(&[], 1, 1), std::slice::from_ref(&(0..0)));
        assert_eq!(submissions(&of_ops(&[u64::MAX, u64::MAX]), 10, 8), [0..1, 1..2]);
    }
}
