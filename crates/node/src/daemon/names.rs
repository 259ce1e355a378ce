//! Names: the part of the configuration that the DNS responder needs.

use std::io::{self, ErrorKind};
use std::path::Path;

use weft_config::{Config, ResolvConfSetting};
use weft_host::broker::Broker;
use weft_host::dns::resolv_conf::{self, ResolvConf};
use weft_host::dns::zone::MemberAddresses;
use weft_host::dns::{Endpoint, RegisterError, Resolved, Responder, Setup, System, Zone};
use weft_networks::Networks;
use weft_networks::used_ipv4;
use weft_noise::PublicKey;
use weft_os::netns;

use super::members::Members;

/// The sockets, bound while the process may still bind any port, and the other results that must be
/// obtained before it drops privileges.
pub(super) struct Bound {
    endpoints: Vec<Endpoint>,
    failed: Vec<String>,
    system: Result<System, RegisterError>,
}

impl Bound {
    /// The file that the broker may replace.
    pub(super) fn resolv_conf(&self) -> Option<&Path> {
        match &self.system {
            Ok(System::File { file, .. }) => Some(file.path()),
            _ => None,
        }
    }
}

/// Binds every configured address; none if names are disabled.
///
/// An address that cannot be bound disables only its names: a host that is reachable only through
/// the mesh must not become unreachable because another program uses a port. It is reported at
/// WARN, and in the status.
///
/// A resolv.conf that a crash left behind is put back first, in any case.
pub(super) fn bind(config: &Config) -> Option<Bound> {
    let file = resolv_conf(config).map(|file| {
        let endpoint = Endpoint::bind(resolv_conf::SERVER);
        // Otherwise it belongs to a daemon that runs.
        if let Some(Err(error)) = endpoint.is_ok().then(|| file.restore()) {
            let path = file.path().display();
            tracing::warn!(%path, %error, "the former file could not be put back; it is beside this one, as .before-weft");
        }
        (file, endpoint)
    });
    if !config.dns.enabled {
        return None;
    }
    let mut bound = Bound {
        endpoints: Vec::new(),
        failed: Vec::new(),
        system: system(config, file),
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

/// The file that this daemon may replace, or may have replaced in an earlier run. In another network
/// namespace it usually belongs to the programs of the first one.
fn resolv_conf(config: &Config) -> Option<ResolvConf> {
    match &config.dns.resolv_conf {
        ResolvConfSetting::At(path) => Some(ResolvConf::new(path)),
        ResolvConfSetting::Auto | ResolvConfSetting::Off => {
            netns::is_init_namespace().then(|| ResolvConf::new(Path::new(resolv_conf::PATH)))
        }
    }
}

/// The resolver that is to be configured. In another network namespace, interface indexes have no
/// meaning or another one.
fn system(config: &Config, file: Option<(ResolvConf, io::Result<Endpoint>)>) -> Result<System, RegisterError> {
    if !config.dns.register {
        return Err(RegisterError::TurnedOff);
    }
    let (file, endpoint) = file.ok_or(RegisterError::OtherNamespace)?;
    let is_resolved = match &config.dns.resolv_conf {
        ResolvConfSetting::At(_) => false,
        // systemd-resolved may still be starting.
        ResolvConfSetting::Off => true,
        ResolvConfSetting::Auto => Resolved::is_running() || file.is_of_resolved(),
    };
    if is_resolved {
        return Ok(System::Resolved);
    }
    let directory = file.path().parent().unwrap_or(Path::new("/"));
    if !directory.is_dir() {
        return Err(RegisterError::NoDirectory(directory.to_owned()));
    }
    match endpoint {
        Ok(endpoint) => Ok(System::File {
            file,
            endpoint,
            may_change: config.dns.resolv_conf == ResolvConfSetting::Auto,
        }),
        Err(error) => {
            let error = RegisterError::Port {
                address: resolv_conf::SERVER,
                why: error.to_string(),
                path: file.path().to_owned(),
            };
            tracing::info!("names are not set up in the system: {error}");
            Err(error)
        }
    }
}

/// Starts to answer for peers, members of networks, and every key. The broker configures the system's
/// resolver.
pub(super) fn start(
    bound: Bound,
    (members, networks): (&Members, &Networks),
    (me, interface): (PublicKey, u32),
    broker: &io::Result<Broker>,
) -> io::Result<Responder> {
    let system = bound.system.and_then(|system| match broker {
        Ok(broker) => Ok((system, broker.client())),
        Err(error) => Err(RegisterError::Broker(format!("the broker did not start: {error}"))),
    });
    Responder::start(Setup {
        zone: zone(members, networks),
        endpoints: bound.endpoints,
        failed: bound.failed,
        me,
        interface,
        system,
    })
}

/// The names of these members, and those of the members of networks.
pub(super) fn zone(members: &Members, networks: &Networks) -> Zone {
    // A name of several nodes leads to none of them, unless the configuration gives it.
    let names = members.sole_names();
    let mut zone = Zone::new(names.iter().map(|(name, key)| (name, *key)));
    let own = networks.own();
    let owners = networks.owners();
    for network in networks.in_order().filter(|network| network.is_member(own)) {
        let Some(of) = network.label() else { continue };
        zone.add_network(of.as_str());
        for (key, name) in &network.state().names {
            let addresses = MemberAddresses {
                ipv6: key.node_addr().to_ipv6(),
                // Another address would lead to another node.
                ipv4: used_ipv4(network, key, &owners),
            };
            zone.add_member(of.as_str(), name.as_str(), addresses);
        }
    }
    zone
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Arc;

    use weft_config::peer::PeerRef;
    use weft_host::hosts::Hosts;
    use weft_networks::{Ask, Document, NewInvite};
    use weft_noise::{Identity, SecretKey};
    use weft_os::random::SystemRng;
    use weft_roster::invite::Seed;
    use weft_roster::names::Name;

    use super::*;

    const UNIX: u64 = 1_700_000_000;

    fn identity(byte: u8) -> Identity {
        Identity::new(SecretKey::from_bytes(&[byte; 32]).unwrap())
    }

    /// The networks of node 1: one that it has founded, with this newcomer.
    fn networks(newcomer: PublicKey, host: &str) -> Networks {
        let mut networks = Networks::new(Arc::new(identity(1)), Vec::new(), Box::new(SystemRng));
        let home = Name::network("home").unwrap();
        networks.create(home, None, [7; 16], UNIX).unwrap();
        let invite = NewInvite {
            name: None,
            tags: BTreeSet::new(),
            uses: 1,
            expires: UNIX + 3_600,
            addresses: Vec::new(),
            entry: None,
        };
        let code = networks.invite(None, &invite, Seed::new([1; 16]), (0, UNIX)).unwrap();
        let ask = Document::Ask(Ask {
            network: code.network,
            member: newcomer,
            proof: code.seed.prove(&newcomer, code.network),
            name: Name::host(host).ok(),
        });
        networks.handle_document(newcomer, &ask.encode(), 0, UNIX).unwrap();
        networks
    }

    #[test]
    fn a_newcomer_takes_no_configured_name_below_fips() {
        for (peer, newcomer) in [(2, 3), (3, 2)] {
            let (peer, newcomer) = (identity(peer).public(), identity(newcomer).public());
            let text = format!("[[peer]]\nname = \"nas\"\nnpub = \"{peer}\"\n");
            let config = Config::parse(&text, Path::new("weft.toml")).unwrap();
            let names = |host: &str| {
                let members = Members::of(&config, &networks(newcomer, host), &Hosts::default());
                assert_eq!(members.iter().count(), 2);
                let names = members.sole_names();
                for (name, key) in &names {
                    assert_eq!(members.find(&PeerRef::Name(name.clone())), Ok(*key));
                }
                names
            };
            let nas = "nas".parse().unwrap();
            assert_eq!(names("nas"), [(nas, peer)].into());
            assert_eq!(names("laptop").len(), 2);
        }
    }
}
