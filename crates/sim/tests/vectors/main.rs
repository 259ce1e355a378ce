//! The worked examples of docs/protocol/vectors.txt, generated again and compared, and the figures
//! in docs/protocol/ compared with the code.
//!
//! Every byte is computed twice: by the crates, through their public interface, and by [`reader`],
//! which follows the document alone. `WEFT_BLESS=1` rewrites the file.
#![allow(
    unreachable_pub,
    clippy::unwrap_used,
    reason = "a test ends where its ground is missing"
)]

mod book;
mod document;
mod fast;
mod fips;
mod full;
mod hops;
mod node;
mod reader;
mod sizes;

use std::path::Path;

use weft_contract::{Command, EpochUse, LinkReport, ReceiverIndex, Report, SendCommand, SessionReport};
use weft_noise::{Established, ik, xk};
use weft_packet::DropReason;
use weft_wire::checksum::{checksum_add, checksum_finish, pseudo_header_sum_v6};
use weft_wire::link::{Disconnect, DisconnectReason, LinkMessageType, SessionDatagram};
use weft_wire::session::{self, SessionAck, SessionMessageType, SessionMsg3, SessionSetup};
use weft_wire::virtio::VirtioNetHdr;
use weft_wire::{Coords, fmp};

use book::Book;
use node::{LINK, MTU, Node, ephemeral, label, scalar};
use reader::{Keys, LinkFrame, SessionMessage, sha256};

const A_INDEX: u32 = 0xa0a1_a2a3;
const B_INDEX: u32 = 0xb0b1_b2b3;

#[test]
fn the_vectors_are_what_the_code_does() {
    let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/protocol/vectors.txt"));
    let fresh = vectors();
    if std::env::var_os("WEFT_BLESS").is_some() {
        std::fs::write(path, &fresh).unwrap();
    }
    let committed = std::fs::read_to_string(path).unwrap();
    for (n, (is, was)) in fresh.lines().zip(committed.lines()).enumerate() {
        assert_eq!(
            is,
            was,
            "line {}: the bytes changed; WEFT_BLESS=1 rewrites the file",
            n + 1
        );
    }
    assert_eq!(fresh.len(), committed.len(), "one is longer");
}

fn vectors() -> String {
    let mut book = Book::default();
    book.note(&[
        "Worked examples for docs/protocol.md. Every line is a name, a length in bytes, and that many bytes in",
        "hexadecimal in the order of the wire; \"text\" instead of a length marks text. Secrets are the SHA-256 of",
        "\"weft protocol vectors: \" followed by \"A static key\", \"A ik ephemeral\", \"A xk ephemeral\" and, of which the",
        "first 8 bytes are the start-up epoch, \"A epoch\"; likewise for B.",
        "A test makes all of this anew and compares; see \"Test vectors\" in docs/protocol.md.",
    ]);
    let (mut a, mut b) = (Node::new("A", [192, 0, 2, 1]), Node::new("B", [192, 0, 2, 2]));
    identities(&mut book, &a, &b);
    let (at_a, at_b, link_keys) = link_handshake(&mut book, &a, &b);
    a.install_link(1_000, (LINK, b.addr), &at_a, (A_INDEX, B_INDEX), EpochUse::Send);
    b.install_link(988, (LINK, a.addr), &at_b, (B_INDEX, A_INDEX), EpochUse::Candidate);
    heartbeat(&mut book, &mut a, &mut b, &link_keys);
    let keys = session(&mut book, &mut a, &mut b, &link_keys);
    hops::relayed_frames(&mut book, (&mut a, &mut b), (&at_a, &at_b), &link_keys);
    disconnect(&mut book, &mut a, &mut b, &link_keys);
    relay_probe(&mut book, &mut a, &mut b, &link_keys, &keys);
    book.finish()
}

