//! A run as data: a mesh, a network, and a schedule of actions. The same scenario gives the same
//! run.
//!
//! - [`Scenario`]: a run, and its text, which `weft sim FILE` reads and a failure prints.
//! - [`Plan`]: a scenario derived from a few numbers. [`Outcome`], [`Figures`]: the result of a
//!   run.
//! - [`Scenario::shrink`]: a smaller scenario with the same failure.

mod figures;
mod plan;
mod run;
mod shrink;
mod text;

use std::collections::BTreeSet;

pub use self::figures::{Figures, Latency};
pub use self::plan::Plan;
pub use self::run::{Failure, Outcome};
pub use weft_scenario::FileError;

use crate::{Conditions, HostId, NatKind, Shape};

/// One run. Times are ms from its beginning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scenario {
    /// The seed of keys, links, loss and all other random choices.
    pub seed: u64,
    /// The shape of the mesh.
    pub shape: Shape,
    /// Number of hosts.
    pub nodes: usize,
    /// Hosts that never run, and whose links are missing: removed by shrinking.
    pub without: BTreeSet<HostId>,
    /// The initial conditions of the network.
    pub conditions: Conditions,
    /// Hosts behind a NAT box.
    pub nats: Vec<(HostId, NatKind)>,
    /// One of this many turns of a host is followed by a check of its invariants.
    pub check_every: u32,
    /// The end of the run.
    pub duration: u64,
    /// The actions, in the order of time.
    pub steps: Vec<Step>,
}

/// An action at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// The time.
    pub at: u64,
    /// The action.
    pub action: Action,
}

/// An action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Two hosts become configured peers without addresses.
    Know(HostId, HostId),
    /// The first sends a probe to the second.
    Send(HostId, HostId),
    /// One of the three latest probes from the first to the second has arrived. Otherwise the run
    /// has failed, if the two know each other and a path between them exists at this moment.
    Expect(HostId, HostId),
    /// The process is killed.
    Kill(HostId),
    /// The process restarts, with its key and configuration.
    Restart(HostId),
    /// The machine is suspended, and its clock continues.
    Suspend(HostId),
    /// The machine wakes up.
    Resume(HostId),
    /// Nothing passes between two hosts.
    Cut(HostId, HostId),
    /// The general conditions apply between two hosts again.
    Mend(HostId, HostId),
    /// The hosts are partitioned into this many sides, by their numbers.
    Partition(u32),
    /// All sides and cut links are joined again.
    Heal,
    /// The loss from now on, per mille.
    Loss(u32),
    /// The one-way delay from now on, ms.
    Delay(u64),
}

impl Scenario {
    /// A mesh without actions for a minute.
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

    /// Adds a step after those at the same time.
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
