//! Multicast DNS (RFC 6762) for the services (RFC 6763) of LAN discovery alone: what is announced, what is answered,
//! and the instances that others announce.
//!
//! A resolver or responder for a whole host is not part of it. Records of other services cost their parsing and are
//! not kept. Names of instances and hosts are random or follow from a key, so no probe goes before their
//! announcement. All answers are multicast, each service at most once a second on a link. The budget of a link counts
//! the datagrams that arrive there ([`READ_BURST`]), whatever they say.
//!
//! Never here: sockets, clocks, and what the entries of an instance mean.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};

use simple_dns::{QTYPE, TYPE};
use weft_wire::Subnet;

use self::found::Found;
use self::records::{Data, Message, Record};
use crate::rate::Bucket;

mod found;
mod records;

pub use found::{ASK_PAUSE, LONGEST_LIFE, MAX_ADDRESSES, MAX_ASKED, MAX_INSTANCES, WITHDRAWN_LIFE};
pub use records::MAX_DATAGRAM;

/// The UDP port of mDNS.
pub const PORT: u16 = 5_353;
/// Links that are served, at most.
pub const MAX_LINKS: usize = 16;
/// Addresses of a link that are announced, at most.
pub const MAX_ANNOUNCED: usize = 8;
/// Datagrams of one link that are read at once, at most.
pub const READ_BURST: u64 = 128;
/// The interval in which one more datagram of a link is read, in ms.
pub const READ_INTERVAL: u64 = 20;
/// The least time between two multicasts of the same records on a link, in ms (RFC 6762, section 6).
pub const SEND_PAUSE: u64 = 1_000;
/// The pause before a service is asked for again, in ms. It triples up to [`LAST_QUERY`].
pub const FIRST_QUERY: u64 = 1_000;
/// The longest pause, in ms: three queries find an instance between half of its life and its end.
pub const LAST_QUERY: u64 = 720_000;
/// The least and the most of the delay of a first query and of an answer, in ms (RFC 6762, sections 5.2 and 6).
const DELAY: (u64, u64) = (20, 120);

/// A link on which services are announced and looked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// The index of its interface.
    pub index: u32,
    /// The name of its interface.
    pub name: String,
    /// The addresses of this host there, those first that are announced first.
    pub addresses: Vec<IpAddr>,
    /// The subnets of these addresses.
    pub subnets: Vec<Subnet>,
}

impl Link {
    /// Returns true if a host of the link has this address (RFC 6762, section 11).
    fn has(&self, from: IpAddr) -> bool {
        let is_local = matches!(from, IpAddr::V6(ip) if ip.is_unicast_link_local());
        is_local || self.subnets.iter().any(|subnet| subnet.contains(from))
    }
}

/// A service to announce.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    /// The type of service, as `_weft._udp.local`.
    pub service: &'static str,
    /// The name of the instance: lower case, at most 63 bytes.
    pub instance: String,
    /// The port.
    pub port: u16,
    /// The addresses at which this host serves it, of which each link has its own announced. An unspecified one stands
    /// for all of its version of IP.
    pub served: Vec<IpAddr>,
    /// The entries of the TXT record.
    pub entries: Vec<(String, String)>,
}

impl Service {
    /// Returns its full name.
    fn full_name(&self) -> String {
        format!("{}.{}", self.instance, self.service)
    }

    /// Returns the addresses of a link at which it is served, at most [`MAX_ANNOUNCED`].
    fn addresses<'a>(&'a self, link: &'a Link) -> impl Iterator<Item = IpAddr> + 'a {
        let serves =
            |served: &IpAddr, ip: &IpAddr| served == ip || served.is_unspecified() && served.is_ipv4() == ip.is_ipv4();
        let of_link = link.addresses.iter().copied();
        of_link
            .filter(move |ip| self.served.iter().any(|served| serves(served, ip)))
            .take(MAX_ANNOUNCED)
    }
}

/// An instance that another host announces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The type of service, as `_weft._udp.local`.
    pub service: String,
    /// Its full name.
    pub name: String,
    /// Its port.
    pub port: u16,
    /// Its addresses with the port; those of a link alone have the index of the interface.
    pub addresses: Vec<SocketAddr>,
    /// The entries of its TXT record.
    pub entries: Vec<(String, Vec<u8>)>,
}

