//! Waiting: an epoll set with level-triggered readiness, an event descriptor, and a timer.

use std::fmt;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime};

/// The readiness to wait for on a descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interest {
    /// Data to read.
    Readable,
    /// Room to write.
    Writable,
    /// Data to read or room to write.
    Both,
}

impl Interest {
    fn flags(self) -> EventFlags {
        match self {
            Self::Readable => EventFlags::IN,
            Self::Writable => EventFlags::OUT,
            Self::Both => EventFlags::IN | EventFlags::OUT,
        }
    }
}

/// A descriptor that is ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// The token of [`Poller::add`].
    pub token: u64,
    /// A read will not block. Also set on an error or a hang-up, which the read reports.
    pub readable: bool,
    /// A write will not block. Also set on an error, which the write reports.
    pub writable: bool,
}

/// Room for the events of one [`Poller::wait`].
pub struct Events(Vec<epoll::Event>);

impl Events {
    /// Room for `capacity` events at a time, at least one.
    #[must_use]
    pub fn with_capacity(capacity: usize) -> Self {
        Self(Vec::with_capacity(capacity.clamp(1, 1024)))
    }

    /// The events of the last wait.
    pub fn iter(&self) -> impl Iterator<Item = Event> + '_ {
        self.0.iter().map(|event| {
            let (flags, data) = (event.flags, event.data);
            let broken = flags.intersects(EventFlags::ERR | EventFlags::HUP);
            Event {
                token: data.u64(),
                readable: broken || flags.contains(EventFlags::IN),
                writable: broken || flags.contains(EventFlags::OUT),
            }
        })
    }
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// A set of descriptors to wait for. A descriptor leaves the set when it is closed. A set can be a
/// member of another one, in which it is ready while one of its own descriptors is.
#[derive(Debug)]
pub struct Poller {
    epoll: OwnedFd,
}

impl Poller {
    /// An empty set.
    ///
    /// # Errors
    /// If the process has no descriptors left.
    pub fn new() -> io::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        Ok(Self { epoll })
    }

    /// Adds a descriptor; its events carry `token`.
    ///
    /// # Errors
    /// `AlreadyExists` if it is in the set.
    pub fn add(&self, fd: impl AsFd, token: u64, interest: Interest) -> io::Result<()> {
        Ok(epoll::add(
            &self.epoll,
            fd,
            EventData::new_u64(token),
            interest.flags(),
        )?)
    }

    /// Changes the interest and the token of a descriptor.
    ///
    /// # Errors
    /// `NotFound` if it is not in the set.
    pub fn modify(&self, fd: impl AsFd, token: u64, interest: Interest) -> io::Result<()> {
        Ok(epoll::modify(
            &self.epoll,
            fd,
            EventData::new_u64(token),
            interest.flags(),
        )?)
    }

    /// Removes a descriptor from the set.
    ///
    /// # Errors
    /// `NotFound` if it is not in the set.
    pub fn remove(&self, fd: impl AsFd) -> io::Result<()> {
        Ok(epoll::delete(&self.epoll, fd)?)
    }

    /// Waits until something is ready or `timeout` has passed (rounded up to a millisecond; `None`
    /// waits without limit). Returns the number of events; a signal ends the wait with 0.
    ///
    /// # Errors
    /// No error that a caller could act on.
    pub fn wait(&self, events: &mut Events, timeout: Option<Duration>) -> io::Result<usize> {
        events.0.clear();
        let timeout = timeout.map(whole_milliseconds);
        match epoll::wait(&self.epoll, spare_capacity(&mut events.0), timeout.as_ref()) {
            Err(Errno::INTR) => Ok(0),
            result => Ok(result?),
        }
    }
}

