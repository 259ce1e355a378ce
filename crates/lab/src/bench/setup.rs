//! The machine and the programs of a bench, without which its figures are meaningless.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::Serialize;

use super::arm::{Kind, digest};
use super::{Entrant, Missing, Options};
use crate::child::run_command;

/// Time limit of a program's version output.
const LIMIT: Duration = Duration::from_secs(5);

/// Kernel settings that affect throughput.
const SYSCTLS: [&str; 7] = [
    "net/core/rmem_max",
    "net/core/wmem_max",
    "net/core/netdev_max_backlog",
    "net/core/default_qdisc",
    "net/ipv4/tcp_rmem",
    "net/ipv4/tcp_wmem",
    "net/ipv4/tcp_congestion_control",
];

/// The setup of a bench.
#[derive(Clone, Debug, Serialize)]
pub struct Setup {
    /// Schema of this document.
    pub schema: &'static str,
    /// Start of the bench, seconds since 1970.
    pub unix: u64,
    /// The command line.
    pub command: String,
    /// Rounds.
    pub rounds: u32,
    /// Seconds of load in each run.
    pub seconds: u32,
    /// Hosts and cables.
    pub layout: String,
    /// Impairments of each cable.
    pub regime: String,
    /// Congestion control of the load's TCP, set for each socket.
    pub congestion: String,
    /// The default congestion control of the hosts' namespaces.
    pub namespace_congestion: String,
    /// The MTU inside that was set for every arm, bytes; `None`: each program's default.
    pub mtu: Option<u32>,
    /// Whether plain cables carried UDP like a wire.
    pub wire: bool,
    /// Kernel and CPU.
    pub machine: Vec<(String, String)>,
    /// The arms that ran.
    pub arms: Vec<ArmSetup>,
    /// The arms that could not run.
    pub missing: Vec<Missing>,
}

/// One arm's program.
#[derive(Clone, Debug, Serialize)]
pub struct ArmSetup {
    /// The arm's label.
    pub label: String,
    /// Its kind.
    pub kind: String,
    /// How many threads it was given.
    pub threads: String,
    /// Its settings; they come after, and so before, the threads of all arms.
    pub settings: Vec<String>,
    /// The program's version output; `None` if it has none.
    pub version: Option<String>,
    /// SHA-256 of the program.
    pub sha256: Option<String>,
}

impl Setup {
    /// Collects the properties of this machine and the versions of the programs.
    #[must_use]
    pub fn look(options: &Options, entrants: &[Entrant], missing: &[Missing], namespace_congestion: &str) -> Self {
        let unix = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default()
            .as_secs();
        Self {
            schema: "weft.bench/1",
            unix,
            command: options.command.clone(),
            rounds: options.rounds,
            seconds: options.seconds,
            layout: options.conditions.layout(),
            regime: options.conditions.regime.to_string(),
            congestion: options.conditions.congestion.clone(),
            namespace_congestion: namespace_congestion.to_owned(),
            mtu: options.conditions.mtu,
            wire: options.conditions.wire,
            machine: machine(),
            arms: entrants
                .iter()
                .map(|entrant| arm(entrant, options.conditions.threads))
                .collect(),
            missing: missing.to_vec(),
        }
    }

    /// The date of the start, `2026-11-21` (UTC).
    #[must_use]
    pub fn date(&self) -> String {
        date(self.unix)
    }
}

/// Today, `2026-11-21` (UTC).
#[must_use]
pub fn today() -> String {
    date(now())
}

fn now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs()
}

/// The civil date of a Unix time, after H. Hinnant's "chrono-Compatible Low-Level Date Algorithms", `civil_from_days`.
fn date(unix: u64) -> String {
    let days = unix / 86_400 + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * march + 2) / 5 + 1;
    let month = if march < 10 { march + 3 } else { march - 9 };
    format!("{}-{month:02}-{day:02}", year + era * 400 + u64::from(month <= 2))
}

fn arm(entrant: &Entrant, threads: Option<u16>) -> ArmSetup {
    let has_program = entrant.arm.kind != Kind::Direct;
    ArmSetup {
        label: entrant.arm.label.clone(),
        kind: entrant.arm.kind.name().to_owned(),
        threads: entrant.arm.kind.threads(threads),
        settings: entrant.arm.settings.iter().map(ToString::to_string).collect(),
        version: has_program
            .then(|| version(&entrant.program, entrant.arm.kind))
            .flatten(),
        sha256: has_program.then(|| digest(&entrant.program).ok()).flatten(),
    }
}

/// The first line of the version output.
fn version(program: &Path, kind: Kind) -> Option<String> {
    let mut command = Command::new(program);
    command.arg(match kind {
        Kind::Weft | Kind::Null => "version",
        Kind::Nebula => "-version",
        _ => "--version",
    });
    let output = run_command(command, LIMIT).ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = text.lines().map(str::trim).find(|line| !line.is_empty())?;
    Some(line.chars().take(100).collect())
}

fn machine() -> Vec<(String, String)> {
    let mut all = vec![
        ("kernel".to_owned(), read("/proc/sys/kernel/osrelease")),
        ("CPU".to_owned(), processor()),
    ];
    for name in SYSCTLS {
        all.push((name.replace('/', "."), read(&format!("/proc/sys/{name}"))));
    }
    all
}

fn read(path: &str) -> String {
    let text = fs::read_to_string(path).unwrap_or_else(|_| "unknown".to_owned());
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn processor() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let field = |name: &str| {
        text.lines()
            .find_map(|line| line.strip_prefix(name)?.split_once(':'))
            .map(|(_, v)| v.trim())
    };
    let cores = text.lines().filter(|line| line.starts_with("processor")).count();
    format!("{cores} x {}", field("model name").unwrap_or("unknown"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates() {
        assert_eq!(date(0), "1970-01-01");
        assert_eq!(date(951_782_400), "2000-02-29");
        assert_eq!(date(1_795_219_200 + 86_399), "2026-11-21");
        assert_eq!(date(4_107_542_400), "2100-03-01");
    }
}
