//! A changed configuration takes effect.

use weft_noise::PublicKey;
use weft_os::clock::boottime_ms;
use weft_os::netlink::Netlink;

use super::configuration::{Done, Order};
use super::members::Members;
use super::run::Daemon;
use super::{admission, status_builder::Facts, subnets};
use crate::config::{Changes, Config};
use crate::control::{ErrorCode, Refusal};
use crate::status::{Document as _, Reloaded};

impl Daemon {
    /// Handles a configuration that was read again, and answers the client that waits for it.
    pub(super) fn reconfigure(&mut self, done: Done) {
        let Done { order, text, reply } = done;
        let adopted = text.and_then(|text| self.adopt(&text));
        match (adopted, reply) {
            (Ok((changes, refused)), reply) => {
                self.configuration.note(order);
                log(order, &changes);
                let named = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
                let document = Reloaded {
                    schema: Reloaded::SCHEMA.to_owned(),
                    live: named(&changes.live),
                    at_start: named(&changes.at_start),
                    refused,
                    confirm_s: self.configuration.left().map(|left| left.as_secs()),
                };
                if let Some(reply) = reply {
                    reply.ok(&document);
                }
            }
            (Err(why), Some(reply)) => reply.refuse(Refusal::new(ErrorCode::BadConfig, why)),
            (Err(why), None) => tracing::warn!(why, "the configuration cannot be taken back"),
        }
    }

    /// Lets what can take effect while the daemon runs do so. Returns what differed, and what the
    /// system refused.
    fn adopt(&mut self, text: &str) -> Result<(Changes, Vec<String>), String> {
        let path = self.configuration.config.path.clone().unwrap_or_default();
        let new = Config::parse(text, &path).map_err(|error| error.to_string())?;
        new.refuse_self(&self.facts.key, &new.key_file)
            .map_err(|error| error.to_string())?;
        let changes = self.configuration.config.changes(&new);
        let refused = self.apply(self.configuration.config.with_live(&new));
        self.configuration.at_start.clone_from(&changes.at_start);
        Ok((changes, refused))
    }

    /// Makes `config` the configuration in effect. It differs from the present one only in what may
    /// change while the daemon runs.
    fn apply(&mut self, config: Config) -> Vec<String> {
        let mut refused = Vec::new();
        let (admit, allowed, denied) = admission(&config);
        self.node.set_admission(admit, allowed, denied);
        if config.log.filter != self.configuration.config.log.filter {
            match &self.log {
                Some(log) => drop(log.set(&config.log.filter)),
                None => refused.push("log.level: `weft up --log` has set another level".to_owned()),
            }
        }
        self.configuration.config = config;
        refused.extend(self.follow_members());
        refused
    }

    /// Makes the table of members anew, with everything that follows from it. Returns what the
    /// system refused.
    pub(super) fn follow_members(&mut self) -> Option<String> {
        let members = Members::of(&self.configuration.config, &self.networks);
        let now = boottime_ms();
        let difference = members.apply(&self.members, &mut self.node, now);
        for key in &difference.removed {
            self.documents.remove_peer(*key);
        }
        for key in &difference.added {
            self.recall(now, key);
        }
        subnets::tell(&mut self.node, &self.configuration.config, &self.networks, &members);
        let routed = Netlink::open()
            .map_err(|error| error.to_string())
            .and_then(|mut netlink| {
                self.routes
                    .set(&mut netlink, &members)
                    .map_err(|error| error.to_string())
            });
        if let Err(why) = &routed {
            tracing::warn!(why, "routes to networks behind peers are not complete");
        }
        self.facts
            .set_members(&self.configuration.config, (&members, &self.networks), &self.routes);
        self.addresses.retain(|key| members.contains(key));
        self.members = members;
        self.save_soon();
        routed.err()
    }

    /// Passes to the core what was known of this peer before.
    fn recall(&mut self, now: u64, key: &PublicKey) {
        if let Some(address) = self.addresses.address(key) {
            self.node.hint(now, key, address);
        }
        let Facts { fast, .. } = &self.facts;
        if fast.iter().any(|known| known == key) {
            self.node.remember_fast(key);
        }
    }
}

fn log(order: Order, changes: &Changes) {
    let live = changes.live.join(" ");
    let at_start = changes.at_start.join(" ");
    match order {
        Order::Reload { .. } => tracing::info!(live, at_start, "the configuration was read again"),
        Order::Confirm => tracing::info!("the change of the configuration was confirmed"),
        Order::TakeBack => tracing::info!(live, at_start, "the configuration before the change is back"),
    }
}
