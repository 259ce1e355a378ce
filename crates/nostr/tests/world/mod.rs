//! Nodes and relays on one virtual clock. The relays do what NIP-01 says: they verify events, keep those
//! that replace others, and pass on what a subscription asks for.

#![allow(clippy::unwrap_used, clippy::panic, dead_code, reason = "test helpers")]

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;

use rand_chacha::ChaCha20Rng;
use rand_core::SeedableRng;
use serde_json::Value;
use weft_noise::{Identity, PublicKey, SecretKey};
use weft_nostr::event::Event;
use weft_nostr::rendezvous::{Now, Output, Rendezvous};
use weft_nostr::signal::Own;

/// Milliseconds since 1970 at the start.
pub(crate) const START: u64 = 1_700_000_000_000;
/// Milliseconds that a text takes between node and relay.
pub(crate) const DELAY: u64 = 20;

/// What a node was told to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Punch {
    pub(crate) at: u64,
    pub(crate) peer: PublicKey,
    pub(crate) key: [u8; 16],
    pub(crate) targets: Vec<SocketAddr>,
}

pub(crate) struct Node {
    pub(crate) identity: Arc<Identity>,
    pub(crate) state: Rendezvous,
    pub(crate) punches: Vec<Punch>,
    pub(crate) advertised: Vec<(PublicKey, Vec<SocketAddr>)>,
    /// What it has sent, with the relay.
    pub(crate) sent: Vec<(usize, String)>,
    /// By how many ms its clock is ahead.
    pub(crate) skew: u64,
    pub(crate) connects: usize,
}

#[derive(Default)]
pub(crate) struct Relay {
    pub(crate) up: bool,
    /// Events of such kinds that are not stored and those that are, by (key, kind, d).
    pub(crate) stored: BTreeMap<(String, u64, String), Value>,
    pub(crate) subscriptions: BTreeMap<(usize, String), Value>,
    /// Everything that was published at it.
    pub(crate) events: Vec<Event>,
}

pub(crate) struct World {
    pub(crate) now: u64,
    pub(crate) nodes: Vec<Node>,
    pub(crate) relays: Vec<Relay>,
    /// Texts under way to a node: when, to which node, from which relay.
    to_nodes: VecDeque<(u64, usize, usize, String)>,
    to_relays: VecDeque<(u64, usize, usize, String)>,
    /// Documents under way in sessions: when, from which node, to which key, whether an offer.
    in_sessions: VecDeque<(u64, usize, PublicKey, bool, String)>,
    /// How many of the next documents in sessions are lost.
    pub(crate) losses: usize,
    /// The documents that came in sessions: from which node, whether an offer, its bytes.
    pub(crate) arrived: Vec<(usize, bool, usize)>,
}

pub(crate) fn identity(n: u8) -> Identity {
    Identity::new(SecretKey::from_bytes(&[n; 32]).unwrap())
}

pub(crate) fn own(n: usize) -> Own {
    Own {
        reflexive: format!("11.0.0.{}:{}", n + 1, 4_000 + n).parse().ok(),
        local: vec![format!("192.168.{n}.2:2121").parse().unwrap()],
    }
}

impl World {
    pub(crate) fn new(nodes: usize, relays: usize) -> Self {
        let urls: Vec<String> = (0..relays).map(|n| format!("wss://{n}.example")).collect();
        let node = |n: usize| {
            let identity = Arc::new(identity(n as u8 + 1));
            let rng = Box::new(ChaCha20Rng::seed_from_u64(n as u64));
            Node {
                state: Rendezvous::new(identity.clone(), &urls, rng),
                identity,
                punches: Vec::new(),
                advertised: Vec::new(),
                sent: Vec::new(),
                skew: 0,
                connects: 0,
            }
        };
        let up = |_| Relay {
            up: true,
            ..Relay::default()
        };
        Self {
            now: 0,
            nodes: (0..nodes).map(node).collect(),
            relays: (0..relays).map(up).collect(),
            to_nodes: VecDeque::new(),
            to_relays: VecDeque::new(),
            in_sessions: VecDeque::new(),
            losses: 0,
            arrived: Vec::new(),
        }
    }

