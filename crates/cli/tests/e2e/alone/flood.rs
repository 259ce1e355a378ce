//! An attacker on the same network sends to a node at its maximum rate: the node stays silent and
//! small, and continues to work.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use weft_lab::cable::Direction;
use weft_lab::daemon::{Daemon, PeerState};
use weft_lab::host::Host;
use weft_lab::relay::{Leg, UdpRelay, Verdict, fmp_phase};
use weft_lab::traffic::{Limit, PingOptions, Pinger, TcpFlow, UdpFlow, UdpOptions};
use weft_lab::world::{Switch, World};
use weft_os::assert_strict;
use weft_os::udp::{BindOptions, MAX_SEGMENTS, UdpSocket};

use crate::common::{
    MINUTE, PATIENCE, Underlay, WEFT, address, alone, assert_pings, identity, reached_within, wait_until,
};

/// Generates one datagram of a kind.
type Maker = Box<dyn FnMut(&mut Random) -> Vec<u8>>;

/// The variable with which `.ci/long attacks` runs this: what depends on a quiet machine is asserted then.
const MEASURED: &str = "WEFT_ATTACKS";
/// Datagrams a second, in total.
const RATE: u64 = 100_000;
/// For how long datagrams come that must get no answer, then those that may get one.
const SILENT: Duration = Duration::from_secs(3);
const SILENT_MEASURED: Duration = Duration::from_secs(8);
const ANSWERED: Duration = Duration::from_secs(2);
/// The minimum rate that must be sent; a lower rate would be another test.
const LEAST_RATE: u64 = 20_000;
/// The percentage of the pings between established peers that must be answered meanwhile.
const PINGS_KEPT: u64 = 99;
/// The growth of the daemon's buffers when they are first filled; nothing is kept for a datagram.
const RSS_GROWTH: u64 = 2 << 20;

/// FMP msg1 and msg2 (docs/protocol: link).
const MSG1_LEN: usize = 114;
const MSG2_LEN: usize = 69;
/// Upper bounds of the handshakes of one network prefix that reach the core, at once and a second:
/// those on the fastest host that the daemon allows for, and five a second of a recorded message
/// (docs/protocol: behaviour, rates).
const BURST: u64 = 40;
const PER_SECOND: u64 = 40;

const A: &str = "192.0.2.1";
const B: &str = "192.0.2.2";
const RELAY: &str = "192.0.2.3";
const ATTACKER: &str = "192.0.2.66";

/// A and B link through a relay that keeps a copy of what B sends. `x` hosts the attacker, and a
/// node that A does not list and that dials the attacker's socket as if A were there.
struct Scene {
    a: Daemon,
    b: Daemon,
    attacker: UdpSocket,
    captured: Arc<Mutex<Vec<Vec<u8>>>>,
    stranger: Vec<u8>,
    _relay: UdpRelay,
    _switch: Switch,
    _world: World,
}

impl Scene {
    fn set() -> Self {
        let world = World::new().unwrap();
        let switch = world.switch("net").unwrap();
        let [a, b, relay, x] = [("a", A), ("b", B), ("relay", RELAY), ("x", ATTACKER)].map(|(name, ip)| {
            let host = world.host(name).unwrap();
            switch.connect(&host, &[&format!("{ip}/24")]).unwrap();
            host
        });
        let captured = Arc::new(Mutex::new(Vec::new()));
        let keep = Arc::clone(&captured);
        let (to_a, to_b) = (at(RELAY, 1001), at(RELAY, 1002));
        let leg = |local, peer| Leg { local, peer };
        let relay = UdpRelay::start(&relay, leg(to_a, at(A, 2121)), leg(to_b, at(B, 2121)), {
            move |direction, datagram: &[u8]| {
                let mut keep = keep.lock().unwrap();
                if direction == Direction::BToA && keep.len() < 4096 {
                    keep.push(datagram.to_vec());
                }
                Verdict::Pass
            }
        })
        .unwrap();
        let ids = ["a", "b", "stranger"].map(|name| identity(&world, name));
        let node = |host: &Host, own: usize, peer: usize, via: &[SocketAddr]| {
            let peer = &ids[peer];
            let spec = Underlay::V4.listener().with_peer(&peer.npub, &peer.name, via);
            let mut daemon = Daemon::start(host, Path::new(WEFT), &ids[own], &spec).unwrap();
            daemon.wait_ready(PATIENCE).unwrap();
            daemon
        };
        // Only B dials, so that there is a msg1 of B to replay.
        let (mut a, mut b) = (node(&a, 0, 1, &[]), node(&b, 1, 0, &[to_b]));
        reached_within(PATIENCE, &b, &a);
        a.wait_peer(&b.identity().npub.clone(), PeerState::Payload, PATIENCE)
            .unwrap();
        b.wait_peer(&a.identity().npub.clone(), PeerState::Payload, PATIENCE)
            .unwrap();
        let attacker = x
            .run(|| UdpSocket::bind(at(ATTACKER, 4000), BindOptions::default()))
            .unwrap()
            .unwrap();
        let mut unknown = node(&x, 2, 0, &[attacker.local_address()]);
        let stranger = first_handshake(&attacker);
        unknown.kill().unwrap();
        Self {
            a,
            b,
            attacker,
            captured,
            stranger,
            _relay: relay,
            _switch: switch,
            _world: world,
        }
    }

