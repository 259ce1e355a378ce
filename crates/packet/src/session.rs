//! One session: its keys, the packets that wait for them, and the accounts of its traffic.

use std::collections::VecDeque;

use weft_contract::{Bucket, LinkId, PathSize, Relay, Totals};
use weft_wire::NodeAddr;
use weft_wire::virtio::VirtioNetHdr;

use crate::fast::{Fast, Reassembly};
use crate::fips::{Epochs, OpenFailure};
use crate::interval::SenderInterval;
use crate::meter::Meter;
use crate::tables::Egress;
use crate::tun::TunPacket;
use crate::wireguard::Tunnel;

/// The shortest interval between reports of a session's arrival link, in ms. Frames may alternate
/// between links.
const ARRIVAL_INTERVAL: u64 = 100;
/// How long the core may take to install the keys that a handshake message makes, in ms. Frames
/// that arrive before their keys wait as long.
pub(crate) const EXPECT_KEYS: u64 = 1000;
/// How long handshake messages that led to no keys are remembered, in ms. A later message starts a
/// new wait for keys.
const FORGET_EXPECTED: u64 = 10 * EXPECT_KEYS;

/// One end-to-end session, its keys, and the packets that wait for them.
pub(crate) struct Session {
    pub(crate) peer: NodeAddr,
    /// Whether IP packets may go to the peer and come from it.
    pub(crate) allowed: bool,
    /// The link that the session is bound to.
    pub(crate) link: Option<LinkId>,
    /// The frames that packets go in, and the version of the tables from which that was resolved.
    pub(crate) egress: Option<(u64, Egress)>,
    pub(crate) epochs: Epochs,
    pub(crate) fast: Fast,
    /// The relayed path of its fast frames while the session is bound to the link of that path.
    pub(crate) relay: Option<Relay>,
    pub(crate) queue: VecDeque<Waiting>,
    pub(crate) wanted: Option<u64>,
    /// Set once the last message of a handshake went to the core: its keys may be on their way.
    pub(crate) expecting: Option<Expecting>,
    /// When the first message of a handshake last went to the core, in ms: its last message, and what the peer
    /// sends behind that, may follow in another order. 0 if there was none since keys were installed.
    pub(crate) asked: u64,
    pub(crate) totals: Totals,
    pub(crate) last_data: u64,
    pub(crate) last_data_tx: u64,
    /// The link that the newest frame arrived over, as last reported, and when it was reported.
    pub(crate) arrived: Option<(LinkId, u64)>,
    sampled: Totals,
    pub(crate) meter: Meter,
    pub(crate) sender_interval: SenderInterval,
    /// The largest UDP payload on the path to the peer in bytes, as the core has set it.
    pub(crate) limit: Option<u16>,
    /// The size of fast frames that probes have shown.
    pub(crate) size: Option<PathSize>,
    /// Whether the peer has fast frames, whatever frames data goes in now: it then splits TCP
    /// itself.
    pub(crate) splits: bool,
    pub(crate) last_large_tx: u64,
    /// Whether the peer has sent a packet with its whole header, or a control frame of nvpn, in a FIPS
    /// frame: it reads such frames.
    pub(crate) reads_whole: bool,
    /// Whether the peer has sent a direct record: it reads them.
    pub(crate) reads_direct: bool,
    /// When a packet last went in a frame of the link although the peer reads direct records, in ms.
    pub(crate) link_frame: Option<u64>,
    /// Packets of which some pieces have been received.
    pub(crate) reassembly: Reassembly,
    /// The path MTU that the last frame from the peer reports.
    pub(crate) path_mtu: Option<u16>,
    /// What is left of the rate of messages for services, once there was one.
    pub(crate) services: Option<Bucket>,
    /// When a packet was last left to the first lane, if this is another one.
    pub(crate) yielded: Option<u64>,
    /// The keys of a peer that speaks WireGuard, which has no link.
    pub(crate) wireguard: Option<Box<Tunnel>>,
}

