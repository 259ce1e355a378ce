//! The network between hosts: addresses, NAT boxes, conditions, partitions, and the datagrams in
//! flight.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use rand_chacha::ChaCha20Rng;
use rand_core::{Rng, SeedableRng};
use weft_contract::{Endpoint, LocalEnd, SocketId};

use crate::HostId;
use crate::datagram::{Datagram, Fate};
use crate::nat::{Nat, NatKind};

/// The index of the interface with a further address of a host.
pub(crate) const SECOND_DEVICE: u32 = 2;
/// The port of the first socket that no lane reads.
const FIRST_RAW: u16 = 50_000;

/// How the network treats datagrams. Probabilities are per mille.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conditions {
    /// One-way delay, ms.
    pub delay: u64,
    /// Maximum additional delay, random for each datagram from 0 on, ms.
    pub jitter: u64,
    /// Datagrams that are lost.
    pub loss: u32,
    /// Datagrams that are delayed by the delay once more and 1 ms, so that those behind overtake
    /// them.
    pub reorder: u32,
    /// Datagrams that are delivered twice.
    pub duplicate: u32,
    /// The largest UDP payload that passes, bytes; larger ones are dropped silently.
    pub mtu: u16,
}

impl Default for Conditions {
    fn default() -> Self {
        Self {
            delay: 10,
            jitter: 0,
            loss: 0,
            reorder: 0,
            duplicate: 0,
            mtu: u16::MAX,
        }
    }
}

type Rule = Box<dyn FnMut(u64, &Datagram) -> Fate>;

/// The attachment of a host.
struct Attachment {
    /// Its own address.
    addr: SocketAddr,
    /// Its address in the second network.
    second: Option<SocketAddr>,
    /// Its further addresses in the first network.
    aliases: Vec<SocketAddr>,
    /// Its further underlay sockets, each with its address in the first network.
    sockets: Vec<(SocketId, SocketAddr)>,
    /// The ports of its sockets that no lane reads, by their number.
    raw: Vec<u16>,
    /// The NAT boxes that it is behind, from the host outward.
    nats: Vec<Nat>,
    /// Hosts of different sides do not reach each other.
    side: u32,
}

/// The simulated network.
pub(crate) struct Network {
    pub(crate) conditions: Conditions,
    /// The conditions of the second network.
    pub(crate) second: Conditions,
    /// Conditions between two hosts, the lower number first, if they differ from the others.
    links: BTreeMap<(HostId, HostId), Conditions>,
    hosts: Vec<Attachment>,
    /// The host at an address.
    by_addr: BTreeMap<SocketAddr, HostId>,
    /// The host behind a NAT box's outer address.
    by_outer: BTreeMap<IpAddr, HostId>,
    rule: Rule,
    /// By time of arrival, then in the order of sending.
    in_flight: BTreeMap<(u64, u64), Datagram>,
    next: u64,
    rng: ChaCha20Rng,
}

impl Network {
    pub(crate) fn new(rng: ChaCha20Rng) -> Self {
        Self {
            conditions: Conditions::default(),
            second: Conditions::default(),
            links: BTreeMap::new(),
            hosts: Vec::new(),
            by_addr: BTreeMap::new(),
            by_outer: BTreeMap::new(),
            rule: Box::new(|_, _| Fate::Pass),
            in_flight: BTreeMap::new(),
            next: 0,
            rng,
        }
    }

    /// Attaches the next host.
    pub(crate) fn attach(&mut self, addr: SocketAddr) {
        self.by_addr.insert(addr, self.hosts.len());
        self.hosts.push(Attachment {
            addr,
            second: None,
            aliases: Vec::new(),
            sockets: Vec::new(),
            raw: Vec::new(),
            nats: Vec::new(),
            side: 0,
        });
    }

    /// Attaches a host to the second network as well. What it sends to an address there goes from
    /// its own address there.
    pub(crate) fn attach_second(&mut self, host: HostId, addr: SocketAddr) {
        self.hosts[host].second = Some(addr);
        self.by_addr.insert(addr, host);
    }

    /// Gives a host a further address in the first network.
    pub(crate) fn add_alias(&mut self, host: HostId, addr: SocketAddr) {
        self.hosts[host].aliases.push(addr);
        self.by_addr.insert(addr, host);
    }

    /// Takes a further address from a host.
    pub(crate) fn remove_alias(&mut self, host: HostId, addr: SocketAddr) {
        self.hosts[host].aliases.retain(|alias| *alias != addr);
        self.by_addr.remove(&addr);
    }

    /// Gives a host a further underlay socket, with an address in the first network.
    pub(crate) fn add_socket(&mut self, host: HostId, socket: SocketId, addr: SocketAddr) {
        self.hosts[host].sockets.push((socket, addr));
        self.by_addr.insert(addr, host);
    }

