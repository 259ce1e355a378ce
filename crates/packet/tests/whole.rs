//! Packets with their whole header in FIPS frames, as nodes of nvpn send and read them: they pass once
//! the peer has shown that it reads them, like those in fast frames, and control frames are told from
//! them.

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
use weft_contract::{Command, Report, SendCommand, SessionReport, TableCommand};
use weft_packet::DropReason;
use weft_wire::ip::Ipv4Header;
use weft_wire::session::{CONTROL_MAGIC, WHOLE_PACKET};

/// The bytes that a frame adds to a packet: header and tag of link and session, and the datagram's.
const OVERHEAD: usize = 106;

/// Two ends without fast frames. `b` takes whole packets, and so does `a` if `both`.
fn ends(both: bool) -> (End, End) {
    let (mut a, mut b) = (End::new(A, B, 1_280), End::new(B, A, 1_280));
    b.apply(Command::Table(TableCommand::TakeWhole { on: true }));
    if both {
        a.apply(Command::Table(TableCommand::TakeWhole { on: true }));
        let hello = message(&mut b, CONTROL_MAGIC);
        assert_eq!(a.receive(&hello), [] as [Vec<u8>; 0]);
    }
    (a, b)
}

/// The frames of a session message 0x15 with this body.
fn message(from: &mut End, body: &[u8]) -> Vec<Vec<u8>> {
    let peer = from.other;
    from.apply(Command::Send(SendCommand::OnSession {
        peer,
        epoch: None,
        msg_type: WHOLE_PACKET,
        body: body.to_vec(),
    }));
    from.take_sent()
}

fn udp(source: [u8; 4], dest: [u8; 4], flags: u8, len: usize) -> Vec<u8> {
    let total = (28 + len) as u16;
    let [high, low] = total.to_be_bytes();
    let mut packet = vec![0x45, 0, high, low, 0x12, 0x34, flags, 0, 64, 17, 0, 0];
    packet.extend([source, dest].concat());
    let sum = weft_wire::checksum::checksum_finish(weft_wire::checksum::checksum_add(0, &packet));
    packet[Ipv4Header::CHECKSUM_AT..][..2].copy_from_slice(&sum.to_be_bytes());
    packet.extend([0x10, 0, 0x20, 0]);
    packet.extend(((8 + len) as u16).to_be_bytes());
    packet.extend([0, 0]);
    packet.resize(usize::from(total), 7);
    packet
}

const OURS: [u8; 4] = [10, 7, 0, 1];
const THEIRS: [u8; 4] = [10, 8, 0, 1];
const DONT: u8 = 0x40;

fn dropped(end: &End, reason: DropReason) -> u64 {
    end.counters().drops[reason]
}

/// The reports of messages for the core.
fn controls(end: &mut End) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    while let Some(report) = end.lane.poll_report() {
        if let Report::Session(_, SessionReport::Message { msg_type, body, .. }) = report {
            assert_eq!(msg_type, WHOLE_PACKET);
            found.push(body);
        }
    }
    found
}

proptest! {
    #[test]
    fn super_packets_arrive_as_without_offloads((packet, size) in model::super_packet()) {
        // No packet opens a connection, since its MSS would be changed.
        let packet = Packet { flags: packet.flags & !model::SYN, ..packet };
        let (mut a, mut b) = ends(true);
        let expected = packet.segments(usize::from(size));
        prop_assume!(expected.iter().all(|segment| segment.len() <= 1_150));
        let frames = a.send(gso(&packet, size), &packet.bytes_partial());
        for (frame, segment) in frames.iter().zip(&expected) {
            prop_assert_eq!(frame.len(), segment.len() + OVERHEAD);
        }
        prop_assert_eq!(b.receive(&frames), expected.clone());
        prop_assert_eq!(b.counters().full_rx, expected.len() as u64);
    }

    #[test]
    fn an_authenticated_peer_can_send_anything(
        mut content in prop::collection::vec(any::<u8>(), 0..120), magic in 0_usize..17, own in 0_u8..4,
    ) {
        let (mut a, mut b) = ends(true);
        controls(&mut b);
        let len = content.len();
        if magic < 16 {
            content.splice(..magic.min(15).min(len), CONTROL_MAGIC[..magic.min(15)].iter().copied());
        } else if len >= 24 {
            content[..4].copy_from_slice(&[0x45, 0, 0, len as u8]);
            content[12..20].copy_from_slice(&[10, 7, 0, 1, 10, 8, 0, own]);
        }
        let frames = message(&mut a, &content);
        let got = b.receive(&frames);
        prop_assert_eq!(controls(&mut b).len(), usize::from(content.starts_with(CONTROL_MAGIC)));
        for packet in got {
            prop_assert_eq!((packet.len(), magic), (len, 16));
        }
    }
}

