//! What commands there are, and what each of them has: a page, completions, documents.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panic")]

#[path = "common/printed.rs"]
mod printed;

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use printed::{done, failed};

const WEFT: &str = env!("CARGO_BIN_EXE_weft");

/// The commands that have no `--json`, and the reason.
const WITHOUT_DOCUMENT: [(&str, &str); 12] = [
    ("up", "the daemon itself, whose output is its log"),
    ("events", "each line is a document"),
    ("completion", "a script for a shell"),
    ("man", "pages for man(1)"),
    ("schema", "the JSON Schema of documents"),
    ("lab run", "of the lab: results.json has the document"),
    ("lab cells", "of the lab: tables"),
    ("lab list", "of the lab: a scenario as it is written"),
    ("lab exec", "of the lab: another command, and its output"),
    ("lab down", "of the lab"),
    ("lab bench", "of the lab: runs.jsonl has the documents"),
    ("lab compare", "of the lab: tables"),
];

fn help(path: &[&str]) -> String {
    done(&Command::new(WEFT).args(path).arg("-h").output().unwrap())
}

/// The visible commands below a command, from its help.
fn commands(path: &[&str]) -> Vec<String> {
    let help = help(path);
    let list = help.split_once("\nCommands:\n").map_or("", |(_, rest)| rest);
    let list = list.split("\n\n").next().unwrap_or_default();
    // The names are indented by two columns, continued descriptions by more.
    let names = list.lines().filter_map(|line| {
        line.strip_prefix("  ")?
            .split_whitespace()
            .next()
            .filter(|_| !line.starts_with("   "))
    });
    names.filter(|name| *name != "help").map(str::to_owned).collect()
}

#[test]
fn every_command_has_a_page() {
    fn check(directory: &Path, path: &[&str]) -> usize {
        let name = [&["weft"], path].concat().join("-");
        let page =
            fs::read_to_string(directory.join(format!("{name}.1"))).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(page.contains(".SH NAME") && page.contains(".SH SYNOPSIS"), "{name}");
        1 + commands(path)
            .iter()
            .map(|below| check(directory, &[path, &[below.as_str()]].concat()))
            .sum::<usize>()
    }
    let directory = tempfile::tempdir().unwrap();
    let pages = directory.path().join("man1");
    let said = done(&Command::new(WEFT).arg("man").arg(&pages).output().unwrap());
    let found = check(&pages, &[]);
    assert_eq!(
        said,
        format!("{found} pages of weft(1) are written: {}\n", pages.display())
    );
    assert!(found > 40, "{found}");
    assert_eq!(fs::read_dir(&pages).unwrap().count(), found, "no other page");
    let line = failed(&Command::new(WEFT).args(["man", "/proc/nowhere"]).output().unwrap(), 1);
    assert!(line.contains("/proc/nowhere"), "{line}");
    let file = pages.join("weft.1");
    let line = failed(&Command::new(WEFT).arg("man").arg(&file).output().unwrap(), 2);
    assert!(
        line.contains(&format!("{} is no directory; name one", file.display())),
        "{line}"
    );
}

#[test]
fn an_option_ahead_of_its_command_is_shown_behind_it() {
    for (arguments, right) in [
        (&["--json", "status"][..], "`weft status --json`"),
        (&["--json", "member", "remove", "bob"], "`weft member remove --json`"),
        (&["member", "--json", "remove", "bob"], "`weft member remove --json`"),
        (&["--network", "home", "invite"], "`weft invite --network`"),
        (&["--network=home", "invite"], "`weft invite --network`"),
    ] {
        let line = failed(&Command::new(WEFT).args(arguments).output().unwrap(), 2);
        assert!(line.contains(&format!("belongs behind the command: {right}")), "{line}");
    }
    // The first is an option of no command, and the second one is wrong behind the command, too.
    for arguments in [
        &["--nonsense", "status"][..],
        &["--json", "up"],
        &["--json", "nonsense"],
    ] {
        let line = failed(&Command::new(WEFT).args(arguments).output().unwrap(), 2);
        assert!(!line.contains("belongs behind"), "{line}");
    }
}

#[test]
fn addresses_inside_the_mesh_are_refused_for_links() {
    let directory = tempfile::tempdir().unwrap();
    let state = directory.path().join("state");
    let run = |arguments: &[&str]| {
        let mut command = Command::new(WEFT);
        command.args(arguments).arg("--state").arg(&state).output().unwrap()
    };
    let npub = weft_noise::SecretKey::from_bytes(&[2; 32]).unwrap().public();
    let (key, own) = (npub.to_string(), npub.node_addr().to_ipv6().to_string());
    for address in ["10.44.3.4", "10.44.3.4:2121", &own] {
        for arguments in [
            &["peer", "add", &key, "--address", address][..],
            &["invite", "--address", "192.0.2.1", "--address", address],
            &["join", "--ask", &key, "--address", address],
        ] {
            let line = failed(&run(arguments), 2);
            assert!(line.contains("is an address inside the mesh"), "{line}");
            assert!(line.contains("`weft identity show`"), "{line}");
        }
    }
    assert!(!state.exists(), "a refusal makes nothing");
}

