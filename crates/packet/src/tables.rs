//! The tables of a lane: its links and sessions, and what leads to them.
//!
//! A frame leads to its owner by the receiver index in it, and a packet to its session by the
//! destination. Each is one search. Everything else is reached by [`Key`]s.
//!
//! The core's commands write the tables, and so does a frame that proves keys. Each change begins a
//! new version ([`Tables::changed`]): what sessions keep is of one version.

mod egress;
mod resolve;
mod routes;
mod slab;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use weft_contract::{Endpoint, EpochUse, FastKeys, LaneConfig, LinkId, LinkKeys, SocketId, WireGuardKeys};
use weft_wire::NodeAddr;

use crate::fast::FastEpoch;
use crate::firewall::{CommonFlows, Firewall};
use crate::link::Link;
use crate::session::Session;
use crate::wireguard::Tunnel;

pub(crate) use egress::{ELIDED, Egress, Encapsulation};
pub(crate) use resolve::FastPath;
pub(crate) use routes::Routes;
pub(crate) use slab::{LinkKey, SessionKey, Slab};

/// The meaning of a receiver index of FIPS frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Index {
    /// The index of an epoch of this link.
    Keyed(LinkKey),
    /// The index of a handshake in flight for this link; `true` once an early frame was reported.
    Armed(LinkId, bool),
}

/// The owner of the keys that a receiver index of fast frames names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FastOwner {
    /// A session.
    Session(SessionKey),
    /// The hop over a link.
    Hop(LinkKey),
}

/// What is set for peers that speak WireGuard.
#[derive(Debug, Default)]
pub(crate) struct WireGuard {
    /// The socket whose datagrams are messages of WireGuard.
    pub(crate) socket: Option<SocketId>,
    /// The largest packet in a data message, in bytes.
    pub(crate) mtu: u16,
    /// The session of each receiver index.
    pub(crate) indices: BTreeMap<u32, SessionKey>,
}

/// The tables of a lane; see the module.
pub(crate) struct Tables {
    pub(crate) config: LaneConfig,
    pub(crate) links: Slab<LinkId, Link>,
    pub(crate) sessions: Slab<NodeAddr, Session>,
    /// The meaning of each receiver index of FIPS frames.
    pub(crate) indices: BTreeMap<u32, Index>,
    /// The owner of each receiver index of fast frames.
    pub(crate) fast_indices: BTreeMap<u32, FastOwner>,
    pub(crate) routes: Routes,
    pub(crate) firewall: Firewall,
    /// The link of the next hop, for the destinations of forwarded datagrams.
    pub(crate) next_hops: BTreeMap<NodeAddr, LinkId>,
    /// The nodes that receive data in fast frames only.
    pub(crate) fast_only: BTreeSet<NodeAddr>,
    /// Whether relayed frames are sealed whole at each hop.
    pub(crate) whole: bool,
    /// Whether FIPS frames carry packets with their whole header, as nodes of nvpn send them.
    pub(crate) takes_whole: bool,
    /// The ports of this node's services.
    pub(crate) services: Vec<u16>,
    /// The UDP ports of the sockets for datagrams between nodes.
    pub(crate) underlay_ports: Vec<u16>,
    /// What is set for peers that speak WireGuard.
    pub(crate) wireguard: WireGuard,
    /// The links by the addresses that their neighbours have proven, of one version of the tables.
    places: Option<(u64, BTreeMap<Endpoint, LinkId>)>,
    version: u64,
}

impl Tables {
    /// Makes empty tables. All lanes of the node have `common`.
    pub(crate) fn new(config: LaneConfig, common: Arc<CommonFlows>) -> Self {
        Self {
            config,
            links: Slab::new(),
            sessions: Slab::new(),
            indices: BTreeMap::new(),
            fast_indices: BTreeMap::new(),
            routes: Routes::new(config.me),
            firewall: Firewall::new(common),
            next_hops: BTreeMap::new(),
            fast_only: BTreeSet::new(),
            whole: false,
            takes_whole: false,
            services: Vec::new(),
            underlay_ports: Vec::new(),
            wireguard: WireGuard::default(),
            places: None,
            version: 0,
        }
    }

    /// Records that the tables, or the keys in them, have changed: what sessions keep is resolved
    /// again.
    pub(crate) fn changed(&mut self) {
        self.version = self.version.wrapping_add(1);
    }

