//! Programs that send all the time, in every way that programs have: on a laptop, in a container at its bridge, and
//! on its LAN, whose hosts want answers of it. Each kind of packet is told by what is seen of it on the LAN.

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use simple_dns::TYPE;
use socket2::{Domain, InterfaceIndexOrAddress, Protocol, Socket, Type};
use weft_lab::host::Host;

use super::internet::LAPTOP;
use super::names::request;
use crate::common::{PATIENCE, wait_until};

/// The pause between two rounds of a sender.
const PAUSE: Duration = Duration::from_millis(10);
/// Connections of a sender that stay under way: the system sends again for them after a second.
const KEPT: usize = 800;
/// Rounds between two joins of a group, and between a join and its end: the system reports what has lasted for
/// a while.
const REPORT: u64 = 40;
const HALF: u64 = REPORT / 2;
/// The ports that a kind is sent from: an exit keeps a flow for each, and takes 16,384 of a member.
const PORTS: u16 = 128;
/// The first of all.
const FIRST_PORT: u16 = 16_384;
/// Of so many rounds, one sends from ports that nothing was sent from before.
const FRESH: u64 = 16;
/// A number for experiments (RFC 3692).
const EXPERIMENT: u8 = 253;
/// Protocols, by their numbers.
const ICMP: u8 = 1;
const IGMP: u8 = 2;
const TCP: u8 = 6;
const UDP: u8 = 17;
/// The header of a fragment, in IPv6.
const FRAGMENT: u8 = 44;
const ICMP6: u8 = 58;

/// Where a sender runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum At {
    Laptop,
    Container,
    Lan,
}

/// What is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Udp,
    /// From ports of their own, without which no server answers.
    Dhcp,
    /// A query by UDP.
    Name,
    /// A datagram that takes several packets.
    Long,
    /// A packet of no protocol that the system knows.
    Raw,
    Echo,
    /// The begin of a connection.
    Tcp,
    /// The system reports a multicast group of IPv4 to the LAN (IGMP).
    Group,
}

/// What the socket is bound to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    Nothing,
    /// The interface of the LAN (`SO_BINDTODEVICE`).
    Device,
    /// The address in the LAN.
    Address,
}

use By::{Address, Device, Nothing};
use What::{Dhcp, Echo, Group, Long, Name, Raw, Tcp, Udp};

/// One kind of packet. No two have the same destination, port and protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Kind {
    pub(super) at: At,
    what: What,
    by: By,
    to: &'static str,
}

const fn laptop(what: What, by: By, to: &'static str) -> Kind {
    let at = At::Laptop;
    Kind { at, what, by, to }
}

const fn container(what: What, to: &'static str) -> Kind {
    let (at, by) = (At::Container, Nothing);
    Kind { at, what, by, to }
}

const fn lan(what: What, to: &'static str) -> Kind {
    let (at, by) = (At::Lan, Nothing);
    Kind { at, what, by, to }
}

