//! Containers and virtual machines of an exit's host, which another program starts before or after weft.

use weft_lab::host::Host;
use weft_os::test_support::require_nft;

use super::internet::{EXIT, Internet, TARGET, done, gateway, mirror, run, seen};
use crate::common::{PATIENCE, beside, wait_until};

/// What another program sets up for containers: forwarding, and rules for their addresses and a port.
const DOCKER: &str = "table ip d { \
    chain o { type nat hook postrouting priority srcnat; ip saddr 172.17.0.0/16 oifname eth0 masquerade; }; \
    chain i { type nat hook prerouting priority dstnat; fib daddr type local tcp dport 8080 dnat to 172.17.0.2:80; }; }";
/// What would make a router of the host, were it to forward for its neighbours.
const ROUTER: &str =
    "table ip r { chain o { type nat hook postrouting priority srcnat; ip saddr 192.168.9.0/24 masquerade; }; }";

fn start(nas: &Host) {
    run(nas, "sysctl", &["-qw", "net.ipv4.ip_forward=1"]);
    run(nas, "nft", &[DOCKER]);
}

fn forwards(nas: &Host) -> bool {
    run(nas, "sysctl", &["-n", "net.ipv4.ip_forward"]).trim() == "1"
}

/// Whether a container reaches the Internet, and is reached at its published port from there and by the exit.
fn is_whole(net: &Internet, container: &Host) -> bool {
    seen(container, TARGET).as_deref() == Some(EXIT) && seen(net.host("target"), "203.0.113.10:8080").is_some()
}

#[test]
fn containers_of_an_exit_keep_their_network() {
    beside(|| {
        if !require_nft() {
            return;
        }
        for first in [true, false] {
            let mut net = Internet::start(false);
            let link = |net: &Internet| net.container(&["172.17.0.1/16"], &["172.17.0.2/16"]);
            let before = first.then(|| link(&net));
            if first {
                start(net.nas.host());
            }
            let said = done(&net.nas, &["set", "--advertise-exit"]);
            assert!(
                said.contains("forwarding on where it is off, and it stays on"),
                "{said}"
            );
            net.approve();
            done(&net.laptop, &["set", "--exit", "nas"]);
            wait_until(PATIENCE, "packets leave by the exit", || net.passes());
            let (container, _link) = before.unwrap_or_else(|| link(&net));
            gateway(&container, &["172.17.0.1"]);
            mirror(&container, "172.17.0.2:80");
            if !first {
                start(net.nas.host());
            }
            run(net.nas.host(), "nft", &[ROUTER]);
            assert!(is_whole(&net, &container), "while the exit serves");
            // Members reach the published port as a port of the node, and the container not at all.
            let text = run(net.nas.host(), "ip", &["-4", "-o", "address", "show", "dev", "weft0"]);
            let mesh = text.split_whitespace().nth(3).unwrap().split('/').next().unwrap();
            let laptop = net.laptop.host();
            assert!(seen(laptop, &format!("{mesh}:8080")).is_some());
            run(laptop, "nft", &["flush", "chain", "inet", "weft", "output"]);
            assert_eq!(seen(laptop, "172.17.0.2:80"), None);
            let routes = |net: &Internet| seen(net.host("printer"), TARGET).is_some();
            assert_eq!(routes(&net), first, "for its neighbours it forwards as before");

            done(&net.nas, &["set", "--advertise-exit=false"]);
            wait_until(PATIENCE, "the exit ends", || !net.nas_serves("ipv4"));
            assert!(
                is_whole(&net, &container) && forwards(net.nas.host()),
                "without the exit"
            );
            net.approve();
            assert!(is_whole(&net, &container), "with it again");
            assert_eq!(net.nas.stop().unwrap().code(), Some(0));
            assert!(is_whole(&net, &container) && forwards(net.nas.host()), "without weft");
            assert_eq!(routes(&net), first);
            net.nas.restart().unwrap();
            net.nas.wait_ready(PATIENCE).unwrap();
            wait_until(PATIENCE, "packets leave by the exit again", || net.passes());
            assert!(is_whole(&net, &container), "after a restart");
            assert_eq!(routes(&net), first);
            drop(net.warnings());
        }
    });
}
