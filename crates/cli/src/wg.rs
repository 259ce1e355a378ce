//! Commands about guests, which are devices with WireGuard: `wg add`, `wg list`, `wg show`, `wg remove`.

mod text;

use std::fs::{File as OpenFile, OpenOptions};
use std::io::{self, IsTerminal as _, Write as _};
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use weft_control::status::{GuestAdded, GuestList};
use weft_control::{ControlCommand, GuestSecret, NetworkCommand};
use weft_os::random::SystemRng;
use weft_roster::names::Name;
use weft_store::state::StatePaths;
use weft_wire::Subnet;
use weft_wireguard::config::{Endpoint, File, Host, Interface, Peer, Table};
use weft_wireguard::keys::{PresharedKey, PrivateKey, PublicKey};
use zeroize::Zeroizing;

use crate::failure::Failure;
use crate::network::{qr_code, tag};
use crate::output::{Out, answer, tell};

/// The interval in which a guest sends in any case, in seconds: shorter than the time for which NATs keep a mapping
/// of UDP, 30 s and more.
const KEEPALIVE: u16 = 25;

#[derive(Debug, clap::Subcommand)]
pub(crate) enum WgAction {
    /// Take a device with WireGuard as guest of this machine, and print the file for it
    Add(Box<AddArgs>),
    /// List the guests of the networks
    List(WgListArgs),
    /// Show one guest in detail
    Show(WgShowArgs),
    /// Remove a guest: its file works no longer
    Remove(WgRemoveArgs),
}

