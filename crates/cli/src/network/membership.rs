//! Membership without an invite: `join --ask`, `requests`, `approve`, `deny`.

use std::net::SocketAddr;
use std::time::Duration;

use weft_config::peer::NodeRef;
use weft_control::status::RequestList;
use weft_control::{ControlCommand, NetworkCommand};
use weft_noise::PublicKey;
use weft_nvpn::join::{JoinLink, SCHEME};
use weft_store::state::StatePaths;

use super::text::Wanted;
use super::waiting::{Waiting, in_one_line};
use super::{Of, ask, carry_out, period, text, wait_for_membership, with_daemon_or_document};
use crate::failure::Failure;
use crate::output::{answer, tell};
use crate::start::Place;

/// How long `join --ask` waits for a decision: a person makes it.
const DECISION: Duration = Duration::from_secs(600);

#[derive(Debug, clap::Args)]
pub(crate) struct RequestsArgs {
    /// Accept requests of unknown nodes for this time, as 10m, 2h: up to 24 hours
    #[arg(long, value_name = "TIME", value_parser = accepted, conflicts_with = "close")]
    accept: Option<u32>,
    /// Accept no further requests
    #[arg(long)]
    close: bool,
    /// Print the document weft.requests/1
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ApproveArgs {
    /// The node's npub, as `weft requests` shows it, or the link that an nvpn device shows
    #[arg(value_name = "NODE", value_parser = approved)]
    node: String,
    /// The node is an nvpn device that was told the network's identifier and this node's npub by hand
    #[arg(long)]
    nvpn: bool,
    /// Its name [default: the one that it would like]
    #[arg(long)]
    name: Option<String>,
    /// A tag that it gets; several times for several tags
    #[arg(long, value_name = "TAG", value_parser = super::tag)]
    tag: Vec<String>,
    #[command(flatten)]
    of: Of,
}

#[derive(Debug, clap::Args)]
pub(crate) struct DenyArgs {
    /// The node's npub, as `weft requests` shows it
    node: NodeRef,
    /// Print the document weft.requests/1
    #[arg(long)]
    json: bool,
}

/// Asks an administrator, and waits until its owner has decided.
pub(super) fn ask_admin(
    place: &Place,
    admin: PublicKey,
    addresses: Vec<SocketAddr>,
    wanted: Wanted,
) -> Result<(), Failure> {
    let command = NetworkCommand::Ask {
        admin: admin.to_string(),
        addresses,
        host: wanted.name.clone(),
    };
    with_daemon_or_document(place, "join", wanted.json, move |paths| {
        ask(paths, command)?;
        let requests = ControlCommand::Network(NetworkCommand::Requests { accept_s: None });
        let asking = text::asking(&admin, &weft_control::call(&paths.control(), &requests)?);
        tell(wanted.json, &asking)?;
        wait_for_decision(paths, &admin.to_string(), &wanted)
    })
}

fn wait_for_decision(paths: &StatePaths, admin: &str, wanted: &Wanted) -> Result<(), Failure> {
    let mut waiting = Waiting::begin(paths, wanted.json)?;
    loop {
        let all = waiting.ask(paths, NetworkCommand::List {})?;
        let Some(asked) = all.asked.into_iter().find(|asked| asked.npub == admin) else {
            return Err(Failure::Refused("the request has ended; ask again".to_owned()));
        };
        if let Some(network) = asked.network {
            waiting.begin_next();
            return wait_for_membership(paths, network, wanted, waiting);
        }
        if asked.refused {
            return Err(Failure::Refused(asked.why));
        }
        if !waiting.goes_on(&asked.asked_at, &asked.why, DECISION)? {
            return Err(Failure::Join(in_one_line(&asked.why, &asked.asked_at)));
        }
    }
}

pub(crate) fn requests(paths: &StatePaths, args: &RequestsArgs) -> Result<(), Failure> {
    let accept_s = args.accept.or(args.close.then_some(0));
    let command = ControlCommand::Network(NetworkCommand::Requests { accept_s });
    answer(paths, &command, args.json, text::requests)
}

pub(crate) fn approve(paths: &StatePaths, args: ApproveArgs) -> Result<(), Failure> {
    let node = args.node;
    let npub = JoinLink::read(&node).map_or_else(|_| node.clone(), |link| link.device.to_string());
    let command = NetworkCommand::Approve {
        network: args.of.network,
        node,
        nvpn: args.nvpn,
        name: args.name,
        tags: args.tag,
    };
    carry_out(paths, command, args.of.json, |approved| {
        text::approved(approved.networks.first(), &npub)
    })
}

pub(crate) fn deny(paths: &StatePaths, args: &DenyArgs) -> Result<(), Failure> {
    let command = NetworkCommand::Deny {
        node: args.node.to_string(),
    };
    answer(
        paths,
        &ControlCommand::Network(command),
        args.json,
        |_: &RequestList| "denied\n".to_owned(),
    )
}

/// Reads an npub, a name, or the link of an nvpn device. The daemon reads the rest of a link.
fn approved(text: &str) -> Result<String, String> {
    match text.trim() {
        link if link.starts_with(SCHEME) => Ok(link.to_owned()),
        node => node
            .parse()
            .map(|node: NodeRef| node.to_string())
            .map_err(|error| error.to_string()),
    }
}

/// Reads 10m or 2h: 1 minute to 24 hours.
fn accepted(text: &str) -> Result<u32, String> {
    period(text, weft_control::MAX_ACCEPTED_S)
        .ok_or_else(|| "write a number of minutes or hours, as 10m or 2h, up to 24h".to_owned())
}
