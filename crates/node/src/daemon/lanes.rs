//! The ends of each lane: a queue of the interface, and sockets that share their ports.

use std::io;

use weft_contract::LANE_MASK;
use weft_host::tun::Interface;
use weft_os::tun::{Tun, TunError};
use weft_os::udp::{BindOptions, Steering, UdpSocket};
use weft_wire::fast;

use crate::logging::causes;

/// The kernel reads fast frames as [`Place::owner`](weft_contract::Place::owner) does: the index is
/// little-endian.
const STEERING: Steering = Steering {
    version: fast::VERSION,
    at: fast::Header::INDEX_AT as u32,
    mask: LANE_MASK as u8,
};

/// Queues and sockets of the lanes after the first.
#[derive(Default)]
pub(super) struct MoreLanes {
    pub(super) ends: Vec<(Tun, Vec<UdpSocket>)>,
    /// The reason why there are none although they are configured.
    pub(super) refused: Option<String>,
}

/// The reason why the system permits a node only one lane.
#[derive(Debug, thiserror::Error)]
enum Refused {
    #[error("the interface has one queue")]
    Queue(#[source] TunError),
    #[error("the interface's queues differ in what they offload")]
    Offloads,
    #[error("UDP sockets cannot share {address}")]
    Share {
        address: std::net::SocketAddr,
        source: io::Error,
    },
}

impl MoreLanes {
    /// Opens what `count` lanes need in addition to the first lane's queue and sockets, and a
    /// sender beside each socket. If the system refuses any of it, only the first lane remains,
    /// with senders if it can have them.
    pub(super) fn open(count: u8, interface: &Interface, first: &mut [UdpSocket], options: BindOptions) -> Self {
        let opened = open(count, interface, first, options);
        opened.unwrap_or_else(|error| {
            let why = causes(&error);
            if count == 1 {
                tracing::info!(error = why, "datagrams leave by the sockets that receive");
                return Self::default();
            }
            tracing::info!(error = why, wanted = count, "one lane moves all packets");
            Self {
                refused: Some(why),
                ..Self::open(1, interface, first, options)
            }
        })
    }
}

fn open(count: u8, interface: &Interface, first: &mut [UdpSocket], options: BindOptions) -> Result<MoreLanes, Refused> {
    let mut more = MoreLanes::default();
    for _ in 1..count {
        let queue = interface.add_queue().map_err(Refused::Queue)?;
        if queue.offloads() != interface.offloads() {
            return Err(Refused::Offloads);
        }
        more.ends.push((queue, Vec::new()));
    }
    for socket in first {
        let address = socket.local_address();
        let shared = socket.share(count, options, STEERING);
        let shared = shared.map_err(|source| Refused::Share { address, source })?;
        for ((_, sockets), socket) in more.ends.iter_mut().zip(shared) {
            sockets.push(socket);
        }
    }
    Ok(more)
}
