//! When a lane's thread goes before others of its machine.
//!
//! While it moves bulk it does, because everything waits for it: the sender for room, the receiver for data, a ping behind
//! them. While it moves small packets it takes turns, so that they gather meanwhile and share system calls: run at once
//! for each of them, it takes twice the CPU time (docs/experiments/2026-11-22-scheduling.md).

use std::time::Duration;

use weft_os::process::{Turns, set_thread_turns, thread_turns};

/// Nice value of a thread that goes before others.
pub const LANE_NICE: i8 = -10;
/// Its turns: the shortest that the scheduler has, which is what brings the next one soonest.
const SLICE: Duration = Duration::from_micros(100);
/// Bytes of a system call on the average that make what is moved bulk: a stream's are 40 KiB, its acknowledgements included, a
/// flood of datagrams' 1.5 KiB at the most.
const BULK: u64 = 16 * 1024;

/// What one lane's thread has of it.
#[derive(Default)]
pub(crate) struct Priority {
    /// As it was started, and how it goes first; none where that is not wished, or refused.
    turns: Option<[Turns; 2]>,
    first: bool,
    /// Whether it may, once the system was asked.
    pub(crate) granted: Option<bool>,
    calls: u64,
    bytes: u64,
}

impl Priority {
    /// In the thread that it is for: finds out whether it may go first.
    pub(crate) fn ask() -> Self {
        let first = Turns {
            nice: LANE_NICE,
            slice: SLICE,
        };
        let asked = thread_turns().and_then(|own| {
            set_thread_turns(first)?;
            set_thread_turns(own)?;
            Ok([own, first])
        });
        if let Err(error) = &asked {
            tracing::info!(%error, nice = LANE_NICE, "the packet thread never goes before other programs");
        }
        Self {
            granted: Some(asked.is_ok()),
            turns: asked.ok(),
            ..Self::default()
        }
    }

    /// A read brought this much, or a receive of which something went on.
    #[inline(always)]
    pub(crate) fn moved(&mut self, bytes: usize) {
        self.calls += 1;
        self.bytes += bytes as u64;
    }

    /// Looks at what was moved since the last time.
    pub(crate) fn review(&mut self) {
        let bulk = self.bytes > BULK * self.calls;
        (self.calls, self.bytes) = (0, 0);
        let Some([own, first]) = self.turns.filter(|_| bulk != self.first) else {
            return;
        };
        let (before, then) = if bulk { (own, first) } else { (first, own) };
        // Another nice value was set on purpose (renice), and stays.
        if thread_turns().is_ok_and(|now| now.nice != before.nice) {
            tracing::info!("the packet thread keeps the nice value that it was given");
            (self.turns, self.granted) = (None, Some(false));
        } else if set_thread_turns(then).is_ok() {
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
            let given = Turns {
                nice: 15,
                slice: Duration::ZERO,
            };
            set_thread_turns(given).unwrap();
            for bytes in [60_000, 100, 60_000] {
                priority.moved(bytes);
                priority.review();
                assert_eq!(thread_turns().unwrap().nice, 15);
            }
            assert_eq!(priority.granted, Some(false));
        })
        .join()
        .unwrap();
    }

    #[test]
    fn bulk_goes_first_and_small_packets_take_turns() {
        std::thread::spawn(|| {
            let nice = || thread_turns().unwrap().nice;
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
