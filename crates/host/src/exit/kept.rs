//! What a strict exit leaves on a host whose daemon has ended, and how it is opened or closed without one.
//!
//! The rules of a strict exit stay when the daemon ends, until a command opens the host. They end with the host's
//! run, so a note beside the configuration says that the host was closed: at the next start a configuration that
//! cannot be read does not open it.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use tokio::runtime::{Builder, Runtime};
use weft_os::file::with_suffix;
use weft_os::netlink::{Interface, Netlink, NetlinkError};

use super::UseExit;
use super::host::{ExitError, Host};
use super::nft::{Nft, NftError};
use super::rules::{GROUP, PRIORITIES, TABLE, USE};

/// The suffix of the note, behind the name of the configuration.
const NOTE: &str = ".closed";
/// What the note says to its reader.
const TEXT: &str = "A strict exit keeps packets in on this host. `weft down` opens it and removes this file.\n";

/// What the table of a strict exit alone says.
const CLOSES: &str = "policy drop";

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

/// What keeps packets in after a daemon has ended. Each of both suffices. Its text names them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Left {
    /// The rules for routes, which every user may read.
    pub routes: bool,
    /// The table of nftables, which root alone may read.
    pub table: bool,
}

impl Left {
    /// Whether packets are kept in.
    #[must_use]
    pub const fn is_closed(self) -> bool {
        self.routes || self.table
    }
}

impl fmt::Display for Left {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let routes = self.routes.then_some("its rules for routes".to_owned());
        let table = self.table.then(|| format!("its table inet {USE} of nftables"));
        let named: Vec<String> = routes.into_iter().chain(table).collect();
        f.write_str(&named.join(" and "))
    }
}

/// Looks for what the strict exit of an ended daemon has left.
///
/// # Errors
/// [`ExitError`]
pub fn left() -> Result<Left, ExitError> {
    runtime()?.block_on(look())
}

/// The same on a thread that runs other tasks, too.
///
/// # Errors
/// [`ExitError`]
pub(crate) async fn look() -> Result<Left, ExitError> {
    let mut netlink = Netlink::open()?;
    if is_used(&mut netlink)? {
        return Ok(Left::default());
    }
    let routes = leads_nowhere(&mut netlink)?;
    let table = match Nft::default()
        .run(&["--stateless", "list", "table", "inet", USE], "")
        .await
    {
        // There is none, or this user may not read it.
        Err(NftError::NoProgram | NftError::Refused(_)) => false,
        listed => listed?.contains(CLOSES),
    };
    Ok(Left { routes, table })
}

/// Whether rules for routes lead to routes that end here.
fn leads_nowhere(netlink: &mut Netlink) -> Result<bool, NetlinkError> {
    Ok(netlink.count_rules_and_routes(&PRIORITIES, TABLE)?.0 > 0 && netlink.leads_nowhere(TABLE)?)
}

/// Whether the strict exit of a running daemon keeps packets in, by its rules for routes.
///
/// # Errors
/// Only if the exchange with the kernel fails.
pub fn is_kept() -> Result<bool, NetlinkError> {
    let mut netlink = Netlink::open()?;
    Ok(leads_nowhere(&mut netlink)? && is_used(&mut netlink)?)
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
