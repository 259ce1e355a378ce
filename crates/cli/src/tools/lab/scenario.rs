//! `weft lab run` and `weft lab list`: scenarios.

use std::path::PathBuf;

use weft_lab::scenario::run::{self, Options, Outcome};
use weft_lab::scenario::source::{READY, Source};
use weft_lab::scenario::story::Style;

use crate::failure::Failure;
use crate::output::Out;
use crate::tools::ToolFailure;

#[derive(Debug, clap::Args)]
pub(crate) struct Run {
    /// A scenario's file, or the name of a built-in one (`weft lab list`)
    #[arg(value_name = "FILE|NAME")]
    from: String,
    /// The folder for logs, statuses, captures and results; must be empty [default: weft-lab/NAME-1, -2 and so on]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Replace a value of the file: link.uplink.delay=50ms, host.a.config.udp.mtu=1232, seed=7
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Capture the frames of this link, or of all
    #[arg(long, value_name = "LINK|all")]
    pcap: Vec<String>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct List {
    /// Print the file of this scenario
    name: Option<String>,
}

pub(crate) fn run(args: Run) -> Result<(), Failure> {
    let source = Source::open(&args.from, &args.set)?;
    let out = args.out.unwrap_or_else(|| free_folder(&source.scenario.name));
    let options = Options {
        source,
        settings: args.set,
        out: Some(out),
        pcap: args.pcap,
        weft: std::env::current_exe().map_err(ToolFailure::OwnPath)?,
        style: Style::Steps,
        keep: false,
        stop_at_failure: false,
    };
    let outcome = perform(&options)?;
    let text = format!("{} steps, all as expected: {}\n", outcome.steps, outcome.out.display());
    Out::new().text(&text)
}

/// Runs a scenario; a failed step is a failure.
pub(crate) fn perform(options: &Options) -> Result<Outcome, Failure> {
    let outcome = run::run(options, &mut std::io::stdout().lock())?;
    if outcome.failed > 0 {
        return Err(ToolFailure::LabFailed {
            failed: outcome.failed,
            steps: outcome.steps,
            out: outcome.out,
        }
        .into());
    }
    Ok(outcome)
}

pub(crate) fn list(args: &List) -> Result<(), Failure> {
    let mut out = Out::new();
    match &args.name {
        Some(name) => out.text(&Source::open(name, &[])?.text),
        None => {
            for ready in READY {
                let about = Source::open(ready.name, &[])?.scenario.about;
                out.text(&format!("{:<18}  {about}\n", ready.name))?;
            }
            Ok(())
        }
    }
}

/// The first folder of this scenario that does not exist.
pub(super) fn free_folder(name: &str) -> PathBuf {
    let folder = |number: u32| PathBuf::from("weft-lab").join(format!("{name}-{number}"));
    (1..)
        .map(folder)
        .find(|folder| !folder.exists())
        .unwrap_or_else(|| folder(0))
}
