//! Direct records of nvpn: sealed session messages as datagrams of their own. A node sends them to a neighbour
//! from which one has come, and tells them from frames of the link.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    dead_code,
    reason = "a test ends where its ground is missing, and the model has more than is needed here"
)]

#[path = "offload/model.rs"]
mod model;
#[path = "ends/pair.rs"]
mod pair;

use model::Packet;
use pair::*;
use proptest::prelude::*;
use weft_contract::{Command, Endpoint, EpochId, EpochUse, LinkCommand, SendCommand, SessionCommand, SessionKeys};
use weft_contract::{LinkReport, Report, SessionReport, TableCommand};
use weft_noise::aead::Cipher;
use weft_packet::DropReason;
use weft_wire::fsp::{EncryptedHeader, FLAG_COORDS, FLAG_DIRECT, FLAG_KEY_EPOCH, FspInner};
use weft_wire::session::{CONTROL_MAGIC, WHOLE_PACKET};

/// The bytes that a record adds to a packet: header, inner header and tag of the session.
const OVERHEAD: usize = 34;
/// The bytes that a frame of the link adds to it.
const LINK_OVERHEAD: usize = 106;

/// A record of `from` with this body, sealed outside the lane.
fn record(from: &End, (counter, flags): (u64, u8), key_kind: u8, body: &[u8]) -> Vec<u8> {
    let inner = FspInner {
        timestamp: 1,
        msg_type: WHOLE_PACKET,
        inner_flags: 0,
    };
    let mut sealed = [&inner.to_bytes()[..], body].concat();
    let header = EncryptedHeader {
        flags: FLAG_DIRECT | flags,
        payload_len: sealed.len() as u16,
        counter,
    }
    .to_bytes();
    let tag = Cipher::new(&key(key_kind, from.me, 0)).seal_in_place(counter, &header, &mut sealed);
    [&header[..], &sealed, &tag].concat()
}

/// Two ends without fast frames. A record of `b` has come to `a`, which sends records from now on.
fn ends() -> (End, End) {
    let (mut a, mut b) = (End::new(A, B, 1_280), End::new(B, A, 1_280));
    for end in [&mut a, &mut b] {
        end.apply(Command::Table(TableCommand::TakeWhole { on: true }));
    }
    let hello = record(&b, (40, 0), 2, CONTROL_MAGIC);
    assert_eq!(a.receive(&[hello]), [] as [Vec<u8>; 0]);
    (a, b)
}

fn is_record(frame: &[u8]) -> bool {
    frame[0] == 0 && frame[1] & FLAG_DIRECT != 0
}

fn udp(len: usize) -> Vec<u8> {
    let total = (28 + len) as u16;
    let mut packet = vec![0x45, 0, (total >> 8) as u8, total as u8, 0, 0, 0x40, 0, 64, 17, 0, 0];
    packet.extend([10, 7, 0, 1, 10, 8, 0, 1]);
    let sum = weft_wire::checksum::checksum_finish(weft_wire::checksum::checksum_add(0, &packet));
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    packet.extend([0x10, 0, 0x20, 0]);
    packet.extend(((8 + len) as u16).to_be_bytes());
    packet.resize(usize::from(total), 0);
    packet
}

fn dropped(end: &End, reason: DropReason) -> u64 {
    end.counters().drops[reason]
}

fn reports(end: &mut End) -> Vec<Report> {
    std::iter::from_fn(|| end.lane.poll_report()).collect()
}

proptest! {
    #[test]
    fn super_packets_arrive_as_without_offloads((packet, size) in model::super_packet()) {
        let packet = Packet { flags: packet.flags & !model::SYN, ..packet };
        let (mut a, mut b) = ends();
        a.send(WHOLE, &udp(1));
        let expected = packet.segments(usize::from(size));
        prop_assume!(expected.iter().all(|segment| segment.len() <= 1_150));
        let frames = a.send(gso(&packet, size), &packet.bytes_partial());
        for (frame, segment) in frames.iter().zip(&expected) {
            prop_assert!(is_record(frame));
            prop_assert_eq!(frame.len(), segment.len() + OVERHEAD);
        }
        prop_assert_eq!(b.receive(&frames), expected);
    }

    #[test]
    fn a_datagram_from_the_address_of_a_peer_can_be_anything(
        content in prop::collection::vec(any::<u8>(), 0..1_400), first in any::<bool>(),
    ) {
        let (mut a, _) = ends();
        let mut datagram = content;
        if let Some(start) = datagram.get_mut(..2).filter(|_| first) {
            start.copy_from_slice(&[0, FLAG_DIRECT]);
        }
        reports(&mut a);
        prop_assert_eq!(a.receive(&[datagram]), [] as [Vec<u8>; 0]);
        prop_assert!(DropReason::ALL.iter().map(|reason| dropped(&a, *reason)).sum::<u64>() <= 1);
    }
}

#[test]
fn records_go_to_a_peer_from_which_one_has_come() {
    let (mut a, mut b) = (End::new(A, B, 1_280), End::new(B, A, 1_280));
    for end in [&mut a, &mut b] {
        end.apply(Command::Table(TableCommand::TakeWhole { on: true }));
    }
    // A frame of the link says that the peer reads whole packets, and no more.
    b.apply(Command::Send(SendCommand::OnSession {
        peer: A,
        epoch: None,
        msg_type: WHOLE_PACKET,
        body: CONTROL_MAGIC.to_vec(),
    }));
    a.receive(&b.take_sent());
    for _ in 0..3 {
        let frames = a.send(WHOLE, &udp(9));
        assert_eq!(frames[0].len(), 37 + LINK_OVERHEAD);
    }
    a.receive(&[record(&b, (40, 0), 2, CONTROL_MAGIC)]);
    assert_eq!(
        a.send(WHOLE, &udp(9))[0].len(),
        37 + LINK_OVERHEAD,
        "the first shows where it is"
    );
    assert_eq!(a.send(WHOLE, &udp(9))[0].len(), 37 + OVERHEAD);
}

