//! The facts of each command that its arguments do not say: its exit codes, and the users that it serves. Its help, its
//! manual page and docs/commands.md show them, and a debug build panics if a command ends with another code.

#[cfg(all(test, feature = "lab"))]
mod tests;

use std::fmt::Write as _;

use clap::{ArgMatches, Command};

use self::Users::{Files, FlowsOrPaths, Local, OfMachine, Owners, Root};

/// A way in which a command ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Exit {
    /// The exit code.
    pub(crate) code: u8,
    /// What it says of the command.
    pub(crate) meaning: &'static str,
}

const fn exit(code: u8, meaning: &'static str) -> Exit {
    Exit { code, meaning }
}

pub(crate) const DONE: Exit = exit(0, "done");
pub(crate) const NOT_DONE: Exit = exit(1, "not done: refused, not reached, not found, or no daemon runs");
pub(crate) const USAGE: Exit = exit(2, "wrong usage or configuration");
pub(crate) const NOT_VALID: Exit = exit(3, "measured, but not all of it counts");
pub(crate) const NO_FLOW: Exit = exit(3, "the flow does not pass");
pub(crate) const LATE: Exit = exit(4, "not in time");
pub(crate) const FINDINGS: Exit = exit(5, "something is wrong with this host");

/// The ways in which each command ends.
pub(crate) const USUAL: [Exit; 3] = [DONE, NOT_DONE, USAGE];

/// The command whose exit code can be that of the program that it runs.
const RUNS_A_PROGRAM: &str = "lab exec";
/// Its exit code then.
const OF_PROGRAM: &str = "that of the program";

/// The users that a command serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Users {
    /// Its work needs neither a daemon nor the files of a node.
    Local,
    /// The daemon answers each of its requests for all users, perhaps with fewer fields.
    OfMachine,
    /// The daemon answers a request of it for owners alone.
    Owners,
    /// The daemon answers it for owners about a path, and for all users about a flow.
    FlowsOrPaths,
    /// It reads or writes the key or the configuration of the node.
    Files,
    /// It changes the system.
    Root,
}

impl Users {
    /// The users in a few words.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Local => "all, without a daemon",
            OfMachine => "all users of the machine",
            Owners => "owners",
            FlowsOrPaths => "all users of the machine; owners, about a path",
            Files => "the user of the node's files",
            Root => "root",
        }
    }
}

