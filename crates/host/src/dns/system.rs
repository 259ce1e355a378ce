//! The path from the system's resolver to this node: its set-up in systemd-resolved, or in
//! resolv.conf(5).

use std::collections::VecDeque;
use std::fs::{self, Metadata};
use std::io;
use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::os::unix::fs::MetadataExt as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use weft_os::socket::interface_index;

use super::forward::Forwarder;
use super::resolv_conf::{self, ResolvConf};
use super::resolved::{self, RegisterError, Resolved};
use super::search::Search;
use super::server::{Clients, Endpoint, Shared};
use super::zone::{DOMAIN, NETWORKS};
use crate::broker::Client;
use crate::dns::{DnsState, DnsStatus};

/// The delay before the next attempt after the registration failed: the system may still be
/// starting.
const FIRST_RETRY: Duration = Duration::from_secs(1);
const LAST_RETRY: Duration = Duration::from_secs(30);
/// How often the daemon looks at the files of systemd-resolved.
const LOOK: Duration = Duration::from_secs(1);
/// How often it has the settings read back, whatever the files say.
const READ_BACK: Duration = Duration::from_secs(10);
/// How often it tries again to replace a resolv.conf(5) that cannot be replaced.
const FILE_RETRY: Duration = Duration::from_secs(300);

/// How often the daemon looks whether another program has replaced resolv.conf.
const POLL: Duration = Duration::from_secs(2);
/// How often another program may replace it within [`REPLACED_WITHIN`] until it is left to that
/// program.
const MAX_REPLACED: usize = 5;
const REPLACED_WITHIN: Duration = Duration::from_secs(60);
/// How long the end of the daemon waits until the former file is back. The broker puts it back as well
/// when it ends.
const RELEASE: Duration = Duration::from_secs(1);

/// The resolver of this system.
#[derive(Debug)]
pub enum System {
    /// systemd-resolved.
    Resolved,
    /// The C library alone, by a file that this node replaces.
    File {
        /// The file.
        file: ResolvConf,
        /// The address that the file is to name, [`resolv_conf::SERVER`].
        endpoint: Endpoint,
        /// Names are set up in systemd-resolved once the file leads there. Never for a file that the
        /// configuration names: it may be that of another network namespace, where systemd-resolved
        /// has another interface under the index of this node's.
        may_change: bool,
    },
}

impl System {
    /// The address that the file is to name.
    pub(super) fn endpoint(&self) -> Option<&Endpoint> {
        match self {
            Self::Resolved => None,
            Self::File { endpoint, .. } => Some(endpoint),
        }
    }
}

/// The path from the system's resolver to this node.
pub(super) struct Way {
    /// The node's address in the mesh, and the port. systemd-resolved sends the queries of an
    /// interface out of that interface. Before version 252.3 it did so with loopback addresses too,
    /// which are unreachable there.
    pub(super) server: SocketAddr,
    /// The index of the node's interface.
    pub(super) interface: u32,
    /// The networks below which names without a dot are looked up.
    pub(super) networks: watch::Receiver<Search>,
    pub(super) forwarder: Arc<Forwarder>,
    pub(super) failed: Vec<String>,
    pub(super) status: Arc<Mutex<DnsStatus>>,
}

impl Way {
    /// Sets the system's resolver up and keeps it and the status current. Never ends.
    pub(super) async fn keep(
        &mut self,
        tasks: &mut JoinSet<()>,
        shared: &Arc<Shared>,
        system: Result<(System, Client), RegisterError>,
    ) {
        match system {
            Ok((System::Resolved, broker)) => self.keep_resolved(tasks, shared, &broker).await,
            Ok((
                System::File {
                    file,
                    endpoint,
                    may_change,
                },
                broker,
            )) => {
                let address = endpoint.address();
                let clients = Clients::Host(Arc::clone(&self.forwarder));
                if let Err(error) = endpoint.serve(tasks, shared, clients) {
                    tracing::warn!(%error, %address, "DNS: not served");
                }
                if self.keep_file(&file, &broker, may_change).await == Kept::Resolved {
                    self.keep_resolved(tasks, shared, &broker).await;
                }
            }
            Err(why) => self.say_not_asked(&why),
        }
        std::future::pending::<()>().await;
    }

    /// Puts the former resolv.conf back, if it was replaced.
    pub(super) async fn release(&self, broker: &Client) {
        if !matches!(timeout(RELEASE, broker.release_resolv_conf()).await, Ok(Ok(()))) {
            tracing::debug!("resolv.conf is left to the broker");
        }
    }

