//! Whether a neighbour answers at present. A link is given up after 30 s of silence; traffic avoids
//! it much sooner.
//!
//! Silence has a meaning only after payload ([`Liveness`]). A weft neighbour is then sent probes,
//! which it answers at once, so about a second without any frame is enough to doubt it. A FIPS
//! neighbour drops probes and sends only its reports, seconds apart. So it has the time after which
//! it would be dialled again.
//!
//! A suspect link is still used if there is no other path. It is healthy again some time after it
//! was heard: longer each time, so that an unstable link is not used.

use super::UNANSWERED;
use crate::liveness::Liveness;

/// Payload without an answer for this long causes a probe.
const PROBE_AFTER: u64 = 400;
/// Time between probes until the neighbour answers or is suspect.
const PROBE_EVERY: u64 = 200;
/// Time between probes of a suspect neighbour.
const PROBE_DOUBTED: u64 = 1_000;
/// Payload without any frame for this long, plus two round trips, makes a neighbour that answers
/// probes suspect.
const PATIENCE: u64 = 1_000;
/// The longest round trip that is allowed for.
const MAX_RTT: u64 = 2_000;
/// Number of probes that determine whether a neighbour answers probes.
const INTRODUCTIONS: u32 = 3;
/// The time between them.
const INTRODUCE_EVERY: u64 = 2_000;
/// How long after a suspect neighbour is heard it is healthy again, the first time.
const MIN_HOLD: u64 = 1_000;
/// The maximum of that time: it doubles with each doubt that follows the last within [`FORGIVE`].
const MAX_HOLD: u64 = 16_000;
const FORGIVE: u64 = 60_000;
/// A link without a received frame for this long may become suspect because the peer stopped using
/// it.
const STALE: u64 = 500;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Healthy,
    /// Suspect since this time.
    Suspect(u64),
    /// The neighbour was heard again, and is healthy from this time on.
    Recovering(u64),
}

/// The health of the link to one neighbour. Times are ms.
#[derive(Debug)]
pub(crate) struct Health {
    standing: Standing,
    /// It has answered a probe since the link came up.
    answers: bool,
    introductions: u32,
    /// The number of the last probe.
    number: u32,
    /// When that probe was sent, until it is answered.
    asked_at: Option<u64>,
    next_probe: u64,
    /// The last round trip of a probe.
    rtt: u64,
    hold: u64,
    doubt_ended: u64,
}

impl Health {
    pub(crate) fn new() -> Self {
        Self {
            standing: Standing::Healthy,
            answers: false,
            introductions: INTRODUCTIONS,
            number: 0,
            asked_at: None,
            next_probe: 0,
            rtt: 0,
            hold: 0,
            doubt_ended: 0,
        }
    }

    pub(crate) fn is_healthy(&self) -> bool {
        self.standing == Standing::Healthy
    }

    /// Whether the neighbour has answered a probe since the link came up.
    pub(crate) fn answers(&self) -> bool {
        self.answers
    }

    /// Whether the neighbour is suspect, and has not been heard since.
    pub(crate) fn is_silent(&self) -> bool {
        matches!(self.standing, Standing::Suspect(_))
    }

    /// Returns when payload will have been unanswered for too long.
    fn doubt_at(&self, liveness: &Liveness) -> u64 {
        let patience = if self.answers {
            PATIENCE + 2 * self.rtt
        } else {
            UNANSWERED
        };
        match self.standing {
            Standing::Suspect(_) => u64::MAX,
            Standing::Healthy | Standing::Recovering(_) => liveness.unanswered_at(patience),
        }
    }

    /// Returns when a probe is due. The first probes follow the first payload: an idle link needs
    /// none.
    fn probe_at(&self, liveness: &Liveness) -> u64 {
        let wanted = if !self.answers {
            let payload = liveness.totals().last_payload_tx;
            if self.introductions == 0 || payload == 0 {
                return u64::MAX;
            }
            payload
        } else if matches!(self.standing, Standing::Suspect(_)) {
            self.next_probe
        } else {
            liveness.unanswered_at(PROBE_AFTER)
        };
        wanted.max(self.next_probe)
    }

    fn return_at(&self) -> u64 {
        match self.standing {
            Standing::Recovering(at) => at,
            Standing::Healthy | Standing::Suspect(_) => u64::MAX,
        }
    }

    /// Returns the next moment at which [`Health::handle_timeout`] has something to do.
    pub(crate) fn deadline(&self, liveness: &Liveness) -> u64 {
        self.doubt_at(liveness)
            .min(self.probe_at(liveness))
            .min(self.return_at())
    }

