//! The examples of relayed frames: keys of a hop, and packets between A and C in both directions
//! through B, in both privacy modes.

use weft_contract::{
    Command, EpochId, EpochUse, FastKeys, Label, LabelRoute, LinkCommand, LinkId, LinkReport, ReceiverIndex, Relay,
    Report, SessionCommand, SessionReport, TableCommand,
};
use weft_noise::fast::{Seed, Suite};
use weft_noise::{Established, Role, ik, xk};
use weft_wire::fast::{CONFIRM, CONFIRM_ANSWERS, CONFIRM_ASKS, Capabilities, READS_FULL};
use weft_wire::link::{HOP_CAPABILITIES, HOP_CAPABILITIES_ACK};
use weft_wire::virtio::VirtioNetHdr;

use crate::book::Book;
use crate::fast::{A_SUITES, B_SUITES, MAX_PAYLOAD};
use crate::node::{LINK, MTU, Node, ephemeral, label, scalar};
use crate::reader::fast::{self as reader, Frame, Phase, Relayed};
use crate::reader::{self as fips, Keys, LinkFrame};
use crate::{A_INDEX, on_link, to_b};

/// B's link with C, in B's numbering; C has no other.
const ONWARD: LinkId = LinkId(2);
const ID: EpochId = EpochId(0);
/// The holders of the indices: of the hop between A and B, of that between B and C, of the session
/// of A and C.
const HOP_AB: [(&str, u32); 2] = [("A", 0xa8a9_aaab), ("B", 0xb8b9_babb)];
const HOP_BC: [(&str, u32); 2] = [("B", 0xbcbd_bebf), ("C", 0xc8c9_cacb)];
const ENDS_AC: [(&str, u32); 2] = [("A", 0xacad_aeaf), ("C", 0xcccd_cecf)];
/// A's label for C towards B, and B's towards C; and the labels for A in the reverse direction.
const TO_C: [u32; 2] = [7, 9];
const TO_A: [u32; 2] = [3, 5];

/// Both directions of one example's keys, with the index of the receiver.
struct Pair {
    /// From the initiator.
    there: Phase,
    back: Phase,
    indices: [u32; 2],
}

/// Writes the whole part: the nodes share a link, whose handshake ended with `link`.
pub fn relayed_frames(
    book: &mut Book,
    (a, b): (&mut Node, &mut Node),
    (at_a, at_b): (&Established, &Established),
    link: &Keys,
) {
    let mut c = Node::new("C", [192, 0, 2, 3]);
    let bodies = hop_capabilities(book, (a, b), link);
    book.section(
        "hop keys",
        &["Of the hop between A and B, from the exporter of the link handshake, in suite 1: A-B is direction 0."],
    );
    let ab = schedule(book, ["A", "B"], &link.hop_exporter, &bodies, HOP_AB);
    let seeds = [Seed::hop(at_a, Role::Initiator), Seed::hop(at_b, Role::Responder)];
    for (node, keys) in [&mut *a, &mut *b].into_iter().zip(fast_keys(&seeds, &bodies, HOP_AB)) {
        node.apply(8_300, Command::Link(LINK, LinkCommand::InstallHop { keys }));
    }
    hop_confirm(book, a, b, &ab);
    let bc = onward(book, b, &mut c);
    let ac = session(book, a, b, &mut c);
    let hops = [&ab, &bc, &ac];
    confirm(book, a, b, &mut c, hops);
    data(book, a, b, &mut c, hops);
}

