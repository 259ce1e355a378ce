//! Names with a real systemd-resolved, on a machine with systemd as its init: the C library asks
//! systemd-resolved, which asks the daemon for its names and a server of the test for others.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;
use weft_lab::child::LoggedChild;
use weft_lab::world::{Switch, World};
use weft_os::test_support::{skip, stood_still_since};

use super::upstream::{Upstream, others};
use crate::common::machine::{Machine, ROOT, files_of_package, has_bus};
use crate::common::{MINUTE, PATIENCE, beside, wait_until};

/// A directory with the files of the package `systemd-resolved`, for systems that do not have it.
const VARIABLE: &str = "WEFT_TEST_RESOLVED";
/// The path of systemd-resolved on the machine.
const RESOLVED: &str = "/run/test/systemd-resolved";
/// The file of systemd-resolved that resolv.conf is a link to.
const STUB: &str = "/run/systemd/resolve/stub-resolv.conf";
const SETTINGS: &str = "[Resolve]\nDNS=192.0.2.53\nFallbackDNS=\nLLMNR=no\nMulticastDNS=no\nDNSSEC=no\n";

/// systemd-resolved and resolvectl.
struct Programs {
    resolved: PathBuf,
    resolvectl: PathBuf,
}

impl Programs {
    /// `None`, with a skip, if a program is missing.
    fn find() -> Option<Self> {
        let root = files_of_package(VARIABLE);
        let at = |names: &[&str]| names.iter().map(|name| root.join(name)).find(|path| path.exists());
        let resolved = at(&["usr/lib/systemd/systemd-resolved", "lib/systemd/systemd-resolved"]);
        let found = resolved.zip(at(&["usr/bin/resolvectl"]));
        if found.is_none() || !has_bus() {
            skip("systemd-resolved or dbus-daemon is not installed");
            return None;
        }
        found.map(|(resolved, resolvectl)| Self { resolved, resolvectl })
    }
}

/// Copies a program to a path of the machine.
fn install(program: &Path, to: &Path) {
    fs::create_dir_all(to.parent().unwrap()).unwrap();
    fs::copy(program, to).unwrap();
    fs::set_permissions(to, fs::Permissions::from_mode(0o755)).unwrap();
}

struct Net {
    machine: Machine,
    upstream: Upstream,
    _bus: LoggedChild,
    _switch: Switch,
}

impl Net {
    fn start(programs: &Programs) -> Option<Self> {
        let world = Arc::new(World::new().unwrap());
        let switch = world.switch("net").unwrap();
        let upstream = Upstream::start(&world, &switch);
        let host = world.host("a").unwrap();
        switch.connect(&host, &["192.0.2.1/24"]).unwrap();
        let machine = Machine::booted_on(&world, host)?;
        machine.add_service_user("systemd-resolve", 4953);
        machine.write("/etc/systemd/resolved.conf", SETTINGS);
        machine.write("/etc/nsswitch.conf", "hosts: files dns\npasswd: files\ngroup: files\n");
        // The machine does not see the checkout where that is below a directory of its own, /tmp for
        // example. resolvectl goes where brokers look for it.
        install(&programs.resolved, &machine.path(RESOLVED));
        install(
            &programs.resolvectl,
            &machine.path("/run/current-system/sw/bin/resolvectl"),
        );
        let bus = machine.start_bus();
        Some(Self {
            machine,
            upstream,
            _bus: bus,
            _switch: switch,
        })
    }

    /// Starts systemd-resolved, and waits until programs get answers from it.
    fn resolve(&self) -> LoggedChild {
        let resolved = self.machine.background("resolved", &[RESOLVED]);
        wait_until(PATIENCE, "systemd-resolved runs", || self.machine.path(STUB).exists());
        let file = self.machine.path("/etc/resolv.conf");
        let _ = fs::remove_file(&file);
        std::os::unix::fs::symlink(STUB, &file).unwrap();
        wait_until(PATIENCE, "systemd-resolved answers", || {
            !self.look_up("ahostsv4", "www.example").is_empty()
        });
        resolved
    }

    fn look_up(&self, database: &str, name: &str) -> Vec<String> {
        self.machine.look_up(database, name)
    }

    fn others(&self) -> Vec<Vec<String>> {
        others(&self.machine)
    }

    fn names(&self) -> Value {
        let output = self.machine.weft(ROOT, &["status", "--json"]);
        let status: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        status["node"]["dns"].clone()
    }

    fn wait_set_up(&self) {
        wait_until(MINUTE, "names are set up in the system", || {
            self.names()["state"] == "system"
        });
    }

    fn done(&self, arguments: &[&str]) {
        let output = self.machine.weft(ROOT, arguments);
        assert!(output.status.success(), "{arguments:?}: {output:?}");
    }
}

