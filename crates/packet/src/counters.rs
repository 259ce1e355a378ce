//! What a lane counts. Nothing is dropped without one of these moving.

use crate::epoch::OpenFailure;
use crate::fast::Refusal;

/// Running totals since the lane was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Packets read from the TUN (a super-packet counts once).
    pub tun_rx: u64,
    /// Packets for the TUN.
    pub tun_tx: u64,
    /// Of those read from the TUN, the ones left to another lane, which sends them.
    pub handed_out: u64,
    /// Datagrams for another lane; they count as received there alone.
    pub foreign: u64,
    /// Datagrams received.
    pub udp_rx: u64,
    /// Datagrams and messages too short or of an unknown version or phase.
    pub malformed: u64,
    /// Frames for an index that is not ours.
    pub unknown_index: u64,
    /// Frames for an index whose handshake is not finished.
    pub early_frames: u64,
    /// Session frames that came before their keys and could not wait for them.
    pub early_dropped: u64,
    /// Control messages longer than any that FIPS or we define.
    pub control_too_long: u64,
    /// Link frames whose tag was wrong.
    pub link_open_failed: u64,
    /// Link frames seen before or too old.
    pub link_replays: u64,
    /// Session frames that no epoch of ours opened.
    pub session_open_failed: u64,
    /// Session frames seen before or too old.
    pub session_replays: u64,
    /// Fast frames opened.
    pub fast_rx: u64,
    /// IP packets sealed in fast frames.
    pub fast_tx: u64,
    /// Of those, the ones with all of their header: IPv4, and IPv6 to or from a network behind a node.
    pub full_tx: u64,
    /// IP packets with all of their header that came and went to the TUN.
    pub full_rx: u64,
    /// IP packets sealed in pieces, because no fast frame takes them whole.
    pub fast_fragmented: u64,
    /// IP packets put together of such pieces.
    pub fast_reassembled: u64,
    /// Pieces that did not fit those before them.
    pub fragments_refused: u64,
    /// Packets of which not all pieces came.
    pub fragments_expired: u64,
    /// TCP segments and super-packets cut smaller than the hosts agreed on.
    pub tcp_recut: u64,
    /// Fast frames for an index that is not ours.
    pub fast_unknown: u64,
    /// Fast frames whose tag was wrong.
    pub fast_open_failed: u64,
    /// Fast frames seen before or too old.
    pub fast_replays: u64,
    /// IP packets sealed in fast frames that go through other nodes; they count as `fast_tx` too.
    pub relayed_tx: u64,
    /// Fast frames opened that came through other nodes; they count as `fast_rx` too.
    pub relayed_rx: u64,
    /// Fast frames of others that the lane carried from one neighbour to the next.
    pub relayed: u64,
    /// Relayed fast frames with a label that their sender has not bound.
    pub label_unknown: u64,
    /// Relayed fast frames of others that had no hop left.
    pub relay_ttl_expired: u64,
    /// Relayed fast frames of others whose next hop was lost, or too small for them.
    pub relay_failed: u64,
    /// Handshake messages over the rate, or answers to nothing.
    pub handshakes_refused: u64,
    /// Handshake messages of sessions and error signals for us, over the rate of their link.
    pub clear_refused: u64,
    /// The same, and coordinates, of others that were not carried on: over the rate of their link, or in our own name.
    pub carried_refused: u64,
    /// Session datagrams addressed to another node.
    pub not_for_us: u64,
    /// Session datagrams of others that the lane forwarded.
    pub forwarded: u64,
    /// Of those, the ones that went on marked as having experienced congestion.
    pub ce_forwarded: u64,
    /// IP packets for the TUN that such a mark was put on.
    pub ce_delivered: u64,
    /// Session datagrams of others that are too large for our links.
    pub transit_too_large: u64,
    /// Session datagrams of others whose next hop was just lost.
    pub forward_failed: u64,
    /// Session datagrams of others that had no hop left.
    pub ttl_expired: u64,
    /// IP packets from a node that is not a configured peer.
    pub not_allowed: u64,
    /// IP packets from a peer whose source is neither its address nor in a network behind it.
    pub foreign_source: u64,
    /// IP packets from a peer whose destination is neither our address nor in a network behind us.
    pub foreign_destination: u64,
    /// TUN packets that are not IPv6, where no networks are configured, or not IP at all.
    pub not_ipv6: u64,
    /// TUN packets whose source is neither our address nor in a network behind us.
    pub wrong_source: u64,
    /// TUN packets to an address that is no configured peer's, nor in a network behind one.
    pub no_route: u64,
    /// TUN packets to or from networks whose peer cannot be sent such: there are no fast frames, or it does not read them.
    pub no_full_frames: u64,
    /// Our own datagrams to a node, which a route to a network behind it has led to the TUN.
    pub underlay_loops: u64,
    /// TUN packets larger than the session takes.
    pub too_big: u64,
    /// TUN packets whose headers or virtio header do not add up.
    pub malformed_tun: u64,
    /// Packets that had to wait for a session.
    pub queued: u64,
    /// Packets that waited in vain.
    pub queue_dropped: u64,
    /// Packets that had to wait because their peer must be reached in fast frames and is not.
    pub fast_waited: u64,
    /// ICMPv6 errors sent to local senders.
    pub icmp_sent: u64,
    /// Packets not sealed because an epoch had no counter left.
    pub epoch_spent: u64,
    /// Packets for the TUN dropped because too many waited.
    pub replies_dropped: u64,
    /// Reports dropped because their neighbour, or the node itself, already had its share of what waits for the core.
    pub reports_dropped: u64,
    /// Datagrams that came with CE in their IP header, opened or not.
    pub ce_underlay: u64,
    /// Packets for the TUN whose frame came so and whose sender does not know ECN: they count as lost on the way (RFC 6040).
    pub ce_dropped: u64,
    /// Frames sent a second time, to an address beside the one that their peer has proven.
    pub path_copies: u64,
    /// Frames not sent, because the peer has proven no address and three times went where it seems to be what came from
    /// there.
    pub path_unproven: u64,
    /// Handshake datagrams dropped because too many waited for the core.
    pub handshakes_dropped: u64,
    /// Proofs of keys that had to wait in the lane because the core did not take them. They are offered again; none is lost.
    pub proofs_waited: u64,
}

