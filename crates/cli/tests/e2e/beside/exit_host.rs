//! The host of an exit behind the rules: each of its addresses is the node.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream};
use std::time::Instant;

use weft_lab::host::Host;
use weft_os::assert_strict;
use weft_os::test_support::require_nft;

use super::internet::{Internet, TARGET, TARGET6, TRIED, done, mirror, run, seen};
use crate::common::{PATIENCE, beside, wait_until};

/// Whether a connection is refused at once.
fn is_refused(from: &Host, to: &str) -> bool {
    let to: SocketAddr = to.parse().unwrap();
    let began = Instant::now();
    let tried = from.run(|| TcpStream::connect_timeout(&to, TRIED)).unwrap();
    let refused = tried.is_err_and(|error| error.kind() != ErrorKind::TimedOut);
    refused && began.elapsed() < TRIED
}

#[test]
fn rules_for_a_node_hold_at_each_address_of_its_host() {
    beside(|| {
        if !require_nft() {
            return;
        }
        let net = Internet::by_exit(true);
        let (laptop, nas) = (net.laptop.host(), net.nas.host());
        // The exit refuses local networks, too: the laptop lets them through to it.
        run(laptop, "nft", &["flush", "chain", "inet", "weft", "output"]);
        let text = run(nas, "ip", &["-4", "-o", "address", "show", "dev", "weft0"]);
        let mesh = text.split_whitespace().nth(3).unwrap().split('/').next().unwrap();
        let (lan, public, public6) = ("192.168.9.1:8080", "203.0.113.10:8080", "[2001:db8:3::10]:8080");
        let mesh = format!("{mesh}:8080");
        for at in [lan, public, public6, &mesh] {
            mirror(nas, at);
        }
        // Where rules allow the node, its host is reached at its addresses of the Internet.
        for at in [public, public6, &mesh] {
            assert!(seen(laptop, at).is_some(), "{at}");
        }
        assert_eq!(seen(laptop, lan), None);

        done(&net.nas, &["rule", "add", "allow from laptop to exit"]);
        done(&net.nas, &["rule", "default", "deny"]);
        wait_until(PATIENCE, "the node is denied", || seen(laptop, &mesh).is_none());
        for at in [public, public6] {
            assert_strict!(seen(laptop, at).is_none(), "{at} is reached past the rules");
        }
        assert!(net.passes() && seen(laptop, TARGET6).is_some(), "the exit is allowed");
        for at in [lan, public, public6, &mesh] {
            wait_until(PATIENCE, "it is refused at once", || is_refused(laptop, at));
        }

        // An address that comes later.
        run(nas, "ip", &["address", "add", "203.0.113.11/24", "dev", "eth0"]);
        mirror(nas, "203.0.113.11:8080");
        assert_strict!(
            seen(laptop, "203.0.113.11:8080").is_none(),
            "an address that has just come"
        );
        done(&net.nas, &["rule", "add", "allow from laptop to nas tcp/8080"]);
        wait_until(PATIENCE, "the rules lead there, too", || {
            seen(laptop, "203.0.113.11:8080").is_some() && seen(laptop, public).is_some()
        });
        assert!(net.passes() && seen(laptop, TARGET).is_some());
        drop(net.warnings());
    });
}

#[test]
fn rules_that_let_nothing_to_the_exit_are_named() {
    beside(|| {
        if !require_nft() {
            return;
        }
        let net = Internet::by_exit(false);
        done(&net.nas, &["rule", "add", "deny from laptop to exit"]);
        wait_until(PATIENCE, "the exit is denied", || net.exit()["pass"] == false);
        let status = done(&net.laptop, &["status"]);
        let said = status.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(
            said.contains("exit: nas: the rules let nothing of this machine pass by it (")
                && said.contains("deny from laptop to exit"),
            "{said}"
        );
        let doctor = net.laptop.attempt(&["doctor"], PATIENCE).unwrap();
        assert_eq!(doctor.status.code(), Some(5));
        let doctor = String::from_utf8(doctor.stdout).unwrap();
        assert!(
            doctor.contains("the rules let nothing of this machine pass by it"),
            "{doctor}"
        );
        // One service is denied, and the rest passes.
        done(&net.nas, &["rule", "remove", "1"]);
        done(&net.nas, &["rule", "add", "deny from laptop to exit tcp/25"]);
        wait_until(PATIENCE, "the exit is allowed", || net.exit()["pass"] == true);
        drop(net.warnings());
    });
}
