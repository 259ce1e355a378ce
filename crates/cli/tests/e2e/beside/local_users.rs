//! What the users of a host may do with root's daemon: docs/guides/service.md.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::time::Instant;

use serde_json::Value;

use crate::common::machine::{GROUP, Machine, PROGRAM, ROOT, User, done, failed, has_other_users, user};
use crate::common::{PATIENCE, beside, wait_until};
use weft_os::assert_strict;

const SOCKET: &str = "/run/weft/control.sock";
const OPERATOR: u32 = 4002;
const OTHER: User = user(4001);
const MEMBER: User = User {
    uid: 4003,
    group: Some(GROUP),
};

/// A peer that does not answer, so that its address is in reasons.
const CONFIG: &str = r#"
[control]
operator = "4002"
[[peer]]
name = "bob"
npub = "NPUB"
addresses = ["192.0.2.77:2121"]
[mesh]
open = true
"#;

/// What only owners may see of it.
const SECRETS: [&str; 5] = ["192.0.2.77", ":2121", "weft.toml", "/var/lib", "\"turned_away\""];

fn json(machine: &Machine, user: User, arguments: &[&str]) -> Value {
    serde_json::from_str(&done(&machine.weft(user, arguments))).unwrap()
}

fn configure(machine: &Machine) {
    let made = done(&machine.weft(ROOT, &["identity", "new", "--state", "/run/test/bob"]));
    let npub = made.split_whitespace().find(|word| word.starts_with("npub1")).unwrap();
    machine.configure(&CONFIG.replace("NPUB", npub));
}

#[test]
fn all_users_read_states_and_only_owners_read_addresses() {
    beside(|| {
        if !has_other_users() {
            return;
        }
        let machine = Machine::new();
        configure(&machine);
        let mut daemon = machine.up(&[]);
        for owner in [ROOT, user(OPERATOR), MEMBER] {
            let status = json(&machine, owner, &["status", "--json"]);
            assert_eq!(status["schema"], "weft.status/1", "{owner:?}");
            assert_eq!(status["node"]["config"], "/var/lib/weft/weft.toml");
            wait_until(PATIENCE, "the address is in the reason", || {
                json(&machine, owner, &["peers", "--json"])
                    .to_string()
                    .contains("192.0.2.77")
            });
            done(&machine.weft(owner, &["trace", "--seconds", "1"]));
        }
        for (command, schema) in [("status", "weft.public-status/1"), ("peers", "weft.public-peers/1")] {
            let document = json(&machine, OTHER, &[command, "--json"]);
            assert_eq!(document["schema"], schema);
            assert_eq!(document["peers"][0]["name"], "bob");
            for text in [document.to_string(), done(&machine.weft(OTHER, &[command]))] {
                assert!(text.contains("bob"), "{text}");
                for secret in SECRETS {
                    assert_strict!(!text.contains(secret), "{secret} in {text}");
                }
            }
        }
        let one = done(&machine.weft(OTHER, &["peers", "bob"]));
        assert!(one.contains("bob") && one.contains("sudo"), "{one}");
        let echo = machine.weft(OTHER, &["ping", "bob", "-c", "1", "-W", "0.1"]);
        assert_eq!(echo.status.code(), Some(1), "{echo:?}");
        let echo = String::from_utf8(echo.stdout).unwrap();
        assert!(echo.contains("1 sent, 0 received"), "{echo}");
        assert_strict!(!echo.contains("192.0.2.77"), "{echo}");
        for arguments in [&["down"][..], &["trace"], &["perf", "bob", "--time", "1"]] {
            let line = failed(&machine.weft(OTHER, arguments));
            assert!(
                line.contains("sudo") && line.contains("operator"),
                "{arguments:?}: {line}"
            );
        }
        assert_strict!(daemon.ended().unwrap().is_none(), "a stranger ends the daemon");
        // A uid that equals the gid of the group gives no rights: uids and gids are not mixed up.
        failed(&machine.weft(user(GROUP + 1), &["down"]));
        done(&machine.weft(user(OPERATOR), &["down"]));
        assert_eq!(daemon.wait(PATIENCE).unwrap().code(), Some(0));
    });
}

