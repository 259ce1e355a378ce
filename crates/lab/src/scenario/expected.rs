//! The expectations that steps of a scenario can have.

use std::fmt;

use serde::Deserialize;
use toml::Table;
use weft_scenario::read;

use crate::daemon::PeerState;
use weft_scenario::units::{Rate, Time};

/// An expectation.
#[derive(Debug, Clone)]
pub enum Expect {
    /// The path from one node to another.
    Path(ExpectPath),
    /// The path that two nodes have in the end.
    Settled(ExpectSettled),
    /// The state of a peer.
    State(ExpectState),
    /// A node answers another's echo.
    Answer(ExpectAnswer),
    /// Several nodes answer each other's echoes.
    Answers(ExpectAnswers),
    /// The result of a load.
    Load(ExpectLoad),
    /// The largest packet that passes whole.
    Largest(ExpectLargest),
    /// The size of frames to a peer is known.
    Size(ExpectSize),
    /// The number of a link's frames with a certain fate.
    Frames(ExpectFrames),
    /// A name resolves, and the address that it stands for answers.
    Name(ExpectName),
    /// Logs without warnings.
    Quiet(ExpectQuiet),
}

/// `expect = "path"`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExpectPath {
    /// The node whose path is checked.
    pub from: String,
    /// The peer.
    pub to: String,
    /// `direct`, `relayed`, `via NAME` or `none`; with `not ` in front of it, anything else.
    pub is: String,
    /// Whether the reverse direction is checked as well.
    #[serde(default)]
    pub both: bool,
    /// How long the condition may take to become true.
    #[serde(default)]
    pub within: Time,
}

/// `expect = "settled"`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExpectSettled {
    /// A node.
    pub from: String,
    /// Its peer.
    pub to: String,
    /// `direct`, `relayed`, `via NAME` or `none`; with `not ` in front of it, anything else.
    pub is: String,
    /// How long the paths of both are watched, unless they are direct before.
    pub within: Time,
}

/// `expect = "state"`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExpectState {
    /// The node whose peer is checked.
    pub from: String,
    /// The peer.
    pub to: String,
    /// Its state, at least.
    pub at_least: Option<PeerState>,
    /// Its state, at most.
    pub at_most: Option<PeerState>,
    /// Whether the reverse direction is checked as well.
    #[serde(default)]
    pub both: bool,
    /// How long the condition may take to become true.
    #[serde(default)]
    pub within: Time,
}

/// `expect = "answer"`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExpectAnswer {
    /// The node that sends the echo.
    pub from: String,
    /// The node that answers.
    pub to: String,
    /// Whether the reverse direction is checked as well.
    #[serde(default)]
    pub both: bool,
    /// Time limit of the first answer.
    pub within: Time,
}

/// `expect = "answers"`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExpectAnswers {
    /// The nodes: each sends echoes to each other one.
    pub among: Vec<String>,
    /// Time limit of all first answers.
    pub within: Time,
}

/// `expect = "load"`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExpectLoad {
    /// The name of the load's step; a load that is still running is ended.
    pub of: String,
    /// Lost echoes or datagrams, at most.
    pub lost_at_most: Option<u64>,
    /// Lost echoes or datagrams, at least: shows that the impairment took effect.
    pub lost_at_least: Option<u64>,
    /// Longest time without an arrival, at most.
    pub gap_at_most: Option<Time>,
    /// Mean round trip of echoes, or mean one-way delay of datagrams, at least.
    pub mean_at_least: Option<Time>,
    /// Mean round trip or delay, at most.
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
    /// The node that sends.
    pub from: String,
    /// The node that answers.
    pub to: String,
    /// Bytes of the largest IP packet that passes whole, at least.
    pub at_least: Option<u32>,
    /// Bytes of the largest IP packet that passes whole, at most.
    pub at_most: Option<u32>,
}

/// `expect = "size"`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExpectSize {
    /// The node that sends the frames.
    pub from: String,
    /// The peer.
    pub to: String,
    /// The largest frame in bytes of UDP payload, as probes have found.
    pub is: u16,
    /// Whether the reverse direction is checked as well.
    #[serde(default)]
    pub both: bool,
    /// How long the condition may take to become true.
    #[serde(default)]
    pub within: Time,
}

/// `expect = "frames"`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExpectFrames {
    /// The link.
    pub link: String,
    /// Their fate.
    pub are: Fate,
    /// Their number, in both directions together, at least.
    pub at_least: Option<u64>,
    /// Their number, at most.
    pub at_most: Option<u64>,
}

/// The fates of frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fate {
    /// Delivered.
    Given,
    /// Lost at random.
    Lost,
    /// Duplicated.
    Doubled,
    /// Held back.
    Reordered,
    /// Dropped because the queue was full.
    Overflowed,
    /// Dropped because they were too big.
    TooBig,
    /// Dropped by the firewall; a super-frame counts once.
    Refused,
}

/// `expect = "name"`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExpectName {
    /// The node that is asked for it.
    pub on: String,
    /// The name, such as `laptop.home.weft`.
    pub resolves: String,
    /// The node whose addresses it stands for: in the mesh, and the IPv4 address in a network.
    pub to: String,
    /// How long the condition may take to become true.
    #[serde(default)]
    pub within: Time,
}

/// `expect = "quiet"`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExpectQuiet {
    /// The nodes whose logs are checked; `None`: all.
    pub nodes: Option<Vec<String>>,
}

/// All expectations by name.
pub(super) const EXPECTATIONS: &str =
    "path, settled, state, answer, answers, load, largest, size, frames, name or quiet";

/// Reads the rest of a step that expects something of this kind.
pub(super) fn expectation(kind: &str, table: Table) -> Result<Expect, String> {
    Ok(match kind {
        "path" => Expect::Path(read(table)?),
        "settled" => Expect::Settled(read(table)?),
        "state" => Expect::State(read(table)?),
        "answer" => Expect::Answer(read(table)?),
        "answers" => Expect::Answers(read(table)?),
        "load" => Expect::Load(read(table)?),
        "largest" => Expect::Largest(read(table)?),
        "size" => Expect::Size(read(table)?),
        "frames" => Expect::Frames(read(table)?),
        "name" => Expect::Name(read(table)?),
        "quiet" => Expect::Quiet(read(table)?),
        _ => return Err(format!("nothing is expected by this name; write {EXPECTATIONS}")),
    })
}

impl fmt::Display for Expect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let to = |both: bool| if both { "and" } else { "to" };
        match self {
            Self::Path(e) => write!(f, "path {} {} {} {}", e.from, to(e.both), e.to, e.is),
            Self::Settled(e) => write!(f, "settled {} and {} {}", e.from, e.to, e.is),
            Self::State(e) => write!(f, "state {} {} {}", e.from, to(e.both), e.to),
            Self::Answer(e) => write!(f, "answer {} {} {}", e.from, to(e.both), e.to),
            Self::Answers(e) => write!(f, "answers among {}", e.among.join(", ")),
            Self::Load(e) => write!(f, "load {}", e.of),
            Self::Largest(e) => write!(f, "largest {} to {}", e.from, e.to),
            Self::Size(e) => write!(f, "size {} {} {} {}", e.from, to(e.both), e.to, e.is),
            Self::Frames(e) => write!(f, "frames {}", e.link),
            Self::Name(e) => write!(f, "name {} on {}", e.resolves, e.on),
            Self::Quiet(_) => f.write_str("quiet"),
        }
    }
}
