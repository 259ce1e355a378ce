//! Every parser of weft-wire.

use std::ops::Range;

use weft_wire::check::Check;
use weft_wire::checksum::{checksum_add, checksum_finish, checksum_fold, checksum_replace};
use weft_wire::fast::{self, Capabilities};
use weft_wire::filter::FilterAnnounce;
use weft_wire::fmp::{CommonPrefix, EstablishedHeader, InnerHeader, Msg1, Msg2};
use weft_wire::fsp::{EncryptedHeader, EncryptedMessage, FspInner, FspPrefix};
use weft_wire::grant::Grant;
use weft_wire::hops::{Hop, HopsRequest};
use weft_wire::ip::{self, Ipv4Header, Ipv6Header};
use weft_wire::link::{Disconnect, Heartbeat, SessionDatagram};
use weft_wire::lookup::{LookupRequest, LookupResponse};
use weft_wire::mmp::{ReceiverReport, ReportFraming, SenderReport};
use weft_wire::session::{
    CoordsWarmup, DataPorts, PathMtuNotification, RelayProbe, SessionAck, SessionMsg3, SessionSetup,
};
use weft_wire::shim::{self, ShimHeader};
use weft_wire::sighting::Sighting;
use weft_wire::signal::{CoordsRequired, MtuExceeded, PathBroken, Signal};
use weft_wire::transport::{TcpHeader, UdpHeader};
use weft_wire::tree::{AncestryEntry, TreeAnnounce};
use weft_wire::virtio::VirtioNetHdr;
use weft_wire::{Coords, CoordsPair, NodeAddr};

use super::model;

/// Compares bytes, except for the ranges `ignored`, which the message does not keep.
fn assert_same(what: &str, bytes: &[u8], emitted: &[u8], ignored: &[Range<usize>; 2]) {
    assert!(emitted.len() <= bytes.len(), "{what} grew to {} bytes", emitted.len());
    for (i, (new, old)) in emitted.iter().zip(bytes).enumerate() {
        let kept = !ignored.iter().any(|range| range.contains(&i));
        assert!(!kept || new == old, "{what}: byte {i} was {old:#04x} and is {new:#04x}");
    }
}

/// A message that uses all bytes it is parsed from (`whole`), or leaves some behind it (`front`).
macro_rules! message {
    ($bytes:ident, $out:ident, $type:ty $(, $framing:expr)?; $extent:ident, $ignored:expr) => {
        if let Ok(message) = <$type>::parse($bytes $(, $framing)?) {
            let len = message.emit(&mut $out $(, $framing)?).unwrap();
            let what = stringify!($type);
            assert_same(what, $bytes, &$out[..len], &$ignored);
            message!(@$extent what, $bytes, len);
            // Some headers are refused if less follows than their frame needs.
            let again = [&$out[..len], &$bytes[len..]].concat();
            assert_eq!(<$type>::parse(&again $(, $framing)?), Ok(message), "{what} does not read back");
            assert!(message.emit(&mut $out[..len.saturating_sub(1)] $(, $framing)?).is_err() || len == 0);
        }
    };
    (@whole $what:ident, $bytes:ident, $len:ident) => {
        assert_eq!($len, $bytes.len(), "{} left bytes", $what);
    };
    (@front $what:ident, $bytes:ident, $len:ident) => {};
}

/// A header that is parsed together with the bytes that follow it.
macro_rules! header {
    ($bytes:ident, $out:ident, $type:ty, $mask:expr) => {
        if let Ok((header, rest)) = <$type>::parse($bytes) {
            let len = header.emit(&mut $out).unwrap();
            let (what, mask): (_, fn(usize, u8) -> u8) = (stringify!($type), $mask);
            assert_eq!(len + rest.len(), $bytes.len(), "{what}");
            assert_eq!(rest, &$bytes[len..], "{what}");
            for (i, (new, old)) in $out[..len].iter().zip($bytes).enumerate() {
                assert_eq!(mask(i, *new), mask(i, *old), "{what}: byte {i}");
            }
        }
    };
}