    /// Names this node in the file as long as no other program insists on its own text, and passes
    /// queries for other names on to the servers of the former text. Ends if it is left to that
    /// program, or belongs to systemd-resolved, which may start late.
    async fn keep_file(&mut self, file: &ResolvConf, broker: &Client, may_change: bool) -> Kept {
        let path = file.path().display();
        let mut replaced = VecDeque::new();
        let mut was_set_up = false;
        let mut last = None;
        loop {
            if may_change && is_resolved(file) {
                let _ = broker.release_resolv_conf().await;
                return Kept::Resolved;
            }
            let search = self.networks.borrow_and_update().clone();
            let taken = take(file, broker, &search).await;
            let seen = match taken {
                Ok((former, seen)) => {
                    self.say_file(file, &former);
                    if !std::mem::replace(&mut was_set_up, true) {
                        tracing::info!("names below .{DOMAIN} and .{NETWORKS} are set up in {path}");
                    }
                    seen
                }
                Err(why) => {
                    let why = format!("{why}; docs/names.md says how other resolvers lead here");
                    if last.as_ref() != Some(&why) {
                        tracing::info!("names are not set up in the system: {why}");
                    }
                    self.say_not_asked(&why);
                    last = Some(why);
                    was_set_up = false;
                    Seen::of(file)
                }
            };
            let retry = (!was_set_up).then_some(FILE_RETRY);
            if !self.wait_file(file, &seen, retry).await {
                continue;
            }
            // The first text of another program is one that was written before this node started.
            let now = Instant::now();
            replaced.push_back(now);
            while replaced
                .front()
                .is_some_and(|first| now.duration_since(*first) > REPLACED_WITHIN)
            {
                replaced.pop_front();
            }
            if was_set_up && replaced.len() > MAX_REPLACED {
                let _ = broker.release_resolv_conf().await;
                let why = format!(
                    "another program replaced {path} {} times within {} s, so it is left to that program",
                    replaced.len(),
                    REPLACED_WITHIN.as_secs()
                );
                tracing::warn!("{why}; set dns.resolv_conf to \"off\", or end that program and start weft again");
                self.say_not_asked(&why);
                self.status.lock().unwrap_or_else(PoisonError::into_inner).lost = true;
                return Kept::ByAnother;
            }
        }
    }

    /// Returns true when the file was replaced by another program; false when the networks change, when
    /// the former file does, and after `retry`.
    async fn wait_file(&mut self, file: &ResolvConf, seen: &Seen, retry: Option<Duration>) -> bool {
        let mut networks = self.networks.clone();
        let polled = async {
            loop {
                sleep(POLL).await;
                let now = Seen::of(file);
                if now.present != seen.present {
                    return true;
                }
                if now.former != seen.former || is_resolved(file) {
                    return false;
                }
            }
        };
        tokio::select! {
            replaced = polled => replaced,
            () = pause_for(retry) => false,
            () = changed(&mut networks) => false,
        }
    }

    fn say_file(&self, file: &ResolvConf, former: &str) {
        let servers = resolv_conf::upstreams(former, |name| interface_index(name).ok());
        let text: Vec<String> = servers.iter().map(|server| server.ip().to_string()).collect();
        let others = if text.is_empty() {
            "no server for other names".to_owned()
        } else {
            format!("other names from {}", text.join(", "))
        };
        self.forwarder.set_servers(servers);
        let path = file.path().display();
        self.say(DnsState::System, &format!("set up in {path}, with {others}"));
    }

    fn say_not_asked(&self, why: &impl std::fmt::Display) {
        self.say(
            DnsState::Local,
            &format!("the system's resolver does not ask weft: {why}"),
        );
    }

    /// Registers with systemd-resolved: until it succeeds, with each change of the networks, and when
    /// another program has taken the settings back. Never ends.
    async fn keep_resolved(&mut self, tasks: &mut JoinSet<()>, shared: &Arc<Shared>, broker: &Client) {
        let mut pause = FIRST_RETRY;
        let mut endpoint_is_served = false;
        let mut was_set_up = false;
        loop {
            let search = self.networks.borrow_and_update().clone();
            let set_up = self
                .set_up(tasks, shared, broker, &search, &mut endpoint_is_served)
                .await;
            let wait = match set_up {
                Ok(asked) => {
                    self.say_whether_asked(asked);
                    if !std::mem::replace(&mut was_set_up, true) {
                        tracing::info!("names below .{DOMAIN} and .{NETWORKS} are set up in systemd-resolved");
                    }
                    pause = FIRST_RETRY;
                    None
                }
                // It is looked at often, and costs nothing.
                Err(RegisterError::NotRunning) => {
                    self.say_not_asked(&RegisterError::NotRunning);
                    was_set_up = false;
                    Some(LOOK)
                }
                Err(why) => {
                    tracing::debug!(%why, "DNS: not set up in the system");
                    self.say_not_asked(&why);
                    was_set_up = false;
                    let now = pause;
                    pause = (now * 2).min(LAST_RETRY);
                    Some(now)
                }
            };
            let mut networks = self.networks.clone();
            tokio::select! {
                () = pause_for(wait) => {}
                () = self.lost(broker, &search), if wait.is_none() => {}
                () = changed(&mut networks) => {}
            }
        }
    }

