//! Fast frames between two lanes, without a network: each packet that is sealed is delivered once,
//! under every key.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test ends where its ground is missing"
)]

#[path = "ends/lane.rs"]
mod lane;

use std::collections::BTreeSet;

use lane::*;
use proptest::prelude::*;
use weft_contract::{
    Command, Endpoint, EpochId, FastKeys, LinkReport, Report, SendCommand, SessionCommand, SessionReport, TableCommand,
};
use weft_noise::fast::{LaneSecrets, Secret, Suite};
use weft_packet::checksum::{self, Checksum};
use weft_packet::coalesce::Coalescer;
use weft_packet::split::Splitter;
use weft_packet::{DropReason, HEADROOM, Inbound};
use weft_wire::virtio::{GSO_TCPV6, GSO_UDP_L4, NEEDS_CSUM, VirtioNetHdr};
use weft_wire::{NodeAddr, fast};

const MTU: u16 = 1280;
const NOW: u64 = 1_000;
/// ECN fields (RFC 3168).
const NOT_ECT: u8 = 0;
const ECT_1: u8 = 1;
const ECT_0: u8 = 2;
const CE: u8 = 3;

impl End {
    fn new(me: NodeAddr, other: NodeAddr) -> Self {
        Self::connected(me, other, MTU)
    }

    fn install_fast(&mut self, number: u32, phase_frames: u64) {
        let keys = self.fast_keys(number, phase_frames);
        self.install_fast_keys(keys);
    }

    fn send(&mut self, hdr: VirtioNetHdr, packet: &[u8]) {
        self.lane.outbound(NOW, hdr, packet, &mut self.train);
    }

    fn receive(&mut self, frame: &[u8]) -> Option<Vec<u8>> {
        let from = address(self.other);
        self.lane.inbound_alone(NOW, from, frame, &mut self.train)
    }

    fn reports(&mut self) -> Vec<Report> {
        std::iter::from_fn(|| self.lane.poll_report()).collect()
    }
}

/// Exchanges datagrams until neither end sends any more, and returns the packets that were
/// delivered at the second.
fn exchange(a: &mut End, b: &mut End) -> Vec<Vec<u8>> {
    let mut out = Vec::new();
    loop {
        let (from_a, from_b) = (a.take_sent(), b.take_sent());
        if from_a.is_empty() && from_b.is_empty() {
            return out;
        }
        out.extend(from_a.iter().filter_map(|frame| b.receive(frame)));
        from_b.iter().for_each(|frame| drop(a.receive(frame)));
    }
}

/// Makes two ends that have proven fast keys of this number to each other.
fn pair(phase_frames: u64) -> (End, End) {
    let (mut a, mut b) = (End::new(A, B), End::new(B, A));
    agree(&mut a, &mut b, 0, phase_frames);
    (a, b)
}

fn agree(a: &mut End, b: &mut End, id: u32, phase_frames: u64) {
    a.install_fast(id, phase_frames);
    b.install_fast(id, phase_frames);
    a.confirm_fast(id);
    b.confirm_fast(id);
    exchange(a, b);
    for end in [a, b] {
        let proven = end
            .reports()
            .into_iter()
            .filter(|r| matches!(r, Report::Session(_, SessionReport::FastProven { .. })));
        assert_eq!(proven.count(), 1);
    }
}

/// Makes an IPv6 packet from A to B.
fn packet(protocol: u8, upper: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x60, 1, 2, 3, 0, 0, protocol, 61];
    packet[4..6].copy_from_slice(&(upper.len() as u16).to_be_bytes());
    packet.extend(A.to_ipv6().octets());
    packet.extend(B.to_ipv6().octets());
    packet.extend(upper);
    packet
}

