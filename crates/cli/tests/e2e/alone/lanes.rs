//! Several lanes: which lane moves which packets, in which order, and with peers that have a
//! different number of lanes.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use weft_lab::daemon::Daemon;
use weft_lab::spec::{DEFAULT_PORT, NodeSpec};
use weft_lab::traffic::{Limit, TcpFlow, UdpFlow, UdpOptions};
use weft_os::assert_strict;
use weft_os::process::threads_of;
use weft_os::test_support::skip;
use weft_os::udp::{BindOptions, UdpSocket};

use crate::common::net::Net;
use crate::common::{MINUTE, Pair, Underlay, address, alone, wait_until};

/// A time limit for what should take a second or two.
const LIMIT: Duration = Duration::from_secs(30);
/// Bytes of each TCP flow.
const BULK: u64 = 8 << 20;
/// Number of frames from which a lane counts as busy.
const CARRIES: u64 = 1_000;

/// Two nodes with these numbers of lanes.
fn pair(underlay: Underlay, lanes: [u8; 2], more: impl Fn(&mut NodeSpec)) -> Pair {
    Pair::start(underlay, |spec| {
        let own = usize::from(spec.peers[0].name == "a");
        spec.settings.push(("lanes".to_owned(), i64::from(lanes[own]).into()));
        more(spec);
    })
}

fn frames(of: &Daemon, peer: &Daemon) -> Value {
    of.peer(&peer.identity().npub).unwrap().unwrap()["session"]["frames"]["kind"].clone()
}

fn wait_fast(pair: &Pair) {
    wait_until(LIMIT, "fast frames both ways", || {
        frames(&pair.a, &pair.b) == "fast" && frames(&pair.b, &pair.a) == "fast"
    });
}

/// A counter of each lane.
fn each(of: &Daemon, name: &str) -> Vec<u64> {
    let status = of.status().unwrap();
    let lanes = status["node"]["lanes"]["each"].as_array().unwrap().clone();
    lanes.iter().map(|lane| lane[name].as_u64().unwrap()).collect()
}

fn counter(of: &Daemon, name: &str) -> u64 {
    of.status().unwrap()["counters"][name].as_u64().unwrap()
}

/// TCP and UDP between two nodes in both directions at once: everything arrives, and every flow in
/// its order.
fn mixed_load(a: &Daemon, b: &Daemon) {
    let ways = [(a, b), (b, a)];
    let paced = UdpOptions {
        interval: Duration::from_micros(500),
        payload: 900,
        ..UdpOptions::default()
    };
    let (mut udp, mut tcp) = (Vec::new(), Vec::new());
    for (from, to) in ways {
        let hosts = (from.host(), to.host());
        for seed in 0..4 {
            udp.push(UdpFlow::start(hosts, address(to), paced).unwrap());
            tcp.push(TcpFlow::start(hosts, address(to), Limit::Bytes(BULK), seed, MINUTE).unwrap());
        }
    }
    for flow in tcp {
        let report = flow.join().unwrap();
        assert_strict!(report.hash_ok, "{report:?}");
        assert_eq!(report.bytes, BULK);
    }
    for flow in udp {
        let report = flow.stop().unwrap();
        assert!(report.received > 0, "{report:?}");
        assert_strict!((report.reordered, report.duplicates) == (0, 0), "{report:?}");
    }
}

/// Loads both until every one of the first `lanes` lanes of each has moved frames in both
/// directions. Flows select their lane by a hash, so the number of flows that this takes is random.
fn assert_all_carry(pair: &Pair, lanes: usize) {
    let ends = [&pair.a, &pair.b];
    let names = ["fast_tx", "fast_rx"];
    let count = || ends.map(|end| names.map(|name| each(end, name)));
    let (before, end) = (count(), Instant::now() + MINUTE);
    loop {
        mixed_load(&pair.a, &pair.b);
        let now = count();
        let idle = (0..2).flat_map(|end| (0..2).flat_map(move |name| (0..lanes).map(move |lane| (end, name, lane))));
        let idle: Vec<_> = idle
            .filter(|&(end, name, lane)| now[end][name][lane] - before[end][name][lane] < CARRIES)
            .collect();
        if idle.is_empty() {
            return;
        }
        assert!(
            Instant::now() < end,
            "end, direction and lane: {idle:?}, {before:?}, {now:?}"
        );
    }
}

