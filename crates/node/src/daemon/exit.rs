//! Exits: the member by which this node sends packets to all other addresses, and this node as exit
//! of others.
//!
//! The broker changes the system. Orders go to it one after the other from a task, which always
//! carries out the latest one, and its results come back to the daemon's loop.

use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::{sleep, timeout};
use weft_control::Reply;
use weft_control::status::{ExitStatus, Reloaded, ServesStatus};
use weft_core::{Frames, PeerStatus};
use weft_desired::exit::{Orders, offered, used};
use weft_host::broker::{Broker, Client};
use weft_host::exit::{ServeExit, UseExit};
use weft_host::faults::{EXIT, Fault};
use weft_networks::of_exit;
use weft_networks::rules::why::Question;
use weft_noise::PublicKey;
use weft_os::clock::{boottime_ms, unix_s};
use weft_roster::record::Exit;
use weft_wire::Subnet;
use weft_wire::ip::{PROTOCOL_TCP, PROTOCOL_UDP};

use super::exit_check::ExitChecks;
use super::run::Daemon;
use super::why::{why_frames, why_trouble};

/// The pause before an order is repeated that the system refused.
const AGAIN: Duration = Duration::from_secs(5);
/// How long the daemon waits at its end.
const ENDING: Duration = Duration::from_secs(10);
/// The interval between two requests for a session with the exit, in ms.
const ASK_AGAIN: u64 = 2_000;

/// What the system does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Effects {
    used: Option<UseExit>,
    served: Option<ServeExit>,
    /// The reasons why the last order was refused: about the exit of this node, and about this node
    /// as exit.
    refused: [Option<String>; 2],
}

/// The orders to the broker, and their effects.
#[derive(Debug)]
pub(super) struct Exits {
    orders: watch::Sender<Orders>,
    effects: mpsc::Receiver<Effects>,
    now: Effects,
    /// Whether the first orders were given.
    ordered: bool,
    /// When the exit was last asked for a session, in ms.
    asked: u64,
    /// What exits say about themselves.
    pub(super) checks: ExitChecks,
    /// The clients that wait until the system has carried their change out.
    pub(super) waiting: Vec<(Reply, Reloaded)>,
}

impl Exits {
    /// Starts the task, on the runtime on which it is called.
    pub(super) fn start(broker: &std::io::Result<Broker>) -> Self {
        let (orders, waiting) = watch::channel(Orders::default());
        let (done, effects) = mpsc::channel(1);
        let broker = broker.as_ref().map(Broker::client).map_err(ToString::to_string);
        tokio::spawn(keep(broker, waiting, done));
        Self {
            orders,
            effects,
            now: Effects::default(),
            ordered: false,
            asked: 0,
            checks: ExitChecks::default(),
            waiting: Vec::new(),
        }
    }

    /// Returns the next effects; never `None` while this value lives. Safe to cancel.
    pub(super) async fn next(&mut self) -> Option<Effects> {
        self.effects.recv().await
    }

    /// Restores everything, and waits for that. A strict exit still blocks packets unless `open`.
    pub(super) async fn end(&mut self, open: bool) {
        if *self.orders.borrow() == Orders::default() && self.now == Effects::default() {
            return;
        }
        let used = self.orders.borrow().used.filter(|exit| exit.strict && !open);
        self.orders.send_replace(Orders {
            used,
            served: None,
            ends: open,
        });
        if used.is_some() {
            tracing::info!("the exit is strict: packets stay in until weft runs again; `weft down` opens this host");
        }
        let ended = async {
            while let Some(effects) = self.effects.recv().await {
                if (effects.used.is_none() || used.is_some()) && effects.served.is_none() {
                    return;
                }
            }
        };
        if timeout(ENDING, ended).await.is_err() {
            tracing::warn!("what was changed for an exit is not put back in time; the next start does it");
        }
    }

    /// Returns true if the system drops all packets that do not go through the exit.
    pub(super) fn is_strict(&self) -> bool {
        self.now.used.is_some_and(|exit| exit.strict)
    }

    /// Returns true if the system has carried the last orders out, or refused them.
    pub(super) fn is_settled(&self) -> bool {
        let orders = self.orders.borrow();
        let done = orders.used == self.now.used && orders.served == self.now.served;
        done || self.now.refused.iter().any(Option::is_some)
    }