    /// Performs what is due, and returns the number of a probe to send.
    pub(crate) fn handle_timeout(&mut self, now: u64, liveness: &Liveness) -> Option<u32> {
        if now >= self.doubt_at(liveness) {
            self.doubt(now);
        }
        if now >= self.return_at() {
            self.standing = Standing::Healthy;
            self.doubt_ended = now;
        }
        if now < self.probe_at(liveness) {
            return None;
        }
        let pause = if !self.answers {
            self.introductions -= 1;
            INTRODUCE_EVERY
        } else if self.is_healthy() {
            PROBE_EVERY
        } else {
            PROBE_DOUBTED
        };
        self.next_probe = now + pause;
        self.number = self.number.wrapping_add(1);
        self.asked_at = Some(now);
        Some(self.number)
    }

    fn doubt(&mut self, now: u64) {
        let again = !self.is_healthy() || self.hold > 0 && now.saturating_sub(self.doubt_ended) < FORGIVE;
        self.hold = if again { (2 * self.hold).min(MAX_HOLD) } else { MIN_HOLD };
        self.standing = Standing::Suspect(now);
        self.next_probe = now;
    }

    /// Probes a suspect neighbour at once: the network of this node has changed.
    pub(crate) fn hurry(&mut self, now: u64) {
        if self.is_silent() {
            self.next_probe = self.next_probe.min(now);
        }
    }

    /// Handles frames of the neighbour that arrive on another path. Unless this link has just
    /// received something, the neighbour may have a reason for that.
    pub(crate) fn handle_left(&mut self, now: u64, liveness: &Liveness) {
        if self.is_healthy() && now.saturating_sub(liveness.last_heard()) >= STALE {
            self.doubt(now);
        }
    }

    /// Handles the loss of the address of this node that the link went from. The neighbour may be out of
    /// reach from any other one.
    pub(crate) fn handle_gone(&mut self, now: u64) {
        if self.answers && !self.is_silent() {
            self.doubt(now);
        }
    }

    /// Handles a possible sign of life.
    pub(crate) fn review(&mut self, now: u64, liveness: &Liveness) {
        if matches!(self.standing, Standing::Suspect(since) if liveness.last_heard() > since) {
            self.standing = Standing::Recovering(now + self.hold);
        }
    }

