//! `weft up`: the daemon in the foreground.

use std::fs;
use std::io::{self, IsTerminal as _};
use std::path::{Path, PathBuf};

use rustix::process::geteuid;
use weft_config::log::LogFilter;
use weft_config::{Config, ConfigError, Pending, edit};
use weft_node::daemon::{self, DaemonError};
use weft_node::logging;
use weft_noise::Identity;
use weft_os::clock::unix_s;
use weft_os::process::forbid_core_dumps;
use weft_store::keyfile::{self, KeyFileError};
use weft_store::network_files;
use weft_store::state::{StateDir, StatePaths};

use crate::failure::Failure;
use crate::human;
use crate::output::Out;
use crate::strict;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Configuration [default: weft.toml in the state directory]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// What to log: error, warn, info, debug, trace, or directives [default: log.level]
    #[arg(long, value_name = "LEVEL")]
    log: Option<LogFilter>,
    /// The first steps are those of `create` and `join`, which start the daemon
    #[arg(long, hide = true)]
    for_network: bool,
}

pub(crate) fn run(paths: StatePaths, args: &Args) -> Result<(), Failure> {
    // Called before the key is in memory.
    forbid_core_dumps()?;
    // Read before any file is created, so that a wrong configuration leaves nothing behind.
    let path = args.config.clone().unwrap_or_else(|| paths.config());
    // A change that was not confirmed must not outlive a crash.
    let (pending, taken_back) = Pending::settle(&path, unix_s())?;
    let (mut config, new_config) = match Config::load(&path) {
        Err(ConfigError::NotFound { .. }) if args.config.is_none() => {
            strict::refuse_first_start(&path).inspect_err(|_| strict::stay_closed(&path))?;
            (Config::default(), true)
        }
        config => (config.inspect_err(|_| strict::stay_closed(&path))?, false),
    };
    // For messages of the daemon, whose working directory is a different one.
    config.path = Some(std::path::absolute(&path).unwrap_or_else(|_| path.clone()));
    let stored = keyfile::load(&paths.key(&config));
    let new_key = match &stored {
        Err(KeyFileError::Missing(path)) => {
            config.refuse_new_key(path)?;
            refuse_lost_key(&paths, path)?;
            true
        }
        _ => false,
    };
    if new_key || new_config {
        // A user without rights, or beside a running node, does not get a second identity.
        daemon::check(&config).map_err(beside_root)?;
    }
    let state = StateDir::open(paths)?;
    let key = state.paths().key(&config);
    let identity = if new_key {
        let identity = keyfile::generate()?;
        keyfile::create(&key, &identity)?;
        identity
    } else {
        stored?
    };
    config.refuse_self(&identity.public(), &key)?;
    if new_config {
        Config::write_starter(&path)?;
    }
    if new_config || new_key {
        Out::new().text(&welcome(&identity, &path, args.for_network))?;
    }
    let told = args.for_network && io::stderr().is_terminal();
    let filter = match &args.log {
        Some(given) => given.clone(),
        None => filter(&config.log.filter, sets_level(&path), told),
    };
    let log = logging::init(&filter, config.log.format)?;
    daemon::run(daemon::Options {
        state,
        config,
        identity,
        // The system's own link: the file may have been replaced by the time it is needed.
        program: PathBuf::from("/proc/self/exe"),
        log: args.log.is_none().then_some(log),
        confirm: pending.and_then(|pending| pending.left(unix_s())),
        taken_back,
    })?;
    Ok(())
}

/// Whether the configuration sets the level of the log.
fn sets_level(path: &Path) -> bool {
    let text = weft_config::read_text(path);
    text.is_ok_and(|text| edit::value_of(&text, "log.level").is_some())
}

/// The filter of the log. `chosen`: the configuration sets it. `told`: the command that starts the daemon says on the same
/// terminal what happens, and lines of the log would stand between its own.
fn filter(configured: &LogFilter, chosen: bool, told: bool) -> LogFilter {
    match told && !chosen {
        true => LogFilter::warn(),
        false => configured.clone(),
    }
}

/// Refuses a new key where networks know this machine by the one that is missing.
fn refuse_lost_key(paths: &StatePaths, key: &Path) -> Result<(), Failure> {
    match network_files::files(paths.directory()).len() {
        0 => Ok(()),
        networks => Err(Failure::KeyLost {
            key: key.to_owned(),
            networks: human::count(networks, "network"),
        }),
    }
}

/// The reason why a user cannot have a node of its own, with root's node if that is what it looks for.
fn beside_root(error: DaemonError) -> Failure {
    let has_socket = fs::symlink_metadata(StatePaths::system().control()).is_ok();
    match !geteuid().is_root() && has_socket {
        true => Failure::BesideRoot(error),
        false => error.into(),
    }
}

/// The next steps, at first use. `for_network`: the command that starts the daemon says them itself.
fn welcome(identity: &Identity, config: &Path, for_network: bool) -> String {
    let steps = match for_network {
        true => "",
        false => {
            "For a private network, run this in another terminal: `weft create NAME`, or `weft join` with the code of an invite.\n\
             To add a peer alone, the same here and, with this node's public key, at the peer:\n\n  \
             weft peer add npub1... --address 192.0.2.2:2121\n\n\
             The npub is from `weft identity show` there. Leave --address out if the peer dials this node.\n"
        }
    };
    format!(
        "This node is new. Its public key, and its address in the mesh:\n\n  {}\n  {}\n\n{steps}\
         `weft status` shows the state of each peer, Ctrl-C stops this node, and its configuration is\n{}\n",
        identity.public(),
        identity.node_addr().to_ipv6(),
        config.display()
    )
}

#[cfg(test)]
mod tests {
    use weft_noise::SecretKey;

    use super::*;

    #[test]
    fn a_log_beside_the_texts_of_a_command_has_warnings_alone() {
        let [info, debug]: [LogFilter; 2] = ["info", "debug"].map(|level| level.parse().unwrap());
        let of = |configured: &LogFilter, chosen, told| filter(configured, chosen, told).as_str().to_owned();
        assert_eq!(of(&info, false, true), "warn");
        assert_eq!(of(&info, true, true), "info", "the user's own choice");
        assert_eq!(of(&debug, true, true), "debug");
        assert_eq!(of(&info, false, false), "info");
    }

    #[test]
    fn a_node_of_a_network_is_not_told_to_add_peers() {
        let identity = Identity::new(SecretKey::from_bytes(&[1; 32]).unwrap());
        let text = |for_network| welcome(&identity, Path::new("/var/lib/weft/weft.toml"), for_network);
        assert!(text(false).contains("weft peer add") && text(false).contains("weft create"));
        assert!(!text(true).contains("peer add") && text(true).contains("/var/lib/weft/weft.toml"));
    }
}
