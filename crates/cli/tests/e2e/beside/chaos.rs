//! Facts are removed at random, and meanwhile what the status says is compared with what connections find:
//! the two disagree for five seconds at most.

use std::time::{Duration, Instant};

use serde_json::Value;
use weft_lab::daemon::Daemon;
use weft_lab::host::Host;
use weft_os::clock::boottime_ms;
use weft_os::test_support::{require_nft, stood_still_since};

use super::internet::{EXIT, EXIT6, Internet, TARGET, TARGET6, done, rules, seen_within, state};
use super::kept_facts::{Mesh, said, shell};
use crate::common::{MINUTE, PATIENCE, beside, wait_until};

/// The number of actions, and the seed, for longer runs.
const ACTIONS: &str = "WEFT_CHAOS_ACTIONS";
const SEED: &str = "WEFT_CHAOS_SEED";
/// How long status and connections may disagree, in ms, and how long a fault may stay unnamed.
const LIMIT: u64 = 5_000;
/// The pause between two pairs.
const PAUSE: Duration = Duration::from_millis(20);
/// How long a connection may take, and its answer.
const TRIED: Duration = Duration::from_millis(700);
/// The network behind the exit, and a host there.
const LAN: &str = "192.168.9.0/24";
const PRINTER: &str = "192.168.9.2:80";

/// What others have set up on a host: a route, a rule for it, and a table of nftables.
const OTHERS: &str = "ip route add 203.0.113.77/32 dev lo table 99; ip rule add to 203.0.113.77 lookup 99 priority 100; \
                      printf 'table inet others { chain in { type filter hook input priority 0; accept; }; }' | nft -f -";
/// What a restart of nftables.service does: the table of others is there all the time.
const RESTART: &str = "printf 'flush ruleset\\n table inet others { chain in { type filter hook input priority 0; accept; \
                       }; }' | nft -f -";

/// What removes facts of the laptop.
const LAPTOP: [&str; 21] = [
    "ip link set weft0 down",
    "ip link set weft0 down; ip link set weft0 up",
    "ip address flush dev weft0",
    "ip -4 address flush dev weft0",
    "ip -6 address flush dev weft0",
    "ip route flush dev weft0",
    "ip -6 route flush dev weft0",
    "ip route flush table 30564",
    "ip route delete 192.168.9.0/24 dev weft0 table 30564",
    "while ip rule delete proto 119; do :; done",
    "ip link set weft0 mtu 1000",
    "echo 1 > /proc/sys/net/ipv6/conf/weft0/disable_ipv6",
    "ip rule delete proto 119",
    "ip -6 rule delete proto 119",
    "ip route flush table 30565",
    "ip -6 route flush table 30565",
    "echo 0 > /proc/sys/net/ipv4/conf/all/src_valid_mark",
    "nft delete table inet weft",
    "nft flush table inet weft",
    RESTART,
    "ip rule delete proto 119; ip address flush dev weft0",
];
/// What removes facts of the exit.
const NAS: [&str; 10] = [
    RESTART,
    "nft delete table inet weft_exit",
    "nft flush table inet weft_exit",
    "echo 0 > /proc/sys/net/ipv4/ip_forward",
    "echo 0 > /proc/sys/net/ipv6/conf/all/forwarding",
    "ip link set weft0 down; ip link set weft0 up",
    "ip address flush dev weft0",
    "ip -6 route flush dev weft0",
    "ip route flush dev weft0",
    "echo 1 > /proc/sys/net/ipv6/conf/weft0/disable_ipv6",
];
/// What stops packets and is not weft's own: the host, the words that name it, and what ends it.
const FAULTS: [(&str, &str, &str, &str); 5] = [
    (
        "nas",
        "echo 0 > /proc/sys/net/ipv4/conf/eth0/forwarding",
        "net.ipv4.conf.eth0.forwarding is 0",
        "echo 1 > /proc/sys/net/ipv4/conf/eth0/forwarding",
    ),
    (
        "nas",
        "echo 0 > /proc/sys/net/ipv4/conf/eth1/forwarding",
        "net.ipv4.conf.eth1.forwarding is 0",
        "echo 1 > /proc/sys/net/ipv4/conf/eth1/forwarding",
    ),
    (
        "nas",
        "nft 'table ip fault { chain f { type filter hook forward priority 0; policy drop; }; }'",
        "the chain ip fault f drops",
        "nft delete table ip fault",
    ),
    (
        "nas",
        "nft 'table ip6 fault { chain f { type filter hook forward priority 0; policy drop; }; }'",
        "the chain ip6 fault f drops",
        "nft delete table ip6 fault",
    ),
    (
        "laptop",
        "ip route replace default via 192.168.1.1 dev eth0 table 30565",
        "packets that the exit is to carry leave by eth0",
        "ip route delete default via 192.168.1.1 dev eth0 table 30565",
    ),
];

