//! Transfers with the real binary that are killed, cut off and moved to other paths: what comes, and what comes again.

use std::fs;
use std::path::Path;

use serde_json::Value;
use weft_lab::daemon::Daemon;
use weft_lab::random::SplitMix64;

use super::join::{Net, code, done, members};
use super::transfer::{Tmpfs, User, content, describe, path, two};
use crate::common::net::Net as Mesh;
use crate::common::{MINUTE, PATIENCE, beside, wait_until};

/// Bytes of a group.
const GROUP: u64 = 1 << 20;

/// The seed of what is drawn, for further runs.
const SEED: &str = "WEFT_FAULTS_SEED";

/// Numbers from the seed of this run.
pub(crate) fn random() -> SplitMix64 {
    let seed = std::env::var(SEED).map_or(36, |text| text.parse().unwrap());
    eprintln!("{SEED}={seed}");
    SplitMix64::new(seed)
}

/// The connections that carry the data of a transfer.
const CONNECTIONS: u64 = 4;

/// Makes a tree of files of many groups and of many files; returns its bytes.
fn plant(top: &Path, big: u64, small: u64) -> u64 {
    fs::create_dir_all(top.join("small")).unwrap();
    let mut all = 0;
    let mut write = |name: String, size: u64| {
        fs::write(top.join(name), content(size, all)).unwrap();
        all += size;
    };
    for number in 0..big {
        write(format!("big{number}"), 16 * GROUP + 5 + number);
    }
    for number in 0..small {
        write(format!("small/{number}"), 700 * (number % 90));
    }
    all
}

/// The bytes that have come to a host through the mesh.
fn came(user: &User<'_>) -> u64 {
    let read = || fs::read_to_string("/proc/thread-self/net/dev").unwrap();
    let table = user.node().host().run(read).unwrap();
    let line = table.lines().find_map(|line| line.trim().strip_prefix("weft"));
    let figures = line.and_then(|line| line.split_once(':')).unwrap().1;
    figures.split_whitespace().next().unwrap().parse().unwrap()
}

#[test]
fn ten_kills_of_each_end_repeat_what_was_under_way() {
    const KILLS: u64 = 20;
    beside(|| {
        let mut random = random();
        let net = Net::start(&["a", "b"]);
        let [mut desk, mut nas] = two(&net).map(User::start);
        [&desk, &nas].iter().for_each(|user| user.bound_sockets());
        nas.done(&["receive", "members"]);
        let top = desk.folder.join("tree");
        let size = plant(&top, 3, 400);
        let (start, before) = ([&desk, &nas].map(User::bytes_read), came(&nas));
        let id = desk.send(&[path(&top), "nas", "--limit", "4M"]);
        let mut read = [0, 0];
        let mut stored = 0;
        for kill in 0..KILLS {
            let next = stored + 1 + random.below(5 * GROUP / 2);
            wait_until(PATIENCE, "it has come as far as the next kill", || {
                if desk.transfer(&id)["state"] == "queued" {
                    // Without the pause of two seconds.
                    desk.run(&["resume", &id]);
                }
                let now = nas.transfer(&id)["bytes"]["done"].as_u64().unwrap_or(0);
                stored = stored.max(now);
                now >= next
            });
            match kill % 2 {
                0 => read[0] += desk.kill(),
                _ => read[1] += nas.kill(),
            }
            nas.wait_ready();
        }
        assert_ne!(desk.transfer(&id)["state"], "done", "all kills came before the end");
        let sent = desk.wait(&id, "done");
        read[0] += desk.bytes_read();
        read[1] += nas.bytes_read();
        assert_eq!(describe(&nas.folder.join("tree")), describe(&top));
        // Without the start of each process: what of the tree was read at each end.
        let of_tree = [0, 1].map(|end: usize| read[end].saturating_sub(start[end] * (KILLS / 2 + 1)));
        let came = came(&nas) - before;
        // At a kill a connection has a group in the process at each of its ends, and less than another one in its
        // sockets. At the receiving end only the first of them has come.
        let under_way = KILLS * CONNECTIONS * GROUP;
        eprintln!(
            "of {size} bytes {of_tree:?} read, {came} received; {} under way at a kill",
            under_way / KILLS
        );
        assert!(
            of_tree[0] >= size && of_tree[0] <= size + 3 * under_way,
            "{of_tree:?} for {size}: {sent:#}"
        );
        assert!(
            of_tree[1] < 4 * GROUP,
            "{of_tree:?} for {size}: it reads again what it has"
        );
        // Headers are less than a tenth of what comes.
        let most = size + 2 * under_way;
        assert!(came >= size && came <= most + most / 10, "{came} for {size}: {sent:#}");
        for counted in ["moved", "read"] {
            assert!(sent[counted].as_u64().unwrap() <= size + 3 * under_way, "{sent:#}");
        }
    });
}

