//! Documents about networks as text for the user. Names come from other nodes, which the daemon has
//! checked to be labels of DNS.

use std::time::{SystemTime, UNIX_EPOCH};

use weft_node::status::{Invited, MemberStatus, NetworkList, NetworkState, NetworkStatus};

/// What `create` prints.
pub(super) fn created(network: Option<&NetworkStatus>) -> String {
    let Some(network) = network else {
        return "created\n".to_owned();
    };
    format!(
        "{} created; this machine is {} with the address {}\n\n\
         `weft invite` prints a code, and `sudo weft join` with it on another machine makes that a member.\n\
         This machine is the only administrator: if its key is lost, no machine can be added or removed any more.\n\
         `weft admin add` makes another member one.\n",
        name(network),
        own(network).and_then(|own| own.name.as_deref()).unwrap_or("a member"),
        network
            .ipv4
            .map_or_else(|| "that its key has".to_owned(), |ip| ip.to_string()),
    )
}

/// What `invite` prints.
pub(super) fn invited(invited: &Invited, seconds: u32) -> String {
    let machines = match invited.uses {
        1 => "one machine".to_owned(),
        n => format!("{n} machines"),
    };
    format!(
        "{}\n\nOn the machine that joins: sudo weft join, then paste the code. It is a password: {machines} can join with it,\n\
         within {}.\n",
        invited.code,
        time(seconds.into()),
    )
}

/// What `join` prints.
pub(super) fn joined(network: &NetworkStatus) -> String {
    let own = own(network);
    let mut text = format!(
        "{} joined; this machine is {}",
        name(network),
        own.and_then(|own| own.name.as_deref())
            .unwrap_or("a member without a name"),
    );
    let addresses: Vec<String> = own
        .into_iter()
        .flat_map(|own| {
            own.ipv4
                .map(|ip| ip.to_string())
                .into_iter()
                .chain([own.address.to_string()])
        })
        .collect();
    text.push_str(&format!(", with the addresses {}\n\n", addresses.join(" and ")));
    text.push_str(&table(network));
    text
}

/// What `networks` prints.
pub(super) fn networks(list: &NetworkList, _width: usize) -> String {
    if list.networks.is_empty() {
        return "No network. `weft create` makes one, and `weft join` joins one.\n".to_owned();
    }
    let line = |network: &NetworkStatus| match network.state {
        NetworkState::Member => format!(
            "{}  {} members, this machine {}  {}\n",
            name(network),
            network.members.len(),
            network
                .ipv4
                .map_or_else(|| "without IPv4".to_owned(), |ip| ip.to_string()),
            network.id
        ),
        _ => format!("{}  {}\n", name(network), network.why),
    };
    list.networks.iter().map(line).collect()
}

/// What `members` prints.
pub(super) fn members(list: &NetworkList, width: usize) -> String {
    if list.networks.is_empty() {
        return networks(list, width);
    }
    let parts = list
        .networks
        .iter()
        .map(|network| format!("{}\n{}", name(network), table(network)));
    parts.collect::<Vec<_>>().join("\n")
}

/// What `invites` prints.
pub(super) fn invites(list: &NetworkList, width: usize) -> String {
    if list.networks.is_empty() {
        return networks(list, width);
    }
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs());
    let mut text = String::new();
    for network in &list.networks {
        for invite in &network.invites {
            let left = invite.expires_unix.map_or(0, |expires| expires.saturating_sub(now));
            text.push_str(&format!(
                "{}  {}  for {}, {} left, ends in {}\n",
                invite.key.get(..12).unwrap_or(&invite.key),
                name(network),
                invite.name.as_deref().unwrap_or("any name"),
                invite.remaining,
                time(left)
            ));
        }
    }
    if text.is_empty() {
        text.push_str("No open invite.\n");
    }
    text
}

fn table(network: &NetworkStatus) -> String {
    let width = network
        .members
        .iter()
        .filter_map(|member| member.name.as_ref())
        .map(String::len)
        .max();
    let width = width.unwrap_or(0).max(1);
    let line = |member: &MemberStatus| {
        let mut notes = Vec::new();
        notes.extend(member.own.then(|| "this machine".to_owned()));
        notes.extend(member.admin.then(|| "administrator".to_owned()));
        notes.extend(member.tags.iter().map(|tag| format!("tag {tag}")));
        let line = format!(
            "  {:<width$}  {:<15}  {}  {}",
            member.name.as_deref().unwrap_or("-"),
            member.ipv4.map_or_else(|| "-".to_owned(), |ip| ip.to_string()),
            member.address,
            notes.join(", ")
        );
        format!("{}\n", line.trim_end())
    };
    network.members.iter().map(line).collect()
}

fn name(network: &NetworkStatus) -> &str {
    network.name.as_deref().unwrap_or("(joining)")
}

fn own(network: &NetworkStatus) -> Option<&MemberStatus> {
    network.members.iter().find(|member| member.own)
}

fn time(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7_200 => format!("{} minutes", seconds / 60),
        7_200..172_800 => format!("{} hours", seconds / 3_600),
        _ => format!("{} days", seconds / 86_400),
    }
}
