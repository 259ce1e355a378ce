//! Datagrams outside of links, for the caller: probes of addresses, and STUN. The core neither makes
//! nor reads them; they share its sockets.

use std::net::SocketAddr;

use weft_contract::{Endpoint, LocalEnd, SendCommand, SocketId, TableCommand};
use weft_noise::PublicKey;
use weft_wire::outside::Token;

use super::Node;
use crate::unconfirmed::Part;
use crate::uplinks::Uplinks;
use crate::{HintSource, KeepaliveIntervals, Path, Uplink};

impl Node {
    /// Passes datagrams with this token to the caller from now on, as
    /// [`Output::Outside`](crate::Output::Outside), at a bounded rate. At most
    /// [`AWAITED`](weft_contract::bounds::AWAITED) tokens are recognised at a time.
    pub fn await_token(&mut self, token: Token) {
        self.ctx.lane(TableCommand::Await { token });
    }

    /// Ends what [`await_token`](Self::await_token) began.
    pub fn forget_token(&mut self, token: Token) {
        self.ctx.lane(TableCommand::Forget { token });
    }

    /// Sends a datagram as it is, from the socket of the links.
    pub fn send_outside(&mut self, to: impl Into<Endpoint>, datagram: Vec<u8>) {
        let to = to.into();
        self.ctx.lane(SendCommand::Transmit { to, datagram });
    }

    /// Whether a UDP payload of `len` bytes may go outside of links to an address that has not answered, which
    /// then counts: 4 KiB at once and 16 KiB in an hour go there, together with the messages of links, and for
    /// all peers and ports. The caller sends nothing otherwise.
    pub fn may_send(&mut self, now: u64, to: SocketAddr, len: usize) -> bool {
        self.ctx.unconfirmed.admits(now, to, len, Part::Outside)
    }

    /// Whether any number of messages may go to an address of a peer: the user has named it, or the peer has
    /// answered there lately, or last.
    #[must_use]
    pub fn is_confirmed(&self, now: u64, peer: &PublicKey, at: SocketAddr) -> bool {
        let peer = self.peers.get(&peer.node_addr());
        peer.is_some_and(|peer| peer.link.is_confirmed(now, at.into()))
    }

    /// Returns the path to a peer with which there is a session, and which has said in it what frames
    /// it reads: it is a weft node ([`Event::Announced`](crate::Event::Announced)).
    pub fn weft_path(&self, peer: &PublicKey) -> Option<Path> {
        let peer = self.peers.get(&peer.node_addr()).filter(|peer| peer.configured)?;
        let session = Some(&peer.session).filter(|session| session.is_up() && session.is_with_weft());
        session.and_then(|_| peer.paths.path())
    }

    /// Tries an address where a peer has answered, or was seen: dials it there, or considers the
    /// address for the link that is up; through a further underlay socket if `at` is a path of one
    /// ([`SocketId::path`]). A key that belongs to no peer changes nothing.
    pub fn dial(&mut self, now: u64, peer: &PublicKey, at: impl Into<Endpoint>, source: HintSource) {
        let (addr, at) = (peer.node_addr(), at.into());
        if let Some(peer) = self.peers.get_mut(&addr) {
            if matches!(source, HintSource::Probe | HintSource::Search) {
                self.ctx.unconfirmed.note_answered(now, at.remote());
            }
            peer.link.dial(now, at, source);
            self.expect(addr);
        }
    }

    /// Sets the UDP ports of all underlay sockets: datagrams from there that a route leads to the TUN
    /// are dropped.
    pub fn set_underlay_ports(&mut self, ports: Vec<u16>) {
        self.ctx.lane(TableCommand::SetUnderlayPorts { ports });
    }

    /// Sets how often this node sends on idle links.
    pub fn set_keepalive(&mut self, intervals: KeepaliveIntervals) {
        self.ctx.keepalive = intervals;
        self.peers.touch_all();
    }

