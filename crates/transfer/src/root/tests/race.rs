//! Another process that changes folders into links while paths are resolved.

use std::sync::atomic::AtomicBool;
use std::thread;

use super::*;

/// All that changes files below `d/in`. Returns how many of the calls succeeded, and how many did not.
fn attack(root: &Root) -> [u32; 2] {
    let at = |rel: &str| path(format!("d/in/{rel}"));
    root.create_new(&path("mine")).unwrap();
    let calls = [
        root.create_new(&at("file")).map(drop),
        root.open_rw(&at("kept"))
            .and_then(|mut file| file.write_all(b"changed")),
        root.make_dir(&at("dir"), 0o700).map(drop),
        root.make_dirs(&at("a/b")),
        root.symlink(&at("link"), b"x"),
        root.set_mode(&at("kept"), 0o444),
        root.set_times(&at("kept"), 1, 1),
        root.rename_to(&path("mine"), root, &at("moved"), false),
        root.rename_to(&at("moved"), root, &path("mine"), true),
        root.enter(&at("a")).map(drop),
        root.remove_file(&at("file")),
        root.remove_dir(&at("dir")),
        root.remove_all(&at("a")),
        root.remove_all(&at("kept")),
    ];
    let succeeded = calls.iter().filter(|call| call.is_ok()).count();
    [succeeded, calls.len() - succeeded].map(|count| u32::try_from(count).unwrap())
}

#[test]
fn a_folder_that_becomes_a_link_leads_nowhere() {
    both_ways(|case| {
        // Beside the root is what a link to `outside` leads to.
        let target = case.base.path().join("target");
        fs::create_dir_all(target.join("in/a")).unwrap();
        let seen = |rel: &str| {
            let meta = fs::symlink_metadata(target.join(rel)).unwrap();
            (meta.ino(), meta.mode(), meta.mtime(), meta.size())
        };
        fs::write(target.join("in/kept"), "kept").unwrap();
        fs::write(target.join("in/a/kept"), "kept").unwrap();
        let all = ["", "in", "in/a", "in/kept", "in/a/kept"];
        let before = all.map(seen);
        symlink(&target, case.inside("swap")).unwrap();
        let (done, mut counts) = (AtomicBool::new(false), [0, 0]);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    let _ = weft_os::file::exchange(&case.inside("d"), &case.inside("swap"));
                }
            });
            let mut rounds = 0;
            while rounds < 2000 || counts.iter().any(|count| *count < 1000) {
                rounds += 1;
                // What the calls below removed is there again.
                let _ = case.root.make_dirs(&path("d/in/a"));
                let _ = case.root.create_new(&path("d/in/kept"));
                let [succeeded, failed] = attack(&case.root);
                counts = [counts[0] + succeeded, counts[1] + failed];
                case.root.remove_all(&path("mine")).unwrap();
                if rounds % 50 == 0 {
                    let _ = case.root.remove_all(&path("d"));
                }
                if fs::symlink_metadata(case.inside("swap")).is_err() {
                    symlink(&target, case.inside("swap")).unwrap();
                }
            }
            done.store(true, Ordering::Relaxed);
        });
        assert_eq!(all.map(seen), before);
    });
}
