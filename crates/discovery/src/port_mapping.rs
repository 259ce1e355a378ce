//! A UDP port that the gateway of this host's network maps to the node's socket on request: what is
//! asked for, and when, as a state machine without clock, sockets and threads.
//!
//! | module | what is there |
//! |---|---|
//! | here | [`Mapper`]: which job is due, what a gateway may say, and what it said |
//! | [`gateway`] | the jobs, with PCP and NAT-PMP by a library |
//! | [`upnp`] | UPnP-IGD |
//! | [`announcements`] | messages of a gateway that has just started |
//! | [`place`] | which gateway is asked, for which socket |
//!
//! A gateway is any host that calls itself one: its answer is a hint, as the word of a neighbour is.
//! An outer address that makes no sense is refused, and peers probe the others within the budgets of
//! `weft_reach::budget`.

pub mod announcements;
pub mod gateway;
pub mod place;
pub mod upnp;

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};

use weft_reach::candidate::{Refused, check};
use weft_reach::nat::is_private;

/// The lifetime that is asked for, in seconds. A mapping is renewed after half of what was granted, or
/// sooner ([`PROBE`]).
pub const LIFETIME: u32 = 3_600;
/// The longest time between two requests for a mapping that is held, in ms: a gateway which lost it, as
/// at a restart, says nothing by itself.
pub const PROBE: u64 = 120_000;
/// The pause after the first failure, in ms; doubled with each further one.
pub const FIRST_PAUSE: u64 = 60_000;
/// The longest pause after a failure, in ms.
pub const LAST_PAUSE: u64 = 3_600_000;
/// The minimum interval between two jobs, in ms: neither a gateway that grants seconds nor a network
/// that flaps causes more.
pub const LEAST_INTERVAL: u64 = 10_000;
/// The minimum interval between two questions of a gateway that maps no port which changes of the
/// network cause, in ms: most of them are about interfaces of containers and the like.
pub const AFTER_CHANGE: u64 = 60_000;
/// The longest text of a gateway that is shown, in characters.
pub const LONGEST_TEXT: usize = 160;

/// Where a mapping is asked for, and for which socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The gateway of the default route.
    pub gateway: Ipv4Addr,
    /// The address and port of the socket in the gateway's network.
    pub own: SocketAddrV4,
}

/// A protocol between a host and its gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// Port Control Protocol (RFC 6887).
    Pcp,
    /// NAT Port Mapping Protocol (RFC 6886).
    NatPmp,
    /// WANIPConnection of UPnP's Internet Gateway Device.
    Upnp,
}

/// A mapping that a gateway granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Granted {
    /// The outer address and port.
    pub at: SocketAddr,
    /// By which protocol.
    pub protocol: Protocol,
    /// For how many seconds; 0 until it is withdrawn.
    pub lifetime: u32,
}

/// What became of a question by one protocol, as text for the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tried {
    /// The protocol.
    pub protocol: Protocol,
    /// What the gateway said.
    pub outcome: Outcome,
}

/// Why a protocol brings no mapping, as a sentence about the gateway.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Outcome {
    /// The gateway does not speak it.
    #[error("it does not answer")]
    Silent,
    /// The gateway has no outer address that is of use, and does not say which one it has.
    #[error("it has no public outer address: it is behind another NAT, or offline")]
    NoOuter,
    /// The outer address makes no sense.
    #[error(transparent)]
    Nonsense(#[from] Nonsense),
    /// Something else; text of the gateway is escaped and cut.
    #[error("{0}")]
    Said(String),
}

impl Outcome {
    /// Takes a text that is fit to be shown.
    pub(crate) fn said(why: &(impl ToString + ?Sized)) -> Self {
        Self::Said(why.to_string())
    }
}

