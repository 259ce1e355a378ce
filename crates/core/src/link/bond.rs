//! Several paths of one link at once: data of each flow goes on one of them.
//!
//! The end with several uplinks probes the path through each, at a pace, while payload passes; the other
//! end probes in return. These probes are as large as frames of data, so that a path that takes only
//! smaller ones has no part. A path is used by an end while its own probes are answered there and those of
//! the peer arrive: then the peer uses it, too, and does not take frames from there for roaming.
//! docs/decisions/0053-uplinks.md, "Bonding".

use weft_contract::Endpoint;

/// Paths of one link at a time.
const MOST: usize = 4;
/// The time between two probes of a path, in ms.
const EVERY: u64 = 300;
/// Payload within this time counts as passing, in ms.
const RECENT: u64 = 3_000;
/// A path is used for this long after the last answer, and two round trips, in ms: two probes may be lost.
const STALE: u64 = 700;
/// The longest round trip that is allowed for, in ms.
const MAX_RTT: u64 = 1_000;
/// A path is used for this long after the last probe of the peer, in ms.
const UNASKED: u64 = 1_000;
/// A path of the peer is known for this long after its last probe, in ms: that it has answered there
/// counts when payload passes again, whatever rounds that ran on a full path have found.
const REMEMBERED: u64 = 600_000;
/// Probes of one path whose answers count.
const OPEN: usize = 8;

/// What a link has to do for its bond.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Send a probe with this number on this path.
    Probe {
        /// The path.
        to: Endpoint,
        /// A number that no other node can know.
        number: u64,
    },
    /// Send the data of each flow on one of these paths; without any, all on the path of the link.
    Use(Vec<Endpoint>),
    /// Use this path for all else, since that of the link has failed.
    Move(Endpoint),
}

/// The paths of one link that may be used at once.
#[derive(Debug, Default)]
pub(super) struct Bond {
    members: Vec<Member>,
    used: Vec<Endpoint>,
}

/// A path. Times are ms.
#[derive(Debug)]
struct Member {
    at: Endpoint,
    /// It leads through an uplink of this host.
    own: bool,
    /// Number and time of the probes that are not answered.
    open: Vec<(u64, u64)>,
    /// When its next probe is due: for an own path, or after one of the peer.
    next: u64,
    /// The last answer, and its round trip.
    answered: Option<(u64, u64)>,
    /// The last probe of the peer.
    asked: Option<u64>,
}

impl Member {
    const fn new(at: Endpoint, own: bool) -> Self {
        Self {
            at,
            own,
            open: Vec::new(),
            next: if own { 0 } else { u64::MAX },
            answered: None,
            asked: None,
        }
    }

    /// Whether the peer has not probed there for so long.
    fn is_unasked(&self, now: u64, long: u64) -> bool {
        self.asked.is_none_or(|asked| now >= asked + long)
    }

    /// Until when its answers and the probes of the peer show that it works.
    fn works_until(&self) -> u64 {
        let (Some((answered, rtt)), Some(asked)) = (self.answered, self.asked) else {
            return 0;
        };
        (answered + STALE + 2 * rtt.min(MAX_RTT)).min(asked + UNASKED)
    }
}

impl Bond {
    /// Sets the paths through the uplinks of this host. A bond needs two of them.
    pub(super) fn set_own(&mut self, paths: &[Endpoint]) {
        let paths = if paths.len() < 2 { &[] } else { paths };
        for member in &mut self.members {
            member.own = paths.contains(&member.at);
        }
        // A path of the peer stays; one through a socket of this host may be closed.
        let of_peer = |member: &Member| member.asked.is_some() && member.at.socket().is_ordinary();
        self.members.retain(|member| member.own || of_peer(member));
        for at in paths {
            if self.members.len() < MOST && self.members.iter().all(|member| member.at != *at) {
                self.members.push(Member::new(*at, true));
            }
        }
    }

