use proptest::prelude::*;
use rand_chacha::ChaCha20Rng;
use rand_core::SeedableRng;

use super::*;

const A: NodeAddr = NodeAddr::new([1; 16]);
const B: NodeAddr = NodeAddr::new([2; 16]);
/// The port of the ordinary sockets, and of B's other ones.
const PORT: u16 = 2_121;
const OTHER: u16 = 40_000;
/// The port of the first of A's further sockets.
const FIRST: u16 = 5_000;

/// What is in front of A.
#[derive(Clone, Copy, Debug)]
struct Filter {
    /// For how many ms it lets answers in.
    lifetime: u64,
    /// Whether they may come from another port.
    any_port: bool,
    /// Ports that strangers reach.
    open: &'static [u16],
}

const NAT: Filter = Filter {
    lifetime: u64::MAX,
    any_port: false,
    open: &[],
};
const ALL: &[u16] = &[PORT, FIRST, FIRST + 1, FIRST + 2, FIRST + 3, FIRST + 4];

/// Two nodes, of which A is behind a filter.
struct World {
    now: u64,
    nodes: [Lifetimes; 2],
    filter: Filter,
    /// When each port of A has sent something last.
    sent: BTreeMap<u16, u64>,
    listens: [Vec<Key>; 2],
    /// Every n-th datagram gets lost.
    lost: Option<u64>,
    datagrams: [u64; 2],
    answers: bool,
}

impl World {
    fn new(filter: Filter) -> Self {
        let node = |n| Lifetimes::new(Box::new(ChaCha20Rng::seed_from_u64(n)));
        let mut nodes = [node(1), node(2)];
        nodes[0].set_peer(0, B, Some(b(PORT)));
        nodes[1].set_peer(0, A, Some(a(PORT)));
        // B measures nothing here.
        nodes[1].known.insert(
            Scope::Ipv4,
            Known {
                from: u64::MAX,
                ..Known::default()
            },
        );
        Self {
            now: 0,
            nodes,
            filter,
            sent: BTreeMap::new(),
            listens: [Vec::new(), Vec::new()],
            lost: None,
            datagrams: [0; 2],
            answers: true,
        }
    }

    fn is_lost(&self) -> bool {
        let sum = self.datagrams[0] + self.datagrams[1];
        self.lost.is_some_and(|n| sum.is_multiple_of(n))
    }

    /// A datagram of A arrives at B.
    fn leave_a(&mut self, port: u16, to: SocketAddr, datagram: &[u8]) {
        self.sent.insert(port, self.now);
        self.datagrams[0] += 1;
        if to == b(PORT) && self.answers && !self.is_lost() {
            self.nodes[1].handle_datagram(self.now, None, a(port), datagram);
        }
    }

    /// A datagram of B arrives at A, if the filter lets it in.
    fn leave_b(&mut self, from: u16, to: SocketAddr, datagram: &[u8]) {
        self.datagrams[1] += 1;
        let port = to.port();
        assert_eq!(to, a(port));
        let within = self
            .sent
            .get(&port)
            .is_some_and(|at| self.now - at <= self.filter.lifetime);
        let answer = within && (from == PORT || self.filter.any_port);
        if !answer && !self.filter.open.contains(&port) || self.is_lost() {
            return;
        }
        let socket = port.checked_sub(FIRST);
        let key: Key = *datagram.last_chunk().unwrap();
        if socket.is_some() || self.listens[0].contains(&key) {
            self.nodes[0].handle_datagram(self.now, socket, b(from), datagram);
        }
    }

    fn deliver(&mut self) {
        while let Some((n, output)) = (0..2).find_map(|n| Some((n, self.nodes[n].poll_output()?))) {
            match output {
                Output::OpenSockets { .. } => self.nodes[n].handle_sockets(Some(FIRST + 4)),
                Output::CloseSockets => {}
                Output::Message { peer, body } => {
                    assert_eq!((n, peer), (0, B));
                    self.nodes[1].handle_message(self.now, A, &body).unwrap();
                }
                Output::Listen { token } => self.listens[n].push(token),
                Output::Ignore { token } => self.listens[n].retain(|known| *known != token),
                Output::Send { to, datagram } if n == 1 => self.leave_b(PORT, to, &datagram),
                Output::SendAside { to, datagram } if n == 1 => self.leave_b(OTHER, to, &datagram),
                Output::SendFrom { socket, to, datagram } if n == 0 => self.leave_a(FIRST + socket, to, &datagram),
                other => panic!("{n}: {other:?}"),
            }
        }
    }