#[test]
fn all_lanes_carry_fast_frames_in_order() {
    alone(|| {
        for (underlay, lanes) in [(Underlay::V4, 2), (Underlay::V6, 4)] {
            let pair = pair(underlay, [lanes; 2], |_| {});
            wait_fast(&pair);
            assert_all_carry(&pair, lanes.into());
            for end in [&pair.a, &pair.b] {
                assert_eq!(each(end, "fast_tx").len(), usize::from(lanes));
                // In each lane a probe may arrive before the keys under which it is sealed; data
                // never does.
                assert!(counter(end, "fast_unknown") <= 5 * u64::from(lanes));
                for name in ["fast_open_failed", "fast_replays", "handed_dropped", "lanes_refused"] {
                    assert_eq!(counter(end, name), 0, "{name}");
                }
            }
            pair.finish();
        }
    });
}

/// On a cable that transfers datagrams one by one the receiving kernel coalesces them again, and
/// never those of two lanes.
#[test]
fn a_kernel_that_joins_datagrams_keeps_lanes_apart() {
    alone(|| {
        for underlay in [Underlay::V4, Underlay::V6] {
            let pair = pair(underlay, [4; 2], |_| {});
            pair.link.like_a_wire().unwrap();
            wait_fast(&pair);
            assert_all_carry(&pair, 4);
            for end in [&pair.a, &pair.b] {
                assert!(counter(end, "udp_gro_receives") > CARRIES / 10);
                assert_eq!(counter(end, "foreign"), 0);
            }
            pair.finish();
        }
    });
}

/// Datagrams that were coalesced nevertheless go to their owners, and count there.
#[test]
fn datagrams_that_came_joined_are_sorted_out() {
    const LEN: usize = 100;
    const ROUNDS: u64 = 20;
    alone(|| {
        let pair = pair(Underlay::V4, [4; 2], |_| {});
        wait_fast(&pair);
        let unknown = || counter(&pair.a, "fast_unknown");
        let (before, to) = (
            unknown(),
            SocketAddr::new(Underlay::V4.addresses()[0].parse().unwrap(), DEFAULT_PORT),
        );
        let train: Vec<u8> = (0..40)
            .flat_map(|n: u8| {
                let mut frame = [n; LEN];
                frame[0] = 0xa0;
                frame[1] = 0;
                frame[2..4].copy_from_slice(&((LEN - 16) as u16).to_le_bytes());
                frame[4..8].copy_from_slice(&u32::from(n % 4).to_le_bytes());
                frame
            })
            .collect();
        let send = || {
            let socket = UdpSocket::bind(SocketAddr::from(([0; 4], 0)), BindOptions::default()).unwrap();
            for _ in 0..ROUNDS {
                assert_eq!(socket.send(to, &train, Some(LEN as u16)).unwrap(), train.len());
                std::thread::sleep(Duration::from_millis(10));
            }
        };
        pair.b.host().run(send).unwrap();
        // Ten in forty name each lane, or an index without keys. The first lane is the one that
        // receives.
        wait_until(LIMIT, "every datagram at its owner", || {
            unknown() - before >= 40 * ROUNDS
        });
        assert_eq!(counter(&pair.a, "foreign"), 30 * ROUNDS);
        // Forty are processed in two parts of at most 32: two batches for each of the other lanes,
        // in addition to packets that went through the first lane while there were no fast frames.
        let packets = counter(&pair.a, "handed_out");
        assert_eq!(counter(&pair.a, "handed_in"), 2 * 3 * ROUNDS + packets);
        assert_eq!(counter(&pair.a, "handed_dropped"), 0);
        pair.finish();
    });
}

