//! `weft lab run` and `weft demo`: a scenario from its first step to its last, reported live, with
//! all results in one folder.
//!
//! | in the folder | what it is |
//! |---|---|
//! | `scenario.toml` | the file |
//! | `results.json` | [`Results`], of schema `weft.lab/1` |
//! | `logs/NODE.log` | the log of each node |
//! | `status/NODE.json` | its status after the last step; `status/step-N-NODE.json` after a step that failed |
//! | `pcap/LINK.END.pcap` | the frames at both ends of each captured link |

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use super::execute::Run;
use super::link::LinkSpec;
use super::pcap::Capture;
use super::results::{self, LinkResult, Results};
use super::source::Source;
use super::steps::Action;
use super::story::{Story, Style};
use super::topology::{Stage, StageError, installed};
use crate::emulator::Witness;
use crate::interrupt::Interrupts;
use crate::world::{World, WorldError};

/// Options of a run.
#[derive(Debug, Clone)]
pub struct Options {
    /// The scenario.
    pub source: Source,
    /// The settings that replaced the file's values, for the record.
    pub settings: Vec<String>,
    /// The folder for results: created if it does not exist, must be empty. `None`: a temporary
    /// one, which stays only if a step failed or the network was kept.
    pub out: Option<PathBuf>,
    /// Links to capture in addition to those that the file names; `all` is all of them.
    pub pcap: Vec<String>,
    /// The weft program.
    pub weft: PathBuf,
    /// The form of the output.
    pub style: Style,
    /// Whether a step `hold` waits for Ctrl-C; otherwise it is left out.
    pub keep: bool,
    /// Whether the steps behind a failed one are left out.
    pub stop_at_failure: bool,
}

/// The outcome of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// Number of failed steps.
    pub failed: usize,
    /// Number of steps.
    pub steps: usize,
    /// The folder of results.
    pub out: PathBuf,
}

