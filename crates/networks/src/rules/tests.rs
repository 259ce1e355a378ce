//! Rules of networks and of the configuration, compiled and explained.

use std::collections::BTreeSet;
use std::sync::Arc;

use rand_chacha::ChaCha20Rng;
use rand_core::SeedableRng as _;
use weft_contract::rules::{PeerRules, Protocol, Scope};
use weft_noise::{Identity, PublicKey, SecretKey};
use weft_roster::names::Name;
use weft_roster::rules::{Policy, Rule, Selector};
use weft_wire::Subnet;

use super::compile::{ByHand, compile};
use super::why::{Known, Question, Verdict, service, why};
use crate::{Networks, RouteChange, RuleChange};

mod guests;

const UNIX: u64 = 1_700_000_000;

fn identity(byte: u8) -> Arc<Identity> {
    Arc::new(Identity::new(SecretKey::from_bytes(&[byte; 32]).unwrap()))
}

fn key(byte: u8) -> PublicKey {
    identity(byte).public()
}

/// A configuration with these peers.
fn by_hand(peers: &[u8]) -> ByHand {
    ByHand {
        peers: peers.iter().map(|byte| key(*byte)).collect(),
        ..ByHand::default()
    }
}

/// The networks of node 1, which has founded these.
fn networks(names: &[&str]) -> Networks {
    let mut networks = Networks::new(identity(1), Vec::new(), Box::new(ChaCha20Rng::seed_from_u64(1)));
    for (nonce, name) in (1..).zip(names) {
        let host = Name::host("nas").unwrap();
        let name = Name::network(name).unwrap();
        networks.create(name, Some(host), [nonce; 16], UNIX).unwrap();
    }
    networks
}

fn change(networks: &mut Networks, change: RuleChange) -> Result<(), String> {
    let changed = networks.change_rules(None, change, (0, UNIX));
    changed.map(drop).map_err(|error| error.to_string())
}

fn add(networks: &mut Networks, rule: &str) {
    let rule = rule.to_owned();
    change(networks, RuleChange::Add { rule, at: None }).unwrap();
}

fn texts(networks: &Networks) -> Vec<String> {
    let state = networks.iter().next().unwrap().state();
    let rules = state.table.rules.iter().flatten();
    rules.map(|rule| super::in_words(rule, state)).collect()
}

fn local(rules: &[&str]) -> Vec<Rule> {
    rules.iter().map(|rule| Rule::local(rule).unwrap()).collect()
}

/// Makes a node a member of a network, as `laptop`.
fn take_in(networks: &mut Networks, network: &str, byte: u8) {
    networks.take_in(network, &key(byte), Name::host("laptop").unwrap(), BTreeSet::new());
}

/// A flow from node 2 to a port of node 1.
fn to_nas(port: u16) -> Question {
    Question {
        from: key(2),
        to: key(1),
        behind: None,
        exit: false,
        protocol: 6,
        port: Some(port),
    }
}

/// What node 1 says about a flow.
fn ask(networks: &Networks, by_hand: &ByHand, rules: &[&str], question: &Question) -> Verdict {
    let local = local(rules);
    let known = Known {
        networks,
        compiled: &compile(&key(1), networks, by_hand, &local, UNIX),
        local: &local,
        by_hand: &by_hand.peers,
    };
    why(question, &known, UNIX)
}

#[test]
fn rules_are_added_replaced_and_removed_with_the_names_of_members() {
    let mut networks = networks(&["home"]);
    add(&mut networks, "allow from any to nas tcp/22");
    change(
        &mut networks,
        RuleChange::Add {
            rule: "deny from tag:guest to any".to_owned(),
            at: Some(1),
        },
    )
    .unwrap();
    let both = ["deny from tag:guest to any", "allow from any to nas tcp/22"];
    assert_eq!(texts(&networks), both);
    for (wrong, words) in [
        (RuleChange::Remove { at: 3 }, "no rule 3"),
        (RuleChange::Remove { at: 0 }, "no rule 0"),
        (
            RuleChange::Set {
                rules: vec!["allow from any to bob".to_owned()],
            },
            "no member is named bob",
        ),
        (
            RuleChange::Set {
                rules: vec!["allow from npub1x to any".to_owned()],
            },
            "allow from npub1x to any",
        ),
        (
            RuleChange::Add {
                rule: both[0].to_owned(),
                at: Some(4),
            },
            "no rule 4",
        ),
        (
            RuleChange::Add {
                rule: both[1].to_owned(),
                at: Some(1),
            },
            "rule 2 of the network says that already",
        ),
        (
            RuleChange::Set {
                rules: vec![both[0].to_owned(); 1_001],
            },
            "at most 1000 rules",
        ),
    ] {
        let error = change(&mut networks, wrong).unwrap_err();
        assert!(error.contains(words), "{error}");
    }
    assert_eq!(texts(&networks), both, "a change that is refused changes nothing");
    change(&mut networks, RuleChange::Remove { at: 1 }).unwrap();
    assert_eq!(texts(&networks), [both[1]]);
    change(&mut networks, RuleChange::Default { policy: Policy::Deny }).unwrap();
    change(&mut networks, RuleChange::Set { rules: Vec::new() }).unwrap();
    let network = networks.iter().next().unwrap();
    assert_eq!(
        (network.state().table.inside, texts(&networks).len()),
        (Policy::Deny, 0)
    );
    assert!(
        network.is_member(&key(1)),
        "the founder's record still founds the network"
    );
    assert_eq!(network.name().map(Name::as_str), Some("home"));
}

