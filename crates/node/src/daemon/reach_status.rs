//! What was tried to reach a peer directly, as a document.

use weft_config::peer::NodeRef;
use weft_control::status::{AttemptStatus, CandidateStatus, Document as _, NatStatus, ReachStatus, TriedStatus};
use weft_control::{Refusal, Reply};
use weft_core::{HintSource, Path, PeerStatus};
use weft_noise::PublicKey;
use weft_os::clock::boottime_ms;
use weft_reach::message::Kind;
use weft_reach::nat::{Mapping, Mappings};
use weft_reach::{End, Outcome, Record, Source, Tried, Why};

use super::run::Daemon;
use super::why;

impl Daemon {
    /// Answers why packets to a peer take their path.
    pub(super) fn answer_reach(&mut self, peer: &NodeRef, reply: Reply) {
        let found = self.find(peer).and_then(|key| {
            let document = self.reach_status(&key);
            document.ok_or_else(|| Refusal::unknown_peer(peer))
        });
        match found {
            Ok(document) => reply.ok(&document),
            Err(refusal) => reply.refuse(refusal),
        }
    }

    fn reach_status(&self, key: &PublicKey) -> Option<ReachStatus> {
        let now = boottime_ms();
        let (reach, addr) = (self.reaching.reach(), key.node_addr());
        let peer = self.node.status_of(now, addr)?;
        let (own, theirs) = (reach.mappings(), reach.peer_mappings(addr));
        let history = reach.history(addr);
        let attempts = history.iter().rev().map(|record| attempt(record, now)).collect();
        Some(ReachStatus {
            schema: ReachStatus::SCHEMA.to_owned(),
            npub: key.to_string(),
            name: self.facts.names.get(key).map(|name| name.as_str().to_owned()),
            path: peer.path.map(|path| self.facts.path(&path)),
            why: self.why_path(&peer, history.last()),
            advice: advice(&peer, own, theirs, history.last()),
            own: reach
                .candidates()
                .iter()
                .map(|candidate| CandidateStatus {
                    address: candidate.at,
                    source: candidate.kind.to_string(),
                })
                .collect(),
            stun: self.stun_status(now),
            port_mapping: Some(self.mapping_status()),
            nat: nat(own),
            peer_nat: theirs.map(nat),
            attempts,
        })
    }

    fn why_path(&self, peer: &PeerStatus, last: Option<&Record>) -> String {
        let changed = peer.path_changes.first().map(|change| why::why_path(change.reason));
        match (peer.path, last) {
            (Some(Path::Direct(_)), _) if peer.source == Some(HintSource::Search) => {
                "the path is direct: a search of ports has found it".to_owned()
            }
            (Some(Path::Direct(_)), _) => match changed {
                Some(reason) => format!("the path is direct: {reason}"),
                None => "the path is direct".to_owned(),
            },
            (None, _) => self.facts.why(peer, boottime_ms()),
            (Some(Path::Relayed(_)), _) if !self.configuration.config.reach.punch => {
                "the path goes through other nodes, and this node looks for no direct one: reach.punch = false".to_owned()
            }
            (Some(Path::Relayed(_)), Some(record)) => {
                let end = record.end.map_or("is in progress", |(_, end)| in_words(end));
                format!("the path goes through other nodes: the last attempt at a direct one {end}")
            }
            (Some(Path::Relayed(_)), None) if peer.session.is_none() => {
                "the path goes through other nodes; a direct one is looked for as soon as packets pass".to_owned()
            }
            (Some(Path::Relayed(_)), None) => {
                "the path goes through other nodes, and the peer takes no part in a search for a direct one: it is no weft \
                 node, or an older one"
                    .to_owned()
            }
        }
    }
}

/// Returns the advice that would help, if there is one.
fn advice(peer: &PeerStatus, own: Mappings, theirs: Option<Mappings>, last: Option<&Record>) -> Option<String> {
    let relayed = matches!(peer.path, Some(Path::Relayed(_)));
    let (_, End::NoAnswer) = last?.end.filter(|_| relayed)? else {
        return None;
    };
    let each = |mappings: Option<Mappings>| mappings.map(|mappings| mappings.v4) == Some(Mapping::EndpointDependent);
    Some(match (each(Some(own)), each(theirs)) {
        (true, true) => {
            "the routers of both ends map every destination anew, so neither can be told where the other will be seen; a \
             forwarded UDP port at one of them, or IPv6 at both, helps"
        }
        (true, false) => {
            "the router of this end maps every destination anew; a forwarded UDP port there, or IPv6 at both ends, helps"
        }
        (false, true) => {
            "the router of the other end maps every destination anew; a forwarded UDP port there, or IPv6 at both ends, helps"
        }
        (false, false) => {
            "no address of the peer answered: a firewall at one end drops UDP, or both are behind one router that does not \
             lead back inside; a forwarded UDP port at one end helps"
        }
    }
    .to_owned())
}

fn nat(mappings: Mappings) -> NatStatus {
    NatStatus {
        ipv4: mappings.v4.to_string(),
        ipv6: mappings.v6.to_string(),
    }
}

fn attempt(record: &Record, now: u64) -> AttemptStatus {
    let because = match record.why {
        Why::Relayed => "the path goes through other nodes",
        Why::Again => "an earlier attempt failed",
        Why::Candidates => "the addresses of this node changed",
        Why::Network => "the network of this node changed",
        Why::Peer => "the peer began it",
        Why::Agreed => "both agreed on it through a Nostr relay",
    };
    AttemptStatus {
        ago_ms: now.saturating_sub(record.started),
        because: because.to_owned(),
        took_ms: record.end.map(|(at, _)| at.saturating_sub(record.started)),
        outcome: record.end.map_or("is in progress", |(_, end)| in_words(end)).to_owned(),
        tried: record.tried.iter().map(tried).collect(),
    }
}

fn in_words(end: End) -> &'static str {
    match end {
        End::Found(_) => "found an address that answers",
        End::NoReply => "got no reply: the peer did not say its addresses",
        End::NoAnswer => "found no address that answers",
        End::Direct => "ended because the peer became direct in another way",
        End::Replaced => "gave way to another one",
    }
}

fn tried(tried: &Tried) -> TriedStatus {
    let source = match tried.source {
        Source::Told(Kind::Unknown(_)) => "unknown".to_owned(),
        Source::Told(kind) => kind.to_string(),
        Source::Heard => "probe".to_owned(),
        Source::Searched => "search".to_owned(),
    };
    let outcome = match tried.outcome {
        Outcome::Probing => "is being tried".to_owned(),
        Outcome::Silent => "does not answer".to_owned(),
        Outcome::Answered => "answers".to_owned(),
        Outcome::Refused(cause) => format!("was not tried: {cause}"),
        Outcome::OverBudget(cause) => format!("was not tried further: {cause}"),
    };
    TriedStatus {
        address: tried.at,
        source,
        probes: tried.probes,
        outcome,
    }
}
