//! The file format of scenarios: TOML, with a table on one line for each step.
//!
//! ```toml
//! seed = 7
//! mesh = { shape = "random", degree = 4, nodes = 30 }
//! without = [3, 8]
//! network = { delay = "10ms", jitter = "0ms", loss = 0.02, reorder = 0.0, duplicate = 0.0 }
//! nat = [{ host = 5, kind = "symmetric" }]
//! check = 1
//! duration = "60000ms"
//! step = [
//!     { at = "1000ms", do = "know", between = [0, 29] },
//!     { at = "30000ms", do = "send", from = 0, to = 29 },
//!     { at = "32000ms", do = "expect", from = 0, to = 29 },
//! ]
//! ```

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use serde::Deserialize;
use toml::{Spanned, Table};
use weft_scenario::units::Time;
use weft_scenario::{FileError, Text, read};

use super::{Action, Scenario, Step};
use crate::{Conditions, HostId, NatKind, Shape};

/// Maximum number of hosts of a scenario, so that a typing error does not exhaust the memory.
const MAX_NODES: usize = 1_000_000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    #[serde(default = "one")]
    seed: u64,
    mesh: Spanned<Table>,
    without: Option<Spanned<BTreeSet<HostId>>>,
    network: Option<Spanned<Table>>,
    #[serde(default)]
    nat: Vec<Spanned<Table>>,
    #[serde(default = "every_turn")]
    check: u32,
    duration: Option<Spanned<Time>>,
    #[serde(default)]
    step: Vec<Spanned<Table>>,
}

