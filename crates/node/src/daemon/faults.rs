//! Faults of the host, looked for while a client asks for what depends on them.
//!
//! The broker looks, since the rules of nftables are root's. A look serves all requests of the second
//! after it.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use tokio::task::JoinSet;
use weft_control::status::FaultsStatus;
use weft_host::broker::{Broker, Client};
use weft_host::dns::{LoopProbe, Responder, is_answering};
use weft_host::faults::{Examined, Fault, RESOLVER, Skipped, Wanted, host};
use weft_networks::of_exit;
use weft_wire::Subnet;

use super::run::Daemon;

/// How long the results of a look are used.
const FRESH: Duration = Duration::from_millis(300);
/// The counter of packets that found the table of flows full.
const FLOWS_FULL: &str = "flows_full";
/// The share of the time that looks may take: one in this number.
const SHARE: u32 = 20;

/// The results of the last look.
pub(super) struct Faults {
    broker: Option<Client>,
    done: mpsc::Sender<Found>,
    found: mpsc::Receiver<Found>,
    last: Option<Look>,
    /// When the look that is under way has begun.
    began: Option<Instant>,
    /// The packets for which the table of flows had no room, at the last look.
    refused: u64,
}

/// What a look has found.
pub(super) struct Found {
    examined: Examined,
    /// How long the system had to work for it.
    took: Duration,
}

/// A look that is done.
struct Look {
    began: Instant,
    found: Found,
}

impl Faults {
    pub(super) fn new(broker: Option<&Broker>) -> Self {
        let (done, found) = mpsc::channel(1);
        Self {
            broker: broker.map(Broker::client),
            done,
            found,
            last: None,
            began: None,
            refused: 0,
        }
    }

    /// Returns the results of the look that is under way; never `None` while this value lives. Safe to
    /// cancel.
    pub(super) async fn next(&mut self) -> Option<Found> {
        self.found.recv().await
    }

    /// Returns true if a look is under way.
    pub(super) const fn is_under_way(&self) -> bool {
        self.began.is_some()
    }

    fn is_fresh(&self, now: Instant) -> bool {
        let until = self
            .last
            .as_ref()
            .map(|last| last.began + FRESH.max(last.found.took * SHARE));
        until.is_some_and(|until| now < until)
    }

    fn note(&mut self, now: Instant, found: Found) {
        let began = self.began.take().unwrap_or(now);
        self.last = Some(Look { began, found });
    }

    fn all(&self) -> &[Fault] {
        self.last.as_ref().map_or(&[], |last| &last.found.examined.faults)
    }

    /// Returns the fault that keeps packets of others from a subnet behind this host, or from all addresses of a
    /// version.
    pub(super) fn about(&self, to: Subnet) -> Option<&Fault> {
        let to = to.to_string();
        self.all().iter().find(|fault| fault.to.as_ref() == Some(&to))
    }

    /// Returns the fault that a check has found.
    pub(super) fn of(&self, check: &str) -> Option<&Fault> {
        self.all().iter().find(|fault| fault.check == check)
    }

    /// Returns true if members that use this exit find no names.
    pub(super) fn is_nameless(&self) -> bool {
        self.of(RESOLVER).is_some()
    }

    /// Returns the age of the last look.
    pub(super) fn age(&self, now: Instant) -> Option<Duration> {
        let last = self.last.as_ref()?;
        Some(now.saturating_duration_since(last.began))
    }

    /// Returns the status; `None` without a look.
    pub(super) fn status(&self) -> Option<FaultsStatus> {
        let last = self.last.as_ref()?;
        Some(FaultsStatus {
            age_ms: u64::try_from(last.began.elapsed().as_millis()).unwrap_or(u64::MAX),
            found: last.found.examined.faults.clone(),
            skipped: last.found.examined.skipped.clone(),
        })
    }
}

/// Why members get no answer to their queries at an address of this exit, if so.
type Names = Option<String>;

/// Looks for faults of this host. `names`: given while this node is an exit.
async fn look(wanted: Wanted, broker: Option<Client>, probe: Option<LoopProbe>, names: Option<Names>) -> Found {
    let host = async {
        let began = Instant::now();
        let found = match &broker {
            Some(broker) => broker.examine(wanted).await,
            None => Err("the broker did not start".to_owned()),
        };
        let took = began.elapsed();
        let mut examined = found.unwrap_or_else(|why| Examined {
            skipped: vec![Skipped {
                check: "host".to_owned(),
                why,
            }],
            ..Examined::default()
        });
        if let Some(names) = names {
            examined.faults.extend(nameless(names, broker.as_ref()).await);
        }
        Found { examined, took }
    };
    let (mut found, looping) = tokio::join!(host, sent_back(probe));
    found.examined.faults.extend(looping);
    found
}

