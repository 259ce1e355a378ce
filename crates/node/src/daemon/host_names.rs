//! Host names of peers and STUN servers: questions to the name servers, beside the loop, and what follows from the
//! answers.

use std::io;

use tokio::sync::mpsc;
use weft_config::host_name::HostName;
use weft_host::broker::Broker;
use weft_host::dns::Lookups;
use weft_host::hosts::{AT_ONCE, Answers};
use weft_os::clock::boottime_ms;

use super::run::Daemon;

/// The questions that are under way.
pub(super) struct HostLookups {
    lookups: Lookups,
    sender: mpsc::Sender<(HostName, Answers)>,
    answers: mpsc::Receiver<(HostName, Answers)>,
}

impl HostLookups {
    pub(super) fn new(broker: &io::Result<Broker>) -> Self {
        let broker = broker.as_ref().map(Broker::client);
        let (sender, answers) = mpsc::channel(AT_ONCE);
        Self {
            lookups: Lookups::new(broker.map_err(|error| format!("the broker did not start: {error}"))),
            sender,
            answers,
        }
    }

    /// Returns the answers to a question. Safe to cancel.
    pub(super) async fn next(&mut self) -> Option<(HostName, Answers)> {
        self.answers.recv().await
    }

    /// Returns a client that asks for names of other things than peers.
    pub(super) fn client(&self) -> Lookups {
        self.lookups.clone()
    }

    fn ask(&self, name: HostName) {
        let (lookups, sender) = (self.lookups.clone(), self.sender.clone());
        tokio::spawn(async move {
            let answers = lookups.ask(&name).await;
            // The daemon ends otherwise.
            let _ = sender.send((name, answers)).await;
        });
    }
}

impl Daemon {
    /// Asks for the host names that are due.
    pub(super) fn ask_for_names(&mut self) {
        while let Some(name) = self.facts.hosts.poll(boottime_ms()) {
            self.lookups.ask(name);
        }
    }

    /// Handles the answers to a question.
    pub(super) fn name_answered(&mut self, name: &HostName, answers: Answers) {
        let error = |daemon: &Self| daemon.facts.hosts.entry(name).and_then(|entry| entry.error().cloned());
        let before = error(self);
        let changed = self.facts.hosts.handle(boottime_ms(), name, answers);
        if let Some(error) = error(self).filter(|error| Some(error) != before.as_ref()) {
            tracing::info!(%name, %error, "a host name of the configuration");
        }
        if changed {
            let addresses = self.facts.hosts.addresses(name);
            tracing::info!(%name, ?addresses, "a host name of the configuration has these addresses");
            self.apply();
        }
        self.ask_for_names();
    }
}
