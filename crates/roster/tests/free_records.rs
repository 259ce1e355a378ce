//! Records of keys without rights: any member makes as many as it likes, and they cost the reader little.

#![allow(clippy::unwrap_used, reason = "test helpers")]

mod common;

use std::sync::Arc;

use common::*;
use weft_noise::{Identity, SecretKey};
use weft_roster::key::RecordKey;
use weft_roster::record::{Body, Draft, Record};
use weft_roster::set::RecordSet;
use weft_roster::state::State;
use weft_roster::sync::{Message, Proven, Sync};

/// A node that is a member, and what it knows.
struct Reader {
    set: RecordSet,
    state: State,
    sync: Sync,
    now: u64,
}

impl Reader {
    fn new() -> Self {
        let records = [founding(1, None), grant(1, 2, 1), member(1, 3, 1), member(1, 4, 1)];
        let set = set(&records);
        let mut sync = Sync::new(key(3));
        sync.connect(key(4), 0);
        Self {
            state: State::of(&set),
            set,
            sync,
            now: 0,
        }
    }

    /// Takes records of the member 4, as many in a message as fit. It has all the time that its share
    /// takes. Returns how many count.
    fn receive(&mut self, records: &[String]) -> usize {
        let mut counted = 0;
        for some in records.chunks(200) {
            let message = Message::Records {
                want: Vec::new(),
                records: some.to_vec(),
            };
            self.now += 100_000;
            let (set, state) = (&mut self.set, &self.state);
            let received = self
                .sync
                .receive(&key(4), &message.encode(), set, state, &Proven::default(), self.now);
            assert_eq!(received.outcome, Ok(()));
            counted += received.kept.len();
        }
        counted
    }
}

/// A record by which a new key makes itself an administrator.
fn self_signed(number: usize) -> String {
    let mut bytes = [0x66; 32];
    bytes[..8].copy_from_slice(&(number as u64).to_be_bytes());
    let identity = Identity::new(SecretKey::from_bytes(&bytes).unwrap());
    let about = RecordKey::Admin(identity.public());
    let record = Draft::new(id(), about, 1, &Body::Plain).sign(&identity, 0).unwrap();
    record.event().to_json()
}

/// The length of the state of a reader as text: that of each map and list in it.
fn extent(reader: &Reader) -> [usize; 2] {
    [format!("{:?}", reader.set).len(), format!("{:?}", reader.sync).len()]
}

#[test]
fn ten_thousand_free_records_cost_no_verification() {
    let records: Vec<String> = (0..20_000).map(self_signed).collect();
    let mut reader = Reader::new();
    // All times have as many digits.
    reader.now = 1_000_000_000_000;
    let before = (reader.set.bytes(), reader.set.records().count());
    let mut extents = Vec::new();
    for (received, records) in records.chunks(10_000).enumerate() {
        assert_eq!(reader.receive(records), 0);
        // They leave nothing in memory, so nothing is written of them either.
        assert_eq!((reader.set.bytes(), reader.set.records().count()), before);
        let counts = reader.set.counts();
        let without_rank = 10_000 * (received as u64 + 1);
        assert_eq!((counts.verified, counts.without_rank), (0, without_rank));
        extents.push(extent(&reader));
    }
    // The work for a message cannot grow with the messages before it, as long as those leave nothing to look at.
    assert_eq!(extents[0], extents[1]);
}

#[test]
fn records_of_unproven_signers_count_by_their_chain() {
    // Each signer has its rights by a record behind its own, and the founder's comes last.
    let chain: Vec<Arc<Record>> = [
        vec![
            member(5, 30, 1),
            grant(4, 5, 1),
            grant(3, 4, 1),
            grant(2, 3, 1),
            grant(1, 2, 1),
        ],
        vec![
            member(9, 31, 1),
            revoke(7, 7, 2),
            grant(1, 7, 1),
            founding(1, None),
            founding(1, None),
        ],
    ]
    .concat();
    let mut set = RecordSet::new(id());
    let mut sync = Sync::new(key(9));
    sync.connect(key(1), 0);
    let message = Message::Records {
        want: Vec::new(),
        records: chain.iter().map(|record| record.event().to_json()).collect(),
    };
    let state = State::of(&set);
    let received = sync.receive(&key(1), &message.encode(), &mut set, &state, &Proven::default(), 0);
    assert_eq!(received.outcome, Ok(()));
    let state = State::of(&set);
    assert!(state.members.contains_key(&key(30)), "by an administrator of rank 4");
    assert!(state.admins.resigned.contains(&key(7)));
    assert!(!state.members.contains_key(&key(31)));
    assert_eq!(set.counts().without_rank, 1);
    // A forger of the founder is looked at, and ends the message.
    let forged = founding(2, None).event().to_json().replace("\"2\"", "\"3\"");
    let message = Message::Records {
        want: Vec::new(),
        records: vec![forged],
    };
    let received = sync.receive(&key(1), &message.encode(), &mut set, &state, &Proven::default(), 0);
    assert!(received.outcome.is_err(), "{received:?}");
}

