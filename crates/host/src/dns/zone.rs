//! The names below `fips` and `weft`, the names of their addresses, and the answers for all others.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use weft_config::peer::PeerName;
use weft_noise::PublicKey;
use weft_wire::FIPS_PREFIX;

use super::message::{Apex, Query, Rcode, Reject, rtype};
use super::reverse;

/// The domain that this node answers for. FIPS uses it; no other party has registered it.
pub const DOMAIN: &str = "fips";

/// The domain of private networks: the members of the network `home` are below `home.weft`.
pub const NETWORKS: &str = "weft";

/// The names and keys below [`DOMAIN`], and the members and guests of networks below [`NETWORKS`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Zone {
    names: BTreeMap<String, Ipv6Addr>,
    /// In the order in which short names are looked up.
    networks: Vec<String>,
    /// By network and name.
    members: BTreeMap<(String, String), MemberAddresses>,
    /// The one name of each address.
    pointers: BTreeMap<IpAddr, Pointer>,
}

/// The name of an address.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Pointer {
    /// The name of a peer below [`DOMAIN`].
    Peer(String),
    /// The name of a member or guest of a network, which takes precedence.
    Member(String),
}

impl Pointer {
    fn name(&self) -> &str {
        match self {
            Self::Peer(name) | Self::Member(name) => name,
        }
    }
}

/// The addresses of a member of a network, or of a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberAddresses {
    /// Its address in the mesh. A guest has none.
    pub ipv6: Option<Ipv6Addr>,
    /// Its address in the network.
    pub ipv4: Option<Ipv4Addr>,
}

/// The result of a request, for counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// `out` contains the answer: a record, or that there is no record of this type.
    Answered,
    /// The name does not exist below the domain, or is that of no address of the mesh.
    NoSuchName,
    /// The name is outside the domains, and no address of this zone has it.
    Foreign,
    /// The request is of a kind that is not served: a zone transfer, a class of names other than IN.
    Refused,
    /// The request was malformed, and is answered so.
    Malformed,
    /// `out` is empty: no response is sent.
    Ignored,
}

