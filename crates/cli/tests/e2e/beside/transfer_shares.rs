//! Shares with the real binary: what members see of them, what they fetch, and what survives.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};

use serde_json::Value;

use super::join::{Net, code, done, members};
use super::transfer::{User, content, describe, two};
use crate::common::{PATIENCE, beside, wait_until};

/// Bytes of a group.
const GROUP: u64 = 1 << 20;

fn path(path: &std::path::Path) -> &str {
    path.to_str().unwrap()
}

/// Lists what a peer shares.
fn browse(user: &User<'_>, what: &str) -> Value {
    serde_json::from_str(&user.done(&["browse", what, "--json"])).unwrap()
}

fn names(listing: &Value) -> Vec<&str> {
    let names = listing["names"].as_array().unwrap();
    names.iter().map(|one| one["name"].as_str().unwrap()).collect()
}

/// Fetches into the folder of the user and returns the identifier.
fn get(user: &User<'_>, arguments: &[&str]) -> String {
    let begun = user.done(&[&["get", "--no-follow", "--json", "--to", path(&user.folder)], arguments].concat());
    let begun: Value = serde_json::from_str(&begun).unwrap();
    begun["transfers"][0]["id"].as_str().unwrap().to_owned()
}

#[test]
fn a_shared_folder_is_listed_and_arrives_as_it_is() {
    beside(|| {
        let net = Net::start(&["a", "b"]);
        let [desk, nas] = two(&net).map(User::start);
        let photos = nas.folder.join("photos");
        fs::create_dir_all(photos.join("2026/empty")).unwrap();
        fs::write(photos.join("2026/big"), content(3 * GROUP + 17, 1)).unwrap();
        fs::write(photos.join("small"), "hello").unwrap();
        fs::set_permissions(photos.join("small"), fs::Permissions::from_mode(0o640)).unwrap();
        symlink("small", photos.join("link")).unwrap();
        assert_eq!(names(&browse(&desk, "nas")), [""; 0]);
        let refused = nas.failed(&["share", "add", path(&nas.folder.join("none"))]);
        assert!(refused.contains("cannot be shared"), "{refused}");
        nas.done(&["share", "add", path(&photos), "--name", "pictures"]);
        nas.done(&["share", "add", path(&photos.join("small"))]);
        assert_eq!(names(&browse(&desk, "nas")), ["pictures", "small"]);
        let top = browse(&desk, "nas:pictures");
        assert_eq!(names(&top), ["2026", "link", "small"]);
        assert_eq!(
            (
                &top["names"][0]["kind"],
                &top["names"][1]["kind"],
                &top["names"][2]["size"]
            ),
            (&"folder".into(), &"link".into(), &5.into())
        );
        assert_eq!(names(&browse(&desk, "root@nas:pictures/2026")), ["big", "empty"]);
        for (what, words) in [
            ("nas:photos", "no such share, or not for this node"),
            ("nas:pictures/none", "no such file or folder in this share"),
            ("nas:pictures/link/x", "no such file or folder in this share"),
        ] {
            let refused = desk.failed(&["browse", what]);
            assert!(refused.contains(words), "{refused}");
        }
        let whole = get(&desk, &["nas:pictures"]);
        let part = get(&desk, &["nas:pictures/2026/big"]);
        let got = desk.wait(&whole, "done");
        assert_eq!(
            (&got["share"], &got["peer"]),
            (&"pictures".into(), &"nas".into()),
            "{got:#}"
        );
        desk.wait(&part, "done");
        assert_eq!(describe(&desk.folder.join("pictures")), describe(&photos));
        assert_eq!(
            fs::read(desk.folder.join("big")).unwrap(),
            fs::read(photos.join("2026/big")).unwrap()
        );
        let sent = nas.wait(&whole, "done");
        assert_eq!(
            (&sent["direction"], &sent["peer"], &sent["share"]),
            (&"send".into(), &"desk".into(), &"pictures".into())
        );
        let new = desk.folder.join("new");
        let output = desk.done(&["get", "nas:small", "--follow", "--to", path(&new)]);
        assert_eq!(fs::read(new.join("small")).unwrap(), b"hello");
        assert!(output.contains("received"), "{output}");
        let shares: Value = serde_json::from_str(&nas.done(&["share", "remove", "small", "--json"])).unwrap();
        assert_eq!(shares["shares"][0]["name"], "pictures");
        let gone = desk.wait(&get(&desk, &["nas:small"]), "failed");
        assert!(gone["why"].as_str().unwrap().contains("no such share"), "{gone:#}");
    });
}

#[test]
fn a_share_is_invisible_to_other_members() {
    beside(|| {
        let net = Net::start(&["a", "b", "c"]);
        let [desk, nas, cam] = &net.nodes[..] else { panic!() };
        done(desk, &["create", "home", "--host", "desk"]);
        for (node, name) in [(nas, "nas"), (cam, "cam")] {
            let code = code(desk, &["--name", name]);
            done(node, &["join", &code]);
        }
        for node in &net.nodes {
            wait_until(PATIENCE, "all know all", || members(node).len() == 3);
        }
        done(desk, &["member", "tag", "cam", "family"]);
        let [desk, nas, cam] = [desk, nas, cam].map(User::start);
        for (name, to) in [("tagged", "tag:family"), ("named", "nas"), ("other", "network:other")] {
            let folder = desk.folder.join(name);
            fs::create_dir(&folder).unwrap();
            fs::write(folder.join("file"), name).unwrap();
            desk.done(&["share", "add", path(&folder), "--to", to]);
        }
        wait_until(PATIENCE, "the tag is known", || {
            names(&browse(&cam, "desk")) == ["tagged"]
        });
        assert_eq!(names(&browse(&nas, "desk")), ["named"]);
        for (user, hidden) in [(&nas, "tagged"), (&nas, "other"), (&nas, "none"), (&cam, "named")] {
            let refused = user.failed(&["browse", &format!("desk:{hidden}")]);
            assert!(refused.contains("no such share, or not for this node"), "{refused}");
            let failed = user.wait(&get(user, &[&format!("desk:{hidden}/file")]), "failed");
            assert_eq!(failed["why"], "no such share, or not for this node");
        }
        nas.wait(&get(&nas, &["desk:named/file"]), "done");
        assert_eq!(fs::read(nas.folder.join("file")).unwrap(), b"named");
    });
}

