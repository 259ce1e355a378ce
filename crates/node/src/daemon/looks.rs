//! Requests whose answers depend on what is looked at for them: faults of the host, and whether peers are
//! there. Such a request waits for the results, for [`PATIENCE`] at most.

use std::time::{Duration, Instant};

use weft_control::{Audience, ControlCommand, ControlRequest, NetworkCommand};
use weft_os::clock::boottime_ms;

use super::run::Daemon;

/// How long a request waits. It is then answered with what was known before, and its age.
const PATIENCE: Duration = Duration::from_millis(900);

/// The requests that wait.
#[derive(Default)]
pub(super) struct Looks(Vec<Waiting>);

struct Waiting {
    request: ControlRequest,
    /// What it waits for: a look at the host, the answers of peers.
    host: bool,
    peers: bool,
    until: Instant,
}

impl Looks {
    /// Returns the time at which a request has waited long enough.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.0.iter().map(|waiting| waiting.until).min()
    }
}

impl Daemon {
    /// Answers a request, after looks if the answer depends on them.
    pub(super) fn take_request(&mut self, request: ControlRequest) {
        let owner = request.reply.audience() == Audience::Owners;
        let (host, peers) = match &request.command {
            // Other users are not shown the host, and do not have all peers asked.
            ControlCommand::Status {} if owner => {
                let exit = self.check_exit();
                (self.look_at_host(), self.ask_all() || exit)
            }
            ControlCommand::Peers { peer: None } if owner => (false, self.ask_all()),
            // Whatever is said of paths depends on whether the peer is there.
            ControlCommand::Peers { peer: Some(peer) } | ControlCommand::Reach { peer } => {
                let peer = self.find(peer).ok();
                peer.iter().for_each(|peer| self.check_peers(Some(peer)));
                (false, self.facts.checks.awaits(boottime_ms()))
            }
            ControlCommand::Network(NetworkCommand::List {}) if owner && self.has_subnets_behind() => {
                (self.look_at_host(), false)
            }
            ControlCommand::Network(NetworkCommand::Members {}) if owner => (false, self.ask_all()),
            _ => (false, false),
        };
        match host || peers {
            true => self.looks.0.push(Waiting {
                request,
                host,
                peers,
                until: Instant::now() + PATIENCE,
            }),
            false => self.answer(request),
        }
    }

    fn ask_all(&mut self) -> bool {
        self.check_peers(None);
        self.facts.checks.awaits(boottime_ms())
    }

    /// Answers the requests that wait for nothing any longer.
    pub(super) fn answer_ready(&mut self) {
        let (now, host) = (Instant::now(), self.faults.is_under_way());
        let peers = self.facts.checks.awaits(boottime_ms()) || self.exits.awaits_state(boottime_ms());
        let waiting = std::mem::take(&mut self.looks.0);
        let (wait, ready): (Vec<_>, Vec<_>) = waiting
            .into_iter()
            .partition(|one| now < one.until && (one.host && host || one.peers && peers));
        self.looks.0 = wait;
        for one in ready {
            self.answer(one.request);
        }
    }

    /// Goes on with looks, as time passes.
    pub(super) fn drive_looks(&mut self) {
        self.drive_checks();
        if !self.looks.0.is_empty() {
            self.answer_ready();
        }
    }
}
