//! What a peer that follows no rule can make a node spend: the worst cases of
//! docs/protocol/security.md, P21.

#![allow(clippy::unwrap_used, reason = "a test ends where its ground is missing")]

mod common;

use common::{Faults, Net, Peer, document};
use weft_stream::segment::{Flags, HEADER_LEN, Segment, VERSION};
use weft_stream::{Cause, Documents, Limits, Output, PORT};

const CLEAN: Faults = Faults {
    loss: 0,
    repeat: 0,
    reorder: 0,
    delay: 25,
};
const ATTACKER: Peer = 9;

/// A peer that makes its segments by hand.
struct Attacker {
    documents: Documents<Peer>,
    now: u64,
}

impl Attacker {
    fn new() -> Self {
        let documents = Documents::new(PORT, Limits::default(), [5; 16]);
        Self { documents, now: 0 }
    }

    /// Lets `segment` arrive and returns what is answered, and reported.
    fn put(&mut self, segment: &Segment<'_>) -> (Vec<Vec<u8>>, Vec<Output<Peer>>) {
        self.documents.handle_segment(self.now, ATTACKER, &segment.emit());
        self.outputs()
    }

    fn outputs(&mut self) -> (Vec<Vec<u8>>, Vec<Output<Peer>>) {
        let (mut segments, mut reports) = (Vec::new(), Vec::new());
        while let Some(output) = self.documents.poll_output() {
            match output {
                Output::Segment { bytes, .. } => segments.push(bytes),
                report => reports.push(report),
            }
        }
        (segments, reports)
    }

    /// Lets time pass until `until`, with all timers.
    fn pass(&mut self, until: u64) -> (Vec<Vec<u8>>, Vec<Output<Peer>>) {
        let (mut segments, mut reports) = (Vec::new(), Vec::new());
        while let Some(at) = self.documents.poll_timeout().filter(|at| *at <= until) {
            self.now = at;
            self.documents.handle_timeout(at);
            let (more, said) = self.outputs();
            segments.extend(more);
            reports.extend(said);
        }
        self.now = until;
        (segments, reports)
    }

    /// Opens a connection from `port` and returns the number that the node begins with.
    fn open(&mut self, port: u16) -> u32 {
        let (answers, _) = self.put(&syn(port));
        let iss = Segment::parse(&answers[0]).unwrap().sequence;
        self.put(&data(port, iss, 0, &[]));
        iss
    }
}

fn syn(port: u16) -> Segment<'static> {
    Segment {
        source: port,
        destination: PORT,
        sequence: 99,
        acknowledgment: None,
        flags: Flags::SYN,
        window: u16::MAX,
        mss: Some(1024),
        version: Some(VERSION),
        payload: &[],
    }
}

/// A segment at `position` of a document.
fn data(port: u16, iss: u32, position: u32, payload: &[u8]) -> Segment<'_> {
    Segment {
        sequence: 100 + position,
        acknowledgment: Some(iss.wrapping_add(1)),
        flags: Flags::NONE,
        mss: None,
        version: None,
        payload,
        ..syn(port)
    }
}

/// A peer that opens connections all the time keeps no other from sending documents, and makes the
/// node hold eight connections.
#[test]
fn a_flood_of_syns_leaves_the_others_their_documents() {
    let mut net = Net::new(1, CLEAN, &[1, 2]);
    let start = net.now;
    let sent = document(1, 100_000);
    for round in 0..20_u16 {
        let now = net.now;
        for port in 0..1_000 {
            let flood = syn(1 + (round * 1_000 + port) % 60_000).emit();
            net.end(2).handle_segment(now, ATTACKER, &flood);
        }
        assert!(net.end(2).connections().0 <= 9);
        if round == 3 {
            net.end(1).send(now, 2, sent.clone()).unwrap();
        }
        net.run(now + 100);
    }
    assert!(net.received(2, 1) == [sent]);
    assert_eq!(net.end(2).held(), (0, 0));
    assert!(net.end(2).counts().refused > 19_900);
    let end = net.now;
    net.run(end + 40_000);
    assert_eq!(net.end(2).connections(), (0, 0));
    assert!(
        net.reports.iter().all(|report| report.0 < start + 3_000),
        "half-open ends are no reports"
    );
}

/// A hundred peers that open all they may leave room for another.
#[test]
fn many_peers_that_flood_leave_room() {
    let mut documents = Documents::new(PORT, Limits::default(), [1; 16]);
    for port in 1..20 {
        for peer in 1..=100_u8 {
            documents.handle_segment(0, peer, &syn(port).emit());
        }
    }
    let taken = documents.connections().0;
    documents.handle_segment(0, 200, &syn(1).emit());
    assert_eq!(documents.connections().0, taken + 1);
    assert!(taken <= 255, "{taken}");
    documents.handle_timeout(35_000);
    assert_eq!(documents.connections(), (0, 0));
}

