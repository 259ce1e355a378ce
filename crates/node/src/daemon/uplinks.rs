//! Underlay sockets for the further uplinks of this host: each is bound to one interface, so that what
//! it sends leaves there, by that interface's default route. docs/decisions/0053-uplinks.md.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use weft_config::UplinkUse;
use weft_contract::SocketId;
use weft_host::uplinks::Uplink;
use weft_os::clock::boottime_ms;
use weft_os::netlink::Interface;
use weft_os::socket::bind_to_interface;
use weft_os::udp::UdpSocket;

use super::run::Daemon;

/// The sockets of further uplinks.
#[derive(Debug, Default)]
pub(super) struct UplinkSockets {
    open: BTreeMap<SocketId, Entry>,
    /// The last error that was logged, so that it is logged once.
    refused: Option<String>,
}

#[derive(Debug, PartialEq, Eq)]
struct Entry {
    device: String,
    ipv6: bool,
    /// Its UDP port.
    port: u16,
    /// The system prefers another uplink.
    further: bool,
    /// Its place among the uplinks.
    place: usize,
}

impl UplinkSockets {
    /// Returns the UDP ports of all.
    pub(super) fn ports(&self) -> impl Iterator<Item = u16> {
        self.open.values().map(|entry| entry.port)
    }

    /// Returns the interface that each is bound to.
    fn devices(&self) -> BTreeMap<SocketId, String> {
        self.open
            .iter()
            .map(|(id, entry)| (*id, entry.device.clone()))
            .collect()
    }

    /// Takes the uplinks of the host into account. The ordinary sockets serve the first of each version,
    /// so that it needs none, unless `uses` says that a link goes through the one that it had before.
    /// Returns the sockets that are to be closed, and the uplinks that need one.
    fn set(&mut self, found: &[Uplink], uses: impl Fn(SocketId) -> bool) -> (Vec<SocketId>, Vec<Uplink>) {
        let first = |ipv6| found.iter().find(|uplink| uplink.ipv6 == ipv6);
        let is_further = |uplink: &Uplink| first(uplink.ipv6) != Some(uplink);
        let mut closed = Vec::new();
        self.open.retain(|id, entry| {
            let serves = |uplink: &Uplink| uplink.device == entry.device && uplink.ipv6 == entry.ipv6;
            let place = found.iter().position(|uplink| uplink.usable && serves(uplink));
            let uplink = place.and_then(|place| found.get(place));
            (entry.place, entry.further) = (place.unwrap_or_default(), uplink.is_some_and(is_further));
            let stays = uplink.is_some() && (entry.further || uses(*id));
            if !stays {
                closed.push(*id);
            }
            stays
        });
        let served = |uplink: &Uplink| {
            let mut open = self.open.values();
            open.any(|entry| entry.device == uplink.device && entry.ipv6 == uplink.ipv6)
        };
        let missing = found
            .iter()
            .filter(|uplink| uplink.usable && is_further(uplink) && !served(uplink));
        (closed, missing.cloned().collect())
    }

    /// Adds a socket with this port for an uplink, which has this place among all.
    fn add(&mut self, id: SocketId, uplink: &Uplink, port: u16, place: usize) {
        let entry = Entry {
            device: uplink.device.clone(),
            ipv6: uplink.ipv6,
            port,
            further: true,
            place,
        };
        self.open.insert(id, entry);
    }

    /// Returns the uplinks for links, in the order of the system.
    fn of_links(&self, usage: UplinkUse, interfaces: &[Interface]) -> Vec<weft_core::Uplink> {
        let mut all: Vec<_> = self.open.iter().collect();
        all.sort_by_key(|(_, entry)| entry.place);
        let uplink = |(id, entry): (&SocketId, &Entry)| weft_core::Uplink {
            socket: *id,
            device: interfaces
                .iter()
                .find(|interface| interface.name == entry.device)
                .map_or(0, |interface| interface.index),
            ipv6: entry.ipv6,
            spare: usage == UplinkUse::Spare && entry.further,
        };
        all.into_iter().map(uplink).collect()
    }

    /// Logs why an uplink is not used, unless that was the last thing logged.
    pub(super) fn refuse(&mut self, error: String) {
        if self.refused.as_ref() != Some(&error) {
            tracing::info!(error, "an uplink of this host is not used");
            self.refused = Some(error);
        }
    }
}

