//! `weft doctor`: what on this host keeps a node from working, and how to put it right.

mod checks;
mod facts;

use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use schemars::JsonSchema;
use serde::Serialize;
use weft_host::faults::Skipped;
use weft_store::state::StatePaths;

use self::checks::{Finding, Repair};
use self::facts::Facts;
use crate::documents::OfCommand;
use crate::failure::Failure;
use crate::human;
use crate::output::Out;

/// How long the daemon has after a repair to set its address again.
const FOLLOWS: Duration = Duration::from_secs(3);
/// The pause between two looks at it.
const LOOK: Duration = Duration::from_millis(100);

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Put right what can be put right without a decision of yours; needs root
    #[arg(long)]
    fix: bool,
    /// Print the document weft.doctor/1
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(paths: &StatePaths, args: &Args) -> Result<(), Failure> {
    let (mut facts, mut skipped) = Facts::gather(paths);
    let mut findings = checks::all(&facts);
    let mut fixed = Vec::new();
    let mut refused = Vec::new();
    if args.fix {
        for finding in findings.iter().filter(|finding| finding.repair.is_some()) {
            match repair(finding) {
                Ok(()) => fixed.push(finding.clone()),
                Err(error) => refused.push(format!("{}: not put right: {error}", finding.check)),
            }
        }
        // What the system says now, and not what the repairs were meant to do.
        let end = Instant::now() + FOLLOWS;
        (facts, skipped) = Facts::gather(paths);
        while facts.ipv6.is_lacking() && !fixed.is_empty() && Instant::now() < end {
            sleep(LOOK);
            (facts, skipped) = Facts::gather(paths);
        }
        findings = checks::all(&facts);
        fixed.retain(|done| !findings.contains(done));
    }
    let mut out = Out::new();
    match args.json {
        true => out.document(&Examined {
            findings: &findings,
            fixed: &fixed,
            skipped: &skipped,
        })?,
        false => out.text(&text(&findings, (&fixed, &refused, args.fix), &skipped))?,
    }
    match findings.is_empty() {
        true => Ok(()),
        false => Err(Failure::Findings),
    }
}

/// The document of `weft doctor`.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Examined<'a> {
    /// What is wrong, after the repairs of `--fix`.
    findings: &'a [Finding],
    /// What `--fix` has put right.
    fixed: &'a [Finding],
    /// What was not looked at.
    skipped: &'a [Skipped],
}

impl OfCommand for Examined<'_> {
    const NAME: &'static str = "weft.doctor/1";
}

/// `repaired`: what `--fix` has put right, what it could not, and whether it was given.
fn text(
    findings: &[Finding],
    (fixed, refused, repaired): (&[Finding], &[String], bool),
    skipped: &[Skipped],
) -> String {
    let mut text = String::new();
    let mut line = |line: String| {
        text.push_str(&human::plain(&line));
        text.push('\n');
    };
    for finding in findings {
        let fix = finding.fix.as_ref().map(|fix| format!("; {fix}"));
        let Finding { check, what, why, .. } = finding;
        line(format!("{check}: {what}; {why}{}", fix.unwrap_or_default()));
    }
    for finding in fixed {
        line(format!("{}: put right: {}", finding.check, finding.what));
    }
    refused.iter().for_each(|refused| line(refused.clone()));
    for Skipped { check, why } in skipped {
        line(format!("{check}: not looked at: {why}"));
    }
    if findings.is_empty() {
        let limit = if skipped.is_empty() {
            ""
        } else {
            ", as far as was looked"
        };
        line(format!("nothing found that keeps this node from working{limit}"));
    } else if repaired {
        line("what is left needs a decision of yours, or another program: --fix does not put it right".to_owned());
    } else if findings.iter().any(|finding| finding.repair.is_some()) {
        line("`sudo weft doctor --fix` puts right what needs no decision".to_owned());
    }
    text
}

/// Carries out what a finding offers. It lasts until the next boot, but for modes of files.
fn repair(finding: &Finding) -> io::Result<()> {
    match &finding.repair {
        None => Ok(()),
        Some(Repair::Sysctl { name, value }) => {
            let path: PathBuf = format!("/proc/sys/{}", name.replace('.', "/")).into();
            fs::write(path, value)
        }
        Some(Repair::Mode { path, mode }) => set_mode(path, *mode),
        Some(Repair::Module(name)) => {
            let mut command = Command::new("modprobe");
            let status = command.arg(name).stdin(Stdio::null()).stderr(Stdio::null()).status()?;
            match status.success() {
                true => Ok(()),
                false => Err(io::Error::other(format!("modprobe {name}: {status}"))),
            }
        }
    }
}

/// Changes the mode of a file in a directory that another user may write to: what a link leads to, and
/// a file with another name elsewhere, stays as it is.
fn set_mode(path: &Path, mode: u32) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = rustix::fs::open(path, flags, Mode::empty()).map_err(|error| match error {
        Errno::LOOP => io::Error::other("it is a link"),
        error => error.into(),
    })?;
    let file = File::from(file);
    let found = file.metadata()?;
    match found.is_file() && found.nlink() == 1 {
        true => file.set_permissions(Permissions::from_mode(mode)),
        false => Err(io::Error::other("it is no file, or one with a second name")),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_mode_is_changed_of_a_file_with_one_name_only() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        let mode = |name: &str| fs::metadata(at(name)).unwrap().permissions().mode() & 0o777;
        for name in ["key", "other"] {
            fs::write(at(name), "x").unwrap();
            fs::set_permissions(at(name), Permissions::from_mode(0o644)).unwrap();
        }
        symlink(at("other"), at("link")).unwrap();
        fs::hard_link(at("other"), at("second")).unwrap();
        set_mode(&at("key"), 0o600).unwrap();
        assert_eq!(mode("key"), 0o600);
        for name in ["link", "second", "missing"] {
            assert!(set_mode(&at(name), 0o600).is_err(), "{name}");
        }
        assert_eq!(mode("other"), 0o644);
    }
}
