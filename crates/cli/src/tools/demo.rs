//! `weft demo`: the built-in scenario `demo`, printed chapter by chapter.

use weft_lab::scenario::run::Options;
use weft_lab::scenario::source::Source;
use weft_lab::scenario::story::Style;

use super::lab::scenario::perform;
use crate::failure::Failure;
use crate::tools::ToolFailure;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Print the document weft.lab/1 at the end
    #[arg(long)]
    json: bool,
    /// Leave the nodes running until Ctrl-C, and their files for good
    #[arg(long)]
    keep: bool,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    perform(&Options {
        source: Source::open("demo", &[])?,
        settings: Vec::new(),
        out: None,
        pcap: Vec::new(),
        weft: std::env::current_exe().map_err(ToolFailure::OwnPath)?,
        style: if args.json { Style::Json } else { Style::Story },
        keep: args.keep,
        stop_at_failure: true,
    })?;
    Ok(())
}