fn identities(book: &mut Book, a: &Node, b: &Node) {
    book.section("identities", &["A opens link and session, B answers."]);
    for (name, node) in [("A", a), ("B", b)] {
        let point = reader::point(&node.end.s);
        assert_eq!(point[1..], node.x());
        assert_eq!(node.node_addr().as_bytes()[..], sha256(&[&node.x()])[..16]);
        let ipv6 = [&[0xfd][..], &node.node_addr().as_bytes()[..15]].concat();
        assert_eq!(node.node_addr().to_ipv6().octets()[..], ipv6);
        book.bytes(&format!("{name}.secret"), node.end.s.secret_bytes());
        book.bytes(&format!("{name}.point"), point);
        book.bytes(&format!("{name}.public"), node.x());
        book.text(&format!("{name}.npub"), &node.identity.public().to_string());
        book.text(&format!("{name}.nsec"), &node.identity.secret().to_nsec());
        book.bytes(&format!("{name}.node_addr"), node.node_addr());
        book.text(&format!("{name}.ipv6"), &node.node_addr().to_ipv6().to_string());
        book.bytes(&format!("{name}.epoch"), node.end.epoch);
    }
}

/// Both ends' results by the crates, and the keys by the reader.
fn link_handshake(book: &mut Book, a: &Node, b: &Node) -> (Established, Established, Keys) {
    book.section(
        "link handshake",
        &["Noise IK. x.h, x.ck, x.k: the state after token or field x; x.dh: the Diffie-Hellman result."],
    );
    book.bytes("A.ephemeral", a.end.e.secret_bytes());
    book.bytes("B.ephemeral", b.end.e.secret_bytes());
    let (pending, msg1) = ik::Initiator::start(&a.identity, b.identity.public(), a.end.epoch, &mut ephemeral(&a.end));
    let received = ik::Responder::read(&b.identity, &msg1).unwrap();
    let (msg2, established_b) = received.accept(b.end.epoch, &mut ephemeral(&b.end));
    let established_a = pending.finish(&msg2).unwrap();

    let (read1, keys) = reader::ik_initiator(&a.end, &b.x(), book, |_| msg2.to_vec());
    let (read2, initiator, keys_of_b) = reader::ik_responder(&b.end, &msg1, &mut Book::default());
    assert_eq!((&read1[..], &read2[..]), (&msg1[..], &msg2[..]));
    assert_eq!((&initiator[..], &keys), (&a.x()[..], &keys_of_b));
    check_keys(&keys, &established_a, &established_b);

    book.bytes("exporter weft-fast-1", *established_a.exporter(b"weft fast 1"));
    book.note(&["The whole datagrams; A chose index 0xa0a1a2a3, B 0xb0b1b2b3."]);
    let frame1 = reader::handshake_frame(1, &[A_INDEX], &msg1);
    let frame2 = reader::handshake_frame(2, &[B_INDEX, A_INDEX], &msg2);
    book.bytes("msg1.datagram", &frame1);
    book.bytes("msg2.datagram", &frame2);
    let mut out = [0; 256];
    let len = fmp::Msg1 {
        sender_idx: A_INDEX,
        noise: &msg1,
    }
    .emit(&mut out)
    .unwrap();
    assert_eq!(out[..len], frame1);
    let len = fmp::Msg2 {
        sender_idx: B_INDEX,
        receiver_idx: A_INDEX,
        noise: &msg2,
    }
    .emit(&mut out)
    .unwrap();
    assert_eq!(out[..len], frame2);
    (established_a, established_b, keys)
}

fn heartbeat(book: &mut Book, a: &mut Node, b: &mut Node, keys: &Keys) {
    book.section(
        "heartbeat",
        &[
            "A's first frame, 2 ms after A installed its keys: the proof that B waits for.",
            "link.plain = link.inner, link.body; link.sealed = ciphertext, tag; datagram = link.header, link.sealed.",
        ],
    );
    let frame = to_b(keys, 0, 2, LinkMessageType::Heartbeat.to_byte(), &[]).seal(book);
    book.bytes("datagram", &frame);
    let ours = a.send(1_002, on_link(LinkMessageType::Heartbeat.to_byte(), Vec::new()));
    assert_eq!(ours, frame);
    let (_, reports) = b.receive(1_012, a.addr, &frame);
    assert!(matches!(
        reports[..],
        [Report::Link(
            LINK,
            LinkReport::Proven {
                index: ReceiverIndex(B_INDEX),
                ..
            }
        )]
    ));
}

