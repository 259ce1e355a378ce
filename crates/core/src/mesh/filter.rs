//! Filters: the nodes to which each neighbour may have a route.
//!
//! Every node announces to each neighbour the addresses that it may reach, as a [`Bloom`]. A
//! neighbour receives the union of the node's own address and of the filters of the other *tree*
//! neighbours (parent and children), never its own filter (split horizon). Filters of neighbours
//! that are not in the tree are used for look-ups and next hops here, but not announced further. So
//! on a tree every node learns, at each edge, exactly the nodes behind it. Source: FIPS, "Bloom
//! Filters", `proto/bloom/`, `node/bloom.rs`.
//!
//! Two things are Weft's own. An announcement may be lost and is never acknowledged, so it is
//! repeated, at growing intervals. And an announced filter stays below the fill at which others
//! refuse it, because the fullest contributors are left out: one neighbour that claims too much
//! cannot silence the rest.
//!
//! A change concerns the filters to all neighbours, and with many neighbours there are many changes.
//! So what the filters add up to is computed when an announcement is due, and announcements of
//! changes are due at the same moments: with ten thousand neighbours, one in 1.25 s.

pub(crate) mod bloom;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::mem::size_of;

use weft_contract::{Bucket, Rate};
use weft_wire::NodeAddr;
use weft_wire::filter::{FILTER_LEN, FilterAnnounce};

pub(crate) use bloom::Bloom;
use bloom::{HASHES, Tally};

use crate::rounds::Rounds;

/// Minimum time between two announcements to one neighbour, in ms. The FIPS daemon's value.
pub(crate) const MIN_PAUSE: u64 = 500;
/// An announcement is repeated after this, then after twice this, and so on, in ms.
const FIRST_REPEAT: u64 = 2_000;
/// Number of filters that may take the place of a neighbour's own in an announcement that is cut.
const REFILL: usize = 32;
/// Longest time between two repeats, in ms.
const MAX_REPEAT: u64 = 300_000;
/// The same over an idle link, which is not idle each time that its keys are replaced.
const MAX_IDLE_REPEAT: u64 = 3_600_000;

/// The rate of announcements that a neighbour may send: honest ones keep [`MIN_PAUSE`].
const RATE: Rate = Rate {
    per_second: 10,
    burst: 16,
};

/// The reason why an announcement was refused. The neighbour's previous filter stays in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FilterError {
    /// The sender is not a neighbour.
    #[error("a filter of a node that is no neighbour")]
    UnknownPeer,
    /// The filter has another number of hash functions than this node's, so that it cannot be
    /// merged. The FIPS daemon accepts such a filter, computes its false positive rate with that
    /// number and merges it nevertheless: with 255 it accepts a filter full of ones.
    #[error("a filter of {0} hash functions")]
    HashCount(u8),
    /// The announcement is not newer than the last accepted one.
    #[error("filter {got} after {have}")]
    Stale {
        /// The sequence number of the announcement.
        got: u64,
        /// The last accepted sequence number.
        have: u64,
    },
    /// The neighbour announces more often than any honest one.
    #[error("filters too often")]
    TooOften,
    /// The filter has more ones than [`bloom::MAX_ONES`], so that it contains too many nodes. Its
    /// sequence number stays usable.
    #[error("a filter with {ones} ones")]
    TooFull {
        /// Number of ones in the filter.
        ones: u32,
    },
}

/// Counters of announcements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FilterCounters {
    /// Accepted announcements.
    pub(crate) accepted: u64,
    /// Refused: [`FilterError::UnknownPeer`].
    pub(crate) unknown_peer: u64,
    /// Refused: [`FilterError::HashCount`].
    pub(crate) hash_count: u64,
    /// Refused: [`FilterError::Stale`].
    pub(crate) stale: u64,
    /// Refused: [`FilterError::TooFull`].
    pub(crate) too_full: u64,
    /// Refused: [`FilterError::TooOften`].
    pub(crate) too_often: u64,
    /// Announcements of a changed filter.
    pub(crate) sent: u64,
    /// Repeated announcements.
    pub(crate) repeated: u64,
    /// Announcements that left a neighbour's filter out to stay below [`bloom::MAX_ONES`].
    pub(crate) cut: u64,
}

impl FilterCounters {
    /// Returns all counters with their names, in the order of the fields.
    pub(crate) fn named(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
        [
            ("filters_accepted", self.accepted),
            ("filters_unknown_peer", self.unknown_peer),
            ("filters_hash_count", self.hash_count),
            ("filters_stale", self.stale),
            ("filters_too_full", self.too_full),
            ("filters_too_often", self.too_often),
            ("filters_sent", self.sent),
            ("filters_repeated", self.repeated),
            ("filters_cut", self.cut),
        ]
        .into_iter()
    }
}

