//! Fresh machines, on which nothing of Weft runs, become a network with one command each.

use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use weft_lab::child::LoggedChild;
use weft_lab::world::{Switch, World};

use super::service::{boot, give_systemctl, has_units};
use crate::common::machine::{Machine, PROGRAM, ROOT, done, failed, has_other_users, user};
use crate::common::{PATIENCE, beside, wait_until};
use weft_os::assert_strict;

const LIMIT: Duration = Duration::from_secs(20);

/// Machines on one switch.
pub(super) struct Machines {
    pub(super) all: Vec<Machine>,
    _switch: Switch,
}

impl Machines {
    pub(super) fn new(names: &[&'static str]) -> Self {
        let world = Arc::new(World::new().unwrap());
        let switch = world.switch("net").unwrap();
        let machine = |(number, name): (usize, &&'static str)| {
            let host = world.host(name).unwrap();
            switch.connect(&host, &[&format!("192.0.2.{}/24", number + 1)]).unwrap();
            Machine::on(&world, host)
        };
        Self {
            all: names.iter().enumerate().map(machine).collect(),
            _switch: switch,
        }
    }
}

pub(super) fn code(machine: &Machine, arguments: &[&str]) -> String {
    let made = done(&machine.weft(ROOT, &[&["invite", "--json"], arguments].concat()));
    let invited: Value = serde_json::from_str(&made).unwrap();
    invited["code"].as_str().unwrap().to_owned()
}

pub(super) fn network(machine: &Machine) -> Value {
    let list: Value = serde_json::from_str(&done(&machine.weft(ROOT, &["networks", "--json"]))).unwrap();
    list["networks"][0].clone()
}

pub(super) fn members(machine: &Machine) -> Vec<String> {
    let members = network(machine)["members"].as_array().cloned().unwrap_or_default();
    let names = members.iter().map(|member| member["name"].as_str().unwrap().to_owned());
    names.collect()
}

/// What `join` printed: all that the user has to know, and no code.
fn assert_joined(machine: &Machine, name: &str, output: &str, code: &str) {
    let network = network(machine);
    let members = network["members"].as_array().unwrap();
    let own = members.iter().find(|member| member["own"] == true).unwrap();
    for part in [
        &format!("home joined; this machine is {name}\n"),
        "interface  weft0\n",
        &format!("name       {name}.home.weft\n"),
        &format!("IPv4       {}\n", own["ipv4"].as_str().unwrap()),
        &format!("IPv6       {}\n", own["address"].as_str().unwrap()),
    ] {
        assert!(output.contains(part), "{part:?} is missing in:\n{output}");
    }
    assert_strict!(!output.contains(code) && !output.contains(&code[..20]), "{output}");
}

fn assert_meet(machines: &[&Machine], names: &[&str]) {
    for machine in machines {
        wait_until(PATIENCE, "all know all members", || members(machine) == names);
        let own = network(machine)["members"].clone();
        let own = own.as_array().unwrap().iter().find(|member| member["own"] == true);
        let own = own.unwrap()["name"].as_str().unwrap();
        for peer in names.iter().filter(|name| **name != own) {
            wait_until(PATIENCE, "a member is reached by its name", || {
                let ping = machine.weft(ROOT, &["ping", peer, "--count", "1", "--timeout", "5"]);
                ping.status.success()
            });
        }
    }
}

fn no_daemon(machine: &Machine) {
    let line = failed(&machine.weft(ROOT, &["status"]));
    assert!(line.contains("no daemon is running"), "{line}");
}

/// Waits until a command in the foreground has done its work.
fn settled(child: &LoggedChild) -> String {
    wait_until(PATIENCE, "the command has done its work", || {
        child.log().unwrap().contains("The daemon goes on in the foreground")
    });
    child.log().unwrap()
}

#[test]
fn three_fresh_machines_with_systemd_run_one_command_each() {
    beside(|| {
        if !has_units() || !has_other_users() {
            return;
        }
        let machines = Machines::new(&["a", "b", "c"]);
        let [a, b, c] = &machines.all[..] else { panic!() };
        for machine in [a, b, c] {
            give_systemctl(machine);
            boot(machine);
        }
        let made = done(&a.weft(ROOT, &["create", "home", "--host", "desk"]));
        assert!(
            made.contains("service   enabled and started") && made.contains("home created; this machine is desk"),
            "{made}"
        );
        let codes = [code(a, &[]), code(a, &[])];
        // Only root can start a daemon.
        let line = failed(&b.weft(user(4001), &["join", &codes[0]]));
        assert!(line.contains("sudo weft join") && !line.contains(&codes[0]), "{line}");
        let line = failed(&b.weft(user(4001), &["create", "other"]));
        assert!(line.contains("sudo weft create"), "{line}");
        // A code that cannot be right changes nothing.
        let line = failed(&b.weft(ROOT, &["join", &codes[0][..90]]));
        assert!(line.contains("incomplete"), "{line}");
        let line = failed(&b.weft(ROOT, &["create", "not a name"]));
        assert!(line.contains("not of ' '"), "{line}");
        assert!(!b.path("/var/lib/weft").exists() && !b.path("/usr/local/bin/weft").exists());

        let joined = done(&b.weft(ROOT, &["join", &codes[0], "--host", "laptop"]));
        assert_joined(b, "laptop", &joined, &codes[0]);
        assert!(joined.contains("copied to /usr/local/bin/weft"), "{joined}");
        // From standard input, which is no terminal.
        c.write("/run/test/code", &format!("{}\n", codes[1]));
        let joined = format!("{PROGRAM} join --host nas < /run/test/code");
        let joined = done(&c.run(ROOT, &["sh", "-c", &joined]));
        assert_joined(c, "nas", &joined, &codes[1]);
        assert_meet(&[a, b, c], &["desk", "laptop", "nas"]);
        for machine in [a, b, c] {
            done(&machine.weft(ROOT, &["service", "status"]));
            done(&machine.weft(ROOT, &["service", "uninstall"]));
        }
    });
}

#[test]
fn without_systemd_the_daemon_runs_in_the_foreground() {
    beside(|| {
        let machines = Machines::new(&["a", "b"]);
        let [a, b] = &machines.all[..] else { panic!() };
        let mut first = a.start(&["create", "home", "--host", "desk"]);
        let made = settled(&first);
        for part in [
            "systemd does not run here: the daemon runs in the foreground, and ends with Ctrl-C.\n",
            "home created; this machine is desk\n",
        ] {
            assert!(made.contains(part), "{part:?} is missing in:\n{made}");
        }
        let (revoked, good) = (code(a, &["--name", "other"]), code(a, &[]));
        let keys = network(a)["invites"].as_array().unwrap().clone();
        let key = keys.iter().find(|invite| invite["name"] == "other").unwrap();
        done(&a.weft(ROOT, &["invites", "revoke", key["key"].as_str().unwrap()]));
        // A refusal ends the daemon that was started for it.
        b.write("/run/test/code", &revoked);
        let refused = b.weft(ROOT, &["join", "--code-file", "/run/test/code"]);
        assert_eq!(refused.status.code(), Some(1), "{refused:?}");
        let errors = String::from_utf8(refused.stderr).unwrap();
        assert!(
            errors.ends_with("weft: not joined: the invite was revoked; ask for a new one\n"),
            "{errors}"
        );
        assert_strict!(!errors.contains(&revoked[..20]), "{errors}");
        no_daemon(b);
        b.write("/run/test/code", &good);
        let mut second = b.start(&["join", "--code-file", "/run/test/code", "--host", "laptop"]);
        let joined = settled(&second);
        assert_joined(b, "laptop", &joined, &good);
        assert_meet(&[a, b], &["desk", "laptop"]);
        // Ctrl-C and SIGTERM to the command alone end the daemon in an orderly way.
        let pid = Pid::from_raw(second.pid().try_into().unwrap()).unwrap();
        kill_process(pid, Signal::INT).unwrap();
        assert_eq!(second.wait(LIMIT).unwrap().code(), Some(0));
        no_daemon(b);
        assert_eq!(first.stop(LIMIT).unwrap().code(), Some(0));
        no_daemon(a);
    });
}

#[test]
fn a_daemon_that_cannot_start_says_why_once() {
    beside(|| {
        let machines = Machines::new(&["a"]);
        let a = &machines.all[0];
        a.configure("");
        a.write("/var/lib/weft/weft.toml", "[nothing]\n");
        let output = a.weft(ROOT, &["create", "home"]);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        let errors = String::from_utf8(output.stderr).unwrap();
        assert!(errors.lines().count() == 1 && errors.contains("nothing"), "{errors}");
    });
}
