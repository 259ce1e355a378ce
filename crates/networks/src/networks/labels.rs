//! The names by which this node tells its networks apart: the name of a network, or with a number
//! behind it if another network has that name.

use std::collections::BTreeSet;

use weft_roster::names::Name;
use weft_roster::network_id::NetworkId;

use super::{MAX_NETWORKS, Networks};
use crate::Network;

impl Networks {
    /// All networks, in the order in which this node came into them.
    pub fn in_order(&self) -> impl Iterator<Item = &Network> {
        let mut all: Vec<&Network> = self.all.values().collect();
        all.sort_by_key(|network| (network.place(), network.id()));
        all.into_iter()
    }

    /// Gives each network whose name is known a label of its own. A label stays while it fits the
    /// name: no administrator of another network can take it over.
    pub(super) fn label_networks(&mut self) {
        let order: Vec<NetworkId> = self.in_order().map(Network::id).collect();
        let mut earlier: BTreeSet<Name> = BTreeSet::new();
        for id in order {
            let others = self.all.values().filter(|network| network.id() != id);
            let taken: BTreeSet<Name> = others.filter_map(Network::label).cloned().collect();
            let Some(network) = self.all.get_mut(&id) else { continue };
            let Some(name) = network.name().cloned() else { continue };
            let of_name = |label: &Name| candidates(&name).any(|candidate| candidate == *label);
            // Two that were kept with one label come from different keys.
            let fits = |label: &Name| of_name(label) && !earlier.contains(label);
            if !network.label().is_some_and(fits) {
                let label = candidates(&name).find(|candidate| !taken.contains(candidate));
                network.set_label(label);
            }
            earlier.extend(network.label().cloned());
        }
    }

    /// The place behind all networks.
    pub(super) fn next_place(&self) -> u32 {
        let places = self.all.values().map(Network::place);
        places.max().map_or(1, |last| last.saturating_add(1))
    }
}

/// The labels of a name, as many as there may be networks: `home`, `home-2`, `home-3`.
fn candidates(name: &Name) -> impl Iterator<Item = Name> {
    std::iter::once(name.clone()).chain(name.numbers()).take(MAX_NETWORKS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_has_a_label_for_each_network() {
        for text in [
            "a".to_owned(),
            "home".to_owned(),
            "x".repeat(63),
            format!("{}-z", "x".repeat(59)),
        ] {
            let labels: BTreeSet<Name> = candidates(&Name::network(&text).unwrap()).collect();
            assert_eq!(labels.len(), MAX_NETWORKS, "{text}");
        }
    }
}
