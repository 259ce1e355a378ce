//! One node in two networks of one name and one range: nothing passes from one into the other.

use std::collections::BTreeSet;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::Value;
use simple_dns::{RCODE, TYPE};
use socket2::{Domain, Protocol, Socket, Type};
use weft_lab::daemon::Daemon;
use weft_lab::host::Host;
use weft_os::assert_strict;
use weft_os::netlink::{InterfaceAddress, Netlink};
use weft_os::test_support::require_nft;

use super::faults::findings;
use super::internet::{mirror, run, seen};
use super::join::{Net, code, done, failed, ipv4, pings, pings_ipv4};
use super::names::ask;
use crate::common::spoof::from_anywhere;
use crate::common::{MINUTE, PATIENCE, address, beside, wait_until};

/// All protocols, for a packet socket (packet(7)).
const ETH_P_ALL: u16 = 3;

/// The sources of the IP packets that a host sees on any of its interfaces, but for ICMP: its own node
/// makes errors about what it does not send.
struct Sight {
    stop: Arc<AtomicBool>,
    seen: Arc<Mutex<BTreeSet<IpAddr>>>,
    thread: Option<JoinHandle<()>>,
}

impl Sight {
    fn of(host: &Host) -> Self {
        use std::io::Read as _;
        let protocol = Protocol::from(i32::from(ETH_P_ALL.to_be()));
        let socket = host.run(|| Socket::new(Domain::PACKET, Type::DGRAM, Some(protocol)));
        let mut socket = socket.unwrap().unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        let (stop, seen) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(BTreeSet::new())));
        let (ended, all) = (Arc::clone(&stop), Arc::clone(&seen));
        let thread = std::thread::spawn(move || {
            let mut packet = vec![0; 65_535];
            while !ended.load(Ordering::Relaxed) {
                if let Ok(len) = socket.read(&mut packet)
                    && let Some(source) = source_of(&packet[..len])
                {
                    all.lock().unwrap().insert(source);
                }
            }
        });
        Self {
            stop,
            seen,
            thread: Some(thread),
        }
    }

    fn sources(&self) -> BTreeSet<IpAddr> {
        self.seen.lock().unwrap().clone()
    }
}

impl Drop for Sight {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(ended.is_none_or(|ended| ended.is_ok()) || std::thread::panicking());
    }
}

fn source_of(packet: &[u8]) -> Option<IpAddr> {
    const ICMP: u8 = 1;
    const ICMPV6: u8 = 58;
    match packet.first()? >> 4 {
        4 if packet.get(9) != Some(&ICMP) => {
            let source: [u8; 4] = packet.get(12..16)?.try_into().ok()?;
            Some(Ipv4Addr::from(source).into())
        }
        6 if packet.get(6) != Some(&ICMPV6) => {
            let source: [u8; 16] = packet.get(8..24)?.try_into().ok()?;
            Some(Ipv6Addr::from(source).into())
        }
        _ => None,
    }
}

fn networks(node: &Daemon) -> Vec<Value> {
    let list: Value = serde_json::from_str(&done(node, &["networks", "--json"])).unwrap();
    list["networks"].as_array().unwrap().clone()
}

/// The address of a node in the network with this label.
fn ipv4_in(node: &Daemon, label: &str) -> Ipv4Addr {
    let networks = networks(node);
    let network = networks.iter().find(|network| network["label"] == label).unwrap();
    network["ipv4"].as_str().unwrap().parse().unwrap()
}

fn counter(node: &Daemon, name: &str) -> u64 {
    node.status().unwrap()["counters"][name].as_u64().unwrap()
}

/// Sends a datagram from an address of the host, or from one that it does not have.
fn send(host: &Host, from: Ipv4Addr, to: Ipv4Addr) {
    let socket = from_anywhere(host, SocketAddr::from((from, 0)));
    // An error is as good: the packet does not leave.
    let _ = socket.send_to(b"forged", SocketAddr::from((to, 9)));
}

/// The address that the system chooses for packets of a node to another address.
fn source(node: &Daemon, to: Ipv4Addr) -> IpAddr {
    let address = node.host().run(|| {
        let socket = UdpSocket::bind("0.0.0.0:0")?;
        socket.connect(SocketAddr::from((to, 9)))?;
        socket.local_addr()
    });
    address.unwrap().unwrap().ip()
}

