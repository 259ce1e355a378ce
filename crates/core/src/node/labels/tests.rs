//! A node's answers to neighbours that bind labels at it, its requests to the next hop, and its
//! commands to the lane.

use rand_chacha::ChaCha20Rng;
use rand_core::SeedableRng as _;
use weft_contract::{Command, Label, LinkCommand, SendCommand, SessionCommand};
use weft_noise::{Identity, PublicKey, SecretKey};

use super::*;
use crate::context::Output;
use crate::{Config, PeerConfig};

const NOW: u64 = 100_000;
/// The neighbour that binds labels at the node.
const FROM: usize = 0;
/// The neighbour through which [`DEST`] is reached.
const HOP: usize = 1;
/// Another neighbour.
const SPARE: usize = 2;
/// Not a neighbour at first.
const DEST: usize = 3;
/// The maximum size of the neighbours' frames, in bytes.
const MTU: u16 = 1_300;

/// An action of the node.
#[derive(Debug, PartialEq, Eq)]
enum Did {
    /// Bound a label at a neighbour.
    Bind(usize, u32, NodeAddr),
    /// Answered a neighbour.
    Bound(usize, u32, Result<u16, Refusal>),
    /// Ended a label with a neighbour.
    Unbind(usize, u32, UnbindBy),
    /// Sent the lane the route of a neighbour's frames.
    Set(usize, u32, LabelRoute),
    /// Removed that route from the lane.
    Remove(usize, u32),
    /// Sent the lane the label of a session's frames.
    Relay(Option<Relay>),
    /// Reported that a neighbour's size is refused.
    SizeRefused(u16),
}
use Did::{Remove, Set, SizeRefused};

/// A node with three neighbours and a configured peer behind one of them.
struct Bench {
    node: Node,
    keys: Vec<PublicKey>,
}

impl Bench {
    fn new(config: Config) -> Self {
        let mut rng = ChaCha20Rng::seed_from_u64(1);
        let ours = Identity::new(SecretKey::generate(&mut rng));
        let keys: Vec<_> = (0..4)
            .map(|_| Identity::new(SecretKey::generate(&mut rng)).public())
            .collect();
        let mut node = Node::new(config, ours, Box::new(rng));
        for key in &keys {
            let addresses = Vec::new();
            node.add_peer(NOW, &PeerConfig { key: *key, addresses });
        }
        let mut bench = Self { node, keys };
        for who in [FROM, HOP, SPARE] {
            bench.link_up(who);
        }
        let (dest, hop) = (bench.addr(DEST), bench.addr(HOP));
        bench.node.mesh.prove_way(NOW, dest, hop);
        bench.did();
        bench
    }

    fn meshed() -> Self {
        Self::new(config())
    }

    fn link_up(&mut self, who: usize) {
        let (addr, key) = (self.addr(who), self.keys[who]);
        self.node.mesh.neighbour_up(NOW, addr, key);
        self.node.with_peer(addr, |_, peer| peer.link.open_for_relayed(NOW));
    }

    fn addr(&self, who: usize) -> NodeAddr {
        self.keys[who].node_addr()
    }

    fn link(&self, who: usize) -> LinkId {
        self.node.peers.get(&self.addr(who)).unwrap().link.id
    }

    fn who(&self, link: LinkId) -> usize {
        (0..4).find(|who| self.link(*who) == link).unwrap()
    }

    /// Returns the node's actions since the last call.
    fn did(&mut self) -> Vec<Did> {
        let outputs: Vec<_> = std::iter::from_fn(|| self.node.ctx.next_output()).collect();
        let did = outputs.into_iter().filter_map(|output| match output {
            Output::Lane(Command::Send(SendCommand::OnLink {
                link, msg_type, body, ..
            })) => self.sent(self.who(link), msg_type, &body),
            Output::Lane(Command::Link(link, LinkCommand::SetLabel { label, to })) => {
                Some(Set(self.who(link), label.0, to))
            }
            Output::Lane(Command::Link(link, LinkCommand::RemoveLabel { label })) => {
                Some(Remove(self.who(link), label.0))
            }
            Output::Lane(Command::Session(_, SessionCommand::Relay { relay, .. })) => Some(Did::Relay(relay)),
            Output::Event(Event::SizeRefused { told, .. }) => Some(SizeRefused(told)),
            _ => None,
        });
        did.collect()
    }

