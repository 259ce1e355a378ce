//! Whether IP packets of a session pass, each direction by itself.
//!
//! A packet that comes proves its direction. A packet that goes proves nothing: for that direction the other end's
//! ReceiverReports are asked, which a FIPS daemon and a weft node send while IP packets come to them.

use weft_packet::SessionActivity;

/// IP packets of this direction passed lately, ms. The state leaves [`PeerState::Payload`](crate::PeerState::Payload) at most
/// one sample of the lane (250 ms) after this.
pub(crate) const FRESH: u64 = 9_000;
/// Packets go out and nothing authentic has come back for this long, ms: a weft node answers within 2 s.
const UNHEARD: u64 = 3_000;
/// Packets go out and the other end has told of nothing new for this long, ms, beside two round trips. It tells after a round
/// trip of 500 ms at least; new keys may keep it from that for 3 s.
const UNTOLD: u64 = 6_000;
/// The packets that nothing was told of lie at least this far apart, ms: the loss of one burst says nothing about the way.
const SPREAD: u64 = 1_500;

/// What is known of IP packets. Times are ms, 0 is never.
#[derive(Debug, Default)]
pub(crate) struct Passing {
    came: u64,
    went: u64,
    /// IP packets that have come.
    packets: u64,
    /// When the other end last told that it received something new, and what we sent first after that.
    told: u64,
    untold_since: Option<u64>,
    /// What we sent first after something authentic last came.
    unheard_since: Option<u64>,
}

impl Passing {
    /// Takes the lane's count. `heard` is when something authentic last came.
    pub(crate) fn sample(&mut self, now: u64, heard: u64, activity: &SessionActivity) {
        let packets = activity.totals.rx_payload;
        if packets != self.packets {
            self.packets = packets;
            // The lane knows when a packet last passed in either direction. Where the last one went out, another one came
            // since the last sample.
            self.came = match activity.last_data > activity.last_data_tx {
                true => activity.last_data,
                false => now.min(activity.last_data),
            };
        }
        let went = activity.last_data_tx;
        if went <= self.went {
            return;
        }
        self.went = went;
        self.unheard_since = self.unheard_since.filter(|since| *since > heard);
        if went > heard {
            self.unheard_since.get_or_insert(went);
        }
        if self.told > 0 && went > self.told {
            self.untold_since.get_or_insert(went);
        }
    }

    /// The other end tells that something new came to it.
    pub(crate) fn handle_told(&mut self, now: u64) {
        self.told = now;
        self.untold_since = None;
    }

    /// The way is another one, or the keys are.
    pub(crate) fn settle(&mut self) {
        self.untold_since = None;
    }

    /// The session is over.
    pub(crate) fn end(&mut self) {
        *self = Self {
            packets: self.packets,
            ..Self::default()
        };
    }

    /// When an IP packet last came, if ever in this session.
    pub(crate) fn came(&self) -> Option<u64> {
        (self.came > 0).then_some(self.came)
    }

    /// When one last went.
    pub(crate) fn went(&self) -> Option<u64> {
        (self.went > 0).then_some(self.went)
    }

    /// Until when packets count as passing in both directions, if nothing more passes.
    pub(crate) fn fresh_until(&self) -> u64 {
        match self.came.min(self.went) {
            0 => 0,
            older => older.saturating_add(FRESH),
        }
    }

    /// From when on nothing comes back. `heard` is when something authentic last came.
    pub(crate) fn unheard_at(&self, heard: u64) -> u64 {
        let since = self.unheard_since.filter(|since| *since > heard);
        since.map_or(u64::MAX, |since| since.saturating_add(UNHEARD))
    }

    /// From when on what we send does not arrive, by what the other end tells; `rtt` in ms.
    pub(crate) fn untold_at(&self, rtt: u64) -> u64 {
        let since = self
            .untold_since
            .filter(|since| self.went.saturating_sub(*since) >= SPREAD);
        since.map_or(u64::MAX, |since| since.saturating_add(UNTOLD + 2 * rtt.min(1_000)))
    }

    /// When the other end last told of something new.
    pub(crate) fn told(&self) -> u64 {
        self.told
    }
}

#[cfg(test)]
mod tests {
    use weft_packet::{Received, Totals};
    use weft_wire::NodeAddr;

    use super::*;

    fn activity(came: (u64, u64), went: u64) -> SessionActivity {
        SessionActivity {
            peer: NodeAddr::new([1; 16]),
            totals: Totals {
                rx_payload: came.0,
                ..Totals::default()
            },
            received: Received::default(),
            last_data: came.1.max(went),
            last_data_tx: went,
            last_large_tx: 0,
            path_mtu: None,
        }
    }

    #[test]
    fn both_directions_are_fresh_or_packets_do_not_pass() {
        let mut passing = Passing::default();
        passing.sample(1_000, 0, &activity((0, 0), 1_000));
        assert_eq!(passing.fresh_until(), 0, "nothing came yet");
        passing.sample(1_200, 1_100, &activity((1, 1_100), 1_000));
        assert_eq!(passing.fresh_until(), 1_000 + FRESH);
        passing.sample(9_000, 1_100, &activity((1, 1_100), 9_000));
        assert_eq!(passing.fresh_until(), 1_100 + FRESH);
        assert_eq!((passing.came(), passing.went()), (Some(1_100), Some(9_000)));
    }

    #[test]
    fn silence_counts_from_the_first_packet_without_an_answer_and_ends_with_any_frame() {
        let mut passing = Passing::default();
        passing.sample(5_000, 4_000, &activity((1, 4_000), 5_000));
        passing.sample(6_000, 4_000, &activity((1, 4_000), 6_000));
        assert_eq!(passing.unheard_at(4_000), 5_000 + UNHEARD);
        assert_eq!(passing.unheard_at(6_500), u64::MAX);
        passing.sample(7_000, 6_500, &activity((1, 4_000), 7_000));
        assert_eq!(passing.unheard_at(6_500), 7_000 + UNHEARD);
    }

    #[test]
    fn what_the_other_end_never_tells_of_does_not_arrive() {
        let mut passing = Passing::default();
        passing.sample(1_000, 900, &activity((1, 900), 1_000));
        assert_eq!(passing.untold_at(0), u64::MAX, "it has never told");
        passing.handle_told(1_500);
        passing.sample(2_000, 1_900, &activity((2, 1_900), 2_000));
        assert_eq!(passing.untold_at(0), u64::MAX, "one packet says nothing");
        passing.sample(4_000, 3_900, &activity((3, 3_900), 4_000));
        assert_eq!(passing.untold_at(100), 2_000 + UNTOLD + 200);
        passing.handle_told(4_100);
        assert_eq!(passing.untold_at(100), u64::MAX);
    }
}