/// All kinds. `192.168.1.54` and `192.168.1.55` are further addresses of the LAN's resolver.
pub(super) const KINDS: [Kind; 56] = [
    laptop(Udp, Nothing, "192.0.2.80:41001"),
    laptop(Udp, Device, "192.0.2.80:41002"),
    laptop(Udp, Address, "192.0.2.80:41003"),
    laptop(Udp, Nothing, "192.168.1.1:41001"),
    laptop(Udp, Device, "192.168.1.1:41002"),
    laptop(Udp, Address, "192.168.1.1:41003"),
    laptop(Udp, Device, "255.255.255.255:41001"),
    laptop(Udp, Nothing, "192.168.1.255:41001"),
    laptop(Udp, Device, "192.168.1.255:41002"),
    laptop(Udp, Nothing, "224.0.0.251:5353"),
    laptop(Udp, Device, "239.1.2.3:41001"),
    laptop(Group, Device, "239.1.2.4:0"),
    laptop(Name, Nothing, "192.168.1.53:53"),
    laptop(Name, Device, "192.168.1.54:53"),
    laptop(Name, Address, "192.168.1.1:53"),
    laptop(Name, Nothing, "192.0.2.80:53"),
    laptop(Tcp, Nothing, "192.168.1.53:53"),
    laptop(Tcp, Device, "192.168.1.54:53"),
    laptop(Tcp, Nothing, "192.0.2.80:53"),
    laptop(Tcp, Nothing, "192.0.2.80:41001"),
    laptop(Tcp, Device, "192.0.2.80:41002"),
    laptop(Tcp, Address, "192.0.2.80:41003"),
    laptop(Tcp, Nothing, "192.168.1.1:41001"),
    laptop(Tcp, Device, "192.168.1.1:41002"),
    laptop(Long, Nothing, "192.0.2.80:41004"),
    laptop(Long, Device, "192.168.1.1:41004"),
    laptop(Raw, Nothing, "192.0.2.81:0"),
    laptop(Raw, Device, "192.0.2.82:0"),
    laptop(Echo, Nothing, "192.0.2.80:0"),
    laptop(Echo, Address, "192.168.1.53:0"),
    laptop(Udp, Nothing, "[2001:db8:2::80]:41001"),
    laptop(Udp, Device, "[2001:db8:2::80]:41002"),
    laptop(Udp, Address, "[2001:db8:2::80]:41003"),
    laptop(Udp, Nothing, "[2001:db8:1::1]:41001"),
    laptop(Udp, Device, "[ff02::fb]:5353"),
    laptop(Name, Nothing, "[2001:db8:1::1]:53"),
    laptop(Tcp, Nothing, "[2001:db8:2::80]:41001"),
    laptop(Tcp, Device, "[2001:db8:1::1]:41001"),
    laptop(Long, Nothing, "[2001:db8:2::80]:41004"),
    laptop(Raw, Device, "[2001:db8:2::81]:0"),
    laptop(Echo, Nothing, "[2001:db8:2::80]:0"),
    container(Udp, "192.0.2.80:42001"),
    container(Udp, "192.168.1.1:42001"),
    container(Name, "192.168.1.55:53"),
    container(Name, "192.0.2.83:53"),
    container(Tcp, "192.168.1.55:53"),
    container(Tcp, "192.0.2.80:42001"),
    container(Tcp, "192.168.1.1:42001"),
    container(Long, "192.0.2.80:42004"),
    container(Raw, "192.0.2.83:0"),
    container(Udp, "[2001:db8:2::80]:42001"),
    container(Tcp, "[2001:db8:2::80]:42001"),
    lan(Udp, "192.168.1.10:43001"),
    lan(Tcp, "192.168.1.10:43002"),
    lan(Echo, "192.168.1.10:0"),
    lan(Echo, "[2001:db8:1::10]:0"),
];

/// What goes out in any case.
const LISTED: [Kind; 2] = [
    laptop(Dhcp, Device, "255.255.255.255:67"),
    laptop(Dhcp, Device, "[ff02::1:2]:547"),
];

/// What a packet is told by: its protocol, its destination, and a port there or the type of a message of ICMP.
type Mark = (u8, IpAddr, u16);

impl Kind {
    fn to(self) -> SocketAddr {
        self.to.parse().unwrap()
    }

    /// What the LAN sees of it.
    fn mark(self) -> Mark {
        let to = self.to();
        let of_icmp = |ipv4, ipv6| match to {
            SocketAddr::V4(_) => (ICMP, ipv4),
            SocketAddr::V6(_) => (ICMP6, ipv6),
        };
        if self.at == At::Lan {
            // The answer of the laptop to the gateway.
            let ((protocol, number), home) = match self.what {
                Tcp => ((TCP, to.port()), "192.168.1.1"),
                Echo if to.is_ipv6() => (of_icmp(0, 129), "2001:db8:1::1"),
                Echo => (of_icmp(0, 129), "192.168.1.1"),
                _ => (of_icmp(3, 1), "192.168.1.1"),
            };
            return (protocol, home.parse().unwrap(), number);
        }
        match self.what {
            Udp | Dhcp | Name | Long => (UDP, to.ip(), to.port()),
            Tcp => (TCP, to.ip(), to.port()),
            Raw => (EXPERIMENT, to.ip(), 0),
            Echo => {
                let (protocol, number) = of_icmp(8, 128);
                (protocol, to.ip(), number)
            }
            Group => (IGMP, Ipv4Addr::new(224, 0, 0, 22).into(), 0),
        }
    }

