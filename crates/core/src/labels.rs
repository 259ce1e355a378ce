//! Labels for relayed fast frames: those that neighbours have bound with us, and ours with them.
//!
//! A table that is refreshed from its ends: whoever wants a label binds it again and again, and what is not bound again
//! expires, so nothing has to be told for anything to end. Towards one neighbour everybody's frames to a destination share
//! a label.

use std::collections::BTreeMap;

use weft_packet::LinkId;
use weft_wire::NodeAddr;

/// Labels that one neighbour may have with us.
const MAX_SERVED: usize = 256;
/// Labels that we ask of one neighbour for others: some of what it allows us stays for ourselves.
const MAX_ASKED_FOR_OTHERS: usize = 192;
/// First wait for an answer to a bind; doubles each time.
pub(crate) const ASK_AGAIN: u64 = 250;
/// Asked that often in vain: no.
pub(crate) const MAX_ASKS: u32 = 5;
/// A label in use is bound again after this, ms.
pub(crate) const REFRESH: u64 = 15_000;
/// One that nobody has bound again for this long ends, ms.
pub(crate) const LIFE: u64 = 40_000;
/// A session wants its label this long after it was last active, ms.
pub(crate) const USE: u64 = 20_000;
/// What was refused is asked for again after this, ms.
pub(crate) const RETRY: u64 = 10_000;
/// What was taken back is asked for again after this, ms, and what is bound again without an answer bound once more.
pub(crate) const RETRY_SOON: u64 = 1_000;

/// Refused sizes are reported at most this often, ms.
const TELL_REFUSAL: u64 = 10_000;

/// A label of ours with a neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) label: u32,
    pub(crate) stage: Stage,
    /// When something is due about it.
    pub(crate) next: u64,
    /// A session of ours wants it until then.
    pub(crate) ours: u64,
}

/// How far that is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Bound that often, without an answer.
    Asking(u32),
    /// Frames of this size may go.
    Bound(u16),
    /// They may not.
    Refused,
}

/// A label that a neighbour has bound with us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Served {
    pub(crate) dest: NodeAddr,
    /// The link to the next hop, if one is chosen and needed.
    pub(crate) to: Option<LinkId>,
    /// The neighbour was told yes, and the lane takes frames with it.
    pub(crate) told: bool,
    /// The neighbour has not given it up until then.
    pub(crate) until: u64,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Labels {
    pub(crate) asked: BTreeMap<(LinkId, NodeAddr), Asked>,
    pub(crate) served: BTreeMap<(LinkId, u32), Served>,
    /// Nothing is due before.
    due: Option<u64>,
    last: u32,
    /// When a size that a neighbour told was last reported as refused.
    refusal_told: Option<u64>,
}

impl Labels {
    /// When something is due.
    pub(crate) fn deadline(&self) -> u64 {
        self.due.unwrap_or(u64::MAX)
    }

    /// Something is due then.
    pub(crate) fn wake(&mut self, at: u64) {
        self.due = Some(self.deadline().min(at));
    }

    /// Looks up anew when something is due.
    pub(crate) fn settle(&mut self) {
        let asked = self.asked.values().map(|asked| asked.next);
        self.due = asked.chain(self.served.values().map(|served| served.until)).min();
    }

    /// A place for a label that a neighbour binds, if it may have another.
    pub(crate) fn admit(&mut self, link: LinkId, label: u32, served: Served) -> bool {
        let of_link = self.served.range((link, 0)..=(link, u32::MAX));
        let admitted = of_link.count() < MAX_SERVED;
        if admitted {
            self.served.insert((link, label), served);
            self.wake(served.until);
        }
        admitted
    }

    /// A label of ours for `dest` over `link`, until `ours` for ourselves, or for others. Tells whether there is one.
    pub(crate) fn ask(&mut self, now: u64, link: LinkId, dest: NodeAddr, ours: u64) -> bool {
        if let Some(asked) = self.asked.get_mut(&(link, dest)) {
            asked.ours = asked.ours.max(ours);
            return true;
        }
        let of_link = self
            .asked
            .range((link, NodeAddr::new([0; 16]))..=(link, NodeAddr::new([0xff; 16])));
        if ours <= now && of_link.count() >= MAX_ASKED_FOR_OTHERS {
            return false;
        }
        self.last = self.last.wrapping_add(1);
        let asked = Asked {
            label: self.last,
            stage: Stage::Asking(0),
            next: now,
            ours,
        };
        self.asked.insert((link, dest), asked);
        self.wake(now);
        true
    }

    /// Our label for `dest` over `link` and the largest frame it takes, if it is bound.
    pub(crate) fn bound(&self, link: LinkId, dest: NodeAddr) -> Option<(u32, u16)> {
        let asked = self.asked.get(&(link, dest))?;
        match asked.stage {
            Stage::Bound(mtu) => Some((asked.label, mtu)),
            Stage::Asking(_) | Stage::Refused => None,
        }
    }

    /// Whose label of ours this is.
    pub(crate) fn dest_of(&self, link: LinkId, label: u32) -> Option<NodeAddr> {
        let mut of_link = self
            .asked
            .range((link, NodeAddr::new([0; 16]))..=(link, NodeAddr::new([0xff; 16])));
        of_link
            .find(|(_, asked)| asked.label == label)
            .map(|((_, dest), _)| *dest)
    }

    /// The labels of neighbours that lead over `link` to `dest`.
    pub(crate) fn leading(&self, link: LinkId, dest: NodeAddr) -> Vec<(LinkId, u32)> {
        let leads = |served: &Served| served.dest == dest && served.to == Some(link);
        let served = self.served.iter().filter(|(_, served)| leads(served));
        served.map(|(key, _)| *key).collect()
    }

    /// Whether a refused size may be reported now; it is then.
    pub(crate) fn may_tell_refusal(&mut self, now: u64) -> bool {
        let due = self
            .refusal_told
            .is_none_or(|told| now.saturating_sub(told) >= TELL_REFUSAL);
        if due {
            self.refusal_told = Some(now);
        }
        due
    }

    /// Anybody wants our label.
    pub(crate) fn is_wanted(&self, now: u64, link: LinkId, dest: NodeAddr) -> bool {
        let ours = self.asked.get(&(link, dest)).is_some_and(|asked| now < asked.ours);
        ours || !self.leading(link, dest).is_empty()
    }

    /// Checks that nobody has made us keep more than is allowed.
    ///
    /// # Errors
    /// The broken invariant, in words.
    pub(crate) fn check_invariants(&self) -> Result<(), String> {
        for (link, _) in self.served.keys() {
            let count = self.served.range((*link, 0)..=(*link, u32::MAX)).count();
            if count > MAX_SERVED {
                return Err(format!("{count} labels of link {}", link.0));
            }
        }
        let times = self.asked.values().map(|asked| asked.next);
        let first = times.chain(self.served.values().map(|served| served.until)).min();
        if first.is_some_and(|first| self.deadline() > first) {
            return Err("a label is forgotten".into());
        }
        Ok(())
    }
}