#[test]
fn a_transfer_goes_on_through_a_relay_and_back() {
    beside(|| {
        let mut net = Mesh::new(&["a", "b", "c"]);
        net.start("c", &net.spec(""));
        net.start("a", &net.knowing(&["b", "c"], &[]));
        net.start("b", &net.knowing(&["a", "c"], &[]));
        net.reached_within(PATIENCE, "a", "b");
        net.reached_within(PATIENCE, "b", "a");
        net.wait_direct(["a", "b"], PATIENCE);
        {
            let ends = ["a", "b"].map(|name| User::start(net.node(name)));
            let [a, b] = &ends;
            ends.iter().for_each(User::bound_sockets);
            let (file, size) = (a.folder.join("film"), 40 * GROUP + 5);
            fs::write(&file, content(size, 7)).unwrap();
            let before = came(b);
            let id = a.send(&[path(&file), "b", "--limit", "3M", "--limit-relay", "1M"]);
            a.wait(&id, "waiting");
            b.done(&["accept", &id]);
            let is_on = |words: &str| {
                wait_until(2 * MINUTE, words, || {
                    ends.iter().map(|end| end.transfer(&id)).all(|one| {
                        one["state"] == "running" && one["path"].as_str().is_some_and(|path| path.contains(words))
                    })
                });
            };
            let rate = |words: &str, is_so: &dyn Fn(u64) -> bool| {
                wait_until(MINUTE, words, || a.transfer(&id)["rate"].as_u64().is_some_and(is_so));
            };
            is_on("direct");
            net.keep_apart(&["a", "b"], true);
            is_on("relay");
            let stored = b.transfer(&id)["bytes"]["done"].as_u64().unwrap();
            rate("the limit of relays holds", &|rate| (1..1_300_000).contains(&rate));
            wait_until(PATIENCE, "data come through the relay", || {
                b.transfer(&id)["bytes"]["done"].as_u64().unwrap() >= stored + 2 * GROUP
            });
            net.keep_apart(&["a", "b"], false);
            is_on("direct");
            rate("the limit of relays holds no more", &|rate| rate > 1_600_000);
            let sent = a.wait(&id, "done");
            assert_eq!(fs::read(b.folder.join("film")).unwrap(), fs::read(&file).unwrap());
            // Each of two changes of the path may cost a try.
            let under_way = 2 * CONNECTIONS * GROUP;
            let (came, most) = (came(b) - before, size + 2 * under_way);
            eprintln!("of {size} bytes {came} received; moved {}", sent["moved"]);
            assert!(came >= size && came <= most + most / 10, "{came} for {size}: {sent:#}");
            assert!(sent["read"].as_u64().unwrap() <= size + 3 * under_way, "{sent:#}");
        }
        net.finish();
    });
}

/// What a restart leaves alone of the transfers of a user, in order.
fn lasting(user: &User<'_>) -> Vec<Value> {
    let list = user.list(&[]);
    let all = list["transfers"].as_array().unwrap().iter();
    let of = |one: &Value| {
        let keys = [
            "id",
            "direction",
            "names",
            "peer",
            "user",
            "into",
            "overwrite",
            "share",
            "begun",
            "state",
        ];
        keys.iter().map(|key| one[key].clone()).collect()
    };
    all.map(of).collect()
}

