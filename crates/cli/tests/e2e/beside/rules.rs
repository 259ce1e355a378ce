//! Rules of a network with the real binary: what passes, what is denied, and what a change ends.

use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::thread;
use std::time::Duration;

use weft_lab::daemon::Daemon;

use super::join::{Net, code, done, failed, ipv4, members, network, pings, pings_ipv4};
use crate::common::{PATIENCE, WEFT, address, beside, wait_until};
use weft_os::assert_strict;

const SSH: u16 = 2222;
const WEB: u16 = 8080;
/// The pause until a connection attempt or an answer counts as lost, where rules deny it.
const SILENCE: Duration = Duration::from_secs(3);

/// Echoes what arrives at a port of the node's host, on any connection.
fn serve(node: &Daemon, port: u16) {
    let any = SocketAddr::from(([0_u16; 8], port));
    let listener = node.host().run(|| TcpListener::bind(any)).unwrap().unwrap();
    thread::spawn(move || {
        for connection in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || {
                let mut from = connection.try_clone().unwrap();
                let mut to = connection;
                let _ = io::copy(&mut from, &mut to);
            });
        }
    });
}

fn connect(from: &Daemon, to: IpAddr, port: u16, limit: Duration) -> io::Result<TcpStream> {
    let to = SocketAddr::new(to, port);
    from.host().run(|| TcpStream::connect_timeout(&to, limit)).unwrap()
}

/// Whether a connection is possible that rules allow, however long it takes.
fn connects(from: &Daemon, to: IpAddr, port: u16) -> bool {
    connect(from, to, port, PATIENCE).is_ok()
}

/// Whether a connection is possible that rules deny.
fn slips_through(from: &Daemon, to: IpAddr, port: u16) -> bool {
    connect(from, to, port, SILENCE).is_ok()
}

/// Whether the other end of a connection answers in this time.
fn answers(connection: &mut TcpStream, limit: Duration) -> bool {
    connection.set_read_timeout(Some(limit)).unwrap();
    let mut answer = [0; 5];
    connection.write_all(b"hello").is_ok() && connection.read_exact(&mut answer).is_ok()
}

/// The answer of `weft why`, and whether its exit status says that the flow passes.
fn why(node: &Daemon, flow: &[&str]) -> (bool, String) {
    let mut weft = Command::new(WEFT);
    weft.arg("--state").arg(&node.identity().state).arg("why").args(flow);
    let output = weft.output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{flow:?}");
    let passes = match output.status.code() {
        Some(0) => true,
        Some(3) => false,
        other => panic!("{flow:?}: {other:?}"),
    };
    (passes, String::from_utf8(output.stdout).unwrap())
}

#[test]
fn a_change_of_rules_keeps_the_flows_that_stay_allowed() {
    beside(|| {
        let net = Net::start(&["a", "b", "c"]);
        let [nas, laptop, sister] = &net.nodes[..] else {
            panic!()
        };
        done(nas, &["create", "home", "--host", "nas"]);
        let codes = [
            code(nas, &["--name", "laptop"]),
            code(nas, &["--name", "sister", "--tag", "family"]),
        ];
        done(laptop, &["join", &codes[0]]);
        done(sister, &["join", &codes[1]]);
        for node in [nas, laptop, sister] {
            wait_until(PATIENCE, "all know all members", || {
                members(node) == ["laptop", "nas", "sister"]
            });
        }
        for node in [nas, laptop] {
            serve(node, SSH);
            serve(node, WEB);
        }
        let to_nas = [address(nas), IpAddr::V4(ipv4(nas))];
        for (from, to) in [(laptop, to_nas[0]), (laptop, to_nas[1]), (sister, to_nas[0])] {
            wait_until(PATIENCE, "without rules all passes", || connects(from, to, WEB));
        }
        let mut kept = to_nas.map(|to| connect(laptop, to, SSH, PATIENCE).unwrap());
        let mut denied = connect(sister, to_nas[0], WEB, PATIENCE).unwrap();
        let mut all_answer = || kept.iter_mut().all(|kept| answers(kept, PATIENCE));
        assert!(all_answer() && answers(&mut denied, PATIENCE));

        done(
            nas,
            &["rule", "add", "allow", "from", "laptop", "to", "nas", "tcp/2222"],
        );
        done(nas, &["rule", "add", "allow from tag:family to nas icmp", "--at", "1"]);
        let listed = done(nas, &["rule", "default", "deny"]);
        assert_eq!(
            listed,
            "home\n     1  allow from tag:family to nas icmp\n     2  allow from laptop to nas tcp/2222\n  else  deny\n"
        );
        for node in [laptop, sister] {
            wait_until(PATIENCE, "the rules are known", || network(node)["default"] == "deny");
        }
        assert!(all_answer(), "what stays allowed goes on");
        assert_strict!(!answers(&mut denied, SILENCE), "what is denied ends");
        for to in to_nas {
            assert!(connects(laptop, to, SSH));
            // An ICMP error ends the attempt: without one it would last as long as the limit.
            let error = connect(laptop, to, WEB, PATIENCE).unwrap_err();
            assert_ne!(error.kind(), io::ErrorKind::TimedOut, "{error}");
        }
        assert_strict!(!slips_through(sister, to_nas[0], SSH), "nas denies it");
        assert_strict!(!slips_through(nas, address(laptop), SSH), "the laptop denies it");
        wait_until(PATIENCE, "a rule allows the echo", || pings(sister, "nas"));
        assert_strict!(!pings(laptop, "nas"), "nas denies the echo");
        assert_eq!(
            why(laptop, &["laptop", "nas", "tcp/2222"]),
            (
                true,
                "passes\n  rule 2 of home: allow from laptop to nas tcp/2222\n".to_owned()
            )
        );
        let (passes, reasons) = why(sister, &["sister", "nas", "udp/53"]);
        assert!(
            !passes && reasons.contains("no rule of home matches, and its default is deny"),
            "{reasons}"
        );

        // A local rule goes before those of the network.
        done(nas, &["set", "rules.local", "[\"allow from any to any icmp\"]"]);
        wait_until(PATIENCE, "the local rule allows it", || pings_ipv4(laptop, ipv4(nas)));
        // A rule that is taken away ends its flows.
        done(nas, &["rule", "remove", "2"]);
        wait_until(PATIENCE, "its connection ends", || !answers(&mut kept[0], SILENCE));
        assert_strict!(!slips_through(laptop, to_nas[0], SSH), "no rule allows it any longer");
        let refused = failed(laptop, &["rule", "default", "allow"]);
        assert!(refused.contains("no administrator"), "{refused}");
        let wrong = failed(nas, &["rule", "add", "allow from laptop to nas http"]);
        assert!(wrong.contains("a protocol is") && wrong.contains("as in"), "{wrong}");
        net.finish();
    });
}
