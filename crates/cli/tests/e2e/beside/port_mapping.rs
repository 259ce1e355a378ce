//! Ports that a gateway maps on request: a real miniupnpd, and a gateway that answers with nonsense.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::path::Path;

use serde_json::Value;
use weft_lab::daemon::Daemon;
use weft_lab::host::Host;
use weft_lab::nat::kernel::{KernelNat, KernelNatConfig, Masquerade};
use weft_lab::nat::miniupnpd::{Miniupnpd, Speaks};
use weft_lab::spec::NodeSpec;
use weft_lab::world::{Switch, World};
use weft_os::test_support::{require_miniupnpd, require_nft};

use super::homes::{Homes, OUTER, kind_of_path, why};
use super::join::done;
use super::stun::receive;
use crate::common::{MINUTE, PATIENCE, WEFT, assert_pings, beside, identity, wait_until};

/// A box of the kernel that draws a random port for each destination: two of them let no node through.
fn symmetric(world: &World, inside: (&Switch, &str), outside: (&Switch, &str)) -> KernelNat {
    let config = KernelNatConfig {
        ports: Masquerade::FullyRandom,
        lifetime: None,
        gateway: None,
    };
    KernelNat::start(world, config, inside, outside).unwrap()
}

fn mapping(node: &Daemon) -> Value {
    node.status().unwrap()["node"]["port_mapping"].clone()
}