/// What is kept in files of the options of transfers.
fn options(node: &Daemon) -> Vec<String> {
    let mut all = Vec::new();
    for folder in ["queue", "inbox"] {
        for entry in fs::read_dir(node.identity().state.join("transfer").join(folder)).unwrap() {
            let kept: Value = serde_json::from_slice(&fs::read(entry.unwrap().path()).unwrap()).unwrap();
            let keys = [
                "id",
                "limit",
                "limit_relay",
                "exclude",
                "overwrite",
                "into",
                "paths",
                "only",
                "folder",
            ];
            let fetch = ["share", "path", "exclude", "limit"].map(|key| kept["fetch"][key].to_string());
            all.push(format!("{:?} {fetch:?}", keys.map(|key| kept[key].to_string())));
        }
    }
    all.sort();
    all
}

#[test]
fn a_queue_outlives_the_kill_of_all_processes() {
    beside(|| {
        let mut net = Net::start(&["a", "b", "c"]);
        let [desk, nas, cam] = &net.nodes[..] else { panic!() };
        done(desk, &["create", "home", "--host", "desk"]);
        for (node, name) in [(nas, "nas"), (cam, "cam")] {
            done(node, &["join", &code(desk, &["--name", name])]);
        }
        for node in &net.nodes {
            wait_until(PATIENCE, "all know all", || members(node).len() == 3);
        }
        let users = [desk, nas, cam].map(User::start);
        let [desk, nas, cam] = &users;
        let (top, bytes) = (desk.folder.join("tree"), content(3 * GROUP, 3));
        fs::create_dir(&top).unwrap();
        for (name, text) in [("keep", &bytes[..]), ("skip.tmp", b"skip")] {
            fs::write(top.join(name), text).unwrap();
        }
        fs::write(cam.folder.join("notes"), "of cam").unwrap();
        cam.done(&["share", "add", path(&cam.folder.join("notes"))]);
        fs::create_dir(nas.folder.join("over")).unwrap();
        fs::write(nas.folder.join("over/film"), "older").unwrap();
        let film = desk.folder.join("film");
        fs::write(&film, &bytes).unwrap();
        // Offers come as soon as cam is back, and would wait for its user otherwise.
        cam.done(&["receive", "members"]);
        // No user there receives or serves any more.
        cam.done(&["transferd", "--stop"]);
        let (tree, film) = (path(&top), path(&film));
        let plain = ["--exclude", "*.tmp"];
        let ids = [
            desk.send(
                &[
                    &[tree, "cam:in/side", "--limit", "5M", "--limit-relay", "2M"],
                    &plain[..],
                ]
                .concat(),
            ),
            desk.send(&[&[tree, "nas:asked"], &plain[..]].concat()),
            desk.send(&[film, "nas:over", "--overwrite", "--limit", "6M"]),
            nas.send(&[&[path(&nas.folder.join("over")), "cam:from-nas"], &plain[..]].concat()),
        ];
        let to = path(&desk.folder).to_owned() + "/got";
        let got: Value = serde_json::from_str(&desk.done(&[
            "get",
            "cam:notes",
            "--no-follow",
            "--json",
            "--to",
            &to,
            "--limit",
            "4M",
        ]))
        .unwrap();
        let got = got["transfers"][0]["id"].as_str().unwrap();
        for id in &ids[1..3] {
            desk.wait(id, "waiting");
        }
        desk.done(&["pause", &ids[2]]);
        desk.wait(&ids[2], "paused");
        let at_rest = |user: &User<'_>| {
            let mut all = lasting(user);
            // Between two tries it is queued.
            all.iter_mut().for_each(|one| {
                if one[9] == "connecting" {
                    one[9] = "queued".into();
                }
            });
            all
        };
        let before = [desk, nas].map(|user| (at_rest(user), options(user.node())));
        assert_eq!((before[0].0.len(), before[1].0.len()), (4, 3), "{before:#?}");
        users.into_iter().for_each(User::crash);
        for node in &mut net.nodes {
            node.kill().unwrap();
        }
        for node in &mut net.nodes[..2] {
            node.restart().unwrap();
            node.wait_ready(PATIENCE).unwrap();
        }
        let [desk, nas, _] = &net.nodes[..] else { panic!() };
        let [desk, nas] = [desk, nas].map(User::again);
        for (user, before) in [&desk, &nas].into_iter().zip(&before) {
            let is_so = || at_rest(user) == before.0 && options(user.node()) == before.1;
            wait_until(2 * MINUTE, "everything is as before", is_so);
        }
        nas.done(&["accept", &ids[1]]);
        desk.done(&["resume", &ids[2]]);
        desk.wait(&ids[2], "waiting");
        nas.done(&["accept", &ids[2]]);
        for id in &ids[1..3] {
            desk.wait(id, "done");
            nas.wait(id, "done");
        }
        // The third one comes last.
        [desk, nas].into_iter().for_each(User::crash);
        let cam = &mut net.nodes[2];
        cam.restart().unwrap();
        cam.wait_ready(PATIENCE).unwrap();
        let [desk, nas, cam] = &net.nodes[..] else { panic!() };
        let [desk, nas, cam] = [desk, nas, cam].map(User::again);
        for (user, ids) in [(&desk, &[&ids[0][..], got][..]), (&nas, &[&ids[3]])] {
            for id in ids {
                wait_until(2 * MINUTE, "it ends", || user.transfer(id)["state"] == "done");
            }
        }
        let names = |folder: &Path| {
            let mut names: Vec<_> = fs::read_dir(folder)
                .unwrap()
                .map(|one| one.unwrap().file_name())
                .collect();
            names.sort();
            names
        };
        assert_eq!(names(&cam.folder.join("in/side/tree")), ["keep"]);
        assert_eq!(names(&nas.folder.join("asked/tree")), ["keep"]);
        assert_eq!(
            names(&nas.folder.join("over")),
            ["film"],
            "it has replaced the older one"
        );
        assert_eq!(names(&cam.folder.join("from-nas/over")), ["film"]);
        assert_eq!(fs::read(nas.folder.join("over/film")).unwrap(), bytes);
        assert_eq!(fs::read(cam.folder.join("in/side/tree/keep")).unwrap(), bytes);
        assert_eq!(fs::read(desk.folder.join("got/notes")).unwrap(), b"of cam");
        // The history has them in their order, too.
        for (user, before) in [&desk, &nas].into_iter().zip(&before) {
            let without_state = |all: &[Value]| -> Vec<Value> {
                all.iter()
                    .map(|one| one.as_array().unwrap()[..9].to_vec().into())
                    .collect()
            };
            let now = lasting(user);
            assert_eq!(without_state(&now), without_state(&before.0));
            assert!(now.iter().all(|one| one[9] == "done"), "{now:#?}");
        }
    });
}

