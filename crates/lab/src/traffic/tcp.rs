//! TCP with verified content: one stream of seeded data, hashed at both ends.

use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Shutdown, TcpListener, TcpStream};
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use serde::Serialize;
use sha2::{Digest as _, Sha256};

use super::{Payload, TrafficError};
use crate::host::Host;

/// Bytes written at a time, and hashed at a time.
const BLOCK: usize = 64 * 1024;

/// How often a blocked thread checks its deadline.
const TICK: Duration = Duration::from_millis(100);

/// When a flow ends.
#[derive(Debug, Clone, Copy)]
pub enum Limit {
    /// After this many bytes.
    Bytes(u64),
    /// When [`TcpFlow::stop`] is called.
    Stopped,
    /// When [`TcpFlow::stop`] is called; sends at most this many bytes a second until then.
    Paced(u64),
}

/// One TCP stream in one direction, in the background. Ends when it is dropped.
pub struct TcpFlow {
    stop: Arc<AtomicBool>,
    received: Arc<AtomicU64>,
    sender: Option<JoinHandle<Result<[u8; 32], TrafficError>>>,
    receiver: Option<JoinHandle<Result<Received, TrafficError>>>,
}

/// The result of a TCP stream.
#[derive(Debug, Clone, Serialize)]
pub struct TcpReport {
    /// Bytes received.
    pub bytes: u64,
    /// From the accepted connection to the last byte.
    pub seconds: f64,
    /// Throughput in bits per microsecond.
    pub mbit_s: f64,
    /// The longest time without a byte, in milliseconds.
    pub longest_stall_ms: f64,
    /// Whether SHA-256 is the same at both ends.
    pub hash_ok: bool,
}

struct Received {
    bytes: u64,
    time: Duration,
    longest_stall: Duration,
    hash: [u8; 32],
}

impl TcpFlow {
    /// Starts a stream from host `from` to address `to_addr` of host `to`, on a free port. The data
    /// is generated from `seed`. The flow fails when `deadline` has passed.
    ///
    /// # Errors
    /// If `to` cannot listen on the address. [`TcpFlow::join`] returns later errors.
    pub fn start(
        (from, to): (&Host, &Host),
        to_addr: IpAddr,
        limit: Limit,
        seed: u64,
        deadline: Duration,
    ) -> Result<Self, TrafficError> {
        let no_listener = |source| TrafficError::Socket {
            what: "listening TCP socket",
            source,
        };
        let listener = to.run(move || TcpListener::bind((to_addr, 0)))?.map_err(no_listener)?;
        let addr = listener.local_addr().map_err(no_listener)?;
        let (stop, received) = (Arc::new(AtomicBool::new(false)), Arc::default());
        let clock = Deadline::new(deadline);
        let progress = Arc::clone(&received);
        let receiver = std::thread::spawn(move || {
            let stream = accept(&listener, clock)?;
            receive(stream, &progress, clock)
        });
        let (host, ended) = (from.clone(), Arc::clone(&stop));
        let sender = std::thread::spawn(move || {
            // Only the socket has to be created inside the namespace.
            let stream = host
                .run(move || TcpStream::connect_timeout(&addr, deadline))?
                .map_err(|source| TrafficError::Connect { addr, source })?;
            send(stream, limit, seed, &ended, clock)
        });
        Ok(Self {
            stop,
            received,
            sender: Some(sender),
            receiver: Some(receiver),
        })
    }

    /// Bytes received so far.
    #[must_use]
    pub fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    /// Ends the stream after the current block, and returns the result.
    ///
    /// # Errors
    /// Like [`TcpFlow::join`].
    pub fn stop(self) -> Result<TcpReport, TrafficError> {
        self.stop.store(true, Ordering::Relaxed);
        self.join()
    }

    /// Waits for the end of the stream, at most until its deadline. With [`Limit::Stopped`] that is
    /// always the deadline.
    ///
    /// # Errors
    /// If the stream broke off or did not end in time; the receiver's error takes precedence.
    pub fn join(mut self) -> Result<TcpReport, TrafficError> {
        let sent = wait(self.sender.take());
        let received = wait(self.receiver.take());
        // If the receiver had no connection, the sender's error is more informative.
        if let (Err(TrafficError::NotAccepted(_)), Err(_)) = (&received, &sent) {
            return Err(sent.err().unwrap_or(TrafficError::Lost));
        }
        let (received, hash) = (received?, sent?);
        let seconds = received.time.as_secs_f64();
        Ok(TcpReport {
            bytes: received.bytes,
            seconds,
            mbit_s: received.bytes as f64 * 8e-6 / seconds.max(1e-9),
            longest_stall_ms: received.longest_stall.as_secs_f64() * 1e3,
            hash_ok: received.hash == hash,
        })
    }
}

impl Drop for TcpFlow {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// Sends `bytes` bytes over one TCP stream and waits for the end.
///
/// # Errors
/// Like [`TcpFlow::join`].
pub fn transfer(
    hosts: (&Host, &Host),
    to_addr: IpAddr,
    bytes: u64,
    seed: u64,
    deadline: Duration,
) -> Result<TcpReport, TrafficError> {
    TcpFlow::start(hosts, to_addr, Limit::Bytes(bytes), seed, deadline)?.join()
}

fn wait<T>(thread: Option<JoinHandle<Result<T, TrafficError>>>) -> Result<T, TrafficError> {
    let thread = thread.ok_or(TrafficError::Lost)?;
    thread.join().map_err(|_| TrafficError::Lost)?
}

#[derive(Clone, Copy)]
struct Deadline {
    start: Instant,
    after: Duration,
}

impl Deadline {
    fn new(after: Duration) -> Self {
        Self {
            start: Instant::now(),
            after,
        }
    }

