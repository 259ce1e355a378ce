//! Commands about the configuration: `peer add` and `peer remove`, `set`, `reload`, `confirm`, and
//! `config`.
//!
//! The command changes the file with the rights of its user, and asks a running daemon to read it
//! again. The daemon itself may not write the file.

mod change;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use weft_node::config::edit::{self, PeerChange};
use weft_node::config::{self, Config};
use weft_node::control::{self, ControlCommand};
use weft_node::peer::{PeerName, PeerRef};
use weft_node::state::StatePaths;
use weft_node::status::Reloaded;
use weft_noise::PublicKey;

use self::change::Change;
use crate::failure::Failure;
use crate::output::Out;

/// Options of each command that changes the configuration.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Take the change back after this time, as 60s or 5m, unless `weft confirm` comes
    #[arg(long, value_name = "TIME", value_parser = time)]
    confirm: Option<Duration>,
    /// Configuration [default: that of the running daemon, or weft.toml in the state directory]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

#[derive(Debug, clap::Subcommand)]
pub(crate) enum PeerAction {
    /// Add a peer, or change the name or the addresses of one
    Add {
        /// The peer's public key, from `weft identity show` there
        npub: PublicKey,
        /// Where it listens, as 192.0.2.2:2121; several times for several addresses; left out if it
        /// dials this node
        #[arg(long, value_name = "ADDRESS")]
        address: Vec<SocketAddr>,
        /// Its name on this node
        #[arg(long)]
        name: Option<PeerName>,
        #[command(flatten)]
        options: Options,
    },
    /// Remove a peer; its link and its session end
    Remove {
        /// The peer: its npub, name, NAME.fips or fd00 address
        peer: PeerRef,
        #[command(flatten)]
        options: Options,
    },
}

#[derive(Debug, clap::Args)]
pub(crate) struct SetArgs {
    /// The setting, as TABLE.KEY: mesh.open
    key: String,
    /// Its new value, as in the configuration; quotation marks can be left out
    #[arg(required_unless_present = "default")]
    value: Option<String>,
    /// Remove it from the configuration, so that its default applies
    #[arg(long, conflicts_with = "value")]
    default: bool,
    #[command(flatten)]
    options: Options,
}

#[derive(Debug, clap::Subcommand)]
pub(crate) enum ConfigAction {
    /// Show the configuration
    Show {
        /// Configuration [default: that of the running daemon, or weft.toml in the state directory]
        file: Option<PathBuf>,
    },
    /// Check the configuration without using it
    Check {
        /// Configuration [default: that of the running daemon, or weft.toml in the state directory]
        file: Option<PathBuf>,
    },
}

/// Reads 60s, 5m or 1h: 1 s to 1 day.
fn time(text: &str) -> Result<Duration, String> {
    let bad = || "write a number of seconds, minutes or hours, as 60s, 5m or 1h, up to 24h".to_owned();
    let at = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at_checked(at).ok_or_else(bad)?;
    let unit = match unit {
        "" | "s" => 1,
        "m" => 60,
        "h" => 3_600,
        _ => return Err(bad()),
    };
    let seconds = number.parse::<u64>().ok().and_then(|number| number.checked_mul(unit));
    let seconds = seconds.filter(|seconds| (1..=86_400).contains(seconds));
    seconds.map(Duration::from_secs).ok_or_else(bad)
}

pub(crate) fn peer(paths: &StatePaths, action: PeerAction) -> Result<(), Failure> {
    match action {
        PeerAction::Add {
            npub,
            address,
            name,
            options,
        } => {
            let change = Change::open(paths, &options)?;
            let known = change.config().peers.iter().any(|peer| peer.key == npub);
            let peer = PeerChange {
                key: npub,
                name,
                addresses: address,
            };
            let done = change.make(|text| edit::add_peer(text, &peer))?;
            let verb = if known { "changed" } else { "added" };
            report(&format!("{npub} {verb}"), &done)
        }
        PeerAction::Remove { peer, options } => {
            let change = Change::open(paths, &options)?;
            let mut peers = change.config().peers.iter();
            let found = peers.find(|known| peer.matches(&known.key, known.name.as_ref()));
            let Some(key) = found.map(|found| found.key) else {
                return Err(Failure::Usage(format!(
                    "the configuration has no peer named {peer}; `weft peers` lists them"
                )));
            };
            let done = change.make(|text| edit::remove_peer(text, &key))?;
            report(&format!("{key} removed"), &done)
        }
    }
}

pub(crate) fn set(paths: &StatePaths, args: &SetArgs) -> Result<(), Failure> {
    let change = Change::open(paths, &args.options)?;
    let done = change.make(|text| edit::set(text, &args.key, args.value.as_deref()))?;
    let what = match &args.value {
        Some(value) => format!("{} = {}", args.key, value.escape_debug()),
        None => format!("{} has its default", args.key),
    };
    report(&what, &done)
}

pub(crate) fn reload(paths: &StatePaths) -> Result<(), Failure> {
    let done: Reloaded = control::call(&paths.control(), &ControlCommand::Reload { confirm_s: None })?;
    report("read again", &Some(done))
}

pub(crate) fn confirm(paths: &StatePaths) -> Result<(), Failure> {
    let _: Reloaded = control::call(&paths.control(), &ControlCommand::Confirm {})?;
    Out::new().text("confirmed: the change stays\n")
}

pub(crate) fn config(paths: &StatePaths, action: ConfigAction) -> Result<(), Failure> {
    match action {
        ConfigAction::Show { file } => {
            let path = change::place(paths, file.as_deref());
            Out::new().text(&config::read_text(&path)?)
        }
        ConfigAction::Check { file } => {
            let path = change::place(paths, file.as_deref());
            let config = Config::load(&path)?;
            let peers = match config.peers.len() {
                1 => "1 peer".to_owned(),
                n => format!("{n} peers"),
            };
            Out::new().text(&format!("{}: valid, {peers}\n", path.display()))
        }
    }
}

/// Reports what was done, and what became of it in the daemon, if one runs.
fn report(what: &str, done: &Option<Reloaded>) -> Result<(), Failure> {
    let mut text = format!("{what}\n");
    let Some(done) = done else {
        text.push_str("no daemon is running; the change takes effect when one starts\n");
        return Out::new().text(&text);
    };
    if !done.at_start.is_empty() {
        text.push_str(&format!(
            "takes effect when weft starts again: {}\n",
            done.at_start.join(", ")
        ));
    }
    for refused in &done.refused {
        text.push_str(&format!("refused: {refused}\n"));
    }
    if let Some(seconds) = done.confirm_s {
        text.push_str(&format!("taken back in {seconds} s unless `weft confirm` comes\n"));
    }
    Out::new().text(&text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_a_unit_and_a_bound() {
        for (text, seconds) in [("60s", 60), ("60", 60), ("5m", 300), ("24h", 86_400)] {
            assert_eq!(time(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        for text in [
            "",
            "s",
            "0s",
            "-1s",
            "1d",
            "25h",
            "1.5s",
            "99999999999999999999s",
            "1 s",
        ] {
            assert!(time(text).is_err(), "{text}");
        }
    }
}
