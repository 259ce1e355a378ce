//! The invite code as text: base32 (RFC 4648, 6) without padding.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

use data_encoding::BASE32_NOPAD;
use sha2::{Digest, Sha256};
use thiserror::Error;
use weft_noise::PublicKey;
use zeroize::Zeroizing;

use crate::network_id::NetworkId;

use super::Seed;

/// The version of the layout, which is the first byte.
const VERSION: u8 = 1;

/// The domain of the checksum.
const CHECKSUM_DOMAIN: &[u8] = b"weft invite code 1";

/// Length of the checksum in bytes.
const CHECKSUM: usize = 4;

/// Bytes up to the one that says which addresses follow.
const HEAD: usize = 50;

/// Addresses of the inviter of each IP version, at most.
pub const MAX_ADDRESSES: usize = 3;

/// Length of the longest code in bytes: three addresses of each version, and an entry point with
/// IPv6.
const MAX_LEN: usize = HEAD + MAX_ADDRESSES * (6 + 18) + 32 + 18 + 4 + 16 + CHECKSUM;

/// What an invite code says. It contains the seed, so it is a secret.
#[derive(Clone, PartialEq, Eq)]
pub struct Code {
    /// The network to join.
    pub network: NetworkId,
    /// The node that made the invite.
    pub inviter: PublicKey,
    /// Addresses of the inviter. A code has up to [`MAX_ADDRESSES`] of each IP version, those of
    /// IPv4 first.
    pub addresses: Vec<SocketAddr>,
    /// Another way into the network.
    pub entry: Option<EntryPoint>,
    /// The end of the invite in seconds since 1970.
    pub expires: u32,
    /// The secret.
    pub seed: Seed,
}

/// A node, other than the inviter, that a joiner may link with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EntryPoint {
    /// Its key.
    pub key: PublicKey,
    /// Its address.
    pub address: SocketAddr,
}

/// The reason why a text is not an invite code. No variant contains more of it than one character.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum CodeError {
    /// A character that base32 does not have.
    #[error("an invite code has the letters A to Z and the digits 2 to 7, not {0:?}")]
    Character(char),
    /// The text is the beginning of a code: what is read next may complete it.
    #[error("the invite code is incomplete: its end is missing")]
    Truncated,
    /// The code continues after its end.
    #[error("the invite code is too long: something follows its end")]
    TooLong,
    /// The checksum does not match.
    #[error("the invite code is mistyped: its checksum does not match")]
    Checksum,
    /// A version that this version of Weft does not know.
    #[error("the invite code is of version {0}; install a newer version of Weft")]
    Version(u8),
    /// The checksum matches, and a field has a value that it cannot have.
    #[error("the invite code is invalid: {0}")]
    Field(&'static str),
}

impl Code {
    /// Encodes the code as text, in upper case, in a string that wipes itself. With one IPv4
    /// address and an entry point with IPv4 it has 189 characters.
    #[must_use]
    pub fn encode(&self) -> Zeroizing<String> {
        let bytes = self.to_bytes();
        let mut text = Zeroizing::new(String::with_capacity(BASE32_NOPAD.encode_len(bytes.len())));
        BASE32_NOPAD.encode_append(&bytes, &mut text);
        text
    }

    /// Returns the addresses of the inviter that the text has.
    #[must_use]
    pub fn held(&self) -> Vec<SocketAddr> {
        [false, true].map(|ipv6| self.held_of(ipv6)).concat()
    }

    fn held_of(&self, ipv6: bool) -> Vec<SocketAddr> {
        let all = self.addresses.iter().filter(|address| address.is_ipv6() == ipv6);
        all.take(MAX_ADDRESSES).copied().collect()
    }

