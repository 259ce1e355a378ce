//! The interfaces, addresses and routes of other programs that a node depends on.

use std::collections::BTreeSet;

use weft_os::netlink::{Interface, InterfaceAddress, Netlink, NetlinkError, Route};
use weft_reach::nat::is_private;
use weft_wire::Subnet;

use crate::exit::around::is_within;
use crate::uplinks::is_tunnel;

/// Which hosts an interface leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Leads {
    /// Those of other networks: a default route goes through it.
    Out,
    /// Those of the network that it is in.
    Beside,
    /// Containers and virtual machines of this host, or those behind the tunnel of another program.
    Within,
}

/// The part of the network namespace that a node depends on, read at one time. It does not grow with
/// the table of routes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Surroundings {
    /// All interfaces.
    pub interfaces: Vec<Interface>,
    /// The addresses of all interfaces.
    pub addresses: Vec<InterfaceAddress>,
    /// Those among them that go soon: deprecated and temporary ones.
    pub passing: BTreeSet<InterfaceAddress>,
    /// Default routes of the main table, and its routes to exactly one of the subnets that were asked
    /// for.
    pub routes: Vec<Route>,
}

impl Surroundings {
    /// Reads them. `subnets`: those that a node has routes to.
    ///
    /// # Errors
    /// Only if the exchange with the kernel fails.
    pub fn read(netlink: &mut Netlink, subnets: &BTreeSet<Subnet>) -> Result<Self, NetlinkError> {
        let is_wanted = |route: &Route| {
            let subnet = Subnet::new(route.destination, route.prefix_len);
            route.prefix_len == 0 || subnet.is_ok_and(|subnet| subnets.contains(&subnet))
        };
        let interfaces = netlink.interfaces()?;
        let (addresses, passing) = netlink.checked_addresses()?;
        Ok(Self {
            interfaces,
            addresses,
            passing,
            routes: netlink.routes_to(is_wanted)?,
        })
    }

    /// The default routes, but those through the interface `own`.
    pub fn defaults(&self, own: u32) -> impl Iterator<Item = &Route> {
        let others = self.routes.iter().filter(move |route| route.interface != Some(own));
        others.filter(|route| route.prefix_len == 0)
    }

    /// Which hosts the interface of an address leads to; `None` if no packets pass there.
    #[must_use]
    pub fn leads(&self, of: &InterfaceAddress) -> Option<Leads> {
        let interface = self.interfaces.iter().find(|link| link.index == of.index)?;
        let default = |route: &Route| route.interface == Some(of.index) && route.prefix_len == 0;
        let has_default = self.routes.iter().any(default);
        // Private addresses in a tunnel are of a network behind it; a public one is routed through it.
        let is_inner = is_tunnel(interface) && is_private(of.address);
        // Without a default route, a veth is the end of a container's cable.
        let is_veth = interface.kind.as_deref() == Some("veth");
        interface.usable.then_some(match has_default {
            true if !is_inner => Leads::Out,
            false if !is_tunnel(interface) && !is_veth && !is_within(interface, &self.interfaces) => Leads::Beside,
            _ => Leads::Within,
        })
    }

    /// Returns true if an interface other than `own` is in this subnet. The metric of its route does
    /// not matter: the hosts there are those of this system's own subnet.
    #[must_use]
    pub fn is_attached(&self, own: u32, subnet: Subnet) -> bool {
        self.routes.iter().any(|route| {
            route.interface.is_some_and(|index| index != own)
                && route.gateway.is_none()
                && (route.destination, route.prefix_len) == (subnet.address(), subnet.prefix_len())
        })
    }

    /// Returns true if other hosts are reached as at another time: by the same default routes, from
    /// the same addresses.
    #[must_use]
    pub fn leads_as(&self, other: &Self, own: u32) -> bool {
        let addresses = |of: &Self| -> BTreeSet<InterfaceAddress> {
            let others = of.addresses.iter().filter(|address| address.index != own);
            others.copied().collect()
        };
        let usable = |of: &Self| -> BTreeSet<u32> {
            let usable = of.interfaces.iter().filter(|link| link.usable && link.index != own);
            usable.map(|link| link.index).collect()
        };
        self.defaults(own).eq(other.defaults(own))
            && addresses(self) == addresses(other)
            && usable(self) == usable(other)
    }
}
