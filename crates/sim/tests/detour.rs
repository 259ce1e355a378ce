//! Traffic bypasses a silent link or node long before the link is given up.

use weft_core::{Config, Event, Path};
use weft_sim::{Datagram, Fate, HostId, World};

fn meshed() -> Config {
    Config {
        mesh: true,
        ..Config::default()
    }
}

/// Hosts, and the pairs that dial.
fn net(seed: u64, hosts: usize, dials: &[(usize, usize)]) -> (World, Vec<HostId>) {
    let mut world = World::new(seed);
    let hosts: Vec<HostId> = (0..hosts).map(|_| world.add_host(meshed())).collect();
    for (from, to) in dials {
        world.add_peer(hosts[*from], hosts[*to], true);
    }
    (world, hosts)
}

/// Makes two hosts configured peers without addresses of each other.
fn acquaint(world: &mut World, a: HostId, b: HostId) {
    world.add_peer(a, b, false);
    world.add_peer(b, a, false);
}

/// A rule that drops the traffic between two hosts.
fn cut(world: &mut World, a: HostId, b: HostId) {
    let ends = [world.host(a).addr, world.host(b).addr];
    world.set_rule(move |_, d: &Datagram| {
        if ends.contains(&d.src) && ends.contains(&d.dst) {
            Fate::Drop
        } else {
            Fate::Pass
        }
    });
}

/// Pings as the ends see them: B answers each probe of A as soon as it arrives.
struct Pings {
    a: HostId,
    b: HostId,
    next: u32,
    heard: (usize, usize),
}

impl Pings {
    fn new(world: &World, a: HostId, b: HostId) -> Self {
        let heard = (world.host(a).received.len(), world.host(b).received.len());
        Self { a, b, next: 0, heard }
    }

    /// Sends five a second for `ms`. Returns how many were answered, and the longest time without
    /// an answer.
    fn run(&mut self, world: &mut World, ms: u64) -> (usize, u64) {
        let (start, before) = (world.now(), self.heard.0);
        let (mut last, mut gap) = (start, 0);
        while world.now() < start + ms {
            if (world.now() - start).is_multiple_of(200) {
                world.send(self.a, self.b, self.next, 1000);
                self.next += 1;
            }
            world.run(5);
            for _ in self.heard.1..world.host(self.b).received.len() {
                self.heard.1 += 1;
                world.send(self.b, self.a, self.heard.1 as u32, 1000);
            }
            let now = world.host(self.a).received.len();
            if now > self.heard.0 {
                gap = gap.max(world.now() - last);
                last = world.now();
                self.heard.0 = now;
            }
        }
        (self.heard.0 - before, gap.max(world.now() - last))
    }
}

/// The node through which one host reaches another; `None` for a direct path.
fn via(world: &World, from: HostId, to: HostId) -> Option<HostId> {
    let mut status = world.host(from).node.peer_status(world.now());
    match status.find(|p| p.key == world.host(to).key).unwrap().path? {
        Path::Direct(_) => None,
        Path::Relayed(via) => (0..).find(|id| world.host(*id).key == via),
    }
}

fn relayed(world: &World, from: HostId, to: HostId) -> bool {
    via(world, from, to).is_some()
}

/// A and B are linked and C knows both. L12's bound: ten pings, two seconds.
#[test]
fn a_cut_costs_less_than_two_seconds() {
    for seed in 0..10 {
        let (mut world, h) = net(seed, 3, &[(0, 1), (1, 0), (0, 2), (1, 2)]);
        world.run(5_000);
        let mut pings = Pings::new(&world, h[0], h[1]);
        pings.run(&mut world, 5_000);
        assert!(!relayed(&world, h[0], h[1]));
        cut(&mut world, h[0], h[1]);
        let (_, gap) = pings.run(&mut world, 10_000);
        assert!(gap < 2_000, "seed {seed}: {gap} ms");
        assert!(relayed(&world, h[0], h[1]) && relayed(&world, h[1], h[0]));
        assert_eq!(pings.run(&mut world, 60_000).0, 300, "seed {seed}: relayed");
        world.set_rule(|_, _| Fate::Pass);
        assert_eq!(pings.run(&mut world, 25_000).0, 125, "seed {seed}: back");
        assert!(!relayed(&world, h[0], h[1]) && !relayed(&world, h[1], h[0]));
    }
}

