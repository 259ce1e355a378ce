//! Networks that were founded with nvpn.

use weft_nostr::event::{Event, Unsigned};
use weft_nvpn::shared_roster::Refusal as ListRefusal;
use weft_roster::rules::Policy;
use weft_roster::{addresses, membership};

use super::*;

const NETWORK: &str = "0123456789abcdef";

/// What the administrator `by` signs at `at`: members, each with the name of its number.
fn list(by: usize, at: u64, members: &[usize]) -> Event {
    let hex = |number: &usize| hex::encode(key(*number).as_bytes());
    let tag = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
    let mut tags = vec![
        tag(&["d", NETWORK]),
        tag(&["app", membership::APP]),
        tag(&["v", membership::VERSION]),
        tag(&["name", "Our Home"]),
        tag(&["admin", &hex(&1)]),
    ];
    for number in members {
        tags.push(tag(&["member", &hex(number)]));
        if *number != 4 {
            tags.push(tag(&["alias", &hex(number), &format!("Node {number}")]));
        }
    }
    let body = Unsigned {
        created_at: at,
        kind: membership::KIND,
        tags,
        content: String::new(),
    };
    Event::sign(&identity(by), body).unwrap()
}

/// Node 0 in a network of nvpn with its administrator and node 2.
pub(super) fn member() -> (Networks, NetworkId) {
    let mut node = networks(0, Vec::new());
    let id = node.join_foreign(list(1, UNIX, &[0, 1, 2]), UNIX).unwrap();
    (node, id)
}

fn new_invite() -> NewInvite {
    NewInvite {
        name: None,
        tags: BTreeSet::new(),
        uses: 1,
        expires: UNIX + 60,
        addresses: Vec::new(),
        entry: None,
    }
}

fn network(node: &Networks, id: NetworkId) -> &Network {
    node.iter().find(|network| network.id() == id).unwrap()
}

#[test]
fn members_names_and_addresses_are_those_of_the_list() {
    let (node, id) = member();
    let network = network(&node, id);
    assert_eq!((id, network.is_foreign()), (NetworkId::of_nvpn(NETWORK), true));
    assert_eq!(network.name().map(Name::as_str), Some("our-home"));
    for number in 0..3 {
        assert!(network.is_member(&key(number)));
        assert_eq!(
            network.ipv4(&key(number)),
            Some(addresses::derived(NETWORK, &key(number)))
        );
        assert_eq!(network.state().names[&key(number)], name(&format!("node-{number}")));
    }
    assert!(network.shows_admin(&key(1)) && !network.is_admin(&key(1)));
    let rows: Vec<Row> = node.rows().collect();
    assert_eq!(rows.len(), 2);
    assert!(
        rows.iter()
            .all(|row| row.member && row.ipv4.is_some() && row.source.is_some())
    );
}

#[test]
fn a_network_of_nvpn_is_not_changed_with_weft() {
    let (mut node, id) = member();
    let of = Some("our-home");
    let before = network(&node, id).revision();
    let times = (1, UNIX);
    let foreign = || NetworkError::Foreign("our-home".to_owned());
    assert_eq!(
        node.invite(of, &new_invite(), Seed::new([7; 16]), times).err(),
        Some(foreign())
    );
    for change in [
        MemberChange::Remove {},
        rename("other"),
        tag(&["family"]),
        MemberChange::MakeAdmin {},
        MemberChange::Address { ipv4: None },
        replace("node-1"),
    ] {
        let changed = node.change_member(of, "node-2", (change, None), times);
        assert_eq!(changed.err(), Some(foreign()));
    }
    let default = RuleChange::Default { policy: Policy::Deny };
    assert_eq!(node.change_rules(of, default, times).err(), Some(foreign()));
    let exit = node.change_exit(of, "node-2", RouteChange::Approve, times);
    assert_eq!(exit.err(), Some(foreign()));
    let taken = node.take_in_device(of, &key(5), (Approval::default(), None), times);
    assert_eq!(taken.err(), Some(foreign()));
    assert_eq!(node.revoke(of, "00", times).err(), Some(foreign()));
    assert_eq!(node.signed_by(of, (Some("node-2"), false), UNIX).err(), Some(foreign()));
    assert_eq!(node.accept_requests(1_000, 1).err(), Some(foreign()));
    assert_eq!(network(&node, id).revision(), before);
    assert_eq!(network(&node, id).set().records().count(), 0);
}

