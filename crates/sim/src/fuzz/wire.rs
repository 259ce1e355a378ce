//! Every parser of weft-wire.

use std::ops::Range;

use weft_wire::checksum::{checksum_add, checksum_finish, checksum_fold, checksum_replace};
use weft_wire::filter::FilterAnnounce;
use weft_wire::fmp::{CommonPrefix, EstablishedHeader, InnerHeader, Msg1, Msg2};
use weft_wire::fsp::{EncryptedHeader, EncryptedMessage, FspInner, FspPrefix};
use weft_wire::ip::{self, Ipv4Header, Ipv6Header};
use weft_wire::link::{Disconnect, Heartbeat, SessionDatagram};
use weft_wire::lookup::{LookupRequest, LookupResponse};
use weft_wire::mmp::{ReceiverReport, ReportFraming, SenderReport};
use weft_wire::session::{CoordsWarmup, DataPorts, PathMtuNotification, SessionAck, SessionMsg3, SessionSetup};
use weft_wire::shim::{self, ShimHeader};
use weft_wire::signal::{CoordsRequired, MtuExceeded, PathBroken, Signal};
use weft_wire::transport::{TcpHeader, UdpHeader};
use weft_wire::tree::{AncestryEntry, TreeAnnounce};
use weft_wire::virtio::VirtioNetHdr;
use weft_wire::{Coords, CoordsPair, NodeAddr};

use super::model;

/// Bytes at `ignored` are not kept by a message: they come back as zero.
fn assert_same(what: &str, bytes: &[u8], emitted: &[u8], ignored: &[Range<usize>]) {
    let kept = |i: usize| !ignored.iter().any(|range| range.contains(&i));
    assert!(emitted.len() <= bytes.len(), "{what} grew to {} bytes", emitted.len());
    for (i, (new, old)) in emitted.iter().zip(bytes).enumerate() {
        let old = if kept(i) { *old } else { 0 };
        assert_eq!(*new, old, "{what}: byte {i}");
    }
}

/// A message that takes all bytes it is parsed from (`whole`), or leaves some behind it (`front`).
macro_rules! message {
    ($bytes:ident, $out:ident, $type:ty $(, $framing:expr)?; $extent:ident, $ignored:expr) => {
        if let Ok(message) = <$type>::parse($bytes $(, $framing)?) {
            let len = message.emit(&mut $out $(, $framing)?).unwrap();
            let what = stringify!($type);
            assert_same(what, $bytes, &$out[..len], &$ignored);
            message!(@$extent what, $bytes, len);
            assert_eq!(<$type>::parse(&$out[..len] $(, $framing)?), Ok(message), "{what} does not read back");
            assert!(message.emit(&mut $out[..len.saturating_sub(1)] $(, $framing)?).is_err() || len == 0);
        }
    };
    (@whole $what:ident, $bytes:ident, $len:ident) => {
        assert_eq!($len, $bytes.len(), "{} left bytes", $what);
    };
    (@front $what:ident, $bytes:ident, $len:ident) => {};
}

/// A header that is parsed together with what follows it.
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

/// Every parser on the same bytes: none panics, and what is read is written as it was, but for what the format says
/// is not kept.
pub fn wire(bytes: &[u8]) {
    let mut out = vec![0xaa; bytes.len() + 256];
    let all = |_: usize, byte: u8| byte;
    // Reserved bytes behind the type; flags and length that the daemon does not read.
    let (plain, signal) = ([1..4], [1..4, 5..6]);
    let nothing: [Range<usize>; 0] = [];

    message!(bytes, out, CommonPrefix; front, nothing);
    message!(bytes, out, EstablishedHeader; front, nothing);
    header!(bytes, out, InnerHeader, all);
    message!(bytes, out, Msg1<'_>; whole, nothing);
    message!(bytes, out, Msg2<'_>; whole, nothing);
    message!(bytes, out, SessionDatagram<'_>; whole, nothing);
    message!(bytes, out, Disconnect; front, nothing);
    message!(bytes, out, Heartbeat; front, nothing);
    let (link, session) = (ReportFraming::Link, ReportFraming::Session);
    message!(bytes, out, SenderReport, link; front, [0..3]);
    message!(bytes, out, SenderReport, session; front, [0..2]);
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
    message!(bytes, out, SessionSetup<'_>; front, plain_with_length(bytes, &plain));
    message!(bytes, out, SessionAck<'_>; front, plain_with_length(bytes, &plain));
    message!(bytes, out, SessionMsg3<'_>; front, plain_with_length(bytes, &plain));
    header!(bytes, out, DataPorts, all);
    message!(bytes, out, PathMtuNotification; front, nothing);
    message!(bytes, out, CoordsWarmup; front, nothing);
    message!(bytes, out, CoordsRequired; front, signal);
    message!(bytes, out, PathBroken<'_>; front, signal);
    message!(bytes, out, MtuExceeded; front, signal);
    message!(bytes, out, Signal<'_>; front, signal);
    header!(bytes, out, ShimHeader, |i, byte| if i == 1 { byte & 0x0f } else { byte });
    header!(bytes, out, VirtioNetHdr, all);

    derived(bytes, &mut out);
    packets(bytes);
    checksums(bytes);
    shims(bytes);
}