#[test]
fn void_records_of_a_former_administrator_are_bounded() {
    let mut records = vec![founding(1, None), grant(1, 2, 1), grant(1, 3, 1)];
    let note = |by, n: u32| {
        let mut bytes = [0x77; 32];
        bytes[..4].copy_from_slice(&n.to_be_bytes());
        let guest = RecordKey::Guest(bytes);
        record(by, RecordKey::Unknown(format!("note/{guest}")), 1, false, &Body::Plain)
    };
    records.extend((0..200).map(|n| note(3, n)));
    records.extend((0..9_500).map(|n| note(2, n)));
    let mut set = set(&records);
    let live = set.bytes();
    assert!(live > weft_roster::set::MAX_VOID, "{live}");
    set.insert(&revoke(2, 3, 9));
    set.insert(&revoke(1, 3, 2));
    set.insert(&revoke(1, 2, 2));
    // One that fills the room takes none from another.
    let of_other = set.records().filter(|record| *record.signer() == key(3));
    assert_eq!(of_other.count(), 200);
    assert!(set.bytes() <= weft_roster::set::MAX_VOID + 4_096, "{}", set.bytes());
    assert!(set.counts().evicted > 0);
    assert_eq!(State::of(&set).admins.of.len(), 1);
}

/// What another thread has verified is not verified again, chains of grants included, and what it was not
/// given, or what is forged, is.
#[test]
fn the_synchronisation_verifies_nothing_that_was_verified() {
    let base = [founding(1, None), grant(1, 2, 1), member(1, 4, 1), member(1, 9, 1)];
    let mut set = set(&base);
    let state = State::of(&set);
    let mut sync = Sync::new(key(9));
    sync.connect(key(4), 0);
    let mut records: Vec<Arc<Record>> = (20..120).map(|n| member(2, n, 1)).collect();
    records.extend([member(3, 130, 1), grant(2, 3, 1), member(7, 131, 1)]);
    let message = |records: &[Arc<Record>]| Message::Records {
        want: Vec::new(),
        records: records.iter().map(|record| record.event().to_json()).collect(),
    };
    let bytes = message(&records).encode();
    let unproven = sync.unproven(&key(4), &bytes, (&set, &state), 0).unwrap();
    let proven = unproven.verify();
    let received = sync.receive(&key(4), &bytes, &mut set, &state, &proven, 0);
    assert_eq!((received.outcome, received.kept.len()), (Ok(()), 102));
    assert_eq!((set.counts().verified, set.counts().without_rank), (0, 1));
    // Nor are those that are older than what is known.
    let old: Vec<Arc<Record>> = (5..7).map(|n| grant(2, n, 1)).collect();
    for n in 5..7 {
        set.insert(&grant(2, n, 2));
    }
    let bytes_of_old = message(&old).encode();
    let state = State::of(&set);
    let unproven = sync.unproven(&key(4), &bytes_of_old, (&set, &state), 0).unwrap();
    let received = sync.receive(&key(4), &bytes_of_old, &mut set, &state, &unproven.verify(), 0);
    assert_eq!((received.outcome, received.kept.len()), (Ok(()), 0));
    assert_eq!(set.counts().verified, 0);
    // Known records, and those of signers without a say, are no work.
    let state = State::of(&set);
    assert!(sync.unproven(&key(4), &bytes, (&set, &state), 0).is_none());
    // Nor is what comes from a stranger.
    let more = message(&[member(2, 140, 1)]).encode();
    assert!(sync.unproven(&key(8), &more, (&set, &state), 0).is_none());
    assert!(sync.unproven(&key(4), &more, (&set, &state), 0).is_some());

    // The same text with another signature is not the record that was verified.
    let good = member(2, 141, 1);
    let json = good.event().to_json();
    let sig = json.find("\"sig\":\"").unwrap() + 7;
    let mut forged = json.clone();
    forged.replace_range(sig..sig + 2, if json[sig..].starts_with("00") { "11" } else { "00" });
    let forged = Message::Records {
        want: Vec::new(),
        records: vec![forged],
    };
    let proven = sync
        .unproven(&key(4), &message(&[good]).encode(), (&set, &state), 0)
        .unwrap()
        .verify();
    let received = sync.receive(&key(4), &forged.encode(), &mut set, &state, &proven, 0);
    assert!(received.outcome.is_err() && received.kept.is_empty(), "{received:?}");
    assert_eq!(set.counts().verified, 1);
    // A forgery ends what is verified of a message.
    let unproven = sync.unproven(&key(4), &forged.encode(), (&set, &state), 0).unwrap();
    let received = sync.receive(&key(4), &forged.encode(), &mut set, &state, &unproven.verify(), 0);
    assert!(received.outcome.is_err());
    assert_eq!(set.counts().verified, 1);
}