    /// Begins or ends the session of two nodes.
    pub(crate) fn set_session(&mut self, one: usize, two: usize, carries: bool) {
        for (n, peer) in [(one, two), (two, one)] {
            let (now, key) = (self.time(n), self.key(peer));
            self.nodes[n].state.set_session(now, &key, carries);
            self.drain(n);
        }
    }

    pub(crate) fn key(&self, n: usize) -> PublicKey {
        self.nodes[n].identity.public()
    }

    pub(crate) fn time(&self, n: usize) -> Now {
        let unix_ms = START + self.now + self.nodes[n].skew;
        Now { ms: self.now, unix_ms }
    }

    /// Gives a node its addresses and peers, all of which are wanted.
    pub(crate) fn set_up(&mut self, n: usize, peers: &[usize]) {
        let now = self.time(n);
        self.nodes[n].state.set_own(now, own(n));
        let peers = peers.iter().map(|peer| (self.key(*peer), true)).collect();
        self.nodes[n].state.set_peers(now, &peers);
        self.drain(n);
    }

    pub(crate) fn connected(&mut self, n: usize, relay: usize) {
        let now = self.time(n);
        self.nodes[n].state.handle_connected(now, relay);
    }

    pub(crate) fn disconnect(&mut self, relay: usize) {
        self.relays[relay].up = false;
        self.relays[relay].subscriptions.clear();
        for n in 0..self.nodes.len() {
            let now = self.time(n);
            self.nodes[n].state.handle_disconnected(now, relay, "gone");
            self.drain(n);
        }
    }

    /// Hands a text to a node as if a relay had sent it.
    pub(crate) fn inject(&mut self, n: usize, relay: usize, text: &str) {
        let now = self.time(n);
        self.nodes[n].state.handle_text(now, relay, text);
        self.drain(n);
    }

    /// Lets time pass, 10 ms at a time.
    pub(crate) fn run(&mut self, ms: u64) {
        for _ in 0..ms / 10 {
            for n in 0..self.nodes.len() {
                let now = self.time(n);
                self.nodes[n].state.handle_timeout(now);
                self.drain(n);
            }
            self.deliver();
            self.now += 10;
        }
    }

    fn deliver(&mut self) {
        while let Some((_, relay, n, text)) = self.to_relays.pop_front_if(|(at, ..)| *at <= self.now) {
            if self.relays[relay].up {
                self.at_relay(relay, n, &text);
            }
        }
        while let Some((_, from, peer, offer, text)) = self.in_sessions.pop_front_if(|(at, ..)| *at <= self.now) {
            if self.losses > 0 {
                self.losses -= 1;
                continue;
            }
            self.arrived.push((from, offer, text.len()));
            let is_peer = |node: &Node| node.identity.public() == peer;
            let n = self.nodes.iter().position(is_peer).unwrap();
            let (sender, now) = (self.key(from), self.time(n));
            self.nodes[n]
                .state
                .handle_session_signal(now, &sender, offer, text.as_bytes());
            self.drain(n);
        }
        while let Some((_, n, relay, text)) = self.to_nodes.pop_front_if(|(at, ..)| *at <= self.now) {
            self.inject(n, relay, &text);
        }
    }

    pub(crate) fn drain(&mut self, n: usize) {
        while let Some(output) = self.nodes[n].state.poll_output() {
            match output {
                Output::Connect { relay } => {
                    self.nodes[n].connects += 1;
                    let now = self.time(n);
                    match self.relays[relay].up {
                        true => self.nodes[n].state.handle_connected(now, relay),
                        false => self.nodes[n].state.handle_disconnected(now, relay, "refused"),
                    }
                }
                Output::Send { relay, text } => {
                    self.nodes[n].sent.push((relay, text.clone()));
                    self.to_relays.push_back((self.now + DELAY, relay, n, text));
                }
                Output::Signal { peer, offer, text } => {
                    self.in_sessions.push_back((self.now + DELAY, n, peer, offer, text));
                }
                Output::Advertised { peer, at } => self.nodes[n].advertised.push((peer, at)),
                Output::Punch { peer, key, targets } => {
                    let at = self.now;
                    self.nodes[n].punches.push(Punch { at, peer, key, targets });
                }
            }
        }
    }

