//! What was tried to reach a peer: what `weft why PEER` shows of it.

use std::net::SocketAddr;

use crate::budget::OverBudget;
use crate::candidate::Refused;
use crate::message::Kind;

/// Why an attempt began.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Why {
    /// The peer is reached through relays.
    Relayed,
    /// An earlier attempt failed.
    Again,
    /// The addresses of this node changed.
    Candidates,
    /// The network of this node changed.
    Network,
    /// The peer began it.
    Peer,
    /// Both agreed on it outside of a session ([`Reach::punch`](crate::Reach::punch)).
    Agreed,
}

/// Where a target comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// The peer named it.
    Told(Kind),
    /// A probe of the peer came from it ("peer-reflexive", RFC 8445).
    Heard,
    /// A search for ports ([`Output::OpenSockets`](crate::Output::OpenSockets)). The port of its
    /// address is 0 if many were probed.
    Searched,
}

/// How an attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// A probe was answered from this address.
    Found(SocketAddr),
    /// The peer answered no message.
    NoReply,
    /// No probe was answered.
    NoAnswer,
    /// The peer became direct in another way.
    Direct,
    /// Another attempt with the peer took its place.
    Replaced,
}

/// What became of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is being probed.
    Probing,
    /// It did not answer.
    Silent,
    /// It answered a probe.
    Answered,
    /// It is not probed.
    Refused(Refused),
    /// It was not probed further.
    OverBudget(OverBudget),
}

/// A target, and what was tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tried {
    /// Its address.
    pub at: SocketAddr,
    /// Where it comes from.
    pub source: Source,
    /// When it was probed last, in ms.
    pub last: Option<u64>,
    /// The probes that were sent.
    pub probes: u32,
    /// What became of it.
    pub outcome: Outcome,
}

/// What was tried in one attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// When it began, in ms.
    pub started: u64,
    /// Why it began.
    pub why: Why,
    /// When and how it ended, if it has.
    pub end: Option<(u64, End)>,
    /// Its targets, in the order in which they were probed first.
    pub tried: Vec<Tried>,
}
