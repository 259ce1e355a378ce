//! What steps of a scenario expect.

use std::fmt;

use serde::Deserialize;
use toml::Table;

use super::file::read;
use super::units::{Rate, Time};
use crate::daemon::PeerState;

/// What must be so.
#[derive(Debug, Clone)]
pub enum Expect {
    /// The way from one node to another is this.
    Path(ExpectPath),
    /// A peer has come so far.
    State(ExpectState),
    /// A node answers another's echo.
    Answer(ExpectAnswer),
    /// A load went so well.
    Load(ExpectLoad),
    /// The largest packet that passes whole.
    Largest(ExpectLargest),
    /// Frames to a peer have a size that is known.
    Size(ExpectSize),
    /// What became of the frames of a link.
    Frames(ExpectFrames),
    /// Logs without warnings.
    Quiet(ExpectQuiet),
}

/// `expect = "path"`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExpectPath {
    /// Whose way.
    pub from: String,
    /// To whom.
    pub to: String,
    /// `direct`, `via NAME`, or `none`.
    pub is: String,
    /// The same the other way.
    #[serde(default)]
    pub both: bool,
    /// How long it may take to become so.
    #[serde(default)]
    pub within: Time,
}

/// `expect = "state"`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExpectState {
    /// Whose peer.
    pub from: String,
    /// Which peer.
    pub to: String,
    /// How far it has come, at least.
    pub at_least: Option<PeerState>,
    /// How far it has come, at most.
    pub at_most: Option<PeerState>,
    /// The same the other way.
    #[serde(default)]
    pub both: bool,
    /// How long it may take to become so.
    #[serde(default)]
    pub within: Time,
}

/// `expect = "answer"`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExpectAnswer {
    /// Who asks.
    pub from: String,
    /// Who answers.
    pub to: String,
    /// The same the other way.
    #[serde(default)]
    pub both: bool,
    /// Until when the first answer must be there.
    pub within: Time,
}

/// `expect = "load"`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExpectLoad {
    /// The name of the step; a load that still runs is ended.
    pub of: String,
    /// Lost echoes or datagrams, at most.
    pub lost_at_most: Option<u64>,
    /// Lost echoes or datagrams, at least: the trouble was there.
    pub lost_at_least: Option<u64>,
    /// Longest time without anything arriving, at most.
    pub gap_at_most: Option<Time>,
    /// Mean round trip of echoes, or mean way of datagrams, at least.
    pub mean_at_least: Option<Time>,
    /// The same, at most.
    pub mean_at_most: Option<Time>,
    /// Throughput of TCP, at least.
    pub rate_at_least: Option<Rate>,
    /// Throughput of TCP, at most.
    pub rate_at_most: Option<Rate>,
}

/// `expect = "largest"`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExpectLargest {
    /// Who asks.
    pub from: String,
    /// Who answers.
    pub to: String,
    /// Bytes of the largest IP packet that passes whole, at least.
    pub at_least: Option<u32>,
    /// The same, at most.
    pub at_most: Option<u32>,
}

/// `expect = "size"`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExpectSize {
    /// Whose frames.
    pub from: String,
    /// To whom.
    pub to: String,
    /// Bytes of UDP payload that they have at the most, as probes have shown.
    pub is: u16,
    /// The same the other way.
    #[serde(default)]
    pub both: bool,
    /// How long it may take to become so.
    #[serde(default)]
    pub within: Time,
}

/// `expect = "frames"`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExpectFrames {
    /// Which link.
    pub link: String,
    /// Which of them.
    pub are: Fate,
    /// How many, of both directions, at least.
    pub at_least: Option<u64>,
    /// The same, at most.
    pub at_most: Option<u64>,
}

/// What can become of frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fate {
    /// They arrived.
    Given,
    /// They were lost by chance.
    Lost,
    /// They were doubled.
    Doubled,
    /// They were held back.
    Reordered,
    /// The queue was full.
    Overflowed,
    /// They were too big.
    TooBig,
}

/// `expect = "quiet"`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExpectQuiet {
    /// Whose logs; none: all.
    pub nodes: Option<Vec<String>>,
}

/// All expectations by name.
pub(super) const EXPECTATIONS: &str = "path, state, answer, load, largest, size, frames or quiet";

/// Reads the rest of a step that expects something of this kind.
pub(super) fn expectation(kind: &str, table: Table) -> Result<Expect, String> {
    Ok(match kind {
        "path" => Expect::Path(read(table)?),
        "state" => Expect::State(read(table)?),
        "answer" => Expect::Answer(read(table)?),
        "load" => Expect::Load(read(table)?),
        "largest" => Expect::Largest(read(table)?),
        "size" => Expect::Size(read(table)?),
        "frames" => Expect::Frames(read(table)?),
        "quiet" => Expect::Quiet(read(table)?),
        _ => return Err(format!("nothing is expected by this name; write {EXPECTATIONS}")),
    })
}

impl fmt::Display for Expect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let to = |both: bool| if both { "and" } else { "to" };
        match self {
            Self::Path(e) => write!(f, "path {} {} {} {}", e.from, to(e.both), e.to, e.is),
            Self::State(e) => write!(f, "state {} {} {}", e.from, to(e.both), e.to),
            Self::Answer(e) => write!(f, "answer {} {} {}", e.from, to(e.both), e.to),
            Self::Load(e) => write!(f, "load {}", e.of),
            Self::Largest(e) => write!(f, "largest {} to {}", e.from, e.to),
            Self::Size(e) => write!(f, "size {} {} {} {}", e.from, to(e.both), e.to, e.is),
            Self::Frames(e) => write!(f, "frames {}", e.link),
            Self::Quiet(_) => f.write_str("quiet"),
        }
    }
}
