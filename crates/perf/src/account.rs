//! The account of one end: the part of the protocol, and of the report, that client and server both
//! fill in.

use serde::{Deserialize, Serialize};

use crate::arrivals::ArrivalCounts;
use crate::meter::Spent;
use crate::stages::EndpointStages;
use crate::text::printable;

/// One second of a run at one end.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EndpointSecond {
    /// Its duration in seconds.
    pub seconds: f64,
    /// Bytes of payload sent.
    pub sent_bytes: u64,
    /// Bytes of payload received.
    pub received_bytes: u64,
    /// TCP segments retransmitted.
    pub retransmits: u64,
    /// Datagrams that were expected and not received.
    pub missing: u64,
    /// CPU time and memory.
    pub spent: Spent,
    /// The path to the peer, as the local daemon reports it.
    pub path: Option<String>,
}

/// A run at one end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EndpointReport {
    /// Duration of the load in seconds.
    pub seconds: f64,
    /// What this end sent; `None` if it does not send.
    pub sent: Option<Sent>,
    /// What this end received; `None` if it does not receive.
    pub received: Option<Received>,
    /// CPU time and memory over the whole run.
    pub spent: Spent,
    /// The path to the peer.
    pub path: PathSeen,
    /// The work of the local packet threads; `None` if it was not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stages: Option<EndpointStages>,
}

/// What one end sent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sent {
    /// Bytes of payload that the system accepted.
    pub bytes: u64,
    /// The share of the time in which the sender paused to keep the requested rate.
    pub paced: f64,
    /// The kernel's figures for TCP.
    pub tcp: Option<TcpSent>,
    /// Datagrams.
    pub udp: Option<UdpSent>,
}

/// All connections of one direction, from the kernel of the sender.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TcpSent {
    /// Congestion control in use.
    pub congestion: String,
    /// Segments with data, including retransmissions.
    pub segments: u64,
    /// Retransmitted segments.
    pub retransmits: u64,
    /// Round trip in milliseconds, mean of all connections at each second.
    pub rtt_ms: f64,
    /// The minimum round trip in milliseconds.
    pub min_rtt_ms: f64,
    /// The share of the time in which data was in flight, mean of all connections; the next two are
    /// means as well.
    pub busy: f64,
    /// The share of the time in which the receive window was the limit.
    pub window_limited: f64,
    /// The share of the time in which the send buffer was the limit.
    pub buffer_limited: f64,
    /// The receive window in bytes, sum of all connections.
    pub window_bytes: u64,
    /// The congestion window in bytes, sum of all connections.
    pub congestion_window_bytes: u64,
    /// Bytes that each connection sent.
    pub stream_bytes: Vec<u64>,
}

/// Datagrams sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UdpSent {
    /// Datagrams that the system accepted.
    pub datagrams: u64,
    /// Datagrams that the system had no room for.
    pub refused: u64,
}

/// What one end received.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Received {
    /// Bytes of payload until the load stopped.
    pub bytes: u64,
    /// Datagrams, including those received shortly after.
    pub udp: Option<ArrivalCounts>,
}

/// The path to the peer over a run, as the local daemon reports it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathSeen {
    /// Before the load.
    pub start: Option<String>,
    /// After the load.
    pub end: Option<String>,
    /// How often the path differed from that of the second before.
    pub changes: u32,
}

impl PathSeen {
    /// Records the daemon's report.
    pub(crate) fn note(&mut self, path: Option<String>) {
        // A daemon that does not answer for a moment has not changed its path.
        let Some(path) = path.map(|path| printable(&path, MAX_PATH_LEN)) else {
            return;
        };
        if self.start.is_none() {
            self.start = Some(path.clone());
        } else if self.end.as_ref() != Some(&path) {
            self.changes += 1;
        }
        self.end = Some(path);
    }
}

/// The longest text for a path, in characters.
pub const MAX_PATH_LEN: usize = 120;

impl EndpointReport {
    /// Returns it with all text sanitised for display, as it came from the peer.
    #[must_use]
    pub fn tamed(mut self) -> Self {
        self.spent = self.spent.tamed();
        for path in [&mut self.path.start, &mut self.path.end].into_iter().flatten() {
            *path = printable(path, MAX_PATH_LEN);
        }
        if let Some(tcp) = self.sent.as_mut().and_then(|sent| sent.tcp.as_mut()) {
            tcp.congestion = printable(&tcp.congestion, 15);
        }
        self.stages = self.stages.map(EndpointStages::tamed);
        self
    }
}

impl EndpointSecond {
    /// Returns it with all text sanitised for display, as it came from the peer.
    #[must_use]
    pub fn tamed(mut self) -> Self {
        self.spent = self.spent.tamed();
        self.path = self.path.map(|path| printable(&path, MAX_PATH_LEN));
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_changes_when_it_is_another() {
        let mut seen = PathSeen::default();
        for path in [Some("a"), None, Some("a"), Some("b"), Some("b"), Some("a")] {
            seen.note(path.map(str::to_owned));
        }
        assert_eq!(
            (seen.start.as_deref(), seen.end.as_deref(), seen.changes),
            (Some("a"), Some("a"), 2)
        );
    }
}
