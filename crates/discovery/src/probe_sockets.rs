//! Sockets that send probes beside the ordinary ones: for a search for a port of a NAT, or to find out
//! how long NATs keep mappings. They are opened for that, read by a thread of their own meanwhile, and
//! closed at its end. Otherwise there are none, and no thread.
//! docs/protocol/reach.md, "Search" and "Lifetimes".

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::sync::mpsc::{self, Receiver, Sender};
use weft_os::poll::{EventFd, Events, Interest, Poller};
use weft_os::udp::{BindOptions, UdpSocket};
use weft_reach::probe::Probe;

/// Datagrams that are read at once.
const READS: usize = 32;
/// The pause after that. So strangers that flood the sockets cost at most 3,200 datagrams a second;
/// a search has 300.
const PAUSE: Duration = Duration::from_millis(10);
/// Batches of datagrams that wait for the daemon's loop. The kernel keeps the others, or drops them.
const WAITING: usize = 4;
/// Sockets that are closed again if the process has no descriptor left, for what else needs one.
const SPARED: usize = 32;
/// Buffers of a socket, in bytes: probes are few and small.
const BUFFER: usize = 16 << 10;
/// The token of the event that ends the thread; those of sockets are their numbers.
const END: u64 = u64::MAX;

const OPTIONS: BindOptions = BindOptions {
    receive_buffer: BUFFER,
    send_buffer: BUFFER,
    reuse_port: false,
    gro: false,
    gso: false,
    ipv6_only: true,
    deaf: false,
};

/// A datagram of the length of a probe that one of the sockets has received. Datagrams of other
/// lengths are dropped.
#[derive(Debug, PartialEq, Eq)]
pub struct Arrived {
    /// The number of the socket.
    pub socket: u16,
    /// The sender.
    pub from: SocketAddr,
    /// Its bytes.
    pub datagram: [u8; Probe::LEN],
}

/// The sockets of what goes on, if something does.
#[derive(Default)]
pub struct ProbeSockets(Option<Open>);

struct Open {
    shared: Arc<Shared>,
    /// The numbers of the sockets that links have adopted.
    taken: Vec<u16>,
    arrived: Mutex<Receiver<Vec<Arrived>>>,
    thread: Option<JoinHandle<()>>,
}

/// What the thread and the daemon's loop share.
struct Shared {
    sockets: Vec<UdpSocket>,
    poller: Poller,
    wake: EventFd,
    ends: AtomicBool,
}

impl ProbeSockets {
    /// Opens up to `count` sockets at an address of this host, each with a port of its own. Returns how
    /// many it could open. Those before are closed.
    pub fn open(&mut self, own: Option<IpAddr>, count: u16) -> u16 {
        self.close();
        let Some(own) = own else { return 0 };
        match Open::new(SocketAddr::new(own, 0), count) {
            Ok(open) => self.0 = Some(open),
            Err(error) => tracing::info!(%error, "no sockets for probes"),
        }
        self.0.as_ref().map_or(0, |open| open.shared.sockets.len() as u16)
    }

    /// Returns the port of one of them.
    pub fn port(&self, socket: u16) -> Option<u16> {
        let socket = self.0.as_ref()?.get(socket)?;
        Some(socket.local_address().port())
    }

    /// Closes all that are left.
    pub fn close(&mut self) {
        self.0 = None;
    }

    /// Sends a datagram from one of them. Returns whether it is there; what the system refuses is
    /// lost, as any probe may be.
    pub fn send(&self, socket: u16, to: SocketAddr, datagram: &[u8]) -> bool {
        let socket = self.0.as_ref().and_then(|open| open.get(socket));
        socket.is_some_and(|socket| {
            let _ = socket.send(to, datagram, None);
            true
        })
    }

    /// Hands a socket over to links, with the options of their sockets. The search no longer reads it.
    /// `None` if it is not there.
    ///
    /// # Errors
    /// The error of the system call; it is not there any more either.
    pub fn take(&mut self, socket: u16, options: BindOptions) -> Option<io::Result<UdpSocket>> {
        let open = self.0.as_mut()?;
        let found = open.get(socket)?;
        let _ = open.shared.poller.remove(found);
        let taken = found.refit(options);
        open.taken.push(socket);
        Some(taken)
    }

    /// Waits for datagrams, and returns them. Safe to cancel.
    pub async fn arrived(&self) -> Vec<Arrived> {
        if let Some(open) = &self.0
            && let Some(arrived) = open.arrived.lock().await.recv().await
        {
            return arrived;
        }
        std::future::pending().await
    }
}

/// Sends a datagram from a socket of its own, at an address of this host. What the system refuses is
/// lost.
pub fn send_aside(own: IpAddr, to: SocketAddr, datagram: &[u8]) {
    if let Ok(socket) = UdpSocket::bind(SocketAddr::new(own, 0), OPTIONS) {
        let _ = socket.send(to, datagram, None);
    }
}

