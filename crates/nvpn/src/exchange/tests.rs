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

mod edits;
mod foreign;

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
    let network = list.network.clone();
    let held = Held {
        event,
        list,
        until: 0,
        insists: false,
        revision: None,
        foreign: false,
    };
    exchange.lists.insert(network, held);
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

#[test]
fn a_removed_device_gets_the_list_that_shows_it() {
    let mut exchange = with(&[5, 6]);
    ping(&mut exchange, 0, 5);
    ping(&mut exchange, 0, 6);
    hold(&mut exchange, event(&network(), 1, UNIX, &[1, 5, 6]));
    due(&mut exchange, 0);
    set_peers(&mut exchange, 1_000, &[6]);
    assert_eq!(
        lists(&due(&mut exchange, 1_000), 5),
        0,
        "the list that names it is no news"
    );
    assert_eq!(exchange.leaving().collect::<Vec<_>>(), [&network()]);
    hold(&mut exchange, event(&network(), 1, UNIX + 1, &[1, 6]));
    assert_eq!(lists(&due(&mut exchange, 1_500), 5), 1);
    assert_eq!(lists(&due(&mut exchange, 1_500 + JOIN_AGAIN), 5), 1);
    set_peers(&mut exchange, 1_000 + LEAVE, &[6]);
    assert_eq!(lists(&due(&mut exchange, 1_000 + LEAVE), 5), 0);
    // A device whose session has ended was not removed.
    set_peers(&mut exchange, 70_000, &[]);
    assert_eq!(lists(&due(&mut exchange, 70_000), 6), 0);
}

fn roster(event: &Event) -> Vec<u8> {
    control::roster(&SharedRoster::read(event).unwrap(), event)
}

#[test]
fn a_list_of_a_device_counts_by_its_signer_and_time() {
    let held = event(&network(), 1, UNIX, &[1, 5]);
    let verdict = |bytes: &[u8]| {
        let mut exchange = with(&[5]);
        hold(&mut exchange, held.clone());
        let outcome = document(&mut exchange, 0, 5, bytes);
        let at = exchange.held(&network()).unwrap().list.signed_at;
        (outcome.map(|all| all.len()), at - UNIX)
    };
    // The list that is held, again; then one of the other administrator that says something else.
    assert_eq!(verdict(&roster(&held)), (Ok(1), 0));
    assert_eq!(
        verdict(&roster(&event(&network(), 2, UNIX + 9, &[1, 5, 7]))),
        (Ok(2), 9)
    );
    assert_eq!(verdict(&roster(&event(&network(), 2, UNIX, &[1, 5, 7]))), (Ok(2), 0));
    let refused = |event: Event| verdict(&roster(&event)).0;
    let refusal = |refusal| Err(ListError::Refused(refusal));
    assert_eq!(
        refused(event(&network(), 5, UNIX + 9, &[1, 5])),
        refusal(Refusal::Signer)
    );
    assert_eq!(
        refused(event(&network(), 2, UNIX - 1, &[1, 5, 7])),
        refusal(Refusal::Old)
    );
    assert_eq!(refused(event(&network(), 2, UNIX, &[1, 5])), refusal(Refusal::Old));
    assert_eq!(
        refused(event(&network(), 2, UNIX + 601, &[1, 5])),
        refusal(Refusal::Future)
    );
    let other = NetworkId::new("ab12").unwrap();
    assert_eq!(refused(event(&other, 2, UNIX + 9, &[1, 5])), refusal(Refusal::Network));
    let forged = String::from_utf8(roster(&event(&network(), 2, UNIX + 9, &[1, 5, 7])))
        .unwrap()
        .replace("\"sig\":\"", "\"sig\":\"00")
        .into_bytes();
    assert!(verdict(&forged).0.is_err());
    let mut long = control::MAGIC.to_vec();
    long.resize(MAX_FRAME + 1, b' ');
    assert!(matches!(
        verdict(&long).0,
        Err(ListError::Frame(FrameError::OverLimit(_)))
    ));
}

