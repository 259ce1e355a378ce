//! The addresses of this host at which the node listens.

use std::net::{IpAddr, SocketAddr};

use weft_os::netlink::{Netlink, NetlinkError};
use weft_reach::nat::is_private;

/// The addresses at which other hosts reach this node: those of IPv4, or of IPv6 if there are none.
/// Those that other networks reach come first.
///
/// # Errors
/// The system does not say.
pub fn of_one_version(own: u32, listen: &[SocketAddr]) -> Result<Vec<SocketAddr>, NetlinkError> {
    let mut addresses = host_addresses(own, listen)?;
    addresses.sort_by_key(|at| (at.is_ipv6(), is_private(at.ip())));
    if addresses.iter().any(SocketAddr::is_ipv4) {
        addresses.retain(SocketAddr::is_ipv4);
    }
    Ok(addresses)
}

/// The addresses of all interfaces but that with the index `own`, with the port of the socket of
/// `listen` that serves them. Those of loopback and of a link alone are left out.
///
/// # Errors
/// The system does not say.
pub(crate) fn host_addresses(own: u32, listen: &[SocketAddr]) -> Result<Vec<SocketAddr>, NetlinkError> {
    let mut netlink = Netlink::open()?;
    let mut all = Vec::new();
    for interface in netlink.interfaces()? {
        if interface.index != own {
            let addresses = netlink.addresses(interface.index)?;
            all.extend(addresses.into_iter().map(|address| address.address));
        }
    }
    let usable = |ip: &IpAddr| match ip {
        IpAddr::V4(ip) => !ip.is_loopback() && !ip.is_link_local(),
        IpAddr::V6(ip) => !ip.is_loopback() && !ip.is_unicast_link_local(),
    };
    let served = |ip: IpAddr| {
        let at = listen
            .iter()
            .find(|listen| listen.ip() == ip || listen.ip().is_unspecified() && listen.is_ipv4() == ip.is_ipv4())?;
        Some(SocketAddr::new(ip, at.port()))
    };
    Ok(all.into_iter().filter(usable).filter_map(served).collect())
}
