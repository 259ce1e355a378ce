use proptest::prelude::*;

use super::message::{Ended, MAX_MESSAGE};
use super::*;
use crate::api::TransferId;
use crate::hash::{GROUP, Hash};
use crate::names::RelPath;
use crate::walk::EntryKind;

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(|digit| !digit.is_ascii_whitespace()).collect();
    let pairs = digits
        .chunks(2)
        .map(|pair| std::str::from_utf8(pair).unwrap().to_owned());
    pairs.map(|pair| u8::from_str_radix(&pair, 16).unwrap()).collect()
}

fn entry(path: &str, kind: EntryKind) -> WireEntry {
    WireEntry {
        kind,
        mode: 0o755,
        mtime_s: 1_700_000_000,
        mtime_ns: 0,
        size: 0,
        path: RelPath::new(path.as_bytes()).unwrap(),
        target: Vec::new(),
    }
}

fn framed(message: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    message::write(&mut out, message).unwrap();
    out
}

#[test]
fn connections_begin_as_documented() {
    let token = std::array::from_fn(|at| at as u8);
    let prelude = Prelude {
        token,
        connection: Connection::Data,
    };
    let wire = bytes("000102030405060708090a0b0c0d0e0f 01 02 0000");
    assert_eq!(prelude.to_bytes().to_vec(), wire);
    assert!(Prelude::parse(&prelude.to_bytes()).is_ok_and(|read| read == prelude));
    for (at, value) in [(16, 2), (17, 0), (17, 4), (18, 1)] {
        let mut other = prelude.to_bytes();
        other[at] = value;
        assert!(Prelude::parse(&other).is_err(), "{at}: {value}");
    }
}

#[test]
fn messages_and_frames_as_documented() {
    assert_eq!(framed(&FromSender::Cancel.to_bytes()), bytes("01000000 08"));
    let wanted = request::Request::Use {
        service: "web".to_owned(),
    };
    assert_eq!(framed(&wanted.to_bytes()), bytes("06000000 03 0300 776562"));
    let verdicts = FromReceiver::Verdicts(0, vec![Verdict::Send, Verdict::Have]);
    let wire = bytes("0d000000 04 0000000000000000 0200 00 01");
    assert_eq!(framed(&verdicts.to_bytes()), wire);
    let entries = FromSender::Entries(0, vec![entry("a", EntryKind::Dir)]);
    let wire =
        bytes("27000000 02 0000000000000000 0100 01 ed01 00f1536500000000 00000000 0000000000000000 0100 61 0000");
    assert_eq!(framed(&entries.to_bytes()), wire);
    let frame = Frame {
        entry: 3,
        group: 0,
        len: 5,
        form: Form::Plain,
        changes: 0,
        hash: Hash::of(b"hello"),
    };
    let wire = bytes(
        "0300000000000000 0000000000000000 05000000 00 0000000000000000000000 \
         ea8f163db38682925e4491c5e58d4bb3506ef8c14eb78a86e908c5624a67200f",
    );
    assert_eq!(frame.to_bytes().to_vec(), wire);
}

#[test]
fn entries_that_would_leave_the_folder_are_refused() {
    let read = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut message = FromSender::Entries(0, vec![entry("ab", EntryKind::Link)]).to_bytes();
        change(&mut message);
        FromSender::parse(&message)
    };
    let at = FromSender::Entries(0, vec![entry("ab", EntryKind::Link)])
        .to_bytes()
        .len()
        - 4;
    for path in ["..", "./", "/a", "a/", "a\0"] {
        let refused = read(&|message| message[at..at + 2].copy_from_slice(&path.as_bytes()[..2]));
        assert!(refused.is_err(), "{path}");
    }
    for target in ["/etc/passwd", "../x", ".."] {
        let refused = read(&|message| {
            message.truncate(at + 2);
            message.extend((target.len() as u16).to_le_bytes());
            message.extend(target.as_bytes());
        });
        let error = refused.unwrap_err().to_string();
        assert!(error.contains("leads out of the transfer"), "{error}");
    }
}

