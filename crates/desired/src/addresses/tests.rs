use weft_os::netlink::{Interface, InterfaceAddress, Route};

use super::*;

const OWN: u32 = 1;

/// A host: interfaces as `name kind`, their addresses, and those with a default route.
#[derive(Default)]
struct Host {
    surroundings: Surroundings,
}

impl Host {
    fn with(mut self, name: &str, kind: &str, addresses: &[&str]) -> Self {
        let index = self.surroundings.interfaces.len() as u32 + OWN + 1;
        self.surroundings.interfaces.push(Interface {
            index,
            name: name.to_owned(),
            up: true,
            usable: true,
            kind: (!kind.is_empty()).then(|| kind.to_owned()),
            ..Interface::default()
        });
        let address = |text: &&str| InterfaceAddress {
            index,
            address: text.parse().unwrap(),
            prefix_len: 24,
        };
        self.surroundings.addresses.extend(addresses.iter().map(address));
        self
    }

    fn last(&mut self) -> &mut Interface {
        self.surroundings.interfaces.last_mut().unwrap()
    }

    fn down(mut self) -> Self {
        self.last().usable = false;
        self
    }

    fn port_of(mut self, bridge: &str) -> Self {
        let all = &self.surroundings.interfaces;
        let of = all.iter().find(|link| link.name == bridge).unwrap().index;
        self.last().controller = Some(of);
        self
    }

    fn uplink(mut self) -> Self {
        let index = self.last().index;
        let any: IpAddr = [0; 4].into();
        self.surroundings.routes.push(Route::to_interface(any, 0, index));
        self
    }

    fn addresses(&self) -> HostAddresses {
        let listen = ["0.0.0.0:2121", "[::]:2121"].map(|at| at.parse().unwrap());
        HostAddresses::of(&self.surroundings, OWN, &listen)
    }

    fn told(&self) -> Vec<String> {
        texts(&self.addresses().told)
    }

    fn best(&self) -> Vec<String> {
        texts(self.addresses().best())
    }

    fn invite(&self, outer: &[&str]) -> Vec<String> {
        let outer: Vec<SocketAddr> = outer.iter().map(|at| at.parse().unwrap()).collect();
        self.addresses()
            .of_invite(&outer)
            .iter()
            .map(ToString::to_string)
            .collect()
    }
}

fn texts(all: &[SocketAddr]) -> Vec<String> {
    all.iter().map(|at| at.ip().to_string()).collect()
}

#[test]
fn the_uplink_comes_first_and_a_bridge_of_containers_last() {
    let host = Host::default()
        .with("docker0", "bridge", &["172.17.0.1"])
        .with("veth1", "veth", &[])
        .port_of("docker0")
        .with("br-a", "bridge", &["172.18.0.1"])
        .with("ve-c", "veth", &["10.9.0.1"])
        .with("wg0", "wireguard", &["10.8.0.1"])
        .with("eth1", "", &["10.0.0.5"])
        .with("lan", "bridge", &["192.168.7.1"])
        .with("eth2", "", &[])
        .port_of("lan")
        .with("eth0", "", &["192.168.1.5"])
        .uplink();
    let outward = ["192.168.1.5", "10.0.0.5", "192.168.7.1"];
    let within = ["172.17.0.1", "172.18.0.1", "10.9.0.1", "10.8.0.1"];
    assert_eq!(host.told(), [&outward[..], &within].concat());
    assert_eq!(host.best(), outward);
}

#[test]
fn a_host_with_nothing_better_names_its_bridges() {
    let host = Host::default().with("virbr0", "bridge", &["192.168.122.1"]);
    assert_eq!(host.best(), ["192.168.122.1"]);
    let container = Host::default().with("eth0", "veth", &["172.17.0.2"]).uplink();
    assert_eq!(container.with("br-a", "bridge", &["172.18.0.1"]).best(), ["172.17.0.2"]);
}

#[test]
fn a_link_that_is_down_has_no_address_for_others() {
    let host = Host::default()
        .with("eth0", "", &["192.168.1.5"])
        .uplink()
        .down()
        .with("wlan0", "", &["192.168.1.6"]);
    assert_eq!(host.told(), ["192.168.1.6"]);
    assert_eq!(texts(&host.addresses().all), ["192.168.1.5", "192.168.1.6"]);
    let untold: Vec<SocketAddr> = host.addresses().untold().collect();
    assert_eq!(texts(&untold), ["192.168.1.5"]);
}

