//! The measurements of links and sessions, on a network with known properties.

use weft_core::{Config, PeerStatus, Quality, ReportMode};
use weft_sim::{Conditions, Fate, HostId, Kind, World};

fn status(world: &World, of: HostId, peer: HostId) -> PeerStatus {
    let key = world.host(peer).key;
    let mut all = world.host(of).node.peer_status(world.now());
    all.find(|p| p.key == key).unwrap()
}

/// Sends `count` probes in each direction, one every `every` ms.
fn stream(world: &mut World, a: HostId, b: HostId, count: u32, every: u64) {
    for seq in 0..count {
        world.send(a, b, seq, 200);
        world.send(b, a, seq, 200);
        world.run(every);
    }
}

fn both(world: &World, a: HostId, b: HostId) -> [Quality; 4] {
    let (one, other) = (status(world, a, b), status(world, b, a));
    [
        one.link.as_ref().unwrap().quality,
        one.session.as_ref().unwrap().quality,
        other.link.as_ref().unwrap().quality,
        other.session.as_ref().unwrap().quality,
    ]
}

#[test]
fn a_clean_path_shows_its_delay_and_nothing_else() {
    for (seed, delay) in [(1, 0), (2, 1), (3, 20), (4, 400)] {
        let (mut world, a, b) = World::pair(seed, Config::default());
        world.conditions.delay = delay;
        world.run(5_000);
        stream(&mut world, a, b, 1_500, 20);
        for quality in both(&world, a, b) {
            // Reports of lanes are sampled, but times are taken with the frames.
            assert_eq!(quality.rtt_us, Some(2_000 * delay as u32), "{quality:?}");
            assert_eq!((quality.loss_in, quality.loss_out), (Some(0), Some(0)), "{quality:?}");
            let still = (quality.jitter_out_us, quality.delay_trend_out_us_s);
            assert_eq!(still, (Some(0), Some(0)), "{quality:?}");
            assert_eq!((quality.burst_out, quality.reordered_out), (Some(0), Some(0)));
            assert_eq!(quality.etx, Some(1_000));
        }
    }
}

#[test]
fn loss_is_what_the_network_loses() {
    for (seed, loss) in [(1, 50), (2, 100), (3, 300)] {
        let (mut world, a, b) = World::pair(seed, Config::default());
        world.run(5_000);
        world.conditions.loss = loss;
        stream(&mut world, a, b, 4_000, 10);
        for quality in both(&world, a, b) {
            // About 800 frames are behind each figure: 50 is three times the deviation at 30 %.
            for share in [quality.loss_in.unwrap(), quality.loss_out.unwrap()] {
                assert!(share.abs_diff(loss) < 50, "seed {seed}: {quality:?}");
            }
            assert!(quality.burst_out > Some(0), "{quality:?}");
            assert_eq!(quality.reordered_out, Some(0));
            let both_ways = f64::from(1_000 - quality.loss_in.unwrap()) * f64::from(1_000 - quality.loss_out.unwrap());
            assert!(
                (f64::from(quality.etx.unwrap()) - 1e9 / both_ways).abs() < 2.0,
                "{quality:?}"
            );
        }
    }
}

#[test]
fn jitter_is_told_and_reordering_is_not_loss() {
    let fips = Config {
        fast: false,
        ..Config::default()
    };
    let (mut world, a, b) = World::pair(5, fips);
    world.conditions = Conditions {
        delay: 50,
        jitter: 60,
        ..Conditions::default()
    };
    world.run(5_000);
    stream(&mut world, a, b, 3_000, 10);
    for quality in both(&world, a, b) {
        // The mean difference of two draws from 0..=60 is 20.3 ms.
        for jitter in [quality.jitter_out_us, quality.jitter_in_us] {
            assert!((12_000..32_000).contains(&jitter.unwrap()), "{quality:?}");
        }
        assert!(quality.reordered_out > Some(500), "{quality:?}");
        // Frames in flight when a report is written are neither lost nor received.
        assert!(quality.loss_out.unwrap() < 10, "{quality:?}");
        let rtt = quality.rtt_us.unwrap();
        assert!((100_000..220_000).contains(&rtt), "{quality:?}");
    }
}

#[test]
fn in_fast_frames_reordering_is_not_loss_either() {
    let (mut world, a, b) = World::pair(5, Config::default());
    world.conditions = Conditions {
        delay: 50,
        jitter: 60,
        ..Conditions::default()
    };
    world.send(a, b, 0, 200);
    world.run(5_000);
    let before = [a, b].map(|host| world.host(host).received.len());
    stream(&mut world, a, b, 3_000, 10);
    for quality in both(&world, a, b) {
        assert!(
            (12_000..32_000).contains(&quality.jitter_out_us.unwrap()),
            "{quality:?}"
        );
        assert!(quality.reordered_out > Some(500), "{quality:?}");
        // Up to six of 50 frames are in flight at each of the eight reports that count: 15 in a
        // thousand.
        assert!(quality.loss_out.unwrap() <= 15, "{quality:?}");
    }
    world.run(1_000);
    let came = [a, b].map(|host| world.host(host).received.len());
    assert_eq!([came[0] - before[0], came[1] - before[1]], [3_000, 3_000]);
}

