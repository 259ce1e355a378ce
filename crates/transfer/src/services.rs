//! Services of this machine that members use, and those of members that are brought here: `services.json`.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::api::RawPath;
use crate::audience::{Audience, MAX_PARTIES};
use crate::document::Setting;
use crate::names::display;
use crate::settings::SettingsError;
use crate::wire::request::MAX_NAME;

/// The most services of a user.
pub const MAX_SERVICES: usize = 64;
/// The most forwards of a user.
pub const MAX_FORWARDS: usize = 32;
/// The longest path of a socket, in bytes.
const MAX_PATH: usize = 107;

/// Where a service listens. Its text is `ADDR:PORT` or a path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Target {
    /// A TCP port of the loopback.
    Tcp(SocketAddr),
    /// A unix socket; the path is absolute.
    Unix(RawPath),
}

/// Where a program of this machine finds the service of a peer. Its text is the port or the path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Local {
    /// A TCP port of the loopback.
    Port(u16),
    /// A unix socket; the path is absolute.
    Unix(RawPath),
}

/// A service that members use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Service {
    /// Its name, [`MAX_NAME`] bytes at most.
    pub name: String,
    /// Where it listens.
    pub target: Target,
    /// The TCP port at the mesh addresses of the node; `None` without one.
    pub port: Option<u16>,
    /// Who may use it.
    #[serde(default)]
    pub to: Audience,
}

/// A service of a peer that is brought here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Forward {
    /// Where programs of this machine find it.
    pub local: Local,
    /// The peer, as the user named it.
    pub peer: String,
    /// The npub of the peer.
    pub npub: Option<String>,
    /// The user there; `None` for the one that has the service.
    pub user: Option<String>,
    /// The name of the service.
    pub service: String,
}

/// All services and forwards of a user.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Services {
    /// The services, in the order in which they came.
    pub services: Vec<Service>,
    /// The forwards, likewise.
    pub forwards: Vec<Forward>,
}

/// The reason why services cannot be used. Its text is one line for the user.
#[derive(Debug, thiserror::Error)]
pub enum ServicesError {
    /// Their file is unusable, or cannot be written.
    #[error(transparent)]
    File(#[from] SettingsError),
    /// It makes no sense.
    #[error("{0}")]
    Refused(String),
}

fn refused<T>(why: impl Into<String>) -> Result<T, ServicesError> {
    Err(ServicesError::Refused(why.into()))
}

/// Returns an absolute path that a socket may have.
fn socket_path(path: &RawPath) -> Result<PathBuf, ServicesError> {
    let path = PathBuf::from(path);
    match path.is_absolute() && path.as_os_str().len() <= MAX_PATH && path.file_name().is_some() {
        true => Ok(path),
        false => refused(format!(
            "the path of a socket is absolute, and has at most {MAX_PATH} bytes"
        )),
    }
}

fn shown(path: &RawPath) -> String {
    use std::os::unix::ffi::OsStrExt as _;
    display(PathBuf::from(path).as_os_str().as_bytes())
}

impl FromStr for Target {
    type Err = String;

    /// Reads `PORT`, `ADDR:PORT` or a path with a slash.
    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(port) = text.parse::<u16>() {
            return Ok(Self::Tcp(SocketAddr::from(([127, 0, 0, 1], port))));
        }
        if let Ok(address) = text.parse() {
            return Ok(Self::Tcp(address));
        }
        match text.contains('/') {
            true => Ok(Self::Unix(RawPath::Text(text.to_owned()))),
            false => {
                Err("write a port, ADDR:PORT of the loopback, or the path of a socket with a slash in it".to_owned())
            }
        }
    }
}

impl FromStr for Local {
    type Err = String;

    /// Reads `PORT` or a path with a slash.
    fn from_str(text: &str) -> Result<Self, String> {
        match (text.parse::<u16>(), text.contains('/')) {
            (Ok(port), _) => Ok(Self::Port(port)),
            (_, true) => Ok(Self::Unix(RawPath::Text(text.to_owned()))),
            _ => Err("write a port, or the path of a socket with a slash in it".to_owned()),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => f.write_str(&shown(path)),
        }
    }
}

impl fmt::Display for Local {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Port(port) => port.fmt(f),
            Self::Unix(path) => f.write_str(&shown(path)),
        }
    }
}

