//! A bench run is valid only if it measured what it claims. The tests try each kind of violation. Those
//! that measure, or load the machine for long, run in `.ci/long perf`.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::Path;
use std::time::Duration;

use weft_lab::bench::arm::Arm;
use weft_lab::bench::bound::By;
use weft_lab::bench::conditions::{Conditions, Queue, Regime};
use weft_lab::bench::driver::{self, Subject, Tunnel};
use weft_lab::bench::matrix::{CASES, Case};
use weft_lab::bench::measure::{self, Figures, RunError, converge};
use weft_lab::bench::stage::{Cable, Stage, set_congestion};
use weft_lab::cable::Link;
use weft_lab::world::World;
use weft_os::netlink::{Netlink, Route};
use weft_os::poll::{Events, Interest, Poller};
use weft_os::process::usage_of;
use weft_os::test_support::{in_namespaces, wait_until};
use weft_os::udp::{BindOptions, RECEIVE_BUFFER_LEN, UdpCounters, UdpSocket, is_too_long};

const LIMIT: Duration = Duration::from_secs(60);

fn case(name: &str) -> Case {
    CASES.into_iter().find(|case| case.name == name).unwrap()
}

fn measure(stage: &Stage, tunnel: &Tunnel, case: &Case, seconds: u32) -> Result<Figures, RunError> {
    measure::measure(stage, tunnel, case, &case.plan(seconds, "reno"))
}

/// Two hosts, a cable, and no tunnel.
fn direct() -> (World, Stage, Tunnel) {
    direct_in(&Conditions::default())
}

fn direct_in(conditions: &Conditions) -> (World, Stage, Tunnel) {
    let world = World::new().unwrap();
    let stage = Stage::set(&world, world.directory().join("stage"), conditions).unwrap();
    let arm: Arm = "direct".parse().unwrap();
    let nowhere = Path::new("/nowhere");
    let subject = Subject {
        arm: &arm,
        program: nowhere,
        weft: nowhere,
    };
    let tunnel = driver::start(&subject, &stage).unwrap();
    (world, stage, tunnel)
}

/// The plain cable of two hosts.
fn link(stage: &Stage) -> &Link {
    match &stage.cables[0].cable {
        Cable::Plain(link) => link,
        Cable::Emulated(_) => panic!("the cable is emulated"),
    }
}

fn check_tcp(figures: &Figures) {
    assert!(figures.mbit_s > 0.0 && figures.retransmits.is_some(), "{figures:?}");
    assert!(figures.loaded.received > 0 && figures.idle.received > 0, "{figures:?}");
    let cpu = (figures.cpu_s, figures.cpu_s_per_gb);
    assert_eq!(cpu, ([0.0; 2], None), "there is no tunnel");
}

fn check_quic(figures: &Figures) {
    let packets = figures.packets_s.unwrap();
    assert!(figures.mbit_s > 0.0 && packets > 0.0, "{figures:?}");
    assert!(figures.loss.unwrap() < 1.0, "{figures:?}");
}

#[test]
fn a_run_has_figures_both_ways() {
    in_namespaces(|| {
        let (_world, stage, tunnel) = direct();
        converge(&stage, &tunnel, LIMIT).unwrap();
        let figures = measure(&stage, &tunnel, &case("tcp"), 1).unwrap();
        check_tcp(&figures);
        assert_eq!(figures.mtu, tunnel.mtu);
        check_quic(&measure(&stage, &tunnel, &case("quic-back"), 1).unwrap());
    });
}

