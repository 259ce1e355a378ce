//! The rows of the table: why each stays, and for how long.

use std::net::SocketAddr;

use proptest::prelude::*;

use super::*;

const NOW: u64 = 1_000_000;

fn at(port: u16) -> Endpoint {
    Endpoint::from(([192, 0, 2, 1], port))
}

fn hint(port: u16, source: HintSource) -> Hint {
    let at = at(port).remote();
    Hint { at, source }
}

fn listed(ports: &[u16]) -> Vec<Hint> {
    ports.iter().map(|port| hint(*port, HintSource::Configured)).collect()
}

/// A path that the peer has asked this host's address `host` by.
fn asked(port: u16, host: u8) -> Endpoint {
    let ip = std::net::IpAddr::from([198, 51, 100, host]);
    at(port).with_local(Some(weft_contract::LocalEnd { ip, device: 1 }))
}

fn sources(paths: &Paths) -> Vec<(u16, HintSource)> {
    paths.rows().map(|row| (row.at.port(), row.source)).collect()
}

/// docs/protocol/security.md (P30) says so.
#[test]
fn a_row_takes_no_more_than_150_bytes() {
    assert!(size_of::<Row>() + size_of::<Compared>() <= 150);
}

#[test]
fn the_source_in_the_list_counts_before_all_others() {
    let mut paths = Paths::new(NOW, &[hint(1, HintSource::Member)]);
    paths.name(NOW + 5, at(1), HintSource::Lan);
    assert_eq!(sources(&paths), [(1, HintSource::Member)]);
    // Named by another one first, and listed later.
    paths.expect(NOW, at(2), HintSource::Lan);
    assert!(paths.set_list(NOW + 9, &[hint(2, HintSource::Configured)]));
    assert_eq!(
        sources(&paths),
        [(2, HintSource::Configured)],
        "1 was in the list alone"
    );
    assert_eq!(paths.rows().next().map(|row| row.named_at), Some(NOW + 9));
    // A list with another source of the same address calls for no dialling.
    assert!(!paths.set_list(NOW + 10, &[hint(2, HintSource::HostName)]));
    assert_eq!(
        paths.source(SocketId::ORDINARY.following().path(at(2))),
        HintSource::HostName
    );
    assert_eq!(paths.source(at(3)), HintSource::Incoming);
}

#[test]
fn an_address_that_was_expected_gives_way_to_the_next() {
    let mut paths = Paths::default();
    for port in 1..100 {
        paths.expect(NOW, at(port), HintSource::Probe);
    }
    assert_eq!(sources(&paths), [(99, HintSource::Probe)]);
    assert_eq!(paths.targets(NOW, None), [at(99)]);
}

#[test]
fn a_peer_is_dialled_where_it_has_answered_for_ten_minutes() {
    let mut paths = Paths::new(NOW, &listed(&[1]));
    for port in [2, 3, 4, 5, 6] {
        paths.note_used(NOW + u64::from(port), asked(port, 1));
    }
    paths.compare(NOW, Some(at(6)), at(7));
    paths.handle_down(NOW);
    assert_eq!(
        paths.targets(NOW, None),
        [6, 1, 5, 4].map(at),
        "the last, the list, and two more"
    );
    assert!([3, 1].iter().all(|port| paths.is_confirmed(NOW, at(*port))));
    assert_eq!(paths.expected(None), [6, 1].map(at), "the rest depends on the time");
    assert_eq!(paths.targets(NOW + 4 + KEPT, None), [6, 1, 5].map(at));
    paths.set_list(NOW + 2 * KEPT, &listed(&[1]));
    assert_eq!(paths.rows().count(), 2);
    assert_eq!(paths.source(at(6)), HintSource::LastAddress);
}

/// All rows of a round have one time.
#[test]
fn of_those_that_answered_at_one_time_three_stay() {
    let mut paths = Paths::new(NOW, &listed(&[1]));
    for port in 2..8 {
        paths.compare(NOW, Some(at(1)), at(port));
        paths.note_proven(NOW, at(port));
    }
    paths.handle_down(NOW);
    assert_eq!(paths.targets(NOW, None).len(), 1 + MAX_PROVEN);
}

#[test]
fn an_address_that_others_name_is_confirmed_by_an_answer() {
    let mut paths = Paths::new(NOW, &[hint(1, HintSource::Member)]);
    paths.compare(NOW, None, at(2));
    assert!(!paths.is_confirmed(NOW, at(1)) && !paths.is_confirmed(NOW, at(2)));
    paths.handle_down(NOW);
    assert_eq!(paths.targets(NOW, None), [at(1)]);
    paths.expect(NOW, at(3), HintSource::Probe);
    assert!(!paths.is_confirmed(NOW, at(3)), "a probe proves no peer");
    paths.note_used(NOW, at(2));
    assert!(paths.is_confirmed(NOW + 2 * KEPT, at(2)), "the last one");
    paths.expect(NOW, at(1), HintSource::LastAddress);
    assert!(paths.is_confirmed(NOW, at(1)), "an earlier run was linked there");
    assert_eq!(paths.source(at(1)), HintSource::Member);
}

