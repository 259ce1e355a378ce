//! Cleanup of a world when its process ends for any reason; and background traffic of its hosts.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

use std::io::{BufRead as _, BufReader};
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use weft_lab::child::LoggedChild;
use weft_lab::emulator::{Cable, Impairments};
use weft_lab::interrupt::Interrupts;
use weft_lab::nat::{NatConfig, NatKind};
use weft_lab::world::World;
use weft_os::netlink::{NetlinkError, VethEnd};
use weft_os::netns::NetNs;
use weft_os::test_support::{in_namespaces, wait_until};

/// Set in the process that creates a world and then ends: the way in which it ends.
const VICTIM: &str = "WEFT_TEST_VICTIM";

/// A cable from a host of the victim's world to the namespace of the observer: it exists as long as
/// that host.
const TRACE: &str = "trace";

const MINUTE: Duration = Duration::from_secs(60);

/// Starts this test again in a namespace of its own, where it creates a world with everything; ends
/// it; and waits until nothing of the world is left. The last argument is whether the directory may
/// remain. A test that panics keeps its directory.
fn leaves_nothing(name: &str, how: &str, end: fn(u32), directory_stays: bool) {
    let observer = NetNs::new().unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", name, "--nocapture"]).env(VICTIM, how);
    // Without it the directory of a process that panics stays where it is.
    command.env_remove("WEFT_TEST_FAILURES");
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut victim = observer.spawn(&mut command).unwrap();
    let lines = BufReader::new(victim.stdout.take().unwrap()).lines();
    let ready = lines.map_while(Result::ok).find_map(|line| {
        let (_, rest) = line.split_once("ready ")?;
        let (process, directory) = rest.split_once(' ')?;
        Some((PathBuf::from(format!("/proc/{process}")), PathBuf::from(directory)))
    });
    let (process, directory) = ready.unwrap();
    let mut netlink = observer.netlink().unwrap();
    netlink.interface(TRACE).unwrap();
    assert!(process.exists() && directory.exists());

    end(victim.id());
    victim.stdin.take();
    wait_until(MINUTE, "the world's process has ended", || {
        victim.try_wait().unwrap().is_some()
    });
    wait_until(MINUTE, "the host is gone", || {
        matches!(netlink.interface(TRACE), Err(NetlinkError::NotFound { .. }))
    });
    wait_until(MINUTE, "the process on it is gone", || !process.exists());
    assert_eq!(directory.exists(), directory_stays);
    if directory_stays {
        std::fs::remove_dir_all(directory).unwrap();
    }
}

/// Makes this process the victim of another test, and says whether it was to be one.
fn was_the_victim() -> bool {
    let how = std::env::var(VICTIM);
    how.is_ok_and(|how| {
        be_the_victim(&how);
        true
    })
}

fn be_the_victim(how: &str) {
    let world = World::new().unwrap();
    let hosts = ["a", "b", "c"].map(|name| world.host(name).unwrap());
    let [a, b, c] = &hosts;
    let (lan, wan) = (world.switch("lan").unwrap(), world.switch("wan").unwrap());
    let _port = lan.connect(a, &["10.0.0.2/24"]).unwrap();
    let _link = world.link((a, &["10.1.0.1/24"]), (b, &["10.1.0.2/24"])).unwrap();
    let cable = Cable::both(Impairments::default());
    let ends = ((b, &["10.2.0.1/24"][..]), (c, &["10.2.0.2/24"][..]));
    let _emulated = world.emulated_link(ends.0, ends.1, cable).unwrap();
    let config = NatConfig::new(NatKind::FullCone);
    let _nat = world
        .nat(config, (&lan, "10.0.0.1/24"), (&wan, "203.0.113.1/24"))
        .unwrap();
    let here = NetNs::current().unwrap();
    let inner = VethEnd {
        name: "inner",
        namespace: None,
    };
    let outer = VethEnd {
        name: TRACE,
        namespace: Some(here.as_fd()),
    };
    a.netlink(|netlink| netlink.create_veth(inner, outer)).unwrap();
    let mut command = Command::new("sh");
    command.args(["-c", "while :; do read x < /dev/zero; done"]);
    let process = LoggedChild::start(a, command, &world.directory().join("log")).unwrap();
    let _interrupts = (how == "interrupt").then(|| Interrupts::catch(world.directory().to_owned()).unwrap());
    println!("ready {} {}", process.pid(), world.directory().display());
    // Until the observer ends this process or its input.
    let mut end = String::new();
    std::io::stdin().read_line(&mut end).unwrap();
    assert_ne!(how, "panic", "on purpose");
}

fn signal(pid: u32, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(pid as i32).unwrap();
    rustix::process::kill_process(pid, signal).unwrap();
}

#[test]
fn a_process_that_returns_leaves_nothing() {
    if !was_the_victim() {
        in_namespaces(|| leaves_nothing("a_process_that_returns_leaves_nothing", "return", |_| {}, false));
    }
}

#[test]
fn a_process_that_panics_leaves_its_files_alone() {
    if !was_the_victim() {
        in_namespaces(|| leaves_nothing("a_process_that_panics_leaves_its_files_alone", "panic", |_| {}, true));
    }
}

#[test]
fn a_process_that_is_interrupted_leaves_nothing() {
    let interrupt = |pid| signal(pid, rustix::process::Signal::INT);
    if !was_the_victim() {
        in_namespaces(|| {
            let name = "a_process_that_is_interrupted_leaves_nothing";
            leaves_nothing(name, "interrupt", interrupt, false);
        });
    }
}

/// The files of a killed process cannot be removed; hosts, cables, NAT boxes and processes are.
#[test]
fn a_process_that_is_killed_leaves_its_files_alone() {
    let kill = |pid| signal(pid, rustix::process::Signal::KILL);
    if !was_the_victim() {
        in_namespaces(|| leaves_nothing("a_process_that_is_killed_leaves_its_files_alone", "kill", kill, true));
    }
}

#[test]
fn a_host_takes_no_advertisements_and_uses_addresses_at_once() {
    in_namespaces(|| {
        let world = World::new().unwrap();
        let hosts = ["a", "b"].map(|name| world.host(name).unwrap());
        let [a, b] = &hosts;
        let _link = world.link((a, &["2001:db8::1/64"]), (b, &["2001:db8::2/64"])).unwrap();
        let cable = Cable::both(Impairments::default());
        let ends = ((a, &["2001:db8:1::1/64"][..]), (b, &["2001:db8:1::2/64"][..]));
        let _emulated = world.emulated_link(ends.0, ends.1, cable).unwrap();
        for host in &hosts {
            for interface in ["all", "default", "eth0", "eth1"] {
                for setting in ["accept_ra", "accept_dad", "autoconf"] {
                    let path = format!("/proc/sys/net/ipv6/conf/{interface}/{setting}");
                    let value = host.run(|| std::fs::read_to_string(&path).unwrap()).unwrap();
                    assert_eq!(value.trim(), "0", "{path}");
                }
            }
        }
    });
}
