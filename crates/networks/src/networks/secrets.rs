//! The secret of each network, and where secrets come from.

use rand_core::Rng as _;

use super::Networks;
use crate::Network;

impl Networks {
    /// The secrets of the networks that this node is a member of, each with its network.
    pub fn secrets(&self) -> impl Iterator<Item = (&Network, &[u8; 32])> {
        let joined = self.all.values().filter(|network| network.is_member(&self.own));
        joined.filter_map(|network| Some((network, &network.state().secret.as_ref()?.bytes)))
    }
}

/// Where secrets come from.
pub(super) struct SecretRng(pub(super) Box<dyn rand_core::CryptoRng + Send>);

impl SecretRng {
    pub(super) fn random_bytes(&mut self) -> [u8; 32] {
        let mut bytes = [0; 32];
        self.0.fill_bytes(&mut bytes);
        bytes
    }
}
