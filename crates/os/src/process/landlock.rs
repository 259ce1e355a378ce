//! Restricting the files that a process can access: Landlock (landlock(7), `linux/landlock.h`).

use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

use crate::syscall;

const EXECUTE: u64 = 1 << 0;
const WRITE_FILE: u64 = 1 << 1;
const READ_FILE: u64 = 1 << 2;
const READ_DIR: u64 = 1 << 3;
const REMOVE_FILE: u64 = 1 << 5;
const MAKE_REG: u64 = 1 << 8;
const MAKE_SOCK: u64 = 1 << 9;
const MAKE_SYM: u64 = 1 << 12;
const TRUNCATE: u64 = 1 << 14;
const IOCTL_DEV: u64 = 1 << 15;
/// The rights that apply to a file that is not a directory.
const OF_FILES: u64 = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV;

/// Abstract Unix sockets, and signals to processes outside.
const SCOPES: u64 = 0b11;
const CREATE_RULESET_VERSION: u32 = 1;
const RULE_PATH_BENEATH: u32 = 1;

/// The permitted use of a file, or of everything below a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Read it.
    Read,
    /// Read and run it.
    Run,
    /// Read and write it; create and remove files and sockets in it.
    Keep,
    /// Like [`Keep`](Self::Keep), and move symbolic links in it.
    KeepLinks,
}

impl Access {
    const fn bits(self) -> u64 {
        match self {
            Self::Read => READ_FILE | READ_DIR,
            Self::Run => READ_FILE | READ_DIR | EXECUTE,
            Self::Keep => READ_FILE | READ_DIR | WRITE_FILE | TRUNCATE | REMOVE_FILE | MAKE_REG | MAKE_SOCK,
            Self::KeepLinks => Self::Keep.bits() | MAKE_SYM,
        }
    }
}

/// Why the ruleset could not be built.
#[derive(Debug, thiserror::Error)]
pub enum RulesetError {
    /// A kernel before Linux 5.13, or one built or started without it.
    #[error("the kernel has no Landlock")]
    Unsupported,
    /// A path of the list cannot be opened.
    #[error("{}: {source}", .path.display())]
    Path {
        /// The path.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A system call failed.
    #[error("the system refused: {0}")]
    System(#[source] io::Error),
}

/// A list of permitted files, not yet in force.
pub(super) struct Ruleset {
    fd: OwnedFd,
    /// The version of the kernel's interface.
    abi: u32,
    handled: u64,
}

/// `struct landlock_ruleset_attr`.
#[repr(C)]
struct RulesetAttr {
    handled_access_fs: u64,
    handled_access_net: u64,
    scoped: u64,
}

/// `struct landlock_path_beneath_attr`, which is packed.
#[repr(C, packed)]
struct PathBeneathAttr {
    allowed_access: u64,
    parent_fd: i32,
}

impl Ruleset {
    /// An empty list: nothing is permitted.
    pub(super) fn new() -> Result<Self, RulesetError> {
        let abi = create_ruleset(None, 0, CREATE_RULESET_VERSION).unwrap_or(0);
        let abi = u32::try_from(abi).ok().filter(|abi| *abi > 0);
        let abi = abi.ok_or(RulesetError::Unsupported)?;
        let attr = RulesetAttr {
            handled_access_fs: handled(abi),
            handled_access_net: 0,
            scoped: if abi >= 6 { SCOPES } else { 0 },
        };
        // Old kernels refuse trailing bytes that are not zero; these are the sizes that they know.
        let size = match abi {
            ..4 => 8,
            4..6 => 16,
            _ => size_of::<RulesetAttr>(),
        };
        let fd = create_ruleset(Some(&attr), size, 0).map_err(RulesetError::System)?;
        Ok(Self {
            // SAFETY: the descriptor is new and belongs to this value alone.
            fd: unsafe { OwnedFd::from_raw_fd(fd) },
            abi,
            handled: attr.handled_access_fs,
        })
    }

    /// Allows `access` to `path` and everything below it. Devices can be used, not only read: that
    /// is meant for `/dev/null` only.
    pub(super) fn allow(&self, path: &Path, access: Access) -> Result<(), RulesetError> {
        let failed = |source| RulesetError::Path {
            path: path.to_owned(),
            source,
        };
        let parent = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
        let parent = parent.map_err(|error| failed(error.into()))?;
        let directory = std::fs::metadata(path).map_err(failed)?.is_dir();
        let mask = if directory { u64::MAX } else { OF_FILES };
        let rule = PathBeneathAttr {
            allowed_access: access.bits() & self.handled & mask,
            parent_fd: parent.as_raw_fd(),
        };
        // SAFETY: the kernel reads one `struct landlock_path_beneath_attr`, whose layout `rule`
        // has.
        let added = unsafe {
            libc::syscall(
                libc::SYS_landlock_add_rule,
                self.fd.as_raw_fd(),
                RULE_PATH_BENEATH,
                &raw const rule,
                0_u32,
            )
        };
        syscall::check(added as i32).map_err(failed)?;
        Ok(())
    }

    /// Enforces the list on the calling thread and on all threads and programs that it starts.
    /// Needs `no_new_privs`. Returns the version of the kernel's interface.
    pub(super) fn enforce(self) -> Result<u32, RulesetError> {
        // SAFETY: no pointers are passed.
        let done = unsafe { libc::syscall(libc::SYS_landlock_restrict_self, self.fd.as_raw_fd(), 0_u32) };
        syscall::check(done as i32).map_err(RulesetError::System)?;
        Ok(self.abi)
    }
}

/// Returns a new descriptor, or the version of the kernel's interface. `size` is at most that of
/// `attr`.
fn create_ruleset(attr: Option<&RulesetAttr>, size: usize, flags: u32) -> io::Result<i32> {
    let attr = attr.map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: the kernel reads `size` bytes of `attr`, and none without it.
    let result = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, attr, size, flags) };
    syscall::check(result as i32)
}

/// All accesses that the kernel's interface of this version can restrict.
const fn handled(abi: u32) -> u64 {
    let bits = match abi {
        ..=1 => 13,
        2 => 14,
        3 | 4 => 15,
        _ => 16,
    };
    (1 << bits) - 1
}