impl Daemon {
    /// Opens and closes sockets of further uplinks. Links through a socket that is closed are on another
    /// path before.
    pub(super) fn apply_uplinks(&mut self) {
        let (usage, found) = self.desired.uplinks.clone();
        let (closed, missing) = self.uplinks.set(&found, |id| self.node.uses_socket(id));
        let changed = !closed.is_empty() || !missing.is_empty();
        for uplink in missing {
            self.open_uplink(&found, &uplink);
        }
        self.follow_local_ends();
        self.node.set_uplinks(
            boottime_ms(),
            self.uplinks.of_links(usage, &self.system.surroundings.interfaces),
        );
        for id in &closed {
            self.node.forget_socket(boottime_ms(), *id);
        }
        if changed {
            self.facts.devices = self.uplinks.devices();
            self.tell_underlay_ports();
        }
        if !closed.is_empty() {
            // The lanes get the new paths before the old ones end.
            self.drain_outputs();
            closed.into_iter().for_each(|id| self.lanes.remove_socket(id));
        }
    }

    fn open_uplink(&mut self, found: &[Uplink], uplink: &Uplink) {
        let any = match uplink.ipv6 {
            false => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
            true => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
        };
        let options = super::bind_options(&self.configuration.config);
        let device = &uplink.device;
        let socket = UdpSocket::bind(any, options).map_err(|error| error.to_string());
        // Linux lets a process without CAP_NET_RAW do this since 5.7.
        let bound = socket.and_then(|socket| match bind_to_interface(&socket, device) {
            Ok(()) => Ok(socket),
            Err(error) => Err(format!("cannot bind a socket to {device}: {error}")),
        });
        match bound {
            Ok(socket) => {
                let (id, port) = (self.reaching.number_socket(), socket.local_address().port());
                tracing::info!(device, ipv6 = uplink.ipv6, port, "another uplink of this host is used");
                let place = found.iter().position(|known| known == uplink).unwrap_or_default();
                self.uplinks.add(id, uplink, port, place);
                self.lanes.add_socket(id, socket);
            }
            Err(error) => self.uplinks.refuse(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uplink(device: &str, ipv6: bool, usable: bool) -> Uplink {
        Uplink {
            device: device.to_owned(),
            ipv6,
            usable,
        }
    }

    /// Follows the system, opens sockets that are missing, and returns the number of closed ones, and the devices of all.
    fn follow(sockets: &mut UplinkSockets, next: &mut SocketId, found: &[Uplink], used: bool) -> (usize, String) {
        let (closed, missing) = sockets.set(found, |_| used);
        for uplink in &missing {
            *next = next.following();
            let place = found.iter().position(|known| known == uplink).unwrap();
            sockets.add(*next, uplink, 7, place);
        }
        let devices = sockets.of_links(UplinkUse::Spare, &[]).into_iter().map(|uplink| {
            let device = &sockets.open[&uplink.socket].device;
            let version = if uplink.ipv6 { "6" } else { "4" };
            format!("{device}/{version}{}", if uplink.spare { "" } else { "!" })
        });
        (closed.len(), devices.collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn each_further_uplink_has_a_socket_while_it_is_usable() {
        let (mut sockets, mut next) = (UplinkSockets::default(), SocketId::ORDINARY);
        let [a, b, b6] = [("a", false), ("b", false), ("b", true)].map(|(device, ipv6)| uplink(device, ipv6, true));
        let mut follow = |found: &[Uplink], used| follow(&mut sockets, &mut next, found, used);
        let text = |closed, devices: &str| (closed, devices.to_owned());
        assert_eq!(follow(std::slice::from_ref(&a), false), text(0, ""), "one is enough");
        assert_eq!(follow(&[a.clone(), b.clone(), b6.clone()], false), text(0, "b/4"));
        let again = [a.clone(), b.clone(), b6.clone()];
        assert_eq!(follow(&again, true), text(0, "b/4"), "nothing changed");
        // Without a carrier the first one is still where the system sends.
        let dead = uplink("a", false, false);
        assert_eq!(follow(&[dead.clone(), b.clone()], true), text(0, "b/4"));
        // The socket of an uplink that becomes the first one stays while links use it, and is not spare.
        assert_eq!(follow(&[b.clone(), a.clone()], true), text(0, "b/4! a/4"));
        assert_eq!(follow(&[b.clone(), a.clone()], false), text(1, "a/4"));
        assert_eq!(follow(&[b.clone(), dead], true), text(1, ""));
        assert_eq!(follow(&[], false), text(0, ""));
    }

    #[test]
    fn the_fastest_is_used_if_none_is_spare() {
        let (mut sockets, mut next) = (UplinkSockets::default(), SocketId::ORDINARY);
        let found = [uplink("a", false, true), uplink("b", false, true)];
        follow(&mut sockets, &mut next, &found, false);
        let spare = |usage| sockets.of_links(usage, &[])[0].spare;
        assert!(spare(UplinkUse::Spare) && !spare(UplinkUse::Fastest));
    }
}
