//! The configurations of a scenario's nodes.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use toml::{Table, Value};

use super::file::{HostSpec, Scenario, dialled};
use crate::cable::Cidr;
use crate::daemon::Identity;
use crate::spec::{DEFAULT_PORT, NodeSpec};

/// The configuration of a node.
pub(super) fn spec(scenario: &Scenario, own: &str, host: &HostSpec, identities: &BTreeMap<&str, Identity>) -> NodeSpec {
    let mut spec = NodeSpec::default();
    let versions = |ipv6| addresses(scenario, own).any(|address| address.is_ipv6() == ipv6);
    let (v4, v6) = (versions(false), versions(true));
    if v6 {
        spec.listen.push(SocketAddr::from(([0_u16; 8], DEFAULT_PORT)));
    }
    for entry in host.dials.iter().chain(&host.knows) {
        let (peer, endpoint) = dialled(entry);
        let Some(identity) = identities.get(peer) else { continue };
        let known = addresses(scenario, peer).filter(|address| if address.is_ipv6() { v6 } else { v4 });
        let endpoints: Vec<_> = match endpoint {
            Some(endpoint) => endpoint.into_iter().collect(),
            None if host.dials.contains(entry) => known.map(|address| SocketAddr::new(address, DEFAULT_PORT)).collect(),
            None => Vec::new(),
        };
        spec = spec.with_peer(&identity.npub, peer, &endpoints);
    }
    flatten("", &host.config, &mut spec.settings);
    spec
}

/// The addresses of a host on all its links.
fn addresses<'a>(scenario: &'a Scenario, host: &'a str) -> impl Iterator<Item = IpAddr> + 'a {
    let own = scenario.links.values().filter_map(move |link| link.addresses.get(host));
    own.flatten()
        .filter_map(|text| Some(text.parse::<Cidr>().ok()?.address))
}

/// Flattens a table: `[mesh] open = true` becomes `mesh.open` and its value.
fn flatten(prefix: &str, table: &Table, to: &mut Vec<(String, Value)>) {
    for (key, value) in table {
        let key = format!("{prefix}{key}");
        match value {
            Value::Table(inner) => flatten(&format!("{key}."), inner, to),
            value => to.push((key, value.clone())),
        }
    }
}
