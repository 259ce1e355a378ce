//! What the commands about guests print for people.

use std::path::Path;

use weft_control::status::{GuestAdded, GuestHere, GuestList, GuestStatus};

use crate::human;

/// Returns what `wg add` says beside the file. `brought`: the device has its private key.
pub(super) fn added(added: &GuestAdded, qr: &str, out: Option<&Path>, brought: bool) -> String {
    let name = human::plain(&added.name);
    let network = added.network.as_deref().map(human::plain).unwrap_or_default();
    let mut text = String::from("\n");
    text.push_str(qr);
    text.push_str(&format!(
        "{name} is a guest of this machine in {network}, at {}.\n",
        added.ipv4
    ));
    match (out, brought) {
        (Some(path), _) => text.push_str(&format!("Its file is {}.\n", path.display())),
        (None, true) => text.push_str("Its file lacks the private key, which the device has.\n"),
        (None, false) => text.push_str("Its file has its private key, which is kept nowhere else.\n"),
    }
    text.push_str("On Linux, `wg-quick up FILE` uses it; the apps of WireGuard take the file or the QR code.\n");
    match added.endpoints.first() {
        None => text.push_str("This machine has no address that was found; give one with --endpoint.\n"),
        Some(first) if added.local_only => text.push_str(&format!(
            "No address of this machine is known to be reached from outside its own network. If a router in front of it \
             leads UDP port {} here, add the guest with --endpoint and the address of that router.\n",
            first.port()
        )),
        Some(_) => {}
    }
    text
}

/// Returns what `wg remove` says.
pub(super) fn removed(named: &str) -> String {
    format!("{} is a guest no longer\n", human::plain(named))
}

/// Returns whether a user means this guest.
pub(super) fn is(guest: &GuestStatus, named: &str) -> bool {
    let name = guest.name.as_deref();
    let whole = name
        .zip(guest.network.as_deref())
        .map(|(name, network)| format!("{name}.{network}.weft"));
    name == Some(named)
        || whole.as_deref() == Some(named)
        || guest.public_key == named
        || guest.ipv4.to_string() == named
}

/// Returns the table of `wg list`.
pub(super) fn list(list: &GuestList) -> String {
    if list.guests.is_empty() {
        return "No guest. `weft wg add NAME` takes a device with WireGuard as guest of this machine.\n".to_owned();
    }
    let rows: Vec<[String; 5]> = list.guests.iter().map(row).collect();
    let width = |at: usize| {
        rows.iter()
            .filter_map(|row| row.get(at))
            .map(|cell| cell.chars().count())
            .max()
    };
    let widths: Vec<usize> = (0..5).map(|at| width(at).unwrap_or(0)).collect();
    let line = |row: &[String; 5]| {
        let cells = row.iter().zip(&widths);
        let line: String = cells.map(|(cell, width)| format!("{cell:<width$}  ")).collect();
        format!("{}\n", line.trim_end())
    };
    let mut text: String = rows.iter().map(line).collect();
    if let Some(why) = list.here.as_ref().and_then(|here| here.why_not.as_deref()) {
        text.push_str(&format!("Guests cannot reach this machine: {}\n", human::plain(why)));
    }
    text
}

fn row(guest: &GuestStatus) -> [String; 5] {
    let host = guest.host_name.as_deref().unwrap_or(&guest.host);
    let network = guest.network.as_deref().map(human::plain).unwrap_or_default();
    [
        guest
            .name
            .as_deref()
            .map_or_else(|| guest.public_key.clone(), human::plain),
        network,
        guest.ipv4.to_string(),
        match &guest.here {
            Some(_) => "here".to_owned(),
            None => format!("at {}", human::plain(host)),
        },
        guest.here.as_ref().map(state).unwrap_or_default(),
    ]
}

fn state(here: &GuestHere) -> String {
    match (here.up, &here.endpoint, &here.why) {
        (true, Some(at), _) => format!("up, at {at}"),
        (true, None, _) => "up".to_owned(),
        (false, _, Some(why)) => format!("down: {}", human::plain(why)),
        (false, _, None) => "down".to_owned(),
    }
}

/// Returns what `wg show` prints.
pub(super) fn details(list: &GuestList) -> String {
    let mut text = String::new();
    for guest in &list.guests {
        let mut line = |name: &str, value: String| text.push_str(&format!("{name:<16}{value}\n"));
        line("name", guest.name.as_deref().map(human::plain).unwrap_or_default());
        line(
            "network",
            guest.network.as_deref().map(human::plain).unwrap_or_default(),
        );
        line("address", guest.ipv4.to_string());
        line("public key", guest.public_key.clone());
        let host = guest.host_name.as_deref().unwrap_or(&guest.host);
        line("host", human::plain(host));
        if !guest.tags.is_empty() {
            line("tags", human::plain(&guest.tags.join(", ")));
        }
        let Some(here) = &guest.here else { continue };
        line("state", state(here));
        let ago = |seconds: Option<u64>| seconds.map_or_else(|| "never".to_owned(), |s| format!("{s} s ago"));
        line("handshake", ago(here.handshake_s));
        line("last message", ago(here.received_s));
        line("received", format!("{} bytes", here.rx_bytes));
        line("sent", format!("{} bytes", here.tx_bytes));
        line("preshared key", if here.preshared { "yes" } else { "no" }.to_owned());
        if let Some(own) = &list.here {
            line("key of host", own.public_key.clone());
            line(
                "port of host",
                own.port.map_or_else(|| "none".to_owned(), |port| port.to_string()),
            );
        }
    }
    text
}
