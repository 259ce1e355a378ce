//! The reports of several lanes on one session or link, merged.
//!
//! Each lane counts its own frames with counters of its own. The sums over lanes behave like the
//! numbers of one lane: the difference of two sums is the sum of the lanes' differences. That holds
//! only while no lane changes its keys. So the epoch of the sum is computed from the epochs of all
//! lanes, and changes with each of them.

use std::collections::BTreeMap;

use weft_contract::{CountedEpoch, LinkActivity, LinkId, Measured, Received, SessionActivity, Totals};
use weft_wire::NodeAddr;
use weft_wire::mmp::ReceiverReport;

/// The latest report of each lane, if there are several lanes.
#[derive(Debug, Default)]
pub(crate) struct Lanes {
    links: BTreeMap<LinkId, Each<LinkActivity>>,
    sessions: BTreeMap<NodeAddr, Each<SessionActivity>>,
    measured: BTreeMap<NodeAddr, Each<Measured>>,
}

/// The latest report of each lane, in the order of the lanes. Each peer has some of these, so they
/// take only the memory that they need.
#[derive(Debug)]
struct Each<T>(Vec<Option<T>>);

impl<T> Default for Each<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> Each<T> {
    fn of(&self, lane: u8) -> Option<&T> {
        self.0.get(usize::from(lane))?.as_ref()
    }

    fn set(&mut self, lane: u8, told: T) {
        let lane = usize::from(lane);
        if self.0.len() <= lane {
            self.0.reserve_exact(lane + 1 - self.0.len());
            self.0.resize_with(lane + 1, || None);
        }
        if let Some(place) = self.0.get_mut(lane) {
            *place = Some(told);
        }
    }

    fn values(&self) -> impl Iterator<Item = &T> {
        self.0.iter().flatten()
    }

    /// The epoch of the sum over all lanes.
    fn epoch(&self, of: fn(&T) -> CountedEpoch) -> CountedEpoch {
        let lanes = (0..).zip(&self.0);
        CountedEpoch::of_lanes(lanes.filter_map(|(lane, told)| Some((lane, of(told.as_ref()?)))))
    }
}

impl Lanes {
    /// Forgets a node that is not a peer any more, and the link with it.
    pub(crate) fn forget(&mut self, peer: NodeAddr, link: LinkId) {
        self.links.remove(&link);
        self.sessions.remove(&peer);
        self.measured.remove(&peer);
    }

    /// Enters what `lane` has reported on a link, and returns the activity of the link over all
    /// lanes. Reception is that of the first lane, because only it opens the link's own frames.
    pub(crate) fn link(&mut self, lane: u8, told: LinkActivity) -> LinkActivity {
        let lanes = self.links.entry(told.link).or_default();
        lanes.set(lane, told);
        LinkActivity {
            link: told.link,
            totals: totals(lanes.values().map(|lane| &lane.totals)),
            received: lanes.of(0).map(|first| first.received).unwrap_or_default(),
        }
    }

    /// The same for a session.
    pub(crate) fn session(&mut self, lane: u8, told: SessionActivity) -> SessionActivity {
        let lanes = self.sessions.entry(told.peer).or_default();
        lanes.set(lane, told);
        let latest = |at: fn(&SessionActivity) -> u64| lanes.values().map(at).max().unwrap_or(0);
        SessionActivity {
            peer: told.peer,
            totals: totals(lanes.values().map(|lane| &lane.totals)),
            received: received(lanes),
            last_data: latest(|lane| lane.last_data),
            last_data_tx: latest(|lane| lane.last_data_tx),
            last_large_tx: latest(|lane| lane.last_large_tx),
            path_mtu: lanes.of(0).and_then(|first| first.path_mtu),
        }
    }

    /// Returns what the peer of a session has received over all lanes, from the latest report on
    /// each. Returns `None` if the report is impossible: it covers more than was sent, or less than
    /// an earlier report.
    pub(crate) fn measured(&mut self, peer: NodeAddr, lane: u8, told: Measured) -> Option<Measured> {
        let lanes = self.measured.entry(peer).or_default();
        let before = lanes.of(lane).filter(|before| before.epoch == told.epoch);
        if told.report.highest_counter >= told.sent
            || before.is_some_and(|before| told.report.highest_counter < before.report.highest_counter)
        {
            return None;
        }
        lanes.set(lane, told);
        let sum = |of: fn(&Measured) -> u64| lanes.values().map(of).fold(0, u64::saturating_add);
        Some(Measured {
            epoch: lanes.epoch(|told| told.epoch),
            sent: sum(|told| told.sent),
            clock: told.clock,
            report: ReceiverReport {
                highest_counter: sum(|told| told.report.highest_counter),
                cumulative_packets_recv: sum(|told| told.report.cumulative_packets_recv),
                cumulative_bytes_recv: sum(|told| told.report.cumulative_bytes_recv),
                ..told.report
            },
        })
    }
}

