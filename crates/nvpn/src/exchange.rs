//! What this node and the nvpn devices of its networks tell each other: presence, capabilities, lists of
//! members, and the answers to requests to join.
//!
//! A peer is a device once it has sent a control frame without the mark of weft's own, in a session that
//! agreed on no messages of weft.
//! Times named `now` are ms on a clock that never goes back; `unix` is seconds since 1970.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use weft_contract::{Bucket, Rate};
use weft_noise::PublicKey;
use weft_nostr::event::Event;

use crate::control::{self, Capabilities, Frame, FrameError, MAX_FRAME};
use crate::join::manual_token;
use crate::network_id::NetworkId;
use crate::secret::Secret;

mod edit;
mod foreign;
mod list;
mod peer;

use edit::Shown;
pub use edit::{Edit, Left};
use foreign::Asking;
pub use foreign::{ANSWERS, FOLLOWS};
pub use list::{Held, ListError};
use peer::{Leaving, Peer};

/// The interval between pings of a device that is there, in ms (nvpn 4.1.19).
pub const PING: u64 = 10_000;
/// The interval between pings of a peer that has sent no control frame yet, in ms.
pub const FIRST_PING: u64 = 5_000;
/// The interval between pings of a peer that answers none, in ms. It may be a node of FIPS.
pub const RARE_PING: u64 = 30_000;
/// The time after the last control frame of a device for which it counts as online, in ms (nvpn 4.1.19).
pub const ONLINE: u64 = 20_000;
/// The interval between two lists, and between two capabilities, to one device, in ms (nvpn 4.1.19).
pub const REPEAT: u64 = 60_000;
/// How long capabilities of a device count, in ms (nvpn 4.1.19).
pub const CAPABILITIES: u64 = 600_000;
/// The interval between two answers to a request to join, in ms (nvpn 4.1.19).
pub const JOIN_AGAIN: u64 = 12_000;
/// How long a device that was taken in is sought, in ms (nvpn 4.1.19).
pub const JOIN: u64 = 900_000;
/// Devices that are sought at a time (nvpn 4.1.19).
pub const MAX_JOINS: usize = 8;
/// How long a device that was removed gets the list that shows it, in ms: as long as its link stays.
pub const LEAVE: u64 = 60_000;
/// How long a list that says something else than the records stays, in ms: the records may be on their way.
pub const RIVAL: u64 = 10_000;
/// The length limit of documents from nodes that are not members, in bytes.
pub const MAX_OF_OTHERS: usize = 4_096;
/// Changes of members that one list may bring, and that lists bring in the long run: a change each second.
pub const EDITS: Rate = Rate {
    per_second: 1,
    burst: 64,
};
/// The shortest interval between two events of one device whose signatures are verified, in ms.
pub const VERIFY: u64 = 1_000;

/// What the exchange calls for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// A control frame for the session with a peer.
    Datagram {
        /// The receiver.
        to: PublicKey,
        /// The body of a session message 0x15.
        bytes: Vec<u8>,
    },
    /// A control frame for a [stream](control::PORT) to a device.
    Document {
        /// The receiver.
        to: PublicKey,
        /// The document.
        bytes: Vec<u8>,
    },
    /// A peer has sent its first control frame: it is a device.
    Found {
        /// The peer.
        device: PublicKey,
    },
    /// A device has said what it offers and where it is: [`Exchange::seen`].
    Said {
        /// The device.
        device: PublicKey,
    },
    /// A device has answered a ping.
    Answered {
        /// The device.
        device: PublicKey,
    },
    /// A device that was taken in has stored its list.
    Joined {
        /// The device.
        device: PublicKey,
    },
    /// A device that was told of this network and of this node by hand asks to be taken in.
    Asks {
        /// The device.
        device: PublicKey,
        /// The network, as the device has it.
        network: NetworkId,
        /// What it calls itself.
        name: String,
    },
    /// An administrator has changed the list of a network with nvpn. Until the records say the same, they
    /// have [`RIVAL`] ms.
    Edited {
        /// The network.
        network: NetworkId,
        /// What was changed.
        edit: Edit,
    },
    /// An administrator of a network that was founded with nvpn has taken this node in. Once it is stored,
    /// [`Exchange::confirm`] says so.
    Invited {
        /// The node that has sent the list.
        by: PublicKey,
        /// The list.
        event: Event,
    },
    /// The list of a network that was founded with nvpn is a later one.
    Replaced {
        /// The list.
        event: Event,
    },
}

