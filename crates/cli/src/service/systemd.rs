//! Calls of `systemctl`.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use super::error::{ServiceError, why};
use crate::human;

/// The unit.
pub(super) const NAME: &str = "weft.service";

/// Whether systemd is the init of this system (sd_booted(3)).
pub(super) fn runs() -> bool {
    Path::new("/run/systemd/system").is_dir()
}

/// Runs `systemctl` with these arguments.
pub(super) fn call(arguments: &[&str]) -> Result<(), ServiceError> {
    let output = output(arguments)?;
    if output.status.success() {
        return Ok(());
    }
    Err(ServiceError::Systemctl {
        command: arguments.join(" "),
        why: why(&output),
    })
}

/// The answer to `is-enabled` or `is-active` in one word. These fail for every word but "enabled"
/// and "active", so the exit status says nothing more. It is "unknown" if systemd is out of reach.
pub(super) fn state(question: &str) -> Result<String, ServiceError> {
    let output = output(&[question, NAME])?;
    let text = String::from_utf8_lossy(&output.stdout);
    let word = text.split_whitespace().next();
    Ok(word.unwrap_or("unknown").to_owned())
}

/// The last line that the daemon has written as an error, if the journal tells.
pub(super) fn last_error() -> Option<String> {
    let mut command = Command::new("journalctl");
    command.args(["--unit", NAME, "--lines", "20", "--output", "cat", "--no-pager"]);
    let output = command.stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let said = text.lines().rev().find_map(|line| line.strip_prefix("weft: "));
    said.map(human::plain)
}

/// Whether the service runs.
pub(super) fn is_active() -> bool {
    state("is-active").is_ok_and(|word| word == "active")
}

fn output(arguments: &[&str]) -> Result<Output, ServiceError> {
    let mut command = Command::new("systemctl");
    command.args(arguments).stdin(Stdio::null());
    command.output().map_err(|source| ServiceError::Systemctl {
        command: arguments.join(" "),
        why: format!("systemctl cannot be run: {source}"),
    })
}