/// All commands that other users may run do not need a home directory either: jobs of services have none.
#[test]
fn every_user_lists_members_and_asks_the_rules() {
    beside(|| {
        if !has_other_users() {
            return;
        }
        let machine = Machine::new();
        configure(&machine);
        let _daemon = machine.up(&[]);
        done(&machine.weft(ROOT, &["create", "home", "--host", "nas"]));
        let code = ["invite", "--name", "desk", "--address", "192.0.2.99:2121", "--json"];
        let invite = json(&machine, ROOT, &code);
        done(&machine.weft(ROOT, &["rule", "add", "deny", "from", "any", "to", "nas", "tcp/22"]));
        // Ten requests a second are answered, and some commands make several.
        let homeless = |arguments: &[&str]| loop {
            let command = [&["env", "-i", PROGRAM][..], arguments].concat();
            let output = machine.run(OTHER, &command);
            if output.status.success() {
                break done(&output);
            }
            let line = failed(&output);
            assert!(line.contains("ask less often"), "{arguments:?}: {line}");
        };
        for command in ["status", "networks", "members", "routes", "peers", "doctor", "version"] {
            let output = homeless(&[command]);
            let names_it = matches!(command, "status" | "networks" | "members").then_some("home");
            assert!(output.contains(names_it.unwrap_or_default()), "{command}: {output}");
        }
        assert!(homeless(&["status"]).starts_with("nas.home.weft  10.44."));
        assert!(homeless(&["rule", "list"]).contains("tcp/22"));
        assert!(homeless(&["why", "nas", "nas", "udp/53"]).contains("passes"));
        let list: Value = serde_json::from_str(&homeless(&["members", "--json"])).unwrap();
        let member = &list["networks"][0]["members"][0];
        assert_eq!((&member["name"], &member["own"]), (&"nas".into(), &true.into()));
        assert_eq!(list["networks"][0]["invites"].as_array().map(Vec::len), Some(0));
        let all = json(&machine, ROOT, &["networks", "--json"]);
        let key = all["networks"][0]["invites"][0]["key"].as_str().unwrap();
        for secret in [invite["code"].as_str().unwrap(), key, "192.0.2.99"] {
            assert_strict!(!list.to_string().contains(secret), "{secret} in {list}");
        }
        for arguments in [
            &["invite"][..],
            &["leave"],
            &["member", "rename", "nas", "x"],
            &["invites", "revoke", "a"],
        ] {
            let line = failed(&machine.weft(OTHER, arguments));
            assert!(line.contains("sudo"), "{arguments:?}: {line}");
        }
    });
}

#[test]
fn an_operator_is_one_at_once_and_the_former_one_no_more() {
    beside(|| {
        if !has_other_users() {
            return;
        }
        let machine = Machine::new();
        configure(&machine);
        let daemon = machine.up(&[]);
        let owns = |uid| machine.weft(user(uid), &["trace", "--seconds", "1"]).status.success();
        let passwd = fs::read_to_string("/etc/passwd").unwrap();
        let entry = passwd.lines().find(|line| line.starts_with("daemon:")).unwrap();
        let daemon_user: u32 = entry.split(':').nth(2).unwrap().parse().unwrap();
        let mut former = OPERATOR;
        for (set, uid) in [
            (&["control.operator", "4001"][..], 4001),
            (&["control.operator", "daemon"], daemon_user),
            (&["control.operator", "\"4002\""], 4002),
            (&["--operator", "daemon"], daemon_user),
        ] {
            let told = done(&machine.weft(ROOT, &[&["set"], set].concat()));
            assert!(!told.contains("starts again"), "{told}");
            assert!(owns(uid), "{set:?}");
            assert!(!owns(former), "{set:?}");
            former = uid;
        }
        let unknown = machine.weft(ROOT, &["set", "control.operator", "nobody-here"]);
        assert_eq!(unknown.status.code(), Some(2), "{unknown:?}");
        assert!(owns(former), "nothing is changed");
        done(&machine.weft(ROOT, &["set", "control.operator", "--default"]));
        assert!(!owns(former));
        done(&machine.weft(ROOT, &["down"]));
        drop(daemon);
        // Without a daemon it is one from the next start on.
        done(&machine.weft(ROOT, &["set", "control.operator", "4001"]));
        let daemon = machine.up(&[]);
        assert!(owns(4001));
        drop(daemon);
    });
}

