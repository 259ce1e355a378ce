//! The parameters of a run. The server checks them on receipt, because any node may send them.

use std::net::IpAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The longest run, in seconds.
pub const MAX_SECONDS: u32 = 3600;

/// Maximum number of streams in one direction.
pub const MAX_STREAMS: u16 = 64;

/// The smallest receive buffer that can be requested, in bytes; the kernel's minimum.
pub const MIN_WINDOW: u32 = 2048;

/// The largest, in bytes.
pub const MAX_WINDOW: u32 = 64 << 20;

/// The smallest datagram, in bytes: it contains its number and its time.
pub const MIN_SIZE: u16 = 32;

/// The largest datagram, in bytes.
pub const MAX_SIZE: u16 = 9000;

/// The smallest datagram of a QUIC-like load, in bytes: it contains an answer.
pub const MIN_QUIC_SIZE: u16 = 48;

/// Default payload of a datagram of a QUIC-like load, in bytes: the size that every path must carry for QUIC (RFC 9000, section
/// 14).
pub const QUIC_SIZE: u16 = 1200;

/// The largest datagram of a QUIC-like load, in bytes: a train of them is one send.
pub const MAX_QUIC_SIZE: u16 = 1500;

/// The lowest rate, in bit/s.
pub const MIN_RATE: u64 = 1000;

/// The highest rate, in bit/s.
pub const MAX_RATE: u64 = 1_000_000_000_000;

/// A run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// What is sent.
    pub load: Load,
    /// The direction of the load.
    pub direction: Direction,
    /// Duration in seconds: 1 to [`MAX_SECONDS`].
    pub seconds: u32,
    /// For a run outside the tunnel: the server's own address, as the client reaches it there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raw: Option<IpAddr>,
}

/// The kind of load.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Load {
    /// Bytes over TCP connections.
    Tcp {
        /// Connections in each direction: 1 to [`MAX_STREAMS`].
        streams: u16,
        /// Receive buffer of each, in bytes; `None`: sized by the system.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        window: Option<u32>,
        /// Rate of all connections of one direction, in bit/s; `None`: as much as they take.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        rate: Option<u64>,
        /// Congestion control by name (`cubic`); `None`: the system's default.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        congestion: Option<String>,
    },
    /// Numbered datagrams.
    Udp {
        /// Payload rate in each direction, in bit/s; `None`: as fast as the sender can.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        rate: Option<u64>,
        /// Payload of each, in bytes: [`MIN_SIZE`] to [`MAX_SIZE`].
        size: u16,
    },
    /// Numbered datagrams as a QUIC stack sends them (see [`crate::quic`]).
    Quic {
        /// Maximum payload rate in each direction, in bit/s; `None`: the rate of the path.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        rate: Option<u64>,
        /// Payload of each, in bytes: [`MIN_QUIC_SIZE`] to [`MAX_QUIC_SIZE`].
        size: u16,
    },
    /// No load: round trips only.
    None,
}

/// The direction of the load, seen from the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// To the server.
    Forward,
    /// From the server.
    Reverse,
    /// Both directions at once.
    Both,
}

impl Direction {
    /// Whether the client sends.
    #[must_use]
    pub const fn forward(self) -> bool {
        matches!(self, Self::Forward | Self::Both)
    }

    /// Whether the server sends.
    #[must_use]
    pub const fn reverse(self) -> bool {
        matches!(self, Self::Reverse | Self::Both)
    }

    /// The direction seen from the peer.
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
    /// Duration of the load.
    #[must_use]
    pub fn time(&self) -> Duration {
        Duration::from_secs(self.seconds.into())
    }

    /// Whether the load consists of datagrams.
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

    /// Refuses values that are out of bounds.
    ///
    /// # Errors
    /// [`BadPlan`] names the first limit that is exceeded.
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
                within("size", (*size).into(), MIN_QUIC_SIZE.into(), MAX_QUIC_SIZE.into())?;
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
        /// Its name.
        what: &'static str,
        /// The value.
        found: u64,
        /// The minimum.
        min: u64,
        /// The maximum.
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

/// Checks a name against the kernel's format: at most 15 bytes (`TCP_CA_NAME_MAX`).
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
        assert_eq!(quic(QUIC_SIZE).check(), Ok(()));
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
            quic(MAX_QUIC_SIZE + 1),
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
                size: QUIC_SIZE,
            },
            Load::None,
        ] {
            let plan = plan(load);
            let text = serde_json::to_string(&plan).unwrap();
            assert_eq!(serde_json::from_str::<Plan>(&text).unwrap(), plan, "{text}");
        }
    }
}
