//! `weft lab bench`: tunnels side by side, measured so that the figures can be believed.
//!
//! | module | what it is |
//! |---|---|
//! | [`arm`] | what is compared, as `--arms` names it |
//! | [`driver`] | how each kind is set up, and how it is known to be up |
//! | [`matrix`] | the cases |
//! | [`measure`] | one run, and whether it is void |
//! | [`rubbish`] | datagrams that no tunnel can open |
//! | [`setup`] | the machine and the programs |
//! | [`record`] | what is kept of every run: JSON lines and CSV |
//! | [`table`], [`report`] | what the runs say together; as Markdown |
//! | [`mod@compare`] | whether two benches agree |
//! | [`plot`] | the same as pictures |
//! | [`experiment`] | a record of the project's experiments, begun |
//!
//! All arms run in every round, one after the other, each on hosts of its own that are gone before the next begins, and
//! every other round in the opposite order: what slows the machine for a while slows all of them (L37).

pub mod arm;
pub mod compare;
pub mod driver;
pub mod experiment;
pub mod matrix;
pub mod measure;
pub mod plot;
pub mod record;
pub mod report;
pub mod rubbish;
pub mod setup;
pub mod table;

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use rustix::net::{AddressFamily, SocketType};
use serde::Serialize;

use self::arm::{Arm, Kind};
use self::driver::{DriverError, Stage, Tunnel};
use self::experiment::Experiment;
use self::matrix::Case;
use self::measure::{Figures, RunError};
use self::record::{Record, Records, Result as RunResult};
use self::setup::Setup;
use crate::interrupt::Interrupts;
use crate::world::{World, WorldError};

/// What to measure.
#[derive(Clone, Debug)]
pub struct Options {
    /// The arms; all ratios are to the first.
    pub arms: Vec<Arm>,
    /// The cases.
    pub cases: Vec<Case>,
    /// How often, 1 or more.
    pub rounds: u32,
    /// How long the load of each case runs, seconds.
    pub seconds: u32,
    /// The folder that the results go to. Made if it is not there; must be empty.
    pub out: PathBuf,
    /// The congestion control of the load's TCP, such as cubic. Not the system's, whatever that is: a sender that paces, as BBR
    /// does, measures how well it guesses what a path takes as well as what the path takes.
    pub congestion: String,
    /// The cable carries UDP as a wire does, not whole trains.
    pub wire: bool,
    /// The weft program.
    pub weft: PathBuf,
    /// Arms may be the same program with the same settings: their ratio then shows the noise.
    pub same: bool,
    /// The command as it was typed, for the report.
    pub command: String,
    /// The record that is begun, if the runs are one of the project's experiments.
    pub record: Option<Experiment>,
}

/// What came of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Runs that were made.
    pub runs: usize,
    /// Of these, void.
    pub void: usize,
    /// Arms that could not take part, as their program is missing.
    pub missing: usize,
    /// The report.
    pub report: PathBuf,
}

/// Why there are no results.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// The lab could not build a world.
    #[error(transparent)]
    World(#[from] WorldError),
    /// A file could not be used.
    #[error("{} cannot be used ({source})", .path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The folder for results has something in it already.
    #[error("{} is not empty; name another folder with --out", .0.display())]
    NotEmpty(PathBuf),
    /// TCP cannot be had so.
    #[error(
        "TCP here has no congestion control {0:?} ({1}); /proc/sys/net/ipv4/tcp_available_congestion_control has those that are loaded"
    )]
    Congestion(String, #[source] io::Error),
    /// Two arms are one.
    #[error(
        "{0:?} and {1:?} are the same program with the same settings; their ratio would be noise (--same measures just that)"
    )]
    SameArm(String, String),
    /// No arm has a program.
    #[error("none of the arms can run: {0}")]
    NoArms(String),
    /// Progress could not be told.
    #[error("standard output cannot be written ({0})")]
    Output(#[source] io::Error),
    /// Signals could not be caught.
    #[error("signals cannot be caught ({0})")]
    Signals(#[source] io::Error),
}

impl BenchError {
    fn file(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::File { path, source }
    }
}

/// An arm that takes part.
#[derive(Clone, Debug)]
pub struct Entrant {
    /// As it was asked for.
    pub arm: Arm,
    /// Its program.
    pub program: PathBuf,
}

/// An arm that cannot take part.
#[derive(Clone, Debug, Serialize)]
pub struct Missing {
    /// What it is called.
    pub label: String,
    /// What it lacks.
    pub lacks: String,
}

/// Runs everything and writes the results. Progress goes to `out`, a line a run.
///
/// # Errors
/// [`BenchError`]; a void run is none, see [`Outcome::void`].
pub fn run(options: &Options, out: &mut dyn Write) -> Result<Outcome, BenchError> {
    has_congestion(&options.congestion).map_err(|error| BenchError::Congestion(options.congestion.clone(), error))?;
    prepare(&options.out)?;
    let (entrants, missing) = entrants(options)?;
    World::enter()?;
    let world = World::new()?;
    let _interrupts = Interrupts::catch(world.directory().to_owned()).map_err(BenchError::Signals)?;
    let setup = Setup::look(options, &entrants, &missing);
    let mut records = Records::create(&options.out).map_err(BenchError::file(&options.out))?;
    for round in 1..=options.rounds {
        // The order is reversed in every second round.
        let order: Vec<_> = match round % 2 {
            1 => entrants.iter().collect(),
            _ => entrants.iter().rev().collect(),
        };
        for entrant in order {
            run_arm(&world, options, round, entrant, &mut |record| {
                writeln!(out, "{record}").map_err(BenchError::Output)?;
                records.add(record).map_err(BenchError::file(&options.out))
            })?;
        }
    }
    let report = report::write(options, &setup, &entrants, &missing, records.all());
    let report = report.map_err(BenchError::file(&options.out))?;
    if let Some(record) = &options.record {
        let begun = record.begin(&report, &options.out.join("runs.csv"), &setup);
        begun.map_err(BenchError::file(record.path()))?;
    }
    Ok(Outcome {
        runs: records.all().len(),
        void: records.all().iter().filter(|record| record.figures().is_none()).count(),
        missing: missing.len(),
        report,
    })
}

/// Better asked once than found out by every run.
fn has_congestion(name: &str) -> io::Result<()> {
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None)?;
    Ok(rustix::net::sockopt::set_tcp_congestion(&socket, name)?)
}

