//! Counters of the node itself.

/// Counters of received messages that had no effect, and of path probes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeCounters {
    /// First handshake messages that did not authenticate.
    pub handshakes_forged: u64,
    /// First handshake messages that had their effect earlier. They are replays, which cost a
    /// look-up.
    pub handshakes_replayed: u64,
    /// Authentic handshake messages from nodes that are not configured.
    pub strangers: u64,
    /// Link or session messages of a type that neither FIPS nor Weft defines.
    pub messages_unknown: u64,
    /// Link or session messages of a known type that do not parse.
    pub messages_malformed: u64,
    /// Requests for sightings of guests or above the rate of a neighbour, and sightings that were
    /// not asked for.
    pub sightings_refused: u64,
    /// Requests for the nodes of a path that were not read, and answers to such that were not asked
    /// for.
    pub hops_refused: u64,
    /// Announcements of neighbours that are old, too frequent, forged or impossible.
    pub announcements_refused: u64,
    /// Probes of paths through relays.
    pub relay_probes: u64,
    /// Sessions whose path was changed because these probes showed a better one.
    pub relay_moves: u64,
    /// Probes of the size of paths.
    pub path_probes: u64,
    /// Paths that probes found to take more than was sent.
    pub path_raises: u64,
    /// Paths that probes found to drop what was sent.
    pub path_black_holes: u64,
    /// Reported path sizes that were refused, because no usable path is so narrow
    /// ([`LEAST_PAYLOAD`](weft_wire::fast::LEAST_PAYLOAD)).
    pub sizes_refused: u64,
    /// Handshake messages of sessions that were not read, because the budget for unproven senders
    /// was spent.
    pub unproven_refused: u64,
    /// Error signals that were not sent, because the messages of one link, or of all, caused too
    /// many.
    pub signals_refused: u64,
    /// Labels that a neighbour requested and did not get: too many, or no route for them.
    pub labels_refused: u64,
    /// Labels that a neighbour did not bind again in time.
    pub labels_expired: u64,
    /// Offers and answers about NATs, and control frames of nvpn, above the rate of a peer.
    pub traversals_refused: u64,
    /// Messages of this node's services that found no room among those that wait for the session,
    /// or waited in vain.
    pub services_dropped: u64,
}

impl NodeCounters {
    /// Returns all counters with their names, in the order of the fields.
    pub fn named(&self) -> impl Iterator<Item = (&'static str, u64)> {
        [
            ("handshakes_forged", self.handshakes_forged),
            ("handshakes_replayed", self.handshakes_replayed),
            ("strangers", self.strangers),
            ("messages_unknown", self.messages_unknown),
            ("messages_malformed", self.messages_malformed),
            ("sightings_refused", self.sightings_refused),
            ("hops_refused", self.hops_refused),
            ("announcements_refused", self.announcements_refused),
            ("relay_probes", self.relay_probes),
            ("relay_moves", self.relay_moves),
            ("path_probes", self.path_probes),
            ("path_raises", self.path_raises),
            ("path_black_holes", self.path_black_holes),
            ("sizes_refused", self.sizes_refused),
            ("unproven_refused", self.unproven_refused),
            ("signals_refused", self.signals_refused),
            ("labels_refused", self.labels_refused),
            ("labels_expired", self.labels_expired),
            ("traversals_refused", self.traversals_refused),
            ("services_dropped", self.services_dropped),
        ]
        .into_iter()
    }
}
