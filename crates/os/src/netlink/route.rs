//! The routes of tables.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteMetric, RouteNextHop, RouteProtocol, RouteScope,
    RouteType,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage as Message};

use super::address::family;
use super::policy::MAIN;
use super::{Netlink, NetlinkError};

/// The owner of rules and routes of this program, as `ip rule` and `ip route` show it (`proto 119`).
pub(super) const OWNER: RouteProtocol = RouteProtocol::Other(119);

/// A route that leads somewhere, or back to the rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Route {
    /// The number of its table.
    pub table: u32,
    /// The destination network.
    pub destination: IpAddr,
    /// Bits of its prefix; 0 for the default route.
    pub prefix_len: u8,
    /// The router, if the network is behind one.
    pub gateway: Option<IpAddr>,
    /// The index of the interface; needed without a gateway.
    pub interface: Option<u32>,
    /// The route with the lowest metric wins; by default the kernel's choice.
    pub metric: Option<u32>,
    /// The largest packet that hosts may send on this route, in bytes; by default the interface's
    /// MTU.
    pub mtu: Option<u32>,
    /// The address of this host that packets leave from if their program has chosen none; by default
    /// the kernel's choice.
    pub source: Option<IpAddr>,
    /// It has the mark of this program (`proto 119`).
    pub own: bool,
    /// It ends the look-up in its table, and the next rule is asked (`throw` of ip-route(8)). It has neither gateway
    /// nor interface.
    pub throws: bool,
}

impl Route {
    /// A route to a network through an interface.
    #[must_use]
    pub fn to_interface(destination: IpAddr, prefix_len: u8, interface: u32) -> Self {
        Self {
            table: MAIN,
            destination,
            prefix_len,
            gateway: None,
            interface: Some(interface),
            metric: None,
            mtu: None,
            source: None,
            own: false,
            throws: false,
        }
    }

    /// A route to a network through a gateway.
    #[must_use]
    pub fn via(destination: IpAddr, prefix_len: u8, gateway: IpAddr) -> Self {
        Self {
            table: MAIN,
            destination,
            prefix_len,
            gateway: Some(gateway),
            interface: None,
            metric: None,
            mtu: None,
            source: None,
            own: false,
            throws: false,
        }
    }

    /// A route of a table that leaves a network to the rules behind the one that has chosen the table.
    #[must_use]
    pub fn throw(table: u32, destination: IpAddr, prefix_len: u8) -> Self {
        Self {
            table,
            interface: None,
            throws: true,
            ..Self::to_interface(destination, prefix_len, 0)
        }
    }
}

impl Netlink {
    /// Adds a route.
    ///
    /// # Errors
    /// A [`NetlinkError`]; `Exists` if there is a route to this network with this metric.
    pub fn add_route(&mut self, route: Route) -> Result<(), NetlinkError> {
        let message = Message::NewRoute(route_message(route));
        self.change("add the route", message, NLM_F_CREATE | NLM_F_EXCL)
    }

    /// Adds a route, in the place of one to this network with this metric.
    ///
    /// # Errors
    /// A [`NetlinkError`]
    pub fn set_route(&mut self, route: Route) -> Result<(), NetlinkError> {
        let message = Message::NewRoute(route_message(route));
        self.change("set the route", message, NLM_F_CREATE | NLM_F_REPLACE)
    }

    /// Deletes a route; a field that is `None` matches any value.
    ///
    /// # Errors
    /// A [`NetlinkError`]; `NotFound` if there is none.
    pub fn delete_route(&mut self, route: Route) -> Result<(), NetlinkError> {
        let mut message = route_message(route);
        message.header.protocol = RouteProtocol::Unspec;
        message.header.scope = RouteScope::NoWhere;
        self.change("delete the route", Message::DelRoute(message), 0)
    }

    /// The unicast routes of the main table, both IP versions. A route with several next hops counts as
    /// one for each.
    ///
    /// # Errors
    /// Only if the exchange with the kernel fails.
    pub fn routes(&mut self) -> Result<Vec<Route>, NetlinkError> {
        let all = Message::GetRoute(RouteMessage::default());
        self.dump("list the routes", all, |message| {
            let routes = routes(&message).into_iter();
            let of_main = routes.filter(|route| route.table == MAIN && !route.throws);
            of_main.collect::<Vec<_>>()
        })
    }

    /// The unicast routes of the main table through an interface. The kernel leaves out all others, so
    /// that a large table is not copied.
    ///
    /// # Errors
    /// Only if the exchange with the kernel fails.
    pub fn routes_through(&mut self, interface: u32) -> Result<Vec<Route>, NetlinkError> {
        let through = |route: &Route| route.interface == Some(interface) && !route.throws;
        self.dump_table(MAIN, &[RouteAttribute::Oif(interface)], through)
    }

