//! WANIPConnection of UPnP's Internet Gateway Device: the search, the requests, and what bounds them.
//!
//! | module | what is there; pure |
//! |---|---|
//! | [`ssdp`] | the search, and URLs at the gateway |
//! | [`http`] | requests, and answers as they arrive |
//! | [`xml`] | documents, within their limits |
//! | [`soap`] | the actions, and what an answer to one says |
//!
//! Any host of the LAN can answer a search. Only what comes from the gateway, about a URL at the
//! gateway, is followed; and what the gateway sends is bounded in bytes, elements and time.

pub mod http;
pub mod soap;
pub mod ssdp;
pub mod xml;

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, UdpSocket};
use tokio::time::{Instant, timeout, timeout_at};
use weft_reach::nat::is_private;

use self::soap::{Action, Mapping, NotDone};
use self::ssdp::Url;
use self::xml::Service;
use super::{Granted, LIFETIME, Nonsense, Outcome, Place, Protocol};

/// Time limit of each search for a gateway.
const SEARCH: Duration = Duration::from_millis(1_500);
/// Time limit of a request, and of all that one mapping takes.
const REQUEST: Duration = Duration::from_secs(3);
const REQUESTS: Duration = Duration::from_secs(5);
/// Time limit of a job, with both searches.
const JOB: Duration = Duration::from_secs(12);
/// The port of SSDP (UPnP Device Architecture 1.1, section 1.3.2).
const SSDP: u16 = 1900;
/// The longest datagram that is read.
const DATAGRAM: usize = 1_500;
/// How many documents of one gateway are fetched in a search.
const DOCUMENTS: usize = 3;
/// How many of the next ports are asked for if another host has the one that is wanted.
const NEXT_PORTS: u16 = 8;

/// Asks for a mapping: at the service that granted the last one, or at what a search finds.
///
/// # Errors
/// What became of the question.
pub(super) async fn map(place: Place, port: u16, known: Option<Service>) -> Result<(Granted, Service), Outcome> {
    let mapped = timeout(JOB, async {
        if let Some(service) = known
            && let Ok(granted) = add_in_time(&service, place, port).await
        {
            return Ok((granted, service));
        }
        map_anew(place, port).await
    });
    mapped.await.unwrap_or(Err(too_slow()))
}

/// Withdraws a mapping.
pub(super) async fn withdraw(service: &Service, place: Place, port: u16) {
    let _ = timeout(REQUESTS, ask(service, place, Action::Delete { port })).await;
}

async fn map_anew(place: Place, port: u16) -> Result<(Granted, Service), Outcome> {
    let multicast = SocketAddr::from((Ipv4Addr::new(239, 255, 255, 250), SSDP));
    let unicast = SocketAddr::from((place.gateway, SSDP));
    let mut last = Outcome::Silent;
    for to in [unicast, multicast] {
        let services = match search(place, to).await {
            Ok(services) => services,
            Err(Outcome::Silent) => continue,
            Err(outcome) => {
                last = outcome;
                continue;
            }
        };
        for service in services {
            match add_in_time(&service, place, port).await {
                Ok(granted) => return Ok((granted, service)),
                Err(outcome) => last = outcome,
            }
        }
        break;
    }
    Err(last)
}

fn too_slow() -> Outcome {
    Outcome::said("it takes too long")
}

/// Searches for the services of the gateway. Answers are read until the time is over.
async fn search(place: Place, to: SocketAddr) -> Result<Vec<Service>, Outcome> {
    let end = Instant::now() + SEARCH;
    let socket = UdpSocket::bind((*place.own.ip(), 0))
        .await
        .map_err(|error| Outcome::said(&error))?;
    for text in ssdp::requests(to) {
        socket
            .send_to(text.as_bytes(), to)
            .await
            .map_err(|error| Outcome::said(&error))?;
    }
    let mut seen = Vec::new();
    let mut last = Outcome::Silent;
    while let Ok(found) = timeout_at(end, location(&socket, place.gateway)).await {
        let url = found.map_err(|error| Outcome::said(&error))?;
        if seen.contains(&url) {
            continue;
        }
        match describe(place, &url).await {
            Ok(services) if !services.is_empty() => return Ok(services),
            Ok(_) => last = Outcome::said("it has no service that maps ports"),
            Err(outcome) => last = outcome,
        }
        seen.push(url);
        if seen.len() == DOCUMENTS {
            break;
        }
    }
    Err(last)
}

/// The next URL of a document that the gateway names.
async fn location(socket: &UdpSocket, gateway: Ipv4Addr) -> io::Result<Url> {
    let mut datagram = [0; DATAGRAM];
    loop {
        let (n, from) = match socket.recv_from(&mut datagram).await {
            // No socket there.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => continue,
            received => received?,
        };
        if let Some(url) = ssdp::location(&datagram[..n], from.ip(), gateway) {
            return Ok(url);
        }
    }
}

