//! Network namespaces for the demo, the lab and the tests.
//!
//! A [`NetNs`] is held by a descriptor and has no name, so everything in it (interfaces, routes) is gone
//! when the last descriptor, thread and process in it is gone: also after SIGKILL. Root needs nothing
//! else; other users first [`enter`] a user namespace, in which they may do to their own network
//! namespaces what root may.

mod spawn;
mod user;
mod visit;

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::process::{Child, Command};
use std::thread;

pub use self::user::{Access, enter, probe};
pub(crate) use self::user::{IdMaps, enter_user_namespace};
use crate::netlink::{Netlink, NetlinkError};
use crate::syscall;

/// A network namespace without a name.
#[derive(Debug)]
pub struct NetNs {
    fd: OwnedFd,
}

/// True if this process has the network namespace of process 1, which is that of the system's services. False also where
/// that cannot be told: it takes root, or process 1 without more rights than this one.
#[must_use]
pub fn is_init_namespace() -> bool {
    let identity = |path| std::fs::metadata(path).map(|file| (file.dev(), file.ino()));
    match (identity("/proc/1/ns/net"), identity("/proc/thread-self/ns/net")) {
        (Ok(init), Ok(own)) => init == own,
        _ => false,
    }
}

impl NetNs {
    /// Makes a namespace in which only the loopback interface exists, and is up.
    ///
    /// # Errors
    /// [`NamespaceError`]; call [`enter`] first to learn early, and in words, why it cannot work.
    pub fn new() -> Result<Self, NamespaceError> {
        // Namespaces belong to threads: one of its own keeps the caller where it is.
        on_new_thread(|| {
            user::new_net_namespace().map_err(user::explain_net)?;
            let mut netlink = Netlink::open()?;
            let loopback = netlink.interface("lo")?;
            netlink.set_up(loopback.index)?;
            Self::current()
        })?
    }

    /// The namespace of the calling thread.
    ///
    /// # Errors
    /// [`NamespaceError::Io`] without `/proc`.
    pub fn current() -> Result<Self, NamespaceError> {
        let file = File::open("/proc/thread-self/ns/net")
            .map_err(|source| NamespaceError::io("open /proc/thread-self/ns/net", source))?;
        Ok(Self { fd: file.into() })
    }

    /// A second handle on the same namespace.
    ///
    /// # Errors
    /// When the process has no descriptors left.
    pub fn try_clone(&self) -> io::Result<Self> {
        let fd = self.fd.try_clone()?;
        Ok(Self { fd })
    }

    /// Runs `work` on a new thread inside the namespace and waits for it. Sockets and TUN interfaces
    /// made there belong to the namespace for ever; threads started there begin in it. A panic passes
    /// through.
    ///
    /// # Errors
    /// [`NamespaceError`] if the thread cannot be made or may not enter.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, NamespaceError> {
        on_new_thread(|| {
            self.join()
                .map_err(|source| NamespaceError::io("enter the namespace", source))?;
            Ok(work())
        })?
    }

    /// A netlink connection to the namespace, for use from any thread.
    ///
    /// # Errors
    /// As [`NetNs::run`].
    pub fn netlink(&self) -> Result<Netlink, NamespaceError> {
        Ok(self.run(Netlink::open)??)
    }

    /// Starts a process inside the namespace. It is killed when this process ends, however it ends;
    /// its own children are not.
    ///
    /// # Errors
    /// As [`Command::spawn`].
    pub fn spawn(&self, command: &mut Command) -> io::Result<Child> {
        spawn::spawn_inside(self.try_clone()?, command)
    }

    /// Moves the calling thread into the namespace. Makes one system call and allocates nothing, so it
    /// may run between fork and exec.
    fn join(&self) -> io::Result<()> {
        // SAFETY: no pointers are passed, and only this thread changes.
        syscall::check(unsafe { libc::setns(self.fd.as_raw_fd(), libc::CLONE_NEWNET) })?;
        Ok(())
    }
}

impl AsFd for NetNs {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Why there is no namespace.
#[derive(Debug, thiserror::Error)]
pub enum NamespaceError {
    /// The system lets only root make user namespaces.
    #[error(
        "user namespaces are for root only here: set the sysctl kernel.unprivileged_userns_clone to 1, or run as root"
    )]
    UsersDisabled,
    /// The number of user namespaces is used up, or set to 0.
    #[error("no user namespace is left: raise the sysctl user.max_user_namespaces, or run as root")]
    UserLimit,
    /// The number of network namespaces is used up, or set to 0.
    #[error("no network namespace is left: raise the sysctl user.max_net_namespaces")]
    NetLimit,
    /// AppArmor takes the rights away from user namespaces.
    #[error(
        "AppArmor restricts user namespaces: set the sysctl kernel.apparmor_restrict_unprivileged_userns to 0, or run as root"
    )]
    AppArmor,
    /// The kernel was built without them.
    #[error("this kernel has no {0} namespaces")]
    NoKernelSupport(&'static str),
    /// A user namespace can only be entered before the process starts threads.
    #[error("a user namespace can only be entered by a process with one thread; this one has {0}")]
    SeveralThreads(usize),
    /// Something else forbids it: a container's system call filter, a security module.
    #[error("the system forbids namespaces: a container needs --privileged, or run as root outside of it")]
    Forbidden(#[source] io::Error),
    /// The loopback interface could not be brought up.
    #[error("the namespace could not be set up")]
    Netlink(#[from] NetlinkError),
    /// A system call failed.
    #[error("could not {what}")]
    Io {
        /// What was tried.
        what: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

impl NamespaceError {
    fn io(what: &'static str, source: io::Error) -> Self {
        Self::Io { what, source }
    }
}

fn on_new_thread<T: Send>(work: impl FnOnce() -> T + Send) -> Result<T, NamespaceError> {
    thread::scope(|scope| {
        let thread = thread::Builder::new()
            .name("netns".to_owned())
            .spawn_scoped(scope, work)
            .map_err(|source| NamespaceError::io("start a thread", source))?;
        thread.join().map_err(|panic| std::panic::resume_unwind(panic))
    })
}
