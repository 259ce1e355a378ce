//! What a run shall be. The far end checks it as it came: it is a stranger's wish.

use std::net::IpAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::quic;

/// The longest run, in seconds.
pub const MAX_SECONDS: u32 = 3600;

/// Most streams in one direction.
pub const MAX_STREAMS: u16 = 64;

/// The smallest receive buffer that can be asked for, in bytes; the kernel takes no less.
pub const MIN_WINDOW: u32 = 2048;

/// The largest, in bytes.
pub const MAX_WINDOW: u32 = 64 << 20;

/// The smallest datagram, in bytes: it has to hold its number and its time.
pub const MIN_SIZE: u16 = 32;

/// The largest datagram, in bytes.
pub const MAX_SIZE: u16 = 9000;

/// The smallest datagram of a QUIC-like load, in bytes: it has to hold an answer.
pub const MIN_QUIC_SIZE: u16 = 48;

/// The lowest rate, in bits a second.
pub const MIN_RATE: u64 = 1000;

/// The highest rate, in bits a second.
pub const MAX_RATE: u64 = 1_000_000_000_000;

/// A run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// What is sent.
    pub load: Load,
    /// Which way.
    pub direction: Direction,
    /// How long, in seconds: 1 to [`MAX_SECONDS`].
    pub seconds: u32,
    /// Outside the tunnel: the far end's own address, as the near end reaches it there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raw: Option<IpAddr>,
}

/// What is sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Load {
    /// Bytes over TCP connections.
    Tcp {
        /// Connections in each direction: 1 to [`MAX_STREAMS`].
        streams: u16,
        /// Receive buffer of each, in bytes; none: the system sizes it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        window: Option<u32>,
        /// Bits a second that each direction gives to its connections; none: as much as they take.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        rate: Option<u64>,
        /// Congestion control by name (`cubic`); none: the system's.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        congestion: Option<String>,
    },
    /// Numbered datagrams.
    Udp {
        /// Bits of payload a second, in each direction; none: as fast as this end can.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        rate: Option<u64>,
        /// Payload of each, in bytes: [`MIN_SIZE`] to [`MAX_SIZE`].
        size: u16,
    },
    /// Numbered datagrams as a QUIC stack sends them (see [`crate::quic`]).
    Quic {
        /// Bits of payload a second, at the most, in each direction; none: as the path carries.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        rate: Option<u64>,
        /// Payload of each, in bytes: [`MIN_QUIC_SIZE`] to [`quic::MAX_SIZE`].
        size: u16,
    },
    /// Nothing: round trips alone.
    None,
}

/// Which way the load goes, seen from the near end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// To the far end.
    Forward,
    /// From the far end.
    Reverse,
    /// Both ways at once.
    Both,
}

impl Direction {
    /// Whether the near end sends.
    #[must_use]
    pub const fn forward(self) -> bool {
        matches!(self, Self::Forward | Self::Both)
    }

    /// Whether the far end sends.
    #[must_use]
    pub const fn reverse(self) -> bool {
        matches!(self, Self::Reverse | Self::Both)
    }

    /// The same seen from the other end.
    #[must_use]
    pub const fn turned(self) -> Self {
        match self {
            Self::Forward => Self::Reverse,
            Self::Reverse => Self::Forward,
            Self::Both => Self::Both,
        }
    }
}

impl Plan {
    /// How long it takes.
    #[must_use]
    pub fn time(&self) -> Duration {
        Duration::from_secs(self.seconds.into())
    }

    /// Whether the load is datagrams.
    #[must_use]
    pub const fn sends_datagrams(&self) -> bool {
        matches!(self.load, Load::Udp { .. } | Load::Quic { .. })
    }

    /// TCP connections in one direction.
    #[must_use]
    pub const fn streams(&self) -> u16 {
        match self.load {
            Load::Tcp { streams, .. } => streams,
            Load::Udp { .. } | Load::Quic { .. } | Load::None => 0,
        }
    }

