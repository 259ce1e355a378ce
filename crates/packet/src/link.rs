//! One link: its keys, its paths, and the accounts of its traffic.

use std::collections::BTreeMap;

use weft_contract::{Endpoint, EpochUse, LabelRoute, LinkId, LinkKeys, Totals};
use weft_wire::NodeAddr;

use crate::clear::ClearQuota;
use crate::fast::Fast;
use crate::fips::{Epoch, Epochs};
use crate::interval::SenderInterval;
use crate::meter::Meter;
use crate::paths::Paths;

/// The link with one neighbour, and its keys.
pub(crate) struct Link {
    pub(crate) id: LinkId,
    /// The neighbour.
    pub(crate) peer: NodeAddr,
    pub(crate) paths: Paths,
    /// For each epoch that is not proven: its index, the address in its handshake, and whether its
    /// answer went to no other.
    answered: Vec<(u32, Endpoint, bool)>,
    /// Whether the link has had an epoch that seals.
    in_use: bool,
    pub(crate) epochs: Epochs,
    pub(crate) totals: Totals,
    sampled: Totals,
    /// Whether what is forwarded over the link is marked as having experienced congestion.
    pub(crate) congested: bool,
    pub(crate) meter: Meter,
    /// The beginning of the next SenderReport.
    pub(crate) sender_interval: SenderInterval,
    /// When [`LinkReport::UnknownSession`](crate::LinkReport::UnknownSession) was last sent for
    /// this link, in ms: its rate is bounded.
    pub(crate) last_unknown: u64,
    /// The quota of session messages in the clear from this neighbour.
    pub(crate) clear: ClearQuota,
    /// The keys under which relayed fast frames go over the link.
    pub(crate) hop: Fast,
    /// Where relayed frames from this neighbour go, by the label in them.
    pub(crate) labels: BTreeMap<u32, LabelRoute>,
    /// When [`LinkReport::LabelFailed`](crate::LinkReport::LabelFailed) was last sent for this
    /// link, in ms.
    pub(crate) last_failed_label: u64,
}

impl Link {
    /// Makes a link with `peer` at `path`. Unless `proven`, the peer still has to prove that it is
    /// at that address.
    pub(crate) fn new(id: LinkId, peer: NodeAddr, path: Endpoint, proven: bool) -> Self {
        Self {
            id,
            peer,
            paths: Paths::new(path, proven),
            answered: Vec::new(),
            in_use: false,
            epochs: Epochs::default(),
            totals: Totals::default(),
            sampled: Totals::default(),
            congested: false,
            meter: Meter::default(),
            sender_interval: SenderInterval::default(),
            last_unknown: 0,
            clear: ClearQuota::default(),
            hop: Fast::default(),
            labels: BTreeMap::new(),
            last_failed_label: 0,
        }
    }

    /// Accounts for frames that were sent over the link. `payload`: their content may call for an
    /// answer.
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

    /// Accounts for frames that were received over the link and opened.
    #[inline]
    pub(crate) fn received(&mut self, now: u64, frames: u64, bytes: usize) {
        self.totals.rx_frames += frames;
        self.totals.rx_bytes += bytes as u64;
        self.totals.last_rx = now;
    }

    /// Accounts for received frames whose content may call for an answer.
    #[inline]
    pub(crate) fn received_payload(&mut self, frames: u64) {
        self.totals.rx_payload += frames;
    }

    /// Returns the totals if they have changed since the last call.
    pub(crate) fn sample(&mut self) -> Option<Totals> {
        let changed = self.totals != self.sampled;
        self.sampled = self.totals;
        changed.then_some(self.totals)
    }

    /// Installs keys whose handshake shows the peer at `path`, which is either `proven` or still
    /// has to be. Returns the receiver index of the keys that were removed for them.
    pub(crate) fn install(
        &mut self,
        now: u64,
        path: Endpoint,
        proven: bool,
        keys: &LinkKeys,
        usage: EpochUse,
    ) -> Option<u32> {
        self.note_path(keys.our_index.0, path, proven, usage);
        let initiator = usage != EpochUse::Candidate;
        let epoch = Epoch::new(
            now,
            keys.our_index.0,
            keys.their_index.0,
            &keys.send,
            &keys.recv,
            initiator,
        );
        let evicted = self.epochs.install(epoch, usage);
        if let Some(index) = evicted {
            self.forget_answer(index);
        }
        evicted
    }

    /// Removes the keys with this receiver index.
    pub(crate) fn retire(&mut self, index: u32) {
        self.epochs.retire(index);
        self.forget_answer(index);
    }

    fn forget_answer(&mut self, index: u32) {
        self.answered.retain(|(known, ..)| *known != index);
    }

    /// Records the address that the handshake of an epoch shows for the peer. Only a handshake of
    /// this node changes the path of a link in use, since the initiator of any other may be any
    /// host until its keys are proven.
    fn note_path(&mut self, index: u32, path: Endpoint, proven: bool, usage: EpochUse) {
        let fresh = !self.in_use;
        self.in_use |= usage == EpochUse::Send;
        match usage {
            EpochUse::Send if proven => self.paths.place(path, None),
            EpochUse::Send if fresh => self.paths = Paths::new(path, false),
            EpochUse::Candidate => {
                self.forget_answer(index);
                self.answered.reserve_exact(1);
                self.answered.push((index, path, proven));
            }
            EpochUse::Send | EpochUse::ReceiveOnly => {}
        }
        if fresh && usage != EpochUse::Send {
            self.paths = Paths::new(path, proven);
        }
    }

    /// Records that the answer to a candidate's handshake was also sent to another address.
    pub(crate) fn suspect_path(&mut self, index: u32) {
        if let Some((.., proven)) = self.answered.iter_mut().find(|(known, ..)| *known == index) {
            *proven = false;
        }
    }

    /// Records that a frame from `from` has proven the candidate `index`, which seals from now on:
    /// the sender of the frame has received the answer to its handshake. That proves the sender's
    /// address if the answer went to one address only. Of the addresses of this host that it may have
    /// asked, it uses the one that the frame came to.
    pub(crate) fn settle_path(&mut self, index: u32, from: Endpoint) {
        let was_in_use = std::mem::replace(&mut self.in_use, true);
        let Some(at) = self.answered.iter().position(|(known, ..)| *known == index) else {
            return;
        };
        let (_, path, proven) = self.answered.swap_remove(at);
        self.answered.shrink_to_fit();
        let path = if path.is_to(from) { from } else { path };
        if proven && (path == from || !was_in_use) {
            let used = self.paths.is_proven().then(|| self.paths.proven());
            let same = used.filter(|used| was_in_use && used.covers(path));
            self.paths.place(same.unwrap_or(path), None);
        } else if !was_in_use {
            self.paths = Paths::new(from, false);
        }
    }
}
