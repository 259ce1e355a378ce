//! One side of a cell: a host, and what is between it and the network outside.
//!
//! The boxes of a side are in a row, the first of them next to the host. The host is `cell-N-a` or
//! `cell-N-b`; its first box is `cell-N-a-nat` with the network `cell-N-a-home` inside, the next one
//! `cell-N-a-nat-2` with `cell-N-a-net-2` inside. Of two sides that share their last box, it belongs
//! to the first one.

use serde::Deserialize;
use toml::{Table, Value};

use super::{DELAY, INTERNET, PUBLIC, host, list, relays_of, table, text};

/// The keys of a NAT box that follow from its place.
const PLACES: [&str; 4] = ["inside", "inner", "outside", "outer"];
/// The kind of box whose hosts have IPv6 alone, and the addresses of its inside and of a host there.
const NAT64: &str = "nat64";
const NAT64_INSIDE: [&str; 2] = ["2d00:64::1/64", "2d00:64::2/64"];
/// The addresses of the first box inside, and of a host there.
const HOME: [&str; 2] = ["192.168.1.1/24", "192.168.1.2/24"];

/// `[side.NAME]`: what is between a host and the network outside.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in super::super) struct SideSpec {
    /// NAT boxes, kinds or tables of keys, from the host outward.
    #[serde(default)]
    boxes: Vec<Value>,
    /// Whether two such sides of a cell have the last box in common.
    #[serde(default)]
    shared: bool,
    /// The IP version of a host without boxes.
    #[serde(default = "four")]
    version: u8,
    /// The keys of the firewall at the host, but for what it protects.
    firewall: Option<Table>,
}

/// What a side stands for.
#[derive(Debug, Default)]
pub(super) struct Side {
    pub(super) networks: Vec<String>,
    pub(super) nats: Vec<(String, Table)>,
    pub(super) host: Table,
    pub(super) link: Table,
}

/// The place of a side: the number of its cell, its letter, and whether its last box is that of `a`.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub(super) cell: usize,
    pub(super) end: &'static str,
    pub(super) joins: bool,
}

impl SideSpec {
    /// The side that a value of a cell names: `public`, a kind of NAT box, or a table of its keys.
    pub(super) fn of(value: &Value) -> Result<Self, String> {
        let boxes = match value {
            Value::String(name) if name == PUBLIC => Vec::new(),
            Value::String(_) | Value::Table(_) => vec![value.clone()],
            _ => return Err(format!("write a kind of NAT box, {PUBLIC:?}, or a table of its keys")),
        };
        Ok(Self {
            boxes,
            shared: false,
            version: four(),
            firewall: None,
        })
    }

    /// Checks what the expansion relies on.
    pub(super) fn check(&self) -> Result<(), String> {
        match self.version {
            4 | 6 if self.shared && self.boxes.is_empty() => Err("shared: there is no box to share".to_owned()),
            6 if !self.boxes.is_empty() => Err("version: it follows from the boxes; leave it out".to_owned()),
            4 | 6 => Ok(()),
            other => Err(format!("version is {other}; write 4 or 6")),
        }
    }

    /// Whether two sides of this kind have a box in common.
    pub(super) fn is_shared(&self) -> bool {
        self.shared
    }

    /// The hosts, boxes and networks of this side in a cell, with so many relays.
    pub(super) fn build(&self, place: Place, relays: usize, config: &Table) -> Result<Side, String> {
        let own = host(place.cell, place.end);
        let mut side = Side::default();
        for (level, nat) in self.boxes.iter().enumerate() {
            let last = level + 1 == self.boxes.len();
            if !(last && place.joins) {
                side.networks.push(self.network(place, level));
                side.nats.push(self.nat(place, level, nat)?);
            }
        }
        let (network, address) = self.at(place, 0);
        side.link = table(&[
            ("between", list(&[&own, &network])),
            ("addresses", Value::Table(table(&[(&own, text(&address))]))),
            ("delay", text(DELAY)),
        ]);
        if let Some(firewall) = &self.firewall {
            let mut firewall = firewall.clone();
            firewall.insert("protects".to_owned(), text(&own));
            side.link.insert("firewall".to_owned(), Value::Table(firewall));
        }
        let other = host(place.cell, if place.end == "a" { "b" } else { "a" });
        let dials: Vec<String> = relays_of(relays, self.is_nat64()).collect();
        side.host = table(&[
            ("dials", list(&dials.iter().map(String::as_str).collect::<Vec<_>>())),
            ("knows", list(&[&other])),
            ("config", Value::Table(config.clone())),
        ]);
        Ok(side)
    }

