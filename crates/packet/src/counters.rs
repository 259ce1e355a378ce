//! What a lane counts: what it did, and what it dropped by reason.
//!
//! A function that may drop a packet, a frame or a message returns a [`DropReason`], and the loop that called it counts.
//! To add a count or a reason, add its line to the list at the end of this file; `weft status` and `weft trace` then show
//! it, and a test asks for its place in docs/protocol.

use std::ops::Index;

/// Declares [`Counters`] and [`DropReason`] and what is derived from both lists: fields, names and numbers.
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
            /// All of them by name: the counts, then the reasons.
            pub fn named(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
                let counts = [$((stringify!($count), self.$count),)*];
                let drops = self.drops;
                let reasons = DropReason::ALL.iter().map(move |reason| (reason.name(), drops[*reason]));
                counts.into_iter().chain(reasons)
            }
        }

        /// Why a packet, a frame or a message went no further.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum DropReason {
            $($(#[$drop_doc])* $reason,)*
        }

        impl DropReason {
            /// All reasons, in the order of their declaration.
            pub const ALL: &[Self] = &[$(Self::$reason,)*];

            /// The name of its counter in `weft status` and `weft trace`.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$reason => $name,)*
                }
            }
        }
    };
}

/// How often something was dropped for each reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drops([u64; DropReason::ALL.len()]);

impl Drops {
    /// Counts one.
    #[cold]
    pub(crate) fn count(&mut self, reason: DropReason) {
        self.count_many(reason, 1);
    }

    /// Counts `many`.
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
    /// What was received under keys of ours and went on, to the TUN or to another node: packets and frames.
    #[must_use]
    pub fn passed_on(&self) -> u64 {
        self.tun_tx + self.relayed + self.forwarded
    }

    /// Counts what was dropped, if anything was.
    #[inline]
    pub(crate) fn note(&mut self, done: Result<(), DropReason>) {
        if let Err(reason) = done {
            self.drops.count(reason);
        }
    }
}