    /// Returns the session with a node, which is made if there is none.
    pub(crate) fn session_with(&mut self, peer: NodeAddr) -> SessionKey {
        self.sessions.key_or_insert(peer, || Session::new(peer))
    }

    /// Returns whether a node receives data in fast frames only.
    pub(crate) fn is_fast_only(&self, key: SessionKey) -> bool {
        let session = self.sessions.get(key);
        session.is_some_and(|session| self.fast_only.contains(&session.peer))
    }

    /// Returns a session and the link that it is bound to.
    #[inline]
    pub(crate) fn pair(&mut self, egress: Egress) -> Option<(&mut Session, &mut Link)> {
        let link = self.links.get_mut(egress.link?)?;
        Some((self.sessions.get_mut(egress.session)?, link))
    }

    /// Returns the link with this node itself. `bound`, which its session is bound to, normally is.
    pub(crate) fn direct_link(&self, bound: Option<LinkKey>, peer: NodeAddr) -> Option<LinkKey> {
        let is_direct = |key: &LinkKey| self.links.get(*key).is_some_and(|link| link.peer == peer);
        let other = || {
            self.links
                .iter()
                .find(|(_, link)| link.peer == peer)
                .map(|(key, _)| key)
        };
        bound.filter(is_direct).or_else(other)
    }

    /// Returns the link whose neighbour has proven that it is at this address, and the neighbour: the newest
    /// if there are several.
    pub(crate) fn neighbour_at(&mut self, from: Endpoint) -> Option<(LinkId, NodeAddr)> {
        let version = self.version;
        if self.places.as_ref().is_none_or(|(of, _)| *of != version) {
            let proven = self.links.iter().filter(|(_, link)| link.paths.is_proven());
            let mut places: Vec<_> = proven
                .map(|(_, link)| (link.paths.proven().without_local(), link.id))
                .collect();
            places.sort_unstable();
            self.places = Some((version, places.into_iter().collect()));
        }
        let (_, places) = self.places.as_ref()?;
        let link = self.links.find(places.get(&from.without_local())?)?;
        Some((link.id, link.peer))
    }

    /// Returns a link, which is made if there is none, with its peer at `path`. Unless `proven`,
    /// the peer still has to prove that it is there.
    pub(crate) fn link_with(&mut self, id: LinkId, peer: NodeAddr, path: Endpoint, proven: bool) -> LinkKey {
        self.links.key_or_insert(id, || Link::new(id, peer, path, proven))
    }

    /// Installs the keys of a link. `path` and `proven` are as in [`Tables::link_with`].
    pub(crate) fn install_link(
        &mut self,
        now: u64,
        key: LinkKey,
        path: Endpoint,
        proven: bool,
        keys: &LinkKeys,
        usage: EpochUse,
    ) {
        let Some(link) = self.links.get_mut(key) else { return };
        if let Some(index) = link.install(now, path, proven, keys, usage) {
            self.indices.remove(&index);
        }
        self.indices.insert(keys.our_index.0, Index::Keyed(key));
    }

    /// Ends the wait for the handshake that has this receiver index.
    pub(crate) fn disarm(&mut self, index: u32) {
        if matches!(self.indices.get(&index), Some(Index::Armed(..))) {
            self.indices.remove(&index);
        }
    }

    /// Removes the keys of a link that have this receiver index.
    pub(crate) fn retire_link_epoch(&mut self, id: LinkId, index: u32) {
        if let Some(link) = self.links.find_mut(&id) {
            link.retire(index);
        }
        self.indices.remove(&index);
    }

    /// Removes a link, its keys and its labels.
    pub(crate) fn remove_link(&mut self, id: LinkId) {
        let Some((_, link)) = self.links.remove(&id) else {
            return;
        };
        for index in link.epochs.ids() {
            self.indices.remove(&index);
        }
        for index in link.hop.indices() {
            self.fast_indices.remove(&index);
        }
    }

    /// Installs fast keys of the session with a node.
    pub(crate) fn install_fast(&mut self, now: u64, peer: NodeAddr, keys: &FastKeys) {
        let key = self.session_with(peer);
        let Some(session) = self.sessions.get_mut(key) else {
            return;
        };
        let replaced = session.fast.install(FastEpoch::new(now, keys));
        self.index_fast(replaced, keys.our_index.0, FastOwner::Session(key));
    }

