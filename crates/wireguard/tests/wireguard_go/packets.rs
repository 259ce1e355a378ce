//! IPv4 packets inside the tunnel, made and read by hand: echo of ICMP (RFC 792) and UDP (RFC 768).

use std::net::Ipv4Addr;

use weft_lab::nat::packet::checksum;

/// The address of weft-wireguard in the tunnel.
pub(crate) const OURS: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
/// The address of wireguard-go in the tunnel.
pub(crate) const THEIRS: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);

const HEADER_LEN: usize = 20;
const ICMP: u8 = 1;
const UDP: u8 = 17;
const ECHO_REQUEST: u8 = 8;
const ECHO_REPLY: u8 = 0;
/// The identifier of the echo requests.
const IDENTIFIER: u16 = 0x7765;

/// A packet that arrives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Packet {
    /// An answer to [`echo_request`].
    EchoReply {
        number: u16,
        payload: Vec<u8>,
    },
    Udp {
        from: u16,
        to: u16,
        payload: Vec<u8>,
    },
}

/// An echo request to wireguard-go's host.
pub(crate) fn echo_request(number: u16, payload: &[u8]) -> Vec<u8> {
    let mut icmp = vec![ECHO_REQUEST, 0, 0, 0];
    icmp.extend_from_slice(&IDENTIFIER.to_be_bytes());
    icmp.extend_from_slice(&number.to_be_bytes());
    icmp.extend_from_slice(payload);
    let sum = checksum(&icmp);
    icmp[2..4].copy_from_slice(&sum.to_be_bytes());
    ipv4(ICMP, &icmp)
}

/// A UDP packet to wireguard-go's host, without a checksum.
pub(crate) fn udp(from: u16, to: u16, payload: &[u8]) -> Vec<u8> {
    let length = u16::try_from(8 + payload.len()).unwrap();
    let mut udp: Vec<u8> = [from, to, length, 0].into_iter().flat_map(u16::to_be_bytes).collect();
    udp.extend_from_slice(payload);
    ipv4(UDP, &udp)
}

fn ipv4(protocol: u8, payload: &[u8]) -> Vec<u8> {
    let length = u16::try_from(HEADER_LEN + payload.len()).unwrap();
    let mut packet = vec![0x45, 0];
    packet.extend_from_slice(&length.to_be_bytes());
    packet.extend_from_slice(&[0, 0, 0x40, 0, 64, protocol, 0, 0]);
    packet.extend_from_slice(&OURS.octets());
    packet.extend_from_slice(&THEIRS.octets());
    let sum = checksum(&packet);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    packet.extend_from_slice(payload);
    packet
}

/// Reads a packet with its padding. `None`: it is neither of both kinds.
pub(crate) fn read(padded: &[u8]) -> Option<Packet> {
    let length = usize::from(u16::from_be_bytes([*padded.get(2)?, *padded.get(3)?]));
    let (header, payload) = padded.get(..length)?.split_at_checked(HEADER_LEN)?;
    assert_eq!(header[0], 0x45, "{header:x?}");
    assert_eq!(checksum(header), 0, "{header:x?}");
    assert_eq!(
        (&header[12..16], &header[16..20]),
        (&THEIRS.octets()[..], &OURS.octets()[..])
    );
    let number = |at: usize| Some(u16::from_be_bytes([*payload.get(at)?, *payload.get(at + 1)?]));
    match header[9] {
        ICMP if payload.first() == Some(&ECHO_REPLY) && number(4) == Some(IDENTIFIER) => {
            assert_eq!(checksum(payload), 0, "{payload:x?}");
            Some(Packet::EchoReply {
                number: number(6)?,
                payload: payload[8..].to_vec(),
            })
        }
        UDP => Some(Packet::Udp {
            from: number(0)?,
            to: number(2)?,
            payload: payload.get(8..)?.to_vec(),
        }),
        _ => None,
    }
}