    fn to_bytes(&self) -> Zeroizing<Vec<u8>> {
        // A vector that grows leaves parts of the secret behind.
        let mut out = Zeroizing::new(Vec::with_capacity(MAX_LEN));
        let [v4, v6] = [false, true].map(|ipv6| self.held_of(ipv6));
        let entry = match &self.entry {
            None => 0,
            Some(entry) if entry.address.is_ipv4() => 1,
            Some(_) => 2,
        };
        out.push(VERSION);
        out.extend(self.network.as_bytes());
        out.extend(self.inviter.as_bytes());
        out.push((v4.len() | v6.len() << 2 | entry << 4) as u8);
        for address in v4.iter().chain(&v6) {
            push_address(&mut out, address);
        }
        if let Some(entry) = &self.entry {
            out.extend(entry.key.as_bytes());
            push_address(&mut out, &entry.address);
        }
        out.extend(self.expires.to_be_bytes());
        out.extend(self.seed.0.iter());
        let checksum = checksum(&out);
        out.extend(checksum);
        out
    }

    /// Reads a code as people paste it: in upper or lower case, with white space and `-` between its
    /// characters, behind the command `sudo weft join`. Whether it has expired is not judged here.
    ///
    /// # Errors
    /// [`CodeError`].
    pub fn parse(text: &str) -> Result<Self, CodeError> {
        let Decoded { bytes, symbols, exact } = decode(without_command(text))?;
        let (&version, _) = bytes.split_first().ok_or(CodeError::Truncated)?;
        let sum = || {
            let (content, sum) = bytes.split_last_chunk::<CHECKSUM>()?;
            (exact && checksum(content) == *sum).then_some(content)
        };
        if version != VERSION {
            // A mistyped first character is more likely than a later version.
            return Err(sum().map_or(CodeError::Checksum, |_| CodeError::Version(version)));
        }
        let shape = Shape(*bytes.get(HEAD - 1).ok_or(CodeError::Truncated)?);
        match symbols.cmp(&BASE32_NOPAD.encode_len(shape.code_len())) {
            std::cmp::Ordering::Less if !shape.is_reserved() => return Err(CodeError::Truncated),
            std::cmp::Ordering::Greater if !shape.is_reserved() => return Err(CodeError::TooLong),
            _ => {}
        }
        let content = sum().ok_or(CodeError::Checksum)?;
        if shape.is_reserved() {
            return Err(CodeError::Field("addresses"));
        }
        Fields(content.get(1..).unwrap_or_default())
            .read()
            .ok_or(CodeError::Truncated)?
    }
}

impl fmt::Debug for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Code")
            .field("network", &self.network)
            .field("inviter", &self.inviter)
            .field("addresses", &self.addresses)
            .field("entry", &self.entry)
            .field("expires", &self.expires)
            .finish_non_exhaustive()
    }
}

/// The byte that says which addresses a code has.
#[derive(Clone, Copy)]
struct Shape(u8);

impl Shape {
    const fn v4(self) -> usize {
        (self.0 & 3) as usize
    }

    const fn v6(self) -> usize {
        (self.0 >> 2 & 3) as usize
    }

    const fn entry(self) -> u8 {
        self.0 >> 4 & 3
    }

    /// Returns true if bits are set that this version does not use.
    const fn is_reserved(self) -> bool {
        self.0 >> 6 != 0 || self.entry() == 3
    }

    const fn code_len(self) -> usize {
        let entry = match self.entry() {
            0 => 0,
            1 => 32 + 6,
            _ => 32 + 18,
        };
        HEAD + self.v4() * 6 + self.v6() * 18 + entry + 4 + 16 + CHECKSUM
    }
}

/// Removes the command that the text was given with. A code begins with its version, as the letter A.
fn without_command(text: &str) -> &str {
    let mut rest = text.trim_start();
    for word in ["sudo", "weft", "join"] {
        let behind = rest.strip_prefix(word);
        let behind = behind.filter(|behind| behind.is_empty() || behind.starts_with(|c: char| c.is_ascii_whitespace()));
        rest = behind.map_or(rest, str::trim_start);
    }
    rest
}

/// What a text has of a code.
struct Decoded {
    bytes: Zeroizing<Vec<u8>>,
    /// Characters without the white space between them.
    symbols: usize,
    /// Whether the bytes have this text.
    exact: bool,
}