    /// The routes of a table with the mark of this program.
    ///
    /// # Errors
    /// Only if the exchange with the kernel fails.
    pub fn own_routes(&mut self, table: u32) -> Result<Vec<Route>, NetlinkError> {
        self.dump_table(table, &[], |route| route.own)
    }

    /// The unicast routes of the main table that a condition holds for. The others are not kept.
    ///
    /// # Errors
    /// Only if the exchange with the kernel fails.
    pub fn routes_to(&mut self, wanted: impl Fn(&Route) -> bool) -> Result<Vec<Route>, NetlinkError> {
        self.dump_table(MAIN, &[], |route| !route.throws && wanted(route))
    }

    /// Lists routes of a table, those of each IP version with these attributes.
    fn dump_table(
        &mut self,
        table: u32,
        attributes: &[RouteAttribute],
        wanted: impl Fn(&Route) -> bool,
    ) -> Result<Vec<Route>, NetlinkError> {
        let mut found = Vec::new();
        self.set_strict(true)?;
        let listed = [AddressFamily::Inet, AddressFamily::Inet6]
            .into_iter()
            .try_for_each(|version| {
                let mut message = RouteMessage::default();
                message.header.address_family = version;
                message.attributes.push(RouteAttribute::Table(table));
                message.attributes.extend_from_slice(attributes);
                let listed = self.dump("list the routes", Message::GetRoute(message), |message| {
                    let of_table = routes(&message).into_iter().filter(|route| route.table == table);
                    of_table.filter(&wanted).collect::<Vec<_>>()
                });
                match listed {
                    // The kernel has no table of a version without routes.
                    Err(NetlinkError::NotFound { .. }) => Ok(()),
                    listed => listed.map(|listed| found.extend(listed)),
                }
            });
        self.set_strict(false)?;
        listed.map(|()| found)
    }

    /// Whether packets to `address` end at this host.
    pub(super) fn is_local(&mut self, address: IpAddr) -> Result<bool, NetlinkError> {
        let route = self.look_up(address, &[])?;
        Ok(route.is_some_and(|route| route.header.kind == RouteType::Local))
    }

    /// The index of the interface that packets to `address` would currently leave by; `None` if
    /// there is no route.
    ///
    /// # Errors
    /// A [`NetlinkError`].
    pub fn interface_towards(&mut self, address: IpAddr) -> Result<Option<u32>, NetlinkError> {
        self.interface_of_marked(address, 0)
    }

    /// Like [`Netlink::interface_towards`], for packets of sockets with this mark (`SO_MARK` of
    /// socket(7)), for which rules may choose another table.
    ///
    /// # Errors
    /// A [`NetlinkError`].
    pub fn interface_of_marked(&mut self, address: IpAddr, mark: u32) -> Result<Option<u32>, NetlinkError> {
        let route = self.look_up(address, &[RouteAttribute::Mark(mark)])?;
        let interface = |attribute: &RouteAttribute| match attribute {
            RouteAttribute::Oif(index) => Some(*index),
            _ => None,
        };
        Ok(route.and_then(|route| route.attributes.iter().find_map(interface)))
    }

    /// Returns the source address that the system selects for packets to `address` that leave through the
    /// interface with this index; `None` without a route through this interface.
    ///
    /// # Errors
    /// A [`NetlinkError`].
    pub fn source_through(&mut self, address: IpAddr, interface: u32) -> Result<Option<IpAddr>, NetlinkError> {
        let route = self.look_up(address, &[RouteAttribute::Oif(interface)])?;
        let source = |attribute: &RouteAttribute| match attribute {
            RouteAttribute::PrefSource(RouteAddress::Inet(ip)) => Some(IpAddr::from(*ip)),
            RouteAttribute::PrefSource(RouteAddress::Inet6(ip)) => Some(IpAddr::from(*ip)),
            _ => None,
        };
        Ok(route.and_then(|route| route.attributes.iter().find_map(source)))
    }

