//! Documents about networks as text for the user. Names come from other nodes, which the daemon has
//! checked to be labels of DNS.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use serde_json::Value;
use weft_control::status::{
    AskedAtStatus, Invited, MemberStatus, NetworkList, NetworkState, NetworkStatus, NumberedStatus, NvpnRequestStatus,
    RequestList, ShadowedStatus, SoughtStatus, Standing,
};
use weft_networks::fingerprint;
use weft_noise::PublicKey;
use weft_os::clock::unix_s;
use weft_roster::names::Name;

use crate::human;

/// What `create` prints.
pub(super) fn created(network: Option<&NetworkStatus>, interface: &str) -> String {
    let Some(network) = network else {
        return "created\n".to_owned();
    };
    format!(
        "{} created; this machine is {}\n{}\n{}\n\
         `weft invite` prints a code, and `sudo weft join` with it on another machine makes that a member.\n\
         This machine is the only administrator: if its key is lost, no machine can be added or removed any more.\n\
         `weft admin add` makes another member one.\n",
        name(network),
        own_name(network),
        nameless(network),
        addresses(network, interface),
    )
}

/// What `invite` prints behind the code.
pub(super) fn invited(invited: &Invited, qr: &str, seconds: u32) -> String {
    let machines = match invited.uses {
        1 => "one machine".to_owned(),
        n => format!("{n} machines"),
    };
    let own = invited.addresses.iter().map(ToString::to_string);
    let entry = invited.entry.map(|at| format!("{at} of another member"));
    let addresses: Vec<String> = own.chain(entry).collect();
    format!(
        "\n{qr}Addresses in it: {}\nOn the machine that joins: sudo weft join, then paste the code. It is a password: {machines} can join with it,\n\
         within {}.\n{}",
        addresses.join(", "),
        time(seconds.into()),
        if invited.local_only { LOCAL_ONLY } else { "" },
    )
}

/// What `invite` says of a code without an address that other networks reach.
const LOCAL_ONLY: &str = "\n\
    Machines of other networks may not reach the addresses in it. What helps: a member with a public address; --address with one\n\
    whose port is forwarded to this machine; if the machine that joins has a public address, here, before it joins:\n\
    sudo weft peer add NPUB-OF-IT --address ADDRESS\n";

/// What `join` prints.
pub(super) fn joined(network: &NetworkStatus, interface: &str, wanted: &Wanted) -> String {
    format!(
        "{} joined; this machine is {}\n{}{}\n{}\n{}{}",
        name(network),
        own_name(network),
        not_as_wanted(network, wanted),
        other_name(network),
        addresses(network, interface),
        table(network, own_part),
        shadowed(network) + &unused(network)
    )
}

/// What this machine would like in a network, and how its user is told of it.
#[derive(Clone, Debug, Default)]
pub(super) struct Wanted {
    /// The name.
    pub(super) name: Option<String>,
    /// Whether the user chose it; otherwise it follows from the host name.
    pub(super) chosen: bool,
    /// Whether the user gets a document once it is a member.
    pub(super) json: bool,
}

/// A line about this machine if it has another name than it would like, or one with a number.
fn not_as_wanted(network: &NetworkStatus, wanted: &Wanted) -> String {
    let Some(own) = network.own().and_then(|own| own.name.as_deref()) else {
        return nameless(network);
    };
    let others = network.members.iter().filter(|member| !member.own);
    let mut others = others.filter_map(|member| member.name.as_deref());
    let is_number = |other: &&str| {
        let names = (Name::host(own), Name::host(other));
        matches!(names, (Ok(own), Ok(other)) if own.is_numbered(&other))
    };
    let why = match (&wanted.name, others.clone().find(is_number)) {
        (Some(name), _) if name == own => return String::new(),
        (_, Some(other)) => format!("{other} is the name of another member"),
        (Some(name), None) if others.any(|other| other == name) => format!("{name} is the name of another member"),
        (Some(name), None) if wanted.chosen => format!("an administrator gave it this name in place of {name}"),
        _ => return String::new(),
    };
    format!("That is because {why}. An administrator gives it another name: weft member rename {own} NAME\n")
}

/// A line about this machine if it has no name.
fn nameless(network: &NetworkStatus) -> String {
    let without = network
        .own()
        .filter(|own| own.name.is_none() && network.founded_with.is_none());
    let line = |own: &MemberStatus| {
        format!(
            "It has no name, because its host name cannot be one. An administrator gives it one: weft member rename {} NAME\n",
            own.npub
        )
    };
    without.map(line).unwrap_or_default()
}