/// Says why a gateway maps no port, for the user.
#[must_use]
pub fn explain(tried: &[Tried]) -> String {
    let outcomes = || tried.iter().map(|tried| &tried.outcome);
    if outcomes().all(|outcome| *outcome == Outcome::Silent) {
        return "the gateway offers no PCP, NAT-PMP or UPnP".to_owned();
    }
    // What a protocol says about the outer address explains what the others bring.
    let nonsense = outcomes().find(|outcome| matches!(outcome, Outcome::Nonsense(_)));
    let outer = nonsense.or_else(|| outcomes().find(|outcome| **outcome == Outcome::NoOuter));
    if let Some(outer) = outer {
        return format!("the gateway maps no port: {outer}");
    }
    let each = tried
        .iter()
        .map(|tried| format!("{}: {}", tried.protocol, tried.outcome));
    format!("the gateway maps no port ({})", each.collect::<Vec<_>>().join("; "))
}

/// What is to be done at a gateway. One job runs at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Job {
    /// Ask for a mapping, by each protocol in turn until one is granted.
    Map {
        /// Where.
        place: Place,
        /// The outer port that is wanted; a gateway may grant another one.
        port: u16,
    },
    /// Renew the mapping that was granted last.
    Renew,
    /// Withdraw it.
    Withdraw,
}

/// What came of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Done {
    /// A mapping was granted or renewed.
    Granted(Granted, Vec<Tried>),
    /// None was.
    Failed(Vec<Tried>),
    /// The mapping is withdrawn, or the gateway does not answer.
    Withdrawn,
}

/// Why an outer address makes no sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Nonsense {
    /// No host can have it.
    #[error("it says {0}, and {1}")]
    Refused(SocketAddr, Refused),
    /// An address of a private network, or of CGNAT: the gateway is behind a NAT itself.
    #[error("its outer address {0} is private: it is behind another NAT")]
    Private(IpAddr),
    /// The address of this host, or of the gateway inside.
    #[error("it says that {0} is its outer address, which is one inside")]
    Inside(IpAddr),
}

/// Asks for a mapping, renews and withdraws it. `now` is in ms on a clock that never goes back.
#[derive(Debug, Default)]
pub struct Mapper {
    place: Option<Place>,
    held: Option<Held>,
    job: Option<Job>,
    /// When the last job began.
    begun: Option<u64>,
    /// When a mapping is asked for next.
    due: u64,
    failures: u32,
    tried: Vec<Tried>,
    /// The outer port of the last mapping.
    port: Option<u16>,
}

/// A mapping that the gateway has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Held {
    place: Place,
    granted: Granted,
    renew: u64,
    /// The gateway did not answer the last time. One answer may be lost.
    missed: bool,
    /// It makes no sense, and is withdrawn.
    refused: bool,
}

impl Mapper {
    /// Says where a mapping is wanted; `None`: nowhere.
    pub fn set_place(&mut self, now: u64, place: Option<Place>) {
        if self.place != place {
            self.place = place;
            self.tried.clear();
            self.failures = 0;
            self.due = now;
        }
    }

    /// Handles a change of this host's network, or an announcement of the gateway: it may be another one
    /// with the same address, or have lost its mappings.
    pub fn handle_network_change(&mut self, now: u64) {
        let soon = self.begun.map_or(now, |begun| now.max(begun + AFTER_CHANGE));
        self.due = self.due.min(soon);
        if let Some(held) = &mut self.held {
            held.renew = held.renew.min(now);
        }
    }

    /// Returns the job that is due; [`Mapper::handle`] takes what comes of it, which must come.
    pub fn poll(&mut self, now: u64) -> Option<Job> {
        let (at, job) = self.next()?;
        if at > now {
            return None;
        }
        self.job = Some(job);
        self.begun = Some(now);
        Some(job)
    }

    /// When a job is due, in ms.
    #[must_use]
    pub fn timeout(&self) -> Option<u64> {
        self.next().map(|(at, _)| at)
    }

    fn next(&self) -> Option<(u64, Job)> {
        let earliest = self.begun.map_or(0, |begun| begun + LEAST_INTERVAL);
        match (self.job, self.held, self.place) {
            (Some(_), ..) => None,
            (None, Some(held), place) if held.refused || Some(held.place) != place => Some((0, Job::Withdraw)),
            (None, Some(held), _) => Some((held.renew.max(earliest), Job::Renew)),
            (None, None, None) => None,
            (None, None, Some(place)) => {
                let port = self.port.unwrap_or(place.own.port());
                Some((self.due.max(earliest), Job::Map { place, port }))
            }
        }
    }

