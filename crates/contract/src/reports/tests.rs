use crate::endpoint::Endpoint;

use weft_wire::session::DataPorts;

use super::*;
use crate::control::{EpochId, ReceiverIndex, SessionReport};

fn message(link: u32, len: usize) -> Report {
    Report::Link(
        LinkId(link),
        LinkReport::Message {
            index: ReceiverIndex(0),
            msg_type: 0x20,
            body: vec![0; len],
        },
    )
}

fn proof(link: u32) -> Report {
    Report::Link(
        LinkId(link),
        LinkReport::Proven {
            index: ReceiverIndex(0),
            proven: true,
            path: Endpoint::from(([192, 0, 2, 1], 2121)),
        },
    )
}

fn handshake() -> Report {
    Report::Handshake {
        from: Endpoint::from(([192, 0, 2, 1], 2121)),
        datagram: vec![1; 114],
    }
}

/// Returns how many of this report the queue accepts before it refuses one.
fn fill(queue: &mut ReportQueue<()>, report: impl Fn() -> Report) -> usize {
    (0..).find(|_| !queue.push((), report()).is_empty()).unwrap_or_default()
}

#[test]
fn a_neighbours_flood_leaves_room_for_proofs_and_others() {
    let mut queue = ReportQueue::new(bounds::PROOFS);
    let flood = fill(&mut queue, || message(1, 0));
    assert!(flood <= bounds::REPORTS.count / 5 + 1, "{flood}");
    for link in 2..9 {
        assert!(queue.push((), message(link, 1_000)).is_empty());
        assert!(queue.push((), proof(link)).is_empty());
    }
    assert!(queue.push((), handshake()).is_empty());
    let order: Vec<Report> = std::iter::from_fn(|| queue.pop()).map(|(_, report)| report).collect();
    let first = order
        .iter()
        .position(|report| !report.is_proof() && !report.is_handshake());
    assert_eq!(first, Some(8), "proofs and handshakes go first");
    assert_eq!(order.len(), flood + 7 + 8);
    assert_eq!((queue.load(), queue.check()), (Load::default(), Ok(())));
}

#[test]
fn reports_are_bounded_in_bytes() {
    let mut queue = ReportQueue::new(bounds::PROOFS);
    for link in 0..60 {
        fill(&mut queue, || message(link, 4_096));
    }
    assert!(queue.load().bytes <= bounds::REPORTS.bytes);
    assert!(
        queue.load().bytes > bounds::REPORTS.bytes * 9 / 10,
        "{:?}",
        queue.load()
    );
    assert_eq!(queue.check(), Ok(()));
}

#[test]
fn handshakes_are_bounded_by_themselves() {
    let mut queue = ReportQueue::new(2);
    assert_eq!(fill(&mut queue, handshake), bounds::HANDSHAKES);
    assert_eq!(fill(&mut queue, || proof(1)), 2);
    assert!(queue.push((), message(1, 10)).is_empty());
    queue.drop_all_but_proofs();
    assert_eq!(std::iter::from_fn(|| queue.pop()).count(), 2);
    assert_eq!(fill(&mut queue, handshake), bounds::HANDSHAKES);
}

#[test]
fn a_proof_that_finds_no_room_is_the_next_one_again() {
    let mut lane = ReportQueue::new(usize::MAX);
    let mut core = ReportQueue::new(1);
    for id in 0..3 {
        let peer = NodeAddr::new([1; 16]);
        assert!(
            lane.push((), Report::Session(peer, SessionReport::Proven { id: EpochId(id) }))
                .is_empty()
        );
    }
    let mut heard = Vec::new();
    while !lane.is_empty() {
        while let Some(((), report)) = lane.pop() {
            if let Some(proof) = core.push((), report).pop() {
                lane.put_back((), proof);
                break;
            }
        }
        heard.extend(std::iter::from_fn(|| core.pop()).map(|(_, report)| match report {
            Report::Session(_, SessionReport::Proven { id, .. }) => id.0,
            _ => u32::MAX,
        }));
    }
    assert_eq!(heard, [0, 1, 2]);
}

/// A new address of a link that was reported before its keys were proven must not reach the core
/// behind the proof, which reports the path.
#[test]
fn a_proof_of_a_link_takes_the_place_of_earlier_moves() {
    let moved = |link: u32| {
        Report::Link(
            LinkId(link),
            LinkReport::Roamed {
                path: Endpoint::from(([192, 0, 2, 9], 2121)),
                room: 0,
            },
        )
    };
    let mut queue = ReportQueue::new(bounds::PROOFS);
    for report in [moved(1), moved(2), message(1, 5), proof(1), moved(1)] {
        assert!(queue.push((), report).is_empty());
    }
    let order: Vec<_> = std::iter::from_fn(|| queue.pop()).map(|(_, report)| report).collect();
    let links: Vec<_> = order.iter().map(|report| (report.is_proof(), report.cause())).collect();
    let link = |link| Cause::Link(LinkId(link));
    assert_eq!(
        links,
        [(true, link(1)), (false, link(2)), (false, link(1)), (false, link(1))]
    );
    assert!(matches!(order.last(), Some(Report::Link(_, LinkReport::Roamed { .. }))));
    assert_eq!((queue.load(), queue.check()), (Load::default(), Ok(())));
}

/// A peer that floods a service keeps neither its own other reports out nor those of other peers.
#[test]
fn messages_for_services_have_a_share_of_their_own() {
    let (flooding, other) = (NodeAddr::new([1; 16]), NodeAddr::new([2; 16]));
    let service = |peer| {
        let ports = DataPorts { src: 7_371, dst: 7_371 };
        let bytes = vec![0; 1_000];
        Report::Session(peer, SessionReport::Service { ports, bytes })
    };
    let message = |peer| {
        let (id, body) = (EpochId(0), vec![0; 100]);
        let msg_type = 0xf0;
        Report::Session(peer, SessionReport::Message { id, msg_type, body })
    };
    let mut queue = ReportQueue::new(bounds::PROOFS);
    fill(&mut queue, || service(flooding));
    let flood = queue.load().bytes;
    assert!(flood <= bounds::REPORTS.bytes / 5 + 2_000, "{flood}");
    for report in [message(flooding), message(other), service(other)] {
        assert!(queue.push((), report).is_empty());
    }
    assert_eq!(queue.check(), Ok(()));
}
