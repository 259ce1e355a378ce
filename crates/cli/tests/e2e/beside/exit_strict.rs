//! A strict exit stays closed until a command opens it.

use std::fs;
use std::net::UdpSocket;
use std::path::PathBuf;

use weft_os::assert_strict;
use weft_os::test_support::require_nft;

use super::exit::Capture;
use super::internet::{
    Internet, LAPTOP, RESOLVER, TARGET, done, done_there, failed, failed_there, rules, run, seen, state,
};
use crate::common::{MINUTE, PATIENCE, beside, wait_until};

/// A laptop whose packets leave by a strict exit, and its state before.
fn closed() -> (Internet, Vec<String>) {
    let net = Internet::start(false);
    let before = rules(&state(net.laptop.host()));
    net.approve();
    done(&net.laptop, &["set", "--exit", "nas", "--exit-strict"]);
    wait_until(MINUTE, "packets leave by the exit", || net.passes());
    (net, before)
}

/// The broker of a daemon.
pub(super) fn broker(daemon: u32) -> u32 {
    let children = fs::read_to_string(format!("/proc/{daemon}/task/{daemon}/children")).unwrap();
    children.split_whitespace().next().unwrap().parse().unwrap()
}

pub(super) fn is_gone(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.is_empty() || stat.contains(") Z ")
}

impl Internet {
    /// Sends to the Internet, to a host of the LAN and to its resolver. No daemon runs.
    fn try_without_daemon(&self) {
        let laptop = self.laptop.host();
        for to in [TARGET, "192.168.1.1:80"] {
            assert_strict!(seen(laptop, to).is_none(), "{to} is reached");
        }
        let query = || {
            for bound in ["0.0.0.0:0", "192.168.1.10:0"] {
                let socket = UdpSocket::bind(bound).unwrap();
                let _ = socket.send_to(b"which names", (RESOLVER, 53));
            }
        };
        laptop.run(query).unwrap();
    }

    /// The configuration of the laptop.
    fn file(&self) -> PathBuf {
        let told = done(&self.laptop, &["config", "check"]);
        told.split(':').next().unwrap().into()
    }

    pub(super) fn start_laptop(&mut self) {
        self.laptop.restart().unwrap();
        self.laptop.wait_ready(PATIENCE).unwrap();
        wait_until(MINUTE, "packets leave by the exit again", || self.passes());
    }
}

#[test]
fn a_strict_exit_stays_closed_however_its_daemon_ends() {
    beside(|| {
        if !require_nft() {
            return;
        }
        let (mut net, before) = closed();
        let capture = Capture::start(net.laptop.host(), &net.lan()).tight();
        // A service that is restarted.
        for _ in 0..2 {
            assert_eq!(net.laptop.stop().unwrap().code(), Some(0));
            net.try_all();
            net.start_laptop();
        }
        // A file that the new daemon does not take.
        let file = net.file();
        assert_eq!(net.laptop.stop().unwrap().code(), Some(0));
        let text = fs::read_to_string(&file).unwrap();
        fs::write(&file, format!("{text}\n[netwroks]\n")).unwrap();
        let _ = net.laptop.restart();
        wait_until(PATIENCE, "the daemon does not start", || is_gone(net.laptop.pid()));
        net.try_all();
        fs::write(&file, text).unwrap();
        net.start_laptop();
        // The broker dies, and the daemon with it or without.
        let pid = net.laptop.pid();
        run(net.laptop.host(), "kill", &["-9", &broker(pid).to_string()]);
        net.try_all();
        run(net.laptop.host(), "kill", &["-9", &pid.to_string()]);
        wait_until(PATIENCE, "the daemon is gone", || is_gone(pid));
        net.try_all();
        net.start_laptop();
        capture.assert_tight();

        assert_eq!(net.laptop.stop().unwrap().code(), Some(0));
        let why = failed_there(&net.laptop, &["status"], 1);
        assert!(why.contains("a strict exit keeps packets in"), "{why}");
        let told = done_there(&net.laptop, &["down"]);
        assert!(
            told.contains("packets leave directly until weft starts again"),
            "{told}"
        );
        assert_eq!(seen(net.laptop.host(), TARGET).as_deref(), Some(LAPTOP));
        wait_until(PATIENCE, "the laptop is as before", || {
            rules(&state(net.laptop.host())) == before
        });
        failed_there(&net.laptop, &["down"], 1);
    });
}

