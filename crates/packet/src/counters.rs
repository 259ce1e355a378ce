//! The counters of a lane: what it did, and what it dropped, by reason.
//!
//! A function that may drop a packet, a frame or a message returns a [`DropReason`], and the loop
//! that called it counts. A new count or reason is one line in the list at the end of this file.
//! `weft status` and `weft trace` then show it, and a test requires its place in docs/protocol.

use std::ops::Index;

/// Declares [`Counters`] and [`DropReason`], and derives from both lists the fields, names and
/// numbers.
macro_rules! counters {
    (
        counts { $($(#[$count_doc:meta])* $count:ident,)* }
        drops { $($(#[$drop_doc:meta])* $reason:ident => $name:literal,)* }
    ) => {
        /// Running totals since the lane was made.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Counters {
            $($(#[$count_doc])* pub $count: u64,)*
            /// What was dropped, by reason.
            pub drops: Drops,
        }

        impl Counters {
            /// Returns all counters with their names: the counts, then the reasons.
            pub fn named(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
                let counts = [$((stringify!($count), self.$count),)*];
                let drops = self.drops;
                let reasons = DropReason::ALL.iter().map(move |reason| (reason.name(), drops[*reason]));
                counts.into_iter().chain(reasons)
            }
        }

        /// The reason for which a packet, a frame or a message was dropped.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum DropReason {
            $($(#[$drop_doc])* $reason,)*
        }

        impl DropReason {
            /// All reasons, in the order of their declaration.
            pub const ALL: &[Self] = &[$(Self::$reason,)*];

            /// Returns the name of its counter in `weft status` and `weft trace`.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$reason => $name,)*
                }
            }
        }
    };
}

/// The number of drops for each reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drops([u64; DropReason::ALL.len()]);

impl Drops {
    /// Counts one drop.
    #[cold]
    pub(crate) fn count(&mut self, reason: DropReason) {
        self.count_many(reason, 1);
    }

    /// Counts `many` drops.
    pub(crate) fn count_many(&mut self, reason: DropReason, many: u64) {
        if let Some(counter) = self.0.get_mut(reason as usize) {
            *counter += many;
        }
    }
}

impl Default for Drops {
    fn default() -> Self {
        Self([0; DropReason::ALL.len()])
    }
}

impl Index<DropReason> for Drops {
    type Output = u64;

    fn index(&self, reason: DropReason) -> &u64 {
        &self.0[reason as usize]
    }
}

impl Counters {
    /// Returns the number of packets and frames that were received under the keys of this node and
    /// passed on, to the TUN or to another node.
    #[must_use]
    pub fn passed_on(&self) -> u64 {
        self.tun_tx + self.relayed + self.forwarded
    }

    /// Counts a drop, if `done` is one.
    #[inline]
    pub(crate) fn note(&mut self, done: Result<(), DropReason>) {
        if let Err(reason) = done {
            self.drops.count(reason);
        }
    }
}

counters! {
    counts {
        /// Packets read from the TUN. A super-packet counts once.
        tun_rx,
        /// Packets for the TUN.
        tun_tx,
        /// Packets read from the TUN that the lane left to another lane, which sends them.
        handed_out,
        /// Datagrams for another lane. Only that lane counts them as received.
        foreign,
        /// Datagrams received.
        udp_rx,
        /// Frames for an index whose handshake is not finished.
        early_frames,
        /// Fast frames opened.
        fast_rx,
        /// IP packets sealed in fast frames.
        fast_tx,
        /// IP packets sealed in fast frames with their whole header: IPv4, and IPv6 to or from a
        /// subnet behind a node. They count as `fast_tx` too.
        full_tx,
        /// IP packets with their whole header that were received and went to the TUN.
        full_rx,
        /// IP packets sealed in pieces, because no fast frame takes them whole.
        fast_fragmented,
        /// IP packets reassembled from such pieces.
        fast_reassembled,
        /// TCP segments and super-packets cut into smaller segments than the hosts agreed on.
        tcp_recut,
        /// IP packets sealed in fast frames that other nodes relay. They count as `fast_tx` too.
        relayed_tx,
        /// Fast frames opened that other nodes relayed. They count as `fast_rx` too.
        relayed_rx,
        /// Fast frames of other nodes that the lane forwarded from one neighbour to the next.
        relayed,
        /// Session datagrams of other nodes that the lane forwarded.
        forwarded,
        /// Forwarded datagrams and frames that went on marked as having experienced congestion.
        ce_forwarded,
        /// IP packets for the TUN that the lane marked because their frame had experienced
        /// congestion.
        ce_delivered,
        /// Packets that had to wait for a session.
        queued,
        /// Packets that had to wait because data for their peer goes in fast frames only, and none
        /// could be sent yet.
        fast_waited,
        /// ICMPv6 errors sent to senders on this host.
        icmp_sent,
        /// ICMP errors sent to peers about packets that the rules denied.
        icmp_denied,
        /// Datagrams that arrived with CE in their IP header, opened or not.
        ce_underlay,
        /// Frames sent a second time, to an address other than the one that the peer has proven.
        path_copies,
        /// Proofs of keys that had to wait in the lane because the queue to the core was full. The
        /// lane offers them again; none is dropped.
        proofs_waited,
    }
    drops {
        /// Datagrams and messages that are too short, or of an unknown version or phase.
        Malformed => "malformed",
        /// Frames for an index that is not in use at this node.
        UnknownIndex => "unknown_index",
        /// Direct records from an address at which no link has its neighbour.
        RecordUnknown => "record_unknown",
        /// Session frames that arrived before their keys and could not wait for them.
        Early => "early_dropped",
        /// Control messages longer than any that FIPS or weft defines.
        ControlTooLong => "control_too_long",
        /// Link frames with a wrong tag.
        LinkTag => "link_open_failed",
        /// Link frames received before, or too old for the replay window.
        LinkReplay => "link_replays",
        /// Session frames that no epoch of this node opened.
        SessionTag => "session_open_failed",
        /// Session frames received before, or too old for the replay window.
        SessionReplay => "session_replays",
        /// Pieces that contradict or overlap those before them.
        Fragment => "fragments_refused",
        /// Packets of which not all pieces were received.
        FragmentExpired => "fragments_expired",
        /// Fast frames for an index that is not in use at this node.
        FastUnknown => "fast_unknown",
        /// Fast frames with a wrong tag.
        FastTag => "fast_open_failed",
        /// Fast frames received before, or too old for the replay window.
        FastReplay => "fast_replays",
        /// Data messages of WireGuard with a receiver index that is not in use.
        WireGuardUnknown => "wireguard_unknown",
        /// Data messages of WireGuard that do not authenticate.
        WireGuardForged => "wireguard_open_failed",
        /// Data messages of WireGuard that have come before.
        WireGuardReplay => "wireguard_replays",
        /// Relayed fast frames with a label that this node has not bound for their sender.
        LabelUnknown => "label_unknown",
        /// Relayed fast frames of other nodes whose TTL expired.
        RelayTtl => "relay_ttl_expired",
        /// Relayed fast frames of other nodes whose next hop was lost, or too small for them.
        RelayFailed => "relay_failed",
        /// Handshake messages over the rate, or answers that no handshake waits for.
        Handshake => "handshakes_refused",
        /// Probes and answers outside of links that this node does not await, or above their rate.
        Unawaited => "probes_refused",
        /// Handshake messages of sessions and error signals for this node, over the rate of their
        /// link.
        Clear => "clear_refused",
        /// Handshake messages of sessions, error signals and coordinates of other nodes that were
        /// not forwarded: over the rate of their link, or with this node as their source.
        ClearForwarded => "carried_refused",
        /// Session datagrams addressed to another node, while this node does not forward.
        NotForUs => "not_for_us",
        /// Session datagrams of other nodes that are too large for this node's links.
        TransitTooLarge => "transit_too_large",
        /// Session datagrams of other nodes whose next hop was just lost.
        ForwardFailed => "forward_failed",
        /// Session datagrams of other nodes, and packets from or to guests, whose TTL expired.
        Ttl => "ttl_expired",
        /// IP packets from a node that is not a configured peer.
        NotAllowed => "not_allowed",
        /// IP packets from a peer that the rules do not allow.
        Denied => "denied_by_rules",
        /// IP packets of new flows, of a peer or of this host, for which the table of flows has no
        /// room.
        FlowsFull => "flows_full",
        /// IP packets from a peer whose source is neither its address nor in a subnet behind it.
        ForeignSource => "foreign_source",
        /// IP packets from a peer whose destination is neither the address of this node nor in a
        /// subnet behind it.
        ForeignDestination => "foreign_destination",
        /// TUN packets that are not IPv6, if no subnets are configured, or not IP at all.
        NotIp => "not_ipv6",
        /// TUN packets whose source is neither the address of this node nor in a subnet behind it, or
        /// is not in a network with the peer that they would go to.
        WrongSource => "wrong_source",
        /// TUN packets to an address that is neither that of a configured peer nor in a subnet
        /// behind one.
        NoRoute => "no_route",
        /// TUN packets to or from subnets behind nodes that cannot be sent to their peer: there
        /// are no fast frames, or the peer does not read packets with their whole header.
        NoFullFrames => "no_full_frames",
        /// This node's own datagrams to a peer, which a route to a subnet behind that peer has led
        /// to the TUN.
        UnderlayLoop => "underlay_loops",
        /// TUN packets larger than the session takes.
        TooBig => "too_big",
        /// TUN packets whose headers or virtio header are inconsistent.
        MalformedTun => "malformed_tun",
        /// Packets dropped while they waited for keys.
        Queue => "queue_dropped",
        /// Packets not sealed because an epoch had no counter left.
        EpochSpent => "epoch_spent",
        /// Packets for the TUN dropped because too many waited.
        Reply => "replies_dropped",
        /// Reports dropped because the neighbour that caused them, or the node itself, already had
        /// its share of what waits for the core.
        Report => "reports_dropped",
        /// Packets for the TUN whose frame had experienced congestion and whose sender does not
        /// support ECN. They count as lost on the path (RFC 6040).
        Congestion => "ce_dropped",
        /// Frames not sent, because the peer has proven no address, and its unproven address has
        /// received three times the bytes that came from it.
        PathUnproven => "path_unproven",
        /// Handshake datagrams dropped because too many waited for the core.
        HandshakeQueue => "handshakes_dropped",
        /// Data of a session behind a port at which this node has no service.
        NoService => "no_service",
        /// Messages for services over the rate of their peer.
        ServiceRate => "services_refused",
        /// What belongs to a link or session that has ended, or that has no keys to seal with.
        NoKeys => "no_keys",
    }
}
