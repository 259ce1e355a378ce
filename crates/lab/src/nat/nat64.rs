//! NAT64 (RFC 6146): hosts that have only IPv6 reach hosts that have only IPv4, by addresses in a
//! prefix that contain the IPv4 address. Without DNS64, programs write such addresses themselves.
//!
//! The box is a host with tayga(8), which translates the packets of each IPv6 host to an IPv4 address
//! of its own, behind the kernel's masquerade, which maps all of these to the one outer address.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use weft_os::netlink::{InterfaceAddress, NetlinkError, Route};
use weft_os::sysctl;

use super::kernel::{KernelNat, KernelNatConfig, KernelNatError};
use crate::child::LoggedChild;
use crate::host::Host;
use crate::world::{Switch, World, WorldError};

/// The well-known prefix (RFC 6052, section 2.1), of 96 bits.
pub const WELL_KNOWN_PREFIX: Ipv6Addr = Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0);

/// Bits of a prefix: the IPv4 address is the rest.
const PREFIX_LEN: u8 = 96;
/// The interface of tayga.
const INTERFACE: &str = "nat64";
/// The network of the addresses that IPv6 hosts get, and the address of tayga in it. They do not leave
/// the box.
const POOL: Ipv4Addr = Ipv4Addr::new(192, 168, 255, 0);
const POOL_LEN: u8 = 24;
const OWN_V4: Ipv4Addr = Ipv4Addr::new(192, 168, 255, 1);
/// The source address of tayga's own ICMPv6 errors: required, and of a range that nothing here uses.
const OWN_V6: &str = "2001:db8:64::1";
/// Time limit until tayga has its interface, and the polling interval.
const READY: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(10);

/// A NAT64 box. It ends when it is dropped.
#[derive(Debug)]
pub struct Nat64 {
    kernel: KernelNat,
    prefix: Ipv6Addr,
    tayga: Tayga,
    running: Mutex<LoggedChild>,
}

/// The files of tayga.
#[derive(Debug)]
struct Tayga {
    config: PathBuf,
    log: PathBuf,
}

impl Nat64 {
    /// Starts a NAT64 box between two switches: inside with an IPv6 address, outside with an IPv4
    /// address. `name` names its files in the world's directory.
    ///
    /// # Errors
    /// [`KernelNatError`]; without tayga, [`KernelNatError::Child`].
    pub fn start(
        world: &World,
        name: &str,
        (config, prefix): (KernelNatConfig, Ipv6Addr),
        inside: (&Switch, &str),
        outside: (&Switch, &str),
    ) -> Result<Self, KernelNatError> {
        let kernel = KernelNat::start(world, config, inside, outside)?;
        let forwards = kernel.host().run(|| sysctl::set_ipv6_forwarding("all", true))?;
        forwards.map_err(WorldError::Setting)?;
        let tayga = Tayga::new(world.directory(), name, prefix)?;
        let running = Mutex::new(tayga.start(kernel.host(), prefix)?);
        Ok(Self {
            kernel,
            prefix,
            tayga,
            running,
        })
    }

    /// The masquerade behind it.
    #[must_use]
    pub fn kernel(&self) -> &KernelNat {
        &self.kernel
    }

    /// The address by which hosts inside reach an IPv4 address.
    #[must_use]
    pub fn mapped(&self, address: Ipv4Addr) -> Ipv6Addr {
        Ipv6Addr::from_bits(self.prefix.to_bits() | u128::from(address.to_bits()))
    }

    /// Restarts the box, as [`KernelNat::reboot`] does.
    ///
    /// # Errors
    /// If tayga does not start again, or the kernel refuses.
    pub fn reboot(&self, outer: Option<&str>) -> Result<(), KernelNatError> {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        running.kill()?;
        self.kernel.reboot(outer)?;
        *running = self.tayga.start(self.kernel.host(), self.prefix)?;
        Ok(())
    }
}

impl Tayga {
    fn new(directory: &Path, name: &str, prefix: Ipv6Addr) -> Result<Self, KernelNatError> {
        let config = directory.join(format!("{name}.conf"));
        let text = format!(
            "tun-device {INTERFACE}\nipv4-addr {OWN_V4}\nipv6-addr {OWN_V6}\nprefix {prefix}/{PREFIX_LEN}\n\
             dynamic-pool {POOL}/{POOL_LEN}\n"
        );
        std::fs::write(&config, text).map_err(|source| KernelNatError::File {
            path: config.clone(),
            source,
        })?;
        Ok(Self {
            config,
            log: directory.join(format!("{name}.log")),
        })
    }

    /// Starts tayga and sets up its interface.
    fn start(&self, host: &Host, prefix: Ipv6Addr) -> Result<LoggedChild, KernelNatError> {
        let mut command = Command::new("tayga");
        command.arg("--config").arg(&self.config).arg("-d");
        let mut child = LoggedChild::start(host, command, &self.log)?;
        let index = wait_for_interface(host, &mut child)?;
        host.netlink(|netlink| {
            netlink.set_up(index)?;
            netlink.add_address(InterfaceAddress {
                index,
                address: OWN_V4.into(),
                prefix_len: POOL_LEN,
            })?;
            netlink.add_route(Route::to_interface(IpAddr::V6(prefix), PREFIX_LEN, index))
        })
        .map_err(WorldError::Netlink)?;
        Ok(child)
    }
}

/// The index of tayga's interface, once it has one.
fn wait_for_interface(host: &Host, child: &mut LoggedChild) -> Result<u32, KernelNatError> {
    let end = Instant::now() + READY;
    loop {
        match host.netlink(|netlink| netlink.interface(INTERFACE)) {
            Ok(interface) => return Ok(interface.index),
            Err(NetlinkError::NotFound { .. }) => {}
            Err(error) => return Err(WorldError::Netlink(error).into()),
        }
        if child.ended()?.is_some() || Instant::now() >= end {
            let log = child.log()?;
            let last = log.lines().last().unwrap_or_default().escape_debug().to_string();
            return Err(KernelNatError::Tayga(last));
        }
        std::thread::sleep(POLL);
    }
}
