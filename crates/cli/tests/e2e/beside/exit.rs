//! Exits: a member sends to all other addresses by another one.
//!
//! ```text
//! laptop ── LAN 192.168.1.0/24 ── home, spare (gateways), resolver
//!                  home, spare ── 198.51.100.0/24 ── core ── 192.0.2.0/24 ── target
//!                                                    core ── 203.0.113.0/24 ── nas, the exit
//!                                                             nas ── 192.168.9.0/24 ── printer
//! ```

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::Value;
use socket2::{Domain, Protocol, Socket, Type};
use weft_lab::daemon::{Daemon, DaemonError};
use weft_lab::host::Host;
use weft_lab::world::{Link, Switch, World};
use weft_os::assert_strict;
use weft_os::test_support::{note_strict, require_nft, uninterrupted};

use crate::common::{MINUTE, PATIENCE, Underlay, WEFT, beside, identity, wait_until};

pub(super) const TARGET: &str = "192.0.2.80:80";
pub(super) const TARGET6: &str = "[2001:db8:2::80]:80";
pub(super) const EXIT: &str = "203.0.113.10";
pub(super) const EXIT6: &str = "2001:db8:3::10";
const LAPTOP: &str = "192.168.1.10";
const RESOLVER: &str = "192.168.1.53";
const PRINTER: &str = "192.168.9.2:80";
/// How long a connection may take.
const TRIED: Duration = Duration::from_secs(3);

pub(super) struct Internet {
    _world: World,
    _lan: Switch,
    _wan: Switch,
    _links: Vec<Link>,
    hosts: Vec<Host>,
    pub(super) laptop: Daemon,
    pub(super) nas: Daemon,
}

/// Tells each client by which address it has come.
pub(super) fn mirror(host: &Host, at: &str) {
    let at: SocketAddr = at.parse().unwrap();
    let listener = host.run(|| TcpListener::bind(at)).unwrap().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let (mut stream, from) = (&stream, stream.peer_addr());
            let _ = from.map(|from| stream.write_all(from.ip().to_string().as_bytes()));
        }
    });
}

/// The question of [`asked`], which is no query of DNS.
const QUESTION: &[u8] = b"which names";

/// Answers as a resolver of the exit's network: it tells [`QUESTION`] by which address that has come, and
/// sends queries back as answers without records.
fn names(host: &Host) {
    let socket = host.run(|| UdpSocket::bind("192.0.2.80:53")).unwrap().unwrap();
    std::thread::spawn(move || {
        let mut query = [0; 1500];
        while let Ok((len, from)) = socket.recv_from(&mut query) {
            let mut answer = query[..len].to_vec();
            match (answer == QUESTION, answer.get_mut(2)) {
                (false, Some(flags)) => *flags |= 0x80,
                _ => answer = from.ip().to_string().into_bytes(),
            }
            let _ = socket.send_to(&answer, from);
        }
    });
}

/// What a query to the resolver of the LAN gets.
fn asked(from: &Host) -> Option<String> {
    let ask = || {
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        socket.set_read_timeout(Some(TRIED)).unwrap();
        socket.send_to(QUESTION, (RESOLVER, 53)).ok()?;
        let mut answer = [0; 100];
        let len = uninterrupted(|| socket.recv(&mut answer)).ok()?;
        Some(String::from_utf8_lossy(&answer[..len]).into_owned())
    };
    from.run(ask).unwrap()
}

/// The address by which `from` comes to the mirror at `to`; `None` if it does not.
pub(super) fn seen(from: &Host, to: &str) -> Option<String> {
    seen_within(TRIED, from, to)
}

/// The same with a limit for the connection, and for its answer.
pub(super) fn seen_within(limit: Duration, from: &Host, to: &str) -> Option<String> {
    let to: SocketAddr = to.parse().unwrap();
    let connect = || {
        let mut stream = TcpStream::connect_timeout(&to, limit).ok()?;
        stream.set_read_timeout(Some(limit)).ok()?;
        let mut text = String::new();
        stream.read_to_string(&mut text).ok()?;
        Some(text)
    };
    from.run(connect).unwrap()
}

