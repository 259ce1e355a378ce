//! The priority of a lane's thread.
//!
//! The thread raises its priority while it moves bulk, because everything waits for it: the sender
//! for room, the receiver for data, a ping behind them. While it moves small packets it keeps the
//! priority it was started with, so that packets gather meanwhile and share system calls: a thread
//! that ran at once for each of them would take twice the CPU time
//! (docs/experiments/2026-11-22-scheduling.md).

use std::time::Duration;

use weft_os::process::{Scheduling, set_thread_scheduling, thread_scheduling};

/// Nice value of a thread with raised priority.
pub const LANE_NICE: i8 = -10;
/// Its time slice: the scheduler's minimum, which brings the next slice soonest.
const SLICE: Duration = Duration::from_micros(100);
/// Average bytes of a system call above which traffic counts as bulk: those of a stream are 40 KiB,
/// including its acknowledgements; those of a flood of datagrams 1.5 KiB at most.
const BULK: u64 = 16 * 1024;

/// The priority of one lane's thread.
#[derive(Default)]
pub(crate) struct Priority {
    /// The parameters at the start and the raised ones; `None` if it is not configured, or refused.
    scheduling: Option<[Scheduling; 2]>,
    first: bool,
    /// Whether the system permits it, after the first attempt.
    pub(crate) granted: Option<bool>,
    calls: u64,
    bytes: u64,
}

impl Priority {
    /// Tests in the current thread whether the system permits it.
    pub(crate) fn ask() -> Self {
        let first = Scheduling {
            nice: LANE_NICE,
            slice: SLICE,
        };
        let asked = thread_scheduling().and_then(|own| {
            set_thread_scheduling(first)?;
            set_thread_scheduling(own)?;
            Ok([own, first])
        });
        if let Err(error) = &asked {
            tracing::info!(%error, nice = LANE_NICE, "the packet thread never goes before other programs");
        }
        Self {
            granted: Some(asked.is_ok()),
            scheduling: asked.ok(),
            ..Self::default()
        }
    }

    /// Counts a read, or a receive of which something was passed on.
    #[inline(always)]
    pub(crate) fn moved(&mut self, bytes: usize) {
        self.calls += 1;
        self.bytes += bytes as u64;
    }

    /// Decides by the traffic since the last call.
    pub(crate) fn review(&mut self) {
        let bulk = self.bytes > BULK * self.calls;
        (self.calls, self.bytes) = (0, 0);
        let Some([own, first]) = self.scheduling.filter(|_| bulk != self.first) else {
            return;
        };
        let (before, then) = if bulk { (own, first) } else { (first, own) };
        // Another nice value was set on purpose (renice), and stays.
        if thread_scheduling().is_ok_and(|now| now.nice != before.nice) {
            tracing::info!("the packet thread keeps the nice value that it was given");
            (self.scheduling, self.granted) = (None, Some(false));
        } else if set_thread_scheduling(then).is_ok() {
            self.first = bulk;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nice_value_given_from_outside_stays() {
        std::thread::spawn(|| {
            let mut priority = Priority::ask();
            let given = Scheduling {
                nice: 15,
                slice: Duration::ZERO,
            };
            set_thread_scheduling(given).unwrap();
            for bytes in [60_000, 100, 60_000] {
                priority.moved(bytes);
                priority.review();
                assert_eq!(thread_scheduling().unwrap().nice, 15);
            }
            assert_eq!(priority.granted, Some(false));
        })
        .join()
        .unwrap();
    }

    #[test]
    fn bulk_goes_first_and_small_packets_do_not() {
        std::thread::spawn(|| {
            let nice = || thread_scheduling().unwrap().nice;
            let own = nice();
            let permitted = weft_os::process::permit_nice(LANE_NICE).is_ok();
            let mut priority = Priority::ask();
            assert_eq!(nice(), own);
            let may = priority.granted.unwrap();
            assert!(may || !permitted);
            let first = if may { LANE_NICE } else { own };
            // Super-packets and acknowledgements, a flood, super-packets again, silence.
            for (sizes, expected) in [
                (&[60_000, 80, 60_000][..], first),
                (&[1_300; 100][..], own),
                (&[60_000][..], first),
                (&[][..], own),
            ] {
                sizes.iter().for_each(|bytes| priority.moved(*bytes));
                priority.review();
                assert_eq!(nice(), expected);
            }
        })
        .join()
        .unwrap();
    }
}
