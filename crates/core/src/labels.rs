//! Labels for relayed fast frames: those that neighbours have bound at this node, and those that
//! this node has bound at neighbours.
//!
//! The state is soft: the node that needs a label binds it again and again, and a label that is not
//! bound again expires. So no message is required to end it. All frames to one destination over one
//! neighbour share a label.

use std::collections::BTreeMap;

use weft_contract::{Label, LinkId};
use weft_wire::NodeAddr;

/// Maximum number of labels that one neighbour may have at this node.
const MAX_INCOMING: usize = 256;
/// Maximum number of labels that this node requests from one neighbour for others. The rest of the
/// neighbour's limit is reserved for this node's own sessions.
const MAX_OUTGOING_FOR_OTHERS: usize = 192;
/// First wait for an answer to a bind, in ms; doubles each time.
pub(crate) const REQUEST_AGAIN: u64 = 250;
/// Number of unanswered binds after which the label counts as refused.
pub(crate) const MAX_REQUESTS: u32 = 5;
/// A label in use is bound again after this, in ms.
pub(crate) const REFRESH: u64 = 15_000;
/// A label that has not been bound again for this long ends, in ms.
pub(crate) const LIFE: u64 = 40_000;
/// Time for which a session needs its label after it was last active, in ms.
pub(crate) const USE: u64 = 20_000;
/// A refused label is requested again after this, in ms.
pub(crate) const RETRY: u64 = 10_000;
/// A label that the neighbour has withdrawn is requested again after this, in ms. A repeated bind
/// without an answer is sent again after the same time.
pub(crate) const RETRY_SOON: u64 = 1_000;

/// Minimum time between two reports of refused sizes, in ms.
const TELL_REFUSAL: u64 = 10_000;

/// A label of this node at a neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Outgoing {
    pub(crate) label: Label,
    pub(crate) stage: Stage,
    /// When the label next needs attention.
    pub(crate) next: u64,
    /// A session of this node needs it until then.
    pub(crate) ours: u64,
    /// When a refused label may be requested again although more time is left, because frames of the
    /// destination arrive over the same neighbour.
    pub(crate) early: u64,
    /// Number of requests in a row that were made so.
    pub(crate) hurried: u32,
}

/// The state of such a label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Number of binds without an answer.
    Requesting(u32),
    /// Frames of up to this size may be sent.
    Bound(u16),
    /// No frames may be sent.
    Refused,
}

/// A label that a neighbour has bound at this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Incoming {
    pub(crate) dest: NodeAddr,
    /// The link to the next hop, if one is chosen and needed.
    pub(crate) to: Option<LinkId>,
    /// The neighbour's bind has been accepted, and the lane takes frames with the label.
    pub(crate) told: bool,
    /// The label expires then, unless the neighbour binds it again.
    pub(crate) until: u64,
}

/// The labels of a node; see the module.
#[derive(Debug, Default)]
pub(crate) struct Labels {
    pub(crate) outgoing: BTreeMap<(LinkId, NodeAddr), Outgoing>,
    pub(crate) incoming: BTreeMap<(LinkId, Label), Incoming>,
    /// Nothing is due before this time.
    due: Option<u64>,
    last: Label,
    /// When a size that a neighbour reported was last reported as refused.
    refusal_told: Option<u64>,
}

impl Labels {
    /// Returns when something is due.
    pub(crate) fn deadline(&self) -> u64 {
        self.due.unwrap_or(u64::MAX)
    }

    /// Records that something is due at `at`.
    pub(crate) fn wake(&mut self, at: u64) {
        self.due = Some(self.deadline().min(at));
    }

    /// Computes again when something is due.
    pub(crate) fn settle(&mut self) {
        let outgoing = self.outgoing.values().map(|outgoing| outgoing.next);
        self.due = outgoing
            .chain(self.incoming.values().map(|incoming| incoming.until))
            .min();
    }

