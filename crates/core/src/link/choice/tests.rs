//! Rounds of probes to addresses that answer or not: which address is used, when, and what it costs.

use std::collections::BTreeMap;

use super::super::paths::MAX_COMPARED;
use super::*;

/// A clock, a link, and the round trip of each address that answers, in ms.
struct Bench {
    now: u64,
    choice: Choice,
    paths: Paths,
    view: View,
    rtt: BTreeMap<Endpoint, u64>,
    /// Whether payload passes, of which the address in use answers if it works.
    payload: bool,
    numbers: u64,
    answers: Vec<(u64, u64)>,
    probes: BTreeMap<Endpoint, usize>,
    moves: Vec<(u64, Endpoint)>,
}

fn wan(port: u16) -> Endpoint {
    Endpoint::from(([203, 0, 113, 1], port))
}

fn lan(port: u16) -> Endpoint {
    Endpoint::from(([192, 168, 1, 2], port))
}

impl Bench {
    /// A link at the first address that knows the others, too.
    fn new(decides: bool, addresses: &[(Endpoint, Option<u64>)]) -> Self {
        let now = 1_000_000;
        let path = addresses[0].0;
        let mut paths = Paths::default();
        addresses.iter().for_each(|(at, _)| paths.compare(now, Some(path), *at));
        Self {
            now,
            choice: Choice::default(),
            paths,
            view: View {
                path,
                decides,
                srtt: 0,
                alone_until: COMPARE_AFTER,
                payload: 0,
                unanswered_at: u64::MAX,
            },
            rtt: addresses.iter().filter_map(|(at, rtt)| Some((*at, (*rtt)?))).collect(),
            payload: false,
            numbers: 0,
            answers: Vec::new(),
            probes: BTreeMap::new(),
            moves: Vec::new(),
        }
    }

    fn set(&mut self, at: Endpoint, rtt: Option<u64>) {
        match rtt {
            Some(rtt) => self.rtt.insert(at, rtt),
            None => self.rtt.remove(&at),
        };
    }

    fn take(&mut self, steps: Vec<Step>) {
        for step in steps {
            match step {
                Step::ProbeFull { .. } => {}
                Step::Probe { to, number } => {
                    *self.probes.entry(to).or_default() += 1;
                    if let Some(rtt) = self.rtt.get(&to) {
                        self.answers.push((self.now + rtt, number));
                    }
                }
                Step::Move { to } => {
                    let from = std::mem::replace(&mut self.view.path, to);
                    self.choice.handle_moved(&mut self.paths, self.now, Some(from), to);
                    self.moves.push((self.now, to));
                    self.view.unanswered_at = u64::MAX;
                }
            }
        }
    }

    fn poll(&mut self) {
        let numbers = &mut self.numbers;
        let steps = self.choice.poll(&mut self.paths, self.now, &self.view, || {
            *numbers += 1;
            *numbers
        });
        self.take(steps);
    }

    /// Runs for `ms`, and returns the moves of that time: when, relative to its beginning, and where to.
    fn run(&mut self, ms: u64) -> Vec<(u64, Endpoint)> {
        let (start, before) = (self.now, self.moves.len());
        while self.now < start + ms {
            self.now += 1;
            if self.payload {
                self.choice.note_payload(self.view.payload, self.now);
                self.view.payload = self.now;
                match self.rtt.contains_key(&self.view.path) {
                    true => self.view.unanswered_at = u64::MAX,
                    false => self.view.unanswered_at = self.view.unanswered_at.min(self.now + 400),
                }
            }
            let due: Vec<(u64, u64)> = self.answers.extract_if(.., |(at, _)| *at <= self.now).collect();
            for (_, number) in due {
                if self.choice.handle_answer(self.now, number) {
                    self.poll();
                }
            }
            if self.now >= self.choice.deadline(&self.paths, &self.view) {
                self.poll();
                let again = self.choice.deadline(&self.paths, &self.view);
                assert!(again > self.now, "what is due is done");
            }
        }
        let moves = self.moves[before..].iter();
        moves.map(|(at, to)| (at - start, *to)).collect()
    }

    fn probes(&mut self) -> usize {
        std::mem::take(&mut self.probes).values().sum()
    }
}

#[test]
fn only_the_deciding_end_moves_to_a_local_address() {
    let addresses = [(wan(1), Some(10)), (lan(1), Some(1))];
    let mut bench = Bench::new(true, &addresses);
    let moves = bench.run(2_000);
    assert!(matches!(moves[..], [(..1_000, to)] if to == lan(1)), "{moves:?}");
    assert_eq!(bench.run(600_000), [], "and stays there");
    let mut other = Bench::new(false, &addresses);
    assert_eq!(other.run(600_000), []);
}

