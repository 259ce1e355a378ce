//! One meaning of the rules: the decision of tables in the documented order, the explanation, and what the
//! packet path does with the first packet of a flow.

mod reference;

use std::fmt::Write as _;
use std::net::IpAddr;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use weft_contract::rules::Policy as Firewall;
use weft_roster::rules::{Policy, Rule};

use self::reference::{First, Reference};
use super::*;
use crate::rules::compile::{ByHand, Compiled, compile};
use crate::rules::why::{Known, Question, why};
use crate::{MemberChange, RouteChange};

const NETWORKS: [&str; 2] = ["home", "work"];
/// What is behind the own node, and behind node 2.
const OURS: [&str; 2] = ["192.168.7.0/24", "2001:db8:7::/48"];
const THEIRS: &str = "10.9.0.0/16";
/// Addresses of the own host: one of a subnet behind it, and one of the Internet.
const HOST: [&str; 2] = ["192.168.7.1", "203.0.113.10"];
const FURTHER: [&str; 5] = [
    "192.168.7.9",
    "192.168.8.9",
    "2001:db8:7::9",
    "198.51.100.7",
    "2001:db8:8::9",
];
/// Protocol and port, with ICMP as that of IPv4.
const SERVICES: [(u8, Option<u16>); 7] = [
    (6, Some(22)),
    (6, Some(25)),
    (17, Some(53)),
    (17, Some(7_353)),
    (6, Some(7_353)),
    (1, None),
    (47, None),
];

/// All that decides. Node 0 is the own one; nodes 1 to 3 are peers.
#[derive(Debug, Clone)]
struct Plan {
    networks: usize,
    /// Of each peer, in each network.
    members: [[bool; 2]; 3],
    /// Of each node, in each network: bits for `a` and `b`.
    tags: [[u8; 2]; 4],
    /// Of each subnet, in each network.
    routes: [[bool; 2]; 2],
    theirs: [bool; 2],
    exits: [bool; 2],
    serves: bool,
    by_hand: [bool; 3],
    subnets: bool,
    rules: [Vec<String>; 2],
    allows: [bool; 2],
    local: Vec<String>,
}

/// A rule; `local`: one of a configuration.
fn rule(local: bool) -> impl Strategy<Value = String> {
    let member = |node| key(node).to_string();
    let mut from: Vec<String> = ["any", "tag:a", "tag:b"].map(str::to_owned).into();
    from.extend((0..4).map(member));
    if local {
        from.extend(["tag:home/a", "tag:work/b", "tag:work/a"].map(str::to_owned));
    }
    let mut to = from.clone();
    to.extend(
        [
            "any",
            "any",
            "exit",
            "exit",
            "route:192.168.0.0/16",
            "route:192.168.7.0/24",
        ]
        .map(str::to_owned),
    );
    to.push("route:2001:db8:7::/48".to_owned());
    let services = [
        "",
        "",
        "tcp",
        "tcp/22",
        "tcp/20-25,7353",
        "udp/53",
        "udp",
        "icmp",
        "1",
        "58",
        "47",
    ];
    let until = [None, None, Some(UNIX - 1), Some(UNIX), Some(UNIX + 1)];
    let policy = select(&["allow", "deny"][..]);
    let parts = (
        policy,
        select(from),
        select(to),
        select(services.to_vec()),
        select(until.to_vec()),
    );
    parts.prop_map(|(policy, from, to, service, until)| {
        let mut text = format!("{policy} from {from} to {to} {service}");
        until
            .into_iter()
            .for_each(|until| write!(text, " until {until}").unwrap());
        text
    })
}

fn plan() -> impl Strategy<Value = Plan> {
    let nodes = (0_usize..=2, any::<[[bool; 2]; 3]>(), any::<[[u8; 2]; 4]>());
    let places = (any::<[[bool; 2]; 2]>(), any::<[bool; 2]>(), any::<[bool; 2]>());
    let rules = [0, 1].map(|_| vec(rule(false), 0..5));
    let local = prop_oneof![Just(Vec::new()), vec(rule(true), 0..4)];
    let configured = (any::<bool>(), any::<[bool; 3]>(), any::<bool>(), local);
    let parts = (nodes, places, rules, any::<[bool; 2]>(), configured);
    parts.prop_map(
        |(nodes, places, rules, allows, (serves, by_hand, subnets, local))| Plan {
            networks: nodes.0,
            members: nodes.1,
            tags: nodes.2,
            routes: places.0,
            theirs: places.1,
            exits: places.2,
            serves,
            by_hand,
            subnets,
            rules,
            allows,
            local,
        },
    )
}

fn subnets(texts: &[&str]) -> BTreeSet<Subnet> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

fn tags(bits: u8) -> BTreeSet<Name> {
    let has = |bit: u8| bits & bit != 0;
    let tags = [("a", has(1)), ("b", has(2))].into_iter().filter(|(_, has)| *has);
    tags.map(|(tag, _)| Name::label(tag).unwrap()).collect()
}

