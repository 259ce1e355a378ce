//! The text format of scenarios: one statement a line, `#` begins a comment.
//!
//! ```text
//! weft-scenario 1
//! seed 7
//! mesh random 4 of 30
//! without 3 8
//! network delay 10 jitter 0 loss 20 reorder 0 duplicate 0
//! nat 5 symmetric
//! check 1
//! duration 60000
//! at 1000 know 0 29
//! at 30000 send 0 29
//! at 32000 expect 0 29
//! ```

use std::fmt;
use std::str::FromStr;

use super::{Action, Scenario, Step};
use crate::{HostId, NatKind, Shape};

/// Maximum number of hosts of a scenario, so that a typing error does not exhaust the memory.
const MAX_NODES: usize = 1_000_000;

/// Why a text is not a scenario. `line` is counted from 1.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScenarioError {
    /// The first statement is not `weft-scenario 1`.
    #[error("line {line}: the text does not begin with \"weft-scenario 1\"")]
    NoHeader {
        /// The line.
        line: usize,
    },
    /// An unknown statement.
    #[error("line {line}: \"{word}\" is not a statement")]
    Unknown {
        /// The line.
        line: usize,
        /// Its first word.
        word: String,
    },
    /// A word is missing, superfluous, or not a number.
    #[error("line {line}: {what}")]
    Malformed {
        /// The line.
        line: usize,
        /// What was expected.
        what: &'static str,
    },
    /// A host that the mesh does not have.
    #[error("line {line}: there is no host {host}")]
    NoSuchHost {
        /// The line.
        line: usize,
        /// Its number.
        host: HostId,
    },
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "weft-scenario 1\nseed {}", self.seed)?;
        writeln!(f, "mesh {} of {}", self.shape, self.nodes)?;
        if !self.without.is_empty() {
            let hosts: Vec<_> = self.without.iter().map(ToString::to_string).collect();
            writeln!(f, "without {}", hosts.join(" "))?;
        }
        let c = &self.conditions;
        writeln!(
            f,
            "network delay {} jitter {} loss {} reorder {} duplicate {}",
            c.delay, c.jitter, c.loss, c.reorder, c.duplicate
        )?;
        for (host, kind) in &self.nats {
            writeln!(f, "nat {host} {}", nat_name(*kind))?;
        }
        writeln!(f, "check {}\nduration {}", self.check_every, self.duration)?;
        self.steps
            .iter()
            .try_for_each(|step| writeln!(f, "at {} {}", step.at, step.action))
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Know(a, b) => write!(f, "know {a} {b}"),
            Self::Send(a, b) => write!(f, "send {a} {b}"),
            Self::Expect(a, b) => write!(f, "expect {a} {b}"),
            Self::Kill(a) => write!(f, "kill {a}"),
            Self::Restart(a) => write!(f, "restart {a}"),
            Self::Suspend(a) => write!(f, "suspend {a}"),
            Self::Resume(a) => write!(f, "resume {a}"),
            Self::Cut(a, b) => write!(f, "cut {a} {b}"),
            Self::Mend(a, b) => write!(f, "mend {a} {b}"),
            Self::Partition(sides) => write!(f, "partition {sides}"),
            Self::Heal => f.write_str("heal"),
            Self::Loss(per_mille) => write!(f, "loss {per_mille}"),
            Self::Delay(ms) => write!(f, "delay {ms}"),
        }
    }
}

impl FromStr for Scenario {
    type Err = ScenarioError;

    fn from_str(text: &str) -> Result<Self, ScenarioError> {
        let mut scenario = Self::new(0, Shape::Line, 2);
        let mut begun = false;
        for (at, line) in text.lines().enumerate() {
            let mut words = Words::of(at + 1, line);
            let Some(word) = words.next() else { continue };
            if !begun {
                begun = word == "weft-scenario" && words.next() == Some("1");
                if !begun {
                    return Err(ScenarioError::NoHeader { line: at + 1 });
                }
            } else {
                scenario.statement(word, &mut words)?;
            }
            words.end()?;
        }
        if !begun {
            return Err(ScenarioError::NoHeader { line: 1 });
        }
        scenario.steps.sort_by_key(|step| step.at);
        Ok(scenario)
    }
}

