//! `[perf]`: who may measure with this node.

use super::reader::{self, Fault, Section};
use super::{Config, Problem};

/// Who may run a test with this node (`weft perf` on the other side).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PerfAllow {
    /// The configured peers (`"peers"`).
    #[default]
    Peers,
    /// Every node whose packets get here (`"open"`).
    Open,
    /// Nobody; nothing listens (`"off"`).
    Off,
}

impl Config {
    pub(super) fn read_perf(&mut self, mut section: Section<'_>) -> Result<(), Fault> {
        if let Some(item) = section.string("allow")? {
            self.perf = item.map(|text| match text.as_str() {
                "peers" => Ok(PerfAllow::Peers),
                "open" => Ok(PerfAllow::Open),
                "off" => Ok(PerfAllow::Off),
                _ => Err(Problem::NotOneOf {
                    found: reader::printable(text),
                    allowed: "\"peers\", \"open\" or \"off\"",
                }),
            })?;
        }
        section.finish()
    }
}
