//! Signalling through relays of Nostr and in sessions: connections to relays, and what comes of offers
//! and adverts (docs/protocol/nostr.md).

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use weft_config::NostrConfig;
use weft_config::host_name::PeerAddress;
use weft_config::relay::RelayUrl;
use weft_control::status::NostrRelayStatus;
use weft_core::{Event, MAX_TRAVERSAL};
use weft_discovery::relay::{Relay, RelayEvent, Tls};
use weft_host::dns::Lookups;
use weft_noise::{Identity, PublicKey};
use weft_nostr::advert::Advert;
use weft_nostr::rendezvous::{Now, Output, Rendezvous, Standing, State};
use weft_nostr::signal::{MAX_IN_SESSION, Own};
use weft_os::clock::{boottime_ms, unix_ms};
use weft_os::random::SystemRng;
use weft_wire::session::TraversalType;

use super::run::Daemon;

/// Events of relays that wait. A relay whose events wait is not read.
const QUEUE: usize = 32;

const _: () = assert!(MAX_IN_SESSION <= MAX_TRAVERSAL);

/// Signalling of a node, through relays and in sessions.
pub(super) struct Signalling {
    state: Rendezvous,
    urls: Vec<RelayUrl>,
    relays: BTreeMap<usize, Relay>,
    /// The last round trip to each relay that is connected.
    rtts: BTreeMap<usize, Duration>,
    advertise: bool,
    /// What an advert says now.
    own: Own,
    /// The STUN servers that an advert names.
    servers: Vec<PeerAddress>,
    tls: Arc<Tls>,
    lookups: Lookups,
    sender: mpsc::Sender<(usize, RelayEvent)>,
    events: mpsc::Receiver<(usize, RelayEvent)>,
    /// Peers whose links or sessions may have changed.
    changed: BTreeSet<PublicKey>,
    /// The addresses of the last advert of each peer.
    adverts: BTreeMap<PublicKey, Vec<SocketAddr>>,
}

fn now() -> Now {
    Now {
        ms: boottime_ms(),
        unix_ms: unix_ms(),
    }
}

impl Signalling {
    pub(super) fn new(identity: Arc<Identity>, config: &NostrConfig, tls: Arc<Tls>, lookups: Lookups) -> Self {
        let urls: Vec<String> = config.relays.iter().map(ToString::to_string).collect();
        let (sender, events) = mpsc::channel(QUEUE);
        Self {
            state: Rendezvous::new(identity, &urls, Box::new(SystemRng)),
            urls: config.relays.clone(),
            relays: BTreeMap::new(),
            rtts: BTreeMap::new(),
            advertise: config.advertise,
            own: Own::default(),
            servers: Vec::new(),
            tls,
            lookups,
            sender,
            events,
            changed: BTreeSet::new(),
            adverts: BTreeMap::new(),
        }
    }

    /// Returns the addresses that peers advertise.
    pub(super) fn adverts(&self) -> &BTreeMap<PublicKey, Vec<SocketAddr>> {
        &self.adverts
    }

    /// Waits for an event of a relay; for ever without relays. Safe to cancel.
    pub(super) async fn next(&mut self) -> Option<(usize, RelayEvent)> {
        self.events.recv().await
    }

    /// Returns the time at which something is due, in ms.
    pub(super) fn timeout(&self) -> Option<u64> {
        self.state.poll_timeout()
    }

    /// Notes that the link or session of a peer may have changed.
    pub(super) fn note(&mut self, peer: PublicKey) {
        self.changed.insert(peer);
    }

    /// Notes what an event says about sessions.
    pub(super) fn note_event(&mut self, event: &Event) {
        if let Event::SessionUp { peer }
        | Event::SessionDown { peer, .. }
        | Event::Announced { peer }
        | Event::FramesChanged { peer, .. } = event
        {
            self.note(*peer);
        }
    }

