//! Common parts of the tests of `weft lab`: the command, a small scenario, and what may remain
//! after a run.
// Each test binary uses some of them.
#![allow(dead_code, unreachable_pub)]

use std::fs;
use std::path::Path;
use std::process::Command;

use weft_os::test_support::keep_after_failure;

use super::WEFT;

/// Two nodes on a cable, and a host without a node.
pub const PAIR: &str = r#"name = "pair"
[host.a]
dials = ["b"]
[host.b]
dials = ["a"]
[host.plain]
node = false
[link.line]
between = ["a", "b"]
addresses = { a = "192.0.2.1/24", b = "192.0.2.2/24" }
[link.spare]
between = ["plain", "a"]
addresses = { plain = "192.0.3.1/24", a = "192.0.3.2/24" }
"#;

/// The command with these arguments.
pub fn lab(arguments: &[&str]) -> Command {
    let mut command = Command::new(WEFT);
    command.arg("lab").args(arguments);
    command
}

/// A folder for the output of runs, which remains and is named if the test fails.
pub struct Folder(tempfile::TempDir);

impl Folder {
    pub fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.disable_cleanup(true);
            keep_after_failure(self.path());
        }
    }
}

/// The output of a command.
pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The content of the folder for temporary files, without the test's own file and the lab's lock.
pub fn leftovers(temporary: &Path) -> Vec<String> {
    let names = fs::read_dir(temporary)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names
        .filter(|name| name.starts_with("weft-lab-") && !name.starts_with("weft-lab-of-"))
        .collect()
}

/// Processes with the folder in their command line: its nodes, and the holder.
pub fn processes(folder: &Path) -> Vec<u32> {
    let needle = folder.to_str().unwrap();
    let pids = fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let has = |pid: &u32| fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| text(&line).contains(needle));
    pids.filter(has).collect()
}

/// The network namespaces of those processes, without that of this process.
pub fn namespaces_of(folder: &Path) -> Vec<String> {
    let own = namespace("self").unwrap();
    let mut all: Vec<_> = processes(folder)
        .iter()
        .filter_map(|pid| namespace(&pid.to_string()))
        .collect();
    all.retain(|namespace| *namespace != own);
    all.sort();
    all.dedup();
    all
}

fn namespace(pid: &str) -> Option<String> {
    Some(fs::read_link(format!("/proc/{pid}/ns/net")).ok()?.to_str()?.to_owned())
}

/// Whether any process is in the namespace.
pub fn is_used(wanted: &str) -> bool {
    let pids = fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok());
    pids.filter_map(|pid| namespace(&pid)).any(|found| found == wanted)
}

/// The interfaces of this namespace.
pub fn interfaces() -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir("/sys/class/net")
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}