/// What is announced, looked for and found.
#[derive(Debug)]
pub struct Mdns {
    /// The name of the host, without `local`.
    host: String,
    services: Vec<Service>,
    browsed: Vec<&'static str>,
    links: BTreeMap<u32, OnLink>,
    found: Found,
    /// Datagrams that withdraw services, with the link of each.
    goodbyes: VecDeque<(u32, Vec<u8>)>,
    /// When instances may be asked for again, ms.
    may_ask: u64,
    /// The state of the source of delays.
    random: u64,
}

/// What is to be sent on a link, and what may be read there.
#[derive(Debug)]
struct OnLink {
    link: Link,
    reads: Bucket,
    /// One for each service.
    answers: Vec<Answer>,
    /// When the services are asked for next, ms, and the pause after it.
    query: (u64, u64),
    /// The query that was sent last, which comes back.
    asked: Vec<u8>,
}

/// When the records of a service are sent on a link.
#[derive(Clone, Copy, Debug, Default)]
struct Answer {
    due: Option<u64>,
    /// How often they are sent again then.
    again: u8,
    last: Option<u64>,
}

impl Answer {
    /// Sends them at `at`, or earlier if that was to be; not before a pause after the last time.
    fn send(&mut self, at: u64) {
        let at = self.last.map_or(at, |last| at.max(last + SEND_PAUSE));
        self.due = Some(self.due.map_or(at, |due| due.min(at)));
    }

    fn sent(&mut self, now: u64) {
        self.last = Some(now);
        self.due = (self.again > 0).then_some(now + SEND_PAUSE);
        self.again = self.again.saturating_sub(1);
    }

    /// Announces the service: twice (RFC 6762, section 8.3).
    fn announce(&mut self, now: u64) {
        self.again = 1;
        self.send(now);
    }
}

impl Mdns {
    /// Makes the state of a host named `host`, a label, which announces and looks for nothing. `seed` decides the
    /// delays.
    #[must_use]
    pub fn new(host: String, seed: u64) -> Self {
        Self {
            host,
            services: Vec::new(),
            browsed: Vec::new(),
            links: BTreeMap::new(),
            found: Found::default(),
            goodbyes: VecDeque::new(),
            may_ask: 0,
            random: seed,
        }
    }

    /// Serves these links from now on, and no others; at most [`MAX_LINKS`]. On those that are new, or have other
    /// addresses, the services are announced and looked for.
    pub fn set_links(&mut self, now: u64, links: &[Link]) {
        let links = &links[..links.len().min(MAX_LINKS)];
        let delay = self.delay();
        self.links
            .retain(|index, _| links.iter().any(|link| link.index == *index));
        for link in links {
            match self.links.get_mut(&link.index) {
                Some(known) if known.link == *link => {}
                Some(known) => {
                    known.link = link.clone();
                    known.query = (now + delay, FIRST_QUERY);
                    known.answers.iter_mut().for_each(|answer| answer.announce(now));
                }
                None => {
                    let on_link = self.on_link(now, link);
                    self.links.insert(link.index, on_link);
                }
            }
        }
        self.found.set_links(links);
    }

    fn on_link(&mut self, now: u64, link: &Link) -> OnLink {
        let mut answer = Answer::default();
        answer.announce(now);
        OnLink {
            link: link.clone(),
            reads: Bucket::new(READ_BURST, READ_INTERVAL),
            answers: vec![answer; self.services.len()],
            query: (now + self.delay(), FIRST_QUERY),
            asked: Vec::new(),
        }
    }

