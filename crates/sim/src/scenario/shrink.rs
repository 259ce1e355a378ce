//! Reduction of a failure: fewer steps, fewer hosts, a better network.
//!
//! Delta debugging ("ddmin"; Zeller and Hildebrandt, "Simplifying and Isolating Failure-Inducing
//! Input", 2002): parts of a list are removed as long as the rest still fails, in ever smaller
//! parts.

use super::{Failure, Scenario};
use crate::{Conditions, HostId};

impl Scenario {
    /// Returns a scenario that fails in the same way and from which nothing more could be removed
    /// in `runs` runs.
    pub fn shrink(&self, failure: &Failure, runs: u32) -> Self {
        self.shrink_while(runs, |scenario| {
            scenario.run().failure.is_some_and(|other| other.is_like(failure))
        })
    }

    /// Like [`Scenario::shrink`], for any definition of failure: `fails` is called at most `runs`
    /// times.
    pub fn shrink_while(&self, mut runs: u32, mut fails: impl FnMut(&Self) -> bool) -> Self {
        let mut best = self.clone();
        loop {
            let before = (best.steps.len(), best.without.len());
            let mut still = |scenario: &Self| {
                runs = runs.saturating_sub(1);
                runs > 0 && fails(scenario)
            };
            best.drop_hosts(&mut still);
            best.drop_steps(&mut still);
            best.calm_network(&mut still);
            if runs == 0 || before == (best.steps.len(), best.without.len()) {
                return best;
            }
        }
    }

    fn drop_steps(&mut self, fails: &mut impl FnMut(&Self) -> bool) {
        let kept = minimise(&self.steps.clone(), |steps| {
            let steps = steps.to_vec();
            fails(&Self { steps, ..self.clone() })
        });
        self.steps = kept;
    }

    fn drop_hosts(&mut self, fails: &mut impl FnMut(&Self) -> bool) {
        let present: Vec<HostId> = (0..self.nodes).filter(|host| !self.without.contains(host)).collect();
        let with = |scenario: &Self, kept: &[HostId]| {
            let gone = (0..scenario.nodes).filter(|host| !kept.contains(host)).collect();
            let mut scenario = Self {
                without: gone,
                ..scenario.clone()
            };
            scenario.forget_absent();
            scenario
        };
        let kept = minimise(&present, |kept| fails(&with(self, kept)));
        *self = with(self, &kept);
    }

    /// Steps that name an absent host have no effect.
    fn forget_absent(&mut self) {
        let without = &self.without;
        self.steps
            .retain(|step| step.action.hosts().all(|host| !without.contains(&host)));
        self.nats.retain(|(host, _)| !without.contains(host));
    }

    fn calm_network(&mut self, fails: &mut impl FnMut(&Self) -> bool) {
        let delay = self.conditions.delay;
        let calm = Conditions {
            delay,
            ..Conditions::default()
        };
        let candidates = [
            Self {
                conditions: calm,
                ..self.clone()
            },
            Self {
                nats: Vec::new(),
                ..self.clone()
            },
        ];
        for candidate in candidates {
            let news = candidate != *self;
            if news && fails(&candidate) {
                *self = candidate;
            }
        }
        let end = self.steps.last().map_or(self.duration, |step| step.at);
        let shorter = Self {
            duration: end,
            ..self.clone()
        };
        if end < self.duration && fails(&shorter) {
            *self = shorter;
        }
    }
}

/// Returns a part of `items`, in their order, that still fails and from which no single one can be
/// removed.
fn minimise<T: Clone>(items: &[T], mut fails: impl FnMut(&[T]) -> bool) -> Vec<T> {
    let mut kept = items.to_vec();
    let mut size = kept.len().div_ceil(2);
    while size > 0 {
        let mut from = 0;
        let mut dropped = false;
        while from < kept.len() {
            let to = (from + size).min(kept.len());
            let rest: Vec<T> = kept[..from].iter().chain(&kept[to..]).cloned().collect();
            if fails(&rest) {
                (kept, dropped) = (rest, true);
            } else {
                from = to;
            }
        }
        size = match size {
            1 if dropped => 1,
            1 => 0,
            _ => size.div_ceil(2),
        };
    }
    kept
}

#[cfg(test)]
#[allow(
    clippy::panic,
    clippy::expect_used,
    reason = "a test ends where its ground is missing"
)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;
    use crate::Shape;
    use crate::scenario::{Action, Plan};

    proptest! {
        #[test]
        fn exactly_what_is_needed_is_kept(needed in prop::collection::btree_set(0_u32..60, 0..6), all in 0_u32..60) {
            let items: Vec<u32> = (0..=all.max(needed.last().copied().unwrap_or(0))).collect();
            let kept = minimise(&items, |items| needed.iter().all(|n| items.contains(n)));
            prop_assert_eq!(kept, needed.into_iter().collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_failure_shrinks_to_the_hosts_and_steps_that_it_needs() {
        // Everything is lost from the start, so every expectation fails, and all else is
        // superfluous.
        let plan = Plan {
            seed: 4,
            nodes: 12,
            shape: Shape::Line,
            pairs: 20,
            calm: 5_000,
            patience: 5_000,
            ..Plan::default()
        };
        let mut scenario = plan.scenario();
        scenario.at(100, Action::Loss(1_000));
        let failure = scenario.run().failure.expect("nothing passes");
        assert!(matches!(failure, Failure::Missing { .. }));
        let short = scenario.shrink(&failure, 400);
        let actions: Vec<_> = short.steps.iter().map(|step| step.action).collect();
        let [Action::Loss(_), rest @ ..] = &actions[..] else {
            panic!("{short}")
        };
        let (Action::Send(a, b), Action::Expect(c, d)) = (rest[rest.len() - 2], rest[rest.len() - 1]) else {
            panic!("{short}")
        };
        assert!((a, b) == (c, d) && rest.len() <= 3, "{short}");
        assert_eq!(short.nodes - short.without.len(), a.abs_diff(b) + 1, "{short}");
        assert!(short.run().failure.is_some_and(|f| f.is_like(&failure)));
        // The printed scenario is the one that runs.
        assert_eq!(short.to_string().parse(), Ok(short));
    }

    #[test]
    fn no_more_runs_than_allowed() {
        let scenario = Plan::default().scenario();
        let mut runs = 0;
        let short = scenario.shrink_while(10, |_| {
            runs += 1;
            true
        });
        assert!(runs < 10 && short.steps.len() <= scenario.steps.len());
        let hosts: BTreeSet<_> = short.steps.iter().flat_map(|step| step.action.hosts()).collect();
        assert!(hosts.is_disjoint(&short.without));
    }
}
