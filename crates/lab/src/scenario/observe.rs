//! What a run records beside the results of loads: CPU time, memory, paths.

use std::time::Duration;

use serde_json::Value;

use super::expect::{LookError, path_of};
use super::load::Report;
use super::results::{PathResult, Record, Usage};
use super::steps::{Action, Paths};
use super::topology::{Stage, StageError};

/// The CPU time that the daemons at both ends of a TCP stream have used; `None` for other steps,
/// and for streams in the background.
pub(super) fn cpu(stage: &Stage, action: &Action) -> Option<[Duration; 2]> {
    let ends = ends(action)?;
    let of = |node: &str| stage.daemon(node).ok()?.usage().ok();
    Some([of(ends[0])?.cpu, of(ends[1])?.cpu])
}

/// What the daemons have used since `before`, for each of the stream's bytes.
pub(super) fn usage(
    stage: &Stage,
    action: &Action,
    before: Option<[Duration; 2]>,
    report: &Report,
) -> Option<[Usage; 2]> {
    let (ends, before) = (ends(action)?, before?);
    let Report::Tcp(tcp) = report else { return None };
    let gigabytes = tcp.bytes as f64 / 1e9;
    let of = |n: usize| {
        let usage = stage.daemon(ends[n]).ok()?.usage().ok()?;
        Some(Usage {
            cpu_s_per_gb: usage.cpu.saturating_sub(before[n]).as_secs_f64() / gigabytes,
            rss_bytes: usage.rss_bytes,
        })
    };
    (tcp.bytes > 0).then(|| Some([of(0)?, of(1)?])).flatten()
}

/// In words, the sender first.
pub(super) fn describe([from, to]: &[Usage; 2]) -> String {
    let mib = |usage: &Usage| usage.rss_bytes as f64 / f64::from(1 << 20);
    format!(
        "CPU {:.1} and {:.1} s/GB, memory {:.0} and {:.0} MiB",
        from.cpu_s_per_gb,
        to.cpu_s_per_gb,
        mib(from),
        mib(to),
    )
}

fn ends(action: &Action) -> Option<[&str; 2]> {
    match action {
        Action::Tcp(load) if !load.background => Some([&load.from, &load.to]),
        _ => None,
    }
}

/// The paths of every two of these nodes, and the changes of one path.
pub(super) fn paths(stage: &Stage, paths: &Paths) -> Result<Record, LookError> {
    let mut record = Record::default();
    for from in &paths.among {
        for to in paths.among.iter().filter(|to| *to != from) {
            record.paths.push(PathResult {
                from: from.clone(),
                to: to.clone(),
                path: path_of(stage, from, to)?,
            });
        }
    }
    if let Some([from, to]) = &paths.history {
        let npub = &stage.node(to)?.identity.npub;
        let peer = stage.daemon(from)?.peer(npub).map_err(StageError::Daemon)?;
        let peer = peer.unwrap_or_default();
        // The latest comes first in the status.
        let changes = peer["path_changes"].as_array().map(Vec::as_slice).unwrap_or_default();
        record.changes = changes.iter().rev().map(change).collect();
    }
    Ok(record)
}

fn change(change: &Value) -> String {
    let path = &change["path"];
    let path = match (path["kind"].as_str(), path["addr"].as_str(), path["name"].as_str()) {
        (Some("direct"), Some(addr), _) => format!("direct {addr}"),
        (Some(_), _, name) => format!("via {}", name.unwrap_or("?")),
        _ => "none".to_owned(),
    };
    format!("{path}: {}", change["why"].as_str().unwrap_or("?"))
}

/// The paths as a table, from row to column, and the changes as a list.
pub(super) fn table(among: &[String], record: &Record, history: Option<&[String; 2]>) -> String {
    let cell = |text: &str| format!("{text:>12}");
    let mut text = format!("from row to column\n{:12}", "");
    text.extend(among.iter().map(|to| cell(to)));
    for from in among {
        text += &format!("\n{from:12}");
        for to in among {
            let path = record.paths.iter().find(|path| path.from == *from && path.to == *to);
            text += &cell(path.map_or("-", |path| &path.path));
        }
    }
    if let Some([from, to]) = history {
        text += &format!("\n{from} to {to}, one after the other:");
        text.extend(record.changes.iter().map(|change| format!("\n  {change}")));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_a_table_and_changes_a_list() {
        let path = |from: &str, to: &str, path: &str| PathResult {
            from: from.to_owned(),
            to: to.to_owned(),
            path: path.to_owned(),
        };
        let record = Record {
            paths: vec![path("alpha", "beta", "direct"), path("gamma", "alpha", "via relay")],
            changes: vec!["via relay: a path was found".to_owned()],
            ..Record::default()
        };
        let names = ["alpha", "beta", "gamma", "delta"].map(str::to_owned);
        let history = ["alpha", "beta"].map(str::to_owned);
        let text = table(&names, &record, Some(&history));
        let row = |name: &str| text.lines().find(|line| line.starts_with(name)).unwrap();
        assert_eq!(
            row("alpha ").split_whitespace().collect::<Vec<_>>(),
            ["alpha", "-", "direct", "-", "-"]
        );
        assert!(row("gamma").contains("via relay") && text.contains("\n  via relay: a path was found"));
        assert!(text.lines().all(|line| line.len() <= 72), "{text}");
    }

    #[test]
    fn usage_of_daemons_is_one_line() {
        let usage = |cpu_s_per_gb| Usage {
            cpu_s_per_gb,
            rss_bytes: 9 << 20,
        };
        assert_eq!(
            describe(&[usage(1.26), usage(2.0)]),
            "CPU 1.3 and 2.0 s/GB, memory 9 and 9 MiB"
        );
    }
}
