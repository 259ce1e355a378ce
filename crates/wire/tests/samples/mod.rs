//! Valid messages of every format. Each is emitted and parsed again when it is made.

use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::*;
use weft_wire::filter::{FILTER_LEN, FilterAnnounce};
use weft_wire::fmp::{CommonPrefix, EstablishedHeader, InnerHeader, Msg1, Msg2};
use weft_wire::fsp::{EncryptedHeader, EncryptedMessage, FLAG_COORDS, FspInner, FspPrefix};
use weft_wire::link::{Disconnect, DisconnectReason, Heartbeat, SessionDatagram};
use weft_wire::lookup::{LookupRequest, LookupResponse};
use weft_wire::mmp::{ReceiverReport, ReportFraming, SenderReport};
use weft_wire::session::{CoordsWarmup, DataPorts, PathMtuNotification, SessionAck, SessionMsg3, SessionSetup};
use weft_wire::shim::ShimHeader;
use weft_wire::signal::{CoordsRequired, MtuExceeded, PathBroken, Signal};
use weft_wire::tree::{Ancestry, AncestryEntry, TreeAnnounce};
use weft_wire::virtio::VirtioNetHdr;
use weft_wire::{Coords, CoordsPair, NodeAddr, WireError};

/// Emits, checks that a buffer of one byte less is refused, and parses back to the same message.
macro_rules! sample {
    ($message:expr, $parse:expr) => {{
        let message = $message;
        sample!(message, $parse, |out: &mut [u8]| message.emit(out))
    }};
    ($message:ident, $parse:expr, $emit:expr) => {{
        let mut bytes = vec![0xaa; 4096];
        let len = $emit(&mut bytes).unwrap();
        bytes.truncate(len);
        let mut exact = vec![0x55; len];
        assert_eq!($emit(&mut exact), Ok(len));
        assert_eq!(exact, bytes);
        if let Some(got) = len.checked_sub(1) {
            let error = WireError::BufferTooSmall { needed: len, got };
            assert_eq!($emit(&mut exact[..got]), Err(error));
        }
        assert_eq!($parse(&bytes).unwrap(), $message);
        bytes
    }};
}

fn addr() -> impl Strategy<Value = NodeAddr> + Clone {
    any::<[u8; 16]>().prop_map(NodeAddr::new)
}

fn path(min: usize) -> impl Strategy<Value = Vec<NodeAddr>> + Clone {
    vec(addr(), min..6)
}

pub(crate) fn bytes(max: usize) -> impl Strategy<Value = Vec<u8>> + Clone {
    vec(any::<u8>(), 0..max)
}

fn noise<const N: usize>() -> impl Strategy<Value = [u8; N]> + Clone {
    vec(any::<u8>(), N).prop_map(|bytes| bytes.try_into().unwrap())
}

fn fmp() -> Vec<(&'static str, BoxedStrategy<Vec<u8>>)> {
    let prefix = (0..16u8, 0..16u8, any::<u8>(), any::<u16>());
    let prefix = prefix.prop_map(|(version, phase, flags, payload_len)| {
        sample!(
            CommonPrefix {
                version,
                phase,
                flags,
                payload_len
            },
            CommonPrefix::parse
        )
    });
    let frame = (any::<u8>(), any::<u32>(), any::<u64>(), bytes(40));
    let frame = frame.prop_map(|(flags, receiver_idx, counter, sealed)| {
        let payload_len = sealed.len() as u16;
        let header = EstablishedHeader {
            flags,
            payload_len,
            receiver_idx,
            counter,
        };
        let mut frame = header.to_bytes().to_vec();
        frame.extend_from_slice(&sealed);
        frame.extend_from_slice(&[0; 16]);
        assert_eq!(EstablishedHeader::parse(&frame), Ok(header));
        assert_eq!(CommonPrefix::parse(&frame).unwrap().frame_len(), Ok(frame.len()));
        frame
    });
    let inner = (any::<u32>(), any::<u8>()).prop_map(|(timestamp, msg_type)| {
        sample!(InnerHeader { timestamp, msg_type }, |b| InnerHeader::parse(b)
            .map(|p| p.0))
    });
    let msg1 = (any::<u32>(), noise()).prop_map(|(sender_idx, noise)| {
        let bytes = sample!(
            Msg1 {
                sender_idx,
                noise: &noise
            },
            Msg1::parse
        );
        assert_eq!(CommonPrefix::parse(&bytes).unwrap().frame_len(), Ok(114));
        bytes
    });
    let msg2 = (any::<u32>(), any::<u32>(), noise()).prop_map(|(sender_idx, receiver_idx, noise)| {
        let bytes = sample!(
            Msg2 {
                sender_idx,
                receiver_idx,
                noise: &noise
            },
            Msg2::parse
        );
        assert_eq!(CommonPrefix::parse(&bytes).unwrap().frame_len(), Ok(69));
        bytes
    });
    vec![
        ("common-prefix", prefix.boxed()),
        ("established-header", frame.boxed()),
        ("inner-header", inner.boxed()),
        ("msg1", msg1.boxed()),
        ("msg2", msg2.boxed()),
    ]
}