    /// Handles an answer to a probe.
    pub(crate) fn handle_answer(&mut self, now: u64, number: u32) {
        if let Some(asked_at) = self.asked_at.take_if(|_| number == self.number) {
            self.rtt = now.saturating_sub(asked_at).min(MAX_RTT);
        }
        if !self.answers {
            self.answers = true;
            self.next_probe = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use weft_contract::Totals;

    use super::*;

    /// A clock, a neighbour that answers or not, and payload every 200 ms.
    struct Bench {
        now: u64,
        liveness: Liveness,
        health: Health,
        totals: Totals,
        probes: u32,
    }

    impl Bench {
        fn new() -> Self {
            Self {
                now: 1_000_000,
                liveness: Liveness::new(1_000_000),
                health: Health::new(),
                totals: Totals::default(),
                probes: 0,
            }
        }

        /// Runs for `ms` with payload every 200 ms, and returns when the neighbour was first
        /// suspect, if it was.
        fn run(&mut self, ms: u64, frames: bool, answers_probes: bool) -> Option<u64> {
            let start = self.now;
            let mut doubted = None;
            while self.now < start + ms {
                self.now += 10;
                if self.now.is_multiple_of(200) {
                    self.totals.last_payload_tx = self.now;
                    if frames {
                        self.totals.last_rx = self.now;
                    }
                    self.liveness.sample(self.now, &self.totals, self.now);
                    self.health.review(self.now, &self.liveness);
                }
                if self.now >= self.health.deadline(&self.liveness)
                    && let Some(number) = self.health.handle_timeout(self.now, &self.liveness)
                {
                    self.probes += 1;
                    if answers_probes {
                        self.liveness.heard(self.now);
                        self.health.handle_answer(self.now, number);
                        self.health.review(self.now, &self.liveness);
                    }
                }
                if !self.health.is_healthy() {
                    doubted.get_or_insert(self.now - start);
                }
            }
            doubted
        }
    }

    #[test]
    fn silent_weft_is_doubted_after_a_second_and_fips_after_three() {
        let mut weft = Bench::new();
        assert_eq!(weft.run(5_000, true, true), None);
        assert_eq!(weft.probes, 1, "it is asked once, with the first payload");
        let after = weft.run(5_000, false, false).unwrap();
        assert!((PATIENCE..=PATIENCE + 210).contains(&after), "{after}");
        let mut fips = Bench::new();
        assert_eq!(fips.run(10_000, true, false), None);
        assert_eq!(fips.probes, INTRODUCTIONS);
        let after = fips.run(5_000, false, false).unwrap();
        assert!((UNANSWERED..=UNANSWERED + 210).contains(&after), "{after}");
    }

    #[test]
    fn one_that_answers_probes_alone_is_not_doubted() {
        let mut bench = Bench::new();
        bench.run(1_000, true, true);
        assert_eq!(bench.run(10_000, false, true), None);
    }

    #[test]
    fn it_is_trusted_again_later_each_time() {
        let mut bench = Bench::new();
        bench.run(1_000, true, true);
        let mut waits = Vec::new();
        for _ in 0..6 {
            assert!(bench.run(2_000, false, false).is_some());
            let from = bench.now;
            while !bench.health.is_healthy() {
                bench.run(100, true, true);
            }
            waits.push((bench.now - from) / 1_000);
        }
        assert_eq!(waits, [1, 2, 4, 8, 16, 16]);
        bench.run(FORGIVE, true, true);
        bench.run(2_000, false, false);
        assert_eq!(bench.health.hold, MIN_HOLD);
    }

    #[test]
    fn a_long_round_trip_is_allowed_for() {
        let mut bench = Bench::new();
        bench.run(1_000, true, false);
        let number = bench.health.number;
        bench.health.handle_answer(bench.health.asked_at.unwrap() + 900, number);
        assert_eq!(bench.health.rtt, 900);
        assert!(bench.run(5_000, false, false).unwrap() >= PATIENCE + 1_800);
    }

    #[test]
    fn a_neighbour_that_left_is_doubted_unless_just_heard() {
        let mut bench = Bench::new();
        bench.run(1_000, true, true);
        bench.health.handle_left(bench.now, &bench.liveness);
        assert!(bench.health.is_healthy());
        bench.health.handle_left(bench.now + STALE, &bench.liveness);
        assert!(!bench.health.is_healthy());
    }

    #[test]
    fn it_is_silent_until_it_is_heard_and_trusted_only_later() {
        let mut bench = Bench::new();
        bench.run(1_000, true, true);
        assert!(!bench.health.is_silent());
        bench.run(2_000, false, false);
        assert!(bench.health.is_silent());
        bench.run(400, true, true);
        assert!(!bench.health.is_silent() && !bench.health.is_healthy());
    }

    /// A neighbour that has just been sent payload for the first time.
    fn with_payload() -> Bench {
        let mut bench = Bench::new();
        assert_eq!(
            bench.health.deadline(&bench.liveness),
            u64::MAX,
            "an idle link is asked nothing"
        );
        bench.now += 10;
        bench.totals.last_payload_tx = bench.now;
        bench.liveness.sample(bench.now, &bench.totals, bench.now);
        bench
    }

    impl Bench {
        /// When the next probe is due, relative to the time of the first payload. It is sent at
        /// that time and no sooner.
        fn probe(&mut self) -> u64 {
            let at = self.health.deadline(&self.liveness);
            assert_eq!(self.health.handle_timeout(at - 1, &self.liveness), None);
            assert_eq!(
                self.health.handle_timeout(at, &self.liveness),
                Some(self.health.number),
                "what is due is done"
            );
            at - self.now
        }
    }

    #[test]
    fn probes_keep_their_pace() {
        let mut fips = with_payload();
        assert_eq!([fips.probe(), fips.probe()], [0, INTRODUCE_EVERY]);
        let mut weft = with_payload();
        assert_eq!(weft.probe(), 0);
        weft.health.handle_answer(weft.now, 1);
        let asked = [weft.probe(), weft.probe(), weft.probe()];
        assert_eq!(asked, [0, 1, 2].map(|n| PROBE_AFTER + n * PROBE_EVERY));
        assert!(weft.health.is_healthy());
        // The last one before the doubt, and those after it.
        assert_eq!(weft.probe(), PATIENCE);
        assert!(!weft.health.is_healthy());
        assert_eq!(weft.probe(), PATIENCE + PROBE_DOUBTED);
    }

    #[test]
    fn a_doubt_long_after_the_last_one_counts_as_the_first() {
        let mut trust = Health::new();
        trust.doubt(1);
        assert_eq!(trust.hold, MIN_HOLD, "also in the first minute of the clock");
        for (since, hold) in [(FORGIVE - 1, 2 * MIN_HOLD), (FORGIVE, MIN_HOLD)] {
            trust.standing = Standing::Healthy;
            trust.doubt_ended = 1_000_000;
            trust.doubt(1_000_000 + since);
            assert_eq!(trust.hold, hold);
        }
    }
}