/// What is compared, each by itself.
const PARTS: [&str; 3] = ["the mesh", "the exit", "the subnet"];

/// What the status and connections say at one time, for each of [`PARTS`].
#[derive(Debug)]
struct Pair {
    /// When the status was asked for, in ms since boot.
    at: u64,
    /// Why it is not whole, by the status of both nodes.
    lacks: [Option<String>; 3],
    /// Whether connections passed before and after.
    passed: [[bool; 3]; 2],
    /// The faults of both hosts.
    named: Vec<String>,
}

impl Pair {
    fn is_whole(&self) -> bool {
        self.lacks.iter().all(Option::is_none) && self.passed[1] == [true; 3]
    }

    /// What connections found, if that is not what the status says.
    fn disagreement(&self, part: usize) -> Option<bool> {
        let [before, after] = self.passed.map(|passed| passed[part]);
        (before == after && before != self.lacks[part].is_none()).then_some(before)
    }
}

/// Compares status and connections of a network.
struct Watch<'a> {
    net: &'a Internet,
    mesh: Mesh,
    /// For each of [`PARTS`], what connections have found since when, while the status says otherwise.
    lies: [Option<(bool, u64, Instant)>; 3],
    /// The longest disagreement in ms.
    longest: u64,
    /// The seed and the last action.
    doing: String,
}

impl Watch<'_> {
    fn pair(&self) -> Pair {
        let before = self.passed();
        let at = boottime_ms();
        let [laptop, nas] = [&self.net.laptop, &self.net.nas].map(|node| node.status().unwrap());
        Pair {
            at,
            lacks: lacks(&laptop, &nas),
            passed: [before, self.passed()],
            named: faults(&laptop)
                .chain(faults(&nas))
                .map(|fault| text(&fault["what"]))
                .collect(),
        }
    }

    /// Whether connections of programs of the laptop pass now.
    fn passed(&self) -> [bool; 3] {
        let laptop = self.net.laptop.host();
        let passes = |to: &str, by: Option<&str>| {
            let seen = seen_within(TRIED, laptop, to);
            seen.is_some() && by.is_none_or(|by| seen.as_deref() == Some(by))
        };
        let [first, second] = [0, 1].map(|n| (&*self.mesh.mirrors[n], Some(&*self.mesh.from[n])));
        let all = [
            first,
            second,
            (TARGET, Some(EXIT)),
            (TARGET6, Some(EXIT6)),
            (PRINTER, None),
        ];
        let passed: Vec<bool> = std::thread::scope(|scope| {
            let tries = all.map(|(to, by)| scope.spawn(move || passes(to, by)));
            tries.map(|one| one.join().unwrap()).to_vec()
        });
        [passed[0] && passed[1], passed[2] && passed[3], passed[4]]
    }

    /// Takes one pair, and panics if status and connections have disagreed for too long.
    fn look(&mut self) -> Pair {
        let pair = self.pair();
        for (part, lie) in self.lies.iter_mut().enumerate() {
            let Some(found) = pair.disagreement(part) else {
                *lie = None;
                continue;
            };
            let (_, since, start) = *lie
                .filter(|(before, _, start)| *before == found && !stood_still_since(*start))
                .get_or_insert((found, pair.at, Instant::now()));
            *lie = Some((found, since, start));
            self.longest = self.longest.max(pair.at - since);
            let passes = if found { "pass" } else { "fail" };
            assert!(
                pair.at - since <= LIMIT,
                "{}: {}: connections {passes}, and the status says otherwise for {} ms: {pair:#?}",
                self.doing,
                PARTS[part],
                pair.at - since,
            );
        }
        pair
    }

    /// Looks until the condition holds for a pair.
    fn wait(&mut self, what: &str, mut condition: impl FnMut(&Self, &Pair) -> bool) {
        let begin = Instant::now();
        loop {
            let late = begin.elapsed() > MINUTE;
            let pair = self.look();
            if condition(self, &pair) {
                return;
            }
            assert!(!late, "{}: not {what} within {MINUTE:?}: {pair:#?}", self.doing);
            std::thread::sleep(PAUSE);
        }
    }

    /// Looks until both sides are whole.
    fn wait_whole(&mut self) {
        self.wait("whole", |_, pair| pair.is_whole());
    }

    /// Looks until the status names a fault, and connections fail.
    fn wait_named(&mut self, words: &str) {
        let (mut start, mut named) = (Instant::now(), false);
        self.wait("named, with connections that fail", |watch, pair| {
            named |= pair.named.iter().any(|what| what.contains(words));
            if stood_still_since(start) {
                start = Instant::now();
            }
            let late = u128::from(LIMIT) < start.elapsed().as_millis();
            assert!(named || !late, "{}: it is not named: {pair:#?}", watch.doing);
            named && pair.passed[1] != [true; 3]
        });
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn faults(status: &Value) -> impl Iterator<Item = &Value> {
    status["node"]["faults"]["found"].as_array().into_iter().flatten()
}

/// Why each of [`PARTS`] is not whole, by the status of both nodes.
fn lacks(laptop: &Value, nas: &Value) -> [Option<String>; 3] {
    let lacking = |node: &Value| node["node"]["tun"]["lacks"].as_array()?.first().map(text);
    let lacking = || lacking(laptop).or_else(|| lacking(nas));
    let fault = |of: &dyn Fn(&Value) -> bool| {
        let mut all = faults(laptop).chain(faults(nas));
        all.find(|fault| of(fault)).map(|fault| text(&fault["what"]))
    };
    let peers = laptop["peers"].as_array().unwrap();
    let peer = peers.iter().find(|peer| peer["name"] == "nas").unwrap();
    let up = ["connected", "active"].contains(&peer["standing"].as_str().unwrap());
    let (exit, serves) = (&laptop["node"]["exit"], &nas["node"]["serves"]);
    let serving = serves["ipv4"] == true && serves["ipv6"] == true;
    let mesh = (!up).then(|| text(&peer["why"])).or_else(lacking);
    // An alarm tells of a fight that weft does not lose.
    let others = ["exit", "alarm"];
    let of_mesh = |fault: &Value| fault["to"].is_null() && !others.contains(&fault["check"].as_str().unwrap());
    let of_exit = |fault: &Value| fault["check"] == "exit" || text(&fault["to"]).ends_with("/0");
    [
        mesh.clone().or_else(|| fault(&of_mesh)),
        (exit["pass"] != true)
            .then(|| text(&exit["why"]))
            .or_else(|| (!serving).then(|| text(&serves["why"])))
            .or_else(|| fault(&of_exit)),
        mesh.or_else(|| fault(&|fault| fault["to"] == LAN)),
    ]
}

/// Numbers from a seed (xorshift64).
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % end as u64) as usize
    }
}