    fn sent(&self, to: usize, msg_type: u8, body: &[u8]) -> Option<Did> {
        match msg_type {
            BIND => Bind::parse(body).ok().map(|it| Did::Bind(to, it.label, it.dest)),
            BOUND => Bound::parse(body).ok().map(|it| Did::Bound(to, it.label, it.answer)),
            UNBIND => Unbind::parse(body).ok().map(|it| Did::Unbind(to, it.label, it.by)),
            _ => None,
        }
    }

    fn bind(&mut self, now: u64, who: usize, label: u32, dest: NodeAddr) -> Vec<Did> {
        let mut body = [0; Bind::LEN];
        Bind { label, dest }.emit(&mut body).unwrap();
        self.node.handle_bind(now, self.link(who), &body);
        self.did()
    }

    fn bound(&mut self, now: u64, who: usize, label: u32, answer: Result<u16, Refusal>) -> Vec<Did> {
        let mut body = [0; Bound::LEN];
        Bound { label, answer }.emit(&mut body).unwrap();
        self.node.handle_bound(now, self.link(who), &body);
        self.did()
    }

    fn unbind(&mut self, now: u64, who: usize, label: u32, by: UnbindBy) -> Vec<Did> {
        let mut body = [0; Unbind::LEN];
        Unbind { label, by }.emit(&mut body).unwrap();
        self.node.handle_unbind(now, self.link(who), &body);
        self.did()
    }

    fn drive(&mut self, now: u64) -> Vec<Did> {
        self.node.drive_labels(now);
        assert_eq!(self.node.labels.check_invariants(), Ok(()));
        self.did()
    }

    /// FROM has label 7 for DEST, and the node's label at HOP is the returned one.
    fn carrying() -> (Self, u32) {
        let mut bench = Self::meshed();
        let dest = bench.addr(DEST);
        let outgoing = bench.bind(NOW, FROM, 7, dest);
        let [Did::Bind(HOP, ours, _)] = outgoing[..] else {
            panic!("{outgoing:?}")
        };
        let on = bench.on(HOP, ours);
        assert_eq!(
            bench.bound(NOW, HOP, ours, Ok(MTU)),
            [Set(FROM, 7, on), Did::Bound(FROM, 7, Ok(MTU))]
        );
        (bench, ours)
    }

    fn on(&self, who: usize, label: u32) -> LabelRoute {
        let link = self.link(who);
        LabelRoute::On {
            link,
            label: Label(label),
        }
    }

    fn counters(&self) -> [u64; 3] {
        let counters = &self.node.counters;
        [
            counters.labels_refused,
            counters.labels_expired,
            counters.messages_malformed,
        ]
    }
}

fn config() -> Config {
    Config {
        mesh: true,
        mtu: 1_400,
        probe: false,
        ..Config::default()
    }
}

fn no(who: usize, label: u32, why: Refusal) -> Did {
    Did::Bound(who, label, Err(why))
}

fn ended(who: usize, label: u32) -> Did {
    Did::Unbind(who, label, UnbindBy::Downstream)
}

#[test]
fn frames_for_us_are_taken_at_once() {
    let mut bench = Bench::meshed();
    let me = bench.node.addr();
    let taken = [Set(FROM, 7, LabelRoute::Here), Did::Bound(FROM, 7, Ok(1_400))];
    assert_eq!(bench.bind(NOW, FROM, 7, me), taken);
    assert_eq!(bench.bind(NOW + 1, FROM, 7, me), taken, "an answer may be lost");
    assert_eq!(
        bench.node.labels.incoming[&(bench.link(FROM), Label(7))].until,
        NOW + 1 + LIFE
    );
}