impl Internet {
    /// `ipv6`: the exit has IPv6, as all other hosts have.
    pub(super) fn start(ipv6: bool) -> Self {
        let world = World::new().unwrap();
        let [lan, wan] = ["lan", "wan"].map(|name| world.switch(name).unwrap());
        let host = |name| world.host(name).unwrap();
        let (core, target, printer, resolver) = (host("core"), host("target"), host("printer"), host("resolver"));
        let [home, spare] = [("home", 1), ("spare", 2)].map(|(name, n)| {
            let router = host(name);
            let inner = [format!("192.168.1.{n}/24"), format!("2001:db8:1::{n}/64")];
            let outer = [format!("198.51.100.{n}/24"), format!("2001:db8:f::{n}/64")];
            lan.connect(&router, &inner.each_ref().map(String::as_str)).unwrap();
            wan.connect(&router, &outer.each_ref().map(String::as_str)).unwrap();
            router.forward().unwrap();
            gateway(&router, &["198.51.100.9", "2001:db8:f::9"]);
            router
        });
        lan.connect(&resolver, &["192.168.1.53/24"]).unwrap();
        gateway(&resolver, &["192.168.1.1"]);
        wan.connect(&core, &["198.51.100.9/24", "2001:db8:f::9/64"]).unwrap();
        core.forward().unwrap();
        let (laptop, nas) = (host("laptop"), host("nas"));
        lan.connect(&laptop, &["192.168.1.10/24", "2001:db8:1::10/64"]).unwrap();
        gateway(&laptop, &["192.168.1.1", "2001:db8:1::1"]);
        let ends = (
            &["192.0.2.1/24", "2001:db8:2::1/64"][..],
            &["192.0.2.80/24", "2001:db8:2::80/64"][..],
        );
        let mut links = vec![world.link((&core, ends.0), (&target, ends.1)).unwrap()];
        gateway(&target, &["192.0.2.1", "2001:db8:2::1"]);
        let (ours, theirs) = (
            ["203.0.113.1/24", "2001:db8:3::1/64"],
            ["203.0.113.10/24", "2001:db8:3::10/64"],
        );
        let versions = if ipv6 { 2 } else { 1 };
        links.push(
            world
                .link((&core, &ours[..versions]), (&nas, &theirs[..versions]))
                .unwrap(),
        );
        gateway(&nas, &["203.0.113.1", "2001:db8:3::1"][..versions]);
        links.push(
            world
                .link((&nas, &["192.168.9.1/24"]), (&printer, &["192.168.9.2/24"]))
                .unwrap(),
        );
        gateway(&printer, &["192.168.9.1"]);
        core.add_route("192.168.1.0".parse().unwrap(), 24, "198.51.100.1".parse().unwrap())
            .unwrap();
        core.add_route("2001:db8:1::".parse().unwrap(), 64, "2001:db8:f::1".parse().unwrap())
            .unwrap();
        mirror(&target, TARGET);
        names(&target);
        mirror(&target, TARGET6);
        mirror(&printer, PRINTER);
        mirror(&home, "192.168.1.1:80");
        let [nas, laptop] = [&nas, &laptop].map(|host| {
            let id = identity(&world, host.name());
            let mut spec = Underlay::V4.listener();
            let path = world.directory().join(format!("{}.resolv.conf", host.name()));
            std::fs::write(&path, "nameserver 192.0.2.80\n").unwrap();
            spec.extra_toml = format!("\n[dns]\nresolv_conf = {:?}\n", path.to_str().unwrap());
            let mut node = Daemon::start(host, Path::new(WEFT), &id, &spec).unwrap();
            node.wait_ready(PATIENCE).unwrap();
            node
        });
        done(&nas, &["create", "home", "--host", "nas"]);
        let invited = done(&nas, &["invite", "--address", &format!("{EXIT}:2121"), "--json"]);
        let invited: Value = serde_json::from_str(&invited).unwrap();
        done(
            &laptop,
            &["join", invited["code"].as_str().unwrap(), "--host", "laptop"],
        );
        Self {
            _world: world,
            _lan: lan,
            _wan: wan,
            _links: links,
            hosts: vec![core, target, printer, resolver, home, spare],
            laptop,
            nas,
        }
    }

