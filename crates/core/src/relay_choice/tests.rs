use std::collections::BTreeMap;

use super::*;

const USED: LinkId = LinkId(1);
const OTHER: LinkId = LinkId(2);
const THIRD: LinkId = LinkId(3);

/// A choice between paths with these round trips in ms. A path without one answers no probe.
struct Bench {
    choice: RelayChoice,
    now: u64,
    paths: BTreeMap<LinkId, Option<u64>>,
    /// Every nth probe over this link is lost.
    lossy: Option<(LinkId, u32)>,
    answers: Vec<(u64, u32)>,
    probes: BTreeMap<LinkId, u32>,
    moves: Vec<(u64, LinkId)>,
    favours: usize,
}

impl Bench {
    fn new(paths: &[(LinkId, Option<u64>)]) -> Self {
        Self {
            choice: RelayChoice::new(0, USED),
            now: 0,
            paths: paths.iter().copied().collect(),
            lossy: None,
            answers: Vec::new(),
            probes: BTreeMap::new(),
            moves: Vec::new(),
            favours: 0,
        }
    }

    fn others(&self) -> Vec<LinkId> {
        let used = self.choice.used;
        self.paths.keys().copied().filter(|link| *link != used).collect()
    }

    fn run(&mut self, until: u64) {
        while self.now < until {
            self.now += 1;
            let now = self.now;
            let (due, later) = self.answers.drain(..).partition(|(at, _)| *at <= now);
            self.answers = later;
            for (_, number) in Vec::<(u64, u32)>::from_iter(due) {
                self.choice.handle_answer(now, number);
            }
            let (others, mut effects) = (self.others(), Vec::new());
            self.choice.handle_timeout(now, 0, || others, &mut effects);
            for effect in effects {
                self.carry_out(effect);
            }
        }
    }

    fn carry_out(&mut self, effect: Effect) {
        match effect {
            Effect::Probe { link, number, .. } => {
                let sent = self.probes.entry(link).or_default();
                *sent += 1;
                let lost = self
                    .lossy
                    .is_some_and(|(lossy, nth)| lossy == link && sent.is_multiple_of(nth));
                if let Some(rtt) = self.paths[&link].filter(|_| !lost) {
                    self.answers.push((self.now + rtt, number));
                }
            }
            Effect::Favour(_) => self.favours += 1,
            Effect::Move(link) => self.moves.push((self.now, link)),
        }
    }

    fn targets(&self) -> Vec<LinkId> {
        self.moves.iter().map(|(_, link)| *link).collect()
    }
}

#[test]
fn the_faster_path_is_taken_after_two_rounds() {
    let mut bench = Bench::new(&[(USED, Some(100)), (OTHER, Some(40)), (THIRD, Some(60))]);
    bench.run(60_000);
    assert_eq!(bench.targets(), [OTHER]);
    assert!(bench.moves[0].0 < FIRST + CONFIRM + 4_000, "{:?}", bench.moves);
}

#[test]
fn a_small_difference_changes_nothing() {
    for (used, other) in [(100, 80), (3, 1), (20, 15), (0, 0)] {
        let mut bench = Bench::new(&[(USED, Some(used)), (OTHER, Some(other))]);
        bench.run(3_600_000);
        assert_eq!(bench.targets(), [], "{used} and {other} ms");
        // 4 rounds until the pause is the longest, and one in 4 minutes then.
        assert!(bench.probes[&OTHER] < 20 * TRIES, "{:?}", bench.probes);
    }
}

#[test]
fn a_path_without_answers_gets_no_packets() {
    let mut bench = Bench::new(&[(USED, Some(500)), (OTHER, None)]);
    bench.run(3_600_000);
    assert_eq!((bench.targets(), bench.favours), (vec![], 0));
}

#[test]
fn a_path_that_loses_is_left_for_one_that_does_not() {
    let mut bench = Bench::new(&[(USED, Some(30)), (OTHER, Some(30))]);
    bench.lossy = Some((USED, 3));
    bench.run(30_000);
    assert_eq!(bench.targets(), [OTHER]);
    // The loss of packets counts as well, although probes pass.
    let mut bench = Bench::new(&[(USED, Some(30)), (OTHER, Some(30))]);
    let mut moves = Vec::new();
    for now in 0..30_000 {
        let (others, mut effects) = (bench.others(), Vec::new());
        let loss = if bench.choice.used == USED { 250 } else { 0 };
        bench.choice.handle_timeout(now, loss, || others, &mut effects);
        for effect in effects {
            match effect {
                Effect::Probe { number, .. } => bench.choice.handle_answer(now, number),
                Effect::Move(link) => moves.push(link),
                Effect::Favour(_) => {}
            }
        }
    }
    assert_eq!(moves, [OTHER]);
}

