//! The connections that the kernel tracks, and that have to begin anew when the way of packets changes: their addresses
//! were translated for the former way, and no rule sees them again.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::Path;

use weft_os::netlink::{Netlink, Tracked, forget_connections};
use weft_wire::Subnet;
use weft_wire::internet::is_of_internet;

use super::UseExit;
use super::around::Around;
use super::rules::{DNS, NAMES, is_lan};
use crate::flows::TRACKS;

/// Forgets the connections by an exit that were translated to these addresses of this node, as those of containers: the
/// next packet leaves under the address of its new way. The other end knows none of a TCP connection there, and resets it.
pub(super) fn forget_by_exit(own: &BTreeSet<IpAddr>, mesh: &BTreeSet<Subnet>) {
    if !own.is_empty() {
        forget(|tracked| is_by_exit(tracked, own, mesh));
    }
}

/// Forgets the connections that began before an exit was used and that it carries from now on: those of containers, and
/// queries for names.
pub(super) fn forget_before(exit: &UseExit, around: &Around) {
    let own: BTreeSet<IpAddr> = exit.own().collect();
    let addresses = Netlink::open().and_then(|mut netlink| netlink.all_addresses());
    let here: BTreeSet<IpAddr> = addresses.into_iter().flatten().map(|of| of.address).collect();
    let before = Before {
        exit,
        own: &own,
        around,
        here: &here,
    };
    forget(|tracked| before.contains(tracked));
}

/// Without connection tracking there is none to forget, and what the kernel keeps of one times out.
fn forget(condition: impl FnMut(&Tracked) -> bool) {
    if !Path::new(TRACKS).exists() {
        return;
    }
    if let Err(error) = forget_connections(condition) {
        tracing::debug!(%error, "connections of another way are kept");
    }
}

fn is_by_exit(tracked: &Tracked, own: &BTreeSet<IpAddr>, mesh: &BTreeSet<Subnet>) -> bool {
    let (original, reply) = (tracked.original, tracked.reply);
    let is_translated = original.source != reply.dest || original.dest != reply.source;
    let is_asked = original.dest != reply.source && reply.source.port() == NAMES;
    let end = reply.source.ip();
    let is_carried = is_of_internet(end) && !mesh.iter().any(|network| network.contains(end));
    is_translated && own.contains(&reply.dest.ip()) && (is_asked || is_carried)
}

/// What was before an exit is used.
struct Before<'a> {
    exit: &'a UseExit,
    /// The addresses under which the exit forwards.
    own: &'a BTreeSet<IpAddr>,
    around: &'a Around,
    /// All addresses of this host.
    here: &'a BTreeSet<IpAddr>,
}

impl Before<'_> {
    fn contains(&self, tracked: &Tracked) -> bool {
        let (from, to) = (tracked.original.source, tracked.original.dest);
        let is_mesh = self.around.mesh.iter().any(|network| network.contains(to.ip()));
        if is_mesh || self.is_within(to.ip()) || self.own.contains(&tracked.reply.dest.ip()) {
            return false;
        }
        if is_lan(to.ip()) && (to.port() == DNS || self.exit.lan) {
            return to.port() == DNS && (self.here.contains(&from.ip()) || self.is_contained(from.ip()));
        }
        self.is_contained(from.ip())
    }

    fn is_within(&self, ip: IpAddr) -> bool {
        self.here.contains(&ip) || self.is_contained(ip)
    }

    fn is_contained(&self, ip: IpAddr) -> bool {
        self.around.contained_at().any(|(network, _)| network.contains(ip))
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use weft_os::netlink::TrackedEnds;

    use super::*;
    use crate::exit::around::Bridge;

    fn tracked(original: (&str, &str), reply: (&str, &str)) -> Tracked {
        let at = |text: &str| -> SocketAddr { text.parse().unwrap() };
        let ends = |(source, dest)| TrackedEnds {
            source: at(source),
            dest: at(dest),
        };
        Tracked {
            protocol: 17,
            original: ends(original),
            reply: ends(reply),
        }
    }

    fn subnets(texts: &[&str]) -> BTreeSet<Subnet> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    fn addresses(texts: &[&str]) -> BTreeSet<IpAddr> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn flows_translated_for_the_exit_are_by_the_exit() {
        let (own, mesh) = (addresses(&["10.44.0.7"]), subnets(&["10.44.0.9/32"]));
        let by_exit = |original, reply| is_by_exit(&tracked(original, reply), &own, &mesh);
        let of_container = ("172.17.0.2:5000", "192.0.2.80:443");
        assert!(by_exit(of_container, ("192.0.2.80:443", "10.44.0.7:5000")));
        // A query of this host to a resolver of its LAN.
        assert!(by_exit(
            ("192.168.1.10:5000", "192.168.1.53:53"),
            ("10.44.0.9:7353", "10.44.0.7:5000")
        ));
        assert!(
            !by_exit(of_container, ("192.0.2.80:443", "192.168.1.10:5000")),
            "another way"
        );
        let to_member = ("172.17.0.2:5000", "10.44.0.9:22");
        assert!(!by_exit(to_member, ("10.44.0.9:22", "10.44.0.7:5000")), "a member");
        let direct = ("10.44.0.7:5000", "192.0.2.80:443");
        assert!(
            !by_exit(direct, ("192.0.2.80:443", "10.44.0.7:5000")),
            "nothing is translated"
        );
        let came_in = ("10.44.0.9:5000", "10.44.0.7:8080");
        assert!(
            !by_exit(came_in, ("172.17.0.2:80", "10.44.0.9:5000")),
            "a published port"
        );
    }

    #[test]
    fn only_flows_that_the_exit_carries_from_now_on_begin_again() {
        let mut around = Around {
            mesh: subnets(&["10.44.0.9/32"]),
            ..Around::default()
        };
        let networks = subnets(&["172.17.0.0/16"]);
        around
            .bridges
            .insert("docker0".to_owned(), Bridge { index: 3, networks });
        let (own, here) = (addresses(&["10.44.0.7"]), addresses(&["192.168.1.10", "172.17.0.1"]));
        let contains = |lan, original: (&str, &str), answered_to: &str| {
            let exit = UseExit {
                lan,
                ..UseExit::default()
            };
            let before = Before {
                exit: &exit,
                own: &own,
                around: &around,
                here: &here,
            };
            before.contains(&tracked(original, (original.1, answered_to)))
        };
        for lan in [false, true] {
            let of_container = ("172.17.0.2:5000", "192.0.2.80:443");
            assert!(contains(lan, of_container, "192.168.1.10:5000"));
            assert!(
                !contains(lan, of_container, "10.44.0.7:5000"),
                "by the exit, over a restart"
            );
            let of_host = ("192.168.1.10:5000", "192.0.2.80:443");
            assert!(!contains(lan, of_host, of_host.0), "a socket has its address for good");
            for asks in ["192.168.1.10:5000", "172.17.0.2:5000"] {
                assert!(contains(lan, (asks, "192.168.1.53:53"), "192.168.1.10:5000"), "{asks}");
            }
            for kept in [
                ("172.17.0.2:5000", "172.17.0.1:53"),
                ("172.17.0.2:5000", "10.44.0.9:53"),
                ("192.168.1.66:5000", "192.168.1.10:53"),
                ("192.0.2.80:5000", "192.168.1.10:8080"),
            ] {
                assert!(!contains(lan, kept, kept.0), "{kept:?}");
            }
            let into_lan = ("172.17.0.2:5000", "192.168.1.66:80");
            assert_eq!(contains(lan, into_lan, "192.168.1.10:5000"), !lan);
        }
    }
}
