//! The running daemon: it combines the core, the lanes and the system.
//!
//! Packets move on the lanes' own threads. Everything in this module runs on one thread that may be
//! slow. It passes reports to the core and commands to the lanes, keeps the core's time, answers
//! the control socket, and writes the state that must outlive the daemon.
//!
//! | modules | what they are |
//! |---|---|
//! | `start`, `run`, `apply`, `peers` | the start, the loop, and what must hold, passed on |
//! | `status_builder`, `why`, `whois`, `network_list`, `member_routes`, `reach_status`, `events` | documents for clients |
//! | `host`, `uplinks`, `exit`, `exit_check`, `exit_settings`, `known_flows`, `faults`, `looks`, `checks`, `rights` | this host, and what lights rest on |
//! | `networks`, `network_commands`, `membership`, `saving`, `writer`, `verifier`, `farewells` | private networks |
//! | `reaching`, `lifetimes`, `stun`, `nostr`, `lan`, `port_mapping`, `netcheck`, `hops`, `host_names` | the search for peers and paths |
//! | `transfers`, `transfer_receivers`, `transfer_words`, `users` | connections between processes of users that move files |
//! | `wireguard`, `guests` | devices with WireGuard |
//! | `configuration`, `reconfigure` | the configuration, while the daemon runs |

mod absence;
mod apply;
mod asked_at;
mod checks;
mod configuration;
mod echo;
mod events;
mod exit;
mod exit_check;
mod exit_settings;
mod farewells;
mod faults;
mod guests;
mod hops;
mod host;
mod host_names;
mod inquiries;
mod known_flows;
mod lan;
mod lanes;
mod lifetimes;
mod local_ends;
mod looks;
mod member_routes;
mod membership;
mod moves;
mod netcheck;
mod network_commands;
mod network_list;
mod networks;
mod nostr;
mod nvpn;
mod other_port;
mod peers;
mod perf;
mod port_mapping;
mod reach_advice;
mod reach_status;
mod reaching;
mod reconfigure;
mod references;
mod reports;
mod resolvers;
mod rights;
mod run;
mod saving;
mod signals;
mod start;
mod status_builder;
mod stun;
mod subnets;
mod suites;
mod trace_timeout;
mod transfer_receivers;
mod transfer_words;
mod transfers;
mod unproven;
mod uplinks;
mod users;
mod verifier;
mod whois;
mod why;
mod wireguard;
mod writer;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use weft_config::Config;
use weft_host::tun::{Interface, InterfaceError};
use weft_noise::Identity;
use weft_os::clock::ContinuityWatch;
use weft_os::process::{PrivilegeError, group_id};
use weft_os::udp::{self, BindOptions, UdpSocket};
use weft_plane::StartError;
use weft_store::state::{StateDir, StateError};

use crate::logging::LogControl;
use start::{Known, Opened, Rest};

/// The parameters of a daemon.
#[derive(Debug)]
pub struct Options {
    /// The state directory, locked.
    pub state: StateDir,
    /// The settings, already checked.
    pub config: Config,
    /// The node's key pair.
    pub identity: Identity,
    /// The program whose command `perf-serve` serves tests, usually this one.
    pub program: PathBuf,
    /// Changes the filter of the log with the configuration, unless another one was given.
    pub log: Option<LogControl>,
    /// Time until the last change of the configuration is taken back unless it is confirmed.
    pub confirm: Option<Duration>,
    /// The last change of the configuration was not confirmed, and was taken back before this start.
    pub taken_back: bool,
}

