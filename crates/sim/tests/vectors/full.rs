//! The examples of fast.md, "Content of kind 3": packets of subnets behind both nodes.

use weft_contract::{Command, TableCommand};
use weft_wire::checksum::{checksum_fold, pseudo_header_sum_v4};
use weft_wire::virtio::{NEEDS_CSUM, VirtioNetHdr};
use weft_wire::{NodeAddr, Subnet};

use crate::book::Book;
use crate::fast::{B_FAST, Schedule};
use crate::node::Node;
use crate::reader::fast::{self as reader, Frame};

/// Behind A and behind B.
const SUBNETS: [[&str; 2]; 2] = [["10.1.0.0/16", "2001:db8:1::/48"], ["10.2.0.0/16", "2001:db8:2::/48"]];

/// From A to B, in A's second phase.
pub fn full(book: &mut Book, a: &mut Node, b: &mut Node, keys: &Schedule) {
    let (a_addr, b_addr) = (a.node_addr(), b.node_addr());
    let [of_a, of_b] = SUBNETS.map(|texts| texts.map(|text| text.parse::<Subnet>().unwrap()));
    let command = |ours: [Subnet; 2], theirs: [Subnet; 2], peer: NodeAddr| {
        Command::Table(TableCommand::SetSubnets {
            ours: ours.to_vec(),
            theirs: theirs.map(|subnet| (subnet, peer)).to_vec(),
        })
    };
    a.apply(8_030, command(of_a, of_b, b_addr));
    b.apply(8_030, command(of_b, of_a, a_addr));

    book.section(
        "fast full packet",
        &[
            "A UDP datagram \"over IPv4\" from 10.1.0.1 to 10.2.0.1, which lie behind A and B: counter 7 at 1,031 ms, in A's",
            "second phase.",
        ],
    );
    let ip = ipv4(b"over IPv4");
    pass(book, a, b, keys, VirtioNetHdr::default(), (&ip, &ip), 7);

    book.section(
        "fast full packet without checksum",
        &[
            "The same as A's kernel hands it over before it has summed. Counter 8 at 1,032 ms. B hands it on with the sum of the",
            "pseudo-header in place again.",
        ],
    );
    let begun = begun(&ip);
    let mut left_out = begun.clone();
    left_out[26..28].fill(0);
    let hdr = VirtioNetHdr {
        flags: NEEDS_CSUM,
        csum_start: 20,
        csum_offset: 6,
        ..VirtioNetHdr::default()
    };
    pass(book, a, b, keys, hdr, (&begun, &left_out), 8);

    book.section(
        "fast full packet of IPv6",
        &["From 2001:db8:1::1 to B itself: counter 9 at 1,033 ms."],
    );
    let mut ip = crate::udp_packet(a, b, b"over IPv6");
    let foreign: std::net::Ipv6Addr = "2001:db8:1::1".parse().unwrap();
    ip[8..24].copy_from_slice(&foreign.octets());
    let sum = weft_wire::checksum::pseudo_header_sum_v6(foreign, b_addr.to_ipv6(), 17, ip.len() as u32 - 40);
    ip[46..48].fill(0);
    let sum = weft_wire::checksum::checksum_finish(weft_wire::checksum::checksum_add(sum, &ip[40..]));
    ip[46..48].copy_from_slice(&sum.to_be_bytes());
    pass(book, a, b, keys, VirtioNetHdr::default(), (&ip, &ip), 9);
}

/// A reads `ip` from its kernel, and B delivers the same packet from a frame with `content`.
fn pass(
    book: &mut Book,
    a: &mut Node,
    b: &mut Node,
    keys: &Schedule,
    hdr: VirtioNetHdr,
    (ip, content): (&[u8], &[u8]),
    counter: u64,
) {
    book.bytes("ip", ip);
    let clock = 1_024 + counter as u32;
    let frame = Frame {
        keys: &keys.from_a[1],
        kind: reader::FULL,
        flags: if hdr.needs_csum() { 3 } else { 1 },
        receiver_index: B_FAST,
        counter,
        clock,
        content,
    };
    let frame = frame.seal(book);
    assert_eq!(frame.len(), ip.len() + weft_wire::fast::FULL_OVERHEAD);
    assert_eq!(a.outbound(7_000 + u64::from(clock), hdr, ip), frame);
    let mut room = [&[0; weft_packet::HEADROOM][..], &frame].concat();
    let inbound = b.lane.inbound(8_040 + counter, a.addr, &mut room, &mut b.train);
    let weft_packet::Inbound::Packet(range, _) = inbound else {
        unreachable!("the frame does not open");
    };
    assert_eq!(room[range], *ip);
    assert_eq!(b.lane.poll_report().map(|report| format!("{report:?}")), None);
}

fn ipv4(payload: &[u8]) -> Vec<u8> {
    let length = 28 + payload.len() as u8;
    let mut ip = vec![
        0x45, 0, 0, length, 0x12, 0x34, 0x40, 0, 64, 17, 0, 0, 10, 1, 0, 1, 10, 2, 0, 1,
    ];
    let sum = !reader_sum(&ip);
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    ip.extend([0x9c, 0x40, 0, 7, 0, length - 20, 0, 0]);
    ip.extend(payload);
    let pseudo = [&ip[12..20], &[0, 17, 0, length - 20], &ip[20..]].concat();
    let sum = !reader_sum(&pseudo);
    ip[26..28].copy_from_slice(&sum.to_be_bytes());
    ip
}

/// RFC 1071, word by word.
fn reader_sum(bytes: &[u8]) -> u16 {
    let words = bytes
        .chunks(2)
        .map(|word| u32::from(word[0]) << 8 | word.get(1).map_or(0, |low| u32::from(*low)));
    let sum: u32 = words.sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    ((sum & 0xffff) + (sum >> 16)) as u16
}

/// The packet with a partial checksum: the sum of its pseudo-header.
fn begun(ip: &[u8]) -> Vec<u8> {
    let sum = pseudo_header_sum_v4([10, 1, 0, 1].into(), [10, 2, 0, 1].into(), 17, ip.len() as u32 - 20);
    let mut begun = ip.to_vec();
    begun[26..28].copy_from_slice(&checksum_fold(sum).to_be_bytes());
    begun
}
