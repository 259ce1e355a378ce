//! Two nodes with a link of 1,280 bytes between them, which silently drops larger packets.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use weft_lab::cable::Direction;
use weft_lab::daemon::{Daemon, DaemonError};
use weft_lab::emulator::{Cable, Impairments, TooBig};
use weft_lab::spec::DEFAULT_PORT;
use weft_lab::traffic::{PingOptions, Pinger};
use weft_lab::world::World;

use crate::common::{PATIENCE, Underlay, WEFT, assert_transfer, beside, identity, reached_within};

/// Bytes of an inner packet: 1,155. They make a UDP payload of 1,232, a packet of 1,260 bytes over
/// IPv4 and of 1,280 over IPv6.
const LARGEST: usize = 1232 - 77;

/// TCP passes in both directions, and so do pings of the maximum size of the path, whether the
/// nodes are configured for it or have their default of 1,280 bytes of payload: TCP is clamped to
/// what passes if IPv6 does. No packet is lost on the path.
fn hole(underlay: Underlay, too_big: TooBig, udp_mtu: u16) -> Result<(), DaemonError> {
    let world = World::new().unwrap();
    let hosts = ["a", "b"].map(|name| world.host(name).unwrap());
    let addresses = underlay.addresses();
    let [a_net, b_net] = addresses.map(|address| underlay.cidr(address));
    let cable = Cable::both(Impairments::mtu(1280, too_big));
    let link = world
        .emulated_link((&hosts[0], &[&a_net]), (&hosts[1], &[&b_net]), cable)
        .unwrap();
    let ids = ["a", "b"].map(|name| identity(&world, name));
    let start = |own: usize| {
        let peer = &ids[1 - own];
        let at = SocketAddr::new(addresses[1 - own].parse().unwrap(), DEFAULT_PORT);
        let mut spec = underlay.listener().with_peer(&peer.npub, &peer.name, &[at]);
        spec.udp_mtu = Some(udp_mtu);
        spec.tun_mtu = Some(1280);
        let mut daemon = Daemon::start(&hosts[own], Path::new(WEFT), &ids[own], &spec)?;
        daemon.wait_ready(PATIENCE)?;
        Ok::<_, DaemonError>(daemon)
    };
    let (mut a, mut b) = (start(0)?, start(1)?);
    reached_within(PATIENCE, &a, &b);
    reached_within(PATIENCE, &b, &a);
    let largest = PingOptions {
        payload: LARGEST - 48,
        count: Some(20),
        interval: Duration::from_millis(20),
        ..PingOptions::default()
    };
    for (from, to) in [(&a, &b), (&b, &a)] {
        let report = Pinger::start(from.host(), to.identity().address, largest).unwrap();
        assert!(report.join().unwrap().lost.is_empty());
        assert_transfer(from, to, 5_000_000);
    }
    for direction in [Direction::AToB, Direction::BToA] {
        assert_eq!(link.counts(direction).too_big, 0);
    }
    // The black hole works: a packet that does not fit is dropped silently.
    let socket = a
        .host()
        .run(|| std::net::UdpSocket::bind((addresses[0], 0)).unwrap())
        .unwrap();
    socket.send_to(&[0; 1400], (addresses[1], 9)).unwrap();
    crate::common::wait_until(PATIENCE, "a packet in the hole", || {
        link.counts(Direction::AToB).too_big > 0
    });
    for node in [&mut a, &mut b] {
        assert_eq!(node.stop()?.code(), Some(0));
        assert_eq!(node.warnings()?, Vec::<String>::new());
    }
    Ok(())
}

#[test]
fn tcp_passes_a_silent_hole_of_1280_bytes_over_ipv4() {
    beside(|| hole(Underlay::V4, TooBig::Silent, 1280).unwrap());
}

#[test]
fn tcp_passes_a_silent_hole_of_1280_bytes_over_ipv6() {
    beside(|| hole(Underlay::V6, TooBig::Silent, 1280).unwrap());
}

#[test]
fn tcp_passes_a_hole_of_1280_bytes_that_answers() {
    beside(|| hole(Underlay::V4, TooBig::Icmp, 1280).unwrap());
}

#[test]
fn so_it_does_where_the_nodes_are_told_of_the_hole() {
    beside(|| hole(Underlay::V6, TooBig::Silent, 1232).unwrap());
}