/// Lines about administrators without membership.
fn admins_outside(network: &NetworkStatus) -> String {
    let line = |npub: &String| {
        format!("{npub} is an administrator without membership: `weft admin remove {npub}` ends its rights\n")
    };
    network.admins_outside.iter().map(line).collect()
}

/// Lines about members that have a name with a number.
fn numbered(network: &NetworkStatus) -> String {
    let line = |numbered: &NumberedStatus| {
        let holder = network.members.iter().find(|member| member.npub == numbered.holder);
        let whose = match holder.is_some_and(|holder| holder.own) {
            true => "this machine",
            false => "another member",
        };
        let name = numbered.name.as_deref().unwrap_or(&numbered.npub);
        format!(
            "{name} has a number because {} is {whose}: `weft member rename {name} NAME` gives it another name.\n",
            numbered.wanted
        )
    };
    network.numbered.iter().map(line).collect()
}

/// A line about a network whose name here is another one than its members elsewhere use.
fn other_name(network: &NetworkStatus) -> String {
    match (&network.name, &network.label) {
        (Some(name), Some(label)) if name != label => {
            format!("Its name is {name}, as is that of another network of this machine; here it is {label}.\n")
        }
        _ => String::new(),
    }
}

/// Lines about members whose IPv4 address leads elsewhere.
fn shadowed(network: &NetworkStatus) -> String {
    let line = |shadowed: &ShadowedStatus| {
        let leads_to = &shadowed.leads_to;
        let named = |own: bool, name: &Option<String>, npub: &String| match own {
            true => "this machine".to_owned(),
            false => name.as_ref().unwrap_or(npub).clone(),
        };
        let other = named(leads_to.own, &leads_to.name, &leads_to.npub);
        let reached = match shadowed.own {
            true => "this machine has no IPv4 in this network",
            false => "its name and its IPv6 address reach it",
        };
        format!(
            "{}, the address of {}, is here that of {other} in {}; {reached}.\n",
            shadowed.ipv4,
            named(shadowed.own, &shadowed.name, &shadowed.npub),
            leads_to.network.as_deref().unwrap_or("another network"),
        )
    };
    network.shadowed.iter().map(line).collect()
}

/// Lines about members whose IPv4 address is not used on this machine.
fn unused(network: &NetworkStatus) -> String {
    let line = |member: &MemberStatus| {
        let whose = match member.own {
            true => "this machine",
            false => member.name.as_deref().unwrap_or(&member.npub),
        };
        let (ipv4, why) = (member.ipv4?, member.unused.as_deref()?);
        Some(format!(
            "{ipv4}, the address of {whose}, is not used: {}.\n",
            human::plain(why)
        ))
    };
    network.members.iter().filter_map(line).collect()
}

fn own_name(network: &NetworkStatus) -> &str {
    let name = network.own().and_then(|own| own.name.as_deref());
    name.unwrap_or("a member without a name")
}

/// Where this machine is in a network.
fn addresses(network: &NetworkStatus, interface: &str) -> String {
    let ipv4 = network.ipv4.map_or_else(|| "-".to_owned(), |ip| ip.to_string());
    let ipv6 = network
        .own()
        .map_or_else(|| "-".to_owned(), |own| own.address.to_string());
    let host = network.own().and_then(|own| own.name.as_deref());
    let dns = host.map_or_else(|| "-".to_owned(), |host| format!("{host}.{}.weft", name(network)));
    format!("  interface  {interface}\n  name       {dns}\n  IPv4       {ipv4}\n  IPv6       {ipv6}\n")
}

/// What `networks` prints.
pub(super) fn networks(list: &NetworkList, _width: usize) -> String {
    let open = list.asked.iter().filter(|asked| asked.network.is_none());
    let asked: String = open
        .map(|asked| format!("asked {}  {}\n", asked.fingerprint, human::plain(&asked.why)))
        .collect();
    if list.networks.is_empty() && !asked.is_empty() {
        return asked;
    }
    if list.networks.is_empty() {
        return "No network. `weft create` makes one, and `weft join` joins one.\n".to_owned();
    }
    let line = |network: &NetworkStatus| match network.state {
        NetworkState::Member => format!(
            "{}  {}{}, this machine {}{}  {}\n",
            name(network),
            human::count(network.members.len(), "member"),
            match network.members.len() {
                0 | 1 => String::new(),
                _ => format!(", {} online", network.online()),
            },
            network
                .ipv4
                .map_or_else(|| "without IPv4".to_owned(), |ip| ip.to_string()),
            founded_with(network),
            network.id
        ),
        NetworkState::Lost if network.why.is_empty() => format!("{}  its records cannot be read\n", network.id),
        NetworkState::Lost => format!("{}  {}\n", network.id, human::plain(&network.why)),
        _ if network.why.is_empty() => format!("{}\n", name(network)),
        _ => format!("{}  {}\n", name(network), human::plain(&network.why)),
    };
    let lines = list.networks.iter().map(|network| {
        line(network)
            + &network
                .asked_at
                .iter()
                .map(|row| asked_at(row) + "\n")
                .collect::<String>()
            + &unsaved(network)
            + &shadowed(network)
            + &unused(network)
            + &numbered(network)
            + &admins_outside(network)
            + &only_admin(network)
            + &changed_elsewhere(network)
    });
    lines.collect::<String>() + &asked
}