/// The capabilities of two neighbours. A's are sent, and acknowledged.
fn hop_capabilities(book: &mut Book, (a, b): (&mut Node, &mut Node), link: &Keys) -> [Vec<u8>; 2] {
    book.section(
        "hop capabilities",
        &[
            "A to B: link counter 6 at 7,200 ms. A's index for frames of the hop is 0xa8a9aaab, B's 0xb8b9babb; random is the",
            "first 16 bytes of the label \"A hop random\", likewise for B.",
        ],
    );
    let bodies = capabilities(book, "hop", HOP_AB);
    let frame = to_b(link, 6, 7_200, HOP_CAPABILITIES, &bodies[0]).seal(book);
    book.bytes("datagram", &frame);
    assert_eq!(a.send(8_200, on_link(HOP_CAPABILITIES, bodies[0].clone())), frame);
    let (_, reports) = b.receive(8_210, a.addr, &frame);
    assert!(
        matches!(&reports[..], [Report::Link(_, LinkReport::Message { msg_type: HOP_CAPABILITIES, body, .. })] if *body == bodies[0])
    );

    book.section(
        "hop capabilities ack",
        &["B to A: link counter 2 at 7,222 ms; the same digest as for a session."],
    );
    let body = reader::acknowledgement(&bodies[0]);
    let frame = LinkFrame {
        key: link.k2,
        flags: 0,
        receiver_idx: A_INDEX,
        ..to_b(link, 2, 7_222, HOP_CAPABILITIES_ACK, &body)
    };
    let frame = frame.seal(book);
    book.bytes("datagram", &frame);
    assert_eq!(b.send(8_210, on_link(HOP_CAPABILITIES_ACK, body.clone())), frame);
    let (_, reports) = a.receive(8_220, b.addr, &frame);
    assert!(
        matches!(&reports[..], [Report::Link(_, LinkReport::Message { msg_type: HOP_CAPABILITIES_ACK, body: read, .. })] if *read == body)
    );
    bodies
}

/// Bodies of both sides, for a hop or for the two ends.
fn capabilities(book: &mut Book, of: &str, names: [(&str, u32); 2]) -> [Vec<u8>; 2] {
    names.map(|(name, index)| {
        let suites = if name == "A" { &A_SUITES } else { &B_SUITES };
        let random = <[u8; 16]>::try_from(&label(&format!("{name} {of} random"))[..16]).unwrap();
        let body = reader::capabilities(MAX_PAYLOAD, &random, suites, &[index]);
        book.bytes(&format!("{name}.capabilities"), &body);
        let mut out = vec![0; Capabilities::MAX_LEN];
        let len = Capabilities::emit_with(READS_FULL, MAX_PAYLOAD, &random, suites, &[index], "", &mut out).unwrap();
        assert_eq!(out[..len], body);
        body
    })
}

/// The keys, derived by the reader; suite 1, which all of them choose.
fn schedule(
    book: &mut Book,
    names: [&str; 2],
    exporter: &[u8; 32],
    [of_a, of_b]: &[Vec<u8>; 2],
    indices: [(&str, u32); 2],
) -> Pair {
    let prk = reader::prk(exporter, of_a, of_b);
    let [there, back] = [0, 1].map(|direction| Phase::first(&prk, 1, direction));
    let [x, y] = names;
    book.bytes("exporter", exporter);
    book.bytes("salt", fips::sha256(&[of_a, of_b]));
    book.bytes("PRK", prk);
    there.tell(&format!("{x}-{y}"), book);
    back.tell(&format!("{y}-{x}"), book);
    Pair {
        there,
        back,
        indices: indices.map(|(_, index)| index),
    }
}

/// The keys that the crates derive, for initiator and responder.
fn fast_keys(seeds: &[Seed; 2], bodies: &[Vec<u8>; 2], indices: [(&str, u32); 2]) -> [FastKeys; 2] {
    let suite = Suite::choose(&A_SUITES, &B_SUITES).unwrap();
    [0, 1].map(|us| {
        let theirs = Capabilities::parse(&bodies[1 - us]).unwrap();
        FastKeys {
            id: ID,
            our_index: ReceiverIndex(indices[us].1),
            their_index: ReceiverIndex(theirs.indices().next().unwrap()),
            max_payload: theirs.max_payload,
            reads_full: true,
            suite,
            secrets: seeds[us].secrets(&bodies[us], &bodies[1 - us], suite, 0),
            phase_frames: 1 << 23,
        }
    })
}

/// A confirm of `from` at the initiator's end, or the answer to it.
fn confirm_frame(keys: &Pair, asks: bool, clock: u32, counter: u64) -> Frame<'_> {
    Frame {
        keys: if asks { &keys.there } else { &keys.back },
        kind: reader::MESSAGE,
        flags: 0,
        receiver_index: keys.indices[usize::from(asks)],
        counter,
        clock,
        content: if asks {
            &[CONFIRM, CONFIRM_ASKS]
        } else {
            &[CONFIRM, CONFIRM_ANSWERS]
        },
    }
}

