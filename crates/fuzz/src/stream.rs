//! The fuzz target of documents.

use std::collections::{BTreeMap, BTreeSet};

use weft_stream::segment::{Flags, Segment};
use weft_stream::{DocumentId, Documents, Limits, Output, PORT};

use super::input::Input;

/// The ends. The last one follows no rule.
const ENDS: [u8; 2] = [0, 1];
const HOSTILE: u8 = 2;
const LIMITS: Limits = Limits {
    document: 20_000,
    peer_connections: 3,
    connections: 8,
    peer_bytes: 40_000,
    bytes: 60_000,
    send_bytes: 100_000,
    connect_ms: 35_000,
    half_open_ms: 10_000,
    progress_ms: 40_000,
    total_ms: 600_000,
    close_ms: 10_000,
    mss: 512,
};

struct World {
    now: u64,
    ends: Vec<Documents<u8>>,
    /// Segments on their way: from, to, bytes.
    on_way: Vec<(u8, u8, Vec<u8>)>,
    /// What arrived at the hostile peer, from which end.
    seen: Vec<(u8, Vec<u8>)>,
    /// The documents that were sent, by number, and those that arrived.
    sent: u32,
    arrived: BTreeSet<u32>,
    /// Documents that have not ended: by end.
    open: BTreeMap<(u8, DocumentId), u32>,
}

/// A document says who it is from, which one it is, and the rest follows from that.
fn document(from: u8, number: u32, len: usize) -> Vec<u8> {
    let mut bytes = vec![from];
    bytes.extend(number.to_le_bytes());
    bytes.extend((0..len as u32).map(|i| (i.wrapping_mul(number.wrapping_add(7)) >> 3) as u8));
    bytes
}

impl World {
    fn end(&mut self, end: u8) -> &mut Documents<u8> {
        &mut self.ends[usize::from(end)]
    }

    fn send(&mut self, from: u8, to: u8, len: usize) {
        let (now, number) = (self.now, self.sent);
        let bytes = document(from, number, len);
        if let Ok(id) = self.end(from).send(now, to, bytes) {
            self.open.insert((from, id), number);
            self.sent += 1;
        }
        self.collect();
    }

    fn arrive(&mut self, from: u8, to: u8, bytes: &[u8]) {
        let now = self.now;
        if to == HOSTILE {
            self.seen.push((from, bytes.to_vec()));
        } else {
            self.end(to).handle_segment(now, from, bytes);
            self.collect();
        }
    }

    fn collect(&mut self) {
        for end in ENDS {
            while let Some(output) = self.end(end).poll_output() {
                self.report(end, output);
            }
            let documents = self.end(end);
            let (arriving, leaving) = documents.held();
            assert!(
                arriving <= LIMITS.bytes && leaving <= LIMITS.send_bytes,
                "{arriving}, {leaving}"
            );
            let (incoming, outgoing) = documents.connections();
            assert!(incoming <= LIMITS.connections && outgoing <= LIMITS.connections);
        }
    }

    fn report(&mut self, end: u8, output: Output<u8>) {
        match output {
            Output::Segment { peer, bytes } => {
                assert!(Segment::parse(&bytes).is_ok() && bytes.len() <= 28 + usize::from(LIMITS.mss));
                self.on_way.push((end, peer, bytes));
            }
            Output::Received { peer, document: bytes } => {
                assert!(bytes.len() <= LIMITS.document);
                if peer != HOSTILE {
                    let number = u32::from_le_bytes(bytes[1..5].try_into().unwrap());
                    assert_eq!(bytes, document(peer, number, bytes.len() - 5), "altered");
                    assert!(self.arrived.insert(number), "document {number} arrived twice");
                }
            }
            Output::Sent { peer, id } => {
                let number = self.open.remove(&(end, id)).unwrap();
                assert!(
                    peer == HOSTILE || self.arrived.contains(&number),
                    "acknowledged, and not there"
                );
            }
            Output::Failed { id, .. } => assert!(self.open.remove(&(end, id)).is_some(), "ended twice"),
            Output::Incomplete { bytes, .. } => assert!(bytes <= LIMITS.document),
        }
    }