fn link() -> Vec<(&'static str, BoxedStrategy<Vec<u8>>)> {
    let datagram = (any::<u8>(), any::<u16>(), addr(), addr(), bytes(60));
    let datagram = datagram.prop_map(|(ttl, path_mtu, src, dest, payload)| {
        let message = SessionDatagram {
            ttl,
            path_mtu,
            src,
            dest,
            payload: &payload,
        };
        let mut bytes = sample!(message, SessionDatagram::parse);
        SessionDatagram::rewrite_hop(&mut bytes, !ttl, !path_mtu).unwrap();
        let hop = SessionDatagram {
            ttl: !ttl,
            path_mtu: !path_mtu,
            ..message
        };
        assert_eq!(SessionDatagram::parse(&bytes), Ok(hop));
        bytes
    });
    let disconnect = any::<u8>().prop_map(|code| {
        let reason = DisconnectReason::from_byte(code);
        sample!(Disconnect { reason }, Disconnect::parse)
    });
    let sender = any::<([u64; 4], [u32; 3])>().prop_map(|([a, b, c, d], [e, f, g])| SenderReport {
        interval_start_counter: a,
        interval_end_counter: b,
        interval_start_timestamp: e,
        interval_end_timestamp: f,
        interval_bytes_sent: g,
        cumulative_packets_sent: c,
        cumulative_bytes_sent: d,
    });
    let receiver = any::<([u64; 3], [u32; 7], [u16; 3], i32)>();
    let receiver = receiver.prop_map(|([a, b, c], [d, e, f, g, h, i, j], [k, l, m], n)| ReceiverReport {
        highest_counter: a,
        cumulative_packets_recv: b,
        cumulative_bytes_recv: c,
        timestamp_echo: d,
        dwell_time: k,
        max_burst_loss: l,
        mean_burst_loss: m,
        jitter: e,
        ecn_ce_count: f,
        owd_trend: n,
        burst_loss_count: g,
        cumulative_reorder_count: h,
        interval_packets_recv: i,
        interval_bytes_recv: j,
    });
    macro_rules! report {
        ($strategy:expr, $type:ident, $framing:ident) => {
            $strategy
                .clone()
                .prop_map(|report| {
                    let framing = ReportFraming::$framing;
                    let bytes = sample!(report, |b| $type::parse(b, framing), |out: &mut [u8]| {
                        report.emit(out, framing)
                    });
                    assert_eq!(bytes.len(), $type::wire_len(framing));
                    bytes
                })
                .boxed()
        };
    }
    vec![
        ("session-datagram", datagram.boxed()),
        ("disconnect", disconnect.boxed()),
        (
            "heartbeat",
            Just(()).prop_map(|()| sample!(Heartbeat, Heartbeat::parse)).boxed(),
        ),
        ("link-sender-report", report!(sender, SenderReport, Link)),
        ("session-sender-report", report!(sender, SenderReport, Session)),
        ("link-receiver-report", report!(receiver, ReceiverReport, Link)),
        ("session-receiver-report", report!(receiver, ReceiverReport, Session)),
    ]
}

