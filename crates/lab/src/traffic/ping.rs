//! Pings: ICMPv6 echo (RFC 4443, section 4) from inside a host. They are never fragmented: one that
//! exceeds the path MTU known to the host is refused, and counts as lost.

use std::io;
use std::net::{Ipv6Addr, SocketAddrV6};
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, ipproto};

use super::{ProbeLog, ProbeReport, TrafficError};
use crate::host::Host;

const ECHO_REQUEST: u8 = 128;
const ECHO_REPLY: u8 = 129;
/// Type, code, checksum, identifier, sequence number.
const HEADER_LEN: usize = 8;
/// Bytes of the probe's number: echo's own sequence number is too short for long runs.
const NUMBER_LEN: usize = 8;

/// Options of pings.
#[derive(Debug, Clone, Copy)]
pub struct PingOptions {
    /// Interval between requests.
    pub interval: Duration,
    /// Bytes behind the ICMPv6 header, at least 8.
    pub payload: usize,
    /// Number of requests; `None` means until stopped.
    pub count: Option<u64>,
    /// How long to wait for answers after the last request.
    pub grace: Duration,
}

impl Default for PingOptions {
    /// Ten a second, 56 bytes, until stopped, one second of grace.
    fn default() -> Self {
        Self {
            interval: Duration::from_millis(100),
            payload: 56,
            count: None,
            grace: Duration::from_secs(1),
        }
    }
}

/// Pings in the background. Ends when this is dropped.
pub struct Pinger {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<ProbeLog>>,
}

impl Pinger {
    /// Starts to ping `target` from `host`. A request that the system refuses to send (no route
    /// yet, for example) counts as lost.
    ///
    /// # Errors
    /// If no raw socket is available, for lack of CAP_NET_RAW in the host's namespace.
    pub fn start(host: &Host, target: Ipv6Addr, options: PingOptions) -> Result<Self, TrafficError> {
        let socket = host.run(raw_socket)?.map_err(|source| TrafficError::Socket {
            what: "raw ICMPv6 socket",
            source,
        })?;
        let stop = Arc::new(AtomicBool::new(false));
        let session = Session {
            socket,
            target,
            identifier: next_identifier(),
            options,
            stop: Arc::clone(&stop),
            start: Instant::now(),
            log: ProbeLog::default(),
        };
        let thread = std::thread::spawn(move || session.run());
        Ok(Self {
            stop,
            thread: Some(thread),
        })
    }

    /// Stops sending, waits for the last answers (at most the grace) and returns the report.
    ///
    /// # Errors
    /// [`TrafficError::Lost`].
    pub fn stop(self) -> Result<ProbeReport, TrafficError> {
        self.stop.store(true, Ordering::Relaxed);
        self.join()
    }

    /// Waits until all requests are sent and answered, or the grace is over. With no
    /// [`count`](PingOptions::count) that is never.
    ///
    /// # Errors
    /// [`TrafficError::Lost`].
    pub fn join(mut self) -> Result<ProbeReport, TrafficError> {
        let thread = self.thread.take().ok_or(TrafficError::Lost)?;
        let log = thread.join().map_err(|_| TrafficError::Lost)?;
        Ok(log.report())
    }
}

impl Drop for Pinger {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// Sends `count` pings, `interval` apart, and waits for the answers.
///
/// # Errors
/// Like [`Pinger::start`]; unanswered pings are in the report.
pub fn ping(host: &Host, target: Ipv6Addr, count: u64, interval: Duration) -> Result<ProbeReport, TrafficError> {
    let options = PingOptions {
        interval,
        count: Some(count),
        ..PingOptions::default()
    };
    Pinger::start(host, target, options)?.join()
}

struct Session {
    socket: OwnedFd,
    target: Ipv6Addr,
    identifier: u16,
    options: PingOptions,
    stop: Arc<AtomicBool>,
    start: Instant,
    log: ProbeLog,
}

impl Session {
    fn run(mut self) -> ProbeLog {
        let mut next = Instant::now();
        let mut left = self.options.count;
        while left != Some(0) && !self.stop.load(Ordering::Relaxed) {
            self.send();
            left = left.map(|n| n - 1);
            next += self.options.interval;
            self.receive_until(next, |_| false);
        }
        // The interval after the last request is part of the grace.
        let end = next - self.options.interval + self.options.grace;
        self.receive_until(end, |log| log.outstanding() == 0);
        self.log
    }

