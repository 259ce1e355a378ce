//! The cases: the measurements of every arm in every round.

use serde::Serialize;
use weft_perf::plan::{Direction, Load, Plan, QUIC_SIZE};

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
pub const CASES: [Case; 17] = [
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

    /// Whether the result is packets a second.
    #[must_use]
    pub fn counts_packets(&self) -> bool {
        matches!(self.load, CaseLoad::Udp(0, _))
    }

    /// Whether the load keeps to a rate, so that the result is CPU time rather than throughput.
    #[must_use]
    pub fn is_paced(&self) -> bool {
        matches!(self.load, CaseLoad::Udp(rate, _) if rate > 0)
    }
}

/// Parses `--cases`: names with commas between, or `all`.
///
/// # Errors
/// The name that is not a case.
pub fn parse_cases(text: &str) -> Result<Vec<Case>, String> {
    if text == "all" {
        return Ok(CASES.to_vec());
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
        assert_eq!(names("all").map(|all| all.len()), Ok(CASES.len()));
        assert_eq!(names("tcp,,"), Err(String::new()));
    }
}
