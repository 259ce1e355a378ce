//! Where a neighbour sees a third node: the body of a request and of its answer (weft only).
//! docs/protocol/link.md, "SightingRequest" and "Sighting".

use core::net::SocketAddr;

use crate::cursor::{Reader, Writer};
use crate::{NodeAddr, WireError, address};

/// A node and an address: in a request the one in question, in an answer the one at which the
/// sender sees the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sighting {
    /// The node.
    pub of: NodeAddr,
    /// The address; an IPv4 address is never a mapped one.
    pub at: SocketAddr,
}

impl Sighting {
    /// Length in bytes: node address, IPv6 address (IPv4 mapped), port.
    pub const LEN: usize = NodeAddr::LEN + address::LEN;

    /// Reads a body.
    ///
    /// # Errors
    /// [`WireError`] if it has another length.
    pub fn parse(bytes: &[u8]) -> Result<Self, WireError> {
        let (expected, got) = (Self::LEN, bytes.len());
        if got != expected {
            return Err(WireError::WrongLength { expected, got });
        }
        let mut reader = Reader::new(bytes);
        let of = reader.addr()?;
        let at = address::from_bytes(reader.array_ref::<{ address::LEN }>()?);
        at.map(|at| Self { of, at })
            .ok_or(WireError::WrongLength { expected, got })
    }

    /// Writes a body.
    ///
    /// # Errors
    /// [`WireError`] if `out` has fewer than [`Sighting::LEN`] bytes.
    pub fn emit(&self, out: &mut [u8]) -> Result<usize, WireError> {
        Writer::new(out)
            .addr(&self.of)
            .bytes(&address::to_bytes(self.at))
            .finish()
    }

    /// The body.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        let _ = self.emit(&mut bytes);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use std::format;
    use std::string::String;

    use super::*;

    #[test]
    fn it_has_the_bytes_of_the_documentation() {
        let page = include_str!("../../../docs/protocol/link.md");
        let of = NodeAddr::new(core::array::from_fn(|n| n as u8));
        for at in ["203.0.113.5:40001", "[2001:db8::1]:2121"] {
            let sighting = Sighting {
                of,
                at: at.parse().unwrap(),
            };
            let bytes = sighting.to_bytes();
            assert_eq!(Sighting::parse(&bytes), Ok(sighting));
            let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            assert!(page.contains(&hex), "{at} is {hex}");
        }
    }

    #[test]
    fn another_length_is_refused() {
        for len in (0..100).filter(|len| *len != Sighting::LEN) {
            assert!(Sighting::parse(&[7; 100][..len]).is_err(), "{len}");
        }
    }
}
