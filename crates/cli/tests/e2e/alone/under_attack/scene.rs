//! The node under attack, its peers, the attacker's host, and the measurements.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::Value;
use weft_lab::daemon::{Daemon, Identity, PeerState};
use weft_lab::host::Host;
use weft_lab::spec::{DEFAULT_PORT, NodeSpec};
use weft_lab::traffic::{PingOptions, Pinger, UdpFlow, UdpOptions};
use weft_lab::world::{Switch, World};
use weft_noise::PublicKey;
use weft_wire::fmp::Msg1;

use super::attacks::{Attack, CROWD};
use super::measured;
use super::member::{Member, key};
use crate::common::spoof::{Running, Tap};
use crate::common::{PATIENCE, Underlay, WEFT, address, between, identity, reached_within, wait_until};

pub(crate) const PORT: u16 = DEFAULT_PORT;
/// The node under attack.
pub(crate) const A: &str = "192.0.2.1";
/// The peer that restarts.
pub(crate) const B: &str = "192.0.2.2";
/// The peer that stays, and has a session with the node.
pub(crate) const C: &str = "192.0.2.3";
pub(crate) const ATTACKER: &str = "192.0.2.66";
/// The address at which the node dials a peer, and at which the attacker is.
pub(crate) const ABSENT: &str = "192.0.2.67";
/// Another address of the peer that restarts, in another network.
const B_MOVED: &str = "198.51.100.2";

/// How long the node's traffic with the peer that stays is measured before the attack; figures take
/// longer than counters.
const BEFORE: Duration = Duration::from_millis(500);
const BEFORE_MEASURED: Duration = Duration::from_millis(1_500);
/// How long the attack has run when the peer is killed; the burst of each budget is then used up.
const KILLED_AFTER: Duration = Duration::from_secs(1);
const ATTACKED: Duration = Duration::from_secs(2);
const ATTACKED_MEASURED: Duration = Duration::from_secs(5);
/// Long enough for two rekey intervals, and for what follows a rekey without an answer.
const ATTACKED_REKEYS: Duration = Duration::from_secs(12);
const REKEY_S: u32 = 3;
/// Number of starts of the peer before the attack; a msg1 of each is recorded.
const LIVES: usize = 4;

pub(crate) fn at(ip: &str, port: u16) -> SocketAddr {
    SocketAddr::new(ip.parse().unwrap(), port)
}

/// The other traffic of the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Load {
    /// Ten datagrams a second in each direction.
    Idle,
    /// A thousand a second in each direction.
    Loaded,
}

impl Load {
    fn options(self) -> UdpOptions {
        let (interval, payload) = match self {
            Self::Idle => (Duration::from_millis(100), 200),
            Self::Loaded => (Duration::from_millis(1), 800),
        };
        UdpOptions {
            interval,
            payload,
            ..UdpOptions::default()
        }
    }
}

/// Three nodes and the attacker's host on one switch. If a test fails, its directory remains and is
/// named.
pub(crate) struct Scene {
    a: Daemon,
    b: Daemon,
    c: Daemon,
    /// The host of the attacker.
    pub(crate) x: Host,
    attack: Attack,
    recorded: Arc<Mutex<Vec<Vec<u8>>>>,
    _tap: Option<Tap>,
    _switch: Switch,
    world: World,
}

