//! A command that says done has saved: on a full disk, or one that cannot be written, it ends with 1
//! and has changed nothing.

use std::fs;

use serde_json::Value;
use weft_os::assert_strict;

use super::one_command::{Machines, code, members, network};
use crate::common::machine::{Machine, PROGRAM, ROOT, done, failed};
use crate::common::{MINUTE, PATIENCE, beside, wait_until};

/// Gives a machine a small disk for its state.
fn small_disk(machine: &Machine) {
    let script = "mkdir -m 700 /var/lib/weft && mount -t tmpfs -o size=2m,mode=700 none /var/lib/weft";
    done(&machine.run(ROOT, &["sh", "-c", script]));
}

fn fill(machine: &Machine) {
    let script = "dd if=/dev/zero of=/var/lib/weft/fill bs=4k 2> /run/dd; true";
    done(&machine.run(ROOT, &["sh", "-c", script]));
}

fn free(machine: &Machine) {
    done(&machine.run(ROOT, &["rm", "/var/lib/weft/fill"]));
}

/// Sets the rights to the directory of the state, as `chmod` writes them.
fn permit(machine: &Machine, mode: &str) {
    done(&machine.run(ROOT, &["chmod", mode, "/var/lib/weft"]));
}

/// A text about the networks of a machine in which no time passes.
fn known(machine: &Machine) -> String {
    let mut network = network(machine);
    for invite in network["invites"].as_array_mut().into_iter().flatten() {
        invite.as_object_mut().unwrap().remove("expires_unix");
    }
    // Whether a member is there is none of what is saved.
    for member in network["members"].as_array_mut().into_iter().flatten() {
        let member = member.as_object_mut().unwrap();
        member.remove("standing");
        member.remove("heard_s");
    }
    network.to_string()
}

/// The file of the only network.
fn file(machine: &Machine) -> String {
    let id = network(machine)["id"].as_str().unwrap_or_default().to_owned();
    fs::read_to_string(machine.path(&format!("/var/lib/weft/network-{id}.json"))).unwrap_or_default()
}

/// Runs commands that cannot be saved, and looks at what they have changed: nothing.
fn assert_nothing_done(machine: &Machine, commands: &[&[&str]], why: &str) {
    let (before, text) = (known(machine), file(machine));
    for command in commands {
        let line = failed(&machine.weft(ROOT, command));
        assert!(
            line.contains("nothing is changed") && line.contains(why),
            "{command:?}: {line}"
        );
        assert_strict!(
            known(machine) == before,
            "{command:?} has changed {before} to {}",
            known(machine)
        );
        assert_strict!(file(machine) == text, "{command:?} has written");
    }
}

/// What an administrator may order in a network with the member `nas`.
const COMMANDS: [&[&str]; 15] = [
    &["create", "lab", "--host", "desk"],
    &["invite"],
    &["member", "rename", "nas", "box"],
    &["member", "tag", "nas", "family"],
    &["member", "address", "nas", "10.44.3.4"],
    &["member", "remove", "nas"],
    &["admin", "add", "nas"],
    &["admin", "successor", "nas"],
    &["rule", "add", "deny from any to any tcp/25"],
    &["rule", "default", "deny"],
    &["rule", "remove", "1"],
    &["route", "approve", "nas", "192.168.7.0/24"],
    &["invites", "revoke", ""],
    &["member", "tag", "nas", "old", "--remove"],
    &["rule", "set", "/run/test/rules"],
];

#[test]
fn no_command_says_done_where_nothing_can_be_saved() {
    beside(|| {
        let machines = Machines::new(&["a", "b"]);
        let [a, b] = &machines.all[..] else { panic!() };
        for machine in [a, b] {
            small_disk(machine);
        }
        let (mut daemon, _other) = (a.up(&[]), b.up(&[]));
        fill(a);
        assert_nothing_done(a, &[&["create", "home", "--host", "desk"]], "No space left");
        let found = String::from_utf8(a.weft(ROOT, &["doctor"]).stdout).unwrap();
        assert!(
            found.contains("disk: the file system of /var/lib/weft has room for 0 kB"),
            "{found}"
        );
        free(a);
        done(&a.weft(ROOT, &["create", "home", "--host", "desk"]));

        // A node that asks, and one with a code.
        let own: Value = serde_json::from_str(&done(&a.weft(ROOT, &["status", "--json"]))).unwrap();
        let npub = own["node"]["npub"].as_str().unwrap().to_owned();
        done(&a.weft(ROOT, &["requests", "--accept", "10m"]));
        let ask = [
            PROGRAM,
            "join",
            "--ask",
            &npub,
            "--address",
            "192.0.2.1:2121",
            "--host",
            "nas",
        ];
        let mut asking = b.background("ask", &ask);
        let requests = || -> Value { serde_json::from_str(&done(&a.weft(ROOT, &["requests", "--json"]))).unwrap() };
        wait_until(PATIENCE, "b asks", || requests()["requests"][0]["npub"].is_string());
        let asks = requests()["requests"][0]["npub"].as_str().unwrap().to_owned();
        fill(a);
        assert_nothing_done(a, &[&["approve", &asks]], "No space left");
        assert!(requests()["requests"][0]["npub"].is_string(), "the request waits");
        free(a);
        done(&a.weft(ROOT, &["approve", &asks, "--name", "nas"]));
        wait_until(MINUTE, "b is a member", || members(b) == ["desk", "nas"]);
        assert!(asking.wait(PATIENCE).unwrap().success());

        // All that an administrator orders, on a full disk and in a directory that cannot be written.
        done(&a.weft(ROOT, &["rule", "add", "allow from any to any tcp/22"]));
        done(&a.weft(ROOT, &["member", "tag", "nas", "old"]));
        done(&a.weft(ROOT, &["invite"]));
        a.write("/run/test/rules", "allow from any to any udp/53\n");
        done(&b.weft(ROOT, &["set", "--advertise-route", "192.168.7.0/24"]));
        wait_until(PATIENCE, "the route is offered", || {
            done(&a.weft(ROOT, &["routes"])).contains("192.168.7.0/24")
        });
        fill(a);
        assert_nothing_done(a, &COMMANDS, "No space left");
        free(a);
        permit(a, "a-w");
        assert_nothing_done(a, &COMMANDS, "Permission denied");
        assert_nothing_done(a, &[&["leave", "--force"]], "Permission denied");
        permit(a, "ug+w");
        // What was not done is not done after a restart either, and can be done then.
        let before = known(a);
        daemon.kill().unwrap();
        daemon = a.up(&[]);
        wait_until(PATIENCE, "it is as it was", || known(a) == before);
        done(&a.weft(ROOT, &["member", "rename", "nas", "box"]));
        wait_until(MINUTE, "b learns it", || members(b) == ["box", "desk"]);
        drop(daemon);
    });
}

