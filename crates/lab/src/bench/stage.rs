//! The hosts and cables of one run of an arm.

use std::io;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use super::conditions::Conditions;
use super::driver::{DriverError, READY};
use crate::cable::Direction;
use crate::cable::{EmulatedLink, Link, Port};
use crate::child::LoggedChild;
use crate::emulator::Cable as Emulated;
use crate::host::Host;
use crate::world::{World, WorldError};
use weft_os::netlink::{InterfaceAddress, Route};

/// Polling interval while waiting.
pub(super) const POLL: Duration = Duration::from_millis(50);

/// The third byte of the addresses between server and relay; those of client `n` have `n + 1`.
const SERVER_NET: u8 = 200;

/// Hosts and cables, new for every run of an arm.
pub struct Stage {
    /// The clients, then the server, then the relay if there is one.
    pub hosts: Vec<Host>,
    /// The cable of the hosts, or the cable of each host with the relay.
    pub cables: Vec<Leg>,
    /// The folder for configurations and logs.
    pub folder: PathBuf,
    /// The conditions.
    pub conditions: Conditions,
}

/// A cable of a stage.
pub struct Leg {
    /// The hosts at its ends, by their position in [`Stage::hosts`].
    pub ends: [usize; 2],
    /// Their addresses in the underlay.
    pub addresses: [Ipv4Addr; 2],
    /// The cable.
    pub cable: Cable,
}

/// A cable, plain or emulated.
pub enum Cable {
    /// In the kernel.
    Plain(Link),
    /// With impairments.
    Emulated(EmulatedLink),
}

impl Cable {
    /// The interfaces at its ends.
    #[must_use]
    pub fn ports(&self) -> [&Port; 2] {
        match self {
            Self::Plain(link) => [link.a(), link.b()],
            Self::Emulated(link) => [link.a(), link.b()],
        }
    }

    /// Packets that it has lost at random, and those that its queues had no room for.
    fn dropped(&self) -> [u64; 2] {
        let Self::Emulated(link) = self else { return [0; 2] };
        let both = [Direction::AToB, Direction::BToA].map(|direction| link.counts(direction));
        [
            both.iter().map(|counts| counts.lost).sum(),
            both.iter().map(|counts| counts.overflowed).sum(),
        ]
    }
}

impl Stage {
    /// Builds hosts and cables. Files go to `folder`, which is created.
    ///
    /// # Errors
    /// [`DriverError`].
    pub fn set(world: &World, folder: PathBuf, conditions: &Conditions) -> Result<Self, DriverError> {
        std::fs::create_dir(&folder).map_err(|source| DriverError::file(&folder, source))?;
        let clients = usize::from(conditions.clients);
        let mut hosts = Vec::new();
        for n in 0..clients {
            let name = if clients == 1 { "a".to_owned() } else { format!("a{n}") };
            hosts.push(world.host(&name)?);
        }
        hosts.push(world.host("b")?);
        if conditions.relayed {
            hosts.push(world.host("relay")?);
        }
        for host in &hosts {
            // The system may not permit it; the report shows what the namespaces have.
            let _ = set_congestion(host, &conditions.congestion)?;
        }
        let mut stage = Self {
            hosts,
            cables: Vec::new(),
            folder,
            conditions: conditions.clone(),
        };
        if conditions.relayed {
            let relay = clients + 1;
            for end in 0..=clients {
                let net = if end == clients { SERVER_NET } else { end as u8 + 1 };
                stage.connect(world, [end, relay], net)?;
            }
        } else {
            stage.connect(world, [0, 1], 0)?;
        }
        Ok(stage)
    }

    /// Connects two hosts; their addresses are private ones, as nvpn refuses the ranges for
    /// documentation.
    fn connect(&mut self, world: &World, ends: [usize; 2], net: u8) -> Result<(), DriverError> {
        let addresses = [1, 2].map(|last| Ipv4Addr::new(10, 96, net, last));
        let [a, b] = addresses.map(|address| format!("{address}/24"));
        let (a, b) = (
            (&self.hosts[ends[0]], &[a.as_str()][..]),
            (&self.hosts[ends[1]], &[b.as_str()][..]),
        );
        let cable = if self.conditions.regime.is_plain() {
            let link = world.link(a, b)?;
            if self.conditions.wire {
                link.like_a_wire()?;
            }
            Cable::Plain(link)
        } else {
            let impairments = self.conditions.regime.impairments();
            Cable::Emulated(world.emulated_link(a, b, Emulated::both(impairments))?)
        };
        self.cables.push(Leg { ends, addresses, cable });
        Ok(())
    }

    /// The position of the server in [`hosts`](Self::hosts).
    #[must_use]
    pub fn server(&self) -> usize {
        usize::from(self.conditions.clients)
    }

    /// The position of the relay, if there is one.
    #[must_use]
    pub fn relay(&self) -> Option<usize> {
        self.conditions.relayed.then_some(self.server() + 1)
    }

