//! The sockets of mDNS (RFC 6762). The state machine is [`weft_reach::lan::mdns`].
//!
//! Each link has its own sockets, bound to its interface and to the multicast group: what arrives is known to be of
//! the link, and other responders of the host keep the unicast datagrams that are theirs.
//!
//! Never here: what a datagram says, and what follows from it.

use std::future::poll_fn;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::task::{Context, Poll};
use std::time::Duration;

use socket2::{Domain, InterfaceIndexOrAddress, Protocol, SockRef, Socket, Type};
use tokio::io::ReadBuf;
use tokio::net::UdpSocket;
use weft_os::clock::boottime_ms;
use weft_os::socket::bind_to_interface;
use weft_reach::lan::mdns::{self, Link, MAX_DATAGRAM, PORT, Seen, Service};

/// The groups of mDNS (RFC 6762, section 3).
const GROUP_IPV4: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 251);
const GROUP_IPV6: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0xfb);
/// The hop limit of mDNS (RFC 6762, section 11).
const HOPS: u32 = 255;
/// The longest wait between two looks at the state, in ms.
const LONGEST_WAIT: u64 = 60_000;

/// What announces services and looks for them.
pub struct Mdns {
    state: mdns::Mdns,
    sockets: Vec<OnLink>,
}

/// A socket of a link.
struct OnLink {
    link: u32,
    name: String,
    socket: UdpSocket,
    group: SocketAddr,
}

impl Mdns {
    /// Makes one that has no link. `host` is the name of the host that is announced, a label, and `seed` decides the
    /// delays.
    #[must_use]
    pub fn new(host: String, seed: u64) -> Self {
        Self {
            state: mdns::Mdns::new(host, seed),
            sockets: Vec::new(),
        }
    }

    /// Serves these links from now on, and no others. A link of which one socket does not open is served by the other
    /// one.
    ///
    /// # Errors
    /// The error of a socket, if no link has an open one.
    pub fn set_links(&mut self, links: &[Link]) -> io::Result<()> {
        let links = &links[..links.len().min(mdns::MAX_LINKS)];
        let wanted = |of: &OnLink| {
            let mut all = links.iter();
            all.any(|link| link.index == of.link && link.name == of.name && has(link, of.group.is_ipv6()))
        };
        self.sockets.retain(wanted);
        let mut failed = None;
        for link in links {
            for ipv6 in [false, true].into_iter().filter(|ipv6| has(link, *ipv6)) {
                let is_it = |of: &OnLink| of.link == link.index && of.group.is_ipv6() == ipv6;
                if self.sockets.iter().any(is_it) {
                    continue;
                }
                match OnLink::open(link, ipv6) {
                    Ok(socket) => self.sockets.push(socket),
                    Err(error) => {
                        tracing::debug!(%error, interface = link.name, ipv6, "mDNS is not served there");
                        failed = Some(error);
                    }
                }
            }
        }
        self.state.set_links(boottime_ms(), links);
        match failed {
            Some(error) if self.sockets.is_empty() => Err(error),
            _ => Ok(()),
        }
    }

    /// Announces these services from now on, and no others.
    pub fn announce(&mut self, services: Vec<Service>) {
        self.state.announce(boottime_ms(), services);
    }

