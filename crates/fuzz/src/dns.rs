//! The fuzz target of the DNS responder: any request, and the properties of its response.

use std::net::{Ipv4Addr, Ipv6Addr};

use weft_host::dns::Zone;
use weft_host::dns::message::MAX_RESPONSE;
use weft_host::dns::zone::{MemberAddresses, Outcome};
use weft_noise::{PublicKey, SecretKey};

/// The configured name of every run.
const NAME: &str = "bob";

/// The network of every run.
const NETWORK: &str = "home";
/// The IPv4 address of [`NAME`] in it.
const IPV4: Ipv4Addr = Ipv4Addr::new(10, 44, 1, 2);

/// The key of [`NAME`].
fn key() -> PublicKey {
    SecretKey::from_bytes(&[7; 32]).unwrap().public()
}

/// One name, and a network with two members, one without an IPv4 address.
fn zone() -> Zone {
    let mut zone = Zone::new([(&NAME.parse().unwrap(), key())]);
    let ipv6 = Some(key().node_addr().to_ipv6());
    let ipv4 = Some(IPV4);
    zone.add_member(NETWORK, NAME, MemberAddresses { ipv6, ipv4 });
    zone.add_member(NETWORK, "six", MemberAddresses { ipv6, ipv4: None });
    zone
}

/// Answers the request `bytes` for a zone of a few names.
///
/// # Panics
/// If the response is not one that the request permits.
pub fn dns(bytes: &[u8]) {
    let zone = zone();
    let mut out = vec![0xaa; 3];
    let outcome = zone.respond(bytes, &mut out);
    let silent = bytes.len() < 12 || bytes[2] & 0x80 != 0;
    assert_eq!(silent, outcome == Outcome::Ignored);
    assert_eq!(silent, out.is_empty());
    if silent {
        return;
    }
    assert!(out.len() <= MAX_RESPONSE);
    assert_eq!(out[..2], bytes[..2], "the id");
    assert_eq!(
        out[2] & !0x04,
        0x80 | bytes[2] & 0x79,
        "QR, opcode, RD; AA is free, TC is off"
    );
    assert_eq!(out[3] & 0xf0, bytes[3] & 0x10, "CD; RA, Z, AD are off");
    // A response that is received gets no answer, so two responders cannot loop.
    assert_eq!(zone.respond(&out, &mut Vec::new()), Outcome::Ignored);

    let response = Reader::read(&out).unwrap_or_else(|| panic!("the response cannot be read: {out:02x?}"));
    let rcode = out[3] & 0xf;
    if response.questions.is_empty() {
        assert!(matches!(rcode, 1 | 4) && out.len() == 12 && outcome == Outcome::Malformed);
        return;
    }
    let [(name, rtype, class)] = &response.questions[..] else {
        panic!("{} questions", response.questions.len());
    };
    let asked = Reader::read(bytes).unwrap_or_else(|| panic!("an unreadable request has an answer"));
    assert_eq!(asked.questions, response.questions);
    let end = 12 + name.len() + 4;
    assert_eq!(out[12..end], bytes[12..end], "the question is sent back as it came");
    let edns = |message: &Reader| message.records.iter().filter(|record| record.rtype == 41).count();
    assert_eq!(edns(&asked), edns(&response));
    assert!(edns(&response) <= 1);

    let rest: Vec<&Record> = response.records.iter().filter(|record| record.rtype != 41).collect();
    match (outcome, expected(name, *class)) {
        (Outcome::Foreign, Expected::Elsewhere) => assert!(rcode == 5 && rest.is_empty() && *class == 1),
        (Outcome::Refused, _) => assert!(rcode == 5 && rest.is_empty() && (matches!(rtype, 251 | 252) || *class != 1)),
        (Outcome::Malformed, _) => assert!(rcode == 0 && rest.is_empty() && edns(&response) == 1, "BADVERS"),
        (Outcome::NoSuchName, Expected::Nothing) => assert!(rcode == 3 && rest[0].rtype == 6),
        (Outcome::Answered, Expected::Domain) => assert!(rcode == 0 && rest[0].rtype == 6),
        (Outcome::Answered, Expected::Addresses(ipv6, ipv4)) => {
            let ipv6 = ipv6.map(|ip| (28, ip.octets().to_vec()));
            let ipv4 = ipv4.map(|ip| (1, ip.octets().to_vec()));
            let wanted = |(of, _): &(u16, Vec<u8>)| of == rtype || *rtype == 255;
            let records: Vec<_> = ipv6.into_iter().chain(ipv4).filter(wanted).collect();
            if records.is_empty() {
                assert!(rcode == 0 && rest[0].rtype == 6);
            } else {
                assert!(rcode == 0 && rest.iter().all(|record| record.name == *name));
                let found: Vec<_> = rest.iter().map(|record| (record.rtype, record.data.clone())).collect();
                assert_eq!(found, records);
            }
        }
        (Outcome::Answered, Expected::Pointer(wanted)) => match *rtype {
            12 | 255 => assert!(rcode == 0 && rest[0].rtype == 12 && rest[0].name == *name && rest[0].data == wanted),
            _ => assert!(rcode == 0 && rest[0].rtype == 6 && rest[0].name == *name),
        },
        (outcome, _) => panic!("{outcome:?} for {name:?}"),
    }
}

