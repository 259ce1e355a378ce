//! This machine in its networks: the first lines of `weft status`.

use weft_control::status::{NetworkList, NetworkState, NetworkStatus, TurnedAwayStatus};

use super::words::Page;
use super::{BELOW, count, plain};

/// Adds two lines for each network that this machine is in, and one for each that it joins or has been removed from.
/// Returns whether any was added.
pub(super) fn put_networks(page: &mut Page, list: &NetworkList) -> bool {
    let mut any = false;
    for network in &list.networks {
        let name = title(network);
        match network.state {
            NetworkState::Member => {
                page.line(BELOW, &addresses(network, name));
                page.line(BELOW, &format!("    {}", part(network, name)));
            }
            NetworkState::Joining => page.line(BELOW, &with_why("joining a network", network)),
            // The reason is among the hints below the peers.
            NetworkState::Lost => page.line(BELOW, &format!("network {}: its records cannot be read", network.id)),
            NetworkState::Removed | NetworkState::Leaving | NetworkState::Other => {
                page.line(BELOW, &with_why(name, network));
            }
        }
        any = true;
    }
    for asked in list.asked.iter().filter(|asked| asked.network.is_none()) {
        page.line(BELOW, &format!("asked {}: {}", asked.fingerprint, plain(&asked.why)));
        any = true;
    }
    any
}

/// Returns the network from which this machine was removed and of which `node` is a member or an administrator.
pub(super) fn former_network<'a>(list: &'a NetworkList, node: &TurnedAwayStatus) -> Option<&'a str> {
    let removed = |network: &&NetworkStatus| network.state == NetworkState::Removed;
    let has = |network: &&NetworkStatus| {
        let members = network.members.iter().map(|member| &member.npub);
        members.chain(&network.admins_outside).any(|npub| *npub == node.npub)
    };
    list.networks.iter().filter(removed).find(has).map(title)
}

fn title(network: &NetworkStatus) -> &str {
    network.title().unwrap_or("a network")
}

fn with_why(what: &str, network: &NetworkStatus) -> String {
    match network.why.is_empty() {
        true => what.to_owned(),
        false => format!("{what}: {}", plain(&network.why)),
    }
}

/// The name and the addresses of this machine in a network.
fn addresses(network: &NetworkStatus, name: &str) -> String {
    let own = network.own();
    let host = own.and_then(|own| own.name.as_ref());
    let host = host.map_or_else(|| "(no name)".to_owned(), |host| format!("{host}.{name}.weft"));
    let ipv4 = network
        .ipv4
        .map_or_else(|| "no IPv4".to_owned(), |ipv4| ipv4.to_string());
    let ipv6 = own.map(|own| format!("  {}", own.address));
    format!("{host}  {ipv4}{}", ipv6.unwrap_or_default())
}

/// What this machine is in a network, and how many other members it can reach.
fn part(network: &NetworkStatus, name: &str) -> String {
    let own = network.own();
    let admin = own.is_some_and(|own| own.admin);
    let role = if admin { "administrator" } else { "member" };
    match (network.members.len(), admin) {
        (0 | 1, true) => format!("{role} of {name}, without other members: `weft invite` prints a code for one"),
        (0 | 1, false) => format!("{role} of {name}, without other members"),
        (all, _) => format!(
            "{role} of {name}; {} of {} online",
            network.online(),
            count(all, "member")
        ),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn list(state: &str, members: &serde_json::Value) -> NetworkList {
        serde_json::from_value(json!({
            "schema": "weft.networks/1",
            "networks": [{
                "id": "0123", "name": "home", "label": "home", "state": state, "why": "an administrator has\u{1b} removed it",
                "ipv4": "10.44.1.2", "members": members, "invites": []
            }]
        }))
        .unwrap()
    }

    fn member(name: Option<&str>, own: bool, standing: Option<&str>) -> serde_json::Value {
        json!({
            "npub": format!("npub1{}", name.unwrap_or("x")), "name": name, "address": "fd00::1", "ipv4": "10.44.1.2",
            "admin": own, "own": own, "tags": [], "standing": standing
        })
    }

    fn text(list: &NetworkList) -> String {
        let mut page = Page::new(100);
        assert!(put_networks(&mut page, list));
        page.into_text()
    }

    #[test]
    fn a_member_has_its_name_addresses_and_part() {
        let own = member(Some("desk"), true, None);
        let alone = list("member", &json!([own]));
        assert_eq!(
            text(&alone),
            "desk.home.weft  10.44.1.2  fd00::1\n    \
             administrator of home, without other members: `weft invite` prints a code for one\n"
        );
        let others = ["active", "connected", "connecting", "offline"];
        let mut members: Vec<_> = others
            .map(|standing| member(Some(standing), false, Some(standing)))
            .into();
        members.push(own);
        let text = text(&list("member", &json!(members)));
        assert!(
            text.ends_with("    administrator of home; 3 of 5 members online\n"),
            "{text}"
        );
    }

    #[test]
    fn a_removed_machine_is_told_so_and_by_whom_it_is_not_let_in() {
        let removed = list("removed", &json!([member(Some("nas"), false, Some("offline"))]));
        assert_eq!(text(&removed), "home: an administrator has? removed it\n");
        let away = |npub: &str| TurnedAwayStatus {
            npub: npub.to_owned(),
            from: "192.0.2.1:2121".parse().unwrap(),
            ago_s: 1,
            times: 1,
        };
        assert_eq!(former_network(&removed, &away("npub1nas")), Some("home"));
        assert_eq!(former_network(&removed, &away("npub1other")), None);
        let member = list("member", &json!([member(Some("nas"), false, Some("offline"))]));
        assert_eq!(
            former_network(&member, &away("npub1nas")),
            None,
            "only a network that it has lost"
        );
    }
}