    /// Looks for instances of these services from now on, and of no others.
    pub fn browse(&mut self, services: &[&'static str]) {
        self.state.browse(boottime_ms(), services);
    }

    /// Waits for an instance that is new, has changed or has gone, and sends announcements, queries and answers
    /// meanwhile.
    pub async fn next(&mut self) {
        loop {
            self.send();
            let now = boottime_ms();
            if self.state.handle_timeout(now) {
                return;
            }
            let until = self.timeout(now).saturating_sub(now);
            let arrived = poll_fn(|cx| self.poll_read(now, cx));
            if let Ok(true) = tokio::time::timeout(Duration::from_millis(until), arrived).await {
                return;
            }
        }
    }

    /// Returns an instance that is new, has changed, or is to be looked at again.
    pub fn next_changed(&mut self) -> Option<Seen> {
        self.state.next_changed()
    }

    /// Returns true if [`next_changed`](Self::next_changed) has one.
    #[must_use]
    pub fn has_changed(&self) -> bool {
        self.state.has_changed()
    }

    /// Returns the full name of an instance that is there no more.
    pub fn next_gone(&mut self) -> Option<String> {
        self.state.next_gone()
    }

    /// Returns true if an instance with this full name is announced.
    #[must_use]
    pub fn knows(&self, name: &str) -> bool {
        self.state.knows(name)
    }

    /// Has all instances looked at again.
    pub fn look_again(&mut self) {
        self.state.look_again();
    }

    /// Withdraws what is announced, and ends.
    pub fn stop(mut self) {
        self.state.announce(boottime_ms(), Vec::new());
        self.state.browse(boottime_ms(), &[]);
        self.send();
    }

    fn timeout(&self, now: u64) -> u64 {
        // A socket that may not be read now may be later.
        let reads = self.sockets.iter().map(|of| self.state.may_read(now, of.link));
        let later = reads.filter(|at| *at > now);
        let due = self.state.timeout().into_iter().chain(later);
        due.chain([now + LONGEST_WAIT]).min().unwrap_or(now)
    }

    /// Reads what arrived on the links whose budget allows it. Ready with true if an instance is to be looked at, and
    /// with false if something else is due.
    fn poll_read(&mut self, now: u64, cx: &mut Context<'_>) -> Poll<bool> {
        let mut buf = [0; MAX_DATAGRAM + 1];
        let mut ready = Poll::Pending;
        for of in &self.sockets {
            for _ in 0..=mdns::READ_BURST {
                if self.state.may_read(now, of.link) > now {
                    break;
                }
                let mut buf = ReadBuf::new(&mut buf);
                match of.socket.poll_recv_from(cx, &mut buf) {
                    Poll::Ready(Ok(from)) => {
                        let changed = self.state.handle(now, of.link, from, buf.filled());
                        ready = Poll::Ready(changed || ready == Poll::Ready(true));
                    }
                    // The error of an earlier datagram, or of an interface that is down.
                    Poll::Ready(Err(error)) => {
                        tracing::debug!(%error, interface = of.name, "mDNS is not read");
                    }
                    Poll::Pending => break,
                }
            }
        }
        ready
    }

    fn send(&mut self) {
        let now = boottime_ms();
        while let Some((link, datagram)) = self.state.poll_transmit(now) {
            for of in self.sockets.iter().filter(|of| of.link == link) {
                // Not through the runtime, which knows of a new socket only later that it can be written to.
                if let Err(error) = SockRef::from(&of.socket).send_to(&datagram, &of.group.into()) {
                    tracing::debug!(%error, interface = of.name, "mDNS is not sent");
                }
            }
        }
    }
}

/// Returns true if a link has an address of a version of IP. That of IPv6 is link-local.
fn has(link: &Link, ipv6: bool) -> bool {
    link.addresses.iter().any(|ip| ip.is_ipv6() == ipv6)
}

impl OnLink {
    fn open(link: &Link, ipv6: bool) -> io::Result<Self> {
        let domain = if ipv6 { Domain::IPV6 } else { Domain::IPV4 };
        let socket = Socket::new(domain, Type::DGRAM, Some(Protocol::UDP))?;
        // Other responders of the host have this port, too.
        socket.set_reuse_address(true)?;
        socket.set_reuse_port(true)?;
        bind_to_interface(&socket, &link.name)?;
        let group: SocketAddr = match ipv6 {
            false => {
                socket.join_multicast_v4_n(&GROUP_IPV4, &InterfaceIndexOrAddress::Index(link.index))?;
                socket.set_multicast_ttl_v4(HOPS)?;
                (GROUP_IPV4, PORT).into()
            }
            true => {
                socket.set_only_v6(true)?;
                socket.join_multicast_v6(&GROUP_IPV6, link.index)?;
                socket.set_multicast_if_v6(link.index)?;
                socket.set_multicast_hops_v6(HOPS)?;
                SocketAddrV6::new(GROUP_IPV6, PORT, 0, link.index).into()
            }
        };
        socket.bind(&group.into())?;
        socket.set_nonblocking(true)?;
        Ok(Self {
            link: link.index,
            name: link.name.clone(),
            socket: UdpSocket::from_std(socket.into())?,
            group,
        })
    }
}
