//! The constants and vectors of docs/protocol/wireguard.md. The vectors are computed by the crate and by a reader that follows the page alone.
//! `WEFT_BLESS=1` writes them anew.
#![allow(clippy::unwrap_used, reason = "a test ends where its ground is missing")]

use std::fmt::Write as _;

use blake2::digest::{Digest as _, FixedOutput as _, KeyInit as _, Mac as _, consts::U16};
use blake2::{Blake2s256, Blake2sMac};
use chacha20poly1305::aead::{Aead as _, Payload};
use chacha20poly1305::{ChaCha20Poly1305, Nonce, XChaCha20Poly1305, XNonce};
use rand_core::{TryCryptoRng, TryRng};
use weft_wireguard::cookie::{COOKIE_LIFE, Jar, Labels, Oven};
use weft_wireguard::handshake::{Opening, Own, Remote, begin};
use weft_wireguard::interface;
use weft_wireguard::keys::{PresharedKey, PrivateKey, PublicKey};
use weft_wireguard::transport::{REJECT_AFTER_MESSAGES, Session};

const INDICES: [u32; 2] = [0x1112_1314, 0x2122_2324];
const TIME: [u8; 12] = [0x40, 0, 0, 0, 0x65, 0x53, 0xf1, 0x0a, 0, 0, 0, 0];

/// Gives one byte for ever.
struct Same(u8);

impl TryRng for Same {
    type Error = std::convert::Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Self::Error> {
        Ok(u32::from_ne_bytes([self.0; 4]))
    }

