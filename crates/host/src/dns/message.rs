//! DNS messages as a responder needs them: one question in, at most one record out (RFC 1035, RFC
//! 6891).
//!
//! Pure; reading does not allocate. All numbers are big-endian. The question is kept as its bytes
//! and sent back unchanged, because resolvers encode randomness in the case of its letters.

use std::net::{Ipv4Addr, Ipv6Addr};

/// The longest response, in bytes: the longest question, a record and an OPT record. It is below
/// the 512 bytes that every resolver accepts over UDP (RFC 1035, 4.2.1), so no response is ever
/// truncated.
pub const MAX_RESPONSE: usize = HEADER_LEN + MAX_NAME + 4 + MAX_SOA + OPT_LEN;
const _: () = assert!(MAX_RESPONSE <= 512);

/// The UDP payload that the responder announces (RFC 6891, 6.2.3): no fragments on any IPv6 path.
pub const UDP_PAYLOAD: u16 = 1232;

/// Seconds for which an address may be cached. The address of a key never changes, but a name can
/// be given to another key.
pub const TTL: u32 = 60;

/// Seconds for which "no such name" may be cached (the last field of the SOA record, RFC 2308).
pub const NEGATIVE_TTL: u32 = 10;

/// Record types, of RFC 1035 if no other source is named.
pub mod rtype {
    /// IPv4 address.
    pub const A: u16 = 1;
    /// Name server.
    pub const NS: u16 = 2;
    /// Start of authority.
    pub const SOA: u16 = 6;
    /// Name of an address.
    pub const PTR: u16 = 12;
    /// IPv6 address (RFC 3596).
    pub const AAAA: u16 = 28;
    /// EDNS (RFC 6891).
    pub const OPT: u16 = 41;
    /// Incremental zone transfer (RFC 1995).
    pub const IXFR: u16 = 251;
    /// Zone transfer.
    pub const AXFR: u16 = 252;
    /// All types.
    pub const ANY: u16 = 255;
}

const HEADER_LEN: usize = 12;
/// Length of a name with its length bytes and final zero (RFC 1035, 2.3.4).
const MAX_NAME: usize = 255;
const MAX_LABEL: u8 = 63;
const OPT_LEN: usize = 11;
const CLASS_IN: u16 = 1;

/// The mailbox in an SOA record: the placeholder of RFC 6303 (section 3), for zones that every host
/// serves itself.
const NOBODY: &[u8] = b"\x06nobody\x07invalid\0";
/// Two pointers to the zone's name, type to length, `NOBODY`, five numbers.
const MAX_SOA: usize = 2 + 10 + 2 + NOBODY.len() + 20;

/// `QR`: a response.
const RESPONSE: u16 = 0x8000;
/// `AA`: the answer is authoritative.
const AUTHORITATIVE: u16 = 0x0400;
const OPCODE: u16 = 0x7800;
/// `RD` and `CD`, which a response repeats.
const REPEATED: u16 = 0x0110;
/// `DO` in an OPT record, repeated too (RFC 3225).
const DNSSEC_OK: u16 = 0x8000;

/// The result in a response (`RCODE`); values above 15 need an OPT record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Rcode {
    /// The name exists.
    NoError = 0,
    /// The request is not a DNS message.
    FormErr = 1,
    /// No server has answered.
    ServFail = 2,
    /// The name does not exist.
    NxDomain = 3,
    /// The request is not a query.
    NotImp = 4,
    /// This node does not answer queries for this name.
    Refused = 5,
    /// The EDNS version of the request is not 0.
    BadVers = 16,
}

/// The name of the zone that a question belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Apex {
    /// That many labels at the end of the name, which has more.
    Last(usize),
    /// The name itself: the reverse name of one address.
    Name,
}

/// A request with one question, checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Query<'a> {
    head: Head,
    /// Name, type and class, as received.
    question: &'a [u8],
    edns: Option<Edns>,
}

/// The parts of a request's header that its response repeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Head {
    id: u16,
    flags: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Edns {
    version: u8,
    dnssec_ok: bool,
}

/// The reason why a request is not a [`Query`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reject {
    /// Too short for a header, or a response: gets no answer, so that two responders do not loop.
    Ignore,
    /// Is answered with the code alone.
    Answer(Refusal),
}

/// A response without a question, because the question was not understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    head: Head,
    rcode: Rcode,
}

