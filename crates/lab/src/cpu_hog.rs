//! A slow machine: a process that gets very little of one CPU.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use rustix::process::{Pid, setpriority_process};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Its nice value: one busy neighbour leaves it about three percent of the CPU (sched(7)).
const NICE: i32 = 15;

/// Slows one process down while it exists. After that the process may use every CPU again, and
/// keeps its nice value.
///
/// It needs no rights and no cgroup, and the kernel accounts for it as on any busy machine: the
/// process waits for a CPU. A single thread generates the load, because a scheduler that is fair to
/// sessions (autogroup) would take the time of several from the processes of this session that are
/// to have enough.
#[derive(Debug)]
pub struct CpuHog {
    confined: Vec<u32>,
    before: CpuSet,
    stop: Arc<AtomicBool>,
    burner: Option<JoinHandle<()>>,
}

impl CpuHog {
    /// Confines the process `pid` of this machine to one CPU, the last that this process may use,
    /// raises its nice value, and starts a thread there that never sleeps. This also applies to
    /// threads that it starts later. The processes `others`, and those that the calling thread
    /// starts from now on, are kept off that CPU if there is another: on a machine of their own
    /// they would not be affected either.
    ///
    /// # Errors
    /// If one of the processes belongs to another user, or has ended.
    pub fn on(pid: u32, others: &[u32]) -> io::Result<Self> {
        let before = sched_getaffinity(None)?;
        let (mut one, mut rest) = (CpuSet::new(), before);
        let last = (0..CpuSet::MAX_CPU).rev().find(|cpu| before.is_set(*cpu)).unwrap_or(0);
        one.set(last);
        rest.unset(last);
        let mut hog = Self {
            confined: [&[pid], others].concat(),
            before,
            stop: Arc::default(),
            burner: None,
        };
        for tid in threads(pid)? {
            sched_setaffinity(tid, &one)?;
            setpriority_process(tid, NICE)?;
        }
        let stop = Arc::clone(&hog.stop);
        let body = move || {
            // If it cannot be confined, it loads another CPU, and the measurement shows that.
            let _ = sched_setaffinity(None, &one);
            while !stop.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        };
        hog.burner = Some(std::thread::Builder::new().name("burner".to_owned()).spawn(body)?);
        if rest.count() > 0 {
            for other in others {
                confine(*other, &rest)?;
            }
            sched_setaffinity(None, &rest)?;
        }
        Ok(hog)
    }
}

impl Drop for CpuHog {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(burner) = self.burner.take() {
            let _ = burner.join();
        }
        for pid in &self.confined {
            // The process may have ended.
            let _ = confine(*pid, &self.before);
        }
        let _ = sched_setaffinity(None, &self.before);
    }
}

fn confine(pid: u32, to: &CpuSet) -> io::Result<()> {
    for tid in threads(pid)? {
        sched_setaffinity(tid, to)?;
    }
    Ok(())
}

/// The threads of a process.
fn threads(pid: u32) -> io::Result<Vec<Option<Pid>>> {
    let mut threads = Vec::new();
    for entry in std::fs::read_dir(format!("/proc/{pid}/task"))? {
        let name = entry?.file_name();
        let tid = name.to_str().and_then(|name| name.parse().ok()).and_then(Pid::from_raw);
        // None would be the calling thread.
        threads.extend(tid.map(Some));
    }
    Ok(threads)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;
    use std::time::{Duration, Instant};
    use weft_os::process::threads_of;

    /// How long a process has run, and waited for a CPU.
    fn ran_and_waited(pid: u32) -> (Duration, Duration) {
        let thread = threads_of(pid).unwrap().remove(0);
        (thread.cpu, thread.waited)
    }

    #[test]
    fn a_slowed_process_waits_for_its_turn() {
        let mut busy = Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
        let hog = CpuHog::on(busy.id(), &[]).unwrap();
        let end = Instant::now() + Duration::from_secs(60);
        let before = ran_and_waited(busy.id());
        // The burner may start late, on a machine that is busy itself.
        let (ran, waited) = loop {
            let late = Instant::now() >= end;
            std::thread::sleep(Duration::from_millis(100));
            let after = ran_and_waited(busy.id());
            let (ran, waited) = (after.0 - before.0, after.1 - before.1);
            if late || (waited > 2 * ran && waited > Duration::from_millis(200)) {
                break (ran, waited);
            }
        };
        drop(hog);
        busy.kill().unwrap();
        busy.wait().unwrap();
        assert!(waited > 2 * ran, "ran {ran:?}, waited {waited:?}");
    }

    #[test]
    fn a_missing_process_cannot_be_slowed_down() {
        assert!(CpuHog::on(5_000_000, &[]).is_err());
    }
}
