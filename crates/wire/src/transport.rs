//! Checked views of TCP and UDP headers, with the fields that offloads need.
//!
//! Source: RFC 9293 section 3.1, RFC 768. All fields are in network byte order. A view borrows the
//! segment; the `_AT` constants are the offsets of fields that are rewritten.

use crate::WireError;

/// A TCP header and the data behind it.
#[derive(Clone, Copy, Debug)]
pub struct TcpHeader<'a> {
    fixed: &'a [u8; 20],
    options: &'a [u8],
    payload: &'a [u8],
}

impl<'a> TcpHeader<'a> {
    /// Bytes of a header without options.
    pub const MIN_LEN: usize = 20;
    /// Offset of the sequence number: 4 bytes.
    pub const SEQ_AT: usize = 4;
    /// Offset of the flags: 1 byte.
    pub const FLAGS_AT: usize = 13;
    /// Offset of the checksum: 2 bytes.
    pub const CHECKSUM_AT: usize = 16;

    /// Flag: no more data.
    pub const FIN: u8 = 0x01;
    /// Flag: synchronise sequence numbers.
    pub const SYN: u8 = 0x02;
    /// Flag: reset.
    pub const RST: u8 = 0x04;
    /// Flag: push.
    pub const PSH: u8 = 0x08;
    /// Flag: the acknowledgement number is valid.
    pub const ACK: u8 = 0x10;
    /// Flag: the urgent pointer is valid.
    pub const URG: u8 = 0x20;
    /// Flag: ECN echo.
    pub const ECE: u8 = 0x40;
    /// Flag: congestion window reduced.
    pub const CWR: u8 = 0x80;

    /// Checks a segment. Everything behind the header is data. The checksum is not verified.
    ///
    /// # Errors
    /// [`WireError::TooShort`] if the header is incomplete, [`WireError::HeaderTooSmall`] for a
    /// header length below 20.
    pub fn parse(segment: &'a [u8]) -> Result<Self, WireError> {
        let short = |needed| WireError::TooShort {
            needed,
            got: segment.len(),
        };
        let (fixed, rest) = segment.split_first_chunk().ok_or_else(|| short(Self::MIN_LEN))?;
        let fixed: &[u8; 20] = fixed;
        let header_len = usize::from(fixed[12] >> 4) * 4;
        let Some(options_len) = header_len.checked_sub(Self::MIN_LEN) else {
            return Err(WireError::HeaderTooSmall(header_len));
        };
        let split = rest.split_at_checked(options_len);
        let (options, payload) = split.ok_or_else(|| short(header_len))?;
        Ok(Self {
            fixed,
            options,
            payload,
        })
    }

    /// Source port.
    #[must_use]
    pub const fn src_port(&self) -> u16 {
        u16::from_be_bytes([self.fixed[0], self.fixed[1]])
    }

    /// Destination port.
    #[must_use]
    pub const fn dst_port(&self) -> u16 {
        u16::from_be_bytes([self.fixed[2], self.fixed[3]])
    }

    /// Sequence number of the first data byte.
    #[must_use]
    pub const fn seq(&self) -> u32 {
        u32::from_be_bytes([self.fixed[4], self.fixed[5], self.fixed[6], self.fixed[7]])
    }

    /// Acknowledgement number.
    #[must_use]
    pub const fn ack(&self) -> u32 {
        u32::from_be_bytes([self.fixed[8], self.fixed[9], self.fixed[10], self.fixed[11]])
    }

    /// Bytes of the header, options included.
    #[must_use]
    pub const fn header_len(&self) -> usize {
        Self::MIN_LEN + self.options.len()
    }

    /// The flags, [`TcpHeader::FIN`] to [`TcpHeader::CWR`].
    #[must_use]
    pub const fn flags(&self) -> u8 {
        self.fixed[13]
    }

    /// Window, unscaled.
    #[must_use]
    pub const fn window(&self) -> u16 {
        u16::from_be_bytes([self.fixed[14], self.fixed[15]])
    }

    /// The checksum in the segment.
    #[must_use]
    pub const fn checksum(&self) -> u16 {
        u16::from_be_bytes([self.fixed[16], self.fixed[17]])
    }

