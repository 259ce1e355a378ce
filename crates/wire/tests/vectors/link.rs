//! Vectors of FMP frames and of the bodies of link messages.

use weft_wire::filter::FilterAnnounce;
use weft_wire::fmp::{self, CommonPrefix, EstablishedHeader, InnerHeader, Msg1, Msg2};
use weft_wire::link::{Disconnect, DisconnectReason, LinkMessageType, SessionDatagram};
use weft_wire::lookup::{LookupRequest, LookupResponse};
use weft_wire::mmp::{ReceiverReport, ReportFraming, SenderReport};
use weft_wire::tree::{Ancestry, AncestryEntry, TreeAnnounce};
use weft_wire::{Coords, WireError};

use crate::common::decode_hex;
use crate::{A, B, a, b, vector};

#[test]
fn established_frame() {
    let hex = "00 05 0100 78563412 efcdab8967452301 ee 000102030405060708090a0b0c0d0e0f";
    let frame = decode_hex(hex);
    let header = EstablishedHeader {
        flags: fmp::FLAG_KEY_EPOCH | fmp::FLAG_SPIN,
        payload_len: 1,
        receiver_idx: 0x1234_5678,
        counter: 0x0123_4567_89ab_cdef,
    };
    assert_eq!(EstablishedHeader::parse(&frame), Ok(header));
    assert_eq!(header.to_bytes(), frame[..16]);
    let prefix = CommonPrefix {
        version: 0,
        phase: 0,
        flags: 5,
        payload_len: 1,
    };
    assert_eq!(CommonPrefix::parse(&frame), Ok(prefix));
    assert_eq!(prefix.frame_len(), Ok(33));

    let refused = |at: usize, value| {
        let mut frame = frame.clone();
        frame[at] = value;
        EstablishedHeader::parse(&frame).unwrap_err()
    };
    assert_eq!(refused(0, 0x10), WireError::UnsupportedVersion(1));
    assert_eq!(refused(0, 0x01), WireError::WrongPhase(1));
    assert_eq!(refused(2, 2), WireError::LengthMismatch { declared: 2, actual: 1 });
    let short = WireError::TooShort { needed: 32, got: 31 };
    assert_eq!(EstablishedHeader::parse(&frame[..31]), Err(short));
}

#[test]
fn inner_header() {
    let plaintext = vector("inner-header", "04030201 50 07");
    let header = InnerHeader {
        timestamp: 0x0102_0304,
        msg_type: 0x50,
    };
    assert_eq!(InnerHeader::parse(&plaintext), Ok((header, &[7][..])));
    assert_eq!(LinkMessageType::from_byte(0x50), Some(LinkMessageType::Disconnect));
    assert_eq!(fmp::LINK_OVERHEAD, 37);
}

#[test]
fn handshake_frames() {
    let frame = vector("msg1", &format!("01 00 6e00 04030201 {}", "5a".repeat(106)));
    assert_eq!(
        Msg1::parse(&frame),
        Ok(Msg1 {
            sender_idx: 0x0102_0304,
            noise: &[0x5a; 106]
        })
    );
    assert_eq!(frame.len(), 114);
    let refused = |at: usize, value| {
        let mut frame = frame.clone();
        frame[at] = value;
        let error = Msg1::parse(&frame).unwrap_err();
        (error, CommonPrefix::parse(&frame).unwrap().frame_len())
    };
    assert_eq!(refused(1, 1), (WireError::NonZeroFlags(1), Ok(114)));
    let wrong = WireError::LengthMismatch {
        declared: 0x6f,
        actual: 110,
    };
    assert_eq!(refused(2, 0x6f), (wrong, Err(wrong)));
    let wrong = WireError::UnsupportedVersion(0xa);
    assert_eq!(refused(0, 0xa1), (wrong, Err(wrong)));
    let wrong = WireError::WrongPhase(3);
    assert_eq!(refused(0, 3), (wrong, Err(wrong)));
    let wrong = WireError::WrongLength {
        expected: 114,
        got: 113,
    };
    assert_eq!(Msg1::parse(&frame[..113]), Err(wrong));

    let frame = vector("msg2", &format!("02 00 4100 04030201 08070605 {}", "a5".repeat(57)));
    let (sender_idx, receiver_idx) = (0x0102_0304, 0x0506_0708);
    assert_eq!(
        Msg2::parse(&frame),
        Ok(Msg2 {
            sender_idx,
            receiver_idx,
            noise: &[0xa5; 57]
        })
    );
    assert_eq!(frame.len(), 69);
}