fn session(book: &mut Book, a: &mut Node, b: &mut Node, link_keys: &Keys) -> Keys {
    a.end.e = scalar(&label("A xk ephemeral"));
    b.end.e = scalar(&label("B xk ephemeral"));
    book.section("session handshake", &["Noise XK, named as above."]);
    book.bytes("A.ephemeral", a.end.e.secret_bytes());
    book.bytes("B.ephemeral", b.end.e.secret_bytes());
    let (pending, msg1) = xk::Initiator::start(b.identity.public(), &mut ephemeral(&a.end));
    let (waiting, msg2) = xk::Responder::read(&b.identity, &msg1, b.end.epoch, &mut ephemeral(&b.end)).unwrap();
    let (msg3, at_a) = pending.finish(&a.identity, &msg2, a.end.epoch).unwrap();
    let at_b = waiting.finish(&msg3).unwrap();

    let (read1, read3, keys) = reader::xk_initiator(&a.end, &b.x(), book, |_| msg2.to_vec());
    let (read2, initiator, keys_of_b) = reader::xk_responder(&b.end, &msg1, &mut Book::default(), |_| msg3.to_vec());
    assert_eq!((&read1[..], &read2[..], &read3[..]), (&msg1[..], &msg2[..], &msg3[..]));
    assert_eq!((&initiator[..], &keys), (&a.x()[..], &keys_of_b));
    check_keys(&keys, &at_a, &at_b);
    book.bytes("exporter weft-fast-1", *at_a.exporter(b"weft fast 1"));

    let messages = session_messages(book, a, b, [&msg1, &msg2, &msg3]);
    session_datagrams(book, a, b, link_keys, &messages);
    let (a_addr, b_addr) = (a.node_addr(), b.node_addr());
    a.install_session(1_050, b_addr, &at_a);
    b.install_session(1_060, a_addr, &at_b);
    alive(book, a, b, link_keys, &keys);
    data(book, a, b, link_keys, &keys);
    fast::fast_frames(book, (a, b), (&at_a, &at_b), (link_keys, &keys));
    keys
}

/// SessionSetup, SessionAck and SessionMsg3 with weft's values.
fn session_messages(book: &mut Book, a: &Node, b: &Node, noise: [&[u8]; 3]) -> [Vec<u8>; 3] {
    book.note(&["The session messages that carry them."]);
    let (addr_a, addr_b) = (a.node_addr(), b.node_addr());
    let messages = [
        reader::setup_or_ack(1, addr_a.as_bytes(), addr_b.as_bytes(), noise[0]),
        reader::setup_or_ack(2, addr_b.as_bytes(), addr_a.as_bytes(), noise[1]),
        reader::msg3(noise[2]),
    ];
    for (name, message) in ["SessionSetup", "SessionAck", "SessionMsg3"].iter().zip(&messages) {
        book.bytes(name, message);
    }
    let (from_a, from_b) = ([addr_a], [addr_b]);
    let mut out = [0; 256];
    let setup = SessionSetup {
        flags: 0,
        src: Coords::new(&from_a),
        dest: Coords::new(&from_b),
        noise: noise[0],
    };
    let len = setup.emit(&mut out).unwrap();
    assert_eq!(out[..len], messages[0]);
    let ack = SessionAck {
        flags: 0,
        src: Coords::new(&from_b),
        dest: Coords::new(&from_a),
        noise: noise[1],
    };
    let len = ack.emit(&mut out).unwrap();
    assert_eq!(out[..len], messages[1]);
    let msg3 = SessionMsg3 {
        flags: 0,
        noise: noise[2],
    };
    let len = msg3.emit(&mut out).unwrap();
    assert_eq!(out[..len], messages[2]);
    messages
}

