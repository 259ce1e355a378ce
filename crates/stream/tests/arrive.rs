//! Documents arrive as they were sent, whatever the link does, or both ends hear that they do not.

#![allow(clippy::unwrap_used, reason = "a test ends where its ground is missing")]

mod common;

use common::{Faults, Net, document};
use proptest::prelude::*;
use weft_stream::{Cause, Documents, Limits, Output, PORT, SendError};

const CLEAN: Faults = Faults {
    loss: 0,
    repeat: 0,
    reorder: 0,
    delay: 25,
};

#[test]
fn a_clean_link_takes_few_round_trips() {
    let mut net = Net::new(1, CLEAN, &[1, 2]);
    let now = net.now;
    let sent = document(1, 100_000);
    let id = net.end(1).send(now, 2, sent.clone()).unwrap();
    net.finish();
    assert!(net.received(2, 1) == [sent]);
    let done = net.reports.iter().find(|report| report.1 == 1).unwrap();
    assert_eq!(done.2, Output::Sent { peer: 2, id });
    assert!(done.0 - now <= 12 * 50, "{} ms", done.0 - now);
    // 98 with data, an acknowledgment each, and 5 to open and close.
    assert!(net.segments <= 2 * 98 + 6, "{} segments", net.segments);
}

#[test]
fn every_length_arrives() {
    let mut net = Net::new(2, CLEAN, &[1, 2]);
    for len in [
        0,
        1,
        2,
        1_023,
        1_024,
        1_025,
        2_048,
        65_535,
        65_536,
        (1 << 20) - 1,
        1 << 20,
    ] {
        let now = net.now;
        let sent = document(len as u64, len);
        net.end(1).send(now, 2, sent.clone()).unwrap();
        net.finish();
        assert!(net.received(2, 1) == [sent.as_slice()], "{len} bytes");
        net.reports.clear();
    }
    let now = net.now;
    let large = net.end(1).send(now, 2, vec![0; (1 << 20) + 1]);
    assert_eq!(large, Err(SendError::TooLarge((1 << 20) + 1)));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    /// Any document arrives bit-exact in both directions over a link that loses, repeats and
    /// reorders up to 30 % each.
    #[test]
    fn any_document_arrives_over_a_bad_link(
        seed: u64,
        there in 0_usize..60_000,
        back in 0_usize..60_000,
        loss in 0_u32..=30,
        repeat in 0_u32..=30,
        reorder in 0_u32..=30,
        delay in 0_u64..150,
    ) {
        let mut net = Net::new(seed, Faults { loss, repeat, reorder, delay }, &[1, 2]);
        let now = net.now;
        let (there, back) = (document(seed, there), document(!seed, back));
        let ids = [net.end(1).send(now, 2, there.clone()).unwrap(), net.end(2).send(now, 1, back.clone()).unwrap()];
        net.finish();
        prop_assert!(net.received(2, 1) == [there]);
        prop_assert!(net.received(1, 2) == [back]);
        for (end, peer, id) in [(1, 2, ids[0]), (2, 1, ids[1])] {
            let mut reports = net.reports.iter().filter(|report| report.1 == end).map(|report| &report.2);
            let sent = Output::Sent { peer, id };
            prop_assert!(reports.any(|report| *report == sent), "{:?}", net.reports);
        }
    }

    /// Whatever happens to a transfer, the sender hears of it once, within the promised time, and
    /// the receiver gets at most one document.
    #[test]
    fn a_cut_ends_in_a_document_or_a_cause(
        seed: u64,
        len in 0_usize..200_000,
        loss in 0_u32..=30,
        at in 0_u64..3_000,
        time in 0_u64..120_000,
        restart in prop::option::of(1_u8..=2),
    ) {
        let mut net = Net::new(seed, Faults { loss, ..CLEAN }, &[1, 2]);
        let now = net.now;
        net.cut = now + at..now + at + time;
        let sent = document(seed, len);
        net.end(1).send(now, 2, sent.clone()).unwrap();
        net.run(now + at);
        if let Some(end) = restart {
            net.restart(end);
        }
        net.finish();
        let received = net.received(2, 1);
        prop_assert!(received.len() <= 1 && received.iter().all(|document| *document == sent));
        let ends = net.reports.iter().filter(|report| report.1 == 1 && matches!(report.2, Output::Sent { .. } | Output::Failed { .. }));
        let ends: Vec<_> = ends.collect();
        prop_assert!(ends.len() == 1 || ends.is_empty() && restart == Some(1), "{:?}", ends);
        prop_assert!(ends.iter().all(|report| report.0 - now <= 635_000));
        if ends.iter().any(|report| matches!(report.2, Output::Sent { .. })) {
            prop_assert_eq!(received.len(), 1);
        }
    }
}

