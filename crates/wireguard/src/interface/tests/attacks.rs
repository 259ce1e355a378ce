//! What a network and strangers do to a pair.

use super::net::Datagram;
use super::*;
use crate::handshake::begin;
use crate::interface::admission::Verdict;

/// Keeps the datagrams of a type that pass.
fn kept(net: &mut Net, kind: u8) -> Rc<RefCell<Vec<Datagram>>> {
    let kept = Rc::new(RefCell::new(Vec::new()));
    let store = Rc::clone(&kept);
    net.rule = Box::new(move |datagram| {
        if datagram.kind() == kind {
            store.borrow_mut().push(datagram.clone());
        }
        true
    });
    kept
}

fn somewhere(number: u16) -> SocketAddr {
    SocketAddr::from(([203, 0, 113, 9], 1_000 + number))
}

#[test]
fn a_repeated_initiation_is_not_answered() {
    let mut net = Net::pair(1);
    let initiations = kept(&mut net, 1);
    net.talk([0, 1], 0, (10, 100));
    let first = initiations.borrow()[0].clone();
    let before = net.sent;
    net.inject(Datagram {
        from: somewhere(0),
        ..first
    });
    net.run(1_000);
    assert_eq!(net.sent[2], before[2]);
    assert_eq!(net.ends[1].interface.counters().replayed, 1);
    assert_eq!(net.ends[1].interface.endpoint(&net.key(0)), Some(net.ends[0].addr));
}

/// A process that has restarted takes an initiation that was kept for a new one. It costs a response, and moves nothing
/// and ends no keys that are in use.
#[test]
fn an_initiation_from_before_a_restart_moves_nothing() {
    let mut net = Net::pair(2);
    let initiations = kept(&mut net, 1);
    net.talk([0, 1], 0, (10, 100));
    net.restart(1);
    net.acquaint(1, 0, PeerSetup::default());
    net.talk([1, 0], 100, (10, 100));
    let first = initiations.borrow()[0].clone();
    let before = net.sent[2];
    net.inject(Datagram {
        from: somewhere(0),
        ..first
    });
    net.run(1_000);
    assert_eq!(net.sent[2], before + 1, "it is answered");
    assert_eq!(net.ends[1].interface.endpoint(&net.key(0)), Some(net.ends[0].addr));
    assert_eq!(net.talk([0, 1], 1_000, (50, 100)), [50, 50]);
}

/// An attacker on the path passes datagrams on from addresses of its own, so each end takes the other one to be there. Once
/// it is gone, they meet where they were set to be.
#[test]
fn ends_that_were_led_astray_meet_again() {
    let mut net = Net::pair(10);
    net.acquaint(1, 0, PeerSetup::default());
    net.talk([0, 1], 0, (10, 100));
    net.lead_astray([somewhere(1), somewhere(2)]);
    for end in [0, 1] {
        let endpoint = net.ends[end].interface.endpoint(&net.key(1 - end));
        assert_eq!(endpoint, Some(somewhere(end as u16 + 1)));
    }
    net.talk([0, 1], 400, (400, 100));
    assert_eq!(net.talk([0, 1], 1_000, (50, 100)), [50, 50]);
}

#[test]
fn initiations_of_one_peer_come_20_ms_apart() {
    let mut net = Net::pair(3);
    let [one, other] = [0, 1].map(|end| PrivateKey::from_bytes([end + 1; 32]));
    let own = Own::new(one);
    let remote = Remote::new(&own, other.public(), None).unwrap();
    let mut jar = crate::cookie::Jar::new(&other.public());
    let mut rng = ChaCha20Rng::seed_from_u64(1);
    for number in 0..10_u8 {
        let mut timestamp = [0x40; 12];
        timestamp[11] = number;
        let (_, message) = begin(&own, &remote, (u32::from(number), timestamp), &mut rng).unwrap();
        let mut bytes = message.to_bytes();
        jar.sign(net.now, &mut bytes);
        net.inject(Datagram {
            from: somewhere(0),
            to: net.ends[1].addr,
            bytes,
        });
        net.run(FLOOD / 2);
    }
    net.run(100);
    assert_eq!(net.sent[2], 5);
    assert_eq!(net.ends[1].interface.counters().replayed, 5);
    assert_eq!(net.ends[1].interface.indices.len(), 1, "one pair of keys that waits");
}

