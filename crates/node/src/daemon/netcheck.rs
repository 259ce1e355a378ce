//! `netcheck`: the STUN servers are asked again, a datagram goes to the own outer address, and the
//! client gets what is known as soon as both have come to an end.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use weft_config::host_name::PeerAddress;
use weft_control::status::{
    ConclusionStatus, Document as _, FamilyStatus, NeighbourStatus, NetcheckStatus, PathStatus,
};
use weft_control::{ErrorCode, Refusal, Reply};
use weft_core::PeerStatus as CorePeer;
use weft_discovery::netcheck::{self, Conclusion, Hairpin, Reaches, Udp};
use weft_os::clock::boottime_ms;
use weft_os::random::SystemRng;
use weft_reach::lan::sightings::on_link;
use weft_reach::message::Kind;
use weft_reach::nat::is_private;
use weft_reach::stun::{Failure, Message, TransactionId};

use super::reach_advice;
use super::run::Daemon;

/// How long answers are awaited.
const WAIT: Duration = Duration::from_millis(1_500);
/// How long a peer was dialled in vain when its silence says something, in ms.
const DIALLED: u64 = 10_000;
/// Clients that wait at the same time, at most.
const CLIENTS: usize = 8;

/// The check that is under way.
#[derive(Default)]
pub(super) struct Netcheck {
    clients: Vec<Reply>,
    ends: Option<Instant>,
    /// The datagram to the own outer address.
    probe: Option<Probe>,
}

struct Probe {
    id: TransactionId,
    to: SocketAddr,
    returned: bool,
}

impl Netcheck {
    /// Returns the time at which it ends at the latest.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.ends
    }

    /// Handles a datagram that was awaited. Returns whether it is the own one.
    pub(super) fn handle_datagram(&mut self, datagram: &[u8]) -> bool {
        let Some(probe) = &mut self.probe else { return false };
        let is_own = Message::parse(datagram).is_ok_and(|message| message.id == probe.id);
        probe.returned |= is_own;
        is_own
    }
}

fn shown(Conclusion { state, because }: Conclusion) -> ConclusionStatus {
    ConclusionStatus { state, because }
}

/// Returns how many peers at public addresses have been dialled in vain for so long that it says something, and the
/// number of these addresses.
fn unanswered(peers: &[CorePeer]) -> [usize; 2] {
    let in_vain = |peer: &&CorePeer| {
        let dialled = peer.failures > 0 || peer.dialing.is_some_and(|(_, ms)| ms >= DIALLED);
        peer.link.is_none() && dialled
    };
    let public = |peer: &CorePeer| peer.targets.iter().filter(|at| !is_private(at.ip())).count();
    let counts = peers
        .iter()
        .filter(in_vain)
        .map(public)
        .filter(|addresses| *addresses > 0);
    counts.fold([0, 0], |[peers, all], addresses| [peers + 1, all + addresses])
}

impl Daemon {
    /// Begins a check for a client, or lets it wait for the one that is under way.
    pub(super) fn answer_netcheck(&mut self, reply: Reply) {
        if self.netcheck.clients.len() >= CLIENTS {
            reply.refuse(Refusal::new(ErrorCode::Busy, "other checks are under way; try again"));
            return;
        }
        self.netcheck.clients.push(reply);
        if self.netcheck.ends.is_none() {
            self.netcheck.ends = Some(Instant::now() + WAIT);
            self.stun.refresh(boottime_ms());
            self.send_hairpin();
        }
    }

    /// Sends a datagram to the own outer address of IPv4: a response of STUN, since a request begins as
    /// the frames of a link do.
    fn send_hairpin(&mut self) {
        let mapped = self.mapping_status().mapped;
        let seen = self.reaching.reach().nat(false).outer.first().copied();
        let Some(to) = mapped.or(seen) else { return };
        let id = TransactionId::draw(&mut SystemRng);
        let datagram = Message::success(id, to);
        // A gateway or an observer may have named another host.
        if !self.node.may_send(boottime_ms(), to, datagram.len()) {
            return;
        }
        self.node.await_token(id.token());
        self.node.send_outside(to, datagram);
        self.netcheck.probe = Some(Probe {
            id,
            to,
            returned: false,
        });
    }

    /// Answers the clients if nothing more is awaited. Returns whether the core has something to do
    /// because of it.
    pub(super) fn drive_netcheck(&mut self) -> bool {
        let Some(ends) = self.netcheck.ends else { return false };
        let asking = self.stun.entries().any(|entry| entry.asking);
        let probing = self.netcheck.probe.as_ref().is_some_and(|probe| !probe.returned);
        if (asking || probing) && Instant::now() < ends {
            return false;
        }
        self.netcheck.ends = None;
        let hairpin = match self.netcheck.probe.take() {
            None => Hairpin::Untried,
            Some(Probe { id, to, returned }) => {
                self.node.forget_token(id.token());
                if returned {
                    Hairpin::Returned(to)
                } else {
                    Hairpin::Lost(to)
                }
            }
        };
        let document = self.netcheck_status(hairpin);
        for client in std::mem::take(&mut self.netcheck.clients) {
            client.ok(&document);
        }
        true
    }

