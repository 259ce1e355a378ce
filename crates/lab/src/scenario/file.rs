//! The file format of scenarios, parsed strictly: an unknown key is an error with its place and a
//! remedy.
//!
//! The whole reference, with examples, is docs/guides/lab.md.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ops::Range;

use serde::Deserialize;
use toml::{Spanned, Table, Value};
use weft_scenario::{Text, read};

pub use weft_scenario::FileError;

use super::check;
use super::link::LinkSpec;
use super::matrix::{self, CellFault};
use super::nat::NatSpec;
use super::steps::{Action, Step};
use crate::nat::kernel::is_installed;

/// A topology, and the steps in it.
#[derive(Debug, Clone)]
pub struct Scenario {
    /// Its name.
    pub name: String,
    /// Its purpose, in a sentence.
    pub about: String,
    /// A picture of its topology, printed before a run; empty: none.
    pub drawing: String,
    /// The seed of all random decisions.
    pub seed: u64,
    /// Switches, by name.
    pub networks: Vec<String>,
    /// NAT boxes by name.
    pub nats: BTreeMap<String, NatSpec>,
    /// Machines by name.
    pub hosts: BTreeMap<String, HostSpec>,
    /// Cables by name.
    pub links: BTreeMap<String, LinkSpec>,
    /// The steps, in order.
    pub steps: Vec<Step>,
}

/// A machine.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostSpec {
    /// Whether a weft node runs on it.
    #[serde(default = "yes")]
    pub node: bool,
    /// Whether the node is started with the others; otherwise a step starts it.
    #[serde(default = "yes")]
    pub started: bool,
    /// Whether it forwards packets between its links.
    #[serde(default)]
    pub forwards: bool,
    /// Nodes that its node has configured with their addresses: `NAME`, or `NAME@ADDRESS:PORT`.
    #[serde(default)]
    pub dials: Vec<String>,
    /// Nodes that its node has configured without addresses.
    #[serde(default)]
    pub knows: Vec<String>,
    /// Further settings of its node, as in weft.toml.
    #[serde(default)]
    pub config: Table,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    name: String,
    #[serde(default)]
    about: String,
    #[serde(default)]
    drawing: String,
    #[serde(default = "one")]
    seed: u64,
    #[serde(default)]
    networks: Vec<String>,
    #[serde(default)]
    nat: BTreeMap<String, Spanned<Table>>,
    #[serde(default)]
    host: BTreeMap<String, Spanned<Table>>,
    #[serde(default)]
    link: BTreeMap<String, Spanned<Table>>,
    #[serde(default)]
    side: BTreeMap<String, Spanned<Table>>,
    #[serde(default)]
    cell: Vec<Spanned<Table>>,
    #[serde(default)]
    step: Vec<Spanned<Table>>,
}

/// The setting that leaves only one cell.
const CELL: &str = "cell=";

impl Raw {
    /// Adds what the cells stand for. Its steps come before those of the file.
    fn expand(&mut self, only: &[&str]) -> Result<(), CellFault> {
        let first = self.cell.first().map(Spanned::span);
        let mut sides = BTreeMap::new();
        for (name, table) in std::mem::take(&mut self.side) {
            let span = table.span();
            let side = read(table.into_inner()).map_err(|what| (span, format!("side.{name}"), what))?;
            sides.insert(name, side);
        }
        let expansion = matrix::expand(std::mem::take(&mut self.cell), &sides, only)?;
        let Some(span) = first else { return Ok(()) };
        let internet = matrix::INTERNET;
        if !self.networks.iter().any(|network| network == internet) {
            self.networks.push(internet.to_owned());
        }
        for (relay, [host, link]) in matrix::relays(expansion.relays) {
            for (tables, table) in [(&mut self.host, host), (&mut self.link, link)] {
                let table = Spanned::new(span.clone(), table);
                tables.entry(relay.to_owned()).or_insert(table);
            }
        }
        self.networks.extend(expansion.networks);
        self.nat.extend(expansion.nats);
        self.host.extend(expansion.hosts);
        self.link.extend(expansion.links);
        self.step.splice(0..0, expansion.steps);
        Ok(())
    }

    /// The positions of its tables.
    fn spans(&self) -> BTreeMap<String, Range<usize>> {
        let kinds = [("nat", &self.nat), ("host", &self.host), ("link", &self.link)];
        let tables = kinds
            .into_iter()
            .flat_map(|(kind, tables)| tables.iter().map(move |(name, table)| (kind, name, table)));
        tables
            .map(|(kind, name, table)| (format!("{kind}.{name}"), table.span()))
            .collect()
    }
}