#[test]
fn a_kill_of_either_end_fetches_nothing_twice() {
    beside(|| {
        let net = Net::start(&["a", "b"]);
        let [mut desk, mut nas] = two(&net).map(User::start);
        [&desk, &nas].iter().for_each(|user| user.bound_sockets());
        let size = 40 * GROUP + 5;
        let (file, bytes) = (nas.folder.join("film"), content(size, 7));
        fs::write(&file, &bytes).unwrap();
        nas.done(&["share", "add", path(&file)]);
        let base = nas.bytes_read();
        let id = get(&desk, &["nas:film", "--limit", "4M"]);
        let (mut read, mut stored) = (0, 0);
        for kill in 0..6 {
            // Some of it has come since the last time.
            wait_until(PATIENCE, "it goes on", || {
                let now = desk.transfer(&id);
                now["bytes"]["done"].as_u64().unwrap_or(0) >= stored + GROUP
            });
            stored = desk.transfer(&id)["bytes"]["done"].as_u64().unwrap();
            match kill % 2 {
                0 => read += nas.kill(),
                _ => drop(desk.kill()),
            }
            nas.wait_ready();
            desk.run(&["resume", &id]);
        }
        assert_ne!(desk.transfer(&id)["state"], "done", "all kills came before the end");
        let got = desk.wait(&id, "done");
        read += nas.bytes_read();
        assert_eq!(fs::read(desk.folder.join("film")).unwrap(), bytes);
        // What was under way at a kill comes again: a group of each connection, and what its sockets held.
        let under_way = 6 * 4 * GROUP;
        assert!(read < base + size + under_way, "{read} bytes read for {size}: {got:#}");
    });
}

#[test]
fn a_share_that_is_removed_midway_ends_its_transfer() {
    beside(|| {
        let net = Net::start(&["a", "b"]);
        let [desk, nas] = two(&net).map(User::start);
        let file = nas.folder.join("film");
        fs::write(&file, content(40 * GROUP, 3)).unwrap();
        nas.done(&["share", "add", path(&file)]);
        let id = get(&desk, &["nas:film", "--limit", "1M"]);
        wait_until(PATIENCE, "it runs at both ends", || {
            desk.transfer(&id)["bytes"]["done"].as_u64() > Some(0) && nas.transfer(&id)["state"] == "running"
        });
        let refused = nas.failed(&["pause", &id]);
        assert!(refused.contains("is fetched from here"), "{refused}");
        desk.done(&["pause", &id]);
        wait_until(PATIENCE, "it is not sent any more", || nas.transfer(&id).is_null());
        assert_eq!(desk.transfer(&id)["state"], "paused");
        desk.done(&["resume", &id]);
        wait_until(PATIENCE, "it runs again", || nas.transfer(&id)["state"] == "running");
        nas.done(&["share", "remove", "film"]);
        let failed = desk.wait(&id, "failed");
        assert_eq!(failed["why"], "no such share, or not for this node");
        assert_eq!(fs::read_dir(&desk.folder).unwrap().count(), 0, "nothing is left of it");
        // Either user can end one.
        nas.done(&["share", "add", path(&file)]);
        for (end, why) in [(&nas, "cancelled at the sending end"), (&desk, "cancelled here")] {
            let id = get(&desk, &["nas:film", "--limit", "1M"]);
            wait_until(PATIENCE, "it runs", || nas.transfer(&id)["state"] == "running");
            end.done(&["cancel", &id]);
            assert_eq!(desk.wait(&id, "cancelled")["why"], why);
            nas.wait(&id, "cancelled");
        }
        assert_eq!(
            fs::read_dir(&desk.folder).unwrap().count(),
            0,
            "nothing is left of them"
        );
    });
}

#[test]
fn a_get_waits_for_the_process_of_its_owner() {
    beside(|| {
        let net = Net::start(&["a", "b"]);
        let [desk, nas] = two(&net);
        let mut desk = User::start(desk);
        let id = get(&desk, &["nas:notes"]);
        let waits = |desk: &User<'_>| {
            wait_until(PATIENCE, "the reason is told", || {
                let now = desk.transfer(&id);
                now["state"] == "queued" && now["why"].to_string().contains("no user of nas")
            });
        };
        waits(&desk);
        desk.kill();
        waits(&desk);
        let nas = User::start(nas);
        let file = nas.folder.join("notes");
        fs::write(&file, "late").unwrap();
        // A get fails where the process answers and the share does not exist.
        desk.wait(&id, "failed");
        nas.done(&["share", "add", path(&file)]);
        desk.done(&["resume", &id]);
        desk.wait(&id, "done");
        assert_eq!(fs::read(desk.folder.join("notes")).unwrap(), b"late");
    });
}