/// The ends probe what the links take, so nothing but FIPS's size would bound relayed frames here.
#[test]
fn without_a_set_size_frames_up_to_the_largest_probe_are_taken() {
    let mut bench = Bench::new(Config {
        probe: true,
        ..config()
    });
    let me = bench.node.addr();
    let taken = [
        Set(FROM, 7, LabelRoute::Here),
        Did::Bound(FROM, 7, Ok(weft_wire::fast::LARGEST_PROBED)),
    ];
    assert_eq!(bench.bind(NOW, FROM, 7, me), taken);
}

#[test]
fn a_label_that_is_bound_anew_leaves_its_first_destination() {
    let (mut bench, ours) = Bench::carrying();
    let me = bench.node.addr();
    let did = bench.bind(NOW, FROM, 7, me);
    assert_eq!(did[..2], [Remove(FROM, 7), Set(FROM, 7, LabelRoute::Here)]);
    assert_eq!(bench.drive(NOW + REFRESH), [Did::Unbind(HOP, ours, UnbindBy::Upstream)]);
}

#[test]
fn a_node_without_relayed_frames_answers_nothing() {
    for (mesh, fast) in [(false, true), (true, false)] {
        let mut bench = Bench::new(Config { mesh, fast, ..config() });
        let me = bench.node.addr();
        assert_eq!(bench.bind(NOW, FROM, 7, me), []);
        assert!(bench.node.labels.incoming.is_empty());
    }
}

#[test]
fn labels_that_cannot_be_served_are_refused_with_the_reason() {
    let mut bench = Bench::new(Config {
        transit: false,
        ..config()
    });
    let dest = bench.addr(DEST);
    assert_eq!(bench.bind(NOW, FROM, 7, dest), [no(FROM, 7, Refusal::NoTransit)]);
    let mut bench = Bench::meshed();
    assert_eq!(
        bench.bind(NOW, FROM, 7, NodeAddr::new([9; 16])),
        [no(FROM, 7, Refusal::NoWay)]
    );
    assert_eq!(
        bench.bind(NOW, HOP, 7, dest),
        [no(HOP, 7, Refusal::NoWay)],
        "not back to where it comes from"
    );
    assert_eq!(bench.counters(), [2, 0, 0]);
    assert!(bench.node.labels.incoming.is_empty());
    let me = bench.node.addr();
    for label in 0..256 {
        bench.bind(NOW, FROM, label, me);
    }
    assert_eq!(bench.bind(NOW, FROM, 256, me), [no(FROM, 256, Refusal::Quota)]);
    assert_eq!(bench.counters(), [3, 0, 0]);
}

#[test]
fn a_next_hop_with_too_many_labels_is_asked_for_no_more() {
    let (mut bench, _) = Bench::carrying();
    let mut n = 0;
    while bench.node.labels.ask(NOW, bench.link(HOP), NodeAddr::new([n; 16]), 0) {
        n += 1;
    }
    let other = NodeAddr::new([0xee; 16]);
    bench.node.mesh.prove_way(NOW, other, bench.addr(HOP));
    assert_eq!(bench.bind(NOW, FROM, 8, other), [no(FROM, 8, Refusal::Quota)]);
}

#[test]
fn a_route_is_bound_from_its_end_with_the_smallest_size() {
    for (told, passed) in [(1_250, 1_250), (1_400, 1_400), (9_000, 1_400)] {
        let mut bench = Bench::meshed();
        let dest = bench.addr(DEST);
        assert_eq!(bench.bind(NOW, FROM, 7, dest), [Did::Bind(HOP, 1, dest)]);
        assert_eq!(bench.bind(NOW, FROM, 7, dest), [], "it is under way");
        assert_eq!(bench.bind(NOW, SPARE, 9, dest), []);
        let on = bench.on(HOP, 1);
        let did = bench.bound(NOW, HOP, 1, Ok(told));
        let expected = [
            Set(FROM, 7, on),
            Did::Bound(FROM, 7, Ok(passed)),
            Set(SPARE, 9, on),
            Did::Bound(SPARE, 9, Ok(passed)),
        ];
        assert_eq!(did, expected);
        assert_eq!(bench.bound(NOW, HOP, 1, Ok(told)), [], "it says the same again");
        assert_eq!(bench.bound(NOW, HOP, 1, Ok(1_220))[1], Did::Bound(FROM, 7, Ok(1_220)));
        assert_eq!(bench.bind(NOW, FROM, 7, dest)[1], Did::Bound(FROM, 7, Ok(1_220)));
    }
}

