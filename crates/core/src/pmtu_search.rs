//! The size that a path between two ends of fast frames takes, found by probes as large as the
//! frames that they represent.
//!
//! RFC 8899 (DPLPMTUD), adapted to two ends that answer each other at once:
//!
//! - A probe is sent with a **pilot**, a frame of the smallest size. Only a missing probe whose
//!   pilot was answered is evidence against its size; if both are missing nothing was learned, and
//!   both are sent again. So neither an outage nor ordinary loss looks like a path that has become
//!   smaller, and the pilot's round trip determines how long to wait.
//! - The search tries the largest size first, which is right on most paths, and halves the
//!   remaining range.
//! - While large frames are sent the size in use is **confirmed** each second. That finds a path
//!   that drops sizes that it took before, whatever the traffic in it: no answer to data is needed.
//!
//! Sizes are bytes of UDP payload, times ms.

use weft_wire::fast::SURE_PAYLOAD;

/// Sizes that paths have, as a search tries them, besides the largest: links of 1,280 to 1,500
/// bytes less 28 for the headers of IPv4 and UDP, or 48 for IPv6's; 1,444 and 1,464 are those of
/// PPPoE.
const SIZES: [u16; 12] = [
    1_252, 1_272, 1_292, 1_312, 1_332, 1_352, 1_372, 1_392, 1_412, 1_432, 1_444, 1_464,
];
/// Probes that are missing, while their pilots are not, before a size counts as too large (RFC 8899
/// `MAX_PROBES`).
const MAX_PROBES: u32 = 3;
/// The same for a size in use.
const MAX_CONFIRMS: u32 = 4;
/// While large frames are sent, the size in use is confirmed this often.
const CONFIRM_EVERY: u64 = 1_000;
/// The wait for the very first pilot.
const FIRST_WAIT: u64 = 1_000;
/// The minimum wait for a pilot if the round trip is known.
const LEAST_WAIT: u64 = 200;
/// The maximum wait for a pilot; waits double while none is answered.
const LONGEST_WAIT: u64 = 5_000;
/// Minimum wait for a probe after its pilot was answered.
const GRACE: u64 = 50;
/// The same if data depends on the size: a burst has to be over by the time of the next probe.
const CONFIRM_GRACE: u64 = 250;
/// A path that takes less than the sure size is probed again after this.
const NARROW_AGAIN: u64 = 30_000;
/// Number of tries whose late answers still count.
const REMEMBERED: u16 = 8;

/// An effect of the search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Send a probe of this size; 0 for the smallest size of a probe.
    Probe { id: u16, size: u16 },
    /// Frames have this size from now on.
    Size(u16, Change),
    /// No larger size is probed for some time: what does not pass now will not pass in a moment
    /// either.
    Settled,
    /// The path takes less than the sure size, or takes it again.
    Narrow(bool),
}

/// The reason of a change of size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// A probe of this size was answered.
    Raised,
    /// The previous size no longer passes.
    BlackHole,
}

/// The search for the size of one path in one direction.
#[derive(Debug)]
pub(crate) struct PmtuSearch {
    ceiling: u16,
    /// A finished search begins again after this.
    raise: u64,
    current: u16,
    /// Sizes from here on do not pass, as far as is known.
    too_large: u16,
    flight: Option<Flight>,
    search: Search,
    /// Whether the sure size passes, once that is known.
    sure: Option<bool>,
    /// When the size in use was last proven to pass.
    confirmed_at: u64,
    /// The size in use has to be proven again, whether data depends on it or not.
    doubted: bool,
    /// No frames are sent.
    rests: bool,
    next_id: u16,
    rtt: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Search {
    /// From the top, then by halves.
    Down,
    /// The next size above the one in use, to find out whether the path has become larger.
    Up,
    /// Finished, until then.
    Over(u64),
}

/// A size that is being probed.
#[derive(Debug)]
struct Flight {
    size: u16,
    confirms: bool,
    tries: u16,
    missing: u32,
    sent_at: u64,
    next: u64,
    wait: u64,
    /// The pilot of the last try was answered.
    piloted: bool,
}

impl PmtuSearch {
    /// Creates the search for a path of which nothing is known. Frames above `ceiling` are not
    /// useful. `raise` is the time between two searches for a larger size than before.
    pub(crate) fn new(now: u64, ceiling: u16, raise: u64) -> Self {
        Self {
            ceiling,
            raise,
            current: SURE_PAYLOAD.min(ceiling),
            too_large: ceiling.saturating_add(1),
            flight: None,
            search: Search::Down,
            sure: None,
            confirmed_at: now,
            doubted: false,
            rests: false,
            next_id: 0,
            rtt: None,
        }
    }