    /// Whether a job runs.
    #[must_use]
    pub const fn is_busy(&self) -> bool {
        self.job.is_some()
    }

    /// Handles what came of a job. Returns whether the mapping changed.
    pub fn handle(&mut self, now: u64, done: Done) -> bool {
        let before = self.mapped();
        match (self.job.take(), done) {
            (Some(Job::Map { place, .. }), Done::Granted(granted, tried)) => self.granted(now, place, granted, tried),
            (Some(Job::Renew), Done::Granted(granted, tried)) => {
                if let Some(held) = self.held {
                    self.granted(now, held.place, granted, tried);
                }
            }
            (Some(Job::Map { .. }), Done::Failed(tried)) => {
                self.tried = tried;
                self.pause(now);
            }
            (Some(Job::Renew), Done::Failed(tried)) if self.misses(&tried) => {}
            // The gateway refuses, or is gone: it is asked as if for the first time.
            (_, Done::Failed(tried)) => {
                self.tried = tried;
                self.held = None;
                self.due = now;
            }
            (_, Done::Withdrawn | Done::Granted(..)) => {
                if self.held.take().is_some_and(|held| held.refused) {
                    self.pause(now);
                }
            }
        }
        before != self.mapped()
    }

    /// Keeps the mapping if no answer to a renewal has come for the first time.
    fn misses(&mut self, tried: &[Tried]) -> bool {
        let silent = tried.iter().all(|tried| tried.outcome == Outcome::Silent);
        match &mut self.held {
            // It is asked again after the least interval.
            Some(held) if silent && !held.missed => {
                (held.missed, held.renew) = (true, 0);
                true
            }
            _ => false,
        }
    }

    fn granted(&mut self, now: u64, place: Place, granted: Granted, mut tried: Vec<Tried>) {
        let nonsense = sense(&place, granted.at).err();
        if let Some(nonsense) = nonsense {
            tried.push(Tried {
                protocol: granted.protocol,
                outcome: nonsense.into(),
            });
        } else {
            self.failures = 0;
            self.port = Some(granted.at.port());
        }
        self.tried = tried;
        let lifetime = match granted.lifetime {
            0 => LIFETIME,
            seconds => seconds.min(LIFETIME),
        };
        self.held = Some(Held {
            place,
            granted,
            renew: now + (u64::from(lifetime) * 500).min(PROBE),
            missed: false,
            refused: nonsense.is_some(),
        });
    }

    fn pause(&mut self, now: u64) {
        self.due = now + (FIRST_PAUSE << self.failures.min(6)).min(LAST_PAUSE);
        self.failures = self.failures.saturating_add(1);
    }

    /// The mapping of the present place.
    #[must_use]
    pub fn mapped(&self) -> Option<Granted> {
        let held = self.held.filter(|held| !held.refused && Some(held.place) == self.place);
        held.map(|held| held.granted)
    }

    /// Where a mapping is wanted.
    #[must_use]
    pub const fn place(&self) -> Option<Place> {
        self.place
    }

    /// What became of the last questions, by protocol, but for the one that was granted.
    #[must_use]
    pub fn tried(&self) -> &[Tried] {
        &self.tried
    }
}

