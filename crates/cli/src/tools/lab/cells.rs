//! `weft lab cells`: many tries of the cells of a scenario.

use std::path::PathBuf;

use weft_lab::scenario::file::Scenario;
use weft_lab::scenario::source::{Source, SourceError};
use weft_lab::scenario::tries::{self, Options};

use super::scenario::free_folder;
use crate::failure::Failure;
use crate::output::Out;
use crate::tools::ToolFailure;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A scenario's file, or the name of a built-in one (`weft lab list`)
    #[arg(value_name = "FILE|NAME")]
    from: String,
    /// Run this cell [default: all]
    #[arg(long, value_name = "NAME")]
    cell: Vec<String>,
    /// How often each cell runs, with the seeds from 1 on
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    tries: u32,
    /// How many runs there are at the same time
    #[arg(long, default_value_t = 2)]
    jobs: usize,
    /// Replace a value of the file in all runs
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// The folder for results of tries that are not as expected; must be empty [default: weft-lab/NAME-1, -2 and so on]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

pub(crate) fn run(args: Args) -> Result<(), Failure> {
    let mut out = Out::new();
    let source = Source::open(&args.from, &[])?;
    let all = Scenario::cells(&args.from, &source.text).map_err(SourceError::File)?;
    // A cell that does not exist is a fault of the command line.
    let only: Vec<_> = args.cell.iter().map(|cell| format!("cell={cell}")).collect();
    Source::open(&args.from, &only)?;
    let cells = if args.cell.is_empty() { all } else { args.cell };
    if cells.is_empty() {
        return Err(ToolFailure::NoCells(args.from).into());
    }
    let options = Options {
        from: args.from,
        cells: cells.clone(),
        tries: args.tries,
        jobs: args.jobs,
        settings: args.set,
        out: args.out.unwrap_or_else(|| free_folder(&source.scenario.name)),
        weft: std::env::current_exe().map_err(ToolFailure::OwnPath)?,
    };
    let done = tries::run(&options, &mut std::io::stdout().lock())?;
    out.text(&format!(
        "\n{}\n{}",
        tries::cells(&cells, &done),
        tries::pairs(&cells, &done)
    ))?;
    let missed = tries::missed(&cells, &done);
    if missed.is_empty() {
        return Ok(());
    }
    Err(ToolFailure::CellsMissed {
        cells: missed.join(", "),
        out: options.out,
    }
    .into())
}