/// `m`, which forwards, is in the network of `x` and in that of `y`, both named `home`.
fn join_both(m: &Daemon, x: &Daemon, y: &Daemon) {
    m.host().forward().unwrap();
    done(x, &["create", "home", "--host", "x"]);
    done(y, &["create", "home", "--host", "y"]);
    let joined = done(m, &["join", &code(x, &[]), "--host", "m"]);
    assert!(joined.starts_with("home joined; this machine is m\n"), "{joined}");
    let joined = done(m, &["join", &code(y, &[]), "--host", "m"]);
    assert!(joined.starts_with("home-2 joined; this machine is m\n"), "{joined}");
    assert!(
        joined.contains("Its name is home, as is that of another network of this machine; here it is home-2."),
        "{joined}"
    );
    assert!(joined.contains("m.home-2.weft"), "{joined}");
}

#[test]
fn nothing_passes_between_two_networks_of_one_node() {
    beside(|| {
        let mut net = Net::start(&["m", "x", "y"]);
        let [m, x, y] = &net.nodes[..] else { panic!() };
        join_both(m, x, y);
        let labels = |node: &Daemon| -> BTreeSet<String> {
            let networks = networks(node);
            networks
                .iter()
                .map(|network| network["label"].as_str().unwrap().to_owned())
                .collect()
        };
        let expected = BTreeSet::from(["home".to_owned(), "home-2".to_owned()]);
        assert_eq!(labels(m), expected);
        assert!(networks(m).iter().all(|network| network["name"] == "home"));
        assert!(failed(m, &["invite"]).contains("several networks"));
        let [m1, m2] = ["home", "home-2"].map(|label| ipv4_in(m, label));
        let [x4, y4] = [x, y].map(ipv4);

        // Each reaches m, and m reaches each: by name, by IPv6, and by IPv4 from the address there.
        // A node is a member with its own record; those of other members may come after it.
        wait_until(PATIENCE, "the members of both networks have names", || {
            ask(m, "x.home.weft", TYPE::A) == (RCODE::NoError, Some(x4.into()))
                && ask(m, "y.home-2.weft", TYPE::A) == (RCODE::NoError, Some(y4.into()))
        });
        assert_eq!(ask(m, "y.home-2.weft", TYPE::AAAA), (RCODE::NoError, Some(address(y))));
        assert_eq!(ask(m, "y.home.weft", TYPE::A).0, RCODE::NameError);
        for (from, to) in [(m, "x"), (m, "y"), (x, "m"), (y, "m")] {
            wait_until(PATIENCE, "by name", || pings(from, to));
        }
        for (from, to) in [(m, x4), (m, y4), (x, m1), (y, m2)] {
            wait_until(PATIENCE, "by IPv4", || pings_ipv4(from, to));
        }
        assert_eq!((source(m, x4), source(m, y4)), (m1.into(), m2.into()));

        // x leads packets for y, and for the other address of m, to m.
        let config = x.identity().state.join("config.toml");
        let text = fs::read_to_string(&config).unwrap();
        let strange = "192.168.9.9";
        let peer = format!(
            "{text}\n[[peer]]\nnpub = \"{}\"\nroutes = [\"{y4}/32\", \"{m2}/32\"]\n",
            m.identity().npub
        );
        fs::write(&config, peer).unwrap();
        done(x, &["reload"]);
        done(x, &["set", "tun.routes", "[\"192.168.9.0/24\"]"]);
        let add = |netlink: &mut Netlink| {
            let index = netlink.interface("lo")?.index;
            netlink.add_address(InterfaceAddress {
                index,
                address: strange.parse().unwrap(),
                prefix_len: 32,
            })
        };
        x.host().netlink(add).unwrap();
        let sights = [x, y].map(|node| Sight::of(node.host()));
        wait_until(MINUTE, "m drops what is for y", || {
            send(x.host(), x4, y4);
            counter(m, "foreign_destination") > 0
        });
        wait_until(MINUTE, "m denies what is for its other address", || {
            send(x.host(), x4, m2);
            counter(m, "denied_by_rules") > 0
        });
        wait_until(MINUTE, "m drops what is from elsewhere", || {
            for to in [y4, m1, m2] {
                send(x.host(), strange.parse().unwrap(), to);
            }
            counter(m, "foreign_source") > 0
        });
        assert_strict!(
            !pings_ipv4(x, y4) && !pings_ipv4(x, m2),
            "packets cross between networks"
        );
        let ping = x.command(&["ping", &y.identity().npub, "--count", "1", "--timeout", "2"]);
        assert_strict!(ping.is_err(), "packets cross between networks by IPv6");

        // What the kernel of m forwards, and what it sends from the wrong address.
        for (from, to) in [(x4, y4), (y4, x4), (m1, y4), (m2, x4), (strange.parse().unwrap(), y4)] {
            let before = counter(m, "wrong_source");
            wait_until(PATIENCE, "m does not send it", || {
                send(m.host(), from, to);
                counter(m, "wrong_source") > before
            });
        }
        for (from, to) in [(m, x4), (m, y4), (x, m1), (y, m2)] {
            wait_until(PATIENCE, "nothing else ends", || pings_ipv4(from, to));
        }
        // Datagrams of m show that the hosts see what arrives.
        let [at_x, at_y] = &sights;
        wait_until(PATIENCE, "what may pass is seen", || {
            for (from, to) in [(m1, x4), (m2, y4)] {
                send(m.host(), from, to);
            }
            at_x.sources().contains(&m1.into()) && at_y.sources().contains(&m2.into())
        });
        for foreign in [x4.into(), address(x), m1.into(), strange.parse().unwrap()] {
            assert_strict!(!at_y.sources().contains(&foreign), "y sees {foreign}");
        }
        for foreign in [y4.into(), address(y), m2.into()] {
            assert_strict!(!at_x.sources().contains(&foreign), "x sees {foreign}");
        }
        assert_strict!(counter(m, "icmp_denied") == 0, "an error shows an address");
        drop(sights);

        let m = &mut net.nodes[0];
        assert_eq!(m.stop().unwrap().code(), Some(0));
        m.restart().unwrap();
        m.wait_ready(PATIENCE).unwrap();
        assert_eq!(labels(m), expected);
        let [m, x, y] = &net.nodes[..] else { panic!() };
        assert_eq!((ipv4_in(m, "home"), ipv4_in(m, "home-2")), (m1, m2));
        for (from, to) in [(x, m1), (y, m2)] {
            wait_until(MINUTE, "both reach m again", || pings_ipv4(from, to));
        }
        done(m, &["leave", "--network", "home"]);
        wait_until(PATIENCE, "the other one stays", || {
            labels(m) == ["home-2".to_owned()].into()
        });
        wait_until(PATIENCE, "its members reach m", || pings_ipv4(y, m2));
        net.finish();
    });
}