#[test]
fn a_used_label_is_bound_again_and_asked_for_ever_more_slowly() {
    let mut bench = Bench::meshed();
    let dest = bench.addr(DEST);
    let ask = || [Did::Bind(HOP, 1, dest)];
    bench.bind(NOW, FROM, 7, dest);
    let mut due = NOW;
    for asks in 0..MAX_REQUESTS {
        due += REQUEST_AGAIN << asks;
        assert_eq!(bench.drive(due - 1), []);
        assert_eq!(bench.node.labels.deadline(), due);
        let last = asks + 1 == MAX_REQUESTS;
        let expected = if last { [no(FROM, 7, Refusal::NoWay)] } else { ask() };
        assert_eq!(bench.drive(due), expected);
    }
    assert_eq!(
        bench.bind(due + RETRY - 1, FROM, 7, dest),
        [no(FROM, 7, Refusal::NoWay)]
    );
    // The node's own frames keep a label alive that the neighbour does not know.
    bench.node.labels.ask(due, bench.link(HOP), dest, due + 3 * RETRY);
    assert_eq!(bench.drive(due + RETRY - 1), []);
    due += RETRY;
    assert_eq!(bench.drive(due), ask());
    due += REQUEST_AGAIN;
    assert_eq!(bench.drive(due - 1), []);
    assert_eq!(bench.drive(due), ask());
    bench.bound(due, HOP, 1, Ok(MTU));
    assert_eq!(bench.drive(due + REFRESH - 1), []);
    assert_eq!(bench.drive(due + REFRESH), ask());
    assert_eq!(bench.drive(due + REFRESH + RETRY_SOON - 1), []);
}

#[test]
fn a_refresh_that_is_not_answered_is_repeated_soon() {
    let (mut bench, ours) = Bench::carrying();
    let dest = bench.addr(DEST);
    let ask = [Did::Bind(HOP, ours, dest)];
    assert_eq!(bench.drive(NOW + REFRESH), ask);
    assert_eq!(bench.drive(NOW + REFRESH + RETRY_SOON), ask);
    bench.bound(NOW + REFRESH + RETRY_SOON, HOP, ours, Ok(MTU));
    assert_eq!(
        bench.node.labels.outgoing[&(bench.link(HOP), dest)].next,
        NOW + 2 * REFRESH + RETRY_SOON
    );
}

#[test]
fn labels_that_are_no_longer_bound_end_with_ours_for_them() {
    let (mut bench, ours) = Bench::carrying();
    let dest = bench.addr(DEST);
    bench.drive(NOW + REFRESH);
    bench.bound(NOW + REFRESH, HOP, ours, Ok(MTU));
    bench.drive(NOW + 2 * REFRESH);
    bench.bound(NOW + 2 * REFRESH, HOP, ours, Ok(MTU));
    assert_eq!(bench.drive(NOW + LIFE - 1), []);
    assert_eq!(bench.drive(NOW + LIFE), [Remove(FROM, 7)]);
    assert_eq!(bench.counters(), [0, 1, 0]);
    assert_eq!(
        bench.drive(NOW + 3 * REFRESH),
        [Did::Unbind(HOP, ours, UnbindBy::Upstream)]
    );
    assert!(bench.node.labels.outgoing.is_empty());
    assert_eq!(
        bench.bind(NOW + 3 * REFRESH, FROM, 7, dest),
        [Did::Bind(HOP, ours + 1, dest)]
    );
}

