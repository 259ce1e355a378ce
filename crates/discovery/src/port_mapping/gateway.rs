//! Jobs at a gateway, each on a thread of its own: the libraries parse what the gateway sends, and the
//! daemon's thread waits for none of that.
//!
//! PCP comes first, then NAT-PMP if the gateway says so, then UPnP: its search asks the gateway alone,
//! and the network by multicast only if that brings nothing. Only the gateway of the default route is
//! believed.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::num::NonZeroU16;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use crab_nat::{InternetProtocol, PortMapping, PortMappingOptions, PortMappingType, TimeoutConfig, natpmp, pcp};
use igd_next::aio::tokio::{Tokio, search_gateway};
use igd_next::{AddPortError, GatewayIpVersion, PortMappingProtocol, SearchOptions};
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::{Done, Granted, Job, LIFETIME, Place, Protocol, Tried};

/// Three requests within 1.75 s: the gateway is one hop away.
const PATIENCE: TimeoutConfig = TimeoutConfig {
    initial_timeout: Duration::from_millis(250),
    max_retries: 2,
    max_retry_timeout: None,
};
/// Time limit of each search for a UPnP gateway.
const SEARCH: Duration = Duration::from_millis(1_500);
/// Time limit of the requests to a UPnP gateway.
const REQUESTS: Duration = Duration::from_secs(5);
/// The port of SSDP (UPnP Device Architecture 1.1, section 1.3.2).
const SSDP: u16 = 1900;
/// The name of the mapping in the gateway's list.
const DESCRIPTION: &str = "weft";
/// The longest text of a gateway that is shown, in characters.
const LONGEST: usize = 160;

/// A mapping at its gateway, with what renewing and withdrawing take.
#[derive(Debug)]
pub struct Lease(Kind);

#[derive(Debug)]
enum Kind {
    Pmp(PortMapping),
    Upnp {
        gateway: igd_next::aio::Gateway<Tokio>,
        place: Place,
        port: u16,
    },
}

/// What came of a job, and the mapping at the gateway if there is one.
pub type Result = (Done, Option<Lease>);

/// Starts a job on a thread of its own. What comes of it is sent to `done`, also if a library fails.
///
/// # Errors
/// The system starts no thread.
pub fn start(job: Job, lease: Option<Lease>, done: mpsc::Sender<Result>) -> io::Result<()> {
    let run = move || {
        let result = catch_unwind(AssertUnwindSafe(|| run(job, lease)));
        let result = result.unwrap_or_else(|_| (failed(job, "a library of the protocols failed"), None));
        // The daemon ends otherwise.
        let _ = done.blocking_send(result);
    };
    std::thread::Builder::new()
        .name("port mapping".to_owned())
        .spawn(run)
        .map(drop)
}

/// What a job that could not run comes to.
#[must_use]
pub fn failed(job: Job, why: &str) -> Done {
    match job {
        Job::Withdraw => Done::Withdrawn,
        Job::Map { .. } | Job::Renew => Done::Failed(vec![Tried {
            protocol: Protocol::Pcp,
            outcome: why.to_owned(),
        }]),
    }
}

fn run(job: Job, lease: Option<Lease>) -> Result {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => return (failed(job, &error.to_string()), lease),
    };
    runtime.block_on(async {
        match (job, lease) {
            (Job::Map { place, port }, _) => map(place, port).await,
            (Job::Renew, Some(lease)) => renew(lease).await,
            (Job::Withdraw, Some(lease)) => {
                withdraw(lease).await;
                (Done::Withdrawn, None)
            }
            (job, None) => (failed(job, "there is no mapping"), None),
        }
    })
}

