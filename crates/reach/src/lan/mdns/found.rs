//! The instances of services that other hosts announce.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use simple_dns::TYPE;

use super::records::{Data, Record, socket_address};
use super::{Link, Seen};

/// Instances that are kept, at most. A further one takes the place of the one that was heard of least recently, an
/// incomplete one first.
pub const MAX_INSTANCES: usize = 256;
/// Addresses of one instance that are kept, at most.
pub const MAX_ADDRESSES: usize = 16;
/// The longest life of an instance of which nothing more is heard, in ms, whatever its records say (RFC 6762, section
/// 10: 75 minutes).
pub const LONGEST_LIFE: u64 = 4_500_000;
/// How long an instance lives that was withdrawn, in ms: other records may say that it is there (RFC 6762, section
/// 10.1).
pub const WITHDRAWN_LIFE: u64 = 1_000;
/// How often an instance is asked for that is not complete, at most.
pub const MAX_ASKED: u8 = 3;
/// The pause before an incomplete instance is asked for, in ms. It doubles each time.
pub const ASK_PAUSE: u64 = 1_000;
/// How long an address stays when others replace it, in ms: they may be of two datagrams (RFC 6762, section 10.2).
const SAME_ANSWER: u64 = 1_000;
/// Names that one query asks for, at most.
const NAMES_OF_A_QUERY: usize = 16;

/// The instances.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// By their full names.
    instances: BTreeMap<String, Instance>,
    /// The number of the latest change.
    changes: u64,
    /// The full names of those that are gone since they were asked for.
    gone: BTreeSet<String>,
}

#[derive(Debug)]
struct Instance {
    service: String,
    /// The link that it was heard on last.
    link: u32,
    /// When it was heard of last, ms.
    heard: u64,
    /// When it is gone, ms.
    until: u64,
    /// Port and host.
    server: Option<(u16, String)>,
    entries: Option<Vec<(String, Vec<u8>)>>,
    addresses: Vec<Learnt>,
    /// How often it was asked for, and when it is next, ms.
    asked: (u8, u64),
    /// The number of the change since which it is to be looked at: the first one goes first.
    changed: Option<u64>,
}

/// An address, and the link and time at which it was learnt.
#[derive(Debug)]
struct Learnt {
    ip: IpAddr,
    link: u32,
    at: u64,
}

impl Instance {
    fn is_complete(&self) -> bool {
        self.server.is_some() && self.entries.is_some() && !self.addresses.is_empty()
    }

    /// Returns true if it is asked for at some time.
    fn is_asked_for(&self) -> bool {
        !self.is_complete() && self.asked.0 < MAX_ASKED
    }

    fn is_at(&self, host: &str) -> bool {
        self.server.as_ref().is_some_and(|(_, of)| of == host)
    }

    fn live(&mut self, now: u64, ttl: u32) {
        let life = u64::from(ttl) * 1_000;
        self.heard = now;
        self.until = match ttl {
            0 => self.until.min(now + WITHDRAWN_LIFE),
            _ => self.until.max(now + life.min(LONGEST_LIFE)),
        };
    }

    /// Takes the addresses of its host that a datagram has. Returns true if others are known now.
    fn learn(&mut self, now: u64, link: u32, addresses: &[(IpAddr, u32, bool)]) -> bool {
        let before = self.addresses.len();
        for ipv6 in [false, true] {
            let of_version = || addresses.iter().filter(|(ip, ..)| ip.is_ipv6() == ipv6);
            let replaces = of_version().any(|(.., replaces)| *replaces);
            self.addresses.retain(|known| {
                if known.link != link || known.ip.is_ipv6() != ipv6 {
                    return true;
                }
                match of_version().find(|(ip, ..)| *ip == known.ip) {
                    Some((_, ttl, _)) => *ttl > 0,
                    None => !replaces || known.at + SAME_ANSWER > now,
                }
            });
        }
        let mut differs = self.addresses.len() < before;
        for (ip, ..) in addresses.iter().filter(|(_, ttl, _)| *ttl > 0) {
            let same = |known: &&mut Learnt| known.ip == *ip && known.link == link;
            if let Some(known) = self.addresses.iter_mut().find(same) {
                known.at = now;
            } else if self.addresses.len() < MAX_ADDRESSES {
                self.addresses.push(Learnt { ip: *ip, link, at: now });
                differs = true;
            }
        }
        differs
    }

    /// Returns the addresses at which it is, in order.
    fn at(&self) -> BTreeSet<SocketAddr> {
        let port = self.server.as_ref().map_or(0, |(port, _)| *port);
        let all = self.addresses.iter();
        all.map(|known| socket_address(known.ip, port, known.link)).collect()
    }
}

