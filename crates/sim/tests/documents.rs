//! Documents inside sessions: direct and through a relay, with loss, a cut, and restarts.

use rand_chacha::ChaCha20Rng;
use rand_core::{Rng, SeedableRng};
use weft_contract::MAX_SERVICE;
use weft_core::{Config, Event, Frames, SessionDown};
use weft_noise::PublicKey;
use weft_noise::fast::Suite;
use weft_packet::DropReason;
use weft_sim::{Conditions, Fate, HostId, Kind, World};
use weft_stream::{Cause, Documents, Limits, Output, PORT};
use weft_wire::NodeAddr;
use weft_wire::session::DataPorts;

use crate::common::stream;

/// Datagrams that are lost, of a thousand.
const LOSS: u32 = 50;
const ALL: u32 = 1_000;
const PORTS: DataPorts = DataPorts { src: PORT, dst: PORT };

/// One end of the service, as the daemon would have it.
struct End {
    host: HostId,
    documents: Documents<NodeAddr>,
    reports: Vec<Output<NodeAddr>>,
}

/// A world, two of whose hosts have the service.
struct Service {
    world: World,
    ends: [End; 2],
}

fn documents(seed: u64) -> Documents<NodeAddr> {
    let mut bytes = [0; 16];
    ChaCha20Rng::seed_from_u64(seed).fill_bytes(&mut bytes);
    Documents::new(PORT, Limits::default(), bytes)
}

impl Service {
    fn new(mut world: World, hosts: [HostId; 2]) -> Self {
        let now = world.now();
        let ends = hosts.map(|host| {
            world.host_mut(host).listen(now, &[PORT]);
            let documents = documents(host as u64);
            let reports = Vec::new();
            End {
                host,
                documents,
                reports,
            }
        });
        Self { world, ends }
    }

    /// A pair of peers with these conditions, linked.
    fn pair(seed: u64, conditions: Conditions) -> Self {
        let (mut world, a, b) = World::pair(seed, Config::default());
        world.conditions = conditions;
        world.run(2_000);
        Self::new(world, [a, b])
    }

    /// Two peers with another node between them.
    fn relayed(seed: u64, conditions: Conditions) -> Self {
        let config = Config {
            mesh: true,
            ..Config::default()
        };
        let mut world = World::new(seed);
        world.conditions = conditions;
        let hosts = [(); 3].map(|()| world.add_host(config));
        world.add_peer(hosts[0], hosts[1], true);
        world.add_peer(hosts[1], hosts[2], true);
        world.add_peer(hosts[0], hosts[2], false);
        world.add_peer(hosts[2], hosts[0], false);
        world.run(10_000);
        Self::new(world, [hosts[0], hosts[2]])
    }

    fn key(&self, end: usize) -> PublicKey {
        self.world.host(self.ends[end].host).key
    }

    /// Sends a document from end 0 to end 1.
    fn send(&mut self, document: &[u8]) {
        let (now, to) = (self.world.now(), self.key(1).node_addr());
        self.ends[0].documents.send(now, to, document.to_vec()).unwrap();
    }

    /// Moves segments between documents and nodes every 2 ms.
    fn run(&mut self, ms: u64) {
        for _ in 0..ms / 2 {
            let now = self.world.now();
            let keys = [self.key(0), self.key(1)];
            for end in &mut self.ends {
                for (peer, ports, bytes) in std::mem::take(&mut self.world.host_mut(end.host).services) {
                    assert_eq!(ports, PORTS);
                    end.documents.handle_segment(now, peer.node_addr(), &bytes);
                }
                end.documents.handle_timeout(now);
                while let Some(output) = end.documents.poll_output() {
                    match output {
                        Output::Segment { peer, bytes } => {
                            let key = keys.iter().find(|key| key.node_addr() == peer).unwrap();
                            // What finds no room gets lost, as other datagrams do.
                            let _ = self.world.host_mut(end.host).send_service(now, key, PORTS, &bytes);
                        }
                        report => end.reports.push(report),
                    }
                }
            }
            self.world.run(2);
        }
    }

    /// Sends a document of 1 MiB, and runs until a part of it is at the other end.
    fn send_half(&mut self) -> Vec<u8> {
        let sent = document(1 << 20);
        self.send(&sent);
        while self.ends[1].documents.held().0 < 200_000 {
            self.run(10);
        }
        assert!(self.received().is_empty());
        sent
    }

    /// Runs until the document has ended at its sender and nothing arrives any more.
    fn finish(&mut self) {
        for _ in 0..700 {
            self.run(1_000);
            if self.ends.iter().all(|end| end.documents.connections() == (0, 0)) {
                return;
            }
        }
        panic!("not over after 700 s");
    }