    fn host(&self, name: &str) -> &Host {
        self.hosts.iter().find(|host| host.name() == name).unwrap()
    }

    /// The exit offers itself and is approved.
    pub(super) fn approve(&self) {
        done(&self.nas, &["set", "--advertise-exit"]);
        done(&self.nas, &["route", "approve", "nas", "exit"]);
        wait_until(PATIENCE, "the exit serves", || self.nas_serves("ipv4"));
    }

    fn nas_serves(&self, version: &str) -> bool {
        self.nas.status().unwrap()["node"]["serves"][version] == true
    }

    /// What the status of the laptop says about its exit.
    fn exit(&self) -> Value {
        self.laptop.status().unwrap()["node"]["exit"].clone()
    }

    pub(super) fn passes(&self) -> bool {
        seen(self.laptop.host(), TARGET).as_deref() == Some(EXIT)
    }

    pub(super) fn finish(self) {
        let warned = self.warnings();
        assert!(warned.is_empty(), "{warned:?}");
    }

    /// Stops the nodes, and returns what they have warned of.
    pub(super) fn warnings(mut self) -> Vec<String> {
        let nodes = [&mut self.laptop, &mut self.nas].into_iter();
        let warned = nodes.flat_map(|node| {
            assert_eq!(node.stop().unwrap().code(), Some(0));
            node.warnings().unwrap()
        });
        warned.collect()
    }
}

impl Drop for Internet {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for node in [&self.laptop, &self.nas] {
                eprintln!("{}: {}", node.host().name(), state(node.host()));
            }
        }
    }
}

fn gateway(host: &Host, by: &[&str]) {
    for ip in by {
        host.add_default_route(ip.parse().unwrap()).unwrap();
    }
}

pub(super) fn done(node: &Daemon, arguments: &[&str]) -> String {
    let output = node.command(arguments);
    let output = output.unwrap_or_else(|error| panic!("{arguments:?}: {error}"));
    String::from_utf8(output.stdout).unwrap()
}

/// The one line of a command that fails with `code`.
fn failed(node: &Daemon, arguments: &[&str], code: i32) -> String {
    match node.command(arguments) {
        Err(DaemonError::Command { status, stderr, .. }) => {
            assert_eq!(status.code(), Some(code), "{arguments:?}: {stderr}");
            stderr
        }
        other => panic!("{arguments:?}: {other:?}"),
    }
}

