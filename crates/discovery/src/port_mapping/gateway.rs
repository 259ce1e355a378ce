//! Jobs at a gateway, each on a thread of its own: what the gateway sends is read there, and the
//! daemon's thread waits for none of that.
//!
//! PCP comes first, then NAT-PMP if the gateway says so, then UPnP: its search asks the gateway alone,
//! and the network by multicast only if that brings nothing. Only the gateway of the default route is
//! believed.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU16;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use crab_nat::{InternetProtocol, PortMapping, PortMappingOptions, PortMappingType, TimeoutConfig, natpmp, pcp};
use tokio::sync::mpsc;

use super::upnp;
use super::{Done, Granted, Job, LIFETIME, Outcome, Place, Protocol, Tried};

/// Three requests within 1.75 s: the gateway is one hop away.
const PATIENCE: TimeoutConfig = TimeoutConfig {
    initial_timeout: Duration::from_millis(250),
    max_retries: 2,
    max_retry_timeout: None,
};

/// A mapping at its gateway, with what renewing and withdrawing take.
#[derive(Clone, Debug)]
pub struct Lease {
    place: Place,
    port: u16,
    kind: Kind,
}

#[derive(Clone, Debug)]
enum Kind {
    /// The nonce is the right to the mapping: a gateway refuses another one until the life ends.
    Pcp(pcp::Nonce),
    NatPmp,
    Upnp(upnp::xml::Service),
}

impl Kind {
    const fn protocol(&self) -> Protocol {
        match self {
            Self::Pcp(_) => Protocol::Pcp,
            Self::NatPmp => Protocol::NatPmp,
            Self::Upnp(_) => Protocol::Upnp,
        }
    }
}

/// What came of a job, and the mapping at the gateway if there is one.
pub type Result = (Done, Option<Lease>);

/// Starts a job on a thread of its own. What comes of it is sent to `done`, also if a protocol fails.
///
/// # Errors
/// The system starts no thread.
pub fn start(job: Job, lease: Option<Lease>, done: mpsc::Sender<Result>) -> io::Result<()> {
    let run = move || {
        let result = catch_unwind(AssertUnwindSafe(|| run(job, lease)));
        let result = result.unwrap_or_else(|_| (failed(job, "a protocol failed"), None));
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
            outcome: Outcome::said(why),
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
            (Job::Map { place, port }, lease) => map(place, port, lease).await,
            (Job::Renew, Some(lease)) => renew(lease).await,
            (Job::Withdraw, Some(lease)) => {
                withdraw(lease).await;
                (Done::Withdrawn, None)
            }
            (job, None) => (failed(job, "there is no mapping"), None),
        }
    })
}

type Mapped = std::result::Result<(Granted, Kind), Outcome>;

async fn by(protocol: Protocol, place: Place, port: u16, kind: Option<Kind>) -> Mapped {
    match protocol {
        Protocol::Pcp => by_pcp(place, port, kind).await,
        Protocol::NatPmp => by_nat_pmp(place, port).await,
        Protocol::Upnp => by_upnp(place, port, kind).await,
    }
}

fn leased((granted, kind): (Granted, Kind), place: Place, tried: Vec<Tried>) -> Result {
    let port = granted.at.port();
    (Done::Granted(granted, tried), Some(Lease { place, port, kind }))
}

async fn map(place: Place, port: u16, last: Option<Lease>) -> Result {
    let kind = last
        .as_ref()
        .filter(|last| last.place == place)
        .map(|last| last.kind.clone());
    let mut tried = Vec::new();
    let mut next = Some(Protocol::Pcp);
    while let Some(protocol) = next {
        let outcome = match by(protocol, place, port, kind.clone()).await {
            Ok(mapped) => return leased(mapped, place, tried),
            Err(outcome) => outcome,
        };
        next = match protocol {
            Protocol::Pcp if outcome != Outcome::Silent => Some(Protocol::NatPmp),
            Protocol::Pcp | Protocol::NatPmp => Some(Protocol::Upnp),
            Protocol::Upnp => None,
        };
        tried.push(Tried { protocol, outcome });
    }
    (Done::Failed(tried), last)
}

/// Asks for the same mapping by the same protocol: a gateway that has lost it grants it anew.
async fn renew(lease: Lease) -> Result {
    let protocol = lease.kind.protocol();
    match by(protocol, lease.place, lease.port, Some(lease.kind.clone())).await {
        Ok(mapped) => leased(mapped, lease.place, Vec::new()),
        Err(outcome) => (Done::Failed(vec![Tried { protocol, outcome }]), Some(lease)),
    }
}

