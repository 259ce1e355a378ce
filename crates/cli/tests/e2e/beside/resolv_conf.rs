//! Names on a host without systemd-resolved, by its resolv.conf: the C library of this system asks,
//! a server of the test answers for other names.
//!
//! The file is one of the test's directory. Programs of the host see that directory as `/etc`.

use std::fs;
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use serde_json::Value;
use simple_dns::{Packet, PacketFlag, RCODE, TYPE};
use weft_lab::daemon::Daemon;
use weft_lab::host::Host;
use weft_lab::world::{Switch, World};
use weft_os::assert_strict;

use super::names::{Answer, exchange_tcp, exchange_udp, read, request};
use super::upstream::{Upstream, WWW};
use crate::common::{MINUTE, PATIENCE, Underlay, WEFT, address, beside, identity, wait_until};

/// The address that the file names while the daemon runs.
const SERVER: &str = "127.0.0.153:53";
/// The time limit is the longest that the C library takes: a server that is slow to answer on a busy
/// machine must not lead a query to the next one.
const FORMER: &str = "# by DHCP\nnameserver 192.0.2.53\noptions timeout:30 rotate\n";
/// Files that the C library reads for look-ups.
const SHARED: [&str; 7] = [
    "ld.so.cache",
    "ld.so.conf",
    "host.conf",
    "protocols",
    "services",
    "passwd",
    "group",
];

/// The directory that is `/etc` for programs of the host.
struct Etc {
    directory: PathBuf,
}

impl Etc {
    fn new(world: &World) -> Self {
        // The daemon's user looks whether the file has changed.
        fs::set_permissions(world.directory(), fs::Permissions::from_mode(0o755)).unwrap();
        let directory = world.directory().join("etc");
        fs::create_dir(&directory).unwrap();
        fs::set_permissions(&directory, fs::Permissions::from_mode(0o755)).unwrap();
        for name in SHARED {
            let _ = fs::copy(Path::new("/etc").join(name), directory.join(name));
        }
        let etc = Self { directory };
        etc.write("nsswitch.conf", "hosts: files dns\n");
        etc.write("hosts", "127.0.0.1 localhost\n");
        etc.write("resolv.conf", FORMER);
        etc
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
        fs::set_permissions(self.path(name), fs::Permissions::from_mode(0o644)).unwrap();
    }

    /// Replaces resolv.conf as DHCP clients and NetworkManager do.
    fn replace(&self, text: &str) {
        self.write("theirs", text);
        fs::rename(self.path("theirs"), self.path("resolv.conf")).unwrap();
    }

    fn text(&self) -> String {
        fs::read_to_string(self.path("resolv.conf")).unwrap()
    }

    fn is_ours(&self) -> bool {
        self.text().starts_with("# Written by weft,")
    }

    /// What the C library answers for a name or an address, each address once; empty for no answer.
    fn look_up(&self, host: &Host, database: &str, name: &str) -> Vec<String> {
        let mut command = Command::new("unshare");
        let script = r#"mount --bind "$0" /etc && exec getent "$1" "$2""#;
        command.args(["--mount", "sh", "-c", script]);
        command.arg(&self.directory).args([database, name]);
        let output = host.command(command, MINUTE).unwrap();
        assert!(matches!(output.status.code(), Some(0 | 2)), "{output:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        let mut lines: Vec<_> = text
            .lines()
            .map(|line| line.replace("STREAM", "").replace("DGRAM", "").replace("RAW", ""))
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
            .collect();
        lines.sort();
        lines.dedup();
        lines
    }

    /// Answers for names that are none of weft's.
    fn others(&self, host: &Host) -> Vec<Vec<String>> {
        let look_up = |(database, name)| self.look_up(host, database, name);
        [
            ("ahostsv4", "www.example"),
            ("ahostsv6", "www.example"),
            ("hosts", "198.51.100.7"),
            ("ahostsv4", "missing.example"),
            ("ahostsv4", "localhost"),
            // A node's address that is none of this host's mesh.
            ("hosts", "fd00::1"),
        ]
        .map(look_up)
        .to_vec()
    }
}

/// A switch with the upstream server and two hosts, on the first of which the daemon may replace the
/// file of [`Etc`].
struct Net {
    world: World,
    switch: Switch,
    upstream: Upstream,
    etc: Etc,
    host: Host,
}

impl Net {
    fn new() -> Self {
        let world = World::new().unwrap();
        let switch = world.switch("net").unwrap();
        let upstream = Upstream::start(&world, &switch);
        let etc = Etc::new(&world);
        let host = world.host("a").unwrap();
        switch.connect(&host, &["192.0.2.1/24"]).unwrap();
        Self {
            world,
            switch,
            upstream,
            etc,
            host,
        }
    }

