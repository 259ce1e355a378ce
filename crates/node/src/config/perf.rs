//! `[perf]`: which nodes may run a test with this node, and how much it serves.

use weft_perf::limits::Limits;
use weft_perf::plan;

use super::reader::{self, Fault, Section};
use super::{Config, Problem};

/// `[perf]`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PerfConfig {
    /// Which nodes may run a test with this node (`allow`).
    pub allow: PerfAllow,
    /// Limits of one test (`raw`, `max_s`, `max_streams`, `max_mbit_s`).
    pub limits: Limits,
    /// Seconds of tests that one peer may run within an hour (`hourly_s`): 1 to 3,600.
    pub hourly: u32,
}

impl Default for PerfConfig {
    fn default() -> Self {
        Self {
            allow: PerfAllow::default(),
            limits: Limits::default(),
            hourly: 600,
        }
    }
}

/// Which nodes may run a test with this node (`weft perf` at the client).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PerfAllow {
    /// The configured peers (`"peers"`).
    #[default]
    Peers,
    /// Every node whose packets arrive here (`"open"`).
    Open,
    /// No node; no socket listens (`"off"`).
    Off,
}

impl Config {
    pub(super) fn read_perf(&mut self, mut section: Section<'_>) -> Result<(), Fault> {
        let PerfConfig { allow, limits, hourly } = &mut self.perf;
        if let Some(item) = section.string("allow")? {
            *allow = item.map(|text| match text.as_str() {
                "peers" => Ok(PerfAllow::Peers),
                "open" => Ok(PerfAllow::Open),
                "off" => Ok(PerfAllow::Off),
                _ => Err(Problem::NotOneOf {
                    found: reader::printable(text),
                    allowed: "\"peers\", \"open\" or \"off\"",
                }),
            })?;
        }
        if let Some(item) = section.boolean("raw")? {
            limits.raw = item.value;
        }
        if let Some(item) = section.integer("max_s", 1..=plan::MAX_SECONDS, "seconds")? {
            limits.seconds = item.value;
        }
        if let Some(item) = section.integer("max_streams", 1..=plan::MAX_STREAMS.into(), "streams")? {
            limits.streams = u16::try_from(item.value).unwrap_or(plan::MAX_STREAMS);
        }
        let most_mbit_s = u32::try_from(plan::MAX_RATE / 1_000_000).unwrap_or(u32::MAX);
        if let Some(item) = section.integer("max_mbit_s", 1..=most_mbit_s, "Mbit/s")? {
            limits.rate = u64::from(item.value) * 1_000_000;
        }
        if let Some(item) = section.integer("hourly_s", 1..=plan::MAX_SECONDS, "seconds")? {
            *hourly = item.value;
        }
        section.finish()
    }
}
