//! The message `candidates`, in which a node tells a peer where it may be reached.
//!
//! `docs/protocol/reach.md`, "Candidates", has every byte.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use rand_core::CryptoRng;
use thiserror::Error;

use crate::nat::Mappings;

/// The longest message that is read, in bytes.
pub const LONGEST: usize = 1_024;
/// The candidates of a message at most.
pub const MOST: usize = 32;

/// The first byte: version 1 in the high nibble, type 1 in the low one.
const CANDIDATES: u8 = 0x11;
/// Bytes in front of the candidates.
const HEADER: usize = 19;
/// Bytes of an address with its port.
pub const ADDRESS: usize = 18;
/// Bytes of a candidate: kind, address, port.
const CANDIDATE: usize = 1 + ADDRESS;

/// The random number by which a node names an attempt of its own.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Token([u8; Token::LEN]);

impl Token {
    /// Bytes on the wire.
    pub const LEN: usize = 8;

    /// Wraps bytes in wire order. Returns `None` for zeros, which stand for "no token".
    #[must_use]
    pub fn new(bytes: [u8; Self::LEN]) -> Option<Self> {
        (bytes != [0; Self::LEN]).then_some(Self(bytes))
    }

    /// The bytes in wire order.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; Self::LEN] {
        &self.0
    }

    pub(crate) fn draw(rng: &mut (dyn CryptoRng + Send)) -> Self {
        let mut bytes = [0; Self::LEN];
        rng.fill_bytes(&mut bytes);
        // Zeros are drawn once in 2^64 times, or by a generator that does not work.
        bytes[0] |= u8::from(bytes == [0; Self::LEN]);
        Self(bytes)
    }
}

/// 16 hexadecimal digits.
impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Where a candidate comes from, as its node says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// An address of an interface of the node.
    Host,
    /// The source address that another node or a STUN server saw.
    Observed,
    /// A mapping that a gateway made on request (PCP, NAT-PMP, UPnP).
    Mapped,
    /// An address of a relay that forwards datagrams to the node.
    Relayed,
    /// An address that the node expects its NAT to give next.
    Predicted,
    /// A kind that this version does not know. Such candidates are not probed.
    Unknown(u8),
}

impl Kind {
    const fn to_byte(self) -> u8 {
        match self {
            Self::Host => 1,
            Self::Observed => 2,
            Self::Mapped => 3,
            Self::Relayed => 4,
            Self::Predicted => 5,
            Self::Unknown(byte) => byte,
        }
    }

    const fn from_byte(byte: u8) -> Self {
        match byte {
            1 => Self::Host,
            2 => Self::Observed,
            3 => Self::Mapped,
            4 => Self::Relayed,
            5 => Self::Predicted,
            byte => Self::Unknown(byte),
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host => f.write_str("host"),
            Self::Observed => f.write_str("observed"),
            Self::Mapped => f.write_str("mapped"),
            Self::Relayed => f.write_str("relayed"),
            Self::Predicted => f.write_str("predicted"),
            Self::Unknown(byte) => write!(f, "kind {byte}"),
        }
    }
}

/// An address at which a node may be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Candidate {
    /// Where it comes from.
    pub kind: Kind,
    /// The address. IPv4 is never IPv4-mapped here, only on the wire.
    pub at: SocketAddr,
}

/// The message `candidates`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidates {
    /// The token of the sender's present attempt.
    pub token: Token,
    /// The receiver's token, as the sender knows it.
    pub echo: Option<Token>,
    /// The mappings of the sender's NATs.
    pub mappings: Mappings,
    /// At most [`MOST`].
    pub candidates: Vec<Candidate>,
}