#[test]
fn the_end_with_fewer_lanes_sets_their_number() {
    alone(|| {
        // A node of a version before there were several lanes announces one, as the last of these
        // does.
        for lanes in [[4, 2], [2, 1]] {
            let pair = pair(Underlay::V4, lanes, |_| {});
            wait_fast(&pair);
            let shared = lanes[1].into();
            assert_all_carry(&pair, shared);
            let more = each(&pair.a, "fast_tx").split_off(shared);
            assert!(more.iter().all(|frames| *frames == 0), "{more:?}");
            // Packets from their queues went through the first lane.
            assert!(counter(&pair.a, "handed_out") > 0);
            assert_eq!(counter(&pair.a, "handed_dropped"), 0);
            pair.finish();
        }
    });
}

#[test]
fn fips_frames_go_by_the_first_lane_in_order() {
    alone(|| {
        let pair = pair(Underlay::V4, [2, 4], |spec| {
            spec.settings.push(("fast.enabled".to_owned(), false.into()));
        });
        mixed_load(&pair.a, &pair.b);
        for (end, other) in [(&pair.a, &pair.b), (&pair.b, &pair.a)] {
            assert_eq!(frames(end, other), "fips");
            assert_by_the_first(end);
        }
        pair.finish();
    });
}

/// Packets that a node's interface has passed to it, as the kernel counts them.
fn given_by_tun(of: &Daemon) -> u64 {
    let read = || std::fs::read_to_string("/proc/thread-self/net/dev").unwrap();
    let devices = of.host().run(read).unwrap();
    let own = devices.lines().find_map(|line| line.trim().strip_prefix("weft0:"));
    own.unwrap().split_whitespace().nth(9).unwrap().parse().unwrap()
}

/// All received frames were for the first lane, and packets that other lanes read went through it.
fn assert_by_the_first(end: &Daemon) {
    wait_until(LIMIT, "what was handed over", || counter(end, "handed_in") > 0);
    assert!(counter(end, "handed_out") > 0);
    assert_eq!(counter(end, "handed_dropped"), 0);
    // Two lanes handled them.
    wait_until(LIMIT, "each packet counted once", || {
        counter(end, "tun_rx") == given_by_tun(end)
    });
    let received = each(end, "udp_rx");
    assert!(
        received[0] > CARRIES && received[1..].iter().all(|n| *n == 0),
        "{received:?}"
    );
}

#[test]
fn through_a_relay_all_goes_by_the_first_lane_in_order() {
    alone(|| {
        let mut net = Net::new(&["a", "b", "c"]);
        net.keep_apart(&["a", "b"], true);
        for (name, dials, knows) in [("c", &[][..], &[][..]), ("a", &["c"], &["b"]), ("b", &["c"], &["a"])] {
            let mut spec = net.knowing(dials, knows);
            spec.settings.push(("lanes".to_owned(), 2.into()));
            net.start(name, &spec);
        }
        net.reached_within(LIMIT, "a", "b");
        net.reached_within(LIMIT, "b", "a");
        wait_until(LIMIT, "fast frames through the relay", || {
            [("a", "b"), ("b", "a")].iter().all(|(from, to)| {
                let kind = net.peer(from, to)["session"]["frames"]["kind"].clone();
                kind == "relayed"
            })
        });
        mixed_load(net.node("a"), net.node("b"));
        for name in ["a", "b"] {
            assert_by_the_first(net.node(name));
        }
        assert!(counter(net.node("c"), "relayed") > CARRIES);
        net.finish();
    });
}