    fn restart(&mut self, end: usize) {
        let End {
            host, documents: old, ..
        } = &mut self.ends[end];
        *old = documents(u64::MAX - *host as u64);
        self.world.restart(*host);
    }

    fn received(&self) -> Vec<&[u8]> {
        let received = self.ends[1].reports.iter().filter_map(|report| match report {
            Output::Received { document, .. } => Some(document.as_slice()),
            _ => None,
        });
        received.collect()
    }

    fn sent(&self) -> bool {
        matches!(self.ends[0].reports[..], [Output::Sent { .. }])
    }

    fn sessions_ended(&self) -> usize {
        let ended = |(_, event): &&(u64, Event)| matches!(event, Event::SessionDown { .. });
        self.ends
            .iter()
            .map(|end| self.world.host(end.host).events.iter().filter(ended).count())
            .sum()
    }

    fn drops(&self, end: usize, reason: DropReason) -> u64 {
        self.world.host(self.ends[end].host).lane.counters().drops[reason]
    }
}

fn document(len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    ChaCha20Rng::seed_from_u64(len as u64).fill_bytes(&mut bytes);
    bytes
}

fn lossy() -> Conditions {
    Conditions {
        loss: LOSS,
        ..Conditions::default()
    }
}

#[test]
fn a_document_opens_the_session_and_arrives() {
    let mut service = Service::pair(1, Conditions::default());
    let sent = document(100_000);
    service.send(&sent);
    service.run(1_500);
    assert!(service.received() == [sent]);
    assert!(service.sent());
    // It went in FIPS frames, also once the session had fast ones.
    let status = |service: &Service| {
        let host = service.world.host(service.ends[0].host);
        host.node.peer_status(service.world.now()).next().unwrap().frames
    };
    stream(&mut service.world, 0, 1, 50);
    assert_eq!(status(&service), Frames::Fast(Suite::Aes256Gcm));
    let fast = |service: &Service| service.world.host(0).lane.counters().fast_tx;
    let before = fast(&service);
    service.send(&document(50_000));
    service.run(1_500);
    assert_eq!(service.received().len(), 2);
    assert_eq!(fast(&service), before);
}

#[test]
fn documents_arrive_with_loss_directly_and_through_a_relay() {
    for seed in 0..6 {
        for relayed in [false, true] {
            let mut service = match relayed {
                true => Service::relayed(seed, lossy()),
                false => Service::pair(seed, lossy()),
            };
            let sent = document(100_000);
            service.send(&sent);
            service.finish();
            assert!(service.received() == [sent], "seed {seed}, relayed: {relayed}");
            assert!(service.sent(), "seed {seed}, relayed: {relayed}");
        }
    }
}

/// 30 s of loss of everything in the middle.
#[test]
fn a_cut_of_thirty_seconds_is_survived() {
    for relayed in [false, true] {
        let mut service = match relayed {
            true => Service::relayed(4, lossy()),
            false => Service::pair(4, lossy()),
        };
        let sent = service.send_half();
        service.world.conditions.loss = ALL;
        service.run(30_000);
        service.world.conditions.loss = LOSS;
        service.finish();
        assert!(service.received() == [sent], "relayed: {relayed}");
        assert!(service.sent(), "relayed: {relayed}");
    }
}

/// A restart of either end, in the middle: the other end hears of it. A document is delivered once
/// or not at all.
#[test]
fn a_restart_of_either_end_ends_in_a_cause() {
    for relayed in [false, true] {
        for restarted in [0, 1] {
            let mut service = match relayed {
                true => Service::relayed(5, lossy()),
                false => Service::pair(5, lossy()),
            };
            let sent = service.send_half();
            service.restart(restarted);
            service.finish();
            assert!(service.received().is_empty());
            let other = &service.ends[1 - restarted].reports;
            let cause = match &other[..] {
                [Output::Failed { cause, .. } | Output::Incomplete { cause, .. }] => *cause,
                other => panic!("{other:?}, relayed: {relayed}, restarted: {restarted}"),
            };
            assert!(matches!(cause, Cause::Reset | Cause::Stalled), "{cause:?}");
            // The next document passes.
            service.send(&sent);
            service.finish();
            assert!(
                service.received() == [sent],
                "relayed: {relayed}, restarted: {restarted}"
            );
        }
    }
}

