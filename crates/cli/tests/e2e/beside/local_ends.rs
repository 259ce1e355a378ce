//! Where packets come from: an answer leaves from the address and by the uplink that was asked, and a
//! peer whose router holds an entry that leads nowhere is dialled from another port.

use std::net::SocketAddr;
use std::path::Path;

use weft_lab::daemon::Daemon;
use weft_lab::host::Host;
use weft_lab::spec::{DEFAULT_PORT, NodeSpec};
use weft_lab::world::{Switch, World};
use weft_os::test_support::require_nft;

use super::internet::run;
use crate::common::{MINUTE, PATIENCE, WEFT, assert_pings, beside, identity, reached_within, wait_until};

/// A firewall that lets in only what answers.
const FIREWALL: &str = "table inet f { chain i { type filter hook input priority 0; policy drop; \
     ct state established,related accept; iif lo accept; meta l4proto ipv6-icmp accept; }; }";

/// A laptop with a firewall in the internet, and a server in other networks of it.
struct Net {
    laptop: Host,
    server: Host,
    /// The routers between them.
    routers: Vec<Host>,
    switches: Vec<Switch>,
    world: World,
}

impl Net {
    fn new() -> Self {
        let world = World::new().unwrap();
        let [laptop, server] = ["laptop", "server"].map(|name| world.host(name).unwrap());
        let internet = world.switch("internet").unwrap();
        internet.connect(&laptop, &["11.0.0.7/24", "2001:db8::7/64"]).unwrap();
        Self {
            laptop,
            server,
            routers: Vec::new(),
            switches: vec![internet],
            world,
        }
    }

    /// Connects the server by a router that has the number `n`, with these addresses beside .10.
    fn provider(&mut self, n: u8, further: &[&str]) {
        let (switch, router) = (
            self.world.switch("provider").unwrap(),
            self.world.host("router").unwrap(),
        );
        let inner = [format!("11.{n}.0.1/24"), format!("2001:db8:{n}::1/64")];
        switch.connect(&router, &inner.each_ref().map(String::as_str)).unwrap();
        let outer = [format!("11.0.0.{n}/24"), format!("2001:db8::{n}/64")];
        self.switches[0]
            .connect(&router, &outer.each_ref().map(String::as_str))
            .unwrap();
        router.forward().unwrap();
        let own = [format!("11.{n}.0.10/24"), format!("2001:db8:{n}::10/64")];
        let mut addresses: Vec<&str> = own.iter().map(String::as_str).collect();
        addresses.extend(further);
        let port = switch.connect(&self.server, &addresses).unwrap();
        for version in [format!("11.{n}.0.1"), format!("2001:db8:{n}::1")] {
            let metric = Some(100 * u32::from(n));
            let gateway = version.parse().unwrap();
            self.server.add_default_route_on(port.index(), gateway, metric).unwrap();
        }
        for (net, len, gateway) in [
            (format!("11.{n}.0.0"), 24, format!("11.0.0.{n}")),
            (format!("2001:db8:{n}::"), 64, format!("2001:db8::{n}")),
        ] {
            let (net, gateway) = (net.parse().unwrap(), gateway.parse().unwrap());
            self.laptop.add_route(net, len, gateway).unwrap();
        }
        self.routers.push(router);
        self.switches.push(switch);
    }

    /// The laptop dials the server at this address; the server does not know where the laptop is.
    fn start(&self, asked: &str) -> [Daemon; 2] {
        let identities = ["laptop", "server"].map(|name| identity(&self.world, name));
        let at = SocketAddr::new(asked.parse().unwrap(), DEFAULT_PORT);
        let spec = || NodeSpec {
            listen: ["0.0.0.0:2121", "[::]:2121"].map(|at| at.parse().unwrap()).to_vec(),
            ..NodeSpec::default()
        };
        let specs = [
            spec().with_peer(&identities[1].npub, "server", &[at]),
            spec().with_peer(&identities[0].npub, "laptop", &[]),
        ];
        let mut nodes = [(&self.laptop, 0), (&self.server, 1)]
            .map(|(host, n)| Daemon::start(host, Path::new(WEFT), &identities[n], &specs[n]).unwrap());
        nodes.iter_mut().for_each(|node| node.wait_ready(PATIENCE).unwrap());
        nodes
    }

    fn finish(self, nodes: [Daemon; 2]) {
        for mut node in nodes {
            assert_eq!(node.stop().unwrap().code(), Some(0));
            assert_eq!(node.warnings().unwrap(), Vec::<String>::new());
        }
    }
}