impl<'a> Query<'a> {
    /// Reads a request.
    ///
    /// # Errors
    /// [`Reject`]. Everything that is not exactly one question, with or without EDNS, is a format
    /// error: several questions (RFC 9619), answer records, a compressed question, two OPT records
    /// (RFC 6891, 6.1.1), bytes behind the end.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Reject> {
        let Some((header, body)) = bytes.split_first_chunk::<HEADER_LEN>() else {
            return Err(Reject::Ignore);
        };
        let &[i0, i1, f0, f1, qd0, qd1, an0, an1, ns0, ns1, ar0, ar1] = header;
        let flags = u16::from_be_bytes([f0, f1]);
        if flags & RESPONSE != 0 {
            return Err(Reject::Ignore);
        }
        let head = Head {
            id: u16::from_be_bytes([i0, i1]),
            flags: flags & (OPCODE | REPEATED),
        };
        let reject = |rcode| Reject::Answer(Refusal { head, rcode });
        if flags & OPCODE != 0 {
            return Err(reject(Rcode::NotImp));
        }
        if [qd0, qd1, an0, an1, ns0, ns1] != [0, 1, 0, 0, 0, 0] {
            return Err(reject(Rcode::FormErr));
        }
        let malformed = reject(Rcode::FormErr);
        let name = plain_name(body).ok_or(malformed)?;
        let (question, rest) = body.split_at_checked(name + 4).ok_or(malformed)?;
        let edns = additional(rest, u16::from_be_bytes([ar0, ar1])).ok_or(malformed)?;
        Ok(Self { head, question, edns })
    }

    /// The labels of the name, from the left, without the root.
    pub fn labels(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let mut rest = self.question;
        std::iter::from_fn(move || {
            let (&len, after) = rest.split_first()?;
            let (label, after) = after.split_at_checked(usize::from(len))?;
            rest = after;
            (len > 0).then_some(label)
        })
    }

    /// The question as it was received: name, type and class.
    #[must_use]
    pub fn question(&self) -> &'a [u8] {
        self.question
    }

    /// The record type asked for ([`rtype`]).
    #[must_use]
    pub fn rtype(&self) -> u16 {
        self.trailer().0
    }

    /// True if the class of the question is IN, the only class in use.
    #[must_use]
    pub fn is_internet(&self) -> bool {
        self.trailer().1 == CLASS_IN
    }

    /// True if the EDNS version of the request is not supported.
    #[must_use]
    pub fn is_of_unknown_version(&self) -> bool {
        self.edns.is_some_and(|edns| edns.version != 0)
    }

    /// Writes the response of `rcode` without records into `out`, which is cleared first.
    pub fn emit_code(&self, out: &mut Vec<u8>, rcode: Rcode) {
        self.emit(out, rcode, false, [0, 0], |_| {});
    }

    /// Writes the response with an address of either IP version, or of both.
    pub fn emit_addresses(&self, out: &mut Vec<u8>, ipv6: Option<Ipv6Addr>, ipv4: Option<Ipv4Addr>) {
        let answers = u16::from(ipv6.is_some()) + u16::from(ipv4.is_some());
        // The name is that of the question, which follows the header.
        let name = HEADER_LEN as u16;
        self.emit(out, Rcode::NoError, true, [answers, 0], |out| {
            if let Some(address) = ipv6 {
                record(out, name, rtype::AAAA, TTL, |out| out.extend(address.octets()));
            }
            if let Some(address) = ipv4 {
                record(out, name, rtype::A, TTL, |out| out.extend(address.octets()));
            }
        });
    }

    /// Writes the response with the name of an address, `name`, whose labels are those of DNS.
    pub fn emit_pointer(&self, out: &mut Vec<u8>, name: &str) {
        self.emit(out, Rcode::NoError, true, [1, 0], |out| {
            record(out, HEADER_LEN as u16, rtype::PTR, TTL, |out| {
                for label in name.split('.') {
                    out.push(label.len() as u8);
                    out.extend(label.as_bytes());
                }
                out.push(0);
            });
        });
    }

    /// Writes the response with the SOA record of `zone`: as the answer, or beside `rcode` to set how
    /// long the negative answer is valid (RFC 2308).
    pub fn emit_soa(&self, out: &mut Vec<u8>, zone: Apex, rcode: Rcode, is_answer: bool) {
        let counts = if is_answer { [1, 0] } else { [0, 1] };
        let zone = match zone {
            Apex::Last(labels) => self.last_labels_at(labels),
            Apex::Name => HEADER_LEN as u16,
        };
        self.emit(out, rcode, true, counts, |out| {
            record(out, zone, rtype::SOA, NEGATIVE_TTL, |out| {
                pointer(out, zone);
                out.extend(NOBODY);
                // Serial, refresh, retry, expire, negative TTL.
                for number in [1, 3600, 1200, 604_800, NEGATIVE_TTL] {
                    out.extend(number.to_be_bytes());
                }
            });
        });
    }

    fn emit(
        &self,
        out: &mut Vec<u8>,
        rcode: Rcode,
        knows: bool,
        [answers, authority]: [u16; 2],
        records: impl FnOnce(&mut Vec<u8>),
    ) {
        let edns = u16::from(self.edns.is_some());
        let counts = [1, answers, authority, edns];
        header(out, self.head, if knows { AUTHORITATIVE } else { 0 }, rcode, counts);
        out.extend(self.question);
        records(out);
        if let Some(edns) = self.edns {
            out.push(0);
            out.extend(rtype::OPT.to_be_bytes());
            out.extend(UDP_PAYLOAD.to_be_bytes());
            out.extend([(rcode as u16 >> 4) as u8, 0]);
            out.extend(if edns.dnssec_ok { DNSSEC_OK } else { 0 }.to_be_bytes());
            out.extend([0, 0]);
        }
    }

    /// The position of the last label, from the start of the message: below 12 + 255, so a pointer
    /// reaches it.
    fn last_labels_at(&self, count: usize) -> u16 {
        let before = self.labels().count().saturating_sub(count);
        let lengths = self.labels().take(before).map(|label| 1 + label.len());
        (HEADER_LEN + lengths.sum::<usize>()) as u16
    }

    /// Type and class.
    fn trailer(&self) -> (u16, u16) {
        match *self.question {
            [.., t0, t1, c0, c1] => (u16::from_be_bytes([t0, t1]), u16::from_be_bytes([c0, c1])),
            _ => (0, 0),
        }
    }
}

