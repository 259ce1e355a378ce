//! The user that a daemon started by root becomes.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rustix::fs::{AtFlags, Gid, Mode, OFlags, Uid, chownat};
use rustix::process::{parent_process_death_signal, set_parent_process_death_signal};
use rustix::thread::{
    CapabilitySet, capabilities, set_keep_capabilities, set_thread_groups, set_thread_res_gid, set_thread_res_uid,
};

use super::privileges::PrivilegeError;

/// The user of the daemon on systems that have one for it.
const SERVICE_USER: &str = "weft";

/// The user and the group of the daemon on systems that have none for it.
///
/// No allocator assigns this number: systemd's table of users (UIDS-GIDS.md) lists 65520 to 65533
/// as unused, Debian's policy (9.2.2) reserves 65000 to 65533. It is not `nobody`, which other
/// programs and file systems use for files that belong to no user. It fits into 16 bits, so that a
/// container with 65,536 users has it, too.
const FALLBACK_ID: u32 = 65_530;

/// The number that stands for every user, or group, that a user namespace lacks (`overflowuid` of
/// user_namespaces(7), unless the system changed it). Many users may hide behind it.
pub const OVERFLOW_ID: u32 = 65_534;

/// A user and its group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ids {
    /// The user.
    pub uid: u32,
    /// The group.
    pub gid: u32,
}

/// The result of giving up uid 0.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UserChange {
    /// The process does not run as root: it keeps this user.
    NotRoot(u32),
    /// The process becomes, or became, this user.
    To(Ids),
    /// The process runs as uid 0 and cannot become another user here, for this reason.
    Impossible(String),
}

impl UserChange {
    /// The user to become, if any.
    #[must_use]
    pub fn ids(&self) -> Option<Ids> {
        match self {
            Self::To(ids) => Some(*ids),
            Self::NotRoot(_) | Self::Impossible(_) => None,
        }
    }
}

/// Returns the user that a process with uid 0 is to become: `weft` if `/etc/passwd` has it, else a
/// number that belongs to no user. Changes nothing.
///
/// # Errors
/// If `/proc` is not mounted.
pub fn service_user() -> io::Result<UserChange> {
    let ids = own_ids("Uid:")?;
    if !ids.contains(&0) {
        return Ok(UserChange::NotRoot(ids.get(1).copied().unwrap_or_default()));
    }
    let wanted = fs::read_to_string("/etc/passwd")
        .ok()
        .and_then(|text| of_passwd(&text))
        .unwrap_or(Ids {
            uid: FALLBACK_ID,
            gid: FALLBACK_ID,
        });
    let may = capabilities(None)?.effective;
    let impossible = |why: &str| Ok(UserChange::Impossible(why.to_owned()));
    if !may.contains(CapabilitySet::SETUID | CapabilitySet::SETGID) {
        return impossible("the capabilities CAP_SETUID and CAP_SETGID are missing");
    }
    let mapped = |file: &str, id| fs::read_to_string(file).is_ok_and(|map| is_mapped(&map, id));
    if !mapped("/proc/self/uid_map", wanted.uid) || !mapped("/proc/self/gid_map", wanted.gid) {
        return Ok(UserChange::Impossible(format!(
            "the user namespace has no uid {} and gid {}",
            wanted.uid, wanted.gid
        )));
    }
    if fs::read_to_string("/proc/self/setgroups").is_ok_and(|text| text.trim() == "deny") {
        return impossible("the user namespace forbids to change groups");
    }
    Ok(UserChange::To(wanted))
}

/// The number of the user `name` in `/etc/passwd`; `None` if it has no such user.
///
/// # Errors
/// If the file cannot be read.
pub fn user_id(name: &str) -> io::Result<Option<u32>> {
    Ok(id_of(&fs::read_to_string("/etc/passwd")?, name))
}

/// The number of the group `name` in `/etc/group`; `None` if it has no such group.
///
/// # Errors
/// If the file cannot be read.
pub fn group_id(name: &str) -> io::Result<Option<u32>> {
    Ok(id_of(&fs::read_to_string("/etc/group")?, name))
}

/// Whether root's daemon has this group, or had it before the system got a user for it.
#[must_use]
pub fn is_service_group(gid: u32) -> bool {
    let own = service_user().ok().and_then(|user| user.ids());
    gid == FALLBACK_ID || own.is_some_and(|ids| ids.gid == gid)
}

