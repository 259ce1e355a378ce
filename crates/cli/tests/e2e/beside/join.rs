//! Private networks with the real binary: made with one command, joined with one.

use std::net::Ipv4Addr;
use std::path::Path;
use std::time::Duration;

use super::names::ask;
use crate::common::{MINUTE, PATIENCE, Underlay, WEFT, address, beside, identity, wait_until};
use serde_json::Value;
use simple_dns::{RCODE, TYPE};
use weft_lab::daemon::{Daemon, DaemonError};
use weft_lab::host::Host;
use weft_lab::traffic::{PingOptions, Pinger};
use weft_lab::world::{Switch, World};
use weft_os::assert_strict;
use weft_roster::invite::Code;

/// Hosts on one switch, each with a running node that knows no other.
pub(crate) struct Net {
    _world: World,
    _switch: Switch,
    pub(crate) nodes: Vec<Daemon>,
}

impl Net {
    pub(crate) fn start(names: &[&'static str]) -> Self {
        let world = World::new().unwrap();
        let switch = world.switch("net").unwrap();
        let start = |(number, name): (usize, &&'static str)| {
            let host: Host = world.host(name).unwrap();
            switch.connect(&host, &[&format!("192.0.2.{}/24", number + 1)]).unwrap();
            let id = identity(&world, name);
            let mut node = Daemon::start(&host, Path::new(WEFT), &id, &Underlay::V4.listener()).unwrap();
            node.wait_ready(PATIENCE).unwrap();
            node
        };
        let nodes = names.iter().enumerate().map(start).collect();
        Self {
            _world: world,
            _switch: switch,
            nodes,
        }
    }

    /// The world, for further hosts.
    pub(crate) fn world(&self) -> &World {
        &self._world
    }

    pub(crate) fn finish(self) {
        for mut node in self.nodes {
            assert_eq!(node.stop().unwrap().code(), Some(0));
            assert!(node.warnings().unwrap().is_empty(), "{:?}", node.warnings());
        }
    }
}

pub(crate) fn done(node: &Daemon, arguments: &[&str]) -> String {
    let output = node
        .command(arguments)
        .unwrap_or_else(|error| panic!("{arguments:?}: {error}"));
    String::from_utf8(output.stdout).unwrap()
}

/// The one line of a command that fails with 1.
pub(crate) fn failed(node: &Daemon, arguments: &[&str]) -> String {
    match node.command(arguments) {
        Err(DaemonError::Command { status, stderr, .. }) => {
            assert_eq!(status.code(), Some(1), "{arguments:?}: {stderr}");
            assert_eq!(stderr.trim().lines().count(), 1, "{stderr}");
            stderr
        }
        other => panic!("{arguments:?}: {other:?}"),
    }
}

pub(crate) fn code(node: &Daemon, arguments: &[&str]) -> String {
    let invited: Value = serde_json::from_str(&done(node, &[&["invite", "--json"], arguments].concat())).unwrap();
    invited["code"].as_str().unwrap().to_owned()
}

/// Returns the text of `invite` on standard error. Standard output, which is not a terminal, has only the code.
pub(crate) fn about_invite(node: &Daemon, arguments: &[&str]) -> String {
    let output = node.command(arguments).unwrap();
    let code = String::from_utf8(output.stdout).unwrap();
    assert!(code.ends_with('\n') && code.lines().count() == 1, "{code}");
    Code::parse(&code).unwrap();
    String::from_utf8(output.stderr).unwrap()
}

pub(crate) fn network(node: &Daemon) -> Value {
    let list: Value = serde_json::from_str(&done(node, &["networks", "--json"])).unwrap();
    list["networks"][0].clone()
}

pub(crate) fn members(node: &Daemon) -> Vec<String> {
    let network = network(node);
    let members = network["members"].as_array().cloned().unwrap_or_default();
    members
        .iter()
        .filter_map(|member| Some(member["name"].as_str()?.to_owned()))
        .collect()
}

pub(crate) fn ipv4(node: &Daemon) -> Ipv4Addr {
    network(node)["ipv4"].as_str().unwrap().parse().unwrap()
}

pub(crate) fn pings(from: &Daemon, to: &str) -> bool {
    from.command(&["ping", to, "--count", "1", "--timeout", "5"]).is_ok()
}

/// Whether one ICMP echo of the system over IPv4 is answered.
pub(crate) fn pings_ipv4(from: &Daemon, to: Ipv4Addr) -> bool {
    let options = PingOptions {
        grace: Duration::from_secs(5),
        count: Some(1),
        ..PingOptions::default()
    };
    let pinger = Pinger::start(from.host(), to, options).unwrap();
    pinger.join().unwrap().received == 1
}

#[test]
fn three_machines_become_a_network_with_one_command_each() {
    beside(|| {
        let net = Net::start(&["a", "b", "c"]);
        let [a, b, c] = &net.nodes[..] else { panic!() };
        let made = done(a, &["create", "home", "--host", "desk"]);
        assert!(
            made.contains("home created") && made.contains("only administrator"),
            "{made}"
        );
        let codes = [code(a, &["--name", "laptop"]), code(a, &[])];
        assert!(codes.iter().all(|code| code.len() <= 195), "{codes:?}");
        let joined = done(b, &["join", &codes[0]]);
        assert!(joined.contains("home joined; this machine is laptop"), "{joined}");
        done(c, &["join", &codes[1].to_lowercase(), "--host", "nas"]);
        for node in [a, b, c] {
            wait_until(PATIENCE, "all know all members", || {
                members(node) == ["desk", "laptop", "nas"]
            });
        }
        let nas = ask(b, "nas.home.weft", TYPE::A);
        assert_eq!(nas, (RCODE::NoError, Some(ipv4(c).into())));
        assert_eq!(ask(c, "desk.home.weft", TYPE::AAAA), (RCODE::NoError, Some(address(a))));
        assert_eq!(ask(c, "other.home.weft", TYPE::AAAA).0, RCODE::NameError);
        for (node, peers) in [(a, ["laptop", "nas"]), (b, ["desk", "nas"]), (c, ["desk", "laptop"])] {
            for peer in peers {
                wait_until(PATIENCE, "a member is reached by its name", || pings(node, peer));
            }
        }
        wait_until(PATIENCE, "IPv4 passes", || pings_ipv4(b, ipv4(a)));
        wait_until(PATIENCE, "IPv4 passes through another member", || {
            pings_ipv4(b, ipv4(c))
        });
        net.finish();
    });
}

#[test]
fn a_newcomer_with_a_taken_name_gets_a_number_and_all_are_told() {
    beside(|| {
        let net = Net::start(&["a", "b", "c"]);
        let [a, b, c] = &net.nodes[..] else { panic!() };
        done(a, &["create", "home", "--host", "desk"]);
        let line = failed(a, &["invite", "--name", "desk"]);
        assert!(line.contains("desk") && members(a) == ["desk"], "{line}");
        let joined = done(b, &["join", &code(a, &[]), "--host", "desk"]);
        let told = "this machine is desk-2\nThat is because desk is the name of another member.";
        assert!(joined.contains(told), "{joined}");
        let joined = done(c, &["join", &code(a, &["--name", "printer"]), "--host", "scanner"]);
        let told = "this machine is printer\nThat is because an administrator gave it this name in place of scanner.";
        assert!(joined.contains(told), "{joined}");
        for list in ["members", "networks"] {
            let told = done(a, &[list]);
            assert!(
                told.contains("desk-2 has a number because desk is this machine"),
                "{told}"
            );
        }
        let keys = network(a)["members"].clone();
        let desk = keys
            .as_array()
            .unwrap()
            .iter()
            .find(|member| member["name"] == "desk")
            .unwrap();
        assert_eq!(desk["own"], true, "the name stays with its holder");
        let line = failed(a, &["member", "rename", "desk-2", "printer"]);
        assert!(line.contains("printer"), "{line}");
        done(a, &["member", "rename", "desk-2", "laptop"]);
        assert!(!done(a, &["members"]).contains("has a number"));
        wait_until(PATIENCE, "the new name is known", || {
            members(c) == ["desk", "laptop", "printer"]
        });
        net.finish();
    });
}

#[test]
fn codes_that_do_not_hold_bring_no_member() {
    beside(|| {
        let net = Net::start(&["a", "b", "c"]);
        let [a, b, _] = &net.nodes[..] else { panic!() };
        done(a, &["create", "home", "--host", "desk"]);
        let good = code(a, &[]);
        // Faults that are found before anything is sent.
        let mistyped = format!("{}{}", if good.starts_with('A') { 'B' } else { 'A' }, &good[1..]);
        for (wrong, words) in [
            (&good[..good.len() - 9], "incomplete"),
            (&mistyped, "mistyped"),
            ("0189", "letters A to Z"),
        ] {
            let line = failed(b, &["join", wrong]);
            assert!(line.contains(words), "{wrong}: {line}");
        }
        assert_eq!(network(b), Value::Null);
        // A revoked one: the administrator says so.
        let revoked = code(a, &["--name", "other"]);
        let keys = network(a)["invites"].as_array().unwrap().clone();
        let key = keys.iter().find(|invite| invite["name"] == "other").unwrap()["key"]
            .as_str()
            .unwrap()
            .to_owned();
        done(a, &["invites", "revoke", &key[..12]]);
        let line = failed(b, &["join", &revoked]);
        assert!(line.contains("not joined: the invite was revoked"), "{line}");
        assert_strict!(
            members(a) == ["desk"] && network(b) == Value::Null,
            "a revoked invite let a node in"
        );
        // The good one still holds, once.
        done(b, &["join", &good, "--host", "laptop"]);
        wait_until(PATIENCE, "it is a member", || members(a) == ["desk", "laptop"]);
        assert!(network(a)["invites"].as_array().unwrap().is_empty(), "{}", network(a));
        let c = &net.nodes[2];
        let line = failed(c, &["join", &good]);
        assert!(line.contains("not joined: the invite was used already"), "{line}");
        assert_strict!(members(a) == ["desk", "laptop"], "an invite let two nodes in");
        net.finish();
    });
}

#[test]
fn a_removed_member_is_out_at_once_and_networks_last() {
    beside(|| {
        let mut net = Net::start(&["a", "b", "c"]);
        let [a, b, c] = &net.nodes[..] else { panic!() };
        done(a, &["create", "home", "--host", "desk"]);
        let code = code(a, &["--uses", "2"]);
        done(b, &["join", &code, "--host", "laptop"]);
        done(c, &["join", &code, "--host", "nas"]);
        wait_until(PATIENCE, "b knows c", || members(b).len() == 3);
        wait_until(PATIENCE, "b reaches c", || pings(b, "nas"));
        let nas = ipv4(c);
        done(a, &["member", "remove", "nas"]);
        for node in [a, b] {
            wait_until(PATIENCE, "the removal arrives", || members(node) == ["desk", "laptop"]);
            assert!(failed(node, &["ping", "nas", "--count", "1"]).contains("no node named nas"));
        }
        assert_strict!(!pings_ipv4(b, nas), "a removed member answers");
        wait_until(PATIENCE, "the removed node learns it", || {
            network(c)["state"] == "removed"
        });
        let line = failed(c, &["join", &code]);
        assert!(line.contains("not joined: the network has removed this node"), "{line}");
        // Everything is on the disk.
        for node in &mut net.nodes[..2] {
            node.restart().unwrap();
            node.wait_ready(PATIENCE).unwrap();
        }
        let [a, b, _] = &net.nodes[..] else { panic!() };
        assert_eq!(members(b), ["desk", "laptop"]);
        wait_until(MINUTE, "members find each other again", || pings(b, "desk"));
        done(a, &["member", "rename", "laptop", "book"]);
        wait_until(PATIENCE, "the new name arrives", || members(b) == ["book", "desk"]);
        let line = failed(b, &["invite"]);
        assert!(line.contains("no administrator") && line.contains("desk"), "{line}");
        done(a, &["admin", "add", "book"]);
        wait_until(PATIENCE, "it may invite", || b.command(&["invite"]).is_ok());
        net.finish();
    });
}

#[test]
fn members_have_tags_and_a_new_machine_replaces_an_old_one() {
    beside(|| {
        let net = Net::start(&["a", "b", "c"]);
        let [a, b, c] = &net.nodes[..] else { panic!() };
        done(a, &["create", "home", "--host", "desk"]);
        let code = code(a, &["--uses", "2"]);
        done(b, &["join", &code, "--host", "nas"]);
        done(c, &["join", &code, "--host", "new"]);
        let member = |node: &Daemon, name: &str| {
            let members = network(node)["members"].as_array().unwrap().clone();
            members.into_iter().find(|member| member["name"] == name)
        };
        let tags = |node: &Daemon| member(node, "nas").map(|member| member["tags"].clone());
        let tagged = done(a, &["member", "tag", "nas", "backup", "media"]);
        assert!(tagged.contains("nas has backup, media"), "{tagged}");
        wait_until(PATIENCE, "the tags arrive", || {
            tags(c) == Some(["backup", "media"].as_slice().into())
        });
        done(a, &["member", "tag", "nas", "media", "--remove"]);
        wait_until(PATIENCE, "one is removed", || {
            tags(c) == Some(["backup"].as_slice().into())
        });
        for (arguments, words) in [
            (
                &["member", "tag", "nas", "media", "--remove"][..],
                "nas has no tag media",
            ),
            (&["member", "tag", "nas", "no tag"], "a name consists of"),
            (&["member", "tag", "nas", "Tag"], "written in lower case"),
            (&["member", "replace", "nas", "other"], "no node named other"),
            (&["member", "replace", "desk", "new"], "cannot replace itself"),
        ] {
            let line = failed(a, arguments);
            assert!(line.contains(words), "{line}");
        }
        let line = failed(b, &["member", "tag", "nas", "x"]);
        assert!(line.contains("no administrator"), "{line}");
        let replaced = done(a, &["member", "replace", "nas", "new"]);
        assert!(replaced.contains("new takes the place of nas"), "{replaced}");
        for node in [a, c] {
            wait_until(PATIENCE, "it has its place", || members(node) == ["desk", "nas"]);
            let nas = member(node, "nas").unwrap();
            assert_eq!(nas["npub"], c.identity().npub.as_str());
            assert_eq!(nas["tags"], Value::from(["backup"].as_slice()));
        }
        wait_until(PATIENCE, "the old one learns it", || network(b)["state"] == "removed");
        wait_until(MINUTE, "the name is that of the new one", || pings(a, "nas"));
        net.finish();
    });
}

#[test]
fn an_invite_prints_its_code_as_a_qr_code_where_that_is_wanted() {
    beside(|| {
        let net = Net::start(&["a"]);
        let [a] = &net.nodes[..] else { panic!() };
        done(a, &["create", "home"]);
        let is_block = |c: char| ['█', '▀', '▄'].contains(&c);
        // Standard output is no terminal here.
        for arguments in [&["invite"][..], &["invite", "--no-qr"]] {
            let text = about_invite(a, arguments);
            assert!(!text.contains(is_block), "{text}");
        }
        let text = about_invite(a, &["invite", "--qr"]);
        let blocks = text.lines().filter(|line| line.contains(is_block)).count();
        assert!((19..=23).contains(&blocks) && !text.contains('\x1b'), "{text}");
        assert!(text.contains("sudo weft join"), "{text}");
        for conflict in ["--json", "--no-qr"] {
            match a.command(&["invite", "--qr", conflict]) {
                Err(DaemonError::Command { status, .. }) => assert_eq!(status.code(), Some(2)),
                other => panic!("{other:?}"),
            }
        }
        net.finish();
    });
}
