use proptest::prelude::*;

use super::*;

/// 2024-10-04.
const TODAY: Day = Day(20_000);

/// docs/protocol/lan.md has it, too; made by a program of its own.
const DOCUMENT: &str = include_str!("../../../../docs/protocol/lan.md");

fn read(entries: &[(String, String)]) -> Result<Announcement, BadAnnouncement> {
    Announcement::read(entries.iter().map(|(key, value)| (key.as_str(), value.as_bytes())))
}

fn entry(key: &str, value: &str) -> (String, String) {
    (key.to_owned(), value.to_owned())
}

#[test]
fn the_announcement_is_that_of_the_document() {
    let announcement = Announcement::new([2; 8], 2121, TODAY, &[3; 32], [&[1; 32], &[4; 32]]);
    for (key, value) in announcement.entries() {
        let line = format!("{key}={value}");
        assert!(DOCUMENT.lines().any(|of| of == line), "{line}");
    }
}

#[test]
fn members_recognise_which_member_it_is() {
    let members = [[3; 32], [5; 32], [6; 32]];
    let announcement = Announcement::new([2; 8], 2121, TODAY, &members[1], [&[1; 32], &[4; 32]]);
    let found = |port, secret: &Secret| announcement.members(port, TODAY, [(secret, members)]);
    assert_eq!(found(2121, &[1; 32]), [members[1]]);
    assert_eq!(found(2121, &[4; 32]), [members[1]]);
    assert!(found(2122, &[1; 32]).is_empty(), "of another port");
    assert!(found(2121, &[9; 32]).is_empty(), "of another secret");
    assert!(
        announcement.members(2121, TODAY, [(&[1; 32], [members[0]])]).is_empty(),
        "the member is not among those that the reader knows"
    );
    // Nothing of one announcement is in the next one.
    let next = Announcement::new([7; 8], 2121, TODAY, &members[1], [&[1; 32], &[4; 32]]);
    for tag in &announcement.tags {
        assert!(
            next.tags
                .iter()
                .all(|of| of.network != tag.network && of.member != tag.member)
        );
    }
}

#[test]
fn an_announcement_is_good_for_three_days() {
    let member = [3; 32];
    let announcement = Announcement::new([2; 8], 2121, TODAY, &member, [&[1; 32]]);
    let read = |day: u32| announcement.members(2121, Day(day), [(&[1; 32], [member])]).len();
    assert_eq!([19_998, 19_999, 20_000, 20_001, 20_002].map(read), [0, 1, 1, 1, 0]);
    assert_eq!(Day::of(20_000 * 86_400 + 86_399), TODAY);
    assert_eq!(Day::of(u64::MAX), Day(u32::MAX));
}

#[test]
fn entries_that_are_no_announcement_have_their_reason() {
    let nonce = entry("n", "0202020202020202");
    assert_eq!(read(std::slice::from_ref(&nonce)), Err(BadAnnouncement::Version));
    assert_eq!(read(&[entry("v", "1"), nonce.clone()]), Err(BadAnnouncement::Version));
    assert_eq!(read(&[entry("v", "2")]), Err(BadAnnouncement::Nonce));
    assert_eq!(read(&[entry("v", "2"), entry("n", "02")]), Err(BadAnnouncement::Nonce));
    assert_eq!(
        read(&[entry("v", "2"), nonce.clone(), entry("t0", "ab")]),
        Err(BadAnnouncement::Tag)
    );
    let upper = "AB".repeat(12);
    assert_eq!(
        read(&[entry("v", "2"), nonce.clone(), entry("t0", &upper)]),
        Err(BadAnnouncement::Tag)
    );
    let other = [
        entry("v", "2"),
        nonce.clone(),
        entry("later", "x"),
        entry("tx", "y"),
        entry("t", ""),
    ];
    assert_eq!(read(&other).unwrap().tags, []);
    let many = vec![entry("x", ""); MAX_ENTRIES + 1];
    assert_eq!(read(&many), Err(BadAnnouncement::TooMany));
    let mut tags = vec![entry("v", "2"), nonce];
    tags.extend((0..40).map(|at| entry(&format!("t{at}"), &"ab".repeat(12))));
    assert_eq!(read(&tags).unwrap().tags.len(), MAX_NETWORKS);
}

proptest! {
    #[test]
    fn announcements_round_trip(nonce: [u8; 8], port: u16, own: [u8; 32], secrets: Vec<[u8; 32]>) {
        let announcement = Announcement::new(nonce, port, TODAY, &own, &secrets);
        prop_assert_eq!(announcement.tags.len(), secrets.len().min(MAX_NETWORKS));
        prop_assert_eq!(read(&announcement.entries()), Ok(announcement.clone()));
        for secret in secrets.iter().take(MAX_NETWORKS) {
            prop_assert_eq!(announcement.members(port, TODAY, [(secret, [own])]), vec![own]);
        }
    }

    #[test]
    fn no_entries_panic(entries: Vec<(String, Vec<u8>)>) {
        let _ = Announcement::read(entries.iter().map(|(key, value)| (key.as_str(), value.as_slice())));
    }
}
