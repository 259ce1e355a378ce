//! The layout of Binding requests and responses (RFC 8489, sections 5 and 14). Numbers are
//! big-endian.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use rand_core::CryptoRng;
use thiserror::Error;

/// Bytes in front of the attributes.
pub const HEADER: usize = 20;
/// The attributes that are not known and noted, at most.
pub const MAX_UNKNOWN: usize = 16;

const COOKIE: u32 = 0x2112_a442;
const BINDING: u16 = 0x0001;

const MAPPED_ADDRESS: u16 = 0x0001;
const USERNAME: u16 = 0x0006;
const MESSAGE_INTEGRITY: u16 = 0x0008;
const ERROR_CODE: u16 = 0x0009;
const UNKNOWN_ATTRIBUTES: u16 = 0x000a;
const REALM: u16 = 0x0014;
const NONCE: u16 = 0x0015;
const MESSAGE_INTEGRITY_SHA256: u16 = 0x001c;
const XOR_MAPPED_ADDRESS: u16 = 0x0020;
/// Attributes from here on may be passed over by those who do not know them.
const OPTIONAL: u16 = 0x8000;

const IPV4: u8 = 1;
const IPV6: u8 = 2;

/// The 96 random bits that a response repeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TransactionId(pub [u8; 12]);

impl TransactionId {
    /// Draws a new one.
    #[must_use]
    pub fn draw(rng: &mut (dyn CryptoRng + Send)) -> Self {
        let mut bytes = [0; 12];
        rng.fill_bytes(&mut bytes);
        Self(bytes)
    }

    /// Returns the 16 bytes behind type and length by which a response is recognised: the magic
    /// cookie and the ID.
    #[must_use]
    pub fn token(self) -> [u8; 16] {
        let mut token = [0; 16];
        let (cookie, id) = token.split_at_mut(4);
        cookie.copy_from_slice(&COOKIE.to_be_bytes());
        id.copy_from_slice(&self.0);
        token
    }
}

/// What a message is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// To be answered.
    Request,
    /// Not to be answered.
    Indication,
    /// The answer that was asked for.
    Success,
    /// A refusal.
    Error,
}

/// A Binding message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// What it is for.
    pub class: Class,
    /// Which transaction it belongs to.
    pub id: TransactionId,
    /// The address of XOR-MAPPED-ADDRESS, or else of MAPPED-ADDRESS, which some NATs rewrite.
    pub mapped: Option<SocketAddr>,
    /// The code of ERROR-CODE, 300 to 699.
    pub error: Option<u16>,
    /// Attributes that are not known and must be for the message to be understood, at most
    /// [`MAX_UNKNOWN`].
    pub unknown: Vec<u16>,
}

/// Why a datagram is no Binding message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum BadStun {
    /// It is shorter than the header.
    #[error("{0} bytes are too few for a STUN message")]
    TooShort(usize),
    /// The two bits in front, or the cookie, are those of another protocol.
    #[error("this is no STUN message")]
    NotStun,
    /// A method other than Binding.
    #[error("the STUN method {0:#05x} is not Binding")]
    Method(u16),
    /// The length field does not describe the datagram, or is no multiple of 4.
    #[error("a STUN message declares {declared} bytes of attributes and has {got}")]
    WrongLength {
        /// The value of the field.
        declared: usize,
        /// Bytes behind the header.
        got: usize,
    },
    /// An attribute is longer than what is left.
    #[error("the STUN attribute {0:#06x} is longer than its message")]
    Attribute(u16),
    /// An attribute does not have the form of its type.
    #[error("the STUN attribute {0:#06x} is malformed")]
    Malformed(u16),
}

impl Message {
    /// Reads a datagram. Of several attributes of one type, the first counts; those behind
    /// MESSAGE-INTEGRITY are not read (RFC 8489, sections 14 and 14.5).
    ///
    /// # Errors
    /// [`BadStun`]: it is no Binding message.
    pub fn parse(bytes: &[u8]) -> Result<Self, BadStun> {
        let too_short = BadStun::TooShort(bytes.len());
        let (header, attributes) = bytes.split_first_chunk::<HEADER>().ok_or(too_short)?;
        let [t0, t1, l0, l1, c0, c1, c2, c3, id @ ..] = *header;
        let kind = u16::from_be_bytes([t0, t1]);
        if kind & 0xc000 != 0 || u32::from_be_bytes([c0, c1, c2, c3]) != COOKIE {
            return Err(BadStun::NotStun);
        }
        let method = kind & 0x000f | (kind & 0x00e0) >> 1 | (kind & 0x3e00) >> 2;
        if method != BINDING {
            return Err(BadStun::Method(method));
        }
        let declared = usize::from(u16::from_be_bytes([l0, l1]));
        if declared != attributes.len() || declared % 4 != 0 {
            return Err(BadStun::WrongLength {
                declared,
                got: attributes.len(),
            });
        }
        let class = match kind & 0x0110 {
            0x0000 => Class::Request,
            0x0010 => Class::Indication,
            0x0100 => Class::Success,
            _ => Class::Error,
        };
        let mut found = Found::default();
        found.read(attributes, TransactionId(id))?;
        Ok(Self {
            class,
            id: TransactionId(id),
            mapped: found.xor_mapped.or(found.mapped),
            error: found.error,
            unknown: found.unknown,
        })
    }

    /// Returns a Binding request without attributes.
    #[must_use]
    pub fn request(id: TransactionId) -> [u8; HEADER] {
        header(0x0001, 0, id)
    }