    /// Returns when systemd-resolved has lost the settings, and says meanwhile whether programs ask it.
    async fn lost(&self, broker: &Client, search: &Search) {
        let Some(port) = NonZeroU16::new(self.server.port()) else {
            return std::future::pending().await;
        };
        let mut seen = resolved::stamp(self.interface);
        let mut read_back = Instant::now();
        loop {
            sleep(LOOK).await;
            // They change with the settings of other interfaces as well.
            let now = resolved::stamp(self.interface);
            if now == seen && read_back.elapsed() < READ_BACK {
                continue;
            }
            (seen, read_back) = (now, Instant::now());
            match broker.check_resolver(port, search.clone()).await {
                Ok(asked) => self.say_whether_asked(asked),
                Err(why) => {
                    tracing::warn!(
                        why,
                        "systemd-resolved has lost settings of the interface; they are set up again"
                    );
                    return;
                }
            }
        }
    }

    fn say_whether_asked(&self, asked: bool) {
        if asked {
            self.say(DnsState::System, "set up in systemd-resolved");
        } else {
            self.say(
                DnsState::Local,
                "set up in systemd-resolved, which programs here do not ask: see /etc/resolv.conf",
            );
        }
    }

    async fn set_up(
        &self,
        tasks: &mut JoinSet<()>,
        shared: &Arc<Shared>,
        broker: &Client,
        search: &Search,
        endpoint_is_served: &mut bool,
    ) -> Result<bool, RegisterError> {
        if !Resolved::is_running() {
            return Err(RegisterError::NotRunning);
        }
        if !*endpoint_is_served {
            // The mesh reaches this address as well. Packets from the mesh have source addresses of
            // other nodes; packets of this host have this one.
            Endpoint::bind(self.server)
                .and_then(|endpoint| endpoint.serve(tasks, shared, Clients::Only(self.server.ip())))
                .map_err(|error| RegisterError::Bind {
                    address: self.server,
                    why: error.to_string(),
                })?;
            *endpoint_is_served = true;
        }
        let port = NonZeroU16::new(self.server.port()).ok_or_else(|| RegisterError::Broker("no port".to_owned()))?;
        broker
            .set_resolver(port, search.clone())
            .await
            .map_err(RegisterError::Broker)
    }

    /// Sets the reason in the status, behind the addresses on which the responder answers.
    pub(super) fn say(&self, state: DnsState, what: &str) {
        let mut status = self.status.lock().unwrap_or_else(PoisonError::into_inner);
        let listen: Vec<String> = status.listen.iter().map(ToString::to_string).collect();
        let mut parts = vec![format!("answered on {}", listen.join(", ")), what.to_owned()];
        parts.extend(self.failed.iter().cloned());
        status.state = state;
        status.why = parts.join("; ");
    }
}

/// The reason why this node's text is not kept in the file any longer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kept {
    /// Another program insists on its own text.
    ByAnother,
    /// The file leads to systemd-resolved.
    Resolved,
}

/// Whether systemd-resolved runs, and the file leads there.
fn is_resolved(file: &ResolvConf) -> bool {
    Resolved::is_running() && file.is_of_resolved()
}

/// Ends after this time, or never.
async fn pause_for(time: Option<Duration>) {
    match time {
        Some(time) => sleep(time).await,
        None => std::future::pending().await,
    }
}

/// Ends when the networks change. Never ends if the responder was dropped: its thread is about to end.
async fn changed(networks: &mut watch::Receiver<Search>) {
    if networks.changed().await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// Has the broker write the file, until that changes nothing: then what was seen is what it wrote.
/// Returns the former text.
async fn take(file: &ResolvConf, broker: &Client, search: &Search) -> Result<(String, Seen), String> {
    const TRIES: usize = 4;
    let mut before = Seen::of(file);
    for _ in 0..TRIES {
        let former = broker.take_resolv_conf(search.clone()).await?;
        let after = Seen::of(file);
        if before == after {
            return Ok((former, after));
        }
        before = after;
    }
    Err(format!(
        "another program replaces {} at the same time",
        file.path().display()
    ))
}

/// What identifies the present file and the former one. The daemon may not read either: its right
/// belongs to the file that was there at its start, and not to one that takes its place.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    present: Option<Stamp>,
    /// That of the file that a link leads to.
    former: Option<Stamp>,
}

type Stamp = (u64, u64, u64, (i64, i64), (i64, i64));

impl Seen {
    fn of(file: &ResolvConf) -> Self {
        Self {
            present: stamp(fs::symlink_metadata(file.path())),
            former: stamp(fs::metadata(file.former())),
        }
    }
}

fn stamp(file: io::Result<Metadata>) -> Option<Stamp> {
    let file = file.ok()?;
    Some((
        file.dev(),
        file.ino(),
        file.len(),
        (file.mtime(), file.mtime_nsec()),
        (file.ctime(), file.ctime_nsec()),
    ))
}
