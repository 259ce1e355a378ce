//! `weft lab bench`: tunnels measured side by side.
//!
//! | module | what it is |
//! |---|---|
//! | [`conditions`] | what is equal for all arms: network, MTU, threads |
//! | [`arm`] | the subjects of the comparison, as in `--arms` |
//! | [`stage`] | the hosts and cables of a run |
//! | [`driver`] | setting up each kind of tunnel, and detecting that it is up |
//! | [`matrix`] | the cases |
//! | [`measure`] | one run, and whether it is valid |
//! | [`media`], [`churn`] | the longest gap of a media stream, beside a load and through an event |
//! | [`mod@bound`] | what bound a run |
//! | [`rubbish`] | datagrams that no tunnel can open |
//! | [`setup`] | the machine and the programs |
//! | [`record`] | the figures of every run: JSON lines and CSV |
//! | [`table`], [`report`] | the runs summarised; as Markdown |
//! | [`mod@compare`] | whether two benches agree |
//! | [`plot`] | plots |
//! | [`experiment`] | records of the project's experiments |
//!
//! All arms run in every round, one after the other, each on hosts of its own that are removed
//! before the next begins, and every other round in reverse order. A disturbance of the machine
//! thus affects all of them (L37).

pub mod arm;
pub mod bound;
pub mod churn;
pub mod compare;
pub mod conditions;
mod counts;
pub mod driver;
pub mod experiment;
pub mod matrix;
pub mod measure;
pub mod media;
pub mod plot;
pub mod record;
pub mod report;
pub mod rubbish;
pub mod setup;
pub mod stage;
pub mod table;

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketType};
use serde::Serialize;

use self::arm::{Arm, Kind};
use self::conditions::Conditions;
use self::driver::{DriverError, Subject, Tunnel};
use self::experiment::Experiment;
use self::matrix::Case;
use self::measure::{Figures, RunError};
use self::record::{Record, Records, Result as RunResult};
use self::setup::Setup;
use self::stage::Stage;
use crate::interrupt::Interrupts;
use crate::world::{World, WorldError};

/// Options of a bench.
#[derive(Clone, Debug)]
pub struct Options {
    /// The arms; all ratios are to the first.
    pub arms: Vec<Arm>,
    /// The cases.
    pub cases: Vec<Case>,
    /// Number of rounds, 1 or more.
    pub rounds: u32,
    /// Duration of the load of each case, seconds.
    pub seconds: u32,
    /// The folder for the results. Created if it does not exist; must be empty.
    pub out: PathBuf,
    /// What is equal for all arms. The congestion control does not depend on the system's default,
    /// because a sender that paces, such as BBR, measures its own estimate of the path as much as
    /// the path.
    pub conditions: Conditions,
    /// The weft program.
    pub weft: PathBuf,
    /// Whether arms may be the same program with the same settings: their ratio then shows the
    /// noise.
    pub same: bool,
    /// The command line, for the report.
    pub command: String,
    /// The record to create, if the runs are one of the project's experiments.
    pub record: Option<Experiment>,
}

/// The outcome of a bench.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Number of runs.
    pub runs: usize,
    /// Number of void runs.
    pub void: usize,
    /// Arms that could not run, because their program is missing.
    pub missing: usize,
    /// The path of the report.
    pub report: PathBuf,
}

/// Why there are no results.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// The lab could not build a network.
    #[error(transparent)]
    World(#[from] WorldError),
    /// A file could not be used.
    #[error("{} cannot be used ({source})", .path.display())]
    File {
        /// The path.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The folder for results is not empty.
    #[error("{} is not empty; name another folder with --out", .0.display())]
    NotEmpty(PathBuf),
    /// TCP does not offer this congestion control.
    #[error(
        "this kernel has no congestion control {0:?} for TCP ({1}); /proc/sys/net/ipv4/tcp_available_congestion_control lists those that are loaded"
    )]
    Congestion(String, io::Error),
    /// TCP offers this congestion control to root alone.
    #[error(
        "only root may choose the congestion control {0:?} here; run the bench as root, or name one of /proc/sys/net/ipv4/tcp_allowed_congestion_control with --congestion"
    )]
    CongestionNotAllowed(String),
    /// Two arms are the same.
    #[error(
        "{0:?} and {1:?} are the same program with the same settings; their ratio would be noise (--same measures just that)"
    )]
    SameArm(String, String),
    /// The bench cannot set an arm up with a relay.
    #[error("{0} cannot be measured with a relay; leave it out, or --relayed")]
    Relayed(String),
    /// No arm has a program.
    #[error("none of the arms can run: {0}")]
    NoArms(String),
    /// Progress could not be written.
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

/// An arm that runs.
#[derive(Clone, Debug)]
pub struct Entrant {
    /// The arm as requested.
    pub arm: Arm,
    /// Its program.
    pub program: PathBuf,
}

/// An arm that cannot run.
#[derive(Clone, Debug, Serialize)]
pub struct Missing {
    /// Its label.
    pub label: String,
    /// What is missing.
    pub lacks: String,
}

/// Runs everything and writes the results. Progress goes to `out`, one line per run.
///
/// # Errors
/// [`BenchError`]; a void run is not an error, see [`Outcome::void`].
pub fn run(options: &Options, out: &mut dyn Write) -> Result<Outcome, BenchError> {
    let congestion = &options.conditions.congestion;
    check_congestion(congestion)?;
    if let Some(arm) = options
        .arms
        .iter()
        .find(|arm| options.conditions.relayed && !arm.kind.relays())
    {
        return Err(BenchError::Relayed(arm.label.clone()));
    }
    prepare(&options.out)?;
    let (entrants, missing) = entrants(options)?;
    World::enter()?;
    let world = World::new()?;
    let _interrupts = Interrupts::catch(world.directory().to_owned()).map_err(BenchError::Signals)?;
    let namespace_congestion = stage::set_congestion(&world.host("probe")?, congestion)?;
    let setup = Setup::look(options, &entrants, &missing, &namespace_congestion);
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

/// Checks once what every run would need.
fn check_congestion(name: &str) -> Result<(), BenchError> {
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None);
    let set = socket.and_then(|socket| rustix::net::sockopt::set_tcp_congestion(&socket, name));
    set.map_err(|error| match error {
        Errno::PERM => BenchError::CongestionNotAllowed(name.to_owned()),
        other => BenchError::Congestion(name.to_owned(), other.into()),
    })
}

