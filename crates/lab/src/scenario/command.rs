//! `do = "weft"`: a command of the real program at a running node, as its user would type it, and
//! what it has to say.

use std::collections::BTreeMap;
use std::fmt;
use std::process::Output;
use std::time::{Duration, Instant};

use serde::Deserialize;
use weft_scenario::units::Time;

use super::expect::{Finding, LookError};
use super::topology::{Stage, StageError};

/// The pause until a command is repeated.
const AGAIN: Duration = Duration::from_millis(100);
/// How long one command may take at least.
const LIMIT: Duration = Duration::from_secs(10);
/// The longest word of a command or of its output that is shown whole, in characters.
const LONG: usize = 60;
/// The characters that are shown of a longer one.
const BEGINNING: usize = 20;

/// `do = "weft"`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WeftCommand {
    /// The node.
    pub on: String,
    /// The arguments; `{NAME}` is the output that an earlier step keeps under this name.
    pub run: Vec<String>,
    /// The exit status.
    #[serde(default)]
    pub exit: i32,
    /// Text that one line of the output has.
    pub says: Option<String>,
    /// A name for the first word of the output.
    pub keep: Option<String>,
    /// How long the command is repeated until exit status and text are these; without it, it runs
    /// once.
    #[serde(default)]
    pub within: Time,
}

impl WeftCommand {
    /// The names of kept outputs in the arguments.
    pub fn kept(&self) -> impl Iterator<Item = &str> {
        self.run.iter().filter_map(|word| kept_name(word))
    }
}

impl fmt::Display for WeftCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}$ weft {}", self.on, self.run.join(" "))
    }
}

/// The name in `{NAME}`.
fn kept_name(word: &str) -> Option<&str> {
    word.strip_prefix('{')?.strip_suffix('}')
}

/// Runs a command until it says what it has to, and returns what it said.
pub(super) fn run(
    stage: &Stage,
    command: &WeftCommand,
    kept: &mut BTreeMap<String, String>,
) -> Result<(Finding, String), LookError> {
    let of = |word: &String| {
        let output = kept_name(word).and_then(|name| kept.get(name));
        output.unwrap_or(word).clone()
    };
    let words: Vec<String> = command.run.iter().map(of).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let limit = command.within.0.max(LIMIT);
    let start = Instant::now();
    loop {
        let daemon = stage.daemon(&command.on)?;
        let output = daemon.attempt(&words, limit).map_err(StageError::Daemon)?;
        let finding = judge(command, &output);
        if !finding.holds && start.elapsed() < command.within.0 {
            std::thread::sleep(AGAIN);
            continue;
        }
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        if let (Some(name), Some(word)) = (&command.keep, said.split_whitespace().next()) {
            kept.insert(name.clone(), word.to_owned());
        }
        return Ok((finding, said));
    }
}

fn judge(command: &WeftCommand, output: &Output) -> Finding {
    let (said, complaint) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    let mut lines = said.lines().chain(complaint.lines()).map(str::trim);
    let exit = output.status.code();
    let right = |line: &str| command.says.as_ref().is_none_or(|text| line.contains(text.as_str()));
    match lines.clone().find(|line| right(line)) {
        Some(line) if exit == Some(command.exit) => Finding {
            holds: true,
            seen: short(line),
        },
        // A command may have nothing to say.
        None if exit == Some(command.exit) && command.says.is_none() => Finding {
            holds: true,
            seen: String::new(),
        },
        _ => Finding {
            holds: false,
            seen: format!(
                "{}, {:?}; expected exit status {}{}",
                output.status,
                short(lines.next().unwrap_or_default()),
                command.exit,
                command
                    .says
                    .iter()
                    .map(|text| format!(" and {text:?}"))
                    .collect::<String>(),
            ),
        },
    }
}

/// A line with its long words, such as the code of an invite, cut off.
fn short(line: &str) -> String {
    let word = |word: &str| match word.char_indices().nth(LONG) {
        Some(_) => word.chars().take(BEGINNING).chain("...".chars()).collect(),
        None => word.to_owned(),
    };
    line.split(' ').map(word).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::ExitStatus;

    use super::*;

    fn command(text: &str) -> WeftCommand {
        let table: toml::Table = format!("on = \"a\"\nrun = [\"why\", \"{{x}}\"]\n{text}")
            .parse()
            .unwrap();
        table.try_into().unwrap()
    }

    fn output(exit: i32, stdout: &str) -> Output {
        Output {
            status: ExitStatus::from_raw(exit << 8),
            stdout: stdout.into(),
            stderr: Vec::new(),
        }
    }

    #[test]
    fn exit_status_and_text_both_count() {
        let denied = "denied\n  rule 1 of home: deny icmp\n";
        for (text, exit, said, seen) in [
            (
                "exit = 3\nsays = \"rule 1\"",
                3,
                denied,
                Ok("rule 1 of home: deny icmp"),
            ),
            ("exit = 3", 3, denied, Ok("denied")),
            ("", 0, "", Ok("")),
            ("says = \"rule 1\"", 0, "", Err("expected exit status 0 and \"rule 1\"")),
            (
                "says = \"rule 1\"",
                3,
                denied,
                Err("exit status: 3, \"denied\"; expected exit status 0"),
            ),
            ("exit = 3\nsays = \"rule 2\"", 3, denied, Err("and \"rule 2\"")),
        ] {
            let finding = judge(&command(text), &output(exit, said));
            match seen {
                Ok(seen) => assert_eq!((finding.holds, finding.seen.as_str()), (true, seen), "{text}"),
                Err(part) => assert!(
                    !finding.holds && finding.seen.contains(part),
                    "{text}: {}",
                    finding.seen
                ),
            }
        }
    }

    #[test]
    fn long_words_are_cut_and_kept_ones_are_known() {
        let code = "A".repeat(100);
        assert_eq!(short(&format!("code {code}")), format!("code {}...", "A".repeat(20)));
        assert_eq!(command("").kept().collect::<Vec<_>>(), ["x"]);
        assert_eq!(command("").to_string(), "a$ weft why {x}");
    }
}
