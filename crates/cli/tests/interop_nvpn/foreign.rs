//! A weft node in a network that a device has founded.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use weft_lab::child::LoggedChild;
use weft_lab::daemon::Daemon;
use weft_lab::world::{Switch, World};

use crate::common::{MINUTE, PATIENCE, Underlay, WEFT, identity, wait_until};
use crate::device::{Device, binary};
use crate::network::{address, assert_reaches, done, member, network};

const NETWORK: &str = "1f2e3d4c";

/// A weft node in no network, and the device that administers one.
struct Pair {
    world: World,
    _switch: Switch,
    node: Daemon,
    phone: Device,
}

impl Pair {
    fn start(program: &Path) -> Self {
        let world = World::new().unwrap();
        let switch = world.switch("net").unwrap();
        let [desk, phone] = [("desk", 1), ("phone", 3)].map(|(name, number)| {
            let host = world.host(name).unwrap();
            switch.connect(&host, &[&format!("10.9.0.{number}/24")]).unwrap();
            host
        });
        let spec = Underlay::V4.listener();
        let mut node = Daemon::start(&desk, Path::new(WEFT), &identity(&world, "desk"), &spec).unwrap();
        node.wait_ready(PATIENCE).unwrap();
        let phone = Device::start(program, (phone, 3), world.directory());
        phone.found(NETWORK);
        phone.dial(&[(&node.identity().npub, "10.9.0.1:2121")]);
        Self {
            world,
            _switch: switch,
            node,
            phone,
        }
    }

    /// Starts `weft join --nvpn` with further words.
    fn join(&self, words: &[&str]) -> LoggedChild {
        let mut command = Command::new(WEFT);
        command.args(["join", "--nvpn"]).args(words);
        command.arg("--state").arg(&self.node.identity().state);
        LoggedChild::start(self.node.host(), command, &self.world.directory().join("join.log")).unwrap()
    }

    /// Waits until the node is a member, and packets pass in both directions.
    fn assert_joined(&self, mut join: LoggedChild) {
        let ended = join.wait(2 * MINUTE).unwrap();
        assert!(ended.success(), "{}", join.log().unwrap());
        println!("{}", join.log().unwrap());
        let of = network(&self.node);
        assert_eq!((&of["founded_with"], &of["state"]), (&"nvpn".into(), &"member".into()));
        wait_until(MINUTE, "the phone sees the node", || self.phone.online() == 1);
        assert_reaches(self.node.host(), self.phone.address());
        assert_reaches(&self.phone.host, address(&self.node));
        let members = of["members"].as_array().unwrap();
        let phone = members.iter().find(|member| member["own"] == false).unwrap();
        assert_eq!(phone["admin"], true);
        let name = phone["name"].as_str().unwrap().to_owned();
        wait_until(MINUTE, "the node knows the device", || {
            member(&self.node, &name)["nvpn"] == true
        });
        let shown = done(&self.node, &["ping", &name, "--count", "2"]);
        assert!(shown.contains("2 received"), "{shown}");
        println!("{}{}", done(&self.node, &["networks"]), done(&self.node, &["members"]));
    }

    fn has_network(&self) -> bool {
        let list: Value = serde_json::from_str(&done(&self.node, &["networks", "--json"])).unwrap();
        !list["networks"].as_array().unwrap().is_empty()
    }
}

#[test]
fn a_weft_node_joins_a_network_of_nvpn_by_link() {
    let Some(program) = binary() else { return };
    let mut pair = Pair::start(&program);
    let join = pair.join(&[]);
    wait_until(MINUTE, "the link is shown", || {
        join.log().unwrap().contains("nvpn://join-request/")
    });
    let log = join.log().unwrap();
    let link = log.lines().find(|line| line.starts_with("nvpn://")).unwrap().to_owned();
    let npub = pair.node.identity().npub.clone();
    pair.phone.run(&["add-device", "--device", &npub]);
    // nvpn's command line reads no links: the secret takes the place that its app gives it.
    wait_until(2 * MINUTE, "the node has joined", || {
        pair.phone.answer_link(&link);
        pair.has_network()
    });
    pair.assert_joined(join);

    // It is a member after a restart, too.
    pair.node.kill().unwrap();
    pair.node.restart().unwrap();
    pair.node.wait_ready(MINUTE).unwrap();
    assert_reaches(pair.node.host(), pair.phone.address());
    let refused = pair
        .node
        .attempt(&["invite", "--address", "10.9.0.1:2121"], MINUTE)
        .unwrap();
    let why = String::from_utf8(refused.stderr).unwrap();
    assert!(why.contains("founded with nvpn"), "{why}");

    pair.phone.run(&["remove-device", "--device", &npub]);
    wait_until(2 * MINUTE, "the node forgets the network", || !pair.has_network());
}

#[test]
fn a_weft_node_joins_a_network_of_nvpn_by_hand_and_leaves() {
    let Some(program) = binary() else { return };
    let pair = Pair::start(&program);
    let join = pair.join(&["--network-id", NETWORK, "--admin", &pair.phone.key()]);
    std::thread::sleep(Duration::from_secs(1));
    pair.phone.run(&["add-device", "--device", &pair.node.identity().npub]);
    pair.assert_joined(join);
    let left = done(&pair.node, &["leave"]);
    assert!(left.contains("remove this machine with nvpn"), "{left}");
    assert!(!pair.has_network());
}
