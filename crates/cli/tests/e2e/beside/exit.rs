//! Exits: a member sends to all other addresses by another one.

use std::io::Read as _;
use std::net::{Ipv4Addr, UdpSocket};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};
use weft_lab::daemon::Daemon;
use weft_lab::host::Host;
use weft_os::assert_strict;
use weft_os::test_support::{note_strict, require_nft};

use super::internet::{
    EXIT, EXIT6, Internet, LAPTOP, PRINTER, RESOLVER, TARGET, TARGET6, asked, but_forwarding, done, failed,
    is_of_interface, rules, run, seen, state,
};
use crate::common::{MINUTE, PATIENCE, beside, wait_until};

/// The packets of a host that others on its LAN see, but for those that the link itself needs and the
/// frames of the tunnel.
pub(super) struct Capture {
    /// No other frames than those of the tunnel may be seen.
    tight: bool,
    stop: Arc<AtomicBool>,
    leaked: Arc<Mutex<Vec<String>>>,
    tunnel: Arc<AtomicBool>,
    /// Requests of DHCP, which any exit lets out.
    dhcp: Arc<AtomicU64>,
    threads: Vec<JoinHandle<()>>,
}

impl Capture {
    pub(super) fn start(of: &Host, at: &[&Host]) -> Self {
        const ETH_P_ALL: u16 = 3;
        let link = run(of, "ip", &["-o", "link", "show", "eth0"]);
        let mac = link.split("link/ether ").nth(1).unwrap().split(' ').next().unwrap();
        let mac: Vec<u8> = mac.split(':').map(|hex| u8::from_str_radix(hex, 16).unwrap()).collect();
        let mut capture = Self {
            tight: false,
            stop: Arc::default(),
            leaked: Arc::default(),
            tunnel: Arc::default(),
            dhcp: Arc::default(),
            threads: Vec::new(),
        };
        let threads = at.iter().map(|host| {
            let protocol = Protocol::from(i32::from(ETH_P_ALL.to_be()));
            let socket = host.run(|| Socket::new(Domain::PACKET, Type::RAW, Some(protocol)));
            let mut socket = socket.unwrap().unwrap();
            socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
            let (stop, leaked, tunnel) = (capture.stop.clone(), capture.leaked.clone(), capture.tunnel.clone());
            let dhcp = capture.dhcp.clone();
            let mac = mac.clone();
            std::thread::spawn(move || {
                let mut frame = vec![0; 65_535];
                while !stop.load(Ordering::Relaxed) {
                    let Ok(len) = socket.read(&mut frame) else { continue };
                    match (&frame[..len], frame[6..12] == mac) {
                        (frame, true) if is_tunnel(frame) => tunnel.store(true, Ordering::Relaxed),
                        (frame, true) if is_dhcp(frame) => {
                            dhcp.fetch_add(1, Ordering::Relaxed);
                        }
                        (frame, true) if !is_of_link(frame) => {
                            leaked.lock().unwrap().push(hex(&frame[..len.min(70)]));
                        }
                        _ => {}
                    }
                }
            })
        });
        capture.threads = threads.collect();
        capture
    }

    /// Makes a failure of the test final if anything has leaked by then.
    pub(super) fn tight(mut self) -> Self {
        self.tight = true;
        self
    }

    /// Ends it. Nothing may have leaked, and there must have been frames of the tunnel.
    pub(super) fn assert_tight(self) {
        let leaked = self.leaks();
        assert_strict!(leaked.is_empty(), "{leaked:#?}");
        assert!(self.tunnel.load(Ordering::Relaxed), "the capture sees nothing at all");
    }

    /// How many requests of DHCP there were.
    pub(super) fn dhcp(&self) -> u64 {
        self.dhcp.load(Ordering::Relaxed)
    }

    pub(super) fn leaks(&self) -> Vec<String> {
        // What was sent last arrives first.
        std::thread::sleep(Duration::from_millis(100));
        self.frames()
    }