    /// Whether frames of a link go through this underlay socket, or peers are dialled by it.
    #[must_use]
    pub fn uses_socket(&self, socket: SocketId) -> bool {
        self.ctx.other_port == Some(socket) || self.has_link_through(socket)
    }

    /// Whether frames of a link go through this underlay socket.
    #[must_use]
    pub fn has_link_through(&self, socket: SocketId) -> bool {
        let mut paths = self.peers.values().filter_map(|peer| peer.link.path());
        paths.any(|path| path.socket() == socket)
    }

    /// Whether a link goes through this underlay socket, and the peers of all such links have just answered
    /// through an ordinary one as well.
    #[must_use]
    pub fn may_leave_socket(&self, now: u64, socket: SocketId) -> bool {
        let may_leave = || self.peers.values().all(|peer| peer.link.may_leave(now, socket));
        self.has_link_through(socket) && may_leave()
    }

    /// Whether the link with a peer, if there is one, goes through another than the ordinary underlay
    /// sockets.
    #[must_use]
    pub fn goes_aside(&self, peer: &PublicKey) -> bool {
        let peer = self.peers.get(&peer.node_addr());
        let path = peer.and_then(|peer| peer.link.path());
        path.is_some_and(|path| !path.socket().is_ordinary())
    }

    /// Returns the path of a peer's link, while it is up.
    pub fn link_path(&self, peer: &PublicKey) -> Option<Endpoint> {
        let peer = self.peers.get(&peer.node_addr())?;
        peer.link.path().filter(|_| peer.link.is_up())
    }

    /// Sets the further uplinks of this host, the one first that the system prefers: underlay sockets
    /// that each lead through one interface. Links consider the paths through them.
    pub fn set_uplinks(&mut self, now: u64, uplinks: Vec<Uplink>) {
        self.ctx.uplinks = Uplinks::new(uplinks);
        for peer in self.peers.values_mut() {
            peer.link.offer_uplinks(&self.ctx, now);
        }
    }

    /// Returns how many peers are dialled over IPv4 and do not answer, and how many are linked over IPv4.
    /// Peers on this host do not count.
    pub fn dialled_in_vain(&self) -> (usize, usize) {
        let peers = || self.peers.values().filter(|peer| peer.configured);
        let linked = peers().filter(|peer| {
            peer.link
                .path()
                .is_some_and(|path| !path.is_ipv6() && !path.ip().is_loopback())
        });
        (
            peers().filter(|peer| peer.link.is_dialled_in_vain()).count(),
            linked.count(),
        )
    }

    /// Sets the underlay socket by which peers that do not answer over IPv4 are dialled, too.
    pub fn set_other_port(&mut self, socket: Option<SocketId>) {
        self.ctx.other_port = socket;
    }

    /// Ends the use of local ends of this host that are `gone`: an address that it no longer has, or an
    /// interface that no longer leads to other networks. Links that a peer had asked there go on from
    /// any address, and are doubted until the peer answers: other paths are used meanwhile.
    pub fn forget_local_ends(&mut self, now: u64, gone: impl Fn(LocalEnd) -> bool) {
        let gone = |path: Endpoint| path.local().is_some_and(&gone);
        let mut left = Vec::new();
        for peer in self.peers.values_mut() {
            if peer.link.forget_local(&mut self.ctx, now, gone) {
                left.push(peer.link.peer.node_addr());
            }
        }
        for addr in left {
            self.follow_health(now, addr);
        }
    }

    /// Ends the use of an underlay socket, which is about to be closed. Peers that were dialled
    /// through it are dialled through the ordinary ones from now on. A link whose frames go through
    /// it goes to another path at once.
    pub fn forget_socket(&mut self, now: u64, socket: SocketId) {
        self.ctx.other_port.take_if(|other| *other == socket);
        let mut moved = Vec::new();
        for peer in self.peers.values_mut() {
            if peer.link.forget_socket(&mut self.ctx, now, socket) {
                moved.push(peer.link.id);
            }
        }
        for link in moved {
            self.follow_move(now, link);
        }
    }
}
