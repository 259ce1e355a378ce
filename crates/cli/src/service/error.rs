//! Why a step of `weft service` was not done.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Output;

use crate::human;

/// The text of each is one line that says what to do.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ServiceError {
    #[error("`weft service {0}` changes the system, which needs root; use `sudo weft service {0}`")]
    NotRoot(&'static str),
    #[error(
        "systemd does not run here (/run/systemd/system is missing), and nothing was changed; `sudo {program} up` runs the node in \
         the foreground, and at boot your init system runs the same as root (in /etc/rc.local: `{program} up &`)",
         program = .0.display()
    )]
    NoSystemd(PathBuf),
    #[error(
        "no service is installed (/etc/systemd/system/weft.service is missing); `sudo weft service install` installs it"
    )]
    NotInstalled,
    #[error("{unit} was not written by `weft service install` and stays as it is; remove it first: `systemctl disable --now weft`, `rm {unit}`", unit = .0.display())]
    Foreign(PathBuf),
    #[error("a package has brought {} already, and nothing was changed; use `systemctl enable --now weft`", .0.display())]
    Packaged(PathBuf),
    #[error("a daemon that is not the service runs already, and nothing was changed: {}; stop it with `sudo weft down`, then try again", .0.display())]
    Running(PathBuf),
    #[error("the program is at a path that systemd does not read as it is: {}; move it to /usr/local/bin", .0.display())]
    OddPath(PathBuf),
    #[error("root must not install into a directory that others can change: {} {why}; correct that, or copy weft to /usr/bin and run it from there", .path.display())]
    UnsafeDirectory { path: PathBuf, why: String },
    #[error("{} cannot be {what} ({source}); correct that and try again", .path.display())]
    File {
        what: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    #[error(
        "`systemctl {command}` failed: {why}; `journalctl -u weft` and `systemctl status weft` show more, `sudo weft service uninstall` removes what was installed"
    )]
    Systemctl { command: String, why: String },
    #[error(
        "the service was started, and the daemon does not answer within 10 s; `journalctl -u weft -n 20` shows why"
    )]
    Silent,
    #[error("{} would not start, and nothing was stopped: {why}", .program.display())]
    WouldNotStart { program: PathBuf, why: String },
    #[error("the service was started, and the daemon ended: {0}")]
    EndedBy(String),
    #[error("the service was started, and the daemon ended; `journalctl -u weft -n 20` shows why")]
    Ended,
}

impl ServiceError {
    /// A file that could not be read, written, made or removed.
    pub(super) fn file(what: &'static str, path: impl AsRef<Path>, source: io::Error) -> Self {
        Self::File {
            what,
            path: path.as_ref().to_owned(),
            source,
        }
    }
}

/// Why a program has failed: the first line that it has written as an error, or its exit status.
pub(super) fn why(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr);
    let line = text.lines().map(str::trim).find(|line| !line.is_empty());
    line.map_or_else(|| output.status.to_string(), human::plain)
}
