//! Shared parts of these tests.
#![allow(dead_code, reason = "each test uses a part")]

use std::os::fd::AsFd;
use std::time::Duration;

use weft_os::netlink::InterfaceAddress;
use weft_os::poll::{Events, Interest, Poller};
use weft_os::test_support;
use weft_os::tun::{Tun, TunError, TunOptions};

/// Waits until `fd` is readable, with a timeout that no test comes near.
pub(crate) fn wait_readable(fd: impl AsFd) {
    let (poller, mut events) = (Poller::new().unwrap(), Events::with_capacity(1));
    poller.add(fd, 0, Interest::Readable).unwrap();
    let ready = poller.wait(&mut events, Some(Duration::from_secs(60)));
    assert_eq!(ready.unwrap(), 1, "nothing to read");
}

/// Creates a TUN interface; returns `None`, and reports it, if the device file is not accessible.
pub(crate) fn tun(name: &str, options: TunOptions) -> Option<Tun> {
    match Tun::create(name, options) {
        Ok(tun) => Some(tun),
        Err(why @ (TunError::NoDevice | TunError::DevicePermission)) => {
            test_support::skip(&why);
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// `text` reads "10.0.0.1/24".
pub(crate) fn address(index: u32, text: &str) -> InterfaceAddress {
    let (ip, prefix) = text.split_once('/').unwrap();
    InterfaceAddress {
        index,
        address: ip.parse().unwrap(),
        prefix_len: prefix.parse().unwrap(),
    }
}