/// The line of an address at which this machine asks to be taken in, without its end.
pub(super) fn asked_at(row: &AskedAtStatus) -> String {
    format!("  {}  {}", row.address, human::plain(&row.why))
}

/// A line about a network whose records are not written as they are.
fn unsaved(network: &NetworkStatus) -> String {
    let line = |why: &String| {
        format!(
            "{} is not saved ({why}): what has changed is lost if this machine restarts; the daemon tries again.\n",
            name(network)
        )
    };
    network.unsaved.as_ref().map(line).unwrap_or_default()
}

/// A line about a network with one administrator, as seen by a member.
fn only_admin(network: &NetworkStatus) -> String {
    let mut admins = network.members.iter().filter(|member| member.admin);
    let (Some(admin), None, NetworkState::Member, None) =
        (admins.next(), admins.next(), network.state, &network.founded_with)
    else {
        return String::new();
    };
    let (who, there) = match (admin.own, &admin.name) {
        (true, _) => ("this machine", ""),
        (false, Some(name)) => (name.as_str(), " there"),
        (false, None) => (admin.npub.as_str(), " there"),
    };
    format!(
        "{} has one administrator, {who}: `weft admin add MEMBER`{there} makes another one, `weft key export` keeps its key.\n",
        name(network)
    )
}

/// The lines of `status` about networks: those whose records are not saved or cannot be read, addresses that are not
/// used, and networks that have this machine as their only administrator.
pub(crate) fn hints(list: &NetworkList, width: usize) -> String {
    let own = |network: &&NetworkStatus| network.members.iter().any(|member| member.own && member.admin);
    let lost = |network: &&NetworkStatus| network.state == NetworkState::Lost;
    let lost = list.networks.iter().filter(lost);
    let lost = lost.map(|network| format!("network {}: {}", network.id, human::plain(&network.why)));
    let unsaved = list.networks.iter().map(unsaved);
    let hints = unsaved
        .chain(list.networks.iter().map(unused))
        .chain(lost)
        .chain(list.networks.iter().filter(own).map(only_admin));
    let paragraph = |hint: String| human::paragraph(hint.trim_end(), width);
    hints.filter(|hint| !hint.is_empty()).map(paragraph).collect()
}

/// What `join --ask` prints before it waits.
pub(super) fn asking(admin: &PublicKey, own: &RequestList) -> String {
    format!(
        "This machine ({}) asks {} for membership.\n\n\
         On the administrator's machine:\n\n  sudo weft requests --accept 10m\n  sudo weft approve {}\n\n\
         Compare the two short forms with those that it shows.\n",
        own.fingerprint,
        fingerprint(admin),
        own.npub
    )
}

/// What `join --nvpn` prints before it waits. `qr` is the link as a QR code.
pub(super) fn nvpn_request(request: &NvpnRequestStatus, qr: &str) -> String {
    let ways = format!(
        "The administrator's device has to find this machine: {}.\n",
        human::plain(&request.ways)
    );
    match &request.link {
        Some(link) => format!(
            "{link}\n\n{qr}An administrator of the network scans the code with nvpn, or takes this machine in with the link. It is a\n\
             password: who answers first with it decides which network this machine comes into. It ends with this command.\n{ways}"
        ),
        None => format!(
            "This machine waits for that administrator to take it in: nvpn add-device --device {}\n{ways}",
            request.device
        ),
    }
}

/// What `leave` prints of a network that was founded with nvpn.
pub(super) const LEFT_NVPN: &str =
    "left; an administrator should remove this machine with nvpn, too: the other members list it\n";

/// Whether the network that is left was founded with nvpn.
pub(super) fn is_founded_with_nvpn(list: &NetworkList, wanted: Option<&str>) -> bool {
    let mut networks = list.networks.iter().filter(|network| is_named(network, wanted));
    networks.any(|network| network.founded_with.is_some())
}