    /// The options, padding included.
    #[must_use]
    pub const fn options_bytes(&self) -> &'a [u8] {
        self.options
    }

    /// The options one by one, up to the end of the list or the first that is malformed.
    #[must_use]
    pub const fn options(&self) -> TcpOptions<'a> {
        TcpOptions {
            rest: self.options,
            at: Self::MIN_LEN,
        }
    }

    /// The maximum segment size that the sender announces, and its offset in the segment.
    #[must_use]
    pub fn mss(&self) -> Option<(u16, usize)> {
        self.options().find_map(|option| match (option.kind, option.data) {
            (TcpOption::MSS, &[high, low]) => Some((u16::from_be_bytes([high, low]), option.at + 2)),
            _ => None,
        })
    }

    /// The data.
    #[must_use]
    pub const fn payload(&self) -> &'a [u8] {
        self.payload
    }
}

/// One TCP option, padding left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TcpOption<'a> {
    /// The option's kind.
    pub kind: u8,
    /// Offset of the option, in bytes from the start of the segment.
    pub at: usize,
    /// The bytes behind its kind and length.
    pub data: &'a [u8],
}

impl TcpOption<'_> {
    /// Kind of the maximum segment size.
    pub const MSS: u8 = 2;
}

/// The options of a segment; see [`TcpHeader::options`].
#[derive(Clone, Debug)]
pub struct TcpOptions<'a> {
    rest: &'a [u8],
    at: usize,
}

impl<'a> Iterator for TcpOptions<'a> {
    type Item = TcpOption<'a>;

    fn next(&mut self) -> Option<TcpOption<'a>> {
        const END: u8 = 0;
        const NOP: u8 = 1;
        loop {
            let (&kind, after) = self.rest.split_first()?;
            match kind {
                END => self.rest = &[],
                NOP => (self.rest, self.at) = (after, self.at + 1),
                _ => {
                    let len = usize::from(*after.first()?);
                    let Some((option, rest)) = self.rest.split_at_checked(len) else {
                        self.rest = &[];
                        return None;
                    };
                    let Some(data) = option.get(2..) else {
                        self.rest = &[];
                        return None;
                    };
                    let at = self.at;
                    (self.rest, self.at) = (rest, at + len);
                    return Some(TcpOption { kind, at, data });
                }
            }
        }
    }
}

/// A UDP header and the data behind it.
#[derive(Clone, Copy, Debug)]
pub struct UdpHeader<'a> {
    header: &'a [u8; 8],
    payload: &'a [u8],
}

impl<'a> UdpHeader<'a> {
    /// Bytes of the header.
    pub const LEN: usize = 8;
    /// Offset of the length: 2 bytes.
    pub const LENGTH_AT: usize = 4;
    /// Offset of the checksum: 2 bytes.
    pub const CHECKSUM_AT: usize = 6;

    /// Checks a datagram. The view excludes bytes behind its length. The checksum is not verified.
    ///
    /// # Errors
    /// [`WireError::TooShort`] if header or data are incomplete, [`WireError::HeaderTooSmall`] for
    /// a length below 8.
    pub fn parse(datagram: &'a [u8]) -> Result<Self, WireError> {
        let short = |needed| WireError::TooShort {
            needed,
            got: datagram.len(),
        };
        let (header, rest) = datagram.split_first_chunk().ok_or_else(|| short(Self::LEN))?;
        let view = Self { header, payload: rest };
        let len = usize::from(view.length());
        let Some(data_len) = len.checked_sub(Self::LEN) else {
            return Err(WireError::HeaderTooSmall(len));
        };
        Ok(Self {
            header,
            payload: rest.get(..data_len).ok_or_else(|| short(len))?,
        })
    }

    /// Source port.
    #[must_use]
    pub const fn src_port(&self) -> u16 {
        u16::from_be_bytes([self.header[0], self.header[1]])
    }

    /// Destination port.
    #[must_use]
    pub const fn dst_port(&self) -> u16 {
        u16::from_be_bytes([self.header[2], self.header[3]])
    }

    /// Bytes of header and data.
    #[must_use]
    pub const fn length(&self) -> u16 {
        u16::from_be_bytes([self.header[4], self.header[5]])
    }

    /// The checksum in the datagram; 0 means none, which IPv6 forbids.
    #[must_use]
    pub const fn checksum(&self) -> u16 {
        u16::from_be_bytes([self.header[6], self.header[7]])
    }

    /// The data.
    #[must_use]
    pub const fn payload(&self) -> &'a [u8] {
        self.payload
    }
}
