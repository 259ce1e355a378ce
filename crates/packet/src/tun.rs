//! One read of the TUN, and what becomes of it.

use weft_wire::virtio::VirtioNetHdr;

/// A packet or super-packet of one TUN read.
#[derive(Clone, Copy)]
pub(crate) struct TunPacket<'p> {
    /// The header in front of it, as the kernel wrote it.
    pub(crate) hdr: VirtioNetHdr,
    /// The IP packet.
    pub(crate) bytes: &'p [u8],
}

/// The outcome of a packet from the TUN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outbound {
    /// The packet was sent, waits, or was dropped and counted.
    Done,
    /// The lane left the packet unchanged; the caller passes it to the lane of this number.
    HandOver(u8),
}