/// The filters of all neighbours. Times are ms on the caller's clock.
#[derive(Debug)]
pub(crate) struct Filters {
    peers: BTreeMap<NodeAddr, Peer>,
    tree: BTreeSet<NodeAddr>,
    /// The address of this node, and of those for which it announces.
    local: Bloom,
    me: NodeAddr,
    /// The sum of the tree neighbours' filters, from when it is needed until one of them changes.
    sum: Option<Sum>,
    /// The neighbours with an announcement to come, by [`Peer::due`].
    queue: BTreeSet<(u64, NodeAddr)>,
    /// The neighbours for which nothing has changed since their last announcement.
    calm: BTreeSet<NodeAddr>,
    /// The sequence number of the last announcement to any neighbour.
    sequence: u64,
    counters: FilterCounters,
}

impl Filters {
    /// Returns the filters of a node without neighbours.
    pub(crate) fn new(me: NodeAddr) -> Self {
        let mut local = Bloom::new();
        local.insert(&me);
        Self {
            peers: BTreeMap::new(),
            tree: BTreeSet::new(),
            local,
            me,
            sum: None,
            queue: BTreeSet::new(),
            calm: BTreeSet::new(),
            sequence: 0,
            counters: FilterCounters::default(),
        }
    }

    /// Handles a link that came up, or whose peer has restarted: neither end has received a filter
    /// from the other.
    pub(crate) fn peer_up(&mut self, now: u64, peer: NodeAddr) {
        self.forget(&peer);
        let new = Peer::new(self.rounds().next(now));
        self.queue.insert((new.due(), peer));
        self.peers.insert(peer, new);
        self.recount(now, &peer);
    }

    /// Handles a link that went down. Its filter is forgotten.
    pub(crate) fn peer_down(&mut self, now: u64, peer: &NodeAddr) {
        if self.forget(peer) {
            self.recount(now, peer);
        }
    }

    /// Sets whether the link with a neighbour is idle: it receives few repeats then.
    pub(crate) fn set_idle(&mut self, now: u64, peer: NodeAddr, idle: bool) {
        self.change_peer(&peer, |peer| peer.set_idle(now, idle));
    }

    fn forget(&mut self, peer: &NodeAddr) -> bool {
        let Some(known) = self.peers.remove(peer) else {
            return false;
        };
        self.queue.remove(&(known.due(), *peer));
        self.calm.remove(peer);
        true
    }

    /// Sets whether this neighbour is the parent or a child. A node that does not forward has
    /// neither, and then announces only itself.
    pub(crate) fn set_tree_peer(&mut self, now: u64, peer: NodeAddr, is_one: bool) {
        let changed = if is_one {
            self.tree.insert(peer)
        } else {
            self.tree.remove(&peer)
        };
        if changed {
            self.recount_all(now);
        }
    }

    /// Sets the parent and the children, all of them in each call.
    #[cfg(test)]
    pub(crate) fn set_tree_peers(&mut self, now: u64, tree: impl Iterator<Item = NodeAddr>) {
        let tree: BTreeSet<NodeAddr> = tree.collect();
        for peer in self.tree.union(&tree).copied().collect::<Vec<_>>() {
            self.set_tree_peer(now, peer, tree.contains(&peer));
        }
    }

    /// Sets the nodes for which this node announces besides itself, all of them in each call.
    #[cfg(test)]
    pub(crate) fn set_local(&mut self, now: u64, extra: impl Iterator<Item = NodeAddr>) {
        let mut local = Bloom::new();
        extra.chain([self.me]).for_each(|addr| local.insert(&addr));
        if self.local != local {
            self.local = local;
            self.recount_all(now);
        }
    }

    /// Handles an announcement of a neighbour. If it changes the filter, returns the previous one.
    ///
    /// # Errors
    ///
    /// [`FilterError`], each counted. Nothing changes then.
    pub(crate) fn handle_announce(
        &mut self,
        now: u64,
        from: &NodeAddr,
        announce: &FilterAnnounce<'_>,
    ) -> Result<Option<Was>, FilterError> {
        let accepted = self.accept(now, from, announce);
        let counter = match accepted {
            Ok(_) => &mut self.counters.accepted,
            Err(FilterError::UnknownPeer) => &mut self.counters.unknown_peer,
            Err(FilterError::HashCount(_)) => &mut self.counters.hash_count,
            Err(FilterError::Stale { .. }) => &mut self.counters.stale,
            Err(FilterError::TooFull { .. }) => &mut self.counters.too_full,
            Err(FilterError::TooOften) => &mut self.counters.too_often,
        };
        *counter += 1;
        if matches!(accepted, Ok(Some(_))) {
            self.recount(now, from);
        }
        accepted
    }

