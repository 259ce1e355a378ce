//! Ports that a gateway maps on request: a real miniupnpd, and a gateway that answers with nonsense.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::path::Path;

use serde_json::Value;
use weft_lab::daemon::Daemon;
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
        let id = identity(&world, "n");
        let mut node = Daemon::start(&host, Path::new(WEFT), &id, &NodeSpec::default()).unwrap();
        node.wait_ready(PATIENCE).unwrap();
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
        assert_eq!(node.stop().unwrap().code(), Some(0));
        assert_eq!(node.warnings().unwrap(), Vec::<String>::new());
    });
}