    /// Enters a label that a neighbour binds, and returns whether it may have another.
    pub(crate) fn admit(&mut self, link: LinkId, label: Label, incoming: Incoming) -> bool {
        let of_link = self.incoming.range((link, Label(0))..=(link, Label(u32::MAX)));
        let admitted = of_link.count() < MAX_INCOMING;
        if admitted {
            self.incoming.insert((link, label), incoming);
            self.wake(incoming.until);
        }
        admitted
    }

    /// Enters a label for `dest` over `link`: needed by this node until `ours`, or else by others.
    /// Returns whether there is one.
    pub(crate) fn ask(&mut self, now: u64, link: LinkId, dest: NodeAddr, ours: u64) -> bool {
        if let Some(outgoing) = self.outgoing.get_mut(&(link, dest)) {
            outgoing.ours = outgoing.ours.max(ours);
            return true;
        }
        let of_link = self
            .outgoing
            .range((link, NodeAddr::new([0; 16]))..=(link, NodeAddr::new([0xff; 16])));
        if ours <= now && of_link.count() >= MAX_OUTGOING_FOR_OTHERS {
            return false;
        }
        self.last = Label(self.last.0.wrapping_add(1));
        let outgoing = Outgoing {
            label: self.last,
            stage: Stage::Requesting(0),
            next: now,
            ours,
            early: u64::MAX,
            hurried: 0,
        };
        self.outgoing.insert((link, dest), outgoing);
        self.wake(now);
        true
    }

    /// Returns the label for `dest` over `link` and the largest frame it takes, if it is bound.
    pub(crate) fn bound(&self, link: LinkId, dest: NodeAddr) -> Option<(Label, u16)> {
        let outgoing = self.outgoing.get(&(link, dest))?;
        match outgoing.stage {
            Stage::Bound(mtu) => Some((outgoing.label, mtu)),
            Stage::Requesting(_) | Stage::Refused => None,
        }
    }

    /// Lets a refused label be requested again soon, once frames of `dest` arrive over `link`.
    pub(crate) fn may_hurry(&mut self, now: u64, link: LinkId, dest: NodeAddr) {
        if let Some(outgoing) = self.outgoing.get_mut(&(link, dest)) {
            outgoing.early = now + (REQUEST_AGAIN << outgoing.hurried.min(MAX_REQUESTS));
        }
    }

    /// Requests a refused label for `dest` over `link` now, if that is allowed already.
    pub(crate) fn retry_early(&mut self, now: u64, link: LinkId, dest: NodeAddr) {
        if let Some(outgoing) = self.outgoing.get_mut(&(link, dest))
            && outgoing.stage == Stage::Refused
            && now >= outgoing.early
        {
            (outgoing.stage, outgoing.next) = (Stage::Requesting(0), now);
            outgoing.hurried += 1;
            self.wake(now);
        }
    }

    /// Requests all labels over a neighbour that answers again from the start, but for those that are
    /// bound.
    pub(crate) fn start_over(&mut self, now: u64, link: LinkId) {
        let of_link = (link, NodeAddr::new([0; 16]))..=(link, NodeAddr::new([0xff; 16]));
        for (_, outgoing) in self.outgoing.range_mut(of_link) {
            if !matches!(outgoing.stage, Stage::Bound(_)) {
                (outgoing.stage, outgoing.next, outgoing.hurried) = (Stage::Requesting(0), now, 0);
            }
        }
        self.wake(now);
    }

    /// Returns the destination of this label of the node.
    pub(crate) fn dest_of(&self, link: LinkId, label: Label) -> Option<NodeAddr> {
        let mut of_link = self
            .outgoing
            .range((link, NodeAddr::new([0; 16]))..=(link, NodeAddr::new([0xff; 16])));
        of_link
            .find(|(_, outgoing)| outgoing.label == label)
            .map(|((_, dest), _)| *dest)
    }

    /// Returns the labels of neighbours whose frames go over `link` to `dest`.
    pub(crate) fn leading(&self, link: LinkId, dest: NodeAddr) -> Vec<(LinkId, Label)> {
        let leads = |incoming: &Incoming| incoming.dest == dest && incoming.to == Some(link);
        let incoming = self.incoming.iter().filter(|(_, incoming)| leads(incoming));
        incoming.map(|(key, _)| *key).collect()
    }

