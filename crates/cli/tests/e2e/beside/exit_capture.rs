//! What is seen on the LAN of a laptop that uses a strict exit, while programs send in every way that they have
//! and whatever happens to weft, to the exit and to routes: nothing but what the guide of exits lists.
//!
//! `WEFT_CAPTURE=long` takes the counts of `.ci/long exit`.

use std::fs;
use std::path::PathBuf;

use tempfile::TempDir;
use weft_lab::host::Host;
use weft_lab::world::Link;
use weft_os::assert_strict;
use weft_os::test_support::require_nft;

use super::exit::Capture;
use super::exit_senders::{At, KINDS, Senders, counted, kind};
use super::exit_strict::{broker, is_gone};
use super::internet::{Internet, done, run};
use super::kept_facts::shell;
use crate::common::{MINUTE, PATIENCE, WEFT, beside, wait_until};

const LENGTH: &str = "WEFT_CAPTURE";
/// Rounds of all senders while a state lasts.
const ROUNDS: u64 = 10;

/// How often each thing happens.
pub(super) struct Times {
    restarts: u32,
    pub(super) upgrades: u32,
    pub(super) boots: u32,
    /// Of each process.
    kills: u32,
    /// Routes with which the daemon starts again, of [`ROUTES`].
    routes: usize,
}

impl Times {
    pub(super) fn read() -> Self {
        match std::env::var(LENGTH).as_deref() {
            Ok("long") => Self {
                restarts: 20,
                upgrades: 5,
                boots: 3,
                kills: 5,
                routes: ROUTES.len(),
            },
            _ => Self {
                restarts: 2,
                upgrades: 1,
                boots: 1,
                kills: 1,
                routes: 2,
            },
        }
    }
}

/// A laptop that uses a strict exit, with senders and a capture.
pub(super) struct Watch {
    pub(super) net: Internet,
    senders: Senders,
    capture: Option<Capture>,
    _container: (Host, Link),
    /// Requests of DHCP that were seen at the last look.
    dhcp: u64,
}

impl Watch {
    /// Each kind of packet is seen before the exit is used, and none of them from then on.
    pub(super) fn start(net: Internet) -> Self {
        // Servers of names whose queries are told apart.
        for further in ["192.168.1.54/24", "192.168.1.55/24"] {
            run(net.host("resolver"), "ip", &["address", "add", further, "dev", "eth0"]);
        }
        let (container, link) = net.container_of_laptop();
        let senders = Senders::start([
            (At::Laptop, net.laptop.host()),
            (At::Container, &container),
            (At::Lan, net.host("home")),
        ]);
        let mut watch = Self {
            net,
            senders,
            capture: None,
            _container: (container, link),
            dhcp: 0,
        };
        watch.assert_open("before the exit is used");
        watch.net.approve();
        done(&watch.net.laptop, &["set", "--exit", "nas", "--exit-strict"]);
        watch.wait_passes();
        watch.close();
        watch
    }

    /// From now on nothing may be seen.
    fn close(&mut self) {
        let capture = Capture::start(self.net.laptop.host(), &self.net.lan()).tight();
        self.capture = Some(capture);
        self.assert_closed("the exit is used");
    }

    /// Without an exit, the capture sees each kind of packet: it can fail.
    pub(super) fn assert_open(&self, when: &str) {
        let capture = Capture::start(self.net.laptop.host(), &self.net.lan());
        for wanted in KINDS {
            wait_until(PATIENCE, &format!("{wanted:?} is seen {when}"), || {
                capture
                    .frames()
                    .iter()
                    .filter_map(|frame| kind(frame))
                    .any(|kind| kind == wanted)
            });
        }
        let frames = capture.leaks();
        eprintln!(
            "{when}: {} frames in the clear\n{}",
            frames.len(),
            counted(&frames).join("\n")
        );
    }

