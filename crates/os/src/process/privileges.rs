//! Dropping privileges, for good.

use std::io;
use std::path::Path;

use rustix::thread::{
    CapabilitySet, clear_ambient_capability_set, configure_capability_in_ambient_set, set_no_new_privs,
};

use super::capabilities::{apply, current, empty_bounding_set};
use super::landlock::{Access, Ruleset, RulesetError};
use super::memory::forbid_core_dumps;
use super::user::{Ids, become_user, service_user};
use super::{seccomp, thread_count};

/// The files that a process needs besides its own: to start programs, its own binary among them,
/// and to read the system's configuration. Paths that do not exist are skipped.
const SYSTEM_FILES: &[(&str, Access)] = &[
    ("/proc", Access::Read),
    ("/proc/self/exe", Access::Run),
    ("/sys/fs/cgroup", Access::Read),
    ("/dev/null", Access::Keep),
    ("/dev/urandom", Access::Read),
    ("/lib", Access::Run),
    ("/lib64", Access::Run),
    ("/usr/lib", Access::Run),
    ("/usr/lib64", Access::Run),
    ("/usr/local/lib", Access::Run),
    ("/nix/store", Access::Run),
    ("/etc/ld.so.cache", Access::Read),
    ("/etc/nsswitch.conf", Access::Read),
    ("/etc/resolv.conf", Access::Read),
    ("/run/systemd/resolve", Access::Read),
];

/// The rights that a process keeps.
#[derive(Debug, Clone, Copy, Default)]
pub struct Rights<'a> {
    /// CAP_NET_ADMIN: interfaces and routes of its network namespace.
    pub net_admin: bool,
    /// CAP_SYS_NICE, until a thread calls [`give_up_nice`](super::give_up_nice).
    pub nice: bool,
    /// The user to become, from [`service_user`].
    pub user: Option<Ids>,
    /// Its own files, besides the system's files that every program needs. `None` restricts no
    /// files.
    pub files: Option<&'a [(&'a Path, Access)]>,
    /// Whether system calls are filtered.
    pub filter: bool,
    /// Programs that it starts have CAP_NET_ADMIN as well, and netlink's sockets for the packet
    /// filter: nft(8).
    pub packet_filter: bool,
}

/// The result, as a system may lack some mechanisms.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Confinement {
    /// Restriction of files, by Landlock.
    pub landlock: Part,
    /// Restriction of system calls, by seccomp.
    pub seccomp: Part,
}

/// Whether a mechanism is in force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    /// It is in force.
    Active,
    /// It was not requested.
    Unused,
    /// It is missing, for this reason.
    Missing(String),
}

impl Part {
    fn of(done: Result<(), impl std::fmt::Display>) -> Self {
        done.map_or_else(|error| Self::Missing(error.to_string()), |()| Self::Active)
    }
}

impl Rights<'_> {
    /// Drops all other rights, for good: for this thread, for threads that it starts, and for
    /// programs, which get no capability unless `packet_filter` says so. Core dumps are disabled from then on. Call it before the
    /// process starts threads and after everything is open that needs more rights (a port below
    /// 1024, a device, a file of another user).
    ///
    /// # Errors
    /// [`PrivilegeError::SeveralThreads`] changes nothing, because rights belong to threads. After
    /// [`PrivilegeError::Io`] the process must end: it may have dropped some rights. A kernel
    /// without Landlock or seccomp is not an error; the [`Confinement`] reports it.
    pub fn confine(&self) -> Result<Confinement, PrivilegeError> {
        let threads = thread_count().map_err(|e| PrivilegeError::new("count the threads", e))?;
        if threads > 1 {
            return Err(PrivilegeError::SeveralThreads(threads));
        }
        // While every path can still be opened.
        let ruleset = self.files.map(ruleset);
        empty_bounding_set(self.of_programs())?;
        if let Some(ids) = self.user {
            become_user(ids)?;
        }
        self.keep_capabilities()?;
        set_no_new_privs(true).map_err(|e| PrivilegeError::new("forbid new privileges", e))?;
        forbid_core_dumps()?;
        let landlock = ruleset.map_or(Part::Unused, |ruleset| {
            Part::of(ruleset.and_then(Ruleset::enforce).map(drop))
        });
        let seccomp = match self.filter {
            true => Part::of(seccomp::enforce(self.packet_filter)),
            false => Part::Unused,
        };
        Ok(Confinement { landlock, seccomp })
    }

    fn keep_capabilities(&self) -> Result<(), PrivilegeError> {
        let mut kept = CapabilitySet::empty();
        kept.set(CapabilitySet::NET_ADMIN, self.net_admin);
        kept.set(CapabilitySet::SYS_NICE, self.nice);
        let mut sets = current()?;
        // An error means a kernel without ambient capabilities.
        let _ = clear_ambient_capability_set();
        sets.permitted &= kept;
        sets.effective = sets.permitted;
        sets.inheritable = self.of_programs() & sets.permitted;
        apply(sets)?;
        if !sets.inheritable.is_empty() {
            configure_capability_in_ambient_set(sets.inheritable, true)
                .map_err(|e| PrivilegeError::new("pass a capability on to programs", e))?;
        }
        Ok(())
    }

    /// The capabilities that programs get.
    fn of_programs(&self) -> CapabilitySet {
        let mut kept = CapabilitySet::empty();
        kept.set(CapabilitySet::NET_ADMIN, self.net_admin && self.packet_filter);
        kept
    }
}

