//! Names: what the configuration gives to the DNS responder.

use std::io::{self, ErrorKind};

use weft_noise::PublicKey;
use weft_os::netns;

use crate::config::Config;
use crate::dns::{Endpoint, RegisterError, Resolved, Responder, Setup, Zone};

/// The sockets, bound while the process may still bind any port, and what else must be asked before it drops privileges.
pub(super) struct Bound {
    endpoints: Vec<Endpoint>,
    failed: Vec<String>,
    system: Result<Resolved, RegisterError>,
}

/// Binds every configured address; none if names are turned off.
///
/// One that cannot be bound costs names and nothing else: a machine that is reached through the mesh alone must not be
/// lost because another program took a port. It is told at WARN, and in the status.
pub(super) fn bind(config: &Config, interface: u32) -> Option<Bound> {
    if !config.dns.enabled {
        return None;
    }
    let mut bound = Bound {
        endpoints: Vec::new(),
        failed: Vec::new(),
        system: system(config, interface),
    };
    let by_default = config.dns.listen == Config::default().dns.listen;
    for &address in &config.dns.listen {
        match Endpoint::bind(address) {
            Ok(endpoint) => bound.endpoints.push(endpoint),
            // A system without IPv6, and nobody asked for it.
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

/// Numbers of interfaces mean nothing in another network namespace, or something else.
fn system(config: &Config, interface: u32) -> Result<Resolved, RegisterError> {
    if !config.dns.register {
        Err(RegisterError::TurnedOff)
    } else if netns::is_init_namespace() {
        Ok(Resolved::new("resolvectl", interface))
    } else {
        Err(RegisterError::OtherNamespace)
    }
}

/// Starts to answer for the configured peers and for every key.
pub(super) fn start(bound: Bound, config: &Config, me: PublicKey) -> io::Result<Responder> {
    let names = config.peers.iter();
    let zone = Zone::new(names.filter_map(|peer| Some((peer.name.as_ref()?, peer.key))));
    Responder::start(Setup {
        zone,
        endpoints: bound.endpoints,
        failed: bound.failed,
        me,
        system: bound.system,
    })
}