#[test]
fn nothing_of_weft_is_sent_or_taken_in_it() {
    let (mut node, id) = member();
    node.set_reachable(BTreeSet::from([key(1), key(2)]), 1_000);
    node.set_own_addresses(&["192.0.2.1:2121".parse().unwrap()], 1_000, UNIX * 1_000);
    for now in (1_000..200_000).step_by(1_000) {
        node.act_as_admin((now, UNIX));
        node.handle_timeout(now);
        assert_eq!(node.take_documents(), [], "{now}");
    }
    assert_eq!(node.timeout(), None);
    let sync = Document::Sync {
        network: id,
        message: &[1, 2, 3],
    };
    let offer = Document::Offer {
        network: id,
        subnets: BTreeSet::new(),
    };
    for bytes in [sync.encode(), offer.encode()] {
        let taken = node.handle_document(key(2), &bytes, 1, UNIX);
        assert!(matches!(taken, Err(crate::DocumentError::OtherNetwork)));
    }
}

#[test]
fn a_later_list_of_an_administrator_replaces_the_one_before() {
    let (mut node, id) = member();
    for (event, refusal) in [
        (list(2, UNIX + 1, &[0, 2]), ListRefusal::Signer),
        (list(1, UNIX, &[0, 1]), ListRefusal::Old),
        (list(1, UNIX - 1, &[0, 1]), ListRefusal::Old),
        (list(1, UNIX + 601, &[0, 1]), ListRefusal::Future),
    ] {
        let followed = node.follow_list(event, (1, UNIX));
        assert_eq!(followed.err(), Some(NetworkError::ListRefused(refusal)));
        assert!(network(&node, id).is_member(&key(2)));
    }
    let before = node.before();
    assert_eq!(
        node.follow_list(list(1, UNIX + 1, &[0, 1, 3]), (1, UNIX)),
        Ok((id, true))
    );
    assert!(network(&node, id).is_member(&key(3)) && !network(&node, id).is_member(&key(2)));
    assert_eq!(node.changed_since(&before).count(), 1);
    let later = node.follow_list(list(1, UNIX + 2, &[0, 1, 3, 4]), (1, UNIX));
    assert_eq!(later, Ok((id, true)));
    let unnamed = format!("peer-{}", &hex::encode(key(4).as_bytes())[..12]);
    assert_eq!(network(&node, id).state().names[&key(4)], name(&unnamed));
    // The one that went stays a contact for a minute, and learns it.
    let dismissed = |node: &Networks| node.rows().any(|row| row.key == key(2) && !row.member);
    assert!(dismissed(&node));
    node.handle_timeout(60_001);
    assert!(!dismissed(&node));
}

#[test]
fn a_list_without_this_node_ends_the_membership() {
    let (mut node, id) = member();
    let before = node.before();
    assert_eq!(node.follow_list(list(1, UNIX + 1, &[1, 2]), (1, UNIX)), Ok((id, false)));
    assert_eq!((node.iter().count(), node.rows().count()), (0, 0));
    assert_eq!(node.forgotten_since(&before).collect::<Vec<_>>(), [id]);
    assert!(node.follow_list(list(1, UNIX + 2, &[0, 1]), (1, UNIX)).is_err());
}

/// An administrator of a network of weft can answer with a list of a device.
#[test]
fn a_list_of_weft_ends_a_membership_by_nvpn() {
    let (mut node, id) = member();
    let mut body = list(1, UNIX + 1, &[0, 1, 2]).body().clone();
    body.tags.push(vec![membership::MARK.to_owned(), "1".to_owned()]);
    let marked = Event::sign(&identity(1), body).unwrap();
    assert_eq!(node.follow_list(marked, (0, UNIX + 1)).unwrap(), (id, false));
    assert_eq!(node.iter().count(), 0);
}

