//! A member that is removed and keeps sending.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::join::{Net, code, done, ipv4, members, pings};
use crate::common::{MINUTE, PATIENCE, address, beside, wait_until};
use weft_os::assert_strict;

const PORT: u16 = 4_242;

#[test]
fn a_removed_member_that_keeps_sending_reaches_no_other() {
    beside(|| {
        let net = Net::start(&["a", "b", "c"]);
        let [a, b, c] = &net.nodes[..] else { panic!() };
        done(a, &["create", "home", "--host", "desk"]);
        let code = code(a, &["--uses", "2"]);
        done(b, &["join", &code, "--host", "laptop"]);
        done(c, &["join", &code, "--host", "nas"]);
        wait_until(PATIENCE, "b knows c", || members(b).len() == 3);
        wait_until(PATIENCE, "b reaches c", || pings(b, "nas"));
        let targets = [a, b].map(|node| [address(node), IpAddr::V4(ipv4(node))]);
        let ears = [a, b].map(|node| {
            let any = SocketAddr::from(([0_u16; 8], PORT));
            let ear = node.host().run(|| UdpSocket::bind(any)).unwrap().unwrap();
            ear.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
            ear
        });
        let mouths = ["[::]:0", "0.0.0.0:0"].map(|any| c.host().run(|| UdpSocket::bind(any)).unwrap().unwrap());
        let end = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !end.load(Ordering::Relaxed) {
                    for target in targets.iter().flatten() {
                        let mouth = &mouths[usize::from(target.is_ipv4())];
                        // Once c knows of its removal, its host has no route.
                        let _ = mouth.send_to(b"still here", (*target, PORT));
                    }
                    std::thread::sleep(Duration::from_millis(2));
                }
            });
            // Ends the thread above also if this one panics.
            let _end = Ending(&end);
            for ear in &ears {
                for v4 in [false, true] {
                    wait_until(MINUTE, "a member is heard", || {
                        let heard = ear.recv_from(&mut [0; 64]);
                        heard.is_ok_and(|(_, from)| is_v4(from) == v4)
                    });
                }
            }
            done(a, &["member", "remove", "nas"]);
            for (node, ear) in [a, b].into_iter().zip(&ears) {
                wait_until(PATIENCE, "the removal arrives", || members(node).len() == 2);
                // What had arrived by then, and what the lanes passed until they were told.
                wait_until(PATIENCE, "the removed member is silent", || {
                    ear.recv(&mut [0; 64]).is_err()
                });
            }
            let watched = Instant::now() + Duration::from_secs(3);
            while Instant::now() < watched {
                for ear in &ears {
                    assert_strict!(ear.recv(&mut [0; 64]).is_err(), "a removed member is heard");
                }
            }
        });
        assert!(pings(a, "laptop") && pings(b, "desk"));
        net.finish();
    });
}

struct Ending<'a>(&'a AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn is_v4(from: SocketAddr) -> bool {
    match from.ip() {
        IpAddr::V4(_) => true,
        IpAddr::V6(ip) => ip.to_ipv4_mapped().is_some(),
    }
}