/// Waits until a write to `fd` will not block or would report an error, or until `timeout` has
/// passed (rounded up to a millisecond). Returns true if a write is worth trying; a signal also
/// ends the wait.
///
/// For a socket that a [`Poller`] watches for room to write, the kernel checks the set whenever a
/// packet of it has left. This function costs that only while it waits.
///
/// # Errors
/// No error that a caller could act on.
pub fn wait_writable(fd: impl AsFd, timeout: Duration) -> io::Result<bool> {
    let mut waiting = [PollFd::new(&fd, PollFlags::OUT)];
    match poll(&mut waiting, Some(&whole_milliseconds(timeout))) {
        Err(Errno::INTR) => Ok(true),
        result => Ok(result? > 0),
    }
}

/// Rounds up to milliseconds, of which epoll(7) takes at most [`i32::MAX`].
fn whole_milliseconds(timeout: Duration) -> Timespec {
    let milliseconds = timeout.as_nanos().div_ceil(1_000_000);
    let milliseconds = i32::try_from(milliseconds).unwrap_or(i32::MAX);
    Timespec {
        tv_sec: (milliseconds / 1000).into(),
        tv_nsec: (milliseconds % 1000 * 1_000_000).into(),
    }
}

impl AsFd for Poller {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

/// Wakes a thread that waits in a [`Poller`]. Any thread may wake; wakes that are not drained yet
/// count as one.
#[derive(Debug)]
pub struct EventFd {
    file: File,
}

impl EventFd {
    /// A new descriptor, not readable.
    ///
    /// # Errors
    /// If the process has no descriptors left.
    pub fn new() -> io::Result<Self> {
        let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { file: fd.into() })
    }

    /// Makes the descriptor readable.
    pub fn wake(&self) {
        // It can only fail when 2^64 - 2 wakes are pending, and then the descriptor is readable.
        let _ = (&self.file).write(&1_u64.to_ne_bytes());
    }

    /// Consumes all pending wakes. Returns true if there was one.
    pub fn drain(&self) -> bool {
        (&self.file).read(&mut [0; 8]).is_ok()
    }
}

impl AsFd for EventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Wakes a thread that waits in a [`Poller`] at a given time. For many short waits it costs less
/// than their timeouts: a timeout sets a hardware timer for each wait and cancels it afterwards.
#[derive(Debug)]
pub struct Timer {
    file: File,
}

impl Timer {
    /// A new timer, not set. Its clock counts while the system is suspended.
    ///
    /// # Errors
    /// If the process has no descriptors left.
    pub fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let fd = timerfd_create(TimerfdClockId::Boottime, flags)?;
        Ok(Self { file: fd.into() })
    }

    /// Makes the descriptor readable once, `delay` from now, and replaces any earlier setting; at
    /// once if `delay` is zero.
    ///
    /// # Errors
    /// No error that a caller could act on.
    pub fn set(&self, delay: Duration) -> io::Result<()> {
        // A value of zero would disarm the timer.
        let delay = delay.max(Duration::from_nanos(1));
        let once = Itimerspec {
            it_interval: Timespec::default(),
            it_value: Timespec {
                tv_sec: delay.as_secs().try_into().unwrap_or(i64::MAX),
                tv_nsec: delay.subsec_nanos().into(),
            },
        };
        timerfd_settime(&self.file, TimerfdTimerFlags::empty(), &once)?;
        Ok(())
    }

    /// Acknowledges that the timer fired, after which it is not readable. Returns true if it has
    /// fired since it was set.
    pub fn drain(&self) -> bool {
        (&self.file).read(&mut [0; 8]).is_ok()
    }
}

