//! Network namespaces for the demo, the lab and the tests.
//!
//! A [`NetNs`] is held by a descriptor and has no name, so everything in it (interfaces, routes) is
//! removed with the last descriptor, thread and process in it, also after SIGKILL. Root needs
//! nothing else; other users first [`enter`] a user namespace, in which they have root's rights
//! over their own network namespaces.

mod spawn;
mod user;
mod visit;

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::process::{Child, Command};
use std::thread;

use rand_core::TryRng as _;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

pub use self::user::{Access, enter, probe};
pub(crate) use self::user::{IdMaps, enter_user_namespace};
use crate::netlink::{Netlink, NetlinkError};
use crate::random::SystemRng;

/// A network namespace without a name.
#[derive(Debug)]
pub struct NetNs {
    fd: OwnedFd,
}

/// Whether the calling thread is in the network namespace of process 1, which is that of the
/// system's services. Also false if that cannot be determined, because this process may not see
/// process 1 in /proc.
///
/// A service may not read `/proc/1/ns/net`, because process 1 has more rights than it. The list of
/// the Unix sockets in a namespace is open to all processes, so the thread binds one with a random
/// name and looks for it in the list of process 1.
#[must_use]
pub fn is_init_namespace() -> bool {
    let mut random = [0; 16];
    let Ok(()) = SystemRng.try_fill_bytes(&mut random);
    let name = format!("weft-namespace-{:032x}", u128::from_ne_bytes(random));
    let sockets = || -> io::Result<String> {
        let address = SocketAddr::from_abstract_name(&name)?;
        let _bound = UnixDatagram::bind_addr(&address)?;
        let sockets = std::fs::read("/proc/1/net/unix")?;
        Ok(String::from_utf8_lossy(&sockets).into_owned())
    };
    let listed = format!("@{name}");
    sockets().is_ok_and(|sockets| sockets.lines().any(|socket| socket.ends_with(&listed)))
}

impl NetNs {
    /// Creates a namespace that has only a loopback interface, which is up.
    ///
    /// # Errors
    /// [`NamespaceError`]; call [`enter`] first to learn the reason early and in plain text.
    pub fn new() -> Result<Self, NamespaceError> {
        // A namespace belongs to a thread: a new thread leaves the caller in its own.
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

    /// A second handle to the same namespace.
    ///
    /// # Errors
    /// If the process has no descriptors left.
    pub fn try_clone(&self) -> io::Result<Self> {
        let fd = self.fd.try_clone()?;
        Ok(Self { fd })
    }

    /// Runs `work` on a new thread inside the namespace and waits for it. Sockets and TUN
    /// interfaces created there stay in the namespace; threads started there begin in it. A panic
    /// propagates.
    ///
    /// # Errors
    /// [`NamespaceError`] if the thread cannot be started or may not enter.
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
    /// Like [`NetNs::run`].
    pub fn netlink(&self) -> Result<Netlink, NamespaceError> {
        Ok(self.run(Netlink::open)??)
    }

    /// Starts a process inside the namespace. The kernel kills it when this process ends for any
    /// reason; its own children are not killed.
    ///
    /// # Errors
    /// Like [`Command::spawn`].
    pub fn spawn(&self, command: &mut Command) -> io::Result<Child> {
        spawn::spawn_inside(self.try_clone()?, command)
    }

    /// Moves the calling thread into the namespace. Makes one system call and allocates nothing, so it
    /// may run between fork and exec.
    fn join(&self) -> io::Result<()> {
        Ok(move_into_link_name_space(
            self.fd.as_fd(),
            Some(LinkNameSpaceType::Network),
        )?)
    }
}

impl AsFd for NetNs {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Why a namespace could not be created or entered.
#[derive(Debug, thiserror::Error)]
pub enum NamespaceError {
    /// Only root may create user namespaces on this system.
    #[error(
        "user namespaces are for root only here: set the sysctl kernel.unprivileged_userns_clone to 1, or run as root"
    )]
    UsersDisabled,
    /// The limit on user namespaces is reached, or is 0.
    #[error("no user namespace is left: raise the sysctl user.max_user_namespaces, or run as root")]
    UserLimit,
    /// The limit on network namespaces is reached, or is 0.
    #[error("no network namespace is left: raise the sysctl user.max_net_namespaces")]
    NetLimit,
    /// AppArmor restricts the rights within user namespaces.
    #[error(
        "AppArmor restricts user namespaces: set the sysctl kernel.apparmor_restrict_unprivileged_userns to 0, or run as root"
    )]
    AppArmor,
    /// The kernel was built without namespaces of this kind.
    #[error("this kernel has no {0} namespaces")]
    NoKernelSupport(&'static str),
    /// A user namespace can only be entered before the process starts threads.
    #[error("a user namespace can only be entered by a process with one thread; this one has {0}")]
    SeveralThreads(usize),
    /// Another mechanism forbids it: a container's system call filter, a security module.
    #[error("the system forbids namespaces: a container needs --privileged, or run as root outside of it")]
    Forbidden(#[source] io::Error),
    /// The loopback interface could not be brought up.
    #[error("the namespace could not be set up")]
    Netlink(#[from] NetlinkError),
    /// A system call failed.
    #[error("could not {what}")]
    Io {
        /// The operation that failed.
        what: &'static str,
        /// The system's error.
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