fn options(port: u16) -> PortMappingOptions {
    PortMappingOptions {
        external_port: NonZeroU16::new(port),
        lifetime_seconds: Some(LIFETIME),
        timeout_config: Some(PATIENCE),
    }
}

fn own_port(place: Place) -> std::result::Result<NonZeroU16, Outcome> {
    NonZeroU16::new(place.own.port()).ok_or_else(|| Outcome::said("the socket has no port"))
}

async fn by_pcp(place: Place, port: u16, kind: Option<Kind>) -> Mapped {
    let client = IpAddr::V4(*place.own.ip());
    let request = pcp::BaseMapRequest::new(place.gateway.into(), client, InternetProtocol::Udp, own_port(place)?);
    let nonce = match kind {
        Some(Kind::Pcp(nonce)) => Some(nonce),
        _ => None,
    };
    let mapping = pcp::port_mapping(request, nonce, None, options(port)).await;
    let mapping = mapping.map_err(of_pcp)?;
    match mapping.mapping_type() {
        PortMappingType::Pcp { external_ip, nonce, .. } => {
            let granted = granted(&mapping, external_ip.to_canonical(), Protocol::Pcp);
            Ok((granted, Kind::Pcp(nonce)))
        }
        PortMappingType::NatPmp => Err(Outcome::Silent),
    }
}

async fn by_nat_pmp(place: Place, port: u16) -> Mapped {
    let gateway = place.gateway.into();
    let mapping = natpmp::port_mapping(gateway, InternetProtocol::Udp, own_port(place)?, options(port)).await;
    let mapping = mapping.map_err(of_nat_pmp)?;
    let ip = natpmp::external_address(gateway, Some(PATIENCE)).await;
    let ip = ip.map_err(of_nat_pmp)?;
    Ok((granted(&mapping, ip.into(), Protocol::NatPmp), Kind::NatPmp))
}

fn granted(mapping: &PortMapping, ip: IpAddr, protocol: Protocol) -> Granted {
    Granted {
        at: SocketAddr::new(ip, mapping.external_port().get()),
        protocol,
        lifetime: mapping.lifetime(),
    }
}

async fn by_upnp(place: Place, port: u16, kind: Option<Kind>) -> Mapped {
    let known = match kind {
        Some(Kind::Upnp(service)) => Some(service),
        _ => None,
    };
    let (granted, service) = upnp::map(place, port, known).await?;
    Ok((granted, Kind::Upnp(service)))
}

fn of_pcp(failure: pcp::Failure) -> Outcome {
    use pcp::Failure as F;
    match failure {
        F::Timeout => Outcome::Silent,
        F::Socket(error) => of_socket(&error),
        F::NetworkFailure(_) => Outcome::NoOuter,
        F::NotAuthorized(_) => Outcome::said("it allows this host no mapping"),
        F::NoResources(_) => Outcome::said("it has no port or no outer address left"),
        F::UserExceededQuota(_) => Outcome::said("this host has too many mappings there"),
        other => Outcome::said(&other),
    }
}

fn of_nat_pmp(failure: natpmp::Failure) -> Outcome {
    use natpmp::Failure as F;
    match failure {
        F::Timeout => Outcome::Silent,
        F::Socket(error) => of_socket(&error),
        F::NetworkFailure => Outcome::NoOuter,
        other => Outcome::said(&other),
    }
}

/// A host that refuses the port does not speak the protocol.
fn of_socket(error: &io::Error) -> Outcome {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => Outcome::Silent,
        _ => Outcome::said(error),
    }
}

/// Withdraws a mapping; a gateway that does not answer forgets it when its life ends.
async fn withdraw(Lease { place, port, kind }: Lease) {
    const UDP: InternetProtocol = InternetProtocol::Udp;
    let (gateway, client) = (place.gateway.into(), IpAddr::V4(*place.own.ip()));
    let Ok(internal_port) = own_port(place) else { return };
    match kind {
        Kind::Pcp(nonce) => {
            let protocol = UDP;
            let range = pcp::DropMappingRange::Single {
                internal_port,
                protocol,
            };
            drop(pcp::try_drop_mapping(gateway, client, nonce, range, Some(PATIENCE)).await);
        }
        Kind::NatPmp => drop(natpmp::try_drop_mapping(gateway, UDP, Some(internal_port), Some(PATIENCE)).await),
        Kind::Upnp(service) => upnp::withdraw(&service, place, port).await,
    }
}