/// A device that was taken in and has not confirmed it.
#[derive(Debug, Clone)]
struct Join {
    network: NetworkId,
    secret: Secret,
    /// Whether it has shown a link, and so did not know the network before.
    by_link: bool,
    until: u64,
    next: u64,
    /// The list that it was sent last.
    sent: Option<[u8; 32]>,
}

/// The lists that devices get, by network.
type Lists = BTreeMap<NetworkId, Held>;

/// What a device says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// How long ago its last control frame came, in ms.
    pub heard_ms: u64,
    /// What it offers, if it said so lately.
    pub capabilities: Option<Capabilities>,
}

impl Seen {
    /// Whether the device is there, by nvpn's measure.
    #[must_use]
    pub const fn is_online(&self) -> bool {
        self.heard_ms < ONLINE
    }
}

/// What this node and devices tell each other; see the module.
#[derive(Debug)]
pub struct Exchange {
    own: PublicKey,
    offer: Capabilities,
    peers: BTreeMap<PublicKey, Peer>,
    joins: BTreeMap<PublicKey, Join>,
    leaving: BTreeMap<(PublicKey, NetworkId), Leaving>,
    asking: Option<Asking>,
    lists: Lists,
    /// The times that the next list of a network has to exceed, of lists that devices have and that do not count.
    floors: BTreeMap<NetworkId, u64>,
    /// What the users of devices edit.
    shown: Shown,
    /// The budgets of changes that lists of a network bring.
    edits: BTreeMap<NetworkId, Bucket>,
    /// The budgets of lists of networks that were founded with nvpn.
    follows: BTreeMap<NetworkId, Bucket>,
    out: VecDeque<Output>,
}

impl Exchange {
    /// Makes the exchange of the node with this key.
    #[must_use]
    pub fn new(own: PublicKey) -> Self {
        Self {
            own,
            offer: Capabilities::default(),
            peers: BTreeMap::new(),
            joins: BTreeMap::new(),
            leaving: BTreeMap::new(),
            asking: None,
            lists: BTreeMap::new(),
            floors: BTreeMap::new(),
            shown: Shown::default(),
            edits: BTreeMap::new(),
            follows: BTreeMap::new(),
            out: VecDeque::new(),
        }
    }

    /// Sets what this node offers; the time in it is not read.
    pub fn set_offer(&mut self, offer: Capabilities) {
        if (&offer.routes, &offer.hints) != (&self.offer.routes, &self.offer.hints) {
            self.peers.values_mut().for_each(|peer| peer.told = None);
        }
        self.offer = offer;
    }

    /// Sets the members that have a session without messages of weft, each with the networks of both.
    pub fn set_peers(&mut self, now: u64, peers: &BTreeMap<PublicKey, BTreeSet<NetworkId>>) {
        for (key, peer) in &self.peers {
            let stays = peers.get(key);
            let left = peer
                .networks
                .iter()
                .filter(|of| stays.is_none_or(|stays| !stays.contains(*of)));
            for network in left.filter(|_| peer.heard.is_some()) {
                let leaving = Leaving::new(now, now + LEAVE);
                self.leaving.insert((*key, network.clone()), leaving);
            }
        }
        self.peers.retain(|key, _| peers.contains_key(key));
        for (key, networks) in peers {
            let Some(first) = networks.first() else { continue };
            let new = || Peer::new(now, networks.clone(), first.clone());
            let known = self.peers.entry(*key).or_insert_with(new);
            known.networks.clone_from(networks);
            if !networks.contains(&known.network) {
                known.enter(first.clone());
            }
        }
        let is_over = |(key, network): &(PublicKey, NetworkId), leaving: &Leaving| {
            now >= leaving.until || peers.get(key).is_some_and(|of| of.contains(network))
        };
        self.leaving.retain(|of, leaving| !is_over(of, leaving));
    }

