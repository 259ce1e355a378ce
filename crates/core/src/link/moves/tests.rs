//! The probes to a peer that seems to have roamed, their times, and the effects of the answers.

use rand_chacha::ChaCha20Rng;
use rand_core::SeedableRng as _;
use weft_contract::{
    Command, CountedEpoch, LinkCommand, LinkId, Measured, PATH_PROBE_LEN, ProbeKind, ReceiverIndex, SendCommand,
};
use weft_noise::{Identity, SecretKey};
use weft_wire::link::OBSERVED;
use weft_wire::mmp::ReceiverReport;

use super::super::Epoch;
use super::*;
use crate::Config;
use crate::context::Output;

const NOW: u64 = 100_000;
const PROBE: u32 = PATH_PROBE_LEN as u32;
/// The port of the link's first address.
const HOME: u16 = 1;

fn at(port: u16) -> Endpoint {
    Endpoint::from(([192, 0, 2, 1], port))
}

/// A link that is up.
struct Bench {
    ctx: Context,
    link: Link,
}

impl Bench {
    fn new() -> Self {
        let mut rng = ChaCha20Rng::seed_from_u64(1);
        let [ours, theirs] = [(); 2].map(|()| Identity::new(SecretKey::generate(&mut rng)));
        let mut ctx = Context::new(Config::default(), ours, Box::new(rng));
        let mut link = Link::new(&mut ctx, 0, LinkId(1), theirs.public(), &[]);
        link.epochs.push(Epoch::current(ReceiverIndex(5), NOW));
        link.path = Some(at(HOME));
        Self { ctx, link }
    }

    fn roamed(&mut self, now: u64, port: u16, room: u32) {
        self.link.handle_roamed(&mut self.ctx, now, at(port), room);
    }

    fn drive(&mut self, now: u64) {
        self.link.drive_moves(&mut self.ctx, now);
    }

    fn answer(&mut self, now: u64, number: u64) {
        self.link.handle_path_answer(&mut self.ctx, now, number);
    }

    /// Returns the probed ports since the last call, with the numbers.
    fn asked(&mut self) -> Vec<(u16, u64)> {
        let commands = self.commands().into_iter().filter_map(|command| match command {
            Command::Link(_, LinkCommand::Probe { to, number, .. }) => Some((to.port(), number)),
            _ => None,
        });
        commands.collect()
    }

    /// Returns the addresses that the lane was told to send to since the last call, and those for
    /// copies.
    fn placed(&mut self) -> Vec<(u16, Option<u16>)> {
        let commands = self.commands().into_iter().filter_map(|command| match command {
            Command::Link(_, LinkCommand::Place { path, left, .. }) => Some((path.port(), left.map(Endpoint::port))),
            _ => None,
        });
        commands.collect()
    }

    fn commands(&mut self) -> Vec<Command> {
        let outputs = std::iter::from_fn(|| self.ctx.next_output());
        let commands = outputs.filter_map(|output| match output {
            Output::Lane(command) => Some(command),
            Output::Event(_)
            | Output::Outside { .. }
            | Output::Service { .. }
            | Output::Traversal { .. }
            | Output::Control { .. } => None,
        });
        commands.collect()
    }

    /// Lets a frame arrive from a new address, so that it and the old address are probed. Returns
    /// the numbers.
    fn two_asked(&mut self, now: u64, port: u16) -> (u64, u64) {
        self.roamed(now, port, 9 * PROBE);
        match self.asked()[..] {
            [(new, number), (HOME, here)] if new == port => (number, here),
            ref other => panic!("{other:?}"),
        }
    }

    fn path(&self) -> Option<u16> {
        self.link.path.map(Endpoint::port)
    }
}

#[test]
fn both_addresses_are_asked_three_times_with_longer_pauses() {
    let mut bench = Bench::new();
    let (number, here) = bench.two_asked(NOW, 2);
    assert_ne!(number, here, "one answer must not pass for the other");
    for (due, asked) in [
        (NOW + FIRST_WAIT, true),
        (NOW + 3 * FIRST_WAIT, true),
        (NOW + 7 * FIRST_WAIT, false),
    ] {
        assert_eq!(bench.link.moves_at(), due);
        bench.drive(due - 1);
        assert_eq!(bench.asked(), []);
        bench.drive(due);
        let expected = [(2, number), (HOME, here)];
        assert_eq!(bench.asked(), expected[..if asked { 2 } else { 0 }]);
    }
    assert_eq!(bench.link.moves_at(), u64::MAX);
    assert_eq!(bench.path(), Some(HOME));
}

