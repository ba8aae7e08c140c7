//! Which of the right candidates is the fastest, on a device that others use too.
//!
//! All are timed in turn, and the shortest times tell which are worth a closer look. Those may be a matter of luck, so one
//! replaces the default only when it then wins nearly all of a series of bouts against it: of equals, or of slower ones,
//! hardly any does. Never knows what a candidate computes.

use std::time::Instant;

use crate::base::Result;

/// Timed runs of each candidate.
const ROUNDS: usize = 7;

/// A candidate is worth it when it takes at most this part of the default's time.
const WORTH_IT: f64 = 0.97;

/// A candidate that takes so many times the best is not timed again.
const HOPELESS: f64 = 2.0;

/// The fastest candidates that are held to the default, at most.
const CHALLENGERS: usize = 3;

/// Bouts of a challenger and the default: of equals, 3 in 100 would win so many.
const BOUTS: usize = 11;
const WINS: usize = 9;

/// Runs of each in a bout, of which the shortest counts.
const RUNS: usize = 3;

/// Times candidates by number: `run` gives the microseconds of a run, `None` for one that has no time or memory left. The
/// first is the default where `has_default`. Updates the shortest times, and gives the number of the one to take; `None`
/// when none was timed. After `deadline`, all have been timed once, and nothing replaces the default any more.
///
/// # Errors
/// Those of `run`.
pub(super) fn fastest(
    best_us: &mut [f64],
    has_default: bool,
    deadline: Instant,
    mut run: impl FnMut(usize) -> Result<Option<f64>>,
) -> Result<Option<usize>> {
    let mut least_us = f64::INFINITY;
    for round in 0..ROUNDS {
        if round > 0 && Instant::now() >= deadline {
            break;
        }
        let limit_us = if round == 0 { f64::INFINITY } else { HOPELESS * least_us };
        for (number, best_us) in best_us.iter_mut().enumerate() {
            if round == 0 || *best_us <= limit_us {
                *best_us = best_us.min(run(number)?.unwrap_or(f64::INFINITY));
                least_us = least_us.min(*best_us);
            }
        }
    }
    let mut order: Vec<usize> = (0..best_us.len()).filter(|&number| best_us[number].is_finite()).collect();
    order.sort_by(|&a, &b| best_us[a].total_cmp(&best_us[b]));
    if !has_default || !best_us.first().is_some_and(|us| us.is_finite()) {
        return Ok(order.first().copied());
    }
    let limit_us = WORTH_IT * best_us[0];
    order.retain(|&number| best_us[number] <= limit_us);
    for challenger in order.into_iter().take(CHALLENGERS) {
        if wins(challenger, best_us, deadline, &mut run)? {
            return Ok(Some(challenger));
        }
    }
    Ok(Some(0))
}

/// Whether the challenger wins its bouts against the default, before `deadline`.
fn wins(
    challenger: usize,
    best_us: &mut [f64],
    deadline: Instant,
    run: &mut impl FnMut(usize) -> Result<Option<f64>>,
) -> Result<bool> {
    let mut won = 0;
    for bout in 0..BOUTS {
        if won + BOUTS - bout < WINS || Instant::now() >= deadline {
            return Ok(false);
        }
        let mut sides = [(0, f64::INFINITY), (challenger, f64::INFINITY)];
        // Each goes first as often as the other.
        if bout % 2 == 1 {
            sides.reverse();
        }
        for _ in 0..RUNS {
            for (number, us) in &mut sides {
                *us = us.min(run(*number)?.unwrap_or(f64::INFINITY));
            }
        }
        for (number, us) in sides {
            best_us[number] = best_us[number].min(us);
        }
        sides.sort_by_key(|&(number, _)| number != 0);
        let [(_, default_us), (_, challenger_us)] = sides;
        won += usize::from(challenger_us.is_finite() && challenger_us <= WORTH_IT * default_us);
    }
    Ok(won >= WINS)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// What is taken of candidates that take so long, each run as much longer as `noise` says.
    fn taken(
        times: &[f64],
        has_default: bool,
        patience_s: u64,
        mut noise: impl FnMut() -> f64,
    ) -> Option<usize> {
        let mut best_us = vec![f64::INFINITY; times.len()];
        let deadline = Instant::now() + Duration::from_secs(patience_s);
        let run = |number: usize| Ok(times[number].is_finite().then(|| times[number] * noise()));
        fastest(&mut best_us, has_default, deadline, run).unwrap()
    }

    #[test]
    fn the_fastest_is_taken_if_it_is_worth_it() {
        let taken = |times: &[f64], has_default| taken(times, has_default, 60, || 1.0);
        assert_eq!(taken(&[10.0, 5.0, 7.0], true), Some(1));
        assert_eq!(taken(&[10.0, 9.8], true), Some(0));
        assert_eq!(taken(&[9.9, 9.8], false), Some(1));
        assert_eq!(taken(&[f64::INFINITY, 9.8], true), Some(1));
        assert_eq!(taken(&[f64::INFINITY], true), None);
        assert_eq!(taken(&[], false), None);
    }

    /// Times on a shared device are up to twice as long, now and then by chance for one only.
    #[test]
    fn luck_does_not_replace_the_default() {
        let mut replaced = 0;
        for seed in 1..=200u64 {
            let mut state = seed;
            let noise = || {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let part = (state >> 33) as f64 / (1u64 << 31) as f64;
                1.0 + part * part
            };
            replaced += usize::from(taken(&[10.0; 8], true, 60, noise) != Some(0));
        }
        assert!(replaced <= 10, "{replaced} of 200");
    }

    #[test]
    fn after_the_deadline_nothing_replaces_the_default() {
        assert_eq!(taken(&[10.0, 5.0], true, 0, || 1.0), Some(0));
        assert_eq!(taken(&[10.0, 5.0], false, 0, || 1.0), Some(1));
    }
}