#[test]
#[ignore = "measures: .ci/long perf"]
fn every_load_has_figures_both_ways() {
    in_namespaces(|| {
        let (_world, stage, tunnel) = direct();
        converge(&stage, &tunnel, LIMIT).unwrap();
        for name in ["tcp", "tcp-back"] {
            let figures = measure(&stage, &tunnel, &case(name), 1).unwrap();
            check_tcp(&figures);
            assert!(figures.mbit_s > 1.0, "{figures:?}");
        }
        for name in ["quic", "quic-back"] {
            let figures = measure(&stage, &tunnel, &case(name), 1).unwrap();
            check_quic(&figures);
            let bits = figures.packets_s.unwrap() * 1200.0 * 8e-6;
            assert!(figures.mbit_s > 1.0 && bits > 1.0, "{figures:?}");
        }
        let figures = measure(&stage, &tunnel, &case("pps64-back"), 1).unwrap();
        let packets = figures.packets_s.unwrap();
        assert!(packets > 10.0 && figures.loss.is_some(), "{figures:?}");
    });
}

#[test]
fn a_cable_like_a_wire_carries_datagrams_one_by_one() {
    in_namespaces(|| {
        for (wire, at_least, at_most) in [(false, 1, 10), (true, 40, 50)] {
            let (_world, stage, _tunnel) = direct_in(&Conditions {
                wire,
                ..Conditions::default()
            });
            let what = format!("a train passes in {at_least} to {at_most} packets, and arrives in part together");
            wait_until(LIMIT, &what, || {
                let (packets, single) = pass_a_train(&stage);
                assert!(packets >= at_least, "{packets} packets, wire: {wire}");
                if packets > at_most || single >= 20 {
                    eprintln!("{packets} packets, {single} received one by one");
                }
                // Few other packets are sent meanwhile: a neighbour query, and IPv6's own. Datagrams that
                // arrive together are coalesced again; those of a busy machine may arrive one by one.
                packets <= at_most && single < 20
            });
        }
    });
}

/// Sends forty datagrams at once. Returns how many packets the first host has sent meanwhile, and how
/// many of the datagrams were received one by one.
fn pass_a_train(stage: &Stage) -> (u64, u64) {
    let bind = |end: usize| {
        let address = format!("{}:0", stage.underlay(end).unwrap()).parse().unwrap();
        let bind = || UdpSocket::bind(address, BindOptions::default()).unwrap();
        stage.hosts[end].run(bind).unwrap()
    };
    let (from, to) = (bind(0), bind(1));
    let before = sent(stage);
    assert_eq!(from.send(to.local_address(), &[7; 40_000], Some(1000)).unwrap(), 40_000);
    assert!(from.gso(), "a wire takes super-datagrams as well");
    let arrived = receive(&to, 40);
    (sent(stage) - before, arrived.plain_receives)
}

/// Receives `datagrams` datagrams, in any combination of coalesced and single ones.
fn receive(socket: &UdpSocket, datagrams: u64) -> UdpCounters {
    let (poller, mut events) = (Poller::new().unwrap(), Events::with_capacity(1));
    poller.add(socket, 0, Interest::Readable).unwrap();
    while socket.counters().segments_received < datagrams {
        assert_eq!(
            poller.wait(&mut events, Some(LIMIT)).unwrap(),
            1,
            "{:?}",
            socket.counters()
        );
        socket.recv(&mut [0; RECEIVE_BUFFER_LEN]).unwrap();
    }
    socket.counters()
}

/// Packets that the first host's interface has sent.
fn sent(stage: &Stage) -> u64 {
    let read = || std::fs::read_to_string("/proc/thread-self/net/dev").unwrap();
    let text = stage.hosts[0].run(read).unwrap();
    let name = format!("{}:", link(stage).a().name());
    let line = text
        .lines()
        .find_map(|line| line.trim_start().strip_prefix(&name))
        .unwrap();
    // Eight columns of received figures, then sent bytes and packets.
    line.split_whitespace().nth(9).unwrap().parse().unwrap()
}

#[test]
fn traffic_that_goes_another_way_voids_the_run() {
    in_namespaces(|| {
        let (_world, stage, mut tunnel) = direct();
        converge(&stage, &tunnel, LIMIT).unwrap();
        tunnel.ends[1].device = "lo".to_owned();
        match measure(&stage, &tunnel, &case("tcp"), 1) {
            Err(RunError::WrongRoute { device, host, .. }) => assert_eq!((device.as_str(), host.as_str()), ("lo", "b")),
            other => panic!("{other:?}"),
        }
    });
}

