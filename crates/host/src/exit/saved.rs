//! Settings of the kernel that are changed for an exit, and the values that those had before which are
//! put back: the checks of sources (rp_filter, arp_filter) while this host uses an exit. Forwarding
//! stays on.
//!
//! The former values are comments in this program's table of nft(8): what a killed process leaves
//! behind is found there, and ends with the rules that it belongs to, as by a restart of the host.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Where the settings are.
const ROOT: &str = "/proc/sys/net";
/// The answers of routers about default routes: 1 ends when IPv6 is forwarded, 2 does not.
const RA_ALWAYS: &str = "2";

/// Former values, in the order in which they are to be written back.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Saved {
    values: Vec<(String, String)>,
}

/// A setting could not be read or written.
#[derive(Debug, thiserror::Error)]
#[error("{}: {source}", .path.display())]
pub struct SettingError {
    path: PathBuf,
    source: io::Error,
}

impl Saved {
    /// Reads former values from what `nft list table` prints. Lines that are none of this module's
    /// are left out.
    #[must_use]
    pub fn parse(listed: &str) -> Self {
        let comments = listed.lines().filter_map(|line| {
            let (_, rest) = line.split_once("comment \"")?;
            rest.split_once('"').map(|(comment, _)| comment)
        });
        let value = |comment: &str| {
            let (name, value) = comment.split_once('=')?;
            is_known(name).then(|| (name.to_owned(), value.to_owned()))
        };
        Self {
            values: comments.filter_map(value).collect(),
        }
    }

    /// Each value as `NAME=VALUE`.
    pub fn lines(&self) -> impl Iterator<Item = String> {
        self.values.iter().map(|(name, value)| format!("{name}={value}"))
    }

    /// The former value of a setting, if it was changed.
    #[must_use]
    pub fn value(&self, name: &str) -> Option<&str> {
        self.values.iter().find(|(of, _)| of == name).map(|(_, value)| &**value)
    }

    /// Keeps the values of settings that are about to change, unless an earlier one is kept already.
    pub fn keep(&mut self, names: impl IntoIterator<Item = String>) {
        for name in names {
            if let Some(value) = read(&name).filter(|_| self.value(&name).is_none()) {
                self.values.push((name, value));
            }
        }
    }

    /// Writes all values back. A setting that is gone, as that of an interface, is left out.
    ///
    /// # Errors
    /// [`SettingError`], after all others are written.
    pub fn restore(&self) -> Result<(), SettingError> {
        let mut result = Ok(());
        for (name, value) in &self.values {
            if read(name).is_some_and(|now| now != *value) {
                result = result.and(write(name, value));
            }
        }
        result
    }
}

/// Makes the check of sources (rp_filter) look at marks, and accept all that there is a route to: packets to local
/// networks go by the exit, and a host that does not accept their addresses as sources answers no question for its
/// own address in the link (ARP). It turns arp_filter off, too: an interface with it answers only hosts that the
/// routes reach through it, and with an exit the routes lead elsewhere.
///
/// # Errors
/// [`SettingError`]
pub fn check_sources() -> Result<(), SettingError> {
    write(CHECK_MARKS, "1")?;
    if is_strict() {
        write(SOURCES, LOOSE)?;
    }
    filters().iter().try_for_each(|name| write(name, "0"))
}

/// Returns true if the check of sources is as [`check_sources`] leaves it.
#[must_use]
pub fn checks_sources() -> bool {
    read(CHECK_MARKS).is_some_and(|value| value == "1") && !is_strict()
}

/// Whether an interface leaves questions unanswered again, as one that has just come may.
#[must_use]
pub fn filters_questions() -> bool {
    !filters().is_empty()
}

/// The settings that [`check_sources`] may change.
#[must_use]
pub fn checks() -> Vec<String> {
    let sources = [CHECK_MARKS, SOURCES].map(str::to_owned);
    sources.into_iter().chain(filters()).collect()
}

/// The settings of arp_filter that are on. The kernel filters if that for all interfaces is on, or the interface's
/// own (`Documentation/networking/ip-sysctl.rst` of Linux).
fn filters() -> Vec<String> {
    let all = interfaces("ipv4").into_iter().chain(["all".to_owned()]);
    let names = all.map(|interface| format!("ipv4/conf/{interface}/arp_filter"));
    names
        .filter(|name| read(name).is_some_and(|value| value != "0"))
        .collect()
}