/// What a program of the system prints on a host.
pub(super) fn run(host: &Host, program: &str, arguments: &[&str]) -> String {
    let mut command = Command::new(program);
    command.args(arguments);
    let output = host.command(command, MINUTE).unwrap();
    assert!(output.status.success(), "{program} {arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// The rules, routes, tables of nftables and settings of a host.
pub(super) fn state(host: &Host) -> String {
    let routes = |family: &[&str]| {
        let all = run(host, "ip", &[family, &["route", "show", "table", "all"]].concat());
        // The system gives interfaces these addresses when it likes.
        let lines = all.lines().filter(|line| !line.contains("fe80:"));
        lines.map(|line| format!("{line}\n")).collect::<String>()
    };
    let mut text: String = [
        run(host, "ip", &["rule"]),
        run(host, "ip", &["-6", "rule"]),
        routes(&[]),
        routes(&["-6"]),
        run(host, "nft", &["list", "ruleset"]),
    ]
    .concat();
    for sysctl in [
        "net.ipv4.ip_forward",
        "net.ipv6.conf.all.forwarding",
        "net.ipv4.conf.all.rp_filter",
        "net.ipv4.conf.all.src_valid_mark",
        "net.ipv4.conf.eth0.rp_filter",
        "net.ipv4.conf.eth0.forwarding",
        "net.ipv6.conf.eth0.forwarding",
    ] {
        let path = format!("/proc/sys/{}", sysctl.replace('.', "/"));
        let value = host.run(|| std::fs::read_to_string(&path)).unwrap();
        text.push_str(&format!("{sysctl} = {value:?}\n"));
    }
    text
}

/// What `state` says without counts and the routes of weft's own interface.
pub(super) fn rules(state: &str) -> Vec<String> {
    let counted = |line: &str| match line.split_once("counter packets ") {
        Some((rule, counts)) => format!("{rule}{}", counts.splitn(4, ' ').nth(3).unwrap_or_default()),
        None => line.to_owned(),
    };
    let others = state.lines().filter(|line| !line.contains("dev weft0"));
    others.map(counted).collect()
}

/// The packets of a host that others on its LAN see, but for those that the link itself needs and the
/// frames of the tunnel.
struct Capture {
    /// No other frames than those of the tunnel may be seen.
    tight: bool,
    stop: Arc<AtomicBool>,
    leaked: Arc<Mutex<Vec<String>>>,
    tunnel: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Capture {
    fn start(of: &Host, at: &[&Host]) -> Self {
        const ETH_P_ALL: u16 = 3;
        let link = run(of, "ip", &["-o", "link", "show", "eth0"]);
        let mac = link.split("link/ether ").nth(1).unwrap().split(' ').next().unwrap();
        let mac: Vec<u8> = mac.split(':').map(|hex| u8::from_str_radix(hex, 16).unwrap()).collect();
        let mut capture = Self {
            tight: false,
            stop: Arc::default(),
            leaked: Arc::default(),
            tunnel: Arc::default(),
            threads: Vec::new(),
        };
        let threads = at.iter().map(|host| {
            let protocol = Protocol::from(i32::from(ETH_P_ALL.to_be()));
            let socket = host.run(|| Socket::new(Domain::PACKET, Type::RAW, Some(protocol)));
            let mut socket = socket.unwrap().unwrap();
            socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
            let (stop, leaked, tunnel) = (capture.stop.clone(), capture.leaked.clone(), capture.tunnel.clone());
            let mac = mac.clone();
            std::thread::spawn(move || {
                let mut frame = vec![0; 65_535];
                while !stop.load(Ordering::Relaxed) {
                    let Ok(len) = socket.read(&mut frame) else { continue };
                    match (&frame[..len], frame[6..12] == mac) {
                        (frame, true) if is_tunnel(frame) => tunnel.store(true, Ordering::Relaxed),
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
    fn tight(mut self) -> Self {
        self.tight = true;
        self
    }

    /// Ends it. Nothing may have leaked, and there must have been frames of the tunnel.
    fn assert_tight(self) {
        let leaked = self.leaks();
        assert_strict!(leaked.is_empty(), "{leaked:#?}");
        assert!(self.tunnel.load(Ordering::Relaxed), "the capture sees nothing at all");
    }

    fn leaks(&self) -> Vec<String> {
        // What was sent last arrives first.
        std::thread::sleep(Duration::from_millis(100));
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
        assert_eq!(net.exit()["pass"], true, "{}", net.exit());
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
            state(net.nas.host()) == before.1
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
    fn try_all(&self) {
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
    fn lan(&self) -> [&Host; 3] {
        ["home", "spare", "resolver"].map(|name| self.host(name))
    }
}

fn command(program: &str, arguments: &[&str]) -> Command {
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

        // An orderly stop puts all back.
        assert_eq!(net.laptop.stop().unwrap().code(), Some(0));
        let differ = |now: &str| -> Vec<String> {
            let lines = |text: &str| {
                text.lines()
                    .map(str::to_owned)
                    .collect::<std::collections::BTreeSet<_>>()
            };
            lines(&before)
                .symmetric_difference(&lines(now))
                .filter(|line| !line.contains("weft0"))
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
fn what_other_programs_remove_is_set_up_again() {
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
            rules(&state(nas)) == rules(&before.1)
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