    /// Forgets the lists of other networks than these, and the devices that are sought for them or are no
    /// members of theirs any longer.
    pub fn retain(&mut self, networks: &BTreeSet<NetworkId>, is_member: impl Fn(&NetworkId, &PublicKey) -> bool) {
        self.lists.retain(|network, _| networks.contains(network));
        self.floors.retain(|network, _| networks.contains(network));
        self.edits.retain(|network, _| networks.contains(network));
        self.follows.retain(|network, _| networks.contains(network));
        let lists = &self.lists;
        self.shown
            .retain(|network, key| lists.get(network).is_some_and(|held| held.list.names(key)));
        self.leaving.retain(|(_, network), _| networks.contains(network));
        let is_sought =
            |key: &PublicKey, join: &Join| networks.contains(&join.network) && is_member(&join.network, key);
        self.joins.retain(|key, join| is_sought(key, join));
    }

    /// Returns what a device says of itself, or `None` for a peer that has sent no control frame.
    #[must_use]
    pub fn seen(&self, now: u64, peer: &PublicKey) -> Option<Seen> {
        let known = self.peers.get(peer)?;
        let fresh = |(_, at): &&(Capabilities, u64)| now.saturating_sub(*at) < CAPABILITIES;
        Some(Seen {
            heard_ms: now.saturating_sub(known.heard?),
            capabilities: known.capabilities.as_ref().filter(fresh).map(|(said, _)| said.clone()),
        })
    }

    /// Returns whether a peer is a device.
    #[must_use]
    pub fn is_device(&self, peer: &PublicKey) -> bool {
        self.peers.get(peer).is_some_and(|peer| peer.heard.is_some())
    }

    /// Returns the peers that are devices.
    pub fn devices(&self) -> impl Iterator<Item = &PublicKey> {
        let devices = self.peers.iter().filter(|(_, peer)| peer.heard.is_some());
        devices.map(|(key, _)| key)
    }

    /// Returns whether a network has devices.
    #[must_use]
    pub fn has_devices(&self, network: &NetworkId) -> bool {
        self.peers
            .values()
            .any(|peer| peer.heard.is_some() && peer.network == *network)
    }

    /// Returns the networks of devices that were removed a moment ago, or whose session has ended.
    pub fn leaving(&self) -> impl Iterator<Item = &NetworkId> {
        self.leaving.keys().map(|(_, network)| network)
    }

    /// Returns the networks of devices that were taken in and have not confirmed it.
    pub fn joining(&self) -> impl Iterator<Item = &NetworkId> {
        self.joins.values().map(|join| &join.network)
    }

    /// Returns for how many ms more a device is sought, or `None` if it is not.
    #[must_use]
    pub fn sought(&self, now: u64, device: &PublicKey) -> Option<u64> {
        let join = self.joins.get(device)?;
        join.until.checked_sub(now).filter(|left| *left > 0)
    }

    /// Sends a device that was taken in the list of its network until it confirms that, for [`JOIN`].
    /// `secret` is that of its link; without one it was told the network and this node by hand. Returns
    /// false if [`MAX_JOINS`] others are sought.
    #[must_use]
    pub fn seek(&mut self, now: u64, device: PublicKey, network: NetworkId, secret: Option<Secret>) -> bool {
        if self.joins.len() >= MAX_JOINS && !self.joins.contains_key(&device) {
            return false;
        }
        let by_link = secret.is_some();
        let secret = secret.unwrap_or_else(|| Secret::new(manual_token(&network, &self.own, &device)));
        let join = Join {
            network,
            secret,
            by_link,
            until: now + JOIN,
            next: now,
            sent: None,
        };
        self.joins.insert(device, join);
        true
    }