fn prepare(folder: &Path) -> Result<(), BenchError> {
    fs::create_dir_all(folder).map_err(BenchError::file(folder))?;
    let mut entries = fs::read_dir(folder).map_err(BenchError::file(folder))?;
    match entries.next() {
        None => Ok(()),
        Some(_) => Err(BenchError::NotEmpty(folder.to_owned())),
    }
}

/// The arms that can run, and those that cannot.
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

/// Whether two arms are identical: by content, as a copy under another name is the same program.
fn same(a: &Entrant, b: &Entrant) -> bool {
    let content = |entrant: &Entrant| arm::digest(&entrant.program).ok();
    a.arm.kind == b.arm.kind
        && a.arm.settings == b.arm.settings
        && (a.arm.kind == Kind::Direct || a.program == b.program || content(a) == content(b))
}

/// Runs one arm in a round. Each run is reported when it is over. The cases of loads share a stage;
/// each event has one of its own, as it changes it.
fn run_arm(
    world: &World,
    options: &Options,
    round: u32,
    entrant: &Entrant,
    tell: &mut dyn FnMut(Record) -> Result<(), BenchError>,
) -> Result<(), BenchError> {
    let label = &entrant.arm.label;
    let folder = |case: &str| {
        world
            .directory()
            .join(format!("{round}-{}{case}", label.replace('/', "_")))
    };
    let mut tell_of = |case: &Case, result: Result<Figures, String>| {
        tell(Record {
            round,
            arm: label.clone(),
            case: case.name.to_owned(),
            result: match result {
                Ok(figures) => RunResult::Figures(Box::new(figures)),
                Err(why) => RunResult::Void(why),
            },
        })
    };
    let (events, loads): (Vec<&Case>, Vec<&Case>) = options.cases.iter().partition(|case| case.event().is_some());
    if !loads.is_empty() {
        let ready = set_up(world, options, entrant, folder(""));
        let up = ready.as_ref().map_err(ToString::to_string).and_then(|(stage, tunnel)| {
            let settled = bring_up(stage, tunnel).map_err(|error| error.to_string());
            settled.map(|()| (stage, tunnel))
        });
        for case in loads {
            let result = match &up {
                Ok((stage, tunnel)) => run_case(stage, tunnel, case, options).map_err(|error| error.to_string()),
                Err(why) => Err(why.clone()),
            };
            tell_of(case, result)?;
        }
        if let Ok((stage, _)) = &ready {
            keep_logs(stage, &options.out);
        }
    }
    for case in events {
        let ready = set_up(world, options, entrant, folder(&format!("-{}", case.name)));
        let result = match ready {
            Ok((stage, mut tunnel)) => {
                let result = run_event(&stage, &mut tunnel, case, options, entrant);
                keep_logs(&stage, &options.out);
                result.map_err(|error| error.to_string())
            }
            Err(error) => Err(error.to_string()),
        };
        tell_of(case, result)?;
    }
    Ok(())
}

/// Waits until packets pass, and until they have their final frames.
fn bring_up(stage: &Stage, tunnel: &Tunnel) -> Result<(), RunError> {
    measure::converge(stage, tunnel, driver::READY)?;
    Ok(tunnel.settle()?)
}

fn run_case(stage: &Stage, tunnel: &Tunnel, case: &Case, options: &Options) -> Result<Figures, RunError> {
    measure::converge(stage, tunnel, driver::READY)?;
    let plan = case.plan(options.seconds, &options.conditions.congestion);
    measure::measure(stage, tunnel, case, &plan)
}

fn run_event(
    stage: &Stage,
    tunnel: &mut Tunnel,
    case: &Case,
    options: &Options,
    entrant: &Entrant,
) -> Result<Figures, RunError> {
    bring_up(stage, tunnel)?;
    let event = case.event().ok_or(RunError::Nothing)?;
    churn::measure(stage, tunnel, &subject(options, entrant), event)
}

fn subject<'a>(options: &'a Options, entrant: &'a Entrant) -> Subject<'a> {
    Subject {
        arm: &entrant.arm,
        program: &entrant.program,
        weft: &options.weft,
    }
}

fn set_up(
    world: &World,
    options: &Options,
    entrant: &Entrant,
    folder: PathBuf,
) -> Result<(Stage, Tunnel), DriverError> {
    let stage = Stage::set(world, folder, &options.conditions)?;
    let tunnel = driver::start(&subject(options, entrant), &stage)?;
    Ok((stage, tunnel))
}

/// Copies the logs of the tunnel's processes next to the results; a result remains valid if its log
/// cannot be copied.
fn keep_logs(stage: &Stage, out: &Path) {
    let Some(name) = stage.folder.file_name() else { return };
    let to = out.join("logs").join(name);
    let logs = fs::read_dir(&stage.folder).into_iter().flatten().flatten();
    for log in logs.filter(|entry| entry.path().extension().is_some_and(|extension| extension == "log")) {
        let _ = fs::create_dir_all(&to).and_then(|()| fs::copy(log.path(), to.join(log.file_name())));
    }
}
