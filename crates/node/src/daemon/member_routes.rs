//! Routes of members of networks: those of this node, and the status of all.

use std::collections::BTreeSet;

use weft_control::status::{MemberRouteStatus, NetworkList};
use weft_networks::Network;
use weft_noise::PublicKey;
use weft_wire::Subnet;

use super::run::Daemon;

impl Daemon {
    /// Adds the routes of the members to each network of the list.
    pub(super) fn add_routes(&self, list: &mut NetworkList, now: u64) {
        for listed in &mut list.networks {
            let known = self
                .networks
                .iter()
                .find(|network| network.id().to_string() == listed.id);
            listed.routes = known.map_or_else(Vec::new, |network| self.routes_of(network, now));
        }
    }

    fn routes_of(&self, network: &Network, now: u64) -> Vec<MemberRouteStatus> {
        let offered = network.offered_routes(self.networks.own(), now);
        let mut all = offered.clone();
        for (subnet, members) in network.routes() {
            all.entry(*subnet).or_default().extend(members);
        }
        for (subnet, members) in network.exits() {
            all.entry(subnet).or_default().extend(members);
        }
        let each = all.into_iter().flat_map(|(subnet, members)| {
            let pairs = members.into_iter().map(move |member| (subnet, member));
            pairs.collect::<Vec<_>>()
        });
        each.map(|(subnet, member)| {
            let is_offered = offered.get(&subnet).is_some_and(|members| members.contains(&member));
            self.route_of(network, (subnet, member), is_offered)
        })
        .collect()
    }

    fn route_of(&self, network: &Network, (subnet, member): (Subnet, PublicKey), offered: bool) -> MemberRouteStatus {
        let state = network.state();
        let exit = subnet.prefix_len() == 0;
        let has = |members: Option<&BTreeSet<PublicKey>>| members.is_some_and(|members| members.contains(&member));
        let approved = match exit {
            true => has(network.exits().get(&subnet)),
            false => has(state.routes.get(&subnet)),
        };
        let own = member == *self.networks.own();
        let (used, why) = match (approved, own) {
            (false, _) if exit => {
                let name = state.names.get(&member);
                let name = name.map_or_else(|| member.to_string(), ToString::to_string);
                (
                    false,
                    format!("waits for an administrator: `weft route approve {name} exit`"),
                )
            }
            (false, _) => (false, "waits for an administrator: `weft route approve`".to_owned()),
            (true, true) if offered && exit => self.serving(subnet),
            (true, true) if offered && let Some(fault) = self.faults.about(subnet) => (false, fault.in_brief()),
            (true, true) if offered => (true, "members may send to it".to_owned()),
            (true, true) => (
                false,
                "not offered any longer: an administrator can revoke it".to_owned(),
            ),
            (true, false) if exit => self.use_of_exit(subnet, &member),
            (true, false) => self.use_of(subnet, &member),
        };
        MemberRouteStatus {
            subnet: subnet.to_string(),
            exit,
            npub: member.to_string(),
            name: state.names.get(&member).map(ToString::to_string),
            own,
            offered,
            approved,
            used,
            why,
        }
    }

    /// Returns whether packets of this node go to an approved subnet through this member, and why.
    fn use_of(&self, subnet: Subnet, member: &PublicKey) -> (bool, String) {
        if !self.configuration.config.networks.accept_routes {
            return (
                false,
                "not used here: `weft set accept-routes true` changes that".to_owned(),
            );
        }
        let user = self.desired.members.subnets().find(|(used, _)| *used == subnet);
        match (user, self.desired.routes.withheld.get(&subnet)) {
            (Some((_, key)), Some(obstacle)) if key == *member => (false, format!("no route: {obstacle}")),
            (Some((_, key)), None) if key == *member => (true, "used".to_owned()),
            (Some((_, key)), _) => (
                false,
                format!(
                    "not used here: {} has the same route and goes first",
                    self.facts.name(&key)
                ),
            ),
            (None, _) => (false, "not used here: this node has the same subnet itself".to_owned()),
        }
    }
}