fn decode(text: &str) -> Result<Decoded, CodeError> {
    let mut symbols = Zeroizing::new(Vec::with_capacity(text.len() + 7));
    for c in text.chars().filter(|c| !c.is_ascii_whitespace() && *c != '-') {
        match c.to_ascii_uppercase() {
            symbol @ ('A'..='Z' | '2'..='7') => symbols.push(symbol as u8),
            _ => return Err(CodeError::Character(c)),
        }
    }
    let count = symbols.len();
    if count > BASE32_NOPAD.encode_len(MAX_LEN) {
        return Err(CodeError::TooLong);
    }
    // Bits that follow: a cut text ends within a byte, which is not there yet.
    symbols.resize(count.next_multiple_of(8), b'A');
    let mut bytes = Zeroizing::new(vec![0; symbols.len() / 8 * 5]);
    BASE32_NOPAD
        .decode_mut(&symbols, &mut bytes)
        .map_err(|_| CodeError::Checksum)?;
    bytes.truncate(count * 5 / 8);
    let text = Zeroizing::new(BASE32_NOPAD.encode(&bytes));
    let exact = symbols.get(..count) == Some(text.as_bytes());
    Ok(Decoded {
        bytes,
        symbols: count,
        exact,
    })
}

fn checksum(content: &[u8]) -> [u8; CHECKSUM] {
    let hash = Sha256::new()
        .chain_update(CHECKSUM_DOMAIN)
        .chain_update(content)
        .finalize();
    let mut sum = [0; CHECKSUM];
    sum.copy_from_slice(&hash[..CHECKSUM]);
    sum
}

fn push_address(out: &mut Vec<u8>, address: &SocketAddr) {
    match address {
        SocketAddr::V4(v4) => out.extend(v4.ip().octets()),
        SocketAddr::V6(v6) => out.extend(v6.ip().octets()),
    }
    out.extend(address.port().to_be_bytes());
}

/// The bytes behind the version that remain to be read.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }

    /// Reads all fields. Returns `None` if bytes are missing, which the length excludes.
    fn read(mut self) -> Option<Result<Code, CodeError>> {
        let network = NetworkId::from_bytes(self.take()?);
        let inviter: [u8; 32] = self.take()?;
        let [shape] = self.take()?;
        let shape = Shape(shape);
        let mut addresses = Vec::new();
        for _ in 0..shape.v4() {
            addresses.push(self.v4()?);
        }
        for _ in 0..shape.v6() {
            addresses.push(self.v6()?);
        }
        let entry: Option<([u8; 32], SocketAddr)> = match shape.entry() {
            0 => None,
            1 => Some((self.take()?, self.v4()?)),
            _ => Some((self.take()?, self.v6()?)),
        };
        let expires = u32::from_be_bytes(self.take()?);
        let seed = Seed(Zeroizing::new(self.take()?));
        let Ok(inviter) = PublicKey::from_bytes(&inviter) else {
            return Some(Err(CodeError::Field("the inviter's key")));
        };
        let entry = match entry {
            None => None,
            Some((key, address)) => match PublicKey::from_bytes(&key) {
                Ok(key) => Some(EntryPoint { key, address }),
                Err(_) => return Some(Err(CodeError::Field("the key of the entry point"))),
            },
        };
        Some(Ok(Code {
            network,
            inviter,
            addresses,
            entry,
            expires,
            seed,
        }))
    }

    fn v4(&mut self) -> Option<SocketAddr> {
        let ip = Ipv4Addr::from(self.take::<4>()?);
        Some(SocketAddrV4::new(ip, u16::from_be_bytes(self.take()?)).into())
    }

    fn v6(&mut self) -> Option<SocketAddr> {
        let ip = Ipv6Addr::from(self.take::<16>()?);
        Some(SocketAddrV6::new(ip, u16::from_be_bytes(self.take()?), 0, 0).into())
    }
}