/// [`direct`] with an MTU of 1,200 bytes.
fn narrow() -> (World, Stage, Tunnel) {
    let (world, stage, tunnel) = direct();
    converge(&stage, &tunnel, LIMIT).unwrap();
    for (host, end) in stage.hosts.iter().zip(&tunnel.ends) {
        let narrow = |netlink: &mut Netlink| {
            let index = netlink.interface(&end.device)?.index;
            netlink.set_mtu(index, 1200)
        };
        host.netlink(narrow).unwrap();
    }
    (world, stage, tunnel)
}

#[test]
#[ignore = "measures: .ci/long perf"]
fn a_path_too_narrow_for_quic_carries_other_datagrams() {
    in_namespaces(|| {
        let (_world, stage, tunnel) = narrow();
        measure(&stage, &tunnel, &case("udp500"), 1).unwrap();
    });
}

/// QUIC requires that datagrams of 1,200 bytes pass without fragmentation.
#[test]
fn a_path_too_narrow_for_quic_voids_its_case() {
    in_namespaces(|| {
        let (_world, stage, tunnel) = narrow();
        let error = measure(&stage, &tunnel, &case("quic"), 1).unwrap_err();
        assert!(error.to_string().contains("do not pass whole"), "{error}");
        let error = measure(&stage, &tunnel, &case("quic-back"), 3).unwrap_err();
        assert!(error.to_string().contains("do not pass whole"), "{error}");
    });
}

/// Invalid datagrams are sent to an open port, and a host without one is reported.
#[test]
#[ignore = "measures: .ci/long perf"]
fn rubbish_comes_to_open_ports() {
    in_namespaces(|| {
        let (_world, stage, tunnel) = direct();
        converge(&stage, &tunnel, LIMIT).unwrap();
        let error = measure(&stage, &tunnel, &case("tcp-rubbish"), 1).unwrap_err();
        assert!(matches!(error, RunError::NoRubbish), "{error}");
        let open = stage.hosts[1]
            .run(|| std::net::UdpSocket::bind(("10.96.0.2", 4000)).unwrap())
            .unwrap();
        let figures = measure(&stage, &tunnel, &case("tcp-rubbish"), 1).unwrap();
        assert!(figures.mbit_s > 0.0);
        open.set_nonblocking(true).unwrap();
        let mut buffer = [0; 2000];
        assert!(open.recv(&mut buffer).unwrap() >= 64);
    });
}

#[test]
fn a_tunnel_that_carries_nothing_is_not_measured() {
    in_namespaces(|| {
        let (_world, stage, tunnel) = direct();
        link(&stage).cut().unwrap();
        let error = converge(&stage, &tunnel, Duration::from_millis(100)).unwrap_err();
        assert!(matches!(error, RunError::NotConverged { .. }), "{error:?}");
        link(&stage).heal().unwrap();
        converge(&stage, &tunnel, LIMIT).unwrap();
    });
}

/// Another cable with a route over it appears while the load runs: too little goes over the first.
#[test]
#[ignore = "measures: .ci/long perf"]
fn a_route_that_changes_during_a_run_voids_it() {
    in_namespaces(|| {
        let (world, stage, tunnel) = direct();
        converge(&stage, &tunnel, LIMIT).unwrap();
        let (a, b) = (&stage.hosts[0], &stage.hosts[1]);
        let other = world.link((a, &["10.97.0.1/24"]), (b, &["10.97.0.2/24"])).unwrap();
        std::thread::scope(|scope| {
            let run = scope.spawn(|| measure(&stage, &tunnel, &case("tcp"), 8));
            std::thread::sleep(Duration::from_secs(3));
            let route = Route::to_interface(tunnel.ends[1].address, 32, other.a().index());
            a.netlink(|netlink| netlink.add_route(route)).unwrap();
            let error = run.join().unwrap().unwrap_err();
            assert!(matches!(error, RunError::WrongRoute { .. }), "{error:?}");
        });
    });
}

