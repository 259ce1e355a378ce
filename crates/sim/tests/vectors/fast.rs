//! The weft-only part of the examples: fast frames, from capabilities to the second phase.

use weft_contract::{Command, EpochId, FastKeys, ReceiverIndex, Report, SendCommand, SessionCommand, SessionReport};
use weft_noise::fast::{Seed, Suite};
use weft_noise::{Established, Role};
use weft_packet::Inbound;
use weft_wire::checksum::{checksum_fold, pseudo_header_sum_v6};
use weft_wire::fast::{
    CAPABILITIES, CAPABILITIES_ACK, CONFIRM, CONFIRM_ANSWERS, CONFIRM_ASKS, Capabilities, PHASE, READS_FULL,
};
use weft_wire::session;
use weft_wire::virtio::{NEEDS_CSUM, VirtioNetHdr};

use crate::book::Book;
use crate::node::{Node, label};
use crate::reader::fast::{self as reader, Frame, Phase};
use crate::reader::{Keys, sha256};
use crate::{carry, carry_back, from_a, from_b, full, sizes};

pub const A_FAST: u32 = 0xa4a5_a6a7;
pub const B_FAST: u32 = 0xb4b5_b6b7;
pub const MAX_PAYLOAD: u16 = 65_507;
pub const A_SUITES: [(u8, u32); 2] = [(1, 700), (3, 2_300)];
pub const B_SUITES: [(u8, u32); 2] = [(1, 9_000), (3, 8_000)];
pub const ID: EpochId = EpochId(0);
/// Frames in a phase of the example; the number is not visible on the wire.
const PHASE_FRAMES: u64 = 6;

/// Writes the whole part. The nodes share a link and a session.
pub fn fast_frames(
    book: &mut Book,
    (a, b): (&mut Node, &mut Node),
    (at_a, at_b): (&Established, &Established),
    (link, session): (&Keys, &Keys),
) {
    let bodies = capabilities(book, (a, b), (link, session));
    let keys = key_schedule(book, session, &Seed::new(at_a, Role::Initiator), &bodies);
    install(a, b, (at_a, at_b), &bodies);
    confirm(book, a, b, &keys);
    ipv6(book, a, b, &keys);
    sizes::probe(book, a, b, &keys);
    sizes::pieces(book, a, b, &keys);
    second_phase(book, a, b, &keys);
    full::full(book, a, b, &keys);
}

/// Both bodies; A's is sent, and acknowledged.
fn capabilities(book: &mut Book, (a, b): (&mut Node, &mut Node), (link, session): (&Keys, &Keys)) -> [Vec<u8>; 2] {
    book.section(
        "capabilities",
        &[
            "A to B: session counter 2 at 5,450 ms, link counter 5 at 5,500 ms. A's index for fast frames is 0xa4a5a6a7,",
            "B's 0xb4b5b6b7; random is the first 16 bytes of the label \"A random\", likewise for B.",
        ],
    );
    let random = |name: &str| <[u8; 16]>::try_from(&label(&format!("{name} random"))[..16]).unwrap();
    let bodies = [("A", &A_SUITES, A_FAST), ("B", &B_SUITES, B_FAST)].map(|(name, suites, index)| {
        let body = reader::capabilities(MAX_PAYLOAD, &random(name), suites, &[index]);
        book.bytes(&format!("{name}.capabilities"), &body);
        let mut out = vec![0; Capabilities::MAX_LEN];
        let len =
            Capabilities::emit_with(READS_FULL, MAX_PAYLOAD, &random(name), suites, &[index], "", &mut out).unwrap();
        assert_eq!(out[..len], body);
        body
    });
    let message = from_a(session, 2, 5_450, CAPABILITIES, &bodies[0]).seal(book);
    let frame = carry(book, a, b, link, 5, 5_500, &message);
    book.bytes("datagram", &frame);
    pass(a, b, 6_500, &frame, CAPABILITIES, &bodies[0]);

    book.section(
        "capabilities ack",
        &["B to A: session counter 0 at 5,450 ms, link counter 1 at 5,522 ms."],
    );
    let body = reader::acknowledgement(&bodies[0]);
    let message = from_b(session, 0, 5_450, CAPABILITIES_ACK, &body).seal(book);
    let frame = carry_back(book, b, a, link, 1, 5_522, &message);
    book.bytes("datagram", &frame);
    pass(b, a, 6_510, &frame, CAPABILITIES_ACK, &body);
    bodies
}

/// One node sends a message of the session, and the other passes it to its core.
fn pass(from: &mut Node, to: &mut Node, now: u64, frame: &[u8], msg_type: u8, body: &[u8]) {
    let command = Command::Send(SendCommand::OnSession {
        peer: to.node_addr(),
        epoch: Some(ID),
        msg_type,
        body: body.to_vec(),
    });
    assert_eq!(from.send(now, command), frame);
    let (_, reports) = to.receive(now + 10, from.addr, frame);
    assert!(
        matches!(reports.last(), Some(Report::Session(_, SessionReport::Message { msg_type: t, body: b, .. })) if (*t, &b[..]) == (msg_type, body))
    );
}

