//! Flows that the host had before the first rules, which the firewall does not know: of before a restart, a
//! crash or an upgrade, or of a time without rules.
//!
//! The first rules wait for what the kernel knows of them, so that no packet of a peer is judged before.
//! At the start the broker is asked before anything runs; later it is asked from a task. All that a change has
//! the host do waits with the rules, and so do the answers of commands.

use std::io;
use std::net::IpAddr;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::timeout;
use weft_config::Config;
use weft_desired::Desired;
use weft_host::broker::{Broker, Client};
use weft_host::flows::{Flow, Interest};
use weft_roster::record::Exit;
use weft_wire::{FIPS_PREFIX, NodeAddr, Subnet};

use super::run::Daemon;

/// How long the first rules wait while the daemon runs.
const PATIENCE: Duration = Duration::from_secs(2);
/// Addresses that most members of networks have (docs/protocol/networks.md).
const OF_MEMBERS: &str = "10.44.0.0/16";

/// What is known, or asked for.
#[derive(Debug)]
enum State {
    Unasked,
    Asked,
    Known(Vec<Flow>),
}

/// An answer that waits until what it says holds.
type Waiting = Box<dyn FnOnce(&mut Daemon)>;

/// The flows of before the first rules.
pub(super) struct KnownFlows {
    broker: Option<Client>,
    state: State,
    waiting: Vec<Waiting>,
    done: mpsc::Sender<Vec<Flow>>,
    answers: mpsc::Receiver<Vec<Flow>>,
}

impl KnownFlows {
    /// Starts with `at_start`, the flows that were asked for before the daemon runs.
    pub(super) fn new(broker: Option<&Broker>, at_start: Option<Vec<Flow>>) -> Self {
        let (done, answers) = mpsc::channel(1);
        Self {
            broker: broker.map(Broker::client),
            state: at_start.map_or(State::Unasked, State::Known),
            waiting: Vec::new(),
            done,
            answers,
        }
    }

    /// Takes what is known. `None`: it is asked for, and [`next`](Self::next) has the answer.
    fn take(&mut self, interest: impl FnOnce() -> Interest) -> Option<Vec<Flow>> {
        match (std::mem::replace(&mut self.state, State::Unasked), &self.broker) {
            (State::Known(flows), _) => Some(flows),
            (State::Unasked, None) => Some(Vec::new()),
            (State::Unasked, Some(broker)) => {
                let (broker, interest, done) = (broker.clone(), interest(), self.done.clone());
                tokio::spawn(async move {
                    let asked = timeout(PATIENCE, broker.list_flows(interest)).await;
                    let asked = asked.unwrap_or_else(|_| Err("the broker has other work".to_owned()));
                    let _ = done.send(or_none(asked)).await;
                });
                self.state = State::Asked;
                None
            }
            (State::Asked, _) => {
                self.state = State::Asked;
                None
            }
        }
    }

    /// Returns true while the first rules, and all that is new with them, wait for an answer.
    pub(super) const fn is_asked(&self) -> bool {
        matches!(self.state, State::Asked)
    }

    /// Returns the answer of the broker; never `None` while this value lives. Safe to cancel.
    pub(super) async fn next(&mut self) -> Option<Vec<Flow>> {
        self.answers.recv().await
    }
}

/// Asks the broker before the daemon runs, if there are rules.
pub(super) fn at_start(
    broker: &io::Result<Broker>,
    desired: &Desired,
    config: &Config,
    me: NodeAddr,
) -> Option<Vec<Flow>> {
    desired.rules.peers.as_ref()?;
    let broker = broker.as_ref().ok()?;
    Some(or_none(broker.list_flows(interest(desired, config, me))))
}

fn or_none(listed: Result<Vec<Flow>, String>) -> Vec<Flow> {
    listed.unwrap_or_else(|error| {
        tracing::info!(
            error,
            "flows of before stay unknown: those go on for which this host sends or a rule allows it"
        );
        Vec::new()
    })
}

/// Returns the addresses of this node and behind it; for an exit, which has all addresses behind it, those of its
/// members.
fn interest(desired: &Desired, config: &Config, me: NodeAddr) -> Interest {
    let own = Subnet::host(IpAddr::V6(me.to_ipv6()));
    let behind = desired.own_subnets.iter().chain(&config.networks.advertise_routes);
    let local = std::iter::once(own).chain(behind.copied().filter(|subnet| subnet.prefix_len() > 0));
    let mut remote = Vec::new();
    if desired.orders.served.is_some() {
        let of_members: Option<Subnet> = OF_MEMBERS.parse().ok();
        let nodes = Subnet::around(IpAddr::from([u16::from(FIPS_PREFIX) << 8, 0, 0, 0, 0, 0, 0, 0]), 8);
        remote.extend(of_members.into_iter().chain(nodes));
        let hosts = desired.members.subnets().map(|(subnet, _)| subnet);
        let others = hosts.filter(|subnet| subnet.address().is_ipv4() && subnet.prefix_len() == 32);
        remote.extend(others.filter(|host| !of_members.is_some_and(|all| all.contains(host.address()))));
    }
    Interest {
        local: local.collect(),
        remote,
    }
}

impl Daemon {
    /// Returns the flows that continue under new rules. `None`: they are asked for, and the rules
    /// wait.
    pub(super) fn flows_before(&mut self, new: &Desired) -> Option<weft_contract::KnownFlows> {
        if new.rules.peers.is_none() || self.node.has_rules() {
            return Some(weft_contract::KnownFlows::default());
        }
        let (config, me) = (&self.configuration.config, self.facts.key.node_addr());
        let flows = self.known_flows.take(|| interest(new, config, me))?;
        let known = |flow: Flow| weft_contract::KnownFlow {
            protocol: flow.protocol,
            local: flow.local,
            remote: flow.remote,
            by_peer: flow.by_peer,
        };
        // The addresses of an exit are behind this node before it forwards.
        let served = new.orders.served.as_ref().map(|served| Exit {
            ipv4: served.ipv4,
            ipv6: served.ipv6,
        });
        let mut ours = new.own_subnets.clone();
        ours.extend(served.into_iter().flat_map(weft_networks::of_exit));
        let of_members = new.members.subnets();
        let of_members = of_members.map(|(subnet, key)| (subnet, key.node_addr()));
        let of_guests = new.wireguard.iter().map(|(addr, guest)| (guest.subnet(), *addr));
        Some(weft_contract::KnownFlows {
            flows: flows.into_iter().map(known).collect(),
            ours,
            theirs: of_members.chain(of_guests).collect(),
        })
    }

    /// Applies the rules that have waited for this.
    pub(super) fn handle_known_flows(&mut self, flows: Vec<Flow>) {
        self.known_flows.state = State::Known(flows);
        self.apply();
        self.answer_applied();
        self.take_waiting_commands();
    }

    /// Calls `answer` once the last change of the networks is applied. A daemon that stops applies nothing more.
    pub(super) fn when_applied(&mut self, answer: impl FnOnce(&mut Self) + 'static) {
        if !self.stopping && !self.saving.rests() {
            self.apply_networks();
        }
        match self.known_flows.is_asked() {
            true => self.known_flows.waiting.push(Box::new(answer)),
            false => answer(self),
        }
    }

    /// Gives the answers that wait for the rules.
    pub(super) fn answer_applied(&mut self) {
        for answer in std::mem::take(&mut self.known_flows.waiting) {
            answer(self);
        }
    }
}
