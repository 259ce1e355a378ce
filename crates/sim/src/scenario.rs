//! A run as data: a mesh, a network, and what happens when. The same scenario is the same run.
//!
//! - [`Scenario`]: here, with its text, which `weft sim FILE` reads and a failure prints.
//! - [`Plan`]: a scenario drawn from a few numbers. [`Outcome`], [`Figures`]: what became of one.
//! - [`Scenario::shrink`]: the same failure with less.

mod figures;
mod plan;
mod run;
mod shrink;
mod text;

use std::collections::BTreeSet;

pub use self::figures::{Figures, Latency};
pub use self::plan::Plan;
pub use self::run::{Failure, Outcome};
pub use self::text::ScenarioError;
use crate::{Conditions, HostId, NatKind, Shape};

/// One run. Times are ms from its beginning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scenario {
    /// Keys, links, loss and all else that is left to chance.
    pub seed: u64,
    /// Who dials whom.
    pub shape: Shape,
    /// Hosts.
    pub nodes: usize,
    /// Hosts that never run, and whose links are missing: what shrinking took away.
    pub without: BTreeSet<HostId>,
    /// The network at first.
    pub conditions: Conditions,
    /// Hosts behind a box.
    pub nats: Vec<(HostId, NatKind)>,
    /// Of how many turns of a host one is followed by a check of its invariants.
    pub check_every: u32,
    /// When it ends.
    pub duration: u64,
    /// What happens, in the order of time.
    pub steps: Vec<Step>,
}

/// Something happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// When.
    pub at: u64,
    /// What.
    pub action: Action,
}

/// What happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Two hosts become configured peers without addresses.
    Know(HostId, HostId),
    /// The first sends a probe to the second.
    Send(HostId, HostId),
    /// One of the three latest probes from the first to the second has arrived. Otherwise the run has failed, if the
    /// two know each other and there is a way between them at this moment.
    Expect(HostId, HostId),
    /// The process dies.
    Kill(HostId),
    /// The process starts anew, with its key and configuration.
    Restart(HostId),
    /// The machine sleeps, and its clock goes on.
    Suspend(HostId),
    /// The machine wakes up.
    Resume(HostId),
    /// Nothing passes between two hosts.
    Cut(HostId, HostId),
    /// The same as everywhere passes between two hosts.
    Mend(HostId, HostId),
    /// The hosts fall apart into so many sides, by their numbers.
    Partition(u32),
    /// All are together again, and nothing is cut.
    Heal,
    /// So much is lost from now on, per mille.
    Loss(u32),
    /// So many ms a datagram takes from now on.
    Delay(u64),
}

impl Scenario {
    /// A mesh that is left alone for a minute.
    pub fn new(seed: u64, shape: Shape, nodes: usize) -> Self {
        Self {
            seed,
            shape,
            nodes,
            without: BTreeSet::new(),
            conditions: Conditions::default(),
            nats: Vec::new(),
            check_every: 1,
            duration: 60_000,
            steps: Vec::new(),
        }
    }

    /// Adds a step behind those at the same time.
    pub fn at(&mut self, at: u64, action: Action) {
        let place = self.steps.partition_point(|step| step.at <= at);
        self.steps.insert(place, Step { at, action });
    }
}

impl Action {
    /// The hosts that it names.
    pub fn hosts(&self) -> impl Iterator<Item = HostId> {
        let (a, b) = match *self {
            Self::Know(a, b) | Self::Send(a, b) | Self::Expect(a, b) | Self::Cut(a, b) | Self::Mend(a, b) => {
                (Some(a), Some(b))
            }
            Self::Kill(a) | Self::Restart(a) | Self::Suspend(a) | Self::Resume(a) => (Some(a), None),
            Self::Partition(_) | Self::Heal | Self::Loss(_) | Self::Delay(_) => (None, None),
        };
        a.into_iter().chain(b)
    }
}
