//! Guests: devices with WireGuard behind a member, with the real wireguard-go and wg(8).

use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;

use serde_json::Value;
use weft_lab::daemon::Daemon;
use weft_lab::host::Host;
use weft_lab::traffic::{PingOptions, Pinger, transfer};
use weft_lab::world::{Switch, World};
use weft_os::assert_strict;

use super::internet::done;
use crate::common::wireguard::{WireGuardDevice, wireguard_go};
use crate::common::{MINUTE, PATIENCE, Underlay, WEFT, beside, identity, wait_until};

/// The bytes of a transfer between a guest and a member.
const BYTES: u64 = 20_000_000;

/// desk, the administrator and host of guests; nas, another member; and devices.
struct Home {
    world: World,
    switch: Switch,
    desk: Daemon,
    nas: Daemon,
}

impl Home {
    fn start() -> Self {
        let world = World::new().unwrap();
        let switch = world.switch("net").unwrap();
        let [desk, nas] = [("desk", 1), ("nas", 2)].map(|(name, number)| {
            let host = world.host(name).unwrap();
            switch.connect(&host, &[&format!("192.0.2.{number}/24")]).unwrap();
            let id = identity(&world, name);
            let mut node = Daemon::start(&host, Path::new(WEFT), &id, &Underlay::V4.listener()).unwrap();
            node.wait_ready(PATIENCE).unwrap();
            node
        });
        done(&desk, &["create", "home", "--host", "desk"]);
        let invited: Value = serde_json::from_str(&done(&desk, &["invite", "--json"])).unwrap();
        done(&nas, &["join", invited["code"].as_str().unwrap(), "--host", "nas"]);
        Self {
            world,
            switch,
            desk,
            nas,
        }
    }

    /// A host on the switch without weft.
    fn machine(&self, name: &str, number: u8) -> Host {
        let host = self.world.host(name).unwrap();
        self.switch.connect(&host, &[&format!("192.0.2.{number}/24")]).unwrap();
        host
    }

    /// A device that is a guest of desk.
    fn guest(&self, program: &Path, (name, number): (&str, u8), more: &[&str]) -> WireGuardDevice {
        let file = done(&self.desk, &[&["wg", "add", name][..], more].concat());
        WireGuardDevice::start(program, &self.machine(name, number), self.world.directory(), &file)
    }

    /// What desk knows of its guest.
    fn here(&self, name: &str) -> Value {
        let list: Value = serde_json::from_str(&done(&self.desk, &["wg", "list", "--json"])).unwrap();
        let guests = list["guests"].as_array().unwrap().iter();
        let mut named = guests.filter(|guest| guest["name"] == name);
        named.next().map(|guest| guest["here"].clone()).unwrap_or_default()
    }
}

/// The address of a node in the network.
fn ipv4(node: &Daemon) -> Ipv4Addr {
    let list: Value = serde_json::from_str(&done(node, &["networks", "--json"])).unwrap();
    let members = list["networks"][0]["members"].as_array().unwrap().clone();
    let own = members
        .iter()
        .find(|member| member["npub"] == node.identity().npub.as_str());
    own.unwrap()["ipv4"].as_str().unwrap().parse().unwrap()
}

fn pings_from(from: &Host, to: Ipv4Addr, source: Option<Ipv4Addr>) -> bool {
    let options = PingOptions {
        source: source.map(IpAddr::V4),
        count: Some(1),
        ..PingOptions::default()
    };
    Pinger::start(from, to, options).unwrap().join().unwrap().received == 1
}

fn pings(from: &Host, to: Ipv4Addr) -> bool {
    pings_from(from, to, None)
}

fn counter(node: &Daemon, name: &str) -> u64 {
    node.status().unwrap()["counters"][name].as_u64().unwrap()
}