    /// Returns the largest size that is useful.
    pub(crate) fn ceiling(&self) -> u16 {
        self.ceiling
    }

    /// Handles that no frames are sent for a while. The size in use is confirmed as soon as large ones
    /// are sent again.
    pub(crate) fn rest(&mut self, now: u64) {
        (self.flight, self.rests) = (None, true);
        self.confirmed_at = self.confirmed_at.max(now.saturating_sub(CONFIRM_EVERY));
    }

    /// Handles that frames are sent. Returns whether the search has rested until now.
    pub(crate) fn wake(&mut self) -> bool {
        std::mem::take(&mut self.rests)
    }

    /// Returns the size in use.
    pub(crate) fn current(&self) -> u16 {
        self.current
    }

    /// Whether probes have proven that the size in use passes.
    pub(crate) fn is_probed(&self) -> bool {
        self.current > self.least() || self.sure == Some(true)
    }

    /// Whether probes of the sure size do not arrive although smaller frames do.
    pub(crate) fn is_narrow(&self) -> bool {
        self.sure == Some(false)
    }

    /// Returns the size that every path has to take.
    fn least(&self) -> u16 {
        SURE_PAYLOAD.min(self.ceiling)
    }

    /// Whether larger sizes are being probed.
    pub(crate) fn is_searching(&self) -> bool {
        !matches!(self.search, Search::Over(_))
    }

    /// Returns when [`PmtuSearch::handle_timeout`] has something to do. `large_tx` is when a frame
    /// that does not count as small was last sent.
    pub(crate) fn deadline(&self, large_tx: u64) -> u64 {
        if let Some(flight) = &self.flight {
            return flight.next;
        }
        let search = match self.search {
            Search::Down | Search::Up => 0,
            Search::Over(until) => until,
        };
        search.min(self.confirm_at(large_tx))
    }

    fn confirm_at(&self, large_tx: u64) -> u64 {
        if !self.is_probed() {
            u64::MAX
        } else if self.doubted {
            0
        } else if large_tx > self.confirmed_at {
            self.confirmed_at + CONFIRM_EVERY
        } else {
            u64::MAX
        }
    }

    /// Performs what is due.
    pub(crate) fn handle_timeout(&mut self, now: u64, large_tx: u64, effects: &mut Vec<Effect>) {
        if now < self.deadline(large_tx) {
            return;
        }
        if let Some(flight) = &mut self.flight {
            flight.missing += u32::from(flight.piloted);
            let most = if flight.confirms { MAX_CONFIRMS } else { MAX_PROBES };
            if flight.missing < most {
                self.send(now, effects);
                return;
            }
            let (size, confirms) = (flight.size, flight.confirms);
            self.flight = None;
            self.handle_too_large(now, size, confirms, effects);
        }
        if self.flight.is_none() {
            self.begin(now, large_tx, effects);
        }
    }

    /// Handles the peer's answer to a probe.
    pub(crate) fn handle_answer(&mut self, now: u64, id: u16, effects: &mut Vec<Effect>) {
        let Some(flight) = &mut self.flight else { return };
        let age = self.next_id.wrapping_sub(id);
        if age == 0 || age > 2 * flight.tries.min(REMEMBERED) {
            return;
        }
        let is_pilot = id.is_multiple_of(2);
        if !is_pilot {
            let size = flight.size;
            self.flight = None;
            self.handle_passed(now, size, effects);
        } else if age == 2 && !flight.piloted {
            flight.piloted = true;
            let rtt = now.saturating_sub(flight.sent_at);
            let grace = if flight.confirms { CONFIRM_GRACE } else { GRACE };
            flight.next = now + rtt.max(grace);
            self.rtt = Some(rtt);
        }
    }

    /// Handles a change of this node's own addresses or routes: the path may have changed too.
    pub(crate) fn handle_network_change(&mut self) {
        self.doubted = true;
        if let Search::Over(_) = self.search {
            self.look_higher();
        }
    }

