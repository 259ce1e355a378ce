//! `weft perf`: throughput and latency between two nodes, and what limits them.
//!
//! The client is the user's command; the server is a process that the server's daemon starts for one
//! run. They agree on the run over a TCP connection inside the tunnel ([`message`]), then each runs
//! its half:
//!
//! | module | what it is |
//! |---|---|
//! | [`client`], [`server`] | client and server of a run |
//! | [`plan`], [`limits`], [`message`] | the request; the limits that the server's owner sets; the messages of client and server |
//! | [`token`], [`text`] | the secret of a run; text of the peer, sanitised |
//! | [`addresses`], [`challenge`] | the addresses of the flows; the proof that the server receives at them |
//! | [`endpoint`], [`account`] | what client and server have in common: load, one sample a second; the account at the end |
//! | [`tcp`], [`udp`], [`mod@quic`], [`probe`] | the load, and round trips beside it |
//! | [`arrivals`], [`latency`] | loss, order and jitter of numbered datagrams; a summary of round trips |
//! | [`meter`] | CPU time and memory of the daemon and of the test itself |
//! | [`judge`] | what limited the run, and the evidence: pure |
//! | [`stages`], [`thread_verdict`] | what the packet threads did under the load, stage by stage; which of them limited it: pure |
//! | [`report`] | the document `weft.perf/1`; as text ([`human`]), as a plot ([`plot`], by [`svg`]) |
//!
//! Never here: the daemon (weft-node), which reports through [`endpoint::DaemonView`] what a run needs to
//! know, its control socket (weft-control), its configuration (weft-config), and the protocol of the
//! mesh.

pub mod account;
pub mod addresses;
pub mod arrivals;
pub mod challenge;
pub mod client;
pub mod endpoint;
pub mod human;
pub mod judge;
pub mod latency;
pub mod limits;
pub mod message;
pub mod meter;
pub mod plan;
pub mod plot;
pub mod probe;
pub mod quic;
pub mod report;
pub mod server;
mod socket;
pub mod stages;
pub mod svg;
pub mod tcp;
pub mod text;
pub mod thread_verdict;
pub mod token;
pub mod udp;

use std::io;
use std::net::{SocketAddr, TcpListener};

use rustix::net::sockopt::set_socket_reuseaddr;
use rustix::net::{SocketType, bind};
use weft_os::socket::bind_to_interface;

/// The TCP port at which a node accepts runs, on its mesh address.
pub const PORT: u16 = 2125;

/// Returns a listening socket for [`server::Server::control`] connections at `address`, which accepts
/// them from the interface `device` only.
///
/// # Errors
/// The error of the system call; before Linux 5.7, binding to an interface takes CAP_NET_RAW.
pub fn listen(address: SocketAddr, device: &str) -> io::Result<TcpListener> {
    let socket = socket::socket_for(address, SocketType::STREAM)?;
    bind_to_interface(&socket, device)?;
    // A daemon that restarts can bind the port at once.
    set_socket_reuseaddr(&socket, true)?;
    bind(&socket, &address)?;
    rustix::net::listen(&socket, 16)?;
    Ok(socket.into())
}

/// Bits of `bytes` in `seconds`, in Mbit/s; `None` if no time has passed.
#[must_use]
pub fn mbit_s(bytes: u64, seconds: f64) -> f64 {
    if seconds > 0.0 {
        bytes as f64 * 8e-6 / seconds
    } else {
        0.0
    }
}