impl Open {
    fn new(own: SocketAddr, count: u16) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            poller: Poller::new()?,
            wake: EventFd::new()?,
            sockets: bind(own, count),
            ends: AtomicBool::new(false),
        });
        shared.poller.add(&shared.wake, END, Interest::Readable)?;
        for (number, socket) in (0..).zip(&shared.sockets) {
            shared.poller.add(socket, number, Interest::Readable)?;
        }
        let (give, arrived) = mpsc::channel(WAITING);
        let of_thread = shared.clone();
        let thread = std::thread::Builder::new()
            .name("weft-probes".into())
            .spawn(move || of_thread.read_until_end(&give))?;
        Ok(Self {
            shared,
            taken: Vec::new(),
            arrived: Mutex::new(arrived),
            thread: Some(thread),
        })
    }

    fn get(&self, socket: u16) -> Option<&UdpSocket> {
        let sockets = &self.shared.sockets;
        sockets
            .get(usize::from(socket))
            .filter(|_| !self.taken.contains(&socket))
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.shared.ends.store(true, Ordering::Release);
        self.shared.wake.wake();
        // The thread may wait for room.
        self.arrived.get_mut().close();
        if let Some(thread) = self.thread.take() {
            // The message of a panic in it was already printed.
            let _ = thread.join();
        }
    }
}

/// Binds as many sockets as the system has, `count` at most.
fn bind(own: SocketAddr, count: u16) -> Vec<UdpSocket> {
    let mut sockets = Vec::new();
    while sockets.len() < usize::from(count) {
        match UdpSocket::bind(own, OPTIONS) {
            Ok(socket) => sockets.push(socket),
            Err(error) => {
                tracing::info!(%error, opened = sockets.len(), "probes have fewer sockets than they want");
                if error.is_out_of_descriptors() {
                    sockets.truncate(sockets.len().saturating_sub(SPARED));
                }
                break;
            }
        }
    }
    sockets
}

impl Shared {
    fn read_until_end(&self, give: &Sender<Vec<Arrived>>) {
        let mut events = Events::with_capacity(READS);
        while !self.ends.load(Ordering::Acquire) {
            if let Err(error) = self.poller.wait(&mut events, None) {
                tracing::info!(%error, "sockets for probes are no longer read");
                return;
            }
            let arrived: Vec<Arrived> = events.iter().filter_map(|event| self.read(event.token)).collect();
            if !arrived.is_empty() && give.blocking_send(arrived).is_err() {
                return;
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// Reads one datagram of the socket with this number.
    fn read(&self, number: u64) -> Option<Arrived> {
        let socket = u16::try_from(number).ok()?;
        let mut buf = [0; Probe::LEN + 1];
        let received = self.sockets.get(usize::from(socket))?.recv(&mut buf).ok()?;
        let datagram = buf.first_chunk().filter(|_| received.len == Probe::LEN)?;
        Some(Arrived {
            socket,
            from: received.from,
            datagram: *datagram,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use super::*;

    const HERE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap()
    }

    #[test]
    fn each_socket_has_a_port_and_its_datagrams_have_its_number() {
        runtime().block_on(async {
            let mut sockets = ProbeSockets::default();
            assert_eq!(sockets.open(Some(HERE.ip()), 40), 40);
            let peer = std::net::UdpSocket::bind(HERE).unwrap();
            let at = peer.local_addr().unwrap();
            let mut ports = std::collections::BTreeSet::new();
            for socket in 0..40 {
                assert!(sockets.send(socket, at, &[socket as u8; 24]));
                let (_, from) = peer.recv_from(&mut [0; 99]).unwrap();
                assert!(ports.insert(from.port()));
                // One that is too long or too short is passed over.
                for len in [23, 25, 24] {
                    peer.send_to(&[socket as u8; 99][..len], from).unwrap();
                }
            }
            let mut seen = Vec::new();
            while seen.len() < 40 {
                let arrived = sockets.arrived().await;
                assert!(arrived.len() <= READS);
                seen.extend(arrived);
            }
            seen.sort_by_key(|arrived| arrived.socket);
            let expected = (0..40).map(|socket| Arrived {
                socket,
                from: at,
                datagram: [socket as u8; 24],
            });
            assert_eq!(seen, expected.collect::<Vec<_>>());

            let taken = sockets.take(7, BindOptions::default()).unwrap().unwrap();
            assert!(sockets.take(7, BindOptions::default()).is_none() && !sockets.send(7, at, &[7; 24]));
            assert!(!sockets.send(40, at, &[7; 24]));
            let own = taken.local_address();
            sockets.close();
            assert!(!sockets.send(3, at, &[3; 24]));
            // The one that was taken stays open.
            peer.send_to(&[1; 24], own).unwrap();
            assert!(ports.contains(&own.port()));
        });
    }

    #[test]
    fn without_an_address_there_are_none() {
        runtime().block_on(async {
            let mut sockets = ProbeSockets::default();
            assert_eq!(sockets.open(None, 40), 0);
        });
    }
}
