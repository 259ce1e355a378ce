//! `weft why PEER --hops`: inquiries about the nodes of paths, for clients that wait.

use std::time::{Duration, Instant};

use weft_config::peer::NodeRef;
use weft_contract::{Command, TableCommand};
use weft_control::status::{Document as _, HopStatus, HopsStatus, PathStatus};
use weft_control::{ErrorCode, Refusal, Reply};
use weft_core::{HopSaid, Path};
use weft_discovery::hops::{Gap, Hops, PathNode, Step};
use weft_noise::PublicKey;
use weft_os::clock::boottime_ms;

use super::run::Daemon;

/// Inquiries at the same time, at most.
const INQUIRIES: usize = 8;
/// How long the answer of the peer to an echo is awaited; an inquiry ends before.
const ECHO: Duration = Duration::from_secs(2);

/// The inquiries under way.
#[derive(Default)]
pub(super) struct HopInquiries(Vec<HopInquiry>);

struct HopInquiry {
    reply: Reply,
    peer: PublicKey,
    path: PathStatus,
    /// The neighbour to which the path leads: a relay, or the peer itself.
    neighbour: PublicKey,
    begun: Instant,
    hops: Hops,
}

impl HopInquiry {
    fn now(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_micros()).unwrap_or(u64::MAX)
    }
}

impl HopInquiries {
    /// Returns the time at which something is due.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let due = |inquiry: &HopInquiry| inquiry.begun + Duration::from_micros(inquiry.hops.deadline());
        self.0.iter().map(due).min()
    }

    /// Handles the answer of a peer to an echo.
    pub(super) fn handle_echo(&mut self, peer: &PublicKey) {
        for inquiry in self.0.iter_mut().filter(|inquiry| inquiry.peer == *peer) {
            inquiry.hops.handle_echo(inquiry.now());
        }
    }

    /// Handles what a node says.
    pub(super) fn handle_hop(&mut self, id: u32, said: HopSaid) {
        for inquiry in &mut self.0 {
            inquiry.hops.handle_hop(inquiry.now(), id, said);
        }
    }
}

impl Daemon {
    /// Begins an inquiry for a client.
    pub(super) fn answer_hops(&mut self, peer: &NodeRef, reply: Reply) {
        let now = boottime_ms();
        let found = self.find(peer).and_then(|key| {
            let status = self.node.status_of(now, key.node_addr());
            status.ok_or_else(|| Refusal::unknown_peer(peer))
        });
        let (peer, path) = match found {
            Ok(status) => (status.key, status.path),
            Err(refusal) => return reply.refuse(refusal),
        };
        let Some(path) = path else {
            return reply.ok(&self.hops_status(&peer, None, false, Vec::new()));
        };
        if self.hops.0.len() >= INQUIRIES {
            return reply.refuse(Refusal::new(
                ErrorCode::Busy,
                "other inquiries are under way; try again",
            ));
        }
        let relay = match path {
            Path::Relayed(via) => Some(via),
            Path::Direct(_) => None,
        };
        self.hops.0.push(HopInquiry {
            reply,
            peer,
            path: self.facts.path(&path),
            neighbour: relay.unwrap_or(peer),
            begun: Instant::now(),
            hops: Hops::new(relay),
        });
    }

    /// Does what is due for inquiries. Returns whether the core has something to do because of it.
    pub(super) fn drive_hops(&mut self) -> bool {
        let mut active = false;
        let mut inquiries = std::mem::take(&mut self.hops.0);
        inquiries = inquiries
            .into_iter()
            .filter_map(|mut inquiry| {
                while let Some(step) = inquiry.hops.poll(inquiry.now()) {
                    active = true;
                    match step {
                        Step::Echo => self.send_echo(&inquiry.peer),
                        Step::Ask => {
                            let id = self.node.ask_hops(boottime_ms(), &inquiry.peer);
                            inquiry.hops.handle_asked(inquiry.now(), id);
                        }
                        Step::Show => {
                            self.show_hops(inquiry);
                            return None;
                        }
                    }
                }
                Some(inquiry)
            })
            .collect();
        self.hops.0 = inquiries;
        active
    }

    fn send_echo(&mut self, peer: &PublicKey) {
        let command = self.echoes.send(peer.node_addr(), ECHO, None);
        let token = self.echoes.token();
        self.lanes
            .send(vec![Command::Table(TableCommand::ExpectEcho { token }), command]);
    }

    fn show_hops(&self, inquiry: HopInquiry) {
        let HopInquiry {
            reply,
            peer,
            path,
            neighbour,
            hops,
            ..
        } = inquiry;
        let link_rtt_us = self.node.link_rtt_us(boottime_ms(), &neighbour);
        let nodes = hops.nodes(peer, link_rtt_us);
        let nodes = nodes.iter().map(|node| self.hop_status(node)).collect();
        reply.ok(&self.hops_status(&peer, Some(path), hops.is_complete(), nodes));
    }

    fn hops_status(
        &self,
        peer: &PublicKey,
        path: Option<PathStatus>,
        complete: bool,
        hops: Vec<HopStatus>,
    ) -> HopsStatus {
        HopsStatus {
            schema: HopsStatus::SCHEMA.to_owned(),
            npub: peer.to_string(),
            name: self.name_of(peer),
            path,
            complete,
            hops,
        }
    }

    fn hop_status(&self, node: &PathNode) -> HopStatus {
        let milliseconds = |us: f64| us / 1_000.0;
        HopStatus {
            npub: node.key.map(|key| key.to_string()),
            name: node.key.and_then(|key| self.name_of(&key)),
            rtt_ms: node.rtt_us.map(|us| milliseconds(us as f64)),
            link_rtt_ms: node.link_rtt_us.map(|us| milliseconds(us.into())),
            why: node.gap.map(|gap| why(gap).to_owned()),
        }
    }

    fn name_of(&self, key: &PublicKey) -> Option<String> {
        self.facts.names.get(key).map(|name| name.as_str().to_owned())
    }
}

fn why(gap: Gap) -> &'static str {
    match gap {
        Gap::Silent => "does not say",
        Gap::SilentFromHere => "one or more nodes do not say",
        Gap::Foreign => "does not say: it is no weft node, or an older one",
        Gap::Far => "one or more nodes are too far away to be asked",
    }
}
