//! The plainest way to do what the fast code does.

pub(super) const TCP: u8 = 6;
pub(super) const UDP: u8 = 17;
pub(super) const IPV6_HEADER: usize = 40;

pub(super) const FIN: u8 = 0x01;
pub(super) const PSH: u8 = 0x08;
pub(super) const ACK: u8 = 0x10;
pub(super) const CWR: u8 = 0x80;

/// One's complement sum, octet by octet.
pub(super) fn sum(parts: &[&[u8]]) -> u16 {
    let mut total = 0u32;
    for (i, octet) in parts.iter().copied().flatten().enumerate() {
        total += u32::from(*octet) << if i % 2 == 0 { 8 } else { 0 };
        total = (total & 0xffff) + (total >> 16);
    }
    total as u16
}

/// Sum of the pseudo-header (RFC 8200 section 8.1) and `transport`, which begins at `start` of `packet`.
pub(super) fn transport_sum(packet: &[u8], start: usize, protocol: u8) -> u16 {
    let transport = &packet[start..];
    let mut tail = (transport.len() as u32).to_be_bytes().to_vec();
    tail.extend([0, 0, 0, protocol]);
    sum(&[&packet[8..40], &tail, transport])
}

/// Sum of the pseudo-header alone, as it stands in the field of a checksum that is begun.
pub(super) fn pseudo_sum(packet: &[u8], start: usize, protocol: u8) -> u16 {
    let mut tail = ((packet.len() - start) as u32).to_be_bytes().to_vec();
    tail.extend([0, 0, 0, protocol]);
    sum(&[&packet[8..40], &tail])
}

/// Whether the checksum of the transport at `start` is right.
pub(super) fn verifies(packet: &[u8], start: usize, protocol: u8) -> bool {
    transport_sum(packet, start, protocol) == 0xffff
}

/// Where the checksum of a protocol is in its header.
pub(super) fn checksum_at(protocol: u8) -> usize {
    match protocol {
        TCP => 16,
        UDP => 6,
        _ => 2,
    }
}

/// Writes the right checksum.
pub(super) fn complete(packet: &mut [u8], start: usize, protocol: u8) {
    let at = start + checksum_at(protocol);
    packet[at..at + 2].fill(0);
    let checksum = match (!transport_sum(packet, start, protocol), protocol) {
        (0, UDP) => 0xffff,
        (checksum, _) => checksum,
    };
    packet[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
}

/// Makes `packet` an IPv6 packet with the right length, whatever else it is; nothing below 40 bytes.
pub(super) fn make_ipv6(packet: &mut [u8]) {
    if packet.len() >= IPV6_HEADER {
        packet[0] = 0x60 | packet[0] & 0x0f;
        let len = u16::try_from(packet.len() - IPV6_HEADER).unwrap_or(u16::MAX);
        packet[4..6].copy_from_slice(&len.to_be_bytes());
    }
}

/// Offset and protocol of what follows the extension headers of a well-formed packet.
pub(super) fn transport(packet: &[u8]) -> (usize, u8) {
    let (mut at, mut protocol) = (IPV6_HEADER, packet[6]);
    while matches!(protocol, 0 | 43 | 60) {
        protocol = packet[at];
        at += 8 + 8 * usize::from(packet[at + 1]);
    }
    (at, protocol)
}