    /// The name and the table of the box at this place of the row.
    fn nat(&self, place: Place, level: usize, nat: &Value) -> Result<(String, Table), String> {
        let mut nat = match nat {
            Value::String(kind) => table(&[("kind", text(kind))]),
            Value::Table(nat) => nat.clone(),
            _ => return Err("boxes: write kinds of NAT boxes, or tables of their keys".to_owned()),
        };
        if let Some(key) = PLACES.iter().find(|key| nat.contains_key(**key)) {
            return Err(format!("{key} follows from the cell; leave it out"));
        }
        let inner = match self.inside(level) {
            Inside::Home => HOME[0].to_owned(),
            Inside::Nat64 => NAT64_INSIDE[0].to_owned(),
            Inside::Carrier(third) => format!("100.{third}.0.1/16"),
        };
        let (outside, outer) = self.at(place, level + 1);
        for (key, value) in [
            ("inside", self.network(place, level)),
            ("inner", inner),
            ("outside", outside),
            ("outer", outer),
        ] {
            nat.insert(key.to_owned(), text(&value));
        }
        Ok((named(place, "nat", "nat", level), nat))
    }

    /// The network inside the box of a level, and the address there of the box before it, or of the
    /// host; behind the last box, those outside.
    fn at(&self, place: Place, level: usize) -> (String, String) {
        let (cell, end) = (place.cell, if place.end == "a" { 1 } else { 2 });
        if level == self.boxes.len() {
            let address = match self.version {
                6 => format!("2d00:11::{cell:x}:{end}/64"),
                _ => format!("11.0.{cell}.{end}/8"),
            };
            return (INTERNET.to_owned(), address);
        }
        let address = match self.inside(level) {
            Inside::Home => HOME[1].to_owned(),
            Inside::Nat64 => NAT64_INSIDE[1].to_owned(),
            Inside::Carrier(third) => format!("100.{third}.1.{end}/16"),
        };
        (self.network(place, level), address)
    }

    /// The name of the network inside the box of a level.
    fn network(&self, place: Place, level: usize) -> String {
        let shared = self.shared && level + 1 == self.boxes.len();
        let owner = Place {
            end: if shared && place.joins { "a" } else { place.end },
            ..place
        };
        named(owner, "home", "net", level)
    }

    fn inside(&self, level: usize) -> Inside {
        let shared = self.shared && level + 1 == self.boxes.len();
        match level {
            0 if self.is_nat64() => Inside::Nat64,
            0 if !shared => Inside::Home,
            _ => Inside::Carrier(64 + level % 64),
        }
    }

    fn is_nat64(&self) -> bool {
        self.boxes.first().is_some_and(|first| match first {
            Value::Table(nat) => nat.get("kind").and_then(Value::as_str) == Some(NAT64),
            kind => kind.as_str() == Some(NAT64),
        })
    }
}

/// What is inside a box.
enum Inside {
    /// A home: one host or box.
    Home,
    /// Hosts that have IPv6 alone.
    Nat64,
    /// The network of a carrier in 100.64.0.0/10 (RFC 6598), by its second byte.
    Carrier(usize),
}

fn named(place: Place, first: &str, further: &str, level: usize) -> String {
    let own = host(place.cell, place.end);
    match level {
        0 => format!("{own}-{first}"),
        _ => format!("{own}-{further}-{}", level + 1),
    }
}

const fn four() -> u8 {
    4
}