/// A cut of 30 s in the middle is survived.
#[test]
fn thirty_seconds_without_a_path() {
    for seed in 0..20 {
        let mut net = Net::new(seed, CLEAN, &[1, 2]);
        let now = net.now;
        net.cut = now + 40 * seed..now + 40 * seed + 30_000;
        let sent = document(seed, 100_000);
        net.end(1).send(now, 2, sent.clone()).unwrap();
        net.finish();
        assert!(net.received(2, 1) == [sent], "seed {seed}");
        assert!(net.reports.iter().any(|report| matches!(report.2, Output::Sent { .. })));
        assert!(net.reports.iter().all(|report| report.0 < now + 40_000), "seed {seed}");
    }
}

/// The receiver restarts: the sender hears of it at once. The sender restarts: the receiver hears
/// of it with the next segment that passes, or after the time without progress.
#[test]
fn a_restart_of_either_end_has_one_cause_at_the_other() {
    for (restarted, other) in [(2, 1), (1, 2)] {
        let mut net = Net::new(7, CLEAN, &[1, 2]);
        let now = net.now;
        net.end(1).send(now, 2, document(7, 1 << 20)).unwrap();
        net.run(now + 180);
        net.restart(restarted);
        net.finish();
        let reports: Vec<_> = net.reports.iter().map(|report| (report.1, &report.2)).collect();
        assert_eq!(reports.len(), 1, "{reports:?}");
        let reset = matches!(
            reports[0].1,
            Output::Failed {
                cause: Cause::Reset,
                ..
            } | Output::Incomplete {
                cause: Cause::Reset,
                ..
            }
        );
        assert!(reports[0].0 == other && reset, "{reports:?}");
    }
}

#[test]
fn the_same_inputs_give_the_same_outputs() {
    let run = || {
        let mut net = Net::new(
            9,
            Faults {
                loss: 10,
                repeat: 10,
                reorder: 10,
                delay: 30,
            },
            &[1, 2, 3],
        );
        let now = net.now;
        for (from, to) in [(1, 2), (2, 3), (3, 1), (1, 3)] {
            net.end(from).send(now, to, document(4, 30_000)).unwrap();
        }
        net.finish();
        (net.reports, net.segments)
    };
    assert_eq!(run(), run());
}

/// Documents of ours are bounded in number and bytes, and none is taken that cannot be kept.
#[test]
fn sent_documents_are_bounded() {
    let mut documents = Documents::new(PORT, Limits::default(), [1; 16]);
    let sent: Vec<_> = (0..9).map(|_| documents.send(0, 1, vec![0; 10])).collect();
    assert!(sent[..8].iter().all(Result::is_ok));
    assert_eq!(sent[8], Err(SendError::PeerBusy));
    let large = (0..5)
        .filter(|_| documents.send(0, 2, vec![0; 1 << 20]).is_ok())
        .count();
    assert_eq!(large, 4, "as many as peer_bytes has room for");
    documents.remove_peer(1);
    documents.remove_peer(2);
    assert_eq!((documents.held(), documents.connections()), ((0, 0), (0, 0)));
    let failed = std::iter::from_fn(|| documents.poll_output());
    let failed = failed.filter(|output| {
        matches!(
            output,
            Output::Failed {
                cause: Cause::PeerRemoved,
                ..
            }
        )
    });
    assert_eq!(failed.count(), 12);
}

/// Nothing is there that answers.
#[test]
fn a_peer_that_does_not_answer() {
    let mut net = Net::new(3, CLEAN, &[1]);
    let now = net.now;
    let id = net.end(1).send(now, 2, vec![1]).unwrap();
    net.finish();
    let cause = Cause::NotReached;
    assert_eq!(net.reports, [(now + 35_000, 1, Output::Failed { peer: 2, id, cause })]);
    assert!(net.segments <= 20, "{} segments", net.segments);
}
