//! Received packets, joined into as few TUN writes as possible (L26).
//!
//! Packets of one batch are pushed in arrival order. Packets that one TCP stream or UDP burst could
//! have been cut into become one group: a virtio header, the first packet's headers rewritten, and
//! the payloads in place. The caller writes each group with one `writev`. Every other packet is a
//! group of one that passes unchanged. Cutting a group with [`Splitter`](crate::split::Splitter)
//! gives the same packets in the same order.
//!
//! The rules for TCP are those of the kernel's receive offload, without its exceptions. Only ACK
//! segments with payload are joined, if they are equal except for sequence number, length and
//! checksum, are in sequence, and have the same length except for a shorter last one. PSH ends a
//! group. UDP datagrams have the same addresses, ports and length, except for a shorter last one,
//! and a checksum. IPv4 packets have no options, are not fragments, and have identifications that
//! count up. The identifications may also stay the same if the packet may not be fragmented, as
//! they then have no meaning (RFC 6864).
//!
//! A packet joins only after its own checksum was verified, or with others that leave theirs to the
//! kernel. A packet with a wrong one passes alone, and the kernel counts it. Packets of a flow
//! never overtake each other.

use weft_wire::checksum::{checksum_add, checksum_finish};
use weft_wire::ip::{Ipv4Header, Ipv6Header, PROTOCOL_TCP, PROTOCOL_UDP, version};
use weft_wire::transport::{TcpHeader, UdpHeader};
use weft_wire::virtio::{GSO_NONE, GSO_TCPV4, GSO_TCPV6, GSO_UDP_L4, NEEDS_CSUM, VirtioNetHdr};

use crate::checksum::{Checksum, begun, field_of};
use crate::inner::{ADDRESSES, ADDRESSES_V4, Inner, Version, finish_header_v4, put_be16};

/// The number of groups that may grow at one time, so that flows may interleave within a batch and
/// still coalesce. Each packet is compared with all of them.
pub const OPEN_GROUPS: usize = 8;

/// The largest number of packets in one group: what the kernel's UDP segmentation takes, and within
/// the 1,024 pieces of `writev`.
pub const MAX_SEGMENTS: usize = 64;

/// The largest super-packet in octets, IP header included.
pub const MAX_SUPER_PACKET: usize = 65_535;

/// The IPv6 header and the longest TCP header. Packets with extension headers or options are not
/// coalesced.
const HEADER_ROOM: usize = Ipv6Header::LEN + 60;

/// Source and destination address, then both ports.
const ENDPOINTS: core::ops::Range<usize> = ADDRESSES.start..Ipv6Header::LEN + 4;
/// The same range in IPv4 without options.
const ENDPOINTS_V4: core::ops::Range<usize> = ADDRESSES_V4.start..Ipv4Header::MIN_LEN + 4;

/// The end of a list of segments.
const NONE: u16 = u16::MAX;

/// The batch has no room for another packet. The caller writes the groups, calls
/// [`clear`](Coalescer::clear), and pushes again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the batch is full")]
pub struct BatchFull;

/// Joins the packets of one batch. Allocates when it is made, never after.
#[derive(Debug)]
pub struct Coalescer {
    joins: bool,
    udp: bool,
    capacity: usize,
    segments: Vec<Segment>,
    groups: Vec<Pending>,
    /// Indices into `groups`, the latest first.
    open: [u16; OPEN_GROUPS],
    open_count: usize,
}

/// One pushed packet, linked to the next of its group.
#[derive(Debug, Clone, Copy)]
struct Segment {
    packet: u32,
    len: u32,
    next: u16,
}

#[derive(Debug, Clone, Copy)]
struct Pending {
    first: u16,
    last: u16,
    count: u16,
    /// Zero for a packet that joins no other.
    header_len: u16,
    segment_payload: u16,
    payload: u32,
    /// The sequence number that the next TCP segment must have.
    next_sequence: u32,
    protocol: u8,
    version: Version,
    /// Whether all of its IPv4 packets have one identification.
    one_id: bool,
    /// Whether its packets leave the checksum to the kernel.
    checksum: Checksum,
    header: [u8; HEADER_ROOM],
}