/// A and B are cut, and C carries, when nothing passes at all for two seconds: all three machines stand
/// still, or lose what they send. Each of them doubts the others then; C alone answers afterwards.
#[test]
fn a_detour_outlives_two_seconds_in_which_nothing_passes() {
    for seed in 0..10 {
        for (before, stands_still) in [
            (500, true),
            (2_000, true),
            (10_000, true),
            (2_000, false),
            (10_000, false),
        ] {
            let (mut world, h) = net(seed, 3, &[(0, 1), (1, 0), (0, 2), (1, 2)]);
            world.run(5_000);
            let mut pings = Pings::new(&world, h[0], h[1]);
            pings.run(&mut world, 5_000);
            cut(&mut world, h[0], h[1]);
            pings.run(&mut world, 2_000 + before);
            assert!(relayed(&world, h[0], h[1]) && relayed(&world, h[1], h[0]));
            if stands_still {
                h.iter().for_each(|id| world.suspend(*id));
                world.run(2_000);
                h.iter().for_each(|id| world.resume(*id));
            } else {
                world.set_rule(|_, _| Fate::Drop);
                pings.run(&mut world, 2_000);
                cut(&mut world, h[0], h[1]);
            }
            let (_, gap) = pings.run(&mut world, 30_000);
            let what = format!("seed {seed}, {before} ms after the cut, stands still: {stands_still}");
            assert!(gap < 2_000, "{what}: {gap} ms");
            assert!(relayed(&world, h[0], h[1]) && relayed(&world, h[1], h[0]), "{what}");
        }
    }
}

/// The longest time, in ms, in which B receives nothing of a load that A sends for `ms`. B itself sends
/// little.
fn silence_of_a_load(world: &mut World, [a, b]: [HostId; 2], ms: u64) -> u64 {
    let (start, mut last, mut gap) = (world.now(), world.now(), 0);
    let mut heard = world.host(b).received.len();
    for n in 0..ms / 10 {
        world.send(a, b, n as u32, 1000);
        if n.is_multiple_of(100) {
            world.send(b, a, n as u32, 100);
        }
        world.run(10);
        if world.host(b).received.len() > heard {
            heard = world.host(b).received.len();
            gap = gap.max(world.now() - last);
            last = world.now();
        }
    }
    assert_eq!(world.now(), start + ms / 10 * 10);
    gap.max(world.now() - last)
}

/// A and B are cut, and C carries, when all three machines stand still. The first one that runs again
/// doubts the others, and C tells A that it does not reach B. All three answer a moment later: A does not
/// go back to the link that is cut, of which nothing is heard.
#[test]
fn a_relay_that_stood_still_is_used_again_at_once() {
    for seed in 0..3 {
        for order in [[0, 1, 2], [0, 2, 1], [2, 0, 1], [2, 1, 0]] {
            for (delay, lag) in [(0, 30), (1_500, 5), (1_500, 30), (4_000, 5)] {
                let (mut world, h) = net(seed, 3, &[(0, 1), (1, 0), (0, 2), (1, 2), (2, 0), (2, 1)]);
                let ends = [h[0], h[1]];
                world.run(5_000);
                silence_of_a_load(&mut world, ends, 3_000);
                cut(&mut world, h[0], h[1]);
                silence_of_a_load(&mut world, ends, 1_500 + delay);
                h.iter().for_each(|id| world.suspend(*id));
                world.run(2_000);
                for n in order {
                    world.resume(h[n]);
                    world.run(lag);
                }
                let gap = silence_of_a_load(&mut world, ends, 20_000);
                assert!(gap <= 1_500, "seed {seed}, {order:?}, {delay} and {lag} ms: {gap} ms");
            }
        }
    }
}