    /// Lets this much time pass, in ms. The ordinary socket of A sends something before, as a link does.
    fn run(&mut self, ms: u64) {
        self.sent.insert(PORT, self.now);
        let ends = self.now + ms;
        loop {
            self.deliver();
            let next = self.nodes.iter().filter_map(Lifetimes::poll_timeout).min();
            match next.filter(|at| *at <= ends) {
                Some(at) => self.now = self.now.max(at),
                None => break,
            }
            for node in &mut self.nodes {
                node.handle_timeout(self.now);
            }
        }
        self.now = ends;
    }

    fn filtering(&self) -> Option<Filtering> {
        self.nodes[0].filtering(Scope::Ipv4).map(|(filtering, _)| filtering)
    }

    fn lifetime(&self) -> Option<Lifetime> {
        self.nodes[0].finding(Scope::Ipv4).map(|finding| finding.lifetime)
    }
}

fn a(port: u16) -> SocketAddr {
    SocketAddr::from(([203, 0, 113, 1], port))
}

fn b(port: u16) -> SocketAddr {
    SocketAddr::from(([203, 0, 113, 2], port))
}

const WHOLE: u64 = 400_000;

#[test]
fn a_nat_is_found_to_keep_a_mapping_for_as_long_as_it_does() {
    for (seconds, found, interval) in [
        (30, Lifetime::Short, None),
        (60, Lifetime::AtLeast(45), Some(35)),
        (120, Lifetime::AtLeast(90), Some(75)),
        (180, Lifetime::AtLeast(150), Some(125)),
        (300, Lifetime::AtLeast(290), Some(242)),
    ] {
        for any_port in [false, true] {
            let lifetime = seconds * 1_000;
            let mut world = World::new(Filter {
                lifetime,
                any_port,
                ..NAT
            });
            world.run(WHOLE);
            assert_eq!(world.lifetime(), Some(found), "{seconds} s");
            assert_eq!(found.interval(), interval);
            let filtering = match any_port {
                true => Filtering::AddressDependent,
                false => Filtering::AddressAndPortDependent,
            };
            assert_eq!(world.filtering(), Some(filtering));
            assert!(world.listens.iter().all(Vec::is_empty));
            // Two probes of each socket, an answer to each, two late ones, and nine from aside.
            assert!(
                world.datagrams[0] <= 8 && world.datagrams[1] <= 25,
                "{:?}",
                world.datagrams
            );
        }
    }
}

#[test]
fn a_node_that_strangers_reach_need_not_send() {
    let mut world = World::new(Filter { open: ALL, ..NAT });
    world.run(SETTLED + 10_000);
    assert_eq!(world.lifetime(), Some(Lifetime::Open));
    assert_eq!(Lifetime::Open.interval(), Some(0));
    assert_eq!(world.filtering(), Some(Filtering::None));
    // One with a firewall that lets strangers in at the ordinary port alone.
    let mut world = World::new(Filter {
        open: &[PORT],
        lifetime: 60_000,
        ..NAT
    });
    world.run(SETTLED + 10_000);
    assert_eq!(world.lifetime(), Some(Lifetime::Open));
}

#[test]
fn a_nat_that_admits_other_ports_of_a_host_is_not_open() {
    let mut world = World::new(Filter {
        any_port: true,
        lifetime: 60_000,
        ..NAT
    });
    world.run(WHOLE);
    assert_eq!(world.lifetime(), Some(Lifetime::AtLeast(45)));
}

#[test]
fn a_found_lifetime_grows_and_ends_with_the_network() {
    let mut world = World::new(NAT);
    world.run(SETTLED + 60_000);
    assert_eq!(world.lifetime(), Some(Lifetime::AtLeast(45)));
    assert!(world.nodes[0].is_measuring(Scope::Ipv4));
    world.run(40_000);
    assert_eq!(world.lifetime(), Some(Lifetime::AtLeast(90)));
    let now = world.now;
    world.nodes[0].handle_network_change(now);
    assert_eq!(world.lifetime(), None);
    world.run(1_000);
    assert_eq!(world.listens[0], Vec::<Key>::new());
    world.run(WHOLE);
    assert_eq!(world.lifetime(), Some(Lifetime::AtLeast(290)));
}

