//! What the system and the network tell of an address that does not answer.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panic")]

use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

use weft_os::netlink::{InterfaceAddress, Netlink, VethEnd};
use weft_os::netns::NetNs;
use weft_os::test_support::in_namespaces;
use weft_os::udp::{Finding, Inquiry};

const MINUTE: Duration = Duration::from_secs(60);

/// What is found within a minute.
fn find(to: SocketAddr) -> Option<Finding> {
    let inquiry = match Inquiry::start(to) {
        Ok(inquiry) => inquiry,
        Err(finding) => return finding,
    };
    let end = Instant::now() + MINUTE;
    loop {
        let late = Instant::now() >= end;
        let finding = inquiry.finding();
        if finding.is_some() || late {
            return finding;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn at(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

#[test]
fn closed_ports_missing_hosts_and_missing_routes_are_told_apart() {
    in_namespaces(|| {
        let (here, there) = (NetNs::new().unwrap(), NetNs::new().unwrap());
        here.run(|| {
            let mut netlink = Netlink::open().unwrap();
            let far = VethEnd {
                name: "b",
                namespace: Some(there.as_fd()),
            };
            let near = VethEnd {
                name: "a",
                namespace: None,
            };
            netlink.create_veth(near, far).unwrap();
            set_up(&mut netlink, "a", "192.0.2.1");
            // The kernel gives a neighbour up after three queries, a second apart. A user namespace
            // lacks the setting.
            let _ = std::fs::write("/proc/sys/net/ipv4/neigh/a/retrans_time_ms", "50");
            there
                .run(|| set_up(&mut Netlink::open().unwrap(), "b", "192.0.2.2"))
                .unwrap();
            assert_eq!(find(at("192.0.2.2:2121")), Some(Finding::Refused));
            assert_eq!(find(at("192.0.2.9:2121")), Some(Finding::NoHost));
            assert_eq!(find(at("198.51.100.1:2121")), Some(Finding::NoRoute));
            assert_eq!(find(at("[2001:db8::1]:2121")), Some(Finding::NoRoute));
        })
        .unwrap();
    });
}

fn set_up(netlink: &mut Netlink, name: &str, address: &str) {
    let index = netlink.interface(name).unwrap().index;
    netlink
        .add_address(InterfaceAddress {
            index,
            address: address.parse().unwrap(),
            prefix_len: 24,
        })
        .unwrap();
    netlink.set_up(index).unwrap();
}

#[test]
fn an_own_address_is_its_own_source_and_arrivals_find_no_fault() {
    in_namespaces(|| {
        NetNs::new()
            .unwrap()
            .run(|| {
                for ip in ["127.0.0.1", "[::1]"] {
                    let listener = UdpSocket::bind(format!("{ip}:0")).unwrap();
                    listener.set_read_timeout(Some(MINUTE)).unwrap();
                    let to = listener.local_addr().unwrap();
                    let inquiry = Inquiry::start(to).unwrap();
                    assert_eq!(listener.recv(&mut [0; 9]).unwrap(), 0, "an empty datagram");
                    assert_eq!(inquiry.finding(), None);
                    assert_eq!(inquiry.source(), Some(to.ip()));
                    drop(listener);
                    assert_eq!(find(to), Some(Finding::Refused));
                }
            })
            .unwrap();
    });
}
