//! Addresses, MTU and routes of the node's own interface, and the rules that lead packets to them.

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;

use weft_os::netlink::{InterfaceAddress, Netlink, NetlinkError, Route, Rule};

use crate::pace::Pace;
use crate::routes::{PRIORITIES, TABLE};

/// How often the interface is read back without any change that the kernel tells of, in ms.
const LOOK_EVERY: u64 = 10_000;

/// All that the interface has to have.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wanted {
    /// The MTU in bytes.
    pub mtu: u32,
    /// Addresses, each with the bits of its prefix.
    pub addresses: BTreeSet<(IpAddr, u8)>,
    /// Routes of the main table through the interface, and those of the own table, with this program's mark.
    pub routes: Vec<Route>,
    /// Rules that lead packets to the own table, in the order in which they are added.
    pub rules: Vec<Rule>,
}

/// All that the interface has.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Present {
    /// The MTU in bytes.
    pub mtu: u32,
    /// It is set up, so that it has routes.
    pub up: bool,
    /// Addresses, each with the bits of its prefix.
    pub addresses: BTreeSet<(IpAddr, u8)>,
    /// Routes of the main table through the interface, those of others as well, and the own ones of the own table.
    pub routes: Vec<Route>,
    /// Rules that lead packets to the own table.
    pub rules: Vec<Rule>,
}

/// Something that the interface has to have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fact {
    /// It is set up.
    Up,
    /// Its MTU in bytes.
    Mtu(u32),
    /// An address, with the bits of its prefix.
    Address(IpAddr, u8),
    /// A route.
    Route(Route),
    /// A rule for routes.
    Rule(Rule),
}

impl From<Wanted> for Present {
    /// What an interface has that has all that is wanted.
    fn from(wanted: Wanted) -> Self {
        Self {
            mtu: wanted.mtu,
            up: true,
            addresses: wanted.addresses,
            routes: wanted.routes,
            rules: wanted.rules,
        }
    }
}

impl fmt::Display for Fact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Up => f.write_str("up"),
            Self::Mtu(mtu) => write!(f, "the MTU {mtu}"),
            Self::Address(address, len) => write!(f, "the address {address}/{len}"),
            Self::Route(route) if route.throws => {
                write!(
                    f,
                    "the way past the table to {}/{}",
                    route.destination, route.prefix_len
                )
            }
            Self::Route(route) => write!(f, "the route to {}/{}", route.destination, route.prefix_len),
            Self::Rule(rule) => write!(f, "the rule {} for routes", rule.priority),
        }
    }
}

/// Facts that are wanted and not present, in the order in which they can be set up.
#[must_use]
pub fn missing(wanted: &Wanted, present: &Present) -> Vec<Fact> {
    let mut facts = Vec::new();
    if wanted.mtu != present.mtu {
        facts.push(Fact::Mtu(wanted.mtu));
    }
    if !present.up {
        facts.push(Fact::Up);
    }
    let addresses = wanted.addresses.difference(&present.addresses);
    facts.extend(addresses.map(|(address, len)| Fact::Address(*address, *len)));
    // The order of a table of routes is the kernel's. What leads past the table goes first.
    let key = |route: &Route| (!route.throws, route.destination, route.prefix_len);
    let own: BTreeSet<_> = present
        .routes
        .iter()
        .filter(|route| route.own)
        .map(comparable)
        .collect();
    let routes = wanted.routes.iter().filter(|route| !own.contains(&comparable(route)));
    let mut routes: Vec<Route> = routes.copied().collect();
    routes.sort_by_key(key);
    facts.extend(routes.into_iter().map(Fact::Route));
    let rules = wanted.rules.iter().filter(|rule| !present.rules.contains(rule));
    facts.extend(rules.copied().map(Fact::Rule));
    facts
}

/// Routes with this program's mark that are not wanted: those of an earlier run, and those whose
/// properties another program has changed.
#[must_use]
pub fn surplus(wanted: &Wanted, present: &Present) -> Vec<Route> {
    let wanted: BTreeSet<_> = wanted.routes.iter().map(comparable).collect();
    let own = present.routes.iter().filter(|route| route.own);
    own.filter(|route| !wanted.contains(&comparable(route)))
        .copied()
        .collect()
}

