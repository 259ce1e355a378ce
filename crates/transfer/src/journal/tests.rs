use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

const BOOT: [u8; 16] = [1; 16];
const LATER: [u8; 16] = [2; 16];

fn file_with(bytes: &[u8]) -> File {
    let file = tempfile::tempfile().unwrap();
    file.write_all_at(bytes, 0).unwrap();
    file
}

fn bytes_of(file: &File) -> Vec<u8> {
    let len = usize::try_from(file.metadata().unwrap().len()).unwrap();
    let mut bytes = vec![0; len];
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

fn open(bytes: &[u8], boot: [u8; 16]) -> (Journal, Kept) {
    Journal::open(file_with(bytes), boot).unwrap()
}

fn file(number: u32) -> Record {
    Record::File {
        number,
        path: RelPath::new(format!("f{number}").as_bytes()).unwrap(),
        size: 9,
        mtime_s: -3,
        mtime_ns: 4,
        identity: [5; 48],
    }
}

fn group(number: u32, index: u64, seed: u8) -> Record {
    let hash = Hash([seed; 32]);
    Record::Group { number, index, hash }
}

fn groups(kept: &Kept, number: u32) -> Vec<u64> {
    kept.files
        .get(&number)
        .map(|file| file.groups.ranges().flatten().collect())
        .unwrap_or_default()
}

/// A journal with these records.
fn journal(records: &[Record]) -> Vec<u8> {
    let (mut journal, _) = open(b"", BOOT);
    records.iter().for_each(|record| journal.append(record).unwrap());
    bytes_of(&journal.file)
}

#[test]
fn records_are_kept() {
    let moved = Record::Moved {
        path: RelPath::new(b"f1").unwrap(),
        name: b"f1 (2)".to_vec(),
        number: 7,
    };
    let stored = Record::Stored {
        number: 2,
        hash: Hash([9; 32]),
    };
    let records = [
        file(1),
        group(1, 7, 1),
        file(2),
        group(2, 0, 1),
        stored,
        moved,
        file(3),
        Record::Forget { number: 3 },
        group(1, 8, 1),
        group(1, 7, 0),
    ];
    let (journal, kept) = open(&journal(&records), BOOT);
    assert!(kept.same_boot);
    assert_eq!(groups(&kept, 1), [8], "zeros are no data");
    assert_eq!(kept.files[&2].stored, Some(Hash([9; 32])));
    assert_eq!(kept.moved, [(RelPath::new(b"f1").unwrap(), b"f1 (2)".to_vec(), 7)]);
    assert_eq!(kept.files.len(), 2);
    let hashes = journal.hashes(1, 0, u64::MAX).unwrap();
    assert_eq!(hashes.into_iter().collect::<Vec<_>>(), [(8, Hash([1; 32]))]);
}

#[test]
fn a_file_that_changed_keeps_its_groups() {
    let (_, kept) = open(&journal(&[file(1), group(1, 3, 1), file(1)]), BOOT);
    assert_eq!(groups(&kept, 1), [3]);
}

#[test]
fn after_a_start_of_the_system_synced_records_count() {
    let records = [file(1), group(1, 0, 1), Record::Synced, group(1, 1, 1)];
    let bytes = journal(&records);
    let (_, kept) = open(&bytes, BOOT);
    assert_eq!(groups(&kept, 1), [0, 1]);
    let (mut journal, kept) = open(&bytes, LATER);
    assert!(!kept.same_boot);
    assert_eq!(groups(&kept, 1), [0]);
    journal.append(&group(1, 5, 1)).unwrap();
    let bytes = bytes_of(&journal.file);
    let (_, kept) = open(&bytes, LATER);
    assert_eq!(groups(&kept, 1), [0, 5], "what did not count never comes back");
    let (_, kept) = open(&bytes, [3; 16]);
    assert_eq!(groups(&kept, 1), [0]);
}

#[test]
fn a_group_that_may_be_written_over_counts_no_more() {
    let records = [
        file(1),
        group(1, 0, 1),
        group(1, 1, 1),
        file(2),
        group(2, 0, 1),
        Record::Synced,
        group(1, 1, 0),
        group(1, 0, 2),
        Record::Forget { number: 2 },
    ];
    let bytes = journal(&records);
    let (journal, kept) = open(&bytes, LATER);
    assert_eq!(groups(&kept, 1), [0; 0]);
    assert!(!kept.files.contains_key(&2));
    let (_, again) = open(&bytes_of(&journal.file), LATER);
    assert_eq!(again.files, kept.files);
}

#[test]
fn a_long_journal_is_read_in_parts() {
    let mut records = vec![file(1)];
    records.extend((0..20_000).map(|index| group(1, index * 2, 1)));
    let (journal, kept) = open(&journal(&records), BOOT);
    assert_eq!(kept.files[&1].groups.len(), 20_000);
    assert_eq!(kept.files[&1].groups.ranges().count(), 20_000);
    assert_eq!(journal.hashes(1, 100, 200).unwrap().len(), 50);
}

fn any_record() -> impl Strategy<Value = Record> {
    prop_oneof![
        (0..4_u32).prop_map(file),
        (0..4_u32, 0..200_u64, any::<u8>()).prop_map(|(number, index, seed)| group(number, index, seed)),
        (0..4_u32).prop_map(|number| Record::Stored {
            number,
            hash: Hash([1; 32])
        }),
        (0..4_u32).prop_map(|number| Record::Forget { number }),
        Just(Record::Synced),
    ]
}

proptest! {
    #[test]
    fn each_prefix_is_what_was_written_until_then(records in proptest::collection::vec(any_record(), 0..20), cut in 0..2_000_usize) {
        let bytes = journal(&records);
        let cut = &bytes[..cut.min(bytes.len())];
        let (_, kept) = open(cut, BOOT);
        let expected = (0..=records.len()).map(|len| {
            let mut expected = Kept { same_boot: true, ..Kept::default() };
            records[..len].iter().for_each(|record| expected.note(record.clone()));
            expected
        });
        let whole = (0..=records.len()).rfind(|len| journal(&records[..*len]).len() <= cut.len());
        let expected: Vec<Kept> = expected.collect();
        prop_assert_eq!(&kept, &expected[whole.unwrap_or(0)]);
    }

    #[test]
    fn damage_ends_a_journal_and_upsets_nothing(records in proptest::collection::vec(any_record(), 1..9), at in any::<prop::sample::Index>(), bit in 0..8_u32) {
        let mut bytes = journal(&records);
        let at = at.index(bytes.len());
        bytes[at] ^= 1_u8 << bit;
        let (journal, _) = open(&bytes, BOOT);
        prop_assert!(journal.end <= bytes.len() as u64 + 23);
    }

    #[test]
    fn no_bytes_upset_a_journal(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let (_, kept) = open(&bytes, BOOT);
        prop_assert!(kept.files.len() < 2);
    }

    #[test]
    fn a_set_of_groups_is_a_set(actions in proptest::collection::vec((any::<bool>(), 0..300_u64), 0..200)) {
        let (mut groups, mut model) = (GroupSet::default(), BTreeSet::new());
        for (insert, group) in actions {
            match insert {
                true => prop_assert_eq!(groups.insert(group), model.insert(group)),
                false => prop_assert_eq!(groups.remove(group), model.remove(&group)),
            }
            prop_assert_eq!(groups.len(), model.len() as u64);
        }
        let ranges: Vec<_> = groups.ranges().collect();
        prop_assert!(ranges.windows(2).all(|pair| pair[0].end < pair[1].start));
        prop_assert!(ranges.into_iter().flatten().eq(model.iter().copied()));
        prop_assert!((0..300).all(|group| groups.contains(group) == model.contains(&group)));
    }
}
