//! The first minutes of a node: a failed start leaves nothing behind, and no second identity is
//! created by mistake.

use std::fs;
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use crate::common::{MINUTE, PATIENCE, Underlay, WEFT, beside, identity, wait_until};
use weft_lab::child::LoggedChild;
use weft_lab::daemon::Daemon;
use weft_lab::host::Host;
use weft_lab::world::World;

fn up(state: &Path) -> Command {
    let mut command = Command::new(WEFT);
    command.arg("up").arg("--state").arg(state);
    command
}

/// The one line of a command that failed with `code`.
fn failed(output: &Output, code: i32) -> String {
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{stderr}");
    assert!(output.stdout.is_empty(), "nothing is announced: {output:?}");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    stderr
}

fn world() -> (World, Host, PathBuf) {
    let world = World::new().unwrap();
    let host = world.host("a").unwrap();
    let state = world.directory().join("state");
    (world, host, state)
}

#[test]
fn faults_of_the_first_start_are_found_before_a_key_is_made() {
    beside(|| {
        let (_world, host, state) = world();
        let output = host.command_without_net_admin(up(&state), MINUTE).unwrap();
        assert!(failed(&output, 1).contains("CAP_NET_ADMIN"), "{output:?}");
        assert!(!state.exists(), "rights");
        let taken = host.run(|| UdpSocket::bind("0.0.0.0:2121").unwrap()).unwrap();
        let line = failed(&host.command(up(&state), MINUTE).unwrap(), 1);
        assert!(line.contains("0.0.0.0:2121") && line.contains("weft down"), "{line}");
        assert!(!state.exists(), "the port");
        drop(taken);
        let mut child = LoggedChild::start(&host, up(&state), &state.with_extension("log")).unwrap();
        wait_until(PATIENCE, "the node is up", || state.join("control.sock").exists());
        let welcome = child.log().unwrap();
        for part in ["This node is new", "npub1", "Ctrl-C"] {
            assert!(welcome.contains(part), "{part:?} is missing in:\n{welcome}");
        }
        assert_eq!(child.stop(MINUTE).unwrap().code(), Some(0));
    });
}

#[test]
fn a_missing_key_that_the_configuration_needs_is_not_replaced() {
    beside(|| {
        let (world, host, state) = world();
        let peer = identity(&world, "peer");
        fs::create_dir(&state).unwrap();
        let config = state.join("weft.toml");
        let with_peer = format!("[[peer]]\nnpub = \"{}\"\n", peer.npub);
        for text in ["[identity]\nkey_file = \"identiy.key\"\n", &with_peer] {
            fs::write(&config, text).unwrap();
            let line = failed(&host.command(up(&state), MINUTE).unwrap(), 2);
            for part in [config.to_str().unwrap(), "key file is missing", "weft identity new"] {
                assert!(line.contains(part), "{part:?} is missing in: {line}");
            }
            let files: Vec<_> = fs::read_dir(&state).unwrap().map(|e| e.unwrap().file_name()).collect();
            assert_eq!(files, ["weft.toml"], "nothing is made");
        }
    });
}

#[test]
fn a_terminal_that_closes_stops_the_daemon_in_an_orderly_way() {
    beside(|| {
        let (world, host, _) = world();
        let id = identity(&world, "a");
        for (signal, nohup) in [("HUP", false), ("QUIT", false), ("HUP", true)] {
            // The tests may run under nohup themselves.
            let mut command = Command::new(if nohup { "nohup" } else { "env" });
            if !nohup {
                command.arg("--default-signal=HUP");
            }
            command.arg(WEFT).arg("up").arg("--state").arg(&id.state);
            let log = id.state.with_extension(format!("{signal}{nohup}"));
            let mut child = LoggedChild::start(&host, command, &log).unwrap();
            let socket = id.state.join("control.sock");
            wait_until(PATIENCE, "the node is up", || {
                let mut status = Command::new(WEFT);
                status.arg("status").arg("--state").arg(&id.state);
                status.output().unwrap().status.success()
            });
            let kill = |signal: &str| {
                let sent = Command::new("sh")
                    .args(["-c", "kill -$0 $1", signal, &child.pid().to_string()])
                    .status();
                assert!(sent.unwrap().success());
            };
            kill(signal);
            if nohup {
                std::thread::sleep(Duration::from_millis(300));
                assert!(socket.exists(), "nohup keeps it");
                kill("TERM");
            }
            assert_eq!(child.wait(MINUTE).unwrap().code(), Some(0), "{signal}");
            assert!(!socket.exists(), "the socket stays");
        }
    });
}

#[test]
fn with_ipv6_switched_off_only_the_tun_interface_has_it() {
    beside(|| {
        let (world, host, _) = world();
        let id = identity(&world, "a");
        let off = |name: &str| format!("/proc/sys/net/ipv6/conf/{name}/disable_ipv6");
        host.run(|| fs::write(off("default"), "1").unwrap()).unwrap();
        let mut daemon = Daemon::start(&host, Path::new(WEFT), &id, &Underlay::V4.listener()).unwrap();
        daemon.wait_ready(PATIENCE).unwrap();
        let read = |name: &str| host.run(|| fs::read_to_string(off(name)).unwrap()).unwrap();
        assert_eq!((read("weft0").trim(), read("default").trim()), ("0", "1"));
        assert_eq!(daemon.stop().unwrap().code(), Some(0));
        assert!(daemon.warnings().unwrap().is_empty());
    });
}

#[test]
fn a_second_node_in_one_system_is_told_which_route_is_taken() {
    beside(|| {
        let (world, host, _) = world();
        let [one, two] = ["one", "two"].map(|name| identity(&world, name));
        let mut first = Daemon::start(&host, Path::new(WEFT), &one, &Underlay::V4.listener()).unwrap();
        first.wait_ready(PATIENCE).unwrap();
        let config = "[udp]\nlisten = [\"0.0.0.0:2122\"]\n[tun]\nname = \"weft1\"\n[dns]\nenabled = false\n";
        fs::write(two.state.join("weft.toml"), config).unwrap();
        let line = failed(&host.command(up(&two.state), MINUTE).unwrap(), 1);
        assert!(line.contains("fd00::/8") && line.contains("another weft"), "{line}");
        assert_eq!(first.stop().unwrap().code(), Some(0));
    });
}

/// Both ends are in subnets with the same addresses, as of many home routers.
#[test]
fn a_route_of_a_peer_that_this_machine_is_in_keeps_no_node_down() {
    beside(|| {
        let world = World::new().unwrap();
        let host = world.host("a").unwrap();
        let switch = world.switch("home").unwrap();
        switch.connect(&host, &["192.168.1.5/24"]).unwrap();
        let [id, peer] = ["a", "peer"].map(|name| identity(&world, name));
        let mut spec = Underlay::V4.listener().with_peer(&peer.npub, "peer", &[]);
        spec.peers[0].routes = vec!["192.168.1.0/24".to_owned(), "192.168.9.0/24".to_owned()];
        let mut daemon = Daemon::start(&host, Path::new(WEFT), &id, &spec).unwrap();
        daemon.wait_ready(PATIENCE).unwrap();
        let routes = daemon.peer(&peer.npub).unwrap().unwrap()["routes"].clone();
        assert_eq!(routes["unrouted"], serde_json::json!(["192.168.1.0/24"]), "{routes}");
        let warnings = daemon.warnings().unwrap();
        assert!(
            warnings.len() == 1 && warnings[0].contains("this host is in 192.168.1.0/24 by "),
            "{warnings:?}"
        );
        assert_eq!(daemon.stop().unwrap().code(), Some(0));
    });
}
