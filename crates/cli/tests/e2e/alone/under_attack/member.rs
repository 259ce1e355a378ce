//! A neighbour with a genuine link that sends arbitrary messages: a link handshake and the frames
//! of a link, nothing else.

use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use rand_chacha::ChaCha20Rng;
use rand_core::SeedableRng;
use weft_lab::host::Host;
use weft_noise::aead::Cipher;
use weft_noise::{Identity, PublicKey, SecretKey, ik};
use weft_wire::fmp::{EstablishedHeader, InnerHeader, Msg1, Msg2};
use weft_wire::link::{Heartbeat, LinkMessageType};

use crate::common::PATIENCE;

/// The interval in which msg1 is repeated until it is answered.
const AGAIN: Duration = Duration::from_millis(250);

/// The receiver index of the member. The member reads no frames, so any value is good.
const INDEX: u32 = 0x6d65_6d62;

/// The key of the member with this number.
pub(crate) fn key(number: u64) -> Identity {
    Identity::new(SecretKey::generate(&mut ChaCha20Rng::seed_from_u64(number)))
}

/// One end of a link.
pub(crate) struct Member {
    socket: UdpSocket,
    send: Cipher,
    /// The receiver index of the node.
    to: u32,
    counter: u64,
    start: Instant,
    frame: Vec<u8>,
}

impl Member {
    /// Links with the node of the key `remote` at `at`, from a port of `host`.
    pub(crate) fn link(host: &Host, me: &Identity, remote: PublicKey, at: SocketAddr) -> Self {
        let socket = host.run(|| UdpSocket::bind(("0.0.0.0", 0))).unwrap().unwrap();
        socket.connect(at).unwrap();
        socket.set_read_timeout(Some(AGAIN)).unwrap();
        let mut rng = ChaCha20Rng::seed_from_u64(u64::from(socket.local_addr().unwrap().port()));
        let (pending, noise) = ik::Initiator::start(me, remote, *b"a member", &mut rng);
        let mut msg1 = [0; Msg1::LEN];
        let written = Msg1 {
            sender_idx: INDEX,
            noise: &noise,
        };
        written.emit(&mut msg1).unwrap();
        let end = Instant::now() + PATIENCE;
        let mut answer = [0; 2_048];
        let (keys, to) = loop {
            assert!(Instant::now() < end, "the member's msg1 is not answered");
            socket.send(&msg1).unwrap();
            let Ok(len) = socket.recv(&mut answer) else { continue };
            let Ok(msg2) = Msg2::parse(&answer[..len]) else {
                continue;
            };
            if let Ok(keys) = pending.finish(msg2.noise) {
                break (keys, msg2.sender_idx);
            }
        };
        socket.set_nonblocking(true).unwrap();
        let mut member = Self {
            socket,
            send: Cipher::new(&keys.send),
            to,
            counter: 0,
            start: Instant::now(),
            frame: Vec::new(),
        };
        // It proves to the node that the member holds the keys.
        member.say(LinkMessageType::Heartbeat.to_byte(), &[0; Heartbeat::LEN]);
        member
    }

    /// Sends a link message, and discards received datagrams.
    pub(crate) fn say(&mut self, msg_type: u8, body: &[u8]) {
        let inner = InnerHeader {
            timestamp: self.start.elapsed().as_millis() as u32,
            msg_type,
        };
        let header = EstablishedHeader {
            flags: 0,
            payload_len: (InnerHeader::LEN + body.len()) as u16,
            receiver_idx: self.to,
            counter: self.counter,
        };
        self.counter += 1;
        let header = header.to_bytes();
        self.frame.clear();
        self.frame.extend(header);
        self.frame.extend(inner.to_bytes());
        self.frame.extend(body);
        let tag = self
            .send
            .seal_in_place(self.counter - 1, &header, &mut self.frame[EstablishedHeader::LEN..]);
        self.frame.extend(tag);
        // A datagram that a full socket refuses is lost, as on a network.
        drop(self.socket.send(&self.frame));
        if self.counter.is_multiple_of(64) {
            let mut unread = [0; 2_048];
            while self.socket.recv(&mut unread).is_ok() {}
        }
    }
}
