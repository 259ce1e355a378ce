//! A changed configuration takes effect.

use weft_config::{Changes, Config};
use weft_control::status::{Document as _, Reloaded};
use weft_control::{ControlServer, ErrorCode, Refusal};
use weft_networks::rules::{unclear, unused_tags};

use super::configuration::{Done, Order, Read};
use super::run::Daemon;

impl Daemon {
    /// Handles a configuration that was read again, and answers the client that waits for it.
    pub(super) fn reconfigure(&mut self, done: Done, control: &ControlServer) {
        let Done { order, read, reply } = done;
        let adopted = read.and_then(|read| self.adopt(&read, order));
        // Before the answer, behind which the operator connects.
        let operator = self.configuration.config.control.operator.as_ref();
        control.set_operator(operator.map(|operator| operator.uid));
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
                    notes: match changes.live.contains(&"rules.local") {
                        true => unused_tags(&self.networks, &self.configuration.config.local_rules),
                        false => Vec::new(),
                    },
                    confirm_s: self.configuration.left().map(|left| left.as_secs()),
                };
                if let Some(reply) = reply {
                    // The first rules wait, and with them all that is new.
                    self.when_applied(move |daemon| daemon.answer_with_exit(reply, document));
                }
            }
            (Err(why), Some(reply)) => reply.refuse(Refusal::new(ErrorCode::BadConfig, why)),
            (Err(why), None) => tracing::warn!(why, "the configuration cannot be taken back"),
        }
    }

    /// Lets what can take effect while the daemon runs do so. Returns what differed, and what the
    /// system refused.
    fn adopt(&mut self, read: &Read, order: Order) -> Result<(Changes, Vec<String>), String> {
        let path = self.configuration.config.path.clone().unwrap_or_default();
        let new = read.parse(&path).map_err(|error| error.to_string())?;
        new.refuse_self(&self.facts.key, &new.key_file)
            .map_err(|error| error.to_string())?;
        let changes = self.configuration.config.changes(&new);
        // A change that is taken back has to succeed.
        if matches!(order, Order::Reload { .. }) && changes.live.contains(&"tun.exit") {
            self.refuse_exit(&new)?;
        }
        let refused = self.take_effect(self.configuration.config.with_live(&new));
        self.configuration.at_start.clone_from(&changes.at_start);
        Ok((changes, refused))
    }

    /// Makes `config` the configuration in effect. It differs from the present one only in what may
    /// change while the daemon runs. Returns what was refused.
    fn take_effect(&mut self, config: Config) -> Vec<String> {
        let mut refused = Vec::new();
        if config.log.filter != self.configuration.config.log.filter {
            match &self.log {
                Some(log) => drop(log.set(&config.log.filter)),
                None => refused.push("log.level: `weft up --log` has set another level".to_owned()),
            }
        }
        if config.local_rules != self.configuration.config.local_rules {
            refused.extend(unclear(&self.networks, &config.local_rules));
        }
        self.configuration.config = config;
        refused.extend(self.apply());
        refused
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
