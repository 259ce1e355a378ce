//! A network goes on when its founder's machine is lost, or leaves by mistake.

use std::fs;

use serde_json::Value;

use super::one_command::{Machines, code, members, network};
use crate::common::machine::{Machine, ROOT, done, failed};
use crate::common::{MINUTE, PATIENCE, beside, wait_until};

const PASSPHRASE: &str = "/run/test/passphrase";
const BACKUP: &str = "/run/test/desk.key";

/// Copies a file to another machine.
fn carry(from: &Machine, to: &Machine, path: &str) {
    to.write(path, &fs::read_to_string(from.path(path)).unwrap());
}

fn npub(machine: &Machine) -> String {
    let status: Value = serde_json::from_str(&done(&machine.weft(ROOT, &["status", "--json"]))).unwrap();
    status["node"]["npub"].as_str().unwrap().to_owned()
}

fn is_admin(machine: &Machine, member: &str) -> bool {
    let members = network(machine)["members"].clone();
    let mut members = members.as_array().unwrap().iter();
    members.any(|known| known["name"] == member && known["admin"] == true)
}

/// The founder `desk` on the first machine, and the member `nas` on the second.
fn joined(a: &Machine, b: &Machine) {
    done(&a.weft(ROOT, &["create", "home", "--host", "desk"]));
    done(&b.weft(ROOT, &["join", &code(a, &[]), "--host", "nas"]));
    wait_until(PATIENCE, "a knows b", || members(a) == ["desk", "nas"]);
}

/// The founder changes something, and the member learns it.
fn assert_founder(a: &Machine, b: &Machine, name: &str) {
    done(&a.weft(ROOT, &["member", "rename", &npub(b), name]));
    wait_until(MINUTE, "the member learns its name", || {
        members(b).contains(&name.to_owned())
    });
}

#[test]
fn a_founder_comes_back_from_its_exported_key() {
    beside(|| {
        let machines = Machines::new(&["a", "b", "c"]);
        let [a, b, c] = &machines.all[..] else { panic!() };
        let (mut first, _member) = (a.up(&[]), b.up(&[]));
        joined(a, b);
        a.write(PASSPHRASE, "correct horse\n");
        let export = ["key", "export", "--file", BACKUP, "--passphrase-file", PASSPHRASE];
        let text = done(&a.weft(ROOT, &export));
        assert!(text.contains("with 1 network"), "{text}");
        let backup = fs::read_to_string(a.path(BACKUP)).unwrap();
        let id = network(a)["id"].as_str().unwrap().to_owned();
        assert!(
            !backup.contains(&id) && !backup.contains("nas"),
            "the networks are encrypted"
        );
        // The machine is lost, and another one takes its key.
        first.kill().unwrap();
        for path in [PASSPHRASE, BACKUP] {
            carry(a, c, path);
        }
        let import = ["key", "import", "--file", BACKUP, "--passphrase-file", PASSPHRASE];
        let text = done(&c.weft(ROOT, &import));
        assert!(text.contains("imported\nnetwork home restored\n"), "{text}");
        let text = done(&c.weft(ROOT, &import));
        assert!(
            text.contains("is the key already\nnetwork home is there already\n"),
            "{text}"
        );
        let mut second = c.up(&[]);
        assert_eq!(members(c), ["desk", "nas"]);
        wait_until(MINUTE, "the member is reached", || {
            c.weft(ROOT, &["ping", "nas", "--count", "1", "--timeout", "5"])
                .status
                .success()
        });
        assert_founder(c, b, "box");

        // With the key alone: any member gives the records back.
        second.kill().unwrap();
        done(&c.run(ROOT, &["rm", "-r", "/var/lib/weft"]));
        let key: Vec<&str> = backup.lines().filter(|line| line.starts_with("ncryptsec1")).collect();
        c.write(BACKUP, &key.join("\n"));
        assert!(!done(&c.weft(ROOT, &import)).contains("network"));
        second = c.up(&[]);
        assert!(done(&c.weft(ROOT, &["networks"])).contains("No network"));
        done(&c.weft(ROOT, &["join", "--ask", &npub(b), "--address", "192.0.2.2:2121"]));
        wait_until(MINUTE, "the records are back", || members(c) == ["box", "desk"]);
        assert_founder(c, b, "nas");
        drop(second);
    });
}

#[test]
fn an_administrator_that_leaves_by_mistake_comes_back() {
    beside(|| {
        let machines = Machines::new(&["a", "b"]);
        let [a, b] = &machines.all[..] else { panic!() };
        let (_founder, _member) = (a.up(&[]), b.up(&[]));
        joined(a, b);
        let line = failed(&a.weft(ROOT, &["leave"]));
        assert!(
            line.contains("only administrator") && line.contains("weft admin add"),
            "{line}"
        );
        let line = failed(&a.weft(ROOT, &["member", "remove", "desk"]));
        assert!(line.contains("this machine: `weft leave`"), "{line}");
        assert_eq!(members(b), ["desk", "nas"]);
        done(&a.weft(ROOT, &["leave", "--force"]));
        assert!(done(&a.weft(ROOT, &["networks"])).contains("No network"));
        assert!(is_admin(b, "desk"), "the others know nothing of it");
        done(&a.weft(ROOT, &["join", "--ask", &npub(b), "--address", "192.0.2.2:2121"]));
        wait_until(MINUTE, "the records are back", || members(a) == ["desk", "nas"]);
        assert!(is_admin(a, "desk"));
        assert_founder(a, b, "box");

        // A second administrator leaves: it is none any more for all.
        done(&a.weft(ROOT, &["admin", "add", "box"]));
        wait_until(MINUTE, "b is an administrator", || is_admin(b, "box"));
        let text = done(&b.weft(ROOT, &["leave"]));
        assert!(text.contains("no administrator any more"), "{text}");
        wait_until(MINUTE, "a knows it", || !is_admin(a, "box"));
        done(&a.weft(ROOT, &["member", "remove", "box"]));
        assert_eq!(members(a), ["desk"]);
    });
}
