//! A connection that a peer opened to send a document.

use crate::assembly::Assembly;
use crate::budget::Budget;
use crate::documents::Cause;
use crate::limits::Limits;
use crate::segment::{Flags, Segment, VERSION};
use crate::seq::{ahead, in_window};

/// The window that is offered. Version 1 has no larger one.
const WINDOW: u16 = u16::MAX;
/// Memory for a document is taken in steps of this, in bytes.
pub(crate) const STEP: usize = 16 << 10;
/// The time after which the end of our side is sent again, in ms.
const RESEND: u64 = 1_000;

/// What became of a connection.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Received {
    /// It goes on.
    Open,
    /// The document is here. The connection goes on until the other end knows.
    Document(Vec<u8>),
    /// It is over, and no document is lost.
    Closed,
    /// It is over with an incomplete document of so many bytes.
    Incomplete(Cause, usize),
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// The other end has not answered yet.
    HalfOpen { until: u64 },
    /// Bytes arrive. The last new one did at `progress`.
    Open { progress: u64 },
    /// The document is here, and our side has ended.
    Closing { until: u64, resend: u64 },
}

/// A connection that a peer opened.
#[derive(Debug)]
pub(crate) struct Receiver {
    service: u16,
    remote: u16,
    /// The number of our SYN. Our FIN has the next one.
    iss: u32,
    /// The number of the first byte of the document.
    first: u32,
    state: State,
    started: u64,
    assembly: Assembly,
    /// Memory taken from the budget.
    granted: usize,
    /// Whether the last step of memory was refused.
    short: bool,
}

impl Receiver {
    /// Takes a connection that `syn` opens, and emits the answer.
    pub(crate) fn new(now: u64, syn: &Segment<'_>, iss: u32, limits: &Limits, out: &mut Vec<Vec<u8>>) -> Self {
        let receiver = Self {
            service: syn.destination,
            remote: syn.source,
            iss,
            first: syn.sequence.wrapping_add(1),
            state: State::HalfOpen {
                until: now.saturating_add(limits.half_open_ms),
            },
            started: now,
            assembly: Assembly::default(),
            granted: 0,
            short: false,
        };
        receiver.accept(limits, out);
        receiver
    }

    /// Returns whether the document is here, so that nothing is lost with the connection.
    pub(crate) fn closing(&self) -> bool {
        matches!(self.state, State::Closing { .. })
    }

    /// Returns whether the last segment found no memory.
    pub(crate) fn short(&self) -> bool {
        self.short
    }

    /// Returns the memory that is held.
    pub(crate) fn granted(&self) -> usize {
        self.granted
    }

    /// Returns when `handle_timeout` has something to do.
    pub(crate) fn timeout(&self, limits: &Limits) -> u64 {
        match self.state {
            State::HalfOpen { until } => until,
            State::Open { progress } => progress
                .saturating_add(limits.progress_ms)
                .min(self.started.saturating_add(limits.total_ms)),
            State::Closing { until, resend } => until.min(resend),
        }
    }

    /// Processes a segment of the connection.
    pub(crate) fn handle_segment<P: Ord + Copy>(
        &mut self,
        now: u64,
        segment: &Segment<'_>,
        account: (&mut Budget<P>, P),
        limits: &Limits,
        out: &mut Vec<Vec<u8>>,
    ) -> Received {
        if segment.flags.contains(Flags::RST) {
            return self.handle_reset(segment, out);
        }
        let half_open = matches!(self.state, State::HalfOpen { .. });
        if segment.flags.contains(Flags::SYN) {
            let again = segment.acknowledgment.is_none() && segment.sequence.wrapping_add(1) == self.first;
            if half_open && again {
                self.accept(limits, out);
            } else {
                self.acknowledge(Flags::NONE, out);
            }
            return Received::Open;
        }
        let ours = u32::from(self.closing());
        match segment.acknowledgment.and_then(|number| ahead(self.iss, number)) {
            Some(2) if ours == 1 => return Received::Closed,
            Some(1) => {}
            // Of an earlier connection, or of none.
            _ if half_open => {
                out.extend(segment.reset().map(|reset| reset.emit()));
                return Received::Open;
            }
            _ => {
                self.acknowledge(Flags::NONE, out);
                return Received::Open;
            }
        }
        if half_open {
            self.state = State::Open { progress: now };
        }
        if segment.numbers() == 0 {
            return Received::Open;
        }
        match self.state {
            State::Closing { .. } => {
                self.acknowledge(Flags::FIN, out);
                Received::Open
            }
            _ => self.handle_data(now, segment, account, limits, out),
        }
    }

