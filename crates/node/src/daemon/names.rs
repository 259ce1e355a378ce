//! Names: the part of the configuration that the DNS responder needs.

use std::io::{self, ErrorKind};

use weft_noise::PublicKey;
use weft_os::netns;

use super::members::Members;
use crate::broker::Broker;
use crate::config::Config;
use crate::dns::zone::MemberAddresses;
use crate::dns::{Endpoint, RegisterError, Responder, Setup, Zone};
use crate::networks::Networks;

/// The sockets, bound while the process may still bind any port, and the other results that must be
/// obtained before it drops privileges.
pub(super) struct Bound {
    endpoints: Vec<Endpoint>,
    failed: Vec<String>,
    system: Result<(), RegisterError>,
}

/// Binds every configured address; none if names are disabled.
///
/// An address that cannot be bound disables only its names: a host that is reachable only through
/// the mesh must not become unreachable because another program uses a port. It is reported at
/// WARN, and in the status.
pub(super) fn bind(config: &Config) -> Option<Bound> {
    if !config.dns.enabled {
        return None;
    }
    let mut bound = Bound {
        endpoints: Vec::new(),
        failed: Vec::new(),
        system: system(config),
    };
    let by_default = config.dns.listen == Config::default().dns.listen;
    for &address in &config.dns.listen {
        match Endpoint::bind(address) {
            Ok(endpoint) => bound.endpoints.push(endpoint),
            // A system without IPv6, and the configuration does not request it.
            Err(error) if by_default && !matches!(error.kind(), ErrorKind::AddrInUse | ErrorKind::PermissionDenied) => {
                tracing::info!(%address, %error, "names are not answered here");
            }
            Err(error) => {
                tracing::warn!(%address, %error, "names are not answered here; change dns.listen in the configuration");
                bound.failed.push(format!("not answered on {address}: {error}"));
            }
        }
    }
    Some(bound)
}

/// Whether the system's resolver is to be configured. In another network namespace, interface
/// indexes have no meaning or another one.
fn system(config: &Config) -> Result<(), RegisterError> {
    if !config.dns.register {
        Err(RegisterError::TurnedOff)
    } else if netns::is_init_namespace() {
        Ok(())
    } else {
        Err(RegisterError::OtherNamespace)
    }
}

/// Starts to answer for peers, members of networks, and every key. The broker configures the system's
/// resolver.
pub(super) fn start(
    bound: Bound,
    (members, networks): (&Members, &Networks),
    me: PublicKey,
    broker: &io::Result<Broker>,
) -> io::Result<Responder> {
    let system = bound.system.and_then(|()| match broker {
        Ok(broker) => Ok(broker.client()),
        Err(error) => Err(RegisterError::Broker(format!("the broker did not start: {error}"))),
    });
    Responder::start(Setup {
        zone: zone(members, networks),
        endpoints: bound.endpoints,
        failed: bound.failed,
        me,
        system,
    })
}

/// The names of these members, and those of the members of networks.
pub(super) fn zone(members: &Members, networks: &Networks) -> Zone {
    let names = members.names();
    let mut zone = Zone::new(names.iter().map(|(key, name)| (name, *key)));
    let own = networks.own();
    for network in networks.iter().filter(|network| network.is_member(own)) {
        let Some(of) = network.name() else { continue };
        zone.add_network(of.as_str());
        for (key, name) in &network.state().names {
            let addresses = MemberAddresses {
                ipv6: key.node_addr().to_ipv6(),
                ipv4: network.ipv4(key),
            };
            zone.add_member(of.as_str(), name.as_str(), addresses);
        }
    }
    zone
}
