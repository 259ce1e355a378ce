use std::collections::BTreeSet;
use std::net::IpAddr;

use weft_os::netlink::{Interface, InterfaceAddress};

use super::*;

/// Interfaces as `name kind`, numbered from 1, each with an address; `~` before the name says that no packets pass,
/// `br/` that it is a port of a bridge.
fn names(interfaces: &[&str]) -> Vec<String> {
    let mut surroundings = Surroundings::default();
    for (index, text) in (1_u32..).zip(interfaces) {
        let (name, kind) = text.split_once(' ').unwrap_or((text, ""));
        surroundings.interfaces.push(Interface {
            index,
            name: name.trim_start_matches('~').trim_start_matches("br/").to_owned(),
            up: true,
            usable: !name.starts_with('~'),
            loopback: name == "lo",
            controller: name.starts_with("br/").then_some(1),
            kind: (!kind.is_empty()).then(|| kind.to_owned()),
            ..Interface::default()
        });
        surroundings.addresses.push(InterfaceAddress {
            index,
            address: IpAddr::from([192, 168, index as u8, 1]),
            prefix_len: 24,
        });
    }
    let own = surroundings.interfaces.iter().find(|of| of.name == "weft0");
    let own = own.map_or(0, |of| of.index);
    links(&surroundings, own).into_iter().map(|link| link.name).collect()
}

#[test]
fn links_are_those_with_other_hosts() {
    let found = names(&[
        "docker0 bridge",
        "lo",
        "eth0",
        "~eth1",
        "weft0 tun",
        "wg0 wireguard",
        "br/veth1 veth",
        "wlan0",
    ]);
    assert_eq!(found, ["eth0", "wlan0", "docker0"]);
    assert_eq!(names(&["ppp0 ppp", "veth0 veth"]), ["veth0"]);
}

#[test]
fn an_address_that_goes_soon_is_announced_last() {
    let address = |last| InterfaceAddress {
        index: 1,
        address: IpAddr::from([192, 168, 1, last]),
        prefix_len: 24,
    };
    let surroundings = Surroundings {
        interfaces: vec![Interface {
            index: 1,
            name: "eth0".to_owned(),
            usable: true,
            ..Interface::default()
        }],
        addresses: vec![address(1), address(2)],
        passing: BTreeSet::from([address(1)]),
        ..Surroundings::default()
    };
    let links = links(&surroundings, 0);
    assert_eq!(links[0].addresses, [2, 1].map(|last| IpAddr::from([192, 168, 1, last])));
    assert_eq!(subnets(&surroundings, 0), ["192.168.1.0/24".parse().unwrap(); 2]);
}
