use std::collections::BTreeSet;
use std::sync::Arc;

use proptest::prelude::*;
use weft_nostr::event::{Event, Unsigned};
use weft_roster::key::RecordKey;
use weft_roster::membership::{self, MembershipError};
use weft_roster::record::{Body, Draft, Member, Network};
use weft_roster::rules::Policy;
use weft_roster::set::RecordSet;
use weft_roster::state::State;

use super::*;
use crate::shared_roster::tests::identity;
use crate::shared_roster::{Refusal, SharedRoster};

const UNIX: u64 = 1_700_000_000;

fn key(n: u8) -> PublicKey {
    identity(n).public()
}

/// A list of a network, as the administrator `by` signs it.
fn event(network: &NetworkId, by: u8, at: u64, members: &[u8]) -> Event {
    let hex = |n: &u8| data_encoding::HEXLOWER.encode(key(*n).as_bytes());
    let tag = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
    let mut tags = vec![
        tag(&["d", network.as_str()]),
        tag(&["app", membership::APP]),
        tag(&["v", membership::VERSION]),
        tag(&["admin", &hex(&1)]),
        tag(&["admin", &hex(&2)]),
    ];
    tags.extend(members.iter().map(|n| tag(&["member", &hex(n)])));
    let body = Unsigned {
        created_at: at,
        kind: membership::KIND,
        tags,
        content: String::new(),
    };
    Event::sign(&identity(by), body).unwrap()
}

fn hold(exchange: &mut Exchange, event: Event) {
    let list = SharedRoster::read(&event).unwrap();
    let until = 0;
    exchange.lists.insert(list.network.clone(), Held { event, list, until });
}

fn network() -> NetworkId {
    NetworkId::new("0123456789abcdef0123456789abcdef").unwrap()
}

/// The exchange of node 1 with these peers, whose session has no messages of weft.
fn with(peers: &[u8]) -> Exchange {
    let mut exchange = Exchange::new(key(1));
    set_peers(&mut exchange, 0, peers);
    exchange
}

fn set_peers(exchange: &mut Exchange, now: u64, peers: &[u8]) {
    let peers = peers.iter().map(|n| (key(*n), BTreeSet::from([network()]))).collect();
    exchange.set_peers(now, &peers);
}

fn outputs(exchange: &mut Exchange) -> Vec<Output> {
    std::iter::from_fn(|| exchange.poll_output()).collect()
}

fn due(exchange: &mut Exchange, now: u64) -> Vec<Output> {
    exchange.handle_timeout((now, UNIX + now / 1_000));
    outputs(exchange)
}

/// The frames to a peer, as it reads them.
fn frames(outputs: &[Output], to: u8) -> Vec<Frame> {
    let of = |output: &Output| match output {
        Output::Datagram { to: key_of, bytes } | Output::Document { to: key_of, bytes } if *key_of == key(to) => {
            Some(Frame::read(bytes).unwrap())
        }
        _ => None,
    };
    outputs.iter().filter_map(of).collect()
}

fn lists(outputs: &[Output], to: u8) -> usize {
    let is_list = |frame: &&Frame| matches!(frame, Frame::Roster(_));
    frames(outputs, to).iter().filter(is_list).count()
}

fn ping(exchange: &mut Exchange, now: u64, from: u8) -> Vec<Output> {
    ping_of(exchange, now, from, &network())
}

/// A ping of nvpn, which has no mark of weft.
fn ping_of(exchange: &mut Exchange, now: u64, from: u8, network: &NetworkId) -> Vec<Output> {
    let json = format!(
        r#"{{"v":1,"frame":{{"kind":"ping","network_id":"{}","sent_at":{UNIX}}}}}"#,
        network.as_str()
    );
    let bytes = [&control::MAGIC[..], json.as_bytes()].concat();
    exchange.handle_datagram((now, UNIX + 1), key(from), &bytes).unwrap();
    outputs(exchange)
}

