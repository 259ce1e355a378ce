//! B's address changes under load: payload passes again, whichever end sends. How soon is a bound of the
//! simulator (crates/sim/tests/pair.rs, moves.rs).

use weft_lab::daemon::Daemon;
use weft_lab::traffic::{Limit, PingOptions, Pinger, TcpFlow};

use crate::common::{MINUTE, Pair, Underlay, address, alone, wait_until};
use weft_os::assert_strict;

/// TCP and pings run from one node to the other while B roams from `old` to `new`.
fn roam(underlay: Underlay, new: &str, ends: fn(&Pair) -> (&Daemon, &Daemon)) {
    let pair = Pair::start(underlay, |_| {});
    let (from, to) = ends(&pair);
    let hosts = (from.host(), to.host());
    let flow = TcpFlow::start(hosts, address(to), Limit::Stopped, 1, 3 * MINUTE).unwrap();
    let options = PingOptions::default();
    let pinger = Pinger::start(from.host(), to.identity().address, options).unwrap();
    wait_until(MINUTE, "TCP before the move", || flow.received() > 1_000_000);

    let [old, new] = [underlay.addresses()[1], new].map(|address| underlay.cidr(address));
    pair.link.b().change_address(&old, &new).unwrap();
    let moved = flow.received();
    wait_until(MINUTE, "TCP after the move", || flow.received() > moved + 1_000_000);

    let (ping, tcp) = (pinger.stop().unwrap(), flow.stop().unwrap());
    assert_strict!(tcp.hash_ok, "{tcp:?}");
    eprintln!("the move cost {:.0} ms without payload", ping.longest_gap_ms);
    let status = pair.a.peer(&pair.b.identity().npub).unwrap().unwrap();
    let path = status["path"]["addr"].as_str().unwrap();
    let new = new.split('/').next().unwrap();
    assert!(path.contains(new), "A still sends to {path}");
    pair.finish();
}

#[test]
fn the_node_that_moved_sends() {
    alone(|| roam(Underlay::V4, "192.0.2.77", |pair| (&pair.b, &pair.a)));
}

#[test]
fn the_node_that_stayed_sends() {
    alone(|| roam(Underlay::V4, "192.0.2.77", |pair| (&pair.a, &pair.b)));
}

#[test]
fn over_ipv6() {
    alone(|| roam(Underlay::V6, "2001:db8::77", |pair| (&pair.a, &pair.b)));
}
