pub(crate) mod fixture;

use std::path::Path;
use std::sync::Arc;

use rand_chacha::ChaCha20Rng;
use rand_core::SeedableRng as _;
use weft_os::netlink::{InterfaceAddress, Route};
use weft_roster::names::Name;

use self::fixture::identity;
use super::*;

/// The interface of the node, and that to its LAN.
const TUNNEL: u32 = 7;
const LAN: u32 = 2;

/// All that a node knows.
struct Known {
    config: Config,
    networks: Networks,
    system: System,
    hosts: Hosts,
    adverts: BTreeMap<PublicKey, Vec<SocketAddr>>,
    pass: bool,
    served: Option<Exit>,
}

impl Known {
    /// Node 1, which has a peer with a host name, and has founded a network.
    fn new() -> Self {
        let mut networks = Networks::new(
            Arc::new(identity(1)),
            Vec::new(),
            Box::new(ChaCha20Rng::seed_from_u64(1)),
        );
        let home = Name::network("home").unwrap();
        networks.create(home, None, [7; 16], 1_700_000_000).unwrap();
        let mut known = Self {
            config: Config::default(),
            networks,
            system: System {
                interface: TUNNEL,
                surroundings: Surroundings::default(),
                uplinks: Vec::new(),
                place: Err("there is no gateway"),
                listen: vec!["0.0.0.0:2121".parse().unwrap()],
                resolvers: Some(BTreeSet::new()),
                rules: [true; 2],
            },
            hosts: Hosts::default(),
            adverts: BTreeMap::new(),
            pass: false,
            served: None,
        };
        known.configure("");
        known
    }

    /// Reads a configuration with this in front of the peer.
    fn configure(&mut self, text: &str) {
        let peer = format!(
            "[[peer]]\nname = \"nas\"\nnpub = \"{}\"\naddresses = [\"nas.example:2121\"]\n",
            identity(2).public()
        );
        self.config = Config::parse(&(text.to_owned() + &peer), Path::new("weft.toml")).unwrap();
        self.hosts.set(&self.config.host_names(), 0);
    }

    fn desired(&self) -> Desired {
        Desired::of(&Inputs {
            config: &self.config,
            networks: &self.networks,
            system: &self.system,
            hosts: &self.hosts,
            adverts: &self.adverts,
            pass: &|_| self.pass,
            served: self.served,
            times: (0, 1_700_000_000),
        })
    }

    /// What is to be changed after `change`.
    fn differs_after(&mut self, change: impl FnOnce(&mut Self)) -> Vec<&'static str> {
        let before = self.desired();
        change(self);
        parts_that_differ(&before, &self.desired())
    }
}

/// The names of the fields that differ.
fn parts_that_differ(one: &Desired, other: &Desired) -> Vec<&'static str> {
    macro_rules! parts {
        ($($part:ident)*) => {{
            // A field that is missing here does not compile.
            let Desired { $($part: _),* } = one;
            [$((stringify!($part), one.$part != other.$part)),*]
        }};
    }
    let parts = parts!(admission guests members wireguard rules unclear exit own_subnets own_ipv4 host_use of_interest routes orders offer zone names_at member_of
        host_names stun nostr announced lan links host mapping uplinks);
    let differ = parts.into_iter().filter(|(_, differs)| *differs);
    differ.map(|(name, _)| name).collect()
}

#[test]
fn the_same_knowledge_gives_the_same() {
    let mut known = Known::new();
    assert_eq!(known.differs_after(|_| ()), [""; 0]);
}

#[test]
fn a_setting_changes_what_follows_from_it() {
    for (text, parts) in [
        ("[mesh]\nopen = true\n", &["admission"][..]),
        ("[tun]\nroutes = [\"10.9.0.0/16\"]\n", &["rules", "own_subnets"]),
        ("[networks]\nadvertise_routes = [\"10.9.0.0/16\"]\n", &["offer"]),
        ("[reach]\nport_mapping = false\n", &["mapping"]),
        ("[reach]\nuplinks = \"off\"\n", &["uplinks"]),
        ("[reach]\nstun = [\"192.0.2.9:3478\"]\n", &["stun"]),
        ("[lan]\nannounce = \"off\"\n", &["announced"]),
        ("[nostr]\nrelays = [\"wss://relay.example\"]\n", &["nostr"]),
        ("[tun]\nexit = \"nas\"\nexit_strict = true\n", &["orders"]),
        ("[dns]\nenabled = false\n", &[]),
    ] {
        let mut known = Known::new();
        assert_eq!(known.differs_after(|known| known.configure(text)), parts, "{text}");
    }
}

