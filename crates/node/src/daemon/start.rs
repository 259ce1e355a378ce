//! The start of a daemon: what is opened with root's rights, what is read without them, and the parts
//! that then run.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use weft_config::Config;
use weft_contract::{HandshakeLimits, LaneConfig};
use weft_core::Node;
use weft_desired::{Admission, Desired, Inputs, System};
use weft_discovery::relay::Tls;
use weft_host::broker::{self, Broker};
use weft_host::dns::ExitNames;
use weft_host::flows::Flow;
use weft_host::hosts::Hosts;
use weft_host::interest::Interest;
use weft_host::interface::Keeper;
use weft_host::managers::Unmanaged;
use weft_host::names;
use weft_host::routes::WantedRoutes;
use weft_host::tun::{self, Interface, Kept};
use weft_host::watch::Watch;
use weft_networks::Networks;
use weft_noise::Identity;
use weft_os::clock::{ContinuityWatch, boottime_ms, unix_s};
use weft_os::process::{give_up_nice, permit_nice};
use weft_os::random::{SystemRng, random_bytes};
use weft_os::tun::Tun;
use weft_os::udp::{Devices, UdpSocket};
use weft_packet::{Lane, MAX_TRAIN_BYTES, MAX_TRAIN_SEGMENTS};
use weft_plane::{LANE_NICE, LaneSetup, Lanes};
use weft_store::fast_peers::FastPeers;
use weft_store::last_addresses::LastAddresses;
use weft_store::network_files::{self, NetworkFiles};
use weft_store::state::{StateDir, StatePaths};
use weft_stream::Documents;
use weft_wire::NodeAddr;

use super::configuration::Configuration;
use super::exit::Exits;
use super::faults::Faults;
use super::host::HostWatch;
use super::host_names::HostLookups;
use super::known_flows::{self, KnownFlows};
use super::lan::Lan;
use super::lanes::MoreLanes;
use super::local_ends::LocalEnds;
use super::nostr::Signalling;
use super::nvpn::Nvpn;
use super::reaching::Reaching;
use super::reports::Reports;
use super::resolvers::Resolvers;
use super::rights::DaemonRights;
use super::run::Parts;
use super::saving::Saving;
use super::status_builder::{Facts, Services};
use super::transfers::Transfers;
use super::users::Users;
use super::verifier::Verifier;
use super::wireguard::WireGuard;
use super::{DaemonError, Options, bind, bind_options, perf, suites, unproven};
use crate::logging::LogControl;

/// What is opened before the daemon gives its rights up.
pub(super) struct Opened {
    sockets: Vec<UdpSocket>,
    devices: Devices,
    interface: Interface,
    more: MoreLanes,
    names: Option<names::Bound>,
    perf: perf::Bound,
    tls: Tls,
    /// Whether lanes need the capability to raise their priority.
    pub(super) keeps_nice: bool,
}

impl Opened {
    /// Opens everything. The process has root's rights and one thread.
    ///
    /// # Errors
    /// [`DaemonError`]. Everything that was opened until then is closed again.
    pub(super) fn new(options: &Options) -> Result<Self, DaemonError> {
        let Options { config, identity, .. } = options;
        let mut sockets = bind(config)?;
        let devices = Devices::default();
        for socket in &mut sockets {
            socket.answer_through(devices.clone());
        }
        // Before the interface is there: the broker keeps the files, and removes them.
        let (_, refused) = Unmanaged::write(&config.tun.name);
        for error in refused {
            tracing::debug!(%error, "a program that manages interfaces is not told to leave the interface alone");
        }
        let interface = Interface::create(config, identity.node_addr())?;
        interface.limit_trains((MAX_TRAIN_BYTES / usize::from(config.udp.largest())).min(MAX_TRAIN_SEGMENTS) as u32);
        let more = MoreLanes::open(config.lanes(), &interface, &mut sockets, bind_options(config));
        let names = names::bind(config);
        let perf = perf::bind(config, identity.node_addr().to_ipv6(), interface.name());
        // Threads that raise their priority at times need the resource limit for it, or else the
        // capability; each thread finds out whether it has either.
        let keeps_nice = config.prefer_lanes && permit_nice(LANE_NICE).is_err();
        Ok(Self {
            sockets,
            devices,
            interface,
            more,
            names,
            perf,
            tls: Tls::load(),
            keeps_nice,
        })
    }