#[test]
fn each_layer_alone_keeps_a_strict_exit_closed() {
    beside(|| {
        if !require_nft() {
            return;
        }
        let (mut net, before) = closed();
        // Rules for routes alone. The kernel sends IGMP reports, which no rule for routes stops.
        let capture = Capture::start(net.laptop.host(), &net.lan());
        assert_eq!(net.laptop.stop().unwrap().code(), Some(0));
        run(net.laptop.host(), "nft", &["flush", "ruleset"]);
        net.try_without_daemon();
        let mut leaks = capture.leaks();
        leaks.retain(|frame| !frame.starts_with("01005e000016"));
        assert_strict!(leaks.is_empty(), "{leaks:?}");
        drop(capture);
        net.start_laptop();
        let capture = Capture::start(net.laptop.host(), &net.lan()).tight();
        // nft alone, and a route of the LAN to the exit's address, as DHCP may set one (RFC 3442).
        let astray = ["10.44.0.0/16", "via", "192.168.1.1"];
        run(net.laptop.host(), "ip", &[&["route", "add"], &astray[..]].concat());
        net.try_all();
        assert_eq!(net.laptop.stop().unwrap().code(), Some(0));
        net.try_all();
        for version in ["-4", "-6"] {
            let flush = format!("while ip {version} rule delete protocol 119; do :; done");
            run(net.laptop.host(), "sh", &["-c", &flush]);
        }
        net.try_without_daemon();
        run(net.laptop.host(), "ip", &[&["route", "delete"], &astray[..]].concat());
        net.start_laptop();
        capture.assert_tight();
        // The other way to open it.
        let file = net.file();
        assert_eq!(net.laptop.stop().unwrap().code(), Some(0));
        let told = done_there(&net.laptop, &["set", "--no-exit", "--config", file.to_str().unwrap()]);
        assert!(told.contains("packets leave directly from now on"), "{told}");
        // The former values of settings went with the table.
        let without_settings =
            |lines: Vec<String>| lines.into_iter().filter(|line| !line.starts_with("net.")).collect();
        let before: Vec<String> = without_settings(before);
        wait_until(PATIENCE, "the laptop is as before", || {
            without_settings(rules(&state(net.laptop.host()))) == before
        });
    });
}

#[test]
fn each_layer_alone_is_named_and_opened_by_commands() {
    beside(|| {
        if !require_nft() {
            return;
        }
        let (mut net, _) = closed();
        let without_rules = "for f in -4 -6; do while ip $f rule delete protocol 119; do :; done; done";
        let (routes, table) = ("its rules for routes", "its table inet weft of nftables");
        for (removed, named, other) in [
            ("true", &[routes, table][..], None),
            ("nft delete table inet weft", &[routes], Some(table)),
            (without_rules, &[table], Some(routes)),
        ] {
            assert_eq!(net.laptop.stop().unwrap().code(), Some(0));
            run(net.laptop.host(), "sh", &["-c", removed]);
            let status = failed_there(&net.laptop, &["status"], 1);
            let doctor = net.laptop.attempt(&["doctor"], MINUTE).unwrap();
            let doctor = String::from_utf8(doctor.stdout).unwrap();
            for said in [status, doctor] {
                assert!(said.contains("a strict exit keeps packets in"), "{removed}: {said}");
                assert!(said.contains("sudo weft down"), "{removed}: {said}");
                assert!(named.iter().all(|layer| said.contains(layer)), "{removed}: {said}");
                assert!(!other.is_some_and(|layer| said.contains(layer)), "{removed}: {said}");
            }
            assert_strict!(seen(net.laptop.host(), TARGET).is_none(), "{removed}");
            let told = done_there(&net.laptop, &["down"]);
            assert!(told.contains("packets leave directly until"), "{removed}: {told}");
            assert_eq!(seen(net.laptop.host(), TARGET).as_deref(), Some(LAPTOP), "{removed}");
            let why = failed_there(&net.laptop, &["status"], 1);
            assert!(!why.contains("strict"), "{removed}: {why}");
            net.start_laptop();
        }
        drop(net.warnings());
    });
}

#[test]
fn a_wrong_exit_is_refused_when_it_is_set() {
    beside(|| {
        if !require_nft() {
            return;
        }
        let net = Internet::start(false);
        let why = failed(&net.laptop, &["set", "--exit", "naz", "--exit-strict"], 1);
        assert!(why.contains("no node named naz"), "{why}");
        let why = failed(&net.laptop, &["set", "--exit", "laptop"], 1);
        assert!(why.contains("laptop is this node itself"), "{why}");
        assert_eq!(seen(net.laptop.host(), TARGET).as_deref(), Some(LAPTOP));
        // It may be approved later, so it is taken, and said.
        let told = done(&net.laptop, &["set", "--exit", "nas", "--exit-strict"]);
        assert!(
            told.contains("exit nas (strict): nas is no approved exit") && told.contains("nothing else leaves"),
            "{told}"
        );
        let told = done(&net.laptop, &["set", "--no-exit"]);
        assert!(told.contains("the next exit is strict, too"), "{told}");
        assert_eq!(
            seen(net.laptop.host(), TARGET).as_deref(),
            Some(LAPTOP),
            "it is open again"
        );
        net.finish();
    });
}
