//! Values of keys: numbers, names and endpoints.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use thiserror::Error;

use super::Table;

/// The bytes of the longest name of a host (RFC 1035, section 2.3.4, without the final dot).
const MAX_NAME: usize = 253;
/// The bytes of the longest label of a name (RFC 1035, section 2.3.4).
const MAX_LABEL: usize = 63;

/// Where a peer is reached: a host and a UDP port (wg(8), `Endpoint`).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Endpoint {
    /// The host.
    pub host: Host,
    /// The UDP port, which is not 0.
    pub port: u16,
}

/// The host of an [`Endpoint`].
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Host {
    /// An address.
    Address(IpAddr),
    /// A name for DNS, of letters, digits, `-`, `_` and dots, as the file has it.
    Name(String),
}

/// The text is no endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("an endpoint is name:port, IPv4:port or [IPv6]:port, and its port is not 0")]
pub struct EndpointError;

impl FromStr for Endpoint {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Self, EndpointError> {
        let (host, port) = text.rsplit_once(':').ok_or(EndpointError)?;
        let port = u16::try_from(decimal(port).ok_or(EndpointError)?).map_err(|_| EndpointError)?;
        let host = match host.strip_prefix('[') {
            Some(rest) => {
                let inner = rest.strip_suffix(']').ok_or(EndpointError)?;
                let address: Ipv6Addr = inner.parse().map_err(|_| EndpointError)?;
                Host::Address(address.into())
            }
            None => match host.parse::<Ipv4Addr>() {
                Ok(address) => Host::Address(address.into()),
                Err(_) if is_name(host) => Host::Name(host.to_owned()),
                Err(_) => return Err(EndpointError),
            },
        };
        if port == 0 {
            return Err(EndpointError);
        }
        Ok(Self { host, port })
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let port = self.port;
        match &self.host {
            Host::Address(IpAddr::V4(address)) => write!(f, "{address}:{port}"),
            Host::Address(IpAddr::V6(address)) => write!(f, "[{address}]:{port}"),
            Host::Name(name) => write!(f, "{name}:{port}"),
        }
    }
}

/// Returns whether a text is a name of a host or a domain, with a final dot or without.
///
/// A last label of digits is that of an address with a fault in it, which some resolvers take for another address.
pub(super) fn is_name(text: &str) -> bool {
    let name = text.strip_suffix('.').unwrap_or(text);
    let last = name.rsplit('.').next().unwrap_or_default();
    let digits = last.bytes().all(|b| b.is_ascii_digit());
    let hexadecimal = last.starts_with("0x") || last.starts_with("0X");
    name.len() <= MAX_NAME && !digits && !hexadecimal && name.split('.').all(is_label)
}

fn is_label(label: &str) -> bool {
    (1..=MAX_LABEL).contains(&label.len())
        && !label.starts_with('-')
        && !label.ends_with('-')
        && label
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
}

/// Reads decimal digits and nothing else: Rust takes a sign too.
pub(super) fn decimal(text: &str) -> Option<u32> {
    let digits = text.bytes().all(|b| b.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten()
}

/// Reads a number in decimal, or in hexadecimal behind `0x`.
pub(super) fn number(text: &str) -> Option<u32> {
    let Some(hexadecimal) = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) else {
        return decimal(text);
    };
    let digits = hexadecimal.bytes().all(|b| b.is_ascii_hexdigit());
    digits.then(|| u32::from_str_radix(hexadecimal, 16).ok()).flatten()
}

/// Reads a number of 16 bits, of which 0 is none.
pub(super) fn number16(text: &str) -> Option<Option<u16>> {
    let value = u16::try_from(decimal(text)?).ok()?;
    Some((value != 0).then_some(value))
}

/// Reads a value that `off` switches off.
pub(super) fn or_off<T>(text: &str, read: impl Fn(&str) -> Option<Option<T>>) -> Option<Option<T>> {
    if text.eq_ignore_ascii_case("off") {
        return Some(None);
    }
    read(text)
}

/// Reads the value of `Table`.
pub(super) fn table(text: &str) -> Option<Table> {
    if text.eq_ignore_ascii_case("auto") {
        return Some(Table::Auto);
    }
    let number = or_off(text, |text| number(text).filter(|number| *number != 0).map(Some))?;
    Some(number.map_or(Table::Off, Table::Number))
}
