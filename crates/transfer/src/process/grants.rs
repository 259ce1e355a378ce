//! Tokens of connections that may come, and the transfers that they belong to.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::net::{Ipv6Addr, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use weft_control::TransferPurpose;

use crate::receive::Session;
use crate::serve::{self, User};

/// How long a token waits for its first connection.
const UNUSED: Duration = Duration::from_secs(60);
/// The most tokens of one peer that wait: the newest.
const OF_PEER: usize = 32;
/// The most tokens that wait.
const MAX_WAITING: usize = 256;

/// Who may connect, and for what.
#[derive(Clone, Debug)]
pub(super) struct Grant {
    pub(super) purpose: TransferPurpose,
    pub(super) npub: String,
    pub(super) name: String,
    pub(super) address: Ipv6Addr,
    pub(super) networks: Vec<String>,
    pub(super) tags: Vec<String>,
}

/// Takes the data connections of a token.
pub(super) trait Bulk: Send + Sync + Debug {
    /// Serves a connection until its end.
    fn take(&self, stream: &Arc<TcpStream>);

    /// Takes a control connection that the other end has opened because none could come there.
    fn take_control(&self, _stream: &Arc<TcpStream>) {}
}

impl Bulk for Session {
    fn take(&self, stream: &Arc<TcpStream>) {
        self.serve_data(stream);
    }
}

impl Bulk for serve::Session {
    fn take(&self, stream: &Arc<TcpStream>) {
        Self::take(self, stream);
    }
}

impl From<&Grant> for User {
    fn from(grant: &Grant) -> Self {
        Self {
            address: grant.address.into(),
            npub: grant.npub.clone(),
            networks: grant.networks.clone(),
            tags: grant.tags.clone(),
        }
    }
}

/// What a token stands for.
#[derive(Debug)]
enum Held {
    /// Its first connection has not come.
    Waiting(Grant, Instant),
    /// Its control connection is there; a transfer may wait for consent.
    Taken(Ipv6Addr),
    /// Its data connections have someone who takes them.
    Open(Ipv6Addr, Arc<dyn Bulk>),
}

/// All tokens.
#[derive(Debug, Default)]
pub(super) struct Grants(Mutex<BTreeMap<[u8; 16], Held>>);

impl Grants {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<[u8; 16], Held>> {
        // No code panics while it holds the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a token that the daemon has granted.
    pub(super) fn add(&self, token: [u8; 16], grant: Grant, now: Instant) {
        let mut held = self.lock();
        held.retain(|_, held| !matches!(held, Held::Waiting(_, since) if now > *since + UNUSED));
        let own: Vec<_> = held
            .iter()
            .filter_map(|(token, one)| match one {
                Held::Waiting(of, since) if of.npub == grant.npub => Some((*since, *token)),
                _ => None,
            })
            .collect();
        if own.len() >= OF_PEER
            && let Some((_, oldest)) = own.into_iter().min()
        {
            held.remove(&oldest);
        }
        let waiting = held.values().filter(|held| matches!(held, Held::Waiting(..)));
        if waiting.count() < MAX_WAITING {
            held.entry(token).or_insert(Held::Waiting(grant, now));
        }
    }

    /// Takes a token for its control connection, which it serves once.
    pub(super) fn take(&self, token: &[u8; 16], from: Ipv6Addr) -> Option<Grant> {
        let mut held = self.lock();
        match held.remove(token)? {
            Held::Waiting(grant, _) if grant.address == from => {
                held.insert(*token, Held::Taken(from));
                Some(grant)
            }
            other => {
                held.insert(*token, other);
                None
            }
        }
    }

    /// Notes who takes the data connections of a token.
    pub(super) fn begin(&self, token: [u8; 16], from: Ipv6Addr, bulk: Arc<dyn Bulk>) {
        self.lock().insert(token, Held::Open(from, bulk));
    }

    /// Returns who takes a data connection.
    pub(super) fn bulk(&self, token: &[u8; 16], from: Ipv6Addr) -> Option<Arc<dyn Bulk>> {
        match self.lock().get(token)? {
            Held::Open(address, bulk) if *address == from => Some(Arc::clone(bulk)),
            _ => None,
        }
    }

    /// Whether no connection has come with a token.
    pub(super) fn is_unused(&self, token: &[u8; 16]) -> bool {
        matches!(self.lock().get(token), Some(Held::Waiting(..)))
    }

    /// Whether connections of a peer are awaited.
    pub(super) fn expects(&self, from: Ipv6Addr) -> bool {
        self.lock().values().any(|held| match held {
            Held::Waiting(grant, _) => grant.address == from,
            Held::Taken(address) | Held::Open(address, _) => *address == from,
        })
    }

    /// Whether a connection may begin so.
    pub(super) fn knows(&self, token: &[u8; 16]) -> bool {
        self.lock().contains_key(token)
    }

    /// Forgets a token.
    pub(super) fn end(&self, token: &[u8; 16]) {
        self.lock().remove(token);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct None;

    impl Bulk for None {
        fn take(&self, _: &Arc<TcpStream>) {}
    }

    fn grant(npub: &str, address: Ipv6Addr) -> Grant {
        Grant {
            purpose: TransferPurpose::Service,
            npub: npub.to_owned(),
            name: "nas".to_owned(),
            address,
            networks: Vec::new(),
            tags: Vec::new(),
        }
    }

    #[test]
    fn one_peer_keeps_no_token_of_another_away() {
        let (grants, now) = (Grants::default(), Instant::now());
        let token = |peer: u8, number: usize| std::array::from_fn(|at| [peer, number as u8][at % 2]);
        grants.add(token(1, 0), grant("npub1", Ipv6Addr::LOCALHOST), now);
        for number in 0..250 {
            let at = now + Duration::from_millis(number as u64);
            grants.add(token(2, number), grant("npub2", Ipv6Addr::LOCALHOST), at);
        }
        let of_peer = (0..250).filter(|number| grants.knows(&token(2, *number)));
        assert_eq!(
            of_peer.collect::<Vec<_>>(),
            (218..250).collect::<Vec<_>>(),
            "the newest"
        );
        assert!(grants.knows(&token(1, 0)));
    }

    #[test]
    fn data_connections_come_after_what_they_are_for() {
        let (grants, token) = (Grants::default(), [7; 16]);
        let [from, other] = [1, 2].map(|last| Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, last));
        grants.add(token, grant("npub1x", from), Instant::now());
        assert!(grants.bulk(&token, from).is_none(), "nothing was asked for");
        assert!(grants.take(&token, other).is_none());
        assert!(grants.take(&token, from).is_some());
        assert!(grants.take(&token, from).is_none(), "it is asked for once");
        assert!(grants.bulk(&token, from).is_none(), "it is not granted yet");
        grants.begin(token, from, Arc::new(None));
        assert!(grants.bulk(&token, from).is_some());
        assert!(grants.bulk(&token, other).is_none());
        grants.end(&token);
        assert!(grants.bulk(&token, from).is_none() && !grants.knows(&token));
    }
}