    fn pass(&mut self, time: u64) {
        self.now += time;
        let now = self.now;
        for end in ENDS {
            let documents = self.end(end);
            documents.handle_timeout(now);
            assert!(documents.poll_timeout().is_none_or(|at| at > now), "a timer stays due");
        }
        self.collect();
    }

    /// A segment of the peer that follows no rule: its own idea, or an answer to what it has seen.
    fn forge(&mut self, input: &mut Input<'_>) {
        let to = ENDS[input.below(2)];
        let choice = input.u8();
        let seen = input.latest(&self.seen).cloned();
        let bytes = input.bytes();
        let flags = [Flags::NONE, Flags::SYN, Flags::FIN, Flags::RST, Flags::SYN | Flags::FIN];
        let mut segment = Segment {
            source: 1 + u16::from(input.u8() % 8),
            destination: PORT,
            sequence: input.u32(),
            acknowledgment: None,
            flags: flags[usize::from(choice) % flags.len()],
            window: input.u16(),
            mss: (choice & 0x80 == 0).then_some(512),
            version: Some(1),
            payload: bytes,
        };
        let mut to = to;
        let answered = seen
            .as_ref()
            .and_then(|(from, bytes)| Some((*from, Segment::parse(bytes).ok()?)));
        if let Some((from, cause)) = answered.filter(|_| choice & 0x40 == 0) {
            to = from;
            (segment.source, segment.destination) = (cause.destination, cause.source);
            let offset = u32::from(input.u16());
            segment.sequence = cause.acknowledgment.unwrap_or(segment.sequence).wrapping_add(offset);
            segment.acknowledgment = Some(
                cause
                    .sequence
                    .wrapping_add(cause.numbers())
                    .wrapping_sub(u32::from(input.u8())),
            );
        }
        let mut bytes = segment.emit();
        if choice & 0x20 != 0 {
            input.spoil(&mut bytes);
        }
        self.arrive(HOSTILE, to, &bytes);
    }
}

/// Runs two ends that send documents to each other and to a third, over a link that the bytes
/// control, while the third sends them what it likes.
///
/// # Panics
/// If a document arrives altered or twice, if one ends twice or never, if the sender takes one for
/// delivered that is not, if more is held than limits allow, or if something is left in the end.
pub fn stream(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let ends = ENDS.map(|end| Documents::new(PORT, LIMITS, [end; 16]));
    let mut world = World {
        now: 0,
        ends: ends.into(),
        on_way: Vec::new(),
        seen: Vec::new(),
        sent: 0,
        arrived: BTreeSet::new(),
        open: BTreeMap::new(),
    };
    while !input.is_empty() {
        match input.below(8) {
            0 => {
                let (from, to) = [(0, 1), (1, 0), (0, HOSTILE), (1, HOSTILE)][input.below(4)];
                let len = input.within(0..LIMITS.document + 10);
                world.send(from, to, len);
            }
            // Whatever is on its way arrives, or one does, out of order.
            1 | 2 => {
                for (from, to, bytes) in std::mem::take(&mut world.on_way) {
                    world.arrive(from, to, &bytes);
                }
            }
            3 => {
                let at = input.within(0..world.on_way.len());
                if at < world.on_way.len() {
                    let (from, to, bytes) = world.on_way.remove(at);
                    world.arrive(from, to, &bytes);
                    if input.flag() {
                        world.arrive(from, to, &bytes);
                    }
                }
            }
            4 => world.on_way.clear(),
            5 => world.pass(u64::from(input.u16())),
            _ => world.forge(&mut input),
        }
        world.on_way.truncate(2_000);
        world.seen.truncate(2_000);
    }
    // Without faults, all ends in time.
    for _ in 0..4_000 {
        for (from, to, bytes) in std::mem::take(&mut world.on_way) {
            if to != HOSTILE {
                world.arrive(from, to, &bytes);
            }
        }
        let due = world.ends.iter().filter_map(Documents::poll_timeout).min();
        let Some(due) = due
            .filter(|_| world.on_way.is_empty())
            .or((!world.on_way.is_empty()).then_some(world.now))
        else {
            break;
        };
        world.pass(due.max(world.now + 1) - world.now);
    }
    assert!(world.open.is_empty(), "no end of {:?}", world.open);
    for documents in &world.ends {
        assert_eq!((documents.held(), documents.connections()), ((0, 0), (0, 0)));
    }
}