/// The properties of a pushed packet that decide its place.
enum Class {
    /// It has no ports that identify a flow. It keeps its place among all packets between its
    /// addresses.
    Opaque,
    /// It keeps its place in its flow, but joins no other packet.
    Alone,
    Joinable(Candidate),
}

struct Candidate {
    protocol: u8,
    header_len: usize,
    payload: usize,
    sequence: u32,
    pushed: bool,
    checksum: Checksum,
}

impl Coalescer {
    /// Makes a coalescer for batches of up to `capacity` packets (at most 65,535). `udp`: the TUN
    /// takes UDP super-packets (`TUN_F_USO6`). Without it UDP passes packet by packet.
    pub fn new(capacity: usize, udp: bool) -> Self {
        let capacity = capacity.min(usize::from(NONE));
        Self {
            joins: true,
            udp,
            capacity,
            segments: Vec::with_capacity(capacity),
            groups: Vec::with_capacity(capacity),
            open: [0; OPEN_GROUPS],
            open_count: 0,
        }
    }

    /// Makes a coalescer for a TUN that takes no super-packets: every packet is a group of one.
    pub fn joining_nothing(capacity: usize) -> Self {
        Self {
            joins: false,
            ..Self::new(capacity, false)
        }
    }

    /// Returns the number of packets pushed since the last [`clear`](Self::clear).
    pub fn len(&self) -> usize {
        self.segments.len()
    }

    /// Returns whether no packet was pushed since the last [`clear`](Self::clear).
    pub fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }

    /// Adds the next packet in arrival order. `id` is the caller's name for it, and [`Piece`]
    /// returns it. The octets must stay unchanged until the groups are written. Any bytes are
    /// accepted: what is not an IP packet that can be coalesced passes unchanged. A packet that is
    /// [`Checksum::Partial`] has the sum of its pseudo-header in place, and the virtio header
    /// requests that the kernel complete it.
    ///
    /// # Errors
    /// [`BatchFull`] if `capacity` packets were pushed; the packet was not added.
    pub fn push(&mut self, id: u32, packet: &[u8], checksum: Checksum) -> Result<(), BatchFull> {
        if self.segments.len() == self.capacity {
            return Err(BatchFull);
        }
        let segment = self.segments.len() as u16;
        self.segments.push(Segment {
            packet: id,
            len: u32::try_from(packet.len()).unwrap_or(u32::MAX),
            next: NONE,
        });
        if !self.joins {
            self.groups.push(Pending::single(segment, packet, checksum));
            return Ok(());
        }
        match classify(packet, self.udp, checksum) {
            Class::Opaque => {
                let version = version_of(packet);
                if let Some(addresses) = packet.get(version.addresses()) {
                    self.close_where(|group| {
                        group.version == version && group.header[version.addresses()] == *addresses
                    });
                }
                self.groups.push(Pending::single(segment, packet, checksum));
            }
            Class::Alone => {
                self.close_where(|group| group.same_flow(packet));
                self.groups.push(Pending::single(segment, packet, checksum));
            }
            Class::Joinable(candidate) => self.join(segment, packet, &candidate),
        }
        Ok(())
    }

    fn join(&mut self, segment: u16, packet: &[u8], candidate: &Candidate) {
        let slot = self.open[..self.open_count]
            .iter()
            .position(|&index| self.groups[usize::from(index)].same_flow(packet));
        if let Some(slot) = slot {
            let group = &mut self.groups[usize::from(self.open[slot])];
            if group.accepts(packet, candidate) {
                self.segments[usize::from(group.last)].next = segment;
                group.one_id = group.version == Version::V4 && id_of(packet) == id_of(&group.header);
                if group.append(segment, candidate) {
                    self.close_slot(slot);
                }
                return;
            }
            self.close_slot(slot);
        }
        self.groups.push(Pending::start(segment, packet, candidate));
        if !candidate.pushed {
            self.open_latest();
        }
    }

    /// Opens the group made last. The group that has been open longest makes room.
    fn open_latest(&mut self) {
        if self.open_count == OPEN_GROUPS {
            self.close_slot(OPEN_GROUPS - 1);
        }
        self.open.copy_within(..self.open_count, 1);
        self.open[0] = (self.groups.len() - 1) as u16;
        self.open_count += 1;
    }

    fn close_where(&mut self, matches: impl Fn(&Pending) -> bool) {
        let mut slot = 0;
        while slot < self.open_count {
            if matches(&self.groups[usize::from(self.open[slot])]) {
                self.close_slot(slot);
            } else {
                slot += 1;
            }
        }
    }

    fn close_slot(&mut self, slot: usize) {
        self.open.copy_within(slot + 1..self.open_count, slot);
        self.open_count -= 1;
    }

    /// Ends the batch and returns its groups in the order of their first packets, which is the
    /// order to write them in.
    pub fn groups(&mut self) -> impl ExactSizeIterator<Item = Group<'_>> {
        self.open_count = 0;
        for group in self.groups.iter_mut().filter(|group| group.count > 1) {
            group.rewrite_header();
        }
        let segments = &self.segments;
        self.groups.iter().map(move |group| Group { group, segments })
    }

    /// Removes all packets of the batch.
    pub fn clear(&mut self) {
        self.segments.clear();
        self.groups.clear();
        self.open_count = 0;
    }
}

