//! What this node publishes and asks for: its advert and its relays, messages for it, and the adverts of
//! peers that are wanted.

use std::collections::BTreeSet;

use weft_noise::PublicKey;

use super::{Now, Output, Rendezvous};
use crate::advert::{self, Advert};
use crate::event::{Event, Unsigned};
use crate::message::{Filter, publish, subscribe, unsubscribe};
use crate::{inbox, wrap};

/// The subscription of messages for this node.
pub(super) const MESSAGES: &str = "messages";
/// The subscription of adverts of peers.
pub(super) const ADVERTS: &str = "adverts";
/// Peers whose adverts are asked for, at most.
pub(super) const MAX_AUTHORS: usize = 256;
/// Milliseconds between two changes of what is published or asked for, so that what flaps costs little.
pub(super) const SETTLE: u64 = 5_000;
/// A request that an event be deleted (NIP-09).
const DELETION: u16 = 5;

/// What is published and asked for.
#[derive(Debug)]
pub(super) struct Adverts {
    /// The URLs of this node's relays.
    relays: Vec<String>,
    wanted: Option<Advert>,
    /// The events that relays have: the advert, and the list of relays.
    published: Option<(Advert, Event)>,
    /// When the advert is published, again or for the first time.
    publish_at: Option<u64>,
    /// When it was signed last, in seconds since 1970: the next one has to be newer.
    signed: u64,
    changed: u64,
    authors: BTreeSet<PublicKey>,
    /// When relays are told what is asked for.
    ask_at: Option<u64>,
    asked: u64,
}

impl Adverts {
    pub(super) const fn new(relays: Vec<String>) -> Self {
        Self {
            relays,
            wanted: None,
            published: None,
            publish_at: None,
            signed: 0,
            changed: 0,
            authors: BTreeSet::new(),
            ask_at: None,
            asked: 0,
        }
    }

    pub(super) fn set_relays(&mut self, relays: Vec<String>) {
        self.relays = relays;
    }

    pub(super) fn set(&mut self, now: u64, advert: Option<Advert>) {
        if advert != self.wanted {
            self.wanted = advert;
            self.publish_at = Some(now.max(self.changed));
        }
    }

    pub(super) fn deadline(&self) -> Option<u64> {
        self.publish_at.into_iter().chain(self.ask_at).min()
    }

    /// Tells the relays again what is asked for, soon.
    pub(super) fn ask(&mut self, now: u64) {
        self.ask_at.get_or_insert(now.max(self.asked));
    }
}

impl Rendezvous {
    /// Tells a relay that was just connected what is asked for and published.
    pub(super) fn greet(&mut self, now: Now, relay: usize) {
        let mut texts = self.requests();
        if let Some((_, event)) = &self.adverts.published {
            texts.push(publish(event));
            texts.extend(self.inbox(now));
        }
        let texts = texts.into_iter().map(|text| Output::Send { relay, text });
        self.outputs.extend(texts);
    }

    fn requests(&self) -> Vec<String> {
        let messages = Filter {
            kinds: vec![wrap::KIND],
            recipient: Some(self.identity.public()),
            limit: Some(0),
            ..Filter::default()
        };
        let adverts = Filter {
            kinds: vec![advert::KIND],
            authors: self.adverts.authors.iter().copied().collect(),
            identifier: Some(advert::IDENTIFIER.into()),
            ..Filter::default()
        };
        let adverts = match adverts.authors.is_empty() {
            true => unsubscribe(ADVERTS),
            false => subscribe(ADVERTS, &adverts),
        };
        vec![subscribe(MESSAGES, &messages), adverts]
    }

    /// The peers that are wanted may be others.
    pub(super) fn follow_wanted(&mut self, now: Now) {
        if self.relays.is_empty() {
            return;
        }
        let wanted = self.peers.iter().filter(|(_, peer)| peer.wanted).map(|(key, _)| *key);
        let authors: BTreeSet<PublicKey> = wanted.take(MAX_AUTHORS).collect();
        if authors != self.adverts.authors {
            self.adverts.authors = authors;
            self.adverts.ask(now.ms);
        }
    }

    /// Tells the relays what is asked for, if that has changed.
    pub(super) fn ask(&mut self, now: Now) {
        if self.adverts.ask_at.take_if(|at| *at <= now.ms).is_some() {
            self.adverts.asked = now.ms + SETTLE;
            for text in self.requests() {
                self.send_to_all(&text);
            }
        }
    }

    /// Publishes the advert if it is due, or withdraws it.
    pub(super) fn publish(&mut self, now: Now) {
        if self.adverts.publish_at.take_if(|at| *at <= now.ms).is_none() {
            return;
        }
        self.adverts.changed = now.ms + SETTLE;
        let Some(advert) = self.adverts.wanted.clone() else {
            return self.withdraw(now);
        };
        let time = now.unix_s().max(self.adverts.signed + 1);
        self.adverts.publish_at = Some(now.ms + advert::REFRESH * 1_000);
        match advert.sign(&self.identity, time) {
            Ok(event) => {
                self.adverts.signed = time;
                self.send_to_all(&publish(&event));
                if self.adverts.published.is_none()
                    && let Some(text) = self.inbox(now)
                {
                    self.send_to_all(&text);
                }
                self.adverts.published = Some((advert, event));
            }
            // Others could use none of the addresses.
            Err(_) => self.withdraw(now),
        }
    }

    /// The message that publishes the relays of this node. It goes with adverts: their readers look for
    /// it.
    fn inbox(&self, now: Now) -> Option<String> {
        let event = inbox::sign(&self.identity, &self.adverts.relays, now.unix_s());
        event.ok().map(|event| publish(&event))
    }

    fn withdraw(&mut self, now: Now) {
        let Some((_, event)) = self.adverts.published.take() else {
            return;
        };
        let id = data_encoding::HEXLOWER.encode(event.id());
        let body = Unsigned {
            created_at: now.unix_s().max(self.adverts.signed),
            kind: DELETION,
            tags: vec![vec!["e".into(), id], vec!["k".into(), advert::KIND.to_string()]],
            content: String::new(),
        };
        if let Ok(deletion) = Event::sign(&self.identity, body) {
            self.send_to_all(&publish(&deletion));
        }
    }
}