    fn look_higher(&mut self) {
        self.too_large = self.ceiling.saturating_add(1);
        self.search = Search::Up;
    }

    fn handle_passed(&mut self, now: u64, size: u16, effects: &mut Vec<Effect>) {
        self.confirmed_at = now;
        if self.sure.replace(true) == Some(false) {
            self.search = Search::Down;
            effects.push(Effect::Narrow(false));
        }
        if size > self.current {
            self.current = size;
            effects.push(Effect::Size(size, Change::Raised));
            if self.search == Search::Up {
                self.search = Search::Down;
            }
        }
    }

    fn handle_too_large(&mut self, now: u64, size: u16, confirms: bool, effects: &mut Vec<Effect>) {
        if size <= self.least() {
            if self.sure.replace(false) != Some(false) {
                effects.push(Effect::Narrow(true));
            }
            self.settle(now, effects);
            return;
        }
        self.too_large = size;
        if confirms {
            self.current = self.least();
            self.sure = None;
            self.search = Search::Down;
            effects.push(Effect::Size(self.current, Change::BlackHole));
        } else if self.search == Search::Up {
            self.conclude(now, effects);
        }
    }

    /// Begins to probe the next size, if there is one.
    fn begin(&mut self, now: u64, large_tx: u64, effects: &mut Vec<Effect>) {
        if now >= self.confirm_at(large_tx) {
            self.doubted = false;
            self.ask(now, self.current, true, effects);
            return;
        }
        if matches!(self.search, Search::Over(until) if now >= until) {
            self.look_higher();
        }
        if self.is_searching() {
            match self.candidate() {
                Some(size) => self.ask(now, size, false, effects),
                None => self.conclude(now, effects),
            }
        }
    }

    /// Ends the search, because no larger size passes. If the size in use is not known to pass,
    /// probes it first.
    fn conclude(&mut self, now: u64, effects: &mut Vec<Effect>) {
        if self.is_probed() {
            self.settle(now, effects);
        } else {
            self.ask(now, self.least(), false, effects);
        }
    }

    fn settle(&mut self, now: u64, effects: &mut Vec<Effect>) {
        let pause = match self.is_narrow() {
            true => self.raise.min(NARROW_AGAIN),
            false => self.raise,
        };
        self.search = Search::Over(now + pause);
        effects.push(Effect::Settled);
    }

    /// Returns the next size to try. Data depends on the sure size, so it is next after one that failed.
    fn candidate(&self) -> Option<u16> {
        let is_unsure = self.sure.is_none() && self.too_large <= self.ceiling;
        if self.is_narrow() || is_unsure {
            return Some(self.least());
        }
        let sizes = SIZES.iter().copied().filter(|size| *size < self.ceiling);
        let open = |size: &u16| (self.current + 1..self.too_large).contains(size);
        let left: Vec<u16> = sizes.chain([self.ceiling]).filter(open).collect();
        let at = match self.search {
            Search::Up => 0,
            _ if self.too_large > self.ceiling => left.len().checked_sub(1)?,
            _ => left.len() / 2,
        };
        left.get(at).copied()
    }

    fn ask(&mut self, now: u64, size: u16, confirms: bool, effects: &mut Vec<Effect>) {
        let wait = self.rtt.map_or(FIRST_WAIT, |rtt| (3 * rtt).max(LEAST_WAIT));
        self.flight = Some(Flight {
            size,
            confirms,
            tries: 0,
            missing: 0,
            sent_at: now,
            next: now,
            wait: wait.min(LONGEST_WAIT),
            piloted: true,
        });
        self.send(now, effects);
    }

    /// Sends one more try.
    fn send(&mut self, now: u64, effects: &mut Vec<Effect>) {
        let Some(flight) = &mut self.flight else { return };
        if !flight.piloted {
            flight.wait = (2 * flight.wait).min(LONGEST_WAIT);
        }
        flight.tries = flight.tries.saturating_add(1);
        flight.sent_at = now;
        flight.next = now + flight.wait;
        flight.piloted = false;
        let id = self.next_id;
        self.next_id = id.wrapping_add(2);
        effects.push(Effect::Probe { id, size: 0 });
        effects.push(Effect::Probe {
            id: id.wrapping_add(1),
            size: flight.size,
        });
    }
}

#[cfg(test)]
mod tests;
