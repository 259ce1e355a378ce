//! What administrators do with members, and what the commands refuse.

use std::net::Ipv4Addr;

use super::join::{Net, code, done, failed, members, network, pings_ipv4};
use crate::common::{MINUTE, PATIENCE, beside, wait_until};

#[test]
fn an_administrator_manages_members_and_errors_say_why_not() {
    beside(|| {
        let net = Net::start(&["a", "b"]);
        let [a, b] = &net.nodes[..] else { panic!() };
        done(a, &["create", "home", "--host", "desk"]);
        done(b, &["join", &code(a, &[]), "--host", "nas"]);
        wait_until(PATIENCE, "a knows b", || members(a).len() == 2);

        // One administrator, and what that means.
        for list in ["status", "networks"] {
            let text = done(a, &[list]);
            let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(text.contains("one administrator, this machine"), "{text}");
        }
        assert!(done(b, &["networks"]).contains("one administrator, desk"));
        let line = failed(a, &["leave"]);
        assert!(
            line.contains("only administrator") && line.contains("--force"),
            "{line}"
        );

        // An address, a name, a request.
        let fixed: Ipv4Addr = "10.44.3.4".parse().unwrap();
        assert_eq!(
            done(a, &["member", "address", "nas", "10.44.3.4"]),
            "nas has 10.44.3.4\n"
        );
        wait_until(PATIENCE, "b has the address", || network(b)["ipv4"] == "10.44.3.4");
        wait_until(MINUTE, "it is reached there", || pings_ipv4(a, fixed));
        for (address, word) in [("10.45.3.4", "10.44.0.0/16"), ("10.44.3.255", "10.44.0.0/16")] {
            let line = failed(a, &["member", "address", "nas", address]);
            assert!(line.contains(word), "{line}");
        }
        let line = failed(a, &["member", "address", "desk", "10.44.3.4"]);
        assert!(line.contains("the address of nas"), "{line}");
        assert!(done(a, &["member", "address", "nas", "--default"]).starts_with("nas has 10.44."));
        let line = failed(a, &["member", "rename", "nas", "desk"]);
        assert!(line.contains("desk is the name of another member"), "{line}");
        let line = failed(a, &["deny", &b.identity().npub]);
        assert!(line.contains("nas is a member of home already"), "{line}");

        // Rules, and questions about them.
        let line = failed(a, &["rule", "add", "allow from bob to any"]);
        assert!(
            line.contains("no node named bob; `weft peers` and `weft members` list them"),
            "{line}"
        );
        let list = done(a, &["rule", "add", "allow from any to nas tcp/22 until 1000"]);
        assert!(list.contains("until 1000  (expired)"), "{list}");
        let line = failed(a, &["why", "desk", "192.168.7.5", "tcp/22"]);
        assert!(line.contains("--behind"), "{line}");

        // A successor has the founder's rank, and is a member as before.
        let line = failed(b, &["admin", "successor", "nas"]);
        assert!(line.contains("no administrator"), "{line}");
        assert_eq!(
            done(a, &["admin", "successor", "nas"]),
            "nas is the successor of this machine\n"
        );
        wait_until(PATIENCE, "b is the successor", || {
            done(b, &["members"]).contains("administrator, successor")
        });
        assert_eq!(members(b), ["desk", "nas"]);
        // It can retire a founder that is lost, and the founder takes that back with its key.
        let line = failed(b, &["admin", "remove", "desk"]);
        assert!(
            line.contains("member nas") && line.contains("--keep") && line.contains("--void"),
            "{line}"
        );
        assert!(
            done(b, &["members"]).contains("administrator, successor"),
            "nothing is changed"
        );
        let again = done(b, &["admin", "remove", "desk", "--keep"]);
        assert!(
            again.contains("signed that again") && again.contains("member nas"),
            "{again}"
        );
        wait_until(PATIENCE, "a learns it", || {
            !done(a, &["members"]).contains("this machine, administrator")
        });
        done(a, &["admin", "successor", "--none"]);
        wait_until(PATIENCE, "b is none any more", || {
            !done(b, &["members"]).contains("this machine, administrator")
        });
        assert_eq!(members(b), ["desk", "nas"]);

        // What would be lost is said, and who keeps it.
        done(a, &["admin", "add", "nas"]);
        wait_until(PATIENCE, "b is an administrator", || {
            done(b, &["members"]).contains("this machine, administrator")
        });
        let line = failed(a, &["leave"]);
        assert!(
            line.contains("no successor") && line.contains("admin successor MEMBER"),
            "{line}"
        );
        done(a, &["admin", "successor", "nas"]);
        done(a, &["rule", "add", "deny from any to any tcp/25"]);
        let line = failed(a, &["leave"]);
        assert!(
            line.contains("the rules") && line.contains("`weft member remove desk --keep` on nas"),
            "{line}"
        );
        wait_until(PATIENCE, "b is the successor", || {
            done(b, &["members"]).contains("successor")
        });
        done(b, &["member", "remove", "desk", "--keep"]);
        assert_eq!(members(b), ["nas"]);
        assert!(done(b, &["rule", "list"]).contains("tcp/25"));
        wait_until(PATIENCE, "a learns it", || network(a)["state"] == "removed");
        done(a, &["leave"]);
        net.finish();
    });
}

