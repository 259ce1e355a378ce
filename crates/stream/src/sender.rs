//! A connection of ours that carries a document to a peer.

use crate::congestion::Congestion;
use crate::documents::Cause;
use crate::limits::Limits;
use crate::rtt::Rtt;
use crate::segment::{DEFAULT_MSS, Flags, Segment, VERSION};
use crate::seq::{ahead, in_window};

/// The window that is offered for the FIN of the other end. Data are refused.
const WINDOW: u16 = u16::MAX;
/// The least payload of a segment that the other end may ask for. With less, a document would be
/// many times as large on its way.
pub(crate) const LEAST_MSS: u16 = 256;

/// What became of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// It goes on.
    Open,
    /// All of the document and its end are acknowledged. The connection goes on until the other
    /// end has ended, too.
    Sent,
    /// It is over after the document was acknowledged.
    Closed,
    /// It is over, and the document is not acknowledged.
    Failed(Cause),
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// Our SYN is not answered.
    Connecting,
    /// Bytes are on their way. The last new one was acknowledged at `progress`.
    Open { progress: u64 },
    /// All is acknowledged.
    Closing { until: u64 },
}

/// A connection of ours.
///
/// Positions count from our SYN: 0 is the SYN, 1 to n the document, n + 1 the FIN.
#[derive(Debug)]
pub(crate) struct Sender {
    service: u16,
    local: u16,
    iss: u32,
    /// The number that is expected next from the other end.
    expected: u32,
    state: State,
    started: u64,
    document: Vec<u8>,
    mss: u32,
    /// The first position that is not acknowledged.
    una: u32,
    /// The next position to send. After a timeout it returns to `una`.
    next: u32,
    /// The first position that was never sent.
    sent: u32,
    /// The first position that the other end does not take.
    edge: u32,
    congestion: Congestion,
    rtt: Rtt,
    /// A position behind which an acknowledgment gives a measurement, and when it was sent.
    timed: Option<(u32, u64)>,
    /// When what is not acknowledged is sent again.
    resend: u64,
}

impl Sender {
    /// Opens a connection from `local` to the port `service`, and emits its SYN. The document has
    /// fewer than 2^31 bytes.
    pub(crate) fn new(
        now: u64,
        (local, service): (u16, u16),
        iss: u32,
        document: Vec<u8>,
        limits: &Limits,
        out: &mut Vec<Vec<u8>>,
    ) -> Self {
        let rtt = Rtt::default();
        let sender = Self {
            service,
            local,
            iss,
            expected: 0,
            state: State::Connecting,
            started: now,
            document,
            mss: u32::from(limits.mss),
            una: 0,
            next: 1,
            sent: 1,
            edge: 1,
            congestion: Congestion::new(u32::from(limits.mss)),
            timed: Some((1, now)),
            resend: now.saturating_add(rtt.timeout()),
            rtt,
        };
        sender.connect(limits, out);
        sender
    }

    /// Returns whether the document is acknowledged, so that nothing is lost with the connection.
    pub(crate) fn closing(&self) -> bool {
        matches!(self.state, State::Closing { .. })
    }

    /// Returns the bytes of the document that are held.
    pub(crate) fn held(&self) -> usize {
        self.document.len()
    }

    /// Returns when `handle_timeout` has something to do.
    pub(crate) fn timeout(&self, limits: &Limits) -> u64 {
        match self.state {
            State::Closing { until } => until,
            _ => self.deadline(limits).0.min(self.resend),
        }
    }

    /// Returns when the connection fails, and why.
    fn deadline(&self, limits: &Limits) -> (u64, Cause) {
        match self.state {
            State::Connecting => (self.started.saturating_add(limits.connect_ms), Cause::NotReached),
            State::Open { progress } => {
                let stalled = progress.saturating_add(limits.progress_ms);
                let total = self.started.saturating_add(limits.total_ms);
                if stalled <= total {
                    (stalled, Cause::Stalled)
                } else {
                    (total, Cause::TooSlow)
                }
            }
            State::Closing { until } => (until, Cause::Stalled),
        }
    }