    fn try_next_u64(&mut self) -> Result<u64, Self::Error> {
        Ok(u64::from_ne_bytes([self.0; 8]))
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Self::Error> {
        bytes.fill(self.0);
        Ok(())
    }
}

impl TryCryptoRng for Same {}

fn hash(parts: &[&[u8]]) -> [u8; 32] {
    Blake2s256::digest(parts.concat()).into()
}

/// RFC 2104 by hand.
fn hmac(key: &[u8], message: &[u8]) -> [u8; 32] {
    let mut block = [0; 64];
    block[..key.len()].copy_from_slice(key);
    let inner = hash(&[&block.map(|byte| byte ^ 0x36), message]);
    hash(&[&block.map(|byte| byte ^ 0x5c), &inner])
}

fn kdf<const N: usize>(chain: &[u8], input: &[u8]) -> [[u8; 32]; N] {
    let secret = hmac(chain, input);
    let mut last = Vec::new();
    std::array::from_fn(|number| {
        last = hmac(&secret, &[&last[..], &[number as u8 + 1]].concat()).to_vec();
        last.clone().try_into().unwrap()
    })
}

fn mac(key: &[u8], message: &[u8]) -> [u8; 16] {
    let mut state = Blake2sMac::<U16>::new_from_slice(key).unwrap();
    state.update(message);
    state.finalize_fixed().into()
}

fn seal(key: &[u8; 32], counter: u64, bytes: &[u8], with: &[u8]) -> Vec<u8> {
    let nonce = [&[0; 4][..], &counter.to_le_bytes()].concat();
    let nonce = Nonce::try_from(&nonce[..]).unwrap();
    let payload = Payload { msg: bytes, aad: with };
    ChaCha20Poly1305::new(key.into()).encrypt(&nonce, payload).unwrap()
}

fn dh(private: &PrivateKey, public: &PublicKey) -> [u8; 32] {
    *private.agree(public).unwrap().as_bytes()
}

/// The page's handshake: both messages before their MACs, and the keys of the initiator.
fn handshake(keys: &[PrivateKey; 4], preshared: &[u8; 32]) -> (Vec<u8>, Vec<u8>, [[u8; 32]; 2]) {
    let [own, other, e_own, e_other] = keys;
    let [p_own, p_other, pe_own, pe_other] = [own, other, e_own, e_other].map(PrivateKey::public);
    let mut c = hash(&[b"Noise_IKpsk2_25519_ChaChaPoly_BLAKE2s"]);
    let mut h = hash(&[&hash(&[&c, b"WireGuard v1 zx2c4 Jason@zx2c4.com"]), p_other.as_bytes()]);
    [c] = kdf(&c, pe_own.as_bytes());
    h = hash(&[&h, pe_own.as_bytes()]);
    let [next, k1] = kdf(&c, &dh(e_own, &p_other));
    let fixed = seal(&k1, 0, p_own.as_bytes(), &h);
    h = hash(&[&h, &fixed]);
    let [next, k2] = kdf(&next, &dh(own, &p_other));
    let time = seal(&k2, 0, &TIME, &h);
    h = hash(&[&h, &time]);
    let [first, second] = INDICES.map(u32::to_le_bytes);
    let initiation = [&[1, 0, 0, 0][..], &first, pe_own.as_bytes(), &fixed, &time].concat();
    [c] = kdf(&next, pe_other.as_bytes());
    h = hash(&[&h, pe_other.as_bytes()]);
    [c] = kdf(&c, &dh(e_other, &pe_own));
    [c] = kdf(&c, &dh(e_other, &p_own));
    let [c, t, k3] = kdf(&c, preshared);
    let empty = seal(&k3, 0, &[], &hash(&[&h, &t]));
    let response = [&[2, 0, 0, 0][..], &second, &first, pe_other.as_bytes(), &empty].concat();
    (initiation, response, kdf(&c, &[]))
}

fn signed(message: &[u8], receiver: &PublicKey, cookie: Option<[u8; 16]>) -> Vec<u8> {
    let label = hash(&[b"mac1----", receiver.as_bytes()]);
    let mut message = message.to_vec();
    message.extend_from_slice(&mac(&label, &message));
    let mac2 = cookie.map_or([0; 16], |cookie| mac(&cookie, &message));
    [&message[..], &mac2].concat()
}

/// The cookie of 192.0.2.1:51820 under a secret of bytes 08, and the reply with it to a message.
fn cookie_reply(message: &[u8], from: &PublicKey) -> ([u8; 16], Vec<u8>) {
    let cookie = mac(&[8; 32], &[192, 0, 2, 1, 0xca, 0x6c]);
    let label = hash(&[b"cookie--", from.as_bytes()]);
    let mac1 = &message[message.len() - 32..message.len() - 16];
    let (nonce, payload) = (
        XNonce::from([8; 24]),
        Payload {
            msg: &cookie,
            aad: mac1,
        },
    );
    let sealed = XChaCha20Poly1305::new(&label.into()).encrypt(&nonce, payload).unwrap();
    let reply = [&[3, 0, 0, 0][..], &INDICES[0].to_le_bytes(), &nonce, &sealed].concat();
    (cookie, reply)
}

#[test]
fn the_vectors_are_what_the_page_and_the_code_say() {
    let keys = [1, 2, 3, 4].map(|byte| match byte {
        1 | 2 => PrivateKey::from_bytes([byte; 32]),
        _ => PrivateKey::generate(&mut Same(byte)),
    });
    let [own, other] = [&keys[0], &keys[1]].map(|key| Own::new(key.clone()));
    let preshared = || Some(PresharedKey::from_bytes([5; 32]));
    let to_other = Remote::new(&own, *other.public(), preshared()).unwrap();
    let to_own = Remote::new(&other, *own.public(), preshared()).unwrap();

    let (initiation, response, [sends, receives]) = handshake(&keys, &[5; 32]);
    let (initiating, first) = begin(&own, &to_other, (INDICES[0], TIME), &mut Same(3)).unwrap();
    assert_eq!(first.to_bytes(), initiation);
    let proven = Opening::read(&other, &first).unwrap().prove(&to_own).unwrap();
    assert_eq!(proven.timestamp(), &TIME);
    let (theirs, second) = proven.answer(&to_own, INDICES[1], &mut Same(4)).unwrap();
    assert_eq!(second.to_bytes(), response);
    let ours = initiating.finish(&own, &to_other, &second).unwrap();
    for (key, expected) in [(&ours.send, sends), (&ours.receive, receives), (&theirs.receive, sends)] {
        assert_eq!(key.as_bytes(), &expected);
    }

    let datagram = signed(&initiation, other.public(), None);
    let mut by_crate = first.to_bytes();
    Jar::new(other.public()).sign(0, &mut by_crate);
    assert_eq!(by_crate, datagram);

    let from = ("192.0.2.1:51820".parse().unwrap(), INDICES[0]);
    let (cookie, reply) = cookie_reply(&datagram, other.public());
    let labels = Labels::new(other.public());
    let by_crate = Oven::new().reply(0, from, &datagram, &labels, &mut Same(8)).unwrap();
    assert_eq!(by_crate.to_bytes(), reply);
    let mut jar = Jar::new(other.public());
    jar.sign(0, &mut first.to_bytes());
    assert!(jar.take(0, &by_crate));
    let mut by_crate = first.to_bytes();
    jar.sign(0, &mut by_crate);
    let with_cookie = signed(&initiation, other.public(), Some(cookie));
    assert_eq!(by_crate, with_cookie);
    assert!(Oven::new().proves(0, from.0, &by_crate, &mut Same(8)));
    let mut by_crate = second.to_bytes();
    Jar::new(own.public()).sign(0, &mut by_crate);
    let answer = signed(&response, own.public(), None);
    assert_eq!(by_crate, answer);

    let packet = [0x45; 20];
    let mut data = Vec::new();
    Session::new(&ours).seal(&packet, 1_420, &mut data).unwrap();
    let filled = [&packet[..], &[0; 12]].concat();
    let header = [&[4, 0, 0, 0][..], &INDICES[1].to_le_bytes(), &[0; 8]].concat();
    assert_eq!(data, [header, seal(&sends, 0, &filled, &[])].concat());

    let mut page = String::new();
    let mut line = |name: &str, bytes: &[u8]| writeln!(page, "{name} {} {}", bytes.len(), hex(bytes)).unwrap();
    line("i.public", own.public().as_bytes());
    line("r.public", other.public().as_bytes());
    line("initiation", &datagram);
    line("cookie_reply", &reply);
    line("initiation.with_cookie", &with_cookie);
    line("response", &answer);
    line("i.sends_with", &sends);
    line("i.receives_with", &receives);
    line("packet", &packet);
    line("data", &data);
    compare(&page);
}

/// The page's tables of constants.
#[test]
fn the_constants_are_those_of_the_page() {
    let page = include_str!("../../../docs/protocol/wireguard.md");
    let rate = |rate: weft_contract::Rate| format!("{}, {}/s", thousands(rate.burst), thousands(rate.per_second));
    let rows = [
        ("REKEY_AFTER", thousands(interface::REKEY_AFTER)),
        ("REJECT_AFTER", thousands(interface::REJECT_AFTER)),
        ("REKEY_TIMEOUT", thousands(interface::REKEY_TIMEOUT)),
        ("JITTER", thousands(interface::JITTER)),
        ("ATTEMPTS", thousands(interface::ATTEMPTS)),
        ("KEEPALIVE", thousands(interface::KEEPALIVE)),
        ("UNPROVEN", rate(interface::UNPROVEN)),
        ("PROVEN", rate(interface::PROVEN)),
        ("MAX_PROVEN", thousands(interface::MAX_PROVEN as u64)),
        ("REPLIES", rate(interface::REPLIES)),
        ("ALL_PROVEN", rate(interface::ALL_PROVEN)),
        ("RESPONSES", rate(interface::RESPONSES)),
    ];
    for (name, value) in rows {
        let unit = if value.ends_with("/s") { " (burst, rate)" } else { "" };
        let row = format!("| `interface::{name}`{unit} | {value} |");
        assert!(page.contains(&row), "{row}");
    }
    assert!(page.contains(&format!("one in {} ms (`interface::FLOOD`)", interface::FLOOD)));
    assert!(page.contains(&format!("each {} s (`cookie::COOKIE_LIFE`)", COOKIE_LIFE / 1_000)));
    assert!(page.contains(&format!("window of {}", thousands(weft_noise::replay::WINDOW))));
    assert!(page.contains(&format!("`interface::ASTRAY` is {}", interface::ASTRAY)));
    assert_eq!(REJECT_AFTER_MESSAGES, u64::MAX - (1 << 13));
    assert!(page.contains("2^64 - 2^13 - 1 on (`transport::REJECT_AFTER_MESSAGES`)"));
}

fn thousands(number: u64) -> String {
    match number {
        0..1_000 => number.to_string(),
        _ => format!("{},{:03}", number / 1_000, number % 1_000),
    }
}

fn hex(bytes: &[u8]) -> String {
    data_encoding::HEXLOWER.encode(bytes)
}

fn compare(fresh: &str) {
    const START: &str = "```text\nname length bytes\n";
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/protocol/wireguard.md");
    let page = std::fs::read_to_string(path).unwrap();
    let (before, committed) = page.split_once(START).unwrap();
    if std::env::var_os("WEFT_BLESS").is_some() {
        std::fs::write(path, format!("{before}{START}{fresh}```\n")).unwrap();
        return;
    }
    assert_eq!(
        committed,
        format!("{fresh}```\n"),
        "WEFT_BLESS=1 writes the vectors anew"
    );
}
