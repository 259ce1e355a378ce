//! Vectors of FSP messages, of the bodies inside them, and of packets on a TUN device.

use weft_wire::fsp::{self, EncryptedHeader, EncryptedMessage, FspInner, FspPrefix};
use weft_wire::session::{DataPorts, PathMtuNotification, SessionAck, SessionMessageType, SessionMsg3, SessionSetup};
use weft_wire::shim::ShimHeader;
use weft_wire::signal::{CoordsRequired, MtuExceeded, PathBroken, Signal, SignalType};
use weft_wire::virtio::{self, VirtioNetHdr};
use weft_wire::{Coords, CoordsPair, WireError};

use crate::common::decode_hex;
use crate::{A, B, a, b, vector};

#[test]
fn encrypted_message() {
    let path = [a(), b()];
    let tag = "f0".repeat(16);
    let message = vector("encrypted-message", &format!("00 02 0600 0807060504030201 0a0b {tag}"));
    let header = EncryptedHeader {
        flags: fsp::FLAG_KEY_EPOCH,
        payload_len: 6,
        counter: 0x0102_0304_0506_0708,
    };
    let parsed = EncryptedMessage::parse(&message).unwrap();
    assert_eq!(
        (parsed.header, parsed.coords, parsed.ciphertext.len()),
        (header, None, 18)
    );
    assert_eq!(header.to_bytes(), message[..12]);

    // A CoordsWarmup: flag CP, a depth of one on the left, unknown coordinates on the right.
    let hex = format!("00 01 0600 0100000000000000 0200 {A} {B} 0000 010203040506 {tag}");
    let message = vector("encrypted-message", &hex);
    let parsed = EncryptedMessage::parse(&message).unwrap();
    let pair = CoordsPair {
        src: Coords::new(&path),
        dest: Coords::EMPTY,
    };
    assert_eq!((parsed.coords, parsed.ciphertext.len()), (Some(pair), 22));

    let signal = decode_hex(&format!("00 04 0600 0100000000000000 {tag}"));
    assert_eq!(EncryptedMessage::parse(&signal), Err(WireError::WrongCipherFlag(4)));
    let no_tag = decode_hex(&format!("00 01 0600 0100000000000000 0000 0000 {}", "f0".repeat(15)));
    let short = WireError::TooShort { needed: 32, got: 31 };
    assert_eq!(EncryptedMessage::parse(&no_tag), Err(short));
    let mut out = [0; 64];
    let lying = EncryptedMessage {
        header,
        coords: Some(pair),
        ciphertext: &[],
    };
    assert_eq!(lying.emit(&mut out), Err(WireError::WrongCoordsFlag(2)));
}

#[test]
fn session_inner_header() {
    let plaintext = vector("fsp-inner", "04030201 10 01 0001 0001 00");
    let inner = FspInner {
        timestamp: 0x0102_0304,
        msg_type: 0x10,
        inner_flags: 1,
    };
    let (parsed, body) = FspInner::parse(&plaintext).unwrap();
    assert_eq!(parsed, inner);
    assert_eq!(SessionMessageType::from_byte(0x10), Some(SessionMessageType::Data));
    assert_eq!(DataPorts::parse(body), Ok((DataPorts::IPV6_SHIM, &[0][..])));
    let ports = vector("data-ports", "0201 0403");
    assert_eq!(
        DataPorts::parse(&ports),
        Ok((
            DataPorts {
                src: 0x0102,
                dst: 0x0304
            },
            &[][..]
        ))
    );
    let body = vector("path-mtu-notification", "0005");
    assert_eq!(
        PathMtuNotification::parse(&body),
        Ok(PathMtuNotification { path_mtu: 1280 })
    );
    assert_eq!(vector("coords-warmup", ""), []);
}

