//! Names: the part of the configuration that the DNS responder needs.

use std::io::{self, ErrorKind};
use std::path::Path;

use weft_config::{Config, ResolvConfSetting};
use weft_noise::PublicKey;
use weft_os::netns;

use crate::broker::Broker;
use crate::dns::resolv_conf::{self, ResolvConf};
use crate::dns::{Endpoint, RegisterError, Resolved, Responder, Setup, System, Zone};

/// The sockets, bound while the process may still bind any port, and the other results that must be
/// obtained before it drops privileges.
pub struct Bound {
    endpoints: Vec<Endpoint>,
    failed: Vec<String>,
    system: Result<System, RegisterError>,
}

impl Bound {
    /// The file that the broker may replace.
    pub fn resolv_conf(&self) -> Option<&Path> {
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
pub fn bind(config: &Config) -> Option<Bound> {
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

/// Starts to answer for a zone. The broker configures the system's resolver.
///
/// # Errors
/// If the system starts no thread.
pub fn start(
    bound: Bound,
    zone: Zone,
    (me, interface): (PublicKey, u32),
    broker: &io::Result<Broker>,
) -> io::Result<Responder> {
    let system = bound.system.and_then(|system| match broker {
        Ok(broker) => Ok((system, broker.client())),
        Err(error) => Err(RegisterError::Broker(format!("the broker did not start: {error}"))),
    });
    Responder::start(Setup {
        zone,
        endpoints: bound.endpoints,
        failed: bound.failed,
        me,
        interface,
        system,
    })
}
