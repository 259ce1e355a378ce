use proptest::prelude::*;
use weft_noise::SecretKey;
use weft_stream::Limits;

use super::*;
use crate::place::MAX_BYTES;
use crate::place::tests::{AT, filled, place};

const NETWORK: [u8; 16] = [7; 16];
const UNIX_MS: u64 = 1_700_000_000_000;

fn identity(number: u16) -> Identity {
    let mut secret = [1; 32];
    secret[30..].copy_from_slice(&(number + 1).to_be_bytes());
    Identity::new(SecretKey::from_bytes(&secret).unwrap())
}

fn key(number: u16) -> PublicKey {
    identity(number).public()
}

fn network() -> NetworkId {
    NetworkId::from_bytes(NETWORK)
}

fn at(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

/// Where `number` was at `version`.
fn presence(number: u16, version: u64) -> Presence {
    let address = SocketAddr::from(([192, 0, 2, number as u8], version as u16 | 1));
    signed(number, version, &[address])
}

fn signed(number: u16, version: u64, addresses: &[SocketAddr]) -> Presence {
    Presence::sign(&identity(number), &network(), version, Places::of_udp(addresses))
}

fn with_places(number: u16, version: u64, places: &[u8]) -> Presence {
    Presence::sign(&identity(number), &network(), version, Places::read(places).unwrap())
}

fn store(number: u16) -> Presences {
    Presences::new(network(), key(number))
}

fn take(store: &mut Presences, from: u16, presences: &[Presence], now: u64) -> bool {
    let presences = presences.iter().map(|presence| (presence.clone(), 0)).collect();
    store.receive(&key(from), presences, |_| true, now)
}

fn versions(store: &Presences) -> BTreeMap<PublicKey, u64> {
    let all = store.all(0);
    all.map(|(presence, _)| (presence.member, presence.version)).collect()
}

/// Nodes that are all linked as `links` says, and pass documents on at once.
struct Mesh {
    nodes: Vec<Presences>,
    now: u64,
    /// Documents with presences, by pair.
    sent: BTreeMap<(usize, usize), Vec<u64>>,
    /// Nothing arrives, and no node notices.
    cut: bool,
    /// When the stream of a node gives a document up, and the node that did not get it.
    lost: Vec<(u64, usize, PublicKey)>,
}

impl Mesh {
    fn new(nodes: u16) -> Self {
        Self {
            nodes: (0..nodes).map(store).collect(),
            now: 1_000,
            sent: BTreeMap::new(),
            cut: false,
            lost: Vec::new(),
        }
    }

    fn link(&mut self, links: &[(usize, usize)]) {
        for at in 0..self.nodes.len() {
            let other = |(one, other): &(usize, usize)| match at {
                _ if *one == at => Some(*other),
                _ if *other == at => Some(*one),
                _ => None,
            };
            let here = links
                .iter()
                .filter_map(other)
                .map(|number| key(number as u16))
                .collect();
            self.nodes[at].set_partners(&here, self.now);
        }
    }

    fn run(&mut self, ms: u64) {
        let end = self.now + ms;
        while self.now < end {
            self.now += 500;
            for (_, from, to) in self.lost.extract_if(.., |(at, ..)| *at <= self.now) {
                self.nodes[from].handle_lost(&to, self.now);
            }
            for from in 0..self.nodes.len() {
                self.nodes[from].handle_timeout(&identity(from as u16), self.now);
                while let Some((to, document)) = self.nodes[from].poll(self.now) {
                    if self.cut {
                        self.lost.push((self.now + Limits::default().progress_ms, from, to));
                        continue;
                    }
                    let to = (0..self.nodes.len()).find(|number| key(*number as u16) == to).unwrap();
                    let sender = key(from as u16);
                    assert!(document.len() <= Limits::default().document, "{}", document.len());
                    match Document::decode(&document).unwrap() {
                        Document::Presences { presences, .. } => {
                            self.sent.entry((from, to)).or_default().push(self.now);
                            self.nodes[to].receive(&sender, presences, |_| true, self.now);
                        }
                        Document::PresenceDigest { digest, .. } => {
                            self.nodes[to].receive_digest(&sender, &digest, self.now);
                        }
                        other => panic!("{other:?}"),
                    }
                }
            }
        }
    }

    fn moved(&mut self, node: usize, to: &str) {
        self.nodes[node].set_own(&[at(to)], self.now, UNIX_MS + self.now);
    }

    fn knows(&self, node: usize, of: usize) -> Vec<String> {
        let of = key(of as u16);
        let addresses = self.nodes[node].addresses(&of);
        addresses.map(|at| at.to_string()).collect()
    }
}

#[test]
fn a_node_that_knows_one_learns_of_all_and_of_each_move() {
    let mut mesh = Mesh::new(3);
    for (node, address) in [(0, "192.0.2.1:1"), (1, "192.0.2.2:1"), (2, "192.0.2.3:1")] {
        mesh.moved(node, address);
    }
    mesh.link(&[(0, 2), (1, 2)]);
    mesh.run(6_000);
    assert_eq!(
        (mesh.knows(0, 1), mesh.knows(1, 0)),
        (vec!["192.0.2.2:1".to_owned()], vec!["192.0.2.1:1".to_owned()])
    );
    // 1 is off while 0 moves several times.
    mesh.link(&[(0, 2)]);
    for n in 4..8 {
        mesh.moved(0, &format!("192.0.2.{n}:1"));
        mesh.run(20_000);
    }
    mesh.link(&[(0, 2), (1, 2)]);
    mesh.run(6_000);
    assert_eq!(mesh.knows(1, 0), ["192.0.2.7:1"]);
}

#[test]
fn lost_presences_are_sent_again() {
    let mut mesh = Mesh::new(3);
    mesh.link(&[(0, 1), (1, 2)]);
    (0..3).for_each(|node| mesh.moved(node, &format!("192.0.2.{node}:1")));
    mesh.run(20_000);
    mesh.cut = true;
    for second in 0..6 {
        mesh.moved(0, &format!("198.51.100.{second}:1"));
        mesh.run(5_000);
    }
    mesh.cut = false;
    mesh.run(60_000);
    for node in [1, 2] {
        assert_eq!(mesh.knows(node, 0), ["198.51.100.5:1"]);
    }
    // And no more than that.
    let sent = mesh.sent.values().map(Vec::len).sum::<usize>();
    mesh.run(1_800_000);
    assert_eq!(mesh.sent.values().map(Vec::len).sum::<usize>(), sent);
}

#[test]
fn a_change_costs_one_document_a_pair_and_pause() {
    let mut mesh = Mesh::new(4);
    let all = [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)];
    mesh.link(&all);
    mesh.run(10_000);
    for n in 0..60 {
        mesh.moved(0, &format!("192.0.2.{n}:{}", n + 1));
        mesh.run(1_000);
    }
    assert!(!mesh.sent.is_empty());
    for (pair, times) in &mesh.sent {
        assert!(
            times.windows(2).all(|two| two[1] - two[0] >= PAUSE),
            "{pair:?}: {times:?}"
        );
    }
    mesh.sent.clear();
    mesh.run(200_000);
    let count: usize = mesh.sent.values().map(Vec::len).sum();
    mesh.sent.clear();
    assert!(count < 24, "{count}");
    mesh.run(600_000);
    assert_eq!(
        mesh.sent.values().map(Vec::len).sum::<usize>(),
        0,
        "digests agree, so no presence is sent"
    );
}