impl Found {
    /// Takes the records of a datagram that came by `link`. `browsed` are the services that are looked for, `own` the
    /// names of those that are announced here. Returns true if something is to be looked at.
    pub(super) fn learn(
        &mut self,
        now: u64,
        link: &Link,
        records: &[Record],
        browsed: &[&str],
        own: impl Fn(&str) -> bool,
    ) -> bool {
        let index = link.index;
        for record in records {
            if let Data::Pointer(target) = &record.data
                && browsed.contains(&record.name.as_str())
                && is_instance(target, &record.name)
                && !own(target)
            {
                self.point(now, index, target, record);
            }
        }
        let mut addresses: BTreeMap<&str, Vec<(IpAddr, u32, bool)>> = BTreeMap::new();
        for record in records {
            match &record.data {
                // Those beyond are of no use, and each costs a look at all instances of the host.
                Data::Address(ip) if link.has(*ip) => {
                    let of_host = addresses.entry(&record.name).or_default();
                    if of_host.len() < MAX_ADDRESSES {
                        of_host.push((*ip, record.ttl, record.replaces));
                    }
                }
                Data::Pointer(_) | Data::Address(_) => {}
                Data::Server { .. } | Data::Text(_) => self.describe(now, index, record),
            }
        }
        for (host, addresses) in addresses {
            for instance in self.instances.values_mut().filter(|instance| instance.is_at(host)) {
                if instance.learn(now, index, &addresses) {
                    changed(instance, &mut self.changes);
                }
            }
        }
        self.has_changed()
    }

    /// Takes a pointer of a service to an instance.
    fn point(&mut self, now: u64, link: u32, name: &str, record: &Record) {
        if !self.instances.contains_key(name) {
            if record.ttl == 0 {
                return;
            }
            self.make_room();
            self.gone.remove(name);
            let instance = Instance {
                service: record.name.clone(),
                link,
                heard: now,
                until: now,
                server: None,
                entries: None,
                addresses: Vec::new(),
                asked: (0, now + ASK_PAUSE),
                changed: None,
            };
            self.instances.insert(name.to_owned(), instance);
        }
        if let Some(instance) = self.instances.get_mut(name) {
            instance.link = link;
            instance.live(now, record.ttl);
        }
    }

    /// Takes what a record says of an instance that is known.
    fn describe(&mut self, now: u64, link: u32, record: &Record) {
        let Some(instance) = self.instances.get_mut(&record.name) else {
            return;
        };
        instance.live(now, record.ttl);
        if record.ttl == 0 {
            return;
        }
        match &record.data {
            Data::Server { port, host } => {
                let server = Some((*port, host.clone()));
                let moved = instance.server.as_ref().is_some_and(|(_, of)| of != host);
                if moved {
                    instance.addresses.retain(|known| known.link != link);
                }
                if instance.server != server {
                    changed(instance, &mut self.changes);
                }
                instance.server = server;
            }
            Data::Text(entries) => {
                if instance.entries.as_ref() != Some(entries) {
                    changed(instance, &mut self.changes);
                }
                instance.entries = Some(entries.clone());
            }
            Data::Pointer(_) | Data::Address(_) => {}
        }
    }

    fn make_room(&mut self) {
        if self.instances.len() < MAX_INSTANCES {
            return;
        }
        let all = self.instances.iter();
        let last = all.min_by_key(|(_, instance)| (instance.is_complete(), instance.heard));
        // The addresses that it was seen at stay known to its reader: it is not gone.
        if let Some(name) = last.map(|(name, _)| name.clone()) {
            self.instances.remove(&name);
        }
    }

    /// Forgets the instances for which `keep` is false, and those that are over. Returns true if there was one.
    pub(super) fn retain(&mut self, now: u64, keep: impl Fn(&str) -> bool) -> bool {
        let before = self.gone.len();
        let gone = &mut self.gone;
        self.instances.retain(|name, instance| {
            let stays = instance.until > now && keep(&instance.service);
            if !stays && gone.len() < MAX_INSTANCES {
                gone.insert(name.clone());
            }
            stays
        });
        self.gone.len() > before
    }

    /// Forgets what was learnt on links that are there no more, or that have other subnets now.
    pub(super) fn set_links(&mut self, links: &[Link]) {
        let is_there = |index: u32| links.iter().any(|link| link.index == index);
        let has = |known: &Learnt| links.iter().any(|link| link.index == known.link && link.has(known.ip));
        for instance in self.instances.values_mut() {
            let before = instance.addresses.len();
            instance.addresses.retain(has);
            if instance.addresses.len() < before {
                changed(instance, &mut self.changes);
            }
            // It is asked for where it still is.
            if let Some(known) = instance.addresses.first() {
                instance.link = if is_there(instance.link) {
                    instance.link
                } else {
                    known.link
                };
            } else if before > 0 || !is_there(instance.link) {
                instance.until = 0;
            }
        }
    }