    /// Processes a segment of the connection.
    pub(crate) fn handle_segment(
        &mut self,
        now: u64,
        segment: &Segment<'_>,
        limits: &Limits,
        out: &mut Vec<Vec<u8>>,
    ) -> Progress {
        let position = segment.acknowledgment.and_then(|number| ahead(self.iss, number));
        if matches!(self.state, State::Connecting) {
            return self.handle_answer(now, segment, position, limits, out);
        }
        if segment.flags.contains(Flags::RST) {
            return self.handle_reset(segment, out);
        }
        let position = position.filter(|position| *position <= self.sent);
        let (Some(position), false) = (position, segment.flags.contains(Flags::SYN)) else {
            return self.acknowledge(out);
        };
        if !segment.payload.is_empty() && in_window(segment.sequence, self.expected, u32::from(WINDOW)) {
            // A document goes one way.
            return self.abort(Cause::Unexpected, out);
        }
        if position >= self.una {
            self.handle_acknowledgment(now, segment, position, out);
        }
        if segment.flags.contains(Flags::FIN) {
            if segment.sequence.wrapping_add(segment.payload.len() as u32) == self.expected {
                self.expected = self.expected.wrapping_add(1);
            }
            self.acknowledge(out);
        }
        if self.una == self.end() && !self.closing() {
            self.document = Vec::new();
            self.state = State::Closing {
                until: now.saturating_add(limits.close_ms),
            };
            return Progress::Sent;
        }
        self.flush(now, out);
        Progress::Open
    }

    /// Processes the first segment from the other end.
    fn handle_answer(
        &mut self,
        now: u64,
        segment: &Segment<'_>,
        position: Option<u32>,
        limits: &Limits,
        out: &mut Vec<Vec<u8>>,
    ) -> Progress {
        let ours = position == Some(1);
        if segment.flags.contains(Flags::RST) {
            return if ours {
                Progress::Failed(Cause::Refused)
            } else {
                Progress::Open
            };
        }
        if segment.acknowledgment.is_some() && !ours {
            // Of a connection that the other end had with an earlier process of ours.
            out.extend(segment.reset().map(|reset| reset.emit()));
            return Progress::Open;
        }
        if !ours || !segment.flags.contains(Flags::SYN) {
            return Progress::Open;
        }
        let mss = segment.mss.unwrap_or(DEFAULT_MSS).min(limits.mss);
        if segment.version != Some(VERSION) || mss < LEAST_MSS.min(limits.mss) {
            out.extend(segment.reset().map(|reset| reset.emit()));
            return Progress::Failed(Cause::Incompatible);
        }
        self.expected = segment.sequence.wrapping_add(1);
        self.mss = u32::from(mss);
        self.congestion = Congestion::new(self.mss);
        self.state = State::Open { progress: now };
        self.edge = 1 + u32::from(segment.window);
        self.advance(now, 1);
        self.flush(now, out);
        if self.sent == 1 {
            // There was no room for a segment that would say so.
            self.acknowledge(out);
        }
        Progress::Open
    }

    fn handle_acknowledgment(&mut self, now: u64, segment: &Segment<'_>, position: u32, out: &mut Vec<Vec<u8>>) {
        let edge = position.saturating_add(u32::from(segment.window));
        if position > self.una {
            let acked = position - self.una;
            self.edge = edge;
            self.advance(now, position);
            if !self.closing() {
                self.state = State::Open { progress: now };
            }
            if self.congestion.acked(position, acked) {
                self.send_again(now, out);
            }
        } else if edge > self.edge {
            self.edge = edge;
        } else if segment.numbers() == 0 && self.next > self.una {
            // A window does not shrink without progress; an older acknowledgment that arrives late
            // only seems to say so.
            let in_flight = self.next - self.una;
            if self.congestion.duplicate(self.una, self.sent, in_flight) {
                self.send_again(now, out);
            }
        }
    }

    /// Notes that all before `una` is acknowledged.
    fn advance(&mut self, now: u64, una: u32) {
        self.una = una;
        self.next = self.next.max(una);
        if let Some((_, at)) = self.timed.take_if(|(behind, _)| *behind <= una) {
            self.rtt.sample(now.saturating_sub(at));
        }
        self.rtt.answered();
        self.resend = now.saturating_add(self.rtt.timeout());
    }

    /// Processes a reset (RFC 5961, 3.2): only the exact number counts.
    fn handle_reset(&self, segment: &Segment<'_>, out: &mut Vec<Vec<u8>>) -> Progress {
        if segment.sequence == self.expected {
            return self.over(Cause::Reset);
        }
        if in_window(segment.sequence, self.expected, u32::from(WINDOW)) {
            self.acknowledge(out);
        }
        Progress::Open
    }

