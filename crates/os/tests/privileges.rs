//! The rights that remain after privileges are dropped. A program of one thread, because rights
//! belong to threads, and in a namespace of its own.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panic")]
#![allow(unsafe_code, reason = "moves and disarms this process")]

use std::fs::{self, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketType, socket};
use rustix::process::{DumpableBehavior, dumpable_behavior};
use weft_os::netlink::{Netlink, NetlinkError};
use weft_os::netns::{self, NamespaceError, NetNs};
use weft_os::process::{
    Access, Part, Rights, UserChange, drop_all_privileges, drop_privileges_to_net_admin, give_up_nice, has_net_admin,
    service_user,
};
use weft_os::test_support;
use weft_os::udp::{BindError, BindOptions, UdpSocket};

const NET_ADMIN: &str = "0000000000001000";
const NET_ADMIN_AND_NICE: &str = "0000000000801000";
const NONE: &str = "0000000000000000";

fn main() {
    // The test runs itself, to check that a program gets no rights.
    if std::env::args().any(|argument| argument == "--as-child") {
        return check_standing(&child_user(), NONE);
    }
    if !test_support::require_namespaces() {
        return;
    }
    netns::enter().unwrap();
    // SAFETY: no pointers are passed.
    assert_eq!(unsafe { libc::unshare(libc::CLONE_NEWNET) }, 0);
    assert!(has_net_admin());

    let state = tempfile::tempdir().unwrap();
    let user = service_user().unwrap();
    if let UserChange::Impossible(why) = &user {
        test_support::skip(format!("other users of the host: {why}"));
    }
    if let Some(ids) = user.ids() {
        chown(state.path(), Some(ids.uid), Some(ids.gid)).unwrap();
    }
    let secret = state.path().with_extension("secret");
    fs::write(&secret, "root's").unwrap();
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
    std::env::set_current_dir(state.path()).unwrap();
    let rights = Rights {
        net_admin: true,
        nice: true,
        user: user.ids(),
        files: Some(&[(Path::new("."), Access::Keep)]),
        filter: true,
        packet_filter: false,
    };
    let confinement = rights.confine().unwrap();
    assert_eq!(confinement.seccomp, Part::Active);
    if let Part::Missing(why) = &confinement.landlock {
        test_support::skip(format!("Landlock: {why}"));
    }
    check_standing(&user, NET_ADMIN_AND_NICE);
    give_up_nice().unwrap();
    check_standing(&user, NET_ADMIN);
    check_reach(&confinement.landlock, &user, &secret);
    use_features();
    check_standing(&user, NET_ADMIN);
    check_reach(&confinement.landlock, &user, &secret);
    std::thread::spawn(move || check_standing(&user, NET_ADMIN))
        .join()
        .unwrap();

    let mut netlink = Netlink::open().unwrap();
    let loopback = netlink.interface("lo").unwrap().index;
    drop_all_privileges().unwrap();
    assert!(!has_net_admin());
    assert!(matches!(
        Netlink::open().unwrap().set_down(loopback),
        Err(NetlinkError::Permission { .. })
    ));
    // A process without privileges may still call it.
    drop_privileges_to_net_admin().unwrap();
}

/// Checks the state of every thread of this process in `/proc`: no uid 0 if another user is
/// available, these capabilities, and no possibility to regain others.
fn check_standing(user: &UserChange, capabilities: &str) {
    for task in fs::read_dir("/proc/self/task").unwrap() {
        let text = fs::read_to_string(task.unwrap().path().join("status")).unwrap();
        let field = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            line.unwrap().split_whitespace().collect::<Vec<_>>().join(" ")
        };
        for (name, value) in [
            ("CapInh", NONE),
            ("CapPrm", capabilities),
            ("CapEff", capabilities),
            ("CapBnd", NONE),
            ("CapAmb", NONE),
            ("NoNewPrivs", "1"),
            ("Seccomp", "2"),
        ] {
            assert_eq!(field(name), value, "{name}");
        }
        if let Some(ids) = user.ids() {
            assert_eq!(field("Uid"), vec![ids.uid.to_string(); 4].join(" "));
            assert_eq!(field("Gid"), vec![ids.gid.to_string(); 4].join(" "));
            assert_eq!(field("Groups"), "");
        }
    }
    let limits = fs::read_to_string("/proc/self/limits").unwrap();
    let core = limits
        .lines()
        .find(|line| line.starts_with("Max core file size"))
        .unwrap();
    assert_eq!(core.split_whitespace().collect::<Vec<_>>()[4..6], ["0", "0"]);
}

