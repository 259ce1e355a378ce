//! `weft broker`: the part of the daemon with root's rights. The daemon starts it, with a socket as
//! standard input.

use std::path::PathBuf;

use weft_host::broker::{self, Options};
use weft_noise::PublicKey;

use crate::failure::Failure;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The number of the daemon's interface
    #[arg(long, value_name = "NUMBER")]
    interface: u32,
    /// The public key of the daemon
    #[arg(long, value_name = "NPUB")]
    key: PublicKey,
    /// The configuration of the daemon
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The file in the form of resolv.conf(5) that may be replaced
    #[arg(long, value_name = "FILE")]
    resolv_conf: Option<PathBuf>,
}

pub(crate) fn run(args: Args) -> Result<(), Failure> {
    broker::serve(Options {
        interface: args.interface,
        key: args.key,
        config: args.config,
        resolv_conf: args.resolv_conf,
    })?;
    Ok(())
}