    /// Handles a change of the network of this host.
    pub(super) fn handle_network_change(&mut self) {
        self.state.handle_network_change(now());
    }

    /// Returns true if something carries offers: a relay of the configuration, or a session.
    fn has_carrier(&self) -> bool {
        !self.urls.is_empty() || self.state.has_session()
    }

    /// Takes over what the configuration says from now on.
    pub(super) fn set_config(&mut self, config: &NostrConfig) {
        if config.relays != self.urls {
            self.urls.clone_from(&config.relays);
            self.relays.clear();
            self.rtts.clear();
            // Messages of the former relays wait in the old queue.
            (self.sender, self.events) = mpsc::channel(QUEUE);
            let urls: Vec<String> = self.urls.iter().map(ToString::to_string).collect();
            self.state.set_relays(now(), &urls);
        } else if config.advertise == self.advertise {
            return;
        }
        self.advertise = config.advertise;
        self.advertise();
    }

    fn handle(&mut self, number: usize, event: RelayEvent) {
        let url = self.urls.get(number);
        match event {
            RelayEvent::Open => {
                tracing::info!(relay = url.map(RelayUrl::as_str), "connected to a Nostr relay");
                self.state.handle_connected(now(), number);
            }
            RelayEvent::Text(text) => self.state.handle_text(now(), number, &text),
            RelayEvent::RoundTrip(rtt) => {
                self.rtts.insert(number, rtt);
            }
            RelayEvent::Closed(error) => {
                let why = readable(&error.to_string());
                tracing::info!(relay = url.map(RelayUrl::as_str), why, "a Nostr relay is not connected");
                self.relays.remove(&number);
                self.rtts.remove(&number);
                self.state.handle_disconnected(now(), number, &why);
            }
        }
    }

    fn connect(&mut self, number: usize) {
        let Some(url) = self.urls.get(number).cloned() else {
            return;
        };
        let (tls, lookups) = (Arc::clone(&self.tls), self.lookups.clone());
        let relay = Relay::connect(number, url, tls, lookups, self.sender.clone());
        self.relays.insert(number, relay);
    }

    fn send(&mut self, number: usize, text: String) {
        let sent = self.relays.get(&number).is_some_and(|relay| relay.send(text));
        if !sent && self.relays.remove(&number).is_some() {
            self.rtts.remove(&number);
            self.state.handle_disconnected(now(), number, "it reads too slowly");
        }
    }

    /// Takes over the addresses of this node, those that offers name, and its STUN servers.
    fn set_own(&mut self, own: Own, offered: Own, servers: &[PeerAddress]) {
        if own == self.own && servers == self.servers {
            return;
        }
        (self.own, self.servers) = (own, servers.to_vec());
        self.state.set_own(now(), offered);
        self.advertise();
    }

    fn advertise(&mut self) {
        let urls: Vec<String> = self.urls.iter().map(ToString::to_string).collect();
        let servers: Vec<String> = self.servers.iter().map(ToString::to_string).collect();
        let advert = self.advertise.then(|| Advert::of(&self.own, &urls, &servers));
        self.state.set_advert(now(), advert);
    }

    fn status(&self, now: u64) -> impl Iterator<Item = NostrRelayStatus> {
        let known = self.urls.iter().zip(self.state.relays()).enumerate();
        known.map(move |(number, (url, standing))| status(url, standing, self.rtts.get(&number), now))
    }
}

fn status(url: &RelayUrl, standing: &Standing, rtt: Option<&Duration>, now: u64) -> NostrRelayStatus {
    let seconds = |at: u64| now.saturating_sub(at) / 1_000;
    let state = match standing.state {
        State::Open => "open",
        State::Connecting => "connecting",
        State::Waiting { .. } => "waiting",
    };
    NostrRelayStatus {
        url: url.to_string(),
        state: state.to_owned(),
        since_s: standing.since.map_or(0, seconds),
        rtt_ms: rtt.map(|rtt| rtt.as_secs_f64() * 1_000.0),
        trouble: standing.trouble.as_ref().map(|trouble| trouble.why.clone()),
        trouble_s: standing.trouble.as_ref().map(|trouble| seconds(trouble.at)),
    }
}