/// The properties of a route that this program sets: the kernel chooses a metric of its own.
fn comparable(route: &Route) -> (u32, IpAddr, u8, Option<u32>, Option<u32>, Option<IpAddr>) {
    // IPv6 names an interface in a route that leads to none.
    let interface = route.interface.filter(|_| !route.throws);
    let (to, len) = (route.destination, route.prefix_len);
    (route.table, to, len, interface, route.mtu, route.source)
}

/// The place of a route in its table.
const fn place(route: &Route) -> (u32, IpAddr, u8) {
    (route.table, route.destination, route.prefix_len)
}

/// The name of an interface; `None` if there is none with this index, or its name has characters that
/// rules and files of other programs cannot contain.
///
/// # Errors
/// Only if the exchange with the kernel fails.
pub fn plain_name(index: u32) -> Result<Option<String>, NetlinkError> {
    match Netlink::open()?.interface_at(index) {
        Ok(interface) => Ok(Some(interface.name).filter(|name| is_plain(name))),
        Err(NetlinkError::NotFound { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether rules and files of other programs can contain this name, and paths as one step.
#[must_use]
pub fn is_plain(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    !matches!(name, "" | "." | "..") && name.chars().all(plain)
}

/// Reads an interface back.
///
/// # Errors
/// A [`NetlinkError`]; `NotFound` if there is none with this index.
pub fn look(netlink: &mut Netlink, index: u32) -> Result<Present, NetlinkError> {
    let interface = netlink.interface_at(index)?;
    let addresses = netlink.addresses(index)?;
    let mut routes = netlink.routes_through(index)?;
    routes.extend(netlink.own_routes(TABLE)?);
    Ok(Present {
        mtu: interface.mtu,
        up: interface.up,
        addresses: addresses.iter().map(|own| (own.address, own.prefix_len)).collect(),
        routes,
        rules: netlink.rules(&PRIORITIES)?,
    })
}

/// What the system refuses.
#[derive(Debug, thiserror::Error)]
#[error("the system refuses {fact}: {source}; `weft doctor` looks again")]
pub struct Refused {
    /// What it is.
    fact: Fact,
    /// The error of the system.
    source: NetlinkError,
}

/// The result of a look.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Facts that were missing and are set up again.
    pub repaired: Vec<Fact>,
    /// Facts that are missing still, each with the reason.
    pub refused: Vec<(Fact, NetlinkError)>,
    /// Other programs' routes to the destination of a wanted one, which stay.
    pub taken: Vec<Route>,
}

impl Outcome {
    /// The kernel refuses IPv6 addresses because IPv6 is off on the interface.
    #[must_use]
    pub fn lacks_ipv6(&self) -> bool {
        self.refused.iter().any(|(fact, error)| {
            matches!(fact, Fact::Address(IpAddr::V6(_), _)) && matches!(error, NetlinkError::Permission { .. })
        })
    }
}

/// Keeps an interface as it has to be.
#[derive(Debug)]
pub struct Keeper {
    index: u32,
    wanted: Wanted,
    pace: Pace,
    /// When to look, in ms.
    look_at: u64,
    /// Facts that the last look has set up again, in words.
    lost: Vec<String>,
    /// Facts that the system has refused at the last look, with its reason.
    refused: Vec<String>,
}

impl Keeper {
    /// Keeps the interface with this index, which has all that is wanted.
    #[must_use]
    pub fn new(index: u32, wanted: Wanted, now: u64) -> Self {
        Self {
            index,
            wanted,
            pace: Pace::default(),
            look_at: now + LOOK_EVERY,
            lost: Vec::new(),
            refused: Vec::new(),
        }
    }

    /// The index of the interface.
    #[must_use]
    pub const fn index(&self) -> u32 {
        self.index
    }

    /// All that the interface has to have.
    #[must_use]
    pub const fn wanted(&self) -> &Wanted {
        &self.wanted
    }

    /// Wants something else than before. Adds what is new and removes what is not wanted any longer.
    ///
    /// # Errors
    /// The first that the system refuses; all others are changed, and the next look, which is soon, tries again.
    pub fn want(&mut self, now: u64, wanted: Wanted, netlink: &mut Netlink) -> Result<(), Refused> {
        let before = std::mem::replace(&mut self.wanted, wanted);
        let own = |(address, prefix_len): &(IpAddr, u8)| InterfaceAddress {
            index: self.index,
            address: *address,
            prefix_len: *prefix_len,
        };
        let mut refused = None;
        let mut note = |fact: Fact, done: Result<(), NetlinkError>| {
            if let Err(source) = done {
                refused.get_or_insert(Refused { fact, source });
            }
        };
        for gone in before.addresses.difference(&self.wanted.addresses) {
            note(
                Fact::Address(gone.0, gone.1),
                unless_gone(netlink.delete_address(own(gone))),
            );
        }
        // Routes name addresses as their sources, and rules lead to routes.
        for fact in missing(&self.wanted, &before.clone().into()) {
            note(fact, unless_there(self.set_up(netlink, fact)));
        }
        for gone in before.rules.iter().filter(|rule| !self.wanted.rules.contains(rule)) {
            note(Fact::Rule(*gone), unless_gone(netlink.delete_rule(*gone)));
        }
        let kept: BTreeSet<_> = self.wanted.routes.iter().map(place).collect();
        for gone in before.routes.iter().filter(|route| !kept.contains(&place(route))) {
            note(Fact::Route(*gone), unless_gone(netlink.delete_route(*gone)));
        }
        let Some(refused) = refused else { return Ok(()) };
        self.look_soon(now);
        Err(refused)
    }

    /// Makes the next [`handle_timeout`](Self::handle_timeout) look, as soon as the pace allows it.
    pub fn look_soon(&mut self, now: u64) {
        self.look_at = self.look_at.min(self.pace.next(now));
    }

    /// When [`handle_timeout`](Self::handle_timeout) has something to do, in ms.
    #[must_use]
    pub const fn timeout(&self) -> u64 {
        self.look_at
    }

    /// Looks, if it is time, and sets up what is missing.
    ///
    /// # Errors
    /// A [`NetlinkError`] if the interface cannot be read; the next look is soon.
    pub fn handle_timeout(&mut self, now: u64, netlink: &mut Netlink) -> Result<Option<Outcome>, NetlinkError> {
        if now < self.look_at {
            return Ok(None);
        }
        self.look_at = now + LOOK_EVERY;
        let outcome = self.apply(netlink);
        let sound = matches!(&outcome, Ok(outcome) if outcome.repaired.is_empty() && outcome.refused.is_empty());
        if !sound {
            self.pace.note(now);
        }
        // Refused facts are tried again, as is an interface that could not be read.
        if !matches!(&outcome, Ok(outcome) if outcome.refused.is_empty()) {
            self.look_at = self.pace.next(now);
        }
        outcome.map(Some)
    }

    /// Reads the interface back, sets up nothing, and returns each fact that is missing.
    ///
    /// # Errors
    /// A [`NetlinkError`]
    pub fn probe(&self, netlink: &mut Netlink) -> Result<Vec<Fact>, NetlinkError> {
        Ok(missing(&self.wanted, &look(netlink, self.index)?))
    }

    /// The alarm, in words, while the system refuses a fact, or another program removes what this one
    /// sets up.
    #[must_use]
    pub fn alarm(&self, now: u64) -> Option<String> {
        if !self.refused.is_empty() {
            return Some(format!("the system refuses {}", self.refused.join(", ")));
        }
        let count = self.pace.fight(now)?;
        let lost = self.lost.join(", ");
        Some(format!(
            "another program has removed {lost} {count} times within a minute; it is set up again each time"
        ))
    }

    fn apply(&mut self, netlink: &mut Netlink) -> Result<Outcome, NetlinkError> {
        let present = look(netlink, self.index)?;
        for route in surplus(&self.wanted, &present) {
            unless_gone(netlink.delete_route(route))?;
        }
        for rule in present.rules.iter().filter(|rule| !self.wanted.rules.contains(rule)) {
            unless_gone(netlink.delete_rule(*rule))?;
        }
        let mut outcome = Outcome::default();
        for fact in missing(&self.wanted, &present) {
            match self.set_up(netlink, fact) {
                Ok(()) => outcome.repaired.push(fact),
                Err(NetlinkError::Exists { .. }) => {
                    if let Fact::Route(route) = fact {
                        outcome.taken.push(route);
                    }
                }
                Err(error) => outcome.refused.push((fact, error)),
            }
        }
        let refused = outcome.refused.iter();
        self.refused = refused.map(|(fact, error)| format!("{fact} ({error})")).collect();
        if !outcome.repaired.is_empty() {
            self.lost = outcome.repaired.iter().map(ToString::to_string).collect();
        }
        Ok(outcome)
    }

    fn set_up(&self, netlink: &mut Netlink, fact: Fact) -> Result<(), NetlinkError> {
        match fact {
            Fact::Up => netlink.set_up(self.index),
            Fact::Mtu(mtu) => {
                netlink.set_mtu(self.index, mtu)?;
                // With the MTU before, the kernel may have forgotten all settings of IPv6.
                let _ = netlink.disable_link_local(self.index);
                Ok(())
            }
            Fact::Address(address, prefix_len) => netlink.add_address(InterfaceAddress {
                index: self.index,
                address,
                prefix_len,
            }),
            // The own table has no routes of others.
            Fact::Route(route) if route.table == TABLE => netlink.set_route(route),
            Fact::Route(route) => netlink.add_route(route),
            Fact::Rule(rule) => netlink.add_rule(rule),
        }
    }
}

/// No error if something exists already.
fn unless_there(added: Result<(), NetlinkError>) -> Result<(), NetlinkError> {
    match added {
        Err(NetlinkError::Exists { .. }) => Ok(()),
        added => added,
    }
}

/// No error if something is gone already.
fn unless_gone(deleted: Result<(), NetlinkError>) -> Result<(), NetlinkError> {
    match deleted {
        Err(NetlinkError::NotFound { .. }) => Ok(()),
        deleted => deleted,
    }
}

#[cfg(test)]
mod tests {
    use weft_os::netlink::Then;

    use super::*;

    fn own(destination: &str, prefix_len: u8) -> Route {
        Route {
            own: true,
            ..Route::to_interface(destination.parse().unwrap(), prefix_len, 7)
        }
    }

    fn wanted() -> Wanted {
        Wanted {
            mtu: 1_470,
            addresses: [("fd00::1".parse().unwrap(), 128), ("10.44.0.1".parse().unwrap(), 32)].into(),
            routes: vec![own("fd00::", 8), own("10.44.0.2", 32), own("192.168.9.0", 24)],
            rules: vec![Rule::new(false, 5_199, Then::Nothing)],
        }
    }

    fn present() -> Present {
        let Wanted {
            mtu,
            addresses,
            routes,
            rules,
        } = wanted();
        let mut routes: Vec<Route> = routes.into_iter().rev().collect();
        routes[2].metric = Some(1_024);
        Present {
            mtu,
            up: true,
            addresses,
            routes,
            rules,
        }
    }

    #[test]
    fn nothing_is_missing_from_what_is_there() {
        let mut present = present();
        // What others have added stays.
        present.addresses.insert(("198.51.100.1".parse().unwrap(), 32));
        present.routes.push(Route {
            own: false,
            ..own("203.0.113.0", 24)
        });
        assert_eq!(missing(&wanted(), &present), []);
        assert_eq!(surplus(&wanted(), &present), []);
    }

    #[test]
    fn each_lost_fact_is_missing_in_an_order_that_works() {
        let facts = missing(
            &wanted(),
            &Present {
                mtu: 1_000,
                ..Present::default()
            },
        );
        let words: Vec<String> = facts.iter().map(ToString::to_string).collect();
        assert_eq!(
            words,
            [
                "the MTU 1470",
                "up",
                "the address 10.44.0.1/32",
                "the address fd00::1/128",
                "the route to 10.44.0.2/32",
                "the route to 192.168.9.0/24",
                "the route to fd00::/8",
                "the rule 5199 for routes"
            ]
        );
    }

    #[test]
    fn a_changed_or_stale_route_gives_way() {
        let mut present = present();
        present.routes[0].source = Some("10.44.0.1".parse().unwrap());
        let stale = own("10.44.0.9", 32);
        present.routes.push(stale);
        assert_eq!(surplus(&wanted(), &present), [present.routes[0], stale]);
        assert_eq!(missing(&wanted(), &present), [Fact::Route(own("192.168.9.0", 24))]);
        // Another program's route to the same destination is none of this program's.
        present.routes[0].own = false;
        assert_eq!(surplus(&wanted(), &present), [stale]);
    }
}
