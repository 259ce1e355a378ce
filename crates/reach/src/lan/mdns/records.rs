//! Datagrams of mDNS: those that are read, down to what LAN discovery needs, and those that are sent.
//!
//! Names are text: lower case, the labels with dots between them, without one at the end.

use std::net::{IpAddr, SocketAddr};

use simple_dns::rdata::{PTR, RData, SRV, TXT};
use simple_dns::{CLASS, Name, Packet, PacketFlag, QTYPE, Question, ResourceRecord, TYPE};

use super::{Link, Service};
use crate::lan::MAX_ENTRIES;

/// The largest datagram that is read, in bytes: more than a packet of Ethernet has, and less than RFC 6762 allows
/// (section 17), since a long chain of compressed names costs the square of it.
pub const MAX_DATAGRAM: usize = 2_048;
/// The largest datagram that is made, in bytes: one packet of each link.
const MAX_SENT: usize = 1_200;
/// The header of a DNS message, in bytes (RFC 1035, section 4.1.1).
const HEADER: usize = 12;
/// The least bytes of a question: an empty name, type and class.
const LEAST_QUESTION: usize = 5;
/// The least bytes of a record: an empty name, type, class, TTL and length.
const LEAST_RECORD: usize = 11;
/// Bytes of a TXT record that are kept, at most. Longer records are ignored.
const MAX_TEXT: usize = 1_300;
/// TTL of records that name the host, in seconds (RFC 6762, section 10).
const HOST_TTL: u32 = 120;
/// TTL of other records, in seconds (RFC 6762, section 10).
const OTHER_TTL: u32 = 4_500;

/// What a datagram says.
pub(super) enum Message {
    /// It asks.
    Query {
        /// The names and types that are asked for.
        questions: Vec<(String, QTYPE)>,
        /// The pointers that the asking host knows: name, target, and TTL in seconds.
        known: Vec<(String, String, u32)>,
    },
    /// It answers or announces.
    Response(Vec<Record>),
}

/// A record of a response.
pub(super) struct Record {
    /// Its name.
    pub(super) name: String,
    /// Its lifetime, in seconds. 0: it is withdrawn.
    pub(super) ttl: u32,
    /// Whether it replaces those of the same name and type (RFC 6762, section 10.2).
    pub(super) replaces: bool,
    /// What it says.
    pub(super) data: Data,
}

/// The types of records that LAN discovery needs.
pub(super) enum Data {
    /// A service has this instance.
    Pointer(String),
    /// An instance has this port, at this host.
    Server { port: u16, host: String },
    /// The entries of an instance.
    Text(Vec<(String, Vec<u8>)>),
    /// A host has this address.
    Address(IpAddr),
}

/// Reads a datagram. `None`: it is none of mDNS, or one that nothing is to be learnt from.
pub(super) fn read(datagram: &[u8]) -> Option<Message> {
    if datagram.len() > MAX_DATAGRAM || !holds_its_counts(datagram) {
        return None;
    }
    let packet = Packet::parse(datagram).ok()?;
    if !packet.has_flags(PacketFlag::RESPONSE) {
        let questions = packet.questions.iter();
        let questions = questions.filter_map(|question| Some((text(&question.qname)?, question.qtype)));
        let known = packet.answers.iter().filter_map(record);
        return Some(Message::Query {
            questions: questions.collect(),
            known: known.filter_map(pointer).collect(),
        });
    }
    let all = packet.answers.iter().chain(&packet.additional_records);
    Some(Message::Response(all.filter_map(record).collect()))
}

/// Returns true if a datagram may have as many questions and records as its header says: the parser makes room for
/// so many before it reads the first one.
fn holds_its_counts(datagram: &[u8]) -> bool {
    let Some((header, rest)) = datagram.split_at_checked(HEADER) else {
        return false;
    };
    let count = |at: usize| usize::from(u16::from_be_bytes([header[at], header[at + 1]]));
    let records = count(6) + count(8) + count(10);
    count(4) * LEAST_QUESTION + records * LEAST_RECORD <= rest.len()
}

fn pointer(record: Record) -> Option<(String, String, u32)> {
    match record.data {
        Data::Pointer(target) => Some((record.name, target, record.ttl)),
        _ => None,
    }
}

fn record(record: &ResourceRecord<'_>) -> Option<Record> {
    let data = match &record.rdata {
        RData::PTR(PTR(target)) => Data::Pointer(text(target)?),
        RData::SRV(server) => Data::Server {
            port: server.port,
            host: text(&server.target)?,
        },
        RData::TXT(entries) => Data::Text(read_entries(entries)?),
        RData::A(a) => Data::Address(IpAddr::V4(a.address.into())),
        RData::AAAA(aaaa) => Data::Address(IpAddr::V6(aaaa.address.into())),
        _ => return None,
    };
    let (ttl, replaces) = (record.ttl, record.cache_flush);
    text(&record.name).map(|name| Record {
        name,
        ttl,
        replaces,
        data,
    })
}

