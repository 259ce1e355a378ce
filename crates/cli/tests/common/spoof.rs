//! The abilities of an attacker on the network: datagrams with source addresses of other hosts, and
//! a copy of what other hosts send.
#![allow(dead_code, unreachable_pub)]

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use socket2::{Domain, Protocol, Socket, Type};
use weft_lab::host::Host;

/// The interval in which a thread checks whether it shall end.
const TICK: Duration = Duration::from_millis(50);

/// The protocol number of IPv4 in a packet socket.
const ETH_P_IP: u16 = 0x0800;

const UDP: u8 = 17;

/// A socket on `host` whose datagrams have the source `source`, which may belong to any host. It
/// receives what is sent to that address if the host has it, and nothing otherwise.
pub fn from_anywhere(host: &Host, source: SocketAddr) -> UdpSocket {
    host.run(|| {
        let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP)).unwrap();
        // Permits a source address that does not belong to this host.
        socket.set_ip_transparent_v4(true).unwrap();
        socket.bind(&source.into()).unwrap();
        socket.set_nonblocking(true).unwrap();
        socket.into()
    })
    .unwrap()
}

/// Receives a copy of the UDP datagrams that arrive at a host, as an observer on the same network
/// does. Ends when it is dropped.
pub struct Tap {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Tap {
    /// `see` gets the source and the payload of each datagram.
    pub fn start(host: &Host, mut see: impl FnMut(SocketAddr, &[u8]) + Send + 'static) -> Self {
        // ETH_P_IP in network byte order, and no link-layer header (packet(7)).
        let protocol = Protocol::from(i32::from(ETH_P_IP.to_be()));
        let socket = host
            .run(|| Socket::new(Domain::PACKET, Type::DGRAM, Some(protocol)))
            .unwrap()
            .unwrap();
        socket.set_read_timeout(Some(TICK)).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            use std::io::Read as _;
            let (mut socket, mut packet) = (socket, vec![0; 65_535]);
            while !told.load(Ordering::Relaxed) {
                if let Ok(len) = socket.read(&mut packet)
                    && let Some((source, payload)) = udp(&packet[..len])
                {
                    see(source, payload);
                }
            }
        });
        Self {
            stop,
            thread: Some(thread),
        }
    }
}

impl Drop for Tap {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

/// The source and the payload of a UDP datagram that is one packet.
fn udp(packet: &[u8]) -> Option<(SocketAddr, &[u8])> {
    const UDP_HEADER: usize = 8;
    let header = usize::from(packet.first()? & 0xf) * 4;
    let ip: [u8; 4] = packet.get(12..16)?.try_into().ok()?;
    let segment = packet.get(header..)?;
    let port = u16::from_be_bytes([*segment.first()?, *segment.get(1)?]);
    let source = SocketAddrV4::new(Ipv4Addr::from(ip), port);
    (packet[9] == UDP).then_some((source.into(), segment.get(UDP_HEADER..)?))
}

/// A sequence of datagrams that is sent continuously.
pub trait Flood: Send {
    /// Sends the next ones and returns their number.
    fn next(&mut self) -> u64;
}

impl<F: FnMut() -> u64 + Send> Flood for F {
    fn next(&mut self) -> u64 {
        self()
    }
}

/// A flood in the background. Ends when it is dropped.
pub struct Running {
    stop: Arc<AtomicBool>,
    sent: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    /// Sends `rate` datagrams a second, or as many as the machine can send.
    pub fn start(rate: u64, mut flood: Box<dyn Flood>) -> Self {
        let (stop, sent) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (told, count) = (Arc::clone(&stop), Arc::clone(&sent));
        let thread = std::thread::spawn(move || {
            // Datagrams that were not sent in time are not sent later: the rate counts, not the
            // number.
            const BACKLOG: u64 = 20;
            let (mut last, mut owed) = (Instant::now(), 0);
            while !told.load(Ordering::Relaxed) {
                let now = Instant::now();
                owed = (owed + rate * (now - last).as_nanos() as u64).min(rate * BACKLOG * 1_000_000);
                last = now;
                while owed >= 1_000_000_000 {
                    let datagrams = flood.next();
                    count.fetch_add(datagrams, Ordering::Relaxed);
                    owed = owed.saturating_sub(datagrams.max(1) * 1_000_000_000);
                }
                std::thread::sleep(Duration::from_micros(500));
            }
        });
        Self {
            stop,
            sent,
            thread: Some(thread),
        }
    }

    /// Number of datagrams sent so far.
    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// Ends it and returns the number of datagrams sent.
    pub fn stop(mut self) -> u64 {
        self.end();
        self.sent()
    }

    fn end(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            assert!(
                ended.is_ok() || std::thread::panicking(),
                "a flood's thread has panicked"
            );
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
    }
}
