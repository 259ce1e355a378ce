//! The steps of a scenario, and what they do.

use std::fmt;

use serde::Deserialize;
use toml::{Table, Value};

use super::expected::{EXPECTATIONS, Expect, expectation};
use super::file::{known, read};
use super::flaws::{FLAW_KEYS, Flaws};
use super::units::{Rate, Size, Time};

/// One step.
#[derive(Debug, Clone)]
pub struct Step {
    /// Its place in the file, from 1.
    pub number: usize,
    /// When it begins, counted from the first step; none: when the one before is over.
    pub at: Option<Time>,
    /// What later steps call it.
    pub name: Option<String>,
    /// What happens.
    pub action: Action,
}

/// What a step does.
#[derive(Debug, Clone)]
pub enum Action {
    /// Nothing, for a while.
    Wait(Wait),
    /// A link passes nothing.
    Cut(Cut),
    /// It does again.
    Heal(OfLink),
    /// A link does something else to frames.
    Change(Change),
    /// A host has another address, or hangs on another link.
    Roam(Roam),
    /// A node is asked to stop, and must end with status 0.
    Stop(OfNode),
    /// A node is killed.
    Kill(OfNode),
    /// A node is started.
    Start(OfNode),
    /// A node is stopped, and started again.
    Restart(OfNode),
    /// A NAT box forgets its mappings.
    Forget(OfNat),
    /// Echoes from one node to another.
    Ping(PingLoad),
    /// A TCP stream from one node to another.
    Tcp(TcpLoad),
    /// A UDP flow from one node to another.
    Udp(UdpLoad),
    /// Something must be so.
    Expect(Expect),
}

/// `do = "wait"`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wait {
    /// How long.
    #[serde(rename = "for")]
    pub time: Time,
}

/// `do = "cut"`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cut {
    /// Which link.
    pub link: String,
    /// Whether the hosts see it: their interfaces go down.
    #[serde(default)]
    pub noticed: bool,
}

/// A step about a link.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OfLink {
    /// Which link.
    pub link: String,
}

/// `do = "change"`
#[derive(Debug, Clone)]
pub struct Change {
    /// Which link.
    pub link: String,
    /// Only frames on their way to this end; none: all.
    pub toward: Option<String>,
    /// What it does from now on.
    pub flaws: Flaws,
}

/// `do = "roam"`: another `address` on `link`, or away `from` one link and on `to` another.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Roam {
    /// Who.
    pub host: String,
    /// The link of the new address.
    pub link: Option<String>,
    /// The new address with its prefix length; the first of its IP version goes.
    pub address: Option<String>,
    /// The link that it leaves.
    pub from: Option<String>,
    /// The link that it goes to.
    pub to: Option<String>,
}

/// A step about a node.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OfNode {
    /// Which one.
    pub node: String,
}

/// A step about a NAT box.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OfNat {
    /// Which one.
    pub nat: String,
}

/// `do = "ping"`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PingLoad {
    /// Who asks.
    pub from: String,
    /// Who answers.
    pub to: String,
    /// How many.
    pub count: Option<u64>,
    /// How long.
    #[serde(rename = "for")]
    pub time: Option<Time>,
    /// From one to the next; 100 ms.
    pub interval: Option<Time>,
    /// Bytes behind the ICMPv6 header; 56.
    pub size: Option<Size>,
    /// Whether the next step begins at once.
    #[serde(default)]
    pub background: bool,
}

/// `do = "tcp"`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TcpLoad {
    /// Who sends.
    pub from: String,
    /// Who receives.
    pub to: String,
    /// How much.
    pub bytes: Option<Size>,
    /// How long.
    #[serde(rename = "for")]
    pub time: Option<Time>,
    /// At most so much a second, where `bytes` is not given.
    pub rate: Option<Rate>,
    /// Whether the next step begins at once.
    #[serde(default)]
    pub background: bool,
}

/// `do = "udp"`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UdpLoad {
    /// Who sends.
    pub from: String,
    /// Who receives.
    pub to: String,
    /// How long.
    #[serde(rename = "for")]
    pub time: Option<Time>,
    /// UDP payload a second.
    pub rate: Rate,
    /// UDP payload of each datagram; 1000 bytes.
    pub size: Option<Size>,
    /// Whether the next step begins at once.
    #[serde(default)]
    pub background: bool,
}

