//! Requests for membership without an invite, as the node that asks keeps them.

use std::net::SocketAddr;

use weft_core::hint::{self, HintSource};
use weft_noise::PublicKey;
use weft_roster::names::Name;
use weft_roster::network_id::NetworkId;

use super::Row;
use crate::document::{Document, Verdict};

/// Maximum number of administrators that a node asks at a time.
pub const MAX_ASKED: usize = 4;
/// The interval between two requests to one, in ms.
const AGAIN: u64 = 2_000;
/// The time for which a node continues to ask, in ms.
const LASTS: u64 = 3_600_000;

/// A request to one administrator. It ends with this run of the daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// Where the administrator may be.
    pub addresses: Vec<SocketAddr>,
    /// The name that this node would like.
    pub name: Option<Name>,
    /// The last answer.
    pub verdict: Option<Verdict>,
    /// The network that this node is taken into.
    pub network: Option<NetworkId>,
    next: u64,
    until: u64,
}

impl Asked {
    pub(super) fn new(addresses: Vec<SocketAddr>, name: Option<Name>, now: u64) -> Self {
        Self {
            addresses,
            name,
            verdict: None,
            network: None,
            next: now,
            until: now + LASTS,
        }
    }

    /// Returns true while the request continues.
    #[must_use]
    pub fn is_open(&self) -> bool {
        !self.verdict.is_some_and(Verdict::is_final)
    }

    /// Whether it is to be forgotten.
    pub(super) fn is_over(&self, now: u64) -> bool {
        now >= self.until
    }

    /// The row of the administrator, a contact, while the request continues.
    pub(super) fn row(&self, admin: &PublicKey) -> Option<Row> {
        let hints = || {
            let mut hints = Vec::new();
            for at in &self.addresses {
                hint::add(&mut hints, *at, HintSource::Invite);
            }
            hints
        };
        self.is_open().then(|| Row {
            key: *admin,
            name: None,
            network: None,
            addresses: hints(),
            ipv4: None,
            source: None,
            member: false,
        })
    }

    /// The request, if it is due.
    pub(super) fn poll(&mut self, now: u64) -> Option<Vec<u8>> {
        if !self.is_open() || now < self.next {
            return None;
        }
        self.next = now + AGAIN;
        let name = self.name.clone();
        Some(Document::Request { name }.encode())
    }

    /// When something is due.
    pub(super) fn timeout(&self) -> u64 {
        match self.is_open() {
            true => self.next.min(self.until),
            false => self.until,
        }
    }
}
