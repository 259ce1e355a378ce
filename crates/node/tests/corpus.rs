//! The fuzz targets `dns` and `broker` on any toolchain: the committed corpus, and the corpus with
//! bytes changed from a seed.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panic")]

use std::fs;
use std::path::{Path, PathBuf};

use rand_chacha::ChaCha20Rng;
use rand_core::{Rng as _, SeedableRng as _};
use weft_node::{broker, dns};

/// A fuzz target and its name.
type Target = (&'static str, fn(&[u8]));

const TARGETS: [Target; 2] = [("dns", dns::fuzz::dns), ("broker", broker::fuzz::broker)];

/// Names the input if the target panics.
struct Running<'a>(&'a str, &'a dyn std::fmt::Debug);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}: {:?}", self.0, self.1);
        }
    }
}

fn corpus(target: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../fuzz/corpus")
        .join(target);
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

#[test]
fn the_corpus_breaks_no_promise() {
    for (name, target) in TARGETS {
        for (path, bytes) in corpus(name) {
            let _running = Running(name, &path);
            target(&bytes);
        }
    }
}

#[test]
fn nor_does_what_a_seed_makes_of_it() {
    for (name, target) in TARGETS {
        let corpus = corpus(name);
        for seed in 0..20_000_u64 {
            let mut rng = ChaCha20Rng::seed_from_u64(seed);
            let mut below = |n: usize| rng.next_u32() as usize % n.max(1);
            let mut bytes = corpus[below(corpus.len())].1.clone();
            for _ in 0..below(5) * usize::from(!bytes.is_empty()) {
                let at = below(bytes.len());
                bytes[at] = below(256) as u8;
            }
            let _running = Running(name, &seed);
            target(&bytes);
        }
    }
}
