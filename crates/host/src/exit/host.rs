//! Carries exits out on this host, and puts everything back.

mod serving;
mod way;

use std::collections::BTreeSet;
use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use tokio::time::timeout;
use weft_os::netlink::{InetSocket, Netlink, NetlinkError, end_connections};
use weft_wire::internet::is_of_internet;

use self::serving::Closed;
use self::way::Way;
use super::around::Around;
use super::nft::{Nft, NftError};
use super::rules::{self, GROUP, TABLE, USE};
use super::saved::{self, Saved, SettingError};
use super::sessions::{Session, answered};
use super::{ServeExit, UseExit, tracked};
use crate::faults::packet_filter::Ruleset;
use crate::interface::plain_name;

/// How long a look at all rules may take.
const LOOK: Duration = Duration::from_secs(1);

/// The reason why an exit was not set up, or not put back. Its text is half a line for the user.
#[derive(Debug, thiserror::Error)]
pub enum ExitError {
    /// A table of nftables.
    #[error("{0}")]
    Nft(#[from] NftError),
    /// A route or a rule for routes.
    #[error("{0}")]
    Netlink(#[from] NetlinkError),
    /// A setting of the kernel.
    #[error("{0}")]
    Setting(#[from] SettingError),
    /// The note beside the configuration.
    #[error("{}: {_1}", _0.display())]
    Note(PathBuf, #[source] io::Error),
    /// The interface has gone, or its name has characters that rules cannot contain.
    #[error("the interface of weft cannot be named in rules")]
    Interface,
}

/// The state of this host, as far as exits change it.
#[derive(Debug)]
pub struct Host {
    interface: Interface,
    used: Option<UseExit>,
    served: Option<ServeExit>,
    /// What was set up for [`used`](Self::used) and [`served`](Self::served).
    using: SetUp,
    serving: SetUp,
    /// What the rules for [`used`](Self::used) name, and what leads packets to the exit.
    around: Around,
    way: Way,
    /// Packets went by the exit in this run of the daemon. Before, connections may be there that an earlier run has
    /// carried, and go on.
    has_led: bool,
    /// The connections that had come in when the exit was first used, or first let them be answered.
    sessions: Vec<Session>,
    /// What keeps this host from forwarding for its neighbours, for IPv4 and for IPv6.
    closed: [Option<Closed>; 2],
    nft: Nft,
}

/// The interface of weft.
#[derive(Debug)]
enum Interface {
    /// It is there, with this index.
    Present(u32),
    /// It is not there yet, and will have this name.
    Named(String),
}

/// What the system has once an exit is set up: the reference for what other programs leave of it.
#[derive(Debug, Default, PartialEq, Eq)]
struct SetUp {
    /// The former values of settings, which are in the table of nftables, too.
    saved: Saved,
    /// The table, as nft(8) prints it.
    table: String,
    /// The rules for routes, and the routes of the table of the exit.
    routes: (usize, usize),
}

impl Host {
    /// The host of a node with this interface, by its index.
    #[must_use]
    pub fn new(interface: u32) -> Self {
        Self::with(Interface::Present(interface))
    }

    /// The host of a node whose interface is not there; it will have this name.
    #[must_use]
    pub fn without_interface(name: String) -> Self {
        Self::with(Interface::Named(name))
    }

    fn with(interface: Interface) -> Self {
        Self {
            interface,
            used: None,
            served: None,
            using: SetUp::default(),
            serving: SetUp::default(),
            around: Around::default(),
            way: Way::default(),
            has_led: false,
            sessions: Vec::new(),
            closed: [None, None],
            nft: Nft::default(),
        }
    }

    /// Whether this host sends by an exit.
    #[must_use]
    pub const fn uses_exit(&self) -> bool {
        self.used.is_some()
    }

    /// Whether this host sends by an exit, or forwards for other nodes.
    #[must_use]
    pub const fn is_changed(&self) -> bool {
        self.used.is_some() || self.served.is_some()
    }

    /// Sets up again what another program has removed or changed: a restart of nftables.service
    /// removes all rules, one of systemd-networkd those for routes. Returns what that was, in words.
    /// What keeps packets in is never given up.
    ///
    /// # Errors
    /// [`ExitError`]; then it is worth another call, after a while.
    pub async fn mend(&mut self) -> Result<Option<&'static str>, ExitError> {
        match self.mend_all().await {
            // It went with its daemon, and a strict exit keeps packets in.
            Err(_) if self.is_without_interface() => Ok(None),
            mended => mended,
        }
    }

    fn is_without_interface(&self) -> bool {
        matches!(self.interface, Interface::Present(index) if plain_name(index).is_ok_and(|name| name.is_none()))
    }

    async fn mend_all(&mut self) -> Result<Option<&'static str>, ExitError> {
        let mut mended = None;
        if self.is_without_interface() {
            return Err(ExitError::Interface);
        }
        if let Some(exit) = self.used {
            let around = Around::read(&mut Netlink::open()?, self.index())?;
            let found = self.look(USE, true).await?;
            let is_whole = found.as_ref().is_some_and(|found| found.is(&self.using));
            let is_whole = is_whole && (exit.direct || saved::checks_sources());
            // The host has changed, as by a bridge that has gone, and nothing is lost.
            let is_expected = around != self.around || found.is_some_and(|found| self.lacks_bridges(&found));
            let filters = !exit.direct && saved::filters_questions();
            if !is_whole || is_expected || filters {
                self.try_use(&exit).await?;
            }
            mended = (!is_whole && !is_expected).then_some("what leads packets to the exit");
        }
        if let Some(exit) = self.served.clone()
            && !self.serves(&exit).await?
        {
            self.try_serve(&exit).await?;
            mended = Some("rules or settings of this host as exit");
        }
        Ok(mended)
    }

    /// Whether routes alone are missing, and no more than there are to bridges: they go with them.
    fn lacks_bridges(&self, found: &SetUp) -> bool {
        let (rules, routes) = self.using.routes;
        let missing = routes.saturating_sub(found.routes.1);
        found.table == self.using.table && found.routes.0 == rules && (1..=self.way.bridges()).contains(&missing)
    }

    /// Sends by an exit, in place of an earlier one.
    ///
    /// # Errors
    /// [`ExitError`]; then nothing is sent by an exit, and all is as before. What a strict exit has
    /// closed stays closed.
    pub async fn use_exit(&mut self, exit: &UseExit) -> Result<(), ExitError> {
        if exit.answers() && !self.used.is_some_and(|before| before.answers()) {
            self.sessions = answered(&exit.own().collect::<Vec<_>>()).unwrap_or_default();
        }
        let result = self.try_use(exit).await;
        if result.is_ok() || exit.strict {
            self.end_former(exit);
        } else {
            let _ = self.leave_exit(false).await;
        }
        result
    }

    /// Ends what went another way before packets went by this exit.
    fn end_former(&mut self, exit: &UseExit) {
        let before = self.used.replace(*exit);
        if let Some(before) = before {
            let lost: BTreeSet<IpAddr> = before.lost(exit).collect();
            tracked::forget_by_exit(&lost, &self.around.mesh);
            self.end_connections(&lost);
        }
        if exit.direct {
            tracked::forget_by_exit(&self.around.own, &self.around.mesh);
        } else if before != Some(*exit) {
            tracked::forget_before(exit, &self.around);
        }
    }

    /// Ends the connections by an exit under these addresses of this node, which it carries no longer: their programs
    /// get an error at once. The next exit knows nothing of them, and no packet may leave without it under an address
    /// of the mesh. Where the kernel ends no connections of others they time out.
    fn end_connections(&self, own: &BTreeSet<IpAddr>) {
        if own.is_empty() {
            return;
        }
        let in_mesh = |address: IpAddr| self.around.mesh.iter().any(|network| network.contains(address));
        let is_elsewhere = |remote: IpAddr| is_of_internet(remote) && !in_mesh(remote);
        let by_exit = |socket: &InetSocket| {
            own.contains(&socket.local.ip()) && socket.remote.is_some_and(|remote| is_elsewhere(remote.ip()))
        };
        let _ = end_connections(by_exit);
    }

    async fn try_use(&mut self, exit: &UseExit) -> Result<(), ExitError> {
        match exit.direct {
            true => self.send_directly().await,
            false => self.lead(exit).await,
        }
    }

    /// Packets leave without the exit, and none of them under an address of the mesh.
    async fn send_directly(&mut self) -> Result<(), ExitError> {
        let tun = self.name()?;
        let found = self.look(USE, false).await?;
        let saved = found.map_or_else(|| self.using.saved.clone(), |found| found.saved);
        self.stop_leading()?;
        saved.restore()?;
        let around = Around::read(&mut Netlink::open()?, self.index())?;
        let table = self.install(USE, &rules::direct(&tun, &around, self.has_led)).await?;
        self.around = around;
        self.using = SetUp {
            table,
            ..SetUp::default()
        };
        Ok(())
    }

    /// Leads packets to the exit.
    async fn lead(&mut self, exit: &UseExit) -> Result<(), ExitError> {
        let tun = self.name()?;
        let mut netlink = Netlink::open()?;
        if let Some(index) = self.index() {
            netlink.set_group(index, GROUP)?;
        }
        let around = Around::read(&mut netlink, self.index())?;
        let mut saved = match self.look(USE, false).await? {
            Some(found) => found.saved,
            None => self.using.saved.clone(),
        };
        saved.keep(saved::checks());
        self.using.saved = saved.clone();
        // Packets that must not leave are blocked before any others are routed to the exit.
        let rules = |refuses| rules::using(exit, &tun, &around, &self.sessions, &saved, refuses);
        let (first, rest) = (rules(self.has_led), (!self.has_led).then(|| rules(true)));
        let mut table = self.install(USE, &first).await?;
        saved::check_sources()?;
        let wanted = Way::of(exit, &around, self.index());
        let (routes, taken) = self.way.lead(&mut netlink, wanted, self.using.routes)?;
        if let Some(rest) = rest {
            table = self.install(USE, &rest).await?;
        }
        self.around = around;
        self.has_led = true;
        self.using = SetUp { saved, table, routes };
        taken.map_or(Ok(()), |error| Err(error.into()))
    }

    /// Sends by no exit any longer. Does nothing if there is nothing to put back. `ends`: connections of this host
    /// by it end. Those of IPv6 do in any case: the kernel sends their packets under an address that it has no longer.
    ///
    /// # Errors
    /// [`ExitError`], after as much as possible is put back.
    pub async fn leave_exit(&mut self, ends: bool) -> Result<(), ExitError> {
        let before = self.used.take();
        self.has_led = false;
        if !ends {
            // They go on if the exit is used again: none is reset by the rules before those are removed. Without a
            // table there is nothing to change.
            let _ = self.nft.run(&["-f", "-"], &rules::refuse_nothing()).await;
        }
        let routes = self.stop_leading();
        // New ones go another way by now, and the table still keeps in what these send.
        let left = self.look(USE, false).await.ok().flatten();
        if left.is_some() {
            // Otherwise the next query of a socket would be led to the exit again, for as long as it asks.
            let _ = self.nft.run(&["-f", "-"], &rules::translate_nothing()).await;
        }
        let mut own = left.map(|left| rules::own_addresses(&left.table)).unwrap_or_default();
        own.extend(before.iter().flat_map(UseExit::own));
        tracked::forget_by_exit(&own, &self.around.mesh);
        own.retain(|own| ends || own.is_ipv6());
        self.end_connections(&own);
        let saved = std::mem::take(&mut self.using).saved;
        self.remove(USE, saved).await?;
        Ok(routes?)
    }

    /// Removes what leads packets to an exit.
    fn stop_leading(&mut self) -> Result<(), NetlinkError> {
        self.way = Way::default();
        let mut netlink = Netlink::open()?;
        netlink.delete_rules(&rules::PRIORITIES)?;
        netlink.delete_routes_of(TABLE)?;
        match self.index().map(|index| netlink.set_group(index, 0)) {
            // The interface has gone.
            None | Some(Err(NetlinkError::NotFound { .. })) => Ok(()),
            Some(set) => set,
        }
    }

    /// Sends by no exit any longer, after a daemon that has ended. Returns whether its exit was strict.
    ///
    /// # Errors
    /// [`ExitError`], after as much as possible is put back.
    pub(super) async fn leave_left(&mut self) -> Result<bool, ExitError> {
        let table = match self.look(USE, true).await {
            Err(ExitError::Nft(NftError::NoProgram)) => None,
            found => found?,
        };
        let is_closed = table.is_some_and(|found| found.table.contains("policy drop"));
        let leads_nowhere = Netlink::open()?.leads_nowhere(TABLE)?;
        self.leave_exit(true).await?;
        Ok(is_closed || leads_nowhere)
    }

    /// Puts back what may end with the daemon: all, unless the exit is strict. A daemon that ends in
    /// order has left its exit before.
    pub async fn end(&mut self) {
        let _ = self.stop_serving().await;
        if self.used.is_some_and(|exit| !exit.strict) {
            let _ = self.leave_exit(false).await;
        }
    }

    /// All rules of nftables.
    ///
    /// # Errors
    /// The reason, as half a line for the user: nft(8) is missing, refuses, or takes more than a second.
    pub async fn ruleset(&mut self) -> Result<Ruleset, String> {
        let both = async {
            let document = self.nft.run(&["-j", "list", "ruleset"], "").await?;
            let text = match Ruleset::needs_text(&document) {
                true => self.nft.run(&["-a", "list", "ruleset"], "").await?,
                false => String::new(),
            };
            Ok((document, text))
        };
        let both: Result<_, NftError> = timeout(LOOK, both)
            .await
            .map_err(|_| format!("nft takes more than {} s to list all rules", LOOK.as_secs()))?;
        let (document, text) = both.map_err(|error| error.to_string())?;
        let document = serde_json::from_str(&document).map_err(|error| format!("nft: {error}"))?;
        Ok(Ruleset::parse(&document, &text))
    }

    /// Whether this process may be one of the last of nft(8) that this value has run.
    #[must_use]
    pub fn is_own(&self, name: &str, pid: u32) -> bool {
        self.nft.is_own(name, pid)
    }

    /// Sets up a table of nftables, and returns it as nft(8) prints it.
    async fn install(&mut self, table: &str, text: &str) -> Result<String, ExitError> {
        self.nft.run(&["-f", "-"], text).await?;
        Ok(self.look(table, false).await?.unwrap_or_default().table)
    }

    /// What the system has of an exit; `None` without its table. `routes`: rules for routes are counted.
    async fn look(&mut self, table: &str, routes: bool) -> Result<Option<SetUp>, ExitError> {
        let list = ["--stateless", "list", "table", "inet", table];
        let listed = match self.nft.run(&list, "").await {
            Err(NftError::Refused(_)) => return Ok(None),
            listed => listed?,
        };
        let routes = match routes {
            true => Netlink::open()?.count_rules_and_routes(&rules::PRIORITIES, TABLE)?,
            false => (0, 0),
        };
        Ok(Some(SetUp {
            saved: Saved::parse(&listed),
            table: listed,
            routes,
        }))
    }

    /// Writes the former values of settings back, and removes the table that keeps them. `saved`: those
    /// of a table that another program has removed.
    async fn remove(&mut self, table: &str, saved: Saved) -> Result<(), ExitError> {
        let found = match self.look(table, false).await {
            Err(ExitError::Nft(NftError::NoProgram)) => None,
            found => found?,
        };
        let Some(found) = found else {
            return Ok(saved.restore()?);
        };
        let restored = found.saved.restore();
        self.nft.run(&["-f", "-"], &rules::without(table)).await?;
        Ok(restored?)
    }

    /// The name of the interface.
    fn name(&self) -> Result<String, ExitError> {
        match &self.interface {
            Interface::Present(index) => plain_name(*index)?.ok_or(ExitError::Interface),
            Interface::Named(name) => Some(name.clone())
                .filter(|name| saved::is_plain(name))
                .ok_or(ExitError::Interface),
        }
    }

    const fn index(&self) -> Option<u32> {
        match &self.interface {
            Interface::Present(index) => Some(*index),
            Interface::Named(_) => None,
        }
    }
}

impl SetUp {
    /// Whether nothing is missing or different.
    fn is(&self, wanted: &Self) -> bool {
        self.table == wanted.table && self.routes == wanted.routes
    }
}
