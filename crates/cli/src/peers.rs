//! `weft peers`: the peers and the neighbours that are not configured, or one peer in detail.

use weft_node::control::{self, ControlCommand};
use weft_node::peer::PeerRef;
use weft_node::state::StatePaths;
use weft_node::status::Peers;

use crate::failure::Failure;
use crate::human;
use crate::output::Out;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// One peer: its npub, name, NAME.fips or fd00 address
    peer: Option<PeerRef>,
    /// Print the document weft.peers/1
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(paths: &StatePaths, args: Args) -> Result<(), Failure> {
    let one = args.peer.is_some();
    let command = ControlCommand::Peers { peer: args.peer };
    let mut out = Out::new();
    if args.json {
        return out.json(&control::call_raw(&paths.control(), &command)?);
    }
    let peers: Peers = control::call(&paths.control(), &command)?;
    match &peers.peers[..] {
        [peer] if one => out.text(&human::peer(peer, human::width())),
        _ => out.text(&human::peers(&peers, human::width())),
    }
}
