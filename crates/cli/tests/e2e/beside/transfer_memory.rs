//! The memory of the processes of transfers with the real binary: under load, and while a member attacks.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

use weft_control::status::TransferOpened;
use weft_control::{ControlCommand, TransferCommand, TransferPurpose, call};
use weft_transfer::api::TransferId;
use weft_transfer::hash::{GROUP, Hash};
use weft_transfer::names::RelPath;
use weft_transfer::walk::EntryKind;
use weft_transfer::wire::{Connection, Form, Frame, FromReceiver, FromSender, Hello, Prelude, WireEntry, message};

use super::join::Net;
use super::transfer::{User, content, path, two};
use crate::common::{PATIENCE, beside, wait_until};

/// The most bytes of memory of a process.
const MOST: u64 = 64 << 20;

fn assert_small(user: &User<'_>, what: &str) {
    let most = user.most_memory();
    let name = &user.node().identity().name;
    eprintln!("{name}, {what}: {:.1} MiB at most", most as f64 / f64::from(1 << 20));
    assert!(most <= MOST, "{name}, {what}: {most} bytes");
}

/// Asks the daemon of a host for a token, as its user.
fn open(from: &User<'_>, purpose: TransferPurpose) -> TransferOpened {
    let command = ControlCommand::Transfer(TransferCommand::Open {
        peer: "nas".parse().unwrap(),
        purpose,
        user: None,
    });
    call(&from.node().identity().state.join("control.sock"), &command).unwrap()
}

/// Connects from a host as a process with this token does; with none as a stranger.
fn connect(from: &User<'_>, opened: &TransferOpened, kind: Option<Connection>) -> TcpStream {
    let to = SocketAddr::new(opened.address.into(), opened.ports[0]);
    let stream = from.node().host().run(move || TcpStream::connect(to)).unwrap().unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    if let Some(kind) = kind {
        let token = opened.token.parse::<TransferId>().unwrap().0;
        (&stream)
            .write_all(
                &Prelude {
                    token,
                    connection: kind,
                }
                .to_bytes(),
            )
            .unwrap();
    }
    stream
}

/// Offers files and returns the control connection once they are wanted.
fn offer(from: &User<'_>, opened: &TransferOpened, id: u8, sizes: &[u64]) -> TcpStream {
    let mut control = connect(from, opened, Some(Connection::Control));
    let hello = Hello {
        id: TransferId([id; 16]),
        overwrite: false,
        entries: None,
        bytes: None,
        disk: None,
        into: Vec::new(),
        names: (0..sizes.len()).map(|number| number.to_string().into_bytes()).collect(),
    };
    message::write(&mut control, &FromSender::Hello(hello).to_bytes()).unwrap();
    hear(&mut control, |message| matches!(message, FromReceiver::Accepted));
    let entries = sizes.iter().enumerate().map(|(number, size)| WireEntry {
        kind: EntryKind::File,
        mode: 0o600,
        mtime_s: 1_600_000_000,
        mtime_ns: 0,
        size: *size,
        path: RelPath::new(number.to_string().as_bytes()).unwrap(),
        target: Vec::new(),
    });
    message::write(&mut control, &FromSender::Entries(0, entries.collect()).to_bytes()).unwrap();
    hear(&mut control, |message| matches!(message, FromReceiver::Verdicts(..)));
    control
}

/// Reads until a message has come; returns the words of an end before it.
fn hear(control: &mut TcpStream, is_it: impl Fn(&FromReceiver) -> bool) -> Option<String> {
    loop {
        match FromReceiver::parse(&message::read(control).unwrap()).unwrap() {
            message if is_it(&message) => return None,
            FromReceiver::Ended(_, why) => return Some(why),
            _ => {}
        }
    }
}

