//! Many nodes on one thread: core and packet path as in the daemon, and a real UDP socket for each,
//! but no TUN.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use rand_chacha::ChaCha20Rng;
use rand_core::SeedableRng;
use weft_contract::LaneConfig;
use weft_core::{Config, Node, Output, PeerConfig, PeerState};
use weft_lab::host::Host;
use weft_noise::{Identity, PublicKey, SecretKey};
use weft_os::clock::boottime_ms;
use weft_os::poll::{Events, Interest, Poller};
use weft_packet::{Lane, Train, Transmit};
use weft_wire::NodeAddr;
use weft_wire::virtio::VirtioNetHdr;

/// How often lanes report their activity to the core, as in the daemon, ms.
const SAMPLE: u64 = 250;
/// Maximum sleep of the thread before it checks whether it shall stop, ms.
const LOOK: u64 = 100;
const PORT: u16 = 4_000;

/// Counters and flags that other threads see.
#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    speak: AtomicBool,
    sent: AtomicU64,
    received: AtomicU64,
    linked: AtomicU64,
    in_session: AtomicU64,
}

/// Running nodes. They stop when this value is dropped.
pub(crate) struct Crowd {
    /// Their keys and addresses.
    pub(crate) members: Vec<(PublicKey, SocketAddr)>,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Crowd {
    /// Starts `count` nodes on the loopback of `host`, each with an address of its own. They know
    /// the hub and wait until it dials.
    pub(crate) fn start(host: &Host, hub: PublicKey, count: u16) -> Self {
        let address = |n: u16| SocketAddr::from(([127, 1, (n >> 8) as u8, n as u8], PORT));
        let identity = |n: u16| Identity::new(SecretKey::generate(&mut ChaCha20Rng::seed_from_u64(n.into())));
        let bind = || {
            let sockets = (0..count).map(|n| UdpSocket::bind(address(n)).unwrap());
            sockets.collect::<Vec<_>>()
        };
        let sockets = host.run(bind).unwrap();
        let shared = Arc::new(Shared::default());
        let told = shared.clone();
        Self {
            members: (0..count).map(|n| (identity(n).public(), address(n))).collect(),
            shared,
            thread: Some(std::thread::spawn(move || {
                let member = |(n, socket)| Member::new(identity(n), hub, socket, n);
                let members = (0..).zip(sockets).map(member).collect();
                Loop::new(members, hub, &told).run();
            })),
        }
    }

    /// Makes each send one IP packet to the hub.
    pub(crate) fn speak(&self) {
        self.shared.speak.store(true, Ordering::Relaxed);
    }

    /// The number of those that are linked with the hub.
    pub(crate) fn linked(&self) -> u64 {
        self.shared.linked.load(Ordering::Relaxed)
    }

    /// The number of those that have a session with it.
    pub(crate) fn in_session(&self) -> u64 {
        self.shared.in_session.load(Ordering::Relaxed)
    }

    /// Datagrams that all of them have sent and received so far.
    pub(crate) fn datagrams(&self) -> (u64, u64) {
        let count = |of: &AtomicU64| of.load(Ordering::Relaxed);
        (count(&self.shared.sent), count(&self.shared.received))
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
            && !std::thread::panicking()
        {
            panic!("the crowd's thread has panicked");
        }
    }
}

/// The socket of the member whose turn it is.
struct Out<'s> {
    socket: Option<Rc<UdpSocket>>,
    shared: &'s Shared,
}

impl Transmit for Out<'_> {
    fn transmit(&mut self, to: weft_contract::Endpoint, train: &[u8], segment: usize) {
        for datagram in train.chunks(segment) {
            // A datagram that a full socket refuses is lost, as on a network.
            let sent = self.socket.as_ref().unwrap().send_to(datagram, to.remote());
            self.shared.sent.fetch_add(u64::from(sent.is_ok()), Ordering::Relaxed);
        }
    }
}

struct Member {
    address: NodeAddr,
    node: Node,
    lane: Lane,
    socket: Rc<UdpSocket>,
    /// When its core next gets the activity of its lane; `u64::MAX` if there was none since.
    sample_at: u64,
    /// When its next turn is if it receives nothing, as the schedule has it.
    due: u64,
    /// Whether it is linked, and in session, as the shared counters have it.
    stands: [bool; 2],
}

impl Member {
    fn new(identity: Identity, hub: PublicKey, socket: UdpSocket, number: u16) -> Self {
        let config = Config {
            mesh: true,
            transit: false,
            ..Config::default()
        };
        let lane = Lane::new(LaneConfig {
            me: identity.node_addr(),
            mtu: config.mtu,
            probe: config.probe,
            transit: false,
            handshakes: weft_contract::HandshakeLimits::default(),
        });
        socket.set_nonblocking(true).unwrap();
        let address = identity.node_addr();
        let rng = ChaCha20Rng::seed_from_u64(0x1_0000 | u64::from(number));
        let mut node = Node::new(config, identity, Box::new(rng));
        let peer = PeerConfig {
            key: hub,
            addresses: Vec::new(),
        };
        node.add_peer(boottime_ms(), &peer);
        Self {
            address,
            node,
            lane,
            socket: Rc::new(socket),
            sample_at: u64::MAX,
            due: 0,
            stands: [false; 2],
        }
    }

