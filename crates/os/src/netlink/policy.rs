//! Policy routing (RFC 1812 section 5.2.4 leaves it to the host): rules that choose a table, and the
//! routes of a table that has one owner.

use std::net::{IpAddr, Ipv4Addr};
use std::ops::RangeInclusive;

use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::route::{RouteAttribute, RouteHeader, RouteMessage, RouteScope, RouteType};
use netlink_packet_route::rule::{RuleAction, RuleAttribute, RuleMessage, RulePortRange};
use netlink_packet_route::{AddressFamily, IpProtocol, RouteNetlinkMessage as Message};

use super::route::{OWNER, Route, route_message};
use super::{Netlink, NetlinkError};

/// A rule of [`Netlink::add_rule`]. It matches packets of which all that it names is true.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rule {
    /// Whether it is about IPv6, or else IPv4.
    pub ipv6: bool,
    /// Rules are asked in the order of this number.
    pub priority: u32,
    /// The destination is in this network.
    pub destination: Option<(IpAddr, u8)>,
    /// This is the destination port of TCP, UDP and others that have ports.
    pub port: Option<u16>,
    /// This is the source port of UDP. The check of sources (rp_filter) asks for the way of an answer: from the port to
    /// which a packet came.
    pub from_port: Option<u16>,
    /// The mark has this bit.
    pub marked: Option<u32>,
    /// What happens to packets that match.
    pub then: Then,
}

impl Rule {
    /// A rule about all packets of an IP version.
    #[must_use]
    pub const fn new(ipv6: bool, priority: u32, then: Then) -> Self {
        Self {
            ipv6,
            priority,
            destination: None,
            port: None,
            from_port: None,
            marked: None,
            then,
        }
    }
}

/// What a [`Rule`] does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Then {
    /// Looks the packet up in a table. Without a route there, the next rule is asked.
    LookUp(LookUp),
    /// Goes on with the first rule that has this priority, or a higher one that is nothing.
    GoTo(u32),
    /// Nothing: the place that another rule goes to.
    Nothing,
}

/// A look-up in a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct LookUp {
    /// The table.
    pub table: u32,
    /// Default routes of the table do not count.
    pub no_default: bool,
    /// Routes through interfaces of this group do not count. Interfaces are in group 0 by default.
    pub not_through: Option<u32>,
}

/// A default route in a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DefaultRoute {
    /// Through an interface, by its index, for packets without a source address from this one.
    Interface(u32, Option<Ipv4Addr>),
    /// Programs get an error. It has a high metric: a route through an interface comes first.
    Unreachable,
}

/// The main table.
pub const MAIN: u32 = RouteHeader::RT_TABLE_MAIN as u32;

impl Netlink {
    /// Adds a rule.
    ///
    /// # Errors
    /// A [`NetlinkError`]; `Exists` if there is the same one.
    pub fn add_rule(&mut self, rule: Rule) -> Result<(), NetlinkError> {
        let mut message = RuleMessage::default();
        message.header.family = family(rule.ipv6);
        let attributes = &mut message.attributes;
        attributes.extend([RuleAttribute::Priority(rule.priority), RuleAttribute::Protocol(OWNER)]);
        if let Some((address, prefix_len)) = rule.destination {
            message.header.dst_len = prefix_len;
            attributes.push(RuleAttribute::Destination(address));
        }
        let range = |port| RulePortRange { start: port, end: port };
        attributes.extend(rule.port.map(range).map(RuleAttribute::DestinationPortRange));
        if let Some(port) = rule.from_port {
            let udp = RuleAttribute::IpProtocol(IpProtocol::Udp);
            attributes.extend([udp, RuleAttribute::SourcePortRange(range(port))]);
        }
        if let Some(mark) = rule.marked {
            attributes.extend([RuleAttribute::FwMark(mark), RuleAttribute::FwMask(mark)]);
        }
        message.header.action = match rule.then {
            Then::LookUp(look_up) => {
                attributes.push(RuleAttribute::Table(look_up.table));
                if look_up.no_default {
                    attributes.push(RuleAttribute::SuppressPrefixLen(0));
                }
                attributes.extend(look_up.not_through.map(RuleAttribute::SuppressIfGroup));
                RuleAction::ToTable
            }
            Then::GoTo(priority) => {
                attributes.push(RuleAttribute::Goto(priority));
                RuleAction::Goto
            }
            Then::Nothing => RuleAction::Nop,
        };
        self.change(
            "add the rule for routes",
            Message::NewRule(message),
            NLM_F_CREATE | NLM_F_EXCL,
        )
    }