    fn socket(self, round: u64) -> io::Result<Socket> {
        let to = self.to();
        let (kind, protocol) = match self.what {
            Tcp => (Type::STREAM, Protocol::TCP),
            Raw => (Type::RAW, Protocol::from(i32::from(EXPERIMENT))),
            Echo if to.is_ipv6() => (Type::RAW, Protocol::ICMPV6),
            Echo => (Type::RAW, Protocol::ICMPV4),
            _ => (Type::DGRAM, Protocol::UDP),
        };
        let socket = Socket::new(Domain::for_address(to), kind, Some(protocol))?;
        socket.set_nonblocking(true)?;
        if kind == Type::DGRAM {
            socket.set_broadcast(true)?;
        }
        if self.by == Device {
            socket.bind_device(Some(b"eth0"))?;
        }
        if let Some(from) = self.from(round) {
            socket.set_reuse_address(true)?;
            socket.bind(&from.into())?;
        }
        Ok(socket)
    }

    /// The address and port that its socket is bound to in a round, if it is.
    fn from(self, round: u64) -> Option<SocketAddr> {
        let ipv6 = self.to().is_ipv6();
        let any: IpAddr = if ipv6 { [0_u16; 8].into() } else { [0_u8; 4].into() };
        let own = if ipv6 { "2001:db8:1::10" } else { LAPTOP };
        let address = match (self.at, self.by) {
            (At::Laptop, Address) => own.parse().unwrap(),
            _ => any,
        };
        let port = match self.what {
            Tcp if self.at == At::Lan => 43_002,
            Dhcp if ipv6 => 546,
            Dhcp => 68,
            Raw | Echo | Group => 0,
            _ if round.is_multiple_of(FRESH) => 0,
            _ => {
                let place = KINDS.into_iter().position(|kind| kind == self)?;
                FIRST_PORT + (place as u16) * PORTS + (round % u64::from(PORTS)) as u16
            }
        };
        Some(SocketAddr::new(address, port))
    }

    fn content(self) -> Vec<u8> {
        match self.what {
            Name => request("who.asks.example", TYPE::A),
            Long => vec![b'x'; 3000],
            // The system sets the checksum of IPv6.
            Echo if self.to().is_ipv6() => vec![128, 0, 0, 0, 0, 1, 0, 1],
            Echo => vec![8, 0, 0xf7, 0xfd, 0, 1, 0, 1],
            _ => b"what others may not see".to_vec(),
        }
    }

    /// Sends once. A socket that is to stay for a while is returned.
    fn send(self, round: u64) -> io::Result<Option<Socket>> {
        let (socket, to) = (self.socket(round)?, self.to());
        match (self.what, to.ip()) {
            (Tcp, _) => {
                // It is under way.
                let _ = socket.connect(&to.into());
                return Ok(Some(socket));
            }
            (Group, IpAddr::V4(group)) => {
                let eth0 = InterfaceIndexOrAddress::Address(LAPTOP.parse().unwrap());
                socket.join_multicast_v4_n(&group, &eth0)?;
                return Ok(Some(socket));
            }
            _ => {
                socket.send_to(&self.content(), &to.into())?;
            }
        }
        Ok(None)
    }
}

/// What a frame of Ethernet in hexadecimal digits is told by.
fn mark(frame: &str) -> Option<Mark> {
    let byte = |at: usize| u8::from_str_radix(frame.get(2 * at..2 * at + 2)?, 16).ok();
    let number = |at: usize| Some(u16::from_be_bytes([byte(at)?, byte(at + 1)?]));
    let (protocol, to, content): (u8, IpAddr, usize) = match number(12)? {
        0x0800 => {
            let to = [byte(30)?, byte(31)?, byte(32)?, byte(33)?];
            let first = number(20)? & 0x1fff == 0;
            (byte(23)?, to.into(), if first { 34 } else { usize::MAX / 4 })
        }
        0x86dd => {
            let mut to = [0; 16];
            for (at, byte_of) in to.iter_mut().enumerate() {
                *byte_of = byte(38 + at)?;
            }
            match byte(20)? {
                FRAGMENT if number(56)? >> 3 == 0 => (byte(54)?, to.into(), 62),
                next => (next, to.into(), 54),
            }
        }
        _ => return None,
    };
    let number = match protocol {
        TCP | UDP => number(content + 2)?,
        ICMP | ICMP6 => byte(content)?.into(),
        _ => 0,
    };
    Some((protocol, to, number))
}

