//! The vectors of TCP/FIPS v1, as the crate nvpn-fips-tcp 0.2.6 (0BSD) publishes them.

#![allow(clippy::unwrap_used, reason = "a test ends where its ground is missing")]

use serde_json::Value;
use weft_stream::segment::{Flags, Segment, SegmentError};
use weft_stream::{Limits, PORT};

#[test]
fn the_vectors_of_version_1() {
    let vectors: Value = serde_json::from_str(include_str!("vectors/wire-vectors.json")).unwrap();
    let number = |value: &Value| value.as_u64().map(|number| u32::try_from(number).unwrap());
    let mut count = 0;
    for vector in vectors.as_array().unwrap() {
        let bytes = hex::decode(vector["hex"].as_str().unwrap()).unwrap();
        let payload = hex::decode(vector["payloadHex"].as_str().unwrap()).unwrap();
        let segment = Segment::parse(&bytes).unwrap();
        assert_eq!(Some(u32::from(segment.source)), number(&vector["srcPort"]));
        assert_eq!(Some(u32::from(segment.destination)), number(&vector["dstPort"]));
        assert_eq!(Some(segment.sequence), number(&vector["seq"]));
        assert_eq!(segment.acknowledgment, number(&vector["ack"]));
        assert_eq!(Some(u32::from(segment.window)), number(&vector["window"]));
        assert_eq!(segment.mss.map(u32::from), number(&vector["mss"]));
        assert_eq!(segment.version.map(u32::from), number(&vector["version"]));
        assert_eq!(segment.payload, payload);
        let flags = vector["flags"]
            .as_array()
            .unwrap()
            .iter()
            .map(|flag| flag.as_str().unwrap());
        let flags = flags.fold(Flags::NONE, |flags, flag| match flag {
            "syn" => flags | Flags::SYN,
            "fin" => flags | Flags::FIN,
            "rst" => flags | Flags::RST,
            "psh" => flags | Flags::PSH,
            "ack" => flags,
            other => panic!("flag {other}"),
        });
        assert_eq!(segment.flags, flags);
        assert_eq!(segment.emit(), bytes);
        count += 1;
    }
    assert_eq!(count, 2);
}

#[test]
fn a_cause_for_each_error() {
    let good = hex::decode("c00001bb11223344000000007002ffff0000000002040400fe040100").unwrap();
    let with = |at: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[at] = byte;
        Segment::parse(&bytes).map(|_| ())
    };
    assert_eq!(with(0, 0xc0), Ok(()));
    assert_eq!(Segment::parse(&good[..19]).map(|_| ()), Err(SegmentError::Short(19)));
    assert_eq!(Segment::parse(&good[..27]).map(|_| ()), Err(SegmentError::Short(27)));
    assert_eq!(with(12, 0x40), Err(SegmentError::HeaderLength(16)));
    assert_eq!(with(17, 1), Err(SegmentError::Checksum));
    assert_eq!(with(19, 1), Err(SegmentError::Flags));
    assert_eq!(with(13, 0x22), Err(SegmentError::Flags));
    assert_eq!(with(12, 0x71), Err(SegmentError::Flags));
    assert_eq!(with(21, 3), Err(SegmentError::Option));
    assert_eq!(with(20, 77).map(|_| ()), Ok(()), "an unknown option");
    assert_eq!(with(25, 5), Err(SegmentError::Option));
    let mut bytes = good.clone();
    bytes[..2].fill(0);
    assert_eq!(Segment::parse(&bytes), Err(SegmentError::PortZero));
    // The reserved byte of the version is part of it.
    let mut bytes = good;
    bytes[27] = 1;
    assert_eq!(Segment::parse(&bytes).unwrap().version, None);
}

/// The page of the protocol has these vectors, and the limits of the code.
#[test]
fn the_page_has_the_vectors_and_the_limits() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/protocol/stream.md");
    let page = std::fs::read_to_string(page).unwrap();
    let hex: String = page.split("```").nth(1).unwrap().split_whitespace().collect();
    let vectors: Value = serde_json::from_str(include_str!("vectors/wire-vectors.json")).unwrap();
    let all = vectors
        .as_array()
        .unwrap()
        .iter()
        .map(|vector| vector["hex"].as_str().unwrap());
    assert_eq!(hex, all.collect::<String>());
    let Limits {
        document,
        peer_connections,
        connections,
        peer_bytes,
        bytes,
        send_bytes,
        connect_ms,
        half_open_ms,
        progress_ms,
        total_ms,
        close_ms,
        mss: _,
    } = Limits::default();
    for row in [
        format!("| service port (`weft_stream::PORT`) | {PORT} |"),
        format!("| largest document | {} MiB |", document >> 20),
        format!("| connections of a peer, in each direction | {peer_connections} |"),
        format!("| connections in all, in each direction | {connections} |"),
        format!(
            "| memory for incomplete documents of a peer | {} MiB,",
            peer_bytes >> 20
        ),
        format!("| memory for all of them | {} MiB |", bytes >> 20),
        format!(
            "| memory for documents that are sent | {} MiB, {} MiB to a peer |",
            send_bytes >> 20,
            peer_bytes >> 20
        ),
        format!("| time to connect | {} s |", connect_ms / 1_000),
        format!("| half-open | {} s |", half_open_ms / 1_000),
        format!("| without progress | {} s |", progress_ms / 1_000),
        format!("| in all | {} s |", total_ms / 1_000),
        format!("| closing | {} s |", close_ms / 1_000),
    ] {
        assert!(page.contains(&row), "{row}");
    }
}
