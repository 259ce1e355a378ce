//! The cost of a run: CPU time and memory, of the daemon and of the test itself separately (L40).

use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use weft_os::process::{ThreadUsage, Usage, threads_of, usage_of};

use crate::text::printable;

/// Threads of the test without load: a wait for a CPU of theirs limits nothing.
const BESIDE: [&str; 3] = ["perf-probe", "perf-echo", "perf-control"];

/// What one end used in an interval.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Spent {
    /// The daemon; `None` if it is not visible.
    pub daemon: Option<ProcessLoad>,
    /// The process that sends and receives the load.
    pub test: Option<ProcessLoad>,
    /// CPUs that a process of this end may use.
    pub cores: u32,
}

impl Spent {
    /// CPU time of daemon and test, in percent of one CPU.
    #[must_use]
    pub fn cpu_percent(&self) -> f64 {
        let both = [&self.daemon, &self.test];
        both.into_iter().flatten().map(|load| load.cpu_percent).sum()
    }

    /// Returns it with all text sanitised for display.
    #[must_use]
    pub fn tamed(mut self) -> Self {
        for load in [&mut self.daemon, &mut self.test].into_iter().flatten() {
            if let Some(thread) = &mut load.busiest {
                thread.name = printable(&thread.name, 15);
            }
        }
        self
    }
}

/// What one process used.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProcessLoad {
    /// CPU time, user and system, in percent of one CPU: 200 are two of them.
    pub cpu_percent: f64,
    /// Memory in RAM at the end, in bytes.
    pub rss_bytes: u64,
    /// The thread that slept least; `None` if the system has no statistics.
    pub busiest: Option<ThreadLoad>,
}

/// How one thread spent its time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ThreadLoad {
    /// Its name.
    pub name: String,
    /// The share of the time in which it ran, 0 to 1.
    pub running: f64,
    /// The share of the time in which it was runnable but had no CPU.
    pub waiting: f64,
}

impl ThreadLoad {
    /// The share of the time in which it had work: near 1, it cannot do more.
    #[must_use]
    pub fn wanting(&self) -> f64 {
        self.running + self.waiting
    }
}

/// Reads the resource use of two processes.
#[derive(Clone, Copy, Debug)]
pub struct Meter {
    daemon: Option<u32>,
}

impl Meter {
    /// A meter of this process and of the daemon with this process id.
    #[must_use]
    pub const fn new(daemon: Option<u32>) -> Self {
        Self { daemon }
    }

    /// Their use so far.
    #[must_use]
    pub fn read(&self) -> Reading {
        let own = std::process::id();
        Reading {
            at: Instant::now(),
            daemon: self.daemon.filter(|pid| *pid != own).and_then(|pid| process(pid).ok()),
            test: process(own).ok(),
        }
    }
}

/// The resource use of two processes up to a moment.
#[derive(Clone, Debug)]
pub struct Reading {
    at: Instant,
    daemon: Option<ProcessReading>,
    test: Option<ProcessReading>,
}

#[derive(Clone, Debug)]
struct ProcessReading {
    usage: Usage,
    threads: Vec<ThreadUsage>,
}

fn process(pid: u32) -> io::Result<ProcessReading> {
    Ok(ProcessReading {
        usage: usage_of(pid)?,
        // Without the threads the other figures are still valid.
        threads: threads_of(pid).unwrap_or_default(),
    })
}

impl Reading {
    /// The use since `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Spent {
        let time = self.at.saturating_duration_since(earlier.at);
        let load = |now: &Option<ProcessReading>, then: &Option<ProcessReading>| {
            Some(now.as_ref()?.since(then.as_ref()?, time))
        };
        Spent {
            daemon: load(&self.daemon, &earlier.daemon),
            test: load(&self.test, &earlier.test),
            cores: std::thread::available_parallelism().map_or(0, |n| u32::try_from(n.get()).unwrap_or(u32::MAX)),
        }
    }
}

impl Reading {
    /// The use of each thread of the daemon whose name begins with `prefix`, since `earlier`.
    #[must_use]
    pub fn threads_since(&self, earlier: &Self, prefix: &str) -> Vec<ThreadLoad> {
        let time = self.at.saturating_duration_since(earlier.at);
        let (Some(now), Some(then)) = (&self.daemon, &earlier.daemon) else {
            return Vec::new();
        };
        let named = now.loads_since(then, time);
        named.filter(|load| load.name.starts_with(prefix)).collect()
    }
}

