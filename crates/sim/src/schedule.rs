//! The order in which hosts act.

use std::collections::BTreeSet;

use crate::HostId;

/// One deadline for each host, ms. The earliest is available at once, and changing one costs the
/// logarithm of their number.
#[derive(Debug, Default)]
pub(crate) struct Schedule {
    order: BTreeSet<(u64, HostId)>,
    of: Vec<u64>,
}

impl Schedule {
    /// Sets the deadline of a host; `u64::MAX` is none.
    pub(crate) fn set(&mut self, host: HostId, at: u64) {
        if self.of.len() <= host {
            self.of.resize(host + 1, u64::MAX);
        }
        let before = std::mem::replace(&mut self.of[host], at);
        if before == at {
            return;
        }
        if before != u64::MAX {
            self.order.remove(&(before, host));
        }
        if at != u64::MAX {
            self.order.insert((at, host));
        }
    }

    /// The earliest deadline.
    pub(crate) fn next(&self) -> Option<u64> {
        self.order.first().map(|(at, _)| *at)
    }

    /// Takes a host whose deadline has passed, the earliest and then the lowest number first. It
    /// has no deadline afterwards.
    pub(crate) fn pop_due(&mut self, now: u64) -> Option<HostId> {
        let (at, host) = *self.order.first()?;
        if at > now {
            return None;
        }
        self.set(host, u64::MAX);
        Some(host)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// The model examines all hosts.
        #[test]
        fn the_earliest_comes_first(steps in prop::collection::vec((0_usize..8, 0_u64..20, 0_u64..20), 0..100)) {
            let mut schedule = Schedule::default();
            let mut model = [u64::MAX; 8];
            for (host, at, now) in steps {
                schedule.set(host, at);
                model[host] = at;
                let least = model.iter().min().copied().filter(|at| *at != u64::MAX);
                prop_assert_eq!(schedule.next(), least);
                let due = (0..8).map(|host| (model[host], host)).filter(|(at, _)| *at <= now).min();
                prop_assert_eq!(schedule.pop_due(now), due.map(|(_, host)| host));
                if let Some((_, host)) = due {
                    model[host] = u64::MAX;
                }
            }
        }
    }
}
