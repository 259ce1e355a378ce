//! The examples of sizes.md: a probe with its answer, and a packet in pieces.

use weft_contract::{Command, SessionCommand};
use weft_wire::fast::{PROBE, PROBE_ANSWER};
use weft_wire::virtio::VirtioNetHdr;

use crate::book::Book;
use crate::fast::{A_FAST, B_FAST, ID, Schedule};
use crate::node::Node;
use crate::reader::fast::{self as reader, Frame};

/// A probe of 60 bytes: much shorter than a real one, otherwise the same.
pub fn probe(book: &mut Book, a: &mut Node, b: &mut Node, keys: &Schedule) {
    book.section(
        "probe",
        &["A probes whether the path takes 60 bytes of UDP payload: number 5, counter 3 at 1,002 ms."],
    );
    let message = |msg_type: u8, zeros: usize| [&[msg_type][..], &5_u16.to_le_bytes(), &vec![0; zeros]].concat();
    let question = Frame {
        keys: &keys.from_a[0],
        kind: reader::MESSAGE,
        flags: 0,
        receiver_index: B_FAST,
        counter: 3,
        clock: 1_002,
        content: &message(PROBE, 60 - 16 - 4 - 1 - 2 - 16),
    };
    let question = question.seal(book);
    assert_eq!(question.len(), 60);
    let command = Command::Session(b.node_addr(), SessionCommand::ProbePath { id: 5, size: 60 });
    assert_eq!(a.send(8_002, command), question);

    book.section("probe answered", &["By B: counter 1 at 1,002 ms."]);
    let answer = Frame {
        keys: &keys.from_b,
        kind: reader::MESSAGE,
        flags: 0,
        receiver_index: A_FAST,
        counter: 1,
        clock: 1_002,
        content: &message(PROBE_ANSWER, 0),
    };
    let answer = answer.seal(book);
    assert_eq!(b.receive(8_012, a.addr, &question).1.len(), 0);
    assert_eq!(b.take_sent(), [&answer[..]]);
    let (_, reports) = a.receive(8_022, b.addr, &answer);
    assert!(
        matches!(reports[..], [weft_contract::Report::Session(_, weft_contract::SessionReport::Message { msg_type: PROBE_ANSWER, id: ID, ref body, .. })]
            if *body == 5_u16.to_le_bytes())
    );
}

/// The longest packet that always passes, 2 bytes more than one frame takes here.
pub fn pieces(book: &mut Book, a: &mut Node, b: &mut Node, keys: &Schedule) {
    book.section(
        "pieces",
        &[
            "A UDP packet of 1,280 bytes, of which frames of 1,280 take 1,278: counters 4 and 5 at 1,003 ms. content is what",
            "one frame would have carried behind its clock.",
        ],
    );
    let payload: Vec<u8> = (0..1_232_u32).map(|n| n as u8).collect();
    let ip = crate::udp_packet(a, b, &payload);
    assert_eq!(ip.len(), 1_280);
    let content = reader::ipv6_content(&ip, false);
    book.bytes("ip", &ip);
    book.bytes("content", &content);
    let half = content.len() / 2;
    let frames = content.chunks(half).zip([4, 5]).map(|(piece, counter)| {
        let offset = if counter == 4 { 0 } else { half as u16 };
        let frame = Frame {
            keys: &keys.from_a[0],
            kind: reader::PIECE,
            flags: 0,
            receiver_index: B_FAST,
            counter,
            clock: 1_003,
            content: &reader::piece(1, offset, &content, piece),
        };
        frame.seal(book)
    });
    let frames: Vec<Vec<u8>> = frames.collect();
    a.lane.outbound(8_003, VirtioNetHdr::default(), &ip, &mut a.train);
    assert_eq!(a.take_sent(), frames);

    // The later one first.
    assert_eq!(b.receive(8_013, a.addr, &frames[1]).0, None);
    assert_eq!(b.lane.poll_reply(), None);
    assert_eq!(b.receive(8_013, a.addr, &frames[0]).0, None);
    assert_eq!(b.lane.poll_reply(), Some(ip));
}
