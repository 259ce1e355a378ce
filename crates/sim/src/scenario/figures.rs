//! The figures of a run.

use std::collections::BTreeMap;

use crate::Kind;

/// Times that were measured on the virtual clock, ms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Latency {
    /// Median.
    pub p50: u64,
    /// 90th percentile.
    pub p90: u64,
    /// Maximum.
    pub max: u64,
}

impl Latency {
    pub(super) fn of(mut times: Vec<u64>) -> Option<Self> {
        times.sort_unstable();
        let at = |percent: usize| times.get((times.len() * percent).div_ceil(100).max(1) - 1).copied();
        Some(Self {
            p50: at(50)?,
            p90: at(90)?,
            max: at(100)?,
        })
    }
}

/// The figures of a run. Times are ms of the virtual clock, means are over hosts that run at the
/// end.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figures {
    /// Hosts that took part.
    pub nodes: usize,
    /// Links between them.
    pub links: usize,
    /// Duration of the run.
    pub duration: u64,
    /// From the start until all hosts agreed on one tree, if they did; checked every 250 ms.
    pub converged: Option<u64>,
    /// From the last action on hosts or network until all agreed again.
    pub settled: Option<u64>,
    /// The longest path to the root at the end, in hops.
    pub depth: usize,
    /// Probes sent.
    pub sent: u64,
    /// Probes that arrived unchanged.
    pub reached: u64,
    /// Ordered pairs of hosts of which the first sent to the second.
    pub pairs: u64,
    /// Those pairs with at least one probe that arrived.
    pub pairs_reached: u64,
    /// From sending to arrival of the probes that arrived: the first between two hosts includes its
    /// look-up and its handshake.
    pub latency: Option<Latency>,
    /// Links that arrived probes crossed, on average.
    pub hops: f64,
    /// Links on the shortest path, for the same probes, on average.
    pub shortest: f64,
    /// Datagrams and bytes sent by kind.
    pub by_kind: BTreeMap<Kind, (u64, u64)>,
    /// Datagrams that a host sent each second, on average.
    pub datagrams_per_node_second: f64,
    /// Bytes of UDP payload that a host sent each second, on average.
    pub bytes_per_node_second: f64,
    /// Bytes of mesh state that others made a host keep, on average.
    pub state_mean: usize,
    /// The maximum of this state over all hosts.
    pub state_max: usize,
    /// The results of look-ups, all hosts together, by the name of the counter.
    pub lookups: BTreeMap<&'static str, u64>,
    /// Session datagrams that arrived at a host that had forwarded them before.
    pub loops: u64,
    /// Turns of hosts.
    pub steps: u64,
    /// A hash of everything delivered, and when.
    pub trace: u64,
}

impl Figures {
    /// The ratio of the paths of probes to the shortest.
    pub fn stretch(&self) -> f64 {
        if self.shortest > 0.0 {
            self.hops / self.shortest
        } else {
            0.0
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_among_the_times() {
        let of = |times: &[u64]| Latency::of(times.to_vec()).map(|l| (l.p50, l.p90, l.max));
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[7]), Some((7, 7, 7)));
        assert_eq!(of(&[3, 1, 2]), Some((2, 3, 3)));
        let hundred: Vec<u64> = (1..=100).collect();
        assert_eq!(of(&hundred), Some((50, 90, 100)));
    }
}
