//! Rights, memory and CPU time of this process and others.

mod capabilities;
mod heap;
mod landlock;
mod memory;
mod named;
mod peer;
mod priority;
mod privileges;
mod seccomp;
mod threads;
mod user;

use std::fs;
use std::io;
use std::time::Duration;

pub use self::capabilities::{give_up_nice, has_net_admin};
pub use self::heap::heap_in_use;
pub use self::landlock::{Access, RulesetError};
pub use self::memory::{LockMemoryError, forbid_core_dumps, ignore_stop_signals, lock_memory};
pub use self::named::{hang_up, process_named};
pub use self::peer::{peer_groups, peer_pid, peer_uid};
pub use self::priority::{Scheduling, permit_nice, set_thread_scheduling, thread_scheduling};
pub use self::privileges::{
    Confinement, Part, PrivilegeError, Rights, drop_all_privileges, drop_privileges_to_net_admin,
    drop_privileges_to_net_admin_and_nice,
};
pub use self::threads::{ThreadUsage, threads_of};
pub use self::user::{Ids, OVERFLOW_ID, UserChange, give_file, group_id, is_service_group, service_user, user_id};
use crate::clock;

/// The resource use of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// Memory in RAM, in bytes.
    pub rss_bytes: u64,
    /// CPU time of all its threads so far, in user space and in the kernel.
    pub cpu: Duration,
}

/// The resource use of this process.
///
/// # Errors
/// If `/proc` is not mounted.
pub fn usage() -> io::Result<Usage> {
    usage_of(std::process::id())
}

/// The resource use of the process `pid`.
///
/// # Errors
/// `NotFound` if there is no such process.
pub fn usage_of(pid: u32) -> io::Result<Usage> {
    let statm = fs::read_to_string(format!("/proc/{pid}/statm"))?;
    let pages = statm.split(' ').nth(1).and_then(|text| text.parse().ok());
    let pages: u64 = pages.ok_or(io::ErrorKind::InvalidData)?;
    // SAFETY: no pointers are passed.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    Ok(Usage {
        rss_bytes: pages * u64::try_from(page).unwrap_or(4096),
        cpu: cpu_time(pid)?,
    })
}

/// The domain of this host: what follows the first dot of its name, if it has one.
#[must_use]
pub fn host_domain() -> Option<String> {
    let name = rustix::system::uname();
    let (_, domain) = name.nodename().to_str().ok()?.split_once('.')?;
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
    (!domain.is_empty() && domain.chars().all(plain)).then(|| domain.to_owned())
}

fn cpu_time(pid: u32) -> io::Result<Duration> {
    const CPUCLOCK_SCHED: libc::clockid_t = 2;
    let pid = libc::pid_t::try_from(pid).map_err(|_| io::ErrorKind::NotFound)?;
    // The clock's number, as clock_getcpuclockid(3) makes it (`linux/posix-timers.h`).
    let time = clock::read(!pid << 3 | CPUCLOCK_SCHED).ok_or(io::ErrorKind::NotFound)?;
    Ok(Duration::new(time.tv_sec as u64, time.tv_nsec as u32))
}

/// Whether this process is in the first PID namespace, so that its numbers of processes are those of the
/// kernel. Also false if that cannot be determined.
#[must_use]
pub fn is_first_pid_namespace() -> bool {
    // `PROC_PID_INIT_INO` (`linux/proc_ns.h`).
    fs::read_link("/proc/self/ns/pid").is_ok_and(|link| link.as_os_str() == "pid:[4026531836]")
}

/// The effective user of this process.
#[must_use]
pub fn effective_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// The number of threads of this process. If there are several it checks again for up to 50 ms,
/// because the kernel lists a joined thread for a moment longer.
///
/// # Errors
/// If `/proc` is not mounted.
pub fn thread_count() -> io::Result<usize> {
    let mut count = 0;
    for _ in 0..50 {
        count = fs::read_dir("/proc/self/task")?.count();
        if count <= 1 {
            break;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_grows_with_use() {
        let before = usage().unwrap();
        let block = vec![1_u8; 64 << 20];
        let sum: u64 = block.iter().map(|&byte| u64::from(byte)).sum();
        let after = usage().unwrap();
        assert_eq!(sum, 64 << 20);
        assert!(after.rss_bytes >= before.rss_bytes + (32 << 20));
        assert!(after.cpu > before.cpu);
        drop(block);
    }

    #[test]
    fn the_usage_of_a_missing_process_is_not_found() {
        // Above the largest process id of Linux (2^22).
        let error = usage_of(5_000_000).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
