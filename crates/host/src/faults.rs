//! Faults of a host: what keeps packets from passing although the node has set up all that is its own.
//!
//! [`Facts::read`] looks at the kernel, and [`find`] says what is wrong. No setting is changed: a fault names the
//! command that does it. A fault is never a guess; what cannot be looked at is said to
//! be so.
//!
//! To add a check: a field of [`Facts`], and a function in [`find`].

pub mod facts;
pub mod packet_filter;

use serde::{Deserialize, Serialize};

pub use self::facts::{Facts, Wanted, Way, examine, host};
use self::packet_filter::Packet;
use crate::exit::rules::{SERVE, USE};

/// What is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// The check, in one word: `forwarding`, `firewall`, `route`, `exit`, `rp_filter`, `connections`.
    pub check: String,
    /// What is so.
    pub what: String,
    /// Why it matters.
    pub why: String,
    /// The command that puts it right, or what to do.
    pub fix: Option<String>,
    /// The subnet behind this host that is not reached, as `192.168.7.0/24`, or all addresses of a version of IP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
}

/// Something that was not looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skipped {
    /// The check, as in [`Fault::check`].
    pub check: String,
    /// The reason.
    pub why: String,
}

/// The result of a look.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Examined {
    /// What is wrong.
    pub faults: Vec<Fault>,
    /// What was not looked at.
    pub skipped: Vec<Skipped>,
}

impl Fault {
    fn new(check: &str, what: String, why: impl Into<String>, fix: impl Into<String>) -> Self {
        Self {
            check: check.to_owned(),
            what,
            why: why.into(),
            fix: Some(fix.into()),
            to: None,
        }
    }

    /// What is so, and the command that puts it right: half a line for the user.
    #[must_use]
    pub fn in_brief(&self) -> String {
        let fix = self.fix.as_ref().map(|fix| format!("; {fix}"));
        format!("{}{}", self.what, fix.unwrap_or_default())
    }
}

/// Says what is wrong.
#[must_use]
pub fn find(facts: &Facts) -> Vec<Fault> {
    dropped_here(facts)
}

/// Packets for this host that its own rules drop.
fn dropped_here(facts: &Facts) -> Vec<Fault> {
    let mut faults = Vec::new();
    for port in &facts.ports {
        if let Some(chain) = facts.ruleset.dropped_by(&Packet::udp(*port), &[USE, SERVE]) {
            faults.push(Fault::new(
                "firewall",
                format!("the chain {chain} drops UDP to port {port}"),
                "nodes that dial this one get no answer; only those that it dials itself are reached",
                format!("sudo nft insert rule {chain} udp dport {port} accept"),
            ));
        }
    }
    let name = &facts.interface;
    if let Some(chain) = facts.ruleset.dropped_by(&Packet::echo(name), &[USE, SERVE]) {
        faults.push(Fault::new(
            "firewall",
            format!("the chain {chain} drops what comes in on {name}"),
            "peers reach no program of this host, and not even a ping is answered",
            format!("sudo nft insert rule {chain} iifname {name} accept"),
        ));
    }
    faults
}
