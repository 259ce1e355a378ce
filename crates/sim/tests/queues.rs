//! Queues that others can fill at a node: bounded in bytes, emptied in time, and a flood of one
//! neighbour costs only that neighbour.

use weft_contract::bounds;
use weft_core::{Config, Event};
use weft_fuzz::forged;
use weft_sim::{HostId, World};
use weft_wire::NodeAddr;
use weft_wire::link::LinkMessageType;

fn meshed() -> Config {
    Config {
        mesh: true,
        ..Config::default()
    }
}

fn counter(world: &World, host: HostId, name: &str) -> u64 {
    world.host(host).counter_of_each(name).iter().sum()
}

/// Bytes that wait for the core of a host.
fn waiting(world: &World, host: HostId) -> usize {
    world.host(host).reports_waiting().bytes
}

/// Ten thousand datagrams of 60 KB in a second, to be forwarded to an unknown node, with a core
/// that is stalled.
#[test]
fn a_datagram_that_is_too_large_to_be_carried_costs_no_memory() {
    let mut world = World::new(131);
    world.check_every = 100;
    let [r, m] = [0; 2].map(|_| world.add_host(meshed()));
    world.add_peer(m, r, true);
    world.run(5_000);
    let to = NodeAddr::new([0x77; 16]);
    let body = forged::datagram(world.host(m).node_addr(), to, 64, &vec![0u8; 60_000]);
    world.host_mut(r).core_delay = 60_000;
    let mut most = 0;
    for _ in 0..1_000 {
        for _ in 0..10 {
            world.say(m, r, LinkMessageType::SessionDatagram, body.clone());
        }
        world.run(1);
        most = most.max(waiting(&world, r));
    }
    world.run(200);
    assert_eq!(counter(&world, r, "transit_too_large"), 10_000);
    assert!(counter(&world, r, "reports_dropped") > 5_000);
    // One neighbour has a fifth of the store at most, whatever it sends.
    assert!(most <= bounds::REPORTS.bytes / 4, "{most} bytes wait");
}

/// Ten times 17 frames of 60 KB, and as many that fit, in the names of each of 100 peers without a
/// session.
#[test]
fn frames_that_wait_for_keys_are_bounded_in_bytes_and_given_up() {
    let mut world = World::new(141);
    world.check_every = 100;
    let (b, m) = (world.add_host(meshed()), world.add_host(meshed()));
    let peers: Vec<HostId> = (0..100).map(|_| world.add_host(meshed())).collect();
    for peer in &peers {
        world.add_peer(b, *peer, false);
    }
    world.add_peer(m, b, true);
    world.run(5_000);
    let us = world.host(b).node_addr();
    let mut most = weft_contract::Load::default();
    for len in [60_000, 1_100] {
        for round in 0..10 {
            for peer in &peers {
                let name = world.host(*peer).node_addr();
                let mut msg3 = vec![3u8, 0, 76, 0, 0, 73, 0];
                msg3.extend([9u8; 73]);
                let mut frame = vec![0u8; len];
                frame[2..4].copy_from_slice(&1u16.to_le_bytes());
                let said = std::iter::once(&msg3).chain(std::iter::repeat_n(&frame, 16));
                for body in said {
                    let body = forged::datagram(name, us, 64, body);
                    world.say(m, b, LinkMessageType::SessionDatagram, body);
                }
            }
            // After the links' delay, and before anything is dropped.
            world.run(60);
            let load = world.host(b).lane.inspect().early();
            most = weft_contract::Load {
                count: most.count.max(load.count),
                bytes: most.bytes.max(load.bytes),
            };
            assert!(
                len < 60_000 || load.count == 0,
                "round {round}: a frame that no path takes waits"
            );
        }
    }
    assert!(most.count > 0, "nothing waited");
    assert!(most.bytes <= bounds::EARLY.bytes / 4, "one neighbour holds {most:?}");
    world.run(2_000);
    assert_eq!(world.host(b).lane.inspect().early().count, 0);
    assert!(counter(&world, b, "early_dropped") > 30_000);
}

/// One neighbour makes the core of its relay fall behind for six seconds, with five times the
/// datagrams that the core can process. The links of the other neighbours come up, rekey and
/// forward without any effect.
#[test]
fn a_neighbours_flood_loses_no_proofs_or_reports_of_others() {
    let mut world = World::new(151);
    world.check_every = 1_000;
    let rekeyed = Config {
        rekey: 5_000,
        ..meshed()
    };
    let [r, a, c, m, late] = [0; 5].map(|_| world.add_host(rekeyed));
    for host in [a, c, m] {
        world.add_peer(host, r, true);
        world.add_peer(r, host, false);
    }
    world.add_peer(a, c, false);
    world.add_peer(c, a, false);
    world.run(8_000);
    for seq in 0..40 {
        world.send(a, c, seq, 200);
        world.run(25);
    }
    let arrived = world.host(c).received.len();
    let refused = counter(&world, r, "reports_dropped");
    // Half a millisecond for a report: a slow core.
    world.host_mut(r).core_pace = 2;
    let (start, liar) = (world.now(), world.host(m).node_addr());
    let mut sent = 0;
    for ms in 0..6_000_u32 {
        // 10 datagrams in a millisecond to unknown nodes: each is a report to the core.
        for n in 0..10_u32 {
            let mut to = [0x77; 16];
            to[..4].copy_from_slice(&(10 * ms + n).to_le_bytes());
            let body = forged::datagram(liar, NodeAddr::new(to), 64, &[0; 60]);
            world.say(m, r, LinkMessageType::SessionDatagram, body);
        }
        if ms % 20 == 0 {
            world.send(a, c, 1_000 + ms, 200);
            sent += 1;
        }
        if ms == 2_000 {
            world.add_peer(r, late, false);
            world.add_peer(late, r, true);
        }
        world.run(1);
    }
    world.run(1_000);
    assert!(
        counter(&world, r, "reports_dropped") > refused + 30_000,
        "the flood is not a flood"
    );
    assert_eq!(world.host(c).received.len() - arrived, sent);
    let flooder = world.host(m).key;
    let since = |(at, event): &&(u64, Event)| *at >= start && matches!(event, Event::LinkDown { .. });
    for host in [a, c, late] {
        assert_eq!(world.host(host).events.iter().filter(since).count(), 0, "host {host}");
    }
    let at_relay = world.host(r).events.iter().filter(|(at, _)| *at >= start);
    let mut rekeyed = 0;
    for (at, event) in at_relay {
        match event {
            Event::LinkDown { peer, .. } if *peer != flooder => panic!("a link of others went down at {at}: {event:?}"),
            Event::LinkRekeyed { peer } if *peer != flooder => rekeyed += 1,
            _ => {}
        }
    }
    assert!(rekeyed >= 2, "keys of others were replaced {rekeyed} times in 6 s");
    let up = |(at, event): &&(u64, Event)| *at >= start && matches!(event, Event::LinkUp { .. });
    let up = world
        .host(late)
        .events
        .iter()
        .find(up)
        .map(|(at, _)| at - start - 2_000);
    assert!(
        up.is_some_and(|after| after <= 1_000),
        "the newcomer is linked after {up:?} ms"
    );
}