/// Both nodes are behind boxes through which no probe finds its way. One gateway maps a port: the path
/// is direct. The mapping ends with the daemon.
fn becomes_direct(speaks: Speaks, protocol: &str) {
    if !require_nft() || !require_miniupnpd() {
        return;
    }
    let off = "\n[reach]\nport_mapping = false\n";
    let mut homes = Homes::start(|world, _, inside, outside| symmetric(world, inside, outside), [off; 2]);
    homes.wait_payload();
    wait_until(MINUTE, "an attempt fails", || {
        let attempts = why(&homes.a, &homes.b)["attempts"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        let failed = |attempt: &Value| attempt["outcome"] == "found no address that answers";
        attempts.iter().any(failed)
    });
    assert_eq!(kind_of_path(&homes.a, &homes.b), "relayed");
    assert_eq!(mapping(&homes.a)["why"], "reach.port_mapping = false");

    let gateway = Miniupnpd::start(&homes.boxes[0], (homes.world.directory(), "miniupnpd"), speaks).unwrap();
    done(&homes.a, &["set", "reach.port_mapping", "true"]);
    wait_until(MINUTE, "the gateway maps the port", || {
        mapping(&homes.a)["mapped"] != Value::Null
    });
    let mapped = mapping(&homes.a);
    assert_eq!(mapped["protocol"], protocol, "{mapped}\n{}", gateway.log().unwrap());
    assert_eq!(mapped["gateway"], "192.168.1.1");
    let outer: SocketAddr = mapped["mapped"].as_str().unwrap().parse().unwrap();
    assert_eq!(outer.ip().to_string(), OUTER[0]);
    let rules = gateway.mapped(&homes.boxes[0]).unwrap();
    assert!(rules.contains(&outer.port().to_string()), "{rules}");
    wait_until(MINUTE, "the path is direct", || {
        kind_of_path(&homes.a, &homes.b) == "direct" && kind_of_path(&homes.b, &homes.a) == "direct"
    });
    assert_pings(&homes.a, &homes.b);
    let own = why(&homes.a, &homes.b)["own"].clone();
    assert!(own.to_string().contains("mapped"), "{own}");
    let text = done(&homes.a, &["status"]);
    assert!(
        text.contains(&format!("port mapping: the gateway maps {outer} by {protocol}")),
        "{text}"
    );

    assert_eq!(homes.a.stop().unwrap().code(), Some(0));
    let rules = gateway.mapped(&homes.boxes[0]).unwrap();
    assert!(!rules.contains("dnat"), "{rules}");
    homes.finish();
}

#[test]
fn a_pcp_mapping_makes_a_path_direct_and_ends_with_the_daemon() {
    beside(|| becomes_direct(Speaks::Pcp, "PCP"));
}

#[test]
fn a_upnp_mapping_makes_a_path_direct_and_ends_with_the_daemon() {
    beside(|| becomes_direct(Speaks::Upnp, "UPnP"));
}

/// A node behind a box with miniupnpd, without peers.
struct Alone {
    node: Daemon,
    host: Host,
    lan: Switch,
    nat: KernelNat,
    gateway: Miniupnpd,
    world: World,
}

impl Alone {
    fn start(outer: &str, speaks: Speaks) -> Self {
        let world = World::new().unwrap();
        let [lan, wan] = ["lan", "wan"].map(|name| world.switch(name).unwrap());
        let nat = symmetric(&world, (&lan, "192.168.1.1/24"), (&wan, outer));
        let host = world.host("n").unwrap();
        lan.connect(&host, &["192.168.1.2/24"]).unwrap();
        host.add_default_route("192.168.1.1".parse().unwrap()).unwrap();
        let gateway = Miniupnpd::start(&nat, (world.directory(), "miniupnpd"), speaks).unwrap();
        let node = started(&world, &host);
        Self {
            node,
            host,
            lan,
            nat,
            gateway,
            world,
        }
    }

    fn is_mapped(&self) -> bool {
        mapping(&self.node)["mapped"] != Value::Null && self.gateway.mapped(&self.nat).unwrap().contains("dnat")
    }
}

fn started(world: &World, host: &Host) -> Daemon {
    let id = identity(world, "n");
    let mut node = Daemon::start(host, Path::new(WEFT), &id, &NodeSpec::default()).unwrap();
    node.wait_ready(PATIENCE).unwrap();
    node
}

fn stopped(mut node: Daemon) {
    assert_eq!(node.stop().unwrap().code(), Some(0));
    assert_eq!(node.warnings().unwrap(), Vec::<String>::new());
}

/// Restarts the gateway, which loses its mappings, and waits until it has the port again.
fn is_mapped_after_a_restart(speaks: Speaks, then: impl FnOnce(&Alone)) {
    if !require_nft() || !require_miniupnpd() {
        return;
    }
    let alone = Alone::start("11.0.0.101/8", speaks);
    wait_until(MINUTE, "the gateway maps the port", || alone.is_mapped());
    alone.gateway.reboot(&alone.nat, None).unwrap();
    then(&alone);
    wait_until(MINUTE, "the gateway maps the port again", || alone.is_mapped());
    stopped(alone.node);
    drop(alone.world);
}

/// The gateway announces that it has started.
#[test]
fn a_restarted_gateway_that_speaks_pcp_maps_the_port_again() {
    beside(|| is_mapped_after_a_restart(Speaks::Pcp, |_| ()));
}

/// The network changes. The gateway's service is at another port now.
#[test]
fn a_restarted_gateway_that_speaks_upnp_maps_the_port_again() {
    beside(|| {
        is_mapped_after_a_restart(Speaks::Upnp, |alone| {
            alone.lan.connect(&alone.host, &["192.168.1.3/24"]).unwrap();
        });
    });
}

#[test]
fn a_gateway_behind_another_nat_is_named_as_the_reason() {
    beside(|| {
        if !require_nft() || !require_miniupnpd() {
            return;
        }
        for speaks in [Speaks::Pcp, Speaks::Upnp] {
            let alone = Alone::start("192.168.77.2/24", speaks);
            wait_until(PATIENCE, "it says so", || {
                let why = mapping(&alone.node)["why"].clone();
                why.as_str().unwrap().contains("it is behind another NAT")
            });
            assert_eq!(mapping(&alone.node)["mapped"], Value::Null);
            stopped(alone.node);
        }
    });
}

/// The gateway speaks none of the protocols. Another host of the LAN answers the search by multicast.
#[test]
fn a_host_that_is_not_the_gateway_is_not_asked_for_its_document() {
    beside(|| {
        let world = World::new().unwrap();
        let lan = world.switch("lan").unwrap();
        let [host, gateway, other] = ["n", "gateway", "other"].map(|name| world.host(name).unwrap());
        lan.connect(&host, &["192.168.1.2/24"]).unwrap();
        lan.connect(&gateway, &["192.168.1.1/24"]).unwrap();
        lan.connect(&other, &["192.168.1.66/24"]).unwrap();
        host.add_default_route("192.168.1.1".parse().unwrap()).unwrap();
        let document = other.run(|| TcpListener::bind("192.168.1.66:80").unwrap()).unwrap();
        document.set_nonblocking(true).unwrap();
        let search = other.run(|| {
            let search = UdpSocket::bind("0.0.0.0:1900").unwrap();
            let group = Ipv4Addr::new(239, 255, 255, 250);
            search
                .join_multicast_v4(&group, &Ipv4Addr::new(192, 168, 1, 66))
                .unwrap();
            search
        });
        let search = search.unwrap();
        search.set_read_timeout(Some(MINUTE)).unwrap();
        let node = started(&world, &host);
        let mut request = [0; 1_100];
        let (n, from) = receive(&search, &mut request);
        assert!(request[..n].starts_with(b"M-SEARCH * HTTP/1.1\r\n"));
        let answer = b"HTTP/1.1 200 OK\r\nLOCATION: http://192.168.1.66:80/d.xml\r\n\r\n";
        search.send_to(answer, from).unwrap();
        wait_until(PATIENCE, "no protocol is left", || {
            mapping(&node)["why"] == "the gateway offers no PCP, NAT-PMP or UPnP"
        });
        assert_eq!(document.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
        stopped(node);
    });
}

/// The answer to a request for a mapping by PCP (RFC 6887, section 11.1) with this outer address.
fn granted(request: &[u8], outer: Ipv4Addr, port: u16) -> Vec<u8> {
    let mut answer = request[..60].to_vec();
    answer[1] |= 0x80;
    answer[3] = 0;
    answer[8..24].fill(0);
    answer[42..44].copy_from_slice(&port.to_be_bytes());
    answer[44..60].copy_from_slice(&outer.to_ipv6_mapped().octets());
    answer
}

/// A gateway that says a private outer address: it is refused, said, and the mapping is withdrawn.
#[test]
fn an_outer_address_that_makes_no_sense_is_refused() {
    beside(|| {
        let world = World::new().unwrap();
        let lan = world.switch("lan").unwrap();
        let [host, gateway] = ["n", "gateway"].map(|name| world.host(name).unwrap());
        lan.connect(&host, &["192.168.1.2/24"]).unwrap();
        lan.connect(&gateway, &["192.168.1.1/24"]).unwrap();
        host.add_default_route("192.168.1.1".parse().unwrap()).unwrap();
        let pcp = gateway.run(|| UdpSocket::bind("192.168.1.1:5351").unwrap()).unwrap();
        pcp.set_read_timeout(Some(MINUTE)).unwrap();
        let node = started(&world, &host);
        let mut request = [0; 1_100];
        let (_, from) = receive(&pcp, &mut request);
        let lifetime = |request: &[u8]| u32::from_be_bytes(request[4..8].try_into().unwrap());
        assert_eq!((request[0], request[1], lifetime(&request)), (2, 1, 3_600));
        pcp.send_to(&granted(&request, Ipv4Addr::new(192, 168, 77, 2), 2121), from)
            .unwrap();
        // The same mapping is withdrawn.
        let nonce = request[24..36].to_vec();
        let mut next = [0; 1_100];
        // On a slow machine the request may have been repeated before its answer came.
        let from = loop {
            let (_, from) = receive(&pcp, &mut next);
            if next != request {
                break from;
            }
        };
        assert_eq!((lifetime(&next), &next[24..36]), (0, &nonce[..]));
        pcp.send_to(&granted(&next, Ipv4Addr::UNSPECIFIED, 0), from).unwrap();
        wait_until(PATIENCE, "it says so", || {
            let why = mapping(&node)["why"].clone();
            why.as_str().unwrap().contains("192.168.77.2 is private")
        });
        assert_eq!(mapping(&node)["mapped"], Value::Null);
        stopped(node);
    });
}