fn read_entries(entries: &TXT<'_>) -> Option<Vec<(String, Vec<u8>)>> {
    // One more than the reader of the entries accepts, so that it sees that they are too many.
    let read = entries.iter_raw().take(MAX_ENTRIES + 1).map(|(key, value)| {
        let key = String::from_utf8(key.to_vec()).unwrap_or_default();
        (key, value.unwrap_or_default().to_vec())
    });
    let read: Vec<_> = read.collect();
    let size: usize = read.iter().map(|(key, value)| key.len() + value.len()).sum();
    (size <= MAX_TEXT).then_some(read)
}

/// Returns a name as text. `None`: it has other bytes than names of the services and of their hosts have.
fn text(name: &Name<'_>) -> Option<String> {
    let usual = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    let mut text = String::new();
    for label in name.as_bytes() {
        if !label.iter().all(usual) {
            return None;
        }
        if !text.is_empty() {
            text.push('.');
        }
        text.extend(label.iter().map(|byte| char::from(byte.to_ascii_lowercase())));
    }
    Some(text)
}

/// Makes a query for these names, with the instances that are known: service, full name, and seconds that are left.
/// Those that find no place are left out, and answer again.
pub(super) fn query(questions: &[(String, TYPE)], known: &[(&str, &str, u32)]) -> Vec<u8> {
    let mut packet = Packet::new_query(0);
    let asked = questions.iter();
    packet.questions = asked
        .map(|(name, kind)| Question::new(Name::new_unchecked(name), (*kind).into(), CLASS::IN.into(), false))
        .collect();
    let mut size = HEADER + questions.iter().map(|(name, _)| name.len() + 6).sum::<usize>();
    for (service, name, left) in known {
        size += name.len() + LEAST_RECORD + 3;
        if size > MAX_SENT {
            break;
        }
        packet
            .answers
            .push(of(service, *left, RData::PTR(PTR(Name::new_unchecked(name)))));
    }
    packet.build_bytes_vec_compressed().unwrap_or_default()
}

/// Makes a response with all records of a service on a link; `None` if it has no address there. `gone`: it is
/// withdrawn.
pub(super) fn response(service: &Service, host: &str, link: &Link, gone: bool) -> Option<Vec<u8>> {
    let addresses: Vec<IpAddr> = service.addresses(link).collect();
    if addresses.is_empty() {
        return None;
    }
    let (name, host) = (service.full_name(), format!("{host}.local"));
    let [host_ttl, other_ttl] = [HOST_TTL, OTHER_TTL].map(|ttl| if gone { 0 } else { ttl });
    let mut text = TXT::new();
    for (key, value) in &service.entries {
        text.add_attribute(key, Some(value.as_bytes())).ok()?;
    }
    let server = SRV {
        priority: 0,
        weight: 0,
        port: service.port,
        target: Name::new_unchecked(&host),
    };
    let target = RData::PTR(PTR(Name::new_unchecked(&name)));
    let mut packet = Packet::new_reply(0);
    packet.set_flags(PacketFlag::AUTHORITATIVE_ANSWER);
    packet.answers.push(of(service.service, other_ttl, target));
    packet
        .answers
        .push(of(&name, host_ttl, RData::SRV(server)).with_cache_flush(true));
    packet
        .answers
        .push(of(&name, other_ttl, RData::TXT(text)).with_cache_flush(true));
    let addresses = addresses.into_iter().map(|ip| match ip {
        IpAddr::V4(ip) => RData::A(ip.into()),
        IpAddr::V6(ip) => RData::AAAA(ip.into()),
    });
    // A host that is gone has no service either; its addresses may be those of another service.
    let addresses = addresses.filter(|_| !gone);
    packet
        .answers
        .extend(addresses.map(|address| of(&host, host_ttl, address).with_cache_flush(true)));
    packet.build_bytes_vec_compressed().ok()
}

fn of<'a>(name: &'a str, ttl: u32, data: RData<'a>) -> ResourceRecord<'a> {
    ResourceRecord::new(Name::new_unchecked(name), CLASS::IN, ttl, data)
}

/// Returns the address at which a service of a port is, link-local addresses with the index of the link.
pub(super) fn socket_address(ip: IpAddr, port: u16, link: u32) -> SocketAddr {
    match ip {
        IpAddr::V6(v6) if v6.is_unicast_link_local() => std::net::SocketAddrV6::new(v6, port, 0, link).into(),
        _ => SocketAddr::new(ip, port),
    }
}
