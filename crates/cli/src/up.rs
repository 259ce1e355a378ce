//! `weft up`: the daemon in the foreground.

use std::path::{Path, PathBuf};

use weft_node::Identity;
use weft_node::config::{Config, ConfigError};
use weft_node::daemon;
use weft_node::keyfile::{self, KeyFileError};
use weft_node::logging::{self, LogFilter};
use weft_node::state::{StateDir, StatePaths};
use weft_os::process::forbid_core_dumps;

use crate::failure::Failure;
use crate::output::Out;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Configuration [default: weft.toml in the state directory]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// What to log: error, warn, info, debug, trace, or directives [default: log.level]
    #[arg(long, value_name = "LEVEL")]
    log: Option<LogFilter>,
}

pub(crate) fn run(paths: StatePaths, args: &Args) -> Result<(), Failure> {
    // Before the key is in memory.
    forbid_core_dumps()?;
    // Read before anything is made, so that a wrong file leaves nothing behind.
    let path = args.config.clone().unwrap_or_else(|| paths.config());
    let (config, new_config) = match Config::load(&path) {
        Err(ConfigError::NotFound { .. }) if args.config.is_none() => (Config::default(), true),
        config => (config?, false),
    };
    let state = StateDir::open(paths)?;
    let key = state.paths().key(&config);
    let (identity, new_key) = match keyfile::load(&key) {
        Err(KeyFileError::Missing(_)) => {
            let identity = keyfile::generate()?;
            keyfile::create(&key, &identity)?;
            (identity, true)
        }
        identity => (identity?, false),
    };
    config.refuse_self(&identity.public(), &key)?;
    if new_config {
        Config::write_starter(&path)?;
    }
    if new_config || new_key {
        Out::new().text(&welcome(&identity, &path))?;
    }
    logging::init(args.log.as_ref().unwrap_or(&config.log.filter), config.log.format)?;
    daemon::run(daemon::Options {
        state,
        config,
        identity,
        // By the system's own link: the file may have been replaced by the time it is needed.
        program: PathBuf::from("/proc/self/exe"),
    })?;
    Ok(())
}

/// What to do next, at first use.
fn welcome(identity: &Identity, config: &Path) -> String {
    format!(
        "This node is new. Its public key, and its address in the mesh:\n\n  {}\n  {}\n\n\
         To add a peer, write this into {} and start `weft up` again:\n\n  \
         [[peer]]\n  \
         npub = \"npub1...\"                # the peer's, from `weft identity show` there\n  \
         addresses = [\"192.0.2.2:2121\"]  # where it listens; leave out if it dials this node\n\n\
         The peer needs the same with this node's public key. `weft status` shows how far it has come.\n",
        identity.public(),
        identity.node_addr().to_ipv6(),
        config.display()
    )
}