fn prepare(folder: &Path) -> Result<(), BenchError> {
    fs::create_dir_all(folder).map_err(BenchError::file(folder))?;
    let mut entries = fs::read_dir(folder).map_err(BenchError::file(folder))?;
    match entries.next() {
        None => Ok(()),
        Some(_) => Err(BenchError::NotEmpty(folder.to_owned())),
    }
}

/// Those that can run, and those that cannot.
fn entrants(options: &Options) -> Result<(Vec<Entrant>, Vec<Missing>), BenchError> {
    let (mut entrants, mut missing) = (Vec::<Entrant>::new(), Vec::new());
    for arm in &options.arms {
        match arm.program(&options.weft) {
            Ok(program) => entrants.push(Entrant {
                arm: arm.clone(),
                program,
            }),
            Err(lacks) => missing.push(Missing {
                label: arm.label.clone(),
                lacks,
            }),
        }
    }
    if entrants.is_empty() {
        let all: Vec<_> = missing
            .iter()
            .map(|missing| format!("{} lacks {}", missing.label, missing.lacks))
            .collect();
        return Err(BenchError::NoArms(all.join(", ")));
    }
    for (n, entrant) in entrants.iter().enumerate() {
        if let Some(twin) = entrants[..n].iter().find(|other| same(other, entrant))
            && !options.same
        {
            return Err(BenchError::SameArm(twin.arm.label.clone(), entrant.arm.label.clone()));
        }
    }
    Ok((entrants, missing))
}

/// Whether two arms do not differ: by content, as a copy under another name is the same program.
fn same(a: &Entrant, b: &Entrant) -> bool {
    let content = |entrant: &Entrant| arm::digest(&entrant.program).ok();
    a.arm.kind == b.arm.kind
        && a.arm.settings == b.arm.settings
        && (a.arm.kind == Kind::Direct || a.program == b.program || content(a) == content(b))
}

/// One arm's turn in a round. Each run is told when it is over.
fn run_arm(
    world: &World,
    options: &Options,
    round: u32,
    entrant: &Entrant,
    tell: &mut dyn FnMut(Record) -> Result<(), BenchError>,
) -> Result<(), BenchError> {
    let label = &entrant.arm.label;
    let folder = world.directory().join(format!("{round}-{}", label.replace('/', "_")));
    let ready = set_up(world, options, entrant, folder);
    for case in &options.cases {
        let result = match &ready {
            Ok((stage, tunnel)) => run_case(stage, tunnel, case, options).map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        tell(Record {
            round,
            arm: label.clone(),
            case: case.name.to_owned(),
            result: match result {
                Ok(figures) => RunResult::Figures(Box::new(figures)),
                Err(why) => RunResult::Void(why),
            },
        })?;
    }
    if let Ok((stage, _)) = &ready {
        keep_logs(stage, &options.out);
    }
    Ok(())
}

fn run_case(stage: &Stage, tunnel: &Tunnel, case: &Case, options: &Options) -> Result<Figures, RunError> {
    measure::converge(stage, tunnel, driver::READY)?;
    measure::measure(stage, tunnel, case, &case.plan(options.seconds, &options.congestion))
}

fn set_up(
    world: &World,
    options: &Options,
    entrant: &Entrant,
    folder: PathBuf,
) -> Result<(Stage, Tunnel), DriverError> {
    let stage = Stage::set(world, folder, options.wire)?;
    let tunnel = driver::start(&entrant.arm, &entrant.program, &options.weft, &stage)?;
    Ok((stage, tunnel))
}

/// The logs of the tunnel's processes go beside the results; a result whose log cannot be kept still stands.
fn keep_logs(stage: &Stage, out: &Path) {
    let Some(name) = stage.folder.file_name() else { return };
    let to = out.join("logs").join(name);
    let logs = fs::read_dir(&stage.folder).into_iter().flatten().flatten();
    for log in logs.filter(|entry| entry.path().extension().is_some_and(|extension| extension == "log")) {
        let _ = fs::create_dir_all(&to).and_then(|()| fs::copy(log.path(), to.join(log.file_name())));
    }
}
