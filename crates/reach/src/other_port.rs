//! Another source port for peers that do not answer.
//!
//! A router may hold an entry for the flow from this node's port to a peer's that leads nowhere: it was
//! made before the router translated addresses, or by an uplink that is gone. Each message that dials
//! the peer keeps the entry. From a port that the router has not seen, the same message makes a new one.
//! Peers that are merely away look the same, so ports are tried ever more seldom.

/// Milliseconds from one port to the next; doubles each time.
const FIRST: u64 = 15_000;
/// The longest time to the next port, in ms, while no peer answers at all.
const MOST_ALONE: u64 = 120_000;
/// The longest time to the next port, in ms, while other peers answer.
const MOST: u64 = 600_000;
/// Milliseconds from one look at the peers to the next.
const LOOK_EVERY: u64 = 1_000;

/// How many of the peers that are dialled do not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unanswered {
    /// None.
    None,
    /// Some; others answer.
    Some,
    /// All.
    All,
}

/// When the next port is tried. Times are ms.
#[derive(Debug, Default)]
pub struct OtherPort {
    look_at: u64,
    /// When a port was tried last, and how long the next one waits.
    last: Option<(u64, u64)>,
}

impl OtherPort {
    /// Returns whether a socket with a new port is due. `unanswered` looks at the peers, which is done
    /// once a second at most.
    pub fn poll(&mut self, now: u64, unanswered: impl FnOnce() -> Unanswered) -> bool {
        if now < self.look_at {
            return false;
        }
        self.look_at = now + LOOK_EVERY;
        let most = match unanswered() {
            Unanswered::None => {
                self.handle_network_change();
                return false;
            }
            Unanswered::Some => MOST,
            Unanswered::All => MOST_ALONE,
        };
        let (at, wait) = self.last.unwrap_or_default();
        let due = now >= at + wait.min(most);
        if due {
            self.last = Some((now, (2 * wait).clamp(FIRST, MOST)));
        }
        due
    }

    /// The network of this host has changed, and with it the routers.
    pub const fn handle_network_change(&mut self) {
        self.last = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The times at which a port is tried, in s.
    fn tried(port: &mut OtherPort, from: u64, until: u64, unanswered: Unanswered) -> Vec<u64> {
        let due = (from..until).filter(|now| now % 100 == 0 && port.poll(*now, || unanswered));
        due.map(|now| now / 1_000).collect()
    }

    #[test]
    fn ports_are_tried_ever_more_seldom() {
        let mut port = OtherPort::default();
        let times = tried(&mut port, 1_000, 600_000, Unanswered::All);
        assert_eq!(times, [1, 16, 46, 106, 226, 346, 466, 586]);
        let mut port = OtherPort::default();
        let times = tried(&mut port, 1_000, 3_600_000, Unanswered::Some);
        assert_eq!(times[..6], [1, 16, 46, 106, 226, 466]);
        assert!(times.len() <= 12, "{times:?}");
    }

    #[test]
    fn a_change_of_the_network_or_an_answer_begins_anew() {
        let mut port = OtherPort::default();
        tried(&mut port, 1_000, 600_000, Unanswered::All);
        assert_eq!(tried(&mut port, 600_000, 605_000, Unanswered::All), []);
        port.handle_network_change();
        assert_eq!(tried(&mut port, 605_000, 615_000, Unanswered::All), [605]);
        assert_eq!(tried(&mut port, 615_000, 616_000, Unanswered::None), []);
        assert_eq!(tried(&mut port, 617_000, 640_000, Unanswered::All), [617, 632]);
    }

    #[test]
    fn a_loss_of_all_peers_does_not_lengthen_the_wait() {
        let mut port = OtherPort::default();
        tried(&mut port, 1_000, 3_600_000, Unanswered::Some);
        let times = tried(&mut port, 3_600_000, 4_000_000, Unanswered::All);
        assert!(times[0] <= 3_720 && times.len() >= 2, "{times:?}");
    }
}
