//! A numbered UDP flow in one direction: loss, order and the longest silence.

use std::net::{IpAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::net::sockopt::{set_socket_recv_buffer_size, set_socket_recv_buffer_size_force};

use super::{ProbeLog, ProbeReport, TrafficError};
use crate::host::Host;

/// Bytes of the number at the start of each datagram.
const NUMBER_LEN: usize = 8;

/// Bytes of the receiver's buffer: a machine that stands still for a moment loses no datagram.
const BUFFER: usize = 8 << 20;

/// How often the receiver checks whether the flow has ended.
const TICK: Duration = Duration::from_millis(20);

/// Options of a flow.
#[derive(Debug, Clone, Copy)]
pub struct UdpOptions {
    /// Interval between datagrams.
    pub interval: Duration,
    /// UDP payload in bytes, at least 8.
    pub payload: usize,
    /// How long to wait for late datagrams after the last one.
    pub grace: Duration,
}

impl Default for UdpOptions {
    /// A hundred a second, 200 bytes, one second of grace.
    fn default() -> Self {
        Self {
            interval: Duration::from_millis(10),
            payload: 200,
            grace: Duration::from_secs(1),
        }
    }
}

/// A flow in the background. Ends when it is dropped.
pub struct UdpFlow {
    log: Arc<Mutex<ProbeLog>>,
    sending: Arc<AtomicBool>,
    receiving: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
    grace: Duration,
}

impl UdpFlow {
    /// Starts a flow from host `from` to address `to_addr` of host `to`.
    ///
    /// # Errors
    /// If a socket cannot be created. Datagrams that the system refuses to send count as lost.
    pub fn start((from, to): (&Host, &Host), to_addr: IpAddr, options: UdpOptions) -> Result<Self, TrafficError> {
        let no_socket = |source| TrafficError::Socket {
            what: "UDP socket",
            source,
        };
        let sink = to.run(move || UdpSocket::bind((to_addr, 0)))?.map_err(no_socket)?;
        sink.set_read_timeout(Some(TICK)).map_err(no_socket)?;
        // Only root may exceed the system's maximum.
        if set_socket_recv_buffer_size_force(&sink, BUFFER).is_err() {
            set_socket_recv_buffer_size(&sink, BUFFER).map_err(|error| no_socket(error.into()))?;
        }
        let target = sink.local_addr().map_err(no_socket)?;
        let any: IpAddr = match to_addr {
            IpAddr::V4(_) => [0; 4].into(),
            IpAddr::V6(_) => [0_u16; 8].into(),
        };
        let source = from.run(move || UdpSocket::bind((any, 0)))?.map_err(no_socket)?;

        let log = Arc::new(Mutex::new(ProbeLog::default()));
        let (sending, receiving) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicBool::new(true)));
        let start = Instant::now();
        let (sender_log, on) = (Arc::clone(&log), Arc::clone(&sending));
        let sender = std::thread::spawn(move || {
            let mut datagram = vec![0; options.payload.max(NUMBER_LEN)];
            let mut next = Instant::now();
            while on.load(Ordering::Relaxed) {
                let number = with(&sender_log, |log| log.sent(start.elapsed()));
                datagram[..NUMBER_LEN].copy_from_slice(&number.to_be_bytes());
                if source.send_to(&datagram, target).is_err() {
                    with(&sender_log, ProbeLog::refused);
                }
                // What was not sent in time is not sent later: a burst would lose some.
                next = (next + options.interval).max(Instant::now());
                std::thread::sleep(next.saturating_duration_since(Instant::now()));
            }
        });
        let (receiver_log, on) = (Arc::clone(&log), Arc::clone(&receiving));
        let receiver = std::thread::spawn(move || {
            let mut buf = [0; NUMBER_LEN];
            while on.load(Ordering::Relaxed) {
                if let Ok(NUMBER_LEN) = sink.recv(&mut buf) {
                    let number = u64::from_be_bytes(buf);
                    with(&receiver_log, |log| log.arrived(number, start.elapsed()));
                }
            }
        });
        Ok(Self {
            log,
            sending,
            receiving,
            threads: vec![sender, receiver],
            grace: options.grace,
        })
    }

    /// Datagrams sent so far.
    #[must_use]
    pub fn sent(&self) -> u64 {
        with(&self.log, |log| log.count())
    }

    /// Stops sending, waits for late datagrams (at most the grace) and returns the report. Its
    /// times are one-way delays.
    ///
    /// # Errors
    /// [`TrafficError::Lost`].
    pub fn stop(mut self) -> Result<ProbeReport, TrafficError> {
        self.sending.store(false, Ordering::Relaxed);
        let end = Instant::now() + self.grace;
        while Instant::now() < end && with(&self.log, |log| log.outstanding()) > 0 {
            std::thread::sleep(TICK);
        }
        self.receiving.store(false, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            thread.join().map_err(|_| TrafficError::Lost)?;
        }
        Ok(with(&self.log, |log| log.report()))
    }
}

impl Drop for UdpFlow {
    fn drop(&mut self) {
        self.sending.store(false, Ordering::Relaxed);
        self.receiving.store(false, Ordering::Relaxed);
    }
}

fn with<T>(log: &Mutex<ProbeLog>, f: impl FnOnce(&mut ProbeLog) -> T) -> T {
    f(&mut log.lock().unwrap_or_else(PoisonError::into_inner))
}
