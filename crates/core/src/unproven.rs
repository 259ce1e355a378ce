//! The budget of session handshake messages that prove nothing: Diffie-Hellman operations, shared
//! among the links that the messages arrive on.
//!
//! The source of such a message can be forged, so no budget depends on it. What cannot be forged is
//! the link that the message was received over. The peer's own link has a share that no other node
//! can use. Links over which sealed frames of the session were received have a pool of their own,
//! and so have all others. In the latter pool no link gets everything. A link with few such
//! messages is served even if the pool is empty.

use std::collections::BTreeMap;

use rand_core::CryptoRng;
use weft_contract::{Bucket, LinkId, Rate};

/// Maximum number of Diffie-Hellman operations that one message costs: those with the static and
/// the ephemeral key, and a new key pair.
const DIFFIE_HELLMANS: u64 = 3;
/// The burst, in seconds of the rate. A flood begins with the bursts that nodes on the path forward
/// at once. Half of this burst has to remain then, so that nothing is chosen by lot yet.
const BURST: u64 = 4;
/// Messages of the peer over its own link: it starts at most one handshake a second.
const OWN: Rate = Rate {
    per_second: 4,
    burst: 16,
};
/// Messages of one link that are served even if its pool is empty.
const RESERVE: Rate = Rate {
    per_second: 2,
    burst: 4,
};
/// Number of half-open handshakes that a SessionMsg3 may be tried with, for each Diffie-Hellman
/// operation: a trial opens 49 sealed bytes.
const TRIALS: u64 = 64;
/// Number of links above which those whose budget has filled up again are forgotten.
const MANY: usize = 16;

/// The kind of link over which a handshake message was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// The link with the peer itself, on which no other node can send.
    Own,
    /// The link over which frames of the session were received, or over which this node's own
    /// message was sent.
    Proven,
    /// Any other link.
    Other,
}

/// The budget of a node. Times are ms on the caller's clock.
#[derive(Debug)]
pub(crate) struct Unproven {
    /// Messages a second in each of the two pools.
    pool: Rate,
    proven: Bucket,
    others: Bucket,
    trials: Bucket,
    own: BTreeMap<LinkId, Bucket>,
    links: BTreeMap<LinkId, Share>,
    refused: u64,
}

/// The budget of one link.
#[derive(Debug)]
struct Share {
    reserve: Bucket,
    other: Bucket,
}

impl Unproven {
    /// Creates a budget of `per_second` Diffie-Hellman operations a second.
    pub(crate) fn new(per_second: u64) -> Self {
        let pool = per_second / DIFFIE_HELLMANS / 2;
        let pool = Rate {
            per_second: pool.max(1),
            burst: (pool * BURST).max(1),
        };
        Self {
            pool,
            proven: Bucket::new(pool, 0),
            others: Bucket::new(pool, 0),
            trials: Bucket::new(trials(pool), 0),
            own: BTreeMap::new(),
            links: BTreeMap::new(),
            refused: 0,
        }
    }

    /// Whether a message that was received over this link is worth its Diffie-Hellman operations.
    /// If there are too many, some are chosen by lot, see [`Bucket::take_by_lot`].
    pub(crate) fn admits(&mut self, now: u64, link: LinkId, arrival: Arrival, rng: &mut dyn CryptoRng) -> bool {
        let admitted = match arrival {
            Arrival::Own => self.admits_own(now, link),
            Arrival::Proven | Arrival::Other => self.admits_other(now, link, arrival, rng),
        };
        self.refused += u64::from(!admitted);
        admitted
    }

    fn admits_own(&mut self, now: u64, link: LinkId) -> bool {
        if self.own.len() >= MANY && !self.own.contains_key(&link) {
            self.own.retain(|_, own| !own.is_full(OWN, now));
        }
        let own = self.own.entry(link).or_insert_with(|| Bucket::new(OWN, now));
        own.take(OWN, now, 1) == 1
    }

    fn admits_other(&mut self, now: u64, link: LinkId, arrival: Arrival, rng: &mut dyn CryptoRng) -> bool {
        let (pool, share) = (self.pool, share(self.pool));
        if self.links.len() >= MANY && !self.links.contains_key(&link) {
            self.links.retain(|_, kept| !kept.is_full(share, now));
        }
        let kept = self.links.entry(link).or_insert_with(|| Share::new(share, now));
        let mut reserve = || kept.reserve.take(RESERVE, now, 1) == 1;
        match arrival {
            Arrival::Proven => self.proven.take_by_lot(pool, now, rng.next_u32()) || reserve(),
            Arrival::Own | Arrival::Other => {
                let of_link = kept.other.take_by_lot(share, now, rng.next_u32());
                of_link && self.others.take_by_lot(pool, now, rng.next_u32()) || reserve()
            }
        }
    }

