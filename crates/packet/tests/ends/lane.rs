//! Two lanes with a link and a session, and fast keys on request.

#![allow(dead_code, reason = "no test needs all of it")]

use weft_contract::{
    Command, Endpoint, EpochId, EpochUse, FastKeys, LaneConfig, LinkCommand, LinkId, LinkKeys, ReceiverIndex,
    SessionCommand, SessionKeys, TableCommand,
};
use weft_noise::Key;
use weft_noise::fast::{LaneSecrets, Secret, Suite};
use weft_packet::{Lane, Train, Transmit};
use weft_wire::NodeAddr;

pub(crate) const A: NodeAddr = NodeAddr::new([1; 16]);
pub(crate) const B: NodeAddr = NodeAddr::new([2; 16]);
pub(crate) const LINK: LinkId = LinkId(1);

/// What was sent, and where the last of it went.
#[derive(Default)]
pub(crate) struct Sent(pub(crate) Vec<Vec<u8>>, pub(crate) Option<Endpoint>);

impl Transmit for Sent {
    fn transmit(&mut self, to: Endpoint, train: &[u8], segment: usize) {
        self.1 = Some(to);
        self.0.extend(train.chunks(segment).map(<[u8]>::to_vec));
    }
}

pub(crate) struct End {
    pub(crate) now: u64,
    pub(crate) me: NodeAddr,
    pub(crate) other: NodeAddr,
    pub(crate) lane: Lane,
    pub(crate) train: Train<Sent>,
}

pub(crate) fn address(of: NodeAddr) -> Endpoint {
    Endpoint::from(([192, 0, 2, of.as_bytes()[0]], 2121))
}

/// The key with which one end sends and the other receives.
pub(crate) fn key(kind: u8, from: NodeAddr, number: u32) -> Key {
    Key::from_bytes(core::array::from_fn(|i| match i {
        0 => kind,
        1 => from.as_bytes()[0],
        _ => number as u8,
    }))
}

/// The receiver index of fast keys of this number in frames to a node.
pub(crate) fn fast_index(of: NodeAddr, number: u32) -> ReceiverIndex {
    ReceiverIndex(u32::from(of.as_bytes()[0]) << 16 | number)
}

impl End {
    /// Makes one of two ends with a link and a session.
    pub(crate) fn connected(me: NodeAddr, other: NodeAddr, mtu: u16) -> Self {
        let config = LaneConfig {
            me,
            mtu,
            probe: false,
            transit: false,
            handshakes: weft_contract::HandshakeLimits::default(),
        };
        let mut end = Self {
            now: 1_000,
            me,
            other,
            lane: Lane::new(config),
            train: Train::new(Sent::default(), 64),
        };
        end.apply(Command::Table(TableCommand::AllowPeer { peer: other }));
        let keys = LinkKeys {
            our_index: ReceiverIndex(me.as_bytes()[0].into()),
            their_index: ReceiverIndex(other.as_bytes()[0].into()),
            send: key(1, me, 0),
            recv: key(1, other, 0),
        };
        end.apply(Command::Link(
            LINK,
            LinkCommand::Install {
                peer: other,
                path: address(other),
                proven: true,
                keys,
                usage: EpochUse::Send,
            },
        ));
        let keys = SessionKeys {
            id: EpochId(0),
            initiator: me == A,
            send: key(2, me, 0),
            recv: key(2, other, 0),
        };
        end.apply(Command::Session(
            other,
            SessionCommand::Install {
                keys,
                usage: EpochUse::Send,
            },
        ));
        end.apply(Command::Session(other, SessionCommand::Bind { link: LINK }));
        end
    }

    pub(crate) fn apply(&mut self, command: Command) {
        self.lane.apply(self.now, command, &mut self.train);
    }

    /// Returns the fast keys of this number, which the peer has if it makes them with the same one.
    pub(crate) fn fast_keys(&self, number: u32, phase_frames: u64) -> FastKeys {
        let secret = |from| Secret::from_key(&key(3, from, number));
        FastKeys {
            id: EpochId(number),
            our_index: fast_index(self.me, number),
            their_index: fast_index(self.other, number),
            max_payload: 9_000,
            reads_full: true,
            suite: Suite::Aes256Gcm,
            secrets: LaneSecrets {
                send: secret(self.me),
                recv: secret(self.other),
            },
            phase_frames,
        }
    }

    pub(crate) fn install_fast_keys(&mut self, keys: FastKeys) {
        self.apply(Command::Session(self.other, SessionCommand::InstallFast { keys }));
    }

    /// Sends a frame under fast keys of this number, and asks for one.
    pub(crate) fn confirm_fast(&mut self, number: u32) {
        let id = EpochId(number);
        self.apply(Command::Session(self.other, SessionCommand::ConfirmFast { id }));
    }

    pub(crate) fn take_sent(&mut self) -> Vec<Vec<u8>> {
        self.train.flush();
        std::mem::take(&mut self.train.out_mut().0)
    }
}
