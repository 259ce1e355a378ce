//! Packets built field by field, and the simplest checksum.

use proptest::prelude::*;

pub(crate) const TCP: u8 = 6;
pub(crate) const UDP: u8 = 17;
pub(crate) const ICMPV6: u8 = 58;

pub(crate) const FIN: u8 = 0x01;
pub(crate) const SYN: u8 = 0x02;
pub(crate) const RST: u8 = 0x04;
pub(crate) const PSH: u8 = 0x08;
pub(crate) const ACK: u8 = 0x10;
pub(crate) const URG: u8 = 0x20;
pub(crate) const ECE: u8 = 0x40;
pub(crate) const CWR: u8 = 0x80;

/// Returns the one's complement sum, octet by octet.
pub(crate) fn sum(parts: &[&[u8]]) -> u16 {
    let mut total = 0u32;
    for (i, octet) in parts.concat().into_iter().enumerate() {
        total += u32::from(octet) << if i % 2 == 0 { 8 } else { 0 };
        total = (total & 0xffff) + (total >> 16);
    }
    total as u16
}

pub(crate) fn pseudo_header(packet: &[u8], transport_len: usize, protocol: u8) -> Vec<u8> {
    if packet[0] >> 4 == 4 {
        let mut pseudo = packet[12..20].to_vec();
        pseudo.extend([0, protocol]);
        pseudo.extend((transport_len as u16).to_be_bytes());
        return pseudo;
    }
    let mut pseudo = packet[8..40].to_vec();
    pseudo.extend((transport_len as u32).to_be_bytes());
    pseudo.extend([0, 0, 0, protocol]);
    pseudo
}

/// Returns whether the checksum of the transport at `start` is correct.
pub(crate) fn verifies(packet: &[u8], start: usize, protocol: u8) -> bool {
    let transport = &packet[start..];
    sum(&[&pseudo_header(packet, transport.len(), protocol), transport]) == 0xffff
}

/// Returns whether the sum of an IPv4 header is correct; IPv6 has none.
pub(crate) fn header_verifies(packet: &[u8]) -> bool {
    packet[0] >> 4 == 6 || sum(&[&packet[..4 * usize::from(packet[0] & 15)]]) == 0xffff
}

/// The fields that an IPv4 header has and an IPv6 header does not.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct V4 {
    pub(crate) id: u16,
    pub(crate) dont_fragment: bool,
    /// The length is a multiple of four.
    pub(crate) options: Vec<u8>,
}

/// One packet, or the super-packet from which one is cut.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Packet {
    /// The IPv4 fields. Extensions and flow label are then ignored.
    pub(crate) v4: Option<V4>,
    /// The last octets of source and destination.
    pub(crate) hosts: [u8; 2],
    pub(crate) traffic_class: u8,
    pub(crate) flow_label: u16,
    pub(crate) hop_limit: u8,
    /// The type of each extension header, and its length beyond the first eight octets, in units of
    /// eight.
    pub(crate) extensions: Vec<(u8, u8)>,
    pub(crate) protocol: u8,
    pub(crate) ports: [u8; 4],
    pub(crate) sequence: u32,
    pub(crate) acknowledgement: u32,
    pub(crate) flags: u8,
    pub(crate) window: u16,
    pub(crate) urgent: u16,
    pub(crate) options: Vec<u8>,
    pub(crate) payload: Vec<u8>,
}

impl Packet {
    pub(crate) fn tcp(ports: [u8; 4], sequence: u32, payload: &[u8]) -> Self {
        Self {
            v4: None,
            hosts: [1, 2],
            traffic_class: 0,
            flow_label: 0,
            hop_limit: 64,
            extensions: Vec::new(),
            protocol: TCP,
            ports,
            sequence,
            acknowledgement: 7,
            flags: ACK,
            window: 500,
            urgent: 0,
            options: vec![1, 1, 8, 10, 0, 0, 0, 9, 0, 0, 0, 8],
            payload: payload.to_vec(),
        }
    }

    pub(crate) fn udp(ports: [u8; 4], payload: &[u8]) -> Self {
        Self {
            protocol: UDP,
            ..Self::tcp(ports, 0, payload)
        }
    }

    /// Returns the same packet over IPv4, with this identification.
    pub(crate) fn over_v4(self, id: u16) -> Self {
        let v4 = V4 {
            id,
            dont_fragment: true,
            options: Vec::new(),
        };
        Self { v4: Some(v4), ..self }
    }

    pub(crate) fn transport_start(&self) -> usize {
        if let Some(v4) = &self.v4 {
            return 20 + v4.options.len();
        }
        40 + self
            .extensions
            .iter()
            .map(|&(_, more)| 8 + 8 * usize::from(more))
            .sum::<usize>()
    }

    pub(crate) fn checksum_offset(&self) -> usize {
        if self.protocol == TCP { 16 } else { 6 }
    }

    fn transport(&self) -> Vec<u8> {
        let mut transport = self.ports.to_vec();
        if self.protocol == TCP {
            transport.extend(self.sequence.to_be_bytes());
            transport.extend(self.acknowledgement.to_be_bytes());
            transport.extend([((20 + self.options.len()) as u8 / 4) << 4, self.flags]);
            transport.extend(self.window.to_be_bytes());
            transport.extend([0, 0]);
            transport.extend(self.urgent.to_be_bytes());
            transport.extend(&self.options);
        } else {
            transport.extend(((8 + self.payload.len()) as u16).to_be_bytes());
            transport.extend([0, 0]);
        }
        transport.extend(&self.payload);
        transport
    }