    /// Returns with how many of `wanted` half-open handshakes a SessionMsg3 may be tried.
    pub(crate) fn trials(&mut self, now: u64, arrival: Arrival, wanted: usize) -> usize {
        match arrival {
            Arrival::Own => wanted,
            Arrival::Proven | Arrival::Other => self.trials.take(trials(self.pool), now, wanted),
        }
    }

    /// Returns the maximum number of messages that can be admitted within `span` ms with this
    /// number of links.
    pub(crate) fn most_in(&self, span: u64, links: usize) -> usize {
        let of = |rate: Rate| (rate.burst + rate.per_second * span.div_ceil(1_000)) as usize;
        2 * of(self.pool) + (links + MANY) * (of(OWN) + of(RESERVE))
    }

    /// Returns the number of messages that were not read.
    pub(crate) fn refused(&self) -> u64 {
        self.refused
    }
}

impl Share {
    fn new(share: Rate, now: u64) -> Self {
        Self {
            reserve: Bucket::new(RESERVE, now),
            other: Bucket::new(share, now),
        }
    }

    fn is_full(&self, share: Rate, now: u64) -> bool {
        self.reserve.is_full(RESERVE, now) && self.other.is_full(share, now)
    }
}

/// Returns the share of one link in the pool of links that have proven nothing.
fn share(pool: Rate) -> Rate {
    Rate {
        per_second: (pool.per_second / 2).max(1),
        burst: (pool.burst / 2).max(1),
    }
}

fn trials(pool: Rate) -> Rate {
    let per_second = pool.per_second * 2 * DIFFIE_HELLMANS * TRIALS;
    Rate {
        per_second,
        burst: per_second,
    }
}

#[cfg(test)]
mod tests {
    use rand_chacha::ChaCha20Rng;
    use rand_core::SeedableRng as _;

    use super::*;

    fn rng() -> ChaCha20Rng {
        ChaCha20Rng::seed_from_u64(1)
    }

    /// Returns how many of 5,000 messages a second for `seconds` are served.
    fn served(budget: &mut Unproven, link: u32, arrival: Arrival, seconds: u64) -> u64 {
        let (flood, mut rng) = (0..5_000 * seconds, rng());
        let admitted = flood.filter(|n| budget.admits(10_000 + n / 5, LinkId(link), arrival, &mut rng));
        admitted.count() as u64
    }

    #[test]
    fn floods_from_everywhere_cost_no_more_than_the_budget() {
        let mut budget = Unproven::new(400);
        let seconds = 10;
        let (mut all, links, mut rng) = (0, 20, rng());
        for n in 0..5_000 * seconds {
            for link in 0..links {
                let arrival = [Arrival::Proven, Arrival::Other][(link % 2) as usize];
                all += u64::from(budget.admits(10_000 + n / 5, LinkId(link), arrival, &mut rng));
            }
        }
        let reserves = u64::from(links) * (RESERVE.per_second * seconds + RESERVE.burst);
        let most = 400 / DIFFIE_HELLMANS * (seconds + BURST) + reserves;
        assert!(all <= most, "{all} of at most {most}");
        assert!(budget.refused() > 900_000);
    }

    #[test]
    fn no_flood_takes_the_share_of_an_own_link_or_of_a_quiet_one() {
        let mut budget = Unproven::new(400);
        for link in 1..50 {
            served(&mut budget, link, Arrival::Other, 1);
            served(&mut budget, link, Arrival::Proven, 1);
        }
        // A peer whose own link has such floods too, because a node older than this rule relays
        // them.
        assert!(budget.admits(11_000, LinkId(3), Arrival::Own, &mut rng()));
        assert!(budget.admits(11_000, LinkId(99), Arrival::Other, &mut rng()));
        assert!(budget.admits(11_000, LinkId(98), Arrival::Proven, &mut rng()));
    }

