//! STUN servers: their questions and answers at the node's socket, and what follows for the search for
//! direct paths.

use weft_config::host_name::PeerAddress;
use weft_control::status::StunStatus;
use weft_os::clock::boottime_ms;
use weft_reach::Observer;
use weft_reach::stun::servers::{Entry, Output};

use super::run::Daemon;

impl Daemon {
    /// Asks the servers that are due, and passes on what they say. Returns whether the core has
    /// something to do because of it.
    pub(super) fn drive_stun(&mut self) -> bool {
        let now = boottime_ms();
        self.stun.set_wanted(now, self.reaching.has_relayed());
        let mut active = false;
        while let Some(output) = self.stun.poll_output() {
            active = true;
            match output {
                Output::Listen { token } => self.node.await_token(token),
                Output::Ignore { token } => self.node.forget_token(token),
                Output::Send { to, datagram } => self.node.send_outside(to, datagram.to_vec()),
                Output::Seen { by, at } => {
                    tracing::debug!(%by, %at, "seen by a STUN server");
                    self.reaching.reach_mut().handle_observed(now, Observer::Server(by), at);
                    self.follow_outer(now);
                }
                Output::Gone { by } => {
                    tracing::debug!(%by, "a STUN server says nothing any more");
                    self.reaching.reach_mut().forget_observer(now, Observer::Server(by));
                }
            }
        }
        active
    }

    /// Returns what the servers say, in the order of the configuration.
    pub(super) fn stun_status(&self, now: u64) -> Vec<StunStatus> {
        let servers = &self.configuration.config.reach.stun;
        let of_server = |server: &PeerAddress| {
            let name = server.to_string();
            let entries = self.stun.entries().filter(|entry| entry.name == name);
            let known: Vec<_> = entries.map(|entry| status(&entry, now)).collect();
            match known.is_empty() {
                true => vec![self.without_address(server)],
                false => known,
            }
        };
        servers.iter().flat_map(of_server).collect()
    }

    /// Returns the status of a server whose name has no address.
    fn without_address(&self, server: &PeerAddress) -> StunStatus {
        let entry = match server {
            PeerAddress::Named { host, .. } => self.facts.hosts.entry(host),
            PeerAddress::At(_) => None,
        };
        let why = match entry {
            Some(entry) => match entry.error() {
                Some(error) => error.to_string(),
                None if entry.is_asked() => "its addresses are of a version of IP that this host lacks".to_owned(),
                None => "its name is being looked up".to_owned(),
            },
            None => "it has not been asked yet".to_owned(),
        };
        StunStatus {
            server: server.to_string(),
            address: None,
            seen: None,
            ago_s: None,
            rtt_ms: None,
            why: Some(why),
        }
    }
}

fn status(entry: &Entry<'_>, now: u64) -> StunStatus {
    let why = match (entry.seen, entry.failure) {
        (Some(_), None) => None,
        (_, Some(failure)) => Some(failure.to_string()),
        (None, None) if entry.asking => Some("its answer is awaited".to_owned()),
        (None, None) => Some("it has not been asked yet".to_owned()),
    };
    StunStatus {
        server: entry.name.to_owned(),
        address: Some(entry.at),
        seen: entry.seen.map(|seen| seen.at),
        ago_s: entry.seen.map(|seen| now.saturating_sub(seen.when) / 1_000),
        rtt_ms: entry.seen.and_then(|seen| seen.rtt),
        why,
    }
}