fn gossip() -> Vec<(&'static str, BoxedStrategy<Vec<u8>>)> {
    let entry = (addr(), any::<u64>(), any::<u64>()).prop_map(|(addr, sequence, timestamp)| AncestryEntry {
        addr,
        sequence,
        timestamp,
    });
    let announce = (any::<u64>(), any::<u64>(), addr(), vec(entry.clone(), 1..5), noise());
    let announce = announce.prop_map(|(sequence, timestamp, parent, entries, signature)| {
        let ancestry = Ancestry::new(&entries);
        let signature = &signature;
        let message = TreeAnnounce {
            sequence,
            timestamp,
            parent,
            ancestry,
            signature,
        };
        let bytes = sample!(message, TreeAnnounce::parse);
        assert_eq!(bytes.len(), message.wire_len());
        assert_eq!(
            TreeAnnounce::parse(&bytes).unwrap().signed_bytes(),
            message.signed_bytes()
        );
        bytes
    });
    let filter = (any::<u64>(), 1..=u8::MAX, noise::<FILTER_LEN>());
    let filter = filter.prop_map(|(sequence, hash_count, bits)| {
        sample!(
            FilterAnnounce {
                sequence,
                hash_count,
                bits: &bits
            },
            FilterAnnounce::parse
        )
    });
    let request = (any::<u64>(), addr(), addr(), any::<u8>(), any::<u16>(), path(1));
    let request = request.prop_map(|(request_id, target, origin, ttl, min_mtu, coords)| {
        let origin_coords = Coords::new(&coords);
        let message = LookupRequest {
            request_id,
            target,
            origin,
            ttl,
            min_mtu,
            origin_coords,
        };
        let bytes = sample!(message, LookupRequest::parse);
        assert_eq!(bytes.len(), message.wire_len());
        bytes
    });
    let response = (any::<u64>(), addr(), any::<u16>(), path(1), noise());
    let response = response.prop_map(|(request_id, target, path_mtu, coords, proof)| {
        let target_coords = Coords::new(&coords);
        let proof = &proof;
        let message = LookupResponse {
            request_id,
            target,
            path_mtu,
            target_coords,
            proof,
        };
        let bytes = sample!(message, LookupResponse::parse);
        assert_eq!(bytes.len(), message.wire_len());
        let mut signed = vec![0; message.proof_message_len()];
        assert_eq!(message.emit_proof_message(&mut signed), Ok(signed.len()));
        assert_eq!(signed, [&bytes[..24], &bytes[26..bytes.len() - 64]].concat());
        bytes
    });
    let coords = path(0).prop_map(|path| {
        let coords = Coords::new(&path);
        assert_eq!(coords.iter().collect::<Vec<_>>(), path);
        sample!(coords, |b| Coords::parse(b).map(|p| p.0))
    });
    let pair = (path(0), path(0)).prop_map(|(src, dest)| {
        let pair = CoordsPair {
            src: Coords::new(&src),
            dest: Coords::new(&dest),
        };
        sample!(pair, |b| CoordsPair::parse(b).map(|p| p.0))
    });
    vec![
        (
            "ancestry-entry",
            entry.prop_map(|entry| sample!(entry, AncestryEntry::parse)).boxed(),
        ),
        ("tree-announce", announce.boxed()),
        ("filter-announce", filter.boxed()),
        ("lookup-request", request.boxed()),
        ("lookup-response", response.boxed()),
        ("coords", coords.boxed()),
        ("coords-pair", pair.boxed()),
    ]
}

fn fsp() -> Vec<(&'static str, BoxedStrategy<Vec<u8>>)> {
    let prefix = (0..16u8, 0..16u8, any::<u8>(), any::<u16>());
    let prefix = prefix.prop_map(|(version, phase, flags, payload_len)| {
        sample!(
            FspPrefix {
                version,
                phase,
                flags,
                payload_len
            },
            FspPrefix::parse
        )
    });
    let header = (any::<u8>(), any::<u16>(), any::<u64>());
    let header = header.prop_map(|(flags, payload_len, counter)| EncryptedHeader {
        flags: flags & !0x04,
        payload_len,
        counter,
    });
    let message = (header.clone(), path(0), path(0), vec(any::<u8>(), 16..60));
    let message = message.prop_map(|(header, src, dest, ciphertext)| {
        let pair = CoordsPair {
            src: Coords::new(&src),
            dest: Coords::new(&dest),
        };
        let coords = (header.flags & FLAG_COORDS != 0).then_some(pair);
        let message = EncryptedMessage {
            header,
            coords,
            ciphertext: &ciphertext,
        };
        let bytes = sample!(message, EncryptedMessage::parse);
        assert_eq!(bytes.len(), message.wire_len());
        bytes
    });
    let header = header.prop_map(|header| {
        let message = [&header.to_bytes()[..], &[0; 16]].concat();
        assert_eq!(EncryptedHeader::parse(&message), Ok(header));
        message
    });
    let inner = (any::<u32>(), any::<u8>(), any::<u8>());
    let inner = inner.prop_map(|(timestamp, msg_type, inner_flags)| {
        let inner = FspInner {
            timestamp,
            msg_type,
            inner_flags,
        };
        sample!(inner, |b| FspInner::parse(b).map(|p| p.0))
    });
    let shake = (any::<u8>(), path(1), path(1), bytes(80));
    let setup = shake.clone().prop_map(|(flags, src, dest, noise)| {
        let (src, dest) = (Coords::new(&src), Coords::new(&dest));
        let message = SessionSetup {
            flags,
            src,
            dest,
            noise: &noise,
        };
        let bytes = sample!(message, SessionSetup::parse);
        assert_eq!(bytes.len(), message.wire_len());
        bytes
    });
    let ack = shake.prop_map(|(flags, src, dest, noise)| {
        let (src, dest) = (Coords::new(&src), Coords::new(&dest));
        let message = SessionAck {
            flags,
            src,
            dest,
            noise: &noise,
        };
        let bytes = sample!(message, SessionAck::parse);
        assert_eq!(bytes.len(), message.wire_len());
        bytes
    });
    let msg3 = (any::<u8>(), bytes(80)).prop_map(|(flags, noise)| {
        let message = SessionMsg3 { flags, noise: &noise };
        let bytes = sample!(message, SessionMsg3::parse);
        assert_eq!(bytes.len(), message.wire_len());
        bytes
    });
    vec![
        ("fsp-prefix", prefix.boxed()),
        ("encrypted-header", header.boxed()),
        ("encrypted-message", message.boxed()),
        ("fsp-inner", inner.boxed()),
        ("session-setup", setup.boxed()),
        ("session-ack", ack.boxed()),
        ("session-msg3", msg3.boxed()),
    ]
}

