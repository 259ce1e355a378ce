//! One node against hostile neighbours and a naive model, then whole networks against the knowledge
//! that each node should have.

mod network;

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

/// Returns the address of a number. Different numbers have different addresses, in no order.
pub(super) fn addr(number: u32) -> NodeAddr {
    let mixed = number.wrapping_mul(2_654_435_761);
    NodeAddr::new(std::array::from_fn(|i| {
        (mixed.rotate_left(5 * i as u32) >> 3) as u8 ^ (i as u8).wrapping_mul(17)
    }))
}

fn filter(numbers: impl IntoIterator<Item = u32>) -> Bloom {
    let mut filter = Bloom::new();
    numbers.into_iter().for_each(|number| filter.insert(&addr(number)));
    filter
}

fn tell(filters: &mut Filters, now: u64, from: u32, sequence: u64, bits: &Bloom) -> Result<bool, FilterError> {
    let announce = FilterAnnounce {
        sequence,
        hash_count: HASHES,
        bits: bits.bits(),
    };
    let told = filters.handle_announce(now, &addr(from), &announce);
    filters.check_invariants().unwrap();
    told.map(|was| was.is_some())
}

/// Returns all announcements that are due now, by receiver.
fn said(filters: &mut Filters, now: u64) -> BTreeMap<NodeAddr, Bloom> {
    let mut said = BTreeMap::new();
    while let Some((to, body)) = filters.poll_announce(now) {
        let announce = FilterAnnounce::parse(&body).unwrap();
        assert_eq!(announce.hash_count, 5);
        assert!(said.insert(to, Bloom::from_bits(announce.bits)).is_none(), "{to} twice");
    }
    assert!(filters.deadline() > now);
    filters.check_invariants().unwrap();
    said
}

/// Node 0 with neighbours 1 to `peers`, of which those up to `tree` are in the tree.
fn node(peers: u32, tree: u32) -> Filters {
    let mut filters = Filters::new(addr(0));
    (1..=peers).for_each(|peer| filters.peer_up(0, addr(peer)));
    filters.set_tree_peers(0, (1..=tree).map(addr));
    filters
}

#[test]
fn a_parent_whose_filter_is_full_may_reach_any_node() {
    let mut filters = node(2, 2);
    tell(&mut filters, 0, 1, 1, &filter(2_000..2_300)).unwrap();
    tell(&mut filters, 0, 2, 1, &filter(2_000..4_000)).unwrap();
    let stranger = (10_000..).map(addr).find(|n| !filters.may_reach(&addr(2), n)).unwrap();
    assert!(!filters.parent_may_reach(&addr(1), &stranger) && filters.parent_may_reach(&addr(2), &stranger));
    assert!(filters.parent_may_reach(&addr(1), &addr(2_000)) && !filters.parent_may_reach(&addr(9), &stranger));
}

#[test]
fn filters_have_the_figures_of_the_fips_daemon() {
    // Node 1000 announces for 1001; neighbours 1 to 3 are in the tree, 4 is not. Same as the FIPS
    // daemon's figures.
    let mut filters = Filters::new(addr(1000));
    filters.set_local(0, [addr(1001)].into_iter());
    (1..=4).for_each(|peer| filters.peer_up(0, addr(peer)));
    filters.set_tree_peers(0, (1..=3).map(addr));
    for peer in 1..=3 {
        let bits = filter(peer * 40..peer * 40 + 60);
        assert_eq!(tell(&mut filters, 0, peer, 1, &bits), Ok(true));
    }
    let said = said(&mut filters, 0);
    let ones: Vec<u32> = (1..=4).map(|peer| said[&addr(peer)].ones()).collect();
    assert_eq!(ones, [496, 591, 497, 680]);
    let fnv = |filter: &Bloom| {
        let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
        filter.bits().iter().fold(0xcbf2_9ce4_8422_2325, step)
    };
    assert_eq!(fnv(&said[&addr(2)]), 0x00b6_756a_d093_1fce);
    assert_eq!(fnv(&said[&addr(4)]), 0x6bb3_d4b5_d0dd_ec0f);
}

#[test]
fn an_announcement_has_sequence_hashes_class_and_bits() {
    let mut filters = node(2, 2);
    let (to, body) = filters.poll_announce(7).unwrap();
    assert_eq!(body.len(), 1_034);
    assert_eq!(body[..10], [1, 0, 0, 0, 0, 0, 0, 0, 5, 1]);
    let (next, body) = filters.poll_announce(7).unwrap();
    assert_ne!(to, next);
    assert_eq!(body[..8], [2, 0, 0, 0, 0, 0, 0, 0]);
}

