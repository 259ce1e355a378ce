//! `weft whois`: the node that an address, a name or a key belongs to.

use weft_config::peer::NodeRef;
use weft_control::ControlCommand;
use weft_control::status::{Whois, WhoisNetwork, WhoisNode};
use weft_store::state::StatePaths;

use crate::failure::Failure;
use crate::human;
use crate::output::Out;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// An IPv4 or IPv6 address, a name (NAME, NAME.fips, NAME.NETWORK.weft) or an npub
    node: NodeRef,
    /// Print the document weft.whois/1
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(paths: &StatePaths, args: Args) -> Result<(), Failure> {
    let command = ControlCommand::Whois { node: args.node };
    let mut out = Out::new();
    if args.json {
        return out.json(&weft_control::call_raw(&paths.control(), &command)?);
    }
    let whois: Whois = weft_control::call(&paths.control(), &command)?;
    out.text(&human::columns(&lines(&whois), human::width()))
}

/// The lines of all nodes, an empty one between two.
fn lines(whois: &Whois) -> Vec<(&'static str, String)> {
    let nodes = whois.nodes.iter().enumerate();
    nodes
        .flat_map(|(number, node)| {
            let gap = (number > 0).then(|| ("", String::new()));
            gap.into_iter().chain(node_lines(node))
        })
        .collect()
}

fn node_lines(node: &WhoisNode) -> Vec<(&'static str, String)> {
    let mut lines = vec![
        ("name", node.name.clone().unwrap_or_else(|| "-".to_owned())),
        ("npub", node.npub.clone()),
        ("address", node.address.to_string()),
    ];
    if let Some(subnet) = &node.subnet {
        lines.push(("behind it", format!("{subnet}, which has the address")));
    }
    lines.extend(node.networks.iter().map(|network| ("member", member(network))));
    match (node.own, node.configured) {
        (true, _) => lines.push(("known", "this node".to_owned())),
        (false, true) => lines.push(("known", "a peer of the configuration".to_owned())),
        (false, false) => {}
    }
    lines
}

fn member(network: &WhoisNetwork) -> String {
    let of = network.network.as_deref().unwrap_or(&network.id);
    let name = network.name.as_ref().map(|name| format!(" as {name}"));
    let ipv4 = network.ipv4.map(|ipv4| format!(", {ipv4}"));
    let admin = if network.admin { ", administrator" } else { "" };
    format!("of {of}{}{}{admin}", name.unwrap_or_default(), ipv4.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn says_how_a_node_is_known() {
        let whois: Whois = serde_json::from_value(json!({
            "schema": "weft.whois/1", "query": "10.8.7.5", "nodes": [{
                "npub": "npub1x", "name": "a\u{1b}[2Jb", "address": "fd00::1", "own": false, "configured": true,
                "subnet": "10.8.7.0/24",
                "networks": [{"id": "00", "network": "home", "name": "nas", "ipv4": "10.1.2.3", "admin": true}]
            }, {
                "npub": "npub1y", "name": null, "address": "fd00::2", "own": true, "configured": false,
                "subnet": null, "networks": []
            }]
        }))
        .unwrap();
        assert_eq!(
            human::columns(&lines(&whois), 100),
            "name       a?[2Jb\n\
             npub       npub1x\n\
             address    fd00::1\n\
             behind it  10.8.7.0/24, which has the address\n\
             member     of home as nas, 10.1.2.3, administrator\n\
             known      a peer of the configuration\n\
             \n\
             name       -\n\
             npub       npub1y\n\
             address    fd00::2\n\
             known      this node\n"
        );
    }
}