fn bodies() -> Vec<(&'static str, BoxedStrategy<Vec<u8>>)> {
    let ports = any::<(u16, u16)>()
        .prop_map(|(src, dst)| sample!(DataPorts { src, dst }, |b| DataPorts::parse(b).map(|p| p.0)));
    let mtu = any::<u16>().prop_map(|path_mtu| sample!(PathMtuNotification { path_mtu }, PathMtuNotification::parse));
    let required =
        (addr(), addr()).prop_map(|(dest, reporter)| sample!(CoordsRequired { dest, reporter }, CoordsRequired::parse));
    let broken = (addr(), addr(), path(0)).prop_map(|(dest, reporter, path)| {
        let message = PathBroken {
            dest,
            reporter,
            last_coords: Coords::new(&path),
        };
        let bytes = sample!(message, PathBroken::parse);
        assert_eq!(bytes.len(), message.wire_len());
        bytes
    });
    let exceeded = (addr(), addr(), any::<u16>())
        .prop_map(|(dest, reporter, mtu)| sample!(MtuExceeded { dest, reporter, mtu }, MtuExceeded::parse));
    let signal = prop_oneof![required.clone(), broken.clone(), exceeded.clone()];
    let signal = signal.prop_map(|bytes| sample!(Signal::parse(&bytes).unwrap(), Signal::parse));
    let shim = (any::<u8>(), 0..1u32 << 20, any::<u8>(), any::<u8>());
    let shim = shim.prop_map(|(traffic_class, flow_label, next_header, hop_limit)| {
        let header = ShimHeader {
            traffic_class,
            flow_label,
            next_header,
            hop_limit,
        };
        sample!(header, |b| ShimHeader::parse(b).map(|p| p.0))
    });
    let virtio = any::<([u8; 2], [u16; 4])>().prop_map(|([flags, gso_type], [a, b, c, d])| {
        let [hdr_len, gso_size, csum_start, csum_offset] = [a, b, c, d];
        let header = VirtioNetHdr {
            flags,
            gso_type,
            hdr_len,
            gso_size,
            csum_start,
            csum_offset,
        };
        sample!(header, |b| VirtioNetHdr::parse(b).map(|p| p.0))
    });
    vec![
        ("data-ports", ports.boxed()),
        ("path-mtu-notification", mtu.boxed()),
        (
            "coords-warmup",
            Just(())
                .prop_map(|()| sample!(CoordsWarmup, CoordsWarmup::parse))
                .boxed(),
        ),
        ("coords-required", required.boxed()),
        ("path-broken", broken.boxed()),
        ("mtu-exceeded", exceeded.boxed()),
        ("signal", signal.boxed()),
        ("shim", shim.boxed()),
        ("virtio", virtio.boxed()),
    ]
}

/// For each format a strategy for the bytes of valid messages.
pub(crate) fn samples() -> BTreeMap<&'static str, BoxedStrategy<Vec<u8>>> {
    [fmp(), link(), gossip(), fsp(), bodies()]
        .into_iter()
        .flatten()
        .collect()
}