/// The relay dies: the document fails with a cause, or arrives by another path.
#[test]
fn a_relay_that_dies_leaves_one_error_at_each_end() {
    let mut service = Service::relayed(6, Conditions::default());
    service.send_half();
    service.world.kill(1);
    service.finish();
    assert!(service.received().is_empty());
    assert!(matches!(
        service.ends[0].reports[..],
        [Output::Failed {
            cause: Cause::Stalled,
            ..
        }]
    ));
    assert!(matches!(
        service.ends[1].reports[..],
        [Output::Incomplete {
            cause: Cause::Stalled,
            ..
        }]
    ));
}

/// A document that takes longer than a session may be idle keeps its session. Without one the
/// session ends.
#[test]
fn a_document_keeps_its_session() {
    let slow = Conditions {
        loss: 2 * LOSS,
        delay: 700,
        ..Conditions::default()
    };
    let mut service = Service::pair(7, slow);
    let sent = document(500_000);
    service.send(&sent);
    service.run(100_000);
    let idle = |service: &Service| {
        let idle = |(_, event): &(u64, Event)| {
            matches!(
                event,
                Event::SessionDown {
                    reason: SessionDown::Idle,
                    ..
                }
            )
        };
        service.world.hosts().iter().any(|host| host.events.iter().any(idle))
    };
    assert!(service.received().is_empty(), "it takes longer than that");
    assert!(!idle(&service) && service.sessions_ended() == 0);
    service.finish();
    assert!(service.received() == [sent]);
    service.run(120_000);
    assert!(idle(&service));
}

/// Messages for services that nothing listens for, and a flood of those that something does.
#[test]
fn a_flood_of_service_messages_keeps_nothing_else_out() {
    let mut service = Service::pair(8, Conditions::default());
    service.send(&document(1_000));
    service.run(1_000);
    let key = service.key(1);
    let other = DataPorts { src: PORT, dst: 9_999 };
    let now = service.world.now();
    service.world.host_mut(0).send_service(now, &key, other, &[1]).unwrap();
    service.world.run(100);
    assert_eq!(service.drops(1, DropReason::NoService), 1);
    // The core takes one report in a millisecond.
    service.world.host_mut(1).core_pace = 1;
    for _ in 0..100 {
        let now = service.world.now();
        for _ in 0..50 {
            let host = service.world.host_mut(0);
            host.send_service(now, &key, PORTS, &[7; MAX_SERVICE]).unwrap();
        }
        service.world.run(10);
        let waiting = service.world.host(1).reports_waiting();
        assert!(waiting.bytes <= 1 << 20, "{waiting:?}");
    }
    assert!(service.drops(1, DropReason::ServiceRate) + service.drops(1, DropReason::Report) > 0);
    assert_eq!(service.sessions_ended(), 0);
    // IP packets, links and sessions go on.
    assert_eq!(stream(&mut service.world, 0, 1, 50), (50, 50));
    service.world.check_all().unwrap();
}

/// Without a session that opens, what waits has a bound, and the document fails.
#[test]
fn messages_that_wait_for_a_session_are_bounded_and_dropped() {
    let mut service = Service::pair(9, Conditions::default());
    service.world.set_rule(|_, datagram| match datagram.kind {
        Kind::Setup => Fate::Drop,
        _ => Fate::Pass,
    });
    let (key, now) = (service.key(1), service.world.now());
    let host = service.world.host_mut(0);
    let taken = (0..100).filter(|_| host.send_service(now, &key, PORTS, &[0; 100]).is_ok());
    assert_eq!(taken.count(), 16);
    assert_eq!(host.node.counters().services_dropped, 84);
    service.send(&document(1_000));
    service.run(40_000);
    assert!(matches!(
        service.ends[0].reports[..],
        [Output::Failed {
            cause: Cause::NotReached,
            ..
        }]
    ));
    assert!(service.world.by_kind()[&Kind::Setup].0 > 10, "the rule dropped some");
    // What waits for a peer that is removed is dropped at once.
    let (dropped, now) = (
        service.world.host(0).node.counters().services_dropped,
        service.world.now(),
    );
    let host = service.world.host_mut(0);
    host.send_service(now, &key, PORTS, &[0]).unwrap();
    assert!(host.node.remove_peer(now, &key));
    assert!(host.node.counters().services_dropped > dropped);
    let refused = host.send_service(now, &key, PORTS, &[0]);
    assert_eq!(refused, Err(weft_core::ServiceError::NoPeer));
    let stranger = service.world.add_host(Config::default());
    let key = service.world.host(stranger).key;
    let refused = service.world.host_mut(0).send_service(now, &key, PORTS, &[0]);
    assert_eq!(refused, Err(weft_core::ServiceError::NoPeer));
}
