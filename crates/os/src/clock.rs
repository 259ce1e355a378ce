//! The clock that protocol timers run on.

/// Milliseconds since boot, counting the time the machine was suspended (`CLOCK_BOOTTIME`), so that a
/// laptop that wakes up knows at once that its links are old. Never goes back, not even when the wall
/// clock is set.
#[must_use]
pub fn boottime_ms() -> u64 {
    read(libc::CLOCK_BOOTTIME).map_or(0, |time| time.tv_sec as u64 * 1000 + time.tv_nsec as u64 / 1_000_000)
}

/// Nanoseconds on a clock that never goes back (`CLOCK_MONOTONIC`), to measure how long something takes.
#[must_use]
pub fn monotonic_ns() -> u64 {
    read(libc::CLOCK_MONOTONIC).map_or(0, |time| time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

/// Reads a clock of the kernel; `None` if it has no such clock.
pub(crate) fn read(clock: libc::clockid_t) -> Option<libc::timespec> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes one `timespec` through a pointer to one.
    let result = unsafe { libc::clock_gettime(clock, &raw mut time) };
    (result == 0).then_some(time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_milliseconds_and_at_least_the_time_awake() {
        let awake = read(libc::CLOCK_MONOTONIC).unwrap();
        let (first, second) = (boottime_ms(), boottime_ms());
        let after = read(libc::CLOCK_BOOTTIME).unwrap();
        assert!(awake.tv_sec as u64 * 1000 <= first && first <= second);
        assert!(second < (after.tv_sec as u64 + 1) * 1000);
        let before = monotonic_ns();
        assert!(before > 0 && before <= monotonic_ns());
        assert_eq!(read(-1_000_000).map(|time| time.tv_sec), None);
    }
}
