//! The nodes of the example, and their random numbers.

use std::convert::Infallible;
use std::net::SocketAddr;

use rand_core::{TryCryptoRng, TryRng};
use weft_contract::{
    Command, EpochId, EpochUse, LaneConfig, LinkCommand, LinkId, LinkKeys, ReceiverIndex, Report, SessionCommand,
    SessionKeys, TableCommand,
};
use weft_noise::{Established, Identity, Key, SecretKey};
use weft_packet::{Lane, Train, Transmit};
use weft_wire::NodeAddr;
use weft_wire::virtio::VirtioNetHdr;

use crate::reader::{End, sha256};

/// The UDP payload of the example.
pub const MTU: u16 = 1280;
/// The one link, as each node numbers it.
pub const LINK: LinkId = LinkId(1);

/// A node of the example.
pub struct Node {
    pub identity: Identity,
    pub end: End,
    pub lane: Lane,
    pub train: Train<Wire>,
    pub addr: SocketAddr,
}

impl Node {
    pub fn new(name: &str, addr: [u8; 4]) -> Self {
        let secret = label(&format!("{name} static key"));
        let identity = Identity::new(SecretKey::from_bytes(&secret).unwrap());
        let lane = Lane::new(LaneConfig {
            me: identity.node_addr(),
            mtu: MTU,
            probe: false,
            transit: false,
            handshakes: weft_contract::HandshakeLimits::default(),
        });
        Self {
            identity,
            end: End {
                s: scalar(&secret),
                e: scalar(&label(&format!("{name} ik ephemeral"))),
                epoch: label(&format!("{name} epoch"))[..8].try_into().unwrap(),
            },
            lane,
            train: Train::new(Wire::default(), 64),
            addr: SocketAddr::from((addr, 2121)),
        }
    }

    pub fn x(&self) -> [u8; 32] {
        *self.identity.public().as_bytes()
    }

    pub fn node_addr(&self) -> NodeAddr {
        self.identity.node_addr()
    }

    /// Runs a command and returns the one datagram that it sends.
    pub fn send(&mut self, now: u64, command: Command) -> Vec<u8> {
        self.lane.apply(now, command, &mut self.train);
        self.take_one()
    }

    /// Reads an IP packet from the TUN and returns the one datagram that it becomes.
    pub fn outbound(&mut self, now: u64, hdr: VirtioNetHdr, ip: &[u8]) -> Vec<u8> {
        self.lane.outbound(now, hdr, ip, &mut self.train);
        self.take_one()
    }

    fn take_one(&mut self) -> Vec<u8> {
        let mut sent = self.take_sent();
        assert_eq!(sent.len(), 1);
        sent.remove(0)
    }

    /// The datagrams that the lane has sent by itself.
    pub fn take_sent(&mut self) -> Vec<Vec<u8>> {
        self.train.flush();
        std::mem::take(&mut self.train.out_mut().0)
    }

    pub fn apply(&mut self, now: u64, command: Command) {
        self.lane.apply(now, command, &mut self.train);
        self.train.flush();
        assert!(self.train.out_mut().0.is_empty());
    }

    /// Receives a datagram. Returns the IP packet in it, or the report.
    pub fn receive(&mut self, now: u64, from: SocketAddr, datagram: &[u8]) -> (Option<Vec<u8>>, Vec<Report>) {
        let packet = self.lane.inbound_alone(now, from, datagram, &mut self.train);
        (packet, std::iter::from_fn(|| self.lane.poll_report()).collect())
    }

    pub fn install_link(
        &mut self,
        now: u64,
        (link, path): (LinkId, SocketAddr),
        keys: &Established,
        (our_index, their_index): (u32, u32),
        usage: EpochUse,
    ) {
        self.apply(
            now,
            Command::Link(
                link,
                LinkCommand::Install {
                    peer: keys.remote.node_addr(),
                    path: path.into(),
                    proven: true,
                    keys: LinkKeys {
                        our_index: ReceiverIndex(our_index),
                        their_index: ReceiverIndex(their_index),
                        send: copy(&keys.send),
                        recv: copy(&keys.recv),
                    },
                    usage,
                },
            ),
        );
    }

    pub fn install_session(&mut self, now: u64, peer: NodeAddr, keys: &Established) {
        self.apply(now, Command::Table(TableCommand::AllowPeer { peer }));
        self.apply(now, Command::Session(peer, SessionCommand::Bind { link: LINK }));
        let keys = SessionKeys {
            id: EpochId(0),
            // The vectors show frames without spin bits.
            initiator: false,
            send: copy(&keys.send),
            recv: copy(&keys.recv),
        };
        self.apply(
            now,
            Command::Session(
                peer,
                SessionCommand::Install {
                    keys,
                    usage: EpochUse::Send,
                },
            ),
        );
    }
}

/// Datagrams that a lane sent.
#[derive(Default)]
pub struct Wire(pub Vec<Vec<u8>>);

impl Transmit for Wire {
    fn transmit(&mut self, _to: weft_contract::Endpoint, train: &[u8], segment: usize) {
        self.0.extend(train.chunks(segment).map(<[u8]>::to_vec));
    }
}

/// The example's randomness: a hash of its purpose.
pub fn label(label: &str) -> [u8; 32] {
    sha256(&[b"weft protocol vectors: ", label.as_bytes()])
}

/// A number as a secret key.
pub fn scalar(bytes: &[u8; 32]) -> secp256k1::SecretKey {
    secp256k1::SecretKey::from_byte_array(*bytes).unwrap()
}

fn copy(key: &Key) -> Key {
    Key::from_bytes(*key.as_bytes())
}

/// A generator that returns the ephemeral key of an end.
pub fn ephemeral(end: &End) -> Ephemeral {
    Ephemeral(end.e.secret_bytes())
}

/// A generator that returns one ephemeral key.
pub struct Ephemeral([u8; 32]);

impl TryRng for Ephemeral {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        unreachable!("keys are drawn as 32 bytes")
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        unreachable!("keys are drawn as 32 bytes")
    }

    fn try_fill_bytes(&mut self, to: &mut [u8]) -> Result<(), Infallible> {
        to.copy_from_slice(&self.0);
        Ok(())
    }
}

impl TryCryptoRng for Ephemeral {}
