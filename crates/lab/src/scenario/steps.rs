//! The steps of a scenario, and their actions.

use std::fmt;
use std::net::IpAddr;

use serde::Deserialize;
use toml::{Table, Value};
use weft_scenario::{known, read};

use super::command::WeftCommand;
use super::expected::{EXPECTATIONS, Expect, expectation};
use super::flaws::{FLAW_KEYS, Flaws};
use super::send::Send;
use weft_scenario::units::{Rate, Size, Time};

/// One step.
#[derive(Debug, Clone)]
pub struct Step {
    /// Its place in the file, from 1.
    pub number: usize,
    /// Its start, counted from the first step; `None`: when the previous one ends.
    pub at: Option<Time>,
    /// Its name for later steps.
    pub name: Option<String>,
    /// The chapter that begins with it, `NAME: TEXT`.
    pub chapter: Option<String>,
    /// Its action.
    pub action: Action,
}

/// The action of a step.
#[derive(Debug, Clone)]
pub enum Action {
    /// Wait.
    Wait(Wait),
    /// Cut a link.
    Cut(Cut),
    /// Restore a link.
    Heal(OfLink),
    /// Change the impairments of a link.
    Change(Change),
    /// Change a host's address, or attach it to another link.
    Roam(Roam),
    /// Replace a host's default gateway.
    Gateway(Gateway),
    /// Suspend a node for a time.
    Suspend(Suspend),
    /// Stop a node, which must end with status 0.
    Stop(OfNode),
    /// Kill a node.
    Kill(OfNode),
    /// Start a node.
    Start(OfNode),
    /// Stop a node and start it again.
    Restart(OfNode),
    /// Delete the mappings of a NAT box.
    Forget(OfNat),
    /// Restart a NAT box.
    Reboot(Reboot),
    /// Echoes from one node to another.
    Ping(PingLoad),
    /// A TCP stream from one node to another.
    Tcp(TcpLoad),
    /// A UDP flow from one node to another.
    Udp(UdpLoad),
    /// A command at a node.
    Weft(WeftCommand),
    /// A folder from one user to another.
    Send(Send),
    /// Record the paths between nodes.
    Paths(Paths),
    /// With the option to keep the topology: wait for Ctrl-C. Without: nothing.
    Hold(Nothing),
    /// Check an expectation.
    Expect(Expect),
}

/// A step without keys.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Nothing {}

/// `do = "paths"`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Paths {
    /// The nodes.
    pub among: Vec<String>,
    /// A node and its peer, whose path changes are recorded too.
    pub history: Option<[String; 2]>,
}

/// `do = "wait"`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wait {
    /// Duration.
    #[serde(rename = "for")]
    pub time: Time,
}

/// `do = "cut"`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cut {
    /// The link.
    pub link: String,
    /// Whether the hosts notice it: their interfaces go down.
    #[serde(default)]
    pub noticed: bool,
}

/// A step about a link.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OfLink {
    /// The link.
    pub link: String,
}

/// `do = "change"`
#[derive(Debug, Clone)]
pub struct Change {
    /// The link.
    pub link: String,
    /// Only frames to this end; `None`: all.
    pub toward: Option<String>,
    /// The impairments from now on.
    pub flaws: Flaws,
}

/// `do = "roam"`: a new `address` on `link`, or a move `from` one link `to` another.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Roam {
    /// The host.
    pub host: String,
    /// The link of the new address.
    pub link: Option<String>,
    /// The new address with its prefix length; the first of the same IP version is removed.
    pub address: Option<String>,
    /// The old link.
    pub from: Option<String>,
    /// The new link.
    pub to: Option<String>,
}

/// `do = "gateway"`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gateway {
    /// The host.
    pub host: String,
    /// The link on which the gateway is.
    pub link: String,
    /// The new gateway, in place of that of the same IP version.
    pub address: IpAddr,
}

/// `do = "suspend"`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Suspend {
    /// The node.
    pub node: String,
    /// How long.
    #[serde(rename = "for")]
    pub time: Time,
}

/// A step about a node.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OfNode {
    /// The node.
    pub node: String,
}

/// A step about a NAT box.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OfNat {
    /// The NAT box.
    pub nat: String,
}