/// The three messages in transit, each in a SessionDatagram in a link frame.
fn session_datagrams(book: &mut Book, a: &mut Node, b: &mut Node, keys: &Keys, messages: &[Vec<u8>; 3]) {
    let [setup, ack, msg3] = messages;
    book.section("setup datagram", &["A to B: SessionSetup, link counter 1 at 10 ms."]);
    let body = reader::datagram(MTU, a.node_addr().as_bytes(), b.node_addr().as_bytes(), setup);
    let frame = to_b(keys, 1, 10, 0x00, &body).seal(book);
    pass(book, a, b, 1_010, setup, &frame);

    book.section(
        "ack datagram",
        &["B to A: SessionAck, link counter 0. B installed its keys 12 ms before A: its clock says 35 ms."],
    );
    let body = reader::datagram(MTU, b.node_addr().as_bytes(), a.node_addr().as_bytes(), ack);
    let frame = LinkFrame {
        key: keys.k2,
        receiver_idx: A_INDEX,
        ..to_b(keys, 0, 35, 0x00, &body)
    };
    let frame = frame.seal(book);
    pass(book, b, a, 1_023, ack, &frame);

    book.section("msg3 datagram", &["A to B: SessionMsg3, link counter 2 at 50 ms."]);
    let body = reader::datagram(MTU, a.node_addr().as_bytes(), b.node_addr().as_bytes(), msg3);
    let frame = to_b(keys, 2, 50, 0x00, &body).seal(book);
    pass(book, a, b, 1_050, msg3, &frame);
}

/// One node sends a session handshake message as the core does, and the other passes it to its
/// core.
fn pass(book: &mut Book, from: &mut Node, to: &mut Node, now: u64, message: &[u8], frame: &[u8]) {
    book.bytes("datagram", frame);
    let datagram = SessionDatagram {
        ttl: SessionDatagram::DEFAULT_TTL,
        path_mtu: MTU,
        src: from.node_addr(),
        dest: to.node_addr(),
        payload: message,
    };
    let mut body = vec![0; datagram.wire_len()];
    datagram.emit(&mut body).unwrap();
    assert_eq!(from.send(now, on_link(0x00, body.clone())), frame);
    let (_, reports) = to.receive(now + 10, from.addr, frame);
    assert!(
        matches!(reports.last(), Some(Report::Link(_, LinkReport::Message { msg_type: 0, body: read, .. })) if *read == body)
    );
}

fn alive(book: &mut Book, a: &mut Node, b: &mut Node, link_keys: &Keys, keys: &Keys) {
    book.section(
        "alive",
        &["A shows that it holds the session's keys: session counter 0, link counter 3, both clocks at 51 and 1 ms."],
    );
    let message = from_a(keys, 0, 1, session::ALIVE, &[]).seal(book);
    let frame = carry(book, a, b, link_keys, 3, 51, &message);
    book.bytes("datagram", &frame);
    let command = Command::Send(SendCommand::OnSession {
        peer: b.node_addr(),
        epoch: None,
        msg_type: session::ALIVE,
        body: Vec::new(),
    });
    assert_eq!(a.send(1_051, command), frame);
    let (_, reports) = b.receive(1_061, a.addr, &frame);
    assert!(
        matches!(reports.last(), Some(Report::Session(_, SessionReport::Message { msg_type: session::ALIVE, body, .. })) if body.is_empty())
    );
}