fn hop_confirm(book: &mut Book, a: &mut Node, b: &mut Node, keys: &Pair) {
    book.section("hop confirm", &["A asks 2 ms after the hop's keys began."]);
    let question = confirm_frame(keys, true, 2, 0).seal(book);
    assert_eq!(
        a.send(8_302, Command::Link(LINK, LinkCommand::ConfirmHop { id: ID })),
        question
    );
    book.section("hop confirm answered", &["By B, 12 ms after its own began."]);
    let answer = confirm_frame(keys, false, 12, 0).seal(book);
    assert_eq!(b.receive(8_312, a.addr, &question).1.len(), 0);
    assert_eq!(b.take_sent(), [&answer[..]]);
    let (_, reports) = a.receive(8_322, b.addr, &answer);
    assert!(matches!(
        reports[..],
        [Report::Link(LINK, LinkReport::HopProven { id: ID })]
    ));
}

/// B's link with C and the hop over it, derived in the same way.
fn onward(book: &mut Book, b: &mut Node, c: &mut Node) -> Pair {
    b.end.e = scalar(&label("B ik ephemeral to C"));
    let (pending, msg1) = ik::Initiator::start(&b.identity, c.identity.public(), b.end.epoch, &mut ephemeral(&b.end));
    let (msg2, at_c) = ik::Responder::read(&c.identity, &msg1)
        .unwrap()
        .accept(c.end.epoch, &mut ephemeral(&c.end));
    let at_b = pending.finish(&msg2).unwrap();
    let (_, keys) = fips::ik_initiator(&b.end, &c.x(), &mut Book::default(), |_| msg2.to_vec());

    book.section(
        "hop keys onward",
        &[
            "Of the hop between B and C, which B opened, its ephemeral being \"B ik ephemeral to C\". C has its secrets by the",
            "same rule, and takes frames of the hop under 0xc8c9cacb, B under 0xbcbdbebf; randoms are \"B onward random\" and",
            "\"C onward random\".",
        ],
    );
    let bodies = capabilities(book, "onward", HOP_BC);
    let pair = schedule(book, ["B", "C"], &keys.hop_exporter, &bodies, HOP_BC);
    let seeds = [Seed::hop(&at_b, Role::Initiator), Seed::hop(&at_c, Role::Responder)];
    let [of_b, of_c] = fast_keys(&seeds, &bodies, HOP_BC);
    b.install_link(8_300, (ONWARD, c.addr), &at_b, (1, 2), EpochUse::Send);
    c.install_link(8_300, (LINK, b.addr), &at_c, (2, 1), EpochUse::Send);
    b.apply(8_300, Command::Link(ONWARD, LinkCommand::InstallHop { keys: of_b }));
    c.apply(8_300, Command::Link(LINK, LinkCommand::InstallHop { keys: of_c }));
    let question = confirm_frame(&pair, true, 2, 0).seal(&mut Book::default());
    assert_eq!(
        b.send(8_302, Command::Link(ONWARD, LinkCommand::ConfirmHop { id: ID })),
        question
    );
    assert_eq!(c.receive(8_312, b.addr, &question).1.len(), 0);
    let answer = confirm_frame(&pair, false, 12, 0).seal(&mut Book::default());
    assert_eq!(c.take_sent(), [&answer[..]]);
    assert!(matches!(
        b.receive(8_322, c.addr, &answer).1[..],
        [Report::Link(ONWARD, LinkReport::HopProven { .. })]
    ));
    pair
}