/// The founder's machine is lost, and then that of its successor.
#[test]
fn a_successor_that_has_taken_over_names_the_next() {
    beside(|| {
        let net = Net::start(&["a", "b", "c"]);
        let [a, b, c] = &net.nodes[..] else { panic!() };
        done(a, &["create", "home", "--host", "desk"]);
        done(b, &["join", &code(a, &[]), "--host", "nas"]);
        done(a, &["admin", "successor", "nas"]);
        wait_until(PATIENCE, "b is the successor", || {
            done(b, &["members"]).contains("this machine, administrator, successor")
        });
        // It reaches b without a.
        done(c, &["join", &code(b, &[]), "--host", "shed"]);
        wait_until(PATIENCE, "a knows c", || members(a) == ["desk", "nas", "shed"]);
        let line = failed(b, &["admin", "successor", "shed"]);
        assert!(line.contains("`weft member remove desk` takes over"), "{line}");
        done(b, &["member", "remove", "desk", "--keep"]);
        assert_eq!(
            done(b, &["admin", "successor", "shed"]),
            "shed is the successor of this machine\n"
        );
        wait_until(PATIENCE, "c is the successor", || {
            done(c, &["members"]).contains("this machine, administrator")
        });
        done(c, &["member", "remove", "nas", "--keep"]);
        assert_eq!(members(c), ["shed"]);
        wait_until(PATIENCE, "b learns it", || network(b)["state"] == "removed");
        assert_eq!(done(b, &["leave"]), "left\n");
        // The founder's key ends all that came behind it.
        wait_until(PATIENCE, "a learns that it is removed", || {
            network(a)["state"] == "removed"
        });
        done(a, &["admin", "successor", "--none", "--keep"]);
        assert!(done(a, &["members"]).contains("this machine, administrator"));
        net.finish();
    });
}

/// A thief of an administrator's key has given rights to a second key, and has made an invite. Nothing of
/// that is signed again unless it is named.
#[test]
fn records_signed_by_a_stolen_key_end_with_the_key() {
    beside(|| {
        let net = Net::start(&["a", "b", "c", "d"]);
        let [a, b, c, d] = &net.nodes[..] else { panic!() };
        done(a, &["create", "home", "--host", "desk"]);
        done(b, &["join", &code(a, &[]), "--host", "nas"]);
        done(a, &["admin", "add", "nas"]);
        wait_until(PATIENCE, "b is an administrator", || {
            done(b, &["members"]).contains("this machine, administrator")
        });
        let invite = code(b, &["--uses", "5"]);
        done(c, &["join", &invite, "--host", "evil"]);
        done(b, &["admin", "add", "evil"]);
        done(b, &["rule", "add", "allow from any to any"]);
        wait_until(MINUTE, "a knows it", || {
            let list = done(a, &["members"]);
            list.lines()
                .any(|line| line.contains("evil") && line.contains("administrator"))
                && done(a, &["rule", "list"]).contains("allow from any")
        });
        for command in ["admin", "member"] {
            let line = failed(a, &[command, "remove", "nas"]);
            for part in [
                "administrator evil",
                "invite/",
                "member evil",
                "the rules",
                "--keep",
                "--void",
            ] {
                assert!(line.contains(part), "{part} is missing: {line}");
            }
        }
        assert_eq!(members(a), ["desk", "evil", "nas"]);
        let text = done(a, &["member", "remove", "nas", "--void"]);
        assert!(
            text.contains("member evil: ended") && text.contains("invite/"),
            "{text}"
        );
        assert_eq!(members(a), ["desk"]);
        assert!(!done(a, &["rule", "list"]).contains("allow from any"));
        // The second key learns it, and the code serves no third one.
        wait_until(MINUTE, "it is out", || network(c)["state"] == "removed");
        let line = failed(d, &["join", &invite, "--host", "again"]);
        // b refuses, or has learnt it and takes no guests any longer.
        assert!(
            line.contains("not joined: the node that the code names is not in the network")
                || line.contains("not a member yet: no answer yet"),
            "{line}"
        );
        wait_until(MINUTE, "b has learnt it", || network(b)["state"] == "removed");
        assert_eq!(members(a), ["desk"]);
        net.finish();
    });
}