#[derive(Deserialize)]
#[serde(tag = "shape", rename_all = "kebab-case", deny_unknown_fields)]
enum Mesh {
    Line { nodes: usize },
    Ring { nodes: usize },
    Grid { nodes: usize },
    Tree { nodes: usize },
    Random { nodes: usize, degree: u32 },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Network {
    delay: Option<Time>,
    jitter: Option<Time>,
    #[serde(default)]
    loss: f64,
    #[serde(default)]
    reorder: f64,
    #[serde(default)]
    duplicate: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Nat {
    host: HostId,
    #[serde(with = "NatKindName")]
    kind: NatKind,
}

/// [`NatKind`] in the spelling of files.
#[derive(Deserialize)]
#[serde(remote = "NatKind", rename_all = "kebab-case")]
enum NatKindName {
    FullCone,
    Restricted,
    PortRestricted,
    Symmetric,
    SymmetricRandom,
    SymmetricPreserving,
}

/// [`Action`] in the spelling of files.
#[derive(Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case", deny_unknown_fields)]
enum Deed {
    Know { between: [HostId; 2] },
    Send { from: HostId, to: HostId },
    Expect { from: HostId, to: HostId },
    Kill { host: HostId },
    Restart { host: HostId },
    Suspend { host: HostId },
    Resume { host: HostId },
    Cut { between: [HostId; 2] },
    Mend { between: [HostId; 2] },
    Partition { sides: u32 },
    Heal {},
    Loss { share: f64 },
    Delay { time: Time },
}

impl Scenario {
    /// Parses a scenario. `file` is its name for errors.
    ///
    /// # Errors
    /// [`FileError`] for the first fault.
    pub fn parse(file: &str, text: &str) -> Result<Self, FileError> {
        let text = Text { file, text };
        let raw: Raw = text.parse()?;
        let span = raw.mesh.span();
        let (shape, nodes) = mesh(raw.mesh.into_inner()).map_err(|what| text.error(Some(span), "mesh", &what))?;
        let mut scenario = Self::new(raw.seed, shape, nodes);
        scenario.check_every = raw.check;
        if let Some(duration) = raw.duration {
            let ms = whole_ms(*duration.get_ref());
            scenario.duration = ms.map_err(|what| text.error(Some(duration.span()), "duration", &what))?;
        }
        if let Some(table) = raw.network {
            let span = table.span();
            scenario.conditions =
                network(table.into_inner()).map_err(|what| text.error(Some(span), "network", &what))?;
        }
        if let Some(without) = raw.without {
            let span = without.span();
            scenario.without = without.into_inner();
            scenario
                .host_named(scenario.without.iter().copied())
                .map_err(|what| text.error(Some(span), "without", &what))?;
        }
        for table in raw.nat {
            let span = table.span();
            let nat = read(table.into_inner()).and_then(|Nat { host, kind }| {
                scenario.host_named([host])?;
                Ok((host, kind))
            });
            scenario
                .nats
                .push(nat.map_err(|what| text.error(Some(span), "nat", &what))?);
        }
        for (table, number) in raw.step.into_iter().zip(1_usize..) {
            let span = table.span();
            let title = title(number, table.get_ref());
            let step = step(table.into_inner()).and_then(|step| {
                scenario.host_named(step.action.hosts())?;
                Ok(step)
            });
            scenario
                .steps
                .push(step.map_err(|what| text.error(Some(span), &title, &what))?);
        }
        scenario.steps.sort_by_key(|step| step.at);
        Ok(scenario)
    }

    /// Refuses hosts that the mesh does not have.
    fn host_named(&self, hosts: impl IntoIterator<Item = HostId>) -> Result<(), String> {
        match hosts.into_iter().find(|host| *host >= self.nodes) {
            None => Ok(()),
            Some(host) => Err(format!("there is no host {host}; hosts are 0 to {}", self.nodes - 1)),
        }
    }
}

impl FromStr for Scenario {
    type Err = FileError;

    fn from_str(text: &str) -> Result<Self, FileError> {
        Self::parse("scenario", text)
    }
}

/// `step 3 (cut)`
fn title(number: usize, table: &Table) -> String {
    match table.get("do").and_then(toml::Value::as_str) {
        Some(name) => format!("step {number} ({name})"),
        None => format!("step {number}"),
    }
}

fn mesh(table: Table) -> Result<(Shape, usize), String> {
    let (shape, nodes) = match read(table)? {
        Mesh::Line { nodes } => (Shape::Line, nodes),
        Mesh::Ring { nodes } => (Shape::Ring, nodes),
        Mesh::Grid { nodes } => (Shape::Grid, nodes),
        Mesh::Tree { nodes } => (Shape::Tree, nodes),
        Mesh::Random { nodes, degree } => (Shape::Random { degree }, nodes),
    };
    match nodes {
        1..=MAX_NODES => Ok((shape, nodes)),
        _ => Err(format!("nodes is {nodes}; write a number from 1 to {MAX_NODES}")),
    }
}

fn network(table: Table) -> Result<Conditions, String> {
    let Network {
        delay,
        jitter,
        loss,
        reorder,
        duplicate,
    } = read(table)?;
    let default = Conditions::default();
    Ok(Conditions {
        delay: delay.map_or(Ok(default.delay), whole_ms)?,
        jitter: jitter.map_or(Ok(default.jitter), whole_ms)?,
        loss: per_mille("loss", loss)?,
        reorder: per_mille("reorder", reorder)?,
        duplicate: per_mille("duplicate", duplicate)?,
        ..default
    })
}

fn step(mut table: Table) -> Result<Step, String> {
    #[derive(Deserialize)]
    struct At {
        at: Time,
    }
    let at = table.remove_entry("at").into_iter().collect();
    let At { at } = read(at)?;
    let action = match read(table)? {
        Deed::Know { between: [a, b] } => Action::Know(a, b),
        Deed::Send { from, to } => Action::Send(from, to),
        Deed::Expect { from, to } => Action::Expect(from, to),
        Deed::Kill { host } => Action::Kill(host),
        Deed::Restart { host } => Action::Restart(host),
        Deed::Suspend { host } => Action::Suspend(host),
        Deed::Resume { host } => Action::Resume(host),
        Deed::Cut { between: [a, b] } => Action::Cut(a, b),
        Deed::Mend { between: [a, b] } => Action::Mend(a, b),
        Deed::Partition { sides } => Action::Partition(sides),
        Deed::Heal {} => Action::Heal,
        Deed::Loss { share } => Action::Loss(per_mille("share", share)?),
        Deed::Delay { time } => Action::Delay(whole_ms(time)?),
    };
    Ok(Step {
        at: whole_ms(at)?,
        action,
    })
}

/// The clock of the simulator counts milliseconds.
fn whole_ms(time: Time) -> Result<u64, String> {
    let ms = time.0.as_millis();
    match u64::try_from(ms) {
        Ok(whole) if time.0.subsec_nanos().is_multiple_of(1_000_000) => Ok(whole),
        _ => Err(format!("{time} is not a whole number of milliseconds")),
    }
}

/// A share from 0.0 to 1.0, in steps of 0.001.
fn per_mille(name: &str, share: f64) -> Result<u32, String> {
    let thousandths = share * 1e3;
    let whole = thousandths.round();
    match (0.0..=1e3).contains(&whole) && (thousandths - whole).abs() < 1e-6 {
        true => Ok(whole as u32),
        false => Err(format!(
            "{name} is {share}; write a share from 0.0 to 1.0 in steps of 0.001"
        )),
    }
}

const fn one() -> u64 {
    1
}

const fn every_turn() -> u32 {
    1
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed = {}", self.seed)?;
        let degree = match self.shape {
            Shape::Random { degree } => format!("degree = {degree}, "),
            Shape::Line | Shape::Ring | Shape::Grid | Shape::Tree => String::new(),
        };
        let shape = self.shape.name();
        writeln!(f, "mesh = {{ shape = \"{shape}\", {degree}nodes = {} }}", self.nodes)?;
        if !self.without.is_empty() {
            let hosts: Vec<_> = self.without.iter().map(ToString::to_string).collect();
            writeln!(f, "without = [{}]", hosts.join(", "))?;
        }
        let c = &self.conditions;
        let [loss, reorder, duplicate] = [c.loss, c.reorder, c.duplicate].map(share);
        writeln!(
            f,
            "network = {{ delay = \"{}ms\", jitter = \"{}ms\", loss = {loss}, reorder = {reorder}, duplicate = {duplicate} }}",
            c.delay, c.jitter
        )?;
        if !self.nats.is_empty() {
            let nat = |(host, kind): &(HostId, NatKind)| format!("{{ host = {host}, kind = \"{}\" }}", nat_name(*kind));
            let nats: Vec<_> = self.nats.iter().map(nat).collect();
            writeln!(f, "nat = [{}]", nats.join(", "))?;
        }
        writeln!(f, "check = {}\nduration = \"{}ms\"", self.check_every, self.duration)?;
        if self.steps.is_empty() {
            return Ok(());
        }
        f.write_str("step = [\n")?;
        for step in &self.steps {
            writeln!(f, "    {{ at = \"{}ms\", {} }},", step.at, step.action)?;
        }
        f.write_str("]\n")
    }
}

/// The keys of its step.
impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Know(a, b) => write!(f, "do = \"know\", between = [{a}, {b}]"),
            Self::Send(a, b) => write!(f, "do = \"send\", from = {a}, to = {b}"),
            Self::Expect(a, b) => write!(f, "do = \"expect\", from = {a}, to = {b}"),
            Self::Kill(a) => write!(f, "do = \"kill\", host = {a}"),
            Self::Restart(a) => write!(f, "do = \"restart\", host = {a}"),
            Self::Suspend(a) => write!(f, "do = \"suspend\", host = {a}"),
            Self::Resume(a) => write!(f, "do = \"resume\", host = {a}"),
            Self::Cut(a, b) => write!(f, "do = \"cut\", between = [{a}, {b}]"),
            Self::Mend(a, b) => write!(f, "do = \"mend\", between = [{a}, {b}]"),
            Self::Partition(sides) => write!(f, "do = \"partition\", sides = {sides}"),
            Self::Heal => f.write_str("do = \"heal\""),
            Self::Loss(per_mille) => write!(f, "do = \"loss\", share = {}", share(*per_mille)),
            Self::Delay(ms) => write!(f, "do = \"delay\", time = \"{ms}ms\""),
        }
    }
}