impl Target {
    /// The name and the port of a service that has no others: the port, or the file name of the socket.
    ///
    /// # Errors
    /// The target is not on the loopback, or no socket can have its path.
    pub fn defaults(&self) -> Result<(String, Option<u16>), ServicesError> {
        match self {
            Self::Tcp(address) if !address.ip().is_loopback() => refused(format!(
                "{address} is not on the loopback: only services of this machine can be served"
            )),
            Self::Tcp(address) if address.port() == 0 => refused("no service has port 0"),
            Self::Tcp(address) => Ok((address.port().to_string(), Some(address.port()))),
            Self::Unix(path) => {
                let path = socket_path(path)?;
                let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
                Ok((name, None))
            }
        }
    }
}

/// Checks the name of a service.
///
/// # Errors
/// What is wrong with it.
pub fn check_name(name: &str) -> Result<(), ServicesError> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    match (1..=MAX_NAME).contains(&name.len()) && name.bytes().all(fits) {
        true => Ok(()),
        false => refused(format!(
            "{} is no name of a service: it has 1 to {MAX_NAME} letters a-z, digits, hyphens, dots and underscores",
            display(name.as_bytes())
        )),
    }
}

impl Setting for Services {
    const SCHEMA: &'static str = "weft.transfer-services/1";
    const COMMAND: &'static str = "weft serve";
}

impl Services {
    /// Adds a service.
    ///
    /// # Errors
    /// Its name or port is taken, its target is not on this machine, or there are too many.
    pub fn serve(&mut self, service: Service) -> Result<(), ServicesError> {
        service.target.defaults()?;
        check_name(&service.name)?;
        let name = &service.name;
        if self.services.iter().any(|one| one.name == *name) {
            return refused(format!(
                "a service {name} exists already; `weft serve remove {name}` removes it, or choose another --name"
            ));
        }
        let taken = |one: &&Service| one.port.is_some() && one.port == service.port;
        if let Some(other) = self.services.iter().find(taken) {
            let port = service.port.unwrap_or_default();
            return refused(format!(
                "the service {} has port {port} already; choose another --port",
                other.name
            ));
        }
        if service.port == Some(0) {
            return refused("no service has port 0");
        }
        if service.to.0.len() > MAX_PARTIES {
            return refused(format!(
                "a service is for {MAX_PARTIES} parties at most; give a tag to more"
            ));
        }
        if self.services.len() >= MAX_SERVICES {
            return refused(format!("{MAX_SERVICES} services are served already; remove one"));
        }
        self.services.push(service);
        Ok(())
    }

    /// Adds a forward.
    ///
    /// # Errors
    /// Its place is taken, no service has such a name, or there are too many.
    pub fn forward(&mut self, forward: Forward) -> Result<(), ServicesError> {
        check_name(&forward.service)?;
        let local = &forward.local;
        match local {
            Local::Port(0) => return refused("choose a port: 0 is none"),
            Local::Port(_) => {}
            Local::Unix(path) => drop(socket_path(path)?),
        }
        if self.forwards.iter().any(|one| one.local == *local) {
            return refused(format!(
                "{local} is forwarded already; `weft forward remove {local}` removes that"
            ));
        }
        if self.forwards.len() >= MAX_FORWARDS {
            return refused(format!("{MAX_FORWARDS} services are forwarded already; remove one"));
        }
        self.forwards.push(forward);
        Ok(())
    }

    /// Removes a service.
    ///
    /// # Errors
    /// There is none of that name.
    pub fn unserve(&mut self, name: &str) -> Result<Service, ServicesError> {
        match self.services.iter().position(|one| one.name == name) {
            Some(at) => Ok(self.services.remove(at)),
            None => refused(format!(
                "no service has the name {}; `weft serve list` lists them",
                display(name.as_bytes())
            )),
        }
    }

    /// Removes a forward.
    ///
    /// # Errors
    /// There is none there.
    pub fn unforward(&mut self, local: &Local) -> Result<Forward, ServicesError> {
        match self.forwards.iter().position(|one| one.local == *local) {
            Some(at) => Ok(self.forwards.remove(at)),
            None => refused(format!(
                "nothing is forwarded to {local}; `weft forward list` lists what is"
            )),
        }
    }
}

#[cfg(test)]
mod tests;