#[test]
fn an_answer_is_awaited_two_round_trips_and_a_second_at_most() {
    for (rtt, wait) in [(20, FIRST_WAIT), (200, 400), (5_000, MAX_WAIT)] {
        let mut bench = Bench::new();
        let report = ReceiverReport {
            highest_counter: 1,
            cumulative_packets_recv: 1,
            timestamp_echo: 1,
            ..ReceiverReport::default()
        };
        let measured = Measured {
            epoch: CountedEpoch::default(),
            sent: 10,
            clock: 1 + rtt,
            report,
        };
        assert!(bench.link.metrics.handle_report(NOW, &measured));
        bench.roamed(NOW, 2, 9 * PROBE);
        assert_eq!(bench.link.moves_at(), NOW + wait, "{rtt} ms");
    }
}

#[test]
fn no_more_is_asked_than_there_is_room_for() {
    for (room, asked) in [(PROBE - 1, 0), (PROBE, 1), (3 * PROBE - 1, 2), (3 * PROBE, 3)] {
        let mut bench = Bench::new();
        bench.roamed(NOW, 2, room);
        for now in NOW..NOW + 10_000 {
            bench.drive(now);
        }
        let to_new = bench.asked().into_iter().filter(|(port, _)| *port == 2);
        assert_eq!(to_new.count(), asked, "{room} bytes");
    }
    // Later frames from there make room for more.
    let mut bench = Bench::new();
    bench.roamed(NOW, 2, PROBE + 10);
    bench.roamed(NOW + 10, 2, PROBE - 10);
    assert_eq!(bench.asked().len(), 2, "an address is in question once");
    bench.drive(NOW + FIRST_WAIT);
    assert_eq!(bench.asked().len(), 2);
}

#[test]
fn few_addresses_are_in_question_and_the_oldest_makes_room() {
    let mut bench = Bench::new();
    for port in 2..10 {
        bench.roamed(NOW, port, 9 * PROBE);
    }
    let ports = bench.link.moves.list.iter().map(|asked| asked.to.port());
    assert_eq!(ports.collect::<Vec<_>>(), [6, 7, 8, 9]);
}

#[test]
fn a_link_that_is_down_asks_nothing() {
    let mut bench = Bench::new();
    bench.link.epochs.clear();
    bench.roamed(NOW, 2, 9 * PROBE);
    assert_eq!((bench.commands().len(), bench.link.moves_at()), (0, u64::MAX));
}

#[test]
fn a_lane_without_the_present_address_is_told_again() {
    let mut bench = Bench::new();
    bench.roamed(NOW, HOME, 9 * PROBE);
    assert_eq!(bench.placed(), [(HOME, None)]);
    assert_eq!(bench.link.moves_at(), u64::MAX);
    // If the peer has not proven the address of the link, that one is in question like any other.
    bench.link.moves.handle_proven(true, false);
    assert!(bench.link.moves.is_unproven());
    bench.roamed(NOW, HOME, 9 * PROBE);
    assert_eq!(bench.asked().iter().map(|(port, _)| *port).collect::<Vec<_>>(), [HOME]);
}

#[test]
fn an_answer_from_the_new_address_alone_moves_the_link() {
    for (rtt, settle) in [(10, MIN_SETTLE), (200, 200), (900, MAX_SETTLE)] {
        let mut bench = Bench::new();
        let (number, _) = bench.two_asked(NOW, 2);
        let answered = NOW + rtt;
        bench.answer(answered, number);
        assert_eq!(bench.placed(), [(2, Some(HOME))], "both are used for a moment");
        assert_eq!((bench.path(), bench.link.moves_at()), (Some(HOME), answered + settle));
        bench.drive(answered + settle - 1);
        assert_eq!((bench.path(), bench.placed().len()), (Some(HOME), 0));
        bench.drive(answered + settle);
        assert_eq!((bench.path(), bench.link.paths.last()), (Some(2), Some(at(2))));
        let outputs: Vec<_> = std::iter::from_fn(|| bench.ctx.next_output()).collect();
        assert!(
            matches!(
                outputs[..],
                [
                    Output::Lane(Command::Link(_, LinkCommand::Place { left: None, .. })),
                    Output::Lane(Command::Send(SendCommand::OnLink { msg_type: OBSERVED, .. })),
                    Output::Event(Event::Roamed { .. })
                ]
            ),
            "{outputs:?}"
        );
        assert_eq!(bench.link.moves_at(), answered + settle + RETURN);
    }
}

