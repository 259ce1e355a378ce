//! The port that the gateway maps to the node's socket: where it is asked for, and what follows.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::timeout;
use weft_control::status::{MappingStatus, MappingTried};
use weft_discovery::port_mapping::gateway::{self, Lease};
use weft_discovery::port_mapping::{Mapper, Place, Tried};
use weft_host::surroundings::Surroundings;
use weft_os::clock::boottime_ms;
use weft_reach::nat::is_private;

use super::run::Daemon;

/// How long the daemon waits at its end until the gateway has withdrawn the mapping.
const AT_THE_END: Duration = Duration::from_secs(3);
/// The port of PCP, by which the address of this host towards its gateway is found. Nothing is sent.
const PCP: u16 = 5351;

/// The mapping, and the job at the gateway that is under way.
pub(super) struct PortMapping {
    mapper: Mapper,
    lease: Option<Lease>,
    /// Why no mapping is asked for.
    unwanted: &'static str,
    sender: mpsc::Sender<gateway::Result>,
    results: mpsc::Receiver<gateway::Result>,
}

impl PortMapping {
    pub(super) fn new() -> Self {
        let (sender, results) = mpsc::channel(1);
        Self {
            mapper: Mapper::default(),
            lease: None,
            unwanted: "it is not known yet which gateway there is",
            sender,
            results,
        }
    }

    /// Returns what came of a job. Safe to cancel.
    pub(super) async fn next(&mut self) -> Option<gateway::Result> {
        self.results.recv().await
    }

    /// When a job is due, in ms.
    pub(super) fn timeout(&self) -> Option<u64> {
        self.mapper.timeout()
    }

    /// Starts the job that is due.
    pub(super) fn drive(&mut self, now: u64) {
        while let Some(job) = self.mapper.poll(now) {
            if let Err(error) = gateway::start(job, self.lease.take(), self.sender.clone()) {
                tracing::info!(%error, "no thread for the mapping of a port");
                self.mapper
                    .handle(now, gateway::failed(job, "the system starts no thread"));
            }
        }
    }
}

impl Daemon {
    /// Finds out where a mapping is asked for, after a change of the network or of the configuration.
    pub(super) fn follow_gateway(&mut self, changed: bool) {
        let now = boottime_ms();
        let place = match self.configuration.config.reach.port_mapping {
            true => place(&self.surroundings, self.routes.index(), &self.facts.listen),
            false => Err("reach.port_mapping = false"),
        };
        self.mapping.unwanted = place.err().unwrap_or_default();
        self.mapping.mapper.set_place(now, place.ok());
        if changed {
            self.mapping.mapper.handle_network_change(now);
        }
        self.tell_mapped(now);
    }

    /// Handles what came of a job at the gateway.
    pub(super) fn mapping_done(&mut self, (done, lease): gateway::Result) {
        let now = boottime_ms();
        self.mapping.lease = lease;
        let before = self.mapping.mapper.tried().to_vec();
        if self.mapping.mapper.handle(now, done) {
            match self.mapping.mapper.mapped() {
                Some(granted) => tracing::info!(at = %granted.at, by = %granted.protocol, "the gateway maps a port"),
                None => tracing::info!("the gateway maps no port any more"),
            }
            self.tell_mapped(now);
        }
        for Tried { protocol, outcome } in self.mapping.mapper.tried() {
            if !before
                .iter()
                .any(|known| known.outcome == *outcome && known.protocol == *protocol)
            {
                tracing::debug!(by = %protocol, outcome, "the gateway maps no port");
            }
        }
    }

    fn tell_mapped(&mut self, now: u64) {
        let mapped = self.mapping.mapper.mapped().map(|granted| granted.at);
        self.reaching.set_mapped(now, mapped);
    }

    /// Withdraws the mapping, at the end.
    pub(super) async fn withdraw_mapping(&mut self) {
        self.mapping.mapper.set_place(boottime_ms(), None);
        let withdrawn = timeout(AT_THE_END, async {
            loop {
                self.mapping.drive(boottime_ms());
                if !self.mapping.mapper.is_busy() {
                    return;
                }
                if let Some(result) = self.mapping.next().await {
                    self.mapping_done(result);
                }
            }
        });
        if withdrawn.await.is_err() {
            tracing::info!("the gateway has not withdrawn the mapping of a port yet; it ends within an hour");
        }
    }

    /// What is known about the mapping.
    pub(super) fn mapping_status(&self) -> MappingStatus {
        let mapper = &self.mapping.mapper;
        let mapped = mapper.mapped();
        let tried: Vec<_> = mapper
            .tried()
            .iter()
            .map(|tried| MappingTried {
                protocol: tried.protocol.to_string(),
                outcome: tried.outcome.clone(),
            })
            .collect();
        let why = match (mapped, mapper.place(), tried.last()) {
            (Some(granted), ..) => format!("the gateway maps {} by {}", granted.at, granted.protocol),
            (None, None, _) => self.mapping.unwanted.to_owned(),
            (None, Some(_), None) => "the gateway is being asked".to_owned(),
            (None, Some(_), Some(_)) => {
                let each: Vec<_> = tried
                    .iter()
                    .map(|tried| format!("{}: {}", tried.protocol, tried.outcome))
                    .collect();
                format!("the gateway maps no port ({})", each.join("; "))
            }
        };
        MappingStatus {
            gateway: mapper.place().map(|place| place.gateway.into()),
            mapped: mapped.map(|granted| granted.at),
            protocol: mapped.map(|granted| granted.protocol.to_string()),
            tried,
            why,
        }
    }
}

/// Where a mapping is asked for: at the gateway of the IPv4 default route, for the socket of IPv4. The
/// reason otherwise.
fn place(surroundings: &Surroundings, own_interface: u32, listen: &[SocketAddr]) -> Result<Place, &'static str> {
    let gateway = gateway(surroundings, own_interface).ok_or("there is no gateway of IPv4")?;
    let own = own_address(gateway).ok_or("the gateway is not reached")?;
    if !is_private(own.into()) {
        return Err("the address of this host is public, so that no mapping is needed");
    }
    let serves = |at: &&SocketAddr| at.is_ipv4() && (at.ip().is_unspecified() || at.ip() == own);
    let listen = listen.iter().find(serves).ok_or("no socket serves IPv4 there")?;
    Ok(Place {
        gateway,
        own: SocketAddrV4::new(own, listen.port()),
    })
}

/// The gateway of the default route with the lowest metric.
fn gateway(surroundings: &Surroundings, own_interface: u32) -> Option<Ipv4Addr> {
    let defaults = surroundings.defaults(own_interface);
    let defaults = defaults.filter(|route| route.destination.is_ipv4());
    let first = defaults.min_by_key(|route| route.metric.unwrap_or(0))?;
    match first.gateway {
        Some(std::net::IpAddr::V4(gateway)) => Some(gateway),
        _ => None,
    }
}

/// The address of this host from which packets to the gateway leave.
fn own_address(gateway: Ipv4Addr) -> Option<Ipv4Addr> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    socket.connect((gateway, PCP)).ok()?;
    match socket.local_addr().ok()? {
        SocketAddr::V4(own) => Some(*own.ip()),
        SocketAddr::V6(_) => None,
    }
}