impl Scene {
    pub(crate) fn set(attack: Attack) -> Self {
        let world = World::new().unwrap();
        let switch = world.switch("net").unwrap();
        let place = |name: &str, ips: &[&str]| {
            let host = world.host(name).unwrap();
            let nets: Vec<String> = ips.iter().map(|ip| format!("{ip}/24")).collect();
            let nets: Vec<&str> = nets.iter().map(String::as_str).collect();
            switch.connect(&host, &nets).unwrap();
            host
        };
        let (a, b, c) = (place("a", &[A]), place("b", &[B, B_MOVED]), place("c", &[C]));
        let x = place("x", &[ATTACKER, ABSENT]);
        a.add_default_route(B.parse().unwrap()).unwrap();
        let recorded = Arc::new(Mutex::new(Vec::new()));
        let tap = (attack == Attack::Recorded).then(|| record(&a, Arc::clone(&recorded)));

        let [id_a, id_b, id_c] = ["a", "b", "c"].map(|name| identity(&world, name));
        let start = |host: &Host, id: &Identity, spec: &NodeSpec| {
            let mut daemon = Daemon::start(host, Path::new(WEFT), id, spec).unwrap();
            daemon.wait_ready(PATIENCE).unwrap();
            daemon
        };
        let mut scene = Self {
            b: start(&b, &id_b, &spec_b(B, &id_a)),
            c: start(&c, &id_c, &spec_c(attack, &id_a)),
            a: start(&a, &id_a, &spec_a(attack, [&id_b, &id_c])),
            x,
            attack,
            recorded,
            _tap: tap,
            _switch: switch,
            world,
        };
        if attack == Attack::Recorded {
            for _ in 1..LIVES {
                scene.b.restart().unwrap();
                scene.b.wait_ready(PATIENCE).unwrap();
                reached_within(PATIENCE, &scene.b, &scene.a);
            }
        }
        scene.wait_payload();
        scene
    }

    fn wait_payload(&mut self) {
        let [a, b, c] = [&self.a, &self.b, &self.c].map(|daemon| daemon.identity().npub.clone());
        for (from, to) in [
            (&self.a, &self.b),
            (&self.b, &self.a),
            (&self.a, &self.c),
            (&self.c, &self.a),
        ] {
            reached_within(PATIENCE, from, to);
        }
        self.a.wait_peer(&b, PeerState::Payload, PATIENCE).unwrap();
        self.a.wait_peer(&c, PeerState::Payload, PATIENCE).unwrap();
        self.c.wait_peer(&a, PeerState::Payload, PATIENCE).unwrap();
    }

    /// The host with this address.
    pub(crate) fn host(&self, ip: &str) -> &Host {
        self.node(ip).host()
    }

    /// The key of the node with this address.
    pub(crate) fn key_of(&self, ip: &str) -> PublicKey {
        self.node(ip).identity().npub.parse().unwrap()
    }

    fn node(&self, ip: &str) -> &Daemon {
        match ip {
            A => &self.a,
            B => &self.b,
            _ => &self.c,
        }
    }

    /// The attacker's link with the node at this address.
    pub(crate) fn member(&self, ip: &str) -> Member {
        let me = key(0);
        let member = Member::link(&self.x, &me, self.key_of(ip), at(ip, PORT));
        let (node, npub) = (self.node(ip), me.public().to_string());
        wait_until(PATIENCE, "the member's link", || {
            node.peer_state(&npub).unwrap() >= Some(PeerState::Linked)
        });
        member
    }

    /// The peer's msg1 of earlier starts.
    pub(crate) fn recorded(&self) -> Vec<Vec<u8>> {
        self.recorded.lock().unwrap().clone()
    }

    /// Attacks the node, restarts B meanwhile, and returns the outcome.
    pub(crate) fn run(mut self, load: Load) -> Outcome {
        let flood = self.attack.prepare(&self);
        let flow = |from: &Daemon, to: &Daemon| {
            let hosts = (from.host(), to.host());
            UdpFlow::start(hosts, address(to), load.options()).unwrap()
        };
        let flows = [flow(&self.a, &self.c), flow(&self.c, &self.a)];
        // Buffers are filled for the first time; after that the node is in its normal state.
        let rest = if measured() { BEFORE_MEASURED } else { BEFORE };
        std::thread::sleep(rest / 2);
        let before = self.look();
        std::thread::sleep(rest);
        let start = self.look();

        let flood = Running::start(self.attack.rate(), flood);
        let began = Instant::now();
        // Packets for B request the session as soon as there is a link.
        let options = PingOptions {
            interval: Duration::from_millis(50),
            count: None,
            ..PingOptions::default()
        };
        let pinger = Pinger::start(self.a.host(), self.b.identity().address, options).unwrap();
        std::thread::sleep(KILLED_AFTER);
        let seen = self.b_log_lines();
        self.restart_b();
        let returned = self.wait_return(seen);
        let attacked = match self.attack {
            Attack::RekeyIndex => ATTACKED_REKEYS,
            _ if measured() => ATTACKED_MEASURED,
            _ => ATTACKED,
        };
        std::thread::sleep(attacked.saturating_sub(began.elapsed()));
        let (time, sent) = (began.elapsed(), flood.sent());
        // The node has to answer during the attack.
        let end = self.look();
        flood.stop();
        let [out, back] = flows.map(|flow| flow.stop().unwrap());
        drop(pinger.stop());

        let outcome = Outcome {
            attack: self.attack,
            load,
            sent,
            time,
            returned,
            stream: out.sent + back.sent,
            lost: out.lost.len() + back.lost.len(),
            told: end
                .told
                .as_ref()
                .zip(start.told.as_ref())
                .map(|(end, start)| end.since(start)),
            growth: end.peak - start.peak,
            cpu: end.share_since(&start) - start.share_since(&before),
            cpu_before: start.share_since(&before),
            kernel_drops: end.drops - start.drops,
            warnings: Vec::new(),
        };
        self.finish(outcome)
    }

