//! The header before each packet on a TUN device that was opened with `IFF_VNET_HDR`.
//!
//! Source: `struct virtio_net_hdr` in Linux's `virtio_net.h`; the VIRTIO specification 1.2, section
//! 5.1.6. A TUN device uses the legacy layout of 10 bytes in the host's byte order.

use crate::WireError;
use crate::cursor::{Reader, put};

/// [`VirtioNetHdr::flags`]: the checksum at `csum_start + csum_offset` is the sum of the
/// pseudo-header only; the receiver of the packet completes it.
pub const NEEDS_CSUM: u8 = 1;
/// [`VirtioNetHdr::flags`]: the checksum was verified.
pub const DATA_VALID: u8 = 2;

/// [`VirtioNetHdr::gso_type`]: one packet, not to be segmented.
pub const GSO_NONE: u8 = 0;
/// [`VirtioNetHdr::gso_type`]: TCP over IPv4, to be segmented.
pub const GSO_TCPV4: u8 = 1;
/// [`VirtioNetHdr::gso_type`]: UDP, to be cut into IP fragments.
pub const GSO_UDP: u8 = 3;
/// [`VirtioNetHdr::gso_type`]: TCP over IPv6, to be segmented.
pub const GSO_TCPV6: u8 = 4;
/// [`VirtioNetHdr::gso_type`]: UDP, to be segmented into datagrams.
pub const GSO_UDP_L4: u8 = 5;
/// Bit of [`VirtioNetHdr::gso_type`]: CWR is set, and only the first segment keeps it.
pub const GSO_ECN: u8 = 0x80;

/// Offload work that remains to be done for a packet. All fields are in the host's byte order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct VirtioNetHdr {
    /// [`NEEDS_CSUM`], [`DATA_VALID`]. Without a flag nothing is known about the checksum.
    pub flags: u8,
    /// One of the `GSO_` kinds, and [`GSO_ECN`].
    pub gso_type: u8,
    /// Bytes of the headers before the payload that is to be segmented; a hint.
    pub hdr_len: u16,
    /// Payload bytes of each segment.
    pub gso_size: u16,
    /// Offset of the start of the checksum, in bytes from the start of the packet.
    pub csum_start: u16,
    /// Offset of the checksum field, in bytes from `csum_start`.
    pub csum_offset: u16,
}

impl VirtioNetHdr {
    /// Bytes of the header.
    pub const LEN: usize = 10;

    /// Splits bytes that were read from the device into this header and the packet. No value is
    /// checked.
    ///
    /// # Errors
    /// [`WireError::TooShort`].
    pub fn parse(bytes: &[u8]) -> Result<(Self, &[u8]), WireError> {
        let mut r = Reader::new(bytes);
        let [flags, gso_type, a, b, c, d, e, f, g, h] = *r.array_ref()?;
        let header = Self {
            flags,
            gso_type,
            hdr_len: u16::from_ne_bytes([a, b]),
            gso_size: u16::from_ne_bytes([c, d]),
            csum_start: u16::from_ne_bytes([e, f]),
            csum_offset: u16::from_ne_bytes([g, h]),
        };
        Ok((header, r.rest()))
    }

    /// Returns the header in the layout of the device.
    #[must_use]
    pub const fn to_bytes(&self) -> [u8; Self::LEN] {
        let ([a, b], [c, d]) = (self.hdr_len.to_ne_bytes(), self.gso_size.to_ne_bytes());
        let ([e, f], [g, h]) = (self.csum_start.to_ne_bytes(), self.csum_offset.to_ne_bytes());
        [self.flags, self.gso_type, a, b, c, d, e, f, g, h]
    }

    /// Writes the header and returns [`VirtioNetHdr::LEN`].
    ///
    /// # Errors
    /// [`WireError::BufferTooSmall`].
    pub fn emit(&self, out: &mut [u8]) -> Result<usize, WireError> {
        put(out, &self.to_bytes())
    }

    /// [`VirtioNetHdr::gso_type`] without [`GSO_ECN`].
    #[must_use]
    pub const fn gso_kind(&self) -> u8 {
        self.gso_type & !GSO_ECN
    }

    /// Whether the checksum is still to be completed.
    #[must_use]
    pub const fn needs_csum(&self) -> bool {
        self.flags & NEEDS_CSUM != 0
    }
}