#[test]
fn a_wrong_finding_is_distrusted_for_longer_each_time() {
    let mut world = World::new(NAT);
    for hours in [1, 2, 4] {
        world.run(WHOLE);
        assert_eq!(world.lifetime(), Some(Lifetime::AtLeast(290)));
        let now = world.now;
        world.nodes[0].handle_moved(now, B);
        assert_eq!(world.lifetime(), None);
        let next = world.nodes[0].poll_timeout().unwrap();
        assert!(next >= now + hours * DISTRUST, "{hours} h");
        world.run(hours * DISTRUST - 1_000);
        assert!(!world.nodes[0].is_measuring(Scope::Ipv4));
        world.run(2_000);
    }
}

/// A second peer that has not helped, and a third one.
#[test]
fn a_finding_of_another_peer_takes_two_to_refute() {
    const C: NodeAddr = NodeAddr::new([0xc; 16]);
    const D: NodeAddr = NodeAddr::new([0xd; 16]);
    let mut world = World::new(NAT);
    world.run(WHOLE);
    let (now, finding) = (world.now, Some(Lifetime::AtLeast(290)));
    let node = &mut world.nodes[0];
    let at = "198.51.100.9:2121".parse().unwrap();
    for peer in [C, D] {
        node.set_peer(now, peer, Some(at));
    }
    (0..100).for_each(|_| node.handle_moved(now, C));
    assert_eq!(world.lifetime(), finding, "one alone");
    world.nodes[0].handle_moved(now, D);
    assert_eq!(world.lifetime(), None);
}

#[test]
fn a_peer_that_goes_away_is_no_sign_of_a_nat() {
    let mut world = World::new(NAT);
    world.run(SETTLED + 30_000);
    let now = world.now;
    world.nodes[0].set_peer(now, B, None);
    world.run(60_000);
    assert_eq!(
        (world.lifetime(), world.nodes[0].is_measuring(Scope::Ipv4)),
        (None, false)
    );
    assert!(world.listens[0].is_empty());

    // No late answer arrives: the first lifetime is too short.
    let mut world = World::new(NAT);
    world.run(SETTLED + 30_000);
    world.filter.lifetime = 0;
    world.run(WHOLE);
    assert_eq!(world.lifetime(), Some(Lifetime::Short));
    world.filter.lifetime = u64::MAX;
    world.run(REPEAT);
    assert_eq!(world.lifetime(), Some(Lifetime::AtLeast(290)));
    let sent = world.datagrams[0];
    world.run(10 * LAST_REPEAT);
    assert_eq!(world.datagrams[0], sent, "nothing better can be found");
}

#[test]
fn a_shorter_lifetime_replaces_an_earlier_finding() {
    let mut world = World::new(Filter {
        lifetime: 200_000,
        ..NAT
    });
    world.run(WHOLE);
    assert_eq!(world.lifetime(), Some(Lifetime::AtLeast(150)));
    world.filter.lifetime = 100_000;
    world.run(REPEAT);
    assert!(world.nodes[0].is_measuring(Scope::Ipv4));
    assert_eq!(world.lifetime(), Some(Lifetime::AtLeast(150)), "until more is known");
    world.run(WHOLE);
    assert_eq!(world.lifetime(), Some(Lifetime::AtLeast(90)));
}

#[test]
fn a_peer_that_does_not_answer_is_asked_once_an_hour() {
    let mut world = World::new(NAT);
    world.answers = false;
    world.run(3 * AGAIN);
    assert_eq!(world.lifetime(), None);
    let probes = u64::from(5 * (SOCKETS - 1));
    assert!(world.datagrams[0] <= 3 * probes, "{:?}", world.datagrams);
    assert_eq!(world.datagrams[1], 0);
}

