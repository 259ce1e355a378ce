//! An independent reading of fast.md: the key schedule, capabilities and frames.

use aws_lc_rs::aead::{AES_128_GCM, AES_256_GCM, Aad, Algorithm, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use hkdf::Hkdf;
use sha2::Sha256;

use super::sha256;
use crate::book::Book;

/// fast.md, "Content of kind 0": an IPv6 packet.
pub const IPV6: u8 = 0;
/// fast.md, "Content of kind 1": a message.
pub const MESSAGE: u8 = 1;
/// fast.md, "Content of kind 3": a packet with its whole header.
pub const FULL: u8 = 3;
/// fast.md, "Relayed".
pub const RELAYED: u8 = 2;
/// sizes.md, "Pieces".
pub const PIECE: u8 = 4;

/// fast.md, "Keys": the suites by number.
fn algorithm(suite: u8) -> &'static Algorithm {
    match suite {
        1 => &AES_256_GCM,
        2 => &AES_128_GCM,
        3 => &CHACHA20_POLY1305,
        _ => unreachable!("no suite {suite}"),
    }
}

/// The exporter of a handshake that ended with `ck` and `h`. HKDF-Extract is HMAC with the salt as
/// key.
pub fn exporter(label: &str, ck: &[u8; 32], h: &[u8; 32]) -> [u8; 32] {
    let ikm = [label.as_bytes(), h].concat();
    Hkdf::<Sha256>::extract(Some(ck), &ikm).0.into()
}

/// fast.md, "Negotiation": the body of capabilities.
pub fn capabilities(max_payload: u16, random: &[u8; 16], suites: &[(u8, u32)], indices: &[u32]) -> Vec<u8> {
    let mut body = vec![1, 1];
    body.extend(max_payload.to_le_bytes());
    body.extend(random);
    body.push(suites.len() as u8);
    for (suite, cost) in suites {
        body.push(*suite);
        body.extend(cost.to_le_bytes());
    }
    body.push(indices.len() as u8);
    body.extend(indices.iter().flat_map(|index| index.to_le_bytes()));
    body
}

/// The body of the acknowledgement.
pub fn acknowledgement(capabilities: &[u8]) -> Vec<u8> {
    sha256(&[capabilities])[..16].to_vec()
}

/// PRK from the exporter and both bodies.
pub fn prk(exporter: &[u8; 32], of_initiator: &[u8], of_responder: &[u8]) -> [u8; 32] {
    let salt = sha256(&[of_initiator, of_responder]);
    Hkdf::<Sha256>::extract(Some(&salt), exporter).0.into()
}

fn expand<const N: usize>(from: &[u8; 32], info: &[u8]) -> [u8; N] {
    let mut out = [0; N];
    Hkdf::<Sha256>::from_prk(from).unwrap().expand(info, &mut out).unwrap();
    out
}

/// The key of one direction of lane 0 in one phase.
pub struct Phase {
    suite: u8,
    secret: [u8; 32],
    key: Vec<u8>,
    iv: [u8; 12],
}

impl Phase {
    /// The first phase.
    pub fn first(prk: &[u8; 32], suite: u8, direction: u8) -> Self {
        let info = [&b"weft fast 1 lane"[..], &[suite, direction, 0]].concat();
        Self::of(suite, expand(prk, &info))
    }

    /// The next phase.
    pub fn next(&self) -> Self {
        Self::of(self.suite, expand(&self.secret, b"weft fast 1 next"))
    }

    fn of(suite: u8, secret: [u8; 32]) -> Self {
        // The output of HKDF-Expand up to one hash has the same prefix for any length.
        let key: [u8; 32] = expand(&secret, b"weft fast 1 key");
        Self {
            suite,
            secret,
            key: key[..algorithm(suite).key_len()].to_vec(),
            iv: expand(&secret, b"weft fast 1 iv"),
        }
    }

