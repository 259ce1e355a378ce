//! The sockets of this host, by sock_diag(7).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::{ControlFlow, Range};

use rustix::net::netlink;

use super::NetlinkError;
use super::dump::{dump, order};

/// `SOCK_DIAG_BY_FAMILY` of `linux/sock_diag.h`.
const BY_FAMILY: u16 = 20;
/// `SOCK_DESTROY` of the same file.
const DESTROY: u16 = 21;
/// `struct inet_diag_sockid` in `struct inet_diag_msg`: ports, addresses, interface and cookie.
const ID: Range<usize> = 4..52;
/// `struct inet_diag_req_v2` of `linux/inet_diag.h`: family, protocol, extensions, padding, states, and a
/// socket, of which nothing is given.
const REQUEST_LEN: usize = 56;
/// States of `net/tcp_states.h`, which UDP has, too: those of a connection that is not at its end.
const ESTABLISHED: u8 = 1;
const LISTEN: u8 = 10;
const CONNECTED: [u8; 8] = [ESTABLISHED, 2, 3, 4, 5, 8, 9, 11];

/// A socket of TCP or UDP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InetSocket {
    /// The protocol, by its number.
    pub protocol: u8,
    /// Its own end.
    pub local: SocketAddr,
    /// The other end; `None` if it listens.
    pub remote: Option<SocketAddr>,
}

/// Passes the sockets of TCP that listen or are connected, and those of UDP that are connected, to `each`
/// until that breaks, in the network namespace of the calling thread.
///
/// # Errors
/// A [`NetlinkError`], as from a kernel without lists of sockets.
pub fn sockets(mut each: impl FnMut(InetSocket) -> ControlFlow<()>) -> Result<(), NetlinkError> {
    list(|socket, _| each(socket))
}

/// Ends the connected sockets of TCP and UDP that a condition holds for: their programs get the error
/// ECONNABORTED at once. It needs the capability CAP_NET_ADMIN. Returns how many there were.
///
/// # Errors
/// A [`NetlinkError`]; `Refused` from a kernel that ends no sockets of others (CONFIG_INET_DIAG_DESTROY).
pub fn end_connections(mut condition: impl FnMut(&InetSocket) -> bool) -> Result<usize, NetlinkError> {
    let mut requests = Vec::new();
    list(|socket, message| {
        if let Some(request) = message
            .get(..ID.end)
            .filter(|_| socket.remote.is_some() && condition(&socket))
        {
            requests.push(request_for(request, socket.protocol));
        }
        ControlFlow::Continue(())
    })?;
    let orders = requests.iter().map(Vec::as_slice);
    order("end the connection", netlink::SOCK_DIAG, DESTROY, orders)
}

/// The request about a socket that was listed.
fn request_for(message: &[u8], protocol: u8) -> Vec<u8> {
    let family = message.first().copied().unwrap_or_default();
    let mut request = vec![family, protocol, 0, 0];
    request.extend(u32::MAX.to_ne_bytes());
    request.extend_from_slice(message.get(ID).unwrap_or_default());
    request
}

fn list(mut each: impl FnMut(InetSocket, &[u8]) -> ControlFlow<()>) -> Result<(), NetlinkError> {
    for protocol in [libc::IPPROTO_TCP as u8, libc::IPPROTO_UDP as u8] {
        for family in [libc::AF_INET as u8, libc::AF_INET6 as u8] {
            let mut broken = false;
            let states = CONNECTED
                .iter()
                .chain([&LISTEN])
                .fold(0_u32, |states, state| states | 1 << state);
            let mut request = vec![family, protocol, 0, 0];
            request.extend(states.to_ne_bytes());
            request.resize(REQUEST_LEN, 0);
            let list = dump(
                "list the sockets",
                netlink::SOCK_DIAG,
                (BY_FAMILY, &request),
                |message| {
                    let Some(socket) = read(protocol, message) else {
                        return ControlFlow::Continue(());
                    };
                    let done = each(socket, message);
                    broken |= done.is_break();
                    done
                },
            );
            list?;
            if broken {
                return Ok(());
            }
        }
    }
    Ok(())
}

/// Reads a `struct inet_diag_msg`: family, state, timer, retransmissions, then `struct inet_diag_sockid`:
/// ports and addresses, big-endian.
fn read(protocol: u8, message: &[u8]) -> Option<InetSocket> {
    let &[family, state, ..] = message.first_chunk::<4>()?;
    let port = |at: usize| Some(u16::from_be_bytes(*message.get(at..)?.first_chunk()?));
    let ip = |at: usize| -> Option<IpAddr> {
        let octets = message.get(at..)?.first_chunk::<16>()?;
        Some(match i32::from(family) {
            libc::AF_INET => Ipv4Addr::from(*octets.first_chunk::<4>()?).into(),
            _ => Ipv6Addr::from(*octets).to_canonical(),
        })
    };
    let local = SocketAddr::new(ip(8)?, port(4)?);
    let remote = SocketAddr::new(ip(24)?, port(6)?);
    let listens = state == LISTEN;
    (listens || CONNECTED.contains(&state)).then_some(InetSocket {
        protocol,
        local,
        remote: (!listens).then_some(remote),
    })
}