/// The kind that a frame is of, in hexadecimal digits; `None` for a later fragment, and what no sender has sent.
pub(super) fn kind(frame: &str) -> Option<Kind> {
    let mark = mark(frame)?;
    KINDS.into_iter().find(|kind| kind.mark() == mark)
}

/// How many frames there are of each kind, and one of each.
pub(super) fn counted(frames: &[String]) -> Vec<String> {
    let mut counts: Vec<(String, usize, &String)> = Vec::new();
    for frame in frames {
        let name = kind(frame).map_or_else(|| format!("no sender's: {:?}", mark(frame)), |kind| format!("{kind:?}"));
        match counts.iter_mut().find(|(known, ..)| *known == name) {
            Some((_, count, _)) => *count += 1,
            None => counts.push((name, 1, frame)),
        }
    }
    let lines = counts.into_iter();
    lines
        .map(|(name, count, frame)| format!("{count} of {name}: {frame}"))
        .collect()
}

/// Senders of all kinds, until it is dropped.
pub(super) struct Senders {
    stop: Arc<AtomicBool>,
    rounds: Vec<Arc<AtomicU64>>,
    threads: Vec<JoinHandle<()>>,
}

impl Senders {
    /// Starts those of each place at the host that has it.
    pub(super) fn start(hosts: [(At, &Host); 3]) -> Self {
        let mut senders = Self {
            stop: Arc::default(),
            rounds: Vec::new(),
            threads: Vec::new(),
        };
        for (at, host) in hosts {
            let (host, stop, rounds) = (host.clone(), senders.stop.clone(), Arc::<AtomicU64>::default());
            senders.rounds.push(rounds.clone());
            senders.threads.push(std::thread::spawn(move || {
                host.run(|| send(at, &stop, &rounds)).unwrap();
            }));
        }
        senders
    }

    /// Waits until each sender has begun and ended `count` rounds.
    pub(super) fn pass(&self, count: u64) {
        let begin: Vec<u64> = self
            .rounds
            .iter()
            .map(|rounds| rounds.load(Ordering::Relaxed))
            .collect();
        let passed = |(rounds, begin): (&Arc<AtomicU64>, &u64)| rounds.load(Ordering::Relaxed) > begin + count;
        wait_until(PATIENCE, "the senders send", || {
            self.rounds.iter().zip(&begin).all(passed)
        });
    }

    /// The rounds of all senders so far.
    pub(super) fn rounds(&self) -> u64 {
        self.rounds.iter().map(|rounds| rounds.load(Ordering::Relaxed)).sum()
    }
}

impl Drop for Senders {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Sends one packet of each kind again and again: from a new socket, and from one that was connected at the begin.
fn send(at: At, stop: &AtomicBool, rounds: &AtomicU64) {
    let kinds: Vec<Kind> = KINDS.into_iter().chain(LISTED).filter(|kind| kind.at == at).collect();
    let connected: Vec<(Kind, Socket)> = kinds
        .iter()
        .filter(|kind| kind.what == Udp)
        .filter_map(|kind| {
            let socket = kind.socket(0).ok()?;
            socket.connect(&kind.to().into()).ok()?;
            Some((*kind, socket))
        })
        .collect();
    let mut under_way = VecDeque::new();
    let mut joined: Option<Socket> = None;
    for round in 0_u64.. {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        for kind in &kinds {
            // It may be refused, and the interface may be away.
            let send = || kind.send(round).ok().flatten();
            match (kind.what, round % REPORT) {
                (Group, 0) => joined = send(),
                (Group, HALF) => drop(joined.take()),
                (Group, _) => {}
                _ => under_way.extend(send()),
            }
        }
        for (kind, socket) in &connected {
            let _ = socket.send(&kind.content());
        }
        let over = under_way.len().saturating_sub(KEPT);
        drop(under_way.drain(..over));
        rounds.fetch_add(1, Ordering::Relaxed);
        std::thread::sleep(PAUSE);
    }
}