#[test]
fn forged_replayed_old_or_foreign_presences_change_nothing() {
    let mut store = store(0);
    assert!(take(&mut store, 2, &[presence(1, 100)], 0));
    let before = versions(&store);
    let mut bytes = Vec::new();
    presence(1, 101).emit(0, &mut bytes);
    for at in [40, 60, bytes.len() - 1] {
        let mut forged = bytes.clone();
        // A byte of the version, of an address, of the signature.
        forged[at - 1] ^= 1;
        if let Ok((forged, _)) = Presence::read(&forged) {
            assert!(!take(&mut store, 2, &[forged], 20_000), "{at}");
        }
    }
    let other_network = NetworkId::from_bytes([8; 16]);
    let places = Places::of_udp(&[at("192.0.2.9:1")]);
    let elsewhere = Presence::sign(&identity(1), &other_network, 200, places);
    for old in [presence(1, 100), presence(1, 99), elsewhere] {
        assert!(!take(&mut store, 2, &[old], 20_000));
    }
    let news = vec![(presence(1, 101), LIFE as u32)];
    assert!(!store.receive(&key(2), news, |_| true, 20_000), "too old");
    let news = vec![(presence(1, 101), 0)];
    assert!(!store.receive(&key(2), news, |_| false, 20_000), "no member");
    assert_eq!(versions(&store), before);
    assert!(take(&mut store, 2, &[presence(1, 101)], 20_000));
}

