//! Super-frames: many segments of a TCP stream, or datagrams of a UDP train, under one set of
//! headers, as a kernel hands them to a network card that splits them itself. On a wire there are
//! only segments; this module computes each of them.
//!
//! The first [`VNET_HEADER_LEN`] bytes are the virtio header (virtio 1.2, section 5.1.6.1, in the
//! byte order of the machine, offsets from the Ethernet header on). It comes from the kernel; a
//! frame that contradicts it is treated as a plain frame.

use std::ops::Range;

use weft_os::tap::ETHERNET_HEADER_LEN;
use weft_os::tun::VNET_HEADER_LEN;

use crate::nat::packet::checksum;

/// Offset of the IP header.
const IP: usize = VNET_HEADER_LEN + ETHERNET_HEADER_LEN;
const NEEDS_CSUM: u8 = 1;
const GSO_TCPV4: u8 = 1;
const GSO_TCPV6: u8 = 4;
const GSO_UDP_L4: u8 = 5;
const TCP: u8 = 6;
const UDP: u8 = 17;
const FIN: u8 = 0x01;
const PSH: u8 = 0x08;
const CWR: u8 = 0x80;

/// The segments of a super-frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Segments {
    count: usize,
    /// Bytes before the payload, including the virtio header.
    headers: usize,
    /// Payload of each segment but the last.
    each: usize,
    len: usize,
    /// TCP or UDP, and the offset of its header; `None` for a frame that is one segment.
    transport: Option<(u8, usize)>,
}

impl Segments {
    /// The segments of `frame`.
    pub(super) fn of(frame: &[u8]) -> Self {
        Self::of_train(frame).unwrap_or(Self {
            count: 1,
            headers: frame.len(),
            each: 0,
            len: frame.len(),
            transport: None,
        })
    }

    fn of_train(frame: &[u8]) -> Option<Self> {
        let protocol = match frame.get(1)? & 0x7f {
            GSO_TCPV4 | GSO_TCPV6 => TCP,
            GSO_UDP_L4 => UDP,
            _ => return None,
        };
        let (each, start) = (native(frame, 4)?, native(frame, 6)?);
        let transport = VNET_HEADER_LEN + start;
        let header_len = match protocol {
            TCP => usize::from(frame.get(transport + 12)? >> 4) * 4,
            _ => 8,
        };
        let headers = transport + header_len;
        let payload = frame.len().checked_sub(headers).filter(|payload| *payload > 0)?;
        let known = matches!(frame.get(IP)? >> 4, 4 | 6) && transport >= IP + 20 && each > 0;
        known.then(|| Self {
            count: payload.div_ceil(each),
            headers,
            each,
            len: frame.len(),
            transport: Some((protocol, transport)),
        })
    }

    /// Their number.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Bytes of a segment on the wire: its Ethernet frame without checksum.
    pub(super) fn wire_len(&self, index: usize) -> usize {
        self.headers - VNET_HEADER_LEN + self.payload(&(index..index + 1)).len()
    }

    fn payload(&self, of: &Range<usize>) -> Range<usize> {
        let at = |index: usize| (self.headers + index * self.each).min(self.len);
        at(of.start)..at(of.end)
    }

    /// Writes the frame of some consecutive segments of `frame` to `out`: a super-frame, or, for
    /// one segment, a plain frame whose checksum is still to be completed.
    pub(super) fn cut(&self, frame: &[u8], of: Range<usize>, out: &mut Vec<u8>) {
        out.clear();
        out.extend_from_slice(frame.get(..self.headers).unwrap_or_default());
        out.extend_from_slice(frame.get(self.payload(&of)).unwrap_or_default());
        if of == (0..self.count) {
            return;
        }
        if of.len() == 1 {
            // It is no longer a super-frame: kind and size are cleared.
            for at in [1, 4, 5] {
                set(out, at, &[0]);
            }
        }
        self.mend(of, out);
    }