/// Makes a text of a relay or library fit for the log.
fn readable(text: &str) -> String {
    weft_nostr::json::plain(text, weft_nostr::message::MAX_REASON)
}

impl Daemon {
    /// Takes over which nodes are peers, and which of them are wanted.
    pub(super) fn set_signalling_peers(&mut self) {
        let members = &self.desired.members;
        self.nostr.adverts.retain(|key, _| members.contains(key));
        let keys = self.desired.members.iter().map(|(key, _)| *key);
        let peers = keys.map(|key| (key, !self.is_linked(&key))).collect();
        self.nostr.state.set_peers(now(), &peers);
    }

    /// Returns what is known about the relays, in the order of the configuration.
    pub(super) fn nostr_relays(&self, now: u64) -> Vec<NostrRelayStatus> {
        self.nostr.status(now).collect()
    }

    /// Handles an event of a relay.
    pub(super) fn handle_relay(&mut self, number: usize, event: RelayEvent) {
        self.nostr.handle(number, event);
    }

    /// Handles an offer or answer that came in the session with a peer.
    pub(super) fn handle_traversal(&mut self, peer: &PublicKey, kind: TraversalType, text: &[u8]) {
        let config = &self.configuration.config.reach;
        if config.punch {
            let (own, offered) = (self.reaching.own(), self.reaching.offered());
            self.nostr.set_own(own, offered, &config.stun);
            let offer = kind == TraversalType::Offer;
            self.nostr.state.handle_session_signal(now(), peer, offer, text);
        }
    }

    /// Goes on with signalling. Returns whether the core has something to do because of it.
    pub(super) fn drive_nostr(&mut self) -> bool {
        let punch = self.configuration.config.reach.punch;
        for key in std::mem::take(&mut self.nostr.changed) {
            let (wanted, session) = (!self.is_linked(&key), punch && self.node.has_fips_session(&key));
            self.nostr.state.set_wanted(now(), &key, wanted);
            self.nostr.state.set_session(now(), &key, session);
        }
        if self.nostr.has_carrier() {
            let (own, offered) = (self.reaching.own(), self.reaching.offered());
            self.nostr.set_own(own, offered, &self.configuration.config.reach.stun);
        }
        self.nostr.state.handle_timeout(now());
        let mut active = false;
        while let Some(output) = self.nostr.state.poll_output() {
            match output {
                Output::Connect { relay } => self.nostr.connect(relay),
                Output::Send { relay, text } => self.nostr.send(relay, text),
                Output::Signal { .. } | Output::Advertised { .. } | Output::Punch { .. } => {
                    active = true;
                    self.signalled(output);
                }
            }
        }
        active
    }

    fn signalled(&mut self, output: Output) {
        match output {
            Output::Advertised { peer, at } => {
                self.nostr.adverts.insert(peer, at);
                self.apply();
            }
            Output::Signal { peer, offer, text } => {
                let kind = match offer {
                    true => TraversalType::Offer,
                    false => TraversalType::Answer,
                };
                // A text that is not sent is lost, and another offer follows.
                if let Err(error) = self.node.send_traversal(&peer, kind, text.as_bytes()) {
                    tracing::debug!(peer = self.facts.name(&peer), %error, "an offer or answer is not sent");
                }
            }
            Output::Punch { peer, key, targets } if self.configuration.config.reach.punch && !self.is_linked(&peer) => {
                tracing::debug!(peer = self.facts.name(&peer), ?targets, "agreed on addresses to probe");
                self.reaching.punch(boottime_ms(), peer, key, &targets);
            }
            _ => {}
        }
    }
}