/// The reason why the daemon did not start, or stopped by itself. Each is one line that says what
/// to do.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// A UDP address cannot be used.
    #[error("{0}; `weft down` stops a weft that runs already, or change udp.listen in the configuration")]
    Bind(#[source] udp::BindError),
    /// The interface cannot be created or configured.
    #[error(transparent)]
    Interface(#[from] InterfaceError),
    /// The control socket cannot be created.
    #[error(transparent)]
    Control(#[from] weft_control::BindError),
    /// Rights could not be given up.
    #[error("{0}")]
    Privileges(#[from] PrivilegeError),
    /// The ownership of the state directory cannot be changed to the user of the daemon.
    #[error(transparent)]
    State(#[from] StateError),
    /// A packet thread did not start.
    #[error(transparent)]
    Lane(#[from] StartError),
    /// The system returned no random bytes.
    #[error("the system has no random numbers: {0}")]
    Random(#[source] std::io::Error),
    /// The control side did not start.
    #[error("cannot start the control side: {0}")]
    Runtime(#[source] std::io::Error),
    /// Changes of the system's addresses cannot be monitored.
    #[error("cannot watch the system's addresses: {0}")]
    Watch(#[source] std::io::Error),
    /// A packet thread ended; the log has the reason.
    #[error("packets stopped moving; see the log for the reason")]
    LaneEnded,
}

impl DaemonError {
    /// Returns the exit code of the process: 1, because none of these is an error of usage.
    #[must_use]
    pub const fn exit_code(&self) -> u8 {
        1
    }
}

/// Checks whether a daemon with this configuration could start: the process may create the
/// interface, and its UDP addresses are free. It serves the first start, before a key and a
/// configuration are created. Everything that it creates is removed again.
///
/// # Errors
/// [`DaemonError`], as [`run`].
pub fn check(config: &Config) -> Result<(), DaemonError> {
    Interface::check(config)?;
    bind(config).map(drop)
}

/// Runs the daemon until a signal or the control socket stops it.
///
/// Must be called while the process has one thread, because it gives up privileges before it starts
/// others.
///
/// # Errors
///
/// [`DaemonError`]. Everything that was created until then is removed again.
pub fn run(options: Options) -> Result<(), DaemonError> {
    if options.taken_back {
        tracing::info!("the last change of the configuration was not confirmed and is taken back");
    }
    // A confined process cannot open the files that these read.
    let continuity = ContinuityWatch::new();
    let outlives_terminal = signals::outlives_terminal();
    let users = users::Users::read();
    let opened = Opened::new(&options)?;
    let mut broker = opened.start_broker(&options);
    let access = control_access(&options.config, &options.state);
    let Options { state, config, log, .. } = options;
    let identity = Arc::new(options.identity);
    let (state, rights) = rights::give_up(state, opened.keeps_nice)?;
    let known = Known::read(&config, &identity, state.paths(), &opened, &broker);
    // The runtime and its sockets are dropped with this function, on every return path, and before the broker.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(DaemonError::Runtime)?;
    runtime.block_on(async {
        let stop = signals::StopSignals::new(outlives_terminal).map_err(DaemonError::Runtime)?;
        let control = weft_control::ControlServer::bind(&state.paths().control(), access).await?;
        let reports = reports::Reports::new();
        let rest = Rest {
            identity,
            config,
            program: options.program,
            log,
            confirm: options.confirm,
            state,
            rights,
            continuity,
            users,
        };
        let (parts, _borrowed) = rest.assemble(opened, known, &mut broker, &reports)?;
        run::Daemon::new(parts).serve(control, reports, stop).await
    })
}

/// Determines the users that may connect to the control socket, and the owners among them. All
/// users reach only the socket of a directory of its own.
fn control_access(config: &Config, state: &StateDir) -> weft_control::Access {
    let group = group_id(weft_control::OWNERS_GROUP).unwrap_or_else(|error| {
        tracing::info!(%error, "groups cannot be read, so none owns the daemon");
        None
    });
    weft_control::Access {
        owners: weft_control::Owners {
            operator: config.control.operator.as_ref().map(|operator| operator.uid),
            group,
        },
        all_users: state.paths().control_directory().is_some(),
    }
}

/// Binds every configured address. Of the default pair, one may fail if its IP version is not
/// available.
fn bind(config: &Config) -> Result<Vec<UdpSocket>, DaemonError> {
    let mut sockets = Vec::new();
    let by_default = config.udp.listen == Config::default().udp.listen;
    for address in &config.udp.listen {
        match UdpSocket::bind(*address, bind_options(config)) {
            Ok(socket) => sockets.push(socket),
            Err(error @ (udp::BindError::NoIpVersion(_) | udp::BindError::NotAvailable(_))) if by_default => {
                tracing::info!(%error, "continuing without");
            }
            Err(error) => return Err(DaemonError::Bind(error)),
        }
    }
    for socket in &sockets {
        let buffers = socket.buffers();
        if let Some((sysctl, bytes)) = buffers.receive_shortfall().or(buffers.send_shortfall()) {
            tracing::info!(
                "socket buffers are smaller than wanted; bursts may be lost unless `sysctl -w {sysctl}={bytes}`"
            );
            break;
        }
    }
    Ok(sockets)
}

fn bind_options(config: &Config) -> BindOptions {
    BindOptions {
        ipv6_only: true,
        gso: config.udp.batch > 1,
        gro: config.udp.gro,
        ..BindOptions::default()
    }
}
