//! The running daemon: it combines the core, the lanes and the system.
//!
//! Packets move on the lanes' own threads. Everything in this module runs on one thread that may be
//! slow. It passes reports to the core and commands to the lanes, keeps the core's time, answers
//! the control socket, and writes the state that must outlive the daemon.

mod apply;
mod checks;
mod configuration;
mod echo;
mod events;
mod exit;
mod exit_check;
mod farewells;
mod faults;
mod hints;
mod hops;
mod host;
mod host_names;
mod inquiries;
mod lan;
mod lanes;
mod lifetimes;
mod looks;
mod member_routes;
mod membership;
mod moves;
mod netcheck;
mod network_commands;
mod network_list;
mod networks;
mod nostr;
mod perf;
mod port_mapping;
mod reach_status;
mod reaching;
mod reconfigure;
mod reports;
mod rights;
mod run;
mod saving;
mod signals;
mod status_builder;
mod stun;
mod subnets;
mod suites;
mod trace_timeout;
mod unproven;
mod uplinks;
mod verifier;
mod whois;
mod why;
mod writer;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use weft_config::Config;
use weft_core::Node;
use weft_desired::members::Members;
use weft_desired::{Admission, Desired, Inputs, System};
use weft_discovery::relay::Tls;
use weft_host::broker::{self, Broker};
use weft_host::hosts::Hosts;
use weft_host::interest::Interest;
use weft_host::interface::Keeper;
use weft_host::managers::Unmanaged;
use weft_host::names;
use weft_host::tun::{self, Interface, InterfaceError};
use weft_host::watch::Watch;
use weft_networks::Networks;
use weft_noise::Identity;
use weft_os::clock::{ContinuityWatch, boottime_ms, unix_s};
use weft_os::process::{PrivilegeError, give_up_nice, group_id, permit_nice};
use weft_os::random::{SystemRng, random_bytes};
use weft_os::udp::{self, BindOptions, UdpSocket};
use weft_packet::{HandshakeLimits, Lane, LaneConfig, MAX_TRAIN_BYTES, MAX_TRAIN_SEGMENTS, Place};
use weft_plane::{LANE_NICE, LaneSetup, Lanes, StartError};
use weft_store::fast_peers::FastPeers;
use weft_store::last_addresses::LastAddresses;
use weft_store::network_files::{self, NetworkFiles};
use weft_store::state::{StateDir, StateError};
use weft_stream::Documents;