#[test]
fn a_burst_is_one_burst() {
    let (mut world, a, b) = World::pair(6, Config::default());
    // The link has said all that it says at its start.
    world.run(8_000);
    stream(&mut world, a, b, 300, 10);
    let from = world.host(a).addr;
    let mut left = 25;
    world.set_rule(move |_, datagram| {
        if datagram.src == from && datagram.kind == Kind::Data && left > 0 {
            left -= 1;
            return Fate::Drop;
        }
        Fate::Pass
    });
    let mut longest = 0;
    for _ in 0..30 {
        stream(&mut world, a, b, 10, 10);
        let quality = status(&world, a, b).session.unwrap().quality;
        longest = longest.max(quality.burst_out.unwrap());
    }
    assert!(
        (25..28).contains(&longest),
        "{longest}: reports may fall into the burst"
    );
}

#[test]
fn a_queue_that_fills_is_a_rising_delay() {
    let (mut world, a, b) = World::pair(7, Config::default());
    world.run(5_000);
    for _ in 0..200 {
        // 20 ms a second.
        world.conditions.delay += 2;
        stream(&mut world, a, b, 10, 10);
    }
    for quality in both(&world, a, b) {
        let trend = quality.delay_trend_out_us_s.unwrap();
        assert!((15_000..25_000).contains(&trend), "{trend}");
    }
}

#[test]
fn rekeys_do_not_disturb_the_figures() {
    let config = Config {
        rekey: 5_000,
        ..Config::default()
    };
    for seed in 0..5 {
        let (mut world, a, b) = World::pair(seed, config);
        world.run(2_000);
        let mut seen = 0;
        for _ in 0..60 {
            stream(&mut world, a, b, 50, 20);
            for quality in both(&world, a, b) {
                let lost = quality.loss_in.unwrap_or(0).max(quality.loss_out.unwrap_or(0));
                assert_eq!(lost, 0, "seed {seed}: {quality:?}");
                assert!(
                    quality.rtt_us.is_none_or(|rtt| rtt == 20_000),
                    "seed {seed}: {quality:?}"
                );
                seen += u32::from(quality.report_age_s.is_some_and(|age| age < 2));
            }
        }
        assert!(seen > 100, "seed {seed}: {seen} of 240 looks found a fresh report");
    }
}

#[test]
fn link_and_session_are_measured_apart() {
    let config = Config {
        mesh: true,
        ..Config::default()
    };
    let mut world = World::new(8);
    let hosts: Vec<HostId> = (0..3).map(|_| world.add_host(config)).collect();
    world.add_peer(hosts[1], hosts[0], true);
    world.add_peer(hosts[2], hosts[1], true);
    world.add_peer(hosts[0], hosts[2], false);
    world.add_peer(hosts[2], hosts[0], false);
    world.run(60_000);
    stream(&mut world, hosts[0], hosts[2], 500, 20);
    let link = status(&world, hosts[2], hosts[1]).link.unwrap().quality;
    let far = status(&world, hosts[2], hosts[0]);
    assert_eq!(link.rtt_us, Some(20_000), "{link:?}");
    assert_eq!(far.session.as_ref().unwrap().quality.rtt_us, Some(40_000), "{far:?}");
    assert_eq!(far.link, None);
}

#[test]
fn a_new_link_is_measured_without_payload_and_stays_measured() {
    let (mut world, a, b) = World::pair(9, Config::default());
    world.run(6_000);
    for (of, peer) in [(a, b), (b, a)] {
        let quality = status(&world, of, peer).link.unwrap().quality;
        assert_eq!(quality.rtt_us, Some(20_000), "{quality:?}");
    }
    // The path becomes longer, and no packets are sent.
    world.conditions.delay = 100;
    world.run(1_800_000);
    let status = status(&world, a, b);
    assert!(
        status.link.as_ref().unwrap().quality.rtt_us > Some(150_000),
        "{status:?}"
    );
    assert!(
        status.link.as_ref().unwrap().quality.report_age_s < Some(150),
        "{status:?}"
    );
    assert_eq!(status.session, None);
}