#[test]
fn an_address_of_a_name_or_an_advert_changes_members() {
    let mut known = Known::new();
    let at = "192.0.2.7:2121".parse().unwrap();
    let key = identity(2).public();
    let parts = known.differs_after(|known| drop(known.adverts.insert(key, vec![at])));
    assert_eq!(parts, ["members"], "an advert is confirmed by none");
    let stranger = identity(9).public();
    let parts = known.differs_after(|known| drop(known.adverts.insert(stranger, vec![at])));
    assert_eq!(parts, [""; 0], "a stranger");
}

#[test]
fn an_address_of_the_host_changes_what_looks_outside() {
    let mut known = Known::new();
    let parts = known.differs_after(|known| {
        known.system.surroundings.addresses.push(InterfaceAddress {
            index: LAN,
            address: "192.168.1.2".parse().unwrap(),
            prefix_len: 24,
        });
    });
    assert_eq!(parts, ["host_use", "lan", "host"]);
    let desired = known.desired();
    assert_eq!(desired.host.all, ["192.168.1.2:2121".parse().unwrap()]);
    assert_eq!(desired.lan, ["192.168.1.0/24".parse().unwrap()]);
    let parts = known.differs_after(|known| {
        known.system.surroundings.addresses.push(InterfaceAddress {
            index: TUNNEL,
            address: "10.44.0.1".parse().unwrap(),
            prefix_len: 32,
        });
    });
    assert_eq!(parts, [""; 0], "its own address");
}

#[test]
fn an_exit_is_offered_while_there_is_a_default_route() {
    let mut known = Known::new();
    known.configure("[tun]\nadvertise_exit = true\n");
    let offers = |known: &Known| {
        known
            .desired()
            .offer
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
    };
    assert_eq!(offers(&known), [""; 0]);
    let route = |interface| Route::to_interface(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0, interface);
    known.system.surroundings.routes = vec![route(TUNNEL)];
    assert_eq!(offers(&known), [""; 0], "its own interface leads nowhere else");
    known.system.surroundings.routes = vec![route(LAN)];
    assert_eq!(offers(&known), ["0.0.0.0/0"]);
}

#[test]
fn a_served_exit_changes_rules_and_subnets_at_once() {
    let mut known = Known::new();
    let parts = known.differs_after(|known| {
        known.served = Some(Exit {
            ipv4: true,
            ipv6: false,
        });
    });
    assert_eq!(parts, ["rules", "own_subnets", "names_at"]);
    let mesh = IpAddr::V6(identity(1).public().node_addr().to_ipv6());
    let at: BTreeSet<IpAddr> = known.networks.own_ipv4().map(IpAddr::V4).chain([mesh]).collect();
    assert_eq!(known.desired().names_at, at);
}

#[test]
fn own_addresses_count_as_the_node_where_peers_send_to_them() {
    let mut known = Known::new();
    known.configure("[tun]\nroutes = [\"192.168.1.0/24\"]\naddresses = [\"10.7.0.1/16\"]\n");
    for (index, address, prefix_len) in [
        (LAN, "192.168.1.2", 24),
        (LAN, "203.0.113.10", 24),
        (LAN, "2001:db8::2", 64),
        (LAN, "172.17.0.1", 16),
        (LAN, "fe80::2", 64),
        (1, "127.0.0.1", 8),
        (TUNNEL, "10.44.0.1", 32),
    ] {
        let address = address.parse().unwrap();
        known.system.surroundings.addresses.push(InterfaceAddress {
            index,
            address,
            prefix_len,
        });
    }
    let host = |known: &Known| -> Vec<String> {
        let peers = known.desired().rules.peers.unwrap();
        let rules = &peers[&identity(2).public().node_addr()];
        rules.host.iter().map(ToString::to_string).collect()
    };
    let in_subnets = ["10.7.0.1", "192.168.1.2", "192.168.1.255"];
    assert_eq!(host(&known), in_subnets);
    known.served = Some(Exit {
        ipv4: true,
        ipv6: false,
    });
    let all = ["203.0.113.10", "203.0.113.255", "2001:db8::2"];
    assert_eq!(host(&known), [&in_subnets[..], &all].concat());
    // One of them comes: the rules follow.
    let parts = known.differs_after(|known| {
        known.system.surroundings.addresses.push(InterfaceAddress {
            index: LAN,
            address: "198.51.100.3".parse().unwrap(),
            prefix_len: 32,
        });
    });
    assert_eq!(parts, ["rules", "host_use", "lan", "host"]);
}