    fn left(self) -> Duration {
        self.after.saturating_sub(self.start.elapsed())
    }

    /// Returns an error if the deadline has passed.
    fn check(self, end: &'static str, bytes: u64) -> Result<(), TrafficError> {
        if !self.left().is_zero() {
            return Ok(());
        }
        Err(TrafficError::Deadline {
            end,
            bytes,
            after: self.after,
        })
    }

    /// Sorts the error of a socket call into "try again" and fatal.
    fn judge(self, error: io::Error, end: &'static str, bytes: u64) -> Result<(), TrafficError> {
        use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
        match error.kind() {
            Interrupted | TimedOut | WouldBlock if self.left().is_zero() => self.check(end, bytes),
            // Linux returns EAGAIN at the end of a tick; ETIMEDOUT means that TCP gave up.
            Interrupted | WouldBlock => Ok(()),
            _ => Err(TrafficError::Broken {
                end,
                bytes,
                source: error,
            }),
        }
    }
}

fn accept(listener: &TcpListener, deadline: Deadline) -> Result<TcpStream, TrafficError> {
    let failed = |source| TrafficError::Socket {
        what: "accepted TCP connection",
        source,
    };
    let timeout = Timespec::try_from(deadline.left()).ok();
    let mut set = [PollFd::from_borrowed_fd(listener.as_fd(), PollFlags::IN)];
    let ready = rustix::event::poll(&mut set, timeout.as_ref());
    if ready.map_err(|error| failed(error.into()))? == 0 {
        return Err(TrafficError::NotAccepted(deadline.after));
    }
    listener.accept().map(|(stream, _)| stream).map_err(failed)
}

fn send(
    mut stream: TcpStream,
    limit: Limit,
    seed: u64,
    stop: &AtomicBool,
    deadline: Deadline,
) -> Result<[u8; 32], TrafficError> {
    let broken = |bytes| {
        move |source| TrafficError::Broken {
            end: "sender",
            bytes,
            source,
        }
    };
    stream.set_write_timeout(Some(TICK)).map_err(broken(0))?;
    let mut payload = Payload::new(seed);
    let mut hash = Sha256::new();
    let mut block = vec![0; BLOCK];
    let mut total = 0;
    let mut pace = Pace::new(limit);
    loop {
        let len = match limit {
            Limit::Bytes(bytes) => (bytes - total).min(BLOCK as u64) as usize,
            Limit::Stopped | Limit::Paced(_) if stop.load(Ordering::Relaxed) => 0,
            Limit::Stopped => BLOCK,
            Limit::Paced(_) => pace.next_block(),
        };
        let Some(data) = block.get_mut(..len).filter(|data| !data.is_empty()) else {
            break;
        };
        payload.fill(data);
        hash.update(&*data);
        let mut rest = &*data;
        while !rest.is_empty() {
            match stream.write(rest) {
                Ok(count) => {
                    rest = rest.get(count..).unwrap_or_default();
                    total += count as u64;
                }
                Err(error) => deadline.judge(error, "sender", total)?,
            }
        }
    }
    stream.shutdown(Shutdown::Write).map_err(broken(total))?;
    Ok(hash.finalize().into())
}

/// Spreads a [`Limit::Paced`] flow: ten blocks a second, or more if they would be too long. A stall
/// is not made up for.
struct Pace {
    block: usize,
    interval: Duration,
    next: Instant,
}

impl Pace {
    fn new(limit: Limit) -> Self {
        let (block, interval) = match limit {
            Limit::Paced(rate) => {
                let block = (rate / 10).clamp(1, BLOCK as u64);
                (
                    block as usize,
                    Duration::from_secs_f64(block as f64 / rate.max(1) as f64),
                )
            }
            _ => (BLOCK, TICK),
        };
        let next = Instant::now();
        Self { block, interval, next }
    }

    /// Waits for the time of the next block and returns its length.
    fn next_block(&mut self) -> usize {
        let now = Instant::now();
        std::thread::sleep(self.next.saturating_duration_since(now));
        self.next = self.next.max(now) + self.interval;
        self.block
    }
}

fn receive(mut stream: TcpStream, progress: &AtomicU64, deadline: Deadline) -> Result<Received, TrafficError> {
    let broken = |source| TrafficError::Broken {
        end: "receiver",
        bytes: 0,
        source,
    };
    stream.set_read_timeout(Some(TICK)).map_err(broken)?;
    let mut hash = Sha256::new();
    let mut buf = vec![0; 4 * BLOCK];
    let start = Instant::now();
    let (mut last, mut longest_stall, mut bytes) = (start, Duration::ZERO, 0);
    loop {
        match stream.read(&mut buf) {
            Ok(0) => break,
            Ok(count) => {
                let now = Instant::now();
                longest_stall = longest_stall.max(now - last);
                last = now;
                hash.update(buf.get(..count).unwrap_or_default());
                bytes += count as u64;
                progress.store(bytes, Ordering::Relaxed);
                deadline.check("receiver", bytes)?;
            }
            Err(error) => deadline.judge(error, "receiver", bytes)?,
        }
    }
    Ok(Received {
        bytes,
        time: last - start,
        longest_stall,
        hash: hash.finalize().into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_paced_flow_has_its_rate_slow_or_fast() {
        for rate in [1, 15, 100_000, 655_360, 2_000_000, 100_000_000] {
            let pace = Pace::new(Limit::Paced(rate));
            let found = pace.block as f64 / pace.interval.as_secs_f64();
            assert!((found / rate as f64 - 1.0).abs() < 0.01, "{rate}: {found}");
            assert!(pace.block <= BLOCK);
        }
    }
}
