//! The fuzz targets on any toolchain: the committed corpus, and inputs from a seed, half of them
//! random, the others the corpus with bytes changed.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test ends where its ground is missing"
)]

use std::fs;
use std::path::{Path, PathBuf};

use rand_chacha::ChaCha20Rng;
use rand_core::{Rng, SeedableRng};
use weft_fuzz::{TARGETS, Target};

/// Reports the input when a target panics.
struct Running<'a>(&'a str, &'a dyn std::fmt::Debug);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}: {:?}", self.0, self.1);
        }
    }
}

fn target(name: &str) -> Target {
    let found = TARGETS.iter().find(|(known, _)| *known == name);
    found.unwrap_or_else(|| panic!("no target is called {name}")).1
}

fn corpus(name: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../fuzz/corpus")
        .join(name);
    let mut files: Vec<PathBuf> = fs::read_dir(&directory)
        .unwrap_or_else(|error| panic!("{}: {error}", directory.display()))
        .map(|entry| entry.unwrap().path())
        .collect();
    assert!(!files.is_empty(), "{} is empty", directory.display());
    files.sort();
    files
        .into_iter()
        .map(|path| (path.clone(), fs::read(path).unwrap()))
        .collect()
}

fn replay(name: &str) {
    for (path, bytes) in corpus(name) {
        let _running = Running(name, &path);
        target(name)(&bytes);
    }
}

fn below(rng: &mut ChaCha20Rng, n: usize) -> usize {
    rng.next_u32() as usize % n.max(1)
}

/// Runs `count` inputs, the random ones of up to `max` bytes.
fn random(name: &str, count: u64, max: usize) {
    let corpus = corpus(name);
    for seed in 0..count {
        let mut rng = ChaCha20Rng::seed_from_u64(seed);
        let mut bytes = if seed % 2 == 0 {
            let mut bytes = vec![0; below(&mut rng, max + 1)];
            rng.fill_bytes(&mut bytes);
            bytes
        } else {
            corpus[below(&mut rng, corpus.len())].1.clone()
        };
        for _ in 0..below(&mut rng, 5) * usize::from(!bytes.is_empty()) {
            let at = below(&mut rng, bytes.len());
            bytes[at] = rng.next_u32() as u8;
        }
        let _running = Running(name, &seed);
        target(name)(&bytes);
    }
}

#[test]
fn every_target_has_a_test() {
    let names: Vec<_> = TARGETS.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, TESTED);
}

macro_rules! tests {
    ($($name:ident: $count:literal of up to $max:literal bytes;)*) => {
        const TESTED: &[&str] = &[$(stringify!($name)),*];

        $(mod $name {
            #[test]
            fn replays_its_corpus() {
                super::replay(stringify!($name));
            }

            #[test]
            fn takes_what_a_seed_makes() {
                super::random(stringify!($name), $count, $max);
            }
        })*
    };
}

tests! {
    wire: 5_000 of up to 400 bytes;
    split: 5_000 of up to 300 bytes;
    coalesce: 3_000 of up to 400 bytes;
    lane: 2_000 of up to 600 bytes;
    fast: 1_500 of up to 600 bytes;
    rules: 3_000 of up to 300 bytes;
    core: 3000 of up to 300 bytes;
    mesh: 150 of up to 300 bytes;
    handshake: 60 of up to 300 bytes;
    stream: 3_000 of up to 500 bytes;
    lan: 3_000 of up to 300 bytes;
    mdns: 10_000 of up to 600 bytes;
    lifetime: 3_000 of up to 600 bytes;
    roster: 3_000 of up to 300 bytes;
    document: 3_000 of up to 400 bytes;
    reach: 5_000 of up to 400 bytes;
    nostr: 3_000 of up to 400 bytes;
    nvpn: 3_000 of up to 400 bytes;
    wg_config: 10_000 of up to 400 bytes;
    wireguard: 300 of up to 200 bytes;
    gateway: 10_000 of up to 400 bytes;
    dns: 40_000 of up to 600 bytes;
    broker: 40_000 of up to 600 bytes;
    transfer: 10_000 of up to 400 bytes;
}
