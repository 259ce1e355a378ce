//! What `join` says while it waits: each address at which the daemon asks, and what came of it.

use std::collections::BTreeSet;
use std::io::{self, IsTerminal as _};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use serde_json::Value;
use weft_control::status::{AskedAtState, AskedAtStatus, EventKind, NetworkList};
use weft_control::{ControlError, NetworkCommand};
use weft_store::state::StatePaths;

use super::{ask, text};
use crate::failure::Failure;
use crate::feed::{Feed, kind};
use crate::human;
use crate::interrupt::{Interrupt, Next};
use crate::output::tell;

/// A join that works takes less, and says nothing of it.
const QUIET: Duration = Duration::from_secs(3);
/// The interval between two updates of what is said, and between two looks at a daemon that sends no events about
/// networks.
const STEP: Duration = Duration::from_secs(1);

/// A wait that tells how it goes, and that Ctrl-C ends.
pub(super) struct Waiting {
    since: Instant,
    interrupt: Interrupt,
    /// Events about networks, unless the daemon sends none.
    feed: Option<Feed>,
    /// Standard output is for a document.
    aside: bool,
    told: Told,
}

impl Waiting {
    /// A wait that begins now, before the first look: what changes after that look is then not missed. `aside`: it
    /// tells on standard error.
    pub(super) fn begin(paths: &StatePaths, aside: bool) -> Result<Self, Failure> {
        let mut interrupt = Interrupt::catch()?;
        let feed = match interrupt.open(&paths.control()).ok_or(Failure::Interrupted)? {
            Ok((feed, first)) => tells_of_networks(&first).then_some(feed),
            Err(error @ (ControlError::NotRunning(_) | ControlError::Timeout(_))) => return Err(error.into()),
            // It may answer other requests all the same.
            Err(_) => None,
        };
        Ok(Self {
            since: Instant::now(),
            interrupt,
            feed,
            aside,
            told: Told::default(),
        })
    }

    /// Asks the daemon, until Ctrl-C.
    pub(super) fn ask(&mut self, paths: &StatePaths, command: NetworkCommand) -> Result<NetworkList, Failure> {
        self.run(paths, move |paths| ask(paths, command))
    }

    /// Runs `work`, which asks the daemon, until Ctrl-C.
    pub(super) fn run<T: Send + 'static>(
        &mut self,
        paths: &StatePaths,
        work: impl FnOnce(&StatePaths) -> Result<T, ControlError> + Send + 'static,
    ) -> Result<T, Failure> {
        let paths = paths.clone();
        let done = self.interrupt.run(move || work(&paths)).ok_or(Failure::Interrupted)?;
        Ok(done?)
    }

    /// The next wait, on the same events.
    pub(super) fn begin_next(&mut self) {
        self.since = Instant::now();
        self.told = Told::default();
    }

    /// Waits until there may be something new, and says meanwhile how it goes. Returns false at Ctrl-C, or once the
    /// wait has lasted for `limit`.
    pub(super) fn goes_on(&mut self, asked_at: &[AskedAtStatus], why: &str, limit: Duration) -> Result<bool, Failure> {
        loop {
            let waited = self.since.elapsed();
            if waited >= limit {
                return Ok(false);
            }
            self.say(asked_at, why, waited)?;
            let step = until_next_second(waited);
            let Some(feed) = &mut self.feed else {
                return Ok(self.interrupt.pause(step));
            };
            match self.interrupt.next(feed, Some(step)) {
                Next::Event(Ok(event)) if kind(&event) == Some(EventKind::Networks) => return Ok(true),
                Next::Event(Ok(_)) | Next::Time => {}
                Next::Event(Err(_)) | Next::Ended => {
                    self.feed = None;
                    return Ok(true);
                }
                Next::Interrupted => return Ok(false),
            }
        }
    }

    /// Waits for a second, and says how it goes. Returns false at Ctrl-C, or once the wait has lasted for `limit`.
    pub(super) fn steps_on(&mut self, why: &str, limit: Duration) -> Result<bool, Failure> {
        let waited = self.since.elapsed();
        if waited >= limit {
            return Ok(false);
        }
        self.say(&[], why, waited)?;
        Ok(self.interrupt.pause(until_next_second(waited)))
    }

    fn say(&mut self, asked_at: &[AskedAtStatus], why: &str, waited: Duration) -> Result<(), Failure> {
        if waited >= QUIET {
            let terminal = match self.aside {
                true => io::stderr().is_terminal(),
                false => io::stdout().is_terminal(),
            };
            let width = terminal.then(human::width);
            let text = self.told.news((asked_at, why), waited.as_secs(), width);
            tell(self.aside, &text)?;
        }
        Ok(())
    }
}

/// The rest of a second of the wait: the counter then changes.
fn until_next_second(waited: Duration) -> Duration {
    STEP.saturating_sub(Duration::from_nanos(waited.subsec_nanos().into()))
}

/// Whether the daemon says in its first event that it sends those about networks.
fn tells_of_networks(first: &Value) -> bool {
    let kinds = first.get("kinds").and_then(Value::as_array);
    let networks = serde_json::to_value(EventKind::Networks).ok();
    kinds.is_some_and(|kinds| kinds.iter().any(|kind| Some(kind) == networks.as_ref()))
}

/// What was said.
#[derive(Debug, Default)]
struct Told {
    begun: bool,
    rows: Vec<(SocketAddr, AskedAtState)>,
    why: String,
    /// The lines that a terminal shows, and the second in which they were written.
    lines: usize,
    second: u64,
}

