//! One link: its keys, its paths, and the accounts of what goes over it.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use weft_wire::NodeAddr;

use crate::clear::ClearQuota;
use crate::control::{Carry, EpochUse, Totals};
use crate::epoch::Epochs;
use crate::fast::Fast;
use crate::measure::Told;
use crate::meter::Meter;
use crate::paths::Paths;

/// One peer relation and its keys.
pub(crate) struct Link {
    /// Who is at the other end.
    pub(crate) peer: NodeAddr,
    pub(crate) paths: Paths,
    /// Where the answers to handshakes went whose epochs are not proven, and whether to nowhere else.
    pub(crate) answered: Vec<(u32, SocketAddr, bool)>,
    /// It has sealed, or may have.
    in_use: bool,
    pub(crate) epochs: Epochs,
    pub(crate) totals: Totals,
    sampled: Totals,
    /// What is forwarded over it is marked.
    pub(crate) congested: bool,
    pub(crate) meter: Meter,
    /// Where the next SenderReport begins.
    pub(crate) told: Told,
    /// When [`Report::UnknownSession`] was last sent for this link, so that it is rare.
    pub(crate) last_unknown: u64,
    /// What it may bring of session messages in the clear.
    pub(crate) clear: ClearQuota,
    /// The keys that relayed fast frames go over it with.
    pub(crate) hop: Fast,
    /// Where those that come over it go, by the neighbour's labels.
    pub(crate) labels: BTreeMap<u32, Carry>,
    /// When [`Report::LabelFailed`] was last sent for this link.
    pub(crate) last_failed_label: u64,
}

impl Link {
    /// A link with `peer`, which is at `path` or, unless `proven`, has to show that it is.
    pub(crate) fn new(peer: NodeAddr, (path, proven): (SocketAddr, bool)) -> Self {
        Self {
            peer,
            paths: Paths::new(path, proven),
            answered: Vec::new(),
            in_use: false,
            epochs: Epochs::default(),
            totals: Totals::default(),
            sampled: Totals::default(),
            congested: false,
            meter: Meter::default(),
            told: Told::default(),
            last_unknown: 0,
            clear: ClearQuota::default(),
            hop: Fast::default(),
            labels: BTreeMap::new(),
            last_failed_label: 0,
        }
    }

    /// Accounts for frames that were sent over the link. `payload`: what they carry may want an answer.
    #[inline]
    pub(crate) fn sent(&mut self, now: u64, frames: u64, bytes: usize, payload: bool) {
        if frames == 0 {
            return;
        }
        self.totals.tx_frames += frames;
        self.totals.tx_bytes += bytes as u64;
        self.totals.last_tx = now;
        if payload {
            self.totals.last_payload_tx = now;
        }
    }

    /// Accounts for frames that came over the link and opened.
    #[inline]
    pub(crate) fn received(&mut self, now: u64, frames: u64, bytes: usize) {
        self.totals.rx_frames += frames;
        self.totals.rx_bytes += bytes as u64;
        self.totals.last_rx = now;
    }

    /// So many of the frames that came carry what may want an answer.
    #[inline]
    pub(crate) fn received_payload(&mut self, frames: u64) {
        self.totals.rx_payload += frames;
    }

    /// The totals, if they have changed since the last call.
    pub(crate) fn sample(&mut self) -> Option<Totals> {
        let changed = self.totals != self.sampled;
        self.sampled = self.totals;
        changed.then_some(self.totals)
    }

    /// Takes note of where the handshake of an epoch shows the peer to be. The path of a link in use changes by our own
    /// handshake alone; the initiator of any other may be any host until its keys are proven.
    pub(crate) fn note_path(&mut self, index: u32, (path, proven): (SocketAddr, bool), usage: EpochUse) {
        let fresh = !self.in_use;
        self.in_use |= usage == EpochUse::Send;
        match usage {
            EpochUse::Send if proven => self.paths.place(path, None),
            EpochUse::Send if fresh => self.paths = Paths::new(path, false),
            EpochUse::Candidate => {
                self.answered.retain(|(known, ..)| *known != index);
                self.answered.reserve_exact(1);
                self.answered.push((index, path, proven));
            }
            EpochUse::Send | EpochUse::ReceiveOnly => {}
        }
        if fresh && usage != EpochUse::Send {
            self.paths = Paths::new(path, proven);
        }
    }

    /// The answer to a candidate's handshake has gone to another address as well.
    pub(crate) fn doubt_path(&mut self, index: u32) {
        if let Some((.., proven)) = self.answered.iter_mut().find(|(known, ..)| *known == index) {
            *proven = false;
        }
    }

    /// The candidate `index` is proven by a frame from `from`, and seals from now on: the sender of the frame got the answer
    /// to its handshake. That shows where it is, if the answer went to one address.
    pub(crate) fn settle_path(&mut self, index: u32, from: SocketAddr) {
        let was_in_use = std::mem::replace(&mut self.in_use, true);
        let Some(at) = self.answered.iter().position(|(known, ..)| *known == index) else {
            return;
        };
        let (_, path, proven) = self.answered.swap_remove(at);
        self.answered.shrink_to_fit();
        if proven && (path == from || !was_in_use) {
            self.paths.place(path, None);
        } else if !was_in_use {
            self.paths = Paths::new(from, false);
        }
    }
}
