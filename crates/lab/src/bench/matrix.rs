//! The cases: the measurements of every arm in every round.

use serde::Serialize;
use weft_perf::plan::{Direction, Load, Plan, QUIC_SIZE};

use super::churn::Event;
use super::measure::Figures;

/// One case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Case {
    /// Its name in `--cases` and reports.
    pub name: &'static str,
    /// A description for the report.
    pub about: &'static str,
    #[serde(skip)]
    load: CaseLoad,
    #[serde(skip)]
    direction: Direction,
    /// Whether invalid datagrams ("rubbish") are sent to the receiver's ports meanwhile.
    #[serde(skip)]
    rubbish: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CaseLoad {
    Tcp(u16),
    /// Rate in bit/s (0: as fast as possible) and payload in bytes.
    Udp(u64, u16),
    /// QUIC-like trains.
    Quic,
    /// None but the media stream, while this happens.
    Churn(Event),
}

/// What a case measures first of all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Throughput in Mbit/s.
    Mbit,
    /// Packets a second.
    Packets,
    /// Seconds without payload.
    Gap,
}

impl Unit {
    /// Its name in tables and plots.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mbit => "Mbit/s",
            Self::Packets => "packets/s",
            Self::Gap => "s without payload",
        }
    }

    /// The figure in this unit.
    #[must_use]
    pub fn of(self, figures: &Figures) -> f64 {
        match self {
            Self::Mbit => figures.mbit_s,
            Self::Packets => figures.packets_s.unwrap_or(0.0),
            Self::Gap => figures.gap_s.unwrap_or(0.0),
        }
    }

    /// The unit of the case with this name, Mbit/s if it is unknown.
    #[must_use]
    pub fn of_case(name: &str) -> Self {
        let case = CASES.iter().find(|case| case.name == name);
        case.map_or(Self::Mbit, Case::unit)
    }
}

const fn case(name: &'static str, about: &'static str, load: CaseLoad, direction: Direction) -> Case {
    Case {
        name,
        about,
        load,
        direction,
        rubbish: false,
    }
}

/// All cases. The first ones are the default of `--cases`.
pub const CASES: [Case; 22] = [
    case("tcp", "one TCP stream, upload", CaseLoad::Tcp(1), Direction::Forward),
    case(
        "tcp-back",
        "one TCP stream, download",
        CaseLoad::Tcp(1),
        Direction::Reverse,
    ),
    case("tcp4", "4 TCP streams, upload", CaseLoad::Tcp(4), Direction::Forward),
    case("tcp8", "8 TCP streams, upload", CaseLoad::Tcp(8), Direction::Forward),
    case(
        "udp500",
        "UDP at 500 Mbit/s, 1,200 bytes each, upload",
        CaseLoad::Udp(500_000_000, 1200),
        Direction::Forward,
    ),
    case(
        "pps64",
        "UDP of 64 bytes, as fast as possible, upload",
        CaseLoad::Udp(0, 64),
        Direction::Forward,
    ),
    case(
        "pps1200",
        "UDP of 1,200 bytes, as fast as possible, upload",
        CaseLoad::Udp(0, 1200),
        Direction::Forward,
    ),
    case(
        "quic",
        "QUIC-like UDP, trains of 1,200 bytes each, upload",
        CaseLoad::Quic,
        Direction::Forward,
    ),
    case(
        "tcp4-back",
        "4 TCP streams, download",
        CaseLoad::Tcp(4),
        Direction::Reverse,
    ),
    case(
        "tcp8-back",
        "8 TCP streams, download",
        CaseLoad::Tcp(8),
        Direction::Reverse,
    ),
    case(
        "udp500-back",
        "UDP at 500 Mbit/s, 1,200 bytes each, download",
        CaseLoad::Udp(500_000_000, 1200),
        Direction::Reverse,
    ),
    case(
        "pps64-back",
        "UDP of 64 bytes, as fast as possible, download",
        CaseLoad::Udp(0, 64),
        Direction::Reverse,
    ),
    case(
        "pps1200-back",
        "UDP of 1,200 bytes, as fast as possible, download",
        CaseLoad::Udp(0, 1200),
        Direction::Reverse,
    ),
    case(
        "quic-back",
        "QUIC-like UDP, trains of 1,200 bytes each, download",
        CaseLoad::Quic,
        Direction::Reverse,
    ),
    case(
        "udp2000",
        "UDP at 2,000 Mbit/s, 1,200 bytes each, upload",
        CaseLoad::Udp(2_000_000_000, 1200),
        Direction::Forward,
    ),
    case(
        "udp2000-back",
        "UDP at 2,000 Mbit/s, 1,200 bytes each, download",
        CaseLoad::Udp(2_000_000_000, 1200),
        Direction::Reverse,
    ),
    case("tcp2", "2 TCP streams, upload", CaseLoad::Tcp(2), Direction::Forward),
    case(
        "tcp2-back",
        "2 TCP streams, download",
        CaseLoad::Tcp(2),
        Direction::Reverse,
    ),
    case(
        "restart",
        "time without payload when the server's process is killed and starts again at once",
        CaseLoad::Churn(Event::Restart),
        Direction::Forward,
    ),
    case(
        "rejoin",
        "time without payload when the client's process starts again, 3 s after it was killed",
        CaseLoad::Churn(Event::Rejoin),
        Direction::Forward,
    ),
    case(
        "roam",
        "time without payload when the client's host changes its address",
        CaseLoad::Churn(Event::Roam),
        Direction::Forward,
    ),
    Case {
        rubbish: true,
        ..case(
            "tcp-rubbish",
            "one TCP stream, upload, with invalid datagrams to the receiver's UDP ports",
            CaseLoad::Tcp(1),
            Direction::Forward,
        )
    },
];

