//! Adverts: where a node says that it is, to each node that asks a relay (kind 37195 of FIPS).
//!
//! ```text
//! tags     d = fips-overlay-v1, protocol = fips-overlay-v1, version = 1, expiration = now + ttl
//! content  {"identifier":"fips-overlay-v1","version":1,"endpoints":[{"transport","addr"}],
//!           "signalRelays":[url],"stunServers":[url]}
//! ```
//!
//! The event replaces the one before it with the same signer and `d`. The two lists are there and not
//! empty exactly if an endpoint is `udp` with the address `nat`: the node sends and takes offers.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};
use thiserror::Error;
use weft_noise::Identity;

use crate::address::is_public;
use crate::event::{Event, EventError, Unsigned};
use crate::json::{self, OverLimit};
use crate::signal::Own;

/// The kind.
pub const KIND: u16 = 37_195;
/// The tag `d`, and what the content begins with.
pub const IDENTIFIER: &str = "fips-overlay-v1";
/// The tag `protocol` of the default network of FIPS.
pub const APP: &str = "fips-overlay-v1";
/// How long an advert holds, in seconds.
pub const TTL: u64 = 3_600;
/// After how many seconds it is published again.
pub const REFRESH: u64 = 1_800;
/// An advert is read for so many times [`TTL`] after it was signed, whatever it says itself.
pub const GRACE: u64 = 2;
/// Endpoints that are read, at most. The first ones count.
pub const MAX_ENDPOINTS: usize = 16;
/// Relays and servers that are read, at most, and characters of each.
pub const MAX_URLS: usize = 8;
/// Characters of an address or URL.
pub const MAX_TEXT: usize = 256;

/// How an endpoint is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Transport {
    /// UDP.
    Udp,
    /// TCP.
    Tcp,
    /// An onion service.
    Tor,
}

/// A way to reach a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Endpoint {
    /// An address that any node may dial.
    At(Transport, SocketAddr),
    /// A host name and a port, which say nothing about where they lead.
    Host(Transport, String),
    /// An offer, to which the node answers with its addresses.
    Nat,
}

/// What an advert says.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Advert {
    /// Ways to reach the node, at least one.
    pub endpoints: Vec<Endpoint>,
    /// URLs of the relays at which the node waits for offers.
    pub signal_relays: Vec<String>,
    /// STUN servers of the node, as `stun:host:port`, for information.
    pub stun_servers: Vec<String>,
}

/// The reason why an event does not count as an advert.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum AdvertError {
    /// Another kind, or another tag `d`.
    #[error("the event is no advert")]
    NotAnAdvert,
    /// Another tag `protocol`.
    #[error("the advert is of another network")]
    App,
    /// Over by its expiration, too old, or signed in the future.
    #[error("the advert does not hold now")]
    Time,
    /// The content exceeds [`json::DOCUMENT`].
    #[error("the advert: {0}")]
    OverLimit(#[from] OverLimit),
    /// The content has another form.
    #[error("the content of the advert has another form")]
    Content,
    /// Another identifier or version.
    #[error("the advert has another version")]
    Version,
    /// No endpoint that other nodes reach.
    #[error("the advert has no public address")]
    NoEndpoint,
    /// The endpoint `nat` without relays or without STUN servers.
    #[error("the advert offers to traverse NATs, without relays or STUN servers")]
    NoRelays,
}

#[derive(Serialize, Deserialize)]
struct Content {
    identifier: String,
    version: u32,
    endpoints: Vec<EndpointContent>,
    #[serde(rename = "signalRelays", skip_serializing_if = "Option::is_none")]
    signal_relays: Option<Vec<String>>,
    #[serde(rename = "stunServers", skip_serializing_if = "Option::is_none")]
    stun_servers: Option<Vec<String>>,
}

#[derive(Serialize, Deserialize)]
struct EndpointContent {
    transport: String,
    addr: String,
}

impl Advert {
    /// The advert of a node with these addresses. Each public one is an endpoint. A node that others
    /// see at another address than those of its host is behind a NAT: datagrams of strangers may not
    /// pass it, so that the node takes offers, too. Readers of FIPS believe that only of a node with
    /// relays and STUN servers; `servers` are `host:port` each.
    #[must_use]
    pub fn of(own: &Own, relays: &[String], servers: &[String]) -> Self {
        let mut endpoints: Vec<Endpoint> = Vec::new();
        for at in own.reflexive.iter().chain(&own.local).filter(|at| is_public(**at)) {
            let endpoint = Endpoint::At(Transport::Udp, *at);
            if !endpoints.contains(&endpoint) {
                endpoints.push(endpoint);
            }
        }
        if !own.is_behind_nat() || relays.is_empty() || servers.is_empty() {
            return Self {
                endpoints,
                ..Self::default()
            };
        }
        endpoints.push(Endpoint::Nat);
        let servers = servers.iter().take(MAX_URLS);
        Self {
            endpoints,
            signal_relays: relays.iter().take(MAX_URLS).cloned().collect(),
            stun_servers: servers.map(|server| format!("stun:{server}")).collect(),
        }
    }

    /// Whether the node takes offers.
    #[must_use]
    pub fn takes_offers(&self) -> bool {
        self.endpoints.contains(&Endpoint::Nat)
    }

