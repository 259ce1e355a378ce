//! Programs that manage the interfaces of a host: they are told to leave that of the node alone.
//!
//! NetworkManager and systemd-networkd take each interface that they know nothing of, or one that a
//! file of theirs matches, and then its addresses, routes and settings are theirs. Both read files below
//! `/run`, which end with the host's uptime (NetworkManager.conf(5), systemd.network(5)).

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use weft_os::netns;
use weft_os::process::{hang_up, process_named};

use crate::interface::is_plain;

/// A program, and the file that it reads.
struct Manager {
    /// It is installed, or runs, if one of these exists.
    signs: &'static [&'static str],
    /// The name of its process.
    process: &'static str,
    /// How it is told to read its files again.
    reload: Reload,
    directory: &'static str,
    /// The name of the file, around that of the interface.
    file: (&'static str, &'static str),
    text: fn(&str) -> String,
}

enum Reload {
    /// By SIGHUP, as its manual says.
    HangUp,
    /// By this program: earlier versions end by the signal.
    Run(&'static str, &'static str),
}

/// How long the programs for [`Reload::Run`] may take together, in steps.
const RELOADING: [Duration; 100] = [Duration::from_millis(20); 100];

const MANAGERS: [Manager; 2] = [
    Manager {
        signs: &["/run/NetworkManager", "/etc/NetworkManager", "/usr/sbin/NetworkManager"],
        process: "NetworkManager",
        reload: Reload::HangUp,
        directory: "/run/NetworkManager/conf.d",
        file: ("90-", ".conf"),
        // `managed=0` of a section of the device does not end the management of one that has addresses.
        text: |interface| format!("# Written by weft.\n[keyfile]\nunmanaged-devices+=interface-name:={interface}\n"),
    },
    Manager {
        signs: &["/run/systemd/netif", "/run/systemd/network"],
        process: "systemd-network",
        reload: Reload::Run("/usr/bin/networkctl", "reload"),
        directory: "/run/systemd/network",
        // Files are asked in the order of their names, and the first that matches counts.
        file: ("05-", ".network"),
        text: |interface| format!("# Written by weft.\n[Match]\nName={interface}\n[Link]\nUnmanaged=yes\n"),
    },
];

/// The files that were written.
#[derive(Debug, Default)]
pub struct Unmanaged {
    files: Vec<PathBuf>,
}

impl Unmanaged {
    /// Writes a file for each program that is installed or runs, and has it read its files again. In
    /// another network namespace than the first one they manage nothing. `interface`: its name. Returns
    /// what the system refused as well.
    ///
    /// It needs root's rights.
    #[must_use]
    pub fn write(interface: &str) -> (Self, Vec<io::Error>) {
        let (mut written, mut refused) = (Self::default(), Vec::new());
        if !netns::is_init_namespace() || !is_plain(interface) {
            return (written, refused);
        }
        for manager in &MANAGERS {
            if !manager.signs.iter().any(|sign| Path::new(sign).exists()) {
                continue;
            }
            match manager.write(interface) {
                Ok(path) => written.files.push(path),
                Err(error) => refused.push(error),
            }
        }
        (written, refused)
    }

    /// The directories of the files, in which [`remove`](Self::remove) needs the right to remove them.
    pub fn directories(&self) -> impl Iterator<Item = &Path> {
        self.files.iter().filter_map(|file| file.parent())
    }

    /// Removes the files. The interface ends with its node, so no program needs to read them again.
    pub fn remove(self) {
        for file in self.files {
            let _ = fs::remove_file(file);
        }
    }
}

impl Manager {
    fn write(&self, interface: &str) -> io::Result<PathBuf> {
        let (before, behind) = self.file;
        let path = Path::new(self.directory).join(format!("{before}weft-{interface}{behind}"));
        let text = (self.text)(interface);
        if fs::read_to_string(&path).is_ok_and(|present| present == text) {
            return Ok(path);
        }
        fs::create_dir_all(self.directory)?;
        // Neither reads a file whose name begins with a dot, so neither reads half of one.
        let new = path.with_file_name(format!(".weft-{interface}.new"));
        fs::write(&new, text)?;
        fs::rename(&new, &path)?;
        // One that does not run reads them at its start.
        match (process_named(self.process)?, &self.reload) {
            (Some((process, 0)), Reload::HangUp) => hang_up(process)?,
            (Some(_), Reload::Run(program, argument)) => run(program, argument)?,
            _ => {}
        }
        Ok(path)
    }
}

/// Runs a program until it succeeds, and ends it if all that takes too long. A manager that is starting may
/// have read its files already, but does not take requests yet.
fn run(program: &str, argument: &str) -> io::Result<()> {
    let mut command = Command::new(program);
    command.arg(argument).env_clear().stdin(Stdio::null());
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = None;
    for pause in RELOADING {
        let running = match &mut child {
            Some(running) => running,
            None => child.insert(command.spawn()?),
        };
        match running.try_wait()? {
            Some(status) if status.success() => return Ok(()),
            Some(_) => child = None,
            None => {}
        }
        sleep(pause);
    }
    if let Some(mut child) = child {
        child.kill()?;
        child.wait()?;
    }
    Err(io::Error::new(
        io::ErrorKind::TimedOut,
        format!("`{program} {argument}` takes too long, or fails"),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reload_that_fails_is_tried_again() {
        let file = std::env::temp_dir().join(format!("weft-managers-{}", std::process::id()));
        let script = format!("echo x >> {0}; test $(wc -l < {0}) = 3", file.display());
        fs::write(file.with_extension("sh"), &script).unwrap();
        run("/bin/sh", file.with_extension("sh").to_str().unwrap()).unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "x\nx\nx\n");
        for left in [file.with_extension("sh"), file] {
            fs::remove_file(left).unwrap();
        }
        assert!(run("/bin/false", "").is_err());
    }

    #[test]
    fn files_name_one_interface_alone() {
        let texts: Vec<String> = MANAGERS.iter().map(|manager| (manager.text)("weft0")).collect();
        assert_eq!(
            texts,
            [
                "# Written by weft.\n[keyfile]\nunmanaged-devices+=interface-name:=weft0\n",
                "# Written by weft.\n[Match]\nName=weft0\n[Link]\nUnmanaged=yes\n"
            ]
        );
    }
}