/// Why a scenario did not run.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The system does not permit namespaces.
    #[error(transparent)]
    World(#[from] WorldError),
    /// The topology could not be built.
    #[error("the topology cannot be built; {logs} has the logs of its nodes", logs = .logs.display())]
    Build {
        /// The reason.
        source: StageError,
        /// The folder of logs.
        logs: PathBuf,
    },
    /// The scenario needs a program that is not installed.
    #[error(transparent)]
    Skipped(StageError),
    /// The folder is not empty.
    #[error("{} is not empty; name another folder with --out", .0.display())]
    NotEmpty(PathBuf),
    /// A link of `--pcap` does not exist.
    #[error("--pcap {0:?}: there is no such link; write \"all\" or one of {1}")]
    NoLink(String, String),
    /// A file could not be written.
    #[error("{} cannot be used", .path.display())]
    File {
        /// The path.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Signals could not be caught.
    #[error("signals cannot be caught")]
    Signals(#[source] io::Error),
    /// Progress could not be written.
    #[error("standard output cannot be written")]
    Output(#[source] io::Error),
}

impl RunError {
    fn file(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::File { path, source }
    }
}

/// Runs a scenario. Call it first in the process: a user without root's rights moves to a user
/// namespace, which is impossible for a process with several threads.
///
/// # Errors
/// [`RunError`]; a failed step is not an error, see [`Outcome::failed`].
pub fn run(options: &Options, out: &mut dyn Write) -> Result<Outcome, RunError> {
    let scenario = &options.source.scenario;
    let wanted = pcaps(options)?;
    installed(scenario).map_err(RunError::Skipped)?;
    if let Some(out) = &options.out {
        prepare(out)?;
    }
    let access = World::enter()?;
    let mut world = World::new()?;
    let interrupts = Interrupts::catch(world.directory().to_owned()).map_err(RunError::Signals)?;
    let (begin, started) = (Instant::now(), SystemTime::now());
    let folder = options.out.clone().unwrap_or_else(|| world.directory().join("results"));
    fs::create_dir_all(&folder).map_err(RunError::file(&folder))?;
    let copy = folder.join("scenario.toml");
    fs::write(&copy, &options.source.text).map_err(RunError::file(&copy))?;
    let mut story = Story::new(options.style, out);
    story.title(scenario).map_err(RunError::Output)?;
    let stage = match Stage::set(scenario, &world, &options.weft) {
        Ok(stage) => stage,
        Err(source) => {
            let logs = folder.join("logs");
            let _ = keep_logs(world.directory(), &logs);
            if options.out.is_none() {
                world.keep_directory();
            }
            return Err(RunError::Build { source, logs });
        }
    };
    let mut run = Run {
        stage,
        folder: &folder,
        loads: BTreeMap::new(),
        reports: BTreeMap::new(),
        kept: BTreeMap::new(),
        steps: Vec::new(),
        start: Instant::now(),
    };
    let captures = run.capture(&wanted)?;
    let took = begin.elapsed().as_secs_f64();
    story.built(&run.shape(), took).map_err(RunError::Output)?;
    run.perform(options, &mut story, |story, stage| {
        world.keep_directory();
        story.hand_over(scenario, stage, access).map_err(RunError::Output)?;
        interrupts.wait();
        Ok(())
    })?;
    run.statuses("")?;
    let results = Results {
        settings: options.settings.clone(),
        started_unix: started
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default()
            .as_secs(),
        seconds: begin.elapsed().as_secs_f64(),
        ..run.results(&scenario.name, &captures)
    };
    drop(run);
    keep_logs(world.directory(), &folder.join("logs"))?;
    if options.out.is_none() && !results.ok {
        world.keep_directory();
    }
    let path = folder.join("results.json");
    let text = serde_json::to_string_pretty(&results).map_err(io::Error::other);
    text.and_then(|text| fs::write(&path, text + "\n"))
        .map_err(RunError::file(&path))?;
    story.end(&results).map_err(RunError::Output)?;
    Ok(Outcome {
        failed: results.steps.iter().filter(|step| !step.ok).count(),
        steps: results.steps.len(),
        out: folder,
    })
}

impl Run<'_> {
    /// Executes the steps; `hold` is called at steps of this name, if the network is to be kept.
    fn perform(
        &mut self,
        options: &Options,
        story: &mut Story<'_>,
        mut hold: impl FnMut(&mut Story<'_>, &Stage) -> Result<(), RunError>,
    ) -> Result<(), RunError> {
        self.start = Instant::now();
        for step in &options.source.scenario.steps {
            if matches!(step.action, Action::Hold(_)) {
                if options.keep {
                    hold(story, &self.stage)?;
                }
                continue;
            }
            let result = self.step(step)?;
            story.step(&result).map_err(RunError::Output)?;
            let ok = result.ok;
            self.steps.push(result);
            if !ok && options.stop_at_failure {
                break;
            }
        }
        Ok(())
    }

    /// The results of the steps and of the network, without times.
    fn results(&mut self, scenario: &str, captures: &BTreeMap<String, Vec<String>>) -> Results {
        Results {
            schema: "weft.lab/1",
            scenario: scenario.to_owned(),
            settings: Vec::new(),
            started_unix: 0,
            seconds: 0.0,
            ok: self.steps.iter().all(|step| step.ok),
            nodes: results::nodes(&self.stage),
            links: self.links(captures),
            nats: results::nats(&self.stage),
            steps: std::mem::take(&mut self.steps),
        }
    }

    /// Captures the frames of these links.
    fn capture(&self, links: &[String]) -> Result<BTreeMap<String, Vec<String>>, RunError> {
        let folder = self.folder.join("pcap");
        let mut captures = BTreeMap::new();
        for (name, link) in self.stage.links().filter(|(name, _)| links.contains(name)) {
            fs::create_dir_all(&folder).map_err(RunError::file(&folder))?;
            let files = link.between.each_ref().map(|end| format!("pcap/{name}.{end}.pcap"));
            let [a, b] = files.each_ref().map(|file| self.folder.join(file));
            let capture = Capture::create([&a, &b]).map_err(RunError::file(&folder))?;
            let witness: Arc<dyn Witness> = Arc::new(capture);
            let watched = self.stage.watch(name, &witness);
            watched.map_err(|source| RunError::Build {
                source,
                logs: folder.clone(),
            })?;
            captures.insert(name.clone(), files.into());
        }
        Ok(captures)
    }

    /// Stores the status of every node; a node that does not answer has none.
    pub(super) fn statuses(&self, prefix: &str) -> Result<(), RunError> {
        let folder = self.folder.join("status");
        fs::create_dir_all(&folder).map_err(RunError::file(&folder))?;
        for (name, node) in self.stage.nodes().filter(|(_, node)| node.is_running()) {
            let Some(Ok(status)) = node.daemon().map(crate::daemon::Daemon::status) else {
                continue;
            };
            let path = folder.join(format!("{prefix}{name}.json"));
            fs::write(&path, format!("{status:#}\n")).map_err(RunError::file(&path))?;
        }
        Ok(())
    }

    fn links(&self, captures: &BTreeMap<String, Vec<String>>) -> Vec<LinkResult> {
        let link = |(name, link): (&String, &LinkSpec)| {
            let wire = self.stage.wire(name).ok()?;
            let [to_second, to_first] = wire.counts();
            Some(LinkResult {
                name: name.clone(),
                between: link.between.clone(),
                to_second,
                to_first,
                firewall: wire.firewall(),
                pcap: captures.get(name).cloned().unwrap_or_default(),
            })
        };
        self.stage.links().filter_map(link).collect()
    }

    /// Describes what was built, in a line.
    fn shape(&self) -> String {
        let counts = [
            (self.stage.nodes().count(), "nodes"),
            (self.stage.places().count() - self.stage.nodes().count(), "plain hosts"),
            (self.stage.nat_boxes().count(), "NAT boxes"),
            (self.stage.links().count(), "links"),
        ];
        let parts = counts.iter().filter(|(count, _)| *count > 0);
        let parts: Vec<_> = parts.map(|(count, what)| format!("{what}: {count}")).collect();
        parts.join(", ")
    }
}

/// The links to be captured.
fn pcaps(options: &Options) -> Result<Vec<String>, RunError> {
    let links = &options.source.scenario.links;
    let all = options.pcap.iter().any(|name| name == "all");
    if let Some(wrong) = options
        .pcap
        .iter()
        .find(|name| *name != "all" && !links.contains_key(*name))
    {
        let names: Vec<_> = links.keys().map(String::as_str).collect();
        return Err(RunError::NoLink(wrong.clone(), names.join(", ")));
    }
    let wanted = |name: &&String| all || links[*name].pcap || options.pcap.contains(name);
    Ok(links.keys().filter(wanted).cloned().collect())
}

fn prepare(folder: &Path) -> Result<(), RunError> {
    fs::create_dir_all(folder).map_err(RunError::file(folder))?;
    let mut entries = fs::read_dir(folder).map_err(RunError::file(folder))?;
    match entries.next() {
        None => Ok(()),
        Some(_) => Err(RunError::NotEmpty(folder.to_owned())),
    }
}

/// Copies the logs of a world's directory.
fn keep_logs(from: &Path, to: &Path) -> Result<(), RunError> {
    fs::create_dir_all(to).map_err(RunError::file(to))?;
    let entries = fs::read_dir(from).map_err(RunError::file(from))?;
    for log in entries
        .flatten()
        .filter(|entry| entry.path().extension().is_some_and(|kind| kind == "log"))
    {
        let path = to.join(log.file_name());
        fs::copy(log.path(), &path).map_err(RunError::file(&path))?;
    }
    Ok(())
}