    /// Returns the success response that says under which address a request arrived.
    #[must_use]
    pub fn success(id: TransactionId, mapped: SocketAddr) -> Vec<u8> {
        let mask = mask(id);
        let mut value = vec![0];
        match mapped.ip() {
            IpAddr::V4(_) => value.push(IPV4),
            IpAddr::V6(_) => value.push(IPV6),
        }
        value.extend((mapped.port() ^ (COOKIE >> 16) as u16).to_be_bytes());
        let xor = |octets: &[u8]| {
            octets
                .iter()
                .zip(mask)
                .map(|(octet, mask)| octet ^ mask)
                .collect::<Vec<_>>()
        };
        match mapped.ip() {
            IpAddr::V4(ip) => value.extend(xor(&ip.octets())),
            IpAddr::V6(ip) => value.extend(xor(&ip.octets())),
        }
        with_attribute(0x0101, id, XOR_MAPPED_ADDRESS, &value)
    }

    /// Returns the error response of this `code`, 300 to 699, without a reason in words.
    #[must_use]
    pub fn refusal(id: TransactionId, code: u16) -> Vec<u8> {
        let (class, number) = ((code / 100) as u8, (code % 100) as u8);
        with_attribute(0x0111, id, ERROR_CODE, &[0, 0, class, number])
    }
}

/// What attributes say.
#[derive(Default)]
struct Found {
    xor_mapped: Option<SocketAddr>,
    mapped: Option<SocketAddr>,
    error: Option<u16>,
    unknown: Vec<u16>,
}

impl Found {
    fn read(&mut self, mut rest: &[u8], id: TransactionId) -> Result<(), BadStun> {
        while let Some(([t0, t1, l0, l1], behind)) = rest.split_first_chunk::<4>() {
            let kind = u16::from_be_bytes([*t0, *t1]);
            let len = usize::from(u16::from_be_bytes([*l0, *l1]));
            let padded = len.next_multiple_of(4);
            let (value, next) = behind.split_at_checked(padded).ok_or(BadStun::Attribute(kind))?;
            rest = next;
            let value = &value[..len];
            let malformed = BadStun::Malformed(kind);
            match kind {
                XOR_MAPPED_ADDRESS => {
                    let at = address(value, &mask(id)).ok_or(malformed)?;
                    self.xor_mapped.get_or_insert(at);
                }
                MAPPED_ADDRESS => {
                    let at = address(value, &[0; 16]).ok_or(malformed)?;
                    self.mapped.get_or_insert(at);
                }
                ERROR_CODE => {
                    let code = error_code(value).ok_or(malformed)?;
                    self.error.get_or_insert(code);
                }
                MESSAGE_INTEGRITY | MESSAGE_INTEGRITY_SHA256 => break,
                USERNAME | REALM | NONCE | UNKNOWN_ATTRIBUTES => {}
                _ if kind < OPTIONAL && self.unknown.len() < MAX_UNKNOWN => self.unknown.push(kind),
                _ => {}
            }
        }
        Ok(())
    }
}

/// What addresses are combined with: the cookie, then the transaction id.
fn mask(id: TransactionId) -> [u8; 16] {
    let mut mask = [0; 16];
    mask[..4].copy_from_slice(&COOKIE.to_be_bytes());
    mask[4..].copy_from_slice(&id.0);
    mask
}

fn address(value: &[u8], mask: &[u8; 16]) -> Option<SocketAddr> {
    let ([_, family, p0, p1], octets) = value.split_first_chunk::<4>()?;
    let port = u16::from_be_bytes([p0 ^ mask[0], p1 ^ mask[1]]);
    let mut octets = octets.to_vec();
    octets.iter_mut().zip(mask).for_each(|(octet, mask)| *octet ^= mask);
    let ip = match *family {
        IPV4 => IpAddr::V4(Ipv4Addr::from(<[u8; 4]>::try_from(octets).ok()?)),
        IPV6 => IpAddr::V6(Ipv6Addr::from(<[u8; 16]>::try_from(octets).ok()?)),
        _ => return None,
    };
    Some(SocketAddr::new(ip, port))
}

fn error_code(value: &[u8]) -> Option<u16> {
    let ([_, _, class, number], _reason) = value.split_first_chunk::<4>()?;
    let (class, number) = (u16::from(class & 7), u16::from(*number));
    ((3..=6).contains(&class) && number < 100).then_some(class * 100 + number)
}

fn header(kind: u16, len: u16, id: TransactionId) -> [u8; HEADER] {
    let mut bytes = [0; HEADER];
    bytes[..2].copy_from_slice(&kind.to_be_bytes());
    bytes[2..4].copy_from_slice(&len.to_be_bytes());
    bytes[4..8].copy_from_slice(&COOKIE.to_be_bytes());
    bytes[8..].copy_from_slice(&id.0);
    bytes
}

/// A message with one attribute, whose value is a multiple of 4 bytes and short.
fn with_attribute(kind: u16, id: TransactionId, attribute: u16, value: &[u8]) -> Vec<u8> {
    let len = value.len() as u16;
    let mut bytes = header(kind, len + 4, id).to_vec();
    bytes.extend(attribute.to_be_bytes());
    bytes.extend(len.to_be_bytes());
    bytes.extend(value);
    bytes
}

#[cfg(test)]
#[path = "message_tests.rs"]
mod tests;