    /// Does what is due.
    pub(crate) fn handle_timeout(&mut self, now: u64, limits: &Limits, out: &mut Vec<Vec<u8>>) -> Progress {
        if now < self.timeout(limits) {
            return Progress::Open;
        }
        let (deadline, cause) = self.deadline(limits);
        if now >= deadline {
            return if self.closing() {
                Progress::Closed
            } else {
                self.abort(cause, out)
            };
        }
        self.rtt.timed_out();
        self.timed = None;
        self.resend = now.saturating_add(self.rtt.timeout());
        if matches!(self.state, State::Connecting) {
            self.connect(limits, out);
        } else if self.edge <= self.una {
            // One number asks whether there is a window again.
            self.emit(self.una, 1, out);
            self.next = self.next.max(self.una + 1);
            self.sent = self.sent.max(self.next);
        } else {
            self.congestion.timed_out(self.una, self.sent, self.next - self.una);
            self.next = self.una;
            self.flush(now, out);
        }
        Progress::Open
    }

    /// Returns how a connection ends that ends now.
    pub(crate) fn over(&self, cause: Cause) -> Progress {
        if self.closing() {
            Progress::Closed
        } else {
            Progress::Failed(cause)
        }
    }

    /// Returns the position behind the FIN.
    fn end(&self) -> u32 {
        if self.closing() {
            self.una
        } else {
            self.document.len() as u32 + 2
        }
    }

    /// Emits what windows allow.
    fn flush(&mut self, now: u64, out: &mut Vec<Vec<u8>>) {
        let end = self.end();
        let window = self.congestion.window().min(self.edge.saturating_sub(self.una));
        while self.next < end {
            let allowed = window.saturating_sub(self.next - self.una);
            // A FIN goes with the last bytes, and may make that segment one number longer.
            let left = end - self.next;
            let size = if left <= self.mss + 1 {
                left.min(allowed)
            } else {
                self.mss.min(allowed)
            };
            let small = size < self.mss && size < left;
            if size == 0 || small && self.next > self.una {
                return;
            }
            self.emit(self.next, size, out);
            if self.timed.is_none() && self.next >= self.sent {
                self.timed = Some((self.next + size, now));
            }
            if self.next == self.una {
                self.resend = now.saturating_add(self.rtt.timeout());
            }
            self.next += size;
            self.sent = self.sent.max(self.next);
        }
    }

    /// Emits the first segment that is not acknowledged.
    fn send_again(&mut self, now: u64, out: &mut Vec<Vec<u8>>) {
        let size = self.mss.min(self.next - self.una);
        self.emit(self.una, size, out);
        self.timed = None;
        self.resend = now.saturating_add(self.rtt.timeout());
    }

    /// Emits `size` numbers from `position`: bytes, and the FIN if it is among them.
    fn emit(&self, position: u32, size: u32, out: &mut Vec<Vec<u8>>) {
        let len = self.document.len();
        let start = (position as usize - 1).min(len);
        let end = (start + size as usize).min(len);
        let last = position as usize - 1 + size as usize > len;
        let segment = Segment {
            flags: match (last, start < end) {
                (true, _) => Flags::FIN,
                (false, true) if end == len => Flags::PSH,
                (false, _) => Flags::NONE,
            },
            payload: self.document.get(start..end).unwrap_or_default(),
            ..self.segment(position)
        };
        out.push(segment.emit());
    }

    /// Returns a segment at `position`, without flags and payload.
    fn segment(&self, position: u32) -> Segment<'static> {
        Segment {
            source: self.local,
            destination: self.service,
            sequence: self.iss.wrapping_add(position),
            acknowledgment: Some(self.expected),
            flags: Flags::NONE,
            window: WINDOW,
            mss: None,
            version: None,
            payload: &[],
        }
    }

    fn connect(&self, limits: &Limits, out: &mut Vec<Vec<u8>>) {
        let segment = Segment {
            acknowledgment: None,
            flags: Flags::SYN,
            mss: Some(limits.mss),
            version: Some(VERSION),
            ..self.segment(0)
        };
        out.push(segment.emit());
    }

    fn acknowledge(&self, out: &mut Vec<Vec<u8>>) -> Progress {
        out.push(self.segment(self.sent).emit());
        Progress::Open
    }

    fn abort(&self, cause: Cause, out: &mut Vec<Vec<u8>>) -> Progress {
        let reset = Segment {
            acknowledgment: None,
            flags: Flags::RST,
            window: 0,
            ..self.segment(self.sent)
        };
        out.push(reset.emit());
        self.over(cause)
    }
}