#[test]
fn a_refused_filter_of_ones_does_not_use_up_its_sequence() {
    let mut filters = node(2, 2);
    let full = Bloom::from_bits(&[0xff; FILTER_LEN]);
    let before = filters.bytes();
    assert_eq!(
        tell(&mut filters, 0, 1, 1, &full),
        Err(FilterError::TooFull { ones: 8_192 })
    );
    assert_eq!((filters.filter_of(&addr(1)), filters.bytes()), (None, before));
    assert_eq!(tell(&mut filters, 0, 1, 1, &filter([1])), Ok(true));
    assert_eq!(
        tell(&mut filters, 0, 1, 2, &full),
        Err(FilterError::TooFull { ones: 8_192 })
    );
    assert!(filters.may_reach(&addr(1), &addr(1)));
    assert!(!filters.may_reach(&addr(1), &addr(9)));
    let counters = filters.counters();
    assert_eq!((counters.too_full, counters.accepted), (2, 1));
}

#[test]
fn a_filter_of_many_hashes_does_not_slip_in() {
    let mut filters = node(1, 1);
    let mut bits = [0xff; FILTER_LEN];
    bits[0] = 0;
    for hash_count in [1, 4, 6, 255] {
        let announce = FilterAnnounce {
            sequence: 1,
            hash_count,
            bits: &bits,
        };
        let refused = filters.handle_announce(0, &addr(1), &announce);
        assert_eq!(refused, Err(FilterError::HashCount(hash_count)));
    }
    assert_eq!(filters.counters().hash_count, 4);
}

#[test]
fn stale_filters_and_those_of_strangers_are_refused() {
    let mut filters = node(1, 1);
    let stranger = tell(&mut filters, 0, 2, 1, &filter([2]));
    assert_eq!(stranger, Err(FilterError::UnknownPeer));
    let stale = |got, have| Err(FilterError::Stale { got, have });
    assert_eq!(tell(&mut filters, 0, 1, 0, &filter([1])), stale(0, 0));
    assert_eq!(tell(&mut filters, 0, 1, 7, &filter([1])), Ok(true));
    assert_eq!(tell(&mut filters, 0, 1, 8, &filter([1])), Ok(false));
    assert_eq!(tell(&mut filters, 0, 1, 8, &filter([1, 2])), stale(8, 8));
    assert!(!filters.may_reach(&addr(1), &addr(2)));
    // It has restarted, and so has its sequence.
    filters.peer_up(9, addr(1));
    assert!(!filters.may_reach(&addr(1), &addr(1)));
    assert_eq!(tell(&mut filters, 9, 1, 1, &filter([1])), Ok(true));
    assert_eq!((filters.counters().unknown_peer, filters.counters().stale), (1, 2));
}

#[test]
fn one_who_claims_nearly_all_does_not_silence_the_rest() {
    let mut filters = node(4, 4);
    let mut bits = [0; FILTER_LEN];
    bits[..730].fill(0xff);
    let greedy = Bloom::from_bits(&bits);
    assert!(!greedy.is_too_full());
    tell(&mut filters, 0, 1, 1, &greedy).unwrap();
    tell(&mut filters, 0, 2, 1, &filter(100..200)).unwrap();
    tell(&mut filters, 0, 3, 1, &filter(200..300)).unwrap();
    let said = said(&mut filters, 0);
    for (to, mine) in &said {
        assert!(!mine.is_too_full(), "{to}");
        assert!(mine.contains(&addr(0)));
    }
    assert_eq!(said[&addr(4)], filter((100..300).chain([0])));
    assert_eq!(said[&addr(2)], filter((200..300).chain([0])));
    assert_eq!(said[&addr(1)], filter((100..300).chain([0])));
    assert_eq!(filters.counters().cut, 3);
}