    /// Makes the event. `now` is in seconds since 1970. Endpoints that are of no use to others are
    /// left out.
    ///
    /// # Errors
    /// [`AdvertError::NoEndpoint`], [`AdvertError::NoRelays`]; [`AdvertError::Content`] if what the
    /// caller passes has control characters.
    pub fn sign(&self, signer: &Identity, now: u64) -> Result<Event, AdvertError> {
        let advert = self.clone().checked()?;
        let lists = advert.takes_offers();
        let content = Content {
            identifier: IDENTIFIER.into(),
            version: 1,
            endpoints: advert.endpoints.iter().map(Endpoint::content).collect(),
            signal_relays: lists.then_some(advert.signal_relays),
            stun_servers: lists.then_some(advert.stun_servers),
        };
        let tag = |name: &str, value: &str| vec![name.to_owned(), value.to_owned()];
        let body = Unsigned {
            created_at: now,
            kind: KIND,
            tags: vec![
                tag("d", IDENTIFIER),
                tag("protocol", APP),
                tag("version", "1"),
                tag("expiration", &(now + TTL).to_string()),
            ],
            content: serde_json::to_string(&content).map_err(|_| AdvertError::Content)?,
        };
        Event::sign(signer, body).map_err(|_: EventError| AdvertError::Content)
    }

    /// Reads the signed fields of an event. Endpoints of other transports, and such as are of no use,
    /// are passed over. `now` is in seconds since 1970.
    ///
    /// # Errors
    /// [`AdvertError`].
    pub fn read(body: &Unsigned, now: u64) -> Result<Self, AdvertError> {
        if body.kind != KIND || body.tag_value("d") != Some(IDENTIFIER) {
            return Err(AdvertError::NotAnAdvert);
        }
        if body.tag_value("protocol") != Some(APP) {
            return Err(AdvertError::App);
        }
        if valid_until(body).is_none_or(|until| until <= now) || body.created_at > now + TTL {
            return Err(AdvertError::Time);
        }
        json::check(body.content.as_bytes(), json::DOCUMENT)?;
        let content: Content = serde_json::from_str(&body.content).map_err(|_| AdvertError::Content)?;
        if content.identifier != IDENTIFIER || content.version != 1 {
            return Err(AdvertError::Version);
        }
        let endpoints = content.endpoints.iter().filter_map(Endpoint::read).take(MAX_ENDPOINTS);
        Self {
            endpoints: endpoints.collect(),
            signal_relays: urls(content.signal_relays),
            stun_servers: urls(content.stun_servers),
        }
        .checked()
    }

    fn checked(mut self) -> Result<Self, AdvertError> {
        self.endpoints.retain(Endpoint::is_of_use);
        if self.endpoints.is_empty() {
            return Err(AdvertError::NoEndpoint);
        }
        if !self.takes_offers() {
            (self.signal_relays, self.stun_servers) = (Vec::new(), Vec::new());
        } else if self.signal_relays.is_empty() || self.stun_servers.is_empty() {
            return Err(AdvertError::NoRelays);
        }
        Ok(self)
    }
}

/// Until when an advert holds, in seconds since 1970: its expiration, and [`GRACE`] times [`TTL`] after
/// it was signed at most. `None` if the expiration is not a number.
#[must_use]
pub fn valid_until(body: &Unsigned) -> Option<u64> {
    let last = body.created_at.saturating_add(GRACE * TTL);
    match body.tag_value("expiration") {
        Some(text) => text.parse::<u64>().ok().map(|expires| expires.min(last)),
        None => Some(last),
    }
}

fn urls(list: Option<Vec<String>>) -> Vec<String> {
    let short = |url: &String| url.chars().count() <= MAX_TEXT;
    list.unwrap_or_default()
        .into_iter()
        .filter(short)
        .take(MAX_URLS)
        .collect()
}

impl Endpoint {
    fn read(content: &EndpointContent) -> Option<Self> {
        let transport = match content.transport.as_str() {
            "udp" => Transport::Udp,
            "tcp" => Transport::Tcp,
            "tor" => Transport::Tor,
            _ => return None,
        };
        let text = content.addr.trim();
        if text.chars().count() > MAX_TEXT {
            return None;
        }
        if text.eq_ignore_ascii_case("nat") {
            return (transport == Transport::Udp).then_some(Self::Nat);
        }
        match text.parse() {
            Ok(at) if transport != Transport::Tor => Some(Self::At(transport, at)),
            _ => Some(Self::Host(transport, text.to_owned())),
        }
    }

    fn is_of_use(&self) -> bool {
        match self {
            Self::Nat => true,
            Self::At(_, at) => is_public(*at),
            Self::Host(Transport::Tor, _) => true,
            Self::Host(_, text) => text
                .rsplit_once(':')
                .is_some_and(|(host, port)| is_host(host) && is_port(port)),
        }
    }

    fn content(&self) -> EndpointContent {
        let (transport, addr) = match self {
            Self::Nat => (Transport::Udp, "nat".to_owned()),
            Self::At(transport, at) => (*transport, at.to_string()),
            Self::Host(transport, text) => (*transport, text.clone()),
        };
        let transport = match transport {
            Transport::Udp => "udp",
            Transport::Tcp => "tcp",
            Transport::Tor => "tor",
        };
        EndpointContent {
            transport: transport.to_owned(),
            addr,
        }
    }
}

/// A host name other than `localhost`. Addresses in other forms than those of sockets are none.
fn is_host(host: &str) -> bool {
    let letters = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.');
    let named = host.ends_with(|c: char| c.is_ascii_alphabetic() || c == '.');
    !host.is_empty() && host.chars().all(letters) && named && !host.eq_ignore_ascii_case("localhost")
}

fn is_port(port: &str) -> bool {
    port.parse::<u16>().is_ok_and(|port| port != 0)
}

#[cfg(test)]
mod tests;
