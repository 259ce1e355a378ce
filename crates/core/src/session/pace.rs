//! How often something may be told that others can make us tell: at once, and then after a pause, with what is true by then.

/// At least this between two times, ms.
const PAUSE: u64 = 1_000;

/// When something may be told again, and whether it then has to be. Times are ms on the caller's clock.
///
/// Each peer has some of these, so both are in one number: the time twice, and one more if it has to be told.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pace(u64);

impl Pace {
    /// Whether it may be told now; otherwise it is due later.
    pub(crate) fn take(&mut self, now: u64) -> bool {
        let may = now >= self.0 >> 1;
        self.0 = if may { (now + PAUSE) << 1 } else { self.0 | 1 };
        may
    }

    /// When it is due, if it had to wait; `u64::MAX` if not.
    pub(crate) fn due(&self) -> u64 {
        if self.0 & 1 == 1 { self.0 >> 1 } else { u64::MAX }
    }

    /// Nothing needs to be told any more.
    pub(crate) fn forget(&mut self) {
        self.0 &= !1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thousand_wishes_are_told_once_and_once_more() {
        let mut pace = Pace::default();
        assert_eq!(pace.due(), u64::MAX);
        let told = (0..1_000).filter(|now| pace.take(5_000 + now)).count();
        assert_eq!((told, pace.due()), (1, 6_000));
        assert!(pace.take(6_000));
        assert_eq!(pace.due(), u64::MAX);
        assert!(!pace.take(6_001));
        pace.forget();
        assert_eq!(pace.due(), u64::MAX);
    }
}