#[test]
fn members_that_went_are_few_peers() {
    let (mut node, _) = member();
    for round in 0..10_usize {
        let others: Vec<usize> = (0..3).chain(10 + 20 * round..30 + 20 * round).collect();
        node.follow_list(list(1, UNIX + 1 + round as u64, &others), (0, UNIX + 30))
            .unwrap();
    }
    assert!(node.rows().count() <= 22 + 64, "{}", node.rows().count());
}

#[test]
fn leaving_forgets_a_network_of_nvpn_at_once() {
    let (mut node, id) = member();
    assert_eq!(node.leave(None, false, (1, UNIX)), Ok(id));
    assert_eq!((node.iter().count(), node.take_documents()), (0, vec![]));
}

#[test]
fn a_list_of_no_use_is_not_joined_by() {
    let mut node = networks(0, Vec::new());
    let join = |node: &mut Networks, event| node.join_foreign(event, UNIX).err();
    assert_eq!(join(&mut node, list(1, UNIX, &[1, 2])), Some(NetworkError::NotListed));
    // That of a network of weft, which an administrator has signed with nvpn or with weft.
    let nonce = [7; 16];
    let id = node.create(Name::network("home").unwrap(), None, nonce, UNIX).unwrap();
    let mut body = list(1, UNIX, &[0, 1]).body().clone();
    body.tags[0][1] = id.to_string();
    let of_weft = Event::sign(&identity(1), body.clone()).unwrap();
    assert_eq!(join(&mut node, of_weft), Some(NetworkError::FoundedWithWeft));
    body.tags[0][1] = NETWORK.to_owned();
    body.tags.push(vec![membership::MARK.to_owned(), "1".to_owned()]);
    let marked = Event::sign(&identity(1), body).unwrap();
    assert_eq!(join(&mut node, marked), Some(NetworkError::FoundedWithWeft));
    assert_eq!(node.iter().count(), 1);
    // Nor is such a network entered while nvpn has one of that identifier.
    let code = node.invite(None, &new_invite(), Seed::new([7; 16]), (1, UNIX)).unwrap();
    let mut other = networks(3, Vec::new());
    let mut body = list(1, UNIX, &[3, 1]).body().clone();
    body.tags[0][1] = id.to_string();
    other
        .join_foreign(Event::sign(&identity(1), body).unwrap(), UNIX)
        .unwrap();
    let refused = other.join(&code, None, 1, UNIX);
    assert_eq!(refused.err(), Some(NetworkError::Foreign("our-home".to_owned())));
}

#[test]
fn the_file_has_the_list_and_a_changed_one_is_refused() {
    let (node, id) = member();
    let text = kept::to_text(network(&node, id)).unwrap();
    let read = kept::from_text(&text, &key(0)).unwrap();
    assert_eq!(read.signed_members(), network(&node, id).signed_members());
    assert_eq!(read.state(), network(&node, id).state());
    assert_eq!((read.label(), read.place()), (network(&node, id).label(), 1));
    // A version that knows no such networks says so.
    assert!(text.contains(r#""schema":"weft.network/2""#), "{text}");
    for (from, to) in [
        ("Node 2", "Node 3"),
        (NETWORK, "0123456789abcdee"),
        (r#""schema":"weft.network/2""#, r#""schema":"weft.network/1""#),
        (&id.to_string(), &NetworkId::of_nvpn("other").to_string()),
    ] {
        let changed = text.replace(from, to);
        assert!(changed != text && kept::from_text(&changed, &key(0)).is_err(), "{from}");
    }
}

#[test]
fn guests_are_welcome_while_an_answer_is_awaited() {
    let mut node = networks(0, Vec::new());
    assert!(!node.welcomes_guests(0, UNIX));
    node.await_list(Some(10));
    assert!(node.welcomes_guests(9, UNIX) && !node.welcomes_guests(10, UNIX));
    node.await_list(None);
    assert!(!node.welcomes_guests(0, UNIX));
}