#[test]
fn odd_files_arrive_or_are_named() {
    use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};
    beside(|| {
        let net = Net::start(&["a", "b"]);
        let [desk, nas] = two(&net).map(User::start);
        nas.done(&["receive", "members"]);
        let top = desk.folder.join("odd");
        fs::create_dir(&top).unwrap();
        fs::write(top.join("one"), content(2 * GROUP + 3, 3)).unwrap();
        fs::hard_link(top.join("one"), top.join("other")).unwrap();
        fs::write(top.join("empty"), "").unwrap();
        // Equal where case or the form of an accent does not count.
        for (name, text) in [("Name", "1"), ("name", "2"), ("\u{e9}", "3"), ("e\u{301}", "4")] {
            fs::write(top.join(name), text).unwrap();
        }
        mknodat(CWD, top.join("fifo"), FileType::Fifo, Mode::RUSR, 0).unwrap();
        // Not each user may make one.
        let has_device = mknodat(
            CWD,
            top.join("device"),
            FileType::CharacterDevice,
            Mode::RUSR,
            makedev(1, 3),
        )
        .is_ok();
        std::os::unix::net::UnixListener::bind(top.join("socket")).unwrap();
        let id = desk.send(&[path(&top), "nas"]);
        let notes = desk.wait(&id, "done")["notes"].to_string();
        assert!(notes.contains("a FIFO") && notes.contains("a socket"), "{notes}");
        assert_eq!(notes.contains("a device"), has_device, "{notes}");
        for special in ["fifo", "socket", "device"] {
            let _ = fs::remove_file(top.join(special));
        }
        assert_eq!(describe(&nas.folder.join("odd")).len(), 7);
        // The time of the folder has changed.
        let files = |folder: &Path| describe(&folder.join("odd"));
        assert_eq!(files(&nas.folder), files(&desk.folder));
    });
}