async fn map(place: Place, port: u16) -> Result {
    let mut tried = Vec::new();
    let mut next = Some(Protocol::Pcp);
    while let Some(protocol) = next {
        let result = match protocol {
            Protocol::Pcp => by_pcp(place, port).await,
            Protocol::NatPmp => by_nat_pmp(place, port).await,
            Protocol::Upnp => by_upnp(place, port).await,
        };
        let failure = match result {
            Ok((granted, lease)) => return (Done::Granted(granted, tried), Some(lease)),
            Err(failure) => failure,
        };
        next = match protocol {
            Protocol::Pcp if failure.speaks => Some(Protocol::NatPmp),
            Protocol::Pcp | Protocol::NatPmp => Some(Protocol::Upnp),
            Protocol::Upnp => None,
        };
        let outcome = failure.outcome;
        tried.push(Tried { protocol, outcome });
    }
    (Done::Failed(tried), None)
}

/// Why a protocol brought no mapping.
struct Failure {
    outcome: String,
    /// The gateway has answered.
    speaks: bool,
}

impl Failure {
    fn of(error: impl std::fmt::Display, speaks: bool) -> Self {
        // Some of it is text of the gateway.
        let text = error.to_string();
        let text = text.chars().map(|c| if c.is_control() { '?' } else { c });
        Self {
            outcome: text.take(LONGEST).collect(),
            speaks,
        }
    }
}

fn options(port: u16) -> PortMappingOptions {
    PortMappingOptions {
        external_port: NonZeroU16::new(port),
        lifetime_seconds: Some(LIFETIME),
        timeout_config: Some(PATIENCE),
    }
}

fn own_port(place: Place) -> std::result::Result<NonZeroU16, Failure> {
    NonZeroU16::new(place.own.port()).ok_or_else(|| Failure::of("the socket has no port", false))
}

async fn by_pcp(place: Place, port: u16) -> std::result::Result<(Granted, Lease), Failure> {
    let client = IpAddr::V4(*place.own.ip());
    let request = pcp::BaseMapRequest::new(place.gateway.into(), client, InternetProtocol::Udp, own_port(place)?);
    let mapping = pcp::port_mapping(request, None, None, options(port)).await;
    let mapping = mapping.map_err(|error| match error {
        pcp::Failure::Timeout => Failure::of("the gateway does not answer", false),
        pcp::Failure::Socket(error) => Failure::of(error, false),
        error => Failure::of(error, true),
    })?;
    of_pmp(mapping).await
}

async fn by_nat_pmp(place: Place, port: u16) -> std::result::Result<(Granted, Lease), Failure> {
    let mapping = natpmp::port_mapping(
        place.gateway.into(),
        InternetProtocol::Udp,
        own_port(place)?,
        options(port),
    )
    .await;
    let mapping = mapping.map_err(|error| match error {
        natpmp::Failure::Timeout => Failure::of("the gateway does not answer", false),
        error => Failure::of(error, true),
    })?;
    of_pmp(mapping).await
}

/// The outer address of a mapping: PCP says it, NAT-PMP is asked.
async fn of_pmp(mapping: PortMapping) -> std::result::Result<(Granted, Lease), Failure> {
    let (protocol, ip) = match mapping.mapping_type() {
        PortMappingType::Pcp { external_ip, .. } => (Protocol::Pcp, external_ip.to_canonical()),
        PortMappingType::NatPmp => {
            let ip = natpmp::external_address(mapping.gateway(), Some(PATIENCE)).await;
            let ip = ip.map_err(|error| Failure::of(error, true))?;
            (Protocol::NatPmp, IpAddr::V4(ip))
        }
    };
    let granted = Granted {
        at: SocketAddr::new(ip, mapping.external_port().get()),
        protocol,
        lifetime: mapping.lifetime(),
    };
    Ok((granted, Lease(Kind::Pmp(mapping))))
}

async fn by_upnp(place: Place, port: u16) -> std::result::Result<(Granted, Lease), Failure> {
    let multicast = SocketAddr::from((Ipv4Addr::new(239, 255, 255, 250), SSDP));
    let unicast = SocketAddr::from((place.gateway, SSDP));
    let mut found = None;
    for to in [unicast, multicast] {
        if let Some(gateway) = search(place, to).await {
            found = Some(gateway);
            break;
        }
    }
    let gateway = found.ok_or_else(|| Failure::of("the gateway does not answer", false))?;
    let requests = upnp_mapping(&gateway, place, port);
    let granted = timeout(REQUESTS, requests)
        .await
        .map_err(|_| Failure::of("the gateway takes too long", true))??;
    let port = granted.at.port();
    Ok((granted, Lease(Kind::Upnp { gateway, place, port })))
}

