//! What was tried to reach a peer directly, as a document.

use std::net::SocketAddr;

use weft_config::peer::NodeRef;
use weft_control::status::{AttemptStatus, CandidateStatus, Document as _, NatStatus, ReachStatus, TriedStatus};
use weft_control::{Refusal, Reply};
use weft_core::{HintSource, Path, PeerStatus};
use weft_noise::PublicKey;
use weft_os::clock::boottime_ms;
use weft_reach::budget::OverBudget;
use weft_reach::message::{Candidate, Kind};
use weft_reach::nat::{Mappings, is_private};
use weft_reach::{End, Outcome, Record, Source, Tried, Why};

use super::absence::Absence;
use super::reach_advice::{self, Side};
use super::run::Daemon;
use super::why;

/// Why packets take their path.
struct Answer {
    code: &'static str,
    why: String,
}

/// When something more is tried with a peer, and what stands in the way.
#[derive(Clone, Copy, Debug, Default)]
struct Next {
    /// Milliseconds until the next attempt.
    attempt: Option<u64>,
    /// Milliseconds until the next search of ports may begin, if one has to wait.
    search: Option<u64>,
    /// The ordinary port, if links do without it and peers cannot be told where it is seen.
    unseen: Option<u16>,
}

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
        let history = reach.history(addr);
        let left = |at: Option<u64>| at.map(|at| at.saturating_sub(now)).filter(|ms| *ms > 0);
        let next = Next {
            attempt: left(reach.next_attempt(addr)),
            search: left(reach.next_search(addr)),
            unseen: self.unseen_port(),
        };
        let mut judged = peer.clone();
        let silence = self.facts.judge(&mut judged, now);
        let absence = self.facts.absence(&judged, silence, self.hears_no_other(key, now));
        let answer = self.why_path(&peer, absence.as_ref(), &history, next);
        let relayed = matches!(peer.path, Some(Path::Relayed(_)));
        let advises = relayed && absence.is_none() && self.configuration.config.reach.punch;
        let at = match peer.path {
            Some(Path::Direct(at)) => Some(at),
            _ => None,
        };
        let by_nostr = !self.configuration.config.nostr.relays.is_empty();
        let attempts = history.iter().rev().enumerate();
        Some(ReachStatus {
            schema: ReachStatus::SCHEMA.to_owned(),
            npub: key.to_string(),
            name: self.facts.names.get(key).map(|name| name.as_str().to_owned()),
            path: peer.path.map(|path| self.facts.path(&path)),
            why: answer.why,
            code: Some(answer.code.to_owned()),
            next_ms: next.attempt.filter(|_| relayed),
            advice: advises.then(|| self.advice(key, &history)).flatten(),
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
            nat: nat(reach.mappings()),
            peer_nat: reach.peer_mappings(addr).map(nat),
            attempts: attempts
                .map(|(n, record)| attempt(record, now, at.filter(|_| n == 0), by_nostr))
                .collect(),
        })
    }

    fn why_path(&self, peer: &PeerStatus, absence: Option<&Absence>, history: &[Record], next: Next) -> Answer {
        let answer = |code, why| Answer { code, why };
        match (peer.path, absence) {
            (Some(_), Some(_)) if self.facts.no_network => answer("no-network", why::NO_NETWORK.to_owned()),
            (None, _) if self.facts.no_network => answer("no-network", self.facts.why(peer, boottime_ms())),
            (None, Some(Absence { code, why })) => {
                let more = self.facts.why(peer, boottime_ms());
                answer(code, format!("{why}; {more}"))
            }
            (Some(_), Some(Absence { code, why })) => answer(code, why.clone()),
            (None, None) => answer("no-path", self.facts.why(peer, boottime_ms())),
            (Some(Path::Direct(_)), None) => answer("direct", why_direct(peer)),
            (Some(Path::Relayed(_)), None) if !self.configuration.config.reach.punch => answer(
                "off",
                "the path goes through other nodes, and this node looks for no direct one: reach.punch = false".to_owned(),
            ),
            (Some(Path::Relayed(_)), None) if history.is_empty() => match peer.session {
                None => answer(
                    "idle",
                    "the path goes through other nodes; a direct one is looked for as soon as packets pass".to_owned(),
                ),
                Some(_) if self.facts.nvpn.contains(&peer.key) => answer(
                    "no-part",
                    "the path goes through other nodes: the peer is an nvpn device, which takes no part in a search for a direct \
                     one with weft"
                        .to_owned(),
                ),
                Some(_) => answer(
                    "no-part",
                    "the path goes through other nodes, and the peer takes no part in a search for a direct one: it is no weft \
                     node, or an older one"
                        .to_owned(),
                ),
            },
            (Some(Path::Relayed(_)), None) => why_relayed(history, next),
        }
    }

    /// Returns the ordinary port of IPv4 if links go through another one, and neither observers outside nor a
    /// gateway say at which address others meet it.
    pub(super) fn unseen_port(&self) -> Option<u16> {
        let reach = self.reaching.reach();
        let outer = |own: &Candidate| own.kind != Kind::Host && own.at.is_ipv4() && !is_private(own.at.ip());
        let unseen = self.has_link_aside() && !reach.candidates().iter().any(outer);
        let own = self.facts.listen.iter().find(|own| own.is_ipv4());
        own.map(SocketAddr::port).filter(|_| unseen)
    }

    /// Returns what would help, if that is known: after an attempt in which no address answered.
    fn advice(&self, key: &PublicKey, history: &[Record]) -> Option<String> {
        let record = ended(history).filter(|record| matches!(record.end, Some((_, End::NoAnswer))))?;
        if let Some(port) = self.unseen_port() {
            return Some(reach_advice::advice_aside(port));
        }
        let reach = self.reaching.reach();
        let theirs = reach.peer_mappings(key.node_addr()).unwrap_or_default();
        let candidates = reach.candidates().iter().copied();
        let mut own = Side::new("this machine".to_owned(), reach.mappings().v4, candidates);
        own.observer = self.only_observer(boottime_ms());
        let theirs = Side::of_peer(self.facts.name(key), theirs.v4, record);
        Some(reach_advice::advice(&own, &theirs))
    }

    /// Returns the one neighbour or server outside that may see this node's address of IPv4.
    fn only_observer(&self, now: u64) -> Option<String> {
        let outside = |at: &SocketAddr| at.is_ipv4() && !is_private(at.ip());
        let linked = self.node.peer_status(now).filter_map(|peer| match peer.path {
            Some(Path::Direct(at)) if outside(&at) => Some(self.facts.name(&peer.key)),
            _ => None,
        });
        let seen = self.stun_status(now).into_iter();
        let servers = seen.filter(|server| server.seen.is_some()).map(|server| server.server);
        let mut all = linked.chain(servers);
        all.next().filter(|_| all.next().is_none())
    }
}