/// A dials B, and both dial C. L14: A is direct as soon as it is reached after its restart, although C
/// would carry. B, which does not dial, is reached through C until A notices. Hosts of the simulator
/// send no ICMP errors, by which a real one notices at once.
#[test]
fn a_restarted_node_is_direct_within_five_seconds() {
    for seed in 0..10 {
        let (mut world, h) = net(seed, 3, &[(0, 1), (0, 2), (1, 2)]);
        world.add_peer(h[1], h[0], false);
        world.run(5_000);
        for restarted in [h[0], h[1], h[0]] {
            let other = h[0] + h[1] - restarted;
            world.kill(restarted);
            world.run(50);
            world.restart(restarted);
            let (back, mut pings) = (world.now(), Pings::new(&world, restarted, other));
            while pings.run(&mut world, 5).0 == 0 {
                assert!(world.now() < back + 5_000, "seed {seed}: no answer to {restarted}");
            }
            let is_direct = |world: &World| !relayed(world, restarted, other) && !relayed(world, other, restarted);
            assert!(restarted == h[1] || is_direct(&world), "seed {seed}: the first look");
            while !is_direct(&world) {
                pings.run(&mut world, 5);
                assert!(world.now() < back + 5_000, "seed {seed}: {restarted} is not direct");
            }
            // Answers to the pings of the first looks are on their way.
            pings.run(&mut world, 1_000);
            assert_eq!(pings.run(&mut world, 3_000).0, 15, "seed {seed}: no loss after");
        }
    }
}

/// A and B reach each other through C or D; the one in use dies.
#[test]
fn a_dead_relay_costs_less_than_two_seconds() {
    for seed in 0..10 {
        let (mut world, h) = net(seed, 4, &[(0, 2), (0, 3), (1, 2), (1, 3)]);
        acquaint(&mut world, h[0], h[1]);
        world.run(5_000);
        let mut pings = Pings::new(&world, h[0], h[1]);
        pings.run(&mut world, 5_000);
        assert_eq!(pings.run(&mut world, 5_000).0, 25);
        let dead = via(&world, h[0], h[1]).unwrap();
        world.kill(dead);
        let (_, gap) = pings.run(&mut world, 10_000);
        assert!(gap < 2_000, "seed {seed}: {gap} ms");
        assert_eq!(pings.run(&mut world, 60_000).0, 300, "seed {seed}: the other");
        world.restart(dead);
        assert_eq!(pings.run(&mut world, 60_000).0, 300, "seed {seed}: it came back");
    }
}

/// Like above, repeatedly, at all moments of a ping: B may have nothing of its own to send by which
/// it would notice.
#[test]
fn each_death_of_a_relay_costs_less_than_two_seconds() {
    for seed in 0..40 {
        let (mut world, h) = net(seed, 4, &[(0, 2), (0, 3), (1, 2), (1, 3)]);
        acquaint(&mut world, h[0], h[1]);
        world.run(2_000);
        let mut pings = Pings::new(&world, h[0], h[1]);
        pings.run(&mut world, 5_000);
        for turn in 0..4 {
            let dead = via(&world, h[0], h[1]).unwrap();
            pings.run(&mut world, 3_000 + (seed * 31 + turn * 313) % 400);
            world.kill(dead);
            let (_, gap) = pings.run(&mut world, 7_000);
            assert!(gap < 2_000, "seed {seed}, death {turn}: {gap} ms");
            world.restart(dead);
            let back = world.now();
            while !h[..2].iter().all(|end| is_linked_since(&world, *end, dead, back)) {
                pings.run(&mut world, 200);
                assert!(world.now() < back + 60_000, "seed {seed}, death {turn}: no link");
            }
        }
    }
}

/// Whether a host has a link to another one that is not older than `since`.
fn is_linked_since(world: &World, host: HostId, to: HostId, since: u64) -> bool {
    let mut status = world.host(host).node.peer_status(world.now());
    let link = status.find(|p| p.key == world.host(to).key).unwrap();
    link.link
        .is_some_and(|link| (link.epoch_age_s + 1) * 1_000 <= world.now() - since)
}

