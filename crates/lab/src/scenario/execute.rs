//! The execution of a run's steps.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use super::command;
use super::expect::{self, Finding, LookError};
use super::expected::{Expect, ExpectLoad};
use super::load::{Load, LoadError, Report};
use super::observe;
use super::resolve;
use super::results::{Record, StepResult};
use super::run::RunError;
use super::send;
use super::settled;
use super::steps::{Action, Paths, PingLoad, Roam, Step, TcpLoad, UdpLoad};
use super::topology::{Stage, StageError};
use crate::world::WorldError;

/// A run in progress.
pub(super) struct Run<'a> {
    pub(super) stage: Stage,
    pub(super) folder: &'a Path,
    /// Loads in the background, by name.
    pub(super) loads: BTreeMap<String, Load>,
    /// The results of loads that have ended.
    pub(super) reports: BTreeMap<String, Report>,
    /// Outputs of commands, by name.
    pub(super) kept: BTreeMap<String, String>,
    pub(super) steps: Vec<StepResult>,
    pub(super) start: Instant,
}

impl Run<'_> {
    /// Executes a step at its time. Only problems with the folder are errors.
    pub(super) fn step(&mut self, step: &Step) -> Result<StepResult, RunError> {
        if let Some(at) = step.at {
            std::thread::sleep((self.start + at.0).saturating_duration_since(Instant::now()));
        }
        let begin = self.start.elapsed();
        let (ok, seen, record) = match self.execute(step) {
            Ok((finding, record)) => (finding.holds, finding.seen, record),
            Err(error) => (false, chain(&error), Record::default()),
        };
        let result = StepResult {
            number: step.number,
            name: step.name.clone(),
            what: step.action.to_string(),
            at: rounded(begin),
            seconds: rounded(self.start.elapsed().saturating_sub(begin)),
            ok,
            seen,
            chapter: step.chapter.clone(),
            record,
        };
        if !ok {
            self.statuses(&format!("step-{}-", step.number))?;
        }
        Ok(result)
    }

    fn execute(&mut self, step: &Step) -> Result<(Finding, Record), StepError> {
        let seen = match &step.action {
            Action::Expect(Expect::Load(expect)) => return self.judge(expect),
            Action::Expect(Expect::Settled(expect)) => {
                let (finding, settled) = settled::watch(&self.stage, expect)?;
                let settled = Some(settled);
                return Ok((
                    finding,
                    Record {
                        settled,
                        ..Record::default()
                    },
                ));
            }
            Action::Expect(expect) => return Ok((self.look(expect)?, Record::default())),
            Action::Ping(_) | Action::Tcp(_) | Action::Udp(_) => return self.load(step),
            Action::Paths(paths) => return self.paths(paths),
            Action::Weft(command) => {
                let (finding, output) = command::run(&self.stage, command, &mut self.kept)?;
                let record = Record {
                    output: Some(output),
                    ..Record::default()
                };
                return Ok((finding, record));
            }
            Action::Send(step) => return Ok((send::run(&self.stage, step)?, Record::default())),
            // The run waits, as it has the signals.
            Action::Hold(_) => String::new(),
            Action::Wait(wait) => {
                std::thread::sleep(wait.time.0);
                String::new()
            }
            Action::Cut(cut) => {
                self.stage.wire_mut(&cut.link)?.cut(cut.noticed)?;
                // A default route through the link is gone; another link may give one.
                self.route_ends(&cut.link)?;
                String::new()
            }
            Action::Heal(heal) => {
                self.raise(&heal.link)?;
                String::new()
            }
            Action::Change(change) => {
                let toward = change
                    .toward
                    .as_ref()
                    .map(|end| Ok::<_, StageError>(self.stage.link(&change.link)?.end(end)));
                let toward = toward.transpose()?.flatten();
                self.stage.wire_mut(&change.link)?.change(toward, &change.flaws);
                String::new()
            }
            Action::Roam(roam) => self.roam(roam)?,
            Action::Gateway(step) => {
                self.stage.change_gateway(&step.host, &step.link, step.address)?;
                String::new()
            }
            Action::Suspend(step) => {
                self.stage.suspend(&step.node, step.time.0)?;
                String::new()
            }
            Action::Stop(of) => self.end(&of.node, false)?,
            Action::Kill(of) => self.end(&of.node, true)?,
            Action::Start(of) if self.stage.node(&of.node)?.is_running() => {
                return Err(StepError::Plain("it is running".to_owned()));
            }
            Action::Start(of) => self.begin(&of.node)?,
            Action::Restart(of) => {
                self.end(&of.node, false)?;
                self.begin(&of.node)?
            }
            Action::Forget(of) => {
                let nat = self.stage.nat_box(&of.nat)?;
                let count = nat.mappings()?;
                nat.forget()?;
                format!("mappings: {count}")
            }
            Action::Reboot(step) => {
                let nat = self.stage.nat_box(&step.nat)?;
                let count = nat.mappings()?;
                nat.reboot(step.outer.as_deref())?;
                format!("mappings: {count}; its address is {}", nat.outer())
            }
        };
        Ok((Finding { holds: true, seen }, Record::default()))
    }

    fn look(&self, expect: &Expect) -> Result<Finding, LookError> {
        let stage = &self.stage;
        match expect {
            Expect::Path(expect) => expect::path(stage, expect),
            Expect::State(expect) => expect::state(stage, expect),
            Expect::Answer(expect) => expect::answer(stage, expect),
            Expect::Answers(expect) => expect::answers(stage, expect),
            Expect::Largest(expect) => expect::largest(stage, expect),
            Expect::Size(expect) => expect::size(stage, expect),
            Expect::Frames(expect) => expect::frames(stage, expect),
            Expect::Name(expect) => resolve::name(stage, expect),
            Expect::Quiet(expect) => expect::quiet(stage, expect),
            // Separate functions judge these: they have records, and end loads.
            Expect::Load(_) | Expect::Settled(_) => Ok(Finding {
                holds: false,
                seen: String::new(),
            }),
        }
    }

    /// Starts a load, and waits for its end unless it runs in the background.
    fn load(&mut self, step: &Step) -> Result<(Finding, Record), StepError> {
        let before = observe::cpu(&self.stage, &step.action);
        let load = Load::start(&self.stage, &step.action)?;
        let load = load.ok_or_else(|| StepError::Plain("this is not a load".to_owned()))?;
        let (Action::Ping(PingLoad { background, .. })
        | Action::Tcp(TcpLoad { background, .. })
        | Action::Udp(UdpLoad { background, .. })) = &step.action
        else {
            return Err(StepError::Plain("this is not a load".to_owned()));
        };
        if let (true, Some(name)) = (background, &step.name) {
            self.loads.insert(name.clone(), load);
            let seen = "in the background".to_owned();
            return Ok((Finding { holds: true, seen }, Record::default()));
        }
        let report = load.finish()?;
        if let Some(name) = &step.name {
            self.reports.insert(name.clone(), report.clone());
        }
        let holds = !matches!(&report, Report::Tcp(report) if !report.hash_ok);
        let usage = observe::usage(&self.stage, &step.action, before, &report);
        let seen = match &usage {
            Some(usage) => format!("{report}, {}", observe::describe(usage)),
            None => report.to_string(),
        };
        let record = Record {
            load: Some(report),
            usage,
            ..Record::default()
        };
        Ok((Finding { holds, seen }, record))
    }

    /// Ends a load if it is still running, and judges it.
    fn judge(&mut self, expect: &ExpectLoad) -> Result<(Finding, Record), StepError> {
        if let Some(load) = self.loads.remove(&expect.of) {
            self.reports.insert(expect.of.clone(), load.finish()?);
        }
        let report = self.reports.get(&expect.of);
        let report = report.ok_or_else(|| StepError::Plain(format!("{} showed nothing", expect.of)))?;
        let record = Record {
            load: Some(report.clone()),
            ..Record::default()
        };
        Ok((expect::load(report, expect), record))
    }

    fn paths(&self, paths: &Paths) -> Result<(Finding, Record), StepError> {
        let record = observe::paths(&self.stage, paths)?;
        let seen = observe::table(&paths.among, &record, paths.history.as_ref());
        Ok((Finding { holds: true, seen }, record))
    }

    fn end(&mut self, node: &str, kill: bool) -> Result<String, StepError> {
        self.stage.end(node, kill)?;
        Ok(String::new())
    }

    fn begin(&mut self, node: &str) -> Result<String, StepError> {
        self.stage.start(node)?;
        Ok("it answers".to_owned())
    }

    fn raise(&mut self, link: &str) -> Result<(), StepError> {
        self.stage.wire_mut(link)?.heal()?;
        self.route_ends(link)
    }

    fn route_ends(&self, link: &str) -> Result<(), StepError> {
        let mut hosts = self.stage.link(link)?.addresses.keys();
        hosts.try_for_each(|host| Ok(self.stage.route(host)?))
    }

    fn roam(&mut self, roam: &Roam) -> Result<String, StepError> {
        if let (Some(from), Some(to)) = (&roam.from, &roam.to) {
            self.stage.wire_mut(from)?.cut(true)?;
            self.raise(to)?;
            return Ok(format!("from {from} to {to}"));
        }
        let (Some(link), Some(address)) = (&roam.link, &roam.address) else {
            return Err(StepError::Plain("nowhere to go".to_owned()));
        };
        let end = self.stage.link(link)?.end(&roam.host);
        let port = end.and_then(|end| self.stage.wire(link).ok()?.port(end));
        let port = port.ok_or_else(|| StepError::Plain("it has no end of this link".to_owned()))?;
        let old = port.first_like(address)?;
        port.change_address(&old, address)?;
        self.stage.route(&roam.host)?;
        Ok(format!("from {old} to {address}"))
    }
}

/// Why a step other than an expectation failed.
#[derive(Debug, thiserror::Error)]
enum StepError {
    #[error(transparent)]
    Stage(#[from] StageError),
    #[error(transparent)]
    World(#[from] WorldError),
    #[error(transparent)]
    Load(#[from] LoadError),
    #[error(transparent)]
    Look(#[from] LookError),
    #[error("{0}")]
    Plain(String),
}

/// An error and its causes, in one line.
fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    let mut texts: Vec<String> = causes.map(ToString::to_string).collect();
    texts.dedup();
    texts.join(": ")
}

/// Seconds, to the millisecond: smaller differences are scheduling noise.
fn rounded(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e3).round() / 1e3
}
