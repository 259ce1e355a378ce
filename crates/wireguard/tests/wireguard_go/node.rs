//! weft-wireguard as a program would use it: one thread with a socket, one peer, and packets by hand.

use std::collections::{HashMap, VecDeque};
use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant, SystemTime};

use weft_lab::host::Host;
use weft_os::random::SystemRng;
use weft_wireguard::interface::{At, Counters, Interface, Output, PeerSetup, Traffic};
use weft_wireguard::keys::{PrivateKey, PublicKey};
use weft_wireguard::transport::{self, Session};

use crate::packets::{self, Packet};

/// How long a condition may take to hold. It only ends a wait in vain.
const PATIENCE: Duration = Duration::from_secs(60);
/// The time between two looks at a condition.
const LOOK: Duration = Duration::from_millis(10);
/// The interval of echo requests while an answer is waited for.
const INTERVAL: Duration = Duration::from_millis(250);

/// What has passed so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Calls {
    /// Handshakes that this end began.
    pub(crate) begun: usize,
    /// Handshakes that the peer began.
    pub(crate) answered: usize,
    /// Messages of handshakes that were sent.
    pub(crate) messages: usize,
    /// Empty messages that have come.
    pub(crate) alive: usize,
    pub(crate) unreachable: usize,
}

pub(crate) struct Node {
    host: Host,
    private: PrivateKey,
    peer: PublicKey,
    setup: PeerSetup,
    socket: UdpSocket,
    start: Instant,
    interface: Interface,
    endpoint: Option<SocketAddr>,
    /// Keys by their index, and the index of those under which is sent.
    sessions: HashMap<u32, Session>,
    sending: Option<u32>,
    waiting: VecDeque<Vec<u8>>,
    received: VecDeque<Packet>,
    number: u16,
    pub(crate) calls: Calls,
}

impl Node {
    /// Binds a port of the host.
    pub(crate) fn new(host: Host, port: u16, private: PrivateKey, peer: PublicKey, setup: PeerSetup) -> Self {
        let mut node = Self {
            socket: bind(&host, port),
            host,
            interface: Interface::new(private.clone(), Box::new(SystemRng)),
            private,
            peer,
            endpoint: None,
            setup,
            start: Instant::now(),
            sessions: HashMap::new(),
            sending: None,
            waiting: VecDeque::new(),
            received: VecDeque::new(),
            number: 0,
            calls: Calls::default(),
        };
        node.restart();
        node
    }

    /// Forgets all but its settings.
    pub(crate) fn restart(&mut self) {
        self.interface = Interface::new(self.private.clone(), Box::new(SystemRng));
        self.endpoint = self.setup.endpoint;
        self.sessions.clear();
        self.sending = None;
        self.waiting.clear();
        self.received.clear();
        self.interface
            .set_peer(self.at(), self.peer, self.setup.clone())
            .unwrap();
        self.drain();
    }

    /// Goes on at another port of the host.
    pub(crate) fn rebind(&mut self, port: u16) {
        self.socket = bind(&self.host, port);
    }

    pub(crate) fn host(&self) -> &Host {
        &self.host
    }

    pub(crate) fn public(&self) -> &PublicKey {
        self.interface.public()
    }

    pub(crate) fn peer(&self) -> &PublicKey {
        &self.peer
    }

    /// Where the peer is.
    pub(crate) fn endpoint(&self) -> Option<SocketAddr> {
        self.endpoint
    }

    pub(crate) fn counters(&self) -> &Counters {
        self.interface.counters()
    }

    fn at(&self) -> At {
        At {
            now: u64::try_from(self.start.elapsed().as_millis()).unwrap(),
            unix: SystemTime::UNIX_EPOCH.elapsed().unwrap(),
        }
    }

    /// Sends a packet through the tunnel, or lets it wait for keys.
    pub(crate) fn send(&mut self, packet: Vec<u8>) {
        match self.sending {
            Some(local) => {
                self.seal(local, &packet);
                let sent = Traffic {
                    sent: 1,
                    ..Traffic::default()
                };
                self.interface.note_traffic(self.at(), local, sent);
            }
            None => {
                self.waiting.push_back(packet);
                self.interface.want(self.at(), &self.peer);
            }
        }
        self.drain();
    }

    /// Sends an echo request, and returns its number.
    pub(crate) fn echo(&mut self) -> u16 {
        self.number = self.number.wrapping_add(1);
        self.send(packets::echo_request(self.number, &content(self.number)));
        self.number
    }

    /// Sends echo requests until one is answered, and returns how long that took.
    pub(crate) fn wait_for_echo(&mut self, what: &str) -> Duration {
        let (start, first) = (Instant::now(), self.number.wrapping_add(1));
        let mut next = start;
        self.wait_until(what, |node| {
            if Instant::now() >= next {
                node.echo();
                next += INTERVAL;
            }
            node.answers().iter().any(|number| *number >= first)
        });
        start.elapsed()
    }

    /// Removes the answers to echo requests that have come, and returns their numbers.
    pub(crate) fn answers(&mut self) -> Vec<u16> {
        let mut numbers = Vec::new();
        self.received.retain(|packet| match packet {
            Packet::EchoReply { number, payload } => {
                assert_eq!(*payload, content(*number));
                numbers.push(*number);
                false
            }
            Packet::Udp { .. } => true,
        });
        numbers
    }

    /// Removes and returns the first UDP packet: its ports and its content.
    pub(crate) fn udp(&mut self) -> Option<(u16, u16, Vec<u8>)> {
        let at = self
            .received
            .iter()
            .position(|packet| matches!(packet, Packet::Udp { .. }))?;
        match self.received.remove(at)? {
            Packet::Udp { from, to, payload } => Some((from, to, payload)),
            Packet::EchoReply { .. } => None,
        }
    }