    /// The counters of A, including its samples, which are up to 250 ms old.
    fn counters(&self) -> BTreeMap<String, u64> {
        std::thread::sleep(Duration::from_millis(600));
        let mut status = self.a.status().unwrap();
        let mut counters: BTreeMap<String, u64> = serde_json::from_value(status["counters"].take()).unwrap();
        let packets = status["peers"][0]["link"]["rx"]["packets"].as_u64().unwrap();
        counters.insert("link_rx_packets".to_owned(), packets);
        counters
    }
}

fn at(ip: &str, port: u16) -> SocketAddr {
    SocketAddr::new(ip.parse().unwrap(), port)
}

/// The msg1 of a node that dials this socket.
fn first_handshake(socket: &UdpSocket) -> Vec<u8> {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(msg1) = receive(socket).into_iter().find(|d| d.len() == MSG1_LEN) {
            return msg1;
        }
        assert!(Instant::now() < end, "the stranger does not dial");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// All datagrams that wait at a socket.
fn receive(socket: &UdpSocket) -> Vec<Vec<u8>> {
    let mut buf = vec![0; 65_535];
    let mut all = Vec::new();
    while let Ok(received) = socket.recv(&mut buf) {
        all.extend(received.datagrams(&mut buf).map(|d| d.to_vec()));
    }
    all
}

/// A cheap generator (xorshift64*): the datagrams only have to differ.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn fill(&mut self, bytes: &mut [u8]) {
        for part in bytes.chunks_mut(8) {
            part.copy_from_slice(&self.next().to_le_bytes()[..part.len()]);
        }
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }
}

/// One kind of hostile datagram: generates the next `count`, all of one length.
type Kind = Box<dyn FnMut(&mut Random, usize) -> Vec<Vec<u8>>>;

fn many(mut make: impl FnMut(&mut Random) -> Vec<u8> + 'static) -> Kind {
    Box::new(move |random, count| (0..count).map(|_| make(random)).collect())
}

/// All kinds that must get no answer.
fn silent_kinds(captured: &[Vec<u8>], stranger: &[u8]) -> Vec<(&'static str, Kind)> {
    let frames: Vec<Vec<u8>> = captured
        .iter()
        .filter(|d| fmp_phase(d) == Some(0) && d.len() >= 64)
        .cloned()
        .collect();
    assert!(frames.len() >= 8, "{} frames captured", frames.len());
    let pick = |frames: &[Vec<u8>], random: &mut Random| frames[random.below(frames.len())].clone();
    let one = |mut make: Maker| -> Kind { Box::new(move |random, count| vec![make(random); count]) };
    let (f1, f2, f3, f4) = (frames.clone(), frames.clone(), frames.clone(), frames);
    let stranger = stranger.to_vec();
    vec![
        ("random", many(|random| bytes(random, 1280))),
        (
            "random behind a frame's header",
            many(|random| {
                let mut datagram = bytes(random, 1280);
                datagram[..4].copy_from_slice(&[0, 0, 0xe0, 0x04]);
                datagram
            }),
        ),
        ("oversized", many(|random| bytes(random, 1472))),
        (
            "truncated",
            one(Box::new(move |random| {
                let mut frame = pick(&f1, random);
                frame.truncate(1 + random.below(40));
                frame
            })),
        ),
        ("replayed", one(Box::new(move |random| pick(&f2, random)))),
        (
            "bit flipped",
            one(Box::new(move |random| {
                let mut frame = pick(&f3, random);
                let at = random.below(frame.len());
                frame[at] ^= 1 << random.below(8);
                frame
            })),
        ),
        (
            "bit flipped under a fresh counter",
            one(Box::new(move |random| {
                let mut frame = pick(&f4, random);
                frame[8..12].copy_from_slice(&random.next().to_le_bytes()[..4]);
                frame[12] = 1;
                frame
            })),
        ),
        ("forged msg1", many(|random| handshake(random, 1, MSG1_LEN))),
        ("a stranger's msg1", one(Box::new(move |_| stranger.clone()))),
        ("msg2 to nowhere", many(|random| handshake(random, 2, MSG2_LEN))),
    ]
}