    fn start(&self) -> Daemon {
        let mut spec = Underlay::V4.listener();
        let path = self.etc.path("resolv.conf");
        spec.extra_toml = format!("\n[dns]\nresolv_conf = {:?}\n", path.to_str().unwrap());
        let id = identity(&self.world, "a");
        let mut daemon = Daemon::start(&self.host, Path::new(WEFT), &id, &spec).unwrap();
        daemon.wait_ready(PATIENCE).unwrap();
        daemon
    }

    fn wait_set_up(&self) {
        wait_until(PATIENCE, "resolv.conf names the daemon", || self.etc.is_ours());
    }

    /// Waits for the file of before. A daemon that stops leaves it to the broker if that is slow.
    fn wait_former(&self) {
        wait_until(PATIENCE, "the former file is back", || self.etc.text() == FORMER);
    }
}

/// Asserts that nothing listens where the file leads first, and that the system says so at once: the C
/// library then does not wait for an answer, and asks the next server.
fn assert_refused(host: &Host) {
    let at: SocketAddr = SERVER.parse().unwrap();
    let errors = host.run(|| {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.connect(at).unwrap();
        socket.send(b"a query").unwrap();
        let udp = socket.recv(&mut [0; 9]).unwrap_err();
        [udp, TcpStream::connect_timeout(&at, PATIENCE).unwrap_err()]
    });
    for error in errors.unwrap() {
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused, "{error}");
    }
}

fn dns(daemon: &Daemon) -> Value {
    daemon.status().unwrap()["node"]["dns"].clone()
}

fn ask(daemon: &Daemon, tcp: bool, request: &[u8]) -> Answer {
    let server = SERVER.parse().unwrap();
    let exchange = if tcp { exchange_tcp } else { exchange_udp };
    read(&daemon.host().run(|| exchange(server, request)).unwrap())
}

