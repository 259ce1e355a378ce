//! Addresses of machines on the command line: the port may be left out, host names are looked up, and those inside the
//! mesh are refused.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};

use weft_config::host_name::{BadPeerAddress, PeerAddress};
use weft_control::ControlCommand;
use weft_control::status::Status;
use weft_desired::addresses::is_inside;
use weft_host::surroundings::Surroundings;
use weft_networks::reserved::of_mesh;
use weft_os::netlink::Netlink;
use weft_store::state::StatePaths;

use crate::failure::Failure;

/// The addresses of a host name that are taken, at most.
const TAKEN: usize = 4;

/// Reads an address of the command line.
pub(crate) fn address(text: &str) -> Result<PeerAddress, BadPeerAddress> {
    PeerAddress::of_command(text)
}

/// Refuses addresses inside the mesh: links come about outside of it.
///
/// # Errors
/// One of them is inside.
pub(crate) fn refuse_inside(paths: &StatePaths, addresses: impl IntoIterator<Item = IpAddr>) -> Result<(), Failure> {
    let mut addresses = addresses.into_iter().peekable();
    if addresses.peek().is_none() {
        return Ok(());
    }
    let (surroundings, own) = surroundings(paths);
    match addresses.find(|address| is_inside(*address, &surroundings, own)) {
        None => Ok(()),
        Some(inside) => Err(Failure::Usage(format!(
            "{inside} is an address inside the mesh, which leads only to nodes that are connected already; give one that \
             the machine has outside of it: `weft identity show` there names one"
        ))),
    }
}

/// Returns the addresses of this host, its routes to ranges of the mesh, and the index of weft's interface; 0 if no
/// daemon runs. What cannot be read is left out.
fn surroundings(paths: &StatePaths) -> (Surroundings, u32) {
    let Ok(mut netlink) = Netlink::open() else {
        return (Surroundings::default(), 0);
    };
    let status = weft_control::call::<Status>(&paths.control(), &ControlCommand::Status {});
    let own = status
        .ok()
        .and_then(|status| netlink.interface(&status.node.tun.name).ok());
    let read = Surroundings::read(&mut netlink, &of_mesh().collect());
    (read.unwrap_or_default(), own.map_or(0, |own| own.index))
}

/// Looks up what the host names among `addresses` have at present.
///
/// # Errors
/// A name has no address, or an address is inside the mesh.
pub(crate) fn look_up(paths: &StatePaths, addresses: Vec<PeerAddress>) -> Result<Vec<SocketAddr>, Failure> {
    let mut found = Vec::new();
    for address in addresses {
        match address {
            PeerAddress::At(at) => found.push(at),
            PeerAddress::Named { host, port } => {
                let none = |why: String| {
                    let what = "write an IP address, as 203.0.113.7:2121";
                    Failure::Usage(format!("{host} has no address here ({why}); {what}"))
                };
                let known = (host.as_str(), port).to_socket_addrs();
                let known: Vec<SocketAddr> = known.map_err(|error| none(error.to_string()))?.take(TAKEN).collect();
                if known.is_empty() {
                    return Err(none("none is known".to_owned()));
                }
                found.extend(known);
            }
        }
    }
    refuse_inside(paths, found.iter().map(SocketAddr::ip))?;
    Ok(found)
}
