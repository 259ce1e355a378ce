//! Two ends and a link between them that loses, repeats and reorders.
#![allow(dead_code, reason = "each test program uses a part")]

use std::collections::BTreeMap;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng as _, SeedableRng as _};
use weft_stream::{Documents, Limits, Output, PORT};

/// What an end is called in these tests.
pub(crate) type Peer = u8;

/// What a link does to segments, in per cent, and its delay in ms.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Faults {
    pub(crate) loss: u32,
    pub(crate) repeat: u32,
    pub(crate) reorder: u32,
    pub(crate) delay: u64,
}

/// Ends of a service, each of which is linked with each other.
pub(crate) struct Net {
    pub(crate) now: u64,
    pub(crate) faults: Faults,
    /// Nothing passes at these times.
    pub(crate) cut: std::ops::Range<u64>,
    pub(crate) ends: BTreeMap<Peer, Documents<Peer>>,
    /// What ends reported, with the time.
    pub(crate) reports: Vec<(u64, Peer, Output<Peer>)>,
    pub(crate) segments: u64,
    on_way: BTreeMap<(u64, u64), (Peer, Peer, Vec<u8>)>,
    sent: u64,
    rng: ChaCha8Rng,
}

impl Net {
    pub(crate) fn new(seed: u64, faults: Faults, peers: &[Peer]) -> Self {
        let mut net = Self {
            now: 1_000,
            faults,
            cut: 0..0,
            ends: BTreeMap::new(),
            reports: Vec::new(),
            segments: 0,
            on_way: BTreeMap::new(),
            sent: 0,
            rng: ChaCha8Rng::seed_from_u64(seed),
        };
        for peer in peers {
            net.restart(*peer);
        }
        net
    }

    /// Starts an end, or starts it again without any state.
    pub(crate) fn restart(&mut self, peer: Peer) {
        let mut seed = [0; 16];
        self.rng.fill_bytes(&mut seed);
        self.ends.insert(peer, Documents::new(PORT, Limits::default(), seed));
    }

    pub(crate) fn end(&mut self, peer: Peer) -> &mut Documents<Peer> {
        self.ends.get_mut(&peer).unwrap()
    }

    fn percent(&mut self, percent: u32) -> bool {
        self.rng.next_u32() % 100 < percent
    }

    pub(crate) fn put(&mut self, from: Peer, to: Peer, bytes: &[u8]) {
        self.segments += 1;
        if self.cut.contains(&self.now) || self.percent(self.faults.loss) {
            return;
        }
        let copies = 1 + u32::from(self.percent(self.faults.repeat));
        for _ in 0..copies {
            let late = if self.percent(self.faults.reorder) {
                u64::from(self.rng.next_u32() % 60)
            } else {
                0
            };
            self.sent += 1;
            let at = self.now + self.faults.delay + late;
            self.on_way.insert((at, self.sent), (from, to, bytes.to_vec()));
        }
    }

    /// Moves outputs of all ends to the link and to the reports.
    pub(crate) fn collect(&mut self) {
        let peers: Vec<Peer> = self.ends.keys().copied().collect();
        for from in peers {
            while let Some(output) = self.end(from).poll_output() {
                match output {
                    Output::Segment { peer, bytes } => self.put(from, peer, &bytes),
                    report => self.reports.push((self.now, from, report)),
                }
            }
        }
    }

    /// Runs until `until`, or until nothing is left to do. Returns whether something is.
    pub(crate) fn run(&mut self, until: u64) -> bool {
        loop {
            self.collect();
            let arrival = self.on_way.keys().next().map(|(at, _)| *at);
            let timeout = self.ends.values().filter_map(Documents::poll_timeout).min();
            let Some(next) = arrival.into_iter().chain(timeout).min() else {
                return false;
            };
            if next >= until {
                self.now = until;
                return true;
            }
            assert!(next >= self.now || timeout == Some(next), "time goes back");
            self.now = self.now.max(next);
            let now = self.now;
            while let Some(entry) = self.on_way.first_entry().filter(|entry| entry.key().0 <= now) {
                let (from, to, bytes) = entry.remove();
                if let Some(end) = self.ends.get_mut(&to) {
                    end.handle_segment(now, from, &bytes);
                }
                self.collect();
            }
            for end in self.ends.values_mut() {
                end.handle_timeout(now);
                assert!(end.poll_timeout().is_none_or(|at| at > now), "a timer stays due");
            }
        }
    }

    /// Runs until nothing is left to do, and checks that nothing is held then.
    pub(crate) fn finish(&mut self) {
        assert!(!self.run(self.now + 3_600_000), "not over after an hour");
        for end in self.ends.values() {
            assert_eq!((end.held(), end.connections()), ((0, 0), (0, 0)));
        }
    }

    /// Returns the documents that `at` received from `from`.
    pub(crate) fn received(&self, at: Peer, from: Peer) -> Vec<&[u8]> {
        let reports = self.reports.iter().filter(|report| report.1 == at);
        reports
            .filter_map(|(_, _, report)| match report {
                Output::Received { peer, document } if *peer == from => Some(document.as_slice()),
                _ => None,
            })
            .collect()
    }
}

/// Returns a document of `len` bytes that says something else at each place.
pub(crate) fn document(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    ChaCha8Rng::seed_from_u64(seed).fill_bytes(&mut bytes);
    bytes
}