#[test]
#[ignore = "measures: .ci/long perf"]
fn a_server_that_goes_away_voids_the_run() {
    in_namespaces(|| {
        let (_world, stage, tunnel) = direct();
        converge(&stage, &tunnel, LIMIT).unwrap();
        std::thread::scope(|scope| {
            let run = scope.spawn(|| measure(&stage, &tunnel, &case("tcp"), 15));
            std::thread::sleep(Duration::from_secs(3));
            link(&stage).cut().unwrap();
            let error = run.join().unwrap().unwrap_err();
            assert!(matches!(error, RunError::Client(_)), "{error:?}");
        });
    });
}

#[test]
fn a_tunnel_whose_process_has_ended_voids_the_run() {
    in_namespaces(|| {
        let (_world, stage, mut tunnel) = direct();
        converge(&stage, &tunnel, LIMIT).unwrap();
        let mut child = std::process::Command::new("cat")
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        tunnel.ends[0].processes.push(child.id());
        measure(&stage, &tunnel, &case("tcp"), 1).unwrap();
        // Killed, and not waited for, like a tunnel's process that ends by itself; then waited for.
        child.kill().unwrap();
        wait_until(LIMIT, "the killed process has no memory", || {
            usage_of(child.id()).ok().is_none_or(|usage| usage.rss_bytes == 0)
        });
        for _ in 0..2 {
            let error = measure(&stage, &tunnel, &case("tcp"), 1).unwrap_err();
            assert!(matches!(error, RunError::Ended), "{error:?}");
            child.wait().unwrap();
        }
    });
}

/// What a regime says, a report shows: the round trip, the loss and the rate.
#[test]
#[ignore = "measures: .ci/long perf"]
fn a_regime_is_what_the_figures_show() {
    in_namespaces(|| {
        let conditions = Conditions {
            regime: Regime {
                delay: Duration::from_millis(10),
                loss: 0.05,
                rate: Some(50_000_000),
                queue: Some(Queue::Time(Duration::from_millis(20))),
            },
            ..Conditions::default()
        };
        let (_world, stage, tunnel) = direct_in(&conditions);
        converge(&stage, &tunnel, LIMIT).unwrap();
        let tcp = measure(&stage, &tunnel, &case("tcp"), 2).unwrap();
        assert!((20.0..100.0).contains(&tcp.idle.p50_ms), "{tcp:?}");
        assert!(tcp.mbit_s > 0.1 && tcp.mbit_s < 50.0, "{tcp:?}");
        assert!(tcp.cable_lost > 0 && tcp.retransmits.unwrap() > 0, "{tcp:?}");
        // Ten times the rate: what passes is the rate, and the queue stays full.
        let udp = measure(&stage, &tunnel, &case("udp500"), 2).unwrap();
        assert!((20.0..50.0).contains(&udp.mbit_s), "{udp:?}");
        assert!(udp.cable_overflowed > 1000 && udp.loss.unwrap() > 0.5, "{udp:?}");
        assert!(udp.loaded.p50_ms > 35.0, "{udp:?}");
        let bound = udp.bound.unwrap();
        assert!(
            matches!(bound.by, By::PathRate | By::Machine | By::Load | By::Cable),
            "{bound:?}"
        );
        let media = udp.media.unwrap();
        assert!(media.received < media.sent && media.longest_gap_ms > 30.0, "{media:?}");
    });
}