impl Scenario {
    fn statement(&mut self, word: &str, words: &mut Words<'_>) -> Result<(), ScenarioError> {
        match word {
            "seed" => self.seed = words.number()?,
            "mesh" => (self.shape, self.nodes) = words.mesh()?,
            "without" => {
                while !words.is_empty() {
                    self.without.insert(words.host(self.nodes)?);
                }
            }
            "network" => {
                let c = &mut self.conditions;
                while let Some(name) = words.next() {
                    match name {
                        "delay" => c.delay = words.number()?,
                        "jitter" => c.jitter = words.number()?,
                        "loss" => c.loss = words.number()?,
                        "reorder" => c.reorder = words.number()?,
                        "duplicate" => c.duplicate = words.number()?,
                        _ => return Err(words.malformed("delay, jitter, loss, reorder or duplicate, with a number")),
                    }
                }
            }
            "nat" => self.nats.push((words.host(self.nodes)?, words.nat()?)),
            "check" => self.check_every = words.number()?,
            "duration" => self.duration = words.number()?,
            "at" => {
                let at = words.number()?;
                let action = words.action(self.nodes)?;
                self.steps.push(Step { at, action });
            }
            _ => return Err(words.unknown(word)),
        }
        Ok(())
    }
}

/// The words of one line.
struct Words<'a> {
    line: usize,
    rest: std::iter::Peekable<std::str::SplitWhitespace<'a>>,
}

impl<'a> Words<'a> {
    fn of(line: usize, text: &'a str) -> Self {
        let text = text.split('#').next().unwrap_or_default();
        let rest = text.split_whitespace().peekable();
        Self { line, rest }
    }

    fn next(&mut self) -> Option<&'a str> {
        self.rest.next()
    }

    fn is_empty(&mut self) -> bool {
        self.rest.peek().is_none()
    }

    fn end(&mut self) -> Result<(), ScenarioError> {
        match self.next() {
            None => Ok(()),
            Some(_) => Err(self.malformed("there is more than the statement takes")),
        }
    }

    fn malformed(&self, what: &'static str) -> ScenarioError {
        ScenarioError::Malformed { line: self.line, what }
    }

    fn unknown(&self, word: &str) -> ScenarioError {
        let (line, word) = (self.line, word.to_owned());
        ScenarioError::Unknown { line, word }
    }

    fn number<T: FromStr>(&mut self) -> Result<T, ScenarioError> {
        let number = self.next().and_then(|word| word.parse().ok());
        number.ok_or_else(|| self.malformed("a number is missing"))
    }

    fn host(&mut self, nodes: usize) -> Result<HostId, ScenarioError> {
        let host = self.number()?;
        let line = self.line;
        (host < nodes)
            .then_some(host)
            .ok_or(ScenarioError::NoSuchHost { line, host })
    }

    fn mesh(&mut self) -> Result<(Shape, usize), ScenarioError> {
        let shape = match self.next() {
            Some("line") => Shape::Line,
            Some("ring") => Shape::Ring,
            Some("grid") => Shape::Grid,
            Some("tree") => Shape::Tree,
            Some("random") => Shape::Random { degree: self.number()? },
            _ => return Err(self.malformed("line, ring, grid, tree or random with a degree")),
        };
        let nodes = match self.next() {
            Some("of") => self.number()?,
            _ => return Err(self.malformed("\"of\" and the number of hosts")),
        };
        if (1..=MAX_NODES).contains(&nodes) {
            Ok((shape, nodes))
        } else {
            Err(self.malformed("between 1 and 1,000,000 hosts"))
        }
    }

    fn nat(&mut self) -> Result<NatKind, ScenarioError> {
        let name = self.next();
        let kind = NATS.into_iter().find(|kind| Some(nat_name(*kind)) == name);
        kind.ok_or_else(|| self.malformed("full-cone, restricted, port-restricted or symmetric"))
    }

    fn action(&mut self, nodes: usize) -> Result<Action, ScenarioError> {
        let word = self.next().unwrap_or_default();
        let action = match word {
            "know" => Action::Know(self.host(nodes)?, self.host(nodes)?),
            "send" => Action::Send(self.host(nodes)?, self.host(nodes)?),
            "expect" => Action::Expect(self.host(nodes)?, self.host(nodes)?),
            "kill" => Action::Kill(self.host(nodes)?),
            "restart" => Action::Restart(self.host(nodes)?),
            "suspend" => Action::Suspend(self.host(nodes)?),
            "resume" => Action::Resume(self.host(nodes)?),
            "cut" => Action::Cut(self.host(nodes)?, self.host(nodes)?),
            "mend" => Action::Mend(self.host(nodes)?, self.host(nodes)?),
            "partition" => Action::Partition(self.number()?),
            "heal" => Action::Heal,
            "loss" => Action::Loss(self.number()?),
            "delay" => Action::Delay(self.number()?),
            _ => return Err(self.unknown(word)),
        };
        Ok(action)
    }
}