#[test]
fn session_datagram() {
    let body = vector("session-datagram", &format!("40 ffff {A} {B} 010203"));
    let datagram = SessionDatagram {
        ttl: 64,
        path_mtu: 0xffff,
        src: a(),
        dest: b(),
        payload: &[1, 2, 3],
    };
    assert_eq!(SessionDatagram::parse(&body), Ok(datagram));
    assert_eq!(SessionDatagram::HEADER_LEN, 35);
}

#[test]
fn disconnect() {
    let body = vector("disconnect", "07");
    assert_eq!(
        Disconnect::parse(&body),
        Ok(Disconnect {
            reason: DisconnectReason::Timeout
        })
    );
    let reason = DisconnectReason::Other(0x99);
    assert_eq!(
        Disconnect::parse(&vector("disconnect", "99")),
        Ok(Disconnect { reason })
    );
    assert_eq!(vector("heartbeat", ""), []);
}

#[test]
fn sender_report() {
    let fields = "0100000000000000 0200000000000000 03000000 04000000 05000000 \
                  0600000000000000 0700000000000000";
    let report = SenderReport {
        interval_start_counter: 1,
        interval_end_counter: 2,
        interval_start_timestamp: 3,
        interval_end_timestamp: 4,
        interval_bytes_sent: 5,
        cumulative_packets_sent: 6,
        cumulative_bytes_sent: 7,
    };
    let body = vector("link-sender-report", &format!("000000 {fields}"));
    assert_eq!(SenderReport::parse(&body, ReportFraming::Link), Ok(report));
    assert_eq!(body.len(), 47);
    let body = vector("session-sender-report", &format!("0000 {fields}"));
    assert_eq!(SenderReport::parse(&body, ReportFraming::Session), Ok(report));
    assert_eq!(body.len(), 46);
}

#[test]
fn receiver_report() {
    let fields = "0100000000000000 0200000000000000 0300000000000000 04000000 0500 0600 8001 0000 \
                  08000000 09000000 f6ffffff 0b000000 0c000000 0d000000 0e000000";
    let report = ReceiverReport {
        highest_counter: 1,
        cumulative_packets_recv: 2,
        cumulative_bytes_recv: 3,
        timestamp_echo: 4,
        dwell_time: 5,
        max_burst_loss: 6,
        mean_burst_loss: 0x0180,
        jitter: 8,
        ecn_ce_count: 9,
        owd_trend: -10,
        burst_loss_count: 11,
        cumulative_reorder_count: 12,
        interval_packets_recv: 13,
        interval_bytes_recv: 14,
    };
    let body = vector("link-receiver-report", &format!("000000 {fields}"));
    assert_eq!(ReceiverReport::parse(&body, ReportFraming::Link), Ok(report));
    assert_eq!(body.len(), 67);
    let body = vector("session-receiver-report", &format!("0000 {fields}"));
    assert_eq!(ReceiverReport::parse(&body, ReportFraming::Session), Ok(report));
    assert_eq!(body.len(), 66);
}