#[test]
fn lengths_and_counts_have_bounds() {
    for len in [0, MAX_MESSAGE as u32 + 1, u32::MAX] {
        let error = message::read(&mut &len.to_le_bytes()[..]).unwrap_err().to_string();
        assert!(error.contains(&format!("a message of {len} bytes")), "{error}");
    }
    // Counts beyond the bounds are refused before anything is read.
    for (kind, at) in [(2, 9), (5, 10)] {
        let mut message = vec![0; at + 2];
        message[0] = kind;
        message[at..].copy_from_slice(&u16::MAX.to_le_bytes());
        let error = FromSender::parse(&message).unwrap_err().to_string();
        assert!(error.contains("at once"), "{error}");
    }
    let mut frame = Frame {
        entry: 0,
        group: 0,
        len: GROUP as u32 + 1,
        form: Form::Plain,
        changes: 0,
        hash: Hash([0; 32]),
    };
    assert!(Frame::parse(&frame.to_bytes()).is_err(), "more than a group");
    (frame.len, frame.form) = (1, Form::Zero);
    assert!(Frame::parse(&frame.to_bytes()).is_err(), "zeros with bytes");
}

fn any_entry() -> impl Strategy<Value = WireEntry> {
    let path = "[a-z]{1,9}(/[a-zA-Z0-9 .]{1,9}x){0,3}";
    (
        0..3_u8,
        any::<u16>(),
        any::<i64>(),
        0..1_000_000_000_u32,
        0..=WireEntry::MAX_SIZE,
        path,
    )
        .prop_map(|(kind, mode, mtime_s, mtime_ns, size, path)| {
            let kind = [EntryKind::Dir, EntryKind::File, EntryKind::Link][usize::from(kind)];
            WireEntry {
                kind,
                mode: mode & 0o777,
                mtime_s,
                mtime_ns,
                size: if kind == EntryKind::File { size } else { 0 },
                path: RelPath::new(path.as_bytes()).unwrap(),
                target: if kind == EntryKind::Link {
                    b"x".to_vec()
                } else {
                    Vec::new()
                },
            }
        })
}

fn any_from_sender() -> impl Strategy<Value = FromSender> {
    let hash = any::<[u8; 32]>().prop_map(Hash);
    let names = proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..9), 0..5);
    prop_oneof![
        (any::<[u8; 16]>(), any::<bool>(), 0..u64::MAX, names).prop_map(|(id, overwrite, total, names)| {
            FromSender::Hello(Hello {
                id: TransferId(id),
                overwrite,
                entries: Some(total),
                bytes: None,
                disk: Some(total / 2),
                into: b"x/y".to_vec(),
                names,
            })
        }),
        (any::<u64>(), proptest::collection::vec(any_entry(), 0..9))
            .prop_map(|(first, entries)| FromSender::Entries(first, entries)),
        (any::<u64>(), any::<u64>()).prop_map(|(entries, bytes)| FromSender::End(entries, bytes)),
        (any::<u64>(), any::<u64>(), hash.clone())
            .prop_map(|(entry, groups, hash)| { FromSender::Finished(entry, groups, hash) }),
        (
            any::<u64>(),
            any::<bool>(),
            proptest::collection::vec((any::<u64>(), hash), 0..9)
        )
            .prop_map(|(entry, last, hashes)| FromSender::Hashes(entry, last, hashes)),
        (any::<u64>(), "[ -~]{0,40}").prop_map(|(entry, why)| FromSender::Gone(entry, why)),
        (any::<u64>(), any_entry()).prop_map(|(index, entry)| FromSender::Changed(index, entry)),
        Just(FromSender::Cancel),
        Just(FromSender::Alive),
        any::<bool>().prop_map(FromSender::Limited),
    ]
}

