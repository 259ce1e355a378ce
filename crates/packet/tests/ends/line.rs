//! Lanes without a network: A and B, with R between them or a link of their own.

#![allow(dead_code, reason = "no test needs all of it")]

use weft_contract::{
    Command, Endpoint, EpochId, EpochUse, FastKeys, Label, LabelRoute, LaneConfig, LinkCommand, LinkId, LinkKeys,
    LinkReport, ReceiverIndex, Relay, Report, SessionCommand, SessionKeys, SessionReport, TableCommand,
};
use weft_noise::Key;
use weft_noise::fast::{LaneSecrets, Secret, Suite};
use weft_packet::{Lane, Train, Transmit};
use weft_wire::NodeAddr;
use weft_wire::virtio::VirtioNetHdr;

pub(crate) const A: NodeAddr = NodeAddr::new([1; 16]);
pub(crate) const B: NodeAddr = NodeAddr::new([2; 16]);
pub(crate) const R: NodeAddr = NodeAddr::new([3; 16]);
pub(crate) const MTU: u16 = 1280;
pub(crate) const NOW: u64 = 1_000;
/// The labels of frames to a node: from the source to R, and from R to the node.
pub(crate) const FIRST: u32 = 7;
pub(crate) const SECOND: u32 = 9;

#[derive(Default)]
pub(crate) struct Sent(pub(crate) Vec<(Endpoint, Vec<u8>)>);

impl Transmit for Sent {
    fn transmit(&mut self, to: Endpoint, train: &[u8], segment: usize) {
        self.0.extend(train.chunks(segment).map(|frame| (to, frame.to_vec())));
    }
}

pub(crate) struct Host {
    pub(crate) now: u64,
    pub(crate) me: NodeAddr,
    pub(crate) lane: Lane,
    pub(crate) train: Train<Sent>,
}

pub(crate) fn number(of: NodeAddr) -> u32 {
    of.as_bytes()[0].into()
}

pub(crate) fn address(of: NodeAddr) -> Endpoint {
    Endpoint::from(([192, 0, 2, of.as_bytes()[0]], 2121))
}

/// The link with a node has the number of the node.
pub(crate) fn link(with: NodeAddr) -> LinkId {
    LinkId(number(with))
}

/// The key with which one end sends to the other.
pub(crate) fn key(kind: u8, from: NodeAddr, to: NodeAddr, id: u32) -> Key {
    Key::from_bytes(core::array::from_fn(|i| match i {
        0 => kind,
        1 => number(from) as u8,
        2 => number(to) as u8,
        _ => id as u8,
    }))
}

pub(crate) fn index(of: NodeAddr, with: NodeAddr) -> u32 {
    number(of) << 8 | number(with)
}

impl Host {
    pub(crate) fn new(me: NodeAddr, mtu: u16) -> Self {
        let transit = me == R;
        Self {
            now: NOW,
            me,
            lane: Lane::new(LaneConfig {
                me,
                mtu,
                probe: false,
                transit,
                handshakes: weft_contract::HandshakeLimits::default(),
            }),
            train: Train::new(Sent::default(), 64),
        }
    }

    pub(crate) fn apply(&mut self, command: Command) {
        self.lane.apply(self.now, command, &mut self.train);
    }

    pub(crate) fn install_link(&mut self, peer: NodeAddr) {
        let keys = LinkKeys {
            our_index: ReceiverIndex(index(self.me, peer)),
            their_index: ReceiverIndex(index(peer, self.me)),
            send: key(1, self.me, peer, 0),
            recv: key(1, peer, self.me, 0),
        };
        self.apply(Command::Link(
            link(peer),
            LinkCommand::Install {
                peer,
                path: address(peer),
                proven: true,
                keys,
                usage: EpochUse::Send,
            },
        ));
    }

