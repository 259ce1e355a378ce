//! The memory of a lane changes no decision, and the packets that it answers for have the shape that
//! a walk over their headers finds.

use std::net::Ipv4Addr;

use super::super::flow_key::{ENDS, Packet, ends_connection};
use super::*;

const FIN: u8 = 1;
/// Far longer than the memory. Steps of it and short pauses come near no bound of a flow.
const LONG: u64 = 65_000;

#[derive(Clone, Copy, Debug)]
enum Shape {
    Tcp6,
    Udp6,
    Tcp4,
    Udp4,
    Tcp4Fragment,
    Tcp4Options,
    Echo,
    /// TCP behind an extension header.
    Optioned,
    /// Ports behind the end of the packet.
    Padded,
    First,
    Later,
}

const SHAPES: [Shape; 11] = [
    Shape::Tcp6,
    Shape::Udp6,
    Shape::Tcp4,
    Shape::Udp4,
    Shape::Tcp4Fragment,
    Shape::Tcp4Options,
    Shape::Echo,
    Shape::Optioned,
    Shape::Padded,
    Shape::First,
    Shape::Later,
];

fn shaped(shape: Shape, direction: Direction, ports: (u16, u16), flags: u8) -> Vec<u8> {
    let (from, to, ports) = match direction {
        Direction::Out => (ME, PEER, ports),
        Direction::In => (PEER, ME, (ports.1, ports.0)),
    };
    let v6 = |protocol| packet(from, to, protocol, ports, flags);
    let v4 = |protocol, fragment| {
        let mut header = [
            0x45, 0, 0, 40, 0, 7, fragment, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2,
        ];
        if direction == Direction::In {
            (header[15], header[19]) = (2, 1);
        }
        [&header[..], &v6(protocol)[40..]].concat()
    };
    match shape {
        Shape::Tcp6 => v6(TCP),
        Shape::Udp6 => v6(UDP),
        Shape::Tcp4 => v4(TCP, 0x40),
        Shape::Udp4 => v4(UDP, 0),
        Shape::Tcp4Fragment => v4(TCP, 0x20),
        Shape::Tcp4Options => {
            let plain = v4(TCP, 0);
            let mut packet = [&plain[..20], &[1; 4], &plain[20..]].concat();
            (packet[0], packet[3]) = (0x46, 44);
            packet
        }
        Shape::Echo => {
            let (kind, ident) = match direction {
                Direction::Out => (128, ports.0),
                Direction::In => (129, ports.1),
            };
            icmp(from, to, kind, &[ident.to_be_bytes(), [0, 1]].concat())
        }
        Shape::Optioned => {
            let plain = v6(TCP);
            let mut packet = [&plain[..40], &[TCP, 0, 1, 4, 0, 0, 0, 0], &plain[40..]].concat();
            (packet[5], packet[6]) = (28, 0);
            packet
        }
        Shape::Padded => {
            let mut packet = v6(TCP);
            packet[5] = 2;
            packet
        }
        Shape::First => fragment(ports.0.into(), 0, true, ports.1),
        Shape::Later => fragment(ports.0.into(), 3, false, 0),
    }
}

fn shape() -> impl Strategy<Value = Shape> {
    prop::sample::select(SHAPES.to_vec())
}

fn direction() -> impl Strategy<Value = Direction> {
    prop::sample::select(vec![Direction::Out, Direction::In])
}

fn flags() -> impl Strategy<Value = u8> {
    prop::sample::select(vec![SYN, ACK, ACK, ACK, RST, FIN | ACK])
}

fn pause() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => 0_u64..400,
        1 => prop::sample::select(vec![1_u64, 2, 4, 5, 115]).prop_map(|steps| steps * LONG),
    ]
}

/// A node whose peers have IPv4 addresses, too.
fn node(ports: &[u16], generation: u64) -> Arc<Policy> {
    let mut rules = rules(ports);
    for peer in rules.values_mut() {
        peer.networks[0].ipv4 = Some(Addresses {
            ours: Ipv4Addr::new(10, 0, 0, 1),
            theirs: Ipv4Addr::new(10, 0, 0, 2),
        });
    }
    Arc::new(Policy::new(ME, generation, rules))
}

/// Lanes with or without memory that share a table.
struct Lanes {
    policy: Arc<Policy>,
    lanes: [Firewall; 2],
    routes: Routes,
    remember: bool,
}

impl Lanes {
    fn new(remember: bool) -> Self {
        let common = Arc::new(CommonFlows::default());
        let mut lanes = Self {
            policy: node(&[1], 1),
            lanes: [0; 2].map(|_| Firewall::new(common.clone())),
            routes: Routes::new(ME),
            remember,
        };
        lanes.set();
        lanes
    }

    fn set(&mut self) {
        for lane in &mut self.lanes {
            lane.set(0, Some(self.policy.clone()), None);
            if let Some(active) = lane.active.as_mut().filter(|_| !self.remember) {
                active.recent = RecentFlows::none();
            }
        }
    }

    fn change(&mut self, ports: &[u16]) {
        self.policy = node(ports, self.policy.generation() + 1);
        self.set();
    }