#[test]
fn few_signatures_of_a_device_are_verified() {
    let mut exchange = with(&[5, 6]);
    hold(&mut exchange, event(&network(), 1, UNIX, &[1, 5]));
    let list = |at| roster(&event(&network(), 2, UNIX + at, &[1, 5, 7]));
    assert!(document(&mut exchange, 0, 5, &list(1)).is_ok());
    assert_eq!(
        document(&mut exchange, VERIFY - 1, 5, &list(2)),
        Err(ListError::TooOften)
    );
    assert!(
        document(&mut exchange, VERIFY - 1, 6, &list(3)).is_ok(),
        "another device"
    );
    assert!(document(&mut exchange, VERIFY, 5, &list(4)).is_ok());
}

/// The revision of records with as many members.
fn revision_of(state: &State) -> u64 {
    state.members.len() as u64
}

/// The state of a network that node 1 has founded, with these further members, and what nvpn calls it.
fn state(members: &[u8]) -> (NetworkId, State) {
    let nonce = [9; 16];
    let id = weft_roster::network_id::NetworkId::new(&key(1), &nonce);
    let mut set = RecordSet::new(id);
    let mut add = |of: RecordKey, body: &Body| {
        let record = Draft::new(id, of, 1, body).sign(&identity(1), 0).unwrap();
        set.insert(&Arc::new(record));
    };
    let founding = Network {
        name: None,
        inside: Policy::Allow,
        founder: Some(nonce),
        successor: None,
    };
    add(RecordKey::Network, &Body::Network(founding));
    for n in members {
        add(RecordKey::Member(key(*n)), &Body::Member(Member::default()));
    }
    (NetworkId::new(&id.to_string()).unwrap(), State::of(&set))
}

#[test]
fn a_list_is_signed_when_the_records_say_something_else() {
    let mut exchange = with(&[]);
    let (network, first) = state(&[5]);
    let sign = |exchange: &mut Exchange, state: &State, unix| {
        exchange.sign(&network, (state, revision_of(state)), &identity(1), (0, unix))
    };
    let at = |exchange: &Exchange| exchange.held(&network).map(|held| held.list.signed_at);
    assert_eq!(sign(&mut exchange, &first, UNIX), Ok(true));
    assert_eq!(sign(&mut exchange, &first, UNIX + 9), Ok(false));
    assert_eq!(at(&exchange), Some(UNIX));
    let (_, second) = state(&[5, 6]);
    // Within one second, and after the clock was set back, the time is still later.
    assert_eq!(sign(&mut exchange, &second, UNIX - 50), Ok(true));
    assert_eq!(at(&exchange), Some(UNIX + 1));
    assert!(exchange.held(&network).is_some_and(|held| held.list.names(&key(6))));
    let other = exchange.sign(&network, (&first, 1), &identity(2), (0, UNIX));
    assert_eq!(other, Err(MembershipError::NotAdmin));
}

/// A list of a rival far ahead would lead the time of ours ahead, step by step.
#[test]
fn no_list_is_signed_far_ahead_of_the_clock() {
    let mut exchange = with(&[]);
    let (network, state) = state(&[5]);
    hold(&mut exchange, event(&network, 1, UNIX + 300, &[1]));
    assert_eq!(exchange.sign(&network, (&state, 1), &identity(1), (0, UNIX)), Ok(false));
    assert_eq!(
        exchange.sign(&network, (&state, 1), &identity(1), (0, UNIX + 1)),
        Ok(true)
    );
    assert_eq!(
        exchange.held(&network).map(|held| held.list.signed_at),
        Some(UNIX + 301)
    );
}