/// The address at which a node has its peer.
fn path(of: &Daemon, to: &Daemon) -> String {
    let peer = of.peer(&to.identity().npub).unwrap().unwrap();
    peer["path"]["addr"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn a_further_address_of_a_host_answers_itself() {
    beside(|| {
        if !require_nft() {
            return;
        }
        for (further, asked) in [("11.1.0.20/24", "11.1.0.20"), ("2001:db8:1::20/64", "2001:db8:1::20")] {
            let mut net = Net::new();
            net.provider(1, &[further]);
            if asked.contains(':') {
                // The system prefers any other address then.
                let deprecated = ["address", "change", further, "dev", "eth0", "preferred_lft", "0"];
                run(&net.server, "ip", &deprecated);
            }
            run(&net.laptop, "nft", &[FIREWALL]);
            let nodes = net.start(asked);
            reached_within(PATIENCE, &nodes[0], &nodes[1]);
            assert!(path(&nodes[0], &nodes[1]).contains(asked));
            net.finish(nodes);
        }
    });
}

/// Both providers drop what has no source of theirs.
#[test]
fn an_answer_leaves_by_the_uplink_that_was_asked() {
    beside(|| {
        if !require_nft() {
            return;
        }
        for asked in ["11.2.0.10", "2001:db8:2::10"] {
            let mut net = Net::new();
            net.provider(1, &[]);
            net.provider(2, &[]);
            for (n, router) in (1..).zip(&net.routers) {
                let drop_foreign = format!(
                    "table inet p {{ chain f {{ type filter hook forward priority 0; \
                     iifname eth0 ip saddr != 11.{n}.0.0/24 drop; iifname eth0 ip6 saddr != 2001:db8:{n}::/64 drop; }}; }}"
                );
                run(router, "nft", &[&drop_foreign]);
            }
            run(&net.laptop, "nft", &[FIREWALL]);
            let nodes = net.start(asked);
            reached_within(PATIENCE, &nodes[0], &nodes[1]);
            assert!(path(&nodes[0], &nodes[1]).contains(asked));
            net.finish(nodes);
        }
    });
}

#[test]
fn a_link_outlives_the_address_that_was_asked() {
    beside(|| {
        for (further, asked, left) in [
            ("11.1.0.20/24", "11.1.0.20", "11.1.0.10"),
            ("2001:db8:1::20/64", "2001:db8:1::20", "2001:db8:1::10"),
        ] {
            let mut net = Net::new();
            net.provider(1, &[further]);
            let nodes = net.start(asked);
            reached_within(PATIENCE, &nodes[0], &nodes[1]);
            run(&net.server, "ip", &["address", "del", further, "dev", "eth0"]);
            wait_until(MINUTE, "the link at the address that is left", || {
                path(&nodes[0], &nodes[1]).contains(left)
            });
            assert_pings(&nodes[0], &nodes[1]);
            net.finish(nodes);
        }
    });
}

/// The server, behind its router, dials the laptop, which knows no way to the network of the server.
fn dialled_by_server(net: &Net) -> [Daemon; 2] {
    run(&net.laptop, "ip", &["route", "del", "11.1.0.0/24"]);
    let identities = ["laptop", "server"].map(|name| identity(&net.world, name));
    let at = SocketAddr::new("11.0.0.7".parse().unwrap(), DEFAULT_PORT);
    let specs = [
        NodeSpec::default().with_peer(&identities[1].npub, "server", &[]),
        NodeSpec::default().with_peer(&identities[0].npub, "laptop", &[at]),
    ];
    let mut nodes = [(&net.laptop, 0), (&net.server, 1)]
        .map(|(host, n)| Daemon::start(host, Path::new(WEFT), &identities[n], &specs[n]).unwrap());
    nodes.iter_mut().for_each(|node| node.wait_ready(PATIENCE).unwrap());
    nodes
}

/// What a command of the server prints.
fn printed(server: &Daemon, arguments: &[&str]) -> String {
    String::from_utf8(server.command(arguments).unwrap().stdout).unwrap()
}

#[test]
fn a_port_that_no_observer_sees_is_named() {
    beside(|| {
        if !require_nft() {
            return;
        }
        let mut net = Net::new();
        net.provider(1, &[]);
        let blocked = "table ip n { chain p { type nat hook postrouting priority 100; oifname eth1 masquerade; }; \
                       chain f { type filter hook forward priority 0; ip saddr 11.1.0.10 udp sport 2121 drop; }; }";
        run(&net.routers[0], "nft", &[blocked]);
        let nodes = dialled_by_server(&net);
        reached_within(MINUTE, &nodes[1], &nodes[0]);
        let told = printed(&nodes[1], &["netcheck"]);
        assert!(told.contains("outside sees UDP port 2121 of this machine"), "{told}");
        let laptop = printed(&nodes[0], &["netcheck"]);
        assert!(!laptop.contains("outside sees UDP port"), "{laptop}");
        net.finish(nodes);
    });
}

/// The router tracks flows before it translates addresses, as one that starts up.
#[test]
fn a_stuck_entry_of_a_router_is_left_by_another_port() {
    beside(|| {
        if !require_nft() {
            return;
        }
        let mut net = Net::new();
        net.provider(1, &[]);
        let router = &net.routers[0];
        let track = "table ip n { chain p { type nat hook postrouting priority 100; }; \
                     chain f { type filter hook forward priority 0; ct state new counter; }; }";
        run(router, "nft", &[track]);
        let nodes = dialled_by_server(&net);
        let tracked = || run(router, "nft", &["list", "ruleset"]);
        wait_until(MINUTE, "the router tracks the flow", || {
            !tracked().contains("packets 0 ")
        });
        run(router, "nft", &["add rule ip n p oifname eth1 masquerade"]);
        reached_within(MINUTE, &nodes[1], &nodes[0]);
        let port = DEFAULT_PORT.to_string();
        let seen = path(&nodes[0], &nodes[1]);
        assert!(seen.starts_with("11.0.0.1:") && !seen.ends_with(&port), "{seen}");
        // The entry ends while the ordinary port is tried seldom.
        let shorter = "echo 5 > /proc/sys/net/netfilter/nf_conntrack_udp_timeout";
        run(router, "sh", &["-ec", shorter]);
        wait_until(2 * MINUTE, "the link returns to the ordinary port", || {
            assert_pings(&nodes[1], &nodes[0]);
            path(&nodes[0], &nodes[1]) == format!("11.0.0.1:{port}")
        });
        wait_until(PATIENCE, "the server knows where it is seen", || {
            printed(&nodes[1], &["why", "laptop", "--json"]).contains(&format!("\"11.0.0.1:{port}\""))
        });
        net.finish(nodes);
    });
}