/// An end that restarts, and one whose address changes while packets flow.
#[test]
fn restarts_and_moves_are_followed_by_every_lane() {
    alone(|| {
        let mut pair = pair(Underlay::V4, [2; 2], |_| {});
        wait_fast(&pair);
        assert_all_carry(&pair, 2);
        assert_eq!(pair.b.stop().unwrap().code(), Some(0));
        pair.b.restart().unwrap();
        pair.b.wait_ready(LIMIT).unwrap();
        pair.wait_payload();
        wait_fast(&pair);
        assert_all_carry(&pair, 2);

        let flows = flows(&pair);
        let moved = "192.0.2.77";
        let [old, new] = [Underlay::V4.addresses()[1], moved].map(|address| Underlay::V4.cidr(address));
        pair.link.b().change_address(&old, &new).unwrap();
        let so_far: Vec<u64> = flows.iter().map(TcpFlow::received).collect();
        for (flow, so_far) in flows.iter().zip(so_far) {
            wait_until(MINUTE, "TCP after the move", || flow.received() > so_far + 1_000_000);
        }
        for flow in flows {
            assert_strict!(flow.stop().unwrap().hash_ok, "the content of a flow changed");
        }
        assert_all_carry(&pair, 2);
        let status = pair.a.peer(&pair.b.identity().npub).unwrap().unwrap();
        let path = status["path"]["addr"].as_str().unwrap();
        assert!(path.contains(moved), "A still sends to {path}");
        pair.finish();
    });
}

/// Eight streams in each direction, until they are dropped.
fn flows(pair: &Pair) -> Vec<TcpFlow> {
    let ways = [(&pair.a, &pair.b), (&pair.b, &pair.a)];
    let start = |(seed, (from, to)): (u64, (&Daemon, &Daemon))| {
        let hosts = (from.host(), to.host());
        TcpFlow::start(hosts, address(to), Limit::Stopped, seed, 3 * MINUTE).unwrap()
    };
    (0..).zip(ways.into_iter().cycle().take(16)).map(start).collect()
}

/// The nice values of a node's packet threads.
fn nice(of: &Daemon) -> Vec<i32> {
    let threads = threads_of(of.pid()).unwrap();
    let lanes = threads.iter().filter(|thread| thread.name.starts_with("weft-lane"));
    let stat = |tid| std::fs::read_to_string(format!("/proc/{}/task/{tid}/stat", of.pid())).unwrap();
    // proc(5): field 19, and the name is the second, in parentheses.
    let nice = |stat: String| {
        stat.rsplit_once(')')
            .unwrap()
            .1
            .split_whitespace()
            .nth(16)
            .unwrap()
            .parse()
    };
    lanes.map(|thread| nice(stat(thread.tid)).unwrap()).collect()
}

/// Sends the first node trains of datagrams that were never sealed.
fn flood_with_rubbish(pair: &Pair, time: Duration) {
    const LEN: usize = 1_400;
    let to = SocketAddr::new(Underlay::V4.addresses()[0].parse().unwrap(), DEFAULT_PORT);
    let before = counter(&pair.a, "malformed");
    let send = || {
        let socket = UdpSocket::bind(SocketAddr::from(([0; 4], 0)), BindOptions::default()).unwrap();
        let (train, end, mut sent) = ([0xff; 40 * LEN], Instant::now() + time, 0);
        while Instant::now() < end {
            assert_eq!(socket.send(to, &train, Some(LEN as u16)).unwrap(), train.len());
            sent += 40;
            std::thread::sleep(Duration::from_millis(5));
        }
        sent
    };
    let sent = pair.b.host().run(send).unwrap();
    wait_until(LIMIT, "all of it seen", || {
        counter(&pair.a, "malformed") == before + sent
    });
}

