//! What exits change on a host, with the real kernel and the real nft(8), and that all of it is put
//! back.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panic")]

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use weft_host::exit::host::Host;
use weft_host::exit::rules::{CLOSED, SERVE, USE};
use weft_host::exit::{Ends, ServeExit, UseExit};
use weft_os::netlink::{InterfaceAddress, Netlink, Route};
use weft_os::netns::NetNs;
use weft_os::test_support::{in_namespaces, require_nft};

/// What a command prints.
fn printed(command: &[&str]) -> String {
    let output = Command::new(command[0]).args(&command[1..]).output().unwrap();
    assert!(output.status.success(), "{command:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Everything of the host that exits may change.
fn state() -> Vec<String> {
    let mut state: Vec<_> = [
        &["nft", "--stateless", "list", "ruleset"][..],
        &["ip", "rule"],
        &["ip", "-6", "rule"],
        &["ip", "route", "show", "table", "all"],
        &["ip", "-6", "route", "show", "table", "all"],
    ]
    .map(printed)
    .to_vec();
    let mut directories = vec![Path::new("/proc/sys/net/ipv4").to_owned(), "/proc/sys/net/ipv6".into()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(&directory).into_iter().flatten() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                directories.push(path);
            } else if let Ok(text) = fs::read_to_string(&path) {
                state.push(format!("{}={text}", path.display()));
            }
        }
    }
    state[5..].sort();
    for routes in &mut state[3..5] {
        // The system gives interfaces these addresses when it likes.
        let lines: Vec<_> = routes.lines().filter(|line| !line.contains("fe80:")).collect();
        *routes = lines.join("\n");
    }
    state
}

const MINUTE: Duration = Duration::from_secs(60);

/// [`state`] once the kernel has finished what was ordered before: it sets routes of addresses, and
/// what follows from a cable that is plugged in, after the order has returned.
fn settled() -> Vec<String> {
    let end = Instant::now() + MINUTE;
    let mut last = state();
    loop {
        let late = Instant::now() >= end;
        std::thread::sleep(Duration::from_millis(100));
        let now = state();
        if now == last {
            return now;
        }
        assert!(!late, "the host's state does not settle within a minute");
        last = now;
    }
}