/// A-C-D-B with A-E-B as an alternative path: D is killed, which only C can see.
#[test]
fn a_relay_that_loses_its_next_hop_is_left() {
    for seed in 0..10 {
        let (mut world, h) = net(seed, 5, &[(0, 2), (2, 3), (1, 3), (0, 4), (1, 4)]);
        acquaint(&mut world, h[0], h[1]);
        world.kill(h[4]);
        world.run(5_000);
        let mut pings = Pings::new(&world, h[0], h[1]);
        pings.run(&mut world, 5_000);
        assert_eq!(pings.run(&mut world, 5_000).0, 25, "seed {seed}");
        world.restart(h[4]);
        assert_eq!(pings.run(&mut world, 10_000).0, 50, "seed {seed}");
        let ways = (via(&world, h[0], h[1]), via(&world, h[1], h[0]));
        assert_eq!(ways, (Some(h[2]), Some(h[3])), "seed {seed}: a way that serves is kept");
        world.kill(h[3]);
        let (_, gap) = pings.run(&mut world, 15_000);
        assert!(gap < 5_000, "seed {seed}: {gap} ms");
        assert_eq!(pings.run(&mut world, 60_000).0, 300, "seed {seed}");
    }
}

/// Without an alternative path the silent link stays in use, and works again at once.
#[test]
fn a_short_silence_without_another_way_changes_nothing() {
    let (mut world, h) = net(1, 3, &[(0, 1), (1, 0), (1, 2)]);
    world.run(5_000);
    let mut pings = Pings::new(&world, h[0], h[1]);
    pings.run(&mut world, 5_000);
    cut(&mut world, h[0], h[1]);
    assert_eq!(pings.run(&mut world, 4_000).0, 0);
    world.set_rule(|_, _| Fate::Pass);
    assert_eq!(pings.run(&mut world, 10_000).0, 50);
}

/// A one-way stream over a slow and lossy link does not count as silence.
#[test]
fn a_slow_link_is_not_left() {
    let (mut world, h) = net(3, 3, &[(0, 1), (1, 0), (0, 2), (1, 2)]);
    world.conditions.delay = 300;
    world.conditions.jitter = 100;
    world.conditions.loss = 50;
    world.run(20_000);
    for seq in 0..600 {
        world.send(h[0], h[1], seq, 1000);
        world.run(100);
    }
    let silent = |(_, event): &&(u64, Event)| matches!(event, Event::LinkSilent { .. });
    assert_eq!(world.host(h[0]).events.iter().filter(silent).count(), 0);
    assert!(!relayed(&world, h[0], h[1]));
}

/// C is linked with both and forwards nothing; D does. Whichever is linked first, nothing goes
/// through C.
#[test]
fn a_node_without_transit_is_gone_round() {
    for seed in 0..10 {
        let mut world = World::new(seed);
        let quiet = Config {
            transit: false,
            ..meshed()
        };
        let h: Vec<HostId> = [meshed(), meshed(), quiet, meshed()]
            .map(|c| world.add_host(c))
            .to_vec();
        for end in [h[0], h[1]] {
            world.add_peer(end, h[2], true);
            world.add_peer(end, h[3], true);
        }
        acquaint(&mut world, h[0], h[1]);
        world.kill(h[3]);
        world.run(5_000);
        let mut pings = Pings::new(&world, h[0], h[1]);
        assert_eq!(pings.run(&mut world, 10_000).0, 0, "seed {seed}");
        world.restart(h[3]);
        let (_, gap) = pings.run(&mut world, 20_000);
        assert!(gap < 10_000, "seed {seed}: {gap} ms");
        assert_eq!(via(&world, h[0], h[1]), Some(h[3]), "seed {seed}");
        assert_eq!(pings.run(&mut world, 60_000).0, 300, "seed {seed}");
        assert_eq!(world.host(h[2]).lane.counters().forwarded, 0);
    }
}
