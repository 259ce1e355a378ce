//! The same capture while a system boots, whose service is an exit's user, and is upgraded.

use std::fs;
use std::path::PathBuf;

use weft_os::test_support::require_nft;

use super::exit_capture::{Times, Watch};
use super::exit_strict::is_gone;
use super::internet::{Internet, run};
use super::kept_facts::shell;
use super::service::has_units;
use crate::common::machine::{Machine, PROGRAM, ROOT, done, has_other_users};
use crate::common::{PATIENCE, beside, wait_until};

/// Directories of a machine that last from one boot to the next, and what they are called beside it.
const KEPT: [(&str, &str); 3] = [
    ("/var/lib/weft", "state"),
    ("/usr/local/bin", "programs"),
    ("/etc/systemd/system", "units"),
];

/// What ends with the run of a host.
const LOST: &str = "ip link set eth0 down; nft flush ruleset; \
                    for version in -4 -6; do \
                    while ip $version rule delete protocol 119 2> /dev/null; do :; done; \
                    ip $version route flush table 30565 2> /dev/null; \
                    done; true";

/// The unit of a network, which has addresses and a gateway when it is up.
const NETWORK: &str = "[Unit]
DefaultDependencies=no
Wants=network-pre.target
After=network-pre.target
Before=network.target

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/sh -ec 'ip link set eth0 up; ip address replace 192.168.1.10/24 dev eth0; \
 ip address replace 2001:db8:1::10/64 dev eth0 nodad; ip route replace default via 192.168.1.1; \
 ip -6 route replace default via 2001:db8:1::1'
";

/// A laptop on which systemd runs weft.
struct Booting {
    watch: Watch,
    disk: PathBuf,
}

impl Booting {
    /// The state of a daemon that uses a strict exit is that of the service.
    fn new() -> Self {
        let mut watch = Watch::start(Internet::start(true));
        assert_eq!(watch.net.laptop.stop().unwrap().code(), Some(0));
        watch.assert_closed("the daemon stops");
        let disk = watch.net.world.directory().join("disk");
        for (_, name) in KEPT {
            fs::create_dir_all(disk.join(name)).unwrap();
        }
        let state = &watch.net.laptop.identity().state;
        let copy = format!(
            "cp -a {0}/. {1}/state; cd {1}/state; sed -i '/^resolv_conf/d' config.toml; mv config.toml weft.toml",
            state.display(),
            disk.display()
        );
        run(watch.net.laptop.host(), "sh", &["-ec", &copy]);
        let units = disk.join("units");
        fs::write(units.join("lan.service"), NETWORK).unwrap();
        let wants = units.join("multi-user.target.wants");
        fs::create_dir_all(&wants).unwrap();
        std::os::unix::fs::symlink("/etc/systemd/system/lan.service", wants.join("lan.service")).unwrap();
        Self { watch, disk }
    }

    /// Boots with what is on the disk; `None`, with a skip, if systemd does not start here.
    fn boot(&self) -> Option<Machine> {
        let mut script = "echo 'nameserver 192.0.2.80' > /etc/resolv.conf\n".to_owned();
        for (directory, name) in KEPT {
            let from = self.disk.join(name);
            script.push_str(&format!(
                "mkdir -p {directory}; cp -a {}/. {directory}\n",
                from.display()
            ));
        }
        Machine::booted_after(&self.watch.net.world, self.watch.net.laptop.host().clone(), &script)
    }

    /// Keeps what is on the disk, and has the power go.
    fn power_off(&mut self, machine: Machine) {
        for (directory, name) in KEPT {
            let (from, to) = (machine.path(directory), self.disk.join(name));
            let copy = format!("rm -rf {1}; cp -a {0}/. {1}", from.display(), to.display());
            run(self.watch.net.laptop.host(), "sh", &["-ec", &copy]);
        }
        let init = machine.pid();
        drop(machine);
        wait_until(PATIENCE, "the system is gone", || is_gone(init));
        self.watch.assert_closed("the power is off");
        shell(self.watch.net.laptop.host(), LOST);
    }

    /// Another file takes the place of the program, and the service starts it.
    fn upgrade(&mut self, machine: &Machine, number: u32) {
        let other = format!("cp {PROGRAM} /run/test/other; printf {number} >> /run/test/other");
        done(&machine.run(ROOT, &["sh", "-ec", &other]));
        done(&machine.run(ROOT, &["/run/test/other", "service", "install"]));
        self.watch.assert_closed("another program is installed");
        done(&machine.run(ROOT, &["/run/test/other", "service", "restart"]));
        self.watch.wait_passes();
        self.watch.assert_closed("the service has started the other program");
    }
}

#[test]
fn nothing_is_seen_while_a_system_boots_and_is_upgraded() {
    beside(|| {
        if !require_nft() || !has_units() || !has_other_users() {
            return;
        }
        let times = Times::read();
        let mut booting = Booting::new();
        let Some(machine) = booting.boot() else { return };
        done(&machine.weft(ROOT, &["service", "install"]));
        booting.watch.wait_passes();
        booting.watch.assert_closed("the service is installed");
        for number in 0..times.upgrades {
            booting.upgrade(&machine, number);
        }
        booting.power_off(machine);
        for number in 0..times.boots {
            let machine = booting.boot().unwrap();
            booting.watch.assert_closed(&format!("boot {number}"));
            booting.watch.wait_passes();
            booting
                .watch
                .assert_closed(&format!("packets pass after boot {number}"));
            booting.power_off(machine);
        }
        booting.watch.end();
        // Without the units of weft, the same boot shows all.
        for wants in [
            "sysinit.target.wants/weft-closed.service",
            "multi-user.target.wants/weft.service",
        ] {
            fs::remove_file(booting.disk.join("units").join(wants)).unwrap();
        }
        let _machine = booting.boot().unwrap();
        booting.watch.assert_open("after a boot without weft");
    });
}
