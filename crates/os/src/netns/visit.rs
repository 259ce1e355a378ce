//! Namespaces that another process holds.

use std::fs::File;
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::fs::MetadataExt as _;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::{NamespaceError, NetNs};
use crate::process;

impl NetNs {
    /// Opens the network namespace that the process `pid` holds as its descriptor `fd`. If that
    /// process is in another user namespace, this process moves there for good: only there may it
    /// start processes in the network namespace.
    ///
    /// # Errors
    /// [`NamespaceError::SeveralThreads`], or [`NamespaceError::Io`] if the process is gone,
    /// belongs to another user, or has no such descriptor.
    pub fn visit(pid: u32, fd: i32) -> Result<Self, NamespaceError> {
        let open = |what: &'static str, path: String| File::open(path).map_err(|e| NamespaceError::io(what, e));
        let user = open("open the user namespace of the process", format!("/proc/{pid}/ns/user"))?;
        let net = open(
            "open the network namespace of the process",
            format!("/proc/{pid}/fd/{fd}"),
        )?;
        let own = open("open /proc/self/ns/user", "/proc/self/ns/user".to_owned())?;
        let inode = |file: &File| Ok::<_, io::Error>((file.metadata()?.dev(), file.metadata()?.ino()));
        let compare = |file: &File| inode(file).map_err(|e| NamespaceError::io("read a user namespace", e));
        if compare(&user)? != compare(&own)? {
            match process::thread_count() {
                Ok(1) => {}
                Ok(threads) => return Err(NamespaceError::SeveralThreads(threads)),
                Err(error) => return Err(NamespaceError::io("count the threads", error)),
            }
            move_into_link_name_space(user.as_fd(), Some(LinkNameSpaceType::User))
                .map_err(|e| NamespaceError::io("enter the user namespace of the process", e.into()))?;
        }
        Ok(Self { fd: net.into() })
    }
}