    /// The path on which a host receives a datagram; `home`: its first address.
    pub(crate) fn came(&self, host: HostId, datagram: &Datagram, home: IpAddr) -> Endpoint {
        let from = Endpoint::from(datagram.src);
        let mut sockets = self.hosts[host].sockets.iter();
        if let Some((socket, _)) = sockets.find(|(_, addr)| *addr == datagram.dst) {
            return socket.path(from);
        }
        let further = self.further_of(host, datagram.dst.ip());
        let (ip, device) = further.map_or((home, 1), |addr| (addr.ip(), SECOND_DEVICE));
        from.with_local(Some(LocalEnd { ip, device }))
    }

    /// The address from which a host sends on a path, if it is not its first one.
    pub(crate) fn source(&self, host: HostId, path: Endpoint) -> Option<SocketAddr> {
        let mut sockets = self.hosts[host].sockets.iter();
        let socket = sockets.find(|(socket, _)| *socket == path.socket());
        let local = || self.further_of(host, path.local()?.ip);
        socket.map(|(_, addr)| *addr).or_else(local)
    }

    /// The address of a host's ordinary socket with this IP address, beside its first one.
    fn further_of(&self, host: HostId, ip: IpAddr) -> Option<SocketAddr> {
        let attachment = &self.hosts[host];
        let mut all = attachment.second.iter().chain(&attachment.aliases);
        all.find(|addr| addr.ip() == ip).copied()
    }

    /// Whether an address is one of the second network.
    fn is_second(&self, addr: SocketAddr) -> bool {
        let host = self.by_addr.get(&addr);
        host.is_some_and(|host| self.hosts[*host].second == Some(addr))
    }

    /// Attaches a host at another address.
    pub(crate) fn move_to(&mut self, host: HostId, addr: SocketAddr) {
        let before = std::mem::replace(&mut self.hosts[host].addr, addr);
        if self.by_addr.get(&before) == Some(&host) {
            self.by_addr.remove(&before);
        }
        self.by_addr.insert(addr, host);
    }

    /// Puts a host behind a NAT box, which is behind those that the host has, with this address
    /// outside. Those of the others are private then.
    pub(crate) fn put_behind(&mut self, host: HostId, kind: NatKind, outer: IpAddr) {
        let rng = match kind {
            NatKind::SymmetricRandom => ChaCha20Rng::from_rng(&mut self.rng),
            _ => ChaCha20Rng::seed_from_u64(0),
        };
        let nats = &mut self.hosts[host].nats;
        for (level, nat) in nats.iter_mut().enumerate() {
            nat.outer = IpAddr::from([100, 64 + level as u8, 0, 1]);
        }
        nats.push(Nat::new(kind, outer, rng));
        self.by_outer.insert(outer, host);
    }

    /// Restarts the NAT boxes of a host, the last of which has this address outside from now on.
    pub(crate) fn reboot(&mut self, host: HostId, outer: IpAddr) {
        self.by_outer.retain(|_, behind| *behind != host);
        let nats = &mut self.hosts[host].nats;
        nats.iter_mut().for_each(Nat::reboot);
        if let Some(last) = nats.last_mut() {
            last.outer = outer;
            self.by_outer.insert(outer, host);
        }
    }

    /// Lets the one NAT box of a host map a port to the host's ordinary socket.
    pub(crate) fn grant(&mut self, host: HostId) -> Option<SocketAddr> {
        let attachment = &mut self.hosts[host];
        match attachment.nats.as_mut_slice() {
            [nat] => Some(nat.grant(attachment.addr)),
            _ => None,
        }
    }

    /// Opens sockets of a host that no lane reads, in the place of those that are open.
    pub(crate) fn open_raw(&mut self, host: HostId, count: u16) {
        let first = self.close_raw(host).map_or(FIRST_RAW, |last| last + 1);
        self.hosts[host].raw = (first..first + count).collect();
        for number in 0..count {
            if let Some(addr) = self.raw(host, number) {
                self.by_addr.insert(addr, host);
            }
        }
    }

    /// Closes them. Returns the last port of them.
    pub(crate) fn close_raw(&mut self, host: HostId) -> Option<u16> {
        let ip = self.hosts[host].addr.ip();
        let ports = std::mem::take(&mut self.hosts[host].raw);
        for port in &ports {
            self.by_addr.remove(&SocketAddr::new(ip, *port));
        }
        ports.last().copied()
    }

    /// Gives one of them to the lanes.
    pub(crate) fn adopt_raw(&mut self, host: HostId, number: u16, socket: SocketId) {
        if let Some(addr) = self.raw(host, number) {
            self.close_raw(host);
            self.add_socket(host, socket, addr);
        }
    }

    /// The address of one of them.
    pub(crate) fn raw(&self, host: HostId, number: u16) -> Option<SocketAddr> {
        let attachment = &self.hosts[host];
        let port = attachment.raw.get(usize::from(number))?;
        Some(SocketAddr::new(attachment.addr.ip(), *port))
    }

    /// The number of the one at an address.
    pub(crate) fn raw_at(&self, host: HostId, addr: SocketAddr) -> Option<u16> {
        let ports = &self.hosts[host].raw;
        let number = ports.iter().position(|port| *port == addr.port())?;
        u16::try_from(number).ok()
    }