/// Why a message is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum BadMessage {
    /// It is shorter than its fixed part.
    #[error("a message of {0} bytes ends before its candidates")]
    TooShort(usize),
    /// It is longer than [`LONGEST`].
    #[error("a message of {0} bytes is too long")]
    TooLong(usize),
    /// The first byte is that of another message or version.
    #[error("messages of the type {0:#04x} are not known")]
    UnknownType(u8),
    /// It names more than [`MOST`] candidates.
    #[error("a message with {0} candidates has too many")]
    TooMany(u8),
    /// Its length is not that of the candidates it counts.
    #[error("a message has {got} bytes, and its candidates take {expected}")]
    WrongLength {
        /// Bytes that its count implies.
        expected: usize,
        /// Bytes of the message.
        got: usize,
    },
    /// The sender's token is zeros.
    #[error("a message has no token")]
    NoToken,
    /// The peer was not announced by [`Reach::set_peer`](crate::Reach::set_peer).
    #[error("its sender is no peer whose addresses are wanted")]
    NoPeer,
}

impl Candidates {
    /// Reads a message.
    ///
    /// # Errors
    /// [`BadMessage`] except [`BadMessage::NoPeer`]: this version does not read the bytes.
    pub fn parse(bytes: &[u8]) -> Result<Self, BadMessage> {
        if bytes.len() > LONGEST {
            return Err(BadMessage::TooLong(bytes.len()));
        }
        let (header, rest) = bytes
            .split_first_chunk::<HEADER>()
            .ok_or(BadMessage::TooShort(bytes.len()))?;
        let [kind, .., mappings, count] = *header;
        if kind != CANDIDATES {
            return Err(BadMessage::UnknownType(kind));
        }
        let (mut token, mut echo) = ([0; Token::LEN], [0; Token::LEN]);
        token.copy_from_slice(&header[1..9]);
        echo.copy_from_slice(&header[9..17]);
        if usize::from(count) > MOST {
            return Err(BadMessage::TooMany(count));
        }
        let expected = HEADER + usize::from(count) * CANDIDATE;
        if bytes.len() != expected {
            return Err(BadMessage::WrongLength {
                expected,
                got: bytes.len(),
            });
        }
        let (candidates, _) = rest.as_chunks::<CANDIDATE>();
        Ok(Self {
            token: Token::new(token).ok_or(BadMessage::NoToken)?,
            echo: Token::new(echo),
            mappings: Mappings::from_byte(mappings),
            candidates: candidates.iter().map(Candidate::from_bytes).collect(),
        })
    }

    /// Returns the bytes that [`Candidates::parse`] reads. Candidates beyond [`MOST`] are left out.
    #[must_use]
    pub fn emit(&self) -> Vec<u8> {
        let candidates = &self.candidates[..self.candidates.len().min(MOST)];
        let mut bytes = Vec::with_capacity(HEADER + candidates.len() * CANDIDATE);
        bytes.push(CANDIDATES);
        bytes.extend(self.token.as_bytes());
        bytes.extend(self.echo.map_or([0; Token::LEN], |token| *token.as_bytes()));
        bytes.push(self.mappings.to_byte());
        // MOST fits.
        bytes.push(candidates.len() as u8);
        candidates.iter().for_each(|candidate| candidate.emit(&mut bytes));
        bytes
    }
}

impl Candidate {
    fn from_bytes(bytes: &[u8; CANDIDATE]) -> Self {
        let [kind, at @ ..] = *bytes;
        Self {
            kind: Kind::from_byte(kind),
            at: read_address(&at),
        }
    }

    fn emit(&self, bytes: &mut Vec<u8>) {
        bytes.push(self.kind.to_byte());
        bytes.extend(address_bytes(self.at));
    }
}

/// Reads an address: 16 bytes of IPv6, or of IPv4 in the IPv4-mapped form, and the port, big-endian.
#[must_use]
pub fn read_address(bytes: &[u8; ADDRESS]) -> SocketAddr {
    let [ip @ .., p0, p1] = *bytes;
    let ip = IpAddr::V6(Ipv6Addr::from(ip)).to_canonical();
    SocketAddr::new(ip, u16::from_be_bytes([p0, p1]))
}