    /// Returns for IPv4 and for IPv6 whether packets go through an exit.
    pub(super) fn carried(&self) -> [bool; 2] {
        self.now.used.map_or([false; 2], |exit| [exit.ipv4, exit.ipv6])
    }

    /// Returns the IP versions that this node forwards as exit.
    pub(super) fn served(&self) -> Option<Exit> {
        self.now.served.as_ref().map(|served| Exit {
            ipv4: served.ipv4,
            ipv6: served.ipv6,
        })
    }
}

/// Carries out the latest orders, and those again that the system refused.
async fn keep(broker: Result<Client, String>, mut orders: watch::Receiver<Orders>, done: mpsc::Sender<Effects>) {
    let mut now = Effects::default();
    // The first orders, which follow from the settings.
    if orders.changed().await.is_err() {
        return;
    }
    if let Ok(broker) = &broker {
        // Rules and settings that a killed daemon has left, unless they are wanted again.
        let wanted = orders.borrow().clone();
        if wanted.used.is_none() {
            note(broker.leave_exit(wanted.ends).await);
        }
        if wanted.served.is_none() {
            note(broker.stop_serving().await);
        }
    }
    loop {
        let wanted = orders.borrow_and_update().clone();
        if wanted.used != now.used {
            let changed = match (&broker, &wanted.used) {
                (Err(why), _) => Err(format!("the broker did not start: {why}")),
                (Ok(broker), Some(exit)) => broker.use_exit(exit).await,
                (Ok(broker), None) => broker.leave_exit(wanted.ends).await,
            };
            now.refused[0] = changed.err();
            if now.refused[0].is_none() {
                now.used.clone_from(&wanted.used);
            }
        }
        if wanted.served != now.served {
            let changed = match (&broker, &wanted.served) {
                (Err(why), _) => Err(format!("the broker did not start: {why}")),
                (Ok(broker), Some(exit)) => broker.serve_exit(exit).await,
                (Ok(broker), None) => broker.stop_serving().await,
            };
            now.refused[1] = changed.err();
            if now.refused[1].is_none() {
                now.served.clone_from(&wanted.served);
            }
        }
        if done.send(now.clone()).await.is_err() {
            return;
        }
        let refused = now.refused.iter().any(Option::is_some);
        tokio::select! {
            changed = orders.changed() => if changed.is_err() { return },
            () = sleep(AGAIN), if refused => {}
        }
    }
}

fn note(put_back: Result<(), String>) {
    if let Err(error) = put_back {
        tracing::info!(error, "what an earlier run changed for an exit is not put back");
    }
}

impl Daemon {
    /// Gives the orders that hold now to the broker.
    pub(super) fn give_orders(&mut self) {
        let first = !std::mem::replace(&mut self.exits.ordered, true);
        let orders = &self.desired.orders;
        self.exits.orders.send_if_modified(|before| {
            let differs = first || before != orders;
            before.clone_from(orders);
            differs
        });
        self.ask_exit(boottime_ms());
    }

    /// Returns true if the exit has become reachable or unreachable, so that the orders for the system change.
    pub(super) fn exit_changes(&self) -> bool {
        let pass = |key: &PublicKey| self.passes(key).is_ok();
        let used = used(&self.configuration.config, &self.networks, self.desired.exit, pass);
        used != self.desired.orders.used
    }

    /// Notes what the system does now.
    pub(super) fn exit_done(&mut self, effects: Effects) {
        if effects.refused != self.exits.now.refused {
            for why in effects.refused.iter().flatten() {
                tracing::warn!(why, "the system refuses a change for an exit");
            }
        }
        let served = self.exits.served();
        self.exits.now = effects;
        self.answer_settled();
        if served != self.exits.served() {
            self.apply();
        }
        self.events.hurry(std::time::Instant::now());
    }

    /// Returns the reason why packets do not pass through the exit, apart from refusals of the
    /// system.
    fn obstacle(&self) -> Option<String> {
        let config = &self.configuration.config;
        let Some((key, _)) = self.desired.exit else {
            let named = config.tun.exit.as_ref()?;
            return Some(match self.desired.members.named_exit(named) {
                Ok(_) => format!(
                    "{named} is no approved exit; an administrator makes it one: `weft route approve {named} exit`"
                ),
                Err(error) => error.to_string(),
            });
        };
        self.passes(&key).err()
    }