/// Runs every parser on the same bytes: none panics, and a parsed message is emitted unchanged,
/// except for bytes that the format does not keep.
pub fn wire(bytes: &[u8]) {
    // A datagram is never longer, and lengths of 16 bits express no more.
    let bytes = &bytes[..bytes.len().min(65_507)];
    let mut out = vec![0xaa; bytes.len() + 256];
    let all = |_: usize, byte: u8| byte;
    // Flags and length that the FIPS daemon does not read; for signals the reserved byte behind the
    // type, too.
    let (nothing, plain, signal) = ([0..0, 0..0], [1..4, 0..0], [1..4, 5..6]);

    message!(bytes, out, CommonPrefix; front, nothing);
    message!(bytes, out, EstablishedHeader; front, nothing);
    header!(bytes, out, InnerHeader, all);
    message!(bytes, out, Msg1<'_>; whole, nothing);
    message!(bytes, out, Msg2<'_>; whole, nothing);
    message!(bytes, out, SessionDatagram<'_>; whole, nothing);
    message!(bytes, out, Disconnect; front, nothing);
    message!(bytes, out, Heartbeat; front, nothing);
    message!(bytes, out, Sighting; whole, nothing);
    message!(bytes, out, HopsRequest; whole, nothing);
    if let Ok(check) = Check::parse(bytes) {
        assert_eq!(Check::parse(&check.to_bytes()), Ok(check));
    }
    if let Ok(grant) = Grant::parse(bytes) {
        assert_eq!(Grant::parse(&grant.to_bytes()), Ok(grant));
    }
    message!(bytes, out, Hop; whole, nothing);
    let (link, session) = (ReportFraming::Link, ReportFraming::Session);
    message!(bytes, out, SenderReport, link; front, [0..3, 0..0]);
    message!(bytes, out, SenderReport, session; front, [0..2, 0..0]);
    message!(bytes, out, ReceiverReport, link; front, [0..3, 37..39]);
    message!(bytes, out, ReceiverReport, session; front, [0..2, 36..38]);
    message!(bytes, out, AncestryEntry; front, nothing);
    message!(bytes, out, TreeAnnounce<'_>; front, nothing);
    message!(bytes, out, FilterAnnounce<'_>; whole, nothing);
    message!(bytes, out, LookupRequest<'_>; front, nothing);
    message!(bytes, out, LookupResponse<'_>; front, nothing);
    header!(bytes, out, Coords<'_>, all);
    header!(bytes, out, CoordsPair<'_>, all);
    message!(bytes, out, FspPrefix; front, nothing);
    message!(bytes, out, EncryptedHeader; front, nothing);
    message!(bytes, out, EncryptedMessage<'_>; whole, nothing);
    header!(bytes, out, FspInner, all);
    message!(bytes, out, SessionSetup<'_>; front, plain);
    message!(bytes, out, SessionAck<'_>; front, plain);
    message!(bytes, out, SessionMsg3<'_>; front, plain);
    header!(bytes, out, DataPorts, all);
    message!(bytes, out, PathMtuNotification; front, nothing);
    message!(bytes, out, RelayProbe; whole, nothing);
    message!(bytes, out, CoordsWarmup; front, nothing);
    message!(bytes, out, CoordsRequired; front, signal);
    message!(bytes, out, PathBroken<'_>; front, signal);
    message!(bytes, out, MtuExceeded; front, signal);
    message!(bytes, out, Signal<'_>; front, signal);
    header!(bytes, out, ShimHeader, |i, byte| if i == 1 {
        byte & 0x0f
    } else {
        byte
    });
    header!(bytes, out, VirtioNetHdr, all);

    derived(bytes, &mut out);
    packets(bytes);
    checksums(bytes);
    shims(bytes);
    fast_frames(bytes);
}

/// Fast frames: header, capabilities, and a packet without its addresses.
fn fast_frames(bytes: &[u8]) {
    if let Ok(header) = fast::Header::parse(bytes) {
        assert!(fast::is_fast(bytes));
        assert_eq!(header.to_bytes(), bytes[..fast::Header::LEN]);
        assert_eq!(usize::from(header.length), bytes.len() - fast::Header::LEN);
    }
    if let Ok(told) = Capabilities::parse(bytes) {
        let (suites, indices): (Vec<_>, Vec<_>) = (told.suites().collect(), told.indices().collect());
        let mut out = vec![0; Capabilities::MAX_LEN];
        let (flags, payload, version) = (told.flags, told.max_payload, told.version.unwrap_or_default());
        let len = Capabilities::emit_with(flags, payload, &told.random, &suites, &indices, version, &mut out).unwrap();
        assert_same("Capabilities", bytes, &out[..len], &[0..0, 0..0]);
        assert_eq!(Capabilities::parse(&out[..len]), Ok(told));
    }
    let at = usize::from(bytes.first().copied().unwrap_or(0));
    let (src, dst) = (address(&[0xfd; 16]), address(&[0xfe; 16]));
    let mut buf = bytes.to_vec();
    match fast::expand_in_place(&mut buf, at, src, dst) {
        Ok(start) => {
            let packet = Ipv6Header::parse(&buf[start..]).unwrap();
            assert_eq!((packet.src(), packet.dst()), (src, dst));
            assert_eq!(packet.payload(), &bytes[at..]);
            assert_eq!(buf[..start], bytes[..start]);
            let rest = fast::compress(&buf[start..]).unwrap();
            let sent = &bytes[at - fast::IPV6_REST..at];
            assert_eq!(rest[0], 0x60 | sent[0] & 0x0f);
            assert_eq!(rest[1..], sent[1..]);
        }
        Err(_) => assert_eq!(buf, bytes),
    }
    assert_eq!(
        fast::compress(bytes).is_some(),
        bytes.len() >= Ipv6Header::LEN && bytes[0] >> 4 == 6
    );
}

/// Values that are computed from a parsed message.
fn derived(bytes: &[u8], out: &mut [u8]) {
    if let Ok(announce) = TreeAnnounce::parse(bytes) {
        let ancestry = announce.ancestry;
        let entries: Vec<_> = ancestry.iter().collect();
        assert_eq!(entries.len(), ancestry.len());
        assert_eq!(ancestry.root(), entries.last().copied());
        assert!((0..=entries.len()).all(|i| ancestry.at(i) == entries.get(i).copied()));
        assert_eq!(announce.node().is_ok(), announce.signed_bytes().is_ok());
    }
    if let Ok((coords, _)) = Coords::parse(bytes) {
        let path: Vec<NodeAddr> = coords.iter().collect();
        assert_eq!((path.len(), coords.root()), (coords.len(), path.last().copied()));
        assert!((0..=path.len()).all(|i| coords.at(i) == path.get(i).copied()));
        assert_eq!(Coords::new(&path), coords);
    }
    if let Ok(response) = LookupResponse::parse(bytes) {
        let len = response.emit_proof_message(out).unwrap();
        assert_eq!(len, response.proof_message_len());
    }
    if let Ok(datagram) = SessionDatagram::parse(bytes) {
        let mut hop = bytes.to_vec();
        let ttl = datagram.ttl.wrapping_sub(1);
        SessionDatagram::rewrite_hop(&mut hop, ttl, 1).unwrap();
        let expected = SessionDatagram {
            ttl,
            path_mtu: 1,
            ..datagram
        };
        assert_eq!(SessionDatagram::parse(&hop), Ok(expected));
    }
}

/// Views of IP packets stay inside their bytes.
fn packets(bytes: &[u8]) {
    let _ = ip::version(bytes);
    if let Ok(v6) = Ipv6Header::parse(bytes) {
        let end = Ipv6Header::LEN + usize::from(v6.payload_len());
        assert_eq!(v6.payload(), &bytes[Ipv6Header::LEN..end]);
        let text = format!("{v6:?}");
        assert!(!text.is_empty());
        segments(v6.payload());
    }
    if let Ok(v4) = Ipv4Header::parse(bytes) {
        assert_eq!(v4.payload(), &bytes[v4.header_len()..usize::from(v4.total_len())]);
        let whole = checksum_finish(checksum_add(0, &bytes[..v4.header_len()])) == 0;
        assert_eq!(v4.has_valid_checksum(), whole);
        segments(v4.payload());
    }
    segments(bytes);
}

fn segments(bytes: &[u8]) {
    if let Ok(tcp) = TcpHeader::parse(bytes) {
        assert_eq!(tcp.payload(), &bytes[tcp.header_len()..]);
        assert_eq!(tcp.options_bytes(), &bytes[TcpHeader::MIN_LEN..tcp.header_len()]);
        for option in tcp.options() {
            let data = option.at + 2;
            assert_eq!(option.kind, bytes[option.at]);
            assert!(option.data.is_empty() || data + option.data.len() <= tcp.header_len());
        }
        if let Some((mss, at)) = tcp.mss() {
            assert_eq!(mss.to_be_bytes(), bytes[at..at + 2]);
        }
    }
    if let Ok(udp) = UdpHeader::parse(bytes) {
        assert_eq!(udp.payload(), &bytes[UdpHeader::LEN..usize::from(udp.length())]);
    }
}

fn checksums(bytes: &[u8]) {
    assert_eq!(checksum_fold(checksum_add(0, bytes)), model::sum(&[bytes]));
    let half = bytes.len() / 4 * 2;
    let parts = checksum_add(checksum_add(0, &bytes[..half]), &bytes[half..]);
    assert_eq!(checksum_fold(parts), model::sum(&[bytes]));
    if let &[a, b, c, d, e, f, ..] = bytes {
        let [checksum, old, new] = [[a, b], [c, d], [e, f]].map(u16::from_be_bytes);
        // Zero and its complement are one number; either may be in the field.
        let plus = |x: u16, y: u16| model::sum(&[&x.to_be_bytes(), &y.to_be_bytes()]);
        let one = |x: u16| if x == 0xffff { 0 } else { x };
        let (before, after) = (plus(!checksum, new), plus(!checksum_replace(checksum, old, new), old));
        assert_eq!(one(before), one(after));
    }
}

/// Compression and expansion are inverse, or leave the buffer unchanged.
fn shims(bytes: &[u8]) {
    let at = usize::from(bytes.first().copied().unwrap_or(0));
    let mut buf = bytes.to_vec();
    match shim::compress_in_place(&mut buf, at) {
        Ok(shim_at) => {
            assert_eq!(&buf[..at], &bytes[..at]);
            assert_eq!(&buf[at + Ipv6Header::LEN..], &bytes[at + Ipv6Header::LEN..]);
            assert_eq!(&buf[at..shim_at], &bytes[at..shim_at]);
            let (src, dst) = (address(&bytes[at + 8..at + 24]), address(&bytes[at + 24..at + 40]));
            assert_eq!(shim::expand_in_place(&mut buf, shim_at, src, dst), Ok(at));
            // The length field equals the actual length.
            let upper = (bytes.len() - at - Ipv6Header::LEN) as u16;
            assert_eq!(buf[at + 4..at + 6], upper.to_be_bytes());
            buf[at + 4..at + 6].copy_from_slice(&bytes[at + 4..at + 6]);
            assert_eq!(buf, bytes);
        }
        Err(_) => assert_eq!(buf, bytes),
    }
    let mut buf = bytes.to_vec();
    let (src, dst) = (address(&[0xfd; 16]), address(&[0xfe; 16]));
    match shim::expand_in_place(&mut buf, at, src, dst) {
        Ok(start) => {
            let packet = Ipv6Header::parse(&buf[start..]).unwrap();
            assert_eq!((packet.src(), packet.dst()), (src, dst));
            assert_eq!(packet.payload(), &bytes[at + ShimHeader::LEN..]);
        }
        Err(_) => assert_eq!(buf, bytes),
    }
}

fn address(bytes: &[u8]) -> std::net::Ipv6Addr {
    std::net::Ipv6Addr::from(<[u8; 16]>::try_from(bytes).unwrap())
}
