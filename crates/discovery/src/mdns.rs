//! mDNS and DNS-SD (RFC 6762, RFC 6763): services that are announced in the LAN, and those that others
//! announce there.
//!
//! The library `mdns-sd` has a thread of its own with its sockets on port 5353, which it shares with
//! other responders of the host. What it finds comes out of [`Mdns::next`]; nothing here blocks.
//!
//! Never here: what the entries of a record mean (weft-reach), and which address is dialled.

use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::thread;
use std::time::Duration;

use mdns_sd::{DaemonStatus, IfKind, ResolvedService, ScopedIp, ServiceDaemon, ServiceEvent, ServiceInfo};
use tokio::sync::mpsc;

/// Found services that may wait to be looked at. Further ones are dropped until the library resolves
/// them again.
const WAITING: usize = 64;
/// Addresses of one service that are looked at, at most.
const MAX_ADDRESSES: usize = 16;
/// Entries of one service that are kept, at most: one more than the reader accepts.
const MAX_ENTRIES: usize = weft_reach::lan::MAX_ENTRIES + 1;
/// The interval between two looks for new interfaces, in seconds.
const CHECK_INTERFACES: u32 = 10;
/// How long the end waits until the LAN was told that the services are gone.
const GOODBYE: Duration = Duration::from_millis(300);

/// What became known of a service of others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// It is there, or has changed.
    Seen(Seen),
    /// It is gone: its full name.
    Gone(String),
}

/// A service of another host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The type of service, as `_weft._udp.local.`.
    pub service: String,
    /// Its full name.
    pub name: String,
    /// Its port.
    pub port: u16,
    /// Its addresses with the port; those of a link alone have the index of the interface.
    pub addresses: Vec<SocketAddr>,
    /// The entries of its TXT record.
    pub entries: Vec<(String, Vec<u8>)>,
}

/// A service to announce.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    /// The type of service.
    pub service: &'static str,
    /// The name of the instance: at most 63 bytes.
    pub instance: String,
    /// The port.
    pub port: u16,
    /// The addresses; if there are none, all addresses of each interface.
    pub addresses: Vec<IpAddr>,
    /// The entries of the TXT record.
    pub entries: Vec<(String, String)>,
}

/// What announces and looks for services.
pub struct Mdns {
    daemon: ServiceDaemon,
    found: mpsc::Receiver<Found>,
    /// What threads send what they receive to.
    sender: mpsc::Sender<Found>,
    /// The full names of what is announced.
    announced: Vec<String>,
    /// Types of service that are looked for.
    browsed: Vec<&'static str>,
}

impl Mdns {
    /// Starts on all interfaces but `tunnel`.
    ///
    /// # Errors
    /// The library does not start.
    pub fn start(tunnel: &str) -> Result<Self, mdns_sd::Error> {
        let daemon = ServiceDaemon::new()?;
        let left_out = vec![IfKind::Name(tunnel.to_owned()), IfKind::LoopbackV4, IfKind::LoopbackV6];
        daemon.disable_interface(left_out)?;
        daemon.set_ip_check_interval(CHECK_INTERFACES)?;
        let (sender, found) = mpsc::channel(WAITING);
        Ok(Self {
            daemon,
            found,
            sender,
            announced: Vec::new(),
            browsed: Vec::new(),
        })
    }

    /// Looks for services of these types from now on, and for no others.
    ///
    /// # Errors
    /// The library or the system refuses.
    pub fn browse(&mut self, services: &[&'static str]) -> Result<(), mdns_sd::Error> {
        for service in self.browsed.iter().filter(|service| !services.contains(service)) {
            self.daemon.stop_browse(service)?;
        }
        self.browsed.retain(|service| services.contains(service));
        for service in services {
            if self.browsed.contains(service) {
                continue;
            }
            let events = self.daemon.browse(service)?;
            let sender = self.sender.clone();
            // It ends with the library's end of the channel.
            let forward = move || {
                while let Ok(event) = events.recv() {
                    if let Some(found) = found(event) {
                        // The library resolves a service again what was dropped.
                        let _ = sender.try_send(found);
                    }
                }
            };
            let spawned = thread::Builder::new().name("weft-lan".to_owned()).spawn(forward);
            spawned.map_err(|error| mdns_sd::Error::Msg(error.to_string()))?;
            self.browsed.push(service);
        }
        Ok(())
    }

    /// Announces these services from now on, and no others. `host` is the host name that they have.
    ///
    /// # Errors
    /// The library refuses.
    pub fn announce(&mut self, host: &str, services: &[Service]) -> Result<(), mdns_sd::Error> {
        let mut announced = Vec::new();
        for service in services {
            let info = ServiceInfo::new(
                service.service,
                &service.instance,
                &format!("{host}.local."),
                &service.addresses[..],
                service.port,
                &service.entries[..],
            )?;
            let info = match service.addresses.is_empty() {
                true => info.enable_addr_auto(),
                false => info,
            };
            announced.push(info.get_fullname().to_owned());
            self.daemon.register(info)?;
        }
        for gone in self.announced.iter().filter(|name| !announced.contains(name)) {
            drop(self.daemon.unregister(gone)?);
        }
        self.announced = announced;
        Ok(())
    }

    /// Whether a service is one that is announced here.
    pub fn is_own(&self, name: &str) -> bool {
        self.announced.iter().any(|own| own.eq_ignore_ascii_case(name))
    }

    /// Waits for the next service.
    pub async fn next(&mut self) -> Option<Found> {
        self.found.recv().await
    }

    /// Withdraws the announcements from the LAN, and ends, both on the library's thread.
    pub fn stop(self) -> Ending {
        for name in &self.announced {
            let _ = self.daemon.unregister(name);
        }
        Ending(self.daemon.shutdown().ok())
    }
}

/// The end of the library's thread, which nothing has to wait for.
pub struct Ending(Option<mdns_sd::Receiver<DaemonStatus>>);

impl Ending {
    /// Waits a moment, before the process ends.
    pub fn wait(self) {
        let _ = self.0.map(|ended| ended.recv_timeout(GOODBYE));
    }
}

fn found(event: ServiceEvent) -> Option<Found> {
    match event {
        ServiceEvent::ServiceResolved(service) => Some(Found::Seen(seen(&service))),
        ServiceEvent::ServiceRemoved(_, name) => Some(Found::Gone(name)),
        _ => None,
    }
}

fn seen(service: &ResolvedService) -> Seen {
    let mut addresses: Vec<SocketAddr> = service
        .addresses
        .iter()
        .take(MAX_ADDRESSES)
        .map(|address| socket_address(address, service.port))
        .collect();
    addresses.sort_unstable();
    let entries = service.txt_properties.iter().take(MAX_ENTRIES);
    Seen {
        service: service.ty_domain.clone(),
        name: service.fullname.clone(),
        port: service.port,
        addresses,
        entries: entries
            .map(|entry| (entry.key().to_owned(), entry.val().unwrap_or_default().to_vec()))
            .collect(),
    }
}

fn socket_address(address: &ScopedIp, port: u16) -> SocketAddr {
    match address {
        ScopedIp::V6(v6) if v6.addr().is_unicast_link_local() => {
            SocketAddrV6::new(*v6.addr(), port, 0, v6.scope_id().index).into()
        }
        other => SocketAddr::new(other.to_ip_addr(), port),
    }
}