impl Pending {
    fn single(segment: u16, packet: &[u8], checksum: Checksum) -> Self {
        Self {
            first: segment,
            last: segment,
            count: 1,
            header_len: 0,
            segment_payload: 0,
            payload: 0,
            next_sequence: 0,
            protocol: protocol_of(packet),
            version: version_of(packet),
            one_id: false,
            checksum,
            header: [0; HEADER_ROOM],
        }
    }

    fn start(segment: u16, packet: &[u8], candidate: &Candidate) -> Self {
        let mut group = Self::single(segment, packet, candidate.checksum);
        group.header_len = candidate.header_len as u16;
        group.header[..candidate.header_len].copy_from_slice(&packet[..candidate.header_len]);
        group.segment_payload = candidate.payload as u16;
        group.payload = candidate.payload as u32;
        group.next_sequence = candidate.sequence.wrapping_add(candidate.payload as u32);
        group.protocol = candidate.protocol;
        group
    }

    /// Returns whether `packet`, an IP header without options or extensions and ports, has this
    /// group's protocol, addresses and ports.
    fn same_flow(&self, packet: &[u8]) -> bool {
        if version_of(packet) != self.version {
            return false;
        }
        match self.version {
            Version::V6 => {
                let next_header = Ipv6Header::NEXT_HEADER_AT;
                self.header[next_header] == packet[next_header] && self.header[ENDPOINTS] == packet[ENDPOINTS]
            }
            Version::V4 => {
                let protocol = Ipv4Header::PROTOCOL_AT;
                self.header[protocol] == packet[protocol] && self.header[ENDPOINTS_V4] == packet[ENDPOINTS_V4]
            }
        }
    }

    /// Returns whether the IP header of `packet`, of the same flow, continues those before.
    fn continues_ip(&self, packet: &[u8]) -> bool {
        match self.version {
            // Version, traffic class (with ECN) and flow label; hop limit.
            Version::V6 => {
                self.header[..4] == packet[..4]
                    && self.header[Ipv6Header::HOP_LIMIT_AT] == packet[Ipv6Header::HOP_LIMIT_AT]
            }
            // Version and header length, class (with ECN); flags; TTL.
            Version::V4 => {
                self.header[..2] == packet[..2]
                    && self.header[Ipv4Header::FLAGS_AT] == packet[Ipv4Header::FLAGS_AT]
                    && self.header[Ipv4Header::TTL_AT] == packet[Ipv4Header::TTL_AT]
                    && self.continues_id(packet)
            }
        }
    }

    fn continues_id(&self, packet: &[u8]) -> bool {
        let ahead = id_of(packet).wrapping_sub(id_of(&self.header));
        let counts = ahead == self.count && !self.one_id;
        let stays = ahead == 0 && (self.one_id || self.count == 1) && self.header[Ipv4Header::FLAGS_AT] & DF != 0;
        counts || stays
    }

