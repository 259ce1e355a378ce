//! The name servers that this system asks. The broker reads them: the daemon may read no file of the system.

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, mpsc};
use tokio::time::timeout;
use weft_host::broker::{Broker, Client};

use super::run::Daemon;

/// How often they are read without any change of the network, and how soon after one: the program that brings them up
/// to date hears of it, too.
const READ_EVERY: Duration = Duration::from_secs(30);
const SETTLE: Duration = Duration::from_secs(1);

/// Reads the name servers, again and again.
pub(super) struct Resolvers {
    answers: mpsc::Receiver<BTreeSet<IpAddr>>,
    again: Arc<Notify>,
}

impl Resolvers {
    /// Starts to read them, on the runtime on which it is called.
    pub(super) fn start(broker: &io::Result<Broker>) -> Self {
        let (sender, answers) = mpsc::channel(1);
        let again = Arc::new(Notify::new());
        if let Ok(broker) = broker {
            tokio::spawn(read(broker.client(), sender, Arc::clone(&again)));
        }
        Self { answers, again }
    }

    /// Returns those that there are now, if they have been read. Safe to cancel.
    pub(super) async fn next(&mut self) -> BTreeSet<IpAddr> {
        match self.answers.recv().await {
            Some(found) => found,
            None => std::future::pending().await,
        }
    }

    /// Notes that the network of this host has changed.
    pub(super) fn handle_network_change(&self) {
        self.again.notify_one();
    }
}

async fn read(broker: Client, sender: mpsc::Sender<BTreeSet<IpAddr>>, again: Arc<Notify>) {
    loop {
        let found = match broker.name_servers().await {
            Ok(servers) => servers.iter().map(SocketAddr::ip).collect(),
            Err(error) => {
                tracing::debug!(error, "it is not known which name servers this system asks");
                BTreeSet::new()
            }
        };
        if sender.send(found).await.is_err() {
            return;
        }
        if timeout(READ_EVERY, again.notified()).await.is_ok() {
            tokio::time::sleep(SETTLE).await;
        }
    }
}

impl Daemon {
    /// Handles what the system says of its name servers.
    pub(super) fn handle_resolvers(&mut self, found: BTreeSet<IpAddr>) {
        if self.system.resolvers.as_ref() != Some(&found) {
            self.system.resolvers = Some(found);
            self.apply();
        }
    }
}