    /// Sets the headers to the segments' values: lengths, sequence numbers, flags, checksums.
    fn mend(&self, of: Range<usize>, out: &mut [u8]) -> Option<()> {
        let (protocol, transport) = self.transport?;
        let ip_len = u16::try_from(out.len() - IP).ok()?;
        let len = u16::try_from(out.len() - transport).ok()?;
        let is_v4 = out.get(IP)? >> 4 == 4;
        if is_v4 {
            let header_len = usize::from(out.get(IP)? & 0x0f) * 4;
            let id = word(out, IP + 4)?.wrapping_add(of.start as u16);
            set(out, IP + 2, &ip_len.to_be_bytes());
            set(out, IP + 4, &id.to_be_bytes());
            set(out, IP + 10, &[0, 0]);
            let sum = checksum(out.get(IP..IP + header_len)?);
            set(out, IP + 10, &sum.to_be_bytes());
        } else {
            set(out, IP + 4, &(ip_len - 40).to_be_bytes());
        }
        let sum_at = if protocol == TCP {
            let skipped = (of.start * self.each) as u32;
            let number = u32::from_be_bytes(*out.get(transport + 4..)?.first_chunk()?);
            set(out, transport + 4, &number.wrapping_add(skipped).to_be_bytes());
            let flags = out.get_mut(transport + 13)?;
            if of.start > 0 {
                *flags &= !CWR;
            }
            if of.end < self.count {
                *flags &= !(FIN | PSH);
            }
            transport + 16
        } else {
            set(out, transport + 4, &len.to_be_bytes());
            transport + 6
        };
        // A checksum to be completed starts as the sum over the pseudo-header (RFC 9293, section
        // 3.1; RFC 8200, section 8.1).
        let addresses = if is_v4 { IP + 12..IP + 20 } else { IP + 8..IP + 40 };
        let pseudo = [out.get(addresses)?, &[0, protocol], &len.to_be_bytes()].concat();
        set(out, sum_at, &(!checksum(&pseudo)).to_be_bytes());
        Some(())
    }
}

/// Calls `with` for each segment of `frame` in wire format: without virtio header, with complete
/// checksums.
pub(super) fn on_the_wire(frame: &[u8], mut with: impl FnMut(&[u8])) {
    let segments = Segments::of(frame);
    let mut segment = Vec::new();
    for index in 0..segments.count() {
        segments.cut(frame, index..index + 1, &mut segment);
        complete(&mut segment);
        with(segment.get(VNET_HEADER_LEN..).unwrap_or_default());
    }
}

/// Completes the checksum that the virtio header asks for.
pub(super) fn complete(frame: &mut [u8]) -> Option<()> {
    if frame.first()? & NEEDS_CSUM == 0 {
        return None;
    }
    let (start, offset) = (native(frame, 6)?, native(frame, 8)?);
    let sum = match checksum(frame.get(VNET_HEADER_LEN + start..)?) {
        // Zero means that there is none (RFC 768).
        0 => 0xffff,
        sum => sum,
    };
    set(frame, VNET_HEADER_LEN + start + offset, &sum.to_be_bytes());
    Some(())
}

fn native(frame: &[u8], at: usize) -> Option<usize> {
    Some(u16::from_ne_bytes(*frame.get(at..)?.first_chunk()?).into())
}

