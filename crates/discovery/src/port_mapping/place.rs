//! Where a mapping of a port can be asked for.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};

use weft_host::surroundings::Surroundings;
use weft_reach::nat::is_private;

use super::Place;

/// The port of PCP, by which the address of this host towards its gateway is found. Nothing is sent.
const PCP: u16 = 5351;

/// Finds out where a mapping can be asked for: at the gateway of the IPv4 default route, for the socket of IPv4.
///
/// # Errors
/// The reason why nowhere.
pub fn place(surroundings: &Surroundings, own_interface: u32, listen: &[SocketAddr]) -> Result<Place, &'static str> {
    let gateway = gateway(surroundings, own_interface).ok_or("there is no gateway of IPv4")?;
    let own = own_address(gateway).ok_or("the gateway is not reached")?;
    if !is_private(own.into()) {
        return Err("the address of this host is public, so that no mapping is needed");
    }
    let serves = |at: &&SocketAddr| at.is_ipv4() && (at.ip().is_unspecified() || at.ip() == own);
    let listen = listen.iter().find(serves).ok_or("no socket serves IPv4 there")?;
    Ok(Place {
        gateway,
        own: SocketAddrV4::new(own, listen.port()),
    })
}

/// The gateway of the default route with the lowest metric.
fn gateway(surroundings: &Surroundings, own_interface: u32) -> Option<Ipv4Addr> {
    let defaults = surroundings.defaults(own_interface);
    let defaults = defaults.filter(|route| route.destination.is_ipv4());
    let first = defaults.min_by_key(|route| route.metric.unwrap_or(0))?;
    match first.gateway {
        Some(IpAddr::V4(gateway)) => Some(gateway),
        _ => None,
    }
}

/// The address of this host from which packets to the gateway leave.
fn own_address(gateway: Ipv4Addr) -> Option<Ipv4Addr> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    socket.connect((gateway, PCP)).ok()?;
    match socket.local_addr().ok()? {
        SocketAddr::V4(own) => Some(*own.ip()),
        SocketAddr::V6(_) => None,
    }
}