    /// Pings a device at once. Its answer is an [`Output::Answered`].
    pub fn ping(&mut self, (now, unix): (u64, u64), device: &PublicKey) {
        if let Some(peer) = self.peers.get_mut(device) {
            let sent_at = peer.ping(now, unix);
            peer.asked = Some(sent_at);
            let bytes = control::ping(&peer.network, sent_at);
            self.out.push_back(Output::Datagram { to: *device, bytes });
        }
    }

    /// Notes that a document to a device found no room: it is sent again soon.
    pub fn put_off(&mut self, now: u64, device: &PublicKey) {
        if let Some(peer) = self.peers.get_mut(device) {
            peer.put_off(now);
        }
    }

    /// Handles a control frame in the session with a peer. Frames of nodes that are not members are ignored.
    ///
    /// # Errors
    /// [`FrameError`]: the frame is not understood.
    pub fn handle_datagram(
        &mut self,
        (now, unix): (u64, u64),
        from: PublicKey,
        bytes: &[u8],
    ) -> Result<(), FrameError> {
        if !self.peers.contains_key(&from) {
            return Ok(());
        }
        match Frame::read(bytes)? {
            // The peer is a node of weft without fast frames.
            Frame::Ping { weft: true, .. } | Frame::Pong { weft: true, .. } => {
                if let Some(peer) = self.peers.get_mut(&from) {
                    (peer.is_weft, peer.heard) = (true, None);
                }
            }
            Frame::Ping { network, sent_at, .. } => {
                self.note_heard(now, from);
                let named = NetworkId::new(&network);
                if let Some((peer, named)) = self.peers.get_mut(&from).zip(named.clone())
                    && peer.networks.contains(&named)
                {
                    peer.enter(named);
                }
                // The device says the network that it has, and so that it has joined.
                self.end_join(from, |join| join.by_link && named.as_ref() == Some(&join.network));
                let bytes = control::pong(&network, sent_at, unix);
                self.out.push_back(Output::Datagram { to: from, bytes });
            }
            Frame::Pong { sent_at, .. } => {
                self.note_heard(now, from);
                let asked = self
                    .peers
                    .get_mut(&from)
                    .and_then(|peer| peer.asked.take_if(|at| *at == sent_at));
                self.out.extend(asked.map(|_| Output::Answered { device: from }));
            }
            // Other kinds are documents.
            _ => {}
        }
        Ok(())
    }

