//! Two ends with paths between them that deliver or not: which are used, when, and what it costs.

use weft_contract::SocketId;

use super::*;

/// The path with this number, as the end with several uplinks and the other one see it.
fn path(end: usize, n: usize) -> Endpoint {
    Endpoint::from(([192, 0, 2, end as u8], 1 + n as u16))
}

/// What is under way on a path: when it arrives, at which end, and whether it is an answer.
struct Flying {
    at: u64,
    end: usize,
    path: usize,
    number: u64,
    answer: bool,
}

struct Bench {
    now: u64,
    ends: [Bond; 2],
    /// The path of the link at each end.
    main: [usize; 2],
    /// The one-way delay of each path, if it delivers.
    delays: Vec<Option<u64>>,
    /// Whether the second end wants to use several paths.
    agrees: bool,
    /// Whether the rounds of both links find that the paths work.
    proven: bool,
    payload: Option<u64>,
    flying: Vec<Flying>,
    numbers: u64,
    probes: usize,
}

impl Bench {
    fn new(delays: &[u64]) -> Self {
        let mut first = Bond::default();
        let own: Vec<Endpoint> = (0..delays.len()).map(|n| path(0, n)).collect();
        first.set_own(&own);
        Self {
            now: 1_000_000,
            ends: [first, Bond::default()],
            main: [0, 0],
            delays: delays.iter().map(|delay| Some(*delay)).collect(),
            agrees: true,
            proven: true,
            payload: Some(0),
            flying: Vec::new(),
            numbers: 0,
            probes: 0,
        }
    }

    fn send(&mut self, end: usize, path: usize, number: u64, answer: bool) {
        if let Some(delay) = self.delays[path] {
            let (at, end) = (self.now + delay, 1 - end);
            self.flying.push(Flying {
                at,
                end,
                path,
                number,
                answer,
            });
        }
    }

    fn poll(&mut self, end: usize) {
        let (numbers, proven) = (&mut self.numbers, self.proven);
        let view = (path(end, self.main[end]), self.payload.unwrap_or(0));
        let steps = self.ends[end].poll(
            self.now,
            view,
            |_| proven,
            || {
                *numbers += 1;
                *numbers
            },
        );
        for step in steps {
            match step {
                Step::Probe { to, number } => {
                    self.probes += 1;
                    self.send(end, usize::from(to.port()) - 1, number, false);
                }
                Step::Move(to) => self.main[end] = usize::from(to.port()) - 1,
                Step::Use(_) => {}
            }
        }
    }

    fn arrive(&mut self, flying: &Flying) {
        let Flying {
            end,
            path: n,
            number,
            answer,
            ..
        } = *flying;
        if answer {
            assert!(self.ends[end].handle_answer(self.now, number) || self.now > 0);
        } else {
            self.send(end, n, number, true);
            if end == 0 || self.agrees {
                self.ends[end].handle_probe(self.now, path(end, n), self.proven);
            }
        }
        self.poll(end);
    }

    fn run(&mut self, ms: u64) {
        let end = self.now + ms;
        while self.now < end {
            self.now += 1;
            self.payload = self.payload.map(|_| self.now);
            let due: Vec<Flying> = self.flying.extract_if(.., |flying| flying.at <= self.now).collect();
            due.iter().for_each(|flying| self.arrive(flying));
            for end in 0..2 {
                let payload = self.payload.unwrap_or(0);
                if self.now >= self.ends[end].deadline(payload) {
                    self.poll(end);
                    assert!(self.ends[end].deadline(payload) > self.now, "what is due is done");
                }
            }
        }
    }

    /// The paths that each end uses beside others.
    fn used(&self) -> [Vec<usize>; 2] {
        [0, 1].map(|end| {
            let mut used: Vec<usize> = self.ends[end]
                .used
                .iter()
                .map(|at| usize::from(at.port()) - 1)
                .collect();
            used.sort_unstable();
            used
        })
    }
}

const BOTH: [[usize; 2]; 2] = [[0, 1], [0, 1]];
const NONE: [[usize; 0]; 2] = [[], []];

#[test]
fn both_ends_use_all_paths_while_payload_passes() {
    let mut bench = Bench::new(&[5, 15]);
    bench.run(500);
    assert_eq!(bench.used(), BOTH);
    bench.run(60_000);
    assert_eq!(bench.used(), BOTH);
    bench.payload = None;
    bench.run(5_000);
    assert_eq!(bench.used(), NONE);
    bench.probes = 0;
    bench.run(3_600_000);
    assert_eq!(bench.probes, 0, "an idle link is not probed");
    bench.payload = Some(0);
    bench.run(500);
    assert_eq!(bench.used(), BOTH);
}

