//! The hashes of what peers have fetched, kept for a resume: so many of each peer, and of all.

use std::fs;
use std::path::Path;
use std::time::SystemTime;

use crate::api::TransferId;
use crate::hash::Hash;

/// The most files of one peer, and of all.
const MOST: (usize, usize) = (64, 256);
/// With what their names begin.
const PREFIX: &str = "get-";

/// Returns the beginning of the names of a peer's files.
fn of_peer(npub: &str) -> String {
    let hash = Hash::of(npub.as_bytes()).to_string();
    format!("{PREFIX}{}-", hash.get(..16).unwrap_or_default())
}

/// Returns the name of the file of a transfer. A peer cannot name that of another one, whatever identifier it chooses.
pub(in crate::process) fn name(npub: &str, id: &TransferId) -> String {
    let hash = Hash::of(&[npub.as_bytes(), b"\0", &id.0].concat()).to_string();
    format!("{}{}", of_peer(npub), hash.get(..32).unwrap_or_default())
}

/// Returns the files that go, the oldest first, so that there is room for one more of a peer.
fn surplus(mut files: Vec<(SystemTime, String)>, npub: &str, own: &str) -> Vec<String> {
    files.retain(|(_, name)| name.starts_with(PREFIX) && name != own);
    files.sort();
    let prefix = of_peer(npub);
    let mut of_peer = files.iter().filter(|(_, name)| name.starts_with(&prefix)).count();
    let mut all = files.len();
    let mut gone = Vec::new();
    for (_, name) in files {
        let is_of_peer = name.starts_with(&prefix);
        if all >= MOST.1 || is_of_peer && of_peer >= MOST.0 {
            all -= 1;
            of_peer -= usize::from(is_of_peer);
            gone.push(name);
        }
    }
    gone
}

/// Makes room for the file of a transfer in `folder`.
pub(super) fn make_room(folder: &Path, npub: &str, id: &TransferId) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    let files = entries.flatten().filter_map(|entry| {
        let changed = entry.metadata().and_then(|found| found.modified()).ok()?;
        Some((changed, entry.file_name().into_string().ok()?))
    });
    for name in surplus(files.collect(), npub, &name(npub, id)) {
        let _ = fs::remove_file(folder.join(name));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn file(age: u64, npub: &str, id: u16) -> (SystemTime, String) {
        let mut bytes = [0; 16];
        bytes[..2].copy_from_slice(&id.to_le_bytes());
        let changed = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000 - age);
        (changed, name(npub, &TransferId(bytes)))
    }

    #[test]
    fn each_peer_has_files_of_its_own() {
        let id = TransferId([1; 16]);
        assert_ne!(name("npub1", &id), name("npub2", &id));
        assert_eq!(name("npub1", &id), name("npub1", &id));
    }

    #[test]
    fn the_oldest_files_of_a_peer_go_first() {
        let mut files: Vec<_> = (0..70).map(|n| file(n.into(), "npub1", n)).collect();
        files.push(file(1_000, "npub2", 0));
        files.push((SystemTime::UNIX_EPOCH, "0f0f".to_owned()));
        let (_, new) = file(0, "npub1", 100);
        let gone = surplus(files.clone(), "npub1", &new);
        let oldest: Vec<String> = (63..70).rev().map(|n| file(0, "npub1", n).1).collect();
        assert_eq!(gone, oldest, "63 stay beside the new one");
        // One that is there is not counted twice, and never goes.
        let gone = surplus(files, "npub1", &file(0, "npub1", 69).1);
        assert_eq!(gone, oldest[1..]);
    }

    #[test]
    fn many_peers_share_the_room_of_all() {
        let files: Vec<_> = (0..260).map(|n| file(n.into(), &format!("npub{n}"), n)).collect();
        let gone = surplus(files, "one more", "get-new");
        let oldest: Vec<String> = (255..260).rev().map(|n| file(0, &format!("npub{n}"), n).1).collect();
        assert_eq!(gone, oldest);
    }
}