    /// Starts the broker, which keeps root's rights. It is to be dropped after the runtime: tasks hold
    /// connections to it, and a drop waits for its end.
    pub(super) fn start_broker(&self, options: &Options) -> io::Result<Broker> {
        let resolv_conf = self.names.as_ref().and_then(|names| names.resolv_conf());
        Broker::start(
            &options.program,
            &broker::Options {
                interface: self.interface.index(),
                key: options.identity.public(),
                config: options.config.path.clone(),
                resolv_conf: resolv_conf.map(Path::to_owned),
            },
        )
    }
}

/// What is known before the daemon runs. The daemon writes these files, so root does not read them.
pub(super) struct Known {
    files: NetworkFiles,
    networks: Networks,
    hosts: Hosts,
    system: System,
    /// None of it is applied before the loop begins.
    desired: Desired,
    /// The flows that the kernel knows, if there are rules.
    flows: Option<Vec<Flow>>,
    addresses: LastAddresses,
    fast: FastPeers,
}

impl Known {
    /// Reads the state directory, and asks the broker for the flows that the kernel knows.
    pub(super) fn read(
        config: &Config,
        identity: &Arc<Identity>,
        paths: &StatePaths,
        opened: &Opened,
        broker: &io::Result<Broker>,
    ) -> Self {
        let times = (boottime_ms(), unix_s());
        let (files, mut kept) = NetworkFiles::load(paths.directory(), &identity.public());
        for network in &mut kept {
            network_files::load_presences(paths.directory(), network, times);
        }
        let networks = Networks::new(Arc::clone(identity), kept, Box::new(SystemRng));
        let hosts = Hosts::default();
        let system = System {
            interface: opened.interface.index(),
            surroundings: opened.interface.surroundings().clone(),
            uplinks: Vec::new(),
            place: Err("it is not known yet which gateway there is"),
            listen: opened.sockets.iter().map(UdpSocket::local_address).collect(),
            // Without a broker they stay unknown, and no address waits for that.
            resolvers: broker.is_err().then(BTreeSet::new),
            rules: opened.interface.rules(),
        };
        let desired = Desired::of(&Inputs {
            config,
            networks: &networks,
            system: &system,
            hosts: &hosts,
            adverts: &BTreeMap::new(),
            pass: &|_| false,
            served: None,
            times,
        });
        Self {
            files,
            networks,
            hosts,
            system,
            flows: known_flows::at_start(broker, &desired, config, identity.node_addr()),
            desired,
            addresses: LastAddresses::load(&paths.last_addresses()),
            fast: FastPeers::load(&paths.fast_peers()),
        }
    }
}

/// The rest of what a daemon starts with.
pub(super) struct Rest {
    pub(super) identity: Arc<Identity>,
    pub(super) config: Config,
    pub(super) program: PathBuf,
    pub(super) log: Option<LogControl>,
    pub(super) confirm: Option<Duration>,
    pub(super) state: StateDir,
    pub(super) rights: DaemonRights,
    pub(super) continuity: ContinuityWatch,
    pub(super) users: Users,
}

