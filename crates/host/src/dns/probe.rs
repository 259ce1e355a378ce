//! Probes of name servers, for those who ask whether names work.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use weft_os::random::random_bytes;

use super::forward::{Forwarder, answers};
use super::message::{query, rtype};
use super::server::Shared;

/// How long a server has for its answer.
const LIMIT: Duration = Duration::from_millis(600);
/// The zone below which a query of a probe asks: no name is there.
const LOOP: &str = "loop-test.weft";

/// Whether a server answers queries.
pub async fn is_answering(server: SocketAddr) -> bool {
    answers(server, &query("", rtype::NS), LIMIT).await
}

/// Looks whether servers send back what a responder asks them.
#[derive(Clone, Debug)]
pub struct LoopProbe {
    pub(super) shared: Arc<Shared>,
    pub(super) forwarder: Arc<Forwarder>,
}

impl LoopProbe {
    /// The first server that does.
    ///
    /// # Errors
    /// The system gives no random bytes.
    pub async fn run(self) -> io::Result<Option<SocketAddr>> {
        for server in self.forwarder.servers() {
            let mut token = [0; 8];
            random_bytes(&mut token)?;
            let token = format!("{:016x}", u64::from_ne_bytes(token));
            let query = query(&format!("{token}.{LOOP}"), rtype::A);
            self.shared.expect(Some(token));
            answers(server, &query, LIMIT).await;
            if self.shared.expect(None) {
                return Ok(Some(server));
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::UdpSocket;
    use tokio::task::JoinSet;

    use super::super::server::{Clients, Endpoint};
    use super::*;

    /// A server that sends each query to another one, and its response back.
    async fn relay(socket: UdpSocket, to: SocketAddr) {
        let mut bytes = [0; 512];
        while let Ok((len, from)) = socket.recv_from(&mut bytes).await {
            let beyond = UdpSocket::bind("127.0.0.1:0").await.unwrap();
            beyond.send_to(&bytes[..len], to).await.unwrap();
            let len = beyond.recv(&mut bytes).await.unwrap();
            socket.send_to(&bytes[..len], from).await.unwrap();
        }
    }

    #[tokio::test]
    async fn a_server_that_sends_queries_back_is_found() {
        let mut tasks = JoinSet::new();
        let mut start = |forwarder: &Arc<Forwarder>| {
            let shared = Arc::new(Shared::default());
            let endpoint = Endpoint::bind("127.0.0.1:0".parse().unwrap()).unwrap();
            let address = endpoint.address();
            endpoint
                .serve(&mut tasks, &shared, Clients::Host(Arc::clone(forwarder)))
                .unwrap();
            (shared, address)
        };
        let (forwarder, elsewhere) = (Arc::new(Forwarder::default()), Arc::new(Forwarder::default()));
        let (shared, responder) = start(&forwarder);
        let (_, other) = start(&elsewhere);
        let mut servers = Vec::new();
        for to in [other, responder] {
            let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
            servers.push(socket.local_addr().unwrap());
            tokio::spawn(relay(socket, to));
        }
        let probe = LoopProbe { shared, forwarder };
        probe.forwarder.set_servers(servers.clone());
        assert_eq!(probe.clone().run().await.unwrap(), Some(servers[1]));
        probe.forwarder.set_servers(servers[..1].to_vec());
        assert_eq!(probe.clone().run().await.unwrap(), None);
        assert!(is_answering(servers[0]).await);
        let silent = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        assert!(!is_answering(silent.local_addr().unwrap()).await);
    }
}