    /// Whether the neighbour may have a route. `false` is certain, once the neighbour has announced
    /// a filter.
    pub(crate) fn may_reach(&self, peer: &NodeAddr, dest: &NodeAddr) -> bool {
        self.filter_of(peer).is_some_and(|filter| filter.contains(dest))
    }

    /// Whether the parent may have a route. Every node that is not below this one is behind the
    /// parent, so the answer is yes if the parent's filter contains the node, and also if that
    /// filter is so full that a node may have been left out.
    pub(crate) fn parent_may_reach(&self, parent: &NodeAddr, dest: &NodeAddr) -> bool {
        let filter = self.filter_of(parent);
        filter.is_some_and(|filter| filter.may_be_cut() || filter.contains(dest))
    }

    /// Returns the neighbours that may have a route, tree neighbours or not, in the order of their
    /// addresses.
    #[cfg(test)]
    pub(crate) fn peers_that_may_reach(&self, dest: &NodeAddr) -> impl Iterator<Item = NodeAddr> + use<'_> {
        let probe = bloom::Probe::new(dest);
        let knows = move |peer: &Peer| peer.heard.as_ref().is_some_and(|heard| heard.bits.holds(&probe));
        let peers = self.peers.iter().filter(move |(_, peer)| knows(peer));
        peers.map(|(addr, _)| *addr)
    }

    /// Returns the last filter of a neighbour.
    pub(crate) fn filter_of(&self, peer: &NodeAddr) -> Option<&Bloom> {
        let heard = self.peers.get(peer)?.heard.as_ref();
        heard.map(|heard| &heard.bits)
    }

    /// Returns the next due announcement, as the body of link message 0x20, and its destination.
    /// After `None` it is called again at [`Filters::deadline`].
    pub(crate) fn poll_announce(&mut self, now: u64) -> Option<(NodeAddr, Vec<u8>)> {
        loop {
            let (_, addr) = self.queue.first().copied().filter(|(due, _)| *due <= now)?;
            let sum = self.sum.take().unwrap_or_else(|| self.count());
            let outgoing = self.outgoing(&sum, &addr);
            self.sum = Some(sum);
            let digest = outgoing.bits.digest();
            let Some(news) = self.change_peer(&addr, |peer| peer.tell(now, digest))? else {
                continue;
            };
            self.sequence += 1;
            self.counters.sent += u64::from(news);
            self.counters.repeated += u64::from(!news);
            self.counters.cut += u64::from(outgoing.cut);
            return Some((addr, body(self.sequence, outgoing.bits.bits())));
        }
    }

    /// Returns when [`Filters::poll_announce`] may have an announcement; `u64::MAX` for never.
    pub(crate) fn deadline(&self) -> u64 {
        self.queue.first().map_or(u64::MAX, |(due, _)| *due)
    }

    /// Returns the counters.
    pub(crate) fn counters(&self) -> FilterCounters {
        self.counters
    }

    /// Returns the memory in use, in bytes, approximately.
    pub(crate) fn bytes(&self) -> usize {
        let filters = 3 + self.peers.values().filter(|peer| peer.heard.is_some()).count();
        let peer = size_of::<(NodeAddr, Peer)>() + size_of::<(u64, NodeAddr)>() + size_of::<NodeAddr>();
        let entries = self.peers.len() * peer + self.tree.len() * size_of::<NodeAddr>();
        size_of::<Self>() + filters * FILTER_LEN + entries
    }

    /// Checks the invariants that hold after every call.
    ///
    /// # Errors
    ///
    /// The broken invariant, in words.
    pub(crate) fn check_invariants(&self) -> Result<(), String> {
        if !self.local.contains(&self.me) {
            return Err("we do not announce ourselves".into());
        }
        let count = self.count();
        if self.sum.as_ref().is_some_and(|sum| *sum != count) {
            return Err("the sum is not that of the tree neighbours".into());
        }
        let due = self.peers.iter().map(|(addr, peer)| (peer.due(), *addr));
        if self.queue != due.filter(|(due, _)| *due != u64::MAX).collect() {
            return Err("the queue is not that of the neighbours".into());
        }
        for (addr, peer) in &self.peers {
            if peer.heard.as_ref().is_some_and(|heard| heard.bits.is_too_full()) {
                return Err(format!("a filter of {addr} that says nothing is held"));
            }
            let news = peer
                .told
                .as_ref()
                .is_none_or(|told| told.digest != self.outgoing(&count, addr).bits.digest());
            if news && peer.review_at == u64::MAX {
                return Err(format!("{addr} will never hear what changed"));
            }
            if self.calm.contains(addr) != (peer.review_at == u64::MAX) {
                return Err(format!("{addr} is not reviewed after a change"));
            }
        }
        Ok(())
    }

    fn accept(&mut self, now: u64, from: &NodeAddr, announce: &FilterAnnounce<'_>) -> Result<Option<Was>, FilterError> {
        let peer = self.peers.get_mut(from).ok_or(FilterError::UnknownPeer)?;
        if announce.hash_count != HASHES {
            return Err(FilterError::HashCount(announce.hash_count));
        }
        let (got, have) = (announce.sequence, peer.heard.as_ref().map_or(0, |heard| heard.sequence));
        if got <= have {
            return Err(FilterError::Stale { got, have });
        }
        if peer.quota.take(RATE, now, 1) == 0 {
            return Err(FilterError::TooOften);
        }
        let bits = Bloom::from_bits(announce.bits);
        if bits.is_too_full() {
            return Err(FilterError::TooFull { ones: bits.ones() });
        }
        let same = peer.heard.as_ref().is_some_and(|heard| heard.bits == bits);
        let was = peer.heard.replace(Heard { bits, sequence: got });
        Ok((!same).then(|| Was(was.map(|heard| heard.bits))))
    }

    /// Handles a change of the filter of `peer`, or of its existence.
    fn recount(&mut self, now: u64, peer: &NodeAddr) {
        if self.tree.contains(peer) {
            self.recount_all(now);
        }
    }

    fn recount_all(&mut self, now: u64) {
        self.sum = None;
        self.review(now);
    }

    fn review(&mut self, now: u64) {
        let rounds = self.rounds();
        for addr in std::mem::take(&mut self.calm) {
            self.change_peer(&addr, |peer| peer.review(now, rounds));
        }
    }

    fn rounds(&self) -> Rounds {
        Rounds::of(self.peers.len())
    }

    /// Changes a neighbour, and keeps its place in the queue.
    fn change_peer<R>(&mut self, addr: &NodeAddr, change: impl FnOnce(&mut Peer) -> R) -> Option<R> {
        let peer = self.peers.get_mut(addr)?;
        let before = peer.due();
        let result = change(peer);
        let due = peer.due();
        if due != before {
            self.queue.remove(&(before, *addr));
            if due != u64::MAX {
                self.queue.insert((due, *addr));
            }
        }
        if peer.review_at == u64::MAX {
            self.calm.insert(*addr);
        }
        Some(result)
    }

    fn count(&self) -> Sum {
        let tree = || self.tree.iter().filter_map(|addr| Some((addr, self.filter_of(addr)?)));
        let mut sum = Sum {
            all: Tally::of(tree().map(|(_, filter)| filter)),
            fit: None,
        };
        let mut all = sum.all.all();
        all.merge(&self.local);
        if all.is_too_full() {
            sum.fit = Some(self.fit(tree()));
        }
        sum
    }

    /// Chooses the filters that an announcement contains if all of them are too full for one: the
    /// emptiest first, as long as they fit.
    fn fit<'a>(&self, tree: impl Iterator<Item = (&'a NodeAddr, &'a Bloom)>) -> Fit {
        let mut emptiest: Vec<_> = tree.collect();
        emptiest.sort_by_cached_key(|(_, filter)| filter.ones());
        let (mut union, mut chosen, mut left_out) = (self.local.clone(), BTreeSet::new(), Vec::new());
        let mut filters = Vec::new();
        for (addr, filter) in emptiest {
            if union.merge_if_it_fits(filter) {
                chosen.insert(*addr);
                filters.push(filter);
            } else if left_out.len() < REFILL {
                left_out.push(*addr);
            }
        }
        Fit {
            tally: Tally::of(filters.into_iter()),
            chosen,
            left_out,
        }
    }

    /// Returns the filter that a neighbour receives.
    fn outgoing(&self, sum: &Sum, to: &NodeAddr) -> Outgoing {
        let own = self.filter_of(to).filter(|_| self.tree.contains(to));
        let mut bits = sum.all.except(own);
        bits.merge(&self.local);
        match &sum.fit {
            Some(fit) if bits.is_too_full() => self.outgoing_cut(fit, to, own),
            _ => Outgoing { bits, cut: false },
        }
    }

    /// Returns the filter that a neighbour receives if the whole union is too full. If its own
    /// filter was among the chosen ones, others may fit instead.
    fn outgoing_cut(&self, fit: &Fit, to: &NodeAddr, own: Option<&Bloom>) -> Outgoing {
        let own = own.filter(|_| fit.chosen.contains(to));
        let mut bits = fit.tally.except(own);
        bits.merge(&self.local);
        if own.is_some_and(Bloom::is_considerable) {
            for filter in fit.left_out.iter().filter_map(|addr| self.filter_of(addr)) {
                bits.merge_if_it_fits(filter);
            }
        }
        Outgoing { bits, cut: true }
    }
}

