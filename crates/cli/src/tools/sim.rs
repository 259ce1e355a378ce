//! `weft sim`: meshes on a virtual clock, with the code that the daemon runs.

mod report;

use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::ValueEnum;
use weft_sim::scenario::{Failure as Failed, Figures, Plan, Scenario};
use weft_sim::{Conditions, Shape};

use crate::failure::Failure;
use crate::output::Out;
use crate::tools::ToolFailure;

/// Maximum number of runs that shrinking a scenario may take.
const SHRINK_RUNS: u32 = 500;
/// Number of hosts up to which every turn is followed by a check of the invariants.
const CHECK_ALL: usize = 100;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Run this scenario, in the format of --print and of failures, instead of generating one
    #[arg(value_name = "FILE", conflicts_with_all = ["topology", "nodes", "degree", "pairs", "churn", "partition", "sleep"])]
    file: Option<PathBuf>,
    /// Shape of the mesh
    #[arg(long, value_enum, default_value = "random")]
    topology: Topology,
    /// Number of hosts
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    nodes: u32,
    /// Mean number of links of a host, for --topology random
    #[arg(long, value_name = "N", default_value_t = 6)]
    degree: u32,
    /// Seed of keys, links, loss and all other random choices
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Random pairs that try to reach each other
    #[arg(long, value_name = "N", default_value_t = 100)]
    pairs: usize,
    /// Packets that each pair sends, five seconds apart
    #[arg(long, value_name = "N", default_value_t = 3)]
    probes: u32,
    /// Start the pairs with the disturbances, not after them
    #[arg(long)]
    during: bool,
    /// One-way delay of every link
    #[arg(long, value_name = "MS", default_value_t = 10)]
    delay: u64,
    /// Maximum further random delay
    #[arg(long, value_name = "MS", default_value_t = 0)]
    jitter: u64,
    /// Datagrams lost
    #[arg(long, value_name = "PERCENT", default_value_t = 0, value_parser = percent())]
    loss: u32,
    /// Datagrams overtaken by later ones
    #[arg(long, value_name = "PERCENT", default_value_t = 0, value_parser = percent())]
    reorder: u32,
    /// Datagrams delivered twice
    #[arg(long, value_name = "PERCENT", default_value_t = 0, value_parser = percent())]
    duplicate: u32,
    /// Time before the disturbances
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    calm: u64,
    /// Duration of restarts, partition and sleep
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    trouble: u64,
    /// Time after the disturbances
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    rest: u64,
    /// Hosts that restart in each minute of the disturbances
    #[arg(long, value_name = "PERCENT", default_value_t = 0, value_parser = percent())]
    churn: u32,
    /// Number of parts of the mesh during the disturbances
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    partition: u32,
    /// Machines that are suspended during the disturbances
    #[arg(long, value_name = "PERCENT", default_value_t = 0, value_parser = percent())]
    sleep: u32,
    /// Check the invariants after every N-th turn of a host [default: 1 for up to 100 hosts, else
    /// 500]
    #[arg(long, value_name = "N")]
    check: Option<u32>,
    /// Print the scenario instead of running it
    #[arg(long, conflicts_with = "json")]
    print: bool,
    /// After a failure, search for a shorter scenario that fails alike, and print it
    #[arg(long)]
    shrink: bool,
    /// Print the document weft.sim/1
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Topology {
    Line,
    Ring,
    Grid,
    Tree,
    Random,
}

/// The result of one run.
struct Done<'a> {
    scenario: &'a Scenario,
    figures: Figures,
    failure: Option<Failed>,
    /// Elapsed real time, seconds.
    wall: f64,
    /// Peak memory of this process, bytes, if the system reports it.
    memory: Option<u64>,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let mut scenario = match &args.file {
        Some(path) => read(path)?,
        None => args.plan().scenario(),
    };
    if args.file.is_none() {
        scenario.check_every = if scenario.nodes <= CHECK_ALL { 1 } else { 500 };
    }
    if let Some(every) = args.check {
        scenario.check_every = every;
    }
    let mut out = Out::new();
    if args.print {
        return out.text(&scenario.to_string());
    }
    let begun = Instant::now();
    let outcome = scenario.run();
    let done = Done {
        scenario: &scenario,
        figures: outcome.figures,
        failure: outcome.failure,
        wall: begun.elapsed().as_secs_f64(),
        memory: peak_memory(),
    };
    match args.json {
        true => out.json(&report::document(&done))?,
        false => out.text(&report::text(&done))?,
    }
    let Some(failure) = &done.failure else { return Ok(()) };
    if args.shrink && !args.json {
        let short = scenario.shrink(failure, SHRINK_RUNS);
        out.text(&format!("\nThe same with less:\n\n{short}"))?;
    }
    Err(Failure::Told)
}

impl Args {
    fn plan(&self) -> Plan {
        let shape = match self.topology {
            Topology::Line => Shape::Line,
            Topology::Ring => Shape::Ring,
            Topology::Grid => Shape::Grid,
            Topology::Tree => Shape::Tree,
            Topology::Random => Shape::Random { degree: self.degree },
        };
        Plan {
            seed: self.seed,
            shape,
            nodes: self.nodes as usize,
            conditions: Conditions {
                delay: self.delay,
                jitter: self.jitter,
                loss: self.loss * 10,
                reorder: self.reorder * 10,
                duplicate: self.duplicate * 10,
                ..Conditions::default()
            },
            calm: self.calm * 1_000,
            trouble: self.trouble * 1_000,
            churn: self.churn,
            sides: self.partition,
            sleepers: self.sleep,
            rest: self.rest * 1_000,
            pairs: self.pairs,
            during: self.during,
            probes: self.probes,
            // A host that is down, or whose packets are lost on purpose, is not a failure.
            expect: !self.during && self.loss == 0,
            ..Plan::default()
        }
    }
}

fn percent() -> clap::builder::RangedU64ValueParser<u32> {
    clap::builder::RangedU64ValueParser::new().range(0..=100)
}

fn read(path: &Path) -> Result<Scenario, ToolFailure> {
    let text = std::fs::read_to_string(path).map_err(|source| ToolFailure::ScenarioFile {
        path: path.to_owned(),
        source,
    })?;
    Scenario::parse(&path.display().to_string(), &text).map_err(ToolFailure::Scenario)
}

/// From the kernel's account of this process (proc(5), VmHWM).
fn peak_memory() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kibibytes: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kibibytes * 1024)
}