#[test]
fn forged_messages_change_nothing_and_are_silent() {
    let mut net = Net::pair(4);
    let all = Rc::new(RefCell::new(Vec::new()));
    let store = Rc::clone(&all);
    net.rule = Box::new(move |datagram| {
        store.borrow_mut().push(datagram.clone());
        true
    });
    net.talk([0, 1], 0, (10, 100));
    let kept = all.borrow().clone();
    let before = net.sent;
    for datagram in kept.iter().filter(|datagram| datagram.kind() < 4) {
        for at in 0..datagram.bytes.len() {
            let mut forged = Datagram {
                from: somewhere(1),
                ..datagram.clone()
            };
            forged.bytes[at] ^= 0x20;
            net.inject(forged);
            net.run(1);
        }
    }
    net.run(1_000);
    assert_eq!(net.sent[1..4], before[1..4]);
    for end in [0, 1] {
        let endpoint = net.ends[end].interface.endpoint(&net.key(1 - end));
        assert_eq!(endpoint, Some(net.ends[1 - end].addr));
    }
    assert_eq!(net.talk([0, 1], 100, (10, 100)), [10, 10]);
}

/// A response that was changed on the way costs the attempt nothing: the true one still counts.
#[test]
fn a_forged_response_does_not_end_the_attempt() {
    let mut net = Net::pair(5);
    let own = net.ends[0].interface.own.clone();
    let mut labels = crate::cookie::Jar::new(own.public());
    net.rule = Box::new(|datagram| datagram.kind() != 2);
    let responses = Rc::new(RefCell::new(Vec::new()));
    let store = Rc::clone(&responses);
    net.rule = Box::new(move |datagram| {
        let is_response = datagram.kind() == 2;
        if is_response {
            store.borrow_mut().push(datagram.clone());
        }
        !is_response
    });
    net.say(0, 1, 1);
    net.run(100);
    net.rule = Box::new(|_| true);
    let kept = responses.borrow()[0].clone();
    let mut forged = kept.clone();
    forged.bytes.truncate(60);
    forged.bytes[50] ^= 1;
    labels.sign(net.now, &mut forged.bytes);
    net.inject(forged);
    net.run(100);
    assert_eq!(net.ends[0].interface.counters().forged, 1);
    net.inject(kept);
    net.run(100);
    assert_eq!(net.ends[1].received, [1]);
}

/// Initiations of a stranger in a steady flood from many addresses; its datagrams pass the peer's in random order.
struct Flood {
    rng: ChaCha20Rng,
    bytes: Vec<u8>,
    to: SocketAddr,
}

impl Flood {
    fn new(net: &Net, end: usize) -> Self {
        let stranger = Own::new(PrivateKey::from_bytes([77; 32]));
        let remote = Remote::new(&stranger, net.key(end), None).unwrap();
        let mut rng = ChaCha20Rng::seed_from_u64(7);
        let (_, message) = begin(&stranger, &remote, (1, [9; 12]), &mut rng).unwrap();
        let mut bytes = message.to_bytes();
        crate::cookie::Jar::new(&net.key(end)).sign(0, &mut bytes);
        let to = net.ends[end].addr;
        Self { rng, bytes, to }
    }

    fn pass(&mut self, net: &mut Net, ms: u64, each_ms: u32) {
        for _ in 0..ms {
            for _ in 0..each_ms {
                let bytes = self.bytes.clone();
                let from = somewhere(self.rng.next_u32() as u16 & 0x7fff);
                let to = self.to;
                net.inject_early(Datagram { from, to, bytes }, u64::from(self.rng.next_u32() % 2));
            }
            net.run(1);
        }
    }
}

/// A flood from addresses that are not proven makes the node ask for cookies. A peer that receives at its address passes,
/// and the node gives less back than the flood sends.
#[test]
fn a_flood_is_asked_for_cookies_and_a_peer_passes() {
    for seed in 0..5 {
        let mut net = Net::pair(seed);
        let mut flood = Flood::new(&net, 1);
        flood.pass(&mut net, 1_000, 15);
        net.say(0, 1, 1);
        flood.pass(&mut net, 9_000, 15);
        assert_eq!(net.ends[1].received, [1], "seed {seed}");
        let counters = *net.ends[1].interface.counters();
        let most = UNPROVEN.burst + 10 * UNPROVEN.per_second;
        assert!(counters.strangers <= most, "{counters:?}");
        assert!(counters.cookies > 100_000, "{counters:?}");
        let [_, _, responses, replies, _] = net.sent;
        assert!(92 * responses + 64 * replies < 15 * 10_000 * 148 / 2);
    }
}

/// The node itself begins a handshake while it is flooded: the index in the answer shows that the peer has its message.
#[test]
fn a_flooded_node_reaches_its_peer() {
    let mut net = Net::pair(6);
    net.acquaint(1, 0, PeerSetup::default());
    let mut flood = Flood::new(&net, 1);
    flood.pass(&mut net, 1_000, 15);
    net.say(1, 0, 1);
    flood.pass(&mut net, 200, 15);
    assert_eq!(net.ends[0].received, [1]);
}

