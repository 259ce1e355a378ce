//! Scenarios derived from a few numbers.

use rand_chacha::ChaCha20Rng;
use rand_core::{Rng, SeedableRng};

use super::{Action, Scenario};
use crate::topology::below;
use crate::{Conditions, Shape};

/// How long a host that restarts is down, ms.
const GONE: u64 = 2_000;
/// Interval between the first probes of two consecutive pairs, ms.
const EVERY: u64 = 5;
/// Interval between two probes of the same pair, ms: long enough that nothing that waits is sent
/// twice.
const AGAIN: u64 = 5_000;

/// The numbers of a plan. Times are ms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The seed of all random choices.
    pub seed: u64,
    /// The mesh.
    pub shape: Shape,
    /// Hosts.
    pub nodes: usize,
    /// The network.
    pub conditions: Conditions,
    /// How long the mesh runs before the first action.
    pub calm: u64,
    /// How long hosts restart, or the mesh is partitioned, or both.
    pub trouble: u64,
    /// Percentage of hosts that restart in each minute of the trouble.
    pub churn: u32,
    /// Sides of the partition during the trouble; 1 means no partition.
    pub sides: u32,
    /// Percentage of machines that are suspended during the trouble.
    pub sleepers: u32,
    /// How long the mesh then runs without actions.
    pub rest: u64,
    /// Number of random pairs that then try to reach each other.
    pub pairs: usize,
    /// Whether they begin with the trouble instead of after it.
    pub during: bool,
    /// Number of probes of each pair, five seconds apart.
    pub probes: u32,
    /// How long the last probe may take before it counts as lost.
    pub patience: u64,
    /// Whether the run fails if none of a pair's last three probes arrives.
    pub expect: bool,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            seed: 1,
            shape: Shape::Random { degree: 6 },
            nodes: 100,
            conditions: Conditions::default(),
            calm: 30_000,
            trouble: 0,
            churn: 0,
            sides: 1,
            sleepers: 0,
            rest: 0,
            pairs: 100,
            during: false,
            probes: 3,
            patience: 20_000,
            expect: true,
        }
    }
}

impl Plan {
    /// The scenario. Equal plans give equal scenarios.
    pub fn scenario(&self) -> Scenario {
        let mut rng = ChaCha20Rng::seed_from_u64(self.seed ^ 0x7363_656e_6172_696f);
        let mut scenario = Scenario::new(self.seed, self.shape, self.nodes);
        scenario.conditions = self.conditions;
        self.draw_trouble(&mut scenario, &mut rng);
        let begin = match self.during {
            true => self.calm,
            false => self.calm + self.trouble + self.rest,
        };
        let mut steps = Vec::new();
        for number in 0..self.pairs as u64 {
            let (a, b) = (below(&mut rng, self.nodes), below(&mut rng, self.nodes));
            if a == b {
                continue;
            }
            let first = begin + number * EVERY;
            steps.push((first, Action::Know(a, b)));
            for probe in 0..u64::from(self.probes) {
                steps.push((first + probe * AGAIN, Action::Send(a, b)));
            }
            let last = first + u64::from(self.probes.saturating_sub(1)) * AGAIN;
            if self.expect && self.probes > 0 {
                steps.push((last + self.patience, Action::Expect(a, b)));
            }
            scenario.duration = scenario.duration.max(last + self.patience);
        }
        scenario.duration = scenario.duration.max(begin);
        let steps = steps.into_iter().map(|(at, action)| super::Step { at, action });
        scenario.steps.extend(steps);
        scenario.steps.sort_by_key(|step| step.at);
        scenario
    }

    fn draw_trouble(&self, scenario: &mut Scenario, rng: &mut ChaCha20Rng) {
        let (begin, end) = (self.calm, self.calm + self.trouble);
        scenario.duration = end;
        if self.trouble == 0 {
            return;
        }
        let mut steps = Vec::new();
        if self.sides > 1 {
            steps.push((begin, Action::Partition(self.sides)));
            steps.push((end, Action::Heal));
        }
        let restarts = self.nodes as u64 * u64::from(self.churn) * self.trouble / 60_000 / 100;
        for _ in 0..restarts {
            let at = begin + rng.next_u64() % self.trouble;
            let host = below(rng, self.nodes);
            steps.push((at, Action::Kill(host)));
            steps.push((at + GONE, Action::Restart(host)));
        }
        for _ in 0..self.nodes as u64 * u64::from(self.sleepers) / 100 {
            let host = below(rng, self.nodes);
            steps.push((begin, Action::Suspend(host)));
            steps.push((end, Action::Resume(host)));
        }
        let steps = steps.into_iter().map(|(at, action)| super::Step { at, action });
        scenario.steps.extend(steps);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_draws_what_its_numbers_say() {
        let plan = Plan {
            calm: 10_000,
            trouble: 120_000,
            churn: 10,
            sides: 2,
            rest: 5_000,
            pairs: 50,
            probes: 3,
            ..Plan::default()
        };
        let scenario = plan.scenario();
        assert_eq!(scenario, plan.scenario());
        assert_ne!(scenario.steps, Plan { seed: 2, ..plan }.scenario().steps);
        let count = |wanted: fn(&Action) -> bool| scenario.steps.iter().filter(|step| wanted(&step.action)).count();
        assert_eq!(count(|action| matches!(action, Action::Restart(_))), 20);
        assert_eq!(count(|action| matches!(action, Action::Heal)), 1);
        let pairs = count(|action| matches!(action, Action::Know(..)));
        assert!((45..=50).contains(&pairs));
        assert_eq!(count(|action| matches!(action, Action::Send(..))), 3 * pairs);
        assert!(scenario.steps.is_sorted_by_key(|step| step.at));
        assert_eq!(
            scenario.duration,
            10_000 + 120_000 + 5_000 + 49 * EVERY + 2 * AGAIN + 20_000
        );
    }
}