/// The session of A and C, and the labels on its path.
fn session(book: &mut Book, a: &mut Node, b: &mut Node, c: &mut Node) -> Pair {
    a.end.e = scalar(&label("A xk ephemeral to C"));
    c.end.e = scalar(&label("C xk ephemeral"));
    let (pending, msg1) = xk::Initiator::start(c.identity.public(), &mut ephemeral(&a.end));
    let (waiting, msg2) = xk::Responder::read(&c.identity, &msg1, c.end.epoch, &mut ephemeral(&c.end)).unwrap();
    let (msg3, at_a) = pending.finish(&a.identity, &msg2, a.end.epoch).unwrap();
    let at_c = waiting.finish(&msg3).unwrap();
    let (_, _, keys) = fips::xk_initiator(&a.end, &c.x(), &mut Book::default(), |_| msg2.to_vec());

    book.section(
        "keys of the ends",
        &[
            "Of the session that A opened with C, the ephemerals being \"A xk ephemeral to C\" and \"C xk ephemeral\". A takes fast",
            "frames from C under 0xacadaeaf, C those from A under 0xcccdcecf; randoms are \"A ends random\" and \"C ends random\".",
        ],
    );
    let bodies = capabilities(book, "ends", ENDS_AC);
    let pair = schedule(book, ["A", "C"], &keys.exporter, &bodies, ENDS_AC);
    let seeds = [Seed::new(&at_a, Role::Initiator), Seed::new(&at_c, Role::Responder)];
    let (a_addr, c_addr) = (a.node_addr(), c.node_addr());
    a.install_session(8_400, c_addr, &at_a);
    c.install_session(8_400, a_addr, &at_c);
    let [of_a, of_c] = fast_keys(&seeds, &bodies, ENDS_AC);
    for (node, peer, keys, label) in [(&mut *a, c_addr, of_a, TO_C[0]), (&mut *c, a_addr, of_c, TO_A[0])] {
        node.apply(8_400, Command::Session(peer, SessionCommand::InstallFast { keys }));
        let relay = Some(Relay {
            link: LINK,
            label: Label(label),
            mtu: MTU,
        });
        node.apply(8_400, Command::Session(peer, SessionCommand::Relay { relay }));
    }
    let labels = [
        (&mut *b, LINK, TO_C[0], Some((ONWARD, TO_C[1]))),
        (c, LINK, TO_C[1], None),
    ];
    for (node, link, label, on) in labels {
        node.apply(8_400, set_label(link, label, on));
    }
    b.apply(8_400, set_label(ONWARD, TO_A[0], Some((LINK, TO_A[1]))));
    a.apply(8_400, set_label(LINK, TO_A[1], None));
    pair
}

fn set_label(link: LinkId, label: u32, on: Option<(LinkId, u32)>) -> Command {
    let to = on.map_or(LabelRoute::Here, |(link, label)| LabelRoute::On {
        link,
        label: Label(label),
    });
    Command::Link(
        link,
        LinkCommand::SetLabel {
            label: Label(label),
            to,
        },
    )
}

/// An end-to-end frame between A and C: over the first hop and over the second.
struct OnTheWay<'a> {
    hops: [&'a Pair; 3],
    there: bool,
    /// The counter under the keys of both hops.
    counter: u64,
    whole: bool,
    /// The marks that B writes.
    marks: u8,
}

impl OnTheWay<'_> {
    /// Both datagrams.
    fn seal(&self, inner: &[u8], book: &mut Book) -> [Vec<u8>; 2] {
        let [ab, bc, _] = self.hops;
        let (hops, labels, names) = if self.there {
            ([ab, bc], TO_C, ["A-B", "B-C"])
        } else {
            ([bc, ab], TO_A, ["C-B", "B-A"])
        };
        [0, 1].map(|n| {
            let hop = Relayed {
                keys: if self.there { &hops[n].there } else { &hops[n].back },
                receiver_index: hops[n].indices[usize::from(self.there)],
                counter: self.counter,
                whole: self.whole,
                label: labels[n],
                ttl: 64 - n as u8,
                marks: if n == 1 { self.marks } else { 0 },
                inner,
            };
            hop.seal(names[n], book)
        })
    }
}

