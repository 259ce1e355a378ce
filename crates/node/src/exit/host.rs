//! Carries exits out on this host, and puts everything back.

use std::io;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;
use tokio::time::timeout;
use weft_os::netlink::{DefaultRoute, Netlink, NetlinkError};

use super::rules::{self, SERVE, TABLE, USE};
use super::saved::{self, CHECK_MARKS, Saved, SettingError};
use super::{ServeExit, UseExit};

/// Paths of nft(8), in the order in which they are tried.
const NFT: [&str; 4] = [
    "/usr/sbin/nft",
    "/sbin/nft",
    "/usr/bin/nft",
    "/run/current-system/sw/bin/nft",
];
/// How long one call of it may take.
const LIMIT: Duration = Duration::from_secs(10);

/// The reason why an exit was not set up, or not put back. Its text is half a line for the user.
#[derive(Debug, thiserror::Error)]
pub enum ExitError {
    /// nft(8) is missing.
    #[error("the program nft is not installed; it is in the package nftables")]
    NoProgram,
    /// nft(8) could not be run.
    #[error("nft cannot be run: {0}")]
    Run(#[source] io::Error),
    /// nft(8) ended with an error.
    #[error("nft said: {0}")]
    Refused(String),
    /// nft(8) did not end in time.
    #[error("nft took more than {} s", LIMIT.as_secs())]
    TooSlow,
    /// A route or a rule for routes.
    #[error("{0}")]
    Netlink(#[from] NetlinkError),
    /// A setting of the kernel.
    #[error("{0}")]
    Setting(#[from] SettingError),
    /// The interface has gone, or its name has characters that rules cannot contain.
    #[error("the interface of weft cannot be named in rules")]
    Interface,
}

/// The state of this host, as far as exits change it.
#[derive(Debug)]
pub struct Host {
    /// The index of the interface.
    interface: u32,
    used: Option<UseExit>,
}

impl Host {
    /// The host of a node with this interface, by its index.
    #[must_use]
    pub const fn new(interface: u32) -> Self {
        Self { interface, used: None }
    }

    /// Sends by an exit, in place of an earlier one.
    ///
    /// # Errors
    /// [`ExitError`]; then nothing is sent by an exit, and all is as before. What a strict exit has
    /// closed stays closed.
    pub async fn use_exit(&mut self, exit: &UseExit) -> Result<(), ExitError> {
        let result = self.try_use(exit).await;
        if result.is_ok() || exit.strict {
            self.used = Some(*exit);
        } else {
            let _ = self.leave_exit().await;
        }
        result
    }

    async fn try_use(&self, exit: &UseExit) -> Result<(), ExitError> {
        let tun = self.name()?;
        let mut saved = saved_by(USE).await?;
        saved.keep([CHECK_MARKS.to_owned()]);
        // What shall not leave is kept in before anything is led elsewhere.
        nft(&["-f", "-"], &rules::using(exit, &tun, &saved)).await?;
        saved::check_marks()?;
        let mut netlink = Netlink::open()?;
        netlink.delete_routes_of(TABLE)?;
        let by_tun = DefaultRoute::Interface(self.interface, exit.source);
        for (ipv6, carried) in [(false, exit.ipv4), (true, exit.ipv6)] {
            let routes = [carried.then_some(by_tun), Some(DefaultRoute::Unreachable)];
            for route in routes.into_iter().flatten() {
                match netlink.add_default_route(TABLE, ipv6, route) {
                    // A host without IPv6 sends none.
                    Err(NetlinkError::Refused { .. }) if ipv6 => {}
                    added => added?,
                }
            }
        }
        netlink.delete_rules()?;
        for rule in rules::routes(exit) {
            match netlink.add_rule(rule) {
                Err(NetlinkError::Refused { .. }) if rule.ipv6 => {}
                added => added?,
            }
        }
        Ok(())
    }

    /// Sends by no exit any longer. Does nothing if there is nothing to put back.
    ///
    /// # Errors
    /// [`ExitError`], after as much as possible is put back.
    pub async fn leave_exit(&mut self) -> Result<(), ExitError> {
        self.used = None;
        let routes = || -> Result<(), NetlinkError> {
            let mut netlink = Netlink::open()?;
            netlink.delete_rules()?;
            netlink.delete_routes_of(TABLE)
        };
        let routes = routes();
        remove(USE).await?;
        Ok(routes?)
    }

    /// Forwards for other nodes, in place of what it forwarded before.
    ///
    /// # Errors
    /// [`ExitError`]; then nothing is forwarded for them, and all is as before.
    pub async fn serve_exit(&self, exit: &ServeExit) -> Result<(), ExitError> {
        let result = self.try_serve(exit).await;
        if result.is_err() {
            let _ = self.stop_serving().await;
        }
        result
    }

    async fn try_serve(&self, exit: &ServeExit) -> Result<(), ExitError> {
        let tun = self.name()?;
        let mut saved = saved_by(SERVE).await?;
        let wanted = [(false, exit.ipv4), (true, exit.ipv6)];
        let carried = wanted.into_iter().filter(|(_, carried)| *carried).map(|(ipv6, _)| ipv6);
        let mut closed = [false; 2];
        for ipv6 in carried.clone() {
            let name = saved::switch(ipv6);
            let was_off = saved.value(name).map_or(!saved::forwards(ipv6), |value| value == "0");
            if let (true, Some(closed)) = (was_off, closed.get_mut(usize::from(ipv6))) {
                *closed = true;
                saved.keep(saved::of_forwarding(ipv6));
            }
        }
        // What shall not be forwarded is refused before anything is.
        nft(&["-f", "-"], &rules::serving(exit, &tun, closed, &saved)).await?;
        for ipv6 in carried.filter(|ipv6| !saved::forwards(*ipv6)) {
            saved::forward(ipv6)?;
        }
        Ok(())
    }

    /// Forwards nothing for other nodes any longer. Does nothing if there is nothing to put back.
    ///
    /// # Errors
    /// [`ExitError`], after as much as possible is put back.
    pub async fn stop_serving(&self) -> Result<(), ExitError> {
        remove(SERVE).await
    }

    /// Puts back what may end with the daemon: all, unless the exit is strict. A daemon that ends in
    /// order has left its exit before.
    pub async fn end(&mut self) {
        let _ = self.stop_serving().await;
        if self.used.is_some_and(|exit| !exit.strict) {
            let _ = self.leave_exit().await;
        }
    }

    /// The name of the interface.
    fn name(&self) -> Result<String, ExitError> {
        let interfaces = Netlink::open()?.interfaces()?;
        let own = interfaces
            .into_iter()
            .find(|interface| interface.index == self.interface);
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        own.map(|own| own.name)
            .filter(|name| name.chars().all(plain))
            .ok_or(ExitError::Interface)
    }
}

/// The former values that a table keeps; none without the table.
async fn saved_by(table: &str) -> Result<Saved, ExitError> {
    match nft(&["list", "table", "inet", table], "").await {
        Ok(listed) => Ok(Saved::parse(&listed)),
        Err(ExitError::Refused(_)) => Ok(Saved::default()),
        Err(error) => Err(error),
    }
}

/// Writes the former values of settings back that a table keeps, and removes the table.
async fn remove(table: &str) -> Result<(), ExitError> {
    let listed = match nft(&["list", "table", "inet", table], "").await {
        // It was never set up.
        Err(ExitError::Refused(_) | ExitError::NoProgram) => return Ok(()),
        listed => listed?,
    };
    let restored = Saved::parse(&listed).restore();
    nft(&["-f", "-"], &rules::without(table)).await?;
    Ok(restored?)
}

/// Runs nft(8) with this input; returns what it printed.
async fn nft(arguments: &[&str], input: &str) -> Result<String, ExitError> {
    let program = NFT
        .into_iter()
        .find(|path| Path::new(path).exists())
        .ok_or(ExitError::NoProgram)?;
    let mut child = Command::new(program)
        .args(arguments)
        .env_clear()
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(ExitError::Run)?;
    let stdin = child.stdin.take();
    let exchange = async {
        if let Some(mut stdin) = stdin {
            // If it ends early, what it printed says why.
            let _ = stdin.write_all(input.as_bytes()).await;
        }
        child.wait_with_output().await
    };
    let output = timeout(LIMIT, exchange).await.map_err(|_| ExitError::TooSlow)?;
    let output = output.map_err(ExitError::Run)?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(ExitError::Refused(said.lines().next().unwrap_or("nothing").to_owned()))
}