    /// Returns the labels of neighbours for `dest`.
    pub(crate) fn towards(&self, dest: NodeAddr) -> Vec<(LinkId, Label)> {
        let incoming = self.incoming.iter().filter(|(_, incoming)| incoming.dest == dest);
        incoming.map(|(key, _)| *key).collect()
    }

    /// Whether a refused size may be reported now. If so, records the report.
    pub(crate) fn may_tell_refusal(&mut self, now: u64) -> bool {
        let due = self
            .refusal_told
            .is_none_or(|told| now.saturating_sub(told) >= TELL_REFUSAL);
        if due {
            self.refusal_told = Some(now);
        }
        due
    }

    /// Whether a session of this node or a label of a neighbour needs the label.
    pub(crate) fn is_wanted(&self, now: u64, link: LinkId, dest: NodeAddr) -> bool {
        let ours = self
            .outgoing
            .get(&(link, dest))
            .is_some_and(|outgoing| now < outgoing.ours);
        ours || !self.leading(link, dest).is_empty()
    }

    /// Checks that no neighbour has caused more state than is allowed.
    ///
    /// # Errors
    /// The broken invariant, in words.
    pub(crate) fn check_invariants(&self) -> Result<(), String> {
        for (link, _) in self.incoming.keys() {
            let count = self
                .incoming
                .range((*link, Label(0))..=(*link, Label(u32::MAX)))
                .count();
            if count > MAX_INCOMING {
                return Err(format!("{count} labels of link {}", link.0));
            }
        }
        let times = self.outgoing.values().map(|outgoing| outgoing.next);
        let first = times.chain(self.incoming.values().map(|incoming| incoming.until)).min();
        if first.is_some_and(|first| self.deadline() > first) {
            return Err("a label is forgotten".into());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINK: LinkId = LinkId(7);
    const OTHER: LinkId = LinkId(8);

    fn addr(number: u16) -> NodeAddr {
        let mut bytes = [0; 16];
        bytes[..2].copy_from_slice(&number.to_be_bytes());
        NodeAddr::new(bytes)
    }

    fn incoming(dest: u16, to: Option<LinkId>, until: u64) -> Incoming {
        Incoming {
            dest: addr(dest),
            to,
            told: false,
            until,
        }
    }

    #[test]
    fn a_neighbour_takes_no_labels_beyond_its_share() {
        let mut labels = Labels::default();
        for label in 0..MAX_INCOMING as u32 {
            assert!(labels.admit(LINK, Label(label), incoming(1, None, 5_000)));
            assert_eq!(labels.check_invariants(), Ok(()));
        }
        assert!(!labels.admit(LINK, Label(u32::MAX), incoming(1, None, 10)));
        assert_eq!((labels.incoming.len(), labels.deadline()), (MAX_INCOMING, 5_000));
        assert!(labels.admit(OTHER, Label(u32::MAX), incoming(1, None, 10)));
        labels.incoming.remove(&(LINK, Label(3)));
        assert!(labels.admit(LINK, Label(u32::MAX), incoming(1, None, 10)));
    }

    #[test]
    fn more_labels_of_a_neighbour_than_its_share_break_an_invariant() {
        let mut labels = Labels::default();
        for label in 0..=MAX_INCOMING as u32 {
            labels.incoming.insert((LINK, Label(label)), incoming(1, None, 5_000));
        }
        labels.settle();
        assert!(labels.check_invariants().is_err());
    }

    #[test]
    fn labels_for_others_leave_some_for_ourselves() {
        let (mut labels, now) = (Labels::default(), 1_000);
        for dest in 0..MAX_OUTGOING_FOR_OTHERS as u16 {
            assert!(labels.ask(now, LINK, addr(dest), 0));
        }
        assert!(!labels.ask(now, LINK, addr(1_000), 0));
        assert!(
            !labels.ask(now, LINK, addr(1_000), now),
            "a use that is over is none of ours"
        );
        assert_eq!(labels.outgoing.len(), MAX_OUTGOING_FOR_OTHERS);
        assert!(labels.ask(now, OTHER, addr(1_000), 0), "each neighbour has a share");
        assert!(labels.ask(now, LINK, addr(5), 0), "there is one for this destination");
        assert!(labels.ask(now, LINK, addr(1_000), now + 1));
    }

    /// Refuses the label for a destination, as a neighbour does.
    fn refuse(labels: &mut Labels, now: u64, dest: u16) {
        let outgoing = labels.outgoing.get_mut(&(LINK, addr(dest))).unwrap();
        (outgoing.stage, outgoing.next) = (Stage::Refused, now + RETRY);
        labels.settle();
    }

    fn stage(labels: &Labels, link: LinkId, dest: u16) -> Stage {
        labels.outgoing.get(&(link, addr(dest))).unwrap().stage
    }

    #[test]
    fn a_refused_label_is_requested_early_ever_more_seldom() {
        let mut labels = Labels::default();
        let mut now = 1_000;
        labels.ask(now, LINK, addr(1), now + USE);
        for n in [0, 1, 2, 3, 4, 5, 5, 5] {
            refuse(&mut labels, now, 1);
            labels.may_hurry(now, LINK, addr(1));
            let early = now + (REQUEST_AGAIN << n);
            labels.retry_early(early - 1, LINK, addr(1));
            assert_eq!(stage(&labels, LINK, 1), Stage::Refused, "after {n}");
            labels.retry_early(early, LINK, addr(1));
            assert_eq!(stage(&labels, LINK, 1), Stage::Requesting(0), "after {n}");
            assert_eq!(labels.deadline(), early, "it is due at once");
            now = early;
        }
    }

    #[test]
    fn only_a_refused_label_is_requested_early() {
        let mut labels = Labels::default();
        labels.ask(1_000, LINK, addr(1), 30_000);
        for known in [Stage::Bound(1_400), Stage::Requesting(3)] {
            let outgoing = labels.outgoing.get_mut(&(LINK, addr(1))).unwrap();
            (outgoing.stage, outgoing.next) = (known, 9_000);
            labels.retry_early(8_000, LINK, addr(1));
            assert_eq!(stage(&labels, LINK, 1), known);
        }
        refuse(&mut labels, 1_000, 1);
        labels.retry_early(1_000, OTHER, addr(1));
        labels.retry_early(1_000, LINK, addr(2));
        assert_eq!(
            stage(&labels, LINK, 1),
            Stage::Refused,
            "another neighbour, another destination"
        );
    }

    #[test]
    fn a_neighbour_that_answers_again_is_asked_for_what_is_missing() {
        let mut labels = Labels::default();
        for (link, dest) in [(LINK, 1), (LINK, 2), (LINK, 3), (OTHER, 2)] {
            labels.ask(1_000, link, addr(dest), 30_000);
        }
        let set = |labels: &mut Labels, link, dest, stage| {
            let outgoing = labels.outgoing.get_mut(&(link, addr(dest))).unwrap();
            (outgoing.stage, outgoing.next, outgoing.hurried) = (stage, 20_000, 4);
        };
        set(&mut labels, LINK, 1, Stage::Bound(1_400));
        set(&mut labels, LINK, 2, Stage::Refused);
        set(&mut labels, LINK, 3, Stage::Requesting(4));
        set(&mut labels, OTHER, 2, Stage::Refused);
        labels.settle();
        labels.start_over(5_000, LINK);
        let state = |link, dest| {
            let outgoing = labels.outgoing.get(&(link, addr(dest))).unwrap();
            (outgoing.stage, outgoing.next, outgoing.hurried)
        };
        assert_eq!(state(LINK, 1), (Stage::Bound(1_400), 20_000, 4), "it is bound");
        for dest in [2, 3] {
            assert_eq!(state(LINK, dest), (Stage::Requesting(0), 5_000, 0));
        }
        assert_eq!(state(OTHER, 2), (Stage::Refused, 20_000, 4), "another neighbour");
        assert_eq!(labels.deadline(), 5_000);
    }

    #[test]
    fn a_label_of_a_neighbour_stands_for_one_destination() {
        let mut labels = Labels {
            last: Label(u32::MAX - 1),
            ..Labels::default()
        };
        for (link, dest) in [(LINK, 1), (LINK, 2), (OTHER, 1), (LINK, 1)] {
            assert!(labels.ask(1_000, link, addr(dest), 0));
        }
        let of = |link, dest| labels.outgoing.get(&(link, addr(dest))).unwrap().label.0;
        assert_eq!([of(LINK, 1), of(LINK, 2), of(OTHER, 1)], [u32::MAX, 0, 1]);
        assert_eq!(labels.dest_of(LINK, Label(0)), Some(addr(2)));
        assert_eq!(labels.dest_of(OTHER, Label(1)), Some(addr(1)));
        assert_eq!(labels.dest_of(LINK, Label(1)), None, "that one is of another neighbour");
    }

    #[test]
    fn a_later_use_prolongs_an_earlier_one_and_never_shortens_it() {
        let mut labels = Labels::default();
        for (ours, kept) in [(0, 0), (5_000, 5_000), (4_000, 5_000)] {
            assert!(labels.ask(1_000, LINK, addr(1), ours));
            assert_eq!(labels.outgoing.get(&(LINK, addr(1))).unwrap().ours, kept);
        }
        assert!(labels.is_wanted(4_999, LINK, addr(1)));
        assert!(!labels.is_wanted(5_000, LINK, addr(1)), "nobody uses it any more");
        assert!(!labels.is_wanted(0, OTHER, addr(1)));
    }

    #[test]
    fn an_own_label_is_wanted_while_a_neighbours_leads_there() {
        let mut labels = Labels::default();
        labels.ask(1_000, LINK, addr(1), 0);
        for (label, dest, to) in [(1, 1, None), (2, 1, Some(OTHER)), (3, 2, Some(LINK))] {
            labels.admit(OTHER, Label(label), incoming(dest, to, 5_000));
        }
        assert!(!labels.is_wanted(1_000, LINK, addr(1)));
        labels.admit(OTHER, Label(4), incoming(1, Some(LINK), 5_000));
        assert!(labels.is_wanted(1_000, LINK, addr(1)));
        assert_eq!(labels.leading(LINK, addr(1)), [(OTHER, Label(4))]);
    }

    #[test]
    fn frames_go_with_a_label_only_once_it_is_bound() {
        let mut labels = Labels::default();
        labels.ask(1_000, LINK, addr(1), 0);
        for (stage, bound) in [
            (Stage::Requesting(1), None),
            (Stage::Bound(1_300), Some((Label(1), 1_300))),
            (Stage::Refused, None),
        ] {
            labels.outgoing.get_mut(&(LINK, addr(1))).unwrap().stage = stage;
            assert_eq!(labels.bound(LINK, addr(1)), bound);
        }
        assert_eq!(labels.bound(OTHER, addr(1)), None);
    }

    #[test]
    fn the_deadline_is_that_of_the_first_label() {
        let mut labels = Labels::default();
        assert_eq!(labels.deadline(), u64::MAX);
        labels.admit(LINK, Label(1), incoming(1, None, 9_000));
        labels.admit(LINK, Label(2), incoming(1, None, 8_000));
        assert_eq!(labels.deadline(), 8_000);
        labels.ask(3_000, LINK, addr(1), 0);
        assert_eq!(labels.deadline(), 3_000);
        labels.wake(7_000);
        assert_eq!(labels.deadline(), 3_000);
        labels.outgoing.get_mut(&(LINK, addr(1))).unwrap().next = 8_500;
        labels.settle();
        assert_eq!((labels.deadline(), labels.check_invariants()), (8_000, Ok(())));
        labels.due = Some(8_001);
        assert!(labels.check_invariants().is_err(), "it would be late");
    }

    #[test]
    fn refused_sizes_are_reported_seldom() {
        let mut labels = Labels::default();
        let told = [0, 1, TELL_REFUSAL - 1, TELL_REFUSAL, 2 * TELL_REFUSAL - 1].map(|now| labels.may_tell_refusal(now));
        assert_eq!(told, [true, false, false, true, false]);
    }
}