/// A connection that is not confirmed holds no memory for data, sends nothing by itself, and ends.
#[test]
fn half_open_ends_are_silent_and_short() {
    let mut attacker = Attacker::new();
    let (answers, _) = attacker.put(&syn(1));
    assert_eq!(answers.len(), 1);
    assert_eq!(
        answers[0].len(),
        syn(1).emit().len(),
        "an answer is as long as its cause"
    );
    // Data that acknowledge nothing of ours open nothing.
    let wrong = data(1, 0, 0, &[1; 900]);
    let (answers, reports) = attacker.put(&wrong);
    assert!(answers.iter().all(|answer| answer.len() == HEADER_LEN) && reports.is_empty());
    let (answers, reports) = attacker.pass(60_000);
    assert_eq!((answers.len(), reports.len()), (0, 0));
    assert_eq!(
        (attacker.documents.held(), attacker.documents.connections()),
        ((0, 0), (0, 0))
    );
}

/// A peer that takes our document and offers no window gets a byte now and then, and the document
/// fails in time.
#[test]
fn a_window_of_zero_is_asked_about_and_given_up() {
    let mut attacker = Attacker::new();
    let id = attacker.documents.send(0, ATTACKER, document(1, 100_000)).unwrap();
    let (opening, _) = attacker.outputs();
    let opening = Segment::parse(&opening[0]).unwrap();
    let answer = Segment {
        source: PORT,
        destination: opening.source,
        sequence: 5,
        acknowledgment: Some(opening.sequence.wrapping_add(1)),
        window: 0,
        ..syn(1)
    };
    let (segments, _) = attacker.put(&answer);
    assert_eq!(segments.len(), 1);
    let (segments, reports) = attacker.pass(39_999);
    assert!(segments.len() <= 25, "{} segments", segments.len());
    assert!(segments.iter().all(|segment| segment.len() == HEADER_LEN + 1));
    assert!(reports.is_empty());
    let (_, reports) = attacker.pass(40_000);
    let cause = Cause::Stalled;
    assert_eq!(
        reports,
        [Output::Failed {
            peer: ATTACKER,
            id,
            cause
        }]
    );
    assert_eq!(
        (attacker.documents.held(), attacker.documents.connections()),
        ((0, 0), (0, 0))
    );
}

/// A peer cannot have a document cut into tiny segments.
#[test]
fn tiny_segments_are_refused() {
    let mut attacker = Attacker::new();
    let tiny = Segment { mss: Some(1), ..syn(1) };
    let (answers, _) = attacker.put(&tiny);
    assert!(Segment::parse(&answers[0]).unwrap().flags.contains(Flags::RST));
    assert_eq!(attacker.documents.connections(), (0, 0));
    let id = attacker.documents.send(0, ATTACKER, document(1, 100_000)).unwrap();
    let (opening, _) = attacker.outputs();
    let opening = Segment::parse(&opening[0]).unwrap();
    let answer = Segment {
        source: PORT,
        destination: opening.source,
        acknowledgment: Some(opening.sequence.wrapping_add(1)),
        ..tiny
    };
    let (_, reports) = attacker.put(&answer);
    let cause = Cause::Incompatible;
    assert_eq!(
        reports,
        [Output::Failed {
            peer: ATTACKER,
            id,
            cause
        }]
    );
}

/// Segments that no window allows hold nothing and are answered one to one, with no more bytes.
#[test]
fn segments_out_of_the_window_hold_nothing() {
    let mut attacker = Attacker::new();
    let iss = attacker.open(1);
    for position in [65_536, 1 << 20, 1 << 30, 1 << 31, u32::MAX - 2_000] {
        let (answers, reports) = attacker.put(&data(1, iss, position, &[1; 900]));
        assert_eq!((answers.len(), reports.len()), (1, 0), "at {position}");
        assert_eq!(answers[0].len(), HEADER_LEN);
        assert_eq!(attacker.documents.held().0, 0);
    }
    // One at the end of the window makes the node hold what the window is.
    let (_, reports) = attacker.put(&data(1, iss, 65_535 - 900, &[1; 900]));
    assert!(reports.is_empty());
    assert_eq!(attacker.documents.held().0, 65_536);
    // Resets that do not fit end nothing.
    for sequence in [0, 101, 70_000] {
        let reset = Segment {
            flags: Flags::RST,
            sequence,
            ..data(1, iss, 0, &[])
        };
        let (_, reports) = attacker.put(&reset);
        assert!(reports.is_empty());
    }
    let reset = Segment {
        flags: Flags::RST,
        ..data(1, iss, 0, &[])
    };
    let (_, reports) = attacker.put(&reset);
    let (bytes, cause) = (0, Cause::Reset);
    assert_eq!(
        reports,
        [Output::Incomplete {
            peer: ATTACKER,
            bytes,
            cause
        }]
    );
    assert_eq!(
        (attacker.documents.held(), attacker.documents.connections()),
        ((0, 0), (0, 0))
    );
}

