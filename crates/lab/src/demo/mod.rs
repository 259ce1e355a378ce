//! `weft demo`: five machines in namespaces, a weft node on each, real traffic, figures. It needs
//! nothing installed, no root if unprivileged user namespaces are enabled, and less than a minute.
//!
//! [`report`] is its output, `stage` the machines and their networks, `acts` the steps.

mod acts;
mod error;
pub mod report;
mod stage;

use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Instant;

use weft_os::netns::Access;

pub use error::StepError;
use report::{Figures, Step, Summary};
use stage::Stage;

use crate::interrupt::Interrupts;
use crate::world::{World, WorldError};

/// Options of the demo.
#[derive(Debug, Clone)]
pub struct Options {
    /// Print one document of schema `weft.demo/1` instead of text.
    pub json: bool,
    /// Leave the nodes running until Ctrl-C, and keep their directories.
    pub keep: bool,
    /// The `weft` binary to run, usually this process's own.
    pub weft: PathBuf,
}

/// Runs the demo and prints progress to standard output. Call it first in the process: a user
/// without root's rights moves to a user namespace, which is impossible for a process with several
/// threads.
///
/// # Errors
/// [`DemoError::Step`] for a failed step; the document is printed nevertheless. The others if the
/// demo could not start or print.
pub fn run(options: &Options) -> Result<Summary, DemoError> {
    let access = World::enter()?;
    let world = World::new()?;
    let interrupts = Interrupts::catch(world.directory().to_owned()).map_err(DemoError::Interrupts)?;
    let mut demo = Demo {
        json: options.json,
        reported: false,
        start: Instant::now(),
        summary: Summary {
            schema: "weft.demo/1",
            ok: true,
            seconds: 0.0,
            nodes: Vec::new(),
            steps: Vec::new(),
            figures: Figures::default(),
            paths: Vec::new(),
            changes: Vec::new(),
        },
    };
    demo.say("Five machines in network namespaces, a weft node on each, real packets.\n")?;
    demo.say(&report::drawing())?;
    let result = demo.perform(&world, options, access, &interrupts);
    demo.finish(world, options.keep, result)
}

