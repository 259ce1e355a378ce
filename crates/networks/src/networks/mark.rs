//! Whether what is told of the networks is what it was: at a cost that does not grow with their members.

use weft_noise::PublicKey;
use weft_roster::network_id::NetworkId;

use super::{Asked, Networks};
use crate::document::{Refusal, Verdict};

/// A value that is another one once something else is to be told of the networks of a node. It also changes with
/// what is kept and not told, as the secret of a network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mark {
    generation: u64,
    networks: Vec<OfNetwork>,
    asked: Vec<(PublicKey, Option<Verdict>, Option<NetworkId>)>,
}

/// What the revision of a network says, and what changes without one.
#[derive(Debug, Clone, PartialEq, Eq)]
struct OfNetwork {
    id: NetworkId,
    revision: u64,
    is_unsaved: bool,
    is_leaving: bool,
    refusal: Option<Refusal>,
    /// Open invites: they end with time.
    invites: usize,
}

impl Networks {
    /// The mark at `unix`, in seconds since 1970.
    #[must_use]
    pub fn mark(&self, unix: u64) -> Mark {
        let networks = self.all.values().map(|network| OfNetwork {
            id: network.id(),
            revision: network.revision(),
            is_unsaved: network.is_unsaved(),
            is_leaving: network.is_leaving(),
            refusal: network.joining().and_then(|joining| joining.refusal),
            invites: network.open_invites(unix).count(),
        });
        let asked = self.asked.iter();
        Mark {
            generation: self.generation,
            networks: networks.collect(),
            asked: asked
                .map(|(admin, asked)| (*admin, asked.verdict, asked.network))
                .collect(),
        }
    }

    /// Whether answers of others are awaited, which change no member: to a request to join, or for membership.
    #[must_use]
    pub fn awaits_answers(&self) -> bool {
        let mut networks = self.all.values();
        networks.any(|network| network.joining().is_some()) || self.asked.values().any(Asked::is_open)
    }
}