    fn header_v4(&self, v4: &V4, transport_len: usize) -> Vec<u8> {
        let header_len = 20 + v4.options.len();
        let mut header = vec![0x40 | (header_len as u8 / 4), self.traffic_class];
        header.extend(((header_len + transport_len) as u16).to_be_bytes());
        header.extend(v4.id.to_be_bytes());
        header.extend([
            if v4.dont_fragment { 0x40 } else { 0 },
            0,
            self.hop_limit,
            self.protocol,
            0,
            0,
        ]);
        for host in self.hosts {
            header.extend([10, 1, 0, host]);
        }
        header.extend(&v4.options);
        let sum = !sum(&[&header]);
        header[10..12].copy_from_slice(&sum.to_be_bytes());
        header
    }

    fn header_v6(&self, transport_len: usize) -> Vec<u8> {
        let next = |i: usize| self.extensions.get(i).map_or(self.protocol, |&(kind, _)| kind);
        let payload_len = self.transport_start() - 40 + transport_len;
        let mut packet = vec![0x60 | self.traffic_class >> 4, self.traffic_class << 4];
        packet.extend(self.flow_label.to_be_bytes());
        packet.extend((payload_len as u16).to_be_bytes());
        packet.extend([next(0), self.hop_limit]);
        for host in self.hosts {
            packet.extend([0xfd, 0xab, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, host]);
        }
        for (i, &(_, more)) in self.extensions.iter().enumerate() {
            packet.extend([next(i + 1), more, 0, 0, 0, 0, 0, 0]);
            packet.extend(vec![0; 8 * usize::from(more)]);
        }
        packet
    }

    /// Returns the whole packet with `checksum` in its field.
    fn bytes_with(&self, checksum: impl Fn(&[u8], &[u8]) -> u16) -> Vec<u8> {
        let transport = self.transport();
        let mut packet = match &self.v4 {
            Some(v4) => self.header_v4(v4, transport.len()),
            None => self.header_v6(transport.len()),
        };
        let at = packet.len() + self.checksum_offset();
        let checksum = checksum(&pseudo_header(&packet, transport.len(), self.protocol), &transport);
        packet.extend(transport);
        packet[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
        packet
    }

    /// Returns the packet as a peer sends it.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.bytes_with(|pseudo, transport| match (!sum(&[pseudo, transport]), self.protocol) {
            (0, UDP) => 0xffff,
            (checksum, _) => checksum,
        })
    }

    /// Returns the packet as the kernel passes it to a device that completes checksums.
    pub(crate) fn bytes_partial(&self) -> Vec<u8> {
        self.bytes_with(|pseudo, _| sum(&[pseudo]))
    }

    /// Returns the packets that a sender without offloads would have sent instead of this
    /// super-packet.
    pub(crate) fn segments(&self, size: usize) -> Vec<Vec<u8>> {
        let mut chunks: Vec<&[u8]> = self.payload.chunks(size).collect();
        if chunks.is_empty() {
            chunks.push(&[]);
        }
        let last = chunks.len() - 1;
        let segment = |(i, chunk): (usize, &&[u8])| {
            let mut flags = self.flags;
            if i != 0 {
                flags &= !CWR;
            }
            if i != last {
                flags &= !(PSH | FIN);
            }
            let sequence = self.sequence.wrapping_add((i * size) as u32);
            let v4 = self.v4.as_ref().map(|v4| V4 {
                id: v4.id.wrapping_add(i as u16),
                ..v4.clone()
            });
            Self {
                v4,
                flags,
                sequence,
                payload: chunk.to_vec(),
                ..self.clone()
            }
            .bytes()
        };
        chunks.iter().enumerate().map(segment).collect()
    }
}

/// Any TCP or UDP super-packet, and a segment size for it.
pub(crate) fn super_packet() -> impl Strategy<Value = (Packet, u16)> {
    let ip = (
        any::<u8>(),
        any::<u16>(),
        prop::collection::vec((prop::sample::select(vec![0u8, 43, 60]), 0u8..3), 0..4),
    );
    let tcp = (
        any::<[u32; 2]>(),
        any::<[u16; 2]>(),
        any::<u8>(),
        (0usize..=10).prop_map(|words| vec![1; 4 * words]),
    );
    let data = (1u16..3000, prop::collection::vec(any::<u8>(), 0..8000));
    let v4 = (
        any::<u16>(),
        any::<bool>(),
        prop_oneof![3 => Just(0usize), 1 => 0usize..=10],
    );
    let v4 = v4.prop_map(|(id, dont_fragment, words)| V4 {
        id,
        dont_fragment,
        options: vec![1; 4 * words],
    });
    let ip = (ip, prop::option::of(v4));
    (ip, tcp, any::<bool>(), any::<[u8; 4]>(), data).prop_map(|((ip, v4), tcp, udp, ports, (size, payload))| {
        let packet = Packet {
            v4,
            hosts: [1, 2],
            traffic_class: ip.0,
            flow_label: ip.1,
            hop_limit: 63,
            extensions: ip.2,
            protocol: if udp { UDP } else { TCP },
            ports,
            sequence: tcp.0[0],
            acknowledgement: tcp.0[1],
            flags: tcp.2,
            window: tcp.1[0],
            urgent: tcp.1[1],
            options: tcp.3,
            payload,
        };
        // The size gives at most a few hundred segments.
        (packet.clone(), size.max(packet.payload.len() as u16 / 200))
    })
}