#[test]
fn a_frame_of_the_link_goes_out_every_200_ms() {
    let (mut a, mut b) = ends();
    let mut links = 0;
    for _ in 0..1_000 {
        let frames = a.send(WHOLE, &udp(9));
        links += frames.iter().filter(|frame| !is_record(frame)).count();
        assert_eq!(b.receive(&frames), [udp(9)]);
        a.now += 1;
    }
    assert_eq!(links, 5);
}

#[test]
fn a_record_counts_for_the_link_and_the_session() {
    let (mut a, mut b) = ends();
    a.send(WHOLE, &udp(9));
    let frames = a.send(WHOLE, &udp(9));
    b.now = 77_000;
    b.receive(&frames);
    b.lane.sample(b.now);
    let heard = reports(&mut b).into_iter().filter_map(|report| match report {
        Report::Activity { links, sessions } => Some((links[0].totals.last_rx, sessions[0].totals.last_rx)),
        _ => None,
    });
    assert_eq!(heard.collect::<Vec<_>>().last(), Some(&(77_000, 77_000)));
}

#[test]
fn a_record_from_another_address_is_not_opened() {
    let (mut a, mut b) = ends();
    a.send(WHOLE, &udp(9));
    let frames = a.send(WHOLE, &udp(9));
    let elsewhere = Endpoint::from(([192, 0, 2, 99], 2121));
    assert_eq!(b.lane.inbound_alone(b.now, elsewhere, &frames[0], &mut b.train), None);
    assert_eq!(dropped(&b, DropReason::RecordUnknown), 1);
    // The peer has moved there.
    let path = elsewhere;
    b.apply(Command::Link(
        LINK,
        LinkCommand::Place {
            peer: A,
            path,
            left: None,
        },
    ));
    assert_eq!(
        b.lane.inbound_alone(b.now, elsewhere, &frames[0], &mut b.train),
        Some(udp(9))
    );
    assert_eq!(
        b.lane.inbound_alone(b.now, elsewhere, &frames[0], &mut b.train),
        None,
        "a second time"
    );
    assert_eq!(dropped(&b, DropReason::SessionReplay), 1);
}

#[test]
fn a_forged_record_ends_nothing() {
    let (mut a, mut b) = ends();
    reports(&mut a);
    for flags in [0, FLAG_COORDS, FLAG_KEY_EPOCH, 0xf0] {
        assert_eq!(a.receive(&[record(&b, (41, flags), 7, &udp(9))]), [] as [Vec<u8>; 0]);
    }
    let told = reports(&mut a);
    assert!(told.len() <= 1, "{told:?}");
    assert!(
        told.iter()
            .all(|report| matches!(report, Report::Link(LINK, LinkReport::UnknownSession { src: B })))
    );
    let frames = a.send(WHOLE, &udp(9));
    assert_eq!(b.receive(&frames), [udp(9)]);
}

#[test]
fn a_record_may_come_before_its_keys() {
    let (mut a, b) = ends();
    reports(&mut a);
    let keys = |id| SessionKeys {
        id: EpochId(id),
        initiator: true,
        send: key(8, A, 0),
        recv: key(8, B, 0),
    };
    // A message of a handshake is on its way.
    let early = record(&b, (0, FLAG_KEY_EPOCH), 8, CONTROL_MAGIC);
    a.receive(std::slice::from_ref(&early));
    assert_eq!(dropped(&a, DropReason::SessionTag), 1, "nothing announces keys");
    let usage = EpochUse::Candidate;
    a.apply(Command::Session(B, SessionCommand::Install { keys: keys(1), usage }));
    a.receive(&[early]);
    let proven = reports(&mut a);
    let is_proof = |report: &Report| matches!(report, Report::Session(B, SessionReport::Proven { id: EpochId(1) }));
    assert!(proven.iter().any(is_proof), "{proven:?}");
}

#[test]
fn with_new_keys_records_wait_for_one_of_the_peer() {
    let (mut a, b) = ends();
    a.send(WHOLE, &udp(9));
    assert!(is_record(&a.send(WHOLE, &udp(9))[0]));
    let keys = SessionKeys {
        id: EpochId(1),
        initiator: true,
        send: key(8, A, 0),
        recv: key(8, B, 0),
    };
    let usage = EpochUse::Send;
    a.apply(Command::Session(B, SessionCommand::Install { keys, usage }));
    assert!(!is_record(&a.send(WHOLE, &udp(9))[0]));
    a.receive(&[record(&b, (0, FLAG_KEY_EPOCH), 8, CONTROL_MAGIC)]);
    assert!(is_record(&a.send(WHOLE, &udp(9))[0]));
}

#[test]
fn turned_off_a_record_is_a_frame_of_no_link() {
    let (mut a, b) = ends();
    a.apply(Command::Table(TableCommand::TakeWhole { on: false }));
    assert_eq!(a.receive(&[record(&b, (41, 0), 2, CONTROL_MAGIC)]), [] as [Vec<u8>; 0]);
    assert_eq!(dropped(&a, DropReason::Malformed), 1, "its length is wrong");
}