#[test]
fn a_peer_answers_few_requests_at_its_link_alone() {
    let mut node = Lifetimes::new(Box::new(ChaCha20Rng::seed_from_u64(1)));
    let request = |n: u8| {
        Request {
            key: [n; 16],
            silent: 7,
            delays: vec![600; request::MOST],
        }
        .emit()
    };
    // Of a node without a link, nothing is known.
    node.handle_message(0, A, &request(0)).unwrap();
    assert_eq!(node.poll_output(), None);
    node.set_peer(0, A, Some(a(PORT)));
    for n in 0..200 {
        node.handle_message(0, A, &request(n)).unwrap();
    }
    let listens = std::iter::from_fn(|| node.poll_output()).count();
    assert_eq!(listens, 3);
    // A flood of probes to one of them, half of them from another host.
    for n in 0..1_000_u32 {
        let from = if n % 2 == 0 { a(PORT) } else { b(9) };
        let (ack, sequence, key) = (false, n % 10, [0; 16]);
        node.handle_datagram(1, None, from, &Probe { ack, sequence, key }.emit());
    }
    let mut sent = 0;
    while let Some(at) = node.poll_timeout().filter(|at| *at < 10 * AGAIN) {
        node.handle_timeout(at);
        while let Some(output) = node.poll_output() {
            if let Output::Send { to, .. } | Output::SendAside { to, .. } = output {
                assert_eq!(to.ip(), a(PORT).ip());
                sent += 1;
            }
        }
        if node.answers.deadline().is_none() {
            break;
        }
    }
    // Even numbers have had eight probes each: as many acks, two late answers, nine from aside.
    assert_eq!(sent, 4 * (8 + 2) + 9);
    // Many peers fill the places, and no more.
    for n in 0..100 {
        let peer = NodeAddr::new([100 + n; 16]);
        node.set_peer(0, peer, Some(a(u16::from(n) + 1)));
        node.handle_message(20_000_000, peer, &request(n)).unwrap();
    }
    let listens = std::iter::from_fn(|| node.poll_output()).filter(|output| matches!(output, Output::Listen { .. }));
    assert_eq!(listens.count(), 32);
}

#[test]
fn forged_answers_prove_nothing() {
    let mut world = World::new(Filter {
        lifetime: 30_000,
        ..NAT
    });
    world.run(SETTLED + 5_000);
    let running = world.nodes[0].running.as_ref().unwrap();
    let (key, now) = (running.key, world.now);
    // The peer answers too early, and others at any time.
    for sequence in 0..=u32::from(u16::MAX) {
        for from in [b(PORT), b(9), SocketAddr::from(([203, 0, 113, 9], PORT))] {
            let probe = Probe {
                ack: false,
                sequence,
                key,
            };
            world.nodes[0].handle_datagram(now, Some(0), from, &probe.emit());
        }
    }
    let other = SocketAddr::from(([203, 0, 113, 9], PORT));
    for (socket, from) in [(None, other), (None, b(PORT)), (Some(4), other)] {
        let probe = Probe {
            ack: false,
            sequence: ASIDE,
            key,
        };
        world.nodes[0].handle_datagram(now, socket, from, &probe.emit());
    }
    world.run(WHOLE);
    assert_eq!(world.lifetime(), Some(Lifetime::Short));
}

proptest! {
    /// Whatever gets lost, no lifetime is found that is longer than the filter has.
    #[test]
    fn no_loss_makes_a_lifetime_longer(lost in 2u64..40, seconds in 20u64..400) {
        let lifetime = seconds * 1_000;
        let mut world = World::new(Filter { lifetime, ..NAT });
        world.lost = Some(lost);
        world.run(WHOLE);
        match world.lifetime() {
            Some(Lifetime::AtLeast(found)) => prop_assert!(u64::from(found) <= seconds),
            Some(Lifetime::Open) => prop_assert!(false),
            Some(Lifetime::Short) | None => {}
        }
    }

    #[test]
    fn no_bytes_break_it(bytes: Vec<u8>, socket: Option<u16>) {
        let mut world = World::new(NAT);
        world.run(SETTLED + 2_000);
        let now = world.now;
        let _ = world.nodes[0].handle_message(now, B, &bytes);
        world.nodes[0].handle_datagram(now, socket, b(PORT), &bytes);
    }
}