    #[test]
    fn one_link_leaves_half_of_its_pool_to_others() {
        let mut budget = Unproven::new(400);
        let flood = served(&mut budget, 1, Arrival::Other, 10);
        assert!((300..=33 * (10 + BURST) + 24).contains(&flood), "{flood}");
        let other = served(&mut budget, 2, Arrival::Other, 1);
        assert!(other >= 50, "{other}");
    }

    /// So many links appear at once, and then one a second.
    const AT_ONCE: u32 = 2 * MANY as u32;

    #[test]
    fn shares_of_links_that_are_gone_are_forgotten() {
        let mut budget = Unproven::new(400);
        for link in 0..10_000_u32 {
            let now = u64::from(link.saturating_sub(AT_ONCE)) * 1_000;
            budget.admits(now, LinkId(link), Arrival::Other, &mut rng());
        }
        assert!(budget.links.len() <= MANY, "{}", budget.links.len());
    }

    #[test]
    fn a_small_budget_still_serves() {
        let mut budget = Unproven::new(0);
        assert!(budget.admits(1_000, LinkId(1), Arrival::Proven, &mut rng()));
        assert!(budget.admits(1_000, LinkId(1), Arrival::Other, &mut rng()));
        assert_eq!(budget.trials(1_000, Arrival::Own, 5), 5);
        assert!(budget.trials(1_000, Arrival::Other, 5) > 0);
    }

    #[test]
    fn an_own_link_is_served_at_its_rate() {
        let mut budget = Unproven::new(400);
        let served = served(&mut budget, 1, Arrival::Own, 10);
        assert!(
            (OWN.per_second * 9 + OWN.burst..=OWN.per_second * 10 + OWN.burst).contains(&served),
            "{served}"
        );
        assert_eq!(budget.refused(), 50_000 - served);
    }

    #[test]
    fn shares_of_own_links_that_are_gone_are_forgotten() {
        let mut budget = Unproven::new(400);
        for link in 0..10_000_u32 {
            let now = u64::from(link.saturating_sub(AT_ONCE)) * 1_000;
            budget.admits(now, LinkId(link), Arrival::Own, &mut rng());
        }
        assert!(budget.own.len() <= MANY, "{}", budget.own.len());
    }

    #[test]
    fn many_links_do_not_renew_what_each_has_used_up() {
        let (mut budget, mut rng) = (Unproven::new(400), rng());
        let mut round = |arrival, tries: u64| {
            let asked = (0..100 * tries).map(|n| LinkId((n % 100) as u32));
            asked
                .filter(|link| budget.admits(10_000, *link, arrival, &mut rng))
                .count() as u64
        };
        let proven = round(Arrival::Proven, 100);
        assert!(proven >= 100 * RESERVE.burst, "{proven}");
        let own = round(Arrival::Own, 100);
        assert_eq!(own, 100 * OWN.burst);
        // Spends the reserves, whatever else the links send.
        round(Arrival::Other, 100);
        assert_eq!(
            [
                round(Arrival::Proven, 1),
                round(Arrival::Own, 1),
                round(Arrival::Other, 1)
            ],
            [0; 3]
        );
    }

    #[test]
    fn a_link_that_has_used_up_its_share_of_the_pool_is_remembered() {
        let share = share(Unproven::new(400).pool);
        let mut used = Share::new(share, 0);
        assert!(used.is_full(share, 0));
        used.other.take(share, 0, 1);
        assert!(!used.is_full(share, 0));
        let mut used = Share::new(share, 0);
        used.reserve.take(RESERVE, 0, 1);
        assert!(!used.is_full(share, 0));
    }

    #[test]
    fn last_messages_are_tried_with_a_bounded_number_of_handshakes() {
        let mut budget = Unproven::new(400);
        // 66 messages a second in each of two pools, three Diffie-Hellman operations each.
        let second = 66 * 2 * 3 * TRIALS as usize;
        assert_eq!(budget.trials(0, Arrival::Other, usize::MAX), second);
        assert_eq!(budget.trials(500, Arrival::Proven, usize::MAX), second / 2);
        assert_eq!(budget.trials(500, Arrival::Own, 1_000), 1_000);
    }

    #[test]
    fn the_most_that_can_be_admitted_is_what_pools_and_links_have() {
        let pools = 2 * (66 * BURST + 66 * 2);
        let each = OWN.burst + OWN.per_second * 2 + RESERVE.burst + RESERVE.per_second * 2;
        let most = pools + (10 + MANY as u64) * each;
        assert_eq!(Unproven::new(400).most_in(1_001, 10) as u64, most);
    }
}