const DEEDS: &str = "cut, heal, change, roam, stop, kill, start, restart, forget, ping, tcp, udp or wait";

impl Step {
    /// Reads a step; an error comes with what the step is called in messages.
    pub(super) fn read(number: usize, mut table: Table) -> Result<Self, (String, String)> {
        let plain = format!("step {number}");
        let (done, expected) = (table.remove("do"), table.remove("expect"));
        let (kind, is_deed) = match (&done, &expected) {
            (Some(Value::String(kind)), None) => (kind.clone(), true),
            (None, Some(Value::String(kind))) => (kind.clone(), false),
            _ => {
                let what = format!("a step has either do = \"...\" ({DEEDS}) or expect = \"...\" ({EXPECTATIONS})");
                return Err((plain, what));
            }
        };
        let body = || {
            let at = take(&mut table, "at")?;
            let name = take(&mut table, "name")?;
            let action = if is_deed {
                deed(&kind, table)?
            } else {
                Action::Expect(expectation(&kind, table)?)
            };
            Ok(Self {
                number,
                at,
                name,
                action,
            })
        };
        let word = if is_deed { "" } else { "expect " };
        body().map_err(|what: String| (format!("{plain} ({word}{kind})"), what))
    }

    /// What it is called in messages: `step 3 (cut uplink)`.
    #[must_use]
    pub fn title(&self) -> String {
        match &self.name {
            Some(name) => format!("step {} {name:?} ({})", self.number, self.action),
            None => format!("step {} ({})", self.number, self.action),
        }
    }
}

fn take<T: serde::de::DeserializeOwned>(table: &mut Table, key: &str) -> Result<Option<T>, String> {
    let value = table.remove(key).map(Value::try_into).transpose();
    value.map_err(|error: toml::de::Error| format!("{key}: {}", error.message()))
}

fn deed(kind: &str, table: Table) -> Result<Action, String> {
    Ok(match kind {
        "wait" => Action::Wait(read(table)?),
        "cut" => Action::Cut(read(table)?),
        "heal" => Action::Heal(read(table)?),
        "change" => Action::Change(change(table)?),
        "roam" => Action::Roam(read(table)?),
        "stop" => Action::Stop(read(table)?),
        "kill" => Action::Kill(read(table)?),
        "start" => Action::Start(read(table)?),
        "restart" => Action::Restart(read(table)?),
        "forget" => Action::Forget(read(table)?),
        "ping" => Action::Ping(read(table)?),
        "tcp" => Action::Tcp(read(table)?),
        "udp" => Action::Udp(read(table)?),
        _ => return Err(format!("nothing is done by this name; write {DEEDS}")),
    })
}

fn change(mut table: Table) -> Result<Change, String> {
    #[derive(Deserialize)]
    struct Rest {
        link: String,
        toward: Option<String>,
    }
    known(&table, &[&["link", "toward"], FLAW_KEYS])?;
    let flaws = Flaws::take(&mut table)?;
    let Rest { link, toward } = read(table)?;
    Ok(Change { link, toward, flaws })
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Wait(step) => write!(f, "wait {}", step.time),
            Self::Cut(step) => write!(f, "cut {}", step.link),
            Self::Heal(step) => write!(f, "heal {}", step.link),
            Self::Change(step) => write!(f, "change {}", step.link),
            Self::Roam(step) => write!(f, "roam {}", step.host),
            Self::Stop(step) => write!(f, "stop {}", step.node),
            Self::Kill(step) => write!(f, "kill {}", step.node),
            Self::Start(step) => write!(f, "start {}", step.node),
            Self::Restart(step) => write!(f, "restart {}", step.node),
            Self::Forget(step) => write!(f, "forget {}", step.nat),
            Self::Ping(step) => write!(f, "ping {} to {}", step.from, step.to),
            Self::Tcp(step) => write!(f, "tcp {} to {}", step.from, step.to),
            Self::Udp(step) => write!(f, "udp {} to {}", step.from, step.to),
            Self::Expect(expect) => write!(f, "expect {expect}"),
        }
    }
}
