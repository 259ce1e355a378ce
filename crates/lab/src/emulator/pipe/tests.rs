//! The effect of a pipe on plain frames, and on super-frames in comparison with the model.

use proptest::prelude::*;

use super::super::super_frame::on_the_wire;
use super::super::super_frame::tests::{BOTH, super_frame};
use super::model::Model;
use super::*;

const MS: u64 = 1_000_000;

fn frame(number: usize, len: usize) -> Vec<u8> {
    let mut frame = vec![0; VNET_HEADER_LEN + len];
    frame[VNET_HEADER_LEN..][..8].copy_from_slice(&number.to_be_bytes());
    frame
}

/// Sends frames of 1000 bytes, one each `gap` ns. Returns those delivered, as (number, time).
fn run(impairments: Impairments, seed: u64, count: usize, gap: u64) -> Vec<(usize, u64)> {
    let mut pipe = Pipe::new(impairments, seed);
    let (mut out, mut bytes) = (Vec::new(), Vec::new());
    let mut drain = |pipe: &mut Pipe, until: u64| {
        while let Some(due) = pipe.next_due().filter(|due| *due <= until) {
            if due > 0 {
                assert!(!pipe.pop(due - 1, &mut bytes));
            }
            assert!(pipe.pop(due, &mut bytes));
            let number = bytes[VNET_HEADER_LEN..][..8].try_into().unwrap();
            out.push((usize::from_be_bytes(number), due));
        }
    };
    for number in 0..count {
        let now = number as u64 * gap;
        drain(&mut pipe, now);
        pipe.push(now, &frame(number, 1000), |_| panic!("nothing is too big"));
    }
    drain(&mut pipe, u64::MAX);
    let counts = pipe.counts();
    assert_eq!(counts.taken, count as u64);
    let gone = counts.lost + counts.overflowed + counts.too_big;
    assert_eq!(counts.given, out.len() as u64);
    assert_eq!(counts.given, counts.taken - gone + counts.duplicated);
    out
}

#[test]
fn nothing_is_the_default_and_delay_is_exact() {
    let out = run(Impairments::default(), 1, 100, MS);
    assert!(out.iter().enumerate().all(|(i, frame)| *frame == (i, i as u64 * MS)));
    let out = run(Impairments::delay(Duration::from_millis(20)), 1, 100, MS);
    assert!(
        out.iter()
            .enumerate()
            .all(|(i, frame)| *frame == (i, (20 + i as u64) * MS))
    );
}

#[test]
fn jitter_spreads_and_keeps_the_order() {
    let jittery = Impairments {
        jitter: Duration::from_millis(5),
        ..Impairments::delay(Duration::from_millis(20))
    };
    let out = run(jittery, 1, 1000, 10 * MS);
    assert!(out.iter().map(|(number, _)| *number).eq(0..1000));
    let extra: Vec<u64> = out.iter().map(|(i, due)| due - (20 + 10 * *i as u64) * MS).collect();
    assert!(extra.iter().all(|extra| *extra <= 5 * MS));
    let mean = extra.iter().sum::<u64>() / 1000;
    assert!((2 * MS..3 * MS).contains(&mean), "{mean}");
    // Closer together than the jitter they still keep their order.
    assert!(run(jittery, 1, 1000, MS / 10).is_sorted());
}

#[test]
fn loss_duplication_and_reordering_have_their_shares() {
    let out = run(Impairments::loss(0.1), 1, 10_000, MS);
    assert!((8800..9200).contains(&out.len()), "{}", out.len());
    assert!(run(Impairments::loss(1.0), 1, 100, MS).is_empty());
    let doubled = Impairments {
        duplicate: 0.2,
        ..Impairments::default()
    };
    let out = run(doubled, 1, 10_000, MS);
    assert!((11_700..12_300).contains(&out.len()), "{}", out.len());
    let reordered = Impairments {
        reorder: 0.05,
        reorder_by: Duration::from_millis(3),
        ..Impairments::default()
    };
    let out = run(reordered, 1, 10_000, MS);
    assert_eq!(out.len(), 10_000);
    let late = out.windows(2).filter(|pair| pair[0].0 > pair[1].0).count();
    assert!((400..600).contains(&late), "{late}");
}