#[test]
fn completions_are_scripts_of_their_shell_with_all_commands() {
    for shell in ["bash", "zsh", "fish"] {
        let script = done(&Command::new(WEFT).args(["completion", shell]).output().unwrap());
        for command in commands(&[]) {
            assert!(script.contains(&command), "{command} in {shell}");
        }
        let mut check = match Command::new(shell).arg("-n").stdin(Stdio::piped()).spawn() {
            Ok(check) => check,
            // bash is everywhere where tests run.
            Err(error) => {
                assert_ne!(shell, "bash", "{error}");
                continue;
            }
        };
        check.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
        assert!(check.wait().unwrap().success(), "{shell}");
    }
    failed(&Command::new(WEFT).args(["completion", "tcsh"]).output().unwrap(), 2);
}

/// The commands that do something, below a command: its name and those of the commands above it.
fn leaves(path: &[&str]) -> Vec<String> {
    let below = commands(path);
    let has_options = help(path).contains("\n      --json");
    let own = (below.is_empty() || has_options).then(|| path.join(" "));
    let below = below.iter().flat_map(|name| leaves(&[path, &[name]].concat()));
    own.into_iter().chain(below).collect()
}

#[test]
fn every_command_prints_a_document_or_says_why_not() {
    let all = leaves(&[]);
    assert!(all.len() > 50, "{all:?}");
    for command in &all {
        let path: Vec<&str> = command.split(' ').collect();
        let has_document = help(&path).contains("\n      --json");
        let why_not = WITHOUT_DOCUMENT.iter().find(|(without, _)| without == command);
        assert_ne!(has_document, why_not.is_some(), "{command}: {why_not:?}");
    }
    for (command, _) in WITHOUT_DOCUMENT {
        assert!(all.iter().any(|one| one == command), "no command is {command}");
    }
}

#[test]
fn each_document_has_a_schema_and_an_unknown_one_a_line() {
    let schema = |arguments: &[&str]| Command::new(WEFT).arg("schema").args(arguments).output().unwrap();
    let names = done(&schema(&[]));
    assert!(names.lines().any(|name| name == "weft.status/1"), "{names}");
    for name in names.lines() {
        let schema: Value = serde_json::from_str(&done(&schema(&[name]))).unwrap();
        assert_eq!(schema["title"], name);
        assert_eq!(schema["properties"]["schema"]["const"], name);
    }
    // A document has the fields of its schema, in their order.
    let version = done(&Command::new(WEFT).args(["version", "--json"]).output().unwrap());
    let version: Value = serde_json::from_str(&version).unwrap();
    let of_version: Value = serde_json::from_str(&done(&schema(&["weft.version/1"]))).unwrap();
    let fields: Vec<&String> = version.as_object().unwrap().keys().collect();
    assert_eq!(json!(fields), of_version["required"]);
    let line = failed(&schema(&["weft.state/1"]), 2);
    assert!(
        line.contains("weft.state/1") && line.contains("`weft schema`"),
        "{line}"
    );
}

#[test]
fn a_change_without_a_daemon_prints_a_document_and_plain_text() {
    let state = tempfile::tempdir().unwrap();
    fs::write(state.path().join("weft.toml"), "").unwrap();
    let print = |arguments: &[&str]| {
        let mut command = Command::new(WEFT);
        done(
            &command
                .args(arguments)
                .arg("--state")
                .arg(state.path())
                .output()
                .unwrap(),
        )
    };
    let document = |arguments: &[&str]| -> Value { serde_json::from_str(&print(arguments)).unwrap() };
    let rules = "[\"deny from any to any tcp/25\"]";
    let text = print(&["set", "rules.local", rules]);
    assert!(text.starts_with(&format!("rules.local = {rules}\n")), "{text}");
    let changed = document(&["set", "mesh.open", "true", "--json"]);
    assert_eq!(
        (&changed["schema"], &changed["live"]),
        (&json!("weft.reload/1"), &json!([]))
    );
    assert_eq!(changed["at_start"], json!(["mesh.open"]));
    let shown = document(&["config", "show", "--json"]);
    assert_eq!(shown, document(&["config", "check", "--json"]));
    assert_eq!(shown["settings"]["mesh"]["open"], true, "{shown}");
}