    /// Installs keys for the relayed frames of a link.
    pub(crate) fn install_hop(&mut self, now: u64, id: LinkId, keys: &FastKeys) {
        let Some(key) = self.links.key(&id) else { return };
        let Some(link) = self.links.get_mut(key) else { return };
        let replaced = link.hop.install(FastEpoch::new(now, keys));
        self.index_fast(replaced, keys.our_index.0, FastOwner::Hop(key));
    }

    /// Removes keys for the relayed frames of a link.
    pub(crate) fn retire_hop(&mut self, id: LinkId, key: u32) {
        let retired = self.links.find_mut(&id).and_then(|link| link.hop.retire(key));
        if let Some(index) = retired {
            self.fast_indices.remove(&index);
        }
    }

    /// Removes one epoch of a session, and the fast keys of the same number.
    pub(crate) fn retire_session_epoch(&mut self, peer: NodeAddr, id: u32) {
        let Some(session) = self.sessions.find_mut(&peer) else {
            return;
        };
        session.epochs.retire(id);
        if let Some(index) = session.fast.retire(id) {
            self.fast_indices.remove(&index);
        }
    }

    /// Removes all keys of a session.
    pub(crate) fn remove_session_keys(&mut self, peer: NodeAddr) {
        if let Some(session) = self.sessions.find_mut(&peer) {
            for index in session.fast.indices() {
                self.fast_indices.remove(&index);
            }
            session.forget_keys();
        }
    }

    /// Changes a link, if there is one.
    pub(crate) fn with_link(&mut self, id: LinkId, change: impl FnOnce(&mut Link)) {
        self.links.find_mut(&id).map(change);
    }

    /// Changes the session with a node, if there is one.
    pub(crate) fn with_known(&mut self, peer: NodeAddr, change: impl FnOnce(&mut Session)) {
        self.sessions.find_mut(&peer).map(change);
    }

    /// Changes the session with a node, which is made if there is none.
    pub(crate) fn with_session(&mut self, peer: NodeAddr, change: impl FnOnce(&mut Session)) {
        let key = self.session_with(peer);
        self.sessions.get_mut(key).map(change);
    }

    /// Lets IP packets go to a node and come from it.
    pub(crate) fn allow(&mut self, peer: NodeAddr) {
        self.with_session(peer, |session| session.allowed = true);
        let key = self.session_with(peer);
        self.routes.allow(peer, key);
    }

    /// Removes the session with a node. No IP packets go to the node or come from it any longer.
    pub(crate) fn deny(&mut self, peer: NodeAddr) {
        self.routes.deny(peer);
        self.fast_only.remove(&peer);
        if let Some((_, session)) = self.sessions.remove(&peer) {
            for index in session.fast.indices() {
                self.fast_indices.remove(&index);
            }
            for index in session.wireguard.iter().flat_map(|tunnel| tunnel.indices()) {
                self.wireguard.indices.remove(&index);
            }
        }
    }

    /// Sends packets to a peer in data messages of WireGuard from now on.
    pub(crate) fn add_wireguard(&mut self, peer: NodeAddr) {
        self.with_session(peer, |session| {
            session.wireguard.get_or_insert_default();
        });
        self.routes.add_guest(peer);
    }

    /// Installs keys of a peer that speaks WireGuard.
    pub(crate) fn install_wireguard(&mut self, peer: NodeAddr, keys: &WireGuardKeys, use_now: bool) {
        let Some(key) = self.sessions.key(&peer) else { return };
        let Some(tunnel) = self.tunnel(peer) else { return };
        if let Some(oldest) = tunnel.install(keys, use_now) {
            self.wireguard.indices.remove(&oldest);
        }
        self.wireguard.indices.insert(keys.local, key);
    }

    /// Removes keys of a peer that speaks WireGuard.
    pub(crate) fn retire_wireguard(&mut self, peer: NodeAddr, local: u32) {
        if let Some(tunnel) = self.tunnel(peer) {
            tunnel.retire(local);
            self.wireguard.indices.remove(&local);
        }
    }

    /// Returns the keys of a peer that speaks WireGuard.
    pub(crate) fn tunnel(&mut self, peer: NodeAddr) -> Option<&mut Tunnel> {
        self.sessions.find_mut(&peer)?.wireguard.as_deref_mut()
    }

    fn index_fast(&mut self, replaced: Option<u32>, index: u32, owner: FastOwner) {
        if let Some(replaced) = replaced {
            self.fast_indices.remove(&replaced);
        }
        self.fast_indices.insert(index, owner);
    }
}
