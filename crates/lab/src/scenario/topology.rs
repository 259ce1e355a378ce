//! The machines and networks of a scenario, built for its steps.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use weft_os::netlink::NetlinkError;

use super::file::Scenario;
use super::link::LinkSpec;
use super::middlebox::Middlebox;
use super::node_config;
use super::wire::{Plug, Wire};
use crate::cable::Cidr;
use crate::daemon::{Daemon, DaemonError, Identity};
use crate::emulator::Witness;
use crate::host::Host;
use crate::nat::kernel::KernelNatError;
use crate::spec::NodeSpec;
use crate::world::{Switch, World, WorldError};

/// Time limit until a node answers.
const READY: Duration = Duration::from_secs(30);

/// The network of a scenario. Everything in it ends when it is dropped.
#[derive(Debug)]
pub struct Stage {
    weft: PathBuf,
    // Nodes end before their links do.
    places: BTreeMap<String, Place>,
    wires: BTreeMap<String, Wire>,
    nats: BTreeMap<String, Middlebox>,
    networks: BTreeMap<String, Switch>,
    links: BTreeMap<String, LinkSpec>,
    /// The inner addresses of the NAT boxes that are the gateways of a network.
    gateways: BTreeMap<String, Vec<IpAddr>>,
}

/// A machine.
#[derive(Debug)]
pub struct Place {
    /// The machine.
    pub host: Host,
    /// Its node, if it has one.
    pub node: Option<Node>,
}

/// A node, running or not.
#[derive(Debug)]
pub struct Node {
    /// Its identity.
    pub identity: Identity,
    spec: NodeSpec,
    daemon: Option<Daemon>,
    running: bool,
}

impl Stage {
    /// Builds everything, and starts the nodes that start with it.
    ///
    /// # Errors
    /// The error of the system, a program that is not installed, or a node that does not answer.
    pub fn set(scenario: &Scenario, world: &World, weft: &Path) -> Result<Self, StageError> {
        installed(scenario)?;
        let mut stage = Self::build(scenario, world, weft)?;
        let started: Vec<_> = scenario.nodes().filter(|(_, host)| host.started).collect();
        for (name, _) in &started {
            stage.launch(name)?;
        }
        for (name, _) in &started {
            stage.daemon_mut(name)?.wait_ready(READY)?;
        }
        Ok(stage)
    }

    fn build(scenario: &Scenario, world: &World, weft: &Path) -> Result<Self, StageError> {
        let mut networks = BTreeMap::new();
        for name in &scenario.networks {
            networks.insert(name.clone(), world.switch(name)?);
        }
        let mut stage = Self {
            weft: weft.to_owned(),
            places: BTreeMap::new(),
            wires: BTreeMap::new(),
            nats: BTreeMap::new(),
            networks,
            links: scenario.links.clone(),
            gateways: BTreeMap::new(),
        };
        for nat in scenario.nats.values() {
            let inner: Cidr = nat.inner.parse()?;
            let own = stage.gateways.entry(nat.inside.clone()).or_default();
            // Of several boxes in a network, the last in the order of names is the gateway.
            own.retain(|address| address.is_ipv4() != inner.address.is_ipv4());
            own.push(inner.address);
        }
        for (name, seed) in scenario.nats.keys().zip(scenario.seed..) {
            let nat = stage.nat(scenario, world, name, seed)?;
            stage.nats.insert(name.clone(), nat);
        }
        for (name, spec) in &scenario.hosts {
            let host = world.host(name)?;
            if spec.forwards {
                host.forward()?;
            }
            stage.places.insert(name.clone(), Place { host, node: None });
        }
        for (name, seed) in scenario.links.keys().zip(scenario.seed..) {
            stage.lay(name, seed)?;
        }
        stage.identify(scenario, world)?;
        Ok(stage)
    }

