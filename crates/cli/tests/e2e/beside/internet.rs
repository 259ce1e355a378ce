//! A member behind a gateway, an exit, and what is behind that:
//!
//! ```text
//! laptop ── LAN 192.168.1.0/24 ── home, spare (gateways), resolver
//!                  home, spare ── 198.51.100.0/24 ── core ── 192.0.2.0/24 ── target
//!                                                    core ── 203.0.113.0/24 ── nas, the exit
//!                                                             nas ── 192.168.9.0/24 ── printer
//! ```

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use simple_dns::{Packet, TYPE};
use weft_lab::daemon::{Daemon, DaemonError};
use weft_lab::host::Host;
use weft_lab::world::{Link, Switch, World};
use weft_os::test_support::uninterrupted;

use super::names::{read, request};
use crate::common::{MINUTE, PATIENCE, Underlay, WEFT, identity, wait_until};

pub(super) const TARGET: &str = "192.0.2.80:80";
pub(super) const TARGET6: &str = "[2001:db8:2::80]:80";
pub(super) const EXIT: &str = "203.0.113.10";
pub(super) const EXIT6: &str = "2001:db8:3::10";
pub(super) const LAPTOP: &str = "192.168.1.10";
pub(super) const RESOLVER: &str = "192.168.1.53";
pub(super) const PRINTER: &str = "192.168.9.2:80";
/// How long a connection may take.
pub(super) const TRIED: Duration = Duration::from_secs(3);

pub(super) struct Internet {
    pub(super) world: Arc<World>,
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

/// The name that [`asked`] asks for.
pub(super) const WHO: &str = "who.asks.example";

/// Answers as a resolver of the exit's network. The answer to a query for [`WHO`] is the address that it came
/// from; that to another one has no records.
pub(super) fn names(host: &Host) {
    let socket = host.run(|| UdpSocket::bind("192.0.2.80:53")).unwrap().unwrap();
    std::thread::spawn(move || {
        let mut query = [0; 1500];
        while let Ok((len, from)) = socket.recv_from(&mut query) {
            let who = match from.ip() {
                IpAddr::V4(ip) if is_for(&query[..len], WHO) => Some(ip),
                _ => None,
            };
            let _ = socket.send_to(&answer(&query[..len], who), from);
        }
    });
}

/// Whether a query is for this name.
fn is_for(query: &[u8], name: &str) -> bool {
    let packet = Packet::parse(query);
    packet.is_ok_and(|packet| {
        packet
            .questions
            .first()
            .is_some_and(|asked| asked.qname.to_string() == name)
    })
}

/// The answer to a query: this address, or no record.
pub(super) fn answer(query: &[u8], address: Option<Ipv4Addr>) -> Vec<u8> {
    let mut answer = query.to_vec();
    if let Some(flags) = answer.get_mut(2) {
        *flags |= 0x80;
    }
    if let (Some(address), Some(count)) = (address, answer.get_mut(7)) {
        *count = 1;
        // The name of the question, A, IN, 1 s, 4 bytes.
        answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 1, 0, 4]);
        answer.extend(address.octets());
    }
    answer
}

