//! Documents between this crate and the other implementation of TCP/FIPS v1, nvpn-fips-tcp.

#![allow(clippy::unwrap_used, reason = "a test ends where its ground is missing")]

use std::collections::BTreeMap;

use fips_tcp::{Config, ConnectionId, Stack, State};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng as _, SeedableRng as _};
use weft_stream::{Documents, Limits, Output, PORT};

/// Our end is 1, theirs is 2.
struct Pair {
    now: u64,
    loss: u32,
    ours: Documents<u8>,
    theirs: Stack<u8>,
    /// Segments on their way: to which end.
    on_way: BTreeMap<(u64, u64), (u8, Vec<u8>)>,
    count: u64,
    rng: ChaCha8Rng,
    reports: Vec<Output<u8>>,
    /// What arrives at their end, by connection, and whether it is whole.
    reading: BTreeMap<u64, (ConnectionId, Vec<u8>, bool)>,
}

impl Pair {
    fn new(seed: u64, loss: u32) -> Self {
        // Theirs counts retries, not time.
        let config = Config {
            max_retransmissions: u8::MAX,
            max_rto_ms: 2_000,
            ..Config::default()
        };
        let mut theirs = Stack::new(config, seed + 1);
        theirs.listen(PORT).unwrap();
        Self {
            now: 0,
            loss,
            ours: Documents::new(PORT, Limits::default(), [9; 16]),
            theirs,
            on_way: BTreeMap::new(),
            count: 0,
            rng: ChaCha8Rng::seed_from_u64(seed),
            reports: Vec::new(),
            reading: BTreeMap::new(),
        }
    }

    fn put(&mut self, to: u8, bytes: Vec<u8>) {
        if self.rng.next_u32() % 100 >= self.loss {
            self.count += 1;
            self.on_way.insert((self.now + 20, self.count), (to, bytes));
        }
    }

    fn collect(&mut self) {
        while let Some(id) = self.theirs.accept(PORT) {
            self.reading.insert(id.get(), (id, Vec::new(), false));
        }
        for (id, bytes, whole) in self.reading.values_mut().filter(|reading| !reading.2) {
            if let Ok(read) = self.theirs.read(*id, usize::MAX, self.now) {
                bytes.extend(read);
                *whole = self.theirs.is_read_closed(*id);
                if *whole {
                    self.theirs.close(*id, self.now).unwrap();
                }
            }
        }
        for outbound in self.theirs.drain_outbound() {
            self.put(1, outbound.bytes);
        }
        while let Some(output) = self.ours.poll_output() {
            match output {
                Output::Segment { bytes, .. } => self.put(2, bytes),
                report => self.reports.push(report),
            }
        }
    }

    /// Goes to the next moment. Returns whether there is one.
    fn step(&mut self) -> bool {
        self.collect();
        let arrival = self.on_way.keys().next().map(|(at, _)| *at);
        let timeouts = [self.ours.poll_timeout(), self.theirs.next_poll_at(self.now)];
        let Some(next) = timeouts.into_iter().flatten().chain(arrival).min() else {
            return false;
        };
        self.now = self.now.max(next);
        while let Some(entry) = self.on_way.first_entry().filter(|entry| entry.key().0 <= self.now) {
            let (to, bytes) = entry.remove();
            if to == 1 {
                self.ours.handle_segment(self.now, 2, &bytes);
            } else {
                self.theirs.input(1, &bytes, self.now).unwrap();
            }
            self.collect();
        }
        self.ours.handle_timeout(self.now);
        self.theirs.poll(self.now);
        true
    }

    fn run(&mut self) {
        while self.step() {
            assert!(self.now < 1_000_000, "not over");
        }
    }
}

fn document(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * i / 7) as u8).collect()
}

#[test]
fn our_documents_arrive_there() {
    for (seed, loss) in [(1, 0), (2, 0), (3, 5), (4, 5), (5, 15), (6, 25)] {
        for len in [1, 1_024, 5_000, 128 << 10] {
            let mut pair = Pair::new(seed, loss);
            let id = pair.ours.send(0, 2, document(len)).unwrap();
            pair.run();
            assert_eq!(pair.reports, [Output::Sent { peer: 2, id }], "{loss} % of {len}");
            let read: Vec<_> = pair.reading.values().collect();
            assert!(
                read.len() == 1 && read[0].2 && read[0].1 == document(len),
                "{loss} % of {len}"
            );
            assert_eq!(pair.ours.connections(), (0, 0));
        }
    }
}

#[test]
fn their_documents_arrive_here() {
    for (seed, loss) in [(1, 0), (2, 0), (3, 5), (4, 5), (5, 15), (6, 25)] {
        for len in [1, 1_024, 5_000, 128 << 10] {
            let mut pair = Pair::new(seed, loss);
            let id = pair.theirs.connect(1, PORT, 0).unwrap();
            let document = document(len);
            let mut written = 0;
            while written < len {
                pair.collect();
                if pair.theirs.state(id) == Some(State::Established) {
                    written += pair.theirs.write(id, &document[written..], pair.now).unwrap();
                    pair.theirs.close(id, pair.now).unwrap();
                } else {
                    pair.step();
                }
            }
            pair.run();
            assert_eq!(
                pair.reports,
                [Output::Received { peer: 2, document }],
                "{loss} % of {len}"
            );
            assert_eq!(pair.ours.connections(), (0, 0));
        }
    }
}