    /// Encrypts `plain` and appends the tag.
    fn seal(&self, layer: &str, counter: u64, aad: &[u8], mut plain: Vec<u8>, book: &mut Book) -> Vec<u8> {
        let mut nonce = self.iv;
        for (byte, counter) in nonce[4..].iter_mut().zip(counter.to_be_bytes()) {
            *byte ^= counter;
        }
        book.bytes(&format!("{layer}.nonce"), nonce);
        let key = UnboundKey::new(algorithm(self.suite), &self.key).unwrap();
        LessSafeKey::new(key)
            .seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::from(aad), &mut plain)
            .unwrap();
        plain
    }

    pub fn tell(&self, name: &str, book: &mut Book) {
        book.bytes(&format!("{name}.secret"), self.secret);
        book.bytes(&format!("{name}.key"), &self.key);
        book.bytes(&format!("{name}.iv"), self.iv);
    }
}

/// fast.md, "Frame".
pub struct Frame<'a> {
    pub keys: &'a Phase,
    pub kind: u8,
    pub flags: u8,
    pub receiver_index: u32,
    pub counter: u64,
    pub clock: u32,
    /// The content behind the clock.
    pub content: &'a [u8],
}

impl Frame<'_> {
    pub fn seal(&self, book: &mut Book) -> Vec<u8> {
        self.seal_as("datagram", book)
    }

    /// Seals under another name: a frame inside of another one is not a datagram.
    pub fn seal_as(&self, name: &str, book: &mut Book) -> Vec<u8> {
        let plain = [&self.clock.to_le_bytes()[..], self.content].concat();
        let header = header(
            self.kind,
            self.flags,
            plain.len() + 16,
            self.receiver_index,
            self.counter,
        );
        book.bytes("fast.header", &header);
        book.bytes("fast.plain", &plain);
        let sealed = self.keys.seal("fast", self.counter, &header, plain, book);
        let frame = [header, sealed].concat();
        book.bytes(name, &frame);
        frame
    }
}

/// fast.md, "Relayed": a frame on one hop.
pub struct Relayed<'a> {
    pub keys: &'a Phase,
    pub receiver_index: u32,
    pub counter: u64,
    /// Whether the whole frame is sealed.
    pub whole: bool,
    pub label: u32,
    pub ttl: u8,
    pub marks: u8,
    /// The end-to-end frame.
    pub inner: &'a [u8],
}

impl Relayed<'_> {
    pub fn seal(&self, hop: &str, book: &mut Book) -> Vec<u8> {
        let told = [&self.label.to_le_bytes()[..], &[self.ttl, self.marks]].concat();
        let (sealed, rest) = self.inner.split_at(if self.whole { self.inner.len() } else { 16 });
        let flags = if self.whole { 4 } else { 0 };
        let header = header(
            RELAYED,
            flags,
            16 + 6 + self.inner.len(),
            self.receiver_index,
            self.counter,
        );
        let plain = [&told, sealed].concat();
        book.bytes(&format!("{hop}.header"), &header);
        book.bytes(&format!("{hop}.plain"), &plain);
        let sealed = self.keys.seal(hop, self.counter, &header, plain, book);
        let (sealed, tag) = sealed.split_at(sealed.len() - 16);
        let frame = [&header, tag, sealed, rest].concat();
        book.bytes(&format!("{hop}.datagram"), &frame);
        frame
    }
}

fn header(kind: u8, flags: u8, length: usize, receiver_index: u32, counter: u64) -> Vec<u8> {
    [
        &[0xa0 | kind, flags][..],
        &(length as u16).to_le_bytes(),
        &receiver_index.to_le_bytes(),
        &counter.to_le_bytes(),
    ]
    .concat()
}

/// "Content of kind 0", behind the clock; `partial` leaves the checksum of UDP out.
pub fn ipv6_content(ip: &[u8], partial: bool) -> Vec<u8> {
    let mut content = [&ip[..4], &ip[6..8], &ip[40..]].concat();
    if partial {
        content[6 + 6..6 + 8].fill(0);
    }
    content
}

/// sizes.md, "Pieces", behind the clock.
pub fn piece(packet: u32, offset: u16, of: &[u8], piece: &[u8]) -> Vec<u8> {
    let total = of.len() as u16;
    [
        &packet.to_le_bytes()[..],
        &[IPV6],
        &offset.to_le_bytes(),
        &total.to_le_bytes(),
        piece,
    ]
    .concat()
}
