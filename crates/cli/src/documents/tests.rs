//! docs/json.md from `## Commands` on: made of the JSON Schemas of all documents.
//!
//! `WEFT_WRITE_PAGE=1 cargo test -p weft --bin weft documents` writes it anew.

#![allow(clippy::unwrap_used, reason = "tests fail by panic")]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;

use clap::CommandFactory as _;
use schemars::Schema;
use serde_json::Value;

use super::all;

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/json.md");
const BEGIN: &str = "\n## Commands\n";

#[test]
fn docs_json_md_is_made_of_the_types() {
    assert_page(PAGE, BEGIN, &generated());
}

/// Asserts that a page is `generated` from the line `begin` on, or writes it so.
pub(crate) fn assert_page(path: &str, begin: &str, generated: &str) {
    let page = fs::read_to_string(path).unwrap();
    let (head, _) = page.split_once(begin).unwrap();
    let made = format!("{head}{begin}{generated}");
    if std::env::var_os("WEFT_WRITE_PAGE").is_some() {
        return fs::write(path, &made).unwrap();
    }
    let differs = made.lines().zip(page.lines()).find(|(made, page)| made != page);
    assert_eq!(differs, None, "left in Some: from the program, right: on the page");
    assert_eq!(made.len(), page.len());
}

#[test]
fn links_in_docs_json_md_lead_to_sections() {
    let page = fs::read_to_string(PAGE).unwrap();
    let titles: Vec<String> = page.lines().filter(|line| line.starts_with('#')).map(anchor).collect();
    for link in page.split("](#").skip(1).filter_map(|rest| rest.split(')').next()) {
        assert!(titles.iter().any(|title| title == link), "{link}");
    }
}

/// Returns the documents, the objects and words in them, and the errors of the control socket.
fn generated() -> String {
    let mut objects: BTreeMap<String, Value> = BTreeMap::new();
    let mut text = String::from(
        "\nEach command has `--json` but those whose output is something else: `up`, `completion`, `man`, `schema`, and \
         some of `lab`.\n`weft events` prints documents without it. `weft schema DOCUMENT` prints the JSON Schema of a \
         document of this page.\n[Commands](commands.md) has the exit codes of each command, and its users.\n\n",
    );
    let all = all();
    text += &table_of(&commands(), &all);
    text += "\n## Documents\n";
    for (name, schema) in all {
        let schema = schema.to_value();
        let about = schema["description"].as_str().unwrap_or_default();
        write!(text, "\n### {name}\n\n{about}\n\n{}", table(&schema)).unwrap();
        for (kind, object) in schema["$defs"].as_object().into_iter().flatten() {
            let same = objects.insert(title(kind), object.clone());
            assert!(same.is_none_or(|same| same == *object), "two types are named {kind}");
        }
    }
    text += "\n## Objects and words\n";
    // They have a section of their own.
    let codes = objects.remove("error code").unwrap();
    for (title, object) in objects {
        let about = object["description"].as_str().unwrap_or_default();
        write!(text, "\n### {title}\n\n{about}\n\n{}", table(&object)).unwrap();
    }
    text += "\n## Errors of the control socket\n\nA request that is not carried out is answered \
             `{\"ok\":false,\"error\":{\"code\":...,\"message\":...}}`.\n\n";
    text + &words(&codes["anyOf"])
}

/// Returns the table of the documents and the commands that print each.
fn table_of(commands: &BTreeMap<String, Vec<String>>, all: &[(&str, Schema)]) -> String {
    let mut rows = "| document | commands |\n|---|---|\n".to_owned();
    for (name, commands) in commands {
        let commands: Vec<String> = commands.iter().map(|command| format!("`{command}`")).collect();
        writeln!(rows, "| {} | {} |", link(name, all, ""), commands.join(", ")).unwrap();
    }
    rows
}

/// Returns the name of a document, which leads to its section if a page has one.
pub(crate) fn link(name: &str, all: &[(&str, Schema)], page: &str) -> String {
    match all.iter().any(|(known, _)| *known == name) {
        true => format!("[`{name}`]({page}#{})", anchor(name)),
        false => format!("`{name}`"),
    }
}

/// Returns the commands that print each document, from the help of their `--json`, and from that of a command whose
/// whole output is documents.
pub(crate) fn commands() -> BTreeMap<String, Vec<String>> {
    fn walk(command: &clap::Command, path: &str, into: &mut BTreeMap<String, Vec<String>>) {
        let json = command.get_arguments().find(|argument| argument.get_id() == "json");
        let help = json.map_or(command.get_about(), clap::Arg::get_help);
        let help = help.map(ToString::to_string).unwrap_or_default();
        let names = help.split_whitespace().map(|word| word.trim_matches([',', '.', '`']));
        for name in names.filter(|word| word.starts_with("weft.")) {
            into.entry(name.to_owned()).or_default().push(path.trim().to_owned());
        }
        for below in command.get_subcommands() {
            walk(below, &format!("{path} {}", below.get_name()), into);
        }
    }
    let mut commands = BTreeMap::new();
    walk(&crate::Args::command(), "", &mut commands);
    commands
}

