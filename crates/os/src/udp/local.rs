//! The local end of a datagram: the address of this host and the interface that it came to, and from
//! which its answer leaves (`IP_PKTINFO` of ip(7), `IPV6_PKTINFO` of RFC 3542, section 6).

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::syscall;

/// An address of this host, and an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LocalEnd {
    /// The address.
    pub ip: IpAddr,
    /// The index of the interface; 0 for none in particular.
    pub device: u32,
}

/// An interface through which answers leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AnswerDevice {
    /// Its index.
    pub index: u32,
    /// The address of IPv6 that the system selects for what leaves there, if there is a route.
    pub source: Option<Ipv6Addr>,
}

/// Interfaces through which answers leave when the question came in there, whatever route the system
/// prefers; see [`UdpSocket::answer_through`](super::UdpSocket::answer_through). Clones share one list.
#[derive(Debug, Clone, Default)]
pub struct Devices(Arc<[Place; Devices::MOST]>);

#[derive(Debug, Default)]
struct Place {
    /// 0: none.
    index: AtomicU32,
    /// The halves of the address; all zeros for none.
    source: [AtomicU64; 2],
}

impl Devices {
    /// The number of interfaces that are considered: four uplinks for each version of IP.
    pub const MOST: usize = 8;

    /// Replaces the list by the first [`Devices::MOST`] of these. A datagram that is sent meanwhile may
    /// leave as the system routes it.
    pub fn set(&self, devices: &[AnswerDevice]) {
        for (n, place) in self.0.iter().enumerate() {
            let device = devices.get(n);
            let source = device.and_then(|device| device.source).map_or(0, Ipv6Addr::to_bits);
            let halves = [(source >> 64) as u64, source as u64];
            place.index.store(0, Ordering::Relaxed);
            for (half, value) in place.source.iter().zip(halves) {
                half.store(value, Ordering::Relaxed);
            }
            place
                .index
                .store(device.map_or(0, |device| device.index), Ordering::Relaxed);
        }
    }

    /// Returns what the kernel is told of `local`: its interface only if that is one of these. With an
    /// interface, an IPv6 address is left out if the system selects it there anyway, and otherwise the
    /// interface is: the kernel looks for routes through the interface alone only if the address is
    /// open (`ip6_route_output_flags` in Linux).
    pub(super) fn restrict(&self, local: LocalEnd) -> LocalEnd {
        let mut places = self.0.iter().filter(|_| local.device != 0);
        let place = places.find(|place| place.index.load(Ordering::Relaxed) == local.device);
        match (place, local.ip) {
            (None, _) => LocalEnd { device: 0, ..local },
            (Some(_), IpAddr::V4(_)) => local,
            (Some(place), IpAddr::V6(ip)) => {
                let [high, low] = place.source.each_ref().map(|half| half.load(Ordering::Relaxed));
                match u128::from(high) << 64 | u128::from(low) == ip.to_bits() {
                    true => LocalEnd {
                        ip: Ipv6Addr::UNSPECIFIED.into(),
                        ..local
                    },
                    false => LocalEnd { device: 0, ..local },
                }
            }
        }
    }
}

/// Asks the kernel for the local end with each receive. A socket that is bound to an address knows it.
pub(super) fn ask(fd: BorrowedFd<'_>, ipv6: bool) -> io::Result<()> {
    match ipv6 {
        // Also for IPv4 on the same socket.
        true => syscall::set_option(fd, libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, 1),
        false => syscall::set_option(fd, libc::IPPROTO_IP, libc::IP_PKTINFO, 1),
    }
}

/// Returns the local end in the kernel's answer for an IPv4 socket.
pub(super) fn of_ipv4(info: libc::in_pktinfo) -> Option<LocalEnd> {
    let ip = Ipv4Addr::from(u32::from_be(info.ipi_spec_dst.s_addr));
    let device = u32::try_from(info.ipi_ifindex).ok()?;
    (!ip.is_unspecified()).then_some(LocalEnd { ip: ip.into(), device })
}

/// Returns the local end in the kernel's answer for an IPv6 socket; a mapped IPv4 address as IPv4.
pub(super) fn of_ipv6(info: libc::in6_pktinfo) -> Option<LocalEnd> {
    let ip = Ipv6Addr::from(info.ipi6_addr.s6_addr).to_canonical();
    let usable = match ip {
        IpAddr::V4(ip) => !ip.is_multicast() && !ip.is_broadcast() && !ip.is_unspecified(),
        IpAddr::V6(ip) => !ip.is_multicast() && !ip.is_unspecified(),
    };
    let device = info.ipi6_ifindex;
    usable.then_some(LocalEnd { ip, device })
}

/// Converts a local end for an IPv4 socket; `None` if it is one of IPv6.
pub(super) fn to_ipv4(local: LocalEnd) -> Option<libc::in_pktinfo> {
    let IpAddr::V4(ip) = local.ip else { return None };
    Some(libc::in_pktinfo {
        ipi_ifindex: i32::try_from(local.device).ok()?,
        ipi_spec_dst: libc::in_addr {
            s_addr: u32::from(ip).to_be(),
        },
        ipi_addr: libc::in_addr { s_addr: 0 },
    })
}

/// Converts a local end for an IPv6 socket; an IPv4 address is mapped.
pub(super) fn to_ipv6(local: LocalEnd) -> libc::in6_pktinfo {
    let ip = match local.ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    libc::in6_pktinfo {
        ipi6_addr: libc::in6_addr { s6_addr: ip.octets() },
        ipi6_ifindex: local.device,
    }
}

/// Whether a send may have failed because its local end is gone: the address was removed, or the
/// interface has no route.
pub(super) fn may_be_gone(error: &io::Error) -> bool {
    let known = [
        libc::EINVAL,
        libc::EADDRNOTAVAIL,
        libc::ENODEV,
        libc::ENETUNREACH,
        libc::EHOSTUNREACH,
        libc::ENETDOWN,
    ];
    error.raw_os_error().is_some_and(|code| known.contains(&code))
}