impl Plan {
    fn networks(&self) -> Networks {
        let mut own = networks(0, Vec::new());
        let times = (0, UNIX);
        own.set_offer(&subnets(&[OURS[0], OURS[1], "0.0.0.0/0", "::/0"]));
        for (at, network) in NETWORKS.iter().enumerate().take(self.networks) {
            let of = Some(*network);
            let label = Name::network(network).unwrap();
            let id = own.create(label, Some(name("own")), [at as u8; 16], UNIX).unwrap();
            let of_founder = MemberChange::Tag {
                tags: tags(self.tags[0][at]).iter().map(Name::to_string).collect(),
            };
            own.change_member(of, "own", (of_founder, None), times).unwrap();
            for peer in (1..4).filter(|peer| self.members[peer - 1][at]) {
                own.take_in(
                    network,
                    &key(peer),
                    name(&format!("peer-{peer}")),
                    tags(self.tags[peer][at]),
                );
            }
            for (subnet, _) in OURS.iter().zip(self.routes).filter(|(_, routes)| routes[at]) {
                let route = ("own", subnet.parse().unwrap());
                own.change_route(of, route, RouteChange::Approve, times).unwrap();
            }
            if self.theirs[at] && self.members[1][at] {
                let (_, network) = own.with(id).unwrap();
                network.take_offer(&key(0), key(2), subnets(&[THEIRS]), 0).unwrap();
                let route = ("peer-2", THEIRS.parse().unwrap());
                own.change_route(of, route, RouteChange::Approve, times).unwrap();
            }
            if self.exits[at] {
                own.change_exit(of, "own", RouteChange::Approve, times).unwrap();
            }
            let rules = RuleChange::Set {
                rules: self.rules[at].clone(),
            };
            own.change_rules(of, rules, times).unwrap();
            let policy = if self.allows[at] { Policy::Allow } else { Policy::Deny };
            own.change_rules(of, RuleChange::Default { policy }, times).unwrap();
        }
        own
    }

    fn by_hand(&self, networks: &Networks) -> ByHand {
        let configured: Vec<Subnet> = subnets(&OURS[..1]).into_iter().filter(|_| self.subnets).collect();
        let own = networks.iter().filter_map(|network| network.ipv4(&key(0)));
        let own = own.map(|ip| Subnet::around(ip.into(), 32).unwrap());
        let routes = networks.own_routes();
        let mut host: Vec<IpAddr> = HOST.iter().map(|ip| ip.parse().unwrap()).collect();
        host.sort_unstable();
        ByHand {
            peers: (1..4).filter(|peer| self.by_hand[peer - 1]).map(key).collect(),
            serves: self
                .serves
                .then(|| own.chain(routes).chain(configured.iter().copied()).collect()),
            subnets: configured,
            host,
            exit: None,
        }
    }
}

/// A packet with a transport header of 20 bytes.
fn packet(first: First) -> Vec<u8> {
    let mut packet = match (first.source, first.dest) {
        (IpAddr::V6(source), IpAddr::V6(dest)) => {
            let mut header = vec![0x60, 0, 0, 0, 0, 20, first.service.0, 64];
            header.extend(source.octets().into_iter().chain(dest.octets()));
            header
        }
        (IpAddr::V4(source), IpAddr::V4(dest)) => {
            let mut header = vec![0x45, 0, 0, 40, 0, 0, 0, 0, 64, first.service.0, 0, 0];
            header.extend(source.octets().into_iter().chain(dest.octets()));
            header
        }
        ends => panic!("{ends:?}"),
    };
    packet.extend([0xc0, 0]);
    packet.extend(first.service.1.unwrap_or(0).to_be_bytes());
    // The data offset and SYN of TCP.
    packet.extend([0, 0, 0, 0, 0, 0, 0, 0, 0x50, 2, 0, 0, 0, 0, 0, 0]);
    packet
}

/// One receiver of packets: its rules, and the model of them.
struct Receiver<'a> {
    networks: &'a Networks,
    compiled: &'a Compiled,
    firewall: Option<Firewall>,
    reference: Reference<'a>,
}