    /// Returns whether `packet`, of the same flow, continues this open group.
    fn accepts(&self, packet: &[u8], candidate: &Candidate) -> bool {
        let header_len = usize::from(self.header_len);
        let total = header_len + self.payload as usize + candidate.payload;
        if !self.continues_ip(packet)
            || candidate.checksum != self.checksum
            || candidate.payload > usize::from(self.segment_payload)
            || total > MAX_SUPER_PACKET
        {
            return false;
        }
        if self.protocol == PROTOCOL_UDP {
            return true;
        }
        // Acknowledgement and data offset, then window, then the options. The flags are ACK and at
        // most PSH in both.
        let same = |range: core::ops::Range<usize>| self.header[range.clone()] == packet[range];
        let tcp = self.version.header_len();
        self.next_sequence == candidate.sequence
            && header_len == candidate.header_len
            && same(tcp + 8..tcp + TcpHeader::FLAGS_AT)
            && same(tcp + 14..tcp + TcpHeader::CHECKSUM_AT)
            && same(tcp + TcpHeader::MIN_LEN..header_len)
    }

    /// Adds an accepted segment, and returns whether it is the group's last.
    fn append(&mut self, segment: u16, candidate: &Candidate) -> bool {
        self.last = segment;
        self.count += 1;
        self.payload += candidate.payload as u32;
        self.next_sequence = self.next_sequence.wrapping_add(candidate.payload as u32);
        if candidate.pushed {
            self.header[self.version.header_len() + TcpHeader::FLAGS_AT] |= TcpHeader::PSH;
        }
        candidate.pushed
            || candidate.payload < usize::from(self.segment_payload)
            || usize::from(self.count) == MAX_SEGMENTS
    }

    /// Writes the lengths of the super-packet, and the sum of the pseudo-header if the kernel
    /// completes the checksum.
    fn rewrite_header(&mut self) {
        let ip_len = self.version.header_len();
        let transport_len = usize::from(self.header_len) - ip_len + self.payload as usize;
        let partial = begun(&self.header[self.version.addresses()], self.protocol, transport_len);
        let (ip, transport) = self.header.split_at_mut(ip_len);
        match self.version {
            Version::V6 => put_be16(ip, Ipv6Header::PAYLOAD_LEN_AT, transport_len as u16),
            Version::V4 => {
                put_be16(ip, Ipv4Header::TOTAL_LEN_AT, (ip_len + transport_len) as u16);
                finish_header_v4(ip);
            }
        }
        if self.protocol == PROTOCOL_UDP {
            put_be16(transport, UdpHeader::LENGTH_AT, transport_len as u16);
            put_be16(transport, UdpHeader::CHECKSUM_AT, partial);
        } else {
            put_be16(transport, TcpHeader::CHECKSUM_AT, partial);
        }
    }
}

fn classify(packet: &[u8], udp: bool, checksum: Checksum) -> Class {
    let Ok(inner) = Inner::parse(packet) else {
        return Class::Opaque;
    };
    if inner.is_fragment() || !inner.is_plain() || inner.ports().is_none() {
        return Class::Opaque;
    }
    let candidate = if inner.protocol() == PROTOCOL_TCP {
        tcp_candidate(&inner, checksum)
    } else {
        udp_candidate(&inner, udp, checksum)
    };
    match candidate {
        Some(candidate)
            if inner.packet().len() == packet.len()
                && candidate.payload > 0
                && is_clean_v4(&inner)
                && (checksum == Checksum::Partial || inner.checksum_of(inner.transport()) == 0) =>
        {
            Class::Joinable(candidate)
        }
        _ => Class::Alone,
    }
}

/// The bit that forbids fragmentation, in the first of the two bytes with flags.
const DF: u8 = 0x40;

/// Returns the version in a packet. Every packet that is not IPv4 is examined as IPv6.
fn version_of(packet: &[u8]) -> Version {
    if version(packet) == Some(4) {
        Version::V4
    } else {
        Version::V6
    }
}

fn protocol_of(packet: &[u8]) -> u8 {
    let at = match version_of(packet) {
        Version::V4 => Ipv4Header::PROTOCOL_AT,
        Version::V6 => Ipv6Header::NEXT_HEADER_AT,
    };
    packet.get(at).copied().unwrap_or_default()
}

/// Returns the identification of an IPv4 packet.
fn id_of(packet: &[u8]) -> u16 {
    u16::from_be_bytes([packet[Ipv4Header::ID_AT], packet[Ipv4Header::ID_AT + 1]])
}

