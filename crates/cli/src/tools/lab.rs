//! `weft lab`: topologies and measurements in namespaces of this host.

mod bench;
mod cells;
mod compare;
mod hold;
mod null;
pub(super) mod scenario;

use crate::failure::Failure;

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Action {
    /// Run a scenario: build its hosts, NAT boxes and links, run its steps, report the results
    Run(scenario::Run),
    /// Run the cells of a scenario many times, each by itself, and print tables of the results
    Cells(cells::Args),
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
    Bench(bench::Args),
    /// Compare two benches
    Compare(compare::Args),
    /// Run one end of the null tunnel: no cryptography, the lower bound of cost
    #[command(hide = true)]
    Null(null::Args),
}

pub(crate) fn run(action: Action) -> Result<(), Failure> {
    match action {
        Action::Run(args) => scenario::run(args),
        Action::Cells(args) => cells::run(args),
        Action::List(args) => scenario::list(&args),
        Action::Up(args) => hold::up(&args),
        Action::Exec(args) => hold::exec(&args),
        Action::Down => hold::down(),
        Action::Hold(args) => hold::hold(&args),
        Action::Bench(args) => bench::run(args),
        Action::Compare(args) => compare::run(&args),
        Action::Null(args) => null::run(&args),
    }
}
