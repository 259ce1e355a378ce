//! The relays at which a node waits for messages (kind 10050, NIP-17).
//!
//! A list has tags `["relay", url]`, as NIP-17 says. FIPS publishes tags `["r", url]` and reads
//! `["relay", url]`, so both are published here, and both are read.

use weft_noise::Identity;

use crate::advert::{MAX_TEXT, MAX_URLS};
use crate::event::{Event, EventError, Unsigned};

/// The kind.
pub const KIND: u16 = 10_050;
/// The tags with an URL, in the order in which they are published.
const NAMES: [&str; 2] = ["relay", "r"];

/// Signs the list of a node's relays, the first [`MAX_URLS`] of them. `now` is in seconds since 1970.
///
/// # Errors
/// [`EventError::Control`] if an URL has control characters.
pub fn sign(signer: &Identity, relays: &[String], now: u64) -> Result<Event, EventError> {
    let tag = |name: &str, url: &String| vec![name.to_owned(), url.clone()];
    let relays = &relays[..relays.len().min(MAX_URLS)];
    let body = Unsigned {
        created_at: now,
        kind: KIND,
        tags: NAMES
            .iter()
            .flat_map(|name| relays.iter().map(|url| tag(name, url)))
            .collect(),
        content: String::new(),
    };
    Event::sign(signer, body)
}

/// The relays of a list, in their order, at most [`MAX_URLS`]; none for another kind.
#[must_use]
pub fn read(body: &Unsigned) -> Vec<String> {
    let mut relays: Vec<String> = Vec::new();
    for tag in body.tags.iter().filter(|_| body.kind == KIND) {
        let [name, url, ..] = &tag[..] else { continue };
        let known = NAMES.contains(&name.as_str()) && url.chars().count() <= MAX_TEXT;
        if known && relays.len() < MAX_URLS && !relays.contains(url) {
            relays.push(url.clone());
        }
    }
    relays
}

#[cfg(test)]
mod tests {
    use weft_noise::SecretKey;

    use super::*;

    fn urls(range: std::ops::Range<usize>) -> Vec<String> {
        range.map(|n| format!("wss://{n}.example")).collect()
    }

    #[test]
    fn both_tags_are_published_and_read() {
        let identity = Identity::new(SecretKey::from_bytes(&[1; 32]).unwrap());
        let body = sign(&identity, &urls(0..2), 5).unwrap().body().clone();
        let tags = [
            ["relay", "wss://0.example"],
            ["relay", "wss://1.example"],
            ["r", "wss://0.example"],
            ["r", "wss://1.example"],
        ];
        assert_eq!(body.tags, tags.map(|tag| tag.map(str::to_owned).to_vec()));
        assert_eq!(read(&body), urls(0..2));
        for half in [0..2, 2..4] {
            let tags = body.tags[half].to_vec();
            assert_eq!(read(&Unsigned { tags, ..body.clone() }), urls(0..2));
        }
        assert_eq!(read(&Unsigned { kind: 10_002, ..body }), urls(0..0));
    }

    #[test]
    fn lists_are_bounded() {
        let identity = Identity::new(SecretKey::from_bytes(&[1; 32]).unwrap());
        let mut body = sign(&identity, &urls(0..20), 5).unwrap().body().clone();
        assert_eq!(body.tags.len(), 2 * MAX_URLS);
        body.tags
            .extend(urls(20..40).into_iter().map(|url| vec!["relay".into(), url]));
        body.tags.insert(0, vec!["relay".into(), "x".repeat(MAX_TEXT + 1)]);
        body.tags.insert(0, vec!["relay".into()]);
        body.tags.insert(0, Vec::new());
        assert_eq!(read(&body), urls(0..MAX_URLS));
    }
}
