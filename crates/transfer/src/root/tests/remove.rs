//! Removal of trees.

use std::thread;

use rustix::process::{Gid, Uid};
use rustix::thread::{set_thread_res_gid, set_thread_res_uid};

use super::*;

/// A chain of 1000 folders in `deep`, each with a file and an empty folder: deeper than a path of the system is long.
fn make_deep(root: &Root) -> io::Result<()> {
    root.make_dir(&path("deep"), 0o700)?;
    let mut folder = root.enter(&path("deep"))?;
    for _ in 0..1000 {
        folder.create_new(&path("file"))?;
        folder.make_dir(&path("beside"), 0o700)?;
        folder.make_dir(&path("folder"), 0o700)?;
        folder = folder.enter(&path("folder"))?;
    }
    Ok(())
}

#[test]
fn a_tree_of_any_depth_is_removed() {
    both_ways(|Case { root, .. }| {
        make_deep(root).unwrap();
        root.remove_all(&path("deep")).unwrap();
        assert_eq!(root.names().unwrap(), Vec::<Vec<u8>>::new());
        root.remove_all(&path("deep")).unwrap();
        root.remove_all(&path("deep/er")).unwrap();
    });
}

#[test]
fn links_are_removed_and_not_what_they_lead_to() {
    both_ways(|case| {
        fs::create_dir_all(case.inside("tree/wide")).unwrap();
        symlink(case.outside(""), case.inside("tree/out")).unwrap();
        symlink("..", case.inside("tree/wide/up")).unwrap();
        mknodat(CWD, case.inside("tree/fifo"), FileType::Fifo, Mode::RUSR, 0).unwrap();
        for number in 0..3000 {
            fs::write(case.inside("tree/wide").join(number.to_string()), "").unwrap();
        }
        case.root.remove_all(&path("tree")).unwrap();
        assert!(case.root.names().unwrap().is_empty());
    });
}

#[test]
fn folders_without_permissions_are_removed() {
    both_ways(|case| {
        fs::create_dir_all(case.inside("tree/closed/inner")).unwrap();
        fs::write(case.inside("tree/closed/inner/file"), "").unwrap();
        fs::set_permissions(case.inside("tree/closed/inner"), Permissions::from_mode(0o500)).unwrap();
        fs::set_permissions(case.inside("tree/closed"), Permissions::from_mode(0o0)).unwrap();
        thread::scope(|scope| {
            let thread = scope.spawn(|| {
                if let Err(error) = become_another(case) {
                    weft_os::test_support::skip(format!("other users of the host: {error}"));
                    return;
                }
                let closed = case.root.enter(&path("tree/closed")).unwrap_err();
                assert_eq!(closed.kind(), ErrorKind::PermissionDenied);
                case.root.set_mode(&path("tree/closed"), 0o1).unwrap();
                case.root.remove_all(&path("tree")).unwrap();
                assert!(case.root.names().unwrap().is_empty());
            });
            thread.join().unwrap();
        });
    });
}

/// Gives the tree to another user, which this thread becomes if it is root: that has all permissions.
fn become_another(case: &Case) -> io::Result<()> {
    if rustix::process::geteuid().is_root() {
        let (uid, gid) = (Uid::from_raw(65534), Gid::from_raw(65534));
        for rel in ["", "tree", "tree/closed", "tree/closed/inner"] {
            std::os::unix::fs::chown(case.inside(rel), Some(65534), Some(65534))?;
        }
        set_thread_res_gid(gid, gid, gid)?;
        set_thread_res_uid(uid, uid, uid)?;
    }
    Ok(())
}