/// Drops every right but CAP_NET_ADMIN, and all files but those of the system; root becomes the
/// service user.
///
/// # Errors
/// Like [`Rights::confine`].
pub fn drop_privileges_to_net_admin() -> Result<(), PrivilegeError> {
    drop_to(false)
}

/// Like [`drop_privileges_to_net_admin`], but keeps CAP_SYS_NICE as well: for this thread and those
/// that it starts, not for programs. A thread that does not need it calls
/// [`give_up_nice`](super::give_up_nice).
///
/// # Errors
/// Like [`Rights::confine`].
pub fn drop_privileges_to_net_admin_and_nice() -> Result<(), PrivilegeError> {
    drop_to(true)
}

fn drop_to(nice: bool) -> Result<(), PrivilegeError> {
    let rights = Rights {
        net_admin: true,
        nice,
        user: user_to_become()?,
        files: Some(&[]),
        filter: true,
        packet_filter: false,
    };
    rights.confine().map(drop)
}

/// Drops every capability, and root becomes the service user. Adds no restriction of files and
/// system calls: a program of a confined process inherits those of its parent.
///
/// # Errors
/// Like [`Rights::confine`].
pub fn drop_all_privileges() -> Result<(), PrivilegeError> {
    let rights = Rights {
        user: user_to_become()?,
        ..Rights::default()
    };
    rights.confine().map(drop)
}

fn user_to_become() -> Result<Option<Ids>, PrivilegeError> {
    let user = service_user().map_err(|e| PrivilegeError::new("find the user to become", e))?;
    Ok(user.ids())
}

fn ruleset(files: &[(&Path, Access)]) -> Result<Ruleset, RulesetError> {
    let ruleset = Ruleset::new()?;
    let system = SYSTEM_FILES.iter().map(|(path, access)| (Path::new(path), *access));
    for (path, access) in system {
        match ruleset.allow(path, access) {
            Err(RulesetError::Path { source, .. }) if source.kind() == io::ErrorKind::NotFound => {}
            done => done?,
        }
    }
    for (path, access) in files {
        ruleset.allow(path, *access)?;
    }
    Ok(ruleset)
}

/// Why the privileges were not dropped.
#[derive(Debug, thiserror::Error)]
pub enum PrivilegeError {
    /// Other threads would keep the rights that this one drops.
    #[error("privileges can only be dropped by a process with one thread; this one has {0}")]
    SeveralThreads(usize),
    /// A system call failed.
    #[error("could not {what}")]
    Io {
        /// The operation that failed.
        what: &'static str,
        /// The system's error.
        source: io::Error,
    },
}

impl PrivilegeError {
    pub(super) fn new(what: &'static str, source: impl Into<io::Error>) -> Self {
        let source = source.into();
        Self::Io { what, source }
    }
}

#[cfg(test)]
mod tests {
    use super::super::has_net_admin;
    use super::*;

    #[test]
    fn other_threads_forbid_dropping() {
        let (ended, wait) = std::sync::mpsc::channel::<()>();
        std::thread::scope(|scope| {
            scope.spawn(move || wait.recv());
            let before = has_net_admin();
            let refused = drop_privileges_to_net_admin();
            assert!(matches!(refused, Err(PrivilegeError::SeveralThreads(2..))));
            assert_eq!(has_net_admin(), before);
            drop(ended);
        });
    }
}