    /// The hosts that share a cable with `host`, and their addresses.
    pub fn neighbours(&self, host: usize) -> impl Iterator<Item = (usize, Ipv4Addr)> {
        self.cables.iter().filter_map(move |leg| match leg.ends {
            [a, b] if a == host => Some((b, leg.addresses[1])),
            [a, b] if b == host => Some((a, leg.addresses[0])),
            _ => None,
        })
    }

    /// The first address of `host` in the underlay.
    ///
    /// # Errors
    /// If it has no cable.
    pub fn underlay(&self, host: usize) -> Result<Ipv4Addr, DriverError> {
        let (_, address, _) = self.port(host)?;
        Ok(address)
    }

    /// The first cable of `host`: its position, the address there, and the interface.
    pub(super) fn port(&self, host: usize) -> Result<(usize, Ipv4Addr, &Port), DriverError> {
        let found = self.cables.iter().enumerate().find_map(|(n, leg)| {
            let end = leg.ends.iter().position(|end| *end == host)?;
            Some((n, leg.addresses[end], leg.cable.ports()[end]))
        });
        found.ok_or_else(|| DriverError::NotUp("a host has no cable".to_owned()))
    }

    /// Packets that the cables have lost at random, and those that their queues had no room for.
    #[must_use]
    pub fn dropped(&self) -> [u64; 2] {
        self.cables
            .iter()
            .map(|leg| leg.cable.dropped())
            .fold([0; 2], |sum, one| [sum[0] + one[0], sum[1] + one[1]])
    }

    /// Starts a program on a host; its output goes to a file of its own.
    pub(super) fn start(&self, host: usize, name: &str, command: Command) -> Result<LoggedChild, DriverError> {
        let log = self.folder.join(format!("{name}-{host}.log"));
        Ok(LoggedChild::start(&self.hosts[host], command, &log)?)
    }

    pub(super) fn write(&self, name: &str, text: &str) -> Result<PathBuf, DriverError> {
        let path = self.folder.join(name);
        std::fs::write(&path, text).map_err(|source| DriverError::file(&path, source))?;
        Ok(path)
    }

    /// Waits until an interface exists; programs create theirs at different times.
    pub(super) fn wait_interface(&self, host: usize, name: &str, child: &mut LoggedChild) -> Result<u32, DriverError> {
        let limit = Instant::now() + READY;
        loop {
            match self.hosts[host].netlink(|netlink| netlink.interface(name)) {
                Ok(interface) => return Ok(interface.index),
                Err(_) if Instant::now() < limit && child.ended()?.is_none() => std::thread::sleep(POLL),
                Err(_) => return Err(DriverError::not_up(child)),
            }
        }
    }

    /// Sets an interface's address and MTU, and brings it up.
    pub(super) fn address(
        &self,
        host: usize,
        index: u32,
        (address, prefix_len): (Ipv4Addr, u8),
        mtu: u32,
    ) -> Result<(), DriverError> {
        let address = InterfaceAddress {
            index,
            address: address.into(),
            prefix_len,
        };
        self.hosts[host].netlink(|netlink| {
            netlink.set_mtu(index, mtu)?;
            netlink.add_address(address)?;
            netlink.set_up(index)
        })?;
        Ok(())
    }

    /// Adds a route to one address through an interface.
    pub(super) fn route(&self, host: usize, to: Ipv4Addr, index: u32) -> Result<(), DriverError> {
        let route = Route::to_interface(to.into(), 32, index);
        Ok(self.hosts[host].netlink(|netlink| netlink.add_route(route))?)
    }

    /// Makes the relay forward IP packets, and only forward them.
    pub(super) fn forward_at_relay(&self) -> Result<(), DriverError> {
        let Some(relay) = self.relay() else { return Ok(()) };
        let host = &self.hosts[relay];
        host.forward()?;
        // A packet leaves by the interface of its arrival, as intended.
        host.run(|| std::fs::write("/proc/sys/net/ipv4/conf/all/send_redirects", "0"))?
            .map_err(|source| DriverError::file(Path::new("/proc/sys/net/ipv4/conf/all/send_redirects"), source))
    }
}

/// Sets the default congestion control of a host's namespace, and returns the one that it has then.
/// The kernel accepts only those of `net.ipv4.tcp_allowed_congestion_control`.
///
/// # Errors
/// If the host cannot be entered.
pub fn set_congestion(host: &Host, name: &str) -> Result<String, WorldError> {
    const PATH: &str = "/proc/sys/net/ipv4/tcp_congestion_control";
    let set = host.run(|| -> io::Result<String> {
        let _ = std::fs::write(PATH, name);
        Ok(std::fs::read_to_string(PATH)?.trim().to_owned())
    })?;
    Ok(set.unwrap_or_else(|_| "unknown".to_owned()))
}
