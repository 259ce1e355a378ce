use std::collections::BTreeSet;

use proptest::prelude::*;
use weft_noise::{KeyError, SecretKey};

use crate::names::NameError;

use super::*;

fn key(n: u8) -> PublicKey {
    SecretKey::from_bytes(&[n; 32]).unwrap().public()
}

fn rule(text: &str) -> Rule {
    text.parse().unwrap()
}

#[test]
fn rules_have_one_canonical_text() {
    let npub = key(1).to_string();
    for text in [
        "allow from any to any".to_owned(),
        "deny from tag:family to tag:nas tcp/22".to_owned(),
        format!("allow from {npub} to any udp/53,8000-8080 until 1790000000"),
        "deny from any to route:192.168.7.0/24 icmp".to_owned(),
        "allow from any to exit 47".to_owned(),
        "allow from any to any tcp".to_owned(),
        "deny from any to any until 0".to_owned(),
    ] {
        assert_eq!(rule(&text).to_string(), text);
        let spaced = format!("  {}\t", text.replace(' ', " \t "));
        assert_eq!(rule(&spaced).to_string(), text);
    }
    assert_eq!(rule("deny from any to any 6/22"), rule("deny from any to any tcp/22"));
    assert_eq!(rule("deny from any to any udp/5-5"), rule("deny from any to any udp/5"));
}

#[test]
fn a_tag_of_one_network_is_for_local_rules_alone() {
    for text in [
        "deny from tag:home/family to tag:work/nas tcp/22",
        "allow from any to tag:home/a until 0",
    ] {
        assert_eq!(Rule::local(text).unwrap().to_string(), text);
        assert_eq!(text.parse::<Rule>(), Err(RuleError::Tag(NameError::Character('/'))));
    }
    for (text, error) in [
        ("allow from tag:/family to any", NameError::Empty),
        ("allow from tag:home/ to any", NameError::Empty),
        ("allow from tag:home/a/b to any", NameError::Character('/')),
        ("allow from any to tag:Home/a", NameError::UpperCase('H')),
    ] {
        assert_eq!(Rule::local(text), Err(RuleError::Tag(error)), "{text}");
    }
    let text = "allow from tag:family to exit tcp/22 until 5";
    assert_eq!(Rule::local(text), text.parse());
}

#[test]
fn each_cause_has_its_error() {
    let npub = key(1).to_string();
    for (text, error) in [
        ("", RuleError::Policy),
        ("permit from any to any", RuleError::Policy),
        ("Allow from any to any", RuleError::Policy),
        ("allow any to any", RuleError::From),
        ("allow from", RuleError::Missing("from")),
        ("allow from any any", RuleError::To),
        ("allow from any", RuleError::To),
        ("allow from any to", RuleError::Missing("to")),
        ("allow from laptop to any", RuleError::Member(KeyError::NotAPublicKey)),
        ("allow from tag: to any", RuleError::Tag(NameError::Empty)),
        ("allow from tag:A to any", RuleError::Tag(NameError::UpperCase('A'))),
        ("allow from exit to any", RuleError::NotASource),
        ("allow from route:10.0.0.0/8 to any", RuleError::NotASource),
        ("allow from any to route:10.0.0.1/8", RuleError::Route),
        ("allow from any to route:0.0.0.0/0", RuleError::Route),
        ("allow from any to route:fd00::/8", RuleError::Route),
        ("allow from any to any ssh", RuleError::Protocol),
        ("allow from any to any 256", RuleError::Protocol),
        ("allow from any to any +6", RuleError::Protocol),
        ("allow from any to any icmp/8", RuleError::NoPorts),
        ("allow from any to any tcp/", RuleError::Port),
        ("allow from any to any tcp/22-", RuleError::Port),
        ("allow from any to any tcp/23-22", RuleError::Port),
        ("allow from any to any tcp/65536", RuleError::Port),
        ("allow from any to any tcp/1,,2", RuleError::Port),
        ("allow from any to any until", RuleError::Until),
        ("allow from any to any until soon", RuleError::Until),
        ("allow from any to any tcp udp", RuleError::Rest),
        ("allow from any to any until 5 more", RuleError::Rest),
    ] {
        assert_eq!(text.parse::<Rule>(), Err(error), "{text}");
    }
    let ports = |n: u16| (0..n).map(|port| port.to_string()).collect::<Vec<_>>().join(",");
    assert!(
        format!("allow from {npub} to any tcp/{}", ports(16))
            .parse::<Rule>()
            .is_ok()
    );
    let many = format!("allow from {npub} to any tcp/{}", ports(17));
    assert_eq!(many.parse::<Rule>(), Err(RuleError::TooManyPorts));
}

