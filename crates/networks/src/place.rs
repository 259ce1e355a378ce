//! Places: the ways to reach a member that it names itself.
//!
//! ```text
//! place: carrier (1), length of the parts (1), parts
//! part: type (1), length (1), value
//! part 1, address: IPv6, or IPv4 in the form of IPv6 (16), port (2)
//! part 2, URL: 1 to 200 bytes
//! part 3, pin: 32 bytes
//! ```
//!
//! A node dials by the carriers that it speaks. It keeps and passes on all others, and parts of types
//! that it does not know: the member has signed the bytes, and nodes behind this one may speak more.

use std::net::SocketAddr;

use weft_reach::message::{ADDRESS, address_bytes, read_address};

use crate::document::DocumentError;

/// Maximum number of places of a member.
pub const MAX_PLACES: usize = 8;
/// Maximum number of bytes of the places of a member.
pub const MAX_BYTES: usize = 1_024;
/// Maximum number of bytes of a URL.
pub const MAX_URL: usize = 200;

const UDP: u8 = 0;
const PART_ADDRESS: u8 = 1;
const PART_URL: u8 = 2;
const PART_PIN: u8 = 3;

/// The places of a member, as the bytes that it has signed. Their order is that of the bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Places(Box<[u8]>);

/// A way to reach a member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place<'a> {
    /// What carries the datagrams of a link.
    pub carrier: Carrier,
    /// The address to send to. A place of UDP has one.
    pub address: Option<SocketAddr>,
    /// The URL to ask for: graphic ASCII behind `wss://` or `https://`.
    pub url: Option<&'a str>,
    /// SHA-256 of the public key of the server there, as SubjectPublicKeyInfo (RFC 5280, 4.1.2.7).
    pub pin: Option<&'a [u8; 32]>,
}

/// What carries the datagrams of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Carrier {
    /// UDP.
    Udp,
    /// TCP.
    Tcp,
    /// WebSocket over TLS.
    WebSocket,
    /// QUIC.
    Quic,
    /// A carrier that this version does not know.
    Unknown(u8),
}

impl Places {
    /// Addresses to be reached at by UDP. Further ones than [`MAX_PLACES`] are left out.
    #[must_use]
    pub fn of_udp(addresses: &[SocketAddr]) -> Self {
        let mut bytes = Vec::new();
        for at in addresses.iter().take(MAX_PLACES) {
            bytes.extend_from_slice(&[UDP, 2 + ADDRESS as u8, PART_ADDRESS, ADDRESS as u8]);
            bytes.extend_from_slice(&address_bytes(*at));
        }
        Self(bytes.into())
    }

    /// Reads places, which are all of `bytes`.
    ///
    /// # Errors
    /// [`DocumentError`]: there are too many, or one of them is malformed.
    pub fn read(bytes: &[u8]) -> Result<Self, DocumentError> {
        if bytes.len() > MAX_BYTES {
            return Err(DocumentError::Field("length of places"));
        }
        let (mut rest, mut count) = (bytes, 0);
        while !rest.is_empty() {
            if count == MAX_PLACES {
                return Err(DocumentError::Field("number of places"));
            }
            (_, rest) = Place::read(rest)?;
            count += 1;
        }
        Ok(Self(bytes.into()))
    }

    /// The bytes, as [`Self::read`] has them.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Each place.
    pub fn iter(&self) -> impl Iterator<Item = Place<'_>> {
        let mut rest = self.as_bytes();
        std::iter::from_fn(move || {
            let place;
            (place, rest) = Place::read(rest).ok()?;
            Some(place)
        })
    }

    /// The addresses of those that this node can dial, which are those of UDP.
    pub fn addresses(&self) -> impl Iterator<Item = SocketAddr> {
        let spoken = self.iter().filter(|place| place.carrier == Carrier::Udp);
        spoken.filter_map(|place| place.address)
    }
}

impl<'a> Place<'a> {
    /// Reads one, and returns what is behind it.
    fn read(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), DocumentError> {
        let (&[carrier, length], rest) = bytes.split_first_chunk().ok_or(DocumentError::Length)?;
        let (parts, rest) = rest.split_at_checked(length.into()).ok_or(DocumentError::Length)?;
        let mut place = Self {
            carrier: Carrier::of(carrier),
            address: None,
            url: None,
            pin: None,
        };
        place.read_parts(parts)?;
        if place.carrier == Carrier::Udp && place.address.is_none() {
            return Err(DocumentError::Field("place of UDP"));
        }
        Ok((place, rest))
    }

    fn read_parts(&mut self, mut bytes: &'a [u8]) -> Result<(), DocumentError> {
        while !bytes.is_empty() {
            let (&[kind, length], rest) = bytes.split_first_chunk().ok_or(DocumentError::Length)?;
            let (value, rest) = rest.split_at_checked(length.into()).ok_or(DocumentError::Length)?;
            let is_second = match kind {
                PART_ADDRESS => {
                    let address = value.try_into().map_err(|_| DocumentError::Field("address"))?;
                    self.address.replace(read_address(address)).is_some()
                }
                PART_URL => self.url.replace(url(value)?).is_some(),
                PART_PIN => {
                    let pin = value.try_into().map_err(|_| DocumentError::Field("pin"))?;
                    self.pin.replace(pin).is_some()
                }
                _ => false,
            };
            if is_second {
                return Err(DocumentError::Field("second part of one type"));
            }
            bytes = rest;
        }
        Ok(())
    }
}

impl Carrier {
    const fn of(byte: u8) -> Self {
        match byte {
            UDP => Self::Udp,
            1 => Self::Tcp,
            2 => Self::WebSocket,
            3 => Self::Quic,
            byte => Self::Unknown(byte),
        }
    }
}

fn url(bytes: &[u8]) -> Result<&str, DocumentError> {
    let text = std::str::from_utf8(bytes).ok();
    let is_url = |text: &&str| {
        let known = ["wss://", "https://"].iter().any(|scheme| text.starts_with(scheme));
        known && text.len() <= MAX_URL && text.bytes().all(|byte| byte.is_ascii_graphic())
    };
    text.filter(is_url).ok_or(DocumentError::Field("URL"))
}

#[cfg(test)]
pub(crate) mod tests;