#[test]
fn an_answer_from_the_old_address_first_keeps_the_link_there() {
    let mut bench = Bench::new();
    let (number, here) = bench.two_asked(NOW, 2);
    let (other, _) = bench.two_asked(NOW, 3);
    bench.answer(NOW + 10, here);
    bench.answer(NOW + 20, number);
    assert_eq!((bench.placed(), bench.path()), (vec![], Some(HOME)));
    // The other question is still open.
    bench.answer(NOW + 20, other);
    assert_eq!(bench.placed(), [(3, Some(HOME))]);
}

#[test]
fn a_later_answer_from_the_old_address_returns_the_link() {
    let moved = |late: u64| {
        let mut bench = Bench::new();
        let (number, here) = bench.two_asked(NOW, 2);
        bench.answer(NOW + 100, number);
        bench.drive(NOW + 200);
        bench.drive(NOW + 200 + late);
        bench.commands();
        bench.answer(NOW + 200 + late, here);
        (bench.placed(), bench.path())
    };
    assert_eq!(moved(0), (vec![(HOME, None)], Some(HOME)));
    assert_eq!(moved(RETURN - 101), (vec![(HOME, None)], Some(HOME)));
    assert_eq!(moved(RETURN), (vec![], Some(2)));
    // Before the change is complete, no address was left.
    let mut bench = Bench::new();
    let (number, here) = bench.two_asked(NOW, 2);
    bench.answer(NOW + 100, number);
    bench.commands();
    bench.answer(NOW + 110, here);
    assert_eq!((bench.placed(), bench.path()), (vec![(HOME, None)], Some(HOME)));
    bench.drive(NOW + 10_000);
    assert_eq!(bench.path(), Some(HOME));
}

#[test]
fn another_number_moves_nothing() {
    let mut bench = Bench::new();
    let (number, here) = bench.two_asked(NOW, 2);
    bench.answer(NOW + 10, number ^ here ^ 1);
    assert_eq!((bench.placed(), bench.path()), (vec![], Some(HOME)));
    bench.answer(NOW + 20, number);
    bench.commands();
    bench.answer(NOW + 30, number);
    assert_eq!(bench.placed(), [], "an answer counts once");
    bench.drive(NOW + 1_000);
    assert_eq!(bench.path(), Some(2));
}

#[test]
fn a_peer_that_announces_its_move_is_followed_at_once() {
    for (after, placed, path) in [(ANNOUNCED - 1, (2, None), 2), (ANNOUNCED, (2, Some(HOME)), HOME)] {
        let mut bench = Bench::new();
        bench.link.handle_moving(NOW);
        let asked = NOW + after - 1;
        let (number, _) = bench.two_asked(asked, 2);
        bench.two_asked(asked, 3);
        bench.answer(NOW + after, number);
        assert_eq!((bench.placed(), bench.path()), (vec![placed], Some(path)));
    }
    // Its old address may still work.
    let mut bench = Bench::new();
    bench.link.handle_moving(NOW);
    let (number, here) = bench.two_asked(NOW, 2);
    bench.answer(NOW + 10, here);
    bench.answer(NOW + 20, number);
    assert_eq!((bench.placed(), bench.path()), (vec![(2, None)], Some(2)));
    assert_eq!(bench.link.moves_at(), u64::MAX, "nothing is in question any more");
}

#[test]
fn a_peer_without_a_proven_address_is_where_it_answers() {
    let mut bench = Bench::new();
    bench.link.moves.handle_proven(true, false);
    bench.roamed(NOW, 2, 9 * PROBE);
    let asked = bench.asked();
    assert!(matches!(asked[..], [(2, _)]), "{asked:?}");
    bench.answer(NOW + 10, asked[0].1);
    assert_eq!((bench.placed(), bench.path()), (vec![(2, None)], Some(2)));
    assert!(!bench.link.moves.is_unproven());
}