    /// The resources and the counters of the node.
    fn look(&self) -> Look {
        let pid = self.a.pid();
        let read = |file: &str| fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap();
        let (at, cpu) = (Instant::now(), self.a.usage().unwrap().cpu);
        let memory = read("status");
        let peak = memory.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        let peak: u64 = peak.trim().strip_suffix(" kB").unwrap().parse().unwrap();
        let udp = read("net/udp");
        let drops = udp.lines().skip(1).filter_map(|line| line.split_whitespace().last());
        Look {
            at,
            cpu,
            peak: peak << 10,
            drops: drops.map(|count| count.parse::<u64>().unwrap()).sum(),
            told: self.a.status().ok().map(|status| self.told(status)),
        }
    }

    /// The part of a status that is used.
    fn told(&self, mut status: Value) -> Told {
        let c = self.c.identity().npub.as_str();
        let peers = status["peers"].as_array().unwrap();
        let peer = peers.iter().find(|peer| peer["npub"] == c).unwrap();
        Told {
            rekeys: peer["session"]["rekeys"].as_u64().unwrap_or_default(),
            counters: serde_json::from_value(status["counters"].take()).unwrap(),
        }
    }

    fn b_log_lines(&self) -> usize {
        fs::read_to_string(self.b.log_path()).unwrap().lines().count()
    }

    fn restart_b(&mut self) {
        self.b.kill().unwrap();
        if self.attack == Attack::Msg1PeerMoves {
            let spec = spec_b(B_MOVED, self.a.identity());
            let (host, id) = (self.b.host().clone(), self.b.identity().clone());
            self.b = Daemon::start(&host, Path::new(WEFT), &id, &spec).unwrap();
        } else {
            self.b.restart().unwrap();
        }
    }

