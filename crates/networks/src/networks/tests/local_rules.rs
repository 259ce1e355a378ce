//! Tags in local rules: the network that each is of, in the compiled rules and in the explanation.

use weft_contract::rules::RuleSet;
use weft_roster::rules::Rule;

use super::*;
use crate::rules::compile::{ByHand, compile};
use crate::rules::why::{Known, Question, why};
use crate::rules::{unclear, unused_tags};

/// The node whose rules these are.
const OWN: usize = 2;

/// Networks `home` of node 0 and `work` of node 1. Nodes 2 and 3 are in `home`, and those and node 4 in
/// `work` if `both`. Each network has given tags to some of its members.
fn world(both: bool) -> World {
    let mut world = World::new(5, &[(0, 2), (0, 3), (1, 2), (1, 3), (1, 4)]);
    world.create(0);
    let work = Name::network("work").unwrap();
    world.nodes[1]
        .create(work, Some(name("founder")), [9; 16], UNIX)
        .unwrap();
    let members: &[(usize, usize)] = match both {
        true => &[(0, 2), (0, 3), (1, 2), (1, 3), (1, 4)],
        false => &[(0, 2), (0, 3)],
    };
    for (by, at) in members {
        let code = world.invite(*by, 1, (10 * by + at) as u8);
        world.join(*at, &code, *by);
        world.run(5_000);
    }
    let tags: &[(usize, usize, &str)] = match both {
        true => &[
            (0, 3, "family"),
            (0, 2, "nas"),
            (1, 1, "family"),
            (1, 4, "family"),
            (1, 3, "guest"),
            (1, 2, "box"),
        ],
        false => &[(0, 3, "family"), (0, 2, "nas")],
    };
    for (by, at, tag) in tags {
        let tag = super::tag(&[tag]);
        let times = world.times();
        world.nodes[*by]
            .change_member(None, &key(*at).to_string(), (tag, None), times)
            .unwrap();
    }
    world.run(20_000);
    world
}

fn rules(texts: &[&str]) -> Vec<Rule> {
    texts.iter().map(|text| Rule::local(text).unwrap()).collect()
}

/// Whether a rule is about packets of a node, in the compiled rules.
fn is_about(world: &World, rule: &str, peer: usize) -> bool {
    let peers = compile(&key(OWN), &world.nodes[OWN], &ByHand::default(), &rules(&[rule]), UNIX).peers;
    let of_peer = peers.unwrap().remove(&key(peer).node_addr());
    let has = |set: &RuleSet| !set.chosen.is_empty();
    of_peer.is_some_and(|of_peer| has(&of_peer.deny) || has(&of_peer.allow))
}

/// The same in the explanation.
fn is_explained(world: &World, rule: &str, peer: usize) -> bool {
    let question = Question {
        from: key(peer),
        to: key(OWN),
        behind: None,
        exit: false,
        protocol: 6,
        port: Some(22),
    };
    let (networks, local, by_hand) = (&world.nodes[OWN], rules(&[rule]), ByHand::default());
    let known = Known {
        networks,
        compiled: &compile(&key(OWN), networks, &by_hand, &local, UNIX),
        local: &local,
        by_hand: &by_hand.peers,
    };
    let verdict = why(&question, &known, UNIX);
    verdict.reasons.iter().any(|reason| reason.starts_with("local rule: "))
}

/// Asserts about which of the nodes 0, 1, 3 and 4 a rule is.
fn assert_about(world: &World, rule: &str, expected: &[usize]) {
    let of = |is: fn(&World, &str, usize) -> bool| -> Vec<usize> {
        [0, 1, 3, 4].into_iter().filter(|peer| is(world, rule, *peer)).collect()
    };
    assert_eq!(of(is_about), expected, "compiled: {rule}");
    assert_eq!(of(is_explained), expected, "explained: {rule}");
}

#[test]
fn a_tag_is_that_of_the_only_network() {
    let world = world(false);
    assert_about(&world, "allow from tag:family to any tcp/22", &[3]);
    assert_about(&world, "deny from tag:family to tag:nas", &[3]);
    assert_about(&world, "allow from any to tag:nas", &[0, 3]);
    assert_about(&world, "allow from any to tag:other", &[]);
}

#[test]
fn a_tag_with_a_network_is_of_that_network() {
    for (both, work) in [(false, &[][..]), (true, &[1, 4][..])] {
        let world = world(both);
        assert_about(&world, "allow from tag:home/family to any tcp/22", &[3]);
        assert_about(&world, "allow from tag:work/family to any", work);
        assert_about(&world, "deny from tag:work/family to tag:home/nas", work);
        assert_about(&world, "deny from tag:work/family to tag:work/nas", &[]);
        assert_about(&world, "allow from tag:nowhere/family to any", &[]);
        let home = world.network(0).id();
        assert_about(&world, &format!("allow from tag:{home}/family to any"), &[3]);
    }
}

#[test]
fn unclear_local_rules_are_explained_to_the_user() {
    let lines = |both, rule: &str| unclear(&world(both).nodes[OWN], &rules(&[rule])).join("\n");
    for clear in [
        "deny from tag:family to any",
        "deny from tag:home/family to tag:home/nas",
        "allow from any to any",
    ] {
        assert_eq!(lines(false, clear), "");
    }
    let several = lines(true, "allow from tag:family to any");
    assert!(
        several.ends_with("home, work, so it allows nothing; write tag:home/family for one"),
        "{several}"
    );
    let several = lines(true, "deny from any to tag:nas");
    assert!(several.contains("so it means the tag of each of them"), "{several}");
    let unknown = lines(true, "deny from tag:homes/family to any");
    assert!(
        unknown.ends_with("this node is in no network homes, so it is about no member"),
        "{unknown}"
    );
}

#[test]
fn a_tag_that_no_member_has_is_said_to_its_user() {
    let lines = |rule: &str| unused_tags(&world(true).nodes[OWN], &rules(&[rule]));
    for used in [
        "deny from tag:family to any",
        "allow from tag:home/family to tag:home/nas",
        "deny from any to any",
    ] {
        assert_eq!(lines(used), [""; 0], "{used}");
    }
    for (rule, tag) in [
        ("deny from tag:famly to any", "famly"),
        ("deny from any to tag:nowhere/nas", "nas"),
    ] {
        let expected = format!("no member has the tag {tag}, so this is about none: {rule}");
        assert_eq!(lines(rule), [expected]);
    }
}

/// An administrator of one network gives its members nothing by a tag that the rule means in another.
#[test]
fn without_a_network_it_allows_nothing_and_denies_all() {
    let world = world(true);
    assert_about(&world, "allow from tag:family to any tcp/22", &[]);
    assert_about(&world, "allow from any to tag:nas", &[]);
    assert_about(&world, "deny from tag:family to any", &[1, 3, 4]);
    assert_about(&world, "deny from tag:guest to tag:box", &[3]);
}
