//! A changed configuration takes effect.

use weft_config::{Changes, Config};
use weft_control::status::{Document as _, Reloaded};
use weft_control::{ErrorCode, Refusal};
use weft_networks::hints::HintSource;
use weft_networks::rules::compile::{ByHand, compile};
use weft_noise::PublicKey;
use weft_os::clock::{boottime_ms, unix_s};
use weft_os::netlink::Netlink;

use super::configuration::{Done, Order};
use super::members::Members;
use super::run::Daemon;
use super::{admission, status_builder::Facts, subnets};

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
        let mut moved = config.own_subnets() != self.configuration.config.own_subnets();
        self.configuration.config = config;
        let names = self.configuration.config.host_names();
        self.facts.hosts.set(&names, boottime_ms());
        self.ask_for_names();
        self.follow_stun_servers();
        self.follow_uplinks();
        self.follow_gateway(false);
        self.follow_offer();
        moved |= self.follow_own_routes();
        refused.extend(self.follow_members(moved));
        self.follow_lan();
        self.follow_nostr();
        refused
    }

    /// Makes the table of members anew, with everything that follows from it. `moved`: this node has
    /// other addresses or subnets than before. Returns what the system refused.
    pub(super) fn follow_members(&mut self, moved: bool) -> Option<String> {
        self.follow_rules();
        let mut members = Members::of(&self.configuration.config, &self.networks, &self.facts.hosts);
        members.add_hints(self.nostr.adverts(), HintSource::Advert);
        let refused = match moved || members != self.members {
            true => self.set_members(members),
            false => None,
        };
        self.follow_exit();
        // Names of networks are no part of the table.
        self.facts.set_members(
            &self.configuration.config,
            (&self.members, &self.networks),
            &self.routes,
        );
        refused
    }

    /// Makes the rules of the packet path anew if they are others than before. Packets of a new member
    /// pass only once it has rules, so this goes before its session.
    pub(super) fn follow_rules(&mut self) {
        let config = &self.configuration.config;
        let by_hand = ByHand {
            serves: self.exits.served().map(|_| subnets::own(config, &self.networks)),
            exit: self.members.exit(config, &self.networks).map(|(key, _)| key),
            ..config.by_hand()
        };
        let compiled = compile(&self.facts.key, &self.networks, &by_hand, &config.local_rules, unix_s());
        if compiled.peers != self.rules.peers {
            self.node.set_rules(compiled.peers.clone());
        }
        self.rules = compiled;
    }

    fn set_members(&mut self, members: Members) -> Option<String> {
        let now = boottime_ms();
        self.events.hurry(std::time::Instant::now());
        let difference = members.apply(&self.members, &mut self.node, now);
        for key in &difference.removed {
            self.documents.remove_peer(*key);
        }
        for key in &difference.added {
            self.recall(now, key);
        }
        self.members = members;
        self.follow_signalling();
        self.tell_subnets();
        self.host.note_peers();
        self.read_surroundings();
        let routed = Netlink::open()
            .map_err(|error| error.to_string())
            .and_then(|mut netlink| {
                self.routes
                    .set(&mut netlink, &self.members, &self.surroundings)
                    .map_err(|error| error.to_string())
            });
        self.follow_interface();
        let members = &self.members;
        if let Err(why) = &routed {
            tracing::warn!(why, "routes to subnets behind peers are not complete");
        }
        self.addresses.retain(|key| members.contains(key));
        self.facts.hints.retain(|key| members.contains(key));
        self.save_soon();
        routed.err()
    }

    /// Passes the subnets of all nodes to the core.
    pub(super) fn tell_subnets(&mut self) {
        let (config, exit) = (&self.configuration.config, self.exits.served());
        subnets::tell(&mut self.node, config, &self.networks, &self.members, exit);
    }

    /// Passes to the core what was known of this peer before.
    fn recall(&mut self, now: u64, key: &PublicKey) {
        if let Some(address) = self.addresses.address(key) {
            self.node.hint(now, key, address);
            self.facts.hints.give(*key, address, HintSource::LastAddress);
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