/// Two nodes of weft without fast frames have such sessions with each other.
#[test]
fn a_node_of_weft_is_no_device() {
    let mut exchange = with(&[5]);
    let marked = control::ping(&network(), UNIX);
    for bytes in [marked.clone(), control::pong(network().as_str(), UNIX, UNIX)] {
        exchange.handle_datagram((0, UNIX), key(5), &bytes).unwrap();
        assert_eq!(outputs(&mut exchange), [], "not even an answer");
    }
    assert_eq!((exchange.seen(0, &key(5)), due(&mut exchange, 60_000)), (None, vec![]));
    // Its key moves to a device, and back.
    assert!(ping(&mut exchange, 61_000, 5).contains(&Output::Found { device: key(5) }));
    exchange.handle_datagram((62_000, UNIX), key(5), &marked).unwrap();
    assert_eq!(exchange.seen(62_000, &key(5)), None);
}

#[test]
fn a_client_gets_the_answer_to_its_own_ping() {
    let mut exchange = with(&[5]);
    ping(&mut exchange, 0, 5);
    exchange.ping((1, UNIX), &key(5));
    let asked = outputs(&mut exchange);
    let frames = frames(&asked, 5);
    let [Frame::Ping { sent_at, .. }] = frames[..] else {
        panic!("{frames:?}")
    };
    assert_eq!(pong_of(&mut exchange, 2, 5, sent_at - 1), []);
    assert_eq!(
        pong_of(&mut exchange, 2, 5, sent_at),
        [Output::Answered { device: key(5) }]
    );
    assert_eq!(pong_of(&mut exchange, 2, 5, sent_at), []);
}

/// A device is in one network at a time, whichever this node has it in.
#[test]
fn a_device_is_told_of_the_network_that_it_names() {
    let other = NetworkId::new("ab12").unwrap();
    let mut exchange = with(&[]);
    let both = BTreeSet::from([network(), other.clone()]);
    exchange.set_peers(0, &BTreeMap::from([(key(5), both)]));
    hold(&mut exchange, event(&network(), 1, UNIX, &[1, 5]));
    ping_of(&mut exchange, 0, 5, &other);
    assert_eq!(lists(&due(&mut exchange, 0), 5), 0, "there is none of that network");
    hold(&mut exchange, event(&other, 1, UNIX, &[1, 5]));
    assert_eq!(lists(&due(&mut exchange, 1), 5), 1);
    ping_of(&mut exchange, 2, 5, &network());
    assert_eq!(lists(&due(&mut exchange, 2), 5), 1);
    ping_of(&mut exchange, 2, 5, &NetworkId::new("cd34").unwrap());
    assert_eq!(lists(&due(&mut exchange, 3), 5), 0, "a network that is not of both");
    // It is removed from the one that it has, and stays in the other one.
    set_peers(&mut exchange, 3, &[]);
    exchange.set_peers(3, &BTreeMap::from([(key(5), BTreeSet::from([other.clone()]))]));
    hold(&mut exchange, event(&network(), 1, UNIX + 1, &[1]));
    assert_eq!(lists(&due(&mut exchange, 4), 5), 1, "the list that shows it");
}

#[test]
fn joins_and_lists_end_with_their_network() {
    let mut exchange = with(&[]);
    assert!(seek(&mut exchange, 0, 5, Some("s")) && seek(&mut exchange, 0, 6, Some("s")));
    hold(&mut exchange, event(&network(), 1, UNIX, &[1, 5, 6]));
    let all = BTreeSet::from([network()]);
    exchange.retain(&all, |_, member| *member == key(5));
    assert_eq!([5, 6].map(|n| exchange.sought(0, &key(n)).is_some()), [true, false]);
    exchange.retain(&BTreeSet::new(), |_, _| true);
    assert!(exchange.sought(0, &key(5)).is_none() && exchange.held(&network()).is_none());
    assert_eq!(exchange.poll_timeout(), None);
}

