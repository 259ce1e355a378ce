//! The threads of a process: how long each ran, and how long it waited for a CPU.

use std::fs;
use std::io;
use std::time::Duration;

/// The CPU use of one thread so far.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThreadUsage {
    /// Its thread id.
    pub tid: u32,
    /// Its name, at most 15 bytes.
    pub name: String,
    /// CPU time.
    pub cpu: Duration,
    /// Time in which it was runnable but did not run, because another thread had the CPU or its
    /// quota was used up. Together with `cpu` it distinguishes a thread that never sleeps from one
    /// with time to spare, however small its share of the CPU is.
    pub waited: Duration,
}

/// Returns the threads of the process `pid`, in the order of their ids, without those that end
/// meanwhile.
///
/// # Errors
/// `NotFound` if there is no such process, `Unsupported` on a kernel without scheduling statistics (proc(5),
/// `schedstat`).
pub fn threads_of(pid: u32) -> io::Result<Vec<ThreadUsage>> {
    let directory = format!("/proc/{pid}/task");
    let mut threads = Vec::new();
    for entry in fs::read_dir(&directory)? {
        let name = entry?.file_name();
        let Some(tid) = name.to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        let read = |file| fs::read_to_string(format!("{directory}/{tid}/{file}"));
        let text = match read("schedstat") {
            Ok(text) => text,
            // The thread has ended, or the kernel has no statistics for any thread.
            Err(_) if fs::exists(format!("{directory}/{tid}"))? => return Err(io::ErrorKind::Unsupported.into()),
            Err(_) => continue,
        };
        let Some((cpu, waited)) = parse(&text) else {
            return Err(io::ErrorKind::Unsupported.into());
        };
        let name = read("comm").unwrap_or_default().trim_end().to_owned();
        threads.push(ThreadUsage { tid, name, cpu, waited });
    }
    threads.sort_by_key(|thread| thread.tid);
    Ok(threads)
}

/// The first two numbers of `schedstat`, in nanoseconds.
fn parse(text: &str) -> Option<(Duration, Duration)> {
    let mut numbers = text.split_whitespace().map(str::parse);
    let mut next = || Some(Duration::from_nanos(numbers.next()?.ok()?));
    Some((next()?, next()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_works_is_found_by_its_name() {
        let (begin, begun) = std::sync::mpsc::channel();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let worker = std::thread::Builder::new()
            .name("hard worker".to_owned())
            .spawn(move || {
                let mut sum = 0_u64;
                for n in 0..20_000_000_u64 {
                    sum = std::hint::black_box(sum.wrapping_add(n));
                }
                begin.send(sum).unwrap();
                let _ = ended.recv();
            });
        begun.recv().unwrap();
        let threads = threads_of(std::process::id()).unwrap();
        let found = threads.iter().find(|thread| thread.name == "hard worker").unwrap();
        assert!(found.cpu > Duration::ZERO);
        drop(end);
        worker.unwrap().join().unwrap();
        assert_eq!(threads_of(5_000_000).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn numbers() {
        let ns = Duration::from_nanos;
        assert_eq!(parse("687804 2139708 3\n"), Some((ns(687_804), ns(2_139_708))));
        assert_eq!(parse("687804"), None);
        assert_eq!(parse("0 x 0"), None);
    }
}
