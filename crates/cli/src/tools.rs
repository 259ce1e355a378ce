//! The commands of the feature `lab`: the demo, the simulator, the lab and its bench. A build
//! without the feature has none of them.

mod demo;
mod failure;
mod lab;
mod sim;

pub(crate) use failure::ToolFailure;

use crate::failure::Failure;

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Show five nodes at work in network namespaces of this machine
    Demo(demo::Args),
    /// Run a mesh of many nodes on a virtual clock and print figures
    Sim(Box<sim::Args>),
    /// Build networks in namespaces of this machine, run scenarios in them, measure tunnels side by side
    #[command(subcommand)]
    Lab(Box<lab::Action>),
}

pub(crate) fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Demo(args) => demo::run(&args),
        Command::Sim(args) => sim::run(&args),
        Command::Lab(action) => lab::run(*action),
    }
}
