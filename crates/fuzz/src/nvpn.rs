//! The fuzz target of weft-nvpn: what devices of nvpn send, and the links that they show.

use weft_noise::{Identity, PublicKey, SecretKey};
use weft_nostr::event::{Event, Unsigned};
use weft_nvpn::control::{self, Frame, MAGIC, MAX_FRAME};
use weft_nvpn::exchange::Exchange;
use weft_nvpn::join::{JoinLink, MAX_LINK, Pending, manual_token};
use weft_nvpn::network_id::NetworkId;
use weft_nvpn::secret::Secret;
use weft_nvpn::shared_roster::SharedRoster;

/// Seconds since 1970 of all inputs.
const NOW: u64 = 1_700_000_000;

/// Reads the bytes behind the first one as what that one says.
///
/// # Panics
/// If a value is written differently from what it was read from, or exceeds its bounds.
pub fn nvpn(bytes: &[u8]) {
    let Some((kind, rest)) = bytes.split_first() else {
        return;
    };
    let Ok(text) = std::str::from_utf8(rest) else { return };
    match kind % 4 {
        0 => frame(text),
        1 => roster(text),
        2 => link(text),
        _ => network(text),
    }
}

fn identity() -> Identity {
    Identity::new(SecretKey::from_bytes(&[1; 32]).unwrap())
}

fn key() -> PublicKey {
    identity().public()
}

/// Text as a control frame. What it says can be said again.
fn frame(text: &str) {
    let bytes = [&MAGIC[..], text.as_bytes()].concat();
    exchange(&bytes);
    let Ok(read) = Frame::read(&bytes) else { return };
    assert!(bytes.len() <= MAX_FRAME && control::is_control(&bytes));
    let network = NetworkId::new("ab12").unwrap();
    let again = match &read {
        Frame::Ping { sent_at, .. } => control::ping(&network, *sent_at),
        Frame::Pong {
            network,
            sent_at,
            replied_at,
            ..
        } => control::pong(network, *sent_at, *replied_at),
        Frame::JoinRosterAck { id } => control::join_roster_ack(id),
        Frame::JoinRequest { requested_at, name, .. } => control::join_request(&network, *requested_at, name),
        Frame::Capabilities(capabilities) => control::capabilities(&network, capabilities),
        Frame::Roster(event) | Frame::JoinRoster { event, .. } => return event_of(event.body().clone()),
    };
    let back = Frame::read(&again).unwrap();
    match (&read, &back) {
        // The network is another one, the mark is that of weft, and the secret of older versions is not written.
        (Frame::Ping { sent_at, .. }, Frame::Ping { sent_at: back, .. }) => assert_eq!(sent_at, back),
        (Frame::Pong { replied_at, .. }, Frame::Pong { replied_at: back, .. }) => assert_eq!(replied_at, back),
        (Frame::JoinRequest { name, .. }, Frame::JoinRequest { name: back, .. }) => assert_eq!(name, back),
        _ => assert_eq!(read, back),
    }
}

/// Bytes as what a member sends. They have at most two answers, and keep the node awake for nothing.
fn exchange(bytes: &[u8]) {
    let network = NetworkId::new("ab12").unwrap();
    let mut exchange = Exchange::new(identity().public());
    exchange.set_peers(0, &[(key(), [network].into())].into());
    let _ = exchange.handle_datagram((0, NOW), key(), bytes);
    let _ = exchange.handle_document((0, NOW), key(), bytes);
    assert!(std::iter::from_fn(|| exchange.poll_output()).count() <= 4);
    exchange.handle_timeout((0, NOW));
    assert!(exchange.poll_timeout().is_none_or(|at| at > 0));
}

/// Text as an event with a list of members, without a signature that holds.
fn roster(text: &str) {
    if let Ok(event) = weft_nostr::event::Unverified::read(text.as_bytes()) {
        event_of(event.body().clone());
    }
}

/// What an event says if an administrator signs it.
fn event_of(body: Unsigned) {
    let Ok(event) = Event::sign(&identity(), body) else {
        return;
    };
    let Ok(list) = SharedRoster::read(&event) else { return };
    // No list replaces itself, and the one that replaces it is newer.
    assert!(list.supersedes(&list, NOW).is_err());
    let newer = SharedRoster {
        signed_at: list.signed_at.saturating_add(1),
        ..list.clone()
    };
    let replaces = newer.supersedes(&list, newer.signed_at);
    assert_eq!(replaces.is_ok(), list.admins.contains(&key()));
    let pending = Pending {
        device: key(),
        secret: Secret::new("s".to_owned()),
        admin: None,
        network: None,
        requested_at: 0,
    };
    let joins = pending.accepts(&list, &Secret::new("s".to_owned()), list.signed_at);
    assert_eq!(joins.is_ok(), list.admins.contains(&key()));
    let bytes = control::roster(&list, &event);
    if bytes.len() <= MAX_FRAME
        && let Ok(Frame::Roster(back)) = Frame::read(&bytes)
    {
        assert_eq!(back.verify(), Ok(event));
    }
}

/// Reads text as a link. A link that was read has the same meaning once it is written again.
fn link(text: &str) {
    let Ok(link) = JoinLink::read(text) else { return };
    assert!(text.trim().len() <= MAX_LINK);
    let again = link.to_text();
    assert!(again.len() > MAX_LINK || JoinLink::read(&again) == Ok(link));
}

/// Text as the identifier of a network.
fn network(text: &str) {
    if let Some(id) = NetworkId::new(text) {
        assert!(!id.as_str().is_empty());
        let _ = manual_token(&id, &key(), &key());
    }
}