    fn netcheck_status(&self, hairpin: Hairpin) -> NetcheckStatus {
        let now = boottime_ms();
        let neighbours = self.neighbours(now);
        let stun = self.stun_status(now);
        // A refusal is an answer, too.
        let answers = |failure: Option<Failure>| failure.is_some_and(|failure| failure != Failure::NoAnswer);
        let entries = || self.stun.entries();
        let answered = entries()
            .filter(|server| server.seen.is_some() || answers(server.failure))
            .count();
        let named = |server: &&PeerAddress| matches!(server, PeerAddress::Named { .. });
        let names: Vec<String> = self
            .configuration
            .config
            .reach
            .stun
            .iter()
            .filter(named)
            .map(ToString::to_string)
            .collect();
        let of_name = |server: &&weft_control::status::StunStatus| names.contains(&server.server);
        let mut addresses = stun.iter().filter(of_name).filter_map(|server| server.address);
        let inside = neighbours.iter().filter(|each| self.is_inside(each.address)).count();
        let peers: Vec<CorePeer> = self.node.peer_status(now).collect();
        let udp = Udp {
            reaches: self.reaches(),
            neighbours: neighbours.len() - inside,
            inside,
            unanswered: unanswered(&peers),
            answered,
            silent: entries().count().saturating_sub(answered),
            names: stun.iter().filter(of_name).any(|server| server.address.is_some()),
            private_server: addresses.any(|at| is_private(at.ip())),
        };
        NetcheckStatus {
            schema: NetcheckStatus::SCHEMA.to_owned(),
            udp: shown(netcheck::udp(udp)),
            captive_portal: shown(netcheck::captive_portal(udp)),
            ipv4: self.family(false, hairpin),
            ipv6: self.family(true, Hairpin::Untried),
            stun,
            nostr_relays: self.nostr_relays(now),
            port_mapping: self.mapping_status(),
            keepalives: self.keepalives(),
            neighbours,
        }
    }

    /// Returns how far this host reaches.
    pub(super) fn reaches(&self) -> Reaches {
        let mut defaults = self.system.surroundings.defaults(self.system.interface);
        match (self.desired.host.told.is_empty(), defaults.next()) {
            (true, _) => Reaches::Nothing,
            (false, None) => Reaches::Beside,
            (false, Some(_)) => Reaches::Out,
        }
    }

    /// Returns true if an address is one of a local network: what comes from there shows nothing about what
    /// gets out.
    fn is_inside(&self, at: SocketAddr) -> bool {
        is_private(at.ip()) && on_link(at, &self.desired.lan)
    }

    fn family(&self, v6: bool, hairpin: Hairpin) -> FamilyStatus {
        let reach = self.reaching.reach();
        let behaviour = reach.nat(v6);
        let public = reach.candidates().iter().filter(|own| own.kind == Kind::Host);
        let public = public.map(|own| own.at).filter(|at| at.is_ipv6() == v6);
        let mut mapping = shown(netcheck::mapping(behaviour.mapping, &reach.observed(v6)));
        if let Some(port) = self.unseen_port().filter(|_| !v6) {
            mapping.because = reach_advice::aside(port);
        }
        FamilyStatus {
            available: self.reaching.has_version(v6),
            public: public.filter(|at| !is_private(at.ip())).collect(),
            mapping,
            filtering: shown(netcheck::filtering(behaviour.mapping, self.filtering(v6))),
            hairpin: shown(netcheck::hairpin(behaviour.mapping, hairpin)),
            outer: behaviour.outer,
        }
    }

    fn neighbours(&self, now: u64) -> Vec<NeighbourStatus> {
        let all = self.facts.peers(&self.node, now, None);
        let direct = |path: Option<PathStatus>| match path {
            Some(PathStatus::Direct { addr }) => Some(addr),
            _ => None,
        };
        let peers = all.peers.into_iter().filter_map(|peer| {
            Some(NeighbourStatus {
                address: direct(peer.path)?,
                rtt_ms: peer.link?.rtt_us.map(|us| f64::from(us) / 1e3),
                npub: peer.npub,
                name: peer.name,
            })
        });
        let strangers = all.strangers.into_iter().filter_map(|stranger| {
            Some(NeighbourStatus {
                address: direct(stranger.path)?,
                rtt_ms: stranger.rtt_ms,
                npub: stranger.npub,
                name: None,
            })
        });
        peers.chain(strangers).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::why::tests::peer;
    use super::*;

    #[test]
    fn only_public_addresses_that_were_dialled_for_a_while_count() {
        let mut silent = peer(&["203.0.113.2:2121", "192.168.1.2:2121"]);
        silent.dialing = Some((5, DIALLED));
        let mut young = peer(&["203.0.113.3:2121"]);
        young.dialing = Some((2, 3_000));
        let mut local = peer(&["192.168.1.3:2121"]);
        local.failures = 2;
        assert_eq!(unanswered(&[silent.clone(), young, local]), [1, 1]);
        silent.failures = 1;
        assert_eq!(unanswered(&[silent.clone(), silent]), [2, 2]);
    }
}