#[test]
fn names_by_resolv_conf_and_others_as_before() {
    beside(|| {
        let net = Net::new();
        let (etc, host) = (&net.etc, &net.host);
        let before = etc.others(host);
        assert_eq!(before[0], ["198.51.100.7", "198.51.100.7 www.example"]);
        assert_eq!(before[2], ["198.51.100.7 www.example"]);
        assert!(before[3].is_empty() && before[5].is_empty(), "{before:?}");
        let file = fs::metadata(etc.path("resolv.conf")).unwrap();

        let mut a = net.start();
        net.wait_set_up();
        wait_until(PATIENCE, "status says so", || dns(&a)["state"] == "system");
        let why = dns(&a)["why"].as_str().unwrap().to_owned();
        assert!(why.contains("resolv.conf, with other names from 192.0.2.53"), "{why}");
        let text = etc.text();
        assert!(
            text.contains("nameserver 127.0.0.153\n# by DHCP\nnameserver 192.0.2.53\n"),
            "{text}"
        );
        assert!(
            text.contains("options timeout:30\n") && !text.contains("rotate"),
            "{text}"
        );
        assert_eq!(etc.others(host), before);

        // A member that joins has its names, the short one included.
        let other = net.world.host("b").unwrap();
        net.switch.connect(&other, &["192.0.2.2/24"]).unwrap();
        let id = identity(&net.world, "b");
        let mut b = Daemon::start(&other, Path::new(WEFT), &id, &Underlay::V4.listener()).unwrap();
        b.wait_ready(PATIENCE).unwrap();
        a.command(&["create", "home", "--host", "desk"]).unwrap();
        let invited = a.command(&["invite", "--json", "--name", "laptop"]).unwrap();
        let invited: Value = serde_json::from_slice(&invited.stdout).unwrap();
        b.command(&["join", invited["code"].as_str().unwrap()]).unwrap();
        let six = address(&b).to_string();
        wait_until(PATIENCE, "the new member has its names", || {
            let found = etc.look_up(host, "ahostsv6", "laptop");
            found.contains(&format!("{six} laptop.home.weft"))
        });
        let networks = b.command(&["networks", "--json"]).unwrap();
        let networks: Value = serde_json::from_slice(&networks.stdout).unwrap();
        let four: IpAddr = networks["networks"][0]["ipv4"].as_str().unwrap().parse().unwrap();
        for name in ["laptop.home.weft", "laptop"] {
            assert!(
                etc.look_up(host, "ahostsv4", name)
                    .contains(&format!("{four} laptop.home.weft")),
                "{name}"
            );
        }
        for ip in [four.to_string(), six.clone()] {
            assert_eq!(etc.look_up(host, "hosts", &ip), [format!("{ip} laptop.home.weft")]);
        }
        assert!(etc.look_up(host, "ahostsv4", "phone.home.weft").is_empty());
        let asked_for = |names: &[&str]| names.iter().any(|name| net.upstream.was_asked(name));
        assert_strict!(
            !asked_for(&["laptop.home.weft", "phone.home.weft"]),
            "a server learns names"
        );
        // No server learns which addresses of the mesh are asked for, also those that have no name.
        assert!(etc.look_up(host, "hosts", "fd00::2").is_empty());
        let reverse = format!("2.{}d.f.ip6.arpa", "0.".repeat(29));
        assert_strict!(!asked_for(&[reverse.as_str()]), "a server learns {reverse}");
        assert_eq!(etc.others(host), before);

        // Both transports, with and without EDNS; a long response comes by TCP.
        let by_tcp = || net.upstream.by_tcp.load(Ordering::Relaxed);
        for tcp in [false, true] {
            let before = by_tcp();
            let www = ask(&a, tcp, &request("www.example", TYPE::A));
            assert_eq!(www, (RCODE::NoError, Some(WWW.into())));
            assert_eq!(
                ask(&a, tcp, &request("missing.example", TYPE::A)),
                (RCODE::NameError, None)
            );
            assert_eq!(
                ask(&a, tcp, &request("laptop.home.weft", TYPE::A)),
                (RCODE::NoError, Some(four))
            );
            assert_eq!(
                ask(&a, tcp, &request("laptop.home.weft", TYPE::MX)),
                (RCODE::NoError, None)
            );
            assert_eq!(
                ask(&a, tcp, &request("other.home.weft", TYPE::A)),
                (RCODE::NameError, None)
            );
            // Servers are asked as the daemon is, for two names; again if they are slow to answer.
            let asked = by_tcp() - before;
            assert!(if tcp { asked >= 2 } else { asked == 0 }, "{asked} by TCP");
        }
        assert_strict!(
            !asked_for(&["laptop.home.weft", "other.home.weft"]),
            "a server learns names"
        );
        let big = request("big.example", TYPE::TXT);
        let server = SERVER.parse().unwrap();
        let (short, long) = host
            .run(|| (exchange_udp(server, &big), exchange_tcp(server, &big)))
            .unwrap();
        assert!(Packet::parse(&short).unwrap().has_flags(PacketFlag::TRUNCATION));
        assert_eq!(Packet::parse(&long).unwrap().answers.len(), 30);
        b.stop().unwrap();

        // What another program writes becomes the upstream and the former file.
        let theirs = "nameserver 192.0.2.54\nsearch lan.example\n";
        etc.replace(theirs);
        wait_until(PATIENCE, "the file names the daemon again", || {
            etc.is_ours() && etc.text().contains("192.0.2.54\n")
        });
        assert!(etc.text().contains("search lan.example home.weft\n"), "{}", etc.text());
        wait_until(PATIENCE, "queries go to the new server", || {
            dns(&a)["why"].as_str().unwrap().contains("192.0.2.54")
        });
        assert_eq!(etc.others(host)[..3], before[..3]);
        etc.replace(FORMER);
        wait_until(PATIENCE, "the file names the daemon again", || {
            let former = fs::read_to_string(etc.path("resolv.conf.before-weft"));
            etc.is_ours() && former.is_ok_and(|text| text == FORMER)
        });

        let last = fs::metadata(etc.path("resolv.conf.before-weft")).unwrap();
        assert_eq!(a.stop().unwrap().code(), Some(0));
        net.wait_former();
        let after = fs::metadata(etc.path("resolv.conf")).unwrap();
        assert_eq!(
            (after.ino(), after.mode(), after.uid()),
            (last.ino(), file.mode(), file.uid())
        );
        assert!(!etc.path("resolv.conf.before-weft").exists());
        assert_eq!(etc.others(host), before);
        assert_eq!(a.warnings().unwrap(), Vec::<String>::new());
    });
}