impl Counters {
    /// What was received under keys of ours and went on, to the TUN or to another node: packets and frames.
    #[must_use]
    pub fn passed_on(&self) -> u64 {
        self.tun_tx + self.relayed + self.forwarded
    }

    /// All of them by name, in the order of the fields.
    pub fn named(&self) -> impl Iterator<Item = (&'static str, u64)> {
        [
            ("tun_rx", self.tun_rx),
            ("tun_tx", self.tun_tx),
            ("handed_out", self.handed_out),
            ("foreign", self.foreign),
            ("udp_rx", self.udp_rx),
            ("malformed", self.malformed),
            ("unknown_index", self.unknown_index),
            ("early_frames", self.early_frames),
            ("early_dropped", self.early_dropped),
            ("control_too_long", self.control_too_long),
            ("link_open_failed", self.link_open_failed),
            ("link_replays", self.link_replays),
            ("session_open_failed", self.session_open_failed),
            ("session_replays", self.session_replays),
            ("fast_rx", self.fast_rx),
            ("fast_tx", self.fast_tx),
            ("full_tx", self.full_tx),
            ("full_rx", self.full_rx),
            ("fast_fragmented", self.fast_fragmented),
            ("fast_reassembled", self.fast_reassembled),
            ("fragments_refused", self.fragments_refused),
            ("fragments_expired", self.fragments_expired),
            ("tcp_recut", self.tcp_recut),
            ("fast_unknown", self.fast_unknown),
            ("fast_open_failed", self.fast_open_failed),
            ("fast_replays", self.fast_replays),
            ("relayed_tx", self.relayed_tx),
            ("relayed_rx", self.relayed_rx),
            ("relayed", self.relayed),
            ("label_unknown", self.label_unknown),
            ("relay_ttl_expired", self.relay_ttl_expired),
            ("relay_failed", self.relay_failed),
            ("handshakes_refused", self.handshakes_refused),
            ("clear_refused", self.clear_refused),
            ("carried_refused", self.carried_refused),
            ("not_for_us", self.not_for_us),
            ("forwarded", self.forwarded),
            ("ce_forwarded", self.ce_forwarded),
            ("ce_delivered", self.ce_delivered),
            ("transit_too_large", self.transit_too_large),
            ("forward_failed", self.forward_failed),
            ("ttl_expired", self.ttl_expired),
            ("not_allowed", self.not_allowed),
            ("foreign_source", self.foreign_source),
            ("foreign_destination", self.foreign_destination),
            ("not_ipv6", self.not_ipv6),
            ("wrong_source", self.wrong_source),
            ("no_route", self.no_route),
            ("no_full_frames", self.no_full_frames),
            ("underlay_loops", self.underlay_loops),
            ("too_big", self.too_big),
            ("malformed_tun", self.malformed_tun),
            ("queued", self.queued),
            ("queue_dropped", self.queue_dropped),
            ("fast_waited", self.fast_waited),
            ("icmp_sent", self.icmp_sent),
            ("epoch_spent", self.epoch_spent),
            ("replies_dropped", self.replies_dropped),
            ("reports_dropped", self.reports_dropped),
            ("ce_underlay", self.ce_underlay),
            ("ce_dropped", self.ce_dropped),
            ("path_copies", self.path_copies),
            ("path_unproven", self.path_unproven),
            ("handshakes_dropped", self.handshakes_dropped),
            ("proofs_waited", self.proofs_waited),
        ]
        .into_iter()
    }

    pub(crate) fn fast_open_failed(&mut self, failure: OpenFailure) {
        match failure {
            OpenFailure::Replay => self.fast_replays += 1,
            OpenFailure::Tag => self.fast_open_failed += 1,
        }
    }

    pub(crate) fn refused(&mut self, refusal: Refusal) {
        match refusal {
            Refusal::Malformed => self.malformed += 1,
            Refusal::Source => self.foreign_source += 1,
            Refusal::Destination => self.foreign_destination += 1,
        }
    }

    pub(crate) fn link_open_failed(&mut self, failure: OpenFailure) {
        match failure {
            OpenFailure::Replay => self.link_replays += 1,
            OpenFailure::Tag => self.link_open_failed += 1,
        }
    }
}
