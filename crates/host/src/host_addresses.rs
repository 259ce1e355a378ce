//! The addresses of this host at which the node listens.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use weft_os::netlink::{Netlink, NetlinkError};
use weft_reach::nat::is_private;

use crate::surroundings::Surroundings;

/// The addresses at which other hosts reach this node: those of IPv4, or of IPv6 if there are none.
/// Those that other networks reach come first.
///
/// # Errors
/// The system does not say.
pub fn of_one_version(own: u32, listen: &[SocketAddr]) -> Result<Vec<SocketAddr>, NetlinkError> {
    let surroundings = Surroundings::read(&mut Netlink::open()?, &BTreeSet::new())?;
    let mut addresses = host_addresses(&surroundings, own, listen);
    addresses.sort_by_key(|at| (at.is_ipv6(), is_private(at.ip())));
    if addresses.iter().any(SocketAddr::is_ipv4) {
        addresses.retain(SocketAddr::is_ipv4);
    }
    Ok(addresses)
}

/// The addresses of all interfaces but that with the index `own`, with the port of the socket of
/// `listen` that serves them. Those of loopback and of a link alone are left out.
pub fn host_addresses(surroundings: &Surroundings, own: u32, listen: &[SocketAddr]) -> Vec<SocketAddr> {
    let all = surroundings.addresses.iter().filter(|address| address.index != own);
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
    all.map(|address| address.address)
        .filter(usable)
        .filter_map(served)
        .collect()
}