/// Each command that does something: its name and those above it, its users, and the ways in which it ends beside
/// [`USUAL`].
pub(crate) const ALL: &[(&str, Users, &[Exit])] = &[
    ("up", Files, &[]),
    ("down", Owners, &[]),
    ("status", OfMachine, &[]),
    ("peers", OfMachine, &[]),
    ("create", Owners, &[]),
    ("invite", Owners, &[]),
    ("join", Owners, &[]),
    ("requests", Owners, &[]),
    ("approve", Owners, &[]),
    ("deny", Owners, &[]),
    ("networks", OfMachine, &[]),
    ("members", OfMachine, &[]),
    ("member remove", Owners, &[]),
    ("member rename", Owners, &[]),
    ("member tag", Owners, &[]),
    ("member address", Owners, &[]),
    ("member replace", Owners, &[]),
    ("admin add", Owners, &[]),
    ("admin remove", Owners, &[]),
    ("admin successor", Owners, &[]),
    ("rule list", OfMachine, &[]),
    ("rule add", Owners, &[]),
    ("rule remove", Owners, &[]),
    ("rule set", Owners, &[]),
    ("rule default", Owners, &[]),
    ("why", FlowsOrPaths, &[NO_FLOW]),
    ("netcheck", Owners, &[]),
    ("routes", OfMachine, &[]),
    ("route approve", Owners, &[]),
    ("route revoke", Owners, &[]),
    ("invites", OfMachine, &[]),
    ("invites revoke", Owners, &[]),
    ("wg add", Owners, &[]),
    ("wg list", Owners, &[]),
    ("wg show", Owners, &[]),
    ("wg remove", Owners, &[]),
    ("leave", Owners, &[]),
    ("peer add", Files, &[]),
    ("peer remove", Files, &[]),
    ("set", Files, &[]),
    ("reload", Owners, &[]),
    ("confirm", Owners, &[]),
    ("config show", Files, &[]),
    ("config check", Files, &[]),
    ("whois", OfMachine, &[]),
    ("doctor", Local, &[FINDINGS]),
    ("verify", OfMachine, &[]),
    ("wait", OfMachine, &[LATE]),
    ("events", OfMachine, &[]),
    ("ping", OfMachine, &[]),
    ("send", OfMachine, &[]),
    ("share add", OfMachine, &[]),
    ("share list", OfMachine, &[]),
    ("share remove", OfMachine, &[]),
    ("browse", OfMachine, &[]),
    ("get", OfMachine, &[]),
    ("inbox", OfMachine, &[]),
    ("accept", OfMachine, &[]),
    ("reject", OfMachine, &[]),
    ("transfers", OfMachine, &[]),
    ("transfers clean", OfMachine, &[]),
    ("cancel", OfMachine, &[]),
    ("pause", OfMachine, &[]),
    ("resume", OfMachine, &[]),
    ("receive", OfMachine, &[]),
    ("serve", OfMachine, &[]),
    ("serve list", OfMachine, &[]),
    ("serve remove", OfMachine, &[]),
    ("forward", OfMachine, &[]),
    ("forward list", OfMachine, &[]),
    ("forward remove", OfMachine, &[]),
    ("limits", OfMachine, &[]),
    ("perf", Owners, &[NOT_VALID]),
    ("trace", Owners, &[]),
    ("service install", Root, &[]),
    ("service status", Local, &[]),
    ("service restart", Root, &[]),
    ("service uninstall", Root, &[]),
    ("identity new", Files, &[]),
    ("identity show", Files, &[]),
    ("identity import", Files, &[]),
    ("key export", Files, &[]),
    ("key import", Files, &[]),
    ("completion", Local, &[]),
    ("man", Local, &[]),
    ("schema", Local, &[]),
    ("version", Local, &[]),
    ("demo", Local, &[]),
    ("sim", Local, &[]),
    ("lab run", Local, &[]),
    ("lab cells", Local, &[]),
    ("lab list", Local, &[]),
    ("lab up", Local, &[]),
    ("lab exec", Local, &[]),
    ("lab down", Local, &[]),
    ("lab bench", Local, &[NOT_VALID]),
    ("lab compare", Local, &[]),
];

fn find(path: &str) -> Option<(Users, &'static [Exit])> {
    let row = ALL.iter().find(|(known, ..)| *known == path)?;
    Some((row.1, row.2))
}

/// The exit codes of a command in one line.
fn codes(path: &str, further: &[Exit]) -> String {
    let all = USUAL.iter().chain(further);
    let mut codes: Vec<String> = all.map(|Exit { code, meaning }| format!("{code} {meaning}")).collect();
    codes.extend((path == RUNS_A_PROGRAM).then(|| OF_PROGRAM.to_owned()));
    codes.join("; ")
}

/// Adds these facts to the help of each command.
pub(crate) fn with_facts(command: Command) -> Command {
    fn below(command: Command, above: &str) -> Command {
        command.mut_subcommands(|one| {
            let path = format!("{above} {}", one.get_name()).trim_start().to_owned();
            let one = match find(&path) {
                None => one,
                Some((users, further)) => {
                    let codes = codes(&path, further);
                    one.after_help(format!("Users: {}\nExit codes: {codes}", users.name()))
                }
            };
            below(one, &path)
        })
    }
    below(command, "")
}

/// The command of a command line: its name and those above it.
pub(crate) fn path(matches: &ArgMatches) -> String {
    let mut path = String::new();
    let mut next = matches.subcommand();
    while let Some((name, below)) = next {
        let space = if path.is_empty() { "" } else { " " };
        // A String takes all text.
        let _ = write!(path, "{space}{name}");
        next = below.subcommand();
    }
    path
}

/// Whether a command may end with this code. One that the page does not have may end with any.
pub(crate) fn may_end(path: &str, code: u8) -> bool {
    let Some((_, further)) = find(path) else { return true };
    path == RUNS_A_PROGRAM || USUAL.iter().chain(further).any(|exit| exit.code == code)
}
