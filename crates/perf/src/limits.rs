//! Limits of the runs that a server accepts. The owner of the node sets them (`[perf]`); the client
//! is told which one a run exceeds.

use std::time::Duration;

use crate::plan::{Load, MAX_RATE, MAX_SECONDS, MAX_STREAMS, Plan};

/// Limits of one run, as the server enforces them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Whether runs outside the tunnel are served ([`Plan::raw`]).
    pub raw: bool,
    /// The longest run in seconds: 1 to [`MAX_SECONDS`].
    pub seconds: u32,
    /// Maximum number of TCP connections in each direction: 1 to [`MAX_STREAMS`].
    pub streams: u16,
    /// Maximum payload that this end sends, in bit/s, all flows together: up to [`MAX_RATE`].
    pub rate: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            raw: false,
            seconds: 120,
            streams: 16,
            rate: 10_000_000_000,
        }
    }
}

impl Limits {
    /// The limits of the control protocol itself, for servers whose owner is also the client; not
    /// outside the tunnel.
    pub const MOST: Self = Self {
        raw: false,
        seconds: MAX_SECONDS,
        streams: MAX_STREAMS,
        rate: MAX_RATE,
    };

    /// How long after the end of the run this end still sends while it waits for the client's stop.
    pub const OVERRUN: Duration = Duration::from_secs(2);

    /// Refuses a run that exceeds a limit.
    ///
    /// # Errors
    /// [`OverLimit`] names the first limit that it exceeds.
    pub fn check(&self, plan: &Plan) -> Result<(), OverLimit> {
        if plan.raw.is_some() && !self.raw {
            return Err(OverLimit::Raw);
        }
        if plan.seconds > self.seconds {
            return Err(OverLimit::Seconds { most: self.seconds });
        }
        if plan.streams() > self.streams {
            return Err(OverLimit::Streams { most: self.streams });
        }
        let (Load::Tcp { rate, .. } | Load::Udp { rate, .. } | Load::Quic { rate, .. }) = plan.load else {
            return Ok(());
        };
        match rate {
            Some(rate) if plan.direction.reverse() && rate > self.rate => Err(OverLimit::Rate { most: self.rate }),
            _ => Ok(()),
        }
    }
}

/// Why a run is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OverLimit {
    /// It goes outside the tunnel.
    #[error("it serves no tests outside the tunnel (its perf.raw is false); leave --raw out")]
    Raw,
    /// It takes too long.
    #[error("a test takes at most {most} s (its perf.max_s); lower --time")]
    Seconds {
        /// The limit.
        most: u32,
    },
    /// It has too many connections.
    #[error("a test has at most {most} streams (its perf.max_streams); lower --streams")]
    Streams {
        /// The limit.
        most: u16,
    },
    /// This end would exceed its rate.
    #[error("it sends at most {} Mbit/s (its perf.max_mbit_s); lower --rate", .most / 1_000_000)]
    Rate {
        /// The limit in bit/s.
        most: u64,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Direction;

    fn plan(load: Load, direction: Direction) -> Plan {
        Plan {
            load,
            direction,
            seconds: 10,
            raw: None,
        }
    }

    #[test]
    fn a_run_beyond_a_ceiling_is_refused_with_the_setting() {
        let limits = Limits::default();
        let tcp = |streams, rate| Load::Tcp {
            streams,
            window: None,
            rate,
            congestion: None,
        };
        let udp = |rate| Load::Udp { rate, size: 1200 };
        let usual = plan(tcp(8, None), Direction::Both);
        assert_eq!(limits.check(&usual), Ok(()));
        let outside = Plan {
            raw: Some([192, 0, 2, 1].into()),
            ..usual.clone()
        };
        assert_eq!(limits.check(&outside), Err(OverLimit::Raw), "off unless configured");
        let allowed = Limits { raw: true, ..limits };
        assert_eq!(allowed.check(&outside), Ok(()));
        let hour = Plan {
            seconds: MAX_SECONDS,
            ..usual
        };
        for (plan, words) in [
            (hour, "at most 120 s (its perf.max_s)"),
            (
                plan(tcp(64, None), Direction::Forward),
                "at most 16 streams (its perf.max_streams)",
            ),
            (
                plan(tcp(1, Some(MAX_RATE)), Direction::Both),
                "at most 10000 Mbit/s (its perf.max_mbit_s)",
            ),
            (
                plan(udp(Some(MAX_RATE)), Direction::Reverse),
                "at most 10000 Mbit/s (its perf.max_mbit_s)",
            ),
        ] {
            let refused = limits.check(&plan).unwrap_err().to_string();
            assert!(refused.contains(words) && !refused.contains('\n'), "{refused}");
            assert_eq!(Limits::MOST.check(&plan), Ok(()));
        }
        // The limits do not apply to what the client sends.
        assert_eq!(limits.check(&plan(udp(Some(MAX_RATE)), Direction::Forward)), Ok(()));
    }
}
