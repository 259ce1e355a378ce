//! Passes on each part of [`Desired`] that differs from before.

use std::collections::BTreeMap;
use std::time::Instant;

use weft_contract::KnownFlows;
use weft_core::{Hint, HintSource};
use weft_desired::members::Members;
use weft_desired::{Desired, Inputs};
use weft_host::tun::wanted;
use weft_noise::PublicKey;
use weft_os::clock::{boottime_ms, unix_s};
use weft_os::netlink::Netlink;

use super::peers;
use super::run::Daemon;

/// What had to hold before.
struct Before {
    desired: Desired,
    /// Whether it was applied. Otherwise every part counts as different.
    holds: bool,
}

impl Before {
    /// Returns whether a part of what must hold `now` is to be set up.
    fn differs<T: PartialEq>(&self, now: &Desired, part: impl Fn(&Desired) -> &T) -> bool {
        !self.holds || part(&self.desired) != part(now)
    }
}

impl Daemon {
    /// Derives all that must hold, and changes what differs. It is called after a change of anything
    /// that [`Inputs`] names. Returns what the system refused.
    ///
    /// The first rules, and all that is new with them, wait until it is known which flows continue.
    pub(super) fn apply(&mut self) -> Option<String> {
        let new = self.derive_all();
        let known = self.flows_before(&new)?;
        let old = Before {
            desired: std::mem::replace(&mut self.desired, new),
            holds: std::mem::replace(&mut self.applied, true),
        };
        self.apply_to_core(&old, known);
        let refused = self.apply_to_host(&old);
        self.apply_to_services(&old);
        self.apply_to_reach(&old);
        refused
    }

    /// Derives what must hold, and passes on what that follows from itself.
    fn derive_all(&mut self) -> Desired {
        let mut new = self.derive();
        if new.of_interest != self.of_interest {
            self.of_interest.clone_from(&new.of_interest);
            self.read_again();
            new = self.derive();
        }
        if new.offer != self.desired.offer || new.host_use != self.desired.host_use || !self.applied {
            // Routes and exits of this node hold if they are both approved and offered.
            self.networks.set_offer(&new.offer);
            self.networks.set_host_use(new.host_use.clone());
            new = self.derive();
        }
        new
    }

    /// Reads what the system says of other subnets than before.
    fn read_again(&mut self) {
        let before = self.system.surroundings.clone();
        if self.read_system() && !before.leads_as(&self.system.surroundings, self.system.interface) {
            // The watch tells no more of what this look has found.
            self.host.note_paths();
        }
    }

    fn derive(&self) -> Desired {
        Desired::of(&Inputs {
            config: &self.configuration.config,
            networks: &self.networks,
            system: &self.system,
            hosts: &self.facts.hosts,
            adverts: self.nostr.adverts(),
            pass: &|key| self.passes(key).is_ok(),
            served: self.exits.served(),
            times: (boottime_ms(), unix_s()),
        })
    }

    fn apply_to_core(&mut self, old: &Before, known: KnownFlows) {
        if old.differs(&self.desired, |of| &of.admission) {
            let admission = self.desired.admission.clone();
            self.node
                .set_admission(admission.admit, admission.allowed, admission.denied);
        }
        if old.differs(&self.desired, |of| &of.guests) {
            self.node.set_guests(self.desired.guests);
        }
        self.switch_nvpn();
        // Packets of a new member pass only once it has rules, so they go before its session.
        if old.differs(&self.desired, |of| &of.rules.peers) {
            let rules = self.desired.rules.peers.clone();
            self.node.set_rules(rules, known);
        }
        if old.differs(&self.desired, |of| &of.unclear) {
            for line in &self.desired.unclear {
                tracing::info!("{line}");
            }
        }
        let moved = old.differs(&self.desired, |of| &of.members);
        if moved {
            self.apply_members(old);
        }
        let guests = old.differs(&self.desired, |of| &of.wireguard);
        if moved || guests || old.differs(&self.desired, |of| &of.own_subnets) {
            let of_members = self.desired.members.subnets();
            let of_members = of_members.map(|(subnet, key)| (subnet, key.node_addr()));
            let of_guests = self.desired.wireguard.iter();
            let of_guests = of_guests.map(|(addr, guest)| (guest.subnet(), *addr));
            let subnets = of_members.chain(of_guests).collect();
            self.node.set_subnets(self.desired.own_subnets.clone(), subnets);
        }
        if guests {
            self.apply_wireguard();
        }
    }

