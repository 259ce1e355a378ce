//! The nodes that a user names, as the daemon knows them.

use std::path::Path;

use weft_config::peer::NodeRef;
use weft_control::status::{Whois, WhoisNode};
use weft_control::{ControlCommand, ControlError, ErrorCode};

use super::verbs::refuse;
use crate::api::{Refusal, RefusalCode};
use crate::audience::{Audience, Party};
use crate::names::display;

/// Finds the one node that a name stands for.
pub(super) fn one(control: &Path, name: &str) -> Result<WhoisNode, Refusal> {
    let refused = |message: String| refuse(RefusalCode::Daemon, message);
    let shown = display(name.as_bytes());
    let node: NodeRef = name
        .parse()
        .map_err(|error| refuse(RefusalCode::BadRequest, format!("{shown} names no peer: {error}")))?;
    let whois: Whois = weft_control::call(control, &ControlCommand::Whois { node })
        .map_err(|error| refused(format!("{error}; nothing was changed")))?;
    match <[WhoisNode; 1]>::try_from(whois.nodes) {
        Ok([node]) if node.own => Err(refused(format!("{shown} is this node itself"))),
        Ok([node]) if node.subnet.is_some() => {
            Err(refused(format!("{shown} is an address behind a node, and no node")))
        }
        Ok([node]) => Ok(node),
        Err(_) => Err(refused(format!(
            "{shown} is the name of several nodes; write it as NAME.NETWORK.weft"
        ))),
    }
}

/// Finds the node that an address or a key is of; `None` if it is of none, or of this one. A host behind a node is none.
///
/// # Errors
/// Why that is not known at present, in words.
pub(super) fn known(control: &Path, node: NodeRef) -> Result<Option<WhoisNode>, String> {
    match weft_control::call::<Whois>(control, &ControlCommand::Whois { node }) {
        Ok(whois) => {
            let found = <[WhoisNode; 1]>::try_from(whois.nodes).ok();
            Ok(found.and_then(|[node]| (!node.own && node.subnet.is_none()).then_some(node)))
        }
        Err(ControlError::Refused(refusal)) if refusal.code == ErrorCode::UnknownPeer => Ok(None),
        Err(error) => Err(error.to_string()),
    }
}

/// Finds the keys of the members of an audience.
pub(super) fn audience(control: &Path, to: Vec<Party>) -> Result<Audience, Refusal> {
    let with_key = |party| match party {
        Party::Member { name, .. } => one(control, &name).map(|node| Party::Member {
            name,
            npub: Some(node.npub),
        }),
        party => Ok(party),
    };
    Ok(Audience(to.into_iter().map(with_key).collect::<Result<_, _>>()?))
}
