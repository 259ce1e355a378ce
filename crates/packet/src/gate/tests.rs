//! Floods at the gate, and the messages that pass during them.

use weft_noise::tag::TagKeys;
use weft_noise::{Identity, SecretKey};

use super::*;

/// Each pool has a quarter of this.
const LIMITS: HandshakeLimits = HandshakeLimits {
    per_second: 400,
    key: [5; 16],
};
const ME: u8 = 200;

fn identity(number: u8) -> Identity {
    Identity::new(SecretKey::from_bytes(&[number; 32]).unwrap())
}

fn addr(number: u8) -> NodeAddr {
    identity(number).node_addr()
}

fn host(last: u8) -> IpAddr {
    IpAddr::from([192, 0, 2, last])
}

fn expected(number: u8) -> Expected {
    Expected {
        peer: addr(number),
        hosts: vec![host(number)],
        tag: Some(TagKeys::new(&identity(ME), &identity(number).public()).theirs),
    }
}

/// Makes a gate that knows peers 1 to `count`, each at a host of its own.
fn gate(count: u8) -> Gate {
    let mut gate = Gate::new(LIMITS);
    for number in 1..=count {
        gate.expect(0, expected(number));
    }
    gate
}

#[derive(Clone, Copy)]
struct Message {
    noise: [u8; fmp::NOISE_MSG1_LEN],
    index: u32,
}

impl Message {
    fn msg1(&self) -> fmp::Msg1<'_> {
        fmp::Msg1 {
            sender_idx: self.index,
            noise: &self.noise,
        }
    }
}

/// Makes a msg1 with a number of its own, and no tag.
fn junk(number: u64) -> Message {
    let mut noise = [0; fmp::NOISE_MSG1_LEN];
    noise[..8].copy_from_slice(&number.to_le_bytes());
    // The index matches no tag of the few peers in these tests, whatever the number.
    Message { noise, index: 3 }
}

/// Like `junk`, with the tag of a peer.
fn tagged(peer: u8, number: u64) -> Message {
    let mut message = junk(number);
    let keys = TagKeys::new(&identity(peer), &identity(ME).public());
    message.index = keys.ours.tag(Digest::of_msg1(&message.noise)) | 5;
    message
}

fn sender(gate: &mut Gate, now: u64, from: IpAddr, message: &Message) -> Option<NodeAddr> {
    gate.sender_of(now, from, message.index, Digest::of_msg1(&message.noise))
}

/// Returns how many messages of a flood of 5,000 a second pass. `source` gives the source of each
/// by its number.
fn flood(gate: &mut Gate, seconds: u64, source: impl Fn(u64) -> IpAddr) -> u64 {
    flood_from(gate, 0, seconds, source)
}

fn flood_from(gate: &mut Gate, start: u64, seconds: u64, source: impl Fn(u64) -> IpAddr) -> u64 {
    let admitted = (0..5_000 * seconds).filter(|n| gate.admits_msg1(start + n / 5, source(*n), &junk(*n).msg1()));
    admitted.count() as u64
}

#[test]
fn a_flood_costs_no_more_than_the_budget() {
    let seconds = 10;
    let spoofed = |n: u64| IpAddr::from([10, n as u8, (n >> 8) as u8, 1]);
    let strangers = flood(&mut gate(8), seconds, spoofed);
    assert!((900..=100 * (seconds + 1)).contains(&strangers), "{strangers}");
    let known = flood(&mut gate(8), seconds, |n| host(1 + (n % 8) as u8));
    let most = (100 + 8 * RESERVE.per_second) * (seconds + 1) + 8 * RESERVE.burst;
    assert!((900..=most).contains(&known), "{known}");
}

#[test]
fn one_network_prefix_leaves_room_for_others() {
    let mut gate = gate(1);
    let one = flood(&mut gate, 10, |n| IpAddr::from([203, 0, 113, n as u8]));
    assert!(one <= 100 / OF_PREFIX * (10 + 1) + 2, "{one}");
    let other = IpAddr::from([198, 51, 100, 9]);
    assert!(gate.admits_msg1(10_000, other, &junk(0).msg1()));
    let ipv6 = |last: u16| IpAddr::from([0x2001, 0xdb8, 0, 0x4200, 0, 0, 0, last]);
    let one = (0..1_000).filter(|n| gate.admits_msg1(20_000, ipv6(*n), &junk(0).msg1()));
    assert!(one.count() <= 13);
}

