//! The nodes of the path to a peer, as one request of the user finds them out: when an echo and
//! requests are sent, and what their answers say together.
//!
//! An echo goes first: it measures the whole path, and lets relays know the route of a path that was
//! idle. Times are µs since the beginning.

use std::collections::BTreeMap;

use weft_core::{HopSaid, Onward};
use weft_noise::PublicKey;

/// Time after which the nodes are asked although the echo has no answer yet.
const ASK_AFTER: u64 = 400_000;
/// Time after the first request after which a second one is sent, if answers are missing.
const ASK_AGAIN: u64 = 600_000;
/// Time after which the inquiry ends with what is known.
const GIVE_UP: u64 = 1_600_000;
/// Maximum number of requests.
const REQUESTS: usize = 2;

/// What is to be done now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Send the peer an echo.
    Echo,
    /// Ask the nodes of the path about themselves.
    Ask,
    /// Show what is known.
    Show,
}

/// An inquiry about one path.
#[derive(Clone, Debug, Default)]
pub struct Hops {
    /// The relay to which the session of the peer sends; `None` for a direct path.
    first: Option<PublicKey>,
    echo_sent: bool,
    echo_us: Option<u64>,
    /// The numbers of the requests, and when they were sent.
    asked: Vec<(u32, u64)>,
    /// The first relay reads no requests.
    foreign: bool,
    /// The latest answer from each distance, and the least time that one took.
    said: BTreeMap<u8, (HopSaid, u64)>,
}

/// A node of the path, or a gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathNode {
    /// The node; `None` if it does not say which one it is.
    pub key: Option<PublicKey>,
    /// The time until its answer came, in µs.
    pub rtt_us: Option<u64>,
    /// The round trip of the link from the node before it, in µs, as that node measures it.
    pub link_rtt_us: Option<u32>,
    /// What is not known.
    pub gap: Option<Gap>,
}

/// Why something about a node is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gap {
    /// It gave no answer, but nodes behind it did.
    Silent,
    /// Neither it nor nodes behind it gave an answer: there may be several.
    SilentFromHere,
    /// The node before it does not know it as a weft node; there may be several.
    Foreign,
    /// It is too far away; there may be several.
    Far,
}

impl Hops {
    /// Begins an inquiry. `first` is the relay of a relayed path.
    #[must_use]
    pub fn new(first: Option<PublicKey>) -> Self {
        Self {
            first,
            ..Self::default()
        }
    }

    /// Returns what is to be done, if anything is. [`Step::Ask`] has to be followed by
    /// [`Hops::handle_asked`].
    pub fn poll(&mut self, now: u64) -> Option<Step> {
        if !self.echo_sent {
            self.echo_sent = true;
            return Some(Step::Echo);
        }
        if self.is_done(now) {
            return Some(Step::Show);
        }
        (self.ask_at()? <= now).then_some(Step::Ask)
    }

    /// Returns when [`Hops::poll`] has something to do, unless an answer comes before.
    #[must_use]
    pub fn deadline(&self) -> u64 {
        self.ask_at().map_or(GIVE_UP, |at| at.min(GIVE_UP))
    }

    /// Notes the number of the request that was sent; `None` if the first relay reads none.
    pub fn handle_asked(&mut self, now: u64, id: Option<u32>) {
        match id {
            Some(id) => self.asked.push((id, now)),
            None => self.foreign = true,
        }
    }

    /// Handles the answer of the peer to the echo.
    pub fn handle_echo(&mut self, now: u64) {
        self.echo_us.get_or_insert(now);
    }

    /// Handles what a node says. Returns whether it belongs to this inquiry.
    pub fn handle_hop(&mut self, now: u64, id: u32, said: HopSaid) -> bool {
        let Some((_, at)) = self.asked.iter().find(|(asked, _)| *asked == id) else {
            return false;
        };
        let took = now.saturating_sub(*at);
        let before = self.said.get(&said.distance).map_or(took, |(_, before)| *before);
        self.said.insert(said.distance, (said, took.min(before)));
        true
    }

