//! The quota of session messages in the clear that one neighbour may send.
//!
//! Handshake messages, error signals and coordinates are sealed for one hop alone, so their
//! content, the source included, may be forged. They cost the core work, the peer of a session some
//! Diffie-Hellmans, and nodes on the path memory. So each link has a rate for them, whatever source
//! they name. A flood ends at the first node that enforces these rates, and other links keep
//! theirs. Handshake messages have a rate for each destination as well, so that a flood at one node
//! leaves room for handshakes with others.

use weft_contract::{Bucket, Rate};
use weft_wire::NodeAddr;
use weft_wire::fsp::{self, FspPhase};

/// Handshake messages to forward to one destination. The burst is small: a node behind this one
/// with the same rate takes by a random draw until a burst is over.
const HANDSHAKES_TO_ONE: Rate = Rate {
    per_second: 24,
    burst: 24,
};
/// Handshake messages of the neighbour itself to forward to one destination. The rate is higher,
/// since a flood that reaches the neighbour makes it answer.
const HANDSHAKES_OF_NEIGHBOUR: Rate = Rate {
    per_second: 32,
    burst: 96,
};
/// Handshake messages of other nodes to this node. The rate is higher than that of forwarding to
/// one destination, since what a flood makes the peer answer arrives too.
const HANDSHAKES_TO_US: Rate = Rate {
    per_second: 128,
    burst: 256,
};
/// Handshake messages to forward to all destinations.
const HANDSHAKES: Rate = Rate {
    per_second: 512,
    burst: 1_024,
};
/// Handshake messages of the neighbour itself to this node.
const OWN_HANDSHAKES: Rate = Rate {
    per_second: 16,
    burst: 64,
};
/// Error signals.
const SIGNALS: Rate = Rate {
    per_second: 64,
    burst: 128,
};
/// Sealed messages with coordinates in the clear.
const COORDS: Rate = Rate {
    per_second: 256,
    burst: 512,
};
/// The number of buckets that destinations share. Addresses are hashes of keys, so they spread
/// evenly.
const SLOTS: usize = 32;

/// The kind of a session message in the clear.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Clear {
    /// SessionSetup, SessionAck or SessionMsg3.
    Handshake,
    /// An error signal of a node on the path.
    Signal,
    /// A sealed message with coordinates in front of it.
    Coords,
}

impl Clear {
    /// Returns what this message has in the clear, or `None` if it is sealed as a whole, or
    /// malformed.
    pub(crate) fn of(message: &[u8]) -> Option<Self> {
        let prefix = fsp::FspPrefix::parse(message).ok()?;
        match FspPhase::from_nibble(prefix.phase)? {
            FspPhase::Setup | FspPhase::Ack | FspPhase::Msg3 => Some(Self::Handshake),
            FspPhase::Established if prefix.is_signal() => Some(Self::Signal),
            FspPhase::Established => (prefix.flags & fsp::FLAG_COORDS != 0).then_some(Self::Coords),
        }
    }
}

/// Returns a number that the nodes before the last hop cannot choose: the end of the frame's tag,
/// under the keys of that hop.
pub(crate) fn draw(frame: &[u8]) -> u32 {
    frame.last_chunk().map_or(0, |end| u32::from_le_bytes(*end))
}

/// The nodes that such a message concerns.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parties {
    /// The neighbour that it arrived from.
    pub(crate) neighbour: NodeAddr,
    /// The source that it names.
    pub(crate) src: NodeAddr,
    /// Its destination.
    pub(crate) dest: NodeAddr,
    /// This node.
    pub(crate) me: NodeAddr,
}

/// The quota of one link.
#[derive(Debug)]
pub(crate) struct ClearQuota {
    own: Bucket,
    /// About 1 KiB, made once there is a message other than the neighbour's own handshakes.
    others: Option<Box<Others>>,
}

/// The quota of one link for messages of other nodes.
#[derive(Debug)]
struct Others {
    to_us: Bucket,
    carried: Bucket,
    carried_to: [Bucket; SLOTS],
    carried_of_neighbour: [Bucket; SLOTS],
    signals: Bucket,
    coords: Bucket,
}

impl Default for ClearQuota {
    fn default() -> Self {
        Self {
            own: Bucket::new(OWN_HANDSHAKES, 0),
            others: None,
        }
    }
}

impl Default for Others {
    fn default() -> Self {
        Self {
            to_us: Bucket::new(HANDSHAKES_TO_US, 0),
            carried: Bucket::new(HANDSHAKES, 0),
            carried_to: [Bucket::new(HANDSHAKES_TO_ONE, 0); SLOTS],
            carried_of_neighbour: [Bucket::new(HANDSHAKES_OF_NEIGHBOUR, 0); SLOTS],
            signals: Bucket::new(SIGNALS, 0),
            coords: Bucket::new(COORDS, 0),
        }
    }
}

