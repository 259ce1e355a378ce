//! The interface beside a real systemd-networkd that takes each interface.

use std::fs;
use std::path::Path;

use weft_os::test_support::skip;

use crate::common::machine::{Machine, ROOT, done, has_bus};
use crate::common::{PATIENCE, beside, wait_until};

/// systemd-networkd, which comes with systemd.
const NETWORKD: &str = "/usr/lib/systemd/systemd-networkd";
/// A file that matches each interface, as images for servers have it.
const ALL: &str = "[Match]\nName=*\n[Network]\nLinkLocalAddressing=no\n";

#[test]
fn networkd_leaves_the_interface_alone() {
    beside(|| {
        if !Path::new(NETWORKD).exists() || !has_bus() {
            skip("systemd-networkd or dbus-daemon is not installed");
            return;
        }
        let Some(machine) = Machine::booted() else {
            return;
        };
        machine.add_service_user("systemd-network", 4954);
        let _bus = machine.start_bus();
        machine.write("/etc/systemd/network/90-all.network", ALL);
        let manage = || {
            let prepare = "mkdir -p /run/systemd/netif && chown -R 4954:4954 /run/systemd/netif";
            let start = format!(
                "echo $$ > /run/test/networkd.pid && {prepare} && mount -t sysfs -o ro none /sys && exec {NETWORKD}"
            );
            let child = machine.background("networkd", &["unshare", "--mount", "sh", "-c", &start]);
            wait_until(PATIENCE, "systemd-networkd answers", || {
                // A list needs no answer of it.
                machine.run(ROOT, &["networkctl", "reload"]).status.success()
            });
            child
        };
        let mut networkd = manage();
        let mut daemon = machine.up(&[]);
        done(&machine.weft(ROOT, &["create", "home", "--host", "desk"]));
        let facts = || {
            let shown = |arguments: &[&str]| done(&machine.run(ROOT, arguments));
            let addresses = shown(&["ip", "--brief", "address", "show", "weft0"]);
            addresses + &shown(&["ip", "-6", "route", "show", "proto", "119"])
        };
        let is_whole = || facts().contains("fd00::/8") && facts().contains("10.44.");
        wait_until(PATIENCE, "the interface has its addresses and routes", is_whole);
        let before = facts();
        let unmanaged = || {
            let list = done(&machine.run(ROOT, &["networkctl", "--no-legend", "list"]));
            list.lines()
                .any(|line| line.contains("weft0") && line.contains("unmanaged"))
        };
        wait_until(PATIENCE, "the interface is unmanaged", unmanaged);
        done(&machine.run(ROOT, &["networkctl", "reload"]));
        assert_eq!(facts(), before);
        machine.end("networkd", &mut networkd);
        networkd = manage();
        wait_until(PATIENCE, "the interface is unmanaged", unmanaged);
        assert_eq!(facts(), before);

        // Without the file it takes the interface, and what it removes comes back.
        let file = machine.path("/run/systemd/network/05-weft-weft0.network");
        fs::remove_file(&file).unwrap();
        for command in [&["networkctl", "reload"][..], &["networkctl", "reconfigure", "weft0"]] {
            done(&machine.run(ROOT, command));
        }
        wait_until(PATIENCE, "systemd-networkd has the interface", || !unmanaged());
        wait_until(PATIENCE, "the interface is whole", || facts() == before);
        done(&machine.weft(ROOT, &["down"]));
        assert_eq!(daemon.wait(PATIENCE).unwrap().code(), Some(0));
        drop(networkd);
    });
}
