//! What the system says of a file.

use rustix::fs::{FileType, Stat};

/// What something in a folder is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A folder.
    Dir,
    /// A regular file.
    File,
    /// A symbolic link.
    Link,
    /// A FIFO.
    Fifo,
    /// A socket.
    Socket,
    /// A device.
    Device,
}

/// What is known of something in a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meta {
    /// What it is.
    pub kind: Kind,
    /// Bytes.
    pub size: u64,
    /// What it takes on the disk, in units of 512 bytes.
    pub blocks: u64,
    /// When its content was last changed: seconds since 1970.
    pub mtime_s: i64,
    /// Nanoseconds of that.
    pub mtime_ns: u32,
    /// When anything of it was last changed, its permissions and names included: seconds since 1970.
    pub ctime_s: i64,
    /// Nanoseconds of that.
    pub ctime_ns: u32,
    /// The number of its inode.
    pub ino: u64,
    /// The device of its file system.
    pub dev: u64,
    /// The permissions, with setuid, setgid and sticky (`0o7777`).
    pub mode: u32,
}

impl Meta {
    /// What stat(2) says.
    #[allow(clippy::unnecessary_cast, reason = "the types differ between architectures")]
    pub(crate) fn of(stat: &Stat) -> Self {
        Self {
            kind: match FileType::from_raw_mode(stat.st_mode) {
                FileType::Directory => Kind::Dir,
                FileType::RegularFile => Kind::File,
                FileType::Symlink => Kind::Link,
                FileType::Fifo => Kind::Fifo,
                FileType::Socket => Kind::Socket,
                _ => Kind::Device,
            },
            size: stat.st_size as u64,
            blocks: stat.st_blocks as u64,
            mtime_s: stat.st_mtime as i64,
            mtime_ns: stat.st_mtime_nsec as u32,
            ctime_s: stat.st_ctime as i64,
            ctime_ns: stat.st_ctime_nsec as u32,
            ino: stat.st_ino as u64,
            dev: stat.st_dev as u64,
            mode: stat.st_mode as u32 & 0o7777,
        }
    }
}