#[test]
fn a_file_that_grows_while_it_is_sent_arrives_whole() {
    beside(|| {
        let net = Net::start(&["a", "b"]);
        let [desk, nas] = two(&net).map(User::start);
        nas.done(&["receive", "members"]);
        let (file, bytes) = (desk.folder.join("log"), content(14 * GROUP + 9, 3));
        let write = |len: u64| {
            let mut file = fs::OpenOptions::new().create(true).append(true).open(&file).unwrap();
            let from = file.metadata().unwrap().len() as usize;
            std::io::Write::write_all(&mut file, &bytes[from..len as usize]).unwrap();
        };
        write(6 * GROUP + 1);
        let id = desk.send(&[path(&file), "nas", "--limit", "3M"]);
        for (has, len) in [(2, 9 * GROUP), (5, 14 * GROUP + 9)] {
            wait_until(PATIENCE, "some of it has come", || {
                nas.transfer(&id)["bytes"]["done"].as_u64() >= Some(has * GROUP)
            });
            write(len);
        }
        desk.wait(&id, "done");
        assert_eq!(fs::read(nas.folder.join("log")).unwrap(), bytes);
    });
}

#[test]
fn a_folder_that_goes_midway_is_made_again() {
    beside(|| {
        let net = Net::start(&["a", "b"]);
        let [desk, nas] = two(&net).map(User::start);
        nas.done(&["receive", "members"]);
        let top = desk.folder.join("tree");
        plant(&top, 1, 60);
        let id = desk.send(&[path(&top), "nas", "--limit", "4M"]);
        wait_until(PATIENCE, "some of it has come", || {
            nas.transfer(&id)["bytes"]["done"].as_u64() >= Some(4 * GROUP)
        });
        let away = nas.folder.with_extension("away");
        fs::rename(&nas.folder, &away).unwrap();
        fs::remove_dir_all(&away).unwrap();
        desk.wait(&id, "done");
        assert_eq!(describe(&nas.folder.join("tree")), describe(&top));
    });
}

#[test]
fn a_folder_that_is_read_only_is_named_and_then_gets_the_rest() {
    beside(|| {
        let net = Net::start(&["a", "b"]);
        let [desk, nas] = two(&net).map(User::start);
        let disk = Tmpfs::mount(&nas.folder, "size=64m");
        nas.done(&["receive", "members"]);
        nas.done(&["limits", "--floor", "0"]);
        disk.change("ro,size=64m");
        let file = desk.folder.join("film");
        fs::write(&file, content(3 * GROUP, 3)).unwrap();
        let id = desk.send(&[path(&file), "nas"]);
        wait_until(PATIENCE, "the sender knows why", || {
            let why = desk.transfer(&id)["why"].to_string();
            why.contains("read-only") || why.contains("Read-only")
        });
        disk.change("rw,size=64m");
        desk.done(&["resume", &id]);
        desk.wait(&id, "done");
        assert_eq!(fs::read(nas.folder.join("film")).unwrap(), fs::read(&file).unwrap());
    });
}
