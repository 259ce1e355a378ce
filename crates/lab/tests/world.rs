//! Worlds without any daemon: hosts, cables, switches, roaming, processes.
#![allow(clippy::unwrap_used)]

use std::net::Ipv6Addr;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use weft_lab::child::{ChildError, LoggedChild};
use weft_lab::host::Host;
use weft_lab::traffic::{PingOptions, Pinger};
use weft_lab::world::{World, WorldError};
use weft_os::netlink::NetlinkError;
use weft_os::test_support::{in_namespaces, wait_until};

const A6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
const B6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2);

const MINUTE: Duration = Duration::from_secs(60);
/// How long an answer that must not come is waited for.
const SILENCE: Duration = Duration::from_millis(500);

/// The answers to three pings. None is lost where there is a path, so they are waited for.
fn answered(from: &Host, to: Ipv6Addr) -> u64 {
    pinged(from, to, MINUTE)
}

/// Whether none of three pings is answered.
fn is_silent(from: &Host, to: Ipv6Addr) -> bool {
    pinged(from, to, SILENCE) == 0
}

fn pinged(from: &Host, to: Ipv6Addr, grace: Duration) -> u64 {
    let options = PingOptions {
        interval: Duration::from_millis(20),
        count: Some(3),
        grace,
        ..PingOptions::default()
    };
    Pinger::start(from, to, options).unwrap().join().unwrap().received
}

#[test]
fn two_hosts_on_a_cable_and_a_cut() {
    in_namespaces(|| {
        let world = World::new().unwrap();
        let (a, b) = (world.host("a").unwrap(), world.host("b").unwrap());
        let link = world
            .link(
                (&a, &["192.0.2.1/24", "2001:db8::1/64"]),
                (&b, &["192.0.2.2/24", "2001:db8::2/64"]),
            )
            .unwrap();
        assert_eq!((answered(&a, B6), answered(&b, A6)), (3, 3));
        link.cut().unwrap();
        assert!(is_silent(&a, B6));
        link.heal().unwrap();
        assert_eq!((answered(&a, B6), answered(&b, A6)), (3, 3));
    });
}

#[test]
fn a_host_that_roams_leaves_its_old_address() {
    in_namespaces(|| {
        let world = World::new().unwrap();
        let (a, b) = (world.host("a").unwrap(), world.host("b").unwrap());
        let link = world
            .link((&a, &["2001:db8::1/64"]), (&b, &["2001:db8::2/64"]))
            .unwrap();
        assert_eq!(answered(&a, B6), 3);
        link.b().change_address("2001:db8::2/64", "2001:db8::77/64").unwrap();
        assert_eq!(answered(&a, "2001:db8::77".parse().unwrap()), 3);
        assert!(is_silent(&a, B6));
        // A cut does not restore the old one.
        link.cut().unwrap();
        link.heal().unwrap();
        assert_eq!(answered(&a, "2001:db8::77".parse().unwrap()), 3);
        assert!(is_silent(&a, B6));
        let twice = link.b().change_address("2001:db8::2/64", "2001:db8::3/64");
        assert!(matches!(twice, Err(WorldError::Netlink(NetlinkError::NotFound { .. }))));
    });
}

#[test]
fn three_hosts_on_a_switch_and_a_router() {
    in_namespaces(|| {
        let world = World::new().unwrap();
        let switch = world.switch("lan").unwrap();
        let hosts = ["a", "b", "c"].map(|name| world.host(name).unwrap());
        let [a, b, c] = &hosts;
        let port = switch.connect(a, &["2001:db8::1/64"]).unwrap();
        switch.connect(b, &["2001:db8::2/64"]).unwrap();
        switch.connect(c, &["2001:db8::3/64"]).unwrap();
        assert_eq!((answered(a, B6), answered(c, A6)), (3, 3));

        let far = world.host("far").unwrap();
        let _link = world
            .link((c, &["2001:db8:0:1::1/64"]), (&far, &["2001:db8:0:1::2/64"]))
            .unwrap();
        c.forward().unwrap();
        let net = "2001:db8:0:1::".parse().unwrap();
        a.add_route(net, 64, "2001:db8::3".parse().unwrap()).unwrap();
        let net = "2001:db8::".parse().unwrap();
        far.add_route(net, 64, "2001:db8:0:1::1".parse().unwrap()).unwrap();
        assert_eq!(answered(a, "2001:db8:0:1::2".parse().unwrap()), 3);

        port.cut().unwrap();
        assert!(is_silent(b, A6));
        assert_eq!(answered(b, "2001:db8::3".parse().unwrap()), 3);
    });
}