    /// Deletes a rule that [`add_rule`](Self::add_rule) has added, in this or another process.
    ///
    /// # Errors
    /// A [`NetlinkError`]; `NotFound` if there is none.
    pub fn delete_rule(&mut self, rule: Rule) -> Result<(), NetlinkError> {
        let own = self.own_messages(rule.ipv6)?;
        let found = own.into_iter().find(|own| read(own) == Some(rule));
        let what = "delete the rule for routes";
        let found = found.ok_or(NetlinkError::NotFound { what })?;
        self.change(what, Message::DelRule(found), 0)
    }

    /// Deletes all rules of these priorities that [`add_rule`](Self::add_rule) has added, in this or another process.
    ///
    /// # Errors
    /// A [`NetlinkError`]
    pub fn delete_rules(&mut self, priorities: &RangeInclusive<u32>) -> Result<(), NetlinkError> {
        for message in self.own_rules_of(priorities)? {
            match self.change("delete the rule for routes", Message::DelRule(message), 0) {
                Err(NetlinkError::NotFound { .. }) => {}
                deleted => deleted?,
            }
        }
        Ok(())
    }

    /// The rules of these priorities that [`add_rule`](Self::add_rule) has added, in this or another process, or that
    /// another program has put in their place, of IPv4 and of IPv6.
    ///
    /// # Errors
    /// A [`NetlinkError`]
    pub fn rules(&mut self, priorities: &RangeInclusive<u32>) -> Result<Vec<Rule>, NetlinkError> {
        let own = self.own_rules_of(priorities)?;
        Ok(own.iter().filter_map(read).collect())
    }

    /// Whether the kernel has rules for routes of an IP version.
    ///
    /// # Errors
    /// Only if the exchange with the kernel fails.
    pub fn has_rules(&mut self, ipv6: bool) -> Result<bool, NetlinkError> {
        let mut all = RuleMessage::default();
        all.header.family = family(ipv6);
        let rules = self.dump("list the rules for routes", Message::GetRule(all), |message| {
            matches!(message, Message::NewRule(_)).then_some(())
        });
        match rules {
            Err(NetlinkError::Refused { .. } | NetlinkError::NotFound { .. }) => Ok(false),
            // The kernel has three from the start.
            rules => Ok(!rules?.is_empty()),
        }
    }

    /// The number of rules of these priorities that [`add_rule`](Self::add_rule) has added, in this or another process,
    /// and that of the routes of a table that [`add_default_route`](Self::add_default_route) has.
    ///
    /// # Errors
    /// A [`NetlinkError`]
    pub fn count_rules_and_routes(
        &mut self,
        priorities: &RangeInclusive<u32>,
        table: u32,
    ) -> Result<(usize, usize), NetlinkError> {
        let rules = self.own_rules_of(priorities)?.len();
        Ok((rules, self.own_messages_of(table)?.len()))
    }

    /// Whether a table has a default route of [`DefaultRoute::Unreachable`].
    ///
    /// # Errors
    /// A [`NetlinkError`]
    pub fn leads_nowhere(&mut self, table: u32) -> Result<bool, NetlinkError> {
        let routes = self.own_messages_of(table)?;
        Ok(routes.iter().any(|route| route.header.kind == RouteType::Unreachable))
    }

    fn own_rules_of(&mut self, priorities: &RangeInclusive<u32>) -> Result<Vec<RuleMessage>, NetlinkError> {
        let mut own = self.own_messages(false)?;
        own.extend(self.own_messages(true)?);
        own.retain(|rule| priority(rule).is_some_and(|priority| priorities.contains(&priority)));
        Ok(own)
    }

    fn own_messages(&mut self, ipv6: bool) -> Result<Vec<RuleMessage>, NetlinkError> {
        let mut all = RuleMessage::default();
        all.header.family = family(ipv6);
        let own = |message| match message {
            Message::NewRule(rule) => is_own(&rule).then_some(rule),
            _ => None,
        };
        self.dump("list the rules for routes", Message::GetRule(all), own)
    }

    /// Adds a default route to a table of this program.
    ///
    /// # Errors
    /// A [`NetlinkError`]; `Exists` if there is one.
    pub fn add_default_route(&mut self, table: u32, ipv6: bool, route: DefaultRoute) -> Result<(), NetlinkError> {
        let mut message = RouteMessage::default();
        let header = &mut message.header;
        header.address_family = family(ipv6);
        header.protocol = OWNER;
        header.table = RouteHeader::RT_TABLE_UNSPEC;
        message.attributes.push(RouteAttribute::Table(table));
        match route {
            DefaultRoute::Interface(index, source) => {
                header.kind = RouteType::Unicast;
                // The system looks for the interface of a gateway by routes to a link: not by this one.
                header.scope = RouteScope::Universe;
                message.attributes.push(RouteAttribute::Oif(index));
                let source = source.filter(|_| !ipv6);
                message
                    .attributes
                    .extend(source.map(|source| RouteAttribute::PrefSource(source.into())));
            }
            DefaultRoute::Unreachable => {
                header.kind = RouteType::Unreachable;
                message.attributes.push(RouteAttribute::Priority(u32::MAX - 1));
            }
        }
        self.change("add the route", Message::NewRoute(message), NLM_F_CREATE | NLM_F_EXCL)
    }

