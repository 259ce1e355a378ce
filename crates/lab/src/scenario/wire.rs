//! A link of a scenario: a cable with an emulator between hosts or switches.

use std::fmt;
use std::sync::Arc;

use super::flaws::Flaws;
use crate::cable::{Direction, Port, Socket, parse_all};
use crate::emulator::{Cable, Emulator, Impairments, PipeCounts, Protection, Witness};
use crate::firewall::FirewallCounts;
use crate::host::Host;
use crate::world::{Switch, WorldError, tap};

/// An end of a link.
#[derive(Debug, Clone, Copy)]
pub enum Plug<'a> {
    /// A host, with its addresses on the link.
    Host(&'a Host, &'a [String]),
    /// A switch.
    Switch(&'a Switch),
}

/// A link. It is removed when it is dropped.
pub struct Wire {
    /// The interfaces of hosts; a switch has none here.
    ports: [Option<Port>; 2],
    emulator: Emulator,
    flaws: [Flaws; 2],
    is_cut: bool,
}

/// Both directions, that towards the second end first.
const WAYS: [Direction; 2] = [Direction::AToB, Direction::BToA];

impl Wire {
    /// Creates the link. Both ends are up when this returns.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn lay(
        ends: [Plug<'_>; 2],
        flaws: [Flaws; 2],
        protection: Option<Protection>,
        seed: u64,
    ) -> Result<Self, WorldError> {
        let end = |plug| match plug {
            Plug::Switch(switch) => Ok::<_, WorldError>((switch.plug()?, None)),
            Plug::Host(host, addresses) => {
                let tap = tap(host)?;
                let texts: Vec<_> = addresses.iter().map(String::as_str).collect();
                let port = Port::bring_up(Socket::new(host, tap.name()), None, parse_all(&texts)?)?;
                Ok((tap, Some(port)))
            }
        };
        let [(a_tap, a_port), (b_tap, b_port)] = [end(ends[0])?, end(ends[1])?];
        let cable = Cable {
            a_to_b: flaws[0].impairments(),
            b_to_a: flaws[1].impairments(),
            seed,
        };
        Ok(Self {
            ports: [a_port, b_port],
            emulator: Emulator::start(a_tap, b_tap, cable, protection).map_err(WorldError::Thread)?,
            flaws,
            is_cut: false,
        })
    }

    /// Makes `witness` see all frames from now on.
    pub fn watch(&self, witness: &Arc<dyn Witness>) {
        self.emulator.watch(witness);
    }

    /// The interface of the host at this end, 0 or 1; `None` at a switch.
    #[must_use]
    pub fn port(&self, end: usize) -> Option<&Port> {
        self.ports.get(end)?.as_ref()
    }

    /// Drops frames from now on; `noticed`: the interfaces of the hosts go down too.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn cut(&mut self, noticed: bool) -> Result<(), WorldError> {
        self.is_cut = true;
        self.apply();
        if noticed {
            self.ports.iter().flatten().try_for_each(Port::cut)?;
        }
        Ok(())
    }

    /// Restores the link: frames pass, and the interfaces are up with their addresses.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn heal(&mut self) -> Result<(), WorldError> {
        self.is_cut = false;
        self.apply();
        self.ports.iter().flatten().try_for_each(Port::heal)
    }

    /// Whether it is not cut.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        !self.is_cut
    }

    /// Changes these impairments from now on, and no others; `toward` is one of its ends, 0 or 1.
    pub fn change(&mut self, toward: Option<usize>, flaws: &Flaws) {
        for (end, own) in [1, 0].into_iter().zip(&mut self.flaws) {
            if toward.is_none_or(|toward| toward == end) {
                own.merge(flaws);
            }
        }
        self.apply();
    }

    /// The counters of frames to the second end, and to the first.
    #[must_use]
    pub fn counts(&self) -> [PipeCounts; 2] {
        WAYS.map(|way| self.emulator.counts(way))
    }

    /// The frames that the firewall has dropped; `None` without a firewall.
    #[must_use]
    pub fn firewall(&self) -> Option<FirewallCounts> {
        self.emulator.firewall()
    }

    fn apply(&self) {
        for (way, flaws) in WAYS.into_iter().zip(&self.flaws) {
            let impairments = if self.is_cut {
                Impairments::loss(1.0)
            } else {
                flaws.impairments()
            };
            self.emulator.set(way, impairments);
        }
    }
}

impl fmt::Debug for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cut = if self.is_cut { "cut" } else { "whole" };
        write!(f, "Wire({cut}, {:?})", self.ports)
    }
}