/// Why the demo did not succeed.
#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    /// The network could not be built.
    #[error(transparent)]
    World(#[from] WorldError),
    /// Ctrl-C could not be caught.
    #[error("signals cannot be caught")]
    Interrupts(#[source] io::Error),
    /// Standard output is gone.
    #[error("standard output cannot be written")]
    Output(#[source] io::Error),
    /// A step failed. The logs are kept.
    #[error("step `{name}` failed; the logs are in {}", .logs.display())]
    Step {
        /// The step.
        name: &'static str,
        /// The reason.
        source: StepError,
        /// The directory with `alpha.log` and the others.
        logs: PathBuf,
    },
}

/// Reasons to end the demo early.
enum Ended {
    Failed { name: &'static str, source: StepError },
    Output(DemoError),
}

impl From<DemoError> for Ended {
    fn from(error: DemoError) -> Self {
        Self::Output(error)
    }
}

struct Demo {
    json: bool,
    /// Whether the table or the document has been printed, which happens once.
    reported: bool,
    start: Instant,
    summary: Summary,
}

impl Demo {
    fn perform(
        &mut self,
        world: &World,
        options: &Options,
        access: Access,
        interrupts: &Interrupts,
    ) -> Result<(), Ended> {
        let mut stage = self.set(world, options)?;
        let mut load = None;
        self.step("link", |figures| stage.link(figures))?;
        self.step("ping", |figures| stage.ping(figures))?;
        self.step("tcp", |figures| stage.tcp(figures))?;
        self.step("nat", |figures| stage.nat(figures))?;
        self.step("roam", |figures| stage.roam(figures))?;
        self.step("join", |figures| stage.join(figures))?;
        self.step("cut", |_| stage.cut(&mut load))?;
        self.step("heal", |figures| stage.heal(load, figures))?;
        self.step("paths", |_| {
            let count = stage.meet()?;
            Ok(format!("{count} pairs of nodes reach each other in both directions"))
        })?;
        self.summary.nodes = stage.nodes();
        (self.summary.paths, self.summary.changes) = stage
            .paths()
            .and_then(|paths| Ok((paths, stage.changes()?)))
            .map_err(|error| {
                let source = error.into();
                Ended::Failed { name: "paths", source }
            })?;
        if options.keep {
            self.step("logs", |_| stage.logs())?;
            self.report()?;
            self.hand_over(access)?;
            interrupts.wait();
            return self.step("stop", |_| stage.stop());
        }
        self.step("stop", |_| stage.stop())?;
        self.step("logs", |_| stage.logs())
    }

    /// The first step, which builds the network for the others.
    fn set(&mut self, world: &World, options: &Options) -> Result<Stage, Ended> {
        let stage = self.timed("start", |_| {
            let stage = Stage::set(world, &options.weft)?;
            let text = "five keys made, four daemons answer".to_owned();
            Ok((stage, text))
        })?;
        self.summary.nodes = stage.nodes();
        Ok(stage)
    }

    fn step(
        &mut self,
        name: &'static str,
        work: impl FnOnce(&mut Figures) -> Result<String, StepError>,
    ) -> Result<(), Ended> {
        self.timed(name, |figures| Ok(((), work(figures)?)))
    }

    /// Runs a step that returns a value besides its line of output.
    fn timed<T>(
        &mut self,
        name: &'static str,
        work: impl FnOnce(&mut Figures) -> Result<(T, String), StepError>,
    ) -> Result<T, Ended> {
        let start = Instant::now();
        let result = work(&mut self.summary.figures);
        let step = Step {
            name,
            ok: result.is_ok(),
            seconds: start.elapsed().as_secs_f64(),
            text: match &result {
                Ok((_, text)) => text.clone(),
                Err(error) => chain(error),
            },
        };
        self.say(&format!("{step}\n"))?;
        self.summary.ok &= step.ok;
        self.summary.steps.push(step);
        match result {
            Ok((made, _)) => Ok(made),
            Err(source) => Err(Ended::Failed { name, source }),
        }
    }

    /// Prints how to inspect a network that is kept.
    fn hand_over(&self, access: Access) -> Result<(), DemoError> {
        let user = match access {
            Access::Privileged => "",
            Access::UserNamespace => " -U --preserve-credentials",
        };
        let mut text = String::from("\nThe network stays until Ctrl-C. Commands inside, for example:\n");
        let ends: Vec<_> = self.summary.nodes.iter().filter(|node| node.name != "relay").collect();
        for (node, other) in ends.iter().zip(ends.iter().rev()) {
            text += &format!(
                "  nsenter -t {}{user} -n ping {}\n  weft status --state {}\n",
                node.pid,
                other.address,
                node.state.display(),
            );
        }
        self.say(&text)
    }

    /// Prints the table or the document, if that has not happened.
    fn report(&mut self) -> Result<(), DemoError> {
        if std::mem::replace(&mut self.reported, true) {
            return Ok(());
        }
        self.summary.seconds = self.start.elapsed().as_secs_f64();
        if !self.json {
            let seconds = self.summary.seconds;
            let passed = match self.summary.ok {
                true => format!("\nAll steps passed in {seconds:.1} s.\n"),
                false => String::new(),
            };
            return self.say(&format!("\n{}{passed}", self.summary));
        }
        let text = serde_json::to_string_pretty(&self.summary);
        print(&(text.map_err(|error| DemoError::Output(error.into()))? + "\n"))
    }

    fn finish(mut self, mut world: World, keep: bool, result: Result<(), Ended>) -> Result<Summary, DemoError> {
        let failure = match result {
            Ok(()) => None,
            Err(Ended::Output(error)) => return Err(error),
            Err(Ended::Failed { name, source }) => Some((name, source)),
        };
        if keep || failure.is_some() {
            world.keep_directory();
        }
        self.report()?;
        if let Some((name, source)) = failure {
            let logs = world.directory().to_owned();
            return Err(DemoError::Step { name, source, logs });
        }
        Ok(self.summary)
    }

    /// Prints text, unless the output is JSON.
    fn say(&self, text: &str) -> Result<(), DemoError> {
        if self.json { Ok(()) } else { print(text) }
    }
}

fn print(text: &str) -> Result<(), DemoError> {
    let mut out = io::stdout().lock();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    written.map_err(DemoError::Output)
}

/// An error with its sources, in one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(source) = next {
        text.push_str(": ");
        text.push_str(&source.to_string());
        next = source.source();
    }
    text
}
