//! `weft version`: version and commit of this build.

use serde_json::json;
use weft_control::status::Version;

use crate::failure::Failure;
use crate::output::Out;

/// Version and commit, as `--version` shows them.
pub(crate) const LINE: &str = weft_control::VERSION_LINE;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Print the document weft.version/1
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let mut out = Out::new();
    match args.json {
        true => out.json(&json!(Version::of_this_build())),
        false => out.text(&format!("weft {LINE}\n")),
    }
}