impl Zone {
    /// A zone of configured names. Keys need no entry: the npub of every key is a name.
    pub fn new<'a>(names: impl IntoIterator<Item = (&'a PeerName, PublicKey)>) -> Self {
        let names = names.into_iter();
        let names: BTreeMap<_, _> = names
            .map(|(name, key)| (name.as_str().to_owned(), key.node_addr().to_ipv6()))
            .collect();
        let pointer = |(name, ip): (&String, &Ipv6Addr)| (IpAddr::V6(*ip), Pointer::Peer(format!("{name}.{DOMAIN}")));
        Self {
            pointers: names.iter().map(pointer).collect(),
            names,
            ..Self::default()
        }
    }

    /// Adds a network behind those that are there. Its name is a label of DNS in lower case.
    pub fn add_network(&mut self, network: &str) {
        if self.networks.iter().all(|known| known != network) {
            self.networks.push(network.to_owned());
        }
    }

    /// The networks, in the order in which they were added.
    pub fn networks(&self) -> impl Iterator<Item = &str> {
        self.networks.iter().map(String::as_str)
    }

    /// Adds a member of a network, or a guest. Both names are labels of DNS in lower case. An address that two
    /// networks share has the name of the network that was added first.
    pub fn add_member(&mut self, network: &str, name: &str, addresses: MemberAddresses) {
        self.add_network(network);
        let whole = || Pointer::Member(format!("{name}.{network}.{NETWORKS}"));
        let ipv4 = addresses.ipv4.map(IpAddr::V4);
        for address in ipv4.into_iter().chain(addresses.ipv6.map(IpAddr::V6)) {
            match self.pointers.entry(address) {
                Entry::Occupied(mut entry) if matches!(entry.get(), Pointer::Peer(_)) => {
                    entry.insert(whole());
                }
                Entry::Occupied(_) => {}
                Entry::Vacant(entry) => {
                    entry.insert(whole());
                }
            }
        }
        self.members.insert((network.to_owned(), name.to_owned()), addresses);
    }

    /// Writes the response to `request` into `out`, at most
    /// [`MAX_RESPONSE`](super::message::MAX_RESPONSE) bytes, or nothing if none is due.
    pub fn respond(&self, request: &[u8], out: &mut Vec<u8>) -> Outcome {
        out.clear();
        let query = match Query::parse(request) {
            Ok(query) => query,
            Err(Reject::Ignore) => return Outcome::Ignored,
            Err(Reject::Answer(refusal)) => {
                refusal.emit(out);
                return Outcome::Malformed;
            }
        };
        if query.is_of_unknown_version() {
            query.emit_code(out, Rcode::BadVers);
            return Outcome::Malformed;
        }
        let labels: Vec<&[u8]> = query.labels().collect();
        // A transfer would list all names at once; a client that queries one name knows it already.
        if !query.is_internet() || matches!(query.rtype(), rtype::AXFR | rtype::IXFR) {
            query.emit_code(out, Rcode::Refused);
            return Outcome::Refused;
        }
        let Some(domain) = labels.last().and_then(|label| domain(label)) else {
            return self.respond_elsewhere(&query, &labels, out);
        };
        let found = match (&*labels, domain) {
            ([_], _) => {
                let asked = matches!(query.rtype(), rtype::SOA | rtype::ANY);
                query.emit_soa(out, Apex::Last(1), Rcode::NoError, asked);
                return Outcome::Answered;
            }
            ([label, _], DOMAIN) => self.address(label).map(|ipv6| (Some(ipv6), None)),
            // A network has members below it, and nothing itself (RFC 8020).
            ([network, _], NETWORKS) => self.has_network(network).then_some((None, None)),
            ([name, network, _], NETWORKS) => self.member(name, network).map(|member| (member.ipv6, member.ipv4)),
            _ => None,
        };
        let Some((ipv6, ipv4)) = found else {
            return no_such_name(&query, out);
        };
        let wants = |rtype: u16| query.rtype() == rtype || query.rtype() == rtype::ANY;
        let (ipv6, ipv4) = (ipv6.filter(|_| wants(rtype::AAAA)), ipv4.filter(|_| wants(rtype::A)));
        if ipv6.is_some() || ipv4.is_some() {
            query.emit_addresses(out, ipv6, ipv4);
        } else {
            query.emit_soa(out, Apex::Last(1), Rcode::NoError, false);
        }
        Outcome::Answered
    }

    /// Answers the reverse names of the addresses of this zone, and says of all others of the mesh that
    /// they do not exist: a question about one would tell other servers which node is asked
    /// for. The IPv4 addresses are also those of other private networks, so all other names of theirs
    /// are foreign.
    fn respond_elsewhere(&self, query: &Query<'_>, labels: &[&[u8]], out: &mut Vec<u8>) -> Outcome {
        let address = reverse::address(labels);
        let pointer = address.and_then(|address| self.pointers.get(&address));
        let Some(pointer) = pointer else {
            if address.is_some_and(|address| is_of_mesh(&address)) {
                // The zone is d.f.ip6.arpa.
                query.emit_soa(out, Apex::Last(4), Rcode::NxDomain, false);
                return Outcome::NoSuchName;
            }
            query.emit_code(out, Rcode::Refused);
            return Outcome::Foreign;
        };
        match query.rtype() {
            rtype::PTR | rtype::ANY => query.emit_pointer(out, pointer.name()),
            other => query.emit_soa(out, Apex::Name, Rcode::NoError, other == rtype::SOA),
        }
        Outcome::Answered
    }

    fn has_network(&self, label: &[u8]) -> bool {
        lower(label).is_some_and(|network| self.networks.contains(&network))
    }

    fn member(&self, name: &[u8], network: &[u8]) -> Option<&MemberAddresses> {
        self.members.get(&(lower(network)?, lower(name)?))
    }

    /// The address of the name or npub `label`, in upper or lower case.
    fn address(&self, label: &[u8]) -> Option<Ipv6Addr> {
        let label = lower(label)?;
        if let Some(address) = self.names.get(&label) {
            return Some(*address);
        }
        // Only the form npub1...: 64 hexadecimal digits are a key as well, but not a name.
        let key: PublicKey = label.starts_with("npub1").then(|| label.parse().ok())??;
        Some(key.node_addr().to_ipv6())
    }
}

/// Whether an address is in fd00::/8.
fn is_of_mesh(address: &IpAddr) -> bool {
    matches!(address, IpAddr::V6(ip) if ip.octets()[0] == FIPS_PREFIX)
}

/// The domain with this label, if it is one of ours.
fn domain(label: &[u8]) -> Option<&'static str> {
    let domains = [DOMAIN, NETWORKS].into_iter();
    domains
        .into_iter()
        .find(|domain| label.eq_ignore_ascii_case(domain.as_bytes()))
}

/// The text of a label, in lower case.
fn lower(label: &[u8]) -> Option<String> {
    Some(std::str::from_utf8(label).ok()?.to_ascii_lowercase())
}

fn no_such_name(query: &Query<'_>, out: &mut Vec<u8>) -> Outcome {
    query.emit_soa(out, Apex::Last(1), Rcode::NxDomain, false);
    Outcome::NoSuchName
}