    pub(crate) fn fast_keys(&self, kind: u8, peer: NodeAddr, id: u32, phase_frames: u64) -> FastKeys {
        let secret = |from, to| Secret::from_key(&key(kind, from, to, id));
        let index = |of, with| u32::from(kind) << 24 | id << 16 | index(of, with);
        FastKeys {
            id: EpochId(id),
            our_index: ReceiverIndex(index(self.me, peer)),
            their_index: ReceiverIndex(index(peer, self.me)),
            max_payload: 9_000,
            reads_full: true,
            suite: Suite::Aes256Gcm,
            secrets: LaneSecrets {
                send: secret(self.me, peer),
                recv: secret(peer, self.me),
            },
            phase_frames,
        }
    }

    pub(crate) fn install_hop(&mut self, peer: NodeAddr, id: u32, phase_frames: u64) {
        let keys = self.fast_keys(3, peer, id, phase_frames);
        self.apply(Command::Link(link(peer), LinkCommand::InstallHop { keys }));
    }

    /// Installs a session with the peer that goes over this link.
    pub(crate) fn install_fips(&mut self, peer: NodeAddr, over: LinkId) {
        self.apply(Command::Table(TableCommand::AllowPeer { peer }));
        self.install_keys(peer, over);
    }

    /// Like [`Host::install_fips`], without admission of the packets of the peer.
    pub(crate) fn install_keys(&mut self, peer: NodeAddr, over: LinkId) {
        let keys = SessionKeys {
            id: EpochId(0),
            initiator: self.me == A,
            send: key(2, self.me, peer, 0),
            recv: key(2, peer, self.me, 0),
        };
        self.apply(Command::Session(
            peer,
            SessionCommand::Install {
                keys,
                usage: EpochUse::Send,
            },
        ));
        self.apply(Command::Session(peer, SessionCommand::Bind { link: over }));
    }

    /// Installs keys for fast frames, which nothing has proven yet.
    pub(crate) fn install_fast(&mut self, peer: NodeAddr) {
        let keys = self.fast_keys(4, peer, 0, 1 << 20);
        self.apply(Command::Session(peer, SessionCommand::InstallFast { keys }));
    }

    /// Installs a session with the peer that goes through R.
    pub(crate) fn install_session(&mut self, peer: NodeAddr) {
        self.install_fips(peer, link(R));
        self.install_fast(peer);
        let relay = Relay {
            link: link(R),
            label: Label(FIRST),
            mtu: MTU,
        };
        self.apply(Command::Session(peer, SessionCommand::Relay { relay: Some(relay) }));
        self.apply(Command::Link(
            link(R),
            LinkCommand::SetLabel {
                label: Label(SECOND),
                to: LabelRoute::Here,
            },
        ));
    }

    pub(crate) fn send(&mut self, packet: &[u8]) {
        self.lane
            .outbound(self.now, VirtioNetHdr::default(), packet, &mut self.train);
    }

    pub(crate) fn sent(&mut self) -> Vec<(Endpoint, Vec<u8>)> {
        self.train.flush();
        std::mem::take(&mut self.train.out_mut().0)
    }

    pub(crate) fn receive(&mut self, from: NodeAddr, frame: &[u8]) -> Option<Vec<u8>> {
        self.lane.inbound_alone(self.now, address(from), frame, &mut self.train)
    }

    pub(crate) fn reports(&mut self) -> Vec<Report> {
        std::iter::from_fn(|| self.lane.poll_report()).collect()
    }

    pub(crate) fn failed_labels(&mut self) -> Vec<(LinkId, u32)> {
        let failed = |report| match report {
            Report::Link(link, LinkReport::LabelFailed { label }) => Some((link, label.0)),
            _ => None,
        };
        self.reports().into_iter().filter_map(failed).collect()
    }
}

/// Three hosts in a line: A, R and B.
pub(crate) struct Line(pub(crate) [Host; 3]);

