//! The `weft` command: a thin layer over the control socket and the state directory.
//! The feature `lab`, which is on by default, adds the demo, the simulator and the lab.
//!
//! Exit status: 0 done; 1 not done (unreachable, stopped, refused); 2 wrong usage or configuration;
//! 3 measured, but what was measured changed meanwhile. An error is one line on standard error:
//! what, where, what to do.

mod broker;
mod configure;
mod down;
mod failure;
mod human;
mod identity;
mod interrupt;
mod network;
mod output;
mod peers;
mod perf;
mod ping;
mod service;
mod status;
#[cfg(feature = "lab")]
mod tools;
mod trace;
mod up;
mod version;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use weft_node::state::{StateError, StatePaths};

use failure::Failure;

/// Joins your machines into one private network, without server or account.
#[derive(Debug, Parser)]
#[command(name = "weft", version = version::LINE, arg_required_else_help = true)]
struct Args {
    /// State directory [default: $WEFT_STATE, or /var/lib/weft for root and ~/.local/state/weft for
    /// others, whose commands ask root's daemon if they have none of their own]
    #[arg(long, global = true, value_name = "DIR")]
    state: Option<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the node in the foreground; the first time, make a key and a configuration
    Up(up::Args),
    /// Stop the node and wait until it has stopped
    Down,
    /// Show this node and the state of each peer
    Status(status::Args),
    /// List the peers, or show one in detail
    Peers(peers::Args),
    /// Make a private network, with this machine as its first member
    Create(network::CreateArgs),
    /// Print a code by which another machine joins the network
    Invite(network::InviteArgs),
    /// Join a network with the code of an invite
    Join(network::JoinArgs),
    /// List the networks of this node
    Networks(network::ListArgs),
    /// List the members of the networks
    Members(network::ListArgs),
    /// Remove or rename a member of a network
    #[command(subcommand)]
    Member(network::MemberAction),
    /// Let a member invite and remove others, or no longer
    #[command(subcommand)]
    Admin(network::AdminAction),
    /// List or revoke open invites
    Invites(network::InvitesArgs),
    /// Leave a network
    Leave(network::Of),
    /// Add or remove a peer
    #[command(subcommand)]
    Peer(configure::PeerAction),
    /// Change a setting of the configuration
    Set(configure::SetArgs),
    /// Read the configuration again
    Reload,
    /// Keep a change that was made with --confirm
    Confirm,
    /// Show or check the configuration
    #[command(subcommand)]
    Config(configure::ConfigAction),
    /// Send echoes to a peer and show the path they take
    Ping(ping::Args),
    /// Measure throughput and round trips to a peer, and name the bottleneck
    Perf(Box<perf::Args>),
    /// Show where the time of a running node's packet path goes, stage by stage
    Trace(trace::Args),
    /// Serve one test for the daemon, which starts this by itself
    #[command(hide = true)]
    PerfServe(perf::serve::Args),
    /// Do for the daemon what takes root's rights; the daemon starts this by itself
    #[command(hide = true)]
    Broker(broker::Args),
    /// Run the node as a service of systemd: from boot on, and without a terminal
    #[command(subcommand)]
    Service(service::Action),
    /// Make, show or import the node's key
    #[command(subcommand)]
    Identity(identity::Action),
    /// Show version and commit
    Version(version::Args),
    #[cfg(feature = "lab")]
    #[command(flatten)]
    Tools(tools::Command),
}

fn main() -> ExitCode {
    let done = match Args::try_parse() {
        Ok(args) => run(args),
        Err(error) => output::usage(&error),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

fn run(args: Args) -> Result<(), Failure> {
    let has_state = args.state.is_some();
    let named = args.state.or_else(|| std::env::var_os("WEFT_STATE").map(PathBuf::from));
    let place = |unnamed: fn() -> Result<StatePaths, StateError>| match &named {
        Some(directory) => Ok(StatePaths::new(directory)),
        None => unnamed(),
    };
    // The state of this user's own node, and that of the daemon that a command addresses.
    let paths = || place(StatePaths::default_place);
    let daemon = || place(StatePaths::of_daemon);
    match args.command {
        Command::Up(args) => up::run(paths()?, &args),
        Command::Down => down::run(&daemon()?),
        Command::Status(args) => status::run(&daemon()?, &args),
        Command::Peers(args) => peers::run(&daemon()?, args),
        Command::Create(args) => network::create(&daemon()?, args),
        Command::Invite(args) => network::invite(&daemon()?, args),
        Command::Join(args) => network::join(&daemon()?, args),
        Command::Networks(args) => network::networks(&daemon()?, &args),
        Command::Members(args) => network::members(&daemon()?, &args),
        Command::Member(action) => network::member(&daemon()?, action),
        Command::Admin(action) => network::admin(&daemon()?, action),
        Command::Invites(args) => network::invites(&daemon()?, args),
        Command::Leave(of) => network::leave(&daemon()?, of),
        Command::Peer(action) => configure::peer(&daemon()?, action),
        Command::Set(args) => configure::set(&daemon()?, &args),
        Command::Reload => configure::reload(&daemon()?),
        Command::Confirm => configure::confirm(&daemon()?),
        Command::Config(action) => configure::config(&daemon()?, action),
        Command::Ping(args) => ping::run(&daemon()?, &args),
        Command::Perf(args) => perf::run(&daemon()?, &args),
        Command::Trace(args) => trace::run(&daemon()?, &args),
        Command::PerfServe(args) => perf::serve::run(&args),
        Command::Broker(args) => broker::run(args),
        Command::Identity(action @ identity::Action::Show { .. }) => identity::run(daemon()?, action),
        Command::Identity(action) => identity::run(paths()?, action),
        Command::Service(action) => service::run(&action, has_state),
        Command::Version(args) => version::run(&args),
        #[cfg(feature = "lab")]
        Command::Tools(command) => tools::run(command),
    }
}
