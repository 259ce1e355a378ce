//! Scheduling parameters of threads.

use std::io;
use std::time::Duration;

use libc::c_int;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::syscall;

/// The scheduling parameters of a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scheduling {
    /// The nice value, -20 to 19; the lower, the larger the thread's share of a busy CPU.
    pub nice: i8,
    /// The time slice, from 0.1 to 100 ms: the shorter, the sooner the thread runs after it wakes.
    /// Kernels before Linux 6.12 have one slice for all threads; 0 means the kernel's default.
    pub slice: Duration,
}

/// Lets threads of this process have nice values down to `nice` (-20 to 19), also after privileges
/// are dropped: `RLIMIT_NICE` of getrlimit(2).
///
/// # Errors
/// The error of the system call if the limit is above the present one: that needs CAP_SYS_RESOURCE.
pub fn permit_nice(nice: i8) -> io::Result<()> {
    let wanted = 20_u64.saturating_add_signed((-nice).into());
    let limit = getrlimit(Resource::Nice);
    if limit.current.is_none_or(|current| current >= wanted) {
        return Ok(());
    }
    let raised = Rlimit {
        current: Some(wanted),
        maximum: limit.maximum.map(|maximum| maximum.max(wanted)),
    };
    Ok(setrlimit(Resource::Nice, raised)?)
}

/// The scheduling parameters of the calling thread.
///
/// # Errors
/// The error of the system call; not known to occur.
pub fn thread_scheduling() -> io::Result<Scheduling> {
    let mut attributes = Attributes::default();
    // SAFETY: the kernel writes at most the size that is passed; 0 is this thread.
    let result = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, SIZE, 0) };
    syscall::check(result as c_int)?;
    Ok(Scheduling {
        nice: attributes.nice as i8,
        slice: Duration::from_nanos(attributes.runtime),
    })
}

/// Sets the scheduling parameters of the calling thread, with the policy `SCHED_OTHER`.
///
/// # Errors
/// `PermissionDenied` for a nice value below both its own and the process's limit; nothing changes
/// then.
pub fn set_thread_scheduling(scheduling: Scheduling) -> io::Result<()> {
    let attributes = Attributes {
        size: SIZE,
        policy: libc::SCHED_OTHER as u32,
        nice: scheduling.nice.into(),
        runtime: scheduling.slice.as_nanos() as u64,
        ..Attributes::default()
    };
    // SAFETY: `attributes` has the size that it declares, and lives through the call; 0 is this
    // thread.
    let result = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
    syscall::check(result as c_int)?;
    Ok(())
}

/// `struct sched_attr` of sched_setattr(2), in its first version, which every kernel with this call
/// accepts.
#[derive(Default)]
#[repr(C)]
struct Attributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
}

const SIZE: u32 = size_of::<Attributes>() as u32;

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_micros(100);

    /// Runs `test` in a thread, so that its changes do not affect other tests.
    fn in_a_thread(test: impl FnOnce() + Send + 'static) {
        std::thread::spawn(test).join().unwrap();
    }

    #[test]
    fn a_thread_changes_its_own_scheduling_alone() {
        let before = thread_scheduling().unwrap();
        in_a_thread(|| {
            let slice = SHORT;
            set_thread_scheduling(Scheduling { nice: 19, slice }).unwrap();
            assert_eq!(thread_scheduling().unwrap().nice, 19);
        });
        assert_eq!(thread_scheduling().unwrap(), before);
    }

    #[test]
    fn permitted_nice_values_are_set_and_others_are_refused() {
        in_a_thread(|| {
            let (before, first) = (
                thread_scheduling().unwrap(),
                Scheduling {
                    nice: -10,
                    slice: SHORT,
                },
            );
            // A process that may not raise the limit may still have CAP_SYS_NICE.
            let permitted = permit_nice(first.nice);
            match set_thread_scheduling(first) {
                Ok(()) => {
                    for scheduling in [first, before, first] {
                        set_thread_scheduling(scheduling).unwrap();
                        assert_eq!(thread_scheduling().unwrap().nice, scheduling.nice);
                    }
                }
                Err(refused) => {
                    let kinds = [permitted.unwrap_err().kind(), refused.kind()];
                    assert_eq!(kinds, [io::ErrorKind::PermissionDenied; 2]);
                    assert_eq!(thread_scheduling().unwrap(), before);
                }
            }
        });
    }
}
