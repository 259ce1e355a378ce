//! The document about the networks of this node.

use weft_control::status::{
    Document as _, InviteStatus, MemberStatus, NetworkList, NetworkState, NetworkStatus, NumberedStatus,
    ShadowedStatus, ShadowingNode,
};
use weft_networks::rules;
use weft_networks::{Network, Networks, Numbered, Refusal};
use weft_noise::PublicKey;
use weft_roster::network_id::NetworkId;

use super::membership::asked_status;
use super::saving::Saving;

/// Lists all networks, or one of them.
pub(super) fn network_list(
    (networks, saving): (&Networks, &Saving),
    only: Option<NetworkId>,
    unix: u64,
) -> NetworkList {
    let listed = networks
        .iter()
        .filter(|network| only.is_none_or(|only| network.id() == only));
    NetworkList {
        schema: NetworkList::SCHEMA.to_owned(),
        networks: listed
            .map(|network| status(network, (networks, saving), unix))
            .collect(),
        asked: networks
            .asked()
            .map(|(admin, asked)| asked_status(admin, asked))
            .collect(),
        signed_again: Vec::new(),
        resigned: None,
        nvpn_request: None,
    }
}

fn status(network: &Network, (networks, saving): (&Networks, &Saving), unix: u64) -> NetworkStatus {
    let own = networks.own();
    let state = network.state();
    let (kind, why) = match (network.is_member(own), network.joining()) {
        _ if network.is_leaving() => (NetworkState::Leaving, "this node leaves it".to_owned()),
        (true, _) if network.is_foreign() => (
            NetworkState::Member,
            "nvpn's administrators change it there; of rules, those of this node apply (rules.local)".to_owned(),
        ),
        (true, _) => (NetworkState::Member, "this node is a member".to_owned()),
        (false, Some(_)) if network.is_lost() => (NetworkState::Lost, why_lost(network, saving)),
        (false, Some(joining)) => (
            NetworkState::Joining,
            match joining.refusal {
                Some(refusal) => refusal.to_string(),
                None if joining.proof.is_none() => {
                    "an administrator has taken this node in, and its records are to come".to_owned()
                }
                None => "no answer yet from the node that the code names".to_owned(),
            },
        ),
        (false, None) if !state.removed.contains_key(own) && !state.over_used.contains_key(own) => (
            NetworkState::Removed,
            "this machine has another key than when it joined; `weft key import` brings a backup of that back, `weft leave` forgets \
             the network"
                .to_owned(),
        ),
        (false, None) => (
            NetworkState::Removed,
            "an administrator has removed this node; `weft leave` forgets the network, `weft join --ask` asks to come back"
                .to_owned(),
        ),
    };
    let unused = networks.unused(network);
    let why_unused = |member: &PublicKey| {
        let mut of = unused.iter().filter(|(key, ..)| key == member);
        of.next().map(|(.., why)| why.to_string())
    };
    let mut members: Vec<MemberStatus> = state
        .members
        .iter()
        .map(|(key, member)| MemberStatus {
            npub: key.to_string(),
            name: state.names.get(key).map(ToString::to_string),
            address: key.node_addr().to_ipv6(),
            ipv4: network.ipv4(key),
            unused: why_unused(key),
            admin: network.shows_admin(key),
            successor: state.admins.successor() == Some(key),
            own: key == own,
            tags: member.tags.iter().map(ToString::to_string).collect(),
            standing: None,
            heard_s: None,
            nvpn: false,
            sought: None,
        })
        .collect();
    members.sort_by(|a, b| a.name.cmp(&b.name));
    let invites = network.open_invites(unix).map(|(key, open)| InviteStatus {
        key: hex::encode(key),
        name: open.invite.name.as_ref().map(ToString::to_string),
        remaining: open.remaining,
        expires_unix: open.invite.expires,
    });
    NetworkStatus {
        id: network.id().to_string(),
        name: network.name().map(ToString::to_string),
        label: network.label().map(ToString::to_string),
        founded_with: network.is_foreign().then(|| "nvpn".to_owned()),
        state: kind,
        why,
        refused: network
            .joining()
            .and_then(|joining| joining.refusal)
            .is_some_and(Refusal::is_final),
        ipv4: network.ipv4(own),
        members,
        invites: invites.collect(),
        rules: (state.table.rules.as_ref())
            .map(|rules| rules.iter().map(|rule| rules::in_words(rule, state)).collect()),
        default: state.table.inside.to_string(),
        routes: Vec::new(),
        shadowed: shadowed(network, networks),
        admins_outside: admins_outside(network),
        unsaved: saving.why_unsaved(&network.id()).map(str::to_owned),
        writing: network.is_unsaved() && saving.why_unsaved(&network.id()).is_none(),
        asked_at: Vec::new(),
        numbered: network
            .numbered()
            .map(|numbered| numbered_status(network, numbered))
            .collect(),
    }
}

/// Says why the records of a network cannot be read, and what restores them.
fn why_lost(network: &Network, saving: &Saving) -> String {
    let id = network.id();
    let why = saving
        .why_unusable(&id)
        .unwrap_or_else(|| "its file cannot be used".to_owned());
    format!(
        "{why}; members that this node reaches give its records back: `weft join --ask NPUB --address ADDRESS` asks one"
    )
}

fn admins_outside(network: &Network) -> Vec<String> {
    let admins = network.state().admins.of.iter();
    let outside = admins.filter(|(key, admin)| admin.rank > 0 && !network.is_member(key));
    outside.map(|(key, _)| key.to_string()).collect()
}

fn numbered_status(network: &Network, numbered: &Numbered) -> NumberedStatus {
    let name = network.state().names.get(&numbered.member);
    NumberedStatus {
        npub: numbered.member.to_string(),
        name: name.map(ToString::to_string),
        wanted: numbered.wanted.to_string(),
        holder: numbered.holder.to_string(),
    }
}

/// Returns the addresses of members that lead to nodes of other networks.
fn shadowed(network: &Network, networks: &Networks) -> Vec<ShadowedStatus> {
    let each = networks.shadowed(network).into_iter();
    each.map(|shadowed| {
        let other = networks.iter().find(|other| other.id() == shadowed.network);
        let named = |of: Option<&Network>, key| of.and_then(|of| of.state().names.get(key)).map(ToString::to_string);
        ShadowedStatus {
            ipv4: shadowed.ipv4,
            npub: shadowed.member.to_string(),
            name: named(Some(network), &shadowed.member),
            own: shadowed.member == *networks.own(),
            leads_to: ShadowingNode {
                network: other.and_then(Network::label).map(ToString::to_string),
                npub: shadowed.leads_to.to_string(),
                name: named(other, &shadowed.leads_to),
                own: shadowed.leads_to == *networks.own(),
            },
        }
    })
    .collect()
}