#[derive(Debug, clap::Args)]
pub(crate) struct AddArgs {
    /// The name of the device: letters a to z, digits, hyphens
    name: String,
    /// A tag that the device gets, which rules name; several times for several tags
    #[arg(long, value_name = "TAG", value_parser = tag)]
    tag: Vec<String>,
    /// Its address in the network [default: one that is free]
    #[arg(long, value_name = "IPV4")]
    ip: Option<Ipv4Addr>,
    /// Its public key, if the device has made its key pair itself [default: one is made now]
    #[arg(long, value_name = "KEY")]
    key: Option<PublicKey>,
    /// Where the device reaches this machine, as vpn.example.org or 203.0.113.7:51820; the port is that of this machine
    /// if it is left out [default: an address of its interfaces]
    #[arg(long, value_name = "ADDRESS")]
    endpoint: Option<String>,
    /// Protect it by its key alone, without a preshared key
    #[arg(long)]
    no_psk: bool,
    /// The interval in which the device sends in any case, in seconds; 0 for none
    #[arg(long, value_name = "SECONDS", default_value_t = KEEPALIVE)]
    keepalive: u16,
    /// Write the file to this path, which must not exist yet, instead of printing it
    #[arg(long, value_name = "PATH", conflicts_with = "json")]
    out: Option<PathBuf>,
    /// Print the file as a QR code as well, also if the terminal is too small or there is none
    #[arg(long, conflicts_with_all = ["no_qr", "json"])]
    qr: bool,
    /// Print no QR code
    #[arg(long)]
    no_qr: bool,
    /// Print the document weft.guest-added/1, with the file in it
    #[arg(long)]
    json: bool,
    /// The network, if this node is in several: its name or identifier
    #[arg(long, value_name = "NAME")]
    network: Option<String>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct WgListArgs {
    /// Print the document weft.guests/1
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct WgShowArgs {
    /// The guest: its name, address or public key
    guest: String,
    /// Print the document weft.guests/1 with this guest alone
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct WgRemoveArgs {
    /// The guest: its name, address or public key
    guest: String,
    /// Print the document weft.guests/1
    #[arg(long)]
    json: bool,
    /// The network, if this node is in several: its name or identifier
    #[arg(long, value_name = "NAME")]
    network: Option<String>,
}

pub(crate) fn wg(paths: &StatePaths, action: WgAction) -> Result<(), Failure> {
    match action {
        WgAction::Add(args) => add(paths, &args),
        WgAction::List(args) => {
            let command = ControlCommand::Network(NetworkCommand::Guests {});
            answer(paths, &command, args.json, text::list)
        }
        WgAction::Show(args) => show(paths, &args),
        WgAction::Remove(args) => {
            let named = args.guest.clone();
            let command = ControlCommand::Network(NetworkCommand::RemoveGuest {
                network: args.network,
                guest: args.guest,
            });
            answer(paths, &command, args.json, |_: &GuestList| text::removed(&named))
        }
    }
}

fn show(paths: &StatePaths, args: &WgShowArgs) -> Result<(), Failure> {
    let command = ControlCommand::Network(NetworkCommand::Guests {});
    let mut list: GuestList = weft_control::call(&paths.control(), &command)?;
    list.guests.retain(|guest| text::is(guest, &args.guest));
    if list.guests.is_empty() {
        let named = args.guest.escape_debug();
        return Err(Failure::Usage(format!(
            "no guest is {named}; `weft wg list` lists them"
        )));
    }
    match args.json {
        true => Out::new().json(&serde_json::to_value(&list).map_err(io::Error::from)?),
        false => Out::new().text(&text::details(&list)),
    }
}

/// The key of a new guest.
enum GuestKey {
    /// It is made here, and the file has it.
    Made(PrivateKey),
    /// The device has made it.
    Brought(PublicKey),
}

impl GuestKey {
    fn public(&self) -> PublicKey {
        match self {
            Self::Made(private) => private.public(),
            Self::Brought(public) => *public,
        }
    }
}

fn add(paths: &StatePaths, args: &AddArgs) -> Result<(), Failure> {
    // Bad arguments are refused before a key is made.
    Name::host(&args.name)?;
    let endpoint = args.endpoint.as_deref().map(Wanted::read).transpose()?;
    let out = args.out.as_deref().map(create).transpose()?;
    let key = match args.key {
        Some(public) => GuestKey::Brought(public),
        None => GuestKey::Made(PrivateKey::generate(&mut SystemRng)),
    };
    let preshared = (!args.no_psk).then(|| PresharedKey::generate(&mut SystemRng));
    let command = ControlCommand::Network(NetworkCommand::AddGuest {
        network: args.network.clone(),
        name: args.name.clone(),
        key: key.public().to_string(),
        preshared: preshared
            .as_ref()
            .map(|secret| GuestSecret(secret.to_text().to_string())),
        tags: args.tag.clone(),
        ipv4: args.ip,
    });
    let added: Result<GuestAdded, _> = weft_control::call(&paths.control(), &command);
    let mut added = match (added, &args.out) {
        (Ok(added), _) => added,
        (Err(error), path) => {
            path.iter().for_each(|path| drop(std::fs::remove_file(path)));
            return Err(error.into());
        }
    };
    let file = file_text(&added, (&key, preshared), endpoint, args.keepalive)?;
    if args.json {
        added.file = Some(file.to_string());
        return Out::new().json(&serde_json::to_value(&added).map_err(io::Error::from)?);
    }
    let forced = if args.qr {
        Some(true)
    } else {
        args.no_qr.then_some(false)
    };
    let qr = match (&key, &args.out) {
        // A file that goes to a program is for no camera, and one without its key is not complete.
        (GuestKey::Brought(_), _) | (_, Some(_)) if forced.is_none() => String::new(),
        _ => qr_code(&file, forced, "weft wg add --qr"),
    };
    let about = text::added(&added, &qr, args.out.as_deref(), matches!(key, GuestKey::Brought(_)));
    match out {
        Some((path, mut out)) => {
            let written = out.write_all(file.as_bytes()).and_then(|()| out.sync_all());
            written.map_err(|source| Failure::GuestFile { path, source })?;
        }
        None => Out::new().text(&file)?,
    }
    tell(args.out.is_none() && !io::stdout().is_terminal(), &about)
}

/// Creates a file for a guest, which its owner alone may read.
fn create(path: &Path) -> Result<(PathBuf, OpenFile), Failure> {
    let created = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    let path = path.to_owned();
    match created {
        Ok(file) => Ok((path, file)),
        Err(source) => Err(Failure::GuestFile { path, source }),
    }
}

/// The endpoint that a user wants in the file.
struct Wanted {
    host: Host,
    port: Option<u16>,
}

impl Wanted {
    fn read(text: &str) -> Result<Self, Failure> {
        let bare = text.parse::<IpAddr>().ok().map(Host::Address);
        let with_port = |text: &str| text.parse::<Endpoint>().ok();
        if let Some(host) = bare {
            return Ok(Self { host, port: None });
        }
        if let Some(endpoint) = with_port(text) {
            let port = Some(endpoint.port);
            return Ok(Self {
                host: endpoint.host,
                port,
            });
        }
        match with_port(&format!("{text}:1")) {
            Some(endpoint) => Ok(Self {
                host: endpoint.host,
                port: None,
            }),
            None => Err(Failure::Usage(format!(
                "--endpoint {} is malformed; write a name or an address, with a port or without, as vpn.example.org or \
                 203.0.113.7:51820",
                text.escape_debug()
            ))),
        }
    }
}

/// Returns the text of the file of a guest.
fn file_text(
    added: &GuestAdded,
    (key, preshared): (&GuestKey, Option<PresharedKey>),
    endpoint: Option<Wanted>,
    keepalive: u16,
) -> Result<Zeroizing<String>, Failure> {
    let malformed = |what: &str| Failure::Usage(format!("the daemon names {what} that is malformed"));
    let first = added.endpoints.first().copied();
    let own_port = first.map_or(0, |at| at.port());
    let endpoint = match endpoint {
        Some(wanted) => Some(Endpoint {
            host: wanted.host,
            port: wanted.port.unwrap_or(own_port),
        }),
        None => first.map(|at| Endpoint {
            host: Host::Address(at.ip()),
            port: at.port(),
        }),
    };
    // Datagrams of the tunnel itself would go into the tunnel.
    let outside = |subnet: &Result<Subnet, _>| match (subnet, endpoint.as_ref().map(|at| &at.host)) {
        (Ok(subnet), Some(Host::Address(ip))) => !subnet.contains(*ip),
        _ => true,
    };
    let allowed = added.allowed_ips.iter().map(|subnet| subnet.parse()).filter(outside);
    let private_key = match key {
        GuestKey::Made(private) => private.clone(),
        GuestKey::Brought(_) => PrivateKey::from_bytes([0; 32]),
    };
    let placeholder = private_key.to_text();
    let file = File {
        interface: Interface {
            private_key,
            listen_port: None,
            mark: None,
            addresses: vec![(IpAddr::V4(added.ipv4), 32)],
            dns: Vec::new(),
            search: Vec::new(),
            mtu: Some(added.mtu),
            table: Table::Auto,
        },
        peers: vec![Peer {
            public_key: added.host_key.parse().map_err(|_| malformed("a key"))?,
            preshared_key: preshared,
            allowed_ips: allowed.collect::<Result<_, _>>().map_err(|_| malformed("a subnet"))?,
            endpoint,
            keepalive: (keepalive > 0).then_some(keepalive),
        }],
    };
    let text = file.to_text();
    Ok(match key {
        GuestKey::Made(_) => text,
        GuestKey::Brought(public) => Zeroizing::new(text.replacen(
            &format!("PrivateKey = {}", placeholder.as_str()),
            &format!("# The device has the PrivateKey of {public}; put it here:\n# PrivateKey ="),
            1,
        )),
    })
}

#[cfg(test)]
mod tests;