#[test]
fn a_member_that_moves_too_often_is_taken_at_a_rate() {
    let mut store = store(0);
    let taken = (1..100).filter(|n| take(&mut store, 1, &[presence(1, *n)], 1_000));
    assert_eq!(taken.count() as u64, MOVES);
    assert!(take(&mut store, 2, &[presence(2, 1)], 1_000), "another member");
    assert!(take(&mut store, 1, &[presence(1, 100)], 1_000 + MOVE_INTERVAL));
}

#[test]
fn forgeries_of_one_member_cost_a_bounded_number_of_checks() {
    let mut store = store(0);
    let mut bytes = Vec::new();
    presence(1, 5).emit(0, &mut bytes);
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    let forged = Presence::read(&bytes).unwrap().0;
    take(&mut store, 9, &vec![forged; CHECKS as usize], 0);
    assert!(
        !take(&mut store, 9, &[presence(1, 6)], 0),
        "no check is left for this sender"
    );
    assert!(take(&mut store, 8, &[presence(1, 6)], 0), "others are not affected");
    assert!(take(&mut store, 9, &[presence(2, 6)], CHECK_INTERVAL));
}

#[test]
fn addresses_that_lead_nowhere_are_not_used() {
    let addresses = [
        "127.0.0.1:1",
        "[fd00::1]:1",
        "192.0.2.1:0",
        "10.0.0.1:1",
        "10.0.0.1:2",
        "10.0.0.1:3",
    ]
    .map(at);
    let mut store = store(0);
    take(&mut store, 2, &[signed(1, 1, &addresses)], 0);
    assert_eq!(
        store.addresses(&key(1)).collect::<Vec<_>>(),
        [at("10.0.0.1:1"), at("10.0.0.1:2")]
    );
}

#[test]
fn ages_add_up_and_what_is_too_old_is_forgotten() {
    let (mut one, mut two) = (store(0), store(3));
    let day = 86_400_000;
    take(&mut one, 1, &[presence(1, 1)], 0);
    let aged = one
        .all(3 * day)
        .map(|(presence, age)| (presence.clone(), age as u32))
        .collect();
    two.receive(&key(0), aged, |_| true, 3 * day);
    assert!(!two.handle_timeout(&identity(3), LIFE * 1_000 - 1));
    assert!(two.handle_timeout(&identity(3), LIFE * 1_000));
    assert!(versions(&two).is_empty());
}

#[test]
fn a_statement_of_a_former_life_of_this_node_is_outdone() {
    let mut store = store(0);
    store.set_own(&[at("192.0.2.1:1")], 0, UNIX_MS);
    store.handle_timeout(&identity(0), 0);
    assert!(!take(&mut store, 2, &[presence(0, UNIX_MS + 99_999)], 10));
    store.handle_timeout(&identity(0), PAUSE);
    assert_eq!(versions(&store)[&key(0)], UNIX_MS + 100_000);
    // The clock goes back.
    store.set_own(&[at("192.0.2.2:1")], 2 * PAUSE, 1_000);
    store.handle_timeout(&identity(0), 2 * PAUSE);
    assert_eq!(versions(&store)[&key(0)], UNIX_MS + 100_001);
}

#[test]
fn two_thousand_members_reach_a_newcomer_and_take_little_memory() {
    const MEMBERS: u16 = 2_000;
    let mut mesh = Mesh::new(2);
    for number in 2..MEMBERS {
        assert!(take(&mut mesh.nodes[0], number, &[presence(number, 1)], 0));
    }
    mesh.link(&[(0, 1)]);
    mesh.run(200_000);
    assert_eq!(versions(&mesh.nodes[1]).len(), usize::from(MEMBERS) - 2);
    // Without places: eight addresses of UDP, and the most that a member may name.
    let of_member =
        size_of::<Kept>() + size_of::<(u64, PublicKey)>() + size_of::<Partner>() + 3 * size_of::<PublicKey>();
    let eight = Places::of_udp(&[at("192.0.2.1:1"); 8]).as_bytes().len();
    assert!(of_member + eight <= 1_280, "{of_member}");
    assert!(of_member + MAX_BYTES <= 2_048, "{of_member}");
}

#[test]
fn two_hundred_members_of_the_largest_size_get_through() {
    const MEMBERS: u16 = 200;
    let mut mesh = Mesh::new(2);
    let places = filled(MAX_BYTES);
    for number in 2..2 + MEMBERS {
        assert!(take(&mut mesh.nodes[0], number, &[with_places(number, 1, &places)], 0));
    }
    mesh.link(&[(0, 1)]);
    mesh.run(30_000);
    assert_eq!(versions(&mesh.nodes[1]).len(), usize::from(MEMBERS));
    let documents = mesh.sent[&(0, 1)].len();
    assert!((4..=5).contains(&documents), "{documents}");
}