fn why_direct(peer: &PeerStatus) -> String {
    if peer.source == Some(HintSource::Search) {
        return "the path is direct: a search of ports has found it".to_owned();
    }
    match peer.path_changes.first() {
        Some(change) => format!("the path is direct: {}", why::why_path(change.reason)),
        None => "the path is direct".to_owned(),
    }
}

/// Returns the last attempt that has come to an end.
fn ended(history: &[Record]) -> Option<&Record> {
    history.iter().rev().find(|record| record.end.is_some())
}

/// Returns why the path is not direct after these attempts. What the last one has shown holds until the next
/// one has ended.
fn why_relayed(history: &[Record], next: Next) -> Answer {
    let runs = history.last().is_some_and(|record| record.end.is_none());
    let Some((record, (_, end))) = ended(history).and_then(|record| Some((record, record.end?))) else {
        return Answer {
            code: "trying",
            why: "the path goes through other nodes: the first attempt at a direct one is in progress".to_owned(),
        };
    };
    let mut why = format!(
        "the path goes through other nodes: the last attempt at a direct one {}",
        in_words(end)
    );
    why += &match (runs, next.attempt) {
        (true, _) => "; another attempt is going on".to_owned(),
        (false, Some(ms)) => format!("; the next one begins in {} s", ms.div_ceil(1_000)),
        (false, None) => String::new(),
    };
    if end == End::NoAnswer {
        let spent = |tried: &Tried| tried.outcome == Outcome::OverBudget(OverBudget::Hour);
        if record.tried.iter().any(spent) {
            why += "; an address that has got its bytes of an hour is tried again within the hour";
        }
        if let Some(ms) = next.search {
            why += &format!("; the next search of ports may begin in {} s", ms.div_ceil(1_000));
        }
        if let Some(port) = next.unseen {
            why += &format!("; {}", reach_advice::aside(port));
            return Answer {
                code: "other-port",
                why,
            };
        }
    }
    Answer { code: code(end), why }
}