/// A's confirm to C, and C's answer, through B.
fn confirm(book: &mut Book, a: &mut Node, b: &mut Node, c: &mut Node, hops: [&Pair; 3]) {
    book.section(
        "relayed",
        &[
            "A asks C for a confirm, 2 ms after the keys of the ends began. A's label for C is 7, B's 9. X-Y.datagram = X-Y.header,",
            "tag, the sealed X-Y.plain, the rest of the inner frame.",
        ],
    );
    let way = OnTheWay {
        hops,
        there: true,
        counter: 1,
        whole: false,
        marks: 0,
    };
    let inner = confirm_frame(hops[2], true, 2, 0).seal_as("inner", book);
    let [first, second] = way.seal(&inner, book);
    let peer = c.node_addr();
    assert_eq!(
        a.send(8_402, Command::Session(peer, SessionCommand::ConfirmFast { id: ID })),
        first
    );
    // The first frame from A other than a confirm that asks: it proves B's keys of the hop.
    assert!(matches!(
        b.receive(8_412, a.addr, &first).1[..],
        [Report::Link(LINK, LinkReport::HopProven { .. })]
    ));
    assert_eq!(b.take_sent(), [&second[..]]);
    assert!(matches!(
        c.receive(8_422, b.addr, &second).1[..],
        [Report::Link(LINK, LinkReport::HopProven { .. })]
    ));

    book.section(
        "relayed answer",
        &["C answers, 22 ms after its own began. C's label for A is 3, B's 5."],
    );
    let way = OnTheWay { there: false, ..way };
    let inner = confirm_frame(hops[2], false, 22, 0).seal_as("inner", book);
    let [first, second] = way.seal(&inner, book);
    assert_eq!(c.take_sent(), [&first[..]]);
    assert_eq!(b.receive(8_432, c.addr, &first).1.len(), 0);
    assert_eq!(b.take_sent(), [&second[..]]);
    let (_, reports) = a.receive(8_442, b.addr, &second);
    assert!(matches!(
        reports[..],
        [
            Report::Session(
                _,
                SessionReport::FastProven {
                    id: ID,
                    direct: false,
                    ..
                }
            ),
            ..
        ]
    ));
}

/// A packet in both modes, the second time with a mark of B's.
fn data(book: &mut Book, a: &mut Node, b: &mut Node, c: &mut Node, hops: [&Pair; 3]) {
    let ip = crate::udp_packet(a, c, b"hello, C");
    for (whole, counter, now) in [(false, 1, 8_500), (true, 2, 8_501)] {
        if whole {
            book.section(
                "relayed whole",
                &[
                    "The same a millisecond later, with privacy = \"full\" at A, while B's link with C is congested: C takes the packet",
                    "for one that has met congestion. X-Y.datagram = X-Y.header, tag, the sealed X-Y.plain.",
                ],
            );
            a.apply(now, Command::Table(TableCommand::SealWhole));
            b.apply(now, Command::Link(ONWARD, LinkCommand::MarkCongestion { on: true }));
        } else {
            let about =
                "A UDP datagram \"hello, C\" from A to C, through B: counter 1 of the ends, 2 of the hops, at 100 ms.";
            book.section("relayed data", &[about]);
            book.bytes("ip", &ip);
        }
        let inner = Frame {
            keys: &hops[2].there,
            kind: reader::IPV6,
            flags: 0,
            receiver_index: hops[2].indices[1],
            counter,
            clock: (now - 8_400) as u32,
            content: &reader::ipv6_content(&ip, false),
        };
        let inner = inner.seal_as("inner", book);
        let way = OnTheWay {
            hops,
            there: true,
            counter: counter + 1,
            whole,
            marks: u8::from(whole),
        };
        let [first, second] = way.seal(&inner, book);
        assert_eq!(a.outbound(now, VirtioNetHdr::default(), &ip), first);
        assert_eq!(b.receive(now + 10, a.addr, &first).0, None);
        assert_eq!(b.take_sent(), [&second[..]]);
        let mut delivered = ip.clone();
        // The lower half of the traffic class: ECT(0) becomes CE.
        delivered[1] |= if whole { 0x10 } else { 0 };
        assert_eq!(c.receive(now + 20, b.addr, &second).0, Some(delivered));
        assert_eq!(c.receive(now + 20, b.addr, &second).0, None, "a replay");
    }
    assert_eq!((b.lane.counters().relayed, c.lane.counters().relayed_rx), (4, 3));
}
