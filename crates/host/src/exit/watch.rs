//! When to look whether another program has changed what exits consist of.

use std::fmt;
use std::io;
use std::mem;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout_at};
use weft_os::clock::boottime_ms;
use weft_os::netlink::{Change, MAIN};

use super::rules::{SERVE, TABLE, USE};
use crate::faults::Fault;
use crate::pace::Pace;
use crate::routes;
use crate::watch::{Listener, Watch as Thread};

/// The interval between two looks while only other interfaces change, as containers come and go.
const CALM: Duration = Duration::from_millis(250);
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

/// Something of an exit that was gone at a look.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loss {
    /// The program that has removed it, if the kernel tells; it does of nftables.
    pub by: Option<Program>,
    /// What is set up again, or the reason why the system refuses that.
    pub mended: Result<&'static str, String>,
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.by {
            Some(program) => write!(f, "{} (process {})", program.name.escape_debug(), program.pid)?,
            None => f.write_str("another program")?,
        }
        write!(
            f,
            " has removed {}",
            self.mended.as_ref().unwrap_or(&"a part of an exit")
        )
    }
}

/// What other programs have removed. Times are in ms.
#[derive(Debug, Default)]
struct Losses {
    pace: Pace,
    last: Option<Loss>,
}

impl Losses {
    fn note(&mut self, now: u64, loss: Loss) {
        self.pace.note(now);
        self.last = Some(loss);
    }

    /// Notes that nothing is missing.
    fn note_whole(&mut self) {
        self.last.take_if(|last| last.mended.is_err());
    }

    /// The fault while the system refuses what is missing, or another program goes on removing it.
    fn alarm(&self, now: u64) -> Option<Fault> {
        let last = self.last.as_ref()?;
        let what = match &last.mended {
            Err(error) => format!("{last}, and the system refuses it: {error}"),
            Ok(_) => {
                let times = self.pace.fight(now)?;
                format!("{last} {times} times within a minute; it is set up again each time")
            }
        };
        let why = "until it is there again, up to two seconds later, packets by the exit are lost or leave without it";
        let fix = format!(
            "have that program leave the tables {USE} and {SERVE} of nftables and rules with proto 119 alone; \
             `journalctl -u weft` tells when it was"
        );
        Some(Fault::new("alarm", what, why, fix))
    }
}

/// Hears of changes of what exits consist of.
struct Ears {
    /// The index of the node's interface.
    interface: u32,
    /// The change of nftables that is being told touches a table of exits.
    table: bool,
    /// Something of an exit may be gone.
    urgent: bool,
}

/// What there is to look at.
#[derive(Default)]
struct Due {
    programs: Vec<Program>,
}

impl Listener for Ears {
    type Due = Due;

    fn note(&mut self, change: &Change, due: &mut Due) -> bool {
        let exit = self.is_about_exit(change, due);
        self.urgent |= exit;
        // Rules name other interfaces: bridges within this host, and those that lead elsewhere.
        exit || match change {
            Change::Address { .. } => true,
            Change::Route { route, table, .. } => {
                let to_members = [MAIN, routes::TABLE].contains(table) && route.interface == Some(self.interface);
                to_members || *table == MAIN && route.prefix_len == 0
            }
            _ => false,
        }
    }
}

impl Ears {
    /// Whether a change may have taken something of an exit away.
    fn is_about_exit(&mut self, change: &Change, due: &mut Due) -> bool {
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
            // A bridge within this host may have got a port that leads out.
            Change::Link { .. } => true,
            Change::Address { address, .. } => address.index == self.interface,
            // Of a route that another program puts in the place of one, the kernel tells only the new one.
            Change::Route { table, .. } => *table == TABLE,
            // The check of sources is one of each interface.
            Change::Setting { .. } => true,
            Change::Rule | Change::Lost => true,
        }
    }
}