const NATS: [NatKind; 4] = [
    NatKind::FullCone,
    NatKind::Restricted,
    NatKind::PortRestricted,
    NatKind::Symmetric,
];

fn nat_name(kind: NatKind) -> &'static str {
    match kind {
        NatKind::FullCone => "full-cone",
        NatKind::Restricted => "restricted",
        NatKind::PortRestricted => "port-restricted",
        NatKind::Symmetric => "symmetric",
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Conditions;

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
        ) {
            let mut scenario = Scenario::new(seed, Shape::Random { degree }, 9);
            steps.into_iter().for_each(|(at, action)| scenario.at(at, action));
            scenario.without = without;
            scenario.nats = vec![(2, NATS[nat])];
            scenario.conditions = Conditions { delay: 1, jitter: 2, loss: 3, reorder: 4, duplicate: 5, ..Conditions::default() };
            let text = scenario.to_string();
            prop_assert_eq!(text.parse(), Ok(scenario));
        }

        #[test]
        fn any_text_is_read_or_refused(lines in prop::collection::vec("(at|seed|mesh|nat|network|kill|[0-9]| ){0,6}", 0..6)) {
            let _: Result<Scenario, _> = format!("weft-scenario 1\n{}", lines.join("\n")).parse();
        }
    }

    #[test]
    fn every_slip_is_named_with_its_line() {
        let error = |text: &str| text.parse::<Scenario>().unwrap_err().to_string();
        assert_eq!(error(""), "line 1: the text does not begin with \"weft-scenario 1\"");
        assert_eq!(
            error("\nseed 1"),
            "line 2: the text does not begin with \"weft-scenario 1\""
        );
        let after = |line: &str| error(&format!("weft-scenario 1 # comment\nmesh line of 3\n{line}"));
        assert_eq!(after("sede 1"), "line 3: \"sede\" is not a statement");
        assert_eq!(after("at 5 explode"), "line 3: \"explode\" is not a statement");
        assert_eq!(after("at 5 kill 3"), "line 3: there is no host 3");
        assert_eq!(after("seed x"), "line 3: a number is missing");
        assert_eq!(after("seed 1 2"), "line 3: there is more than the statement takes");
        assert_eq!(after("mesh line of 0"), "line 3: between 1 and 1,000,000 hosts");
        assert_eq!(
            after("nat 1 odd"),
            "line 3: full-cone, restricted, port-restricted or symmetric"
        );
    }
}