#[test]
fn containers_of_a_node_in_two_networks_are_named_and_mended() {
    beside(|| {
        if !require_nft() {
            return;
        }
        let net = Net::start(&["m", "x", "y"]);
        let [m, x, y] = &net.nodes[..] else { panic!() };
        join_both(m, x, y);
        let container = net.world().host("container").unwrap();
        let _bridge = net
            .world()
            .link((m.host(), &["172.17.0.1/16"]), (&container, &["172.17.0.2/16"]))
            .unwrap();
        container.add_default_route("172.17.0.1".parse().unwrap()).unwrap();
        let masquerade = |out: &str| {
            let rule = format!("ip saddr 172.17.0.0/16 oifname {out} masquerade");
            let text =
                format!("table ip nat {{ chain POSTROUTING {{ type nat hook postrouting priority 100; {rule}; }}; }}");
            run(
                m.host(),
                "nft",
                &[&format!("table ip nat; delete table ip nat; {text}")],
            );
        };
        let [at_x, at_y] = [x, y].map(|node| {
            let at = format!("{}:80", ipv4(node));
            mirror(node.host(), &at);
            at
        });
        let [own_x, own_y] = ["home", "home-2"].map(|label| ipv4_in(m, label).to_string());
        let passes = || [(&at_x, &own_x), (&at_y, &own_y)].map(|(at, own)| seen(&container, at).as_ref() == Some(own));
        wait_until(MINUTE, "m itself reaches both", || {
            [&at_x, &at_y].iter().all(|at| seen(m.host(), at).is_some())
        });
        let named = || findings(m, &["masquerade"], &[]);
        masquerade("eth0");
        assert_eq!(named(), [""; 0], "no masquerade is for the interface of weft");
        masquerade("!= \"eth1\"");
        wait_until(PATIENCE, "one network is reached, and the other one is named", || {
            passes().iter().filter(|passes| **passes).count() == 1 && named().len() == 1
        });
        assert!(counter(m, "wrong_source") > 0);
        let fault = named().remove(0);
        let words = fault["what"].as_str().unwrap();
        assert!(words.contains("from 172.17.0.0/16 to 10.44."), "{words}");
        let fix = fault["fix"].as_str().unwrap().replace("sudo ", "");
        run(m.host(), "sh", &["-c", &fix]);
        wait_until(PATIENCE, "both are reached", || passes() == [true; 2]);
        wait_until(PATIENCE, "no fault", || named().is_empty());
        net.finish();
    });
}
