//! Connections to a host that uses an exit, and those of its containers.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream, UdpSocket};

use weft_lab::host::Host;
use weft_lab::world::{Link, World};
use weft_os::test_support::{require_nft, uninterrupted};

use super::internet::{
    EXIT, Internet, LAPTOP, RESOLVER, TARGET, asked, done, failed_there, gateway, mirror, run, seen,
};
use crate::common::{MINUTE, PATIENCE, beside, wait_until};

/// A service of the laptop, and the hosts that use it: by the Internet and in its LAN.
const SERVICE: &str = "192.168.1.10:8022";
const CLIENTS: [(&str, &str); 2] = [("target", "192.0.2.80"), ("resolver", RESOLVER)];

/// A connection to a server on the laptop, which is open.
struct Session {
    server: TcpStream,
    client: TcpStream,
}

impl Session {
    fn open(laptop: &Host, client: &Host) -> Self {
        let at = "192.168.1.10:8023";
        let listener = laptop.run(|| TcpListener::bind(at)).unwrap().unwrap();
        let client = client.run(|| TcpStream::connect(at)).unwrap().unwrap();
        let (server, _) = uninterrupted(|| listener.accept()).unwrap();
        // The port stays open: that shows that the connection came in.
        std::thread::spawn(move || listener.accept());
        Self { server, client }
    }

    /// Whether bytes of the server arrive, who speaks first.
    fn answers(&mut self) -> bool {
        self.client.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut byte = [0];
        self.server.write_all(b"x").is_ok() && uninterrupted(|| self.client.read(&mut byte)).is_ok_and(|len| len == 1)
    }
}

impl Internet {
    /// What clients of the laptop's service get.
    fn served(&self) -> Vec<Option<String>> {
        let served = CLIENTS.map(|(host, _)| seen(self.host(host), SERVICE));
        served.to_vec()
    }
}

/// A container at a bridge within a host, as Docker makes one.
pub(super) struct Bridged {
    pub(super) container: Host,
    /// The name of its port.
    port: String,
    _link: Link,
    _world: World,
}

impl Bridged {
    pub(super) fn start(of: &Host) -> Self {
        let world = World::new().unwrap();
        let container = world.host("container").unwrap();
        let link = world.link((of, &[]), (&container, &["172.17.0.2/16"])).unwrap();
        gateway(&container, &["172.17.0.1"]);
        let ports = run(of, "ip", &["-o", "link", "show", "type", "veth"]);
        let mut ports = ports.lines().filter(|line| !line.contains("eth0"));
        let port = ports.next_back().unwrap().split([':', '@']).nth(1).unwrap().trim();
        for arguments in [
            &["link", "add", "docker0", "type", "bridge"][..],
            &["address", "add", "172.17.0.1/16", "dev", "docker0"],
            &["link", "set", "docker0", "up"],
            &["link", "set", port, "master", "docker0"],
        ] {
            run(of, "ip", arguments);
        }
        of.forward().unwrap();
        let masquerade = "table ip d { chain p { type nat hook postrouting priority 100; \
                          ip saddr 172.17.0.0/16 oifname != \"docker0\" masquerade; }; }";
        run(of, "nft", &[masquerade]);
        Self {
            port: port.to_owned(),
            container,
            _link: link,
            _world: world,
        }
    }
}

#[test]
fn clients_of_another_interface_are_answered_through_it() {
    beside(|| {
        if !require_nft() {
            return;
        }
        let net = Internet::start(false);
        let laptop = net.laptop.host();
        // The check of sources asks where an answer would leave.
        run(laptop, "sysctl", &["-q", "net.ipv4.conf.all.rp_filter=1"]);
        mirror(laptop, SERVICE);
        let all: Vec<Option<String>> = CLIENTS.iter().map(|(_, at)| Some((*at).to_owned())).collect();
        assert_eq!(net.served(), all);
        net.approve();
        let mut session = Session::open(laptop, net.host("target"));
        done(&net.laptop, &["set", "--exit", "nas"]);
        wait_until(MINUTE, "packets leave by the exit", || net.passes());
        let filter = run(laptop, "sysctl", &["-n", "net.ipv4.conf.all.rp_filter"]);
        assert_eq!(filter, "2\n", "the LAN finds the host");
        assert!(session.answers(), "a connection from before the exit");
        assert_eq!(net.served(), all);
        done(&net.laptop, &["set", "--exit-lan"]);
        assert_eq!(net.served(), all);

        // Strict: not, and who would lose a connection is asked first.
        let why = failed_there(&net.laptop, &["set", "--exit-strict"], 2);
        assert!(
            why.contains("192.0.2.80 at port 8023") && why.contains("--confirm"),
            "{why}"
        );
        assert!(session.answers(), "nothing is changed");
        done(&net.laptop, &["set", "--exit-strict", "--exit-inbound"]);
        assert_eq!(net.served(), all);
        assert!(session.answers());
        done(
            &net.laptop,
            &["set", "--exit-inbound=false", "--exit-lan=false", "--confirm", "60s"],
        );
        assert_eq!(net.served(), [None, None]);
        assert!(net.passes());
        done(&net.laptop, &["confirm"]);
        done(&net.laptop, &["set", "--no-exit"]);
        assert_eq!(net.served(), all);
        let filter = run(laptop, "sysctl", &["-n", "net.ipv4.conf.all.rp_filter"]);
        assert_eq!(filter, "1\n", "as before");
        net.finish();
    });
}