/// The services that the document at a URL describes.
async fn describe(place: Place, url: &Url) -> Result<Vec<Service>, Outcome> {
    let (status, body) = exchange(place, url, http::get(place.gateway, url)).await?;
    if status != http::OK {
        return Err(Outcome::said(&format!("it answers with HTTP status {status}")));
    }
    xml::services(&body, url, place.gateway).map_err(|error| Outcome::said(&error))
}

async fn add_in_time(service: &Service, place: Place, port: u16) -> Result<Granted, Outcome> {
    let added = timeout(REQUESTS, add(service, place, port)).await;
    added.unwrap_or(Err(too_slow()))
}

/// Asks a service for a mapping, if its outer address is of use.
async fn add(service: &Service, place: Place, port: u16) -> Result<Granted, Outcome> {
    let outer = ask(service, place, Action::Outer).await.map_err(outcome)?;
    let outer = match outer.outer {
        Some(outer) if !outer.is_unspecified() => IpAddr::V4(outer),
        _ => return Err(Outcome::NoOuter),
    };
    if is_private(outer) {
        return Err(Outcome::Nonsense(Nonsense::Private(outer)));
    }
    let (port, lifetime) = add_port(service, place, port).await.map_err(outcome)?;
    Ok(Granted {
        at: SocketAddr::new(outer, port),
        protocol: Protocol::Upnp,
        lifetime,
    })
}

/// Asks for a port, and for another one if that is taken. Returns the port and the lifetime.
async fn add_port(service: &Service, place: Place, port: u16) -> Result<(u16, u32), Failure> {
    let of = |port, lifetime| Mapping {
        port,
        own: place.own,
        lifetime,
    };
    let mut lifetime = LIFETIME;
    let mut added = ask(service, place, Action::Add(of(port, lifetime))).await;
    if added
        .as_ref()
        .is_err_and(|failure| failure.code() == soap::ONLY_PERMANENT)
    {
        lifetime = 0;
        added = ask(service, place, Action::Add(of(port, lifetime))).await;
    }
    let refused = match added {
        Ok(_) => return Ok((port, lifetime)),
        Err(refused) if refused.code() == 0 => return Err(refused),
        Err(refused) => refused,
    };
    if service.chooses_ports() {
        let any = ask(service, place, Action::AddAny(of(port, lifetime))).await;
        if let Ok(said) = any
            && let Some(port) = said.port
        {
            return Ok((port, lifetime));
        }
    }
    if refused.code() == soap::CONFLICT {
        for next in port.saturating_add(1)..=port.saturating_add(NEXT_PORTS) {
            if ask(service, place, Action::Add(of(next, lifetime))).await.is_ok() {
                return Ok((next, lifetime));
            }
        }
    }
    Err(refused)
}

/// Why an action is not done.
enum Failure {
    Refused(NotDone),
    Unanswered(Outcome),
}

impl Failure {
    /// The code of the gateway's refusal; 0 without one.
    const fn code(&self) -> u16 {
        match self {
            Self::Refused(NotDone::Fault { code, .. }) => *code,
            Self::Refused(_) | Self::Unanswered(_) => 0,
        }
    }
}

fn outcome(failure: Failure) -> Outcome {
    match failure {
        Failure::Refused(why) => Outcome::said(&why),
        Failure::Unanswered(outcome) => outcome,
    }
}

async fn ask(service: &Service, place: Place, action: Action) -> Result<soap::Said, Failure> {
    let request = http::post(place.gateway, service, &action);
    let answer = exchange(place, &service.control, request).await;
    let (status, body) = answer.map_err(Failure::Unanswered)?;
    soap::read(status, &body, &action).map_err(Failure::Refused)
}

/// Sends a request to the gateway. Returns the status and the body of its answer.
async fn exchange(place: Place, url: &Url, request: String) -> Result<(u16, String), Outcome> {
    let answer = timeout(REQUEST, converse(place, url.port, &request)).await;
    match answer {
        Ok(Ok(answer)) => answer.map_err(|error| Outcome::said(&error)),
        Ok(Err(_)) => Err(Outcome::said("the connection to its UPnP service fails")),
        Err(_) => Err(too_slow()),
    }
}

async fn converse(place: Place, port: u16, request: &str) -> io::Result<Result<(u16, String), http::NoAnswer>> {
    let socket = TcpSocket::new_v4()?;
    socket.bind((*place.own.ip(), 0).into())?;
    let mut stream = socket.connect((place.gateway, port).into()).await?;
    stream.write_all(request.as_bytes()).await?;
    let mut answer = http::Answer::default();
    let mut bytes = [0; 2_048];
    loop {
        let n = stream.read(&mut bytes).await?;
        if n == 0 {
            return Ok(answer.end());
        }
        match answer.push(&bytes[..n]) {
            Ok(false) => {}
            Ok(true) => return Ok(answer.end()),
            Err(no) => return Ok(Err(no)),
        }
    }
}