    /// Works until the condition holds.
    pub(crate) fn wait_until(&mut self, what: &str, mut done: impl FnMut(&mut Self) -> bool) {
        let end = Instant::now() + PATIENCE;
        while !done(self) {
            let (calls, counters) = (self.calls, self.counters());
            assert!(
                Instant::now() < end,
                "not within {PATIENCE:?}: {what}; {calls:?}, {counters:?}"
            );
            self.step();
        }
    }

    /// Works for a time.
    pub(crate) fn work(&mut self, time: Duration) {
        let end = Instant::now() + time;
        while Instant::now() < end {
            self.step();
        }
    }

    /// Waits for a moment, and handles what comes.
    fn step(&mut self) {
        let now = self.at().now;
        let due = self.interface.poll_timeout();
        let left = due.map_or(LOOK, |due| Duration::from_millis(due.saturating_sub(now)));
        self.socket
            .set_read_timeout(Some(left.clamp(Duration::from_millis(1), LOOK)))
            .unwrap();
        let mut buf = [0; 2048];
        match self.socket.recv_from(&mut buf) {
            Ok((length, from)) => self.take(from, &mut buf[..length]),
            // The last is what a port that is closed gives.
            Err(error)
                if [
                    ErrorKind::WouldBlock,
                    ErrorKind::TimedOut,
                    ErrorKind::Interrupted,
                    ErrorKind::ConnectionRefused,
                ]
                .contains(&error.kind()) => {}
            Err(error) => panic!("{error}"),
        }
        let at = self.at();
        if self.interface.poll_timeout().is_some_and(|due| due <= at.now) {
            self.interface.handle_timeout(at);
            // Whatever was due is done.
            assert!(self.interface.poll_timeout().is_none_or(|due| due > at.now));
        }
        self.drain();
    }

    fn take(&mut self, from: SocketAddr, datagram: &mut [u8]) {
        let at = self.at();
        let Some(local) = transport::receiver(datagram) else {
            return self.interface.handle_datagram(at, from, datagram);
        };
        // Keys that have ended, or those of an earlier life.
        let Some(session) = self.sessions.get_mut(&local) else {
            return;
        };
        let padded = session.open(datagram).unwrap();
        let mut traffic = Traffic {
            from: Some(from),
            ..Traffic::default()
        };
        match transport::packet(padded) {
            Some(packet) => {
                traffic.received = 1;
                self.received.extend(packets::read(packet));
            }
            None => {
                assert!(padded.is_empty());
                traffic.keepalives = 1;
                self.calls.alive += 1;
            }
        }
        self.interface.note_traffic(at, local, traffic);
        self.drain();
    }

    /// Does what the interface calls for.
    fn drain(&mut self) {
        while let Some(output) = self.interface.poll_output() {
            match output {
                Output::Send { to, bytes } => {
                    self.calls.messages += 1;
                    transmit(&self.socket, to, &bytes);
                }
                Output::Install { peer, keys, use_now } => {
                    assert_eq!(peer, self.peer);
                    let replaced = self.sessions.insert(keys.local, Session::new(&keys));
                    assert!(replaced.is_none());
                    match use_now {
                        true => self.calls.begun += 1,
                        false => self.calls.answered += 1,
                    }
                    if use_now {
                        self.send_under(keys.local);
                    }
                }
                Output::Use { peer, local } => {
                    assert_eq!(peer, self.peer);
                    self.send_under(local);
                }
                Output::Retire { peer, local } => {
                    assert_eq!(peer, self.peer);
                    assert!(self.sessions.remove(&local).is_some());
                    self.sending.take_if(|sending| *sending == local);
                }
                Output::Keepalive { .. } => self.seal(self.sending.unwrap(), &[]),
                Output::Moved { to, .. } => self.endpoint = Some(to),
                Output::Unreachable { .. } => {
                    self.calls.unreachable += 1;
                    self.waiting.clear();
                }
            }
        }
        assert_eq!(self.endpoint, self.interface.endpoint(&self.peer));
        assert!(self.sessions.len() <= 3, "{}", self.sessions.len());
    }

    /// Sends under these keys from now on, first what waits for keys.
    fn send_under(&mut self, local: u32) {
        assert!(self.sessions.contains_key(&local));
        self.sending = Some(local);
        let waiting = std::mem::take(&mut self.waiting);
        for packet in &waiting {
            self.seal(local, packet);
        }
        let sent = Traffic {
            sent: u64::try_from(waiting.len()).unwrap(),
            ..Traffic::default()
        };
        self.interface.note_traffic(self.at(), local, sent);
    }

    /// Sends a data message to where the peer is.
    fn seal(&mut self, local: u32, packet: &[u8]) {
        let mut message = Vec::new();
        let session = self.sessions.get_mut(&local).unwrap();
        session.seal(packet, 1_420, &mut message).unwrap();
        transmit(&self.socket, self.endpoint.unwrap(), &message);
    }
}

/// The content of an echo request.
fn content(number: u16) -> Vec<u8> {
    let length = usize::from(number) * 37 % 1_300;
    number.to_be_bytes().into_iter().cycle().take(length).collect()
}

fn bind(host: &Host, port: u16) -> UdpSocket {
    host.run(|| UdpSocket::bind(("0.0.0.0", port))).unwrap().unwrap()
}

fn transmit(socket: &UdpSocket, to: SocketAddr, datagram: &[u8]) {
    match socket.send_to(datagram, to) {
        Ok(length) => assert_eq!(length, datagram.len()),
        // What came back for an earlier one.
        Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionRefused, "{error}"),
    }
}