/// `do = "reboot"`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reboot {
    /// The NAT box.
    pub nat: String,
    /// Its new address outside, with the prefix length; `None`: it keeps the old one.
    pub outer: Option<String>,
}

/// `do = "ping"`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PingLoad {
    /// The node that sends echoes.
    pub from: String,
    /// The node that answers.
    pub to: String,
    /// Number of echoes.
    pub count: Option<u64>,
    /// Duration.
    #[serde(rename = "for")]
    pub time: Option<Time>,
    /// Interval; 100 ms by default.
    pub interval: Option<Time>,
    /// Bytes behind the ICMPv6 header; 56 by default.
    pub size: Option<Size>,
    /// Whether the next step begins at once.
    #[serde(default)]
    pub background: bool,
}

/// `do = "tcp"`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TcpLoad {
    /// The sender.
    pub from: String,
    /// The receiver.
    pub to: String,
    /// Number of bytes.
    pub bytes: Option<Size>,
    /// Duration.
    #[serde(rename = "for")]
    pub time: Option<Time>,
    /// Maximum rate, if `bytes` is not given.
    pub rate: Option<Rate>,
    /// Whether the next step begins at once.
    #[serde(default)]
    pub background: bool,
}

/// `do = "udp"`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UdpLoad {
    /// The sender.
    pub from: String,
    /// The receiver.
    pub to: String,
    /// Duration.
    #[serde(rename = "for")]
    pub time: Option<Time>,
    /// UDP payload per second.
    pub rate: Rate,
    /// UDP payload of each datagram; 1000 bytes by default.
    pub size: Option<Size>,
    /// Whether the next step begins at once.
    #[serde(default)]
    pub background: bool,
}

const DEEDS: &str = "cut, heal, change, roam, gateway, suspend, stop, kill, start, restart, forget, reboot, ping, tcp, udp, weft, send, paths, hold or wait";

impl Step {
    /// Parses a step; an error contains the step's title for messages.
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
            let chapter = take(&mut table, "chapter")?;
            let action = if is_deed {
                deed(&kind, table)?
            } else {
                Action::Expect(expectation(&kind, table)?)
            };
            Ok(Self {
                number,
                at,
                name,
                chapter,
                action,
            })
        };
        let word = if is_deed { "" } else { "expect " };
        body().map_err(|what: String| (format!("{plain} ({word}{kind})"), what))
    }

    /// Its title for messages: `step 3 (cut uplink)`.
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
        "gateway" => Action::Gateway(read(table)?),
        "suspend" => Action::Suspend(read(table)?),
        "stop" => Action::Stop(read(table)?),
        "kill" => Action::Kill(read(table)?),
        "start" => Action::Start(read(table)?),
        "restart" => Action::Restart(read(table)?),
        "forget" => Action::Forget(read(table)?),
        "reboot" => Action::Reboot(read(table)?),
        "ping" => Action::Ping(read(table)?),
        "tcp" => Action::Tcp(read(table)?),
        "udp" => Action::Udp(read(table)?),
        "weft" => Action::Weft(read(table)?),
        "send" => Action::Send(read(table)?),
        "paths" => Action::Paths(read(table)?),
        "hold" => Action::Hold(read(table)?),
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
            Self::Gateway(step) => write!(f, "gateway of {} {}", step.host, step.address),
            Self::Suspend(step) => write!(f, "suspend {} {}", step.node, step.time),
            Self::Stop(step) => write!(f, "stop {}", step.node),
            Self::Kill(step) => write!(f, "kill {}", step.node),
            Self::Start(step) => write!(f, "start {}", step.node),
            Self::Restart(step) => write!(f, "restart {}", step.node),
            Self::Forget(step) => write!(f, "forget {}", step.nat),
            Self::Reboot(step) => write!(f, "reboot {}", step.nat),
            Self::Ping(step) => write!(f, "ping {} to {}", step.from, step.to),
            Self::Tcp(step) => write!(f, "tcp {} to {}", step.from, step.to),
            Self::Udp(step) => write!(f, "udp {} to {}", step.from, step.to),
            Self::Weft(step) => step.fmt(f),
            Self::Send(step) => step.fmt(f),
            Self::Paths(step) => write!(f, "paths among {}", step.among.join(", ")),
            Self::Hold(_) => f.write_str("hold"),
            Self::Expect(expect) => write!(f, "expect {expect}"),
        }
    }
}
