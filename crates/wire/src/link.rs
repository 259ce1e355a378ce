//! Messages between neighbours, inside sealed frames: types, envelope, teardown, liveness.
//!
//! Source: FIPS wire-formats, "Link-Layer Message Types", and `proto/link.rs`. FIPS numbers the
//! type byte as offset 0 of each message. Here the type byte belongs to
//! [`InnerHeader`](crate::fmp::InnerHeader), and a body starts behind it.

use crate::cursor::{Reader, Writer};
use crate::{NodeAddr, WireError};

/// The first link message type of weft; FIPS daemons drop unknown types.
pub const FIRST_WEFT_TYPE: u8 = 0xf0;

/// Asks a neighbour to answer at once (weft only). The body is returned with [`PROBE_ANSWER`]; more
/// than [`MAX_PROBE`] bytes are not answered. docs/protocol/link.md, "Probe".
pub const PROBE: u8 = 0xf1;

/// Answers [`PROBE`] with its body.
pub const PROBE_ANSWER: u8 = 0xf2;

/// Two running nodes have the receiver's key. Body: the address of the other one, 16 bytes IPv6 (IPv4 mapped), then its port, 2
/// bytes.
pub const KEY_IN_TWO: u8 = 0xf3;

/// The address that the sender sees of the receiver (weft only). Body: like that of [`KEY_IN_TWO`].
/// docs/protocol/link.md, "Observed".
pub const OBSERVED: u8 = 0xf4;

/// Asks whether the receiver sees a third node at an address (weft only): the body is a
/// [`Sighting`](crate::sighting::Sighting). docs/protocol/link.md, "SightingRequest".
pub const SIGHTING_REQUEST: u8 = 0xf6;

/// Answers [`SIGHTING_REQUEST`] (weft only), with the same form of body.
pub const SIGHTING: u8 = 0xf7;

/// The capabilities of a neighbour in relayed fast frames (weft only): the body is
/// [`Capabilities`](crate::fast::Capabilities). docs/protocol/fast.md, "Hop keys".
pub const HOP_CAPABILITIES: u8 = 0xf8;

/// Answers [`HOP_CAPABILITIES`]: the first [`DIGEST_LEN`](crate::fast::DIGEST_LEN) bytes of the
/// SHA-256 of the received body.
pub const HOP_CAPABILITIES_ACK: u8 = 0xf9;

/// A [`Bind`](crate::fast::Bind) (weft only): asks for frames with a label to be relayed.
pub const BIND: u8 = 0xfa;

/// A [`Bound`](crate::fast::Bound) (weft only): answers [`BIND`].
pub const BOUND: u8 = 0xfb;

/// An [`Unbind`](crate::fast::Unbind) (weft only): ends a label.
pub const UNBIND: u8 = 0xfc;

/// Asks the nodes on the path to a node about themselves (weft only): the body is a
/// [`HopsRequest`](crate::hops::HopsRequest). docs/protocol/link.md, "HopsRequest".
pub const HOPS_REQUEST: u8 = 0xfd;

/// What a node of the path says about itself (weft only): the body is a [`Hop`](crate::hops::Hop).
pub const HOP: u8 = 0xfe;

/// The body of a [`LinkMessageType::Heartbeat`] of a node whose own addresses or routes have changed. FIPS ignores bodies
/// of heartbeats.
pub const MOVED: u8 = 0x01;

/// The byte behind the number in a [`PROBE`] of a path: the sender uses that path only while no other
/// works.
pub const SPARE: u8 = 0x01;
/// The byte behind the number of a probe in an answer on the path in use: the probe has come from a source
/// that the peer has not proven, and is answered there as well.
pub const ELSEWHERE: u8 = 0x04;

/// The byte behind the number in a [`PROBE`] of a path: the sender would send data on that path beside
/// others. Zeros follow, so that the probe is as large as a frame of data.
pub const BONDED: u8 = 0x02;

/// The byte behind the number in a [`PROBE`] of a path: frames of [`SURE_PAYLOAD`](crate::fast::SURE_PAYLOAD)
/// bytes of the sender do not arrive there. With zeros behind it, the probe is such a frame itself.
pub const NARROW: u8 = 0x03;

/// The longest body of a [`PROBE`], bytes, but for one with [`BONDED`] or [`NARROW`]. Weft sends 4, and 8 or
/// 9 to probe a path.
pub const MAX_PROBE: usize = 16;

