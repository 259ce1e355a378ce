//! Membership in a network that was founded with nvpn: `join --nvpn`.

use std::io::{self, IsTerminal as _};
use std::time::Duration;

use weft_control::status::{NetworkList, NvpnRequestStatus};
use weft_control::{NetworkCommand, NvpnByHand};
use weft_store::state::StatePaths;

use super::qr::{self, Qr, Showing};
use super::text::{self, Wanted};
use super::waiting::Waiting;
use super::{wait_for_membership, with_daemon_or_document};
use crate::failure::Failure;
use crate::output::tell;
use crate::start::Place;

/// How long `join --nvpn` waits, as the daemon does.
const ANSWER: Duration = Duration::from_secs(900);
/// What is said while it waits.
const WAITING: &str = "no administrator has taken this machine in yet";

/// Shows the link of this machine, and waits until an administrator has taken it in with nvpn.
pub(super) fn join(place: &Place, wanted: Wanted, by_hand: Option<NvpnByHand>) -> Result<(), Failure> {
    with_daemon_or_document(place, "join", wanted.json, move |paths| {
        let mut waiting = Waiting::begin(paths, wanted.json)?;
        let begin = NetworkCommand::JoinNvpn {
            label: wanted.name.clone(),
            by_hand,
            request: None,
        };
        let begun = look(&mut waiting, paths, begin)?;
        let qr = begun.link.as_deref().map(|link| qr_code(link, wanted.json));
        tell(wanted.json, &text::nvpn_request(&begun, &qr.unwrap_or_default()))?;
        loop {
            let again = NetworkCommand::JoinNvpn {
                label: None,
                by_hand: None,
                request: Some(begun.npub.clone()),
            };
            if let Some(network) = look(&mut waiting, paths, again)?.network {
                waiting.begin_next();
                // Its name in the network is that of the administrator's list.
                let wanted = Wanted {
                    name: None,
                    chosen: false,
                    ..wanted
                };
                return wait_for_membership(paths, network, &wanted, waiting);
            }
            if !waiting.steps_on(WAITING, ANSWER)? {
                return Err(Failure::Refused(
                    "the request has ended, and with it the link".to_owned(),
                ));
            }
        }
    })
}

/// Begins a request, or looks after one so that it goes on.
fn look(waiting: &mut Waiting, paths: &StatePaths, command: NetworkCommand) -> Result<NvpnRequestStatus, Failure> {
    let list: NetworkList = waiting.ask(paths, command)?;
    let none = || Failure::Refused("the daemon knows no request".to_owned());
    list.nvpn_request.ok_or_else(none)
}

/// The link as a QR code, or the reason why it is left out, each with an empty line behind it.
fn qr_code(link: &str, aside: bool) -> String {
    let terminal = match aside {
        true => None,
        false => qr::terminal(),
    };
    let Some(qr) = Qr::of(link) else {
        return String::new();
    };
    match qr.showing(None, terminal) {
        Showing::Printed => qr.text(io::stdout().is_terminal()) + "\n",
        Showing::TooSmall { columns, rows } => {
            format!("As a QR code it needs a terminal of {columns} columns and {rows} rows.\n\n")
        }
        Showing::LeftOut => String::new(),
    }
}