enum Expected {
    Domain,
    Addresses(Option<Ipv6Addr>, Option<Ipv4Addr>),
    /// The name of an address, in wire format.
    Pointer(&'static [u8]),
    Nothing,
    Elsewhere,
}

/// The expected result for a name, from its text.
fn expected(name: &[u8], class: u16) -> Expected {
    let (mut labels, mut at) = (Vec::new(), 0);
    while name[at] != 0 {
        let end = at + 1 + usize::from(name[at]);
        labels.push(String::from_utf8_lossy(&name[at + 1..end]).to_ascii_lowercase());
        at = end;
    }
    let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
    match labels[..] {
        [.., "fips"] if class != 1 => Expected::Elsewhere,
        ["fips"] => Expected::Domain,
        [NAME, "fips"] => Expected::Addresses(Some(key().node_addr().to_ipv6()), None),
        [npub, "fips"] if npub.starts_with("npub1") => {
            let key = npub.parse::<PublicKey>();
            key.map_or(Expected::Nothing, |key| {
                Expected::Addresses(Some(key.node_addr().to_ipv6()), None)
            })
        }
        ["weft"] if class == 1 => Expected::Domain,
        [NETWORK, "weft"] if class == 1 => Expected::Addresses(None, None),
        [name, NETWORK, "weft"] if class == 1 && [NAME, "six"].contains(&name) => {
            let ipv6 = key().node_addr().to_ipv6();
            Expected::Addresses(Some(ipv6), (name == NAME).then_some(IPV4))
        }
        [.., "fips"] => Expected::Nothing,
        [.., "weft"] if class == 1 => Expected::Nothing,
        ["2", "1", "44", "10", "in-addr", "arpa"] if class == 1 => Expected::Pointer(MEMBER),
        [ref digits @ .., "ip6", "arpa"] if class == 1 && is_reversed(digits) => Expected::Pointer(MEMBER),
        [ref digits @ .., "d", "f", "ip6", "arpa"] if class == 1 && are_digits(digits) => Expected::Nothing,
        _ => Expected::Elsewhere,
    }
}

/// Whether these are the digits of an address but for the first two.
fn are_digits(labels: &[&str]) -> bool {
    let is_digit = |label: &&str| label.len() == 1 && label.bytes().all(|byte| byte.is_ascii_hexdigit());
    labels.len() == 30 && labels.iter().all(is_digit)
}

/// [`NAME`] in [`NETWORK`], in wire format.
const MEMBER: &[u8] = b"\x03bob\x04home\x04weft\0";

/// True for the hexadecimal digits of the address of [`NAME`], from the last one.
fn is_reversed(digits: &[&str]) -> bool {
    let address: String = key()
        .node_addr()
        .to_ipv6()
        .octets()
        .map(|byte| format!("{byte:02x}"))
        .concat();
    let reversed: Vec<String> = address.chars().rev().map(String::from).collect();
    digits == reversed
}

/// A message, parsed by a slow model; names are whole, in wire format.
struct Reader {
    questions: Vec<(Vec<u8>, u16, u16)>,
    records: Vec<Record>,
}

struct Record {
    name: Vec<u8>,
    rtype: u16,
    data: Vec<u8>,
}

impl Reader {
    fn read(bytes: &[u8]) -> Option<Self> {
        let number = |at: usize| Some(u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]));
        let mut message = Self {
            questions: Vec::new(),
            records: Vec::new(),
        };
        let mut at = 12;
        for _ in 0..number(4)? {
            let (name, after) = name(bytes, at)?;
            message.questions.push((name, number(after)?, number(after + 2)?));
            at = after + 4;
        }
        for _ in 0..u32::from(number(6)?) + u32::from(number(8)?) + u32::from(number(10)?) {
            // Additional records of a request may contain any pointers; only their length matters.
            let (name, after) = name(bytes, at).or_else(|| Some((Vec::new(), length(bytes, at)?)))?;
            let data = after + 10..after + 10 + usize::from(number(after + 8)?);
            message.records.push(Record {
                name,
                rtype: number(after)?,
                data: bytes.get(data.clone())?.to_vec(),
            });
            at = data.end;
        }
        (at == bytes.len()).then_some(message)
    }
}

/// The name at `at`, and the position behind it.
fn name(bytes: &[u8], mut at: usize) -> Option<(Vec<u8>, usize)> {
    let (mut name, mut after) = (Vec::new(), None);
    for _ in 0..256 {
        let len = usize::from(*bytes.get(at)?);
        if len & 0xc0 == 0xc0 {
            after = after.or(Some(at + 2));
            at = (len & 0x3f) << 8 | usize::from(*bytes.get(at + 1)?);
            continue;
        }
        name.extend(bytes.get(at..=at + len)?);
        at += 1 + len;
        if len == 0 {
            return Some((name, after.unwrap_or(at)));
        }
    }
    None
}

/// The end of the name at `at`, whatever its pointers.
fn length(bytes: &[u8], mut at: usize) -> Option<usize> {
    loop {
        match usize::from(*bytes.get(at)?) {
            0 => return Some(at + 1),
            0xc0.. => return Some(at + 2),
            len => at += 1 + len,
        }
    }
}
