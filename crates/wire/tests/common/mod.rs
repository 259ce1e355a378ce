//! Every format of this crate by name, so that tests go through all of them.
#![allow(dead_code)]

use weft_wire::filter::FilterAnnounce;
use weft_wire::fmp::{CommonPrefix, EstablishedHeader, InnerHeader, Msg1, Msg2};
use weft_wire::fsp::{EncryptedHeader, EncryptedMessage, FspInner, FspPrefix};
use weft_wire::link::{Disconnect, Heartbeat, SessionDatagram};
use weft_wire::lookup::{LookupRequest, LookupResponse};
use weft_wire::mmp::{ReceiverReport, ReportFraming, SenderReport};
use weft_wire::session::{CoordsWarmup, DataPorts, PathMtuNotification, SessionAck, SessionMsg3, SessionSetup};
use weft_wire::shim::ShimHeader;
use weft_wire::signal::{CoordsRequired, MtuExceeded, PathBroken, Signal};
use weft_wire::tree::{AncestryEntry, TreeAnnounce};
use weft_wire::virtio::VirtioNetHdr;
use weft_wire::{Coords, CoordsPair, WireError};

/// What may follow a message in the bytes that are parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tail {
    /// Nothing: the message uses all bytes, or the parser refuses them.
    Refused,
    /// Any bytes; they are not part of the message.
    Ignored,
}

/// One format: how to parse it and emit it again.
#[derive(Clone, Copy)]
pub(crate) struct Format {
    /// The name in the first line of a captured file.
    pub(crate) name: &'static str,
    /// Parses, then emits what was parsed.
    pub(crate) reemit: fn(&[u8]) -> Result<Vec<u8>, WireError>,
    /// Sets to zero the bytes that a parser ignores and a message does not keep.
    pub(crate) normalise: fn(&mut [u8]),
    pub(crate) tail: Tail,
}

pub(crate) fn format(name: &str) -> Format {
    let found = formats().into_iter().find(|format| format.name == name);
    found.unwrap_or_else(|| panic!("no format is called {name:?}"))
}

pub(crate) fn decode_hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text
        .chars()
        .filter(|c| !c.is_whitespace())
        .map(|c| c.to_digit(16).unwrap_or_else(|| panic!("{c:?} is not a digit")) as u8)
        .collect();
    assert!(digits.len().is_multiple_of(2), "half a byte in {text:?}");
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

fn emitted(emit: impl Fn(&mut [u8]) -> Result<usize, WireError>) -> Result<Vec<u8>, WireError> {
    let mut out = vec![0xaa; 1 << 21];
    let len = emit(&mut out)?;
    out.truncate(len);
    Ok(out)
}

fn zero(bytes: &mut [u8], range: std::ops::Range<usize>) {
    let end = range.end.min(bytes.len());
    bytes[range.start.min(end)..end].fill(0);
}

macro_rules! whole {
    ($name:literal, $type:ty, $tail:ident, $normalise:expr) => {
        Format {
            name: $name,
            reemit: |bytes| {
                let message = <$type>::parse(bytes)?;
                emitted(|out| message.emit(out))
            },
            normalise: $normalise,
            tail: Tail::$tail,
        }
    };
}

macro_rules! header {
    ($name:literal, $type:ty, $normalise:expr) => {
        Format {
            name: $name,
            reemit: |bytes| {
                let (header, rest) = <$type>::parse(bytes)?;
                let mut out = emitted(|out| header.emit(out))?;
                out.extend_from_slice(rest);
                Ok(out)
            },
            normalise: $normalise,
            tail: Tail::Refused,
        }
    };
}

macro_rules! report {
    ($name:literal, $type:ty, $framing:ident, $normalise:expr) => {
        Format {
            name: $name,
            reemit: |bytes| {
                let report = <$type>::parse(bytes, ReportFraming::$framing)?;
                emitted(|out| report.emit(out, ReportFraming::$framing))
            },
            normalise: $normalise,
            tail: Tail::Ignored,
        }
    };
}

const NOTHING: fn(&mut [u8]) = |_| {};
const PLAIN_PREFIX: fn(&mut [u8]) = |bytes| zero(bytes, 1..4);
/// The flags other than U, the length, and the reserved byte behind the type.
const SIGNAL: fn(&mut [u8]) = |bytes| {
    zero(bytes, 1..4);
    zero(bytes, 5..6);
};

pub(crate) fn formats() -> Vec<Format> {
    vec![
        whole!("common-prefix", CommonPrefix, Ignored, NOTHING),
        whole!("established-header", EstablishedHeader, Ignored, NOTHING),
        header!("inner-header", InnerHeader, NOTHING),
        whole!("msg1", Msg1<'_>, Refused, NOTHING),
        whole!("msg2", Msg2<'_>, Refused, NOTHING),
        whole!("session-datagram", SessionDatagram<'_>, Refused, NOTHING),
        whole!("disconnect", Disconnect, Ignored, NOTHING),
        whole!("heartbeat", Heartbeat, Ignored, NOTHING),
        report!("link-sender-report", SenderReport, Link, |b| zero(b, 0..3)),
        report!("session-sender-report", SenderReport, Session, |b| zero(b, 0..2)),
        report!("link-receiver-report", ReceiverReport, Link, |b| {
            zero(b, 0..3);
            zero(b, 37..39);
        }),
        report!("session-receiver-report", ReceiverReport, Session, |b| {
            zero(b, 0..2);
            zero(b, 36..38);
        }),
        whole!("ancestry-entry", AncestryEntry, Ignored, NOTHING),
        whole!("tree-announce", TreeAnnounce<'_>, Ignored, NOTHING),
        whole!("filter-announce", FilterAnnounce<'_>, Refused, NOTHING),
        whole!("lookup-request", LookupRequest<'_>, Ignored, NOTHING),
        whole!("lookup-response", LookupResponse<'_>, Ignored, NOTHING),
        header!("coords", Coords<'_>, NOTHING),
        header!("coords-pair", CoordsPair<'_>, NOTHING),
        whole!("fsp-prefix", FspPrefix, Ignored, NOTHING),
        whole!("encrypted-header", EncryptedHeader, Ignored, NOTHING),
        whole!("encrypted-message", EncryptedMessage<'_>, Refused, NOTHING),
        header!("fsp-inner", FspInner, NOTHING),
        whole!("session-setup", SessionSetup<'_>, Ignored, PLAIN_PREFIX),
        whole!("session-ack", SessionAck<'_>, Ignored, PLAIN_PREFIX),
        whole!("session-msg3", SessionMsg3<'_>, Ignored, PLAIN_PREFIX),
        header!("data-ports", DataPorts, NOTHING),
        whole!("path-mtu-notification", PathMtuNotification, Ignored, NOTHING),
        whole!("coords-warmup", CoordsWarmup, Ignored, NOTHING),
        whole!("coords-required", CoordsRequired, Ignored, SIGNAL),
        whole!("path-broken", PathBroken<'_>, Ignored, SIGNAL),
        whole!("mtu-exceeded", MtuExceeded, Ignored, SIGNAL),
        whole!("signal", Signal<'_>, Ignored, SIGNAL),
        header!("shim", ShimHeader, |b| if let Some(byte) = b.get_mut(1) {
            *byte &= 0x0f;
        }),
        header!("virtio", VirtioNetHdr, NOTHING),
    ]
}
