//! What would make a path direct, as text for the user.

use std::net::{IpAddr, SocketAddr};

use weft_reach::message::{Candidate, Kind};
use weft_reach::nat::{Mapping, is_private};
use weft_reach::{Record, Source};

/// The port of a node that is not told otherwise.
const PORT: u16 = 2121;

/// What is known of one end of a path.
#[derive(Clone, Debug, Default)]
pub(super) struct Side {
    /// Its name for the reader.
    pub(super) name: String,
    /// How its NAT of IPv4 gives outer ports.
    pub(super) mapping: Mapping,
    /// The addresses of its interfaces.
    pub(super) host: Vec<SocketAddr>,
    /// The addresses at which observers see it.
    pub(super) observed: Vec<SocketAddr>,
    /// Who sees it there, as far as one alone does.
    pub(super) observer: Option<String>,
}

impl Side {
    /// Takes addresses as one end names them to the other.
    pub(super) fn new(name: String, mapping: Mapping, named: impl IntoIterator<Item = Candidate>) -> Self {
        let mut side = Self {
            name,
            mapping,
            ..Self::default()
        };
        for Candidate { kind, at } in named {
            match kind {
                Kind::Host => side.host.push(at),
                Kind::Observed => side.observed.push(at),
                _ => {}
            }
        }
        side
    }

    /// Takes what a peer has named in an attempt.
    pub(super) fn of_peer(name: String, mapping: Mapping, record: &Record) -> Self {
        let named = record.tried.iter().filter_map(|tried| match tried.source {
            Source::Told(kind) => Some(Candidate { kind, at: tried.at }),
            Source::Heard | Source::Searched => None,
        });
        Self::new(name, mapping, named)
    }

    /// The router maps every destination anew.
    fn maps_anew(&self) -> bool {
        self.mapping == Mapping::EndpointDependent
    }

    /// Returns the one address at which it is seen, if its port is not its own: the router probably maps
    /// every destination anew.
    fn probably_anew(&self) -> Option<SocketAddr> {
        if matches!(self.mapping, Mapping::EndpointIndependent | Mapping::Public) {
            return None;
        }
        let [seen] = self.outer()[..] else { return None };
        let ports = self.host.iter().filter(|own| own.is_ipv4());
        let own: Vec<u16> = ports.map(SocketAddr::port).collect();
        (!own.is_empty() && !own.contains(&seen.port())).then_some(seen)
    }

    /// Returns the public addresses of IPv4 at which it is seen.
    fn outer(&self) -> Vec<SocketAddr> {
        let outer = self.observed.iter().copied();
        outer.filter(|at| at.is_ipv4() && !is_private(at.ip())).collect()
    }

    fn outer_ip(&self) -> Option<IpAddr> {
        self.outer().first().map(SocketAddr::ip)
    }

    /// Returns the port of the node itself.
    fn port(&self) -> u16 {
        self.host.first().map_or(PORT, SocketAddr::port)
    }

    /// Returns the version of IP that it has alone.
    fn only(&self) -> Option<&'static str> {
        let all = || self.host.iter().chain(&self.observed);
        match (all().any(SocketAddr::is_ipv4), all().any(SocketAddr::is_ipv6)) {
            (true, false) => Some("IPv4"),
            (false, true) => Some("IPv6"),
            _ => None,
        }
    }

    /// Says how a port of its router leads to it, and where the command is to be typed.
    fn forward(&self) -> String {
        let (name, port) = (&self.name, self.port());
        let ip = self.outer_ip().map_or("PUBLIC-ADDRESS".to_owned(), |ip| ip.to_string());
        format!(
            "switch on UPnP or PCP at the router of {name}, or forward UDP port {port} there to {name}, type at {name}: weft set \
             reach.external '[\"{ip}:{port}\"]', and restart weft there"
        )
    }

    /// Says at which port it is seen.
    fn suspicion(&self, seen: SocketAddr) -> String {
        let by = self.observer.as_deref().unwrap_or("one observer alone");
        let (name, seen, own) = (&self.name, seen.port(), self.port());
        format!("{by} sees {name} at port {seen} and not at {own}")
    }
}

/// Says that links do without the ordinary port, which has this number.
pub(super) fn aside(port: u16) -> String {
    format!(
        "no neighbour or server outside sees UDP port {port} of this machine: what leaves from there is not answered, and links go \
         through another port"
    )
}

/// Returns what would help then.
pub(super) fn advice_aside(port: u16) -> String {
    format!(
        "a firewall or a stale entry of a router of this machine holds up UDP port {port}: let the port out, or restart the router; \
         links return to the port by themselves"
    )
}

