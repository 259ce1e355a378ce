//! Conclusions about the network of this host from what neighbours, STUN servers and the node's own
//! probes have shown. Each says what it rests on; what is not known is called unknown, with what would
//! tell.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use weft_reach::lifetime::Filtering;
use weft_reach::nat::{Mapping, is_private};

/// How far this host reaches, as its addresses and routes say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reaches {
    /// No interface has an address.
    Nothing,
    /// No default route: the networks of its interfaces alone.
    Beside,
    /// A default route leads further.
    #[default]
    Out,
}

/// What is known about UDP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Udp {
    /// How far this host reaches.
    pub reaches: Reaches,
    /// The number of neighbours outside of the networks of this host.
    pub neighbours: usize,
    /// The number of those inside, which say nothing about what gets out.
    pub inside: usize,
    /// The number of peers at public addresses that have been dialled in vain for 10 s, and of these addresses.
    pub unanswered: [usize; 2],
    /// The number of STUN servers that have answered.
    pub answered: usize,
    /// The number of those that have not.
    pub silent: usize,
    /// Whether a name server has answered a question for a name of the configuration.
    pub names: bool,
    /// Whether a STUN server has a private address by its name.
    pub private_server: bool,
}

/// What became of the datagram to the own outer address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hairpin {
    /// None was sent: no outer address is known.
    Untried,
    /// It came back.
    Returned(SocketAddr),
    /// It did not come back in time.
    Lost(SocketAddr),
}

/// A conclusion, with what it rests on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conclusion {
    /// The conclusion, as a word.
    pub state: String,
    /// What it rests on, or what would tell, as text for the user.
    pub because: String,
}

fn finding(state: &str, because: impl Into<String>) -> Conclusion {
    Conclusion {
        state: state.to_owned(),
        because: because.into(),
    }
}

/// What would tell more.
const SERVER: &str = "a STUN server of the configuration (reach.stun) would tell";

/// Whether UDP gets out, and answers in.
#[must_use]
pub fn udp(known: Udp) -> Conclusion {
    let count = |n: usize, one: &str, many: &str| format!("{n} {}", if n == 1 { one } else { many });
    match known {
        Udp {
            reaches: Reaches::Nothing,
            ..
        } => finding("no-network", "this machine has no network: no interface has an address"),
        Udp { neighbours: 1.., .. } => finding("works", format!("links with neighbours: {}", known.neighbours)),
        Udp { answered: 1.., .. } => finding("works", format!("STUN servers that answered: {}", known.answered)),
        Udp {
            reaches: Reaches::Beside,
            unanswered: [peers, _],
            silent,
            ..
        } if peers + silent > 0 => finding(
            "no-route",
            "this machine has no default route, so that it reaches the networks of its interfaces alone",
        ),
        Udp { silent: 1.., .. } => finding(
            "blocked",
            format!("no neighbour, and no answer of STUN servers: {}", known.silent),
        ),
        Udp {
            unanswered: [peers, at],
            ..
        } if peers > 0 => finding(
            "probably-blocked",
            match peers {
                1 => format!(
                    "the one peer that is dialled outside, at {}, does not answer; if it is up, something drops UDP; {SERVER}",
                    count(at, "address", "addresses")
                ),
                _ => format!(
                    "none of {peers} peers at {} answers; if they are up, something drops UDP; {SERVER}",
                    count(at, "address", "addresses")
                ),
            },
        ),
        Udp { inside: 1.., .. } => finding(
            "unknown",
            "all neighbours are in the local network; a STUN server of the configuration (reach.stun) would tell what gets out",
        ),
        Udp { .. } => finding(
            "unknown",
            "there is no neighbour; a STUN server of the configuration (reach.stun) would tell",
        ),
    }
}

/// Whether a portal seems to hold this host back. It rests on what the node does anyway: nothing is
/// asked for this.
#[must_use]
pub fn captive_portal(known: Udp) -> Conclusion {
    if known.private_server {
        return finding(
            "suspected",
            "the name of a STUN server leads to a private address, as a portal that catches names answers",
        );
    }
    match (udp(known).state.as_str(), known.names) {
        ("works", _) => finding("no-sign", "UDP works"),
        ("blocked" | "probably-blocked", true) => finding(
            "suspected",
            "names are answered and UDP is not, as behind a portal or a firewall; a browser would tell",
        ),
        _ => finding(
            "unknown",
            "nothing that a portal answers was asked for; a browser would tell",
        ),
    }
}

/// How outer ports are given, from what observers outside see.
#[must_use]
pub fn mapping(mapping: Mapping, observed: &[SocketAddr]) -> Conclusion {
    let counted: Vec<&SocketAddr> = observed.iter().filter(|at| !is_private(at.ip())).collect();
    let distinct: BTreeSet<&SocketAddr> = counted.iter().copied().collect();
    let distinct: Vec<String> = distinct.into_iter().map(ToString::to_string).collect();
    let (count, seen) = (counted.len(), distinct.join(", "));
    let because = match mapping {
        Mapping::Public => format!("observers that see an address of this host: {count}"),
        Mapping::EndpointIndependent => format!("observers that see the same address, {seen}: {count}"),
        Mapping::EndpointDependent => format!("observers that see different addresses: {seen}"),
        Mapping::Unknown if count == 0 => {
            "no observer outside says an address; a neighbour there or a STUN server (reach.stun) would tell".to_owned()
        }
        Mapping::Unknown => format!("one observer alone sees {seen}; a second one at another address would tell"),
    };
    finding(&mapping.to_string(), because)
}