    /// Returns an error with the reason if packets of subnets do not pass to a peer.
    pub(super) fn passes(&self, key: &PublicKey) -> Result<(), String> {
        let name = self.facts.name(key);
        let Some(peer) = &self.node.status_of(boottime_ms(), key.node_addr()) else {
            return Err(format!("{name} is not reached: it is no peer yet"));
        };
        let unreached = || format!("{name} is not reached: {}", self.facts.why(peer, boottime_ms()));
        let is_unlinked = peer.link.is_none() && peer.path.is_none();
        if is_unlinked && peer.session.is_none() {
            return Err(unreached());
        }
        if let Some((trouble, _)) = peer.trouble {
            return Err(format!("{name} is not reached: {}", why_trouble(trouble)));
        }
        if peer.session.is_none() {
            return Ok(());
        }
        if let Some(seen) = self.nvpn.seen(boottime_ms(), key).filter(|_| !peer.require_fast) {
            let silence = || {
                format!(
                    "{name}, an nvpn device, has not answered for {} s",
                    seen.heard_ms / 1_000
                )
            };
            return if seen.is_online() { Ok(()) } else { Err(silence()) };
        }
        match peer.frames {
            Frames::Fast(_) | Frames::Relayed(_) if peer.fast => {}
            Frames::Fast(_) | Frames::Relayed(_) if is_unlinked => return Err(unreached()),
            Frames::Fast(_) | Frames::Relayed(_) => return Err(format!("fast frames to {name} are being set up")),
            frames => {
                return Err(format!(
                    "only fast frames carry packets to {name}: {}",
                    why_frames(frames)
                ));
            }
        }
        if !peer.reads_full {
            return Err(format!(
                "{name} does not read such packets; a later version of weft does"
            ));
        }
        Ok(())
    }

    /// Asks for a session with the exit if there is none: without, nothing shows whether it can be
    /// reached.
    pub(super) fn ask_exit(&mut self, now: u64) {
        let Some((key, _)) = self.desired.exit else {
            return;
        };
        let up = |peer: PeerStatus| peer.session.is_some();
        if now < self.exits.asked + ASK_AGAIN || self.node.status_of(now, key.node_addr()).is_some_and(up) {
            return;
        }
        self.exits.asked = now;
        self.node.want_session(now, &key);
    }

    /// Returns the status of the exit of this node.
    pub(super) fn exit_status(&self, now: u64) -> Option<ExitStatus> {
        let config = &self.configuration.config;
        let named = config.tun.exit.as_ref()?;
        let exit = self.desired.exit;
        let refused = self.exits.now.refused[0].as_ref();
        let refused = refused.map(|why| format!("the system refuses it: {why}"));
        let used = self.exits.now.used.is_some_and(|exit| !exit.direct);
        let obstacle = self.obstacle().or(refused);
        let obstacle = obstacle.or_else(|| (!used).then(|| "being set up".to_owned()));
        let state = exit.and_then(|(key, _)| self.exits.state_of(now, &key));
        let obstacle = obstacle.or_else(|| self.exit_fault(exit?.0, now));
        let obstacle = obstacle.or_else(|| self.denied(exit?.0));
        let strict = config.tun.exit_strict;
        let why = match &obstacle {
            None if state.is_some_and(|(state, _)| state.nameless) => format!(
                "packets pass, but queries for names get no answer: the name server of {named} is silent; `weft doctor` there \
                 names it"
            ),
            None => "packets pass".to_owned(),
            Some(why) if strict && used => {
                format!("{why}; nothing else leaves this machine until that ends, or `weft set --no-exit` is given")
            }
            Some(why) if strict => format!("{why}; packets leave without it"),
            Some(why) if used => why.clone(),
            Some(why) => format!("{why}; packets leave without it until that ends"),
        };
        Some(ExitStatus {
            exit: named.to_string(),
            npub: self.desired.members.named_exit(named).ok().map(|key| key.to_string()),
            strict,
            lan: config.tun.exit_lan,
            inbound: !strict || config.tun.exit_inbound,
            ipv4: exit.is_some_and(|(_, exit)| exit.ipv4),
            ipv6: exit.is_some_and(|(_, exit)| exit.ipv6),
            used,
            pass: obstacle.is_none(),
            why,
            told_ms: state.map(|(_, age)| age),
        })
    }

