//! Tests that no secret remains in this process's memory once its owner is dropped. They read the
//! whole memory, as a core dump contains it.

#![allow(clippy::unwrap_used, reason = "tests fail by panic")]

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rand_core::{TryCryptoRng, TryRng};

use crate::aead::Cipher;
use crate::fast::{Seed, Suite};
use crate::{Established, Identity, Key, Role, SecretKey, ik, xk};

/// The bytes of a secret that is not stored: each byte is computed when it is needed.
#[derive(Clone, Copy)]
struct Source(u64);

impl Source {
    fn byte(self, at: usize) -> u8 {
        let mixed = (self.0 ^ at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed >> 40) as u8
    }
}

/// A generator that outputs `Source`, and keeps none of it.
impl TryRng for Source {
    type Error = std::convert::Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Self::Error> {
        Ok(0)
    }

    fn try_next_u64(&mut self) -> Result<u64, Self::Error> {
        Ok(0)
    }

    fn try_fill_bytes(&mut self, buf: &mut [u8]) -> Result<(), Self::Error> {
        for (at, byte) in buf.iter_mut().enumerate() {
            *byte = self.byte(at);
        }
        Ok(())
    }
}

impl TryCryptoRng for Source {}

/// A masked secret, so that the search does not find its own copy.
struct Masked([u8; 32]);

const MASK: u8 = 0xa7;

/// The size of the smallest page of memory in bytes.
const PAGE: u64 = 4096;

impl Masked {
    fn new(secret: &[u8; 32]) -> Self {
        Self::of(|at| secret[at])
    }

    fn of(byte: impl Fn(usize) -> u8) -> Self {
        Self(std::array::from_fn(|at| byte(at) ^ MASK))
    }

    fn is_at(&self, window: &[u8]) -> bool {
        window.iter().zip(&self.0).all(|(byte, masked)| byte ^ MASK == *masked)
    }
}

