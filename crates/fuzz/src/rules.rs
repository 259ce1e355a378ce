//! The firewall: two lanes under rules that the bytes choose, and packets of both hosts.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use weft_contract::rules::Policy;
use weft_contract::{
    Command, EpochId, EpochUse, FastKeys, HandshakeLimits, LaneConfig, LinkCommand, LinkId, LinkKeys, ReceiverIndex,
    SessionCommand, SessionKeys, TableCommand,
};
use weft_noise::fast::{LaneSecrets, Secret, Suite};
use weft_packet::firewall::MAX_FLOWS;
use weft_packet::{DropReason, Lane, Train};
use weft_wire::virtio::VirtioNetHdr;
use weft_wire::{NodeAddr, Subnet};

use super::input::Input;
use super::lane::{Sent, key};

mod model;
mod packets;

use model::{Model, SlowPolicy};
use packets::Probe;

const NODES: [NodeAddr; 2] = [NodeAddr::new([1; 16]), NodeAddr::new([2; 16])];
const LINK: LinkId = LinkId(1);
const MTU: u16 = 1280;
const MAX_EVENTS: usize = 120;

/// Sets rules and sends packets in any shape in both directions. A packet of the other host is
/// delivered only if a slow model of rules and flows lets it, and one that the model lets in is not
/// denied; the table of flows stays within its bound.
pub fn rules(data: &[u8]) {
    let mut input = Input::new(data);
    let mut pair = Pair::new(input.flag());
    for _ in 0..MAX_EVENTS {
        if input.is_empty() {
            break;
        }
        pair.event(&mut input);
    }
}

/// One of the two nodes, with what its firewall must know.
struct Node {
    lane: Lane,
    train: Train<Sent>,
    /// The number of policies that it has been given.
    policies: u64,
    model: Model,
}

struct Pair {
    now: u64,
    /// Whether there are fast frames: FIPS frames carry packets between the nodes alone.
    fast: bool,
    nodes: [Node; 2],
}

/// The networks behind each node, further addresses of the node included.
fn behind(node: usize) -> Vec<Subnet> {
    let texts = [
        ["10.7.0.1/32", "10.9.0.1/32", "10.6.0.0/16", "fdab:1::/64"],
        ["10.7.0.2/32", "10.9.0.2/32", "10.8.0.0/16", "fdab:2::/64"],
    ];
    texts[node].iter().map(|text| text.parse().unwrap()).collect()
}

/// The addresses of a node, and of hosts behind it.
fn addresses(node: usize) -> [IpAddr; 5] {
    let own = NODES[node].to_ipv6().into();
    let [a, b, c, d] = [
        ["10.7.0.1", "10.9.0.1", "10.6.0.5", "fdab:1::5"],
        ["10.7.0.2", "10.9.0.2", "10.8.0.5", "fdab:2::5"],
    ][node]
        .map(|text| text.parse().unwrap());
    [own, a, b, c, d]
}

fn address(node: usize) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, node as u8 + 1], 2121))
}

impl Pair {
    fn new(fast: bool) -> Self {
        let node = |me: usize| {
            let config = LaneConfig {
                me: NODES[me],
                mtu: MTU,
                probe: false,
                transit: false,
                handshakes: HandshakeLimits::default(),
            };
            Node {
                lane: Lane::new(config),
                train: Train::new(Sent::default(), 64),
                policies: 0,
                model: Model::default(),
            }
        };
        let mut pair = Self {
            now: 1_000,
            fast,
            nodes: [node(0), node(1)],
        };
        for me in 0..2 {
            pair.install(me);
        }
        for me in 0..2 {
            if fast {
                let confirm = SessionCommand::ConfirmFast { id: EpochId(0) };
                pair.apply(me, Command::Session(NODES[1 - me], confirm));
                pair.exchange();
            }
        }
        pair
    }

    fn apply(&mut self, node: usize, command: Command) {
        let Node { lane, train, .. } = &mut self.nodes[node];
        lane.apply(self.now, command, train);
    }

    fn install(&mut self, me: usize) {
        let (other, peer) = (1 - me, NODES[1 - me]);
        let send = |kind: u8| key(kind << 4 | me as u8, 0, 0);
        let recv = |kind: u8| key(kind << 4 | other as u8, 0, 0);
        let (our_index, their_index) = (ReceiverIndex(me as u32), ReceiverIndex(other as u32));
        let (usage, id) = (EpochUse::Send, EpochId(0));
        let keys = LinkKeys {
            our_index,
            their_index,
            send: send(1),
            recv: recv(1),
        };
        let link = LinkCommand::Install {
            peer,
            path: address(other).into(),
            proven: true,
            keys,
            usage,
        };
        let keys = SessionKeys {
            id,
            initiator: me == 0,
            send: send(2),
            recv: recv(2),
        };
        let theirs = behind(other).into_iter().map(|network| (network, peer)).collect();
        let ours = behind(me);
        for command in [
            Command::Table(TableCommand::AllowPeer { peer }),
            Command::Link(LINK, link),
            Command::Session(peer, SessionCommand::Install { keys, usage }),
            Command::Session(peer, SessionCommand::Bind { link: LINK }),
            Command::Table(TableCommand::SetSubnets { ours, theirs }),
        ] {
            self.apply(me, command);
        }
        if self.fast {
            let keys = FastKeys {
                id,
                our_index,
                their_index,
                max_payload: 9_000,
                reads_full: true,
                suite: Suite::Aes256Gcm,
                secrets: LaneSecrets {
                    send: Secret::from_key(&send(3)),
                    recv: Secret::from_key(&recv(3)),
                },
                phase_frames: 1 << 20,
            };
            self.apply(me, Command::Session(peer, SessionCommand::InstallFast { keys }));
        }
    }

