//! Frames that the lane under test relays for a hostile neighbour, which has the keys of the hop.

use weft_contract::{Command, EpochId, FastKeys, Label, LabelRoute, LinkCommand, ReceiverIndex};
use weft_noise::fast::{LaneSecrets, Secret, Suite};
use weft_packet::{Counters, DropReason};
use weft_wire::NodeAddr;
use weft_wire::fast::{self, FLAG_CE, FLAG_WHOLE, INNER_AT, Kind, RelayHeader, SEALED_HEADER};

use super::content::assert_packet;
use super::hostile::Crafted;
use super::{HONEST, HOSTILE, Input, ME, Trio, address, link_to, model};

/// Labels of the hostile neighbour: for the lane itself, for the honest peer, and for the
/// neighbour.
const HERE: u32 = 1;
const ONWARD: u32 = 2;
const BACK: u32 = 3;
/// The honest peer's label for itself.
const AT_HONEST: u32 = 9;
/// Datagrams that one relayed frame makes the lane send: itself, the phase of the hop, and those
/// that an end-to-end frame causes.
const MAX_ANSWERS: usize = 2 + super::MAX_ANSWERS;

/// The state of a hostile neighbour.
pub(super) struct HostileHop {
    index: u32,
    suite: Suite,
    /// Those of its first phases.
    secrets: Vec<Secret>,
    counter: u64,
}

/// The content of a relayed frame.
struct Content {
    /// The frame of the hostile peer, if it is one.
    crafted: Option<Crafted>,
    /// Whether it is not a frame of the honest peer, so that a packet from it is one that the
    /// hostile peer crafted.
    known: bool,
}

impl Default for HostileHop {
    fn default() -> Self {
        Self {
            index: 0,
            suite: Suite::Aes256Gcm,
            secrets: Vec::new(),
            counter: 0,
        }
    }
}

/// The counters of frames whose hop part has opened.
fn carried(counters: &Counters) -> [u64; 5] {
    [
        counters.relayed,
        counters.relayed_rx,
        counters.drops[DropReason::RelayFailed],
        counters.drops[DropReason::RelayTtl],
        counters.drops[DropReason::LabelUnknown],
    ]
}

impl Trio {
    fn install_hop(&mut self, me: NodeAddr, peer: NodeAddr, suite: Suite) {
        let secret = |from, to| Secret::from_key(&self.key(4, from, to));
        let keys = FastKeys {
            id: EpochId(self.id),
            our_index: ReceiverIndex(index(self.id, peer)),
            their_index: ReceiverIndex(index(self.id, me)),
            max_payload: 9_000,
            suite,
            secrets: LaneSecrets {
                send: secret(me, peer),
                recv: secret(peer, me),
            },
            phase_frames: 1 << 20,
            reads_full: false,
        };
        let link = link_to(peer);
        self.apply(me, Command::Link(link, LinkCommand::InstallHop { keys }));
    }

    /// Installs a hop with the honest peer; the next exchange proves it in both directions.
    pub(super) fn install_honest_hop(&mut self) {
        for (me, peer) in [(ME, HONEST), (HONEST, ME)] {
            self.install_hop(me, peer, Suite::Aes256Gcm);
        }
        let id = EpochId(self.id);
        for (me, peer) in [(ME, HONEST), (HONEST, ME)] {
            let link = link_to(peer);
            self.apply(me, Command::Link(link, LinkCommand::ConfirmHop { id }));
        }
        self.set_label(HONEST, ME, AT_HONEST, LabelRoute::Here);
    }

    /// Installs a hop with the hostile neighbour, and its labels.
    pub(super) fn install_hostile_hop(&mut self, suite: Suite) -> HostileHop {
        self.install_hop(ME, HOSTILE, suite);
        let on = |to: NodeAddr, label: u32| LabelRoute::On {
            link: link_to(to),
            label: Label(label),
        };
        self.set_label(ME, HOSTILE, HERE, LabelRoute::Here);
        self.set_label(ME, HOSTILE, ONWARD, on(HONEST, AT_HONEST));
        self.set_label(ME, HOSTILE, BACK, on(HOSTILE, HERE));
        let first = Secret::from_key(&self.key(4, HOSTILE, ME));
        let second = first.next();
        let third = second.next();
        HostileHop {
            index: index(self.id, HOSTILE),
            suite,
            secrets: vec![first, second, third],
            counter: 0,
        }
    }

