//! The name servers that the system has, as they change.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::broker::Client;

/// How long the servers of the system are taken to be the same.
const LIFE: Duration = Duration::from_secs(5);

/// Reads the servers of the system when they are needed. The broker does it: the daemon may read no file of
/// the system.
#[derive(Debug)]
pub(super) struct SystemServers {
    broker: Result<Client, String>,
    /// An exchange with the broker runs there to its end, even if the query that needs it ends.
    runtime: Handle,
    /// When the servers were read last.
    read: Mutex<Option<Instant>>,
}

impl SystemServers {
    /// `broker`: why there is none. It is asked on the runtime on which this is called.
    pub(super) fn new(broker: Result<Client, String>) -> Self {
        Self {
            broker,
            runtime: Handle::current(),
            read: Mutex::default(),
        }
    }

    /// Returns the servers, unless they were read a moment ago. Safe to cancel.
    ///
    /// # Errors
    /// One line: why they are not known, or that there are none.
    pub(super) async fn read(&self) -> Result<Option<Vec<SocketAddr>>, String> {
        let mut read = self.read.lock().await;
        if read.is_some_and(|at| at.elapsed() < LIFE) {
            return Ok(None);
        }
        let broker = self.broker.clone()?;
        let servers = self.runtime.spawn(async move { broker.name_servers().await }).await;
        let servers = servers.map_err(|error| error.to_string())??;
        if servers.is_empty() {
            return Err("/etc/resolv.conf names none".to_owned());
        }
        *read = Some(Instant::now());
        Ok(Some(servers))
    }
}