    fn apply_members(&mut self, old: &Before) {
        let (now, none) = (boottime_ms(), Members::default());
        self.events.hurry(Instant::now());
        let before = if old.holds { &old.desired.members } else { &none };
        let difference = peers::apply(&self.desired.members, before, &mut self.node, now);
        for key in &difference.removed {
            self.documents.remove_peer(*key);
            self.nvpn.remove_peer(*key);
        }
        for key in &difference.added {
            self.recall(now, key);
        }
        let members = &self.desired.members;
        self.addresses.retain(|key| members.contains(key));
        self.host.note_peers();
        self.lifetimes.handle_members();
        self.set_signalling_peers();
        if old.holds {
            self.save_soon();
        }
    }

    /// Passes to the core what was known of this peer before.
    fn recall(&mut self, now: u64, key: &PublicKey) {
        if let Some(at) = self.addresses.address(key) {
            let source = HintSource::LastAddress;
            self.node.hint(now, key, Hint { at, source });
        }
        if self.facts.fast.has(key) {
            self.node.remember_fast(key);
        }
    }

    /// Gives the interface the addresses and routes that it has to have now, and the system the orders. Returns what
    /// the system refuses; it is tried again.
    fn apply_to_host(&mut self, old: &Before) -> Option<String> {
        let before = if old.holds {
            &old.desired.routes.withheld
        } else {
            &BTreeMap::new()
        };
        for (subnet, obstacle) in &self.desired.routes.withheld {
            if before.get(subnet) != Some(obstacle) {
                tracing::warn!(%subnet, "the subnet gets no route: {obstacle}");
            }
        }
        let refused = self.apply_interface();
        self.give_orders();
        refused
    }

    /// Gives the interface all that it has to have now. Returns what the system refuses.
    pub(super) fn apply_interface(&mut self) -> Option<String> {
        let (me, config) = (self.facts.key.node_addr(), &self.configuration.config);
        let routes = (self.system.interface, &self.desired.routes.wanted);
        let wanted = wanted(config, me, &self.desired.own_ipv4, routes);
        if wanted == *self.host.keeper.wanted() {
            return None;
        }
        let refused = match Netlink::open() {
            // The next look at the interface tries refused changes again.
            Ok(mut netlink) => self
                .host
                .keeper
                .want(boottime_ms(), wanted, &mut netlink)
                .err()?
                .to_string(),
            Err(error) => {
                self.host.apply_again();
                error.to_string()
            }
        };
        self.host.refuse(&refused);
        Some(refused)
    }

    /// Passes on what names and status rest on.
    fn apply_to_services(&mut self, old: &Before) {
        self.facts.show(&self.configuration.config, &self.desired);
        if let Some(dns) = self
            .facts
            .dns
            .as_ref()
            .filter(|_| old.differs(&self.desired, |of| &of.zone))
        {
            dns.set_zone(self.desired.zone.clone());
        }
        if old.differs(&self.desired, |of| &of.names_at)
            && let Err(error) = self.facts.exit_names.set(self.desired.names_at.clone())
        {
            tracing::warn!(%error, "members that use this exit find no names");
        }
        if old.differs(&self.desired, |of| &of.host_names) {
            self.facts.hosts.set(&self.desired.host_names, boottime_ms());
            self.ask_for_names();
        }
    }

    /// Passes on what the search for peers and paths rests on.
    fn apply_to_reach(&mut self, old: &Before) {
        let now = boottime_ms();
        if old.differs(&self.desired, |of| &of.host) {
            self.reaching.set_host(now, &self.desired.host);
        }
        if old.differs(&self.desired, |of| &of.stun) {
            self.stun.set(now, &self.desired.stun);
        }
        if old.differs(&self.desired, |of| &of.mapping) {
            self.mapping.set_place(now, self.desired.mapping);
            self.tell_mapped(now);
        }
        if old.differs(&self.desired, |of| &of.nostr) {
            self.nostr.set_config(&self.desired.nostr);
        }
        let announced = old.differs(&self.desired, |of| &of.announced);
        if announced || old.differs(&self.desired, |of| &of.members) || old.differs(&self.desired, |of| &of.lan) {
            self.look_again_in_lan();
        }
        match announced {
            true => self.announce(),
            false if old.differs(&self.desired, |of| &of.links) => self.apply_links_of_lan(),
            false => {}
        }
        if old.differs(&self.desired, |of| &of.uplinks) {
            self.apply_uplinks();
        }
    }
}