fn any_from_receiver() -> impl Strategy<Value = FromReceiver> {
    let verdict = prop_oneof![
        Just(Verdict::Send),
        Just(Verdict::Have),
        Just(Verdict::Made),
        Just(Verdict::Compare),
        proptest::collection::vec((any::<u64>(), any::<u64>()), 0..9)
            .prop_map(|ranges| Verdict::Resume(ranges.into_iter().map(|(from, to)| from..to).collect())),
        "[ -~]{0,40}".prop_map(Verdict::Refused),
    ];
    prop_oneof![
        Just(FromReceiver::Waiting),
        Just(FromReceiver::Accepted),
        "[ -~]{0,40}".prop_map(|why| FromReceiver::Ended(Ended::NotNow, why)),
        (any::<u64>(), proptest::collection::vec(verdict, 0..9))
            .prop_map(|(first, verdicts)| FromReceiver::Verdicts(first, verdicts)),
        (any::<u64>(), any::<u64>(), any::<[u16; 3]>())
            .prop_map(|(entries, bytes, times)| FromReceiver::Progress(entries, bytes, times)),
        Just(FromReceiver::Note(b"a\xff".to_vec(), "stored as b".to_owned())),
        Just(FromReceiver::Syncing),
        Just(FromReceiver::Done),
        Just(FromReceiver::Alive),
    ]
}

fn any_request() -> impl Strategy<Value = request::Request> {
    use request::Request;
    let path = proptest::collection::vec(any::<u8>(), 0..20);
    let exclude = proptest::collection::vec("[ -~]{0,20}", 0..5);
    prop_oneof![
        ("[a-z]{0,64}", path.clone()).prop_map(|(share, path)| Request::Browse { share, path }),
        (any::<[u8; 16]>(), "[a-z]{0,64}", path, exclude).prop_map(|(id, share, path, exclude)| Request::Get {
            id: TransferId(id),
            share,
            path,
            exclude,
        }),
        "[a-z]{0,64}".prop_map(|service| Request::Use { service }),
        Just(Request::Alive),
    ]
}

fn any_answer() -> impl Strategy<Value = request::Answer> {
    use request::{Answer, Listed};
    let listed = (any::<u64>(), any::<i64>(), proptest::collection::vec(any::<u8>(), 0..9));
    let listed = listed.prop_map(|(size, mtime_s, name)| Listed {
        kind: EntryKind::File,
        size,
        mtime_s,
        name,
    });
    prop_oneof![
        Just(Answer::Granted),
        proptest::collection::vec(listed, 0..9).prop_map(Answer::Listed),
        (any::<bool>(), "[a-z]{0,32}").prop_map(|(more, user)| Answer::End { more, user }),
        "[ -~]{0,40}".prop_map(|why| Answer::Refused(Ended::Rejected, why)),
        Just(Answer::Alive),
    ]
}

proptest! {
    #[test]
    fn requests_and_answers_round_trip(request in any_request(), answer in any_answer()) {
        prop_assert_eq!(request::Request::parse(&request.to_bytes()), Ok(request));
        prop_assert_eq!(request::Answer::parse(&answer.to_bytes()), Ok(answer));
    }

    #[test]
    fn messages_of_the_sender_round_trip(message in any_from_sender()) {
        prop_assert_eq!(FromSender::parse(&message.to_bytes()), Ok(message));
    }

    #[test]
    fn messages_of_the_receiver_round_trip(message in any_from_receiver()) {
        prop_assert_eq!(FromReceiver::parse(&message.to_bytes()), Ok(message));
    }

    #[test]
    fn no_bytes_upset_the_readers(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = (FromSender::parse(&bytes), FromReceiver::parse(&bytes));
        let _ = (request::Request::parse(&bytes), request::Answer::parse(&bytes));
        let _ = message::read(&mut &bytes[..]);
        let _ = Frame::next(&mut &bytes[..]);
    }

    #[test]
    fn cut_messages_are_refused(message in any_from_sender(), cut in 1..200_usize) {
        let bytes = message.to_bytes();
        let cut = &bytes[..bytes.len().saturating_sub(cut)];
        prop_assert!(FromSender::parse(cut).is_err());
    }
}
