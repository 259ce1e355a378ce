//! Every command has its facts.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panic")]

use super::*;

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
