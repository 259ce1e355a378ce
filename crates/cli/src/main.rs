//! The `weft` command: a thin layer over the control socket and the state directory.
//! The feature `lab`, which is on by default, adds the demo, the simulator and the lab.
//!
//! [`commands`] has the exit codes of each command, and its users. An error is one line on standard error:
//! what, where, what to do; with `--json` it is a document on standard output, too.

mod address;
mod broker;
mod commands;
mod configure;
mod doctor;
mod documents;
mod down;
mod events;
mod failure;
mod feed;
mod hops;
mod human;
mod identity;
mod interrupt;
mod key;
mod netcheck;
mod network;
mod output;
mod peers;
mod perf;
mod ping;
mod reach;
mod reference;
mod rule;
mod service;
mod start;
mod status;
mod strict;
#[cfg(feature = "lab")]
mod tools;
mod trace;
mod transfer;
mod up;
mod verify;
mod version;
mod wait;
mod wg;
mod whois;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use failure::Failure;
use start::Place;

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
    Down(down::Args),
    /// Show this node and the state of each peer
    Status(status::Args),
    /// List the peers, or show one in detail
    Peers(peers::Args),
    /// Make a private network, with this machine as its first member; start the daemon if none runs
    Create(network::CreateArgs),
    /// Print a code by which another machine joins the network
    Invite(network::InviteArgs),
    /// Join a network with the code of an invite, or ask an administrator; start the daemon if none runs
    Join(network::JoinArgs),
    /// List the requests for membership, and accept them for some time
    Requests(network::RequestsArgs),
    /// Make a node a member that has asked
    Approve(network::ApproveArgs),
    /// Deny the request of a node
    Deny(network::DenyArgs),
    /// List the networks of this node
    Networks(network::ListArgs),
    /// List the members of the networks
    Members(network::ListArgs),
    /// Remove, rename, tag or replace a member of a network, or fix its address
    #[command(subcommand)]
    Member(network::MemberAction),
    /// Let a member invite and remove others, or no longer
    #[command(subcommand)]
    Admin(network::AdminAction),
    /// Show or change the rules of a network: which flows pass between its members
    #[command(subcommand)]
    Rule(rule::RuleAction),
    /// Say why packets to a peer take their path; or whether a flow passes between two nodes, and why
    Why(rule::WhyArgs),
    /// Check what the network of this host lets through: UDP, NATs, port mapping, relays
    Netcheck(netcheck::Args),
    /// List the subnets behind members: offered, approved, used
    Routes(network::ListArgs),
    /// Approve or revoke a subnet behind a member
    #[command(subcommand)]
    Route(network::route::RouteAction),
    /// List or revoke open invites
    Invites(network::InvitesArgs),
    /// Take devices with WireGuard, as phones, as guests of this machine
    #[command(subcommand)]
    Wg(wg::WgAction),
    /// Leave a network
    Leave(network::LeaveArgs),
    /// Add or remove a peer
    #[command(subcommand)]
    Peer(configure::PeerAction),
    /// Change a setting of the configuration
    Set(configure::SetArgs),
    /// Read the configuration again
    Reload(configure::Print),
    /// Keep a change that was made with --confirm
    Confirm(configure::Print),
    /// Show or check the configuration
    #[command(subcommand)]
    Config(configure::ConfigAction),
    /// Show which node an address, a name or a key belongs to
    Whois(whois::Args),
    /// Look for what on this host keeps the node from working
    Doctor(doctor::Args),
    /// Show words by which two people compare the keys of their machines
    Verify(verify::Args),
    /// Wait until a peer is connected
    Wait(wait::Args),
    /// Print changes as they come, a document weft.event/1 or weft.public-event/1 a line: peers, paths, members
    Events,
    /// Send echoes to a peer and show the path they take
    Ping(ping::Args),
    #[command(flatten)]
    Transfer(transfer::Command),
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
    /// Export or import the node's key under a passphrase, as a backup
    #[command(subcommand)]
    Key(key::Action),
    /// Print the completion script of a shell
    Completion(reference::CompletionArgs),
    /// Write the manual pages into a directory
    Man(reference::ManArgs),
    /// Print the JSON Schema of a document that --json prints, or the names of all
    Schema(documents::Args),
    /// Show version and commit
    Version(version::Args),
    #[cfg(feature = "lab")]
    #[command(flatten)]
    Tools(tools::Command),
}

