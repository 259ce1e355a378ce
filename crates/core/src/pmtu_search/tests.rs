use std::collections::BTreeMap;

use proptest::prelude::*;
use rand_chacha::ChaCha20Rng;
use rand_core::SeedableRng as _;

use super::*;

const RAISE_EVERY: u64 = 600_000;

/// A search on a path that silently drops what is too large for it.
struct Bench {
    now: u64,
    search: PmtuSearch,
    takes: u16,
    delay: u64,
    /// Per mille, in each direction.
    loss: u32,
    rng: ChaCha20Rng,
    /// Large frames are sent all the time.
    busy: bool,
    answers: BTreeMap<(u64, u64), u16>,
    sent: Vec<(u64, u16)>,
    changes: Vec<(u64, u16, Change)>,
    settled: u32,
    narrow: Vec<bool>,
}

impl Bench {
    fn new(ceiling: u16, takes: u16, delay: u64) -> Self {
        Self {
            now: 1_000,
            search: PmtuSearch::new(1_000, ceiling, RAISE_EVERY),
            takes,
            delay,
            loss: 0,
            rng: ChaCha20Rng::seed_from_u64(u64::from(takes)),
            busy: false,
            answers: BTreeMap::new(),
            sent: Vec::new(),
            changes: Vec::new(),
            settled: 0,
            narrow: Vec::new(),
        }
    }

    fn large_tx(&self) -> u64 {
        if self.busy { u64::MAX } else { 0 }
    }

    fn lost(&mut self) -> bool {
        self.loss > 0 && self.rng.next_u32() % 1_000 < self.loss
    }

    fn run(&mut self, ms: u64) {
        let end = self.now + ms;
        let mut turns = 0;
        loop {
            let mut effects = Vec::new();
            while let Some(entry) = self.answers.first_entry().filter(|e| e.key().0 <= self.now) {
                let id = entry.remove();
                self.search.handle_answer(self.now, id, &mut effects);
            }
            self.search.handle_timeout(self.now, self.large_tx(), &mut effects);
            effects.into_iter().for_each(|effect| self.take(effect));
            let answer = self.answers.first_key_value().map_or(u64::MAX, |((at, _), _)| *at);
            let next = self.search.deadline(self.large_tx()).min(answer);
            turns = if next > self.now { 0 } else { turns + 1 };
            assert!(turns < 100, "it stays due");
            if next > end {
                break;
            }
            self.now = next.max(self.now);
        }
        self.now = end;
    }

    fn take(&mut self, effect: Effect) {
        match effect {
            Effect::Probe { id, size } => {
                self.sent.push((self.now, size));
                if size <= self.takes && !self.lost() && !self.lost() {
                    let at = self.now + 2 * self.delay;
                    self.answers.insert((at, self.sent.len() as u64), id);
                }
            }
            Effect::Size(size, change) => {
                assert_eq!(size, self.search.current());
                self.changes.push((self.now, size, change));
            }
            Effect::Settled => self.settled += 1,
            Effect::Narrow(narrow) => self.narrow.push(narrow),
        }
    }

    /// Returns the largest size that a search can find on this path.
    fn best(&self) -> u16 {
        let ceiling = self.search.ceiling;
        let fits = |size: &u16| *size <= self.takes.min(ceiling);
        let sizes = SIZES.into_iter().chain([SURE_PAYLOAD.min(ceiling), ceiling]);
        sizes.filter(fits).max().unwrap_or(0)
    }
}

#[test]
fn a_path_that_takes_all_is_known_after_a_round_trip() {
    let mut bench = Bench::new(1_472, 1_472, 10);
    assert_eq!(
        (bench.search.current(), bench.search.is_probed()),
        (SURE_PAYLOAD, false)
    );
    bench.run(25);
    assert_eq!((bench.search.current(), bench.search.is_probed()), (1_472, true));
    assert_eq!(bench.sent.len(), 2);
    bench.run(300_000);
    assert_eq!((bench.sent.len(), bench.settled), (2, 1), "an idle path is left alone");
}

#[test]
fn a_smaller_path_is_found_by_halves_within_a_second() {
    for (takes, found) in [(1_471, 1_464), (1_300, 1_292), (1_240, SURE_PAYLOAD)] {
        let mut bench = Bench::new(1_472, takes, 5);
        bench.run(1_500);
        assert_eq!((bench.search.current(), bench.settled), (found, 1), "{takes}");
        assert!(bench.search.is_probed());
    }
}

#[test]
fn nothing_above_the_ceiling_is_tried() {
    let mut bench = Bench::new(1_300, 9_000, 5);
    bench.run(1_300_000);
    assert_eq!(bench.search.current(), 1_300);
    assert!(bench.sent.iter().all(|(_, size)| *size <= 1_300));
    let mut bench = Bench::new(1_200, 9_000, 5);
    bench.run(1_300_000);
    assert_eq!(
        (bench.search.current(), bench.sent.len()),
        (1_200, 2),
        "to know that it passes"
    );
}

#[test]
fn a_path_below_the_sure_size_is_narrow_until_it_takes_it() {
    let mut bench = Bench::new(1_472, 972, 5);
    bench.run(5_000);
    assert_eq!(
        (
            bench.search.is_narrow(),
            bench.search.is_probed(),
            bench.search.current()
        ),
        (true, false, SURE_PAYLOAD)
    );
    bench.run(3_600_000);
    assert_eq!(bench.narrow, [true], "told once");
    bench.takes = 1_300;
    bench.run(NARROW_AGAIN + 5_000);
    assert_eq!(
        (bench.narrow.as_slice(), bench.search.current()),
        ([true, false].as_slice(), 1_292)
    );
    assert!(bench.search.is_probed());
}