    /// Handles a control frame that a stream has brought.
    ///
    /// # Errors
    /// [`ListError`]: the frame is not understood, or its list is refused.
    pub fn handle_document(&mut self, (now, unix): (u64, u64), from: PublicKey, bytes: &[u8]) -> Result<(), ListError> {
        // Confirmations and requests are short, so it may be the answer to the request of this node.
        let is_long = bytes.len() > MAX_OF_OTHERS && !self.peers.contains_key(&from);
        let may_read = match self.peers.get_mut(&from) {
            Some(peer) => peer.may_read(now),
            None => !is_long || self.has_secret(now, bytes) && self.may_answer(now, from),
        };
        if !may_read {
            return Err(ListError::TooOften);
        }
        let frame = Frame::read(bytes)?;
        if is_long && !matches!(frame, Frame::JoinRoster { .. }) {
            return Err(ListError::TooOften);
        }
        if let Frame::JoinRosterAck { id } = frame {
            self.end_join(from, |join| join.sent == Some(id));
            return Ok(());
        }
        if let Frame::JoinRequest { network, name, .. } = frame {
            let network = NetworkId::new(&network);
            let asks = |network| Output::Asks {
                device: from,
                network,
                name,
            };
            self.out.extend(network.map(asks));
            return Ok(());
        }
        let frame = match frame {
            Frame::JoinRoster { event, secret } => {
                return self.take_answer((now, unix), from, (*event, &secret, is_long));
            }
            other => other,
        };
        if !self.peers.contains_key(&from) {
            return Ok(());
        }
        self.note_heard(now, from);
        match frame {
            Frame::Capabilities(said) => self.note_capabilities(now, from, said),
            Frame::Roster(event) => return self.take_list((now, unix), from, *event),
            // These are handled above, or come in sessions.
            Frame::JoinRoster { .. }
            | Frame::JoinRequest { .. }
            | Frame::JoinRosterAck { .. }
            | Frame::Ping { .. }
            | Frame::Pong { .. } => {}
        }
        Ok(())
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, (now, unix): (u64, u64)) {
        self.joins.retain(|_, join| now < join.until);
        self.asking.take_if(|asking| asking.until <= now);
        for (device, join) in self.joins.iter_mut().filter(|(_, join)| join.next <= now) {
            join.next = now + JOIN_AGAIN;
            if let Some(held) = self.lists.get(&join.network).filter(|held| held.list.names(device)) {
                join.sent = Some(held.list.id);
                let bytes = control::join_roster(&held.event, join.secret.as_str());
                self.out.push_back(Output::Document { to: *device, bytes });
            }
        }
        for (of, leaving) in &mut self.leaving {
            if let Some((_, held)) = leaving.due(of, &self.lists).filter(|(at, _)| *at <= now) {
                leaving.note_told(now);
                self.out
                    .extend(held.frame().map(|bytes| Output::Document { to: of.0, bytes }));
            }
        }
        let offer = Capabilities {
            signed_at: unix,
            ..self.offer.clone()
        };
        for (key, peer) in &mut self.peers {
            if peer.ping_due().is_some_and(|at| at <= now) {
                let sent_at = peer.ping(now, unix);
                let bytes = control::ping(&peer.network, sent_at);
                self.out.push_back(Output::Datagram { to: *key, bytes });
            }
            if peer.capabilities_due().is_some_and(|at| at <= now) {
                peer.told = Some(now);
                let bytes = control::capabilities(&peer.network, &offer);
                self.out.push_back(Output::Document { to: *key, bytes });
            }
            if let Some((_, held)) = peer.list_due(&self.lists).filter(|(at, _)| *at <= now) {
                peer.list = Some((held.list.id, now));
                self.out
                    .extend(held.frame().map(|bytes| Output::Document { to: *key, bytes }));
            }
        }
    }

    /// Returns when [`Exchange::handle_timeout`] has something to do.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<u64> {
        let joins = self.joins.values().map(|join| join.next.min(join.until));
        let leaving = self
            .leaving
            .iter()
            .filter_map(|(of, leaving)| leaving.due(of, &self.lists));
        let peers = self.peers.values().flat_map(|peer| {
            let list = peer.list_due(&self.lists).map(|(at, _)| at);
            [peer.ping_due(), peer.capabilities_due(), list].into_iter().flatten()
        });
        let asking = self.asking.as_ref().map(|asking| asking.until);
        joins.chain(leaving.map(|(at, _)| at)).chain(peers).chain(asking).min()
    }

    /// Removes and returns what is next to do.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.out.pop_front()
    }

    fn end_join(&mut self, device: PublicKey, ends: impl FnOnce(&Join) -> bool) {
        if self.joins.get(&device).is_some_and(ends) {
            self.joins.remove(&device);
            self.out.push_back(Output::Joined { device });
        }
    }

    fn note_heard(&mut self, now: u64, from: PublicKey) {
        let Some(peer) = self.peers.get_mut(&from) else { return };
        if peer.heard.replace(now).is_none() {
            peer.is_weft = false;
            peer.next_ping = peer.next_ping.min(now + PING);
            self.out.push_back(Output::Found { device: from });
        }
    }

    /// Keeps what a device says last. The first time it is answered at once: otherwise an exit would be
    /// unknown to it for a minute.
    fn note_capabilities(&mut self, now: u64, from: PublicKey, said: Capabilities) {
        let Some(peer) = self.peers.get_mut(&from) else { return };
        match &peer.capabilities {
            Some((known, at)) if said.signed_at < known.signed_at && now.saturating_sub(*at) < CAPABILITIES => {}
            known => {
                if known.is_none() {
                    peer.told = None;
                }
                peer.capabilities = Some((said, now));
                self.out.push_back(Output::Said { device: from });
            }
        }
    }
}

#[cfg(test)]
mod tests;
