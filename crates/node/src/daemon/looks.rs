//! Requests whose answers depend on what is looked at for them: faults of the host, and whether peers are
//! there. Such a request waits for the results, for [`PATIENCE`] at most. An invite waits for an address of the host,
//! for [`ADDRESS`] at most.

use std::time::{Duration, Instant};

use weft_control::{Audience, ControlCommand, ControlRequest, NetworkCommand};
use weft_os::clock::boottime_ms;

use super::run::Daemon;

/// How long a request waits. It is then answered with what was known before, and its age.
const PATIENCE: Duration = Duration::from_millis(900);

/// How long an invite waits for an address: the kernel checks a new one of IPv6 for up to 2 s.
const ADDRESS: Duration = Duration::from_secs(3);

/// The requests that wait.
#[derive(Default)]
pub(super) struct Looks(Vec<Waiting>);

struct Waiting {
    request: ControlRequest,
    /// What it waits for: a look at the host, the answers of peers, an address of the host.
    host: bool,
    peers: bool,
    address: bool,
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
        let address = match &request.command {
            ControlCommand::Network(NetworkCommand::Invite { addresses, .. }) => {
                owner && addresses.is_empty() && self.has_no_address()
            }
            _ => false,
        };
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
        match host || peers || address {
            true => self.looks.0.push(Waiting {
                request,
                host,
                peers,
                address,
                until: Instant::now() + if address { ADDRESS } else { PATIENCE },
            }),
            false => self.answer(request),
        }
    }

    /// Whether no address is known at which other hosts reach this one: the network may be about to come up.
    fn has_no_address(&self) -> bool {
        self.desired.host.told.is_empty()
    }

    fn ask_all(&mut self) -> bool {
        self.check_peers(None);
        self.facts.checks.awaits(boottime_ms())
    }

    /// Answers the requests that wait for nothing any longer.
    pub(super) fn answer_ready(&mut self) {
        let (now, host) = (Instant::now(), self.faults.is_under_way());
        let peers = self.facts.checks.awaits(boottime_ms()) || self.exits.awaits_state(boottime_ms());
        let address = self.has_no_address();
        let waiting = std::mem::take(&mut self.looks.0);
        let waits = |one: &Waiting| one.host && host || one.peers && peers || one.address && address;
        let (wait, ready): (Vec<_>, Vec<_>) = waiting.into_iter().partition(|one| now < one.until && waits(one));
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