fn number(variable: &str, default: u64) -> u64 {
    let text = std::env::var(variable).ok();
    text.map_or(default, |text| text.parse().unwrap())
}

/// A laptop that uses the exit and a subnet behind it.
fn start() -> Internet {
    let net = Internet::start(true);
    net.approve();
    done(&net.nas, &["set", "--advertise-route", LAN]);
    wait_until(PATIENCE, "the route is approved", || {
        net.nas.command(&["route", "approve", "nas", LAN]).is_ok()
    });
    done(&net.laptop, &["set", "--accept-routes", "true"]);
    done(&net.laptop, &["set", "--exit", "nas"]);
    for node in [&net.laptop, &net.nas] {
        shell(node.host(), OTHERS);
    }
    net
}

/// What a host has, but for the interface of weft. The order of tables is that of their creation.
fn kept(node: &Daemon) -> Vec<String> {
    let mut lines = rules(&state(node.host()));
    lines.sort();
    lines
}

#[test]
fn lights_and_connections_agree_while_facts_are_removed() {
    beside(|| {
        if !require_nft() {
            return;
        }
        let (actions, seed) = (number(ACTIONS, 30), number(SEED, 36));
        let net = start();
        let (laptop, nas) = (net.laptop.host(), net.nas.host());
        let mut watch = Watch {
            mesh: Mesh::new(&net),
            net: &net,
            lies: [None; 3],
            longest: 0,
            doing: format!("{SEED}={seed}, before the first action"),
        };
        watch.wait_whole();
        let before = [&net.laptop, &net.nas].map(kept);
        assert!(
            before
                .iter()
                .all(|lines| lines.iter().any(|line| line.contains("table inet others")))
        );
        let mut random = Random(seed | 1 << 40);
        let begin = Instant::now();
        let act = |watch: &mut Watch<'_>, number: u64, host: &Host, command: &str| {
            let name = host.name();
            watch.doing = format!("{SEED}={seed}, action {number}, {name}: {command}");
            eprintln!("{:6} ms, {}", begin.elapsed().as_millis(), watch.doing);
            shell(host, &format!("{{ {command}; }} 2> /dev/null; true"));
        };
        for number in 1..=actions {
            match random.below(6) {
                0 => {
                    let (host, command, words, end) = FAULTS[random.below(FAULTS.len())];
                    let host = if host == "nas" { nas } else { laptop };
                    act(&mut watch, number, host, command);
                    watch.wait_named(words);
                    act(&mut watch, number, host, end);
                }
                1 | 2 => act(&mut watch, number, nas, NAS[random.below(NAS.len())]),
                _ => act(&mut watch, number, laptop, LAPTOP[random.below(LAPTOP.len())]),
            }
            watch.wait_whole();
        }
        eprintln!("the longest disagreement: {} ms", watch.longest);
        let now = || [&net.laptop, &net.nas].map(kept);
        wait_until(PATIENCE, "rules, routes and settings are as before", || now() == before);
        for node in [&net.laptop, &net.nas] {
            assert_eq!(said(node).0, Vec::<String>::new());
        }
        drop(net.warnings());
    });
}
