//! The fuzz target of announcements in a LAN.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};

use weft_reach::lan::sightings::{ADDRESS_BURST, ADDRESS_INTERVAL, BURST, INTERVAL, Sightings, on_link};
use weft_reach::lan::{Announcement, Day, MAX_MATCHES, MAX_NETWORKS};

use crate::input::Input;

const SECRETS: [[u8; 32]; 2] = [[1; 32], [2; 32]];
const MEMBERS: [[u8; 32]; 3] = [[3; 32], [4; 32], [5; 32]];

/// A TXT record of any entries, one of a member that is damaged, and sightings in any order.
pub fn lan(bytes: &[u8]) {
    record(bytes);
    damaged(bytes);
    sightings(bytes);
}

/// Entries as the bytes have them: `key=value`, in lines.
fn record(bytes: &[u8]) {
    let entries = bytes.split(|byte| *byte == b'\n').filter_map(|line| {
        let at = line.iter().position(|byte| *byte == b'=')?;
        Some((std::str::from_utf8(&line[..at]).ok()?, &line[at + 1..]))
    });
    let Ok(announcement) = Announcement::read(entries) else {
        return;
    };
    assert!(announcement.tags.len() <= MAX_NETWORKS);
    let again = announcement.entries();
    let again = again.iter().map(|(key, value)| (key.as_str(), value.as_bytes()));
    assert_eq!(Announcement::read(again).as_ref(), Ok(&announcement));
    let networks = SECRETS.iter().map(|secret| (secret, MEMBERS));
    assert!(announcement.members(2121, Day::of(0), networks).len() <= MAX_MATCHES);
}

/// An announcement of a member, with one byte changed, is of this member or of none.
fn damaged(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let member = MEMBERS[input.below(MEMBERS.len())];
    let announcement = Announcement::new([9; 8], 2121, Day::of(0), &member, &SECRETS);
    let mut entries = announcement.entries();
    let place = input.below(entries.len());
    let mut value = std::mem::take(&mut entries[place].1).into_bytes();
    let at = input.below(value.len());
    value[at] ^= input.below(256) as u8;
    let all = entries.iter().enumerate().map(|(n, (key, of))| match n == place {
        true => (key.as_str(), value.as_slice()),
        false => (key.as_str(), of.as_bytes()),
    });
    if let Ok(read) = Announcement::read(all) {
        let found = read.members(2121, Day::of(0), SECRETS.iter().map(|secret| (secret, MEMBERS)));
        assert!(found.iter().all(|key| *key == member));
    }
}

/// No address is dialled more often than its budget allows, and none outside the LAN.
fn sightings(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let subnets = [weft_wire::Subnet::around(Ipv4Addr::new(10, 0, 0, 0).into(), 29).unwrap()];
    let (mut now, mut sightings) = (0, Sightings::default());
    let mut dialled: BTreeMap<SocketAddr, u64> = BTreeMap::new();
    while !input.is_empty() {
        now += 100 * input.below(64) as u64;
        let key = MEMBERS[input.below(MEMBERS.len())];
        let at = SocketAddr::from(([10, 0, 0, input.below(16) as u8], 2121));
        let instance = ["a", "b"][input.below(2)];
        match input.below(5) {
            0 => sightings.lose(instance),
            1 => sightings.set_linked(now, &key, input.flag()),
            _ if on_link(at, &subnets) => sightings.sight(now, key, instance, &[at], input.flag()),
            _ => {}
        }
        while let Some(dial) = sightings.poll(now) {
            assert!(on_link(dial.at, &subnets));
            *dialled.entry(dial.at).or_default() += 1;
        }
        for times in dialled.values() {
            assert!(*times <= ADDRESS_BURST + now / ADDRESS_INTERVAL);
        }
        assert!(dialled.values().sum::<u64>() <= BURST + now / INTERVAL);
        assert!(sightings.timeout().is_none_or(|at| at > now), "nothing is left to do");
    }
}