#[test]
fn tree_announce() {
    let hex = format!(
        "01 0900000000000000 00e1f50500000000 {B} 0200
         {A} 0900000000000000 00e1f50500000000
         {B} 0300000000000000 0100000000000000 {}",
        "77".repeat(64)
    );
    let body = vector("tree-announce", &hex);
    let entries = [
        AncestryEntry {
            addr: a(),
            sequence: 9,
            timestamp: 100_000_000,
        },
        AncestryEntry {
            addr: b(),
            sequence: 3,
            timestamp: 1,
        },
    ];
    let announce = TreeAnnounce {
        sequence: 9,
        timestamp: 100_000_000,
        parent: b(),
        ancestry: Ancestry::new(&entries),
        signature: &[0x77; 64],
    };
    assert_eq!(TreeAnnounce::parse(&body), Ok(announce));
    // With its type byte the message has 100 + 32n bytes.
    assert_eq!(1 + body.len(), 100 + 32 * 2);
    assert_eq!(announce.node(), Ok(a()));
    assert_eq!(announce.ancestry.root(), Some(entries[1]));
    let signed = decode_hex(&format!("{A} {B} 0900000000000000 00e1f50500000000"));
    assert_eq!(announce.signed_bytes().unwrap(), signed[..]);

    let mut wrong = body.clone();
    wrong[0] = 2;
    assert_eq!(TreeAnnounce::parse(&wrong), Err(WireError::UnsupportedVersion(2)));
    wrong[0] = 1;
    wrong[33] = 0;
    assert_eq!(TreeAnnounce::parse(&wrong), Err(WireError::EmptyAncestry));
    wrong[33] = 3;
    let short = WireError::TooShort {
        needed: 99 + 96,
        got: 163,
    };
    assert_eq!(TreeAnnounce::parse(&wrong), Err(short));
}

#[test]
fn filter_announce() {
    let hex = format!("0807060504030201 05 01 {}", "c3".repeat(1024));
    let body = vector("filter-announce", &hex);
    let announce = FilterAnnounce {
        sequence: 0x0102_0304_0506_0708,
        hash_count: 5,
        bits: &[0xc3; 1024],
    };
    assert_eq!(FilterAnnounce::parse(&body), Ok(announce));
    assert_eq!(1 + body.len(), 1035);
    let mut wrong = body.clone();
    wrong.push(0);
    let length = WireError::WrongLength {
        expected: 1034,
        got: 1035,
    };
    assert_eq!(FilterAnnounce::parse(&wrong), Err(length));
    wrong.pop();
    wrong[8] = 0;
    assert_eq!(FilterAnnounce::parse(&wrong), Err(WireError::ZeroHashCount));
    wrong[9] = 2;
    assert_eq!(FilterAnnounce::parse(&wrong), Err(WireError::UnsupportedSizeClass(2)));
}

#[test]
fn lookup_request() {
    let path = [a(), b()];
    let body = vector("lookup-request", &format!("0807060504030201 {A} {B} 40 0005 0100 {B}"));
    let request = LookupRequest {
        request_id: 0x0102_0304_0506_0708,
        target: a(),
        origin: b(),
        ttl: 64,
        min_mtu: 1280,
        origin_coords: Coords::new(&path[1..]),
    };
    assert_eq!(LookupRequest::parse(&body), Ok(request));
    assert_eq!(1 + body.len(), 46 + 16);
    let empty = decode_hex(&format!("0807060504030201 {A} {B} 40 0005 0000"));
    assert_eq!(LookupRequest::parse(&empty), Err(WireError::EmptyCoords));
}

#[test]
fn lookup_response() {
    let path = [a(), b()];
    let signature = "99".repeat(64);
    let hex = format!("0807060504030201 {A} ffff 0200 {A} {B} {signature}");
    let body = vector("lookup-response", &hex);
    let response = LookupResponse {
        request_id: 0x0102_0304_0506_0708,
        target: a(),
        path_mtu: u16::MAX,
        target_coords: Coords::new(&path),
        proof: &[0x99; 64],
    };
    assert_eq!(LookupResponse::parse(&body), Ok(response));
    assert_eq!(1 + body.len(), 93 + 32);
    let mut signed = [0; 58];
    assert_eq!(response.emit_proof_message(&mut signed), Ok(58));
    assert_eq!(signed[..], decode_hex(&format!("0807060504030201 {A} 0200 {A} {B}")));
}