/// The members of the tests: 1 with tag `family`, 2 with tag `nas`, 3 without.
fn decide(table: &Table, from: u8, to: Destination<'_>, service: (u8, Option<u16>), now: u64) -> Decision {
    let tags = tags(from);
    let flow = Flow {
        from: Party {
            key: key(from),
            tags: &tags,
        },
        to,
        protocol: service.0,
        port: service.1,
    };
    table.decide(&flow, now)
}

fn tags(n: u8) -> BTreeSet<Name> {
    let tag = match n {
        1 => "family",
        2 => "nas",
        _ => return BTreeSet::new(),
    };
    BTreeSet::from([Name::label(tag).unwrap()])
}

fn table(rules: &[&str], inside: Policy) -> Table {
    Table {
        rules: Some(rules.iter().map(|text| rule(text)).collect()),
        inside,
    }
}

#[test]
fn the_first_matching_rule_decides() {
    let table = table(
        &[
            "allow from tag:family to tag:nas tcp/22 until 100",
            "deny from tag:family to tag:nas",
            "deny from any to route:192.168.7.0/24 udp",
            "deny from any to exit",
        ],
        Policy::Allow,
    );
    let nas_tags = tags(2);
    let nas = Destination::Member(Party {
        key: key(2),
        tags: &nas_tags,
    });
    let by = |policy, reason| Decision { policy, reason };
    let (allow, deny) = (Policy::Allow, Policy::Deny);
    assert_eq!(decide(&table, 1, nas, (6, Some(22)), 100), by(allow, Reason::Rule(0)));
    assert_eq!(decide(&table, 1, nas, (6, Some(22)), 101), by(deny, Reason::Rule(1)));
    assert_eq!(decide(&table, 1, nas, (6, Some(23)), 100), by(deny, Reason::Rule(1)));
    assert_eq!(decide(&table, 3, nas, (6, Some(22)), 100), by(allow, Reason::Default));
    let lan = |address: &str| Destination::Route(address.parse().unwrap());
    assert_eq!(
        decide(&table, 3, lan("192.168.7.9"), (17, None), 0),
        by(deny, Reason::Rule(2))
    );
    assert_eq!(
        decide(&table, 3, lan("192.168.8.9"), (17, None), 0),
        by(allow, Reason::Default)
    );
    assert_eq!(
        decide(&table, 3, lan("192.168.7.9"), (6, None), 0),
        by(allow, Reason::Default)
    );
    assert_eq!(
        decide(&table, 3, Destination::Exit, (6, None), 0),
        by(deny, Reason::Rule(3))
    );
}

#[test]
fn an_unknown_port_never_opens() {
    let any = ["allow from any to any tcp/22"];
    let exit = Destination::Exit;
    let fragment = (6, None);
    assert_eq!(
        decide(&table(&any, Policy::Deny), 1, exit, fragment, 0).policy,
        Policy::Deny
    );
    let deny = table(&["deny from any to any tcp/22"], Policy::Allow);
    assert_eq!(decide(&deny, 1, exit, fragment, 0).policy, Policy::Deny);
    assert_eq!(decide(&deny, 1, exit, (6, Some(23)), 0).policy, Policy::Allow);
    assert_eq!(decide(&deny, 1, exit, (17, None), 0).policy, Policy::Allow);
}

#[test]
fn icmp_is_that_of_both_versions() {
    let table = table(&["deny from any to any icmp"], Policy::Allow);
    for (protocol, policy) in [
        (1, Policy::Deny),
        (58, Policy::Deny),
        (6, Policy::Allow),
        (59, Policy::Allow),
    ] {
        assert_eq!(decide(&table, 1, Destination::Exit, (protocol, None), 0).policy, policy);
    }
}

#[test]
fn without_understood_rules_nothing_passes() {
    let table = Table {
        rules: None,
        inside: Policy::Allow,
    };
    let decision = decide(&table, 1, Destination::Exit, (6, Some(22)), 0);
    assert_eq!(
        (decision.policy, decision.reason),
        (Policy::Deny, Reason::NotUnderstood)
    );
}

fn words() -> impl Strategy<Value = String> {
    let word = prop::sample::select(vec![
        "allow",
        "deny",
        "from",
        "to",
        "any",
        "exit",
        "tag:a",
        "route:10.0.0.0/8",
        "tcp/22",
        "udp",
        "until",
        "7",
        "58",
    ]);
    prop::collection::vec(word, 0..10).prop_map(|words| words.join(" "))
}

proptest! {
    #[test]
    fn a_parsed_rule_has_a_text_that_parses(text in words()) {
        if let Ok(rule) = text.parse::<Rule>() {
            prop_assert_eq!(rule.to_string().parse(), Ok(rule));
        }
    }

    #[test]
    fn no_text_panics(text: String) {
        let _ = text.parse::<Rule>();
    }
}
