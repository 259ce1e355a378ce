//! What an end of an idle link says about its keepalives: the body of a heartbeat (weft only).
//! docs/protocol/link.md, "Heartbeat".

use crate::WireError;
use crate::cursor::{Reader, Writer};

/// How often the sender shows on an idle link that it is there, and what it knows of the receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keepalive {
    /// Seconds after which the sender sends something if it has sent nothing else; 0: it sends nothing
    /// until it has payload.
    pub interval: u16,
    /// The `interval` that the receiver has last said, if it has.
    pub heard: Option<u16>,
    /// Whether the receiver is to answer with its own: the sender does not know that the receiver has
    /// `interval`.
    pub asks: bool,
}

impl Keepalive {
    /// The first byte of the body.
    pub const MARK: u8 = 0x02;
    /// Length in bytes: the mark, flags, interval, heard.
    pub const LEN: usize = 6;

    const HEARD: u8 = 0x01;
    const ASKS: u8 = 0x02;

    /// Reads the body of a heartbeat. Flags that are not known are ignored.
    ///
    /// # Errors
    /// [`WireError`] if it has another length, or begins with another mark.
    pub fn parse(bytes: &[u8]) -> Result<Self, WireError> {
        let (expected, got) = (Self::LEN, bytes.len());
        if got != expected {
            return Err(WireError::WrongLength { expected, got });
        }
        let mut reader = Reader::new(bytes);
        let mark = reader.u8()?;
        if mark != Self::MARK {
            return Err(WireError::WrongMessageType(mark));
        }
        let flags = reader.u8()?;
        let [interval, heard] = [reader.u16()?, reader.u16()?];
        Ok(Self {
            interval,
            heard: Some(heard).filter(|_| flags & Self::HEARD != 0),
            asks: flags & Self::ASKS != 0,
        })
    }

    /// The body.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; Self::LEN] {
        let heard = if self.heard.is_some() { Self::HEARD } else { 0 };
        let asks = if self.asks { Self::ASKS } else { 0 };
        let mut bytes = [0; Self::LEN];
        let _ = Writer::new(&mut bytes)
            .u8(Self::MARK)
            .u8(heard | asks)
            .u16(self.interval)
            .u16(self.heard.unwrap_or(0))
            .finish();
        bytes
    }
}

#[cfg(test)]
mod tests {
    use std::format;
    use std::string::String;

    use super::*;

    const ALL: [Keepalive; 3] = [
        Keepalive {
            interval: 25,
            heard: None,
            asks: true,
        },
        Keepalive {
            interval: 100,
            heard: Some(25),
            asks: true,
        },
        Keepalive {
            interval: 0,
            heard: Some(400),
            asks: false,
        },
    ];

    #[test]
    fn it_has_the_bytes_of_the_documentation() {
        let page = include_str!("../../../docs/protocol/link.md");
        for keepalive in ALL {
            let hex: String = keepalive.to_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
            assert!(page.contains(&hex), "{keepalive:?} is {hex}");
            assert_eq!(Keepalive::parse(&keepalive.to_bytes()), Ok(keepalive));
        }
    }

    #[test]
    fn other_bodies_are_refused() {
        let bytes = ALL[1].to_bytes();
        for len in (0..20).filter(|len| *len != Keepalive::LEN) {
            let body: std::vec::Vec<u8> = bytes.into_iter().cycle().take(len).collect();
            assert!(Keepalive::parse(&body).is_err(), "{len} bytes");
        }
        let mut other = bytes;
        other[0] = crate::link::MOVED;
        assert!(Keepalive::parse(&other).is_err());
        let mut flagged = bytes;
        flagged[1] |= 0xf0;
        assert_eq!(Keepalive::parse(&flagged), Ok(ALL[1]));
    }
}