impl Session {
    /// Makes a session without keys.
    pub(crate) fn new(peer: NodeAddr) -> Self {
        Self {
            peer,
            allowed: false,
            link: None,
            egress: None,
            epochs: Epochs::default(),
            fast: Fast::default(),
            relay: None,
            queue: VecDeque::new(),
            wanted: None,
            expecting: None,
            asked: 0,
            totals: Totals::default(),
            last_data: 0,
            last_data_tx: 0,
            arrived: None,
            sampled: Totals::default(),
            meter: Meter::default(),
            sender_interval: SenderInterval::default(),
            limit: None,
            size: None,
            splits: false,
            last_large_tx: 0,
            reads_whole: false,
            reads_direct: false,
            link_frame: None,
            reassembly: Reassembly::default(),
            path_mtu: None,
            services: None,
            yielded: None,
            wireguard: None,
        }
    }

    /// Seals nothing more under the present keys.
    pub(crate) fn suspend(&mut self) {
        self.epochs.suspend();
        self.fast.suspend();
        self.size = None;
        self.wanted = None;
    }

    /// Removes all keys.
    pub(crate) fn forget_keys(&mut self) {
        self.epochs = Epochs::default();
        self.fast = Fast::default();
        self.size = None;
        self.wanted = None;
    }

    /// Opens a frame and returns the epoch that opened it, and whether the frame is the newest of
    /// that epoch. FSP frames do not name their epoch, and a failed attempt destroys the bytes. So
    /// while several epochs could match, or keys may be on their way, a copy restores the bytes
    /// after each attempt.
    pub(crate) fn open(
        &mut self,
        now: u64,
        counter: u64,
        key_bit: bool,
        aad: &[u8],
        sealed: &mut [u8],
        scratch: &mut Vec<u8>,
    ) -> Result<(u32, bool), OpenFailure> {
        let mut order = Default::default();
        let n = self.epochs.trial_order(key_bit, &mut order);
        let mut failure = OpenFailure::Tag;
        let restores = n > 1 || self.expects_keys(now);
        if restores {
            scratch.clear();
            scratch.extend_from_slice(sealed);
        }
        for id in &order[..n] {
            let Some(epoch) = self.epochs.pick_mut(Some(*id)) else {
                continue;
            };
            match epoch.open(counter, aad, sealed) {
                Ok(newest) => return Ok((*id, newest)),
                Err(OpenFailure::Replay) if n == 1 => failure = OpenFailure::Replay,
                Err(OpenFailure::Tag) if restores => sealed.copy_from_slice(scratch),
                Err(_) => {}
            }
        }
        Err(failure)
    }

    /// Returns whether frames that no present key opens may wait for keys.
    pub(crate) fn expects_keys(&self, now: u64) -> bool {
        let is_asked = self.asked > 0 && now.saturating_sub(self.asked) < EXPECT_KEYS;
        is_asked || self.expecting.is_some_and(|expecting| expecting.is_open(now))
    }

    /// Accounts for IP packets that were sent to the peer. `bytes` is the length of the packets.
    #[inline]
    pub(crate) fn sent_packets(&mut self, now: u64, packets: u64, bytes: usize) {
        if packets == 0 {
            return;
        }
        self.totals.tx_frames += packets;
        self.totals.tx_bytes += bytes as u64;
        self.totals.last_tx = now;
        self.last_data = now;
        self.last_data_tx = now;
    }

    /// Accounts for a message that was sent to the peer.
    pub(crate) fn sent_message(&mut self, now: u64) {
        self.totals.tx_frames += 1;
        self.totals.last_tx = now;
    }

    /// Accounts for IP packets that were received from the peer.
    #[inline]
    pub(crate) fn received_packets(&mut self, now: u64, packets: u64, bytes: usize) {
        self.totals.rx_frames += packets;
        self.totals.rx_bytes += bytes as u64;
        self.totals.rx_payload += packets;
        self.totals.last_rx = now;
        self.last_data = now;
    }

    /// Accounts for a message that was received from the peer.
    pub(crate) fn received_message(&mut self, now: u64) {
        self.totals.rx_frames += 1;
        self.totals.last_rx = now;
    }