#[test]
fn an_idle_link_is_probed_once() {
    let mut bench = Bench::new(true, &[(wan(1), Some(10)), (wan(2), Some(10)), (wan(3), None)]);
    bench.run(2_000);
    assert_eq!(bench.probes(), 9);
    bench.run(3_600_000);
    assert_eq!(bench.probes(), 0);
    bench.payload = true;
    bench.run(60_000);
    let warm = bench.probes[&wan(2)];
    assert!((6..=12).contains(&warm), "{warm} probes in a minute with payload");
}

#[test]
fn a_message_now_and_then_costs_no_probes() {
    let mut bench = Bench::new(true, &[(wan(1), Some(10)), (wan(2), Some(10))]);
    bench.run(60_000);
    bench.probes();
    for _ in 0..24 {
        bench.payload = true;
        bench.run(1_500);
        bench.payload = false;
        bench.run(3_600_000);
    }
    assert_eq!(bench.probes(), 0);
    // A fallback is as warm as before as soon as payload goes on.
    bench.payload = true;
    bench.run(4_000);
    assert!(bench.probes() > 0);
}

#[test]
fn one_address_is_no_choice() {
    let mut bench = Bench::new(true, &[(wan(1), Some(10))]);
    bench.payload = true;
    bench.run(60_000);
    bench.set(wan(1), None);
    bench.run(60_000);
    assert_eq!(bench.probes(), 0);
}

#[test]
fn an_address_is_left_for_a_clear_difference_alone() {
    for (rtt, left) in [(8, false), (7, true), (10, false), (40, false)] {
        let mut bench = Bench::new(true, &[(wan(1), Some(10)), (wan(2), Some(rtt))]);
        assert_eq!(bench.run(5_000).len(), usize::from(left), "{rtt} ms instead of 10");
    }
    // A local address may be a little slower, and is left for one that is much faster.
    let better = |other, theirs, used, ours| is_better((other, theirs, true), (used, ours));
    assert!(better(lan(1), 12, wan(1), 10) && !better(lan(1), 13, wan(1), 10));
    assert!(better(wan(1), 5, lan(1), 10) && !better(wan(1), 6, lan(1), 10));
    assert!(!better(wan(1), 1, lan(1), 1) && !better(lan(1), 1, lan(2), 1));
    // Unless only frames have named it.
    assert!(is_better((lan(1), 7, false), (wan(1), 10)) && !is_better((lan(1), 8, false), (wan(1), 10)));
}

#[test]
fn either_end_leaves_a_silent_address_within_a_second() {
    // The address fails at any time of a round of 20 s.
    for n in 0..40 {
        let (decides, at) = (n % 2 == 0, n * 537);
        let mut bench = Bench::new(decides, &[(wan(1), Some(10)), (wan(2), Some(30))]);
        bench.payload = true;
        bench.run(10_000 + at);
        assert_eq!(bench.view.path, wan(1));
        bench.set(wan(1), None);
        let moves = bench.run(5_000);
        assert!(matches!(moves[..], [(600..=1_000, to)] if to == wan(2)), "{moves:?}");
    }
}

#[test]
fn a_slow_address_is_not_left_for_its_delay() {
    let mut bench = Bench::new(true, &[(wan(1), Some(600)), (wan(2), Some(590))]);
    (bench.view.srtt, bench.payload) = (600, true);
    bench.run(10_000);
    // Payload stays unanswered for longer than it takes to look for another address.
    for _ in 0..20 {
        bench.view.unanswered_at = bench.now;
        assert_eq!(bench.run(6_000), []);
    }
}

#[test]
fn an_address_that_failed_is_used_again_later_each_time() {
    let mut bench = Bench::new(true, &[(lan(1), Some(1)), (wan(1), Some(10))]);
    bench.payload = true;
    bench.run(10_000);
    let mut waits = Vec::new();
    for _ in 0..5 {
        bench.set(lan(1), None);
        assert_eq!(bench.run(2_000).len(), 1, "at {}", bench.view.path);
        bench.set(lan(1), Some(1));
        let back = bench.run(400_000);
        assert_eq!(back.len(), 1);
        waits.push(back[0].0 / 1_000);
    }
    assert!(waits.is_sorted() && waits[4] >= 60, "{waits:?}");
}

#[test]
fn an_address_that_never_answers_costs_few_probes() {
    let mut bench = Bench::new(true, &[(wan(1), Some(10)), (wan(2), None)]);
    bench.payload = true;
    bench.run(3_600_000);
    let probes = bench.probes[&wan(2)];
    assert!((20..=36).contains(&probes), "{probes} probes in an hour");
    // Looking for another address does not raise that: none is known to work.
    bench.set(wan(1), None);
    bench.probes.clear();
    bench.run(3_600_000);
    assert!(bench.probes[&wan(2)] <= 36);
}

