//! What a run came to, in numbers.

use std::collections::BTreeMap;

use crate::Kind;

/// Times that were measured on the virtual clock, ms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Latency {
    /// Half were not longer.
    pub p50: u64,
    /// Nine of ten were not longer.
    pub p90: u64,
    /// None was longer.
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

/// What a run came to. Times are ms of the virtual clock, means are over hosts that run at the end.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figures {
    /// Hosts that took part.
    pub nodes: usize,
    /// Links between them.
    pub links: usize,
    /// How long it ran.
    pub duration: u64,
    /// From the beginning until all agreed on one tree, if they did: looked at every 250 ms.
    pub converged: Option<u64>,
    /// From the last thing that happened to hosts or network until all agreed again.
    pub settled: Option<u64>,
    /// The longest way to the root at the end, in hops.
    pub depth: usize,
    /// Probes sent.
    pub sent: u64,
    /// Probes that arrived, byte for byte.
    pub reached: u64,
    /// Ordered pairs of hosts of which the first sent to the second.
    pub pairs: u64,
    /// Of these, those with at least one probe that arrived.
    pub pairs_reached: u64,
    /// Of the probes that arrived, from sending to arrival: with the first between two hosts comes its look-up and its handshake.
    pub latency: Option<Latency>,
    /// Links that arrived probes crossed, on average.
    pub hops: f64,
    /// Links on the shortest way, for the same probes, on average.
    pub shortest: f64,
    /// Datagrams and bytes sent by kind.
    pub by_kind: BTreeMap<Kind, (u64, u64)>,
    /// Datagrams that a host sent each second, on average.
    pub datagrams_per_node_second: f64,
    /// Bytes of UDP payload that a host sent each second, on average.
    pub bytes_per_node_second: f64,
    /// Bytes that others made a host keep about the mesh, on average.
    pub state_mean: usize,
    /// The most of these.
    pub state_max: usize,
    /// What look-ups came to, all hosts together, by the name of the counter.
    pub lookups: BTreeMap<&'static str, u64>,
    /// Session datagrams that came to a host that had carried them before.
    pub loops: u64,
    /// Turns of hosts.
    pub steps: u64,
    /// Of everything delivered, and when.
    pub trace: u64,
}

impl Figures {
    /// How much longer the ways of probes were than the shortest.
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