/// Returns whether the checksum of the header is correct, and no flag but DF is set. A super-packet
/// gets a new sum, which must not hide that an old one was wrong. IPv6 has neither.
fn is_clean_v4(inner: &Inner<'_>) -> bool {
    inner.version() == Version::V6 || {
        let header = &inner.packet()[..Ipv4Header::MIN_LEN];
        header[Ipv4Header::FLAGS_AT] & !DF == 0 && checksum_finish(checksum_add(0, header)) == 0
    }
}

fn tcp_candidate(inner: &Inner<'_>, checksum: Checksum) -> Option<Candidate> {
    let tcp = inner.tcp()?;
    // The reserved bits, which AccECN uses, are next to the data offset.
    let reserved = inner.transport()[TcpHeader::FLAGS_AT - 1] & 0x0f;
    let plain = tcp.flags() & !TcpHeader::PSH == TcpHeader::ACK && reserved == 0;
    plain.then(|| Candidate {
        protocol: PROTOCOL_TCP,
        header_len: inner.transport_start() + tcp.header_len(),
        payload: tcp.payload().len(),
        sequence: tcp.seq(),
        pushed: tcp.flags() & TcpHeader::PSH != 0,
        checksum,
    })
}

fn udp_candidate(inner: &Inner<'_>, enabled: bool, checksum: Checksum) -> Option<Candidate> {
    let udp = UdpHeader::parse(inner.transport()).ok()?;
    // Zero is "no checksum", which IPv6 forbids and a super-packet of either version could not
    // keep.
    let has_sum = checksum == Checksum::Partial || udp.checksum() != 0;
    let plain = usize::from(udp.length()) == inner.transport().len() && has_sum;
    (enabled && plain).then(|| Candidate {
        protocol: PROTOCOL_UDP,
        header_len: inner.transport_start() + UdpHeader::LEN,
        payload: udp.payload().len(),
        sequence: 0,
        pushed: false,
        checksum,
    })
}

/// One TUN write: [`virtio`](Self::virtio), then [`header`](Self::header), then the
/// [`pieces`](Self::pieces).
#[derive(Debug, Clone, Copy)]
pub struct Group<'c> {
    group: &'c Pending,
    segments: &'c [Segment],
}

/// A range of a pushed packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// The `id` that it was pushed with.
    pub packet: u32,
    /// The octets of that packet.
    pub range: core::ops::Range<usize>,
}

impl<'c> Group<'c> {
    /// Returns the number of packets in this write.
    pub fn packet_count(&self) -> usize {
        usize::from(self.group.count)
    }

    fn coalesced(&self) -> bool {
        self.group.count > 1
    }

    /// Returns the header to write first. It is all zero for a single packet with a complete
    /// checksum of its own.
    pub fn virtio(&self) -> VirtioNetHdr {
        let group = self.group;
        let whole = VirtioNetHdr {
            gso_type: GSO_NONE,
            ..VirtioNetHdr::default()
        };
        let Some(field) = field_of(group.protocol).filter(|_| self.coalesced() || group.checksum == Checksum::Partial)
        else {
            return whole;
        };
        let open = VirtioNetHdr {
            flags: NEEDS_CSUM,
            csum_start: group.version.header_len() as u16,
            csum_offset: field as u16,
            ..whole
        };
        if !self.coalesced() {
            return open;
        }
        let gso_type = match (group.protocol, group.version) {
            (PROTOCOL_UDP, _) => GSO_UDP_L4,
            (_, Version::V4) => GSO_TCPV4,
            (_, Version::V6) => GSO_TCPV6,
        };
        VirtioNetHdr {
            gso_type,
            hdr_len: group.header_len,
            gso_size: group.segment_payload,
            ..open
        }
    }

    /// Returns the rewritten packet headers; empty for a single packet, whose only piece is all of
    /// it.
    pub fn header(&self) -> &'c [u8] {
        let len = if self.coalesced() {
            usize::from(self.group.header_len)
        } else {
            0
        };
        &self.group.header[..len]
    }

    /// Returns what follows the header, in order; at most [`MAX_SEGMENTS`] pieces.
    pub fn pieces(&self) -> impl Iterator<Item = Piece> + use<'c> {
        let (segments, start) = (self.segments, self.header().len());
        let first = segments.get(usize::from(self.group.first));
        core::iter::successors(first, |segment| segments.get(usize::from(segment.next))).map(move |segment| Piece {
            packet: segment.packet,
            range: start..segment.len as usize,
        })
    }
}