    /// What has been seen since the last time is on the closed list, and something was sent.
    pub(super) fn assert_closed(&mut self, when: &str) {
        self.senders.pass(ROUNDS);
        let capture = self.capture.as_ref().unwrap();
        let leaks = capture.leaks();
        assert_strict!(leaks.is_empty(), "{when}: {:#?}", counted(&leaks));
        let dhcp = capture.dhcp();
        assert!(dhcp > self.dhcp, "the capture sees no request of DHCP: {when}");
        self.dhcp = dhcp;
    }

    pub(super) fn wait_passes(&self) {
        wait_until(MINUTE, "packets leave by the exit", || self.net.passes());
    }

    /// The daemon starts after a while.
    fn start_laptop(&mut self, after: &str) {
        self.assert_closed(after);
        self.net.start_laptop();
        self.assert_closed(&format!("the daemon runs again, {after}"));
    }

    fn restart(&mut self, why: &str) {
        assert_eq!(self.net.laptop.stop().unwrap().code(), Some(0));
        self.start_laptop(&format!("after its stop, {why}"));
    }

    /// Ends the capture: nothing was seen.
    pub(super) fn end(&mut self) {
        self.capture.take().unwrap().assert_tight();
        let (rounds, dhcp) = (self.senders.rounds(), self.dhcp);
        eprintln!("{rounds} rounds, {dhcp} requests of DHCP, 0 frames in the clear");
    }

    /// Without the exit, all kinds are seen again.
    fn finish(mut self) {
        self.end();
        done(&self.net.laptop, &["set", "--no-exit"]);
        self.assert_open("after the exit was used");
        drop(self.net.warnings());
    }
}

/// A program that is replaced by others.
struct Program {
    directory: TempDir,
    next: u8,
}

impl Program {
    fn new() -> Self {
        let mut program = Self {
            directory: TempDir::new().unwrap(),
            next: 0,
        };
        program.replace();
        program
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("weft")
    }

    /// Puts another file in its place, as an upgrade does.
    fn replace(&mut self) {
        use std::io::Write as _;
        let new = self.directory.path().join("weft.new");
        fs::copy(WEFT, &new).unwrap();
        // Behind what the system loads.
        let mut file = fs::OpenOptions::new().append(true).open(&new).unwrap();
        file.write_all(&[self.next]).unwrap();
        drop(file);
        fs::rename(new, self.path()).unwrap();
        self.next += 1;
    }
}

#[test]
fn nothing_is_seen_while_weft_ends_and_starts() {
    beside(|| {
        if !require_nft() {
            return;
        }
        let times = Times::read();
        let mut program = Program::new();
        let mut watch = Watch::start(Internet::start_with(false, &program.path()));
        for number in 0..times.restarts {
            watch.restart(&format!("restart {number}"));
        }
        for number in 0..times.upgrades {
            program.replace();
            watch.assert_closed("the program is another file");
            watch.restart(&format!("upgrade {number}"));
        }
        for number in 0..times.kills {
            let pid = watch.net.laptop.pid();
            watch.net.laptop.kill().unwrap();
            wait_until(PATIENCE, "the daemon is gone", || is_gone(pid));
            watch.start_laptop(&format!("after kill {number} of the daemon"));
        }
        for number in 0..times.kills {
            let pid = watch.net.laptop.pid();
            let of_broker = broker(pid).to_string();
            run(watch.net.laptop.host(), "kill", &["-9", &of_broker]);
            watch.assert_closed(&format!("after kill {number} of the broker"));
            watch.net.laptop.kill().unwrap();
            wait_until(PATIENCE, "the daemon is gone", || is_gone(pid));
            watch.start_laptop(&format!("after kill {number} of both"));
        }
        watch.finish();
    });
}