/// Other traffic has filled a path, so that the rounds of the link count it as one that does not work.
#[test]
fn a_path_that_answers_is_used_again_despite_failed_rounds() {
    let mut bench = Bench::new(&[5, 15]);
    bench.run(500);
    bench.payload = None;
    bench.run(60_000);
    bench.proven = false;
    bench.payload = Some(0);
    bench.run(500);
    assert_eq!(bench.used(), BOTH);
    // One that has never answered is none of them, and a node forgets after ten minutes.
    for forgets in [false, true] {
        let mut bench = Bench::new(&[5, 15]);
        if forgets {
            bench.run(500);
            bench.payload = None;
            bench.run(REMEMBERED + 5_000);
            bench.payload = Some(0);
        }
        bench.proven = false;
        bench.run(5_000);
        assert_eq!(bench.used(), NONE);
    }
}

#[test]
fn a_path_that_fails_is_left_within_the_time_of_a_failover() {
    for (failed, at) in [(0, 0), (0, 100), (0, 290), (1, 50), (1, 200)] {
        let mut bench = Bench::new(&[5, 15]);
        bench.run(10_000 + at);
        bench.delays[failed] = None;
        bench.run(1_300);
        assert_eq!(bench.used(), NONE);
        assert_eq!(
            bench.main,
            [1 - failed; 2].map(|other| if failed == 0 { other } else { 0 })
        );
        bench.delays[failed] = Some(5);
        bench.run(1_000);
        assert_eq!(bench.used(), BOTH);
    }
}

#[test]
fn a_long_delay_is_no_failure() {
    let mut bench = Bench::new(&[5, 400]);
    bench.run(3_000);
    for _ in 0..100 {
        assert_eq!(bench.used(), BOTH);
        bench.run(100);
    }
}

#[test]
fn nothing_is_sent_on_other_paths_unless_both_ends_want_it() {
    let mut bench = Bench::new(&[5, 15]);
    bench.agrees = false;
    bench.run(60_000);
    assert_eq!(bench.used(), NONE);
    let mut alone = Bench::new(&[5]);
    alone.run(60_000);
    assert_eq!((alone.used(), alone.probes), (NONE.map(|none| none.to_vec()), 0));
}

#[test]
fn a_probe_of_the_peer_causes_one_probe_on_few_proven_paths() {
    let mut bond = Bond::default();
    let mut probes = 0;
    let mut numbers = 0;
    for n in 0..1_000 {
        let from = path(0, n % 20);
        bond.handle_probe(1_000 + n as u64, from, n % 20 != 3);
        let steps = bond.poll(
            1_000 + n as u64,
            (path(0, 0), 0),
            |_| true,
            || {
                numbers += 1;
                numbers
            },
        );
        assert!(
            steps
                .iter()
                .all(|step| matches!(step, Step::Probe { to, .. } if *to == from))
        );
        probes += steps.len();
        assert!(bond.members.len() <= MOST && bond.members.iter().all(|member| member.open.len() <= OPEN));
    }
    assert_eq!(
        probes,
        1_000 / 20 * MOST,
        "to the first four, without the one that is not proven"
    );
}

#[test]
fn a_socket_that_is_closed_has_no_part_at_once() {
    let socket = SocketId::ORDINARY.following();
    let [here, aside] = [path(0, 0), socket.path(path(0, 0))];
    let mut bond = Bond::default();
    bond.set_own(&[here, aside]);
    let mut number = 0;
    let mut poll = |bond: &mut Bond, now| {
        bond.poll(
            now,
            (aside, now),
            |_| true,
            || {
                number += 1;
                number
            },
        )
    };
    for step in poll(&mut bond, 1_000) {
        let Step::Probe { to, number } = step else {
            panic!("{step:?}")
        };
        bond.handle_probe(1_001, to, true);
        assert!(bond.handle_answer(1_001, number));
    }
    assert_eq!(poll(&mut bond, 1_001), [Step::Use(vec![here, aside])]);
    bond.set_own(&[here]);
    assert!(bond.deadline(1_001) <= 1_001);
    assert_eq!(poll(&mut bond, 1_002), [Step::Move(here), Step::Use(Vec::new())]);
}