#[test]
fn packet_threads_go_first_while_they_move_bulk_if_they_may() {
    alone(|| {
        for wished in [true, false] {
            let pair = pair(Underlay::V4, [1; 2], |spec| {
                spec.settings.push(("prefer_lanes".to_owned(), wished.into()));
            });
            wait_fast(&pair);
            let own = nice(&pair.a);
            let hosts = (pair.a.host(), pair.b.host());
            let flow = TcpFlow::start(hosts, address(&pair.b), Limit::Stopped, 1, 3 * MINUTE).unwrap();
            wait_until(MINUTE, "TCP", || flow.received() > 1_000_000);
            let state = pair.a.status().unwrap()["node"]["lanes"]["preferred"].clone();
            match (wished, state.as_str().unwrap()) {
                (true, "on") => wait_until(LIMIT, "a lower nice value", || nice(&pair.a) == [-10]),
                (true, "refused") | (false, "off") => {
                    // Whenever these are published, the lane checks how much it moves.
                    for _ in 0..2 {
                        let before = counter(&pair.a, "fast_tx");
                        wait_until(LIMIT, "a sample", || counter(&pair.a, "fast_tx") != before);
                    }
                    assert_eq!(nice(&pair.a), own);
                }
                (_, state) => panic!("{wished} became {state}"),
            }
            assert_strict!(flow.stop().unwrap().hash_ok, "the content of a flow changed");
            wait_until(LIMIT, "its own nice value again", || nice(&pair.a) == own);
            // For longer than the time after which traffic counts as bulk.
            flood_with_rubbish(&pair, Duration::from_millis(600));
            assert_eq!(nice(&pair.a), own, "what does not open is bulk");
            pair.finish();
        }
    });
}

/// Whether strace is installed; reports the skipped test if not.
pub(crate) fn has_strace() -> bool {
    let found = Command::new("strace").arg("-V").stdout(Stdio::null()).status();
    if found.is_err() {
        skip("there is no strace");
    }
    found.is_ok()
}

/// Traces the system calls of a daemon.
struct Strace {
    child: Child,
    account: PathBuf,
}

impl Strace {
    /// Returns when every thread is traced.
    fn attach(to: &Daemon, options: &[&str]) -> Self {
        let account = to.identity().state.join("strace");
        let mut strace = Command::new("strace");
        strace.arg("-f").args(options).arg("-p").arg(to.pid().to_string());
        strace.arg("-o").arg(&account).stderr(Stdio::null());
        let child = strace.spawn().unwrap();
        wait_until(MINUTE, "every thread watched", || {
            let status = |tid| std::fs::read_to_string(format!("/proc/{}/task/{tid}/status", to.pid())).unwrap();
            let threads = threads_of(to.pid()).unwrap();
            threads
                .iter()
                .all(|thread| !status(thread.tid).contains("TracerPid:\t0\n"))
        });
        Self { child, account }
    }

    /// Returns its output.
    fn finish(mut self) -> String {
        let stopped = Command::new("kill")
            .args(["-INT", &self.child.id().to_string()])
            .status();
        assert!(stopped.unwrap().success());
        self.child.wait().unwrap();
        std::fs::read_to_string(&self.account).unwrap()
    }
}

/// On an idle path a lane waits for packets without a timeout, which would be a timer that is set
/// and cancelled.
#[test]
#[ignore = "measures: .ci/long perf"]
fn a_lane_waits_for_packets_without_a_timer() {
    if !has_strace() {
        return;
    }
    alone(|| {
        let pair = pair(Underlay::V4, [1; 2], |_| {});
        wait_fast(&pair);
        let sparse = UdpOptions {
            interval: Duration::from_millis(5),
            payload: 64,
            ..UdpOptions::default()
        };
        let hosts = (pair.a.host(), pair.b.host());
        let flow = UdpFlow::start(hosts, address(&pair.b), sparse).unwrap();
        let lane = threads_of(pair.a.pid())
            .unwrap()
            .into_iter()
            .find(|thread| thread.name.starts_with("weft-lane"))
            .unwrap();
        let strace = Strace::attach(&pair.a, &["-e", "trace=epoll_pwait,timerfd_settime"]);
        let before = counter(&pair.a, "fast_tx");
        wait_until(MINUTE, "packets, one by one", || {
            counter(&pair.a, "fast_tx") > before + 400
        });
        let account = strace.finish();

        let own = account
            .lines()
            .filter(|line| line.split_whitespace().next() == Some(&lane.tid.to_string()));
        let timers = own.clone().filter(|line| line.contains("timerfd_settime(")).count();
        // A call that others interrupt in the log has two lines, the latter with the timeout.
        let waits: Vec<_> = own
            .filter(|line| line.contains("epoll_pwait") && line.contains(") = "))
            .collect();
        let timeouts = waits.iter().filter(|line| !line.contains(", -1, NULL, ")).count();
        assert!(waits.len() > 100, "{} waits: {account}", waits.len());
        assert_eq!(timeouts, 0, "{account}");
        // One for each quarter of a second, in which fifty packets are sent.
        assert!(
            timers * 10 < waits.len(),
            "{timers} timers beside {} waits",
            waits.len()
        );
        let report = flow.stop().unwrap();
        assert_strict!((report.reordered, report.duplicates) == (0, 0), "{report:?}");
        pair.finish();
    });
}