    fn handle_data<P: Ord + Copy>(
        &mut self,
        now: u64,
        segment: &Segment<'_>,
        (budget, peer): (&mut Budget<P>, P),
        limits: &Limits,
        out: &mut Vec<Vec<u8>>,
    ) -> Received {
        let ready = self.assembly.ready();
        let next = self.next();
        // The payload from the first byte that is not here, and where that is in the document.
        let (start, payload) = match ahead(next, segment.sequence) {
            Some(gap) => (ready + gap as usize, segment.payload),
            None => {
                let known = next.wrapping_sub(segment.sequence) as usize;
                // A FIN alone in front of what is here says nothing.
                match segment.payload.get(known..) {
                    Some(rest) => (ready, rest),
                    None => return self.acknowledge(Flags::NONE, out),
                }
            }
        };
        let end = start.saturating_add(payload.len());
        if end - ready > usize::from(WINDOW) {
            return self.acknowledge(Flags::NONE, out);
        }
        if end > limits.document {
            return self.abort(Cause::TooLarge, out);
        }
        if end > self.granted {
            let granted = end.next_multiple_of(STEP).min(limits.document.max(end));
            self.short = !budget.take(peer, granted - self.granted);
            if self.short {
                return self.acknowledge(Flags::NONE, out);
            }
            self.granted = granted;
            self.assembly.reserve(granted);
        }
        self.assembly.insert(start, payload, segment.flags.contains(Flags::FIN));
        if self.assembly.complete() {
            let document = self.assembly.take();
            self.state = State::Closing {
                until: now.saturating_add(limits.close_ms),
                resend: now.saturating_add(RESEND),
            };
            self.release(budget, peer);
            self.acknowledge(Flags::FIN, out);
            return Received::Document(document);
        }
        if self.assembly.ready() > ready {
            self.state = State::Open { progress: now };
        }
        self.acknowledge(Flags::NONE, out)
    }

    /// Processes a reset (RFC 5961, 3.2): only the exact number counts.
    fn handle_reset(&self, segment: &Segment<'_>, out: &mut Vec<Vec<u8>>) -> Received {
        let next = self.next();
        if segment.sequence == next {
            return self.over(Cause::Reset);
        }
        if in_window(segment.sequence, next, u32::from(self.window())) {
            self.acknowledge(Flags::NONE, out);
        }
        Received::Open
    }

    /// Does what is due.
    pub(crate) fn handle_timeout(&mut self, now: u64, limits: &Limits, out: &mut Vec<Vec<u8>>) -> Received {
        if now < self.timeout(limits) {
            return Received::Open;
        }
        match &mut self.state {
            State::HalfOpen { .. } => Received::Closed,
            State::Open { progress } => {
                let stalled = now >= progress.saturating_add(limits.progress_ms);
                self.abort(if stalled { Cause::Stalled } else { Cause::TooSlow }, out)
            }
            State::Closing { until, .. } if now >= *until => Received::Closed,
            State::Closing { resend, .. } => {
                *resend = now.saturating_add(RESEND);
                self.acknowledge(Flags::FIN, out)
            }
        }
    }

    /// Gives back the memory of the connection. Without effect the second time.
    pub(crate) fn release<P: Ord + Copy>(&mut self, budget: &mut Budget<P>, peer: P) {
        budget.give(peer, std::mem::take(&mut self.granted));
    }

    /// Returns how a connection ends that ends now.
    pub(crate) fn over(&self, cause: Cause) -> Received {
        match self.state {
            State::Open { .. } => Received::Incomplete(cause, self.assembly.ready()),
            State::HalfOpen { .. } | State::Closing { .. } => Received::Closed,
        }
    }

    /// Ends the connection, and says so to the other end.
    pub(crate) fn abort(&self, cause: Cause, out: &mut Vec<Vec<u8>>) -> Received {
        let reset = Segment {
            acknowledgment: None,
            flags: Flags::RST,
            window: 0,
            ..self.segment()
        };
        out.push(reset.emit());
        self.over(cause)
    }

    /// Returns the number that is expected next: behind the end if the document is here.
    fn next(&self) -> u32 {
        // A document is shorter than 2^31 bytes.
        let position = self.assembly.ready() as u32 + u32::from(self.closing());
        self.first.wrapping_add(position)
    }

    fn window(&self) -> u16 {
        if self.short {
            u16::try_from(self.granted.saturating_sub(self.assembly.ready())).unwrap_or(WINDOW)
        } else {
            WINDOW
        }
    }

    /// Returns a segment without flags and payload.
    fn segment(&self) -> Segment<'static> {
        Segment {
            source: self.service,
            destination: self.remote,
            sequence: self.iss.wrapping_add(1),
            acknowledgment: Some(self.next()),
            flags: Flags::NONE,
            window: self.window(),
            mss: None,
            version: None,
            payload: &[],
        }
    }

    /// Emits the answer to a SYN.
    fn accept(&self, limits: &Limits, out: &mut Vec<Vec<u8>>) {
        let segment = Segment {
            sequence: self.iss,
            flags: Flags::SYN,
            mss: Some(limits.mss),
            version: Some(VERSION),
            ..self.segment()
        };
        out.push(segment.emit());
    }

    fn acknowledge(&self, flags: Flags, out: &mut Vec<Vec<u8>>) -> Received {
        // Behind our FIN is one number more.
        let fin = self.closing() && !flags.contains(Flags::FIN);
        let segment = self.segment();
        let sequence = segment.sequence.wrapping_add(u32::from(fin));
        out.push(
            Segment {
                sequence,
                flags,
                ..segment
            }
            .emit(),
        );
        Received::Open
    }
}