    /// Whether each node of the path has said which one it is, and the peer has answered.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        let direct = self.first.is_none();
        self.echo_us.is_some() && (direct || self.last() == Some(Onward::Destination))
    }

    /// Returns the nodes of the path in their order. The last one is the peer.
    pub fn nodes(&self, peer: PublicKey, link_rtt_us: Option<u32>) -> Vec<PathNode> {
        let mut nodes = Vec::new();
        let mut link_rtt_us = link_rtt_us;
        if let Some(first) = self.first {
            let far = self.said.keys().next_back().copied().unwrap_or(1);
            for distance in 1..=far {
                let said = self.said.get(&distance);
                let known = said.map(|(said, _)| said.key).or((distance == 1).then_some(first));
                let silent = if self.foreign { Gap::Foreign } else { Gap::Silent };
                nodes.push(PathNode {
                    key: known,
                    rtt_us: said.map(|(_, took)| *took),
                    link_rtt_us,
                    gap: said.is_none().then_some(silent),
                });
                link_rtt_us = said.and_then(|(said, _)| said.rtt_us);
            }
            if let Some(gap) = self.gap_behind(far) {
                nodes.push(PathNode {
                    key: None,
                    rtt_us: None,
                    link_rtt_us: link_rtt_us.take(),
                    gap: Some(gap),
                });
            }
        }
        nodes.push(PathNode {
            key: Some(peer),
            rtt_us: self.echo_us,
            link_rtt_us,
            gap: self.echo_us.is_none().then_some(Gap::Silent),
        });
        nodes
    }

    /// Returns what is missing between the node at this distance, the last one that is known, and the
    /// peer.
    fn gap_behind(&self, distance: u8) -> Option<Gap> {
        match self.said.get(&distance).map(|(said, _)| said.onward) {
            Some(Onward::Destination) => None,
            Some(Onward::Foreign) => Some(Gap::Foreign),
            Some(Onward::Far) => Some(Gap::Far),
            Some(Onward::Passed) | None => Some(Gap::SilentFromHere),
        }
    }

    /// Returns what became of the request at the last node, if all before it have answered.
    fn last(&self) -> Option<Onward> {
        let whole = (1..).zip(self.said.keys()).all(|(distance, said)| distance == *said);
        let (_, (said, _)) = self.said.last_key_value().filter(|_| whole)?;
        Some(said.onward)
    }

    fn is_done(&self, now: u64) -> bool {
        let answered = match self.last() {
            _ if self.first.is_none() || self.foreign => true,
            Some(Onward::Passed) | None => false,
            Some(Onward::Destination | Onward::Foreign | Onward::Far) => true,
        };
        now >= GIVE_UP || (answered && self.echo_us.is_some())
    }

    fn ask_at(&self) -> Option<u64> {
        if self.first.is_none() || self.foreign || self.asked.len() >= REQUESTS {
            return None;
        }
        match self.asked.last() {
            None => Some(self.echo_us.unwrap_or(ASK_AFTER)),
            Some((_, at)) => Some(at + ASK_AGAIN),
        }
    }
}

#[cfg(test)]
mod tests {
    use weft_noise::SecretKey;

    use super::*;

    fn key(number: u8) -> PublicKey {
        SecretKey::from_bytes(&[number; 32]).unwrap().public()
    }

    fn said(distance: u8, onward: Onward) -> HopSaid {
        HopSaid {
            distance,
            key: key(distance),
            rtt_us: Some(u32::from(distance) * 1_000),
            onward,
        }
    }

    /// An inquiry whose first request has the number 7 and left after 10 ms.
    fn asked() -> Hops {
        let mut hops = Hops::new(Some(key(1)));
        assert_eq!(hops.poll(0), Some(Step::Echo));
        assert_eq!(hops.poll(0), None, "the echo lets relays know the route first");
        hops.handle_echo(10_000);
        assert_eq!(hops.poll(10_000), Some(Step::Ask));
        hops.handle_asked(10_000, Some(7));
        hops
    }

    #[test]
    fn all_nodes_of_a_path_are_shown_with_their_round_trips() {
        let mut hops = asked();
        for (distance, onward) in [(2, Onward::Passed), (1, Onward::Passed), (3, Onward::Destination)] {
            assert_eq!(hops.poll(11_000), None);
            assert!(hops.handle_hop(10_000 + u64::from(distance) * 500, 7, said(distance, onward)));
        }
        assert_eq!(hops.poll(12_000), Some(Step::Show));
        assert!(hops.is_complete());
        let nodes = hops.nodes(key(9), Some(42));
        let keys: Vec<_> = nodes.iter().map(|node| node.key).collect();
        assert_eq!(keys, [1, 2, 3, 9].map(|n| Some(key(n))));
        let rtts: Vec<_> = nodes.iter().map(|node| node.rtt_us).collect();
        assert_eq!(rtts, [500, 1_000, 1_500, 10_000].map(Some));
        let links: Vec<_> = nodes.iter().map(|node| node.link_rtt_us).collect();
        assert_eq!(links, [42, 1_000, 2_000, 3_000].map(Some));
        assert!(nodes.iter().all(|node| node.gap.is_none()));
    }

