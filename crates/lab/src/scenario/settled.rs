//! `expect = "settled"`: the path that two nodes have in the end, and how long it took from their
//! session to a direct one.
//!
//! The times are the nodes' own: the polling of the run does not lengthen them.

use std::time::Instant;

use serde_json::Value;

use super::expect::{Finding, LookError, POLL, is_path, path_of};
use super::expected::ExpectSettled;
use super::results::Settled;
use super::topology::{Stage, StageError};

/// The path of packets between neighbours.
const DIRECT: &str = "direct";

/// Watches both directions until they are direct, or the time is over.
pub(super) fn watch(stage: &Stage, expect: &ExpectSettled) -> Result<(Finding, Settled), LookError> {
    let start = Instant::now();
    let ways = [(&expect.from, &expect.to), (&expect.to, &expect.from)];
    loop {
        let over = start.elapsed() >= expect.within.0;
        let looked = look(stage, ways);
        match looked {
            // A daemon that is busy with its start answers a moment later.
            Err(_) if !over => {}
            Err(error) => return Err(error),
            Ok(settled) if over || settled.paths.iter().all(|path| path == DIRECT) => {
                let holds = settled.paths.iter().all(|path| is_path(&expect.is, path));
                return Ok((Finding::new(holds, &settled, &expect.is), settled));
            }
            Ok(_) => {}
        }
        std::thread::sleep(POLL);
    }
}

fn look(stage: &Stage, ways: [(&String, &String); 2]) -> Result<Settled, LookError> {
    let [(a, b), _] = ways;
    let mut paths = [path_of(stage, a, b)?, path_of(stage, b, a)?];
    let mut direct_after_ms = [None; 2];
    for (n, (from, to)) in ways.into_iter().enumerate() {
        let npub = &stage.node(to)?.identity.npub;
        let peer = stage.daemon(from)?.peer(npub).map_err(StageError::Daemon)?;
        direct_after_ms[n] = direct_after(&peer.unwrap_or_default()["path_changes"]);
        // The path may have become direct since it was looked at.
        if direct_after_ms[n].is_none() && paths[n] == DIRECT {
            paths[n] = path_of(stage, from, to)?;
        }
    }
    let why = match paths[0].as_str() {
        DIRECT => String::new(),
        _ => why(stage, a, b)?,
    };
    Ok(Settled {
        paths,
        direct_after_ms,
        why,
    })
}

/// The time from the first path to the first direct one, ms. The latest change comes first.
fn direct_after(changes: &Value) -> Option<u64> {
    let changes = changes.as_array()?;
    let ago = |kind: Option<&str>| {
        let mut right = changes.iter().rev().filter(|change| {
            let found = change["path"]["kind"].as_str();
            found.is_some() && (kind.is_none() || found == kind)
        });
        right.next()?["ago_ms"].as_u64()
    };
    Some(ago(None)?.saturating_sub(ago(Some(DIRECT))?))
}

/// Why the path of a node is what it is, in its own words; empty without a session.
fn why(stage: &Stage, from: &str, to: &str) -> Result<String, LookError> {
    let npub = &stage.node(to)?.identity.npub;
    let daemon = stage.daemon(from)?;
    let Ok(output) = daemon.command(&["why", npub, "--json"]) else {
        return Ok(String::new());
    };
    let document: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    Ok(document["why"].as_str().unwrap_or_default().to_owned())
}

impl std::fmt::Display for Settled {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [a, b] = &self.paths;
        match a == b {
            true => f.write_str(a)?,
            false => write!(f, "{a} and {b}")?,
        }
        if let [Some(a), Some(b)] = self.direct_after_ms {
            write!(f, " {} ms after the session", a.max(b))?;
        }
        match self.why.as_str() {
            "" => Ok(()),
            why => write!(f, "; {why}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_time_is_that_from_the_first_path_to_the_first_direct_one() {
        let change =
            |ago: u64, kind: Option<&str>| json!({"ago_ms": ago, "path": kind.map(|kind| json!({"kind": kind}))});
        let all = json!([
            change(100, Some("direct")),
            change(500, Some("direct")),
            change(1_700, Some("relayed")),
            change(2_000, Some("relayed")),
            change(2_500, None),
        ]);
        assert_eq!(direct_after(&all), Some(1_500));
        assert_eq!(direct_after(&json!([change(7, Some("direct"))])), Some(0));
        assert_eq!(direct_after(&json!([change(7, Some("relayed"))])), None);
        assert_eq!(direct_after(&Value::Null), None);
    }

    #[test]
    fn a_path_is_said_with_its_time_or_its_reason() {
        let mut settled = Settled {
            paths: ["direct", "direct"].map(str::to_owned),
            direct_after_ms: [Some(300), Some(420)],
            why: String::new(),
        };
        assert_eq!(settled.to_string(), "direct 420 ms after the session");
        settled.paths[0] = "via relay".to_owned();
        settled.direct_after_ms[0] = None;
        settled.why = "no address answers".to_owned();
        assert_eq!(settled.to_string(), "via relay and direct; no address answers");
    }
}
