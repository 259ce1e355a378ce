//! `weft lab`: topologies and measurements in namespaces of this host.

mod compare;
mod hold;
mod null;
pub(super) mod scenario;

use std::path::PathBuf;

use weft_lab::bench::arm::{Arm, parse_arms};
use weft_lab::bench::experiment::{Experiment, ExperimentError, FOLDER};
use weft_lab::bench::matrix::{Case, DEFAULT, parse_cases};
use weft_lab::bench::{self, Options};

use crate::failure::Failure;
use crate::output::Out;
use crate::tools::ToolFailure;

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Action {
    /// Run a scenario: build its hosts, NAT boxes and links, run its steps, report the results
    Run(scenario::Run),
    /// List the built-in scenarios, or print one
    List(scenario::List),
    /// Build a scenario's hosts, NAT boxes and links, start its nodes, and keep them in the background
    Up(hold::Up),
    /// Run a command, or a shell, on a host of the running lab
    Exec(hold::Exec),
    /// End the running lab
    Down,
    /// Hold a lab in the background
    #[command(hide = true)]
    Hold(hold::Hold),
    /// Measure tunnels side by side, weft's and others
    Bench(Bench),
    /// Compare two benches
    Compare(compare::Args),
    /// Run one end of the null tunnel: no cryptography, the lower bound of cost
    #[command(hide = true)]
    Null(null::Args),
}

#[derive(Debug, clap::Args)]
pub(crate) struct Bench {
    /// The arms to compare, with commas between: `[LABEL=]KIND[@BINARY][+KEY=VALUE]`, where KIND is
    /// direct, null, weft, fips, nvpn, wireguard-go, boringtun, gotatun, nebula or meshguard.
    /// Ratios are to the first
    #[arg(long, value_name = "ARMS", default_value = "direct,null,weft", value_parser = parse_arms)]
    arms: Arms,
    /// The cases to measure, with commas between, or all: tcp, tcp-back, tcp4, tcp8, udp500, pps64,
    /// pps1200, quic [default: these], the others with -back, udp2000, udp2000-back and
    /// tcp-rubbish. Cases without -back are uploads, those with -back downloads
    #[arg(long, value_name = "CASES", value_parser = cases)]
    cases: Option<Cases>,
    /// Number of rounds; 5 or more for reliable figures
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Duration of the load of each case
    #[arg(long, value_name = "SECS", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=3600))]
    seconds: u32,
    /// The folder for the results
    #[arg(long, value_name = "FOLDER", default_value = "weft-bench")]
    out: PathBuf,
    /// Create the record docs/experiments/DATE-NAME.md with the tables, to be completed by hand
    #[arg(long, value_name = "NAME", value_parser = experiment)]
    record: Option<Experiment>,
    /// Congestion control of the load's TCP
    #[arg(long, value_name = "NAME", default_value = "cubic")]
    congestion: String,
    /// Let the cable carry UDP datagram by datagram, like a wire
    #[arg(long)]
    wire: bool,
    /// Let two arms be the same program with the same settings, to show the noise
    #[arg(long)]
    same: bool,
}

/// Clap takes a `Vec` for an option that may be repeated.
type Arms = Vec<Arm>;
type Cases = Vec<Case>;

fn cases(text: &str) -> Result<Cases, String> {
    parse_cases(text).map_err(|name| format!("no case is called {name:?}"))
}

fn experiment(name: &str) -> Result<Experiment, ExperimentError> {
    Experiment::new(FOLDER.as_ref(), name)
}

pub(crate) fn run(action: Action) -> Result<(), Failure> {
    match action {
        Action::Run(args) => scenario::run(args),
        Action::List(args) => scenario::list(&args),
        Action::Up(args) => hold::up(&args),
        Action::Exec(args) => hold::exec(&args),
        Action::Down => hold::down(),
        Action::Hold(args) => hold::hold(&args),
        Action::Bench(args) => bench(args),
        Action::Compare(args) => compare::run(&args),
        Action::Null(args) => null::run(&args),
    }
}

fn bench(args: Bench) -> Result<(), Failure> {
    let record = args.record.as_ref().map(|record| record.path().to_owned());
    let options = Options {
        arms: args.arms,
        cases: args.cases.unwrap_or_else(|| DEFAULT.to_vec()),
        rounds: args.rounds,
        seconds: args.seconds,
        out: args.out,
        congestion: args.congestion,
        wire: args.wire,
        weft: std::env::current_exe().map_err(ToolFailure::OwnPath)?,
        same: args.same,
        command: command(),
        record: args.record,
    };
    let outcome = bench::run(&options, &mut std::io::stdout().lock()).map_err(ToolFailure::Bench)?;
    let mut out = Out::new();
    let report = outcome.report.display();
    out.text(&format!(
        "\n{} runs, {} void, {} arms missing: {report}\n",
        outcome.runs, outcome.void, outcome.missing
    ))?;
    if let Some(record) = record {
        out.text(&format!("Record: {}; complete it by hand.\n", record.display()))?;
    }
    match outcome.void + outcome.missing {
        0 => Ok(()),
        _ => Err(ToolFailure::Incomplete.into()),
    }
}

/// The command line as entered, without the path of the program.
fn command() -> String {
    let arguments = std::env::args().skip(1);
    std::iter::once("weft".to_owned())
        .chain(arguments)
        .collect::<Vec<_>>()
        .join(" ")
}