impl ClearQuota {
    /// Takes one message from the quota, and returns whether there was room for it. If there are
    /// too many, some are taken by a random draw: `draw` is any number that no node on the path
    /// chose.
    pub(crate) fn take(&mut self, now: u64, kind: Clear, parties: Parties, draw: u32) -> bool {
        let Parties {
            neighbour,
            src,
            dest,
            me,
        } = parties;
        // No node forwards a handshake message with itself as the source, so this one is the
        // neighbour's own.
        if kind == Clear::Handshake && src == neighbour && dest == me {
            return self.own.take(OWN_HANDSHAKES, now, 1) == 1;
        }
        let others = self.others.get_or_insert_default();
        match kind {
            Clear::Signal => others.signals.take_by_lot(SIGNALS, now, draw),
            Clear::Coords => others.coords.take_by_lot(COORDS, now, draw),
            Clear::Handshake if dest == me => others.to_us.take_by_lot(HANDSHAKES_TO_US, now, draw),
            Clear::Handshake => {
                let (slots, rate) = if src == neighbour {
                    (&mut others.carried_of_neighbour, HANDSHAKES_OF_NEIGHBOUR)
                } else {
                    (&mut others.carried_to, HANDSHAKES_TO_ONE)
                };
                let [number, ..] = *dest.as_bytes();
                let slot = slots.get_mut(usize::from(number) % SLOTS);
                slot.is_some_and(|slot| slot.take_by_lot(rate, now, draw))
                    && others.carried.take_by_lot(HANDSHAKES, now, draw.rotate_left(16))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addr(n: u8) -> NodeAddr {
        NodeAddr::new([n; 16])
    }

    /// A neighbour 1 of node 0 sends a message from `src` to `dest`.
    fn parties(src: u8, dest: u8) -> Parties {
        Parties {
            neighbour: addr(1),
            src: addr(src),
            dest: addr(dest),
            me: addr(0),
        }
    }

    /// Returns numbers without an order.
    fn draw(n: u64) -> u32 {
        (n.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32
    }

    #[test]
    fn messages_in_the_clear_are_told_from_sealed_ones() {
        let message = |phase: u8, flags: u8| Clear::of(&[phase, flags, 0, 0, 0, 0]);
        for phase in 1..=3 {
            assert_eq!(message(phase, 0), Some(Clear::Handshake));
        }
        assert_eq!(message(0, fsp::FLAG_UNENCRYPTED), Some(Clear::Signal));
        assert_eq!(message(0, fsp::FLAG_COORDS), Some(Clear::Coords));
        assert_eq!(message(0, 0), None);
        assert_eq!(message(4, 0), None);
        assert_eq!(Clear::of(&[]), None);
    }

    #[test]
    fn a_flood_at_one_node_leaves_room_for_handshakes_with_others() {
        let mut quota = ClearQuota::default();
        let passed = |quota: &mut ClearQuota, dest, count: u64| {
            (0..count)
                .filter(|n| quota.take(1_000 + n / 5, Clear::Handshake, parties(7, dest), draw(*n)))
                .count()
        };
        // 5,000 a second for 2 s.
        let most = passed(&mut quota, 9, 10_000);
        assert!((50..=24 + 48).contains(&most), "{most}");
        assert!(quota.take(3_000, Clear::Handshake, parties(7, 8), draw(1)));
        // The neighbour's own have a bound of their own.
        let own = (0..10_000).filter(|n| quota.take(3_000 + n / 5, Clear::Handshake, parties(1, 9), draw(*n)));
        assert!((100..=96 + 64).contains(&own.count()));
    }

    #[test]
    fn a_neighbours_own_messages_have_a_quota_of_their_own() {
        let mut quota = ClearQuota::default();
        for n in 0..10_000 {
            for kind in [Clear::Handshake, Clear::Signal, Clear::Coords] {
                quota.take(n / 5, kind, parties(7, 0), draw(n));
            }
        }
        assert!(quota.take(2_000, Clear::Handshake, parties(1, 0), draw(1)));
    }

    #[test]
    fn many_destinations_together_have_a_rate() {
        let mut quota = ClearQuota::default();
        let passed = (0..50_000_u64)
            .filter(|n| quota.take(n / 5, Clear::Handshake, parties(7, (n % 251) as u8), draw(*n)))
            .count();
        // 5,000 a second for 10 s: the burst, and 512 a second.
        assert!((4_500..=6_200).contains(&passed), "{passed}");
    }
}