impl Told {
    /// What is to be written now. `terminal`: the width of the terminal, whose lines are replaced each second;
    /// elsewhere each change has a line.
    fn news(&mut self, (asked_at, why): (&[AskedAtStatus], &str), second: u64, terminal: Option<usize>) -> String {
        let head = format!("Not a member after {second} s: {}", human::plain(why));
        let rows = asked_at.iter().map(|row| (row.address, row.state)).collect();
        let before = std::mem::replace(&mut self.rows, rows);
        if let Some(width) = terminal {
            if self.begun && second == self.second {
                return String::new();
            }
            let up = match std::mem::replace(&mut self.lines, asked_at.len() + 1) {
                0 => String::new(),
                lines => format!("\x1b[{lines}A\x1b[J"),
            };
            (self.begun, self.second) = (true, second);
            let lines = std::iter::once(head).chain(asked_at.iter().map(text::asked_at));
            return lines.fold(up, |text, line| text + &human::clip(&line, width) + "\n");
        }
        let said = self.begun && self.why == why;
        self.begun = true;
        why.clone_into(&mut self.why);
        let new = asked_at
            .iter()
            .filter(|row| !before.contains(&(row.address, row.state)));
        let lines = (!said).then_some(head).into_iter().chain(new.map(text::asked_at));
        lines.map(|line| line + "\n").collect()
    }
}

/// The end of a wait in one line: the state of the request, of each address, and what helps.
pub(super) fn in_one_line(why: &str, asked_at: &[AskedAtStatus]) -> String {
    let rows = asked_at.iter().map(|row| format!("{} {}", row.address, row.why));
    let mut seen = BTreeSet::new();
    let advice = asked_at.iter().filter_map(|row| row.advice.clone());
    let advice = advice.filter(|advice| seen.insert(advice.clone()));
    let parts: Vec<String> = std::iter::once(why.to_owned()).chain(rows).chain(advice).collect();
    human::plain(&parts.join("; "))
}

#[cfg(test)]
mod tests {
    use weft_control::status::Event;

    use super::*;

    fn row(address: &str, state: AskedAtState, why: &str) -> AskedAtStatus {
        AskedAtStatus {
            npub: String::new(),
            address: address.parse().unwrap(),
            state,
            why: why.to_owned(),
            advice: Some("start weft there".to_owned()),
        }
    }

    const WAITING: AskedAtState = AskedAtState::Waiting;
    const REFUSED: AskedAtState = AskedAtState::Refused;

    #[test]
    fn only_a_daemon_that_names_the_kind_is_waited_for() {
        let now = serde_json::to_value(Event::listening(1)).unwrap();
        assert!(tells_of_networks(&now) && kind(&now) == Some(EventKind::Listening));
        let earlier = serde_json::to_value(Event::of_daemon(EventKind::Listening, 1)).unwrap();
        assert!(!tells_of_networks(&earlier));
        let change = serde_json::to_value(Event::of_daemon(EventKind::Networks, 1)).unwrap();
        assert!(kind(&change) == Some(EventKind::Networks) && !tells_of_networks(&change));
    }

    #[test]
    fn the_counter_changes_with_each_second() {
        let left = |ms| until_next_second(Duration::from_millis(ms));
        assert_eq!(left(3_000), STEP);
        assert_eq!(left(3_990), Duration::from_millis(10));
    }

    #[test]
    fn each_address_has_a_line_and_only_a_change_has_another_one() {
        let mut told = Told::default();
        let [one, other] =
            [("192.0.2.1:9", WAITING), ("192.0.2.2:2121", WAITING)].map(|(at, state)| row(at, state, "no answer yet"));
        let both = [one, other.clone()];
        assert_eq!(
            told.news((&both, "no answer"), 3, None),
            "Not a member after 3 s: no answer\n  192.0.2.1:9  no answer yet\n  192.0.2.2:2121  no answer yet\n"
        );
        assert_eq!(told.news((&both, "no answer"), 4, None), "");
        let both = [row("192.0.2.1:9", REFUSED, "refu\x1bsed"), other];
        assert_eq!(told.news((&both, "no answer"), 5, None), "  192.0.2.1:9  refu?sed\n");
        assert_eq!(
            told.news((&both, "it waits"), 6, None),
            "Not a member after 6 s: it waits\n"
        );
    }

    #[test]
    fn a_terminal_shows_the_present_state_in_the_same_place() {
        let mut told = Told::default();
        let rows = [row("192.0.2.1:9", WAITING, "no answer yet")];
        let text = told.news((&rows, "no answer"), 3, Some(24));
        assert_eq!(
            text,
            "Not a member after 3 s:\u{2026}\n  192.0.2.1:9  no answe\u{2026}\n"
        );
        assert_eq!(told.news((&rows, "no answer"), 3, Some(24)), "");
        assert!(
            told.news((&rows, "no answer"), 4, Some(24))
                .starts_with("\x1b[2A\x1b[JNot a member after 4 s")
        );
    }

    #[test]
    fn the_end_names_each_address_and_each_advice_once() {
        let rows = [
            row("192.0.2.1:9", REFUSED, "refused"),
            row("[2001:db8::1]:2121", WAITING, "no answer yet\n"),
        ];
        assert_eq!(
            in_one_line("no answer", &rows),
            "no answer; 192.0.2.1:9 refused; [2001:db8::1]:2121 no answer yet?; start weft there"
        );
    }
}
