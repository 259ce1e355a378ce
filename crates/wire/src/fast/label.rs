//! Labels: the numbers by which a node names a destination to a neighbour that relays to it.

use crate::cursor::{Reader, Writer};
use crate::{NodeAddr, WireError};

/// Asks a neighbour to relay frames with this label to a node, or to accept them if it is that node
/// itself. The sender repeats it while the label is in use, as the label expires otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bind {
    /// Chosen by the sender of frames, for this link and direction only.
    pub label: u32,
    /// The node to which the frames go.
    pub dest: NodeAddr,
}

impl Bind {
    /// Bytes of the body.
    pub const LEN: usize = 20;

    /// Reads a body; bytes behind it are reserved for later versions.
    ///
    /// # Errors
    /// [`WireError::TooShort`].
    pub fn parse(body: &[u8]) -> Result<Self, WireError> {
        let mut r = Reader::new(body);
        Ok(Self {
            label: r.u32()?,
            dest: r.addr()?,
        })
    }

    /// Writes a body and returns its length.
    ///
    /// # Errors
    /// [`WireError::BufferTooSmall`].
    pub fn emit(&self, out: &mut [u8]) -> Result<usize, WireError> {
        Writer::new(out).u32(self.label).bytes(self.dest.as_bytes()).finish()
    }
}

/// Why a neighbour does not relay frames with a label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It relays nothing for others.
    NoTransit,
    /// It knows no next hop to that node that takes relayed frames, or no longer does.
    NoWay,
    /// The sender of the request has as many labels as one neighbour may have.
    Quota,
    /// The frames that this path takes are smaller than
    /// [`LEAST_PAYLOAD`](crate::fast::LEAST_PAYLOAD).
    TooSmall,
    /// Any other reason; the number on the wire.
    Other(u8),
}

impl Refusal {
    /// The number on the wire.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Self::NoTransit => 1,
            Self::NoWay => 2,
            Self::Quota => 3,
            Self::TooSmall => 4,
            Self::Other(number) => number,
        }
    }

    /// The reason of a number; the number is not 0.
    #[must_use]
    pub const fn from_number(number: u8) -> Self {
        match number {
            1 => Self::NoTransit,
            2 => Self::NoWay,
            3 => Self::Quota,
            4 => Self::TooSmall,
            other => Self::Other(other),
        }
    }
}

/// Answers a [`Bind`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound {
    /// The label of the [`Bind`].
    pub label: u32,
    /// The largest relayed frame that passes from here to the destination, bytes of UDP payload, or
    /// why none does.
    pub answer: Result<u16, Refusal>,
}

impl Bound {
    /// Bytes of the body.
    pub const LEN: usize = 7;

    /// Reads a body; bytes behind it are reserved for later versions.
    ///
    /// # Errors
    /// [`WireError::TooShort`].
    pub fn parse(body: &[u8]) -> Result<Self, WireError> {
        let mut r = Reader::new(body);
        let (label, refusal, payload) = (r.u32()?, r.u8()?, r.u16()?);
        let answer = match refusal {
            0 => Ok(payload),
            number => Err(Refusal::from_number(number)),
        };
        Ok(Self { label, answer })
    }

    /// Writes a body and returns its length.
    ///
    /// # Errors
    /// [`WireError::BufferTooSmall`].
    pub fn emit(&self, out: &mut [u8]) -> Result<usize, WireError> {
        let (refusal, payload) = match self.answer {
            Ok(payload) => (0, payload),
            Err(refusal) => (refusal.number(), 0),
        };
        Writer::new(out).u32(self.label).u8(refusal).u16(payload).finish()
    }
}

/// Which side ends the label of an [`Unbind`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnbindBy {
    /// The sender of frames no longer needs it.
    Upstream,
    /// The receiver of frames no longer relays them, or does not know the label.
    Downstream,
}

/// Ends a label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unbind {
    /// The label.
    pub label: u32,
    /// The side of the hop that sends this, and so the direction that the label belongs to.
    pub by: UnbindBy,
}

impl Unbind {
    /// Bytes of the body.
    pub const LEN: usize = 5;

    /// Reads a body; bytes behind it are reserved for later versions.
    ///
    /// # Errors
    /// [`WireError::TooShort`], [`WireError::WrongMessageType`] for an unknown side.
    pub fn parse(body: &[u8]) -> Result<Self, WireError> {
        let mut r = Reader::new(body);
        let label = r.u32()?;
        let by = match r.u8()? {
            0 => UnbindBy::Upstream,
            1 => UnbindBy::Downstream,
            other => return Err(WireError::WrongMessageType(other)),
        };
        Ok(Self { label, by })
    }

    /// Writes a body and returns its length.
    ///
    /// # Errors
    /// [`WireError::BufferTooSmall`].
    pub fn emit(&self, out: &mut [u8]) -> Result<usize, WireError> {
        let by = match self.by {
            UnbindBy::Upstream => 0,
            UnbindBy::Downstream => 1,
        };
        Writer::new(out).u32(self.label).u8(by).finish()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn round_trip(label: u32, dest: [u8; 16], payload: u16, refusal in 1u8.., upstream: bool) {
            let bind = Bind { label, dest: NodeAddr::new(dest) };
            let mut body = [0; Bind::LEN];
            prop_assert_eq!(bind.emit(&mut body), Ok(Bind::LEN));
            prop_assert_eq!(Bind::parse(&body), Ok(bind));
            for answer in [Ok(payload), Err(Refusal::from_number(refusal))] {
                let bound = Bound { label, answer };
                let mut body = [0; Bound::LEN];
                prop_assert_eq!(bound.emit(&mut body), Ok(Bound::LEN));
                prop_assert_eq!(Bound::parse(&body), Ok(bound));
            }
            let by = if upstream { UnbindBy::Upstream } else { UnbindBy::Downstream };
            let unbind = Unbind { label, by };
            let mut body = [0; Unbind::LEN];
            prop_assert_eq!(unbind.emit(&mut body), Ok(Unbind::LEN));
            prop_assert_eq!(Unbind::parse(&body), Ok(unbind));
        }

        #[test]
        fn any_bytes(body in prop::collection::vec(any::<u8>(), 0..30)) {
            prop_assert_eq!(Bind::parse(&body).is_ok(), body.len() >= Bind::LEN);
            prop_assert_eq!(Bound::parse(&body).is_ok(), body.len() >= Bound::LEN);
            prop_assert_eq!(Unbind::parse(&body).is_ok(), body.len() >= Unbind::LEN && body[4] < 2);
        }
    }
}
