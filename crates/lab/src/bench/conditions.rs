//! What is equal for all arms of a bench: the network under the tunnels, their MTU, their threads,
//! TCP's congestion control.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::Serialize;

use crate::emulator::Impairments;

/// Maximum number of clients of a relay.
pub const MAX_CLIENTS: u16 = 8;

/// The conditions of every run.
#[derive(Clone, Debug, PartialEq)]
pub struct Conditions {
    /// Whether a relay stands between client and server: a cable from each client to it, and one
    /// from it to the server.
    pub relayed: bool,
    /// Number of clients, 1 to [`MAX_CLIENTS`]; more than 1 only with a relay.
    pub clients: u16,
    /// Whether cables carry UDP [like a wire](crate::cable::Link::like_a_wire). Emulated cables
    /// always treat each datagram by itself.
    pub wire: bool,
    /// Impairments of each cable.
    pub regime: Regime,
    /// The congestion control that each namespace gets as its default. The load's TCP names it for
    /// each socket as well.
    pub congestion: String,
    /// The largest IP packet inside the tunnel, in bytes; `None`: each tunnel's own default.
    pub mtu: Option<u32>,
    /// Threads that forward packets in each process of a tunnel; `None`: each program's own
    /// default.
    pub threads: Option<u16>,
}

impl Default for Conditions {
    /// Two hosts, an unimpaired cable, CUBIC, and the defaults of the programs.
    fn default() -> Self {
        Self {
            relayed: false,
            clients: 1,
            wire: false,
            regime: Regime::default(),
            congestion: "cubic".to_owned(),
            mtu: None,
            threads: None,
        }
    }
}

impl Conditions {
    /// The hosts and cables in a sentence.
    #[must_use]
    pub fn layout(&self) -> String {
        match (self.relayed, self.clients) {
            (false, _) => "two hosts and one cable".to_owned(),
            (true, 1) => "a client, a relay and a server in a row, and two cables".to_owned(),
            (true, clients) => format!("{clients} clients and a server, each with a cable to one relay"),
        }
    }
}

/// Impairments of each cable, in each of its directions. The default has none.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Regime {
    /// Delay of every packet.
    pub delay: Duration,
    /// Share of packets that are lost, 0 to 1.
    pub loss: f64,
    /// Bits a second, counting Ethernet frames; `None`: no limit.
    pub rate: Option<u64>,
    /// The queue before the rate; `None`: that of [`Impairments::default`].
    pub queue: Option<Queue>,
}

impl Regime {
    /// Whether there are no impairments, so that a plain cable serves.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        *self == Self::default()
    }

    /// The impairments of one direction of a cable.
    #[must_use]
    pub fn impairments(&self) -> Impairments {
        let plain = Impairments::default();
        Impairments {
            delay: self.delay,
            loss: self.loss,
            rate: self.rate,
            queue: self.queue.map_or(plain.queue, |queue| queue.bytes(self.rate)),
            ..plain
        }
    }
}

/// For display, in the order of the options.
impl fmt::Display for Regime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_plain() {
            return f.write_str("no delay, loss or limit");
        }
        write!(
            f,
            "{} ms delay and {} % loss in each direction of each cable",
            self.delay.as_secs_f64() * 1e3,
            (self.loss * 1e6).round() / 1e4
        )?;
        if let Some(rate) = self.rate {
            let queue = self.impairments().queue;
            write!(f, ", {} Mbit/s behind a queue of {queue} bytes", rate as f64 * 1e-6)?;
        }
        Ok(())
    }
}

/// Size of the queue before a rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Queue {
    /// In bytes.
    Bytes(usize),
    /// As the time that the rate takes to empty it.
    Time(Duration),
}

impl Queue {
    fn bytes(self, rate: Option<u64>) -> usize {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Time(time) => (time.as_secs_f64() * rate.unwrap_or(0) as f64 / 8.0) as usize,
        }
    }
}

/// Why a text is not a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("write 1500 to 1000000000 bytes, such as 250000, or up to 10000 ms, such as 50ms")]
pub struct BadQueue;

impl FromStr for Queue {
    type Err = BadQueue;

    fn from_str(text: &str) -> Result<Self, BadQueue> {
        if let Some(ms) = text.strip_suffix("ms") {
            let ms = ms.parse().ok().filter(|ms| (1..=10_000).contains(ms));
            return ms.map(|ms| Self::Time(Duration::from_millis(ms))).ok_or(BadQueue);
        }
        let bytes = text
            .parse()
            .ok()
            .filter(|bytes| (1_500..=1_000_000_000).contains(bytes));
        bytes.map(Self::Bytes).ok_or(BadQueue)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_is_bytes_or_a_time_at_the_rate() {
        assert_eq!("250000".parse(), Ok(Queue::Bytes(250_000)));
        assert_eq!("50ms".parse(), Ok(Queue::Time(Duration::from_millis(50))));
        for text in ["", "ms", "0", "-1", "1e6", "0ms", "20000ms", "5 ms", "12KB"] {
            assert_eq!(text.parse::<Queue>(), Err(BadQueue), "{text}");
        }
        let regime = Regime {
            rate: Some(500_000_000),
            queue: Some(Queue::Time(Duration::from_millis(20))),
            ..Regime::default()
        };
        assert_eq!(regime.impairments().queue, 1_250_000);
    }

    #[test]
    fn a_regime_says_what_it_is() {
        assert!(Regime::default().is_plain());
        let regime = Regime {
            delay: Duration::from_millis(13),
            loss: 0.001,
            rate: Some(500_000_000),
            queue: Some(Queue::Bytes(250_000)),
        };
        assert_eq!(
            regime.to_string(),
            "13 ms delay and 0.1 % loss in each direction of each cable, 500 Mbit/s behind a queue of 250000 bytes"
        );
    }
}