#[test]
fn the_lan_finds_a_host_that_answers_where_routes_leave() {
    beside(|| {
        if !require_nft() {
            return;
        }
        let net = Internet::start(false);
        let (laptop, neighbour) = (net.laptop.host(), net.host("resolver"));
        let of = ["all", "default", "eth0"].map(|interface| format!("net.ipv4.conf.{interface}.arp_filter"));
        let [all, default, own] = of.each_ref().map(String::as_str);
        run(
            laptop,
            "sysctl",
            &[
                "-q",
                "-w",
                &format!("{all}=1"),
                &format!("{default}=1"),
                &format!("{own}=1"),
            ],
        );
        net.approve();
        done(&net.laptop, &["set", "--exit", "nas", "--exit-strict"]);
        wait_until(MINUTE, "packets leave by the exit", || net.passes());
        // The laptop sends nothing to this host, so it is found by a question alone.
        run(neighbour, "ip", &["neigh", "flush", "all"]);
        wait_until(PATIENCE, "a neighbour finds the laptop", || {
            let sent = neighbour.run(|| UdpSocket::bind("0.0.0.0:0")?.send_to(b"x", "192.168.1.10:9"));
            let _ = sent.unwrap();
            run(neighbour, "ip", &["neigh", "show", LAPTOP]).contains("lladdr")
        });
        run(laptop, "ip", &["link", "add", "later", "type", "bridge"]);
        let value = |name: &str| run(laptop, "sysctl", &["-n", name]).trim().to_owned();
        wait_until(PATIENCE, "an interface that comes later answers, too", || {
            value("net.ipv4.conf.later.arp_filter") == "0"
        });
        done(&net.laptop, &["set", "--no-exit"]);
        let later = "net.ipv4.conf.later.arp_filter";
        assert_eq!([all, default, own, later].map(value), ["1"; 4], "as before");
        net.finish();
    });
}

#[test]
fn open_connections_end_with_an_error_when_the_exit_changes() {
    beside(|| {
        if !require_nft() {
            return;
        }
        let net = Internet::by_exit(false);
        let laptop = net.laptop.host();
        // Servers that say nothing, at the Internet and at a member.
        let silent = |host: &Host, at: String| {
            let listener = host.run(|| TcpListener::bind(&at)).unwrap().unwrap();
            let client = laptop.run(|| TcpStream::connect(&at)).unwrap().unwrap();
            client.set_read_timeout(Some(MINUTE)).unwrap();
            (listener, client)
        };
        let (_there, mut open) = silent(net.host("target"), "192.0.2.80:8024".to_owned());
        let nas = format!("[{}]:8024", net.nas.identity().address);
        let (member, mut kept) = silent(net.nas.host(), nas);
        let (mut server, _) = uninterrupted(|| member.accept()).unwrap();
        done(&net.laptop, &["set", "--no-exit"]);
        let error = uninterrupted(|| open.read(&mut [0])).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionAborted, "{error}");
        server.write_all(b"x").unwrap();
        assert_eq!(
            uninterrupted(|| kept.read(&mut [0])).unwrap(),
            1,
            "a member is reached as before"
        );
        net.finish();
    });
}

#[test]
fn containers_leave_by_the_exit_and_get_names() {
    beside(|| {
        if !require_nft() {
            return;
        }
        let net = Internet::start(false);
        let laptop = net.laptop.host();
        let Bridged { container, port, .. } = &Bridged::start(laptop);
        mirror(container, "172.17.0.2:80");
        wait_until(PATIENCE, "the container has a network", || {
            seen(container, TARGET).as_deref() == Some(LAPTOP)
        });
        net.approve();
        for strict in [false, true] {
            done(
                &net.laptop,
                &["set", "--exit", "nas", &format!("--exit-strict={strict}")],
            );
            wait_until(MINUTE, "packets of the host leave by the exit", || net.passes());
            assert_eq!(seen(container, TARGET).as_deref(), Some(EXIT), "strict: {strict}");
            assert_eq!(asked(container).as_deref(), Some(EXIT), "strict: {strict}");
            assert_eq!(
                seen(laptop, "172.17.0.2:80").as_deref(),
                Some("172.17.0.1"),
                "strict: {strict}"
            );
            assert_eq!(seen(container, "192.168.1.1:80"), None, "the LAN; strict: {strict}");
        }
        // A bridge that comes later, as each network of Docker is one.
        run(laptop, "ip", &["link", "set", port, "nomaster"]);
        run(laptop, "ip", &["link", "delete", "docker0"]);
        for arguments in [
            &["link", "add", "br-later", "type", "bridge"][..],
            &["address", "add", "172.17.0.1/16", "dev", "br-later"],
            &["link", "set", "br-later", "up"],
            &["link", "set", port, "master", "br-later"],
        ] {
            run(laptop, "ip", arguments);
        }
        wait_until(PATIENCE, "the host reaches the container", || {
            seen(laptop, "172.17.0.2:80").as_deref() == Some("172.17.0.1")
        });
        wait_until(PATIENCE, "the container leaves by the exit", || {
            seen(container, TARGET).as_deref() == Some(EXIT)
        });
        net.finish();
    });
}