    fn event(&mut self, input: &mut Input<'_>) {
        match input.below(32) {
            0..=3 => self.set_rules(input),
            4..=6 => self.now += [1, 500, 1_500, 20_000, 70_000, 400_000, 8_000_000][input.below(7)],
            7 => self.send_any(input),
            _ => self.send(input),
        }
        for Node { lane, .. } in &self.nodes {
            assert!(lane.known_flows() <= MAX_FLOWS);
            assert_eq!(lane.check_invariants(), Ok(()));
        }
    }

    fn set_rules(&mut self, input: &mut Input<'_>) {
        let at = input.below(2);
        let slow = SlowPolicy::from(input, at);
        let policy = [(NODES[1 - at], slow.peer_rules())].into();
        self.nodes[at].policies += 1;
        let policy = Arc::new(Policy::new(NODES[at], self.nodes[at].policies, policy));
        self.nodes[at].model.policy = Some(slow);
        let policy = Some(policy);
        self.apply(at, Command::Table(TableCommand::SetPolicy { policy, first: None }));
    }

    /// Sends a packet whose meaning is known.
    fn send(&mut self, input: &mut Input<'_>) {
        let from = input.below(2);
        let probe = Probe::from(input, from, self.fast);
        let packet = probe.bytes();
        let to = 1 - from;
        let denied = self.nodes[to].lane.counters().drops[DropReason::Denied];
        let now = self.now;
        let wrong_sources = |world: &Self| world.nodes[from].lane.counters().drops[DropReason::WrongSource];
        let before = wrong_sources(self);
        self.outbound(from, &packet);
        let may_leave = self.nodes[from].model.may_leave(&probe);
        assert_eq!(wrong_sources(self) == before, may_leave, "{probe:?}");
        if may_leave {
            self.nodes[from].model.sent(now, &probe);
        }
        let delivered = self.exchange()[to].contains(&packet);
        let model = &mut self.nodes[to].model;
        if delivered {
            assert!(model.may_pass(&probe), "{probe:?} must not pass");
            model.received(now, &probe);
        } else if self.nodes[to].lane.counters().drops[DropReason::Denied] > denied {
            assert!(!model.must_pass(now, &probe), "{probe:?} must pass");
        }
    }

    /// Sends any bytes, which a host that knows and allows nothing does not receive.
    fn send_any(&mut self, input: &mut Input<'_>) {
        let from = input.below(2);
        let mut packet = Probe::from(input, from, self.fast).bytes();
        input.spoil(&mut packet);
        self.outbound(from, &packet);
        let arrived = self.exchange().swap_remove(1 - from);
        assert!(
            arrived.is_empty() || !self.nodes[1 - from].model.is_closed(),
            "{arrived:?}"
        );
        // Both ends may know flows now that the model does not.
        self.nodes.iter_mut().for_each(|node| node.model.is_vague = true);
    }

    fn outbound(&mut self, from: usize, packet: &[u8]) {
        let Node { lane, train, .. } = &mut self.nodes[from];
        lane.outbound(self.now, VirtioNetHdr::default(), packet, train);
        // Answers of the lane itself to its host.
        while lane.poll_reply().is_some() {}
    }

    /// Delivers all frames, and returns the packets for each TUN.
    fn exchange(&mut self) -> Vec<Vec<Vec<u8>>> {
        let mut arrived = vec![Vec::new(), Vec::new()];
        loop {
            let mut quiet = true;
            for from in 0..2 {
                let train = &mut self.nodes[from].train;
                train.flush();
                for (_, frame) in std::mem::take(&mut train.out_mut().0) {
                    quiet = false;
                    let Node { lane, train, .. } = &mut self.nodes[1 - from];
                    let packet = lane.inbound_alone(self.now, address(from), &frame, train);
                    arrived[1 - from].extend(packet);
                    arrived[1 - from].extend(std::iter::from_fn(|| lane.poll_reply()));
                }
            }
            for node in &mut self.nodes {
                while node.lane.poll_report().is_some() {}
            }
            if quiet {
                return arrived;
            }
        }
    }
}