    /// Receives all datagrams that wait in its socket; returns their number.
    fn receive(&mut self, now: u64, train: &mut Train<Out<'_>>) -> u64 {
        let (mut datagram, mut count) = ([0; 2_048], 0);
        loop {
            match self.socket.recv_from(&mut datagram) {
                Ok((len, from)) => {
                    count += 1;
                    self.lane.inbound_alone(now, from, &datagram[..len], train);
                    train.flush();
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                // The hub does not listen yet, or no longer.
                Err(error) if error.kind() == ErrorKind::ConnectionRefused => {}
                Err(error) => panic!("a member's socket: {error}"),
            }
        }
        self.active(now);
        count
    }

    fn speak(&mut self, now: u64, hub: NodeAddr, train: &mut Train<Out<'_>>) -> u64 {
        let packet = weft_sim::probe(self.address, hub, 0, 200);
        self.lane.outbound(now, VirtioNetHdr::default(), &packet, train);
        train.flush();
        self.active(now);
        0
    }

    fn settle(&mut self, now: u64, train: &mut Train<Out<'_>>) {
        loop {
            let mut quiet = true;
            while let Some(report) = self.lane.poll_report() {
                self.node.handle_report(now, report);
            }
            while self.lane.poll_reply().is_some() {}
            while let Some(output) = self.node.poll_output() {
                quiet = false;
                if let Output::Lane(command) = output {
                    self.lane.apply(now, command, train);
                    train.flush();
                }
            }
            if quiet {
                return;
            }
        }
    }

    fn active(&mut self, now: u64) {
        self.sample_at = self.sample_at.min(now - now % SAMPLE + SAMPLE);
    }

    /// Whether it is linked with the hub, and whether there is a session.
    fn standing(&self, now: u64) -> [bool; 2] {
        let hub = self.node.peer_status(now).next().unwrap();
        [
            hub.link.is_some(),
            matches!(hub.state, PeerState::Session | PeerState::Payload),
        ]
    }

    fn deadline(&mut self) -> u64 {
        let timer = self.node.poll_timeout().map_or(u64::MAX, |(at, _)| at);
        timer.min(self.sample_at)
    }
}

struct Loop<'s> {
    members: Vec<Member>,
    hub: PublicKey,
    shared: &'s Shared,
    train: Train<Out<'s>>,
    poller: Poller,
    /// When the next turn of each is.
    due: BTreeSet<(u64, usize)>,
}

impl<'s> Loop<'s> {
    fn new(members: Vec<Member>, hub: PublicKey, shared: &'s Shared) -> Self {
        let poller = Poller::new().unwrap();
        for (token, member) in (0..).zip(&members) {
            poller.add(&*member.socket, token, Interest::Readable).unwrap();
        }
        let out = Out { socket: None, shared };
        Self {
            due: (0..members.len()).map(|at| (0, at)).collect(),
            members,
            hub,
            shared,
            train: Train::new(out, 64),
            poller,
        }
    }

    fn run(mut self) {
        let mut events = Events::with_capacity(256);
        while !self.shared.stop.load(Ordering::Relaxed) {
            let next = self.due.first().map_or(u64::MAX, |(at, _)| *at);
            let wait = next.saturating_sub(boottime_ms()).min(LOOK);
            self.poller
                .wait(&mut events, Some(Duration::from_millis(wait)))
                .unwrap();
            let now = boottime_ms();
            for event in events.iter() {
                self.turn(now, event.token as usize, |member, train| member.receive(now, train));
            }
            while let Some((_, at)) = self.due.first().copied().filter(|(due, _)| *due <= now) {
                self.turn(now, at, |member, _| {
                    member.lane.sample(now);
                    member.sample_at = u64::MAX;
                    0
                });
            }
            if self.shared.speak.swap(false, Ordering::Relaxed) {
                for at in 0..self.members.len() {
                    let hub = self.hub.node_addr();
                    self.turn(now, at, |member, train| member.speak(now, hub, train));
                }
            }
        }
    }

    /// One turn of a member, with all effects.
    fn turn(&mut self, now: u64, at: usize, act: impl FnOnce(&mut Member, &mut Train<Out<'s>>) -> u64) {
        let (member, train) = (&mut self.members[at], &mut self.train);
        train.out_mut().socket = Some(member.socket.clone());
        let received = act(member, train);
        self.shared.received.fetch_add(received, Ordering::Relaxed);
        member.settle(now, train);
        member.node.handle_timeout(now);
        member.settle(now, train);
        self.due.remove(&(member.due, at));
        member.due = member.deadline();
        self.due.insert((member.due, at));
        let stands = member.standing(now);
        let before = std::mem::replace(&mut member.stands, stands);
        let counts = [&self.shared.linked, &self.shared.in_session];
        for (count, (was, is)) in counts.into_iter().zip(before.into_iter().zip(stands)) {
            count.fetch_add(u64::from(is), Ordering::Relaxed);
            count.fetch_sub(u64::from(was), Ordering::Relaxed);
        }
    }
}