    pub(crate) fn set_rule(&mut self, rule: Rule) {
        self.rule = rule;
    }

    /// Sets the conditions between two hosts, in both directions; `None`: the general ones.
    pub(crate) fn set_link(&mut self, a: HostId, b: HostId, conditions: Option<Conditions>) {
        let key = (a.min(b), a.max(b));
        match conditions {
            Some(conditions) => drop(self.links.insert(key, conditions)),
            None => drop(self.links.remove(&key)),
        }
    }

    /// Whether two hosts are on one side, and not cut off from each other.
    pub(crate) fn together(&self, a: HostId, b: HostId) -> bool {
        let cut = self
            .links
            .get(&(a.min(b), a.max(b)))
            .is_some_and(|link| link.loss >= 1_000);
        self.hosts[a].side == self.hosts[b].side && !cut
    }

    /// Resets all links to the general conditions.
    pub(crate) fn mend_all(&mut self) {
        self.links.clear();
    }

    /// Moves a host to a side of a partition; initially all are on side 0.
    pub(crate) fn set_side(&mut self, host: HostId, side: u32) {
        self.hosts[host].side = side;
    }

    /// When the next datagram arrives.
    pub(crate) fn next_arrival(&self) -> Option<u64> {
        self.in_flight.first_key_value().map(|((at, _), _)| *at)
    }

    /// The next datagram that has arrived by `now`, and the host that receives it, if any.
    pub(crate) fn pop_arrived(&mut self, now: u64) -> Option<(Option<HostId>, Datagram)> {
        let entry = self.in_flight.first_entry().filter(|e| e.key().0 <= now)?;
        let mut datagram = entry.remove();
        let to = self.find(datagram.dst).filter(|to| {
            let from = self.hosts.get(datagram.from);
            from.is_none_or(|from| from.side == self.hosts[*to].side)
        });
        let inner = to.and_then(|to| self.inward(now, to, datagram.src, datagram.dst));
        datagram.dst = inner.unwrap_or(datagram.dst);
        Some((to.filter(|_| inner.is_some()), datagram))
    }

    /// The address of a host that a datagram reaches, if its NAT boxes let it in.
    fn inward(&mut self, now: u64, host: HostId, src: SocketAddr, dst: SocketAddr) -> Option<SocketAddr> {
        let mut boxes = self.hosts[host].nats.iter_mut().rev();
        if boxes.len() == 0 {
            return Some(dst);
        }
        let inner = boxes.try_fold(dst, |at, nat| nat.inbound(now, src, at.port()))?;
        (self.by_addr.get(&inner) == Some(&host)).then_some(inner)
    }

    /// Sends a datagram. Its source is that of the host until its NAT box has translated it.
    pub(crate) fn send(&mut self, now: u64, mut datagram: Datagram) {
        let second = self.is_second(datagram.dst);
        if let Some(host) = self.hosts.get_mut(datagram.from) {
            if let Some(own) = host.second.filter(|_| second) {
                datagram.src = own;
            } else {
                let boxes = host.nats.iter_mut();
                datagram.src = boxes.fold(datagram.src, |src, nat| nat.outbound(now, src, datagram.dst));
            }
        }
        let conditions = self.conditions_to(&datagram);
        let too_large = datagram.bytes.len() > usize::from(conditions.mtu);
        if (self.rule)(now, &datagram) == Fate::Drop || too_large || self.chance(conditions.loss) {
            return;
        }
        if self.chance(conditions.duplicate) {
            self.launch(now, conditions, datagram.clone());
        }
        self.launch(now, conditions, datagram);
    }

    fn launch(&mut self, now: u64, conditions: Conditions, datagram: Datagram) {
        let mut delay = conditions.delay;
        if conditions.jitter > 0 {
            delay += u64::from(self.rng.next_u32()) % (conditions.jitter + 1);
        }
        if self.chance(conditions.reorder) {
            delay += conditions.delay + 1;
        }
        self.in_flight.insert((now + delay, self.next), datagram);
        self.next += 1;
    }

    fn conditions_to(&self, datagram: &Datagram) -> Conditions {
        if self.is_second(datagram.dst) {
            return self.second;
        }
        if self.links.is_empty() {
            return self.conditions;
        }
        let link = self.find(datagram.dst).and_then(|to| {
            let key = (to.min(datagram.from), to.max(datagram.from));
            self.links.get(&key)
        });
        link.copied().unwrap_or(self.conditions)
    }

    fn find(&self, dst: SocketAddr) -> Option<HostId> {
        // An address behind a NAT box belongs to no host on the network.
        let direct = self.by_addr.get(&dst).filter(|to| self.hosts[**to].nats.is_empty());
        direct.or_else(|| self.by_outer.get(&dst.ip())).copied()
    }

    fn chance(&mut self, per_mille: u32) -> bool {
        per_mille > 0 && self.rng.next_u32() % 1000 < per_mille
    }
}
