//! A NAT box of a scenario, whatever translates in it.

use std::net::{IpAddr, Ipv4Addr};

use super::nat::{Mechanism, NatSpec};
use super::topology::StageError;
use crate::nat::kernel::{KernelNat, KernelNatConfig, Masquerade};
use crate::nat::miniupnpd::Miniupnpd;
use crate::nat::nat64::Nat64;
use crate::nat::{NatBox, NatConfig, NatCounts};
use crate::world::{Switch, World, parse_v4};

/// A NAT box. It ends when it is dropped.
#[derive(Debug)]
pub enum Middlebox {
    /// The lab's own, of an exact behaviour.
    Lab(NatBox),
    /// The kernel's, with the program that maps ports on request, if there is one.
    Kernel(KernelNat, Option<Miniupnpd>),
    /// From IPv6 to IPv4.
    Nat64(Nat64),
}

impl Middlebox {
    /// Starts the box of this name between its networks, inside and outside.
    ///
    /// # Errors
    /// The error of the system, or of a program.
    pub(super) fn start(
        world: &World,
        (name, spec): (&str, &NatSpec),
        [inside, outside]: [&Switch; 2],
        gateway: Option<Ipv4Addr>,
        seed: u64,
    ) -> Result<Self, StageError> {
        let (inside, outside) = ((inside, spec.inner.as_str()), (outside, spec.outer.as_str()));
        let kernel = |ports, lifetime| KernelNatConfig {
            ports,
            lifetime,
            gateway,
        };
        Ok(match spec.mechanism {
            Mechanism::Lab(behaviour) => {
                let config = NatConfig {
                    gateway,
                    seed,
                    ..NatConfig::behaving(behaviour)
                };
                Self::Lab(world.nat(config, inside, outside)?)
            }
            Mechanism::Kernel(ports, lifetime, maps) => {
                let nat = KernelNat::start(world, kernel(ports, lifetime), inside, outside)?;
                let files = (world.directory(), name);
                let maps = maps.map(|speaks| Miniupnpd::start(&nat, files, speaks)).transpose()?;
                Self::Kernel(nat, maps)
            }
            Mechanism::Nat64(prefix, lifetime) => {
                let config = (kernel(Masquerade::Plain, lifetime), prefix);
                Self::Nat64(Nat64::start(world, name, config, inside, outside)?)
            }
        })
    }

    /// Its address outside.
    #[must_use]
    pub fn outer(&self) -> IpAddr {
        match self {
            Self::Lab(nat) => nat.outer(),
            Self::Kernel(nat, _) => nat.outer(),
            Self::Nat64(nat) => nat.kernel().outer(),
        }
    }

    /// The counters so far; `None` for boxes of the kernel.
    #[must_use]
    pub fn counts(&self) -> Option<NatCounts> {
        match self {
            Self::Lab(nat) => Some(nat.counts()),
            Self::Kernel(..) | Self::Nat64(_) => None,
        }
    }

    /// The number of mappings, including those that have just expired; for boxes of the kernel, of
    /// the connections that it tracks.
    ///
    /// # Errors
    /// If the kernel cannot be asked.
    pub fn mappings(&self) -> Result<usize, StageError> {
        match self {
            Self::Lab(nat) => Ok(nat.mappings()),
            Self::Kernel(nat, _) => Ok(nat.mappings()?),
            Self::Nat64(nat) => Ok(nat.kernel().mappings()?),
        }
    }

    /// Deletes all mappings, but for ports that were mapped on request.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn forget(&self) -> Result<(), StageError> {
        match self {
            Self::Lab(nat) => nat.forget(),
            Self::Kernel(nat, _) => nat.forget()?,
            Self::Nat64(nat) => nat.kernel().forget()?,
        }
        Ok(())
    }

    /// Restarts the box, without mappings of any kind; `outer` is its new address outside, with the prefix
    /// length.
    ///
    /// # Errors
    /// If the kernel or a program refuses.
    pub fn reboot(&self, outer: Option<&str>) -> Result<(), StageError> {
        match self {
            Self::Lab(nat) => nat.reboot(outer.map(parse_v4).transpose()?),
            Self::Kernel(nat, None) => nat.reboot(outer)?,
            Self::Kernel(nat, Some(maps)) => maps.reboot(nat, outer)?,
            Self::Nat64(nat) => nat.reboot(outer)?,
        }
        Ok(())
    }
}