/// Checks which parts of the system are inaccessible.
fn check_reach(landlock: &Part, user: &UserChange, secret: &Path) {
    assert_eq!(
        dumpable_behavior(),
        Ok(DumpableBehavior::NotDumpable),
        "core dumps are off"
    );
    let refused = |result: std::io::Result<()>| result.unwrap_err().kind() == ErrorKind::PermissionDenied;
    let append = |path: &str| OpenOptions::new().append(true).open(path).map(drop);
    if *landlock == Part::Active || user.ids().is_some() {
        assert!(refused(fs::read("/etc/shadow").map(drop)));
        assert!(refused(append("/etc/passwd")));
        assert!(refused(append("/proc/sys/kernel/core_pattern")));
        assert!(refused(fs::write(secret, "ours")));
        assert!(refused(fs::read(secret).map(drop)));
    }
    if *landlock == Part::Active {
        assert!(
            refused(fs::read("/etc/passwd").map(drop)),
            "no file of the system but those listed"
        );
        assert!(refused(fs::write("/tmp/weft-was-here", "")));
        assert!(refused(append("/proc/sys/net/ipv4/ip_forward")));
    }
    assert!(matches!(NetNs::new(), Err(NamespaceError::Forbidden(_))));
    let privileged = "127.0.0.1:80".parse().unwrap();
    let bound = UdpSocket::bind(privileged, BindOptions::default());
    assert!(matches!(bound, Err(BindError::Permission(address)) if address == privileged));
    let calls: [(&str, i64, i64); 4] = [
        ("ptrace", libc::SYS_ptrace, 0),
        ("bpf", libc::SYS_bpf, 0),
        ("add_key", libc::SYS_add_key, 0),
        ("io_uring_setup", libc::SYS_io_uring_setup, 1),
    ];
    for (name, number, argument) in calls {
        // SAFETY: the filter refuses the calls before they read any argument.
        let done = unsafe { libc::syscall(number, argument, 0_u64, 0_u64, 0_u64, 0_u64) };
        assert_eq!(
            (done, std::io::Error::last_os_error().raw_os_error()),
            (-1, Some(libc::EPERM)),
            "{name}"
        );
    }
    let raw = socket(AddressFamily::PACKET, SocketType::RAW, None);
    assert_eq!(raw.unwrap_err(), Errno::AFNOSUPPORT);
}

/// Uses what a daemon needs after it dropped its rights: netlink, threads, files of its own,
/// programs.
fn use_features() {
    let mut netlink = Netlink::open().unwrap();
    let loopback = netlink.interface("lo").unwrap().index;
    netlink.set_up(loopback).unwrap();
    UdpSocket::bind("127.0.0.1:0".parse().unwrap(), BindOptions::default()).unwrap();
    fs::write("peers.json.new", "{}").unwrap();
    fs::rename("peers.json.new", "peers.json").unwrap();
    fs::rename("peers.json", "peers.json.bad").unwrap();
    drop(std::os::unix::net::UnixListener::bind("control.sock").unwrap());
    for file in ["control.sock", "peers.json.bad"] {
        fs::remove_file(file).unwrap();
    }
    std::thread::spawn(weft_os::process::usage).join().unwrap().unwrap();
    let mut child = Command::new("/proc/self/exe");
    child.arg("--as-child").stdin(Stdio::null());
    assert!(child.status().unwrap().success(), "a program runs, and has no rights");
}

fn child_user() -> UserChange {
    let text = fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("Uid:")).unwrap();
    let uid: u32 = line.split_whitespace().next().unwrap().parse().unwrap();
    match uid {
        0 => UserChange::Impossible(String::new()),
        uid => UserChange::NotRoot(uid),
    }
}