#[test]
fn only_keys_proven_at_another_address_end_open_questions() {
    let mut bench = Bench::new();
    bench.two_asked(NOW, 2);
    bench.link.moves.handle_proven(true, true);
    assert_eq!(bench.link.moves_at(), NOW + FIRST_WAIT);
    bench.link.moves.handle_proven(false, true);
    assert_eq!(bench.link.moves_at(), u64::MAX);
    assert!(!bench.link.moves.is_unproven());
}

#[test]
fn a_peer_that_answers_no_probes_is_dialled_at_the_new_address() {
    let room = fmp::Msg1::LEN as u32;
    let mut bench = Bench::new();
    assert_eq!(bench.link.elsewhere(), None);
    bench.roamed(NOW, 2, 3 * PROBE + room - 1);
    for now in NOW..NOW + 3_000 {
        bench.drive(now);
    }
    assert_eq!(bench.link.rekey_due, NOW + REKEY_RETRY, "the present keys are new");
    assert_eq!(bench.link.elsewhere(), None, "one byte is missing");
    // More frames from the same address add to its budget.
    bench.roamed(NOW + 50_000, 2, 3 * PROBE + 1 + room);
    for now in NOW + 50_000..NOW + 53_000 {
        bench.drive(now);
    }
    assert_eq!(
        [bench.link.elsewhere(), bench.link.elsewhere(), bench.link.elsewhere()],
        [Some(at(2)), Some(at(2)), None]
    );
    // With older keys the handshake is due at once.
    bench.link.rekey_due = u64::MAX;
    let late = NOW + 2 * REKEY_RETRY;
    bench.roamed(late, 3, room);
    bench.roamed(late, 4, PROBE - 1);
    assert_eq!(bench.link.rekey_due, late);
    assert_eq!(bench.link.elsewhere(), None, "nothing was saved up at this address");
}

#[test]
fn a_peer_that_answers_probes_is_not_asked_for_new_keys() {
    let mut bench = Bench::new();
    bench.answer(NOW, 7);
    bench.roamed(NOW, 2, PROBE - 1);
    assert_eq!((bench.link.elsewhere(), bench.link.rekey_due), (None, u64::MAX));
}

#[test]
fn a_probe_is_answered_on_the_path_by_which_it_came() {
    let mut bench = Bench::new();
    let answers = |bench: &mut Bench, port: u16, count: u64| {
        for number in 0..count {
            bench
                .link
                .handle_path_probe(&mut bench.ctx, NOW, at(port), (number, ProbeKind::Plain));
        }
        let commands = bench.commands().into_iter();
        let answers = commands.filter_map(|command| match command {
            Command::Link(_, LinkCommand::AnswerProbe { to, .. }) => Some(to.port()),
            Command::Send(SendCommand::OnLink { .. }) => Some(HOME),
            _ => None,
        });
        answers.collect::<Vec<_>>()
    };
    assert_eq!(answers(&mut bench, HOME, 2), [HOME; 2]);
    // An answer from elsewhere would call a path good by which nothing comes back.
    assert_eq!(answers(&mut bench, 2, 2), [2, HOME, 2, HOME], "and the peer is told so");
    // What this node asks there itself is apart from that.
    bench.roamed(NOW, 2, 2 * PROBE);
    assert_eq!(bench.asked().len(), 2);
    assert_eq!(answers(&mut bench, 2, 1), [2, HOME]);
}

#[test]
fn a_copied_handshake_proves_no_address() {
    let mut bench = Bench::new();
    bench.link.epochs.clear();
    bench.link.path = None;
    bench.link.epochs.push(Epoch {
        stage: super::super::Stage::Candidate,
        ..Epoch::current(ReceiverIndex(6), NOW)
    });
    bench
        .link
        .handle_proven(&mut bench.ctx, NOW, ReceiverIndex(6), at(9), false);
    let paths = bench.link.known_paths(NOW, |_| None);
    assert!(paths.is_empty() && bench.link.has_target(), "{paths:?}");
    // It is answered where it asks: the lane has left that out of what it grants.
    bench
        .link
        .handle_path_probe(&mut bench.ctx, NOW, at(9), (7, ProbeKind::Plain));
    let is_answer = |command: &Command| matches!(command, Command::Link(_, LinkCommand::AnswerProbe { .. }));
    assert!(bench.commands().iter().any(is_answer));
}