/// Under load no lane takes another's lock, and none hands packets to another: a wait would show as
/// a futex call, and a handover in the counters.
#[test]
#[ignore = "measures: .ci/long perf"]
fn loaded_lanes_leave_each_other_alone() {
    if !has_strace() {
        return;
    }
    alone(|| {
        let pair = pair(Underlay::V4, [2; 2], |_| {});
        wait_fast(&pair);
        assert_all_carry(&pair, 2);
        let flows = flows(&pair);
        for flow in &flows {
            wait_until(MINUTE, "TCP", || flow.received() > 1_000_000);
        }
        let moved = || ["fast_tx", "fast_rx"].map(|name| each(&pair.a, name));
        let exchanged = || ["handed_out", "handed_in", "foreign"].map(|name| counter(&pair.a, name));
        let strace = Strace::attach(&pair.a, &["-c", "-e", "trace=futex,read,writev,sendmsg,recvmsg"]);
        let (before, exchanged_before) = (moved(), exchanged());
        let busy = |now: &[Vec<u64>; 2]| {
            let lanes = now.iter().flatten().zip(before.iter().flatten());
            lanes.into_iter().all(|(now, before)| now - before > 20 * CARRIES)
        };
        wait_until(MINUTE, "every lane under load while it is watched", || busy(&moved()));
        let account = strace.finish();
        let calls = |name: &str| -> u64 {
            let line = account
                .lines()
                .find(|line| line.split_whitespace().last() == Some(name));
            line.map_or(0, |line| line.split_whitespace().nth(3).unwrap().parse().unwrap())
        };
        let packets: u64 = ["read", "writev", "sendmsg", "recvmsg"].map(calls).iter().sum();
        assert!(packets > CARRIES, "{account}");
        eprintln!("{} futex calls beside {packets} that move packets", calls("futex"));
        // Four times a second a lane publishes its counters, and another thread may be reading
        // them.
        assert!(calls("futex") * 100 < packets, "{account}");
        assert_eq!(exchanged(), exchanged_before);
        for flow in flows {
            assert_strict!(flow.stop().unwrap().hash_ok, "the content of a flow changed");
        }
        pair.finish();
    });
}

/// Phases follow in place every 2,000 frames and rekeys every few seconds, in each lane by itself,
/// while packets flow.
#[test]
fn keys_change_in_every_lane_without_a_gap() {
    alone(|| {
        let pair = pair(Underlay::V4, [2; 2], |spec| {
            spec.rekey_s = 3;
            spec.settings.push(("fast.phase_frames".to_owned(), 2_000.into()));
        });
        wait_fast(&pair);
        assert_all_carry(&pair, 2);
        let rekeys = || pair.a.peer(&pair.b.identity().npub).unwrap().unwrap()["session"]["rekeys"].as_u64();
        let (start, end) = (rekeys(), Instant::now() + MINUTE);
        while rekeys() < start.map(|so_far| so_far + 2) {
            assert!(Instant::now() < end, "no new keys");
            mixed_load(&pair.a, &pair.b);
        }
        assert_all_carry(&pair, 2);
        for end in [&pair.a, &pair.b] {
            for name in [
                "fast_open_failed",
                "epoch_spent",
                "session_open_failed",
                "handed_dropped",
            ] {
                assert_eq!(counter(end, name), 0, "{name}");
            }
            let frames = each(end, "fast_tx");
            assert!(frames.iter().all(|frames| *frames > 2 * 2_000), "{frames:?}");
        }
        pair.finish();
    });
}