/// A line about a member's network that was founded with another program: who changes it, and which rules apply.
fn changed_elsewhere(network: &NetworkStatus) -> String {
    let is_so = network.founded_with.is_some() && network.state == NetworkState::Member;
    match is_so {
        true => format!("  {}\n", human::plain(&network.why)),
        false => String::new(),
    }
}

/// What stands behind a network that was founded with another program.
fn founded_with(network: &NetworkStatus) -> String {
    let with = network.founded_with.as_deref();
    with.map(|with| format!(", founded with {}", human::plain(with)))
        .unwrap_or_default()
}

/// What `requests` prints.
pub(super) fn requests(list: &RequestList) -> String {
    let mut text = match list.accepted_s {
        Some(seconds) => format!("Requests are accepted for {} more.\n", time(seconds)),
        None => "No requests are accepted: `weft requests --accept 10m` lets unknown nodes ask.\n".to_owned(),
    };
    text.push_str(&format!("This machine is {}.\n", list.fingerprint));
    for request in &list.requests {
        text.push_str(&format!(
            "\n{}  {}  asked {} ago\n  {}\n",
            request.fingerprint,
            request
                .name
                .as_deref()
                .map_or_else(|| "without a name".to_owned(), |name| name.escape_debug().to_string()),
            time(request.age_s),
            request.npub
        ));
    }
    if !list.requests.is_empty() {
        text.push_str("\nCompare the short form with the one that the machine itself shows; then `weft approve NPUB` or `weft deny NPUB`.\n");
    }
    text
}

/// Whether this machine is a member of the network that it is about to leave, and another one is, too.
pub(super) fn is_listed_by_others(list: &NetworkList, wanted: Option<&str>) -> bool {
    let mut networks = list.networks.iter().filter(|network| is_named(network, wanted));
    networks.any(|network| network.state == NetworkState::Member && network.members.len() > 1)
}

/// What `leave` prints.
pub(super) fn left(list: &NetworkList, listed: bool) -> &'static str {
    match list.resigned {
        None if !listed => "left\n",
        None => "left; the other members list this node until an administrator removes it\n",
        Some(true) => {
            "left, and no administrator any more; the other members list this node until an administrator removes it\n"
        }
        Some(false) => {
            "left; no member was reached, so the others list this node as an administrator until another one removes it\n"
        }
    }
}

/// What `approve` prints.
pub(super) fn approved(network: Option<&NetworkStatus>, node: &str) -> String {
    let is = |member: &&MemberStatus| member.npub == node || member.address.to_string() == node;
    let member = network.and_then(|network| network.members.iter().find(is));
    let (Some(network), Some(member)) = (network, member) else {
        return "approved\n".to_owned();
    };
    let sought = member.sought.as_ref().map(|sought| {
        format!(
            "As an nvpn device it has to be told, for which this machine seeks it for {}: {}\n",
            time(sought.left_s),
            sought.why
        )
    });
    let sought = sought.unwrap_or_default();
    format!(
        "{} is a member of {}, with the addresses {} and {}\n{sought}{}",
        member.name.as_deref().unwrap_or(&member.npub),
        name(network),
        member.ipv4.map_or_else(|| "-".to_owned(), |ip| ip.to_string()),
        member.address,
        numbered(network)
    )
}

/// What `members` prints.
pub(super) fn members(list: &NetworkList, width: usize) -> String {
    if list.networks.is_empty() {
        return networks(list, width);
    }
    let parts = list.networks.iter().map(|network| {
        let notes = shadowed(network) + &unused(network) + &numbered(network) + &admins_outside(network);
        format!(
            "{}{}\n{}{notes}",
            name(network),
            founded_with(network),
            table(network, presence)
        )
    });
    parts.collect::<Vec<_>>().join("\n")
}

