//! The user and the groups of the process at the other end of a Unix socket.

use std::io;
use std::os::fd::AsFd;

use crate::syscall;

/// Room for the groups of nearly every process.
const USUAL: usize = 64;
/// The largest number of groups that a process has: `NGROUPS_MAX` (`linux/limits.h`).
const MOST: usize = 65_536;

/// The effective user that the process at the other end of a connected Unix socket had when it connected
/// (`SO_PEERCRED`). One that the user namespace of this process lacks is the overflow id.
///
/// # Errors
/// If the system does not say it: the socket is not a connected Unix socket.
pub fn peer_uid(socket: impl AsFd) -> io::Result<u32> {
    let [_, uid, _] = credentials(&socket)?;
    Ok(uid)
}

/// The process at the other end of a connected Unix socket: the one that connected, or that listens. It may have ended
/// since.
///
/// # Errors
/// As [`peer_uid`]; `NotFound` for a process of another namespace.
pub fn peer_pid(socket: impl AsFd) -> io::Result<u32> {
    match credentials(&socket)? {
        [0, ..] => Err(io::ErrorKind::NotFound.into()),
        [pid, ..] => Ok(pid),
    }
}

/// pid, uid and gid of `struct ucred` (`linux/socket.h`). The pid is 0 for a process of another namespace.
fn credentials(socket: &impl AsFd) -> io::Result<[u32; 3]> {
    let mut bytes = [0; 12];
    let len = syscall::option_bytes(socket.as_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED, &mut bytes)?;
    match (len, bytes.as_chunks().0) {
        // A socket that is not connected has the user -1.
        (12, &[pid, uid, gid]) if uid != [0xff; 4] => Ok([pid, uid, gid].map(u32::from_ne_bytes)),
        _ => Err(io::ErrorKind::NotConnected.into()),
    }
}

/// The supplementary groups that the process at the other end of a connected Unix socket had when
/// it connected (`SO_PEERGROUPS`, Linux 4.13). Its effective group is not among them unless it is
/// listed there, too. A group that the user namespace of this process lacks is the overflow id.
///
/// # Errors
/// If the socket is not a connected Unix socket.
pub fn peer_groups(socket: impl AsFd) -> io::Result<Vec<u32>> {
    let groups = |room: usize| -> io::Result<Vec<u32>> {
        let mut bytes = vec![0; room * size_of::<u32>()];
        let len = syscall::option_bytes(socket.as_fd(), libc::SOL_SOCKET, libc::SO_PEERGROUPS, &mut bytes)?;
        bytes.truncate(len);
        let (ids, _) = bytes.as_chunks();
        Ok(ids.iter().copied().map(u32::from_ne_bytes).collect())
    };
    match groups(USUAL) {
        Err(error) if error.raw_os_error() == Some(libc::ERANGE) => groups(MOST),
        groups => groups,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use rustix::fs::Gid;
    use rustix::process::getgroups;

    use super::*;

    #[test]
    fn the_user_and_the_number_of_this_process() {
        let (near, _far) = UnixStream::pair().unwrap();
        assert_eq!(peer_pid(&near).unwrap(), std::process::id());
        assert_eq!(peer_uid(near).unwrap(), rustix::process::geteuid().as_raw());
        let unconnected = rustix::net::socket(rustix::net::AddressFamily::UNIX, rustix::net::SocketType::STREAM, None);
        assert!(peer_uid(unconnected.unwrap()).is_err());
    }

    #[test]
    fn the_groups_of_this_process() {
        let (near, _far) = UnixStream::pair().unwrap();
        let own: Vec<u32> = getgroups().unwrap().into_iter().map(Gid::as_raw).collect();
        assert_eq!(peer_groups(near).unwrap(), own);
    }

    #[test]
    fn a_socket_of_another_kind_has_none() {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        assert!(peer_groups(socket).unwrap_or_default().is_empty());
    }
}