    /// Returns the reason if the rules let nothing of this node pass through the exit: neither web pages nor queries
    /// for names.
    fn denied(&self, exit: PublicKey) -> Option<String> {
        const ASKED: [(u8, u16); 4] = [
            (PROTOCOL_TCP, 443),
            (PROTOCOL_UDP, 443),
            (PROTOCOL_TCP, 80),
            (PROTOCOL_UDP, 53),
        ];
        let unix = unix_s();
        let mut verdicts = ASKED.iter().map(|(protocol, port)| {
            let question = Question {
                from: self.facts.key,
                to: exit,
                behind: None,
                exit: true,
                protocol: *protocol,
                port: Some(*port),
            };
            self.verdict(&question, unix)
        });
        let first = verdicts.next().filter(|first| !first.allowed)?;
        let others = verdicts.all(|verdict| !verdict.allowed);
        let reason = first.reasons.last().map(String::as_str).unwrap_or_default();
        others.then(|| format!("the rules let nothing of this machine pass by it ({reason})"))
    }

    /// Returns the fault that looks have found and that keeps packets from passing: at the exit, on the path to it,
    /// or on this host.
    fn exit_fault(&self, exit: PublicKey, now: u64) -> Option<String> {
        let name = self.facts.name(&exit);
        let peer = self.node.status_of(now, exit.node_addr());
        let silent = peer.and_then(|mut peer| {
            let silence = self.facts.judge(&mut peer, now)?;
            Some(format!(
                "{name} is not reached: {}",
                self.facts.why_judged(&peer, Some(silence))
            ))
        });
        let here = || self.faults.of(EXIT).map(Fault::in_brief);
        let there = || {
            let (state, age) = self.exits.state_of(now, &exit)?;
            if !state.ipv4.0 && !state.ipv6.0 {
                return Some(format!(
                    "{name} has said {} s ago that it forwards nothing: it does not offer that any longer, or sets it up",
                    age / 1_000
                ));
            }
            let versions = match (state.ipv4.1, state.ipv6.1) {
                (true, true) => "all packets",
                (true, false) => "IPv4",
                (false, true) => "IPv6",
                (false, false) => return None,
            };
            Some(format!(
                "{name} has said {} s ago that a fault of its host stops {versions}: `weft doctor` there names it",
                age / 1_000
            ))
        };
        silent.or_else(here).or_else(there)
    }

    /// Returns the status of this node as exit.
    pub(super) fn serves_status(&self) -> Option<ServesStatus> {
        if !self.configuration.config.tun.advertise_exit {
            return None;
        }
        let served = self.exits.served();
        let refused = self.exits.now.refused[1].as_ref();
        let fault = served
            .into_iter()
            .flat_map(of_exit)
            .find_map(|all| self.faults.about(all));
        let why = match (served, refused) {
            (_, Some(why)) => format!("the system refuses it: {why}"),
            (Some(_), None) if let Some(fault) = fault => fault.in_brief(),
            (Some(_), None) => "members may send to all other addresses".to_owned(),
            (None, None) if self.networks.own_exit().is_some() => "being set up".to_owned(),
            (None, None) if offered(&self.system.surroundings, self.system.interface).is_empty() => {
                "this host has no default route; `ip route` shows its routes".to_owned()
            }
            (None, None) => "waits for an administrator: `weft route approve NAME exit`".to_owned(),
        };
        Some(ServesStatus {
            ipv4: served.is_some_and(|exit| exit.ipv4),
            ipv6: served.is_some_and(|exit| exit.ipv6),
            why,
        })
    }

    /// Returns whether members may send to all addresses of an IP version through this node, and
    /// why.
    pub(super) fn serving(&self, all: Subnet) -> (bool, String) {
        let served = self
            .exits
            .served()
            .into_iter()
            .flat_map(of_exit)
            .any(|subnet| subnet == all);
        match self.serves_status() {
            Some(_) if served && let Some(fault) = self.faults.about(all) => (false, fault.in_brief()),
            Some(status) => (served, status.why),
            None => (
                false,
                "not offered any longer: an administrator can revoke it".to_owned(),
            ),
        }
    }

    /// Returns whether packets of this node to all addresses of an IP version go through this
    /// member, and why.
    pub(super) fn use_of_exit(&self, all: Subnet, member: &PublicKey) -> (bool, String) {
        let mut chosen = self.desired.members.subnets();
        match self.exit_status(boottime_ms()) {
            Some(status) if chosen.any(|(subnet, key)| subnet == all && key == *member) => {
                (status.used && status.pass, status.why)
            }
            _ => (
                false,
                format!(
                    "not used here: `weft set --exit {}` changes that",
                    self.facts.name(member)
                ),
            ),
        }
    }
}
