//! A node between two others, each of which shares the keys of a hop with it.

use std::hint::black_box;

use weft_contract::{Command, EpochId, FastKeys, Label, LabelRoute, LaneConfig, LinkCommand, LinkId, ReceiverIndex};
use weft_noise::Key;
use weft_noise::fast::{FastCipher, LaneSecrets, Secret, Suite};
use weft_packet::{HEADROOM, Lane, Train};
use weft_wire::fast::{self, Kind, RelayHeader};

use super::{B, MTU, NOW, PAYLOAD, SEGMENTS, Sent, address, install_link, measured};

const LABEL: u32 = 7;
/// Bytes in a relayed frame of a TCP segment.
const FRAME: usize = PAYLOAD as usize + 62 + fast::INNER_AT;

/// One end of a hop: it seals what the node between the neighbours opens.
struct Neighbour {
    cipher: FastCipher,
    counter: u64,
    index: u32,
}

fn secret(of: u8) -> Secret {
    Secret::from_key(&Key::from_bytes([of; 32]))
}

impl Neighbour {
    /// Installs the keys of the hop over this link, and returns the neighbour with the same keys.
    fn agree(lane: &mut Lane, train: &mut Train<Sent>, link: u8) -> Self {
        let index = 100 + u32::from(link);
        let keys = FastKeys {
            id: EpochId(1),
            our_index: ReceiverIndex(index),
            their_index: ReceiverIndex(200 + u32::from(link)),
            max_payload: MTU,
            reads_full: true,
            suite: Suite::Aes256Gcm,
            secrets: LaneSecrets {
                send: secret(10 + link),
                recv: secret(20 + link),
            },
            phase_frames: 1 << 23,
        };
        let on = LinkId(link.into());
        lane.apply(NOW, Command::Link(on, LinkCommand::InstallHop { keys }), train);
        let id = EpochId(1);
        lane.apply(NOW, Command::Link(on, LinkCommand::ConfirmHop { id }), train);
        let mut neighbour = Self {
            cipher: secret(20 + link).cipher(Suite::Aes256Gcm),
            counter: 0,
            index,
        };
        let answer = [0, 0, 0, 0, fast::CONFIRM, fast::CONFIRM_ANSWERS];
        let frame = neighbour.message(answer);
        lane.inbound_alone(NOW, address(link), &frame, train);
        neighbour
    }

    fn header(&mut self, kind: Kind, len: usize) -> (u64, [u8; fast::Header::LEN]) {
        let counter = self.counter;
        self.counter += 1;
        let header = fast::Header {
            kind,
            flags: 0,
            length: (len - fast::Header::LEN) as u16,
            receiver_index: self.index,
            counter,
        };
        (counter, header.to_bytes())
    }

    fn message(&mut self, mut content: [u8; 6]) -> Vec<u8> {
        let (counter, header) = self.header(Kind::Message, fast::Header::LEN + content.len() + 16);
        let tag = self.cipher.seal_in_place(counter, &header, &mut content);
        [&header[..], &content, &tag].concat()
    }

    fn relayed(&mut self) -> Vec<u8> {
        let (counter, header) = self.header(Kind::Relayed, FRAME);
        let told = RelayHeader {
            label: LABEL,
            ttl: 9,
            marks: 0,
        };
        let mut sealed = [&told.to_bytes()[..], &[0; 16]].concat();
        let tag = self.cipher.seal_in_place(counter, &header, &mut sealed);
        let mut frame = [&header[..], &tag, &sealed].concat();
        frame.resize(FRAME, 5);
        frame
    }
}

/// Receives of relayed frames that are forwarded over another link.
pub(super) fn fast_relay(count: usize) {
    let mut lane = Lane::new(LaneConfig {
        me: B,
        mtu: MTU,
        probe: false,
        transit: true,
        handshakes: weft_contract::HandshakeLimits::default(),
    });
    let mut train = Train::new(Sent::default(), 64);
    for link in [1, 2] {
        lane.apply(NOW, install_link(link, 3, 4), &mut train);
    }
    let mut from = Neighbour::agree(&mut lane, &mut train, 1);
    Neighbour::agree(&mut lane, &mut train, 2);
    let to = LabelRoute::On {
        link: LinkId(2),
        label: Label(LABEL),
    };
    let link = LinkId(1);
    lane.apply(
        NOW,
        Command::Link(
            link,
            LinkCommand::SetLabel {
                label: Label(LABEL),
                to,
            },
        ),
        &mut train,
    );
    train.flush();
    train.out_mut().0.clear();
    let mut receives: Vec<Vec<u8>> = Vec::new();
    for _ in 0..count {
        let frames: Vec<_> = (0..SEGMENTS).map(|_| from.relayed()).collect();
        receives.push([&[0; HEADROOM], &frames.concat()[..]].concat());
    }
    let carried = |lane: &Lane| lane.counters().relayed as usize;
    assert_eq!(carried(&lane), 0);
    measured(|| {
        for room in &mut receives {
            lane.inbound_train(NOW, address(1), black_box(room), FRAME, &mut train, |_, _, _| {});
        }
        train.flush();
    });
    assert_eq!(carried(&lane), count * SEGMENTS);
}