/// What the filters of the tree neighbours add up to.
#[derive(Debug, PartialEq, Eq)]
struct Sum {
    all: Tally,
    /// Some of them, if all together are too full.
    fit: Option<Fit>,
}

/// The filters that fit one announcement.
#[derive(Debug, PartialEq, Eq)]
struct Fit {
    tally: Tally,
    chosen: BTreeSet<NodeAddr>,
    /// The emptiest of the others.
    left_out: Vec<NodeAddr>,
}

/// The previous filter of a neighbour.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Was(Option<Bloom>);

impl Was {
    /// Whether the neighbour might have had a route.
    pub(crate) fn may_reach(&self, dest: &NodeAddr) -> bool {
        self.0.as_ref().is_some_and(|bits| bits.contains(dest))
    }
}

struct Outgoing {
    bits: Bloom,
    /// Whether a filter was left out.
    cut: bool,
}

#[derive(Debug)]
struct Peer {
    heard: Option<Heard>,
    told: Option<Told>,
    /// When to check whether this neighbour's filter has changed; `u64::MAX` if nothing has changed
    /// since.
    review_at: u64,
    /// The announcements that it may still send.
    quota: Bucket,
    /// Since when the link is not idle; `u64::MAX` while both ends send as little as they can.
    busy_since: u64,
}