fn data(book: &mut Book, a: &mut Node, b: &mut Node, link_keys: &Keys, keys: &Keys) {
    book.section(
        "data",
        &[
            "A UDP datagram \"hello, B\" from A to B: session counter 1 at 4,950 ms, link counter 4 at 5,000 ms.",
            "session.body = ports, shim, upper layer; session.plain = session.inner, session.body;",
            "link.body = SessionDatagram header, session.header, session.sealed.",
        ],
    );
    let ip = ip_packet(a, b);
    book.bytes("ip", &ip);
    let body = reader::data_body(&ip);
    book.bytes("ports", &body[..4]);
    book.bytes("shim", &body[4..11]);
    book.bytes("upper", &body[11..]);
    let message = from_a(keys, 1, 4_950, SessionMessageType::Data.to_byte(), &body).seal(book);
    let frame = carry(book, a, b, link_keys, 4, 5_000, &message);
    book.bytes("datagram", &frame);
    assert_eq!(frame.len(), ip.len() + weft_packet::IPV6_OVERHEAD);

    assert_eq!(a.outbound(6_000, VirtioNetHdr::default(), &ip), frame);
    assert_eq!(b.receive(6_010, a.addr, &frame).0, Some(ip));
    assert_eq!(b.receive(6_010, a.addr, &frame).0, None, "a replay");
    assert_eq!(b.lane.counters().drops[DropReason::LinkReplay], 1);
}

fn disconnect(book: &mut Book, a: &mut Node, b: &mut Node, keys: &Keys) {
    book.section("disconnect", &["A stops: reason 0x00, link counter 7 at 9,000 ms."]);
    let msg_type = LinkMessageType::Disconnect.to_byte();
    let frame = to_b(keys, 7, 9_000, msg_type, &[0x00]).seal(book);
    book.bytes("datagram", &frame);
    let mut body = [0; Disconnect::LEN];
    let reason = DisconnectReason::Shutdown;
    Disconnect { reason }.emit(&mut body).unwrap();
    assert_eq!(a.send(10_000, on_link(msg_type, body.to_vec())), frame);
    let (_, reports) = b.receive(10_010, a.addr, &frame);
    assert!(matches!(&reports[..], [Report::Link(_, LinkReport::Message { body, .. })] if body == &[0]));
}

/// The keys are those of before, as if A had not stopped: the example is behind all others.
fn relay_probe(book: &mut Book, a: &mut Node, b: &mut Node, link_keys: &Keys, keys: &Keys) {
    book.section(
        "relay probe",
        &["A probes the path over its link with B, which is B itself here: number 5, session counter 3, link counter 8."],
    );
    let body = 5_u32.to_le_bytes();
    let message = from_a(keys, 3, 9_050, session::RELAY_PROBE, &body).seal(book);
    let question = carry(book, a, b, link_keys, 8, 9_100, &message);
    book.bytes("datagram", &question);
    let command = Command::Send(SendCommand::ProbeRelay {
        peer: b.node_addr(),
        link: LINK,
        number: 5,
        coords: None,
    });
    assert_eq!(a.send(10_100, command), question);

    book.section(
        "relay probe answered",
        &["By B, over the same link: session counter 1, link counter 3."],
    );
    assert_eq!(b.receive(10_110, a.addr, &question).1.len(), 0);
    let message = from_b(keys, 1, 9_050, session::RELAY_PROBE_ANSWER, &body).seal(book);
    let answer = carry_back(book, b, a, link_keys, 3, 9_122, &message);
    book.bytes("datagram", &answer);
    assert_eq!(b.take_sent(), [&answer[..]]);
    let (_, reports) = a.receive(10_120, b.addr, &answer);
    assert!(
        matches!(&reports[..], [Report::Session(_, SessionReport::Message { msg_type: session::RELAY_PROBE_ANSWER, body: read, .. })] if *read == body)
    );
}

/// UDP, traffic class 0x2e, flow label 0x12345, hop limit 64.
fn ip_packet(a: &Node, b: &Node) -> Vec<u8> {
    udp_packet(a, b, b"hello, B")
}