#[test]
fn a_rate_spaces_frames_and_its_queue_is_bounded() {
    // 8 Mbit/s: 1000 bytes take 1 ms. They arrive twice as fast.
    let narrow = Impairments {
        rate: Some(8_000_000),
        queue: 10_000,
        ..Impairments::default()
    };
    let out = run(narrow, 1, 1000, MS / 2);
    assert!(out.windows(2).all(|pair| pair[1].1 - pair[0].1 == MS));
    assert!((500..=510).contains(&out.len()), "{}", out.len());
    // No frame waits longer than the queue permits.
    assert!(
        out.iter()
            .all(|(number, due)| due - *number as u64 * (MS / 2) <= 11 * MS)
    );
    // A frame longer than the queue passes an idle line.
    let tight = Impairments { queue: 10, ..narrow };
    assert_eq!(run(tight, 1, 10, 2 * MS).len(), 10);
}

#[test]
fn the_seed_decides_all() {
    let all = Impairments {
        delay: Duration::from_millis(7),
        jitter: Duration::from_millis(2),
        loss: 0.05,
        duplicate: 0.05,
        reorder: 0.05,
        rate: Some(20_000_000),
        ..Impairments::default()
    };
    assert_eq!(run(all, 7, 2000, MS), run(all, 7, 2000, MS));
    assert_ne!(run(all, 7, 2000, MS), run(all, 8, 2000, MS));
}

/// Wire frames as they are delivered, with their time, and the frames for the sender.
type Seen = (Vec<(u64, Vec<u8>)>, Vec<Vec<u8>>, PipeCounts);

fn wire(frame: &[u8]) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    on_the_wire(frame, |segment| all.push(segment.to_vec()));
    all
}

fn through_pipe(impairments: Impairments, frames: &[(u64, Vec<u8>)]) -> Seen {
    let mut pipe = Pipe::new(impairments, 5);
    let (mut out, mut back, mut bytes) = (Vec::new(), Vec::new(), Vec::new());
    let mut drain = |pipe: &mut Pipe, until: u64| {
        while let Some(due) = pipe.next_due().filter(|due| *due <= until) {
            assert!(pipe.pop(due, &mut bytes));
            out.extend(wire(&bytes).into_iter().map(|segment| (due, segment)));
        }
    };
    for (now, frame) in frames {
        drain(&mut pipe, *now);
        pipe.push(*now, frame, |answer| back.push(answer.to_vec()));
    }
    drain(&mut pipe, u64::MAX);
    (out, back, pipe.counts())
}

fn through_model(impairments: Impairments, frames: &[(u64, Vec<u8>)]) -> Seen {
    let mut model = Model::new(impairments, 5);
    let (mut out, mut back) = (Vec::new(), Vec::new());
    let mut drain = |model: &mut Model, until: u64| {
        while let Some(due) = model.next_due().filter(|due| *due <= until) {
            out.push((due, model.pop(due).unwrap()));
        }
    };
    for (now, frame) in frames {
        drain(&mut model, *now);
        for segment in wire(frame) {
            back.extend(model.push(*now, segment));
        }
    }
    drain(&mut model, u64::MAX);
    (out, back, model.counts())
}

fn impairments() -> impl Strategy<Value = Impairments> {
    let micros = |most: u64| (0..most).prop_map(Duration::from_micros);
    let share = || prop_oneof![Just(0.0), 0.0..0.5_f64];
    let rate = prop_oneof![Just(None), (1_000_000_u64..2_000_000_000).prop_map(Some)];
    let mtu = prop_oneof![Just(None), (600_u16..1500).prop_map(Some)];
    let first = (micros(5000), micros(2000), share(), share(), share(), micros(3000));
    (first, rate, 1000_usize..100_000, mtu, any::<bool>()).prop_map(|(first, rate, queue, mtu, told)| {
        let (delay, jitter, loss, duplicate, reorder, reorder_by) = first;
        let too_big = if told { TooBig::Icmp } else { TooBig::Silent };
        Impairments {
            delay,
            jitter,
            loss,
            duplicate,
            reorder,
            reorder_by,
            rate,
            queue,
            mtu,
            too_big,
        }
    })
}