#[test]
fn without_networks_and_rules_nothing_is_checked() {
    let none = networks(&[]);
    assert_eq!(compile(&key(1), &none, &by_hand(&[2]), &[], UNIX).peers, None);
    let rules = local(&["deny from any to any tcp/25"]);
    let peers = compile(&key(1), &none, &by_hand(&[2]), &rules, UNIX).peers.unwrap();
    let of_peer = &peers[&key(2).node_addr()];
    assert!(of_peer.by_hand.is_some() && of_peer.networks.is_empty());
    assert_eq!((of_peer.deny.chosen.len(), of_peer.allow.chosen.len()), (1, 0));
}

/// The peer that was added by hand, as the compiled rules have it.
fn compiled(networks: &Networks, rules: &[&str], unix: u64) -> (PeerRules, Option<u64>) {
    let compiled = compile(&key(1), networks, &by_hand(&[2]), &local(rules), unix);
    (compiled.peers.unwrap()[&key(2).node_addr()].clone(), compiled.next)
}

#[test]
fn rules_that_are_about_others_are_left_out() {
    let networks = networks(&["home"]);
    let (me, peer, other) = (key(1), key(2), key(3));
    let rules = [
        format!("allow from {peer} to {me} tcp/1"),
        format!("allow from {other} to {me} tcp/2"),
        format!("allow from {peer} to {other} tcp/3"),
        "allow from any to route:192.168.7.0/24 udp/4-5".to_owned(),
        "allow from any to exit".to_owned(),
    ];
    let (rules, _) = compiled(&networks, &rules.each_ref().map(String::as_str), UNIX);
    let of_peer = rules.allow.chosen.iter().map(|at| &rules.allow.list[usize::from(*at)]);
    let found: Vec<_> = of_peer
        .map(|rule| (rule.to.clone(), rule.protocol, rule.ports.to_vec()))
        .collect();
    let subnet = Scope::Subnet("192.168.7.0/24".parse().unwrap());
    assert_eq!(
        found,
        [
            (Scope::Node, Protocol::Number(6), vec![(1, 1)]),
            (subnet, Protocol::Number(17), vec![(4, 5)]),
        ]
    );
}

#[test]
fn a_rule_ends_with_its_last_second() {
    let networks = networks(&["home"]);
    let rule = format!("allow from any to any until {}", UNIX + 10);
    for (unix, rules, next) in [
        (UNIX, 1, Some(UNIX + 11)),
        (UNIX + 10, 1, Some(UNIX + 11)),
        (UNIX + 11, 0, None),
    ] {
        let (peer, found) = compiled(&networks, &[&rule], unix);
        assert_eq!((peer.allow.chosen.len(), found), (rules, next), "{unix}");
    }
}

#[test]
fn the_reason_names_the_rule() {
    let ask = |networks: &Networks, port, rules: &[&str]| {
        let verdict = ask(networks, &by_hand(&[]), rules, &to_nas(port));
        (verdict.allowed, verdict.reasons.join("; "))
    };
    let mut one = networks(&["home"]);
    take_in(&mut one, "home", 2);
    add(&mut one, "deny from laptop to nas tcp/25");
    let denied = (false, "rule 1 of home: deny from laptop to nas tcp/25".to_owned());
    assert_eq!(ask(&one, 25, &[]), denied);
    let allowed = (true, "no rule of home matches, and its default is allow".to_owned());
    assert_eq!(ask(&one, 26, &[]), allowed);
    let both = ["allow from any to any tcp/80", "deny from any to any tcp/80"];
    assert_eq!(
        ask(&one, 80, &both),
        (false, "local rule: deny from any to any tcp/80".to_owned())
    );
    // One network that allows the flow suffices.
    let mut two = networks(&["home", "work"]);
    for network in ["home", "work"] {
        take_in(&mut two, network, 2);
    }
    let rules = RuleChange::Set {
        rules: vec!["deny from laptop to nas tcp/25".to_owned()],
    };
    two.change_rules(Some("home"), rules, (0, UNIX)).unwrap();
    let (allowed, reasons) = ask(&two, 25, &[]);
    assert!(
        allowed && reasons.ends_with("no rule of work matches, and its default is allow"),
        "{reasons}"
    );
}

#[test]
fn strangers_and_peers_by_hand_are_told_apart() {
    let networks = networks(&["home"]);
    for (peers, passes) in [(&[][..], false), (&[2], true)] {
        assert_eq!(ask(&networks, &by_hand(peers), &[], &to_nas(22)).allowed, passes);
    }
    let rules = compile(&key(1), &networks, &by_hand(&[]), &[], UNIX).peers.unwrap();
    assert!(rules.is_empty(), "packets of all others are dropped");
}

