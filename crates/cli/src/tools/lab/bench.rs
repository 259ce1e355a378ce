//! `weft lab bench`: tunnels side by side.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use weft_lab::bench::arm::{Arm, parse_arms};
use weft_lab::bench::conditions::{Conditions, MAX_CLIENTS, Queue, Regime};
use weft_lab::bench::experiment::{Experiment, ExperimentError, FOLDER};
use weft_lab::bench::matrix::{Case, DEFAULT, parse_cases};
use weft_lab::bench::{self, Options};

use crate::failure::Failure;
use crate::output::Out;
use crate::tools::ToolFailure;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The arms to compare, with commas between: `[LABEL=]KIND[@BINARY][+KEY=VALUE]`, where KIND is
    /// direct, null, weft, fips, nvpn, wireguard-go, boringtun, gotatun, nebula or meshguard.
    /// Ratios are to the first
    #[arg(long, value_name = "ARMS", default_value = "direct,null,weft", value_parser = parse_arms)]
    arms: Arms,
    /// The cases to measure, with commas between, or all for all loads: tcp, tcp-back, tcp4, tcp8, udp500, pps64,
    /// pps1200, quic [default: these], tcp2, udp2000, the others with -back, tcp-rubbish, and the
    /// events restart, rejoin and roam. Cases without -back are uploads, those with -back downloads
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
    /// Let the cable carry UDP datagram by datagram, like a wire. Emulated cables always do
    #[arg(long, conflicts_with_all = ["delay", "loss", "rate"])]
    wire: bool,
    /// Delay of each cable in each direction, such as 13 for a round trip of 26 ms
    #[arg(long, value_name = "MS", value_parser = delay)]
    delay: Option<Duration>,
    /// Share of packets that each cable loses in each direction
    #[arg(long, value_name = "PERCENT", value_parser = loss)]
    loss: Option<f64>,
    /// Rate of each cable in each direction
    #[arg(long, value_name = "MBIT", value_parser = rate)]
    rate: Option<u64>,
    /// Queue before the rate: bytes, or the time that the rate takes to empty it, such as 50ms
    /// [default: 262144]
    #[arg(long, value_name = "BYTES|MS", requires = "rate")]
    queue: Option<Queue>,
    /// MTU inside every arm, in bytes, so that they send equal packets [default: each program's own]
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(1280..=1500))]
    mtu: Option<u32>,
    /// Threads that forward packets, in every arm that lets them be set: lanes of weft, GOMAXPROCS
    /// of programs in Go, --threads of boringtun [default: each program's own]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    threads: Option<u16>,
    /// Put a relay between client and server. For direct, null, weft, wireguard-go, boringtun and
    /// gotatun
    #[arg(long)]
    relayed: bool,
    /// Number of clients of the relay, which send or receive at the same time
    #[arg(long, value_name = "N", default_value_t = 1, requires = "relayed", value_parser = clap::value_parser!(u16).range(1..=i64::from(MAX_CLIENTS)))]
    clients: u16,
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

fn delay(text: &str) -> Result<Duration, String> {
    let ms = number(text, 0.0..=10_000.0).ok_or("write 0 to 10000 ms, such as 13 or 0.5")?;
    Ok(Duration::from_secs_f64(ms * 1e-3))
}

/// A share of 0 to 1, from percent.
fn loss(text: &str) -> Result<f64, String> {
    let percent = number(text, 0.0..=90.0).ok_or("write 0 to 90 %, such as 0.1")?;
    Ok(percent / 100.0)
}

/// Bits a second, from Mbit/s.
fn rate(text: &str) -> Result<u64, String> {
    let mbit = number(text, 0.1..=100_000.0).ok_or("write 0.1 to 100000 Mbit/s, such as 500")?;
    Ok((mbit * 1e6) as u64)
}

fn number(text: &str, range: RangeInclusive<f64>) -> Option<f64> {
    text.parse().ok().filter(|number| range.contains(number))
}

fn experiment(name: &str) -> Result<Experiment, ExperimentError> {
    Experiment::new(FOLDER.as_ref(), name)
}

pub(crate) fn run(args: Args) -> Result<(), Failure> {
    let record = args.record.as_ref().map(|record| record.path().to_owned());
    let options = Options {
        arms: args.arms,
        cases: args.cases.unwrap_or_else(|| DEFAULT.to_vec()),
        rounds: args.rounds,
        seconds: args.seconds,
        out: args.out,
        conditions: Conditions {
            relayed: args.relayed,
            clients: args.clients,
            wire: args.wire,
            regime: Regime {
                delay: args.delay.unwrap_or_default(),
                loss: args.loss.unwrap_or_default(),
                rate: args.rate,
                queue: args.queue,
            },
            congestion: args.congestion,
            mtu: args.mtu,
            threads: args.threads,
        },
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