    /// Returns the complete instance that is to be looked at for the longest time.
    pub(super) fn next_changed(&mut self) -> Option<Seen> {
        let complete = self.instances.iter_mut().filter(|(_, instance)| instance.is_complete());
        let changed = complete.filter(|(_, instance)| instance.changed.is_some());
        let (name, instance) = changed.min_by_key(|(_, instance)| instance.changed)?;
        instance.changed = None;
        let (port, _) = instance.server.clone()?;
        Some(Seen {
            service: instance.service.clone(),
            name: name.clone(),
            port,
            addresses: instance.at().into_iter().collect(),
            entries: instance.entries.clone()?,
        })
    }

    /// Returns true if [`next_changed`](Self::next_changed) has one.
    pub(super) fn has_changed(&self) -> bool {
        let mut all = self.instances.values();
        all.any(|instance| instance.changed.is_some() && instance.is_complete())
    }

    /// Returns true if an instance with this full name is kept.
    pub(super) fn contains(&self, name: &str) -> bool {
        self.instances.contains_key(name)
    }

    /// Has all instances looked at again.
    pub(super) fn look_again(&mut self) {
        for instance in self.instances.values_mut() {
            changed(instance, &mut self.changes);
        }
    }

    /// Returns the full name of an instance that is gone.
    pub(super) fn next_gone(&mut self) -> Option<String> {
        self.gone.pop_first()
    }

    /// Returns when an instance is over, or one is to be asked for, ms.
    pub(super) fn timeout(&self, may_ask: u64) -> Option<u64> {
        let ends = self.instances.values().map(|instance| instance.until);
        let asks = self.instances.values().filter(|instance| instance.is_asked_for());
        ends.chain(asks.map(|instance| instance.asked.1.max(may_ask))).min()
    }

    /// Returns the names and types to ask for, and the link of them, and counts them as asked for. The instance that
    /// waits for the longest time decides which link it is.
    pub(super) fn questions(&mut self, now: u64) -> Option<(u32, Vec<(String, TYPE)>)> {
        let is_due = |of: &Instance| of.is_asked_for() && of.asked.1 <= now;
        let due = self.instances.values().filter(|instance| is_due(instance));
        let link = due.min_by_key(|instance| instance.asked.1)?.link;
        let mut questions = Vec::new();
        for (name, instance) in &mut self.instances {
            if !is_due(instance) || instance.link != link || questions.len() + 2 > NAMES_OF_A_QUERY {
                continue;
            }
            let (times, _) = instance.asked;
            instance.asked = (times + 1, now + (ASK_PAUSE << (times + 1)));
            match &instance.server {
                None => questions.push((name.clone(), TYPE::SRV)),
                Some((_, host)) if instance.addresses.is_empty() => {
                    questions.extend([TYPE::A, TYPE::AAAA].map(|kind| (host.clone(), kind)));
                }
                Some(_) => {}
            }
            if instance.entries.is_none() {
                questions.push((name.clone(), TYPE::TXT));
            }
        }
        Some((link, questions))
    }

    /// Returns the instances of a service that live for more than half of the longest life: service, name, and the
    /// seconds that are left. They need not answer (RFC 6762, section 7.1).
    pub(super) fn known<'a>(&'a self, now: u64, service: &'a str) -> impl Iterator<Item = (&'a str, &'a str, u32)> {
        let fresh = move |instance: &&Instance| instance.until > now + LONGEST_LIFE / 2 && instance.is_complete();
        let of_service = self
            .instances
            .iter()
            .filter(move |(_, instance)| instance.service == service);
        of_service
            .filter(move |(_, instance)| fresh(instance))
            .map(move |(name, instance)| {
                let left = (instance.until - now) / 1_000;
                (service, name.as_str(), u32::try_from(left).unwrap_or(u32::MAX))
            })
    }

    /// Returns how many instances are kept.
    pub(super) fn len(&self) -> usize {
        self.instances.len()
    }
}

/// Has an instance looked at, in its turn.
fn changed(instance: &mut Instance, changes: &mut u64) {
    *changes += 1;
    instance.changed.get_or_insert(*changes);
}

/// Returns true if a name is that of an instance of a service: one label more.
fn is_instance(name: &str, service: &str) -> bool {
    let label = name.strip_suffix(service).and_then(|rest| rest.strip_suffix('.'));
    label.is_some_and(|label| !label.is_empty() && !label.contains('.'))
}
