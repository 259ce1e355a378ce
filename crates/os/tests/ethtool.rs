//! Features of interfaces, and their effects.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panic")]

mod common;

use std::os::fd::AsFd as _;

use weft_os::ethtool::{EthtoolError, feature, set_feature};
use weft_os::netlink::VethEnd;
use weft_os::netns::NetNs;
use weft_os::test_support::in_namespaces;
use weft_os::udp::{BindOptions, Received, UdpSocket};

const UDP_SEGMENTATION: &str = "tx-udp-segmentation";

/// Two namespaces with a veth pair, 10.1.0.1 and 10.1.0.2.
fn cable() -> [NetNs; 2] {
    let ends = [NetNs::new().unwrap(), NetNs::new().unwrap()];
    let mut netlinks = ends.each_ref().map(|end| end.netlink().unwrap());
    let one = VethEnd {
        name: "cable",
        namespace: None,
    };
    let other = VethEnd {
        name: "cable",
        namespace: Some(ends[1].as_fd()),
    };
    netlinks[0].create_veth(one, other).unwrap();
    for (netlink, address) in netlinks.iter_mut().zip(["10.1.0.1/24", "10.1.0.2/24"]) {
        let index = netlink.interface("cable").unwrap().index;
        netlink.add_address(common::address(index, address)).unwrap();
        netlink.set_up(index).unwrap();
    }
    for netlink in &mut netlinks {
        netlink.wait_until_usable("cable").unwrap();
    }
    ends
}

#[test]
fn a_super_datagram_is_split_if_the_interface_cannot_take_it() {
    in_namespaces(|| {
        let [here, there] = cable();
        let socket = |end: &NetNs, address: &str| {
            let address = address.parse().unwrap();
            end.run(|| UdpSocket::bind(address, BindOptions::default()).unwrap())
                .unwrap()
        };
        let (from, to) = (socket(&here, "10.1.0.1:0"), socket(&there, "10.1.0.2:0"));
        let send = || -> Received {
            let sent = from.send(to.local_address(), &[7; 4000], Some(1000)).unwrap();
            assert_eq!((sent, from.gso()), (4000, true));
            common::wait_readable(&to);
            to.recv(&mut [0; 65_535]).unwrap()
        };
        let set = |end: &NetNs, name: &str, on| end.run(|| set_feature("cable", name, on).unwrap()).unwrap();
        let on = |end: &NetNs, name: &str| end.run(|| feature("cable", name).unwrap()).unwrap();

        assert!(on(&here, UDP_SEGMENTATION));
        assert_eq!(send().segments(), 4, "a cable hands it over whole");
        set(&here, UDP_SEGMENTATION, false);
        assert!(!on(&here, UDP_SEGMENTATION) && on(&there, UDP_SEGMENTATION));
        assert_eq!(send().segments(), 1, "and else in pieces");
        for _ in 1..4 {
            common::wait_readable(&to);
            assert_eq!(to.recv(&mut [0; 65_535]).unwrap().segments(), 1);
        }
        set(&here, UDP_SEGMENTATION, true);
        assert_eq!(send().segments(), 4);
        set(&there, "rx-gro", true);
        assert!(on(&there, "rx-gro"));
    });
}

#[test]
fn features_that_cannot_be_changed_are_an_error() {
    in_namespaces(|| {
        let [here, _there] = cable();
        let set = |interface: &'static str, name: &'static str, on| {
            here.run(move || set_feature(interface, name, on)).unwrap().unwrap_err()
        };
        let error = set("cable", "tx-everything", true);
        assert!(matches!(error, EthtoolError::NoFeature(name) if name == "tx-everything"));
        assert!(matches!(set("cable", "rx-fcs", true), EthtoolError::Fixed { .. }));
        assert!(matches!(set("gone", "rx-gro", true), EthtoolError::Refused { .. }));
        assert!(matches!(set("a/b", "rx-gro", true), EthtoolError::InvalidName(_)));
    });
}