fn word(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn set(bytes: &mut [u8], at: usize, value: &[u8]) {
    if let Some(field) = bytes.get_mut(at..at + value.len()) {
        field.copy_from_slice(value);
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A super-frame with this payload: TCP or UDP, over either IP version, with the
    /// pseudo-header's sum as its checksum.
    pub(in crate::emulator) fn super_frame(protocol: u8, v4: bool, each: u16, payload: &[u8]) -> Vec<u8> {
        let ip_header = if v4 { 20 } else { 40 };
        let header = if protocol == TCP { 20 } else { 8 };
        let len = (header + payload.len()) as u16;
        let kind = match (protocol, v4) {
            (TCP, true) => GSO_TCPV4,
            (TCP, false) => GSO_TCPV6,
            _ => GSO_UDP_L4,
        };
        let mut frame = vec![NEEDS_CSUM, kind, 0, 0];
        frame.extend(each.to_ne_bytes());
        frame.extend((14 + ip_header as u16).to_ne_bytes());
        frame.extend(if protocol == TCP { 16_u16 } else { 6 }.to_ne_bytes());
        frame.extend([2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1]);
        if v4 {
            frame.extend([8, 0, 0x45, 0]);
            frame.extend((20 + len).to_be_bytes());
            frame.extend([0xff, 0xfe, 0x40, 0, 64, protocol, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2]);
            let sum = checksum(&frame[IP..]);
            frame[IP + 10..IP + 12].copy_from_slice(&sum.to_be_bytes());
        } else {
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
            frame.extend(len.to_be_bytes());
            frame.extend([protocol, 64]);
            frame.extend((0..32).map(|i| i as u8 / 16 + 1));
        }
        let addresses = frame[if v4 { IP + 12 } else { IP + 8 }..].to_vec();
        let sum = !checksum(&[&addresses[..], &[0, protocol], &len.to_be_bytes()].concat());
        frame.extend([0x80, 0, 1, 187]);
        if protocol == TCP {
            frame.extend(0xffff_ff00_u32.to_be_bytes());
            frame.extend([0, 0, 0, 9, 0x50, FIN | PSH | CWR | 0x10, 1, 0]);
            frame.extend(sum.to_be_bytes());
            frame.extend([0, 0]);
        } else {
            frame.extend(len.to_be_bytes());
            frame.extend(sum.to_be_bytes());
        }
        frame.extend_from_slice(payload);
        frame
    }

    pub(in crate::emulator) const BOTH: [(u8, bool); 4] = [(TCP, true), (TCP, false), (UDP, true), (UDP, false)];

    fn payload(len: usize) -> Vec<u8> {
        (0..len).map(|i| ((i * 7) >> 2) as u8).collect()
    }

    fn wire(frame: &[u8]) -> Vec<Vec<u8>> {
        let mut all = Vec::new();
        on_the_wire(frame, |segment| all.push(segment.to_vec()));
        all
    }

    #[test]
    fn every_segment_is_a_packet_of_its_own() {
        for (protocol, v4) in BOTH {
            let bytes = payload(2500);
            let frame = super_frame(protocol, v4, 1000, &bytes);
            let ip_header = if v4 { 20 } else { 40 };
            let header = if protocol == TCP { 20 } else { 8 };
            let segments = wire(&frame);
            assert_eq!(segments.len(), 3);
            let mut joined = Vec::new();
            for (n, segment) in segments.iter().enumerate() {
                assert_eq!(segment.len(), Segments::of(&frame).wire_len(n));
                let ip = &segment[14..];
                let transport = &ip[ip_header..];
                let len = transport.len() as u16;
                let addresses = if v4 {
                    assert_eq!((word(ip, 2), checksum(&ip[..20])), (Some(len + 20), 0));
                    assert_eq!(word(ip, 4), Some(0xfffe_u16.wrapping_add(n as u16)));
                    &ip[12..20]
                } else {
                    assert_eq!(word(ip, 4), Some(len));
                    &ip[8..40]
                };
                let whole = [addresses, &[0, protocol], &len.to_be_bytes(), transport].concat();
                assert_eq!(checksum(&whole), 0, "{protocol} {v4} {n}");
                if protocol == TCP {
                    let number = u32::from_be_bytes(transport[4..8].try_into().unwrap());
                    assert_eq!(number, 0xffff_ff00_u32.wrapping_add(1000 * n as u32));
                    let flags = [CWR | 0x10, 0x10, FIN | PSH | 0x10][n];
                    assert_eq!(transport[13], flags);
                } else {
                    assert_eq!(word(transport, 4), Some(len));
                }
                joined.extend_from_slice(&transport[header..]);
            }
            assert_eq!(joined, bytes);
        }
    }

    /// Cutting twice equals cutting once.
    #[test]
    fn a_part_of_a_super_frame_has_the_same_segments() {
        for (protocol, v4) in BOTH {
            let frame = super_frame(protocol, v4, 300, &payload(2950));
            let all = wire(&frame);
            let segments = Segments::of(&frame);
            assert_eq!(segments.count(), 10);
            for start in 0..10 {
                for end in start + 1..=10 {
                    let mut part = Vec::new();
                    segments.cut(&frame, start..end, &mut part);
                    assert_eq!(wire(&part), all[start..end], "{protocol} {v4} {start}..{end}");
                }
            }
        }
    }

    #[test]
    fn other_frames_are_one_segment_as_they_are() {
        let mut plain = vec![0; VNET_HEADER_LEN];
        plain.extend(payload(60));
        assert_eq!(wire(&plain), [&plain[VNET_HEADER_LEN..]]);
        let whole = super_frame(TCP, true, 1000, &payload(2500));
        for broken in [
            whole[..60].to_vec(),
            [&[1, 1, 0, 0, 0, 0], &whole[6..]].concat(),
            [&[1, 1, 0, 0, 9, 9, 9, 9], &whole[8..]].concat(),
            [&[1, 3], &whole[2..]].concat(),
        ] {
            assert_eq!(Segments::of(&broken).count(), 1);
        }
        assert_eq!(wire(&[]), [Vec::<u8>::new()]);
    }
}