/// The routes of a LAN that want packets for themselves, as those of option 121 of DHCP (RFC 3442), or those
/// that a router advertises (RFC 4191). `EXIT` is the exit's address in the mesh.
const ROUTES: [&[&str]; 9] = [
    &["prepend EXIT/32 via 192.168.1.1"],
    &["replace EXIT/32 via 192.168.1.1"],
    &["prepend 10.44.0.0/16 via 192.168.1.1"],
    &["prepend 203.0.113.10/32 via 192.168.1.2"],
    &[
        "prepend 203.0.113.0/24 via 192.168.1.1",
        "prepend 192.0.2.0/24 via 192.168.1.1",
    ],
    &[
        "prepend 0.0.0.0/1 via 192.168.1.1",
        "prepend 128.0.0.0/1 via 192.168.1.1",
    ],
    &["prepend 192.0.2.80/32 dev eth0"],
    &["add 2001:db8:2::/64 via 2001:db8:1::1 metric 10"],
    &[
        "add ::/1 via 2001:db8:1::1 metric 10",
        "add 8000::/1 via 2001:db8:1::1 metric 10",
        "add fd00::/8 via 2001:db8:1::1 metric 10",
    ],
];

/// Has the link of the exit down, and up again with what goes with it.
const DOWN: &str = "ip link set eth0 down";
const UP_EXIT: &str = "ip link set eth0 up; ip address replace 2001:db8:3::10/64 dev eth0 nodad; \
                       ip route replace default via 203.0.113.1; ip -6 route replace default via 2001:db8:3::1";
/// The same of the laptop, by either gateway.
const UP: &str = "ip link set eth0 up; ip address replace 2001:db8:1::10/64 dev eth0 nodad; \
                  ip -6 route replace default via 2001:db8:1::";

#[test]
fn nothing_is_seen_whatever_becomes_of_exit_and_routes() {
    beside(|| {
        if !require_nft() {
            return;
        }
        let mut watch = Watch::start(Internet::start(true));
        let laptop = watch.net.laptop.host().clone();
        let nas = watch.net.nas.host().clone();
        let lost = |watch: &Watch| wait_until(MINUTE, "status says so", || watch.net.exit()["pass"] == false);
        // The exit is gone.
        assert_eq!(watch.net.nas.stop().unwrap().code(), Some(0));
        watch.assert_closed("the exit stops");
        lost(&watch);
        assert_eq!(watch.net.laptop.stop().unwrap().code(), Some(0));
        watch.assert_closed("neither end runs");
        watch.net.laptop.restart().unwrap();
        watch.net.laptop.wait_ready(PATIENCE).unwrap();
        watch.assert_closed("the exit does not run");
        watch.net.nas.restart().unwrap();
        watch.net.nas.wait_ready(PATIENCE).unwrap();
        watch.wait_passes();
        watch.assert_closed("the exit is back");
        shell(&nas, DOWN);
        lost(&watch);
        watch.assert_closed("the exit's link is down");
        shell(&nas, UP_EXIT);
        watch.wait_passes();
        watch.assert_closed("the exit's link is up");
        // The laptop goes to another network, and back.
        for gateway in [2, 1] {
            shell(&laptop, DOWN);
            watch.senders.pass(ROUNDS);
            shell(
                &laptop,
                &format!("{UP}{gateway}; ip route replace default via 192.168.1.{gateway}"),
            );
            watch.assert_closed("the link of the laptop is up");
            watch.wait_passes();
            watch.assert_closed("packets pass after the link was down");
        }
        let text = run(&nas, "ip", &["-4", "-o", "address", "show", "dev", "weft0"]);
        let mesh = text
            .split_whitespace()
            .nth(3)
            .unwrap()
            .split('/')
            .next()
            .unwrap()
            .to_owned();
        let times = Times::read();
        for (number, routes) in ROUTES.into_iter().enumerate() {
            let on = |route: &str| {
                let version = if route.contains("::") { "-6" } else { "-4" };
                format!("ip {version} route {}", route.replace("EXIT", &mesh))
            };
            for route in routes {
                shell(&laptop, &on(route));
                watch.assert_closed(route);
            }
            watch.wait_passes();
            if number < times.routes {
                watch.restart(&format!("with {routes:?}"));
            }
            for route in routes {
                let (_, of) = route.split_once(' ').unwrap();
                // Weft may have put its own in the place of that one.
                shell(&laptop, &format!("{} 2> /dev/null; true", on(&format!("delete {of}"))));
                watch.assert_closed(&format!("without {of}"));
            }
            watch.wait_passes();
        }
        watch.finish();
    });
}
