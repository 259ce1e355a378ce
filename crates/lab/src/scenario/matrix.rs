//! `[[cell]]`: the compact form for two nodes behind NAT boxes with a public relay, and the path that
//! they are to have. Each cell becomes hosts, NAT boxes, links and steps of the scenario.
//!
//! Cell number N has the hosts `cell-N-a` and `cell-N-b`, each in a network of its own behind a NAT
//! box with an outer address in 11.0.N.0/24, or with such an address itself. Both know each other's
//! key, and dial the node `relay` at 11.0.0.7, and `relay-2` at 11.0.0.8 if the cell has two relays. A
//! file may have hosts and links of these names of its own. All cells run at the same time.

mod side;

use std::collections::BTreeMap;
use std::ops::Range;

use serde::Deserialize;
use toml::{Spanned, Table, Value};
use weft_scenario::read;

pub(super) use side::SideSpec;
use side::{Place, Side};

/// The largest number of cells: one for each third byte of an outer address.
const MOST: usize = 254;
/// The relays, and their addresses in the network outside.
const RELAYS: [(&str, [&str; 2]); 2] = [
    ("relay", ["11.0.0.7/8", "2d00:11::7/64"]),
    ("relay-2", ["11.0.0.8/8", "2d00:11::8/64"]),
];
/// Where hosts behind NAT64 dial them (RFC 6052, section 2.1).
const RELAYS_NAT64: [&str; 2] = ["relay@[64:ff9b::b00:7]:2121", "relay-2@[64:ff9b::b00:8]:2121"];
/// A side without a NAT box.
const PUBLIC: &str = "public";
/// The path of a cell whose nodes do not reach each other.
const NONE: &str = "none";
/// The default time limit of an answer, and of the path.
const WITHIN: &str = "20s";
/// The delay of each link, each way.
const DELAY: &str = "5ms";

/// A cell as the file has it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Cell {
    a: Value,
    b: Value,
    is: String,
    within: Option<String>,
    /// How long the path is watched until it is direct; without it, the path is checked once it is as
    /// wanted.
    watched: Option<String>,
    /// The number of relays, 1 or 2. With two, nodes know the mappings of their NAT boxes.
    #[serde(default = "one")]
    relays: usize,
    #[serde(default)]
    config: Table,
}

fn one() -> usize {
    1
}

/// What the cells of a file stand for. Tables and steps have the place of their cell.
#[derive(Debug, Default)]
pub(super) struct Expansion {
    pub(super) networks: Vec<String>,
    pub(super) nats: Vec<(String, Spanned<Table>)>,
    pub(super) hosts: Vec<(String, Spanned<Table>)>,
    pub(super) links: Vec<(String, Spanned<Table>)>,
    pub(super) steps: Vec<Spanned<Table>>,
    /// The number of relays.
    pub(super) relays: usize,
}

/// A fault of a cell: its place, its name and what is wrong.
pub(super) type CellFault = (Range<usize>, String, String);

/// Expands the cells, or only those whose name is in `only`, if there are any. A side may be one of
/// `sides`, by its name.
pub(super) fn expand(
    cells: Vec<Spanned<Table>>,
    sides: &BTreeMap<String, SideSpec>,
    only: &[&str],
) -> Result<Expansion, CellFault> {
    let mut all = Expansion::default();
    let mut names = Vec::new();
    let (mut answers, mut paths) = (Vec::new(), Vec::new());
    for (table, number) in cells.into_iter().zip(1..) {
        let span = table.span();
        let fault = |what: String| (span.clone(), format!("cell {number}"), what);
        if number > MOST {
            return Err(fault(format!("there are more than {MOST} cells")));
        }
        let cell: Cell = read(table.into_inner()).map_err(fault)?;
        if !(1..=RELAYS.len()).contains(&cell.relays) {
            return Err(fault(format!("relays: write 1 or 2, not {}", cell.relays)));
        }
        let name = name(&cell.a, &cell.b);
        let wanted = only.is_empty() || only.contains(&name.as_str());
        names.push(name.clone());
        if !wanted {
            continue;
        }
        all.relays = all.relays.max(cell.relays);
        let at = |table| Spanned::new(span.clone(), table);
        for (end, built) in cell.sides(number, sides).map_err(fault)? {
            all.networks.extend(built.networks);
            all.nats
                .extend(built.nats.into_iter().map(|(name, nat)| (name, at(nat))));
            all.hosts.push((host(number, end), at(built.host)));
            all.links.push((host(number, end), at(built.link)));
        }
        let (answer, path) = cell.steps(number, &name);
        answers.extend(answer.map(at));
        paths.push(at(path));
    }
    if let Some(missing) = only.iter().find(|name| !names.iter().any(|own| own == *name)) {
        let what = format!("there is no cell {missing:?}; there are {}", names.join(", "));
        return Err((0..0, "--set".to_owned(), what));
    }
    // Answers first: meanwhile all cells get their paths.
    all.steps = answers.into_iter().chain(paths).collect();
    Ok(all)
}

