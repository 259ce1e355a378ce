//! Pings: echo of ICMPv6 (RFC 4443, section 4) and of ICMP (RFC 792) from inside a host. They are
//! never fragmented: one that exceeds the path MTU known to the host is refused, and counts as lost.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, ipproto};

use super::{ProbeLog, ProbeReport, TrafficError};
use crate::host::Host;
use crate::nat::packet::checksum;

/// Type of an echo request of ICMPv6, and of ICMP.
const ECHO_REQUEST: [u8; 2] = [128, 8];
/// Type of an echo reply of ICMPv6, and of ICMP.
const ECHO_REPLY: [u8; 2] = [129, 0];
/// Maximum bytes of an IPv4 header, which is in front of what a raw IPv4 socket receives.
const IPV4_HEADER_MAX: usize = 60;
/// Type, code, checksum, identifier, sequence number.
const HEADER_LEN: usize = 8;
/// Bytes of the probe's number: echo's own sequence number is too short for long runs.
const NUMBER_LEN: usize = 8;

/// Options of pings.
#[derive(Debug, Clone, Copy)]
pub struct PingOptions {
    /// Interval between requests.
    pub interval: Duration,
    /// Bytes behind the ICMP header, at least 8.
    pub payload: usize,
    /// Source address; `None` means the one that the host selects.
    pub source: Option<IpAddr>,
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
            source: None,
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
    /// If no raw socket is available, for lack of CAP_NET_RAW in the host's namespace, or the host
    /// does not have the source address.
    pub fn start(host: &Host, target: impl Into<IpAddr>, options: PingOptions) -> Result<Self, TrafficError> {
        let target = target.into();
        let socket = host.run(|| raw_socket(target, options.source))?;
        let socket = socket.map_err(|source| TrafficError::Socket {
            what: "raw ICMP socket",
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
pub fn ping(
    host: &Host,
    target: impl Into<IpAddr>,
    count: u64,
    interval: Duration,
) -> Result<ProbeReport, TrafficError> {
    let options = PingOptions {
        interval,
        count: Some(count),
        ..PingOptions::default()
    };
    Pinger::start(host, target, options)?.join()
}

struct Session {
    socket: OwnedFd,
    target: IpAddr,
    identifier: u16,
    options: PingOptions,
    stop: Arc<AtomicBool>,
    start: Instant,
    log: ProbeLog,
}

impl Session {
    fn run(mut self) -> ProbeLog {
        let mut next = Instant::now();
        let mut last = next;
        let mut left = self.options.count;
        while left != Some(0) && !self.stop.load(Ordering::Relaxed) {
            self.send();
            last = Instant::now();
            left = left.map(|n| n - 1);
            next += self.options.interval;
            self.receive_until(next, |_| false);
        }
        // The interval after the last request is part of the grace.
        self.receive_until(last + self.options.grace, |log| log.outstanding() == 0);
        self.log
    }

    fn send(&mut self) {
        let number = self.log.sent(self.start.elapsed());
        let mut message = vec![0; HEADER_LEN + self.options.payload.max(NUMBER_LEN)];
        message[0] = ECHO_REQUEST[family(self.target)];
        message[4..6].copy_from_slice(&self.identifier.to_be_bytes());
        message[6..8].copy_from_slice(&(number as u16).to_be_bytes());
        message[8..16].copy_from_slice(&number.to_be_bytes());
        // The kernel completes the checksum of a raw ICMPv6 socket (RFC 3542, section 3.1).
        if self.target.is_ipv4() {
            let sum = checksum(&message);
            message[2..4].copy_from_slice(&sum.to_be_bytes());
        }
        let target = SocketAddr::new(self.target, 0);
        if rustix::net::sendto(&self.socket, &message, SendFlags::empty(), &target).is_err() {
            self.log.refused();
        }
    }

    fn receive_until(&mut self, deadline: Instant, enough: impl Fn(&ProbeLog) -> bool) {
        let mut buf = [0; IPV4_HEADER_MAX + HEADER_LEN + NUMBER_LEN];
        while !enough(&self.log) && wait_readable(&self.socket, deadline) {
            // A longer message is truncated, which removes only padding. MSG_TRUNC is not set.
            let received = rustix::net::recvfrom(&self.socket, &mut buf[..], RecvFlags::DONTWAIT);
            let Ok((len, _, Some(source))) = received else {
                continue;
            };
            let from_target = SocketAddr::try_from(source).is_ok_and(|source| source.ip() == self.target);
            let received = buf.get(..len).unwrap_or_default();
            if let Some(number) = answer(received, self.target, self.identifier).filter(|_| from_target) {
                self.log.arrived(number, self.start.elapsed());
            }
        }
    }
}

/// The number in an echo reply to `identifier` in what a raw socket of the target's family received;
/// `None` for any other message.
fn answer(received: &[u8], target: IpAddr, identifier: u16) -> Option<u64> {
    let message = match target {
        IpAddr::V4(_) => received.get(usize::from(received.first()? & 0x0f) * 4..)?,
        IpAddr::V6(_) => received,
    };
    let (&header, rest) = message.split_first_chunk::<HEADER_LEN>()?;
    let [kind, 0, _, _, id_high, id_low, _, _] = header else {
        return None;
    };
    let number = rest.first_chunk::<NUMBER_LEN>()?;
    let ours = kind == ECHO_REPLY[family(target)] && u16::from_be_bytes([id_high, id_low]) == identifier;
    ours.then(|| u64::from_be_bytes(*number))
}

/// The place of a target's family in [`ECHO_REQUEST`] and [`ECHO_REPLY`].
fn family(target: IpAddr) -> usize {
    usize::from(target.is_ipv4())
}

fn raw_socket(target: IpAddr, source: Option<IpAddr>) -> io::Result<OwnedFd> {
    let (family, protocol) = match target {
        IpAddr::V4(_) => (AddressFamily::INET, ipproto::ICMP),
        IpAddr::V6(_) => (AddressFamily::INET6, ipproto::ICMPV6),
    };
    let socket = rustix::net::socket_with(family, SocketType::RAW, SocketFlags::CLOEXEC, Some(protocol))?;
    weft_os::icmp::forbid_fragments(&socket, target)?;
    if let Some(source) = source {
        rustix::net::bind(&socket, &SocketAddr::new(source, 0))?;
    }
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
        message[4..6].copy_from_slice(&700_u16.to_be_bytes());
        message[8..].copy_from_slice(&70_000_u64.to_be_bytes());
        // The header of IPv4 has its own length: here with one word of options.
        let mut header = [0; 24];
        header[0] = 0x46;
        for (target, header) in [("fd00::1", &[][..]), ("10.0.0.1", &header)] {
            let target = target.parse().unwrap();
            let answer = |message: &[u8], identifier| answer(&[header, message].concat(), target, identifier);
            message[0] = ECHO_REPLY[family(target)];
            assert_eq!(answer(&message, 700), Some(70_000));
            assert_eq!(answer(&message, 701), None);
            assert_eq!(answer(&message[..15], 700), None);
            assert_eq!(answer(&[], 700), None);
            message[0] = ECHO_REQUEST[family(target)];
            assert_eq!(answer(&message, 700), None);
        }
        assert_eq!(super::answer(&[], "10.0.0.1".parse().unwrap(), 700), None);
    }
}