/// Thousandths as a share: `0.02`.
fn share(per_mille: u32) -> String {
    format!("{:?}", f64::from(per_mille) / 1e3)
}

fn nat_name(kind: NatKind) -> &'static str {
    match kind {
        NatKind::FullCone => "full-cone",
        NatKind::Restricted => "restricted",
        NatKind::PortRestricted => "port-restricted",
        NatKind::Symmetric => "symmetric",
        NatKind::SymmetricRandom => "symmetric-random",
        NatKind::SymmetricPreserving => "symmetric-preserving",
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NATS: [NatKind; 6] = [
        NatKind::FullCone,
        NatKind::Restricted,
        NatKind::PortRestricted,
        NatKind::Symmetric,
        NatKind::SymmetricRandom,
        NatKind::SymmetricPreserving,
    ];

    fn action() -> impl Strategy<Value = Action> {
        (0..13, 0_usize..9, 0_usize..9).prop_map(|(kind, a, b)| match kind {
            0 => Action::Know(a, b),
            1 => Action::Send(a, b),
            2 => Action::Expect(a, b),
            3 => Action::Kill(a),
            4 => Action::Restart(a),
            5 => Action::Suspend(a),
            6 => Action::Resume(a),
            7 => Action::Cut(a, b),
            8 => Action::Mend(a, b),
            9 => Action::Partition(a as u32),
            10 => Action::Heal,
            11 => Action::Loss(a as u32),
            _ => Action::Delay(a as u64),
        })
    }

    proptest! {
        #[test]
        fn a_scenario_is_its_text(
            seed: u64,
            degree in 1_u32..9,
            steps in prop::collection::vec((0_u64..99, action()), 0..20),
            without in prop::collection::btree_set(0_usize..9, 0..4),
            nat in 0..NATS.len(),
            loss in 0_u32..=1000,
        ) {
            let mut scenario = Scenario::new(seed, Shape::Random { degree }, 9);
            steps.into_iter().for_each(|(at, action)| scenario.at(at, action));
            scenario.without = without;
            scenario.nats = vec![(2, NATS[nat])];
            scenario.conditions = Conditions { delay: 1, jitter: 2, loss, reorder: 4, duplicate: 5, ..Conditions::default() };
            let text = scenario.to_string();
            prop_assert_eq!(text.parse(), Ok(scenario));
        }

        #[test]
        fn any_text_is_read_or_refused(lines in prop::collection::vec("(at|seed|mesh|nat|network|kill|=|\\[|\\]|\\{|\\}|\"|[0-9]| ){0,6}", 0..6)) {
            let _: Result<Scenario, _> = lines.join("\n").parse();
        }
    }

    #[test]
    fn every_slip_is_named_with_its_line() {
        let error = |text: &str| text.parse::<Scenario>().unwrap_err().to_string();
        assert!(error("").contains("missing field `mesh`"), "{}", error(""));
        let after = |line: &str| error(&format!("# comment\nmesh = {{ shape = \"line\", nodes = 3 }}\n{line}"));
        for (line, wanted) in [
            (
                "sede = 1",
                "scenario: line 3: unknown field `sede`, expected one of `seed`, ",
            ),
            (
                "seed = \"x\"",
                "scenario: line 3: invalid type: string \"x\", expected u64",
            ),
            (
                "step = [{ at = \"5ms\", do = \"explode\" }]",
                "scenario: line 3, step 1 (explode): unknown variant `explode`, expected one of `know`, ",
            ),
            (
                "step = [{ at = \"5ms\", do = \"heal\" },\n{ at = \"5ms\", do = \"kill\", host = 3 }]",
                "scenario: line 4, step 2 (kill): there is no host 3; hosts are 0 to 2",
            ),
            (
                "step = [{ at = \"5ms\", do = \"kill\" }]",
                "scenario: line 3, step 1 (kill): missing field `host`",
            ),
            (
                "step = [{ at = \"5ms\", do = \"kill\", host = 1, how = 2 }]",
                "scenario: line 3, step 1 (kill): unknown field `how`, expected `host`",
            ),
            (
                "step = [{ do = \"heal\" }]",
                "scenario: line 3, step 1 (heal): missing field `at`",
            ),
            (
                "step = [{ at = 5, do = \"heal\" }]",
                "scenario: line 3, step 1 (heal): 5 is not a time; write \"20ms\", ",
            ),
            (
                "step = [{ at = \"5us\", do = \"heal\" }]",
                "scenario: line 3, step 1 (heal): 0.005 ms is not a whole number of milliseconds",
            ),
            (
                "network = { loss = 1.5 }",
                "scenario: line 3, network: loss is 1.5; write a share from 0.0 to 1.0 in steps of 0.001",
            ),
            (
                "nat = [{ host = 1, kind = \"odd\" }]",
                "scenario: line 3, nat: unknown variant `odd`, expected one of `full-cone`, ",
            ),
            (
                "without = [1, 3]",
                "scenario: line 3, without: there is no host 3; hosts are 0 to 2",
            ),
        ] {
            let found = after(line);
            assert!(found.starts_with(wanted), "{found}");
        }
        assert_eq!(
            error("mesh = { shape = \"line\", nodes = 0 }"),
            "scenario: line 1, mesh: nodes is 0; write a number from 1 to 1000000"
        );
    }
}