fn code(end: End) -> &'static str {
    match end {
        End::Found(_) => "found",
        End::NoReply => "no-reply",
        End::NoAnswer => "no-answer",
        End::Direct | End::Replaced => "ended",
    }
}

fn nat(mappings: Mappings) -> NatStatus {
    NatStatus {
        ipv4: mappings.v4.to_string(),
        ipv6: mappings.v6.to_string(),
    }
}

/// Returns an attempt as a document. `path`: the direct path that there is now, if this was the last attempt;
/// `by_nostr`: there are Nostr relays through which both could agree on it.
fn attempt(record: &Record, now: u64, path: Option<SocketAddr>, by_nostr: bool) -> AttemptStatus {
    let because = match record.why {
        Why::Relayed => "the path goes through other nodes",
        Why::Again => "an earlier attempt failed",
        Why::Candidates => "the addresses of this node changed",
        Why::Network => "the network of this node changed",
        Why::Peer => "the peer began it",
        Why::Agreed if by_nostr => "both agreed on it through a Nostr relay, or in messages of their session",
        Why::Agreed => "both agreed on it in messages of their session",
    };
    let end = record.end.map(|(_, end)| end);
    let outcome = match (end, path) {
        (None, _) => "is in progress".to_owned(),
        (Some(End::Direct), Some(at)) => format!("ended because a link came up at {at}"),
        (Some(end), _) => in_words(end).to_owned(),
    };
    AttemptStatus {
        ago_ms: now.saturating_sub(record.started),
        because: because.to_owned(),
        took_ms: record.end.map(|(at, _)| at.saturating_sub(record.started)),
        outcome,
        tried: record.tried.iter().map(|one| tried(one, end, path)).collect(),
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

fn tried(tried: &Tried, end: Option<End>, path: Option<SocketAddr>) -> TriedStatus {
    let source = match tried.source {
        Source::Told(Kind::Unknown(_)) => "unknown".to_owned(),
        Source::Told(kind) => kind.to_string(),
        Source::Heard => "probe".to_owned(),
        Source::Searched => "search".to_owned(),
    };
    let outcome = match (tried.outcome, end) {
        (Outcome::Probing | Outcome::Silent, _) if path == Some(tried.at) => {
            "became the path before a probe was answered".to_owned()
        }
        (Outcome::Silent, Some(End::Found(at))) if tried.source == Source::Searched && at.ip() == tried.at.ip() => {
            format!("led to {at}")
        }
        (Outcome::Silent, Some(End::Found(_))) => "had not answered when another one did".to_owned(),
        (Outcome::Probing, _) => "is being tried".to_owned(),
        (Outcome::Silent, _) => "does not answer".to_owned(),
        (Outcome::Answered, _) => "answers".to_owned(),
        (Outcome::Refused(cause), _) => format!("was not tried: {cause}"),
        (Outcome::OverBudget(cause), _) => format!("was not tried further: {cause}"),
    };
    TriedStatus {
        address: tried.at,
        source,
        probes: tried.probes,
        outcome,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    fn one(text: &str, source: Source, outcome: Outcome) -> Tried {
        Tried {
            at: at(text),
            source,
            last: None,
            probes: 2,
            outcome,
        }
    }

    fn record(end: Option<End>, tried: Vec<Tried>) -> Record {
        Record {
            started: 1_000,
            why: Why::Again,
            end: end.map(|end| (11_000, end)),
            tried,
        }
    }

    #[test]
    fn a_result_is_kept_while_another_attempt_goes_on() {
        let (failed, running) = (record(Some(End::NoAnswer), Vec::new()), record(None, Vec::new()));
        let both = [failed.clone(), running.clone()];
        let told = why_relayed(&both, Next::default());
        assert!(
            told.why
                .ends_with("found no address that answers; another attempt is going on"),
            "{}",
            told.why
        );
        assert_eq!(told.code, "no-answer");
        assert_eq!(ended(&both), Some(&failed));
        let told = why_relayed(&[running], Next::default());
        assert!(told.why.ends_with("the first attempt at a direct one is in progress"));
        assert_eq!(told.code, "trying");
    }

    #[test]
    fn an_attempt_that_is_held_up_says_until_when() {
        let spent = Outcome::OverBudget(OverBudget::Hour);
        let source = Source::Told(Kind::Observed);
        let failed = record(Some(End::NoAnswer), vec![one("11.0.2.2:2121", source, spent)]);
        let next = Next {
            attempt: Some(24_300),
            search: Some(540_000),
            unseen: None,
        };
        let told = why_relayed(&[failed], next).why;
        for words in [
            "the next one begins in 25 s",
            "is tried again within the hour",
            "the next search of ports may begin in 540 s",
        ] {
            assert!(told.contains(words), "{told}");
        }
    }

    #[test]
    fn an_ordinary_port_that_is_not_seen_is_named() {
        let next = Next {
            unseen: Some(2121),
            ..Next::default()
        };
        let told = |end| why_relayed(&[record(Some(end), Vec::new())], next);
        let silent = told(End::NoAnswer);
        assert_eq!(silent.code, "other-port");
        assert!(silent.why.contains("outside sees UDP port 2121"), "{}", silent.why);
        assert_eq!(told(End::NoReply).code, "no-reply", "the peer's addresses are missing");
    }

    #[test]
    fn the_address_of_the_path_is_not_said_to_be_silent() {
        let source = Source::Told(Kind::Observed);
        let silent = one("11.0.2.2:2121", source, Outcome::Silent);
        let record = record(Some(End::Direct), vec![silent]);
        let shown = attempt(&record, 20_000, Some(at("11.0.2.2:2121")), false);
        assert_eq!(shown.outcome, "ended because a link came up at 11.0.2.2:2121");
        assert_eq!(shown.tried[0].outcome, "became the path before a probe was answered");
        let shown = attempt(&record, 20_000, None, false);
        assert_eq!(shown.tried[0].outcome, "does not answer");
    }

    #[test]
    fn a_search_that_led_to_an_address_says_so() {
        let searched = one("11.0.1.2:0", Source::Searched, Outcome::Silent);
        let found = record(Some(End::Found(at("11.0.1.2:59011"))), vec![searched]);
        let shown = attempt(&found, 20_000, None, false);
        assert_eq!(shown.tried[0].outcome, "led to 11.0.1.2:59011");
    }

    #[test]
    fn an_agreement_without_relays_names_the_session() {
        let mut agreed = record(None, Vec::new());
        agreed.why = Why::Agreed;
        let because = |by_nostr| attempt(&agreed, 20_000, None, by_nostr).because;
        assert_eq!(because(false), "both agreed on it in messages of their session");
        assert!(because(true).contains("a Nostr relay"));
    }
}