impl Refusal {
    /// Writes the response into `out`, which is cleared first.
    pub fn emit(&self, out: &mut Vec<u8>) {
        header(out, self.head, 0, self.rcode, [0; 4]);
    }
}

/// The length of the name at the front, if it is complete and not compressed.
fn plain_name(bytes: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        let len = *bytes.get(at)?;
        at += 1 + usize::from(len);
        if len > MAX_LABEL || at > MAX_NAME {
            return None;
        }
        if len == 0 {
            return Some(at);
        }
    }
}

/// The query for records of this type of a name, with recursion. The id is set when it is sent.
pub(super) fn query(name: &str, rtype: u16) -> Vec<u8> {
    let mut bytes = vec![0, 0, 0x01, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.split('.').filter(|label| !label.is_empty()) {
        bytes.push(label.len() as u8);
        bytes.extend_from_slice(label.as_bytes());
    }
    bytes.push(0);
    bytes.extend_from_slice(&rtype.to_be_bytes());
    bytes.extend_from_slice(&CLASS_IN.to_be_bytes());
    bytes
}

/// Reads `count` additional records, which must be all that is left, and returns the EDNS record if
/// there is one.
fn additional(mut bytes: &[u8], count: u16) -> Option<Option<Edns>> {
    let mut edns = None;
    for _ in 0..count {
        let name = any_name(bytes)?;
        let (fixed, rest) = bytes.get(name..)?.split_first_chunk::<10>()?;
        let &[t0, t1, _, _, _, version, do0, do1, l0, l1] = fixed;
        if u16::from_be_bytes([t0, t1]) == rtype::OPT {
            let flags = u16::from_be_bytes([do0, do1]);
            let found = Edns {
                version,
                dnssec_ok: flags & DNSSEC_OK != 0,
            };
            // The name must be the root, and the record must not repeat.
            if name != 1 || edns.replace(found).is_some() {
                return None;
            }
        }
        bytes = rest.get(usize::from(u16::from_be_bytes([l0, l1]))..)?;
    }
    bytes.is_empty().then_some(edns)
}

/// The length of the name at the front in its written form, which may end in a pointer. The pointer
/// is not followed.
fn any_name(bytes: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        match *bytes.get(at)? {
            0 => return Some(at + 1),
            0xc0.. => return Some(at + 2),
            len @ 1..=MAX_LABEL => at += 1 + usize::from(len),
            _ => return None,
        }
    }
}

fn header(out: &mut Vec<u8>, head: Head, flags: u16, rcode: Rcode, counts: [u16; 4]) {
    out.clear();
    out.extend(head.id.to_be_bytes());
    out.extend((RESPONSE | head.flags | flags | rcode as u16 & 0xf).to_be_bytes());
    for count in counts {
        out.extend(count.to_be_bytes());
    }
}

fn record(out: &mut Vec<u8>, name: u16, rtype: u16, ttl: u32, data: impl FnOnce(&mut Vec<u8>)) {
    pointer(out, name);
    out.extend(rtype.to_be_bytes());
    out.extend(CLASS_IN.to_be_bytes());
    out.extend(ttl.to_be_bytes());
    let at = out.len();
    out.extend([0, 0]);
    data(out);
    let len = (out.len() - at - 2) as u16;
    out.splice(at..at + 2, len.to_be_bytes());
}

/// Writes a compressed name: a pointer to another position in the message (RFC 1035, 4.1.4).
fn pointer(out: &mut Vec<u8>, at: u16) {
    out.extend((0xc000 | at).to_be_bytes());
}