    fn check(&mut self, now: u64, lane: usize, direction: Direction, packet: &[u8]) -> Result<Verdict, DropReason> {
        match direction {
            Direction::Out => self.lanes[lane].outbound(now, packet).map(|()| Verdict::Pass),
            Direction::In => self.lanes[lane].inbound(now, &self.routes, PEER, packet),
        }
    }
}

#[test]
fn a_packet_of_this_host_admits_none_of_the_peer() {
    let mut node = Node::new(&[22]);
    let ssh = to_me(TCP, (5000, 22), ACK);
    assert_eq!(node.receive(0, &ssh), Ok(()));
    node.change(&[]);
    let lane = &mut node.lanes[1];
    for now in [0, 0, 1] {
        assert_eq!(lane.outbound(now, &from_me(TCP, (22, 5000), ACK)), Ok(()));
        assert_eq!(lane.inbound(now, &node.routes, PEER, &ssh), Err(DropReason::Denied));
    }
}

#[test]
fn the_memory_ends_after_a_second() {
    let mut node = Node::new(&[22]);
    let ssh = to_me(TCP, (5000, 22), ACK);
    let key = FlowKey::of_usual(&ssh, Direction::In).unwrap();
    let remembers = |node: &Node, now| {
        let active = node.lanes[0].active.as_ref();
        active.is_some_and(|active| active.recent.has(now, &key, Direction::In))
    };
    assert!(!remembers(&node, 0));
    assert_eq!(node.receive(0, &ssh), Ok(()));
    assert!(remembers(&node, 999) && !remembers(&node, 1_000));
    assert_eq!(node.receive(999, &ssh), Ok(()), "which prolongs nothing");
    assert!(!remembers(&node, 1_000));
}

#[test]
fn a_flow_that_displaces_another_takes_none_of_its_memory() {
    let key = |port| FlowKey::of_usual(&from_me(TCP, (port, 22), ACK), Direction::Out).unwrap();
    let (kept, mut displaced) = (key(0), 0);
    for port in 1..=u16::MAX {
        let mut recent = RecentFlows::new(7);
        recent.add(0, kept, Direction::In);
        recent.add(0, key(port), Direction::Out);
        displaced += u32::from(!recent.has(0, &kept, Direction::In));
        assert!(!recent.has(0, &key(port), Direction::In));
        assert!(recent.has(0, &key(port), Direction::Out));
        if displaced > 0 {
            return;
        }
    }
    panic!("no two flows share a place");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_024))]

    /// Whatever came before, a packet passes if and only if it passes without the memory.
    #[test]
    fn lanes_decide_as_without_memory(
        steps in prop::collection::vec(
            (pause(), 0..8_u8, shape(), direction(), 0..2_usize, 1..3_u16, 5..7_u16, flags()),
            1..60,
        ),
    ) {
        let [mut with, mut without] = [true, false].map(Lanes::new);
        let mut now = 0;
        for (pause, kind, shape, direction, lane, local, remote, flags) in steps {
            now += pause;
            if kind == 0 {
                with.change(&[local]);
                without.change(&[local]);
                continue;
            }
            let packet = shaped(shape, direction, (local, remote), flags);
            let [passed, wanted] = [&mut with, &mut without].map(|lanes| lanes.check(now, lane, direction, &packet));
            prop_assert_eq!(passed, wanted, "{:?} {:?}", shape, direction);
        }
    }

    /// What counts as usual is what the walk over the headers finds, bytes that were changed
    /// included.
    #[test]
    fn usual_packets_are_what_the_walk_finds(
        shape in shape(),
        direction in direction(),
        flags in flags(),
        changes in prop::collection::vec((0..64_usize, any::<u8>()), 0..4),
        more in prop::collection::vec(any::<u8>(), 0..4),
        less in 0..4_usize,
    ) {
        let mut packet = shaped(shape, direction, (1, 5), flags);
        let is_usual = matches!(shape, Shape::Tcp6 | Shape::Udp6 | Shape::Tcp4 | Shape::Udp4);
        if changes.is_empty() && more.is_empty() && less == 0 {
            let goes_on = flags & ENDS == 0 || matches!(shape, Shape::Udp6 | Shape::Udp4);
            prop_assert_eq!(FlowKey::of_usual(&packet, direction).is_some(), is_usual && goes_on);
        }
        for (at, byte) in changes {
            if let Some(old) = packet.get_mut(at) {
                *old = byte;
            }
        }
        packet.truncate(packet.len() - less);
        packet.extend(more);
        if let Some(key) = FlowKey::of_usual(&packet, direction) {
            let inner = Inner::parse(&packet);
            prop_assert!(inner.is_ok(), "{:?}", inner.err());
            let inner = inner.unwrap();
            prop_assert_eq!(Packet::of(&inner, direction), Packet::OfFlow(key));
            prop_assert!(!inner.is_fragment() && !inner.is_source_routed() && !ends_connection(&inner));
            prop_assert_eq!(inner.packet().len(), packet.len());
        }
    }
}
