//! Names: messages against an independent implementation, the sockets, and calls of `resolvectl`.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panic")]

mod messages;
mod sockets;
mod system;

use std::net::{Ipv4Addr, Ipv6Addr};

use simple_dns::{CLASS, Name, OPCODE, Packet, PacketFlag, QTYPE, Question, TYPE, rdata::OPT};
use weft_host::dns::Zone;
use weft_host::dns::zone::MemberAddresses;
use weft_noise::{PublicKey, SecretKey};

fn key(byte: u8) -> PublicKey {
    SecretKey::from_bytes(&[byte; 32]).unwrap().public()
}

fn address(byte: u8) -> Ipv6Addr {
    key(byte).node_addr().to_ipv6()
}

/// `bob` is key 1, `x-2` is key 2. The network `home` has a member with an IPv4 address, and two
/// without, one of which is `x-2` under another name. Its guest `phone` has no IPv6 address.
fn zone() -> Zone {
    let mut zone = Zone::new([(&"Bob".parse().unwrap(), key(1)), (&"x-2".parse().unwrap(), key(2))]);
    let member = |byte, ipv4| MemberAddresses {
        ipv6: Some(address(byte)),
        ipv4,
    };
    let guest = MemberAddresses {
        ipv6: None,
        ipv4: Some(PHONE),
    };
    zone.add_member("home", "nas", member(3, Some(NAS)));
    zone.add_member("home", "six", member(4, None));
    zone.add_member("home", "y", member(2, None));
    zone.add_member("home", "phone", guest);
    zone.add_network("empty");
    zone
}

/// The IPv4 address of `nas`.
const NAS: Ipv4Addr = Ipv4Addr::new(10, 44, 3, 3);

/// The IPv4 address of `phone`.
const PHONE: Ipv4Addr = Ipv4Addr::new(10, 44, 3, 8);

/// A query in the form of a resolver.
fn query(name: &str, qtype: TYPE) -> Packet<'static> {
    let mut packet = Packet::new_query(0x1234);
    packet.set_flags(PacketFlag::RECURSION_DESIRED);
    let name = Name::new_unchecked(name).into_owned();
    packet
        .questions
        .push(Question::new(name, QTYPE::TYPE(qtype), CLASS::IN.into(), false));
    packet
}

/// Adds EDNS of version 0, the only version that this library encodes correctly.
fn with_edns(mut packet: Packet<'static>) -> Packet<'static> {
    *packet.opt_mut() = Some(OPT {
        opt_codes: Vec::new(),
        udp_packet_size: 4096,
        version: 0,
    });
    packet
}

fn of_opcode(mut packet: Packet<'static>, opcode: OPCODE) -> Packet<'static> {
    *packet.opcode_mut() = opcode;
    packet
}
