//! A socket with another port, by which peers that do not answer are dialled, too.

use std::net::SocketAddr;

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
}