/// The message that follows the inner header (FIPS wire-formats, "Message Type Table").
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum LinkMessageType {
    /// [`SessionDatagram`]: an end-to-end message.
    SessionDatagram = 0x00,
    /// [`SenderReport`](crate::mmp::SenderReport) about the link.
    SenderReport = 0x01,
    /// [`ReceiverReport`](crate::mmp::ReceiverReport) about the link.
    ReceiverReport = 0x02,
    /// [`TreeAnnounce`](crate::tree::TreeAnnounce).
    TreeAnnounce = 0x10,
    /// [`FilterAnnounce`](crate::filter::FilterAnnounce).
    FilterAnnounce = 0x20,
    /// [`LookupRequest`](crate::lookup::LookupRequest).
    LookupRequest = 0x30,
    /// [`LookupResponse`](crate::lookup::LookupResponse).
    LookupResponse = 0x31,
    /// [`Disconnect`].
    Disconnect = 0x50,
    /// [`Heartbeat`].
    Heartbeat = 0x51,
}

impl LinkMessageType {
    /// The type of a byte, or `None` for one that FIPS does not define.
    #[must_use]
    pub const fn from_byte(byte: u8) -> Option<Self> {
        Some(match byte {
            0x00 => Self::SessionDatagram,
            0x01 => Self::SenderReport,
            0x02 => Self::ReceiverReport,
            0x10 => Self::TreeAnnounce,
            0x20 => Self::FilterAnnounce,
            0x30 => Self::LookupRequest,
            0x31 => Self::LookupResponse,
            0x50 => Self::Disconnect,
            0x51 => Self::Heartbeat,
            _ => return None,
        })
    }

    /// The byte on the wire.
    #[must_use]
    pub const fn to_byte(self) -> u8 {
        self as u8
    }
}

const DATAGRAM_HEADER: usize = 1 + 2 + NodeAddr::LEN + NodeAddr::LEN;

/// The envelope of an end-to-end message (FIPS wire-formats, "SessionDatagram").
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SessionDatagram<'a> {
    /// Hops left. A relay decrements it first and forwards the datagram only if it is then above
    /// zero; the destination accepts any value.
    pub ttl: u8,
    /// Smallest link MTU so far, in bytes; each forwarding hop lowers it to its next link's.
    pub path_mtu: u16,
    /// The sender: the endpoint, or for an error signal the node that reports.
    pub src: NodeAddr,
    /// The destination.
    pub dest: NodeAddr,
    /// The session message, opaque to relays.
    pub payload: &'a [u8],
}

impl<'a> SessionDatagram<'a> {
    /// Bytes before the payload. FIPS's figure of 36 counts the type byte too.
    pub const HEADER_LEN: usize = DATAGRAM_HEADER;
    /// The TTL with which a datagram starts.
    pub const DEFAULT_TTL: u8 = 64;
    /// The path MTU with which a datagram starts: unknown.
    pub const INITIAL_PATH_MTU: u16 = u16::MAX;

    /// Reads a body, which follows the inner header. All of the rest is payload.
    ///
    /// # Errors
    /// [`WireError::TooShort`].
    pub fn parse(body: &'a [u8]) -> Result<Self, WireError> {
        let mut r = Reader::new(body);
        Ok(Self {
            ttl: r.u8()?,
            path_mtu: r.u16()?,
            src: r.addr()?,
            dest: r.addr()?,
            payload: r.rest(),
        })
    }

    /// Bytes on the wire.
    #[must_use]
    pub const fn wire_len(&self) -> usize {
        Self::HEADER_LEN + self.payload.len()
    }

    /// The 35 bytes before the payload, for a sender whose payload is already in place.
    #[must_use]
    pub fn header_bytes(&self) -> [u8; DATAGRAM_HEADER] {
        let mut bytes = [0; DATAGRAM_HEADER];
        bytes[0] = self.ttl;
        bytes[1..3].copy_from_slice(&self.path_mtu.to_le_bytes());
        bytes[3..19].copy_from_slice(self.src.as_bytes());
        bytes[19..].copy_from_slice(self.dest.as_bytes());
        bytes
    }

