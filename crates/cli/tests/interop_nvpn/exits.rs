//! Exits of either kind.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use weft_lab::host::Host;
use weft_lab::traffic::{PingOptions, Pinger, ping};

use crate::common::{MINUTE, wait_until};
use crate::device::binary;
use crate::network::{Net, done};

fn answers(from: &Host, to: Ipv4Addr) -> bool {
    let report = ping(from, IpAddr::V4(to), 1, Duration::from_millis(50)).unwrap();
    report.received == 1
}

/// A host beyond `host`, which alone has a cable to it and its default route there.
fn beyond(net: &Net, host: &Host, name: &str, network: [u8; 3]) -> (Host, Ipv4Addr) {
    let far = net.world.host(name).unwrap();
    let [near_at, far_at] = [1, 80].map(|end| Ipv4Addr::new(network[0], network[1], network[2], end));
    let [near_cidr, far_cidr] = [near_at, far_at].map(|at| format!("{at}/24"));
    let link = net.world.link((host, &[&near_cidr]), (&far, &[&far_cidr]));
    link.unwrap();
    host.add_default_route(IpAddr::V4(far_at)).unwrap();
    (far, far_at)
}

#[test]
fn a_device_uses_a_weft_node_as_exit_and_the_reverse() {
    let Some(program) = binary() else { return };
    let net = Net::start(&program, 3_600);
    let [desk, nas] = &net.weft;
    let [phone, tablet] = &net.devices;
    let (_a, behind_desk) = beyond(&net, desk.host(), "behind-desk", [192, 0, 2]);
    let (_b, behind_tablet) = beyond(&net, &tablet.host, "behind-tablet", [198, 51, 100]);
    for host in [nas.host(), &phone.host] {
        // No router is there: only an exit leads on.
        host.add_default_route(IpAddr::V4(Ipv4Addr::new(10, 9, 0, 254)))
            .unwrap();
    }
    done(desk, &["set", "--advertise-exit"]);
    wait_until(MINUTE, "the exit is offered", || {
        done(desk, &["routes"]).contains("desk")
    });
    done(desk, &["route", "approve", "desk", "exit"]);
    phone.set(&["--exit-node", &desk.identity().npub]);
    phone.reload();
    println!("{}", done(desk, &["routes"]));
    wait_until(MINUTE, "the phone reaches what is behind the weft exit", || {
        answers(&phone.host, behind_desk)
    });

    tablet.set(&["--advertise-exit-node", "true"]);
    tablet.reload();
    wait_until(2 * MINUTE, "the device offers to be an exit", || {
        done(desk, &["routes"]).contains("tablet")
    });
    done(desk, &["route", "approve", "tablet", "exit"]);
    done(nas, &["set", "tun.exit_strict", "true"]);
    done(nas, &["set", "--exit", "tablet"]);
    wait_until(MINUTE, "the node reaches what is behind the device", || {
        answers(nas.host(), behind_tablet)
    });
}

/// A router is there, through which packets would leave without the exit.
#[test]
fn no_packet_leaves_beside_an_exit_that_is_gone() {
    let Some(program) = binary() else { return };
    let mut net = Net::start(&program, 3_600);
    let router = net.world.host("router").unwrap();
    net.ports.push(
        net.switch
            .connect(&router, &["10.9.0.254/24", "203.0.113.9/24"])
            .unwrap(),
    );
    let beside = Ipv4Addr::new(203, 0, 113, 9);
    let nas = &net.weft[1];
    nas.host()
        .add_default_route(IpAddr::V4(Ipv4Addr::new(10, 9, 0, 254)))
        .unwrap();
    assert!(answers(nas.host(), beside), "packets that leave are answered");

    let tablet = &net.devices[1];
    let (_far, behind) = beyond(&net, &tablet.host, "behind-tablet", [198, 51, 100]);
    tablet.set(&["--advertise-exit-node", "true"]);
    tablet.reload();
    wait_until(2 * MINUTE, "the device offers to be an exit", || {
        done(&net.weft[0], &["routes"]).contains("tablet")
    });
    done(&net.weft[0], &["route", "approve", "tablet", "exit"]);
    done(nas, &["set", "tun.exit_strict", "true"]);
    done(nas, &["set", "--exit", "tablet"]);
    wait_until(MINUTE, "the node reaches what is behind the device", || {
        answers(nas.host(), behind)
    });

    let pinger = |to| {
        let options = PingOptions {
            interval: Duration::from_millis(20),
            ..PingOptions::default()
        };
        Pinger::start(nas.host(), IpAddr::V4(to), options).unwrap()
    };
    let pingers = [beside, behind].map(pinger);
    for _ in 0..20 {
        assert!(answers(nas.host(), behind));
    }
    net.devices[1].kill();
    wait_until(MINUTE, "the node has no exit", || !answers(net.weft[1].host(), behind));
    std::thread::sleep(Duration::from_secs(30));
    let [left, served] = pingers.map(|pinger| pinger.stop().unwrap());
    assert!(served.received > 0);
    assert_eq!(left.received, 0, "of {} that were sent", left.sent);
}