/// Checks the outer address that a gateway says.
fn sense(place: &Place, at: SocketAddr) -> Result<(), Nonsense> {
    check(at).map_err(|why| Nonsense::Refused(at, why))?;
    let inside = [IpAddr::V4(place.gateway), IpAddr::V4(*place.own.ip())];
    if inside.contains(&at.ip()) {
        return Err(Nonsense::Inside(at.ip()));
    }
    if is_private(at.ip()) {
        return Err(Nonsense::Private(at.ip()));
    }
    Ok(())
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pcp => "PCP",
            Self::NatPmp => "NAT-PMP",
            Self::Upnp => "UPnP",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(last: u8) -> Place {
        Place {
            gateway: Ipv4Addr::new(192, 168, last, 1),
            own: SocketAddrV4::new(Ipv4Addr::new(192, 168, last, 2), 2121),
        }
    }

    fn granted(at: &str, lifetime: u32) -> Done {
        let at = at.parse().unwrap();
        let protocol = Protocol::Pcp;
        Done::Granted(Granted { at, protocol, lifetime }, Vec::new())
    }

    fn tried(why: &str) -> Done {
        let (protocol, outcome) = (Protocol::Upnp, Outcome::Said(why.to_owned()));
        Done::Failed(vec![Tried { protocol, outcome }])
    }

    fn mapped(mapper: &Mapper) -> Option<String> {
        mapper.mapped().map(|granted| granted.at.to_string())
    }

    fn asked(port: u16) -> Option<Job> {
        let place = place(1);
        Some(Job::Map { place, port })
    }

    fn started() -> Mapper {
        let mut mapper = Mapper::default();
        mapper.set_place(0, Some(place(1)));
        assert_eq!(mapper.poll(0), asked(2121));
        assert_eq!((mapper.poll(9), mapper.timeout()), (None, None), "one job at a time");
        mapper
    }

    #[test]
    fn a_mapping_is_asked_for_again_within_two_minutes() {
        for (lifetime, renewed) in [
            (3_600, 120),
            (120, 60),
            (86_400, 120),
            (0, 120),
            (u32::MAX, 120),
            // A gateway that grants a second is asked every 10 s.
            (1, 10),
        ] {
            let mut mapper = started();
            assert!(mapper.handle(0, granted("11.0.0.1:4000", lifetime)));
            assert_eq!(mapped(&mapper).unwrap(), "11.0.0.1:4000");
            assert_eq!(mapper.timeout(), Some(renewed * 1_000), "{lifetime}");
            assert_eq!(mapper.poll(renewed * 1_000), Some(Job::Renew));
            assert!(!mapper.handle(renewed * 1_000, granted("11.0.0.1:4000", lifetime)));
        }
    }

    #[test]
    fn an_unrenewed_mapping_is_asked_for_again_with_its_port() {
        let mut mapper = started();
        mapper.handle(0, granted("11.0.0.1:4000", 3_600));
        mapper.poll(PROBE);
        assert!(mapper.handle(PROBE, tried("it refuses")));
        assert_eq!(mapped(&mapper), None);
        assert_eq!(mapper.poll(PROBE + LEAST_INTERVAL), asked(4_000));
        assert!(mapper.handle(1_810_000, granted("11.0.0.9:4001", 3_600)));
    }

    #[test]
    fn a_mapping_outlives_one_answer_that_is_missed() {
        let silent = || {
            let (protocol, outcome) = (Protocol::Pcp, Outcome::Silent);
            Done::Failed(vec![Tried { protocol, outcome }])
        };
        let mut mapper = started();
        mapper.handle(0, granted("11.0.0.1:4000", 3_600));
        mapper.poll(PROBE);
        assert!(!mapper.handle(PROBE, silent()));
        assert_eq!(mapper.poll(PROBE + LEAST_INTERVAL), Some(Job::Renew));
        assert!(!mapper.handle(PROBE + LEAST_INTERVAL, granted("11.0.0.1:4000", 3_600)));
        mapper.poll(2 * PROBE + LEAST_INTERVAL);
        assert!(!mapper.handle(2 * PROBE + LEAST_INTERVAL, silent()), "counted anew");
        mapper.poll(3 * PROBE);
        assert!(mapper.handle(3 * PROBE, silent()));
        assert_eq!(mapped(&mapper), None);
    }

    #[test]
    fn failures_lengthen_pauses_until_the_network_changes() {
        let mut mapper = started();
        let mut now = 0;
        for pause in [60, 120, 240, 480, 960, 1_920, 3_600, 3_600] {
            mapper.handle(now, tried("it refuses"));
            assert_eq!(mapper.timeout(), Some(now + pause * 1_000));
            now += pause * 1_000;
            assert!(mapper.poll(now).is_some());
        }
        assert_eq!(mapper.tried().len(), 1);
        mapper.handle(now, Done::Failed(Vec::new()));
        mapper.handle_network_change(now + 1);
        assert_eq!(mapper.timeout(), Some(now + AFTER_CHANGE), "once a minute");
        mapper.set_place(now + 2, Some(place(2)));
        assert_eq!(mapper.timeout(), Some(now + LEAST_INTERVAL), "another gateway");
    }

    #[test]
    fn a_change_of_gateway_withdraws_the_old_mapping_first() {
        let mut mapper = started();
        mapper.handle(0, granted("11.0.0.1:2121", 3_600));
        mapper.set_place(20_000, Some(place(2)));
        assert_eq!(mapped(&mapper), None, "at once");
        assert_eq!(mapper.poll(20_000), Some(Job::Withdraw));
        mapper.handle(21_000, Done::Withdrawn);
        let job = mapper.poll(30_000);
        let place = place(2);
        assert_eq!(job, Some(Job::Map { place, port: 2121 }));
        // A mapping that is granted after the place has changed again is withdrawn, too.
        mapper.set_place(30_001, None);
        mapper.handle(30_002, granted("11.0.0.1:2121", 3_600));
        assert_eq!((mapped(&mapper), mapper.poll(30_002)), (None, Some(Job::Withdraw)));
        mapper.handle(30_003, Done::Withdrawn);
        assert_eq!(mapper.timeout(), None);
    }

    #[test]
    fn the_same_gateway_after_a_change_of_network_is_asked_to_renew() {
        let mut mapper = started();
        mapper.handle(0, granted("11.0.0.1:2121", 3_600));
        mapper.handle_network_change(1);
        assert_eq!(mapper.timeout(), Some(LEAST_INTERVAL));
        assert_eq!(mapper.poll(LEAST_INTERVAL), Some(Job::Renew));
    }

    #[test]
    fn an_impossible_outer_address_is_refused_and_withdrawn() {
        for (at, says) in [
            ("192.168.0.2:2121", "behind another NAT"),
            ("100.64.0.2:2121", "behind another NAT"),
            ("10.1.1.1:2121", "behind another NAT"),
            ("192.168.1.1:2121", "one inside"),
            ("192.168.1.2:2121", "one inside"),
            ("11.0.0.1:0", "port is 0"),
            ("0.0.0.0:2121", "unspecified"),
            ("127.0.0.1:2121", "loopback"),
            ("255.255.255.255:2121", "broadcast"),
            ("224.0.0.1:2121", "multicast"),
            ("[fd00::1]:2121", "address of the mesh"),
        ] {
            let mut mapper = started();
            assert!(!mapper.handle(0, granted(at, 3_600)), "{at}");
            assert_eq!(mapped(&mapper), None, "{at}");
            let outcome = mapper.tried()[0].outcome.to_string();
            assert!(outcome.contains(says), "{at}: {outcome}");
            assert_eq!(mapper.poll(0), Some(Job::Withdraw), "{at}");
            mapper.handle(10, Done::Withdrawn);
            assert_eq!(mapper.timeout(), Some(10 + FIRST_PAUSE), "{at}");
        }
    }

    #[test]
    fn failures_are_explained_by_what_is_behind_them() {
        let private = || Outcome::Nonsense(Nonsense::Private(Ipv4Addr::new(192, 168, 0, 2).into()));
        let said = |text: &str| Outcome::Said(text.to_owned());
        for (outcomes, text) in [
            (
                vec![Outcome::Silent, Outcome::Silent],
                "the gateway offers no PCP, NAT-PMP or UPnP",
            ),
            (
                vec![said("a"), Outcome::NoOuter, private()],
                "the gateway maps no port: its outer address 192.168.0.2 is private: it is behind another NAT",
            ),
            (
                vec![said("a"), Outcome::NoOuter, Outcome::Silent],
                "the gateway maps no port: it has no public outer address: it is behind another NAT, or offline",
            ),
            (
                vec![said("a"), Outcome::Silent, said("b")],
                "the gateway maps no port (PCP: a; NAT-PMP: it does not answer; UPnP: b)",
            ),
        ] {
            let protocols = [Protocol::Pcp, Protocol::NatPmp, Protocol::Upnp];
            let tried = protocols.into_iter().zip(outcomes);
            let tried: Vec<_> = tried.map(|(protocol, outcome)| Tried { protocol, outcome }).collect();
            assert_eq!(explain(&tried), text);
        }
    }
}