#[test]
fn packets_pass_once_the_peer_has_shown_that_it_reads_them() {
    let (mut a, mut b) = ends(false);
    let packet = udp(OURS, THEIRS, DONT, 100);
    // Nothing was agreed: the packet waits for fast frames at first, and then it is an error.
    assert_eq!(a.send(WHOLE, &packet), [] as [Vec<u8>; 0]);
    let hello = message(&mut b, CONTROL_MAGIC);
    a.receive(&hello);
    assert_eq!(a.take_sent(), [] as [Vec<u8>; 0], "this end has it turned off");
    a.apply(Command::Table(TableCommand::TakeWhole { on: true }));
    a.receive(&message(&mut b, CONTROL_MAGIC));
    let frames = a.take_sent();
    assert_eq!(b.receive(&frames), std::slice::from_ref(&packet), "it has waited");
    a.apply(Command::Table(TableCommand::TakeWhole { on: false }));
    a.now += 10_000;
    assert_eq!(a.send(WHOLE, &packet), [] as [Vec<u8>; 0]);
    assert_eq!(dropped(&a, DropReason::NoFullFrames), 1);
}

#[test]
fn turned_off_such_a_message_is_an_unknown_one() {
    let (mut a, mut b) = ends(false);
    let frames = message(&mut b, &udp(THEIRS, OURS, DONT, 100));
    assert_eq!(a.receive(&frames), [] as [Vec<u8>; 0]);
    assert_eq!(controls(&mut a).len(), 1, "the core counts it");
}

#[test]
fn a_foreign_source_or_destination_is_dropped_with_its_reason() {
    let (mut a, mut b) = ends(true);
    for (packet, reason) in [
        (udp([10, 9, 0, 1], THEIRS, DONT, 100), DropReason::ForeignSource),
        (udp(THEIRS, THEIRS, DONT, 100), DropReason::ForeignSource),
        (udp(OURS, [10, 9, 0, 1], DONT, 100), DropReason::ForeignDestination),
        (udp(OURS, THEIRS, DONT, 100)[..60].to_vec(), DropReason::Malformed),
        (vec![], DropReason::Malformed),
        (b"NVPN-FIPS-CTRL".to_vec(), DropReason::Malformed),
    ] {
        let frames = message(&mut a, &packet);
        assert_eq!(b.receive(&frames), [] as [Vec<u8>; 0]);
        assert_eq!(dropped(&b, reason), 1, "{reason:?}");
        b = ends(true).1;
    }
}

/// The magic value in the data of a packet makes no control frame.
#[test]
fn the_magic_value_inside_a_packet_is_data() {
    let (mut a, mut b) = ends(true);
    controls(&mut b);
    let mut packet = udp(OURS, THEIRS, DONT, 15);
    packet[28..].copy_from_slice(CONTROL_MAGIC);
    let frames = a.send(WHOLE, &packet);
    assert_eq!(b.receive(&frames), [packet]);
    assert_eq!(controls(&mut b), [] as [Vec<u8>; 0]);
}

#[test]
fn packets_above_1150_bytes_are_cut_or_answered() {
    let (mut a, mut b) = ends(true);
    let longest = udp(OURS, THEIRS, DONT, 1_150 - 28);
    let frames = a.send(WHOLE, &longest);
    assert_eq!(b.receive(&frames), [longest]);
    assert_eq!(a.send(WHOLE, &udp(OURS, THEIRS, DONT, 1_151 - 28)), [] as [Vec<u8>; 0]);
    let error = a.lane.poll_reply().unwrap();
    // Destination unreachable, fragmentation needed, with the size.
    assert_eq!(
        (error[20], error[21], &error[26..28]),
        (3, 4, &1_150_u16.to_be_bytes()[..])
    );
    let frames = a.send(WHOLE, &udp(OURS, THEIRS, 0, 3_000));
    let got = b.receive(&frames);
    assert_eq!(got.len(), 3);
    assert!(got.iter().all(|fragment| fragment.len() <= 1_150));
    let data: usize = got.iter().map(|fragment| fragment.len() - 20).sum();
    assert_eq!(data, 3_008);
}

#[test]
fn the_hosts_agree_on_segments_that_fit() {
    let (mut a, mut b) = ends(true);
    let mut syn = udp(OURS, THEIRS, DONT, 16);
    syn[9] = 6;
    syn[20..].copy_from_slice(&[
        0x10, 0, 0x20, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0x60, 2, 255, 255, 0, 0, 0, 0, 2, 4, 5, 180,
    ]);
    let frames = a.send(WHOLE, &syn);
    let got = b.receive(&frames);
    let mss = u16::from_be_bytes([got[0][42], got[0][43]]);
    // 1,232 bytes of UDP payload, which every path takes, less the frame and the headers.
    assert_eq!(usize::from(mss), 1_232 - OVERHEAD - 40);
}