    /// Announces these services from now on, and no others: those that are not among them any more are withdrawn.
    pub fn announce(&mut self, now: u64, services: Vec<Service>) {
        let stays = |old: &Service| services.iter().any(|new| new.full_name() == old.full_name());
        for gone in self.services.iter().filter(|old| !stays(old)) {
            for on_link in self.links.values() {
                let datagram = records::response(gone, &self.host, &on_link.link, true);
                self.goodbyes
                    .extend(datagram.map(|datagram| (on_link.link.index, datagram)));
            }
        }
        for on_link in self.links.values_mut() {
            let answers = services.iter().map(|service| {
                let same = self
                    .services
                    .iter()
                    .position(|old| old.full_name() == service.full_name());
                let mut answer = same.map(|at| on_link.answers[at]).unwrap_or_default();
                if same.is_none_or(|at| self.services[at] != *service) {
                    answer.announce(now);
                }
                answer
            });
            on_link.answers = answers.collect();
        }
        self.services = services;
    }

    /// Looks for instances of these services from now on, and of no others.
    pub fn browse(&mut self, now: u64, services: &[&'static str]) {
        if self.browsed == services {
            return;
        }
        self.browsed = services.to_vec();
        self.found.retain(now, |service| services.contains(&service));
        let delay = self.delay();
        for on_link in self.links.values_mut() {
            on_link.query = (now + delay, FIRST_QUERY);
        }
    }

    /// Returns when the next datagram of a link may be read, ms.
    #[must_use]
    pub fn may_read(&self, now: u64, link: u32) -> u64 {
        self.links
            .get(&link)
            .map_or(u64::MAX, |on_link| on_link.reads.next(now))
    }

    /// Takes a datagram that came by `link`. Returns true if an instance is to be looked at. Datagrams beyond the
    /// budget of the link are dropped.
    pub fn handle(&mut self, now: u64, link: u32, from: SocketAddr, datagram: &[u8]) -> bool {
        let Some(on_link) = self.links.get_mut(&link) else {
            return false;
        };
        // Another port is that of a resolver that does not speak mDNS, which is not served (RFC 6762, section 6.7).
        if !on_link.reads.take(now) || from.port() != PORT || !on_link.link.has(from.ip()) {
            return false;
        }
        let is_own = on_link.link.addresses.contains(&from.ip()) && *datagram == *on_link.asked;
        match records::read(datagram) {
            Some(Message::Query { .. }) if is_own => false,
            Some(Message::Query { questions, known }) => {
                self.answer(now, link, &questions, &known);
                false
            }
            Some(Message::Response(records)) => {
                self.defend(now, link, &records);
                let services = &self.services;
                let own = |name: &str| services.iter().any(|service| service.full_name() == name);
                let link = self.links.get(&link).map(|on_link| &on_link.link);
                link.is_some_and(|link| self.found.learn(now, link, &records, &self.browsed, own))
            }
            None => false,
        }
    }

    /// Plans the answers to questions.
    fn answer(&mut self, now: u64, link: u32, questions: &[(String, QTYPE)], known: &[(String, String, u32)]) {
        let delay = self.delay();
        let host = format!("{}.local", self.host);
        let Some(on_link) = self.links.get_mut(&link) else {
            return;
        };
        for (service, answer) in self.services.iter().zip(&mut on_link.answers) {
            let name = service.full_name();
            let is_known = |(of, target, left): &(String, String, u32)| {
                of == service.service && *target == name && u64::from(*left) * 2_000 >= LONGEST_LIFE
            };
            let asks = |(asked, kind): &(String, QTYPE)| match kind {
                QTYPE::ANY | QTYPE::TYPE(TYPE::PTR) if asked == service.service => !known.iter().any(is_known),
                QTYPE::ANY | QTYPE::TYPE(TYPE::SRV | TYPE::TXT) if *asked == name => true,
                QTYPE::ANY | QTYPE::TYPE(TYPE::A | TYPE::AAAA) => *asked == host,
                _ => false,
            };
            if questions.iter().any(asks) {
                answer.send(now + delay);
            }
        }
    }

    /// Announces a service again that another host withdraws, or describes in another way.
    fn defend(&mut self, now: u64, link: u32, records: &[Record]) {
        let own_host = format!("{}.local", self.host);
        let Some(on_link) = self.links.get_mut(&link) else {
            return;
        };
        for (service, answer) in self.services.iter().zip(&mut on_link.answers) {
            let name = service.full_name();
            let differs = |record: &Record| match &record.data {
                Data::Pointer(target) => *target == name && record.ttl == 0,
                _ if record.name != name => false,
                Data::Server { port, host } => record.ttl == 0 || *port != service.port || *host != own_host,
                Data::Text(said) => record.ttl == 0 || !same_entries(said, &service.entries),
                Data::Address(_) => false,
            };
            if records.iter().any(differs) {
                answer.send(now);
            }
        }
    }

    /// Returns a datagram to multicast on a link, with its index. The caller asks until there is none.
    pub fn poll_transmit(&mut self, now: u64) -> Option<(u32, Vec<u8>)> {
        if let Some(goodbye) = self.goodbyes.pop_front() {
            return Some(goodbye);
        }
        for (index, on_link) in &mut self.links {
            for (service, answer) in self.services.iter().zip(&mut on_link.answers) {
                if answer.due.is_none_or(|due| due > now) {
                    continue;
                }
                answer.sent(now);
                if let Some(datagram) = records::response(service, &self.host, &on_link.link, false) {
                    return Some((*index, datagram));
                }
            }
            if on_link.query.0 <= now && !self.browsed.is_empty() {
                let (_, pause) = on_link.query;
                on_link.query = (now + pause, (pause * 3).min(LAST_QUERY));
                let questions: Vec<_> = self.browsed.iter().map(|of| ((*of).to_owned(), TYPE::PTR)).collect();
                let known: Vec<_> = self.browsed.iter().flat_map(|of| self.found.known(now, of)).collect();
                on_link.asked = records::query(&questions, &known);
                return Some((*index, on_link.asked.clone()));
            }
        }
        self.ask(now)
    }

    /// Returns a query for instances that are not complete: one a second, whatever the link.
    fn ask(&mut self, now: u64) -> Option<(u32, Vec<u8>)> {
        if self.may_ask > now {
            return None;
        }
        let (index, questions) = self.found.questions(now)?;
        self.may_ask = now + SEND_PAUSE;
        Some((index, records::query(&questions, &[])))
    }

    /// Forgets instances whose time is over. Returns true if there was one.
    pub fn handle_timeout(&mut self, now: u64) -> bool {
        self.found.retain(now, |_| true)
    }

    /// Returns when there is something to send or to forget, ms.
    #[must_use]
    pub fn timeout(&self) -> Option<u64> {
        if !self.goodbyes.is_empty() {
            return Some(0);
        }
        let browses = !self.browsed.is_empty();
        let of_links = self.links.values().flat_map(|on_link| {
            let answers = on_link.answers.iter().filter_map(|answer| answer.due);
            answers.chain(browses.then_some(on_link.query.0))
        });
        of_links.chain(self.found.timeout(self.may_ask)).min()
    }

    /// Returns an instance that is new, has changed, or is to be looked at again.
    pub fn next_changed(&mut self) -> Option<Seen> {
        self.found.next_changed()
    }

    /// Returns true if [`next_changed`](Self::next_changed) has one.
    #[must_use]
    pub fn has_changed(&self) -> bool {
        self.found.has_changed()
    }

    /// Returns the full name of an instance that is there no more.
    pub fn next_gone(&mut self) -> Option<String> {
        self.found.next_gone()
    }

    /// Has all instances looked at again.
    pub fn look_again(&mut self) {
        self.found.look_again();
    }

    /// Returns true if an instance with this full name is kept.
    #[must_use]
    pub fn knows(&self, name: &str) -> bool {
        self.found.contains(name)
    }

    /// Returns how many instances are kept: at most [`MAX_INSTANCES`].
    #[must_use]
    pub fn instances(&self) -> usize {
        self.found.len()
    }

    /// Returns a delay within [`DELAY`]: a step of SplitMix64, which no secret depends on.
    fn delay(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.random ^ (self.random >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        DELAY.0 + (mixed ^ (mixed >> 27)) % (DELAY.1 - DELAY.0)
    }
}

/// Returns true if the entries of a record are those of a service.
fn same_entries(said: &[(String, Vec<u8>)], own: &[(String, String)]) -> bool {
    let said = said.iter().map(|(key, value)| (key.as_str(), value.as_slice()));
    said.eq(own.iter().map(|(key, value)| (key.as_str(), value.as_bytes())))
}

#[cfg(test)]
mod tests;
