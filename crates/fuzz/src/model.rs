//! The simplest implementation of what the fast code does.

pub(super) const TCP: u8 = 6;
pub(super) const UDP: u8 = 17;
pub(super) const IPV6_HEADER: usize = 40;
pub(super) const IPV4_HEADER: usize = 20;

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

/// Whether the packet is IPv4; any other counts as IPv6.
pub(super) fn is_v4(packet: &[u8]) -> bool {
    packet.first().is_some_and(|first| first >> 4 == 4)
}

/// The pseudo-header (RFC 8200 section 8.1, RFC 9293 section 3.1) of a transport that begins at
/// `start`.
fn pseudo_header(packet: &[u8], start: usize, protocol: u8) -> Vec<u8> {
    let len = (packet.len() - start) as u32;
    let addresses = if is_v4(packet) { &packet[12..20] } else { &packet[8..40] };
    [addresses, &len.to_be_bytes(), &[0, 0, 0, protocol]].concat()
}

/// Sum of the pseudo-header and the transport, which begins at `start` of `packet`.
pub(super) fn transport_sum(packet: &[u8], start: usize, protocol: u8) -> u16 {
    sum(&[&pseudo_header(packet, start, protocol), &packet[start..]])
}

/// Sum of the pseudo-header alone: the value of a partial checksum's field.
pub(super) fn pseudo_sum(packet: &[u8], start: usize, protocol: u8) -> u16 {
    sum(&[&pseudo_header(packet, start, protocol)])
}

/// Whether the checksum of the transport at `start` is correct.
pub(super) fn verifies(packet: &[u8], start: usize, protocol: u8) -> bool {
    transport_sum(packet, start, protocol) == 0xffff
}

/// Offset of a protocol's checksum in its header.
pub(super) fn checksum_at(protocol: u8) -> usize {
    match protocol {
        TCP => 16,
        UDP => 6,
        _ => 2,
    }
}

/// Writes the correct checksum.
pub(super) fn complete(packet: &mut [u8], start: usize, protocol: u8) {
    let at = start + checksum_at(protocol);
    packet[at..at + 2].fill(0);
    let checksum = match (!transport_sum(packet, start, protocol), protocol) {
        (0, UDP) => 0xffff,
        (checksum, _) => checksum,
    };
    packet[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
}

/// Makes `packet` an IPv6 packet with the correct length; no effect below 40 bytes.
pub(super) fn make_ipv6(packet: &mut [u8]) {
    if packet.len() >= IPV6_HEADER {
        packet[0] = 0x60 | packet[0] & 0x0f;
        let len = u16::try_from(packet.len() - IPV6_HEADER).unwrap_or(u16::MAX);
        packet[4..6].copy_from_slice(&len.to_be_bytes());
    }
}

/// Makes `packet` an IPv4 packet with correct lengths and, if it has no options or has room for
/// them, a correct header checksum.
pub(super) fn make_ipv4(packet: &mut [u8]) {
    if packet.len() >= IPV4_HEADER {
        packet[0] = 0x40 | (packet[0] & 0x0f).max(5);
        let len = u16::try_from(packet.len()).unwrap_or(u16::MAX);
        packet[2..4].copy_from_slice(&len.to_be_bytes());
        finish_ipv4(packet);
    }
}

/// Writes the checksum of an IPv4 header, if the header is complete.
pub(super) fn finish_ipv4(packet: &mut [u8]) {
    if let Some(header) = packet.get_mut(..ipv4_header(packet)) {
        header[10..12].fill(0);
        let checksum = !sum(&[header]);
        header[10..12].copy_from_slice(&checksum.to_be_bytes());
    }
}

/// Marks a packet of an ECN-capable sender with CE (RFC 3168 section 5).
pub(super) fn mark_ce(packet: &mut [u8]) {
    if !is_v4(packet) {
        if packet[1] & 0x30 != 0 {
            packet[1] |= 0x30;
        }
    } else if packet[1] & 0x03 != 0 {
        // A correct checksum stays correct and a wrong one wrong: the sum of the header without it
        // grows by the same amount as with it (RFC 1624).
        let more = 3 - u32::from(packet[1] & 0x03);
        packet[1] |= 0x03;
        let sum = u32::from(!u16::from_be_bytes([packet[10], packet[11]])) + more;
        let folded = (sum & 0xffff) + (sum >> 16);
        packet[10..12].copy_from_slice(&(!(folded as u16)).to_be_bytes());
    }
}

/// Length of an IPv4 header, from its field.
pub(super) fn ipv4_header(packet: &[u8]) -> usize {
    4 * usize::from(packet[0] & 0x0f)
}

/// The length in the header of a well-formed packet.
pub(super) fn told_len(packet: &[u8]) -> usize {
    let field = |at: usize| usize::from(u16::from_be_bytes([packet[at], packet[at + 1]]));
    if is_v4(packet) {
        field(2)
    } else {
        IPV6_HEADER + field(4)
    }
}

/// Offset and protocol of the header behind the options or extension headers of a well-formed
/// packet.
pub(super) fn transport(packet: &[u8]) -> (usize, u8) {
    if is_v4(packet) {
        return (ipv4_header(packet), packet[9]);
    }
    let (mut at, mut protocol) = (IPV6_HEADER, packet[6]);
    while matches!(protocol, 0 | 43 | 60) {
        protocol = packet[at];
        at += 8 + 8 * usize::from(packet[at + 1]);
    }
    (at, protocol)
}