fn bytes(random: &mut Random, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    random.fill(&mut bytes);
    bytes
}

/// The form of a handshake message with random content.
fn handshake(random: &mut Random, phase: u8, len: usize) -> Vec<u8> {
    let mut message = bytes(random, len);
    message[..4].copy_from_slice(&[phase, 0, (len - 4) as u8, 0]);
    message
}

/// Sends the stranger's msg1 until it is heard: the tokens of its network are few, and forged ones of
/// a flood may take them all. Returns how often it was sent.
fn meet(scene: &Scene) -> u64 {
    let heard = || scene.counters()["strangers"];
    let (before, mut sent) = (heard(), 0);
    wait_until(PATIENCE, "the stranger is heard", || {
        sent += u64::from(scene.attacker.send(at(A, 2121), &scene.stranger, None).is_ok());
        heard() > before
    });
    sent
}

/// Sends trains of kinds by chance at [`RATE`]; returns the number of datagrams sent.
fn flood(socket: &UdpSocket, time: Duration, mut kinds: Vec<(&'static str, Kind)>) -> u64 {
    let (target, mut random) = (at(A, 2121), Random(0x9e37_79b9_7f4a_7c15));
    let (start, mut sent) = (Instant::now(), 0);
    while start.elapsed() < time {
        let due = RATE * start.elapsed().as_micros() as u64 / 1_000_000;
        if sent >= due {
            std::thread::sleep(Duration::from_micros(500));
            continue;
        }
        // In a fixed order, the kind before would always take the token of the one behind it.
        let kind = random.below(kinds.len());
        let datagrams = kinds[kind].1(&mut random, MAX_SEGMENTS);
        let len = datagrams[0].len();
        let train = datagrams.concat();
        // A train is no longer than the maximum of one send.
        for part in train.chunks(len * (65_507 / len).min(MAX_SEGMENTS)) {
            if let Ok(taken) = socket.send(target, part, Some(len as u16)) {
                sent += taken.div_ceil(len) as u64;
            }
        }
    }
    sent
}

/// The answers to a flood, after the time for the last answer has passed.
fn answers(socket: &UdpSocket) -> Vec<Vec<u8>> {
    std::thread::sleep(Duration::from_millis(300));
    receive(socket)
}

#[test]
fn a_flood_from_a_stranger_changes_nothing() {
    alone(|| {
        let measured = std::env::var_os(MEASURED).is_some();
        let silent = if measured { SILENT_MEASURED } else { SILENT };
        let scene = Scene::set();
        let (a, b) = (&scene.a, &scene.b);
        // Frames to replay, the genuine msg1 among the captured ones, and buffers that have been
        // used.
        assert_pings(b, a);
        let captured = scene.captured.lock().unwrap().clone();
        receive(&scene.attacker);
        let before = scene.counters();
        let rss_before = a.usage().unwrap().rss_bytes;

        let pingers = [(a, b), (b, a)].map(|(from, to)| {
            let interval = Duration::from_millis(50);
            let options = PingOptions {
                interval,
                ..PingOptions::default()
            };
            Pinger::start(from.host(), to.identity().address, options).unwrap()
        });
        let udp = UdpFlow::start((b.host(), a.host()), address(a), UdpOptions::default()).unwrap();
        let tcp = TcpFlow::start((b.host(), a.host()), address(a), Limit::Paced(1_000_000), 1, MINUTE).unwrap();

        let start = Instant::now();
        let met = meet(&scene);
        let mut sent = flood(&scene.attacker, silent, silent_kinds(&captured, &scene.stranger));
        let silent_answers = answers(&scene.attacker);
        let tcp_bytes = tcp.received();
        let genuine: Vec<Vec<u8>> = captured.iter().filter(|d| fmp_phase(d) == Some(1)).cloned().collect();
        assert!(!genuine.is_empty(), "B did not dial");
        let replay =
            Box::new(move |random: &mut Random, count| vec![genuine[random.below(genuine.len())].clone(); count]);
        sent += flood(&scene.attacker, ANSWERED, vec![("B's msg1", replay)]);
        let replies = answers(&scene.attacker);
        let seconds = start.elapsed().as_secs_f64();

        let rss_after = a.usage().unwrap().rss_bytes;
        let (udp, tcp) = (udp.stop().unwrap(), tcp.stop().unwrap());
        let pings = pingers.map(|pinger| pinger.stop().unwrap());
        let after = scene.counters();
        let grown = |name: &str| after[name] - before[name];

        let flooded = (silent + ANSWERED).as_secs_f64();
        let received = grown("udp_rx") - grown("link_rx_packets");
        let rate = sent as f64 / flooded;
        sent += met;
        let lost = |report: &weft_lab::traffic::ProbeReport| report.lost.len() as f64 * 100.0 / report.sent as f64;
        eprintln!(
            "sent {rate:.0}/s, {received} of {sent} reached A in {seconds:.1} s; \
             lost {:.1} % and {:.1} % of pings, {:.1} % of UDP; TCP {} bytes; memory {} KiB and {:+} KiB; \
             {} answers to replays of B's msg1",
            lost(&pings[0]),
            lost(&pings[1]),
            lost(&udp),
            tcp.bytes,
            rss_before >> 10,
            (rss_after as i64 - rss_before as i64) >> 10,
            replies.len(),
        );

        assert_strict!(
            silent_answers.is_empty(),
            "{} answers: {:02x?}",
            silent_answers.len(),
            silent_answers[0]
        );
        let bucket = BURST + PER_SECOND * (seconds.ceil() as u64 + 1);
        assert_strict!(
            replies.is_empty(),
            "{} answers to a msg1 that has made its keys",
            replies.len()
        );

        // Established traffic continues.
        assert_strict!(tcp.hash_ok, "{tcp:?}");
        assert!(tcp_bytes > 0 && tcp.bytes > tcp_bytes, "{tcp:?}");
        assert!(pings.iter().all(|ping| ping.received > 0), "{pings:?}");
        if measured {
            assert!(
                rss_after <= rss_before + RSS_GROWTH,
                "{rss_before} bytes became {rss_after}"
            );
            assert!(rate >= LEAST_RATE as f64, "{rate:.0} datagrams a second");
            for ping in &pings {
                assert!(100 * ping.received >= PINGS_KEPT * ping.sent, "{ping:?}");
            }
            assert_eq!(grown("reports_dropped"), 0);
        }
        // Every received datagram is in one counter, except handshakes that the bucket admitted to
        // the core.
        let dropped = [
            "malformed",
            "unknown_index",
            "record_unknown",
            "early_frames",
            "link_open_failed",
            "link_replays",
        ];
        let dropped = dropped.map(grown).iter().sum::<u64>() + grown("handshakes_refused");
        let admitted = received.abs_diff(dropped);
        assert!(
            admitted <= bucket,
            "{received} came, {dropped} are accounted for: {after:?}"
        );
        let told = [
            "malformed",
            "unknown_index",
            "link_open_failed",
            "link_replays",
            "handshakes_refused",
        ];
        for name in told
            .into_iter()
            .chain(["handshakes_forged", "handshakes_replayed", "strangers"])
        {
            assert!(grown(name) > 0, "{name} is silent");
        }

        // No link has roamed, and both are as before.
        let path = a.peer(&b.identity().npub).unwrap().unwrap()["path"]["addr"].clone();
        assert_eq!(path, at(RELAY, 1001).to_string());
        assert_pings(a, b);
        assert_pings(b, a);
        finish(scene);
    });
}

fn finish(mut scene: Scene) {
    for daemon in [&mut scene.a, &mut scene.b] {
        assert_eq!(daemon.stop().unwrap().code(), Some(0));
        let warnings = daemon.warnings().unwrap();
        assert!(warnings.is_empty(), "{}: {warnings:#?}", daemon.identity().name);
    }
}
