//! Guests: added and removed by administrators, with an address and a host.

use std::net::Ipv4Addr;

use weft_roster::addresses;
use weft_roster::guest::{MAX_GUESTS, key_text};

use super::*;

/// A phone with the key of a number.
fn phone(number: u8, text: &str) -> AddGuest {
    AddGuest {
        key: [number; 32],
        name: name(text),
        tags: BTreeSet::new(),
        ipv4: None,
        host: None,
    }
}

/// A founder with one member.
fn two() -> World {
    let mut world = World::new(3, &[(0, 1), (0, 2)]);
    world.create(0);
    let code = world.invite(0, 1, 1);
    world.join(1, &code, 0);
    world.run(10_000);
    assert_eq!(world.members(1), [0, 1]);
    world
}

impl World {
    fn add_guest(&mut self, at: usize, guest: AddGuest) -> Result<GuestAdded, NetworkError> {
        let times = self.times();
        self.nodes[at].add_guest(None, guest, times).map(|(_, added)| added)
    }

    fn remove_guest(&mut self, at: usize, named: &str) -> Result<[u8; 32], NetworkError> {
        let times = self.times();
        self.nodes[at].remove_guest(None, named, times)
    }

    /// The numbers of the guests, each with its name.
    fn guests(&self, at: usize) -> Vec<(u8, Option<String>)> {
        let guests = self.network(at).guests();
        guests
            .map(|(key, _, name)| (key[0], name.map(ToString::to_string)))
            .collect()
    }
}

/// Fails unless it is this error, with words on one line.
#[track_caller]
fn assert_refused<T: std::fmt::Debug>(result: Result<T, NetworkError>, words: &str) {
    let error = result.unwrap_err().to_string();
    assert!(error.contains(words) && error.lines().count() == 1, "{error}");
}

#[test]
fn a_guest_reaches_all_members_and_a_removed_one_ends() {
    let mut world = two();
    world.nodes[0].take_change();
    let tagged = AddGuest {
        tags: BTreeSet::from([name("family")]),
        host: Some("node-1".to_owned()),
        ..phone(9, "phone")
    };
    let added = world.add_guest(0, tagged).unwrap();
    assert_eq!(added.host, key(1));
    assert!(addresses::is_of_networks(added.ipv4));
    assert!(world.nodes[0].take_change(), "others follow");
    let own = world.add_guest(0, phone(8, "tablet")).unwrap();
    assert_eq!(own.host, key(0));
    assert_ne!(own.ipv4, added.ipv4);
    world.run(3_000);
    for at in 0..2 {
        let (_, guest, _) = world.network(at).guests().last().unwrap();
        assert_eq!((guest.ipv4, guest.host), (Some(added.ipv4), Some(key(1))));
        assert!(guest.tags.contains("family"));
    }
    assert_eq!(world.remove_guest(0, "phone"), Ok([9; 32]));
    world.run(3_000);
    for at in 0..2 {
        assert_eq!(world.guests(at), [(8, Some("tablet".to_owned()))]);
    }
    assert_eq!(world.add_guest(0, phone(9, "phone")).unwrap().ipv4, added.ipv4);
    world.run(3_000);
    assert_eq!(world.guests(1).len(), 2, "a key that was removed comes back");
}

#[test]
fn the_forms_of_a_guest_name_it_for_a_removal() {
    let mut world = two();
    let ipv4 = Ipv4Addr::new(192, 168, 9, 9);
    let base64 = key_text(&[9; 32]);
    for form in [
        "phone",
        "phone.home.weft",
        "phone.home.weft.",
        "192.168.9.9",
        &base64,
        &"09".repeat(32),
    ] {
        let guest = AddGuest {
            ipv4: Some(ipv4),
            ..phone(9, "phone")
        };
        assert_eq!(world.add_guest(0, guest).unwrap().ipv4, ipv4, "{form}");
        assert_eq!(world.remove_guest(0, form), Ok([9; 32]), "{form}");
        assert_refused(world.remove_guest(0, form), "the network has no guest");
    }
    world.add_guest(0, phone(9, "phone")).unwrap();
    for form in ["phone.work.weft", "phone.weft", "phone.home", "founder", "10.44.0.0"] {
        assert_refused(world.remove_guest(0, form), "the network has no guest");
    }
}

