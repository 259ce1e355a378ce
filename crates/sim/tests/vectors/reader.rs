//! The peer, written from docs/protocol/ alone: hash, curve and cipher come from libraries, every
//! byte between them is laid out here again. Intermediate values go into the book.

use hkdf::Hkdf;
use secp256k1::ecdh::shared_secret_point;
use secp256k1::{PublicKey, Secp256k1, SecretKey};
use sha2::{Digest, Sha256};
use weft_noise::Key;
use weft_noise::aead::Cipher;

use crate::book::Book;

pub mod fast;

/// The result of a handshake at both ends.
#[derive(Debug, PartialEq, Eq)]
pub struct Keys {
    /// From initiator to responder.
    pub k1: [u8; 32],
    /// From responder to initiator.
    pub k2: [u8; 32],
    /// The transcript.
    pub h: [u8; 32],
    /// The secret from which fast frames start.
    pub exporter: [u8; 32],
    /// The secret from which the keys of a hop start.
    pub hop_exporter: [u8; 32],
}

/// noise.md, "State".
struct State<'b> {
    h: [u8; 32],
    ck: [u8; 32],
    k: [u8; 32],
    n: u64,
    book: &'b mut Book,
}

impl<'b> State<'b> {
    fn start(protocol: &str, responder: &[u8; 32], book: &'b mut Book) -> Self {
        let h = sha256(&[protocol.as_bytes()]);
        let mut state = Self {
            h,
            ck: h,
            k: [0; 32],
            n: 0,
            book,
        };
        state.book.bytes("start.h", h);
        state.mix_hash("pre-message", &[&[0x02][..], responder].concat());
        state
    }

    fn mix_hash(&mut self, what: &str, data: &[u8]) {
        self.h = sha256(&[&self.h, data]);
        self.book.bytes(&format!("{what}.h"), self.h);
    }

    fn mix_key(&mut self, token: &str, secret: &SecretKey, public: &[u8]) {
        let shared = dh(secret, public);
        let mut out = [0; 64];
        Hkdf::<Sha256>::new(Some(&self.ck), &shared)
            .expand(&[], &mut out)
            .unwrap();
        (self.ck, self.k) = halves(&out);
        self.n = 0;
        self.book.bytes(&format!("{token}.dh"), shared);
        self.book.bytes(&format!("{token}.ck"), self.ck);
        self.book.bytes(&format!("{token}.k"), self.k);
    }

    fn seal(&mut self, what: &str, plain: &[u8]) -> Vec<u8> {
        let sealed = seal(&self.k, self.n, &[], plain);
        self.n += 1;
        self.book.bytes(what, &sealed);
        self.mix_hash(what, &sealed);
        sealed
    }

    fn open(&mut self, what: &str, sealed: &[u8]) -> Vec<u8> {
        let plain = open(&self.k, self.n, &[], sealed);
        self.n += 1;
        self.book.bytes(what, sealed);
        self.mix_hash(what, sealed);
        plain
    }

    fn split(self) -> Keys {
        let mut out = [0; 64];
        Hkdf::<Sha256>::new(Some(&self.ck), &[]).expand(&[], &mut out).unwrap();
        let (k1, k2) = halves(&out);
        self.book.bytes("k1", k1);
        self.book.bytes("k2", k2);
        Keys {
            k1,
            k2,
            h: self.h,
            exporter: fast::exporter("weft fast 1", &self.ck, &self.h),
            hop_exporter: fast::exporter("weft hop 1", &self.ck, &self.h),
        }
    }
}

/// One end's secrets for a handshake.
pub struct End {
    /// Long-term.
    pub s: SecretKey,
    /// For this handshake.
    pub e: SecretKey,
    /// Random, new at each start.
    pub epoch: [u8; 8],
}

/// noise.md, "IK", left column: returns msg1, the result of `answer` on it as msg2, and the keys.
pub fn ik_initiator(
    us: &End,
    rs: &[u8; 32],
    book: &mut Book,
    answer: impl FnOnce(&[u8]) -> Vec<u8>,
) -> (Vec<u8>, Keys) {
    let rs_point = even(rs);
    let mut state = State::start("Noise_IK_secp256k1_ChaChaPoly_SHA256", rs, book);
    let mut msg1 = point(&us.e).to_vec();
    state.mix_hash("msg1.e", &msg1);
    state.mix_key("msg1.es", &us.e, &rs_point);
    msg1.extend(state.seal("msg1.s", &point(&us.s)));
    state.mix_key("msg1.ss", &us.s, &rs_point);
    msg1.extend(state.seal("msg1.epoch", &us.epoch));

    let msg2 = answer(&msg1);
    let (re, sealed_epoch) = msg2.split_at(33);
    state.mix_hash("msg2.e", re);
    state.mix_key("msg2.ee", &us.e, re);
    state.mix_key("msg2.se", &us.e, &rs_point);
    state.open("msg2.epoch", sealed_epoch);
    (msg1, state.split())
}

