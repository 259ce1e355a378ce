//! A network of two weft nodes and two devices on one switch, founded by the first weft node.

use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use weft_lab::daemon::Daemon;
use weft_lab::host::Host;
use weft_lab::nat::{NatBox, NatConfig, NatKind};
use weft_lab::traffic::ping;
use weft_lab::world::{Port, Switch, World};

use crate::common::{MINUTE, PATIENCE, Underlay, WEFT, identity, wait_until};
use crate::device::Device;

/// The hosts, which are those of a switch with the addresses 10.9.0.1 and so on: nvpn refuses addresses of
/// documentation.
pub(crate) struct Net {
    pub(crate) world: World,
    pub(crate) switch: Switch,
    /// The ports of the switch, of weft nodes and devices in their order.
    pub(crate) ports: Vec<Port>,
    /// The administrator, and another member.
    pub(crate) weft: [Daemon; 2],
    pub(crate) devices: [Device; 2],
    /// The NAT boxes of the second weft node and of the first device, if these are behind one.
    pub(crate) boxes: Vec<NatBox>,
    _homes: Vec<Switch>,
}

impl Net {
    /// Starts the network, whose weft nodes make new keys each `rekey_s` seconds. All members are there.
    pub(crate) fn start(program: &Path, rekey_s: u32) -> Self {
        let net = Self::apart(program, rekey_s);
        net.admit();
        net
    }

    /// Makes the devices members.
    pub(crate) fn admit(&self) {
        for (device, name) in self.devices.iter().zip(["phone", "tablet"]) {
            done(&self.weft[0], &["approve", &device.link(), "--name", name]);
        }
        wait_until(MINUTE, "all four are there", || {
            self.devices.iter().all(|device| device.online() == 3)
        });
    }

    /// Starts the network of the weft nodes, and the devices apart from it.
    pub(crate) fn apart(program: &Path, rekey_s: u32) -> Self {
        Self::on(program, rekey_s, [None; 4])
    }

    /// Starts the network with the second weft node and the first device behind NAT boxes of these kinds.
    pub(crate) fn behind(program: &Path, [node, device]: [NatKind; 2]) -> Self {
        let net = Self::on(program, 3_600, [None, Some(node), Some(device), None]);
        net.admit();
        net
    }

    fn on(program: &Path, rekey_s: u32, kinds: [Option<NatKind>; 4]) -> Self {
        let world = World::new().unwrap();
        let switch = world.switch("net").unwrap();
        let (mut ports, mut boxes, mut homes) = (Vec::new(), Vec::new(), Vec::new());
        let mut host = |name: &str, number: u8| -> Host {
            let host = world.host(name).unwrap();
            let Some(kind) = kinds[usize::from(number - 1)] else {
                ports.push(switch.connect(&host, &[&format!("10.9.0.{number}/24")]).unwrap());
                return host;
            };
            let home = world.switch("home").unwrap();
            let [inner, outer] = [format!("192.168.{number}.1/24"), format!("10.9.0.{number}/24")];
            boxes.push(
                world
                    .nat(NatConfig::new(kind), (&home, &inner), (&switch, &outer))
                    .unwrap(),
            );
            ports.push(home.connect(&host, &[&format!("192.168.{number}.2/24")]).unwrap());
            host.add_default_route(IpAddr::V4(Ipv4Addr::new(192, 168, number, 1)))
                .unwrap();
            homes.push(home);
            host
        };
        let [desk, nas, phone, tablet] =
            [("desk", 1), ("nas", 2), ("phone", 3), ("tablet", 4)].map(|(name, number)| host(name, number));
        let node = |name: &'static str, host: &Host| {
            let mut spec = Underlay::V4.listener();
            spec.rekey_s = rekey_s;
            let mut node = Daemon::start(host, Path::new(WEFT), &identity(&world, name), &spec).unwrap();
            node.wait_ready(PATIENCE).unwrap();
            node
        };
        let weft = [node("desk", &desk), node("nas", &nas)];
        done(&weft[0], &["create", "home", "--host", "desk"]);
        let invited: Value =
            serde_json::from_str(&done(&weft[0], &["invite", "--address", "10.9.0.1:2121", "--json"])).unwrap();
        done(&weft[1], &["join", invited["code"].as_str().unwrap(), "--host", "nas"]);
        let device = |host: Host, number: u8| {
            let device = Device::start(program, (host, number), world.directory());
            device.dial(&[(&weft[0].identity().npub, "10.9.0.1:2121")]);
            device
        };
        let devices = [device(phone, 3), device(tablet, 4)];
        Self {
            world,
            switch,
            ports,
            weft,
            devices,
            boxes,
            _homes: homes,
        }
    }

    /// The host of each member, and its address in the network.
    pub(crate) fn members(&self) -> Vec<(&Host, Ipv4Addr)> {
        let weft = self.weft.iter().map(|node| (node.host(), address(node)));
        let devices = self.devices.iter().map(|device| (&device.host, device.address()));
        weft.chain(devices).collect()
    }

    /// Pings from each member to each other one.
    pub(crate) fn assert_all_reach(&self) {
        let members = self.members();
        for (from, own) in &members {
            for (_, to) in members.iter().filter(|(_, to)| to != own) {
                assert_reaches(from, *to);
            }
        }
    }
}

/// Pings until an answer comes.
pub(crate) fn assert_reaches(from: &Host, to: Ipv4Addr) {
    wait_until(MINUTE, &format!("{} reaches {to}", from.name()), || {
        let report = ping(from, IpAddr::V4(to), 1, Duration::from_millis(50)).unwrap();
        report.received == 1
    });
}

/// The address of a weft node in its network.
pub(crate) fn address(node: &Daemon) -> Ipv4Addr {
    network(node)["ipv4"].as_str().unwrap().parse().unwrap()
}

pub(crate) fn network(node: &Daemon) -> Value {
    let list: Value = serde_json::from_str(&done(node, &["members", "--json"])).unwrap();
    list["networks"][0].clone()
}

/// A member, as a weft node shows it; `Null` if it is none.
pub(crate) fn member(node: &Daemon, name: &str) -> Value {
    member_with(node, "name", name)
}

/// The member with this key.
pub(crate) fn member_of_key(node: &Daemon, npub: &str) -> Value {
    member_with(node, "npub", npub)
}

fn member_with(node: &Daemon, field: &str, value: &str) -> Value {
    let members = network(node)["members"].as_array().cloned().unwrap_or_default();
    let found = members.into_iter().find(|member| member[field] == value);
    found.unwrap_or(Value::Null)
}

pub(crate) fn done(node: &Daemon, words: &[&str]) -> String {
    let output = node.command(words).unwrap_or_else(|error| panic!("{words:?}: {error}"));
    String::from_utf8(output.stdout).unwrap()
}