    /// Asks the kernel for its route to `address`, for packets with what `selectors` say.
    fn look_up(&mut self, address: IpAddr, selectors: &[RouteAttribute]) -> Result<Option<RouteMessage>, NetlinkError> {
        let mut message = RouteMessage::default();
        message.header.address_family = family(address);
        message.header.destination_prefix_length = if address.is_ipv4() { 32 } else { 128 };
        let destination = RouteAttribute::Destination(address.into());
        message.attributes.push(destination);
        message.attributes.extend_from_slice(selectors);
        let answer = |message| match message {
            Message::NewRoute(route) => Some(route),
            _ => None,
        };
        match self.fetch("look up the route", Message::GetRoute(message), answer) {
            Err(NetlinkError::Refused { source, .. })
                if matches!(
                    source.raw_os_error(),
                    Some(libc::ENETUNREACH | libc::EHOSTUNREACH | libc::EINVAL)
                ) =>
            {
                Ok(None)
            }
            // A look-up needs no right: a rule or route prohibits (EACCES); one of kind blackhole gives EINVAL.
            Err(NetlinkError::Permission { .. }) => Ok(None),
            answer => answer,
        }
    }
}

pub(super) fn route_message(route: Route) -> RouteMessage {
    let mut message = RouteMessage::default();
    message.header.address_family = family(route.destination);
    message.header.destination_prefix_length = route.prefix_len;
    message.header.table = RouteHeader::RT_TABLE_UNSPEC;
    message.header.protocol = if route.own { OWNER } else { RouteProtocol::Static };
    message.header.kind = if route.throws {
        RouteType::Throw
    } else {
        RouteType::Unicast
    };
    // In another table it is none by which the kernel finds the interface of a gateway.
    let to_link = route.table == MAIN && route.gateway.is_none();
    message.header.scope = if to_link && route.destination.is_ipv4() {
        RouteScope::Link
    } else {
        RouteScope::Universe
    };
    let attributes = &mut message.attributes;
    attributes.push(RouteAttribute::Table(route.table));
    if route.prefix_len > 0 {
        attributes.push(RouteAttribute::Destination(route.destination.into()));
    }
    attributes.extend(route.gateway.map(|ip| RouteAttribute::Gateway(ip.into())));
    attributes.extend(route.interface.map(RouteAttribute::Oif));
    attributes.extend(route.metric.map(RouteAttribute::Priority));
    attributes.extend(route.source.map(|ip| RouteAttribute::PrefSource(ip.into())));
    attributes.extend(
        route
            .mtu
            .map(|mtu| RouteAttribute::Metrics(vec![RouteMetric::Mtu(mtu)])),
    );
    message
}

fn routes(message: &Message) -> Vec<Route> {
    let Message::NewRoute(message) = message else {
        return Vec::new();
    };
    let Some(route) = route(message) else {
        return Vec::new();
    };
    let hops = message.attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::MultiPath(hops) => Some(hops),
        _ => None,
    });
    let Some(hops) = hops else { return vec![route] };
    let through = |hop: &RouteNextHop| Route {
        gateway: hop.attributes.iter().find_map(|attribute| match attribute {
            RouteAttribute::Gateway(address) => ip(address),
            _ => None,
        }),
        interface: Some(hop.interface_index),
        ..route
    };
    hops.iter().map(through).collect()
}

/// The number of the table of a route: that of its header is too short for all.
pub(super) fn table_of(message: &RouteMessage) -> u32 {
    let named = message.attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Table(table) => Some(*table),
        _ => None,
    });
    named.unwrap_or(message.header.table.into())
}

fn route(message: &RouteMessage) -> Option<Route> {
    matches!(message.header.kind, RouteType::Unicast | RouteType::Throw).then(|| any_route(message))?
}

/// A route of any table and kind.
pub(super) fn any_route(message: &RouteMessage) -> Option<Route> {
    let header = &message.header;
    let unspecified = match header.address_family {
        AddressFamily::Inet => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        AddressFamily::Inet6 => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        _ => return None,
    };
    let mut route = Route {
        table: table_of(message),
        destination: unspecified,
        prefix_len: header.destination_prefix_length,
        gateway: None,
        interface: None,
        metric: None,
        mtu: None,
        source: None,
        own: header.protocol == OWNER,
        throws: header.kind == RouteType::Throw,
    };
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Destination(address) => route.destination = ip(address)?,
            RouteAttribute::Gateway(address) => route.gateway = ip(address),
            RouteAttribute::Oif(index) => route.interface = Some(*index),
            RouteAttribute::Priority(metric) => route.metric = Some(*metric),
            RouteAttribute::PrefSource(address) => route.source = ip(address),
            RouteAttribute::Metrics(metrics) => {
                route.mtu = metrics.iter().find_map(|metric| match metric {
                    RouteMetric::Mtu(mtu) => Some(*mtu),
                    _ => None,
                });
            }
            _ => {}
        }
    }
    Some(route)
}

fn ip(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(ip) => Some((*ip).into()),
        RouteAddress::Inet6(ip) => Some((*ip).into()),
        _ => None,
    }
}
