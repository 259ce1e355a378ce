//! Starting processes inside a namespace that do not outlive this one.

use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command};
use std::sync::{OnceLock, mpsc};
use std::thread;

use rustix::io::Errno;
use rustix::process::{Pid, Signal, getpid, getppid, set_parent_process_death_signal};

use super::NetNs;

struct Job {
    command: Command,
    reply: mpsc::SyncSender<(Command, io::Result<Child>)>,
}

pub(super) fn spawn_inside(namespace: NetNs, command: &mut Command) -> io::Result<Child> {
    let parent = getpid();
    let prepare = move || {
        namespace.join()?;
        die_with_parent(parent)
    };
    // SAFETY: between fork and exec `prepare` makes three system calls, allocates nothing and takes no
    // lock.
    unsafe { command.pre_exec(prepare) };

    // The kernel sends the death signal when the *thread* that forked ends, so one thread that
    // never ends forks for all.
    let (reply, answer) = mpsc::sync_channel(1);
    let job = Job {
        command: std::mem::replace(command, Command::new("")),
        reply,
    };
    let gone = || io::Error::other("the thread that starts processes is gone");
    spawner()?.send(job).map_err(|_| gone())?;
    let (returned, child) = answer.recv().map_err(|_| gone())?;
    *command = returned;
    child
}

fn spawner() -> io::Result<&'static mpsc::Sender<Job>> {
    static SPAWNER: OnceLock<mpsc::Sender<Job>> = OnceLock::new();
    if let Some(jobs) = SPAWNER.get() {
        return Ok(jobs);
    }
    let (sender, jobs) = mpsc::channel::<Job>();
    thread::Builder::new().name("spawner".to_owned()).spawn(move || {
        for mut job in jobs {
            let child = job.command.spawn();
            // The requester waits for this.
            let _ = job.reply.send((job.command, child));
        }
    })?;
    // If two threads get here at once, one wins; the other's thread ends with its channel, without
    // a job.
    Ok(SPAWNER.get_or_init(|| sender))
}

fn die_with_parent(parent: Pid) -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // The parent may have ended before the call above.
    if getppid() == Some(parent) {
        Ok(())
    } else {
        Err(Errno::SRCH.into())
    }
}
