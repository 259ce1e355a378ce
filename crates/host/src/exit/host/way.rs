//! What leads packets to an exit: rules for routes, and the routes of a table.

use std::collections::BTreeSet;

use weft_os::netlink::{DefaultRoute, Netlink, NetlinkError, Rule};
use weft_wire::Subnet;

use crate::exit::UseExit;
use crate::exit::around::Around;
use crate::exit::rules::{self, PRIORITIES, TABLE};

/// The rules for routes and the table of routes that lead packets to an exit.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Way {
    rules: Vec<Rule>,
    /// The default routes, each for IPv6 or else IPv4.
    defaults: Vec<(bool, DefaultRoute)>,
    /// The networks of bridges, each with the index of its bridge.
    networks: BTreeSet<(Subnet, u32)>,
}

/// What became of the default routes.
struct Defaults {
    /// The number of routes that are there, with those whose place is taken.
    added: usize,
    /// All are there as they are wanted.
    complete: bool,
    /// The error about a route of another program in the place of one.
    taken: Option<NetlinkError>,
}

impl Way {
    /// The way to an exit through the interface with this index, if there is one.
    pub(super) fn of(exit: &UseExit, around: &Around, interface: Option<u32>) -> Self {
        let source = exit.ends.map(|ends| ends.own);
        let by_tun = interface.map(|interface| DefaultRoute::Interface(interface, source));
        // Without the interface a strict exit leads nowhere; otherwise the routes of the host count again.
        let nowhere = exit.strict.then_some(DefaultRoute::Unreachable);
        let routes = |ipv6| by_tun.into_iter().chain(nowhere).map(move |route| (ipv6, route));
        Self {
            rules: rules::routes(exit),
            defaults: [false, true].into_iter().flat_map(routes).collect(),
            networks: around.contained_at().collect(),
        }
    }

    /// The number of routes to bridges.
    pub(super) fn bridges(&self) -> usize {
        self.networks.len()
    }

    /// Leads packets the wanted way. `there`: the number of rules and of routes that are there if nothing has been
    /// removed; then no packet goes another way meanwhile. Returns what is there then, and the error if another
    /// program's route is in the place of one.
    pub(super) fn lead(
        &mut self,
        netlink: &mut Netlink,
        wanted: Self,
        there: (usize, usize),
    ) -> Result<((usize, usize), Option<NetlinkError>), NetlinkError> {
        let whole = netlink.count_rules_and_routes(&PRIORITIES, TABLE)? == there;
        let same = self.rules == wanted.rules && self.defaults == wanted.defaults;
        if whole && same && there != (0, 0) {
            let routes = self.change_networks(netlink, &wanted)?;
            let routes = there.1.saturating_add_signed(routes);
            *self = wanted;
            return Ok(((there.0, routes), None));
        }
        *self = Self::default();
        netlink.delete_routes_of(TABLE)?;
        let defaults = wanted.add_defaults(netlink)?;
        let bridges = self.change_networks(netlink, &wanted)?;
        netlink.delete_rules(&PRIORITIES)?;
        let there = (
            wanted.add_rules(netlink)?,
            defaults.added.saturating_add_signed(bridges),
        );
        // What is not as it is wanted is tried as a whole when the host changes.
        if defaults.complete {
            *self = wanted;
        }
        Ok((there, defaults.taken))
    }

    /// Adds the default routes. They are counted as they are added: what another program removes meanwhile is missing
    /// then.
    fn add_defaults(&self, netlink: &mut Netlink) -> Result<Defaults, NetlinkError> {
        let mut defaults = Defaults {
            added: 0,
            complete: true,
            taken: None,
        };
        for (ipv6, route) in &self.defaults {
            let mut done = netlink.add_default_route(TABLE, *ipv6, *route);
            if *ipv6 && done.as_ref().is_err_and(has_no_ipv6) && !self.leads_nowhere() {
                // The interface has no IPv6: no other one of this host takes packets to the Internet in its place.
                defaults.complete = false;
                done = netlink.add_default_route(TABLE, true, DefaultRoute::Unreachable);
            }
            match done {
                // A host without IPv6 sends none.
                Err(error) if *ipv6 && has_no_ipv6(&error) => defaults.complete = false,
                // Another program's route is in its place. All else is set up, and this one is missing.
                Err(error @ NetlinkError::Exists { .. }) => {
                    defaults.added += 1;
                    defaults.complete = false;
                    defaults.taken = Some(error);
                }
                result => {
                    result?;
                    defaults.added += 1;
                }
            }
        }
        Ok(defaults)
    }

    /// Adds the rules, and returns how many there are.
    fn add_rules(&self, netlink: &mut Netlink) -> Result<usize, NetlinkError> {
        let mut added = 0;
        for rule in &self.rules {
            match netlink.add_rule(*rule) {
                Err(NetlinkError::Refused { .. }) if rule.ipv6 => {}
                result => {
                    result?;
                    added += 1;
                }
            }
        }
        Ok(added)
    }

    /// Whether packets lead nowhere without the interface.
    fn leads_nowhere(&self) -> bool {
        self.defaults.contains(&(true, DefaultRoute::Unreachable))
    }

    /// Adds and deletes routes to bridges, and returns by how many there are more.
    fn change_networks(&self, netlink: &mut Netlink, wanted: &Self) -> Result<isize, NetlinkError> {
        let mut more = 0;
        for (network, index) in self.networks.difference(&wanted.networks) {
            let network = (network.address(), network.prefix_len());
            match netlink.delete_route_of(TABLE, network, *index) {
                // It went with its bridge.
                Err(NetlinkError::NotFound { .. }) => {}
                result => result?,
            }
            more -= 1;
        }
        for (network, index) in wanted.networks.difference(&self.networks) {
            let network = (network.address(), network.prefix_len());
            match netlink.add_route_of(TABLE, network, *index) {
                // The bridge has gone meanwhile, or two have one network.
                Err(NetlinkError::Refused { .. } | NetlinkError::Exists { .. } | NetlinkError::NotFound { .. }) => {}
                result => {
                    result?;
                    more += 1;
                }
            }
        }
        Ok(more)
    }
}

/// Whether a route of IPv6 was refused because the interface, or the host, has none.
const fn has_no_ipv6(error: &NetlinkError) -> bool {
    matches!(error, NetlinkError::Refused { .. } | NetlinkError::Permission { .. })
}
