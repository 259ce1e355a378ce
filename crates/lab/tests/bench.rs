//! A bench run is valid only if it measured what it claims. The tests try each kind of violation.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::Path;
use std::time::Duration;

use weft_lab::bench::arm::Arm;
use weft_lab::bench::driver::{self, Stage, Tunnel, UNDERLAY};
use weft_lab::bench::matrix::{CASES, Case};
use weft_lab::bench::measure::{self, Figures, RunError, converge};
use weft_lab::world::World;
use weft_os::netlink::{Netlink, Route};
use weft_os::poll::{Events, Interest, Poller};
use weft_os::test_support::in_namespaces;
use weft_os::udp::{BindOptions, RECEIVE_BUFFER_LEN, UdpCounters, UdpSocket};

const LIMIT: Duration = Duration::from_secs(20);

fn case(name: &str) -> Case {
    CASES.into_iter().find(|case| case.name == name).unwrap()
}

fn measure(stage: &Stage, tunnel: &Tunnel, case: &Case, seconds: u32) -> Result<Figures, RunError> {
    measure::measure(stage, tunnel, case, &case.plan(seconds, "cubic"))
}

/// Two hosts, a cable, and no tunnel.
fn direct() -> (World, Stage, Tunnel) {
    direct_over(false)
}

fn direct_over(wire: bool) -> (World, Stage, Tunnel) {
    let world = World::new().unwrap();
    let stage = Stage::set(&world, world.directory().join("stage"), wire).unwrap();
    let arm: Arm = "direct".parse().unwrap();
    let tunnel = driver::start(&arm, Path::new("/nowhere"), Path::new("/nowhere"), &stage).unwrap();
    (world, stage, tunnel)
}

#[test]
fn a_run_has_figures_both_ways() {
    in_namespaces(|| {
        let (_world, stage, tunnel) = direct();
        converge(&stage, &tunnel, LIMIT).unwrap();
        for name in ["tcp", "tcp-back"] {
            let figures = measure(&stage, &tunnel, &case(name), 1).unwrap();
            assert!(figures.mbit_s > 1.0 && figures.retransmits.is_some(), "{figures:?}");
            assert!(figures.loaded.received > 0 && figures.idle.received > 0, "{figures:?}");
            assert_eq!(
                (figures.cpu_s, figures.cpu_s_per_gb),
                ([0.0; 2], None),
                "there is no tunnel"
            );
        }
        for name in ["quic", "quic-back"] {
            let figures = measure(&stage, &tunnel, &case(name), 1).unwrap();
            let bits = figures.packets_s.unwrap() * 1200.0 * 8e-6;
            assert!(figures.mbit_s > 1.0 && bits > 1.0, "{figures:?}");
            assert!(figures.loss.unwrap() < 1.0, "{figures:?}");
        }
        let figures = measure(&stage, &tunnel, &case("pps64-back"), 1).unwrap();
        assert!(
            figures.packets_s.unwrap() > 10.0 && figures.loss.is_some(),
            "{figures:?}"
        );
    });
}

#[test]
fn a_cable_like_a_wire_carries_datagrams_one_by_one() {
    in_namespaces(|| {
        for (wire, at_least, at_most) in [(false, 1, 10), (true, 40, 50)] {
            let (_world, stage, _tunnel) = direct_over(wire);
            let bind = |end: usize| {
                let address = format!("{}:0", UNDERLAY[end]).parse().unwrap();
                let bind = || UdpSocket::bind(address, BindOptions::default()).unwrap();
                stage.hosts[end].run(bind).unwrap()
            };
            let (from, to) = (bind(0), bind(1));
            let before = sent(&stage);
            assert_eq!(from.send(to.local_address(), &[7; 40_000], Some(1000)).unwrap(), 40_000);
            assert!(from.gso(), "a wire takes super-datagrams as well");
            let arrived = receive(&to, 40);
            // Datagrams that arrive together are coalesced again.
            assert!(arrived.plain_receives < 20, "{arrived:?}");
            // Few other packets are sent meanwhile: a neighbour query, and IPv6's own.
            let packets = sent(&stage) - before;
            assert!(
                (at_least..=at_most).contains(&packets),
                "{packets} packets, wire: {wire}"
            );
        }
    });
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
    let name = format!("{}:", stage.link.a().name());
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

/// QUIC requires that datagrams of 1,200 bytes pass without fragmentation.
#[test]
fn a_path_too_narrow_for_quic_voids_its_case() {
    in_namespaces(|| {
        let (_world, stage, tunnel) = direct();
        converge(&stage, &tunnel, LIMIT).unwrap();
        for (host, end) in stage.hosts.iter().zip(&tunnel.ends) {
            let narrow = |netlink: &mut Netlink| {
                let index = netlink.interface(&end.device)?.index;
                netlink.set_mtu(index, 1200)
            };
            host.netlink(narrow).unwrap();
        }
        let error = measure(&stage, &tunnel, &case("quic"), 1).unwrap_err();
        assert!(error.to_string().contains("do not pass whole"), "{error}");
        let error = measure(&stage, &tunnel, &case("quic-back"), 3).unwrap_err();
        assert!(error.to_string().contains("do not pass whole"), "{error}");
        measure(&stage, &tunnel, &case("udp500"), 1).unwrap();
    });
}

/// Invalid datagrams are sent to an open port, and a host without one is reported.
#[test]
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
        stage.link.cut().unwrap();
        let error = converge(&stage, &tunnel, Duration::from_secs(1)).unwrap_err();
        assert!(matches!(error, RunError::NotConverged { .. }), "{error:?}");
        stage.link.heal().unwrap();
        converge(&stage, &tunnel, LIMIT).unwrap();
    });
}

/// Another cable with a route over it appears while the load runs: too little goes over the first.
#[test]
fn a_route_that_changes_during_a_run_voids_it() {
    in_namespaces(|| {
        let (world, stage, tunnel) = direct();
        converge(&stage, &tunnel, LIMIT).unwrap();
        let [a, b] = &stage.hosts;
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
fn a_far_end_that_goes_away_voids_the_run() {
    in_namespaces(|| {
        let (_world, stage, tunnel) = direct();
        converge(&stage, &tunnel, LIMIT).unwrap();
        std::thread::scope(|scope| {
            let run = scope.spawn(|| measure(&stage, &tunnel, &case("tcp"), 15));
            std::thread::sleep(Duration::from_secs(3));
            stage.link.cut().unwrap();
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
        for _ in 0..2 {
            let error = loop {
                // Its end takes a moment.
                if let Err(error) = measure(&stage, &tunnel, &case("tcp"), 1) {
                    break error;
                }
            };
            assert!(matches!(error, RunError::Ended), "{error:?}");
            child.wait().unwrap();
        }
    });
}
