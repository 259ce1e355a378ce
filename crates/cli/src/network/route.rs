//! Commands about routes of networks: `routes`, `route approve` and `route revoke`.

use std::net::IpAddr;

use weft_control::NetworkCommand;
use weft_control::status::{MemberRouteStatus, NetworkList};
use weft_networks::RouteChange;
use weft_store::state::StatePaths;

use super::{ListArgs, Of, carry_out, show, text};
use crate::failure::Failure;
use crate::human;

#[derive(Debug, clap::Subcommand)]
pub(crate) enum RouteAction {
    /// Let members reach a subnet behind a member that offers it, or make it an exit
    Approve(RouteArgs),
    /// Let members reach a subnet behind a member no longer, or use it as exit
    Revoke(RouteArgs),
}

#[derive(Debug, clap::Args)]
pub(crate) struct RouteArgs {
    /// The member: its name, NAME.NETWORK.weft, npub or address
    member: String,
    /// The subnet, as 192.168.7.0/24, or exit
    #[arg(value_parser = subnet)]
    subnet: String,
    #[command(flatten)]
    of: Of,
}

pub(crate) fn routes(paths: &StatePaths, args: &ListArgs) -> Result<(), Failure> {
    show(paths, args, table)
}

pub(crate) fn route(paths: &StatePaths, action: RouteAction) -> Result<(), Failure> {
    let (args, change, done) = match action {
        RouteAction::Approve(args) => (args, RouteChange::Approve, "approved"),
        RouteAction::Revoke(args) => (args, RouteChange::Revoke, "revoked"),
    };
    let text = match &*args.subnet {
        "exit" | "0.0.0.0/0" | "::/0" => format!("{} as exit: {done}\n", human::plain(&args.member)),
        subnet => format!("{subnet} behind {}: {done}\n", human::plain(&args.member)),
    };
    let command = NetworkCommand::Route {
        network: args.of.network,
        member: args.member,
        subnet: args.subnet,
        change,
    };
    carry_out(paths, command, args.of.json, |_| text)
}

/// What `routes` prints.
fn table(list: &NetworkList, width: usize) -> String {
    if list.networks.is_empty() {
        return text::networks(list, width);
    }
    let routes = list.networks.iter().flat_map(|network| &network.routes);
    let column = |of: fn(&MemberRouteStatus) -> usize| routes.clone().map(of).max().unwrap_or(0);
    let (first, second) = (
        column(|route| subject(route).len()),
        column(|route| member(route).len()),
    );
    let line = |route: &MemberRouteStatus| {
        let state = if route.approved { "approved" } else { "offered" };
        format!(
            "{:<first$}  {:<second$}  {state:<8}  {}\n",
            subject(route),
            member(route),
            human::plain(&route.why)
        )
    };
    let lines: String = routes.clone().map(line).collect();
    match lines.is_empty() {
        true => "No route. `weft set --advertise-route` offers a subnet behind this machine.\n".to_owned(),
        false => lines,
    }
}

/// What is behind the member.
fn subject(route: &MemberRouteStatus) -> &str {
    match (route.exit, &*route.subnet) {
        (true, "::/0") => "exit, IPv6",
        (true, _) => "exit, IPv4",
        (false, subnet) => subnet,
    }
}

fn member(route: &MemberRouteStatus) -> &str {
    route.name.as_deref().unwrap_or(&route.npub)
}

/// Reads a subnet. Which of them can be routes is the daemon's decision.
fn subnet(text: &str) -> Result<String, String> {
    let parts = text.split_once('/');
    let whole = parts.is_some_and(|(address, len)| address.parse::<IpAddr>().is_ok() && len.parse::<u8>().is_ok());
    match whole || text == "exit" {
        true => Ok(text.to_owned()),
        false => Err("write an address and the length of its prefix, as 192.168.7.0/24, or exit".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subnets_have_a_prefix_length() {
        for text in ["192.168.7.0/24", "2001:db8::/48", "exit"] {
            assert_eq!(subnet(text), Ok(text.to_owned()));
        }
        for text in ["", "192.168.7.0", "192.168.7.0/", "192.168.7.0/x", "lan/24", "/24"] {
            assert!(subnet(text).is_err(), "{text}");
        }
    }
}