#[test]
fn an_address_that_goes_soon_is_told_to_no_peer() {
    let mut host = Host::default()
        .with("eth0", "", &["2001:db8::abcd", "fd12:1::5", "2001:db8::5"])
        .uplink();
    let temporary = host.surroundings.addresses[0];
    host.surroundings.passing.insert(temporary);
    assert_eq!(host.told(), ["2001:db8::5", "fd12:1::5"], "the public one first");
}

#[test]
fn a_tunnel_counts_where_it_brings_a_public_address() {
    let host = Host::default()
        .with("tun0", "tun", &["10.8.0.2"])
        .uplink()
        .with("he", "sit", &["2001:db8::2"])
        .uplink()
        .with("eth0", "", &["192.168.1.5"])
        .uplink();
    assert_eq!(host.best(), ["2001:db8::2", "192.168.1.5"]);
}

#[test]
fn an_invite_has_a_place_for_each_version_and_an_outer_one() {
    let host = Host::default()
        .with(
            "eth0",
            "",
            &[
                "10.0.0.1",
                "10.0.0.2",
                "10.0.0.3",
                "10.0.0.4",
                "fd12:1::1",
                "2001:db8::1",
            ],
        )
        .uplink();
    let v6 = ["[2001:db8::1]:2121", "[fd12:1::1]:2121"];
    let v4 = ["10.0.0.1:2121", "10.0.0.2:2121", "10.0.0.3:2121"];
    assert_eq!(host.invite(&[]), [&v4[..], &v6].concat());
    let v4 = ["10.0.0.1:2121", "203.0.113.9:40000", "10.0.0.2:2121"];
    let outer = ["203.0.113.9:40000", "198.51.100.1:7"];
    assert_eq!(host.invite(&outer), [&v4[..], &v6].concat());
    assert_eq!(
        host.invite(&["10.0.0.4:2121"])[1],
        "10.0.0.2:2121",
        "an own one is none"
    );
}

#[test]
fn an_address_has_the_port_of_the_socket_that_serves_it() {
    let host = Host::default().with("eth0", "", &["192.168.1.5", "192.168.1.6", "fd12::5"]);
    let listen = ["192.168.1.6:2122"].map(|at| at.parse().unwrap());
    let addresses = HostAddresses::of(&host.surroundings, OWN, &listen);
    assert_eq!(addresses.all, listen);
    assert_eq!(addresses.told, listen);
}

#[test]
fn addresses_of_the_mesh_lead_only_to_connected_nodes() {
    let mut host = Host::default().with("eth0", "", &["192.168.1.5"]);
    // The interface of weft, with an address that its user has chosen.
    host.surroundings.addresses.push(InterfaceAddress {
        index: OWN,
        address: "172.30.0.1".parse().unwrap(),
        prefix_len: 24,
    });
    let inside = |host: &Host, at: &str| is_inside(at.parse().unwrap(), &host.surroundings, OWN);
    for at in ["10.44.3.4", "10.44.0.1", "fd12:3456::1", "fdff::1", "172.30.0.1"] {
        assert!(inside(&host, at), "{at}");
    }
    for at in [
        "10.45.0.1",
        "192.168.1.5",
        "172.30.0.2",
        "2001:db8::1",
        "fc00::1",
        "fe80::1",
        "203.0.113.7",
    ] {
        assert!(!inside(&host, at), "{at}");
    }
    // The network of this host has such addresses, too.
    let host = host.with("eth1", "", &["10.44.3.1"]);
    assert!(!inside(&host, "10.44.3.4") && inside(&host, "10.44.4.4"));
    assert!(inside(&host, "::ffff:10.44.4.4"), "as a socket of IPv6 has it");
    // A router leads to such addresses, and weft to all.
    let mut host = host;
    let by_router = Route::via("fd12:3456::".parse().unwrap(), 48, "fe80::1".parse().unwrap());
    let mut by_weft = Route::to_interface("fd00::".parse().unwrap(), 8, OWN);
    by_weft.own = true;
    host.surroundings.routes.extend([by_router, by_weft]);
    assert!(!inside(&host, "fd12:3456::1") && inside(&host, "fd12:3457::1"));
}