/// The last announcement of a neighbour.
#[derive(Debug)]
struct Heard {
    bits: Bloom,
    sequence: u64,
}

/// The last announcement to a neighbour.
#[derive(Debug)]
struct Told {
    digest: [u8; 32],
    at: u64,
    /// Time until the next repeat.
    pause: u64,
}

impl Peer {
    /// Returns the state of a neighbour whose first announcement is due at that time.
    fn new(at: u64) -> Self {
        Self {
            heard: None,
            told: None,
            review_at: at,
            quota: Bucket::new(RATE, at),
            busy_since: at,
        }
    }

    /// A repeat that was postponed because the link was idle is due when it has been in use for
    /// [`MAX_REPEAT`], so that new keys or a message now and then cause none.
    fn set_idle(&mut self, now: u64, idle: bool) {
        self.busy_since = if idle { u64::MAX } else { now };
    }

    fn review(&mut self, now: u64, rounds: Rounds) {
        let earliest = self.told.as_ref().map_or(0, |told| told.at.saturating_add(MIN_PAUSE));
        self.review_at = self.review_at.min(rounds.next(earliest.max(now)));
    }

    fn repeat_at(&self) -> u64 {
        let Some(told) = &self.told else { return u64::MAX };
        let busy = self.busy_since.max(told.at).saturating_add(MAX_REPEAT);
        told.at.saturating_add(told.pause).min(busy)
    }

    fn due(&self) -> u64 {
        self.review_at.min(self.repeat_at())
    }

    /// Records an announcement of the filter with this digest, if one is needed now, and returns
    /// whether the filter is new.
    fn tell(&mut self, now: u64, digest: [u8; 32]) -> Option<bool> {
        self.review_at = u64::MAX;
        let same = self.told.as_ref().filter(|told| told.digest == digest);
        if same.is_some() && now < self.repeat_at() {
            return None;
        }
        let news = same.is_none();
        let most = match self.busy_since {
            u64::MAX => MAX_IDLE_REPEAT,
            _ => MAX_REPEAT,
        };
        let pause = same.map_or(FIRST_REPEAT, |told| told.pause.saturating_mul(2).min(most));
        self.told = Some(Told { digest, at: now, pause });
        Some(news)
    }
}

/// Returns an announcement as it follows the message type.
fn body(sequence: u64, bits: &[u8; FILTER_LEN]) -> Vec<u8> {
    let announce = FilterAnnounce {
        sequence,
        hash_count: HASHES,
        bits,
    };
    let mut body = vec![0; FilterAnnounce::LEN];
    let written = announce.emit(&mut body);
    debug_assert_eq!(written, Ok(FilterAnnounce::LEN));
    body
}
