//! Names for members that use this node as exit: their queries, at a port of its addresses in the mesh, go
//! to the servers that programs of this host ask.
//!
//! It follows the system: a server on loopback, one of IPv6, one that comes late, another one by DHCP. Names
//! of private networks are not answered here. A member asks its own node for those, and the networks of
//! this one are not its concern.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;
use weft_os::process::give_up_nice;
use weft_wire::internet::EXIT_NAMES;

use super::forward::Forwarder;
use super::server::{Clients, Endpoint, Shared};
use super::servers::SystemServers;
use crate::broker::Client;
use crate::interface::plain_name;

/// The pause before an address is bound again that could not be: the interface may not have it yet.
const AGAIN: Duration = Duration::from_secs(1);

/// The addresses at which members ask, each with the reason if they cannot.
type Places = Arc<Mutex<BTreeMap<IpAddr, Option<String>>>>;

/// Answers members while this node is an exit, in a thread of its own.
#[derive(Debug)]
pub struct ExitNames {
    interface: u32,
    shared: Arc<Shared>,
    forwarder: Arc<Forwarder>,
    places: Places,
    running: Option<Running>,
}

#[derive(Debug)]
struct Running {
    addresses: watch::Sender<BTreeSet<IpAddr>>,
    thread: JoinHandle<()>,
}

impl ExitNames {
    /// Does not answer yet. `interface`: the index of the interface of weft. `broker`: why there is none.
    #[must_use]
    pub fn new(interface: u32, broker: Result<Client, String>) -> Self {
        Self {
            interface,
            shared: Arc::default(),
            forwarder: Arc::new(Forwarder::of_system(SystemServers::new(broker), false)),
            places: Places::default(),
            running: None,
        }
    }

    /// Answers at these addresses, and at no others.
    ///
    /// # Errors
    /// The system starts no thread.
    pub fn set(&mut self, addresses: BTreeSet<IpAddr>) -> io::Result<()> {
        match &self.running {
            None if addresses.is_empty() => Ok(()),
            None => {
                self.running = Some(self.start(addresses)?);
                Ok(())
            }
            Some(_) if addresses.is_empty() => {
                self.stop();
                Ok(())
            }
            Some(running) => {
                running.addresses.send_replace(addresses);
                Ok(())
            }
        }
    }

    fn start(&self, addresses: BTreeSet<IpAddr>) -> io::Result<Running> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (addresses, wanted) = watch::channel(addresses);
        let server = Server {
            interface: self.interface,
            shared: Arc::clone(&self.shared),
            forwarder: Arc::clone(&self.forwarder),
            places: Arc::clone(&self.places),
        };
        let serve = move || {
            // Only lanes keep the right to raise their priority.
            let _ = give_up_nice();
            runtime.block_on(server.follow(wanted));
        };
        let thread = thread::Builder::new().name("weft-exit-dns".to_owned()).spawn(serve)?;
        Ok(Running { addresses, thread })
    }

    fn stop(&mut self) {
        if let Some(Running { addresses, thread }) = self.running.take() {
            drop(addresses);
            let _ = thread.join();
        }
        self.places.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Why members get no answer at an address; `None` if they get one at each.
    #[must_use]
    pub fn failed(&self) -> Option<String> {
        let places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        let mut failed = places
            .iter()
            .filter_map(|(ip, why)| Some((SocketAddr::new(*ip, EXIT_NAMES), why.as_ref()?)));
        failed.next().map(|(at, why)| format!("{at}: {why}"))
    }

    /// Results of the queries of members since the start, by name.
    pub fn counters(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let [(_, answered), (_, failed), (_, turned_away)] = self.forwarder.counters.named();
        [
            ("dns_exit_answered", answered),
            ("dns_exit_failed", failed),
            ("dns_exit_turned_away", turned_away),
        ]
        .into_iter()
    }
}

impl Drop for ExitNames {
    fn drop(&mut self) {
        self.stop();
    }
}

/// What the thread has.
struct Server {
    interface: u32,
    shared: Arc<Shared>,
    forwarder: Arc<Forwarder>,
    places: Places,
}

impl Server {
    /// Serves the addresses that are wanted, until none is wanted.
    async fn follow(self, mut wanted: watch::Receiver<BTreeSet<IpAddr>>) {
        let mut served: BTreeMap<IpAddr, JoinSet<()>> = BTreeMap::new();
        loop {
            let addresses = wanted.borrow_and_update().clone();
            served.retain(|ip, _| addresses.contains(ip));
            let mut places = BTreeMap::new();
            for ip in addresses {
                let bound = match served.contains_key(&ip) {
                    true => Ok(()),
                    false => self.serve(ip).map(|tasks| drop(served.insert(ip, tasks))),
                };
                places.insert(ip, bound.err().map(|error| error.to_string()));
            }
            let again = places.values().any(Option::is_some);
            *self.places.lock().unwrap_or_else(PoisonError::into_inner) = places;
            tokio::select! {
                changed = wanted.changed() => if changed.is_err() { return },
                () = sleep(AGAIN), if again => {}
            }
        }
    }

    fn serve(&self, ip: IpAddr) -> io::Result<JoinSet<()>> {
        let interface = plain_name(self.interface).ok().flatten();
        let interface = interface.ok_or_else(|| io::Error::other("the interface of weft has gone"))?;
        let endpoint = Endpoint::bind(SocketAddr::new(ip, EXIT_NAMES))?.only_by(&interface)?;
        let mut tasks = JoinSet::new();
        endpoint.serve(&mut tasks, &self.shared, Clients::Members(Arc::clone(&self.forwarder)))?;
        Ok(tasks)
    }
}