/// noise.md, "IK", right column: returns msg2, the initiator's x coordinate, and the keys.
pub fn ik_responder(us: &End, msg1: &[u8], book: &mut Book) -> (Vec<u8>, Vec<u8>, Keys) {
    let mut state = State::start("Noise_IK_secp256k1_ChaChaPoly_SHA256", &x_only(&us.s), book);
    let (re, rest) = msg1.split_at(33);
    let (sealed_static, sealed_epoch) = rest.split_at(49);
    state.mix_hash("msg1.e", re);
    state.mix_key("msg1.es", &us.s, re);
    let rs = state.open("msg1.s", sealed_static);
    state.mix_key("msg1.ss", &us.s, &rs);
    state.open("msg1.epoch", sealed_epoch);

    let mut msg2 = point(&us.e).to_vec();
    state.mix_hash("msg2.e", &msg2);
    state.mix_key("msg2.ee", &us.e, re);
    state.mix_key("msg2.se", &us.s, re);
    msg2.extend(state.seal("msg2.epoch", &us.epoch));
    (msg2, rs[1..].to_vec(), state.split())
}

/// noise.md, "XK", left column: returns msg1, msg3 and the keys.
pub fn xk_initiator(
    us: &End,
    rs: &[u8; 32],
    book: &mut Book,
    answer: impl FnOnce(&[u8]) -> Vec<u8>,
) -> (Vec<u8>, Vec<u8>, Keys) {
    let mut state = State::start("Noise_XK_secp256k1_ChaChaPoly_SHA256", rs, book);
    let msg1 = point(&us.e).to_vec();
    state.mix_hash("msg1.e", &msg1);
    state.mix_key("msg1.es", &us.e, &even(rs));

    let msg2 = answer(&msg1);
    let (re, sealed_epoch) = msg2.split_at(33);
    state.mix_hash("msg2.e", re);
    state.mix_key("msg2.ee", &us.e, re);
    state.open("msg2.epoch", sealed_epoch);

    let mut msg3 = state.seal("msg3.s", &point(&us.s));
    state.mix_key("msg3.se", &us.s, re);
    msg3.extend(state.seal("msg3.epoch", &us.epoch));
    (msg1, msg3, state.split())
}

/// noise.md, "XK", right column: returns msg2, the initiator's x coordinate, and the keys.
pub fn xk_responder(
    us: &End,
    msg1: &[u8],
    book: &mut Book,
    answer: impl FnOnce(&[u8]) -> Vec<u8>,
) -> (Vec<u8>, Vec<u8>, Keys) {
    let mut state = State::start("Noise_XK_secp256k1_ChaChaPoly_SHA256", &x_only(&us.s), book);
    state.mix_hash("msg1.e", msg1);
    state.mix_key("msg1.es", &us.s, msg1);

    let mut msg2 = point(&us.e).to_vec();
    state.mix_hash("msg2.e", &msg2);
    state.mix_key("msg2.ee", &us.e, msg1);
    msg2.extend(state.seal("msg2.epoch", &us.epoch));

    let msg3 = answer(&msg2);
    let (sealed_static, sealed_epoch) = msg3.split_at(49);
    let rs = state.open("msg3.s", sealed_static);
    state.mix_key("msg3.se", &us.e, &rs);
    state.open("msg3.epoch", sealed_epoch);
    (msg2, rs[1..].to_vec(), state.split())
}

/// link.md, "Established frames".
pub struct LinkFrame<'a> {
    pub key: [u8; 32],
    pub flags: u8,
    pub receiver_idx: u32,
    pub counter: u64,
    pub timestamp: u32,
    pub msg_type: u8,
    pub body: &'a [u8],
}

impl LinkFrame<'_> {
    pub fn seal(&self, book: &mut Book) -> Vec<u8> {
        let inner = [&self.timestamp.to_le_bytes()[..], &[self.msg_type]].concat();
        let plain = [&inner, self.body].concat();
        let header = [
            &[0x00, self.flags][..],
            &(plain.len() as u16).to_le_bytes(),
            &self.receiver_idx.to_le_bytes(),
            &self.counter.to_le_bytes(),
        ]
        .concat();
        book.bytes("link.inner", &inner);
        book.bytes("link.body", self.body);
        sealed("link", &self.key, self.counter, &header, &plain, book)
    }
}

/// session.md, "Sealed messages".
pub struct SessionMessage<'a> {
    pub key: [u8; 32],
    pub flags: u8,
    pub counter: u64,
    pub timestamp: u32,
    pub msg_type: u8,
    pub body: &'a [u8],
}

