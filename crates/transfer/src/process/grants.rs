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

    #[test]
    fn data_connections_come_after_what_they_are_for() {
        let (grants, token) = (Grants::default(), [7; 16]);
        let [from, other] = [1, 2].map(|last| Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, last));
        let grant = Grant {
            purpose: TransferPurpose::Service,
            npub: "npub1x".to_owned(),
            name: "nas".to_owned(),
            address: from,
            networks: Vec::new(),
            tags: Vec::new(),
        };
        grants.add(token, grant, Instant::now());
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