/// Waits for changes of nftables, of routes, of the rules for them and of settings, by any program.
pub struct Watch {
    thread: Thread<Ears>,
    losses: Losses,
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
            urgent: false,
        };
        Ok(Self {
            thread: Thread::of_rules(ears)?,
            losses: Losses::default(),
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
            let soon = Instant::now() + CALM;
            while !self.thread.with(|ears| mem::take(&mut ears.urgent))
                && timeout_at(soon, self.thread.changed()).await.is_ok()
            {}
        }
        let now = boottime_ms();
        sleep(Duration::from_millis(self.losses.pace.next(now) - now)).await;
        self.due = false;
    }

    /// The programs that have changed a table of exits since the last look. Those of this node are among
    /// them.
    pub fn programs(&self) -> Vec<Program> {
        self.thread.take().programs
    }

    /// Notes that something was missing. If the system refuses a part of it, [`changed`](Self::changed)
    /// returns once more. Returns the number of times within the last minute, if another program must be
    /// at work.
    pub fn note(&mut self, loss: Loss) -> Option<usize> {
        let now = boottime_ms();
        self.due |= loss.mended.is_err();
        self.losses.note(now, loss);
        self.losses.pace.fight(now)
    }

    /// Notes that nothing was missing.
    pub fn note_whole(&mut self) {
        self.losses.note_whole();
    }

    /// The fault while the system refuses what is missing, or another program goes on removing it.
    #[must_use]
    pub fn alarm(&self) -> Option<Fault> {
        self.losses.alarm(boottime_ms())
    }
}

#[cfg(test)]
mod tests {
    use weft_os::netlink::Route;

    use super::*;

    #[test]
    fn only_tables_of_exits_and_what_they_need_count() {
        let mut ears = Ears {
            interface: 7,
            table: false,
            urgent: false,
        };
        let mut due = Due::default();
        let table = |name: &str| Change::Table { name: name.to_owned() };
        let by = |pid| Change::Generation {
            program: "nft".to_owned(),
            pid,
        };
        let route = |destination: &str, prefix_len, interface, table| Change::Route {
            route: Route::to_interface(destination.parse().unwrap(), prefix_len, interface),
            table,
            present: true,
        };
        for (change, expected) in [
            (route("0.0.0.0", 0, 2, TABLE), true),
            (route("192.0.2.0", 24, 2, MAIN), false),
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
            (Change::Setting { interface: Some(2) }, true),
            (Change::Setting { interface: None }, true),
            (Change::Rule, true),
            (Change::Lost, true),
        ] {
            ears.urgent = false;
            assert_eq!(ears.note(&change, &mut due), expected, "{change:?}");
            assert_eq!(ears.urgent, expected);
        }
        // What rules name can wait for the next change.
        for change in [route("0.0.0.0", 0, 2, MAIN), route("10.44.0.9", 32, 7, MAIN)] {
            ears.urgent = false;
            assert!(ears.note(&change, &mut due) && !ears.urgent, "{change:?}");
        }
        let name = "nft".to_owned();
        assert_eq!(due.programs, [Program { name, pid: 2 }]);
    }

    #[test]
    fn a_flood_of_changes_stays_small() {
        let mut ears = Ears {
            interface: 7,
            table: false,
            urgent: false,
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

    #[test]
    fn an_alarm_names_the_program_and_ends_with_the_fight() {
        let loss = |name: Option<&str>| Loss {
            by: name.map(|name| Program {
                name: name.to_owned(),
                pid: 7,
            }),
            mended: Ok("what leads packets to the exit"),
        };
        let mut losses = Losses::default();
        let what = |losses: &Losses, now| losses.alarm(now).map(|fault| fault.what);
        for now in [1_000, 2_000, 3_000] {
            losses.note(now, loss(None));
            assert_eq!(what(&losses, now), None);
        }
        losses.note(4_000, loss(Some("nft\u{1b}")));
        let named = what(&losses, 4_000).unwrap();
        assert!(
            named.starts_with("nft\\u{1b} (process 7) has removed what leads packets to the exit 4 times"),
            "{named}"
        );
        losses.note_whole();
        assert_eq!(what(&losses, 60_999), Some(named));
        assert_eq!(what(&losses, 61_000), None);
    }

    #[test]
    fn a_repair_that_the_system_refuses_is_an_alarm_at_once() {
        let mut losses = Losses::default();
        let mended = Err("nft took more than 10 s".to_owned());
        losses.note(1_000, Loss { by: None, mended });
        let what = losses.alarm(1_000).unwrap().what;
        assert_eq!(
            what,
            "another program has removed a part of an exit, and the system refuses it: nft took more than 10 s"
        );
        losses.note_whole();
        assert_eq!(losses.alarm(1_000), None);
    }
}