#[test]
fn a_label_that_is_lost_is_taken_back_from_all_that_use_it() {
    type Loss = fn(&mut Bench, u32) -> Vec<Did>;
    let losses: [(&str, u64, Loss); 3] = [
        ("refused", RETRY, |bench, ours| {
            bench.bound(NOW, HOP, ours, Err(Refusal::NoWay))
        }),
        ("too small", RETRY, |bench, ours| {
            bench.bound(NOW, HOP, ours, Ok(LEAST_PAYLOAD - 1))
        }),
        ("taken back", RETRY_SOON, |bench, ours| {
            bench.unbind(NOW, HOP, ours, UnbindBy::Downstream)
        }),
    ];
    for (name, again, loss) in losses {
        let (mut bench, ours) = Bench::carrying();
        assert_eq!(bench.drive(NOW), []);
        let mut did = loss(&mut bench, ours);
        did.retain(|did| !matches!(did, SizeRefused(_)));
        assert_eq!(bench.node.labels.deadline(), NOW + again, "{name}");
        assert_eq!(did, [Remove(FROM, 7), ended(FROM, 7)], "{name}");
        let dest = bench.addr(DEST);
        assert_eq!(bench.bind(NOW, FROM, 7, dest), [no(FROM, 7, Refusal::NoWay)], "{name}");
        assert_eq!(bench.drive(NOW + again - 1), [], "{name}");
        assert_eq!(
            bench.drive(NOW + again),
            [Did::Unbind(HOP, ours, UnbindBy::Upstream)],
            "{name}"
        );
    }
}

#[test]
fn a_size_below_the_least_is_refused_counted_and_reported() {
    let (mut bench, ours) = Bench::carrying();
    assert_eq!(
        bench.bound(NOW, HOP, ours, Ok(LEAST_PAYLOAD))[1],
        Did::Bound(FROM, 7, Ok(LEAST_PAYLOAD))
    );
    let refused = |did: Vec<Did>| did.contains(&SizeRefused(LEAST_PAYLOAD - 1));
    assert!(refused(bench.bound(NOW, HOP, ours, Ok(LEAST_PAYLOAD - 1))));
    assert!(!refused(bench.bound(NOW + 1, HOP, ours, Ok(LEAST_PAYLOAD - 1))));
    assert_eq!(bench.node.ctx.path_counters.refused, 2);
}

#[test]
fn an_answer_about_an_unasked_label_changes_nothing() {
    let (mut bench, ours) = Bench::carrying();
    assert_eq!(bench.bound(NOW, HOP, ours + 1, Err(Refusal::NoWay)), []);
    assert_eq!(bench.bound(NOW, SPARE, ours, Err(Refusal::NoWay)), []);
    assert_eq!(bench.unbind(NOW, SPARE, ours, UnbindBy::Downstream), []);
    assert_eq!(bench.unbind(NOW, SPARE, 7, UnbindBy::Upstream), []);
    let link = bench.link(FROM);
    bench.node.handle_bind(NOW, link, &[0; 3]);
    bench.node.handle_bound(NOW, link, &[0; 3]);
    bench.node.handle_unbind(NOW, link, &[0; 3]);
    assert_eq!((bench.did(), bench.counters()), (vec![], [0, 0, 3]));
}

#[test]
fn a_neighbour_ends_its_labels_and_hears_of_dead_ones() {
    let (mut bench, _) = Bench::carrying();
    assert_eq!(bench.unbind(NOW, FROM, 7, UnbindBy::Upstream), [Remove(FROM, 7)]);
    assert_eq!(bench.unbind(NOW, FROM, 7, UnbindBy::Upstream), []);
    let (mut bench, _) = Bench::carrying();
    let link = bench.link(FROM);
    bench.node.handle_label_failed(link, Label(7));
    assert_eq!(bench.did(), [Remove(FROM, 7), ended(FROM, 7)]);
    bench.node.handle_label_failed(link, Label(7));
    assert_eq!(bench.did(), [ended(FROM, 7)]);
}

