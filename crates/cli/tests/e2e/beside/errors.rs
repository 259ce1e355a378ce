//! Faults at the start: one clear line, exit status 1 or 2, and nothing half-created.

use std::fs::{self, Permissions};
use std::net::UdpSocket;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use weft_lab::daemon::{Daemon, Identity};
use weft_lab::host::Host;
use weft_lab::spec::NodeSpec;
use weft_lab::world::World;
use weft_lab::{child, log};
use weft_os::assert_strict;
use weft_os::netlink::Netlink;

use crate::common::{PATIENCE, WEFT, beside, identity};

const LIMIT: Duration = Duration::from_secs(20);

/// One node with a valid key and a valid configuration.
struct Node {
    world: World,
    host: Host,
    identity: Identity,
    config: PathBuf,
}

impl Node {
    fn new() -> Self {
        let world = World::new().unwrap();
        let host = world.host("a").unwrap();
        let identity = identity(&world, "a");
        let config = identity.state.join("config.toml");
        fs::write(&config, NodeSpec::default().to_toml().unwrap()).unwrap();
        Self {
            world,
            host,
            identity,
            config,
        }
    }

    fn up(&self) -> Command {
        let mut command = Command::new(WEFT);
        command.arg("up").arg("--state").arg(&self.identity.state);
        command.arg("--config").arg(&self.config);
        command
    }

    fn fails(&self) -> Output {
        self.host.command(self.up(), LIMIT).unwrap()
    }

    fn key_file(&self) -> PathBuf {
        let mut files = fs::read_dir(&self.identity.state).unwrap().map(|e| e.unwrap().path());
        let is_key = |path: &PathBuf| {
            fs::read_to_string(path).is_ok_and(|text| text.lines().any(|line| line.starts_with("nsec1")))
        };
        files.find(is_key).unwrap()
    }

    /// Asserts that the failure is reported as required and has left nothing, and that the same
    /// files work after the cause is removed.
    fn check(self, output: &Output, code: i32, words: &[&str]) {
        check_text(output, code, words);
        assert!(!self.has_interface(), "the interface stays");
        check_state(&self.identity.state);
        let spec = NodeSpec::default();
        let mut daemon = Daemon::start(&self.host, Path::new(WEFT), &self.identity, &spec).unwrap();
        daemon.wait_ready(PATIENCE).unwrap();
        assert_eq!(daemon.stop().unwrap().code(), Some(0));
        assert!(!self.has_interface(), "the interface stays after a clean stop");
        drop(self.world);
    }

    fn has_interface(&self) -> bool {
        let list = self.host.netlink(Netlink::interfaces).unwrap();
        list.iter().any(|interface| interface.name == "weft0")
    }
}

/// Asserts one line with these words in it, and this exit status.
fn check_text(output: &Output, code: i32, words: &[&str]) {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{stderr}");
    let lines = log::warnings(&stderr);
    assert_eq!(lines.len(), 1, "one line: {stderr}");
    for word in words {
        assert!(lines[0].contains(word), "{word:?} is missing in: {}", lines[0]);
    }
    assert!(!stderr.contains("panicked"), "{stderr}");
}

/// Asserts that no socket remains in the state directory.
fn check_state(state: &Path) {
    for entry in fs::read_dir(state).unwrap() {
        let entry = entry.unwrap();
        assert!(!entry.file_type().unwrap().is_socket(), "{:?} stays", entry.path());
    }
}

#[test]
fn the_port_is_taken() {
    beside(|| {
        let node = Node::new();
        let taken = node.host.run(|| UdpSocket::bind("0.0.0.0:2121").unwrap()).unwrap();
        let output = node.fails();
        drop(taken);
        node.check(&output, 1, &["0.0.0.0:2121"]);
    });
}

#[test]
fn the_interface_name_is_taken() {
    beside(|| {
        let node = Node::new();
        node.host.netlink(|netlink| netlink.create_bridge("weft0")).unwrap();
        let output = node.fails();
        assert!(node.has_interface(), "another's interface is gone");
        node.host
            .netlink(|netlink| {
                let index = netlink.interface("weft0")?.index;
                netlink.delete_interface(index)
            })
            .unwrap();
        node.check(&output, 1, &["weft0"]);
    });
}

#[test]
fn the_capability_is_missing() {
    beside(|| {
        let node = Node::new();
        let output = node.host.command_without_net_admin(node.up(), LIMIT).unwrap();
        node.check(&output, 1, &["CAP_NET_ADMIN"]);
    });
}

