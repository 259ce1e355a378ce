//! `weft perf`: what two nodes can do between them, and what holds them up.
//!
//! One end, *near*, is the command of the person who asks; the other, *far*, is a process that the daemon there starts
//! for one run. They agree over a TCP connection inside the tunnel ([`message`]), then each does its half:
//!
//! | module | what it is |
//! |---|---|
//! | [`near`], [`far`] | the two ends of a run |
//! | [`plan`], [`limits`], [`message`] | what is asked for; what the far end's owner allows; how the ends talk |
//! | [`ends`], [`challenge`] | the addresses of the flows; the proof that they arrive there |
//! | [`end`] | what both do alike: load, one sample a second, an account |
//! | [`tcp`], [`udp`], [`mod@quic`], [`probe`] | the load, and round trips beside it |
//! | [`arrivals`], [`latency`] | loss, order and jitter of numbered datagrams; round trips in few figures |
//! | [`meter`] | processor and memory of the daemon and of the test itself |
//! | [`judge`] | what held the run up, and the evidence: pure |
//! | [`stages`], [`held`] | what the packet threads did under the load, stage by stage; which of them held it up: pure |
//! | [`report`] | the document `weft.perf/1`; as text ([`human`]), as a drawing ([`plot`], by [`svg`]) |
//!
//! Never here: the daemon, its control socket and its configuration (weft-node, which says through
//! [`end::DaemonView`] what a run has to know), and the protocol of the mesh.

pub mod arrivals;
pub mod challenge;
pub mod end;
pub mod ends;
pub mod far;
pub mod held;
pub mod human;
pub mod judge;
pub mod latency;
pub mod limits;
pub mod message;
pub mod meter;
pub mod near;
pub mod plan;
pub mod plot;
pub mod probe;
pub mod quic;
pub mod report;
pub mod stages;
pub mod svg;
pub mod tcp;
pub mod udp;

use std::io;
use std::net::{SocketAddr, TcpListener};

use socket2::{Domain, Protocol, SockAddr, Socket, Type};

/// The TCP port on which a node takes runs, at its mesh address.
pub const PORT: u16 = 2125;

/// A socket for [`far::Far::control`] connections at `address`, which hears the interface `device` alone.
///
/// # Errors
/// What the system refused; before Linux 5.7, binding to an interface takes CAP_NET_RAW.
pub fn listen(address: SocketAddr, device: &str) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.bind_device(Some(device.as_bytes()))?;
    // A daemon that starts again has the port at once.
    socket.set_reuse_address(true)?;
    socket.bind(&SockAddr::from(address))?;
    socket.listen(16)?;
    Ok(socket.into())
}

/// Bits of `bytes` in `seconds`, in millions a second; none where no time has passed.
#[must_use]
pub fn mbit_s(bytes: u64, seconds: f64) -> f64 {
    if seconds > 0.0 {
        bytes as f64 * 8e-6 / seconds
    } else {
        0.0
    }
}