impl AsFd for Timer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timer_fires_once_for_each_time_that_it_is_set() {
        let (poller, timer) = (Poller::new().unwrap(), Timer::new().unwrap());
        let mut events = Events::with_capacity(1);
        poller.add(&timer, 3, Interest::Readable).unwrap();
        for delay in [Duration::ZERO, Duration::from_millis(2)] {
            assert!(!timer.drain());
            timer.set(delay).unwrap();
            assert_eq!(poller.wait(&mut events, None).unwrap(), 1);
            assert_eq!(events.iter().next().unwrap().token, 3);
            assert!(timer.drain());
            assert_eq!(poller.wait(&mut events, Some(Duration::ZERO)).unwrap(), 0);
        }
        timer.set(Duration::ZERO).unwrap();
        timer.set(Duration::from_secs(3600)).unwrap();
        assert!(!timer.drain());
    }

    #[test]
    fn a_wake_is_seen_once_and_by_level_until_drained() {
        let (poller, waker) = (Poller::new().unwrap(), EventFd::new().unwrap());
        let mut events = Events::with_capacity(4);
        poller.add(&waker, 7, Interest::Readable).unwrap();
        assert_eq!(poller.wait(&mut events, Some(Duration::ZERO)).unwrap(), 0);

        std::thread::scope(|scope| {
            scope.spawn(|| {
                waker.wake();
                waker.wake();
            });
        });
        for _ in 0..2 {
            assert_eq!(poller.wait(&mut events, None).unwrap(), 1);
            let event = events.iter().next().unwrap();
            assert_eq!((event.token, event.readable, event.writable), (7, true, false));
        }
        assert!(waker.drain());
        assert!(!waker.drain());
        assert_eq!(poller.wait(&mut events, Some(Duration::ZERO)).unwrap(), 0);
    }

    #[test]
    fn a_set_in_a_set_is_ready_while_something_in_it_is() {
        let (outer, inner, waker) = (Poller::new().unwrap(), Poller::new().unwrap(), EventFd::new().unwrap());
        let mut events = Events::with_capacity(4);
        inner.add(&waker, 1, Interest::Readable).unwrap();
        outer.add(&inner, 2, Interest::Readable).unwrap();
        assert_eq!(outer.wait(&mut events, Some(Duration::ZERO)).unwrap(), 0);
        waker.wake();
        for _ in 0..2 {
            assert_eq!(outer.wait(&mut events, None).unwrap(), 1);
            assert_eq!(events.iter().next().unwrap().token, 2);
        }
        assert!(waker.drain());
        assert_eq!(outer.wait(&mut events, Some(Duration::ZERO)).unwrap(), 0);
    }

    #[test]
    fn room_is_there_at_once_and_waited_for_where_it_is_not() {
        let (reader, writer) = std::io::pipe().unwrap();
        assert!(wait_writable(&writer, Duration::ZERO).unwrap());
        let mut pipe = File::from(OwnedFd::from(writer));
        rustix::io::ioctl_fionbio(&pipe, true).unwrap();
        while pipe.write(&[0; 4096]).is_ok() {}
        assert!(!wait_writable(&pipe, Duration::from_millis(1)).unwrap());
        // The reader is gone, which a write would report.
        drop(reader);
        assert!(wait_writable(&pipe, Duration::from_secs(60)).unwrap());
    }

    #[test]
    fn interest_and_token_change_and_leave() {
        let (poller, waker) = (Poller::new().unwrap(), EventFd::new().unwrap());
        let mut events = Events::with_capacity(1);
        poller.add(&waker, 1, Interest::Readable).unwrap();
        let twice = poller.add(&waker, 1, Interest::Readable).unwrap_err();
        assert_eq!(twice.kind(), io::ErrorKind::AlreadyExists);

        poller.modify(&waker, 2, Interest::Both).unwrap();
        assert_eq!(poller.wait(&mut events, None).unwrap(), 1);
        let event = events.iter().next().unwrap();
        assert_eq!((event.token, event.readable, event.writable), (2, false, true));

        poller.remove(&waker).unwrap();
        assert_eq!(poller.wait(&mut events, Some(Duration::ZERO)).unwrap(), 0);
        assert!(events.iter().next().is_none());
        let gone = poller.remove(&waker).unwrap_err();
        assert_eq!(gone.kind(), io::ErrorKind::NotFound);
    }
}
