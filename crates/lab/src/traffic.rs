//! Traffic in a lab network: pings, TCP with verified content, UDP flows. All in this process, on
//! threads in the hosts' namespaces, so nothing needs to be installed and no output needs to be
//! parsed.

mod payload;
mod ping;
mod probes;
mod tcp;
mod udp;

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

pub use payload::Payload;
pub use ping::{PingOptions, Pinger, ping};
pub use probes::{ProbeLog, ProbeReport};
pub use tcp::{Limit, TcpFlow, TcpReport, transfer};
pub use udp::{UdpFlow, UdpOptions};

use crate::world::WorldError;

/// Why a measurement gave no result. Loss is a result, not an error.
#[derive(Debug, thiserror::Error)]
pub enum TrafficError {
    /// The host is not usable.
    #[error(transparent)]
    World(#[from] WorldError),
    /// A socket could not be created or configured.
    #[error("no {what}")]
    Socket {
        /// The operation: "listening TCP socket", for example.
        what: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// The TCP connection could not be established.
    #[error("TCP to {addr} does not connect")]
    Connect {
        /// The address.
        addr: SocketAddr,
        /// The system's error.
        source: io::Error,
    },
    /// No connection arrived within the time limit.
    #[error("no TCP connection arrived within {} s", .0.as_secs())]
    NotAccepted(Duration),
    /// The transfer was interrupted.
    #[error("the TCP {end} broke off after {bytes} bytes")]
    Broken {
        /// "sender" or "receiver".
        end: &'static str,
        /// Bytes until then.
        bytes: u64,
        /// The system's error.
        source: io::Error,
    },
    /// The transfer did not end within the time limit.
    #[error("the TCP {end} had {bytes} bytes after {} s, its limit", .after.as_secs())]
    Deadline {
        /// "sender" or "receiver".
        end: &'static str,
        /// Bytes until then.
        bytes: u64,
        /// The time limit.
        after: Duration,
    },
    /// A thread of the measurement ended early.
    #[error("a traffic thread ended unexpectedly")]
    Lost,
}
