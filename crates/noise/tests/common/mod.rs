//! Shared parts of the handshake tests.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used, reason = "test helpers")]

use std::{collections::BTreeMap, convert::Infallible};

use rand_core::{TryCryptoRng, TryRng};
use weft_noise::{Established, Identity, SecretKey, aead::Cipher};

/// Static secret keys whose public keys have even and odd parity: two nodes of each.
pub const EVEN: [&str; 2] = [
    "1b9a5cb6fef645d9aa954a328982938a3abcfd8f9877b36bb00e41c46853b5f8",
    "de2f3bccdab4470c4f74e52518a734ac25a2595824a86a482be0906955591baf",
];
/// See [`EVEN`].
pub const ODD: [&str; 2] = [
    "bf1e48c224d04ef5bb230f33da547e8890c6e72db903116529a8e6e6a9bcc5ea",
    "aea7d4da7415a76d3c0657e5ebdadae5849a6bd8ba9154dacdc58b56bd6b5af3",
];

/// Every combination of parities: (initiator, responder).
pub fn pairs() -> impl Iterator<Item = (Identity, Identity)> {
    [EVEN[0], ODD[0]]
        .into_iter()
        .flat_map(|a| [EVEN[1], ODD[1]].into_iter().map(move |b| (identity(a), identity(b))))
}

pub fn identity(secret: &str) -> Identity {
    Identity::new(SecretKey::from_bytes(&bytes(secret)).unwrap())
}

pub fn bytes<const N: usize>(hex: &str) -> [u8; N] {
    hex::decode(hex).unwrap().try_into().unwrap()
}

/// A generator that returns one ephemeral key.
pub struct Ephemeral(pub [u8; 32]);

impl TryRng for Ephemeral {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        unreachable!("keys are drawn as 32 bytes")
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        unreachable!("keys are drawn as 32 bytes")
    }

    fn try_fill_bytes(&mut self, to: &mut [u8]) -> Result<(), Infallible> {
        to.copy_from_slice(&self.0);
        Ok(())
    }
}

impl TryCryptoRng for Ephemeral {}

/// The cases of `vectors/fips.txt` of one kind.
pub fn vectors(case: &str) -> Vec<BTreeMap<&'static str, &'static str>> {
    let blocks = include_str!("../vectors/fips.txt").split("\n\n").map(|block| {
        let lines = block.lines().filter(|line| !line.starts_with('#'));
        lines.map(|line| line.split_once(' ').unwrap()).collect()
    });
    blocks
        .filter(|block: &BTreeMap<_, _>| block.get("case") == Some(&case))
        .collect()
}

/// Whether both ends hold the same keys, crosswise.
pub fn keys_match(a: &Established, b: &Established) -> bool {
    a.send.as_bytes() == b.recv.as_bytes()
        && a.recv.as_bytes() == b.send.as_bytes()
        && a.send.as_bytes() != a.recv.as_bytes()
}

/// Whether both ends have the same transcript.
pub fn transcripts_match(a: &Established, b: &Established) -> bool {
    let labels = [&b"weft fast 1"[..], b"", b"other"];
    a.handshake_hash == b.handshake_hash && labels.iter().all(|label| a.exporter(label) == b.exporter(label))
}

/// `plain` as the first frame under a key, in hexadecimal.
pub fn seal(established: &Established, plain: &[u8]) -> String {
    let mut frame = plain.to_vec();
    let tag = Cipher::new(&established.send).seal_in_place(0, b"header", &mut frame);
    frame.extend(tag);
    hex::encode(frame)
}

/// The plaintext of the first frame from the peer.
pub fn open(established: &Established, frame: &str) -> Vec<u8> {
    let mut frame = hex::decode(frame).unwrap();
    Cipher::new(&established.recv)
        .open_in_place(0, b"header", &mut frame)
        .unwrap()
        .to_vec()
}

/// All near misses of `message`: each shorter length, one byte more, each bit flipped.
///
/// With `ephemeral`, the message starts with an ephemeral key, and the bit of its parity stays:
/// FIPS does not authenticate that one.
pub fn damaged(message: &[u8], ephemeral: bool) -> Vec<Vec<u8>> {
    let mut all: Vec<Vec<u8>> = (0..message.len()).map(|len| message[..len].to_vec()).collect();
    all.push([message, &[0]].concat());
    for bit in usize::from(ephemeral)..message.len() * 8 {
        let mut flipped = message.to_vec();
        flipped[bit / 8] ^= 1 << (bit % 8);
        all.push(flipped);
    }
    all
}

/// The message with the parity of its ephemeral key flipped.
pub fn other_parity<const N: usize>(mut message: [u8; N]) -> [u8; N] {
    message[0] ^= 1;
    message
}
