//! The limits of transfers with the real binary: what each end says, and that a change applies at once.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::UnixStream;
use std::process::Command;

use serde_json::Value;
use weft_lab::child::LoggedChild;

use super::join::Net;
use super::transfer::{User, content, path, two};
use crate::common::{PATIENCE, WEFT, beside, wait_until};

/// Bytes of a group.
const GROUP: u64 = 1 << 20;

fn limits(user: &User<'_>, arguments: &[&str]) -> Value {
    serde_json::from_str(&user.done(&[&["limits", "--json"], arguments].concat())).unwrap()
}

/// Waits until a transfer that has not ended says these words at both ends.
fn both_say(ends: [&User<'_>; 2], id: &str, words: &str) {
    for end in ends {
        wait_until(PATIENCE, words, || {
            let one = end.transfer(id);
            one["state"] == "queued" && one["why"].as_str().is_some_and(|why| why.contains(words))
        });
    }
}

#[test]
fn quotas_and_the_floor_hold_and_both_ends_say_so() {
    beside(|| {
        let net = Net::start(&["a", "b"]);
        let [desk, mut nas] = two(&net).map(User::start);
        nas.done(&["receive", "members"]);
        let file = desk.folder.join("film");
        fs::write(&file, content(3 * GROUP, 3)).unwrap();
        // One group has room, the next one has not.
        limits(&nas, &["--quota", "1.5M"]);
        let id = desk.send(&[path(&file), "nas"]);
        both_say(
            [&desk, &nas],
            &id,
            "the quota of 24 hours is used up at the receiving end",
        );
        assert!(nas.transfer(&id)["moved"].as_u64().unwrap() <= GROUP);
        assert!(!nas.folder.join("film").exists());
        // A restart forgets nothing, and neither does the end of a transfer.
        nas.kill();
        wait_until(PATIENCE, "the process answers again", || {
            nas.run(&["limits"]).status.success()
        });
        assert_eq!(
            limits(&nas, &[])["quota"],
            serde_json::json!({"limit": 1_500_000, "used": GROUP})
        );
        limits(&nas, &["--quota", "none", "--peer-quota", "1M"]);
        desk.done(&["resume", &id]);
        both_say(
            [&desk, &nas],
            &id,
            "the quota of 24 hours is used up at the receiving end",
        );
        limits(&nas, &["--peer-quota", "none", "--floor", "1000T"]);
        desk.done(&["resume", &id]);
        both_say([&desk, &nas], &id, "less than 1000 TB are free at the receiving end");
        limits(&nas, &["--floor", "0"]);
        desk.done(&["resume", &id]);
        desk.wait(&id, "done");
        let now = limits(&nas, &[]);
        assert_eq!(now["quota"]["used"], now["peers"][0]["used"]);
        assert!(now["quota"]["used"].as_u64().unwrap() >= 3 * GROUP, "{now:#}");
        assert_eq!(fs::read(nas.folder.join("film")).unwrap(), fs::read(&file).unwrap());
    });
}

#[test]
fn a_rate_holds_transfers_up_until_it_is_taken_away() {
    beside(|| {
        let net = Net::start(&["a", "b"]);
        let [desk, nas] = two(&net).map(User::start);
        nas.done(&["receive", "members"]);
        let file = desk.folder.join("film");
        for (end, name) in [(&desk, "--send"), (&nas, "--receive")] {
            fs::write(&file, content(20 * GROUP, name.len() as u64)).unwrap();
            limits(end, &[name, "1K"]);
            let id = desk.send(&[path(&file), "nas:into", "--overwrite"]);
            for one in [&desk, &nas] {
                wait_until(PATIENCE, "the limit holds it up", || {
                    one.transfer(&id)["held_up_by"] == "limit"
                });
            }
            limits(end, &[name, "none"]);
            desk.wait(&id, "done");
            assert_eq!(
                fs::read(nas.folder.join("into/film")).unwrap(),
                fs::read(&file).unwrap()
            );
        }
        // A direct path knows no limit of relays.
        limits(&desk, &["--relay", "1K"]);
        let id = desk.send(&[path(&file), "nas:again", "--limit-relay", "1K"]);
        desk.wait(&id, "done");
    });
}

#[test]
fn transfers_beyond_those_at_a_time_wait() {
    beside(|| {
        let net = Net::start(&["a", "b"]);
        let [desk, nas] = two(&net).map(User::start);
        nas.done(&["receive", "members"]);
        limits(&nas, &["--at-once", "1", "--receive", "1K"]);
        let file = desk.folder.join("film");
        fs::write(&file, content(2 * GROUP, 3)).unwrap();
        let first = desk.send(&[path(&file), "nas:first"]);
        desk.wait(&first, "running");
        let second = desk.send(&[path(&file), "nas:second"]);
        both_say(
            [&desk, &nas],
            &second,
            "too many transfers are under way at the receiving end",
        );
        let now = limits(&nas, &["--at-once", "2"]);
        assert_eq!(now["receive_at_once"], serde_json::json!({"limit": 2, "used": 1}));
        desk.done(&["resume", &second]);
        desk.wait(&second, "running");
        limits(&nas, &["--receive", "none"]);
        desk.wait(&first, "done");
        desk.wait(&second, "done");
    });
}

#[test]
fn consent_picks_names_and_the_rest_does_not_count() {
    beside(|| {
        let net = Net::start(&["a", "b"]);
        let [desk, nas] = two(&net).map(User::start);
        fs::create_dir(desk.folder.join("photos")).unwrap();
        fs::write(desk.folder.join("photos/one"), content(2 * GROUP + 5, 1)).unwrap();
        fs::write(desk.folder.join("film.mkv"), content(3 * GROUP, 2)).unwrap();
        fs::write(desk.folder.join("notes.txt"), "notes").unwrap();
        let names = ["photos", "film.mkv", "notes.txt"].map(|name| desk.folder.join(name));
        let id = desk.send(&[path(&names[0]), path(&names[1]), path(&names[2]), "nas"]);
        desk.wait(&id, "waiting");
        let refused = nas.failed(&["accept", &id, "--only", "music"]);
        let words = "the offer has no music; it has photos, film.mkv, notes.txt; nothing is accepted";
        assert!(refused.contains(words), "{refused}");
        assert_eq!(nas.transfer(&id)["state"], "waiting");
        nas.done(&["accept", &id, "--only", "photos", "--only", "*.txt"]);
        let sent = desk.wait(&id, "done");
        let received = nas.wait(&id, "done");
        for one in [&sent, &received] {
            assert_eq!(one["entries"], serde_json::json!({"total": 3, "done": 3}), "{one:#}");
            assert_eq!(one["bytes"]["total"], one["bytes"]["done"], "{one:#}");
            assert_eq!(one["bytes"]["done"], 2 * GROUP + 10, "{one:#}");
        }
        let note = serde_json::json!({"name": "film.mkv", "what": "not wanted at the receiving end"});
        assert_eq!(sent["notes"], serde_json::json!([note]));
        assert!(nas.folder.join("photos/one").exists() && nas.folder.join("notes.txt").exists());
        assert!(!nas.folder.join("film.mkv").exists());
    });
}

#[test]
fn clean_removes_what_ended_transfers_left_alone() {
    beside(|| {
        let net = Net::start(&["a", "b"]);
        let [desk, nas] = two(&net).map(User::start);
        nas.done(&["receive", "members"]);
        limits(&nas, &["--receive", "1K"]);
        let file = desk.folder.join("film");
        fs::write(&file, content(3 * GROUP, 3)).unwrap();
        let ended = desk.send(&[path(&file), "nas"]);
        let goes_on = desk.send(&[path(&file), "nas"]);
        let part = |id: &str| nas.folder.join(format!(".weft-part-{id}"));
        for id in [&ended, &goes_on] {
            wait_until(PATIENCE, "it is staged", || part(id).join("journal").exists());
        }
        nas.done(&["cancel", &ended]);
        desk.wait(&ended, "cancelled");
        // As a crash leaves it, one of a transfer that no record knows, and a link with such a name.
        fs::create_dir_all(part(&ended).join("tree/a")).unwrap();
        fs::write(part(&ended).join("tree/a/b"), content(GROUP, 1)).unwrap();
        let unknown = part(&"5".repeat(32));
        fs::create_dir(&unknown).unwrap();
        let week = std::time::SystemTime::now() - std::time::Duration::from_secs(8 * 86_400);
        fs::File::open(&unknown).unwrap().set_modified(week).unwrap();
        // This one may be of another process.
        let fresh = part(&"7".repeat(32));
        fs::create_dir(&fresh).unwrap();
        let link = part(&"6".repeat(32));
        std::os::unix::fs::symlink(&desk.folder, &link).unwrap();
        fs::create_dir(nas.folder.join(".weft-part-other")).unwrap();
        let cleaned: Value = serde_json::from_str(&nas.done(&["transfers", "clean", "--json"])).unwrap();
        assert_eq!(
            (&cleaned["transfers"], &cleaned["staged"]),
            (&1.into(), &2.into()),
            "{cleaned:#}"
        );
        assert!(cleaned["bytes"].as_u64().unwrap() >= GROUP, "{cleaned:#}");
        assert!(!part(&ended).exists() && !unknown.exists() && fresh.exists());
        assert!(link.is_symlink() && nas.folder.join(".weft-part-other").exists());
        assert!(part(&goes_on).join("journal").exists());
        assert_eq!(nas.transfer(&ended), Value::Null);
        let text = nas.done(&["transfers", "clean"]);
        assert_eq!(text, "nothing was left to be removed\n");
        limits(&nas, &["--receive", "none"]);
        desk.wait(&goes_on, "done");
        desk.done(&["transfers", "clean"]);
        assert_eq!(desk.list(&[])["transfers"], serde_json::json!([]));
    });
}

#[test]
fn a_cancel_without_a_connection_is_told_later() {
    beside(|| {
        let net = Net::start(&["a", "b"]);
        let [desk, nas] = two(&net).map(User::start);
        nas.done(&["receive", "members"]);
        limits(&nas, &["--receive", "1K"]);
        let file = desk.folder.join("film");
        fs::write(&file, content(3 * GROUP, 3)).unwrap();
        let id = desk.send(&[path(&file), "nas"]);
        let part = nas.folder.join(format!(".weft-part-{id}"));
        wait_until(PATIENCE, "it is staged", || part.join("journal").exists());
        nas.done(&["transferd", "--stop"]);
        desk.wait(&id, "queued");
        desk.done(&["cancel", &id]);
        assert!(part.exists());
        // The history stays until it is told.
        desk.done(&["transfers", "clean"]);
        let told = nas.wait(&id, "cancelled");
        assert_eq!(told["why"], "cancelled at the sending end");
        wait_until(PATIENCE, "nothing is left of it", || !part.exists());
        wait_until(PATIENCE, "the sender forgets it", || {
            desk.done(&["transfers", "clean"]);
            desk.transfer(&id) == Value::Null
        });
    });
}

#[test]
fn an_offer_that_waits_is_told_to_the_desktop() {
    beside(|| {
        let net = Net::start(&["a", "b"]);
        let [desk, nas] = two(&net).map(User::start);
        let base = nas.folder.parent().unwrap();
        let (tools, told) = (base.join("tools"), base.join("told"));
        fs::create_dir(&tools).unwrap();
        let script = format!("#!/bin/sh\nprintf '%s|' \"$@\" >> {}\n", told.display());
        fs::write(tools.join("notify-send"), script).unwrap();
        fs::set_permissions(tools.join("notify-send"), fs::Permissions::from_mode(0o755)).unwrap();
        nas.done(&["transferd", "--stop"]);
        let mut process = Command::new(WEFT);
        process.arg("--state").arg(base).arg("transferd");
        process
            .env("DBUS_SESSION_BUS_ADDRESS", "unix:path=/none")
            .env("PATH", &tools);
        let _process = LoggedChild::start(nas.node().host(), process, &base.join("again.log")).unwrap();
        // A verb would start another one.
        wait_until(PATIENCE, "it runs", || {
            UnixStream::connect(base.join("transfer/socket")).is_ok()
        });
        wait_until(PATIENCE, "it can receive", || {
            let up = nas.run(&["transfers", "--json"]);
            serde_json::from_slice::<Value>(&up.stdout).is_ok_and(|up| up["receive"]["why_not"].is_null())
        });
        let file = desk.folder.join("-<b>$(x)");
        fs::write(&file, "x").unwrap();
        let id = desk.send(&[path(&file), "nas"]);
        let expected = format!(
            "--app-name=weft|--|desk offers files|-&lt;b&gt;$(x); weft accept {}|",
            &id[..8]
        );
        wait_until(PATIENCE, "the desktop is told", || {
            fs::read_to_string(&told).is_ok_and(|told| told == expected)
        });
    });
}

#[test]
fn a_verb_ends_the_process_of_an_executable_before_it() {
    beside(|| {
        let net = Net::start(&["a", "b"]);
        let [desk, nas] = two(&net).map(User::start);
        nas.done(&["receive", "members"]);
        limits(&desk, &["--send", "1K"]);
        let file = desk.folder.join("film");
        fs::write(&file, content(3 * GROUP, 3)).unwrap();
        let id = desk.send(&[path(&file), "nas"]);
        desk.wait(&id, "running");
        let base = desk.folder.parent().unwrap();
        let older = base.join("weft");
        fs::copy(WEFT, &older).unwrap();
        desk.done(&["transferd", "--stop"]);
        let mut process = Command::new(&older);
        process.arg("--state").arg(base).arg("transferd");
        let older_process = LoggedChild::start(desk.node().host(), process, &base.join("older.log")).unwrap();
        wait_until(PATIENCE, "the older one runs", || {
            UnixStream::connect(base.join("transfer/socket")).is_ok()
        });
        fs::remove_file(&older).unwrap();
        let own = fs::metadata(WEFT).unwrap().ino();
        let version = desk.list(&[])["version"].as_str().unwrap().to_owned();
        assert!(version.ends_with(&format!(".{own}")), "{version}");
        wait_until(PATIENCE, "the older one has ended", || {
            fs::metadata(format!("/proc/{}/exe", older_process.pid())).is_err()
        });
        limits(&desk, &["--send", "none"]);
        desk.wait(&id, "done");
    });
}

#[test]
fn a_cancel_of_what_is_about_to_begin_holds() {
    beside(|| {
        let net = Net::start(&["a", "b"]);
        let [desk, nas] = two(&net).map(User::start);
        nas.done(&["receive", "members"]);
        limits(&desk, &["--at-once", "1"]);
        let files: Vec<_> = (0..4).map(|number| desk.folder.join(format!("film{number}"))).collect();
        for file in &files {
            fs::write(file, content(3 * GROUP, 3)).unwrap();
        }
        let ids: Vec<String> = files
            .iter()
            .map(|file| desk.send(&[path(file), "nas", "--limit", "1K"]))
            .collect();
        desk.wait(&ids[0], "running");
        // Each cancel gives the next one its turn.
        for id in &ids {
            desk.done(&["cancel", id]);
        }
        for id in &ids {
            assert_eq!(desk.transfer(id)["state"], "cancelled");
        }
        let id = desk.send(&[path(&files[0]), "nas:last"]);
        desk.wait(&id, "done");
        for id in &ids {
            assert_eq!(desk.transfer(id)["state"], "cancelled");
        }
        assert_eq!(
            fs::read_dir(&nas.folder).unwrap().count(),
            1,
            "only the last one has come"
        );
    });
}