#[test]
fn one_round_is_not_enough() {
    let mut bench = Bench::new(&[(USED, Some(100)), (OTHER, Some(40))]);
    while bench.favours == 0 {
        bench.run(bench.now + 1);
    }
    bench.paths.insert(USED, Some(40));
    bench.run(60_000);
    assert_eq!(bench.targets(), []);
}

/// The path in use is always the slower one: the changes go on, and become rare.
#[test]
fn changes_that_undo_each_other_become_rare() {
    let mut bench = Bench::new(&[(USED, Some(100)), (OTHER, Some(40))]);
    for _ in 0..7_200 {
        let before = bench.moves.len();
        bench.run(bench.now + 500);
        if bench.moves.len() > before {
            let used = bench.choice.used;
            for (link, rtt) in &mut bench.paths {
                *rtt = Some(if *link == used { 100 } else { 40 });
            }
        }
    }
    let moves = bench.moves.len();
    assert!((6..14).contains(&moves), "{moves} in an hour");
}

#[test]
fn a_path_that_became_worse_is_compared_soon() {
    let mut bench = Bench::new(&[(USED, Some(50)), (OTHER, Some(50))]);
    bench.run(1_000_000);
    let ended = bench.choice.last.unwrap().0;
    assert!(bench.choice.deadline() > bench.now + 20_000, "the pauses are long now");
    bench.choice.handle_measured(bench.now, Some(55), Some(10));
    assert!(bench.choice.deadline() > bench.now + 20_000, "no worse than before");
    bench.paths.insert(USED, Some(90));
    bench.choice.handle_measured(bench.now, Some(90), None);
    assert!(bench.choice.deadline() <= (ended + SIGN_PAUSE).max(bench.now));
    bench.run(bench.now + 20_000);
    assert_eq!(bench.targets(), [OTHER]);
}

#[test]
fn a_path_that_others_have_changed_stays_for_a_while() {
    let mut bench = Bench::new(&[(USED, Some(40)), (OTHER, Some(100))]);
    bench.run(10_000);
    bench.choice.handle_used(bench.now, OTHER);
    let now = bench.now;
    bench.run(now + HOLD - 1);
    assert_eq!(bench.targets(), []);
    bench.run(now + HOLD + 10_000);
    assert_eq!(bench.targets(), [USED]);
}

#[test]
fn more_paths_than_fit_a_round_take_turns() {
    let paths: Vec<(LinkId, Option<u64>)> = (1..=8)
        .map(|n| (LinkId(n), Some(if n == 8 { 10 } else { 90 })))
        .collect();
    let mut bench = Bench::new(&paths);
    bench.run(200_000);
    assert_eq!(bench.targets(), [LinkId(8)]);
    let sent: u32 = bench.probes.values().sum();
    let rounds = bench.probes[&USED].max(bench.probes[&LinkId(8)]) / TRIES;
    assert!(
        sent <= (MAX_OTHERS as u32 + 1) * TRIES * 2 * rounds,
        "{:?}",
        bench.probes
    );
}

#[test]
fn a_choice_takes_less_than_a_kibibyte() {
    let times = TRIES as usize * size_of::<u64>();
    let round = times + (MAX_OTHERS + 1) * (size_of::<Candidate>() + times);
    assert!(size_of::<RelayChoice>() + round < 1_024);
}

#[test]
fn answers_that_were_not_asked_for_count_for_nothing() {
    let mut choice = RelayChoice::new(0, USED);
    choice.handle_answer(0, 0);
    let mut effects = Vec::new();
    choice.handle_timeout(FIRST, 0, || vec![OTHER], &mut effects);
    assert_eq!(effects.len(), 2);
    for number in [2, 3, 100, u32::MAX] {
        choice.handle_answer(FIRST, number);
    }
    for _ in 0..100 {
        choice.handle_answer(FIRST + 5, 1);
    }
    let Stage::Round(round) = &choice.stage else {
        panic!("a round")
    };
    assert_eq!(
        (round.candidates[0].rtts.len(), round.candidates[1].rtts.as_slice()),
        (0, &[5][..])
    );
}
