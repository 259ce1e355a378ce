//! `weft status`: the node and its peers.

use std::time::Duration;

use weft_control::status::{NetworkList, PeerStatus, PublicStatus, Status};
use weft_control::{ControlCommand, ControlError, ErrorCode, NetworkCommand, Visible};
use weft_store::state::StatePaths;

use crate::failure::Failure;
use crate::feed::Feed;
use crate::human;
use crate::interrupt::{Interrupt, Next};
use crate::network;
use crate::output::Out;

/// The interval between two updates of the screen if nothing changes.
const REDRAW: Duration = Duration::from_secs(2);
/// The pause before an update that a change causes, so that one covers what comes together.
const SETTLE: Duration = Duration::from_millis(100);

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Print the document weft.status/1, or weft.public-status/1 for users that do not own the node
    #[arg(long)]
    json: bool,
    /// Show it again at each change, and every 2 seconds, until Ctrl-C; with --json, one document a line
    #[arg(long)]
    watch: bool,
    /// Add the counters that are not zero: what was dropped and why, back-pressure, offloads
    #[arg(long, conflicts_with = "json")]
    counters: bool,
}

pub(crate) fn run(paths: &StatePaths, args: &Args) -> Result<(), Failure> {
    let mut out = Out::new();
    if !args.watch {
        return match args.json {
            true => out.json(&weft_control::call_raw(&paths.control(), &ControlCommand::Status {})?),
            false => out.text(&table(paths, args)?),
        };
    }
    let mut interrupt = Interrupt::catch()?;
    let mut shown = false;
    let mut feed = None;
    loop {
        if args.json {
            out.json_line(&weft_control::call_raw(&paths.control(), &ControlCommand::Status {})?)?;
        } else {
            let text = match table(paths, args) {
                // A daemon that restarts is waited for, if it answered before.
                Err(error) if shown => format!("{error}\n"),
                text => text?,
            };
            out.next_page(shown)?;
            out.text(&text)?;
        }
        shown = true;
        if !pause(&mut interrupt, &mut feed, paths) {
            return Ok(());
        }
    }
}

/// Waits until there may be something new. Returns false at Ctrl-C. Without events, as of an earlier
/// daemon or while none runs, that is when the interval has passed.
fn pause(interrupt: &mut Interrupt, feed: &mut Option<Feed>, paths: &StatePaths) -> bool {
    let Some(events) = feed else {
        let Some(opened) = interrupt.open(&paths.control()) else {
            return false;
        };
        *feed = opened.ok().map(|(feed, _)| feed);
        return interrupt.pause(REDRAW);
    };
    match interrupt.next(events, Some(REDRAW)) {
        Next::Time => true,
        Next::Interrupted => false,
        Next::Event(Ok(_)) => {
            let goes_on = interrupt.pause(SETTLE);
            events.skip();
            goes_on
        }
        Next::Event(Err(_)) | Next::Ended => {
            *feed = None;
            interrupt.pause(SETTLE)
        }
    }
}

/// The lines about subnets behind peers to which packets do not go.
fn unrouted(status: &Status, width: usize) -> String {
    let of_peer = |peer: &PeerStatus| -> Vec<String> {
        let name = peer.name.as_ref().unwrap_or(&peer.npub);
        let Some(routes) = &peer.routes else { return Vec::new() };
        let each = routes.unrouted.iter().zip(&routes.obstacles);
        let line = |(subnet, why): (&String, &String)| {
            let line = format!("route {subnet} of {name} is not used: {}", human::plain(why));
            human::paragraph(&line, width)
        };
        each.map(line).collect()
    };
    status.peers.iter().flat_map(of_peer).collect()
}

fn table(paths: &StatePaths, args: &Args) -> Result<String, ControlError> {
    let width = human::width();
    let status = weft_control::call_visible(&paths.control(), &ControlCommand::Status {})?;
    let list = ControlCommand::Network(NetworkCommand::List {});
    let networks = match weft_control::call(&paths.control(), &list) {
        // An earlier daemon, which shows them to its owners alone.
        Err(ControlError::Refused(refusal)) if refusal.code == ErrorCode::Forbidden => NetworkList::none(),
        networks => networks?,
    };
    let (mut text, counters) = match status {
        Visible::Full::<Status, PublicStatus>(status) => (
            human::status(&status, &networks, width) + &unrouted(&status, width) + &network::hints(&networks, width),
            status.counters,
        ),
        Visible::Public(status) => (human::public_status(&status, &networks, width), status.counters),
    };
    if args.counters {
        text += &human::counters(&counters, width);
    }
    Ok(text)
}