    /// How long B takes for link and session after its start, by its own log, of which `seen` lines
    /// are older.
    fn wait_return(&self, seen: usize) -> [Option<Duration>; 2] {
        let end = Instant::now() + PATIENCE;
        loop {
            let log = fs::read_to_string(self.b.log_path()).unwrap();
            let lines: Vec<&str> = log.lines().skip(seen).collect();
            let after_start = |what: &str| {
                let up = lines.iter().position(|line| line.contains(" up npub="))?;
                let done = lines.iter().find(|line| line.contains(what))?;
                Some(between(lines[up], done))
            };
            let times = [" link up ", " session up "].map(after_start);
            if times.iter().all(Option::is_some) || Instant::now() > end {
                return times;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Stops all nodes; adds the warnings of their logs.
    fn finish(mut self, mut outcome: Outcome) -> Outcome {
        for daemon in [&mut self.a, &mut self.b, &mut self.c] {
            assert_eq!(daemon.stop().unwrap().code(), Some(0), "{}", daemon.identity().name);
            outcome.warnings.extend(daemon.warnings().unwrap());
        }
        if !outcome.faults().is_empty() {
            self.world.keep_directory();
            let (name, load, logs) = (self.attack.name(), outcome.load, self.world.directory());
            eprintln!("{name}, {load:?}: logs: {}; {:?}", logs.display(), outcome.told);
        }
        outcome
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the attack: {}", self.attack.name());
        }
    }
}

/// Keeps each msg1 that B sends.
fn record(host: &Host, keep: Arc<Mutex<Vec<Vec<u8>>>>) -> Tap {
    Tap::start(host, move |source, payload| {
        let mut keep = keep.lock().unwrap();
        if source == at(B, PORT) && Msg1::parse(payload).is_ok() && !keep.iter().any(|kept| kept == payload) {
            keep.push(payload.to_vec());
        }
    })
}

fn spec_a(attack: Attack, [b, c]: [&Identity; 2]) -> NodeSpec {
    let mut spec = Underlay::V4.listener();
    spec = spec.with_peer(&b.npub, "b", &[at(B, PORT)]);
    spec = spec.with_peer(&c.npub, "c", &[at(C, PORT)]);
    spec = with_member(spec, attack);
    if attack == Attack::Msg2 {
        spec = spec.with_peer(&key(1).public().to_string(), "absent", &[at(ABSENT, PORT)]);
    }
    if attack == Attack::EarlyFrames {
        for number in 1..=CROWD {
            spec = spec.with_peer(&key(number).public().to_string(), &format!("n{number}"), &[]);
        }
    }
    spec
}

fn spec_b(own: &str, a: &Identity) -> NodeSpec {
    let spec = NodeSpec {
        listen: vec![at(own, PORT)],
        ..NodeSpec::default()
    };
    spec.with_peer(&a.npub, "a", &[at(A, PORT)])
}

fn spec_c(attack: Attack, a: &Identity) -> NodeSpec {
    let spec = Underlay::V4.listener().with_peer(&a.npub, "a", &[at(A, PORT)]);
    let mut spec = with_member(spec, attack);
    if attack == Attack::RekeyIndex {
        // A begins the rekeys, since the attack is on the indices of A.
        spec.rekey_s = 2 * REKEY_S;
    }
    spec
}

/// The nodes that the attacker links with have it as a peer, because no node has more rights than a
/// peer.
fn with_member(mut spec: NodeSpec, attack: Attack) -> NodeSpec {
    if attack.is_members() {
        spec = spec.with_peer(&key(0).public().to_string(), "m", &[]);
    }
    if attack == Attack::RekeyIndex {
        spec.rekey_s = REKEY_S;
    }
    spec
}

/// The resources and the counters of the node at one time.
struct Look {
    at: Instant,
    cpu: Duration,
    /// The peak of its memory, bytes.
    peak: u64,
    /// Datagrams for which its sockets had no room.
    drops: u64,
    /// `None` if the node did not answer.
    told: Option<Told>,
}

struct Told {
    /// Number of rekeys of the session with the peer that stays.
    rekeys: u64,
    counters: BTreeMap<String, u64>,
}

impl Told {
    /// The counters that increased, with the differences, and the number of rekeys.
    fn since(&self, before: &Self) -> (BTreeMap<String, u64>, u64) {
        let moved = |(name, count): (&String, &u64)| (name.clone(), count - before.counters[name]);
        let moved = self.counters.iter().map(moved).filter(|(_, count)| *count > 0);
        (moved.collect(), self.rekeys.saturating_sub(before.rekeys))
    }
}

impl Look {
    /// CPU time, as a share of one core.
    fn share_since(&self, before: &Self) -> f64 {
        (self.cpu - before.cpu).as_secs_f64() / (self.at - before.at).as_secs_f64()
    }
}

/// The effects of an attack.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) attack: Attack,
    pub(crate) load: Load,
    /// Number of hostile datagrams, and the duration.
    pub(crate) sent: u64,
    pub(crate) time: Duration,
    /// How long the peer took for link and session.
    pub(crate) returned: [Option<Duration>; 2],
    /// Datagrams of the established session, in both directions, and those of them that did not
    /// arrive.
    pub(crate) stream: u64,
    pub(crate) lost: usize,
    /// The counters of the node, and the rekeys of the established session; `None` if it did not
    /// answer.
    pub(crate) told: Option<(BTreeMap<String, u64>, u64)>,
    /// Growth of the peak of the node's memory, bytes.
    pub(crate) growth: u64,
    /// CPU time as a share of one core, beyond the use before the attack.
    pub(crate) cpu: f64,
    pub(crate) cpu_before: f64,
    /// Datagrams for which the node's sockets had no room.
    pub(crate) kernel_drops: u64,
    pub(crate) warnings: Vec<String>,
}