/// Finds the fault that members that use this exit resolve no names: they cannot ask it, or no server of this host
/// answers.
async fn nameless(names: Names, broker: Option<&Client>) -> Option<Fault> {
    let fault = |what: String, fix: &str| Fault {
        check: RESOLVER.to_owned(),
        what,
        why: "members that use this exit find no names".to_owned(),
        fix: Some(fix.to_owned()),
        to: None,
    };
    if let Some(why) = names {
        let what = format!("weft does not answer members at {why}");
        return Some(fault(
            what,
            "`ss -lnup` and `ss -lntp` name a program that has taken the port",
        ));
    }
    let servers = broker?.name_servers().await.ok()?;
    if servers.is_empty() {
        let fix = "name one in the resolver of this host, as in /etc/resolv.conf";
        return Some(fault("this host has no name server".to_owned(), fix));
    }
    let mut asked: JoinSet<bool> = servers.iter().map(|server| is_answering(*server)).collect();
    while let Some(answers) = asked.join_next().await {
        if answers.is_ok_and(|answers| answers) {
            return None;
        }
    }
    let listed: Vec<String> = servers.iter().map(ToString::to_string).collect();
    let what = match &listed[..] {
        [one] => format!("the name server {one} does not answer"),
        all => format!("the name servers {} do not answer", all.join(", ")),
    };
    let fix = "name another server in the resolver of this host, as in /etc/resolv.conf";
    Some(fault(what, fix))
}

/// Finds the fault that a server to which this node forwards queries sends them back.
async fn sent_back(probe: Option<LoopProbe>) -> Option<Fault> {
    let server = probe?.run().await.ok()??;
    Some(Fault {
        check: "dns".to_owned(),
        what: format!("the name server {server} sends queries back to weft"),
        why: "names of all other hosts are not found".to_owned(),
        fix: Some(
            "give it servers of its own, as `server=ADDRESS` and `no-resolv` in dnsmasq.conf: it has read \
             /etc/resolv.conf, which names weft"
                .to_owned(),
        ),
        to: None,
    })
}

impl Daemon {
    /// Begins a look at the host, unless one is under way or the last one is fresh. Returns whether the
    /// results are to come.
    pub(super) fn look_at_host(&mut self) -> bool {
        if self.faults.is_fresh(Instant::now()) {
            return false;
        }
        if self.faults.began.is_none() {
            self.faults.began = Some(Instant::now());
            let (wanted, broker, done) = (self.expected(), self.faults.broker.clone(), self.faults.done.clone());
            let probe = self.facts.dns.as_ref().map(Responder::loop_probe);
            let names = self.exits.served().map(|_| self.facts.exit_names.failed());
            tokio::spawn(async move {
                let _ = done.send(look(wanted, broker, probe, names).await).await;
            });
        }
        true
    }

    /// Notes what a look has found.
    pub(super) fn handle_examined(&mut self, mut found: Found) {
        found.examined.faults.extend(self.full_table());
        self.faults.note(Instant::now(), found);
        self.tell_exits();
        self.answer_ready();
    }

    /// Finds the fault that the table of flows had no room since the last look.
    fn full_table(&mut self) -> Option<Fault> {
        let counters = self.facts.counters(&self.node, &self.lanes.snapshots());
        let refused = counters.get(FLOWS_FULL).copied().unwrap_or(0);
        let since = refused.saturating_sub(std::mem::replace(&mut self.faults.refused, refused));
        (since > 0).then(|| Fault {
            check: "flows".to_owned(),
            what: format!(
                "the table of flows of weft is full: {since} packets of new flows were dropped since the last look"
            ),
            why: "new connections with peers begin late or not at all".to_owned(),
            fix: Some("end the program that opens so many; `ss -tuna` lists connections".to_owned()),
            to: None,
        })
    }

    /// Returns true if others send to subnets behind this host.
    pub(super) fn has_subnets_behind(&self) -> bool {
        self.behind().next().is_some()
    }

    /// Returns the subnets behind this host that others send to.
    fn behind(&self) -> impl Iterator<Item = Subnet> {
        let config = &self.configuration.config;
        let approved = self.networks.own_routes();
        let offered = config.networks.advertise_routes.iter();
        let offered = offered.filter(move |subnet| approved.contains(subnet));
        config.tun.routes.iter().chain(offered).copied()
    }

    /// Returns the facts that this node expects of its host.
    fn expected(&self) -> Wanted {
        let mut ports: Vec<u16> = self.facts.listen.iter().map(std::net::SocketAddr::port).collect();
        ports.sort_unstable();
        ports.dedup();
        let served = self.exits.served().into_iter().flat_map(of_exit);
        let served: Vec<bool> = served.map(|all| all.address().is_ipv4()).collect();
        let wanted = &self.desired.routes.wanted;
        // An address in a network of this host leads there.
        let leads_past = |address: &IpAddr| wanted.past.iter().any(|network| network.contains(*address));
        let subnets = wanted.subnets.keys().map(|subnet| host(*subnet, 1));
        let subnets = subnets.filter(|address| !leads_past(address));
        let members = self
            .desired
            .members
            .iter()
            .map(|(key, _)| IpAddr::V6(key.node_addr().to_ipv6()));
        Wanted {
            ports,
            exit: [served.contains(&true), served.contains(&false)],
            by_exit: self.exits.carried(),
            behind: self.behind().collect(),
            inside: subnets.chain(members).collect(),
        }
    }
}
