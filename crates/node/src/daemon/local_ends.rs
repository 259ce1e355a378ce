//! The local ends that peers have asked, and from which links answer: through which interfaces, and
//! until when.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv6Addr};

use weft_contract::LocalEnd;
use weft_host::surroundings::Surroundings;
use weft_host::uplinks::{Uplink, ipv6_source};
use weft_os::clock::boottime_ms;
use weft_os::udp::{AnswerDevice, Devices};

use super::run::Daemon;

/// The interfaces through which answers leave when the question came in there.
pub(super) struct LocalEnds {
    devices: Devices,
    /// The indices of the uplinks.
    uplinks: BTreeSet<u32>,
}

/// The ends that a change of the host's network has left.
struct Remaining {
    addresses: BTreeSet<IpAddr>,
    /// Interfaces that are uplinks no longer.
    lost: BTreeSet<u32>,
}

impl LocalEnds {
    /// Creates the list without an end. `devices`: the list that the sockets have.
    pub(super) const fn new(devices: Devices) -> Self {
        Self {
            devices,
            uplinks: BTreeSet::new(),
        }
    }

    /// Follows the host's network. `source` returns the IPv6 address that the system selects for packets
    /// through an interface. An interface that is not an uplink is left out: without a route through
    /// it, Linux takes every destination for a neighbour there.
    fn follow(
        &mut self,
        surroundings: &Surroundings,
        uplinks: &[Uplink],
        source: impl Fn(u32) -> Option<Ipv6Addr>,
    ) -> Remaining {
        let named = |name: &str| surroundings.interfaces.iter().find(|link| link.name == name);
        let usable = uplinks.iter().filter(|uplink| uplink.usable);
        let uplinks: BTreeSet<u32> = usable
            .filter_map(|uplink| named(&uplink.device))
            .map(|link| link.index)
            .collect();
        let lost = self.uplinks.difference(&uplinks).copied().collect();
        let device = |index: &u32| AnswerDevice {
            index: *index,
            source: source(*index),
        };
        self.devices.set(&uplinks.iter().map(device).collect::<Vec<_>>());
        self.uplinks = uplinks;
        Remaining {
            addresses: surroundings.addresses.iter().map(|own| own.address).collect(),
            lost,
        }
    }
}

impl Remaining {
    fn is_gone(&self, local: LocalEnd) -> bool {
        // Every address of 127.0.0.0/8 is one of the host.
        !local.ip.is_loopback() && !self.addresses.contains(&local.ip) || self.lost.contains(&local.device)
    }
}

impl Daemon {
    /// Answers through the uplinks that the host has, and no longer from addresses that it has lost.
    pub(super) fn follow_local_ends(&mut self) {
        let (_, uplinks) = &self.desired.uplinks;
        let remaining = self.local_ends.follow(&self.system.surroundings, uplinks, ipv6_source);
        let now = boottime_ms();
        self.node.forget_local_ends(now, |local| remaining.is_gone(local));
    }
}

#[cfg(test)]
mod tests {
    use weft_os::netlink::{Interface, InterfaceAddress};

    use super::*;

    fn surroundings(addresses: &[(u32, &str)]) -> Surroundings {
        let interface = |index| Interface {
            index,
            name: format!("eth{index}"),
            ..Interface::default()
        };
        let address = |(index, ip): &(u32, &str)| InterfaceAddress {
            index: *index,
            address: ip.parse().unwrap(),
            prefix_len: 24,
        };
        Surroundings {
            interfaces: [1, 2].map(interface).into(),
            addresses: addresses.iter().map(address).collect(),
            ..Surroundings::default()
        }
    }

    #[test]
    fn an_end_is_gone_with_its_address_or_its_uplink() {
        let uplink = |index: u32| Uplink {
            device: format!("eth{index}"),
            ipv6: false,
            usable: true,
        };
        let end = |ip: &str, device| LocalEnd {
            ip: ip.parse().unwrap(),
            device,
        };
        let ends = [end("192.0.2.1", 1), end("198.51.100.1", 2), end("127.0.0.9", 9)];
        let gone = |remaining: Remaining| ends.map(|end| remaining.is_gone(end));
        let both = [(1, "192.0.2.1"), (2, "198.51.100.1")];
        let mut local_ends = LocalEnds::new(Devices::default());
        let remaining = local_ends.follow(&surroundings(&both), &[uplink(1), uplink(2)], |_| None);
        assert_eq!(gone(remaining), [false, false, false]);
        let remaining = local_ends.follow(&surroundings(&both), &[uplink(1)], |_| None);
        assert_eq!(gone(remaining), [false, true, false], "its default route went");
        let remaining = local_ends.follow(&surroundings(&both), &[uplink(1)], |_| None);
        assert_eq!(gone(remaining), [false, false, false], "it may be asked there again");
        let remaining = local_ends.follow(&surroundings(&both[1..]), &[uplink(1)], |_| None);
        assert_eq!(gone(remaining), [true, false, false]);
    }
}
