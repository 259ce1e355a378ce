//! Which threads the scheduler runs first.

use std::io;
use std::time::Duration;

use libc::c_int;

use crate::syscall;

/// How a thread takes turns with others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Turns {
    /// -20 to 19; the lower, the larger its share of a busy processor.
    pub nice: i8,
    /// The length of a turn, from 0.1 to 100 ms: the shorter, the sooner it has one when it wakes. Kernels before Linux
    /// 6.12 have one length for all; 0 leaves it to the kernel.
    pub slice: Duration,
}

/// Lets threads of this process have nice values down to `nice` (-20 to 19), also once privileges are dropped:
/// `RLIMIT_NICE` of getrlimit(2).
///
/// # Errors
/// What the system said to a limit above the one that this process has: it takes CAP_SYS_RESOURCE.
pub fn permit_nice(nice: i8) -> io::Result<()> {
    let wanted = (20 - i32::from(nice)) as libc::rlim_t;
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the kernel fills in `limit`, which lives through the call.
    syscall::check(unsafe { libc::getrlimit(libc::RLIMIT_NICE, &raw mut limit) })?;
    if limit.rlim_cur >= wanted {
        return Ok(());
    }
    limit.rlim_cur = wanted;
    limit.rlim_max = limit.rlim_max.max(wanted);
    // SAFETY: `limit` is initialised and lives through the call.
    syscall::check(unsafe { libc::setrlimit(libc::RLIMIT_NICE, &raw const limit) })?;
    Ok(())
}

/// How the calling thread takes turns.
///
/// # Errors
/// None is known; what the system said.
pub fn thread_turns() -> io::Result<Turns> {
    let mut attributes = Attributes::default();
    // SAFETY: the kernel writes at most the size that it is told; 0 is this thread.
    let result = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, SIZE, 0) };
    syscall::check(result as c_int)?;
    Ok(Turns {
        nice: attributes.nice as i8,
        slice: Duration::from_nanos(attributes.runtime),
    })
}

/// Has the calling thread take turns so, as an ordinary thread (`SCHED_OTHER`).
///
/// # Errors
/// `PermissionDenied` for a nice value lower than its own and than this process may have; then nothing changes.
pub fn set_thread_turns(turns: Turns) -> io::Result<()> {
    let attributes = Attributes {
        size: SIZE,
        policy: libc::SCHED_OTHER as u32,
        nice: turns.nice.into(),
        runtime: turns.slice.as_nanos() as u64,
        ..Attributes::default()
    };
    // SAFETY: `attributes` has the size that it tells, and lives through the call; 0 is this thread.
    let result = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
    syscall::check(result as c_int)?;
    Ok(())
}

/// `struct sched_attr` of sched_setattr(2), in its first version, which every kernel with the call takes.
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

    /// What `test` does to its own thread leaves those of other tests alone.
    fn in_a_thread(test: impl FnOnce() + Send + 'static) {
        std::thread::spawn(test).join().unwrap();
    }

    #[test]
    fn a_thread_changes_its_own_turns_alone() {
        let before = thread_turns().unwrap();
        in_a_thread(|| {
            let slice = SHORT;
            set_thread_turns(Turns { nice: 19, slice }).unwrap();
            assert_eq!(thread_turns().unwrap().nice, 19);
        });
        assert_eq!(thread_turns().unwrap(), before);
    }

    #[test]
    fn what_is_permitted_can_be_had_and_given_back_and_what_is_not_changes_nothing() {
        in_a_thread(|| {
            let (before, first) = (
                thread_turns().unwrap(),
                Turns {
                    nice: -10,
                    slice: SHORT,
                },
            );
            // Who may not raise the limit may still have CAP_SYS_NICE.
            let permitted = permit_nice(first.nice);
            match set_thread_turns(first) {
                Ok(()) => {
                    for turns in [first, before, first] {
                        set_thread_turns(turns).unwrap();
                        assert_eq!(thread_turns().unwrap().nice, turns.nice);
                    }
                }
                Err(refused) => {
                    let kinds = [permitted.unwrap_err().kind(), refused.kind()];
                    assert_eq!(kinds, [io::ErrorKind::PermissionDenied; 2]);
                    assert_eq!(thread_turns().unwrap(), before);
                }
            }
        });
    }
}
