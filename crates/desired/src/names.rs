//! The names that this node answers for.

use std::collections::BTreeMap;

use weft_host::dns::Zone;
use weft_host::dns::zone::MemberAddresses;
use weft_networks::{Networks, used_ipv4};

use crate::members::Members;

/// Returns the names of these members, and those of the members and guests of networks.
#[must_use]
pub fn zone(members: &Members, networks: &Networks) -> Zone {
    // Those of networks are chosen by their administrators and newcomers.
    let mut zone = Zone::new(members.names_by_hand());
    let own = networks.own();
    let owners = networks.owners();
    let guests = networks.used_guests().into_iter();
    let guests: BTreeMap<_, _> = guests.map(|of| ((of.network.id(), of.key), of.ipv4)).collect();
    for network in networks.in_order().filter(|network| network.is_member(own)) {
        let Some(of) = network.label() else { continue };
        zone.add_network(of.as_str());
        for (key, name) in &network.state().guest_names {
            let addresses = MemberAddresses {
                ipv6: None,
                ipv4: guests.get(&(network.id(), key)).copied(),
            };
            zone.add_member(of.as_str(), name.as_str(), addresses);
        }
        // A name that both have is that of the member.
        for (key, name) in &network.state().names {
            let addresses = MemberAddresses {
                ipv6: Some(key.node_addr().to_ipv6()),
                // Another address would lead to another node.
                ipv4: used_ipv4(network, key, &owners),
            };
            zone.add_member(of.as_str(), name.as_str(), addresses);
        }
    }
    zone
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use weft_config::Config;
    use weft_config::peer::NodeRef;
    use weft_host::hosts::Hosts;
    use weft_roster::names::Name;

    use super::*;
    use crate::tests::fixture::{UNIX, identity, networks};

    #[test]
    fn a_newcomer_takes_no_configured_name_below_fips() {
        for (peer, newcomer) in [(2, 3), (3, 2)] {
            let (peer, newcomer) = (identity(peer).public(), identity(newcomer).public());
            let text = format!("[[peer]]\nname = \"nas\"\nnpub = \"{peer}\"\n");
            let config = Config::parse(&text, Path::new("weft.toml")).unwrap();
            for host in ["nas", "laptop"] {
                let members = Members::of(&config, &networks(newcomer, host), &Hosts::default());
                assert_eq!(members.iter().count(), 2);
                let names: Vec<_> = members.names_by_hand().collect();
                let nas = "nas".parse().unwrap();
                assert_eq!(names, [(&nas, peer)], "{host}");
                assert_eq!(members.find(&NodeRef::Name(nas.clone())), Ok(peer));
            }
        }
    }

    #[test]
    fn short_names_are_looked_up_in_the_order_of_joining() {
        let mut networks = networks(identity(2).public(), "laptop");
        let later = Name::network("aaa").unwrap();
        networks.create(later, None, [8; 16], UNIX).unwrap();
        let zone = zone(&Members::default(), &networks);
        assert_eq!(zone.networks().collect::<Vec<_>>(), ["home", "aaa"]);
    }
}
