//! Whether IP packets of a session pass, for each direction separately.
//!
//! A received packet proves its direction. A sent packet proves nothing. For that direction the
//! evidence is the peer's ReceiverReports, which a FIPS daemon and a weft node send while they
//! receive IP packets.

use weft_contract::SessionActivity;

/// Time for which a passed IP packet counts as recent, in ms. The state leaves
/// [`PeerState::Payload`](crate::PeerState::Payload) at most one sample of the lane (250 ms) after
/// this.
pub(crate) const FRESH: u64 = 9_000;
/// Time with sent packets and no authentic frame received after which nothing counts as arriving
/// from the peer, in ms: a weft node answers within 2 s.
const UNHEARD: u64 = 3_000;
/// Time with sent packets and no new receiver report, beyond two round trips, after which packets
/// count as not arriving at the peer, in ms. The peer reports after a round trip, or 500 ms at
/// least; new keys may delay that by 3 s.
const UNTOLD: u64 = 6_000;
/// Minimum time between the first and the last packet without a report, in ms: the loss of one
/// burst proves nothing about the path.
const SPREAD: u64 = 1_500;

/// What is known of IP packets. Times are ms, 0 is never.
#[derive(Debug, Default)]
pub(crate) struct Passing {
    came: u64,
    went: u64,
    /// Number of received IP packets.
    packets: u64,
    /// When the peer last reported new received frames, and the first packet that was sent after
    /// that.
    told: u64,
    untold_since: Option<u64>,
    /// The first packet that was sent after the last authentic frame was received.
    unheard_since: Option<u64>,
}

impl Passing {
    /// Handles the lane's counts. `heard` is when something authentic was last received.
    pub(crate) fn sample(&mut self, now: u64, heard: u64, activity: &SessionActivity) {
        let packets = activity.totals.rx_payload;
        if packets != self.packets {
            self.packets = packets;
            // The lane knows when a packet last passed in either direction. If the last one was
            // sent, another was received since the last sample.
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

    /// Handles the peer's report of new received frames.
    pub(crate) fn handle_told(&mut self, now: u64) {
        self.told = now;
        self.untold_since = None;
    }

    /// Handles a changed path, or new keys.
    pub(crate) fn settle(&mut self) {
        self.untold_since = None;
    }

    /// Handles the end of the session.
    pub(crate) fn end(&mut self) {
        *self = Self {
            packets: self.packets,
            ..Self::default()
        };
    }

    /// Returns when an IP packet was last received in this session, if one was.
    pub(crate) fn came(&self) -> Option<u64> {
        (self.came > 0).then_some(self.came)
    }

    /// Returns when one was last sent.
    pub(crate) fn went(&self) -> Option<u64> {
        (self.went > 0).then_some(self.went)
    }

    /// Returns until when packets count as passing in both directions, if nothing more passes.
    pub(crate) fn fresh_until(&self) -> u64 {
        match self.came.min(self.went) {
            0 => 0,
            older => older.saturating_add(FRESH),
        }
    }

    /// Returns from when on nothing arrives from the peer. `heard` is when something authentic was
    /// last received.
    pub(crate) fn unheard_at(&self, heard: u64) -> u64 {
        let since = self.unheard_since.filter(|since| *since > heard);
        since.map_or(u64::MAX, |since| since.saturating_add(UNHEARD))
    }

    /// Returns from when on packets do not arrive at the peer, by its reports; `rtt` in ms.
    pub(crate) fn untold_at(&self, rtt: u64) -> u64 {
        let since = self
            .untold_since
            .filter(|since| self.went.saturating_sub(*since) >= SPREAD);
        since.map_or(u64::MAX, |since| since.saturating_add(UNTOLD + 2 * rtt.min(1_000)))
    }

    /// Returns when the peer last reported new received frames.
    pub(crate) fn told(&self) -> u64 {
        self.told
    }
}

#[cfg(test)]
mod tests {
    use weft_contract::{Received, Totals};
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
    fn silence_runs_from_the_first_unanswered_packet_to_any_frame() {
        let mut passing = Passing::default();
        passing.sample(5_000, 4_000, &activity((1, 4_000), 5_000));
        passing.sample(6_000, 4_000, &activity((1, 4_000), 6_000));
        assert_eq!(passing.unheard_at(4_000), 5_000 + UNHEARD);
        assert_eq!(passing.unheard_at(6_500), u64::MAX);
        passing.sample(7_000, 6_500, &activity((1, 4_000), 7_000));
        assert_eq!(passing.unheard_at(6_500), 7_000 + UNHEARD);
    }

    #[test]
    fn packets_that_no_report_tells_of_do_not_arrive() {
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