    fn send(&mut self) {
        let number = self.log.sent(self.start.elapsed());
        let mut message = vec![0; HEADER_LEN + self.options.payload.max(NUMBER_LEN)];
        // The kernel completes the checksum of a raw ICMPv6 socket (RFC 3542, section 3.1).
        message[0] = ECHO_REQUEST;
        message[4..6].copy_from_slice(&self.identifier.to_be_bytes());
        message[6..8].copy_from_slice(&(number as u16).to_be_bytes());
        message[8..16].copy_from_slice(&number.to_be_bytes());
        let target = SocketAddrV6::new(self.target, 0, 0, 0);
        if rustix::net::sendto(&self.socket, &message, SendFlags::empty(), &target).is_err() {
            self.log.refused();
        }
    }

    fn receive_until(&mut self, deadline: Instant, enough: impl Fn(&ProbeLog) -> bool) {
        let mut buf = [0; HEADER_LEN + NUMBER_LEN];
        while !enough(&self.log) && wait_readable(&self.socket, deadline) {
            // A longer message is truncated, which removes only padding. MSG_TRUNC is not set.
            let received = rustix::net::recvfrom(&self.socket, &mut buf[..], RecvFlags::DONTWAIT);
            let Ok((len, _, Some(source))) = received else {
                continue;
            };
            let from_target = SocketAddrV6::try_from(source).is_ok_and(|source| *source.ip() == self.target);
            let message = buf.get(..len).unwrap_or_default();
            if let Some(number) = answer(message, self.identifier).filter(|_| from_target) {
                self.log.arrived(number, self.start.elapsed());
            }
        }
    }
}

/// The number in an echo reply to `identifier`; `None` for any other message.
fn answer(message: &[u8], identifier: u16) -> Option<u64> {
    let (&header, rest) = message.split_first_chunk::<HEADER_LEN>()?;
    let [kind, 0, _, _, id_high, id_low, _, _] = header else {
        return None;
    };
    let number = rest.first_chunk::<NUMBER_LEN>()?;
    (kind == ECHO_REPLY && u16::from_be_bytes([id_high, id_low]) == identifier).then(|| u64::from_be_bytes(*number))
}

fn raw_socket() -> io::Result<OwnedFd> {
    let protocol = Some(ipproto::ICMPV6);
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::INET6, SocketType::RAW, flags, protocol)?;
    weft_os::icmp::forbid_fragments(&socket)?;
    Ok(socket)
}

/// Every pinger of this process gets its own identifier: a raw socket receives all answers to its
/// host.
fn next_identifier() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Waits until there is something to read; false if `deadline` has passed.
fn wait_readable(socket: &OwnedFd, deadline: Instant) -> bool {
    let left = deadline.saturating_duration_since(Instant::now());
    let timeout = Timespec::try_from(left).ok();
    let mut set = [PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::IN)];
    match rustix::event::poll(&mut set, timeout.as_ref()) {
        Ok(ready) => ready > 0,
        Err(error) => io::Error::from(error).kind() == io::ErrorKind::Interrupted,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_its_own_answers_only() {
        let mut message = [0; 16];
        message[0] = ECHO_REPLY;
        message[4..6].copy_from_slice(&700_u16.to_be_bytes());
        message[8..].copy_from_slice(&70_000_u64.to_be_bytes());
        assert_eq!(answer(&message, 700), Some(70_000));
        assert_eq!(answer(&message, 701), None);
        assert_eq!(answer(&message[..15], 700), None);
        assert_eq!(answer(&[], 700), None);
        message[0] = ECHO_REQUEST;
        assert_eq!(answer(&message, 700), None);
    }
}
