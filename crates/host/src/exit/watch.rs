//! When to look whether another program has changed what exits consist of.

use std::io;
use std::time::Duration;

use tokio::time::sleep;
use weft_os::clock::boottime_ms;
use weft_os::netlink::Change;

use super::rules::{SERVE, TABLE, USE};
use crate::pace::Pace;
use crate::watch::{Listener, Watch as Thread};

/// The number of programs that are remembered between two looks.
const MAX_PROGRAMS: usize = 16;

/// A program that has changed nftables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    /// The name of its process, at most 15 bytes.
    pub name: String,
    /// The number of its process.
    pub pid: u32,
}

/// Hears of changes of what exits consist of.
struct Ears {
    /// The index of the node's interface.
    interface: u32,
    /// The change of nftables that is being told touches a table of exits.
    table: bool,
}

/// What there is to look at.
#[derive(Default)]
struct Due {
    programs: Vec<Program>,
}

impl Listener for Ears {
    type Due = Due;

    fn note(&mut self, change: &Change, due: &mut Due) -> bool {
        match change {
            Change::Table { name } => {
                self.table |= [USE, SERVE].contains(&name.as_str());
                false
            }
            Change::Generation { program, pid } if self.table => {
                self.table = false;
                if due.programs.len() < MAX_PROGRAMS {
                    due.programs.push(Program {
                        name: program.clone(),
                        pid: *pid,
                    });
                }
                true
            }
            Change::Generation { .. } => false,
            // The kernel removes IPv4 routes with their interface or their source, and does not tell of it.
            Change::Link { index, .. } => *index == self.interface,
            Change::Address { address, .. } => address.index == self.interface,
            Change::Route { route, table, .. } => route.own && *table == TABLE,
            Change::Setting { interface } => interface.is_none_or(|index| index == self.interface),
            Change::Rule | Change::Lost => true,
        }
    }
}

/// Waits for changes of nftables, of routes, of the rules for them and of settings, by any program.
pub struct Watch {
    thread: Thread<Ears>,
    pace: Pace,
    /// Whether there was a change, or something undone, since the last look.
    due: bool,
}

impl Watch {
    /// Starts to listen. `interface`: the index of the node's interface.
    ///
    /// # Errors
    /// The error of the system.
    pub fn start(interface: u32) -> io::Result<Self> {
        let ears = Ears {
            interface,
            table: false,
        };
        Ok(Self {
            thread: Thread::of_rules(ears)?,
            pace: Pace::default(),
            // What changed before.
            due: true,
        })
    }

    /// Returns when it is time to look: after a change, also one by this program, or after
    /// [`note`](Self::note). Safe to cancel.
    pub async fn changed(&mut self) {
        if !self.due {
            self.thread.changed().await;
            self.due = true;
        }
        let now = boottime_ms();
        sleep(Duration::from_millis(self.pace.next(now) - now)).await;
        self.due = false;
    }

    /// The programs that have changed a table of exits since the last look. Those of this node are among
    /// them.
    pub fn programs(&self) -> Vec<Program> {
        self.thread.take().programs
    }

    /// Notes that something was set up again; `whole` is false if a part could not be, so that
    /// [`changed`](Self::changed) returns once more. Returns the number of times within the last minute,
    /// if another program must be at work.
    pub fn note(&mut self, whole: bool) -> Option<usize> {
        let now = boottime_ms();
        self.pace.note(now);
        self.due |= !whole;
        self.pace.fight(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_tables_of_exits_and_what_they_need_count() {
        let mut ears = Ears {
            interface: 7,
            table: false,
        };
        let mut due = Due::default();
        let table = |name: &str| Change::Table { name: name.to_owned() };
        let by = |pid| Change::Generation {
            program: "nft".to_owned(),
            pid,
        };
        for (change, expected) in [
            (table("filter"), false),
            (by(1), false),
            (table("weft"), false),
            (table("filter"), false),
            (by(2), true),
            (by(3), false),
            (
                Change::Link {
                    index: 7,
                    usable: false,
                    mtu: 1_470,
                },
                true,
            ),
            (
                Change::Link {
                    index: 2,
                    usable: false,
                    mtu: 1_500,
                },
                false,
            ),
            (Change::Setting { interface: Some(2) }, false),
            (Change::Setting { interface: None }, true),
            (Change::Rule, true),
            (Change::Lost, true),
        ] {
            assert_eq!(ears.note(&change, &mut due), expected, "{change:?}");
        }
        let name = "nft".to_owned();
        assert_eq!(due.programs, [Program { name, pid: 2 }]);
    }

    #[test]
    fn a_flood_of_changes_stays_small() {
        let mut ears = Ears {
            interface: 7,
            table: false,
        };
        let mut due = Due::default();
        for pid in 0..1_000 {
            ears.table = true;
            ears.note(
                &Change::Generation {
                    program: "nft".to_owned(),
                    pid,
                },
                &mut due,
            );
        }
        assert_eq!(due.programs.len(), MAX_PROGRAMS);
    }
}
