//! The port that the gateway maps to the node's socket: where it is asked for, and what follows.

use std::future::pending;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::timeout;
use weft_control::status::{MappingStatus, MappingTried};
use weft_discovery::port_mapping::announcements::Announcements;
use weft_discovery::port_mapping::gateway::{self, Lease};
use weft_discovery::port_mapping::{Mapper, Place, Tried, explain};
use weft_os::clock::boottime_ms;

use super::run::Daemon;

/// How long the daemon waits at its end until the gateway has withdrawn the mapping.
const AT_THE_END: Duration = Duration::from_secs(3);

/// The mapping, and the job at the gateway that is under way.
pub(super) struct PortMapping {
    mapper: Mapper,
    lease: Option<Lease>,
    /// Why no mapping is asked for.
    unwanted: &'static str,
    sender: mpsc::Sender<gateway::Result>,
    results: mpsc::Receiver<gateway::Result>,
    hearing: Hearing,
    /// The outer address that most observers saw last.
    outer: Option<SocketAddr>,
}

/// Whether announcements of the gateway are heard.
enum Hearing {
    NotYet,
    Open(Announcements),
    /// The system gives no socket, so that a lost mapping is noticed at the next request.
    Deaf,
}

/// Something that concerns the mapping.
pub(super) enum Event {
    /// What came of a job.
    Done(gateway::Result),
    /// The gateway says that it has started.
    Announced,
}

impl PortMapping {
    pub(super) fn new() -> Self {
        let (sender, results) = mpsc::channel(1);
        Self {
            mapper: Mapper::default(),
            lease: None,
            unwanted: "it is not known yet which gateway there is",
            sender,
            results,
            hearing: Hearing::NotYet,
            outer: None,
        }
    }

    /// Returns what came of a job, or that the gateway announces something. Safe to cancel.
    pub(super) async fn next(&mut self) -> Event {
        let gateway = self.mapper.place().map(|place| place.gateway);
        let hearing = &mut self.hearing;
        let heard = async move {
            let Some(gateway) = gateway else { return pending().await };
            if matches!(hearing, Hearing::NotYet) {
                *hearing = Announcements::open().map_or(Hearing::Deaf, Hearing::Open);
            }
            if let Hearing::Open(announcements) = hearing {
                match announcements.heard(gateway).await {
                    Ok(()) => return,
                    Err(_) => *hearing = Hearing::Deaf,
                }
            }
            pending::<()>().await;
        };
        tokio::select! {
            Some(result) = self.results.recv() => Event::Done(result),
            () = heard => Event::Announced,
        }
    }

    /// Returns the time at which a job is due, in ms.
    pub(super) fn timeout(&self) -> Option<u64> {
        self.mapper.timeout()
    }

    /// Sets where a mapping is asked for; the reason if nowhere.
    pub(super) fn set_place(&mut self, now: u64, place: Result<Place, &'static str>) {
        self.unwanted = place.err().unwrap_or_default();
        if place.is_err() {
            self.hearing = Hearing::NotYet;
        }
        self.mapper.set_place(now, place.ok());
    }

    /// Handles a change of the network of this host.
    pub(super) fn handle_network_change(&mut self, now: u64) {
        self.mapper.handle_network_change(now);
    }

    /// Takes the outer address that most observers see now. If it is another one than before, the gateway has
    /// got another address, or has started anew without the mapping: it is asked as after a change of the network.
    /// Observers that lie cause no more than its requests within their least interval.
    fn note_outer(&mut self, now: u64, outer: Option<SocketAddr>) {
        let Some(outer) = outer else { return };
        if self.outer.replace(outer).is_some_and(|before| before != outer) {
            self.handle_network_change(now);
        }
    }

    /// Starts the job that is due.
    pub(super) fn drive(&mut self, now: u64) {
        while let Some(job) = self.mapper.poll(now) {
            if let Err(error) = gateway::start(job, self.lease.take(), self.sender.clone()) {
                tracing::info!(%error, "no thread for the mapping of a port");
                self.mapper
                    .handle(now, gateway::failed(job, "the system starts no thread"));
            }
        }
    }
}

impl Daemon {
    /// Handles what concerns the mapping.
    pub(super) fn handle_mapping(&mut self, event: Event) {
        match event {
            Event::Done(result) => self.mapping_done(result),
            Event::Announced => self.mapping.handle_network_change(boottime_ms()),
        }
    }