/// Makes a TCP or UDP super-packet as the kernel supplies it: its checksum field has only the sum
/// of the pseudo-header.
fn super_packet(tcp: bool, payload: &[u8], size: u16) -> (VirtioNetHdr, Vec<u8>) {
    let (protocol, mut upper, offset) = if tcp {
        (
            6,
            vec![0xc0, 1, 0, 80, 0, 0, 0, 9, 0, 0, 0, 7, 0x50, 0x18, 1, 0, 0, 0, 0, 0],
            16,
        )
    } else {
        (17, vec![0xc0, 1, 0, 53, 0, 0, 0, 0], 6)
    };
    upper.extend(payload);
    if !tcp {
        let len = (upper.len() as u16).to_be_bytes();
        upper[4..6].copy_from_slice(&len);
    }
    let gso = payload.len() > usize::from(size);
    let hdr = VirtioNetHdr {
        flags: NEEDS_CSUM,
        gso_type: match (gso, tcp) {
            (false, _) => 0,
            (true, true) => GSO_TCPV6,
            (true, false) => GSO_UDP_L4,
        },
        gso_size: if gso { size } else { 0 },
        csum_start: 40,
        csum_offset: offset,
        ..VirtioNetHdr::default()
    };
    let mut packet = packet(protocol, &upper);
    // The sum of the pseudo-header, as the kernel leaves it: `complete` would add to it.
    let at = 40 + usize::from(offset);
    let sum = pseudo(&packet);
    packet[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    (hdr, packet)
}

fn pseudo(packet: &[u8]) -> u16 {
    let words = packet[8..40].chunks(2).map(|w| u32::from(w[0]) << 8 | u32::from(w[1]));
    let mut sum = words.sum::<u32>() + packet.len() as u32 - 40 + u32::from(packet[6]);
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// The reference: the packets of a splitter that completes every checksum.
fn segments(hdr: VirtioNetHdr, packet: &[u8]) -> Vec<Vec<u8>> {
    let mut splitter = Splitter::new(hdr, packet, 1 << 16).unwrap();
    let mut out = vec![0; 1 << 16];
    std::iter::from_fn(|| splitter.next_into(&mut out).map(|len| out[..len].to_vec())).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn packets_arrive_as_they_were_sent(
        tcp: bool, payload in prop::collection::vec(any::<u8>(), 1..20_000), size in 100u16..1_200,
    ) {
        let (mut a, mut b) = pair(1 << 20);
        let size = if tcp { size } else { size.max((payload.len() / 60) as u16 + 1) };
        let (hdr, packet) = super_packet(tcp, &payload, size.min(1_200));
        let Ok(_) = Splitter::new(hdr, &packet, 1_278) else { return Ok(()) };
        a.send(hdr, &packet);
        let frames = a.take_sent();
        prop_assert!(frames.iter().all(|frame| fast::is_fast(frame)));
        let expected = segments(hdr, &packet);
        prop_assert!(frames.iter().zip(&expected).all(|(frame, packet)| frame.len() == packet.len() + 2));
        let got: Vec<_> = frames.iter().filter_map(|frame| b.receive(frame)).collect();
        prop_assert_eq!(got, expected);
    }

    /// Frames one behind the other, as after a receive: the headroom of each is the tag of the one
    /// before.
    #[test]
    fn frames_open_where_they_lie(payloads in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 1..8)) {
        let (mut a, mut b) = pair(1 << 20);
        let packets: Vec<_> = payloads.iter().map(|payload| packet(59, payload)).collect();
        packets.iter().for_each(|packet| a.send(VirtioNetHdr::default(), packet));
        let frames = a.take_sent();
        let mut buffer = vec![0xee; HEADROOM];
        frames.iter().for_each(|frame| buffer.extend(frame));
        let (mut start, mut got, mut places) = (0, Vec::new(), Vec::new());
        for frame in &frames {
            let room = &mut buffer[start..start + HEADROOM + frame.len()];
            let Inbound::Packet(range, Checksum::Full) = b.lane.inbound(NOW, address(A), room, &mut b.train) else {
                return Err(TestCaseError::fail("not delivered"));
            };
            places.push(start + range.start..start + range.end);
            start += frame.len();
        }
        // All of them are still in place when the batch is written.
        got.extend(places.into_iter().map(|place| buffer[place].to_vec()));
        prop_assert_eq!(got, packets);
    }

    /// Processing a whole receive gives the same packets, answers, counters and reports as
    /// processing each of its datagrams, whatever other frames are among the packets and however
    /// the phases change.
    #[test]
    fn a_receive_is_its_datagrams(
        interval in 1u64..20,
        rounds in prop::collection::vec((prop::collection::vec(0u8..12, 1..40), any::<prop::sample::Index>()), 1..12),
    ) {
        let (mut a, mut one) = pair(interval);
        let (_, mut many) = pair(interval);
        // Answers to the node's own echo requests are reported among the rest.
        let token = 0x0102_0304_0506_0708_u64;
        for end in [&mut one, &mut many] {
            end.apply(Command::Table(TableCommand::ExpectEcho { token }));
        }
        let mut number = 0u32;
        for (deeds, spoiled) in rounds {
            for deed in &deeds {
                number += 1;
                match deed {
                    0 => a.apply(Command::Session(B, SessionCommand::ConfirmFast { id: EpochId(0) })),
                    1 => a.apply(Command::Send(SendCommand::OnLink { link: LINK, epoch: None, msg_type: 0x51, body: vec![7; 20] })),
                    2 => a.send(VirtioNetHdr::default(), &packet(59, &[1; 9])),
                    4 => {
                        let answer = [&[129, 0, 0, 0, 7, 8][..], &(number as u16).to_be_bytes(), &token.to_be_bytes()];
                        a.send(VirtioNetHdr::default(), &packet(58, &answer.concat()));
                    }
                    3 => {
                        let (hdr, segments) = super_packet(number.is_multiple_of(2), &[5; 300], 100);
                        a.send(hdr, &segments);
                    }
                    _ => a.send(VirtioNetHdr::default(), &packet(59, &[&number.to_be_bytes()[..], &[9; 40]].concat())),
                }
            }
            let mut frames = a.take_sent();
            // A round of confirmations alone may send nothing.
            if !frames.is_empty() {
                let at = spoiled.index(frames.len());
                *frames[at].last_mut().unwrap() ^= u8::from(at.is_multiple_of(3));
            }
            let from = address(A);
            for receive in frames.chunk_by(|before, after| before.len() == after.len()) {
                let step = receive[0].len();
                let mut room = [&[0; HEADROOM], &receive.concat()[..]].concat();
                let mut got = Vec::new();
                many.lane.inbound_train(NOW, from, &mut room, step, &mut many.train, |packet, place, checksum| {
                    got.push((packet.to_vec(), place, checksum));
                });
                for (packet, place, _) in &got {
                    prop_assert_eq!(packet, &room[place.clone()], "it stays where it lies");
                }
                let mut expected = Vec::new();
                for frame in receive {
                    let mut room = [&[0; HEADROOM], &frame[..]].concat();
                    if let Inbound::Packet(range, checksum) = one.lane.inbound(NOW, from, &mut room, &mut one.train) {
                        expected.push((room[range].to_vec(), checksum));
                    }
                }
                let got: Vec<_> = got.into_iter().map(|(packet, _, checksum)| (packet, checksum)).collect();
                prop_assert_eq!(got, expected);
            }
            one.lane.sample(NOW);
            many.lane.sample(NOW);
            prop_assert_eq!(format!("{:?}", one.reports()), format!("{:?}", many.reports()));
            prop_assert_eq!(one.lane.counters(), many.lane.counters());
            let answers = one.take_sent();
            prop_assert_eq!(&answers, &many.take_sent());
            answers.iter().for_each(|frame| drop(a.receive(frame)));
        }
    }

    #[test]
    fn every_key_opens_its_frames_once_in_any_order(
        interval in 1u64..40, rounds in prop::collection::vec((0usize..30, any::<u64>()), 1..40),
    ) {
        let (mut a, mut b) = pair(interval);
        let mut number = 0u32;
        let mut counters = BTreeSet::new();
        for (count, order) in rounds {
            for _ in 0..count {
                a.send(VirtioNetHdr::default(), &packet(59, &number.to_be_bytes()));
                number += 1;
            }
            let mut frames = a.take_sent();
            // FIPS frames follow a phase that is not acknowledged.
            for frame in frames.iter().filter(|frame| fast::is_fast(frame)) {
                let header = fast::Header::parse(frame).unwrap();
                prop_assert!(counters.insert(header.counter), "counter {} twice", header.counter);
            }
            if !frames.is_empty() {
                let turn = order as usize % frames.len();
                frames.rotate_left(turn);
            }
            let delivered = frames.iter().filter(|frame| b.receive(frame).is_some()).count();
            prop_assert_eq!(delivered, count);
            let again = frames.iter().filter(|frame| b.receive(frame).is_some()).count();
            prop_assert_eq!(again, 0);
            exchange(&mut a, &mut b);
        }
        prop_assert_eq!(b.lane.counters().drops[DropReason::FastTag], 0);
    }

    #[test]
    fn an_authenticated_peer_can_send_anything(
        content in prop::collection::vec(any::<u8>(), 0..80), partial: bool, message: bool,
        next in prop_oneof![Just(6u8), Just(17), Just(58), Just(44), any::<u8>()],
    ) {
        let (_, mut b) = pair(1 << 20);
        let mut content = content;
        if let Some(protocol) = content.get_mut(8).filter(|_| !message) {
            *protocol = next;
        }
        let frame = hand_made(message, partial && !message, &content, 1_000);
        let before = *b.lane.counters();
        let packet = b.receive(&frame);
        if let Some(packet) = packet {
            prop_assert_eq!(&packet[8..24], &A.to_ipv6().octets());
            prop_assert_eq!(packet.len(), content.len() - 10 + 40);
        }
        prop_assert!(*b.lane.counters() != before);
        prop_assert_eq!(b.lane.check_invariants(), Ok(()));
    }
}

/// Makes a frame of A with this content, sealed without a lane under the first key.
fn hand_made(message: bool, partial: bool, content: &[u8], counter: u64) -> Vec<u8> {
    let header = fast::Header {
        kind: if message { fast::Kind::Message } else { fast::Kind::Ipv6 },
        flags: if partial { fast::FLAG_PARTIAL } else { 0 },
        length: (content.len() + 16) as u16,
        receiver_index: 2 << 16,
        counter,
    }
    .to_bytes();
    let cipher = Secret::from_key(&key(3, A, 0)).cipher(Suite::Aes256Gcm);
    let mut sealed = content.to_vec();
    let tag = cipher.seal_in_place(counter, &header, &mut sealed);
    [&header[..], &sealed, &tag].concat()
}

#[test]
fn data_waits_for_an_answer_not_for_a_question() {
    let (mut a, mut b) = (End::new(A, B), End::new(B, A));
    a.install_fast(0, 1000);
    b.install_fast(0, 1000);
    let probe = packet(59, b"probe");
    let goes_fast = |end: &mut End| {
        end.send(VirtioNetHdr::default(), &probe);
        fast::is_fast(&end.take_sent()[0])
    };
    assert!(!goes_fast(&mut a));
    b.apply(Command::Session(A, SessionCommand::ConfirmFast { id: EpochId(0) }));
    let question = b.take_sent().remove(0);
    assert_eq!(a.receive(&question), None);
    let answer = a.take_sent().remove(0);
    assert!(!goes_fast(&mut a), "a question shows nothing of the other direction");
    assert_eq!(b.receive(&answer), None);
    assert!(
        b.reports()
            .iter()
            .any(|r| matches!(r, Report::Session(_, SessionReport::FastProven { .. })))
    );
    // The same answer again proves nothing new.
    assert_eq!(b.receive(&answer), None);
    assert_eq!(
        b.reports()
            .iter()
            .filter(|r| matches!(r, Report::Session(_, SessionReport::FastProven { .. })))
            .count(),
        0
    );
}

#[test]
fn keys_that_differ_carry_nothing() {
    let (mut a, mut b) = (End::new(A, B), End::new(B, A));
    a.install_fast(0, 1000);
    let theirs = Secret::from_key(&key(9, A, 9));
    let secrets = LaneSecrets {
        send: theirs.clone(),
        recv: theirs,
    };
    let keys = b.fast_keys(0, 1000);
    b.install_fast_keys(FastKeys { secrets, ..keys });
    a.confirm_fast(0);
    b.confirm_fast(0);
    exchange(&mut a, &mut b);
    assert_eq!(
        (
            a.lane.counters().drops[DropReason::FastTag],
            b.lane.counters().drops[DropReason::FastTag]
        ),
        (1, 1)
    );
    let probe = packet(59, b"still here");
    a.send(VirtioNetHdr::default(), &probe);
    assert_eq!(exchange(&mut a, &mut b), [probe]);
}

/// The sender stays in its phase until the receiver acknowledges it, and only for a bounded number
/// of frames.
#[test]
fn no_phase_is_skipped() {
    let (mut a, mut b) = pair(10);
    let probe = packet(59, b"x");
    let mut frames = Vec::new();
    for _ in 0..100 {
        a.send(VirtioNetHdr::default(), &probe);
        frames.extend(a.take_sent());
    }
    let plain = frames.split_off(frames.iter().position(|frame| !fast::is_fast(frame)).unwrap());
    // One interval in the first phase, eight in the next; the confirms count too.
    assert_eq!(frames.len() + 2, 90);
    assert!(
        plain
            .iter()
            .all(|frame| !fast::is_fast(frame) && b.receive(frame).as_ref() == Some(&probe))
    );
    let phase = |frame: &Vec<u8>| fast::Header::parse(frame).unwrap().flags & fast::FLAG_PHASE;
    let flips = frames
        .windows(2)
        .filter(|pair| phase(&pair[0]) != phase(&pair[1]))
        .count();
    assert_eq!(flips, 1, "nothing was acknowledged");
    assert!(frames.iter().all(|frame| b.receive(frame).as_ref() == Some(&probe)));
    // The acknowledgement may be lost. A report then repeats it.
    drop(b.take_sent());
    b.apply(Command::Send(SendCommand::ReportOnSession {
        peer: A,
        kind: weft_contract::ReportKind::Receiver,
    }));
    exchange(&mut a, &mut b);
    a.send(VirtioNetHdr::default(), &probe);
    assert_ne!(phase(&a.take_sent()[0]), phase(frames.last().unwrap()));
}

#[test]
fn a_new_epoch_takes_over_and_the_old_one_still_opens() {
    let (mut a, mut b) = pair(1000);
    let probe = packet(59, b"late");
    a.send(VirtioNetHdr::default(), &probe);
    let late = a.take_sent().remove(0);
    agree(&mut a, &mut b, 1, 1000);
    a.send(VirtioNetHdr::default(), &probe);
    let fresh = a.take_sent().remove(0);
    let index = |frame: &[u8]| fast::Header::parse(frame).unwrap().receiver_index;
    assert_eq!((index(&late), index(&fresh)), (2 << 16, 2 << 16 | 1));
    assert_eq!(b.receive(&fresh), Some(probe.clone()));
    assert_eq!(b.receive(&late), Some(probe.clone()));
    assert_eq!(b.receive(&late), None);
    b.apply(Command::Session(A, SessionCommand::RetireEpoch { id: EpochId(0) }));
    a.apply(Command::Session(B, SessionCommand::RetireEpoch { id: EpochId(0) }));
    let unknown = b.lane.counters().drops[DropReason::FastUnknown];
    assert_eq!(b.receive(&late), None);
    assert_eq!(b.lane.counters().drops[DropReason::FastUnknown], unknown + 1);
    assert_eq!((a.lane.check_invariants(), b.lane.check_invariants()), (Ok(()), Ok(())));
}

/// Late frames under old keys may come from an earlier address of the peer.
#[test]
fn only_the_newest_keys_move_a_peer() {
    let (mut a, mut b) = pair(1000);
    let probe = packet(59, b"probe");
    a.send(VirtioNetHdr::default(), &probe);
    let late = a.take_sent().remove(0);
    agree(&mut a, &mut b, 1, 1000);
    a.send(VirtioNetHdr::default(), &probe);
    let fresh = a.take_sent().remove(0);
    let elsewhere = |port: u16| Endpoint::from(([198, 51, 100, 1], port));
    let roamed = |end: &mut End| {
        end.reports()
            .into_iter()
            .any(|r| matches!(r, Report::Link(_, LinkReport::Roamed { .. })))
    };
    b.lane.inbound_alone(NOW, elsewhere(1), &late, &mut b.train);
    assert!(!roamed(&mut b));
    b.lane.inbound_alone(NOW, elsewhere(2), &fresh, &mut b.train);
    assert!(roamed(&mut b));
}

/// Packets without a complete checksum join with each other and never with complete ones.
#[test]
fn left_out_checksums_are_the_kernels() {
    let (hdr, super_packet) = super_packet(true, &[7; 3_000], 1_000);
    let (mut a, mut b) = pair(1000);
    a.send(hdr, &super_packet);
    let mut rooms: Vec<_> = a
        .take_sent()
        .iter()
        .map(|frame| [&[0; HEADROOM], &frame[..]].concat())
        .collect();
    let mut coalescer = Coalescer::new(8, true);
    let mut packets = Vec::new();
    for room in &mut rooms {
        let Inbound::Packet(range, checksum) = b.lane.inbound(NOW, address(A), room, &mut b.train) else {
            panic!("not delivered");
        };
        assert_eq!(checksum, Checksum::Partial);
        packets.push(room[range].to_vec());
    }
    let mut full = packets[2].clone();
    checksum::complete(&mut full);
    coalescer.push(0, &packets[0], Checksum::Partial).unwrap();
    coalescer.push(1, &packets[1], Checksum::Partial).unwrap();
    coalescer.push(2, &full, Checksum::Full).unwrap();
    coalescer.push(3, &packets[2], Checksum::Partial).unwrap();
    let writes: Vec<_> = coalescer
        .groups()
        .map(|group| (group.virtio(), group.packet_count()))
        .collect();
    let open = |(hdr, count): (VirtioNetHdr, usize)| (hdr.flags, hdr.gso_type, hdr.csum_start, hdr.csum_offset, count);
    assert_eq!(
        writes.into_iter().map(open).collect::<Vec<_>>(),
        [
            (NEEDS_CSUM, GSO_TCPV6, 40, 16, 2),
            (0, 0, 0, 0, 1),
            (NEEDS_CSUM, 0, 40, 16, 1)
        ]
    );
}

/// A checksum that the kernel left to the device, and that a frame may not leave out, is completed
/// by the sender.
#[test]
fn a_checksum_that_cannot_be_elided_is_sent_in_full() {
    let (mut a, mut b) = pair(1000);
    // ICMPv6 with its sum left to the device.
    let mut echo = packet(58, &[128, 0, 0, 0, 0, 1, 0, 1, 9, 9]);
    let sum = pseudo(&echo);
    echo[42..44].copy_from_slice(&sum.to_be_bytes());
    let hdr = VirtioNetHdr {
        flags: NEEDS_CSUM,
        csum_start: 40,
        csum_offset: 2,
        ..VirtioNetHdr::default()
    };
    a.send(hdr, &echo);
    let frame = a.take_sent().remove(0);
    assert_eq!(fast::Header::parse(&frame).unwrap().flags & fast::FLAG_PARTIAL, 0);
    assert_eq!(b.receive(&frame), Some(segments(hdr, &echo).remove(0)));
}

/// The ECN field in the IP header of a datagram changes that of the packet in it, or makes the lane
/// drop the packet (RFC 6040): alone and in a receive of several, in fast frames and in FIPS
/// frames.
#[test]
fn ecn_of_the_underlay_reaches_the_packet() {
    for fast in [true, false] {
        for (inner, outer, outcome) in [
            (NOT_ECT, ECT_0, Some(NOT_ECT)),
            (NOT_ECT, CE, None),
            (ECT_0, NOT_ECT, Some(ECT_0)),
            (ECT_0, ECT_1, Some(ECT_1)),
            (ECT_0, CE, Some(CE)),
            (ECT_1, CE, Some(CE)),
            (CE, NOT_ECT, Some(CE)),
        ] {
            let (mut a, mut b) = match fast {
                true => pair(1000),
                false => (End::new(A, B), End::new(B, A)),
            };
            let with = |ecn: u8| {
                let mut packet = packet(59, &[7; 100]);
                packet[1] = packet[1] & 0xcf | ecn << 4;
                packet
            };
            for _ in 0..3 {
                a.send(VirtioNetHdr::default(), &with(inner));
            }
            let frames = a.take_sent();
            b.lane.outer_ecn(outer);
            let (len, mut out) = (frames[0].len(), Vec::new());
            let mut room = [vec![0; HEADROOM], frames.concat()].concat();
            let from = address(A);
            b.lane
                .inbound_train(NOW, from, &mut room, len, &mut b.train, |packet, _, _| {
                    out.push(packet.to_vec());
                });
            let expected: Vec<_> = outcome.into_iter().flat_map(|ecn| vec![with(ecn); 3]).collect();
            assert_eq!(out, expected, "fast {fast}, {inner} in {outer}");
            let counters = b.lane.counters();
            let marked = if outer == CE { 3 } else { 0 };
            assert_eq!(counters.ce_underlay, marked);
            assert_eq!(
                counters.drops[DropReason::Congestion],
                if outcome.is_none() { 3 } else { 0 }
            );
            assert_eq!(
                counters.ce_delivered,
                if outcome == Some(CE) && inner != CE { 3 } else { 0 }
            );
            // The session's measurements count the mark, whatever happened to the packet. The next
            // receive has a mark of its own.
            b.lane.sample(NOW);
            let marks = b.reports().into_iter().find_map(|report| match report {
                Report::Activity { sessions, .. } => Some(sessions[0].received.ce),
                _ => None,
            });
            assert_eq!(marks, Some(marked));
            a.send(VirtioNetHdr::default(), &with(NOT_ECT));
            assert_eq!(b.receive(&a.take_sent()[0]), Some(with(NOT_ECT)));
        }
    }
}

/// Messages of a link count their congestion marks, as frames with packets do.
#[test]
fn a_control_message_that_came_marked_is_counted() {
    let (mut a, mut b) = (End::new(A, B), End::new(B, A));
    for marked in [false, true] {
        a.apply(Command::Send(SendCommand::OnLink {
            link: LINK,
            epoch: None,
            msg_type: 0x51,
            body: Vec::new(),
        }));
        b.lane.outer_ecn(if marked { 3 } else { 2 });
        b.receive(&a.take_sent()[0]);
        b.lane.sample(NOW);
        let marks = b.reports().into_iter().find_map(|report| match report {
            Report::Activity { links, .. } => Some(links[0].received.ce),
            _ => None,
        });
        assert_eq!(marks, Some(u64::from(marked)));
    }
}