    fn set_label(&mut self, me: NodeAddr, with: NodeAddr, label: u32, to: LabelRoute) {
        let link = link_to(with);
        self.apply(
            me,
            Command::Link(
                link,
                LinkCommand::SetLabel {
                    label: Label(label),
                    to,
                },
            ),
        );
    }

    /// Sends frames under the right keys of the hop with any content, each followed by a copy.
    pub(super) fn relayed(&mut self, input: &mut Input<'_>) {
        for _ in 0..=input.below(4) {
            let (inner, crafted, known) = match input.below(4) {
                0 | 1 => {
                    let crafted = self.craft(input);
                    (crafted.frame.clone(), Some(crafted), true)
                }
                2 => (input.latest(&self.captured).cloned().unwrap_or_default(), None, false),
                _ => (input.bytes().to_vec(), None, true),
            };
            let told = RelayHeader {
                label: [HERE, HERE, HERE, ONWARD, ONWARD, BACK, input.u8().into()][input.below(7)],
                ttl: [64, 64, 2, 1, 0, input.u8()][input.below(6)],
                marks: input.u8() & 3,
            };
            let whole = input.flag();
            if input.below(8) == 7 {
                self.hop.counter = self.hop.counter.wrapping_add(u64::from(input.u16()));
            }
            let phase = input.below(16).saturating_sub(13);
            let frame = self.hop.seal(told, &inner, whole, phase);
            let spoilt = (input.below(4) == 3).then(|| (input.within(0..frame.len()), input.u8()));
            let content = Content { crafted, known };
            self.relay(content, (told, whole), frame, spoilt);
        }
    }

    /// Sends one such frame, of which a byte may be altered on the path: at this offset, by this
    /// value.
    fn relay(
        &mut self,
        Content { crafted, known }: Content,
        (told, whole): (RelayHeader, bool),
        mut frame: Vec<u8>,
        spoilt: Option<(usize, u8)>,
    ) {
        let (mut intact, mut authentic) = (true, true);
        if let Some((at, by)) = spoilt {
            frame[at] ^= by;
            intact = by == 0;
            authentic = intact || at >= INNER_AT + fast::Header::LEN && !whole;
        }
        let (before, waiting) = (*self.me.counters(), self.me.inspect().queued(&HOSTILE));
        let got = self
            .me
            .inbound_alone(self.now, address(HOSTILE), &frame, &mut self.train);
        let sent = self.take_sent();
        self.drain();
        let after = *self.me.counters();
        self.assert_few(sent.len(), MAX_ANSWERS, &before, waiting);
        if !authentic {
            assert!(got.is_none() && sent.is_empty(), "a forged frame is taken");
            assert_eq!(carried(&after), carried(&before), "a forged frame is carried");
        }
        if after.fast_rx > before.fast_rx
            && let Some(crafted) = &crafted
        {
            assert!(intact, "content that was altered opens");
            assert!(self.hostile.opened.insert(crafted.counter), "a counter opened twice");
        }
        if let Some(got) = got.filter(|_| known) {
            let packet = crafted.and_then(|crafted| crafted.packet);
            let (mut expected, partial) = packet.unwrap_or_else(|| panic!("no packet was in it"));
            if told.marks & FLAG_CE != 0 {
                model::mark_ce(&mut expected);
            }
            assert_packet(&got, &expected, partial);
        }
        if after.relayed > before.relayed && told.label == ONWARD {
            self.carried_on(&frame, &sent, whole);
        }
        self.again(&frame);
    }