#[test]
fn ten_echoes_a_second() {
    beside(|| {
        if !has_other_users() {
            return;
        }
        let machine = Machine::new();
        configure(&machine);
        let _daemon = machine.up(&[]);
        let begun = Instant::now();
        let codes: Vec<Value> = machine.as_user(OTHER, "/run/weft", |sockets| {
            let mut connection = sockets.connect().unwrap();
            let mut codes = Vec::new();
            // A machine that is slow to ask is allowed more of them, those of each second that it takes.
            while codes.len() < 1_000 && codes.last().is_none_or(Value::is_null) {
                codes.push(connection.ask(r#""cmd":"ping","peer":"bob","timeout_ms":1"#)["error"]["code"].clone());
            }
            codes
        });
        let most = 10.0 + 10.0 * begun.elapsed().as_secs_f64();
        let (last, allowed) = codes.split_last().unwrap();
        assert_eq!(*last, "too-often");
        assert!(allowed.len() >= 10 && allowed.len() as f64 <= most, "{codes:?}");
        machine.as_user(user(OPERATOR), "/run/weft", |sockets| {
            let mut connection = sockets.connect().unwrap();
            for _ in 0..40 {
                let answer = connection.ask(r#""cmd":"ping","peer":"bob","timeout_ms":1"#);
                assert_eq!(answer["ok"], true, "{answer}");
            }
        });
    });
}

#[test]
fn idle_connections_of_other_users_keep_no_owner_out() {
    beside(|| {
        if !has_other_users() {
            return;
        }
        let machine = Machine::new();
        configure(&machine);
        let mut daemon = machine.up(&[]);
        let mut held = Vec::new();
        let mut busy = 0;
        for uid in 4101..4110 {
            machine.as_user(user(uid), "/run/weft", |sockets| {
                for _ in 0..10 {
                    let mut connection = sockets.connect().unwrap();
                    match connection.ask(r#""cmd":"version""#)["error"]["code"].as_str() {
                        None => held.push(connection),
                        Some(code) => {
                            assert_eq!(code, "busy");
                            busy += 1;
                        }
                    }
                }
            });
        }
        assert_eq!((held.len(), busy), (56, 9 * 10 - 56));
        let line = failed(&machine.weft(OTHER, &["status"]));
        assert!(line.contains("56 clients"), "{line}");
        done(&machine.weft(MEMBER, &["status"]));
        done(&machine.weft(ROOT, &["down"]));
        assert_eq!(daemon.wait(PATIENCE).unwrap().code(), Some(0));
        drop(held);
    });
}

#[test]
fn every_command_finds_the_socket_of_root_s_daemon() {
    beside(|| {
        let machine = Machine::new();
        machine.configure("");
        let mode = |path: &str| fs::symlink_metadata(machine.path(path)).map(|file| file.permissions().mode() & 0o7777);
        let mut daemon = machine.up(&[]);
        assert_eq!(mode(SOCKET).unwrap(), 0o666);
        assert_eq!(mode("/run/weft").unwrap(), 0o755);
        assert!(mode("/var/lib/weft/control.sock").is_err());
        let owner = |path: &str| fs::metadata(machine.path(path)).unwrap().uid();
        assert_eq!(owner("/run/weft"), owner(SOCKET));
        for arguments in [&["status"][..], &["peers"], &["identity", "show"]] {
            done(&machine.weft(ROOT, arguments));
        }
        done(&machine.weft(ROOT, &["down"]));
        assert_eq!(daemon.wait(PATIENCE).unwrap().code(), Some(0));
        assert!(mode(SOCKET).is_err(), "the socket stays");
        let line = failed(&machine.weft(ROOT, &["status"]));
        assert!(line.contains(SOCKET), "{line}");
        // A socket that a killed daemon left is replaced, in a directory that is the daemon's.
        let mut daemon = machine.up(&[]);
        daemon.kill().unwrap();
        assert!(mode(SOCKET).is_ok());
        let mut daemon = machine.up(&[]);
        done(&machine.weft(ROOT, &["down"]));
        assert_eq!(daemon.wait(PATIENCE).unwrap().code(), Some(0));
        // A directory that is named has the socket.
        let inside = "/var/lib/weft/control.sock";
        let mut daemon = machine.up(&["--state", "/var/lib/weft"]);
        assert_eq!(mode(inside).unwrap(), 0o600);
        assert!(mode(SOCKET).is_err());
        done(&machine.weft(ROOT, &["status", "--state", "/var/lib/weft"]));
        done(&machine.weft(ROOT, &["down"]));
        assert_eq!(daemon.wait(PATIENCE).unwrap().code(), Some(0));
        assert!(mode(inside).is_err());
    });
}

#[test]
fn a_link_in_place_of_the_directory_of_the_socket_is_refused() {
    beside(|| {
        let machine = Machine::new();
        machine.configure("");
        fs::create_dir(machine.path("/run/elsewhere")).unwrap();
        std::os::unix::fs::symlink("/run/elsewhere", machine.path("/run/weft")).unwrap();
        let output = machine.run(ROOT, &[PROGRAM, "up"]);
        let line = failed(&output);
        assert!(line.contains("/run/weft") && line.contains("--state"), "{line}");
        assert_eq!(fs::read_dir(machine.path("/run/elsewhere")).unwrap().count(), 0);
    });
}