#[test]
fn commands_about_guests_name_what_is_wrong() {
    let mut world = two();
    let ipv4 = world.add_guest(0, phone(9, "phone")).unwrap().ipv4;
    let at = |ipv4| AddGuest {
        ipv4: Some(ipv4),
        ..phone(8, "other")
    };
    let hosted = |host: &str| AddGuest {
        host: Some(host.to_owned()),
        ..phone(8, "other")
    };
    let member = world.network(0).ipv4(&key(1)).unwrap();
    for (guest, words) in [
        (phone(9, "other"), "the guest phone already"),
        (phone(8, "phone"), "phone is the name of a member or a guest"),
        (phone(8, "node-1"), "node-1 is the name of a member or a guest"),
        (phone(0, "other"), "a key of zeros"),
        (at(ipv4), "is the address of phone"),
        (at(member), "is the address of node-1"),
        (at(Ipv4Addr::new(8, 8, 8, 8)), "8.8.8.8 is no private address"),
        (hosted("nas"), "no member nas"),
        (hosted(&key(2).to_string()), "no member npub1"),
    ] {
        assert_refused(world.add_guest(0, guest), words);
    }
    assert!(matches!(
        world.add_guest(1, phone(8, "other")),
        Err(NetworkError::NotAdmin(_))
    ));
    assert!(matches!(world.remove_guest(1, "phone"), Err(NetworkError::NotAdmin(_))));
    assert_eq!(
        world.add_guest(2, phone(8, "other")).err(),
        Some(NetworkError::NoNetwork)
    );
    assert_eq!(world.guests(0).len(), 1);
}

#[test]
fn a_network_takes_so_many_guests_and_no_more() {
    let mut world = World::new(1, &[]);
    world.create(0);
    for n in 1..=MAX_GUESTS as u16 {
        let mut guest = phone(0, &format!("phone-{n}"));
        guest.key[..2].copy_from_slice(&n.to_be_bytes());
        world.add_guest(0, guest).unwrap();
    }
    assert_eq!(world.guests(0).len(), MAX_GUESTS);
    let refused = world.add_guest(0, phone(9, "one-more"));
    assert_eq!(refused, Err(NetworkError::TooManyGuests));
    world.remove_guest(0, "phone-7").unwrap();
    world.add_guest(0, phone(9, "one-more")).unwrap();
}

#[test]
fn a_guest_is_found_in_the_only_network_that_has_it() {
    let mut world = two();
    let work = Name::network("work").unwrap();
    world.nodes[0].create(work, None, [8; 16], UNIX).unwrap();
    let times = world.times();
    let mut add = |network, guest| world.nodes[0].add_guest(Some(network), guest, times).unwrap();
    add("home", phone(9, "phone"));
    add("work", phone(9, "phone"));
    add("work", phone(8, "tablet"));
    assert_eq!(world.remove_guest(0, "tablet"), Ok([8; 32]));
    assert_eq!(
        world.remove_guest(0, "phone"),
        Err(NetworkError::Which("home, work".to_owned()))
    );
    assert_refused(world.remove_guest(0, "laptop"), "no guest laptop");
    assert_eq!(world.remove_guest(0, "phone.work.weft"), Ok([9; 32]));
    assert_eq!(world.remove_guest(0, "phone"), Ok([9; 32]));
    assert!(world.nodes[0].iter().all(|network| network.guests().count() == 0));
}

#[test]
fn a_guest_without_its_host_is_removed_or_added_again() {
    let mut world = two();
    let hosted = AddGuest {
        host: Some("node-1".to_owned()),
        ..phone(9, "phone")
    };
    world.add_guest(0, hosted).unwrap();
    let times = world.times();
    let gone = world.nodes[0].change_member(None, "node-1", (MemberChange::Remove {}, None), times);
    gone.unwrap();
    assert!(world.guests(0).is_empty());
    assert_eq!(world.remove_guest(0, &key_text(&[9; 32])), Ok([9; 32]));
    assert_refused(world.remove_guest(0, &key_text(&[9; 32])), "no guest");
    world.add_guest(0, phone(9, "phone")).unwrap();
    assert_eq!(world.guests(0), [(9, Some("phone".to_owned()))]);
}