    fn at_relay(&mut self, relay: usize, n: usize, text: &str) {
        let message: Value = serde_json::from_str(text).unwrap();
        let name = || message[1].as_str().unwrap().to_owned();
        match message[0].as_str().unwrap() {
            "REQ" => {
                let filter = message[2].clone();
                let stored = self.relays[relay]
                    .stored
                    .values()
                    .filter(|event| matches(&filter, event));
                let stored: Vec<Value> = stored.filter(|_| filter["limit"] != 0).cloned().collect();
                for event in stored {
                    self.pass_on(relay, n, &name(), &event);
                }
                self.relays[relay].subscriptions.insert((n, name()), filter);
                self.reply(relay, n, format!("[\"EOSE\",\"{}\"]", name()));
            }
            "CLOSE" => drop(self.relays[relay].subscriptions.remove(&(n, name()))),
            _ => self.publish(relay, &message[1]),
        }
    }

    /// Publishes an event at a relay.
    pub(crate) fn publish(&mut self, relay: usize, event: &Value) {
        let parsed = Event::parse(event.to_string().as_bytes()).unwrap();
        let kind = event["kind"].as_u64().unwrap();
        if kind >= 30_000 || kind == 10_050 {
            let d = parsed.body().tag_value("d").unwrap_or_default().to_owned();
            let place = (event["pubkey"].as_str().unwrap().to_owned(), kind, d);
            let stored = &mut self.relays[relay].stored;
            let newer = |old: &Value| old["created_at"].as_u64() >= event["created_at"].as_u64();
            if stored.get(&place).is_some_and(newer) {
                return;
            }
            stored.insert(place, event.clone());
        }
        if kind == 5 {
            let id = parsed.body().tag_value("e").unwrap().to_owned();
            self.relays[relay].stored.retain(|_, event| event["id"] != id.as_str());
        }
        self.relays[relay].events.push(parsed);
        let to = self.relays[relay].subscriptions.iter();
        let to: Vec<_> = to
            .filter(|(_, filter)| matches(filter, event))
            .map(|(to, _)| to.clone())
            .collect();
        for (n, name) in to {
            self.pass_on(relay, n, &name, event);
        }
    }

    fn pass_on(&mut self, relay: usize, n: usize, name: &str, event: &Value) {
        self.reply(relay, n, format!("[\"EVENT\",\"{name}\",{event}]"));
    }

    fn reply(&mut self, relay: usize, n: usize, text: String) {
        self.to_nodes.push_back((self.now + DELAY, n, relay, text));
    }

    /// The kinds of all that a node has published at a relay.
    pub(crate) fn published(&self, n: usize, relay: usize) -> Vec<u16> {
        let of = |(at, text): &(usize, String)| {
            let message: Value = serde_json::from_str(text).unwrap();
            (*at == relay && message[0] == "EVENT").then(|| message[1]["kind"].as_u64().unwrap() as u16)
        };
        self.nodes[n].sent.iter().filter_map(of).collect()
    }
}

fn matches(filter: &Value, event: &Value) -> bool {
    let listed = |list: &Value, value: &Value| list.as_array().is_none_or(|list| list.contains(value));
    let tagged = |list: &Value, name: &str| {
        list.as_array().is_none_or(|list| {
            let tags = event["tags"].as_array().unwrap().iter();
            tags.filter(|tag| tag[0] == name).any(|tag| list.contains(&tag[1]))
        })
    };
    listed(&filter["kinds"], &event["kind"])
        && listed(&filter["authors"], &event["pubkey"])
        && tagged(&filter["#p"], "p")
        && tagged(&filter["#d"], "d")
}

/// The distinct keys of punches.
pub(crate) fn keys(punches: &[Punch]) -> BTreeSet<[u8; 16]> {
    punches.iter().map(|punch| punch.key).collect()
}
