//! A socket with another port, by which peers that do not answer are dialled, too.

use std::net::SocketAddr;

use weft_contract::SocketId;
use weft_os::udp::UdpSocket;
use weft_reach::other_port::Unanswered;

use super::run::Daemon;

impl Daemon {
    /// Opens a socket with another port if peers do not answer; it takes the place of the one before. A
    /// socket is closed some time after the last link and the last message by it.
    pub(super) fn drive_other_port(&mut self, now: u64) {
        let mut unanswered = None;
        let due = self.reaching.other_port.poll(now, || {
            *unanswered.insert(match self.node.dialled_in_vain() {
                (0, _) => Unanswered::None,
                (_, 0) => Unanswered::All,
                _ => Unanswered::Some,
            })
        });
        if unanswered == Some(Unanswered::None) {
            self.node.set_other_port(None);
        }
        if unanswered.is_some() {
            self.return_from_other_ports(now);
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
            self.lanes.add_socket(id, socket);
            self.node.set_other_port(Some(id));
            self.tell_underlay_ports();
        }
    }

    /// Returns true if a link goes through another port than the ordinary one because of that.
    pub(super) fn has_link_aside(&self) -> bool {
        let mut others = self.reaching.for_all();
        others.any(|id| self.node.has_link_through(id))
    }

    /// Leads links back to the ordinary sockets where their peers answer again. Peers that see another port
    /// say nothing about the one at which others would meet this node. What they still send to a socket that
    /// is left arrives until it is closed.
    fn return_from_other_ports(&mut self, now: u64) {
        let all: Vec<SocketId> = self.reaching.for_all().collect();
        for id in all {
            if self.node.may_leave_socket(now, id) {
                tracing::info!("peers answer at the ordinary port again, so that their links return to it");
                self.node.forget_socket(now, id);
            }
        }
    }
}