#[test]
fn a_path_that_gets_narrow_under_load_is_noticed_within_3_s() {
    for before in [1_472, SURE_PAYLOAD] {
        let mut bench = Bench::new(1_472, before, 10);
        bench.busy = true;
        bench.run(10_000);
        assert_eq!((bench.search.current(), bench.search.is_probed()), (before, true));
        bench.takes = 972;
        bench.run(3_000);
        assert_eq!(bench.narrow, [true], "{before}");
        let sent = bench.sent.len();
        bench.run(NARROW_AGAIN - 4_000);
        assert_eq!(bench.sent.len(), sent, "it is left alone");
    }
}

#[test]
fn an_outage_does_not_make_a_path_narrow() {
    let mut bench = Bench::new(1_472, 1_240, 5);
    bench.loss = 1_000;
    bench.run(60_000);
    bench.loss = 0;
    bench.run(20_000);
    assert!(bench.narrow.is_empty() && bench.search.is_probed());
}

#[test]
fn a_path_that_shrinks_under_load_is_noticed_within_3_s() {
    let mut bench = Bench::new(1_472, 1_472, 10);
    bench.busy = true;
    bench.run(10_000);
    assert_eq!(bench.changes.len(), 1);
    bench.takes = 1_372;
    let shrunk = bench.now;
    bench.run(10_000);
    let (at, size, change) = bench.changes[1];
    assert_eq!((size, change), (SURE_PAYLOAD, Change::BlackHole));
    assert!(at - shrunk < 3_000, "{}", at - shrunk);
    assert_eq!(bench.search.current(), 1_372);
}

#[test]
fn a_path_that_grows_is_used_after_a_while() {
    let mut bench = Bench::new(1_472, 1_300, 10);
    bench.run(10_000);
    assert_eq!(bench.search.current(), 1_292);
    bench.takes = 1_472;
    bench.run(RAISE_EVERY);
    assert_eq!(bench.search.current(), 1_472);
    // If the path has not grown, one size is tried, and no more.
    let mut bench = Bench::new(1_472, 1_300, 10);
    bench.run(10_000);
    let before = bench.sent.len();
    bench.run(RAISE_EVERY);
    assert_eq!(bench.sent.len() - before, 2 * MAX_PROBES as usize);
}

#[test]
fn an_outage_is_no_black_hole() {
    let mut bench = Bench::new(1_472, 1_472, 10);
    bench.busy = true;
    bench.run(5_000);
    bench.loss = 1_000;
    bench.run(60_000);
    assert_eq!(bench.search.current(), 1_472);
    bench.loss = 0;
    bench.run(10_000);
    assert_eq!(bench.changes.len(), 1, "{:?}", bench.changes);
}

#[test]
fn a_new_address_of_ours_puts_the_size_in_doubt() {
    let mut bench = Bench::new(1_472, 1_472, 10);
    bench.run(5_000);
    bench.takes = 1_400;
    bench.search.handle_network_change();
    bench.run(5_000);
    assert_eq!(bench.search.current(), 1_392);
    bench.takes = 1_472;
    bench.search.handle_network_change();
    bench.run(5_000);
    assert_eq!(bench.search.current(), 1_472);
}

#[test]
fn an_answer_to_nothing_changes_nothing() {
    let mut bench = Bench::new(1_472, 1_300, 10);
    bench.run(5_000);
    let (mut effects, before) = (Vec::new(), bench.search.current());
    for id in 0..=u16::MAX {
        bench.search.handle_answer(bench.now, id, &mut effects);
    }
    assert_eq!((effects, bench.search.current()), (vec![], before));
}

proptest! {
    /// The size of any path is found, and found again after each change, with loss and with delay,
    /// and probing ends.
    #[test]
    fn any_path_is_found(
        ceiling in 1_200_u16..1_600, paths in prop::collection::vec(1_232_u16..1_600, 1..4),
        delay in 0_u64..300, loss in 0_u32..30, seed: u64,
    ) {
        let mut bench = Bench::new(ceiling, paths[0], delay);
        bench.rng = ChaCha20Rng::seed_from_u64(seed);
        for takes in paths {
            (bench.takes, bench.loss, bench.busy) = (takes, loss, true);
            bench.run(RAISE_EVERY + 60_000);
            // Random loss may cost a step, for a while.
            bench.loss = 0;
            bench.run(2 * RAISE_EVERY);
            prop_assert_eq!(bench.search.current(), bench.best());
            (bench.busy, bench.answers) = (false, BTreeMap::new());
            let before = bench.sent.len();
            bench.run(RAISE_EVERY);
            prop_assert!(bench.sent.len() - before <= 4 * MAX_PROBES as usize);
        }
        prop_assert!(bench.sent.iter().all(|(_, size)| *size <= ceiling));
    }

    /// Forged answers, at any time: never a size that was not tried, never a panic.
    #[test]
    fn any_answers(ceiling in 1_200_u16..9_000, events in prop::collection::vec((any::<u16>(), 0_u64..700_000, any::<bool>()), 0..100)) {
        let (mut search, mut now, mut tried) = (PmtuSearch::new(0, ceiling, RAISE_EVERY), 0, vec![SURE_PAYLOAD.min(ceiling)]);
        for (id, pause, large) in events {
            now += pause;
            let mut effects = Vec::new();
            search.handle_timeout(now, if large { now } else { 0 }, &mut effects);
            search.handle_answer(now, id % 16, &mut effects);
            for effect in effects {
                match effect {
                    Effect::Probe { size, .. } => tried.push(size),
                    Effect::Size(size, _) => prop_assert!(tried.contains(&size)),
                    Effect::Settled | Effect::Narrow(_) => {}
                }
            }
            prop_assert!(search.current() <= ceiling);
        }
    }
}
