//! This host as exit of others.

use weft_os::netlink::{Netlink, NetlinkError};

use super::{ExitError, Host, SetUp};
use crate::exit::ServeExit;
use crate::exit::nft::NftError;
use crate::exit::rules::{self, CLOSED, SERVE, family};
use crate::exit::saved;
use crate::interface::is_plain;

/// A table that keeps this host from forwarding for its neighbours.
#[derive(Debug)]
pub(super) struct Closed {
    /// The text that sets it up.
    text: String,
    /// The table, as nft(8) prints it.
    listed: String,
}

impl Host {
    /// Forwards for other nodes, in place of what it forwarded before. Forwarding that this switches on
    /// stays on, and what it switches on for others, too, is closed.
    ///
    /// # Errors
    /// [`ExitError`]; then nothing is forwarded for other nodes.
    pub async fn serve_exit(&mut self, exit: &ServeExit) -> Result<(), ExitError> {
        let result = self.try_serve(exit).await;
        match &result {
            Ok(()) => self.served = Some(exit.clone()),
            Err(_) => drop(self.stop_serving().await),
        }
        result
    }

    pub(super) async fn try_serve(&mut self, exit: &ServeExit) -> Result<(), ExitError> {
        let tun = self.name()?;
        // What shall not be forwarded is refused before anything is.
        for ipv6 in carried(exit) {
            self.close(ipv6, &tun).await?;
        }
        let table = self.install(SERVE, &rules::serving(exit, &tun)).await?;
        for ipv6 in carried(exit).filter(|ipv6| !saved::forwards(*ipv6)) {
            saved::forward(ipv6)?;
        }
        self.serving = SetUp {
            table,
            ..SetUp::default()
        };
        Ok(())
    }

    /// Whether everything is there that this host needs as exit.
    pub(super) async fn serves(&mut self, exit: &ServeExit) -> Result<bool, ExitError> {
        for ipv6 in carried(exit) {
            let listed = self.listed(ipv6).await?;
            let closed = self.closed[usize::from(ipv6)].as_ref();
            if !saved::forwards(ipv6) || closed.is_some_and(|closed| listed.as_ref() != Some(&closed.listed)) {
                return Ok(false);
            }
        }
        let found = self.look(SERVE, false).await?;
        Ok(found.is_some_and(|found| found.is(&self.serving)))
    }

    /// Closes this host for its neighbours before it begins to forward an IP version, and again if another
    /// program has removed that. A host that forwards already is left as it is.
    async fn close(&mut self, ipv6: bool, tun: &str) -> Result<(), ExitError> {
        let listed = self.listed(ipv6).await?;
        let before = self.closed[usize::from(ipv6)].as_ref();
        let text = match (before, listed) {
            (Some(closed), listed) if listed.as_ref() == Some(&closed.listed) => return Ok(()),
            (Some(closed), _) => closed.text.clone(),
            // An earlier process has left it.
            (None, Some(listed)) => {
                let text = rules::closed_again(ipv6, &listed);
                self.closed[usize::from(ipv6)] = Some(Closed { text, listed });
                return Ok(());
            }
            (None, None) if !saved::forwards(ipv6) => rules::closed(ipv6, tun, &outside()?),
            (None, None) => return Ok(()),
        };
        self.nft.run(&["-f", "-"], &text).await?;
        let listed = self.listed(ipv6).await?.unwrap_or_default();
        self.closed[usize::from(ipv6)] = Some(Closed { text, listed });
        Ok(())
    }

    /// The table of [`rules::closed`], as nft(8) prints it; `None` if there is none.
    async fn listed(&mut self, ipv6: bool) -> Result<Option<String>, ExitError> {
        let family = family(ipv6);
        match self
            .nft
            .run(&["--stateless", "list", "table", family, CLOSED], "")
            .await
        {
            Err(NftError::Refused(_)) => Ok(None),
            listed => Ok(Some(listed?)),
        }
    }

    /// Forwards nothing for other nodes any longer. Does nothing if there is nothing to put back. What
    /// keeps this host closed stays as long as it forwards.
    ///
    /// # Errors
    /// [`ExitError`], after as much as possible is put back.
    pub async fn stop_serving(&mut self) -> Result<(), ExitError> {
        self.served = None;
        self.serving = SetUp::default();
        self.closed = [None, None];
        let mut text = String::new();
        if self.has(SERVE).await? {
            text.push_str(&rules::without(SERVE));
        }
        for ipv6 in [false, true] {
            if !saved::forwards(ipv6) && self.listed(ipv6).await.is_ok_and(|listed| listed.is_some()) {
                text.push_str(&rules::no_table(ipv6));
            }
        }
        if !text.is_empty() {
            self.nft.run(&["-f", "-"], &text).await?;
        }
        Ok(())
    }

    /// Whether there is a table; false without nft(8).
    async fn has(&mut self, table: &str) -> Result<bool, ExitError> {
        match self.look(table, false).await {
            Err(ExitError::Nft(NftError::NoProgram)) => Ok(false),
            found => Ok(found?.is_some()),
        }
    }
}

/// The IP versions that an exit forwards: whether each is IPv6.
fn carried(exit: &ServeExit) -> impl Iterator<Item = bool> + use<> {
    let wanted = [(false, exit.ipv4), (true, exit.ipv6)];
    wanted.into_iter().filter(|(_, carried)| *carried).map(|(ipv6, _)| ipv6)
}

/// The names of the interfaces that there are before this host forwards: none of them is that of a container,
/// whose program would have switched forwarding on.
fn outside() -> Result<Vec<String>, NetlinkError> {
    let all = Netlink::open()?.interfaces()?;
    let others = all.into_iter().filter(|link| !link.loopback && is_plain(&link.name));
    Ok(others.map(|link| link.name).collect())
}
