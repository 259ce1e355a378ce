//! The thread that answers queries.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;
use weft_noise::PublicKey;
use weft_os::process::give_up_nice;

use super::forward::Forwarder;
use super::probe::LoopProbe;
use super::resolved::RegisterError;
use super::search::Search;
use super::server::{Clients, Endpoint, Shared};
use super::system::{System, Way};
use super::zone::Zone;
use crate::broker::Client;
use crate::dns::{DnsState, DnsStatus};

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
    /// The index of its interface.
    pub interface: u32,
    /// The system's resolver and the broker that configures it, or the reason why it is not
    /// configured.
    pub system: Result<(System, Client), RegisterError>,
}

/// A thread that answers queries for names until this value is dropped. It is a separate thread, so
/// that a flood of queries does not take time from others.
#[derive(Debug)]
pub struct Responder {
    shared: Arc<Shared>,
    status: Arc<Mutex<DnsStatus>>,
    forwarder: Arc<Forwarder>,
    search: watch::Sender<Search>,
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
            interface,
            system,
        } = setup;
        let file = system.as_ref().ok().and_then(|(system, _)| system.endpoint());
        let listen: Vec<SocketAddr> = endpoints.iter().chain(file).map(Endpoint::address).collect();
        let status = Arc::new(Mutex::new(DnsStatus {
            state: if listen.is_empty() {
                DnsState::Failed
            } else {
                DnsState::Local
            },
            why: failed.join("; "),
            listen,
            lost: false,
        }));
        let (search, networks) = watch::channel(Search::new(zone.networks()));
        let shared = Arc::new(Shared::new(zone));
        let mut responder = Self {
            shared: Arc::clone(&shared),
            status: Arc::clone(&status),
            forwarder: Arc::default(),
            search,
            stop: None,
            thread: None,
        };
        let Some(port) = responder.status().listen.first().map(SocketAddr::port) else {
            return Ok(responder);
        };
        let mut way = Way {
            server: SocketAddr::new(IpAddr::V6(me.node_addr().to_ipv6()), port),
            interface,
            networks,
            forwarder: Arc::clone(&responder.forwarder),
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
                    if let Err(error) = endpoint.serve(&mut tasks, &shared, Clients::All) {
                        tracing::warn!(%error, %address, "DNS: not served");
                    }
                }
                let release = match &system {
                    Ok((System::File { .. }, broker)) => Some(broker.clone()),
                    _ => None,
                };
                tokio::select! {
                    () = way.keep(&mut tasks, &shared, system) => {}
                    // Stopped, or the handle that could stop it was dropped.
                    _ = stopped => {}
                }
                // Queries are answered until the system asks elsewhere.
                if let Some(broker) = release {
                    way.release(&broker).await;
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

    /// Replaces the names that it answers, and the networks below which the system looks up names
    /// without a dot.
    pub fn set_zone(&self, zone: Zone) {
        let search = Search::new(zone.networks());
        self.search.send_if_modified(|old| {
            let differs = *old != search;
            *old = search;
            differs
        });
        self.shared.set_zone(zone);
    }

    /// A probe of the servers to which it passes queries on.
    #[must_use]
    pub fn loop_probe(&self) -> LoopProbe {
        LoopProbe {
            shared: Arc::clone(&self.shared),
            forwarder: Arc::clone(&self.forwarder),
        }
    }

    /// Results of queries since the start, by name.
    pub fn counters(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let own = self.shared.counters.named().into_iter();
        own.chain(self.forwarder.counters.named())
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

/// The status if names are disabled.
#[must_use]
pub fn off() -> DnsStatus {
    DnsStatus {
        state: DnsState::Off,
        why: "turned off in the configuration".to_owned(),
        listen: Vec::new(),
        lost: false,
    }
}