/// The keys of the example.
pub struct Schedule {
    /// From A, in its first and second phase.
    pub from_a: [Phase; 2],
    pub from_b: Phase,
}

/// All suites, both directions, two phases; returns those of suite 1.
fn key_schedule(book: &mut Book, session: &Keys, seed: &Seed, [of_a, of_b]: &[Vec<u8>; 2]) -> Schedule {
    book.section(
        "fast keys",
        &[
            "From the exporter of the session handshake and both capabilities, for each suite; A-B is direction 0, as A opened",
            "the session. suiteN.frame is A's confirm below, sealed in that suite.",
        ],
    );
    book.bytes("salt", sha256(&[of_a, of_b]));
    let prk = reader::prk(&session.exporter, of_a, of_b);
    book.bytes("PRK", prk);
    for suite in Suite::ALL {
        let number = suite.number();
        for (direction, name) in ["A-B", "B-A"].into_iter().enumerate() {
            let first = Phase::first(&prk, number, direction as u8);
            first.tell(&format!("suite{number}.{name}.phase0"), book);
            first.next().tell(&format!("suite{number}.{name}.phase1"), book);
        }
        let frame = confirm_frame(&Phase::first(&prk, number, 0), true).seal(&mut Book::default());
        book.bytes(&format!("suite{number}.frame"), &frame);
        let (header, sealed) = frame.split_at(16);
        let mut ours = [2, 0, 0, 0, CONFIRM, CONFIRM_ASKS];
        let cipher = seed.secrets(of_a, of_b, suite, 0).send.cipher(suite);
        let tag = cipher.seal_in_place(0, header, &mut ours);
        assert_eq!([&ours[..], &tag].concat(), sealed);
    }
    let first = Phase::first(&prk, 1, 0);
    let second = first.next();
    Schedule {
        from_a: [first, second],
        from_b: Phase::first(&prk, 1, 1),
    }
}

/// Installs the keys that the crates derive in each lane, A at 7,000 ms and B 10 ms later.
fn install(a: &mut Node, b: &mut Node, (at_a, at_b): (&Established, &Established), [of_a, of_b]: &[Vec<u8>; 2]) {
    let suite = Suite::choose(&A_SUITES, &B_SUITES).unwrap();
    let ends = [
        (7_000, a.node_addr(), b.node_addr(), Seed::new(at_a, Role::Initiator)),
        (7_010, b.node_addr(), a.node_addr(), Seed::new(at_b, Role::Responder)),
    ];
    for (now, me, peer, seed) in ends {
        let of_us = me == a.node_addr();
        let (node, ours, theirs) = if of_us {
            (&mut *a, of_a, of_b)
        } else {
            (&mut *b, of_b, of_a)
        };
        let told = Capabilities::parse(theirs).unwrap();
        let keys = FastKeys {
            id: ID,
            our_index: if of_us {
                ReceiverIndex(A_FAST)
            } else {
                ReceiverIndex(B_FAST)
            },
            their_index: ReceiverIndex(told.indices().next().unwrap()),
            max_payload: told.max_payload,
            reads_full: told.flags & READS_FULL != 0,
            suite,
            secrets: seed.secrets(ours, theirs, suite, 0),
            phase_frames: PHASE_FRAMES,
        };
        node.apply(now, Command::Session(peer, SessionCommand::InstallFast { keys }));
    }
}

/// A's confirm, or B's answer 12 ms later.
fn confirm_frame(keys: &Phase, asks: bool) -> Frame<'_> {
    let (receiver_index, clock, content): (_, _, &[u8]) = if asks {
        (B_FAST, 2, &[CONFIRM, CONFIRM_ASKS])
    } else {
        (A_FAST, 2, &[CONFIRM, CONFIRM_ANSWERS])
    };
    Frame {
        keys,
        kind: reader::MESSAGE,
        flags: 0,
        receiver_index,
        counter: 0,
        clock,
        content,
    }
}

fn confirm(book: &mut Book, a: &mut Node, b: &mut Node, keys: &Schedule) {
    let about = "A asks 2 ms after its keys began, in suite 1. datagram = fast.header, the sealed fast.plain, tag.";
    book.section("confirm", &[about]);
    let frame = confirm_frame(&keys.from_a[0], true).seal(book);
    let peer = b.node_addr();
    assert_eq!(
        a.send(7_002, Command::Session(peer, SessionCommand::ConfirmFast { id: ID })),
        frame
    );
    let (packet, reports) = b.receive(7_012, a.addr, &frame);
    assert_eq!((packet, reports.len()), (None, 0), "a question proves nothing");

    book.section("confirm answered", &["By B, 2 ms after its own began."]);
    let answer = confirm_frame(&keys.from_b, false).seal(book);
    assert_eq!(b.take_sent(), [&answer[..]]);
    let (_, reports) = a.receive(7_022, b.addr, &answer);
    assert!(matches!(
        reports[..],
        [Report::Session(_, SessionReport::FastProven { id: ID, .. })]
    ));
}