#[test]
fn a_known_host_leaves_room_for_others_and_strangers_for_all() {
    let mut gate = gate(3);
    flood(&mut gate, 10, |_| host(1));
    assert!(gate.admits_msg1(10_000, host(2), &junk(0).msg1()));
    flood_from(&mut gate, 10_000, 10, |n| {
        IpAddr::from([10, n as u8, (n >> 8) as u8, 1])
    });
    assert!(gate.admits_msg1(20_000, host(3), &junk(0).msg1()));
}

#[test]
fn a_tag_passes_any_flood_from_any_address() {
    let mut gate = gate(8);
    let sources = [host(1), host(2), host(77), IpAddr::from([203, 0, 113, 1])];
    for (n, from) in (0..).zip(sources) {
        flood_from(&mut gate, n * 2_000, 2, |_| from);
        assert!(gate.admits_msg1((n + 1) * 2_000, from, &tagged(1, n).msg1()), "{from}");
    }
}

#[test]
fn a_tag_on_another_message_or_of_another_direction_is_none() {
    let mut gate = gate(8);
    let from = host(77);
    flood(&mut gate, 2, |_| from);
    let mut altered = tagged(1, 1);
    altered.noise[100] ^= 1;
    let passed = (0..100).filter(|n| {
        altered.noise[99] = *n;
        gate.admits_msg1(2_000, from, &altered.msg1())
    });
    assert!(passed.count() < 5);
    let mut reflected = junk(1);
    let keys = TagKeys::new(&identity(ME), &identity(1).public());
    reflected.index = keys.ours.tag(Digest::of_msg1(&reflected.noise));
    assert!(sender(&mut gate, 2_000, from, &reflected).is_none());
}

/// Each recording has a valid tag under sixteen indices, and there may be hundreds of recordings.
#[test]
fn copies_and_recordings_leave_room_for_a_new_message() {
    for count in [3, 20, 500] {
        let mut gate = gate(2);
        let recorded: Vec<Message> = (0..count).map(|n| tagged(1, n)).collect();
        let seconds = 120;
        let (mut passed, mut late) = (0, 0);
        for n in 0..5_000 * seconds {
            let Message { noise, index } = recorded[n as usize % recorded.len()];
            let index = index & TAG_MASK | (n / 7 % 16) as u32;
            let message = Message { noise, index };
            let admitted = u32::from(gate.admits_msg1(n / 5, host(9), &message.msg1()));
            passed += admitted;
            late += if n > 5_000 * 90 { admitted } else { 0 };
        }
        // Those that may be repeats pass five times a second each. The others pass by a random
        // draw, like messages without a tag.
        let repeats = 5 * count.min(RECENT as u64) as u32;
        let lots = 13;
        assert!(late <= 31 * (repeats + lots), "{count}: {late}");
        assert!(passed > 0);
        for (n, peer) in [(9_000, 1), (9_001, 1), (9_002, 2)] {
            assert!(
                gate.admits_msg1(seconds * 1_000, host(1), &tagged(peer, n).msg1()),
                "{count}"
            );
        }
    }
}

/// During a flood, comparisons suffice for half of the peers at a time.
#[test]
fn comparisons_are_bounded_and_each_peer_has_its_turn() {
    let mut gate = Gate::new(LIMITS);
    let keys = [1, 2].map(|peer| TagKeys::new(&identity(ME), &identity(peer).public()).theirs);
    for n in 0..2_000u32 {
        let mut peer = [0; 16];
        peer[..4].copy_from_slice(&n.to_be_bytes());
        let tag = Some(keys[usize::from(n != 1_999)].clone());
        let (peer, hosts) = (NodeAddr::new(peer), Vec::new());
        gate.expect(0, Expected { peer, hosts, tag });
    }
    gate.trials.take(TRIALS, 1_000, usize::MAX);
    let found = (1..=40).filter(|n| sender(&mut gate, 1_000 + n, host(77), &tagged(1, *n)).is_some());
    assert!(found.count() >= 20);
}