impl Cell {
    /// What both sides stand for.
    fn sides(&self, number: usize, named: &BTreeMap<String, SideSpec>) -> Result<[(&'static str, Side); 2], String> {
        let spec = |end: &str, value: &Value| {
            let own = value.as_str().and_then(|name| named.get(name)).cloned();
            let spec = own.map_or_else(|| SideSpec::of(value), Ok);
            spec.and_then(|spec| spec.check().map(|()| spec))
                .map_err(|what| format!("{end}: {what}"))
        };
        let [a, b] = [spec("a", &self.a)?, spec("b", &self.b)?];
        let joins = self.a == self.b && b.is_shared();
        let build = |spec: SideSpec, end, joins| {
            let place = Place {
                cell: number,
                end,
                joins,
            };
            let built = spec.build(place, self.relays, &self.config);
            built.map(|built| (end, built)).map_err(|what| format!("{end}: {what}"))
        };
        Ok([build(a, "a", false)?, build(b, "b", joins)?])
    }

    /// The step that waits for an answer, if there is to be any, and the one for the path.
    fn steps(&self, number: usize, name: &str) -> (Option<Table>, Table) {
        let step = |expect: &str, within: Option<&String>| {
            table(&[
                ("expect", text(expect)),
                ("from", text(&host(number, "a"))),
                ("to", text(&host(number, "b"))),
                ("within", text(within.map_or(WITHIN, String::as_str))),
            ])
        };
        let both = |mut step: Table| {
            step.insert("both".to_owned(), Value::Boolean(true));
            step
        };
        let mut path = match &self.watched {
            Some(watched) => step("settled", Some(watched)),
            None => both(step("path", self.within.as_ref())),
        };
        path.insert("is".to_owned(), text(&self.is));
        path.insert("chapter".to_owned(), text(&format!("cell {number}: {name}")));
        let answer = both(step("answer", self.within.as_ref()));
        ((self.is != NONE).then_some(answer), path)
    }
}

/// The name of a cell.
fn name(a: &Value, b: &Value) -> String {
    format!("{}+{}", described(a), described(b))
}

/// The names of cells, without those that cannot be read.
pub(super) fn names(cells: &[Spanned<Table>]) -> Vec<String> {
    let mut names = Vec::new();
    for cell in cells.iter().map(Spanned::get_ref) {
        if let (Some(a), Some(b)) = (cell.get("a"), cell.get("b")) {
            let name = name(a, b);
            if !names.contains(&name) {
                names.push(name);
            }
        }
    }
    names
}

/// The names, hosts and links of the first `count` relays.
pub(super) fn relays(count: usize) -> impl Iterator<Item = (&'static str, [Table; 2])> {
    RELAYS.into_iter().take(count).map(|(name, addresses)| {
        let host = table(&[("config", config_of(&[("open", Value::Boolean(true))]))]);
        let link = table(&[
            ("between", list(&[name, INTERNET])),
            ("addresses", Value::Table(table(&[(name, list(&addresses))]))),
            ("delay", text(DELAY)),
        ]);
        (name, [host, link])
    })
}

/// The name of the network outside.
pub(super) const INTERNET: &str = "internet";

/// What a host dials: the first `count` relays.
fn relays_of(count: usize, nat64: bool) -> impl Iterator<Item = String> {
    let relays = RELAYS.into_iter().zip(RELAYS_NAT64).take(count);
    relays.map(move |((name, _), behind)| if nat64 { behind } else { name }.to_owned())
}

/// A side in a word or a few.
fn described(side: &Value) -> String {
    match side {
        Value::Table(nat) => {
            let values = nat
                .values()
                .map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned));
            values.collect::<Vec<_>>().join(",")
        }
        other => other.as_str().unwrap_or_default().to_owned(),
    }
}

fn host(number: usize, end: &str) -> String {
    format!("cell-{number}-{end}")
}

fn config_of(mesh: &[(&str, Value)]) -> Value {
    Value::Table(table(&[("mesh", Value::Table(table(mesh)))]))
}

fn table(entries: &[(&str, Value)]) -> Table {
    let entries = entries.iter();
    entries.map(|(key, value)| ((*key).to_owned(), value.clone())).collect()
}

fn text(text: &str) -> Value {
    Value::String(text.to_owned())
}

fn list(items: &[&str]) -> Value {
    Value::Array(items.iter().map(|item| text(item)).collect())
}
