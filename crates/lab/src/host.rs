//! A host: a network namespace in the role of a machine.

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd};
use std::process::{Child, Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::thread::CapabilitySet;
use weft_os::netlink::{Netlink, NetlinkError, Route};
use weft_os::netns::NetNs;
use weft_os::sysctl;

use crate::child::{ChildError, run_command};
use crate::world::WorldError;

/// A machine of a [`World`](crate::world::World). Cheap to clone: all clones are the same machine,
/// which is removed with the last of them and the last process on it.
#[derive(Clone)]
pub struct Host {
    inner: Arc<Inner>,
}

struct Inner {
    name: String,
    namespace: NetNs,
    netlink: Mutex<Netlink>,
    ports: AtomicU32,
}

impl Host {
    /// A new machine with only a loopback interface, which is up.
    pub(crate) fn new(name: &str) -> Result<Self, WorldError> {
        let namespace = NetNs::new()?;
        namespace.run(calm_ipv6)?;
        let netlink = Mutex::new(namespace.netlink()?);
        Ok(Self {
            inner: Arc::new(Inner {
                name: name.to_owned(),
                namespace,
                netlink,
                ports: AtomicU32::new(0),
            }),
        })
    }

    /// Its name in reports.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// Runs `work` on a thread inside the host and waits for it. Sockets created there belong to
    /// the host, whichever thread uses them later.
    ///
    /// # Errors
    /// If the thread cannot be started or may not enter.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, WorldError> {
        Ok(self.inner.namespace.run(work)?)
    }

    /// Starts a process on the host. It is killed when this process ends.
    ///
    /// # Errors
    /// Like [`Command::spawn`].
    pub fn spawn(&self, mut command: Command) -> io::Result<Child> {
        self.inner.namespace.spawn(&mut command)
    }

    /// Runs a short command on the host to its end; see [`run_command`].
    ///
    /// # Errors
    /// Like [`run_command`].
    pub fn command(&self, command: Command, limit: Duration) -> Result<Output, HostCommandError> {
        Ok(self.run(|| run_command(command, limit))??)
    }

    /// Like [`Self::command`], without CAP_NET_ADMIN, which the command cannot regain, root or not.
    ///
    /// # Errors
    /// Like [`Host::command`].
    pub fn command_without_net_admin(&self, command: Command, limit: Duration) -> Result<Output, HostCommandError> {
        self.run(|| {
            // The rights of root's new program are limited by the bounding set (capabilities(7)),
            // which belongs to this thread alone.
            rustix::thread::remove_capability_from_bounding_set(CapabilitySet::NET_ADMIN)
                .map_err(|error| HostCommandError::Capability(error.into()))?;
            Ok(run_command(command, limit)?)
        })?
    }

    /// Adds a route to `destination/prefix_len` through `gateway`.
    ///
    /// # Errors
    /// Like [`Netlink::add_route`].
    pub fn add_route(&self, destination: IpAddr, prefix_len: u8, gateway: IpAddr) -> Result<(), WorldError> {
        let route = Route::via(destination, prefix_len, gateway);
        Ok(self.netlink(|netlink| netlink.add_route(route))?)
    }

    /// Adds a default route through `gateway`.
    ///
    /// # Errors
    /// Like [`Netlink::add_route`].
    pub fn add_default_route(&self, gateway: IpAddr) -> Result<(), WorldError> {
        let route = default_route(gateway);
        Ok(self.netlink(|netlink| netlink.add_route(route))?)
    }

    /// Adds a default route through `gateway` behind an interface; of several, that with the lowest
    /// metric is used.
    ///
    /// # Errors
    /// Like [`Netlink::add_route`].
    pub fn add_default_route_on(&self, interface: u32, gateway: IpAddr, metric: Option<u32>) -> Result<(), WorldError> {
        let route = Route {
            interface: Some(interface),
            metric,
            ..default_route(gateway)
        };
        Ok(self.netlink(|netlink| netlink.add_route(route))?)
    }

    /// Deletes the default routes of an IP version through an interface.
    ///
    /// # Errors
    /// Like [`Netlink::delete_route`].
    pub fn delete_default_routes_on(&self, interface: u32, ipv6: bool) -> Result<(), WorldError> {
        Ok(self.netlink(|netlink| {
            let routes = netlink.routes()?.into_iter();
            let own = |route: &Route| {
                route.prefix_len == 0 && route.interface == Some(interface) && route.destination.is_ipv6() == ipv6
            };
            routes.filter(own).try_for_each(|route| netlink.delete_route(route))
        })?)
    }

    /// Makes the host a router: it forwards between its interfaces.
    ///
    /// # Errors
    /// If `/proc/sys` is not writable.
    pub fn forward(&self) -> Result<(), WorldError> {
        self.run(|| {
            sysctl::set_ipv4_forwarding(true)?;
            sysctl::set_ipv6_forwarding("all", true)
        })?
        .map_err(WorldError::Setting)
    }

    /// Queries or changes the network configuration of the host's kernel.
    ///
    /// # Errors
    /// The error of `work`.
    pub fn netlink<T>(&self, work: impl FnOnce(&mut Netlink) -> Result<T, NetlinkError>) -> Result<T, NetlinkError> {
        let netlink = &self.inner.netlink;
        work(&mut netlink.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The descriptor of the namespace, for moving interfaces there.
    pub(crate) fn namespace(&self) -> BorrowedFd<'_> {
        self.inner.namespace.as_fd()
    }

    /// The number of that descriptor, through which other processes of this user find the namespace
    /// in `/proc`.
    pub(crate) fn namespace_number(&self) -> i32 {
        self.namespace().as_raw_fd()
    }

    /// The name of its next interface: `eth0`, `eth1` and so on.
    pub(crate) fn next_port(&self) -> String {
        format!("eth{}", self.inner.ports.fetch_add(1, Ordering::Relaxed))
    }
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Host").field(&self.name()).finish()
    }
}

/// Why a command on a host gave no output.
#[derive(Debug, thiserror::Error)]
pub enum HostCommandError {
    /// The host is not usable.
    #[error(transparent)]
    World(#[from] WorldError),
    /// The command could not be run.
    #[error(transparent)]
    Child(#[from] ChildError),
    /// The capability could not be dropped.
    #[error("the capability CAP_NET_ADMIN cannot be given up")]
    Capability(#[source] io::Error),
}

fn default_route(gateway: IpAddr) -> Route {
    let any: IpAddr = match gateway {
        IpAddr::V4(_) => [0; 4].into(),
        IpAddr::V6(_) => [0_u16; 8].into(),
    };
    Route::via(any, 0, gateway)
}

/// Makes new interfaces ignore router advertisements and use their addresses at once. If
/// `/proc/sys` is read-only, the kernel's defaults stay: there is no router that advertises here,
/// and the addresses that the lab sets skip the detection anyway.
fn calm_ipv6() {
    for interface in ["all", "default"] {
        let _ = sysctl::disable_router_advertisements(interface);
        let _ = std::fs::write(format!("/proc/sys/net/ipv6/conf/{interface}/accept_dad"), "0");
    }
}