#[test]
fn a_document_takes_64_presences_of_the_largest_size() {
    let largest = with_places(1, MAX_VERSION, &filled(MAX_BYTES));
    let document = |count| Document::Presences {
        network: network(),
        presences: vec![(largest.clone(), u32::MAX); count],
    };
    let most = document(MAX_IN_DOCUMENT);
    let bytes = most.encode();
    assert!(bytes.len() <= Limits::default().document);
    assert_eq!((bytes.len(), Document::decode(&bytes)), (18 + 64 * 1_134, Ok(most)));
    let more = document(MAX_IN_DOCUMENT + 1).encode();
    assert_eq!(
        Document::decode(&more),
        Err(DocumentError::Field("number of presences"))
    );
}

#[test]
fn places_of_other_carriers_cross_nodes_that_do_not_speak_them() {
    let mut mesh = Mesh::new(3);
    let url = b"wss://example.org/weft";
    let places = [
        place(2, &[(2, url), (3, &[9; 32]), (77, b"new")]),
        place(99, &[(1, &AT)]),
        place(0, &[(1, &AT)]),
    ];
    let sent = with_places(9, 1, &places.concat());
    mesh.link(&[(0, 1), (1, 2)]);
    mesh.run(1_000);
    assert!(take(&mut mesh.nodes[0], 9, std::slice::from_ref(&sent), mesh.now));
    mesh.run(2 * PAUSE);
    for node in &mesh.nodes {
        let (arrived, _) = node.all(mesh.now).next().unwrap();
        assert!(arrived == &sent && arrived.is_genuine(&network()));
        let dialled: Vec<SocketAddr> = node.addresses(&key(9)).collect();
        assert_eq!(dialled, [at("192.0.2.1:2121")], "the address of UDP alone");
    }
}

#[test]
fn a_malformed_presence_takes_no_others_with_it() {
    let mut body = Vec::new();
    presence(1, 1).emit(0, &mut body);
    let good = body.clone();
    // A place of UDP whose parts have the wrong length, a version that is too high, a key that is none.
    for (at, to) in [(47, 19), (32, 0xff)] {
        let mut bad = good.clone();
        bad[at] = to;
        body.extend(bad);
    }
    body.extend([&[0xff; 32], &good[32..]].concat());
    presence(2, 1).emit(7, &mut body);
    let read = read_presences(&body).unwrap();
    assert_eq!(read, [(presence(1, 1), 0), (presence(2, 1), 7)]);
    for end in good.len() + 1..2 * good.len() {
        assert_eq!(read_presences(&body[..end]), Err(DocumentError::Length), "{end}");
    }
    body.push(0);
    assert_eq!(read_presences(&body), Err(DocumentError::Length));
    let many = good.repeat(MAX_IN_DOCUMENT);
    assert_eq!(read_presences(&many).map(|read| read.len()), Ok(MAX_IN_DOCUMENT));
}

/// The bytes of docs/protocol/networks.md.
#[test]
fn presences_as_documented() {
    let page = include_str!("../../../../docs/protocol/networks.md");
    let addresses = ["192.0.2.1:2121", "[2001:db8::1]:2121"].map(at);
    let udp = Places::of_udp(&addresses);
    let web = place(2, &[(2, b"wss://example.org/weft"), (3, &[9; 32])]);
    let places = [udp.as_bytes(), &web].concat();
    let presences = vec![(with_places(0, 1_700_000_000_000, &places), 5)];
    let document = Document::Presences {
        network: network(),
        presences,
    }
    .encode();
    assert!(page.contains(&hex::encode(&document)), "{}", hex::encode(&document));
}

proptest! {
    #[test]
    fn any_order_of_arrival_gives_the_newest(
        arrivals in proptest::collection::vec((1_u16..5, 1_u64..9, 1_u16..5), 1..60),
    ) {
        let mut store = store(0);
        let mut newest = BTreeMap::new();
        for (step, (member, version, from)) in arrivals.into_iter().enumerate() {
            take(&mut store, from, &[presence(member, version)], step as u64 * MOVE_INTERVAL);
            let known = newest.entry(key(member)).or_insert(version);
            *known = version.max(*known);
        }
        prop_assert_eq!(versions(&store), newest);
        let order: BTreeSet<PublicKey> = store.order.values().copied().collect();
        prop_assert!(order.len() == store.order.len() && order.iter().eq(store.kept.keys()));
    }
}