    /// Handles a probe of the peer. `proven`: the peer has answered there before, so that a large probe
    /// may go there.
    pub(super) fn handle_probe(&mut self, now: u64, from: Endpoint, proven: bool) {
        let known = self.members.iter().any(|member| member.at.covers(from));
        if !known && proven && self.makes_room(now) {
            self.members.push(Member::new(from, false));
        }
        if let Some(member) = self.members.iter_mut().find(|member| member.at.covers(from)) {
            member.asked = Some(now);
            if !member.own {
                member.next = member.next.min(now);
            }
        }
    }

    /// Forgets a path of the peer that it no longer uses, if there are too many. Returns whether there is
    /// room for one.
    fn makes_room(&mut self, now: u64) -> bool {
        if self.members.len() >= MOST {
            let unused = |member: &Member| !member.own && member.is_unasked(now, UNASKED);
            if let Some(n) = self.members.iter().position(unused) {
                self.members.remove(n);
            }
        }
        self.members.len() < MOST
    }

    /// Handles the answer to a probe. Returns whether the probe was one of the bond.
    pub(super) fn handle_answer(&mut self, now: u64, number: u64) -> bool {
        for member in &mut self.members {
            if let Some(n) = member.open.iter().position(|(open, _)| *open == number) {
                let (_, sent) = member.open.swap_remove(n);
                member.answered = Some((now, now.saturating_sub(sent)));
                return true;
            }
        }
        false
    }

    /// Returns when [`Bond::poll`] has something to do. `payload`: when payload last passed.
    pub(super) fn deadline(&self, payload: u64) -> u64 {
        let probes = self.members.iter().filter_map(|member| {
            let passes = !member.own || member.next <= payload.saturating_add(RECENT);
            passes.then_some(member.next)
        });
        let ends = self.used.iter().map(|used| {
            let member = self.members.iter().find(|member| member.at == *used);
            member.map_or(0, Member::works_until)
        });
        let over = self
            .members
            .iter()
            .filter_map(|member| match (member.own, member.asked) {
                (false, Some(asked)) => Some(asked + REMEMBERED),
                _ => None,
            });
        probes.chain(ends).chain(over).min().unwrap_or(u64::MAX)
    }

    /// Performs what is due. `path` is that of the link, and `payload` when payload last passed; `proven`
    /// says whether the peer has answered on a path; `number` draws a number that no other node can know.
    pub(super) fn poll(
        &mut self,
        now: u64,
        (path, payload): (Endpoint, u64),
        proven: impl Fn(Endpoint) -> bool,
        mut number: impl FnMut() -> u64,
    ) -> Vec<Step> {
        let mut steps = Vec::new();
        let passes = now <= payload.saturating_add(RECENT);
        for member in &mut self.members {
            if now < member.next {
                continue;
            }
            if member.own && !passes {
                // As soon as payload passes again.
                member.next = payload.saturating_add(RECENT + 1);
                continue;
            }
            member.next = if member.own { now + EVERY } else { u64::MAX };
            // One that has answered before is noticed soon when it is back.
            if !proven(member.at) && member.answered.is_none() {
                continue;
            }
            let number = number();
            if member.open.len() == OPEN {
                member.open.remove(0);
            }
            member.open.push((number, now));
            steps.push(Step::Probe { to: member.at, number });
        }
        let working = self.members.iter().filter(|member| now < member.works_until());
        let working: Vec<Endpoint> = working.map(|member| member.at).collect();
        if let Some(other) = working.first().filter(|_| self.has_failed(now, path)) {
            steps.push(Step::Move(*other));
        }
        self.members
            .retain(|member| member.own || !member.is_unasked(now, REMEMBERED));
        let used = if working.len() < 2 { Vec::new() } else { working };
        if used != self.used {
            self.used.clone_from(&used);
            steps.push(Step::Use(used));
        }
        steps
    }

    /// Whether data goes on this path beside others.
    pub(super) fn uses(&self, at: Endpoint) -> bool {
        self.used.contains(&at)
    }

    /// Whether a path was used and no longer works.
    fn has_failed(&self, now: u64, path: Endpoint) -> bool {
        let member = self.members.iter().find(|member| member.at == path);
        self.used.contains(&path) && member.is_none_or(|member| now >= member.works_until())
    }
}

#[cfg(test)]
mod tests;
