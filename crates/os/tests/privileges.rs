//! What is left after privileges are dropped. A program of one thread, because the rights belong to
//! threads, and in a namespace of its own.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panic")]
#![allow(unsafe_code, reason = "moves and disarms this process")]

use std::fs;

use weft_os::netlink::{Netlink, NetlinkError};
use weft_os::netns::{self, NamespaceError, NetNs};
use weft_os::process::{
    drop_privileges_to_net_admin, drop_privileges_to_net_admin_and_nice, give_up_nice, has_net_admin,
};
use weft_os::test_support;
use weft_os::tun::{Tun, TunError, TunOptions};
use weft_os::udp::{BindError, BindOptions, UdpSocket};

fn main() {
    if !test_support::require_namespaces() {
        return;
    }
    netns::enter().unwrap();
    // SAFETY: no pointers are passed.
    assert_eq!(unsafe { libc::unshare(libc::CLONE_NEWNET) }, 0);
    assert!(has_net_admin());

    let only_net_admin = "0000000000001000";
    drop_privileges_to_net_admin_and_nice().unwrap();
    let net_admin_and_nice = "0000000000801000";
    for (name, value) in [
        ("CapInh", "0000000000000000"),
        ("CapPrm", net_admin_and_nice),
        ("CapEff", net_admin_and_nice),
        ("CapBnd", only_net_admin),
        ("NoNewPrivs", "1"),
    ] {
        assert_eq!(status(name), value, "{name}");
    }
    give_up_nice().unwrap();
    assert_eq!([status("CapPrm"), status("CapEff")], [only_net_admin; 2]);

    drop_privileges_to_net_admin().unwrap();
    assert!(has_net_admin());
    for (name, value) in [
        ("CapInh", "0000000000000000"),
        ("CapPrm", only_net_admin),
        ("CapEff", only_net_admin),
        ("CapBnd", only_net_admin),
        ("CapAmb", "0000000000000000"),
        ("NoNewPrivs", "1"),
    ] {
        assert_eq!(status(name), value, "{name}");
    }
    let mut netlink = Netlink::open().unwrap();
    let loopback = netlink.interface("lo").unwrap().index;
    netlink.set_up(loopback).unwrap();
    tun_is(Result::is_ok);
    assert!(matches!(NetNs::new(), Err(NamespaceError::Forbidden(_))));
    let privileged = "127.0.0.1:80".parse().unwrap();
    let refused = UdpSocket::bind(privileged, BindOptions::default());
    assert!(matches!(refused, Err(BindError::Permission(address)) if address == privileged));

    drop_privileges_to_net_admin().unwrap();
    drop_all();
    assert!(!has_net_admin());
    tun_is(|result| matches!(result, Err(TunError::MissingCapability)));
    let mut netlink = Netlink::open().unwrap();
    assert!(matches!(
        netlink.set_down(loopback),
        Err(NetlinkError::Permission { .. })
    ));
    // Whoever has nothing to lose may still call it.
    drop_privileges_to_net_admin().unwrap();
}

/// Checks what making a TUN interface gives, where the device file can be opened at all.
fn tun_is(expected: impl Fn(&Result<Tun, TunError>) -> bool) {
    match Tun::create("weft0", TunOptions::default()) {
        Err(why @ (TunError::NoDevice | TunError::DevicePermission)) => test_support::skip(&why),
        result => assert!(expected(&result), "{result:?}"),
    }
}

fn status(name: &str) -> String {
    let text = fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap().trim().to_owned()
}

fn drop_all() {
    let header = [0x2008_0522_u32, 0];
    let none = [0_u32; 6];
    // SAFETY: for this version the kernel reads two words of header and six of sets.
    let result = unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), none.as_ptr()) };
    assert_eq!(result, 0);
}