/// Returns the table of an object, or of words.
fn table(schema: &Value) -> String {
    if schema["anyOf"].is_array() {
        return words(&schema["anyOf"]);
    }
    if schema["oneOf"][0]["const"].is_string() {
        return words(&schema["oneOf"]);
    }
    let mut rows = "| field | type | meaning |\n|---|---|---|\n".to_owned();
    let mut row = |name: &str, kind: &str, about: &str| {
        let about = about.trim_end_matches('.').replace('|', "\\|").replace("\n\n", " ");
        assert!(!about.is_empty(), "{name} has no comment");
        writeln!(rows, "| `{name}` | {kind} | {} |", capital(&about)).unwrap();
    };
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let is_required = schema["required"]
            .as_array()
            .is_some_and(|all| all.iter().any(|one| one == name));
        row(
            name,
            &kind(field, is_required),
            field["description"].as_str().unwrap_or_default(),
        );
    }
    // An object of several forms: `kind` says which.
    for form in schema["oneOf"].as_array().into_iter().flatten() {
        let of = form["properties"]["kind"]["const"].as_str().unwrap();
        row(
            "kind",
            &format!("the word `{of}`"),
            form["description"].as_str().unwrap_or_default(),
        );
        for (name, field) in form["properties"]
            .as_object()
            .into_iter()
            .flatten()
            .filter(|(name, _)| *name != "kind")
        {
            let about = field["description"].as_str().unwrap_or_default();
            row(name, &kind(field, true), &format!("Of `{of}`: {about}"));
        }
    }
    rows
}

/// Returns the table of a list of words, among them perhaps one with a value.
fn words(list: &Value) -> String {
    let mut rows = "| word | meaning |\n|---|---|\n".to_owned();
    for word in list.as_array().into_iter().flatten() {
        let with_value = |(name, value): (&String, &Value)| format!("`{{\"{name}\": ...}}`, {}", one(value));
        let fields = word["properties"].as_object().into_iter().flatten();
        let plain = word["const"].as_str().map(|name| format!("`{name}`"));
        if let Some(name) = plain.or_else(|| fields.map(with_value).next()) {
            let about = word["description"].as_str().unwrap_or_default();
            writeln!(rows, "| {name} | {} |", about.trim_end_matches('.')).unwrap();
        }
    }
    rows
}

/// Returns the type of a field in words.
fn kind(field: &Value, is_required: bool) -> String {
    let options = field["anyOf"].as_array().map_or(&[][..], Vec::as_slice);
    let is_null = |one: &Value| one["type"] == "null";
    let nullable = options.iter().any(is_null)
        || field["type"]
            .as_array()
            .is_some_and(|types| types.iter().any(|one| one == "null"));
    let inner = options.iter().find(|one| !is_null(one)).unwrap_or(field);
    let name = one(inner);
    match (is_required, nullable) {
        (true, true) => format!("{name}, or null"),
        (true, false) => name,
        (false, _) => format!("{name}; absent if none"),
    }
}

/// Returns the type of a value that is there.
fn one(schema: &Value) -> String {
    if let Some(reference) = schema["$ref"].as_str() {
        let title = title(reference.trim_start_matches("#/$defs/"));
        return match title.as_str() {
            "error code" => "[code](#errors-of-the-control-socket)".to_owned(),
            _ => format!("[{title}](#{})", anchor(&title)),
        };
    }
    let of_type = match &schema["type"] {
        Value::Array(types) => types.iter().find(|one| *one != "null").and_then(Value::as_str),
        one => one.as_str(),
    };
    match (of_type, schema["format"].as_str()) {
        (Some("string"), Some("ipv4")) => "IPv4 address".to_owned(),
        (Some("string"), Some("ipv6")) => "IPv6 address".to_owned(),
        (Some("string"), Some("ip")) => "IP address".to_owned(),
        (Some("string"), _) => "text".to_owned(),
        (Some("boolean"), _) => "true or false".to_owned(),
        (Some("array"), _) => format!("list of {}", one(&schema["items"])),
        (Some("object"), _) if schema["additionalProperties"].is_object() => {
            format!("object, by name: {}", one(&schema["additionalProperties"]))
        }
        (Some(other), _) => other.to_owned(),
        (None, _) => "text".to_owned(),
    }
}

/// Returns the title of the section of a type: its name in words, without `Status`.
fn title(kind: &str) -> String {
    let name = kind
        .strip_suffix("Status")
        .filter(|name| !name.is_empty())
        .unwrap_or(kind);
    let mut title = String::new();
    for letter in name.chars() {
        if letter.is_uppercase() && !title.is_empty() {
            title.push(' ');
        }
        title.extend(letter.to_lowercase());
    }
    title
}

/// Returns the anchor of a heading.
fn anchor(heading: &str) -> String {
    let heading = heading.trim_start_matches('#').trim().to_lowercase();
    heading.replace(' ', "-").replace(['.', '/'], "")
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters
        .next()
        .map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}
