//! What an exit has found out about itself: asked for by the nodes that use it, while a user looks.

use std::time::{Duration, Instant};

use weft_discovery::checks::PATIENCE;
use weft_networks::of_exit;
use weft_noise::PublicKey;
use weft_os::clock::boottime_ms;
use weft_wire::check::{Check, ExitState};

use super::exit::Exits;
use super::run::Daemon;

/// The interval between two questions to the exit, in ms.
const AGAIN: u64 = 1_000;
/// The time for which the report of an exit counts, in ms.
const KEPT: u64 = 60_000;
/// Maximum number of nodes that wait for a look of this exit.
const MOST: usize = 64;

/// The question of this node to its exit, and the questions of others.
#[derive(Debug, Default)]
pub(super) struct ExitChecks {
    asked: Option<Asked>,
    waiting: Vec<(PublicKey, u64)>,
}

/// The last question to an exit.
#[derive(Debug)]
struct Asked {
    exit: PublicKey,
    number: u64,
    at: u64,
    /// The last answer, and when the exit had looked.
    said: Option<(ExitState, u64)>,
    open: bool,
}

impl Exits {
    /// Handles the answer of an exit. Returns false if this node has not asked.
    pub(super) fn handle_state(&mut self, now: u64, exit: &PublicKey, number: u64, state: ExitState) -> bool {
        match &mut self.checks.asked {
            Some(asked) if asked.exit == *exit && asked.number == number => {
                asked.said = Some((state, now.saturating_sub(state.age.into())));
                asked.open = false;
                true
            }
            _ => false,
        }
    }

    /// Returns true if the exit may still answer.
    pub(super) fn awaits_state(&self, now: u64) -> bool {
        let asked = self.checks.asked.as_ref();
        asked.is_some_and(|asked| asked.open && now < asked.at + PATIENCE)
    }

    /// Returns the state that an exit has reported of itself, and the age of its look, in ms.
    pub(super) fn state_of(&self, now: u64, exit: &PublicKey) -> Option<(ExitState, u64)> {
        let asked = self.checks.asked.as_ref().filter(|asked| asked.exit == *exit)?;
        let (state, at) = asked.said?;
        let age = now.saturating_sub(at);
        (age < KEPT).then_some((state, age))
    }
}

impl Daemon {
    /// Asks the exit of this node how it is. Returns whether its answer is to come.
    pub(super) fn check_exit(&mut self) -> bool {
        let now = boottime_ms();
        let Some((exit, _)) = self.desired.exit else {
            return false;
        };
        let before = self.exits.checks.asked.take().filter(|asked| asked.exit == exit);
        if before.as_ref().is_some_and(|asked| now < asked.at + AGAIN) {
            self.exits.checks.asked = before;
            return self.exits.awaits_state(now);
        }
        let up = self.node.status_of(now, exit.node_addr());
        if up.is_none_or(|peer| peer.session.is_none()) {
            self.exits.checks.asked = before;
            return false;
        }
        let number = self.facts.checks.number();
        self.exits.checks.asked = Some(Asked {
            exit,
            number,
            at: now,
            said: before.and_then(|asked| asked.said),
            open: true,
        });
        self.send_check(&exit, Check::AskExit(number));
        true
    }

    /// Tells a node what this exit has found out about itself, after a look. Others than members are told
    /// nothing.
    pub(super) fn tell_exit(&mut self, peer: PublicKey, number: u64) {
        let member = self.networks.iter().any(|network| network.is_member(&peer));
        if !member || self.exits.checks.waiting.len() >= MOST {
            return;
        }
        if self.exits.served().is_none() {
            // There is nothing to look at.
            self.send_check(&peer, Check::Exit(number, ExitState::default()));
            return;
        }
        self.exits.checks.waiting.push((peer, number));
        if !self.look_at_host() {
            self.tell_exits();
        }
    }

    /// Answers the nodes that have asked this exit.
    pub(super) fn tell_exits(&mut self) {
        let waiting = std::mem::take(&mut self.exits.checks.waiting);
        let state = self.exit_state();
        for (peer, number) in waiting {
            self.send_check(&peer, Check::Exit(number, state));
        }
    }

    /// Returns the state of this node as exit. One that serves no longer forwards nothing.
    fn exit_state(&self) -> ExitState {
        let age = self.faults.age(Instant::now()).unwrap_or(Duration::MAX);
        let mut state = ExitState {
            age: u16::try_from(age.as_millis()).unwrap_or(u16::MAX),
            nameless: self.faults.is_nameless(),
            ..ExitState::default()
        };
        for all in self.exits.served().into_iter().flat_map(of_exit) {
            let fault = self.faults.about(all).is_some();
            match all.address().is_ipv4() {
                true => state.ipv4 = (true, fault),
                false => state.ipv6 = (true, fault),
            }
        }
        state
    }
}