/// Returns what would help after an attempt in which no address answered.
pub(super) fn advice(own: &Side, theirs: &Side) -> String {
    if let (Some(one), Some(other)) = (own.only(), theirs.only())
        && one != other
    {
        return format!(
            "{} has {one} alone, {} {other} alone: a direct path needs one version of IP that both have",
            own.name, theirs.name
        );
    }
    if let Some(ip) = own.outer_ip().filter(|ip| theirs.outer_ip() == Some(*ip)) {
        return format!(
            "both are behind the router or carrier with the address {ip}, which does not lead back inside; IPv6 at both ends helps, \
             or a link in one local network"
        );
    }
    match (own.maps_anew(), theirs.maps_anew()) {
        (true, true) => {
            return format!(
                "the routers of both ends map every destination anew, so neither can be told where the other will be seen; at one of \
                 them: {}; or IPv6 at both ends",
                own.forward()
            );
        }
        (true, false) => {
            return format!(
                "the router of this end maps every destination anew; {}; or IPv6 at both ends",
                own.forward()
            );
        }
        (false, true) => {
            return format!(
                "the router of the other end maps every destination anew; {}; or IPv6 at both ends",
                theirs.forward()
            );
        }
        (false, false) => {}
    }
    let suspected = [own, theirs].map(|side| Some((side, side.probably_anew()?)));
    let suspicions: Vec<String> = suspected
        .iter()
        .flatten()
        .map(|(side, seen)| side.suspicion(*seen))
        .collect();
    if let Some((side, _)) = suspected.into_iter().flatten().next() {
        return format!(
            "{}: the router there probably gives a new port for each destination; a second observer would tell, at {}: weft set \
             reach.stun '[\"HOST:PORT\"]'; if it is so, {}",
            suspicions.join(", "),
            side.name,
            side.forward()
        );
    }
    format!(
        "no address of the peer answered: a firewall at one end drops UDP; let UDP port {} in at one of them, or {}",
        own.port(),
        own.forward()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn side(name: &str, mapping: Mapping, named: &[(Kind, &str)]) -> Side {
        let named = named.iter().map(|(kind, at)| Candidate {
            kind: *kind,
            at: at.parse().unwrap(),
        });
        Side::new(name.to_owned(), mapping, named)
    }

    fn here(mapping: Mapping, outer: &str) -> Side {
        let named = [(Kind::Host, "192.168.1.10:2121"), (Kind::Observed, outer)];
        side("this machine", mapping, &named)
    }

    fn there(mapping: Mapping, outer: &str) -> Side {
        let named = [(Kind::Host, "192.168.2.10:2121"), (Kind::Observed, outer)];
        side("laptop", mapping, &named)
    }

    const SAME: Mapping = Mapping::EndpointIndependent;
    const ANEW: Mapping = Mapping::EndpointDependent;
    const UNKNOWN: Mapping = Mapping::Unknown;

    #[test]
    fn the_end_whose_router_is_hard_is_named_with_its_command() {
        let command = |ip: &str| format!("reach.external '[\"{ip}:2121\"]', and restart weft there");
        let told = advice(&here(ANEW, "11.0.1.2:9"), &there(SAME, "11.0.2.2:2121"));
        assert!(told.starts_with("the router of this end maps every destination anew; switch on UPnP or PCP"));
        assert!(
            told.contains("type at this machine: weft set") && told.contains(&command("11.0.1.2")),
            "{told}"
        );
        let told = advice(&here(SAME, "11.0.1.2:2121"), &there(ANEW, "11.0.2.2:9"));
        assert!(
            told.contains("type at laptop: weft set") && told.contains(&command("11.0.2.2")),
            "{told}"
        );
        let told = advice(&here(ANEW, "11.0.1.2:9"), &there(ANEW, "11.0.2.2:9"));
        assert!(told.starts_with("the routers of both ends map"), "{told}");
    }

    #[test]
    fn one_observer_that_sees_another_port_is_suspicious() {
        let mut own = here(UNKNOWN, "11.0.1.2:10979");
        own.observer = Some("pub".to_owned());
        let told = advice(&own, &there(UNKNOWN, "11.0.2.2:33411"));
        for words in [
            "pub sees this machine at port 10979 and not at 2121, one observer alone sees laptop at port 33411 and not at 2121: ",
            "the router there probably gives a new port for each destination; ",
            "a second observer would tell, at this machine: weft set reach.stun '[\"HOST:PORT\"]'",
        ] {
            assert!(told.contains(words), "{told}");
        }
        let told = advice(&here(SAME, "11.0.1.2:10979"), &there(UNKNOWN, "11.0.2.2:33411"));
        assert!(told.starts_with("one observer alone sees laptop"), "{told}");
        let told = advice(&here(UNKNOWN, "11.0.1.2:2121"), &there(UNKNOWN, "11.0.2.2:2121"));
        assert!(told.contains("a firewall at one end drops UDP"), "{told}");
    }

    #[test]
    fn ends_without_a_common_version_of_ip_are_told_so() {
        let six = side("this machine", UNKNOWN, &[(Kind::Host, "[2001:db8::6]:2121")]);
        assert!(
            advice(&six, &there(SAME, "11.0.2.2:2121")).starts_with("this machine has IPv6 alone, laptop IPv4 alone: ")
        );
    }

    #[test]
    fn one_router_for_both_is_named_by_its_address() {
        let told = advice(&here(UNKNOWN, "11.0.3.2:2121"), &there(UNKNOWN, "11.0.3.2:44584"));
        assert!(
            told.contains("the router or carrier with the address 11.0.3.2"),
            "{told}"
        );
    }
}
