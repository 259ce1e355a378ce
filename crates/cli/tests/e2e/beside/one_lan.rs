//! Three machines on one switch that joined by one founder: each pair is direct, and two of them do not
//! notice that the founder goes. How soon they are direct is a bound of the simulator
//! (crates/sim/tests/networks.rs).

use weft_lab::daemon::{Daemon, PeerState};
use weft_lab::traffic::{Limit, TcpFlow};
use weft_os::assert_strict;

use super::join::{Net, code, done};
use crate::common::{MINUTE, address, assert_transfer, beside, wait_until};

/// Bytes of a flow that show that it goes on.
const MORE: u64 = 1_000_000;

#[test]
fn members_of_one_lan_outlive_their_founder() {
    beside(|| outlive(None));
}

#[test]
fn members_of_one_lan_outlive_their_founder_unannounced() {
    beside(|| outlive(Some("off")));
}

/// The address of the peer in the LAN, while the path is direct.
fn direct(from: &Daemon, to: &Daemon) -> Option<String> {
    let peer = from.peer(&to.identity().npub).unwrap().unwrap_or_default();
    let path = &peer["path"];
    (path["kind"] == "direct").then(|| path["addr"].as_str().unwrap_or_default().to_owned())
}

fn outlive(announce: Option<&str>) {
    let mut net = Net::start(&["a", "b", "c"]);
    if let Some(announce) = announce {
        for node in &net.nodes {
            done(node, &["set", "lan.announce", announce]);
        }
    }
    let [founder, b, c] = &mut net.nodes[..] else { panic!() };
    done(founder, &["create", "home", "--host", "desk"]);
    for (node, name) in [(&*b, "laptop"), (&*c, "nas")] {
        done(node, &["join", &code(founder, &[]), "--host", name]);
    }
    let all = [(&*founder, 1), (&*b, 2), (&*c, 3)];
    for (from, to, last) in all.iter().flat_map(|(from, own)| {
        let others = all.iter().filter(move |(_, last)| last != own);
        others.map(move |(to, last)| (from, to, last))
    }) {
        let at = format!("192.0.2.{last}:2121");
        wait_until(MINUTE, "each pair is direct", || {
            direct(from, to).as_deref() == Some(&at)
        });
    }

    let flow = TcpFlow::start((b.host(), c.host()), address(c), Limit::Stopped, 1, 5 * MINUTE).unwrap();
    wait_until(MINUTE, "a flow between the two", || flow.received() > MORE);
    founder.kill().unwrap();
    let stay_direct = || {
        assert_eq!(direct(b, c).as_deref(), Some("192.0.2.3:2121"));
        assert_eq!(direct(c, b).as_deref(), Some("192.0.2.2:2121"));
    };
    for node in [&*b, &*c] {
        wait_until(2 * MINUTE, "the founder is gone", || {
            stay_direct();
            let state = node.peer_state(&founder.identity().npub).unwrap();
            state.is_none_or(|state| state < PeerState::Linked)
        });
    }
    let received = flow.received();
    wait_until(MINUTE, "the flow goes on", || {
        stay_direct();
        flow.received() > received + MORE
    });
    assert_strict!(flow.stop().unwrap().hash_ok, "the content of a flow changed");
    assert_transfer(b, c, MORE);
    assert_transfer(c, b, MORE);
    stay_direct();
    for node in [&mut *b, &mut *c] {
        assert_eq!(node.stop().unwrap().code(), Some(0));
    }
    for node in &net.nodes {
        assert!(node.warnings().unwrap().is_empty(), "{:?}", node.warnings());
    }
}