impl Scenario {
    /// Parses a scenario. `file` is its name for errors; each of `settings` is a `KEY=VALUE` that
    /// replaces the file's value, such as `link.uplink.delay=50ms`, or `cell=NAME`, which leaves only
    /// this cell, or the cells of all such settings.
    ///
    /// # Errors
    /// [`FileError`] for the first fault.
    pub fn parse(file: &str, text: &str, settings: &[String]) -> Result<Self, FileError> {
        let place = Text { file, text };
        let mut raw: Raw = place.parse()?;
        let (cells, settings): (Vec<_>, Vec<_>) = settings.iter().partition(|setting| setting.starts_with(CELL));
        let cells: Vec<_> = cells.iter().filter_map(|cell| cell.strip_prefix(CELL)).collect();
        raw.expand(&cells).map_err(|(span, name, what)| match span.is_empty() {
            true => place.fault(&name, what),
            false => place.error(Some(span), &name, &what),
        })?;
        for setting in settings {
            set(&mut raw, setting).map_err(|what| place.fault("--set", what))?;
        }
        let spans = raw.spans();
        let mut scenario = Self {
            name: raw.name,
            about: raw.about,
            drawing: raw.drawing,
            seed: raw.seed,
            networks: raw.networks,
            nats: tables(place, "nat", raw.nat, NatSpec::read)?,
            hosts: tables(place, "host", raw.host, read)?,
            links: tables(place, "link", raw.link, LinkSpec::read)?,
            steps: Vec::new(),
        };
        for (table, number) in raw.step.into_iter().zip(1..) {
            let span = table.span();
            let step = Step::read(number, table.into_inner());
            let step = step.map_err(|(name, what)| place.error(Some(span.clone()), &name, &what))?;
            scenario.steps.push(step);
            // A step's fault is reported with its line, which only this function knows.
            let last = scenario.steps.len() - 1;
            check::step(&scenario, last)
                .map_err(|what| place.error(Some(span), &scenario.steps[last].title(), &what))?;
        }
        check::topology(&scenario).map_err(|(at, what)| place.error(spans.get(&at).cloned(), &at, &what))?;
        Ok(scenario)
    }

    /// The names of the cells of a scenario, in the order of the file, each once.
    ///
    /// # Errors
    /// [`FileError`]: the text is not that of a scenario.
    pub fn cells(file: &str, text: &str) -> Result<Vec<String>, FileError> {
        let raw: Raw = Text { file, text }.parse()?;
        Ok(matrix::names(&raw.cell))
    }

    /// The first program that its NAT boxes need and that is not installed.
    #[must_use]
    pub fn missing_program(&self) -> Option<&'static str> {
        let mut needed = self.nats.values().flat_map(|nat| nat.mechanism.programs());
        needed.find(|program| !is_installed(program)).copied()
    }

    /// Hosts with a node.
    pub fn nodes(&self) -> impl Iterator<Item = (&String, &HostSpec)> {
        self.hosts.iter().filter(|(_, host)| host.node)
    }

    /// Whether a step of the file is of this kind.
    #[must_use]
    pub fn has(&self, kind: impl Fn(&Action) -> bool) -> bool {
        self.steps.iter().any(|step| kind(&step.action))
    }
}

/// Reads the tables of a kind, such as `host`.
fn tables<T>(
    text: Text<'_>,
    kind: &str,
    raw: BTreeMap<String, Spanned<Table>>,
    read: impl Fn(Table) -> Result<T, String>,
) -> Result<BTreeMap<String, T>, FileError> {
    let mut tables = BTreeMap::new();
    for (name, table) in raw {
        let span = table.span();
        let fault = |what: String| text.error(Some(span.clone()), &format!("{kind}.{name}"), &what);
        check::name(&name).map_err(fault)?;
        let table = read(table.into_inner()).map_err(fault)?;
        tables.insert(name, table);
    }
    Ok(tables)
}

/// The endpoint in `NAME@ADDRESS:PORT`, and the name.
#[must_use]
pub fn dialled(entry: &str) -> (&str, Option<Result<SocketAddr, std::net::AddrParseError>>) {
    match entry.split_once('@') {
        Some((name, endpoint)) => (name, Some(endpoint.parse())),
        None => (entry, None),
    }
}

/// Applies one `KEY=VALUE`.
fn set(raw: &mut Raw, setting: &str) -> Result<(), String> {
    let bad = |why: &str| format!("{setting}: {why}; write a line such as link.uplink.delay=50ms");
    let (key, value) = setting.split_once('=').ok_or_else(|| bad("there is no \"=\""))?;
    // A value that is not TOML is text: quotes would need escaping in the shell.
    let parsed = format!("x = {value}").parse::<Table>();
    let value = parsed.ok().and_then(|mut table| table.remove("x"));
    let value = value.unwrap_or_else(|| Value::String(setting.split_once('=').map_or("", |(_, text)| text).to_owned()));
    if key == "seed" {
        let seed = value.as_integer().and_then(|seed| u64::try_from(seed).ok());
        raw.seed = seed.ok_or_else(|| bad("the seed is a number"))?;
        return Ok(());
    }
    let mut parts: Vec<_> = key.split('.').collect();
    let (Some(last), true) = (parts.pop(), parts.len() >= 2) else {
        return Err(bad("the key is not nat.NAME.KEY, host.NAME.KEY or link.NAME.KEY"));
    };
    let tables = match parts[0] {
        "nat" => &mut raw.nat,
        "host" => &mut raw.host,
        "link" => &mut raw.link,
        _ => return Err(bad("the key is not nat.NAME.KEY, host.NAME.KEY or link.NAME.KEY")),
    };
    let table = tables.get_mut(parts[1]);
    let mut table = table
        .map(Spanned::as_mut)
        .ok_or_else(|| bad(&format!("there is no {} {:?}", parts[0], parts[1])))?;
    for part in &parts[2..] {
        let inner = table.entry(*part).or_insert_with(|| Table::new().into());
        table = inner
            .as_table_mut()
            .ok_or_else(|| bad(&format!("{part:?} is not a table")))?;
    }
    table.insert(last.to_owned(), value);
    Ok(())
}

const fn yes() -> bool {
    true
}

const fn one() -> u64 {
    1
}
