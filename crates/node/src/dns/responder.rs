//! The thread that answers queries.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU16;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::sleep;
use weft_noise::PublicKey;
use weft_os::process::give_up_nice;

use super::resolved::{self, RegisterError, Resolved};
use super::server::{Endpoint, Shared};
use super::zone::{DOMAIN, Zone};
use crate::broker::Client;
use crate::status::{DnsState, DnsStatus};

/// The delay before the next attempt after the registration failed: the system may still be
/// starting.
const FIRST_RETRY: Duration = Duration::from_secs(5);
const LAST_RETRY: Duration = Duration::from_secs(300);

/// The parameters of a responder.
#[derive(Debug)]
pub struct Setup {
    /// The names that it answers.
    pub zone: Zone,
    /// The addresses on which it answers: loopback.
    pub endpoints: Vec<Endpoint>,
    /// The addresses that could not be bound, each with the reason.
    pub failed: Vec<String>,
    /// The public key of this node.
    pub me: PublicKey,
    /// The broker that configures the system's resolver, or the reason why the resolver is not
    /// configured.
    pub system: Result<Client, RegisterError>,
}

/// A thread that answers queries for names until this value is dropped. It is a separate thread, so
/// that a flood of queries does not take time from others.
#[derive(Debug)]
pub struct Responder {
    shared: Arc<Shared>,
    status: Arc<Mutex<DnsStatus>>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Responder {
    /// Starts the thread, unless there is no address to listen on.
    ///
    /// # Errors
    /// If the system cannot start a thread.
    pub fn start(setup: Setup) -> io::Result<Self> {
        let Setup {
            zone,
            endpoints,
            failed,
            me,
            system,
        } = setup;
        let listen: Vec<SocketAddr> = endpoints.iter().map(Endpoint::address).collect();
        let status = Arc::new(Mutex::new(DnsStatus {
            state: if listen.is_empty() {
                DnsState::Failed
            } else {
                DnsState::Local
            },
            why: failed.join("; "),
            listen,
        }));
        let shared = Arc::new(Shared::new(zone));
        let mut responder = Self {
            shared: Arc::clone(&shared),
            status: Arc::clone(&status),
            stop: None,
            thread: None,
        };
        let Some(port) = endpoints.first().map(|endpoint| endpoint.address().port()) else {
            return Ok(responder);
        };
        let way = Way {
            server: SocketAddr::new(IpAddr::V6(me.node_addr().to_ipv6()), port),
            failed,
            status,
        };
        way.say(DnsState::Local, "being set up in the system");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (stop, stopped) = oneshot::channel();
        let serve = move || {
            // Only lanes keep the right to raise their priority.
            let _ = give_up_nice();
            runtime.block_on(async {
                let mut tasks = JoinSet::new();
                for endpoint in endpoints {
                    let address = endpoint.address();
                    if let Err(error) = endpoint.serve(&mut tasks, &shared, None) {
                        tracing::warn!(%error, %address, "DNS: not served");
                    }
                }
                tokio::select! {
                    () = way.keep(&mut tasks, &shared, system) => {}
                    // Stopped, or the handle that could stop it was dropped.
                    _ = stopped => {}
                }
            });
        };
        responder.stop = Some(stop);
        responder.thread = Some(thread::Builder::new().name("weft-dns".to_owned()).spawn(serve)?);
        Ok(responder)
    }

    /// Returns the status of names.
    #[must_use]
    pub fn status(&self) -> DnsStatus {
        self.status.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces the names that it answers.
    pub fn set_zone(&self, zone: Zone) {
        self.shared.set_zone(zone);
    }

    /// Results of queries since the start, by name.
    pub fn counters(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.shared.counters.named().into_iter()
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The path from the system's resolver to this node.
struct Way {
    /// The node's address in the mesh, and the port. systemd-resolved sends the queries of an
    /// interface out of that interface. Before version 252.3 it did so with loopback addresses too,
    /// which are unreachable there.
    server: SocketAddr,
    failed: Vec<String>,
    status: Arc<Mutex<DnsStatus>>,
}

impl Way {
    /// Registers with the system, again until it succeeds, and keeps the status current. Never
    /// ends.
    async fn keep(&self, tasks: &mut JoinSet<()>, shared: &Arc<Shared>, system: Result<Client, RegisterError>) {
        let broker = match system {
            Ok(broker) => broker,
            Err(why) => {
                self.say(
                    DnsState::Local,
                    &format!("the system's resolver does not ask weft: {why}"),
                );
                return std::future::pending().await;
            }
        };
        let mut pause = FIRST_RETRY;
        let mut endpoint_is_served = false;
        while let Err(why) = self.set_up(tasks, shared, &broker, &mut endpoint_is_served).await {
            tracing::debug!(%why, "DNS: not set up in the system");
            self.say(
                DnsState::Local,
                &format!("the system's resolver does not ask weft: {why}"),
            );
            sleep(pause).await;
            pause = (pause * 2).min(LAST_RETRY);
        }
        tracing::info!("names below .{DOMAIN} are set up in systemd-resolved");
        loop {
            if resolved::is_asked() {
                self.say(DnsState::System, "set up in systemd-resolved");
            } else {
                self.say(
                    DnsState::Local,
                    "set up in systemd-resolved, which programs here do not ask: see /etc/resolv.conf",
                );
            }
            sleep(LAST_RETRY).await;
        }
    }

    async fn set_up(
        &self,
        tasks: &mut JoinSet<()>,
        shared: &Arc<Shared>,
        broker: &Client,
        endpoint_is_served: &mut bool,
    ) -> Result<(), RegisterError> {
        if !Resolved::is_running() {
            return Err(RegisterError::NotRunning);
        }
        if !*endpoint_is_served {
            // The mesh reaches this address as well. Packets from the mesh have source addresses of
            // other nodes; packets of this host have this one.
            Endpoint::bind(self.server)
                .and_then(|endpoint| endpoint.serve(tasks, shared, Some(self.server.ip())))
                .map_err(|error| RegisterError::Bind {
                    address: self.server,
                    why: error.to_string(),
                })?;
            *endpoint_is_served = true;
        }
        let port = NonZeroU16::new(self.server.port()).ok_or_else(|| RegisterError::Broker("no port".to_owned()))?;
        broker.set_resolver(port).await.map_err(RegisterError::Broker)
    }

    /// Sets the reason in the status, behind the addresses on which the responder answers.
    fn say(&self, state: DnsState, what: &str) {
        let mut status = self.status.lock().unwrap_or_else(PoisonError::into_inner);
        let listen: Vec<String> = status.listen.iter().map(ToString::to_string).collect();
        let mut parts = vec![format!("answered on {}", listen.join(", ")), what.to_owned()];
        parts.extend(self.failed.iter().cloned());
        status.state = state;
        status.why = parts.join("; ");
    }
}

/// The status if names are disabled.
#[must_use]
pub fn off() -> DnsStatus {
    DnsStatus {
        state: DnsState::Off,
        why: "turned off in the configuration".to_owned(),
        listen: Vec::new(),
    }
}
