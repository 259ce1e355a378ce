//! Policy routing (RFC 1812 section 5.2.4 leaves it to the host): rules that choose a table, and the
//! routes of a table that has one owner.

use std::net::{IpAddr, Ipv4Addr};

use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::route::{RouteAttribute, RouteHeader, RouteMessage, RouteScope, RouteType};
use netlink_packet_route::rule::{RuleAction, RuleAttribute, RuleFlags, RuleMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage as Message};

use super::route::OWNER;
use super::{Netlink, NetlinkError};

/// A rule of [`Netlink::add_rule`]: packets that match are looked up in a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rule {
    /// Whether it is about IPv6, or else IPv4.
    pub ipv6: bool,
    /// Rules are asked in the order of this number.
    pub priority: u32,
    /// It matches packets to these addresses; to all by default.
    pub destination: Option<(IpAddr, u8)>,
    /// It does not match packets with this bit in their mark.
    pub unless_marked: Option<u32>,
    /// The table.
    pub table: u32,
    /// Default routes of the table do not count.
    pub no_default: bool,
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
        message.header.action = RuleAction::ToTable;
        if rule.unless_marked.is_some() {
            message.header.flags = RuleFlags::Invert;
        }
        let attributes = &mut message.attributes;
        attributes.extend([
            RuleAttribute::Priority(rule.priority),
            RuleAttribute::Table(rule.table),
            RuleAttribute::Protocol(OWNER),
        ]);
        if let Some((address, prefix_len)) = rule.destination {
            message.header.dst_len = prefix_len;
            attributes.push(RuleAttribute::Destination(address));
        }
        if let Some(mark) = rule.unless_marked {
            attributes.extend([RuleAttribute::FwMark(mark), RuleAttribute::FwMask(mark)]);
        }
        if rule.no_default {
            attributes.push(RuleAttribute::SuppressPrefixLen(0));
        }
        self.change(
            "add the rule for routes",
            Message::NewRule(message),
            NLM_F_CREATE | NLM_F_EXCL,
        )
    }

    /// Deletes all rules that [`add_rule`](Self::add_rule) has added, in this or another process.
    ///
    /// # Errors
    /// A [`NetlinkError`]
    pub fn delete_rules(&mut self) -> Result<(), NetlinkError> {
        for family in [AddressFamily::Inet, AddressFamily::Inet6] {
            for rule in self.own_rules(family)? {
                match self.change("delete the rule for routes", Message::DelRule(rule), 0) {
                    Err(NetlinkError::NotFound { .. }) => {}
                    deleted => deleted?,
                }
            }
        }
        Ok(())
    }

    /// The number of rules that [`add_rule`](Self::add_rule) has added, in this or another process,
    /// and that of the routes of a table that [`add_default_route`](Self::add_default_route) has.
    ///
    /// # Errors
    /// A [`NetlinkError`]
    pub fn count_rules_and_routes(&mut self, table: u32) -> Result<(usize, usize), NetlinkError> {
        let rules = self.own_rules(AddressFamily::Inet)?.len() + self.own_rules(AddressFamily::Inet6)?.len();
        Ok((rules, self.own_routes(table)?.len()))
    }

    fn own_rules(&mut self, family: AddressFamily) -> Result<Vec<RuleMessage>, NetlinkError> {
        let mut all = RuleMessage::default();
        all.header.family = family;
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
                header.scope = if ipv6 { RouteScope::Universe } else { RouteScope::Link };
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

    /// Deletes all routes of a table of this program.
    ///
    /// # Errors
    /// A [`NetlinkError`]
    pub fn delete_routes_of(&mut self, table: u32) -> Result<(), NetlinkError> {
        for route in self.own_routes(table)? {
            match self.change("delete the route", Message::DelRoute(route), 0) {
                Err(NetlinkError::NotFound { .. }) => {}
                deleted => deleted?,
            }
        }
        Ok(())
    }

    fn own_routes(&mut self, table: u32) -> Result<Vec<RouteMessage>, NetlinkError> {
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

const fn family(ipv6: bool) -> AddressFamily {
    if ipv6 {
        AddressFamily::Inet6
    } else {
        AddressFamily::Inet
    }
}

pub(super) fn is_own(rule: &RuleMessage) -> bool {
    rule.attributes.contains(&RuleAttribute::Protocol(OWNER))
}
