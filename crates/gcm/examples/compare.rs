//! Seals and opens packets here and with aws-lc in alternation; prints ns per packet, the best of
//! many rounds.
//!
//!     cargo run --release -p weft-gcm --example compare
#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a program for people to look at"
)]

use std::hint::black_box;
use std::time::Instant;

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use weft_gcm::{Aes256Gcm, NONCE_LEN, TAG_LEN};

/// Packets of a train, each in its own slot.
const SLOTS: usize = 40;
const SLOT: usize = 1_600;
const ROUNDS: usize = 400;
const AAD: [u8; 16] = [1; 16];

fn main() {
    let key = [7; 32];
    let theirs = LessSafeKey::new(UnboundKey::new(&AES_256_GCM, &key).unwrap());
    let Some(ours) = Aes256Gcm::new(&key) else {
        println!("this processor has no AES in vectors of 512 bits");
        return;
    };
    println!("bytes  seal: aws-lc  weft  copied first  from where it lies   open: aws-lc  weft   ns a packet");
    // The payloads of a super-packet, as one read of a TUN returns them.
    let read = vec![5; SLOTS * SLOT];
    for len in [22, 64, 100, 256, 600, 1_200, 1_400, 1_440] {
        let sealed = [
            best(|nonce, data| {
                let data = &mut data[..len];
                let nonce = Nonce::assume_unique_for_key(nonce);
                let _ = black_box(theirs.seal_in_place_separate_tag(nonce, Aad::from(AAD), data).unwrap());
            }),
            best(|nonce, data| {
                black_box(ours.seal(&nonce, &AAD, &mut data[..len]));
            }),
            best(|nonce, data| {
                let (data, rest) = apart(data, len, &nonce, &read);
                data[len - rest.len()..].copy_from_slice(rest);
                black_box(ours.seal(&nonce, &AAD, data));
            }),
            best(|nonce, data| {
                let (data, rest) = apart(data, len, &nonce, &read);
                black_box(ours.seal_from(&nonce, &AAD, data, rest));
            }),
        ];
        // Each is opened from a fresh copy; the time of copying is subtracted.
        let mut packet = vec![3; len];
        let tag = ours.seal(&[9; NONCE_LEN], &AAD, &mut packet);
        packet.extend_from_slice(&tag);
        let copied = best(|_, data| data[..len + TAG_LEN].copy_from_slice(&packet));
        let opened = [
            best(|_, data| {
                let data = &mut data[..len + TAG_LEN];
                data.copy_from_slice(&packet);
                let nonce = Nonce::assume_unique_for_key([9; NONCE_LEN]);
                theirs.open_in_place(nonce, Aad::from(AAD), data).unwrap();
            }),
            best(|_, data| {
                let data = &mut data[..len + TAG_LEN];
                data.copy_from_slice(&packet);
                let (data, tag) = data.split_last_chunk_mut().unwrap();
                ours.open(&[9; NONCE_LEN], &AAD, data, tag).unwrap();
            }),
        ]
        .map(|ns| ns - copied);
        println!(
            "{len:5} {:13.0} {:5.0} {:13.0} {:19.0} {:14.0} {:5.0}",
            sealed[0], sealed[1], sealed[2], sealed[3], opened[0], opened[1]
        );
    }
}

/// Returns a buffer for a message, and its last bytes inside the buffer of a TUN read: all but 42
/// bytes of headers.
fn apart<'a>(data: &'a mut [u8], len: usize, nonce: &[u8; NONCE_LEN], read: &'a [u8]) -> (&'a mut [u8], &'a [u8]) {
    let rest = len.saturating_sub(42);
    let at = usize::from(nonce[NONCE_LEN - 1]) % SLOTS * rest;
    (&mut data[..len], &read[at..at + rest])
}

fn best(mut work: impl FnMut([u8; NONCE_LEN], &mut [u8])) -> f64 {
    let mut memory = vec![1; SLOTS * SLOT];
    let mut counter = 0_u64;
    let mut least = f64::MAX;
    for _ in 0..ROUNDS {
        let began = Instant::now();
        for slot in memory.chunks_mut(SLOT) {
            counter += 1;
            let mut nonce = [0; NONCE_LEN];
            nonce[4..].copy_from_slice(&counter.to_be_bytes());
            work(nonce, slot);
            black_box(&*slot);
        }
        least = least.min(began.elapsed().as_nanos() as f64 / SLOTS as f64);
    }
    least
}
