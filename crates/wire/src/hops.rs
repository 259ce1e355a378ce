//! The nodes of a relayed path: the body of a request that goes along the path, and of what each node
//! says about itself (weft only). docs/protocol/link.md, "HopsRequest" and "Hop".

use crate::cursor::{Reader, Writer, whole};
use crate::{NodeAddr, WireError};

/// The largest distance of a node that says something about itself. A request ends there.
pub const MAX_DISTANCE: u8 = 16;

/// Asks the nodes on the path to a node about themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HopsRequest {
    /// A number of the sender, which answers repeat.
    pub id: u32,
    /// How many links the receiver is away from the node that asks: 1 to [`MAX_DISTANCE`].
    pub distance: u8,
    /// The node at the end of the path.
    pub dest: NodeAddr,
}

impl HopsRequest {
    /// Length in bytes.
    pub const LEN: usize = 4 + 1 + NodeAddr::LEN;

    /// Reads a body.
    ///
    /// # Errors
    /// [`WireError::WrongLength`], and [`WireError::BadDistance`] if the distance is 0 or above
    /// [`MAX_DISTANCE`].
    pub fn parse(bytes: &[u8]) -> Result<Self, WireError> {
        let mut reader = whole(bytes, Self::LEN)?;
        Ok(Self {
            id: reader.u32()?,
            distance: distance(&mut reader)?,
            dest: reader.addr()?,
        })
    }

    /// Writes a body and returns [`HopsRequest::LEN`].
    ///
    /// # Errors
    /// [`WireError::BufferTooSmall`].
    pub fn emit(&self, out: &mut [u8]) -> Result<usize, WireError> {
        Writer::new(out)
            .u32(self.id)
            .u8(self.distance)
            .addr(&self.dest)
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

/// What becomes of a request at the node that says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Onward {
    /// 0: it was passed on to the next hop.
    Passed = 0,
    /// 1: the next hop is the destination, which is not asked.
    Destination = 1,
    /// 2: the next hop has not shown that it reads such requests.
    Foreign = 2,
    /// 3: it was not passed on, because this node is [`MAX_DISTANCE`] links away.
    Far = 3,
}

impl Onward {
    /// # Errors
    /// [`WireError::UnknownOnward`].
    const fn from_byte(byte: u8) -> Result<Self, WireError> {
        Ok(match byte {
            0 => Self::Passed,
            1 => Self::Destination,
            2 => Self::Foreign,
            3 => Self::Far,
            other => return Err(WireError::UnknownOnward(other)),
        })
    }
}

/// What a node of the path says about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hop {
    /// The number of the request, as the receiver chose it.
    pub id: u32,
    /// How many links the node is away from the one that asks: 1 to [`MAX_DISTANCE`].
    pub distance: u8,
    /// What became of the request there.
    pub onward: Onward,
    /// The round trip of its link to the next hop in µs; `u32::MAX` if it is not known.
    pub rtt_us: u32,
    /// The x-only public key of the node. Nothing says that it is one.
    pub key: [u8; 32],
}

impl Hop {
    /// Length in bytes.
    pub const LEN: usize = 4 + 1 + 1 + 4 + 32;
    /// [`Hop::rtt_us`] of a link that is not measured.
    pub const UNKNOWN_RTT: u32 = u32::MAX;

    /// Reads a body.
    ///
    /// # Errors
    /// [`WireError::WrongLength`], [`WireError::UnknownOnward`], and [`WireError::BadDistance`] if
    /// the distance is 0 or above [`MAX_DISTANCE`].
    pub fn parse(bytes: &[u8]) -> Result<Self, WireError> {
        let mut reader = whole(bytes, Self::LEN)?;
        Ok(Self {
            id: reader.u32()?,
            distance: distance(&mut reader)?,
            onward: Onward::from_byte(reader.u8()?)?,
            rtt_us: reader.u32()?,
            key: *reader.array_ref()?,
        })
    }

    /// Writes a body and returns [`Hop::LEN`].
    ///
    /// # Errors
    /// [`WireError::BufferTooSmall`].
    pub fn emit(&self, out: &mut [u8]) -> Result<usize, WireError> {
        Writer::new(out)
            .u32(self.id)
            .u8(self.distance)
            .u8(self.onward as u8)
            .u32(self.rtt_us)
            .bytes(&self.key)
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

fn distance(reader: &mut Reader<'_>) -> Result<u8, WireError> {
    match reader.u8()? {
        distance @ 1..=MAX_DISTANCE => Ok(distance),
        other => Err(WireError::BadDistance(other)),
    }
}

#[cfg(test)]
mod tests {
    use std::format;
    use std::string::String;

    use proptest::prelude::*;

    use super::*;

    const PAGE: &str = include_str!("../../../docs/protocol/link.md");

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn they_have_the_bytes_of_the_documentation() {
        let request = HopsRequest {
            id: 0x0403_0201,
            distance: 2,
            dest: NodeAddr::new(core::array::from_fn(|n| n as u8)),
        };
        assert_eq!(HopsRequest::parse(&request.to_bytes()), Ok(request));
        let bytes = hex(&request.to_bytes());
        assert!(PAGE.contains(&bytes), "{bytes}");
        let hop = Hop {
            id: 0x0403_0201,
            distance: 2,
            onward: Onward::Destination,
            rtt_us: 12_345,
            key: core::array::from_fn(|n| 0x20 + n as u8),
        };
        assert_eq!(Hop::parse(&hop.to_bytes()), Ok(hop));
        let bytes = hex(&hop.to_bytes());
        assert!(PAGE.contains(&bytes), "{bytes}");
    }

    #[test]
    fn other_lengths_distances_and_values_are_refused() {
        for len in 0..100 {
            let bytes = &[1; 100][..len];
            assert_eq!(HopsRequest::parse(bytes).is_ok(), len == HopsRequest::LEN, "{len}");
            assert_eq!(Hop::parse(bytes).is_ok(), len == Hop::LEN, "{len}");
        }
        for distance in [0, MAX_DISTANCE + 1, u8::MAX] {
            let (mut request, mut hop) = ([1; HopsRequest::LEN], [1; Hop::LEN]);
            (request[4], hop[4]) = (distance, distance);
            assert_eq!(HopsRequest::parse(&request), Err(WireError::BadDistance(distance)));
            assert_eq!(Hop::parse(&hop), Err(WireError::BadDistance(distance)));
        }
        let mut hop = [1; Hop::LEN];
        hop[5] = 4;
        assert_eq!(Hop::parse(&hop), Err(WireError::UnknownOnward(4)));
    }

    proptest! {
        #[test]
        fn parsed_messages_are_written_unchanged(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            if let Ok(request) = HopsRequest::parse(&bytes) {
                prop_assert_eq!(&request.to_bytes()[..], &bytes[..]);
            }
            if let Ok(hop) = Hop::parse(&bytes) {
                prop_assert_eq!(&hop.to_bytes()[..], &bytes[..]);
            }
        }

        #[test]
        fn written_messages_are_parsed_again(
            id: u32, distance in 1..=MAX_DISTANCE, onward in 0_u8..4, rtt_us: u32, key: [u8; 32], dest: [u8; 16],
        ) {
            let onward = Onward::from_byte(onward).unwrap();
            let hop = Hop { id, distance, onward, rtt_us, key };
            prop_assert_eq!(Hop::parse(&hop.to_bytes()), Ok(hop));
            let request = HopsRequest { id, distance, dest: NodeAddr::new(dest) };
            prop_assert_eq!(HopsRequest::parse(&request.to_bytes()), Ok(request));
        }
    }
}