/// What `invites` prints.
pub(super) fn invites(list: &NetworkList, width: usize) -> String {
    if list.networks.is_empty() {
        return networks(list, width);
    }
    let now = unix_s();
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

/// What `member address` prints: the address that the member named so has now.
pub(super) fn address(list: &NetworkList, (named, npub): (&str, &str), fixed: Option<Ipv4Addr>) -> String {
    let is_named = |member: &&MemberStatus| member.name.as_deref() == Some(named) || member.npub == npub;
    let members = list.networks.iter().flat_map(|network| &network.members);
    let mut has = members.filter(is_named).filter_map(|member| member.ipv4);
    // Members of several networks may have the name.
    let has = has.find(|ipv4| fixed.is_none_or(|fixed| *ipv4 == fixed));
    let address = fixed
        .or(has)
        .map_or_else(|| "no IPv4 address".to_owned(), |ip| ip.to_string());
    format!("{} has {address}\n", named.escape_debug())
}

/// The approved routes of a member, `exit` among them, each once.
pub(super) fn routes_of(list: &NetworkList, network: Option<&str>, member: &str) -> BTreeSet<String> {
    let networks = list.networks.iter().filter(|known| is_named(known, network));
    let routes = networks.flat_map(|network| &network.routes);
    let of_member = routes.filter(|route| route.name.as_deref() == Some(member) || route.npub == member);
    let approved = of_member.filter(|route| route.approved);
    approved
        .map(|route| {
            if route.exit {
                "exit".to_owned()
            } else {
                route.subnet.clone()
            }
        })
        .collect()
}

/// What `member replace` prints about routes that end with the old machine.
pub(super) fn to_approve(routes: &BTreeSet<String>, new: &str) -> String {
    if routes.is_empty() {
        return String::new();
    }
    let mut text = "Its routes end; once the new machine offers them, approve them again:\n".to_owned();
    for route in routes {
        text.push_str(&format!(
            "  weft route approve {} {}\n",
            new.escape_debug(),
            route.escape_debug()
        ));
    }
    text
}

/// Keeps one network of the document `weft.networks/1`, and drops the others; `None` if it is not in it.
pub(super) fn keep(document: &mut Value, wanted: &str) -> Option<()> {
    let networks = document.get_mut("networks")?.as_array_mut()?;
    networks.retain(|network| network["id"] == wanted || network["label"] == wanted);
    (!networks.is_empty()).then_some(())?;
    document.as_object_mut()?.remove("asked");
    Some(())
}

/// Whether a network is the one that `--network` names, or there is none named.
pub(super) fn is_named(network: &NetworkStatus, named: Option<&str>) -> bool {
    named.is_none_or(|named| network.id == named || network.label.as_deref() == Some(named))
}

/// What was signed again with the removal of an administrator, and what ended with it. Its owner may
/// have signed what others should look at.
pub(super) fn signed_again(list: &NetworkList) -> String {
    let (ended, stays): (Vec<&String>, Vec<&String>) =
        list.signed_again.iter().partition(|record| record.ends_with(": ended"));
    let part = |head: &str, records: Vec<&String>| match records.is_empty() {
        true => String::new(),
        false => {
            let lines = records
                .into_iter()
                .map(|record| format!("  {}\n", record.escape_debug()));
            head.to_owned() + &lines.collect::<String>()
        }
    };
    part(
        "It had signed what follows; this node has signed that again, so it stays:\n",
        stays,
    ) + &part("This has ended with it:\n", ended)
}

/// The members of a network. `presence`: what is said of whether one is there.
fn table(network: &NetworkStatus, presence: fn(&MemberStatus) -> Option<String>) -> String {
    let width = network
        .members
        .iter()
        .filter_map(|member| member.name.as_ref())
        .map(String::len)
        .max();
    let width = width.unwrap_or(0).max(1);
    let line = |member: &MemberStatus| {
        let mut notes = Vec::new();
        notes.extend(presence(member));
        notes.extend(member.admin.then(|| "administrator".to_owned()));
        notes.extend(member.successor.then(|| "successor".to_owned()));
        notes.extend(member.tags.iter().map(|tag| format!("tag {tag}")));
        // The only way to name a member without a name.
        notes.extend(member.name.is_none().then(|| member.npub.clone()));
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
    network.title().unwrap_or("(joining)")
}

/// Which member this machine is. Right after it has joined it has heard none of the others.
fn own_part(member: &MemberStatus) -> Option<String> {
    member.own.then(|| "this machine".to_owned())
}

/// Whether a member is there, and when it was heard last if not.
fn presence(member: &MemberStatus) -> Option<String> {
    let heard = |word: &str| match member.heard_s {
        Some(seconds) => format!("{word}, heard {} ago", human::duration(seconds)),
        None => format!("{word}, not heard yet"),
    };
    let presence = |standing| match standing {
        Standing::Active | Standing::Connected => "online".to_owned(),
        Standing::Connecting => heard("connecting"),
        Standing::Offline => heard("offline"),
    };
    let sought = |sought: &SoughtStatus| format!("sought for {} more: {}", time(sought.left_s), sought.why);
    let told = member.sought.as_ref().map(sought);
    let presence = own_part(member).or(told).or_else(|| member.standing.map(presence))?;
    Some(if member.nvpn {
        format!("{presence}, nvpn")
    } else {
        presence
    })
}

fn time(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7_200 => format!("{} minutes", seconds / 60),
        7_200..172_800 => format!("{} hours", seconds / 3_600),
        _ => format!("{} days", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests;