impl ProcessReading {
    fn since(&self, earlier: &Self, time: Duration) -> ProcessLoad {
        let carrying = self.loads_since(earlier, time);
        let loads = carrying.filter(|load| !BESIDE.contains(&&*load.name));
        ProcessLoad {
            cpu_percent: 100.0 * share(self.usage.cpu.saturating_sub(earlier.usage.cpu), time),
            rss_bytes: self.usage.rss_bytes,
            busiest: loads.max_by(|a, b| a.wanting().total_cmp(&b.wanting())),
        }
    }
}

impl ProcessReading {
    fn loads_since(&self, earlier: &Self, time: Duration) -> impl Iterator<Item = ThreadLoad> {
        let then: BTreeMap<u32, &ThreadUsage> = earlier.threads.iter().map(|thread| (thread.tid, thread)).collect();
        self.threads.iter().map(move |thread| {
            // A thread that did not exist had used nothing.
            let (cpu, waited) = then
                .get(&thread.tid)
                .map(|then| (then.cpu, then.waited))
                .unwrap_or_default();
            ThreadLoad {
                name: thread.name.clone(),
                running: share(thread.cpu.saturating_sub(cpu), time),
                waiting: share(thread.waited.saturating_sub(waited), time),
            }
        })
    }
}

fn share(part: Duration, of: Duration) -> f64 {
    if of.is_zero() {
        0.0
    } else {
        part.as_secs_f64() / of.as_secs_f64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn thread(tid: u32, cpu: u64, waited: u64) -> ThreadUsage {
        ThreadUsage {
            tid,
            name: format!("t{tid}"),
            cpu: Duration::from_millis(cpu),
            waited: Duration::from_millis(waited),
        }
    }

    fn reading(at: Instant, cpu: u64, threads: Vec<ThreadUsage>) -> Reading {
        let usage = Usage {
            rss_bytes: 5,
            cpu: Duration::from_millis(cpu),
        };
        Reading {
            at,
            daemon: Some(ProcessReading { usage, threads }),
            test: None,
        }
    }

    #[test]
    fn differences() {
        let start = Instant::now();
        let before = reading(start, 1000, vec![thread(1, 900, 10), thread(2, 50, 500)]);
        let probe = ThreadUsage {
            name: "perf-probe".to_owned(),
            ..thread(4, 0, 990)
        };
        let threads = vec![thread(1, 1000, 20), thread(2, 150, 900), thread(3, 300, 0), probe];
        let after = reading(start + Duration::from_secs(1), 1500, threads);
        let spent = after.since(&before);
        let daemon = spent.daemon.as_ref().unwrap();
        assert!((daemon.cpu_percent - 50.0).abs() < 1e-9 && daemon.rss_bytes == 5);
        let busiest = daemon.busiest.as_ref().unwrap();
        assert_eq!(busiest.name, "t2");
        assert!((busiest.running - 0.1).abs() < 1e-9 && (busiest.waiting - 0.4).abs() < 1e-9);
        assert_eq!(spent.test, None);
        assert!((spent.cpu_percent() - 50.0).abs() < 1e-9);
        let names = |prefix| {
            let loads = after.threads_since(&before, prefix);
            loads.into_iter().map(|load| load.name).collect::<Vec<_>>()
        };
        assert_eq!(names("t"), ["t1", "t2", "t3"]);
        assert_eq!((names("t3"), names("perf-probe").len()), (vec!["t3".to_owned()], 1));
    }

    #[test]
    fn no_time_is_no_load() {
        let now = reading(Instant::now(), 1, vec![thread(1, 1, 1)]);
        assert_eq!(now.since(&now).cpu_percent(), 0.0);
    }

    #[test]
    fn sees_itself() {
        let meter = Meter::new(None);
        let before = meter.read();
        let mut sum = 0_u64;
        for n in 0..5_000_000_u64 {
            sum = std::hint::black_box(sum.wrapping_add(n));
        }
        let spent = meter.read().since(&before);
        let test = spent.test.unwrap();
        assert!(test.cpu_percent > 0.0 && test.rss_bytes > 0 && sum > 0);
        assert!(test.busiest.is_some() && spent.daemon.is_none());
    }
}
