//! A socket with another port, by which peers that do not answer are dialled, too.

use std::net::SocketAddr;

use weft_os::udp::UdpSocket;
use weft_packet::SocketId;
use weft_reach::other_port::{self, Unanswered};

use super::run::Daemon;

/// The socket, and when the next one takes its place.
#[derive(Debug, Default)]
pub(super) struct OtherPort {
    state: other_port::OtherPort,
    current: Option<SocketId>,
}

impl OtherPort {
    /// The number of the socket that peers are dialled by.
    pub(super) const fn current(&self) -> Option<SocketId> {
        self.current
    }

    /// The network of this host has changed.
    pub(super) const fn handle_network_change(&mut self) {
        self.state.handle_network_change();
    }
}

impl Daemon {
    /// Opens a socket with another port if peers do not answer. One that no link uses is closed some time
    /// after it is no longer dialled by.
    pub(super) fn drive_other_port(&mut self, now: u64) {
        let mut unanswered = None;
        let due = self.reaching.other_port.state.poll(now, || {
            *unanswered.insert(match self.node.dialled_in_vain() {
                (0, _) => Unanswered::None,
                (_, 0) => Unanswered::All,
                _ => Unanswered::Some,
            })
        });
        if unanswered == Some(Unanswered::None) && self.reaching.other_port.current.take().is_some() {
            self.node.set_other_port(None);
        }
        let ip = self.facts.listen_ip(false).filter(|_| due);
        let Some(at) = ip.map(|ip| SocketAddr::new(ip, 0)) else {
            return;
        };
        let socket = match UdpSocket::bind(at, super::bind_options(&self.configuration.config)) {
            Ok(socket) => socket,
            Err(error) => return tracing::debug!(%error, "there is no other port for peers that do not answer"),
        };
        let port = socket.local_address().port();
        if let Some(id) = self.reaching.add_for_all(now, port) {
            tracing::info!(port, "peers that do not answer are dialled from another port, too");
            self.reaching.other_port.current = Some(id);
            self.lanes.add_socket(id, socket);
            self.node.set_other_port(Some(id));
            self.tell_underlay_ports();
        }
    }
}
