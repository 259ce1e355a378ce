//! The clock of protocol timers, and the detection of discontinuities.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::time::{SystemTime, UNIX_EPOCH};

/// Milliseconds since boot, including the time in which the machine was suspended
/// (`CLOCK_BOOTTIME`), so that a laptop that wakes up knows at once that its links are old.
/// Monotonic, also when the wall clock is set.
#[must_use]
pub fn boottime_ms() -> u64 {
    read(libc::CLOCK_BOOTTIME).map_or(0, |time| time.tv_sec as u64 * 1000 + time.tv_nsec as u64 / 1_000_000)
}

/// Seconds since 1970 (UTC) on the clock that users see and set; 0 before 1970.
#[must_use]
pub fn unix_s() -> u64 {
    unix_ms() / 1000
}

/// Milliseconds since 1970 (UTC), by the clock of the system, which can be wrong and can jump.
#[must_use]
pub fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// Nanoseconds on a monotonic clock (`CLOCK_MONOTONIC`), to measure durations.
#[must_use]
pub fn monotonic_ns() -> u64 {
    read(libc::CLOCK_MONOTONIC).map_or(0, |time| time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

/// Detects that the machine was suspended, restored from an image, or booted anew under this
/// process (its boot id has changed).
///
/// Keys and counters in memory may then be in use elsewhere, or were during time that this process
/// did not see. Linux does not expose the generation number of a virtual machine (vmgenid) to user
/// space, so this type watches the clocks instead.
#[derive(Debug)]
pub struct ContinuityWatch {
    /// Opened at the start, as a confined process may not open it later.
    boot_id: Option<File>,
    last: Moment,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Moment {
    boot_id: Option<BootId>,
    /// How long the machine has been suspended since it started, ms.
    asleep: i64,
    /// The time of day, less the time since the machine started, ms.
    wall: i64,
}

/// A boot id as text.
type BootId = [u8; 36];
/// Minimum suspension that is reported, ms.
const ASLEEP: i64 = 1_000;
/// Minimum jump of the time of day that is reported, ms: a time daemon, once it runs, steps the
/// clock by less.
const WALL: i64 = 10_000;

/// Why the contents of memory may be in use elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Discontinuity {
    /// The boot id has changed.
    Boot,
    /// The machine was suspended.
    Asleep,
    /// The time of day jumped: an image was restored, or the clock was set.
    Wall,
}

impl std::fmt::Display for Discontinuity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Boot => "the boot id changed",
            Self::Asleep => "the machine was suspended",
            Self::Wall => "the time of day jumped",
        })
    }
}

impl ContinuityWatch {
    /// Starts to watch.
    #[must_use]
    pub fn new() -> Self {
        let boot_id = File::open("/proc/sys/kernel/random/boot_id").ok();
        let last = Moment::now(boot_id.as_ref());
        Self { boot_id, last }
    }

    /// Returns what has happened since the last call.
    pub fn look(&mut self) -> Option<Discontinuity> {
        let now = Moment::now(self.boot_id.as_ref());
        let before = std::mem::replace(&mut self.last, now);
        now.after(before)
    }
}

impl Default for ContinuityWatch {
    fn default() -> Self {
        Self::new()
    }
}

impl Moment {
    fn now(boot_id: Option<&File>) -> Self {
        let ms = |clock| read(clock).map_or(0, |time| time.tv_sec * 1000 + time.tv_nsec / 1_000_000);
        let mut id: BootId = [0; 36];
        let boot = ms(libc::CLOCK_BOOTTIME);
        Self {
            boot_id: boot_id.and_then(|file| file.read_exact_at(&mut id, 0).ok().map(|()| id)),
            asleep: boot - ms(libc::CLOCK_MONOTONIC),
            wall: ms(libc::CLOCK_REALTIME) - boot,
        }
    }

    fn after(self, before: Self) -> Option<Discontinuity> {
        if self.boot_id.is_some() && before.boot_id.is_some() && self.boot_id != before.boot_id {
            Some(Discontinuity::Boot)
        } else if self.asleep - before.asleep >= ASLEEP {
            Some(Discontinuity::Asleep)
        } else {
            ((self.wall - before.wall).abs() >= WALL).then_some(Discontinuity::Wall)
        }
    }
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
    fn a_jump_is_told_once_and_small_steps_never() {
        let start = Moment {
            boot_id: Some([1; 36]),
            asleep: 5_000,
            wall: 1_700_000_000_000,
        };
        let moved = |asleep, wall| Moment {
            boot_id: start.boot_id,
            asleep: start.asleep + asleep,
            wall: start.wall + wall,
        };
        for (now, expected) in [
            (start, None),
            (moved(999, 9_999), None),
            (moved(1_000, 0), Some(Discontinuity::Asleep)),
            (moved(0, -10_000), Some(Discontinuity::Wall)),
            (moved(0, 3_600_000), Some(Discontinuity::Wall)),
            (
                Moment {
                    boot_id: Some([2; 36]),
                    ..start
                },
                Some(Discontinuity::Boot),
            ),
            (Moment { boot_id: None, ..start }, None),
        ] {
            assert_eq!(now.after(start), expected, "{now:?}");
        }
        let mut watch = ContinuityWatch::new();
        assert!(watch.last.boot_id.is_some());
        assert_eq!(watch.look(), None);
        watch.last.asleep -= 60_000;
        assert_eq!((watch.look(), watch.look()), (Some(Discontinuity::Asleep), None));
    }

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