impl Rest {
    /// Starts threads and tasks, on the runtime on which it is called. Returns the parts of the daemon, and
    /// what is removed after it.
    pub(super) fn assemble(
        mut self,
        opened: Opened,
        known: Known,
        broker: &mut io::Result<Broker>,
        reports: &Arc<Reports>,
    ) -> Result<(Parts, Kept), DaemonError> {
        let Opened {
            sockets,
            devices,
            interface,
            more,
            names,
            perf,
            tls,
            keeps_nice,
        } = opened;
        let (key, config) = (self.identity.public(), &self.config);
        // After this the generator does not fail.
        let (mut gate_key, mut seed) = ([0; 16], [0; 16]);
        random_bytes(&mut gate_key).map_err(DaemonError::Random)?;
        random_bytes(&mut seed).map_err(DaemonError::Random)?;
        let limits = HandshakeLimits {
            per_second: unproven::diffie_hellmans_per_second(&self.identity),
            key: gate_key,
        };
        let names = names
            .map(|bound| names::start(bound, known.desired.zone.clone(), (key, interface.index()), broker))
            .transpose()
            .map_err(DaemonError::Runtime)?;
        let launch = perf::Launch {
            program: self.program,
            control: self.state.paths().control(),
            device: interface.name().to_owned(),
            limits: config.perf.limits,
        };
        let lookups = HostLookups::new(broker);
        let nostr = Signalling::new(
            Arc::clone(&self.identity),
            &config.nostr,
            Arc::new(tls),
            lookups.client(),
        );
        self.rights.watch(broker);
        let brokered = broker.as_ref().map(Broker::client).map_err(ToString::to_string);
        let services = Services {
            dns: names,
            exit_names: ExitNames::new(interface.index(), brokered),
            perf: perf::PerfServer::start(perf, config, launch),
            rights: self.rights,
            hosts: known.hosts,
        };
        let facts = Facts::new(key, &interface, (&sockets, &more), config, services, known.fast);
        let index = interface.index();
        let (tun, kept) = interface.into_parts();
        let ends: Vec<_> = std::iter::once((tun, sockets)).chain(more.ends).collect();
        let node = node(config, ends.len() as u8, limits.per_second, self.identity);
        let lanes = lanes(config, key.node_addr(), limits, ends, reports)?;
        if keeps_nice {
            give_up_nice()?;
        }
        let parts = Parts {
            node,
            lanes,
            facts,
            wireguard: WireGuard::load(self.state.paths().wireguard()),
            state: self.state,
            addresses: known.addresses,
            exits: Exits::start(broker),
            known_flows: KnownFlows::new(broker.as_ref().ok(), known.flows),
            faults: Faults::new(broker.as_ref().ok()),
            desired: known.desired,
            system: known.system,
            networks: known.networks,
            saving: Saving::start(known.files).map_err(DaemonError::Runtime)?,
            verifier: Verifier::start().map_err(DaemonError::Runtime)?,
            reaching: Reaching::new(key.node_addr(), &config.reach),
            nostr,
            lookups,
            lan: Lan::new(),
            documents: Documents::new(weft_stream::PORT, weft_stream::Limits::default(), seed),
            nvpn: Nvpn::new(key, seed),
            host: watch_host(config, key.node_addr(), index, broker.as_ref().ok())?,
            resolvers: Resolvers::start(broker),
            configuration: Configuration::start(self.config, broker, self.confirm),
            log: self.log,
            continuity: self.continuity,
            local_ends: LocalEnds::new(devices),
            transfers: Transfers::new(self.users),
        };
        Ok((parts, kept))
    }
}

/// Creates the core.
fn node(config: &Config, lanes: u8, unproven_per_second: u64, identity: Arc<Identity>) -> Node {
    let mut node = Node::new(
        core_config(config, lanes, unproven_per_second),
        identity,
        Box::new(SystemRng),
    );
    node.listen(vec![
        weft_stream::PORT,
        weft_nvpn::control::PORT,
        weft_reach::PORT,
        weft_wire::check::PORT,
        weft_wire::grant::PORT,
    ]);
    node
}

/// Starts the threads for packets, one for each of `ends`.
fn lanes(
    config: &Config,
    me: NodeAddr,
    handshakes: HandshakeLimits,
    ends: Vec<(Tun, Vec<UdpSocket>)>,
    reports: &Arc<Reports>,
) -> Result<Lanes, DaemonError> {
    let lane_config = LaneConfig {
        me,
        mtu: config.udp.payload(),
        probe: config.udp.mtu.is_none(),
        transit: config.mesh.enabled && config.mesh.transit,
        handshakes,
    };
    let count = ends.len() as u8;
    let setup = |((number, lane), (tun, sockets))| {
        let reports = Arc::clone(reports);
        LaneSetup {
            lane,
            tun,
            sockets,
            batch: config.udp.batch,
            preferred: config.prefer_lanes,
            reports: Box::new(move |report| reports.offer(number, report)),
        }
    };
    let lanes = (0..).zip(Lane::several(lane_config, count));
    Ok(Lanes::start(lanes.zip(ends).map(setup).collect())?)
}

/// Begins to watch the host, with an interface that has what it has from the start.
fn watch_host(
    config: &Config,
    me: NodeAddr,
    interface: u32,
    broker: Option<&Broker>,
) -> Result<HostWatch, DaemonError> {
    let wanted = tun::wanted(config, me, &[], (interface, &WantedRoutes::default()));
    let keeper = Keeper::new(interface, wanted, boottime_ms());
    let watch = Watch::of_network(Interest::new(interface)).map_err(DaemonError::Watch)?;
    Ok(HostWatch::new(watch, keeper, broker))
}

/// Translates the configuration for the core.
fn core_config(config: &Config, lanes: u8, unproven_per_second: u64) -> weft_core::Config {
    let ms = |d: Duration| u64::try_from(d.as_millis()).unwrap_or(u64::MAX / 4);
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