/// More than a node answers with cookies is dropped by lot: each message has the same chance.
#[test]
fn cookies_have_a_rate() {
    let own = PrivateKey::from_bytes([1; 32]).public();
    let mut rng = ChaCha20Rng::seed_from_u64(9);
    let mut admission = Admission::new(&own);
    let message = vec![5; 148];
    let mut asked = 0;
    for count in 0..200_000_u64 {
        let from = somewhere(count as u16 & 0x7fff);
        let verdict = admission.judge(count / 100, (from, 1), &message, &mut rng);
        asked += u64::from(matches!(verdict, Verdict::Prove(_)));
    }
    let most = REPLIES.burst + 2 * REPLIES.per_second;
    assert!((most * 9 / 10..=most).contains(&asked), "{asked}");
}

/// Passes messages with a cookie at a node under load, and returns how many are read.
fn proven(admission: &mut Admission, now: u64, from: &str) -> u64 {
    let own = PrivateKey::from_bytes([1; 32]).public();
    let mut rng = ChaCha20Rng::seed_from_u64(8);
    let from: SocketAddr = from.parse().unwrap();
    let mut jar = crate::cookie::Jar::new(&own);
    let mut message = vec![5; 116];
    jar.sign(now, &mut message);
    for _ in 0..=UNPROVEN.burst {
        if let Verdict::Prove(reply) = admission.judge(now, (from, 1), &message, &mut rng) {
            jar.take(now, &reply);
        }
    }
    let mut message = vec![5; 116];
    jar.sign(now, &mut message);
    let mut judge = || admission.judge(now, (from, 1), &message, &mut rng);
    (0..100).map(|_| u64::from(judge() == Verdict::Read)).sum()
}

/// One address that is proven has its own rate, and addresses of one /48 share it.
#[test]
fn a_proven_address_has_a_rate() {
    let mut admission = Admission::new(&PrivateKey::from_bytes([1; 32]).public());
    for (from, read) in [
        ("192.0.2.1:1", PROVEN.burst),
        ("192.0.2.1:2", 0),
        ("[2001:db8::1]:1", PROVEN.burst),
        ("[2001:db8:0:9::2]:1", 0),
        ("[2001:db8:1::1]:1", PROVEN.burst),
    ] {
        assert_eq!(proven(&mut admission, 0, from), read, "{from}");
    }
}

#[test]
fn proven_addresses_have_a_rate_together() {
    let mut admission = Admission::new(&PrivateKey::from_bytes([1; 32]).public());
    let sites = ALL_PROVEN.burst / PROVEN.burst + 10;
    let read = (0..sites).map(|site| proven(&mut admission, 0, &format!("[2001:db8:{site:x}::1]:1")));
    assert_eq!(read.sum::<u64>(), ALL_PROVEN.burst);
}

/// Random bytes behind a true header, with a true MAC1.
#[test]
fn any_datagram_is_taken_without_a_panic() {
    let mut net = Net::pair(9);
    net.talk([0, 1], 0, (5, 100));
    let mut jar = crate::cookie::Jar::new(&net.key(1));
    let indices: Vec<u32> = net.ends[1].interface.indices.keys().copied().collect();
    for count in 0..5_000_u64 {
        let kind = (net.draw() % 5) as u8;
        let length = [(net.draw() % 200) as usize, 116, 60, 64][usize::from(kind.min(3))];
        let mut bytes: Vec<u8> = (0..length.max(12)).map(|_| net.draw() as u8).collect();
        bytes[..4].copy_from_slice(&[kind, 0, 0, 0]);
        let field = if kind == 2 { 8 } else { 4 };
        bytes[field..field + 4].copy_from_slice(&indices[0].to_le_bytes());
        if kind == 1 || kind == 2 {
            jar.sign(net.now, &mut bytes);
        }
        let at = At {
            now: net.now + 10 * count,
            ..net.at()
        };
        net.ends[1].interface.handle_datagram(at, somewhere(3), &bytes);
    }
    net.settle();
    let counters = *net.ends[1].interface.counters();
    assert!(
        counters.forged > 500 && counters.malformed > 500 && counters.unasked > 500,
        "{counters:?}"
    );
    assert_eq!(net.talk([0, 1], 100, (10, 100)), [10, 10]);
}

/// An initiation with each of its bytes changed, and a true MAC1 behind it.
#[test]
fn a_forged_initiation_is_not_answered() {
    let mut net = Net::pair(11);
    let initiations = kept(&mut net, 1);
    net.talk([0, 1], 0, (2, 100));
    let first = initiations.borrow()[0].clone();
    let mut jar = crate::cookie::Jar::new(&net.key(1));
    net.run(30_000);
    let before = net.sent[2];
    for at in 8..116 {
        let mut forged = first.clone();
        forged.bytes.truncate(116);
        forged.bytes[at] ^= 0x10;
        jar.sign(net.now, &mut forged.bytes);
        net.inject(forged);
    }
    net.run(1_000);
    assert_eq!(net.sent[2], before);
    assert_eq!(net.ends[1].interface.counters().forged, 108);
}
