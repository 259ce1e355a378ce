//! `weft demo`: five nodes in namespaces of this host.

use weft_lab::demo::{self, Options};

use crate::failure::Failure;
use crate::tools::ToolFailure;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Print the document weft.demo/1 at the end
    #[arg(long)]
    json: bool,
    /// Leave the nodes running until Ctrl-C, and their files for good
    #[arg(long)]
    keep: bool,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    demo::run(&Options {
        json: args.json,
        keep: args.keep,
        weft: std::env::current_exe().map_err(ToolFailure::OwnPath)?,
    })?;
    Ok(())
}