#[test]
fn the_tun_device_is_missing() {
    beside(|| {
        let node = Node::new();
        let up = node.up();
        // A mount namespace in which an empty file system hides the device.
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c"]);
        command.arg("mount -t tmpfs none /dev/net && exec \"$0\" \"$@\"");
        command.arg(up.get_program()).args(up.get_args());
        let output = node.host.command(command, LIMIT).unwrap();
        node.check(&output, 1, &["/dev/net/tun"]);
    });
}

#[test]
fn the_key_file_is_open_to_others() {
    beside(|| {
        let node = Node::new();
        let key = node.key_file();
        fs::set_permissions(&key, Permissions::from_mode(0o644)).unwrap();
        let output = node.fails();
        fs::set_permissions(&key, Permissions::from_mode(0o600)).unwrap();
        node.check(&output, 1, &[key.to_str().unwrap(), "600"]);
    });
}

#[test]
fn the_key_file_holds_no_key() {
    beside(|| {
        let node = Node::new();
        let key = node.key_file();
        let secret = fs::read_to_string(&key).unwrap();
        // One letter is changed: the checksum of bech32 detects it.
        let last = if secret.trim().ends_with('q') { "p" } else { "q" };
        let spoilt = format!("{}{last}\n", &secret.trim()[..secret.trim().len() - 1]);
        fs::write(&key, &spoilt).unwrap();
        let output = node.fails();
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_strict!(!stderr.contains(&spoilt[5..30]), "the error shows the secret");
        fs::write(&key, secret).unwrap();
        node.check(&output, 1, &[key.to_str().unwrap()]);
    });
}

#[test]
fn the_key_file_cannot_be_read() {
    beside(|| {
        let node = Node::new();
        let (key, aside) = (node.key_file(), node.identity.state.join("aside"));
        // Permission bits do not stop root; a directory does.
        fs::rename(&key, &aside).unwrap();
        fs::create_dir(&key).unwrap();
        let output = node.fails();
        fs::remove_dir(&key).unwrap();
        fs::rename(&aside, &key).unwrap();
        node.check(&output, 1, &[key.to_str().unwrap()]);
    });
}

#[test]
fn the_configuration_has_an_unknown_key() {
    beside(|| {
        let node = Node::new();
        fs::write(&node.config, "[udp]\nlisten = [\"0.0.0.0:2121\"]\nmut = 1280\n").unwrap();
        let output = node.fails();
        let config = node.config.to_str().unwrap().to_owned();
        node.check(&output, 2, &["mut", &config, "3"]);
    });
}

#[test]
fn the_configuration_is_missing_or_no_toml() {
    beside(|| {
        let node = Node::new();
        let config = node.config.to_str().unwrap().to_owned();
        fs::write(&node.config, "[udp\n").unwrap();
        check_text(&node.fails(), 2, &[&config]);
        fs::remove_file(&node.config).unwrap();
        let output = node.fails();
        node.check(&output, 2, &[&config]);
    });
}

#[test]
fn a_second_daemon_on_the_same_state_is_refused() {
    beside(|| {
        let node = Node::new();
        let spec = NodeSpec::default();
        let mut first = Daemon::start(&node.host, Path::new(WEFT), &node.identity, &spec).unwrap();
        first.wait_ready(PATIENCE).unwrap();
        check_text(&node.fails(), 1, &[node.identity.state.to_str().unwrap()]);
        // The first node is not disturbed.
        first.status().unwrap();
        assert!(node.has_interface());
        assert_eq!(first.stop().unwrap().code(), Some(0));
    });
}

#[test]
fn commands_without_a_daemon_say_so() {
    beside(|| {
        let node = Node::new();
        for arguments in [&["status"][..], &["peers"], &["ping", "b"], &["down"]] {
            let mut command = Command::new(WEFT);
            command.args(arguments).arg("--state").arg(&node.identity.state);
            let output = child::run_command(command, LIMIT).unwrap();
            check_text(&output, 1, &["weft up"]);
        }
    });
}

#[test]
fn wrong_usage_exits_with_2() {
    for arguments in [&["nonsense"][..], &["ping"], &["up", "--nonsense"]] {
        let mut command = Command::new(WEFT);
        command.args(arguments);
        let output = child::run_command(command, LIMIT).unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(!output.stderr.is_empty());
    }
}