    /// Handles what came of a job at the gateway.
    fn mapping_done(&mut self, (done, lease): gateway::Result) {
        let now = boottime_ms();
        self.mapping.lease = lease;
        let before = self.mapping.mapper.tried().to_vec();
        if self.mapping.mapper.handle(now, done) {
            match self.mapping.mapper.mapped() {
                Some(granted) => tracing::info!(at = %granted.at, by = %granted.protocol, "the gateway maps a port"),
                None => tracing::info!("the gateway maps no port any more"),
            }
            self.tell_mapped(now);
        }
        for Tried { protocol, outcome } in self.mapping.mapper.tried() {
            if !before
                .iter()
                .any(|known| known.outcome == *outcome && known.protocol == *protocol)
            {
                tracing::debug!(by = %protocol, %outcome, "the gateway maps no port");
            }
        }
    }

    /// Follows what observers say about the outer address.
    pub(super) fn follow_outer(&mut self, now: u64) {
        self.mapping.note_outer(now, self.reaching.reach().outer());
    }

    pub(super) fn tell_mapped(&mut self, now: u64) {
        let mapped = self.mapping.mapper.mapped().map(|granted| granted.at);
        self.reaching.set_mapped(now, mapped);
    }

    /// Withdraws the mapping, at the end.
    pub(super) async fn withdraw_mapping(&mut self) {
        self.mapping.mapper.set_place(boottime_ms(), None);
        let withdrawn = timeout(AT_THE_END, async {
            loop {
                self.mapping.drive(boottime_ms());
                if !self.mapping.mapper.is_busy() {
                    return;
                }
                let event = self.mapping.next().await;
                self.handle_mapping(event);
            }
        });
        if withdrawn.await.is_err() {
            tracing::info!("the gateway has not withdrawn the mapping of a port yet; it ends within an hour");
        }
    }

    /// Returns the status of the mapping.
    pub(super) fn mapping_status(&self) -> MappingStatus {
        let mapper = &self.mapping.mapper;
        let mapped = mapper.mapped();
        let tried: Vec<_> = mapper
            .tried()
            .iter()
            .map(|tried| MappingTried {
                protocol: tried.protocol.to_string(),
                outcome: tried.outcome.to_string(),
            })
            .collect();
        let why = match (mapped, mapper.place(), mapper.tried()) {
            (Some(granted), ..) => format!("the gateway maps {} by {}", granted.at, granted.protocol),
            (None, None, _) => self.mapping.unwanted.to_owned(),
            (None, Some(_), []) => "the gateway is being asked".to_owned(),
            (None, Some(_), tried) => explain(tried),
        };
        MappingStatus {
            gateway: mapper.place().map(|place| place.gateway.into()),
            mapped: mapped.map(|granted| granted.at),
            protocol: mapped.map(|granted| granted.protocol.to_string()),
            tried,
            why,
        }
    }
}

#[cfg(test)]
mod tests {
    use weft_discovery::port_mapping::{Done, Granted, Job, LEAST_INTERVAL, LIFETIME, Protocol};

    use super::*;

    #[test]
    fn another_outer_address_has_the_gateway_asked_at_once() {
        let mut mapping = PortMapping::new();
        let own = "192.168.1.2:2121".parse().unwrap();
        let gateway = [192, 168, 1, 1].into();
        mapping.set_place(0, Ok(Place { gateway, own }));
        assert!(matches!(mapping.mapper.poll(0), Some(Job::Map { .. })));
        let granted = Granted {
            at: "11.0.0.1:2121".parse().unwrap(),
            protocol: Protocol::Pcp,
            lifetime: LIFETIME,
        };
        mapping.mapper.handle(0, Done::Granted(granted, Vec::new()));
        let later = 60_000;
        let [one, other] = ["11.0.0.1:2121", "11.0.0.2:2121"].map(|at| at.parse().ok());
        for known in [one, None, one] {
            mapping.note_outer(later, known);
            assert!(mapping.timeout().unwrap() > later, "nothing is new: {known:?}");
        }
        mapping.note_outer(later, other);
        assert_eq!(mapping.timeout(), Some(later));
        assert_eq!(mapping.mapper.poll(later), Some(Job::Renew));
        mapping.mapper.handle(later, Done::Granted(granted, Vec::new()));
        mapping.note_outer(later, one);
        assert_eq!(mapping.timeout(), Some(later + LEAST_INTERVAL), "observers may lie");
    }
}
