//! The core's peers: the rows of the table of members.

use weft_core::{Node, PeerConfig};
use weft_desired::members::{Difference, Members};

/// Makes the core's peers those of `members`; `before` is the table that it has. Returns what differs.
pub(super) fn apply(members: &Members, before: &Members, node: &mut Node, now: u64) -> Difference {
    let difference = members.difference(before);
    for key in &difference.removed {
        node.remove_peer(now, key);
    }
    for (key, row) in members.iter().filter(|(key, row)| before.get(key) != Some(row)) {
        let peer = PeerConfig {
            key: *key,
            addresses: row.addresses.clone(),
        };
        if row.packets {
            node.add_peer(now, &peer);
        } else {
            // A member that was removed, or a contact.
            if before.get(key).is_some_and(|before| before.packets) {
                node.remove_peer(now, key);
            }
            node.add_contact(now, &peer);
        }
        node.require_fast(key, row.require_fast);
        node.set_bond(now, key, row.bond);
    }
    difference
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use weft_config::Config;
    use weft_host::hosts::Hosts;
    use weft_noise::{Identity, PublicKey, SecretKey};
    use weft_os::random::SystemRng;

    use super::*;

    fn identity(byte: u8) -> Identity {
        Identity::new(SecretKey::from_bytes(&[byte; 32]).unwrap())
    }

    fn members(text: &str) -> Members {
        Members::configured(&Config::parse(text, Path::new("weft.toml")).unwrap(), &Hosts::default())
    }

    fn peer(byte: u8, rest: &str) -> String {
        format!("[[peer]]\nnpub = \"{}\"\n{rest}\n", identity(byte).public())
    }

    #[test]
    fn the_core_has_the_peers_of_the_table() {
        let mut node = Node::new(weft_core::Config::default(), identity(9), Box::new(SystemRng));
        let tables = [
            members(""),
            members(&(peer(1, "") + &peer(2, "require_fast = true"))),
            members(&(peer(2, "addresses = [\"192.0.2.2:2121\"]") + &peer(3, ""))),
            members(""),
        ];
        let [one, two, three] = [1, 2, 3].map(|byte| identity(byte).public());
        let expected = [
            (vec![one, two], vec![]),
            (vec![three], vec![one]),
            (vec![], vec![two, three]),
        ];
        for (tables, (added, removed)) in tables.windows(2).zip(expected) {
            let difference = apply(&tables[1], &tables[0], &mut node, 0);
            let sorted = |mut keys: Vec<PublicKey>| {
                keys.sort_unstable();
                keys
            };
            assert_eq!((difference.added, difference.removed), (sorted(added), sorted(removed)));
            let have = node
                .peer_status(0)
                .map(|peer| (peer.key, peer.targets, peer.require_fast));
            let want = tables[1].iter().map(|(key, row)| {
                (
                    *key,
                    row.addresses.iter().map(|hint| hint.at).collect(),
                    row.require_fast,
                )
            });
            let (mut have, mut want): (Vec<_>, Vec<_>) = (have.collect(), want.collect());
            have.sort_unstable();
            want.sort_unstable();
            assert_eq!(have, want);
            assert_eq!(node.check_invariants(), Ok(()));
            while node.poll_output().is_some() {}
        }
    }
}