    /// Checks a frame for the honest peer, which accepts it as one of this node and finds nothing
    /// in it that it can open.
    fn carried_on(&mut self, frame: &[u8], sent: &[Vec<u8>], whole: bool) {
        let is_relayed = |datagram: &&Vec<u8>| datagram[0] & 15 == Kind::Relayed as u8;
        let on = sent.iter().find(is_relayed).unwrap();
        assert_eq!(on.len(), frame.len());
        let content = INNER_AT + fast::Header::LEN;
        assert!(whole || on[content..] == frame[content..], "the content was altered");
        let heard = *self.honest.counters();
        let got = self
            .honest
            .inbound_alone(self.now, address(ME), on, &mut self.honest_train);
        assert_eq!(got, None, "the honest peer takes somebody else's packet");
        let now = *self.honest.counters();
        assert_eq!(
            (now.drops[DropReason::FastTag], now.drops[DropReason::FastReplay]),
            (heard.drops[DropReason::FastTag], heard.drops[DropReason::FastReplay])
        );
        assert!(
            now.drops[DropReason::FastUnknown] > heard.drops[DropReason::FastUnknown]
                || now.drops[DropReason::Malformed] > heard.drops[DropReason::Malformed]
        );
        self.exchange();
    }

    /// Checks that a copy of the frame has no effect.
    fn again(&mut self, frame: &[u8]) {
        let before = *self.me.counters();
        let got = self
            .me
            .inbound_alone(self.now, address(HOSTILE), frame, &mut self.train);
        assert!(got.is_none() && self.take_sent().is_empty(), "a frame is taken twice");
        assert_eq!(
            carried(self.me.counters()),
            carried(&before),
            "a frame is carried twice"
        );
        self.drain();
    }
}

impl HostileHop {
    /// Seals `inner` for the lane under test, as docs/protocol/fast.md specifies.
    fn seal(&mut self, told: RelayHeader, inner: &[u8], whole: bool, phase: usize) -> Vec<u8> {
        let mut behind = [&told.to_bytes()[..], inner].concat();
        let length = (fast::TAG_LEN + behind.len()) as u16;
        let header = fast::Header {
            kind: Kind::Relayed,
            flags: phase as u8 & fast::FLAG_PHASE | if whole { FLAG_WHOLE } else { 0 },
            length,
            receiver_index: self.index,
            counter: self.counter,
        };
        let header = header.to_bytes();
        let sealed = if whole {
            behind.len()
        } else {
            behind.len().min(SEALED_HEADER)
        };
        let cipher = self.secrets[phase].cipher(self.suite);
        let tag = cipher.seal_in_place(self.counter, &header, &mut behind[..sealed]);
        self.counter = self.counter.wrapping_add(1);
        [&header[..], &tag, &behind].concat()
    }
}

/// The receiver index that a peer writes into frames of the hop to this node under these keys.
fn index(id: u32, peer: NodeAddr) -> u32 {
    id << 8 | 0xc0 | u32::from(peer.as_bytes()[0])
}

#[cfg(test)]
mod tests {
    use super::super::fresh;
    use super::*;

    /// Delivers a packet of the hostile peer, IPv4 with these ECN bits, from a relayed and marked
    /// frame. Returns how many were counted as marked.
    fn marked(class: u8) -> u8 {
        let mut trio = fresh();
        let mut packet = vec![0x45, class, 0, 0, 0, 7, 0x40, 0, 64, model::UDP, 0, 0];
        packet.extend([10, HOSTILE.as_bytes()[0], 0, 1, 10, ME.as_bytes()[0], 0, 1]);
        packet.extend([0, 7, 0, 7, 0, 8, 0, 0]);
        model::make_ipv4(&mut packet);
        let plain = [&[0; fast::TIMESTAMP_LEN][..], &packet].concat();
        let crafted = trio.hostile.seal(Kind::Full as u8, 0, &plain, 0, None);
        let told = RelayHeader {
            label: HERE,
            ttl: 64,
            marks: FLAG_CE,
        };
        let frame = trio.hop.seal(told, &crafted.frame, true, 0);
        let content = Content {
            crafted: Some(crafted),
            known: true,
        };
        let before = trio.me.counters().ce_delivered;
        trio.relay(content, (told, true), frame, None);
        (trio.me.counters().ce_delivered - before) as u8
    }

    #[test]
    fn a_mark_reaches_the_ecn_bits_of_ipv4_where_there_are_some() {
        assert_eq!([0, 1, 2, 3].map(|ecn| marked(0xb8 | ecn)), [0, 1, 1, 0]);
        // Bits that would be ECN in IPv6.
        assert_eq!([0x10, 0x20, 0x30].map(marked), [0; 3]);
    }
}