counters! {
    counts {
        /// Packets read from the TUN (a super-packet counts once).
        tun_rx,
        /// Packets for the TUN.
        tun_tx,
        /// Of those read from the TUN, the ones left to another lane, which sends them.
        handed_out,
        /// Datagrams for another lane; they count as received there alone.
        foreign,
        /// Datagrams received.
        udp_rx,
        /// Frames for an index whose handshake is not finished.
        early_frames,
        /// Fast frames opened.
        fast_rx,
        /// IP packets sealed in fast frames.
        fast_tx,
        /// Of those, the ones with all of their header: IPv4, and IPv6 to or from a network behind a node.
        full_tx,
        /// IP packets with all of their header that came and went to the TUN.
        full_rx,
        /// IP packets sealed in pieces, because no fast frame takes them whole.
        fast_fragmented,
        /// IP packets put together of such pieces.
        fast_reassembled,
        /// TCP segments and super-packets cut smaller than the hosts agreed on.
        tcp_recut,
        /// IP packets sealed in fast frames that go through other nodes; they count as `fast_tx` too.
        relayed_tx,
        /// Fast frames opened that came through other nodes; they count as `fast_rx` too.
        relayed_rx,
        /// Fast frames of others that the lane carried from one neighbour to the next.
        relayed,
        /// Session datagrams of others that the lane forwarded.
        forwarded,
        /// Of those, the ones that went on marked as having experienced congestion.
        ce_forwarded,
        /// IP packets for the TUN that such a mark was put on.
        ce_delivered,
        /// Packets that had to wait for a session.
        queued,
        /// Packets that had to wait because their peer must be reached in fast frames and is not.
        fast_waited,
        /// ICMPv6 errors sent to local senders.
        icmp_sent,
        /// Datagrams that came with CE in their IP header, opened or not.
        ce_underlay,
        /// Frames sent a second time, to an address beside the one that their peer has proven.
        path_copies,
        /// Proofs of keys that had to wait in the lane because the core did not take them. They are offered again; none is lost.
        proofs_waited,
    }
    drops {
        /// Datagrams and messages too short or of an unknown version or phase.
        Malformed => "malformed",
        /// Frames for an index that is not ours.
        UnknownIndex => "unknown_index",
        /// Session frames that came before their keys and could not wait for them.
        Early => "early_dropped",
        /// Control messages longer than any that FIPS or we define.
        ControlTooLong => "control_too_long",
        /// Link frames whose tag was wrong.
        LinkTag => "link_open_failed",
        /// Link frames seen before or too old.
        LinkReplay => "link_replays",
        /// Session frames that no epoch of ours opened.
        SessionTag => "session_open_failed",
        /// Session frames seen before or too old.
        SessionReplay => "session_replays",
        /// Pieces that did not fit those before them.
        Fragment => "fragments_refused",
        /// Packets of which not all pieces came.
        FragmentExpired => "fragments_expired",
        /// Fast frames for an index that is not ours.
        FastUnknown => "fast_unknown",
        /// Fast frames whose tag was wrong.
        FastTag => "fast_open_failed",
        /// Fast frames seen before or too old.
        FastReplay => "fast_replays",
        /// Relayed fast frames with a label that their sender has not bound.
        LabelUnknown => "label_unknown",
        /// Relayed fast frames of others that had no hop left.
        RelayTtl => "relay_ttl_expired",
        /// Relayed fast frames of others whose next hop was lost, or too small for them.
        RelayFailed => "relay_failed",
        /// Handshake messages over the rate, or answers to nothing.
        Handshake => "handshakes_refused",
        /// Handshake messages of sessions and error signals for us, over the rate of their link.
        Clear => "clear_refused",
        /// The same, and coordinates, of others that were not carried on: over the rate of their link, or in our own name.
        ClearForwarded => "carried_refused",
        /// Session datagrams addressed to another node.
        NotForUs => "not_for_us",
        /// Session datagrams of others that are too large for our links.
        TransitTooLarge => "transit_too_large",
        /// Session datagrams of others whose next hop was just lost.
        ForwardFailed => "forward_failed",
        /// Session datagrams of others that had no hop left.
        Ttl => "ttl_expired",
        /// IP packets from a node that is not a configured peer.
        NotAllowed => "not_allowed",
        /// IP packets from a peer whose source is neither its address nor in a network behind it.
        ForeignSource => "foreign_source",
        /// IP packets from a peer whose destination is neither our address nor in a network behind us.
        ForeignDestination => "foreign_destination",
        /// TUN packets that are not IPv6, where no networks are configured, or not IP at all.
        NotIp => "not_ipv6",
        /// TUN packets whose source is neither our address nor in a network behind us.
        WrongSource => "wrong_source",
        /// TUN packets to an address that is no configured peer's, nor in a network behind one.
        NoRoute => "no_route",
        /// TUN packets to or from networks whose peer cannot be sent such: there are no fast frames, or it does not read them.
        NoFullFrames => "no_full_frames",
        /// Our own datagrams to a node, which a route to a network behind it has led to the TUN.
        UnderlayLoop => "underlay_loops",
        /// TUN packets larger than the session takes.
        TooBig => "too_big",
        /// TUN packets whose headers or virtio header do not add up.
        MalformedTun => "malformed_tun",
        /// Packets that waited in vain.
        Queue => "queue_dropped",
        /// Packets not sealed because an epoch had no counter left.
        EpochSpent => "epoch_spent",
        /// Packets for the TUN dropped because too many waited.
        Reply => "replies_dropped",
        /// Reports dropped because their neighbour, or the node itself, already had its share of what waits for the core.
        Report => "reports_dropped",
        /// Packets for the TUN whose frame came so and whose sender does not know ECN: they count as lost on the way (RFC 6040).
        Congestion => "ce_dropped",
        /// Frames not sent, because the peer has proven no address and three times went where it seems to be what came from
        /// there.
        PathUnproven => "path_unproven",
        /// Handshake datagrams dropped because too many waited for the core.
        HandshakeQueue => "handshakes_dropped",
        /// What belongs to a link or session that has ended, or that has no keys to seal with.
        NoKeys => "no_keys",
    }
}