/// The answer of nvpn to the ping with this time.
fn pong_of(exchange: &mut Exchange, now: u64, from: u8, sent_at: u64) -> Vec<Output> {
    let json = format!(r#"{{"v":1,"frame":{{"kind":"pong","network_id":"","sent_at":{sent_at},"replied_at":1}}}}"#);
    let bytes = [&control::MAGIC[..], json.as_bytes()].concat();
    exchange.handle_datagram((now, UNIX), key(from), &bytes).unwrap();
    outputs(exchange)
}

fn document(exchange: &mut Exchange, now: u64, from: u8, bytes: &[u8]) -> Result<Vec<Output>, ListError> {
    exchange.handle_document((now, UNIX), key(from), bytes)?;
    Ok(outputs(exchange))
}

#[test]
fn a_ping_of_a_member_is_answered_and_shows_a_device() {
    let mut exchange = with(&[5]);
    assert_eq!(exchange.seen(0, &key(5)), None);
    let all = ping(&mut exchange, 100, 5);
    assert!(all.contains(&Output::Found { device: key(5) }));
    let pong = Frame::Pong {
        network: network().as_str().to_owned(),
        sent_at: UNIX,
        replied_at: UNIX + 1,
        weft: true,
    };
    assert_eq!(frames(&all, 5), [pong]);
    let seen = |now| exchange.seen(now, &key(5)).unwrap();
    assert!(seen(100 + ONLINE - 1).is_online() && !seen(100 + ONLINE).is_online());
    let mut exchange = with(&[5]);
    assert_eq!(ping(&mut exchange, 100, 6), [], "a stranger");
}

#[test]
fn a_peer_that_never_answers_is_pinged_rarely() {
    let mut exchange = with(&[5]);
    let mut pings = Vec::new();
    let mut now = 0;
    while now < 200_000 {
        let all = due(&mut exchange, now);
        assert!(
            all.iter().all(|output| matches!(output, Output::Datagram { .. })),
            "{all:?}"
        );
        pings.extend(all.iter().map(|_| now));
        now = exchange.poll_timeout().unwrap();
    }
    assert_eq!(
        pings,
        [
            0, 5_000, 10_000, 15_000, 45_000, 75_000, 105_000, 135_000, 165_000, 195_000
        ]
    );
}

#[test]
fn a_device_gets_pings_capabilities_and_the_list_in_turn() {
    let mut exchange = with(&[5]);
    hold(&mut exchange, event(&network(), 1, UNIX, &[1, 5]));
    assert_eq!(lists(&due(&mut exchange, 0), 5), 0, "it is no device yet");
    ping(&mut exchange, 10, 5);
    let (mut pings, mut told, mut listed, mut now) = (0, 0, 0, 10);
    while now < 10 + 3 * REPEAT {
        for frame in frames(&due(&mut exchange, now), 5) {
            match frame {
                Frame::Ping { .. } => pings += 1,
                Frame::Capabilities(said) => {
                    assert_eq!(said.signed_at, UNIX + now / 1_000);
                    told += 1;
                }
                Frame::Roster(_) => listed += 1,
                other => panic!("{other:?}"),
            }
        }
        let next = exchange.poll_timeout().unwrap();
        assert!(next > now, "{next} after {now}");
        now = next;
    }
    assert_eq!((told, listed), (3, 3));
    assert!((17..=19).contains(&pings), "{pings}");
    // Another list is told at once, and so is another offer.
    hold(&mut exchange, event(&network(), 1, UNIX + 1, &[1, 5, 6]));
    assert_eq!(lists(&due(&mut exchange, now + 1), 5), 1);
    exchange.set_offer(Capabilities {
        routes: vec!["0.0.0.0/0".parse().unwrap()],
        ..Capabilities::default()
    });
    let all = frames(&due(&mut exchange, now + 2), 5);
    assert!(matches!(&all[..], [Frame::Capabilities(said)] if said.routes.len() == 1));
}

#[test]
fn the_first_capabilities_are_answered_at_once_and_age() {
    let mut exchange = with(&[5]);
    ping(&mut exchange, 10, 5);
    due(&mut exchange, 10);
    let said = |signed_at, route: &str| {
        let offered = Capabilities {
            routes: vec![route.parse().unwrap()],
            signed_at,
            ..Capabilities::default()
        };
        control::capabilities(&network(), &offered)
    };
    let all = document(&mut exchange, 20, 5, &said(7, "0.0.0.0/0")).unwrap();
    assert_eq!(all, [Output::Said { device: key(5) }]);
    assert!(matches!(
        frames(&due(&mut exchange, 20), 5)[..],
        [Frame::Capabilities(_)]
    ));
    // An older one that comes late counts nothing.
    assert_eq!(document(&mut exchange, 30, 5, &said(6, "10.9.0.0/24")), Ok(vec![]));
    let routes = |now| {
        exchange
            .seen(now, &key(5))
            .unwrap()
            .capabilities
            .map(|said| said.routes.len())
    };
    assert_eq!(
        (routes(20), routes(20 + CAPABILITIES - 1), routes(20 + CAPABILITIES)),
        (Some(1), Some(1), None)
    );
    assert_eq!(
        document(&mut exchange, 40, 6, &said(8, "0.0.0.0/0")),
        Ok(vec![]),
        "a stranger"
    );
    assert_eq!(exchange.seen(40, &key(6)), None);
}

fn seek(exchange: &mut Exchange, now: u64, device: u8, secret: Option<&str>) -> bool {
    let secret = secret.map(|text| Secret::new(text.to_owned()));
    exchange.seek(now, key(device), network(), secret)
}

#[test]
fn a_device_is_told_that_it_is_a_member_until_it_confirms() {
    let mut exchange = with(&[]);
    assert!(seek(&mut exchange, 0, 5, Some("s")));
    assert_eq!(due(&mut exchange, 0), [], "no list names it");
    let list = event(&network(), 1, UNIX, &[1, 5]);
    let id = *list.id();
    hold(&mut exchange, list.clone());
    let told = frames(&due(&mut exchange, JOIN_AGAIN), 5);
    assert!(matches!(&told[..], [Frame::JoinRoster { event, secret }] if event.is(&list) && secret.matches("s")));
    // Neither another device, nor another list, nor the ping of a network that it had before.
    assert_eq!(
        document(&mut exchange, 13_000, 6, &control::join_roster_ack(&id)),
        Ok(vec![])
    );
    assert_eq!(
        document(&mut exchange, 13_000, 5, &control::join_roster_ack(&[7; 32])),
        Ok(vec![])
    );
    assert_eq!(exchange.sought(13_000, &key(5)), Some(JOIN - 13_000));
    let joined = document(&mut exchange, 13_000, 5, &control::join_roster_ack(&id));
    assert_eq!(joined, Ok(vec![Output::Joined { device: key(5) }]));
    assert_eq!(
        (exchange.sought(13_000, &key(5)), due(&mut exchange, 60_000)),
        (None, vec![])
    );
}

#[test]
fn a_device_with_a_link_that_says_the_network_has_joined() {
    let mut exchange = with(&[5]);
    assert!(seek(&mut exchange, 0, 5, Some("s")));
    let other = NetworkId::new("ab12").unwrap();
    assert!(!ping_of(&mut exchange, 0, 5, &other).contains(&Output::Joined { device: key(5) }));
    assert!(ping(&mut exchange, 0, 5).contains(&Output::Joined { device: key(5) }));
    // One that was told by hand has had the network before.
    let mut exchange = with(&[5]);
    assert!(seek(&mut exchange, 0, 5, None));
    assert!(!ping(&mut exchange, 0, 5).contains(&Output::Joined { device: key(5) }));
    hold(&mut exchange, event(&network(), 1, UNIX, &[1, 5]));
    let token = manual_token(&network(), &key(1), &key(5));
    let is_told = |frame: &Frame| matches!(frame, Frame::JoinRoster { secret, .. } if secret.matches(&token));
    assert!(frames(&due(&mut exchange, JOIN_AGAIN), 5).iter().any(is_told));
}

#[test]
fn few_devices_are_sought_and_for_a_bounded_time() {
    let mut exchange = with(&[]);
    assert!((10..18).all(|n| seek(&mut exchange, 0, n, Some("s"))));
    assert!(!seek(&mut exchange, 0, 18, Some("s")));
    assert!(seek(&mut exchange, 0, 10, Some("another link of it")));
    hold(&mut exchange, event(&network(), 1, UNIX, &[10]));
    let mut told = 0;
    for now in (0..2 * JOIN).step_by(1_000) {
        told += frames(&due(&mut exchange, now), 10).len() as u64;
    }
    assert_eq!(told, JOIN / JOIN_AGAIN);
    assert!(seek(&mut exchange, 2 * JOIN, 18, Some("s")));
}