#[test]
fn silence_stays_silence() {
    let (mut world, a, b) = World::pair(10, Config::default());
    world.run(1_000);
    stream(&mut world, a, b, 100, 20);
    world.run(10_000);
    let frames = |world: &World| status(world, a, b).session.unwrap().tx.packets;
    let before = frames(&world);
    world.run(60_000);
    assert_eq!(frames(&world), before, "nothing in a session without packets");
    let (link, age) = (status(&world, a, b).link.unwrap(), world.now());
    world.run(600_000);
    let after = status(&world, a, b).link.unwrap();
    let sent = after.tx.packets - link.tx.packets;
    // A heartbeat or a report in its place each 10 s, and a rekey each 2 minutes.
    assert!(sent <= 72, "{sent} frames in {} ms", world.now() - age);
}

#[test]
fn modes_say_what_they_say() {
    for (mode, measured) in [
        (ReportMode::Full, true),
        (ReportMode::Lightweight, true),
        (ReportMode::Minimal, false),
    ] {
        let config = Config {
            link_reports: mode,
            session_reports: mode,
            ..Config::default()
        };
        let (mut world, a, b) = World::pair(11, config);
        world.run(5_000);
        stream(&mut world, a, b, 500, 20);
        for quality in both(&world, a, b) {
            assert_eq!(quality.rtt_us.is_some(), measured, "{mode:?}");
            assert_eq!(quality.loss_out.is_some(), measured, "{mode:?}");
            // Received packets are counted without any report.
            assert_eq!(quality.loss_in, Some(0), "{mode:?}");
        }
    }
}

#[test]
fn traffic_takes_the_cheaper_of_two_relays() {
    let config = Config {
        mesh: true,
        ..Config::default()
    };
    for slow in [1, 2] {
        let mut world = World::new(12);
        let mut hosts: Vec<HostId> = (0..4).map(|_| world.add_host(config)).collect();
        // The smallest address is the root, so that the tree alone does not determine the next hop
        // to the last one.
        hosts.sort_by_key(|id| world.host(*id).node_addr());
        let [root, far] = [hosts[0], hosts[3]];
        for relay in [hosts[1], hosts[2]] {
            world.add_peer(relay, root, true);
            world.add_peer(far, relay, true);
        }
        let poor = Conditions {
            delay: 150,
            ..Conditions::default()
        };
        world.set_link(hosts[slow], far, Some(poor));
        world.add_peer(root, far, false);
        world.add_peer(far, root, false);
        world.run(150_000);
        stream(&mut world, root, far, 300, 20);
        let carried = |id: HostId| {
            let counters = world.host(id).lane.counters();
            counters.forwarded + counters.relayed
        };
        let (good, bad) = (carried(hosts[3 - slow]), carried(hosts[slow]));
        assert!(good > 590 && bad < 20, "{good} by the good one, {bad} by the other");
        assert_eq!(status(&world, root, far).session.unwrap().quality.rtt_us, Some(40_000));
    }
}

#[test]
fn a_relay_marks_what_goes_over_a_link_that_loses() {
    let config = Config {
        mesh: true,
        ..Config::default()
    };
    let mut world = World::new(13);
    let hosts: Vec<HostId> = (0..3).map(|_| world.add_host(config)).collect();
    let [a, relay, b] = [hosts[0], hosts[1], hosts[2]];
    world.add_peer(relay, a, true);
    world.add_peer(b, relay, true);
    world.add_peer(a, b, false);
    world.add_peer(b, a, false);
    world.run(20_000);
    stream(&mut world, a, b, 500, 20);
    let marks = |world: &World, of: HostId, peer: HostId| status(world, of, peer).session.unwrap().quality.ce_in;
    assert_eq!((marks(&world, b, a), marks(&world, a, b)), (0, 0));
    let poor = Conditions {
        loss: 150,
        ..Conditions::default()
    };
    world.set_link(relay, b, Some(poor));
    stream(&mut world, a, b, 1_000, 20);
    let (there, back) = (marks(&world, b, a), marks(&world, a, b));
    assert!(there > 500, "{there} of about 850 frames are marked");
    assert_eq!(back, 0, "the link back loses nothing");
    // The sender receives the report, and so does the relay for its link.
    let told = status(&world, a, b).session.unwrap().quality.ce_out.unwrap();
    assert!(u64::from(told) > there / 2, "{told}");
    assert!(world.host(relay).lane.counters().ce_forwarded >= there);
    // Probes are not ECN-capable: none is marked.
    assert_eq!(world.host(b).lane.counters().ce_delivered, 0);
    assert_eq!(world.host(b).garbled, 0);
    world.set_link(relay, b, None);
    stream(&mut world, a, b, 1_000, 20);
    let before = marks(&world, b, a);
    stream(&mut world, a, b, 100, 20);
    assert_eq!(marks(&world, b, a), before, "and it ends");
}
