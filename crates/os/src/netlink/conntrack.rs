//! The connections that the kernel tracks, for its firewall and its NAT.

use std::fs::File;
use std::io::{self, Read as _, Write as _};

use netlink_packet_core::{NLM_F_ACK, NLM_F_REQUEST};
use rustix::net::{AddressFamily, SocketFlags, SocketType, netlink, socket_with};

use super::NetlinkError;

/// Header, and `struct nfgenmsg` (`linux/netfilter/nfnetlink.h`): address family, version, resource.
const REQUEST_LEN: u32 = 16 + 4;
/// `NFNL_SUBSYS_CTNETLINK` and `IPCTNL_MSG_CT_DELETE` of `linux/netfilter/nfnetlink_conntrack.h`.
const DELETE: u16 = (1 << 8) | 2;

/// Deletes all tracked connections of the network namespace of the calling thread: a message that
/// names none means all. It needs the capability CAP_NET_ADMIN there.
///
/// # Errors
/// [`NetlinkError::Io`] if the system returns no netlink socket; the others if the kernel refuses the
/// request, as without connection tracking.
pub fn flush_connections() -> Result<(), NetlinkError> {
    const WHAT: &str = "delete the tracked connections";
    let protocol = Some(netlink::NETFILTER);
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, protocol);
    let mut socket = File::from(socket.map_err(|error| NetlinkError::Io(error.into()))?);
    let mut request = REQUEST_LEN.to_ne_bytes().to_vec();
    request.extend(DELETE.to_ne_bytes());
    request.extend((NLM_F_REQUEST | NLM_F_ACK).to_ne_bytes());
    // Sequence, port, and a family of 0: all.
    request.resize(REQUEST_LEN as usize, 0);
    socket.write_all(&request).map_err(NetlinkError::Io)?;
    let mut answer = [0; 64];
    let len = socket.read(&mut answer).map_err(NetlinkError::Io)?;
    // NLMSG_ERROR: a header, and the negated error, 0 for success (netlink(7)).
    let error = answer
        .get(..len)
        .and_then(|answer| answer.get(16..)?.first_chunk::<4>());
    match error.map(|error| i32::from_ne_bytes(*error)) {
        Some(0) => Ok(()),
        Some(error) => {
            let error = io::Error::from_raw_os_error(error.saturating_neg());
            Err(NetlinkError::refused(WHAT, error))
        }
        None => Err(NetlinkError::Io(io::ErrorKind::UnexpectedEof.into())),
    }
}
