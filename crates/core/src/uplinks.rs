//! The further uplinks of the host: underlay sockets through which the addresses of peers are reached
//! by other networks than that which the system prefers. docs/decisions/0053-uplinks.md.

use std::net::IpAddr;

use weft_contract::{Endpoint, ProbeKind, SocketId};

/// An underlay socket that leads through one interface of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Uplink {
    /// Its number.
    pub socket: SocketId,
    /// The index of the interface; 0 if it is not known.
    pub device: u32,
    /// Whether it serves IPv6, or else IPv4.
    pub ipv6: bool,
    /// Paths through it are used only while no other path to the peer works.
    pub spare: bool,
}

/// The further uplinks of this host, the one first that the system prefers.
#[derive(Debug, Default)]
pub(crate) struct Uplinks(Vec<Uplink>);

impl Uplinks {
    pub(crate) fn new(list: Vec<Uplink>) -> Self {
        Self(list)
    }

    /// The paths to an address through each of them; none to a host that only one interface reaches.
    pub(crate) fn paths(&self, to: Endpoint) -> impl Iterator<Item = Endpoint> {
        let to = to.remote();
        let bound = match to.ip() {
            IpAddr::V4(ip) => ip.is_loopback() || ip.is_link_local(),
            IpAddr::V6(ip) => ip.is_loopback() || ip.is_unicast_link_local(),
        };
        let serves = move |uplink: &&Uplink| !bound && uplink.ipv6 == to.is_ipv6();
        self.0.iter().filter(serves).map(move |uplink| uplink.socket.path(to))
    }

    /// What a probe says about a path, if the link is bonded or not: one with a bond has no spare paths.
    pub(crate) fn probe_kind(&self, path: Endpoint, bonded: bool) -> ProbeKind {
        if !bonded && self.is_spare(path) {
            ProbeKind::Spare
        } else {
            ProbeKind::Plain
        }
    }

    /// Whether a path leads through a spare one: by its socket, or by an ordinary one whose answers leave
    /// through its interface.
    pub(crate) fn is_spare(&self, path: Endpoint) -> bool {
        let (socket, device) = (path.socket(), path.local().map_or(0, |local| local.device));
        let leads = |uplink: &Uplink| match socket.is_ordinary() {
            true => device != 0 && uplink.device == device,
            false => uplink.socket == socket,
        };
        self.0.iter().any(|uplink| uplink.spare && leads(uplink))
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;

    #[test]
    fn an_address_has_a_path_through_each_uplink_of_its_version() {
        let first = SocketId::ORDINARY.following();
        let sockets = [first, first.following(), first.following().following()];
        let list = sockets.map(|socket| Uplink {
            socket,
            device: 7,
            ipv6: socket == sockets[1],
            spare: socket != sockets[2],
        });
        let uplinks = Uplinks::new(list.to_vec());
        let addr = |at: &str| Endpoint::from(at.parse::<SocketAddr>().unwrap());
        let paths = |at: &str| uplinks.paths(addr(at)).collect::<Vec<_>>();
        let v4 = addr("192.0.2.1:7");
        assert_eq!(paths("192.0.2.1:7"), [sockets[0].path(v4), sockets[2].path(v4)]);
        assert_eq!(paths("[2001:db8::1]:7").len(), 1);
        for only_here in ["127.0.0.1:7", "169.254.1.1:7", "[::1]:7", "[fe80::1%3]:7"] {
            assert_eq!(paths(only_here), [], "{only_here}");
        }
        // A path through one uplink has a counterpart through each.
        assert!(uplinks.paths(sockets[2].path(v4)).eq(uplinks.paths(v4)));
        assert!(uplinks.is_spare(sockets[0].path(v4)) && !uplinks.is_spare(sockets[2].path(v4)));
        // An ordinary socket answers through the interface by which the peer has asked.
        let asked = |device| {
            let ip = [192, 0, 2, 9].into();
            v4.with_local(Some(weft_contract::LocalEnd { ip, device }))
        };
        assert!(!uplinks.is_spare(v4) && !uplinks.is_spare(asked(0)) && !uplinks.is_spare(asked(6)));
        assert!(uplinks.is_spare(asked(7)));
    }
}