#[test]
fn a_network_is_whole_after_its_disks_were_full() {
    beside(|| {
        let machines = Machines::new(&["a", "b", "c"]);
        let [a, b, c] = &machines.all[..] else { panic!() };
        small_disk(a);
        small_disk(c);
        let (mut daemon, _other, mut third) = (a.up(&[]), b.up(&[]), c.up(&[]));
        done(&a.weft(ROOT, &["create", "home", "--host", "desk"]));
        done(&b.weft(ROOT, &["join", &code(a, &[]), "--host", "nas"]));
        done(&a.weft(ROOT, &["admin", "add", "nas"]));
        let invite = code(a, &[]);
        wait_until(MINUTE, "b is an administrator", || {
            let members = network(b)["members"].clone();
            members.as_array().unwrap().iter().all(|member| member["admin"] == true)
        });

        // What comes from another administrator holds at once, and is said to be unsaved.
        fill(a);
        done(&b.weft(ROOT, &["rule", "add", "deny from any to any tcp/25"]));
        wait_until(MINUTE, "a learns the rule", || known(a).contains("tcp/25"));
        wait_until(PATIENCE, "it is said", || network(a)["unsaved"].is_string());
        for command in ["status", "networks"] {
            let text = done(&a.weft(ROOT, &[command]));
            let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(text.contains("home is not saved (No space left"), "{text}");
        }
        let output = a.weft(ROOT, &["doctor"]);
        let found = String::from_utf8(output.stdout).unwrap();
        assert!(
            found.contains("networks: home is not saved") && found.contains("disk: "),
            "{found}"
        );
        assert_eq!(output.status.code(), Some(5));
        assert!(!file(a).contains("tcp/25"));

        // A code is not spent where the joiner cannot write its request, or a the new member.
        fill(c);
        let line = failed(&c.weft(ROOT, &["join", &invite, "--host", "pi"]));
        assert!(
            line.contains("nothing is changed") && line.contains("No space left"),
            "{line}"
        );
        // One page of room: for the request, and not for the records.
        done(&c.run(ROOT, &["truncate", "-s", "-4096", "/var/lib/weft/fill"]));
        let mut join = c.background("join", &[PROGRAM, "join", &invite, "--host", "pi"]);
        wait_until(PATIENCE, "a refuses what it cannot save", || {
            network(c)["why"]
                .as_str()
                .is_some_and(|why| why.contains("cannot save a new member"))
        });
        assert_eq!(members(a), ["desk", "nas"]);
        free(a);
        assert_eq!(join.wait(MINUTE).unwrap().code(), Some(1));
        let line = join.log().unwrap();
        assert!(
            line.contains("a member now, but that is not saved (No space left"),
            "{line}"
        );
        wait_until(MINUTE, "a has saved", || {
            network(a)["unsaved"].is_null() && file(a).contains("tcp/25")
        });
        let log = daemon.log().unwrap();
        let warnings = log
            .lines()
            .filter(|line| line.contains("the records of a network are not saved"));
        assert_eq!(warnings.count(), 1, "once, however long it lasts: {log}");

        // Both lose their memory, and the network is whole.
        for child in [&mut daemon, &mut third] {
            child.kill().unwrap();
        }
        free(c);
        (daemon, third) = (a.up(&[]), c.up(&[]));
        for machine in [a, b, c] {
            wait_until(MINUTE, "all are members", || members(machine) == ["desk", "nas", "pi"]);
            wait_until(MINUTE, "the rule is there", || known(machine).contains("tcp/25"));
        }
        wait_until(MINUTE, "all is saved", || {
            file(c).contains("tcp/25") && network(c)["unsaved"].is_null()
        });
        assert!(done(&c.weft(ROOT, &["ping", "desk", "--count", "1"])).contains("seq"));
        drop((daemon, third));
    });
}