#[test]
fn a_flood_of_answers_is_bounded_and_one_with_a_tag_passes() {
    let mut gate = gate(2);
    gate.arm(0, 7, addr(1));
    let noise = |n: u64| {
        let mut noise = [0; fmp::NOISE_MSG2_LEN];
        noise[..8].copy_from_slice(&n.to_le_bytes());
        noise
    };
    let answer = |gate: &mut Gate, now: u64, from, index: u32, n: u64, tag: u32| {
        let noise = noise(n);
        let msg2 = fmp::Msg2 {
            sender_idx: tag,
            receiver_idx: index,
            noise: &noise,
        };
        gate.admits_msg2(now, from, &msg2)
    };
    let admitted = (0..80_000u64).filter(|n| answer(&mut gate, n / 40, host((n % 2) as u8 + 76), 7, *n, 3));
    let admitted = admitted.count() as u64;
    assert!(
        (16..=2 * ANSWERS.per_second + ANSWERS.burst).contains(&admitted),
        "{admitted}"
    );
    assert!(answer(&mut gate, 2_000, host(1), 7, 1, 3), "from where it was asked");
    let keys = TagKeys::new(&identity(1), &identity(ME).public());
    let tag = keys.ours.tag(Digest::of_msg2(&noise(9), 7));
    assert!(answer(&mut gate, 2_000, host(77), 7, 9, tag | 1));
    let old = keys.ours.tag(Digest::of_msg2(&noise(9), 8));
    let passed = (0..100).filter(|_| answer(&mut gate, 2_000, host(77), 7, 9, old | 1));
    assert!(passed.count() < 10, "a tag is of one question");
    assert!(
        !answer(&mut gate, 2_000, host(1), 8, 9, tag),
        "nothing was asked with this index"
    );
    gate.disarm(7);
    assert!(!answer(&mut gate, 2_000, host(1), 7, 9, tag));
}

#[test]
fn answers_with_a_tag_have_a_rate_that_no_others_use() {
    let mut gate = gate(1);
    gate.arm(0, 7, addr(1));
    let keys = TagKeys::new(&identity(1), &identity(ME).public());
    let mut admitted = |now: u64, n: u64, tagged: bool| {
        let mut noise = [0; fmp::NOISE_MSG2_LEN];
        noise[..8].copy_from_slice(&n.to_le_bytes());
        let tag = keys.ours.tag(Digest::of_msg2(&noise, 7));
        let msg2 = fmp::Msg2 {
            sender_idx: if tagged { tag } else { !tag },
            receiver_idx: 7,
            noise: &noise,
        };
        gate.admits_msg2(now, host(77), &msg2)
    };
    for n in 0..10_000 {
        admitted(n / 10, n, false);
    }
    for n in 0..ANSWERS.burst {
        assert!(admitted(1_000, n, true), "{n}");
    }
    assert!(!admitted(1_000, 0, true));
}

#[test]
fn a_forgotten_peer_leaves_no_entries() {
    let mut gate = gate(3);
    let together = Expected {
        hosts: vec![host(1), host(2)],
        ..expected(3)
    };
    gate.expect(0, together);
    assert_eq!(gate.len(), (2, 3, 0));
    gate.forget(addr(1));
    assert_eq!(gate.len(), (2, 2, 0), "another peer is expected there too");
    gate.forget(addr(3));
    assert_eq!(gate.len(), (1, 1, 0));
    gate.forget(addr(2));
    assert_eq!(gate.len(), (0, 0, 0));
}

#[test]
fn a_small_budget_still_serves() {
    let mut gate = Gate::new(HandshakeLimits {
        per_second: 0,
        key: [0; 16],
    });
    assert!(gate.admits_msg1(1_000, host(1), &junk(1).msg1()));
}