#[test]
fn only_changed_filters_are_announced_and_twice_a_second() {
    let mut filters = node(3, 2);
    let all = |said: BTreeMap<NodeAddr, Bloom>| said.len();
    assert_eq!(all(said(&mut filters, 0)), 3);
    for (now, sequence) in (100..500).step_by(50).zip(1..) {
        tell(&mut filters, now, 1, sequence, &filter([1, 10 + sequence as u32])).unwrap();
        assert_eq!(all(said(&mut filters, now)), 0);
    }
    assert_eq!(filters.deadline(), 500);
    let said_now = said(&mut filters, 500);
    assert_eq!(said_now.len(), 2, "neighbour 1 hears nothing new");
    assert_eq!(said_now[&addr(2)], filter([0, 1, 18]));
    // A change and its reversal within the pause cause no announcement either.
    tell(&mut filters, 600, 1, 90, &filter([1])).unwrap();
    tell(&mut filters, 700, 1, 91, &filter([1, 18])).unwrap();
    assert_eq!(all(said(&mut filters, 1_000)), 0);
    // The filter of a neighbour that is not in the tree is not announced further.
    tell(&mut filters, 1_100, 3, 1, &filter([3])).unwrap();
    assert_eq!(all(said(&mut filters, 1_999)), 0);
    assert_eq!(filters.peers_that_may_reach(&addr(3)).collect::<Vec<_>>(), [addr(3)]);
}

#[test]
fn new_keys_of_an_idle_link_cause_no_repeat() {
    let mut filters = node(1, 1);
    let peer = addr(1);
    let mut times = Vec::new();
    for second in 0..4 * 3_600 {
        let now = second * 1_000;
        // The ends agree again after 20 s each time.
        match second % 1_080 {
            60 if second < 3_600 => filters.set_idle(now, peer, true),
            0 if second > 1_000 => filters.set_idle(now, peer, false),
            20 if second > 1_000 => filters.set_idle(now, peer, true),
            _ => {}
        }
        times.extend(std::iter::from_fn(|| filters.poll_announce(now)).map(|_| second));
    }
    assert_eq!(
        times,
        [0, 2, 6, 14, 30, 62, 126, 254, 510, 1_022, 2_046, 4_094, 7_694, 11_294]
    );
    // Payload that goes on does.
    filters.set_idle(14_400_000, peer, false);
    assert_eq!(filters.deadline(), 14_400_000 + MAX_REPEAT);
}

#[test]
fn an_announcement_is_repeated_ever_more_slowly() {
    let mut filters = node(1, 1);
    let mut times = Vec::new();
    let mut last = 0;
    while filters.deadline() < 3_600_000 {
        let now = filters.deadline();
        for (_, body) in std::iter::from_fn(|| filters.poll_announce(now)) {
            let sequence = FilterAnnounce::parse(&body).unwrap().sequence;
            assert!(sequence > last, "a repeat is accepted");
            last = sequence;
            times.push(now / 1_000);
        }
    }
    assert_eq!(times[..9], [0, 2, 6, 14, 30, 62, 126, 254, 510]);
    assert_eq!(times.last(), Some(&3_510));
    assert_eq!(filters.counters().repeated, times.len() as u64 - 1);
    assert_eq!(filters.counters().sent, 1);
}

#[test]
fn a_node_that_relays_nothing_is_announced_alone() {
    let mut filters = node(2, 0);
    tell(&mut filters, 0, 1, 1, &filter([1, 5])).unwrap();
    assert_eq!(said(&mut filters, 0)[&addr(2)], filter([0]));
    assert!(filters.may_reach(&addr(1), &addr(5)));
}

#[test]
fn a_flood_costs_no_memory_and_few_announcements() {
    let mut filters = node(20, 20);
    (1..=20).for_each(|peer| _ = tell(&mut filters, 0, peer, 1, &filter([peer])));
    said(&mut filters, 0);
    let (bytes, before) = (filters.bytes(), filters.counters().sent);
    let mut bits = [0; FILTER_LEN];
    for now in 1..10_000_u64 {
        bits[now as usize % FILTER_LEN] ^= now as u8;
        let announce = FilterAnnounce {
            sequence: 1 + now,
            hash_count: HASHES,
            bits: &bits,
        };
        let _ = filters.handle_announce(now, &addr(1), &announce);
        while filters.poll_announce(now).is_some() {}
    }
    assert_eq!(filters.bytes(), bytes);
    assert!(bytes < 20 * 1_200 + 4_096, "{bytes}");
    assert!(filters.counters().sent - before <= 20 * 19);
    filters.check_invariants().unwrap();
}

