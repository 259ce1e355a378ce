//! `weft identity`: the node's key.

use std::fs::File;
use std::io::{self, IsTerminal as _, Write as _};
use std::net::{Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::Serialize;
use weft_config::{Config, ConfigError};
use weft_control::ControlCommand;
use weft_control::status::Status;
use weft_desired::addresses::HostAddresses;
use weft_host::surroundings::{Subnets, Surroundings};
use weft_noise::Identity;
use weft_os::netlink::Netlink;
use weft_os::process::forbid_core_dumps;
use weft_store::keyfile;
use weft_store::state::{StateDir, StatePaths};

use crate::documents::OfCommand;
use crate::failure::Failure;
use crate::output::Out;

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Action {
    /// Make a new key
    New {
        /// Replace the key that is there; it is lost
        #[arg(long)]
        force: bool,
        /// Print the document weft.identity/1
        #[arg(long)]
        json: bool,
    },
    /// Show the public key and the addresses made from it
    Show {
        /// Print the document weft.identity/1
        #[arg(long)]
        json: bool,
    },
    /// Take over a secret key (nsec1... or hexadecimal) from a file or standard input
    Import {
        /// Where to read it; - is standard input
        #[arg(default_value = "-")]
        file: PathBuf,
        /// Replace the key that is there; it is lost
        #[arg(long)]
        force: bool,
        /// Print the document weft.identity/1
        #[arg(long)]
        json: bool,
    },
}

pub(crate) fn run(paths: StatePaths, action: Action) -> Result<(), Failure> {
    // Called before the key is in memory.
    forbid_core_dumps()?;
    let key = paths.key(&config(&paths)?);
    match action {
        Action::New { force, json } => store(paths, &key, (force, json), || Ok(keyfile::generate()?)),
        Action::Import { file, force, json } => store(paths, &key, (force, json), || import(&file)),
        Action::Show { json } => show(&keyfile::load(&key)?, &key, own_address(&paths), json),
    }
}

/// The document about a key.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Shown {
    /// The public key.
    npub: String,
    /// The node address: 32 hexadecimal digits.
    node_addr: String,
    /// The IPv6 address in the mesh.
    address: Ipv6Addr,
    /// The path of the key.
    key_file: String,
}

impl OfCommand for Shown {
    const NAME: &'static str = "weft.identity/1";
}

fn show(identity: &Identity, key: &Path, address: Option<SocketAddr>, json: bool) -> Result<(), Failure> {
    match json {
        true => Out::new().document(&Shown {
            npub: identity.public().to_string(),
            node_addr: identity.node_addr().to_string(),
            address: identity.node_addr().to_ipv6(),
            key_file: key.display().to_string(),
        }),
        false => Out::new().text(&text(identity, address)),
    }
}

/// The configuration has the path of the key, if there is a configuration.
pub(crate) fn config(paths: &StatePaths) -> Result<Config, Failure> {
    match Config::load(&paths.config()) {
        Err(ConfigError::NotFound { .. }) => Ok(Config::default()),
        config => Ok(config?),
    }
}

/// Stores a key with the state directory locked, because a running node would continue with the old
/// one.
fn store(
    paths: StatePaths,
    path: &Path,
    (force, json): (bool, bool),
    identity: impl FnOnce() -> Result<Identity, Failure>,
) -> Result<(), Failure> {
    let address = own_address(&paths);
    let _state = StateDir::open(paths)?;
    let identity = identity()?;
    if force {
        keyfile::replace(path, &identity)?;
    } else {
        keyfile::create(path, &identity)?;
    }
    show(&identity, path, address, json)
}

fn import(file: &Path) -> Result<Identity, Failure> {
    let (from, secret) = if file == Path::new("-") {
        let input = io::stdin();
        if input.is_terminal() {
            let _ = writeln!(
                io::stderr(),
                "Paste the nsec, then press Enter and Ctrl-D. It will be visible."
            );
        }
        ("standard input".to_owned(), keyfile::read_secret(input.lock()))
    } else {
        let open = File::open(file).map_err(|source| Failure::ImportFile {
            path: file.to_owned(),
            source,
        })?;
        (file.display().to_string(), keyfile::read_secret(open))
    };
    match secret {
        Ok(secret) => Ok(Identity::new(secret)),
        Err(problem) => Err(Failure::Import { from, problem }),
    }
}

/// An address of this host at which other machines reach the node: that of the running daemon, or of
/// the configuration.
fn own_address(paths: &StatePaths) -> Option<SocketAddr> {
    let status = weft_control::call::<Status>(&paths.control(), &ControlCommand::Status {});
    let (listen, interface) = match status {
        Ok(status) => (status.node.listen, status.node.tun.name),
        Err(_) => {
            let config = config(paths).ok()?;
            (config.udp.listen, config.tun.name)
        }
    };
    let mut netlink = Netlink::open().ok()?;
    // The interface exists only while the daemon runs.
    let own = netlink.interface(&interface).map_or(0, |interface| interface.index);
    let surroundings = Surroundings::read(&mut netlink, &Subnets::default()).ok()?;
    let host = HostAddresses::of(&surroundings, own, &listen);
    let mut addresses = host.told.into_iter().filter(|address| address.port() != 0);
    let first = addresses.next()?;
    // More hosts have IPv4.
    Some(addresses.find(|at| first.is_ipv6() && at.is_ipv4()).unwrap_or(first))
}

fn text(identity: &Identity, address: Option<SocketAddr>) -> String {
    let (address, note) = match address {
        Some(address) => (address.to_string(), "where this node listens"),
        None => (
            "192.0.2.1:2121".to_owned(),
            "an example: put the address here at which this node is reached",
        ),
    };
    format!(
        "npub     {npub}\naddress  {}\nnode     {}\n\n\
         For the configuration of a peer, where no network is wanted:\n\n  \
         [[peer]]\n  \
         npub = \"{npub}\"\n  \
         addresses = [\"{address}\"]  # {note}; leave out if it dials the peer\n",
        identity.node_addr().to_ipv6(),
        identity.node_addr(),
        npub = identity.public(),
    )
}

#[cfg(test)]
mod tests {
    use weft_noise::SecretKey;

    use super::*;

    #[test]
    fn an_example_of_an_address_is_named_as_one() {
        let identity = Identity::new(SecretKey::from_bytes(&[1; 32]).unwrap());
        let own = text(&identity, Some("203.0.113.7:2121".parse().unwrap()));
        assert!(
            own.contains("\"203.0.113.7:2121\"") && !own.contains("example"),
            "{own}"
        );
        let none = text(&identity, None);
        assert!(none.contains("192.0.2.1:2121") && none.contains("example"), "{none}");
    }
}