/// The command line, with all that help and pages show of it.
fn command_line() -> clap::Command {
    commands::with_facts(Args::command())
}

fn main() -> ExitCode {
    let matches = command_line().try_get_matches();
    let path = matches.as_ref().map(commands::path).unwrap_or_default();
    let json = match &matches {
        Ok(matches) => output::is_json(matches),
        Err(_) => output::names_json(std::env::args_os()),
    };
    let done = match matches.and_then(|matches| Args::from_arg_matches(&matches)) {
        Ok(args) => run(args),
        Err(error) => output::usage(&error, &std::env::args_os().collect::<Vec<_>>()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            let code = failure.exit_code();
            debug_assert!(
                commands::may_end(&path, code),
                "`weft {path}` ends with {code}: src/commands.rs"
            );
            failure.report(json)
        }
    }
}

fn run(args: Args) -> Result<(), Failure> {
    let has_state = args.state.is_some();
    let named = args.state.or_else(|| std::env::var_os("WEFT_STATE").map(PathBuf::from));
    let place = Place(named);
    let (paths, daemon) = (|| place.own(), || place.daemon());
    match args.command {
        Command::Up(args) => up::run(paths()?, &args),
        Command::Down(args) => down::run(&daemon(), &args),
        Command::Status(args) => status::run(&daemon(), &args),
        Command::Peers(args) => peers::run(&daemon(), args),
        Command::Create(args) => network::create(&place, args),
        Command::Invite(args) => network::invite(&daemon(), args),
        Command::Join(args) => network::join(&place, args),
        Command::Requests(args) => network::requests(&daemon(), &args),
        Command::Approve(args) => network::approve(&daemon(), args),
        Command::Deny(args) => network::deny(&daemon(), &args),
        Command::Networks(args) => network::networks(&daemon(), &args),
        Command::Members(args) => network::members(&daemon(), &args),
        Command::Member(action) => network::member(&daemon(), action),
        Command::Admin(action) => network::admin(&daemon(), action),
        Command::Rule(action) => rule::rule(&daemon(), action),
        Command::Why(args) => rule::why(&daemon(), args),
        Command::Netcheck(args) => netcheck::run(&daemon(), &args),
        Command::Routes(args) => network::route::routes(&daemon(), &args),
        Command::Route(action) => network::route::route(&daemon(), action),
        Command::Invites(args) => network::invites(&daemon(), args),
        Command::Wg(action) => wg::wg(&daemon(), action),
        Command::Leave(args) => network::leave(&daemon(), args),
        Command::Peer(action) => configure::peer(&daemon(), action),
        Command::Set(args) => configure::set(&daemon(), &args),
        Command::Reload(print) => configure::reload(&daemon(), &print),
        Command::Confirm(print) => configure::confirm(&daemon(), &print),
        Command::Config(action) => configure::config(&daemon(), action),
        Command::Whois(args) => whois::run(&daemon(), args),
        Command::Doctor(args) => doctor::run(&daemon(), &args),
        Command::Verify(args) => verify::run(&daemon(), &args),
        Command::Wait(args) => wait::run(&daemon(), &args),
        Command::Events => events::run(&daemon()),
        Command::Ping(args) => ping::run(&daemon(), &args),
        Command::Transfer(command) => transfer::run(&place, command),
        Command::Perf(args) => perf::run(&daemon(), &args),
        Command::Trace(args) => trace::run(&daemon(), &args),
        Command::PerfServe(args) => perf::serve::run(&args),
        Command::Broker(args) => broker::run(args),
        Command::Identity(action @ identity::Action::Show { .. }) => identity::run(daemon(), action),
        Command::Identity(action) => identity::run(paths()?, action),
        Command::Key(action @ key::Action::Export { .. }) => key::run(daemon(), action),
        Command::Key(action) => key::run(paths()?, action),
        Command::Service(action) => service::run(&action, has_state),
        Command::Completion(args) => reference::completion(&args),
        Command::Man(args) => reference::man(&args),
        Command::Schema(args) => documents::run(&args),
        Command::Version(args) => version::run(&args),
        #[cfg(feature = "lab")]
        Command::Tools(command) => tools::run(command),
    }
}