/// The cases that are measured by default.
pub const DEFAULT: &[Case] = CASES.split_at(8).0;

impl Case {
    /// The plan of the load generator; `congestion` is TCP's congestion control.
    #[must_use]
    pub fn plan(&self, seconds: u32, congestion: &str) -> Plan {
        let load = match self.load {
            CaseLoad::Tcp(streams) => Load::Tcp {
                streams,
                window: None,
                rate: None,
                congestion: Some(congestion.to_owned()),
            },
            CaseLoad::Udp(rate, size) => Load::Udp {
                rate: (rate > 0).then_some(rate),
                size,
            },
            CaseLoad::Quic => Load::Quic {
                rate: None,
                size: QUIC_SIZE,
            },
            CaseLoad::Churn(_) => Load::None,
        };
        Plan {
            load,
            direction: self.direction,
            seconds,
            raw: None,
        }
    }

    /// Whether the load is an upload: from the first host to the second.
    #[must_use]
    pub fn is_forward(&self) -> bool {
        self.direction.forward()
    }

    /// Whether invalid datagrams are sent to the second host's UDP ports during the load.
    #[must_use]
    pub fn has_rubbish(&self) -> bool {
        self.rubbish
    }

    /// What it measures first of all.
    #[must_use]
    pub fn unit(&self) -> Unit {
        match self.load {
            CaseLoad::Udp(0, _) => Unit::Packets,
            CaseLoad::Churn(_) => Unit::Gap,
            CaseLoad::Tcp(_) | CaseLoad::Udp(..) | CaseLoad::Quic => Unit::Mbit,
        }
    }

    /// The event of a case that measures the time without payload after one.
    #[must_use]
    pub fn event(&self) -> Option<Event> {
        match self.load {
            CaseLoad::Churn(event) => Some(event),
            CaseLoad::Tcp(_) | CaseLoad::Udp(..) | CaseLoad::Quic => None,
        }
    }
}

/// Parses `--cases`: names with commas between, or `all` for all loads, without the events.
///
/// # Errors
/// The name that is not a case.
pub fn parse_cases(text: &str) -> Result<Vec<Case>, String> {
    if text == "all" {
        return Ok(CASES.into_iter().filter(|case| case.event().is_none()).collect());
    }
    let find = |name: &str| {
        CASES
            .into_iter()
            .find(|case| case.name == name)
            .ok_or_else(|| name.to_owned())
    };
    text.split(',').map(find).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_has_a_name_of_its_own_and_a_plan_within_bounds() {
        for (n, case) in CASES.iter().enumerate() {
            assert!(CASES[..n].iter().all(|other| other.name != case.name), "{}", case.name);
            assert_eq!(case.plan(5, "cubic").check(), Ok(()), "{}", case.name);
            assert_eq!(case.is_forward(), !case.name.ends_with("-back"));
        }
        assert_eq!(DEFAULT.last().map(|case| case.name), Some("quic"));
    }

    #[test]
    fn cases_are_read_by_name() {
        let names = |text| parse_cases(text).map(|cases| cases.iter().map(|case| case.name).collect::<Vec<_>>());
        assert_eq!(names("tcp,pps64"), Ok(vec!["tcp", "pps64"]));
        let all = names("all").unwrap();
        assert_eq!(all.len(), CASES.len() - 3);
        assert!(!all.contains(&"roam") && all.contains(&"tcp-rubbish"));
        assert_eq!(names("tcp,,"), Err(String::new()));
    }
}