#[test]
fn a_phone_with_wireguard_reaches_all_members_and_back() {
    beside(|| {
        let Some(program) = wireguard_go() else { return };
        let home = Home::start();
        let phone = home.guest(&program, ("phone", 3), &[]);
        let [desk, nas] = [&home.desk, &home.nas].map(ipv4);
        wait_until(MINUTE, "the phone reaches its host", || pings(&phone.host, desk));
        wait_until(MINUTE, "the phone reaches another member", || pings(&phone.host, nas));
        let own = phone.address();
        wait_until(MINUTE, "its host reaches it", || pings(home.desk.host(), own));
        wait_until(MINUTE, "another member reaches it", || pings(home.nas.host(), own));
        for (from, to, at) in [
            (&phone.host, home.desk.host(), desk),
            (home.desk.host(), &phone.host, own),
            (&phone.host, home.nas.host(), nas),
            (home.nas.host(), &phone.host, own),
        ] {
            let report = transfer((from, to), at.into(), BYTES, 1, 2 * MINUTE).unwrap();
            assert!(report.hash_ok && report.bytes == BYTES, "{report:?}");
        }
        let here = home.here("phone");
        assert!(here["up"] == true && here["preshared"] == true, "{here}");
        assert_eq!(
            here["endpoint"].as_str().map(|at| at.starts_with("192.0.2.3:")),
            Some(true),
            "{here}"
        );
        assert!(here["rx_bytes"].as_u64().unwrap() > BYTES, "{here}");
        let shown = phone.wg(&["show", "wg0", "latest-handshakes"]);
        assert!(!shown.trim().ends_with("\t0"), "{shown}");
        home.finish();
    });
}

#[test]
fn a_guest_roams_and_both_ends_may_be_killed() {
    beside(|| {
        let Some(program) = wireguard_go() else { return };
        let mut home = Home::start();
        let mut phone = home.guest(&program, ("phone", 3), &["--no-psk"]);
        let desk = ipv4(&home.desk);
        let own = phone.address();
        wait_until(MINUTE, "the phone reaches its host", || pings(&phone.host, desk));
        // It goes on from another port, as behind a NAT that forgot it.
        phone.wg(&["set", "wg0", "listen-port", "4242"]);
        wait_until(MINUTE, "it goes on from another port", || pings(&phone.host, desk));
        assert_strict!(pings(home.desk.host(), own), "its host reaches it there");
        wait_until(MINUTE, "its host knows the port", || {
            home.here("phone")["endpoint"]
                .as_str()
                .is_some_and(|at| at.ends_with(":4242"))
        });
        home.desk.kill().unwrap();
        home.desk.restart().unwrap();
        home.desk.wait_ready(PATIENCE).unwrap();
        wait_until(MINUTE, "it reaches the host that was killed", || {
            pings(&phone.host, desk)
        });
        phone.kill();
        phone.launch();
        wait_until(MINUTE, "it comes back", || pings(&phone.host, desk));
        wait_until(MINUTE, "its host reaches it", || pings(home.desk.host(), own));
        done(&home.desk, &["wg", "remove", "phone"]);
        wait_until(MINUTE, "it is a guest no longer", || !pings(&phone.host, desk));
        home.finish();
    });
}

#[test]
fn rules_decide_what_a_guest_reaches() {
    beside(|| {
        let Some(program) = wireguard_go() else { return };
        let home = Home::start();
        done(&home.desk, &["member", "tag", "nas", "box"]);
        done(&home.desk, &["rule", "default", "deny"]);
        let phone = home.guest(&program, ("phone", 3), &["--tag", "phones"]);
        let [desk, nas] = [&home.desk, &home.nas].map(ipv4);
        let own = phone.address();
        done(&home.desk, &["rule", "add", "allow from tag:phones to tag:box icmp"]);
        wait_until(MINUTE, "a rule leads the phone to nas", || pings(&phone.host, nas));
        assert_strict!(!pings(&phone.host, desk), "no rule leads it to its host");
        assert_strict!(!pings(home.nas.host(), own), "no rule leads to it");
        done(&home.desk, &["rule", "add", "allow from tag:box to tag:phones icmp"]);
        wait_until(MINUTE, "a rule leads nas to the phone", || pings(home.nas.host(), own));
        // Another address than its own is dropped by its host.
        let other = Ipv4Addr::new(10, 44, 250, 250);
        phone.add_address(other);
        let before = counter(&home.desk, "foreign_source");
        assert_strict!(!pings_from(&phone.host, nas, Some(other)), "it is not its address");
        wait_until(MINUTE, "it is counted", || {
            counter(&home.desk, "foreign_source") > before
        });
        home.finish();
    });
}

impl Home {
    /// Asserts that both ends stop without a warning.
    fn finish(mut self) {
        for node in [&mut self.desk, &mut self.nas] {
            assert_eq!(node.stop().unwrap().code(), Some(0));
            assert!(node.warnings().unwrap().is_empty(), "{:?}", node.warnings());
        }
    }
}