    fn nat(&self, scenario: &Scenario, world: &World, name: &str, seed: u64) -> Result<Middlebox, StageError> {
        let spec = scenario.nats.get(name).ok_or_else(|| StageError::missing(name))?;
        let side = |network: &str| self.networks.get(network).ok_or_else(|| StageError::missing(network));
        let sides = [side(&spec.inside)?, side(&spec.outside)?];
        // Behind another NAT box, that one is its gateway.
        let gateways = self.gateways.get(&spec.outside).into_iter().flatten();
        let gateway = gateways.copied().find_map(|address| match address {
            IpAddr::V4(address) => Some(address),
            IpAddr::V6(_) => None,
        });
        Middlebox::start(world, (name, spec), sides, gateway, seed)
    }

    fn lay(&mut self, name: &str, seed: u64) -> Result<(), StageError> {
        let spec = self.links.get(name).ok_or_else(|| StageError::missing(name))?;
        let plug = |end: &String| {
            if let Some(switch) = self.networks.get(end) {
                return Ok(Plug::Switch(switch));
            }
            let place = self.places.get(end).ok_or_else(|| StageError::missing(end))?;
            let addresses = spec.addresses.get(end).map(Vec::as_slice).unwrap_or_default();
            Ok::<_, StageError>(Plug::Host(&place.host, addresses))
        };
        let ends = [plug(&spec.between[0])?, plug(&spec.between[1])?];
        let mut wire = Wire::lay(ends, spec.flaws.clone(), spec.firewall, seed)?;
        if !spec.up {
            wire.cut(true)?;
        }
        let hosts: Vec<_> = spec.addresses.keys().cloned().collect();
        self.wires.insert(name.to_owned(), wire);
        hosts.iter().try_for_each(|host| self.route(host))
    }

    /// Creates every node's configuration, and its key, which follows from the scenario's seed.
    fn identify(&mut self, scenario: &Scenario, world: &World) -> Result<(), StageError> {
        let mut identities = BTreeMap::new();
        let seed = scenario.seed.to_string();
        for (name, _) in scenario.nodes() {
            let identity = Identity::derive(&self.weft, world.directory(), &seed, name)?;
            identities.insert(name.as_str(), identity);
        }
        for (name, host) in scenario.nodes() {
            let (Some(place), Some(identity)) = (self.places.get_mut(name), identities.get(name.as_str())) else {
                return Err(StageError::missing(name));
            };
            place.node = Some(Node {
                identity: identity.clone(),
                spec: node_config::spec(scenario, name, host, &identities),
                daemon: None,
                running: false,
            });
        }
        Ok(())
    }