/// Gap to the previous frame in ns, kind, bytes of a segment, bytes of payload.
fn frames() -> impl Strategy<Value = Vec<(u64, Vec<u8>)>> {
    let one = (0..2_000_000_u64, 0..5_usize, 100..1500_u16, 1..20_000_usize);
    proptest::collection::vec(one, 1..20).prop_map(|all| {
        let mut now = 0;
        let build = |(n, (gap, kind, each, len)): (usize, (u64, usize, u16, usize))| {
            now += gap;
            let payload: Vec<u8> = (0..len).map(|at| (at / 7 + n) as u8).collect();
            let frame = match BOTH.get(kind) {
                Some((protocol, v4)) => super_frame(*protocol, *v4, each, &payload),
                None => [&[0; VNET_HEADER_LEN][..], &payload].concat(),
            };
            (now, frame)
        };
        all.into_iter().enumerate().map(build).collect()
    })
}

proptest! {
    /// Each segment of a super-frame is treated as if it were alone, at the same time except for
    /// the gathering.
    #[test]
    fn super_frames_are_as_their_segments(with in impairments(), frames in frames()) {
        let (fast, fast_back, fast_counts) = through_pipe(with, &frames);
        let (slow, slow_back, slow_counts) = through_model(with, &frames);
        prop_assert_eq!(fast_counts, slow_counts);
        prop_assert_eq!(fast_back, slow_back);
        prop_assert_eq!(fast.len(), slow.len());
        let gather = if with.reorder > 0.0 { 0 } else { GATHER };
        for ((fast_due, fast), (slow_due, slow)) in fast.iter().zip(&slow) {
            prop_assert_eq!(fast, slow);
            prop_assert!((0..=gather).contains(&(fast_due - slow_due)), "{} {}", fast_due, slow_due);
        }
    }
}

/// A super-frame of 40 segments of 1,000 bytes of payload; each takes 1,054 bytes on the wire.
fn train() -> Vec<u8> {
    super_frame(6, true, 1000, &[7; 40_000])
}

fn pieces(impairments: Impairments) -> Vec<(u64, usize)> {
    let mut pipe = Pipe::new(impairments, 1);
    pipe.push(0, &train(), |_| panic!("nothing is too big"));
    let (mut all, mut bytes) = (Vec::new(), Vec::new());
    while let Some(due) = pipe.next_due() {
        assert!(pipe.pop(due, &mut bytes));
        all.push((due, Segments::of(&bytes).count()));
    }
    all
}

#[test]
fn packets_that_stay_together_leave_in_one_piece() {
    let delay = Impairments::delay(Duration::from_millis(20));
    assert_eq!(pieces(delay), [(20 * MS, 40)]);
    // 1,054 bytes take 8.432 us of 1 Gbit/s, so that 24 are gathered: the first and those of the
    // next 200 us.
    let fast = Impairments {
        rate: Some(1_000_000_000),
        ..delay
    };
    assert_eq!(pieces(fast), [(20 * MS + 24 * 8432, 24), (20 * MS + 40 * 8432, 16)]);
    let slow = Impairments {
        rate: Some(20_000_000),
        ..delay
    };
    let expected: Vec<_> = (1..=40).map(|n| (20 * MS + n * 421_600, 1)).collect();
    assert_eq!(pieces(slow), expected);
}

#[test]
fn chance_rate_and_size_count_segments() {
    let mut pipe = Pipe::new(Impairments::loss(0.1), 1);
    for _ in 0..250 {
        pipe.push(0, &train(), |_| panic!("nothing is too big"));
    }
    let counts = pipe.counts();
    assert_eq!(counts.taken, 10_000);
    assert!((800..1200).contains(&counts.lost), "{counts:?}");
    // A hole of 1,280 bytes, and segments of 1,440: 40 of headers and 1,400; none passes, and each
    // causes an error.
    let mut hole = Pipe::new(Impairments::mtu(1280, TooBig::Icmp), 1);
    let mut answers = 0;
    hole.push(0, &super_frame(6, true, 1400, &[7; 14_000]), |_| answers += 1);
    assert_eq!((hole.counts().too_big, answers, hole.next_due()), (10, 10, None));
    // Its last segment is small enough.
    hole.push(0, &super_frame(6, true, 1400, &[7; 14_100]), |_| answers += 1);
    assert_eq!((hole.counts().too_big, answers, hole.next_due()), (20, 20, Some(0)));
    // A queue of ten segments holds ten, and one is on the line.
    let narrow = Impairments {
        rate: Some(8_000_000),
        queue: 10 * 1054,
        ..Impairments::default()
    };
    let mut queue = Pipe::new(narrow, 1);
    queue.push(0, &train(), |_| panic!("nothing is too big"));
    let overflowed = queue.counts().overflowed;
    assert_eq!(overflowed, 30);
}
