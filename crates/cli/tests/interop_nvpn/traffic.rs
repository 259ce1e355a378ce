//! Packets between members of both kinds.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use weft_lab::nat::{NatBox, NatKind};
use weft_lab::traffic::{PingOptions, Pinger, transfer};

use crate::common::{MINUTE, wait_until};
use crate::device::binary;
use crate::network::{Net, address, assert_reaches, done, member};

/// Seconds between new keys in tests of something else.
const HOUR: u32 = 3_600;
const BYTES: u64 = 100_000_000;

/// All but those of the first weft node go through it.
#[test]
fn each_pair_exchanges_packets_and_whole_streams() {
    let Some(program) = binary() else { return };
    let net = Net::apart(&program, HOUR);
    // The first weft node is the only neighbour of each other one.
    for port in [1, 2, 3] {
        net.ports[port].isolate(true).unwrap();
    }
    net.admit();
    net.assert_all_reach();
    let members = net.members();
    for (from, to) in [(0, 2), (2, 0), (1, 3), (3, 1)] {
        let hosts = (members[from].0, members[to].0);
        let report = transfer(hosts, IpAddr::V4(members[to].1), BYTES, 7, MINUTE).unwrap();
        assert!(report.hash_ok);
        println!("{} to {}: {:.0} Mbit/s", hosts.0.name(), hosts.1.name(), report.mbit_s);
    }
    let shown = done(&net.weft[0], &["ping", "phone", "--count", "3"]);
    assert!(shown.contains("3 received"), "{shown}");
    for device in &net.devices {
        assert!(!device.log().contains("recovery rekey"), "{}", device.log());
    }
}

/// Nodes without a direct link reach each other through a daemon of nvpn.
#[test]
fn packets_pass_through_a_device() {
    let Some(program) = binary() else { return };
    let net = Net::start(&program, HOUR);
    let [phone, tablet] = &net.devices;
    let nas = &net.weft[1];
    tablet.dial(&[(&phone.key(), "10.9.0.3:51820")]);
    // The phone is the only neighbour of each other one.
    for port in [0, 1, 3] {
        net.ports[port].isolate(true).unwrap();
    }
    assert_reaches(nas.host(), tablet.address());
    assert_reaches(&tablet.host, address(nas));
    let hosts = (nas.host(), &tablet.host);
    let report = transfer(hosts, IpAddr::V4(tablet.address()), BYTES, 7, MINUTE).unwrap();
    assert!(report.hash_ok);
    println!("through a device: {:.0} Mbit/s", report.mbit_s);
}

/// How long the tests go on that watch for a while: ten minutes, unless `WEFT_NVPN_MINUTES` says otherwise.
fn watched() -> Duration {
    let minutes = std::env::var("WEFT_NVPN_MINUTES")
        .ok()
        .and_then(|text| text.parse().ok());
    Duration::from_secs(minutes.unwrap_or(10) * 60)
}

/// Without traffic.
#[test]
fn nodes_stay_online_for_a_device() {
    let Some(program) = binary() else { return };
    let net = Net::start(&program, HOUR);
    let (start, mut looks) = (Instant::now(), 0);
    while start.elapsed() < watched() {
        std::thread::sleep(Duration::from_secs(5));
        for device in &net.devices {
            assert_eq!(
                device.online(),
                3,
                "after {:?}\n{}",
                start.elapsed(),
                device.run(&["status"])
            );
        }
        looks += 1;
    }
    println!("all online in {looks} looks of {:?}", start.elapsed());
    net.assert_all_reach();
    for device in &net.devices {
        assert!(!device.log().contains("recovery rekey"), "{}", device.log());
    }
}

/// With new keys each minute.
#[test]
fn no_ping_is_lost_while_keys_change() {
    let Some(program) = binary() else { return };
    let count = watched().as_secs() * 5;
    let net = Net::start(&program, 60);
    net.assert_all_reach();
    let members = net.members();
    let start = |(from, to): (usize, usize)| {
        let options = PingOptions {
            count: Some(count),
            interval: Duration::from_millis(200),
            ..PingOptions::default()
        };
        let to: (_, _) = members[to];
        Pinger::start(members[from].0, IpAddr::V4(to.1), options).unwrap()
    };
    let pingers = [(0, 2), (2, 0), (1, 3), (3, 1)].map(start);
    for pinger in pingers {
        let report = pinger.join().unwrap();
        println!("{} of {} pings answered", report.received, report.sent);
        assert_eq!(report.received, report.sent);
    }
    for device in &net.devices {
        assert!(!device.log().contains("recovery rekey"), "{}", device.log());
        assert_eq!(device.online(), 3);
    }
}

#[test]
fn packets_pass_again_after_a_kill_at_either_end() {
    let Some(program) = binary() else { return };
    let mut net = Net::start(&program, HOUR);
    net.assert_all_reach();
    net.devices[0].restart();
    net.assert_all_reach();
    for number in [1, 0] {
        net.weft[number].kill().unwrap();
        net.weft[number].restart().unwrap();
        net.weft[number].wait_ready(MINUTE).unwrap();
        net.assert_all_reach();
    }
    wait_until(MINUTE, "the device is known again", || {
        net.weft.iter().all(|node| member(node, "phone")["nvpn"] == true)
    });
}

/// A weft node and a device behind NAT boxes, whose common neighbour is a weft node.
#[test]
fn packets_pass_between_homes_again_after_faults() {
    let Some(program) = binary() else { return };
    let mut net = Net::behind(&program, [NatKind::PortRestricted, NatKind::Symmetric]);
    net.assert_all_reach();
    let (nas, phone) = (address(&net.weft[1]), net.devices[0].address());
    let hosts = [net.weft[1].host().clone(), net.devices[0].host.clone()];
    let gap = |what: &str, fault: &mut dyn FnMut()| {
        let options = PingOptions {
            interval: Duration::from_millis(100),
            ..PingOptions::default()
        };
        let [there, back] = [(&hosts[0], phone), (&hosts[1], nas)]
            .map(|(from, to)| Pinger::start(from, IpAddr::V4(to), options).unwrap());
        std::thread::sleep(Duration::from_secs(2));
        fault();
        std::thread::sleep(Duration::from_secs(20));
        let gaps = [there, back].map(|pinger| pinger.stop().unwrap().longest_gap_ms);
        println!("{what}: {gaps:.0?} ms without an answer");
        gaps
    };
    let forgotten = gap("the NAT boxes forget all", &mut || {
        net.boxes.iter().for_each(NatBox::forget);
    });
    let killed = gap("the device is killed", &mut || net.devices[0].restart());
    let weft = gap("the weft node is killed", &mut || {
        net.weft[1].kill().unwrap();
        net.weft[1].restart().unwrap();
    });
    let moved = gap("both NAT boxes have another address", &mut || {
        for (nat, last) in net.boxes.iter().zip([12, 13]) {
            nat.reboot(Some((std::net::Ipv4Addr::new(10, 9, 0, last), 24)));
        }
    });
    for gaps in [forgotten, weft, moved] {
        assert!(gaps.iter().all(|gap| *gap < 5_000.0), "{gaps:?}");
    }
    // The daemon of nvpn needs some seconds until it dials.
    assert!(killed.iter().all(|gap| *gap < 15_000.0), "{killed:?}");
}