#[test]
fn members_leave_guests_their_addresses_and_names() {
    let mut world = two();
    let derived = addresses::derived(&world.network(0).id().to_string(), &key(2));
    let taking = AddGuest {
        ipv4: Some(derived),
        ..phone(9, "node-2")
    };
    world.add_guest(0, taking).unwrap();
    let mut change = |change| {
        let times = world.times();
        world.nodes[0].change_member(None, "node-1", (change, None), times)
    };
    let ipv4 = Some(derived);
    assert_refused(change(MemberChange::Address { ipv4 }), "is the address of node-2");
    assert_refused(change(rename("node-2")), "the name of a member or a guest");
    let code = world.invite(0, 1, 2);
    world.join(2, &code, 0);
    world.run(10_000);
    assert_eq!(world.members(0), [0, 1, 2]);
    let network = world.network(0);
    assert_ne!(network.ipv4(&key(2)), Some(derived));
    assert!(network.ipv4(&key(2)).is_some());
    assert_eq!(network.state().names[&key(2)], name("node-2-2"));
    assert_eq!(world.guests(0), [(9, Some("node-2".to_owned()))]);
}

#[test]
fn a_route_that_contains_a_guest_is_refused() {
    let mut world = two();
    let guest = AddGuest {
        ipv4: Some(Ipv4Addr::new(192, 168, 7, 9)),
        ..phone(9, "phone")
    };
    world.add_guest(0, guest).unwrap();
    let subnet: Subnet = "192.168.7.0/24".parse().unwrap();
    world.nodes[1].set_offer(&BTreeSet::from([subnet]));
    world.run(3_000);
    let mut approve = || {
        let times = world.times();
        world.nodes[0].change_route(None, ("node-1", subnet), RouteChange::Approve, times)
    };
    assert_eq!(approve(), Err(NetworkError::Covers(subnet, "phone".to_owned())));
}

#[test]
fn an_address_is_free_of_members_and_guests() {
    let mut world = two();
    let id = world.network(0).id();
    let first = addresses::free(&id.to_string(), &[9; 32], |_| false).unwrap();
    let taking = AddGuest {
        ipv4: Some(first),
        ..phone(8, "other")
    };
    world.add_guest(0, taking).unwrap();
    let added = world.add_guest(0, phone(9, "phone")).unwrap();
    let second = addresses::free(&id.to_string(), &[9; 32], |ipv4| ipv4 == first);
    assert_eq!(Some(added.ipv4), second);
    assert_ne!(added.ipv4, first);
}

#[test]
fn the_list_of_a_removed_administrator_names_its_guests() {
    let mut world = two();
    let times = world.times();
    let change = (MemberChange::MakeAdmin {}, None);
    world.nodes[0].change_member(None, "node-1", change, times).unwrap();
    world.run(3_000);
    world.add_guest(1, phone(9, "phone")).unwrap();
    world.run(3_000);
    let (signed, _) = world.nodes[0].signed_by(None, (Some("node-1"), false), UNIX).unwrap();
    let about: Vec<&str> = signed.iter().map(|signed| signed.what.as_str()).collect();
    assert!(about.contains(&"guest phone"), "{about:?}");
    let times = world.times();
    let wish = keep_rest();
    let change = (MemberChange::RevokeAdmin {}, Some(&wish));
    world.nodes[0].change_member(None, "node-1", change, times).unwrap();
    assert_eq!(world.guests(0), [(9, Some("phone".to_owned()))]);
}

#[test]
fn a_network_of_nvpn_has_no_guests() {
    let (mut node, _) = foreign::member();
    let foreign = NetworkError::Foreign("our-home".to_owned());
    let added = node.add_guest(None, phone(9, "phone"), (1, UNIX));
    assert_eq!(added.err(), Some(foreign.clone()));
    assert_eq!(node.remove_guest(None, "phone", (1, UNIX)), Err(foreign));
}