    /// Adds a route to a network through an interface to a table of this program.
    ///
    /// # Errors
    /// A [`NetlinkError`]; `Exists` if there is one.
    pub fn add_route_of(&mut self, table: u32, network: (IpAddr, u8), interface: u32) -> Result<(), NetlinkError> {
        let message = Message::NewRoute(message_of(table, network, interface));
        self.change("add the route", message, NLM_F_CREATE | NLM_F_EXCL)
    }

    /// Deletes a route that [`add_route_of`](Self::add_route_of) has added.
    ///
    /// # Errors
    /// A [`NetlinkError`]; `NotFound` if there is none.
    pub fn delete_route_of(&mut self, table: u32, network: (IpAddr, u8), interface: u32) -> Result<(), NetlinkError> {
        let message = Message::DelRoute(message_of(table, network, interface));
        self.change("delete the route", message, 0)
    }

    /// Deletes all routes of a table of this program.
    ///
    /// # Errors
    /// A [`NetlinkError`]
    pub fn delete_routes_of(&mut self, table: u32) -> Result<(), NetlinkError> {
        for route in self.own_messages_of(table)? {
            match self.change("delete the route", Message::DelRoute(route), 0) {
                Err(NetlinkError::NotFound { .. }) => {}
                deleted => deleted?,
            }
        }
        Ok(())
    }

    fn own_messages_of(&mut self, table: u32) -> Result<Vec<RouteMessage>, NetlinkError> {
        let of_table = |message| match message {
            Message::NewRoute(route) => {
                let is_of = |attribute: &RouteAttribute| *attribute == RouteAttribute::Table(table);
                let owned = route.header.protocol == OWNER && route.attributes.iter().any(is_of);
                owned.then_some(route)
            }
            _ => None,
        };
        self.dump("list the routes", Message::GetRoute(RouteMessage::default()), of_table)
    }
}

fn message_of(table: u32, (address, prefix_len): (IpAddr, u8), interface: u32) -> RouteMessage {
    let mut message = route_message(Route::to_interface(address, prefix_len, interface));
    message.header.protocol = OWNER;
    message.header.table = RouteHeader::RT_TABLE_UNSPEC;
    message.attributes.push(RouteAttribute::Table(table));
    message
}

const fn family(ipv6: bool) -> AddressFamily {
    if ipv6 {
        AddressFamily::Inet6
    } else {
        AddressFamily::Inet
    }
}

/// Reads what [`Netlink::add_rule`] has written. `None` if it says something else.
fn read(message: &RuleMessage) -> Option<Rule> {
    let mut look_up = LookUp {
        table: message.header.table.into(),
        no_default: false,
        not_through: None,
    };
    let ipv6 = message.header.family == AddressFamily::Inet6;
    let mut rule = Rule::new(ipv6, 0, Then::Nothing);
    let mut mask = None;
    for attribute in &message.attributes {
        match attribute {
            RuleAttribute::Priority(priority) => rule.priority = *priority,
            RuleAttribute::Destination(address) => rule.destination = Some((*address, message.header.dst_len)),
            RuleAttribute::DestinationPortRange(range) => rule.port = Some(range.start),
            RuleAttribute::SourcePortRange(range) => rule.from_port = Some(range.start),
            RuleAttribute::FwMark(mark) => rule.marked = Some(*mark),
            RuleAttribute::FwMask(of) => mask = Some(*of),
            RuleAttribute::Table(table) => look_up.table = *table,
            RuleAttribute::SuppressPrefixLen(0) => look_up.no_default = true,
            RuleAttribute::SuppressIfGroup(group) if *group != u32::MAX => look_up.not_through = Some(*group),
            RuleAttribute::Goto(priority) => rule.then = Then::GoTo(*priority),
            _ => {}
        }
    }
    match message.header.action {
        RuleAction::ToTable => rule.then = Then::LookUp(look_up),
        RuleAction::Goto | RuleAction::Nop => {}
        _ => return None,
    }
    (rule.marked == mask).then_some(rule)
}

fn priority(message: &RuleMessage) -> Option<u32> {
    message.attributes.iter().find_map(|attribute| match attribute {
        RuleAttribute::Priority(priority) => Some(*priority),
        _ => None,
    })
}

pub(super) fn is_own(rule: &RuleMessage) -> bool {
    rule.attributes.contains(&RuleAttribute::Protocol(OWNER))
}