/// Which datagrams are let in. `found`: what a measurement has shown, with the help of a neighbour of this
/// name.
#[must_use]
pub fn filtering(mapping: Mapping, found: Option<(Filtering, String)>) -> Conclusion {
    match (found, mapping) {
        (Some((Filtering::None, by)), _) => finding("none", format!("what {by} sends from any port arrives")),
        (Some((Filtering::AddressDependent, by)), _) => finding(
            "address-dependent",
            format!("what {by} sends from another port arrives, as it might from any address"),
        ),
        (Some((Filtering::AddressAndPortDependent, by)), _) => finding(
            "address-and-port-dependent",
            format!("what {by} sends from another port does not arrive"),
        ),
        (None, Mapping::Public) => finding(
            "none",
            "no NAT is in front of this host; a firewall may filter, which a neighbour helps to find out",
        ),
        (None, _) => finding(
            "unknown",
            "that takes a datagram from where nothing was sent to, which a neighbour sends some time after the link",
        ),
    }
}

/// Whether a datagram to the outer address comes back inside.
#[must_use]
pub fn hairpin(mapping: Mapping, hairpin: Hairpin) -> Conclusion {
    match (mapping, hairpin) {
        (Mapping::Public, _) => finding(
            "unknown",
            "no NAT is in front of this host, so there is nothing to turn back",
        ),
        (_, Hairpin::Untried) => finding("unknown", "no outer address is known to which a datagram could be sent"),
        (_, Hairpin::Returned(to)) => finding("yes", format!("a datagram to {to} came back")),
        (_, Hairpin::Lost(to)) => finding("no", format!("a datagram to {to} did not come back")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(finding: &Conclusion) -> &str {
        assert!(!finding.because.is_empty());
        &finding.state
    }

    #[test]
    fn udp_is_blocked_only_if_servers_were_asked() {
        let of = |neighbours, [answered, silent]: [usize; 2]| Udp {
            neighbours,
            answered,
            silent,
            ..Udp::default()
        };
        for (known, expected) in [
            (of(0, [0, 0]), "unknown"),
            (of(0, [0, 2]), "blocked"),
            (of(0, [1, 2]), "works"),
            (of(1, [0, 2]), "works"),
        ] {
            assert_eq!(state(&udp(known)), expected, "{known:?}");
        }
    }

    #[test]
    fn silent_peers_outside_make_udp_probably_blocked() {
        let dialled = Udp {
            unanswered: [2, 3],
            inside: 1,
            ..Udp::default()
        };
        let found = udp(dialled);
        assert_eq!(state(&found), "probably-blocked");
        assert!(
            found.because.starts_with("none of 2 peers at 3 addresses answers"),
            "{found:?}"
        );
        for (known, expected) in [
            (
                Udp {
                    neighbours: 1,
                    ..dialled
                },
                "works",
            ),
            (Udp { answered: 1, ..dialled }, "works"),
            (
                Udp {
                    inside: 1,
                    ..Udp::default()
                },
                "unknown",
            ),
        ] {
            assert_eq!(state(&udp(known)), expected, "{known:?}");
        }
    }

    #[test]
    fn a_host_without_a_network_is_told_so_whatever_is_silent() {
        for (reaches, expected) in [(Reaches::Nothing, "no-network"), (Reaches::Beside, "no-route")] {
            let known = Udp {
                reaches,
                unanswered: [2, 2],
                ..Udp::default()
            };
            let found = udp(known);
            assert_eq!(state(&found), expected);
            assert!(found.because.starts_with("this machine has no"), "{found:?}");
        }
    }

    #[test]
    fn a_portal_is_suspected_from_what_was_asked_anyway() {
        let of = |neighbours, [answered, silent]: [usize; 2], names, private_server| Udp {
            neighbours,
            answered,
            silent,
            names,
            private_server,
            ..Udp::default()
        };
        for (known, expected) in [
            (of(1, [0, 0], false, false), "no-sign"),
            (of(0, [0, 1], true, false), "suspected"),
            (of(0, [0, 1], false, false), "unknown"),
            (of(0, [0, 1], true, true), "suspected"),
            (of(0, [0, 0], true, false), "unknown"),
        ] {
            assert_eq!(state(&captive_portal(known)), expected, "{known:?}");
        }
    }

    #[test]
    fn a_mapping_names_its_observers() {
        let at = |text: &str| text.parse().unwrap();
        let (one, other) = (at("11.0.0.1:2121"), at("11.0.0.1:4000"));
        let private = at("192.168.1.2:2121");
        for (kind, observed, says) in [
            (Mapping::Unknown, &[][..], "would tell"),
            (Mapping::Unknown, &[private], "no observer outside"),
            (Mapping::Unknown, &[one], "one observer alone sees 11.0.0.1:2121"),
            (Mapping::EndpointIndependent, &[one, one, private], "11.0.0.1:2121: 2"),
            (
                Mapping::EndpointDependent,
                &[one, other],
                "11.0.0.1:2121, 11.0.0.1:4000",
            ),
        ] {
            let found = mapping(kind, observed);
            assert!(found.because.contains(says), "{found:?}");
            assert_eq!(state(&found), kind.to_string());
        }
    }

    #[test]
    fn a_datagram_that_came_back_shows_hairpin() {
        let to = "11.0.0.1:2121".parse().unwrap();
        let of = |kind, of| hairpin(kind, of).state;
        assert_eq!(of(Mapping::Unknown, Hairpin::Returned(to)), "yes");
        assert_eq!(of(Mapping::EndpointDependent, Hairpin::Lost(to)), "no");
        assert_eq!(of(Mapping::Unknown, Hairpin::Untried), "unknown");
        assert_eq!(of(Mapping::Public, Hairpin::Lost(to)), "unknown");
    }
}