/// Without impairments a media stream has no gap that a viewer notices; an outage is one.
#[test]
#[ignore = "measures: .ci/long perf"]
fn a_media_stream_shows_an_outage() {
    in_namespaces(|| {
        let (_world, stage, tunnel) = direct();
        converge(&stage, &tunnel, LIMIT).unwrap();
        let calm = measure(&stage, &tunnel, &case("udp500"), 1).unwrap().media.unwrap();
        assert_eq!(calm.sent, calm.received, "{calm:?}");
        assert!((16.0..500.0).contains(&calm.longest_gap_ms), "{calm:?}");
        std::thread::scope(|scope| {
            let run = scope.spawn(|| measure(&stage, &tunnel, &case("udp500"), 4));
            std::thread::sleep(Duration::from_secs(2));
            link(&stage).cut().unwrap();
            std::thread::sleep(Duration::from_secs(1));
            link(&stage).heal().unwrap();
            let media = run.join().unwrap().unwrap().media.unwrap();
            assert!((1000.0..3000.0).contains(&media.longest_gap_ms), "{media:?}");
        });
    });
}

#[test]
fn several_clients_share_one_relay() {
    in_namespaces(|| {
        let conditions = Conditions {
            relayed: true,
            clients: 2,
            ..Conditions::default()
        };
        let (_world, stage, tunnel) = direct_in(&conditions);
        assert_eq!((stage.hosts.len(), stage.cables.len(), tunnel.ends.len()), (4, 3, 3));
        converge(&stage, &tunnel, LIMIT).unwrap();
        let relay = stage.relay().unwrap();
        let at_relay = |stage: &Stage| {
            let read = || std::fs::read_to_string("/proc/thread-self/net/snmp").unwrap();
            let text = stage.hosts[relay].run(read).unwrap();
            let line = text.lines().filter(|line| line.starts_with("Ip:")).nth(1).unwrap();
            // The sixth figure is ForwDatagrams.
            line.split_whitespace().nth(6).unwrap().parse::<u64>().unwrap()
        };
        for name in ["tcp", "tcp-back"] {
            let before = at_relay(&stage);
            // A client without payload, or a server that got less than all, would void the run.
            let figures = measure(&stage, &tunnel, &case(name), 1).unwrap();
            assert!(figures.mbit_s > 0.0 && figures.seconds.len() <= 1, "{figures:?}");
            // A receiver at the server may have stopped just before its only sample.
            assert!(figures.seconds.len() == 1 || name == "tcp", "{figures:?}");
            assert!(at_relay(&stage) > before + 100, "the relay forwards");
        }
    });
}

/// A datagram of the MTU passes whole, one of a byte more does not.
#[test]
fn an_mtu_is_that_of_packets() {
    in_namespaces(|| {
        let conditions = Conditions {
            mtu: Some(1300),
            ..Conditions::default()
        };
        let (_world, stage, tunnel) = direct_in(&conditions);
        converge(&stage, &tunnel, LIMIT).unwrap();
        assert_eq!(tunnel.mtu, 1300);
        for (from, to) in [(0, 1), (1, 0)] {
            let bind = |end: usize| {
                let address = format!("{}:0", stage.underlay(end).unwrap()).parse().unwrap();
                stage.hosts[end]
                    .run(|| UdpSocket::bind(address, BindOptions::default()).unwrap())
                    .unwrap()
            };
            let (from, to) = (bind(from), bind(to));
            let headers = 20 + 8;
            assert_eq!(
                from.send(to.local_address(), &[7; 1300 - 28], None).unwrap(),
                1300 - headers
            );
            let error = from.send(to.local_address(), &[7; 1301 - 28], None).unwrap_err();
            assert!(is_too_long(&error), "{error}");
            assert_eq!(receive(&to, 1).segments_received, 1);
        }
    });
}

/// `reno` is one that every namespace accepts.
#[test]
fn a_congestion_control_is_that_of_the_namespace() {
    in_namespaces(|| {
        let conditions = Conditions {
            congestion: "reno".to_owned(),
            ..Conditions::default()
        };
        let (_world, stage, _tunnel) = direct_in(&conditions);
        for host in &stage.hosts {
            let path = "/proc/sys/net/ipv4/tcp_congestion_control";
            let found = host.run(|| std::fs::read_to_string(path).unwrap()).unwrap();
            assert_eq!(found.trim(), "reno");
        }
        assert_eq!(set_congestion(&stage.hosts[0], "carrier-pigeon").unwrap(), "reno");
    });
}