#[test]
fn when_all_are_silent_looking_has_a_pace() {
    let mut bench = Bench::new(false, &[(wan(1), Some(10)), (wan(2), Some(10))]);
    bench.payload = true;
    bench.run(10_000);
    bench.set(wan(1), None);
    bench.set(wan(2), None);
    bench.probes.clear();
    assert_eq!(bench.run(60_000), []);
    assert!(bench.probes[&wan(2)] <= 60, "{:?}", bench.probes);
}

#[test]
fn addresses_are_few_and_those_that_work_stay() {
    let mut bench = Bench::new(true, &[(wan(1), Some(10)), (wan(2), Some(10))]);
    bench.run(2_000);
    for port in 100..200 {
        bench.paths.compare(bench.now, Some(wan(1)), wan(port));
        assert!(bench.paths.compared().count() <= MAX_COMPARED);
    }
    assert!(bench.paths.works(wan(2)) && !bench.paths.works(wan(199)));
    bench.choice.note_works(&mut bench.paths, bench.now, wan(1), wan(7));
    assert!(bench.paths.works(wan(7)));
    // The address in use stays, also when all others work.
    for port in 200..300 {
        bench.choice.note_works(&mut bench.paths, bench.now, wan(1), wan(port));
        assert!(bench.paths.compared().count() <= MAX_COMPARED);
        assert!(bench.paths.get(wan(1)).is_some());
    }
}

#[test]
fn a_change_of_the_network_has_all_probed_at_once() {
    let mut bench = Bench::new(false, &[(wan(1), Some(10)), (wan(2), None), (wan(3), Some(10))]);
    bench.run(10_000);
    bench.probes();
    bench.choice.hurry(&mut bench.paths);
    bench.run(5_000);
    assert_eq!(bench.probes(), 9);
}

/// A link at the first address, for which the second one is spare, here or at the other end.
fn with_spare(decides: bool, here: bool, rtts: [u64; 2]) -> Bench {
    let mut bench = Bench::new(decides, &[(wan(1), Some(rtts[0])), (wan(2), Some(rtts[1]))]);
    match here {
        true => bench.paths.set_spare(|at| at == wan(2)),
        false => bench.paths.note_spare(wan(2), true),
    }
    bench.payload = true;
    bench
}

#[test]
fn a_spare_address_is_used_while_the_other_one_is_silent() {
    for (decides, here, returns) in [
        (true, true, true),
        (true, false, true),
        (false, true, true),
        // The end whose address is spare leaves it, and this one follows.
        (false, false, false),
    ] {
        let mut bench = with_spare(decides, here, [30, 10]);
        assert_eq!(bench.run(60_000), [], "it is not taken for its round trip");
        bench.set(wan(1), None);
        let moves = bench.run(5_000);
        assert!(matches!(moves[..], [(600..=1_000, to)] if to == wan(2)), "{moves:?}");
        bench.run(3_600_000);
        bench.set(wan(1), Some(30));
        let moves = bench.run(40_000);
        let expected: &[Endpoint] = if returns { &[wan(1)] } else { &[] };
        let moves: Vec<Endpoint> = moves.into_iter().map(|(_, to)| to).collect();
        assert_eq!(moves, expected, "{decides} {here}");
    }
}

#[test]
fn of_several_that_work_the_spare_ones_come_last() {
    let mut bench = with_spare(true, true, [30, 10]);
    bench.paths.compare(bench.now, Some(wan(1)), wan(3));
    bench.set(wan(3), Some(50));
    bench.run(5_000);
    assert_eq!(bench.paths.any_that_works(), Some(wan(3)));
    bench.set(wan(1), None);
    assert!(matches!(bench.run(5_000)[..], [(_, to)] if to == wan(3)));
    let first = bench.paths.addresses().next();
    assert!(first.is_some_and(|at| bench.paths.works(at)));
}

#[test]
fn a_change_of_the_own_network_awaits_an_answer_at_once() {
    let mut bench = with_spare(false, true, [10, 10]);
    bench.run(10_000);
    bench.payload = false;
    bench.set(wan(1), None);
    bench.choice.look(bench.now);
    let moves = bench.run(2_000);
    assert!(matches!(moves[..], [(..=500, to)] if to == wan(2)), "{moves:?}");
    // An address that answers stays, and the question is asked once.
    let mut bench = with_spare(false, true, [10, 10]);
    bench.payload = false;
    bench.run(10_000);
    bench.probes();
    bench.choice.look(bench.now);
    assert_eq!(bench.run(60_000), []);
    let probes = bench.probes();
    assert!((2..=6).contains(&probes), "{probes}");
}