/// A UPnP gateway that answers a search, if it is that of the default route.
async fn search(place: Place, to: SocketAddr) -> Option<igd_next::aio::Gateway<Tokio>> {
    let mut options = SearchOptions::default();
    options.bind_addr = SocketAddr::new(IpAddr::V4(*place.own.ip()), 0);
    options.broadcast_address = to;
    options.timeout = Some(SEARCH);
    options.single_search_timeout = Some(SEARCH);
    options.gateway_ip_version = GatewayIpVersion::V4;
    let gateway = search_gateway(options).await.ok()?;
    (gateway.addr.ip() == IpAddr::V4(place.gateway)).then_some(gateway)
}

async fn upnp_mapping(
    gateway: &igd_next::aio::Gateway<Tokio>,
    place: Place,
    port: u16,
) -> std::result::Result<Granted, Failure> {
    const UDP: PortMappingProtocol = PortMappingProtocol::UDP;
    let own = SocketAddr::V4(place.own);
    let ip = gateway
        .get_external_ip()
        .await
        .map_err(|error| Failure::of(error, true))?;
    let mut lifetime = LIFETIME;
    let mut added = gateway.add_port(UDP, port, own, lifetime, DESCRIPTION).await;
    if matches!(added, Err(AddPortError::OnlyPermanentLeasesSupported)) {
        lifetime = 0;
        added = gateway.add_port(UDP, port, own, lifetime, DESCRIPTION).await;
    }
    let port = match added {
        Ok(()) => port,
        // Another host has it, or the gateway wants no port chosen.
        Err(AddPortError::PortInUse | AddPortError::RequestError(_)) => gateway
            .add_any_port(UDP, own, lifetime, DESCRIPTION)
            .await
            .map_err(|error| Failure::of(error, true))?,
        Err(error) => return Err(Failure::of(error, true)),
    };
    Ok(Granted {
        at: SocketAddr::new(ip, port),
        protocol: Protocol::Upnp,
        lifetime,
    })
}

async fn renew(Lease(kind): Lease) -> Result {
    let (protocol, result) = match kind {
        Kind::Pmp(mut mapping) => {
            let protocol = match mapping.mapping_type() {
                PortMappingType::Pcp { .. } => Protocol::Pcp,
                PortMappingType::NatPmp => Protocol::NatPmp,
            };
            let renewed = mapping.renew().await.map_err(|error| Failure::of(error, true));
            let result = match renewed {
                Ok(()) => of_pmp(mapping).await,
                Err(failure) => Err(failure),
            };
            (protocol, result)
        }
        Kind::Upnp { gateway, place, port } => {
            let renewed = timeout(REQUESTS, upnp_mapping(&gateway, place, port)).await;
            let renewed = renewed.unwrap_or_else(|_| Err(Failure::of("the gateway takes too long", true)));
            let result = renewed.map(|granted| {
                let port = granted.at.port();
                (granted, Lease(Kind::Upnp { gateway, place, port }))
            });
            (Protocol::Upnp, result)
        }
    };
    match result {
        Ok((granted, lease)) => (Done::Granted(granted, Vec::new()), Some(lease)),
        Err(Failure { outcome, .. }) => (Done::Failed(vec![Tried { protocol, outcome }]), None),
    }
}

/// Withdraws a mapping; a gateway that does not answer forgets it when its life ends.
async fn withdraw(Lease(kind): Lease) {
    match kind {
        Kind::Pmp(mapping) => drop(mapping.try_drop().await),
        Kind::Upnp { gateway, port, .. } => {
            let remove = gateway.remove_port(PortMappingProtocol::UDP, port);
            let _ = timeout(REQUESTS, remove).await;
        }
    }
}