/// Makes a process of one thread this user, with no other group, and keeps its permitted
/// capabilities.
pub(super) fn become_user(ids: Ids) -> Result<(), PrivilegeError> {
    let with_parent =
        parent_process_death_signal().map_err(|e| PrivilegeError::new("read the signal at a parent's end", e))?;
    set_keep_capabilities(true).map_err(|e| PrivilegeError::new("keep capabilities over a change of user", e))?;
    // The ids belong to threads, and this is the only one.
    set_thread_groups(&[]).map_err(|e| PrivilegeError::new("leave the groups", e))?;
    let (uid, gid) = (Uid::from_raw(ids.uid), Gid::from_raw(ids.gid));
    set_thread_res_gid(gid, gid, gid).map_err(|e| PrivilegeError::new("change the group", e))?;
    set_thread_res_uid(uid, uid, uid).map_err(|e| PrivilegeError::new("change the user", e))?;
    set_keep_capabilities(false).map_err(|e| PrivilegeError::new("stop to keep capabilities", e))?;
    // The kernel resets it at a change of user.
    set_parent_process_death_signal(with_parent)
        .map_err(|e| PrivilegeError::new("keep the signal at a parent's end", e))?;
    let all = own_ids("Uid:").map_err(|e| PrivilegeError::new("read the user", e))?;
    if all.iter().any(|id| *id != ids.uid) {
        return Err(PrivilegeError::new("change every user id", io::ErrorKind::Other));
    }
    Ok(())
}

/// Changes the owner of `path`: of the file itself, never of the target of a link. A file with
/// several hard links is refused, as another of its names may be one that must not change owner.
///
/// # Errors
/// `NotFound` if there is none; the error of the system call.
pub fn give_file(path: &Path, ids: Ids) -> io::Result<()> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    let metadata = file.metadata()?;
    if metadata.uid() == ids.uid {
        return Ok(());
    }
    if metadata.is_symlink() || metadata.nlink() != 1 {
        return Err(io::Error::other("a link, which is given to no other user"));
    }
    let (uid, gid) = (Uid::from_raw(ids.uid), Gid::from_raw(ids.gid));
    Ok(chownat(&file, "", Some(uid), Some(gid), AtFlags::EMPTY_PATH)?)
}

/// The real, effective, saved and file system id of the calling process.
fn own_ids(name: &str) -> io::Result<Vec<u32>> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let ids: Vec<u32> = line
        .unwrap_or_default()
        .split_whitespace()
        .filter_map(|id| id.parse().ok())
        .collect();
    match ids.len() {
        4 => Ok(ids),
        _ => Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "no Uid in /proc/self/status",
        )),
    }
}

/// Returns the service user in a text in the format of passwd(5). An entry with uid or gid 0 has
/// root's rights and is skipped.
fn of_passwd(text: &str) -> Option<Ids> {
    let mut fields = text
        .lines()
        .map(|line| line.split(':'))
        .find(|fields| fields.clone().next() == Some(SERVICE_USER))?;
    let (_, _) = (fields.next()?, fields.next()?);
    let ids = Ids {
        uid: fields.next()?.parse().ok()?,
        gid: fields.next()?.parse().ok()?,
    };
    (ids.uid != 0 && ids.gid != 0).then_some(ids)
}

/// The number of the entry `name` of a text in the format of passwd(5) or group(5).
fn id_of(text: &str, name: &str) -> Option<u32> {
    let mut entries = text.lines().map(|line| line.split(':'));
    let mut fields = entries.find(|fields| fields.clone().next() == Some(name))?;
    fields.nth(2)?.parse().ok()
}

/// Whether a map in the format of user_namespaces(7) contains the id: first inside, first outside,
/// count.
fn is_mapped(map: &str, id: u32) -> bool {
    map.lines().any(|line| {
        let numbers: Vec<u64> = line.split_whitespace().filter_map(|n| n.parse().ok()).collect();
        matches!(numbers[..], [inside, _, count] if (inside..inside + count).contains(&u64::from(id)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_service_user_of_passwd() {
        let text = "root:x:0:0:root:/root:/bin/bash\nwefty:x:7:7::/:\nweft:x:961:962:weft:/:/usr/sbin/nologin\n";
        assert_eq!(of_passwd(text), Some(Ids { uid: 961, gid: 962 }));
        for text in [
            "",
            "root:x:0:0::/:",
            "weft:x:0:5::/:",
            "weft:x:5:0::/:",
            "weft:x:-1:5::/:",
            "weft",
        ] {
            assert_eq!(of_passwd(text), None, "{text}");
        }
    }

    #[test]
    fn ids_by_name() {
        let users = "root:x:0:0:root:/root:/bin/bash\nweft:x:961:962:weft:/:/usr/sbin/nologin\n";
        assert_eq!(id_of(users, "weft"), Some(961));
        let groups = "root:x:0:\nwefty:x:7:\nweft:x:962:alice,bob\nbroken:x\nodd:x:-1:\n";
        assert_eq!(id_of(groups, "weft"), Some(962));
        for name in ["", "alice", "broken", "odd", "root:x"] {
            assert_eq!(id_of(groups, name), None, "{name}");
        }
    }

    #[test]
    fn ids_of_a_user_namespace() {
        assert!(is_mapped("         0          0 4294967295\n", FALLBACK_ID));
        assert!(is_mapped("0 100000 65536\n", FALLBACK_ID));
        assert!(is_mapped("0 1000 1\n1 100000 65535\n", FALLBACK_ID));
        assert!(!is_mapped("0 1000 1\n", FALLBACK_ID));
        assert!(!is_mapped("", 0));
    }
}