impl Line {
    /// Makes a line with proven keys of both hops and of the session, and labels in both
    /// directions.
    pub(crate) fn new(phase_frames: u64, mtu_of_relay: u16) -> Self {
        let mut line = Self([Host::new(A, MTU), Host::new(R, mtu_of_relay), Host::new(B, MTU)]);
        for (one, other) in [(0, 1), (1, 2)] {
            let ends = (line.0[one].me, line.0[other].me);
            line.0[one].install_link(ends.1);
            line.0[other].install_link(ends.0);
        }
        line.agree_on_hops(0, phase_frames);
        line.0[0].install_session(B);
        line.0[2].install_session(A);
        for (from, to) in [(A, B), (B, A)] {
            line.0[1].apply(Command::Link(
                link(from),
                LinkCommand::SetLabel {
                    label: Label(FIRST),
                    to: LabelRoute::On {
                        link: link(to),
                        label: Label(SECOND),
                    },
                },
            ));
        }
        line.confirm_fast();
        for (host, peer) in [(0, B), (2, A)] {
            let proven = line.0[host].reports().into_iter();
            let proven = proven.filter(
                |r| matches!(r, Report::Session(p, SessionReport::FastProven { direct: false, .. }) if *p == peer),
            );
            assert_eq!(proven.count(), 1);
        }
        line
    }

    /// Makes a line in which A and B have a link of their own, with fast frames or without.
    pub(crate) fn direct(fast: bool) -> Self {
        let mut line = Self([Host::new(A, MTU), Host::new(R, MTU), Host::new(B, MTU)]);
        for (host, peer) in [(0, B), (2, A)] {
            line.0[host].install_link(peer);
            line.0[host].install_fips(peer, link(peer));
            if fast {
                line.0[host].install_fast(peer);
            }
        }
        if fast {
            line.confirm_fast();
        }
        line
    }

    pub(crate) fn confirm_fast(&mut self) {
        for (host, peer) in [(0, B), (2, A)] {
            let confirm = SessionCommand::ConfirmFast { id: EpochId(0) };
            self.0[host].apply(Command::Session(peer, confirm));
            self.run();
        }
    }

    pub(crate) fn agree_on_hops(&mut self, id: u32, phase_frames: u64) {
        for (one, other) in [(0, 1), (1, 2)] {
            let (a, b) = (self.0[one].me, self.0[other].me);
            self.0[one].install_hop(b, id, phase_frames);
            self.0[other].install_hop(a, id, phase_frames);
            for (host, peer) in [(one, b), (other, a)] {
                let (link, id) = (link(peer), EpochId(id));
                self.0[host].apply(Command::Link(link, LinkCommand::ConfirmHop { id }));
                self.run();
                let proven = |host: &mut Host, link| {
                    let reports = host.reports().into_iter();
                    let proven =
                        reports.filter(|r| matches!(r, Report::Link(l, LinkReport::HopProven { .. }) if *l == link));
                    proven.count()
                };
                // The answer proves the keys to the node that asked.
                assert_eq!(proven(&mut self.0[host], link), 1);
            }
        }
    }

    pub(crate) fn at(&mut self, address: Endpoint) -> &mut Host {
        let at = self.0.iter().position(|h| self::address(h.me) == address).unwrap();
        &mut self.0[at]
    }

    /// Delivers all datagrams until no more are sent. Returns the packets for the TUN, and the
    /// frames that were sent.
    pub(crate) fn run(&mut self) -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
        let (mut out, mut passed) = (Vec::new(), Vec::new());
        loop {
            let mut quiet = true;
            for at in 0..3 {
                let from = self.0[at].me;
                for (to, frame) in self.0[at].sent() {
                    quiet = false;
                    out.extend(self.at(to).receive(from, &frame));
                    passed.push(frame);
                }
            }
            if quiet {
                return (out, passed);
            }
        }
    }

    pub(crate) fn relayed(&self) -> u64 {
        self.0[1].lane.counters().relayed
    }
}