#[test]
fn labels_over_a_lost_link_end_and_the_others_stay() {
    let (mut bench, ours) = Bench::carrying();
    let (me, dest) = (bench.node.addr(), bench.addr(DEST));
    bench.bind(NOW, SPARE, 9, me);
    // This one waits for the answer of another next hop.
    let other = NodeAddr::new([0xee; 16]);
    bench.node.mesh.prove_way(NOW, other, bench.addr(SPARE));
    assert_eq!(bench.bind(NOW, FROM, 8, other), [Did::Bind(SPARE, ours + 1, other)]);
    let [from, hop, spare] = [FROM, HOP, SPARE].map(|who| bench.link(who));
    bench.node.lose_next_hop(NOW, hop);
    assert_eq!(bench.did(), [Remove(FROM, 7), ended(FROM, 7)]);
    assert_eq!(bench.node.labels.outgoing.keys().collect::<Vec<_>>(), [&(spare, other)]);
    bench.node.lose_next_hop(NOW, spare);
    assert_eq!(bench.did(), [no(FROM, 8, Refusal::NoWay)]);
    assert_eq!(
        bench.node.labels.incoming.keys().collect::<Vec<_>>(),
        [&(spare, Label(9))]
    );
    bench.bind(NOW, FROM, 7, dest);
    bench.node.forget_labels(NOW, from);
    assert_eq!(bench.did(), []);
    bench.node.forget_labels(NOW, spare);
    assert_eq!(bench.did(), [Remove(SPARE, 9)]);
    assert!(bench.node.labels.incoming.is_empty());
}

#[test]
fn labels_that_wait_for_keys_of_the_next_hop_go_on_with_them() {
    let mut bench = Bench::meshed();
    let (dest, hop) = (bench.addr(DEST), bench.addr(HOP));
    bench.node.with_peer(hop, |_, peer| peer.link.lose_hop());
    assert_eq!(bench.bind(NOW, FROM, 7, dest), []);
    let link = bench.link(HOP);
    bench.node.handle_hop_proven(NOW, link, EpochId(0));
    assert_eq!(bench.did(), [], "those keys are of another time");
    bench.node.with_peer(hop, |_, peer| {
        peer.link.lose_hop();
        peer.link.open_for_relayed(NOW);
    });
    let spare = bench.link(SPARE);
    bench.node.handle_hop_proven(NOW, spare, EpochId(0));
    assert_eq!(bench.did(), [], "nothing waits for these");
    bench.node.handle_hop_proven(NOW, link, EpochId(0));
    assert_eq!(bench.did(), [Did::Bind(HOP, 1, dest)]);
    let mut bench = Bench::meshed();
    bench.node.with_peer(hop, |_, peer| peer.link.lose_hop());
    bench.bind(NOW, FROM, 7, dest);
    bench.node.lose_next_hop(NOW, link);
    assert_eq!(bench.did(), [no(FROM, 7, Refusal::NoWay)]);
}

#[test]
fn a_working_route_is_kept_until_its_destination_is_a_neighbour() {
    let (mut bench, ours) = Bench::carrying();
    let (dest, spare) = (bench.addr(DEST), bench.addr(SPARE));
    let stays = [Set(FROM, 7, bench.on(HOP, ours)), Did::Bound(FROM, 7, Ok(MTU))];
    // Another neighbour seems to be nearer.
    bench.node.mesh.prove_way(NOW + 1, dest, spare);
    assert_eq!(bench.bind(NOW, FROM, 7, dest), stays);
    bench.link_up(DEST);
    bench.did();
    let ask = Did::Bind(DEST, ours + 1, dest);
    let [set, answer] = stays;
    assert_eq!(
        bench.bind(NOW, FROM, 7, dest),
        [ask, set, answer],
        "it is not bound there yet"
    );
    let direct = [Set(FROM, 7, bench.on(DEST, ours + 1)), Did::Bound(FROM, 7, Ok(MTU))];
    assert_eq!(bench.bound(NOW, DEST, ours + 1, Ok(MTU)), direct);
    assert_eq!(bench.bind(NOW, FROM, 7, dest), direct);
    assert_eq!(
        bench.drive(NOW + REFRESH),
        [
            Did::Unbind(HOP, ours, UnbindBy::Upstream),
            Did::Bind(DEST, ours + 1, dest)
        ]
    );
}

