//! A strict exit without a daemon: what keeps packets in stays when the daemon ends, and commands open it.

use std::net::IpAddr;
use std::path::Path;

use rustix::process::geteuid;
use weft_config::{Config, Pending};
use weft_host::exit::kept::{self, Left};
use weft_host::exit::rules::is_lan;
use weft_host::exit::sessions::{Session, came_in};
use weft_os::netlink::{Netlink, NetlinkError};
use weft_store::state::StatePaths;

use crate::failure::Failure;

/// What is so once it is opened.
pub(crate) const OPENED: &str = "the exit was strict, and packets leave directly from now on\n";
/// What is so once it is opened, while the exit stays set.
pub(crate) const OPENED_FOR_NOW: &str = "the exit was strict, and packets leave directly until weft starts again\n";

/// What a daemon that has ended has left, if it keeps packets in.
pub(crate) fn left() -> Option<Left> {
    kept::left().ok().filter(|left| left.is_closed())
}

/// What a strict exit has left, and the way out.
pub(crate) fn told(left: Left) -> String {
    format!(
        "a strict exit keeps packets in although its daemon has ended, by {left}; `sudo weft down` opens this machine"
    )
}

/// Whether a note beside a configuration says that its strict exit keeps packets in.
pub(crate) fn is_noted(config: &Path) -> bool {
    kept::is_noted(config)
}

/// Whether a daemon that runs keeps packets in.
fn is_used() -> bool {
    kept::is_kept().unwrap_or_default()
}

/// Opens what a daemon that has ended has left. Returns whether there was anything. `config`: its configuration.
pub(crate) fn open(config: &Path) -> Result<bool, Failure> {
    if !geteuid().is_root() {
        return match left() {
            Some(left) => Err(Failure::Usage(told(left))),
            None => Ok(false),
        };
    }
    Ok(kept::open(config)?)
}

/// Keeps packets in before there is a network, if the daemon will. A configuration that cannot be read, or that
/// waits for a confirmation, is what a note beside it says. Returns whether packets are kept in.
pub(crate) fn close_at_boot(paths: &StatePaths) -> Result<bool, Failure> {
    let path = paths.config();
    let loaded = Config::load(&path);
    let strict = match &loaded {
        Ok(config) => config.is_strict() || !matches!(Pending::find(&path), Ok(None)) && kept::is_noted(&path),
        Err(_) => kept::is_noted(&path),
    };
    if strict && !is_used() {
        let name = loaded.unwrap_or_default().tun.name;
        kept::close(&name)?;
    }
    Ok(strict)
}

/// Refuses a first start in the place of a configuration that is gone, while a note beside it says that the host is
/// closed: the daemon would open it.
pub(crate) fn refuse_first_start(config: &Path) -> Result<(), Failure> {
    match kept::is_noted(config) {
        true => Err(Failure::Usage(format!(
            "{} is gone, and a strict exit has kept packets in with it; put it back, or open this machine with `sudo weft \
             down`",
            config.display()
        ))),
        false => Ok(()),
    }
}

/// Keeps packets in if a daemon cannot start with its configuration and a note beside it says that they were.
pub(crate) fn stay_closed(config: &Path) {
    if geteuid().is_root() && kept::is_noted(config) && !is_used() {
        // The fault of the configuration is what the user has to read.
        let _ = kept::close(&Config::default().tun.name);
    }
}

/// The connections of other hosts to this one that a change of the configuration would end: a strict exit lets no
/// answer leave by the interface that they came in by.
pub(crate) fn sessions_that_end(before: &Config, after: &Config) -> Vec<Session> {
    let closes = |config: &Config| config.is_strict() && !config.tun.exit_inbound;
    if !closes(after) || closes(before) {
        return Vec::new();
    }
    let own = own_addresses(&after.tun.name).unwrap_or_default();
    let mut ended = came_in(&own).unwrap_or_default();
    ended.retain(|session| !after.tun.exit_lan || !is_lan(session.remote.ip()));
    ended
}

/// The addresses of an interface.
fn own_addresses(name: &str) -> Result<Vec<IpAddr>, NetlinkError> {
    let mut netlink = Netlink::open()?;
    let index = netlink.interface(name)?.index;
    let addresses = netlink.addresses(index)?;
    Ok(addresses.into_iter().map(|of| of.address).collect())
}

/// Why a change that would end connections is not made.
pub(crate) fn refusal(ended: &[Session]) -> String {
    /// The number of connections that are named.
    const NAMED: usize = 3;
    let named: Vec<String> = ended
        .iter()
        .take(NAMED)
        .map(|session| format!("{} at port {}", session.remote.ip(), session.local.port()))
        .collect();
    let more = ended.len().saturating_sub(NAMED);
    let more = if more > 0 {
        format!(" and {more} more")
    } else {
        String::new()
    };
    format!(
        "a strict exit ends connections that came in by another interface: {}{more}; nothing is changed. \
         --exit-inbound keeps them; with --confirm 60s the change is made, and taken back unless `weft confirm` comes; these \
         connections may end all the same, so log in by the mesh for it",
        named.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_the_first_connections() {
        let session = |last: u8| Session {
            protocol: 6,
            local: "192.168.1.10:22".parse().unwrap(),
            remote: format!("192.0.2.{last}:50000").parse().unwrap(),
        };
        let sessions: Vec<Session> = (1..=5).map(session).collect();
        let text = refusal(&sessions);
        assert!(
            text.contains("interface: 192.0.2.1 at port 22, 192.0.2.2 at port 22, 192.0.2.3 at port 22 and 2 more;"),
            "{text}"
        );
        assert!(!refusal(&sessions[..1]).contains("more;"));
    }

    #[test]
    fn only_a_change_that_closes_ends_connections() {
        let config = |text: &str| Config::parse(text, Path::new("weft.toml")).unwrap();
        let strict = config("[tun]\nexit = \"nas\"\nexit_strict = true\n");
        let inbound = config("[tun]\nexit = \"nas\"\nexit_strict = true\nexit_inbound = true\n");
        let soft = config("[tun]\nexit = \"nas\"\n");
        for (before, after) in [(&strict, &strict), (&soft, &soft), (&soft, &inbound), (&strict, &soft)] {
            assert_eq!(sessions_that_end(before, after), []);
        }
    }
}