    /// Refuses what is out of bounds.
    ///
    /// # Errors
    /// [`BadPlan`] names the first limit that it breaks.
    pub fn check(&self) -> Result<(), BadPlan> {
        within("seconds", self.seconds.into(), 1, MAX_SECONDS.into())?;
        match &self.load {
            Load::Tcp {
                streams,
                window,
                rate,
                congestion,
            } => {
                within("streams", (*streams).into(), 1, MAX_STREAMS.into())?;
                if let Some(window) = window {
                    within("window", (*window).into(), MIN_WINDOW.into(), MAX_WINDOW.into())?;
                }
                if congestion.as_ref().is_some_and(|name| !is_congestion_name(name)) {
                    return Err(BadPlan::Congestion);
                }
                check_rate(*rate)
            }
            Load::Udp { rate, size } => {
                within("size", (*size).into(), MIN_SIZE.into(), MAX_SIZE.into())?;
                check_rate(*rate)
            }
            Load::Quic { rate, size } => {
                within("size", (*size).into(), MIN_QUIC_SIZE.into(), quic::MAX_SIZE.into())?;
                check_rate(*rate)
            }
            Load::None => Ok(()),
        }
    }
}

/// Why a plan is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadPlan {
    /// A number out of its range.
    #[error("{what} is {found}; it is {min} to {max}")]
    Range {
        /// Which.
        what: &'static str,
        /// The number.
        found: u64,
        /// The least.
        min: u64,
        /// The greatest.
        max: u64,
    },
    /// Not the name of a congestion control.
    #[error("a congestion control has a name of 1 to 15 lower-case letters, digits, '-' and '_'")]
    Congestion,
}

fn within(what: &'static str, found: u64, min: u64, max: u64) -> Result<(), BadPlan> {
    if (min..=max).contains(&found) {
        Ok(())
    } else {
        Err(BadPlan::Range { what, found, min, max })
    }
}

fn check_rate(rate: Option<u64>) -> Result<(), BadPlan> {
    rate.map_or(Ok(()), |rate| within("rate", rate, MIN_RATE, MAX_RATE))
}

/// As the kernel names them: at most 15 bytes (`TCP_CA_NAME_MAX`).
fn is_congestion_name(name: &str) -> bool {
    let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'_';
    (1..=15).contains(&name.len()) && name.bytes().all(inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp() -> Load {
        Load::Tcp {
            streams: 2,
            window: None,
            rate: None,
            congestion: None,
        }
    }

    fn plan(load: Load) -> Plan {
        Plan {
            load,
            direction: Direction::Forward,
            seconds: 10,
            raw: None,
        }
    }

    #[test]
    fn limits_hold() {
        assert_eq!(plan(tcp()).check(), Ok(()));
        let udp = |rate, size| plan(Load::Udp { rate, size });
        assert_eq!(udp(None, 64).check(), Ok(()));
        let quic = |size| plan(Load::Quic { rate: None, size });
        assert_eq!(quic(quic::SIZE).check(), Ok(()));
        let bad = [
            Plan {
                seconds: 0,
                ..plan(tcp())
            },
            Plan {
                seconds: MAX_SECONDS + 1,
                ..plan(tcp())
            },
            udp(Some(999), 64),
            udp(None, MIN_SIZE - 1),
            udp(None, MAX_SIZE + 1),
            quic(MIN_QUIC_SIZE - 1),
            quic(quic::MAX_SIZE + 1),
        ];
        for plan in bad {
            assert!(matches!(plan.check(), Err(BadPlan::Range { .. })), "{plan:?}");
        }
        for (streams, window, congestion) in [
            (0, None, None),
            (MAX_STREAMS + 1, None, None),
            (1, Some(MIN_WINDOW - 1), None),
            (1, None, Some("../x")),
            (1, None, Some("")),
            (1, None, Some("a234567890123456")),
        ] {
            let load = Load::Tcp {
                streams,
                window,
                rate: None,
                congestion: congestion.map(str::to_owned),
            };
            assert!(plan(load.clone()).check().is_err(), "{load:?}");
        }
    }

    #[test]
    fn reads_what_it_writes() {
        for load in [
            tcp(),
            Load::Udp {
                rate: Some(1_000_000),
                size: 1200,
            },
            Load::Quic {
                rate: None,
                size: quic::SIZE,
            },
            Load::None,
        ] {
            let plan = plan(load);
            let text = serde_json::to_string(&plan).unwrap();
            assert_eq!(serde_json::from_str::<Plan>(&text).unwrap(), plan, "{text}");
        }
    }
}