fn udp_packet(a: &Node, b: &Node, payload: &[u8]) -> Vec<u8> {
    let len = 8 + payload.len() as u16;
    let (src, dst) = (a.node_addr().to_ipv6(), b.node_addr().to_ipv6());
    let mut udp = [40_000u16, 7, len, 0]
        .iter()
        .flat_map(|v| v.to_be_bytes())
        .collect::<Vec<u8>>();
    udp.extend_from_slice(payload);
    let sum = checksum_add(pseudo_header_sum_v6(src, dst, 17, len.into()), &udp);
    udp[6..8].copy_from_slice(&checksum_finish(sum).to_be_bytes());
    [
        &[0x62, 0xe1, 0x23, 0x45][..],
        &len.to_be_bytes(),
        &[17, 64],
        &src.octets(),
        &dst.octets(),
        &udp,
    ]
    .concat()
}

/// Wraps A's session message for B.
fn carry(book: &mut Book, a: &Node, b: &Node, keys: &Keys, counter: u64, at: u32, message: &[u8]) -> Vec<u8> {
    let body = reader::datagram(MTU, a.node_addr().as_bytes(), b.node_addr().as_bytes(), message);
    to_b(keys, counter, at, 0x00, &body).seal(book)
}

/// Wraps B's session message for A.
fn carry_back(book: &mut Book, b: &Node, a: &Node, keys: &Keys, counter: u64, at: u32, message: &[u8]) -> Vec<u8> {
    let body = reader::datagram(MTU, b.node_addr().as_bytes(), a.node_addr().as_bytes(), message);
    let frame = LinkFrame {
        key: keys.k2,
        receiver_idx: A_INDEX,
        // B reflects the bit of A's newest frame.
        ..to_b(keys, counter, at, 0x00, &body)
    };
    LinkFrame {
        flags: weft_wire::fmp::FLAG_SPIN,
        ..frame
    }
    .seal(book)
}

fn to_b<'a>(keys: &Keys, counter: u64, timestamp: u32, msg_type: u8, body: &'a [u8]) -> LinkFrame<'a> {
    // B's first frame, after A's second, reflects A's initial spin bit, so A turns it; its second,
    // after A's sixth, reflects that, and its third, after A's seventh, does so again.
    let flags = if matches!(counter, 2..=5 | 7..) {
        weft_wire::fmp::FLAG_SPIN
    } else {
        0
    };
    LinkFrame {
        key: keys.k1,
        flags,
        receiver_idx: B_INDEX,
        counter,
        timestamp,
        msg_type,
        body,
    }
}

fn from_a<'a>(keys: &Keys, counter: u64, timestamp: u32, msg_type: u8, body: &'a [u8]) -> SessionMessage<'a> {
    SessionMessage {
        key: keys.k1,
        flags: 0,
        counter,
        timestamp,
        msg_type,
        body,
    }
}

fn from_b<'a>(keys: &Keys, counter: u64, timestamp: u32, msg_type: u8, body: &'a [u8]) -> SessionMessage<'a> {
    SessionMessage {
        key: keys.k2,
        ..from_a(keys, counter, timestamp, msg_type, body)
    }
}

fn on_link(msg_type: u8, body: Vec<u8>) -> Command {
    Command::Send(SendCommand::OnLink {
        link: LINK,
        epoch: None,
        msg_type,
        body,
    })
}

fn check_keys(keys: &Keys, at_a: &Established, at_b: &Established) {
    let of = |established: &Established| (*established.send.as_bytes(), *established.recv.as_bytes());
    assert_eq!(of(at_a), (keys.k1, keys.k2));
    assert_eq!(of(at_b), (keys.k2, keys.k1));
    assert_eq!((at_a.handshake_hash, at_b.handshake_hash), (keys.h, keys.h));
    for established in [at_a, at_b] {
        assert_eq!(*established.exporter(b"weft fast 1"), keys.exporter);
        assert_eq!(*established.exporter(b"weft hop 1"), keys.hop_exporter);
    }
}
