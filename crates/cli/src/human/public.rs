//! The documents for all users as text.

use weft_control::status::{NetworkList, PublicNode, PublicPath, PublicPeer, PublicPeers, PublicStatus, Traffic};

use super::own::put_networks;
use super::words::{Page, bytes, duration, milliseconds};
use super::{BELOW, name};

/// The line below what users see who do not own the daemon.
const HINT: &str = "Addresses and reasons are for the owners of the node: sudo, or its operator (control.operator).";

/// This machine in its networks, the node, and a table of its peers.
pub(crate) fn public_status(status: &PublicStatus, networks: &NetworkList, width: usize) -> String {
    let mut page = Page::new(width);
    let node = &status.node;
    put_networks(&mut page, networks);
    for line in [
        node.npub.clone(),
        format!("{} on {}, MTU {}", node.address, node.interface, node.mtu),
        program(node),
    ] {
        page.line(7, &line);
    }
    page.empty_line();
    put_peers(&mut page, &status.peers);
    page.into_text()
}

/// The version of the daemon, how long it has run, and what it takes up.
pub(super) fn program(node: &PublicNode) -> String {
    format!(
        "weft {} ({}), up {}, memory {}, processor {:.1} s",
        node.version,
        node.commit,
        duration(node.uptime_s),
        bytes(node.rss_bytes),
        node.cpu_s
    )
}

/// The peers.
pub(crate) fn public_peers(peers: &PublicPeers, width: usize) -> String {
    let mut page = Page::new(width);
    put_peers(&mut page, &peers.peers);
    page.into_text()
}

/// A line for each peer, and what is not shown.
fn put_peers(page: &mut Page, peers: &[PublicPeer]) {
    if peers.is_empty() {
        page.line(0, "No peers.");
    } else {
        page.line(0, &super::row(["PEER", "STATE", "SINCE", "RTT", "IN", "OUT"]));
    }
    let mut peers: Vec<&PublicPeer> = peers.iter().collect();
    peers.sort_by_key(|peer| (peer.name.is_none(), peer.name.as_deref()));
    for peer in peers {
        page.line(BELOW, &row(peer));
        page.line(BELOW, &format!("    {}", peer.path.map_or("no path", PublicPath::name)));
    }
    page.empty_line();
    page.line(0, HINT);
}

/// The figures of a peer.
pub(super) fn row(peer: &PublicPeer) -> String {
    let amount = |traffic: Option<Traffic>| traffic.map_or_else(|| "-".to_owned(), |traffic| bytes(traffic.bytes));
    super::row([
        &name(peer.name.as_deref(), &peer.npub),
        peer.standing.name(),
        &duration(peer.online_s.unwrap_or(peer.standing_s)),
        &peer.rtt_ms.map_or_else(|| "-".to_owned(), milliseconds),
        &amount(peer.rx),
        &amount(peer.tx),
    ])
}
