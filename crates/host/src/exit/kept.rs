//! What a strict exit leaves on a host whose daemon has ended, and how it is opened or closed without one.
//!
//! The rules of a strict exit stay when the daemon ends, until a command opens the host. They end with the host's
//! run, so a note beside the configuration says that the host was closed: at the next start a configuration that
//! cannot be read does not open it.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use tokio::runtime::{Builder, Runtime};
use weft_os::file::with_suffix;
use weft_os::netlink::{Interface, Netlink, NetlinkError};

use super::UseExit;
use super::host::{ExitError, Host};
use super::nft::NftError;
use super::rules::{GROUP, TABLE};

/// The suffix of the note, behind the name of the configuration.
const NOTE: &str = ".closed";
/// What the note says to its reader.
const TEXT: &str = "A strict exit keeps packets in on this host. `weft down` opens it and removes this file.\n";

/// The note beside a configuration.
#[must_use]
pub fn note(config: &Path) -> PathBuf {
    with_suffix(config, NOTE)
}

/// Notes that a strict exit keeps packets in.
///
/// # Errors
/// The error of the file system.
pub fn write_note(config: &Path) -> io::Result<()> {
    // A link in its place is replaced, and not followed.
    remove_note(config)?;
    let mut file = File::options().write(true).create_new(true).open(note(config))?;
    file.write_all(TEXT.as_bytes())
}

/// Removes the note.
///
/// # Errors
/// The error of the file system.
pub fn remove_note(config: &Path) -> io::Result<()> {
    match fs::remove_file(note(config)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// Whether a strict exit kept packets in when it was last heard of.
#[must_use]
pub fn is_noted(config: &Path) -> bool {
    fs::symlink_metadata(note(config)).is_ok_and(|found| found.is_file())
}

/// What keeps packets in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kept {
    /// Nothing.
    Open,
    /// The strict exit of a running daemon.
    Used,
    /// What the strict exit of an ended daemon has left.
    Left,
}

/// Looks at the rules for routes, which every user may read, and whether the interface of a daemon is there that
/// they lead to.
///
/// # Errors
/// Only if the exchange with the kernel fails.
pub fn kept() -> Result<Kept, NetlinkError> {
    let mut netlink = Netlink::open()?;
    if netlink.count_rules_and_routes(TABLE)?.0 == 0 || !netlink.leads_nowhere(TABLE)? {
        return Ok(Kept::Open);
    }
    Ok(if is_used(&mut netlink)? { Kept::Used } else { Kept::Left })
}

/// Whether the interface of a daemon that uses an exit is there.
fn is_used(netlink: &mut Netlink) -> Result<bool, NetlinkError> {
    let is_own = |interface: &Interface| interface.group == GROUP && interface.kind.as_deref() == Some("tun");
    Ok(netlink.interfaces()?.iter().any(is_own))
}

/// Opens what an ended daemon has left, and removes the note beside its configuration. Returns whether its exit was
/// strict. What a running daemon uses is left alone. It needs the capability CAP_NET_ADMIN.
///
/// # Errors
/// [`ExitError`]
pub fn open(config: &Path) -> Result<bool, ExitError> {
    if is_used(&mut Netlink::open()?)? {
        return Ok(false);
    }
    // The table of nftables keeps packets in alone, too, if the rules for routes were removed.
    let was = runtime()?.block_on(Host::without_interface(String::new()).leave_left())?;
    remove_note(config).map_err(|source| ExitError::Note(note(config), source))?;
    Ok(was)
}

/// Keeps all packets in until a daemon opens what its exit carries. `interface`: the name of its interface, which
/// need not be there. It needs the capability CAP_NET_ADMIN.
///
/// # Errors
/// [`ExitError`]
pub fn close(interface: &str) -> Result<(), ExitError> {
    let nothing = UseExit {
        strict: true,
        ..UseExit::default()
    };
    runtime()?.block_on(Host::without_interface(interface.to_owned()).use_exit(&nothing))
}

/// Runs programs without a daemon.
fn runtime() -> Result<Runtime, ExitError> {
    Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| ExitError::Nft(NftError::Run(error)))
}
