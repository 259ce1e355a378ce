//! Two homes, each behind a NAT box of its own, with a node in each, and a third node that has a foot
//! in both. It relays between the two and sees neither from outside.

use std::net::SocketAddr;
use std::path::Path;

use weft_lab::daemon::Daemon;
use weft_lab::host::Host;
use weft_lab::spec::{DEFAULT_PORT, NodeSpec};
use weft_lab::world::{Switch, World};

use crate::common::{MINUTE, PATIENCE, WEFT, identity, reached_within};

/// The addresses of the NAT boxes outside. They are public: gateways refuse to map private ones.
pub(crate) const OUTER: [&str; 2] = ["11.0.0.101", "11.0.0.102"];

/// The homes, and what is outside of them.
pub(crate) struct Homes<N> {
    pub(crate) a: Daemon,
    pub(crate) b: Daemon,
    pub(crate) boxes: [N; 2],
    /// Where the NAT boxes meet, 11.0.0.0/8.
    pub(crate) wan: Switch,
    p: Daemon,
    pub(crate) world: World,
}

impl<N> Homes<N> {
    /// Starts all three nodes. `nat` starts the NAT box of each home between the switches inside and
    /// outside; `extra` is appended to the configurations of A and B.
    pub(crate) fn start(nat: impl Fn(&World, usize, (&Switch, &str), (&Switch, &str)) -> N, extra: [&str; 2]) -> Self {
        let world = World::new().unwrap();
        let wan = world.switch("wan").unwrap();
        let relay = world.host("p").unwrap();
        let home = |number: usize| -> (Host, N) {
            let lan = world.switch("lan").unwrap();
            let net = format!("192.168.{}", number + 1);
            let outer = format!("{}/8", OUTER[number]);
            let nat = nat(&world, number, (&lan, &format!("{net}.1/24")), (&wan, &outer));
            let host = world.host("home").unwrap();
            lan.connect(&host, &[&format!("{net}.2/24")]).unwrap();
            host.add_default_route(format!("{net}.1").parse().unwrap()).unwrap();
            lan.connect(&relay, &[&format!("{net}.7/24")]).unwrap();
            (host, nat)
        };
        let [(a_host, a_box), (b_host, b_box)] = [home(0), home(1)];
        let [a, b, p] = ["a", "b", "p"].map(|name| identity(&world, name));
        let start = |host: &Host, own, spec: NodeSpec| {
            let mut node = Daemon::start(host, Path::new(WEFT), own, &spec).unwrap();
            node.wait_ready(PATIENCE).unwrap();
            node
        };
        let spec = |number: usize, peer: &weft_lab::daemon::Identity| {
            let at = SocketAddr::new(format!("192.168.{}.7", number + 1).parse().unwrap(), DEFAULT_PORT);
            let spec = NodeSpec {
                extra_toml: extra[number].to_owned(),
                ..NodeSpec::default()
            };
            spec.with_peer(&p.npub, "p", &[at])
                .with_peer(&peer.npub, &peer.name, &[])
        };
        let third = NodeSpec::default()
            .with_peer(&a.npub, "a", &[])
            .with_peer(&b.npub, "b", &[]);
        Self {
            p: start(&relay, &p, third),
            a: start(&a_host, &a, spec(0, &b)),
            b: start(&b_host, &b, spec(1, &a)),
            boxes: [a_box, b_box],
            wan,
            world,
        }
    }

    /// Waits until packets pass between A and B, by whatever path.
    pub(crate) fn wait_payload(&self) {
        reached_within(MINUTE, &self.a, &self.b);
        reached_within(MINUTE, &self.b, &self.a);
    }

    /// Stops all nodes; none has warned.
    pub(crate) fn finish(mut self) {
        for node in [&mut self.a, &mut self.b, &mut self.p] {
            assert_eq!(node.stop().unwrap().code(), Some(0));
            assert_eq!(node.warnings().unwrap(), Vec::<String>::new());
        }
    }
}

/// What `weft why PEER` says.
pub(crate) fn why(from: &Daemon, to: &Daemon) -> serde_json::Value {
    let output = from.command(&["why", &to.identity().npub, "--json"]).unwrap();
    serde_json::from_slice(&output.stdout).unwrap()
}

/// `direct` or `relayed`.
pub(crate) fn kind_of_path(from: &Daemon, to: &Daemon) -> String {
    let status = from.peer(&to.identity().npub).unwrap().unwrap();
    status["path"]["kind"].as_str().unwrap_or_default().to_owned()
}
