//! A network of many members: a machine that joins it, and what it costs the members.
//!
//! All members but the founder and the joiner are records only. `docs/experiments/2026-11-24-crowd.md` has figures.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use weft_lab::daemon::{Daemon, Identity};
use weft_lab::host::Host;
use weft_lab::world::World;
use weft_networks::{Ask, Document, Networks, NewInvite};
use weft_noise::SecretKey;
use weft_os::clock::unix_s;
use weft_os::random::SystemRng;
use weft_roster::invite::Seed;
use weft_roster::names::Name;
use weft_store::network_files;

use crate::common::{PATIENCE, Underlay, WEFT, alone, identity, wait_until};

/// Bytes that each member adds to what a joiner and the member that lets it in exchange, at most: the
/// entry of the state, of which the joiner gets each page once, and room for repeats.
const TRAFFIC_OF_A_MEMBER: u64 = 2_000;

/// Makes a network of this node with so many members, in its state directory.
fn found(founder: &Identity, members: usize) {
    let secret: SecretKey = founder.nsec().unwrap().parse().unwrap();
    let founder_key = Arc::new(weft_noise::Identity::new(secret));
    let mut networks = Networks::new(Arc::clone(&founder_key), Vec::new(), Box::new(SystemRng));
    let unix = unix_s();
    let (network, host) = (Name::network("home").unwrap(), Name::host("desk").unwrap());
    let network = networks.create(network, Some(host), [7; 16], unix).unwrap();
    let invite = NewInvite {
        name: None,
        tags: Default::default(),
        uses: 2_000,
        expires: unix + 3_600,
        addresses: vec!["192.0.2.1:2121".parse().unwrap()],
        entry: None,
    };
    let seed = Seed::new([9; 16]);
    networks.invite(None, &invite, seed.clone(), (0, unix)).unwrap();
    for number in 1..members as u64 {
        let mut secret = [3; 32];
        secret[24..].copy_from_slice(&number.to_be_bytes());
        let member = weft_noise::Identity::new(SecretKey::from_bytes(&secret).unwrap()).public();
        let ask = Ask {
            network,
            member,
            proof: seed.prove(&member, network),
            name: Some(Name::host(&format!("m{number}")).unwrap()),
        };
        let ask = Document::Ask(ask).encode();
        networks.handle_document(member, &ask, 0, unix).unwrap();
        networks.settle_enrolment(true);
    }
    let made = networks.iter().next().unwrap();
    assert_eq!(made.state().members.len(), members);
    network_files::save(&founder.state, made).unwrap();
}

/// A machine that has joined.
struct Joined {
    /// The time of `weft join`.
    took: Duration,
    /// Resident memory of founder and joiner, in bytes.
    memory: [u64; 2],
    /// Bytes of datagrams in both directions at the founder, from the invite to the first echo.
    traffic: u64,
}

/// Bytes in and out over the interfaces of a host but `lo` and Weft's.
fn traffic(host: &Host) -> u64 {
    let table = host
        .run(|| std::fs::read_to_string("/proc/thread-self/net/dev"))
        .unwrap()
        .unwrap();
    let lines = table.lines().filter_map(|line| line.split_once(':'));
    let outer = lines.filter(|(name, _)| !["lo", "weft0"].contains(&name.trim()));
    let bytes = |(_, counts): (&str, &str)| -> u64 {
        let counts: Vec<u64> = counts.split_whitespace().map(|count| count.parse().unwrap()).collect();
        counts[0] + counts[8]
    };
    outer.map(bytes).sum()
}

fn join(members: usize) -> Joined {
    let world = World::new().unwrap();
    let switch = world.switch("net").unwrap();
    let start = |number: usize, id: &Identity| {
        let host = world.host(&id.name).unwrap();
        switch.connect(&host, &[&format!("192.0.2.{number}/24")]).unwrap();
        let mut node = Daemon::start(&host, Path::new(WEFT), id, &Underlay::V4.listener()).unwrap();
        node.wait_ready(PATIENCE).unwrap();
        (node, host)
    };
    let (founder, joiner) = (identity(&world, "a"), identity(&world, "b"));
    found(&founder, members);
    let ((mut desk, desk_host), (mut laptop, _host)) = (start(1, &founder), start(2, &joiner));
    let invited = desk.command(&["invite", "--json"]).unwrap();
    let invited: serde_json::Value = serde_json::from_slice(&invited.stdout).unwrap();
    let before = traffic(&desk_host);
    let begun = Instant::now();
    laptop.command(&["join", invited["code"].as_str().unwrap()]).unwrap();
    let took = begun.elapsed();
    wait_until(PATIENCE, "it knows all members", || {
        let list = laptop.command(&["networks", "--json"]).unwrap();
        let list: serde_json::Value = serde_json::from_slice(&list.stdout).unwrap();
        list["networks"][0]["members"]
            .as_array()
            .is_some_and(|known| known.len() == members + 1)
    });
    wait_until(PATIENCE, "payload passes", || {
        laptop
            .command(&["ping", "desk", "--count", "1", "--timeout", "5"])
            .is_ok()
    });
    let memory = [&desk, &laptop].map(|node| node.usage().unwrap().rss_bytes);
    let after = traffic(&desk_host);
    for node in [&mut desk, &mut laptop] {
        assert_eq!(node.stop().unwrap().code(), Some(0));
        assert!(node.warnings().unwrap().is_empty(), "{:?}", node.warnings());
    }
    Joined {
        took,
        memory,
        traffic: after - before,
    }
}

/// Joins a network of two and a larger one, and returns how long the latter took longer.
fn compare(members: usize) -> Duration {
    let [few, many] = [2, members].map(|members| {
        let joined = join(members);
        eprintln!(
            "{members} members and one more: joined in {:.2} s, resident {} KiB and {} KiB, {} bytes of traffic",
            joined.took.as_secs_f64(),
            joined.memory[0] >> 10,
            joined.memory[1] >> 10,
            joined.traffic,
        );
        joined
    });
    for (many, few) in many.memory.into_iter().zip(few.memory) {
        assert!(many < few + (64 << 20), "{many} {few}");
    }
    let more = many.traffic.saturating_sub(few.traffic);
    assert!(more < TRAFFIC_OF_A_MEMBER * members as u64, "{more} bytes more");
    many.took.saturating_sub(few.took)
}

#[test]
fn a_machine_joins_a_hundred_members_as_it_joins_two() {
    alone(|| {
        compare(100);
    });
}

#[test]
#[ignore = "measures: .ci/long perf"]
fn a_machine_joins_a_thousand_members_as_soon_as_two() {
    alone(|| {
        let longer = compare(999);
        assert!(longer < Duration::from_secs(3), "{longer:?}");
    });
}
