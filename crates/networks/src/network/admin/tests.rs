use std::collections::BTreeSet;

use weft_noise::SecretKey;

use super::*;

const UNIX: u64 = 1_700_000_000;

fn identity(byte: u8) -> Identity {
    Identity::new(SecretKey::from_bytes(&[byte; 32]).unwrap())
}

/// An administrator that signs the removal of itself as a member keeps its rights until they are taken.
#[test]
fn an_administrator_that_is_no_member_can_be_removed() {
    let [founder, junior] = [1, 2].map(identity);
    let key = junior.public();
    let home = Name::network("home").unwrap();
    for change in [MemberChange::RevokeAdmin {}, MemberChange::Remove {}] {
        let mut network = Network::found(&founder, home.clone(), None, [1; 16], UNIX).unwrap();
        network
            .take_in(&founder, &key, (None, BTreeSet::new()), 1, UNIX)
            .unwrap();
        let npub = key.to_string();
        network
            .change_member(&founder, &npub, (MemberChange::MakeAdmin {}, None), 1, UNIX)
            .unwrap();
        let away = Draft::new(
            network.id(),
            RecordKey::Member(key),
            u64::MAX,
            &Body::Member(Member::default()),
        );
        network.add(away.removal().sign(&junior, UNIX).unwrap(), 1).unwrap();
        assert!(network.is_admin(&key) && !network.is_member(&key));
        network.change_member(&founder, &npub, (change, None), 1, UNIX).unwrap();
        assert!(!network.is_admin(&key));
    }
}
