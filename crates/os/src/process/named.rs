//! Programs of the system that run beside this one.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;

use rustix::process::{Pid, Signal, kill_process};

/// The process in this process's network namespace whose name (`/proc/PID/comm`, at most 15 bytes) is
/// `name`, and its user. Any user may give its process any name.
///
/// # Errors
/// If `/proc` is not mounted.
pub fn process_named(name: &str) -> io::Result<Option<(u32, u32)>> {
    let own = fs::read_link("/proc/self/ns/net")?;
    let is_it = |pid: u32| {
        let path = format!("/proc/{pid}");
        fs::read_to_string(format!("{path}/comm")).is_ok_and(|comm| comm.trim_end() == name)
            && fs::read_link(format!("{path}/ns/net")).is_ok_and(|namespace| namespace == own)
    };
    let pids = fs::read_dir("/proc")?.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let mut found = pids.into_iter().filter(|pid| is_it(*pid));
    Ok(found.find_map(|pid| Some((pid, fs::metadata(format!("/proc/{pid}")).ok()?.uid()))))
}

/// Sends SIGHUP to a process.
///
/// # Errors
/// The error of the system.
pub fn hang_up(pid: u32) -> io::Result<()> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    Ok(kill_process(pid.ok_or(io::ErrorKind::InvalidInput)?, Signal::HUP)?)
}