#[test]
fn names_by_a_real_resolved_and_others_as_before() {
    beside(|| {
        let Some(net) = Programs::find().as_ref().and_then(Net::start) else {
            return;
        };
        let mut resolved = net.resolve();
        let before = net.others();
        assert_eq!(before[0], ["198.51.100.7"]);
        assert!(before[3].is_empty() && before[5].is_empty(), "{before:?}");
        assert!(net.look_up("ahostsv6", "desk.home.weft").is_empty());

        net.done(&["service", "install"]);
        net.wait_set_up();
        let link = fs::read_link(net.machine.path("/etc/resolv.conf")).unwrap();
        assert_eq!(link, Path::new(STUB));
        net.done(&["create", "home", "--host", "desk"]);
        let output = net.machine.weft(ROOT, &["networks", "--json"]);
        let networks: Value = serde_json::from_slice(&output.stdout).unwrap();
        let own = &networks["networks"][0]["members"][0];
        let (four, six) = (own["ipv4"].as_str().unwrap(), own["address"].as_str().unwrap());
        // The short one by a search domain, which follows the network.
        for name in ["desk.home.weft", "desk"] {
            wait_until(PATIENCE, name, || net.look_up("ahostsv6", name) == [six]);
            assert_eq!(net.look_up("ahostsv4", name), [four], "{name}");
        }
        assert!(net.look_up("ahostsv4", "phone.home.weft").is_empty());
        assert_eq!(net.others(), before);

        // systemd-resolved forgets what it was told when it ends.
        resolved.kill().unwrap();
        drop(resolved);
        let again = net.resolve();
        let back = Instant::now();
        wait_until(MINUTE, "the daemon sets names up again", || {
            net.look_up("ahostsv6", "desk.home.weft") == [six]
        });
        let took = back.elapsed();
        assert!(took <= Duration::from_secs(5) || stood_still_since(back), "{took:?}");

        // The settings end with the interface, and come back with the service.
        let killed = "kill -9 $(systemctl show --value --property MainPID weft.service)";
        assert!(net.machine.run(ROOT, &["sh", "-c", killed]).status.success());
        assert_eq!(net.others(), before);
        wait_until(MINUTE, "names are back", || net.look_up("ahostsv6", "desk") == [six]);
        net.done(&["down"]);
        wait_until(PATIENCE, "names end", || {
            net.look_up("ahostsv6", "desk.home.weft").is_empty()
        });
        assert_eq!(net.others(), before);
        let asked = net.upstream.asked.lock().unwrap().clone();
        let during: Vec<_> = asked.iter().filter(|name| name.ends_with(".home.weft")).collect();
        assert!(during.iter().all(|name| *name == "desk.home.weft"), "{during:?}");
        drop(again);
    });
}

#[test]
fn settings_that_another_program_reverts_come_back() {
    beside(|| {
        let Some(net) = Programs::find().as_ref().and_then(Net::start) else {
            return;
        };
        let _resolved = net.resolve();
        let _daemon = net.machine.up(&[]);
        net.done(&["create", "home", "--host", "desk"]);
        let found = || !net.look_up("ahostsv4", "desk.home.weft").is_empty();
        wait_until(MINUTE, "names of the network", found);
        // NetworkManager and systemd-networkd revert a link that they take, and set others' settings.
        for arguments in [
            &["revert", "weft0"][..],
            &["domain", "weft0", "lan.example"],
            &["dns", "weft0", "192.0.2.53"],
        ] {
            let command = [&["/run/current-system/sw/bin/resolvectl"], arguments].concat();
            assert!(net.machine.run(ROOT, &command).status.success(), "{arguments:?}");
            wait_until(PATIENCE, "names of the network are back", found);
        }
        assert_eq!(net.names()["state"], "system");
    });
}

#[test]
fn names_follow_a_resolved_that_starts_late() {
    beside(|| {
        let Some(net) = Programs::find().as_ref().and_then(Net::start) else {
            return;
        };
        // Nothing tells yet which resolver this system will have.
        let _ = fs::remove_file(net.machine.path("/etc/resolv.conf"));
        let _daemon = net.machine.up(&[]);
        net.done(&["create", "home", "--host", "desk"]);
        assert_eq!(net.names()["state"], "local");
        let _resolved = net.resolve();
        wait_until(MINUTE, "names of the network", || {
            !net.look_up("ahostsv4", "desk.home.weft").is_empty()
        });
        net.wait_set_up();
    });
}

#[test]
fn a_file_that_the_configuration_names_stays_the_only_place() {
    beside(|| {
        let Some(net) = Programs::find().as_ref().and_then(Net::start) else {
            return;
        };
        let _resolved = net.resolve();
        let directory = net.machine.path("/etc/other");
        fs::create_dir(&directory).unwrap();
        std::os::unix::fs::symlink(STUB, directory.join("resolv.conf")).unwrap();
        net.machine
            .configure("[dns]\nresolv_conf = \"/etc/other/resolv.conf\"\n");
        let _daemon = net.machine.up(&[]);
        wait_until(PATIENCE, "the file is left alone", || {
            net.names()["why"]
                .as_str()
                .is_some_and(|why| why.contains("belongs to systemd-resolved"))
        });
        // The index of the interface may mean another one to systemd-resolved.
        let domains = net
            .machine
            .run(ROOT, &["/run/current-system/sw/bin/resolvectl", "domain", "weft0"]);
        assert!(
            !String::from_utf8_lossy(&domains.stdout).contains("weft "),
            "{domains:?}"
        );
        assert!(
            !String::from_utf8_lossy(&domains.stdout).contains("~fips"),
            "{domains:?}"
        );
    });
}