/// Waits until the host's state is that of `before` again. If it never is, fails with the lines that
/// differ.
fn assert_put_back(before: &[String]) {
    let end = Instant::now() + MINUTE;
    loop {
        let late = Instant::now() >= end;
        let now = state();
        if late || now == before {
            return assert_same(before, &now);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Fails with the lines that differ.
fn assert_same(before: &[String], after: &[String]) {
    let differ: Vec<_> = before
        .iter()
        .zip(after)
        .filter(|(before, after)| before != after)
        .collect();
    assert!(differ.is_empty() && before.len() == after.len(), "{differ:#?}");
}

/// Runs on a host with `eth0`, which leads to the Internet, and `weft0`.
fn on_host(work: impl FnOnce(u32, &tokio::runtime::Runtime) + Send) {
    if !require_nft() {
        return;
    }
    let namespace = NetNs::new().unwrap();
    namespace
        .run(|| {
            let mut netlink = Netlink::open().unwrap();
            for name in ["eth0", "weft0"] {
                let end = format!("{name}-end");
                printed(&["ip", "link", "add", name, "type", "veth", "peer", "name", &end]);
                printed(&["ip", "link", "set", &end, "up"]);
                printed(&["ip", "link", "set", name, "up"]);
            }
            let eth0 = netlink.interface("eth0").unwrap().index;
            netlink
                .add_address(InterfaceAddress {
                    index: eth0,
                    address: "192.168.1.2".parse().unwrap(),
                    prefix_len: 24,
                })
                .unwrap();
            let gateway = "192.168.1.1".parse().unwrap();
            netlink
                .add_route(Route::via("0.0.0.0".parse().unwrap(), 0, gateway))
                .unwrap();
            printed(&["ip", "address", "add", "10.44.0.7/32", "dev", "weft0"]);
            printed(&["ip", "-6", "address", "add", "2001:db8::2/64", "dev", "eth0", "nodad"]);
            printed(&["ip", "-6", "address", "add", "fd00::7/128", "dev", "weft0", "nodad"]);
            printed(&["ip", "-6", "route", "add", "fd00::/8", "dev", "weft0"]);
            printed(&["ip", "-6", "route", "add", "default", "via", "2001:db8::1"]);
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            work(netlink.interface("weft0").unwrap().index, &runtime);
        })
        .unwrap();
}

/// The interface by which a packet leaves, or the error.
fn way(address: &str, mark: &str) -> String {
    way_of(&[address, "mark", mark])
}

/// The interface by which a datagram to this port leaves.
fn way_to_port(address: &str, port: &str) -> String {
    way_of(&[address, "ipproto", "udp", "dport", port])
}

fn way_of(packet: &[&str]) -> String {
    let output = Command::new("ip").args(["route", "get"]).args(packet).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let interface = text
        .split_once(" dev ")
        .map(|(_, rest)| rest.split(' ').next().unwrap().to_owned());
    interface.unwrap_or_else(|| "none".to_owned())
}

const MARKED: &str = "0x2000000";

#[test]
fn using_an_exit_leads_packets_there_and_is_put_back() {
    in_namespaces(|| {
        on_host(|weft0, runtime| {
            let before = settled();
            let mut host = Host::new(weft0);
            for bits in 0..32 {
                let [ipv4, ipv6, strict, lan, inbound] = [1, 2, 4, 8, 16].map(|bit| bits & bit != 0);
                let ends = Ends {
                    own: "10.44.0.7".parse().unwrap(),
                    exit: "10.44.0.9".parse().unwrap(),
                };
                let ends6 = Ends {
                    own: "fd00::7".parse().unwrap(),
                    exit: "fd00::9".parse().unwrap(),
                };
                let exit = UseExit {
                    ipv4,
                    ipv6,
                    strict,
                    lan,
                    inbound,
                    direct: false,
                    ends: (bits % 3 != 0).then_some(ends),
                    ends6: Some(ends6),
                };
                runtime.block_on(host.use_exit(&exit)).unwrap();
                // Twice is once.
                let first = state();
                runtime.block_on(host.use_exit(&exit)).unwrap();
                assert_same(&first, &state());
                // What the exit does not carry leads there, too: nft says no at once.
                assert_eq!(way("198.51.100.1", "0"), "weft0", "{exit:?}");
                assert_eq!(way("2001:db8:5::1", "0"), "weft0", "{exit:?}");
                assert_eq!(way("198.51.100.1", MARKED), "eth0");
                assert_eq!(way("2001:db8:5::1", MARKED), "eth0");
                // A network of this node, whatever the exit carries.
                assert_eq!(way("fd00::9", "0"), "weft0");
                // Rules for routes alone keep packets from local networks, and queries for names.
                assert_eq!(way("192.168.1.9", "0"), if lan { "eth0" } else { "weft0" }, "{exit:?}");
                assert_eq!(way_to_port("192.168.1.9", "53"), "weft0", "{exit:?}");
                assert_eq!(way_to_port("192.168.1.9", "67"), "eth0", "{exit:?}");
                // A route that a router has set (RFC 3442) takes nothing away from the exit. Gateways are found.
                printed(&["ip", "route", "add", "198.51.100.0/24", "via", "192.168.1.1"]);
                assert_eq!(way("198.51.100.1", MARKED), "eth0", "{exit:?}");
                if strict || !lan {
                    assert_eq!(way("198.51.100.1", "0"), "weft0", "{exit:?}");
                }
                printed(&["ip", "route", "delete", "198.51.100.0/24"]);
                let tables = printed(&["nft", "list", "ruleset"]);
                assert!(
                    tables.contains("chain output") && tables.contains("chain wall"),
                    "{tables}"
                );
                if bits % 3 == 0 {
                    runtime.block_on(host.leave_exit(true)).unwrap();
                    assert_put_back(&before);
                }
            }
            runtime.block_on(host.leave_exit(true)).unwrap();
            assert_put_back(&before);
            runtime.block_on(host.leave_exit(true)).unwrap();
            assert_put_back(&before);
        });
    });
}

#[test]
fn an_exit_that_is_not_reached_keeps_inner_sources_in_alone() {
    in_namespaces(|| {
        on_host(|weft0, runtime| {
            let before = settled();
            let mut host = Host::new(weft0);
            let by_exit = UseExit {
                ipv4: true,
                ipv6: true,
                ends: Some(Ends {
                    own: "10.44.0.7".parse().unwrap(),
                    exit: "10.44.0.9".parse().unwrap(),
                }),
                ..UseExit::default()
            };
            let direct = UseExit {
                ipv4: false,
                ipv6: false,
                direct: true,
                ..by_exit
            };
            runtime.block_on(host.use_exit(&by_exit)).unwrap();
            let with = settled();
            let error_from = |source: &str, to: &str| {
                let socket = std::net::UdpSocket::bind(source).unwrap();
                socket.send_to(b"x", to).err()
            };
            for _ in 0..2 {
                runtime.block_on(host.use_exit(&direct)).unwrap();
                assert_eq!(way("198.51.100.1", "0"), "eth0");
                assert_eq!(way("2001:db8:5::1", "0"), "eth0");
                for (source, to) in [
                    ("10.44.0.7:0", "198.51.100.1:9"),
                    ("[fd00::7]:0", "[2001:db8:5::1]:9"),
                    // A route through another interface, to an address of the mesh.
                    ("10.44.0.7:0", "192.168.1.9:9"),
                ] {
                    assert!(error_from(source, to).is_some(), "{source} to {to}");
                }
                assert!(error_from("192.168.1.2:0", "198.51.100.1:9").is_none());
                assert!(error_from("[fd00::7]:0", "[fd00::9]:9").is_none(), "a member");
                // The settings are as before, and no rule for routes is left.
                assert_same(&before[1..], &settled()[1..]);
                printed(&["nft", "delete", "table", "inet", "weft"]);
                assert!(runtime.block_on(host.mend()).unwrap().is_some());
                assert!(
                    error_from("10.44.0.7:0", "198.51.100.1:9").is_some(),
                    "it is set up again"
                );
                assert_eq!(runtime.block_on(host.mend()).unwrap(), None);
                runtime.block_on(host.use_exit(&by_exit)).unwrap();
                assert_same(&with, &settled());
            }
            runtime.block_on(host.use_exit(&direct)).unwrap();
            runtime.block_on(host.leave_exit(false)).unwrap();
            assert_put_back(&before);
        });
    });
}

#[test]
fn ipv6_stays_in_where_the_interface_has_none() {
    in_namespaces(|| {
        on_host(|weft0, runtime| {
            printed(&["sysctl", "-qw", "net.ipv6.conf.weft0.disable_ipv6=1"]);
            let mut host = Host::new(weft0);
            for strict in [false, true] {
                let exit = UseExit {
                    ipv4: true,
                    strict,
                    ..UseExit::default()
                };
                runtime.block_on(host.use_exit(&exit)).unwrap();
                assert_eq!(way("198.51.100.1", "0"), "weft0");
                assert_eq!(way("2001:db8:5::1", "0"), "none", "strict: {strict}");
                assert_eq!(runtime.block_on(host.mend()).unwrap(), None, "nothing is missing");
            }
            printed(&["sysctl", "-qw", "net.ipv6.conf.weft0.disable_ipv6=0"]);
            printed(&["ip", "-6", "address", "add", "fd00::7/128", "dev", "weft0", "nodad"]);
            runtime.block_on(host.mend()).unwrap();
            assert_eq!(way("2001:db8:5::1", "0"), "weft0", "it has IPv6 again");
            runtime.block_on(host.leave_exit(true)).unwrap();
            assert_eq!(way("2001:db8:5::1", "0"), "eth0");
        });
    });
}

#[test]
fn a_route_of_others_in_the_table_takes_no_other_one_away() {
    in_namespaces(|| {
        on_host(|weft0, runtime| {
            let mut host = Host::new(weft0);
            let exit = UseExit {
                ipv4: true,
                ipv6: true,
                ends: Some(Ends {
                    own: "10.44.0.7".parse().unwrap(),
                    exit: "10.44.0.9".parse().unwrap(),
                }),
                ..UseExit::default()
            };
            runtime.block_on(host.use_exit(&exit)).unwrap();
            let whole = settled();
            let other = ["default", "via", "192.168.1.1", "dev", "eth0", "table", "30565"];
            printed(&[&["ip", "route", "replace"], &other[..]].concat());
            for _ in 0..2 {
                runtime.block_on(host.mend()).unwrap_err();
                assert_eq!(way("198.51.100.1", "0"), "eth0", "it stays");
                assert_eq!(way("2001:db8:5::1", "0"), "weft0");
            }
            printed(&[&["ip", "route", "delete"], &other[..]].concat());
            assert!(runtime.block_on(host.mend()).unwrap().is_some());
            assert_put_back(&whole);
            assert_eq!(runtime.block_on(host.mend()).unwrap(), None);
        });
    });
}

/// The state but for forwarding, and for what the kernel and weft change with it: both stay.
fn but_forwarding(mut state: Vec<String>) -> Vec<String> {
    if let Some(at) = state[0].find(&format!("table ip {CLOSED}")) {
        state[0].truncate(at);
    }
    for routes in &mut state[3..5] {
        let lines: Vec<_> = routes.lines().filter(|route| !route.starts_with("anycast")).collect();
        *routes = lines.join("\n");
    }
    let settings = ["/ip_forward=", "/forwarding=", "/accept_ra=", "/accept_redirects="];
    state.retain(|line| !settings.iter().any(|setting| line.contains(setting)));
    state
}

#[test]
fn an_exit_forwards_and_all_but_that_is_put_back() {
    in_namespaces(|| {
        on_host(|weft0, runtime| {
            for was_on in [true, false] {
                // An interface of its own settings.
                fs::write("/proc/sys/net/ipv4/conf/eth0/accept_redirects", "0").unwrap();
                let forwarding = if was_on { "1" } else { "0" };
                fs::write("/proc/sys/net/ipv4/ip_forward", forwarding).unwrap();
                fs::write("/proc/sys/net/ipv6/conf/all/forwarding", forwarding).unwrap();
                fs::write("/proc/sys/net/ipv6/conf/eth0/accept_ra", if was_on { "2" } else { "1" }).unwrap();
                let before = settled();
                let mut host = Host::new(weft0);
                for bits in 0..4 {
                    let exit = ServeExit {
                        ipv4: bits & 1 != 0,
                        ipv6: bits & 2 != 0,
                        lans: vec!["192.168.1.0/24".parse().unwrap(), "fd12::/64".parse().unwrap()],
                    };
                    runtime.block_on(host.serve_exit(&exit)).unwrap();
                    let first = state();
                    runtime.block_on(host.serve_exit(&exit)).unwrap();
                    assert_same(&first, &state());
                    let on = |path: &str| fs::read_to_string(format!("/proc/sys/net/{path}")).unwrap().trim() == "1";
                    assert!(on("ipv4/ip_forward") || !exit.ipv4);
                    assert!(on("ipv6/conf/all/forwarding") || !exit.ipv6);
                    assert!(
                        !on("ipv6/conf/eth0/accept_ra") || !exit.ipv6,
                        "it would lose its routes"
                    );
                }
                let with = settled();
                runtime.block_on(host.stop_serving()).unwrap();
                let after = settled();
                assert_same(&but_forwarding(before), &but_forwarding(after.clone()));
                // Forwarding stays as it was while the exit served, and closed where it was not on.
                assert_same(&with[5..], &after[5..]);
                for table in [format!("table ip {CLOSED}"), format!("table ip6 {CLOSED}")] {
                    assert_eq!(after[0].contains(&table), !was_on, "{}", after[0]);
                }
                runtime.block_on(host.end());
                assert_put_back(&after);
            }
        });
    });
}

#[test]
fn settings_left_by_a_killed_process_are_restored_by_the_next() {
    in_namespaces(|| {
        on_host(|weft0, runtime| {
            fs::write("/proc/sys/net/ipv4/ip_forward", "1").unwrap();
            fs::write("/proc/sys/net/ipv6/conf/all/forwarding", "1").unwrap();
            let before = settled();
            let strict = UseExit {
                ipv4: true,
                strict: true,
                ..UseExit::default()
            };
            let serve = ServeExit {
                ipv4: true,
                ipv6: true,
                ..ServeExit::default()
            };
            let mut killed = Host::new(weft0);
            runtime.block_on(killed.use_exit(&strict)).unwrap();
            runtime.block_on(killed.serve_exit(&serve)).unwrap();
            // With the same orders, as after a restart, the former values are those from before.
            let mut next = Host::new(weft0);
            runtime.block_on(next.use_exit(&strict)).unwrap();
            runtime.block_on(next.serve_exit(&serve)).unwrap();
            let mut last = Host::new(weft0);
            runtime.block_on(last.leave_exit(true)).unwrap();
            runtime.block_on(last.stop_serving()).unwrap();
            assert_put_back(&before);

            // The end of a daemon that was killed opens nothing that is strict.
            let mut host = Host::new(weft0);
            runtime.block_on(host.use_exit(&strict)).unwrap();
            runtime.block_on(host.serve_exit(&serve)).unwrap();
            runtime.block_on(host.end());
            let tables = printed(&["nft", "list", "ruleset"]);
            assert!(
                tables.contains(&format!("table inet {USE} {{")) && !tables.contains(SERVE),
                "{tables}"
            );
            assert_eq!(way("198.51.100.1", "0"), "weft0");
            printed(&["ip", "link", "delete", "weft0"]);
            assert_eq!(way("198.51.100.1", "0"), "none");
            runtime.block_on(host.leave_exit(true)).unwrap();
            assert_eq!(way("198.51.100.1", "0"), "eth0");
        });
    });
}

#[test]
fn a_failure_changes_nothing() {
    in_namespaces(|| {
        on_host(|weft0, runtime| {
            let before = settled();
            let mut host = Host::new(999);
            let error = runtime.block_on(host.use_exit(&UseExit::default())).unwrap_err();
            assert_eq!(error.to_string(), "the interface of weft cannot be named in rules");
            runtime.block_on(host.serve_exit(&ServeExit::default())).unwrap_err();
            assert_same(&before, &state());

            // What is closed stays closed, whatever fails later.
            let strict = UseExit {
                strict: true,
                ..UseExit::default()
            };
            runtime.block_on(Host::new(weft0).use_exit(&strict)).unwrap();
            runtime.block_on(host.use_exit(&strict)).unwrap_err();
            runtime.block_on(host.end());
            assert!(printed(&["nft", "list", "ruleset"]).contains("chain output"));
            runtime.block_on(host.leave_exit(true)).unwrap();
            assert_put_back(&before);
        });
    });
}