#[test]
fn an_oversized_document_ends_at_its_first_byte_too_many() {
    let mut attacker = Attacker::new();
    let iss = attacker.open(1);
    let part = [7; 1024];
    for position in (0..1 << 20).step_by(1024) {
        let (_, reports) = attacker.put(&data(1, iss, position, &part));
        assert!(reports.is_empty(), "at {position}");
    }
    assert_eq!(attacker.documents.held().0, 1 << 20);
    let (answers, reports) = attacker.put(&data(1, iss, 1 << 20, &[7]));
    assert!(Segment::parse(&answers[0]).unwrap().flags.contains(Flags::RST));
    let (bytes, cause) = (1 << 20, Cause::TooLarge);
    assert_eq!(
        reports,
        [Output::Incomplete {
            peer: ATTACKER,
            bytes,
            cause
        }]
    );
    assert_eq!(
        (attacker.documents.held(), attacker.documents.connections()),
        ((0, 0), (0, 0))
    );
}

/// One byte a second is progress, and too slow.
#[test]
fn a_document_that_never_ends_is_given_up() {
    let mut attacker = Attacker::new();
    let iss = attacker.open(1);
    let mut reports = Vec::new();
    for second in 0..700_u32 {
        let (_, said) = attacker.put(&data(1, iss, second, &[1]));
        reports.extend(said);
        let (_, said) = attacker.pass(attacker.now + 1_000);
        assert!(said.is_empty() || second == 599);
        reports.extend(said);
    }
    let (bytes, cause) = (600, Cause::TooSlow);
    assert_eq!(
        reports,
        [Output::Incomplete {
            peer: ATTACKER,
            bytes,
            cause
        }]
    );
    assert_eq!(attacker.documents.held(), (0, 0));
}

/// Peers that begin documents and end none hold memory within its bound, and leave some for others.
#[test]
fn documents_that_do_not_end_leave_memory_for_others() {
    let mut net = Net::new(1, CLEAN, &[1, 2]);
    let now = net.now;
    for peer in 100..140 {
        for port in 1..=8 {
            let end = net.end(2);
            end.handle_segment(now, peer, &syn(port).emit());
            let iss = std::iter::from_fn(|| end.poll_output()).find_map(|output| match output {
                Output::Segment { bytes, .. } => Some(Segment::parse(&bytes).unwrap().sequence),
                _ => None,
            });
            let Some(iss) = iss else { continue };
            for position in (0..1 << 20).step_by(1024) {
                end.handle_segment(now, peer, &data(port, iss, position, &[1; 1024]).emit());
            }
            while end.poll_output().is_some() {}
        }
    }
    let held = net.end(2).held().0;
    assert!(held <= 16 << 20 && held > 12 << 20, "{held}");
    let sent = document(1, 100_000);
    net.end(1).send(now, 2, sent.clone()).unwrap();
    net.run(now + 5_000);
    assert!(net.received(2, 1) == [sent]);
}

/// Data that answer a document are refused; the document fails with that cause.
#[test]
fn data_in_the_wrong_direction_end_the_connection() {
    let mut attacker = Attacker::new();
    let id = attacker.documents.send(0, ATTACKER, document(1, 5_000)).unwrap();
    let (opening, _) = attacker.outputs();
    let opening = Segment::parse(&opening[0]).unwrap();
    let answer = Segment {
        source: PORT,
        destination: opening.source,
        sequence: 5,
        acknowledgment: Some(opening.sequence.wrapping_add(1)),
        ..syn(1)
    };
    attacker.put(&answer);
    let back = Segment {
        sequence: 6,
        flags: Flags::NONE,
        payload: &[1, 2, 3],
        ..answer
    };
    let (_, reports) = attacker.put(&back);
    let cause = Cause::Unexpected;
    assert_eq!(
        reports,
        [Output::Failed {
            peer: ATTACKER,
            id,
            cause
        }]
    );
}