    /// Sets a host's default routes through those of its links that are up. Existing ones stay: of
    /// several links without a metric, the first is used.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn route(&self, host: &str) -> Result<(), StageError> {
        for (name, link) in self.links.iter().filter(|(_, link)| link.addresses.contains_key(host)) {
            let wire = self.wires.get(name).filter(|wire| wire.is_whole());
            let Some(port) = wire.and_then(|wire| wire.port(link.end(host)?)) else {
                continue;
            };
            let metric = link.metrics.get(host).copied();
            for gateway in self.gateways_of(host, link) {
                let machine = &self.place(host)?.host;
                match machine.add_default_route_on(port.index(), *gateway, metric) {
                    Err(WorldError::Netlink(NetlinkError::Exists { .. })) => {}
                    done => done?,
                }
            }
        }
        Ok(())
    }

    /// Replaces a host's gateway of the same IP version on a link.
    ///
    /// # Errors
    /// [`StageError::Missing`], or the kernel's error.
    pub fn change_gateway(&mut self, host: &str, link: &str, gateway: IpAddr) -> Result<(), StageError> {
        let spec = self.link(link)?;
        let mut gateways = self.gateways_of(host, spec).to_vec();
        gateways.retain(|old| old.is_ipv6() != gateway.is_ipv6());
        gateways.push(gateway);
        let port = spec.end(host).and_then(|end| self.wires.get(link)?.port(end));
        let index = port.ok_or_else(|| StageError::missing(link))?.index();
        let machine = &self.place(host)?.host;
        machine.delete_default_routes_on(index, gateway.is_ipv6())?;
        if let Some(spec) = self.links.get_mut(link) {
            spec.gateways.insert(host.to_owned(), gateways);
        }
        self.route(host)
    }

    /// The gateways of a host on a link: its own, or those of the network.
    fn gateways_of<'a>(&'a self, host: &str, link: &'a LinkSpec) -> &'a [IpAddr] {
        let own = link.gateways.get(host);
        let gateways = own.or_else(|| self.gateways.get(link.other(host)));
        gateways.map(Vec::as_slice).unwrap_or_default()
    }

    /// Starts a node, or restarts it, without waiting.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn launch(&mut self, name: &str) -> Result<(), StageError> {
        let weft = self.weft.clone();
        let place = self.places.get_mut(name).ok_or_else(|| StageError::missing(name))?;
        let node = place.node.as_mut().ok_or_else(|| StageError::missing(name))?;
        match &mut node.daemon {
            Some(daemon) => daemon.restart()?,
            none => *none = Some(Daemon::start(&place.host, &weft, &node.identity, &node.spec)?),
        }
        node.running = true;
        Ok(())
    }

    /// Starts a node and waits until it answers.
    ///
    /// # Errors
    /// If it does not answer.
    pub fn start(&mut self, name: &str) -> Result<(), StageError> {
        self.launch(name)?;
        Ok(self.daemon_mut(name)?.wait_ready(READY)?)
    }

    /// Stops a node, which must end with status 0, or kills it.
    ///
    /// # Errors
    /// [`StageError::ExitStatus`].
    pub fn end(&mut self, name: &str, kill: bool) -> Result<(), StageError> {
        let daemon = self.daemon_mut(name)?;
        let ended = if kill {
            daemon.kill().map(|()| Ok(()))
        } else {
            daemon
                .stop()
                .map(|status| if status.code() == Some(0) { Ok(()) } else { Err(status) })
        };
        self.node_mut(name)?.running = false;
        ended?.map_err(|status| StageError::ExitStatus(name.to_owned(), status))
    }

    /// Suspends a node for this time, as a host does that sleeps: none of its threads runs.
    ///
    /// # Errors
    /// [`StageError::NotRunning`].
    pub fn suspend(&mut self, name: &str, time: Duration) -> Result<(), StageError> {
        self.daemon_mut(name)?.suspend()?;
        std::thread::sleep(time);
        Ok(self.daemon_mut(name)?.resume()?)
    }

    /// Makes `witness` see all frames of a link.
    ///
    /// # Errors
    /// [`StageError::Missing`].
    pub fn watch(&self, link: &str, witness: &Arc<dyn Witness>) -> Result<(), StageError> {
        self.wire(link)?.watch(witness);
        Ok(())
    }

    /// A running node.
    ///
    /// # Errors
    /// [`StageError::NotRunning`].
    pub fn daemon(&self, name: &str) -> Result<&Daemon, StageError> {
        let node = self.node(name)?;
        let daemon = node.daemon.as_ref().filter(|_| node.running);
        daemon.ok_or_else(|| StageError::NotRunning(name.to_owned()))
    }

    fn daemon_mut(&mut self, name: &str) -> Result<&mut Daemon, StageError> {
        let node = self.node_mut(name)?;
        let running = node.running;
        let daemon = node.daemon.as_mut().filter(|_| running);
        daemon.ok_or_else(|| StageError::NotRunning(name.to_owned()))
    }

    /// A node, running or not.
    ///
    /// # Errors
    /// [`StageError::Missing`].
    pub fn node(&self, name: &str) -> Result<&Node, StageError> {
        let node = self.place(name)?.node.as_ref();
        node.ok_or_else(|| StageError::missing(name))
    }

    fn node_mut(&mut self, name: &str) -> Result<&mut Node, StageError> {
        let place = self.places.get_mut(name).and_then(|place| place.node.as_mut());
        place.ok_or_else(|| StageError::missing(name))
    }

    /// A machine.
    ///
    /// # Errors
    /// [`StageError::Missing`].
    pub fn place(&self, name: &str) -> Result<&Place, StageError> {
        self.places.get(name).ok_or_else(|| StageError::missing(name))
    }

    /// All machines by name.
    pub fn places(&self) -> impl Iterator<Item = (&String, &Place)> {
        self.places.iter()
    }

    /// All nodes by name.
    pub fn nodes(&self) -> impl Iterator<Item = (&String, &Node)> {
        self.places
            .iter()
            .filter_map(|(name, place)| Some((name, place.node.as_ref()?)))
    }

    /// A link.
    ///
    /// # Errors
    /// [`StageError::Missing`].
    pub fn wire(&self, name: &str) -> Result<&Wire, StageError> {
        self.wires.get(name).ok_or_else(|| StageError::missing(name))
    }

    /// A link, to change it.
    ///
    /// # Errors
    /// [`StageError::Missing`].
    pub fn wire_mut(&mut self, name: &str) -> Result<&mut Wire, StageError> {
        self.wires.get_mut(name).ok_or_else(|| StageError::missing(name))
    }

    /// The specification of a link in the file.
    ///
    /// # Errors
    /// [`StageError::Missing`].
    pub fn link(&self, name: &str) -> Result<&LinkSpec, StageError> {
        self.links.get(name).ok_or_else(|| StageError::missing(name))
    }

    /// All links by name.
    pub fn links(&self) -> impl Iterator<Item = (&String, &LinkSpec)> {
        self.links.iter()
    }

    /// A NAT box.
    ///
    /// # Errors
    /// [`StageError::Missing`].
    pub fn nat_box(&self, name: &str) -> Result<&Middlebox, StageError> {
        self.nats.get(name).ok_or_else(|| StageError::missing(name))
    }

    /// All NAT boxes by name.
    pub fn nat_boxes(&self) -> impl Iterator<Item = (&String, &Middlebox)> {
        self.nats.iter()
    }
}