#[test]
fn a_switch_without_a_handle_still_switches() {
    in_namespaces(|| {
        let world = World::new().unwrap();
        let switch = world.switch("lan").unwrap();
        let (a, b) = (world.host("a").unwrap(), world.host("b").unwrap());
        for (host, at) in [(&a, "2001:db8::1/64"), (&b, "2001:db8::2/64")] {
            switch.connect(host, &[at]).unwrap();
        }
        drop(switch);
        // The system removes a namespace some time after its last use.
        std::thread::sleep(SILENCE);
        assert_eq!((answered(&a, B6), answered(&b, A6)), (3, 3));
    });
}

#[test]
fn a_world_leaves_nothing() {
    in_namespaces(|| {
        let world = World::new().unwrap();
        let directory = world.directory().to_owned();
        std::fs::write(directory.join("file"), "x").unwrap();
        let host = world.host("a").unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "read x < /dev/zero"]);
        let child = LoggedChild::start(&host, command, &directory.join("log")).unwrap();
        let process = format!("/proc/{}", child.pid());
        assert!(std::fs::exists(&process).unwrap());
        drop((child, host, world));
        assert!(!std::fs::exists(&process).unwrap());
        assert!(!std::fs::exists(&directory).unwrap());

        let mut kept = World::new().unwrap();
        kept.keep_directory();
        let directory = kept.directory().to_owned();
        drop(kept);
        std::fs::remove_dir(directory).unwrap();

        let failed = std::panic::catch_unwind(|| {
            let world = World::new().unwrap();
            std::fs::write(world.directory().join("a.log"), "the reason").unwrap();
            std::panic::panic_any(world.directory().to_owned());
        });
        let directory = *failed.unwrap_err().downcast::<PathBuf>().unwrap();
        // .ci/run has it moved.
        let moved = std::env::var_os("WEFT_TEST_FAILURES").and_then(|failures| {
            let mut kept = std::fs::read_dir(failures).ok()?.map(|entry| entry.unwrap().path());
            kept.find(|path| path.to_string_lossy().contains("a_world_leaves_nothing"))
        });
        let kept = moved.unwrap_or(directory);
        assert_eq!(std::fs::read_to_string(kept.join("a.log")).unwrap(), "the reason");
        std::fs::remove_dir_all(kept).unwrap();
    });
}

#[test]
fn a_process_runs_on_its_host_and_keeps_its_log_over_restarts() {
    in_namespaces(|| {
        let world = World::new().unwrap();
        let (a, b) = (world.host("a").unwrap(), world.host("b").unwrap());
        world.link((&a, &["192.0.2.1/24"]), (&b, &[])).unwrap();
        let log = world.directory().join("log");
        let script = "trap 'echo ended; exit 7' TERM; ls /proc/self/net >/dev/null;
            cat /proc/self/net/dev | grep -c eth; echo ready; while :; do sleep 0.02; done";
        for run in 0..2 {
            let mut command = Command::new("sh");
            command.args(["-c", script]);
            let mut child = LoggedChild::start(&a, command, &log).unwrap();
            wait_until(MINUTE, "the process says that it is ready", || {
                assert!(child.ended().unwrap().is_none(), "the process has ended");
                child.log().unwrap().contains("ready")
            });
            let usage = child.usage().unwrap();
            assert!(usage.rss_bytes > 0);
            let status = child.stop(MINUTE).unwrap();
            assert_eq!(status.code(), Some(7));
            assert_eq!(child.log().unwrap(), "1\nready\nended\n", "run {run}");
        }
        assert_eq!(
            std::fs::read_to_string(&log).unwrap().len(),
            2 * "1\nready\nended\n".len()
        );
    });
}