/// A frame of zstd that becomes so many blocks of 128 KiB of zeros.
fn bomb(blocks: u32) -> Vec<u8> {
    // Magic, no checksum and no size, a window of 8 MiB; then blocks that repeat one byte, the last one with bit 0.
    let mut bytes = vec![0x28, 0xb5, 0x2f, 0xfd, 0, 13 << 3];
    for block in 0..blocks {
        let head = (128 << 10) << 3 | 1 << 1 | u32::from(block + 1 == blocks);
        bytes.extend([&head.to_le_bytes()[..3], &[0]].concat());
    }
    bytes
}

#[test]
fn a_fast_large_transfer_keeps_to_64_mebibytes_of_memory() {
    beside(|| {
        let net = Net::start(&["a", "b"]);
        let [desk, nas] = two(&net).map(User::start);
        nas.done(&["receive", "members"]);
        let file = desk.folder.join("film");
        fs::write(&file, content(200 * GROUP, 7)).unwrap();
        let id = desk.send(&[path(&file), "nas"]);
        desk.wait(&id, "done");
        assert_small(&desk, "sends 200 MiB");
        assert_small(&nas, "receives 200 MiB");
    });
}

#[test]
fn attacks_of_a_member_keep_to_64_mebibytes_of_memory() {
    beside(|| {
        let net = Net::start(&["a", "b"]);
        let [desk, nas] = two(&net).map(User::start);
        nas.done(&["receive", "members"]);

        // Connections without an end, each with the beginning of a prelude.
        let opened = open(&desk, TransferPurpose::Send);
        let all: Vec<TcpStream> = (0..300).map(|_| connect(&desk, &opened, None)).collect();
        all.iter().for_each(|stream| drop((&*stream).write(&[0])));
        assert_small(&nas, "has 300 connections without a token");
        drop(all);
        wait_until(PATIENCE, "it takes connections again", || {
            let id = desk.send(&[path(&desk.folder), "nas"]);
            desk.wait(&id, "done")["state"] == "done"
        });

        // A request byte by byte, behind a length that says far more.
        let opened = open(&desk, TransferPurpose::Read);
        let mut request = connect(&desk, &opened, Some(Connection::Request));
        request.write_all(&(128_u32 << 10).to_le_bytes()).unwrap();
        while request.write_all(&[1]).is_ok() {
            if request
                .set_read_timeout(Some(std::time::Duration::from_millis(5)))
                .is_ok()
                && matches!(request.read(&mut [0; 1]), Ok(0))
            {
                break;
            }
        }
        assert_small(&nas, "gets a request byte by byte");

        // A group that becomes 512 MiB.
        let opened = open(&desk, TransferPurpose::Send);
        let mut control = offer(&desk, &opened, 1, &[5 * GROUP]);
        let mut data = connect(&desk, &opened, Some(Connection::Data));
        let bomb = bomb(4096);
        let frame = |form, bytes: &[u8]| Frame {
            entry: 0,
            group: 0,
            len: u32::try_from(bytes.len()).unwrap(),
            form,
            changes: 0,
            hash: Hash::of(bytes),
        };
        frame(Form::Packed, &bomb).write(&mut data, &bomb).unwrap();
        let why = hear(&mut control, |_| false).unwrap();
        assert!(why.contains("compressed data that are damaged"), "{why}");
        assert_small(&nas, "gets a group that becomes 512 MiB");

        // One group again and again on all connections.
        let opened = open(&desk, TransferPurpose::Send);
        let mut control = offer(&desk, &opened, 2, &[40 * GROUP]);
        let bytes = content(GROUP, 1);
        let frame = frame(Form::Plain, &bytes);
        let all: Vec<TcpStream> = (0..8)
            .map(|_| connect(&desk, &opened, Some(Connection::Data)))
            .collect();
        std::thread::scope(|scope| {
            for mut data in &all {
                scope.spawn({
                    let (frame, bytes) = (&frame, &bytes);
                    move || while frame.write(&mut data, bytes).is_ok() {}
                });
            }
        });
        let why = hear(&mut control, |_| false).unwrap();
        assert!(why.contains("again and again"), "{why}");
        assert_small(&nas, "gets one group again and again");
    });
}
