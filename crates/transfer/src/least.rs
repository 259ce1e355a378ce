//! The least speed of a transfer: one on which nothing moves takes no turn, and ends at last.

use std::time::{Duration, Instant};

/// How long nothing may move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Least {
    /// Until the transfer takes no turn of those at a time.
    pub idle: Duration,
    /// Until it ends, and is tried again.
    pub end: Duration,
}

impl Default for Least {
    fn default() -> Self {
        Self {
            idle: Duration::from_secs(60),
            end: Duration::from_secs(1_800),
        }
    }
}

impl Least {
    /// Why a transfer ends on which nothing moved for [`Least::end`].
    #[must_use]
    pub fn words(&self) -> String {
        let seconds = self.end.as_secs();
        match (seconds / 60, seconds % 60) {
            (minutes, 0) if minutes > 0 => format!("nothing has come for {minutes} minutes"),
            _ => format!("nothing has come for {seconds} s"),
        }
    }
}

/// What follows from how long nothing has moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Motion {
    /// Something moves.
    Moves,
    /// Others may have its turn.
    Idle,
    /// It ends.
    Over,
}

/// Sees whether something moves.
#[derive(Debug)]
pub struct Watch {
    since: Instant,
    marks: [u64; 6],
}

impl Watch {
    /// Begins at `now`.
    #[must_use]
    pub const fn new(now: Instant) -> Self {
        Self {
            since: now,
            marks: [0; 6],
        }
    }

    /// Compares marks with those of the last look: any change is a motion. `counts` is false while none is expected.
    pub fn look(&mut self, least: &Least, marks: [u64; 6], counts: bool, now: Instant) -> Motion {
        if !counts || self.marks != marks {
            (self.since, self.marks) = (now, marks);
        }
        let still = now.saturating_duration_since(self.since);
        if still >= least.end {
            Motion::Over
        } else if still >= least.idle {
            Motion::Idle
        } else {
            Motion::Moves
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transfer_that_stands_still_is_idle_and_then_over() {
        let begun = Instant::now();
        let after = |seconds| begun + Duration::from_secs(seconds);
        let (mut watch, least) = (Watch::new(begun), Least::default());
        assert_eq!(watch.look(&least, [0; 6], true, after(59)), Motion::Moves);
        assert_eq!(watch.look(&least, [0; 6], true, after(60)), Motion::Idle);
        assert_eq!(watch.look(&least, [0, 0, 1, 0, 0, 0], true, after(61)), Motion::Moves);
        assert_eq!(watch.look(&least, [0, 0, 1, 0, 0, 0], true, after(121)), Motion::Idle);
        assert_eq!(watch.look(&least, [0, 0, 1, 0, 0, 0], true, after(1_860)), Motion::Idle);
        assert_eq!(watch.look(&least, [0, 0, 1, 0, 0, 0], true, after(1_861)), Motion::Over);
        assert_eq!(Least::default().words(), "nothing has come for 30 minutes");
    }

    #[test]
    fn time_in_which_nothing_is_expected_does_not_count() {
        let begun = Instant::now();
        let after = |seconds| begun + Duration::from_secs(seconds);
        let (mut watch, least) = (Watch::new(begun), Least::default());
        assert_eq!(watch.look(&least, [0; 6], false, after(5_000)), Motion::Moves);
        assert_eq!(watch.look(&least, [0; 6], true, after(5_059)), Motion::Moves);
        assert_eq!(watch.look(&least, [0; 6], true, after(5_060)), Motion::Idle);
    }
}
