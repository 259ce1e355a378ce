//! docs/commands.md from `## All commands` on: made of the command line and the facts of each command. The test
//! `commands` of tests/e2e shows that they are true.
//!
//! `WEFT_WRITE_PAGE=1 cargo test -p weft --bin weft commands` writes it anew.

#![allow(clippy::unwrap_used, reason = "tests fail by panic")]

use std::fmt::Write as _;

use super::*;
use crate::documents::{self, tests::assert_page};

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/commands.md");
const BEGIN: &str = "\n## All commands\n";

#[test]
fn docs_commands_md_is_made_of_the_program() {
    assert_page(PAGE, BEGIN, &generated());
}

#[test]
fn each_command_has_its_facts_and_shows_them() {
    let mut names = Vec::new();
    walk(&crate::command_line(), "", &mut |path, command| {
        let (users, _) = find(path).unwrap_or_else(|| panic!("src/commands.rs has no `weft {path}`"));
        let help = command.get_after_help().unwrap().to_string();
        assert!(
            help.starts_with(&format!("Users: {}\nExit codes: 0 done; 1 ", users.name())),
            "{help}"
        );
        names.push(path.to_owned());
    });
    let listed: Vec<&str> = ALL.iter().map(|(path, ..)| *path).collect();
    assert_eq!(names, listed, "in the order of the help");
}

#[test]
fn a_command_line_names_its_command() {
    let path_of = |line: &str| path(&crate::command_line().try_get_matches_from(line.split(' ')).unwrap());
    for (line, path) in [
        ("weft status --json", "status"),
        ("weft --state x rule add allow from any to any", "rule add"),
        ("weft invites", "invites"),
        ("weft invites revoke 0f", "invites revoke"),
        ("weft lab exec a -- status", "lab exec"),
    ] {
        assert_eq!(path_of(line), path, "{line}");
    }
    assert!(may_end("why", 3) && !may_end("status", 3));
    assert!(may_end("lab exec", 77) && may_end("broker", 77));
}

/// Calls `each` with every command that does something, and is shown.
fn walk(command: &Command, path: &str, each: &mut impl FnMut(&str, &Command)) {
    let acts = !command.has_subcommands() || command.is_args_conflicts_with_subcommands_set();
    if acts {
        each(path, command);
    }
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        walk(below, format!("{path} {}", below.get_name()).trim_start(), each);
    }
}

/// Returns the commands, the meanings of exit codes, and the users.
fn generated() -> String {
    let (printed, schemas) = (documents::tests::commands(), documents::all());
    let mut text =
        String::from("\n| command | what it does | exit codes | documents | users |\n|---|---|---|---|---|\n");
    walk(&crate::command_line(), "", &mut |path, command| {
        let (users, further) = find(path).unwrap();
        let about = command.get_about().unwrap().to_string();
        let codes: Vec<String> = USUAL.iter().chain(further).map(|exit| exit.code.to_string()).collect();
        let more = if path == RUNS_A_PROGRAM {
            ", or that of the program"
        } else {
            ""
        };
        let links = printed
            .iter()
            .filter(|(_, commands)| commands.iter().any(|one| one == path));
        let links: Vec<String> = links
            .map(|(name, _)| documents::tests::link(name, &schemas, "json.md"))
            .collect();
        let (codes, links, users) = (codes.join(", "), links.join(", "), users.name());
        writeln!(text, "| `weft {path}` | {about} | {codes}{more} | {links} | {users} |").unwrap();
    });
    text += "\n## Exit codes\n\n| code | meaning | commands |\n|---|---|---|\n";
    for Exit { code, meaning } in [DONE, NOT_DONE, USAGE, NO_FLOW, NOT_VALID, LATE, FINDINGS] {
        let ends = |further: &[Exit]| further.iter().any(|exit| exit.meaning == meaning);
        let own = ALL.iter().filter(|(.., further)| ends(further));
        let own: Vec<String> = own.map(|(path, ..)| format!("`{path}`")).collect();
        let of = if own.is_empty() {
            "all".to_owned()
        } else {
            own.join(", ")
        };
        writeln!(text, "| {code} | {meaning} | {of} |").unwrap();
    }
    text += "\n## Users\n\n| users | meaning |\n|---|---|\n";
    for users in [Local, OfMachine, Owners, FlowsOrPaths, Files, Root] {
        writeln!(text, "| {} | {} |", users.name(), meaning(users)).unwrap();
    }
    text
}

/// Returns the users of a command in a sentence.
const fn meaning(users: Users) -> &'static str {
    match users {
        Local => "All users; no daemon has to run",
        OfMachine => "All users of the host of the daemon. Those who do not own it see no addresses and no reasons",
        Owners => "The owners of the daemon: root, its own user, the operator (`control.operator`), the group `weft`",
        FlowsOrPaths => "All users ask whether a flow passes; owners ask why a path is as it is, too",
        Files => "The user who may read and write the state directory: root, for root's daemon. No daemon has to run",
        Root => "Root alone",
    }
}