use crate::logging::LogControl;
use configuration::Configuration;
use exit::Exits;
use faults::Faults;
use hints::Hints;
use host::HostWatch;
use host_names::HostLookups;
use lan::Lan;
use lanes::MoreLanes;
use nostr::Signalling;
use reaching::Reaching;
use saving::Saving;
use verifier::Verifier;

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
    /// The exit code of the process: 1, because none of these is an error of usage.
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
    let Options {
        state,
        config,
        identity,
        program,
        log,
        confirm,
        taken_back,
    } = options;
    if taken_back {
        tracing::info!("the last change of the configuration was not confirmed and is taken back");
    }
    let identity = Arc::new(identity);
    // A confined process cannot open the files that these read.
    let continuity = ContinuityWatch::new();
    let outlives_terminal = signals::outlives_terminal();
    let mut sockets = bind(&config)?;
    // Before the interface is there: the broker keeps the files, and removes them.
    let (_, refused) = Unmanaged::write(&config.tun.name);
    for error in refused {
        tracing::debug!(%error, "a program that manages interfaces is not told to leave the interface alone");
    }
    let interface = Interface::create(
        &config,
        &Members::configured(&config, &Hosts::default()).routes(),
        identity.node_addr(),
    )?;
    interface.limit_trains((MAX_TRAIN_BYTES / usize::from(config.udp.largest())).min(MAX_TRAIN_SEGMENTS) as u32);
    let more = MoreLanes::open(config.lanes(), &interface, &mut sockets, bind_options(&config));
    let names = names::bind(&config);
    let perf = perf::bind(&config, identity.node_addr().to_ipv6(), interface.name());
    // Threads that raise their priority at times need the resource limit for it, or else the
    // capability; each thread finds out whether it has either.
    let keeps_nice = config.prefer_lanes && permit_nice(LANE_NICE).is_err();
    let mut broker = Broker::start(
        &program,
        &broker::Options {
            interface: interface.index(),
            key: identity.public(),
            config: config.path.clone(),
            resolv_conf: names.as_ref().and_then(|names| names.resolv_conf()).map(Path::to_owned),
        },
    );
    let tls = Tls::load();
    let access = control_access(&config, &state);
    let (state, mut rights) = rights::give_up(state, keeps_nice)?;
    // The daemon writes these files, so root does not read them.
    let (files, mut kept) = NetworkFiles::load(state.paths().directory(), &identity.public());
    for network in &mut kept {
        network_files::load_presences(state.paths().directory(), network, (boottime_ms(), unix_s()));
    }
    let networks = Networks::new(Arc::clone(&identity), kept, Box::new(SystemRng));
    let mut hosts = Hosts::default();
    hosts.set(&config.host_names(), boottime_ms());
    let system = System {
        interface: interface.index(),
        surroundings: interface.surroundings().clone(),
        uplinks: Vec::new(),
        place: Err("it is not known yet which gateway there is"),
        listen: sockets.iter().map(UdpSocket::local_address).collect(),
    };
    // Nothing of it holds before the loop begins.
    let desired = Desired::of(&Inputs {
        config: &config,
        networks: &networks,
        system: &system,
        hosts: &hosts,
        adverts: &BTreeMap::new(),
        pass: &|_| false,
        served: None,
        times: (boottime_ms(), unix_s()),
    });
    // After this the generator does not fail.
    let (mut gate_key, mut seed) = ([0; 16], [0; 16]);
    random_bytes(&mut gate_key).map_err(DaemonError::Random)?;
    random_bytes(&mut seed).map_err(DaemonError::Random)?;
    let unproven_per_second = unproven::diffie_hellmans_per_second(&identity);
    let lane_config = LaneConfig {
        me: identity.node_addr(),
        mtu: config.udp.payload(),
        probe: config.udp.mtu.is_none(),
        transit: config.mesh.enabled && config.mesh.transit,
        handshakes: HandshakeLimits {
            per_second: unproven_per_second,
            key: gate_key,
        },
    };
    let lanes = 1 + more.ends.len() as u8;
    let key = identity.public();
    let own = Arc::clone(&identity);
    let mut node = Node::new(
        core_config(&config, lanes, unproven_per_second),
        identity,
        Box::new(SystemRng),
    );
    node.listen(vec![weft_stream::PORT, weft_reach::PORT, weft_wire::check::PORT]);
    let addresses = LastAddresses::load(&state.paths().last_addresses());
    let fast = FastPeers::load(&state.paths().fast_peers());

    // The runtime and its sockets are dropped with this function, on every return path.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(DaemonError::Runtime)?;
    runtime.block_on(async {
        let stop = signals::StopSignals::new(outlives_terminal).map_err(DaemonError::Runtime)?;
        let control = weft_control::ControlServer::bind(&state.paths().control(), access).await?;
        let reports = reports::Reports::new();
        let names = names
            .map(|bound| names::start(bound, desired.zone.clone(), (key, interface.index()), &broker))
            .transpose();
        let names = names.map_err(DaemonError::Runtime)?;
        let launch = perf::Launch {
            program,
            control: state.paths().control(),
            device: interface.name().to_owned(),
            limits: config.perf.limits,
        };
        let lookups = HostLookups::new(&broker);
        let nostr = Signalling::new(own, &config.nostr, Arc::new(tls), lookups.client());
        let external = config.reach.external.clone();
        rights.watch(&mut broker);
        let perf = perf::PerfServer::start(perf, &config, launch);
        let services = status_builder::Services {
            dns: names,
            perf,
            rights,
            hosts,
        };
        let known = (fast, Hints::default());
        let facts = status_builder::Facts::new(key, &interface, (&sockets, &more), &config, services, known);
        let (tun, routes, _borrowed) = interface.into_parts();
        let ends = std::iter::once((tun, sockets)).chain(more.ends);
        let setup = |(place, (tun, sockets)): (Place, _)| {
            let reports = reports.clone();
            LaneSetup {
                lane: Lane::at(lane_config, place),
                tun,
                sockets,
                batch: config.udp.batch,
                preferred: config.prefer_lanes,
                reports: Box::new(move |report| reports.offer(place.number(), report)),
            }
        };
        let places = (0..lanes).filter_map(|number| Place::new(number, lanes));
        let lanes = Lanes::start(places.zip(ends).map(setup).collect())?;
        if keeps_nice {
            give_up_nice()?;
        }
        let wanted = tun::wanted(&config, key.node_addr(), &[], &routes);
        let keeper = Keeper::new(routes.index(), wanted, boottime_ms());
        let watch = Watch::of_network(Interest::new(routes.index())).map_err(DaemonError::Watch)?;
        let host = HostWatch::new(watch, keeper, broker.as_ref().ok());
        let configuration = Configuration::start(config, &broker, confirm);
        let exits = Exits::start(&broker);
        let faults = Faults::new(broker.as_ref().ok());
        let parts = run::Parts {
            node,
            lanes,
            facts,
            state,
            addresses,
            configuration,
            exits,
            faults,
            desired,
            system,
            networks,
            saving: Saving::start(files).map_err(DaemonError::Runtime)?,
            verifier: Verifier::start().map_err(DaemonError::Runtime)?,
            reaching: Reaching::new(key.node_addr(), &external),
            nostr,
            lookups,
            lan: Lan::new(),
            documents: Documents::new(weft_stream::PORT, weft_stream::Limits::default(), seed),
            routes,
            host,
            log,
            continuity,
        };
        run::Daemon::new(parts).serve(control, reports, stop).await
    })
}

/// The users that may connect to the control socket, and the owners among them. All users reach
/// only the socket of a directory of its own.
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

fn core_config(config: &Config, lanes: u8, unproven_per_second: u64) -> weft_core::Config {
    let ms = |d: std::time::Duration| u64::try_from(d.as_millis()).unwrap_or(u64::MAX / 4);
    weft_core::Config {
        heartbeat: ms(config.link.heartbeat),
        link_dead: ms(config.link.dead_after),
        rekey: ms(config.rekey_interval),
        session_idle: ms(config.session_idle),
        mtu: config.udp.payload(),
        probe: config.udp.mtu.is_none(),
        path_raise: ms(config.udp.raise),
        fast: config.fast.enabled,
        suites: suites::measured(config.fast.suite),
        phase_frames: config.fast.phase_frames.into(),
        reads_full: true,
        version: env!("CARGO_PKG_VERSION"),
        unproven_per_second,
        lanes,
        seal_whole: config.fast.privacy == weft_config::Privacy::Full,
        mesh: config.mesh.enabled,
        transit: config.mesh.transit,
        link_reports: config.reports.link,
        session_reports: config.reports.session,
        admit: Admission::of(config).admit,
        unix_at_zero: unix_s().saturating_sub(boottime_ms() / 1000),
    }
}