impl SessionMessage<'_> {
    pub fn seal(&self, book: &mut Book) -> Vec<u8> {
        let inner = [&self.timestamp.to_le_bytes()[..], &[self.msg_type, 0]].concat();
        let plain = [&inner, self.body].concat();
        let header = [
            &[0x00, self.flags][..],
            &(plain.len() as u16).to_le_bytes(),
            &self.counter.to_le_bytes(),
        ]
        .concat();
        book.bytes("session.inner", &inner);
        book.bytes("session.body", self.body);
        sealed("session", &self.key, self.counter, &header, &plain, book)
    }
}

/// Seals behind a header that is authenticated and sent.
fn sealed(layer: &str, key: &[u8; 32], counter: u64, header: &[u8], plain: &[u8], book: &mut Book) -> Vec<u8> {
    let sealed = seal(key, counter, header, plain);
    book.bytes(&format!("{layer}.plain"), plain);
    book.bytes(&format!("{layer}.header"), header);
    book.bytes(&format!("{layer}.nonce"), nonce(counter));
    book.bytes(&format!("{layer}.key"), key);
    book.bytes(&format!("{layer}.sealed"), &sealed);
    [header, &sealed].concat()
}

/// link.md, "SessionDatagram".
pub fn datagram(path_mtu: u16, src: &[u8; 16], dest: &[u8; 16], payload: &[u8]) -> Vec<u8> {
    [&[64][..], &path_mtu.to_le_bytes(), src, dest, payload].concat()
}

/// session.md, "SessionSetup" (phase 1) and "SessionAck" (phase 2).
pub fn setup_or_ack(phase: u8, src: &[u8; 16], dest: &[u8; 16], noise: &[u8]) -> Vec<u8> {
    let one = 1u16.to_le_bytes();
    let len = (noise.len() as u16).to_le_bytes();
    plain(phase, &[&[0][..], &one, src, &one, dest, &len, noise].concat())
}

/// session.md, "SessionMsg3".
pub fn msg3(noise: &[u8]) -> Vec<u8> {
    plain(3, &[&[0][..], &(noise.len() as u16).to_le_bytes(), noise].concat())
}

fn plain(phase: u8, body: &[u8]) -> Vec<u8> {
    [&[phase, 0][..], &(body.len() as u16).to_le_bytes(), body].concat()
}

/// link.md, "Msg1" and "Msg2".
pub fn handshake_frame(phase: u8, indices: &[u32], noise: &[u8]) -> Vec<u8> {
    let indices: Vec<u8> = indices.iter().flat_map(|index| index.to_le_bytes()).collect();
    plain(phase, &[&indices, noise].concat())
}

/// session.md, "IP packets": ports, shim and upper layer.
pub fn data_body(ip: &[u8]) -> Vec<u8> {
    let port = 256u16.to_le_bytes();
    [&port[..], &port, &[0], &ip[..4], &ip[6..8], &ip[40..]].concat()
}

/// The compressed point of a key, with its own parity.
pub fn point(secret: &SecretKey) -> [u8; 33] {
    PublicKey::from_secret_key(&Secp256k1::signing_only(), secret).serialize()
}

/// The x coordinate: the public key of a node.
pub fn x_only(secret: &SecretKey) -> [u8; 32] {
    point(secret)[1..].try_into().unwrap()
}

/// SHA-256 over the concatenation.
pub fn sha256(parts: &[&[u8]]) -> [u8; 32] {
    Sha256::digest(parts.concat()).into()
}

fn even(x: &[u8; 32]) -> Vec<u8> {
    [&[0x02][..], x].concat()
}

fn dh(secret: &SecretKey, public: &[u8]) -> [u8; 32] {
    let public = PublicKey::from_slice(public).unwrap();
    sha256(&[&shared_secret_point(&public, secret)[..32]])
}

fn nonce(counter: u64) -> [u8; 12] {
    let mut nonce = [0; 12];
    nonce[4..].copy_from_slice(&counter.to_le_bytes());
    nonce
}

pub fn seal(key: &[u8; 32], counter: u64, aad: &[u8], plain: &[u8]) -> Vec<u8> {
    let mut sealed = plain.to_vec();
    let tag = Cipher::new(&Key::from_bytes(*key)).seal_in_place(counter, aad, &mut sealed);
    sealed.extend(tag);
    sealed
}

pub fn open(key: &[u8; 32], counter: u64, aad: &[u8], sealed: &[u8]) -> Vec<u8> {
    let mut sealed = sealed.to_vec();
    let cipher = Cipher::new(&Key::from_bytes(*key));
    cipher.open_in_place(counter, aad, &mut sealed).unwrap().to_vec()
}

fn halves(out: &[u8; 64]) -> ([u8; 32], [u8; 32]) {
    let (first, second) = out.split_at(32);
    (first.try_into().unwrap(), second.try_into().unwrap())
}