impl Receiver<'_> {
    /// The sources that go with a destination: those of the peer, and one that no network knows.
    fn sources(&self, dest: IpAddr) -> Vec<IpAddr> {
        let peer = &self.reference.peer;
        if dest.is_ipv6() {
            return vec![peer.node_addr().to_ipv6().into()];
        }
        let of_networks = self
            .reference
            .common
            .iter()
            .filter(|network| network.ipv4(&self.reference.own).is_some());
        let sources: Vec<IpAddr> = of_networks
            .filter_map(|network| Some(network.ipv4(peer)?.into()))
            .collect();
        match sources.is_empty() {
            true => vec!["172.31.0.1".parse().unwrap()],
            false => sources,
        }
    }

    /// Compares the packet path with the reference, and returns what both say.
    fn receive(&self, first: First) -> (bool, Vec<String>) {
        let expected = match &self.firewall {
            Some(_) => self.reference.decide(first),
            None => (true, Vec::new()),
        };
        let peer = self.reference.peer.node_addr();
        let admits = self
            .firewall
            .as_ref()
            .is_none_or(|rules| weft_packet::firewall::admits(rules, peer, &packet(first)));
        assert_eq!(admits, expected.0, "packet path: {first:?}, {:?}", expected.1);
        expected
    }

    /// Compares those for the packets that may begin a flow.
    fn receive_all(&self, behind: Option<IpAddr>, service: (u8, Option<u16>)) -> Vec<(bool, Vec<String>)> {
        let node = self.reference.own.node_addr().to_ipv6().into();
        let dest = behind.unwrap_or(node);
        let service = match service {
            (1, port) if dest.is_ipv6() => (58, port),
            service => service,
        };
        let of = |source| First { source, dest, service };
        let sources = self.sources(dest).into_iter();
        sources.map(|source| self.receive(of(source))).collect()
    }

    /// Compares the explanation of a flow with what becomes of its packets.
    fn compare(&self, behind: Option<IpAddr>, exit: bool, service: (u8, Option<u16>)) {
        let received = self.receive_all(behind, service);
        let question = Question {
            from: self.reference.peer,
            to: self.reference.own,
            behind: behind.filter(|_| !exit),
            exit,
            protocol: service.0,
            port: service.1,
        };
        let known = Known {
            networks: self.networks,
            compiled: self.compiled,
            local: self.reference.local,
            by_hand: &self.reference.by_hand.peers,
        };
        let verdict = why(&question, &known, UNIX);
        let passes = received.iter().any(|(passes, _)| *passes);
        assert_eq!(
            verdict.allowed, passes,
            "explanation: {question:?}: {:?}",
            verdict.reasons
        );
        let [(_, said)] = &received[..] else { return };
        let origins = |line: &&String| {
            ["local rule", "rule ", "no rule of"]
                .iter()
                .any(|words| line.starts_with(words))
        };
        let lines: Vec<&String> = verdict.reasons.iter().filter(origins).collect();
        assert_eq!(lines, said.iter().collect::<Vec<_>>(), "{question:?}");
    }

    /// All flows of the peer.
    fn compare_all(&self) {
        let parse = |text: &&str| text.parse::<IpAddr>().unwrap();
        let own = self.reference.own;
        let behind: Vec<IpAddr> = FURTHER.iter().chain(&HOST).map(parse).collect();
        let ipv4 = self.reference.joined.iter().filter_map(|network| network.ipv4(&own));
        let ipv4: Vec<IpAddr> = ipv4.map(IpAddr::V4).collect();
        let ipv4_of_peer: Vec<IpAddr> = self.sources("10.0.0.1".parse().unwrap());
        for service in SERVICES {
            self.compare(None, false, service);
            for dest in &behind {
                self.compare(Some(*dest), false, service);
            }
            if self.firewall.is_some() {
                self.compare(Some("2001:db8:8::9".parse().unwrap()), true, service);
            }
            for dest in ipv4.iter().chain(&behind).filter(|dest| dest.is_ipv4()) {
                for source in ipv4_of_peer.iter().chain(&["10.9.0.5".parse().unwrap()]) {
                    let (source, dest) = (*source, *dest);
                    self.receive(First { source, dest, service });
                }
            }
        }
    }
}

proptest! {
    /// Tables in the documented order, the explanation and the packet path agree about every flow.
    #[test]
    fn rules_have_one_meaning(plan in plan()) {
        let networks = plan.networks();
        let configured = plan.by_hand(&networks);
        let local: Vec<Rule> = plan.local.iter().map(|rule| Rule::local(rule).unwrap()).collect();
        let of_own = compile(&key(0), &networks, &configured, &local, UNIX);
        for from in 1..4 {
            receiver(&networks, (0, from), (&of_own, &configured, &local)).compare_all();
        }
        // As far as records say, node 2 serves as exit and has no configuration.
        let unknown = ByHand::default();
        let of_other = compile(&key(2), &networks, &unknown, &[], UNIX);
        if of_other.peers.is_some() {
            for from in [0, 1, 3] {
                let other = receiver(&networks, (2, from), (&of_other, &unknown, &[]));
                for service in SERVICES {
                    other.compare(None, false, service);
                    other.compare(Some("10.9.0.5".parse().unwrap()), false, service);
                }
            }
        }
    }
}

fn receiver<'a>(
    networks: &'a Networks,
    (own, peer): (usize, usize),
    (compiled, by_hand, local): (&'a Compiled, &'a ByHand, &'a [Rule]),
) -> Receiver<'a> {
    let (own, peer) = (key(own), key(peer));
    let joined: Vec<&Network> = networks.iter().filter(|network| network.is_member(&own)).collect();
    let peers = compiled.peers.clone();
    Receiver {
        networks,
        compiled,
        firewall: peers.map(|peers| Firewall::new(own.node_addr(), 1, peers)),
        reference: Reference {
            own,
            peer,
            common: joined
                .iter()
                .copied()
                .filter(|network| network.is_member(&peer))
                .collect(),
            joined,
            by_hand,
            local,
        },
    }
}