#[test]
fn a_neighbour_that_is_not_trusted_is_no_next_hop() {
    let mut bench = Bench::meshed();
    let (dest, hop) = (bench.addr(DEST), bench.addr(HOP));
    bench.node.with_peer(hop, |_, peer| {
        let now = NOW + 10_000;
        peer.link.health.handle_left(now, &peer.link.liveness);
    });
    assert_eq!(bench.bind(NOW, FROM, 7, dest), [no(FROM, 7, Refusal::NoWay)]);
}

#[test]
fn a_session_through_others_has_a_label_while_it_is_used() {
    let mut bench = Bench::meshed();
    let (dest, link) = (bench.addr(DEST), bench.link(HOP));
    bench.node.relay_session(NOW, dest);
    assert_eq!(bench.did(), [], "there is no session");
    bench.node.with_peer(dest, |_, peer| peer.session.open_over(NOW, link));
    bench.node.relay_session(NOW, dest);
    assert_eq!(bench.did(), [Did::Bind(HOP, 1, dest)]);
    let (label, mtu) = (1, MTU);
    let relay = Relay {
        link,
        label: Label(label),
        mtu,
    };
    assert_eq!(bench.bound(NOW, HOP, 1, Ok(MTU)), [Did::Relay(Some(relay))]);
    bench.node.relay_session(NOW, dest);
    assert_eq!(bench.did(), []);
    assert_eq!(bench.drive(NOW + REFRESH), [Did::Bind(HOP, 1, dest)]);
    bench.bound(NOW + REFRESH, HOP, 1, Ok(MTU));
    assert_eq!(bench.node.labels.outgoing[&(link, dest)].ours, NOW + USE);
    let gone = [Did::Relay(None), Did::Unbind(HOP, 1, UnbindBy::Upstream)];
    assert_eq!(bench.drive(NOW + 2 * REFRESH), gone);
    bench.node.relay_session(NOW + 2 * REFRESH, dest);
    bench.did();
    let bound = bench.bound(NOW + 2 * REFRESH, HOP, 2, Ok(MTU));
    assert!(matches!(bound[..], [Did::Relay(Some(_))]), "{bound:?}");
    // The loss of another link does not affect it.
    let spare = bench.link(SPARE);
    bench.node.labels.ask(NOW, spare, dest, NOW + USE);
    bench.node.lose_next_hop(NOW, spare);
    assert_eq!(bench.did(), []);
    bench.node.lose_next_hop(NOW, link);
    assert_eq!(bench.did(), [Did::Relay(None)]);
}

#[test]
fn keys_that_work_give_sessions_of_their_link_a_label() {
    let mut bench = Bench::meshed();
    let (dest, hop, link) = (bench.addr(DEST), bench.addr(HOP), bench.link(HOP));
    bench.node.with_peer(hop, |_, peer| peer.link.lose_hop());
    bench.node.with_peer(dest, |_, peer| peer.session.open_over(NOW, link));
    bench.node.relay_session(NOW, dest);
    assert_eq!(bench.did(), []);
    bench.node.with_peer(hop, |_, peer| peer.link.open_for_relayed(NOW));
    let spare = bench.link(SPARE);
    bench.node.handle_hop_proven(NOW, spare, EpochId(0));
    assert_eq!(bench.did(), []);
    bench.node.handle_hop_proven(NOW, link, EpochId(0));
    assert_eq!(bench.did(), [Did::Bind(HOP, 1, dest)]);
}

#[test]
fn only_configured_peers_in_a_mesh_have_labels() {
    let mut bench = Bench::new(Config {
        mesh: false,
        ..config()
    });
    let (dest, link) = (bench.addr(DEST), bench.link(HOP));
    bench.node.with_peer(dest, |_, peer| peer.session.open_over(NOW, link));
    bench.node.relay_session(NOW, dest);
    assert_eq!(bench.did(), []);
    let mut bench = Bench::meshed();
    bench.node.with_peer(dest, |_, peer| {
        peer.session.open_over(NOW, link);
        peer.configured = false;
    });
    bench.node.relay_session(NOW, dest);
    assert_eq!(bench.did(), []);
}