    #[test]
    fn a_node_that_does_not_say_leaves_a_gap_and_the_list_goes_on() {
        let mut hops = asked();
        hops.handle_hop(11_000, 7, said(1, Onward::Passed));
        hops.handle_hop(13_000, 7, said(3, Onward::Destination));
        assert_eq!(hops.poll(13_000), None, "the answer of the second may come later");
        assert_eq!(hops.deadline(), 10_000 + ASK_AGAIN);
        assert_eq!(hops.poll(10_000 + ASK_AGAIN), Some(Step::Ask));
        hops.handle_asked(10_000 + ASK_AGAIN, Some(8));
        assert_eq!(hops.poll(GIVE_UP - 1), None, "two requests are all");
        assert_eq!((hops.deadline(), hops.poll(GIVE_UP)), (GIVE_UP, Some(Step::Show)));
        assert!(!hops.is_complete());
        let nodes = hops.nodes(key(9), None);
        let shown: Vec<_> = nodes.iter().map(|node| (node.key, node.gap)).collect();
        let expected = [
            (Some(key(1)), None),
            (None, Some(Gap::Silent)),
            (Some(key(3)), None),
            (Some(key(9)), None),
        ];
        assert_eq!(shown, expected);
    }

    #[test]
    fn nodes_that_read_no_requests_are_a_gap_in_front_of_the_peer() {
        for (onward, gap) in [(Onward::Foreign, Gap::Foreign), (Onward::Far, Gap::Far)] {
            let mut hops = asked();
            hops.handle_hop(11_000, 7, said(1, onward));
            assert_eq!(hops.poll(11_000), Some(Step::Show), "nothing more will come");
            let nodes = hops.nodes(key(9), None);
            assert_eq!(
                (nodes[1].key, nodes[1].gap, nodes[1].link_rtt_us),
                (None, Some(gap), Some(1_000))
            );
            assert_eq!(
                (nodes[2].key, nodes[2].gap, nodes[2].link_rtt_us),
                (Some(key(9)), None, None)
            );
        }
        let mut hops = Hops::new(Some(key(1)));
        hops.poll(0);
        hops.handle_echo(5);
        assert_eq!(hops.poll(5), Some(Step::Ask));
        hops.handle_asked(5, None);
        assert_eq!(hops.poll(5), Some(Step::Show));
        let nodes = hops.nodes(key(9), Some(3));
        assert_eq!(
            (nodes[0].key, nodes[0].gap, nodes[0].link_rtt_us),
            (Some(key(1)), Some(Gap::Foreign), Some(3))
        );
        assert_eq!((nodes[1].gap, nodes[2].key), (Some(Gap::SilentFromHere), Some(key(9))));
        assert!(!hops.is_complete());
    }

    #[test]
    fn a_direct_path_has_one_hop_and_asks_no_other_node() {
        let mut hops = Hops::new(None);
        assert_eq!((hops.poll(0), hops.poll(1_000_000)), (Some(Step::Echo), None));
        hops.handle_echo(1_000_001);
        assert_eq!(hops.poll(1_000_001), Some(Step::Show));
        assert!(hops.is_complete());
        let nodes = hops.nodes(key(9), Some(7));
        assert_eq!(nodes.len(), 1);
        assert_eq!(
            (nodes[0].key, nodes[0].rtt_us, nodes[0].link_rtt_us),
            (Some(key(9)), Some(1_000_001), Some(7))
        );
    }

    #[test]
    fn answers_to_other_requests_do_not_count() {
        let mut hops = asked();
        assert!(!hops.handle_hop(11_000, 6, said(1, Onward::Destination)));
        assert_eq!(hops.poll(11_000), None);
        let silent = hops.nodes(key(9), None);
        assert_eq!(
            (silent[0].gap, silent[1].gap),
            (Some(Gap::Silent), Some(Gap::SilentFromHere))
        );
    }
}