#[test]
fn a_process_that_does_not_stop_is_killed_and_named() {
    in_namespaces(|| {
        let world = World::new().unwrap();
        let host = world.host("a").unwrap();
        let log = world.directory().join("log");
        let mut command = Command::new("sh");
        command.args(["-c", "trap '' TERM; echo ready; while :; do sleep 0.02; done"]);
        let mut child = LoggedChild::start(&host, command, &log).unwrap();
        wait_until(MINUTE, "the process says that it is ready", || {
            child.log().unwrap().contains("ready")
        });
        let result = child.stop(Duration::from_millis(100));
        assert!(matches!(result, Err(ChildError::DidNotStop { program, .. }) if program == "sh"));
        assert!(child.ended().unwrap().is_some());
    });
}

#[test]
fn a_command_without_net_admin_cannot_change_the_network() {
    in_namespaces(|| {
        let world = World::new().unwrap();
        let host = world.host("a").unwrap();
        let command = || {
            let mut command = Command::new("sh");
            command.args(["-c", "grep CapEff /proc/self/status"]);
            command
        };
        let effective = |output: std::process::Output| {
            let text = String::from_utf8(output.stdout).unwrap();
            let digits = text.trim().rsplit_once('\t').unwrap().1.to_owned();
            u64::from_str_radix(&digits, 16).unwrap()
        };
        let with = effective(host.command(command(), MINUTE).unwrap());
        let without = effective(host.command_without_net_admin(command(), MINUTE).unwrap());
        assert_eq!(with & !without, 1 << 12);
        assert_eq!(without & (1 << 12), 0);
    });
}

/// A process that is suspended does not run, and goes on where it was.
#[test]
fn a_suspended_process_sleeps_until_it_is_resumed() {
    in_namespaces(|| {
        let world = World::new().unwrap();
        let host = world.host("a").unwrap();
        let log = world.directory().join("a.log");
        let mut command = Command::new("sh");
        command.args(["-c", "while :; do :; done"]);
        let mut child = LoggedChild::start(&host, command, &log).unwrap();
        let stat = format!("/proc/{}/stat", child.pid());
        // The state follows the name in parentheses (proc_pid_stat(5)).
        let state = || {
            std::fs::read_to_string(&stat)
                .unwrap()
                .split_once(") ")
                .unwrap()
                .1
                .chars()
                .next()
        };
        let wait_for = |states: &str| {
            wait_until(MINUTE, &format!("the state of the process is one of {states}"), || {
                states.contains(state().unwrap())
            });
        };
        child.suspend().unwrap();
        wait_for("T");
        child.resume().unwrap();
        wait_for("RS");
        // Suspended, it is killed all the same.
        child.suspend().unwrap();
        assert!(!child.kill().unwrap().success());
    });
}

/// A host with two uplinks uses the one with the lower metric, and the other when that is gone.
#[test]
fn a_host_with_two_uplinks_uses_that_of_the_lower_metric() {
    in_namespaces(|| {
        let world = World::new().unwrap();
        let (host, one, two) = (
            world.host("a").unwrap(),
            world.host("one").unwrap(),
            world.host("two").unwrap(),
        );
        let first = world.link((&host, &["10.0.1.2/24"]), (&one, &["10.0.1.1/24"])).unwrap();
        let second = world.link((&host, &["10.0.2.2/24"]), (&two, &["10.0.2.1/24"])).unwrap();
        let towards = || {
            host.netlink(|netlink| netlink.interface_towards("11.0.0.7".parse().unwrap()))
                .unwrap()
        };
        let gateway = |text: &str| text.parse().unwrap();
        let add = |index, text, metric| host.add_default_route_on(index, gateway(text), Some(metric)).unwrap();
        add(second.a().index(), "10.0.2.1", 600);
        add(first.a().index(), "10.0.1.1", 100);
        assert_eq!(towards(), Some(first.a().index()));
        first.a().cut().unwrap();
        assert_eq!(towards(), Some(second.a().index()));
        first.a().heal().unwrap();
        add(first.a().index(), "10.0.1.1", 100);
        assert_eq!(towards(), Some(first.a().index()));
        host.delete_default_routes_on(first.a().index(), true).unwrap();
        assert_eq!(towards(), Some(first.a().index()));
        host.delete_default_routes_on(first.a().index(), false).unwrap();
        assert_eq!(towards(), Some(second.a().index()));
    });
}