impl Node {
    /// Its daemon, if it was ever started.
    #[must_use]
    pub fn daemon(&self) -> Option<&Daemon> {
        self.daemon.as_ref()
    }

    /// Whether it was started and no step has ended it since.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.running
    }
}

/// Checks that the programs that a scenario needs are installed.
///
/// # Errors
/// [`StageError::NotInstalled`].
pub(super) fn installed(scenario: &Scenario) -> Result<(), StageError> {
    match scenario.missing_program() {
        None => Ok(()),
        Some(program) => Err(StageError::NotInstalled {
            scenario: scenario.name.clone(),
            program,
        }),
    }
}

/// Why a part of the network is not in the required state.
#[derive(Debug, thiserror::Error)]
pub enum StageError {
    /// A system call failed.
    #[error(transparent)]
    World(#[from] WorldError),
    /// A daemon failed.
    #[error(transparent)]
    Daemon(#[from] DaemonError),
    /// A NAT box of the kernel failed.
    #[error(transparent)]
    Nat(#[from] KernelNatError),
    /// A NAT box needs a program.
    #[error("SKIPPED: {scenario}: {program} is not installed")]
    NotInstalled {
        /// The scenario.
        scenario: String,
        /// The program.
        program: &'static str,
    },
    /// Nothing has this name; a checked scenario refers only to existing names.
    #[error("there is no {0:?}")]
    Missing(String),
    /// The node was stopped, killed or never started.
    #[error("the node of {0} is not running")]
    NotRunning(String),
    /// A node that was asked to stop did not exit with 0.
    #[error("the node of {0} ended with {1}")]
    ExitStatus(String, std::process::ExitStatus),
}

impl StageError {
    fn missing(name: &str) -> Self {
        Self::Missing(name.to_owned())
    }
}