/// Devices that had it while its signer was an administrator take later ones alone.
#[test]
fn a_list_of_a_former_administrator_is_overtaken_once() {
    let (network, state) = state(&[5]);
    let mut exchange = with(&[]);
    exchange.set_peers(0, &BTreeMap::from([(key(5), BTreeSet::from([network.clone()]))]));
    let sign = |exchange: &mut Exchange, now| exchange.sign(&network, (&state, 1), &identity(1), (now, UNIX));
    assert_eq!(sign(&mut exchange, 0), Ok(true));
    let refused =
        |exchange: &mut Exchange, now, at| document(exchange, now, 5, &roster(&event(&network, 9, UNIX + at, &[5])));
    assert!(refused(&mut exchange, 0, 200).is_err());
    assert_eq!(sign(&mut exchange, 1), Ok(true));
    assert_eq!(exchange.held(&network).unwrap().list.signed_at, UNIX + 201);
    assert_eq!(sign(&mut exchange, 2), Ok(false));
    // Again and again: not more often than each ten seconds, and never far ahead of the clock.
    assert!(refused(&mut exchange, VERIFY, 250).is_err());
    assert_eq!(
        (sign(&mut exchange, RIVAL), sign(&mut exchange, RIVAL + 1)),
        (Ok(false), Ok(true))
    );
    assert!(refused(&mut exchange, 2 * RIVAL, 599).is_err());
    assert_eq!(sign(&mut exchange, 3 * RIVAL), Ok(false));
}

#[test]
fn documents_have_a_budget_and_those_of_others_are_short() {
    let mut exchange = with(&[5]);
    let ack = control::join_roster_ack(&[7; 32]);
    let read = |exchange: &mut Exchange, now| (0..30).filter(|_| document(exchange, now, 5, &ack).is_ok()).count();
    assert_eq!(
        (
            read(&mut exchange, 0),
            read(&mut exchange, 9_999),
            read(&mut exchange, 10_000)
        ),
        (10, 9, 1)
    );
    let mut long = ack.clone();
    long.resize(MAX_OF_OTHERS + 1, b' ');
    assert_eq!(document(&mut exchange, 0, 6, &long), Err(ListError::TooOften));
    assert_eq!(document(&mut exchange, 0, 6, &ack), Ok(vec![]));
}

proptest! {
    /// A time that is over would keep the daemon awake.
    #[test]
    fn the_next_time_is_never_over(steps in prop::collection::vec((0_u8..9, 0_u64..70_000), 1..60)) {
        let other = NetworkId::new("ab12").unwrap();
        let mut exchange = with(&[5]);
        let mut now = 0;
        for (step, wait) in steps {
            now += wait;
            match step {
                0 => set_peers(&mut exchange, now, &[]),
                1 => set_peers(&mut exchange, now, &[5, 6]),
                2 => exchange.set_peers(now, &BTreeMap::from([(key(5), BTreeSet::from([other.clone()]))])),
                3 => drop(ping(&mut exchange, now, 5)),
                4 => hold(&mut exchange, event(&network(), 1, UNIX + now, &[1, 5])),
                5 => hold(&mut exchange, event(&network(), 1, UNIX + now, &[1])),
                6 => drop(seek(&mut exchange, now, 5, Some("s"))),
                7 => exchange.put_off(now, &key(5)),
                _ => exchange.ping((now, UNIX), &key(5)),
            }
            due(&mut exchange, now);
            prop_assert!(exchange.poll_timeout().is_none_or(|at| at > now), "{step} at {now}");
        }
    }

    #[test]
    fn no_document_and_no_frame_of_a_peer_is_answered_twice(bytes in prop::collection::vec(any::<u8>(), 0..300), json in ".{0,200}") {
        let mut exchange = with(&[5]);
        hold(&mut exchange, event(&network(), 1, UNIX, &[1, 5]));
        for bytes in [bytes.clone(), [&control::MAGIC[..], &bytes].concat(), [&control::MAGIC[..], json.as_bytes()].concat()] {
            let _ = exchange.handle_datagram((0, UNIX), key(5), &bytes);
            let _ = exchange.handle_document((0, UNIX), key(5), &bytes);
            prop_assert!(outputs(&mut exchange).len() <= 2);
        }
    }
}