#[test]
fn a_killed_daemon_leaves_a_working_resolver() {
    beside(|| {
        let net = Net::new();
        let (etc, host) = (&net.etc, &net.host);
        let before = etc.others(host);
        let mut a = net.start();
        net.wait_set_up();
        // The broker outlives the daemon for a moment.
        a.kill().unwrap();
        net.wait_former();
        assert_eq!(etc.others(host), before);

        // Both are killed: the file stays, and the C library takes the next server at once.
        a.restart().unwrap();
        a.wait_ready(PATIENCE).unwrap();
        net.wait_set_up();
        let broker = super::rights::broker(&a);
        let killed = Command::new("kill").arg("-9").arg(broker.to_string()).status();
        assert!(killed.unwrap().success());
        a.kill().unwrap();
        assert!(etc.is_ours());
        assert_refused(host);
        net.upstream.asked.lock().unwrap().clear();
        assert_eq!(etc.others(host), before);
        assert!(net.upstream.was_asked("www.example"), "by the next server");

        a.restart().unwrap();
        a.wait_ready(PATIENCE).unwrap();
        net.wait_set_up();
        wait_until(PATIENCE, "names are set up", || dns(&a)["state"] == "system");
        assert_eq!(etc.others(host), before);
        assert_eq!(a.stop().unwrap().code(), Some(0));
        net.wait_former();
    });
}

#[test]
fn a_program_that_insists_on_its_file_keeps_it() {
    beside(|| {
        let net = Net::new();
        let etc = &net.etc;
        let mut a = net.start();
        net.wait_set_up();
        let mut round = 0;
        wait_until(MINUTE, "the daemon leaves the file to that program", || {
            if etc.is_ours() {
                round += 1;
                etc.replace(&format!("# {round}\n{FORMER}"));
            }
            thread::sleep(Duration::from_millis(100));
            !a.warnings().unwrap().is_empty()
        });
        assert_eq!(etc.text(), format!("# {round}\n{FORMER}"));
        assert!(!etc.path("resolv.conf.before-weft").exists());
        wait_until(PATIENCE, "status says so", || dns(&a)["state"] == "local");
        let why = dns(&a)["why"].as_str().unwrap().to_owned();
        assert!(why.contains("it is left to that program"), "{why}");
        let doctor = a.attempt(&["doctor"], MINUTE).unwrap();
        let doctor = String::from_utf8_lossy(&doctor.stdout).into_owned();
        assert!(doctor.contains("it is left to that program"), "{doctor}");
        assert_eq!(a.stop().unwrap().code(), Some(0));
        assert_eq!(etc.text(), format!("# {round}\n{FORMER}"));
        let [warning] = &a.warnings().unwrap()[..] else {
            panic!("{:?}", a.warnings());
        };
        assert!(warning.contains("set dns.resolv_conf to \"off\""), "{warning}");
    });
}

/// Another program has port 53 of the address: names are not set up, the file stays, and status says
/// what to do.
#[test]
fn without_the_port_the_file_stays() {
    beside(|| {
        let net = Net::new();
        let at: SocketAddr = SERVER.parse().unwrap();
        let taken = net.host.run(|| UdpSocket::bind(at).unwrap()).unwrap();
        let mut a = net.start();
        let why = || dns(&a)["why"].as_str().unwrap().to_owned();
        wait_until(PATIENCE, "the daemon has tried", || !why().contains("being set up"));
        assert_eq!(dns(&a)["state"], "local");
        let why = why();
        assert!(
            why.contains("127.0.0.153:53 cannot be bound (Address already in use"),
            "{why}"
        );
        assert!(
            why.contains("docs/names.md says how other resolvers lead here"),
            "{why}"
        );
        assert_eq!(net.etc.text(), FORMER);
        drop(taken);
        assert_eq!(a.stop().unwrap().code(), Some(0));
        assert_eq!(a.warnings().unwrap(), Vec::<String>::new());
    });
}