/// The source of a query to the resolver of the LAN, as the resolver that answers it sees it.
pub(super) fn asked(from: &Host) -> Option<String> {
    let ask = || {
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        socket.set_read_timeout(Some(TRIED)).unwrap();
        socket.send_to(&request(WHO, TYPE::A), (RESOLVER, 53)).ok()?;
        let mut answer = [0; 100];
        let len = uninterrupted(|| socket.recv(&mut answer)).ok()?;
        read(&answer[..len]).1.map(|ip| ip.to_string())
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
        Self::start_with(ipv6, Path::new(WEFT))
    }

    /// The same, with this program on the laptop.
    pub(super) fn start_with(ipv6: bool, program: &Path) -> Self {
        let world = Arc::new(World::new().unwrap());
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
        let [nas, laptop] = [(&nas, Path::new(WEFT)), (&laptop, program)].map(|(host, program)| {
            let id = identity(&world, host.name());
            let mut spec = Underlay::V4.listener();
            let path = world.directory().join(format!("{}.resolv.conf", host.name()));
            std::fs::write(&path, "nameserver 192.0.2.80\n").unwrap();
            spec.extra_toml = format!("\n[dns]\nresolv_conf = {:?}\n", path.to_str().unwrap());
            let mut node = Daemon::start(host, program, &id, &spec).unwrap();
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
        wait_until(PATIENCE, "the laptop knows the members", || {
            done(&laptop, &["members"]).contains("nas")
        });
        Self {
            world,
            _lan: lan,
            _wan: wan,
            _links: links,
            hosts: vec![core, target, printer, resolver, home, spare],
            laptop,
            nas,
        }
    }

    pub(super) fn host(&self, name: &str) -> &Host {
        self.hosts.iter().find(|host| host.name() == name).unwrap()
    }

    /// A container of the exit's host, on an interface there.
    pub(super) fn container(&self, ours: &[&str], theirs: &[&str]) -> (Host, Link) {
        let container = self.world.host("container").unwrap();
        let link = self.world.link((self.nas.host(), ours), (&container, theirs)).unwrap();
        (container, link)
    }

    /// A container at a bridge of the laptop, which leaves as Docker lets it.
    pub(super) fn container_of_laptop(&self) -> (Host, Link) {
        let (laptop, container) = (self.laptop.host(), self.world.host("container").unwrap());
        let theirs = ["172.17.0.2/16", "fd00:17::2/64"];
        let link = self.world.link((laptop, &[]), (&container, &theirs)).unwrap();
        // Before it has eth0 alone.
        let bridge = "ip link add docker0 type bridge; ip address add 172.17.0.1/16 dev docker0; \
             ip address add fd00:17::1/64 dev docker0 nodad; ip link set docker0 up; ip link set eth1 master docker0";
        run(laptop, "sh", &["-ec", bridge]);
        laptop.forward().unwrap();
        for version in ["ip saddr 172.17.0.0/16", "ip6 saddr fd00:17::/64"] {
            let family = version.split(' ').next().unwrap();
            let masquerade = format!(
                "table {family} d {{ chain p {{ type nat hook postrouting priority 100; \
                 {version} oifname != \"docker0\" masquerade; }}; }}"
            );
            run(laptop, "nft", &[&masquerade]);
        }
        gateway(&container, &["172.17.0.1", "fd00:17::1"]);
        (container, link)
    }

    /// The file that the programs of a node's host read to find their resolver.
    pub(super) fn resolv_conf(&self, name: &str) -> PathBuf {
        self.world.directory().join(format!("{name}.resolv.conf"))
    }

    /// The exit offers itself and is approved.
    pub(super) fn approve(&self) {
        done(&self.nas, &["set", "--advertise-exit"]);
        done(&self.nas, &["route", "approve", "nas", "exit"]);
        wait_until(PATIENCE, "the exit serves", || self.nas_serves("ipv4"));
    }

    /// A laptop whose packets leave by the exit.
    pub(super) fn by_exit(ipv6: bool) -> Self {
        let net = Self::start(ipv6);
        net.approve();
        done(&net.laptop, &["set", "--exit", "nas"]);
        wait_until(MINUTE, "packets leave by the exit", || net.passes());
        net
    }

    pub(super) fn nas_serves(&self, version: &str) -> bool {
        self.nas.status().unwrap()["node"]["serves"][version] == true
    }

    /// What the status of the laptop says about its exit.
    pub(super) fn exit(&self) -> Value {
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

pub(super) fn gateway(host: &Host, by: &[&str]) {
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
pub(super) fn failed(node: &Daemon, arguments: &[&str], code: i32) -> String {
    match node.command(arguments) {
        Err(DaemonError::Command { status, stderr, .. }) => {
            assert_eq!(status.code(), Some(code), "{arguments:?}: {stderr}");
            stderr
        }
        other => panic!("{arguments:?}: {other:?}"),
    }
}

/// What a command prints that runs on the host of a node: it looks at what is there, too.
pub(super) fn done_there(node: &Daemon, arguments: &[&str]) -> String {
    let output = node.attempt(arguments, MINUTE).unwrap();
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// The one line of such a command that fails with `code`.
pub(super) fn failed_there(node: &Daemon, arguments: &[&str], code: i32) -> String {
    let output = node.attempt(arguments, MINUTE).unwrap();
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {output:?}");
    String::from_utf8(output.stderr).unwrap()
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
    let others = state.lines().filter(|line| !is_of_interface(line));
    others.map(counted).collect()
}

/// Whether a line of [`state`] is there whenever the daemon is: the routes of its interface, and the table of those to
/// members with its rules.
pub(super) fn is_of_interface(line: &str) -> bool {
    line.contains("dev weft0") || line.starts_with("519") || line.contains("table 30564")
}

/// What [`rules`] says, without forwarding, which an exit switches on and leaves on, and the table that then
/// keeps the host from forwarding for others.
pub(super) fn but_forwarding(state: &str) -> Vec<String> {
    let mut of_closed = false;
    let mut lines = rules(state);
    lines.retain(|line| {
        if line.starts_with("table ") {
            of_closed = line.contains(" weft_forward ");
        }
        let own = of_closed;
        of_closed &= line != "}";
        !own && !line.contains("forward = ") && !line.contains("forwarding = ") && !line.starts_with("anycast ")
    });
    lines
}