/// Returns the bytes that [`read_address`] reads. The zone of an IPv6 address is left out.
#[must_use]
pub fn address_bytes(at: SocketAddr) -> [u8; ADDRESS] {
    let ip = match at.ip() {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    let mut bytes = [0; ADDRESS];
    bytes[..16].copy_from_slice(&ip.octets());
    bytes[16..].copy_from_slice(&at.port().to_be_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::nat::Mapping;

    fn token(n: u8) -> Token {
        Token::new([n; 8]).unwrap()
    }

    fn message(count: usize) -> Candidates {
        let kinds = [
            Kind::Host,
            Kind::Observed,
            Kind::Mapped,
            Kind::Relayed,
            Kind::Predicted,
            Kind::Unknown(0),
            Kind::Unknown(9),
        ];
        let ips: [IpAddr; 2] = ["203.0.113.5".parse().unwrap(), "2001:db8::5".parse().unwrap()];
        let candidates = (0..count).map(|n| Candidate {
            kind: kinds[n % kinds.len()],
            at: SocketAddr::new(ips[n % 2], n as u16),
        });
        Candidates {
            token: token(1),
            echo: None,
            mappings: Mappings {
                v4: Mapping::EndpointDependent,
                v6: Mapping::Public,
                likely: Mapping::Unknown,
            },
            candidates: candidates.collect(),
        }
    }

    #[test]
    fn a_message_reads_back_and_is_bounded() {
        for count in 0..=MOST {
            let message = message(count);
            let bytes = message.emit();
            assert_eq!(bytes.len(), 19 + 19 * count);
            assert_eq!(Candidates::parse(&bytes), Ok(message));
        }
        let more = message(MOST + 1).emit();
        assert_eq!(Candidates::parse(&more).map(|read| read.candidates.len()), Ok(MOST));
        assert!(more.len() <= LONGEST);
    }

    #[test]
    fn a_cause_for_each_error() {
        let good = message(2).emit();
        let with = |at: usize, byte: u8| {
            let mut bytes = good.clone();
            bytes[at] = byte;
            Candidates::parse(&bytes).err()
        };
        assert_eq!(Candidates::parse(&good[..18]), Err(BadMessage::TooShort(18)));
        assert_eq!(Candidates::parse(&[0x11; 1_025]), Err(BadMessage::TooLong(1_025)));
        assert_eq!(with(0, 0x21), Some(BadMessage::UnknownType(0x21)));
        assert_eq!(with(0, 0x12), Some(BadMessage::UnknownType(0x12)));
        assert_eq!(with(18, 33), Some(BadMessage::TooMany(33)));
        assert_eq!(with(18, 1), Some(BadMessage::WrongLength { expected: 38, got: 57 }));
        assert_eq!(with(18, 3), Some(BadMessage::WrongLength { expected: 76, got: 57 }));
        let mut zeros = good.clone();
        zeros[1..9].fill(0);
        assert_eq!(Candidates::parse(&zeros), Err(BadMessage::NoToken));
    }

    #[test]
    fn addresses_of_ipv4_are_mapped_on_the_wire_alone() {
        let mut message = message(1);
        let mapped: Ipv6Addr = "::ffff:203.0.113.5".parse().unwrap();
        assert_eq!(message.emit()[20..36], mapped.octets());
        message.candidates[0].at = SocketAddr::new(IpAddr::V6(mapped), 0);
        let read = Candidates::parse(&message.emit()).unwrap();
        assert!(read.candidates[0].at.is_ipv4());
    }

    proptest! {
        #[test]
        fn parsed_messages_are_emitted_unchanged(mut bytes in proptest::collection::vec(any::<u8>(), 19..700), count in 0u8..40) {
            (bytes[0], bytes[18]) = (CANDIDATES, count);
            bytes.resize(HEADER + usize::from(count) * CANDIDATE, 7);
            // Reserved bits are not kept.
            bytes[17] &= 0x0f;
            if let Ok(message) = Candidates::parse(&bytes) {
                prop_assert_eq!(message.emit(), bytes);
            }
        }
    }
}