#[test]
fn an_ipv4_address_in_an_ipv6_socket_is_one_of_ipv4() {
    let v4 = IpAddr::from([192, 0, 2, 1]);
    let mapped = IpAddr::from([0, 0, 0, 0, 0, 0xffff, 0xc000, 0x0201]);
    assert_eq!(prefix(v4), prefix(mapped));
    assert_ne!(prefix(v4), prefix(IpAddr::from([192, 0, 3, 1])));
}

#[test]
fn a_quiet_host_of_a_peer_is_served_while_others_use_the_pool() {
    let mut gate = gate(8);
    flood(&mut gate, 10, |n| host(1 + (n % 7) as u8));
    let served = (0..RESERVE.burst).filter(|n| gate.admits_msg1(10_000, host(8), &junk(*n).msg1()));
    assert_eq!(served.count() as u64, RESERVE.burst);
}

#[test]
fn a_host_of_a_peer_gets_half_a_burst_and_a_network_an_eighth() {
    let at_once = |from: IpAddr| {
        let mut gate = gate(1);
        (0..1_000)
            .filter(|n| gate.admits_msg1(0, from, &junk(*n).msg1()))
            .count()
    };
    let known = at_once(host(1));
    assert!((26..=54).contains(&known), "{known}");
    let stranger = at_once(IpAddr::from([198, 51, 100, 9]));
    assert!((7..=12).contains(&stranger), "{stranger}");
}

/// With draws that are always the same, a flood of little more than the rate would take every token
/// as soon as it exists.
#[test]
fn strangers_that_ask_seldom_get_their_part_beside_a_flood() {
    let mut gate = gate(1);
    let mut seldom = 0;
    for n in 0..30_000_u64 {
        let now = n * 9;
        let from = IpAddr::from([10, n as u8, (n >> 8) as u8, 1]);
        gate.admits_msg1(now, from, &junk(n).msg1());
        if n % 100 == 0 {
            let from = IpAddr::from([198, 51, 100, 9]);
            seldom += u32::from(gate.admits_msg1(now + 1, from, &junk(n).msg1()));
        }
    }
    assert!(seldom > 225, "{seldom} of 300");
}

#[test]
fn as_many_messages_are_known_as_recordings_of_a_peer_are_kept() {
    let mut gate = gate(1);
    let digest = |n: u64| Digest::of_msg1(&junk(n).noise);
    let all = (RECENT + RECORDED) as u64;
    for n in 0..all {
        assert!(gate.admits_tagged(n * 1_000, addr(1), digest(n)));
    }
    let late = all * 1_000;
    assert!(!gate.admits_tagged(late, addr(1), digest(0)), "the oldest");
    assert!(gate.admits_tagged(late, addr(1), digest(all)));
    assert!(gate.admits_tagged(late, addr(1), digest(0)), "it has been forgotten");
    assert!(!gate.admits_tagged(late, addr(1), digest(2)), "and no other");
}

#[test]
fn a_peer_keeps_its_host_when_another_one_there_is_forgotten() {
    let mut gate = gate(1);
    let there = Expected {
        hosts: vec![host(1)],
        ..expected(2)
    };
    gate.expect(0, there);
    gate.forget(addr(1));
    // No comparisons with the tags of other peers remain.
    gate.trials.take(TRIALS, 0, usize::MAX);
    assert_eq!(sender(&mut gate, 0, host(1), &tagged(2, 1)), Some(addr(2)));
}

#[test]
fn a_peer_expected_again_has_a_new_tag_and_no_messages() {
    let mut gate = gate(1);
    let used = (0..TAGGED.burst).filter(|n| gate.admits_tagged(0, addr(1), Digest::of_msg1(&junk(*n).noise)));
    assert_eq!(used.count() as u64, TAGGED.burst);
    let of_other = Expected {
        peer: addr(1),
        ..expected(2)
    };
    gate.expect(0, of_other);
    assert_eq!(sender(&mut gate, 0, host(2), &tagged(1, 1)), None);
    assert_eq!(sender(&mut gate, 0, host(2), &tagged(2, 1)), Some(addr(1)));
    assert!(!gate.admits_tagged(0, addr(1), Digest::of_msg1(&junk(99).noise)));
    gate.forget(addr(1));
    assert_eq!(gate.len(), (0, 0, 0));
}
