//! Whether the peer is alive, judged by payload alone.
//!
//! An end that receives payload and has nothing to send answers after a while, and heartbeats are
//! never answered. So idle ends stay idle, and payload without an answer means that the peer is
//! gone or has lost its keys.

use weft_contract::Totals;

/// What was received and sent on one link or in one session. Times are ms.
#[derive(Debug)]
pub(crate) struct Liveness {
    totals: Totals,
    last_heard: u64,
    /// The first payload that was sent after the last received frame.
    unanswered_since: Option<u64>,
    /// Payload frames that had been received when something was last sent.
    answered: u64,
    last_said: u64,
    /// When payload was last received, or the lane's counts said so.
    payload_came: u64,
}

impl Liveness {
    pub(crate) fn new(now: u64) -> Self {
        Self {
            totals: Totals::default(),
            last_heard: now,
            unanswered_since: None,
            answered: 0,
            last_said: now,
            payload_came: 0,
        }
    }

    /// Returns what has passed so far.
    pub(crate) fn totals(&self) -> &Totals {
        &self.totals
    }

    /// Returns when payload was last sent or received.
    pub(crate) fn last_payload(&self) -> u64 {
        self.totals.last_payload_tx.max(self.payload_came)
    }

    /// Returns when something authentic was last received.
    pub(crate) fn last_heard(&self) -> u64 {
        self.last_heard
    }

    /// Records that something authentic was received.
    pub(crate) fn heard(&mut self, at: u64) {
        self.last_heard = self.last_heard.max(at);
        self.unanswered_since = self.unanswered_since.filter(|since| *since > self.last_heard);
    }

    /// Records that something is sent now.
    pub(crate) fn said(&mut self, now: u64) {
        self.answered = self.totals.rx_payload;
        self.last_said = self.last_said.max(now);
    }

    /// Handles the lane's counts. `payload_sent` is when payload was last sent.
    pub(crate) fn sample(&mut self, now: u64, totals: &Totals, payload_sent: u64) {
        self.heard(totals.last_rx.min(now));
        if payload_sent > self.last_heard {
            self.unanswered_since.get_or_insert(payload_sent);
        }
        if totals.rx_payload != self.totals.rx_payload {
            self.payload_came = now;
        }
        let spoke = totals.tx_frames != self.totals.tx_frames;
        self.totals = *totals;
        if spoke {
            self.said(totals.last_tx);
        }
    }

    /// Returns when sent payload will have been unanswered for `patience`.
    pub(crate) fn unanswered_at(&self, patience: u64) -> u64 {
        self.unanswered_since
            .map_or(u64::MAX, |since| since.saturating_add(patience))
    }

    /// Returns when received payload has to be answered, if nothing was sent since: `pause` after
    /// the last frame that was sent.
    pub(crate) fn answer_at(&self, pause: u64) -> u64 {
        if self.totals.rx_payload > self.answered {
            self.last_said.saturating_add(pause).max(self.totals.last_rx)
        } else {
            u64::MAX
        }
    }

    /// Returns when nothing will have been sent for `pause`.
    pub(crate) fn quiet_at(&self, pause: u64) -> u64 {
        self.last_said.saturating_add(pause)
    }

    /// Resets the state: neither end has an answer outstanding.
    pub(crate) fn settle(&mut self) {
        self.unanswered_since = None;
        self.answered = self.totals.rx_payload;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn totals(tx: u64, rx: u64, last_tx: u64, last_rx: u64) -> Totals {
        Totals {
            tx_frames: tx,
            rx_frames: rx,
            rx_payload: rx,
            last_tx,
            last_rx,
            ..Totals::default()
        }
    }

    #[test]
    fn silence_counts_from_the_first_unanswered_payload() {
        let mut liveness = Liveness::new(1_000);
        liveness.sample(9_000, &totals(1, 0, 9_000, 0), 9_000);
        liveness.sample(9_500, &totals(2, 0, 9_500, 0), 9_500);
        assert_eq!(liveness.unanswered_at(3_000), 12_000);
        liveness.heard(9_600);
        assert_eq!(liveness.unanswered_at(3_000), u64::MAX);
    }

    #[test]
    fn payload_is_answered_once_and_heartbeats_never() {
        let mut liveness = Liveness::new(1_000);
        assert_eq!(liveness.answer_at(1_000), u64::MAX);
        liveness.sample(5_100, &totals(0, 1, 0, 5_000), 0);
        assert_eq!(liveness.answer_at(1_000), 5_000);
        liveness.said(5_100);
        let heartbeat = Totals {
            rx_frames: 2,
            rx_payload: 1,
            last_rx: 6_000,
            ..totals(0, 1, 0, 0)
        };
        liveness.sample(6_100, &heartbeat, 0);
        assert_eq!(liveness.answer_at(1_000), u64::MAX);
    }

    #[test]
    fn own_traffic_is_answer_enough() {
        let mut liveness = Liveness::new(1_000);
        liveness.sample(5_100, &totals(1, 1, 5_050, 5_000), 5_050);
        assert_eq!(liveness.answer_at(1_000), u64::MAX);
    }
}
