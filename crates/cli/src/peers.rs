//! `weft peers`: the peers and the neighbours that are not configured, or one peer in detail.

use weft_config::peer::NodeRef;
use weft_control::status::{Peers, PublicPeers};
use weft_control::{ControlCommand, Visible};
use weft_store::state::StatePaths;

use crate::failure::Failure;
use crate::human;
use crate::output::Out;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// One peer: its name, NAME.fips, NAME.NETWORK.weft, npub or address
    #[arg(value_parser = NodeRef::of_node)]
    peer: Option<NodeRef>,
    /// Print the document weft.peers/1, or weft.public-peers/1 for users that do not own the node
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(paths: &StatePaths, args: Args) -> Result<(), Failure> {
    let one = args.peer.is_some();
    let command = ControlCommand::Peers { peer: args.peer };
    let mut out = Out::new();
    if args.json {
        return out.json(&weft_control::call_raw(&paths.control(), &command)?);
    }
    let width = human::width();
    match weft_control::call_visible(&paths.control(), &command)? {
        Visible::Full::<Peers, PublicPeers>(peers) => match &peers.peers[..] {
            [peer] if one => out.text(&human::peer(peer, width)),
            _ => out.text(&human::peers(&peers, width)),
        },
        Visible::Public(peers) => out.text(&human::public_peers(&peers, width)),
    }
}