#[test]
fn where_a_peer_was_seen_one_message_goes() {
    let mut paths = Paths::new(NOW, &[hint(1, HintSource::Member)]);
    paths.note_used(NOW, at(2));
    paths.handle_down(NOW);
    for port in 3..20 {
        paths.sight(NOW + u64::from(port), at(port));
        assert_eq!(paths.take_sighted(), [at(port)]);
    }
    assert!(paths.take_sighted().is_empty() && !paths.is_confirmed(NOW, at(19)));
    assert_eq!(paths.targets(NOW, None), [2, 1].map(at), "it is expected where it was");
    assert_eq!(paths.rows().count(), 2 + MAX_SIGHTED);
    assert_eq!(paths.source(at(19)), HintSource::Lan);
    // What was named in the list before is seen as well.
    paths.sight(NOW + 20, at(1));
    assert_eq!(paths.source(at(1)), HintSource::Member);
    assert_eq!(paths.take_sighted(), [at(1)]);
}

#[test]
fn a_socket_that_closes_leaves_the_address() {
    let socket = SocketId::ORDINARY.following();
    let mut paths = Paths::new(NOW, &[]);
    paths.expect(NOW, socket.path(at(1)), HintSource::Search);
    paths.compare(NOW, None, socket.path(at(2)));
    paths.forget_socket(NOW, socket);
    assert_eq!(sources(&paths), [(1, HintSource::Search)]);
    assert_eq!(paths.last(), Some(at(1)));
}

#[test]
fn the_local_end_is_that_which_the_peer_has_asked() {
    let mut paths = Paths::new(NOW, &listed(&[1]));
    paths.compare(NOW, Some(asked(1, 1)), at(1));
    assert_eq!(paths.compared().map(|(at, _)| at).collect::<Vec<_>>(), [asked(1, 1)]);
    assert!(!paths.compare_source(NOW, None, asked(1, 1)));
    paths.compare_source(NOW, None, asked(1, 2));
    assert_eq!(paths.rows().count(), 2, "each has its own row");
    assert!(paths.forget_local(|at| at == asked(1, 1)));
    assert!(paths.forget_local(|at| at == asked(1, 2)));
    assert_eq!(sources(&paths), [(1, HintSource::Configured)]);
    assert!(!paths.forget_local(|_| false));
}

#[derive(Clone, Debug)]
enum Event {
    List(Vec<u16>),
    Expect(u16),
    Name(u16),
    Sight(u16),
    Used(u16, u8),
    Compare(u16),
    Source(u16, u8),
    Down,
    Close,
    Gone(u8),
    Wait(u64),
}

fn event() -> impl Strategy<Value = Event> {
    let port = || 0..40_u16;
    prop_oneof![
        prop::collection::vec(port(), 0..12).prop_map(Event::List),
        port().prop_map(Event::Expect),
        port().prop_map(Event::Name),
        port().prop_map(Event::Sight),
        (port(), 0..3_u8).prop_map(|(port, host)| Event::Used(port, host)),
        port().prop_map(Event::Compare),
        (port(), 0..3_u8).prop_map(|(port, host)| Event::Source(port, host)),
        Just(Event::Down),
        Just(Event::Close),
        (0..3_u8).prop_map(Event::Gone),
        (1..700_000_u64).prop_map(Event::Wait),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn rows_are_bounded_and_each_path_has_one(events in prop::collection::vec(event(), 1..120)) {
        let (mut paths, mut now, mut list, mut used) = (Paths::default(), NOW, Vec::new(), None);
        let mut named = 0;
        let socket = SocketId::ORDINARY.following();
        // Every seventh goes through a further socket.
        let path = |port: u16| if port.is_multiple_of(7) { socket.path(at(port)) } else { at(port) };
        for event in events {
            named = if matches!(event, Event::Name(_)) { named + 1 } else { 0 };
            match event {
                Event::List(ports) => {
                    list = ports.into_iter().map(|port| at(port).remote()).collect::<Vec<SocketAddr>>();
                    paths.set_list(now, &list.iter().map(|at| Hint::from(*at)).collect::<Vec<_>>());
                }
                Event::Expect(port) => paths.expect(now, path(port), HintSource::Search),
                Event::Sight(port) => paths.sight(now, path(port)),
                Event::Name(port) => paths.name(now, path(port), HintSource::Probe),
                Event::Used(port, host) => {
                    used = Some(asked(port, host));
                    paths.note_used(now, asked(port, host));
                }
                Event::Compare(port) => paths.compare(now, used, path(port)),
                Event::Source(port, host) => drop(paths.compare_source(now, used, asked(port, host))),
                Event::Down => {
                    used = None;
                    paths.handle_down(now);
                }
                Event::Close => paths.forget_socket(now, socket),
                Event::Gone(host) => drop(paths.forget_local(|at| at.local() == asked(1, host).local())),
                Event::Wait(ms) => now += ms,
            }
            let rows: Vec<Endpoint> = paths.rows().map(|row| row.at).collect();
            let unique: std::collections::BTreeSet<Endpoint> = rows.iter().copied().collect();
            prop_assert_eq!(rows.len(), unique.len(), "{:?}", rows);
            prop_assert!(paths.compared().count() <= MAX_COMPARED);
            // The last address has a row for each local end, and a name is one row until the next change.
            let names = rows.len().saturating_sub(list.len() + 4 + MAX_COMPARED + MAX_PROVEN + MAX_SIGHTED);
            prop_assert!(names <= named, "{} rows", rows.len());
            list.dedup();
            for at in &list {
                prop_assert!(rows.iter().any(|row| row.is_to((*at).into())), "{} is missing", at);
            }
            let targets = paths.targets(now, used);
            prop_assert!(targets.len() <= 2 + list.len() + MAX_PROVEN);
            for (n, target) in targets.iter().enumerate() {
                prop_assert!(targets[..n].iter().all(|other| !other.is_to(*target)));
            }
            let expected = paths.expected(used);
            prop_assert_eq!(&targets[..expected.len()], &expected[..]);
        }
    }
}
