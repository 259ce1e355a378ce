//! A lane executes the core's commands in the middle of bulk. The test runs a lane's thread in a
//! namespace.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panic")]

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use weft_contract::{Command, LaneConfig, LinkCommand, LinkId, ReceiverIndex, Report};
use weft_os::netlink::Netlink;
use weft_os::netns::NetNs;
use weft_os::test_support::{self, in_namespaces};
use weft_os::tun::{Tun, TunError, TunOptions};
use weft_os::udp::{BindOptions, UdpSocket};
use weft_packet::{DropReason, Lane, Train, Transmit};
use weft_plane::{LaneSetup, Lanes};
use weft_wire::NodeAddr;
use weft_wire::fmp::EstablishedHeader;

/// Datagrams that wait when the lane starts, in trains that the kernel keeps together.
const BULK: u32 = 20 * 64;
/// Reports before the core sends its command.
const BEFORE: usize = 10;
/// Datagrams that a lane processes at once.
const AT_ONCE: u64 = 32;
/// The time limit of all of them.
const MINUTE: Duration = Duration::from_secs(60);

struct Nowhere;

impl Transmit for Nowhere {
    fn transmit(&mut self, _: weft_contract::Endpoint, _: &[u8], _: usize) {}
}

/// An empty frame for this index, which no keys open.
fn frame(receiver_idx: u32) -> Vec<u8> {
    let header = EstablishedHeader {
        flags: 0,
        payload_len: 0,
        receiver_idx,
        counter: 0,
    };
    let mut frame = header.to_bytes().to_vec();
    frame.resize(EstablishedHeader::MIN_FRAME, 0);
    frame
}

/// A lane finds bulk in its socket: each frame is a report to the core. After the tenth report the
/// core disarms all indices, so the lane's counters show how many frames it processed before it
/// obeyed.
fn frames_before_the_core_is_obeyed(core_takes_reports: bool) -> Option<u64> {
    let tun = match Tun::create("weft%d", TunOptions::default()) {
        Ok(tun) => tun,
        Err(why @ (TunError::NoDevice | TunError::DevicePermission)) => {
            test_support::skip(&why);
            return None;
        }
        Err(error) => panic!("{error}"),
    };
    Netlink::open().unwrap().set_up(1).unwrap();
    let bind = || UdpSocket::bind(SocketAddr::from(([127, 0, 0, 1], 0)), BindOptions::default()).unwrap();
    let (socket, sender) = (bind(), bind());
    let mut lane = Lane::new(LaneConfig {
        me: NodeAddr::new([1; 16]),
        mtu: 1_280,
        probe: false,
        transit: false,
        handshakes: weft_contract::HandshakeLimits::default(),
    });
    let mut nowhere = Train::new(Nowhere, 64);
    for index in 0..BULK {
        let (link, peer) = (LinkId(1), NodeAddr::new([9; 16]));
        let arm = Command::Link(
            link,
            LinkCommand::ArmIndex {
                peer,
                index: ReceiverIndex(index),
            },
        );
        lane.apply(0, arm, &mut nowhere);
    }
    let indices: Vec<u32> = (0..BULK).collect();
    for train in indices.chunks(64) {
        let bytes: Vec<u8> = train.iter().flat_map(|index| frame(*index)).collect();
        let segment = Some(EstablishedHeader::MIN_FRAME as u16);
        sender.send(socket.local_address(), &bytes, segment).unwrap();
    }
    let lanes: Arc<Mutex<Option<Lanes>>> = Arc::default();
    let (core, mut offered) = (lanes.clone(), 0);
    // The first report waits until the lanes are stored, so nothing is processed before.
    let mut held = lanes.lock().unwrap();
    let reports = move |report: Report| {
        offered += 1;
        let lanes = core.lock().unwrap();
        if offered == BEFORE {
            let disarm = (0..BULK).map(|index| {
                Command::Link(
                    LinkId(1),
                    LinkCommand::DisarmIndex {
                        index: ReceiverIndex(index),
                    },
                )
            });
            lanes.as_ref().unwrap().send(disarm.collect());
        }
        if core_takes_reports { Vec::new() } else { vec![report] }
    };
    *held = Some(
        Lanes::start(vec![LaneSetup {
            lane,
            tun,
            sockets: vec![socket],
            batch: 64,
            preferred: false,
            reports: Box::new(reports),
        }])
        .unwrap(),
    );
    drop(held);
    let end = Instant::now() + MINUTE;
    loop {
        let late = Instant::now() >= end;
        let snapshot = lanes.lock().unwrap().as_ref().unwrap().snapshots()[0].lane;
        let seen = snapshot.early_frames + snapshot.drops[DropReason::UnknownIndex];
        if seen >= BULK.into() {
            // The lock is released first: the lane's thread may need it.
            let ended = lanes.lock().unwrap().take();
            drop(ended);
            return Some(snapshot.early_frames);
        }
        assert!(!late, "the lane has seen {seen} of {BULK} datagrams within a minute");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn the_core_is_obeyed_inside_a_burst_of_bulk() {
    in_namespaces(|| {
        let check = || {
            for core_takes_reports in [true, false] {
                let Some(frames) = frames_before_the_core_is_obeyed(core_takes_reports) else {
                    return;
                };
                // The part with the tenth report, and the one that the lane processes meanwhile.
                assert!(
                    frames >= BEFORE as u64 && frames <= 2 * AT_ONCE,
                    "{frames} frames of {BULK}"
                );
            }
        };
        NetNs::new().unwrap().run(check).unwrap();
    });
}