fn ipv6(book: &mut Book, a: &mut Node, b: &mut Node, keys: &Schedule) {
    let ip = crate::ip_packet(a, b);
    let seal = |partial: bool, ip: &[u8], book: &mut Book| {
        let frame = Frame {
            keys: &keys.from_a[0],
            kind: reader::IPV6,
            flags: if partial { 2 } else { 0 },
            receiver_index: B_FAST,
            counter: 1 + u64::from(partial),
            clock: 1_000 + u32::from(partial),
            content: &reader::ipv6_content(ip, partial),
        };
        frame.seal(book)
    };
    book.section("fast data", &["The packet of \"data\" again: counter 1 at 1,000 ms."]);
    book.bytes("ip", &ip);
    let whole = seal(false, &ip, book);
    assert_eq!(whole.len(), ip.len() + weft_wire::fast::IPV6_OVERHEAD);
    assert_eq!(a.outbound(8_000, VirtioNetHdr::default(), &ip), whole);
    let (packet, reports) = b.receive(8_010, a.addr, &whole);
    assert_eq!(packet.as_ref(), Some(&ip));
    assert!(matches!(
        reports[..],
        [Report::Session(_, SessionReport::FastProven { .. })]
    ));
    assert_eq!(b.receive(8_010, a.addr, &whole).0, None, "a replay");

    book.section(
        "fast data without checksum",
        &[
            "The same as A's kernel hands it over before it has summed: the field holds the pseudo-header's sum. Counter 2",
            "at 1,001 ms. B hands it on with that sum in place again.",
        ],
    );
    let begun = begun_checksum(&ip, a, b);
    book.bytes("ip", &begun);
    let partial = seal(true, &begun, book);
    let hdr = VirtioNetHdr {
        flags: NEEDS_CSUM,
        csum_start: 40,
        csum_offset: 6,
        ..VirtioNetHdr::default()
    };
    assert_eq!(a.outbound(8_001, hdr, &begun), partial);
    let mut room = [&[0; weft_packet::HEADROOM][..], &partial].concat();
    let Inbound::Packet(range, _) = b.lane.inbound(8_011, a.addr, &mut room, &mut b.train) else {
        unreachable!("the frame does not open");
    };
    assert_eq!(room[range], begun);
}

/// The packet with a partial checksum: the sum of its pseudo-header.
fn begun_checksum(ip: &[u8], a: &Node, b: &Node) -> Vec<u8> {
    let (src, dst) = (a.node_addr().to_ipv6(), b.node_addr().to_ipv6());
    let sum = checksum_fold(pseudo_header_sum_v6(src, dst, 17, ip.len() as u32 - 40));
    let mut begun = ip.to_vec();
    begun[46..48].copy_from_slice(&sum.to_be_bytes());
    begun
}

fn second_phase(book: &mut Book, a: &mut Node, b: &mut Node, keys: &Schedule) {
    let about = "An alive message in A's second phase, which begins after six frames here: counter 6 at 1,004 ms.";
    book.section("fast message", &[about]);
    let frame = Frame {
        keys: &keys.from_a[1],
        kind: reader::MESSAGE,
        flags: 1,
        receiver_index: B_FAST,
        counter: 6,
        clock: 1_004,
        content: &[session::ALIVE],
    };
    let frame = frame.seal(book);
    let command = Command::Send(SendCommand::OnSession {
        peer: b.node_addr(),
        epoch: None,
        msg_type: session::ALIVE,
        body: Vec::new(),
    });
    assert_eq!(a.send(8_004, command), frame);
    let (_, reports) = b.receive(8_014, a.addr, &frame);
    assert!(
        matches!(reports.last(), Some(Report::Session(_, SessionReport::Message { msg_type: session::ALIVE, body, .. })) if body.is_empty())
    );

    book.section(
        "phase",
        &["B tells that it opens with A's phase 1: counter 2 at 1,004 ms."],
    );
    let told = Frame {
        keys: &keys.from_b,
        kind: reader::MESSAGE,
        flags: 0,
        receiver_index: A_FAST,
        counter: 2,
        clock: 1_004,
        content: &[PHASE, 1, 0, 0, 0],
    };
    let told = told.seal(book);
    assert_eq!(b.take_sent(), [&told[..]]);
    assert_eq!(a.receive(8_024, b.addr, &told).1.len(), 0);
    assert_eq!(a.lane.counters().fast_rx, 3);
}