/// Whether an interface accepts packets only from where it leads to. The higher value of that for all interfaces and
/// of its own counts (`Documentation/networking/ip-sysctl.rst` of Linux).
fn is_strict() -> bool {
    let value = |interface: &str| read(&format!("ipv4/conf/{interface}/rp_filter"));
    let strict = |interface: &String| value(interface).as_deref() == Some("1");
    match value("all").as_deref() {
        Some("1") => true,
        Some(LOOSE) => false,
        _ => interfaces("ipv4").iter().any(strict),
    }
}

const CHECK_MARKS: &str = "ipv4/conf/all/src_valid_mark";
const SOURCES: &str = "ipv4/conf/all/rp_filter";
/// The check of sources that asks for any route.
const LOOSE: &str = "2";

/// Whether this host forwards packets of an IP version.
#[must_use]
pub fn forwards(ipv6: bool) -> bool {
    read(switch(ipv6)).is_some_and(|value| value == "1")
}

/// The setting that turns forwarding on.
#[must_use]
pub const fn switch(ipv6: bool) -> &'static str {
    if ipv6 {
        "ipv6/conf/all/forwarding"
    } else {
        "ipv4/ip_forward"
    }
}

/// Makes this host forward packets of an IP version, and go on following IPv6 routers where it does: a host
/// that forwards follows none where `accept_ra` is 1. An interface that comes later follows none; it may be
/// that of a container, which would become the router of the host.
///
/// None of it is put back. Containers and virtual machines that were started meanwhile forward, too, and what
/// the kernel changes with it (`accept_redirects`) is right for a host that forwards.
///
/// # Errors
/// [`SettingError`]
pub fn forward(ipv6: bool) -> Result<(), SettingError> {
    if ipv6 {
        for interface in interfaces("ipv6") {
            let name = format!("ipv6/conf/{interface}/accept_ra");
            if read(&name).is_some_and(|value| value == "1") {
                write(&name, RA_ALWAYS)?;
            }
        }
    }
    write(switch(ipv6), "1")
}

/// The names of the interfaces that there are.
fn interfaces(version: &str) -> Vec<String> {
    let found = fs::read_dir(Path::new(ROOT).join(version).join("conf"))
        .into_iter()
        .flatten();
    let names = found.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    names
        .filter(|name| is_plain(name) && !matches!(&**name, "all" | "default"))
        .collect()
}

/// Whether a text is safe in a comment of nft(8) and as one step of a path.
pub(super) fn is_plain(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    !name.is_empty() && name != "." && name != ".." && name.len() <= 15 && name.chars().all(plain)
}

/// Whether a name is that of a setting which this module changes.
fn is_known(name: &str) -> bool {
    let steps: Vec<_> = name.split('/').collect();
    match steps[..] {
        ["ipv4", "conf", interface, "src_valid_mark" | "rp_filter" | "arp_filter"] => is_plain(interface),
        _ => false,
    }
}

fn read(name: &str) -> Option<String> {
    let text = fs::read_to_string(Path::new(ROOT).join(name)).ok()?;
    Some(text.trim().to_owned())
}

fn write(name: &str, value: &str) -> Result<(), SettingError> {
    let path = Path::new(ROOT).join(name);
    fs::write(&path, value).map_err(|source| SettingError { path, source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_listed_settings_are_read_back() {
        let listed = "table inet weft {\n\tset was_0 {\n\t\ttypeof meta mark\n\t\t\
                      comment \"ipv4/conf/all/src_valid_mark=0\"\n\t}\n\tset was_1 {\n\t\tcomment \"ipv4/conf/eth0/arp_filter=1\"\n\t}\n\
                      \tset x {\n\t\tcomment \"ipv4/conf/../../../kernel/core_pattern=x\"\n\t\tcomment \"ipv4/ip_forward=0\"\n\t}\n}\n";
        let saved = Saved::parse(listed);
        let lines: Vec<_> = saved.lines().collect();
        let all = "ipv4/conf/all/src_valid_mark=0";
        assert_eq!(lines, [all, "ipv4/conf/eth0/arp_filter=1"]);
        assert_eq!(saved.value("ipv4/conf/all/src_valid_mark"), Some("0"));
        assert_eq!(saved.value("ipv4/conf/eth1/src_valid_mark"), None);
    }
}