    /// Records that the newest frame arrived over this link. Returns whether that is to be
    /// reported.
    #[inline]
    pub(crate) fn arrives_over(&mut self, now: u64, link: LinkId) -> bool {
        let known = |(last, at)| last == link || now.saturating_sub(at) < ARRIVAL_INTERVAL;
        let due = !self.arrived.is_some_and(known);
        if due {
            self.arrived = Some((link, now));
        }
        due
    }

    /// Returns the totals if they have changed since the last call.
    pub(crate) fn sample(&mut self) -> Option<Totals> {
        let changed = self.totals != self.sampled;
        self.sampled = self.totals;
        changed.then_some(self.totals)
    }
}

/// A packet that waits for keys.
pub(crate) struct Waiting {
    pub(crate) hdr: VirtioNetHdr,
    pub(crate) packet: Vec<u8>,
    /// Whether it has been counted as one that waits for fast frames.
    pub(crate) for_fast: bool,
}

impl Waiting {
    /// Returns the packet.
    pub(crate) fn packet(&self) -> TunPacket<'_> {
        TunPacket {
            hdr: self.hdr,
            bytes: &self.packet,
        }
    }
}

/// Records that keys may be on their way, because last messages of handshakes were received. Each
/// of them may be forged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Expecting {
    /// When the first of them was received, in ms: the first after a pause of [`FORGET_EXPECTED`]
    /// or more, or after keys were installed.
    since: u64,
    /// When the latest of them was received, in ms.
    last: u64,
    /// The first bytes of the latest, which are ciphertext.
    message: [u8; 4],
    /// Whether keys have been installed since.
    met: bool,
}

impl Expecting {
    /// Records one more such message, which contains this Noise message.
    pub(crate) fn renewed(before: Option<Self>, now: u64, noise: &[u8]) -> Self {
        let message = noise.first_chunk().copied().unwrap_or_default();
        let since = match before {
            // The peer repeats its message until it sees that it arrived. The keys of this one are
            // installed.
            Some(before) if before.met && before.message == message => return before,
            Some(before) if !before.met && now.saturating_sub(before.last) < FORGET_EXPECTED => before.since,
            _ => now,
        };
        Self {
            since,
            last: now,
            message,
            met: false,
        }
    }

    /// Records that keys have been installed.
    pub(crate) fn met(self) -> Self {
        Self { met: true, ..self }
    }

    /// Returns whether frames without keys may still wait for some.
    pub(crate) fn is_open(&self, now: u64) -> bool {
        !self.met && now.saturating_sub(self.last) < EXPECT_KEYS
    }

    /// Returns whether the core has had time to make keys of the first message, and has made none.
    pub(crate) fn in_vain(&self, now: u64) -> bool {
        now.saturating_sub(self.since) >= EXPECT_KEYS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Handshake messages that lead to no keys, slightly further apart than the time that keys may
    /// take.
    #[test]
    fn forged_handshakes_hide_lost_keys_only_for_a_handshake_time() {
        let mut expecting = None;
        for now in (1_000..60_000).step_by(1_001) {
            expecting = Some(Expecting::renewed(expecting, now, &now.to_be_bytes()));
            assert_eq!(expecting.is_some_and(|e| e.in_vain(now + 1)), now > 1_000, "{now}");
        }
        let later = Expecting::renewed(expecting, 60_000 + FORGET_EXPECTED, &[7; 8]);
        assert!(
            !later.in_vain(60_001 + FORGET_EXPECTED),
            "another handshake, in its own time"
        );
    }

    /// The peer repeats its message after half a second if the proof of the keys takes longer.
    #[test]
    fn a_repeated_handshake_takes_no_time_of_the_next() {
        let led_to_keys = Expecting::renewed(None, 1_000, &[1; 8]).met();
        let repeated = Expecting::renewed(Some(led_to_keys), 1_500, &[1; 8]);
        assert!(!repeated.is_open(1_501), "its keys are here");
        let next = Expecting::renewed(Some(repeated), 4_000, &[2; 8]);
        assert!(next.is_open(4_001) && !next.in_vain(4_001));
    }
}