#[test]
fn services_are_one_protocol_and_one_port() {
    assert_eq!(service("tcp/22"), Ok((6, Some(22))));
    assert_eq!(service("icmp"), Ok((1, None)));
    assert_eq!(service("47"), Ok((47, None)));
    for wrong in [
        "",
        "tcp",
        "tcp/1-2",
        "tcp/1,2",
        "http",
        "tcp/22 until 5 ",
        "to any",
        "icmp/1",
    ] {
        assert!(service(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn an_exit_has_rules_about_what_is_behind_it() {
    let networks = networks(&["home"]);
    let ours = ["10.44.0.1/32".parse().unwrap()];
    let of = |serves: Option<&[Subnet]>| {
        let rules = local(&["deny from any to exit tcp/25"]);
        let by_hand = ByHand {
            serves: serves.map(<[Subnet]>::to_vec),
            ..by_hand(&[2])
        };
        let compiled = compile(&key(1), &networks, &by_hand, &rules, UNIX);
        compiled.peers.unwrap()[&key(2).node_addr()].clone()
    };
    let rules = of(Some(&ours));
    assert_eq!(rules.ours.as_deref(), Some(&ours[..]));
    assert_eq!(rules.deny.list[0].to, Scope::Exit);
    let rules = of(None);
    assert!(rules.ours.is_none() && rules.deny.list.is_empty());
}

/// A name in the form of a key, which no record has, would not go before the key.
#[test]
fn a_rule_about_a_key_is_about_that_key() {
    let networks = networks(&["home"]);
    let mut state = networks.iter().next().unwrap().state().clone();
    let npub = key(1).to_string();
    state.names.insert(key(2), Name::label(&npub).unwrap());
    let rule = super::from_words(&format!("allow from {npub} to nas tcp/22"), &state).unwrap();
    assert_eq!(rule.from, Selector::Member(key(1)));
}

#[test]
fn a_node_without_rules_and_networks_says_that_all_passes() {
    let verdict = ask(&networks(&[]), &by_hand(&[]), &[], &to_nas(22));
    assert_eq!(
        (verdict.allowed, verdict.reasons.join("; ")),
        (
            true,
            "this node is in no network and has no local rules: all passes".to_owned()
        )
    );
}

/// Between nodes ICMP is that of IPv6, and rules have one word for both.
#[test]
fn icmp_is_that_of_the_addresses_of_the_flow() {
    let mut networks = networks(&["home"]);
    take_in(&mut networks, "home", 2);
    add(&mut networks, "deny from any to any 1");
    let echo = |protocol| Question {
        protocol,
        port: None,
        ..to_nas(0)
    };
    let passes = |networks: &Networks| [1, 58].map(|icmp| ask(networks, &by_hand(&[]), &[], &echo(icmp)).allowed);
    assert_eq!(passes(&networks), [true, true], "a rule about the protocol of IPv4");
    add(&mut networks, "deny from any to any icmp");
    assert_eq!(passes(&networks), [false, false]);
}

#[test]
fn a_flow_on_one_node_is_one_that_no_rule_is_about() {
    let networks = networks(&["home"]);
    for node in [1, 3] {
        let question = Question {
            from: key(node),
            to: key(node),
            ..to_nas(22)
        };
        let rules = ["deny from any to any"];
        assert!(ask(&networks, &by_hand(&[]), &rules, &question).allowed);
    }
}

/// A peer of this node is none of another one.
#[test]
fn a_peer_by_hand_is_one_of_this_node_alone() {
    let networks = networks(&["home"]);
    let to_stranger = Question {
        to: key(3),
        ..to_nas(22)
    };
    assert!(!ask(&networks, &by_hand(&[2]), &[], &to_stranger).allowed);
    let from_own = Question {
        from: key(1),
        to: key(2),
        ..to_nas(22)
    };
    assert!(ask(&networks, &by_hand(&[2]), &[], &from_own).allowed);
}

#[test]
fn an_approved_exit_that_does_not_serve_lets_nothing_pass() {
    let mut networks = networks(&["home"]);
    take_in(&mut networks, "home", 2);
    networks.set_offer(&["0.0.0.0/0".parse().unwrap()].into());
    networks
        .change_exit(None, "nas", RouteChange::Approve, (0, UNIX))
        .unwrap();
    let question = Question {
        exit: true,
        ..to_nas(443)
    };
    let serving = |serves: bool| ByHand {
        serves: serves.then(Vec::new),
        ..ByHand::default()
    };
    let allowed = ask(&networks, &serving(true), &[], &question);
    assert!(allowed.allowed, "{:?}", allowed.reasons);
    let denied = ask(&networks, &serving(false), &[], &question);
    let words = "this node is an approved exit and serves as none at present: nothing passes";
    assert_eq!((denied.allowed, denied.reasons), (false, vec![words.to_owned()]));
}