/// Held while a test has secrets or reads the memory. A search copies all that it reads, so a
/// search of another thread would leave a copy of secrets that are alive while it runs.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns which of the secrets are anywhere in the writable memory of this process, their bytes in
/// order or reversed.
fn found(secrets: &[(&'static str, Masked)]) -> Vec<&'static str> {
    let memory = File::open("/proc/self/mem").unwrap();
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let mut found = Vec::new();
    let mut chunk = vec![0; 1 << 20];
    for line in maps.lines().filter(|line| line.contains(" rw")) {
        let (start, end) = line.split(' ').next().unwrap().split_once('-').unwrap();
        let [start, end] = [start, end].map(|text| u64::from_str_radix(text, 16).unwrap());
        let mut at = start;
        while at < end {
            let wanted = (end - at).min(chunk.len() as u64) as usize;
            let len = memory.read_at(&mut chunk[..wanted], at).unwrap_or(0);
            for window in chunk[..len].windows(32) {
                let mut reversed = [0; 32];
                for (to, from) in reversed.iter_mut().zip(window.iter().rev()) {
                    *to = *from;
                }
                let hits = secrets.iter().filter(|(_, s)| s.is_at(window) || s.is_at(&reversed));
                found.extend(hits.map(|(name, _)| *name));
            }
            chunk[..len].fill(0);
            at += len as u64;
            if len < wanted {
                // The thread of another test has unmapped this page.
                at = (at / PAGE + 1) * PAGE;
            } else if at < end {
                // The next chunk overlaps, for secrets that cross the edge of a chunk.
                at -= 31;
            }
        }
    }
    found.sort_unstable();
    found.dedup();
    found
}

fn identities() -> [Identity; 2] {
    [Source(11), Source(12)].map(|mut rng| Identity::new(SecretKey::generate(&mut rng)))
}

fn masked_keys(established: &Established) -> Vec<(&'static str, Masked)> {
    vec![
        ("a key to send", Masked::new(established.send.as_bytes())),
        ("a key to receive", Masked::new(established.recv.as_bytes())),
        ("a chaining key", Masked::new(established.chaining_key.as_bytes())),
        (
            "an exporter",
            Masked::new(established.exporter_key(crate::fast::EXPORTER_LABEL).as_bytes()),
        ),
    ]
}

/// Uses the result of a handshake as a node does, and drops it.
fn use_keys(established: &Established) -> Vec<(&'static str, Masked)> {
    let mut secrets = masked_keys(established);
    let sealed = Cipher::new(&established.send).seal_in_place(0, &[], &mut [0; 100]);
    assert!(
        Cipher::new(&established.recv)
            .open_in_place(0, &[], &mut sealed.clone())
            .is_err()
    );
    let seed = Seed::new(established, Role::Initiator);
    for suite in Suite::ALL {
        let lane = seed.secrets(b"ours", b"theirs", suite, 0);
        let next = lane.send.next();
        for secret in [&lane.send, &lane.recv, &next] {
            secrets.push(("a secret of a phase", Masked::new(secret.as_bytes())));
            let mut buf = [0; 100];
            let _ = secret.cipher(suite).seal_in_place(1, &[], &mut buf);
        }
    }
    secrets
}

#[test]
fn the_search_finds_what_is_there() {
    let _alone = alone();
    let source = Source(1);
    let kept = Key::written(|key| *key = std::array::from_fn(|at| source.byte(at)));
    let secret = || vec![("kept", Masked::of(|at| source.byte(at)))];
    assert_eq!(found(&secret()), ["kept"]);
    drop(kept);
    assert!(found(&secret()).is_empty());
}

#[test]
fn a_link_handshake_leaves_no_secret_in_memory() {
    let _alone = alone();
    let [a, b] = identities();
    let (mut ours, mut theirs) = (Source(21), Source(22));
    let mut secrets = vec![
        ("the initiator's ephemeral key", Masked::of(|at| Source(21).byte(at))),
        ("the responder's ephemeral key", Masked::of(|at| Source(22).byte(at))),
    ];
    let (initiator, msg1) = ik::Initiator::start(&a, b.public(), [1; 8], &mut ours);
    let received = ik::Responder::read(&b, &msg1).unwrap();
    let (msg2, at_b) = received.accept([2; 8], &mut theirs);
    let at_a = initiator.finish(&msg2).unwrap();
    secrets.extend(use_keys(&at_a));
    secrets.extend(use_keys(&at_b));
    drop((initiator, at_a, at_b));
    assert_eq!(found(&secrets), Vec::<&str>::new());
}

#[test]
fn a_session_handshake_leaves_no_secret_in_memory() {
    let _alone = alone();
    let [a, b] = identities();
    let (mut ours, mut theirs) = (Source(31), Source(32));
    let mut secrets = vec![
        ("the initiator's ephemeral key", Masked::of(|at| Source(31).byte(at))),
        ("the responder's ephemeral key", Masked::of(|at| Source(32).byte(at))),
    ];
    let (waiting, msg1) = xk::Initiator::start(b.public(), &mut ours);
    let (answering, msg2) = xk::Responder::read(&b, &msg1, [2; 8], &mut theirs).unwrap();
    let (msg3, at_a) = waiting.finish(&a, &msg2, [1; 8]).unwrap();
    let at_b = answering.finish(&msg3).unwrap();
    secrets.extend(use_keys(&at_a));
    secrets.extend(use_keys(&at_b));
    drop((waiting, answering, at_a, at_b));
    assert_eq!(found(&secrets), Vec::<&str>::new());
}

#[test]
fn a_key_pair_that_is_dropped_leaves_nothing() {
    let _alone = alone();
    let key = SecretKey::generate(&mut Source(41));
    let moved = Box::new(Identity::new(key));
    let secret = || vec![("the key", Masked::of(|at| Source(41).byte(at)))];
    assert!(!found(&secret()).is_empty());
    drop(moved);
    assert_eq!(found(&secret()), Vec::<&str>::new());
}