    /// Writes the body and returns [`SessionDatagram::wire_len`].
    ///
    /// # Errors
    /// [`WireError::BufferTooSmall`].
    pub fn emit(&self, out: &mut [u8]) -> Result<usize, WireError> {
        Writer::new(out)
            .bytes(&self.header_bytes())
            .bytes(self.payload)
            .finish()
    }

    /// Rewrites in place the two fields that a hop changes.
    ///
    /// # Errors
    /// [`WireError::TooShort`] if `body` does not hold a whole header.
    pub fn rewrite_hop(body: &mut [u8], ttl: u8, path_mtu: u16) -> Result<(), WireError> {
        let got = body.len();
        let header = body.first_chunk_mut::<DATAGRAM_HEADER>().ok_or(WireError::TooShort {
            needed: Self::HEADER_LEN,
            got,
        })?;
        header[0] = ttl;
        header[1..3].copy_from_slice(&path_mtu.to_le_bytes());
        Ok(())
    }
}

/// Why a neighbour ends a link (FIPS wire-formats, "Reason codes").
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DisconnectReason {
    /// 0x00: the operator stopped the node.
    Shutdown,
    /// 0x01: the node restarts and may come back soon.
    Restart,
    /// 0x02: a message broke the protocol.
    ProtocolError,
    /// 0x03: the transport failed.
    TransportFailure,
    /// 0x04: out of memory or connections.
    ResourceExhaustion,
    /// 0x05: authentication or policy was violated.
    SecurityViolation,
    /// 0x06: the peer is no longer configured.
    ConfigurationChange,
    /// 0x07: nothing was received for too long.
    Timeout,
    /// 0xFF, or an unknown code, which the FIPS daemon treats as 0xFF. The code is kept.
    Other(u8),
}

impl DisconnectReason {
    /// The reason "unspecified", as it is sent.
    pub const UNSPECIFIED: Self = Self::Other(0xff);

    /// The reason of a code; every code has one.
    #[must_use]
    pub const fn from_byte(code: u8) -> Self {
        match code {
            0x00 => Self::Shutdown,
            0x01 => Self::Restart,
            0x02 => Self::ProtocolError,
            0x03 => Self::TransportFailure,
            0x04 => Self::ResourceExhaustion,
            0x05 => Self::SecurityViolation,
            0x06 => Self::ConfigurationChange,
            0x07 => Self::Timeout,
            other => Self::Other(other),
        }
    }

    /// The code on the wire.
    #[must_use]
    pub const fn to_byte(self) -> u8 {
        match self {
            Self::Shutdown => 0x00,
            Self::Restart => 0x01,
            Self::ProtocolError => 0x02,
            Self::TransportFailure => 0x03,
            Self::ResourceExhaustion => 0x04,
            Self::SecurityViolation => 0x05,
            Self::ConfigurationChange => 0x06,
            Self::Timeout => 0x07,
            Self::Other(code) => code,
        }
    }
}

/// A neighbour closes the link (FIPS wire-formats, "Disconnect").
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Disconnect {
    /// The reason.
    pub reason: DisconnectReason,
}

impl Disconnect {
    /// Bytes of the body.
    pub const LEN: usize = 1;

    /// Reads a body; bytes behind it are ignored, as the FIPS daemon does.
    ///
    /// # Errors
    /// [`WireError::TooShort`].
    pub fn parse(body: &[u8]) -> Result<Self, WireError> {
        Ok(Self {
            reason: DisconnectReason::from_byte(Reader::new(body).u8()?),
        })
    }

    /// Writes the body and returns [`Disconnect::LEN`].
    ///
    /// # Errors
    /// [`WireError::BufferTooSmall`].
    pub fn emit(&self, out: &mut [u8]) -> Result<usize, WireError> {
        Writer::new(out).u8(self.reason.to_byte()).finish()
    }
}

/// A neighbour is alive (FIPS wire-formats, "Message Type Table"). The message is its type byte.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Heartbeat;

impl Heartbeat {
    /// Bytes of the body.
    pub const LEN: usize = 0;

    /// Reads a body; its content is ignored, as the FIPS daemon does.
    ///
    /// # Errors
    /// None today.
    pub fn parse(_body: &[u8]) -> Result<Self, WireError> {
        Ok(Self)
    }

    /// Writes nothing and returns [`Heartbeat::LEN`].
    ///
    /// # Errors
    /// None today.
    pub fn emit(&self, _out: &mut [u8]) -> Result<usize, WireError> {
        Ok(Self::LEN)
    }
}