#[test]
fn session_handshake() {
    let (src, dest) = ([a()], [b(), a()]);
    let noise = "5a".repeat(33);
    let hex = format!("01 00 5800 03 0100 {A} 0200 {B} {A} 2100 {noise}");
    let message = vector("session-setup", &hex);
    let (src, dest) = (Coords::new(&src), Coords::new(&dest));
    let setup = SessionSetup {
        flags: 3,
        src,
        dest,
        noise: &[0x5a; 33],
    };
    assert_eq!(SessionSetup::parse(&message), Ok(setup));
    assert_eq!(FspPrefix::parse(&message).unwrap().payload_len, 88);

    let noise = "5a".repeat(57);
    let hex = format!("02 00 7000 00 0100 {A} 0200 {B} {A} 3900 {noise}");
    let message = vector("session-ack", &hex);
    let ack = SessionAck {
        flags: 0,
        src,
        dest,
        noise: &[0x5a; 57],
    };
    assert_eq!(SessionAck::parse(&message), Ok(ack));
    assert_eq!(SessionSetup::parse(&message), Err(WireError::WrongPhase(2)));

    let message = vector("session-msg3", &format!("03 00 4c00 00 4900 {}", "5a".repeat(73)));
    assert_eq!(
        SessionMsg3::parse(&message),
        Ok(SessionMsg3 {
            flags: 0,
            noise: &[0x5a; 73]
        })
    );
    assert_eq!(message.len(), 80);

    let empty = decode_hex(&format!("01 00 0000 00 0100 {A} 0000 0000"));
    assert_eq!(SessionSetup::parse(&empty), Err(WireError::EmptyCoords));
    let other = decode_hex("13 00 0300 00 0000");
    assert_eq!(SessionMsg3::parse(&other), Err(WireError::UnsupportedVersion(1)));
}

#[test]
fn signals() {
    let (dest, reporter) = (a(), b());
    let message = vector("coords-required", &format!("00 04 2200 20 00 {A} {B}"));
    let required = CoordsRequired { dest, reporter };
    assert_eq!(CoordsRequired::parse(&message), Ok(required));
    assert_eq!(Signal::parse(&message), Ok(Signal::CoordsRequired(required)));
    assert_eq!(message.len(), 38);

    let message = vector("path-broken", &format!("00 04 3400 21 00 {A} {B} 0100 {A}"));
    let coords = [a()];
    let broken = PathBroken {
        dest,
        reporter,
        last_coords: Coords::new(&coords),
    };
    assert_eq!(PathBroken::parse(&message), Ok(broken));
    assert_eq!(Signal::parse(&message), Ok(Signal::PathBroken(broken)));
    let wrong = WireError::WrongMessageType(SignalType::PathBroken.to_byte());
    assert_eq!(MtuExceeded::parse(&message), Err(wrong));

    let message = vector("mtu-exceeded", &format!("00 04 2400 22 00 {A} {B} 0005"));
    let exceeded = MtuExceeded {
        dest,
        reporter,
        mtu: 1280,
    };
    assert_eq!(MtuExceeded::parse(&message), Ok(exceeded));
    assert_eq!(Signal::parse(&message), Ok(Signal::MtuExceeded(exceeded)));
    assert_eq!(message.len(), 40);

    let unknown = decode_hex("00 04 0200 23 00");
    assert_eq!(Signal::parse(&unknown), Err(WireError::WrongMessageType(0x23)));
    let sealed = decode_hex("00 00 0200 20 00");
    assert_eq!(Signal::parse(&sealed), Err(WireError::WrongCipherFlag(0)));
}

#[test]
fn shim_header() {
    // Traffic class 0xab and flow label 0xcdef0, UDP, hop limit 64: as the FIPS daemon writes them.
    let payload = vector("shim", "00 6abcdef0 11 40 ff");
    let header = ShimHeader {
        traffic_class: 0xab,
        flow_label: 0xc_def0,
        next_header: 17,
        hop_limit: 64,
    };
    assert_eq!(ShimHeader::parse(&payload), Ok((header, &[0xff][..])));
    let other_version = decode_hex("00 0abcdef0 11 40");
    assert_eq!(ShimHeader::parse(&other_version), Ok((header, &[][..])));
    let unknown = decode_hex("01 6abcdef0 11 40");
    assert_eq!(ShimHeader::parse(&unknown), Err(WireError::UnknownShimFormat(1)));
}

#[test]
#[cfg(target_endian = "little")]
fn virtio_header() {
    let bytes = vector("virtio", "01 84 4800 d804 2800 1000 60");
    let header = VirtioNetHdr {
        flags: virtio::NEEDS_CSUM,
        gso_type: virtio::GSO_TCPV6 | virtio::GSO_ECN,
        hdr_len: 72,
        gso_size: 1240,
        csum_start: 40,
        csum_offset: 16,
    };
    assert_eq!(VirtioNetHdr::parse(&bytes), Ok((header, &[0x60][..])));
    assert_eq!((header.gso_kind(), header.needs_csum()), (virtio::GSO_TCPV6, true));
}
