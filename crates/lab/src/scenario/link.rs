//! Links as a file describes them.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::Deserialize;
use toml::Table;
use weft_scenario::units::Time;
use weft_scenario::{known, read};

use super::flaws::{FLAW_KEYS, Flaws};
use crate::emulator::{End, Protection};
use crate::firewall::{FirewallRules, Inbound};
use crate::nat::MappingLife;

/// A cable between two hosts, a host and a network, or two networks.
#[derive(Debug, Clone)]
pub struct LinkSpec {
    /// Its two ends, by name.
    pub between: [String; 2],
    /// The addresses of its hosts, with prefix lengths.
    pub addresses: BTreeMap<String, Vec<String>>,
    /// Its hosts' default gateways, if no NAT box of the network is their gateway.
    pub gateways: BTreeMap<String, Vec<IpAddr>>,
    /// The metrics of its hosts' default routes; the lowest of a host is used.
    pub metrics: BTreeMap<String, u32>,
    /// Whether it is up from the start; otherwise a step brings it up.
    pub up: bool,
    /// Whether its frames are captured.
    pub pcap: bool,
    /// The firewall at one of its ends.
    pub firewall: Option<Protection>,
    /// Its impairments, towards the second end and towards the first.
    pub flaws: [Flaws; 2],
}

#[derive(Deserialize)]
struct RawLink {
    between: [String; 2],
    #[serde(default)]
    addresses: BTreeMap<String, OneOrMore>,
    #[serde(default)]
    gateways: BTreeMap<String, OneOrMore>,
    #[serde(default)]
    metrics: BTreeMap<String, u32>,
    #[serde(default = "yes")]
    up: bool,
    #[serde(default)]
    pcap: bool,
    firewall: Option<RawFirewall>,
    #[serde(default)]
    toward: BTreeMap<String, Flaws>,
}

/// `firewall = { protects = "home", inbound = "answers" }`
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawFirewall {
    protects: String,
    #[serde(default = "all")]
    inbound: Inbound,
    #[serde(default = "yes")]
    udp: bool,
    versions: Option<Vec<u8>>,
    lifetime: Option<Time>,
}

const LINK_KEYS: &[&str] = &[
    "between",
    "addresses",
    "gateways",
    "metrics",
    "up",
    "pcap",
    "firewall",
    "toward",
];

#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrMore {
    One(String),
    More(Vec<String>),
}

impl OneOrMore {
    fn all(self) -> Vec<String> {
        match self {
            Self::One(one) => vec![one],
            Self::More(all) => all,
        }
    }
}

impl LinkSpec {
    /// Reads the table of a link.
    pub(super) fn read(mut table: Table) -> Result<Self, String> {
        let flaws = Flaws::take(&mut table)?;
        known(&table, &[LINK_KEYS, FLAW_KEYS])?;
        let raw: RawLink = read(table)?;
        let mut both = [flaws.clone(), flaws];
        for (end, flaws) in &raw.toward {
            let Some(number) = raw.between.iter().position(|name| name == end) else {
                return Err(format!("toward.{end}: this link does not end at {end:?}"));
            };
            flaws.check()?;
            // Towards the second end comes first.
            both[1 - number].merge(flaws);
        }
        let addresses = raw.addresses.into_iter();
        let gateways = raw.gateways.into_iter().map(|(host, gateways)| {
            let parse = |text: String| {
                text.parse()
                    .map_err(|_| format!("gateways: {text:?} is not an address"))
            };
            let gateways: Result<_, String> = gateways.all().into_iter().map(parse).collect();
            Ok((host, gateways?))
        });
        let firewall = raw.firewall.map(|firewall| protection(&firewall, &raw.between));
        Ok(Self {
            firewall: firewall.transpose()?,
            between: raw.between,
            addresses: addresses.map(|(host, addresses)| (host, addresses.all())).collect(),
            gateways: gateways.collect::<Result<_, String>>()?,
            metrics: raw.metrics,
            up: raw.up,
            pcap: raw.pcap,
            flaws: both,
        })
    }

    /// The number of the end with this name: 0 or 1.
    #[must_use]
    pub fn end(&self, name: &str) -> Option<usize> {
        self.between.iter().position(|end| end == name)
    }

    /// The name of the other end.
    #[must_use]
    pub fn other(&self, name: &str) -> &str {
        &self.between[usize::from(self.between[0] == name)]
    }
}

fn protection(raw: &RawFirewall, between: &[String; 2]) -> Result<Protection, String> {
    let end = match between.iter().position(|end| *end == raw.protects) {
        Some(0) => End::A,
        Some(_) => End::B,
        None => return Err(format!("firewall: this link does not end at {:?}", raw.protects)),
    };
    if raw.inbound == Inbound::All && raw.udp {
        return Err("firewall: it drops nothing; write inbound = \"answers\" or udp = false".to_owned());
    }
    let versions = raw.versions.as_deref().unwrap_or(&[4, 6]);
    if versions.is_empty() || versions.iter().any(|version| ![4, 6].contains(version)) {
        return Err(format!("firewall: versions is {versions:?}; write [4], [6] or [4, 6]"));
    }
    let mut life = MappingLife::default();
    if let Some(lifetime) = raw.lifetime {
        life.udp_ms = u64::try_from(lifetime.0.as_millis()).unwrap_or(u64::MAX);
    }
    let rules = FirewallRules {
        inbound: raw.inbound,
        udp: raw.udp,
        ipv4: versions.contains(&4),
        ipv6: versions.contains(&6),
        life,
    };
    Ok(Protection { end, rules })
}

const fn all() -> Inbound {
    Inbound::All
}

const fn yes() -> bool {
    true
}