fn totals<'a>(lanes: impl Iterator<Item = &'a Totals>) -> Totals {
    lanes.fold(Totals::default(), |sum, lane| Totals {
        tx_frames: sum.tx_frames + lane.tx_frames,
        rx_frames: sum.rx_frames + lane.rx_frames,
        tx_bytes: sum.tx_bytes + lane.tx_bytes,
        rx_bytes: sum.rx_bytes + lane.rx_bytes,
        rx_payload: sum.rx_payload + lane.rx_payload,
        last_tx: sum.last_tx.max(lane.last_tx),
        last_payload_tx: sum.last_payload_tx.max(lane.last_payload_tx),
        last_rx: sum.last_rx.max(lane.last_rx),
    })
}

fn received(lanes: &Each<SessionActivity>) -> Received {
    let each = || lanes.values().map(|lane| &lane.received);
    Received {
        epoch: lanes.epoch(|told| told.received.epoch),
        highest: each().map(|lane| lane.highest).fold(0, u64::saturating_add),
        frames: each().map(|lane| lane.frames).sum(),
        reordered: each().map(|lane| lane.reordered).sum(),
        ce: each().map(|lane| lane.ce).sum(),
        jitter_us: each().map(|lane| lane.jitter_us).max().unwrap_or(0),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PEER: NodeAddr = NodeAddr::new([7; 16]);

    fn session(received: Received, frames: u64) -> SessionActivity {
        SessionActivity {
            peer: PEER,
            totals: Totals {
                rx_frames: frames,
                tx_frames: 2 * frames,
                last_rx: frames,
                ..Totals::default()
            },
            received,
            last_data: frames,
            last_data_tx: frames,
            last_large_tx: 0,
            path_mtu: Some(1_000 + frames as u16),
        }
    }

    fn arrived(epoch: u32, highest: u64, frames: u64) -> Received {
        Received {
            epoch: CountedEpoch::fips(epoch),
            highest,
            frames,
            ..Received::default()
        }
    }

    fn told(epoch: u32, sent: u64, highest: u64) -> Measured {
        Measured {
            epoch: CountedEpoch::fips(epoch),
            sent,
            clock: 5,
            report: ReceiverReport {
                highest_counter: highest,
                cumulative_packets_recv: highest,
                cumulative_bytes_recv: 100 * highest,
                ..ReceiverReport::default()
            },
        }
    }

    proptest! {
        /// Two reads of the sums differ by what happened between them in all lanes, unless keys
        /// change. Then the epoch changes.
        #[test]
        fn sums_move_as_their_parts_do(
            steps in prop::collection::vec((0..4_u8, 0..100_u64, 0..100_u64, prop::bool::weighted(0.1)), 1..60),
        ) {
            let mut lanes = Lanes::default();
            let mut each = [(0_u32, 0_u64, 0_u64); 4];
            for (lane, at) in (0..).zip(each) {
                lanes.session(lane, session(arrived(at.0, at.1, at.2), 0));
            }
            let mut before = lanes.session(0, session(arrived(0, 0, 0), 0));
            for (lane, sent, came, rekeyed) in steps {
                let now = &mut each[usize::from(lane)];
                *now = if rekeyed { (now.0 + 1, sent, now.2 + came) } else { (now.0, now.1 + sent, now.2 + came) };
                let after = lanes.session(lane, session(arrived(now.0, now.1, now.2), now.2));
                prop_assert_eq!(after.received.epoch == before.received.epoch, !rekeyed);
                prop_assert_eq!(after.received.frames - before.received.frames, came);
                prop_assert_eq!(after.totals.rx_frames - before.totals.rx_frames, came);
                prop_assert_eq!(after.totals.tx_frames - before.totals.tx_frames, 2 * came);
                prop_assert_eq!(after.last_data, each.iter().map(|lane| lane.2).max().unwrap());
                prop_assert_eq!(after.path_mtu, Some(1_000 + each[0].2 as u16));
                if !rekeyed {
                    prop_assert_eq!(after.received.highest - before.received.highest, sent);
                }
                before = after;
            }
        }
    }

    #[test]
    fn a_report_that_cannot_be_is_not_added() {
        let mut lanes = Lanes::default();
        assert_eq!(lanes.measured(PEER, 0, told(1, 10, 10)), None, "more than was sent");
        let one = lanes.measured(PEER, 0, told(1, 10, 8)).unwrap();
        let two = lanes.measured(PEER, 1, told(1, 100, 50)).unwrap();
        assert_eq!((one.sent, one.report.highest_counter), (10, 8));
        assert_eq!((two.sent, two.report.highest_counter), (110, 58));
        assert_ne!(one.epoch, two.epoch);
        assert_eq!(lanes.measured(PEER, 1, told(1, 100, 49)), None, "an old one");
        let three = lanes.measured(PEER, 0, told(1, 20, 19)).unwrap();
        assert_eq!((three.epoch, three.report.cumulative_packets_recv), (two.epoch, 69));
        lanes.forget(PEER, LinkId(1));
        assert_eq!(lanes.measured(PEER, 0, told(1, 10, 8)), Some(one));
    }
}
