//! Local rules: the networks whose tags they mean.

use weft_roster::names::Name;
use weft_roster::rules::{Policy, Rule, Selector, Target};

use super::party::Party;
use crate::{Network, Networks};

/// Whether a rule of the configuration is about a node or a guest, at the end that `selector` is of. `joined` are the
/// networks that this node is a member of.
///
/// Of a tag without a network, and while there are several, the reading counts that lets less pass: a
/// rule that denies means all of them, and one that allows means none. Otherwise an administrator of each
/// network could give its members what the rule gives to those of another one.
pub(super) fn holds(joined: &[&Network], policy: Policy, selector: &Selector, party: Party<'_>) -> bool {
    let has = |network: &&Network, tag: &Name| party.tags(network).is_some_and(|tags| tags.contains(tag));
    match selector {
        Selector::Any => true,
        Selector::Member(member) => party.is_node(member),
        Selector::TagOf(of, tag) => joined.iter().any(|network| is_named(network, of) && has(network, tag)),
        Selector::Tag(_) if joined.len() > 1 && policy == Policy::Allow => false,
        Selector::Tag(tag) => joined.iter().any(|network| has(network, tag)),
    }
}

/// A network is named by its label or its identifier. A label is one of the node's own, so that no other
/// network takes it over; no name has the form of an identifier.
fn is_named(network: &Network, name: &Name) -> bool {
    network.label() == Some(name) || network.id().to_string() == name.as_str()
}

/// What is to be said of local rules whose tags mean no network of this node, or not one alone: a line for
/// each, in their order.
#[must_use]
pub fn unclear(networks: &Networks, local: &[Rule]) -> Vec<String> {
    let joined = networks.joined(networks.own());
    let of_rule = |rule: &Rule| ends(rule).find_map(|end| why_unclear(&joined, rule.policy, end));
    let lines = local
        .iter()
        .map(|rule| Some(format!("not clear: {rule}: {}", of_rule(rule)?)));
    lines.flatten().collect()
}

/// A line for each tag in local rules that no member and no guest has, which the rule may have misspelt.
#[must_use]
pub fn unused_tags(networks: &Networks, local: &[Rule]) -> Vec<String> {
    let joined = networks.joined(networks.own());
    let is_used = |of: Option<&Name>, tag: &Name| {
        let mut meant = joined
            .iter()
            .filter(|network| of.is_none_or(|of| is_named(network, of)));
        meant.any(|network| {
            let state = network.state();
            let guests = state.guests.values().map(|guest| &guest.tags);
            let mut tags = state.members.values().map(|member| &member.tags).chain(guests);
            tags.any(|tags| tags.contains(tag))
        })
    };
    let of_rule = |rule: &Rule| {
        ends(rule).find_map(|end| match end {
            Selector::Tag(tag) if !is_used(None, tag) => Some(tag.clone()),
            Selector::TagOf(of, tag) if !is_used(Some(of), tag) => Some(tag.clone()),
            _ => None,
        })
    };
    let lines = local.iter().map(|rule| {
        Some(format!(
            "no member has the tag {}, so this is about none: {rule}",
            of_rule(rule)?
        ))
    });
    lines.flatten().collect()
}

/// Both ends of a rule, if they are members.
fn ends(rule: &Rule) -> impl Iterator<Item = &Selector> {
    let to = match &rule.to {
        Target::Members(to) => Some(to),
        Target::Route(_) | Target::Exit => None,
    };
    std::iter::once(&rule.from).chain(to)
}

fn why_unclear(joined: &[&Network], policy: Policy, selector: &Selector) -> Option<String> {
    let labels: Vec<String> = joined.iter().map(|network| network.label_or_id()).collect();
    match selector {
        Selector::Tag(tag) if joined.len() > 1 => {
            let effect = match policy {
                Policy::Allow => "it allows nothing",
                Policy::Deny => "it means the tag of each of them",
            };
            let (all, first) = (labels.join(", "), labels.first().map_or("", String::as_str));
            Some(format!(
                "this node is in several networks, {all}, so {effect}; write tag:{first}/{tag} for one"
            ))
        }
        Selector::TagOf(of, _) if !joined.iter().any(|network| is_named(network, of)) => {
            Some(format!("this node is in no network {of}, so it is about no member"))
        }
        _ => None,
    }
}
