//! The membership event of nvpn, made from a state.
//!
//! nvpn's devices read the members of a network from one event of kind 30388 (`SharedRoster` of
//! nostr-vpn-core). It is an output: between weft nodes the records decide, and nothing here is
//! read back.

use data_encoding::HEXLOWER;
use thiserror::Error;
use weft_noise::{Identity, PublicKey};

use crate::admins::Rank;
use crate::event::{Event, EventError, Unsigned};
use crate::state::State;

/// The kind of nvpn's membership events.
pub const KIND: u16 = 30388;

/// The value of the tag `v`.
pub const VERSION: &str = "1";

/// The value of the tag `app`.
pub const APP: &str = "nostr-vpn/shared-roster";

/// The name of the tag that marks events of weft, which follow from records: others say what a user of nvpn
/// has changed. nvpn passes over it.
pub const MARK: &str = "weft";

/// The reason why there is no membership event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum MembershipError {
    /// The signer is no administrator, so no device would accept the event.
    #[error("only an administrator can sign the membership event")]
    NotAdmin,
    /// The event cannot be made.
    #[error(transparent)]
    Event(#[from] EventError),
}

/// Returns the administrator that signs membership events: the most senior one of those that are
/// up, of several the one with the lowest key.
#[must_use]
pub fn signer(state: &State, is_up: impl Fn(&PublicKey) -> bool) -> Option<PublicKey> {
    let admins = state.admins.of.iter().filter(|(key, _)| is_up(key));
    let place = |(key, admin): (&PublicKey, &crate::admins::Admin)| -> (Rank, PublicKey) { (admin.rank, *key) };
    admins.map(place).min().map(|(_, key)| key)
}

/// Signs the membership event of a network.
///
/// `now` is in seconds since 1970. The time of the event is its version for nvpn, so it is at least
/// one more than that of the one before, `last`.
///
/// # Errors
/// [`MembershipError`].
pub fn event(state: &State, signer: &Identity, now: u64, last: Option<u64>) -> Result<Event, MembershipError> {
    if state.admins.rank(&signer.public()).is_none() {
        return Err(MembershipError::NotAdmin);
    }
    let body = Unsigned {
        created_at: last.map_or(now, |last| now.max(last.saturating_add(1))),
        kind: KIND,
        tags: tags(state),
        content: String::new(),
    };
    Ok(Event::sign(signer, body)?)
}

/// Returns whether these are tags of an event of weft.
#[must_use]
pub fn is_of_weft(tags: &[Vec<String>]) -> bool {
    tags.iter().any(|tag| tag.first().is_some_and(|name| name == MARK))
}

/// Returns whether the tags of two membership events say the same, apart from the mark.
#[must_use]
pub fn is_same(one: &[Vec<String>], other: &[Vec<String>]) -> bool {
    let said = |tags: &[Vec<String>]| -> Vec<Vec<String>> {
        let mut said: Vec<_> = tags
            .iter()
            .filter(|tag| tag.first().is_some_and(|name| name != MARK))
            .cloned()
            .collect();
        said.sort_unstable();
        said
    };
    said(one) == said(other)
}

/// Returns the tags of the membership event of a network: all that it says about members.
#[must_use]
pub fn tags(state: &State) -> Vec<Vec<String>> {
    let tag = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
    let hex = |key: &PublicKey| HEXLOWER.encode(key.as_bytes());
    let mut tags = vec![
        tag(&["d", &state.network.to_string()]),
        tag(&["app", APP]),
        tag(&["v", VERSION]),
    ];
    tags.push(tag(&[MARK, VERSION]));
    tags.extend(state.name.iter().map(|name| tag(&["name", name.as_str()])));
    // The keys of the maps are in the order of their digits, as nvpn sorts them.
    tags.extend(state.members.keys().map(|key| tag(&["member", &hex(key)])));
    tags.extend(state.admins.of.keys().map(|key| tag(&["admin", &hex(key)])));
    tags.extend(
        state
            .names
            .iter()
            .map(|(key, name)| tag(&["alias", &hex(key), name.as_str()])),
    );
    tags
}
