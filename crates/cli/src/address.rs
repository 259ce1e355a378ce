//! Addresses of machines on the command line: the port may be left out, and host names are looked up.

use std::net::{SocketAddr, ToSocketAddrs as _};

use weft_config::host_name::{BadPeerAddress, PeerAddress};

use crate::failure::Failure;

/// The addresses of a host name that are taken, at most.
const TAKEN: usize = 4;

/// Reads an address of the command line.
pub(crate) fn address(text: &str) -> Result<PeerAddress, BadPeerAddress> {
    PeerAddress::of_command(text)
}

/// Looks up what the host names among `addresses` have at present.
///
/// # Errors
/// A name has no address.
pub(crate) fn look_up(addresses: Vec<PeerAddress>) -> Result<Vec<SocketAddr>, Failure> {
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
    Ok(found)
}