    /// What is known of them so far.
    pub(super) fn frames(&self) -> Vec<String> {
        self.leaked.lock().unwrap().clone()
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
        // The test may have failed for a smaller reason.
        let leaked = self.leaked.lock().unwrap_or_else(PoisonError::into_inner);
        if self.tight && std::thread::panicking() && !leaked.is_empty() {
            note_strict(format_args!("packets have left: {leaked:#?}"));
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A datagram of weft to an address of the exit: that by which the laptop knows it, or that of its LAN,
/// which it tells members.
fn is_tunnel(frame: &[u8]) -> bool {
    let at = [EXIT, "192.168.9.1"].map(|exit| exit.parse::<Ipv4Addr>().unwrap().octets());
    let to_exit = at.iter().any(|exit| frame[30..34] == *exit);
    frame[12..14] == [8, 0] && frame[23] == 17 && to_exit && frame[36..38] == [0x08, 0x49]
}

/// A request of DHCP or DHCPv6, from the client's port to the server's.
fn is_dhcp(frame: &[u8]) -> bool {
    match frame[12..14] {
        [8, 0] => frame[23] == 17 && frame[34..38] == [0, 68, 0, 67],
        [0x86, 0xdd] => frame[20] == 17 && frame[54..58] == [0x02, 0x22, 0x02, 0x23],
        _ => false,
    }
}

/// ARP, and the neighbour discovery and group membership of IPv6 within the link.
fn is_of_link(frame: &[u8]) -> bool {
    match frame[12..14] {
        [8, 6] => true,
        [0x86, 0xdd] => {
            let (next, dest) = (frame[20], &frame[38..54]);
            let discovery = next == 58 && (133..=136).contains(&frame[54]);
            let groups = next == 0 && frame[54] == 58;
            discovery || (groups && dest[0] == 0xff)
        }
        _ => false,
    }
}

#[test]
fn packets_of_a_member_leave_by_the_exit() {
    beside(|| {
        if !require_nft() {
            return;
        }
        let net = Internet::start(true);
        let laptop = net.laptop.host();
        let before = (state(laptop), state(net.nas.host()));
        assert_eq!(seen(laptop, TARGET).as_deref(), Some(LAPTOP));
        let line = failed(&net.nas, &["route", "approve", "nas", "exit"], 1);
        assert!(line.contains("nas does not offer to be an exit"), "{line}");
        done(&net.laptop, &["set", "--exit", "nas"]);
        let why = net.exit()["why"].as_str().unwrap().to_owned();
        assert!(why.contains("nas is no approved exit"), "{why}");
        assert_eq!(seen(laptop, TARGET).as_deref(), Some(LAPTOP), "it is not strict");

        net.approve();
        let table = done(&net.nas, &["routes"]);
        assert!(table.contains("exit, IPv4") && table.contains("exit, IPv6"), "{table}");
        wait_until(MINUTE, "packets leave by the exit", || net.passes());
        assert_eq!(seen(laptop, TARGET6).as_deref(), Some(EXIT6));
        wait_until(PATIENCE, "the exit is set up", || net.exit()["pass"] == true);
        assert_eq!(net.exit()["why"], "packets pass");
        let page = done(&net.laptop, &["status"]);
        assert!(page.contains("exit: nas: packets pass"), "{page}");
        let page = done(&net.nas, &["status"]);
        assert!(page.contains("serves as exit: IPv4 and IPv6"), "{page}");
        assert_eq!(seen(laptop, PRINTER), None, "the LAN of the exit");

        // Rules are about exits, too.
        assert!(done(&net.nas, &["why", "laptop", "exit", "tcp/80"]).contains("passes"));
        done(&net.nas, &["rule", "add", "deny from laptop to exit"]);
        wait_until(PATIENCE, "the rule denies it", || seen(laptop, TARGET).is_none());
        assert!(
            !done(&net.laptop, &["ping", "nas", "-c", "1"]).is_empty(),
            "the exit itself is reached"
        );
        failed(&net.nas, &["why", "laptop", "exit", "tcp/80"], 3);
        done(&net.nas, &["rule", "remove", "1"]);
        wait_until(PATIENCE, "the rule is gone", || net.passes());

        // Not strict: what cannot go by the exit leaves directly, and the capture sees it.
        let capture = Capture::start(laptop, &net.lan());
        done(&net.nas, &["route", "revoke", "nas", "exit"]);
        wait_until(PATIENCE, "packets leave as before", || {
            seen(laptop, TARGET).as_deref() == Some(LAPTOP)
        });
        assert!(!capture.leaks().is_empty());
        drop(capture);
        wait_until(PATIENCE, "the exit serves no longer", || {
            but_forwarding(&state(net.nas.host())) == but_forwarding(&before.1)
        });
        done(&net.nas, &["route", "approve", "nas", "exit"]);
        wait_until(MINUTE, "packets leave by the exit again", || net.passes());
        done(&net.laptop, &["set", "--no-exit"]);
        wait_until(PATIENCE, "packets leave as before", || {
            seen(laptop, TARGET).as_deref() == Some(LAPTOP)
        });
        wait_until(PATIENCE, "the laptop is as before", || state(laptop) == before.0);
        net.finish();
    });
}

impl Internet {
    /// Tries every way that is not the exit's.
    pub(super) fn try_all(&self) {
        let laptop = self.laptop.host();
        // A more specific route, as DHCP sets it (RFC 3442).
        let _ = laptop.command(
            command("ip", &["route", "add", "192.0.2.0/24", "via", "192.168.1.1"]),
            MINUTE,
        );
        for to in [TARGET, TARGET6, "192.168.1.1:80", "[2001:db8:1::1]:80"] {
            let found = seen(laptop, to);
            assert_strict!(
                found.is_none() || to == TARGET && found.as_deref() == Some(EXIT),
                "{to} is reached past the exit: {found:?}"
            );
        }
        // The resolver of the LAN, by every socket that programs use.
        let query = || {
            for bound in ["0.0.0.0:0", "192.168.1.10:0"] {
                let socket = UdpSocket::bind(bound).unwrap();
                let _ = socket.send_to(b"which names", (RESOLVER, 53));
                let _ = socket.send_to(b"which names", "192.168.1.255:53");
            }
        };
        laptop.run(query).unwrap();
        run(laptop, "ip", &["route", "delete", "192.0.2.0/24"]);
    }

    /// The hosts that see what the laptop sends.
    pub(super) fn lan(&self) -> [&Host; 3] {
        ["home", "spare", "resolver"].map(|name| self.host(name))
    }
}

pub(super) fn command(program: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(arguments);
    command
}

#[test]
fn nothing_leaves_by_another_way_than_a_strict_exit() {
    beside(|| {
        if !require_nft() {
            return;
        }
        // The exit has no IPv6.
        let mut net = Internet::start(false);
        run(
            net.laptop.host(),
            "sysctl",
            &["-q", "net.ipv4.conf.all.rp_filter=1", "net.ipv4.conf.eth0.rp_filter=1"],
        );
        let before = state(net.laptop.host());
        net.approve();
        done(&net.laptop, &["set", "--exit", "nas", "--exit-strict"]);
        wait_until(MINUTE, "packets leave by the exit", || net.passes());
        let page = done(&net.laptop, &["status"]);
        assert!(page.contains("exit: nas (strict): packets pass"), "{page}");

        // A route that comes meanwhile takes nothing away.
        let capture = Capture::start(net.laptop.host(), &net.lan()).tight();
        net.try_all();
        assert!(net.passes());

        // The exit's resolver answers in the place of that of the LAN.
        assert_eq!(asked(net.laptop.host()).as_deref(), Some(EXIT));

        // Another gateway.
        run(
            net.laptop.host(),
            "ip",
            &["route", "replace", "default", "via", "192.168.1.2", "proto", "static"],
        );
        wait_until(MINUTE, "packets leave by the exit, past the other gateway", || {
            net.passes()
        });
        net.try_all();
        run(
            net.laptop.host(),
            "ip",
            &["route", "replace", "default", "via", "192.168.1.1", "proto", "static"],
        );

        // The exit dies.
        net.nas.kill().unwrap();
        for _ in 0..3 {
            assert_strict!(seen(net.laptop.host(), TARGET).is_none(), "the exit is dead");
            net.try_all();
        }
        wait_until(MINUTE, "status says so", || net.exit()["pass"] == false);
        let why = net.exit()["why"].as_str().unwrap().to_owned();
        assert!(why.contains("nothing else leaves this machine"), "{why}");

        // The daemon is killed, and started again.
        let pid = net.laptop.pid();
        net.laptop.kill().unwrap();
        wait_until(PATIENCE, "the daemon is gone", || {
            !Path::new(&format!("/proc/{pid}")).exists()
        });
        std::thread::sleep(Duration::from_millis(300));
        net.try_all();
        net.laptop.restart().unwrap();
        net.laptop.wait_ready(PATIENCE).unwrap();
        net.try_all();
        net.nas.restart().unwrap();
        net.nas.wait_ready(PATIENCE).unwrap();
        wait_until(MINUTE, "packets leave by the exit again", || net.passes());
        capture.assert_tight();

        // A stop that the user asks for puts all back.
        let told = done(&net.laptop, &["down"]);
        assert!(
            told.contains("packets leave directly until weft starts again"),
            "{told}"
        );
        let differ = |now: &str| -> Vec<String> {
            let lines = |text: &str| {
                text.lines()
                    .map(str::to_owned)
                    .collect::<std::collections::BTreeSet<_>>()
            };
            lines(&before)
                .symmetric_difference(&lines(now))
                .filter(|line| !line.contains("weft0") && !is_of_interface(line))
                .cloned()
                .collect()
        };
        let now = state(net.laptop.host());
        assert!(differ(&now).is_empty(), "{:#?}", differ(&now));
        assert_eq!(seen(net.laptop.host(), TARGET).as_deref(), Some(LAPTOP));
        net.laptop.restart().unwrap();
        net.laptop.wait_ready(PATIENCE).unwrap();
        wait_until(MINUTE, "packets leave by the exit after a start", || net.passes());
        done(&net.laptop, &["set", "--no-exit"]);
        wait_until(PATIENCE, "the laptop is as before", || {
            differ(&state(net.laptop.host())).is_empty()
        });
    });
}

#[test]
fn parts_of_an_exit_that_programs_remove_are_set_up_again() {
    beside(|| {
        if !require_nft() {
            return;
        }
        let net = Internet::start(false);
        let (laptop, nas) = (net.laptop.host(), net.nas.host());
        let before = (state(laptop), state(nas));
        net.approve();
        done(&net.laptop, &["set", "--exit", "nas", "--exit-strict"]);
        wait_until(MINUTE, "packets leave by the exit", || net.passes());
        let with = (state(laptop), state(nas));

        // The broker may report two removals in one line, so each is reported before the next one.
        let warned = |node: &Daemon| node.warnings().unwrap().len();
        let removed = [
            ("nft", &["flush", "ruleset"][..]),
            ("ip", &["-4", "rule", "delete", "priority", "5201"]),
            ("ip", &["-6", "rule", "delete", "priority", "5201"]),
        ];
        for (times, (program, arguments)) in (1..).zip(removed) {
            run(laptop, program, arguments);
            wait_until(PATIENCE, "the removal is reported", || warned(&net.laptop) == times);
            wait_until(PATIENCE, "the laptop is as with the exit", || {
                rules(&state(laptop)) == rules(&with.0)
            });
        }
        let capture = Capture::start(laptop, &net.lan()).tight();
        net.try_all();
        assert!(net.passes());
        capture.assert_tight();
        run(nas, "nft", &["flush", "ruleset"]);
        wait_until(PATIENCE, "the removal is reported", || warned(&net.nas) == 1);
        wait_until(PATIENCE, "the exit serves again", || {
            rules(&state(nas)) == rules(&with.1)
        });
        wait_until(PATIENCE, "packets leave by the exit again", || net.passes());

        // The former values of settings are not lost with the table.
        done(&net.laptop, &["set", "--no-exit", "--exit-strict=false"]);
        done(&net.nas, &["set", "--advertise-exit=false"]);
        wait_until(PATIENCE, "the laptop is as before", || {
            rules(&state(laptop)) == rules(&before.0)
        });
        wait_until(PATIENCE, "the exit is as before", || {
            but_forwarding(&state(nas)) == but_forwarding(&before.1)
        });
        let warned = net.warnings();
        assert_eq!(warned.len(), 4, "{warned:?}");
        assert!(
            warned.iter().all(|line| line.contains("it is set up again")),
            "{warned:?}"
        );
    });
}

#[test]
fn local_networks_are_reached_directly_by_choice() {
    beside(|| {
        if !require_nft() {
            return;
        }
        let net = Internet::start(true);
        let laptop = net.laptop.host();
        net.approve();
        done(&net.laptop, &["set", "--exit", "nas", "--exit-strict", "--exit-lan"]);
        wait_until(MINUTE, "packets leave by the exit", || net.passes());
        assert_eq!(seen(laptop, "192.168.1.1:80").as_deref(), Some(LAPTOP));
        let capture = Capture::start(laptop, &[net.host("resolver")]);
        let query = || {
            let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
            let _ = socket.send_to(b"which names", (RESOLVER, 53));
        };
        laptop.run(query).unwrap();
        run(laptop, "ip", &["route", "add", "192.0.2.0/24", "via", "192.168.1.1"]);
        assert_eq!(seen(laptop, TARGET).as_deref(), Some(EXIT));
        // The LAN is open: what goes to its multicast groups, as announcements by mDNS and questions for
        // a gateway that maps ports, may be seen.
        let mut leaks = capture.leaks();
        leaks.retain(|frame| !frame.starts_with("01005e") && !frame.starts_with("3333"));
        assert_strict!(leaks.is_empty(), "{leaks:?}");
        done(&net.laptop, &["set", "--exit-lan=false"]);
        wait_until(PATIENCE, "the LAN is closed", || {
            seen(laptop, "192.168.1.1:80").is_none()
        });
        drop(capture);
        net.finish();
    });
}