#[test]
fn a_neighbour_that_announces_without_a_pause_is_held_to_a_rate() {
    let mut filters = node(2, 2);
    let accepted = |filters: &mut Filters, peer: u32, times: std::ops::Range<u64>| {
        let told = times.map(|n| tell(filters, n / 5, peer, 1 + n, &filter([n as u32 % 300])));
        told.filter(Result::is_ok).count()
    };
    // 5,000 a second for 10 s.
    assert_eq!(accepted(&mut filters, 1, 0..50_000), 16 + 99);
    assert!(filters.counters().too_often > 49_000);
    assert_eq!(tell(&mut filters, 10_000, 2, 1, &filter([2])), Ok(true));
}

/// The events of one node. Neighbours are 1 to 6, addresses 0 to 30.
#[derive(Clone, Debug)]
enum Event {
    Up(u32),
    Down(u32),
    Tree(Vec<u32>),
    Local(Vec<u32>),
    Announce(u32, Vec<u32>),
    Wait(u64),
}

fn event() -> impl Strategy<Value = Event> {
    let peer = || 1_u32..7;
    let addresses = || prop::collection::vec(0_u32..30, 0..8);
    prop_oneof![
        peer().prop_map(Event::Up),
        peer().prop_map(Event::Down),
        prop::collection::vec(peer(), 0..4).prop_map(Event::Tree),
        addresses().prop_map(Event::Local),
        (peer(), addresses()).prop_map(|(peer, addresses)| Event::Announce(peer, addresses)),
        (peer(), addresses()).prop_map(|(peer, addresses)| Event::Announce(peer, addresses)),
        (0_u64..1_200).prop_map(Event::Wait),
    ]
}

/// The same node with plain lists: the last announcement of each neighbour that is up.
#[derive(Default)]
struct Model {
    peers: BTreeMap<u32, Vec<u32>>,
    tree: Vec<u32>,
    local: Vec<u32>,
}

impl Model {
    fn outgoing(&self, to: u32) -> Bloom {
        let others = self.tree.iter().filter(|peer| **peer != to);
        let others = others.filter_map(|peer| self.peers.get(peer)).flatten();
        filter(others.chain(&self.local).copied().chain([0]))
    }
}

proptest! {
    #[test]
    fn a_node_says_what_the_model_says_and_not_too_often(events in prop::collection::vec(event(), 1..80)) {
        let mut filters = Filters::new(addr(0));
        let mut model = Model::default();
        // The last announcement to each neighbour that is up, and its time.
        let mut told: BTreeMap<NodeAddr, (u64, Bloom)> = BTreeMap::new();
        let (mut now, mut sequence) = (0, 0);
        // The last wait is long enough for everything that is pending.
        for event in events.into_iter().chain([Event::Wait(MIN_PAUSE)]) {
            match event {
                Event::Up(peer) => {
                    filters.peer_up(now, addr(peer));
                    model.peers.insert(peer, Vec::new());
                    told.remove(&addr(peer));
                }
                Event::Down(peer) => {
                    filters.peer_down(now, &addr(peer));
                    model.peers.remove(&peer);
                    told.remove(&addr(peer));
                }
                Event::Tree(peers) => {
                    filters.set_tree_peers(now, peers.iter().copied().map(addr));
                    model.tree = peers;
                }
                Event::Local(addresses) => {
                    filters.set_local(now, addresses.iter().copied().map(addr));
                    model.local = addresses;
                }
                Event::Announce(peer, addresses) => {
                    sequence += 1;
                    let accepted = tell(&mut filters, now, peer, sequence, &filter(addresses.iter().copied()));
                    if accepted == Err(FilterError::TooOften) {
                        continue;
                    }
                    let known = model.peers.get_mut(&peer).map(|known| *known = addresses);
                    prop_assert_eq!(accepted.is_ok(), known.is_some());
                }
                Event::Wait(pause) => now += pause,
            }
            for (to, bits) in said(&mut filters, now) {
                if let Some((at, before)) = told.insert(to, (now, bits.clone())) {
                    let pause = if bits == before { FIRST_REPEAT } else { MIN_PAUSE };
                    prop_assert!(now - at >= pause, "{} after {}", now, at);
                }
            }
            for dest in 0..30 {
                let may: Vec<NodeAddr> = filters.peers_that_may_reach(&addr(dest)).collect();
                for (peer, known) in &model.peers {
                    let listed = may.contains(&addr(*peer));
                    prop_assert_eq!(listed, filters.may_reach(&addr(*peer), &addr(dest)));
                    prop_assert!(listed || !known.contains(&dest));
                }
            }
        }
        for peer in model.peers.keys() {
            prop_assert_eq!(&told[&addr(*peer)].1, &model.outgoing(*peer));
        }
    }
}
